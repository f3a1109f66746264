"""The state of a session, for people: what is spent, what is left, and of what."""

from __future__ import annotations

from accountants.rounding import ceiling, shown
from adaptive_dp.graph.table import table
from adaptive_dp.session.account import Account


def state_text(account: Account, steps: int, seed: int | None, *, closed: bool) -> str:
    """Return a few lines for `print`; all of it is public."""
    budget, sums, keeps = account.budget, account.whole, account.currency.filter
    kind = "session" if seed is None else f"session, simulated with seed {seed}"
    lines = [
        f"{kind}: {steps} step{'s' * (steps != 1)}{', closed' * closed}",
        f"budget   epsilon {budget.epsilon:g} at delta {budget.delta:g}"
        + (f", {budget.failures:g} of it for failures" if budget.failures else "")
        + f", kept by the filter {account.accountant!r}",
        f"spent    epsilon {shown(sums.epsilon(), upward=True)}, wherever you stop",
    ]
    if not account.currency.refuses:
        return "\n".join([*lines, "left     what each record has left is private"])
    fraction = shown(100 * sums.left(), upward=False, digits=3)
    lines.append(f"left     {fraction}% of the budget")
    spent, rest = sums.spent(), sums.remaining()
    limits = zip(keeps.units(), keeps.budgets(), spent.costs, rest.costs, strict=True)
    rows = [
        [
            unit,
            shown(cost, upward=True),
            "passed" if cost > limit else shown(over, upward=False),
            shown(ceiling(limit), upward=False),
        ]
        for unit, limit, cost, over in limits
        if limit >= 0
    ]
    how = "each must last" if keeps.every else "a step fits while one lasts"
    if len(rows) > 1:
        lines.append(f"         of {len(rows)} sums, {how}")
    if keeps.failures:
        over = "passed" if rest.failure < 0 else shown(rest.failure, upward=False)
        most = shown(keeps.failures, upward=False)
        rows.append(["failures", shown(spent.failure, upward=True), over, most])
    return "\n".join([*lines, "", table(["sum", "spent", "left", "of"], rows)])
