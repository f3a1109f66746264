"""How many rows meet each of several conditions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from accountants.rounding import up
from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import anything
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Contributions, Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import Table
from adaptive_dp.queries.filter import Filter

Condition = tuple[str, str, Any]
"""A column, a test and an operand, as a filter has them."""


def _conditions(values: Iterable[Any]) -> tuple[Condition, ...]:
    return tuple(_condition(value) for value in anything(values))


def _condition(value: Any) -> Condition:
    parts = anything(value)
    require(
        len(parts) == 3 and isinstance(parts[0], str) and isinstance(parts[1], str),
        f"a counted condition is a column, a test and an operand, got {value!r}; write "
        '["age", ">=", 18]',
    )
    column, test, operand = parts
    return column, test, tuple(operand) if isinstance(operand, list | tuple) else operand


@frozen
class Counts(Query):
    """The number of rows that meet each condition; a row may meet several, or none.

    A unit with at most r rows adds to each count between 0 and r. Where it appears, all counts
    grow, each by at most r: ``m r`` in l1 for m conditions, ``sqrt(m) r`` in l2, r in the maximum
    norm. Where it is exchanged, each moves by at most r either way. All are attained by
    conditions that the same rows meet.
    """

    kind: ClassVar[str] = "counts"
    exact: ClassVar[bool] = True
    reads: ClassVar[type] = Table

    conditions: tuple[Any, ...] = field(converter=_conditions)

    def label(self) -> str:
        """Return how many conditions there are."""
        return f"counts of {len(self.conditions)} conditions"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table; check each condition as a filter does."""
        require(len(self.conditions) > 0, "counts needs at least one condition, got none")
        for filtered in self._filters():
            filtered.domain(inputs[:1])
        table: Table = inputs[0]
        return table

    def dimension(self, domain: Table) -> int:
        """Return the number of conditions."""
        return len(self.conditions)

    def sensitivity(self, domain: Table, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; of a rows against b, ``r = max(a, b)``."""
        count = len(self.conditions)
        if norm == 2 and count > 1:
            return up(math.sqrt(count) * change.rows)
        return float(change.rows * (count if norm == 1 else 1))

    def step(self, domain: Table) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: Table, change: Change) -> float:
        """Return r where a unit appears: all counts grow; a + b for a rows against b."""
        return float(change.both if change.replaced else change.rows)

    def candidate(self, index: int) -> str:
        """Return the condition as a text such as ``age >= 18``."""
        return self._filters()[index].label()

    def contributions(self, value: Rows) -> Contributions:
        """Return ``sqrt(m)`` for a row that meets m conditions, rounded up."""
        filters = self._filters()

        def block(columns: Columns) -> Floats:
            met = np.sum([f.keep(columns, f.operand) for f in filters], axis=0, dtype=np.float64)
            return np.where(met == 0, 0.0, up(np.sqrt(met)))

        return value.units, value.values(block)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the counts, shape (conditions,)."""
        filters = self._filters()

        def block(columns: Columns) -> Integers:
            met = [f.keep(columns, f.operand).sum() for f in filters]
            return np.array(met, dtype=np.int64)

        return np.array([float(v) for v in inputs[0].total(block)])

    def _filters(self) -> list[Filter]:
        return [Filter(column, test, operand) for column, test, operand in self.conditions]


def of_constant(condition: Any) -> Condition:
    """Return a condition's parts; one that compares with a released value is none of these."""
    if condition.handle is not None:
        raise DeclarationError(
            f"counts compares with constants, but the condition on {condition.column!r} compares "
            "with a released value; use table.filter(condition).count()"
        )
    return condition.column, condition.test, condition.operand
