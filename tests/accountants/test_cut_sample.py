"""Sampled Gaussians in which a unit seldom takes part, against high-precision integrals."""

from __future__ import annotations

import math

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest

from accountants import Distribution, Gaussian, Repeated, Sampled, Spend, measure
from accountants.losses.cut_sample import CutSample, cut_log_moment, cut_sample
from accountants.losses.sampled_gaussian import sampled_gaussian_log_moment

CASES = [(1.0, 1e-8, 9.99), (2.0, 1e-3, 9.5), (5.0, 1e-6, 12.0), (0.5, 0.3, 8.0), (0.02, 0.1, 9.0)]


def moment(mu: float, q: float, cut: float, s: complex) -> complex:
    """Return ``E[R^s; x <= cut]`` in 25 digits."""
    with mpmath.workdps(25):
        m, rate = mpmath.mpf(mu), mpmath.mpf(q)

        def integrand(x: mpmath.mpf) -> mpmath.mpc:
            r = mpmath.exp(m * x - m * m / 2)
            return mpmath.npdf(x) * (1 - rate + rate * r) ** mpmath.mpc(s)

        edges = [-14, *np.arange(-8.0, cut, 0.5).tolist(), cut]
        return complex(mpmath.quad(integrand, edges, method="gauss-legendre", maxdegree=4))


@pytest.mark.parametrize(("mu", "q", "cut"), CASES)
def test_moments_are_those_of_an_integral(mu: float, q: float, cut: float) -> None:
    pair = CutSample(mu, q, cut)
    top = pair.top()
    for z in (1.0, 10 / top, (5 + 20j) / top):
        value, error = pair.log_moment(np.array([z], dtype=np.complex128))
        exact = moment(mu, q, cut, 1 + complex(z))
        if abs(exact) < 1e-6 * abs(moment(mu, q, cut, 1 + complex(z).real)):
            continue  # it may be lost in rounding
        # both are floats here: a unit of each more
        assert abs(np.exp(value[0]) / exact - 1) <= error[0] * 1.001 + 1e-15 * (1 + abs(value[0]))
        assert error[0] < 1e-9
    other = CutSample(mu, q, cut, mirrored=True)
    z = min(10 / top, 1000 / other.top())
    value, error = other.log_moment(np.array([z + 5j], dtype=np.complex128))
    exact = moment(mu, q, cut, -z - 5j)
    assert abs(np.exp(value[0]) / exact - 1) <= error[0] * 1.001 + 1e-15 * (1 + abs(value[0]))
    assert error[0] < 1e-9


@pytest.mark.parametrize(("mu", "q", "cut"), CASES)
def test_no_moment_is_above_its_decay(mu: float, q: float, cut: float) -> None:
    pairs = CutSample(mu, q, cut), CutSample(mu, q, cut, mirrored=True)
    x = np.linspace(-14, cut, 40_001)
    loss = np.log1p(q * np.expm1(mu * x - mu * mu / 2))
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    top = pairs[0].top()
    for pair, tilt in ((pair, tilt) for pair in pairs for tilt in (1.0, 10 / top)):
        law = density * np.exp((-tilt if pair.mirrored else 1 + tilt) * loss)
        t = np.geomspace(0.1, 1000, 40) / top
        size = np.array([abs(np.sum(law * np.exp(1j * one * loss))) for one in t]) / law.sum()
        bound = pair.decay(tilt, t)
        with np.errstate(divide="ignore"):
            assert np.all(np.maximum.accumulate(np.log(size)[::-1])[::-1] <= bound + 1e-6)
        assert np.all(np.diff(bound) <= 1e-12)


@pytest.mark.parametrize("lost", [1e-12, 1e-30, 1e-120])
def test_no_more_is_lost_than_said(lost: float) -> None:
    found = cut_sample(2.0, 1e-3, lost)
    assert found is not None
    pair, missing = found
    with mpmath.workdps(30):
        mass = (1 - mpmath.mpf(1e-3)) * mpmath.ncdf(-pair.cut)
        mass += mpmath.mpf(1e-3) * mpmath.ncdf(2 - pair.cut)
    assert mass <= missing <= lost * 1.01


def delta(
    mu: float, q: float, times: int, epsilon: float, c: float, end: float, mirrored: bool
) -> float:
    """Return delta of the cut law by its integral along a line, by the trapezoid rule."""
    cut = 6.5 + mu  # beyond it lies less than 1e-10
    x = np.linspace(-10, cut, 8001)
    loss = np.log1p(q * np.expm1(mu * x - mu * mu / 2))
    weight = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    t = np.linspace(0, end, 1501)
    z = c + 1j * t
    powers = -z if mirrored else 1 + z
    less_one = np.array([np.sum(weight * np.expm1(one * loss)) for one in powers])
    values = np.exp(times * np.log1p(less_one) - z * epsilon) / (z * (z + 1))
    values[0] /= 2
    return float(values.real.sum() * (t[1] - t[0]) / math.pi)


@pytest.mark.parametrize(
    ("sigma", "q", "times", "c", "end"),
    [
        (1.0, 1e-4, 10**4, 150.0, 1000.0),
        (2.0, 1e-4, 10**4, 700.0, 3000.0),
        (2.0, 1e-6, 10**6, 7000.0, 30000.0),
        (1.0, 1e-8, 10**8, 30000.0, 200000.0),
    ],
)
def test_rare_participations_have_a_narrow_bracket(
    sigma: float, q: float, times: int, c: float, end: float
) -> None:
    term = Repeated(Sampled(Spend(Gaussian(1 / sigma)), q), times)
    bounds = measure(term, Distribution(), delta=1e-5).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper
    both = [delta(1 / sigma, q, times, bounds.upper, c, end, way) for way in (False, True)]
    assert max(both) == pytest.approx(1e-5, rel=1e-4)


@pytest.mark.parametrize(("mu", "q"), [(33.0, 0.01), (20.0, 0.3), (25.0, 1e-6)])
def test_moments_of_little_noise_are_those_of_an_integral(mu: float, q: float) -> None:
    kink = mu / 2 - math.log(q / (1 - q)) / mu
    for s in (1 + 1e-3, 1.02 + 0.05j, -3 + 2j):
        value, error = sampled_gaussian_log_moment(mu, q, np.array([s], dtype=np.complex128))
        with mpmath.workdps(25):

            def integrand(x: mpmath.mpf, s: complex = s) -> mpmath.mpc:
                r = mpmath.exp(mu * x - mpmath.mpf(mu) ** 2 / 2)
                return mpmath.npdf(x) * ((1 - mpmath.mpf(q)) + q * r) ** mpmath.mpc(s)

            edges = [*np.linspace(-12, kink - 0.5, 24), *np.linspace(kink, kink + 0.5, 10)]
            edges += np.linspace(kink + 1, mu * max(complex(s).real, 1.0) + 12, 40).tolist()
            exact = mpmath.quad(integrand, sorted(edges), method="gauss-legendre", maxdegree=3)
            exact = mpmath.log(exact)
            away = float(abs(mpmath.mpc(complex(value[0])) - exact))
        # the imaginary parts may differ by turns
        turn = (complex(value[0]) - complex(exact)).imag / (2 * math.pi)
        if round(turn):
            away = abs(complex(value[0]) - complex(exact) - 2j * math.pi * round(turn))
        assert away <= error[0] + 1e-15 * (1 + abs(value[0]))
        assert error[0] < 1e-9


def test_a_moment_too_far_out_is_not_known() -> None:
    """Of many steps at a delta near 1 one was asked for, with more panels than an array holds."""
    _, error = cut_log_moment(0.01, 0.1838, 3.0, np.array([1 + 1e22j, 2.0]))
    assert error[0] == np.inf
    assert error[1] < 1e-9
    steps = Repeated(Sampled(Spend(Gaussian(mu=0.01)), 0.18383537705208916), 38694891)
    bounds = measure(steps, Distribution(), delta=0.9947577815664541).bounds
    assert bounds is not None
    assert bounds.lower <= bounds.upper
