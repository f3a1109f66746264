"""Many different sampled Gaussians: their moments, rare large losses, and the other direction."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import pytest

import accountants as acc
from accountants.distribution import Distribution, _directions_of, _one_way, contour, rare
from accountants.losses.cut_sample import CutSample, cut_log_moment
from accountants.losses.gaussian import GaussianPair
from accountants.losses.sampled_gaussians import log_moments_of_each
from accountants.losses.sampling import ReplacedGaussianPair, SampledGaussianPair
from accountants.pair import Pair


@pytest.fixture(autouse=True)
def _digits() -> Iterator[None]:
    with mpmath.workdps(22):
        yield


def moment(mu: float, rate: float, s: complex, end: float = math.inf) -> Any:
    """Return ``E[R^s; x <= end]`` to some twenty digits."""
    m, q, power = mpmath.mpf(mu), mpmath.mpf(rate), mpmath.mpc(s)

    def integrand(x: Any) -> Any:
        ratio = 1 - q + q * mpmath.exp(m * x - m * m / 2)
        return mpmath.exp(power * mpmath.log(ratio)) * mpmath.npdf(x)

    last = min(end, 10.5 + max(0.0, s.real) * mu)
    first = -10.5 + min(0.0, s.real) * mu * rate
    pieces = mpmath.linspace(first, last, 2 + math.ceil((last - first) / 3))
    return mpmath.quad(integrand, pieces)


@pytest.mark.parametrize(
    "powers",
    [
        np.array([0.3, 1.7, 9.0], dtype=np.complex128),
        np.array([-0.4, -3.0, -60.0], dtype=np.complex128),
        2.5 + 1j * 1.25 * np.arange(10),
        -1.5 + 1j * 1.25 * np.arange(10),
        4.0 + 1j * np.array([0.0, 1.0, 7.3]),
    ],
)
def test_moments_of_many_pairs_hold_the_integral(powers: Any) -> None:
    mu, rate = np.array([0.2, 1.0, 1.9, 0.7]), np.array([0.3, 1e-3, 0.05, 0.8])
    value, error = log_moments_of_each(mu, rate, np.ones(4), powers)
    for i in range(4):
        for k in (1, len(powers) - 1)[i % 2 :]:
            truth = moment(float(mu[i]), float(rate[i]), complex(powers[k]))
            # up to multiples of 2 pi i
            off = abs(mpmath.exp(mpmath.mpc(complex(value[i, k]))) / truth - 1)
            assert off <= 1.01 * error[i, k] + 1e-20 < 1e-5


def test_a_sum_of_many_copies_keeps_the_digits_of_a_moment_next_to_1() -> None:
    mu, rate = np.array([0.5]), np.array([1e-7])
    powers = 3.0 + 1j * np.arange(0.0, 9.0)
    value, error = log_moments_of_each(mu, rate, np.array([1e6]), powers)
    for k in (0, 8):
        truth = mpmath.log(moment(0.5, 1e-7, complex(powers[k])))
        assert (
            abs(mpmath.mpc(complex(value[0, k])) - truth) <= error[0, k] < 1e-20 + 1e-3 * abs(truth)
        )


def test_laws_that_are_cut_have_the_same_moments_together() -> None:
    pairs = [CutSample(1.5, 0.01, 3.0), CutSample(0.8, 1e-4, 5.0), CutSample(1.2, 0.1, 2.0, True)]
    for z in (np.array([0.5, 40.0, 300.0]) + 0j, 30 + 1j * 20 * np.arange(12)):
        for pair in pairs:
            value, error = CutSample.log_moments(((pair, 1),), z)
            s = -z if pair.mirrored else z + 1
            for k in (0, 2)[: 1 + (pair is pairs[0])]:
                truth = moment(pair.mu, pair.rate, complex(s[k]), pair.cut)
                off = abs(mpmath.exp(mpmath.mpc(complex(value[k]))) / truth - 1)
                assert off <= 1.01 * error[k] + 1e-20 < 1e-9
            other, wrong = cut_log_moment(pair.law, s)
            assert np.all(np.abs(np.exp(value - other) - 1) <= 2 * (error + wrong))


def two_steps(first: tuple[float, float], second: tuple[float, float], epsilon: float) -> Any:
    """Return the delta of two different steps: one integral, of closed forms of the other step."""
    (mu, q), (nu, p) = (tuple(map(mpmath.mpf, each)) for each in (first, second))
    grown = mpmath.exp(epsilon)

    def integrand(x: Any) -> Any:
        ratio = 1 - q + q * mpmath.exp(mu * x - mu * mu / 2)
        rest = (grown / ratio - 1 + p) / p
        if rest <= 0:
            return mpmath.npdf(x) * (ratio - grown)
        b = (mpmath.log(rest) + nu * nu / 2) / nu
        above = (1 - p) * mpmath.ncdf(-b) + p * mpmath.ncdf(nu - b)
        return mpmath.npdf(x) * (ratio * above - grown * mpmath.ncdf(-b))

    return mpmath.quad(integrand, mpmath.linspace(-11, 14, 51))


@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 0.1, 1.0])
def test_rare_losses_of_two_different_steps(epsilon: float) -> None:
    steps = (2.0, 1e-5), (1.3, 3e-5)
    spends = tuple((SampledGaussianPair(GaussianPair(mu), q), 1) for mu, q in steps)
    truth = two_steps(*steps, epsilon)
    with np.errstate(all="ignore"):
        found = rare.profile(spends, np.array([epsilon]))
        assert found is not None
        assert found[0][0] <= truth <= found[1][0]
        bounds = rare.epsilon(spends, float(truth))
    if bounds is not None:
        assert bounds.lower <= epsilon * (1 + 1e-14)
        assert epsilon * (1 - 1e-14) <= bounds.upper


def samples(noises: list[float], rates: list[float], steps: int = 1) -> acc.Term:
    parts = (
        acc.Repeated(acc.Sampled(acc.Spend(acc.Gaussian(1 / noise)), rate), steps)
        for noise, rate in zip(noises, rates, strict=True)
    )
    return acc.Sequential(list(parts))


def google(noises: list[float], rates: list[float], steps: int, step: float) -> list[Any]:
    """Return dp-accounting's distributions of removal, above and below the true one."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    both = []
    for pessimistic in (True, False):
        total = None
        for noise, rate in zip(noises, rates, strict=True):
            one = pld.from_gaussian_mechanism(
                noise,
                sampling_prob=rate,
                value_discretization_interval=step,
                pessimistic_estimate=pessimistic,
            ).self_compose(steps)
            total = one if total is None else total.compose(one)
        both.append(total)
    return both


@pytest.mark.parametrize(
    ("noises", "rates", "steps", "epsilon"),
    [
        ([0.5, 0.6, 0.8, 1.0], [1e-5, 2e-5, 3e-5, 1e-4], 5, 0.01),
        ([0.5 + i / 10 for i in range(20)], [0.001 * (i + 1) for i in range(20)], 3, 0.5),
    ],
)
def test_brackets_beside_dp_accounting(
    noises: list[float], rates: list[float], steps: int, epsilon: float
) -> None:
    above, below = google(noises, rates, steps, 1e-3)
    bounds = acc.measure(samples(noises, rates, steps), Distribution(), epsilon=epsilon).bounds
    assert bounds.upper - bounds.lower <= 0.02 * bounds.upper
    assert below.get_delta_for_epsilon(epsilon) <= bounds.upper * (1 + 1e-6)
    assert bounds.lower <= above.get_delta_for_epsilon(epsilon) * (1 + 1e-6)
    # and not by chance: theirs are close to each other
    assert above.get_delta_for_epsilon(epsilon) <= 6 * below.get_delta_for_epsilon(epsilon)


@pytest.mark.parametrize("steps", [4, 40])
def test_what_is_not_asked_of_the_other_direction_is_no_larger(steps: int) -> None:
    noises, rates = [0.7 + i / 8 for i in range(20)], [10.0 ** -(1 + i / 20) for i in range(20)]
    state = Distribution().start()
    for world in acc.worlds(samples(noises, rates, steps)):
        for loss, times in world.spends.items():
            state = Distribution().compose(state, loss, times)
    bounds = Distribution().epsilon(state, 1e-5)
    each = [_one_way(spends, 1e-5) for spends in _directions_of(state).directions]
    assert len(each) == 2
    assert max(one.lower for one in each) <= bounds.upper
    assert bounds.lower <= max(one.upper for one in each)
    assert bounds.upper <= max(one.upper for one in each) * (1 + 1e-12)
    assert bounds.upper - bounds.lower <= 1e-8 * bounds.upper


def test_many_steps_in_which_units_seldom_take_part_are_narrow() -> None:
    rng = np.random.default_rng(5)
    noises = rng.uniform(0.5, 5, 60).tolist()
    bounds = acc.measure(samples(noises, [1e-5] * 60), Distribution(), delta=1e-5).bounds
    assert 0 < bounds.upper - bounds.lower <= 1e-7 * bounds.upper
    # the same beside its own delta: at the ends of epsilon it is on either side
    for epsilon, below in ((bounds.lower, True), (bounds.upper, False)):
        ends = acc.measure(samples(noises, [1e-5] * 60), Distribution(), epsilon=epsilon).bounds
        assert ends.upper >= 1e-5 * (1 - 1e-12) if below else ends.lower <= 1e-5 * (1 + 1e-12)


# --- delta about the probability that the unit is in any sample


def test_no_larger_delta_than_that_of_taking_part() -> None:
    """No test tells more of 100 samples than whether the unit is in any."""
    for mu, steps, rate in ((20.0, 100, 1e-8), (10.0, 1000, 1e-7)):
        apart = mpmath.mpf(rate) * (1 - 2 * mpmath.ncdf(-mpmath.mpf(mu) / 2))
        largest = float(1 - (1 - apart) ** steps)
        spends = ((SampledGaussianPair(GaussianPair(mu), rate), steps),)
        some, none = (rare.apart(spends, largest * (1 + x)) for x in (1e-9, -1e-9))
        assert some is not None
        assert some.upper == 0.0
        assert none is None
    step = acc.Sampled(acc.Spend(acc.Gaussian(20.0)), rate=1e-8)
    bounds = acc.measure(acc.Repeated(step, 100), Distribution(), delta=1e-6).bounds
    assert bounds is not None
    assert bounds.upper < 1e-6


@pytest.mark.parametrize("share", [0.9, 0.99])
def test_epsilon_where_nearly_all_of_delta_is_taking_part(share: float) -> None:
    """Two samples, against the integral over the outcome of the first."""
    mu, rate, steps = 8.0, 1e-3, 2
    spends = ((SampledGaussianPair(GaussianPair(mu), rate), steps),)
    apart = mpmath.mpf(rate) * (1 - 2 * mpmath.ncdf(-mpmath.mpf(mu) / 2))
    delta = share * float(1 - (1 - apart) ** steps)
    bounds = rare.by_participation(spends, delta)
    assert bounds is not None
    m, q, t = mpmath.mpf(mu), mpmath.mpf(rate), mpmath.exp(mpmath.mpf(bounds.lower))

    def integrand(x: Any) -> Any:
        ratio = 1 - q + q * mpmath.exp(m * x - m * m / 2)
        # the second loss is large enough from here on
        least = (t / ratio - 1 + q) / q
        b = (mpmath.log(least) + m * m / 2) / m if least > 0 else -mpmath.inf
        under_p = (1 - q) * mpmath.ncdf(-b) + q * mpmath.ncdf(m - b)
        return mpmath.npdf(x) * (ratio * under_p - t * mpmath.ncdf(-b))

    # where the first loss alone is large enough, the tails of the second end
    alone = (mpmath.log((t / (1 - q) - 1 + q) / q) + m * m / 2) / m
    around = [alone + sign * mpmath.mpf(10) ** -k for k in range(8) for sign in (-1, 1)]
    true = mpmath.quad(integrand, sorted([*mpmath.linspace(-10, 18, 15), alone, *around]))
    assert true >= delta
    assert bounds.lower > 0.5
    assert true <= delta * 1.05


# --- by how many outcomes are large


def missing_of_two(first: tuple[float, float], second: tuple[float, float], epsilon: float) -> Any:
    """Return ``P(anyone takes part) - delta`` of two steps, and that probability, to 30 digits.

    With ``T = Q (1-q)(1-p)``, the part of P in which none takes part, delta is ``int (P - e^eps
    Q)_+`` and the probability ``int (P - T)``: what is missing is ``int min(P - T, e^eps Q - T)``,
    as ``P >= T`` and ``e^eps Q >= T``. It is integrated over the first outcome; over the second
    ``P < e^eps Q`` below a point.
    """
    (mu, q), (nu, p) = (tuple(map(mpmath.mpf, each)) for each in (first, second))
    grown, none = mpmath.exp(epsilon), (1 - q) * (1 - p)

    def integrand(x: Any) -> Any:
        ratio = 1 - q + q * mpmath.exp(mu * x - mu * mu / 2)
        rest = (grown / ratio - 1 + p) / p
        b = (mpmath.log(rest) + nu * nu / 2) / nu if rest > 0 else -mpmath.inf
        below = ((1 - p) * ratio - none) * mpmath.ncdf(b) + p * ratio * mpmath.ncdf(b - nu)
        return mpmath.npdf(x) * (below + (grown - none) * mpmath.ncdf(-b))

    # where the first loss alone is epsilon, the point runs away
    kink = (mpmath.log((grown / (1 - p) - 1 + q) / q) + mu * mu / 2) / mu
    near = [kink + side * mpmath.mpf(10) ** -k for k in range(0, 10, 3) for side in (-1, 1)]
    return mpmath.quad(integrand, sorted([*mpmath.linspace(-9, mu + 9, 9), kink, *near]))


@pytest.mark.parametrize(
    ("first", "second"), [((8.0, 1e-3), (8.0, 1e-3)), ((20.0, 0.3), (11.0, 0.01))]
)
@pytest.mark.parametrize("epsilon", [0.5, 25.0])
def test_what_taking_part_lacks_of_delta(
    first: tuple[float, float], second: tuple[float, float], epsilon: float
) -> None:
    with mpmath.workdps(30):
        missed = missing_of_two(first, second, epsilon)
        some = mpmath.mpf(first[1]) + second[1] - mpmath.mpf(first[1]) * second[1]
        delta = some - missed
    same = first == second
    spends = tuple(
        (SampledGaussianPair(GaussianPair(mu), q), 1 + same) for mu, q in {first, second}
    )
    with np.errstate(all="ignore"):
        found = rare.by_number_profile(spends, np.array([epsilon]))
        assert found is not None
        # the float next to delta is not delta
        assert found[0][0] <= delta <= found[1][0]
        bounds = rare.by_number(spends, float(delta), None)
    assert bounds is not None
    # what is missing moves by the rounding of delta, and epsilon by some times as much
    off = 2e-16 * float(delta / missed) * 40
    assert bounds.lower <= epsilon * (1 + 1e-14) + off
    assert bounds.upper >= epsilon * (1 - 1e-14) - off
    assert bounds.upper - bounds.lower <= 1e-7 * epsilon + off


@pytest.mark.parametrize(("steps", "rate"), [(40, 0.02)])
def test_many_who_take_part_beside_dp_accounting(steps: int, rate: float) -> None:
    above, below = google([0.1], [rate], steps, 2e-2)
    spends = ((SampledGaussianPair(GaussianPair(10.0), rate), steps),)
    points = np.array([2.0, 20.0, 45.0])
    with np.errstate(all="ignore"):
        found = rare.by_number_profile(spends, points)
    assert found is not None
    for epsilon, low, high in zip(points.tolist(), *found, strict=True):
        assert below.get_delta_for_epsilon(epsilon) <= high * (1 + 1e-9)
        assert low <= above.get_delta_for_epsilon(epsilon) * (1 + 1e-9)
        assert high - low <= 1e-3 * high


@pytest.mark.parametrize("times", [3, 100])
@pytest.mark.parametrize(
    "pair", [SampledGaussianPair(GaussianPair(3.0), 0.01), ReplacedGaussianPair(12.0, 0.01)]
)
def test_an_epsilon_whose_exponential_is_no_float_has_bounds(pair: Pair, times: int) -> None:
    """Of e^800, infinite, times a mass of 0 the bound was not a number, and refused."""
    with np.errstate(all="ignore"):
        found = rare.profile([(pair, times)], np.array([5.0, 800.0]))
    assert found is not None
    assert np.all((found[0] >= 0) & (found[1] <= 1))


def test_a_delta_a_little_less_than_the_probability_of_taking_part_has_a_narrow_bracket() -> None:
    step = acc.Sampled(acc.Spend(acc.Gaussian(20.0)), rate=1e-8)
    for share in (1e-4, 1e-6, 1e-8):
        delta = -math.expm1(100 * math.log1p(-1e-8)) * (1 - share)
        bounds = acc.measure(acc.Repeated(step, 100), Distribution(), delta=delta).bounds
        assert 60 < bounds.upper < 110
        assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper
        # one sample alone, tested for whether the unit is in it
        epsilon = (bounds.lower + bounds.upper) / 2
        x = mpmath.log(1 + mpmath.expm1(epsilon) / mpmath.mpf(1e-8)) / 20 + 10
        missed = mpmath.ncdf(x - 20) + mpmath.exp(epsilon) * mpmath.ncdf(-x) / 1e-8
        assert abs(missed / share - 1) < 1e-5


@pytest.mark.parametrize("most", [3.0, 30.0, 3000.0])
@pytest.mark.parametrize("noise", [0.06, 0.2, 0.6])
def test_no_end_of_use_is_missed(noise: float, most: float) -> None:
    """Where a moment far out says that no end up to there is enough, none is."""
    rates = (0.001, 0.01, 0.1)
    spends = tuple((SampledGaussianPair(GaussianPair(1 / noise), rate), 9) for rate in rates)
    composed = contour.Composition(families=((SampledGaussianPair, spends),))
    place = contour.Place(0.5, float(composed.upper(np.array([0.5]))[0]), 100.0, ())
    for wanted in (-1.0, -4.0, -30.0):
        every = contour._cut(composed, place, wanted)
        found = contour._cut(composed, place, wanted, most)
        assert found == every or (found is None and (every is None or every[0] > most))
