"""Free noise in sessions, and plans as steps: what is solved, what it costs, what is refused.

The laws hold under every accountant that has a filter. Costs are compared with sums by hand, and
with a session whose whole budget is what the step asked for.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaptive_dp as dp
from accountants import BudgetError
from accountants.errors import InapplicableError
from adaptive_dp.graph.errors import CalibrationError, DeclarationError, LedgerError
from adaptive_dp.graph.handles import Handle, Release
from adaptive_dp.session.budget import StepLimit
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.recompute import recomputed

ROWS = {
    "age": [float(20 + i % 60) for i in range(300)],
    "region": ["ABC"[i % 3] for i in range(300)],
}
PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B", "C"]})
ACCOUNTANTS = ["best", "basic", "advanced", "concentrated", "renyi", "gaussian", "individual"]
# noise that has a price under each, and the filters with one sum, in which all shares add up
NOISE = {"gaussian": dp.Gaussian, "individual": dp.Gaussian}
ONE_SUM = ["basic", "concentrated", "gaussian"]


def open_session(accountant: str = "best", **more: Any) -> dp.Session:
    budget = dp.Budget(1.0, 1e-6)
    return dp.Session(budget=budget, accountant=accountant, people=ROWS, **more)


def noise(accountant: str) -> dp.Mechanism:
    return NOISE.get(accountant, dp.Laplace)()


def count(accountant: str = "best") -> Any:
    return PEOPLE.count().release(noise(accountant))


def total(accountant: str = "best") -> Any:
    return PEOPLE["age"].sum().release(noise(accountant))


def survey(accountant: str = "best", free: dp.Mechanism | None = None) -> dp.Pipeline:
    each = noise(accountant) if free is None else free
    regions = {k: part.count().release(each) for k, part in PEOPLE.partition("region")}
    return dp.Pipeline(age=PEOPLE["age"].sum().release(each), regions=regions)


def scales(session: dp.Session) -> list[float]:
    """Return the noise of every release of the session's plan, over its weight."""
    made = (node.handle for node in session.pipeline.structure)
    releases: list[Handle] = [h for h in made if isinstance(h.operation, Release)]
    return [
        next(iter(h.operation.mechanism.parameters().values()))  # type: ignore[attr-defined]
        for h in releases
    ]


def state(session: dp.Session) -> tuple[Any, ...]:
    return (
        session._account.session_totals.filter_sums.maximum(),
        session._account.session_totals.odometer_sums.maximum(),
        len(session._ledger.entries()),
        dict(session._released._values),
        dict(session._solved),
        dict(session._limits),
        set(session._ran_before),
    )


def test_epsilons_and_shares_are_by_hand_under_basic_composition() -> None:
    with open_session("basic") as session:
        session.run(count("basic"), epsilon=0.25)
        session.run(total("basic"), share=0.5)
        # one part of the partition and the sum: half of a quarter each
        session.run(survey("basic"), epsilon=0.25)
        assert scales(session) == pytest.approx([4, 200, 800, 8, 8, 8], rel=1e-9)
        assert 1 - 1e-9 < session.spent.costs[0] <= 1


@pytest.mark.parametrize("accountant", ["concentrated", "gaussian"])
def test_a_share_is_of_the_square_of_mu_by_hand(accountant: str) -> None:
    with open_session(accountant) as session:
        (most,) = session._account.unit.filter.budgets()
        session.run(PEOPLE.count().release(dp.Gaussian()), share=0.3)
        (sigma,) = scales(session)
        # rho = 1 / (2 sigma^2), and mu^2 = 1 / sigma^2
        unit = 2 if accountant == "concentrated" else 1
        assert sigma == pytest.approx(math.sqrt(1 / (unit * 0.3 * float(most))), rel=1e-7)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("asked", [{"epsilon": 0.1}, {"epsilon": 0.7, "delta": 3e-7}])
def test_a_step_costs_no_more_than_a_session_of_that_budget_admits(
    accountant: str, asked: dict[str, float]
) -> None:
    delta = asked.get("delta", 1e-7)  # a tenth of epsilon has a tenth of delta
    budget = dp.Budget(asked["epsilon"], delta)
    query: list[Any] = [survey(accountant), count(accountant)]
    for step in query:
        with open_session(accountant) as session:
            session.run(step, **asked)
            solved = session.pipeline
        with dp.Session(budget=budget, accountant=accountant, people=ROWS) as alone:
            alone.run(solved)
            # and nearly all of it: with a little less noise it would not fit
            if accountant != "individual":
                assert alone._account.session_totals.remaining_share() < 1e-6
            if accountant in ONE_SUM:
                assert session.spent.costs == alone.spent.costs
            assert 0 < alone.spent.costs[0] < math.inf


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_shares_of_like_steps_fill_the_budget_and_no_more(accountant: str) -> None:
    with open_session(accountant) as session:
        for share in (0.1, 0.2, 0.05, 0.1, 0.05, 0.2):
            session.run(count(accountant), share=share)
        # equal shares of equal queries are one release: 0.1, 0.2 and 0.05
        spent = session._account.session_totals.spent_share()
        assert 0.35 * (1 - 1e-8) < spent <= 0.35 * (1 + 1e-15)
        n = count(accountant)
        for i in range(6):
            session.run(n, share=0.1, again=i > 0)
        assert session._account.session_totals.spent_share() == pytest.approx(0.85)


@settings(max_examples=40, deadline=None)
@given(
    accountant=st.sampled_from(ACCOUNTANTS),
    shares=st.lists(st.integers(1, 12), min_size=1, max_size=6),
    data=st.data(),
)
def test_shares_that_sum_to_one_fit(
    accountant: str, shares: list[int], data: st.DataObject
) -> None:
    """Under filters of one sum with all noise that has a price, else with noise of one kind."""
    kinds = [dp.Laplace] if accountant in ("best", "basic", "advanced", "renyi") else [dp.Gaussian]
    if accountant in ("concentrated", "gaussian"):
        kinds.append(dp.Laplace)
    with open_session(accountant, seed=1) as session:
        for i, share in enumerate(shares):
            kind = data.draw(st.sampled_from(kinds))
            query = PEOPLE.filter(PEOPLE["age"] >= 20 + i)
            if data.draw(st.booleans()):
                step: Any = query.count().release(kind())
            else:
                step = dp.Pipeline(
                    n=query.count().release(kind()), t=query["age"].sum().release(kind())
                )
            session.run(step, share=share / sum(shares))
        spent = session._account.session_totals.spent_share()
        assert 1 - 1e-7 < spent <= 1
        if accountant != "individual":  # which refuses no step for lack of budget
            with pytest.raises(BudgetError):
                session.run(PEOPLE["age"].sum().release(kinds[0]()), share=1e-3)


@settings(max_examples=25, deadline=None)
@given(
    accountant=st.sampled_from(ONE_SUM), parts=st.lists(st.integers(1, 9), min_size=2, max_size=5)
)
def test_epsilons_that_sum_to_the_budget_fit(accountant: str, parts: list[int]) -> None:
    with open_session(accountant, seed=1) as session:
        for i, part in enumerate(parts):
            query = PEOPLE.filter(PEOPLE["age"] >= 20 + i)
            session.run(query.count().release(noise(accountant)), epsilon=part / sum(parts))
        assert session._account.session_totals.spent_share() <= 1


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_refused_step_changes_nothing(accountant: str) -> None:
    with open_session(accountant) as session:
        session.run(count(accountant), share=0.5)
        before = state(session)
        n = count(accountant)
        if accountant != "individual":  # which refuses no step for lack of budget
            for step in (n, survey(accountant), dp.Pipeline(n=n, t=total(accountant))):
                with pytest.raises(BudgetError):
                    session.run(step, share=0.6)
                assert state(session) == before
        for wrong in ({"share": 0.0}, {"share": 1.1}, {"epsilon": 0.0}, {"epsilon": math.nan},
                      {"delta": 1e-7}, {"epsilon": 0.1, "share": 0.1}, {"epsilon": 0.1, "delta": 1},
                      {}):  # fmt: skip
            with pytest.raises(DeclarationError):
                session.run(n, **wrong)
            assert state(session) == before
        # another solution for a handle that was refused is free to choose
        session.run(n, share=0.25)


def test_noise_is_solved_once_and_its_value_recorded() -> None:
    with open_session() as session:
        n, t = count(), total()
        value = session.run(n, share=0.1)
        spent = session.spent
        assert (
            session.run(n) == session.run(n, share=0.1) == session.run(count(), share=0.1) == value
        )
        ratio = dp.post(lambda t, n: (t, n), t, n)
        assert session.spent == spent
        assert session.run(ratio, share=0.2)[1] == value
        # the count costs nothing again, and all of the share is the sum's
        assert session.spent.costs[0] == pytest.approx(0.3)
        with pytest.raises(DeclarationError, match=r"share=0\.1.*share=0\.3"):
            session.run(n, share=0.3)
        with pytest.raises(DeclarationError, match="nothing is free"):
            session.run(PEOPLE.count().release(dp.Laplace(scale=50)), share=0.3)
        again = session.run(n, again=True)
        assert again != value == session.run(n)
        assert session.spent.costs[0] == pytest.approx(0.4)
        assert dp.verify(session.certificate()).holds


def test_free_noise_without_a_limit_says_what_to_write() -> None:
    with open_session() as session:
        for ask in (session.run, session.what_if, session.part("half", 0.5).run):
            with pytest.raises(DeclarationError, match=r"epsilon=0\.1.*share=0\.1"):
                ask(count())


def test_limits_that_cannot_be_met() -> None:
    with open_session() as session:
        fixed = PEOPLE["age"].sum().release(dp.Laplace(scale=100))
        with pytest.raises(CalibrationError, match=r"share=0\.1.*fixed"):
            session.run(dp.Pipeline(n=count(), t=fixed), share=0.1)
        assert session.spent.costs[0] == 0
    with open_session("basic") as session, pytest.raises(InapplicableError, match="renyi"):
        session.run(PEOPLE.count().release(dp.Gaussian()), share=0.1)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_forecast_is_what_the_step_costs(accountant: str) -> None:
    with open_session(accountant) as session:
        for step, asked in (
            (count(accountant), {"share": 0.2}),
            (survey(accountant), {"epsilon": 0.1}),
        ):
            before = state(session)
            forecast = session.what_if(step, **asked)  # type: ignore[call-overload]
            assert state(session) == before
            assert forecast.fits
            session.run(step, **asked)
            assert session.remaining == forecast.remaining
            assert session.epsilon == forecast.epsilon
            assert session.what_if(step, **asked).already_paid  # type: ignore[call-overload]


def test_a_part_takes_shares_of_its_own_budget() -> None:
    with open_session("basic") as session:
        half = session.part("half", 0.5)
        half.run(count("basic"), share=0.5)
        assert half.spent.costs[0] == session.spent.costs[0] == pytest.approx(0.25)
        assert half.what_if(total("basic"), share=0.5).fits
        assert not half.what_if(total("basic"), share=0.6).fits
        result = half.run(survey("basic"), epsilon=0.2)
        assert set(result["regions"]) == {"A", "B", "C"}


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_resumed_session_gives_the_same(accountant: str, tmp_path: Path) -> None:
    def analysis(session: dp.Session) -> list[Any]:
        n = count(accountant)
        values = [session.run(n, share=0.2, name="n")]
        fixed = PEOPLE.count().release(
            dp.Gaussian(sigma=300) if accountant in NOISE else dp.Laplace(scale=300)
        )
        table = session.run(
            dp.Pipeline(n=n, rough=fixed, t=total(accountant)), epsilon=0.2, name="table"
        )
        values += [dict(table)]
        values += [session.run(dp.post(lambda a, b: a / b, total(accountant), n), share=0.1)]
        return values

    where = tmp_path / "ledger.db"
    with open_session(accountant, ledger=where, create=True, edition="one") as session:
        first, spent, plan = analysis(session), session.spent, session.pipeline
        paper = session.certificate()
    with open_session(accountant, ledger=where, edition="one") as session:
        assert analysis(session) == first
        assert session.spent == spent
        assert session.pipeline.fingerprint == plan.fingerprint
        assert dp.verify(session.certificate()).holds
        ledger = recomputed(session._ledger.entries())
        assert ledger.holds, ledger.reasons
    assert paper.session is not None
    assert paper.session.steps == ("n", "table", "step 3")


# --- Plans as steps ----------------------------------------------------------------------------


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_plan_costs_what_its_releases_cost_one_by_one(accountant: str) -> None:
    mechanism = dp.Gaussian(sigma=900) if accountant in NOISE else dp.Laplace(scale=900)
    plan = survey(free=mechanism)
    with (
        open_session(accountant, edition="one") as once,
        open_session(accountant, edition="one") as each,
    ):
        result = once.run(plan, name="survey")
        for _, handle in plan.outputs:
            each.run(handle)
        assert once.spent == each.spent
        assert len(once.history()) == 1
        # one spend, one release
        assert [e["kind"] for e in once._ledger.entries()] == ["open", "spend", "release"]
        assert isinstance(result["age"], float)
        assert [path for path, _ in once.pipeline.outputs] == [
            ("survey", "age"), *(("survey", "regions", k) for k in "ABC")
        ]  # fmt: skip
        assert once.pipeline.adaptive == ("survey",)
        spent = once.spent
        assert dict(once.run(plan)) == dict(result)
        assert once.run(plan.outputs[0][1]) == result["age"]
        assert once.spent == spent
        assert dp.verify(once.certificate()).holds
        assert result.certificate.epsilon == 1.0
        assert "95% interval" in str(result)


def test_a_plan_may_read_earlier_steps_and_later_ones_may_read_it() -> None:
    with open_session() as session:
        n = count()
        value = session.run(n, share=0.1)
        plan = dp.Pipeline(n=n, mean=dp.post(lambda t, n: t / n, total(), n))
        result = session.run(plan, share=0.2, name="mean")
        assert result["n"] == value
        after = dp.post(lambda m, r: m + r, plan.outputs[0][1], total())
        session.run(after, share=0.3)
        assert session.spent.costs[0] == pytest.approx(0.6)
        edges = [(a, b) for a, b, kind in session.pipeline.graph.edges(data="kind") if kind]
        assert ("step 1", "mean.mean") not in edges  # only what is released has adaptive edges
        assert edges
        assert dp.verify(session.certificate()).holds
        assert session.what_if(plan).already_paid


def test_a_mapping_is_refused_with_what_to_write() -> None:
    with open_session() as session:
        with pytest.raises(DeclarationError, match=r"dp\.Pipeline\(\*\*values\)"):
            session.run({"n": count()})  # type: ignore[call-overload]
        with pytest.raises(DeclarationError, match="again"):
            session.run(survey(), again=True)


class _Failing(MemoryLedger):
    """A ledger that refuses to write spends."""

    def spend(self, seen: int, decide: Any) -> Any:
        def decided(others: Any) -> Any:
            entry = decide(others)
            if entry is not None and entry["kind"] == "spend":
                raise LedgerError("no space is left")
            return entry

        return super().spend(seen, decided)


def test_a_ledger_that_fails_leaves_no_solved_noise() -> None:
    with open_session(ledger=_Failing()) as session:
        before = state(session)
        with pytest.raises(LedgerError):
            session.run(survey(), share=0.5)
        assert state(session) == before


def test_a_plan_that_fails_releases_nothing_and_continues() -> None:
    """Nothing of the plan is public before all of it is."""
    calls = []

    def once(t: float) -> float:
        calls.append(t)
        if len(calls) == 1:
            raise ValueError("at first")
        return t

    t = total()
    plan = dp.Pipeline(n=count(), t=dp.post(once, t))
    with open_session() as session:
        with pytest.raises(dp.RunError):
            session.run(plan, share=0.5)
        spent = session.spent
        assert [e["kind"] for e in session._ledger.entries()] == ["open", "spend"]
        result = session.run(plan, share=0.5)
        assert session.spent == spent
        assert calls == [result["t"], result["t"]]


def test_a_limit_is_read_as_the_decimal_number_it_is_written_as() -> None:
    with open_session("basic") as session:
        for i in range(10):
            query = PEOPLE.filter(PEOPLE["age"] >= 20 + i)
            session.run(query.count().release(dp.Laplace()), share=0.1)
        assert Fraction(session.remaining.costs[0]) < Fraction(1, 10**8)
    assert str(StepLimit(epsilon=0.1)) == "epsilon=0.1"
