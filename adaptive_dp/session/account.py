"""What a session may spend and has spent, as a whole and in each of its parts.

A part's share stands in every spend that was made in it. So whoever reads a ledger keeps the limits
of all its parts, and recomputes whether they were kept. Before the first spend in a part there is
nothing to limit, and nothing is written: sessions may have opened it with different shares. The
first spend, in its transaction, settles which one holds; whoever meant another is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from attrs import define

from accountants.filters.sums import BEYOND, Amount, Spent, SumFilter
from accountants.odometers import Odometer
from accountants.rounding import ceiling, down, flooring
from adaptive_dp.graph.operation import require
from adaptive_dp.session.budget import Budget
from adaptive_dp.session.currency import Currency, currency_for
from adaptive_dp.session.ledger import require_ledger
from adaptive_dp.session.spends import Costs, Spends

Inside = tuple[tuple[str, float], ...]
"""A part: the names and shares of those around it and its own, outermost first; () for no part."""


@define(eq=False)
class Sums:
    """What was spent of one budget, as its filter adds it up, and as its odometer does.

    Parameters
    ----------
    currency
        Of the budget.
    spends, read_off
        The sums.
    kept
        Whether the filter would have let through all that was spent. Sessions spend nothing else,
        but who reads a ledger takes what stands there.
    """

    currency: Currency
    spends: Spends[SumFilter]
    read_off: Spends[Odometer]
    kept: bool = True

    @classmethod
    def of(cls, currency: Currency) -> Sums:
        """Return sums of nothing."""
        return cls(currency, Spends(currency.filter), Spends(currency.odometer))

    def add(self, costs: Costs) -> None:
        """Pay costs."""
        for cost in costs:
            self.spends.add((cost,))
            self.kept = self.kept and self.currency.filter.holds(self.spends.at(cost[0]))
        self.read_off.add(costs)

    def spent(self) -> Amount:
        """Return what was spent, rounded up."""
        return self.currency.spent(self.spends.worst())

    def remaining(self) -> Amount:
        """Return what is left, rounded down."""
        return self.currency.filter.remaining(self.spends.worst())

    def epsilon(self, more: Costs = ()) -> float:
        """Return the reading, as it would be after costs that fit."""
        return self.currency.epsilon(self.read_off.after(more), kept=self.kept)

    def used(self) -> float:
        """Return the share of the budget that is spent, rounded up; see `used`."""
        return ceiling(used(self.currency.filter, self.spends.worst()))

    def left(self) -> float:
        """Return the share of the budget that is left, rounded down; in [0, 1]."""
        return flooring(max(Fraction(), 1 - used(self.currency.filter, self.spends.worst())))


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
        self.whole = Sums.of(self.currency)
        self.settled: dict[str, float] = {}
        self._shares: dict[str, float] = {}
        self._parts: dict[str, Sums] = {}

    def sums(self, part: Inside) -> Sums:
        """Return the sums of a part, or of the whole session (())."""
        self.agree(part)
        return self._parts[part[-1][0]] if part else self.whole

    def check(self, costs: Costs, part: Inside) -> None:
        """Refuse costs that do not fit, into the session's budget or that of a part around.

        Raises
        ------
        accountants.BudgetError
            If they do not fit.
        DeclarationError
            If another session was the first to spend in the part, and gave it another share.
        """
        self.agree(part)
        if not self.currency.refuses:
            return
        for _, spends in self.limits(part):
            spends.check(costs)

    def limits(self, part: Inside) -> Iterator[tuple[str, Spends[SumFilter]]]:
        """Yield what limits a spend: the parts it is in, and ('') the whole session."""
        yield from ((name, self._parts[name].spends) for name, _ in part)
        yield "", self.whole.spends

    def add(self, costs: Costs, part: Inside) -> None:
        """Pay costs, in the whole session and in the parts that the ledger says they are in."""
        self.settle(part)
        for sums in (self.whole, *(self._parts[name] for name, _ in part)):
            sums.add(costs)

    def settle(self, part: Inside) -> None:
        """Take over the shares that a spend in the ledger says.

        Raises
        ------
        LedgerError
            If a spend before it said otherwise.
        """
        for name, share in part:
            before = self.settled.get(name, share)
            require_ledger(
                before == share,
                f"a spend gives the part {name!r} {share!r} of the budget, and one before it "
                f"{before!r}",
            )
        for name, share in part:
            if self._shares.get(name) != share:  # nothing was spent in it, whatever it had here
                within = [n for n in self._shares if n.startswith(f"{name}/")]
                for inner in within:  # nor in those, which had shares of what it is not
                    del self._shares[inner]
                self._limit(name, share)
            self.settled[name] = share

    def agree(self, part: Inside) -> None:
        """Refuse a part with another share than the ledger, or this session, gives it."""
        for name, share in part:
            found = self._shares[name]
            require(
                found == share,
                f"the part {name!r} has {found!r} of the session's budget, not {share!r}; a part's "
                "share stays what it is: open it with that, or choose another name",
            )

    def opened(self, around: Inside, name: str, value: float) -> Inside:
        """Open a part with a share of the one around it, or refuse another share than it has."""
        self.agree(around)
        outer_name, outer = around[-1] if around else ("", 1.0)
        full = f"{outer_name}/{name}" if around else name
        share = outer if value == 1 else value if not around else down(outer * value, 4)
        require(share > 0, f"the part {full!r} would have a share of {share!r}, which is nothing")
        if full not in self._shares:
            self._limit(full, share)
        inside = (*around, (full, share))
        self.agree(inside)
        return inside

    def part(self, name: str) -> Sums:
        """Return the sums of a part by its name."""
        return self._parts[name]

    def _limit(self, name: str, share: float) -> None:
        """Give a part in which nothing was spent its limits."""
        limits = [self.budget.epsilon, self.budget.delta, self.budget.failures]
        if share != 1:
            limits = [max(0.0, down(share * limit, 4)) for limit in limits]
        sums = Sums.of(currency_for(self.accountant, Budget(*limits)))
        # last: whoever is interrupted before it has opened nothing
        self._parts[name] = sums
        self._shares[name] = share


def used(keeps: SumFilter, spent: Spent) -> Fraction:
    """Return the share of a filter's budget that is spent, exact; above 1 where it is passed.

    Of its currencies it is that of the best off where a filter needs one sum to stay within its
    budget, and of the worst where it needs all. Of a currency whose budget is nothing, all is spent
    at once. Failures have a budget of their own, and limit as well: where more of it is spent, that
    share counts, though steps that cannot fail may still fit.
    """
    pairs = zip(spent.sums, keeps.budgets(), strict=True)
    shares = [s / b if b > 0 else Fraction(1) if s <= b else BEYOND for s, b in pairs]
    most = max(shares) if keeps.every else min(shares)
    failures = Fraction(keeps.failures)
    if failures > 0:
        return max(most, spent.failure / failures)
    return most if spent.failure == 0 else BEYOND


def names_of(part: str) -> list[str]:
    """Return a part's name and those of the parts around it, outermost first."""
    names = part.split("/") if part else []
    return ["/".join(names[: i + 1]) for i in range(len(names))]
