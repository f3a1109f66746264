"""Propose-test-release, and noise for a released bound of the local sensitivity: exact deltas."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats
from test_smooth_sensitivity import data_sets, neighbours, of, quantile

import accountants as acc
import adaptive_dp as dp
from adaptive_dp.graph.mechanism import FOREVER
from adaptive_dp.mechanisms import smooth_sensitivity
from adaptive_dp.mechanisms.propose_test_release import (
    distance_threshold,
    mean_stretch,
    released_law,
    released_split,
)
from adaptive_dp.noise.continuous import Real
from adaptive_dp.noise.exact import LazyUniform
from adaptive_dp.noise.stream import SeededStream, word
from adaptive_dp.queries.order_statistics import QuantileSensitivity


def mass(epsilon: float, k: int) -> float:
    r = math.exp(-epsilon)
    return (1 - r) / (1 + r) * r ** abs(k)


def above(epsilon: float, k: int) -> float:
    """P(N > k)."""
    r = math.exp(-epsilon)
    return r ** (k + 1) / (1 + r) if k >= 0 else 1 - r**-k / (1 + r)


def stick(p: float, q: float, scale: float, shift: float, epsilon: float) -> float:
    """``sup_E p Lap(0)(E) - e^eps q Lap(shift)(E)``, exactly: the ratio falls from left to right.

    It is ``log(p/q) + shift/scale`` left of 0, and falls by twice that up to ``shift``.
    """
    if p <= 0:
        return 0.0
    high = math.log(p / q) + shift / scale - epsilon
    cut = math.inf if high - 2 * shift / scale >= 0 else high * scale / 2 if high > 0 else -math.inf
    below = 0.5 * math.exp(cut / scale) if cut < 0 else 1 - 0.5 * math.exp(-cut / scale)
    x = cut - shift
    other = 0.5 * math.exp(x / scale) if x < 0 else 1 - 0.5 * math.exp(-x / scale)
    return max(0.0, p * below - math.exp(epsilon) * q * other)


def exact_delta(step: float, cut: int, epsilon: float) -> float:
    """The worst delta at epsilon of propose-test-release, with ``step`` for either part.

    Over all pairs of distances: within 1 and one of them positive, f moves by at most the bound;
    both 0, f moves by anything.
    """
    worst = 0.0
    for d in range(3 * cut):
        for e in (d - 1, d, d + 1):
            if e < 0:
                continue
            p, q = above(step, cut - d), above(step, cut - e)
            silent = max(0.0, (1 - p) - math.exp(epsilon) * (1 - q))
            passing = p if d == e == 0 else stick(p, q, 1 / step, 1.0, epsilon)
            worst = max(worst, silent + passing)
    return worst


@pytest.mark.parametrize("epsilon", [0.2, 1.4, 3.0])
def test_propose_test_release_is_as_private_as_it_says(epsilon: float) -> None:
    for delta in (1e-2, 1e-3, 1e-6):
        half = epsilon / 2
        cut = distance_threshold(half, delta)
        assert exact_delta(half, cut, epsilon) <= delta
        if cut > 0:
            assert exact_delta(half, cut, epsilon) > delta * math.exp(-half) * 0.9
            assert exact_delta(half, cut - 1, epsilon) > delta


def test_the_published_threshold_spends_half_of_delta() -> None:
    """(2 eps, 2 delta) is what is printed; with log(1/delta)/eps it is (2 eps, delta/2)."""
    step, delta = 0.7, 1e-3
    real = math.log(1 / delta) / step
    assert 0.5 * math.exp(-step * real) == pytest.approx(5e-4)
    ours = exact_delta(step, math.floor(real), 2 * step)
    assert ours <= delta
    assert distance_threshold(step, delta) < real


def test_distances_to_a_large_sensitivity_move_by_one_step() -> None:
    for exchange, bound in itertools.product((True, False), (0.0, 0.75, 2.0, 3.9)):
        for x in data_sets(range(1, 5)):
            here = of(x, 0.5, exchange).distance_above(bound)
            jumps = [abs(quantile(x, 0.5) - quantile(y, 0.5)) for y in neighbours(x, exchange)]
            assert (here == 0) == (max(jumps) > bound)
            for y in neighbours(x, exchange):
                there = of(y, 0.5, exchange).distance_above(bound)
                assert abs(here - there) <= 1 or min(here, there) == FOREVER


def test_it_is_released_where_the_bound_holds_far_around() -> None:
    many = QuantileSensitivity(np.linspace(0, 1, 5001), 0.0, 1.0, 0.5, False)
    mechanism = dp.ProposeTestRelease(epsilon=1.0, delta=1e-6, bound=0.02)
    released = [float(mechanism.release(many, SeededStream(k))) for k in range(50)]
    assert not np.isnan(released).any()
    assert np.abs(np.array(released) - 0.5).max() < 1
    tight = dp.ProposeTestRelease(epsilon=1.0, delta=1e-6, bound=1e-5)
    assert np.isnan([float(tight.release(many, SeededStream(k))) for k in range(50)]).all()


def released_delta(levels: tuple[int, int], shift: float, apart: float, half: float) -> float:
    """An upper bound of the exact delta at 2 half, for a delta of 1e-2: by each noise's mass.

    B is not released; were it, the delta would be this sum over its values.
    """
    cut = distance_threshold(half, 1e-2)
    total = 0.0
    for b in range(-60, 120):  # the level of B
        p, q = (mass(half, b - cut - level) for level in levels)
        total += stick(p, q, math.exp(apart * b) / half, shift, 2 * half)
    return total


@pytest.mark.parametrize("half", [0.5, 1.0])
@pytest.mark.parametrize("apart", [0.1, 0.5])
def test_a_released_sensitivity_is_as_private_as_it_says(half: float, apart: float) -> None:
    """Levels within 1, and f moving by the smaller of both sensitivities."""
    worst = 0.0
    for levels in ((0, 0), (0, 1), (1, 0)):
        worst = max(worst, released_delta(levels, 1.0, apart, half))
    assert 1e-4 < worst <= 1e-2


@pytest.mark.parametrize(("epsilon", "slope"), [(1.0, 0.05), (2.0, 0.4), (0.5, 0.2), (1.0, 1.5)])
def test_a_bound_that_is_missed_by_little_costs_little(epsilon: float, slope: float) -> None:
    """The law of (level, output), both ways, at the largest move that the bounds allow."""
    delta = 1e-3
    first, second, threshold = released_split(epsilon, delta, slope)
    assert first + second <= epsilon * (1 + 1e-12)
    r, worst = math.exp(-first), 0.0
    for one, other in ((0, 0), (0, 1), (1, 0)):
        total = 0.0
        for v in range(-400, 400):
            p, q = (r ** abs(v - at - threshold) * (1 - r) / (1 + r) for at in (one, other))
            shift = second * math.exp(slope * (min(one, other) - v))
            e = epsilon - math.log(p / q)
            # Laplace laws a shift t apart: 1 - e^{(e - t)/2} for 0 <= e <= t, and 1 - e^e below
            inner = -math.expm1((e - shift) / 2) if abs(e) < shift else max(-math.expm1(e), 0.0)
            total += p * max(inner, 0.0)
        worst = max(worst, total)
    assert worst <= delta
    # T is an integer: one less would be too little
    assert worst * math.exp(first) > delta * 0.99
    # at the old threshold, for which a bound that is missed costs all, delta was not used
    assert distance_threshold(first, delta) >= threshold


def test_less_noise_than_where_a_missed_bound_costs_all() -> None:
    for epsilon, slope, most in ((1.0, 0.05, 0.7), (1.0, 0.02, 0.8), (0.5, 0.05, 0.5)):
        _, second, threshold = released_split(epsilon, 1e-7, slope)
        before = math.exp(slope * distance_threshold(epsilon / 2, 1e-7)) / (epsilon / 2)
        assert math.exp(slope * threshold) / second < most * before


def mixture(z: np.ndarray, first: float, slope: float) -> np.ndarray:
    """The density at z of Laplace noise of scale ``e^{slope N}``, added up term by term."""
    r, total = math.exp(-first), np.zeros_like(z)
    for k in range(-math.ceil(80 / (first - slope)), math.ceil(80 / first + 20 / slope)):
        rate = math.exp(min(-slope * k, 700.0))
        total += (
            (1 - r) / (1 + r) * r ** abs(k) * rate / 2 * np.exp(-np.minimum(np.abs(z) * rate, 1e3))
        )
    return total


def largest_ratio(first: float, slope: float, shift: float) -> float:
    """The largest log-ratio, either way, over levels within 1, shifts up to one, and outputs."""
    near, far = np.linspace(-2 * shift, 4 * shift, 1501), np.geomspace(4 * shift, 1e7, 1000)
    z = np.concatenate([-far, near, far])
    here, q, worst = mixture(z, first, slope), math.exp(-slope), 0.0
    for t in (shift, -shift, shift / 2, 0.0):  # in units of the smaller level's scale
        for scale in (1.0, q):
            there = scale * mixture(scale * (z - t), first, slope)
            worst = max(worst, float(np.abs(np.log(here / there)).max()))
    return worst


@pytest.mark.parametrize(
    ("epsilon", "slope"), [(1.0, 0.05), (1.0, 0.3), (1.0, 0.6), (4.0, 1.0), (0.3, 0.1), (6.0, 0.1)]
)
def test_a_released_sensitivity_has_the_exact_loss_that_it_says(
    epsilon: float, slope: float
) -> None:
    law = released_law(epsilon, slope)
    assert law is not None
    first, shift, apart = law
    assert apart >= slope
    assert 0.98 * epsilon < largest_ratio(first, apart, shift) <= epsilon
    assert largest_ratio(first, apart, 1.05 * shift) > epsilon


def test_its_noise_has_the_law_of_the_theorem() -> None:
    data = QuantileSensitivity(np.linspace(0, 1, 2001), 0.0, 1.0, 0.5, False)
    mechanism = dp.ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.3)
    law = released_law(1.0, 0.3)
    assert law is not None
    first, shift, apart = law
    # a level is at least log L, and by less than one step of it
    level = mechanism._level_scale(data, apart, 0)
    assert data.smooth(apart) <= level <= data.smooth(apart) * math.exp(apart) * (1 + 1e-8)
    stream, r, n = SeededStream(4), math.exp(-first), 1_000
    drawn = [abs(float(mechanism.release(data, stream)) - 0.5) for _ in range(n)]
    z = np.sort(drawn) * shift / level
    masses = {k: (1 - r) / (1 + r) * r ** abs(k) for k in range(-60, 61)}
    below = sum(m * -np.expm1(-z * math.exp(-apart * k)) for k, m in masses.items())
    # Dvoretzky, Kiefer, Wolfowitz: a false alarm has probability 2 e^{-2 n d^2}
    apart_by = max(
        np.abs(below - np.arange(n) / n).max(), np.abs(below - np.arange(1, n + 1) / n).max()
    )
    assert 2 * math.exp(-2 * n * apart_by**2) > 1e-6


def test_noise_that_is_small_beside_its_scale_still_has_its_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a scale far beyond the bounds, what is released inside them is uniform around the value.

    Draws are conditional on a size below 2^-64, as a float near 1 in 2^64 of them would be: noise
    in float64 has nothing between 0 and 2^-53 of its scale, which here is 2^9 times the bounds.
    """
    stream, n = SeededStream(1), 400

    def small(stream: SeededStream) -> Real:
        sign = 1 if word(stream) >> 63 else -1
        return Real(sign, 0, LazyUniform(stream, bits=64, prefix=0))

    monkeypatch.setattr(smooth_sensitivity, "laplace", small)
    data = QuantileSensitivity(np.linspace(0, 1, 11), 0.0, 1.0, 0.5, False)
    mechanism = dp.ProposeTestRelease(epsilon=1e-6, delta=0.9, bound=2.0**62 * 0.4 * 1e-6)
    released = []
    while len(released) < n:
        each = float(mechanism.release(data, stream))
        if not math.isnan(each):
            released.append(each)
    # the noise is uniform within .2 of the value
    assert stats.kstest(released, stats.uniform(0.3, 0.4).cdf).pvalue > 1e-7


def test_a_delta_is_spent_where_the_slope_is_large() -> None:
    pure = dp.ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.3)
    assert pure.loss(1.0) == acc.Pure(1.0)
    steep = dp.ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=1.0)
    assert steep.loss(1.0) == acc.Approximate(1.0, 1e-6)
    # the mean size of the noise, beside that by a delta
    for slope, most in ((0.05, 0.25), (0.1, 0.11), (0.5, 0.01)):
        law = released_law(1.0, slope)
        assert law is not None
        first, second, threshold = released_split(1.0, 1e-6, slope)
        before = mean_stretch(first, slope) * math.exp(slope * threshold) / second
        assert mean_stretch(law[0], law[2]) / law[1] < most * before


def test_without_an_offset_it_is_not() -> None:
    total = sum(
        stick(mass(1.0, b), mass(1.0, b), math.exp(0.5 * b), 1.0, 2.0) for b in range(-60, 60)
    )
    assert total > 1e-2


@pytest.mark.parametrize("logarithmic", [True, False])
@pytest.mark.parametrize("slope", [1e-9, 0.05, 0.5, 3.0])
def test_the_bound_covers_the_sensitivity_and_moves_by_one_level(
    logarithmic: bool, slope: float
) -> None:
    mechanism = dp.ReleasedSensitivity(
        epsilon=1.0, delta=1e-6, slope=slope, logarithmic=logarithmic
    )
    for exchange in (True, False):
        for x in data_sets(range(1, 4)):
            here = of(x, 0.5, exchange)
            bound = mechanism.sensitivity_bound(here, 0)
            assert bound >= here.local(0)
            for y in neighbours(x, exchange):
                other = of(y, 0.5, exchange)
                below, over = (mechanism.sensitivity_bound(other, k) for k in (-1, 1))
                assert below * (1 - 1e-12) <= bound <= over * (1 + 1e-12)


def test_extreme_slopes_and_noises() -> None:
    data = QuantileSensitivity(np.array([0.2, 0.5, 0.9]), 0.0, 1.0, 0.5, False)
    for slope, logarithmic in itertools.product((1e-300, 1e299), (True, False)):
        mechanism = dp.ReleasedSensitivity(
            epsilon=1.0, delta=1e-6, slope=slope, logarithmic=logarithmic
        )
        for moved in (-(10**9), 0, 10**9):
            assert mechanism.sensitivity_bound(data, moved) > 0
        assert 0 <= float(mechanism.release(data, SeededStream(1))) <= 1


def test_in_a_plan() -> None:
    x = dp.dataset("t", columns={"x": (0, 1)})["x"].median()
    plan = dp.Pipeline(
        tested=x.release(dp.ProposeTestRelease(epsilon=dp.Free("e"), delta=1e-7, bound=0.1)),
        bounded=x.release(dp.ReleasedSensitivity(epsilon=dp.Free("e"), delta=1e-7, slope=0.1)),
    ).calibrate(epsilon=2.0, delta=1e-6)
    assert plan.certify().epsilon <= 2.0
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    result = plan.simulate(seed=1, t={"x": np.linspace(0, 1, 3001)})
    assert result["bounded"] == pytest.approx(0.5, abs=0.4)
    assert result["tested"] == pytest.approx(0.5, abs=0.99)
    few = plan.simulate(seed=1, t={"x": np.array([0.0, 1.0])})
    assert math.isnan(few["tested"])
    assert 0 <= few["bounded"] <= 1
