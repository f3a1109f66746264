"""The worst loss of a pure epsilon: randomized response."""

from __future__ import annotations

import math
from typing import ClassVar

from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.losses.laplace import Laplace
from accountants.notions import pure as notion
from accountants.rounding import Array, down, up


def _epsilon(value: float) -> float:
    return nonnegative("Pure.epsilon", value)


@frozen
class Pure(PrivacyLoss):
    """Any epsilon-DP mechanism, by the pair that dominates it: binary randomized response.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    Kairouz, Oh and Viswanath 2015, Thm 2.1 and Lemma 2.3 (every pure pair is a
    post-processing of randomized response).

    Examples
    --------
    >>> Pure(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "pure DP: Kairouz, Oh & Viswanath 2015 (randomized response dominates)"

    response_pair: ClassVar[bool] = True

    epsilon: float = field(converter=_epsilon)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return randomized response's divergence."""
        return notion.to_renyi(self.epsilon, orders)

    def rho(self) -> float:
        """Return ``epsilon tanh(epsilon / 2)``."""
        return notion.to_rho(self.epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return ``(e^eps0 - e^eps)_+ / (1 + e^eps0)``."""
        if epsilon >= self.epsilon:
            return Bounds(0.0, 0.0)
        exact = -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))
        return Bounds(max(0.0, down(exact, 8)), min(1.0, up(exact, 8)))

    def grouped(self, size: int) -> Pure:
        """Return ``Pure(size * epsilon)`` (Dwork and Roth 2014, Thm 2.2)."""
        k = whole("group size", size)
        return Pure(up(self.epsilon * k, 2) if k > 1 else self.epsilon)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by epsilon; a pure loss also dominates the Laplace loss of its epsilon."""
        return isinstance(other, Pure | Laplace) and self.epsilon >= other.epsilon
