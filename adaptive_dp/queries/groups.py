"""Queries by group: one vector with an entry for each key, and not a query for each part.

The keys of a grouping are declared: categories or bins of each column, and for several columns all
combinations of them, in row-major order (the last column's keys change fastest). A row is in the
one cell that its keys name, or in none. A query by group is the vector of all cells, released by
one mechanism with one draw of noise: parallel composition is the sensitivity of that vector.

**Sensitivities.** Let K be the set of what one row can add to the vector: ``v e_c`` for a cell c
and a value v in the declared box, or 0 for a row that is in no cell. A unit's rows may lie in
different cells.

* It *appears or vanishes* with up to r rows: the vector moves by a sum of r elements of K, so of
  ``r conv(K)``.
* It is *exchanged*, a rows for b: by the difference of a point of ``b conv(K)`` and one of
  ``a conv(K)``, where ``r = max(a, b)`` is `Change.rows` and ``a + b`` is `Change.both`.

A norm is convex, so it is largest at extreme points of these sets, which are multiples of elements
of K: all rows of one side are alike. So only two cases have to be compared: the two sides meet in
one cell, or they are in different ones. Where they are in different ones, each adds its own norm.

**Bounded groups.** With at most k groups of a unit, and at most m rows in each (`BoundGroups`), a
side has up to ``min(n, k m)`` rows. The norm is convex in the numbers of rows by cell too, so it is
largest where either side fills cells of m rows, and has the rest in one more: what remains is which
of the cells of the two sides are the same, and these cases are compared.

**Keys that are not declared.** Of one column of str the keys may be left to the data. Then which
keys there are is private, and the query is a map from keys to numbers of rows (`CountRows`) or of
units (`CountUnits`), for mechanisms that release keys (see
`adaptive_dp.mechanisms.partition_selection`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.numerics import ceiling, up
from adaptive_dp.data import Columns, Rows, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import Cells, RowFunction, RowSum, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Average,
    BoundOperation,
    Private,
    PrivateQuery,
    Released,
    lineage,
    post,
)
from adaptive_dp.graph.mechanism import Mechanism, UnitsByKey
from adaptive_dp.graph.operation import Change, Contributions, Operation, Query
from adaptive_dp.graph.outputs import varies
from adaptive_dp.graph.values import as_tuple, number, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.aggregates import Aggregate
from adaptive_dp.queries.counts import counts_of_population
from adaptive_dp.queries.domains import (
    Categories,
    ColumnOf,
    ColumnValues,
    Floats,
    Interval,
    Strings,
    SumOverRows,
    Table,
    edges_of,
    interval,
    intervals,
    refuse_text_categories,
    refuse_unknown_keys,
)
from adaptive_dp.queries.expressions import Expression, Where, WithColumns
from adaptive_dp.queries.order_statistics import with_ends
from adaptive_dp.queries.sums import (
    Steps,
    averages_of_population,
    bounded,
    far_bound,
    refuse_narrow,
    scale_noise,
)
from adaptive_dp.queries.transforms import BinIndex, KeyIndex, bins, check_edges

S = TypeVar("S")

LIMIT = 2**24
"""The largest number of entries of a query by group."""

# -----------------------------------------------------------------------------
# Keys, and the cell of a row.


def _edges(values: Any) -> tuple[float, ...]:
    return edges_of(values) or ()


@frozen
class Edges:
    """Bins of a numeric column, as keys: the last one is closed.

    Parameters
    ----------
    values
        Ascending numbers, n + 1 of them for n bins.
    """

    document_key: ClassVar[str] = "edges"

    values: tuple[float, ...] = field(converter=_edges)

    def __attrs_post_init__(self) -> None:
        check_edges("a column", self.values)


@frozen(eq=False, repr=False, slots=False)
class Keys(Sequence[Any]):
    """The keys of a grouping in the order of its cells: a product that is not written out.

    Parameters
    ----------
    axes
        The keys of each column.

    Examples
    --------
    >>> keys = Keys((("A", "B"), (2020, 2021, 2022)))
    >>> len(keys), keys[1], keys[-1]
    (6, ('A', 2021), ('B', 2022))
    >>> keys.index(("B", 2020))
    3
    >>> list(Keys((("A", "B"),)))
    ['A', 'B']
    """

    axes: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return math.prod(map(len, self.axes))

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    def __getitem__(self, index: int | slice) -> Any:
        count = len(self)
        if isinstance(index, slice):
            return [self[i] for i in range(count)[index]]
        if not -count <= index < count:
            raise IndexError(f"there are {count} keys, and none has the position {index}")
        rest, key = index % count, []
        for axis in reversed(self.axes):
            rest, place = divmod(rest, len(axis))
            key.append(axis[place])
        return key[0] if len(key) == 1 else tuple(reversed(key))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.axes[0]) if len(self.axes) == 1 else product(*self.axes)

    def __contains__(self, key: Any) -> bool:
        return self._find(key) is not None

    def index(self, key: Any, start: int = 0, stop: int | None = None) -> int:
        """Return a key's position.

        Raises
        ------
        ValueError
            If it is not among the keys.
        """
        place = self._find(key)
        if place is None or not start <= place < (len(self) if stop is None else stop):
            raise ValueError(f"{key!r} is not among the keys")
        return place

    def __repr__(self) -> str:
        if len(self) <= 6:
            return repr(list(self))
        first, last = (", ".join(map(repr, self[part])) for part in (slice(3), slice(-2, None)))
        return f"<{len(self):,} keys: {first}, ..., {last}>"

    @cached_property
    def _positions(self) -> list[dict[Any, int]]:
        return [{key: i for i, key in enumerate(axis)} for axis in self.axes]

    def _find(self, key: Any) -> int | None:
        parts = key if isinstance(key, tuple) and len(self.axes) > 1 else (key,)
        if len(parts) != len(self.axes):
            return None
        result = 0
        for value, positions in zip(parts, self._positions, strict=True):
            try:
                place = positions.get(value)
            except TypeError:  # what cannot be hashed is not a key
                return None
            if place is None:
                return None
            result = result * len(positions) + place
        return result


@frozen(eq=False, slots=False)
class _Entries(Sequence[Any]):
    """What the entries of a query's vector stand for: keys, or keys with each column's name."""

    keys: Keys
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys) * max(1, len(self.names))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        if not self.names:
            return self.keys[index]
        cell, place = divmod(range(len(self))[index], len(self.names))
        key = self.keys[cell]
        return (*(key if isinstance(key, tuple) else (key,)), self.names[place])


@frozen
class ProductIndex(RowFunction):
    """The cell of each row: its keys' positions as the digits of a number; -1 where one is -1."""

    indices: tuple[RowFunction, ...]
    sizes: tuple[int, ...]

    def __call__(self, columns: Columns) -> Integers:
        """Return the cells."""
        first, *rest = (once(columns, index) for index in self.indices)
        cell, outside = first, first < 0
        for position, size in zip(rest, self.sizes[1:], strict=True):
            cell = cell * size + position
            outside = outside | (position < 0)
        return np.where(outside, -1, cell)


# -----------------------------------------------------------------------------
# The transform.


@frozen
class GroupedTable:
    """The domain of a grouping: its table, and the keys of each column.

    Parameters
    ----------
    table
        The table's domain; how many of its rows are in a cell is private.
    by
        The columns.
    keys
        The keys of all cells.
    most
        How many cells a unit may have rows in, and how many rows in each; None for any.
    """

    table: Table
    by: tuple[str, ...]
    keys: Keys
    most: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """The number of cells."""
        return len(self.keys)


@frozen
class UndeclaredKeys:
    """The domain of a grouping by a column of str whose keys are not declared.

    Parameters
    ----------
    table
        The table's domain.
    name
        The column.
    """

    table: Table
    name: str


@frozen
class GroupedRows:
    """The value of a grouping: rows, and the function that gives each row's cell.

    Parameters
    ----------
    rows, index, count
        The rows, the function, and the number of cells.
    sizes
        How many keys each column has, by its name.
    """

    rows: Rows
    index: RowFunction
    count: int
    sizes: Mapping[str, int] = field(factory=dict)


@frozen
class StringsOfRows:
    """The value of a grouping without declared keys: rows, and the column of str."""

    rows: Rows
    name: str


def _keys_of(values: Any) -> tuple[Any, ...]:
    return as_tuple(values)


@frozen
class GroupBy(Operation):
    """The rows of a table with the cell of each: see the module.

    A row's cell depends on that row alone, so the stability is 1. A unit may have any number of
    rows in the cells, since a row whose keys are not declared is in none.

    Parameters
    ----------
    by
        The columns.
    keys
        For each column its categories, or the edges of its bins; of a single column `Strings` where
        they are not declared.
    """

    kind: ClassVar[str] = "group_by"
    column_fields: ClassVar[tuple[str, ...]] = ("by",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    by: tuple[str, ...] = field(converter=strings)
    keys: tuple[Categories | Edges | Strings, ...] = field(converter=_keys_of)

    def label(self) -> str:
        """Return the columns."""
        return f"group by {', '.join(self.by)}"

    def detail(self) -> str:
        """Return the number of cells."""
        return "keys not declared" if self._undeclared else f"{self._count:,} cells"

    def domain(self, inputs: Sequence[Any]) -> GroupedTable | UndeclaredKeys:
        """Return the grouped table; check the columns and their keys."""
        table: Table = inputs[0]
        if not (0 < len(self.by) == len(self.keys)):
            raise DeclarationError(
                f"group_by needs a column at least, and keys or edges for each, got {self.by!r} "
                f"and {len(self.keys)} of those; write table.group_by('region')"
            )
        if len(set(self.by)) != len(self.by):
            raise DeclarationError(f"group_by needs different columns, got {list(self.by)!r}")
        if self._undeclared:
            return self._undeclared_keys(table)
        for name, keys in zip(self.by, self._declared_keys, strict=True):
            declared = table.find(name)
            if isinstance(keys, Edges):
                check_edges(name, keys.values)
                refuse_text_categories(name, declared)
            elif keys is not declared:
                refuse_unknown_keys(name, declared, keys.values)
        _refuse_many(self._count, 1)
        axes = tuple(
            bins(name, keys.values) if isinstance(keys, Edges) else keys.values
            for name, keys in zip(self.by, self._declared_keys, strict=True)
        )
        return GroupedTable(table.uncounted(), self.by, Keys(axes))

    def _undeclared_keys(self, table: Table) -> UndeclaredKeys:
        """Return the domain of one column of str; of several the keys must be declared."""
        for name, keys in zip(self.by, self.keys, strict=True):
            if isinstance(keys, Strings) and len(self.by) > 1:
                raise DeclarationError(
                    f"column {name!r} declares no categories, and with several columns keys must "
                    f"be declared; pass keys={{{name!r}: [...]}}, for example those that a count "
                    f"by {name!r} alone has released"
                )
            if not isinstance(table.find(name), Strings):
                raise DeclarationError(
                    f"keys can be left to the data for a column of str alone, and {name!r} is "
                    f"declared as {table.find(name)}; declare columns={{{name!r}: str}}"
                )
        return UndeclaredKeys(table.uncounted(), self.by[0])

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may have rows in no cell."""
        return evolve(change, fixed=False)

    @property
    def index(self) -> RowFunction:
        """The function that gives each row's cell, -1 for none."""
        indices: tuple[RowFunction, ...] = tuple(
            BinIndex(ColumnValues(name), keys.values)
            if isinstance(keys, Edges)
            else KeyIndex(ColumnValues(name), keys.values)
            for name, keys in zip(self.by, self._declared_keys, strict=True)
        )
        return indices[0] if len(indices) == 1 else ProductIndex(indices, self._sizes)

    def run(self, inputs: Sequence[Any], stream: Stream) -> GroupedRows | StringsOfRows:
        """Return the rows with the function that gives each row's cell."""
        if self._undeclared:
            return StringsOfRows(inputs[0], self.by[0])
        sizes = dict(zip(self.by, self._sizes, strict=True))
        return GroupedRows(inputs[0], self.index, self._count, sizes)

    @property
    def _undeclared(self) -> bool:
        return any(isinstance(each, Strings) for each in self.keys)

    @property
    def _declared_keys(self) -> tuple[Categories | Edges, ...]:
        return tuple(each for each in self.keys if not isinstance(each, Strings))

    @property
    def _sizes(self) -> tuple[int, ...]:
        return tuple(len(each.values) - isinstance(each, Edges) for each in self._declared_keys)

    @property
    def _count(self) -> int:
        return math.prod(self._sizes)


@frozen
class BoundGroups(Operation):
    """At most ``groups`` groups of each unit, and at most ``rows`` of its rows in each.

    The first in the data's order: which of a unit's rows they are depends on that unit's rows
    alone, so one unit still changes only its own rows, and no more groups than these.

    Parameters
    ----------
    groups
        How many cells a unit may have rows in.
    rows
        How many rows it may have in each.
    """

    kind: ClassVar[str] = "bound_groups"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = GroupedTable
    is_rowwise: ClassVar[bool] = True
    makes_rows: ClassVar[bool] = True

    groups: int = field(converter=number)
    rows: int = field(converter=number)

    def __attrs_post_init__(self) -> None:
        for name, value in (("max_groups", self.groups), ("max_rows", self.rows)):
            is_count = isinstance(value, int) and not isinstance(value, bool)
            if not (is_count and 1 <= value <= 10**9):
                raise DeclarationError(f"{name} must be an int between 1 and 10^9, got {value!r}")

    def label(self) -> str:
        """Return the number of groups."""
        return f"at most {self.groups} group{'' if self.groups == 1 else 's'} a unit"

    def detail(self) -> str:
        """Return the number of rows in each."""
        return f"{self.rows} row{'' if self.rows == 1 else 's'} in each"

    def domain(self, inputs: Sequence[Any]) -> GroupedTable:
        """Return the grouped table with its limits; refuse one that is limited already."""
        grouped: GroupedTable = inputs[0]
        if grouped.most is not None:
            raise DeclarationError(f"the groups of {grouped.table.name!r} are bounded already")
        return evolve(grouped, most=(self.groups, self.rows))

    def change(self, change: Change) -> Change:
        """Return a change of no more rows than the groups hold."""
        rows = min(change.rows, self.groups * self.rows)
        return Change(change.replaced, rows, False, min(change.both, rows * (1 + change.replaced)))

    def run(self, inputs: Sequence[Any], stream: Stream) -> GroupedRows:
        """Return the rows without those past the limits."""
        grouped: GroupedRows = inputs[0]
        rows = grouped.rows.bound_groups(grouped.index, self.groups, self.rows)
        return evolve(grouped, rows=rows)


def _refuse_many(cells: int, width: int) -> None:
    if cells * width > LIMIT:
        numbers = f"{cells:,} cells" + (f" of {width} numbers" if width > 1 else "")
        raise DeclarationError(
            f"a grouping has {numbers}, and a query by group has at most {LIMIT:,} numbers; group "
            "by fewer columns, or by fewer keys"
        )


# -----------------------------------------------------------------------------
# The queries.


@frozen
class GroupQuery(SumOverRows):
    """Base of the queries by group: a vector whose entries are those of each cell in turn."""

    input_type: ClassVar[type] = GroupedTable

    @property
    def width(self) -> int:
        """How many numbers each cell has."""
        return 1

    def domain(self, inputs: Sequence[Any]) -> GroupedTable:
        """Return the grouped table."""
        grouped: GroupedTable = inputs[0]
        return grouped

    def key_names(self, domain: GroupedTable) -> tuple[str, ...]:
        """Return the columns that are grouped by."""
        return (*domain.by, *(["column"] if self.width > 1 else []))

    def dimension(self, domain: GroupedTable) -> int:
        """Return the number of cells, times that of the numbers in each."""
        return domain.count * self.width

    def coordinates_moved(self, domain: GroupedTable, change: Change) -> int:
        """Return how many entries a unit's rows can move: those of one cell for each row."""
        # two sides, of at most k cells each
        groups = change.both if domain.most is None else domain.most[0] * (1 + change.replaced)
        return min(self.dimension(domain), min(change.both, groups) * self.width)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum over the rows of the grouping."""
        return RowSum(inputs[0].rows, self.block(inputs[0]), self.finish)


def _norm(
    pairs: Sequence[tuple[Fraction, Fraction]], change: Change, domain: GroupedTable, norm: float
) -> float:
    """Return the largest norm by which one unit moves sums by cell, rounded up.

    Parameters
    ----------
    pairs
        For each number of a cell how far a row moves it up, and how far down: ``max(hi, 0)`` and
        ``max(-lo, 0)``.
    """
    if norm == 0:  # counts the rows that change
        return float(change.both)
    # max(a, b) and min(a, b); where the unit appears or vanishes, r and 0
    more, fewer = change.rows, change.both - change.rows
    groups, rows = domain.most or (more, more)
    if domain.count == 1:
        groups = 1
    # the rows of either side: n' = min(n, k m), of which at most m are in one cell
    more, fewer = min(more, groups * rows), min(fewer, groups * rows)
    largest = [max(pair) for pair in pairs]
    if norm == math.inf:
        # in one cell, number by number: min(max(a, b), m) rows at the farther end, min(a, b, m) at
        # the other; in different cells a number moves by min(max(a, b), m) L, which is no more
        return ceiling(max(min(more, rows) * max(p) + min(fewer, rows) * min(p) for p in pairs))
    if norm == 1:
        # in different cells: (a + b) L for each number, and that is not less than in the same ones
        same_cells = sum((more * max(pair) + fewer * min(pair) for pair in pairs), Fraction())
        different_cells = (more + fewer) * sum(largest, Fraction())
        return ceiling(same_cells if domain.count == 1 else different_cells)
    if domain.count == 1:
        return _root(_squared(pairs, min(more, rows), min(fewer, rows)), max(largest))
    return _root(_largest_squared(pairs, (more, fewer), rows), max(largest))


def _squared(pairs: Sequence[tuple[Fraction, Fraction]], one: int, other: int) -> Fraction:
    """Return the squared l2 norm by which a cell moves that has so many rows of either side.

    Number by number the side with more rows is at the farther end, and the other at the other.
    """
    more, fewer = max(one, other), min(one, other)
    return sum(((more * max(pair) + fewer * min(pair)) ** 2 for pair in pairs), Fraction())


def _largest_squared(
    pairs: Sequence[tuple[Fraction, Fraction]], sides: tuple[int, int], most: int
) -> Fraction:
    """Return the largest squared l2 norm of all cells, of which either side fills some.

    Parameters
    ----------
    sides
        The rows of either side.
    most
        How many rows of a side a cell may have.
    """
    if max(sides) <= 0:
        return Fraction()
    # the norm is convex in the numbers of rows by cell, so largest where either side has full
    # cells, and the rest in one more
    (full, rest), (other_full, other_rest) = (divmod(n, most) for n in sides)
    cell = partial(_squared, pairs)

    def with_rests(own: int, other: int, extra: Fraction) -> Fraction:
        """Return the most with so many full cells beside what is placed already."""
        # linear in how many of them are the same cells: largest where none or all are
        apart = (own + other) * cell(most, 0)
        together = min(own, other) * (cell(most, most) - 2 * cell(most, 0))
        return apart + max(together, Fraction()) + extra

    # either rest lies in a cell of its own, in a full cell of the other side, or both in one cell
    cases = [
        with_rests(full, other_full, cell(rest, 0) + cell(other_rest, 0)),
        with_rests(full, other_full, cell(rest, other_rest)),
    ]
    if other_full:
        cases.append(with_rests(full, other_full - 1, cell(most, rest) + cell(other_rest, 0)))
    if full:
        cases.append(with_rests(full - 1, other_full, cell(most, other_rest) + cell(rest, 0)))
    if full and other_full:
        both = cell(most, rest) + cell(most, other_rest)
        cases.append(with_rests(full - 1, other_full - 1, both))
    return max(cases)


def _in_one_cell(domain: GroupedTable, change: Change) -> tuple[int, int]:
    """Return how many rows of either side of a change one cell may hold."""
    sides = change.rows, change.both - change.rows
    most = change.both if domain.most is None else domain.most[1]
    return min(sides[0], most), min(sides[1], most)


def _root(square: Fraction, scale: Fraction) -> float:
    """Return a square root, rounded up; a scale of its size keeps it among the floats."""
    if square == 0:
        return 0.0
    root = math.sqrt(square / scale**2)
    # a root that is exact stays so
    rounded = root if Fraction(root) ** 2 * scale**2 >= square else up(root, 2)
    return ceiling(Fraction(rounded) * scale)


@frozen
class GroupCount(GroupQuery):
    """The number of rows in each cell.

    *Sensitivity* (see the module): r in every norm where a unit appears or vanishes; where a rows
    are exchanged for b, ``a + b`` in l1, ``sqrt(a^2 + b^2)`` in l2, ``max(a, b)`` in the maximum
    norm; and ``max(a, b)`` in all where there is one cell.
    """

    kind: ClassVar[str] = "group_count"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    disjoint: ClassVar[bool] = True

    def label(self) -> str:
        """Return what it is."""
        return "count by group"

    def sensitivity(self, domain: GroupedTable, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        return _norm([(Fraction(1), Fraction(0))], change, domain, norm)

    def step(self, domain: GroupedTable) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: GroupedTable, change: Change) -> float:
        """Return r where a unit appears (all counts grow), a + b where it is exchanged."""
        return float(sum(_in_one_cell(domain, change)))

    def entries(self, domain: GroupedTable) -> Sequence[Any]:
        """Return the keys."""
        return domain.keys

    def sampled(self, domain: GroupedTable, values: Any, normals: Any) -> Floats:
        """Return `counts_of_population`; a row may be in no cell, so their number is not public."""
        return counts_of_population(values, normals, None)

    def contributions(self, value: GroupedRows) -> Contributions:
        """Return 1 for a row that is in a cell."""
        return value.rows.units, value.rows.values(
            lambda columns: (value.index(columns) >= 0).astype(np.float64)
        )

    def block(self, value: GroupedRows) -> Cells:
        """Return 1 for a row, in its cell."""
        return Cells(value.count, value.index)


@frozen
class AxisIndex(RowFunction):
    """The position of each row's keys among those of some of the columns, -1 for a row in no cell.

    Parameters
    ----------
    of
        The cell of each row.
    sizes
        How many keys each column has.
    kept
        The positions of the columns that count.
    """

    of: RowFunction
    sizes: tuple[int, ...]
    kept: tuple[int, ...]

    def __call__(self, columns: Columns) -> Integers:
        """Return the positions."""
        cell = once(columns, self.of)
        result = np.zeros_like(cell)
        for axis in self.kept:
            digit = cell // math.prod(self.sizes[axis + 1 :]) % self.sizes[axis]
            result = result * self.sizes[axis] + digit
        return np.where(cell < 0, -1, result)


@frozen
class GroupMargin(GroupQuery):
    """The number of rows by the keys of some of the columns: sums of the cells of a grouping.

    Rows in no cell are not counted, so that the margin is exactly that of the cells.

    *Sensitivity*: that of a count by those columns (`GroupCount`). Several cells of a unit may
    have one sum, so that a bound on rows in a cell is none on those in a sum.

    Parameters
    ----------
    names
        The columns that are kept; none of them for the total.
    """

    kind: ClassVar[str] = "group_margin"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True

    names: tuple[str, ...] = field(converter=strings)

    def label(self) -> str:
        """Return the columns."""
        return f"count by {', '.join(self.names)}" if self.names else "count in all groups"

    def domain(self, inputs: Sequence[Any]) -> GroupedTable:
        """Return the sums' own grouping; check the columns."""
        grouped: GroupedTable = inputs[0]
        if not set(self.names) <= set(grouped.by) or len(set(self.names)) != len(self.names):
            raise DeclarationError(
                f"a margin keeps columns of the grouping, {list(grouped.by)}, got {self.names!r}"
            )
        return grouped

    def dimension(self, domain: GroupedTable) -> int:
        """Return the number of sums."""
        return self._over(domain).count

    def sensitivity(self, domain: GroupedTable, change: Change, norm: float) -> float:
        """Return that of a count by the columns that are kept."""
        return _norm([(Fraction(1), Fraction(0))], change, self._over(domain), norm)

    def step(self, domain: GroupedTable) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: GroupedTable, change: Change) -> float:
        """Return r where a unit appears (all counts grow), a + b where it is exchanged."""
        return float(change.both)

    def entries(self, domain: GroupedTable) -> Sequence[Any]:
        """Return the keys."""
        return self._over(domain).keys

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum of 1 for each row, in its place."""
        grouped: GroupedRows = inputs[0]
        sizes = tuple(grouped.sizes.values())
        kept = tuple(list(grouped.sizes).index(name) for name in self.names)
        index = AxisIndex(grouped.index, sizes, kept)
        return RowSum(grouped.rows, Cells(math.prod(sizes[i] for i in kept), index), self.finish)

    def _over(self, domain: GroupedTable) -> GroupedTable:
        axes = tuple(domain.keys.axes[domain.by.index(name)] for name in self.names)
        return evolve(domain, by=self.names, keys=Keys(axes), most=None)


@frozen
class CountUnits(Query):
    """The number of units that have each key, where keys are not declared.

    A row whose cell is missing, empty or not a str has no key. A unit counts once for a key,
    whatever number of its rows have it.

    *Sensitivity*, of the numbers of all keys (0 for a key that is in one data set alone): a unit of
    a rows has at most a keys, and moves the number of each of them by 1. One that is exchanged, a
    rows for b, moves at most a + b of them, each by 1: ``a + b`` in l1, ``sqrt(a + b)`` in l2, 1 in
    the maximum norm.
    """

    kind: ClassVar[str] = "units_by_key"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = UndeclaredKeys
    output_type: ClassVar[type] = UnitsByKey
    rounds_outward: ClassVar[bool] = True

    def label(self) -> str:
        """Return what it is."""
        return "units by key"

    def domain(self, inputs: Sequence[Any]) -> UndeclaredKeys:
        """Return the grouping's domain."""
        keys: UndeclaredKeys = inputs[0]
        return keys

    def sensitivity(self, domain: UndeclaredKeys, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; in norm 0 the number of keys."""
        if norm == math.inf:
            return 1.0
        return _root(Fraction(change.both), Fraction(1)) if norm == 2 else float(change.both)

    def span(self, domain: UndeclaredKeys, change: Change) -> float:
        """Return 1 where all numbers move the same way, 2 where a unit is exchanged."""
        return 2.0 if change.replaced else 1.0

    def run(self, inputs: Sequence[Any], stream: Stream) -> UnitsByKey:
        """Return the keys in order, and the units that have each."""
        grouped: StringsOfRows = inputs[0]
        keys, codes = grouped.rows.strings(ColumnValues(grouped.name))
        rows = self._rows(codes[codes >= 0], len(keys))
        with_key = codes >= 0
        units, codes = np.asarray(grouped.rows.units)[with_key], codes[with_key]
        # rows of one unit and one key are next to each other, in the order of the data; the first
        # of them counts
        order = np.lexsort((codes, units))
        pairs = np.stack([units, codes], axis=1)
        first = np.ones(len(order), dtype=np.bool_)
        first[1:] = (pairs[order[1:]] != pairs[order[:-1]]).any(axis=1)
        return UnitsByKey(keys, pairs[np.sort(order[first])], rows)

    def _rows(self, codes: Integers, keys: int) -> Integers | None:
        return None


@frozen
class CountRows(CountUnits):
    """The number of rows that have each key, where keys are not declared.

    *Sensitivity*, of the numbers of all keys (0 for a key that is in one data set alone): a unit of
    a rows moves them by a in l1; in l2 and the maximum norm by a at most, where all rows have one
    key. One that is exchanged, a rows for b, moves them by ``a + b`` in l1; where the keys are two,
    by ``sqrt(a^2 + b^2)`` in l2 and ``max(a, b)`` in the maximum norm, which is the most: norms are
    convex, so largest where either side has one key.
    """

    kind: ClassVar[str] = "rows_by_key"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return what it is."""
        return "rows by key"

    def sensitivity(self, domain: UndeclaredKeys, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; in norm 0 the number of keys."""
        if norm == math.inf:
            return float(change.rows)
        if norm != 2:
            return float(change.both)
        # of a, b <= rows and a + b <= both the sum of squares is largest at an end
        square = change.rows**2 + (change.both - change.rows) ** 2
        return _root(Fraction(square), Fraction(change.rows or 1))

    def _rows(self, codes: Integers, keys: int) -> Integers | None:
        return np.bincount(codes, minlength=keys).astype(np.int64)


@frozen
class StackedSteps(RowFunction):
    """The steps of several columns, beside each other."""

    steps: tuple[Steps, ...]

    def __call__(self, columns: Columns) -> Integers:
        """Return an array of shape (m, columns)."""
        return np.stack([once(columns, each) for each in self.steps], axis=1)


@frozen
class GroupSum(GroupQuery):
    """The sums of columns over the rows in each cell, each value clipped to its column's bounds.

    Values are rounded to multiples of a power of two inside the bounds, as those of `Sum` are.

    *Sensitivity* (see the module). Let ``P = max(hi, 0)``, ``N = max(-lo, 0)`` and ``L`` the larger
    of the two, for each column; a sum over columns where there are several.

    * A unit of up to r rows appears or vanishes: ``r sum(L)`` in l1, ``r sqrt(sum(L^2))`` in l2,
      ``r max(L)`` in the maximum norm.
    * a rows are exchanged for b. In different cells: ``(a + b) sum(L)`` in l1 and
      ``sqrt((a^2 + b^2) sum(L^2))`` in l2. In one cell each number moves by at most
      ``M = max(a, b) max(P, N) + min(a, b) min(P, N)``: ``sum(M)``, ``sqrt(sum(M^2))`` and, in the
      maximum norm, ``max(M)``. The larger of the two cases; with one cell the second alone.

    Parameters
    ----------
    names
        The columns.
    bounds
        The bounds of each, to which the query itself clips.
    """

    kind: ClassVar[str] = "group_sum"
    rounds_outward: ClassVar[bool] = True
    column_fields: ClassVar[tuple[str, ...]] = ("names",)

    names: tuple[str, ...] = field(converter=strings)
    bounds: tuple[Interval, ...] = field(converter=intervals)

    @property
    def width(self) -> int:
        """How many columns are summed."""
        return len(self.names)

    def label(self) -> str:
        """Return the columns, and the bounds of one."""
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"sum of {shown} by group" + (f" in {self.bounds[0]}" if self.width == 1 else "")

    def domain(self, inputs: Sequence[Any]) -> GroupedTable:
        """Return the grouped table; check the columns and their bounds."""
        grouped = super().domain(inputs)
        if not (0 < len(self.names) == len(self.bounds)):
            raise DeclarationError(
                f"a sum by group needs a column at least, and bounds for each, got {self.names!r} "
                f"and {len(self.bounds)} bounds"
            )
        if len(set(self.names)) != len(self.names):
            raise DeclarationError(f"columns must differ, got {list(self.names)!r}")
        for name, bounds in zip(self.names, self.bounds, strict=True):
            refuse_text_categories(name, grouped.table.find(name))
            refuse_narrow(bounds)
        _refuse_many(grouped.count, self.width)
        return grouped

    def sensitivity(self, domain: GroupedTable, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        zero = Fraction()
        pairs = [
            (max(Fraction(each.upper), zero), max(-Fraction(each.lower), zero))
            for each in self.bounds
        ]
        return _norm(pairs, change, domain, norm)

    def step(self, domain: GroupedTable) -> float:
        """Return the smallest of the columns' steps: all are powers of two."""
        return min(grid.step(each.largest, grid.BITS) for each in self.bounds)

    def span(self, domain: GroupedTable, change: Change) -> float:
        """Return ``(a + b) L`` for one column (r L where a unit appears), twice a norm for several.

        Two cells of one column move apart by at most what the rows of either side move: all of
        them up in one cell or down in the other, L each.
        """
        if self.width == 1:
            # of bounded groups, at most m rows of either side in each of the two cells
            rows = min(change.both, 2 * sum(_in_one_cell(domain, change)))
            return ceiling(rows * Fraction(self.bounds[0].largest))
        return super().span(domain, change)

    def entries(self, domain: GroupedTable) -> Sequence[Any]:
        """Return the keys; with the column's name where there are several."""
        return _Entries(domain.keys, self.names) if self.width > 1 else domain.keys

    def contributions(self, value: GroupedRows) -> Contributions:
        """Return the l2 norm of what each row adds, rounded up; exact for one column.

        Totals may be clamped, which is 1-Lipschitz: it moves no two totals apart.
        """
        steps, units = self._steps(), self._units()

        def block(columns: Columns) -> Floats:
            sizes = np.stack([np.abs(each(columns)) for each in steps], axis=1) * units
            if self.width == 1:
                norms = sizes[:, 0]
            else:
                # scaled by the largest, so that no square overflows or falls to 0; a computed sum
                # of w squares and its root are off by a relative (w + 2) 2^-53
                most = sizes.max(axis=1)
                scaled = sizes / np.where(most > 0, most, 1.0)[:, None]
                norms = most * np.sqrt((scaled * scaled).sum(axis=1))
                norms = norms * (1 + 4 * (self.width + 2) * 2.0**-53)
            return np.where(value.index(columns) >= 0, norms, 0.0)

        return value.rows.units, value.rows.values(block)

    def block(self, value: GroupedRows) -> Cells:
        """Return each row's values in steps, in its cell."""
        steps = self._steps()
        weights = steps[0] if self.width == 1 else StackedSteps(steps)
        return Cells(value.count, value.index, weights, self.width)

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return the sums, cell by cell."""
        # clamped to 2^53 steps, where floats are exact: 1-Lipschitz, so no two totals move apart
        steps = np.clip(total, -grid.EXACT, grid.EXACT).astype(np.float64)
        return np.asarray(steps.reshape(-1, self.width) * self._units()).reshape(-1)

    def _steps(self) -> tuple[Steps, ...]:
        pairs = zip(self.names, self.bounds, strict=True)
        return tuple(Steps(ColumnValues(name), bounds) for name, bounds in pairs)

    def _units(self) -> Floats:
        return np.array([grid.step(each.largest, grid.BITS) for each in self.bounds])


@varies(averages_of_population)
def ratios(total: Floats, count: Floats, *, lower: float, upper: float) -> Floats:
    """Return the mean of values in [lower, upper] in each cell, from sums and counts."""
    return np.clip(np.asarray(total) / np.maximum(count, 1.0), lower, upper)


def present_ratios(
    sums: Floats, count: Floats, *, lower: float, upper: float, missing: float
) -> Floats:
    """Return the mean in each cell of the values that are not missing; see `present_ratio`."""
    of_missing, of_present = np.asarray(sums).reshape(-1, 2).T
    return ratios(of_present, np.asarray(count) - of_missing / missing, lower=lower, upper=upper)


def by_presence(
    table: Private[Rows], operation: GroupBy | None, name: str, value: Expression, bounds: Interval
) -> tuple[PrivateQuery[Floats], float]:
    """Return two sums in each cell, over the rows whose value is missing and over the others.

    In the first a missing value counts as the bound that is farther from 0. So a row moves the two
    sums together no farther than it would move the sum of values alone; and they say, beside a
    count of all rows, how many values are missing. It is a sum by group.

    Parameters
    ----------
    table, operation
        The rows, and how they are grouped; None for one cell.
    name, value, bounds
        The column, as a number in the bounds to which the sum clips.

    Returns
    -------
    The query, and what a missing value counts as.
    """
    missing = far_bound(bounds)
    names = f"{name} is present", f"{name} or {missing:g}"
    filled = Expression("fill", (value, missing))
    columns = WithColumns(names, (Expression("present", (value,)), filled))
    made: Private[Rows] = Private(columns, (table,))
    by, keys = ((), ()) if operation is None else (operation.by, operation.keys)
    finer = GroupBy((*by, names[0]), (*keys, Categories((False, True))))
    return Groups(finer, (made,)).sum(names[1], bounds=(bounds.lower, bounds.upper)), missing


# -----------------------------------------------------------------------------
# Tables of two columns, with margins.


def with_margins(
    cells: Floats, rows: Floats, columns: Floats, total: Floats, *, shape: Sequence[int]
) -> Floats:
    """Return a table with its margins, made consistent: the least-squares estimate.

    Cells, sums of rows, sums of columns and the total were released with equal noise. Of all tables
    whose margins are the sums of their cells it is the one nearest to them.

    The space of tables is the orthogonal sum of four: a constant, effects of rows, effects of
    columns, and the rest. In each the estimates are averages, weighted by their precision: a sum of
    J cells has J times the variance of a margin, and so on.

    Parameters
    ----------
    cells
        Row by row, shape (I * J,).
    rows, columns
        Shapes (I,) and (J,).
    total
        The sum of all, shape (1,).
    shape
        I and J.

    Returns
    -------
    ndarray
        Shape (I + 1, J + 1): the last column and the last row are the margins.
    """
    height, width = shape
    table = np.asarray(cells, dtype=np.float64).reshape(height, width)
    row_sums, column_sums = table.sum(1), table.sum(0)
    # effects: a sum of J cells has variance J, a margin has 1
    effects = (row_sums + width * rows) / (1 + width) - row_sums
    table = table + (effects - effects.mean())[:, None] / width
    effects = (column_sums + height * columns) / (1 + height) - column_sums
    table = table + (effects - effects.mean())[None, :] / height
    # four estimates of the total, of variances I J, I, J and 1
    estimates = np.array(
        [float(np.sum(cells)), float(np.sum(rows)), float(np.sum(columns)), float(np.sum(total))]
    )
    precision = 1 / np.array([height * width, height, width, 1.0])
    best = float(estimates @ precision / precision.sum())
    table = table + (best - estimates[0]) / (height * width)
    table = np.column_stack([table, table.sum(1)])
    return np.vstack([table, table.sum(0)])


def reshaped(values: Floats, *, shape: Sequence[int]) -> Floats:
    """Return a vector as a matrix, row by row."""
    return np.asarray(values).reshape(tuple(shape))


# -----------------------------------------------------------------------------
# The handle.


def group_by(
    table: Private[Rows],
    by: Sequence[str],
    keys: Mapping[str, Sequence[Any]] | Sequence[Any] | None,
    edges: Mapping[str, Sequence[float]] | Sequence[float] | None,
    max_groups: int | None = None,
    max_rows: int | None = None,
) -> Groups:
    """Return the groups of a table: see `Table.group_by`."""
    names = strings(by)
    own_keys, own_edges = _by_column("keys", keys, names), _by_column("edges", edges, names)
    both = sorted(set(own_keys) & set(own_edges))
    if both:
        raise DeclarationError(
            f"column {both[0]!r} has keys and edges; give keys (of categories) or edges (of a "
            "numeric column)"
        )
    groups: list[Categories | Edges | Strings] = []
    for name in names:
        declared = table.domain.find(name)
        if name in own_edges:
            groups.append(Edges(own_edges[name]))
        elif name in own_keys:
            groups.append(Categories(own_keys[name]))
        elif isinstance(declared, Categories | Strings):
            groups.append(declared)
        else:
            raise DeclarationError(
                f"column {name!r} declares no categories; pass keys={{{name!r}: [...]}} or "
                f"edges={{{name!r}: [...]}}"
            )
    grouped = Groups(GroupBy(names, groups), (table,))
    if max_groups is None and max_rows is None:
        return grouped
    bound = next((h for h in lineage(table) if isinstance(h.operation, BoundOperation)), None)
    if bound is None:
        raise DeclarationError(
            "max_groups and max_rows bound what one unit adds, and here each row is a unit of its "
            "own; declare the column that identifies a unit: dp.dataset(..., unit='person')"
        )
    # a limit that is not given is that of the unit's rows
    assert isinstance(bound.operation, BoundOperation)
    rows = bound.operation.rows
    limits = (rows if limit is None else limit for limit in (max_groups, max_rows))
    return Groups(BoundGroups(*limits), (grouped,))


def _by_column(what: str, given: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return lists of keys or edges by column; one list is that of the only column."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if len(names) != 1:
            raise DeclarationError(
                f"with several columns {what} are given by column, such as "
                f"{what}={{{names[0]!r}: [...]}}, got {type(given).__name__}"
                if names
                else "group_by needs a column at least"
            )
        given = {names[0]: given}
    unknown = [name for name in given if name not in names]
    if unknown:
        raise DeclarationError(
            f"{what} are given for {unknown[0]!r}, which is not grouped by; it is grouped by "
            f"{list(names)}"
        )
    for name, values in given.items():
        if isinstance(values, int | float):
            raise DeclarationError(
                f"{what} of {name!r} must be a list, got {values!r}"
                + (
                    "; for equal bins write numpy.linspace(low, high, bins + 1)"
                    if what == "edges"
                    else ""
                )
            )
    return dict(given)


_HINTS = {
    "mean": "; use .average(column), a released sum over a released count",
    "release": "; release a query of it, such as .count()",
    "filter": "; filter the table before it is grouped",
}


@frozen(eq=False, repr=False)
class Groups(Private[GroupedRows]):
    """A handle of a table's rows by group: to count, sum or average in each.

    Each query is one vector with an entry for each of the `keys`, in their order, and is released
    with one draw of noise. Under add/remove neighbours a count by group costs what one count does,
    whatever the number of groups.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> visits = dp.dataset("visits", columns={"town": ["A", "B"], "year": [2020, 2021, 2022]})
    >>> groups = visits.group_by("town", "year")
    >>> groups
    <private group by town, year 6 cells>
    >>> counts = groups.count().release(dp.DiscreteLaplace(scale=1))
    >>> plan = dp.Pipeline(counts=counts)
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> data = {"town": ["A", "B"] * 50, "year": [2020, 2022] * 50}
    >>> result = plan.simulate(seed=1, visits=data)
    >>> float(result["counts"][groups.keys.index(("B", 2022))])
    51.0
    """

    if not TYPE_CHECKING:  # type checkers know that there is no such attribute

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(f"groups have no attribute {name!r}{_HINTS.get(name, '')}")

    @property
    def keys(self) -> Keys:
        """The keys, in the order of the entries of every query."""
        self._refuse_undeclared("keys that could be listed")
        keys: Keys = self.domain.keys
        return keys

    def _refuse_undeclared(self, what: str) -> None:
        """Refuse what needs declared keys."""
        if isinstance(self.domain, UndeclaredKeys):
            name = self.domain.name
            raise DeclarationError(
                f"groups by {name!r} have no {what}: its keys are not declared, so which there are "
                f"is private; release them by .count().release(dp.PartitionSelection()) "
                f"in a session, and then group by those: keys=[...]"
            )

    def __len__(self) -> int:
        return len(self.keys)

    def count(self) -> PrivateQuery[Floats]:
        """Return the number of rows in each group.

        Where the keys are not declared, of a column of str, it is a mapping, for a mechanism that
        releases keys: `ThresholdLaplace`, the default, or `ThresholdGaussian` (the keys whose noisy
        counts reach a threshold, with these), `PartitionSelection` or `WeightedGaussian` (the keys
        alone, by the units that have them).

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"]})
        >>> towns = people.group_by("town").count().release(dp.DiscreteLaplace(scale=1))
        >>> result = dp.Pipeline(towns=towns).simulate(seed=1, people={"town": ["A", "B"] * 50})
        >>> print(result)
        output    value  95% interval
        --------  -----  ------------
        towns[A]  50     47 to 53
        towns[B]  50     47 to 53
        NOT FOR RELEASE: noise from seed 1
        """
        if isinstance(self.domain, UndeclaredKeys):
            return PrivateQuery(CountRows(), (self,))
        return PrivateQuery(GroupCount(), (self,))

    def count_distinct(self) -> PrivateQuery[Floats]:
        """Return the number of units, such as persons, that have a row in each group.

        Where the keys are not declared, a mapping as of `count`.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> columns = {"town": ["A", "B"]}
        >>> visits = dp.dataset("visits", columns=columns, unit="person", rows_per_unit=5)
        >>> plan = dp.Pipeline(persons=visits.group_by("town").count_distinct()).fix(noise=1e-9)
        >>> data = {"person": [1, 1, 2, 2, 3], "town": ["A", "A", "A", "B", "B"]}
        >>> plan.simulate(seed=1, visits=data)["persons"]
        array([2., 2.])
        """
        if isinstance(self.domain, UndeclaredKeys):
            return PrivateQuery(CountUnits(), (self,))
        bound = next((h for h in lineage(self) if isinstance(h.operation, BoundOperation)), None)
        if bound is None:  # each row is a unit
            return self.count()
        if isinstance(self.operation, BoundGroups):
            raise DeclarationError(
                "these groups are bounded already; ask for the units in each before that: "
                "table.group_by(...).count_distinct()"
            )
        assert isinstance(bound.operation, BoundOperation)
        return Groups(BoundGroups(bound.operation.rows, 1), (self,)).count()

    def sum(
        self, column: str | Sequence[str], *, bounds: tuple[float, float] | None = None
    ) -> PrivateQuery[Floats]:
        """Return the sum of a column in each group, or of several columns.

        Parameters
        ----------
        column
            Its name. Of several, a list, the entries are those of each group in turn; all get the
            same noise, so their bounds should be alike.
        bounds
            To which its values are clipped; by default the declared ones.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "visits": (0, 20)})
        >>> towns = people.group_by("town")
        >>> towns.sum("visits"), towns.sum("visits", bounds=(0, 5))
        (<private sum of visits by group in [0, 20]>, <private sum of visits by group in [0, 5]>)
        """
        self._refuse_undeclared("sums")
        names = [column] if isinstance(column, str) else strings(column)
        if bounds is not None:
            each = [interval(bounds)] * len(names)
        else:
            each = [bounded(ColumnOf(name).domain([self.domain.table])) for name in names]
        return PrivateQuery(GroupSum(names, each), (self,))

    def histogram(
        self,
        column: str,
        *,
        keys: Sequence[Any] | None = None,
        edges: Sequence[float] | None = None,
    ) -> PrivateQuery[Floats]:
        """Return the counts by another column's categories, or bins, in each group.

        It is the count of the groups by that column too.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "age": (0, 100)})
        >>> people.group_by("town").histogram("age", edges=[0, 18, 65, 100]).inputs[0].keys
        [('A', '[0, 18)'), ('A', '[18, 65)'), ('A', '[65, 100]'),
         ('B', '[0, 18)'), ('B', '[18, 65)'), ('B', '[65, 100]')]
        """
        self._refuse_undeclared("histograms")
        table, operation = self.inputs[0], self.operation
        if isinstance(operation, BoundGroups):
            raise DeclarationError(
                f"the bounds are on groups by {', '.join(self.domain.by)}; for a histogram in each "
                f"group by {column!r} too"
            )
        if not (isinstance(table, Private) and isinstance(operation, GroupBy)):
            raise DeclarationError(
                "a loop's own groups have no histogram; group the body's own table instead"
            )
        (last,) = group_by(
            table,
            [column],
            None if keys is None else {column: keys},
            None if edges is None else {column: edges},
        ).operation.parameters()["keys"]
        finer = GroupBy((*operation.by, column), (*operation.keys, last))
        return PrivateQuery(GroupCount(), (Groups(finer, (table,)),))

    def average(
        self,
        column: str,
        mechanism: Mechanism | None = None,
        *,
        count: Released[Floats] | None = None,
        bounds: tuple[float, float] | None = None,
    ) -> Released[Floats]:
        """Return the mean in each group as a released sum over a released count, in the bounds.

        Two releases of equal cost; one, if the count is released already. Rows whose value is
        missing are left out.

        Parameters
        ----------
        column
            Its name.
        mechanism
            Releases the counts, and with noise in proportion to the largest bound the sums; for
            example ``dp.Gaussian(sigma=20)``. None for the defaults of both; several such averages
            in a plan share one count, also with the count of the groups as an output of its own.
        count
            A release of `count`, of all rows, which several averages may share; None releases the
            counts of the rows that have a value, by the mechanism.
        bounds
            To which the values are clipped; by default the declared ones.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "age": (0, 100)})
        >>> ages = people.group_by("town").average("age")
        >>> plan = dp.Pipeline(age=ages).calibrate(epsilon=1.0)
        >>> data = {"town": ["A", "B"] * 5_000, "age": [20, 60] * 5_000}
        >>> plan.simulate(seed=1, people=data)["age"].round()
        array([20., 60.])
        """
        total = self.sum(column, bounds=bounds)
        query = total.operation
        assert isinstance(query, GroupSum)
        (own,) = query.bounds
        # one row moves the sum by up to the largest bound where it moves the count by one
        noise, name = scale_noise(mechanism, own.largest or 1.0), f"sum of {column}"
        table, operation, bound = self.inputs[0], self.operation, None
        if isinstance(operation, BoundGroups) and isinstance(table, Groups):
            table, operation, bound = table.inputs[0], table.operation, operation
        limits = {"lower": own.lower, "upper": own.upper}
        complete = column in self.domain.table.complete or own.largest == 0
        if not complete and not (isinstance(table, Private) and isinstance(operation, GroupBy)):
            raise DeclarationError(
                "a loop's own groups have no average of values that may be missing; group the "
                "body's own table instead"
            )
        if complete:
            counted = self.count().release(mechanism) if count is None else count
            mean = post(ratios, total.release(noise, name=name), counted, **limits)
            return mean if count is not None else self._may_share(mean, column, mechanism, bounds)
        assert isinstance(table, Private)
        assert isinstance(operation, GroupBy)
        if count is None:
            there = Expression("present", (Expression("column", (column,)),))
            present = Groups(operation, (Private(Where(there), (table,)),))
            if bound is not None:
                present = Groups(bound, (present,))
                total = present.sum(column, bounds=bounds)  # of the same rows as the counts
            counted = present.count().release(mechanism)
            mean = post(ratios, total.release(noise, name=name), counted, **limits)
            return self._may_share(mean, column, mechanism, bounds)
        if bound is not None:
            raise DeclarationError(
                f"values of {column!r} may be missing, and bounded groups of rows that have one "
                "are others than those of the count; leave out count=, or fill the column first"
            )
        value = Expression("column", (column, own.lower, own.upper))
        sums, missing = by_presence(table, operation, column, value, own)
        released = sums.release(noise, name=name)
        return post(present_ratios, released, count, **limits, missing=missing)

    def _may_share(
        self,
        mean: Released[Floats],
        column: str,
        mechanism: Mechanism | None,
        bounds: tuple[float, float] | None,
    ) -> Released[Floats]:
        """Return a mean; if its noise is the default, as one that may share its count."""
        if mechanism is not None or self._shared(column, True) is None:
            return mean
        over = lambda count: self.average(column, count=count, bounds=bounds)  # noqa: E731
        return Average(mean.operation, mean.inputs, rows=self.count(), over=over)

    def margin(self, *names: str) -> PrivateQuery[Floats]:
        """Return the number of rows by the keys of some of the columns; without any, in all groups.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "year": [2020, 2021]})
        >>> people.group_by("town", "year").margin("year")
        <private count by year>
        """
        return PrivateQuery(GroupMargin(names), (self,))

    def quantiles(
        self,
        column: str,
        orders: Sequence[float],
        mechanism: Mechanism | None = None,
        *,
        step: float | None = None,
        interval: float | None = None,
        sampling: bool = False,
    ) -> Released[Floats]:
        """Return quantiles of a column in each group: shape (groups, orders), groups by their keys.

        Each group is a part of a partition: `Column.quantiles` of its rows.

        Parameters
        ----------
        column
            Its name.
        orders, mechanism, step, interval, sampling
            As of `Column.quantiles`.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "age": (0, 100)})
        >>> ages = people.group_by("town").quantiles("age", [0.5, 0.9])
        >>> plan = dp.Pipeline(ages=ages).calibrate(epsilon=1.0)
        >>> data = {"town": np.repeat(["A", "B"], 10_000), "age": np.r_[0:10_000, 0:10_000] / 200}
        >>> plan.simulate(seed=1, people=data)["ages"].round()
        array([[25., 45.],
               [25., 45.]])
        """
        table, operation = self.inputs[0], self.operation
        if not (hasattr(table, "partition") and isinstance(operation, GroupBy)):
            raise DeclarationError(
                "quantiles by group need the groups of a table, without bounds on groups"
            )
        parts: list[Any] = [table]
        for name, keys in zip(operation.by, operation.keys, strict=True):
            if isinstance(keys, Strings):
                raise DeclarationError(
                    f"quantiles by group need declared keys of {name!r}; release them in a step "
                    "of a session first, and pass keys=[...]"
                )
            values = keys.values
            own = {"edges": values} if isinstance(keys, Edges) else {"keys": values}
            parts = [part for each in parts for _, part in each.partition(name, **own)]
        released = [
            part[column]._quantiles(orders, mechanism, step, interval, sampling) for part in parts
        ]
        quantiles = post(stacked, *(each for each, _, _ in released))
        if interval is None:
            return quantiles
        ends = [end for _, ends, _ in released for end in ends]
        return post(with_ends, quantiles, *ends, single=False, **released[0][2])

    def agg(
        self, mechanism: Mechanism | None = None, **named: Aggregate
    ) -> dict[str, Released[Floats]]:
        """Return several released aggregates of each group, by name; one count serves all averages.

        Parameters
        ----------
        mechanism
            Releases each of them; None for each query's default, with noise that
            ``Pipeline.calibrate`` chooses.
        named
            What is wanted: ``dp.count()``, ``dp.sum("visits")`` or ``dp.average("visits")``.

        Examples
        --------
        >>> import adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"town": ["A", "B"], "visits": (0, 20)})
        >>> towns = people.group_by("town").agg(people=dp.count(), visits=dp.average("visits"))
        >>> plan = dp.Pipeline(**towns).calibrate(epsilon=1.0)
        >>> sorted(plan.certify().shares)
        ['people', 'sum of visits']
        >>> data = {"town": ["A", "B"] * 5_000, "visits": [1, 5] * 5_000}
        >>> plan.simulate(seed=1, people=data)["visits"].round()
        array([1., 5.])
        """
        for name, each in named.items():
            if not isinstance(each, Aggregate):
                raise DeclarationError(
                    f"{name} must be dp.count(), dp.sum('column') or dp.average('column'), got "
                    f"{each!r}"
                )
        counted = None
        if any(each.kind in ("count", "average") for each in named.values()):
            counted = self.count().release(mechanism)
        result: dict[str, Released[Floats]] = {}
        for name, each in named.items():
            if each.kind == "count":
                assert counted is not None
                result[name] = counted
            elif each.kind == "sum":
                total = self.sum(each.column)
                assert isinstance(total.operation, GroupSum)
                largest = total.operation.bounds[0].largest or 1.0
                result[name] = total.release(scale_noise(mechanism, largest))
            else:
                shared = self._shared(each.column, counted)
                result[name] = self.average(each.column, mechanism, count=shared)
        return result

    def _shared(self, column: str, counted: S) -> S | None:
        """Return the count of all rows where an average can use it, or None."""
        of_others = isinstance(self.operation, BoundGroups)
        return None if of_others and column not in self.domain.table.complete else counted


def stacked(*rows: Floats) -> Floats:
    """Return arrays of equal shape, one in each row."""
    return np.stack([np.asarray(row) for row in rows])
