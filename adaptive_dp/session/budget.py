"""What a session may spend, what it has spent, and what a step would cost.

In reading order:

`Budget`
    (epsilon, delta) for everything that a session will ever release.
`AccountingUnit`
    The filter and the odometer in whose units costs add up, and the theorems behind them.
`WorldSums`
    Sums of costs in every world (every choice of one part of each partition).
`Totals`
    What was spent of one budget, as its filter and as its odometer add it up.
`Account`
    The totals of a session, and those of its parts under limits of their own.
`Remaining`
    What remains of a budget, in numbers and in words.
`StepLimit`
    What one step may cost, for which its free noise is solved.
`Forecast`
    What a step would cost, before anyone pays for it.
`Reading`
    What was spent after each step of a ledger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from fractions import Fraction
from typing import Any, Generic, TypeVar

from attrs import define, field, frozen

from accountants import PrivacyLoss
from accountants.calibration import least_noise
from accountants.errors import DomainError, InapplicableError
from accountants.filters import (
    UNPAYABLE,
    GaussianFilter,
    SpentSums,
    SumFilter,
    UnitTotals,
    filter_for,
)
from accountants.individual import IndividualFilter
from accountants.numerics import ceiling, down, flooring, kept, shown
from accountants.odometers import (
    BestOdometer,
    ConcentratedOdometer,
    GaussianOdometer,
    Odometer,
    PureOdometer,
    RenyiOdometer,
)
from adaptive_dp.graph.compile import Branch
from adaptive_dp.graph.errors import CalibrationError, DeclarationError, LedgerError
from adaptive_dp.graph.values import html_text, number

Costs = tuple[tuple[Branch, PrivacyLoss], ...]
"""Losses, each with the branch (nested parts of partitions) whose units it concerns."""

PartPath = tuple[tuple[str, float], ...]
"""A part of a session: the names and shares of the parts around it and its own, outermost first;
() for the session itself."""

StepCosts = tuple[str, Costs, PartPath]
"""A step's name, what it cost, and in which part of the session it was made."""


@frozen
class Budget:
    """(epsilon, delta) for everything that a session will ever release.

    Parameters
    ----------
    epsilon
        In nats.
    delta
        In [0, 1).
    delta_reserve
        The part of delta that is reserved for mechanisms whose loss has a delta floor (a mass of
        delta at any epsilon), such as tests; they are refused without one.

    Raises
    ------
    DeclarationError
        If one of them is out of its range.

    Examples
    --------
    >>> Budget(1.0, 1e-6)
    Budget(epsilon=1.0, delta=1e-06, delta_reserve=0.0)
    """

    epsilon: float = field(converter=number)
    delta: float = field(default=0.0, converter=number)
    delta_reserve: float = field(default=0.0, converter=number)

    def __attrs_post_init__(self) -> None:
        # infinity and NaN fail the comparisons
        if not (_is_real(self.epsilon) and 0 < self.epsilon < 1e300):
            raise DeclarationError(
                f"a budget's epsilon must be a positive finite number, got {self.epsilon!r}"
            )
        if not (_is_real(self.delta) and 0 <= self.delta < 1):
            raise DeclarationError(f"a budget's delta must be in [0, 1), got {self.delta!r}")
        # equal is allowed: nothing of delta is then left to convert with
        if not (_is_real(self.delta_reserve) and 0 <= self.delta_reserve <= self.delta):
            raise DeclarationError(
                f"a budget's delta_reserve is a part of its delta {self.delta!r}, got "
                f"{self.delta_reserve!r}"
            )


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# --- The accounting unit: the filter and the odometer, and their theorems ---------------------

_ODOMETERS: dict[str, Callable[[float, float], Odometer]] = {
    "best": lambda delta, delta_reserve: BestOdometer(delta, delta_reserve=delta_reserve),
    "basic": lambda delta, delta_reserve: PureOdometer(delta),
    # advanced composition is read in the unit of concentrated differential privacy, as below
    "advanced": lambda delta, delta_reserve: ConcentratedOdometer(
        delta, delta_reserve=delta_reserve
    ),
    "concentrated": lambda delta, delta_reserve: ConcentratedOdometer(
        delta, delta_reserve=delta_reserve
    ),
    "renyi": lambda delta, delta_reserve: RenyiOdometer(delta, delta_reserve=delta_reserve),
    "gaussian": lambda delta, delta_reserve: GaussianOdometer(delta, delta_reserve=delta_reserve),
}

FILTER_ACCOUNTANTS = tuple(_ODOMETERS)
"""The accountants whose unit has a filter theorem."""

INDIVIDUAL = "individual"
"""The accountant of sessions in which each record has a budget of its own."""

SESSION_ACCOUNTANTS = (*FILTER_ACCOUNTANTS, INDIVIDUAL)
"""What a session's `accountant` may be."""

NEEDING_DELTA = frozenset({"gaussian", "concentrated", INDIVIDUAL})
"""Those whose one sum converts to no epsilon at delta 0."""

ODOMETER_SHARE = 0.1
"""The share of delta, without the reserve, that the odometer has; the filter has the rest."""


@frozen
class AccountingUnit:
    """The filter and the odometer of a session, and what they promise.

    Parameters
    ----------
    budget
        Of the session.
    filter
        Computes costs of losses, and refuses what does not fit.
    odometer
        Bounds what was spent so far by an epsilon, at any time.
    theorem
        Of the claim.
    individual
        The filter of each record, under ``"individual"``; else None.

    Notes
    -----
    The session's epsilon so far is the smaller of the odometer's reading and the budget. Which of
    the two it is depends on what happened, so both must hold at once, and they share delta:
    ``(1 - e^{min(a, b) - L})_+`` is the larger of those of a and b, so at most their sum. Wherever
    the analyst stops, while all spends are within the filter's budget and their delta floors sum to
    at most F,
    ``P(S) <= E_Q[e^reading 1_S] + F + (1 - F)(delta_filter + delta_odometer)`` (own proof).

    Under ``"individual"`` the filter's sums are those of a record that contributes the most that is
    declared, to every step: public bounds of what each record has spent. They refuse nothing, since
    records leave before they exceed their budget.
    """

    budget: Budget
    filter: SumFilter
    odometer: Odometer
    theorem: str
    individual: IndividualFilter | None = None

    @property
    def refuses(self) -> bool:
        """Whether a step that does not fit is refused; else records leave it."""
        # individual budgets never refuse a step: a refusal would tell which records are exhausted
        return self.individual is None

    @property
    def reading_theorem(self) -> str:
        """The theorem of `epsilon`."""
        if not self.refuses:
            # the sums of an individual session are private, so only the filter's theorem can be
            # quoted
            return self.theorem
        return f"{self.odometer.theorem}; at most the budget: {self.theorem}"

    def promised(self) -> float:
        """Return the epsilon that the filter promises at the budget's delta."""
        return self.filter.guarantee(self.budget.delta).epsilon

    def epsilon(self, sums: SpentSums, *, within_budget: bool) -> float:
        """Return the odometer's reading; all of the budget where what is spent is private.

        Parameters
        ----------
        sums
            Of the odometer.
        within_budget
            Whether the filter admits everything that was spent; False only for a ledger or a
            certificate that does not hold.
        """
        # what records have spent is private: the reading is the budget, which depends on no data
        if not self.refuses:
            return kept(self.budget.epsilon)
        reading = self.odometer.epsilon(sums)
        # the minimum with the budget is proven only for spends within it (see Notes)
        return min(reading, kept(self.budget.epsilon)) if within_budget else reading

    def spent(self, sums: SpentSums) -> UnitTotals:
        """Return a bound of what was spent, rounded up; never above a record's budget."""
        total = self.filter.spent(sums)
        if self.refuses:
            return total
        # rounded up: a record that has spent everything must not appear to have a little left
        limits = map(ceiling, self.filter.budgets())
        return UnitTotals(tuple(map(min, total.costs, limits)), total.delta_floor)


def accounting_unit(accountant: str, budget: Budget) -> AccountingUnit:
    """Return the filter and the odometer of an accountant.

    Parameters
    ----------
    accountant
        One of `SESSION_ACCOUNTANTS`.
    budget
        Of the session, or of a part.

    Raises
    ------
    accountants.errors.InapplicableError
        If the accountant has no filter theorem, or none at this budget.
    DeclarationError
        If records are to have budgets of their own, and the budget has a delta_reserve.
    """
    delta_reserve = budget.delta_reserve
    if accountant in NEEDING_DELTA and budget.delta <= delta_reserve:
        raise InapplicableError(
            f"accountant={accountant!r} needs a delta, beside the delta_reserve, and has no finite "
            f"epsilon at delta 0; got {budget!r}: open the session with "
            f"Budget({budget.epsilon!r}, 1e-6), or for dp.Laplace() with accountant='basic'"
        )
    if accountant != INDIVIDUAL:
        # filter and odometer are two statements, and both hold at once at the sum of their deltas
        filter_delta, odometer_delta = delta_shares(accountant, budget)
        filter_ = filter_for(accountant, budget.epsilon, filter_delta, delta_reserve)
        odometer = _odometer(accountant, odometer_delta, delta_reserve)
        return AccountingUnit(budget, filter_, odometer, filter_.theorem)
    each = _individual_filter(budget)
    # the budget of one record, as a filter of the session: it only adds up public bounds
    bounds, odometer = GaussianFilter(each.mu), _odometer("gaussian", budget.delta, delta_reserve)
    return AccountingUnit(budget, bounds, odometer, each.theorem, each)


def _individual_filter(budget: Budget) -> IndividualFilter:
    """Return the filter of a session in which each record has a budget of its own.

    Raises
    ------
    DeclarationError, InapplicableError
        If the budget has a delta_reserve, or no delta.
    """
    # a Gaussian release has no delta floor, so a reserve could never be used
    if budget.delta_reserve:
        raise DeclarationError(
            f"the budget reserves {budget.delta_reserve!r} of its delta for delta floors, "
            "and no release of accountant='individual' has one; leave delta_reserve out"
        )
    return IndividualFilter.within(budget.epsilon, budget.delta)


def delta_shares(accountant: str, budget: Budget) -> tuple[float, float]:
    """Return the deltas of the filter and of the odometer, each with the reserve in it.

    They sum to delta and the reserve. Sums of epsilons need no delta: there the odometer is the
    filter's own sum, and both have all of it.
    """
    # exact rationals: rounding happens once, in `flooring`
    delta, delta_reserve = Fraction(budget.delta), Fraction(budget.delta_reserve)
    # rounded down, as the filter's share below: together they never exceed delta
    odometer_delta = flooring(delta_reserve + (delta - delta_reserve) * Fraction(ODOMETER_SHARE))
    # epsilons add up at delta 0: neither statement uses delta, and nothing has to be shared
    if accountant == "basic":
        return budget.delta, budget.delta
    if not budget.delta_reserve < odometer_delta:  # nothing is left to share
        return budget.delta, budget.delta_reserve
    # the reserve is in both shares: the same delta floors count in both statements
    return flooring(delta + delta_reserve - Fraction(odometer_delta)), odometer_delta


def _odometer(accountant: str, delta: float, delta_reserve: float) -> Odometer:
    """Return the odometer of an accountant; at delta 0 epsilons add up."""
    # no delta is left for a conversion, so only sums of pure epsilon have a bound
    if delta <= delta_reserve:
        return PureOdometer(delta)
    return _ODOMETERS[accountant](delta, delta_reserve)


# --- Sums of costs, in every world ------------------------------------------------------------

Meter = TypeVar("Meter", bound=SumFilter | Odometer)


class WorldSums(Generic[Meter]):
    """The sums of what was spent, in the units of a filter or an odometer, in every world.

    Each spend touches the units of a *place*: all of them, or those in one part of a partition (of
    a part of a partition, and so on). A *world* (a branch of parallel composition) is a choice of
    one part in each partition; the loss of a unit in a world is what was spent in the places that
    lie in it. A filter must hold in every world: it is a theorem about one pair of neighbours, and
    in which world their difference lies depends on neither the outcomes nor the choices of the
    analyst.

    Parameters
    ----------
    meter
        The filter, or the odometer.

    Notes
    -----
    Sums are stored in a tree of places. The loss of a unit below a partition is at most, in each
    accounting unit by itself, the largest sum of its parts; exact where there is one accounting
    unit, else an upper bound. A spend changes only the sums on its path from the root, so that a
    session takes time linear in its spends.
    """

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._root = _Place(meter.start())

    def maximum(self) -> SpentSums:
        """Return the largest sums of any world, in each accounting unit by itself."""
        return self._root.below()

    def maximum_at(self, place: Branch) -> SpentSums:
        """Return the largest sums of the worlds that a place lies in."""
        # own spends of each place on the path, plus the maximum of every partition beside it
        total, here = self.meter.start(), self._root
        for step in place:
            # a unit of this part is in no other part of the same partition, but may be anywhere
            # in all other partitions
            total = _plus(total, here.below(step[0]))
            if step not in here.parts:
                # nothing was spent deeper, so the total so far is the maximum
                return total
            here = here.parts[step]
        # at the place itself all partitions below are open: the unit may be in the worst part of
        # each
        return _plus(total, here.below())

    def check(self, costs: Costs) -> None:
        """Refuse costs that do not fit in some world; nothing is changed in either case.

        Raises
        ------
        accountants.BudgetError
            If they do not fit.
        """
        self.maximum_after(costs, self.meter if isinstance(self.meter, SumFilter) else None)

    def maximum_after(self, costs: Costs, limit: SumFilter | None = None) -> SpentSums:
        """Return what `maximum` would be after costs; refuse what does not fit into ``limit``."""
        # the spends are tried in place and taken back: copying the tree would cost more
        before = [(place, self._own(place)) for place, _ in costs]
        try:
            for place, loss in costs:
                if limit is not None:
                    # this loss changes only the worlds that its place lies in, so no other world
                    # can exceed the limit now
                    limit.spend(self.maximum_at(place), loss)
                # added at once, so that the next cost of this step is tested with this one paid
                self.add(((place, loss),))
            return self.maximum()
        finally:
            # in reverse: a place that is named twice gets back what it had first
            for place, own in reversed(before):
                self._set(place, own)

    def add(self, costs: Costs) -> None:
        """Pay costs, without a test whether they fit."""
        zero = self.meter.start()
        for place, loss in costs:
            # delta floors add up like costs, but in a sum of their own
            cost = zero.add(self.meter.costs(loss), loss.delta_floor(), 1)
            self._set(place, _plus(self._own(place), cost))

    def _own(self, place: Branch) -> SpentSums:
        here = self._root
        for step in place:
            if step not in here.parts:
                return self.meter.start()
            here = here.parts[step]
        return here.own

    def _set(self, place: Branch, own: SpentSums) -> None:
        path, here = [self._root], self._root
        for step in place:
            here = here.parts.setdefault(step, _Place(self.meter.start()))
            path.append(here)
        # the common case: sums only grow, and each maximum is updated without a look at the
        # siblings
        larger = all(new >= old for new, old in zip(own.sums, here.own.sums, strict=True))
        here.own = own
        # from the leaf upwards: the maximum of a place needs those of its children first
        for above, step, child in reversed(list(zip(path, place, path[1:], strict=False))):
            partition, total = step[0], child.below()
            if larger:
                above.maxima[partition] = _maximum([above.maxima.get(partition, total), total])
            else:  # a spend was taken back: another part may now have the largest sum
                every = [p.below() for (name, _), p in above.parts.items() if name == partition]
                above.maxima[partition] = _maximum(every)


class _Place:
    """Sums of one place: its own spends, and the largest of each partition below it."""

    # Invariant: `maxima[partition]` is the coordinatewise maximum of `below()` over its parts.
    __slots__ = ("maxima", "own", "parts")

    def __init__(self, zero: SpentSums) -> None:
        self.own = zero
        self.parts: dict[tuple[str, int], _Place] = {}
        self.maxima: dict[str, SpentSums] = {}

    def below(self, without: str = "") -> SpentSums:
        """Return the largest loss of a unit here, over all partitions below but one."""
        total = self.own
        for partition, largest in self.maxima.items():
            if partition != without:
                total = _plus(total, largest)
        return total


def _plus(a: SpentSums, b: SpentSums) -> SpentSums:
    # exact rationals: the order in which spends are added cannot change a total
    return SpentSums(
        tuple(x + y for x, y in zip(a.sums, b.sums, strict=True)), a.delta_floor + b.delta_floor
    )


def _maximum(every: list[SpentSums]) -> SpentSums:
    # each accounting unit by itself: an upper bound, which no single world may attain in all
    sums = zip(*(spent.sums for spent in every), strict=True)
    largest: tuple[Fraction, ...] = tuple(max(column) for column in sums)
    return SpentSums(largest, max(spent.delta_floor for spent in every))


def difference(after: SpentSums, before: SpentSums) -> SpentSums:
    """Return how much sums have grown."""
    sums = (b - a for a, b in zip(before.sums, after.sums, strict=True))
    return SpentSums(tuple(sums), after.delta_floor - before.delta_floor)


# --- Totals of a session and of its parts -----------------------------------------------------


@define(eq=False)
class Totals:
    """What was spent of one budget, as its filter adds it up, and as its odometer does.

    Parameters
    ----------
    unit
        Of the budget.
    filter_sums, odometer_sums
        The sums.
    within_budget
        Whether the filter would have admitted all that was spent. Sessions spend nothing else, but
        a reader of a ledger adds up whatever is written there.
    """

    unit: AccountingUnit
    filter_sums: WorldSums[SumFilter]
    odometer_sums: WorldSums[Odometer]
    within_budget: bool = True

    @classmethod
    def of(cls, unit: AccountingUnit) -> Totals:
        """Return totals of nothing."""
        return cls(unit, WorldSums(unit.filter), WorldSums(unit.odometer))

    def add(self, costs: Costs) -> None:
        """Pay costs."""
        for cost in costs:
            # one after the other: each is tested where it was spent, as the filter would have
            # tested it
            self.filter_sums.add((cost,))
            holds = self.unit.filter.within_budget(self.filter_sums.maximum_at(cost[0]))
            # once False it stays False: the filter's theorem needs spends within the budget at
            # every step, not only at the last
            self.within_budget = self.within_budget and holds
        self.odometer_sums.add(costs)

    def spent(self) -> UnitTotals:
        """Return what was spent, rounded up."""
        # an upper bound of what was spent: the maximum over worlds
        return self.unit.spent(self.filter_sums.maximum())

    def remaining(self) -> UnitTotals:
        """Return what remains, rounded down."""
        return self.unit.filter.remaining(self.filter_sums.maximum())

    def epsilon(self, more: Costs = ()) -> float:
        """Return the odometer's reading, as it would be after costs that fit."""
        # no limit is given: the odometer reads whatever was spent, within the budget or not
        after = self.odometer_sums.maximum_after(more)
        return self.unit.epsilon(after, within_budget=self.within_budget)

    def spent_share(self) -> float:
        """Return the share of the budget that is spent, rounded up."""
        # rounded up: the share spent may only be too large
        return ceiling(spent_share(self.unit.filter, self.filter_sums.maximum()))

    def remaining_share(self) -> float:
        """Return the share of the budget that remains, rounded down; in [0, 1]."""
        share = spent_share(self.unit.filter, self.filter_sums.maximum())
        # a share above 1 (a ledger that was overspent) leaves nothing
        return flooring(max(Fraction(), 1 - share))


def spent_share(limit: SumFilter, spent: SpentSums) -> Fraction:
    """Return the share of a filter's budget that is spent, exact; above 1 where it is exceeded.

    Where a filter needs one of its sums to be within its budget, that is the smallest of their
    shares; where it needs all, the largest. A sum whose budget is 0 counts as spent from the start.
    Delta floors have a budget of their own, the reserve: where its share is larger, that one
    counts, though steps without a delta floor may still fit.
    """
    pairs = zip(spent.sums, limit.budgets(), strict=True)
    # a budget of 0 is spent from the start, and exceeded by any spend at all
    shares = [s / b if b > 0 else Fraction(1) if s <= b else UNPAYABLE for s, b in pairs]
    # a filter that needs every unit stops when the first is spent; the others at the last
    share = max(shares) if limit.needs_every_unit else min(shares)
    delta_reserve = Fraction(limit.delta_reserve)
    if delta_reserve > 0:
        # delta floors have a budget of their own, and stop the session like the costs do
        return max(share, spent.delta_floor / delta_reserve)
    # without a reserve, any delta floor at all exceeds the budget
    return share if spent.delta_floor == 0 else UNPAYABLE


class Account:
    """The totals of a session, and those of its parts under limits of their own.

    Parameters
    ----------
    budget
        Of the session.
    accountant
        In which unit costs add up.

    Notes
    -----
    A part's share is written in every spend that was made in it. So every reader of a ledger has
    the limits of all its parts, and can recompute whether they hold. Before the first spend in a
    part there is nothing to limit, and nothing is written: sessions may have opened it with
    different shares. The first spend, in its transaction, settles which one holds; a session that
    opened it with another is refused.
    """

    def __init__(self, budget: Budget, accountant: str) -> None:
        self.budget, self.accountant = budget, accountant
        self.unit = accounting_unit(accountant, budget)
        self.session_totals = Totals.of(self.unit)
        # `settled`: shares that a spend in the ledger fixed; `_shares`: those that are open here
        self.settled: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._parts: dict[str, Totals] = {}

    def totals(self, part: PartPath) -> Totals:
        """Return the totals of a part, or of the session, whose path is ()."""
        self.check_shares(part)
        # a part is named by its full path, so that the last name alone identifies it
        return self._parts[part[-1][0]] if part else self.session_totals

    def part_totals(self, name: str) -> Totals:
        """Return the totals of a part by its name."""
        return self._parts[name]

    def check(self, costs: Costs, part: PartPath) -> None:
        """Refuse costs that do not fit, into the session's budget or that of a part around.

        Raises
        ------
        accountants.BudgetError
            If they do not fit.
        DeclarationError
            If another session was the first to spend in the part, and gave it another share.
        """
        self.check_shares(part)
        # individual budgets refuse no step: records leave it instead
        if not self.unit.refuses:
            return
        for _, sums in self.limits(part):
            sums.check(costs)

    def limits(self, part: PartPath) -> Iterator[tuple[str, WorldSums[SumFilter]]]:
        """Yield what limits a spend: the parts it is in by their names, and the session by ''."""
        yield from ((name, self._parts[name].filter_sums) for name, _ in part)
        yield "", self.session_totals.filter_sums

    def add(self, costs: Costs, part: PartPath) -> None:
        """Pay costs, in the session and in the parts that the ledger says they are in."""
        self.settle(part)
        # a part's sums are of its own spends; the session's sums are of all
        for totals in (self.session_totals, *(self._parts[name] for name, _ in part)):
            totals.add(costs)

    def settle(self, part: PartPath) -> None:
        """Take over the shares that a spend in the ledger gives.

        Raises
        ------
        LedgerError
            If a spend before it gave others.
        """
        # all shares are checked before any is taken over: an error leaves the account unchanged
        for name, share in part:
            before = self.settled.get(name, share)
            if before != share:
                raise LedgerError(
                    f"the ledger cannot be used: a spend gives the part {name!r} {share!r} of the "
                    f"budget, and one before it {before!r}"
                )
        for name, share in part:
            # this session may have opened the part with another share: nothing was spent in it or
            # in its own parts, so they are replaced
            if self._shares.get(name) != share:
                for inner in [n for n in self._shares if n.startswith(f"{name}/")]:
                    del self._shares[inner]
                self._open_limits(name, share)
            self.settled[name] = share

    def check_shares(self, part: PartPath) -> None:
        """Refuse a part with another share than the ledger, or this session, gives it."""
        for name, share in part:
            earlier = self._shares[name]
            if earlier != share:
                raise DeclarationError(
                    f"the part {name!r} has {earlier!r} of the session's budget, not {share!r}; a "
                    "part's share stays the same: open it with that, or choose another name"
                )

    def open_part(self, around: PartPath, name: str, share: float) -> PartPath:
        """Open a part with a share of the one around it, or refuse another share than it has."""
        self.check_shares(around)
        outer_name, outer = around[-1] if around else ("", 1.0)
        full = f"{outer_name}/{name}" if around else name
        # of the session's budget. The product is rounded down: a part of a part never has more than
        # its share of the share. Where a factor is 1 it is exact: rounding would lose a little.
        total = outer if share == 1 else share if not around else down(outer * share, 4)
        if not total > 0:
            raise DeclarationError(f"the part {full!r} has too small a share, {total!r}")
        if full not in self._shares:
            self._open_limits(full, total)
        # the share that an earlier call or the ledger gave the part holds; another is refused
        part = (*around, (full, total))
        self.check_shares(part)
        return part

    def _open_limits(self, name: str, share: float) -> None:
        """Set the limits of a part in which nothing was spent."""
        limits = [self.budget.epsilon, self.budget.delta, self.budget.delta_reserve]
        if share != 1:
            # rounded down: the limits of a part never exceed its share of the session's
            limits = [max(0.0, down(share * limit, 4)) for limit in limits]
        # a part has the same accountant, so its sums are in the same accounting unit
        totals = Totals.of(accounting_unit(self.accountant, Budget(*limits)))
        # The share comes last: `_shares` says which parts are open, and an interrupt before this
        # line leaves none that has no totals.
        self._parts[name] = totals
        self._shares[name] = share


# --- What remains, in words --------------------------------------------------------------------


@frozen(eq=False)
class Remaining(UnitTotals):
    """What remains of a budget: a number for each accounting unit, and `str` says it in words.

    Parameters
    ----------
    words
        What share is left, and how many more steps like the last one fit at least.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=8)), name="people")
    ...     print(session.remaining)
    left 87.5%: at least 7 more steps like 'people'
    """

    words: str = ""

    def __eq__(self, other: object) -> bool:
        # the numbers say what remains, and the words only say it again
        if not isinstance(other, UnitTotals):
            return NotImplemented
        return (self.costs, self.delta_floor) == (other.costs, other.delta_floor)

    def __hash__(self) -> int:
        return hash((self.costs, self.delta_floor))

    def __str__(self) -> str:
        return self.words


MANY = 1_000_000
"""Of more steps than this nobody asks how many exactly."""


def remaining_of(account: Account, part: PartPath, last: StepCosts | None) -> Remaining:
    """Return what remains of a session's budget, or a part's, and say it in words.

    Parameters
    ----------
    account
        Of the session.
    part
        Whose budget; () for the session's.
    last
        The last step that was paid there; None before the first.
    """
    totals = account.totals(part)
    left = totals.remaining()
    return Remaining(left.costs, left.delta_floor, _left_in_words(account, totals, last))


def _left_in_words(account: Account, totals: Totals, last: StepCosts | None) -> str:
    if not account.unit.refuses:
        return "what each record has left is private"
    share = totals.remaining_share()
    if not totals.within_budget or share == 0:
        return "left 0%: nothing more fits"
    left = f"left {shown(100 * share, upward=False, digits=3)}%"
    # of free steps, such as a round of a training, the budget does not say how many there may be
    if last is None or all(loss.pure() == 0 for _, loss in last[1]):
        return left
    name, costs, part = last
    more = min(_more_such(sums, costs) for _, sums in account.limits(part))
    such = f"like {name!r}" + (f" in the part {part[-1][0]!r}" if part else "")
    if more < 1:
        return f"{left}: not enough for another step {such}, and enough for a smaller one"
    return f"{left}: at least {min(more, MANY):,} more step{'s' * (more > 1)} {such}"


def _more_such(sums: WorldSums[SumFilter], costs: Costs) -> int:
    """Return how often costs fit at least."""
    limit, before, alone = sums.meter, sums.maximum(), WorldSums(sums.meter)
    alone.add(costs)
    # Each world has spent at most `before`, and pays at most `each` for every repetition, in each
    # accounting unit by itself: so what is within the budget by these sums is in every world.
    each = alone.maximum()
    counts = [
        _times(budget - spent, cost)
        for budget, spent, cost in zip(limit.budgets(), before.sums, each.sums, strict=True)
    ]
    floors = _times(Fraction(limit.delta_reserve) - before.delta_floor, each.delta_floor)
    return min(floors, min(counts) if limit.needs_every_unit else max(counts))


def _times(left: Fraction, cost: Fraction) -> int:
    if left < 0:
        return 0
    return MANY + 1 if cost == 0 else min(MANY + 1, left // cost)


# --- What one step may cost: its free noise is solved for it -----------------------------------


@frozen
class StepLimit:
    """What one step may cost: an (epsilon, delta), or a share of the budget; nothing for no limit.

    Parameters
    ----------
    epsilon, delta
        As `Session.run` takes them. A delta of None is in proportion to epsilon.
    share
        In (0, 1].

    Raises
    ------
    DeclarationError
        If one of them is out of its range, or they do not go together.

    Examples
    --------
    >>> StepLimit(share=0.1)
    StepLimit(epsilon=None, delta=None, share=0.1)
    """

    epsilon: float | None = field(default=None, converter=number)
    delta: float | None = field(default=None, converter=number)
    share: float | None = field(default=None, converter=number)

    def __attrs_post_init__(self) -> None:
        if self.epsilon is not None and self.share is not None:
            raise DeclarationError(
                f"a step has epsilon={self.epsilon!r} and share={self.share!r}; give one of them: "
                "what the step may cost, or which share of the whole budget"
            )
        if self.delta is not None and self.epsilon is None:
            raise DeclarationError(
                f"a step has delta={self.delta!r} and no epsilon; give both, or a share of the "
                "budget"
            )
        if self.epsilon is not None and not (_is_real(self.epsilon) and 0 < self.epsilon < 1e300):
            raise DeclarationError(
                f"a step's epsilon must be a positive finite number, got {self.epsilon!r}"
            )
        if self.delta is not None and not (_is_real(self.delta) and 0 <= self.delta < 1):
            raise DeclarationError(f"a step's delta must be in [0, 1), got {self.delta!r}")
        if self.share is not None and not (_is_real(self.share) and 0 < self.share <= 1):
            raise DeclarationError(f"a step's share must be a number in (0, 1], got {self.share!r}")

    @property
    def is_set(self) -> bool:
        """Whether there is a limit."""
        return self.epsilon is not None or self.share is not None

    def __str__(self) -> str:
        if self.share is not None:
            return f"share={self.share:g}"
        more = "" if self.delta is None else f", delta={self.delta:g}"
        return "" if self.epsilon is None else f"epsilon={self.epsilon:g}{more}"

    def check(self, free: Collection[str], earlier: Collection[StepLimit]) -> None:
        """Refuse free noise without a limit, and a limit where no noise is free.

        Parameters
        ----------
        free
            Names of the step's free parameters.
        earlier
            For what earlier steps have solved noise that this step reads. The same step asked once
            more has none that is free, and the same limit.

        Raises
        ------
        DeclarationError
            With what to write instead.
        """
        if free and not self.is_set:
            raise DeclarationError(
                f"parameters are still free: {', '.join(sorted(free))}; say what the step may cost "
                "with run(..., epsilon=0.1) or run(..., share=0.1), or give them values, such as "
                "dp.Laplace(scale=5)"
            )
        if free or not self.is_set or set(earlier) == {self}:
            return
        if earlier:
            before = " and ".join(sorted(map(str, earlier)))
            raise DeclarationError(
                f"an earlier step has solved its noise for {before}, and now it is asked for "
                f"{self}; leave that out to read the recorded value, or declare the query again "
                "for another release"
            )
        raise DeclarationError(
            f"nothing is free to solve for {self}; leave it out, or leave the noise free, as in "
            ".release(dp.Laplace())"
        )

    def multiple(
        self, costs_at: Callable[[float], Costs], account: Account, part: PartPath
    ) -> float:
        """Return the least multiple of the weights of free noise whose costs are within the limit.

        Parameters
        ----------
        costs_at
            What the step costs at a multiple.
        account
            Of the session.
        part
            Which pays.

        Raises
        ------
        CalibrationError, InapplicableError
            If no multiple is.
        """
        limit, share = self._within(account, part)

        def spent(multiple: float) -> float:
            try:
                # as the filter counts them alone, in every world; rounded up: at 1 the exact share
                # is within the limit
                sums = WorldSums(limit).maximum_after(costs_at(multiple))
            except InapplicableError:
                return math.inf
            return ceiling(spent_share(limit, self._counted(limit, sums)) / share)

        try:
            return least_noise(spent, 1.0)
        except DomainError:
            costs = costs_at(1.0)
            check_price(costs, account)
            if self.delta == 0 and any(loss.pure() is None for _, loss in costs):
                raise CalibrationError(
                    f"no noise meets {self}: Gaussian noise has no finite epsilon at delta 0, and "
                    "needs a delta above 0; leave delta= out for a part of the budget's"
                ) from None
            raise CalibrationError(
                f"no noise meets {self}: what the step releases with fixed noise, or with a delta "
                "floor, costs more already; free more of it, or ask for more"
            ) from None

    def reserve(self, account: Account, part: PartPath) -> float:
        """Return what the step may spend of the budget's delta reserve, rounded down."""
        limit, share = self._within(account, part)
        return flooring(Fraction(limit.delta_reserve) * share)

    def _counted(self, limit: SumFilter, sums: SpentSums) -> SpentSums:
        """Return the sums of a step in which it is held against its limit."""
        names = limit.accounting_units.names
        if self.share is None or limit.needs_every_unit or "epsilon" not in names:
            return sums
        # Where any of several sums may last, shares add up only if steps are measured in the same
        # one: for all that have a pure epsilon it is the sum of epsilons, however small they are.
        epsilons = sums.sums[names.index("epsilon")]
        if epsilons >= UNPAYABLE:
            return sums
        pure = (epsilons if name == "epsilon" else UNPAYABLE for name in names)
        return SpentSums(tuple(pure), sums.delta_floor)

    def _within(self, account: Account, part: PartPath) -> tuple[SumFilter, Fraction]:
        """Return a filter and the share of its budget that the step may spend."""
        unit = account.totals(part).unit
        if self.share is not None:
            return unit.filter, _decimal(self.share)
        assert self.epsilon is not None
        budget, asked = unit.budget, _decimal(self.epsilon)
        ratio = min(Fraction(1), asked / Fraction(budget.epsilon))
        # all are rounded down: steps whose epsilons sum to the budget's fit into it
        delta = flooring(ratio * Fraction(budget.delta)) if self.delta is None else self.delta
        # the reserve is in proportion to delta, of which it is a part
        part_of = min(Fraction(1), Fraction(delta) / Fraction(budget.delta or 1))
        reserve = flooring(part_of * Fraction(budget.delta_reserve))
        alone = Budget(max(flooring(asked), 5e-324), delta, min(reserve, delta))
        return accounting_unit(account.accountant, alone).filter, Fraction(1)


def _decimal(value: float) -> Fraction:
    """Return the decimal number that a float is written as: ten times 0.1 is 1."""
    return Fraction(repr(float(value)))


# --- Forecasts and readings -------------------------------------------------------------------


@frozen
class Forecast:
    """What a step would cost and leave; nothing was spent to find out.

    Parameters
    ----------
    fits
        Whether it would be admitted.
    already_paid
        Whether it costs nothing: its value was released already, or its spend is recorded by a step
        of this session that was interrupted and can continue.
    cost
        By how much the session's sums would grow, in the filter's accounting units.
    remaining
        What would remain of them; what remains now, where it does not fit.
    epsilon
        What the odometer would read; what it reads now, where it does not fit.
    refusal
        Why it does not fit, with what would; empty where it does.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> with dp.Session(budget=dp.Budget(1.0), people={"age": [30.0, 40.0]}) as session:
    ...     fine = session.what_if(people.count().release(dp.Laplace(scale=4)))
    ...     large = session.what_if(people.count().release(dp.Laplace(scale=0.5)))
    >>> fine.fits, round(fine.remaining.costs[0], 6)
    (True, 0.75)
    >>> print(fine)
    fits; the session's epsilon would then read 0.25
    >>> print(large)
    does not fit: not enough of the budget is left for Laplace(epsilon=2): what fits is epsilon 1,
    2 times the noise (best filter: it asks for epsilon 2 of 1 left)
    """

    fits: bool
    already_paid: bool
    cost: UnitTotals
    remaining: UnitTotals
    epsilon: float
    refusal: str = ""

    def __str__(self) -> str:
        if not self.fits:
            return f"does not fit: {self.refusal}"
        if self.already_paid:
            return "recorded already, at no cost"
        return f"fits; the session's epsilon would then read {shown(self.epsilon, upward=True)}"

    def _repr_html_(self) -> str:
        return html_text(self)


def check_price(costs: Costs, account: Account) -> None:
    """Refuse a loss that has no finite cost in the accounting unit, so that no budget could pay it.

    Raises
    ------
    InapplicableError
        With the accountants under which the loss has one.
    """
    budget, limit = account.budget, account.unit.filter
    # whether it fits is for the filter to decide, in the ledger's transaction
    for _, loss in costs:
        if _has_price(limit, loss):
            continue
        pure = loss.pure()
        if budget.delta <= budget.delta_reserve and (pure is None or math.isinf(pure)):
            raise InapplicableError(
                f"{loss!r} has no pure epsilon, and the session's budget has no delta for it: "
                f"Gaussian noise needs one, as in Budget({budget.epsilon!r}, 1e-6); dp.Laplace() "
                "needs none"
            )
        # suggested only if the loss has a finite cost under that accountant and this very budget
        others = [name for name in FILTER_ACCOUNTANTS if _is_affordable(name, budget, loss)]
        remedy = (
            f"open the session with accountant={' or '.join(map(repr, others))}"
            if others
            else "no accountant that has a filter theorem gives it one: choose another mechanism"
        )
        raise InapplicableError(
            f"{loss!r} has no finite price under the accountant {account.accountant!r}, so that no "
            f"budget could pay it; {remedy}"
        )
    # delta floors are paid out of the reserve alone
    with_floor = [loss for _, loss in costs if loss.delta_floor()]
    if with_floor and not limit.delta_reserve:
        raise InapplicableError(
            f"{with_floor[0]!r} has a delta floor, and the budget reserves no delta for that; open "
            f"the session with Budget({budget.epsilon!r}, {budget.delta!r}, delta_reserve=...)"
        )


def _has_price(limit: SumFilter, loss: PrivacyLoss) -> bool:
    try:
        # no budget admits a cost of UNPAYABLE or more, and one of 0 (of a sum that has no share of
        # delta) no cost at all
        pairs = zip(limit.costs(loss), limit.budgets(), strict=True)
        finite = [cost < UNPAYABLE and (budget > 0 or cost <= budget) for cost, budget in pairs]
    except InapplicableError:
        return False
    # where one unit within its budget is enough, one finite cost is
    return all(finite) if limit.needs_every_unit else any(finite)


def _is_affordable(name: str, budget: Budget, loss: PrivacyLoss) -> bool:
    try:
        return _has_price(
            filter_for(name, budget.epsilon, budget.delta, budget.delta_reserve), loss
        )
    except InapplicableError:
        return False


@frozen
class Reading:
    """What was spent after a step.

    Parameters
    ----------
    step
        Its name, or ``step k``.
    share
        Of the filter's budget, in the accounting unit that limits or of the delta_reserve,
        rounded up; above 1 where a ledger has exceeded it.
    epsilon
        What the odometer reads at the budget's delta, in nats; never above the budget's.
    """

    step: str
    share: float
    epsilon: float


def readings(budget: Budget, accountant: str, steps: Iterable[StepCosts]) -> Iterator[Reading]:
    """Yield what was spent after each of some steps, in order."""
    account = Account(budget, accountant)
    for name, costs, part in steps:
        # added without a check: the readings are of what was spent, whether it fitted or not
        account.add(costs, part)
        share = account.session_totals.spent_share()
        if not account.unit.refuses:  # a record spends no more than its budget
            share = min(share, 1.0)
        yield Reading(name, share, float(account.session_totals.epsilon()))
