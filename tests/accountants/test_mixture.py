"""Mixtures of Gaussians: against half-lines, vectors in the plane, and a peer."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from scipy import special

from accountants import (
    Distribution,
    DomainError,
    Gaussian,
    GaussianDP,
    GaussianMixture,
    Grouped,
    InapplicableError,
    Laplace,
    Renyi,
    Repeated,
    ReplacedSample,
    Sampled,
    Spend,
    Term,
    measure,
    worlds,
)
from accountants import losses as families
from accountants.distribution import lattice
from accountants.losses.gaussian import GaussianPair
from accountants.losses.mixture import MixturePair
from accountants.losses.sampling import SampledGaussianPair

MIXTURES = [
    GaussianMixture([0.5, 1.0, 1.5], [0.03, 3e-4, 1e-6]),
    GaussianMixture([0.01, 0.02], [0.5, 0.25]),
    GaussianMixture([1.0, 4.0], [0.7, 0.3]),
    GaussianMixture([3.0, 20.0], [1e-12, 1e-200]),
    GaussianMixture([2.0, 300.0], [0.9, 0.01]),
]


def sticks(loss: GaussianMixture, epsilon: float) -> tuple[mp.mpf, mp.mpf]:
    """Both directions' hockey-sticks: the ratio rises, so that the events are half-lines."""
    rows = [(truth.real(s), truth.real(p)) for s, p in zip(loss.shifts, loss.probabilities)]  # noqa: B905
    rest = 1 - mp.fsum(p for _, p in rows)
    ratio = mp.exp(truth.real(epsilon))

    def likelihood(x: mp.mpf) -> mp.mpf:
        return rest + mp.fsum(p * mp.exp(s * x - s * s / 2) for s, p in rows)

    def place(level: mp.mpf) -> mp.mpf | None:
        low, high = mp.mpf(-1000), mp.mpf(1000)
        if likelihood(low) >= level:
            return None
        for _ in range(220):
            middle = (low + high) / 2
            low, high = (middle, high) if likelihood(middle) < level else (low, middle)
        return high

    def normal(x: mp.mpf) -> mp.mpf:
        return mp.erfc(-x / mp.sqrt(2)) / 2

    x, y = place(ratio), place(1 / ratio)
    assert x is not None
    forward = rest * normal(-x) + mp.fsum(p * normal(s - x) for s, p in rows) - ratio * normal(-x)
    if y is None:
        return forward, mp.mpf(0)
    below = rest * normal(y) + mp.fsum(p * normal(y - s) for s, p in rows)
    return forward, normal(y) - ratio * below


@pytest.mark.parametrize("loss", MIXTURES, ids=repr)
def test_the_profile_is_that_of_half_lines(loss: GaussianMixture) -> None:
    for epsilon in (0.0, 1e-3, 0.1, 1.0, 4.0, 30.0):
        exact = max(sticks(loss, epsilon))
        bounds = loss.profile(epsilon)
        assert truth.real(bounds.lower) <= exact * (1 + mp.mpf("1e-25")) + mp.mpf("1e-290")
        assert exact <= truth.real(bounds.upper) * (1 + mp.mpf("1e-25"))
        if isinstance(loss.pair(), MixturePair) and exact > 1e-250:
            assert bounds.upper - bounds.lower <= 1e-6 * exact + 4 * loss.pair().tail_error()


@pytest.mark.parametrize("loss", MIXTURES[:4], ids=repr)
def test_tails_are_those_of_a_loss_next_to_the_one_asked(loss: GaussianMixture) -> None:
    pair = loss.pair()
    assert isinstance(pair, MixturePair)
    x = np.array([-20.0, -8.0, -2.0, -0.5, 0.0, 0.3, 1.0, 3.0, 9.0, 20.0])
    rows = [(truth.real(s), truth.real(p)) for s, p in zip(loss.shifts, loss.probabilities)]  # noqa: B905
    rest = 1 - mp.fsum(p for _, p in rows)
    losses = [
        float(mp.log(rest + mp.fsum(p * mp.exp(s * z - s * s / 2) for s, p in rows)))
        for z in map(truth.real, x.tolist())
    ]
    for z, at in zip(x.tolist(), losses, strict=True):
        if rest > 0 and abs(at - float(mp.log(rest))) < 1e-7:
            continue  # there one float is the loss of many outcomes
        above, below = pair.above(np.array([at])), pair.below(np.array([at]))
        tails = [
            (above[1][0], mp.erfc(truth.real(z) / mp.sqrt(2)) / 2),
            (below[1][0], mp.erfc(-truth.real(z) / mp.sqrt(2)) / 2),
        ]
        for computed, exact in tails:
            assert computed == pytest.approx(float(exact), rel=1e-6, abs=1e-300)


def test_of_one_unit_it_is_the_sampled_gaussian() -> None:
    step = Spend(GaussianMixture.of_sample(0.5, 0.01, leaving=1))
    for times in (1, 100, 2000):
        mine = measure(Repeated(step, times), Distribution(), delta=1e-6).bounds
        sampled = Repeated(Sampled(Spend(Gaussian(0.5)), 0.01), times)
        closed = measure(sampled, Distribution(), delta=1e-6).bounds
        assert mine.lower <= closed.upper
        assert closed.lower <= mine.upper
        assert mine.upper <= closed.upper * (1 + 1e-4)


@pytest.mark.parametrize("angle", [0.0, 0.7, 1.57, 3.1])
def test_vectors_in_the_plane_are_dominated_in_both_directions(angle: float) -> None:
    """Two units whose vectors point elsewhere: the exact laws on a grid of the plane."""
    mu, rate = 1.2, 0.3
    axis = np.linspace(-9, 11, 801)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2

    def normal(a: float, b: float) -> np.ndarray:
        return np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) / (2 * math.pi) * cell

    one, two = (mu, 0.0), (mu * math.cos(angle), mu * math.sin(angle))
    both = (one[0] + two[0], one[1] + two[1])
    q = normal(0, 0)
    p = (1 - rate) ** 2 * q + rate * (1 - rate) * (normal(*one) + normal(*two))
    p = p + rate**2 * normal(*both)
    pair = GaussianMixture.of_sample(mu, rate, leaving=2).pair()
    for side, (first, second) in ((pair, (p, q)), (pair.reversed(), (q, p))):
        for epsilon in (-1.0, -0.2, 0.0, 0.2, 0.5, 1.5):
            stick = float(np.maximum(first - math.exp(epsilon) * second, 0).sum())
            # the grid's own error is below 1e-4
            assert stick <= float(side.profile(np.array([epsilon]))[1][0]) + 1e-4
            if angle == 0.0:
                assert stick >= float(side.profile(np.array([epsilon]))[0][0]) - 1e-4


def test_groups_of_sampled_steps_are_mixtures() -> None:
    step = Sampled(Spend(Gaussian(0.5)), 0.01)
    (world,) = worlds(Grouped(Repeated(step, 100), 3))
    ((loss, times),) = world.spends.items()
    assert times == 100
    assert isinstance(loss, GaussianMixture)
    assert loss.shifts == pytest.approx((0.5, 1.0, 1.5), rel=1e-14)
    assert loss.shifts >= (0.5, 1.0, 1.5)
    exact = [
        math.comb(3, j) * Fraction(0.01) ** j * (1 - Fraction(0.01)) ** (3 - j) for j in (1, 2, 3)
    ]
    for j in range(3):
        # each or more is at least as likely, and not by more than rounding
        more = sum(map(Fraction, loss.probabilities[j:])) / sum(exact[j:])
        assert 1 <= more <= 1 + Fraction(1, 10**14)
    group = measure(Grouped(Repeated(step, 100), 3), Distribution(), delta=1e-6).bounds
    single = measure(Repeated(step, 100), Distribution(), delta=1e-6).bounds
    assert single.upper < group.upper < 5 * single.upper
    # the same loss, grouped after it was made a mixture
    again = GaussianMixture.of_sample(0.5, 0.01, leaving=1).joined(3)
    assert again.profile(0.3).upper == pytest.approx(loss.profile(0.3).upper, rel=1e-9)


def test_groups_of_other_sampled_bodies() -> None:
    (world,) = worlds(Grouped(Sampled(Spend(Laplace(1.0)), 0.1), 4))
    ((loss, _),) = world.spends.items()
    assert loss.pure() == pytest.approx(4 * math.log(1 + 0.1 * math.expm1(1)), rel=1e-12)
    assert loss.profile(0.1).lower == 0.0
    body = families.Sampled(families.Composite({families.ZeroConcentrated(0.1): 1}), 0.1)
    with pytest.raises(InapplicableError, match="group"):
        body.joined(2)


def test_of_units_some_of_which_leave_a_sample_claims_nothing() -> None:
    """How many leave and how many join is said by whoever knows it."""
    body = families.Sampled(families.Composite({Gaussian(0.5): 1}), 0.1)
    assert isinstance(body.joined(2), GaussianMixture)
    with pytest.raises(InapplicableError, match="leaving=, joining="):
        body.grouped(2)


def outcome_hockey(loss: GaussianMixture, epsilon: float) -> mp.mpf:
    """The masses right of the outcome whose loss is epsilon, by bisection."""
    sides = [
        [(mp.mpf(0), 1 - mp.fsum(map(mp.mpf, chances))), *zip(shifts, chances, strict=True)]
        for shifts, chances in (
            (loss.shifts, loss.probabilities),
            (loss.opposite_shifts, loss.opposite_probabilities),
        )
    ]
    low, high = mp.mpf(-60), mp.mpf(60)
    for _ in range(200):
        x = (low + high) / 2
        p = mp.fsum(p * mp.exp(s * x - mp.mpf(s) ** 2 / 2) for s, p in sides[0])
        q = mp.fsum(q * mp.exp(-t * x - mp.mpf(t) ** 2 / 2) for t, q in sides[1])
        low, high = (x, high) if mp.log(p / q) < epsilon else (low, x)
    above = mp.fsum(p * mp.ncdf(s - x) for s, p in sides[0])
    return above - mp.exp(epsilon) * mp.fsum(q * mp.ncdf(-t - x) for t, q in sides[1])


TO_BOTH_SIDES = [
    GaussianMixture.of_sample(0.5, 0.1, leaving=1, joining=1),
    GaussianMixture.of_sample(1.0, 0.01, leaving=2, joining=1),
    GaussianMixture.of_sample(2.0, 0.5, leaving=1, joining=4),
    GaussianMixture.of_sample(4.0, 1e-5, leaving=2, joining=2),
    GaussianMixture((0.3, 5.0), (0.2, 1e-12), (40.0,), (0.01,)),
    GaussianMixture((0.3,), (0.0,), (0.7,), (0.2,)),
]


@pytest.mark.parametrize("loss", TO_BOTH_SIDES, ids=range(len(TO_BOTH_SIDES)))
def test_mixtures_to_both_sides_are_their_integrals(loss: GaussianMixture) -> None:
    turned = GaussianMixture(
        loss.opposite_shifts, loss.opposite_probabilities, loss.shifts, loss.probabilities
    )
    with mp.workdps(50):
        for epsilon in (0.0, 0.1, 1.0, 6.0):
            true = max(outcome_hockey(each, epsilon) for each in (loss, turned))
            for bounds in (loss.profile(epsilon), turned.profile(epsilon)):
                assert bounds.lower <= true * (1 + mp.mpf(10) ** -15)
                assert true <= bounds.upper <= true * (1 + 1e-6) + 1e-290
    orders = np.array([1.01, 2.0, 8.0])
    finest = np.linspace(-60, 90, 60_001)
    with np.errstate(divide="ignore"):
        p, q = (
            np.log(
                np.exp(-(finest**2) / 2) * (1 - sum(chances))
                + sum(
                    c * np.exp(-((finest - way * s) ** 2) / 2)
                    for s, c in zip(shifts, chances, strict=True)
                )
                + 1e-300
            )
            for way, shifts, chances in (
                (1, loss.shifts, loss.probabilities),
                (-1, loss.opposite_shifts, loss.opposite_probabilities),
            )
        )
    step = (finest[1] - finest[0]) / math.sqrt(2 * math.pi)
    for order, bound in zip(orders, loss.renyi(orders), strict=True):
        for one, other in ((p, q), (q, p)):
            logs = order * one + (1 - order) * other
            seen = np.exp(logs[logs < 600]).sum() * step
            assert math.log(max(seen, 1e-9)) / (order - 1) <= bound * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize(("mu", "rate", "joining"), [(0.6, 0.3, 2), (2.0, 0.1, 1)])
def test_no_groups_of_a_small_universe_are_told_apart_better(
    mu: float, rate: float, joining: int
) -> None:
    """All rows that two leave, one or two join and one may stay with, in one dimension and two.

    Sums of a sample's vectors, each of a norm of at most mu, with noise, seen by the cells of a
    grid: that can only tell less, and next to nothing less in the worst case.
    """
    edges = np.linspace(-9, 9, 181)
    vectors = [np.array(v) * mu for v in ((1, 0), (-1, 0), (0.6, -0.8), (0, 0))]

    def law(rows: tuple[int, ...]) -> np.ndarray:
        total = np.zeros((len(edges) - 1,) * 2)
        for drawn in itertools.product((0, 1), repeat=len(rows)):
            center = sum((d * vectors[r] for d, r in zip(drawn, rows, strict=True)), np.zeros(2))
            chance = rate ** sum(drawn) * (1 - rate) ** (len(drawn) - sum(drawn))
            total += chance * np.outer(*(np.diff(special.ndtr(edges - c)) for c in center))
        return total

    pair, kept, worst = GaussianMixture.of_sample(mu, rate, leaving=2, joining=joining), {}, 0.0
    most = {epsilon: pair.profile(epsilon).upper for epsilon in (0.0, 0.2, 1.0)}
    for stays, left, come in itertools.product(
        ((), (2,)),
        itertools.combinations_with_replacement(range(4), 2),
        itertools.combinations_with_replacement(range(4), joining),
    ):
        for rows in ((*stays, *left), (*stays, *come)):
            if rows not in kept:
                kept[rows] = law(rows)
        laws = kept[*stays, *left], kept[*stays, *come]
        for p, q in (laws, laws[::-1]):
            for epsilon, bound in most.items():
                seen = np.maximum(p - math.exp(epsilon) * q, 0).sum()
                assert seen <= bound * (1 + 1e-12)
                worst = max(worst, seen / bound)
    assert worst > 0.99


def test_groups_that_are_replaced() -> None:
    """One is what a sample with a replaced unit is; of three the largest group of either kind."""
    steps = Repeated(ReplacedSample(Spend(Gaussian(0.5)), 0.01), 100)

    def epsilon(term: Term) -> float:
        bounds = measure(term, Distribution(), delta=1e-6).bounds
        assert bounds is not None
        return bounds.upper

    both = GaussianMixture.of_sample(0.5, 0.01, leaving=1, joining=1)
    assert epsilon(Repeated(Spend(both), 100)) == pytest.approx(epsilon(steps), rel=1e-5)
    three = epsilon(Grouped(steps, 3))
    for leaving, joining in ((3, 0), (2, 1), (1, 2)):
        mixed = GaussianMixture.of_sample(0.5, 0.01, leaving=leaving, joining=joining)
        assert epsilon(Repeated(Spend(mixed), 100)) < three
    # what has a pure epsilon as many times that; a sample in a sample is one of both rates
    loss = families.ReplacedSample(families.Composite({Laplace(1.0): 1}), 0.1)
    assert loss.grouped(3).pure() == pytest.approx(3 * loss.pure(), rel=1e-12)
    twice = ReplacedSample(Sampled(Spend(Gaussian(1.0)), 0.1), 0.1)
    once = epsilon(ReplacedSample(Spend(Gaussian(1.0)), 0.01))
    assert once < epsilon(twice) < 1.1 * once
    with pytest.raises(InapplicableError, match="group"):
        families.FixedSize(families.Composite({Gaussian(0.5): 1}), 1, 10).grouped(2)


def test_mixtures_to_both_sides_are_grouped() -> None:
    one = GaussianMixture.of_sample(0.5, 0.25, leaving=1)
    assert one.replaced() == GaussianMixture.of_sample(0.5, 0.25, leaving=1, joining=1)
    assert one.grouped(2) == GaussianMixture.of_sample(0.5, 0.25, leaving=2, joining=2)
    assert one.replaced().grouped(2) == one.grouped(2)
    lopsided = GaussianMixture.of_sample(0.5, 0.25, leaving=2, joining=1)
    assert lopsided.joined(2) == GaussianMixture.of_sample(0.5, 0.25, leaving=4, joining=2)
    with pytest.raises(InapplicableError, match="group"):
        lopsided.grouped(2)
    assert lopsided.dominates(GaussianMixture.of_sample(0.5, 0.125, leaving=2, joining=1))
    assert not lopsided.dominates(one)
    assert not one.dominates(lopsided)


def test_a_peer_agrees() -> None:
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    loss = GaussianMixture.of_sample(1.0, 0.1, leaving=4)
    theirs = pld.from_mixture_gaussian_mechanism(
        1.0,
        [0.0, *loss.shifts],
        [1 - math.fsum(loss.probabilities), *loss.probabilities],
        value_discretization_interval=0.1,
    )
    mine = measure(Repeated(Spend(loss), 5), Distribution(), epsilon=2.0).bounds
    assert mine.upper <= theirs.self_compose(5).get_delta_for_epsilon(2.0) <= mine.upper * 1.2


@pytest.mark.parametrize("loss", MIXTURES[:3], ids=repr)
def test_renyi_and_mu_hold(loss: GaussianMixture) -> None:
    mu = loss.mu()
    for epsilon in (0.0, 0.5, 2.0):
        assert max(sticks(loss, epsilon)) <= truth.gaussian_delta(mu, epsilon)
    rows = [(truth.real(s), truth.real(p)) for s, p in zip(loss.shifts, loss.probabilities)]  # noqa: B905
    rest = 1 - mp.fsum(p for _, p in rows)

    def log_moment(power: mp.mpf) -> mp.mpf:
        def value(x: mp.mpf) -> mp.mpf:
            return (rest + mp.fsum(p * mp.exp(s * x - s * s / 2) for s, p in rows)) ** power

        reach = 15 + 12 * float(mu)
        return mp.log(truth.normal_expectation(value, -reach, reach, 1.0 / (1 + float(mu))))

    for order in (1.5, 2.0, 6.0):
        a = truth.real(order)
        upper = loss.renyi(np.array([order]))[0]
        with mp.workdps(25):
            for power in (a, 1 - a):
                assert log_moment(power) / (a - 1) <= truth.real(upper) + mp.mpf("1e-12")
    term = Repeated(Spend(loss), 10)
    least = measure(term, Distribution(), delta=1e-5).bounds.lower
    for accountant in (Renyi(), GaussianDP()):
        assert measure(term, accountant, delta=1e-5).bounds.upper >= least


@examples(15)
@given(st.floats(0.05, 3.0), st.floats(1e-6, 0.9), st.integers(1, 6))
def test_more_units_cost_more(mu: float, rate: float, size: int) -> None:
    less, more = (
        GaussianMixture.of_sample(mu, rate, leaving=size),
        GaussianMixture.of_sample(mu, rate, leaving=size + 1),
    )
    for epsilon in (0.0, 0.5, 2.0):
        assert less.profile(epsilon).lower <= more.profile(epsilon).upper
    assert sum(map(Fraction, more.probabilities)) <= 1


@pytest.mark.parametrize(
    ("shifts", "chances", "said"),
    [
        ([], [], "positive shifts"),
        ([1.0, 1.0], [0.1, 0.1], "rise"),
        ([0.0, 1.0], [0.1, 0.1], "positive"),
        ([1.0], [0.1, 0.1], "each"),
        ([1.0, 2.0], [0.6, 0.6], "more than 1"),
        ([math.inf], [0.5], "shift"),
        ([1.0], [-0.1], "probability"),
    ],
)
def test_bad_parameters_are_refused(shifts: object, chances: object, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        GaussianMixture(shifts, chances)  # type: ignore[arg-type]


def convolved(mu: float, rate: float, size: int, steps: int, epsilon: float, points: int) -> float:
    """Return about delta of a group in sampled steps: losses spread on a lattice, and a transform.

    The spread keeps each cell's mean of dP/dQ, so it is above the truth, by ``O(1 / points^2)``.
    """
    chances = np.array(
        [math.comb(size, j) * rate**j * (1 - rate) ** (size - j) for j in range(size + 1)]
    )
    shifts = mu * np.arange(size + 1)[:, None]
    x = np.linspace(-9.0, 9.0 + mu * size, 200_001)
    loss = np.log(chances @ np.exp(shifts * x - shifts**2 / 2))
    below, above = special.ndtr(x - shifts), special.ndtr(shifts - x)
    masses = np.where(x[1:] < shifts, np.diff(below), -np.diff(above))
    p, q = chances @ masses, masses[0]
    step = (loss[-1] - loss[0]) / points
    place = (np.log(p / q) - loss[0]) / step
    index = np.clip(np.floor(place).astype(int), 0, points - 1)
    share = np.expm1(-step * (place - index)) / math.expm1(-step)
    length = 1 << math.ceil(math.log2(4 * points))
    law = np.bincount(index, p * (1 - share), length) + np.bincount(index + 1, p * share, length)
    sums = np.fft.irfft(np.fft.rfft(law) ** steps, length)
    losses = steps * loss[0] + step * np.arange(length)
    return float(sums @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0))))


@pytest.mark.parametrize(
    ("mu", "rate", "size", "steps", "epsilon"),
    [(0.5, 0.01, 3, 30, 0.2), (0.7, 0.05, 2, 20, 0.8), (1.3, 0.05, 4, 6, 2.0)],
)
def test_groups_of_sampled_steps_have_both_ends(
    mu: float, rate: float, size: int, steps: int, epsilon: float
) -> None:
    term = Grouped(Repeated(Sampled(Spend(Gaussian(mu)), rate), steps), size)
    bounds = measure(term, Distribution(), epsilon=epsilon).bounds
    assert bounds is not None
    coarse, fine = (convolved(mu, rate, size, steps, epsilon, n) for n in (2**15, 2**16))
    truth = fine - (coarse - fine) / 3
    assert bounds.lower * (1 - 1e-6) <= truth <= bounds.upper * (1 + 1e-6)
    assert bounds.upper <= bounds.lower * (1 + 1e-3)
    assert worlds(term).exact


def test_the_lower_end_of_a_group_is_below_the_truth() -> None:
    """One step of a rate of a half, whose probabilities floats hold: the integral in 50 digits."""
    term = Grouped(Sampled(Spend(Gaussian(0.7)), 0.5), 2)
    for epsilon in (0.1, 1.0):
        bounds = measure(term, Distribution(), epsilon=epsilon).bounds
        assert bounds is not None
        with mp.workdps(50):
            mu, e = mp.mpf(0.7), mp.exp(mp.mpf(epsilon))

            def excess(x: mp.mpf, mu: mp.mpf = mu, e: mp.mpf = e) -> mp.mpf:
                ratio = (1 + 2 * mp.exp(mu * x - mu**2 / 2) + mp.exp(2 * mu * x - 2 * mu**2)) / 4
                return ratio - e

            start = mp.findroot(excess, (0, 5), solver="anderson")
            one, two = mp.ncdf(mu - start), mp.ncdf(2 * mu - start)
            removed = (mp.ncdf(-start) + 2 * one + two) / 4 - e * mp.ncdf(-start)
            assert bounds.lower <= removed <= bounds.upper
        assert bounds.upper <= bounds.lower * (1 + 1e-9)


def test_a_group_in_many_small_samples_is_narrow() -> None:
    term = Grouped(Repeated(Sampled(Spend(Gaussian(1.0)), 0.001), 10_000), 3)
    bounds = measure(term, Distribution(), delta=1e-9).bounds
    assert bounds is not None
    assert 0 < bounds.upper - bounds.lower < 0.01 * bounds.upper


@pytest.mark.parametrize("mu", [1.0, 1.5])
def test_a_finer_lattice_holds_the_answer(mu: float) -> None:
    """Of sampled Gaussians with a large loss now and then, which contours bracket narrowly."""
    step = Sampled(Spend(Gaussian(mu)), 0.001)
    narrow = measure(Repeated(step, 10_000), Distribution(), delta=1e-9).bounds
    pair = SampledGaussianPair(GaussianPair(mu), 0.001)
    wide = lattice.epsilon([(pair, 10_000)], 1e-9)
    assert narrow is not None
    assert wide.lower <= narrow.lower
    assert narrow.upper <= wide.upper
    assert wide.upper - wide.lower < 0.01 * wide.upper
    assert narrow.upper - narrow.lower < 1e-6 * narrow.upper
