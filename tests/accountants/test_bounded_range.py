"""The exponential mechanism's loss against its two-point pairs, and against mechanisms."""

from __future__ import annotations

import itertools
from fractions import Fraction

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pairs_truth as pairs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import Distribution, GaussianDP, Pure, Repeated, Spend, measure
from accountants.errors import DomainError
from accountants.losses.selection import BoundedRange, BoundedRangePair

EPSILONS = [1e-8, 1e-3, 0.1, 1.0, 1.99, 2.01, 12.0, 300.0]


def two_points(epsilon: float, t: mp.mpf) -> list[tuple[mp.mpf, mp.mpf, mp.mpf]]:
    """The pair with losses t - epsilon and t."""
    grow, e = mp.exp(t), mp.exp(truth.real(epsilon))
    p = (e - grow) / (e - 1)
    rest = (grow - 1) / (e - 1)
    rows = [(t - truth.real(epsilon), rest, rest * e / grow), (t, p, p / grow)]
    assert mp.almosteq(rows[0][2] + rows[1][2], 1)
    return rows


def moment(epsilon: float):  # type: ignore[no-untyped-def]
    e = truth.real(epsilon)

    def value(z: mp.mpc) -> mp.mpc:
        w = z + mp.mpf(1) / 2
        return (mp.sinh(w * e) / (2 * w) if w != 0 else e / 2) / mp.sinh(e / 2)

    return value


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0, 9.0])
def test_the_profile_is_the_largest_of_all_two_point_pairs(epsilon: float) -> None:
    loss, e = BoundedRange(epsilon), truth.real(epsilon)
    places = [e * i / 400 for i in range(401)]
    every = [two_points(epsilon, t) for t in places]
    for share in (-1.5, -1.0, -0.9, -0.25, 0.0, 0.3, 0.77, 0.99):
        at = share * epsilon
        best = max(pairs.hockey(rows, at) for rows in every)
        bounds = loss.profile(at)
        attained = pairs.hockey(two_points(epsilon, (truth.real(at) + e) / 2), at)
        exact = max(best, attained if abs(share) < 1 else best)
        assert truth.real(bounds.lower) <= exact * (1 + mp.mpf(10) ** -40) <= bounds.upper
        assert bounds.upper - bounds.lower <= 1e-14 * bounds.upper
        assert best >= exact * (1 - mp.mpf("1e-3"))  # the grid's best t is near the formula's
    assert loss.profile(epsilon).upper == 0.0


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0, 9.0])
def test_the_pair_has_the_profile_also_at_negative_epsilon(epsilon: float) -> None:
    pair = BoundedRangePair(epsilon)
    at = np.linspace(-1.2, 1.2, 49) * epsilon
    lower, upper = pair.profile(at)
    for place, low, high in zip(at, lower, upper, strict=True):
        bounds = BoundedRange(epsilon).profile(float(place))
        assert low <= bounds.upper
        assert bounds.lower <= high
        assert high - low <= 1e-12
    assert not pair.is_tight()


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_tails_are_integrals_of_the_density(epsilon: float) -> None:
    pair, e = BoundedRangePair(epsilon), truth.real(epsilon)
    for share in (-1.5, -1.0, -0.999, -0.4, 0.0, 0.4, 0.999, 1.0, 1.5):
        at = share * epsilon
        x = max(-e, min(e, truth.real(at)))
        p = (mp.exp(e / 2) - mp.exp(x / 2)) / (2 * mp.sinh(e / 2))
        q = (mp.exp(-x / 2) - mp.exp(-e / 2)) / (2 * mp.sinh(e / 2))
        above, below = pair.above(np.array([at])), pair.below(np.array([at]))
        for computed, exact in ((above[0], p), (above[1], q), (below[0], 1 - p), (below[1], 1 - q)):
            slack = truth.real(pair.tail_error()) * exact + mp.mpf(10) ** -40
            assert abs(computed[0] - exact) <= slack, (share, computed, exact)
    z = mp.mpc(0.3, 0.7)
    if epsilon < 10:
        integral = mp.quad(
            lambda x: mp.exp(z * x + x / 2) / (4 * mp.sinh(e / 2)), mp.linspace(-e, e, 4)
        )
        assert mp.almosteq(integral, moment(epsilon)(z), 1e-30)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_log_moments_are_within_their_errors(epsilon: float) -> None:
    exact = moment(epsilon)
    z = pairs.points(7, 40)
    pairs.moments_hold(BoundedRangePair(epsilon), z, lambda z: mp.log(exact(z)))
    many = BoundedRangePair.log_moments([(BoundedRangePair(epsilon), 7)], z)
    one = BoundedRangePair(epsilon).log_moment(z)
    assert np.all(np.abs(many[0] - 7 * one[0]) <= many[1] + 7 * one[1])


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1])
def test_log_moments_of_small_losses_keep_their_digits(epsilon: float) -> None:
    value, error = BoundedRangePair(epsilon).log_moment(np.array([1.0, 3.0 + 2.0j, 1e-5]))
    assert np.all(error <= 1e-13 * np.abs(value))


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-300, 2000.0])
def test_extremes_raise_no_warning_and_stay_sound(epsilon: float) -> None:
    pair = BoundedRangePair(epsilon)
    value, error = pair.log_moment(pairs.points(3, 10))
    assert not np.any(np.isnan(value[np.isfinite(error)]))
    assert np.all(pair.decay(1.0, np.array([1e-3, 1.0, 1e3])) <= 0)
    curve = BoundedRange(epsilon).renyi(np.array([1.0001, 2.0, 1e6]))
    assert np.all((curve >= 0) & (curve <= epsilon))
    assert BoundedRange(epsilon).profile(0.0).upper <= 1.0
    pair.profile(np.array([-3000.0, -1.0, 0.0, 1.0, 3000.0]))
    bounds = measure(Spend(BoundedRange(epsilon)), Distribution(), delta=1e-6).bounds
    assert bounds is not None
    assert 0 <= bounds.lower <= bounds.upper <= epsilon


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 5.0, 80.0])
@pytest.mark.parametrize("tilt", [-0.5, -0.2, 0.0, 1.0, 30.0, -3.0])
def test_decay_bounds_the_modulus_from_there_on(epsilon: float, tilt: float) -> None:
    exact = moment(epsilon)
    beyond = np.geomspace(1e-2, 1e2, 9) / epsilon
    pairs.decays(BoundedRangePair(epsilon), tilt, beyond, lambda z: abs(exact(z)))


@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 0.099, 0.101, 1.0, 6.0, 100.0])
def test_renyi_is_the_largest_of_all_two_point_pairs(epsilon: float) -> None:
    loss, e = BoundedRange(epsilon), truth.real(epsilon)
    for order in (1.001, 1.5, 2.0, 8.0, 100.0):
        a = truth.real(order)
        z = a - 1
        with mp.workdps(80):
            steps = mp.log(z / a) + e + mp.log((1 - mp.exp(-a * e)) / (1 - mp.exp(-z * e)))
            values = []
            for t in [steps, *(e * i / 60 for i in range(61))]:
                rows = two_points(epsilon, t)
                values.append(mp.log(mp.fsum(p * mp.exp(z * x) for x, p, _ in rows)) / z)
        assert max(values) <= values[0] + mp.mpf(10) ** -40
        computed = loss.renyi(np.array([order]))[0]
        truth.within(computed, values[0], 1e-10, 1e-14 * epsilon)
        pair = BoundedRangePair(epsilon).log_moment(np.array([order - 1 + 0j]))[0].real[0] / float(
            z
        )
        assert computed <= pair * (1 + 1e-9) + 1e-14


@pytest.mark.parametrize("epsilon", [1e-9, 1e-2, 0.0999, 0.1001, 1.0, 4.0, 30.0, 700.0])
def test_rho_is_the_supremum_of_the_curve_over_the_order(epsilon: float) -> None:
    e = truth.real(epsilon)

    def k(x: mp.mpf) -> mp.mpf:
        return mp.log(mp.sinh(x / 2) / (x / 2))

    rho, ratios = BoundedRange(epsilon).rho(), []
    for exponent in np.linspace(-9, 6, 91):
        with mp.workdps(110):
            z = mp.mpf(10) ** float(exponent)
            a = 1 + z
            ratios.append((a * k(a * e) - z * k(z * e) - k(e)) / z / a)
    assert max(ratios) <= rho
    assert max(ratios) >= truth.real(rho) * (1 - mp.mpf("1e-7"))
    assert rho <= epsilon**2 / 8 * (1 + 1e-14)


def quantile(probability: mp.mpf) -> mp.mpf:
    """Phi^-1 of a probability of at most 1/2, by Newton's steps on log Phi."""
    z = -mp.sqrt(2 * max(mp.log(1 / (2 * probability)), mp.mpf(0)))
    for _ in range(60):
        step = mp.log(mp.ncdf(z) / probability) * mp.ncdf(z) / mp.npdf(z)
        z -= step
        if abs(step) < mp.mpf(10) ** (10 - mp.mp.dps):
            break
    return z


@pytest.mark.parametrize("epsilon", [1e-6, 1e-2, 0.3, 1.0, 2.5, 9.0, 40.0])
def test_mu_is_the_largest_of_all_two_point_pairs(epsilon: float) -> None:
    """Each trade-off curve's vertex lies on that of ``Phi^-1(1 - alpha) - Phi^-1(beta)``."""
    e, needed = truth.real(epsilon), []
    with mp.workdps(80 + int(epsilon / 2)):
        for i in range(1, 40):
            (_, _, alpha_), (_, p, q) = two_points(epsilon, e * i / 40)
            alpha, beta = q, 1 - p  # reject Q where the loss is t; alpha + beta is below 1
            assert mp.almosteq(alpha + alpha_, 1)
            # of the complement where it is above 1/2
            first = quantile(alpha) if 2 * alpha <= 1 else -quantile(1 - alpha)
            second = quantile(beta) if 2 * beta <= 1 else -quantile(1 - beta)
            needed.append(-first - second)
    mu = BoundedRange(epsilon).mu()
    assert mu is not None
    assert max(needed) <= mu
    assert needed.index(max(needed)) == 19  # t = epsilon / 2
    truth.within(mu, max(needed), 1e-13, 1e-14)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_compositions_are_no_easier_to_tell_apart_than_gaussians(epsilon: float) -> None:
    """Every choice of t for each of three queries, by the exact law."""
    mu = BoundedRange(epsilon).mu()
    assert mu is not None
    places = [truth.real(epsilon) * share / 8 for share in (1, 3, 4, 6)]
    for choice in itertools.combinations_with_replacement(places, 3):
        product = [
            (a[0] + b[0] + c[0], a[1] * b[1] * c[1], a[2] * b[2] * c[2])
            for a, b, c in itertools.product(*(two_points(epsilon, t) for t in choice))
        ]
        for at in (0.0, epsilon, 2 * epsilon):
            assert pairs.hockey(product, at) <= truth.gaussian_delta(mp.sqrt(3) * mu, at)


def test_an_exponential_mechanism_costs_half_under_gaussian_dp() -> None:
    choices = Repeated(Spend(BoundedRange(0.1)), 100)
    # mu = 10 * 2 Phi^-1(s(0.05)), by mpmath
    mu = 20 * -quantile(1 / (1 + mp.exp(mp.mpf("0.05"))))
    upper = measure(choices, GaussianDP(), delta=1e-6).bounds.upper
    attained = truth.gaussian_delta(mu, upper)
    assert 1e-6 * (1 - 1e-9) <= attained <= 1e-6
    answers = Repeated(Spend(Pure(0.1)), 100)
    assert upper < 0.48 * measure(answers, GaussianDP(), delta=1e-6).bounds.upper


@pytest.mark.parametrize("epsilon", [1401.0, 1e6])
def test_a_range_beyond_all_floats_has_no_mu(epsilon: float) -> None:
    assert BoundedRange(epsilon).mu() is None
    assert measure(Spend(BoundedRange(epsilon)), GaussianDP(), delta=1e-6).bounds.upper >= 0


@pytest.mark.parametrize("prior", [(1.0, 1.0, 1.0), (0.01, 1.0, 30.0)])
def test_it_dominates_exponential_mechanisms(prior: tuple[float, ...]) -> None:
    """Scores that move by at most 1, from every start; epsilon 2c, or c if monotone."""
    c = 0.6
    at = np.linspace(-1.4, 1.4, 15).tolist()
    for moves, epsilon in (((-1.0, 0.0, 1.0), 2 * c), ((0.0, 0.4, 1.0), c)):
        for move in itertools.product(moves, repeat=3):
            for start in ((0, 0, 0), (0, 1, 5)):
                laws = []
                for extra in ((0, 0, 0), move):
                    weights = [
                        b * mp.exp(truth.real(c) * (q + x))
                        for b, q, x in zip(prior, start, map(truth.real, extra), strict=True)
                    ]
                    laws.append([weight / mp.fsum(weights) for weight in weights])
                rows = [(mp.log(p / q), p, q) for p, q in zip(*laws, strict=True)]
                assert max(r[0] for r in rows) - min(r[0] for r in rows) <= epsilon + 1e-15
                pairs.dominated(BoundedRangePair(epsilon), rows, at)


def test_compositions_of_two_point_pairs_are_dominated() -> None:
    """Every choice of t for each of three queries."""
    epsilon = 0.8
    pair = BoundedRangePair(epsilon)
    draw = np.random.default_rng(5)
    losses = draw.uniform(size=(3, 400_000))
    density = np.log1p(losses * np.expm1(epsilon)) * 2 - epsilon  # P has density e^{l/2}
    total = density.sum(axis=0)
    for places in ((0.4, 0.4, 0.4), (0.1, 0.4, 0.7), (0.5, 0.5, 0.7)):
        rows = [two_points(epsilon, truth.real(t)) for t in places]
        product = [
            (a[0] + b[0] + c[0], a[1] * b[1] * c[1], a[2] * b[2] * c[2])
            for a, b, c in itertools.product(*rows)
        ]
        for at in (0.0, 0.5, 1.2):
            mean = np.maximum(0.0, -np.expm1(at - total))
            # six standard errors: a false alarm below 1e-8
            upper = mean.mean() + 6 * mean.std() / np.sqrt(mean.size)
            assert pairs.hockey(product, at) <= upper
    assert not pair.is_tight()


def largest(order: list[float | None], epsilon: float, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Deltas of mechanisms in a row, on a lattice: None has the range, a number is pure.

    Those of the range choose the best t on the lattice by all outcomes before.
    """
    h = epsilon / m
    reach = sum(m if one is None else round(one / h) for one in order)
    a = h * np.arange(-2 * reach, 2 * reach + 1)
    t = h * np.arange(m + 1)
    p = np.expm1(t - epsilon) / np.expm1(-epsilon)
    values = np.maximum(0.0, -np.expm1(a))
    for one in reversed(order):  # what is left after the last one first
        steps = m if one is None else round(one / h)
        below = -np.expm1(a[0] - h * np.arange(steps, 0, -1))
        every = np.concatenate([below, values, np.zeros(steps)])

        def moved(j: int, every: np.ndarray = every, steps: int = steps) -> np.ndarray:
            return every[steps - j : steps - j + len(a)]

        if one is None:
            parts = [p[j] * moved(j) + (1 - p[j]) * moved(j - m) for j in range(m + 1)]
            values = np.max(parts, axis=0)
        else:
            yes = 1 / (1 + np.exp(-one))
            values = yes * moved(steps) + (1 - yes) * moved(-steps)
    inside = (a >= 0) & (a <= h * reach)
    return a[inside], values[inside]


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 6.0])
def test_two_that_are_chosen_as_one_goes(epsilon: float) -> None:
    """By the closed form of what the last one attains, at the best first one."""
    at = epsilon * np.array([0.0, 0.3, 1.0, 1.5, 1.8])
    t = np.linspace(0, epsilon, 20_001)

    def last(a: np.ndarray) -> np.ndarray:
        inside = np.clip(a, -epsilon, epsilon)
        closed = np.expm1((inside - epsilon) / 2) ** 2 / -np.expm1(-epsilon)
        return np.where(a < -epsilon, -np.expm1(np.minimum(a, 0.0)), closed)

    p = np.expm1(t - epsilon) / np.expm1(-epsilon)
    exact = (p * last(at[:, None] - t) + (1 - p) * last(at[:, None] - t + epsilon)).max(axis=1)
    accountant = Distribution()
    state = accountant.compose(accountant.start(), BoundedRange(epsilon), 2)
    lower, upper = accountant.profile(state, at)
    assert np.all(lower <= exact * (1 + 1e-7))
    assert np.all(exact <= upper * (1 + 1e-12))
    assert np.all(upper - lower <= 2e-3 * upper)


@pytest.mark.parametrize(
    ("order", "epsilon"),
    [
        ([None] * 7, 0.3),
        ([None] * 120, 0.1),
        ([None, 0.6, None, 0.6, None], 1.2),
    ],
)
def test_some_chosen_as_one_goes(order: list[float | None], epsilon: float) -> None:
    """No strategy is above the bound, wherever it stands; what is attained is not far below."""
    at, values = largest(order, epsilon, 4)
    seen = np.flatnonzero(values > 1e-12)
    at, values = (each[seen[3 :: 1 + len(seen) // 2]] for each in (at, values))
    accountant, ranges = Distribution(), sum(one is None for one in order)
    state = accountant.compose(accountant.start(), BoundedRange(epsilon), ranges)
    for one in order:
        if one is not None:
            state = accountant.compose(state, Pure(one))
    lower, upper = accountant.profile(state, at)
    assert np.all(values <= upper * (1 + 1e-11) + 1e-300)
    some = values > 1e-6
    assert np.all(upper[some] - lower[some] <= 0.1 * upper[some])
    assert np.all(lower <= upper)


def test_several_beyond_the_range_of_exponentials_raise_no_warning() -> None:
    pair, times = BoundedRange(6.9).attained_together(203) or (None, 0)
    assert times == 1
    assert pair is not None
    assert 600 < pair.top() <= 203 * 6.9


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf"), "1", True])
def test_bad_parameters_are_refused(bad: object) -> None:
    with pytest.raises(DomainError):
        BoundedRange(bad)  # type: ignore[arg-type]


@examples(40)
@given(st.floats(1e-6, 50), st.integers(1, 9), st.floats(0, 50))
def test_laws(epsilon: float, size: int, at: float) -> None:
    loss = BoundedRange(epsilon)
    group = loss.grouped(size)
    assert group.dominates(loss)
    assert Fraction(group.pure()) == size * Fraction(epsilon)
    assert group.profile(at).upper >= loss.profile(at).lower
    orders = np.array([1.01, 2.0, 30.0])
    assert np.all(group.renyi(orders) >= loss.renyi(orders) * (1 - 1e-12))
    assert np.all(loss.renyi(orders) <= orders * loss.rho() * (1 + 1e-14))
