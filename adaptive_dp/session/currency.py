"""In what a session counts, and by which theorems."""

from __future__ import annotations

from attrs import frozen

from accountants.filters.choose import filter_for
from accountants.filters.gaussian import GaussianFilter
from accountants.filters.individual import IndividualFilter
from accountants.filters.sums import Amount, Spent, SumFilter
from accountants.odometers import Odometer
from accountants.rounding import ceiling
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.individual import INDIVIDUAL, individual_filter
from adaptive_dp.session.spends import ACCOUNTANTS, Spends, odometer_for

NAMES = (*ACCOUNTANTS, INDIVIDUAL)
"""What a session's `accountant` may be."""


@frozen
class Currency:
    """The filter and the odometer of a session, and what they promise.

    Under ``"individual"`` the filter's sums are those of a record that contributes the most that is
    declared, to every step: public bounds of what each record has spent. They refuse nothing, since
    records leave before they pass their budget.

    Parameters
    ----------
    budget
        Of the session.
    filter
        Prices losses, and refuses what does not fit.
    odometer
        Reads what was spent.
    theorem
        Of the claim.
    individual
        The filter of each record, under ``"individual"``.
    """

    budget: Budget
    filter: SumFilter
    odometer: Odometer
    theorem: str
    individual: IndividualFilter | None = None

    @property
    def refuses(self) -> bool:
        """Whether a budget refuses steps; else records leave them."""
        return self.individual is None

    @property
    def reading_theorem(self) -> str:
        """The theorem of `epsilon`."""
        return self.odometer.theorem if self.refuses else self.theorem

    def promised(self) -> float:
        """Return the epsilon that the filter promises at the budget's delta."""
        return self.filter.guarantee(self.budget.delta).epsilon

    def epsilon(self, read_off: Spends[Odometer]) -> float:
        """Return the reading of a session or a part; the budget where what is spent is private."""
        return read_off.keeps.epsilon(read_off.worst()) if self.refuses else self.budget.epsilon

    def spent(self, sums: Spent) -> Amount:
        """Return a bound of what was spent, rounded up; never above a record's budget."""
        amount = self.filter.spent(sums)
        if self.refuses:
            return amount
        most = map(ceiling, self.filter.budgets())
        return Amount(tuple(map(min, amount.costs, most)), amount.failure)


def currency_for(accountant: str, budget: Budget) -> Currency:
    """Return what a session counts in, by its accountant's name."""
    limits = budget.epsilon, budget.delta, budget.failures
    if accountant != INDIVIDUAL:
        found = filter_for(accountant, *limits)
        return Currency(budget, found, odometer_for(accountant, *limits[1:]), found.theorem)
    each = individual_filter(budget)
    prices, odometer = GaussianFilter(each.mu), odometer_for("gaussian", *limits[1:])
    return Currency(budget, prices, odometer, each.theorem, each)
