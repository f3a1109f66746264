"""Private selection over a subgraph: its cost, its law, its refusals."""

from __future__ import annotations

import json
import math
from collections import Counter
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.loops import Select, State, _probability_of_one
from adaptive_dp.noise import SeededStream

FRAME = {"age": np.arange(0.0, 100.0)}


def people() -> dp.Table:
    return dp.dataset("people", columns={"age": (0, 100)})


def closeness(count: float, goal: float) -> float:
    return -abs(count - goal)


def tried(table: dp.Table, scale: Any = 2.0) -> Any:
    def body(limit: dp.Released[float]) -> tuple[dp.Released[float], dp.Released[float]]:
        near = table.filter(table["age"] < limit).count().release(dp.Laplace(scale=scale))
        return near, dp.post(closeness, near, goal=50)

    return body


def test_it_costs_what_the_theorem_says() -> None:
    plan = dp.Pipeline(best=dp.select(tried(people()), [10, 50, 90], stopping=0.1))
    # three times a run's epsilon for a geometric number of runs (Liu and Talwar 2019, Thm 3.2)
    assert plan.certify().epsilon == pytest.approx(1.5, rel=1e-9)
    assert plan.certify().epsilon >= 1.5
    other = dp.Pipeline(best=dp.select(tried(people()), [10], stopping=0.1, shape=0))
    assert other.certify().epsilon == pytest.approx(1.0, rel=1e-9)
    assert "best of about 10 runs" in str(plan.graph.nodes(data=True))


def test_renyi_and_the_term_agree_with_the_loss() -> None:
    many = accountants.Selected(accountants.Spend(accountants.Gaussian(mu=0.1)), 1.0, 0.02)
    alone = accountants.PrivateSelection(accountants.Gaussian(mu=0.1), 1.0, 0.02)
    bounds = accountants.certify(many, delta=1e-6)["renyi"].bounds
    same = accountants.certify(accountants.Spend(alone), delta=1e-6)["renyi"].bounds
    assert bounds is not None
    assert same is not None
    assert bounds.upper == pytest.approx(same.upper, rel=1e-12)
    text = accountants.to_json(many)
    assert accountants.from_json(text) == many


def test_a_choice_inside_may_be_another_in_each_run() -> None:
    """The candidate may move the unit: the envelope of the choices is charged."""
    part = accountants.Parallel(
        [accountants.Spend(accountants.Pure(0.1)), accountants.Spend(accountants.Gaussian(0.2))]
    )
    computed = accountants.worlds(accountants.Selected(part, 1.0, 0.1))
    assert len(computed.alternatives) == 1
    assert not computed.exact


def test_the_best_candidate_wins_and_no_other_is_released() -> None:
    plan = dp.Pipeline(best=dp.select(tried(people()), [10, 50, 90], stopping=0.02))
    best = plan.simulate(seed=4, people=FRAME)["best"]
    assert best["candidate"] == 50
    assert best["score"] == -abs(best["value"] - 50)
    assert set(best) == {"candidate", "score", "value"}


@pytest.mark.parametrize(
    ("shape", "stopping"),
    [(1.0, 0.2), (0.0, 0.1), (0.5, 0.1), pytest.param(2.5, 0.3, marks=pytest.mark.slow)],
)
def test_the_number_of_runs_has_its_law(shape: float, stopping: float) -> None:
    """Chi-square against the exact law; rejects a true one once in 10^7, and a wrong gamma."""
    state: Any = dp.Released(State())
    select = Select(shape, stopping, state=state, result=state)
    stream = SeededStream(11)
    counts = Counter(select.draw(stream) for _ in range(20_000))

    def misfit(gamma: float) -> float:
        eta = mp.mpf(shape)
        mass = [(1 - mp.mpf(gamma)) ** k * mp.rf(eta, k) / mp.factorial(k) for k in range(1, 200)]
        if shape == 0:
            mass = [(1 - mp.mpf(gamma)) ** k / k for k in range(1, 200)]
        p = np.array([float(m / sum(mass)) for m in mass])
        frequent = np.flatnonzero(p * 20_000 > 20)
        seen = np.array([counts[k + 1] for k in frequent], dtype=float)
        rest = 20_000 - seen.sum(), 20_000 * (1 - p[frequent].sum())
        seen, want = np.append(seen, rest[0]), np.append(20_000 * p[frequent], rest[1])
        return float(stats.chi2.sf(((seen - want) ** 2 / want).sum(), len(seen) - 1))

    assert misfit(stopping) > 1e-7
    assert misfit(stopping * 1.2) < 1e-7
    mean = sum(k * n for k, n in counts.items()) / 20_000
    assert mean == pytest.approx(accountants.terms.expected_runs(shape, stopping), rel=0.05)


def test_a_score_that_is_no_number_is_the_worst() -> None:
    state: Any = dp.Released(State())
    select = Select(1.0, 0.5, state=state, result=state)
    worst = select.better(None, 1, {"value": 0, "score": math.nan})
    assert worst["score"] == -math.inf
    assert select.better(worst, 2, {"value": 0, "score": -1e300})["candidate"] == 2
    first = select.better(None, "a", {"value": 0, "score": 1})
    assert select.better(first, "b", {"value": 0, "score": 1})["candidate"] == "a"


def test_it_calibrates_and_goes_into_documents() -> None:
    free = dp.Pipeline(best=dp.select(tried(people(), dp.Free("b")), [10, 50], stopping=0.1))
    plan = free.calibrate(epsilon=1.0, delta=1e-6)
    assert 0.99 < plan.certify().epsilon <= 1.0
    table = dp.load(plan.to_json(), allow=[__name__])
    assert table.fingerprint == plan.fingerprint
    assert (
        table.simulate(seed=1, people=FRAME)["best"]
        == (plan.simulate(seed=1, people=FRAME)["best"])
    )


def test_what_is_refused() -> None:
    table = people()
    with pytest.raises(dp.DeclarationError, match="stopping"):
        dp.select(tried(table), [1], stopping=1.0)
    with pytest.raises(dp.DeclarationError, match=r"\bshape\b.*-1"):
        dp.select(tried(table), [1], stopping=0.5, shape=-1)
    with pytest.raises(dp.DeclarationError, match="candidate"):
        dp.select(tried(table), [], stopping=0.5)
    with pytest.raises(dp.DeclarationError):
        dp.select(lambda c: c, [1], stopping=0.5)  # type: ignore[arg-type, return-value]
    with pytest.raises(dp.DeclarationError, match="score"):
        dp.select(lambda c: (c, table.count()), [1], stopping=0.5)  # type: ignore[arg-type, return-value]


def test_a_document_without_candidates_or_scores_fails_with_its_reason() -> None:
    plan = dp.Pipeline(best=dp.select(tried(people()), [10, 50], stopping=0.1))
    for value in ([], 3.0, {"a": 1}, "ab"):
        document = json.loads(plan.to_json())
        (start,) = (n for n in document["nodes"] if n["kind"] == "public")
        start["value"] = value
        changed = dp.load(json.dumps(document), allow=[__name__])
        with pytest.raises(dp.RunError, match="candidate"):
            changed.simulate(seed=1, people=FRAME)
    document = json.loads(plan.to_json())
    (loop,) = (n for n in document["nodes"] if n["kind"] == "select")
    loop["result"] = next(n["id"] for n in loop["body"] if n["kind"] == "release")
    changed = dp.load(json.dumps(document), allow=[__name__])
    with pytest.raises(dp.RunError, match="'value' and 'score'"):
        changed.simulate(seed=1, people=FRAME)


def as_list(*values: Any) -> list[Any]:
    return list(values)


def test_a_run_is_charged_in_full_whatever_is_outside_of_the_loop() -> None:
    """Of n counts, each over one filter more, the worst event of a selection is worked out."""
    n, stopping = 20, 0.1 * 2.0**-20
    tables = [people()]
    for _ in range(n - 1):
        tables.append(tables[-1].filter(tables[-1]["age"] >= 0))

    def body(candidate: Any, *tables: Any) -> Any:
        value = dp.post(as_list, *[t.count().release(dp.Laplace(scale=n)) for t in tables])
        return value, dp.post(as_list, value)

    plan = dp.Pipeline(best=dp.select(body, [0], *tables, stopping=stopping)).with_delta(1e-2)
    epsilon = plan.certify().epsilon

    # all counts are c, or all c + 1; best: all answers are at least c + 1, then: all at most c
    def chosen(best: float, next_best: float) -> float:
        upper = stopping + (1 - stopping) * best
        return stopping * next_best / (upper * (upper + (1 - stopping) * next_best))

    likely, unlikely = 0.5**n, (math.exp(-1 / n) / 2) ** n
    delta = chosen(unlikely, likely) - math.exp(epsilon) * chosen(likely, unlikely)
    assert delta <= 1e-2
    assert epsilon > 2


def test_runs_over_several_parts_samples_or_data_sets_outside_are_refused() -> None:
    def select(tables: Any) -> Any:
        def body(candidate: Any, *tables: Any) -> Any:
            value = dp.post(as_list, *[t.count().release(dp.Laplace(scale=9)) for t in tables])
            return value, dp.post(as_list, value)

        return dp.Pipeline(best=dp.select(body, [0], *tables, stopping=0.1))

    table = dp.dataset("people", columns={"age": [1, 2]}, neighbors="replace_one")
    parts = table.partition("age")
    several = [
        [parts[1], parts[2]],
        [parts[1], table],
        [people().sample(0.5), people().sample(0.5)],
        [people(), dp.dataset("others", columns={"age": (0, 100)})],
    ]
    for tables in several:
        with pytest.raises(dp.DeclarationError):
            select(tables).certify()
    assert select([parts[1], parts[1].filter(table["age"] >= 0)]).certify().epsilon > 0


@pytest.mark.parametrize("shape", [1e-40, 3e-60, -7e-60, 1e-80, 5e-324, 1e6, -1 + 2**-52])
@pytest.mark.parametrize("stopping", [0.1, 1e-9, 1 - 2**-53])
def test_the_chance_of_a_single_run_at_extreme_shapes(shape: float, stopping: float) -> None:
    with localcontext(Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)):
        chance = _probability_of_one(Decimal(shape), Decimal(stopping))
    with mp.workdps(500):
        eta, gamma = mp.mpf(shape), mp.mpf(stopping)
        exact = (1 - gamma) * eta / mp.expm1(-eta * mp.log(gamma))
        assert abs(mp.mpf(str(chance)) / exact - 1) < 1e-50
