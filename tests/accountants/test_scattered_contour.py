"""Compositions whose moments do not decay for good: pieces of a contour, and smoothing."""

from __future__ import annotations

import itertools
import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants import Distribution, Laplace, Pure, Repeated, Sequential, Spend, Term, measure
from accountants.guarantee import Guarantee
from accountants.losses.laplace import LaplacePair
from accountants.losses.pure import ResponsePair
from accountants.numerics import Bounds, least_square_of_sine


def epsilon(term: Term, delta: float) -> Bounds:
    bounds = measure(term, Distribution(), delta=delta).bounds
    assert bounds is not None
    return bounds


def narrow(bounds: Bounds, width: float = 1e-6) -> bool:
    return bounds.upper - bounds.lower <= width * bounds.upper


# --- how moments decay between two ends


def moment(kind: type, eps: mp.mpf, z: mp.mpc) -> mp.mpc:
    """``E_P e^{zL}`` from the laws."""
    if kind is ResponsePair:
        return (mp.exp(eps + z * eps) + mp.exp(-z * eps)) / (1 + mp.exp(eps))
    ends = mp.exp(z * eps) / 2 + mp.exp(-eps - z * eps) / 2
    w = z + mp.mpf(1) / 2  # the integral of e^{(l - eps) / 2} / 4 e^{zl}
    return ends + mp.exp(-eps / 2) * mp.sinh(w * eps) / (2 * w)


@pytest.mark.parametrize("kind", [ResponsePair, LaplacePair])
@pytest.mark.parametrize("tilt", [1e-3, 0.7, 40.0])
def test_moments_are_below_their_bound_between_two_ends(kind: type, tilt: float) -> None:
    draw = np.random.default_rng(3)
    starts = 10 ** draw.uniform(-3, 7, 60)
    stops = starts * (1 + 10 ** draw.uniform(-6, 0.5, 60))
    for eps in (1e-7, 0.01, 0.8, 6.0):
        bounds = kind.decays_between(((kind(eps), 3),), tilt, starts, stops)
        assert np.all(bounds <= 0)
        with mp.workdps(40):
            e, here = mp.mpf(eps), moment(kind, mp.mpf(eps), mp.mpf(tilt))
            for low, high, bound in zip(starts, stops, bounds, strict=True):
                for share in (0, 0.3, 0.5, 0.9, 1):
                    t = mp.mpf(low) + (mp.mpf(high) - mp.mpf(low)) * share
                    ratio = abs(moment(kind, e, mp.mpc(tilt, t)) / here)
                    assert 3 * mp.log(ratio) <= bound + mp.mpf(10) ** -25


def test_short_stretches_between_the_zeros_are_followed() -> None:
    ends = np.array([0.4, 1.2, 2.9, 4.0])
    least = least_square_of_sine(ends[:-1], ends[1:])
    exact = [math.sin(0.4) ** 2, math.sin(2.9) ** 2, 0.0]  # pi lies in the last one
    assert np.all(least <= exact)
    assert np.all(least >= np.array(exact) - 1e-12)


def test_many_pairs_count_some_one_by_one() -> None:
    pairs = [(LaplacePair(0.01 + 1e-5 * i), 1 + i % 3) for i in range(400)]
    starts, stops = np.array([0.5, 30.0, 2000.0]), np.array([0.6, 31.0, 2001.0])
    bounds = LaplacePair.decays_between(pairs, 1.0, starts, stops)
    for low, high, bound in zip(starts, stops, bounds, strict=True):
        for t in (low, (low + high) / 2, high):
            exact = mp.fsum(
                n * mp.log(abs(moment(LaplacePair, mp.mpf(p.epsilon), mp.mpc(1, t))))
                - n * mp.log(moment(LaplacePair, mp.mpf(p.epsilon), mp.mpf(1)))
                for p, n in pairs
            )
            assert exact <= bound


@pytest.mark.parametrize("kind", [ResponsePair, LaplacePair])
@pytest.mark.parametrize("tilt", [1e-2, 9.0])
@pytest.mark.parametrize("largest", [1e-4, 0.02, 1.5])
def test_many_pairs_at_once_are_below_their_bound(kind: type, tilt: float, largest: float) -> None:
    draw = np.random.default_rng(7)
    epsilons, times = largest * draw.uniform(0.4, 1.0, 700), draw.integers(1, 4, 700)
    epsilons[:100] = largest * (0.5 + 1e-7 * np.arange(100))  # some that agree for long
    pairs = [(kind(e), n) for e, n in zip(epsilons.tolist(), times.tolist(), strict=True)]
    # about one turn, stretches of a part of a turn, and far out
    near, even = np.geomspace(0.01, 25, 200), 25 + 0.5 * np.arange(600)
    starts = np.concatenate([near, even, np.geomspace(1e4, 1e12, 30)]) / largest
    stops = np.append(starts[1:], 2 * starts[-1])
    bounds = kind.decays_between(pairs, tilt, starts, stops)
    a, total = tilt + 0.5, float(times.sum())

    def exact(t: np.ndarray) -> np.ndarray:
        w, e = a + 1j * t[:, None], epsilons
        if kind is ResponsePair:
            ratios = np.abs(np.cosh(w * e)) / np.cosh(a * e)
        else:
            here = np.cosh(a * e) + np.sinh(a * e) / (2 * a)
            ratios = np.abs(np.cosh(w * e) + np.sinh(w * e) / (2 * w)) / here
        return np.log(ratios) @ times

    for share in (0.0, 0.2, 0.5, 0.8, 1.0):
        assert np.all(exact(starts + share * (stops - starts)) <= bounds + 1e-12 * total)
    # the same at all points of a grid, close enough together to tell the phases
    step = 0.3 / largest
    on_grid = kind.grid_decays(pairs, tilt, step, 700)
    assert on_grid is not None
    assert np.all(exact(step * np.arange(700)) <= on_grid + 1e-12 * total)
    assert np.all(on_grid[:2] >= -total)
    if largest <= 0.02:
        assert np.all(on_grid[30:] < -0.1 * total)
    assert kind.grid_decays(pairs, tilt, 0.6 / largest, 700) is None
    # of pairs that do not agree little is left, up to where they are followed
    followed = slice(260, 790)
    if largest <= 0.02:
        assert np.all(bounds[followed] < -0.05 * total)


# --- different Laplace losses: sums of uniform draws of different widths


def laplace_delta(epsilons: list[float], at: float) -> mp.mpf:
    """The profile of different Laplace losses, exactly.

    Each is an atom above, an atom below, or between them with density ``e^{(l - e) / 2} / 4``: the
    volume of a sum of uniform draws is a sum of truncated powers, one for each of its knots.
    """
    with mp.workdps(60):
        every, total = [truth.real(e) for e in epsilons], mp.mpf(0)
        for states in itertools.product((1, -1, 0), repeat=len(every)):
            inner = [e for e, state in zip(every, states, strict=True) if state == 0]
            base = mp.fsum(e * state for e, state in zip(every, states, strict=True))
            fallen = mp.fsum(e for e, state in zip(every, states, strict=True) if state < 0)
            weight = mp.exp(-fallen) / 2 ** (len(every) - len(inner))
            low = truth.real(at) - base
            if not inner:
                total += weight * max(mp.mpf(0), 1 - mp.exp(low))
                continue
            weight *= mp.exp(-mp.fsum(inner) / 2) / 4 ** len(inner)
            for signs in itertools.product((1, -1), repeat=len(inner)):
                knot = -mp.fsum(s * e for s, e in zip(signs, inner, strict=True))
                start, stop = max(low, knot) - knot, mp.fsum(inner) - knot
                if start >= stop:
                    continue
                n, half = len(inner) - 1, mp.mpf(1) / 2
                grow = power_integral(n, start, stop, half) * mp.exp(knot * half)
                fall = power_integral(n, start, stop, -half) * mp.exp(low - knot * half)
                total += weight * math.prod(signs) * (grow - fall)
        return total


def power_integral(n: int, start: mp.mpf, stop: mp.mpf, rate: mp.mpf) -> mp.mpf:
    """The integral of ``u^n / n! e^{rate u}``."""

    def primitive(u: mp.mpf) -> mp.mpf:
        terms = [
            (-1) ** (n - i) * u**i / (mp.factorial(i) * rate ** (n - i + 1)) for i in range(n + 1)
        ]
        return mp.exp(rate * u) * mp.fsum(terms)

    return primitive(stop) - primitive(start)


@pytest.mark.parametrize("at", [7.0])
def test_two_kinds_of_laplace_noise(at: float) -> None:
    term = Sequential([Repeated(Spend(Laplace(2.15)), 3), Repeated(Spend(Laplace(0.94)), 3)])
    bounds, exact = Guarantee(term).delta(at), laplace_delta([2.15] * 3 + [0.94] * 3, at)
    assert bounds.lower <= exact <= bounds.upper
    assert narrow(bounds)


@pytest.mark.parametrize("delta", [0.7, 0.2, 1e-3, 1e-9])
def test_a_few_different_laplace_losses(delta: float) -> None:
    every = [1.3, 0.4, 2.2]
    bounds = epsilon(Sequential([Spend(Laplace(e)) for e in every]), delta)
    assert laplace_delta(every, bounds.upper) <= delta
    assert bounds.lower == 0 or laplace_delta(every, bounds.lower) >= delta
    assert narrow(bounds)


# --- many different losses: the same integral, summed plainly on another line


def integral(kind: type, epsilons: np.ndarray, at: float, tilt: float, end: float) -> float:
    """The contour integral by a plain trapezoid sum in extended precision, with no bounds."""
    step, total = 0.1, 0.0
    for low in np.arange(0.0, end, 5.0):
        t = low + step * np.arange(round(5.0 / step))
        z = (tilt + 1j * t).astype(np.clongdouble)
        log_moment = np.zeros(len(z), dtype=np.clongdouble)
        for e in epsilons.astype(np.longdouble):
            w = z + np.longdouble(0.5)
            cosh, sinh = np.cosh(w * e), np.sinh(w * e)
            if kind is LaplacePair:
                log_moment += np.log(cosh + sinh / (2 * w)) - e / 2
            else:
                log_moment += np.log(cosh) - np.log(np.cosh(e / 2))
        terms = (np.exp(log_moment - z * at) / (z * (z + 1))).real
        total += float(terms.sum() - (terms[0] / 2 if low == 0 else 0))
    return total * step / math.pi


@pytest.mark.parametrize("delta", [0.1, 1e-5])
def test_two_thousand_different_laplace_losses(delta: float) -> None:
    every = np.array([0.01 + 0.01 * i / 2000 for i in range(2000)])
    bounds = epsilon(Sequential([Spend(Laplace(float(e))) for e in every]), delta)
    assert narrow(bounds)
    tilt = 2.0 if delta > 1e-3 else 6.0
    assert integral(LaplacePair, every, bounds.lower, tilt, 15.0) >= delta * (1 - 1e-7)
    assert integral(LaplacePair, every, bounds.upper, tilt, 15.0) <= delta * (1 + 1e-7)


@pytest.mark.parametrize("delta", [0.1, 1e-5])
def test_three_hundred_different_responses(delta: float) -> None:
    every = np.array([0.1 + 0.1 * math.sqrt(i / 300) for i in range(300)])
    bounds = epsilon(Sequential([Spend(Pure(float(e))) for e in every]), delta)
    assert narrow(bounds)
    tilt = 0.8 if delta > 1e-3 else 2.5
    assert integral(ResponsePair, every, bounds.lower, tilt, 15.0) >= delta * (1 - 1e-7)
    assert integral(ResponsePair, every, bounds.upper, tilt, 15.0) <= delta * (1 + 1e-7)


# --- tiny losses with ordinary ones


def binomial_delta(eps: mp.mpf, times: int, at: mp.mpf) -> mp.mpf:
    """The hockey-stick of equal responses at any real epsilon."""
    wins = max(0, int(mp.floor((at / eps + times) / 2)) + 1)
    most = times // 2 + int(40 * mp.sqrt(times))  # what lies farther is below e^-1000
    log_mass = mp.loggamma(times + 1) - mp.loggamma(wins + 1) - mp.loggamma(times - wins + 1)
    mass = mp.exp(log_mass - (times - wins) * eps - times * mp.log1p(mp.exp(-eps)))
    ratio, total = mp.exp(eps), mp.mpf(0)
    shrink, gain = mp.exp(-2 * eps), mp.exp(at - (2 * wins - times) * eps)
    while wins <= min(times, most):
        total += mass * (1 - gain)
        mass *= ratio * (times - wins) / (wins + 1)
        gain *= shrink
        wins += 1
    return total


@pytest.mark.parametrize("delta", [0.1, 1e-3, 1e-10])
def test_a_million_tiny_responses_with_ten(delta: float) -> None:
    tiny, few, times = 1e-6, 0.1, 10**6
    term = Sequential([Repeated(Spend(Pure(tiny)), times), Repeated(Spend(Pure(few)), 10)])
    bounds = epsilon(term, delta)
    assert narrow(bounds)

    def exact(at: float) -> mp.mpf:
        e, total, width = truth.real(few), mp.mpf(0), mp.mpf("0.04")  # forty deviations
        for wins in range(11):
            mass = mp.binomial(10, wins) * mp.exp(-(10 - wins) * e) / (1 + mp.exp(-e)) ** 10
            rest = truth.real(at) - (2 * wins - 10) * e
            if rest < -width:  # all of the tiny ones' losses lie above
                total += mass * (1 - mp.exp(rest))
            elif rest < width:
                total += mass * binomial_delta(truth.real(tiny), times, rest)
        return total

    assert exact(bounds.upper) <= delta
    assert exact(bounds.lower) >= delta


@pytest.mark.parametrize("decades", [2, 6, 9])
@pytest.mark.parametrize("delta", [0.1, 1e-5])
def test_losses_across_decades(decades: int, delta: float) -> None:
    """By enumeration of responses of which each is a tenth of the one before."""
    every = [10.0**-i for i in range(decades + 1)]
    bounds = epsilon(Sequential([Spend(Pure(e)) for e in every]), delta)
    assert narrow(bounds)
    exact = truth.Profile(truth.product(truth.response(e) for e in every))
    truth.proves(bounds.upper, exact, delta)
    truth.refutes(bounds.lower, exact, delta)
