"""The zCDP accountant: rhos add up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from attrs import frozen

from accountants.accountant import (
    PruningBound,
    SumAccountant,
    SumState,
    delta_floor_of,
    order_bound,
    remaining_delta,
)
from accountants.definitions import zcdp_epsilon, zcdp_rho
from accountants.errors import probability
from accountants.loss import PrivacyLoss
from accountants.numerics import ceiling, up


@frozen
class Concentrated(SumAccountant):
    """``rho = sum rho_i``, read as the Renyi curve ``rho alpha`` and converted at its best order.

    References
    ----------
    Bun and Steinke 2016, Lemma 1.7 (composition); Canonne, Kamath and Steinke 2020, Prop. 12
    (conversion, at every real order).

    Examples
    --------
    >>> from accountants import Gaussian
    >>> accountant = Concentrated()
    >>> state = accountant.compose(accountant.start(), Gaussian(mu=1.0))
    >>> round(accountant.epsilon(state, delta=1e-5).upper, 4)
    4.7284
    """

    name: str = "concentrated"
    theorem: str = "zCDP: Bun & Steinke 2016, Lemma 1.7; Canonne, Kamath & Steinke 2020, Prop. 12"
    adaptive: bool = False

    def cost(self, loss: PrivacyLoss) -> Fraction | None:
        """Return the loss's rho."""
        # a rho that is infinite has no exact rational: None says that the loss has no cost
        rho = zcdp_rho(loss)
        return Fraction(rho) if math.isfinite(rho) else None

    def converted(self, total: Fraction, delta: float) -> float:
        """Return the epsilon of ``total``-zCDP at ``delta``, at the best real order."""
        # rounded up before the conversion, which rises in rho
        return zcdp_epsilon(ceiling(total), delta)[0]

    def pruning_bounds(self, state: SumState, delta: float) -> Sequence[PruningBound]:
        """Return the pruning bound of the order that certifies: divergences ``rho alpha``."""
        rest = remaining_delta(probability("delta", delta), state.delta_floor)
        if not 0 < rest < 1:
            return []
        # the order that certifies this state; a bound at it holds for every other composition
        order = zcdp_epsilon(ceiling(state.total), rest)[1]
        # at infinite order the curve rho alpha is infinite and prunes nothing
        if not order < math.inf:
            return []
        # the curve rho alpha at the one order, rounded up
        return [order_bound(lambda loss: up(zcdp_rho(loss) * order), delta_floor_of, order, delta)]

    def cost_function(self, state: SumState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return each loss's rho."""
        probability("delta", delta)
        return zcdp_rho

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the functional read from ``loss``."""
        # the order in which `zcdp_rho` looks for a rho
        if loss.rho() is not None:
            return "its own rho"
        if loss.mu() is not None:
            return "rho = mu^2/2 from its Gaussian-DP mu"
        return "rho = eps tanh(eps/2) from its pure epsilon (randomized response is the worst)"
