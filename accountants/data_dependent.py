"""Data-dependent Renyi DP: what the data at hand loses, beside what every data set loses.

A *data-dependent* curve bounds ``D_a(M(D) || M(D'))`` at the actual data set D, for
every neighbour D'. It is a function of the private data, so it is private itself; and it
bounds one direction: ``D_a(M(D') || M(D))`` may be larger. It is not a privacy guarantee. It
has three readings, which are never mixed up:

================  ==============================================================
worst case        what `DataDependent` shows to every accountant: its `worst` loss
data-dependent    what `DataDependentRenyi` computes: `Secret` numbers
sanitised         released through a mechanism with a loss of its own
                  (`accountants.losses.gaussian`), which is paid like any other
================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.accountant import remaining_delta
from accountants.definitions import Curve, renyi_divergence, renyi_to_epsilon, renyi_total
from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import Array, Bounds, ceiling, up
from accountants.pair import Pair
from accountants.renyi import Renyi, RenyiState
from accountants.secret import Secret

ORDERS = 1 + np.geomspace(0.05, 500, 60)
"""At which a data-dependent epsilon is looked for; each order proves its own."""


def _curve(value: Secret[Curve]) -> Secret[Curve]:
    if not isinstance(value, Secret):
        raise DomainError(
            "DataDependent.curve is a function of the data, so it comes as Secret(curve), a "
            "function of an array of orders"
        )
    return value


@frozen(eq=False)
class DataDependent(PrivacyLoss):
    """A loss that every accountant reads as its worst case, with the data's own curve beside.

    Two of them are equal only if they are one object: comparing curves would tell of the data.

    Parameters
    ----------
    worst
        What the mechanism costs on every data set.
    curve
        Orders in, bounds of ``D_a(M(D) || M(D'))`` out, at the data set D at hand and for every
        neighbour D'; one direction.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> DataDependent(Gaussian(mu=0.5), Secret(lambda orders: 1e-3 * orders))
    DataDependent(worst=Gaussian(mu=0.5), curve=<private>)
    """

    theorem: ClassVar[str] = "the worst case; beside it a private curve of one direction"

    worst: PrivacyLoss = field()
    curve: Secret[Curve] = field(converter=_curve)

    @worst.validator
    def _is_loss(self, _: object, worst: PrivacyLoss) -> None:
        if not isinstance(worst, PrivacyLoss) or isinstance(worst, DataDependent):
            raise DomainError(f"DataDependent.worst must be a worst-case loss, got {worst!r}")

    def data_dependent(self, orders: Array) -> Secret[Array]:
        """Return the data's own curve, nowhere above the worst case's.

        What is not a number proves nothing.
        """
        # both bound the same divergence, so the smaller one does too
        worst = renyi_divergence(self.worst, orders)
        return self.curve.map(lambda curve: _least(curve(orders), worst))

    def delta_floor(self) -> float:
        """Return the worst case's."""
        # all public functionals read the worst case, never the curve
        return self.worst.delta_floor()

    def pair(self) -> Pair | None:
        """Return the worst case's."""
        return self.worst.pair()

    def pure(self) -> float | None:
        """Return the worst case's."""
        return self.worst.pure()

    def renyi(self, orders: Array) -> Array | None:
        """Return the worst case's."""
        return self.worst.renyi(orders)

    def rho(self) -> float | None:
        """Return the worst case's."""
        return self.worst.rho()

    def mu(self) -> float | None:
        """Return the worst case's."""
        return self.worst.mu()

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the worst case's."""
        return self.worst.profile(epsilon)

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return the worst case's."""
        return self.worst.epsilon_at(delta)

    def grouped(self, size: int) -> PrivacyLoss:
        """Return the worst case's; the data's own curve is of neighbours."""
        # a group's worst case covers every data set; the curve knows neighbours only
        return self.worst.grouped(size)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether the worst case does."""
        return self is other or self.worst.dominates(other)


def _least(own: Array, worst: Array) -> Array:
    # NaN and negative bounds prove nothing: they fail `own >= 0` and become infinite
    least: Array = np.minimum(np.where(own >= 0, own, np.inf), worst)
    return least


@frozen
class DataDependentRenyi:
    """Adds data-dependent curves where losses have one, worst-case curves elsewhere.

    The state is that of `Renyi`, whose answer is the worst-case reading of the same spends. What
    this accountant computes is private and one-sided, so it certifies nothing: `epsilon`
    and `delta` raise.

    References
    ----------
    Papernot, Song, Mironov, Raghunathan, Talwar and Erlingsson 2018 (data-dependent
    accounting); Mironov 2017, Prop. 1 (composition, direction by direction).

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> accountant = DataDependentRenyi()
    >>> loss = DataDependent(Gaussian(mu=0.5), Secret(lambda orders: 1e-3 * orders))
    >>> state = accountant.compose(accountant.start(), loss, 100)
    >>> accountant.private_epsilon(state, delta=1e-5)
    <private>
    """

    name: str = "data-dependent renyi"
    theorem: str = "data-dependent RDP of D against its neighbours: Papernot et al. 2018"
    adaptive: bool = False
    data_dependent: bool = True
    direction: str = "D -> D'"

    def start(self) -> RenyiState:
        """Return the zero curve."""
        return Renyi().start()

    def compose(self, state: RenyiState, loss: PrivacyLoss, times: int = 1) -> RenyiState:
        """Add the loss, ``times`` times; adaptive queries with fixed parameters compose too."""
        # the spends are kept as they are, so that both readings use one state
        return Renyi().compose(state, loss, times)

    def divergence(self, state: RenyiState, orders: Array) -> Secret[Array]:
        """Return the sum of the curves at ``orders``, one direction: D against its neighbours.

        Never above the sum of the worst cases.
        """
        orders = np.asarray(orders, dtype=np.float64)
        spends = state.rest.items().items()
        # only losses with a curve of their own add private numbers
        public = [(loss, n) for loss, n in spends if not isinstance(loss, DataDependent)]
        private = [(loss, n) for loss, n in spends if isinstance(loss, DataDependent)]
        # the public part: exact Gaussian pairs, and every loss without a curve of its own
        total = up(orders * up(ceiling(state.square) / 2) + renyi_total(public, orders))
        # Mironov 2017, Prop. 1, in this direction: the divergences at each order add up
        curves = [(loss.data_dependent(orders), n) for loss, n in private]

        def summed(start: Array) -> Array:
            # reveals inside of Secret only: the sum stays private
            values = start + sum(n * c.reveal() for c, n in curves)
            # one product and one sum for each loss, each off by a unit at most
            return up(values, 2 * len(curves) + 2)

        return Secret(total).map(summed)

    def private_epsilon(self, state: RenyiState, delta: float) -> Secret[float]:
        """Return the epsilon of the one direction at ``delta``: ``P(S) <= e^eps Q(S) + delta``.

        P is the law of the outcomes on the data at hand, Q on a neighbour. Private.
        """
        # as for the worst case: the delta floors first
        left = remaining_delta(probability("delta", delta), state.delta_floor)
        if not 0 < left < 1:
            return Secret(0.0 if left >= 1 else float("inf"))

        # each order proves an epsilon of its own, so the least of them holds
        def best(values: Array) -> float:
            return max(0.0, float(np.min(renyi_to_epsilon(values, ORDERS, left))))

        return self.divergence(state, ORDERS).map(best)

    def epsilon(self, state: RenyiState, delta: float) -> Bounds:
        """Refuse: what the data loses is not a guarantee.

        Raises
        ------
        InapplicableError
            Always.
        """
        probability("delta", delta)
        raise InapplicableError(_REFUSAL)

    def delta(self, state: RenyiState, epsilon: float) -> Bounds:
        """Refuse: what the data loses is not a guarantee.

        Raises
        ------
        InapplicableError
            Always.
        """
        nonnegative("epsilon", epsilon)
        raise InapplicableError(_REFUSAL)

    def cost_function(self, state: RenyiState, delta: float) -> Callable[[PrivacyLoss], float]:
        """Refuse: a share of what the data loses is private.

        Raises
        ------
        InapplicableError
            Always.
        """
        raise InapplicableError(_REFUSAL)

    def conversion(self, loss: PrivacyLoss) -> str:
        """Name the curve read from ``loss``."""
        if isinstance(loss, DataDependent):
            return "its data-dependent Renyi curve, or its worst case where that is less"
        return Renyi().conversion(loss)


_REFUSAL = (
    "a data-dependent loss certifies nothing: it is a function of the private data, and it bounds "
    "D_a(M(D) || M(D')) only, not the reverse; certify with Renyi(), which reads the worst case of "
    "the same state, or release the loss through SmoothSanitization, whose own loss is then paid"
)
