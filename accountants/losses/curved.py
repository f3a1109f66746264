"""Base of the losses that prove a Renyi curve: profile and dominating pair follow from it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from accountants.bounds import Bounds
from accountants.loss import PrivacyLoss
from accountants.losses.derived_pair import proven_pair
from accountants.notions.renyi import Curve
from accountants.pair import Pair
from accountants.rounding import Array, up


def lowered(bound: Curve, orders: Array, higher: Array) -> Array:
    """Return the least of a curve's bounds at each order and at those of ``higher`` above it.

    D_a never falls in a (van Erven and Harremoes 2014, Thm 3): what bounds it at a higher order
    bounds it at a lower one.
    """
    every = np.concatenate([np.ravel(orders), higher])
    order = np.argsort(every, kind="stable")
    some = bound(every[order])
    some = np.where(np.isnan(some), np.inf, some)  # else one at the end would be all of them
    best = np.empty_like(some)
    # from the highest order down: the running least of the bounds
    best[order] = np.minimum.accumulate(some[::-1])[::-1]
    return best[: orders.size].reshape(orders.shape)


class Curved(PrivacyLoss):
    """A loss that defines its Renyi curve, and its pure epsilon or that it has none."""

    def renyi(self, orders: Array) -> Array:
        """Return the curve, outside of the failure."""
        raise NotImplementedError

    def pure(self) -> float | None:
        """Return the pure epsilon, if there is one."""
        raise NotImplementedError

    def pair(self) -> Pair | None:
        """Return a pair that bounds every mechanism with this curve and pure epsilon."""
        return self._pair

    @cached_property
    def _pair(self) -> Pair | None:
        return proven_pair(self)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's, failure included, as an upper bound."""
        upper, failure = self._promised(epsilon), self.failure()
        if upper is None:
            return None
        # F + (1 - F) delta'
        whole = up(failure + (1 - failure) * upper, 8) if failure else upper
        return Bounds(0.0, min(1.0, whole))

    def _promised(self, epsilon: float) -> float | None:
        """Return an upper bound of delta outside of the failure."""
        pair = self.pair()
        return None if pair is None else float(pair.profile(np.array([epsilon]))[1][0])
