"""Sums of pairs of few losses: epsilons, deltas and risks against exact sums of their masses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants import Distribution, Pure, RandomizedResponse, Repeated, Sampled, Spend, measure
from accountants.distribution import _one_way, lattice
from accountants.finite import FinitePair
from accountants.guarantee import Guarantee
from accountants.terms import Sequential, Term

Law = dict[int, mp.mpf]
"""Masses under P by the loss, in multiples of a step."""


def power(law: Law, times: int) -> Law:
    """The law of the sum, by squaring: a convolution of exact indices."""
    total: Law = {0: mp.mpf(1)}
    while times:
        if times & 1:
            total = convolved(total, law)
        times >>= 1
        if times:
            law = convolved(law, law)
    return total


def convolved(one: Law, other: Law) -> Law:
    """One product of integers for all: masses in 250 bits after the point, of 66 bytes each."""
    numbers = []
    for law in (one, other):
        limbs = [bytes(_BYTES)] * (max(law) - min(law) + 1)
        for at, mass in law.items():
            limbs[at - min(law)] = int(mass * 2**250).to_bytes(_BYTES, "little")
        numbers.append(int.from_bytes(b"".join(limbs), "little"))
    product, least = numbers[0] * numbers[1], min(one) + min(other)
    digits = product.to_bytes(-(-product.bit_length() // 8) + _BYTES, "little")
    sums = (digits[i : i + _BYTES] for i in range(0, len(digits), _BYTES))
    masses = (mp.ldexp(int.from_bytes(each, "little"), -500) for each in sums)
    return {least + i: mass for i, mass in enumerate(masses) if mass}


_BYTES = 66


def answers(epsilon: float, categories: int) -> Law:
    """Answers out of k: P's masses of the losses eps, 0 and -eps."""
    grow = mp.exp(truth.real(epsilon))
    law: Law = defaultdict(mp.mpf)
    total = grow + categories - 1
    for loss, mass in ((1, grow), (0, mp.mpf(categories - 2)), (-1, mp.mpf(1))):
        law[loss] += mass / total
    return {loss: mass for loss, mass in law.items() if mass}


def delta_of(law: Law, step: mp.mpf, offset: mp.mpf | int = 0):
    """The hockey-stick of a law of losses ``offset + i step``, both ways alike."""

    def delta_at(at: mp.mpf) -> mp.mpf:
        return mp.fsum(
            mass * (1 - mp.exp(at - offset - i * step))
            for i, mass in law.items()
            if offset + i * step > at
        )

    return delta_at


def holds(bounds, exact: mp.mpf, width: float) -> None:
    assert bounds.lower <= exact <= bounds.upper, (bounds, exact)
    assert bounds.upper - bounds.lower <= width * bounds.upper, bounds


def power_of_test(law: Law, step: mp.mpf, rate: float) -> mp.mpf:
    """The greatest P(S) of tests with Q(S) = rate: Neyman and Pearson's, randomized at one loss."""
    spent, gained = mp.mpf(0), mp.mpf(0)
    for i in sorted(law, reverse=True):
        wrong = law[i] * mp.exp(-i * step)
        if spent + wrong >= rate:
            return gained + (truth.real(rate) - spent) / wrong * law[i]
        spent, gained = spent + wrong, gained + law[i]
    return gained


@pytest.mark.parametrize(
    ("epsilon", "categories", "times"),
    [(0.1, 2, 1000), (0.05, 3, 1000), (1.0, 3, 40), (0.01, 100, 900), (3.0, 10, 12)],
)
def test_answers_of_few_losses_have_narrow_brackets(
    epsilon: float, categories: int, times: int
) -> None:
    law, step = power(answers(epsilon, categories), times), truth.real(epsilon)
    delta_at = delta_of(law, step)
    term = Repeated(Spend(RandomizedResponse(epsilon, categories)), times)
    released = Guarantee(term)
    holds(released.advantage(), delta_at(mp.mpf(0)), 1e-8)
    holds(released.true_positive_rate(0.001), power_of_test(law, step, 0.001), 1e-8)
    for at in (0.25, 0.999):
        exact = delta_at(truth.real(at * times * epsilon / 4))
        if exact > mp.mpf(10) ** -40:  # the truth's masses have 75 digits after the point
            holds(released.delta(at * times * epsilon / 4), exact, 1e-7)
    for delta in (0.9, 0.5, 0.01, 1e-5, 1e-12, 1e-30):
        bounds = measure(term, Distribution(), delta=delta).bounds
        assert bounds is not None
        truth.proves(bounds.upper, delta_at, delta)
        truth.refutes(bounds.lower, delta_at, delta)
        assert bounds.upper - bounds.lower <= 1e-8 * max(bounds.upper, 1e-3), (delta, bounds)


@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9, 1e-100, 1e-290])
@pytest.mark.parametrize(("epsilon", "times"), [(1e-3, 10**6), (0.2, 3000)])
def test_a_million_copies(epsilon: float, times: int, delta: float) -> None:
    """The binomial's terms, from the largest loss that matters down, by their exact ratios."""
    bounds = measure(Repeated(Spend(Pure(epsilon)), times), Distribution(), delta=delta).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper
    for end, side in ((bounds.upper, 1), (bounds.lower, -1)):
        exact = binomial_delta(epsilon, times, truth.real(end))
        assert (truth.real(delta) - exact) * side >= 0, (side, end)


def binomial_delta(epsilon: float, times: int, at: mp.mpf) -> mp.mpf:
    """The hockey-stick of equal responses at one epsilon."""
    e = truth.real(epsilon)
    wins = int(mp.floor((at / e + times) / 2)) + 1
    log_mass = (
        mp.loggamma(times + 1)
        - mp.loggamma(wins + 1)
        - mp.loggamma(times - wins + 1)
        - (times - wins) * e
        - times * mp.log1p(mp.exp(-e))
    )
    mass, total = mp.exp(log_mass), mp.mpf(0)
    ratio = mp.exp(e)
    while wins <= times and mass > total * mp.mpf(10) ** -40:
        total += mass * -mp.expm1(at - (2 * wins - times) * e)
        mass *= ratio * (times - wins) / (wins + 1)
        wins += 1
    return total


def test_two_losses_off_their_own_multiples() -> None:
    """A sampled response has two losses of unequal size: the sum lies on a shifted lattice."""
    rate, eps, times = 0.3, 0.5, 400
    q, grow = truth.real(rate), mp.exp(truth.real(eps))
    losses = [mp.log(1 - q + q * r) for r in (1 / grow, grow)]
    masses = [
        m * mp.exp(x) for m, x in zip((grow / (1 + grow), 1 / (1 + grow)), losses, strict=True)
    ]
    law = power({0: masses[0], 1: masses[1]}, times)
    removed = delta_of(law, losses[1] - losses[0], times * losses[0])
    turned = power({0: masses[1] * mp.exp(-losses[1]), 1: masses[0] * mp.exp(-losses[0])}, times)
    added = delta_of(turned, losses[1] - losses[0], -times * losses[1])
    released = Guarantee(Repeated(Sampled(Spend(Pure(eps)), rate), times))
    for at in (0.0, 0.7, 2.0, 5.0):
        exact = max(removed(truth.real(at)), added(truth.real(at)))
        holds(released.delta(at), exact, 1e-7)


@pytest.mark.parametrize("delta", [0.5, 0.02, 1e-8, 1e-40])
def test_different_pairs_on_one_lattice(delta: float) -> None:
    parts: Sequence[tuple[float, int, int]] = ((0.5, 2, 20), (0.25, 3, 30), (1.5, 4, 7))
    law: Law = {0: mp.mpf(1)}
    for epsilon, categories, times in parts:
        one = {round(4 * epsilon) * i: m for i, m in answers(epsilon, categories).items()}
        law = convolved(law, power(one, times))
    terms: list[Term] = [Repeated(Spend(RandomizedResponse(e, k)), n) for e, k, n in parts]
    bounds = measure(Sequential(terms), Distribution(), delta=delta).bounds
    assert bounds is not None
    delta_at = delta_of(law, mp.mpf(1) / 4)
    truth.proves(bounds.upper, delta_at, delta)
    truth.refutes(bounds.lower, delta_at, delta)
    assert bounds.upper - bounds.lower <= 1e-9 * bounds.upper


def test_uneven_losses_on_a_lattice_are_found() -> None:
    """Losses at 1, 3 and -2 steps of 0.7 from 0.1: found by their distances alone."""
    at, masses = [-2, 1, 3], [mp.mpf(5) / 16, mp.mpf(3) / 16, mp.mpf(1) / 2]
    losses = [float(mp.mpf("0.1") + mp.mpf("0.7") * i) for i in at]
    pair = FinitePair(losses, [float(m) for m in masses], [float(m) for m in masses], tight=True)
    low, high = lattice.profile([(pair, 50)], np.array([0.0, 3.0, 17.0, 40.0]))
    exact = delta_of(power(dict(zip(at, masses, strict=True)), 50), mp.mpf("0.7"), mp.mpf(5))
    for x, lower, upper in zip((0.0, 3.0, 17.0, 40.0), low, high, strict=True):
        assert lower <= exact(truth.real(x)) * (1 + mp.mpf(10) ** -14)
        assert upper >= exact(truth.real(x)) * (1 - mp.mpf(10) ** -14)
        assert upper - lower <= 1e-9 * upper


@pytest.mark.parametrize("small", [1e-300, 1e-200, 1e-100, 1e-20, 1e-10, 1e-5])
def test_a_step_too_fine_for_a_lattice_moves_no_loss(small: float) -> None:
    """One loss of 1 beside losses whose common step is tiny: its index is beyond the integers."""
    term = Sequential([Repeated(Spend(Pure(small)), 3), Spend(Pure(1.0))])
    bounds = measure(term, Distribution(), delta=1e-6).bounds
    assert bounds is not None
    # of one randomized response delta(eps) is (e - e^eps) / (1 + e)
    alone = float(mp.log(mp.e - mp.mpf(1e-6) * (1 + mp.e)))
    assert alone * (1 - 1e-12) <= bounds.upper <= (alone + 3 * small) * (1 + 1e-6)
    profile = measure(term, Distribution(), epsilon=0.5).bounds
    assert profile is not None
    assert profile.upper >= float((mp.e - mp.exp(0.5)) / (1 + mp.e)) * (1 - 1e-12)


# --- losses on no lattice


def three_losses() -> tuple[FinitePair, list[mp.mpf], list[mp.mpf]]:
    """Three losses of no common spacing, whose pair is not symmetric."""
    p = [mp.mpf(5) / 16, mp.mpf(3) / 16, mp.mpf(1) / 2]
    q = [mp.mpf(15) / 32, mp.mpf(9) / 32, mp.mpf(1) / 4]
    p, q = [p[0], p[1] / 2, p[2] + p[1] / 2], [q[0], q[1] * 3 / 4, q[2] + q[1] / 4]
    rows = sorted((mp.log(a / b), a, b) for a, b in zip(p, q, strict=True))
    pair = FinitePair(*([float(row[i]) for row in rows] for i in range(3)), loss_error=2e-16)
    return pair, [row[0] for row in rows], [row[1] for row in rows]


def multinomial_delta(losses: list[mp.mpf], masses: list[mp.mpf], times: int, at: float) -> mp.mpf:
    """The hockey-stick of copies of a pair of three losses: every outcome's counts."""
    logs, total, e = [mp.log(m) for m in masses], mp.mpf(0), truth.real(at)
    factorials = [mp.loggamma(i + 1) for i in range(times + 1)]
    for i in range(times + 1):
        for j in range(times + 1 - i):
            counts = (i, j, times - i - j)
            loss = mp.fdot(counts, losses)
            if loss > e:
                log_mass = factorials[times] - mp.fsum(factorials[c] for c in counts)
                total += mp.exp(log_mass + mp.fdot(counts, logs)) * (1 - mp.exp(e - loss))
    return total


@pytest.mark.parametrize("delta", [0.5, 1e-3, 1e-9])
def test_three_losses_off_any_lattice(delta: float) -> None:
    pair, losses, masses = three_losses()
    bounds = _one_way(((pair, 25),), delta)
    assert multinomial_delta(losses, masses, 25, bounds.upper) <= delta
    assert bounds.lower == 0 or multinomial_delta(losses, masses, 25, bounds.lower) >= delta
    assert bounds.upper - bounds.lower <= 1e-6 * bounds.upper


def test_a_reversed_pair_has_the_other_direction() -> None:
    pair, losses, masses = three_losses()
    back = pair.reversed()
    assert back.reversed() == pair
    p_above, q_above = back.above(np.array([-0.1, 0.0, 0.1]))
    p_below, q_below = pair.below(np.array([0.1, 0.0, -0.1]))
    assert np.allclose(p_above, q_below)
    assert np.allclose(q_above, p_below)
    turned = [m * mp.exp(-x) for m, x in zip(masses, losses, strict=True)]
    bounds = _one_way(((back, 20),), 1e-3)
    minus = [-x for x in losses]
    assert multinomial_delta(minus, turned, 20, bounds.upper) <= 1e-3
    assert multinomial_delta(minus, turned, 20, bounds.lower) >= 1e-3


@pytest.mark.parametrize("count", [3, 30])
@pytest.mark.parametrize("tilt", [0.1, 5.0])
def test_moments_of_atoms_are_below_their_bound_between_two_ends(count: int, tilt: float) -> None:
    draw = np.random.default_rng(count)
    p, q = draw.dirichlet(np.ones(count)), draw.dirichlet(np.ones(count))
    order = np.argsort(np.log(p / q))
    pair = FinitePair(np.log(p / q)[order], p[order], q[order], error=1e-14)
    starts = np.sort(10 ** draw.uniform(-2, 3, 40))
    stops = starts * (1 + 10 ** draw.uniform(-4, -1, 40))
    bounds = FinitePair.decays_between(((pair, 2),), tilt, starts, stops)
    assert np.count_nonzero(bounds < -1e-3) > (10 if tilt < 1 else -1)

    def moment(z: mp.mpc) -> mp.mpc:
        terms = zip(pair.p, pair.losses, strict=True)
        return mp.fsum(mp.mpf(m) * mp.exp(z * mp.mpf(loss)) for m, loss in terms)

    here = moment(mp.mpf(tilt))
    for low, high, bound in zip(starts, stops, bounds, strict=True):
        for share in (0, 0.5, 1):
            t = mp.mpf(low) + (mp.mpf(high) - mp.mpf(low)) * share
            assert 2 * mp.log(abs(moment(mp.mpc(tilt, t)) / here)) <= bound
