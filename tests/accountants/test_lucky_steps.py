"""Sampled Gaussians of which few steps have a large loss, against convolutions on plain lattices.

The truth here shares nothing with the accountant: all losses on one lattice, each cell spread over
its ends with its mean of ``dP/dQ``, an FFT, and the limit of two steps (the spread gains
``O(step^2)``). It is slow and known to about a ten-millionth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy.special import ndtr

from accountants import Distribution, Gaussian, Repeated, Sampled, Spend, measure
from accountants.distribution import contour, lucky
from accountants.losses.cut_sample import CutSample
from accountants.losses.gaussian import GaussianPair
from accountants.losses.sampling import SampledGaussianPair
from accountants.numerics import Bounds


@pytest.fixture(autouse=True)
def _as_inside_the_accountant() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def on_lattice(
    mu: float, rate: float, times: int, epsilon: float, points: int, tilt: float, turns: int = 4
) -> float:
    """Return an upper bound of delta: losses up to ``epsilon + room`` on so many points.

    Sums of more than ``turns`` of the largest wrap around.
    """
    top = epsilon - times * math.log1p(-rate)
    bottom = math.log1p(-rate)
    edges = bottom + (top - bottom) * np.arange(points + 1) / points
    h = edges[1] - edges[0]
    with np.errstate(divide="ignore"):
        x = (np.log(np.maximum(np.expm1(edges) + rate, 0)) - math.log(rate) + mu * mu / 2) / mu
    x[0] = -np.inf
    q = np.where(x[1:] < 0, np.diff(ndtr(x)), -np.diff(ndtr(-x)))
    moved = x - mu
    body = np.where(moved[1:] < 0, np.diff(ndtr(moved)), -np.diff(ndtr(-moved)))
    p = (1 - rate) * q + rate * body
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.clip(np.nan_to_num(np.log(p / q) - edges[:-1], nan=0.0), 0, h)
    share = np.expm1(-mean) / math.expm1(-h)
    masses = np.append(p * (1 - share), 0.0) + np.append(0.0, p * share)
    # a loss above the top surely leaves the sum above epsilon: its masses are all that counts
    above_q = float(ndtr(-x[-1]))
    above_p = (1 - rate) * above_q + rate * float(ndtr(mu - x[-1]))
    any_p, any_q = (-math.expm1(times * math.log1p(-each)) for each in (above_p, above_q))
    length = 1 << math.ceil(math.log2(turns * points))
    tilted = masses * np.exp(tilt * h * np.arange(points + 1))
    total = tilted.sum()
    sums = np.fft.irfft(np.fft.rfft(tilted / total, length) ** times, length)
    j = np.arange(length)
    gain = np.maximum(0.0, -np.expm1(epsilon - (times * bottom + h * j)))
    some = gain > 0
    logs = times * math.log(total) - tilt * h * j[some]
    rest = float((np.maximum(sums[some], 0) * gain[some]) @ np.exp(logs))
    return rest + any_p - math.exp(epsilon) * any_q


def limit(
    mu: float,
    rate: float,
    times: int,
    epsilon: float,
    points: int,
    tilt: float = 0.0,
    turns: int = 4,
) -> float:
    """Return delta, by the spread's gain at two steps."""
    coarse, fine = (
        on_lattice(mu, rate, times, epsilon, n, tilt, turns) for n in (points // 2, points)
    )
    return fine - (coarse - fine) / 3


@pytest.mark.parametrize(
    ("mu", "rate", "times", "epsilon", "tilt"),
    [
        (1 / 0.7, 1e-3, 100, 0.3, 20.0),
        (2.0, 1e-3, 60, 1.0, 3.0),
        (2.0, 1e-6, 100, 0.002, 0.0),
        (1.0, 1e-3, 100, 4.0, 12.0),
    ],
)
def test_bounds_hold_the_limit_of_lattices(
    mu: float, rate: float, times: int, epsilon: float, tilt: float
) -> None:
    spends = ((SampledGaussianPair(GaussianPair(mu), rate), times),)
    found = lucky.profile(spends, np.array([epsilon]))
    assert found is not None
    low, high = (float(end[0]) for end in found)
    truth = limit(mu, rate, times, epsilon, 2**18, tilt)
    assert high - low <= 1e-5 * high
    assert low * (1 - 2e-6) <= truth <= high * (1 + 2e-6)


def test_of_a_tiny_delta_several_large_steps_count() -> None:
    split = lucky._split((1.0, 1e-3, 0.0, 300), 8.0, 0.1, 2**15)
    assert split is not None
    low, high = split.delta(8.0)
    truth = limit(1.0, 1e-3, 300, 8.0, 2**17, 13.0, turns=16)  # 4.78e-49
    assert low * (1 - 2e-6) <= truth <= high * (1 + 2e-6)
    assert high <= low * (1 + 3e-5)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.4])
@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_all_splits_agree(share: float, epsilon: float) -> None:
    """How many steps count as large changes nothing but the width."""
    truth = limit(1 / 0.7, 1e-3, 100, epsilon, 2**17, 20.0)
    split = lucky._split((1 / 0.7, 1e-3, 0.0, 100), 0.3, share, 2**12)
    assert split is not None
    low, high = split.delta(epsilon)
    assert low * (1 - 3e-6) <= truth <= high * (1 + 3e-6)
    assert high <= low * (1 + 1e-3)


@pytest.mark.parametrize("side", [1, -1])
def test_large_losses_are_convolved(side: int) -> None:
    """Sums of k large losses, and what is left out of them, against plain convolutions."""
    split = lucky._split((2.0, 1e-4, 0.0, 1000), 50.0, 0.1, 2**11)
    assert split is not None
    large, left_out = split.large, 0
    masses = large.masses[side]
    for k in (1, 2, 6):
        tilt = large.tilt(k, 50.0)
        found, error, scale, lost = large.sum_of(side, k, tilt)
        raised = masses * np.exp(tilt * large.step * (np.arange(len(masses)) - len(masses)))
        one, truth = raised / raised.sum(), np.ones(1)
        for _ in range(k):
            truth = np.convolve(truth, one)
        # beside what the exponentials here take for 0
        assert np.all(np.abs(found - truth[: len(found)]) <= error + 1e-100)
        assert error.max() <= 1e-12
        assert truth[len(found) :].sum() <= lost <= 1e-19
        left_out += len(truth) - len(found)
        of_one = math.log(raised.sum()) + tilt * large.step * len(masses)
        assert scale == pytest.approx(k * of_one, rel=1e-12)
    assert left_out > 4 * len(masses)


def test_moments_of_large_losses_are_bounded() -> None:
    split = lucky._split((1.0, 1e-3, 0.0, 300), 8.0, 0.1, 2**11)
    assert split is not None
    large = split.large
    losses = large.base[1] + large.step * np.arange(len(large.masses[1]))
    orders = np.array([0.01, 1.0, 30.0, 60.0])
    truth = [math.log(large.masses[1] @ np.exp(c * losses)) for c in orders.tolist()]
    assert np.all(large.log_moment(orders) >= truth)
    assert large.log_moment(orders) == pytest.approx(truth, rel=1e-9)


def test_small_losses_are_convolved() -> None:
    """``D_m`` on a lattice is that of a convolution, left, right and in the middle."""
    split = lucky._split((1 / 0.7, 1e-3, 0.0, 100), 0.3, 0.1, 2**12)
    assert split is not None
    assert split.small is not None
    small, m = split.small, 90
    mu, rate, cut, _ = small.law
    # masses of x up to the cut, very fine, and spread on a lattice of losses
    x = np.linspace(-9.0, cut, 400_001)
    middle = (x[1:] + x[:-1]) / 2
    loss = np.log1p(rate * np.expm1(mu * middle - mu**2 / 2))
    p = np.exp(-middle * middle / 2 + loss) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    step, size = 1e-6, 2**19
    place = (loss - math.log1p(-rate)) / step
    index = np.floor(place).astype(int)
    share = place - index
    masses = np.bincount(index, p * (1 - share), size) + np.bincount(index + 1, p * share, size)
    sums = np.fft.irfft(np.fft.rfft(masses, size) ** m, size)
    losses = m * math.log1p(-rate) + step * np.arange(size)
    for start in (0.08, 0.02, -0.05):
        low, high = small.bounds(m, start, 8, 10.0)
        for j in range(8):
            gain = np.maximum(0.0, -np.expm1(start - j * small.step - losses))
            truth = float(sums @ gain)
            assert low[j] <= truth * (1 + 1e-5) + 1e-12
            assert truth <= high[j] * (1 + 1e-5) + 1e-12
            assert high[j] - low[j] <= 1e-6 * high[j] + 1e-11


@pytest.mark.parametrize(
    ("sigma", "rate", "times", "delta"),
    [
        (0.5, 1e-3, 100, 1e-5),
        (0.5, 1e-6, 100, 1e-7),
        (0.5, 1e-6, 10**6, 1e-8),
        (1.0, 1e-3, 1000, 1e-100),
    ],
)
def test_a_lucky_step_leaves_no_width(sigma: float, rate: float, times: int, delta: float) -> None:
    steps = Repeated(Sampled(Spend(Gaussian(mu=1 / sigma)), rate=rate), times)
    bounds = measure(steps, Distribution(), delta=delta).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper


def test_sums_of_large_losses_that_lie_on_both_sides_of_epsilon() -> None:
    """Their tilted law has next to nothing at epsilon: what lies far above it counts."""
    pair = SampledGaussianPair(GaussianPair(1.0966421834717162), 6.324994748880072e-06)
    bounds = lucky.epsilon(((pair, 1804),), 5.843552622253526e-178, Bounds(0.0, 26.0))
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 2e-4 * bounds.upper


def test_what_is_left_of_a_law_has_less_mass() -> None:
    """A lower bound of delta near 1 once took the masses of cut losses for 1."""
    cut = CutSample(2.0, 1e-3, 2.5)
    low, high = contour.profile(((cut, 100),), np.array([0.5])) or (np.ones(1), np.zeros(1))
    # Chernoff's bound of the 100 small losses
    assert low[0] <= high[0] <= 1e-10
