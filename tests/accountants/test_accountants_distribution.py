"""The distribution accountant: moments, contours and brackets, against high precision."""

import math
from itertools import product

import mpmath as mp
import numpy as np
import pytest
from accountants_truth import real
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Composite,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    Sequential,
    Spend,
    certify,
    measure,
    tightest,
)
from accountants.distribution import Distribution, contour
from accountants.finite import FinitePair
from accountants.losses import sampled_gaussian as moments
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair
from accountants.losses.pure import ResponsePair
from accountants.losses.sampling import Sampled, sampled_pair
from accountants.pair import Pair


def sampled(mu: float, rate: float) -> Sampled:
    return Sampled(Composite({Gaussian(mu): 1}), rate)


def state_of(*spends):
    accountant = Distribution()
    state = accountant.start()
    for loss, times in spends:
        state = accountant.compose(state, loss, times)
    return state


def off(value: complex, truth) -> float:
    """The distance of two logarithms, modulo 2 pi i."""
    difference = mp.mpc(complex(value)) - truth
    turns = mp.nint(difference.imag / (2 * mp.pi))
    return abs(difference - 2j * mp.pi * turns)


ROUGH = {
    "few": ((Laplace(0.1), 4), (Laplace(0.25), 1)),
    "with a Gaussian": ((Laplace(0.3), 3), (Gaussian(0.2), 1), (Pure(0.05), 2)),
    "sampled": ((sampled(0.5, 0.01), 100), (Laplace(0.01), 10)),
    "nothing": (),
}


@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-4])
@pytest.mark.parametrize("name", ROUGH)
def test_a_rough_bracket_holds_the_same_epsilon(name, delta):
    state = state_of(*ROUGH[name])
    rough, fine = Distribution().rough_epsilon(state, delta), Distribution().epsilon(state, delta)
    assert rough.lower <= fine.upper
    assert fine.lower <= rough.upper
    assert fine.upper - 1e-12 <= rough.upper
    if fine.upper < math.inf:
        assert rough.upper <= fine.upper + 1.01e-4 * fine.upper + 1e-6
    else:
        assert rough.upper == math.inf


# --- moments


def laplace_moment(eps: float, z: complex):
    e, w = real(eps), mp.mpc(z) + mp.mpf(1) / 2
    return mp.exp(-e / 2) * (mp.cosh(w * e) + mp.sinh(w * e) / (2 * w))


def response_moment(eps: float, z: complex):
    e, z = real(eps), mp.mpc(z)
    return (mp.exp(e * (1 + z)) + mp.exp(-e * z)) / (1 + mp.exp(e))


def gaussian_moment(mu: float, z: complex):
    return mp.exp(real(mu) ** 2 / 2 * mp.mpc(z) * (mp.mpc(z) + 1))


def atoms(eps: float) -> FinitePair:
    return ResponsePair(eps).atoms()


@pytest.mark.parametrize("size", [1e-8, 1e-3, 0.1, 1.0, 6.0, 40.0])
@pytest.mark.parametrize(
    ("family", "truth"),
    [
        (LaplacePair, laplace_moment),
        (ResponsePair, response_moment),
        (GaussianPair, gaussian_moment),
        (atoms, response_moment),
    ],
)
def test_closed_log_moments_are_within_their_error(family, truth, size):
    rng = np.random.default_rng(3)
    reals = np.concatenate([10 ** rng.uniform(-3, 2, 30), -(10 ** rng.uniform(-3, 2, 20))])
    points = reals + 1j * 10 ** rng.uniform(-4, 3, 50)
    values, errors = family(size).log_moment(points)
    useful = 0
    for z, value, error in zip(points, values, errors, strict=True):
        if error < np.inf:
            exact = mp.log(truth(size, z))
            assert off(value, exact) <= error
            useful += error <= 1e-9 * (1 + abs(exact))
    assert useful >= 25


def sampled_moment(mu: float, rate: float, s: complex):
    """The trapezoidal sum: the integrand has no branch point within pi / mu of the real line.

    So its error falls as exp(-2 pi strip / step). It agrees with adaptive quadrature to 20 digits.
    """
    m, q = real(mu), real(rate)
    limit = 16 + abs(s.real) * mu
    step = mp.mpf(min(4.0, 3.0 / mu) / 14 / (1 + abs(s.imag) / 20))

    def integrand(x):
        return mp.npdf(x) * mp.expm1(mp.mpc(s) * mp.log(1 - q + q * mp.exp(m * x - m * m / 2)))

    last = int(limit / step) + 1
    return 1 + step * mp.fsum(integrand(n * step) for n in range(-last, last + 1))


@pytest.mark.parametrize(
    ("mu", "rate"),
    [(0.9, 0.004), (1.7, 1e-4), (5.0, 0.01), (0.01, 0.5), (0.25, 0.999), (1.0, 1e-8)],
)
def test_sampled_gaussian_log_moments_are_within_their_error(mu, rate):
    rng = np.random.default_rng(11)
    signs = np.array([1.0, -1.0, 1.0, -1.0])
    points = signs * 10 ** rng.uniform(-2, 1.1, 4) + 1j * 10 ** rng.uniform(-2, 1.3, 4)
    with mp.workdps(25):
        for s in points:
            (value,), (error,) = moments.sampled_gaussian_log_moment(mu, rate, np.array([s]))
            if error < np.inf:
                exact = mp.log(sampled_moment(mu, rate, s))
                assert off(value, exact) <= error
                assert error <= 1e-9 or abs(mp.exp(exact)) < 1e-3


@pytest.mark.parametrize(
    ("pair", "tilt"),
    [
        (LaplacePair(0.1), 1.5),
        (LaplacePair(3.0), 0.2),
        (GaussianPair(0.7), 2.0),
        (sampled_pair(GaussianPair(0.9), 0.0042), 8.0),
        (sampled_pair(GaussianPair(0.9), 0.0042).reversed(), 8.0),
        (sampled_pair(GaussianPair(1.7), 1e-4), 2.4),
        (sampled_pair(GaussianPair(5.0), 0.01), 0.3),
        (sampled_pair(GaussianPair(0.25), 0.7).reversed(), 3.0),
        (ResponsePair(0.3), 1.0),
        (atoms(0.3), 1.0),
    ],
)
def test_decay_bounds_the_moments_from_there_on(pair: Pair, tilt):
    t = np.geomspace(0.01, 3000, 4000)
    values, errors = pair.log_moment(tilt + 1j * np.concatenate([[0.0], t]))
    relative = np.where(errors[1:] < np.inf, values.real[1:] - errors[1:], -np.inf)
    relative = relative - values.real[0] - errors[0]
    ahead = np.maximum.accumulate(relative[::-1])[::-1]
    bound = pair.decay(tilt, t)
    assert np.all(bound <= 0)
    assert np.all(np.diff(bound) <= 1e-12)
    assert np.all(ahead <= bound)


# --- tails and profiles


@pytest.mark.parametrize("rate", [1e-6, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("mu", [0.05, 1.0, 4.0])
def test_sampled_pairs_profile_both_ways(mu, rate):
    m, q = real(mu), real(rate)
    pair = sampled_pair(GaussianPair(mu), rate)
    for eps in (-0.3, 0.0, 1e-3, 0.2, 3.0, 20.0):
        e = real(eps)
        for direction in (pair, pair.reversed()):
            # Q has the outcomes N(0, 1), P the mixture; R = 1 - q + q r passes e^eps at x
            low, high = direction.profile(np.array([eps]))
            ratio = mp.exp(e if direction is pair else -e)
            inner = (ratio - 1 + q) / q
            if inner <= 0:
                exact = max(mp.mpf(0), 1 - mp.exp(e)) if direction is pair else mp.mpf(0)
            else:
                x = mp.log(inner) / m + m / 2
                p_above = (1 - q) * mp.ncdf(-x) + q * mp.ncdf(m - x)
                q_above = mp.ncdf(-x)
                if direction is pair:
                    exact = p_above - mp.exp(e) * q_above
                else:
                    exact = (1 - q_above) - mp.exp(e) * (1 - p_above)
            assert low[0] <= exact <= high[0]


# --- compositions


def golden(*cases):
    return pytest.mark.parametrize(("spends", "delta", "least", "most", "width"), cases)


TRAINING = [(sampled(1 / 1.1, 256 / 60000), 14063)]


@golden(
    (
        [(sampled(1 / 1.1, 256 / 60000), 14063)],
        1e-5,
        "2.3816897261350873",
        "2.3816897261607872",
        1e-8,
    ),
    ([(sampled(1 / 0.8, 0.01), 10000)], 1e-6, "11.18316419596", "11.18316419628", 1e-8),
    ([(sampled(1 / 0.6, 1e-4), 100000)], 1e-7, "1.42923541", "1.42923597", 1e-6),
    ([(sampled(1.0, 0.001), 10000)], 1e-6, "0.5551396679127625", "0.5551396679384625", 1e-7),
    ([(sampled(0.25, 0.1), 1000)], 1e-6, "3.86883233846393", "3.86883233846443", 1e-8),
    ([(sampled(1.0, 0.01), 10000)], 1e-12, "10.346689837669443", "10.346689837675942", 1e-8),
    ([(sampled(1 / 0.7, 0.05), 1000)], 1e-5, "24.160464560380547", "24.160464560382245", 1e-8),
    ([(sampled(1 / 1.1, 0.01), 10**7)], 1e-6, "801.1575537521038", "801.1575541715343", 1e-5),
    ([(Laplace(0.1), 1000)], 1e-5, "17.42365198753737", "17.42365198753787", 1e-9),
    ([(Laplace(0.1), 3000)], 1e-9, "46.045093270738406", "46.0450932707389", 1e-9),
    ([(Laplace(1.0), 1000)], 1e-6, "486.29750944342203", "486.29750944342857", 1e-9),
)
def test_reference_values_lie_in_the_bracket(spends, delta, least, most, width):
    bounds = Distribution().epsilon(state_of(*spends), delta)
    assert bounds.lower <= mp.mpf(most)
    assert mp.mpf(least) <= bounds.upper
    assert bounds.upper - bounds.lower <= width


def test_delta_of_a_far_tail():
    state = state_of((sampled(1 / 1.1, 256 / 60000), 14063))
    bounds = Distribution().delta(state, 4.0)
    assert bounds.lower <= mp.mpf("6.569963128179490e-12")
    assert bounds.upper >= mp.mpf("6.569963128179488e-12")
    assert bounds.upper <= bounds.lower * (1 + 2e-7)


def gaussian_stick(mu, eps):
    """Balle and Wang 2018, Thm 8, in high precision, at any real epsilon."""
    return mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)


def mixed(mu: float, responses: list[float], eps):
    """The exact hockey-stick of a Gaussian pair and randomized responses, by enumeration."""
    total = mp.mpf(0)
    for signs in product((1, -1), repeat=len(responses)):
        chance, loss = mp.mpf(1), mp.mpf(0)
        for sign, each in zip(signs, responses, strict=True):
            e = real(each)
            chance *= 1 / (1 + mp.exp(-sign * e))
            loss += sign * e
        total += chance * gaussian_stick(real(mu), eps - loss)
    return total


@examples(10)
@given(
    mu=st.floats(0.02, 4),
    times=st.integers(1, 50),
    responses=st.lists(st.floats(0.01, 2), max_size=4),
    log_delta=st.floats(-60, -0.02),
)
def test_gaussians_with_responses_against_enumeration(mu, times, responses, log_delta):
    delta = math.exp(log_delta)
    spends = [(Gaussian(mu), times), *((Pure(e), 1) for e in responses)]
    total_mu = mp.sqrt(times) * real(mu)
    bounds = Distribution().epsilon(state_of(*spends), delta)
    at_upper = mixed_sum(total_mu, responses, real(bounds.upper))
    assert at_upper <= delta
    if bounds.lower > 0:
        assert mixed_sum(total_mu, responses, real(bounds.lower)) >= delta
    assert bounds.upper - bounds.lower <= 1e-7 * (1 + bounds.upper)


def mixed_sum(mu, responses, eps):
    total = mp.mpf(0)
    for signs in product((1, -1), repeat=len(responses)):
        chance, loss = mp.mpf(1), mp.mpf(0)
        for sign, each in zip(signs, responses, strict=True):
            e = real(each)
            chance *= 1 / (1 + mp.exp(-sign * e))
            loss += sign * e
        total += chance * gaussian_stick(mu, eps - loss)
    return total


@examples(15)
@given(
    mu=st.floats(0.05, 3),
    responses=st.lists(st.floats(0.01, 1), min_size=1, max_size=3),
    epsilons=st.lists(st.floats(0, 12), min_size=1, max_size=30),
)
def test_profiles_at_many_epsilons_against_enumeration(mu, responses, epsilons):
    state = state_of((Gaussian(mu), 3), *((Pure(e), 1) for e in responses))
    low, high = Distribution().profile(state, np.array(epsilons))
    for eps, least, most in zip(epsilons, low, high, strict=True):
        exact = mixed_sum(mp.sqrt(3) * real(mu), responses, real(eps))
        assert least <= exact <= most
        assert most <= least * (1 + 1e-6) + 1e-300


def test_a_failure_is_paid_once_and_exactly():
    accountant = Distribution()
    state = state_of((Approximate(0.1, 1e-3), 3), (Gaussian(1.0), 1))
    bounds = accountant.delta(state, 0.5)
    failure = 1 - (1 - real(1e-3)) ** 3
    exact = failure + (1 - failure) * mixed_sum(mp.mpf(1), [0.1] * 3, real(0.5))
    assert bounds.lower <= exact <= bounds.upper
    assert bounds.upper - bounds.lower < 1e-9


def test_delta_zero_is_the_sum_of_the_largest_losses():
    accountant = Distribution()
    state = state_of((Laplace(0.25), 4), (Pure(0.5), 2))
    bounds = accountant.epsilon(state, 0.0)
    assert bounds.upper == 2.0
    assert bounds.lower > 2 - 1e-12
    assert accountant.epsilon(state_of((Gaussian(1.0), 1)), 0.0).upper == math.inf
    assert accountant.epsilon(state, 1.0).upper == 0.0


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-30, 0.5, 0.9, 0.999999])
def test_extreme_deltas_of_gaussians_among_small_responses(delta):
    state = state_of((Gaussian(0.5), 2), (Pure(1e-3), 1))
    bounds = Distribution().epsilon(state, delta)
    mu = mp.sqrt(2) * real(0.5)
    assert mixed_sum(mu, [1e-3], real(bounds.upper)) <= delta
    if bounds.lower > 0:
        assert mixed_sum(mu, [1e-3], real(bounds.lower)) >= delta


@pytest.mark.parametrize(
    ("mu", "rate", "times", "delta"),
    [
        (1.0, 1e-8, 10**8, 1e-6),
        (20.0, 1e-8, 10**4, 1e-6),
        (1e-4, 0.5, 10**8, 1e-6),
        (20.0, 0.5, 10, 0.9),
    ],
)
def test_extreme_sampled_gaussians_are_bracketed_between_the_others(mu, rate, times, delta):
    bounds = Distribution().epsilon(state_of((sampled(mu, rate), times)), delta)
    unsampled = Distribution().epsilon(state_of((Gaussian(mu), times)), delta)
    assert 0 <= bounds.lower <= bounds.upper <= unsampled.upper * (1 + 1e-9)


def test_both_directions_are_computed():
    pair = sampled_pair(GaussianPair(1 / 1.1), 256 / 60000)
    removal, addition = (
        contour.epsilon(((one_way, 14063),), 1e-5) for one_way in (pair, pair.reversed())
    )
    assert removal is not None
    assert addition is not None
    assert removal.lower > addition.upper > 2.24
    assert addition.lower <= 2.2436508016249594
    assert addition.upper >= 2.2436508016184593


def test_certify_takes_it():
    answers = certify(Repeated(Spend(Laplace(0.1)), 1000), 1e-5)
    bounds = answers["distribution"].bounds
    assert bounds is not None
    assert bounds.lower > 17.42
    assert tightest(answers).bounds.upper <= bounds.upper


def test_a_reversed_moment_next_to_zero_has_a_small_relative_error():
    for mu, rate, z in ((3.0, 0.9, 2.3e-5), (1.0, 0.5, 1.3e-9)):
        pair = sampled_pair(GaussianPair(mu), rate).reversed()
        (value,), (error,) = pair.log_moment(np.array([z + 0j]))
        with mp.workdps(40):
            m, q = real(mu), real(rate)
            mean = mp.quad(
                lambda x, m=m, q=q, z=z: (
                    mp.npdf(x) * mp.expm1(-real(z) * mp.log1p(q * mp.expm1(m * x - m * m / 2)))
                ),
                mp.linspace(-16, 16, 33),
            )
        assert abs(mp.mpf(float(value.real)) - mp.log1p(mean)) <= error


def test_sampling_costs_no_more_than_none_after_1e10_steps():
    nearly_all = state_of((sampled(1.0, 1 - 2.0**-53), 10**10))
    everything = state_of((Gaussian(1.0), 10**10))
    accountant = Distribution()
    assert accountant.epsilon(nearly_all, 1e-5).lower <= accountant.epsilon(everything, 1e-5).upper


def test_a_sample_of_a_sample_of_a_response():
    eps, first, second = 553.4379935863222, 0.22138134806520585, 1.301271140852365e-245
    inner = Sampled(Composite({Pure(eps): 1}), first)
    outer = Sampled(Composite({inner: 1}), second)
    truth = mp.log1p(real(second) * real(first) * mp.expm1(real(eps)))
    assert Distribution().epsilon(state_of((outer, 1)), 0.0).upper >= truth


@pytest.mark.parametrize(
    ("mu", "rate", "times", "delta"), [(1e-4, 0.1, 100, 1e-10), (1e-5, 0.01, 10**4, 1e-6)]
)
def test_many_orders_below_one(mu, rate, times, delta):
    bounds = Distribution().epsilon(state_of((sampled(mu, rate), times)), delta)
    assert bounds.upper - bounds.lower < 1e-6


# --- many different losses


@pytest.mark.parametrize(
    ("kind", "moment"), [(LaplacePair, laplace_moment), (ResponsePair, response_moment)]
)
@pytest.mark.parametrize("spread", [1e-6, 1e-2, 1.0])
@pytest.mark.parametrize("size", [1e-3, 0.5])
def test_log_moments_of_many_close_losses(kind, moment, spread, size):
    generator = np.random.default_rng(5)
    epsilons = size * (1 + spread * generator.random(120))
    spends = [(kind(float(eps)), 1 + i % 2) for i, eps in enumerate(epsilons)]
    z = np.array([0.3, 0.2 + 0.1j, 0.1 + 1j, 1.5 + 0.9j]) / size
    with np.errstate(all="ignore"):
        values, errors = kind.log_moments(spends, z)
        moduli = kind.log_moduli(spends, z)
    assert np.isfinite(errors).sum() >= 3
    with mp.workdps(40):
        for point, value, error, modulus in zip(z, values, errors, moduli, strict=True):
            true = mp.fsum(n * mp.log(moment(pair.epsilon, point)) for pair, n in spends)
            assert off(value, true) <= error
            assert true.real <= modulus


@pytest.mark.parametrize(
    ("kind", "moment"), [(LaplacePair, laplace_moment), (ResponsePair, response_moment)]
)
@pytest.mark.parametrize("epsilon", [14.0, 55.0, 178.0])
def test_moduli_hold_between_minus_one_and_zero(kind, moment, epsilon):
    z = np.array([-0.05, -0.22 + 0.01j, -0.45 + 3j, -0.499, -0.57 + 1e-3j, -0.9])
    spends = [(kind(epsilon), 10**6)]
    with np.errstate(all="ignore"):
        moduli = kind.log_moduli(spends, z)
    with mp.workdps(120):
        for point, modulus in zip(z, moduli, strict=True):
            assert 10**6 * mp.log(abs(moment(epsilon, point))) <= modulus


@pytest.mark.parametrize("delta", [1e-323, pytest.param(1e-300, marks=pytest.mark.slow), 1e-12])
def test_one_large_loss_among_many_tiny_ones(delta):
    losses = [Pure(500.0), *(Laplace(1e-12 * (1 + i / 130)) for i in range(130))]
    bounds = Distribution().epsilon(state_of(*((loss, 1) for loss in losses)), delta)
    # at least what the large one costs, less what the bracket of floats leaves; at most the sum
    assert 500 + 2 * math.log1p(-delta) - 1e-12 <= bounds.upper <= 500 + 1e-9
    assert bounds.lower <= 500 + 3e-10


@pytest.mark.parametrize("size", [1e-3, 0.1, 1.0])
def test_what_smoothing_adds_is_below_its_bound(size):
    # E (1 - e^{-x - Y})_+ - (1 - e^{-x})_+, Y normal with mean s^2 / 2 and variance s^2
    with mp.workdps(40):
        s = mp.mpf(size)
        for multiple in (-6, -2, -0.5, 0, 0.01, 1, 3, 7):
            x = s * multiple
            above, below = (x + s**2 / 2) / s, (x - s**2 / 2) / s
            added = mp.ncdf(above) - mp.exp(-x) * mp.ncdf(below) - max(0, 1 - mp.exp(-x))
            assert 0 <= added <= s * mp.exp(-x / 2) * mp.npdf(x / s)


@examples(10)
@given(
    st.lists(st.floats(0.5, 1.0), min_size=3, max_size=8, unique=True),
    st.floats(1e-4, 2.0),
    st.floats(-14.0, -1.0),
)
def test_a_smoothed_contour_against_enumeration(shapes, scale, log_delta):
    epsilons = [scale * shape for shape in shapes]
    spends = tuple((ResponsePair(eps), 1) for eps in dict.fromkeys(epsilons))
    with np.errstate(all="ignore"):
        bounds = contour.epsilon(spends, math.exp(log_delta))
    if bounds is None:
        return
    with mp.workdps(40):
        atoms = [(mp.mpf(0), mp.mpf(1))]
        for pair, _ in spends:
            eps = mp.mpf(pair.epsilon)
            p = 1 / (1 + mp.exp(-eps))
            atoms = [(a + s * eps, m * w) for a, m in atoms for s, w in ((1, p), (-1, 1 - p))]

        def delta(x: float) -> mp.mpf:
            return mp.fsum(m * (1 - mp.exp(mp.mpf(x) - a)) for a, m in atoms if a > x)

        target = mp.mpf(math.exp(log_delta))
        assert delta(bounds.upper) <= target
        assert bounds.lower == 0 or delta(bounds.lower) >= target


@pytest.mark.parametrize(("step", "delta"), [(2.0**-17, 1e-6), (2.0**-13, 1e-9), (2.0**-22, 1e-3)])
def test_many_responses_that_nearly_agree(step, delta):
    # multiples of one step compose on a lattice: each mass is a sum of positive products
    multiples = range(1000, 1150)
    mass = np.ones(1)
    for multiple in multiples:
        p = 1 / (1 + math.exp(-multiple * step))
        moved = np.zeros(len(mass) + 2 * multiple)
        moved[2 * multiple :] += p * mass
        moved[: len(mass)] += (1 - p) * mass
        mass = moved
    losses = step * (np.arange(len(mass)) - sum(multiples))

    def exact(epsilon: float) -> float:
        return math.fsum(mass[losses > epsilon] * -np.expm1(epsilon - losses[losses > epsilon]))

    every = Sequential([Spend(Pure(multiple * step)) for multiple in multiples])
    bounds = measure(every, Distribution(), delta=delta).bounds
    assert exact(bounds.upper) <= delta * (1 + 1e-12)
    assert exact(bounds.lower) >= delta * (1 - 1e-12)
    assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper


@pytest.mark.parametrize("scale", [1e-5, pytest.param(0.02, marks=pytest.mark.slow)])
def test_many_laplaces_that_nearly_agree(scale):
    different = Sequential([Spend(Laplace(scale * (1 + 1e-6 * i))) for i in range(300)])
    bounds = measure(different, Distribution(), delta=1e-5).bounds
    least = measure(Repeated(Spend(Laplace(scale)), 300), Distribution(), delta=1e-5).bounds
    most = Repeated(Spend(Laplace(scale * (1 + 1e-6 * 299))), 300)
    assert least.lower <= bounds.upper
    assert bounds.lower <= measure(most, Distribution(), delta=1e-5).bounds.upper
    assert bounds.upper - bounds.lower <= 1e-4 * bounds.upper
