"""Nearly sampled mechanisms, against every event of small discrete distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accountants import (
    Approximate,
    BoundedRange,
    DomainError,
    Gaussian,
    InapplicableError,
    Pure,
    certify,
    tightest,
    with_total_variation,
)
from accountants.terms import Spend


def hockey(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    """The least delta, both ways: the worst event is where the difference is positive."""
    forth = np.maximum(p - math.exp(epsilon) * q, 0).sum()
    return float(max(forth, np.maximum(q - math.exp(epsilon) * p, 0).sum()))


def nearby(p: np.ndarray, t: float, rng: np.random.Generator) -> np.ndarray:
    """A distribution at most t away: mass is taken at random, and put elsewhere."""
    taken = np.minimum(p, rng.random(len(p)) ** 4 * 3 * t)
    taken *= min(1.0, t / taken.sum())
    put = rng.dirichlet(np.full(len(p), 0.3)) * taken.sum()
    return np.asarray(p - taken + put)


def test_no_small_mechanism_exceeds_it() -> None:
    rng, close = np.random.default_rng(1), 0.0
    for k in range(3000):
        size, t = int(rng.integers(2, 7)), float(rng.choice([1e-3, 0.01, 0.05]))
        p = rng.dirichlet(np.full(size, 0.7)) + 1e-3
        q = p * np.exp(rng.uniform(-1, 1, size) * (0.1, 1.0, 2.0)[k % 3])
        p, q = p / p.sum(), q / q.sum()
        epsilon = float(np.abs(np.log(p / q)).max())
        near = with_total_variation(Pure(epsilon), t)
        divergence = hockey(nearby(p, t, rng), nearby(q, t, rng), epsilon)
        assert divergence <= near.delta + 1e-15
        close = max(close, divergence / near.delta)
        # at another epsilon, whose delta is that of the pair itself
        lower = 0.6 * epsilon
        constraint = Approximate(lower, min(1.0, hockey(p, q, lower) + 1e-15))
        claimed = with_total_variation(constraint, t).delta
        assert hockey(nearby(p, t, rng), nearby(q, t, rng), lower) <= claimed
    assert close > 0.3


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_it_is_attained(epsilon: float) -> None:
    """Randomized response, whose sampler moves t of one answer either way."""
    yes, t = math.exp(epsilon) / (1 + math.exp(epsilon)), 1e-3
    p, q = np.array([yes + t, 1 - yes - t]), np.array([1 - yes - t, yes + t])
    claimed = with_total_variation(Pure(epsilon), t).delta
    assert hockey(p, q, epsilon) == pytest.approx(claimed, rel=1e-9)
    assert hockey(p, q, epsilon) > 1.9 * t  # more than a failure of t would allow


def test_of_other_losses() -> None:
    assert with_total_variation(Pure(0.5), 0.0) == Approximate(0.5, 0.0)
    assert with_total_variation(BoundedRange(1.0), 1e-6).epsilon == 1.0
    near = with_total_variation(Gaussian(1.0), 1e-6, epsilon=2.0)
    exact = Gaussian(1.0).profile(2.0)
    assert near.delta >= exact.upper + (1 + math.exp(2.0)) * 1e-6 * (1 - 1e-12)
    assert with_total_variation(Pure(800.0), 1e-300).delta == 1.0
    with pytest.raises(InapplicableError, match="epsilon="):
        with_total_variation(Gaussian(1.0), 1e-6)
    with pytest.raises(DomainError):
        with_total_variation(Pure(1.0), 1.5)


def test_accountants_take_it() -> None:
    near = with_total_variation(Pure(1.0), 1e-8)
    answer = tightest(certify(Spend(near), delta=near.delta))
    assert answer.bounds.upper == pytest.approx(1.0, rel=1e-6)
    assert answer.bounds.upper >= 1.0 - 1e-12
