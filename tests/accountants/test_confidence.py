"""Clopper and Pearson's bounds, against SciPy's binomial test and an exact binomial sum."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from scipy import stats

from accountants.confidence import lower, odds, upper


def is_clopper_and_pearson_s(hits: int, tries: int, share: float) -> None:
    interval = stats.binomtest(hits, tries).proportion_ci(1 - 2 * share, method="exact")
    low, high = float(interval.low), float(interval.high)
    assert lower(hits, tries, share) == pytest.approx(low, rel=1e-8, abs=1e-300)
    assert upper(hits, tries, share) == pytest.approx(high, rel=1e-8)
    assert lower(hits, tries, share) <= low  # outward
    assert upper(hits, tries, share) >= high
    if low < 1:
        assert odds(hits, tries, share) == pytest.approx(low / (1 - low), rel=1e-6)


@pytest.mark.parametrize(
    ("hits", "tries"), [(0, 10), (3, 10), (10, 10), (57, 1000), (0, 10**6), (999_900, 10**6)]
)
@pytest.mark.parametrize("share", [0.05, 0.025, 1e-6])
def test_the_bounds_are_scipys(hits: int, tries: int, share: float) -> None:
    is_clopper_and_pearson_s(hits, tries, share)


@examples(50)
@given(st.integers(1, 10**6), st.floats(0.0, 1.0), st.floats(1e-9, 0.4))
def test_the_bounds_are_scipys_anywhere(tries: int, part: float, share: float) -> None:
    is_clopper_and_pearson_s(int(part * tries), tries, share)


def test_the_tails_have_their_share() -> None:
    share, draws, hits = 1e-4, 20, 7
    low, high = lower(hits, draws, share), upper(hits, draws, share)
    tail = [math.comb(draws, k) * low**k * (1 - low) ** (draws - k) for k in range(hits, draws + 1)]
    head = [math.comb(draws, k) * high**k * (1 - high) ** (draws - k) for k in range(hits + 1)]
    assert math.isclose(sum(tail), share, rel_tol=1e-7)
    assert math.isclose(sum(head), share, rel_tol=1e-7)
    assert sum(tail) <= share * (1 + 1e-12)
    assert lower(0, draws, share) == 0.0
    assert upper(draws, draws, share) == 1.0
