"""Odometers: running bounds for an analysis without a budget, valid whenever it stops.

Losses are chosen as outcomes come in; L_t is the log-likelihood ratio of all
outcomes up to time t, P against Q. An *odometer* reads eps_t off what was spent so far, such
that, outside of the delta floors, one of two statements holds (`Odometer.uniform` says which):

* uniform: ``P(L_t > eps_t for some t) <= delta'``, the definition of Rogers et al. 2016;
* at every stopping rule tau, whatever it looks at: ``E_P (1 - e^{eps_tau - L_tau})_+ <= delta'``,
  that is ``P(S) <= E_Q[e^{eps_tau} 1_S] + delta'`` for every event S. The first implies it.

The losses' delta floors may sum to at most F, the ``delta_reserve``, on every path: a part of
delta that is set aside in advance; then ``P(S) <= E_Q[e^{eps_tau} 1_S] + F + (1 - F) delta'``.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.definitions import LARGEST_MU, gdp_epsilon, renyi_to_epsilon
from accountants.errors import (
    BudgetError,
    DomainError,
    InapplicableError,
    assign,
    checked,
    integer,
    positive,
    probability,
)
from accountants.filters import (
    EPSILON,
    MU_SQUARED,
    ORDERS,
    RHO,
    AccountingUnits,
    ExactSums,
    SpentSums,
    checked_orders,
    checked_reserve,
    delta_beside_reserve,
    delta_shares,
    divergences,
)
from accountants.loss import PrivacyLoss
from accountants.numerics import Array, bound, ceiling, down, up


class Odometer(ExactSums):
    """Base of the odometers: a subclass gives costs and reads the sums; constant work a spend."""

    __slots__ = ()

    delta: float

    def __attrs_post_init__(self) -> None:
        """Check delta and its reserve, as floats: a positive part must be left beside it."""
        kind = type(self).__name__
        delta = probability(f"{kind}.delta", self.delta)
        delta_reserve = checked_reserve(type(self), self.delta_reserve, delta)
        # delta' = (delta - F) / (1 - F) is all that the statements about L_t may use
        if not 0 < delta_beside_reserve(delta, delta_reserve) < 1:
            raise InapplicableError(
                f"{kind} needs a delta beside the reserve, in (0, 1), got "
                f"delta {delta!r} and delta_reserve {delta_reserve!r}; PureOdometer needs none"
            )
        assign(self, delta=delta, delta_reserve=delta_reserve)

    def epsilon(self, state: SpentSums) -> float:
        """Return eps_t of the state, rounded up."""
        raise NotImplementedError

    def spend(self, state: SpentSums, loss: PrivacyLoss, times: int = 1) -> SpentSums:
        """Return the state after spending ``loss`` ``times`` times.

        Raises
        ------
        BudgetError
            If the losses' delta floors would pass the reserve; the state stays what it was.
        """
        # states are values: if the check below fails the old one stays valid
        after = self._after(state, loss, times)
        # F must bound the delta floors on every path, so they are the one sum with a budget
        if after.delta_floor > Fraction(self.delta_reserve):
            # how many of them still fit: exact rationals, so the floor is exact too
            fitting = (Fraction(self.delta_reserve) - state.delta_floor) // Fraction(
                loss.delta_floor()
            )
            raise BudgetError(
                f"{loss!r}, {times} times, have a delta floor above what remains of the odometer's "
                f"delta_reserve = {self.delta_reserve!r}; it fits {fitting} times",
                loss,
                times,
                fitting,
            )
        return after


@frozen
class PureOdometer(Odometer):
    """``eps_t = sum eps_i``: no path has a larger likelihood ratio.

    Parameters
    ----------
    delta_reserve
        The budget of the losses' delta floors.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan 2016 (basic composition).

    Examples
    --------
    >>> from accountants.losses.laplace import Laplace
    >>> odometer = PureOdometer()
    >>> odometer.epsilon(odometer.spend(odometer.start(), Laplace(epsilon=0.25), 3))
    0.75
    """

    name: ClassVar[str] = "pure"
    theorem: ClassVar[str] = "a sum is an odometer: Rogers, Roth, Ullman & Vadhan 2016"
    accounting_units: ClassVar[AccountingUnits] = EPSILON
    uniform: ClassVar[bool] = True

    delta_reserve: float = field(default=0.0, validator=checked(probability))

    def __attrs_post_init__(self) -> None:
        """Check nothing: a sum of epsilons needs no delta beside the reserve."""

    @property
    def delta(self) -> float:  # type: ignore[override]
        """The reserve."""
        return self.delta_reserve

    def epsilon(self, state: SpentSums) -> float:
        """Return the sum."""
        # it holds on every path, so there is no union and no conversion; the rational is rounded up
        return bound(state.sums[0])


@frozen
class _OrdersOdometer(Odometer):
    """Base of the odometers that read a sum of epsilons, or of divergences at some of k orders."""

    delta: float = field()
    orders: tuple[float, ...] = field(default=ORDERS, converter=checked_orders)
    delta_reserve: float = 0.0
    uniform: bool = True

    def total_divergences(self, sums: tuple[Fraction, ...]) -> Array:
        """Return the total divergence at each order, rounded up, from the sums but epsilon's."""
        raise NotImplementedError

    def epsilon(self, state: SpentSums) -> float:
        """Return the least of the bounds; all of them hold at once."""
        total, *others = state.sums
        # all sums are rounded up, as the bounds rise in them
        epsilon, at_orders = bound(total), self.total_divergences(tuple(others))
        orders = np.array(self.orders)
        # a union bound: each order has the share delta' / k, rounded down so that they fit
        share = down(delta_beside_reserve(self.delta, self.delta_reserve) / len(orders), 2)
        # a share that underflows proves nothing; the sum of epsilons needs none
        if not share > 0:
            return epsilon
        if self.uniform:
            # Ville: P(L_t ever passes sum D_a,i + log(1 / share) / (a - 1)) <= share
            values = up(at_orders + up(-math.log(share) / (orders - 1), 8), 2)
        else:
            # optional stopping: E e^{(a-1) (L_tau - sum D_a,i)} <= 1, converted at the share
            values = renyi_to_epsilon(at_orders, orders, share)
        # the sum of epsilons holds on every path, so it may be taken without a share of delta
        return max(0.0, min(epsilon, float(values.min())))


@frozen
class RenyiOdometer(_OrdersOdometer):
    """``eps_t = min_a (sum D_a,i + c_a)`` over k orders, or ``sum eps_i`` where that is less.

    ``exp((a - 1) (L_t - sum D_a,i))`` is a supermartingale that starts at 1. By Ville's inequality
    it ever passes ``k / delta'`` with probability at most ``delta' / k``: with
    ``c_a = log(k / delta') / (a - 1)`` the bound is uniform, by a union over the orders. At a
    stopping rule its mean is at most 1, and the conversion of Canonne, Kamath and Steinke, which
    is linear in D_a, holds with what each path has spent: c_a is less by about
    ``log(a) / (a - 1)``.

    Parameters
    ----------
    delta
        Of the statement.
    orders
        Above 1; delta is shared equally between them. Small ones serve large sums.
    delta_reserve
        The part of delta that is set aside for the losses' delta floors.
    uniform
        Which of the two statements; False is tighter.

    References
    ----------
    Whitehouse, Ramdas, Rogers and Wu 2023 (an odometer with a linear boundary, by Ville's
    inequality); Lecuyer 2021 (several orders); Canonne, Kamath and Steinke 2020, Prop. 12.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> odometer = RenyiOdometer(delta=1e-6)
    >>> state = odometer.spend(odometer.start(), Gaussian(mu=0.1), 100)
    >>> round(odometer.epsilon(state), 3)
    6.515
    """

    name: ClassVar[str] = "renyi"
    theorem: ClassVar[str] = "Renyi odometer: Whitehouse et al. 2023; Lecuyer 2021"

    @property
    def accounting_units(self) -> AccountingUnits:
        """Epsilon, where a loss has one, and the divergences at the orders."""
        return EPSILON.or_unpayable() + divergences(self.orders)

    def total_divergences(self, sums: tuple[Fraction, ...]) -> Array:
        """Return the sums."""
        return np.array([ceiling(s) for s in sums])


@frozen
class ConcentratedOdometer(_OrdersOdometer):
    """`RenyiOdometer` of the line ``sum D_a,i <= a sum rho_i``: its state is two sums.

    Parameters
    ----------
    delta, orders, delta_reserve, uniform
        As there.

    References
    ----------
    Whitehouse, Ramdas, Rogers and Wu 2023 (approximate zCDP).

    Examples
    --------
    >>> from accountants.losses.pure import Approximate
    >>> odometer = ConcentratedOdometer(delta=1e-6, delta_reserve=1e-7)
    >>> state = odometer.spend(odometer.start(), Approximate(epsilon=0.1, delta=1e-10), 100)
    >>> round(odometer.epsilon(state), 3)
    6.524
    """

    name: ClassVar[str] = "concentrated"
    theorem: ClassVar[str] = "zCDP odometer: Whitehouse, Ramdas, Rogers & Wu 2023"
    accounting_units: ClassVar[AccountingUnits] = EPSILON.or_unpayable() + RHO

    def total_divergences(self, sums: tuple[Fraction, ...]) -> Array:
        """Return the line ``a sum rho_i``."""
        (rho,) = sums
        # D_a <= a rho for every loss with that rho, and so for the sums; rounded up
        with np.errstate(over="ignore"):
            return up(np.array(self.orders) * ceiling(rho))


@frozen
class GaussianOdometer(Odometer):
    """The epsilon of the first of a grid of Gaussian filters whose budget is not passed.

    The budgets are ``mu_j = first ratio^j``, j below ``count``; filter j has the share
    ``delta' / count``. Up to a stopping rule at which j is the first that is not passed, the
    interaction is one that filter j admits, so ``P(S, j) <= e^{eps_j} Q(S, j) + delta' / count``;
    summed over j this is the statement at every stopping rule. Infinite past the last budget.

    Parameters
    ----------
    delta
        Of the statement.
    first, ratio, count
        The grid.
    delta_reserve
        The part of delta that is set aside for the losses' delta floors.

    References
    ----------
    Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023 (each filter); the union as above.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> odometer = GaussianOdometer(delta=1e-6)
    >>> state = odometer.spend(odometer.start(), Gaussian(mu=0.1), 100)
    >>> round(odometer.epsilon(state), 3)
    5.769
    """

    name: ClassVar[str] = "gaussian"
    theorem: ClassVar[str] = "union of Gaussian-DP filters: Smith & Thakurta 2022"
    accounting_units: ClassVar[AccountingUnits] = MU_SQUARED
    uniform: ClassVar[bool] = False

    delta: float = field()
    first: float = field(default=2.0**-6, validator=checked(positive))
    ratio: float = field(default=2.0**0.125, validator=checked(positive))
    count: int = field(default=96, validator=checked(integer))
    delta_reserve: float = 0.0

    def __attrs_post_init__(self) -> None:
        # the budgets must grow, or the first one not passed would not be the least
        if not self.ratio > 1:
            raise DomainError(f"GaussianOdometer.ratio must be above 1, got {self.ratio!r}")
        # in logarithms, as ratio^count itself may overflow
        if math.log(self.first) + self.count * math.log(self.ratio) > math.log(LARGEST_MU):
            raise DomainError(
                "GaussianOdometer's budgets first * ratio^j must stay below 1e150 up to count, got "
                f"first = {self.first!r}, ratio = {self.ratio!r}, count = {self.count!r}"
            )
        super().__attrs_post_init__()

    def epsilon(self, state: SpentSums) -> float:
        """Return the exact epsilon of the first budget that is not passed."""
        # a generator: budgets past the first that fits are not computed
        budgets = (self.first * self.ratio**j for j in range(self.count))
        # the first budget that the sum does not pass: compared exactly, as the filter j would
        mu = next((m for m in budgets if state.sums[0] <= Fraction(m) ** 2), math.inf)
        # a union over the filters of the grid, each with an equal share of delta'
        share = down(delta_beside_reserve(self.delta, self.delta_reserve) / self.count, 2)
        # past the last budget mu is infinite, and so is its epsilon
        return gdp_epsilon(mu, share).upper if share > 0 else math.inf


@frozen
class BestOdometer(Odometer):
    """The least of three bounds: of epsilons, of squares of mu, and of divergences.

    The sum of epsilons needs no delta; `GaussianOdometer` and `RenyiOdometer` have a share of it
    each. Where the least of some bounds is read at a stopping rule,
    ``(1 - e^{min_i eps_i - L})_+`` is the largest of ``(1 - e^{eps_i - L})_+``, so at most their
    sum: the shares add up to delta (own proof).

    Parameters
    ----------
    delta
        Of the statement.
    delta_reserve
        The part of delta that is set aside for the losses' delta floors.

    References
    ----------
    As of the three.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> odometer = BestOdometer(delta=1e-6)
    >>> state = odometer.spend(odometer.start(), Gaussian(mu=0.1), 100)
    >>> round(odometer.epsilon(state), 3)
    5.841
    """

    name: ClassVar[str] = "best"
    theorem: ClassVar[str] = (
        f"the least of: {PureOdometer.theorem}; {GaussianOdometer.theorem}; {RenyiOdometer.theorem}"
    )
    uniform: ClassVar[bool] = False

    delta: float = field()
    delta_reserve: float = 0.0
    gaussian: GaussianOdometer = field(init=False)
    renyi: RenyiOdometer = field(init=False)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        # the two odometers have no reserve of their own: they share what is left beside this one
        of_mu, of_orders = delta_shares(delta_beside_reserve(self.delta, self.delta_reserve))
        renyi = RenyiOdometer(of_orders, uniform=False)
        assign(self, gaussian=GaussianOdometer(of_mu), renyi=renyi)

    @property
    def accounting_units(self) -> AccountingUnits:
        """Mu squared, epsilon and the divergences at the orders, each where a loss has it."""
        # in the order in which `epsilon` takes the sums apart; the orders' sums may become infinite
        # while the sum of squares of mu still counts
        orders = divergences(self.renyi.orders)
        return MU_SQUARED.or_unpayable() + EPSILON.or_unpayable() + orders.or_unpayable()

    def epsilon(self, state: SpentSums) -> float:
        """Return the least of the bounds."""
        # the first sum is the Gaussian odometer's, all others the Renyi odometer's
        square, *others = state.sums
        # (1 - e^{min_i eps_i - L})_+ is at most the sum of the (1 - e^{eps_i - L})_+
        return min(
            self.gaussian.epsilon(SpentSums((square,))),
            self.renyi.epsilon(SpentSums(tuple(others))),
        )
