"""The worst loss of an (epsilon, delta): leak with probability delta, else randomized response."""

from __future__ import annotations

import math
from typing import ClassVar

from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import nonnegative, probability, whole
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.pure import Pure, ResponsePair
from accountants.notions.pure import pure_to_renyi, pure_to_zcdp
from accountants.rounding import Array, down, up


def _approximate_epsilon(value: float) -> float:
    return nonnegative("Approximate.epsilon", value)


def _approximate_delta(value: float) -> float:
    return probability("Approximate.delta", value)


@frozen
class Approximate(PrivacyLoss):
    """Any (epsilon, delta)-DP mechanism, by the pair that dominates it.

    Parameters
    ----------
    epsilon
        Non-negative, in nats; the pure epsilon outside of the failure.
    delta
        The failure's probability, in [0, 1].

    References
    ----------
    Kairouz, Oh and Viswanath 2015, Thm 2.1; Murtagh and Vadhan 2016, Lemma 3.2.

    Examples
    --------
    >>> Approximate(epsilon=1.0, delta=1e-6).failure()
    1e-06
    """

    theorem: ClassVar[str] = "(epsilon, delta)-DP: Kairouz, Oh & Viswanath 2015, Thm 2.1"

    response_pair: ClassVar[bool] = True

    epsilon: float = field(converter=_approximate_epsilon)
    delta: float = field(converter=_approximate_delta)

    def failure(self) -> float:
        """Return delta."""
        return self.delta

    def pair(self) -> ResponsePair:
        """Return randomized response, outside of the failure."""
        return ResponsePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon, which holds outside of the failure."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return randomized response's divergence, outside of the failure."""
        return pure_to_renyi(self.epsilon, orders)

    def rho(self) -> float:
        """Return ``epsilon tanh(epsilon / 2)``, outside of the failure."""
        return pure_to_zcdp(self.epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return ``delta + (1 - delta)`` times randomized response's profile."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        rest = Pure(self.epsilon).profile(epsilon)
        low = self.delta + (1 - self.delta) * rest.lower
        high = self.delta + (1 - self.delta) * rest.upper
        # F + (1 - F) delta' of randomized response
        return Bounds(max(0.0, down(low)), min(1.0, up(high)))

    def grouped(self, size: int) -> Approximate:
        """Return ``(k eps, delta (e^{k eps} - 1)/(e^eps - 1))`` (Vadhan 2017, Lemma 2.2)."""
        k, eps = whole("group size", size), self.epsilon
        if k == 1:
            return self
        with_overflow = k * eps > 700
        factor = math.inf if with_overflow else math.expm1(k * eps) / math.expm1(eps) if eps else k
        # a relative error u of x = k eps is one of x u / (1 - e^-x) <= (1 + x) u of expm1(x)
        steps = math.inf if with_overflow else 16 + 4 * k * eps
        delta = min(1.0, up(self.delta * factor, steps)) if self.delta else 0.0
        return Approximate(up(k * eps, 2), delta)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by both parameters."""
        if isinstance(other, Approximate):
            return self.epsilon >= other.epsilon and self.delta >= other.delta
        return Pure(self.epsilon).dominates(other)
