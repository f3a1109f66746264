"""A number for each row: a column, clipped to its bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.operation import Operation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Interval, Values, number
from adaptive_dp.rows import Columns, Rows

Floats = NDArray[np.float64]


@frozen
class Selected:
    """Rows with a function that computes each row's value; nothing is computed yet."""

    rows: Rows
    of: Callable[[Columns], Any]


@frozen
class ColumnOf(Operation):
    """A column of a table; its values are clipped to the declared bounds when they are used."""

    kind: ClassVar[str] = "column"

    name: str

    def label(self) -> str:
        """Return the column's name."""
        return self.name

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the declared bounds or categories."""
        table = inputs[0]
        return Values(self.name, table.find(self.name), table.neighbors, table.size)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the column as it is; `clipped` bounds it."""
        name = self.name
        return Selected(inputs[0], lambda columns: columns[name])


@frozen
class Clip(Operation):
    """Values below ``lower`` become ``lower``, above ``upper`` become ``upper``."""

    kind: ClassVar[str] = "clip"

    lower: float = field(converter=lambda v: number("clip's lower bound", v))
    upper: float = field(converter=lambda v: number("clip's upper bound", v))

    def label(self) -> str:
        """Return the bounds."""
        return f"clip to {Interval(self.lower, self.upper)}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the values with the new bounds."""
        return evolve(inputs[0], column=Interval(self.lower, self.upper))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the clipped values."""
        selected, bounds = inputs[0], Interval(self.lower, self.upper)
        return Selected(selected.rows, lambda columns: clipped(selected.of(columns), bounds))


def clipped(values: NDArray[Any], bounds: Interval) -> Floats:
    """Return the values inside the bounds; NaN becomes the point next to 0."""
    numbers = np.asarray(values, dtype=np.float64)
    filled = np.where(np.isnan(numbers), 0.0, numbers)
    return np.clip(filled, bounds.lower, bounds.upper)
