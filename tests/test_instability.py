"""Choices with their distance to instability, and the test on it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.mechanism import FOREVER, Choice
from adaptive_dp.mechanisms.propose_test_release import (
    distance_threshold,
    is_far,
    two_sided_geometric,
)
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.order_statistics import instability

Counts = tuple[int, ...]


def chosen(counts: Counts) -> int:
    return counts.index(max(counts))


def one_step(counts: Counts, exchange: bool, outside: int) -> set[tuple[Counts, int]]:
    """Neighbouring counts, with how many rows are in no category."""
    cells = [*counts, outside]
    places = range(len(cells))
    less = [[c - (i == j) for i, c in enumerate(cells)] for j in places if cells[j] > 0]
    if exchange:
        neighbors = [[c + (i == j) for i, c in enumerate(row)] for row in less for j in places]
    else:
        neighbors = less + [[c + (i == j) for i, c in enumerate(cells)] for j in places]
    return {(tuple(row[:-1]), row[-1]) for row in neighbors}


def brute(counts: Counts, exchange: bool, outside: int, most: int) -> int:
    """How many steps there are before one more may change the choice, up to `most`."""
    seen = {(counts, outside)}
    edge = set(seen)
    for k in range(most):
        edge = {n for c, o in edge for n in one_step(c, exchange, o)} - seen
        if any(chosen(c) != chosen(counts) for c, _ in edge):
            return k
        seen |= edge
    return most


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("width", [2, 3])
def test_the_distance_against_brute_force(exchange: bool, width: int) -> None:
    for counts in itertools.product(range(6), repeat=width):
        for outside in (0, 2):
            ours = instability(np.array(counts, dtype=float), exchange)
            assert ours.index == chosen(counts)
            exact = brute(counts, exchange, outside, 4)
            assert min(ours.distance, 4) <= exact
            if sum(counts):  # without any row to take, fewer changes are possible than assumed
                assert min(ours.distance, 4) == exact, counts


@pytest.mark.parametrize("exchange", [True, False])
def test_the_distance_moves_by_one_step_at_most(exchange: bool) -> None:
    for counts in itertools.product(range(6), repeat=3):
        here = instability(np.array(counts, dtype=float), exchange)
        for other, _ in one_step(counts, exchange, 1):
            there = instability(np.array(other, dtype=float), exchange)
            if here.index == there.index:
                assert abs(here.distance - there.distance) <= 1
            else:
                assert here.distance == there.distance == 0


def test_both_definitions_of_the_distance_agree() -> None:
    """One less than the steps to another choice; or the steps to where a neighbour has another."""
    for counts in itertools.product(range(5), repeat=3):
        steps = brute(counts, False, 0, 6)
        unstable = [c for c, _ in one_step(counts, False, 0) if chosen(c) != chosen(counts)]
        assert (steps == 0) == bool(unstable)


def test_margins_of_votes() -> None:
    """``max(0, ceil(gap / 2) - 1)`` where a vote moves and ties count against (Bassily et al.)."""
    for gap in range(1, 40):
        choice = instability(np.array([100.0 - gap, 100.0]), exchange=True)
        assert choice.distance == max(0, math.ceil(gap / 2) - 1)


def test_one_candidate_is_never_another() -> None:
    assert instability(np.array([3.0]), False) == Choice(0, FOREVER)


def tail(epsilon: float, k: int) -> float:
    """P(N > k) by summing masses."""
    r = math.exp(-epsilon)
    masses = [
        (1 - r) / (1 + r) * r ** abs(j) for j in range(k + 1, k + 1 + math.ceil(60 / epsilon))
    ]
    return math.fsum(masses)


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 1.0, 5.0])
def test_the_threshold_is_the_least(epsilon: float) -> None:
    for delta in (0.3, 1e-3, 1e-6, 1e-12):
        threshold = distance_threshold(epsilon, delta)
        assert tail(epsilon, threshold) <= delta
        assert threshold == 0 or tail(epsilon, threshold - 1) > delta
        assert threshold <= max(0, math.ceil(math.log(1 / (2 * delta)) / epsilon) + 1)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_test_is_private_at_all_distances(epsilon: float) -> None:
    """Exactly, over all pairs: f the same and d within 1; or f another and d = 0 at both."""
    delta = 1e-4
    cut = distance_threshold(epsilon, delta)
    released = [tail(epsilon, cut - d) for d in range(3 * cut + 5)]
    for d, (p, q) in enumerate(itertools.pairwise(released)):
        for a, b in ((p, q), (q, p), (1 - p, 1 - q), (1 - q, 1 - p)):
            assert a <= math.exp(epsilon) * b * (1 + 1e-9) + 1e-15, d
    assert released[0] <= delta  # f differs: whatever is released tells, with this probability


def test_the_printed_threshold_fails() -> None:
    """With log(1/epsilon)/epsilon in place of the delta's, f leaves an unstable data set."""
    epsilon = 0.1
    cut = math.floor(math.log(1 / epsilon) / epsilon)
    assert tail(epsilon, cut) == pytest.approx(epsilon / 2, rel=0.1)


def test_far_from_instability_it_is_released() -> None:
    """At epsilon 1, delta 1e-6 and d = 30: the failure is below 1e-7."""
    assert 1 - tail(1.0, distance_threshold(1.0, 1e-6) - 30) < 1e-7


SIZE = 2000
LIMIT = math.sqrt(math.log(2 / 1e-7) / 2 / SIZE)
"""Dvoretzky, Kiefer, Wolfowitz and Massart, and Hoeffding: a true law fails one time in 1e7."""


@pytest.mark.parametrize("epsilon", [0.2, 1.0])
def test_geometric_noise_has_its_law(epsilon: float) -> None:
    stream = SeededStream(4)
    draws = np.array([two_sided_geometric(epsilon, stream) for _ in range(SIZE)])

    def apart(other: float) -> float:
        points = range(-40, 41)
        return max(abs(float((draws > k).mean()) - tail_any(other, k)) for k in points)

    assert apart(epsilon) < LIMIT
    assert apart(epsilon * 2) > LIMIT


def tail_any(epsilon: float, k: int) -> float:
    return tail(epsilon, k) if k >= 0 else 1 - tail(epsilon, -k - 1)


def test_it_passes_as_often_as_it_should() -> None:
    epsilon, delta, distance = 1.0, 1e-2, 4
    stream = SeededStream(9)
    rate = np.mean([is_far(distance, epsilon, delta, stream) for _ in range(SIZE)])
    cut = distance_threshold(epsilon, delta)
    assert abs(rate - tail_any(epsilon, cut - distance)) < LIMIT
    assert abs(rate - tail_any(epsilon, cut - distance + 1)) > LIMIT  # as if d were 3


def table(neighbors: Any = "add_remove") -> dp.Table:
    return dp.dataset("t", columns={"r": ["A", "B", "C"], "x": (0, 3)}, neighbors=neighbors)


def test_a_mode_is_released_as_its_key_or_as_none() -> None:
    sure = dp.DistanceToInstability(epsilon=1.0, delta=1e-6)
    t = table()
    plan = dp.Pipeline(mode=t["r"].mode().release(sure), bin=t["x"].mode([0, 1, 3]).release(sure))
    many = {"r": np.array(["B"] * 60 + ["C"] * 20 + ["?"] * 9), "x": np.full(89, 2.0)}
    result = plan.with_delta(1e-5).simulate(seed=1, t=many)
    assert result["mode"] == "B"
    assert result["bin"] == "[1, 3]"
    few = {"r": np.array(["A", "B"]), "x": np.array([0.5, 2.0])}
    result = plan.with_delta(1e-5).simulate(seed=1, t=few)
    assert result["mode"] is None
    assert result["bin"] is None


def test_it_costs_epsilon_and_delta_for_each_step() -> None:
    loss = dp.DistanceToInstability(epsilon=0.5, delta=1e-7)
    for neighbors, steps in (("add_remove", 1), ("replace_one", 1)):
        plan = dp.Pipeline(m=table(neighbors)["r"].mode().release(loss))
        assert plan.certify(1e-7, accountants=[accountants.Basic()]).epsilon == pytest.approx(0.5)
        assert steps == 1
    t = table("replace_one")
    inside = t.filter(t["x"] > 1)["r"].mode()
    plan = dp.Pipeline(m=inside.release(loss))
    twice = accountants.Approximate(0.5, 1e-7).grouped(2)
    assert plan.certify(twice.delta).epsilon == pytest.approx(1.0)


@pytest.mark.parametrize("budget", [1e-300, 1e-3, 1e299])
def test_odd_budgets(budget: float) -> None:
    mechanism = dp.DistanceToInstability(epsilon=budget, delta=1e-60)
    for distance in (0, 1, 10**6, FOREVER):
        released = mechanism.release(Choice(2, distance), SeededStream(1))
        assert released.shape == ()
        assert math.isnan(released) or released == 2


BAD: dict[str, Callable[[], Any]] = {
    "strings in numbers": lambda: table()["r"].mode([0, 1]),
    "no bins": lambda: table()["x"].mode(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_has_no_mode_is_refused(name: str) -> None:
    with pytest.raises(dp.DeclarationError):
        BAD[name]()
