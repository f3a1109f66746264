"""What one mechanism costs: the contract that every privacy loss keeps.

A *loss* describes a pair of output distributions (P, Q), one for each of two
neighbouring data sets, in both directions. With probability at most `delta_floor` nothing is
promised (the two may be told apart); outside of that event the loss offers any subset of
exact functionals:

=========================  =====================================================
``pure()``                 epsilon: the log-likelihood ratio is bounded by it
``renyi(orders)``          D_alpha(P || Q) at each real order alpha > 1
``rho()``                  zCDP: D_alpha <= rho alpha for every alpha > 1
``mu()``                   GDP: the pair is no easier to tell apart than N(0,1), N(mu,1)
``profile(epsilon)``       delta(epsilon), the hockey-stick divergence, as a bracket
``pair()``                 the dominating pair (`accountants.pair`), unit present against
                           absent; reversed it dominates the other direction
=========================  =====================================================

A functional that a loss does not know is None; `accountants.definitions` derives it from
those that it knows, by a proven conversion, or says that there is none. A functional
holds for both directions and is rounded outward: never below the truth. From a pair all of
the others that exist follow, so a new loss need only define `pair`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from attrs import fields, has

from accountants.errors import InapplicableError
from accountants.numerics import Array, Bounds, down, shown, up
from accountants.pair import Pair


class PrivacyLoss:
    """Base of every privacy loss: a frozen attrs class, hashable and comparable by value.

    Examples
    --------
    >>> from attrs import frozen
    >>> @frozen
    ... class Bought(PrivacyLoss):
    ...     epsilon: float
    ...     theorem = "an epsilon-DP mechanism of which no more is known; author, year, number"
    ...
    ...     def pure(self):
    ...         return self.epsilon
    >>> from accountants import Repeated, Spend, certify, tightest
    >>> print(tightest(certify(Repeated(Spend(Bought(epsilon=0.1)), 100), delta=1e-6)).bounds)
    [0, 4.77457]
    """

    __slots__ = ()

    theorem: ClassVar[str] = ""
    """What the functionals rest on, with author, year and number."""

    is_gaussian_pair: ClassVar[bool] = False
    """True where the pair is exactly N(0, 1) against N(mu, 1), which composes in closed form."""

    grouped_is_tight: ClassVar[bool] = False
    """Whether some mechanism with this loss attains `grouped`, at the distance of a group."""

    is_response_pair: ClassVar[bool] = False
    """True where the pair is exactly randomized response at `pure`, after `delta_floor`."""

    def delta_floor(self) -> float:
        """Return the probability mass delta on which nothing is promised."""
        return 0.0

    def pair(self) -> Pair | None:
        """Return the dominating pair beside the delta floor, with the unit against without."""
        return None

    def pure(self) -> float | None:
        """Return the pure epsilon, in nats: by default the pair's largest loss either way."""
        pair = self.pair()
        if pair is None:
            return None
        # top bounds the losses of P against Q, -bottom those of the reversed direction
        largest = max(0.0, pair.top(), -pair.bottom())
        # an unbounded likelihood ratio has no pure epsilon
        return largest if largest < math.inf else None

    def renyi(self, orders: Array) -> Array | None:
        """Return the Renyi divergences at real orders above 1 (shape as ``orders``), in nats.

        By default ``log E_P e^{(alpha-1)L} / (alpha-1)``, of the pair's costlier direction.
        """
        pair = self.pair()
        return None if pair is None else _renyi(pair, orders)

    def rho(self) -> float | None:
        """Return the zCDP parameter, in nats."""
        return None

    def mu(self) -> float | None:
        """Return the Gaussian-DP parameter."""
        return None

    def profile(self, epsilon: float) -> Bounds | None:
        """Return delta(epsilon) of the loss, its delta floor included, as a bracket.

        By default that of the pair's costlier direction.
        """
        pair = self.pair()
        return None if pair is None else _profile(pair, self.delta_floor(), epsilon)

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return the tight epsilon at ``delta``, where that is had faster than from `profile`."""
        return None

    @classmethod
    def renyi_sum(cls, spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array | None:
        """Return the sum of ``times * renyi(orders)`` over losses of this very class.

        None where the family has no faster way than one by one.
        """
        return None

    def grouped(self, size: int) -> PrivacyLoss:
        """Return the loss between data sets that differ in ``size`` units.

        Raises
        ------
        InapplicableError
            Where no group privacy is proven for this loss.
        """
        raise InapplicableError(
            f"{type(self).__name__} has no group privacy; declare the mechanism's loss at the "
            f"distance of {size} units instead"
        )

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether this loss is at least ``other`` in every functional (False if unknown)."""
        # equal losses have equal functionals; families override this with more
        return self == other


def _renyi(pair: Pair, orders: Array) -> Array | None:
    costlier = np.zeros(np.shape(orders))
    for direction in {pair, pair.reversed()}:
        log_moment = direction.log_moment((orders - 1).astype(np.complex128))
        if log_moment is None:
            return None
        # D_a = log E_P e^{(a-1)L} / (a - 1), rounded up; both directions must hold
        costlier = np.maximum(costlier, up((log_moment[0].real + log_moment[1]) / (orders - 1)))
    # NaN proves nothing, so it counts as infinite
    return np.where(np.isnan(costlier), np.inf, costlier)


def _profile(pair: Pair, delta_floor: float, epsilon: float) -> Bounds:
    lower, upper = 0.0, 0.0
    for direction in {pair, pair.reversed()}:
        low, high = direction.profile(np.array([epsilon]))
        # a lower bound holds only where a mechanism attains the pair
        lower = max(lower, float(low[0]) if pair.is_tight() else 0.0)
        upper = max(upper, float(high[0]))
    # likewise the floor: a pair that only dominates need not fail at all
    least = delta_floor if pair.is_tight() else 0.0
    # F + (1 - F) delta' at both ends; below only where a mechanism attains the pair
    lower = least + (1 - least) * lower
    return Bounds(max(0.0, down(lower)), min(1.0, up(delta_floor + (1 - delta_floor) * upper)))


def mirrored(profile: Callable[[float], Bounds], epsilon: float) -> Bounds:
    """Return delta at a negative epsilon: ``1 - e^eps + e^eps delta(-eps)``, the other way round.

    Parameters
    ----------
    profile
        That of a loss whose two directions have the same profile.
    """
    opposite, ratio = profile(-epsilon), math.exp(epsilon)
    # 1 - e^eps as -expm1(eps): no cancellation near 0; 8 units for the operations
    lower = down(-math.expm1(epsilon) + ratio * opposite.lower, 8)
    return Bounds(max(0.0, lower), min(1.0, up(-math.expm1(epsilon) + ratio * opposite.upper, 8)))


def parameters(loss: PrivacyLoss) -> dict[str, object]:
    """Return the loss's own parameters by name."""
    kind = type(loss)
    # a loss that is no attrs class shows no parameters
    own_fields = fields(kind) if has(kind) else ()
    return {f.alias or f.name: getattr(loss, f.name) for f in own_fields}


def short(loss: PrivacyLoss) -> str:
    """Return a loss as one writes it, its numbers shortened, upward."""
    given = ", ".join(f"{name}={_short(value)}" for name, value in parameters(loss).items())
    return f"{type(loss).__name__}({given})"


def _short(value: object) -> str:
    if isinstance(value, PrivacyLoss):
        return short(value)
    # rounded up: a shortened privacy parameter is never below the true one
    return shown(value, upward=True) if isinstance(value, float) else repr(value)
