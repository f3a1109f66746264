"""Roots in closed form, against the profiles and the conversions whose roots they are."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from attrs import frozen
from scipy.optimize import brentq

from accountants import (
    Allocated,
    Approximate,
    Composite,
    Distribution,
    Gaussian,
    Laplace,
    Pure,
    ReplacedSample,
    Spend,
    measure,
    worlds,
)
from accountants.definitions import renyi_epsilon, renyi_to_epsilon, zcdp_epsilon
from accountants.loss import PrivacyLoss
from accountants.losses import Sampled
from accountants.losses.laplace import LaplacePair
from accountants.numerics import _brent, up
from accountants.pair import Pair

DELTAS = (1e-300, 1e-12, 1e-5, 0.003, 0.2, 0.7)

LOSSES = (
    Laplace(0.1),
    Laplace(1e-9),
    Laplace(30.0),
    Composite({Gaussian(0.5): 3, Gaussian(0.1): 1}),
    Composite({Laplace(0.7): 1}),
    Sampled(Composite({Gaussian(1.5): 1}), 0.01),
    Sampled(Composite({Laplace(2.0): 1}), 0.3),
    Sampled(Composite({Laplace(2.0): 1}), 1.0),
)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("delta", DELTAS)
def test_the_profile_crosses_delta_there(loss: PrivacyLoss, delta: float) -> None:
    """A little before the lower end the profile is above delta, a little after the upper below."""
    bounds = loss.epsilon_at(delta)
    assert bounds is not None
    before = loss.profile(bounds.lower * (1 - 1e-11))
    after = loss.profile(bounds.upper * (1 + 1e-11))
    assert before is not None
    assert after is not None
    slack = 1 + 1e-12  # of what the profiles themselves are rounded by
    assert bounds.lower == 0 or before.upper * slack >= delta
    assert after.lower <= delta * slack
    assert bounds.upper - bounds.lower <= 1e-11 * (1e-4 + bounds.upper)


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 5.0])
@pytest.mark.parametrize("delta", [0.0, *DELTAS, 1.0])
def test_laplace_is_bracketed_in_many_digits(epsilon: float, delta: float) -> None:
    with mp.workdps(60):
        exact = mp.mpf(epsilon) + 2 * mp.log1p(-mp.mpf(delta)) if delta < 1 else mp.mpf(0)
        bounds = Laplace(epsilon).epsilon_at(delta)
        assert mp.mpf(bounds.lower) <= max(mp.mpf(0), exact) <= mp.mpf(bounds.upper)


@pytest.mark.parametrize(("mu", "rate", "delta"), [(1.5, 0.01, 1e-5), (0.4, 0.2, 1e-9)])
def test_sampled_gaussian_is_bracketed_in_many_digits(mu: float, rate: float, delta: float) -> None:
    bounds = Sampled(Composite({Gaussian(mu): 1}), rate).epsilon_at(delta)
    assert bounds is not None
    with mp.workdps(40):

        def excess(epsilon: float) -> mp.mpf:
            inside = mp.log1p(mp.expm1(mp.mpf(epsilon)) / mp.mpf(rate))
            m = mp.mpf(mu)
            first = mp.ncdf(m / 2 - inside / m)
            return mp.mpf(rate) * (first - mp.e**inside * mp.ncdf(-m / 2 - inside / m)) - delta

        assert excess(bounds.lower) >= 0 >= excess(bounds.upper)


def test_what_a_sample_hides_costs_nothing() -> None:
    loss = Sampled(Composite({Gaussian(1.0): 1}), 0.01)
    for delta in (0.01, 0.5, 1.0):
        bounds = loss.epsilon_at(delta)
        assert bounds is not None
        assert bounds.upper == 0
    assert Sampled(Composite({Gaussian(1.0): 1}), 0.0).epsilon_at(0.0) is not None
    assert loss.epsilon_at(0.0) is None  # infinite: the profile says so
    assert Sampled(Composite({Approximate(1.0, 1e-3): 1}), 0.5).epsilon_at(1e-5) is None


@pytest.mark.parametrize("slope", [0.0, 1e-300, 1e-9, 0.005, 3.0, 1e6, 1e300])
@pytest.mark.parametrize("delta", [5e-324, 1e-60, 1e-5, 0.3, 0.999, 1 - 2**-53])
def test_a_linear_curve_has_its_best_order_at_the_root(slope: float, delta: float) -> None:
    """No order of a grid proves less, and the order that is named proves it."""
    best, order = zcdp_epsilon(slope, delta)
    grid = 1 + np.geomspace(1e-6, 1e12, 20_001)
    with np.errstate(over="ignore"):
        others = renyi_to_epsilon(up(grid * slope), grid, delta)
    assert best <= max(0.0, float(others.min())) * (1 + 1e-9) + 1e-12
    alone = renyi_to_epsilon(up(np.array([order]) * slope), np.array([order]), delta)
    assert best == max(0.0, float(alone[0]))
    assert renyi_epsilon(lambda orders: up(orders * slope), delta)[0] >= best * (1 - 1e-12) - 1e-5


@frozen
class Blurred(LaplacePair):
    """The Laplace pair, with coarse bounds of its tails."""

    def tail_error(self) -> float:
        return 1e-3


@pytest.mark.parametrize("delta", [0.2, 0.01, 1e-5])
def test_one_loss_of_a_blurred_profile(delta: float) -> None:
    """Where the bounds of delta are far apart each end of epsilon is the root of its own."""
    pair = Blurred(2.0)
    term = Spend(Given(pair))
    bounds = measure(term, Distribution(), delta=delta).bounds
    assert bounds is not None
    ends = np.array([bounds.lower, bounds.upper])
    low, high = pair.profile(ends)
    assert low[0] > delta or ends[0] == 0
    assert high[1] <= delta or ends[1] == 2.0
    low, high = pair.profile(ends + np.array([1e-6, -1e-6]))
    assert low[0] <= delta
    assert high[1] > delta


@frozen
class Given(PrivacyLoss):
    """Any pair, as a loss."""

    of: Pair

    def pair(self) -> Pair:
        return self.of


def test_a_linear_curve_without_an_answer() -> None:
    assert zcdp_epsilon(1.0, 0.0) == (math.inf, math.inf)
    assert zcdp_epsilon(math.inf, 0.5) == (math.inf, math.inf)


def test_bounds_that_differ_in_their_last_bits_have_no_chord() -> None:
    """Two upper bounds with equal logarithms around a crossing: halved, where a chord has no slope.

    Found by drawing: the first profile is that of the release, the second term's has a step.
    """
    for term, delta in (
        (ReplacedSample(Spend(Gaussian(1.8996035417407278)), rate=0.003916108810969938), 1e-5),
        (Allocated(Spend(Pure(1.0)), 8), 0.01),
    ):
        bounds = measure(term, Distribution(), delta=delta).bounds
        assert bounds is not None
        (loss,) = worlds(term).common or worlds(term).alternatives[0].spends
        profile = loss.profile(bounds.upper * (1 + 1e-9))
        assert profile is not None
        assert profile.lower <= delta
        assert bounds.upper < 1.5


def test_steps_to_a_root_are_those_of_scipy() -> None:
    stream = np.random.default_rng(5)
    for steep, root, left, right in stream.uniform(0.1, 3.0, (200, 4)).tolist():

        def smooth(x: float, steep: float = steep, root: float = root) -> float:
            return math.expm1(steep * (root - x))

        def cubic(x: float, steep: float = steep, root: float = root) -> float:
            return steep * (root - x) ** 3

        def kinked(x: float, steep: float = steep, root: float = root) -> float:
            return 1e6 if x < root else -steep

        for function in (smooth, cubic, kinked):
            low, high = root - left, root + right
            theirs = brentq(function, low, high, xtol=1e-300, rtol=1e-15, maxiter=200, disp=False)
            assert _brent(function, low, high) == theirs
