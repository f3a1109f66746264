"""The engine of every privacy filter and odometer: exact sums of costs, held against budgets.

A *filter* decides, before a mechanism runs, whether everything admitted so far together with it
keeps one guarantee, though losses are chosen as outcomes come in (which loss to spend next, how
much of it, and when to stop). An *accounting unit* (epsilon, rho, mu squared, a Renyi divergence
at one order) is a parameter of losses whose adaptive sums are proven to compose; a filter has one
unit or more, each with its budget, and admits while every sum is within its budget, or, for a
union of filters, while some sum is. An *odometer* (`accountants.odometers`) has units without
budgets and reads a running epsilon off their sums.

Why sums are valid. Let L be the log-likelihood ratio of all outcomes, P against Q. If each
step has ``E_P[e^{(a-1) L_t} | past] <= e^{(a-1) D_t}`` with D_t known before the step, then
``exp((a-1) (L - sum D_t))`` is a supermartingale, so that ``E_P e^{(a-1) L} <= e^{(a-1) B}``
wherever ``sum D_t <= B`` on every path: what a sum of fixed divergences would give.

Failures. A loss with failure f is a coin: with probability f anything may happen. The coins
are the same under P and Q, so with failures that sum to at most F on every path,

``delta <= 1 - E_P[prod (1 - f_t) min(1, e^{eps - L})] <= F + (1 - F) delta'``,

where delta' is that of the outcomes without failures. F is set aside in advance: a filter
that reads delta' from what adaptively chosen failures leave has no such proof.

Why rationals. A budget that is compared with a rounded sum could be passed by the sum of many
roundings; sums and budgets are `fractions.Fraction`, so what is admitted is exact, and numbers
are rounded only where they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Protocol, TypeVar

from attrs import evolve, frozen

from accountants.accountant import remaining_delta
from accountants.errors import LARGEST_COUNT, BudgetError, DomainError, probability, whole
from accountants.loss import PrivacyLoss, parameters, short
from accountants.rounding import ceiling, flooring, shown

S = TypeVar("S")

BEYOND = Fraction(10) ** 400
"""The cost of a loss that no budget admits: larger than every float."""


@frozen
class EpsilonDelta:
    """The ``(epsilon, delta)``-DP that all losses which a filter admits keep together."""

    epsilon: float
    delta: float


@frozen
class Amount:
    """One number for each of a filter's accounting units, and one for the failures.

    What is spent (rounded up) or what remains (rounded down).
    """

    costs: tuple[float, ...]
    failure: float


class Filter(Protocol[S]):
    """Admits losses chosen adaptively, and keeps its guarantee.

    Examples
    --------
    >>> from accountants import Gaussian, filter_for
    >>> keeps = filter_for("gaussian", 1.0, 1e-6)
    >>> state = keeps.spend(keeps.start(), Gaussian(mu=0.1))
    >>> keeps.admits(state, Gaussian(mu=0.1), times=4), keeps.admits(state, Gaussian(mu=0.3))
    (True, False)
    >>> keeps.guarantee(1e-6).epsilon <= 1.0
    True
    """

    name: ClassVar[str]
    theorem: ClassVar[str]
    adaptive: ClassVar[bool]

    def start(self) -> S:
        """Return the state in which nothing is spent."""
        ...

    def admits(self, state: S, loss: PrivacyLoss, times: int = 1) -> bool:
        """Whether ``loss``, paid ``times`` times, fits."""
        ...

    def spend(self, state: S, loss: PrivacyLoss, times: int = 1) -> S:
        """Return the state after paying, or raise `BudgetError` and change nothing."""
        ...

    def spent(self, state: S) -> Amount:
        """Return what is spent, rounded up."""
        ...

    def remaining(self, state: S) -> Amount:
        """Return what is left, rounded down."""
        ...

    def guarantee(self, delta: float) -> EpsilonDelta:
        """Return the epsilon that all that it admits keeps at ``delta``."""
        ...


@frozen
class Spent:
    """The state of a filter or odometer: an exact sum for each accounting unit, and of failures.

    Its size does not grow with the number of spends.
    """

    sums: tuple[Fraction, ...]
    failure: Fraction = Fraction()

    def add(self, prices: tuple[Fraction, ...], failure: float, times: int) -> Spent:
        """Return the state after spending ``times`` times."""
        # exact: no rounding error, whatever the number of spends
        sums = (s + p * times for s, p in zip(self.sums, prices, strict=True))
        return Spent(tuple(sums), self.failure + Fraction(failure) * times)


def rational_cost(price: float | None) -> Fraction:
    """Return the cost as a rational; `BEYOND` where it is infinite or unknown."""
    return Fraction(price) if price is not None and math.isfinite(price) else BEYOND


class ExactSums:
    """Base of filters and odometers: the accounting units, and the sums over what was spent."""

    __slots__ = ()

    name: ClassVar[str] = ""
    theorem: ClassVar[str] = ""
    adaptive: ClassVar[bool] = True

    failures: float

    def units(self) -> tuple[str, ...]:
        """Return the name of each accounting unit."""
        raise NotImplementedError

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the loss's cost in each accounting unit, outside of its failure."""
        raise NotImplementedError

    def start(self) -> Spent:
        """Return the state in which nothing is spent."""
        return Spent((Fraction(),) * len(self.units()))

    def _after(self, state: Spent, loss: PrivacyLoss, times: int) -> Spent:
        if not isinstance(loss, PrivacyLoss):
            raise DomainError(f"{type(self).__name__} adds up privacy losses, got {loss!r}")
        count = whole("times", times, least=0)
        return state.add(self.prices(loss), loss.failure(), count)


class SumFilter(ExactSums):
    """Base of the filters: a subclass gives costs, budgets and what the budgets convert to."""

    __slots__ = ()

    every: ClassVar[bool] = True
    """Whether every sum must stay within its budget, or only some sum."""

    def budgets(self) -> tuple[Fraction, ...]:
        """Return the largest sum allowed in each accounting unit."""
        raise NotImplementedError

    def converted(self, delta: float) -> float:
        """Return the epsilon of the budgets at ``delta``, the failures aside; any real number."""
        raise NotImplementedError

    def guarantee(self, delta: float) -> EpsilonDelta:
        """Return the epsilon that all that it admits keeps at ``delta``."""
        return EpsilonDelta(self.converted(delta_beside_failures(delta, self.failures)), delta)

    def admits(self, state: Spent, loss: PrivacyLoss, times: int = 1) -> bool:
        """Whether ``loss``, spent ``times`` times, fits."""
        return self.holds(self._after(state, loss, times))

    def spend(self, state: Spent, loss: PrivacyLoss, times: int = 1) -> Spent:
        """Return the state after spending ``loss`` ``times`` times.

        Raises
        ------
        BudgetError
            If it does not fit; the state is a value and stays what it was.
        """
        after = self._after(state, loss, times)
        # the check precedes the spend: on no path does a sum pass its budget, not even once
        if not self.holds(after):
            raise _refusal(self, state, after, loss, times)
        return after

    def holds(self, state: Spent) -> bool:
        """Whether a state's sums are within the budgets: all of them, or some of a union's."""
        fits = (s <= b for s, b in zip(state.sums, self.budgets(), strict=True))
        # the failures have a budget in any case
        return state.failure <= Fraction(self.failures) and (all if self.every else any)(fits)

    def spent(self, state: Spent) -> Amount:
        """Return the sums, rounded up; infinite where a cost was beyond every budget."""
        return Amount(tuple(ceiling(s) for s in state.sums), ceiling(state.failure))

    def remaining(self, state: Spent) -> Amount:
        """Return what remains of each budget and for failures, rounded down; never below 0."""
        left = zip(self.budgets(), state.sums, strict=True)
        costs = tuple(max(0.0, flooring(b - s)) for b, s in left)
        return Amount(costs, flooring(Fraction(self.failures) - state.failure))

    def fitting(self, state: Spent, loss: PrivacyLoss) -> int:
        """Return the largest number of times that ``loss`` fits (at most 10**300)."""
        counts = []
        for sum_, price, budget in zip(state.sums, self.prices(loss), self.budgets(), strict=True):
            counts.append(_count(budget - sum_, price))
        failing = _count(Fraction(self.failures) - state.failure, Fraction(loss.failure()))
        # every sum must have room, or some; and the failures
        return max(0, min(failing, min(counts) if self.every else max(counts)))


class UnionFilter(SumFilter):
    """Base of the filters that keep one fixed (epsilon, delta) while some sum is within budget.

    Each sum has a share of delta, fixed in advance: a union bound over the sums.
    """

    __slots__ = ()

    every: ClassVar[bool] = False

    epsilon: float
    delta: float

    def guarantee(self, delta: float) -> EpsilonDelta:
        """Return epsilon at every delta from its own on."""
        kept = probability("delta", delta) >= self.delta
        return EpsilonDelta(self.epsilon if kept else math.inf, delta)


def _count(remaining: Fraction, cost: Fraction) -> int:
    """Return how often a cost fits into what remains, exactly; -1 where the budget is passed."""
    if remaining < 0:
        return -1
    return min(LARGEST_COUNT, remaining // cost) if cost else LARGEST_COUNT


def _refusal(
    filter_: SumFilter, state: Spent, after: Spent, loss: PrivacyLoss, times: int
) -> BudgetError:
    """Return the error of a spend that does not fit: what it asks for, remains, and would fit."""
    left, fitting = filter_.remaining(state), filter_.fitting(state, loss)
    asked = [ceiling(a - s) for a, s in zip(after.sums, state.sums, strict=True)]
    rows = list(zip(filter_.units(), asked, left.costs, filter_.budgets(), strict=True))
    # a union's sum without a share of delta has a negative budget, which admits nothing
    open_ = [row for row in rows if filter_.every or row[3] >= 0]
    ranked = sorted(open_ or rows, key=lambda row: row[1] / row[2] if row[2] else math.inf)
    nearest = ranked if filter_.every else ranked[:3]
    terms = [
        f"{unit} {shown(cost, upward=True)} of {shown(rest_, upward=False)} left"
        for unit, cost, rest_, _ in nearest
    ]
    if loss.failure():
        failing = shown(ceiling(after.failure - state.failure), upward=True)
        terms.append(f"failure {failing} of {shown(left.failure, upward=False)} left")
    largest = _largest(filter_, state, loss, times)
    join = ", " if filter_.every else ", or "
    often = f" {times} times" if times != 1 else ""
    fits = f"it fits {fitting} times" if fitting else "it does not fit even once" if often else ""
    if largest is not None:
        name, most = _scaled(largest)
        noise = shown(ceiling(Fraction(_scaled(loss)[1]) / Fraction(most)), upward=True)
        smaller = f"what fits is {name} {shown(most, upward=False)}, {noise} times the noise"
        fits = f"{fits}; {smaller}" if fits else smaller
    message = (
        f"not enough of the budget is left for {short(loss)}{often}"
        + (f": {fits}" if fits else "")
        + f" ({filter_.name} filter: it asks for {join.join(terms)})"
    )
    return BudgetError(message, loss, times, fitting, largest)


def _largest(filter_: SumFilter, state: Spent, loss: PrivacyLoss, times: int) -> PrivacyLoss | None:
    """Return the loss scaled down in its mu or epsilon until it fits; what is returned does."""
    name, high = _scaled(loss)
    if not name:
        return None
    low = 0.0
    for _ in range(60):
        middle = (low + high) / 2
        fits = filter_.admits(state, _evolved(loss, name, middle), times)
        low, high = (middle, high) if fits else (low, middle)
    # `low` has been tried and fits: costs grow with mu and epsilon, but that is not relied on
    return _evolved(loss, name, low) if low > 0 else None


def _scaled(loss: PrivacyLoss) -> tuple[str, float]:
    """Return the parameter of a loss that falls as noise grows; no name where there is none."""
    known = parameters(loss)
    return next(
        ((n, v) for n in ("mu", "epsilon") if isinstance(v := known.get(n), float)), ("", 0)
    )


def _evolved(loss: Any, name: str, value: float) -> PrivacyLoss:
    evolved: PrivacyLoss = evolve(loss, **{name: value})
    return evolved


def delta_beside_failures(delta: float, failures: float) -> float:
    """Return delta' with ``F + (1 - F) delta' <= delta``; negative where the failures exceed it."""
    return remaining_delta(probability("delta", delta), Fraction(failures))


def checked_failures(what: str, failures: float, delta: float) -> float:
    """Return ``failures``, or raise `DomainError` unless it is a probability up to ``delta``."""
    value = probability(f"{what}.failures", failures)
    if value > delta:
        raise DomainError(
            f"{what}.failures must be at most delta, got {failures!r} of {delta!r}; it is the "
            "part of delta that is kept for what losses fail with"
        )
    return value


def largest_budget(epsilon_of: Callable[[float], float], epsilon: float) -> float:
    """Return a budget with ``epsilon_of(budget) <= epsilon``, the largest to twelve digits.

    ``epsilon_of`` is a proven upper bound, rising; the answer has been evaluated. 0 where no
    budget above 1e-300 keeps it.
    """
    high = 1.0
    while epsilon_of(high) <= epsilon and high < 1e300:
        high *= 2
    low = high / 2
    while epsilon_of(low) > epsilon:
        low /= 2
        if low < 1e-300:
            return 0.0
    high = 2 * low
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if epsilon_of(middle) <= epsilon else (low, middle)
    return low  # evaluated: epsilon_of(low) <= epsilon, though it may not be the largest
