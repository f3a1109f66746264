"""Joins with public tables: more columns of each row, looked up by one of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.cells import Dictionary, DictionaryColumn, identity
from adaptive_dp.data.scan import ComputedRows, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.values import as_tuple, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Categories, Column, ColumnValues, Interval, Table
from adaptive_dp.queries.expressions import holds_strings
from adaptive_dp.queries.transforms import KeyIndex

MOST_CELLS = 10**6
"""The largest number of cells of a public table, all of which plan documents hold."""


@frozen
class LookedUp(RowFunction):
    """A column of a public table, for the row of each key; missing where there is none."""

    index: KeyIndex
    values: tuple[Any, ...]

    @cached_property
    def _numbers(self) -> NDArray[np.float64]:
        # index -1, of a row without a match, is the last
        cells = [np.nan if value is None else float(value) for value in self.values]
        return np.array([*cells, np.nan])

    @cached_property
    def _dictionary(self) -> Dictionary:
        return Dictionary(self.values)

    def __call__(self, columns: Columns) -> NDArray[Any]:
        """Return the values."""
        index = once(columns, self.index)
        if any(isinstance(value, str) for value in self.values):
            # it stands for an array of objects wherever one is read
            return cast(NDArray[Any], DictionaryColumn(index, self._dictionary))
        return np.asarray(self._numbers[index])


def _value_tuples(values: Any) -> tuple[tuple[Any, ...], ...]:
    return tuple(as_tuple(each) for each in as_tuple(values))


@frozen
class Join(Operation):
    """A table with columns of a public one, looked up by a column that both have.

    Each row gets the values of the one public row with its key, or missing values. They depend on
    that row and on public values alone, so the stability is 1: a unit has as many rows as before.

    Parameters
    ----------
    on
        The column by which rows are looked up.
    keys
        The public table's values of it, which differ from each other.
    names, values
        Its other columns: numbers, truth values or str, or None where one is missing. As they are
        public, so are their bounds and categories.
    """

    kind: ClassVar[str] = "join"
    column_fields: ClassVar[tuple[str, ...]] = ()  # of what is looked up, what is read is read
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    on: str
    keys: tuple[Any, ...] = field(converter=as_tuple)
    names: tuple[str, ...] = field(converter=strings)
    values: tuple[Any, ...] = field(converter=_value_tuples)

    def label(self) -> str:
        """Return the columns."""
        return f"{', '.join(self.names[:3])}{', ...' if len(self.names) > 3 else ''} by {self.on}"

    def detail(self) -> str:
        """Return the number of keys."""
        return f"{len(self.keys):,} keys"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table with the columns of the public one."""
        table: Table = inputs[0]
        declared = table.find(self.on)
        if not (0 < len(self.names) == len(self.values)):
            raise DeclarationError("a join needs a column beside the one that it is made by")
        sizes = {len(self.keys), *map(len, self.values)}
        if len(sizes) != 1 or 0 in sizes:
            raise DeclarationError(
                "the columns of a joined table must be of one length, at least 1"
            )
        if len(self.keys) * (len(self.names) + 1) > MOST_CELLS:
            raise DeclarationError(
                f"a joined table has at most {MOST_CELLS:,} cells, since they stand in the plan's "
                f"document, got {len(self.keys) * (len(self.names) + 1):,}"
            )
        _check_keys(self.on, self.keys, declared)
        taken = [name for name in self.names if name in table.columns or name == table.unit]
        if taken or len(set(self.names)) != len(self.names):
            raise DeclarationError(
                f"the joined table has a column {(taken or list(self.names))[0]!r}, and so has "
                f"{table.name!r}; rename it"
            )
        made = {
            name: _declaration(name, values)
            for name, values in zip(self.names, self.values, strict=True)
        }
        return evolve(table, columns={**table.columns, **made})

    def computed_columns(self) -> Mapping[str, frozenset[str]]:
        """Return the new columns, each with the one by which it is looked up."""
        return {name: frozenset({self.on}) for name in self.names}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows with the new columns; nothing is looked up yet."""
        index = KeyIndex(ColumnValues(self.on), self.keys)
        pairs = zip(self.names, self.values, strict=True)
        return ComputedRows(inputs[0], tuple((k, LookedUp(index, v)) for k, v in pairs))


def _check_keys(on: str, keys: tuple[Any, ...], declared: Column) -> None:
    Categories(keys) if len(set(keys)) == len(keys) else _refuse_repeated(on, keys)
    texts = sum(isinstance(key, str) for key in keys)
    if texts not in (0, len(keys)):
        raise DeclarationError(f"the keys {on!r} of a joined table must be all str or all numbers")
    if declared is not None and holds_strings(declared) != bool(texts):
        raise DeclarationError(
            f"column {on!r} holds {'str' if holds_strings(declared) else 'numbers'}, and the "
            f"joined table's keys are {'str' if texts else 'numbers'}, so no row would match"
        )


def _refuse_repeated(on: str, keys: tuple[Any, ...]) -> None:
    seen = set[Any]()
    for key in keys:
        if key in seen:
            raise DeclarationError(
                f"the joined table has two rows with {on} = {key!r}, so which of them a row gets "
                "is not said; leave one out"
            )
        seen.add(key)


def _declaration(name: str, values: tuple[Any, ...]) -> Column:
    """Return the domain of a public column: its own bounds or categories."""
    there = [value for value in values if value is not None]
    if not there:
        raise DeclarationError(f"the column {name!r} of the joined table has no value at all")
    if all(isinstance(value, str) for value in there):
        return Categories(tuple(sorted(set(there))))
    if all(isinstance(value, bool) for value in there):
        return Categories((False, True))
    if all(isinstance(value, int | float) for value in there):
        return Interval(min(map(float, there)), max(map(float, there)))
    raise DeclarationError(
        f"the column {name!r} of the joined table must hold numbers, truth values or str alone"
    )


def join_with(public: Any, on: str) -> Join:
    """Return the join with a public table.

    Parameters
    ----------
    public
        A mapping of names to lists, or a frame of pandas, polars or PyArrow.
    on
        The column of keys.

    Raises
    ------
    DeclarationError
        If it is no table, lacks the column, or has cells of other types.
    """
    columns = _columns(public)
    if on not in columns:
        raise DeclarationError(
            f"the joined table has no column {on!r} to join on; it has {list(columns)}"
        )
    names = [name for name in columns if name != on]
    keys = columns[on]
    if any(key is None for key in keys):
        raise DeclarationError(f"a key {on!r} of the joined table is missing; leave its row out")
    return Join(on, keys, tuple(names), tuple(columns[name] for name in names))


def _columns(public: Any) -> dict[str, tuple[Any, ...]]:
    """Return the columns of a public table as Python values, None where one is missing."""
    if hasattr(public, "to_pydict"):
        public = public.to_pydict()
    names = list(public) if isinstance(public, Mapping) else getattr(public, "columns", None)
    if names is None or not all(isinstance(name, str) for name in names):
        raise DeclarationError(
            "join takes a mapping of column names to lists, or a frame, got "
            f"{type(public).__name__}"
        )
    return {name: tuple(_cell(name, cell) for cell in _cells(public[name])) for name in names}


def _cells(column: Any) -> list[Any]:
    for method in ("to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(as_tuple(column))


def _cell(name: str, cell: Any) -> Any:
    plain = cell.item() if isinstance(cell, np.generic) else cell
    if identity(plain) is None:
        return None
    if not isinstance(plain, str | int | float):
        raise DeclarationError(
            f"the column {name!r} of the joined table holds a {type(plain).__name__}; convert it "
            "to numbers or str"
        )
    return plain
