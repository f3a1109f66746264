"""What is known of a private value without looking at it, and how many rows may change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows, cells
from adaptive_dp.data.cells import array_kind
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.handles import Handle, SourceOperation, lineage
from adaptive_dp.graph.operation import Change, Neighbors, Operation
from adaptive_dp.graph.values import anything, perhaps
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# What is known of a private value without looking at it.


def finite_float(what: str, value: Any) -> float:
    """Return ``value`` as a finite float.

    Raises
    ------
    DeclarationError
        If it is anything else.
    """
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}")
    try:
        result = float(value)
    except (OverflowError, TypeError, ValueError):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}") from None
    if not math.isfinite(result):
        raise DeclarationError(f"{what} must be a finite number, got {value!r}")
    return result


def edges_of(values: Any) -> tuple[float, ...] | None:
    """Return edges as plain numbers; what is none is left for the operation to refuse."""
    found = perhaps(values)
    if found is None:
        return None
    return tuple(float(v) if isinstance(v, np.generic | Fraction) else v for v in found)


def _lower(value: float) -> float:
    return finite_float("a lower bound", value)


def _upper(value: float) -> float:
    return finite_float("an upper bound", value)


@frozen
class Interval:
    """A number in [lower, upper]."""

    document_key: ClassVar[str] = "bounds"

    lower: float = field(converter=_lower)
    upper: float = field(converter=_upper)

    def __attrs_post_init__(self) -> None:
        if not (self.lower <= self.upper):
            raise DeclarationError(
                f"bounds must satisfy lower <= upper, got ({self.lower:g}, {self.upper:g}); swap "
                "them"
            )
        if not (max(abs(self.lower), abs(self.upper)) < 1e290):
            raise DeclarationError(
                f"bounds must be below 1e290 in size, got ({self.lower:g}, {self.upper:g})"
            )

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lower), abs(self.upper))

    def __str__(self) -> str:
        return f"[{self.lower:g}, {self.upper:g}]"


def interval(value: Any) -> Interval:
    """Return an interval from itself, or from a pair of numbers."""
    if isinstance(value, Interval):
        return value
    if isinstance(value, list | tuple) and len(value) == 2:
        return Interval(*value)
    raise DeclarationError(f"bounds must be a pair of numbers, got {value!r}")


def intervals(value: Iterable[Any]) -> tuple[Interval, ...]:
    """Return each as an interval."""
    return tuple(interval(v) for v in value)


@frozen
class Categories:
    """One of a list of values; any other value belongs to none of them."""

    document_key: ClassVar[str] = "categories"

    values: tuple[Any, ...] = field(converter=anything)

    def __attrs_post_init__(self) -> None:
        if not (len(self.values) > 0):
            raise DeclarationError("a list of categories must not be empty")
        for value in self.values:
            if not isinstance(value, str | int | bool) and not (
                isinstance(value, float) and value == value
            ):
                raise DeclarationError(f"a category must be a text or a number, got {value!r}")
        if len(set(self.values)) != len(self.values):
            raise DeclarationError(f"categories must differ, got {list(self.values)!r}")

    def __str__(self) -> str:
        return f"{len(self.values)} categories"


Column = Interval | Categories | None


def column(name: str, declared: Any) -> Column:
    """Return the domain of a column from a pair of bounds, a list of categories, or None."""
    if declared is None or isinstance(declared, Interval | Categories):
        return declared
    if isinstance(declared, tuple) and len(declared) == 2:
        try:
            return Interval(*declared)
        except DeclarationError as error:
            texts = any(isinstance(v, str) for v in declared)
            cure = "; a pair is bounds, write categories as a list" if texts else ""
            raise DeclarationError(f"column {name!r}: {error}{cure}") from None
    if isinstance(declared, list | tuple) and not isinstance(declared, str):
        try:
            return Categories(tuple(declared))
        except DeclarationError as error:
            raise DeclarationError(f"column {name!r}: {error}") from None
    raise DeclarationError(
        f"column {name!r} must be declared by a pair of bounds such as (0, 100), a list of "
        f"categories such as ['a', 'b'], or None for no bounds, got {declared!r}"
    )


def columns(declared: Mapping[str, Any]) -> Mapping[str, Column]:
    """Return the domain of each column, by its name."""
    return {name: column(name, value) for name, value in declared.items()}


def known(name: str, declared: Column, keys: Iterable[Any]) -> None:
    """Refuse keys that the column's declared categories do not have."""
    if isinstance(declared, Categories):
        strange = [key for key in keys if key not in declared.values]
        if strange:
            raise DeclarationError(
                f"column {name!r} has no category {', '.join(map(repr, strange[:3]))}; it declares "
                f"{list(declared.values)[:8]}"
            )
    if isinstance(declared, Interval):
        texts = [key for key in keys if isinstance(key, str)]
        if texts:
            raise DeclarationError(
                f"column {name!r} holds numbers, so no row has the value {texts[:1]}"
            )


def numeric(name: str, declared: Column) -> None:
    """Refuse a column of categories, of which some are texts, where numbers are needed."""
    if isinstance(declared, Categories) and any(isinstance(v, str) for v in declared.values):
        raise DeclarationError(
            f"column {name!r} holds categories, not numbers; use its keys, or declare bounds"
        )


@frozen
class Table:
    """Rows with declared columns, and whom they protect."""

    name: str
    columns: Mapping[str, Column]
    neighbors: Neighbors
    unit: str | None = None
    size: int | None = None
    """The public number of units, where declared and still known."""

    def interval(self, name: str) -> Interval:
        """Return the bounds of a column.

        Raises
        ------
        DeclarationError
            If there is no such column, or it has no bounds.
        """
        found = self.find(name)
        if isinstance(found, Categories):
            raise DeclarationError(
                f"column {name!r} of {self.name!r} is declared as {found}, where numbers in bounds "
                f"are needed; if it holds numbers, declare columns={{{name!r}: (low, high)}}"
            )
        if found is None:
            raise DeclarationError(
                f"column {name!r} of {self.name!r} has no bounds, so its sensitivity is infinite; "
                f"declare columns={{{name!r}: (low, high)}}"
            )
        return found

    def find(self, name: str) -> Column:
        """Return the declaration of a column, or raise for one that is not declared."""
        if name not in self.columns:
            raise DeclarationError(
                f"{self.name!r} declares no column {name!r}; it declares {list(self.columns)}"
            )
        return self.columns[name]


@frozen
class Values:
    """A number for each row, in an interval or a list of categories (None: no bounds)."""

    of: str
    column: Column
    neighbors: Neighbors
    size: int | None


@frozen
class Ball:
    """A vector for each row, of Euclidean norm at most ``radius``."""

    names: tuple[str, ...]
    radius: float
    table: Table

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.names)


@frozen
class Parts:
    """The parts of a partition: the table that each of them is, and their keys."""

    table: Table
    keys: tuple[Any, ...]
    whole_units: bool


# -----------------------------------------------------------------------------
# How many rows change: what queries are told that look at single rows, not at sums.
#
# Such a query counts distances between data sets in *steps* of one row, of one of two kinds: a row
# is added or removed, or (``exchange``) a row is exchanged for another. A unit of up to r rows
# that appears or vanishes is r steps of the first kind. One that is exchanged is up to 2r of them,
# and r of the second kind, but only where it has exactly r rows before and after: in a part of a
# partition, under a filter or a bound on contributions the number of rows may change with it.


def row_steps(kind: str, change: Change, norm: float, exchange: bool) -> float:
    """Return the number of steps that a change is, for a query of the given kind of steps.

    Raises
    ------
    DeclarationError
        If a distance in another norm than 0 is asked for, or rows are to be exchanged one by
        one where their number may change.
    """
    if norm != 0:
        raise DeclarationError(
            f"a {kind} says how many rows change, not how far it moves: its mechanisms declare "
            f"norm 0, got norm {norm!r}"
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
    if values.neighbors == "zero_out":
        raise DeclarationError(
            f"a {kind} looks at rows, not at sums, so zero_out neighbours, whose rows count as "
            "zero in sums, mean nothing to it; declare neighbors='add_remove' or 'replace_one'"
        )


# -----------------------------------------------------------------------------
# A number for each row: a column, clipped to its bounds.


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
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

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


def _column_lower(value: float) -> float:
    return finite_float("clip's lower bound", value)


def _column_upper(value: float) -> float:
    return finite_float("clip's upper bound", value)


@frozen
class Clip(Operation):
    """Values below ``lower`` become ``lower``, above ``upper`` become ``upper``."""

    kind: ClassVar[str] = "clip"
    input_type: ClassVar[type] = Values
    is_rowwise: ClassVar[bool] = True

    lower: float = field(converter=_column_lower)
    upper: float = field(converter=_column_upper)

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
