"""Rows in memory: NumPy arrays, and any frame that narwhals reads."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import sampling
from adaptive_dp.data.cells import (
    check_column,
    column_types,
    columns_of,
    read_column,
    row_count,
    same_cells,
    str_codes,
    unit_codes,
)
from adaptive_dp.data.rows import BLOCK, Columns, Integers, Schema, SchemaError
from adaptive_dp.data.sampling import RandomSource
from adaptive_dp.data.scan import Batch, Filters, FunctionNames, Job, Scan

WIDE_BLOCK = 1000
"""Rows in a block of many columns; not a power of two, at which columns contend for cache lines."""


class ChosenColumns(Mapping[str, NDArray[Any]]):
    """Some rows of columns, each of which is copied when it is first read.

    Parameters
    ----------
    columns
        Arrays of equal length.
    keep
        Which rows, shape (rows,).
    """

    __slots__ = ("_columns", "_copies", "_rows")

    def __init__(self, columns: Columns, keep: NDArray[np.bool_]) -> None:
        self._columns = columns
        self._rows: NDArray[np.intp] = np.flatnonzero(keep)
        if isinstance(columns, ChosenColumns):
            # rows of the columns below: of several conditions in turn one copy is made
            self._columns, self._rows = columns._columns, columns._rows[self._rows]
        self._copies: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._copies:
            self._copies[name] = self._columns[name][self._rows]
        return self._copies[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)  # other rows are sent nowhere


@frozen(repr=False, eq=False)
class MemoryRows:
    """Columns in memory, with each row's unit as an integer.

    Parameters
    ----------
    columns
        Arrays of equal length.
    unit_numbers
        The unit of each row: shape (n,), int64, equal for rows of one unit. A range where each row
        is a unit of its own: an array of all rows' numbers would cost as much as a sum over them.
    """

    columns: Columns
    unit_numbers: Integers | range

    def __repr__(self) -> str:
        return "<private rows>"

    @cached_property
    def units(self) -> Integers:
        """The unit of each row, shape (n,)."""
        if isinstance(self.unit_numbers, range):
            return np.arange(self.unit_numbers.start, self.unit_numbers.stop, dtype=np.int64)
        return self.unit_numbers

    @property
    def length(self) -> int:
        """The number of rows."""
        return len(self.unit_numbers)

    def size(self) -> int:
        """Return the number of units."""
        if isinstance(self.unit_numbers, range):
            return self.length
        return len(np.unique(self.unit_numbers))

    def where(self, keep: Callable[[Columns], NDArray[np.bool_]]) -> FilteredRows:
        """Return the rows for which ``keep`` is True."""
        return FilteredRows(self, (keep,))

    def bound(self, rows: int) -> MemoryRows:
        """Return the first ``rows`` rows of each unit, in the data's order."""
        order = np.argsort(self.units, kind="stable")  # stable: "first" means the data's order
        keep = np.zeros(len(order), dtype=np.bool_)
        keep[order[_places(self.units[order]) < rows]] = True
        return self.take(keep)

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> MemoryRows:
        """Return, for each unit, its rows in its smallest part."""
        parts = np.asarray(part(self.columns), dtype=np.int64)
        if not len(parts):
            return self.take(np.ones(0, dtype=np.bool_))
        _, codes = np.unique(self.units, return_inverse=True)
        least = np.full(int(codes.max()) + 1, np.iinfo(np.int64).max)
        valid = parts >= 0
        np.minimum.at(least, codes[valid], parts[valid])
        return self.take(valid & (parts == least[codes]))

    def bound_groups(
        self, part: Callable[[Columns], NDArray[np.int64]], groups: int, rows: int
    ) -> MemoryRows:
        """Return the first rows of each unit in each of its first parts."""
        parts = np.asarray(part(self.columns), dtype=np.int64)
        return self.take(first_of_groups(self.units, parts, groups, rows))

    def among(self, units: Integers) -> MemoryRows:
        """Return the rows of some units.

        Always a copy: how long it takes must not tell whether all units were chosen.
        """
        keep = np.isin(self.units, units)
        return MemoryRows({k: v[keep] for k, v in self.columns.items()}, self.units[keep])

    def sample(self, rate: float, source: RandomSource) -> MemoryRows:
        """Return the rows of the units that are in a Poisson sample."""
        names, codes = np.unique(self.units, return_inverse=True)
        return self.take(sampling.poisson_sample(source, rate, len(names))[codes])

    @property
    def source(self) -> Any:
        """These rows: objects are equal to themselves alone."""
        return self

    @property
    def filters(self) -> Filters:
        """None: these are all rows."""
        return ()

    def scan(self, scan: Scan, columns: frozenset[str] | None) -> list[NDArray[Any]]:
        """Return the totals of a scan; columns that it does not read cost nothing here."""
        return [part for part in scan.of([(self.columns, self.length)]) if part is not None]

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks."""
        return np.asarray(self.scan(Scan([Job((), block)]), None)[0], dtype=object)

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return each row's number; the rows in memory are one block."""
        return block(self.columns)

    def strings(self, column: Callable[[Columns], NDArray[Any]]) -> tuple[list[str], Integers]:
        """Return the distinct str of a column, and each row's position among them."""
        return str_codes(column(self.columns))

    def integer_rows(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return each row's vector of integers."""
        result: NDArray[np.float32] | None = None
        size = WIDE_BLOCK if len(self.columns) > 50 else BLOCK
        for where, columns in self._blocks(size):
            vectors = block(columns)
            if result is None:
                result = np.empty((self.length, vectors.shape[1]), dtype=np.float32)
            result[where] = vectors
        assert result is not None
        return result

    def _blocks(self, size: int) -> Iterator[tuple[slice, Columns]]:
        """Yield each block's place and its columns: one empty block where there are no rows."""
        names = FunctionNames()
        for start in range(0, max(1, self.length), size):
            where = slice(start, min(start + size, self.length))
            yield where, Batch(self.columns, where.stop - start, names, where)

    def joined(self, other: MemoryRows) -> MemoryRows:
        """Return these rows with the columns of others beside their own.

        Raises
        ------
        SchemaError
            If the others are not as many.
        """
        if other.length != self.length:
            raise SchemaError("the columns differ in length")
        return MemoryRows({**self.columns, **other.columns}, self.unit_numbers)

    def widened(self, now: MemoryRows) -> MemoryRows | None:
        """Return these rows with copies of the columns of ``now`` that they lack.

        None if they are not the same rows any more: a column of both, or a unit, has changed.

        Parameters
        ----------
        now
            The same data, read again with more columns.
        """
        old = self.columns
        if isinstance(self.unit_numbers, range) or isinstance(now.unit_numbers, range):
            same = self.unit_numbers == now.unit_numbers
        else:
            same = np.array_equal(self.unit_numbers, now.unit_numbers)
        # rows without any column have one of zeros, which may be missing now
        if not (same and all(same_cells(old[k], now.columns[k]) for k in old if k)):
            return None
        return self.joined(now.only(k for k in now.columns if k not in old).copied())

    def copied(self) -> MemoryRows:
        """Return rows that no one else can change."""
        columns = {name: column.copy() for name, column in self.columns.items()}
        return MemoryRows(columns, copy(self.unit_numbers))

    def only(self, names: Iterable[str]) -> MemoryRows:
        """Return the same rows with some of the columns; without any, a column of zeros."""
        columns = {name: self.columns[name] for name in names}
        return MemoryRows(columns or {"": np.zeros(self.length)}, self.unit_numbers)

    def take(self, keep: NDArray[np.bool_]) -> MemoryRows:
        """Return the rows where ``keep``, shape (rows,), is true: other rows, even if all are."""
        # Other rows are other passes: their number must not tell whether all rows were selected.
        if keep.all():  # no copy: nothing ever writes to columns
            return MemoryRows(self.columns, self.unit_numbers)
        return MemoryRows(ChosenColumns(self.columns, keep), self.units[keep])


class FilteredRows:
    """The rows in memory that meet conditions.

    What is summed over them is computed block by block of all rows (`Scan`); for anything else the
    columns that are read are copied, once.

    Parameters
    ----------
    base
        All rows.
    filters
        The conditions, applied in order.
    """

    def __init__(self, base: MemoryRows, filters: Filters) -> None:
        self.base, self.filters = base, filters

    def __repr__(self) -> str:
        return "<private rows>"

    @cached_property
    def taken(self) -> MemoryRows:
        """The rows themselves."""
        rows = self.base
        for keep in self.filters:
            rows = rows.take(np.asarray(keep(rows.columns), dtype=np.bool_))
        return rows

    @property
    def columns(self) -> Columns:
        """Arrays of equal length."""
        return self.taken.columns

    @property
    def units(self) -> Integers:
        """The unit of each row, shape (n,)."""
        return self.taken.units

    @property
    def source(self) -> Any:
        """All rows, before the conditions."""
        return self.base.source

    def size(self) -> int:
        """Return the number of units."""
        return self.taken.size()

    def where(self, keep: Callable[[Columns], NDArray[np.bool_]]) -> FilteredRows:
        """Return the rows for which ``keep`` is True."""
        return FilteredRows(self.base, (*self.filters, keep))

    def bound(self, rows: int) -> MemoryRows:
        """Return the first ``rows`` rows of each unit, in the data's order."""
        return self.taken.bound(rows)

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> MemoryRows:
        """Return, for each unit, its rows in its smallest part."""
        return self.taken.gather(part)

    def bound_groups(
        self, part: Callable[[Columns], NDArray[np.int64]], groups: int, rows: int
    ) -> MemoryRows:
        """Return the first rows of each unit in each of its first parts."""
        return self.taken.bound_groups(part, groups, rows)

    def among(self, units: Integers) -> MemoryRows:
        """Return the rows of some units."""
        return self.taken.among(units)

    def sample(self, rate: float, source: RandomSource) -> MemoryRows:
        """Return the rows of the units that are in a Poisson sample."""
        return self.taken.sample(rate, source)

    def scan(self, scan: Scan, columns: frozenset[str] | None) -> list[NDArray[Any]]:
        """Return the totals of a scan of all rows."""
        return self.base.scan(scan, columns)

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks."""
        return self.taken.total(block)

    def values(self, block: Callable[[Columns], NDArray[np.float64]]) -> NDArray[np.float64]:
        """Return each row's number."""
        return self.taken.values(block)

    def strings(self, column: Callable[[Columns], NDArray[Any]]) -> tuple[list[str], Integers]:
        """Return the distinct str of a column, and each row's position among them."""
        return self.taken.strings(column)

    def integer_rows(self, block: Callable[[Columns], NDArray[Any]]) -> NDArray[np.float32]:
        """Return each row's vector of integers."""
        return self.taken.integer_rows(block)


def stored_column(rows: Any, name: str) -> tuple[NDArray[Any], Integers | None]:
    """Return a column as it is stored, and the places of these rows in it; None for all.

    So a few of the rows can be read, of a memory map too, without a copy of the others.

    Parameters
    ----------
    rows
        In memory, filtered or not.
    name
        Of a column that is stored, not computed.

    Raises
    ------
    SchemaError
        If the rows are not in memory.
    """
    if isinstance(rows, FilteredRows):
        rows = rows.taken
    if not isinstance(rows, MemoryRows):
        raise SchemaError(f"column {name!r} can be read from arrays in memory only")
    columns = rows.columns
    if isinstance(columns, ChosenColumns):
        return columns._columns[name], np.asarray(columns._rows, dtype=np.int64)
    return columns[name], None


def first_of_groups(units: Integers, parts: Integers, groups: int, rows: int) -> NDArray[np.bool_]:
    """Return which rows are among the first of their unit in one of its first parts.

    Parameters
    ----------
    units, parts
        Of each row, shape (n,), in the data's order; a part of -1 is none.
    groups, rows
        How many parts of a unit, and how many rows in each.
    """
    keep = np.zeros(len(units), dtype=np.bool_)
    inside = np.flatnonzero(parts >= 0)
    # stable: the rows of a unit in a part are in the data's order
    order = inside[np.lexsort((parts[inside], units[inside]))]
    in_group = _places(units[order], parts[order])
    begins = in_group == 0
    # a unit's parts in the order in which each occurs first
    first = order[begins]
    by_unit = np.lexsort((first, units[first]))
    place = np.empty(len(first), dtype=np.int64)
    place[by_unit] = _places(units[first][by_unit])
    # each row's group is the one that began last
    of_row = place[np.cumsum(begins) - 1]
    keep[order[(in_group < rows) & (of_row < groups)]] = True
    return keep


def _places(*keys: Integers) -> Integers:
    """Return each row's place, from 0 on, among the rows next to it whose keys are the same."""
    index = np.arange(len(keys[0]))
    begins = np.ones(len(index), dtype=np.bool_)
    begins[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return np.asarray(index - np.maximum.accumulate(np.where(begins, index, 0)))


def table_rows(data: Any, schema: Schema) -> MemoryRows:
    """Return a table in memory as rows: a mapping of columns, a structured array, or a frame.

    Parameters
    ----------
    data
        A mapping of column names to lists or one-dimensional arrays, a NumPy structured array, or
        any eager frame that narwhals knows (pandas, polars, PyArrow).
    schema
        What is read. Rows without an identifier of their unit are dropped: they cannot be told
        apart.

    Raises
    ------
    SchemaError
        If a column is missing, is not one-dimensional or not of its type, or the lengths differ.
    """
    unit, needed, wanted = schema.unit, schema.needed, schema.declared_with_unit
    table = columns_of(data, list(wanted))
    refuse_missing("the data", wanted, table)
    arrays: dict[str, NDArray[Any]] = {}
    lengths: list[int] = []
    types = {} if needed is None else column_types(data)
    checked, empty = set[Any](), dict[Any, NDArray[Any]]()
    for name, reading in schema.columns.items():
        kind = (types.get(name), reading)
        if needed is None or name in needed:
            # without rows, columns that are read alike are equal: a file's schema is such a table
            arrays[name] = empty[kind] if kind in empty else read_column(table[name], name, reading)
            lengths.append(len(arrays[name]))
            if name in types and not lengths[-1]:
                empty[kind] = arrays[name]
        elif name not in types or kind not in checked:
            lengths.append(check_column(table[name], name, reading))
            checked.add(kind)
    codes: Integers | range = range(lengths[0] if lengths else row_count(data))
    if unit is not None:
        codes = unit_codes(read_column(table[unit], unit, "value"))
    if len({*lengths, len(codes)}) > 1:
        raise SchemaError("the columns differ in length")
    # a table without columns still has rows to count
    rows = MemoryRows(arrays or {"": np.zeros(len(codes))}, codes)
    return rows if unit is None else rows.take(rows.units >= 0)


def refuse_missing(data: str, wanted: Iterable[str], names: Container[str]) -> None:
    """Refuse data without one of the columns that are read."""
    missing = [name for name in wanted if name not in names]
    if missing:
        listed = ", ".join(map(repr, missing))
        raise SchemaError(f"{data} has no column {listed}; each declared column must be there")
