"""Sessions with a budget for each record: what records pay, when they leave, what is public."""

from __future__ import annotations

import json
import math
import os
import signal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import adaptive_dp as dp
from accountants import BudgetError, InapplicableError
from accountants.definitions import gdp_epsilon
from accountants.secret import Secret
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import DeclarationError, LedgerError, RunError
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import Run, compute_release, norms, unique_units, unit_cost
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.recompute import recomputed
from adaptive_dp.session.sqlite import SQLiteLedger

BUDGET = Budget(1.0, 1e-6)
SHOP = dp.dataset("shop", columns={"price": (0, 128), "kind": ["a", "b"]})
DRAW = np.random.default_rng(5)
ROWS = {
    "price": np.minimum(128, DRAW.geometric(0.04, 400)).astype(float),
    "kind": DRAW.choice(["a", "b"], 400),
}


def open_session(rows=None, budget=BUDGET, **more):
    more = {"seed": 3, **more} if "ledger" not in more else more
    return Session(budget=budget, accountant="individual", shop=rows or ROWS, **more)


def total(sigma, table=SHOP):
    return table["price"].sum().release(dp.Gaussian(sigma=sigma))


def limit(budget=BUDGET):
    """The largest mu at the budget, found here by bisection of the textbook profile."""
    low, high = 0.0, 10.0
    for _ in range(100):
        mu = (low + high) / 2
        a, b = mu / 2 - budget.epsilon / mu, -mu / 2 - budget.epsilon / mu
        delta = _phi(a) - math.exp(budget.epsilon) * _phi(b)
        low, high = (mu, high) if delta <= budget.delta else (low, mu)
    return low


def _phi(x):
    return math.erfc(-x / math.sqrt(2)) / 2


# --- who takes part


def test_records_leave_exactly_when_their_own_sum_passes_the_budget():
    """Against a loop over fractions; costs are integers, so that steps of the grid are too.

    Noise passes 6.5 of its deviations with probability below 1e-10.
    """
    session, budget = open_session(), Fraction(limit()) ** 2
    draw = np.random.default_rng(8)
    spent, out = [Fraction()] * 400, 0
    for t in range(30):
        sigma = float(draw.uniform(200, 900))
        kind = "ab"[t % 2] if t % 3 else None
        table = dict(SHOP.partition("kind"))[kind] if kind else SHOP
        query = table.count() if t % 5 == 1 else table["price"].sum()
        sigma = sigma / 60 if t % 5 == 1 else sigma
        value = session.run(query.release(dp.Gaussian(sigma=sigma)), name=f"step {t}")
        exact = 0
        for i in range(400):
            if kind is None or ROWS["kind"][i] == kind:
                adds = 1 if t % 5 == 1 else int(ROWS["price"][i])
                cost = (Fraction(adds) / Fraction(sigma)) ** 2
                if spent[i] + cost <= budget:
                    spent[i] += cost
                    exact += adds
                else:
                    out += 1
        assert abs(value - exact) < 6.5 * sigma
    assert 500 < out < 6000  # many left, and many stayed
    used = session.records.reveal()
    np.testing.assert_allclose(used, [float(s) for s in spent], rtol=1e-9)
    assert all(Fraction(f) >= s for f, s in zip(used, spent, strict=True))


def test_small_contributors_are_summed_long_after_a_worst_case_filter_stops():
    draw = np.random.default_rng(2)
    salaries = np.minimum(np.exp(draw.normal(10, 0.5, 1000)), 500_000.0)
    people = dp.dataset("people", columns={"salary": (0, 500_000)})
    handle = people["salary"].sum().release(dp.Gaussian(sigma=4e6))
    rows = {"salary": salaries}
    worst = Session(budget=BUDGET, accountant="gaussian", seed=1, people=rows)
    fits = 0
    while worst.what_if(handle, again=fits > 0).fits:
        worst.run(handle, again=fits > 0)
        fits += 1
    each = Session(budget=BUDGET, accountant="individual", seed=1, people=rows)
    values = [each.run(handle, again=t > 0) for t in range(40)]
    assert fits == 3
    # noise passes 6 of its deviations with probability 2e-9, and a sum is off by 1 percent else
    assert all(abs(v - salaries.sum()) < 24e6 + 0.01 * salaries.sum() for v in values)
    assert each.epsilon == BUDGET.epsilon


def test_several_releases_of_one_step_see_each_other():
    mu = limit()
    sigma = 128 / (0.8 * mu)
    one = total(sigma)
    two = SHOP["price"].sum().release(dp.Gaussian(sigma=sigma * 1.01))
    session = open_session({"price": [128.0] * 50 + [1.0], "kind": ["a"] * 51})
    session.run(dp.post(add, one, two))
    spent = session.records.reveal()
    assert spent[0] == pytest.approx((0.8 * mu) ** 2)  # the second no longer fitted
    assert spent[50] == pytest.approx((1 / sigma) ** 2 * (1 + 1.01**-2))


def add(*values):
    return sum(values)


def test_a_unit_pays_for_all_its_rows_and_leaves_with_them():
    people = dp.dataset("shop", columns={"price": (0, 128)}, unit="who", rows_per_unit=3)
    rows = {"price": [128.0, 64.0, 64.0, 128.0, 2.0], "who": ["x", "y", "x", "x", "y"]}
    session = open_session(rows)
    mu = limit()
    value = session.run(people["price"].sum().release(dp.Gaussian(sigma=300 / mu)), name="first")
    assert session.records.reveal().tolist() == pytest.approx(
        [0.0, (66 * mu / 300) ** 2]  # x would pay 320
    )
    assert abs(value - 66) < 6.5 * 300 / mu
    session.run(people.count().release(dp.Gaussian(sigma=20.0)))
    assert session.records.reveal().tolist() == pytest.approx(
        [0.15**2, (66 * mu / 300) ** 2 + 0.1**2]
    )


# --- what a row adds, against leaving it out


CELL = st.one_of(
    st.floats(-30, 30),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, 5e-324, 10.0, 1e-9]),
)
TABLE = dp.dataset(
    "data",
    columns={"x": (-7, 10), "y": (0, 3), "k": ["a", "b"]},
    unit="who",
    rows_per_unit=2,
)


def _queries():
    part = dict(TABLE.partition("k"))["a"]
    vectors = TABLE.vectors(["x", "y"], scale=True, intercept=True)
    return {
        "count": TABLE.count(),
        "filtered": TABLE.filter(TABLE["x"] > 1.5).count(),
        "sum": TABLE["x"].sum(),
        "clipped": TABLE["x"].clip(0, 1e-3).sum(),
        "part": part["y"].sum(),
        "whole": dict(TABLE.partition("k", whole_units=True))["b"]["x"].sum(),
        "histogram": TABLE["x"].histogram(edges=[-7, 0, 4, 9]),
        "categories": TABLE["k"].histogram(),
        "counts": TABLE.counts([TABLE["x"] > 0, TABLE["y"] >= 1, TABLE["k"].isin(["a"])]),
        "vectors": TABLE.vectors(["x", "y"]).sum(),
        "norm": vectors.clip(norm=0.3).sum(),
        "times": TABLE.vectors(["x", "y"]).times(TABLE["x"]).sum(),
    }


STRUCTURES = {
    name: Pipeline(value=query.release(dp.Gaussian(sigma=1.0))).structure
    for name, query in _queries().items()
}


@pytest.mark.parametrize("name", STRUCTURES)
@examples(25)
@given(
    st.lists(st.tuples(CELL, CELL, st.sampled_from(["a", "b", "c"]), st.integers(0, 4)), max_size=9)
)
def test_contributions_bound_what_leaving_a_unit_out_does(name, cells):
    columns = dict(zip(("x", "y", "k", "who"), zip(*cells, strict=True), strict=False))
    data = {c: list(columns.get(c, ())) for c in ("x", "y", "k", "who")}
    structure = STRUCTURES[name]
    (path,) = structure.releases
    rows = Secret(path.source.bind(data))
    everyone = unique_units(rows).reveal()
    contributed = norms(path, rows, Secret(everyone)).reveal()
    assert contributed.shape == everyone.shape
    total = _exact(structure, path, rows.reveal())
    for unit, norm in zip(everyone, contributed, strict=True):
        rest = everyone[everyone != unit]
        less = rows.reveal().among(rest)
        without = _exact(structure, path, less)
        square = sum((a - b) ** 2 for a, b in zip(total, without, strict=True))
        assert square <= Fraction(norm) ** 2
        rows_of = int((rows.reveal().units == unit).sum())
        if name in ("count", "sum", "clipped", "part"):
            assert rows_of > 1 or Fraction(norm) ** 2 == square
        others = norms(path, Secret(less), Secret(rest)).reveal()
        assert others.tolist() == contributed[everyone != unit].tolist()


def _exact(structure, path, rows):
    run = Run(structure, None)
    run.bind({path.steps[0].name: Secret(rows)})
    for node in path.steps[1:]:
        run.compute_node(node)
    value = np.atleast_1d(run.secrets[path.steps[-1].name].reveal())
    return [Fraction(float(v)) for v in value]


def test_what_a_mechanism_rounds_is_paid_only_by_who_contributes():
    coarse = SHOP.count().release(dp.Gaussian(sigma=2.0**30))  # its steps are larger than 1
    (path,) = Pipeline(value=coarse).structure.releases
    assert unit_cost(path).rounding >= 2.0**-27
    session = open_session(budget=Budget(1.0, 1e-6))
    session.run(dict(SHOP.partition("kind"))["a"].count().release(dp.Gaussian(sigma=2.0**30)))
    spent = session.records.reveal()
    assert (spent[ROWS["kind"] == "b"] == 0).all()
    assert (spent[ROWS["kind"] == "a"] >= (2.0**-30 + 2.0**-27) ** 2).all()


def test_only_who_is_active_is_released():
    structure = Pipeline(value=total(0.01)).structure
    (path,) = structure.releases
    rows = Secret(path.source.bind({"price": [1.0, 2.0, 4.0], "kind": ["a"] * 3}))
    run = Run(structure, 1)
    compute_release(run, path, rows, Secret(np.array([0, 2])))
    assert run.public_values["value"] == pytest.approx(5.0, abs=0.1)


# --- what is refused, by the plan alone


def test_what_has_no_price_for_each_record_is_refused_before_anything_is_paid():
    session = open_session()
    refused = [
        SHOP.count().release(dp.Laplace(scale=5)),
        SHOP.sample(0.5).count().release(dp.Gaussian(sigma=50)),
        SHOP["price"].mean().release(dp.Gaussian(sigma=50)),
        SHOP.vectors(["price"]).gram().release(dp.Gaussian(sigma=50)),
        SHOP.filter(SHOP["price"] > total(900.0)).count().release(dp.Gaussian(sigma=50)),
        dp.repeat(lambda s, shop: dp.post(add, s, total(900.0, shop)), 2, SHOP, start=0.0),
    ]
    for handle in refused:
        with pytest.raises(InapplicableError, match=r"dp\.Gaussian"):
            session.run(handle)
        with pytest.raises(InapplicableError, match=r"dp\.Gaussian"):
            session.what_if(handle)
    replaced = dp.dataset("shop", columns={"price": (0, 128)}, neighbors="replace_one")
    with pytest.raises(InapplicableError, match="add_remove"):
        session.run(total(900.0, replaced))
    session.run(total(900.0))
    other = dp.dataset("other", columns={"price": (0, 128)})
    with pytest.raises(DeclarationError):
        session.run(total(900.0, other))
    with pytest.raises(DeclarationError):
        session.part("topic", 0.5)
    assert len(session._ledger.entries()) == 3


def test_what_a_session_needs():
    with pytest.raises(DeclarationError, match="1e-07"):
        open_session(budget=Budget(1.0, 1e-6, 1e-7))
    with pytest.raises(InapplicableError, match="delta"):
        open_session(budget=Budget(1.0))
    with pytest.raises(DeclarationError, match="edition"):
        open_session(ledger=MemoryLedger())
    with pytest.raises(DeclarationError):
        _ = open_session().records
    with pytest.raises(DeclarationError, match="individual"):
        _ = Session(budget=BUDGET, accountant="gaussian", shop=ROWS).records


def test_a_budget_refuses_only_what_no_record_could_ever_pay():
    session, mu = open_session(), limit()
    for t in range(12):
        assert session.what_if(total(200.0), again=t > 0).fits
        session.run(total(200.0), again=t > 0)
    assert session.remaining.costs == (0.0,)
    assert session.spent.costs[0] == pytest.approx(mu**2)
    hopeless = SHOP.count().release(dp.Gaussian(sigma=0.99 / mu))
    assert not session.what_if(hopeless).fits
    with pytest.raises(BudgetError, match="'value'"):
        session.run(hopeless)
    session.run(SHOP.count().release(dp.Gaussian(sigma=1.01 / mu)))


# --- what is public


def test_nothing_that_leaves_tells_who_left():
    """Two data sets, one where all records leave after the first step, one where none does."""
    heavy = {"price": [128.0] * 60, "kind": ["a"] * 60}
    light = {"price": [0.0] * 60, "kind": ["b"] * 60}
    outputs = []
    for rows in (heavy, light):
        with Session(
            budget=BUDGET,
            accountant="individual",
            ledger=(ledger := MemoryLedger()),
            edition="1",
            shop=rows,
        ) as session:
            public = []
            for t in range(4):
                public += [str(session.what_if(total(1000.0), again=t > 0)), repr(session)]
                session.run(total(1000.0), again=t > 0)
                public += [session.remaining, session.spent, session.epsilon, session.records]
            with pytest.raises(InapplicableError) as refused:
                session.run(SHOP.count().release(dp.Laplace(scale=1)))
            paper = json.loads(session.certificate().to_json())
            paper["session"]["ledger"].pop("head")  # it covers the released values
            entries = [dict(entry) for entry in ledger.entries()]
            for entry in entries:
                for key in ("values", "time", "hash", "previous"):
                    entry.pop(key, None)
            state = repr(session._individuals), repr(session._individuals._state)
            spent = session.records.reveal()
            outputs.append([str(public), str(refused.value), paper, entries])
            assert "array" not in str(state)
        with pytest.raises(DeclarationError):
            _ = session.records
        assert (spent > 0).all() == (rows is heavy)
    assert outputs[0] == outputs[1]


def test_what_fails_tells_nothing_and_is_paid_for(monkeypatch):
    session = open_session()
    session.run(total(9000.0))

    def fails(self, units):
        raise ValueError("secret")

    with monkeypatch.context() as patch:
        patch.setattr("adaptive_dp.data.memory.MemoryRows.among", fails)
        with pytest.raises(RunError, match="withheld") as failed:
            session.run(total(8000.0))
    assert failed.value.__context__ is None
    session.run(total(7000.0))
    spent = session.records.reveal()
    np.testing.assert_allclose(
        spent, ROWS["price"] ** 2 * (9000.0**-2 + 8000.0**-2 + 7000.0**-2), rtol=1e-3
    )


def test_rows_that_cannot_leave_units_out_are_refused(monkeypatch):
    monkeypatch.delattr("adaptive_dp.data.memory.MemoryRows.among")
    session = open_session()
    with pytest.raises(InapplicableError):
        session.run(total(900.0))
    assert len(session._ledger.entries()) == 1


# --- ledgers


def test_sessions_of_one_ledger_find_the_same_state(tmp_path):
    path = tmp_path / "shop.db"
    one, two = (open_session(ledger=path, create=new, edition="may") for new in (True, False))
    one.run(total(300.0), name="a")
    two.run(dp.post(add, SHOP.count().release(dp.Gaussian(sigma=15.0)), total(310.0)))
    one.run(dict(SHOP.partition("kind"))["a"]["price"].sum().release(dp.Gaussian(sigma=200.0)))
    two.run(total(300.0), again=True)
    value = two.run(total(300.0))
    assert value == one.run(total(300.0))
    first, second = (s.records.reveal().tolist() for s in (one, two))
    later = open_session(ledger=path, edition="may")
    assert later.run(total(300.0)) == value
    assert later.records.reveal().tolist() == first == second
    with open_session() as alone:  # the same steps, in one session without a ledger
        alone.run(total(300.0), name="a")
        alone.run(dp.post(add, SHOP.count().release(dp.Gaussian(sigma=15.0)), total(310.0)))
        alone.run(
            dict(SHOP.partition("kind"))["a"]["price"].sum().release(dp.Gaussian(sigma=200.0))
        )
        alone.run(total(300.0), again=True)
        assert alone.records.reveal().tolist() == first
    with pytest.raises(LedgerError, match="edition"):
        open_session(ledger=path, edition="june")
    with pytest.raises(LedgerError, match="accountant"):
        Session(
            budget=BUDGET,
            accountant="gaussian",
            ledger=path,
            edition="may",
            shop=ROWS,
        )
    verdict = recomputed(SQLiteLedger(path).entries())
    assert verdict.holds, verdict.reasons
    assert verdict.epsilon == BUDGET.epsilon
    assert {read for read, _ in verdict.running.values()} == {BUDGET.epsilon}


def test_a_step_of_a_session_that_was_killed_is_paid_for(tmp_path, monkeypatch):
    path = tmp_path / "shop.db"
    with open_session(ledger=path, create=True, edition="may") as before:
        before.run(total(300.0))
        child = os.fork()
        if child == 0:
            try:
                with open_session(ledger=path, edition="may") as killed:
                    monkeypatch.setattr(
                        Session, "_record", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
                    )
                    killed.run(total(400.0))
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        before.run(total(500.0))
        with open_session(ledger=path, edition="may") as after:
            spent = after.records.reveal()
        assert spent.tolist() == before.records.reveal().tolist()
    budget, exact = limit() ** 2, np.zeros(400)
    for sigma in (300.0, 400.0, 500.0):
        costs = (ROWS["price"] / sigma) ** 2
        exact += np.where(exact + costs <= budget, costs, 0.0)
    np.testing.assert_allclose(spent, exact, rtol=1e-9)


def test_forged_ledgers_do_not_hold():
    ledger = MemoryLedger()
    with open_session(ledger=ledger, edition="may") as session:
        session.run(total(300.0))
        entries = ledger.entries()
    plain = Session(budget=BUDGET, accountant="gaussian", ledger=(other := MemoryLedger()))
    plain._cache._data = {"shop": Secret(ROWS)}
    plain.run(SHOP["price"].mean().release(dp.Gaussian(sigma=5000.0)))
    forged = [*entries, {**other.entries()[1], "number": len(entries), "edition": "may"}]
    assert any("not a sum over rows" in reason for reason in recomputed(forged).reasons)
    forged = [*entries, {**entries[1], "number": len(entries), "edition": "june"}]
    assert any("edition" in reason for reason in recomputed(forged).reasons)


# --- certificates


def test_certificates_are_recomputed_from_the_steps():
    session = open_session()
    session.run(total(300.0), name="total")
    session.run(SHOP["kind"].histogram().release(dp.Gaussian(sigma=1.01 / limit())), name="kinds")
    paper = session.certificate()
    document = json.loads(paper.to_json())
    assert document["claim"] == {"epsilon": 1.0, "delta": 1e-6, "accountant": "individual"}
    assert "Feldman & Zrnic 2021" in document["session"]["theorem"]
    assert any("leaves unseen" in line for line in document["assumptions"])
    assert gdp_epsilon(limit(), 1e-6).upper == pytest.approx(1.0)
    verdict = dp.verify(Certificate.from_json(paper.to_json()))
    assert verdict.holds, verdict.reasons
    assert "private" in str(paper)

    def forged(**changes):
        return dp.verify(Certificate.from_document({**document, **changes}))

    assert not forged(claim={**document["claim"], "accountant": "gaussian"}).holds
    assumed = [line for line in document["assumptions"] if "leaves unseen" not in line]
    assert not forged(assumptions=assumed).holds
    session_part = {**document["session"], "theorem": "none"}
    assert not forged(session=session_part).holds
    session_part = {**document["session"], "spent": [0.0]}
    assert not forged(session=session_part).holds
    worst = Session(budget=BUDGET, accountant="gaussian", seed=1, shop=ROWS)
    worst.run(SHOP["price"].mean().release(dp.Gaussian(sigma=5000.0)))
    other = json.loads(worst.certificate().to_json())
    other["claim"]["accountant"] = "individual"
    verdict = dp.verify(Certificate.from_document(other))
    assert any("not a sum over rows" in reason for reason in verdict.reasons)
