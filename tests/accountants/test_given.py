"""Losses given by one functional: every mechanism that satisfies it stays within them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Distribution,
    DomainError,
    Gaussian,
    InapplicableError,
    Pure,
    Repeated,
    Spend,
    certify,
    measure,
)
from accountants.finite import FinitePair, TailedPair, from_profile
from accountants.losses.gaussian import GaussianBound
from accountants.losses.given import (
    PrivacyProfile,
    RenyiCurve,
    ResponseBound,
    StretchedShift,
    TradeOff,
    ZeroConcentrated,
    curve_pair,
)

GRID = [-30.0, -3.0, -1.0, -0.2, 0.0, 1e-9, 0.1, 0.5, 1.0, 1.7, 2.5, 4.0, 6.0, 9.0, 14.0, 30.0]


def sticks(failure: float, pair, epsilon: float) -> float:  # type: ignore[no-untyped-def]
    both = [side.profile(np.array([epsilon]))[1][0] for side in (pair, pair.reversed())]
    return failure + (1 - failure) * float(max(both))


def at_real(delta_at, epsilon: float):  # type: ignore[no-untyped-def]
    """A symmetric profile at any real epsilon."""
    if epsilon >= 0:
        return delta_at(epsilon)
    grow = mp.exp(truth.real(epsilon))
    return 1 - grow + grow * delta_at(-epsilon)


# --- pairs from profiles


pairs = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=2, max_size=6)


def discrete(rows) -> truth.Pair:  # type: ignore[no-untyped-def]
    p, q = sum(a for a, _ in rows), sum(b for _, b in rows)
    return [(mp.mpf(a) / p, mp.mpf(b) / q) for a, b in rows]


def rounded_up(value) -> float:  # type: ignore[no-untyped-def]
    near = float(value)
    return min(1.0, near if truth.real(near) >= value else math.nextafter(near, 2))


@examples(60)
@given(pairs, st.lists(st.floats(0, 5), min_size=1, max_size=6, unique=True))
def test_any_pair_stays_under_the_pair_of_some_of_its_profile(rows, epsilons) -> None:  # type: ignore[no-untyped-def]
    exact = truth.Profile(discrete(rows))
    failure, pair = from_profile(epsilons, [rounded_up(exact(e)) for e in epsilons])
    for e in (*GRID, *epsilons):
        assert at_real(exact, e) <= truth.real(sticks(failure, pair, e)) * (1 + mp.mpf("1e-15"))


@examples(60)
@given(
    st.lists(
        st.tuples(st.floats(0, 40), st.floats(0, 1)),
        min_size=1,
        max_size=8,
        unique_by=lambda x: x[0],
    )
)
def test_masses_are_consistent_and_no_better_than_the_points_hull(points) -> None:  # type: ignore[no-untyped-def]
    epsilons, deltas = zip(*points, strict=True)
    failure, pair = from_profile(epsilons, deltas)
    p, q = [truth.real(v) for v in pair.p], [truth.real(v) for v in pair.q]
    assert abs(mp.fsum(p) - 1) < 1e-14
    assert abs(mp.fsum(q) - 1) < 1e-14
    for a, b, loss in zip(p, q, pair.losses, strict=True):
        assert abs(a / (b * mp.exp(truth.real(loss))) - 1) < 1e-15
    assert pair.losses == tuple(-loss for loss in reversed(pair.losses))
    assert not pair.is_tight()
    for e, d in points:
        assert sticks(failure, pair, e) <= d * (1 + 1e-12) + 1e-12
    # every chord of two points, over the pair
    for (e, d), (f, g) in itertools.combinations(sorted(points), 2):
        s, t = mp.exp(truth.real(e)), mp.exp(truth.real(f))
        middle = float(mp.log((s + t) / 2))
        assert sticks(failure, pair, middle) <= (d + g) / 2 + 1e-12


def test_pair_of_the_given_points_exactly() -> None:
    """Exact rationals: with delta d at t = 2 alone, P has 2/3 of 1 - d at twice Q's mass."""
    failure, pair = from_profile([math.log(2.0)], [0.25])
    assert failure == 0.25
    np.testing.assert_allclose(pair.p, [1 / 3, 2 / 3], rtol=1e-15)


@pytest.mark.parametrize(
    ("epsilons", "deltas"),
    [
        ([1.0, 2.0, 500.0], [0.1, 1e-300, 0.0]),
        ([700.0], [0.1]),
        ([1.0, 600.0], [1e-9, 0.0]),
        ([0.0], [0.0]),
        ([0.0, 1e-320, 5e-31], [0.5, 0.3, 0.2]),
        ([1.0], [1.0]),
        ([1e-300], [1e-300]),
        ([math.nextafter(1, 2), 1.0], [0.1, 0.1000001]),
    ],
)
def test_extreme_profiles(epsilons, deltas) -> None:  # type: ignore[no-untyped-def]
    failure, pair = from_profile(epsilons, deltas)
    assert min(deltas) <= failure <= 1
    assert min(pair.p + pair.q) >= 1e-290
    for e, d in zip(epsilons, deltas, strict=True):
        assert sticks(failure, pair, min(e, 600.0)) >= d * (1 - 1e-12) or d > min(deltas)


# --- given (epsilon, delta)s


def test_one_point_is_approximate() -> None:
    one, other = PrivacyProfile([(1.0, 1e-5)]), Approximate(1.0, 1e-5)
    assert one.delta_floor() == other.delta_floor()
    assert one.pure() == 1.0
    orders = np.array([1.5, 2.0, 9.0])
    np.testing.assert_allclose(one.renyi(orders), other.renyi(orders), rtol=1e-12)
    for e in (0.0, 0.3, 0.9, 1.0, 2.0):
        assert math.isclose(one.profile(e).upper, other.profile(e).upper, rel_tol=1e-9)
        assert one.profile(e).lower == 0.0


def test_profile_at_its_points_and_between() -> None:
    loss = PrivacyProfile([(0.5, 0.2), (1.0, 0.1), (2.0, 0.001)])
    for e, d in loss.points:
        assert d <= loss.profile(e).upper <= d * (1 + 1e-11)
    assert loss.profile(3.0).upper <= 0.001 * (1 + 1e-12)
    middle = math.log((math.e + math.e**2) / 2)
    assert math.isclose(loss.profile(middle).upper, 0.0505, rel_tol=1e-12)
    # E of the pair by mirror: h(1/t) = 1 - 1/t + h(t)/t
    assert math.isclose(loss.profile(-1.0).upper, 1 - math.exp(-1) * 0.9, rel_tol=1e-12)


def test_profile_s_groups_are_those_of_its_points() -> None:
    loss = PrivacyProfile([(0.5, 1e-3), (1.0, 1e-6)])
    assert loss.grouped(1).points == loss.points
    for (e, d), (f, g) in zip(loss.points, loss.grouped(3).points, strict=True):
        one = Approximate(e, d).grouped(3)
        assert (f, g) == (one.epsilon, one.delta)
    assert loss.grouped(3).dominates(loss)
    assert not loss.dominates(loss.grouped(3))


def test_profile_composes_soundly() -> None:
    """Two leaky responses given by two points, against their exact composition."""
    one = truth.leaky(0.7, 0.001)
    both = truth.Profile(truth.product([one, one]))
    exact = truth.Profile(one)
    loss = PrivacyProfile([(e, rounded_up(exact(e))) for e in (0.2, 0.7)])
    answers = certify(Repeated(Spend(loss), 2), 0.01)
    for name, answer in answers.items():
        assert answer.bounds is not None, name
        assert answer.bounds.lower == 0.0
        truth.proves(answer.bounds.upper, both, 0.01)


# --- given errors of tests


def trade_off(points: truth.Pair, alpha: float) -> mp.mpf:
    """The least type II error at type I error alpha of testing Q (null) against P."""
    rows = sorted(points, key=lambda r: -(r[0] / r[1]))
    left, power = truth.real(alpha), mp.mpf(0)
    for p, q in rows:
        share = min(mp.mpf(1), left / q)
        power, left = power + share * p, left - share * q
        if left <= 0:
            break
    return 1 - power


def rounded_down(value) -> float:  # type: ignore[no-untyped-def]
    near = float(value)
    return max(0.0, near if truth.real(near) <= value else math.nextafter(near, -1))


@examples(60)
@given(pairs, st.lists(st.floats(0.001, 0.95), min_size=1, max_size=6, unique=True))
def test_any_pair_stays_under_some_of_its_trade_off(rows, alphas) -> None:  # type: ignore[no-untyped-def]
    pair = discrete(rows)
    flipped = [(q, p) for p, q in pair]
    exact = truth.Profile(pair)
    betas = [
        rounded_down(min(trade_off(pair, a), trade_off(flipped, a)) * (1 - mp.mpf("1e-15")))
        for a in alphas
    ]
    loss = TradeOff(list(zip(alphas, betas, strict=True)))
    for e in GRID:
        assert at_real(exact, e) <= truth.real(loss.profile(e).upper) * (1 + mp.mpf("1e-15"))


def brute_trade_off_delta(points, t: Fraction) -> Fraction:  # type: ignore[no-untyped-def]
    """sup_x 1 - t x - F(x) over a grid of x with F as the docstring defines it."""
    corners = [(Fraction(a), Fraction(b)) for a, b in points if a and b]
    corners += [(b, a) for a, b in corners]
    best = Fraction(0)
    for i in range(1, 1000):
        x = Fraction(i, 1000)
        f = Fraction(0)
        for a, b in corners:
            f = max(f, 1 - (1 - b) * x / a if x >= a else b * (1 - x) / (1 - a))
        best = max(best, 1 - t * x - f)
    return best


@pytest.mark.parametrize(
    "points",
    [
        [(0.25, 0.5)],
        [(0.125, 0.75), (0.25, 0.5)],
        [(0.0625, 0.875), (0.125, 0.8125), (0.375, 0.25)],
        [(0.03125, 0.96875)],
        [(0.5, 0.125)],
    ],
)
def test_trade_off_is_what_its_points_force_and_no_more(points) -> None:  # type: ignore[no-untyped-def]
    loss = TradeOff(points)
    for t in (1, 2, 3, 7, 20):
        computed, brute = (
            loss.profile(math.log(t)).upper,
            brute_trade_off_delta(points, Fraction(t)),
        )
        assert computed >= float(brute) * (1 - 1e-12)
        assert computed <= float(brute) + t / 1000 * 3 + 1e-12


def test_perfect_tests_are_distinguished_and_guesses_are_not() -> None:
    assert TradeOff([(0.0, 0.9)]).delta_floor() == 1.0
    assert TradeOff([(0.3, 0.0)]).delta_floor() == 1.0
    guess = TradeOff([(0.25, 0.75)])
    assert guess.delta_floor() == 0.0
    assert guess.profile(0.0).upper <= 1e-14


def test_trade_off_near_zero_finds_the_gaussian() -> None:
    alphas = [float(a) for a in np.geomspace(1e-8, 0.4, 240)]
    exact = [mp.ncdf(-1 - mp.sqrt(2) * mp.erfinv(2 * truth.real(a) - 1)) for a in alphas]
    loss = TradeOff([(a, rounded_down(b)) for a, b in zip(alphas, exact, strict=True)])
    for e in (0.0, 0.5, 1.0, 2.0, 3.0):
        delta = Gaussian(1.0).profile(e).upper
        assert delta <= loss.profile(e).upper <= delta * 1.12


# --- Renyi curves


def exact_curve(pair: truth.Pair, orders) -> list[float]:  # type: ignore[no-untyped-def]
    return [max(0.0, float(truth.renyi(pair, a))) * (1 + 1e-14) for a in orders]


@examples(15)
@given(pairs, st.lists(st.floats(1.01, 60), min_size=1, max_size=5, unique=True))
def test_any_pair_stays_under_some_of_its_curve(rows, orders) -> None:  # type: ignore[no-untyped-def]
    pair, orders = discrete(rows), sorted(orders)
    curve = RenyiCurve(orders, exact_curve(pair, orders))
    wanted = [1.001, 1.1, 1.7, 2.0, 3.3, 8.0, 20.0, *orders]
    divergence = curve.renyi(np.array(wanted))
    for order, value in zip(wanted, divergence, strict=True):
        assert order > orders[-1] or truth.renyi(pair, order) <= value * (1 + 1e-12) + 1e-15
    assert np.all(
        np.isinf(divergence[np.array(wanted) > orders[-1]]) | (min(curve.divergences) == 0)
    )


def test_curve_between_orders_by_hand() -> None:
    curve = RenyiCurve((2.0, 4.0, 8.0), (0.1, 0.2, 3.0))
    # (alpha - 1) D is 0.1, 0.6, 21
    np.testing.assert_allclose(
        curve.renyi(np.array([1.5, 2.0, 3.0, 4.0, 5.0, 8.0])),
        [0.1, 0.1, 0.35 / 2, 0.2, (0.75 * 0.6 + 0.25 * 21) / 4, 3.0],
        rtol=1e-14,
    )
    # a value at a higher order that is less than one at a lower order
    assert RenyiCurve((2.0, 4.0), (0.5, 0.1)).renyi(np.array([2.0]))[0] <= 0.1


def test_curve_of_zeros_is_nothing() -> None:
    for loss in (RenyiCurve((2.0, 3.0), (0.0, 1.0)), ZeroConcentrated(0.0)):
        assert loss.pure() == 0.0
        assert loss.profile(0.0).upper == 0.0
        assert np.all(loss.renyi(np.array([1.5, 100.0])) == 0)
        assert loss.pair().top() == 0.0


@pytest.mark.parametrize("size", [2, 3, 4])
def test_curve_s_groups_by_chains_of_gaussians(size: int) -> None:
    """N(0,1) to N(k mu, 1) is a chain of k steps with the curve alpha mu^2 / 2."""
    orders = tuple(float(a) for a in np.geomspace(1.2, 200, 120))
    curve = RenyiCurve(orders, tuple(float(v) for v in Gaussian(0.3).renyi(np.array(orders))))
    grouped = curve.grouped(size)
    some = np.array([1.5, 2.0, 4.0, 10.0])
    assert np.all(grouped.renyi(some) >= Gaussian(0.3 * size).renyi(some))
    assert np.all(grouped.renyi(some) < np.inf)


def test_curve_s_groups_end_with_the_orders() -> None:
    curve = RenyiCurve((2.0, 6.0), (0.1, 0.2))
    assert curve.grouped(1) == curve
    assert curve.grouped(2).orders == (3.0,)
    with pytest.raises(InapplicableError, match="orders"):
        curve.grouped(9)


def test_curve_s_groups_hold_for_random_chains() -> None:
    laws = [truth.random_pair(seed, 4)[0] for seed in range(6)]
    for first, second in itertools.pairwise(laws):
        a, b, c = [p for p, _ in first], [q for _, q in first], [q for _, q in second]
        orders = (1.6, 3.0, 7.0)
        steps = [list(zip(a, b, strict=True)), list(zip(b, c, strict=True))]
        both = [exact_curve(s, orders) for s in steps]
        curve = RenyiCurve(orders, [max(v) for v in zip(*both, strict=True)])
        ends = list(zip(a, c, strict=True))
        for order in (1.2, 1.5, 3.5):
            divergence = float(curve.grouped(2).renyi(np.array([order]))[0])
            assert truth.renyi(ends, order) <= divergence


@pytest.mark.parametrize("rho", [1e-12, 1e-6, 0.01, 0.5, 3.0, 30.0])
def test_concentrated_pair_holds_what_the_curve_proves(rho: float) -> None:
    loss = ZeroConcentrated(rho)
    pair = loss.pair()
    assert isinstance(pair, TailedPair)
    mu = math.sqrt(2 * rho) * (1 - 1e-12)
    for share in (-2.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 6.0, 10.0, 40.0):
        e = share * mu
        least = at_real(lambda x: truth.real(Gaussian(mu).profile(x).lower), e)
        assert least <= sticks(0.0, pair, e)
        assert least <= loss.profile(e).upper
        if e >= 0:
            assert sticks(0.0, pair, e) <= loss.profile(e).upper * 1.5 + 1e-150


def test_tails_are_the_mirror_image_and_add_up() -> None:
    pair = RenyiCurve((1.5, 3.0), (0.1, 0.3)).pair()
    assert isinstance(pair, TailedPair)
    ends = np.array([-1e9, -500.0, -100.0, 0.05, 60.0, 100.0, 500.0, 1e9])
    p, q = pair.above(ends)
    assert np.all(np.diff(p) <= 0)
    assert np.all(np.diff(q) <= 0)
    assert p[0] == q[0] == 1.0
    lower_q, lower_p = pair.above(-ends)
    np.testing.assert_array_equal(pair.below(ends)[0], lower_p)
    np.testing.assert_array_equal(pair.below(ends)[1], lower_q)
    start = pair.atoms.top()
    total = (
        math.fsum(pair.atoms.p)
        + pair.mass
        + pair.mass * pair.rate / (1 + pair.rate) * math.exp(-start)
    )
    assert math.isclose(total, 1.0, rel_tol=1e-13)


@examples(6)
@given(pairs, st.lists(st.floats(1.05, 30), min_size=1, max_size=4, unique=True))
def test_any_pair_stays_under_the_pair_of_its_curve(rows, orders) -> None:  # type: ignore[no-untyped-def]
    exact_pair, orders = discrete(rows), sorted(orders)
    exact = truth.Profile(exact_pair)
    loss = RenyiCurve(orders, exact_curve(exact_pair, orders))
    pair = loss.pair()
    for e in GRID if pair is not None else ():
        assert at_real(exact, e) <= truth.real(sticks(0.0, pair, e)) + mp.mpf("1e-30")
    for e in GRID:
        assert at_real(exact, e) <= truth.real(loss.profile(e).upper) + mp.mpf("1e-30")


def test_pair_with_a_pure_epsilon_is_bounded_by_both() -> None:
    def curve(orders):  # type: ignore[no-untyped-def]
        return 0.05 * orders

    pair = curve_pair(curve, 1.0)
    assert isinstance(pair, FinitePair)
    assert pair.top() == 1.0
    for e in (0.0, 0.3, 0.7, 0.99):
        delta = sticks(0.0, pair, e)
        assert delta <= Pure(1.0).profile(e).upper * (1 + 1e-3)
        assert delta <= ZeroConcentrated(0.05).profile(e).upper * (1 + 1e-3)
    assert isinstance(curve_pair(curve, 0.0), ResponseBound)
    assert isinstance(curve_pair(lambda orders: 1e9 * orders, 1000.0), ResponseBound)
    assert curve_pair(lambda orders: 1e9 * orders) is None


# --- Gaussian and concentrated bounds


def test_bounds_have_no_lower_end_but_the_gaussian_s_upper() -> None:
    term = Repeated(Spend(GaussianBound(0.2)), 9)
    exact = certify(Repeated(Spend(Gaussian(0.2)), 9), 1e-6)
    for name, answer in certify(term, 1e-6).items():
        assert answer.bounds is not None
        assert answer.bounds.lower == 0.0
        assert math.isclose(answer.bounds.upper, exact[name].bounds.upper, rel_tol=1e-9)  # type: ignore[union-attr]
    assert not GaussianBound(0.2).pair().is_tight()
    assert GaussianBound(0.2).dominates(Gaussian(0.2))
    assert not Gaussian(0.2).dominates(GaussianBound(0.2))
    assert GaussianBound(0.5).grouped(3).mu() >= 1.5


def test_concentrated_under_every_accountant() -> None:
    term = Repeated(Spend(ZeroConcentrated(0.02)), 9)
    answers = certify(term, 1e-6)
    exact = certify(Repeated(Spend(Gaussian(0.2)), 9), 1e-6)
    for name in ("basic", "advanced", "concentrated", "renyi"):
        bounds = answers[name].bounds
        assert bounds is not None
        assert bounds.lower == 0.0
        assert bounds.upper >= exact["gaussian"].bounds.lower  # type: ignore[union-attr]
    assert answers["gaussian"].bounds is None
    assert math.isclose(
        answers["renyi"].bounds.upper,  # type: ignore[union-attr]
        exact["renyi"].bounds.upper,  # type: ignore[union-attr]
        rel_tol=1e-9,
    )
    assert ZeroConcentrated(0.02).dominates(Gaussian(0.1999))
    assert not ZeroConcentrated(0.02).dominates(Gaussian(0.2001))
    assert ZeroConcentrated(0.5).grouped(3).rho() >= 4.5


def test_curve_under_every_accountant() -> None:
    orders = tuple(float(a) for a in np.geomspace(1.1, 500, 200))
    curve = RenyiCurve(orders, tuple(float(v) for v in Gaussian(0.2).renyi(np.array(orders))))
    answers = certify(Repeated(Spend(curve), 9), 1e-6)
    exact = certify(Repeated(Spend(Gaussian(0.2)), 9), 1e-6)["renyi"].bounds
    bounds = answers["renyi"].bounds
    assert bounds is not None
    assert exact is not None
    assert exact.upper <= bounds.upper <= exact.upper * 1.001
    assert bounds.lower == 0.0
    assert answers["concentrated"].bounds is None
    assert answers["basic"].bounds is not None


@pytest.mark.parametrize(
    "loss",
    [
        PrivacyProfile([(0.5, 1e-2), (1.0, 1e-6)]),
        TradeOff([(0.001, 0.99), (0.3, 0.4)]),
        RenyiCurve((2.0, 8.0), (0.1, 0.5)),
        ZeroConcentrated(0.1),
        GaussianBound(0.3),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_are_values_with_sound_pairs(loss) -> None:  # type: ignore[no-untyped-def]
    from accountants.loss import parameters
    from accountants.testing.pairs import pair_problems

    same = type(loss)(**parameters(loss))
    assert same == loss
    assert hash(same) == hash(loss)
    assert list(pair_problems(loss.pair())) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda: RenyiCurve((), ()),
        lambda: RenyiCurve((1.0,), (0.1,)),
        lambda: RenyiCurve((3.0, 2.0), (0.1, 0.1)),
        lambda: RenyiCurve((2.0,), (0.1, 0.2)),
        lambda: RenyiCurve((2.0,), (math.inf,)),
        lambda: RenyiCurve((2.0,), (-0.1,)),
        lambda: ZeroConcentrated(-1.0),
        lambda: ZeroConcentrated(math.nan),
        lambda: GaussianBound(-1.0),
        lambda: PrivacyProfile([]),
        lambda: PrivacyProfile([(1.0, 2.0)]),
        lambda: PrivacyProfile([(-1.0, 0.1)]),
        lambda: PrivacyProfile([1.0, 2.0]),  # type: ignore[list-item]
        lambda: TradeOff([(0.5, 0.6)]),
        lambda: TradeOff([]),
        lambda: TradeOff([(1.5, 0.0)]),
        lambda: from_profile([1.0], []),
        lambda: from_profile([math.inf], [0.1]),
    ],
)
def test_bad_parameters(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()


def test_equal_losses_share_a_pair_and_unequal_ones_do_not() -> None:
    one, same, other = (ZeroConcentrated(rho) for rho in (0.05, 0.05, 0.051))
    assert one.pair() is same.pair()
    assert one.pair() != other.pair()
    curve = RenyiCurve(orders=(2, 4), divergences=(0.1, 0.2))
    assert curve.pair() is RenyiCurve(orders=(2.0, 4.0), divergences=(0.1, 0.2)).pair()
    bracket = [
        measure(Spend(loss), Distribution(), delta=1e-6).bounds for loss in (one, same, other)
    ]
    assert bracket[0] == bracket[1]
    assert bracket[0].upper < bracket[2].upper


@pytest.mark.parametrize(("shift", "stretch"), [(0.1, 0.005), (1.0, 0.5), (0.5, 1e-4), (0.0, 0.1)])
def test_a_stretch_and_a_shift(shift: float, stretch: float) -> None:
    """Laplace log-normal noise whose curve is integrated, and the bound in 50 digits at any k."""
    loss = StretchedShift(shift, stretch)
    orders = np.array([1.5, 3.0, 12.0, 60.0, 400.0])
    found = loss.renyi(orders)
    assert np.all(found <= orders * loss.rho() * (1 + 1e-12))
    assert np.all(found <= orders * stretch + shift + 1e-12)
    with mp.workdps(50):
        for order, bound in zip(orders, found, strict=True):
            best = mp.inf
            for k in [1 + mp.mpf(10) ** (mp.mpf(j) / 8) for j in range(-28, 40)]:
                pure = mp.mpf(0)
                if shift:
                    a, p = k * order, mp.exp(shift) / (1 + mp.exp(shift))
                    moment = p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a)
                    pure = mp.log(moment) / (a - 1)
                best = min(best, order * stretch * k / (k - 1) + pure)
            assert float(best) * (1 - 1e-9) <= bound * 1.02
            assert bound >= min(float(best), order * stretch + shift) * (1 - 5e-3)


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_laplace_log_normal_noise_is_within_its_curve(epsilon: float) -> None:
    """The densities of Z and ``e^b Z + s`` at the ends of both, integrated, both ways."""
    sigma = math.sqrt(1 / 3)
    b, s = sigma * epsilon / 2, epsilon / 2 * math.exp(-0.5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    scales, masses = np.exp(sigma * nodes), weights / weights.sum()

    def log_density(x: Any) -> Any:
        return np.log((np.exp(-np.abs(x)[:, None] / scales) / (2 * scales)) @ masses)

    x = np.concatenate([-np.geomspace(1e-6, 300, 6_000)[::-1], np.geomspace(1e-6, 300, 6_000)])
    own = log_density(x)
    other = log_density((x - s) * math.exp(-b)) - b
    loss = StretchedShift(epsilon / 2, (epsilon / 2) ** 2 / 2)
    for order in (1.5, 4.0, 16.0):
        bound = loss.renyi(np.array([order]))[0]
        for p, q in ((own, other), (other, own)):
            moment = np.trapezoid(np.exp(order * p + (1 - order) * q), x)
            assert math.log(moment) / (order - 1) <= bound


def test_a_shift_whose_square_no_float_holds() -> None:
    loss = StretchedShift(1e155, 0.25)
    assert loss.rho() == math.inf
    # the step of k = infinity: orders times the stretch, and the shift
    assert loss.renyi(np.array([2.0]))[0] == pytest.approx(1e155)
