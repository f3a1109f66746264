"""The individual Gaussian-DP filter: every record has a budget, and leaves when it is spent."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar, TypeVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.errors import DomainError, checked, integer, nonnegative, positive
from accountants.filters import EpsilonDelta, GaussianFilter
from accountants.numerics import Array, flooring, up
from accountants.secret import Secret

T = TypeVar("T")
Mask = NDArray[np.bool_]


@frozen(eq=False)
class IndividualState:
    """What each record has spent, rounded up; as private as the records."""

    sums: Secret[Array]


@frozen
class IndividualFilter:
    """Each record takes part while its own ``sum mu_t^2 <= mu^2``; the interaction is mu-GDP.

    Let D be a data set and D' the same without record i. A step chooses what is summed, and its
    noise, by past outcomes; record j takes part in it if j's own sum of squares lets it, which
    depends on j and on past outcomes, and not on i. So given the past, for this one pair:

    - where i does not take part, the step reads the same records under D and under D', and its
      outcome has the same law;
    - where i takes part, the two sums differ by what i adds to them, of l2 norm n: the step's
      laws are two Gaussians n apart, ``(n / sigma)``-GDP.

    What the pair loses is thus a composition of ``mu_t``-GDP steps, each mu_t a function of the
    past (0 where i stays out), with ``sum mu_t^2 <= mu^2`` always: mu-GDP, by the theorem of
    `GaussianFilter`, both ways. As i was any record, this holds for every pair of neighbours. A
    record that cannot pay a step may take part in a cheaper one later.

    The neighbours add or remove one record; the number of records, who is active, and the
    sums are private, and nothing here raises or prints what depends on them.

    Parameters
    ----------
    mu
        The budget, the same for all records.

    References
    ----------
    Feldman and Zrnic 2021 (individual privacy filters, in Renyi DP); Smith and Thakurta 2022, and
    Koskela, Tobaben and Honkela 2023 (Gaussian DP).

    Examples
    --------
    >>> budget = IndividualFilter(mu=0.5)
    >>> norms = Secret(np.array([0.1, 0.3, 1.5]))
    >>> costs = budget.gaussian(norms, sigma=2.0)
    >>> state, active = budget.spend(budget.start(3), costs)
    >>> active
    <private>
    >>> active.reveal()
    array([ True,  True, False])
    """

    name: ClassVar[str] = "individual"
    theorem: ClassVar[str] = (
        "individual Gaussian-DP filter: Feldman & Zrnic 2021; Smith & Thakurta 2022; Koskela, "
        "Tobaben & Honkela 2023"
    )
    adaptive: ClassVar[bool] = True

    mu: float = field(validator=checked(nonnegative))

    @classmethod
    def within(cls, epsilon: float, delta: float) -> IndividualFilter:
        """Return the filter with the largest mu that keeps ``(epsilon, delta)``.

        Raises
        ------
        InapplicableError
            If delta is 0.
        """
        return cls(GaussianFilter.within(epsilon, delta).mu)

    def start(self, records: int) -> IndividualState:
        """Return the state of so many records that have spent nothing."""
        return IndividualState(Secret(np.zeros(integer("records", records, least=0))))

    def gaussian(self, norms: Secret[Array], sigma: float, rounding: float = 0.0) -> Secret[Array]:
        """Return the square of the mu that each record costs in a sum with noise N(0, sigma^2).

        ``(norm / sigma + rounding)^2``, rounded up; 0 for a record that adds nothing.

        Parameters
        ----------
        norms
            Shape (records,): bounds of the l2 norm of what each adds, 0 only where it adds nothing.
        sigma
            The noise's standard deviation, in the units of the norms.
        rounding
            The mu by which a mechanism's own rounding can move apart values that differ.
        """
        scale, more = positive("sigma", sigma), nonnegative("rounding", rounding)

        def costs(values: Array) -> Array:
            with np.errstate(all="ignore"):
                sizes = np.abs(_floats(values))
                # mu = norm / sigma, and more where rounding moves values farther apart
                ratio = sizes / scale + more
                return np.where(sizes == 0, 0.0, up(ratio * ratio, 8))

        return _boxed("norms", norms).map(costs)

    def active(self, state: IndividualState, costs: Secret[Array]) -> Secret[Mask]:
        """Return which records can pay their cost of the next step.

        Parameters
        ----------
        costs
            Shape (records,): for record i the square of a mu such that, for every set S of
            records with i in it, the step's outcomes on S and on S without i are mu-GDP. A cost
            that is not a number of at least 0 cannot be paid.
        """
        # sums rounded up against a budget rounded down: no record is admitted beyond mu^2
        after = self._after(state, costs)
        limit = self._limit()
        return after.map(lambda sums: sums <= limit)

    def spend(
        self, state: IndividualState, costs: Secret[Array]
    ) -> tuple[IndividualState, Secret[Mask]]:
        """Return the state after the step, and the records that take part in it.

        Those that cannot pay are dropped from the step and pay nothing.
        """
        after, active = self._after(state, costs), self.active(state, costs)
        # who is active depends on each record's own costs and on past outcomes alone, as the
        # proof asks; both stay inside of Secret
        mask, new = active.reveal(), after.reveal()
        return IndividualState(state.sums.map(lambda old: np.where(mask, new, old))), active

    def spent(self, state: IndividualState) -> Secret[Array]:
        """Return each record's sum of squares, rounded up."""
        return state.sums

    def remaining(self, state: IndividualState) -> Secret[Array]:
        """Return what each record has left, rounded down; never below 0."""
        limit = self._limit()
        # one float down covers the rounding of the difference
        return state.sums.map(lambda sums: np.maximum(0.0, np.nextafter(limit - sums, -math.inf)))

    def guarantee(self, delta: float) -> EpsilonDelta:
        """Return the exact epsilon of mu-GDP at ``delta``, for every record."""
        return GaussianFilter(self.mu).guarantee(delta)

    def _limit(self) -> float:
        """Return the square of mu, rounded down: sums are rounded up, so the comparison is safe."""
        return flooring(Fraction(self.mu) ** 2)

    def _after(self, state: IndividualState, costs: Secret[Array]) -> Secret[Array]:
        def added(sums: Array) -> Array:
            values = _floats(_boxed("costs", costs).reveal())
            if values.shape != sums.shape:
                raise DomainError("IndividualFilter needs one cost for each record")
            # NaN and negative costs prove nothing: infinite, so that the record stays out
            return sum_up(sums, np.where(values >= 0, values, np.inf))

        return state.sums.map(added)


def _boxed(what: str, value: Secret[T]) -> Secret[T]:
    if not isinstance(value, Secret):
        raise DomainError(f"{what} depend on the records, so they come as Secret(array)")
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
        error = (a - (total - back)) + (b - back)  # a + b = total + error, exactly
        return np.where(error > 0, np.nextafter(total, np.inf), total)
