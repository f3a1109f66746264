"""Smooth sensitivity and distance of votes' losses, against all data sets of small universes."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from accountants import ConfidentVotes, GaussianVotes
from accountants.losses.votes import (
    Table,
    VoteCells,
    cell_distance,
    grid,
    normal_tail,
    smooth_votes,
    table,
    vote_cells,
    votes_distance,
)
from accountants.numerics import Array

Votes = GaussianVotes | ConfidentVotes


class Universe:
    """All multisets of voters, each with a vote in each query; distances and histograms."""

    def __init__(self, voters: int, classes: int, queries: int) -> None:
        kinds = list(itertools.product(range(classes), repeat=queries))
        self.sets = list(itertools.combinations_with_replacement(range(len(kinds)), voters))
        histograms = np.zeros((len(self.sets), len(kinds)), dtype=np.int64)
        for row, each in zip(histograms, self.sets, strict=True):
            for kind, times in Counter(each).items():
                row[kind] = times
        onto = np.zeros((len(kinds), queries, classes), dtype=np.int64)
        for index, kind in enumerate(kinds):
            for query, chosen in enumerate(kind):
                onto[index, query, chosen] = 1
        self.counts = np.einsum("sk,kqc->sqc", histograms, onto)
        # voters to exchange: half of the l1 distance
        self.away = np.abs(histograms[:, None, :] - histograms[None, :, :]).sum(axis=2) // 2

    def sensitivities(self, f: Array, beta: float) -> Array:
        """The smooth sensitivity by its definition: the largest over all data sets."""
        differences = np.abs(f[:, None] - f[None, :])
        local = np.where(self.away == 1, differences, 0.0).max(axis=1)
        return np.asarray((np.exp(-beta * self.away) * local[None, :]).max(axis=1))


CASES = [
    (6, 2, 1, GaussianVotes(0.6, 2, 6)),
    (6, 3, 1, GaussianVotes(0.5, 3, 6)),
    (6, 3, 1, ConfidentVotes(4.0, 0.8, 0.5, 3, 6)),
    (6, 2, 2, ConfidentVotes(3.5, 1.5, 0.6, 2, 6)),
]


@pytest.mark.parametrize(("voters", "classes", "queries", "votes"), CASES)
def test_smooth_sensitivity_over_a_universe(
    voters: int, classes: int, queries: int, votes: Votes
) -> None:
    every, order = Universe(voters, classes, queries), 1.5
    direct = np.array([votes.both(counts, [order])[0] for counts in every.counts])
    for beta in (1e-3, 0.7):
        computed = np.array([votes.smooth(counts, order, beta) for counts in every.counts])
        f, s = computed.T
        assert np.all(f <= direct * (1 + 1e-9) + 1e-12)
        if isinstance(votes, GaussianVotes):
            np.testing.assert_allclose(f, direct, rtol=1e-9, atol=1e-11)
        assert f.max() > 1.1 * f.min()
        check_smooth(every, f, s, beta)
        assert np.all(s <= (queries * votes.worst().renyi(np.array([order]))[0]))


def check_smooth(every: Universe, f: Array, s: Array, beta: float) -> None:
    assert np.all(s >= every.sensitivities(f, beta))
    ratios = np.where(every.away == 1, s[:, None] / s[None, :], 0.0)
    assert ratios.max() <= math.exp(beta)


def check_distance(every: Universe, f: Array, computed: Array, budget: float, voters: int) -> None:
    true = np.where((f > budget)[None, :], every.away, voters + 1).min(axis=1)
    assert np.all(computed <= true)
    np.testing.assert_array_equal(computed == 0, f > budget)
    differences = np.abs(computed[:, None] - computed[None, :])
    assert differences[every.away == 1].max() <= 1


@pytest.mark.parametrize(("voters", "classes", "queries", "votes"), CASES)
def test_distance_over_a_universe(voters: int, classes: int, queries: int, votes: Votes) -> None:
    every, order = Universe(voters, classes, queries), 1.5
    f = np.array([votes.smooth(counts, order, 1.0)[0] for counts in every.counts])
    both = np.array([votes.both(counts, [order])[0] for counts in every.counts])
    for budget in (f.min() / 2, f.min(), float(np.median(f)), 2 * both.max()):
        computed = np.array([votes.distance(counts, order, budget) for counts in every.counts])
        check_distance(every, f, computed, budget, voters)
        assert np.all(computed[both <= budget] > 0)
    assert np.all(computed == voters + 1)


@pytest.mark.parametrize(
    ("voters", "classes", "queries", "tops"),
    [(6, 2, 2, 0), (4, 3, 2, 2), (6, 3, 1, 0), (6, 3, 1, 2), (3, 3, 2, 1), (5, 2, 3, 3)],
)
def test_windows_of_any_table(voters: int, classes: int, queries: int, tops: int) -> None:
    # the windows hold for any bounds, falling or not; tops: the first row, 0 for one row only
    every, draw = Universe(voters, classes, queries), np.random.default_rng(voters)
    tail = normal_tail(1.3)
    logs = grid(tail, classes, voters)
    rows = voters - tops + 1 if tops else 1
    rough = np.repeat(draw.random((rows, voters)), 8, axis=1)
    values = np.concatenate([rough, draw.random((rows, 1))], axis=1)
    for bounds in (values, np.sort(values)[:, ::-1], values**8):
        vote_table = table(bounds, 1.0, queries, tops or voters, cell_distance(8))
        at = [vote_cells(counts, logs, tail, classes, voters) for counts in every.counts]
        f = np.array([sum(_looked_up(vote_table, x)) for x in at]) * vote_table.unit
        for beta in (0.05, 1.5):
            computed = np.array([smooth_votes(vote_table, x, voters, beta) for x in at])
            np.testing.assert_allclose(computed[:, 0], f, rtol=1e-12)
            check_smooth(every, f, computed[:, 1], beta)
        for budget in np.quantile(f, [0.2, 0.7]):
            away = np.array([votes_distance(vote_table, x, voters, budget) for x in at])
            check_distance(every, f, away, budget, voters)
            assert away.max() > 0


def _looked_up(vote_table: Table, at: VoteCells) -> list[float]:
    one = len(vote_table.steps) == 1
    return [
        n * vote_table.steps[0 if one else top - vote_table.first, cell]
        for top, cell, n in zip(at.top, at.cell, at.times, strict=True)
    ]


def test_two_classes_are_exact_up_to_the_grid() -> None:
    # 60 voters, one query: every gap is reached; windows are wider by one cell in 17 a step
    voters, votes, order = 60, GaussianVotes(4.0, 2, 60), 8.0
    counts = [[[(voters + gap) // 2, (voters - gap) // 2]] for gap in range(-60, 61, 2)]
    away = np.abs(np.subtract.outer(np.arange(61), np.arange(61)))
    worst = 1.0
    for beta in (0.01, 0.1, 0.5):
        f, s = np.array([votes.smooth(each, order, beta) for each in counts]).T
        differences = np.abs(f[:, None] - f[None, :])
        local = np.where(away == 1, differences, 0.0).max(axis=1)
        exact = (np.exp(-beta * away) * local[None, :]).max(axis=1)
        assert np.all(s >= exact)
        worst = max(worst, float((s / exact).max()))
    assert worst < 2.6


def test_many_queries_at_once() -> None:
    # what m equal queries move is m times what one moves
    votes, order = GaussianVotes(10.0, 3, 100), 6.0
    one_f, one_s = votes.smooth([[90, 5, 5]], order, 0.1)
    f, s = votes.smooth([[90, 5, 5]] * 5000, order, 0.1)
    assert f == pytest.approx(5000 * one_f, rel=1e-3)
    assert s == pytest.approx(5000 * one_s, rel=1e-3)
    mixed = np.random.default_rng(0).multinomial(100, [0.9, 0.05, 0.05], size=300)
    assert votes.smooth(mixed, order, 0.1) == votes.smooth(mixed[::-1], order, 0.1)
    budget = votes.smooth(mixed, order, 0.1)[0]
    assert votes.distance(mixed, order, budget) >= 1
    assert votes.distance(mixed, order, budget * (1 - 1e-9)) == 0
    assert votes.distance(mixed, order, 3 * budget) > votes.distance(mixed, order, 1.5 * budget)
