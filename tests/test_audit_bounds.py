"""The statistics of audits, against exact enumeration and SciPy's own binomial tests."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from adaptive_dp.audit import confidence as bounds
from adaptive_dp.audit.confidence import Guesses


def trinomial(tries: int, c: float, w: float) -> list[tuple[int, int, float]]:
    """Every (right, wrong) and its probability."""
    grid = []
    for right in range(tries + 1):
        first = stats.binom.pmf(right, tries, c)
        for wrong in range(tries - right + 1):
            grid.append((right, wrong, first * stats.binom.pmf(wrong, tries - right, w / (1 - c))))
    return grid


@pytest.mark.parametrize("way", ["ratio", "apart"])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize(("c", "delta"), [(0.4, 0.0), (0.3, 0.1), (0.6, 0.05), (0.2, 0.15)])
def test_no_bound_exceeds_the_truth_more_often_than_it_says(
    way: bounds.Way, sides: int, c: float, delta: float
) -> None:
    """Exact coverage, by enumeration, where the event attains a claim (epsilon, delta)."""
    epsilon, share, tries = 0.8, 0.1, 40
    least = delta * sides / 2
    w = (c - least) / math.exp(epsilon)
    if c + w > sides / 2:
        pytest.skip("no such event")
    wrong_epsilon = wrong_delta = 0.0
    for right, wrong, chance in trinomial(tries, c, w):
        seen = Guesses(right, wrong, tries, sides)
        wrong_epsilon += chance * (bounds.epsilon(seen, delta, share, way) > epsilon)
        wrong_delta += chance * (bounds.delta(seen, epsilon, share, way) > delta)
    assert wrong_epsilon <= share
    assert wrong_delta <= share


def test_the_ratio_wastes_little_of_the_error() -> None:
    """For randomized response it is an exact test: the coverage is as near as counts allow."""
    tries, share, epsilon = 400, 0.05, 1.0
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    chance = sum(
        stats.binom.pmf(right, tries, truth)
        for right in range(tries + 1)
        if bounds.epsilon(Guesses(right, tries - right, tries), 0.0, share, "ratio") > epsilon
    )
    assert 0.03 < chance <= share


@pytest.mark.parametrize("mu", [0.5, 1.0, 3.0])
def test_mu_is_covered(mu: float) -> None:
    """Exact coverage at the midpoint of N(0, 1) and N(mu, 1)."""
    tries, share = 300, 0.05
    right = stats.norm.cdf(mu / 2)
    rights = np.arange(tries + 1)
    weight = stats.binom.pmf(rights, tries, right)
    result = np.array([bounds.mu_of_all(int(k), tries, share) for k in rights])
    assert weight[result > mu].sum() <= share


@pytest.mark.parametrize(("delta", "way"), [(0.0, "ratio"), (0.02, "ratio"), (0.02, "apart")])
def test_power_is_what_it_says(delta: float, way: bounds.Way) -> None:
    """At the epsilon that it names, nine of ten audits find a violation: by simulation."""
    rng = np.random.default_rng(5)
    seen, share, claimed = Guesses(2600, 1000, 10_000), 0.05, 1.0
    named = bounds.detectable_epsilon(seen, claimed, delta, share, way)
    rate = 0.36
    w = (rate - delta) / (1 + math.exp(named))
    draws = rng.multinomial(10_000, [rate - w, w, 1 - rate], size=2000)
    result = [
        bounds.epsilon(Guesses(int(r), int(m), 10_000), delta, share, way) > claimed
        for r, m, _ in draws
    ]
    assert 0.86 < np.mean(result) < 0.96  # the standard error is below 0.007
    assert claimed < named < 1.5


def test_power_is_infinite_where_nothing_could_be_detected() -> None:
    assert bounds.detectable_epsilon(Guesses(20, 0, 50), 5.0, 0.0, 0.05, "ratio") == math.inf
    assert bounds.detectable_epsilon(Guesses(0, 0, 50), 0.1, 0.0, 0.05, "ratio") == math.inf


def test_bounds_of_nothing_are_nothing() -> None:
    none = Guesses(0, 0, 100)
    assert bounds.epsilon(none, 0.0, 0.05, "ratio") == 0
    assert bounds.epsilon(none, 0.1, 0.05, "apart") == 0
    assert bounds.delta(none, 1.0, 0.05, "ratio") == 0
    assert bounds.mu_of_all(0, 100, 0.05) == 0
