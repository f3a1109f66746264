"""What a step would cost, before anyone pays for it."""

from __future__ import annotations

from attrs import frozen

from accountants.errors import InapplicableError
from accountants.filters.choose import filter_for
from accountants.filters.sums import BEYOND, Amount, SumFilter
from accountants.loss import PrivacyLoss
from accountants.rounding import shown
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.spends import ACCOUNTANTS, Costs


@frozen
class Forecast:
    """What a step would cost and leave; nothing was spent to find out.

    Parameters
    ----------
    fits
        Whether it would be admitted.
    known
        Whether it costs nothing: its value is recorded already, or its spend, by a step of this
        session that was interrupted and may go on.
    cost
        By how much the session's sums would grow, in the filter's currencies.
    remaining
        What would be left of them; what is left now, where it does not fit.
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
    ...     dear = session.what_if(people.count().release(dp.Laplace(scale=0.5)))
    >>> fine.fits, round(fine.remaining.costs[0], 6)
    (True, 0.75)
    >>> print(fine)
    fits; the session's epsilon would then read 0.25
    >>> print(dear)
    does not fit: not enough of the budget is left for Laplace(epsilon=2): what fits is epsilon 1,
    2 times the noise (best filter: it asks for epsilon 2 of 1 left)
    """

    fits: bool
    known: bool
    cost: Amount
    remaining: Amount
    epsilon: float
    refusal: str = ""

    def __str__(self) -> str:
        if not self.fits:
            return f"does not fit: {self.refusal}"
        if self.known:
            return "recorded already, at no cost"
        return f"fits; the session's epsilon would then read {shown(self.epsilon, upward=True)}"


def priced(costs: Costs, keeps: SumFilter, accountant: str, budget: Budget) -> None:
    """Refuse what no budget could pay, since it has no price in the filter's currency.

    Raises
    ------
    InapplicableError
        With the accountants under which it has one.
    """
    for _, loss in costs:
        if _has_price(keeps, loss):
            continue
        others = [name for name in ACCOUNTANTS if _affordable(name, budget, loss)]
        cure = (
            f"open the session with accountant={' or '.join(map(repr, others))}"
            if others
            else "none of the currencies that have a filter theorem has one: choose another "
            "mechanism"
        )
        raise InapplicableError(
            f"{loss!r} has no finite price in the currency of {accountant!r}, so that no budget "
            f"could pay it; {cure}"
        )
    failing = [loss for _, loss in costs if loss.failure()]
    if failing and not keeps.failures:
        raise InapplicableError(
            f"{failing[0]!r} may fail, and the budget keeps no part of its delta for that; open "
            f"the session with Budget({budget.epsilon!r}, {budget.delta!r}, failures=...)"
        )


def _has_price(keeps: SumFilter, loss: PrivacyLoss) -> bool:
    try:
        finite = [price < BEYOND for price in keeps.prices(loss)]
    except InapplicableError:
        return False
    return all(finite) if keeps.every else any(finite)


def _affordable(name: str, budget: Budget, loss: PrivacyLoss) -> bool:
    try:
        return _has_price(filter_for(name, budget.epsilon, budget.delta, budget.failures), loss)
    except InapplicableError:
        return False
