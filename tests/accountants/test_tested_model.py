"""A model behind a private test: its loss against the exact laws of a small model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from accountants import (
    Approximate,
    Basic,
    Distribution,
    DomainError,
    Gaussian,
    GaussianVotes,
    Laplace,
    Pure,
    Renyi,
    Tested,
)
from accountants.testing import check

ORDERS = np.array([1.2, 2.0, 4.0, 8.0, 8.5, 30.0])


def beyond(t: int, r: float) -> float:
    """P(N > t) of two-sided geometric noise with ratio r."""
    return r ** (t + 1) / (1 + r) if t >= -1 else 1 - beyond(-t - 1, r)


def laws(epsilon: float, delta: float, order: float, budget: float) -> list[np.ndarray]:  # type: ignore[type-arg]
    """For each vote of 40 teachers: P(failed), P(one class), P(the other), of the full model."""
    votes, r = GaussianVotes(2.5, 2, 40), math.exp(-epsilon)
    least = next(t for t in range(1000) if beyond(t, r) <= delta)
    pairs = []
    for first in range(41):
        far = votes.distance([[first, 40 - first]], order, budget)
        passed = beyond(least - far, r)
        one = norm.cdf((2 * first - 40) / (math.sqrt(2) * 2.5))
        other = norm.sf((2 * first - 40) / (math.sqrt(2) * 2.5))
        pairs.append(np.array([1 - passed, passed * one, passed * other]))
        if far == 0:
            assert passed <= delta
    return pairs


@pytest.mark.parametrize(
    ("epsilon", "delta", "budget"), [(0.5, 0.02, 0.3), (1.0, 1e-3, 0.05), (0.2, 0.2, 0.01)]
)
def test_the_complete_model_exactly(epsilon: float, delta: float, budget: float) -> None:
    order = 8.0
    loss = Tested(epsilon, delta, order, budget, GaussianVotes(2.5, 2, 40).worst())
    every = laws(epsilon, delta, order, budget)
    curve, passes = loss.renyi(ORDERS), []
    for i in range(40):
        for p, q in ((every[i], every[i + 1]), (every[i + 1], every[i])):
            passes.append(1 - p[0])
            for eps in (0.0, 0.05, 0.3, 1.0, 2.5):
                hockey = np.maximum(p - math.exp(eps) * q, 0).sum()
                assert hockey <= loss.profile(eps).upper
            if min(1 - p[0], 1 - q[0]) > delta:  # the budget holds at one of them
                positive = (p > 0) & (q > 0)
                for a, bound in zip(ORDERS, curve, strict=True):
                    moment = logsumexp(a * np.log(p[positive]) + (1 - a) * np.log(q[positive]))
                    assert moment / (a - 1) <= bound * (1 + 1e-9)
    assert min(passes) <= delta  # both sides of the test occur
    assert max(passes) > 1.5 * delta


def test_its_functionals() -> None:
    worst = Gaussian(1.0)
    loss = Tested(0.1, 1e-6, 8.0, 0.2, worst)
    assert loss.delta_floor() == 1e-6
    assert loss.pure() is None
    assert loss.rho() == pytest.approx(0.5 + 0.1 * math.tanh(0.05))
    test = Pure(0.1).renyi(ORDERS)
    expected = test + np.where(ORDERS <= 8, 0.2, ORDERS / 2)
    np.testing.assert_allclose(loss.renyi(ORDERS), expected, rtol=1e-12)
    # what every data set loses is never exceeded
    large = Tested(0.1, 1e-6, 8.0, 1e9, worst).renyi(ORDERS)
    np.testing.assert_allclose(large, test + ORDERS / 2, rtol=1e-12)
    pure = Tested(0.1, 1e-6, 8.0, 0.2, Laplace(0.5))
    assert pure.pure() == pytest.approx(0.6)
    state = Basic().compose(Basic().start(), pure)
    assert Basic().epsilon(state, 1e-6).upper == pytest.approx(0.6)
    accountant = Renyi()
    state = accountant.compose(accountant.start(), loss)
    tight = accountant.epsilon(state, 1e-5).upper
    assert tight < accountant.epsilon(accountant.compose(accountant.start(), worst), 1e-5).upper
    # delta and the curve exclude each other, which composition does not use
    assert loss.profile(3.0).upper == max(1e-6, loss.profile(3.0).upper)
    distribution = Distribution()
    state = distribution.compose(distribution.start(), loss)
    assert distribution.epsilon(state, 1e-5).upper <= tight * 1.02


@pytest.mark.parametrize(
    "loss",
    [
        Tested(0.1, 1e-6, 8.0, 0.2, Gaussian(1.0)),
        Tested(1.0, 1e-3, 2.0, 0.01, Laplace(0.5)),
        Tested(0.5, 0.0, 40.0, 3.0, Gaussian(0.2)),
    ],
)
def test_it_holds_together(loss: Tested) -> None:
    check(loss)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tested(-0.1, 1e-6, 8.0, 0.2, Gaussian(1.0)),
        lambda: Tested(0.1, 1.5, 8.0, 0.2, Gaussian(1.0)),
        lambda: Tested(0.1, 1e-6, 1.0, 0.2, Gaussian(1.0)),
        lambda: Tested(0.1, 1e-6, 8.0, math.inf, Gaussian(1.0)),
        lambda: Tested(0.1, 1e-6, 8.0, 0.2, 1.0),  # type: ignore[arg-type]
        lambda: Tested(0.1, 1e-6, 8.0, 0.2, Approximate(1.0, 1e-6)),
    ],
)
def test_refusals(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()
