"""How many rows change: what queries are told that look at single rows, not at sums.

Such a query counts distances between data sets in *steps* of one row, of one of two kinds: a row
is added or removed, or (``exchange``) a row is exchanged for another. A unit of up to r rows
that appears or vanishes is r steps of the first kind. One that is exchanged is up to 2r of them,
and r of the second kind, but only where it has exactly r rows before and after: in a part of a
partition, under a filter or a bound on contributions the number of rows may change with it.
"""

from __future__ import annotations

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle, lineage
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import SourceOperation
from adaptive_dp.queries.domains import Values


def row_steps(kind: str, change: Change, norm: float, exchange: bool) -> float:
    """Return the number of steps that a change is, for a query of the given kind of steps.

    Raises
    ------
    DeclarationError
        If a distance in another norm than 0 is asked for, or rows are to be exchanged one by
        one where their number may change.
    """
    require(
        norm == 0,
        f"a {kind} says how many rows change, not how far it moves: its mechanisms declare norm 0, "
        f"got norm {norm!r}",
    )
    if not exchange:
        return float(change.both)
    if not (change.replaced and change.fixed):
        raise DeclarationError(
            f"this {kind} exchanges rows one by one, but here their number may change: a unit may "
            "enter or leave a part or a filter, or have fewer rows; use exchange=False where the "
            "query has it, or ask it of the whole replace_one table, whose rows are the units"
        )
    return float(change.rows)


def exchanged(handle: Handle) -> bool:
    """Whether one unit's change leaves the number of rows as it is, where ``handle`` stands."""
    first, *chain = lineage(handle)
    if not isinstance(first.operation, SourceOperation):
        return False
    change = first.operation.initial()
    for step in chain:
        change = step.operation.change(change)
    return change.replaced and change.fixed


def counted(kind: str, values: Values) -> None:
    """Refuse data sets of which one unit may count as zero, which says nothing of single rows."""
    require(
        values.neighbors != "zero_out",
        f"a {kind} looks at rows, not at sums, so zero_out neighbours, whose rows count as zero in "
        "sums, mean nothing to it; declare neighbors='add_remove' or 'replace_one'",
    )
