"""Margin boosting: its cost by hand, its queries by brute force, what rounds cost in a session."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr
from scipy.stats import binom

import adaptive_dp as dp
from adaptive_dp.data import make_examples
from adaptive_dp.erm import SmoothedHinge
from adaptive_dp.graph.loops import ancestors
from adaptive_dp.learning import margin_boosting
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.bins import BinGains, BinnedRows, FeatureGradient

RELATIONS = ["add_remove", "replace_one", "zero_out"]
COLUMNS: dict[str, Any] = {"a": (-3, 5), "b": (0, 1), "c": ["u", "v", "w"], "y": ["no", "yes"]}
FEATURES = ["a", "b", "c"]


def table(neighbors: Any = "add_remove", rows: int | None = None) -> Any:
    unit: dict[str, Any] = {} if rows is None else {"unit": "id", "rows_per_unit": rows}
    return dp.dataset("people", columns=COLUMNS, neighbors=neighbors, **unit)


def made(count: int, seed: int, kind: str = "noisy") -> dict[str, Any]:
    """Return rows whose class follows a bump of "a" and one category, or a step of "a", or none."""
    draw = np.random.default_rng(seed)
    data: dict[str, Any] = {
        "a": draw.uniform(-3, 5, count),
        "b": draw.uniform(0, 1, count),
        "c": draw.choice(np.array(["u", "v", "w"], dtype=object), count),
    }
    odds = 2 * np.cos(data["a"]) - 1.5 * (data["c"] == "v")
    chance = {"noisy": expit(odds), "easy": data["a"] > 1, "none": np.full(count, 0.5)}[kind]
    data["y"] = np.where(draw.random(count) < chance, "yes", "no").astype(object)
    return data


def released(plan: dp.Pipeline) -> dict[str, Any]:
    """Return the mechanisms by the last part of their nodes' names."""
    nodes = {n.name.split(".")[-1]: n.handle.operation for n in plan.structure}
    return {name: op.mechanism for name, op in nodes.items() if hasattr(op, "mechanism")}


# --- the cost


def profile(mu: float, epsilon: float) -> float:
    """Return a Gaussian release's exact delta (Balle and Wang 2018, Theorem 8)."""
    first, second = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return math.exp(log_ndtr(first)) - math.exp(epsilon + log_ndtr(second))


def delta_of(epsilon: float, mu: float, pure: float, times: int) -> float:
    """Return delta of a Gaussian of mu and ``times`` randomized responses, given their losses."""
    heads = np.arange(times + 1)
    chances = binom.pmf(heads, times, expit(pure))
    losses = pure * (2 * heads - times)
    return math.fsum(p * profile(mu, epsilon - x) for p, x in zip(chances, losses, strict=True))


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("rows", [None, 3])
def test_a_budget_is_respected_and_spent(neighbors: Any, rows: int | None) -> None:
    """By hand: Gaussians add in mu^2; a test is a pure epsilon, randomized response at worst."""
    model = table(neighbors, rows).solve(
        dp.MarginBoosting(FEATURES, "y", rounds=12), epsilon=1.0, delta=1e-6
    )
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    found, r = released(plan), rows or 1
    exchange = neighbors == "replace_one"
    moved = r * (2 if exchange else 1) * 0.5
    sizes = {
        "counts": (1, r * math.sqrt(6 if exchange else 4)),
        "gradient": (12, moved),
        # each row is 1 or -1 in two sums, and counted
        "right": (1, r * (2 if exchange else 1)),
        "classes": (1, r * (2 if exchange else 1)),
        "rows": (1, r),
    }
    mu = math.sqrt(sum(t * (size / found[name].sigma) ** 2 for name, (t, size) in sizes.items()))
    test = found["above"]
    # the threshold's shift, and one answer "above", whose value may move the other way
    pure = moved / test.scale + 2 * moved / (test.scale * 2 ** (1 / 3))
    exact = brentq(lambda e: delta_of(e, mu, pure, 12) - 1e-6, 1e-3, 50, xtol=1e-12)
    certificate = plan.certify()
    assert exact <= certificate.epsilon <= 1.0
    assert exact >= 0.999


# --- the queries


def binned(codes: Any, labels: Any, sizes: tuple[int, ...]) -> BinnedRows:
    steps = (np.asarray(codes) + np.cumsum([1, *sizes[:-1]])).astype(np.float32)
    owners = np.arange(len(labels))
    return BinnedRows(make_examples(steps, 1.0, np.asarray(labels, float), 1.0, owners), sizes)


@pytest.mark.parametrize("seed", range(4))
def test_gains_and_gradients_are_those_of_single_rows(seed: int) -> None:
    """Against loops over rows and bins, of the rows whose margin is below 1 alone."""
    draw, sizes, n = np.random.default_rng(seed), (3, 5), 400
    codes = np.stack([draw.integers(0, size, n) for size in sizes], axis=1)
    y, scores = draw.choice([-1.0, 1.0], n), draw.normal(size=9)
    bins = np.array([0, 0, 1, 1, 0, 2, 2, 1, 0.0])
    z = scores[0] + scores[1 + codes[:, 0]] + scores[4 + codes[:, 1]]
    own = np.stack([bins[1 + codes[:, 0]], bins[4 + codes[:, 1]]], axis=1).astype(int)
    sums, failing = np.zeros((2, 3)), 0
    for i in range(n):
        if y[i] * z[i] < 1:
            failing += 1
            for j in (0, 1):
                sums[j, own[i, j]] -= y[i] * min((1 - y[i] * z[i]) / 2, 0.5)
    assert 0 < failing < n
    rows, hinge, stream = binned(codes, y, sizes), SmoothedHinge(2.0), SeededStream(0)
    levels, gains = np.array([3.0, -2.0]), np.abs(sums).sum(axis=1)
    for first in (0, 1):
        values = BinGains(hinge, 0.5, 3).run([rows, scores, bins, levels, first], stream)
        np.testing.assert_allclose(values, np.roll(gains - levels, -first), atol=1e-3)
    for number in (0, 1):
        found = FeatureGradient(hinge, 0.5, 3).run([rows, scores, bins, number], stream)
        np.testing.assert_allclose(found, sums[number], atol=1e-3)
    for none in (-1, 2, -(10**12)):
        assert not FeatureGradient(hinge, 0.5, 3).run([rows, scores, bins, none], stream).any()


def test_rows_whose_margin_holds_are_not_read() -> None:
    """Their number does not matter to any gain or gradient, wherever they are."""
    sizes, scores = (3, 4), np.array([0.0, 2.0, -2.0, 0.5, 0, 0, 0, 0])
    bins, hinge, stream = np.array([0, 0, 1, 2, 0, 1, 2, 3.0]), SmoothedHinge(2.0), SeededStream(0)
    few = [[0, 1], [2, 3], [2, 0]], [-1.0, 1.0, -1.0]
    held = [[0, 2]] * 50 + [[1, 1]] * 70, [1.0] * 50 + [-1.0] * 70
    both = few[0] + held[0], few[1] + held[1]
    for ask in (
        lambda rows: BinGains(hinge, 0.5, 4).run([rows, scores, bins, [0, 0], 0], stream),
        lambda rows: FeatureGradient(hinge, 0.5, 4).run([rows, scores, bins, 1], stream),
    ):
        alone, all_of_them = (ask(binned(*given, sizes)) for given in (few, both))
        assert alone.any()
        np.testing.assert_array_equal(alone, all_of_them)


# --- what is learned, and what it costs


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_it_finds_the_shapes(neighbors: Any) -> None:
    fit = table(neighbors).solve(dp.MarginBoosting(FEATURES, "y"), epsilon=4.0, delta=1e-6)
    plan = dp.Pipeline(model=fit).with_delta(1e-6)
    model = plan.simulate(seed=1, people=made(20_000, 5))["model"]
    fresh = made(5_000, 6)
    best = 2 * np.cos(fresh["a"]) - 1.5 * (fresh["c"] == "v") > 0
    said = dp.predict(model, fresh, classes=["no", "yes"]) == "yes"
    assert np.mean(said == best) > 0.92
    assert np.ptp(model["shapes"]["b"]["scores"]) < 0.25 * np.ptp(model["shapes"]["a"]["scores"])


def cost(kind: str, seed: int = 1, epsilon: float = 1.0, **options: Any) -> tuple[Any, Any]:
    """Return the model and the session's share of its budget that is spent."""
    learner = dp.MarginBoosting(FEATURES, "y")
    budget = dp.Budget(epsilon, 1e-6)
    rows = made(8_000, seed, kind)
    with dp.Session(budget=budget, seed=seed, people=rows, **options) as session:
        model = learner.run_in(session, table(), epsilon=epsilon, delta=1e-6)
        history = session.history()
        left = session.remaining
    return model, (history, left)


def test_a_session_pays_for_the_rounds_that_ran() -> None:
    """A step of the session for each test, one for each of the steps, and one in the end."""
    for kind in ("easy", "none"):
        model, (history, _) = cost(kind)
        assert model["steps"] < 12
        assert len(history) == 2 * model["steps"] + 1 + 1
    fresh = made(4_000, 9, "easy")
    model, _ = cost("easy")
    assert np.mean(dp.predict(model, fresh, classes=["no", "yes"]) == fresh["y"]) > 0.97


@pytest.mark.parametrize("accountant", ["best", "renyi"])
def test_all_rounds_fit_into_the_session_they_were_solved_for(accountant: str) -> None:
    """Nothing is refused where every margin fails, in the whole budget and in a part of it."""
    learner = dp.MarginBoosting(FEATURES, "y", rounds=6)
    rows = made(8_000, 2)
    budget = dp.Budget(2.0, 1e-6)
    with dp.Session(budget=budget, accountant=accountant, seed=3, people=rows) as session:
        model = learner.run_in(session, table(), epsilon=2.0, delta=1e-6)
    assert model["steps"] == 6
    with dp.Session(budget=budget, accountant=accountant, seed=3, people=rows) as session:
        part = session.part("half", share=0.5)
        model = learner.run_in(part, table(), epsilon=0.9, delta=4e-7)
        assert model["steps"] == 6
        other = dp.MarginBoosting(FEATURES, "y", rounds=7)
        with pytest.raises(dp.BudgetError):
            other.run_in(part, table(), epsilon=0.9, delta=4e-7)


def test_a_plan_that_has_met_its_margins_reads_no_more_rows() -> None:
    """What is released after the last step is noise alone: no feature is asked for."""
    fit = table().solve(dp.MarginBoosting(FEATURES, "y"), epsilon=1.0, delta=1e-6)
    model = dp.Pipeline(model=fit).with_delta(1e-6).simulate(seed=1, people=made(8_000, 1, "easy"))
    assert model["model"]["steps"] < 15
    state = {"met": 0, "turn": 2, "steps": 3, "scores": np.zeros(4), "mean": np.zeros(4)}
    bins = {"rows": np.ones(4), "joined": np.zeros(4)}
    after = margin_boosting.margin_step(state, -1, [9.0], 1.0, bins, sizes=[3], most=65)
    assert (after["met"], after["steps"], after["scores"].tolist()) == (1, 3, [0.0] * 4)
    groups = {"chance": np.ones(2)}
    levels = margin_boosting.gain_levels(after, groups, 1.0, clip=0.5, ratio=1.0)
    assert (levels == 1e300).all()


def test_the_noise_in_a_session_is_that_of_its_filter() -> None:
    learner = dp.MarginBoosting(FEATURES, "y", rounds=3)
    with dp.Session(budget=dp.Budget(1.0, 1e-6), accountant="renyi", seed=1) as session:
        free = learner.build(table(), None, None)
        solved = session.solved(free, epsilon=1.0, delta=1e-6)
        forecast = session.what_if(solved)
        assert forecast.fits
        assert session.what_if(solved).epsilon == pytest.approx(1.0, rel=0.01)
        assert session.spent.costs == pytest.approx([0.0] * len(session.spent.costs))
        with pytest.raises(dp.DeclarationError, match="free"):
            session.solved(free)
    assert any(h.operation.kind == "bin_counts" for h in ancestors(solved, bodies=True))


def test_refusals() -> None:
    people = dp.dataset("people", columns={**COLUMNS, "k": ["r", "s", "t"]})
    for target in ("k", "b"):
        features = [name for name in FEATURES if name != target]
        with pytest.raises(dp.DeclarationError, match=f"'{target}'"):
            people.solve(dp.MarginBoosting(features, target), epsilon=1.0, delta=1e-6)
    for options in ({"rounds": 0}, {"clip": 2.0}):
        with pytest.raises(dp.DeclarationError, match=next(iter(options))):
            dp.MarginBoosting(["a"], "y", **options)
    with dp.Session(budget=dp.Budget(1.0, 1e-6), seed=1, people=made(50, 1)) as session:
        with pytest.raises(dp.DeclarationError, match="delta"):
            dp.MarginBoosting(FEATURES, "y").run_in(session, table(), epsilon=1.0, delta=0.0)
        assert not session.history()


# --- audits from end to end


CANARIES = 60


def planted(confidence: float) -> Any:
    """Audit by one run: each canary a "yes" in a category of its own, behind a balanced crowd."""
    names = [f"c{i}" for i in range(CANARIES)]
    people = dp.dataset("people", columns={"c": names, "y": ["no", "yes"]})
    learner = dp.MarginBoosting(["c"], "y", rounds=3)
    fit = people.solve(learner, epsilon=1.0, delta=1e-6)
    crowd = {"c": names * 40, "y": ["no", "yes"] * (20 * CANARIES)}
    return dp.audit.planted(
        dp.Pipeline(model=fit).with_delta(1e-6),
        {"c": names, "y": ["yes"] * CANARIES},
        lambda seen: seen["model"]["shapes"]["c"]["scores"],
        data={"people": crowd},
        confidence=confidence,
        seed=1,
    )


def test_a_model_that_keeps_its_promise_is_not_accused() -> None:
    result = planted(1 - 1e-7)  # errs with a chance of 1e-7
    assert result.epsilon == pytest.approx(1.0, rel=5e-3)
    assert result.verdict != "violation"


def test_a_model_with_too_little_noise_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the plan declares is certified, what the code adds is a hundred times less."""
    honest = dp.Gaussian.release
    monkeypatch.setattr(margin_boosting, "LEVEL", -100.0)  # a step in each round

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / 100), value, stream)

    monkeypatch.setattr(dp.Gaussian, "release", release)
    result = planted(0.95)
    assert result.verdict == "violation"
    assert result.epsilon_lower > 1.1
