"""Audits of sessions: their steps as they were run, beside what they promise."""

from __future__ import annotations

from typing import Any

import pytest
from own_mechanism import Noisy

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError, DocumentError

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [float(20 + i % 60) for i in range(300)]}
SURE = 1 - 1e-7
"""By the audit's own bound, a correct session is accused with a chance below 1e-6."""


def open_session(**more: Any) -> dp.Session:
    return dp.Session(budget=dp.Budget(2.0, 1e-6), people=ROWS, **more)


def steps(session: dp.Session) -> None:
    """A sum between two counts, with noise that the first one's value chooses."""
    first = session.run(PEOPLE.count().release(dp.Laplace(scale=4)))
    session.run(PEOPLE["age"].sum().release(dp.Laplace(scale=400 if first > 100 else 100)))
    session.run(PEOPLE.count().release(dp.Laplace(scale=2)))


def test_a_session_that_keeps_its_promise_is_not_accused() -> None:
    """The three steps cost 1/4 + 1/4 + 1/2; the audit's lower bound is positive and no larger."""
    with open_session(seed=1) as session:
        steps(session)
        before = (session.spent, session.remaining, len(session._ledger.entries()))
        result = session.audit(samples=1_000, confidence=SURE, seed=1)
        assert (session.spent, session.remaining, len(session._ledger.entries())) == before
    assert result.verdict != "violation"
    assert 0.2 < result.epsilon_lower <= 1.0
    assert any("session's certificate: epsilon 2 at delta 1e-06" in note for note in result.notes)
    assert any("fixed as it was chosen" in note for note in result.notes)


def test_a_step_that_leaks_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = dp.Laplace.release

    def quarter(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Laplace(scale=self.scale / 4), value, stream)

    with open_session(seed=1) as session:
        steps(session)
        monkeypatch.setattr(dp.Laplace, "release", quarter)
        result = session.audit(samples=1_000, confidence=SURE, seed=1)
    assert result.verdict == "violation"


def test_its_units_go_among_given_data() -> None:
    with open_session(seed=1) as session:
        session.run(PEOPLE.count().release(dp.Laplace(scale=2)))
        result = session.audit(samples=1_000, seed=1, people=ROWS)
    assert any("as private as they are" in note for note in result.notes)


def test_what_cannot_be_read_is_refused(tmp_path: Any) -> None:
    with open_session(seed=1) as session, pytest.raises(DeclarationError):
        session.audit()
    path = tmp_path / "spends.db"
    with open_session(ledger=path, create=True, edition="1") as one:
        one.run(PEOPLE.count().release(Noisy(width=4.0)))
        assert one.audit(samples=400, seed=1).verdict is not None
    with open_session(ledger=path, edition="1") as two:
        two.run(PEOPLE["age"].sum().release(dp.Laplace(scale=1_000)))
        with pytest.raises(DocumentError):
            two.audit()


@pytest.mark.parametrize("accountant", ["renyi", "individual"])
def test_gaussian_steps_are_audited_as_they_were_chosen(accountant: Any) -> None:
    """Bounds for losses that are fixed before hold of the audit's runs, which choose nothing."""
    with open_session(seed=1, accountant=accountant) as session:
        session.run(PEOPLE["age"].sum().release(dp.Gaussian(sigma=1_000)))
        session.run(PEOPLE["age"].sum().release(dp.Gaussian(sigma=1_000)))
        result = session.audit(samples=400, confidence=SURE, seed=1)
    assert result.verdict != "violation"


def test_it_tells_how_many_runs_are_left():
    people, told = dp.dataset("people", columns={}), []
    with dp.Session(budget=dp.Budget(1.0), people={"id": [1, 2, 3]}, seed=1) as session:
        session.run(people.count().release(dp.Laplace(scale=2)))
        session.audit(samples=500, seed=1, progress=lambda *each: told.append(each))
    assert told[-1][0] == told[-1][1] >= 1_000
    assert told[-1][2] == 0
