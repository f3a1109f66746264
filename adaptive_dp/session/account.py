"""What a session may spend and has spent, as a whole and in each of its parts."""

from __future__ import annotations

from accountants.filters.choose import filter_for
from accountants.filters.sums import SumFilter
from accountants.odometers import Odometer
from accountants.rounding import down
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.currency import currency_for
from adaptive_dp.session.spends import Costs, Spends, odometer_for

Sums = tuple[Spends[SumFilter], Spends[Odometer]]
"""Spends as the filter adds them up, and as the odometer does."""


class Account:
    """The sums of a session, and those of its parts under limits of their own.

    Parameters
    ----------
    budget
        Of the whole session.
    accountant
        In which currency costs add up.
    """

    def __init__(self, budget: Budget, accountant: str) -> None:
        self.budget, self.accountant = budget, accountant
        self.currency = currency_for(accountant, budget)
        self.spends = Spends(self.currency.filter)
        self.read_off = Spends(self.currency.odometer)
        self.shares: dict[str, float] = {}
        self._parts: dict[str, Sums] = {}
        self._history: list[tuple[str, Costs]] = []

    def sums(self, part: str) -> Sums:
        """Return the sums of a part, or of the whole session ('')."""
        return self._parts[part] if part else (self.spends, self.read_off)

    def check(self, costs: Costs, part: str) -> None:
        """Refuse costs that do not fit, into the session's budget or that of a part around.

        Raises
        ------
        accountants.BudgetError
            If they do not fit.
        """
        if not self.currency.refuses:
            return
        for name in _around(part):
            self._parts[name][0].check(costs)
        self.spends.check(costs)

    def add(self, costs: Costs, part: str) -> None:
        """Pay costs, here and in the parts around that are open."""
        inner = [self._parts[name] for name in _around(part) if name in self._parts]
        for spends, read_off in ((self.spends, self.read_off), *inner):
            spends.add(costs)
            read_off.add(costs)
        self._history.append((part, costs))

    def share(self, around: str, value: float) -> float:
        """Return a share of a part's share, of the session's budget."""
        if not around:
            return value
        outer = self.shares[around]
        return outer if value == 1 else down(outer * value, 4)

    def open(self, part: str, share: float) -> None:
        """Open a part, with what was spent in it before."""
        limits = [self.budget.epsilon, self.budget.delta, self.budget.failures]
        if share != 1:
            limits = [max(0.0, down(share * limit, 4)) for limit in limits]
        spends = Spends(filter_for(self.accountant, *limits))
        read_off = Spends(odometer_for(self.accountant, limits[1], limits[2]))
        for of, costs in self._history:
            if part in _around(of):
                spends.add(costs)
                read_off.add(costs)
        # last: whoever is interrupted before it has opened nothing
        self._parts[part] = (spends, read_off)
        self.shares[part] = share


def _around(part: str) -> list[str]:
    """Return a part and those around it, outermost first."""
    names = part.split("/") if part else []
    return ["/".join(names[: i + 1]) for i in range(len(names))]
