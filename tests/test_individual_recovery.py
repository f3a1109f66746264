"""Sessions that keep a budget for each record: interrupts, young certificates, forged claims."""

from __future__ import annotations

import json

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.session import Session
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.recompute import recomputed

PEOPLE = dp.dataset("people", columns={"age": (0, 128)})
ROWS = {"age": [16.0 * k for k in range(9)] * 20}
BUDGET = dp.Budget(1.0, 1e-6)


def open_session(ledger=None, budget=BUDGET):
    return Session(
        budget=budget,
        accountant="individual",
        people=ROWS,
        ledger=MemoryLedger() if ledger is None else ledger,
        edition="1",
    )


def total(sigma):
    return PEOPLE["age"].sum().release(dp.Gaussian(sigma=sigma))


def squares(session):
    return session.records.reveal()


@pytest.mark.parametrize("steps", [1, 3])
def test_the_certificate_of_a_session_that_has_spent_little_holds(steps):
    session = open_session()
    for k in range(steps):
        session.run(total(5000.0 + k))
    paper = session.certificate()
    verdict = dp.verify(paper)
    assert verdict.holds, verdict.reasons
    document = json.loads(paper.to_json())["session"]
    assert document["odometer"]["epsilon"] == session.epsilon == 1.0
    assert document["spent"] == list(session.spent.costs)


def test_what_is_spent_at_most_in_a_certificate_is_no_more_than_a_budget():
    session = open_session()
    for k in range(12):
        session.run(total(1500.0 + k))
    document = json.loads(session.certificate().to_json())["session"]
    assert document["spent"] == list(session.spent.costs)
    assert dp.verify(session.certificate()).holds


def test_an_entry_that_is_taken_in_twice_is_paid_once(monkeypatch):
    """An interrupt may fall between what an entry does and that it is counted."""
    ledger = MemoryLedger()
    session = open_session(ledger)
    session.run(total(3000.0))
    account = session._account
    add = type(account).add

    def interrupted(self, costs, part):
        monkeypatch.setattr(type(account), "add", add)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(account), "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run(total(2000.0))
    for sigma in (1000.0, 900.0, 800.0):
        session.run(total(sigma))
    other = open_session(ledger)
    assert np.array_equal(squares(session), squares(other))


def test_a_step_in_which_no_record_could_take_part_is_not_verified():
    """A claim below what one step costs whoever is in it was no filter's."""
    session = open_session(ledger := MemoryLedger())
    session.run(PEOPLE.count().release(dp.Gaussian(sigma=10.0)))
    document = json.loads(session.certificate().to_json())
    assert dp.verify(Certificate.from_document(document)).holds
    small = open_session(budget=dp.Budget(0.01, 1e-6))
    small.run(PEOPLE.count().release(dp.Gaussian(sigma=1e6)))
    lesser = json.loads(small.certificate().to_json())
    forged = {
        **document,
        "claim": lesser["claim"],
        "session": {
            **document["session"],
            "remaining": [0.0],
            "odometer": {**document["session"]["odometer"], "epsilon": 0.01},
        },
    }
    verdict = dp.verify(Certificate.from_document(forged))
    assert not verdict.holds
    assert any("does not fit" in reason for reason in verdict.reasons)
    entries = [dict(entry) for entry in ledger.entries()]
    entries[0]["budget"] = [0.01, 1e-6, 0.0]
    assert any("no record could take part" in reason for reason in recomputed(entries).reasons)


def test_who_left_is_in_no_traceback(monkeypatch):
    """Nor where the filter itself is interrupted."""
    session = open_session()
    session.run(total(3000.0))
    monkeypatch.setattr(
        "accountants.individual.sum_up", lambda a, b: (_ for _ in ()).throw(MemoryError)
    )
    with pytest.raises(dp.RunError) as caught:
        session.run(total(2000.0))
    trace, names = caught.value.__traceback__, []
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        assert not any(isinstance(v, np.ndarray) for v in trace.tb_frame.f_locals.values())
        trace = trace.tb_next
    assert "spend" not in names
    assert caught.value.__context__ is None
