"""Tables of counts, and how far a model's answers are from them: what is asked of private rows.

All candidate tables are counted in one pass over the rows, as integers, and stay inside the plan.
Rounds then ask how far the released answers of a model are off in each (`TableErrors`, of which a
mechanism chooses one), and what the counts of one are (`ChosenTable`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import MORE_ROWS, RowFunction, RowSum, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.graph.values import strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Column, ColumnValues, numbers
from adaptive_dp.queries.transforms import KeyLookup, check_edges
from adaptive_dp.synthesis.workload import (
    WEIGHT_STEPS,
    Axis,
    Layout,
    layout,
    released_edges,
    with_released,
)

Floats = NDArray[np.float64]

ANSWER_STEPS = 2**8
"""A model's answers are rounded to multiples of 2^-8 of a row before they are compared."""

AT_ONCE = 2**20
"""Of about so many cells errors are computed at once."""

LARGEST_ANSWER = 2**33
"""Answers are clipped to so many rows in a cell, either way."""


@frozen(slots=False)
class CellOf(RowFunction):
    """The cell of each row's value along an axis, -1 for none.

    Numbers beyond the first or the last edge lie in the bin next to it; what is missing, or no
    declared category, in the last cell of an axis that has one for it.
    """

    of: ColumnValues
    axis: Axis

    def __call__(self, columns: Columns) -> Integers:
        """Return the cells, shape (m,)."""
        values = once(columns, self.of)
        if self.axis.values is not None:
            places = KeyLookup(self.axis.values)(values)
        else:
            edges = np.array(self.axis.edges)
            floats = numbers(values)
            # inner edges alone: what is beyond the outer ones lies in the first or the last bin
            places = np.searchsorted(edges[1:-1], floats, side="right").astype(np.int64)
            places = np.where(np.isnan(floats), -1, places)
        return np.where(places < 0, self.axis.size - 1, places) if self.axis.missing else places


@frozen(slots=False)
class TableCounts:
    """The counts of all candidate tables of a block of rows, one after the other."""

    rows_at_once: ClassVar[int] = MORE_ROWS  # integers: exact for blocks of any size
    wants_int64: ClassVar[bool] = True  # there may be 2^26 of them

    axes: tuple[CellOf, ...]
    layout: Layout

    def __call__(self, columns: Columns) -> Integers:
        """Return what a block adds, shape (cells,)."""
        cells = [once(columns, each) for each in self.axes]
        # of each length the last table's: tables are in order, so that those which share all
        # columns but the last follow each other, and 5,000 pairs are not kept
        latest: dict[int, tuple[tuple[int, ...], Integers]] = {}

        def index(table: tuple[int, ...]) -> Integers:
            last, known = cells[table[-1]], latest.get(len(table))
            if len(table) == 1:
                return last
            if known is None or known[0] != table:
                before = index(table[:-1])
                both = before * self.layout.sizes[table[-1]] + last
                known = latest[len(table)] = table, np.where((before < 0) | (last < 0), -1, both)
            return known[1]

        counts, start = np.empty(int(self.layout.starts[-1]), dtype=np.int64), 0
        for table, size in zip(self.layout.tables, self.layout.cells.tolist(), strict=True):
            # shifted by one: rows of no cell are counted in a cell of their own
            counts[start : start + size] = np.bincount(index(table) + 1, minlength=size + 1)[1:]
            start += size
        return counts


@frozen
class MarginalsDomain:
    """The domain of the tables of a workload."""

    layout: Layout


@frozen(eq=False, repr=False)
class Marginals:
    """The exact counts of all candidate tables, one after the other: private.

    They are int32 where all of them fit, which is half of the memory.
    """

    counts: NDArray[np.int32] | Integers
    layout: Layout

    def __repr__(self) -> str:
        return "<private tables>"


def _edges(value: Any) -> tuple[tuple[float, ...] | None, ...]:
    return tuple(None if each is None else tuple(float(v) for v in each) for each in value)


def _flags(value: Any) -> tuple[bool, ...]:
    return tuple(bool(each) for each in value)


def _tables(value: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(i) for i in table) for table in value)


def _bins(value: Any) -> tuple[int | None, ...]:
    return tuple(None if each is None else int(each) for each in value)


def _weights(value: Any) -> tuple[float, ...]:
    return tuple(float(each) for each in value)


@frozen
class MarginalsOf(Operation):
    """The exact counts of rows in all tables of a workload and in their subsets, in one pass.

    A row lies in one cell of each table at most: that of its values along the table's axes.

    Parameters
    ----------
    columns
        The columns.
    declared
        How they are declared.
    edges
        Of each column of numbers the edges of its bins; None for categories.
    missing
        Whether each has a cell for what is missing or not declared.
    workload, weights
        The tables that are wanted, by the places of their columns, and what they weigh.
    released_cells
        Of each column the number of its cells, where the edges of its bins or its keys are a
        released input, one for each such column in order; else None.
    """

    kind: ClassVar[str] = "marginals"
    is_computed: ClassVar[bool] = True
    column_fields: ClassVar[tuple[str, ...]] = ("columns",)
    input_type: ClassVar[type] = domains.Table
    max_released_inputs: ClassVar[int] = 32

    columns: tuple[str, ...] = field(converter=strings)
    declared: Mapping[str, Column] = field(converter=domains.columns)
    edges: tuple[tuple[float, ...] | None, ...] = field(converter=_edges)
    missing: tuple[bool, ...] = field(converter=_flags)
    workload: tuple[tuple[int, ...], ...] = field(converter=_tables)
    weights: tuple[float, ...] = field(converter=_weights)
    released_cells: tuple[int | None, ...] = field(converter=_bins)

    def label(self) -> str:
        """Return the number of tables."""
        return f"{len(self.workload)} tables of {len(self.columns)} columns"

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the columns."""
        found = []
        for name, edges, missing, bins in zip(
            self.columns, self.edges, self.missing, self.released_cells, strict=True
        ):
            column = self.declared[name]
            values = tuple(column.values) if isinstance(column, domains.Categories) else None
            found.append(
                Axis(name, values, None if values is not None else edges, bool(missing), bins)
            )
        return tuple(found)

    def _axes_at(self, released: Sequence[Any]) -> tuple[Axis, ...]:
        """Return the axes with released edges and keys, whatever those are."""
        given, found = iter(released), []
        for axis in self.axes:
            if axis.released is None:
                found.append(axis)
                continue
            own, bounds = next(given), self.declared[axis.name]
            if isinstance(bounds, domains.Interval):
                inner = np.asarray(own, dtype=np.float64).reshape(-1)[1:-1]
                own = released_edges(
                    inner, lower=bounds.lower, upper=bounds.upper, count=axis.released
                )
            found.append(with_released(axis, own))
        return tuple(found)

    @property
    def layout(self) -> Layout:
        """The tables in one vector."""
        return layout(tuple(each.size for each in self.axes), self.workload, self.weights)

    def domain(self, inputs: Sequence[Any]) -> MarginalsDomain:
        """Return the tables; check the columns."""
        table: domains.Table = inputs[0]
        if not (
            len(self.columns) == len(self.edges) == len(self.missing) == len(self.released_cells)
        ):
            raise DeclarationError("marginals need edges, missing and bins for each column")
        released = sum(bins is not None for bins in self.released_cells)
        if len(inputs) != 1 + released:
            raise DeclarationError(f"marginals need a table and {released} released edges")
        for name, edges, bins in zip(self.columns, self.edges, self.released_cells, strict=True):
            domains.check_declared(table, name, self.declared)
            if bins is not None:
                kinds = (domains.Interval, domains.Strings)
                if edges is not None or not isinstance(self.declared[name], kinds):
                    raise DeclarationError(
                        f"{name!r} needs bounds, or to be of str, and no edges where its cells are "
                        "released"
                    )
            elif isinstance(self.declared[name], domains.Interval):
                check_edges(name, edges or ())
            elif not isinstance(self.declared[name], domains.Categories):
                raise DeclarationError(f"{name!r} needs bounds or categories")
        return MarginalsDomain(self.layout)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the counts."""
        axes = self._axes_at(inputs[1:])
        cells = tuple(CellOf(ColumnValues(each.name), each) for each in axes)

        def finish(total: NDArray[Any]) -> Marginals:
            # clamped: 1-Lipschitz, and far above any number of rows
            if int(total.max(initial=0)) < 2**31:
                return Marginals(total.astype(np.int32), found)
            return Marginals(np.minimum(total, LARGEST_ANSWER).astype(np.int64), found)

        found = self.layout
        return RowSum(inputs[0], TableCounts(cells, found), finish)


# -----------------------------------------------------------------------------
# What is asked of the tables.


def squares_moved(change: Change) -> int:
    """Return the largest ``a^2 + b^2`` of a unit's a rows in one data set and b in the other.

    With ``a, b <= r`` and ``a + b <= s`` it is convex, and largest at the corner a = r, b = s - r.
    """
    rest = change.both - change.rows
    return change.rows**2 + rest**2


@frozen
class MarginalQuery(Query):
    """Base of the queries of all candidate tables."""

    input_type: ClassVar[type] = MarginalsDomain
    column_fields: ClassVar[tuple[str, ...]] = ()

    def domain(self, inputs: Sequence[Any]) -> MarginalsDomain:
        """Return the tables; check the number of released inputs."""
        if len(inputs) != 1 + self.max_released_inputs:
            raise DeclarationError(
                f"{self.kind} needs tables and {self.max_released_inputs} released inputs"
            )
        found: MarginalsDomain = inputs[0]
        return found

    def step(self, domain: MarginalsDomain) -> float:
        """Return 1: these are counts."""
        return 1.0


@frozen
class OneWayTables(MarginalQuery):
    """The counts of each column by itself, one after the other.

    *Sensitivity* (as `adaptive_dp.queries.bins.BinCounts`, without its coordinate 0). A row adds 1
    to one cell of each of d columns at most. Of a unit with a rows in one data set and b in the
    other, the counts of a column are vectors u, v >= 0 of l1 norms of at most a and b, so that
    ``|u - v|_2^2 <= |u|_2^2 + |v|_2^2 <= a^2 + b^2``: in l2 ``sqrt(d (a^2 + b^2))``, in l1
    ``d (a + b)``, in the maximum norm ``max(a, b)``.
    """

    kind: ClassVar[str] = "one_way_tables"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "counts of each column"

    def dimension(self, domain: MarginalsDomain) -> int:
        """Return the number of cells of all columns."""
        return one_way_cells(domain.layout)

    def coordinates_moved(self, domain: MarginalsDomain, change: Change) -> int:
        """Return how many counts one unit's rows are in."""
        return min(self.dimension(domain), change.both * len(one_way_tables(domain.layout)))

    def sensitivity(self, domain: MarginalsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factor 1 + 1e-12 rounds it up."""
        d = len(one_way_tables(domain.layout))
        if math.isinf(norm):
            return float(change.rows)
        if norm == 1:
            return float(d * change.both)
        return math.sqrt(d * squares_moved(change)) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the counts, shape (cells of all columns,)."""
        found: Marginals = inputs[0]
        # columns come first among the candidates
        return found.counts[: one_way_cells(found.layout)].astype(np.float64)


def one_way_tables(found: Layout) -> list[tuple[int, ...]]:
    """Return the candidates of one column: they come first."""
    return [table for table in found.tables if len(table) == 1]


def one_way_cells(found: Layout) -> int:
    """Return the number of cells of all tables of one column."""
    return int(found.starts[len(one_way_tables(found))])


@frozen
class TableErrors(MarginalQuery):
    """How far released answers are from the counts of each candidate table, less a level for noise.

    Of a candidate t with the weight w it is ``w (|m_t - a_t|_1 - p n_t)``, where m_t are its counts
    and n_t their number, a_t the released answers and p a released penalty by cell: what noise
    alone would add up to if it were measured next. Candidates that are closed (released) have the
    least score that there is.

    *Sensitivity*, own proof. A row adds 1 to one cell of m_t at most, so by the triangle inequality
    a unit with a rows in one data set and b in the other moves ``|m_t - a_t|_1`` by at most
    ``a + b``, up or down, whatever the answers are; the other terms are released. So each score
    moves by at most ``w (a + b)``, ``Change.both`` of the weight; two of them apart by that of the
    two largest weights together, which is attained: one table's answers are above the counts in
    the unit's cell, and the other's below. In l1 and l2 the weights are added up, and their
    squares.

    *Rounding*. Answers and the penalty are rounded to multiples of 2^-8 and clipped to 2^33 rows,
    which are released values; counts are integers. So all is computed in integers below 2^63,
    exactly, and clamping a score moves no two apart.

    Inputs are the tables, and a released mapping of ``"answers"``, shape (cells,), ``"penalty"``,
    a number, and ``"closed"``, the places of candidates that are closed.
    """

    kind: ClassVar[str] = "table_errors"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 1
    rounds_outward: ClassVar[bool] = True

    def label(self) -> str:
        """Return the query."""
        return "errors of the model's answers by table"

    def dimension(self, domain: MarginalsDomain) -> int:
        """Return the number of candidates."""
        return len(domain.layout.tables)

    def step(self, domain: MarginalsDomain) -> float:
        """Return 2^-16."""
        return 1.0 / (ANSWER_STEPS * WEIGHT_STEPS)

    def sensitivity(self, domain: MarginalsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        weights = domain.layout.steps / WEIGHT_STEPS
        if norm == 1:
            return float(change.both * weights.sum())
        if norm == 2:
            return change.both * math.sqrt(float((weights**2).sum())) * (1 + 1e-12)
        return float(change.both * weights.max())

    def span(self, domain: MarginalsDomain, change: Change) -> float:
        """Return the two largest weights times a + b."""
        weights = np.sort(domain.layout.steps / WEIGHT_STEPS)[-2:]
        return float(change.both * weights.sum())

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the scores, shape (candidates,)."""
        tables: Marginals = inputs[0]
        released: Mapping[str, Any] = inputs[1]
        found = tables.layout
        given = np.asarray(released["answers"]).reshape(-1)
        errors = np.empty(len(found.tables), dtype=np.int64)
        for part in found.pieces(AT_ONCE):
            start, stop = int(found.starts[part.start]), int(found.starts[part.stop])
            answers = in_steps(given[start:stop], stop - start)
            # both below 2^33 2^8 in a cell, of which there are at most 2^20: a sum is at most 2^62
            gaps = np.abs(tables.counts[start:stop].astype(np.int64) * ANSWER_STEPS - answers)
            errors[part] = np.add.reduceat(gaps, found.starts[part] - start)
        penalty = in_steps(np.array([released["penalty"]]), 1)
        # clamped to 2^54: 1-Lipschitz; weights are at most 2^8, so that products fit
        above = np.clip(errors, 0, 2**54) - np.clip(penalty * found.cells, 0, 2**54)
        scores = np.clip(above * found.steps, -(2**53), 2**53)
        scores[places(released["closed"], len(scores))] = -(2**53)
        return np.asarray(scores.astype(np.float64) * self.step(MarginalsDomain(found)))


def in_steps(values: Any, count: int) -> Integers:
    """Return released numbers in steps of 2^-8, clipped, whatever they are: shape (count,)."""
    flat = np.zeros(count)
    given = np.asarray(values, dtype=np.float64).reshape(-1)[:count]
    flat[: len(given)] = np.nan_to_num(given, nan=0.0)
    inside = np.clip(flat, -float(LARGEST_ANSWER), float(LARGEST_ANSWER))
    return np.rint(inside * ANSWER_STEPS).astype(np.int64)


def places(values: Any, count: int) -> Integers:
    """Return released places of candidates, those that there are."""
    given = np.asarray(values, dtype=np.float64).reshape(-1)
    inside = given[(given >= 0) & (given < count)]
    return inside.astype(np.int64)


@frozen
class ChosenTable(MarginalQuery):
    """The counts of the candidate table whose place was released, and then zeros.

    *Sensitivity*, as of a histogram, whatever the place: a row adds 1 to one cell at most. A unit
    that appears moves the counts by r at most in every norm; a rows that are exchanged for b by
    ``sqrt(a^2 + b^2)`` in l2, ``a + b`` in l1 and ``max(a, b)`` in the maximum norm.
    """

    kind: ClassVar[str] = "chosen_table"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 1

    def label(self) -> str:
        """Return the query."""
        return "counts of the chosen table"

    def dimension(self, domain: MarginalsDomain) -> int:
        """Return the number of cells of the largest candidate."""
        return domain.layout.most

    def coordinates_moved(self, domain: MarginalsDomain, change: Change) -> int:
        """Return how many counts one unit's rows are in."""
        return min(domain.layout.most, change.both)

    def sensitivity(self, domain: MarginalsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factor 1 + 1e-12 rounds it up."""
        if math.isinf(norm):
            return float(change.rows)
        if norm == 1:
            return float(change.both)
        return math.sqrt(squares_moved(change)) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the counts, shape (cells of the largest,)."""
        tables: Marginals = inputs[0]
        found, counts = tables.layout, np.zeros(tables.layout.most)
        place = candidate_place(inputs[1], len(found.tables))
        own = tables.counts[found.starts[place] : found.starts[place + 1]]
        counts[: len(own)] = own
        return counts


def candidate_place(value: Any, count: int) -> int:
    """Return a released place of a candidate, clipped to those that there are."""
    given = float(np.asarray(value, dtype=np.float64).reshape(-1)[0])
    return int(np.clip(np.nan_to_num(given), 0, count - 1))
