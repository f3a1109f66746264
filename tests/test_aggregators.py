"""PATE's aggregators as they release: their laws, their limits, and odd votes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import ndtr
from scipy.stats import chi2
from streams import Quick
from test_aggregators_exact import stable_law
from votes_truth import gaussian_wins, laplace_wins

import adaptive_dp as dp
from adaptive_dp.noise.stream import SecureStream
from adaptive_dp.pate import (
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Plurality,
    StableVotes,
    VoteCounts,
)
from adaptive_dp.pate.aggregators import distances

ALARM = 1e-8
"""How likely each test of a law is to fail where all is right."""

ALL: list[dp.Mechanism] = [
    GNMax(3.0),
    LNMax(3.0),
    ConfidentGNMax(4, 3.0, 2.0),
    ConfidentGNMax(4, 3.0, 2.0, answers=1),
    InteractiveGNMax(2, 3.0, 2.0, 0.5),
    StableVotes(1.0, 1e-6, 3),
    Plurality(),
]


def votes(rows: Sequence[Sequence[int]]) -> VoteCounts:
    counts = np.array(rows, dtype=np.int64)
    return VoteCounts(counts, int(counts[0].sum()))


def released(
    mechanism: dp.Mechanism, value: VoteCounts, stream: Any, student: Any = None
) -> NDArray[np.float64]:
    if mechanism.released_inputs == 0:
        return np.asarray(mechanism.release(value, stream))
    shape = value.counts.shape
    return np.asarray(
        mechanism.release(
            value, stream, np.full(shape, 1 / shape[1]) if student is None else student
        )
    )


def fits(seen: NDArray[Any], law: Sequence[float]) -> None:
    """Pearson's test of answers, -1 and the classes; fails by chance with `ALARM`."""
    answers = np.nan_to_num(seen, nan=-1).astype(int)
    result = np.array([(answers == k).sum() for k in range(-1, len(law) - 1)], dtype=float)
    expected = np.array(law) * len(answers)
    assert result[expected == 0].sum() == 0
    rare = expected < 50  # together one outcome
    result, expected = (np.append(x[~rare], x[rare].sum()) for x in (result, expected))
    frequent = expected >= 50
    statistic = ((result - expected)[frequent] ** 2 / expected[frequent]).sum()
    assert statistic < chi2.isf(ALARM, max(1, frequent.sum() - 1))


N = (5, 4, 2)


@pytest.mark.parametrize("scale", [1.5, 6.0])
def test_gnmax_and_lnmax_follow_their_laws(scale: float) -> None:
    many = votes([N] * 40_000)
    fits(released(GNMax(scale), many, Quick(1)), [0.0, *gaussian_wins(N, scale)])
    fits(released(LNMax(scale), many, Quick(2)), [0.0, *laplace_wins(N, scale)])


@pytest.mark.parametrize("threshold", [3, 6.5])
def test_checked_answers_follow_their_law(threshold: float) -> None:
    many = votes([N] * 40_000)
    passed = ndtr((5 - threshold) / 2.5)
    law = [1 - passed, *(passed * gaussian_wins(N, 3.0))]
    fits(released(ConfidentGNMax(threshold, 2.5, 3.0), many, Quick(3)), law)
    for student, own in (((0.3, 0.6, 0.1), 2), ((0.2, 0.45, 0.35), 0), ((0.0, 0.0, 1.0), 3)):
        mechanism = InteractiveGNMax(threshold - 2, 2.5, 3.0, confidence=0.5)
        score = max(n - 11 * p for n, p in zip(N, student, strict=True))
        passed = ndtr((score - threshold + 2) / 2.5)
        law = [0.0, *(passed * gaussian_wins(N, 3.0))]
        law[own] += 1 - passed
        p = np.tile(student, (40_000, 1))
        fits(released(mechanism, many, Quick(4), p), law)


@pytest.mark.parametrize("rows", [[(20, 1), (13, 8)], [(1, 16, 4), (6, 8, 7)]])
def test_stable_votes_follow_their_law(rows: list[tuple[int, ...]]) -> None:
    mechanism = StableVotes(epsilon=3.0, failure=0.2, failures=1)
    two = votes(rows)
    d, best = distances(two.counts).tolist(), np.argmax(two.counts, axis=1).tolist()
    truth = stable_law(mechanism, list(zip(d, best, strict=True)))
    stream = Quick(5)
    runs = [released(mechanism, two, stream) for _ in range(4000)]
    answers = [tuple(np.nan_to_num(r, nan=-1).astype(int).tolist()) for r in runs]
    outcomes = [k for k, p in truth.items() if p > 0]
    assert set(answers) <= set(outcomes)
    index = np.array([outcomes.index(k) for k in answers], dtype=float)
    fits(index, [0.0, *(truth[k] for k in outcomes)])


def test_unanimous_votes_cost_one_threshold() -> None:
    """1000 exact answers for epsilon 1, with room for one failure; split votes end it at once."""
    mechanism = StableVotes(epsilon=1.0, failure=1e-6, failures=1)
    sure = votes([(0, 250, 0)] * 1000)
    assert (released(mechanism, sure, Quick(6)) == 1).all()
    assert mechanism.loss(1.0).pure() == 1
    split = votes([(125, 125, 0)] * 2 + [(0, 250, 0)] * 998)
    assert np.isnan(released(mechanism, split, Quick(7))).all()
    three = released(StableVotes(3.0, 1e-6, failures=3), split, Quick(8))
    assert np.isnan(three[:2]).all()
    assert (three[2:] == 1).all()
    vote = dp.pate.ballots("v", teachers=250, questions=1000, classes=3)
    for questions in (10, 10**6):
        vote = dp.pate.ballots("v", teachers=250, questions=questions, classes=3)
        plan = dp.Pipeline(a=vote.release(mechanism)).with_delta(1e-6)
        assert plan.certify().epsilon <= 1


def test_no_more_than_the_limit_is_answered() -> None:
    many = votes([(9, 2)] * 500)
    none = np.zeros((500, 2))
    for limit in (1, 7):
        every = [ConfidentGNMax(9, 1.0, 1.0, limit), InteractiveGNMax(9, 1.0, 1.0, 1.0, limit)]
        for mechanism in every:
            result = released(mechanism, many, Quick(limit), none)
            assert (~np.isnan(result)).sum() == limit
            assert np.flatnonzero(~np.isnan(result)).max() < 60  # the first that pass
    own = np.tile([0.1, 0.9], (500, 1))
    result = released(InteractiveGNMax(0, 1.0, 1.0, 0.5, 1), many, Quick(1), own)
    assert not np.isnan(result).any()  # the student's own labels are free
    assert (result == 1).sum() >= 499


def test_a_threshold_far_away() -> None:
    three = votes([(9, 2)] * 3)
    for threshold, none in ((1e299, True), (-1e299, False), (2**40, True), (-(2**40), False)):
        result = released(ConfidentGNMax(threshold, 1e-9, 1e-9), three, Quick(9))
        assert np.isnan(result).all() == none
    exact = released(ConfidentGNMax(9, 1e-12, 1e-12), votes([(9, 2), (8, 3)]), Quick(9))
    assert exact[0] == 0  # 9 reaches 9
    assert np.isnan(exact[1])


@pytest.mark.parametrize("mechanism", ALL, ids=str)
@pytest.mark.parametrize(
    "rows", [[(4,)], [(1,)] * 3, [(0, 1)], [(1, 0, 0)], [(2, 2)], [(0, 0, 0, 7)] * 2, [(2, 2, 2)]]
)
def test_odd_votes_are_answered_or_not(mechanism: dp.Mechanism, rows: list[Any]) -> None:
    """One class, one teacher, one question, ties."""
    value = votes(rows)
    for stream in (Quick(1), SecureStream()):
        result = released(mechanism, value, stream)
        assert result.shape == (len(rows),)
        assert result.dtype == np.float64
        answered = result[~np.isnan(result)]
        assert np.isin(answered, range(value.counts.shape[1])).all()
    assert (released(Plurality(), value, Quick(1)) == np.argmax(value.counts, axis=1)).all()


def test_ties_are_no_ones() -> None:
    many = votes([(4, 4, 3)] * 40_000)
    for mechanism in (GNMax(5.0), LNMax(5.0)):
        result = released(mechanism, many, Quick(10))
        fits(result[result < 2], [0.0, 0.5, 0.5])
    assert (released(Plurality(), many, Quick(1)) == 0).all()


def test_large_counts_and_little_noise() -> None:
    value = votes([(2**29, 2**29 - 1), (2**29 - 1, 2**29)])
    for scale in (1e-300, 1e-9, 0.02):
        for mechanism in (GNMax(scale), LNMax(scale), ConfidentGNMax(2**29 - 0.5, scale, scale)):
            assert released(mechanism, value, Quick(1)).tolist() == [0, 1]
    loud = released(LNMax(2.0**40), votes([(4, 1)] * 4000), Quick(2))
    fits(loud, [0.0, 0.5, 0.5])
    for silent in (LNMax(1e13), ConfidentGNMax(0, 1e13, 1.0), ConfidentGNMax(0, 1.0, 1e13)):
        with pytest.raises(dp.DeclarationError):
            silent.cost(1.0, 1, 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LNMax(0.0), r"\bscale\b"),
        (lambda: ConfidentGNMax(np.nan, 1.0, 1.0), "threshold"),
        (lambda: ConfidentGNMax(5, -1.0, 1.0), "sigma_check"),
        (lambda: ConfidentGNMax(5, 1.0, 1.0, 0), r"answers.*\b1\b"),
        (lambda: ConfidentGNMax(5, 1.0, 1.0, 2.5), "answers"),
        (lambda: InteractiveGNMax(5, 1.0, 1.0, 1.5), "confidence"),
        (lambda: InteractiveGNMax(5, 1.0, 1.0, True), "confidence"),
        (lambda: StableVotes(1.0, 0.0), "failure"),
        (lambda: StableVotes(0.0, 1e-6), "epsilon"),
        (lambda: StableVotes(1.0, 1e-6, 0), r"failures.*\b1\b"),
    ],
)
def test_refused_parameters(make: Any, message: str) -> None:
    with pytest.raises(dp.DeclarationError, match=message):
        make()
