"""Sampling without replacement, under replace-one, and by allocation."""

from __future__ import annotations

import itertools
import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Composite,
    Distribution,
    Gaussian,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    Renyi,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    certify,
    measure,
    worlds,
)
from accountants.errors import DomainError
from accountants.losses.allocation import Allocated as AllocatedLoss
from accountants.losses.sampling import FixedSize
from accountants.losses.sampling import ReplacedSample as ReplacedSampleLoss
from accountants.losses.sampling import Sampled as SampledLoss
from accountants.pair import Pair
from accountants.terms import Allocated, Grouped, ReplacedSample, Subset, pruned

LOSSES = np.array([-2.0, -0.7, -0.1, -1e-3, 0.0, 1e-6, 0.05, 0.3, 1.0, 2.5])
ORDERS = np.array([1.01, 1.5, 2.0, 3.7, 8.0, 20.0])


def body(*losses: PrivacyLoss) -> Composite:
    return Composite([(loss, 1) for loss in losses])


def covered(
    pair: Pair, hockey: object, points: np.ndarray = LOSSES, *, tight: float = 1e-9
) -> None:
    """The pair's profile is at least ``hockey(loss)``, and at most a little more."""
    for loss, upper in zip(points.tolist(), pair.profile(points)[1].tolist(), strict=True):
        true = hockey(truth.real(loss))  # type: ignore[operator]
        assert truth.real(upper) >= true * (1 - mp.mpf(10) ** -20), (loss, upper, true)
        assert upper <= true * (1 + tight) + 1e-11, (loss, upper, true)


def enumerated(pair: truth.Pair):  # type: ignore[no-untyped-def]
    return lambda loss: mp.fsum(max(p - mp.exp(loss) * q, mp.mpf(0)) for p, q in pair)


def mixture(common: list, present: list, rate: object) -> list:  # type: ignore[type-arg]
    q = truth.real(rate)  # type: ignore[arg-type]
    return [(1 - q) * b + q * a for b, a in zip(common, present, strict=True)]


# --- joint convexity, and samples of a fixed size


def amplified(profile, rate: float):  # type: ignore[no-untyped-def]
    """Balle, Barthe and Gaboardi 2018, Thm 9, and its mirror image."""
    q = truth.real(rate)

    def above(loss: mp.mpf) -> mp.mpf:
        return q * profile(mp.log1p(mp.expm1(loss) / q))

    return lambda loss: above(loss) if loss >= 0 else -mp.expm1(loss) + mp.exp(loss) * above(-loss)


def laplace_delta(eps: float):  # type: ignore[no-untyped-def]
    return lambda loss: -mp.expm1(min(mp.mpf(0), (loss - truth.real(eps)) / 2))


@pytest.mark.parametrize(("size", "population"), [(1, 2), (3, 7), (256, 60000), (1, 10**12)])
def test_fixed_size_profiles(size: int, population: int) -> None:
    for loss, profile in [
        (Gaussian(0.3), lambda e: truth.gaussian_delta(0.3, e)),
        (Gaussian(2.0), lambda e: truth.gaussian_delta(2.0, e)),
        (Laplace(1.3), laplace_delta(1.3)),
        (Pure(0.9), lambda e: truth.hockey(truth.response(0.9), e)),
    ]:
        sampled = FixedSize(body(loss), size, population)
        pair = sampled.pair()
        assert pair is not None
        assert pair.reversed() == pair or type(pair).__name__ == "FinitePair"
        covered(pair, amplified(profile, sampled.mixture()[1]))
        for epsilon in (0.0, 0.2, 1.0):
            true = amplified(profile, sampled.mixture()[1])(truth.real(epsilon))
            bounds = sampled.profile(epsilon)
            assert bounds is not None
            assert bounds.lower <= true * (1 + mp.mpf(10) ** -20) + mp.mpf(10) ** -30
            assert bounds.upper >= true * (1 - mp.mpf(10) ** -20)


def test_fixed_size_by_enumeration() -> None:
    """The randomized response of a sample's count, for all data sets of 4 bits, samples of 2."""
    eps, population, size = 0.8, 4, 2
    sums: dict[int, list[mp.mpf]] = {}
    flip = truth.response(eps)[0]
    for ones in range(population + 1):
        total = [mp.mpf(0)] * 4
        data = [1] * ones + [0] * (population - ones)
        samples = list(itertools.combinations(data, size))
        for sample in samples:
            for i, noise in enumerate(itertools.product((0, 1), repeat=size)):
                p = mp.mpf(1)
                for bit, lie in zip(sorted(sample), noise, strict=True):
                    p *= flip[0] if bit == lie else flip[1]
                total[i] += p / len(samples)
        sums[ones] = total
    pair = FixedSize(body(Pure(eps)), size, population).pair()
    assert pair is not None
    for ones in range(population):
        for p, q in ((sums[ones], sums[ones + 1]), (sums[ones + 1], sums[ones])):
            for loss, upper in zip(LOSSES, pair.profile(LOSSES)[1], strict=True):
                true = enumerated(list(zip(p, q, strict=True)))(truth.real(float(loss)))
                assert upper >= true * (1 - mp.mpf(10) ** -20)


def half_moment(loss, density, points, z: complex) -> mp.mpc:  # type: ignore[no-untyped-def]
    a, b = 1 + mp.mpc(z), -mp.mpc(z)

    def integrand(s: mp.mpf) -> mp.mpc:
        w = loss(s)
        return density(s) * (mp.expm1(a * w) * -mp.expm1(b * w))

    return mp.quad(integrand, points, maxdegree=5)


@pytest.mark.parametrize("rate", [0.01, 0.6])
@pytest.mark.parametrize("mu", [0.2, 1.2])
def test_log_moments_of_many_points_are_those_of_each(mu: float, rate: float) -> None:
    """Points of one real part are summed together, whatever their order and widths of panels."""
    pair = ReplacedSampleLoss(body(Gaussian(mu)), rate).pair()
    assert pair is not None
    z = np.ravel(np.array([0.4, -0.5, 3.0, -0.4])[:, None] + 1j * np.array([2.0, 0.0, 0.3, 4.0]))
    together = pair.log_moment(z)
    assert together is not None
    for at, point in enumerate(z):
        alone = pair.log_moment(np.array([point]))
        assert alone is not None
        apart = np.exp(together[0][at] - alone[0][0]) - 1  # logarithms up to 2 pi i
        assert abs(apart) <= 1.1 * (together[1][at] + alone[1][0]) <= 1e-6


@pytest.mark.parametrize("z", [0.01, 6.0, 0.4 + 12j, -2.5 + 1j])
def test_log_moments(z: complex) -> None:
    q, mu, eps = 0.05, 1.3, 0.9
    rate, m = mp.mpf(FixedSize(body(Gaussian(mu)), 1, 20).mixture()[1]), mp.mpf(mu)
    replaced = mp.mpf(q)
    with mp.workdps(20):
        grid = mp.linspace(0, 24, 25)
        cases = [
            (
                FixedSize(body(Gaussian(mu)), 1, 20).pair(),
                half_moment(
                    lambda s: mp.log1p(rate * mp.expm1(m * s)),
                    lambda s: mp.npdf(s + m / 2),
                    grid,
                    z,
                ),
            ),
            (
                FixedSize(body(Laplace(eps)), 1, 20).pair(),
                half_moment(
                    lambda s: mp.log1p(rate * mp.expm1(s)),
                    lambda s: mp.exp(-(s + mp.mpf(eps)) / 2) / 4,
                    mp.linspace(0, mp.mpf(eps), 9),
                    z,
                )
                + half_moment(
                    lambda s: mp.log1p(rate * mp.expm1(mp.mpf(eps))),
                    lambda s: mp.exp(-mp.mpf(eps)) / 2,
                    [0, 1],
                    z,
                ),
            ),
            (
                ReplacedSampleLoss(body(Gaussian(mu)), q).pair(),
                half_moment(
                    lambda s: (
                        mp.log(1 - replaced + replaced * mp.exp(m * s - m * m / 2))
                        - mp.log(1 - replaced + replaced * mp.exp(-m * s - m * m / 2))
                    ),
                    lambda s: (1 - replaced) * mp.npdf(s) + replaced * mp.npdf(s + m),
                    grid,
                    z,
                ),
            ),
        ]
    for pair, true in cases:
        assert pair is not None
        moment = pair.log_moment(np.array([z], dtype=np.complex128))
        assert moment is not None
        value, error = complex(moment[0][0]), float(moment[1][0])
        exact = mp.log(1 + true)
        assert abs(mp.mpc(value) - exact) <= error
        assert error <= 1e-9 * (abs(exact) + 1e-6)


@pytest.mark.parametrize(
    ("loss", "size", "population"),
    [(Gaussian(0.9), 256, 60000), (Gaussian(2.0), 1, 3), (Laplace(1.0), 1, 10)],
)
def test_moments_decay_as_promised(loss: PrivacyLoss, size: int, population: int) -> None:
    pair = FixedSize(body(loss), size, population).pair()
    assert pair is not None
    t = np.geomspace(0.1, 2000, 60)
    for tilt in (-0.5, 0.3, 3.0):
        moments = pair.log_moment(np.append(tilt, tilt + 1j * t).astype(np.complex128))
        assert moments is not None
        sizes = moments[0].real[1:] - moments[1][1:] - moments[0].real[0] - moments[1][0]
        later = np.maximum.accumulate(sizes[::-1])[::-1]
        promised = pair.decay(tilt, t)
        assert (promised >= later).all()
        assert promised[-1] < -0.2
        assert (np.diff(promised) <= 0).all()


def test_moments_that_overflow_and_orders_that_are_too_large() -> None:
    pair = FixedSize(body(Gaussian(3.0)), 1, 10).pair()
    assert pair is not None
    moments = pair.log_moment(np.array([40.0, 1e9], dtype=np.complex128))
    assert moments is not None
    a, m, q = 41, mp.mpf(3), mp.mpf(FixedSize(body(Gaussian(3.0)), 1, 10).mixture()[1])
    with mp.workdps(25):  # by the trapezoid rule, around the peak at 41 mu
        nodes = [mp.mpf(105) + mp.mpf(i) / 8 for i in range(8 * 36)]
        values = [mp.npdf(x) * (1 - q + q * mp.exp(m * x - m * m / 2)) ** a for x in nodes]
        true = mp.log(mp.fsum(values) / 8)
    assert abs(true - mp.mpf(moments[0][0].real)) <= moments[1][0] < 1e-6
    assert np.isinf(moments[1][1])
    curve = FixedSize(body(Gaussian(3.0)), 1, 10).renyi(np.array([1e9]))
    assert curve is not None
    assert 4e9 < curve[0] <= 4.5e9 * (1 + 1e-9)


def test_training_on_fixed_samples_costs_less_than_by_the_published_curve() -> None:
    """n = 60000, m = 256, sigma = 1.1, 1000 steps at 1e-5: dp-accounting's curve has 1.2786.

    There the norm that sigma multiplies is that of a change.
    """
    step = Subset(Spend(Gaussian(mu=1 / 1.1)), 256, 60000)
    bounds = measure(Repeated(step, 1000), Renyi(), delta=1e-5).bounds
    assert bounds is not None
    assert 0.9 < bounds.upper < 0.95694


def wang(mu: float, rate: float, order: int) -> mp.mpf:
    """Wang, Balle and Kasiviswanathan 2019, Thm 27, for a Gaussian body."""
    q, m = truth.real(rate), truth.real(mu)

    def moment(j: int) -> mp.mpf:
        return mp.exp(j * (j - 1) * m * m / 2)

    total = 1 + q**2 * mp.binomial(order, 2) * min(4 * (moment(2) - 1), 2 * moment(2))
    total += mp.fsum(2 * q**j * mp.binomial(order, j) * moment(j) for j in range(3, order + 1))
    return mp.log(total) / (order - 1)


def test_curves_lie_below_the_published_ones_and_not_below_the_truth() -> None:
    for mu, size, population in [(2 / 1.1, 256, 60000), (0.5, 1, 50)]:
        sampled = FixedSize(body(Gaussian(mu)), size, population)
        orders = np.array([2.0, 3.0, 5.0, 10.0])
        curve = sampled.renyi(orders)
        assert curve is not None
        for order, value in zip(orders, curve, strict=True):
            assert value <= wang(mu, size / population, int(order)) * (1 + mp.mpf("1e-9"))
        # attained by one replaced unit whose twins are all equal: the removal's moment
        removal = [truth.gaussian_removal(mu, size / population, int(order)) for order in orders]
        assert all(v >= r * (1 - mp.mpf("1e-9")) for v, r in zip(curve, removal, strict=True))


# --- Poisson samples under replace-one


def test_no_two_shifts_are_worse_than_opposite_ones() -> None:
    """The claim on Gaussian bodies, on a grid of the plane."""
    rng = np.random.default_rng(7)
    line = np.linspace(-8.5, 8.5, 171)
    x, y = np.meshgrid(line, line)
    cell = (line[1] - line[0]) ** 2

    def normal(at: np.ndarray) -> np.ndarray:
        return np.exp(-((x - at[0]) ** 2 + (y - at[1]) ** 2) / 2) / (2 * math.pi)

    for _ in range(60):
        q, mu, t = rng.uniform(0.02, 0.95), rng.uniform(0.3, 2.5), math.exp(rng.uniform(-1.5, 1.5))

        def hockey(a: np.ndarray, b: np.ndarray, q: float = q, t: float = t) -> float:
            rest = (1 - q) * normal(np.zeros(2))
            gap = rest + q * normal(a) - t * (rest + q * normal(b))
            return float(np.maximum(gap, 0).sum() * cell)

        worst = hockey(np.array([mu, 0.0]), np.array([-mu, 0.0]))
        for _ in range(3):
            a, b = rng.normal(size=(2, 2))
            a, b = (v * mu * rng.uniform() ** 0.3 / np.linalg.norm(v) for v in (a, b))
            assert hockey(a, b) <= worst + 1e-6


@pytest.mark.parametrize("power", [100.0, 821.69, 1600.0])
def test_replaced_moments_of_little_mu(power: float) -> None:
    """Where ``(1 - q)^{-power}`` is far above what the other mixture's density ever is."""
    pair = ReplacedSampleLoss(body(Gaussian(0.01)), 0.1658123032909922).pair()
    assert pair is not None
    moments = pair.log_moment(np.array([power], dtype=np.complex128))
    assert moments is not None
    m, q, a = truth.real(0.01), truth.real(0.1658123032909922), truth.real(power)

    def integrand(x: mp.mpf) -> mp.mpf:
        above, below = (1 - q + q * mp.exp(s * m * x - m * m / 2) for s in (1, -1))
        return mp.npdf(x) * above ** (a + 1) * below**-a

    exact = mp.log(mp.quad(integrand, range(-30, 61, 3)))
    assert abs(moments[0][0].real - exact) <= moments[1][0] <= 1e-11


@pytest.mark.parametrize("epsilon", [1e-14, 1e-9, 1e-6])
def test_a_replaced_sample_and_next_to_nothing(epsilon: float) -> None:
    """It crashed, as its moment was unknown where the other tilts' were not."""
    sample = ReplacedSample(Spend(Gaussian(0.01)), 0.1658123032909922)
    alone = measure(sample, Distribution(), delta=1e-6).bounds
    both = measure(Sequential([sample, Spend(Laplace(epsilon))]), Distribution(), delta=1e-6).bounds
    assert alone is not None
    assert both is not None
    assert alone.lower * (1 - 1e-9) <= both.upper <= alone.upper * (1 + 1e-6) + epsilon
    assert both.upper - both.lower <= 1e-5 * both.upper


@pytest.mark.parametrize(
    ("mu", "rate"), [(0.5, 0.3), (1 / 1.1, 256 / 60000), (3.0, 0.9), (1.0, 1e-9)]
)
def test_replaced_gaussian_profiles(mu: float, rate: float) -> None:
    pair = ReplacedSampleLoss(body(Gaussian(mu)), rate).pair()
    assert pair is not None
    assert pair.reversed() == pair
    m, q = truth.real(mu), truth.real(rate)

    def hockey(loss: mp.mpf) -> mp.mpf:
        odds = (1 - q) / q * mp.exp(m * m / 2)
        x = (loss / 2 + mp.asinh(odds * mp.sinh(loss / 2))) / m
        rest = (1 - q) * mp.erfc(x / mp.sqrt(2)) / 2

        def side(c: mp.mpf) -> mp.mpf:
            return rest + q * mp.erfc((x - c) / mp.sqrt(2)) / 2

        return side(m) - mp.exp(loss) * side(-m)

    covered(pair, hockey, tight=1e-6)
    for epsilon in (0.0, 0.4):
        bounds = ReplacedSampleLoss(body(Gaussian(mu)), rate).profile(epsilon)
        assert bounds is not None
        assert bounds.lower <= hockey(mp.mpf(epsilon)) <= bounds.upper


@examples(30)
@given(st.integers(0, 10**6), st.floats(0.05, 3.0), st.floats(0.01, 0.99))
def test_replaced_pure_bodies_by_random_mechanisms(seed: int, eps: float, rate: float) -> None:
    """Random laws B, A, A' on 5 outcomes with ratios to B within e^eps."""
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(5))

    def near() -> np.ndarray:
        tilt = (
            np.exp(rng.uniform(-eps, eps, 5) * rng.choice([0.5, 1.0]))
            if seed % 2
            else np.exp(eps * rng.choice([-1.0, 1.0], 5))
        )
        law = base * tilt
        law = law / law.sum()
        ratio = law / base
        share = min(
            1.0,
            *((math.exp(eps) - 1) / np.maximum(ratio - 1, 1e-9)),
            *((1 - math.exp(-eps)) / np.maximum(1 - ratio, 1e-9)),
        )
        return base + share * (law - base)

    a, b = near(), near()
    p, q = (1 - rate) * base + rate * a, (1 - rate) * base + rate * b
    loss = ReplacedSampleLoss(body(Pure(eps)), rate)
    pair = loss.pair()
    assert pair is not None
    upper = pair.profile(LOSSES)[1]
    true = np.maximum(p - np.exp(LOSSES)[:, None] * q, 0).sum(axis=1)
    assert (upper >= true - 1e-12).all()
    assert loss.pure() >= np.abs(np.log(p / q)).max() - 1e-12


def test_replaced_pure_bodies_are_attained() -> None:
    eps, rate = 0.7, 0.2
    less = 1 / (1 + mp.exp(truth.real(eps)))
    e = mp.exp(truth.real(eps))
    base = [less, 1 - 2 * less, less]
    one, other = [less * e, (1 - 2 * less) / e, less / e], [less / e, (1 - 2 * less) / e, less * e]
    laws = list(zip(mixture(base, one, rate), mixture(base, other, rate), strict=True))
    pair = ReplacedSampleLoss(body(Pure(eps)), rate).pair()
    assert pair is not None
    assert pair.is_tight()
    assert not ReplacedSampleLoss(body(Pure(eps / 2), Laplace(eps / 2)), rate).pair().is_tight()
    covered(pair, enumerated(laws), tight=1e-12)
    twice = truth.product([laws, laws])
    term = Repeated(ReplacedSample(Spend(Pure(eps)), rate), 2)
    for delta in (1e-9, 1e-3):
        for answer in certify(term, delta).values():
            if answer.bounds is not None:
                truth.proves(answer.bounds.upper, truth.Profile(twice), delta)
                truth.refutes(answer.bounds.lower, truth.Profile(twice), delta)


def test_replaced_samples_of_other_bodies() -> None:
    for loss in (Laplace(0.5), Approximate(0.3, 1e-6), Pure(0.4)):
        sampled = ReplacedSampleLoss(body(loss, Gaussian(0.3)), 0.1)
        assert sampled.pair() is None
        curve = sampled.renyi(ORDERS)
        assert curve is not None
        alone = ReplacedSampleLoss(body(loss), 0.1).renyi(ORDERS)
        assert alone is not None
        assert (curve >= alone * (1 - 1e-9)).all()
    failing = ReplacedSampleLoss(body(Approximate(0.3, 1e-6)), 0.1)
    # at the worst both values leak: the sampled law differs by q (delta + e^eps delta)
    assert failing.delta_floor() >= 0.1 * 1e-6 * (1 + math.exp(0.3)) * (1 - 1e-9)
    with pytest.raises(InapplicableError):
        ReplacedSampleLoss(body(FixedSize(body(Pure(1.0)), 1, 2)), 0.5)


# --- random allocation


def allocation_moment(mu: float, steps: int, order: int) -> mp.mpf:
    """E X^n of the mean of ratios, by powers of a series."""
    m = truth.real(mu)
    base = [mp.exp(m * m * i * (i - 1) / 2) / mp.factorial(i) for i in range(order + 1)]
    total = [mp.mpf(1)] + [mp.mpf(0)] * order
    for bit in bin(steps)[2:]:
        square = [mp.fsum(total[i] * total[n - i] for i in range(n + 1)) for n in range(order + 1)]
        total = square
        if bit == "1":
            total = [
                mp.fsum(total[i] * base[n - i] for i in range(n + 1)) for n in range(order + 1)
            ]
    return total[order] * mp.factorial(order) / mp.mpf(steps) ** order


@pytest.mark.parametrize(("mu", "steps"), [(1.0, 2), (0.4, 3), (2.0, 10), (1.0, 200)])
def test_allocated_gaussians_by_their_moments(mu: float, steps: int) -> None:
    loss = AllocatedLoss(body(Gaussian(mu)), steps)
    orders = np.array([2.0, 3.0, 5.0])
    curve = loss.renyi(orders)
    pair = loss.pair()
    assert curve is not None
    assert pair is not None
    moments = pair.log_moment((orders - 1).astype(np.complex128))
    assert moments is not None
    for order, value, log_moment in zip(orders, curve, moments[0].real, strict=True):
        true = mp.log(allocation_moment(mu, steps, int(order)))
        assert value * (order - 1) >= true
        assert log_moment >= true * (1 - mp.mpf("1e-9"))
        assert log_moment <= true * (1 + mp.mpf("2e-5")) + mp.mpf("1e-9")


def test_allocated_moments_by_integrals() -> None:
    """t = 2 by a double integral, removal and addition, at real orders."""
    mu, orders = 0.9, np.array([1.5, 2.5])
    x = np.linspace(-12, 16, 1401)
    weight = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    ratio = np.exp(mu * x - mu * mu / 2)
    mean = (ratio[:, None] + ratio) / 2
    pair = AllocatedLoss(body(Gaussian(mu)), 2).pair()
    assert pair is not None
    for direction, powers in ((pair, orders), (pair.reversed(), 1 - orders)):
        moments = direction.log_moment((orders - 1).astype(np.complex128))
        assert moments is not None
        for power, value in zip(powers, moments[0].real, strict=True):
            true = math.log(weight @ mean**power @ weight)
            assert true * (1 - 1e-9) <= value <= true * (1 + 1e-5)
    curve = AllocatedLoss(body(Gaussian(mu)), 2).renyi(orders)
    assert curve is not None
    for order, value in zip(orders, curve, strict=True):
        assert value * (order - 1) >= math.log(weight @ mean**order @ weight) - 1e-12


def test_allocated_hockey_sticks_by_integrals() -> None:
    mu = 1.2
    x = np.linspace(-10, 13, 2301)
    weight = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    ratio = np.exp(mu * x - mu * mu / 2)
    mean = (ratio[:, None] + ratio) / 2
    pair = AllocatedLoss(body(Gaussian(mu)), 2).pair()
    assert pair is not None
    points = np.array([-0.5, 0.0, 0.3, 1.0, 2.0])
    for loss, upper in zip(points, pair.profile(points)[1], strict=True):
        true = weight @ np.maximum(mean - math.exp(loss), 0) @ weight
        assert true - 1e-6 <= upper <= true * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("eps", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("steps", [2, 3, 7])
def test_allocated_responses_by_enumeration(eps: float, steps: int) -> None:
    less = 1 / (1 + mp.exp(truth.real(eps)))
    e = mp.exp(truth.real(eps))
    laws = []
    for high in range(steps + 1):
        q = mp.binomial(steps, high) * less**high * (1 - less) ** (steps - high)
        laws.append((q * (high * e + (steps - high) / e) / steps, q))
    loss = AllocatedLoss(body(Pure(eps)), steps)
    pair = loss.pair()
    assert pair is not None
    for direction, law in ((pair, laws), (pair.reversed(), [(q, p) for p, q in laws])):
        hockey = enumerated(law)
        upper = direction.profile(LOSSES)[1]
        for at, bound in zip(LOSSES.tolist(), upper.tolist(), strict=True):
            true = hockey(truth.real(at))
            assert bound >= true * (1 - mp.mpf("1e-20"))
            assert bound <= true * (1 + mp.mpf("1e-9")) + mp.mpf("1e-12")
    assert loss.pure() == eps
    assert loss.delta_floor() == 0.0


def test_allocated_laplace_lies_between_response_and_nothing() -> None:
    laplace = AllocatedLoss(body(Laplace(1.0)), 50).pair()
    response = AllocatedLoss(body(Pure(1.0)), 50).pair()
    assert laplace is not None
    assert response is not None
    z = np.array([0.5, 1.0, 4.0], dtype=np.complex128)
    small, large = laplace.log_moment(z), response.log_moment(z)
    assert small is not None
    assert large is not None
    assert (small[0].real < large[0].real).all()
    second = 50 * 49 + 50 * float(mp.exp(Laplace(1.0).renyi(np.array([2.0]))[0]))
    assert math.isclose(small[0][1].real, math.log(second / 2500), rel_tol=1e-2)


def of_two_ratios(eps: float, steps: int, at: float) -> mp.mpf:
    """The larger hockey-stick of a mean of ratios of two values: a binomial's sum."""
    high, t = mp.exp(mp.mpf(eps)), mp.exp(mp.mpf(at))
    rare = 1 / (1 + high)
    mean, deviation = steps * rare, mp.sqrt(steps * rare * (1 - rare))
    k = max(0, int(mean - 15 * deviation))
    mass = mp.binomial(steps, k) * rare**k * (1 - rare) ** (steps - k)
    removal = addition = mp.mpf(0)
    while k <= min(steps, int(mean + 15 * deviation)):
        x = (k * high + (steps - k) / high) / steps
        removal, addition = removal + mass * max(x - t, 0), addition + mass * max(1 - t * x, 0)
        mass, k = mass * (steps - k) / (k + 1) * rare / (1 - rare), k + 1
    return max(removal, addition)


@pytest.mark.parametrize(
    ("eps", "steps", "delta"), [(1.0, 10**6, 1e-6), (0.1, 10**5, 1e-8), (5.0, 10**5, 1e-3)]
)
def test_a_response_in_one_of_a_million_steps(eps: float, steps: int, delta: float) -> None:
    loss = AllocatedLoss(body(Pure(eps)), steps)
    bounds = measure(Spend(loss), Distribution(), delta=delta).bounds
    assert bounds is not None
    assert bounds.lower > bounds.upper * (1 - 1e-4)
    with mp.workdps(40):
        assert (
            of_two_ratios(eps, steps, bounds.upper)
            <= delta
            <= (of_two_ratios(eps, steps, bounds.lower))
        )


def test_training_by_allocation_costs_no_more_than_by_poisson_sampling() -> None:
    """1 of 1000 steps, 10 epochs, sigma = 1 at 1e-6, against 10000 steps of rate 1/1000."""

    epochs = Repeated(Allocated(Spend(Gaussian(1.0)), 1000), 10)
    poisson = Repeated(Sampled(Spend(Gaussian(1.0)), 1e-3), 10_000)
    one = measure(epochs, Renyi(), delta=1e-6).bounds
    other = measure(poisson, Renyi(), delta=1e-6).bounds
    assert one is not None
    assert other is not None
    assert one.upper <= other.upper
    assert one.lower == 0.0


# --- laws of all, terms and refusals


MAKERS = [
    lambda loss, rate: FixedSize(body(loss), int(rate * 1000), 1000),
    lambda loss, rate: ReplacedSampleLoss(body(loss), rate),
    lambda loss, rate: AllocatedLoss(body(loss), int(1 / rate)),
]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("kind", [Gaussian, Laplace, Pure])
def test_more_is_dearer(make, kind) -> None:  # type: ignore[no-untyped-def]
    sizes, rates = (0.1, 0.5, 1.5), (0.02, 0.2, 1.0)
    grid = [[make(kind(size), rate) for rate in rates] for size in sizes]
    for i, j in itertools.product(range(3), range(3)):
        loss = grid[i][j]
        pair, curve = loss.pair(), loss.renyi(ORDERS)
        assert pair is not None
        profile = pair.profile(LOSSES)[1]
        others = [grid[i + 1][j]] if i < 2 else []
        others += [grid[i][j + 1]] if j < 2 else []
        for other in others:
            assert other.dominates(loss)
            assert not loss.dominates(other)
            assert (other.renyi(ORDERS) >= curve * (1 - 1e-9)).all()
            assert (other.pair().profile(LOSSES)[1] >= profile * (1 - 1e-3) - 1e-15).all()
        for direction in (pair, pair.reversed()):
            low, high = direction.profile(LOSSES)
            assert (low <= high).all()
            assert (high >= -np.expm1(LOSSES) * (1 - 1e-12)).all()


@pytest.mark.parametrize("size", [1e-300, 1e-12, 1e-5, 40.0, 800.0, 1e160])
def test_absurd_sizes(size: float) -> None:
    for kind in (Gaussian, Laplace, Pure):
        for rate in (1e-300, 0.5, 1 - 2**-53, 1.0):
            losses = [ReplacedSampleLoss(body(kind(size)), rate)]
            losses += [AllocatedLoss(body(kind(size)), steps) for steps in (1, 2)]
            losses += [FixedSize(body(kind(size)), m, 10**18) for m in (0, 1, 10**18 - 1, 10**18)]
            for loss in losses:
                for delta in (0.0, 1e-300, 1e-6):
                    bounds = measure(Spend(loss), Renyi(), delta=delta).bounds
                    assert bounds is not None
                    assert 0 <= bounds.lower <= bounds.upper
            if rate < 1e-5:
                break


def test_terms() -> None:
    spend = Spend(Gaussian(1.0), "step")
    for term, kind in [
        (Subset(spend, 3, 10), FixedSize),
        (ReplacedSample(spend, 0.1), ReplacedSampleLoss),
        (Allocated(spend, 10), AllocatedLoss),
    ]:
        (world,) = worlds(term)
        ((loss, times),) = world.spends.items()
        assert (type(loss), times) == (kind, 1)
        assert pruned(term, lambda name: True) == term
        assert [w.spends for w in worlds(pruned(term, lambda name: False))] == [{}]
        assert (
            measure(pruned(term, lambda name: name != "step"), Renyi(), delta=0.0).bounds.upper == 0
        )
    (world,) = worlds(Allocated(spend, 10, times=3))
    assert world.spends == {AllocatedLoss(body(Gaussian(1.0)), 3): 3}
    assert not worlds(Allocated(spend, 10, times=3)).exact


def test_what_exchanges_units_refuses_parts_by_choice() -> None:
    """A unit of one choice may be replaced by one of another: both are touched."""
    parts = Parallel([Spend(Pure(1.0)), Spend(Pure(1.0))])
    for make in (lambda part: Subset(part, 1, 2), lambda part: ReplacedSample(part, 0.5)):
        for part in (parts, Sequential([Repeated(parts, 2)]), Allocated(parts, 2)):
            with pytest.raises(InapplicableError, match="Parallel"):
                worlds(make(part))
        assert worlds(make(Parallel([Spend(Pure(1.0))]))).exact
        assert worlds(Parallel([make(Spend(Pure(1.0))), Spend(Gaussian(1.0))])).exact
    # of Gaussian noise two shifts at a right angle cost less than the longer one against its mirror
    noisy = Sequential([Spend(Gaussian(0.3)), Parallel([Spend(Gaussian(0.4)), Spend(Gaussian(1))])])
    whole = ReplacedSample(Sequential([Spend(Gaussian(0.3)), Spend(Gaussian(1.0))]), 0.5)
    answers = [measure(t, Distribution(), delta=1e-3) for t in (ReplacedSample(noisy, 0.5), whole)]
    assert answers[0].bounds == answers[1].bounds
    with pytest.raises(InapplicableError, match="Parallel"):
        worlds(ReplacedSample(Repeated(Parallel([Spend(Pure(0.2)), Spend(Gaussian(1))]), 2), 0.5))
    mixed = Allocated(Parallel([Spend(Pure(1.0)), Spend(Gaussian(0.2))]), 5)
    assert not worlds(mixed).exact
    assert measure(mixed, Renyi(), delta=1e-6).bounds.upper <= 1.2


@pytest.mark.parametrize(
    "make",
    [
        lambda: Subset(Spend(Pure(1.0)), 3, 2),
        lambda: Subset(Spend(Pure(1.0)), -1, 2),
        lambda: Subset(Spend(Pure(1.0)), 0.5, 2),
        lambda: Subset(Pure(1.0), 1, 2),
        lambda: ReplacedSample(Spend(Pure(1.0)), 1.5),
        lambda: ReplacedSample(3, 0.5),
        lambda: Allocated(Spend(Pure(1.0)), 0),
        lambda: Allocated(Spend(Pure(1.0)), 2, times=3),
        lambda: Allocated(None, 2),
        lambda: FixedSize(body(Pure(1.0)), 3, 2),
        lambda: FixedSize(Pure(1.0), 1, 2),
        lambda: ReplacedSampleLoss(body(Pure(1.0)), math.nan),
        lambda: AllocatedLoss(body(Pure(1.0)), 0),
        lambda: AllocatedLoss(Pure(1.0), 1),
    ],
)
def test_bad_parameters_are_refused(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.6, 1.0])
def test_sampled_profiles_at_negative_epsilons(rate: float) -> None:
    """The hockey-stick of two Bernoulli laws, summed, in whichever direction is larger."""
    body = Composite(((Pure(1.0), 1),))
    heads = math.e / (1 + math.e)
    bernoulli = np.array([heads, 1 - heads])
    mixed = (1 - rate) * bernoulli[::-1] + rate * bernoulli
    added = ((mixed, bernoulli[::-1]), (bernoulli[::-1], mixed))
    for epsilon in (-3.0, -0.5, -0.05, -1e-3):
        exact = max(np.maximum(p - math.exp(epsilon) * q, 0).sum() for p, q in added)
        bounds = SampledLoss(body, rate).profile(epsilon)
        assert bounds is not None
        assert bounds.upper == pytest.approx(exact, rel=1e-12, abs=1e-15)
        assert bounds.lower - 1e-15 <= exact <= bounds.upper + 1e-15
        replaced = ReplacedSampleLoss(body, rate).profile(epsilon)
        assert replaced is not None
        assert replaced.upper >= max(exact, -math.expm1(epsilon)) - 1e-15


@pytest.mark.parametrize("scheme", ["sampled", "allocated", "replaced"])
def test_a_body_of_several_losses_costs_no_more_than_its_losses(scheme: str) -> None:
    """Against the laws of all outcomes; the second body may be another one after each outcome."""
    three = PrivacyLoss.from_probabilities([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    heads = 1 / (1 + math.exp(-0.7))
    once = [
        np.outer(*laws).ravel()
        for laws in (([heads, 1 - heads], three.p), ([1 - heads, heads], three.q))
    ]
    present, absent = (np.array(law, dtype=float) for law in once)
    part = Sequential([Spend(Pure(0.7)), Spend(three)])
    if scheme == "sampled":
        term = Sampled(part, rate=0.9)
        laws = (0.1 * absent + 0.9 * present, absent)
    elif scheme == "replaced":
        term = ReplacedSample(part, rate=0.9)
        laws = (0.1 * absent + 0.9 * present, 0.1 * absent + 0.9 * absent)
    else:
        term = Allocated(part, steps=2)
        laws = (
            (np.outer(present, absent) + np.outer(absent, present)).ravel() / 2,
            np.outer(absent, absent).ravel(),
        )
    twice = [np.outer(law, law).ravel() for law in laws]
    # of a replaced unit, a pure loss is one of twice the epsilon
    exchanged = Sequential([Spend(Pure(0.7).replaced()), Grouped(Spend(three), 2)])
    accountant, without = Distribution(), exchanged if scheme == "replaced" else part
    for epsilon in (0.0, 0.4, 1.5):
        bounds = measure(Repeated(term, 2), accountant, epsilon=epsilon).bounds
        body = measure(Repeated(without, 2), accountant, epsilon=epsilon).bounds
        for p, q in (twice, twice[::-1]):
            assert np.maximum(p - math.exp(epsilon) * q, 0).sum() <= bounds.upper + 1e-15
        assert bounds.lower <= bounds.upper <= body.upper * (1 + 1e-12)


def test_a_body_without_a_pair_is_bounded_by_its_losses() -> None:
    part = Sequential([Spend(Laplace(0.3)), Spend(Gaussian(0.4))])
    body = measure(part, Distribution(), delta=1e-6).bounds
    for term in (Sampled(part, rate=0.5), Allocated(part, steps=4), Subset(part, size=1, of=4)):
        bounds = measure(term, Distribution(), delta=1e-6).bounds
        assert bounds.upper <= body.upper * (1 + 1e-12)
        assert bounds.lower < body.lower
        other = Sequential([term, Spend(Laplace(0.1))])
        both = measure(other, Distribution(), delta=1e-6).bounds
        alone = measure(Sequential([part, Spend(Laplace(0.1))]), Distribution(), delta=1e-6).bounds
        assert bounds.upper < both.upper <= alone.upper * (1 + 1e-12)
