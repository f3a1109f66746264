"""The best few of keys that nobody declared: the exact law over all neighbours of a universe."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats
from streams import Quick

import adaptive_dp as dp
from adaptive_dp.graph.mechanism import UnitsByKey

KEYS = "abc"
Unit = tuple[str, ...]


def law(counts: Counter[str], scale: float, end: float, k: int) -> dict[tuple[str, ...], float]:
    """The law of the sequence that is released, by enumeration."""
    found: dict[tuple[str, ...], float] = {}

    def follow(said: tuple[str, ...], chance: float) -> None:
        left = {key: math.exp(n / scale) for key, n in counts.items() if n and key not in said}
        if len(said) == k or not left:
            found[said] = found.get(said, 0.0) + chance
            return
        total = sum(left.values()) + math.exp(end / scale)
        found[said] = found.get(said, 0.0) + chance * math.exp(end / scale) / total
        for key, weight in left.items():
            follow((*said, key), chance * weight / total)

    follow((), 1.0)
    return found


def counted(units: Any) -> Counter[str]:
    return Counter(key for unit in units for key in unit)


@pytest.mark.parametrize("delta", [0.3, 0.05])
@pytest.mark.parametrize(("k", "most"), [(1, 1), (2, 2)])
def test_all_neighbours_are_within_the_loss(k: int, most: int, delta: float) -> None:
    """The exact delta, at the pure epsilon of k choices and below it for one choice."""
    scale = 1.5
    mechanism = dp.TopKeys(scale=scale, k=k, keys=most, rows=1, delta=delta)
    units: list[Unit] = [
        u for size in range(1, most + 1) for u in itertools.combinations(KEYS, size)
    ]
    bounds = {}
    for span in (1.0, 2.0):
        loss = mechanism.loss(1.0, span)
        bounds[span] = [(loss.pure(), delta)]
        # beside the delta of failures, that of a pure epsilon of all choices
        pure = math.exp(loss.pure())
        for epsilon in (0.0, 0.5, 1.0):
            rest = max(0.0, (pure - math.exp(epsilon)) / (pure + 1))
            bounds[span].append((epsilon, delta + (1 - delta) * rest))
    worst = 0.0
    for others in itertools.combinations_with_replacement(units, 2):
        one = law(counted(others), scale, mechanism.threshold, k)
        first = law(counted([*others, units[0]]), scale, mechanism.threshold, k)
        for unit in units:
            two = law(counted([*others, unit]), scale, mechanism.threshold, k)
            for p, q, span in (
                (one, two, 1.0),
                (two, one, 1.0),
                (first, two, 2.0),
                (two, first, 2.0),
            ):
                for epsilon, bound in bounds[span]:
                    exact = sum(
                        max(0.0, p.get(s, 0.0) - math.exp(epsilon) * q.get(s, 0.0))
                        for s in {*p, *q}
                    )
                    assert exact <= bound + 1e-12
                    worst = max(worst, exact / bound)
    assert worst > 0.3


def test_the_delta_is_attained_by_one_unit_alone() -> None:
    mechanism = dp.TopKeys(scale=2.0, k=1, keys=1, rows=1, delta=0.1)
    alone = law(Counter("a"), 2.0, mechanism.threshold, 1)
    assert 0.085 < alone[("a",)] <= 0.1
    assert mechanism.chance(1) == pytest.approx(alone[("a",)])
    assert mechanism.chance(0) == 0


def test_releases_have_the_law() -> None:
    mechanism = dp.TopKeys(scale=1.0, k=2, keys=2, rows=1, delta=0.2)
    pairs = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 2), (3, 0), (3, 1)]
    value, stream = UnitsByKey(list(KEYS), np.array(pairs, dtype=np.int64)), Quick(1)
    seen: Counter[tuple[str, ...]] = Counter()
    for _ in range(4_000):
        ranks = mechanism.release(value, stream)
        seen[tuple(sorted(ranks, key=ranks.__getitem__))] += 1
    expected = law(Counter({"a": 4, "b": 2, "c": 1}), 1.0, mechanism.threshold, 2)
    assert set(seen) <= set(expected)
    rates = np.array(list(expected.values()))
    counts = np.array([seen[s] for s in expected])
    assert stats.chisquare(counts, rates / rates.sum() * counts.sum()).pvalue > 1e-7
    other = law(Counter({"a": 4, "b": 2, "c": 1}), 1.5, mechanism.threshold, 2)
    wrong = np.array([other[s] for s in expected])
    assert stats.chisquare(counts, wrong / wrong.sum() * counts.sum()).pvalue < 1e-7


def test_of_a_table() -> None:
    visits = dp.dataset("visits", columns={"page": str}, unit="user", rows_per_unit=4)
    counts = visits.group_by("page").count()
    log = {"page": ["home"] * 900 + ["help"] * 400 + ["rare"] * 3, "user": list(range(1303))}
    plan = dp.Pipeline(pages=counts.release(dp.TopKeys(k=3)))
    plan = plan.calibrate(epsilon=1.0, delta=1e-6)
    certificate = plan.certify()
    assert certificate.epsilon <= 1.0
    found = plan.simulate(seed=1, visits=log)["pages"]
    assert found == {"home": 1.0, "help": 2.0}
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    with pytest.raises(dp.DeclarationError, match="may have 4 keys"):
        dp.Pipeline(x=counts.release(dp.TopKeys(scale=9.0, k=3, keys=2, delta=1e-7)))
    with pytest.raises(dp.DeclarationError):
        dp.TopKeys(scale=9.0, k=0, delta=1e-7)
    assert dp.TopKeys(scale=9.0, k=2, delta=1e-7).loss(0.0).pure() == 0
