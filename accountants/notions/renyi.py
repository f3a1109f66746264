"""Renyi DP: a bound on D_alpha(P || Q) at each real order alpha > 1.

The conversion to (epsilon, delta): for every order, ``delta(eps) = E_P (1 - e^{eps - L})_+`` is
at most ``max_y (1 - e^{-y}) e^{-(alpha-1) y} E_P e^{(alpha-1)(L-eps)}``, whose maximum is at
``y = log(alpha/(alpha-1))``. Solved for eps,

``eps = D_alpha + log(1 - 1/alpha) - log(alpha delta) / (alpha - 1)``

(Canonne, Kamath and Steinke 2020, Prop. 12; Balle et al. 2020, Thm 21). Any order gives a
proven bound, so however the best one is searched for, the answer is sound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.notions import pure
from accountants.rounding import UNIT, Array, up

Curve = Callable[[Array], Array]
"""Orders in, divergences out; an upper bound, infinite where nothing is known."""

_GRID = np.concatenate([[1e-3, 1e-2], np.geomspace(0.05, 1e4, 60), np.geomspace(2e4, 1e9, 12)])


def divergence(loss: PrivacyLoss, orders: Array) -> Array:
    """Return the loss's curve, outside of its failure, at real orders (shape as ``orders``).

    Its own, or what its mu, its rho or its pure epsilon imply, in this order.

    Raises
    ------
    InapplicableError
        If the loss has none of them.
    """
    own = loss.renyi(orders)
    if own is not None:
        return own
    mu, rho, eps = loss.mu(), loss.rho(), loss.pure()
    if mu is not None:
        with np.errstate(over="ignore"):
            return up(orders * mu * mu / 2)  # in this order mu * mu cannot underflow
    if rho is not None:
        return up(orders * rho)
    if eps is not None:
        return pure.to_renyi(eps, orders)
    raise InapplicableError(f"{type(loss).__name__} has no Renyi divergence")


def total(spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array:
    """Return the sum of ``times * divergence`` over spends, rounded up.

    Families that know how (`PrivacyLoss.renyi_sum`) add their own losses at once.
    """
    families: dict[type[PrivacyLoss], list[tuple[PrivacyLoss, int]]] = {}
    for loss, times in spends:
        families.setdefault(type(loss), []).append((loss, times))
    result = np.zeros_like(orders)
    for family, members in families.items():
        at_once = family.renyi_sum(members, orders)
        if at_once is not None:
            result = result + at_once
            continue
        for loss, times in members:
            result = result + times * divergence(loss, orders)
    return up(result, 2 * len(spends) + 2)


def convert(divergences: Array, orders: Array, delta: float) -> Array:
    """Return the epsilon that each order proves at ``delta`` (formula above), rounded up."""
    log_delta, log_orders = math.log(delta), np.log(orders)
    slack = (log_delta + log_orders) / (orders - 1)
    correction = np.log1p(-1 / orders)
    # the two logs have opposite signs, so their sum may be far less than their rounding
    sizes = abs(log_delta) + log_orders + 2
    noise = 8 * UNIT * (sizes / (orders - 1) + np.abs(correction))
    return up(divergences) + (correction - slack) + noise


def epsilon(curve: Curve, delta: float) -> tuple[float, float]:
    """Return the least epsilon that the curve proves at ``delta``, and the order that proves it.

    A grid of orders finds the valley, five zooms by a factor of eight its floor.
    """
    if delta == 0:
        return math.inf, math.inf
    log_orders = np.log(_GRID)
    best, order = math.inf, math.inf
    for _ in range(6):
        orders = 1 + np.exp(log_orders)
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            values = convert(curve(orders), orders, delta)
        at = int(np.argmin(values))
        if values[at] < best:
            best, order = float(values[at]), float(orders[at])
        left, right = log_orders[max(at - 1, 0)], log_orders[min(at + 1, len(orders) - 1)]
        log_orders = np.linspace(left, right, 17)
    return max(0.0, best), order


def log_delta(curve: Curve, epsilon_: float) -> float:
    """Return the log of the least delta that the curve proves at ``epsilon_``."""
    log_orders, best = np.log(_GRID), 0.0
    for _ in range(6):
        orders = 1 + np.exp(log_orders)
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            exponent = np.maximum((orders - 1) * (up(curve(orders)) - epsilon_), -1e300)
        shape = (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
        values = exponent + shape + 16 * UNIT * (1 + np.abs(exponent) + np.abs(shape))
        at = int(np.argmin(values))
        best = min(best, float(values[at]))
        left, right = log_orders[max(at - 1, 0)], log_orders[min(at + 1, len(orders) - 1)]
        log_orders = np.linspace(left, right, 17)
    return best
