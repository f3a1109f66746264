"""In what a session counts, and by which theorems."""

from __future__ import annotations

from fractions import Fraction

from attrs import frozen

from accountants.filters.choose import filter_for
from accountants.filters.gaussian import GaussianFilter
from accountants.filters.individual import IndividualFilter
from accountants.filters.sums import Amount, Spent, SumFilter
from accountants.odometers import Odometer
from accountants.rounding import ceiling, flooring
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.individual import INDIVIDUAL, individual_filter
from adaptive_dp.session.spends import ACCOUNTANTS, odometer_for

NAMES = (*ACCOUNTANTS, INDIVIDUAL)
"""What a session's `accountant` may be."""

READ = 0.1
"""The share of delta, beside the failures, that the odometer has; the filter has the rest."""


@frozen
class Currency:
    """The filter and the odometer of a session, and what they promise.

    A reading is the odometer's, and never above the budget. That is a choice between two
    statements, made by what happened, so they share delta: ``(1 - e^{min(a, b) - L})_+`` is the
    larger of those of a and b, so at most their sum, and wherever the analyst stops, the filter
    kept so far, ``P(S) <= E_Q[e^reading 1_S] + F + (1 - F)(delta_filter + delta_odometer)`` (own
    proof).

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
        if not self.refuses:
            return self.theorem
        return f"{self.odometer.theorem}; at most the budget: {self.theorem}"

    def promised(self) -> float:
        """Return the epsilon that the filter promises at the budget's delta."""
        return self.filter.guarantee(self.budget.delta).epsilon

    def epsilon(self, sums: Spent, *, kept: bool) -> float:
        """Return a reading; the budget where what is spent is private.

        Parameters
        ----------
        sums
            Of the odometer.
        kept
            Whether the filter lets everything through; not so in a ledger or a certificate that
            does not hold.
        """
        if not self.refuses:
            return self.budget.epsilon
        reading = self.odometer.epsilon(sums)
        return min(reading, self.budget.epsilon) if kept else reading

    def spent(self, sums: Spent) -> Amount:
        """Return a bound of what was spent, rounded up; never above a record's budget."""
        amount = self.filter.spent(sums)
        if self.refuses:
            return amount
        most = map(ceiling, self.filter.budgets())
        return Amount(tuple(map(min, amount.costs, most)), amount.failure)


def currency_for(accountant: str, budget: Budget) -> Currency:
    """Return what a session counts in, by its accountant's name."""
    failures = budget.failures
    if accountant != INDIVIDUAL:
        mine, others = shares(accountant, budget)
        found = filter_for(accountant, budget.epsilon, mine, failures)
        return Currency(budget, found, odometer_for(accountant, others, failures), found.theorem)
    each = individual_filter(budget)
    prices, odometer = GaussianFilter(each.mu), odometer_for("gaussian", budget.delta, failures)
    return Currency(budget, prices, odometer, each.theorem, each)


def shares(accountant: str, budget: Budget) -> tuple[float, float]:
    """Return the deltas of the filter and of the odometer, each with the failures in it.

    They sum to delta and the failures. Sums of epsilons need no delta: there the odometer is the
    filter's own sum, and both have all of it.
    """
    delta, failures = Fraction(budget.delta), Fraction(budget.failures)
    others = flooring(failures + (delta - failures) * Fraction(READ))
    if accountant == "basic":
        return budget.delta, budget.delta
    if not budget.failures < others:  # nothing is left to share
        return budget.delta, budget.failures
    return flooring(delta + failures - Fraction(others)), others
