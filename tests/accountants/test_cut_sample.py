"""Sampled Gaussians in which a unit seldom takes part, against high-precision integrals."""

from __future__ import annotations

import math

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy.special import ndtr

from accountants import (
    Distribution,
    Gaussian,
    Repeated,
    ReplacedSample,
    Sampled,
    Sequential,
    Spend,
    measure,
)
from accountants.distribution import lucky, rare
from accountants.distribution.participation import few, participation, reversed_profile
from accountants.losses.cut_sample import CutSample, cut_log_moment, cut_sample
from accountants.losses.gaussian import GaussianPair
from accountants.losses.sampled_gaussian import sampled_gaussian_log_moment
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair
from accountants.numerics import Bounds

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


REPLACED = [(1.0, 1e-8, 9.99), (0.3, 3e-5, 8.0), (5.0, 0.4, 12.0)]


@pytest.mark.parametrize(("mu", "q", "cut"), REPLACED)
def test_moments_of_a_unit_replaced_are_those_of_an_integral(
    mu: float, q: float, cut: float
) -> None:
    pair = CutSample(mu, q, cut, left=cut - 1)
    top = pair.top()
    with mpmath.workdps(25):
        m, rate = mpmath.mpf(mu), mpmath.mpf(q)

        def densities(x: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
            p, q = mpmath.npdf(x - m), mpmath.npdf(x + m)
            return (1 - rate) * mpmath.npdf(x) + rate * p, (1 - rate) * mpmath.npdf(x) + rate * q

        def integrand(x: mpmath.mpf, z: complex) -> mpmath.mpc:
            p, q = densities(x)
            return p * (p / q) ** mpmath.mpc(z)

        edges = np.linspace(1 - cut, cut, 30).tolist()
        for z in (1.0, (5 + 20j) / top):
            exact = complex(
                mpmath.quad(
                    lambda x, z=z: integrand(x, z), edges, method="gauss-legendre", maxdegree=4
                )
            )
            for points in (np.array([z]), np.array([z, z + 1j / top])):  # by panels, and by lines
                value, error = pair.log_moment(points.astype(np.complex128))
                other, wrong = CutSample.log_moments(((pair, 1),), points.astype(np.complex128))
                for found, off in ((value[0], error[0]), (other[0], wrong[0])):
                    room = off * 1.001 + 1e-15 * (1 + abs(found))
                    assert abs(np.exp(found) / exact - 1) <= room
                    assert off < 1e-9
    bound = pair.decay(10 / top, t := np.geomspace(0.1, 1000, 40) / top)
    x = np.linspace(1 - cut, cut, 40_001)
    p, absent = of_one(mu, q, x)
    loss = np.log(p / absent)
    law = p * np.exp(10 / top * loss)
    size = np.array([abs(np.sum(law * np.exp(1j * one * loss))) for one in t]) / law.sum()
    with np.errstate(divide="ignore"):
        assert np.all(np.maximum.accumulate(np.log(size)[::-1])[::-1] <= bound + 1e-6)


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


def by_number_of_steps(steps: int, q: float, mu: float, eps: float) -> float:
    """Return delta of steps of little noise: over the numbers of those that the unit is in.

    Where it is, ``R = q r`` but for less than 1e-30; where not, ``R = 1 - q``. So given their
    number the loss is normal.
    """
    with mpmath.workdps(30):
        rate, total = mpmath.mpf(q), mpmath.mpf(0)
        for k in range(1, min(steps, 60) + 1):
            weight = mpmath.binomial(steps, k) * rate**k * (1 - rate) ** (steps - k)
            deviation = mpmath.sqrt(k) * mu
            mean = deviation**2 / 2 + k * mpmath.log(rate) + (steps - k) * mpmath.log(1 - rate)
            a = (mean - eps) / deviation
            paid = mpmath.exp(eps - mean + deviation**2 / 2) * mpmath.ncdf(a - deviation)
            total += weight * (mpmath.ncdf(a) - paid)
        return float(total)


@pytest.mark.parametrize(
    ("steps", "q", "mu"), [(200, 0.01, 1 / 0.03), (10, 0.5, 25.0), (50, 1e-4, 40.0)]
)
def test_little_noise_is_narrow(steps: int, q: float, mu: float) -> None:
    term = Repeated(Sampled(Spend(Gaussian(mu)), q), steps)
    for eps in (1000.0, 3000.0):
        delta = by_number_of_steps(steps, q, mu, eps)
        bounds = measure(term, Distribution(), epsilon=eps).bounds
        assert bounds is not None
        assert bounds.lower * (1 - 1e-12) <= delta <= bounds.upper * (1 + 1e-12)
        assert bounds.upper <= bounds.lower * (1 + 1e-6)
        root = measure(term, Distribution(), delta=delta).bounds
        assert root is not None
        assert root.lower <= eps * (1 + 1e-12)
        assert eps * (1 - 1e-12) <= root.upper
        assert root.upper - root.lower < 1e-6 * eps


def test_many_samples_of_little_noise_are_one_question() -> None:
    def certified(moved: float) -> Bounds:
        spends = [Sampled(Spend(Gaussian(33 + moved * i)), 0.01) for i in range(200)]
        bounds = measure(Sequential(spends), Distribution(), delta=1e-6).bounds
        assert bounds is not None
        return bounds

    same = measure(
        Repeated(Sampled(Spend(Gaussian(33.0)), 0.01), 200), Distribution(), delta=1e-6
    ).bounds
    assert same is not None
    other, larger = certified(1e-9), certified(1e-3)
    # some 13 steps of mu 33, whose losses grow by 33 times what mu grows by
    assert other.lower == pytest.approx(same.lower, abs=1e-3)
    assert 0.4 < larger.lower - same.upper < 80
    assert larger.upper - larger.lower < 1e-4


@pytest.mark.parametrize(
    ("mu", "rate", "z"), [(25.0, 0.3, 0.01), (28.0, 1e-4, 0.2 + 0.3j), (25.0, 0.1, 0.01 + 0.5j)]
)
def test_moments_without_the_outcomes_below_zero(mu: float, rate: float, z: complex) -> None:
    pair, steps = SampledGaussianPair(GaussianPair(mu), rate), 3
    composed = participation([(pair, steps)])
    assert composed is not None
    value, error = composed.log_moment(np.array([z, complex(z).real], dtype=np.complex128))
    with mpmath.workdps(40):
        m, q, s = mpmath.mpf(mu), mpmath.mpf(rate), 1 + mpmath.mpc(z)

        def integrand(x: mpmath.mpf) -> mpmath.mpc:
            return mpmath.npdf(x) * (1 - q + q * mpmath.exp(m * x - m * m / 2)) ** s

        def integral(low: float, high: float) -> mpmath.mpc:
            edges = [low, *np.arange(low + 0.25, high, 0.25).tolist(), high]
            return mpmath.quad(integrand, edges, method="gauss-legendre", maxdegree=3)

        near, far = integral(-14, mu / 2), integral(mu / 2, mu * (1 + abs(z)) + 14)
        exact = complex(mpmath.log((near + far) ** steps - near**steps))
        fall = complex(mpmath.log(abs((near + far) ** steps - near**steps))).real
    gap = value[0] - exact
    assert abs(gap.real) <= error[0] + 1e-12
    assert abs(np.sin(gap.imag / 2)) <= error[0] + 1e-12
    # where B is less than what is not known of it nothing is
    assert error[0] < (1e-8 if abs(z) < 0.4 else 1.0)
    # no modulus is above its decay
    at = np.array([abs(complex(z).imag)]) if complex(z).imag else np.array([1e-9])
    bound = composed.decay(complex(z).real, at)[0]
    assert fall - value[1].real <= bound + 1e-9


def test_whether_anybody_takes_part() -> None:
    pair, epsilons = SampledGaussianPair(GaussianPair(20.0), 0.01).reversed(), np.linspace(0, 1, 9)
    known = reversed_profile([(pair, 1)], epsilons / 100)
    assert known is not None
    low, high = pair.profile(epsilons / 100)
    assert np.all(known[0] <= high + 1e-300)
    assert np.all(low <= known[1])
    many = reversed_profile([(pair, 30)], epsilons)
    assert many is not None
    with mpmath.workdps(40):
        for eps, least, most in zip(epsilons, *many, strict=True):
            exact = max(mpmath.mpf(0), 1 - mpmath.exp(eps) * (1 - mpmath.mpf(0.01)) ** 30)
            assert least <= exact <= most
            assert most - least <= 1e-14
    assert reversed_profile([(pair.reversed(), 1)], epsilons) is None


def test_a_moment_too_far_out_is_not_known() -> None:
    """Of many steps at a delta near 1 one was asked for, with more panels than an array holds."""
    _, error = cut_log_moment((0.01, 0.1838, 3.0, 0.0), np.array([1 + 1e22j, 2.0]))
    assert error[0] == np.inf
    assert error[1] < 1e-9
    steps = Repeated(Sampled(Spend(Gaussian(mu=0.01)), 0.18383537705208916), 38694891)
    bounds = measure(steps, Distribution(), delta=0.9947577815664541).bounds
    assert bounds is not None
    assert bounds.lower <= bounds.upper


def of_one(mu: float, q: float, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the densities of one replaced unit's sample."""
    laws = [np.exp(-((x - s) ** 2) / 2) / math.sqrt(2 * math.pi) for s in (0.0, mu, -mu)]
    return (1 - q) * laws[0] + q * laws[1], (1 - q) * laws[0] + q * laws[2]


def delta_of_two(mu: float, q: float, epsilon: float) -> float:
    """Return delta of two replaced units' samples: of one, over the law of the other's loss."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    # L(x) = y where (1 - q) (e^y - 1) = q e^{-mu^2/2} (e^{mu x} - e^{y - mu x}), a quadratic
    odds = (1 - q) / q * math.exp(mu * mu / 2)
    # next to where the first loss is epsilon the other's hockey-stick all but has a kink
    kink = (epsilon / 2 + math.asinh(odds * math.sinh(epsilon / 2))) / mu
    near = np.geomspace(1e-9, 1.0, 60)
    edges = np.concatenate([np.linspace(-10 - mu, 12 + mu, 400), kink - near, [kink], kink + near])
    edges = np.sort(edges)
    half = np.diff(edges)[:, None] / 2
    x = (half * nodes + (edges[1:] + edges[:-1])[:, None] / 2).ravel()
    p, other = of_one(mu, q, x)
    y = epsilon - np.log(p / other)
    at = (y / 2 + np.arcsinh(odds * np.sinh(y / 2))) / mu
    one = [(1 - q) * ndtr(-at) + q * ndtr(s - at) for s in (mu, -mu)]
    stick = one[0] - np.exp(y) * one[1]
    return float((half * weights).ravel() @ (p * stick))


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "q", "wanted"), [(1.0, 1e-3, 1e-5), (3.0, 1e-6, 1e-8)])
def test_two_samples_of_a_replaced_unit_hold_an_integral(
    mu: float, q: float, wanted: float
) -> None:
    term = Repeated(ReplacedSample(Spend(Gaussian(mu)), q), 2)
    bounds = measure(term, Distribution(), delta=wanted).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper
    assert delta_of_two(mu, q, bounds.lower) >= wanted * (1 - 1e-9)
    assert delta_of_two(mu, q, bounds.upper) <= wanted * (1 + 1e-9)


@pytest.mark.parametrize(("mu", "q", "wanted"), [(4.0, 1e-3, 1.2e-3), (1.0, 0.1, 0.03)])
def test_whether_a_replaced_unit_is_seen_at_all(mu: float, q: float, wanted: float) -> None:
    pair, x = ReplacedGaussianPair(mu, q), np.linspace(-12, 12, 200_001)
    p, other = of_one(mu, q, x)
    apart = float(np.abs(p - other).sum()) * (x[1] - x[0]) / 2
    assert rare.apart([(pair, 1)], apart * (1 + 1e-9)) == Bounds(0.0, 0.0)
    assert rare.apart([(pair, 1)], apart * (1 - 1e-9)) is None
    assert rare.apart([(pair, 2)], 1 - (1 - apart) ** 2 - 1e-9) is None
    found = rare.by_participation([(pair, 2)], wanted)
    assert found is not None
    assert found.lower > 0
    assert delta_of_two(mu, q, found.lower) >= wanted


def convolved(mu: float, q: float, times: int, epsilon: float, top: float, tilt: float) -> float:
    """Return about the delta of replaced units' samples, by a transform of tilted losses.

    A loss above ``top`` is all but surely above epsilon in sum: it counts by its masses.
    """
    number, x = 2**20, np.linspace(-10 - mu, 12 + mu, 1_000_001)
    step = 2.5 * top / number
    p, other = of_one(mu, q, x)
    loss = np.log(p / other)
    far = loss > top
    beyond = [float(times * law[far].sum() * (x[1] - x[0])) for law in (p, other)]
    place = loss[~far & (loss > -top)] / step
    mass = p[~far & (loss > -top)] * (x[1] - x[0]) * np.exp(tilt * place * step)
    low = np.floor(place).astype(int)
    law = np.bincount(low % number, mass * (1 - place + low), number)
    law += np.bincount((low + 1) % number, mass * (place - low), number)
    every = np.fft.ifft(np.fft.fft(law / law.sum()) ** times).real
    sums = np.fft.fftfreq(number, 1 / number) * step
    some = sums > epsilon
    stick = -np.expm1(epsilon - sums[some]) * np.exp(-tilt * (sums[some] - epsilon))
    scale = math.exp(times * math.log(float(law.sum())) - tilt * epsilon)
    return scale * float(every[some] @ stick) + beyond[0] - math.exp(epsilon) * beyond[1]


def test_two_samples_of_nearly_one_unit_hold_an_integral() -> None:
    pairs = [ReplacedGaussianPair(mu, 1e-5) for mu in (2.0, math.nextafter(2.0, 3.0))]
    found = few([(pair, 1) for pair in pairs], 1e-9, 0.0, 5.0)
    assert found is not None
    assert found[1] - found[0] <= 1e-4 * found[1]
    assert delta_of_two(2.0, 1e-5, found[0]) > 1e-9 > delta_of_two(2.0, 1e-5, found[1])


@pytest.mark.slow
def test_a_few_samples_hold_a_convolution() -> None:
    """The bracket of epsilon was [0.0040, 0.0082]."""
    pair = ReplacedGaussianPair(0.454, 2.61e-4)
    found = few([(pair, 8)], 5.6e-12, 0.0, 0.00817)
    assert found is not None
    assert found[1] - found[0] <= 5e-4 * found[1]
    exact = [convolved(0.454, 2.61e-4, 8, each, 0.01, 5 / 0.0043) for each in found]
    assert exact[0] > 5.6e-12 > exact[1]


@pytest.mark.parametrize(
    ("mu", "q", "times", "wanted"), [(1.0, 1e-3, 100, 1e-6), (0.3, 3e-5, 1000, 1e-10)]
)
def test_rare_samples_of_a_replaced_unit_have_a_narrow_bracket(
    mu: float, q: float, times: int, wanted: float
) -> None:
    term = Repeated(ReplacedSample(Spend(Gaussian(mu)), q), times)
    bounds = measure(term, Distribution(), delta=wanted).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-7 * bounds.upper
    tilt = (3 if mu == 1 else 8) / bounds.upper
    exact = convolved(mu, q, times, bounds.upper, 4 * bounds.upper, tilt)
    assert exact == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("epsilon", [0.5, pytest.param(2.0, marks=pytest.mark.slow)])
def test_lucky_steps_of_a_replaced_unit_hold_a_convolution(epsilon: float) -> None:
    steps = lucky._only(((ReplacedGaussianPair(2.0, 1e-4), 1000),))
    assert steps is not None
    split = lucky._split(steps, epsilon, 0.1, 2**11)
    assert split is not None
    low, high = split.delta(epsilon)
    exact = convolved(2.0, 1e-4, 1000, epsilon, 2 * epsilon, 2 / epsilon)
    assert low * (1 - 1e-5) <= exact <= high * (1 + 1e-5)
    assert high < 1.001 * low
