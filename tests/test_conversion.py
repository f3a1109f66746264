"""Released bounds that later mechanisms rely on: the theorem, and what it needs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

import adaptive_dp as dp
from accountants import Approximate, Gaussian, Sequential, Spend, certify
from adaptive_dp.mechanisms.released_bounds import margin
from adaptive_dp.noise.stream import SeededStream

X = np.linspace(-14, 16, 30_001)
STEP = X[1] - X[0]


def gaussian_profile(mu: float, epsilon: np.ndarray) -> np.ndarray:
    """The hockey-stick divergence of N(mu, 1) from N(0, 1) at any real epsilon."""
    far = np.clip(epsilon, -600, 600)
    return norm.cdf(mu / 2 - far / mu) - np.exp(far) * norm.cdf(-mu / 2 - far / mu)


def response_profile(eps: float, epsilon: np.ndarray) -> np.ndarray:
    """That of randomized response."""
    p = math.exp(eps) / (1 + math.exp(eps))
    far = np.clip(epsilon, -600, 600)
    return np.maximum(p - np.exp(far) * (1 - p), 0) + np.maximum(1 - p - np.exp(far) * p, 0)


FOLLOWING = {
    "gaussian": lambda e: gaussian_profile(0.7, e),
    "response": lambda e: response_profile(1.3, e),
    "failing": lambda e: 0.2 + 0.8 * response_profile(0.5, e),
    "nothing": lambda e: np.maximum(0.0, -np.expm1(np.minimum(e, 0.0))),
}


def sides(mu: float, cut: float, follow: str, epsilon: float, upper: bool) -> tuple[float, float]:
    """The true divergence where all is revealed past the cut, and the claimed one."""
    means = (mu, 0.0) if upper else (0.0, mu)
    p, q = (norm.pdf(X - m) for m in means)
    loss = (means[0] - means[1]) * X - (means[0] ** 2 - means[1] ** 2) / 2
    rest = FOLLOWING[follow](epsilon - loss)
    wrong = cut < X
    true = np.sum(p * np.where(wrong, 1.0, rest)) * STEP
    failure = max(np.sum(p * wrong), np.sum(q * wrong)) * STEP
    return true, failure + (1 - failure) * np.sum(p * rest) * STEP


@pytest.mark.parametrize("follow", FOLLOWING)
def test_a_wrong_bound_costs_its_probability_once(follow: str) -> None:
    for mu, cut, epsilon, upper in itertools.product(
        (0.1, 1.0, 3.0), (-1.0, 0.5, 2.0, 4.0), (-6.0, -1.0, 0.0, 0.7, 3.0, 9.0), (False, True)
    ):
        true, claimed = sides(mu, cut, follow, epsilon, upper)
        assert true <= claimed + 1e-9


def test_negative_control_the_failure_of_one_data_set_alone_is_not_enough() -> None:
    # the probability at the smaller mean in place of the larger of both
    true, _ = sides(1.0, 2.0, "response", 0.0, upper=True)
    p, loss = norm.pdf(X - 1.0), X - 0.5
    small = norm.sf(2.0)
    claimed = small + (1 - small) * np.sum(p * FOLLOWING["response"](-loss)) * STEP
    assert true > claimed + 0.01


def test_negative_control_an_event_that_is_no_tail_breaks_it() -> None:
    # where the loss is near 0 the weight V is above its average
    p = norm.pdf(X)
    loss = -3 * X + 4.5
    rest = FOLLOWING["nothing"](0.0 - loss)
    wrong = np.abs(X - 1.5) < 0.3
    failure = max(np.sum(p * wrong), np.sum(norm.pdf(X - 3) * wrong)) * STEP
    true = np.sum(p * np.where(wrong, 1.0, rest)) * STEP
    assert true > failure + (1 - failure) * np.sum(p * rest) * STEP + 0.01


def test_a_bound_holds_for_both_neighbours() -> None:
    """500,000 draws at failure 1/50: six deviations leave a false alarm of 1e-9."""
    n, failure = 500_000, 0.02
    for kind, sign in ((dp.LowerBound, 1), (dp.UpperBound, -1)):
        bound = kind(sigma=2.0, failure=failure, reach=1.0)
        released = bound.release(np.full(n, 5.0), SeededStream(1))
        worst = 5.0 - sign  # the neighbour's value, on the bound's side
        wrong = np.mean(sign * released > sign * worst)
        assert wrong <= failure + 6 * math.sqrt(failure / n)
        assert wrong >= failure - 6 * math.sqrt(failure / n)  # and it is not wasteful
        alone = np.mean(sign * (released + sign * 1.0) > sign * worst)  # without the reach
        assert alone > 1.5 * failure


def test_its_margin() -> None:
    for failure in (1e-18, 1e-9, 0.1):
        assert norm.sf((margin(3.0, failure, 0.5) - 0.5) / 3.0) <= failure
        assert norm.sf((margin(3.0, failure, 0.5) - 0.5) / 3.0 * (1 - 1e-8)) > failure


def test_its_loss() -> None:
    loss = dp.LowerBound(sigma=4.0, failure=1e-7, reach=2.0).loss(1.0)
    assert loss.delta_floor() == 1e-7
    assert loss.mu() == pytest.approx(0.25, rel=1e-12)
    terms = Sequential([Spend(Gaussian(0.25)), Spend(Approximate(0.0, 1e-7))])
    wanted = certify(terms, 1e-6)
    got = certify(Spend(loss), 1e-6)
    assert got["gaussian"].bounds.upper == pytest.approx(wanted["gaussian"].bounds.upper, rel=1e-9)


def test_it_refuses_more_than_it_reaches_over() -> None:
    with pytest.raises(dp.DeclarationError, match="reach"):
        dp.UpperBound(sigma=4.0, failure=1e-7, reach=2.0).loss(2.5)
    for failure in (0.0, 0.6, float("nan"), "x", -1.0):
        with pytest.raises(dp.DeclarationError, match="failure"):
            dp.LowerBound(sigma=4.0, failure=failure, reach=2.0)
    for reach in (0.0, float("inf"), float("nan")):
        with pytest.raises(dp.DeclarationError, match=r"\breach\b"):
            dp.LowerBound(sigma=4.0, failure=1e-7, reach=reach)


def test_a_plan_with_bounds() -> None:
    people = dp.dataset("people", columns={"x": (0, 1)})
    below = people.count().release(dp.LowerBound(sigma=dp.Free("s"), failure=1e-8, reach=1.0))
    plan = dp.Pipeline(below=below).calibrate(epsilon=1.0, delta=1e-6)
    assert plan.certify().epsilon <= 1.0
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    counts = [plan.simulate(seed=k, people={"x": np.ones(1000)})["below"] for k in range(20)]
    assert max(counts) < 1000
    assert min(counts) > 900
