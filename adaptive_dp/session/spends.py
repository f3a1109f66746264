"""What has been spent so far, wherever a unit may lie.

Each spend touches the units of a *place*: all of them, or those in one part of a partition (of a
part of a partition, and so on). A *world* is a choice of one part in each partition; a unit in a
world has lost what was spent in the places that lie in it. A filter must keep its guarantee in
every world: it is a theorem about one pair of neighbours, and in which world their difference lies
depends on neither the outcomes nor the choices of the analyst.

Sums are kept in a tree of places. What a unit below a partition can have lost is at most, in each
currency by itself, the largest sum of its parts; exact where there is one currency, else looser. A
spend changes the sums on its own way down alone, so that a session takes time linear in its spends.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Generic, TypeVar

from accountants import PrivacyLoss
from accountants.filters.sums import Spent, SumFilter
from accountants.odometers import (
    BestOdometer,
    ConcentratedOdometer,
    GaussianOdometer,
    Odometer,
    PureOdometer,
    RenyiOdometer,
)
from adaptive_dp.graph.compile import Where

K = TypeVar("K", bound=SumFilter | Odometer)
Costs = tuple[tuple[Where, PrivacyLoss], ...]
"""Losses, each with the place whose units it touches."""


class _Place:
    """Sums of one place: its own spends, and the largest of each partition below it."""

    __slots__ = ("own", "parts", "tops")

    def __init__(self, zero: Spent) -> None:
        self.own = zero
        self.parts: dict[tuple[str, int], _Place] = {}
        self.tops: dict[str, Spent] = {}

    def below(self, partition: str = "") -> Spent:
        """Return the most that a unit here can have lost, in every partition but one."""
        total = self.own
        for name, top in self.tops.items():
            if name != partition:
                total = _plus(total, top)
        return total


class Spends(Generic[K]):
    """The sums of a session, in the currencies of a filter or an odometer.

    Parameters
    ----------
    keeps
        The filter, or the odometer.
    """

    def __init__(self, keeps: K) -> None:
        self.keeps = keeps
        self._root = _Place(keeps.start())

    def worst(self) -> Spent:
        """Return the largest sums of any world, in each currency by itself."""
        return self._root.below()

    def at(self, place: Where) -> Spent:
        """Return the largest sums of the worlds that a place lies in."""
        total, here = self.keeps.start(), self._root
        for step in place:
            total = _plus(total, here.below(step[0]))
            if step not in here.parts:
                return total
            here = here.parts[step]
        return _plus(total, here.below())

    def check(self, costs: Costs) -> None:
        """Refuse costs that do not fit in some world; nothing is changed in either case.

        Raises
        ------
        accountants.BudgetError
            If they do not fit.
        """
        self.after(costs, self.keeps if isinstance(self.keeps, SumFilter) else None)

    def after(self, costs: Costs, limit: SumFilter | None = None) -> Spent:
        """Return what `worst` would be after costs; refuse what does not fit into ``limit``."""
        before = [(place, self._own(place)) for place, _ in costs]
        try:
            for place, loss in costs:
                if limit is not None:
                    limit.spend(self.at(place), loss)
                self.add(((place, loss),))
            return self.worst()
        finally:
            for place, own in reversed(before):
                self._set(place, own)

    def add(self, costs: Costs) -> None:
        """Pay costs; whether they fit was asked before."""
        zero = self.keeps.start()
        for place, loss in costs:
            price = zero.add(self.keeps.prices(loss), loss.failure(), 1)
            self._set(place, _plus(self._own(place), price))

    def _own(self, place: Where) -> Spent:
        here = self._root
        for step in place:
            if step not in here.parts:
                return self.keeps.start()
            here = here.parts[step]
        return here.own

    def _set(self, place: Where, own: Spent) -> None:
        way, here = [self._root], self._root
        for step in place:
            here = here.parts.setdefault(step, _Place(self.keeps.start()))
            way.append(here)
        grown = all(new >= old for new, old in zip(own.sums, here.own.sums, strict=True))
        here.own = own
        for above, step, child in reversed(list(zip(way, place, way[1:], strict=False))):
            partition, total = step[0], child.below()
            if grown:
                above.tops[partition] = _most([above.tops.get(partition, total), total])
            else:  # a spend was taken back
                every = [p.below() for (name, _), p in above.parts.items() if name == partition]
                above.tops[partition] = _most(every)


def grown(before: Spent, after: Spent) -> Spent:
    """Return by how much sums grew."""
    sums = (b - a for a, b in zip(before.sums, after.sums, strict=True))
    return Spent(tuple(sums), after.failure - before.failure)


def _plus(a: Spent, b: Spent) -> Spent:
    return Spent(tuple(x + y for x, y in zip(a.sums, b.sums, strict=True)), a.failure + b.failure)


def _most(every: list[Spent]) -> Spent:
    sums = zip(*(spent.sums for spent in every), strict=True)
    largest: tuple[Fraction, ...] = tuple(max(column) for column in sums)
    return Spent(largest, max(spent.failure for spent in every))


_ODOMETERS: dict[str, Callable[[float, float], Odometer]] = {
    "best": lambda delta, failures: BestOdometer(delta, failures=failures),
    "basic": lambda delta, failures: PureOdometer(delta),
    "advanced": lambda delta, failures: ConcentratedOdometer(delta, failures=failures),
    "concentrated": lambda delta, failures: ConcentratedOdometer(delta, failures=failures),
    "renyi": lambda delta, failures: RenyiOdometer(delta, failures=failures),
    "gaussian": lambda delta, failures: GaussianOdometer(delta, failures=failures),
}


ACCOUNTANTS = tuple(_ODOMETERS)
"""The accountants whose currency has a filter theorem."""


def odometer_for(accountant: str, delta: float, failures: float) -> Odometer:
    """Return what reads spends in the currency of an accountant; epsilons add up at delta 0."""
    if delta <= failures:
        return PureOdometer(delta)
    return _ODOMETERS[accountant](delta, failures)
