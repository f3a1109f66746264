"""The Gaussian profile and its inverse: special functions, extremes, tightness."""

from __future__ import annotations

import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from scipy.special import erfcx, ndtr, ndtri

from accountants import Gaussian, Repeated, Sampled, Spend
from accountants.definitions import gdp_epsilon, gdp_profile
from accountants.gaussian import central_limit_estimate

TENTH = 1e-15  # a tenth of the error that notions/gaussian.py allows for


def test_scipy_erfcx_is_as_accurate_as_assumed() -> None:
    grid = np.concatenate(
        [np.linspace(0, 30, 1201), np.geomspace(1e-12, 1, 100), np.geomspace(30, 1e4, 60)]
    )
    for x in grid:
        z = mp.mpf(float(x))
        exact = mp.exp(z * z) * mp.erfc(z) if x < 300 else far(z)
        assert abs(float(erfcx(x)) / exact - 1) <= TENTH, x


def far(x: mp.mpf) -> mp.mpf:
    """The asymptotic series of erfcx; at 300 its ninth term is below 1e-38."""
    terms = [(-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(9)]
    return mp.fsum(terms) / (x * mp.sqrt(mp.pi))


def test_scipy_ndtr_is_as_accurate_as_assumed_above_a_half() -> None:
    for x in np.concatenate([np.linspace(0, 9, 901), np.geomspace(1e-12, 1, 100)]):
        exact = mp.erfc(-mp.mpf(float(x)) / mp.sqrt(2)) / 2
        assert abs(float(ndtr(x)) / exact - 1) <= TENTH, x


def test_scipy_ndtri_is_as_accurate_as_assumed_below_a_half() -> None:
    """pure.to_mu allows 64 units in the last place."""
    grid = [0.5 * (1 - 10.0**-k) for k in range(1, 15)] + list(np.linspace(0.02, 0.49, 95))
    for p in [*grid, *np.geomspace(1e-300, 0.02, 120)]:
        x = mp.mpf(float(ndtri(p)))
        exact_p = mp.erfc(-x / mp.sqrt(2)) / 2
        density = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        error = (exact_p - mp.mpf(float(p))) / density  # Newton's step
        assert abs(error) <= abs(x) * 32 * mp.mpf(2) ** -53 + mp.mpf(2) ** -54, p


DELTAS = [1e-300, 1e-100, 1e-30, 1e-15, 1e-9, 1e-5, 1e-2, 0.3, 0.9]
MUS = [1e-3, 0.01, 0.0314, 0.1, 0.5, 1.0, 3.7, 10.0, 31.0, 100.0, 1e3]


@pytest.mark.parametrize("mu", MUS)
def test_epsilon_brackets_the_truth(mu: float) -> None:
    for delta in DELTAS:
        bounds = gdp_epsilon(mu, delta)
        truth.proves(bounds.upper, lambda e: truth.gaussian_delta(mu, e), delta)
        truth.refutes(bounds.lower, lambda e: truth.gaussian_delta(mu, e), delta)
        width = bounds.upper - bounds.lower
        assert width <= 1e-12 * bounds.upper / min(1.0, mu) + 1e-12 * mu, (mu, delta)


@pytest.mark.parametrize("mu", MUS)
def test_profile_brackets_the_truth(mu: float) -> None:
    for share in (0.0, 1e-9, 0.3, 1.0, 2.5, 8.0, 20.0, 36.0):
        epsilon = mu * mu / 2 + share * mu if share else 0.0
        exact = truth.gaussian_delta(mu, epsilon)
        bounds = gdp_profile(mu, epsilon)
        assert truth.real(bounds.lower) <= exact <= truth.real(bounds.upper)
        assert bounds.upper - bounds.lower <= 1e-11 * exact * (1 + mu + 1 / mu) + mp.mpf("1e-320")


@pytest.mark.parametrize("mu", [5e-324, 1e-200, 1e-20, 1e-12, 1e5, 1e60, 1e149])
def test_absurd_scales_stay_sound(mu: float) -> None:
    for delta in (1e-300, 1e-9, 0.5, 1 - 1e-12):
        bounds = gdp_epsilon(mu, delta)
        assert bounds.lower <= bounds.upper
        if mu < 1:
            # eps <= z mu with z = 40 suffices, whatever the mu, where delta >= 1e-300
            truth.proves(
                bounds.upper,
                lambda e: truth.gaussian_delta(mu, e) if mu > 1e-30 else mp.mpf(0),
                delta,
            )
        else:
            assert bounds.upper >= mu * mu / 2 * (1 - 1e-3) or delta > 0.5


def test_ends() -> None:
    assert gdp_epsilon(0.0, 0.0).upper == 0.0
    assert math.isinf(gdp_epsilon(1.0, 0.0).upper)
    assert math.isinf(gdp_epsilon(1e200, 1e-5).upper)
    assert gdp_epsilon(1.0, 1.0).upper == 0.0


def test_denormal_deltas_are_bracketed() -> None:
    for mu in (0.1, 1.0, 3.0):
        for x in [37.5 + i / 40 for i in range(60)]:
            epsilon = mu * mu / 2 + x * mu
            bounds, exact = gdp_profile(mu, epsilon), truth.gaussian_delta(mu, epsilon)
            assert truth.real(bounds.lower) <= exact <= truth.real(bounds.upper)


def test_the_central_limit_is_an_estimate_that_under_reports():
    training = Repeated(Sampled(Spend(Gaussian(1 / 1.1)), 256 / 60000), 14063)
    estimate = central_limit_estimate(training, 1e-5)
    # q sqrt(T (e^{mu^2} - 1)) is its mu (Bu, Dong, Long and Su 2020, Cor. 4)
    mu = 256 / 60000 * math.sqrt(14063 * math.expm1(1 / 1.1**2))
    assert estimate == pytest.approx(gdp_epsilon(mu, 1e-5).upper, rel=2e-3)
    assert estimate < 2.3816897261
    assert central_limit_estimate(Repeated(Spend(Gaussian(0.1)), 100), 1e-5) == pytest.approx(
        4.377178095681, rel=1e-6
    )


def test_profiles_at_negative_epsilons() -> None:
    """Below 0 rounding outward is the other way, and e^eps Phi(b) may be large."""
    with mp.workdps(60):
        for exponent in range(-6, 4):
            for ratio in (0.1, 1.0, 7.0, 20.0, 27.0, 40.0, 1e3):
                mu = 1.37 * 10.0**exponent
                for epsilon in (-mu * ratio, mu * ratio):
                    if abs(epsilon) > 700:
                        continue
                    exact = mp.ncdf(mp.mpf(mu) / 2 - mp.mpf(epsilon) / mu)
                    exact -= mp.e ** mp.mpf(epsilon) * mp.ncdf(
                        -mp.mpf(mu) / 2 - mp.mpf(epsilon) / mu
                    )
                    delta = gdp_profile(mu, epsilon)
                    assert delta.lower <= exact <= delta.upper, (mu, epsilon)
                    assert delta.upper - delta.lower <= 1e-6 * exact + 1e-13


def test_equal_laws_at_negative_epsilons() -> None:
    """Even of equal laws delta is ``1 - e^eps`` there, and not 0."""
    with mp.workdps(60):
        for epsilon in (-1e-300, -1e-9, -0.3, -5.0, -700.0):
            delta = gdp_profile(0.0, epsilon)
            assert delta.lower <= -mp.expm1(epsilon) <= delta.upper, epsilon
            assert delta.upper - delta.lower <= 1e-11 * delta.upper
    assert gdp_profile(0.0, 0.0).lower == 0
