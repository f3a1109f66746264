"""Pruning bounds: cheap upper bounds of epsilon for many compositions at once, from sums alone.

Where one composition attains its best bound (at some order, with some split of delta), each loss
has a cost there, costs add up, and a bound follows from their sum for every other composition
too. It is seldom the best bound of that other one, but where it is not above the bound of the
first, the other need not be measured (`accountants.worst`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from attrs import frozen

from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.notions.approximate import approximate_epsilon
from accountants.notions.renyi import renyi_divergence, renyi_to_epsilon
from accountants.rounding import UNIT, Array, up

Cost = Callable[[PrivacyLoss], float]


@frozen
class PruningBound:
    """Bounds of epsilon, at one delta, from sums over losses.

    Parameters
    ----------
    cost
        What a loss adds to the sum; an upper bound, infinite where nothing is known.
    failure
        What it adds to the probability on which nothing is promised.
    epsilon
        Upper bounds of epsilon from sums of costs and of failures (shapes (worlds,), both rounded
        up), infinite where nothing follows.
    """

    cost: Cost
    failure: Cost
    epsilon: Callable[[Array, Array], Array]


def order_bound(cost: Cost, failure: Cost, order: float, delta: float) -> PruningBound:
    """Return the pruning bound of a Renyi order: divergences add up, and convert at what is left.

    With failures F that is ``(delta - F) / (1 - F)`` (`accountants.accountant.remaining_delta`).
    """
    orders = np.array([order])

    def epsilon(sums: Array, failures: Array) -> Array:
        # delta' = (delta - F) / (1 - F), rounded down
        left = delta - failures - 8 * UNIT * delta
        rest = left / np.maximum(1 - failures, UNIT) * (1 - 8 * UNIT)
        known = (rest > 0) & (failures < 1)
        # the conversion at delta' is that at delta plus log(delta / delta') / (alpha - 1), rounded
        # up
        less = np.maximum(0.0, -np.log(np.where(known, rest, delta) / delta)) / (order - 1)
        bound = renyi_to_epsilon(sums, orders, delta) + up(less + 8 * UNIT / (order - 1), 16)
        # where the failures take all of delta nothing follows
        return np.where(known, np.maximum(0.0, up(bound)), np.inf)

    return PruningBound(cost, failure, epsilon)


def pure_sum_bound(cost: Cost, failure: Cost, delta: float) -> PruningBound:
    """Return the pruning bound of pure epsilons: their sum, while failures are within ``delta``."""
    return PruningBound(cost, failure, lambda sums, fails: np.where(fails <= delta, sums, np.inf))


def delta_floor_of(loss: PrivacyLoss) -> float:
    """Return the probability on which nothing is promised."""
    return loss.failure()


def pure_or_infinite(loss: PrivacyLoss) -> float:
    """Return the pure epsilon, infinite where there is none."""
    eps = loss.pure()
    return math.inf if eps is None else eps


def divergence_cost(order: float) -> Cost:
    """Return the cost of losses at a Renyi order, infinite where none is known."""
    orders = np.array([order])

    def cost(loss: PrivacyLoss) -> float:
        try:
            return float(renyi_divergence(loss, orders)[0])
        except InapplicableError:
            return math.inf

    return cost


SHARE_PARTS = (1 - 1e-12, 3 / 4, 1 / 2, 1 / 4, 1 / 16)
"""At less than its whole share of delta a loss costs more, but more other failures are allowed."""


def share_costs(share: float) -> tuple[Cost, Cost]:
    """Return the costs and failures of losses as approximate DP.

    A loss has its pure epsilon, or without one that of its profile at a share of delta, by which
    it then fails; without a share nothing.
    """

    def cost(loss: PrivacyLoss) -> float:
        eps = pure_or_infinite(loss)
        return approximate_epsilon(loss, share) if loss.pure() is None and share > 0 else eps

    def failure(loss: PrivacyLoss) -> float:
        return loss.failure() + (share if loss.pure() is None else 0.0)

    return cost, failure
