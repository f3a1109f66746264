"""Compositions of few losses, outcome by outcome: against exact sums of all outcomes."""

from __future__ import annotations

import itertools

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants.distribution import (
    _largest_outcome,
    _one_way,
    _profile,
    contour,
    enumeration,
    lattice,
)
from accountants.finite import FinitePair
from accountants.losses.discrete import AnswerPair
from accountants.losses.pure import ResponsePair
from accountants.numerics import up
from accountants.pair import Pair

Law = dict[mp.mpf, mp.mpf]
Spends = tuple[tuple[Pair, int], ...]


def copies(losses: list[mp.mpf], masses: list[mp.mpf], times: int) -> Law:
    """Every outcome's counts, and its probability: the multinomial law."""
    law: Law = {}
    for chosen in itertools.combinations(range(times + len(losses) - 1), len(losses) - 1):
        ends = (-1, *chosen, times + len(losses) - 1)
        counts = [b - a - 1 for a, b in itertools.pairwise(ends)]
        mass, left = mp.mpf(1), times
        for count, one in zip(counts, masses, strict=True):
            mass *= mp.binomial(left, count) * one**count
            left -= count
        loss = mp.fdot(counts, losses)
        law[loss] = law.get(loss, mp.mpf(0)) + mass
    return law


def answers(epsilon: float, categories: int, times: int) -> Law:
    """Answers out of k, by their counts of the losses eps, 0 and -eps."""
    e = truth.real(epsilon)
    total = mp.exp(e) + categories - 1
    masses = [mp.exp(e) / total, mp.mpf(categories - 2) / total, 1 / total]
    if categories == 2:
        return copies([e, -e], [masses[0], masses[2]], times)
    return copies([e, mp.mpf(0), -e], masses, times)


def delta(laws: list[Law], at: mp.mpf) -> mp.mpf:
    """The hockey-stick of independent laws, by all of their outcomes."""
    total = mp.mpf(0)
    for one in itertools.product(*(law.items() for law in laws)):
        loss = mp.fsum(loss for loss, _ in one)
        if loss > at:
            total += mp.fprod(mass for _, mass in one) * -mp.expm1(at - loss)
    return total


def holds(spends: Spends, laws: list[Law], wanted: float, width: float = 1e-7) -> None:
    bounds = enumeration.epsilon(spends, wanted)
    assert bounds is not None
    assert delta(laws, truth.real(bounds.upper)) <= wanted
    assert bounds.lower == 0 or delta(laws, truth.real(bounds.lower)) >= wanted
    assert bounds.upper - bounds.lower <= width * bounds.upper
    at = 0.7 * bounds.upper
    low, high = enumeration.profile(spends, np.array([at, 0.0])) or pytest.fail("no profile")
    for x, lower, upper in zip((at, 0.0), low, high, strict=True):
        exact = delta(laws, truth.real(x))
        assert lower <= exact <= upper
        assert upper - lower <= width * upper


@pytest.fixture(params=[2**13, 16])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all outcomes kept, and with the rare ones dropped."""
    monkeypatch.setattr(enumeration, "_FEW", request.param)
    enumeration._cached.cache_clear()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("wanted", [0.4, 1e-4, 1e-30])
def test_three_losses_of_no_common_step(wanted: float) -> None:
    p = [mp.mpf(5) / 16, mp.mpf(3) / 32, mp.mpf(19) / 32]
    q = [mp.mpf(15) / 32, mp.mpf(11) / 32, mp.mpf(3) / 16]
    rows = sorted((mp.log(a / b), a, b) for a, b in zip(p, q, strict=True))
    pair = FinitePair(*([float(row[i]) for row in rows] for i in range(3)), loss_error=2e-16)
    law = copies([row[0] for row in rows], [row[1] for row in rows], 40)
    holds(((pair, 40),), [law], wanted)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("wanted", [0.3, 1e-8])
def test_lattices_of_different_steps(wanted: float) -> None:
    """What no common lattice holds is a sum of some hundred losses in each half."""
    parts = [(0.48, 3, 12), (0.14, 2, 9), (0.057, 2, 5)]
    spends: Spends = tuple(
        (ResponsePair(e) if k == 2 else AnswerPair(e, k), n) for e, k, n in parts
    )
    holds(spends, [answers(*part) for part in parts], wanted)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("wanted", [0.5, 1e-3, 1e-12])
def test_different_responses(wanted: float) -> None:
    every = [0.1 + 0.13 * i**1.3 for i in range(11)]
    laws = [answers(e, 2, 1) for e in every]
    spends: Spends = tuple((ResponsePair(e), 1) for e in every)
    holds(spends, laws, wanted)


@pytest.mark.usefixtures("few")
def test_a_rare_large_loss_among_small_ones() -> None:
    p = [mp.mpf("3e-5"), mp.mpf("0.4"), 1 - mp.mpf("0.40003")]
    q = [p[0] * mp.exp(-6), p[1] * mp.exp(mp.mpf("-0.01")), mp.mpf(0)]
    q[2] = 1 - q[0] - q[1]
    rows = sorted((mp.log(a / b), a, b) for a, b in zip(p, q, strict=True))
    pair = FinitePair(*([float(row[i]) for row in rows] for i in range(3)), loss_error=2e-15)
    law = copies([row[0] for row in rows], [row[1] for row in rows], 30)
    for wanted in (1e-4, 1e-9):
        holds(((pair, 30),), [law], wanted)


def test_below_the_mass_of_the_largest_loss() -> None:
    """At so small a delta epsilon is the largest loss of all, but for next to nothing."""
    every = [0.3, 0.5, 1.1]
    spends: Spends = tuple((ResponsePair(e), 20) for e in every)
    bounds = _one_way(spends, 1e-200)
    assert bounds.lower <= 38 <= bounds.upper * (1 + 1e-15)
    assert bounds.upper - bounds.lower <= 1e-11 * bounds.upper


def test_many_outcomes_are_left_to_others() -> None:
    spends: Spends = tuple((ResponsePair(0.1 + 0.01 * i**1.1), 1) for i in range(200))
    assert enumeration.epsilon(spends, 1e-6) is None
    assert enumeration.profile(spends, np.array([1.0])) is None


@pytest.mark.parametrize("times", [30, 1000])
def test_a_law_on_a_lattice_is_the_same_by_its_convolution(times: int) -> None:
    """Copies of an answer beside a response of another step: the lattice's powers, and all."""
    spends: Spends = ((AnswerPair(0.02, 4), times), (ResponsePair(0.3137), 3))
    low, high = _profile(spends, np.array([0.4]), np.zeros(1))
    step, total = truth.real(0.02), mp.mpf(0)
    law = lattice_power(0.02, 4, times)
    for loss, mass in answers(0.3137, 2, 3).items():
        for i, one in law.items():
            if i * step + loss > mp.mpf(0.4):
                total += mass * one * -mp.expm1(mp.mpf(0.4) - loss - i * step)
    assert low[0] <= total <= high[0]
    assert high[0] - low[0] <= 1e-7 * high[0]


def lattice_power(epsilon: float, categories: int, times: int) -> dict[int, mp.mpf]:
    """The masses by multiples of epsilon: powers of one integer, of masses in 2^-300."""
    grow = mp.exp(truth.real(epsilon))
    width, total = 704, grow + categories - 1
    masses = [1 / total, mp.mpf(categories - 2) / total, grow / total]
    packed = sum(int(mp.ldexp(mass, 300)) << (width * i) for i, mass in enumerate(masses))
    # squared and cut to 300 digits after the point again
    result: list[int] = [1 << 300]
    power = [(packed >> (width * i)) & ((1 << width) - 1) for i in range(3)]
    left = times
    while left:
        if left & 1:
            result = convolved(result, power, width)
        left >>= 1
        if left:
            power = convolved(power, power, width)
    return {i - times: mp.ldexp(mass, -300) for i, mass in enumerate(result) if mass}


def convolved(one: list[int], other: list[int], width: int) -> list[int]:
    a, b = (sum_of(each, width) for each in (one, other))
    product, mask = (a * b).to_bytes((len(one) + len(other) + 1) * width // 8, "little"), width // 8
    return [
        int.from_bytes(product[i * mask : (i + 1) * mask], "little") >> 300
        for i in range(len(one) + len(other) - 1)
    ]


def sum_of(values: list[int], width: int) -> int:
    return int.from_bytes(b"".join(v.to_bytes(width // 8, "little") for v in values), "little")


# --- closed bounds beside the enumeration, and groups on a lattice


def test_the_largest_loss_alone_bounds_epsilon_from_below() -> None:
    """From the largest loss but one on, delta is ``p (1 - e^(eps - largest))``."""
    every = [0.3, 0.5, 1.1]
    with mp.workdps(120):
        largest = mp.fsum(20 * truth.real(e) for e in every)
        p = mp.fprod((1 + mp.exp(-truth.real(e))) ** -20 for e in every)
        spends: Spends = tuple((ResponsePair(e), 20) for e in every)
        for share in (mp.mpf("0.3"), mp.mpf("1e-3"), mp.mpf("1e-12")):
            bounds = _largest_outcome(spends, float(p * share), None, up(float(largest)))
            assert bounds is not None
            assert 0 < bounds.lower <= largest + mp.log1p(-truth.real(float(p * share)) / p)
            assert bounds.lower >= largest + mp.log1p(-share) - mp.mpf("1e-9")
        assert _largest_outcome(spends, float(p * 0.6), None, up(float(largest))) is None


def test_delta_near_one_is_bounded_from_below_by_moments_left_of_zero() -> None:
    composed = contour.composition(((ResponsePair(0.3), 400),))
    points = np.array([0.0, 2.0, 8.0, 12.0])
    for x, low in zip(points, contour._all_but_little(composed, points), strict=True):
        law = {(2 * i - 400): i for i in range(401)}
        e = truth.real(0.3)
        rest = mp.fsum(
            mp.binomial(400, i)
            * mp.exp(-(400 - i) * e)
            / (1 + mp.exp(-e)) ** 400
            * mp.exp(min(mp.mpf(0), truth.real(x) - steps * e))
            for steps, i in law.items()
        )
        assert low <= 1 - rest
        assert 1 - truth.real(low) <= 40 * rest


def test_a_group_of_responses_has_all_of_their_sums() -> None:
    every = [0.5 + 2.5 * i**0.7 / 8 for i in range(8)]
    pair = enumeration._sum([ResponsePair(e).atoms() for e in every])
    exact = {}
    for signs in itertools.product((1, -1), repeat=8):
        loss = mp.fsum(s * truth.real(e) for s, e in zip(signs, every, strict=True))
        exact[loss] = mp.fprod(
            1 / (1 + mp.exp(-s * truth.real(e))) for s, e in zip(signs, every, strict=True)
        )
    assert len(pair.losses) == len(exact)
    for loss, p, q, x in zip(pair.losses, pair.p, pair.q, sorted(exact), strict=True):
        assert abs(loss - x) <= 2.0**-52 * abs(x)
        assert abs(p / exact[x] - 1) <= pair.error
        assert abs(q / (exact[x] * mp.exp(-x)) - 1) <= pair.error


@pytest.mark.parametrize("wanted", [0.6, 1e-4])
def test_groups_on_a_lattice(wanted: float) -> None:
    """All sums of 22 responses, in plain floats."""
    every = [0.2 + 0.05 * i**1.1 for i in range(22)]
    spends: Spends = tuple((ResponsePair(e), 1) for e in every)
    few = enumeration.grouped(spends)
    assert len(few) == 2
    bounds = lattice.epsilon(few, wanted)
    losses, p = np.zeros(1), np.ones(1)
    for e in every:
        losses = np.concatenate([losses + e, losses - e])
        p = np.concatenate([p / (1 + np.exp(-e)), p / (1 + np.exp(e))])
    at = []
    for end in (bounds.lower, bounds.upper):
        gain = np.maximum(0.0, -np.expm1(np.minimum(end - losses, 0)))
        at.append(float((p * gain).sum()))
    assert at[0] >= wanted * (1 - 1e-11)
    assert at[1] <= wanted * (1 + 1e-11)
    assert bounds.upper - bounds.lower <= 1e-2
