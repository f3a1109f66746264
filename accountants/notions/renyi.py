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
from accountants.notions.pure import pure_to_renyi
from accountants.rounding import UNIT, Array, up

Curve = Callable[[Array], Array]
"""Orders in, divergences out; an upper bound, infinite where nothing is known."""

_GRID = np.log(np.geomspace(1e-3, 1e9, 41))
"""Logarithms of alpha - 1 where the search starts."""


def renyi_divergence(loss: PrivacyLoss, orders: Array) -> Array:
    """Return the loss's curve, outside of its failure, at real orders (shape as ``orders``).

    Its own, or what its mu, its rho or its pure epsilon imply, in this order. Where a formula
    has no finite value, as at order infinity, it is the pure epsilon, or infinite without one.

    Raises
    ------
    InapplicableError
        If the loss has none of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what that leaves is told apart below
        own = loss.renyi(orders)
    if own is not None:
        return _limited(own, loss)
    mu, rho, eps = loss.mu(), loss.rho(), loss.pure()
    if mu is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            return _limited(
                up(orders * mu * mu / 2), loss
            )  # in this order mu * mu cannot underflow
    if rho is not None:
        return _limited(up(orders * rho), loss)
    if eps is not None:
        return pure_to_renyi(eps, orders)
    raise InapplicableError(f"{type(loss).__name__} has no Renyi divergence")


def _limited(curve: Array, loss: PrivacyLoss) -> Array:
    """Return a curve with D_alpha <= D_infinity, the pure epsilon, where it is not finite."""
    unknown = ~np.isfinite(curve)
    if not unknown.any():
        return curve
    eps = loss.pure()
    # D_alpha <= D_infinity, the pure epsilon
    finite: Array = np.where(unknown, math.inf if eps is None else eps, curve)
    return finite


def renyi_total(spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array:
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
            result = result + times * renyi_divergence(loss, orders)
    return up(result, 2 * len(spends) + 2)


def renyi_to_epsilon(divergences: Array, orders: Array, delta: float) -> Array:
    """Return the epsilon that each order proves at ``delta`` (formula above), rounded up."""
    log_delta, log_orders = math.log(delta), np.log(orders)
    # Canonne, Kamath and Steinke 2020, Prop. 12: eps = D + log(1 - 1/a) - log(a delta) / (a - 1)
    slack = (log_delta + log_orders) / (orders - 1)
    correction = np.log1p(-1 / orders)
    # the two logs have opposite signs, so their sum may be far less than their rounding
    sizes = abs(log_delta) + log_orders + 2
    noise = 8 * UNIT * (sizes / (orders - 1) + np.abs(correction))
    return up(divergences) + (correction - slack) + noise


def renyi_epsilon(curve: Curve, delta: float) -> tuple[float, float]:
    """Return the least epsilon that the curve proves at ``delta``, and the order that proves it."""
    if delta == 0:
        return math.inf, math.inf

    def proven(orders: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            return renyi_to_epsilon(curve(orders), orders, delta)

    best, order = _least_over_orders(proven)
    return max(0.0, best), order


def zcdp_epsilon(slope: float, delta: float) -> tuple[float, float]:
    """Return `epsilon` of the curve ``slope alpha``, whose best order is a root.

    The conversion is least where ``slope x^2 + log(1 + x) = -log delta``, ``x = alpha - 1``: in
    ``log x`` the left side rises and is convex, so Newton's steps from the right fall to the root.
    """
    if delta == 0 or not slope < math.inf:
        return math.inf, math.inf
    height = -math.log(delta)
    x = min(math.sqrt(height / slope) if slope > 0 else math.inf, math.expm1(min(height, 700.0)))
    for _ in range(20):
        x = min(max(x, 1e-6), 1e12)
        miss = slope * x * x + math.log1p(x) - height
        step = miss / (2 * slope * x * x + x / (1 + x))
        x *= math.exp(-max(-1.0, min(step, 1.0)))
        if abs(step) < 1e-9:
            break
    order = 1 + min(max(x, 1e-6), 1e12)
    at = np.array([order])
    # the search only guessed the order: the conversion is evaluated there, and holds at any order
    return max(0.0, float(renyi_to_epsilon(up(at * slope), at, delta)[0])), order


def renyi_log_delta(curve: Curve, epsilon_: float) -> float:
    """Return the log of the least delta that the curve proves at ``epsilon_``."""

    def proven(orders: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            # delta <= e^{(a-1)(D - eps)} (1 - 1/a)^{a-1} / a: the same proposition, solved for
            # delta
            exponent = np.maximum((orders - 1) * (up(curve(orders)) - epsilon_), -1e300)
        shape = (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
        noise = 16 * UNIT * (1 + np.abs(exponent) + np.abs(shape))
        return np.asarray(exponent + shape + noise)

    return min(0.0, _least_over_orders(proven)[0])


def _least_over_orders(proven: Callable[[Array], Array]) -> tuple[float, float]:
    """Return about the least value over all orders, and its order.

    A grid finds the valley, a finer one its floor, then parabolas: each has a quarter of the
    points' distance of the one before. Where the floor is no parabola's, but a corner's, the
    values beside the least are still larger: then the gap between them is searched.
    """
    seen, known = np.zeros(0), np.zeros(0)
    logs = _GRID
    for zoom in range(6):
        values = proven(1 + np.exp(logs))
        seen, known = np.append(seen, logs), np.append(known, values)
        middle = min(max(int(np.argmin(values)), 1), len(logs) - 2)
        if zoom == 0:
            logs = np.linspace(logs[middle - 1], logs[middle + 1], 9)
        else:
            step = float(logs[1] - logs[0])
            logs = logs[middle] + step * (
                _parabola_vertex(values[middle - 1 : middle + 2]) + _AROUND
            )
    for _ in range(8):
        order = np.argsort(seen, kind="stable")
        at = int(np.argmin(known[order]))
        beside = order[[max(at - 1, 0), min(at + 1, len(order) - 1)]]
        least = float(known[order[at]])
        if not math.isfinite(least) or known[beside].max() - least <= 1e-6 * abs(least):
            break
        left, right = seen[beside].tolist()
        logs = np.linspace(left, right, 9)[1:-1]
        seen, known = np.append(seen, logs), np.append(known, proven(1 + np.exp(logs)))
    best = int(np.argmin(known))
    return float(known[best]), 1 + math.exp(float(seen[best]))


_AROUND = np.array([-0.5, -0.25, 0.0, 0.25, 0.5])


def _parabola_vertex(values: Array) -> float:
    """Return where the parabola through values at -1, 0 and 1 is least, at most 1 away."""
    left, middle, right = values.tolist()
    bend = left - 2 * middle + right
    return max(-1.0, min(1.0, (left - right) / (2 * bend))) if 0 < bend < math.inf else 0.0
