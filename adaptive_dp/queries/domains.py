"""Domains: what is declared about private values, without looking at the data.

A column is an `Interval` of numbers, a list of `Categories`, `Strings` of which no list is
declared, or None (nothing is declared). Tables, columns, vectors and partitions have the domains
`Table`, `Values`, `Ball` and `Parts`. Here too: how queries that look at single rows count changed
rows (`row_steps`), and a column clipped to its bounds (`clipped`), as order statistics and learners
read it; sums clip in `adaptive_dp.queries.sums`.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from attrs import evolve, field, frozen
from attrs.validators import in_
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows, cells
from adaptive_dp.data.cells import DictionaryColumn, array_kind
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import RowFunction, RowSum, once
from adaptive_dp.graph.errors import DataError, DeclarationError
from adaptive_dp.graph.handles import Handle, SourceOperation, lineage
from adaptive_dp.graph.operation import Change, Neighbors, Operation, Query
from adaptive_dp.graph.values import as_tuple, optional_tuple
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# Declarations: numbers, intervals, categories, columns, tables.


def finite_float(what: str, value: Any) -> float:
    """Return ``value`` as a finite float.

    Raises
    ------
    DeclarationError
        If it is anything else.
    """
    # float() would read True as 1 and "3" as 3; both are more likely mistakes
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
    """Return edges as Python floats; what is not a number is left for the operation to refuse."""
    edges = optional_tuple(values)
    if edges is None:
        return None
    plain = (cells.day(v) if isinstance(v, datetime.date) else v for v in edges)
    return tuple(float(v) if isinstance(v, np.generic | Fraction) else v for v in plain)


def _lower(value: Any) -> float:
    return finite_float("a lower bound", value)


def _upper(value: Any) -> float:
    return finite_float("an upper bound", value)


@frozen
class Interval:
    """The domain of numbers in [lower, upper], in the column's units.

    Raises
    ------
    DeclarationError
        If the bounds are not finite numbers below 1e290 in size with ``lower <= upper``.
    """

    document_key: ClassVar[str] = "bounds"

    lower: float = field(converter=_lower)
    upper: float = field(converter=_upper)

    def __attrs_post_init__(self) -> None:
        if not (self.lower <= self.upper):
            raise DeclarationError(
                f"bounds must satisfy lower <= upper, got ({self.lower:g}, {self.upper:g}); swap "
                "them"
            )
        # far below the largest float, 1.8e308, so that upper - lower is finite
        if not (max(abs(self.lower), abs(self.upper)) < 1e290):
            raise DeclarationError(
                f"bounds must be below 1e290 in size, got ({self.lower:g}, {self.upper:g})"
            )

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        return max(abs(self.lower), abs(self.upper))

    @property
    def numbers(self) -> Interval:
        """The same bounds of numbers: of dates, the days."""
        return self if type(self) is Interval else Interval(self.lower, self.upper)

    def __str__(self) -> str:
        return f"[{self.lower:g}, {self.upper:g}]"


@frozen
class Dates(Interval):
    """The domain of dates in [lower, upper], as days since 1970-01-01."""

    document_key: ClassVar[str] = "dates"

    def __str__(self) -> str:
        return f"[{as_date(self.lower)}, {as_date(self.upper)}]"


def as_date(days: float) -> datetime.date:
    """Return the date of a number of days since 1970-01-01, within the years 1 to 9999."""
    ordinal = min(max(math.floor(days) + cells.EPOCH, 1), datetime.date.max.toordinal())
    return datetime.date.fromordinal(ordinal)


def dates(first: Any, last: Any) -> Dates:
    """Return the domain of dates between two, each a date, or a str such as ``2024-12-31``.

    Raises
    ------
    DeclarationError
        If one of them is neither.
    """
    ends = [float(v) if type(v) in (int, float) else cells.day(v) for v in (first, last)]
    if not all(map(math.isfinite, ends)):
        raise DeclarationError(
            f"the bounds of dates must be two dates such as datetime.date(2024, 12, 31), got "
            f"{first!r} and {last!r}"
        )
    return Dates(*ends)


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
    """The domain of a list of values; a row with any other value belongs to none of them."""

    document_key: ClassVar[str] = "categories"

    values: tuple[Any, ...] = field(converter=as_tuple)

    def __attrs_post_init__(self) -> None:
        if not (len(self.values) > 0):
            raise DeclarationError("a list of categories must not be empty")
        is_simple = set(map(type, self.values)) <= {str, int, bool}  # fast for millions of them
        for value in () if is_simple else self.values:
            if not isinstance(value, str | int | bool) and not (
                # NaN differs from itself, so it could never match a key
                isinstance(value, float) and value == value
            ):
                raise DeclarationError(f"a category must be a str or a number, got {value!r}")
        # 1, 1.0 and True are one value here, as they are when rows are looked up
        if len(set(self.values)) != len(self.values):
            raise DeclarationError(f"categories must differ, got {list(self.values)!r}")

    def __str__(self) -> str:
        return f"{len(self.values)} categories"


@frozen
class Strings:
    """The domain of str of which no list is declared: any str may occur.

    What needs categories (a histogram, a partition, groups) needs a list of keys for such a column.
    """

    document_key: ClassVar[str] = "type"

    type: Literal["str"] = field(default="str", validator=in_(("str",)))

    def __str__(self) -> str:
        return "str"


def _tensor_shape(value: Any) -> tuple[int, ...]:
    return tuple(as_tuple(value))


def _tensor_lower(value: Any) -> float:
    return finite_float("a tensor's lower bound", value)


def _tensor_upper(value: Any) -> float:
    return finite_float("a tensor's upper bound", value)


@frozen
class Tensors:
    """The domain of arrays of numbers in [lower, upper], in each row one of the same shape.

    Numbers outside are the bound next to them, and what is missing is the point next to 0: see
    `clipped`.

    Parameters
    ----------
    shape
        Of a row's array.
    lower, upper
        Of each number.
    whole
        Whether the numbers are integers, such as the positions of words in a vocabulary: others
        are rounded down.
    """

    document_key: ClassVar[str] = "tensor"

    shape: tuple[int, ...] = field(converter=_tensor_shape)
    lower: float = field(converter=_tensor_lower)
    upper: float = field(converter=_tensor_upper)
    whole: bool = False

    def __attrs_post_init__(self) -> None:
        sizes = [isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in self.shape]
        if not (0 < len(sizes) <= 8 and all(sizes) and math.prod(self.shape) < 2**31):
            raise DeclarationError(
                f"a tensor's shape must be some sizes such as (1, 28, 28), got {self.shape!r}"
            )
        Interval(self.lower, self.upper)
        if self.whole and not (
            isinstance(self.whole, bool) and self.lower == int(self.lower) < 2**53
        ):
            raise DeclarationError("a tensor of whole numbers needs whole bounds, such as (0, 999)")

    @property
    def bounds(self) -> Interval:
        """What each number lies in."""
        return Interval(self.lower, self.upper)

    @property
    def size(self) -> int:
        """The number of numbers in a row."""
        return math.prod(self.shape)

    def inside(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return rows of shape (m, ...) inside of the bounds, float32, or int64 of whole numbers.

        Each number by itself, as of `clipped`.
        """
        values = clipped(np.asarray(rows), self.bounds)
        return np.floor(values).astype(np.int64) if self.whole else values.astype(np.float32)

    def __str__(self) -> str:
        kind = "whole numbers" if self.whole else "numbers"
        return f"tensors of {'x'.join(map(str, self.shape))} {kind} in {self.bounds}"


def tensor(shape: Iterable[int], bounds: Any, *, whole: bool = False) -> Tensors:
    """Return the declaration of a column that has an array of numbers in each row.

    Parameters
    ----------
    shape
        Of a row's array, such as ``(1, 28, 28)`` of an image.
    bounds
        A pair (lower, upper) of each number; others count as the bound next to them.
    whole
        Whether the numbers are integers, such as positions of words.

    Raises
    ------
    DeclarationError
        If the shape is none, or the bounds are no pair of numbers.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> columns = {"image": dp.tensor((1, 28, 28), bounds=(0, 1)), "digit": range(10)}
    >>> print(columns["image"])
    tensors of 1x28x28 numbers in [0, 1]
    >>> dp.dataset("images", columns=columns).count()
    <private count>
    """
    both = interval(bounds)
    return Tensors(tuple(shape), both.lower, both.upper, whole)


Column = Interval | Dates | Categories | Strings | Tensors | None


def _are_dates(declared: tuple[Any, ...]) -> bool:
    if any(isinstance(v, datetime.date | np.datetime64) for v in declared):
        return True
    return bool(declared) and all(type(v) is str and not math.isnan(cells.day(v)) for v in declared)


def column(name: str, declared: Any) -> Column:
    """Return the domain of a column from bounds, a list of categories, a type, or None."""
    if declared is None or isinstance(declared, Interval | Categories | Strings | Tensors):
        return declared
    if isinstance(declared, range):
        declared = list(declared)
    if declared is str:
        return Strings()
    if isinstance(declared, tuple) and _are_dates(declared):
        if len(declared) != 2:
            raise DeclarationError(f"column {name!r}: dates have two bounds, got {declared!r}")
        try:
            return dates(*declared)
        except DeclarationError as error:
            raise DeclarationError(f"column {name!r}: {error}") from None
    if declared is bool:
        return Categories((False, True))  # equal to 0 and 1, as which they may be stored
    # a pair is always bounds: two categories must be a list
    if isinstance(declared, tuple) and len(declared) == 2:
        try:
            return Interval(*declared)
        except DeclarationError as error:
            # ("a", "b") was meant as categories
            has_strings = any(isinstance(v, str) for v in declared)
            hint = "; a pair is bounds, write categories as a list" if has_strings else ""
            raise DeclarationError(f"column {name!r}: {error}{hint}") from None
    if isinstance(declared, list | tuple) and not isinstance(declared, str):
        try:
            return Categories(tuple(declared))
        except DeclarationError as error:
            raise DeclarationError(f"column {name!r}: {error}") from None
    raise DeclarationError(
        f"column {name!r} must be declared by a pair of bounds such as (0, 100), a list of "
        "categories such as ['a', 'b'], a type (str or bool), or None for nothing, got "
        f"{declared!r}"
    )


def of_document(declared: Mapping[str, Any]) -> Any:
    """Return what `column` takes for a declaration in the form of documents and schemas.

    Parameters
    ----------
    declared
        ``{"bounds": [low, high]}``, ``{"dates": [first, last]}``, ``{"categories": [...]}``,
        ``{"type": "str"}`` or "bool", or ``{"tensor": [shape, low, high, whole]}``.
    """
    ((key, value),) = declared.items()
    if key == "tensor":
        if not (isinstance(value, list | tuple) and len(value) in (3, 4)):
            raise DeclarationError(
                f"a tensor is declared by [shape, low, high] and whether whole, got {value!r}"
            )
        return Tensors(*value)
    if key == "dates":
        return dates(*value)
    if key == "type":
        return {"str": str, "bool": bool}.get(value, value)
    # `column` tells bounds from categories by tuple or list
    return tuple(value) if key == "bounds" else list(value)


def columns(declared: Mapping[str, Any]) -> Mapping[str, Column]:
    """Return the domain of each column, by its name."""
    return {name: column(name, value) for name, value in declared.items()}


def refuse_unknown_keys(name: str, declared: Column, keys: Iterable[Any]) -> None:
    """Refuse keys that are not among the column's declared categories."""
    if isinstance(declared, Categories):
        categories = set(declared.values)  # a list would be searched for each of many keys
        unknown = [key for key in keys if not (isinstance(key, Hashable) and key in categories)]
        if unknown:
            raise DeclarationError(
                f"column {name!r} has no category {', '.join(map(repr, unknown[:3]))}; it declares "
                f"{list(declared.values)[:8]}"
            )
    if isinstance(declared, Interval):
        strings = [key for key in keys if isinstance(key, str)]
        if strings:
            raise DeclarationError(
                f"column {name!r} holds numbers, so no row has the value {strings[:1]}"
            )
    if isinstance(declared, Tensors):
        raise DeclarationError(f"column {name!r} holds tensors, which have no keys")
    if isinstance(declared, Strings):
        others = [key for key in keys if not isinstance(key, str)]
        if others:
            raise DeclarationError(
                f"column {name!r} holds str, so no row has the value {others[0]!r}; write it as a "
                "str"
            )


def refuse_text_categories(name: str, declared: Column) -> None:
    """Refuse a column of str, or with a str among its categories, where numbers are needed."""
    if isinstance(declared, Strings):
        raise DeclarationError(
            f"column {name!r} holds str, not numbers; use keys=[...], or declare bounds"
        )
    if isinstance(declared, Categories) and any(isinstance(v, str) for v in declared.values):
        raise DeclarationError(
            f"column {name!r} holds categories, not numbers; use its keys, or declare bounds"
        )


@frozen
class Table:
    """The domain of a table: its declared columns, and whom it protects.

    Parameters
    ----------
    name
        The data set's.
    columns
        The domain of each declared column.
    neighbors
        The neighbour relation.
    unit
        The column that identifies the protected unit; None where each row is a unit.
    size
        The public number of units, where declared and still valid, and each has one row.
    complete
        The columns that have a value in every row, since missing ones were filled.
    units
        The public number of units that may have several rows each, where declared and still valid:
        `uncounted` makes both None.
    """

    name: str
    columns: Mapping[str, Column]
    neighbors: Neighbors
    unit: str | None = None
    size: int | None = None
    complete: frozenset[str] = frozenset()
    units: int | None = None

    @property
    def public_units(self) -> int | None:
        """The public number of units, however many rows each has; None where it is private."""
        return self.size if self.units is None else self.units

    def uncounted(self) -> Table:
        """Return the table of some of the rows: how many units these have is private."""
        return evolve(self, size=None, units=None)

    def interval(self, name: str) -> Interval:
        """Return the bounds of a column.

        Raises
        ------
        DeclarationError
            If there is no such column, or it has no bounds.
        """
        declared = self.find(name)
        if isinstance(declared, Categories | Strings | Tensors):
            raise DeclarationError(
                f"column {name!r} of {self.name!r} is declared as {declared}, where numbers in "
                f"bounds are needed; if it holds numbers, declare columns={{{name!r}: (low, high)}}"
            )
        if declared is None:
            raise DeclarationError(
                f"column {name!r} of {self.name!r} has no bounds, so its sensitivity is infinite; "
                f"declare columns={{{name!r}: (low, high)}}"
            )
        return declared.numbers

    def check_bounds(self, name: str, bounds: Interval) -> None:
        """Refuse bounds of a plan document that are not those that the column declares."""
        if bounds != self.interval(name):
            raise DeclarationError(
                f"the bounds of {name!r} must be those that {self.name!r} declares"
            )

    def find(self, name: str) -> Column:
        """Return the declaration of a column, or raise for one that is not declared."""
        if not isinstance(name, str) or name not in self.columns:
            raise DeclarationError(
                f"{self.name!r} declares no column {name!r}; it declares {list(self.columns)}"
            )
        return self.columns[name]


@frozen
class Values:
    """The domain of a column: one value for each row.

    Parameters
    ----------
    of
        The column's name.
    column
        Its interval, categories or type; None for nothing.
    neighbors, size
        Of its table.
    missing
        Whether a row may have no value.
    """

    of: str
    column: Column
    neighbors: Neighbors
    size: int | None
    missing: bool = True


@frozen
class Ball:
    """The domain of vectors: one for each row, of Euclidean norm at most ``radius``.

    Parameters
    ----------
    names
        The coordinates'.
    radius
        R.
    table
        That the rows are of.
    sides
        What each coordinate lies in besides, 0 among it; empty where only R is known.
    """

    names: tuple[str, ...]
    radius: float
    table: Table
    sides: tuple[Interval, ...] = ()

    @property
    def width(self) -> int:
        """The number of coordinates."""
        return len(self.names)


@frozen
class Parts:
    """The domain of a partition: the table that each of its parts is, and their keys."""

    table: Table
    keys: tuple[Any, ...]
    whole_units: bool


# -----------------------------------------------------------------------------
# Distances in rows, for queries that look at single rows and not at sums.


def row_steps(kind: str, change: Change, norm: float, exchange: bool) -> float:
    """Return how many changed rows one unit's change is, for a query that counts them.

    A *step* adds or removes one row, or (``exchange``) exchanges one row for another. A unit of up
    to r rows that *appears or vanishes* is r steps of the first kind. One that is *exchanged*, a
    rows for b, is a + b of them; it is r steps of the second kind, but only where it has exactly r
    rows before and after: in a part of a partition, under a filter or a bound on contributions the
    number of its rows may change with it.

    Parameters
    ----------
    kind
        The query's, for messages.
    change
        The change as it arrives at the query.
    norm
        Must be 0, which counts rows.
    exchange
        Whether a step exchanges a row, or adds or removes one.

    Raises
    ------
    DeclarationError
        If the norm is not 0, or rows are to be exchanged one by one where their number may change.
    """
    if norm != 0:
        raise DeclarationError(
            f"a {kind} says how many rows change, not how far it moves: its mechanisms declare "
            f"norm 0, got norm {norm!r}"
        )
    # a rows exchanged for b: a removed and b added
    if not exchange:
        return float(change.both)
    # a rows against b != a cannot be paired, so no number of exchanges leads from D to D'
    if not (change.replaced and change.fixed):
        raise DeclarationError(
            f"this {kind} exchanges rows one by one, but here their number may change: a unit may "
            "enter or leave a part or a filter, or have fewer rows; use exchange=False where the "
            "query has it, or ask it of the whole replace_one table, whose rows are the units"
        )
    # rows before and after are paired, r of each
    return float(change.rows)


def keeps_row_count(handle: Handle) -> bool:
    """Return whether one unit's change leaves the number of rows of ``handle`` as it is."""
    first, *chain = lineage(handle)
    if not isinstance(first.operation, SourceOperation):
        return False
    change = first.operation.initial()
    # the stabilities of the operations, composed from the source to the handle
    for step in chain:
        change = step.operation.change(change)
    # rows exchanged for equally many; any other change may alter their number
    return change.replaced and change.fixed


def refuse_missing(query: str, values: Values, instead: str) -> None:
    """Refuse a column of which values may be missing, where a query needs one in each row.

    Parameters
    ----------
    instead
        What leaves missing values out.
    """
    if values.missing:
        of = values.of
        raise DeclarationError(
            f"{query} needs a value in each row, and values of {of!r} may be missing: impute them, "
            f"by table[{of!r}].fill(value), or leave them out, {instead}"
        )


def refuse_zero_out(kind: str, values: Values) -> None:
    """Refuse zero-out neighbours, which are defined for sums and not for single rows."""
    if values.neighbors == "zero_out":
        raise DeclarationError(
            f"a {kind} looks at rows, not at sums, so zero_out neighbours, whose rows count as "
            "zero in sums, mean nothing to it; declare neighbors='add_remove' or 'replace_one'"
        )


def check_declared(table: Table, name: str, declared: Mapping[str, Column]) -> None:
    """Refuse a node that has another declaration of a column than its table, such as of a document.

    Raises
    ------
    DeclarationError
        If so.
    """
    if name not in declared or declared[name] != table.find(name):
        raise DeclarationError(
            f"the column {name!r} must be declared as {table.name!r} declares it"
        )


# -----------------------------------------------------------------------------
# Columns, clipped to their bounds, and the lazily computed values of rows.


Floats = NDArray[np.float64]


@frozen
class Box:
    """Vectors whose every coordinate has declared bounds, so that no row's norm need be computed.

    Parameters
    ----------
    width
        d, the number of coordinates.
    longest
        An upper bound of the norm of the farthest corner; it depends on the plan alone.
    times
        Returns a block's vectors times a positive factor, in an array of its own of shape (d, m), a
        vector in each column: finite, of norm at most ``longest`` times the factor, whatever the
        data.
    """

    width: int
    longest: float
    times: Callable[[Columns, float], NDArray[np.float64]]


@frozen
class Selected:
    """Rows with a function that computes each row's value; nothing is computed yet.

    Parameters
    ----------
    rows
        The private rows.
    of
        From a block of columns to its rows' values, shape (m,) or (m, d).
    cache
        Sums over all rows that several queries need, by a key of each query.
    box
        For vectors of bounded columns that nothing has changed since; otherwise None.
    """

    rows: Rows
    of: Callable[[Columns], Any]
    cache: dict[Any, Any] = field(factory=dict, eq=False, repr=False)
    box: Box | None = None


@frozen
class ColumnValues(RowFunction):
    """A column of a block, as it is."""

    name: str

    def __call__(self, columns: Columns) -> NDArray[Any]:
        """Return the column."""
        return columns[self.name]


@frozen
class ClippedValues(RowFunction):
    """Values of a block, clipped to bounds; what is missing stays missing."""

    of: Callable[[Columns], NDArray[Any]]
    bounds: Interval

    def __call__(self, columns: Columns) -> Floats:
        """Return the values inside of the bounds, NaN where they are missing."""
        return np.clip(numbers(once(columns, self.of)), self.bounds.lower, self.bounds.upper)


class SumOverRows(Query):
    """Base of the queries that add up integers over the rows and release a function of the total.

    `block` maps a block of rows to integers, each row by itself; the integers of all blocks are
    added, exactly and so in any order; `finish` makes the query's value of the total.
    """

    def block(self, value: Any) -> Callable[[Columns], Integers]:
        """Return what a block of rows adds; ``value`` is the value of the query's input.

        It is `Cells`, or a function of a block that returns integers of shape (k,).
        """
        raise NotImplementedError

    def finish(self, total: NDArray[Any]) -> Any:
        """Return the query's value from the total, an array of shape (k,): see `RowSum`."""
        return np.asarray(total, dtype=np.float64)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum of `block` over the rows of the input: a table's rows, or `Selected`."""
        value = inputs[0]
        rows: Rows = value.rows if isinstance(value, Selected) else value
        return RowSum(rows, self.block(value), self.finish)


@frozen
class ColumnOf(Operation):
    """A column of a table; queries clip its values to the declared bounds when they read them."""

    kind: ClassVar[str] = "column"
    input_type: ClassVar[type] = Table
    column_fields: ClassVar[tuple[str, ...]] = ("name",)
    is_rowwise: ClassVar[bool] = True

    name: str

    def label(self) -> str:
        """Return the column's name."""
        return self.name

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the declared bounds or categories."""
        table = inputs[0]
        missing = self.name not in table.complete
        if isinstance(table.find(self.name), Tensors):
            raise DeclarationError(
                f"column {self.name!r} of {table.name!r} holds tensors, which a network of "
                "dp.torch.Training reads; queries read columns of single values"
            )
        return Values(self.name, table.find(self.name), table.neighbors, table.size, missing)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the column as it is; `clipped` bounds it."""
        return Selected(inputs[0], ColumnValues(self.name))


def _clip_lower(value: Any) -> float:
    return finite_float("clip's lower bound", value)


def _clip_upper(value: Any) -> float:
    return finite_float("clip's upper bound", value)


@frozen
class Clip(Operation):
    """A column clipped to [lower, upper]: smaller values become lower, larger ones upper."""

    kind: ClassVar[str] = "clip"
    input_type: ClassVar[type] = Values
    column_fields: ClassVar[tuple[str, ...]] = ()
    is_rowwise: ClassVar[bool] = True

    lower: float = field(converter=_clip_lower)
    upper: float = field(converter=_clip_upper)

    def label(self) -> str:
        """Return the bounds."""
        return f"clip to {Interval(self.lower, self.upper)}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the values with the new bounds."""
        values: Values = inputs[0]
        refuse_text_categories(values.of, values.column)
        return evolve(values, column=Interval(self.lower, self.upper))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the clipped values."""
        selected, bounds = inputs[0], Interval(self.lower, self.upper)
        return Selected(selected.rows, ClippedValues(selected.of, bounds))


def clipped(values: NDArray[Any], bounds: Interval) -> Floats:
    """Return the values inside the bounds; NaN becomes the point next to 0."""
    floats = numbers(values)
    filled = np.where(np.isnan(floats), 0.0, floats)
    return np.clip(filled, bounds.lower, bounds.upper)


def numbers(values: NDArray[Any]) -> Floats:
    """Return a column as floats; of an array of objects NaN for each that is not a number.

    Of an array of dates the days since 1970-01-01.

    Raises
    ------
    DataError
        If the array's dtype is not numeric. An array of str is refused by its dtype alone, even if
        all its values look like numbers, so that whether the run fails does not depend on them.
    """
    if values.dtype == np.float64:
        return values
    if isinstance(values, DictionaryColumn):
        return values.of_values(cells.numbers)
    if values.dtype.kind == "O":
        return cells.numbers(values.tolist())
    if values.dtype.kind == "M":
        return cells.days_of_array(values)
    # bool, signed and unsigned integers, floats; str and complex are refused
    if values.dtype.kind not in "biuf":
        raise DataError(f"a column must be numeric here, got {array_kind(values)}")
    # long doubles may overflow to inf, and a warning would depend on the data
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64)
