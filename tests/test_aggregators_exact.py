"""Losses of PATE's aggregators, held against exact laws on all small neighbours."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import mpmath
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from votes_truth import (
    Array,
    Counts,
    gaussian_wins,
    histograms,
    hockey_stick,
    laplace_below,
    laplace_wins,
    moved,
    renyi,
)

import adaptive_dp as dp
from adaptive_dp.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, StableVotes
from adaptive_dp.pate.aggregators import distances

ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 8), np.geomspace(2.5, 300, 14)])
SLACK = 1 + 1e-10


def two_classes(log_p: Array, log_q: Array, log_p2: Array, log_q2: Array) -> Array:
    """D_a of Bernoulli laws, orders in rows: (p, q) against (p2, q2), given by their logarithms."""
    a = ORDERS[:, None]
    terms = np.stack([a * log_p + (1 - a) * log_p2, a * log_q + (1 - a) * log_q2])
    return np.logaddexp(*terms) / (a - 1)


@pytest.mark.parametrize("sigma", [0.7, 1.5, 4.0, 40.0])
def test_gnmax_of_two_classes_at_every_gap(sigma: float) -> None:
    gaps = np.arange(-60, 61) * min(1.0, sigma / 2)
    wide = math.sqrt(2) * sigma
    here, there = gaps / wide, (gaps + 2) / wide
    laws = [(log_ndtr(x), log_ndtr(-x)) for x in (here, there)]
    bound = GNMax(sigma).loss(1.0).renyi(ORDERS)
    assert bound is not None
    np.testing.assert_allclose(bound, ORDERS / sigma**2, rtol=1e-12)
    for one, other in (laws, laws[::-1]):
        exact = two_classes(*one, *other)
        assert (exact <= bound[:, None] * SLACK).all()
    assert exact.max() > 0.2 * (2 / wide) ** 2 / 2  # the grid has gaps where there is a loss


@pytest.mark.parametrize("scale", [0.5, 2.0, 15.0])
def test_lnmax_of_two_classes_at_every_gap(scale: float) -> None:
    """P(X - Y > g) = (1/2 + g/(4b)) e^{-g/b} for g >= 0."""
    gaps = np.concatenate([np.arange(-50, 51), [-400, 400]]) * min(1.0, scale)

    def law(g: Array) -> tuple[Array, Array]:
        tail = np.log(0.5 + np.abs(g) / (4 * scale)) - np.abs(g) / scale
        rest = np.log1p(-np.exp(tail))
        return np.where(g > 0, rest, tail), np.where(g > 0, tail, rest)

    epsilon = LNMax(scale).loss(1.0).pure()
    assert epsilon is not None
    assert 2 / scale <= epsilon <= 2 / scale * SLACK
    laws = law(gaps.astype(float)), law(gaps + 2.0)
    for side in (0, 1):
        assert np.abs(laws[0][side] - laws[1][side]).max() <= epsilon * SLACK
    assert abs(laws[0][0][0] - laws[1][0][0]) > 0.8 * epsilon  # far gaps nearly attain it
    bound = LNMax(scale).loss(1.0).renyi(ORDERS)
    assert bound is not None
    for one, other in (laws, laws[::-1]):
        assert (two_classes(*one, *other) <= bound[:, None] * SLACK).all()


@pytest.mark.parametrize("scale", [0.6, 1.0, 3.0])
def test_lnmax_on_a_coarse_grid_with_ties(scale: float) -> None:
    """The proof for rounded noise, where rounding is as coarse as the votes themselves."""
    k = np.arange(-120, 121)
    edges = laplace_below(np.append(k - 0.5, 120.5), scale)
    mass = np.diff(edges)

    def law(n: Counts) -> Array:
        result = np.zeros(len(n))
        for i, own in enumerate(n):  # the first of equals wins
            beats = np.ones(len(k))
            for j, other in enumerate(n):
                reach = own - other - (j < i) - k[0] + k
                if j != i:
                    below = np.concatenate([[0.0], np.cumsum(mass)])
                    beats = beats * below[np.clip(reach + 1, 0, len(k))]
            result[i] = mass @ beats
        return result

    for n in histograms(4, 3):
        assert law(n).sum() == pytest.approx(1, abs=1e-9)
        for other in moved(n):
            assert np.abs(np.log(law(n) / law(other))).max() <= 2 / scale * (1 + 1e-9)


@pytest.mark.parametrize(("teachers", "sigma", "scale"), [(3, 0.8, 0.7), (5, 2.0, 1.5)])
def test_three_classes(teachers: int, sigma: float, scale: float) -> None:
    gaussian = GNMax(sigma).loss(1.0).renyi(ORDERS)
    epsilon = LNMax(scale).loss(1.0).pure()
    assert gaussian is not None
    assert epsilon is not None
    laws = {n: (gaussian_wins(n, sigma), laplace_wins(n, scale)) for n in histograms(teachers, 3)}
    for n, law in laws.items():
        assert law[0].sum() == pytest.approx(1, abs=1e-12)
        assert law[1].sum() == pytest.approx(1, abs=1e-10)
        for other in moved(n):
            assert (renyi(law[0], laws[other][0], ORDERS) <= gaussian * SLACK + 1e-12).all()
            assert np.abs(np.log(law[1] / laws[other][1])).max() <= epsilon * (1 + 1e-8)


Law = Callable[[Counts], tuple[Array, float]]
"""How likely votes answer a question by each class, and how likely they do not."""


def confident(threshold: float, check: float, sigma: float) -> Law:
    def law(n: Counts) -> tuple[Array, float]:
        far = (max(n) - threshold) / check
        return ndtr(far) * gaussian_wins(n, sigma), float(ndtr(-far))

    return law


def interactive(threshold: float, check: float, sigma: float, p: Sequence[float]) -> Law:
    def law(n: Counts) -> tuple[Array, float]:
        far = (max(c - sum(n) * q for c, q in zip(n, p, strict=True)) - threshold) / check
        return ndtr(far) * gaussian_wins(n, sigma), float(ndtr(-far))

    return law


def single(law: tuple[Array, float], other: int) -> Array:
    """The outcomes none, then the classes; ``other`` is the value where votes do not answer."""
    result = np.append(0.0, law[0])
    result[other] += law[1]
    return result


def both(first: tuple[Array, float], second: tuple[Array, float], other: int, limit: bool) -> Array:
    """The joint law of two questions; with a limit, votes answer one of them."""
    unasked = np.zeros(len(first[0]) + 1)
    unasked[other] = 1.0
    after = unasked if limit else single(second, other)
    joint = np.outer(np.append(0.0, first[0]), after)
    joint[other] += first[1] * single(second, other)
    return joint.ravel()


CASES = [
    (12, 2, 8.0, 3.0, 2.0),
    (4, 3, 2.5, 1.2, 0.9),
    (4, 3, 3.0, 6.0, 1.0),
    (3, 3, 2.0, 0.6, 5.0),
]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("student", [None, (0.7, 0.3), (0.2, 0.8)])
def test_checked_answers(
    case: tuple[int, int, float, float, float], capped: bool, student: tuple[float, ...] | None
) -> None:
    """All neighbours, one question and two; with a limit of one answer to the two."""
    teachers, classes, threshold, check, sigma = case
    other, limit = 0, 1 if capped else None
    if student is None:
        mechanism: dp.Mechanism = ConfidentGNMax(threshold, check, sigma, limit)
        law = confident(threshold, check, sigma)
    else:
        p = (*student, *[0.1] * (classes - 2))
        mechanism = InteractiveGNMax(threshold / 2, check, sigma, 0.75, limit)
        law = interactive(threshold / 2, check, sigma, p)
        other = 2 if 0.8 in p else 0  # the student is sure of the second class
    laws = {n: law(n) for n in histograms(teachers, classes)}
    losses = [mechanism.cost(1.0, m, 1.0) for m in (1, 2)]
    bounds = [loss.renyi(ORDERS) for loss in losses]
    pairs = [(n, there) for n in laws for there in moved(n) if there != n]
    for n, there in pairs:
        one, two = single(laws[n], other), single(laws[there], other)
        assert one.sum() == pytest.approx(1, abs=1e-12)
        assert (renyi(one, two, ORDERS) <= bounds[0] * SLACK + 1e-12).all()
    draw = np.random.default_rng(0)
    some = [pairs[i] for i in draw.permutation(len(pairs))[:24]]
    some += [(n, n) for n in list(laws)[:3]]
    worst = 0.0
    for (a, a2), (b, b2) in itertools.product(some, repeat=2):
        one = both(laws[a], laws[b], other, capped)
        two = both(laws[a2], laws[b2], other, capped)
        exact = renyi(one, two, ORDERS)
        assert (exact <= bounds[1] * SLACK + 1e-12).all()
        worst = max(worst, float((exact / bounds[1]).max()))
        for epsilon in (0.1, 1.0):
            certified = losses[1].profile(epsilon)
            assert certified is not None
            assert hockey_stick(one, two, epsilon) <= certified.upper * SLACK + 1e-12
    assert worst > 0.05  # the law is not far from what is paid


def test_a_limit_is_paid_for_what_may_be_answered() -> None:
    def mu(limit: int | None, questions: int, teachers: float = 1.0) -> float:
        result = ConfidentGNMax(9, 30.0, 8.0, limit).cost(teachers, questions, 1.0).mu()
        assert result is not None
        return result

    with mpmath.workdps(30):
        for limit, m, t in [(None, 1, 1), (5, 3, 1), (5, 100, 1), (1, 10**6, 2), (None, 7, 3)]:
            c = m if limit is None else min(limit, m)
            exact = t * mpmath.sqrt(mpmath.mpf(m) / 30**2 + mpmath.mpf(2 * c) / 8**2)
            assert exact <= mu(limit, m, t) <= exact * (1 + 1e-14)
    assert mu(3, 2) == mu(None, 2) == mu(2, 2)
    assert ConfidentGNMax(9, 30.0, 8.0).cost(0.0, 5, 1.0).pure() == 0
    same = InteractiveGNMax(9, 30.0, 8.0, 0.5, 7).cost(1.0, 100, 1.0).mu()
    assert same == mu(7, 100)


def test_a_vote_moves_the_distance_by_one_and_the_answer_at_none() -> None:
    for teachers, classes in ((1, 1), (1, 3), (2, 2), (5, 2), (8, 2), (6, 3), (7, 3), (4, 4)):
        every = histograms(teachers, classes)
        result = dict(zip(every, distances(np.array(every)).tolist(), strict=True))
        for n, other in ((one, o) for one in every for o in moved(one)):
            assert abs(result[n] - result[other]) <= 1
            for ranks in ((n, other), (n[::-1], other[::-1])):  # the first of equals, or the last
                if np.argmax(ranks[0]) != np.argmax(ranks[1]):
                    assert result[n] == result[other] == 0
    assert distances(np.array([[250, 0], [140, 110], [126, 124]])).tolist() == [124, 14, 0]


def stable_law(
    mechanism: StableVotes, votes: Sequence[tuple[int, int]], threshold_only: bool = False
) -> dict[tuple[float, ...], float]:
    """The law of the answers to questions of (distance, answer), by a sum over R."""
    scale, wide, most = mechanism.noise(len(votes))
    least = np.arange(1, most + 1)
    weight = np.exp((least - most) / scale)
    weight /= weight.sum()
    result: dict[tuple[float, ...], float] = {}
    for bits in itertools.product((True, False), repeat=len(votes)):
        chance, left, answers = weight.copy(), mechanism.failures, []
        for (d, answer), passed in zip(votes, bits, strict=True):
            if not left:
                answers.append(-1)
                chance = chance * (not passed)  # one of the two stands for what is not asked
                continue
            # d - R < G, with P(G >= j) = e^{-j / b_2} for j >= 0
            fails = np.exp(-np.maximum(0, d - least + 1) / wide)
            if threshold_only:
                fails = (d < least).astype(float)
            chance = chance * (1 - fails if passed else fails)
            left -= not passed
            answers.append(answer if passed else -1)
        key = tuple(answers)
        result[key] = result.get(key, 0.0) + float(chance.sum())
    return result


def delta_of(here: dict[tuple[float, ...], float], there: dict[tuple[float, ...], float]) -> float:
    return max(
        sum(max(0.0, p - math.exp(1.5) * other.get(k, 0.0)) for k, p in one.items())
        for one, other in ((here, there), (there, here))
    )


@pytest.mark.parametrize(("failure", "failures"), [(0.3, 1), (0.3, 2), (0.02, 1), (1e-6, 2)])
@pytest.mark.parametrize(("teachers", "classes"), [(9, 2), (20, 2), (5, 3)])
def test_stable_votes_of_two_questions(
    failure: float, failures: int, teachers: int, classes: int
) -> None:
    """delta(epsilon) is at most the declared failure: all pairs of histograms, both directions."""
    mechanism = StableVotes(epsilon=1.5, failure=failure, failures=failures)
    every = histograms(teachers, classes)
    distance_of = dict(zip(every, distances(np.array(every)).tolist(), strict=True))
    seen = {n: (distance_of[n], int(np.argmax(n))) for n in every}
    steps = sorted({(seen[n], seen[other]) for n in every for other in moved(n)})
    laws: dict[tuple[tuple[int, int], ...], dict[tuple[float, ...], float]] = {}
    worst = 0.0
    for (a, a2), (b, b2) in itertools.product(steps, repeat=2):
        for votes in ((a, b), (a2, b2)):
            if votes not in laws:
                laws[votes] = stable_law(mechanism, votes)
                assert sum(laws[votes].values()) == pytest.approx(1, abs=1e-9)
        worst = max(worst, delta_of(laws[a, b], laws[a2, b2]))
    assert worst <= failure * (1 + 1e-6) + 1e-12
    if failure > 0.01:
        assert worst > failure / 30  # the failure is what it is paid for


def test_many_questions_cost_no_more_than_two() -> None:
    """Four questions and c failures, all moves of distances at once: epsilon and the failure."""
    mechanism = StableVotes(epsilon=1.5, failure=0.05, failures=2)
    _, _, most = mechanism.noise(4)
    worst = 0.0
    ties = [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((1, 0), (0, 0))]  # answers change at 0 alone
    moves = [*ties, ((most, 0), (most - 1, 0)), ((most - 1, 0), (most, 0))]
    for pairs in itertools.combinations_with_replacement(moves, 4):
        here, there = (stable_law(mechanism, [pair[i] for pair in pairs]) for i in (0, 1))
        worst = max(worst, delta_of(here, there))
    assert 0.005 < worst <= 0.05 * (1 + 1e-9)


def test_noise_on_the_threshold_alone_would_not_do() -> None:
    """One passes and the other does not: impossible for equal distances, likely for others."""
    mechanism = StableVotes(epsilon=1.5, failure=0.1, failures=2)
    d = mechanism.noise(2)[2] - 1
    here = stable_law(mechanism, [(d, 0), (d, 0)], threshold_only=True)
    there = stable_law(mechanism, [(d + 1, 0), (d - 1, 0)], threshold_only=True)
    assert here[0, -1] == pytest.approx(0, abs=1e-12)
    assert there[0, -1] > 0.15
    assert delta_of(here, there) > 0.15
    noisy = [stable_law(mechanism, v) for v in ([(d, 0), (d, 0)], [(d + 1, 0), (d - 1, 0)])]
    assert delta_of(*noisy) < 0.1


@pytest.mark.parametrize("failures", [1, 3, 1000])
@pytest.mark.parametrize("questions", [1, 50, 10**6])
def test_the_least_threshold_has_at_most_the_failure(failures: int, questions: int) -> None:
    for epsilon in (1e-12, 0.01, 1.0, 60.0):
        for failure in (1e-60, 1e-9, 1e-3, 0.9):
            scale, _, most = StableVotes(epsilon, failure, failures).noise(questions)
            with mpmath.workdps(60):
                a = 1 / mpmath.mpf(scale)
                least, smaller = (
                    mpmath.expm1(a) / mpmath.expm1(a * k) for k in (most, most - 1 or 1)
                )
                assert least <= failure
                # the next smaller has more, up to the rounding of K
                assert most < 3 or smaller > failure * (1 - 1e-9)


def test_the_budget_is_for_failures() -> None:
    for epsilon in (1e-3, 0.3, 1.0, 7.0):
        for failures in (1, 2, 17, 10**6):
            for questions in (1, 3, 10**5):
                scale, wide, _ = StableVotes(epsilon, 1e-6, failures).noise(questions)
                spent = 1 / mpmath.mpf(scale) + 2 * failures / mpmath.mpf(wide)
                assert epsilon * (1 - 1e-11) <= spent <= epsilon
            loss = StableVotes(epsilon, 1e-6, failures).loss(1.0)
            assert (loss.pure(), loss.delta_floor()) == (epsilon, 1e-6)
    with pytest.raises(dp.DeclarationError, match="calibrate"):
        StableVotes(dp.Free("epsilon"), 1e-6).noise(3)
    assert StableVotes(1.0, 1e-6).loss(3.0).pure() == pytest.approx(3)
    assert StableVotes(1.0, 1e-6).loss(0.0).delta_floor() == 0
    assert StableVotes(1e-30, 1e-6).loss(1.0).pure() == 1e-9
