"""Copies of the Laplace pair in closed form, against sums and integrals in many digits."""

from __future__ import annotations

import math
from functools import cache

import mpmath as mp
import numpy as np
import pytest

from accountants import Distribution, Laplace, Repeated, Spend, measure
from accountants.losses.laplace import LaplacePair, laplace_sum_profile
from accountants.numerics import enclosure

CASES = (
    (0.1, 2, (0.0, 0.05, 0.1, 0.19)),
    (0.1, 10, (0.0, 0.3, 0.6, 0.98, 0.9999)),
    (0.1, 40, (0.7, 3.0)),
    (0.5, 12, (0.0, 1.0, 1.25, 5.99)),
    (1.0, 10, (1.0, 4.0, 9.989)),
    (2.0, 7, (0.5, 13.0)),
    (6.0, 4, (0.1, 11.0, 23.5)),
    (0.003, 40, (0.0, 0.01, 0.119)),
)


def exact(e: float, k: int, epsilon: float) -> mp.mpf:
    """Return the hockey-stick by truncated powers, whose signs alternate, in 120 digits.

    ``E (x + U)_+^n / n!`` of j uniform draws is ``(2e)^-j`` times the j-th difference of
    ``(x + .)_+^{n+j} / (n+j)!``; the series of sinh, differenced, is what is left of sinh itself.
    """
    with mp.workdps(80):
        e_, eps, total = mp.mpf(e), mp.mpf(epsilon), mp.mpf(0)

        @cache
        def antiderivative(j: int, s: int) -> mp.mpf:
            """The j-th from 0 of ``2 sinh(y/2)``, at ``y = (2s - k) e - epsilon``."""
            half = ((2 * s - k) * e_ - eps) / 2
            if half <= 0:
                return mp.mpf(0)
            sign, value, term = (-1) ** j, mp.e**half - (-1) ** j * mp.e**-half, mp.mpf(1)
            for n in range(j):
                value -= (1 - sign * (-1) ** n) * term
                term *= half / (n + 1)
            return 2**j * value

        for j in range(k + 1):
            weights = mp.binomial(k, j) / mp.mpf(2) ** k / 2**j
            signs = [(-1) ** r * mp.binomial(j, r) for r in range(j + 1)]
            for i in range(k - j + 1):
                difference = mp.fsum(
                    sign * antiderivative(j, i + j - r) for r, sign in enumerate(signs)
                )
                total += weights * mp.binomial(k - j, i) * difference
        return total * mp.e ** ((eps - k * e_) / 2)


def one(e: mp.mpf, epsilon: mp.mpf) -> mp.mpf:
    """One copy's hockey-stick, at any real epsilon."""
    if epsilon >= e:
        return mp.mpf(0)
    if epsilon <= -e:
        return 1 - mp.e**epsilon
    return 1 - mp.e ** ((epsilon - e) / 2)


@pytest.mark.parametrize(("e", "epsilon"), [(0.1, 0.05), (0.7, 0.0), (3.0, 4.5)])
def test_the_reference_is_the_integral_over_one_draw(e: float, epsilon: float) -> None:
    """For two copies: the mean over the first one's loss of the second's hockey-stick."""
    with mp.workdps(40):
        e_, eps = mp.mpf(e), mp.mpf(epsilon)
        atoms = one(e_, eps - e_) / 2 + mp.e**-e_ / 2 * one(e_, eps + e_)
        kinks = sorted({-e_, min(e_, max(-e_, eps - e_)), e_})
        drawn = mp.quad(lambda v: mp.e ** ((v - e_) / 2) / 4 * one(e_, eps - v), kinks)
        assert abs(atoms + drawn - exact(e, 2, epsilon)) < mp.mpf(10) ** -30


@pytest.mark.parametrize(("e", "k", "epsilons"), CASES)
def test_brackets_hold_and_are_narrow(e: float, k: int, epsilons: tuple[float, ...]) -> None:
    delta = laplace_sum_profile(e, k, np.array(epsilons))
    assert delta is not None
    for low, high, epsilon in zip(*delta, epsilons, strict=True):
        truth = exact(e, k, epsilon)
        assert mp.mpf(float(low)) <= truth <= mp.mpf(float(high))
        assert high - low <= 1e-11 * high


def test_points_of_the_lattice_and_beyond_the_largest_loss() -> None:
    """Where epsilon meets an atom (0.5 is exact), next to it, at the largest loss and beyond."""
    points = np.array([1.0, np.nextafter(1.0, 0), np.nextafter(1.0, 2), 2.0, 3.0, 1e308])
    low, high = laplace_sum_profile(0.5, 4, points) or (points, points)
    for x, least, most in zip(points[:3].tolist(), low, high, strict=False):
        assert mp.mpf(float(least)) <= exact(0.5, 4, x) <= mp.mpf(float(most))
    assert high[3] <= 1e-179
    assert np.all(high[4:] == 0)
    assert np.all(low[3:] == 0)


def test_it_agrees_with_the_contour_where_both_serve() -> None:
    """Many small draws, most of them left out."""
    from accountants.distribution import contour

    points = np.array([2.0, 6.0, 12.0])
    closed = laplace_sum_profile(0.1, 500, points)
    integral = contour.profile([(LaplacePair(0.1), 500)], points)
    assert closed is not None
    assert integral is not None
    assert np.all(closed[0] <= integral[1])
    assert np.all(integral[0] <= closed[1])
    assert np.all(closed[1] - closed[0] <= 1e-9 * closed[1])


@pytest.mark.parametrize(
    ("e", "k"), [(0.1, 1), (1e-7, 10), (0.1, 100_000), (200.0, 3), (5.0, 100), (1e-3, 10**7)]
)
def test_it_refuses_what_would_cost_too_much(e: float, k: int) -> None:
    assert laplace_sum_profile(e, k, np.array([e])) is None


@pytest.mark.parametrize(("k", "truth"), [(10, 0.989962311151), (100, 4.2203473250803)])
def test_epsilon_is_bracketed_to_many_digits(k: int, truth: float) -> None:
    bounds = measure(Repeated(Spend(Laplace(0.1)), k), Distribution(), delta=1e-5).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower < 1e-9
    assert bounds.lower - 1e-12 <= truth <= bounds.upper + 1e-12
    upper = laplace_sum_profile(0.1, k, np.array([bounds.lower, bounds.upper]))
    assert upper is not None
    assert upper[1][1] <= 1e-5 <= upper[1][0]


def test_delta_is_bracketed_to_many_digits() -> None:
    bounds = measure(Repeated(Spend(Laplace(0.1)), 40), Distribution(), epsilon=3.0).bounds
    assert bounds is not None
    assert bounds.lower <= float(exact(0.1, 40, 3.0)) * (1 + 1e-15)
    assert bounds.upper >= float(exact(0.1, 40, 3.0)) * (1 - 1e-15)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper


@pytest.mark.parametrize("delta", [0.9, 1e-3, 1e-12])
def test_enclosure_of_a_blurred_profile(delta: float) -> None:
    """Both ends are on their sides of the truth, and as close as the blur lets them be."""

    def profile(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        truth = np.exp(-x - x * x)
        return truth * (1 - 1e-10), truth * (1 + 1e-10)

    left, right = enclosure(profile, delta, 0.0, 64.0)
    root = (-1 + math.sqrt(1 - 4 * math.log(delta))) / 2
    assert left <= root <= right <= left + 1e-9


def test_enclosure_at_zero_loss_and_without_a_bound() -> None:
    zero = enclosure(lambda x: (0 * x, 0 * x), 1e-5, 0.0, 1.0)
    assert zero == (0.0, 0.0)
    assert enclosure(lambda x: (0 * x, 0 * x + 1), 1e-5, 0.25, 1.0) == (0.25, 1.0)
