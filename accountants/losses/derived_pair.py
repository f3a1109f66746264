"""Pairs of losses that know less than a pair: from a pure epsilon, or from a Renyi curve.

A curve proves a delta at every epsilon (`accountants.notions.renyi`). Any order's bound holds, so
the least over a grid of orders, at a grid of epsilons, is a set of guarantees, and the pair is
that of their hull (`accountants.discretise`). Beyond the last epsilon the best order there goes on
alone (`accountants.tailed`), unless a pure epsilon ends it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from attrs import frozen

from accountants.bounds import Bounds
from accountants.discretise import from_profile
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.losses.pure import Pure, ResponsePair
from accountants.losses.unattained import Unattained
from accountants.notions.renyi import Curve
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, down, up
from accountants.tailed import with_tails

_ORDERS = 1 + np.geomspace(1e-3, 1e9, 1201)
_CELLS = 320
_REACH = -160.0
"""The atoms end where the log of delta has come down to this."""

_FARTHEST = 200.0
"""No atom has a larger loss than this; ``e^-400`` times the least delta is still a float."""

_USELESS = -5.0
"""A curve that has not come down to this log of delta by then has no pair."""


@frozen
class ResponseBound(ResponsePair):
    """Randomized response as the bound of a mechanism that need not attain it."""

    def attained(self) -> bool:
        """Return False."""
        return False


@lru_cache(maxsize=1024)  # a root is found by asking for a pair's profile again and again
def implied(loss: PrivacyLoss) -> Pair | None:
    """Return a pair that the loss's pure epsilon implies, or else its mu."""
    eps, mu = loss.pure(), loss.mu()
    if eps is not None:
        return ResponseBound(eps)
    return None if mu is None else Unattained(GaussianPair(mu))


@frozen
class PureBound(Pure):
    """A pure epsilon that need not be attained: no lower bounds follow from it."""

    response_pair: ClassVar[bool] = False

    def pair(self) -> ResponsePair:
        """Return randomized response, as a bound."""
        return ResponseBound(self.epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return randomized response's, as a bound."""
        return Bounds(0.0, super().profile(epsilon).upper)


def log_deltas(curve: Curve, epsilons: Array) -> tuple[Array, Array]:
    """Return bounds of log delta at each epsilon, and the orders that prove them."""
    with np.errstate(over="ignore"):  # an infinite divergence proves nothing
        known = up(curve(_ORDERS))
        c = _ORDERS - 1
        shape = c * np.log1p(-1 / _ORDERS) - np.log(_ORDERS)
        # every order proves its delta (Prop. 12): the least over the grid holds
        exponent = np.maximum(c * (known - epsilons[:, None]), -1e300)
        logs = exponent + shape + 16 * UNIT * (1 + np.abs(exponent) + np.abs(shape))
        # of large numbers next to each other
        # known - epsilon cancels: the rounding is that of each
        logs = logs + 4 * UNIT * c * np.where(known < np.inf, known + epsilons[:, None], 0.0)
    best = np.argmin(logs, axis=1)
    return np.minimum(logs[np.arange(len(logs)), best], 0.0), _ORDERS[best]


def curve_pair(curve: Curve, pure: float | None = None) -> Pair | None:
    """Return a pair that dominates whatever has the curve and, if given, the pure epsilon.

    None where the curve proves next to nothing at any epsilon that a float can carry.
    """
    if pure is not None and pure <= _FARTHEST:
        return _bounded(curve, pure)
    reach = _reach(curve)
    if reach is None:
        return None if pure is None else ResponseBound(pure)
    epsilons = np.linspace(0.0, reach, _CELLS + 1)
    logs, orders = log_deltas(curve, epsilons)
    deltas = _exp(logs)
    # only guarantees that say more than those before
    falls = np.append(True, np.diff(np.minimum.accumulate(deltas)) < 0) & (deltas < 1)
    kept = list(zip(epsilons[falls].tolist(), map(Fraction, deltas[falls].tolist()), strict=True))
    return with_tails(kept, down(float(orders[-1] - 1))) if falls[-1] else None


@lru_cache(maxsize=128)
def proven_pair(loss: PrivacyLoss) -> Pair | None:
    """Return `curve_pair` of a loss that knows its Renyi curve; of equal losses it is made once."""

    def curve(orders: Array) -> Array:
        known = loss.renyi(orders)
        assert known is not None
        return known

    return curve_pair(curve, loss.pure())


def _bounded(curve: Curve, pure: float) -> Pair:
    """Return the pair of the curve and of randomized response together."""
    if pure <= 1e-12:
        return ResponseBound(pure)
    epsilons = np.linspace(0.0, pure, _CELLS + 1)
    deltas = _exp(log_deltas(curve, epsilons)[0])
    response = np.array([Pure(pure).profile(float(at)).upper for at in epsilons])
    # at the pure epsilon delta is 0; before it the smaller of two proven bounds
    deltas = np.append(np.minimum(deltas, response)[:-1], 0.0)
    some = (deltas > math.exp(_REACH)) | (deltas == 0)
    failure, pair = from_profile(epsilons[some], deltas[some])
    return pair if failure == 0 else ResponseBound(pure)


def _reach(curve: Curve) -> float | None:
    """Return where delta becomes negligible, or the farthest; None where that is useless."""
    epsilons = np.append(np.geomspace(1e-9, _FARTHEST, 400)[:-1], _FARTHEST)
    logs, _ = log_deltas(curve, epsilons)
    nothing = np.flatnonzero(logs <= _REACH)
    if len(nothing):
        return float(epsilons[nothing[0]])
    return _FARTHEST if logs[-1] <= _USELESS else None


def _exp(logs: Array) -> Array:
    return np.minimum(1.0, np.exp(logs) * (1 + 4 * UNIT * (1 + np.abs(logs)))) + 1e-320
