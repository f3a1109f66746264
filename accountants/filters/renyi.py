"""Privacy filters of Renyi DP: at every order of a curve, or at some order of a grid."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import DomainError, InapplicableError, nonnegative, probability
from accountants.filters.concentrated import largest_rho
from accountants.filters.sums import (
    SumFilter,
    UnionFilter,
    checked_failures,
    delta_beside_failures,
    rational_cost,
)
from accountants.loss import PrivacyLoss
from accountants.notions.renyi import renyi_divergence, renyi_to_epsilon, zcdp_epsilon
from accountants.rounding import UNIT, Array, down

ORDERS = tuple(1 + 2.0**k for k in range(-1, 9))
"""From 1.5 to 257."""


def checked_orders(what: str, value: float | Iterable[float]) -> tuple[float, ...]:
    """Return orders as floats, or raise `DomainError` unless all are finite and above 1."""
    every = tuple(value) if isinstance(value, Iterable) else (value,)
    orders = tuple(nonnegative(what, order) for order in every)
    if not orders or min(orders) <= 1 or len(set(orders)) < len(orders):
        raise DomainError(f"{what} must be different finite orders above 1, got {value!r}")
    return orders


def _orders(value: float | Iterable[float]) -> tuple[float, ...]:
    return checked_orders("orders", value)


def _curve(value: float | Iterable[float]) -> tuple[float, ...]:
    every = tuple(value) if isinstance(value, Iterable) else (value,)
    return tuple(nonnegative("RenyiFilter.curve", bound) for bound in every)


def _renyi_delta(value: float) -> float:
    return probability("RenyiFilter.failures", value)


@frozen
class RenyiFilter(SumFilter):
    """Admits while ``sum D_a,t <= curve`` at every one of its orders; one order is the rule.

    Parameters
    ----------
    orders, curve
        An order above 1 and its budget, or several.
    failures
        The budget of what losses fail with.

    References
    ----------
    Feldman and Zrnic 2021 (one order); at several orders it holds at each. Conversion:
    Canonne, Kamath and Steinke 2020, Prop. 12.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> budget = RenyiFilter(orders=8.0, curve=0.5)
    >>> state = budget.spend(budget.start(), Gaussian(mu=0.25))
    >>> budget.admits(state, Gaussian(mu=0.25)), round(budget.guarantee(1e-5).epsilon, 4)
    (False, 1.7141)
    """

    name: ClassVar[str] = "renyi"
    theorem: ClassVar[str] = "Renyi filter: Feldman & Zrnic 2021"

    orders: tuple[float, ...] = field(converter=_orders)
    curve: tuple[float, ...] = field(converter=_curve)
    failures: float = field(default=0.0, converter=_renyi_delta)

    def __attrs_post_init__(self) -> None:
        if len(self.orders) != len(self.curve):
            raise DomainError(
                f"RenyiFilter needs a budget for each order, got {len(self.orders)} orders and "
                f"{len(self.curve)} budgets"
            )

    @classmethod
    def within(
        cls, epsilon: float, delta: float, order: float | None = None, failures: float = 0.0
    ) -> RenyiFilter:
        """Return the filter at one order that keeps ``(epsilon, delta)``.

        The default is the order that is best for Gaussian losses.

        Raises
        ------
        InapplicableError
            If the order is too small for ``epsilon`` and ``delta``.
        """
        failures = checked_failures("RenyiFilter", failures, probability("delta", delta))
        epsilon, left = nonnegative("epsilon", epsilon), delta_beside_failures(delta, failures)
        rho = largest_rho(epsilon, left)
        if order is None:
            order = zcdp_epsilon(rho, left)[1]
        (chosen,) = checked_orders("order", order)
        budget = divergence_budget(chosen, epsilon, left)
        if budget < 0:
            raise InapplicableError(
                f"order {chosen} proves no epsilon as small as {epsilon} at delta {left}, whatever "
                "is spent; choose a larger order"
            )
        return cls(chosen, budget, failures)

    def units(self) -> tuple[str, ...]:
        """Return the orders."""
        return _units(self.orders)

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the divergence at each order."""
        return divergence_costs(loss, self.orders)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return the curve."""
        return tuple(Fraction(bound) for bound in self.curve)

    def converted(self, delta: float) -> float:
        """Return the best order's epsilon at ``delta``; every order's bound holds at once."""
        if not 0 < delta < 1:
            return 0.0 if delta >= 1 else math.inf
        values = renyi_to_epsilon(np.array(self.curve), np.array(self.orders), delta)
        return max(0.0, float(values.min()))


@frozen
class SomeOrderFilter(UnionFilter):
    """Admits while the sum at some order is within that order's budget; epsilons count too.

    For each order, stop where its sum would pass its budget; then
    ``E_P (1 - e^{epsilon - L})_+`` over the paths that end within is at most the order's
    share of delta, and every path that the filter lets through ends within at some order: the
    shares add up to delta. (That they need not be paid all at once, as if the best order
    were known in advance, is not proven and not claimed.) Paths whose pure epsilons sum to at
    most epsilon add nothing, so that sum is free.

    Parameters
    ----------
    epsilon, delta
        The guarantee.
    orders
        Above 1; delta is shared equally between them.
    failures
        The part of delta that is kept for what losses fail with.

    References
    ----------
    Lecuyer 2021 (a union over orders); Feldman and Zrnic 2021 (each order).

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> budget = SomeOrderFilter(epsilon=1.0, delta=1e-6)
    >>> budget.fitting(budget.start(), Gaussian(mu=0.01))
    385
    """

    name: ClassVar[str] = "some order"
    theorem: ClassVar[str] = "union of Renyi filters: Lecuyer 2021; Feldman & Zrnic 2021"

    epsilon: float = field()
    delta: float = field()
    orders: tuple[float, ...] = field(default=ORDERS, converter=_orders)
    failures: float = 0.0
    curve: tuple[float, ...] = field(init=False)

    def __attrs_post_init__(self) -> None:
        epsilon, delta = nonnegative("epsilon", self.epsilon), probability("delta", self.delta)
        failures = checked_failures("SomeOrderFilter", self.failures, delta)
        # a union bound: each order has an equal share of delta, rounded down so that they fit
        share = max(0.0, down(delta_beside_failures(delta, failures) / len(self.orders), 2))
        curve = tuple(
            divergence_budget(a, epsilon, share) if share > 0 else -1.0 for a in self.orders
        )
        values = {"epsilon": epsilon, "delta": delta, "failures": failures, "curve": curve}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def units(self) -> tuple[str, ...]:
        """Return epsilon and the orders."""
        return "epsilon", *_units(self.orders)

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the pure epsilon, where there is one, and the divergence at each order."""
        return rational_cost(loss.pure()), *divergence_costs(loss, self.orders)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return epsilon and the orders' budgets; a negative one is never kept."""
        return Fraction(self.epsilon), *(Fraction(bound) for bound in self.curve)


def divergence_costs(loss: PrivacyLoss, orders: tuple[float, ...]) -> tuple[Fraction, ...]:
    """Return the loss's divergence at each order, as exact rationals."""
    return tuple(rational_cost(float(d)) for d in renyi_divergence(loss, np.array(orders)))


def divergence_budget(order: float, epsilon: float, delta: float) -> float:
    """Return a divergence whose epsilon at ``delta`` is at most ``epsilon``, the largest but
    for rounding; negative where there is none.
    """  # noqa: D205
    orders = np.array([order])

    def value(divergence: float) -> float:
        known: Array = renyi_to_epsilon(np.array([divergence]), orders, delta)
        return float(known[0])

    # the conversion is divergence + overhead, but for rounding: start at the difference
    overhead = value(0.0)
    budget, step = epsilon - overhead, 4 * UNIT * (epsilon + abs(overhead)) + 5e-324
    while value(budget) > epsilon:  # until the rounded conversion is within: the answer is proven
        budget, step = budget - step, 2 * step
    return budget


def _units(orders: tuple[float, ...]) -> tuple[str, ...]:
    return tuple(f"divergence at order {order:.6g}" for order in orders)
