"""Draws from a ball by the exponential mechanism: law, proof of the sampler, privacy, refusals."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from scipy import stats

import adaptive_dp as dp
from adaptive_dp.data.examples import make_examples
from adaptive_dp.erm import Extended, Squared
from adaptive_dp.mechanisms import log_concave
from adaptive_dp.mechanisms.log_concave import LogConcaveSample, Target
from adaptive_dp.noise import SeededStream

UNIT = 2.0**-18


def examples(x: Any, y: Any) -> Any:
    rows = np.asarray(x, dtype=float).reshape(len(y), -1)
    steps = np.rint(rows / UNIT).astype(np.float32)
    return make_examples(steps, UNIT, np.asarray(y, dtype=float), 1.0, np.arange(len(y)))


def separable(n: int, p: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, p))
    x = np.rint(0.99 * x / np.maximum(1, np.linalg.norm(x, axis=1))[:, None] / UNIT) * UNIT
    return x, np.where(x @ np.ones(p) > 0, 1.0, -1.0)


def lattice(width: int, bits: int) -> np.ndarray:
    axis = range(-(2**bits), 2**bits + 1)
    points = [k for k in itertools.product(axis, repeat=width) if sum(v * v for v in k) <= 4**bits]
    return np.array(points)


def exponents(points: np.ndarray, x: Any, y: Any, sampler: LogConcaveSample) -> np.ndarray:
    """G by the formula of the class, for the logistic loss: its range in the ball is the radius."""
    r = sampler.radius
    w = points * (r * 2.0**-log_concave.BITS)
    low = math.log1p(math.exp(-r))
    losses = (np.log1p(np.exp(-np.asarray(y) * (w @ np.asarray(x).T))) - low) / r
    return sampler.epsilon * losses.sum(axis=1) + sampler.ridge / 2 * (w**2).sum(axis=1)


def draws(target: Target, stream: Any, count: int) -> np.ndarray:
    """Return draws in lattice steps: what `release` makes of one target."""
    found: list[Any] = []
    while len(found) < count:
        point = target.accepted(stream, 16)
        found += [] if point is None else [point]
    return np.array(found)


CASES = [
    (1, 6, 2.0, 2.0, 0.5),  # inside
    (1, 12, 1.0, 1.0, 1.0),  # at the edge
    (2, 6, 2.0, 2.0, 0.5),
    (2, 12, 0.5, 1.0, 0.8),  # at the edge
]


@pytest.mark.parametrize(("p", "n", "ridge", "radius", "epsilon"), CASES)
def test_the_law_on_a_coarse_lattice(
    monkeypatch: pytest.MonkeyPatch, p: int, n: int, ridge: float, radius: float, epsilon: float
) -> None:
    """Chi-square against all weights; rejects a true law once in 10^7, and another ridge."""
    monkeypatch.setattr(log_concave, "BITS", 2)
    # the centre is off by a coarse step: flatter proposals are accepted nevertheless
    monkeypatch.setattr(log_concave, "FLATTER", 0.3)
    x, y = separable(n, p)
    sampler = LogConcaveSample(epsilon=epsilon, ridge=ridge, radius=radius, of="Logistic()")
    points = lattice(p, 2)
    count = 800
    seen = draws(Target.of(examples(x, y), sampler), SeededStream(7), count)
    places = {tuple(k): i for i, k in enumerate(points.tolist())}
    counts = np.bincount([places[tuple(k)] for k in seen.tolist()], minlength=len(places))

    def misfit(other: LogConcaveSample) -> float:
        weights = np.exp(-exponents(points, x, y, other))
        want = count * weights / weights.sum()
        common = want > 8
        got = np.append(counts[common], counts[~common].sum())
        expected = np.append(want[common], want[~common].sum())
        keep = expected > 0
        value = ((got - expected)[keep] ** 2 / expected[keep]).sum()
        return float(stats.chi2.sf(value, keep.sum() - 1))

    assert misfit(sampler) > 1e-7
    assert (
        misfit(LogConcaveSample(epsilon=epsilon, ridge=ridge + 6, radius=radius, of="Logistic()"))
        < 1e-7
    )


@pytest.mark.parametrize("bits", [2, 5])
@pytest.mark.parametrize(("p", "n", "ridge", "radius", "epsilon"), CASES)
def test_acceptance_is_a_probability_and_its_bound_holds(
    monkeypatch: pytest.MonkeyPatch,
    bits: int,
    p: int,
    n: int,
    ridge: float,
    radius: float,
    epsilon: float,
) -> None:
    """At every lattice point, by the formula of the class: what rejection rests on."""
    monkeypatch.setattr(log_concave, "BITS", bits)
    x, y = separable(n, p)
    sampler = LogConcaveSample(epsilon=epsilon, ridge=ridge, radius=radius, of="Logistic()")
    target, points = Target.of(examples(x, y), sampler), lattice(p, bits)
    g = exponents(points, x, y, sampler)
    start = exponents(target.centre[None], x, y, sampler)[0]
    away = ((points - target.centre) ** 2).sum(axis=1) / (2 * target.sigma**2)
    exponent = g - start + float(target.raised) - away
    assert exponent.min() >= 0
    sums = target.losses_at(points)
    exact = [
        float(target.exponent(int(s), int((k**2).sum()))) for s, k in zip(sums, points, strict=True)
    ]
    np.testing.assert_allclose(exact, g, rtol=1e-9, atol=1e-9)
    whole = np.exp(-(np.arange(-4000, 4001) ** 2) / (2 * target.sigma**2)).sum() ** p
    chance = np.exp(-(g - start) - float(target.raised)).sum() / whole
    assert 0 < target.chance() <= chance
    if bits == 5 and radius > 1:  # and it is of some use
        assert target.chance() > chance / 200
    assert target.proposals(1e-9) >= math.log(1e9) / chance


def test_the_truncated_gaussian() -> None:
    """Of the squared loss the law is a normal one cut off at the ball: mean and covariance."""
    rng = np.random.default_rng(1)
    x = np.rint(rng.uniform(-0.7, 0.7, (30, 2)) / UNIT) * UNIT
    y = np.clip(x @ [0.9, -0.2] + rng.normal(0, 0.2, 30), -1, 1)
    sampler = LogConcaveSample(
        epsilon=3.0, ridge=0.5, radius=1.0, of=Extended(Squared(), 1.0), failure=1e-12
    )
    target = Target.of(examples(x, y), sampler)
    drawn = draws(target, SeededStream(3), 1_500) * target.step
    assert sampler.release(examples(x, y), SeededStream(3)).tolist() == drawn[0].tolist()
    axis = np.linspace(-1, 1, 401)
    a, b = (v.ravel() for v in np.meshgrid(axis, axis))
    inside = a**2 + b**2 <= 1
    w = np.stack([a[inside], b[inside]], axis=1)
    # a row's losses lie between 0 and 2 where scores and labels are in [-1, 1]
    g = 3.0 / 2.0 * ((w @ x.T - y) ** 2 / 2).sum(axis=1) + 0.25 * (w**2).sum(axis=1)
    weight = np.exp(-(g - g.min()))
    weight /= weight.sum()
    mean = weight @ w
    covariance = (w - mean).T @ ((w - mean) * weight[:, None])
    errors = np.sqrt(np.diag(covariance) / len(drawn))
    # 5.5 deviations: exceeded by a true law less than once in 10^7
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5.5 * errors)
    for i, j in [(0, 0), (0, 1), (1, 1)]:
        products = (drawn - mean)[:, i] * (drawn - mean)[:, j]
        off = abs(products.mean() - covariance[i, j])
        assert off < 5.5 * products.std() / math.sqrt(len(drawn))
    assert np.all((drawn**2).sum(axis=1) <= 1)


UNIVERSE = [(0.9, 1.0), (0.9, -1.0), (-0.5, 1.0), (0.0, 1.0), (1.0, -1.0)]


@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_no_row_moves_the_law_by_more_than_the_loss_says(epsilon: float) -> None:
    """All data sets of up to three rows of a small universe, with one more, or another row."""
    sampler = LogConcaveSample(epsilon=epsilon, ridge=0.5, radius=2.0, of="Logistic()")
    points = np.linspace(-2, 2, 33)[:, None] / (2.0 * 2.0**-log_concave.BITS)
    sets = [rows for k in range(4) for rows in itertools.combinations_with_replacement(UNIVERSE, k)]

    def law(rows: Any) -> np.ndarray:
        x, y = (np.array([r[i] for r in rows]) for i in (0, 1))
        value = exponents(points, x.reshape(-1, 1), y, sampler)
        return np.asarray(-value - float(mp.log(mp.fsum(mp.exp(-v) for v in value))))

    laws = {rows: law(rows) for rows in sets}
    most = {"added": 0.0, "exchanged": 0.0}
    for rows in sets:
        for one in UNIVERSE:
            more = tuple(sorted((*rows, one), key=UNIVERSE.index))
            if more in laws:
                ratio = laws[more] - laws[rows]
                assert ratio.max() - ratio.min() <= epsilon * (1 + 1e-9)  # its range is bounded
                most["added"] = max(most["added"], np.abs(ratio).max())
            for other in UNIVERSE:
                moved = tuple(sorted((*rows, other), key=UNIVERSE.index))
                if more in laws and moved in laws:
                    gap = np.abs(laws[more] - laws[moved]).max()
                    most["exchanged"] = max(most["exchanged"], gap)
    assert sampler.loss(1, span=1).pure() == pytest.approx(epsilon, rel=1e-12)
    assert sampler.loss(2, span=1).pure() == pytest.approx(2 * epsilon, rel=1e-12)
    assert most["added"] <= epsilon < most["exchanged"] * 2
    assert most["exchanged"] <= 2 * epsilon


def test_where_all_proposals_fail_zero_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = examples(*separable(20, 2))
    sampler = LogConcaveSample(epsilon=1.0, ridge=1.0, radius=2.0, of="Logistic()", failure=1e-3)
    tried = []
    monkeypatch.setattr(Target, "accepted", lambda self, stream, count: tried.append(count))
    assert sampler.release(rows, SeededStream(1)).tolist() == [0.0, 0.0]
    assert sum(tried) == Target.of(rows, sampler).proposals(1e-3)


COLUMNS = {"a": (-1, 1), "y": (-3, 3), "c": ["no", "yes"], "k": ["r", "s", "t"], "w": (0, 2)}


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_certificate_has_the_total_variation(relation: str) -> None:
    table = dp.dataset("people", columns=COLUMNS, neighbors=relation, unit="who", rows_per_unit=2)
    learner = dp.ExponentialSampling(["a"], "c")
    exact = dp.Pipeline(model=table.solve(learner, epsilon=1.0, delta=0)).certify(delta=0)
    assert 0.999 < exact.epsilon <= 1
    near = dp.Pipeline(model=table.solve(learner, epsilon=1.0, delta=1e-8)).certify(delta=1e-8)
    assert 0.999 < near.epsilon <= 1
    (node,) = dp.Pipeline(model=table.solve(learner, epsilon=1.0, delta=1e-8)).structure.releases
    # delta is (1 + e^epsilon) times the chance that all proposals fail
    assert node.mechanism.failure == pytest.approx(1e-8 / (1 + math.e), rel=1e-9)  # type: ignore[attr-defined]
    rows_changed = 2 if relation == "add_remove" else 4
    assert node.mechanism.epsilon == pytest.approx(1 / rows_changed, rel=1e-9)  # type: ignore[attr-defined]


def test_it_learns_numbers_and_classes() -> None:
    table = dp.dataset("people", columns=COLUMNS)
    a = np.linspace(-1, 1, 3_000)
    rows = {
        "a": a,
        "y": 2 * a + 0.5,
        "c": np.where(a > 0.2, "yes", "no"),
        "k": np.full(3_000, "r"),
        "w": a,
    }
    learners = [
        dp.ExponentialSampling(["a"], "c", radius=8.0),
        dp.ExponentialSampling(["a"], "y", dp.Huber(0.5), radius=2.0),
    ]
    for learner in learners:
        plan = dp.Pipeline(model=table.solve(learner, epsilon=2.0, delta=0))
        model = plan.simulate(seed=3, people=rows)["model"]
        if learner.target == "c":
            assert np.mean(dp.predict(model, rows, classes=["no", "yes"]) == rows["c"]) > 0.9
        else:
            assert np.mean((dp.predict(model, rows) - rows["y"]) ** 2) < 0.5


def test_what_it_has_no_proof_for_is_refused() -> None:
    table = dp.dataset("people", columns={**COLUMNS, **{f"x{i}": (0, 1) for i in range(70)}})
    budget = {"epsilon": 1.0, "delta": 0.0}
    for learner, why in [
        (dp.ExponentialSampling(["a"], "k"), "labels|categories|two"),
        (dp.ExponentialSampling(["a"], "c", dp.Hinge()), "convex loss"),
        (dp.ExponentialSampling(["a"], "y", dp.Squared()), "convex loss"),
        (dp.ExponentialSampling([f"x{i}" for i in range(70)], "c"), "64"),
    ]:
        with pytest.raises(dp.DeclarationError, match=why):
            dp.Pipeline(model=table.solve(learner, **budget)).certify(delta=0)
    with pytest.raises(dp.DeclarationError, match="epsilon"):
        table.solve(dp.ExponentialSampling(["a"], "c"))
    heavy = table.examples(["a"], "c", norm=1.0, weight="w").as_query()
    sampler = LogConcaveSample(epsilon=1.0, ridge=1.0, radius=1.0, of="Logistic()")
    drawn = heavy.release(sampler)
    with pytest.raises(dp.DeclarationError, match="weights"):
        dp.Pipeline(drawn=drawn)
    for wrong in [{"radius": 0.0}, {"radius": math.nan}, {"failure": 0.9}, {"epsilon": 0.0}]:
        with pytest.raises(dp.DeclarationError):
            LogConcaveSample(
                **{"epsilon": 1.0, "ridge": 1.0, "radius": 1.0, "of": "Logistic()", **wrong}
            )
