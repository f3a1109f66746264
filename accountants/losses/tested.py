"""A whole model behind a private test of what its data loses: propose-test-release of all of it."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import DomainError, nonnegative, positive, probability
from accountants.loss import PrivacyLoss
from accountants.losses.curved import Curved
from accountants.notions.pure import pure_to_renyi, pure_to_zcdp
from accountants.notions.renyi import renyi_divergence
from accountants.rounding import Array, up


def _epsilon(value: float) -> float:
    return nonnegative("Tested.epsilon", value)


def _delta(value: float) -> float:
    return probability("Tested.delta", value)


def _order(value: float) -> float:
    order = positive("Tested.order", value)
    if order <= 1:
        raise DomainError(f"Tested.order must be above 1, got {value!r}")
    return order


def _divergence(value: float) -> float:
    return nonnegative("Tested.divergence", value)


def _worst(value: PrivacyLoss) -> PrivacyLoss:
    if not isinstance(value, PrivacyLoss):
        raise DomainError(f"Tested.worst must be a privacy loss, got {value!r}")
    if value.failure() > 0:
        raise DomainError(
            f"Tested.worst must be a loss without a failure probability, got {value!r}; give its "
            "Renyi curve"
        )
    renyi_divergence(value, np.array([2.0]))  # refuses here a loss that has no curve
    return value


@frozen(slots=False, cache_hash=True)
class Tested(Curved):
    """What a model loses that is released only if its data passes a test that it loses little.

    Under any neighbour relation. The model M has the curve `worst` on all data sets; on data D,
    ``b(D)`` bounds ``D_order(M(D) || M(D'))`` and ``D_order(M(D') || M(D))`` for all neighbours
    D'. An integer d(D) that moves by at most 1 between neighbours is 0 where
    ``b(D) > divergence``. The test is epsilon-DP as a function of d, and passes with probability at
    most delta where d = 0. Where it fails nothing is released but that it failed.

    Proof, for a pair of neighbours (own proof; as propose-test-release, Dwork and Lei 2009). If the
    budget ``divergence`` holds at D or at D', then it covers the pair, in both directions: D_a is
    at most ``divergence`` at a = order, so at every order below; and at most `worst`. The test adds
    a pure epsilon (composition). Nothing fails. If it holds at neither, both d are 0, the test's
    law is the same on both, and each is, for one p <= delta, a mixture of "failed" and with weight
    p of what the model releases: outside of a failure of probability delta the laws are the same.

    So the two do not add up: the profile at epsilon >= 0 is the larger of delta and the curve's.

    Parameters
    ----------
    epsilon, delta
        Of the test, for one changed unit.
    order, divergence
        The budget: a bound of the Renyi divergence at this order, in nats.
    worst
        What the model costs on every data set.

    References
    ----------
    Dwork and Lei 2009 (propose-test-release); van Erven and Harremoes 2014, Thm 3 (D_a never
    falls in a); Mironov 2017, Prop. 1 (composition).

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> loss = Tested(epsilon=0.1, delta=1e-6, order=8.0, divergence=0.2, worst=Gaussian(mu=1.0))
    >>> loss.renyi(np.array([4.0, 16.0])).round(4), loss.failure()
    (array([0.2196, 8.06  ]), 1e-06)
    """

    theorem: ClassVar[str] = "propose-test-release of a whole model: Dwork & Lei 2009"

    __test__: ClassVar[bool] = False
    """pytest must not collect it as a test."""

    epsilon: float = field(converter=_epsilon)
    delta: float = field(converter=_delta)
    order: float = field(converter=_order)
    divergence: float = field(converter=_divergence)
    worst: PrivacyLoss = field(converter=_worst)

    def failure(self) -> float:
        """Return delta."""
        return self.delta

    def renyi(self, orders: Array) -> Array:
        """Return the test's curve, and the budget's or the worst case's up to `order`."""
        worst = renyi_divergence(self.worst, orders)
        # D_a never falls in a: the budget at `order` holds at every order below it
        model = np.where(orders <= self.order, np.minimum(worst, self.divergence), worst)
        return up(pure_to_renyi(self.epsilon, orders) + model, 4)

    def pure(self) -> float | None:
        """Return the worst case's pure epsilon, and the test's."""
        eps = self.worst.pure()
        return None if eps is None else up(self.epsilon + eps, 2)

    def rho(self) -> float | None:
        """Return the worst case's rho, and the test's."""
        rho = self.worst.rho()
        return None if rho is None else up(pure_to_zcdp(self.epsilon) + rho, 2)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the larger of delta and the pair's; their sum at a negative epsilon."""
        curve = self._promised(epsilon) if epsilon >= 0 else None
        if curve is None:
            return super().profile(epsilon)
        # the budget covers the pair, or the test fails but for delta: never both
        return Bounds(0.0, min(1.0, max(self.delta, curve)))
