"""The individual Renyi filter: every record has a budget, and leaves when it is spent."""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.data_dependent import Private
from accountants.errors import DomainError, nonnegative, positive, whole
from accountants.filters.renyi import orders_of
from accountants.filters.sums import Guarantee
from accountants.notions import renyi
from accountants.rounding import Array, up

T = TypeVar("T")
Mask = NDArray[np.bool_]


def _order(value: float) -> float:
    return orders_of("IndividualFilter.order", value)[0]


def _budget(value: float) -> float:
    return nonnegative("IndividualFilter.budget", value)


@frozen(eq=False)
class IndividualState:
    """What each record has spent, rounded up; as private as the records."""

    sums: Private[Array]


@frozen
class IndividualFilter:
    """Each record takes part while its own ``sum D_a,t <= budget``.

    Let D be a data set, D' the same without record i, both directions. Whether another
    record takes part depends on that record and on past outcomes, not on i. So a step that i
    takes part in compares the active records with and without i, which its divergence bounds, and
    a step that it does not take part in is the same under both: the sum over the steps
    that i takes part in is what i loses, and it is at most the budget. A record may take part
    again in a cheaper step.

    The neighbours add or remove one record; the number of records, who is active, and the
    sums are private, and nothing here raises or prints what depends on them.

    Parameters
    ----------
    order
        Above 1.
    budget
        Of the divergence at that order, the same for all records.

    References
    ----------
    Feldman and Zrnic 2021 (individual privacy filter). Conversion: Canonne, Kamath and
    Steinke 2020, Prop. 12.

    Examples
    --------
    >>> budget = IndividualFilter(order=8.0, budget=0.5)
    >>> norms = Private(np.array([0.1, 0.3, 1.0]))
    >>> costs = budget.gaussian(norms, sigma=2.0)
    >>> state, active = budget.spend(budget.start(3), costs)
    >>> active
    <private>
    >>> active.expose_private_value()
    array([ True,  True, False])
    """

    name: ClassVar[str] = "individual"
    theorem: ClassVar[str] = "individual Renyi filter: Feldman & Zrnic 2021"
    adaptive: ClassVar[bool] = True

    order: float = field(converter=_order)
    budget: float = field(converter=_budget)

    def start(self, records: int) -> IndividualState:
        """Return the state of so many records that have spent nothing."""
        return IndividualState(Private(np.zeros(whole("records", records, least=0))))

    def gaussian(self, norms: Private[Array], sigma: float) -> Private[Array]:
        """Return what each record costs in a sum with noise ``N(0, sigma^2)`` at its own norm.

        ``a norm^2 / (2 sigma^2)``, by the norm of what the record adds to the sum.
        """
        scale = positive("sigma", sigma)

        def costs(values: Array) -> Array:
            with np.errstate(all="ignore"):
                ratio = np.abs(_floats(values)) / scale
                return np.where(ratio == 0, 0.0, up(self.order * ratio * ratio / 2, 8))

        return _boxed("norms", norms).map(costs)

    def active(self, state: IndividualState, costs: Private[Array]) -> Private[Mask]:
        """Return which records can pay their cost of the next step.

        Parameters
        ----------
        costs
            Shape (records,): for record i a bound of ``D_a(step(S) || step(S without i))`` and of
            the reverse, for every set S of records with i in it. A cost that is no number at
            least 0 cannot be paid.
        """
        after = self._after(state, costs)
        return after.map(lambda sums: sums <= self.budget)

    def spend(
        self, state: IndividualState, costs: Private[Array]
    ) -> tuple[IndividualState, Private[Mask]]:
        """Return the state after the step, and the records that take part in it.

        Those that cannot pay are dropped from the step and pay nothing.
        """
        after, active = self._after(state, costs), self.active(state, costs)
        mask, new = active.expose_private_value(), after.expose_private_value()
        return IndividualState(state.sums.map(lambda old: np.where(mask, new, old))), active

    def spent(self, state: IndividualState) -> Private[Array]:
        """Return each record's sum, rounded up."""
        return state.sums

    def remaining(self, state: IndividualState) -> Private[Array]:
        """Return what each record has left, rounded down; never below 0."""
        return state.sums.map(
            lambda sums: np.maximum(0.0, np.nextafter(self.budget - sums, -math.inf))
        )

    def guarantee(self, delta: float) -> Guarantee:
        """Return the epsilon of the whole at ``delta``, for every record."""
        if not 0 < delta < 1:
            return Guarantee(0.0 if delta >= 1 else math.inf, delta)
        value = renyi.convert(np.array([self.budget]), np.array([self.order]), delta)
        return Guarantee(max(0.0, float(value[0])), delta)

    def _after(self, state: IndividualState, costs: Private[Array]) -> Private[Array]:
        def added(sums: Array) -> Array:
            values = _floats(_boxed("costs", costs).expose_private_value())
            if values.shape != sums.shape:
                raise DomainError("IndividualFilter needs one cost for each record")
            return sum_up(sums, np.where(values >= 0, values, np.inf))

        return state.sums.map(added)


def _boxed(what: str, value: Private[T]) -> Private[T]:
    if not isinstance(value, Private):
        raise DomainError(f"{what} depend on the records, so they come as Private(array)")
    return value


def _floats(values: Array) -> Array:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):  # whose message would quote the values
        raise DomainError("IndividualFilter needs an array of numbers, one each record") from None


def sum_up(a: Array, b: Array) -> Array:
    """Return the least floats that are at least ``a + b``, for entries that are not negative.

    The rounding error of a sum is a float, and Knuth's two-sum computes it.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        total = a + b
        back = total - a
        error = (a - (total - back)) + (b - back)
        return np.where(error > 0, np.nextafter(total, np.inf), total)
