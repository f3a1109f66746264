"""The first look at a table: how many rows, the averages and the histograms of its columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import require
from adaptive_dp.queries.average import louder
from adaptive_dp.queries.domains import Categories, Interval

if TYPE_CHECKING:
    from adaptive_dp.queries.table import Table


def described(table: Table, mechanism: Mechanism, names: Sequence[str] | None) -> dict[str, Any]:
    """Return releases by kind and column; see `Table.describe`."""
    domain = table.domain
    require(
        names is None or (isinstance(names, list | tuple) and all(map(_text, names))),
        f"describe reads a list of columns, such as ['age'], got {names!r}",
    )
    kinds = {name: domain.find(name) for name in (domain.columns if names is None else names)}
    if names is not None:
        for name, kind in kinds.items():
            require(kind is not None, f"the column {name!r} has neither bounds nor categories")
    known = domain.size
    count = table.count().release(mechanism) if known is None else None
    averages = {
        name: table[name].mean().release(louder(mechanism, (kind.upper - kind.lower) / known or 1))
        if known is not None
        else table[name].average(mechanism, count=count)
        for name, kind in kinds.items()
        if isinstance(kind, Interval)
    }
    bars = {
        name: table[name].histogram().release(mechanism)
        for name, kind in kinds.items()
        if isinstance(kind, Categories)
    }
    found = {"count": count, "average": averages, "histogram": bars}
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _text(name: Any) -> bool:
    return isinstance(name, str)
