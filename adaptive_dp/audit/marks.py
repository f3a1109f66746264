"""Where a plan treats a row's values differently: the cells on which neighbours are told apart."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.queries.columns import ColumnOf
from adaptive_dp.queries.domains import Ball, Categories, Column, Interval
from adaptive_dp.queries.source import Source

MOST = 12
"""So many marks of a column are used."""

UNKNOWN = "no such category"
_NONE = -987_654_321


def cells(structure: Structure, source: Source) -> dict[str, tuple[Any, ...]]:
    """Return for each declared column the cells worth trying: bounds, thresholds, bad values."""
    marks = _marks(structure, source)
    return {
        name: _distinct([*_declared(column), *_around(marks.get(name, ()), column)])
        for name, column in source.columns.items()
    }


def _marks(structure: Structure, source: Source) -> dict[str, list[Any]]:
    """Return by column the constants of the plan's operations that look at it."""
    found: dict[str, list[Any]] = {}
    for node in structure:
        if node.handle.color != "private":
            continue
        line = structure.lineage(node)
        if line[0].handle.operation is not source and line[0].handle.operation != source:
            continue
        for name in _columns(node, line):
            if name in source.columns:
                constants = _constants(node, structure)
                found.setdefault(name, []).extend(v for v in constants if v not in source.columns)
    return found


def _columns(node: Node, line: list[Node]) -> set[str]:
    """Return the columns that an operation looks at."""
    parameters = node.handle.operation.parameters()
    names = {v for k, v in parameters.items() if k in ("by", "column") and isinstance(v, str)}
    names |= {c[0] for c in parameters.get("conditions", ()) if isinstance(c, tuple)}
    steps = [step.handle.operation for step in line]
    names |= {step.name for step in steps if isinstance(step, ColumnOf)}
    domain = node.handle.inputs[0].domain if node.handle.inputs else None
    return names | set(domain.names if isinstance(domain, Ball) else ())


def _constants(node: Node, structure: Structure) -> Iterator[Any]:
    """Yield the numbers and texts among an operation's parameters, and its constant operands."""
    yield from _leaves(list(node.handle.operation.parameters().values()))
    for name in node.inputs[1:]:
        value = structure.nodes[name].handle.operation
        if value.kind == "public":
            yield from _leaves(list(value.parameters().values()))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, bool) or value is None or isinstance(value, Mechanism):
        return
    if isinstance(value, int | float | str):
        yield value
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    elif isinstance(value, Interval | Categories):
        yield from _leaves(list(attrs.asdict(value, recurse=False).values()))


def _around(marks: Any, column: Column) -> Iterator[Any]:
    """Yield each mark, and the numbers next to it on both sides."""
    texts = column is None or isinstance(column, Categories)
    known = column.values if isinstance(column, Categories) else ()
    numbers = not known or not isinstance(known[0], str)
    for mark in list(dict.fromkeys(marks))[:MOST]:
        if isinstance(mark, str):
            if texts and (column is None or mark in known):
                yield mark
        elif numbers and math.isfinite(mark) and abs(mark) < 1e290:
            yield from (
                float(mark),
                math.nextafter(mark, -math.inf),
                math.nextafter(mark, math.inf),
            )


def _declared(column: Column) -> list[Any]:
    """Return cells of a column, the most telling first."""
    if isinstance(column, Interval):
        low, high = column.lower, column.upper
        wide = 10 * (high - low) + 1
        near = [low + (high - low) / 2, math.nextafter(low, high), math.nextafter(high, low)]
        return [low, high, *near, 0.0, low - wide, high + wide, math.nan, math.inf, -math.inf, None]
    if isinstance(column, Categories):
        strange = UNKNOWN if isinstance(column.values[0], str) else _NONE
        return [*column.values[:MOST], column.values[-1], strange, None]
    return [0.0, 1.0, -1.0, math.nan, math.inf, UNKNOWN, None]


def _distinct(values: list[Any]) -> tuple[Any, ...]:
    """Return the values without repetitions; 0, False and -0.0 are one, NaN is itself."""
    found: dict[Any, Any] = {}
    for value in values:
        found.setdefault(repr(value) if value != value else value, value)
    return tuple(found.values())
