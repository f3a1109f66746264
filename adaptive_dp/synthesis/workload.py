"""Workloads: which tables are wanted, of which columns, and all tables that may be measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants.document import short_repr
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.values import as_int, positive
from adaptive_dp.queries.domains import Categories, Column, Interval, Strings
from adaptive_dp.queries.domains import Table as TableDomain
from adaptive_dp.queries.transforms import bins, check_edges

Integers = NDArray[np.int64]
Columns = tuple[int, ...]
"""The columns of a table of counts: their places, ascending."""

MOST_CELLS = 2**26
"""The most cells of all candidate tables together. Counts and answers are 4 bytes each, and a round
holds several such arrays. Measured: 366,275 tables of 130 columns, 64,162,747 cells, took 3.7 GB at
most in three rounds and 50,000 synthetic rows."""

LARGEST = 2**20
"""The most cells of one table."""

BINS = 16
"""Into how many bins of equal width a column of numbers is cut where no edges are given."""

MOST_QUANTILES = 64
"""The most bins whose edges are released quantiles."""

OUTSIDE = 0.0
"""The weight in a layout of pairs of columns that no table of the workload has together: they are
candidates, and nothing of them is wanted. Tables that a user names have positive weights."""

WEIGHT_STEPS = 2**8
"""Weights of candidates are multiples of 2^-8."""

SHOWN = 5
"""How many tables a message names."""


def subsets(table: Columns) -> Iterator[Columns]:
    """Yield a table's subsets, the empty one first, itself last.

    >>> list(subsets((0, 2)))
    [(), (0,), (2,), (0, 2)]
    """
    for size in range(len(table) + 1):
        yield from itertools.combinations(table, size)


# -----------------------------------------------------------------------------
# Columns as axes of tables.


@frozen
class Axis:
    """A column as an axis of tables: the cells that its values lie in.

    Parameters
    ----------
    name
        The column.
    values
        The categories, of a column of them.
    edges
        The ascending edges of bins, of a column of numbers.
    missing
        Whether there is a last cell for what is missing or not declared.
    released
        The number of cells beside, where what they stand for is released with the model: the edges
        of bins, or the keys of a column of str, of which a last cell holds all others.
    """

    name: str
    values: tuple[Any, ...] | None
    edges: tuple[float, ...] | None
    missing: bool
    released: int | None = None

    @property
    def size(self) -> int:
        """The number of cells."""
        if self.values is not None:
            known = len(self.values)
        else:
            known = len(self.edges) - 1 if self.edges is not None else int(self.released or 0)
        return known + self.missing

    @property
    def labels(self) -> tuple[Any, ...]:
        """What each cell stands for: a category, a bin such as ``[0, 10)``, None for missing."""
        known = self.values if self.values is not None else bins(self.name, self.edges or ())
        return (*known, None) if self.missing else tuple(known)

    def document(self) -> dict[str, Any]:
        """Return the axis as a mapping of JSON values."""
        return {
            "name": self.name,
            "values": None if self.values is None else list(self.values),
            "edges": None if self.edges is None else list(self.edges),
            "missing": self.missing,
            "released": self.released,
        }


def axis(document: Mapping[str, Any]) -> Axis:
    """Return an axis from its document."""
    values, edges = document["values"], document["edges"]
    return Axis(
        str(document["name"]),
        None if values is None else tuple(values),
        None if edges is None else tuple(float(v) for v in edges),
        bool(document["missing"]),
        document["released"],
    )


def axes_of(
    table: TableDomain,
    names: Sequence[str],
    edges: Mapping[str, Any],
    private_edges: Mapping[str, int],
    private_keys: Mapping[str, int],
) -> tuple[Axis, ...]:
    """Return the axes of columns of a table, by public edges where they are numbers.

    Parameters
    ----------
    table
        Its declarations.
    names
        The columns.
    edges
        By column of numbers the edges of its bins, or a number of bins of equal width.
    private_edges
        By column of numbers the number of its bins, whose edges are released quantiles.
    private_keys
        By column of str the number of its most frequent keys that are released.
    """
    unknown = [name for name in (*edges, *private_edges, *private_keys) if name not in names]
    if unknown:
        raise DeclarationError(f"edges are given for columns that are in no table: {unknown!r}")
    twice = [name for name in private_edges if name in edges]
    if twice:
        raise DeclarationError(f"{twice[0]!r} has edges and private_edges: give one of them")
    found = []
    for name in names:
        column, missing = table.find(name), name not in table.complete
        if name in private_edges:
            found.append(_released_axis(name, column, missing, private_edges[name]))
        elif name in private_keys:
            found.append(_axis_of_keys(name, column, private_keys[name]))
        else:
            found.append(_axis(name, column, missing, edges.get(name)))
    return tuple(found)


def _released_axis(name: str, column: Column, missing: bool, count: Any) -> Axis:
    bins = as_int(count)
    if not isinstance(column, Interval) or not column.lower < column.upper:
        raise DeclarationError(
            f"private_edges are of columns with bounds, and {name!r} is {column}"
        )
    if bins is None or not 2 <= bins <= MOST_QUANTILES:
        raise DeclarationError(
            f"private_edges of {name!r} needs a number of bins in [2, {MOST_QUANTILES}], got "
            f"{count!r}"
        )
    return Axis(name, None, None, missing, bins)


def _axis_of_keys(name: str, column: Column, count: Any) -> Axis:
    keys = as_int(count)
    if not isinstance(column, Strings):
        raise DeclarationError(
            f"private_keys are of columns of str that declare no categories, and {name!r} is "
            f"{column}"
        )
    if keys is None or not 1 <= keys <= LARGEST:
        raise DeclarationError(
            f"private_keys of {name!r} needs a number of keys of at least 1, got {count!r}"
        )
    # the last cell is that of all other keys too, so that there is one also without missing values
    return Axis(name, None, None, True, keys)


def released_keys(ranks: Mapping[str, float]) -> list[str]:
    """Return released keys by their ranks.

    >>> released_keys({"b": 2.0, "a": 1.0})
    ['a', 'b']
    """
    return sorted(map(str, ranks), key=lambda key: (ranks[key], key))


def with_released(column: Axis, values: Any) -> Axis:
    """Return an axis with released edges or keys, whatever they are, of its number of cells."""
    count = int(column.released or 0)
    if column.edges is None and all(isinstance(each, str) for each in values):
        keys = list(dict.fromkeys(values))[:count]
        # cells without a key, of which no row is
        return evolve(column, values=(*keys, *[None] * (count - len(keys))))
    return evolve(column, edges=tuple(float(each) for each in values))


def released_edges(values: Any, *, lower: float, upper: float, count: int) -> list[float]:
    """Return the ascending edges of so many bins: released quantiles, without those that are equal.

    What they lack is made up by halving the widest bins.

    >>> released_edges([1.0, 1.0, 4.0], lower=0, upper=8, count=4)
    [0.0, 1.0, 4.0, 6.0, 8.0]
    """
    inner = np.nan_to_num(np.asarray(values, dtype=np.float64).reshape(-1), nan=lower)
    within = {float(v) for v in inner if lower < v < upper}
    edges = [float(lower), *sorted(within)[: count - 1], float(upper)]
    while len(edges) <= count:
        wide = int(np.argmax(np.diff(edges)))
        edges.insert(wide + 1, (edges[wide] + edges[wide + 1]) / 2)
    return edges


def _axis(name: str, column: Column, missing: bool, edges: Any) -> Axis:
    if isinstance(column, Categories):
        if edges is not None:
            raise DeclarationError(f"{name!r} is a column of categories, which has no edges")
        return Axis(name, tuple(column.values), None, missing)
    if not isinstance(column, Interval):
        raise DeclarationError(
            f"{name!r} declares neither bounds nor categories, so its values cannot be made: "
            "declare them, or leave the column out; of str that are not known in advance "
            "private_keys={name: 20} releases the most frequent"
        )
    given = BINS if edges is None else edges
    count = as_int(given)
    if count is not None:
        if not (1 <= count <= LARGEST and column.lower < column.upper):
            raise DeclarationError(
                f"{name!r} needs at least one bin, in bounds that are not one point, got {given!r} "
                f"bins in {column}"
            )
        width = column.upper - column.lower
        inner = [column.lower + width * i / count for i in range(1, count)]
        given = [column.lower, *inner, column.upper]
    found = tuple(float(v) for v in _numbers(name, given))
    check_edges(name, found)
    if found[0] > column.lower or found[-1] < column.upper:
        raise DeclarationError(
            f"the edges of {name!r} must reach over its bounds {column}, got {found[0]:g} to "
            f"{found[-1]:g}"
        )
    return Axis(name, None, found, missing)


def _numbers(name: str, values: Any) -> list[float]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise DeclarationError(f"the edges of {name!r} must be a list of numbers, got {values!r}")
    numbers = list(values)
    for each in numbers:
        if isinstance(each, bool) or not isinstance(each, int | float | np.number):
            raise DeclarationError(f"the edges of {name!r} must be numbers, got {each!r}")
    return numbers


# -----------------------------------------------------------------------------
# Conditions on columns: which cells they take.


@frozen
class Taken:
    """Which cells along an axis a condition takes.

    Parameters
    ----------
    whole
        1 for cells all of whose values it takes, else 0.
    part
        The share of a cell that it takes: of a bin, of its width.
    any
        1 for cells of which it takes any value.
    """

    whole: NDArray[np.float64]
    part: NDArray[np.float64]
    any: NDArray[np.float64]


def taken(column: Axis, condition: Any) -> Taken:
    """Return which cells of an axis a condition takes.

    Parameters
    ----------
    column
        The axis.
    condition
        A category, or a list of them; of numbers a range ``(low, high)``: from ``low`` up to but
        without ``high``, up to the last edge with it; None for what is missing.

    Examples
    --------
    >>> ages = Axis("age", None, (0.0, 10.0, 20.0), False)
    >>> taken(ages, (5, 20)).part.tolist()
    [0.5, 1.0]
    """
    found = np.zeros(column.size)
    if condition is not None and column.values is None and column.edges is None:
        raise DeclarationError(
            f"a condition on {column.name!r} needs cells that are known, and its own are released "
            "with the model: give edges or declare categories, in place of private_edges and "
            "private_keys, or name its columns in place of the condition"
        )
    if condition is None:
        if not column.missing:
            raise DeclarationError(f"no value of {column.name!r} is missing")
        found[-1] = 1.0
        return Taken(found, found, found)
    if column.values is not None:
        asked = [condition] if isinstance(condition, str | bytes) else condition
        many = list(asked) if isinstance(asked, Iterable) else [asked]
        for each in many:
            if each not in column.values:
                raise DeclarationError(
                    f"{column.name!r} has the categories {list(column.values)!r}, not {each!r}"
                )
            found[column.values.index(each)] = 1.0
        return Taken(found, found, found)
    is_list = isinstance(condition, Iterable) and not isinstance(condition, str | bytes | Mapping)
    ends = _numbers(column.name, condition) if is_list else []
    if not (len(ends) == 2 and ends[0] < ends[1]):
        raise DeclarationError(
            f"a condition on numbers such as {column.name!r} is a range (low, high), "
            f"got {condition!r}"
        )
    edges = np.array(column.edges)
    low, high = edges[:-1], edges[1:]
    if ends[1] <= edges[0] or ends[0] >= edges[-1]:
        raise DeclarationError(
            f"the range {condition!r} of {column.name!r} is beyond its edges, {edges[0]:g} and "
            f"{edges[-1]:g}: values there were counted in the bin next to them, with others"
        )
    # values beyond the outer edges were counted in the bin next to them
    start = -math.inf if ends[0] <= edges[0] else ends[0]
    stop = math.inf if ends[1] >= edges[-1] else ends[1]
    share = np.clip((np.minimum(high, stop) - np.maximum(low, start)) / (high - low), 0.0, 1.0)
    some = (high > start) & (low < stop)
    whole = (low >= start) & (high <= stop)
    parts = [found.copy(), found.copy(), found]
    for part, values in zip(parts, (whole, share, some), strict=True):
        part[: len(low)] = values
    return Taken(*parts)


def impossible_boxes(conditions: Any, axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return cells that no row can be in, as a list of JSON values.

    Parameters
    ----------
    conditions
        A list of mappings from columns to conditions (see `taken`), each met by no row.
    axes
        Of the columns.
    """
    if isinstance(conditions, Mapping | str) or not isinstance(conditions, Iterable):
        raise DeclarationError(
            "impossible is a list of conditions such as [{'age': (0, 15), 'married': 'yes'}], got "
            f"{type(conditions).__name__}"
        )
    names, found = [each.name for each in axes], []
    for condition in conditions:
        if not (isinstance(condition, Mapping) and condition):
            raise DeclarationError(
                f"an impossible condition maps columns to values or ranges, got {condition!r}"
            )
        wrong = [name for name in condition if name not in names]
        if wrong:
            raise DeclarationError(f"impossible names {wrong[0]!r}, which is in no table")
        places = sorted(names.index(name) for name in condition)
        # a cell that is taken in part alone can have rows
        cells = [taken(axes[i], condition[names[i]]).whole for i in places]
        empty = [names[i] for i, own in zip(places, cells, strict=True) if not own.any()]
        if empty:
            raise DeclarationError(
                f"the impossible range of {empty[0]!r} holds no whole bin: give it as an edge"
            )
        found.append({"columns": places, "cells": [own.astype(int).tolist() for own in cells]})
    return found


# -----------------------------------------------------------------------------
# Tables that are wanted, and those that may be measured.


@frozen(slots=False)
class Layout:
    """The tables of a workload, and all their subsets, one after the other in one vector.

    Parameters
    ----------
    sizes
        The number of cells of each column.
    workload
        The tables that are wanted.
    weights
        Of each of them: positive, or `OUTSIDE` of pairs that are not wanted, but may be chosen.
    """

    sizes: tuple[int, ...]
    workload: tuple[Columns, ...]
    weights: tuple[float, ...]

    @cached_property
    def tables(self) -> tuple[Columns, ...]:
        """The candidates: all subsets of tables that are wanted but the empty one, small first."""
        found = {part for table in self.workload for part in subsets(table) if part}
        return tuple(sorted(found, key=lambda table: (len(table), table)))

    @property
    def wanted(self) -> list[Columns]:
        """The tables of the workload without the pairs outside of it."""
        pairs = zip(self.workload, self.weights, strict=True)
        return [table for table, weight in pairs if weight != OUTSIDE]

    @property
    def outside(self) -> list[Columns]:
        """The pairs of columns that no table of the workload has together."""
        pairs = zip(self.workload, self.weights, strict=True)
        return [table for table, weight in pairs if weight == OUTSIDE]

    @cached_property
    def place(self) -> dict[Columns, int]:
        """The place of each candidate."""
        return {table: i for i, table in enumerate(self.tables)}

    @cached_property
    def cells(self) -> Integers:
        """The number of cells of each candidate."""
        return np.array([self.cells_of(table) for table in self.tables], dtype=np.int64)

    @cached_property
    def starts(self) -> Integers:
        """Where each candidate's cells begin, and the end."""
        return np.concatenate([[0], np.cumsum(self.cells)]).astype(np.int64)

    @cached_property
    def steps(self) -> Integers:
        """Each candidate's weight, in steps of 2^-8: the largest is 1.

        It is the fourth root of the sum, over the tables that are wanted, of their weight times the
        number of columns that they share with it. McKenna, Mullins, Sheldon and Miklau 2022,
        Section 4, take the sum itself, with which small tables are chosen less often than pays.
        """
        columns, place = _flat(self.workload)
        # by column what the tables that are wanted weigh
        weights = np.bincount(columns, np.array(self.weights)[place], minlength=len(self.sizes))
        columns, place = _flat(self.tables)
        overlap = np.bincount(place, weights[columns])
        steps = np.maximum(1.0, np.rint((overlap / overlap.max()) ** 0.25 * WEIGHT_STEPS))
        return steps.astype(np.int64)  # type: ignore[no-any-return]

    @cached_property
    def members(self) -> NDArray[np.int8]:
        """Which columns each candidate has: ones and zeros, shape (candidates, columns)."""
        columns, place = _flat(self.tables)
        found = np.zeros((len(self.tables), len(self.sizes)), dtype=np.int8)
        found[place, columns] = 1
        return found

    @property
    def most(self) -> int:
        """The number of cells of the largest candidate."""
        return int(self.cells.max())

    def cells_of(self, table: Columns) -> int:
        """Return the number of cells of a table."""
        return math.prod(self.sizes[i] for i in table)

    def shape(self, table: Columns) -> tuple[int, ...]:
        """Return the numbers of cells along a table's axes."""
        return tuple(self.sizes[i] for i in table)

    def part(self, vector: NDArray[Any], index: int) -> NDArray[Any]:
        """Return a candidate's part of a vector of all cells, in its shape."""
        own = vector[self.starts[index] : self.starts[index + 1]]
        return own.reshape(self.shape(self.tables[index]))

    def pieces(self, cells: int) -> Iterator[slice]:
        """Yield the candidates, in order, in pieces of about so many cells, or of one candidate."""
        start, last = 0, len(self.tables)
        while start < last:
            end = int(np.searchsorted(self.starts, self.starts[start] + cells, side="right")) - 1
            stop = min(max(end, start + 1), last)
            yield slice(start, stop)
            start = stop


def _flat(tables: Sequence[Columns]) -> tuple[Integers, Integers]:
    """Return the columns of tables, one after the other, and the place of the table of each."""
    sizes = np.fromiter(map(len, tables), dtype=np.int64, count=len(tables))
    columns = np.fromiter(itertools.chain.from_iterable(tables), dtype=np.int64)
    return columns, np.repeat(np.arange(len(tables)), sizes)


@lru_cache(maxsize=64)
def layout(
    sizes: tuple[int, ...], workload: tuple[Columns, ...], weights: tuple[float, ...]
) -> Layout:
    """Return a layout, checked; equal ones are one object."""
    found = Layout(sizes, workload, weights)
    if not workload or len(weights) != len(workload):
        raise DeclarationError("a workload needs tables, and a weight for each")
    for table in workload:
        if (
            not table
            or list(table) != sorted(set(table))
            or not 0 <= table[0] <= table[-1] < len(sizes)
        ):
            raise DeclarationError(f"a table needs different columns, got the places {table!r}")
    plain = [positive(weight) or weight == OUTSIDE for weight in weights]
    if not all(plain) or not any(weights):
        raise DeclarationError(
            f"weights of tables must be positive, or {OUTSIDE:g} of pairs that are not wanted, and "
            f"one at least positive, got {short_repr(weights)}"
        )
    if found.most > LARGEST or sum(map(int, found.cells)) > MOST_CELLS:
        raise DeclarationError(
            f"{len(found.tables)} tables of {sum(map(int, found.cells))} cells do not fit: at most "
            f"{MOST_CELLS} cells, and {LARGEST} in a table"
        )
    return found


def layout_of(document: Mapping[str, Any]) -> Layout:
    """Return a layout from its document (see `document_of`)."""
    sizes, weights = map(int, document["sizes"]), map(float, document["weights"])
    return _read_layout(tuple(sizes), str(document["workload"]), tuple(weights))


@lru_cache(maxsize=64)
def _read_layout(sizes: tuple[int, ...], text: str, weights: tuple[float, ...]) -> Layout:
    tables = tuple(tuple(int(i) for i in table.split(",")) for table in text.split(";"))
    return layout(sizes, tables, weights or (1.0,) * len(tables))


def document_of(found: Layout) -> dict[str, Any]:
    """Return a layout as a mapping of JSON values.

    Tables are one str, such as ``"0,1;1,2"``, and weights that are all 1 are left out:
    post-processing gets a copy of it in every round, and there may be 10^5 tables.
    """
    plain = all(weight == 1 for weight in found.weights)
    return {
        "sizes": list(found.sizes),
        "workload": ";".join(",".join(map(str, table)) for table in found.workload),
        "weights": [] if plain else list(found.weights),
    }


Conditions = Mapping[str, Any]


def items_of(workload: Any) -> tuple[Any, list[Conditions], set[str]]:
    """Return the tables of a workload's items, all conditions in them, and columns of plain tables.

    Parameters
    ----------
    workload
        As of `tables_of`, or a list whose items may also be conditions on columns (see `taken`), a
        pair of such, of which the second is what a conditional is given, and any of them in a pair
        with its weight.

    Examples
    --------
    >>> tables, conditions, plain = items_of([({"age": (30, 50), "ill": "yes"}, 2.0), ["ill"]])
    >>> tables, plain
    ({('age', 'ill'): 2.0, ('ill',): 1.0}, {'ill'})
    """
    if isinstance(workload, str | bytes | Mapping) or not isinstance(workload, Iterable):
        return workload, [], set()
    items = [_weighed(item) for item in workload]
    if all(weight is None and not _conditions(item) for item, weight in items):
        return workload, [], set()
    tables: dict[tuple[str, ...], float] = {}
    conditions: list[Conditions] = []
    plain: set[str] = set()
    for item, weight in items:
        own = _conditions(item)
        if own:
            names = [name for each in own for name in each]
        else:
            names = [item] if isinstance(item, str) else list(item)
            plain |= {name for name in names if isinstance(name, str)}
        if not all(isinstance(name, str) for name in names):
            raise DeclarationError(f"an item of a workload names columns, got {item!r}")
        if weight is not None and not positive(weight):
            raise DeclarationError(f"the weight of {item!r} must be positive, got {weight!r}")
        # named twice, in a condition and in what is given, it is refused with the tables
        key = tuple(names) if len(set(names)) < len(names) else tuple(sorted(names))
        tables[key] = tables.get(key, 0.0) + (1.0 if weight is None else float(weight))
        conditions += own
    return tables, conditions, plain


def _weighed(item: Any) -> tuple[Any, Any]:
    """Return an item and its weight, None where none is given."""
    pair = isinstance(item, tuple | list) and len(item) == 2
    if pair and not isinstance(item[0], str) and not isinstance(item[1], str | Mapping):
        return item[0], item[1]
    return item, None


def _conditions(item: Any) -> list[Conditions]:
    """Return the conditions of an item: none of a table."""
    found = [item] if isinstance(item, Mapping) else item
    if isinstance(found, str | bytes) or not isinstance(found, Iterable):
        return []
    held = list(found)
    if not any(isinstance(each, Mapping) for each in held):
        return []
    if len(held) > 2 or not all(isinstance(each, Mapping) and each for each in held):
        raise DeclarationError(
            "an item of a workload is a list of columns, conditions such as {'age': (30, 50)}, or "
            f"a pair of conditions, the second of which is given, got {item!r}"
        )
    return held


def edges_with(
    edges: Mapping[str, Any],
    conditions: Iterable[Conditions],
    plain: set[str],
    private_edges: Collection[str],
    table: TableDomain,
) -> dict[str, Any]:
    """Return edges to which the ends of all ranges are added, so that no range cuts a bin.

    Columns of which no edges are given, and that are in no plain table, have no others: their bins
    are as few, and as little noise is added up, as the ranges allow. Those of ``private_edges``
    have none.
    """
    found = dict(edges)
    for each in conditions:
        for name, condition in each.items():
            column = table.find(name) if name in table.columns else None
            if condition is None or not isinstance(column, Interval):
                continue
            if name in private_edges:
                continue  # refused by `taken`, with the right words
            given = found.get(name, BINS if name in plain else 1)
            own = _axis(name, column, False, given).edges or ()
            asked = _numbers(name, condition if isinstance(condition, Iterable) else [])
            inside = {float(end) for end in asked if column.lower < end < column.upper}
            found[name] = sorted({*own, *inside})
    return found


def tables_of(
    workload: Any, names: Sequence[str], sizes: Sequence[int], cells: int
) -> dict[Columns, float]:
    """Return the tables of a workload, by their columns' places, and their weights.

    Parameters
    ----------
    workload
        ``"all 3-way"`` for all tables of three of the columns (1 to 4) that have at most ``cells``
        cells; or a list of tables, each a list of names; or a mapping from such to weights.
    names, sizes
        The columns, and their numbers of cells.
    cells
        The most cells of a table.

    Raises
    ------
    DeclarationError
        If a table that is named is larger, or all are together, with their sizes.
    """
    if isinstance(workload, str):
        given = _all_of(workload, sizes, cells)
    else:
        given = _named(workload, names)
        large = [table for table in given if math.prod(sizes[i] for i in table) > cells]
        if large:
            shown = "; ".join(
                f"{', '.join(names[i] for i in table)}: "
                f"{math.prod(sizes[i] for i in table):,} cells"
                for table in large[:SHOWN]
            )
            raise DeclarationError(
                f"{len(large)} tables of the workload have more than {cells:,} cells ({shown}): "
                "fewer bins (edges=), fewer columns in a table, or a larger cells= would fit"
            )
    parts = {part for table in given for part in subsets(table) if part}
    total = sum(math.prod(sizes[i] for i in part) for part in parts)
    if total > MOST_CELLS:
        raise DeclarationError(
            f"the workload's {len(given):,} tables and their subsets have {total:,} cells, of "
            f"which {MOST_CELLS:,} fit into memory: a list of fewer tables, fewer bins (edges=) or "
            "a smaller cells= would fit"
        )
    return given


def _all_of(workload: str, sizes: Sequence[int], cells: int) -> dict[Columns, float]:
    words = workload.split()
    ways = {f"{k}-way": k for k in range(1, 5)}
    if not (len(words) == 2 and words[0] == "all" and words[1] in ways):
        raise DeclarationError(
            "a workload is 'all 1-way' to 'all 4-way', a list of lists of columns, or a mapping "
            f"from tuples of columns to weights, got {workload!r}"
        )
    k = ways[words[1]]
    if len(sizes) < k:
        raise DeclarationError(f"{workload!r} needs {k} columns, got {len(sizes)}")
    if math.comb(len(sizes), k) > MOST_CELLS // 4:
        raise DeclarationError(
            f"{workload!r} of {len(sizes)} columns are {math.comb(len(sizes), k):,} tables, which "
            "do not fit: name those that are wanted"
        )
    found = {
        table: 1.0
        for table in itertools.combinations(range(len(sizes)), k)
        if math.prod(sizes[i] for i in table) <= cells
    }
    if not found:
        raise DeclarationError(
            f"no table of {workload!r} has at most {cells:,} cells; the smallest has "
            f"{math.prod(sorted(sizes)[:k]):,}: fewer bins (edges=), or a larger cells= would fit"
        )
    return found


def _named(workload: Any, names: Sequence[str]) -> dict[Columns, float]:
    if isinstance(workload, bytes) or not isinstance(workload, Iterable):
        raise DeclarationError(
            "a workload is 'all 3-way', a list of lists of columns, or a mapping from tuples of "
            f"columns to weights, got {type(workload).__name__}"
        )
    weighted = workload.items() if isinstance(workload, Mapping) else [(t, 1.0) for t in workload]
    found: dict[Columns, float] = {}
    for table, weight in weighted:
        own = [table] if isinstance(table, str) else list(table)
        wrong = [name for name in own if name not in names]
        if wrong or not own or len(set(own)) < len(own):
            raise DeclarationError(
                f"a table of the workload needs different columns out of {list(names)}, got "
                f"{own!r}; columns of a table that are not listed declare neither bounds nor "
                "categories: declare them, or name those of str in private_keys={name: 20}"
            )
        if not positive(weight):
            raise DeclarationError(f"the weight of {own!r} must be positive, got {weight!r}")
        places = tuple(sorted(names.index(name) for name in own))
        found[places] = found.get(places, 0.0) + float(weight)
    if not found:
        raise DeclarationError("a workload needs a table at least")
    return found
