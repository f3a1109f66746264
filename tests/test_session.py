"""A session: what it releases, refuses, remembers, forecasts and certifies."""

from __future__ import annotations

import json
import math
import pickle
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import adaptive_dp as dp
from accountants import Approximate, BudgetError, Gaussian, Laplace, Pure
from accountants.errors import InapplicableError
from accountants.filters import SpentSums, SumFilter
from accountants.losses.composite import Composite
from accountants.losses.sampling import Sampled
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import (
    DeclarationError,
    DocumentError,
    LeakError,
    LedgerError,
    RunError,
)
from adaptive_dp.queries.examples import Phases
from adaptive_dp.schemas import certificate_schema
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.budget import Account, accounting_unit, delta_shares, spent_share
from adaptive_dp.session.entries import costs_in
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.session import state_text

ROWS = {
    "age": [float(20 + i % 60) for i in range(300)],
    "region": ["ABC"[i % 3] for i in range(300)],
}
PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B", "C"]})


def open_session(epsilon=1.0, delta=1e-6, accountant="renyi", **more):
    return Session(budget=Budget(epsilon, delta), accountant=accountant, people=ROWS, **more)


def count(sigma=20.0, table=PEOPLE):
    return table.count().release(dp.Gaussian(sigma=sigma))


def add(*values):
    return sum(values)


def state(session):
    return (
        session._account.session_totals.filter_sums.maximum(),
        session._account.session_totals.odometer_sums.maximum(),
        len(session._ledger.entries()),
        session.spent,
        session.epsilon,
        dict(session._released._values),
    )


def test_several_handles_at_once_are_refused_with_the_way_out():
    people = dp.dataset("people", columns={"x": (0, 1)})
    count = people.count().release(dp.Laplace(scale=4))
    with dp.Session(budget=dp.Budget(1.0), people={"x": [0.5]}) as session:
        for ask in (session.run, session.what_if):
            with pytest.raises(DeclarationError):
                ask({"count": count})
        assert session.spent.costs[0] == 0


def test_a_refusal_changes_nothing_and_a_smaller_step_follows():
    session = open_session()
    session.run(count())
    before = state(session)
    with pytest.raises(BudgetError) as refused:
        session.run(count(1.0))
    assert state(session) == before
    assert refused.value.largest is not None
    with pytest.raises(BudgetError):
        session.run(dp.post(add, count(30.0), count(1.0)))
    assert state(session) == before
    session.run(count(30.0))
    assert session.spent.costs[3] > before[3].costs[3]


def test_what_is_recorded_costs_nothing():
    session = open_session()
    handle = count()
    value, spent = session.run(handle), session.spent
    assert session.run(handle) == value == session.run(count())
    doubled = session.run(dp.post(add, handle, handle))
    assert doubled == 2 * value
    assert session.spent == spent
    again = session.run(handle, again=True)
    assert again != value
    assert session.run(handle) == value  # and so stays what followed from it
    assert session.spent.costs[3] == pytest.approx(2 * spent.costs[3])
    arrays = PEOPLE["age"].histogram(edges=[0, 50, 100]).release(dp.Laplace(scale=90))
    first = session.run(arrays)
    first[:] = 0
    assert session.run(arrays).any()  # a copy was given away


def test_twins_in_one_step_are_two_releases():
    session = open_session(accountant="gaussian")
    a, b = count(), count()
    total = session.run(dp.post(add, a, b))
    assert session.spent.costs[0] == pytest.approx(2 / 400)
    assert session.run(a) * 2 != total
    assert session.spent.costs[0] == pytest.approx(2 / 400)


def test_random_parts_last_and_samples_do_not(monkeypatch):
    drawn = []
    run = Phases.run

    def counted(self, inputs, stream):
        drawn.append(1)
        return run(self, inputs, stream)

    monkeypatch.setattr(Phases, "run", counted)
    parts = PEOPLE.examples(["age"], "region", norm=1.0).phases([0.5, 0.5])
    others = PEOPLE.examples(["age"], "region", norm=1.0).phases([0.5, 0.5])

    def slope(part):
        return part.gradients(dp.Multinomial(3), at=dp.public([0.0] * 6)).sum(clip=1.0)

    session = open_session(1e6, accountant="gaussian", seed=3)
    noise = dp.Gaussian(9.0)
    session.run(dp.post(add, slope(parts[0]).release(noise), slope(others[0]).release(noise)))
    assert len(drawn) == 2
    session.run(slope(parts[1]).release(noise))
    session.run(slope(others[1]).release(dp.Gaussian(8.0)))
    assert len(drawn) == 2
    session = open_session(1e9, accountant="basic", seed=3)
    sample = PEOPLE.sample(0.5)
    outcomes = {
        round(session.run(sample.count().release(dp.Laplace(scale=0.001 + k * 1e-9))))
        for k in range(4)
    }
    assert len(outcomes) > 1


def test_a_step_may_follow_released_values_in_query_and_noise():
    session = open_session(5.0)
    n = session.run(count())
    table = PEOPLE.filter(PEOPLE["age"] >= dp.post(add, count(), dp.public(-280.0)))
    session.run(table.count().release(dp.Gaussian(sigma=abs(n) / 10)))
    assert len(session.pipeline.adaptive) == 2


def test_errors_come_before_any_spend():
    session = open_session()
    with pytest.raises(LeakError):
        session.run(PEOPLE)
    with pytest.raises(DeclarationError, match="free"):
        session.run(PEOPLE.count())
    with pytest.raises(DeclarationError, match="free"):
        session.run(PEOPLE.count().release(dp.Gaussian(sigma=dp.Free("s"))))
    with pytest.raises(DeclarationError, match="again"):
        session.run(dp.post(add, count()), again=True)
    with pytest.raises(DeclarationError, match="Budget"):
        Session(budget=1.0)
    with pytest.raises(DeclarationError, match="seed"):
        open_session(seed=-1)
    with pytest.raises(InapplicableError, match="filter"):
        open_session(accountant="distribution")
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(session)
    assert session.spent.costs[3] == 0
    session.close()
    with pytest.raises(DeclarationError, match="closed"):
        session.run(count())


def test_a_loss_without_a_price_names_who_prices_it():
    session = open_session(accountant="basic")
    with pytest.raises(InapplicableError, match="'concentrated' or 'renyi' or 'gaussian'"):
        session.run(count())
    with pytest.raises(InapplicableError, match="renyi"):
        open_session(accountant="gaussian").run(
            PEOPLE.sample(0.1).count().release(dp.Gaussian(sigma=9))
        )
    assert session.spent.costs == (0.0,)


def test_simulations_are_stamped_and_repeat():
    runs = []
    for seed in (1, 1, 2):
        session = open_session(seed=seed)
        runs.append((session.run(count()), session.run(count(), again=True)))
        assert "simulated with seed" in repr(session)
        assert session.certificate().randomness.release is False
    assert runs[0] == runs[1] != runs[2]
    assert runs[0][0] != runs[0][1]
    with pytest.raises(DeclarationError, match="simulation"):
        open_session(seed=1, ledger=MemoryLedger())


def test_an_interrupt_never_forgets_a_spend(monkeypatch):
    session = open_session(accountant="gaussian")
    session.run(count())
    per_step = session._account.session_totals.filter_sums.maximum().sums[0]
    inner = session._account.session_totals.odometer_sums.add
    calls = []

    def interrupted(costs):
        calls.append(costs)
        if len(calls) == 1:
            raise KeyboardInterrupt
        inner(costs)

    monkeypatch.setattr(session._account.session_totals.odometer_sums, "add", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.run(count(), again=True)
    assert session.spent.costs[0] >= float(2 * per_step) * (1 - 1e-12)


def test_another_budget_cannot_open_a_ledger():
    ledger = MemoryLedger()
    open_session(ledger=ledger).run(count())
    with pytest.raises(LedgerError, match="budget"):
        open_session(2.0, ledger=ledger)
    again = open_session(ledger=ledger)
    assert again.spent.costs[3] > 0
    assert again.what_if(count()).already_paid


def test_what_if_spends_nothing_and_says_what_a_run_will():
    session = open_session()
    before = state(session)
    forecast = session.what_if(count())
    assert state(session) == before
    assert forecast.fits
    assert not forecast.already_paid
    session.run(count())
    assert session.remaining == forecast.remaining
    assert session.epsilon == forecast.epsilon
    assert session.spent == forecast.cost
    assert session.what_if(count()).already_paid
    assert session.what_if(count()).cost.costs[3] == 0
    assert not session.what_if(count(), again=True).already_paid
    large = session.what_if(count(0.5))
    assert not large.fits
    assert "not enough of the budget is left" in large.refusal
    assert large.remaining == session.remaining


@pytest.mark.parametrize("accountant", ["best", "renyi", "gaussian", "concentrated", "basic"])
def test_a_reading_is_never_above_the_budget_and_never_falls(accountant):
    session = open_session(accountant=accountant)
    part = session.part("half", 0.5)
    noise = dp.Laplace(scale=20) if accountant == "basic" else dp.Gaussian(sigma=25)
    step = PEOPLE.count().release(noise)
    before, answers = 0.0, 0
    for place, limit in ((part, 0.5), (session, 1.0)):
        while place.what_if(step, again=answers > 0).fits:
            forecast = place.what_if(step, again=answers > 0)
            place.run(step, again=answers > 0)
            assert place.epsilon == forecast.epsilon <= limit
            assert before <= session.epsilon <= 1.0
            assert part.epsilon <= 0.5
            before, answers = session.epsilon, answers + 1
    assert answers > 5
    assert session.epsilon > 0.85
    assert [reading.epsilon for reading in session.history()][-1] == session.epsilon
    paper = session.certificate()
    assert paper.session.odometer.epsilon == session.epsilon
    assert dp.verify(paper).holds


def test_the_shares_of_filter_and_odometer_add_up_to_delta():
    for delta, delta_reserve in (
        (1e-6, 0.0),
        (1e-6, 1e-7),
        (1e-300, 0.0),
        (0.3, 0.1),
        (1e-6, 1e-6),
    ):
        mine, others = delta_shares("best", Budget(1.0, delta, delta_reserve))
        f = Fraction(delta_reserve)
        reserves = [(Fraction(d) - f) / (1 - f) for d in (mine, others)]
        assert f + (1 - f) * sum(reserves) <= Fraction(delta)
        assert min(reserves) >= 0
    assert delta_shares("basic", Budget(1.0, 1e-6, 1e-7)) == (
        1e-6,
        1e-6,
    )  # where delta is not shared


@pytest.mark.parametrize(
    ("accountant", "budget"),
    [
        ("best", Budget(1.0, 0.05)),
        ("renyi", Budget(0.8, 0.2)),
        ("gaussian", Budget(1.0, 0.05)),
    ],
)
def test_no_strategy_within_the_filter_breaks_the_lesser_of_odometer_and_budget(accountant, budget):
    # all strategies of four randomised responses, enumerated with exact likelihood ratios
    unit = accounting_unit(accountant, budget)
    keeps, odometer = unit.filter, unit.odometer
    readings = set()

    def stopped(state, read, loss, left):
        reading = unit.epsilon(read, within_budget=True)
        readings.add((reading < budget.epsilon, read.sums[0] > 0))
        best = max(0.0, 1 - math.exp(reading - loss))
        for size in (0.1, 0.3, 0.6) if left else ():
            if keeps.admits(state, Pure(size)):
                after, recorded = keeps.spend(state, Pure(size)), odometer.spend(read, Pure(size))
                high = 1 / (1 + math.exp(-size))
                best = max(
                    best,
                    high * stopped(after, recorded, loss + size, left - 1)
                    + (1 - high) * stopped(after, recorded, loss - size, left - 1),
                )
        return best

    assert stopped(keeps.start(), odometer.start(), 0.0, 4) <= budget.delta
    assert (True, True) in readings
    assert (False, True) in readings  # the budget is what is read on some paths


def test_the_default_answers_gaussian_steps_as_often_as_a_session_of_gaussians():
    counts = []
    for accountant in ({}, {"accountant": "gaussian"}):
        session = Session(budget=Budget(1.0, 1e-6), seed=1, people=ROWS, **accountant)
        step, answers = count(15.0), 0
        while session.what_if(step, again=answers > 0).fits:
            session.run(step, again=answers > 0)
            answers += 1
        counts.append(answers)
    assert counts == [12, 12]


def test_a_printed_session_says_what_is_spent_and_left():
    session = open_session(1.0, 1e-6, accountant="best", seed=3)
    assert "0 steps" in str(session)
    session.run(count(15.0))
    text = str(session)
    assert text.startswith("session, simulated with seed 3: 1 step\n")
    assert "epsilon 1 at delta 1e-06" in text
    assert "a step fits while one lasts" in text
    assert [line.split()[0] for line in text.splitlines()[-3:]] == ["epsilon", "mu^2", "divergence"]
    # Gaussian noise has no pure epsilon: a sum that is of no use, and not one that was passed
    assert "no bound    not in use" in text.splitlines()[-3]
    assert "inf" not in text
    assert "inf" not in str(session.remaining)
    with pytest.raises(BudgetError) as refusal:
        session.run(count(0.1))
    assert " inf" not in str(refusal.value)
    session.close()
    assert "closed" in str(session)
    assert "private" in str(open_session(accountant="individual", seed=1))


def test_what_is_used_and_what_is_left_are_one_share():
    """By hand, of filters that need one sum or all, budgets of nothing, and failures."""

    class Keeps(SumFilter):
        def __init__(self, every, budgets, delta_reserve=0.0):
            self.needs_every_unit, self.delta_reserve, self._budgets = every, delta_reserve, budgets

        def budgets(self):
            return tuple(map(Fraction, self._budgets))

    def share(every, budgets, sums, delta_reserve=0.0, failed=0.0):
        return spent_share(
            Keeps(every, budgets, delta_reserve),
            SpentSums(tuple(map(Fraction, sums)), Fraction(failed)),
        )

    third = Fraction(1, 3)
    assert share(True, [1, 2], [third, 1]) == Fraction(1, 2)
    assert share(False, [1, 2], [third, 1]) == third
    assert share(False, [1, 0, -1], [third, 0, 0]) == third
    assert share(True, [0], [0]) == 1
    assert share(True, [0], [third]) > 10**300
    assert share(True, [1], [3]) == 3
    assert share(True, [1], [third], 0.5, 0.25) == Fraction(1, 2)
    assert share(True, [1], [third], 0.5, 0.125) == third
    assert share(True, [1], [third], 0.0, 0.125) > 10**300


@pytest.mark.parametrize("accountant", ["best", "advanced", "renyi", "concentrated", "basic"])
def test_shares_are_rounded_outward_and_failures_limit_too(accountant):
    account = Account(Budget(1.0, 1e-5, 1e-6), accountant)
    before = 1.0
    for times in range(1, 8):
        account.add((((), Approximate(0.03, 1e-7)),), ())
        sums = account.session_totals
        keeps = sums.unit.filter
        exact = spent_share(keeps, sums.filter_sums.maximum())
        failed = Fraction(1e-7) * times / Fraction(keeps.delta_reserve)
        assert Fraction(sums.spent_share()) >= exact >= failed
        assert 0 < Fraction(sums.remaining_share()) <= 1 - exact
        assert 1 - sums.spent_share() == pytest.approx(sums.remaining_share(), abs=1e-12)
        assert sums.remaining_share() < before
        before = sums.remaining_share()
    if accountant == "concentrated":
        assert exact == Fraction(1e-7) * 7 / Fraction(1e-6)
        assert "delta floor" in state_text(account, 7, None, closed=False).splitlines()[-1]


def test_parts_spend_their_share_and_the_sessions_budget():
    session = open_session(1.0, 0.0, accountant="basic")
    mine = session.part("mine", 0.5)

    def noisy(scale):
        return PEOPLE.count().release(dp.Laplace(scale=scale))

    mine.run(noisy(2.5))
    assert mine.spent.costs[0] == pytest.approx(0.4)
    with pytest.raises(BudgetError):
        mine.run(noisy(5.0))
    inner = mine.part("inner", 0.1)
    with pytest.raises(BudgetError):
        inner.run(noisy(11))
    inner.run(noisy(25))
    assert mine.spent.costs[0] == pytest.approx(0.44) == session.spent.costs[0]
    session.run(noisy(2.0))
    assert mine.remaining.costs[0] == pytest.approx(0.06)
    assert mine.run(noisy(2.0)) == session.run(noisy(2.0))  # known to all
    assert not mine.what_if(noisy(16.0)).fits
    assert mine.what_if(noisy(18.0)).fits
    for _ in range(2):
        with pytest.raises(BudgetError):
            session.part("all", 1.0).run(noisy(10.0))
    with pytest.raises(DeclarationError, match="share"):
        session.part("mine", 0.6)
    with pytest.raises(DeclarationError, match="slash"):
        session.part("a/b", 0.6)


def test_parts_survive_their_ledger():
    ledger = MemoryLedger()
    open_session(ledger=ledger, accountant="gaussian").part("mine", 0.5).run(count())
    again = open_session(ledger=ledger, accountant="gaussian")
    again.part("other", 0.5).run(count(25.0))
    assert again.part("mine", 0.5).spent.costs[0] == pytest.approx(1 / 400)


def test_the_pipeline_has_the_edges_of_adaptivity():
    session = open_session(accountant="gaussian")
    for sigma in (20.0, 21.0, 22.0):
        session.run(count(sigma), name=f"n{sigma:g}")
    plan = session.pipeline
    chosen = [(a, b) for a, b, kind in plan.graph.edges(data="kind") if kind == "adaptive"]
    assert chosen == [("n20", "n21"), ("n21", "n22")]
    assert plan.svg().count('class="edge released chosen"') == 2
    assert plan.mermaid().count("-.->") == 2
    with pytest.raises(InapplicableError, match=r"session\.certificate"):
        plan.with_delta(1e-6).certify()
    session = open_session(accountant="basic")
    for scale in (10.0, 20.0):
        session.run(PEOPLE.count().release(dp.Laplace(scale=scale)))
    paper = session.pipeline.with_delta(1e-6).certify()
    rows = {row.name: row for row in paper.accountants}
    assert [name for name, row in rows.items() if row.applies] == ["basic"]
    assert paper.epsilon == pytest.approx(0.15)
    assert "chosen as it ran" in rows["renyi"].reason


def test_a_certificate_can_be_verified_and_forgeries_are_detected():
    session = open_session(accountant="gaussian")
    session.run(count(), name="all")
    for _, part in PEOPLE.partition("region"):
        session.run(count(25.0, part), again=True)
    session.run(count(), again=True)
    paper = session.certificate()
    jsonschema.Draft202012Validator(certificate_schema()).validate(json.loads(paper.to_json()))
    assert (paper.epsilon, paper.delta, paper.accountant) == (1.0, 1e-6, "gaussian")
    assert paper.session.ledger.head == session._ledger.entries()[-1]["hash"]
    again = Certificate.from_json(paper.to_json())
    verdict = dp.verify(again)
    assert verdict.holds, verdict.reasons
    for text in (dp.markdown(paper), dp.report(paper)):
        assert "wherever the analyst stops" in text
    assert "odometer" in str(paper)

    def forged(change):
        document = json.loads(paper.to_json())
        change(document)
        return dp.verify(Certificate.from_document(document))

    assert forged(lambda d: None).holds
    for change in (
        lambda d: d["claim"].update(epsilon=0.15),
        lambda d: d["claim"].update(accountant="renyi"),
        lambda d: d["session"].update(spent=[0.001]),
        lambda d: d["session"].update(remaining=[1.0]),
        lambda d: d["session"]["odometer"].update(epsilon=0.01),
        lambda d: d["session"].update(theorem="none"),
        lambda d: d["nodes"].pop(),
        lambda d: d.pop("session"),
    ):
        assert not forged(change).holds


def test_a_certificate_covers_what_other_sessions_of_the_ledger_ran():
    ledger = MemoryLedger()
    open_session(ledger=ledger, accountant="gaussian").run(count())
    session = open_session(ledger=ledger, accountant="gaussian")
    session.run(dp.post(add, count(), count(30.0)))
    paper = session.certificate()
    assert len(paper.nodes) == 2
    assert dp.verify(paper).holds


def releases(paper):
    return sum(node["kind"] == "release" for node in paper.plan["nodes"])


def test_a_certificate_counts_what_was_drawn_again():
    ledger = MemoryLedger()
    first = open_session(ledger=ledger, accountant="gaussian")
    first.run(count())
    first.run(count(), again=True)
    with pytest.raises(RunError):
        first.run(dp.post(lambda n: 1 / 0, count(30.0)))
    first.run(count(30.0))  # drawn again, as nothing was recorded of the attempt that failed
    for session in (first, open_session(ledger=ledger, accountant="gaussian")):
        session.run(count())
        try:
            paper = session.certificate()
        except DocumentError:  # the lambda of another session
            assert session is not first
            continue
        assert releases(paper) == 4
        assert dp.verify(paper).holds
    ledger = MemoryLedger()
    first = open_session(ledger=ledger, accountant="gaussian")
    first.run(count())
    first.run(count(), again=True)
    paper = open_session(ledger=ledger, accountant="gaussian").certificate()
    assert releases(paper) == 2
    assert dp.verify(paper).holds


def test_what_the_ledger_did_not_record_is_not_released():
    class Broken(Exception):
        pass

    class Failing(MemoryLedger):
        def spend(self, seen, decide):
            if len(self._entries) == 2:
                raise Broken
            return super().spend(seen, decide)

    session = open_session(ledger=Failing())
    with pytest.raises(Broken):
        session.run(count())
    assert not session.what_if(count()).already_paid


def test_entries_of_unknown_kinds_are_refused():
    ledger = MemoryLedger()
    session = open_session(ledger=ledger)
    ledger.spend(1, lambda _: {"kind": "spend of another version"})
    for use in (lambda: session.run(count()), lambda: open_session(ledger=ledger)):
        with pytest.raises(LedgerError, match="kind"):
            use()


def test_costs_are_recorded_before_the_value_is_drawn():
    class Broken(Exception):
        pass

    class Failing(MemoryLedger):
        def spend(self, seen, decide):
            if len(self._entries) == 1:
                raise Broken
            return super().spend(seen, decide)

    session = open_session(ledger=Failing())
    drawn = []
    with pytest.raises(Broken):
        session.run(dp.post(lambda n: drawn.append(n), count()))
    assert drawn == []
    assert session.spent.costs[3] == 0
    ledger = MemoryLedger()
    session = open_session(ledger=ledger)
    session.run(count())
    kinds = [entry["kind"] for entry in ledger.entries()]
    assert kinds == ["open", "spend", "release"]
    assert costs_in(ledger.entries()[1])


def answers(accountant, losses):
    """How many steps of a cycle of losses a session answers before the first refusal."""
    keeps = accounting_unit(accountant, Budget(1.0, 1e-6)).filter
    cycle = [keeps.costs(loss) for loss in losses]
    most = 0
    for i, limit in enumerate(keeps.budgets()):
        round_ = sum(costs[i] for costs in cycle)
        rounds = limit // round_ if limit >= 0 else 0
        left, count = limit - rounds * round_, int(rounds) * len(cycle)
        for costs in cycle:
            if costs[i] > left:
                break
            left, count = left - costs[i], count + 1
        most = max(most, count)
    return most


SAMPLED = Sampled(Composite([(Gaussian(0.5), 1)]), 0.01)
KINDS = {
    "Gaussian, sigma 15": [Gaussian(1 / 15)],
    "Gaussian, sigma 100": [Gaussian(0.01)],
    "Laplace, scale 5": [Laplace(Fraction(1, 5))],
    "Laplace, scale 100": [Laplace(Fraction(1, 100))],
    "Gaussian and Laplace by turns": [Gaussian(0.01), Laplace(Fraction(1, 100))],
    "Gaussian, sigma 2, a sample of 1%": [SAMPLED],
}


def test_the_figures_of_the_page_on_sessions():
    page = (Path(__file__).parent.parent / "docs" / "sessions.md").read_text()
    for kind, losses in KINDS.items():
        cells = []
        for accountant in ("best", "renyi", "gaussian", "basic"):
            try:
                cells.append(str(answers(accountant, losses)))
            except InapplicableError:
                cells.append("-")
        assert f"| {kind} | {' | '.join(cells)} |" in page, cells


class Witness(MemoryLedger):
    """A ledger that writes down in which order things happen, and may refuse to write."""

    def __init__(self, refuses=""):
        super().__init__()
        self.events, self.refuses = [], refuses

    def spend(self, seen, decide):
        def decided(others):
            entry = decide(others)
            if entry is not None and entry["kind"] == self.refuses:
                raise LedgerError("the disk is full")
            return entry

        entries = super().spend(seen, decided)
        self.events.append(entries[-1]["kind"])
        return entries


@pytest.mark.parametrize("refused", ["", "spend", "release"])
def test_a_spend_is_durable_before_anything_is_drawn_and_a_value_recorded_before_it_leaves(
    monkeypatch, refused
):
    ledger, draw = Witness(refused), dp.Laplace.release

    def drawn(self, value, stream):
        ledger.events.append("draw")
        return draw(self, value, stream)

    monkeypatch.setattr(dp.Laplace, "release", drawn)
    with dp.Session(budget=Budget(1.0), ledger=ledger, people=ROWS) as session:
        try:
            session.run(PEOPLE.count().release(dp.Laplace(scale=4.0)))
            ledger.events.append("value")
        except LedgerError:
            assert refused
        spent = any(session.spent.costs)
    order = ["open", "spend", "draw", "release", "value"]
    assert ledger.events == (order[: order.index(refused)] if refused else order)
    assert spent == (refused != "spend")  # a refusal changes nothing, a crash wastes budget


# --- intervals of what steps return ------------------------------------------------------------


def test_values_know_their_intervals_and_are_numbers_like_any_other(tmp_path):
    people = dp.dataset("people", columns={"age": (0, 100), "town": ["a", "b"]})
    rows = {"age": [40.0] * 3000, "town": ["a", "b", "b"] * 1000}
    made = people.count().release(dp.Laplace(scale=5))
    with Session(budget=Budget(9.0), people=rows, ledger=tmp_path / "a.db", create=True) as session:
        count = session.run(made)
        # by hand: a Laplace variable is beyond b ln(1 / 0.05) with a probability of 0.05
        low, high = count.interval(0.95)
        assert (high - low) / 2 == pytest.approx(5 * math.log(20), rel=1e-6)
        assert (low + high) / 2 == pytest.approx(count)
        assert isinstance(count, float)
        assert type(count + 1) is type(count * 2) is float
        assert json.loads(json.dumps({"n": count})) == {"n": float(count)}
        assert pickle.loads(pickle.dumps(count)) == count
        towns = session.run(people.group_by("town").count(), share=0.1)
        assert towns.interval().low.shape == towns.shape == (2,)
        assert isinstance(towns, np.ndarray)
        assert list(towns.to_pandas()["town"]) == ["a", "b"]
        # of what follows from this step and an earlier one, whose plan begins at the earlier one
        fine = people["age"].sum().release(dp.Laplace(scale=200))
        mean = session.run(dp.post(lambda total, n: total / n, fine, made))
        ends = mean.interval()
        # 200 ln 20 of 120,000 move the ratio by 0.2, and 5 ln 20 of 3,000 by 0.2
        assert ends.low < mean < ends.high
        assert 0.4 < ends.high - ends.low < 0.8
        plan = dp.Pipeline(both=dp.post(lambda total, n: total + 0 * n, fine, made), n=made)
        result = session.run(plan)
        assert result["n"].interval() == count.interval()
        # values are constants of later steps
        later = people.filter(people["age"] <= mean + 30).count().release(dp.Laplace(scale=7))
        assert session.run(dp.post(lambda n, m: n - m, later, dp.public(count))) < 200
    assert count.interval() == (low, high)
    assert mean.interval() == ends
    with Session(budget=Budget(9.0), people=rows, ledger=tmp_path / "a.db") as session:
        assert session.run(made).interval() == (low, high)
