"""What a session had spent after each of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from attrs import frozen

from accountants.filters.sums import Spent, SumFilter
from accountants.rounding import ceiling
from adaptive_dp.session.account import Account
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.entries import costs_of, part_of
from adaptive_dp.session.ledger import Entry


@frozen
class Reading:
    """What was spent after a step.

    Parameters
    ----------
    step
        Its name, or ``step k``.
    share
        Of the filter's budget, in the currency of which the least is left, in [0, 1].
    epsilon
        What the odometer reads at the budget's delta, in nats.
    """

    step: str
    share: float
    epsilon: float


def history(budget: Budget, accountant: str, steps: Iterable[Entry]) -> Iterator[Reading]:
    """Yield a reading after each spend of a ledger, in order."""
    account = Account(budget, accountant)
    for i, entry in enumerate(steps, 1):
        account.add(costs_of(entry), part_of(entry))
        share = used(account.currency.filter, account.spends.worst())
        if not account.currency.refuses:  # a record spends no more than its budget
            share = min(share, 1.0)
        epsilon = float(account.currency.epsilon(account.read_off))
        yield Reading(str(entry["name"]) or f"step {i}", share, epsilon)


def used(keeps: SumFilter, spent: Spent) -> float:
    """Return the share of a filter's budget that is spent, rounded up.

    A filter that needs one of its sums to stay within its budget has as much left as is left of
    the one that is best off; one that needs all, of the worst; failures have a budget of their own.
    """
    shares = [_ratio(s, b) for s, b in zip(spent.sums, keeps.budgets(), strict=True)]
    most = max(shares) if keeps.every else min(shares)
    return max(most, _ratio(spent.failure, Fraction(keeps.failures)))


def _ratio(spent: Fraction, budget: Fraction) -> float:
    if budget > 0:
        return ceiling(spent / budget)
    return math.inf if spent > budget else 0.0
