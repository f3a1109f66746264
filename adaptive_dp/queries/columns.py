"""A number for each row: a column, clipped to its bounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows, cells
from adaptive_dp.data.cells import array_kind
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.operation import Operation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Interval, Table, Values, number, numeric

Floats = NDArray[np.float64]


@frozen
class Box:
    """Vectors of which every coordinate has bounds of its own, so that rows need no measuring.

    Parameters
    ----------
    width
        The number of coordinates.
    longest
        The norm of the farthest corner, or a little more; it follows from the plan alone.
    write
        Writes a block's vectors times a positive factor into an array of shape (d, m), a vector in
        each column: finite, of norm at most ``longest`` times the factor, whatever the data.
    """

    width: int
    longest: float
    write: Callable[[Columns, float, NDArray[np.float64]], None]


@frozen
class Selected:
    """Rows with a function that computes each row's value; nothing is computed yet.

    ``found`` keeps sums over all rows that several queries need, so that they are added up once.
    ``box`` is there for vectors of bounded columns as they are.
    """

    rows: Rows
    of: Callable[[Columns], Any]
    found: dict[Any, Any] = field(factory=dict, eq=False, repr=False)
    box: Box | None = None


@frozen
class ColumnOf(Operation):
    """A column of a table; its values are clipped to the declared bounds when they are used."""

    kind: ClassVar[str] = "column"
    reads: ClassVar[type] = Table
    alone: ClassVar[bool] = True

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


def _lower(value: float) -> float:
    return number("clip's lower bound", value)


def _upper(value: float) -> float:
    return number("clip's upper bound", value)


@frozen
class Clip(Operation):
    """Values below ``lower`` become ``lower``, above ``upper`` become ``upper``."""

    kind: ClassVar[str] = "clip"
    reads: ClassVar[type] = Values
    alone: ClassVar[bool] = True

    lower: float = field(converter=_lower)
    upper: float = field(converter=_upper)

    def label(self) -> str:
        """Return the bounds."""
        return f"clip to {Interval(self.lower, self.upper)}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the values with the new bounds."""
        values: Values = inputs[0]
        numeric(values.of, values.column)
        return evolve(values, column=Interval(self.lower, self.upper))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the clipped values."""
        selected, bounds = inputs[0], Interval(self.lower, self.upper)
        return Selected(selected.rows, lambda columns: clipped(selected.of(columns), bounds))


def clipped(values: NDArray[Any], bounds: Interval) -> Floats:
    """Return the values inside the bounds; NaN becomes the point next to 0."""
    floats = numbers(values)
    filled = np.where(np.isnan(floats), 0.0, floats)
    return np.clip(filled, bounds.lower, bounds.upper)


def numbers(values: NDArray[Any]) -> Floats:
    """Return numbers as floats; of objects each by itself, NaN for one that is no number.

    Raises
    ------
    DataError
        If the array is not of numbers, by its type: texts that happen to be numbers are
        refused with those that are not, so that no failure tells which were there.
    """
    if values.dtype == np.float64:
        return values
    if values.dtype.kind == "O":
        return cells.numbers(values.tolist())
    if values.dtype.kind not in "biuf":
        raise DataError(f"a column must be numeric here, got {array_kind(values)}")
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64)
