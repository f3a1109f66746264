"""Quantiles, trimmed means, variances, modes and functions of a user's own.

Each query hands to its mechanism not an array but a value with its local sensitivity at every
distance (`LocalSensitivity`), or a choice with its distance to instability (`Choice`). Its own
sensitivity therefore counts changed rows (`domains.row_steps`); how far the value moves is derived
in the docstring of the object that it returns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray
from scipy.special import ndtri

from accountants.numerics import ceiling
from adaptive_dp.data import Columns
from adaptive_dp.data.grid import step
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import Cells, RowFunction, RowSum, once
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.mechanism import (
    FOREVER,
    Choice,
    Floats,
    LocalSensitivity,
    Ranked,
    Universe,
)
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.graph.outputs import ConfidenceInterval, check_level, released_ends
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import as_tuple, number, optional_tuple
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.counts import Histogram
from adaptive_dp.queries.domains import (
    ClippedValues,
    Interval,
    Selected,
    Values,
    edges_of,
    interval,
    numbers,
    refuse_missing,
    refuse_zero_out,
    row_steps,
)
from adaptive_dp.queries.sums import bounded

# -----------------------------------------------------------------------------
# The base classes of the queries of this file, and of the values that they compute.


class RowQuery(Query):
    """Base of the queries whose own sensitivity counts changed rows (norm 0, `row_steps`).

    How far the value moves is said by the object that the query returns.
    """

    input_type: ClassVar[type] = Values

    bounds: Interval
    exchange: bool
    """Whether a step exchanges a row (True), or adds or removes one (False)."""
    instead: ClassVar[str] = "by median() or quantile(q)"
    """How missing values are left out where rows are exchanged."""

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse no bounds, zeroed-out rows, a number that may change.

        A value may be missing in one of two neighbours: then rows are exchanged one for one, and
        values are not.
        """
        values: Values = inputs[0]
        bounded(values)
        refuse_zero_out(self.kind, values)
        if self.exchange:
            refuse_missing(f"{self.kind} of exchanged rows", values, self.instead)
        return values

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`."""
        return row_steps(self.kind, change, norm, self.exchange)

    def sorted_values(self, selected: Selected) -> Floats:
        """Return the column's values, clipped to the bounds, in ascending order; no missing ones.

        One row is one value or none: a row that appears or vanishes moves one value at most. Where
        rows are exchanged none is missing, so that the number of values is that of rows.
        """
        values = selected.rows.values(ClippedValues(selected.of, self.bounds))
        return np.sort(values[~np.isnan(values)])


class PrivateValues(LocalSensitivity):
    """Base of the values with a local sensitivity: their ``repr`` shows nothing."""

    def __repr__(self) -> str:
        return "<private values>"


# -----------------------------------------------------------------------------
# The grid on which quantiles are chosen, and the rows of each of its cells.


GRID_BITS = 18
"""By default an interval is cut into at least 2^18 cells, where floats are as fine as that."""

POINTS = 2**24
"""The points of a cell, over which its rows are spread."""

MOST_CELLS = 2**24
"""The largest number of cells."""


@frozen
class QuantileGrid:
    """The numbers that a quantile of a bounded column may be: multiples of a unit in the bounds.

    Parameters
    ----------
    lower, upper
        The bounds.
    unit
        The distance of two neighbouring numbers: a power of two unless a user chose it.
    first
        The multiple of the unit that cell 0 stands for.
    count
        How many cells there are.
    """

    lower: float
    upper: float
    unit: float
    first: int
    count: int

    @classmethod
    def of(cls, bounds: Interval, step_size: float | None = None) -> QuantileGrid:
        """Return the grid of bounds, with a unit of a user's own where one is given."""
        lower, upper = bounds.lower, bounds.upper
        if step_size is None:
            # fine enough for the width, and no finer than floats at the larger end are
            unit = max(step(upper - lower, GRID_BITS), step(max(abs(lower), abs(upper)), 52))
        else:
            unit = step_size
        # first rounded up and last rounded down, to stay within the declared bounds
        first = math.ceil(Fraction(lower) / Fraction(unit))
        last = math.floor(Fraction(upper) / Fraction(unit))
        if first > last:  # no multiple lies inside: one cell, whose number is a bound
            first = last = round(Fraction(lower) / Fraction(unit))
        return cls(lower, upper, unit, first, last - first + 1)

    def cells(self, values: NDArray[Any]) -> Integers:
        """Return the cell of each value: that of the nearest number; NaN is the point next to 0."""
        low, high = float(self.first), float(self.first + self.count - 1)
        with np.errstate(over="ignore", invalid="ignore"):
            nearest = np.rint(numbers(values) / self.unit)
        # clipping makes infinities and values out of bounds the first or the last cell
        nearest = np.clip(np.nan_to_num(nearest, nan=0.0, posinf=high, neginf=low), low, high)
        # of a step that floats at the bounds do not resolve, both ends are rounded: clipped again
        return np.asarray(np.clip(nearest - low, 0, self.count - 1).astype(np.int64))

    def number(self, point: float) -> float:
        """Return the number of the cell in which a position lies, 0 <= position < count."""
        return min(self.upper, max(self.lower, (self.first + math.floor(point)) * self.unit))


@frozen
class CellIndex(RowFunction):
    """The cell of each row's value."""

    of: Callable[[Columns], NDArray[Any]]
    grid: QuantileGrid

    def __call__(self, columns: Columns) -> Integers:
        """Return the cells, -1 where the value is missing."""
        values = numbers(once(columns, self.of))
        return np.where(np.isnan(values), -1, self.grid.cells(values))


@frozen(repr=False, eq=False)
class CellRows:
    """Rows by cell, in a range of points: those of cell c begin at ``POINTS c``.

    The E rows of a cell are spread evenly over its points, so that a cut may divide them: of the
    points p of a cell from a to b, ``ceil(E (p - a) / (b - a) - 1/2)`` rows are before p.

    **A row more changes the rows before any point by 0 or 1.** In other cells by definition; in its
    own the expression under ``ceil`` grows by ``(p - a) / (b - a)``, which is between 0 and 1. So
    where a cut at p divides the rows in two, one side has a row more and the other is as it was,
    and by induction so it is after further cuts of the sides.

    Parameters
    ----------
    cells, counts
        Those that have rows, ascending, and how many, shape (m,).
    start, stop
        The range of points; rows of cells that it cuts are those inside.
    """

    cells: Integers
    counts: Integers
    start: int
    stop: int

    @classmethod
    def of_counts(cls, counts: NDArray[Any]) -> CellRows:
        """Return the rows of all cells."""
        occupied = np.flatnonzero(counts)
        rows = np.asarray(counts)[occupied].astype(np.int64)
        return cls(occupied, rows, 0, len(counts) * POINTS)

    def cut(self, point: int) -> tuple[CellRows, CellRows]:
        """Return the rows before a point of the range, and the others."""
        point = min(max(point, self.start), max(self.start, self.stop - 1))
        cell = point // POINTS
        i, inside = int(np.searchsorted(self.cells, cell)), 0
        has_rows = i < len(self.cells) and int(self.cells[i]) == cell
        rows = int(self.counts[i]) if has_rows else 0
        if has_rows:
            a, b = max(self.start, cell * POINTS), min(self.stop, (cell + 1) * POINTS)
            inside = _rows_before(rows, point - a, b - a)
        before = np.append(self.counts[:i], [inside] if has_rows else [])
        after = np.append([rows - inside] if has_rows else [], self.counts[i + has_rows :])
        left = CellRows(self.cells[: i + has_rows], before.astype(np.int64), self.start, point)
        return left, CellRows(self.cells[i:], after.astype(np.int64), point, self.stop)

    def positions(self) -> Integers:
        """Return the point of each row, ascending: shape (n,)."""
        low = np.maximum(self.cells * POINTS, self.start)
        width = np.minimum((self.cells + 1) * POINTS, self.stop) - low
        before = np.cumsum(self.counts) - self.counts
        index = np.arange(int(self.counts.sum())) - np.repeat(before, self.counts)
        # the i-th row of E is before p if and only if i < E (p - a) / (b - a) - 1/2, that is if
        # a + floor((2 i + 1) (b - a) / (2 E)) < p; below 2^32 rows the product is below 2^58
        shares = (
            (2 * index + 1)
            * np.repeat(width, self.counts)
            // np.repeat(2 * self.counts, self.counts)
        )
        return np.asarray(np.repeat(low, self.counts) + shares)


def _rows_before(rows: int, offset: int, width: int) -> int:
    """Return ``ceil(rows offset / width - 1/2)``, and at least 0, in integers."""
    # -(-a // b) is the quotient rounded up; a range without points has no rows before any
    return max(0, -(-(2 * rows * offset - width) // (2 * width))) if width > 0 else 0


# -----------------------------------------------------------------------------
# The score of a quantile: how far the rank of each point is from it (exponential mechanism).


UNIT = 2.0**-20
"""The order q of a quantile is rounded to multiples of this, so that scores are exact floats."""


@frozen(repr=False, eq=False)
class Ranks(Ranked):
    """The score ``-|#{rows before p} - q n|`` of every point p, in each of several disjoint ranges.

    Exact for fewer than 2^32 rows, since q is a multiple of `UNIT`. A cell with many rows has as
    large a share of scores near 0: a number that many rows have in common is found though it is
    one number among many.

    Parameters
    ----------
    ranges
        The rows of each range, and the order q of the quantile that is wanted of them.
    grid
        Where given, the released numbers are those of its cells; otherwise they are positions:
        the cell and, after the point, the place in it.
    """

    ranges: tuple[tuple[CellRows, float], ...]
    grid: QuantileGrid | None = None

    def __repr__(self) -> str:
        return "<private ranks>"

    @property
    def shape(self) -> tuple[int, ...]:
        """() for a number of the grid, otherwise a position for each range."""
        return () if self.grid is not None else (len(self.ranges),)

    def steps(self) -> list[tuple[Integers, Floats]]:
        """Return for each range starts and scores; past the i-th row i rows are before a point."""
        result = []
        for rows, q in self.ranges:
            positions = rows.positions()
            # a range that was cut at its own first point has that point alone
            stop = max(rows.stop, rows.start + 1)
            starts = np.concatenate([[rows.start], positions + 1, [stop]])
            ranks = np.arange(len(positions) + 1, dtype=np.float64)
            scores = -np.abs(ranks - rounded_order(q) * len(positions))
            result.append((np.minimum(starts, stop), scores))
        return result

    def numbers(self, points: Sequence[int]) -> Floats:
        """Return the numbers of the cells in which the points lie, or the points' positions."""
        places = [point / POINTS for point in points]  # exact: below 2^48, by a power of two
        if self.grid is None:
            return np.array(places)
        return np.array(self.grid.number(places[0]))


def rounded_order(q: float) -> float:
    """Return the multiple of `UNIT` nearest to q."""
    return round(q / UNIT) * UNIT


def score_sensitivity(q: float, change: Change) -> float:
    """Return the most that one unit's change moves any point's score.

    *Appears or vanishes.* A row below t moves ``#{x < t} - q n`` by ``1 - q``, any other row by
    ``-q``: at most ``max(q, 1 - q)`` for each row. *Exchanged*, a rows for b: it moves by between
    ``-(1-q) a - q b`` and ``(1-q) b + q a``, so by at most ``max(a, b)``. Both are attained.
    """
    order = rounded_order(q)
    # |(1-q) b + q a| <= max(a, b) where rows are exchanged; max(q, 1-q) a row where they appear
    # a multiple of a power of two, so that 1 - q is exact
    each = Fraction(1) if change.replaced else Fraction(max(order, 1 - order))
    return ceiling(change.rows * each)


# -----------------------------------------------------------------------------
# Quantiles of a bounded column.


PARTS = 10**6
"""The order q of a quantile is an integer number of millionths, so that ranks are exact."""


@frozen(repr=False)
class QuantileSensitivity(PrivateValues, Ranked):
    r"""A quantile of n values in bounds, with its local sensitivity at every distance.

    Let ``x_1 <= ... <= x_n`` be the values in order, and ``x_i`` the lower bound for i < 1, the
    upper one for i > n. The quantile is x_r with ``r = ceil(q n)``: the lower one of two medians,
    and the lower bound where there are no values.

    *Rows exchanged.* Of n values, k changes bring any two of ``x_i, x_{i+k+1}`` together, so that
    nothing stands between them, and the further change crosses the gap: ``A_k`` is the widest of
    those with ``r - k - 1 <= i <= r`` (Nissim, Raskhodnikova and Smith 2007, section 3.1).

    *Rows added or removed* (derived here). The quantile jumps over a gap of a data set with B
    values up to the gap and U beyond it if ``-M <= (1-q) B - q U < M``, ``M = max(q, 1-q)``: both
    when a row is added and when one is removed, some row does it. To make ``x_i, x_j`` that gap
    takes j - i - 1 removals between, and each further change moves ``(1-q) B - q U`` by at most
    M, which an addition below, or a removal above, does upward, and the others downward. So with
    ``h = (1-q) i - q (n - j + 1)`` k changes suffice if and only if ``e = k - (j - i - 1) >= 0``
    and ``-M (1 + e) <= h < M (1 + e)``. For each i the widest j follows.

    Parameters
    ----------
    values
        In ascending order, inside the bounds, shape (n,).
    lower, upper
        The bounds.
    q
        In (0, 1), rounded to millionths.
    exchange
        Whether a step exchanges a row (True), or adds or removes one (False).
    step_size
        The unit of the grid for mechanisms that choose by rank.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 3.1, for rows exchanged.

    Examples
    --------
    >>> values = np.array([0.1, 0.2, 0.35, 0.5, 0.55, 0.8, 0.9])
    >>> data = QuantileSensitivity(values, 0.0, 1.0, 0.5, exchange=True)
    >>> data.value, round(data.local(0), 9), round(data.smooth(0.5), 5)
    (0.5, 0.15, 0.18196)
    """

    values: Floats
    lower: float
    upper: float
    q: float
    exchange: bool
    step_size: float | None = None

    @property
    def rank(self) -> int:
        """``ceil(q n)``, in integers and so exact."""
        # -(-a // b) is the quotient rounded up
        return -(-round(self.q * PARTS) * len(self.values) // PARTS)

    @property
    def value(self) -> float:
        """The quantile."""
        return float(self._at(np.array([self.rank]))[0])

    @property
    def max_distance(self) -> int:
        """2 n + 2: that many changes suffice to move every value to a bound."""
        return 2 * len(self.values) + 2

    @property
    def grid(self) -> QuantileGrid:
        """The numbers among which a mechanism chooses by rank."""
        return QuantileGrid.of(Interval(self.lower, self.upper), self.step_size)

    def steps(self) -> list[tuple[Integers, Floats]]:
        """Return the scores of `Ranks`, for mechanisms that choose by rank."""
        cells, counts = np.unique(self.grid.cells(self.values), return_counts=True)
        rows = CellRows(cells, counts.astype(np.int64), 0, self.grid.count * POINTS)
        return Ranks(((rows, self.q),), self.grid).steps()

    def numbers(self, points: Sequence[int]) -> Floats:
        """Return the number of the cell in which the point lies, shape ()."""
        return Ranks((), self.grid).numbers(points)

    def reach(self, steps: int) -> tuple[Floats, Floats]:
        r"""Return the lowest and the highest value of the quantile within k changes, attained.

        All between them are reached with as many changes, but where rows are added or removed a
        number that no row has may take one more. Exchanged: ``x_{r-k}`` and ``x_{r+k}``. Added or
        removed: a removal below raises the rank ``q n`` of what is the quantile then, among the
        values as they were, by 1 - q, and an addition above by q; so k of them lead to
        ``x_{ceil(q n + k M)}``, ``M = max(q, 1-q)``, and the other way to ``x_{ceil(q n - k M)}``.
        """
        n, p, k = len(self.values), round(self.q * PARTS), np.arange(steps + 1)
        if self.exchange:
            return self._at(self.rank - k), self._at(self.rank + k)
        largest = max(p, PARTS - p)
        return self._at(-(-(p * n - k * largest) // PARTS)), self._at(
            -(-(p * n + k * largest) // PARTS)
        )

    def local(self, distance: int) -> float:
        """Return the widest gap that ``distance`` changes can make the quantile cross."""
        k = int(distance)
        if k >= self.max_distance:
            return self.upper - self.lower
        # ranks on either side of each gap that `distance` changes can make
        left, right = self._gaps_exchanged(k) if self.exchange else self._gaps_added(k)
        return float((self._at(right) - self._at(left)).max())

    def _gaps_exchanged(self, k: int) -> tuple[Any, Any]:
        """Return the ranks (i, i + k + 1) of the gaps around rank r that k exchanges can make."""
        left = np.arange(self.rank - k - 1, self.rank + 1)  # r - k - 1 <= i <= r
        return left, left + k + 1

    def _gaps_added(self, k: int) -> tuple[Any, Any]:
        """Return for each i the largest j such that k additions or removals make the gap (i, j).

        All quantities of the class docstring are integers here, in millionths.
        """
        n, p = len(self.values), round(self.q * PARTS)
        complement, largest = PARTS - p, max(p, PARTS - p)  # 1 - q, and M
        # at j = i + 1 the least |h| is 0 at i = q n, and a step of i moves it by 1: other i than
        # these have |h| >= M (1 + e) whatever j is
        center = p * n // PARTS
        left = np.arange(max(0, center - k - 2), min(n, center + k + 2) + 1)
        # with h = complement i - p (n - j + 1), e = k + 1 + i - j: h = constant + p j, and
        # M (1 + e) = reach - M j
        constant = complement * left - p * (n + 1)
        reach = largest * (k + 2 + left)
        # e >= 0, and h < M (1 + e), which gets harder as j grows
        right = np.minimum(left + 1 + k, (reach - constant - 1) // (p + largest))
        # h >= -M (1 + e) does so too
        if largest > p:
            right = np.minimum(right, (constant + reach) // (largest - p))
        else:  # M = q: this one does not depend on j
            right = np.where(constant + reach >= 0, right, left)
        right = np.minimum(right, n + 1)
        # a gap needs j >= i + 1; for other i no j suffices
        feasible = right > left
        return left[feasible], right[feasible]

    def _at(self, rank: Any) -> Floats:
        return order_statistics(self.values, self.lower, self.upper, rank)


def order_statistics(values: Floats, lower: float, upper: float, index: Any) -> Floats:
    """Return the values of given ranks, from 1 on; the bounds for ranks before and after."""
    n = len(values)
    if n == 0:
        return np.where(index < 1, lower, upper)
    # ranks count from 1, array indices from 0
    inside = values[np.clip(index, 1, n) - 1]
    return np.where(index < 1, lower, np.where(index > n, upper, inside))


def _to_millionths(value: Any) -> Any:
    share = number(value)
    return round(share, 6) if isinstance(share, int | float) else share


def _step_size(value: Any) -> Any:
    return number(value) if value is not None else None


def _check_order(q: Any) -> None:
    is_number = isinstance(q, int | float) and not isinstance(q, bool)
    if not (is_number and 0 < q < 1):
        raise DeclarationError(
            f"a quantile is a number between 0 and 1, of at most six decimals, got {q!r}"
        )


def _check_step(step_size: Any, bounds: Interval) -> None:
    """Refuse a step that is no positive number, or that makes no cell or too many."""
    if step_size is None:
        return
    is_number = isinstance(step_size, int | float) and not isinstance(step_size, bool)
    if not (is_number and 0 < step_size < math.inf):
        raise DeclarationError(f"step must be a positive number, such as 1, got {step_size!r}")
    width = Fraction(bounds.upper) - Fraction(bounds.lower)
    if not Fraction(step_size) <= width <= MOST_CELLS * Fraction(step_size):
        raise DeclarationError(
            f"step must divide the bounds {bounds} into 1 to {MOST_CELLS:,} cells, got "
            f"{step_size!r}; leave it out for a step that fits"
        )


@frozen
class Quantile(RowQuery):
    """A quantile of a column, its values clipped to the bounds.

    In norm 0 the sensitivity counts changed rows, for mechanisms of a local sensitivity (see
    `QuantileSensitivity`); in the maximum norm it is that of the scores of `Ranks`
    (`score_sensitivity`), for the exponential mechanism.
    """

    kind: ClassVar[str] = "quantile"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = QuantileSensitivity
    rounds_outward: ClassVar[bool] = True

    bounds: Interval = field(converter=interval)
    q: float = field(converter=_to_millionths)
    exchange: bool = False
    step_size: float | None = field(default=None, converter=_step_size)

    def __attrs_post_init__(self) -> None:
        _check_order(self.q)
        _check_step(self.step_size, self.bounds)

    def label(self) -> str:
        """Return the query with its bounds."""
        name = "median" if self.q == 0.5 else f"quantile {self.q:g}"
        return f"{name} in {self.bounds}"

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`; in the maximum norm `score_sensitivity`."""
        if norm == math.inf:
            return score_sensitivity(self.q, change)
        return super().sensitivity(domain, change, norm)

    def run(self, inputs: Sequence[Any], stream: Stream) -> QuantileSensitivity:
        """Return the sorted values."""
        lower, upper = self.bounds.lower, self.bounds.upper
        values = self.sorted_values(inputs[0])
        return QuantileSensitivity(values, lower, upper, self.q, self.exchange, self.step_size)


# -----------------------------------------------------------------------------
# Several quantiles at once: the rows by cell, and the levels of a search that divides them.


@frozen
class CellCounts:
    """The domain of the counts by cell: the column's values, and the grid.

    Parameters
    ----------
    values
        The column's domain.
    grid
        The cells.
    """

    values: Values
    grid: QuantileGrid


@frozen
class CountsByCell(Operation):
    """How many rows are in each cell of a grid: what several quantiles are chosen by.

    A row is in one cell, or in none where its value is missing, so that an exchanged row may appear
    or vanish; otherwise changes of rows are what they were: the stability is 1.

    Parameters
    ----------
    bounds
        Values outside count as the nearest bound.
    step_size
        The unit of the grid; None for about 2^-18 of the width.
    """

    kind: ClassVar[str] = "counts_by_cell"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Values
    is_computed: ClassVar[bool] = True

    bounds: Interval = field(converter=interval)
    step_size: float | None = field(default=None, converter=_step_size)

    def __attrs_post_init__(self) -> None:
        _check_step(self.step_size, self.bounds)

    def label(self) -> str:
        """Return the number of cells."""
        return f"rows in {QuantileGrid.of(self.bounds, self.step_size).count:,} cells"

    def domain(self, inputs: Sequence[Any]) -> CellCounts:
        """Return the cells; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        refuse_zero_out(self.kind, inputs[0])
        return CellCounts(inputs[0], QuantileGrid.of(self.bounds, self.step_size))

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a row without a value is in no cell."""
        return evolve(change, fixed=False)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the counts by cell."""
        selected: Selected = inputs[0]
        grid = QuantileGrid.of(self.bounds, self.step_size)
        return RowSum(selected.rows, Cells(grid.count, CellIndex(selected.of, grid)), np.asarray)


Step = tuple[float, float, float]
"""A step of the search: the order sought, and those between which it lies (0 and 1 at the ends)."""


def search_levels(orders: Sequence[float]) -> list[list[Step]]:
    """Return the levels of a search for ascending orders: first the middle one, then of each half.

    Examples
    --------
    >>> search_levels([0.25, 0.5, 0.75])
    [[(0.5, 0.0, 1.0)], [(0.25, 0.0, 0.5), (0.75, 0.5, 1.0)]]
    """
    ranges, result = [(list(orders), 0.0, 1.0)], []
    while ranges:
        level, deeper = [], []
        for inside, low, high in ranges:
            middle = len(inside) // 2
            q = inside[middle]
            level.append((q, low, high))
            halves = (inside[:middle], low, q), (inside[middle + 1 :], q, high)
            deeper += [half for half in halves if half[0]]
        result.append(level)
        ranges = deeper
    return result


def _orders(values: Any) -> tuple[Any, ...]:
    return tuple(map(_to_millionths, as_tuple(values)))


@frozen
class QuantileLevel(Query):
    r"""One level of a search for several quantiles: those in the middle of what earlier levels cut.

    The released positions of earlier levels divide the rows into ranges; each range has a quantile
    of its own order ``(q - low) / (high - low)``, chosen by the rows of that range alone.

    *Sensitivity* (maximum norm, the sum over the ranges). A row is in one range (`CellRows`), so a
    row that appears or vanishes moves the scores of that range alone, by at most
    ``max(q', 1 - q')`` with its order q' (`score_sensitivity`): with M the largest of these, r rows
    move them by at most r M in sum. Where a rows are exchanged for b, a of them vanish and b
    appear: (a + b) M; at the first level, of one range, max(a, b) too. Choices from disjoint rows
    are as one choice whose sensitivity is the sum: log-ratios add up, and so do their ranges.

    Parameters
    ----------
    orders
        All orders, ascending; three of them have two levels.
    depth
        Which level this is, from 0 on; its released inputs are those of the levels before it.

    References
    ----------
    Kaplan, Schnapp and Stemmer 2022 (differentially private approximate quantiles), Alg. 1 and
    Thm 1.1; derived here for rows that share a value, and for rows exchanged.
    """

    kind: ClassVar[str] = "quantile_level"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = CellCounts
    output_type: ClassVar[type] = Ranked
    max_released_inputs: ClassVar[int] = 32

    orders: tuple[float, ...] = field(converter=_orders)
    depth: int = 0

    def __attrs_post_init__(self) -> None:
        for q in self.orders:
            _check_order(q)
        if list(self.orders) != sorted(set(self.orders)) or not self.orders:
            raise DeclarationError(
                f"the orders of quantiles must be ascending and different, got {self.orders!r}"
            )
        if not 0 <= self.depth < len(search_levels(self.orders)):
            raise DeclarationError(f"{len(self.orders)} quantiles have no level {self.depth!r}")

    def label(self) -> str:
        """Return the orders."""
        return "quantiles " + ", ".join(f"{q:g}" for q, _, _ in self._level)

    def domain(self, inputs: Sequence[Any]) -> CellCounts:
        """Return the cells; check that all earlier levels are there."""
        if len(inputs) != 1 + self.depth:
            raise DeclarationError(
                f"level {self.depth} of quantiles reads the releases of {self.depth} levels, got "
                f"{len(inputs) - 1}"
            )
        return inputs[0]  # type: ignore[no-any-return]

    @property
    def _level(self) -> list[Step]:
        return search_levels(self.orders)[self.depth]

    def dimension(self, domain: CellCounts) -> int:
        """Return how many quantiles are chosen."""
        return len(self._level)

    def sensitivity(self, domain: CellCounts, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        if norm != math.inf:
            raise DeclarationError(
                "several quantiles are released by a mechanism that chooses by rank: use "
                "dp.QuantileExponential()"
            )
        orders = [rounded_order(_relative(node)) for node in self._level]
        if self.depth == 0:
            return score_sensitivity(orders[0], change)
        # (a + b) M where rows are exchanged, r M where they appear
        return change.both * max(max(q, 1 - q) for q in orders)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Ranks:
        """Return the ranks in the ranges that the earlier levels' positions cut."""
        counts, *earlier = inputs
        ranges = {(0.0, 1.0): CellRows.of_counts(counts)}
        for level, positions in zip(search_levels(self.orders), earlier, strict=False):
            for (q, low, high), position in zip(level, np.ravel(positions), strict=True):
                ranges[low, q], ranges[q, high] = ranges.pop((low, high)).cut(_point(position))
        return Ranks(tuple((ranges[node[1:]], _relative(node)) for node in self._level))


def _relative(node: Step) -> float:
    q, low, high = node
    return (q - low) / (high - low)


def _point(position: float) -> int:
    """Return the point of a released position; NaN, which no release gives, is the first."""
    scaled = float(np.nan_to_num(position)) * POINTS
    return int(min(max(scaled, 0.0), 2.0**62))


def numbers_at(*levels: Any, orders: Any, wanted: Any, bounds: Any, step_size: Any) -> Floats:
    """Return the numbers of released positions, in the order in which they were asked for.

    Parameters
    ----------
    levels
        The positions that each level of the search released.
    orders
        All orders, ascending.
    wanted
        The orders as they were asked for.
    bounds, step_size
        Those of the grid.
    """
    grid = QuantileGrid.of(interval(bounds), step_size)
    result = {}
    for level, positions in zip(search_levels(orders), levels, strict=True):
        for (q, _, _), position in zip(level, np.ravel(positions), strict=True):
            result[q] = grid.number(float(position))
    return np.array([result[q] for q in wanted])


# -----------------------------------------------------------------------------
# The ends of a quantile's interval: two further choices by rank, so far out that noise misses.


LEAST_SLOPE = 2.0**-4
"""By how much less than q the rank of an end may grow with a row, for a population's quantile."""

FARTHEST = 2.0**31
"""Ends farther away than so many rows are the bounds."""

NOISE_SHARE = 0.1
"""Of what an end may miss with sampling, the share that is left to the noise."""

Line = tuple[float, float]
"""Offset and slope of a rank as a function of the number of rows: multiples of `UNIT`."""


def rank_lines(q: float, chance: float | None) -> tuple[Line, ...]:
    r"""Return lines whose maximum is a rank of n rows that is at most that of the quantile.

    Without a chance it is ``q n`` itself, q rounded down. With one it is a rank whose value lies
    above the population's quantile with at most that chance, for n independent rows: with
    ``z = Phi^{-1}(1 - chance)`` the largest ``l(n) <= q n`` with
    ``2 n KL(l/n, q) >= z^2``, KL the divergence of Bernoulli laws. For X of a binomial law
    ``P(X < floor(l)) <= Phi(-sqrt(2 n KL(floor(l)/n, q))) <= chance`` (Zubkov and Serov 2013). The
    function l is convex (its slope rises from 0 to q), so its tangents are below it.

    Slopes are between `LEAST_SLOPE` below q and q, so that a row moves the maximum by as much.

    References
    ----------
    Zubkov and Serov 2013 (a complete proof of universal inequalities for the distribution function
    of the binomial law), Thm 1.
    """
    order = math.floor(q / UNIT) * UNIT
    if chance is None:
        return ((0.0, order),)
    square = float(ndtri(chance)) ** 2
    most = round(min(LEAST_SLOPE, order) / UNIT)
    # deficits of the slope, from the largest down to one unit, four to a power of two
    deficits = sorted({max(1, round(most * 2 ** (-i / 4))) for i in range(4 * 20)})
    lines = [_tangent(order, order - m * UNIT, square) for m in deficits if m * UNIT < order]
    # l is at least 0, whatever n is; no slope may be less than LEAST_SLOPE below q
    return (*lines, *([(0.0, 0.0)] if order <= LEAST_SLOPE else []))


def _tangent(q: float, slope: float, square: float) -> Line:
    """Return the tangent of l of a given slope, its offset rounded down."""
    low, high = 0.0, 1.0  # u = q (1 - x); the slope falls from q to 0 as x grows
    for _ in range(200):
        x = (low + high) / 2
        below, above = -math.log1p(-x), math.log1p(q * x / (1 - q))
        low, high = (x, high) if above > slope * (below + above) else (low, x)
        if x in (low, high) and high - low <= 2.0**-52 * high:
            break
    divergence = (1 - q + q * x) * above - q * (1 - x) * below
    offset = square / (2 * divergence) * (q * (1 - x) - slope)
    # to second order nothing depends on x; the margin is far above the rounding of the divergence
    return math.floor((offset * (1 + 1e-6) - 1e-6) / UNIT) * UNIT, slope


@frozen(repr=False, eq=False)
class EndRanks(Ranked):
    r"""The score of every cell as the end of an interval: how many rows its rank is off.

    Of a lower end: let ``F(v-)`` and ``F(v)`` be the rows below the number v and up to it, and T
    the rank that is aimed at. The score of v is minus the distance of T from
    ``[F(v-), F(v)]``, where the first cell has all ranks below 0 too, and the last all above n: so
    that some cell has the score 0.

    **The end is above the quantile with a probability of beta at most.** All cells above it have
    ``F(v-) >= r`` with r the rank that the quantile has at least (`rank_lines`; ``r >= q n`` for
    that of the rows). With ``T = r - k`` their scores are at most -k, and there are at most C - 1
    of them beside one of score 0: so they have a probability of at most ``w / (1 + w)`` with
    ``w = (C - 1) e^{-k/b}``, which is beta where ``k = b ln((C - 1) (1 - beta) / beta)``. Upper
    ends are lower ones in the opposite order.

    **A row moves no score by more than the rank's slope d allows**: F(v) by 0 or 1 and T by d, so
    ``F - T`` by at most ``max(d, 1 - d)``, for each d between the least and the largest slope; the
    distance of T from an interval moves by no more than the farther of its ends does.

    Parameters
    ----------
    cells, counts
        The cells that have rows, ascending, and how many, shape (m,).
    width
        C, the number of cells.
    lines
        Of r, as a function of the number of rows.
    chance
        beta.
    margin
        By how much r may be less than the maximum of the lines: 1 where it is rounded down.
    above
        Whether it is an upper end.
    distance
        k + margin, of the mechanism's scale; None before it is known.
    """

    cells: Integers
    counts: Integers
    width: int
    lines: tuple[Line, ...]
    chance: float
    margin: float
    above: bool
    distance: float | None = None

    def __repr__(self) -> str:
        return "<private ranks>"

    def at(self, scale: float) -> EndRanks:
        """Return the scores that are as far out as noise of this scale needs."""
        odds = (self.width - 1) * (1 - self.chance) / self.chance
        rows = max(0.0, scale * math.log(odds)) if odds > 0 else 0.0
        # rounded up: an end may only be farther out
        outward = min(rows, 2 * FARTHEST) * (1 + 2.0**-40) + self.margin
        return evolve(self, distance=math.ceil(outward / UNIT) * UNIT)

    def steps(self) -> list[tuple[Integers, Floats]]:
        """Return starts and scores, cell by cell."""
        assert self.distance is not None
        last = self.width - 1
        if self.distance > FARTHEST:  # the bound itself, whatever the rows are
            end = np.array([last, last + 1] if self.above else [0, 1], dtype=np.int64)
            return [(end, np.zeros(1))]
        total = int(self.counts.sum())
        rank = max(offset + slope * total for offset, slope in self.lines) - self.distance
        if self.above:
            rank = total - rank
        ends = np.concatenate([[0, min(1, last), last], self.cells, self.cells + 1])
        starts = np.unique(ends[ends <= last])
        rows = np.concatenate([[0], np.cumsum(self.counts)]).astype(np.float64)
        before = rows[np.searchsorted(self.cells, starts, side="left")]
        after = rows[np.searchsorted(self.cells, starts, side="right")]
        before[0], after[-1] = -math.inf, math.inf
        # exact: all are multiples of UNIT below 2^33
        scores = -np.maximum(0.0, np.maximum(before - rank, rank - after))
        return [(np.append(starts, self.width).astype(np.int64), scores)]

    def numbers(self, points: Sequence[int]) -> Floats:
        """Return the cell."""
        return np.array(float(points[0]))


@frozen
class QuantileEnd(Query):
    """An end of the interval of a quantile: a number that is rarely on its other side.

    The sensitivity in the maximum norm, of rows that appear or vanish, is ``max(d, 1 - d)`` for
    each of them, over the slopes d of the rank aimed at (`EndRanks`); where a rows are exchanged
    for b it is ``max(a, b)``: F moves by between -a and b, and T by between 0 and b - a.

    Parameters
    ----------
    q
        The quantile's order.
    above
        Whether it is the upper end.
    level
        Of the interval; each end misses with a probability of half of the rest at most.
    sampling
        Whether the quantile is that of a population, of which the rows are a random sample.
    """

    kind: ClassVar[str] = "quantile_end"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = CellCounts
    output_type: ClassVar[type] = Ranked

    q: float = field(converter=_to_millionths)
    above: bool
    level: float
    sampling: bool = False

    def __attrs_post_init__(self) -> None:
        _check_order(self.q)
        check_level(self.level)

    def label(self) -> str:
        """Return which end it is of what."""
        side = "upper" if self.above else "lower"
        of = ", with sampling" if self.sampling else ""
        return f"{side} end of quantile {self.q:g}, {self.level:.4g}{of}"

    def domain(self, inputs: Sequence[Any]) -> CellCounts:
        """Return the cells."""
        return inputs[0]  # type: ignore[no-any-return]

    @property
    def _lines(self) -> tuple[Line, ...]:
        miss = (1 - self.level) / 2
        # of an upper end the ranks count from above
        q = 1 - self.q if self.above else self.q
        return rank_lines(q, miss * (1 - NOISE_SHARE) if self.sampling else None)

    def sensitivity(self, domain: CellCounts, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        if norm != math.inf:
            raise DeclarationError(
                "the ends of a quantile's interval are released by a mechanism that chooses by "
                "rank: use dp.QuantileExponential()"
            )
        slopes = [slope for _, slope in self._lines]
        return change.rows * (1.0 if change.replaced else max(max(slopes), 1 - min(slopes)))

    def run(self, inputs: Sequence[Any], stream: Stream) -> EndRanks:
        """Return the scores of the cells."""
        counts = np.asarray(inputs[0])
        occupied = np.flatnonzero(counts)
        miss = (1 - self.level) / 2
        return EndRanks(
            occupied,
            counts[occupied].astype(np.int64),
            len(counts),
            self._lines,
            miss * (NOISE_SHARE if self.sampling else 1.0),
            1.0 if self.sampling else 0.0,  # of r, the integer part counts
            self.above,
        )


def _ends(
    inputs: Sequence[Any],
    asked: float,
    with_sampling: bool,
    *,
    level: float,
    sampling: bool,
    bounds: Any,
    step_size: Any,
    single: bool,
) -> ConfidenceInterval:
    """Return the interval of `with_ends`, of any level up to the one that was declared."""
    if asked > level or (with_sampling and not sampling):
        wanted = f"interval={max(asked, level):.4g}" + (", sampling=True" * with_sampling)
        raise NoIntervalError(
            f"its ends were released for {level:.4g}"
            + (", with sampling" if sampling else ", noise only")
            + f"; ask for it with {wanted} when the quantile is declared"
        )
    values, *ends = inputs
    values = np.asarray(values, dtype=np.float64)
    grid = QuantileGrid.of(interval(bounds), step_size)
    # a number stands for all within half a unit; with a step of one's own they are its multiples
    half = grid.unit / 2 if step_size is None else 0.0
    low, high = (
        np.reshape([grid.number(float(e)) for e in ends[i::2]], values.shape) for i in (0, 1)
    )
    low = np.maximum(np.minimum(low - half, values), grid.lower)
    high = np.minimum(np.maximum(high + half, values), grid.upper)
    return ConfidenceInterval(*((float(e[0]) if single else e) for e in (low, high)))


@released_ends(_ends)
def with_ends(
    values: Any,
    *ends: Any,
    level: float,
    sampling: bool,
    bounds: Any,
    step_size: Any,
    single: bool,
) -> Any:
    """Return released quantiles, whose intervals' ends were released too.

    Parameters
    ----------
    values
        The quantiles, of any shape.
    ends
        Released cells: the lower and the upper end of each of them, in order.
    level, sampling
        What the ends were released for.
    bounds, step_size
        Those of the grid.
    single
        Whether one number is returned, and no array.
    """
    return float(values[0]) if single else values


def cumulative_shares(counts: Floats) -> Floats:
    """Return 0 and the cumulative shares of released counts; a count below 0 counts as 0."""
    total = np.concatenate([[0.0], np.cumsum(np.maximum(counts, 0.0))])
    # no count: as if each bin had the same
    return total / total[-1] if total[-1] > 0 else np.linspace(0.0, 1.0, len(total))


MAGNITUDES = tuple(2.0**k for k in range(-16, 51))
"""Ends of the bins of `Column.bounds`, on either side of 0."""


def occupied_range(counts: Floats, *, edges: Sequence[float], failure: float) -> Floats:
    """Return the outer ends of the first and the last bin whose released count is no mere noise.

    Most of the bins are empty, so the median size of a count tells the scale b of the noise, as b
    ln 2 for Laplace noise; of Gaussian noise 0.97 sigma, whose tail is lighter. Of B empty bins one
    is above ``b ln(B / (2 failure))`` with probability ``failure`` at most, were b the true one.
    Where no bin is above it, the largest one is taken.
    """
    counts = np.asarray(counts, dtype=np.float64)
    scale = float(np.median(np.abs(counts))) / math.log(2)
    places = np.flatnonzero(counts > scale * math.log(len(counts) / (2 * failure)))
    first, last = (places[0], places[-1]) if len(places) else (np.argmax(counts),) * 2
    return np.array([edges[int(first)], edges[int(last) + 1]])


# -----------------------------------------------------------------------------
# Trimmed means, of a fixed number of rows.


@frozen(repr=False)
class TrimmedMeanSensitivity(PrivateValues):
    r"""A trimmed mean of n values, with a bound of its local sensitivity at every distance.

    The mean of ``x_{t+1}, ..., x_{n-t}`` of the values in order, ``t = floor(share n)``.

    For rows exchanged, n fixed (derived here). Of the n - 1 values that neighbours share, the mean
    is largest with the further one at the top, least with it at the bottom, and moves by
    ``(w_{n-t} - w_t) / (n - 2t)``: a range of order statistics ``x_{i+n-2t} - x_i`` of one of the
    two, i = t or t + 1. Of k changes b go below and a above: an order statistic falls by at most b
    places, and the other rises by at most a, ``a + b = k``. So ``A_k`` is at most the largest
    ``(x_{i+n-2t+k} - x_i) / (n - 2t)`` with ``t - k <= i <= t + 1``, and equal to it while k rows
    are left between; ``x_i`` is the bound for i < 1 and i > n. The bound keeps the laws of
    `LocalSensitivity.local`: neighbours' order statistics lie within one place of each other.
    """

    values: Floats
    lower: float
    upper: float
    share: float

    @property
    def trimmed(self) -> int:
        """t, the number of values left out at either end; in integers and so exact."""
        return round(self.share * PARTS) * len(self.values) // PARTS

    @property
    def value(self) -> float:
        """The mean of the middle values; the middle of the bounds where there are no values."""
        if not len(self.values):
            return self.lower + (self.upper - self.lower) / 2
        middle = self.values[self.trimmed : len(self.values) - self.trimmed]
        # the sum is exact (fsum) and rounded once: the mean is right to two units in the last place
        mean = math.fsum(middle.tolist()) / len(middle)
        return min(self.upper, max(self.lower, mean))

    @property
    def max_distance(self) -> int:
        """The number of values: they may all be changed."""
        return len(self.values)

    def local(self, distance: int) -> float:
        """Return the bound of the class docstring; room for the rounding of two means included."""
        n, k, t = len(self.values), int(distance), self.trimmed
        width = self.upper - self.lower
        if n == 0 or k >= n:
            return width if n == 0 else self._add_rounding(width / (n - 2 * t))
        left = np.arange(t - k, t + 2)  # t - k <= i <= t + 1
        low = order_statistics(self.values, self.lower, self.upper, left)
        high = order_statistics(self.values, self.lower, self.upper, left + n - 2 * t + k)
        return self._add_rounding(float((high - low).max()) / (n - 2 * t))

    def _add_rounding(self, movement: float) -> float:
        """Return the bound enlarged by the rounding of two means, at most the width."""
        # two units in the last place for each of the two means that are compared
        rounding = 4 * np.spacing(max(abs(self.lower), abs(self.upper)))
        return min(self.upper - self.lower, movement * (1 + 2.0**-50) + float(rounding))


@frozen
class TrimmedMean(RowQuery):
    """The mean of a column without a share of its values at either end.

    Only under ``replace_one``, where the number of rows is fixed, of a column without missing
    values. The sensitivity counts exchanged rows (norm 0); how far the mean moves
    is derived in `TrimmedMeanSensitivity`.
    """

    kind: ClassVar[str] = "trimmed_mean"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = TrimmedMeanSensitivity
    exchange = True

    bounds: Interval = field(converter=interval)
    share: float = field(converter=_to_millionths)

    def __attrs_post_init__(self) -> None:
        is_number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not (is_number and 0 <= self.share < 0.5):
            raise DeclarationError(
                "a trimmed mean drops a share below 1/2 at either end, of at most six decimals, "
                f"got {self.share!r}"
            )

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"mean without {self.share:g} at either end in {self.bounds}"

    def run(self, inputs: Sequence[Any], stream: Stream) -> TrimmedMeanSensitivity:
        """Return the sorted values."""
        values = self.sorted_values(inputs[0])
        return TrimmedMeanSensitivity(values, self.bounds.lower, self.bounds.upper, self.share)


# -----------------------------------------------------------------------------
# Variances, of a fixed number of rows.


SQUARES = 2**20
"""The squares of this many integers up to 2^21 add up below 2^63."""


@frozen(repr=False)
class VarianceSensitivity(PrivateValues):
    r"""The variance of n values, with its local sensitivity at every distance.

    ``sum (x - mean)^2 / n`` of values in [0, W], for rows exchanged, n fixed (derived here).

    With mu the mean of the n - 1 values w that neighbours share, a further value z adds
    ``(n-1)/n^2 (z - mu)^2`` to what w makes: where z is exchanged for z' the variance moves by
    ``(n-1)/n^2`` times ``|(z - mu)^2 - (z' - mu)^2|``, and that is largest where z' is 0, W or mu.
    Within k steps, z is one of

    * a value that has come within these steps, where ``k >= 1``: any number. The most is ``mu^2``
      or ``(W - mu)^2``, and w lacks k of the values and has ``k - 1`` others: mu is least without
      the k largest and with zeros, and largest without the k least and with values W;
    * one of the values x_i that were there: ``(W - x_i)(W + x_i - 2 mu)`` for ``z' = W``, which
      falls in mu, so that w lacks the k largest of the others and has k zeros; the mirror image for
      ``z' = 0``; and ``(x_i - mu)^2`` for ``z' = mu``, at both ends of mu.

    The value is the largest of these with mu any real number; it is attained up to the step of the
    values. Beyond 2^19 values the bound is that of any z: mu at its ends without the k + 1 largest,
    or least, and with k others. As n is fixed, both keep the laws of `LocalSensitivity.local`: the
    data sets within k steps are within k + 1 of a neighbour.

    Values are integer multiples of a step, so that sums are exact and both laws of
    `LocalSensitivity` hold to the last bit.

    Parameters
    ----------
    values
        Integers in ascending order, from 0 to ``top``, shape (n,).
    top
        W in steps, at most 2^21.
    unit
        The step, a power of two.
    """

    values: Integers
    top: int
    unit: float
    sums: Integers = field(init=False)
    lower: float = field(default=0.0, init=False)
    upper: float = field(init=False)

    @sums.default
    def _sums(self) -> Integers:
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.values)])

    @upper.default
    def _upper(self) -> float:
        return (self.top * self.unit) ** 2 / 4

    @property
    def value(self) -> float:
        """The variance; 0 where there are no values."""
        n = len(self.values)
        if not n:
            return 0.0
        starts = range(0, n, SQUARES)
        squares = sum(int((self.values[i : i + SQUARES] ** 2).sum()) for i in starts)
        # n sum x^2 - (sum x)^2 in Python integers: exact, and rounded once by the quotient
        return (n * squares - int(self.sums[n]) ** 2) / n**2 * self.unit**2

    @property
    def max_distance(self) -> int:
        """N - 1: then all of the values that neighbours share may be others."""
        return max(0, len(self.values) - 1)

    def local(self, distance: int) -> float:
        """Return the sensitivity of the class docstring, with room for two variances' rounding."""
        n, k = len(self.values), int(distance)
        if n < 2:
            return 0.0
        if n <= MOST_EXACT and k < n - 1:
            # in units of (n-1)/n^2 over n - 1: integers below 2^62, and exact
            movement = self._exact(k) / (n**2 * (n - 1)) * self.unit**2
            return min(self.upper, movement + self.upper * 2.0**-50)
        unchanged = max(0, n - 1 - k)
        # the least and the largest (n - 1) mu over all w within k steps
        low = int(self.sums[unchanged])
        high = int(self.sums[n] - self.sums[n - unchanged]) + (n - 1 - unchanged) * self.top
        reach = max(self.top * (n - 1) - low, high)  # (n - 1) max(mu, W - mu)
        movement = reach**2 / (n**2 * (n - 1)) * self.unit**2  # (n-1)/n^2 max(mu, W - mu)^2
        # outward: two variances, each rounded by a few units in the last place of at most `upper`
        return min(self.upper, movement + self.upper * 2.0**-50)

    def _exact(self, k: int) -> int:
        """Return ``(n-1)^2`` times the largest ``|(z - mu)^2 - (z' - mu)^2|``, in squared steps."""
        mirrored = self.top - self.values[::-1]
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(mirrored)])
        return max(
            _most_upward(self.values, self.sums, k, self.top),
            _most_upward(mirrored, sums, k, self.top),
        )


def _most_upward(values: Integers, sums: Integers, k: int, top: int) -> int:
    """Return the largest of the moves whose mu is least, times ``(n-1)^2``; see the class.

    Parameters
    ----------
    values, sums
        Ascending, from 0 to ``top``, shape (n,); and their sums, shape (n + 1,).
    k
        Below n - 1.
    """
    n = len(values)
    m = n - 1
    # the sum of w: x_i is left out, then the k largest of the others are zeros
    kept = sums[n - k] - values  # where x_i is not among the k largest
    among = np.arange(n) >= n - k
    kept = np.where(among, sums[n - 1 - k], kept)
    # (W - x)(W + x - 2 mu) m, at most 2^21 2^22 2^19 = 2^62
    exchanged = int(((top - values) * (m * (top + values) - 2 * kept)).max()) * m
    # (x - mu)^2 m^2, squared as Python integers
    away = int(np.abs(m * values - kept).max()) ** 2
    best = max(exchanged, away)
    if k:
        # a value that has come: w lacks the k largest, and has k - 1 zeros
        best = max(best, (m * top - int(sums[n - k])) ** 2)
    return best


MOST_EXACT = 2**19
"""The most values for which the variance's local sensitivity is exact."""


@frozen
class Variance(RowQuery):
    """The variance of a column, with n in the denominator.

    Only under ``replace_one``, where the number of rows is fixed, of a column without missing
    values. The sensitivity counts exchanged rows (norm 0); how far the variance
    moves is derived in `VarianceSensitivity`.
    """

    kind: ClassVar[str] = "variance"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = VarianceSensitivity
    exchange = True

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"variance in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse bounds whose squares overflow or underflow."""
        values = super().domain(inputs)
        width = self.bounds.upper - self.bounds.lower
        if width != 0 and not (1e-140 <= width <= 1e140):
            raise DeclarationError(
                f"bounds {self.bounds} are too far apart, or too close, for squares; "
                "rescale the column"
            )
        return values

    def run(self, inputs: Sequence[Any], stream: Stream) -> VarianceSensitivity:
        """Return the sorted values, from the lower bound on."""
        width = self.bounds.upper - self.bounds.lower
        unit = step(width, 20)
        top = math.floor(width / unit)
        distances = self.sorted_values(inputs[0]) - self.bounds.lower
        # rounded inside [0, top] steps, so that the bounds hold exactly
        steps = np.clip(np.rint(distances / unit), 0, top).astype(np.int64)
        return VarianceSensitivity(steps, top, unit)


# -----------------------------------------------------------------------------
# The most frequent category or bin, with its distance to instability.


@frozen
class Mode(RowQuery):
    """The most frequent category, or bin; of equal ones the first.

    The sensitivity counts changed rows (norm 0); how many of them can change the mode is derived
    in `instability`.
    """

    kind: ClassVar[str] = "mode"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = Choice

    keys: tuple[Any, ...] | None = field(default=None, converter=optional_tuple)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    exchange: bool = False

    def label(self) -> str:
        """Return the number of candidates."""
        return f"mode of {self.histogram.width} bins"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; check the bins."""
        refuse_zero_out(self.kind, inputs[0])
        return self.histogram.domain(inputs)

    def candidate(self, index: int) -> Any:
        """Return the category, or the bin as ``[low, high)``."""
        return self.histogram.candidate(index)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Choice:
        """Return the choice with its distance."""
        return instability(self.histogram.run(inputs, stream), self.exchange)

    @property
    def histogram(self) -> Histogram:
        """The counts whose largest it is."""
        return Histogram(self.keys, self.edges)


def instability(counts: NDArray[np.float64], exchange: bool) -> Choice:
    """Return the first of the largest counts, and its distance to instability.

    Another candidate j is chosen once it has more rows, or as many and a smaller index: once its
    deficit of g falls by ``g + 1`` for a larger index, by g for a smaller one. A row added or
    removed takes 1 from the deficit; one exchanged takes 2 (a row of the chosen that becomes one
    of j). The least such number of steps, less 1, is the distance after which one more step may
    change the choice. That there always are rows to take is assumed, which can only make the
    distance smaller: it still moves by at most 1 a step, and is 0 where a neighbour's choice is
    another.

    Parameters
    ----------
    counts
        Shape (m,).
    exchange
        Whether a step exchanges a row, or adds or removes one.

    Examples
    --------
    >>> choice = instability(np.array([3.0, 9.0, 4.0]), exchange=False)
    >>> choice.index, choice.distance
    (1, 5)
    """
    chosen = int(np.argmax(counts))
    # the deficit that each candidate must make up: one more row for those of a larger index
    deficits = counts[chosen] - counts + (np.arange(len(counts)) > chosen)
    others = np.delete(deficits, chosen)
    if not len(others):
        return Choice(chosen, FOREVER)
    least = int(others.min())
    # an exchange makes up 2: ceil(least / 2) steps
    return Choice(chosen, max(0, (-(-least // 2) if exchange else least) - 1))


# -----------------------------------------------------------------------------
# A user's own function of a column, with local sensitivities that the user states.


@frozen(repr=False)
class UserSensitivity(PrivateValues):
    """A number and its local sensitivities, both computed by functions that a user wrote.

    What they return is brought into the declared range: a value outside of it counts as the
    nearest end, NaN or an exception as the lower end; a local sensitivity that is negative or NaN,
    or an exception, counts as the full width. So no failure leaves the process: that a function
    failed on private data would reveal something about them.
    """

    values: Floats
    lower: float
    upper: float
    function: Callable[[Floats], float]
    own_local: Callable[[Floats, int], float]

    @property
    def value(self) -> float:
        """The function's value, in the range."""
        result = _float_or_nan(lambda: self.function(self.values.copy()))
        return self.lower if math.isnan(result) else min(self.upper, max(self.lower, result))

    @property
    def max_distance(self) -> int:
        """N + 2: from there on the local sensitivity counts as the full width.

        It moves by at most 1 where a row is added or removed. If it moved by more, the width would
        break the law ``local_k(x) <= local_{k+1}(x')`` even where the functions obey it.
        """
        return len(self.values) + 2

    def local(self, distance: int) -> float:
        """Return the local sensitivity at a distance, at most the width of the range."""
        width = self.upper - self.lower
        if distance >= self.max_distance:
            return width
        result = _float_or_nan(lambda: self.own_local(self.values.copy(), int(distance)))
        return width if not result >= 0 else min(width, result)  # `not >=` catches NaN


def _float_or_nan(call: Callable[[], Any]) -> float:
    """Return the result of a call as a float; NaN where it is not one, or where the call raises."""
    try:
        return float(call())
    except Exception:
        return math.nan


@frozen
class Instance(RowQuery):
    """A user's own function of a column's values in ascending order.

    The sensitivity counts changed rows (norm 0); how far the value moves is what the user states,
    an assumption that certificates name. See `UserSensitivity`. Missing values are left out; where
    rows are exchanged the column has none, since what the user states is of as many values.
    """

    kind: ClassVar[str] = "instance"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = UserSensitivity
    instead: ClassVar[str] = (
        "by asking it of table.filter(column.is_present()), where a step of its local sensitivity "
        "adds or removes a row"
    )
    assumption: ClassVar[str] = (
        "The local sensitivities of the plan's own functions (instance queries) are exact at every "
        "distance, or bounds that grow with it and are at most a neighbour's one step farther."
    )

    bounds: Interval = field(converter=interval)
    range: Interval = field(converter=interval)
    function: Function
    local: Function
    exchange: bool = False

    def label(self) -> str:
        """Return the function's short name."""
        label = self.function.label
        return "own function" if label == "function" else label

    def run(self, inputs: Sequence[Any], stream: Stream) -> UserSensitivity:
        """Return the sorted values with the functions."""
        return UserSensitivity(
            self.sorted_values(inputs[0]),
            self.range.lower,
            self.range.upper,
            self.function.resolve(),
            self.local.resolve(),
        )


# -----------------------------------------------------------------------------
# A user's own function on a small universe, whose sensitivities are computed by brute force.


def _universe(values: Any) -> tuple[float, ...]:
    return tuple(number(each) for each in as_tuple(values))


@frozen
class _OfUniverse(RowQuery):
    """The base of both queries below: a function of a column with few values."""

    instead: ClassVar[str] = Instance.instead
    assumption: ClassVar[str] = (
        "The plan's own functions of small universes are functions of the values alone: called "
        "twice with equal values, they return the same."
    )

    bounds: Interval = field(converter=interval)
    universe: tuple[float, ...] = field(converter=_universe)
    function: Function
    radius: int
    exchange: bool

    def label(self) -> str:
        """Return the function's short name."""
        label = self.function.label
        return "own function" if label == "function" else label

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a universe that it does not hold."""
        values = super().domain(inputs)
        low, high = self.bounds.lower, self.bounds.upper
        if not all(low <= v <= high for v in self.universe):
            raise DeclarationError(
                f"the universe's values must be in the column's bounds {self.bounds}, got "
                f"{self.universe!r}"
            )
        # the universe is checked without the function, whose code may not be allowed
        Universe(len, self.universe, self._ends, self.exchange, self.radius)
        return values

    @property
    def _ends(self) -> tuple[float, float] | None:
        """Bounds of the function, where it is a number."""
        return None

    def near(self, function: Callable[[Floats], Any]) -> Universe:
        """Return the universe of a function."""
        return Universe(function, self.universe, self._ends, self.exchange, self.radius)


@frozen
class BruteForce(_OfUniverse):
    """A number computed from a column with few values, with exact local sensitivities.

    All data sets near the one at hand are tried (`adaptive_dp.graph.mechanism.Universe`), so that
    nothing is assumed of the function but that it is one. The sensitivity counts changed rows
    (norm 0).
    """

    kind: ClassVar[str] = "brute_force"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = LocalSensitivity

    range: Interval = field(converter=interval)

    @property
    def _ends(self) -> tuple[float, float] | None:
        return self.range.lower, self.range.upper

    def run(self, inputs: Sequence[Any], stream: Stream) -> LocalSensitivity:
        """Return the value with its local sensitivities."""
        near = self.near(self.function.resolve())
        return near(self.sorted_values(inputs[0]).tolist())


@frozen
class BruteForceChoice(_OfUniverse):
    """A choice among candidates by a function of a column with few values, and how stable it is.

    As `BruteForce`, for `DistanceToInstability`: the function returns one of the candidates; what
    is none of them, or an exception, counts as the first.
    """

    kind: ClassVar[str] = "brute_force_choice"
    column_fields: ClassVar[tuple[str, ...]] = ()
    output_type: ClassVar[type] = Choice

    candidates: tuple[Any, ...] = field(converter=as_tuple)

    def candidate(self, index: int) -> Any:
        """Return the candidate."""
        return self.candidates[index]

    def run(self, inputs: Sequence[Any], stream: Stream) -> Choice:
        """Return the candidate's index and its distance to instability."""
        choose, candidates = self.function.resolve(), self.candidates

        def index(values: Floats) -> int:
            try:
                return candidates.index(choose(values))
            except Exception:
                return 0

        near, values = self.near(index), self.sorted_values(inputs[0]).tolist()
        return Choice(near.chosen(values), near.instability(values))
