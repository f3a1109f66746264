"""Rows by the cells that their features lie in: counts of rows, and sums of clipped slopes, by bin.

What additive models read. Each feature has finitely many cells, fixed by its declaration: of a
column with bounds a grid, of a column of categories each of them, and one cell for what is missing
or not declared. So a row lies in exactly one cell of each of d features, and in the cell of all
rows, coordinate 0: it adds to d + 1 coordinates of a sum. Sums are of integers, and exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, Columns, Rows, examples_of_rows, grid
from adaptive_dp.data.examples import WEIGHT_BITS, Examples, exact_sum, to_steps
from adaptive_dp.erm import Loss, losses
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.graph.values import strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Floats,
    Interval,
    Table,
    finite_float,
    numbers,
)
from adaptive_dp.queries.examples import ExamplesDomain, ExamplesOf
from adaptive_dp.queries.gradients import (
    clipped_steps,
    loss_assumption,
    loss_of,
    loss_text,
    released_bound,
    slopes_of,
)
from adaptive_dp.queries.transforms import category_index

Integers = NDArray[np.int64]

UNIFORM = 64
"""The number of cells of equal width that bounds are cut into."""

TAIL = 64
"""The number of cells on a logarithmic scale that bounds are cut into as well."""

TAIL_START = 1e-3
"""The share of the bounds' width up to which the logarithmic scale is nearly linear."""

MOST_CELLS = 2**22
"""The most cells of all features together: a cell's number is kept as a float32."""


@lru_cache(maxsize=1024)
def cell_edges(bounds: Interval) -> Floats:
    """Return the edges of a column's cells, ascending, its bounds first and last.

    They are those of `UNIFORM` cells of equal width, and of `TAIL` cells on the scale of asinh,
    from 0 where it lies within the bounds and else from the bound next to it: so that heavy tails,
    as of incomes, have cells where most of their rows are.

    Examples
    --------
    >>> len(cell_edges(Interval(0, 100))), cell_edges(Interval(3, 3))
    (128, array([3., 3.]))
    """
    lower, upper = bounds.lower, bounds.upper
    width = upper - lower
    scale = TAIL_START * width
    if not (scale > 0):
        return np.array([lower, upper])
    origin = min(max(0.0, lower), upper)
    # in units of the scale, so that nothing overflows
    ends = np.arcsinh([(lower - origin) / scale, (upper - origin) / scale])
    tail = origin + scale * np.sinh(np.linspace(ends[0], ends[1], TAIL + 1)[1:-1])
    uniform = lower + width * np.linspace(0.0, 1.0, UNIFORM + 1)[1:-1]
    # edges that rounding has made equal, or moved beyond the bounds, are one
    inside = np.unique(np.clip(np.concatenate([tail, uniform]), lower, upper))
    edges = np.unique(np.concatenate([[lower], inside, [upper]]))
    edges.flags.writeable = False  # one array for all
    return edges


def cell_count(column: Column) -> int:
    """Return the number of a feature's cells, that of what is missing or not declared included."""
    if isinstance(column, Categories):
        return 1 + len(column.values)
    assert isinstance(column, Interval)
    return len(cell_edges(column))


def column_cells(values: NDArray[Any], column: Column) -> Integers:
    """Return the cell of each value: 0 of what is missing or not declared, else 1, 2, ...

    Numbers beyond the bounds lie in the cell next to them; a number on an edge, in the upper one.
    """
    if isinstance(column, Categories):
        return category_index(values, column.values) + 1
    assert isinstance(column, Interval)
    return places_between(values, cell_edges(column))


def places_between(values: NDArray[Any], edges: Floats) -> Integers:
    """Return the place of each number between ascending edges, from 1; 0 of what is no number."""
    floats = numbers(values)
    # inner edges alone: what is beyond the outer ones lies in the first or the last place
    places = np.searchsorted(edges[1:-1], floats, side="right") + 1
    return np.where(np.isnan(floats), 0, places).astype(np.int64)


@frozen
class BinsDomain:
    """The domain of rows by cells.

    Parameters
    ----------
    sizes
        The number of cells of each of d features.
    examples
        The kind of labels, and the table.
    """

    sizes: tuple[int, ...]
    examples: ExamplesDomain

    @property
    def cells(self) -> int:
        """The number of coordinates of a sum by cell: 1 of all rows, and the cells."""
        return 1 + sum(self.sizes)


@frozen
class BinsOf(Operation):
    """The cells of a table's rows, and their labels. Rows without a declared label are left out.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        The column of labels.
    labels
        Their kind: see `adaptive_dp.queries.examples.ExamplesDomain`.
    columns
        The columns' declarations, filled in when the plan is built.
    """

    kind: ClassVar[str] = "bins"
    column_fields: ClassVar[tuple[str, ...]] = ("features", "target")
    input_type: ClassVar[type] = Table

    features: tuple[str, ...] = field(converter=strings)
    target: str
    labels: str
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return the target and the number of columns."""
        return f"{self.target} by cells of {len(self.features)} columns"

    @property
    def _examples(self) -> ExamplesOf:
        # the same labels and checks as where features are vectors
        return ExamplesOf(self.features, self.target, self.labels, None, False, self.columns)

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the numbers of cells, and the kind of labels."""
        examples = self._examples.domain(inputs)
        sizes = tuple(cell_count(self.columns[name]) for name in self.features)
        if not (1 + sum(sizes) <= MOST_CELLS):
            raise DeclarationError(
                f"the features have {sum(sizes)} cells, of at most {MOST_CELLS - 1}; leave out "
                "columns of many categories"
            )
        return BinsDomain(sizes, examples)

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: rows without a declared label are left out."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> BinnedRows:
        """Return the rows' cells; they are computed once for all that is learned from them."""
        rows: Rows = inputs[0]
        target = self.columns[self.target]
        if isinstance(target, Categories):
            values = target.values
            # row by row, so that units stay independent
            rows = rows.where(lambda c: category_index(c[self.target], values) >= 0)
        sizes = [cell_count(self.columns[name]) for name in self.features]
        starts = np.cumsum([1, *sizes[:-1]])

        def cells(columns: Columns) -> Floats:
            places = [
                start + column_cells(columns[name], self.columns[name])
                for name, start in zip(self.features, starts, strict=True)
            ]
            return np.stack(places, axis=1).astype(np.float64)

        examples = examples_of_rows(rows, cells, self._examples.goals, 1.0, 1.0)
        return BinnedRows(examples, tuple(sizes))


@frozen(eq=False, repr=False)
class PairCells:
    """The cells of rows in tables by two features each, which are features themselves.

    Parameters
    ----------
    groups
        The group of each cell within its feature, 0 to `most`, shape (cells,).
    first, second
        The places of both features among a row's, shape (k,).
    start
        The coordinate of the first table's first cell.
    most
        The largest number of a group.
    """

    groups: Integers
    first: Integers
    second: Integers
    start: int
    most: int

    def places(self, places: Integers) -> Integers:
        """Return the coordinates of rows' cells in each table, shape (m, k), by their own cells."""
        group, width = self.groups[places], self.most + 1
        cells = group[:, self.first] * width + group[:, self.second]
        return cells + (self.start + width**2 * np.arange(len(self.first)))


@frozen(eq=False, repr=False)
class BinnedRows:
    """The cells of rows, and their labels.

    Where rows are with the workers of a cluster, sums are computed there, and added up.

    Parameters
    ----------
    examples
        The coordinates of each row's cells in place of its features, shape (n, d), and labels.
    sizes
        The number of cells of each feature, those of pairs included.
    pairs
        What pairs of features add (`BinPairs`).
    """

    examples: AnyExamples
    sizes: tuple[int, ...]
    pairs: tuple[PairCells, ...] = ()

    def __repr__(self) -> str:
        return "<private bins>"

    @property
    def cells(self) -> int:
        """The number of coordinates of a sum by cell."""
        return 1 + sum(self.sizes)

    def blocks(self, own: Examples) -> Iterator[tuple[slice, Integers]]:
        """Yield each block's place, and the coordinates of its rows' cells, shape (m, d)."""
        for where, block in own.blocks():
            places = block.astype(np.int64)
            for pairs in self.pairs:
                places = np.concatenate([places, pairs.places(places)], axis=1)
            yield where, places

    def counts(self) -> NDArray[Any]:
        """Return the exact number of rows, and those by cell, shape (cells,)."""
        size, blocks = self.cells, self.blocks

        def work(own: Examples) -> NDArray[Any]:
            def counted() -> Iterator[Floats]:
                for _, places in blocks(own):
                    total = np.bincount(places.ravel(), minlength=size)
                    total[0] = len(places)
                    yield total.astype(np.float64)

            return exact_sum(counted(), size)

        return np.asarray(self.examples.total(work))

    def slope_sums(
        self,
        loss: Loss,
        scores: Floats,
        bound: float,
        scale: float | None = None,
        *,
        last: int = 0,
    ) -> tuple[NDArray[Any], int, float]:
        """Return the sums by cell of the rows' clipped slopes, in integer steps, and the step.

        Parameters
        ----------
        loss
            Of one row, with k scores.
        scores
            Shape (k, cells): a row's score is the sum of those of its cells and of coordinate 0.
        bound
            The l2 norm to which a row's k slopes are scaled down where it is longer.
        scale
            By what the slopes of one score are divided before that.
        last
            The number of last features whose cells alone are summed by; 0 for all.

        Returns
        -------
        sums
            Shape (k, cells); 0 where is not summed by a feature.
        squares
            The sum of the clipped slopes' squares over the bound, in the same steps; 0 without
            ``scale``.
        unit
            The step, a power of two.
        """
        unit, size, blocks = grid.step(bound, WEIGHT_BITS - 1), self.cells, self.blocks
        steps, score_unit = to_steps(scores)
        width = loss.outputs * size

        def work(own: Examples) -> NDArray[Any]:
            def summed() -> Iterator[Floats]:
                for where, places in blocks(own):
                    # sums of d + 1 integers below 2^32 are exact: a row's score depends on it alone
                    z = steps[:, places].sum(axis=2) + steps[:, :1]
                    z *= score_unit
                    slopes, lengths = slopes_of(loss, z, own.labels[where])
                    if scale is not None:
                        # finite, and of one score each slope's size is still its length
                        slopes, lengths = slopes / scale, lengths / scale
                    # as gradients of rows of norm 1
                    a = clipped_steps(slopes, lengths, 1.0, bound, unit)
                    # all of them for -0
                    sums = [_sums_by_cell(row, places[:, -last:], size) for row in a]
                    if scale is not None:
                        # no square is above the slope's own size: |a| unit <= bound
                        squares = np.minimum(np.rint(a[0] * a[0] * (unit / bound)), np.abs(a[0]))
                        sums.append(squares.sum(keepdims=True))
                    yield np.concatenate(sums)

            return exact_sum(summed(), width + (scale is not None))

        total = np.asarray(self.examples.total(work))
        return total[:width].reshape(loss.outputs, size), int(total[width:].sum()), unit

    def shallow(self, loss: Loss, scores: Floats, bound: float) -> int:
        """Return how many rows have slopes of a norm of at most ``bound``, as `slope_sums`."""
        (steps, score_unit), blocks = to_steps(scores), self.blocks

        def work(own: Examples) -> int:
            total = 0
            for where, places in blocks(own):
                z = steps[:, places].sum(axis=2) + steps[:, :1]
                z *= score_unit
                total += int((slopes_of(loss, z, own.labels[where])[1] <= bound).sum())
            return total

        return int(self.examples.total(work))


def _sums_by_cell(weights: Floats, places: Integers, size: int) -> Floats:
    """Return the sum of the rows' integer weights, and the sums by cell, shape (size,)."""
    total = np.bincount(places.ravel(), np.repeat(weights, places.shape[1]), minlength=size)
    total[0] = weights.sum()
    return total.astype(np.float64)


@frozen
class BinPairs(Operation):
    """Rows by cells, with tables by pairs of features as further features.

    Inputs are rows by cells; and of released values the group of each cell within its feature,
    shape (cells,), which are rounded into 0, ..., `groups`; and the pairs, shape (count, 2), by the
    numbers of their features, rounded to such. The table of a pair has ``(groups + 1)^2`` cells,
    those of the first feature's group 0 first. Whatever the groups and the pairs are, a row lies in
    exactly one cell of each table, as it does of each feature: what is proven for d features holds
    for ``d + count``.

    Parameters
    ----------
    groups
        The largest number of a group.
    count
        The number of pairs.
    """

    kind: ClassVar[str] = "bin_pairs"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BinsDomain
    max_released_inputs: ClassVar[int] = 2

    groups: int
    count: int

    def label(self) -> str:
        """Return the number of pairs."""
        return f"with {self.count} tables by pairs of features"

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells, those of the tables last."""
        if len(inputs) != 3:
            raise DeclarationError("pairs of cells need rows by cells, released groups and pairs")
        for name in ("groups", "count"):
            if not (type(value := getattr(self, name)) is int and value >= 1):
                raise DeclarationError(f"pairs of cells need {name} >= 1, got {value!r}")
        before: BinsDomain = inputs[0]
        sizes = (*before.sizes, *[(self.groups + 1) ** 2] * self.count)
        if not (1 + sum(sizes) <= MOST_CELLS):
            raise DeclarationError(f"pairs have {sum(sizes)} cells, of at most {MOST_CELLS - 1}")
        return BinsDomain(sizes, before.examples)

    def run(self, inputs: Sequence[Any], stream: Stream) -> BinnedRows:
        """Return the rows, whose cells in the tables are looked up when they are read."""
        rows: BinnedRows = inputs[0]
        group = np.nan_to_num(np.resize(np.asarray(inputs[1], dtype=np.float64), rows.cells))
        pairs = np.nan_to_num(np.resize(np.asarray(inputs[2], dtype=np.float64), (self.count, 2)))
        first, second = np.clip(np.rint(pairs), 0, len(rows.sizes) - 1).astype(np.int64).T
        groups = np.clip(np.rint(group), 0, self.groups).astype(np.int64)
        own = PairCells(groups, first, second, rows.cells, self.groups)
        sizes = (*rows.sizes, *[(self.groups + 1) ** 2] * self.count)
        return evolve(rows, sizes=sizes, pairs=(*rows.pairs, own))


@frozen
class BinCounts(Query):
    """The number of rows, and the numbers of rows in each cell of each of d features.

    *Sensitivity* (own proof). A row adds 1 to coordinate 0 and to one coordinate of each feature.
    Let a unit have a rows in one data set and b in the other, ``a, b <= r`` and ``a + b <= s`` (s
    is `Change.both`). In a feature the counts of these rows are vectors u and v >= 0 of l1 norms a
    and b, so that ``|u - v|_2^2 <= |u|_2^2 + |v|_2^2 <= a^2 + b^2``; coordinate 0 moves by ``|a -
    b|``. So the square of the l2 sensitivity is at most ``d (a^2 + b^2) + (a - b)^2``, which is
    convex, and largest where a = r and b is 0 or ``s - r``, a corner of what is possible. In l1 it
    is at most ``(d + 1) s``, and r in the maximum norm. Of the last k features alone, without
    coordinate 0, it is at most the root of ``k (a^2 + b^2)``, and ``k s``.

    Parameters
    ----------
    last
        k, the number of last features whose cells alone are counted; 0 for all, and the rows.
    """

    kind: ClassVar[str] = "bin_counts"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BinsDomain

    last: int = 0

    def label(self) -> str:
        """Return the query."""
        return "counts by cell"

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells."""
        domain: BinsDomain = inputs[0]
        _check_last(self.last, domain)
        return domain

    def dimension(self, domain: BinsDomain) -> int:
        """Return the number of cells, and 1 of all rows."""
        return sum(domain.sizes[-self.last :]) + (not self.last)

    def coordinates_moved(self, domain: BinsDomain, change: Change) -> int:
        """Return how many counts one unit's rows are in."""
        touched = (self.last or len(domain.sizes)) * change.both + (not self.last)
        return min(self.dimension(domain), touched)

    def step(self, domain: BinsDomain) -> float:
        """Return 1: these are counts."""
        return 1.0

    def sensitivity(self, domain: BinsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factor 1 + 1e-12 rounds it up."""
        d, r, rest = self.last or len(domain.sizes), change.rows, change.both - change.rows
        every = 0 if self.last else 1
        if math.isinf(norm):
            return float(r)
        if norm == 1:
            return float((d + every) * change.both)
        if norm != 2:
            raise DeclarationError(
                f"counts by cell have sensitivities in l1, l2 and l_inf, not {norm}"
            )
        square = max(d * (r * r + b * b) + every * (r - b) ** 2 for b in (0, rest))
        return math.sqrt(square) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the counts, of all rows first, or those by the last features."""
        # clamped to integers that floats hold: 1-Lipschitz, so it moves no two counts apart
        counts = np.minimum(inputs[0].counts(), grid.EXACT)
        first = inputs[0].cells - sum(inputs[0].sizes[-self.last :]) if self.last else 0
        return np.asarray(counts[first:], dtype=np.float64)


def _check_last(last: int, domain: BinsDomain) -> None:
    """Refuse a number of last features that there are not."""
    if not (type(last) is int and 0 <= last <= len(domain.sizes)):
        raise DeclarationError(f"there are {len(domain.sizes)} features, not {last!r}")


def bin_sizes(sizes: Sequence[int], most: int) -> list[int]:
    """Return the number of bins of each feature: of its cells, or ``most`` where those are more."""
    return [min(size, most) for size in sizes]


def _clip(value: Any) -> float:
    return finite_float("a gradient's clip", value)


@frozen
class _SlopesByBin(Query):
    """What is made of the sums, by bin, of the clipped slopes of the rows' losses.

    Inputs are the rows by cells; and of released values the scores by cell, flat from shape (k,
    cells), the bin of each cell, shape (cells,), within its feature, and what a query adds to that.
    """

    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BinsDomain

    quantity: ClassVar[str]
    """What it is, with the loss in its place."""

    loss: str = field(converter=loss_text)
    clip: float = field(converter=_clip)
    most: int

    def label(self) -> str:
        """Return the loss and the clip."""
        named = self.quantity.format(self.loss.removesuffix("()"))
        return f"{named}, clipped to {self.clip:g}"

    def assumes(self) -> str:
        """Return what is assumed of a user's own loss."""
        return loss_assumption(self.loss)

    def checked(
        self, inputs: Sequence[Any], released: int, *, last: int = 0, several: bool = False
    ) -> BinsDomain:
        """Return the cells; refuse a loss that reads other labels, or has several scores.

        Parameters
        ----------
        inputs
            The inputs' domains.
        released
            How many of them must be released.
        last
            The number of last features that are summed by.
        several
            Whether the loss may have several scores.
        """
        if len(inputs) != 1 + released:
            raise DeclarationError(
                f"a {self.kind} needs rows by cells and {released} released inputs, got "
                f"{len(inputs) - 1}"
            )
        if not (1e-100 <= self.clip <= 1e100):
            raise DeclarationError(f"a gradient's clip must be positive, got {self.clip!r}")
        if not (type(self.most) is int and self.most >= 2):
            raise DeclarationError(f"a feature needs at least 2 bins, got {self.most!r}")
        domain: BinsDomain = inputs[0]
        _check_last(last, domain)
        loss = loss_of(self.loss, domain.examples)
        if loss.outputs != 1 and not several:
            raise DeclarationError(f"a {self.kind} is of a loss of one score, not {loss.outputs}")
        return domain

    def step(self, domain: BinsDomain) -> float:
        """Return the step in which sums are given."""
        return grid.step(self.clip, WEIGHT_BITS - 1)

    def moves(self, domain: BinsDomain) -> dict[float, float]:
        """Return how far a row of slope `clip` moves the value, over that, by norm."""
        raise NotImplementedError

    def sensitivity(self, domain: BinsDomain, change: Change, norm: float) -> float:
        """Return the bound of the class docstring; the factor 1 + 1e-12 rounds it up."""
        if norm not in (1, 2, math.inf):
            raise DeclarationError(f"a {self.kind} has sensitivities in l1, l2, l_inf, not {norm}")
        return change.both * self.clip * self.moves(domain)[norm] * (1 + 1e-12)

    def sums(
        self, inputs: Sequence[Any], *, scaled: bool = False, last: int = 0
    ) -> tuple[NDArray[Any], int, float]:
        """Return the exact sums by bin, shape (k, bins), that of squares, and their step.

        They are those of the last features alone, or of all rows and all features.
        """
        rows, scores, bins = inputs[:3]
        scale = released_bound(inputs[-1]) if scaled else None
        loss = losses.read_any(self.loss)
        given = np.asarray(scores, dtype=np.float64).reshape(loss.outputs, rows.cells)
        sums, squares, unit = rows.slope_sums(loss, given, self.clip, scale, last=last)
        places, width = coordinates_of_bins(bins, rows.sizes, self.most)
        merged = np.zeros((width, loss.outputs), dtype=sums.dtype)
        # integers: exact in any order
        np.add.at(merged, places, sums.T)
        if last:
            merged = merged[width - sum(bin_sizes(rows.sizes[-last:], self.most)) :]
        return merged.T, squares, unit


def _inside(total: NDArray[Any]) -> NDArray[Any]:
    """Return integers clamped to those that floats hold: 1-Lipschitz, it moves no two apart."""
    return np.asarray(np.minimum(np.maximum(total, -grid.EXACT), grid.EXACT))


@frozen
class BinGradient(_SlopesByBin):
    """The gradient of an additive model's summed loss by its scores: sums of slopes, by bin.

    A row's k slopes, of its loss by its scores, are scaled down to norm B where they are longer,
    and added to the bin of each of the row's d cells, and to coordinate 0. Inputs are the rows by
    cells, the released scores by cell, flat from shape (k, cells), and the released bin of each
    cell, shape (cells,), within its feature. A fourth input, for one score, is a released number
    that slopes are divided by before they are clipped; then the last coordinate is the sum of the
    squares of the clipped slopes, over B. With `last` it is the gradient by the bins of the last
    features alone, without coordinate 0 and squares.

    *Sensitivity* (own proof). Whatever the scores and the bins, a row's share is its slopes times
    the indicator of d + 1 different coordinates: one of each feature, since a cell's bin is one of
    its own feature's, and coordinate 0. Its l2 norm is at most ``sqrt(d + 1) B``, the product of
    both norms; its l1 norm at most ``(d + 1) sqrt(k) B``, and no coordinate is above B. A square,
    ``a^2 / B`` of a slope a of at most B, is at most ``|a|``, as one more feature's bin would be:
    d + 2 takes the place of d + 1, whatever the released number. Of the last features alone there
    are `last` coordinates. By the
    triangle inequality a unit moves the sum by s times that, s being `Change.both`: r where it
    appears or vanishes, a + b where a rows are exchanged for b, whose slopes may be opposite.
    Shares are integers, and their sum is exact: no rounding is added.

    Parameters
    ----------
    loss
        Of one row, as a str.
    clip
        B.
    most
        The most bins of a feature.
    scaled
        Whether slopes are divided by a released number, and their squares are summed.
    last
        The number of last features whose bins alone are summed by; 0 for all.
    """

    kind: ClassVar[str] = "bin_gradient"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 3
    quantity: ClassVar[str] = "gradient of {} by bin"

    scaled: bool = False
    last: int = 0

    @property
    def has_squares(self) -> bool:
        """Whether the last coordinate is the sum of squares."""
        return self.scaled and not self.last

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells; refuse a loss that reads other labels."""
        several = not self.scaled
        return self.checked(inputs, 2 + self.scaled, last=self.last, several=several)

    def dimension(self, domain: BinsDomain) -> int:
        """Return the number of bins, and 1, times the loss's scores; and 1 of squares."""
        bins = sum(bin_sizes(domain.sizes[-self.last :], self.most)) + (not self.last)
        return loss_of(self.loss, domain.examples).outputs * bins + self.has_squares

    def moves(self, domain: BinsDomain) -> dict[float, float]:
        """Return how far a row of slope `clip` moves the value, over that, by norm."""
        touched = self.last or len(domain.sizes) + 1 + self.has_squares
        outputs = loss_of(self.loss, domain.examples).outputs
        return {1: touched * math.sqrt(outputs), 2: math.sqrt(touched), math.inf: 1.0}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sums, flat from shape (k, bins)."""
        sums, squares, unit = self.sums(inputs, scaled=self.scaled, last=self.last)
        flat = sums.reshape(-1)
        if self.has_squares:
            flat = np.append(flat, np.asarray([squares], dtype=flat.dtype))
        return np.asarray(_inside(flat).astype(np.float64) * unit)


def coordinates_of_bins(bins: Any, sizes: Sequence[int], most: int) -> tuple[Integers, int]:
    """Return the coordinate of each cell's bin, shape (cells,), and the number of coordinates.

    A bin that is not one of the cell's own feature is the nearest that is: a row adds to one bin of
    each feature, whatever was released.
    """
    widths = bin_sizes(sizes, most)
    starts = np.cumsum([1, *widths[:-1]])
    given = np.nan_to_num(np.asarray(bins, dtype=np.float64).reshape(-1))
    # coordinate 0 is that of all rows, whatever its bin
    own = np.clip(given[1:], 0, np.repeat(np.asarray(widths) - 1, sizes)).astype(np.int64)
    places = np.concatenate([[0], np.repeat(starts, sizes) + own])
    return places, 1 + sum(widths)


@frozen
class BinGains(_SlopesByBin):
    """How much each feature could lower an additive model's loss, less a level of each.

    The gain of a feature is the sum over its bins of ``|sum of the slopes of the bin's rows|``, in
    which a row's slope, of its loss by its score, is clipped to B. Of k scores it is the sum over
    them too, a row's k slopes being scaled down to norm B where they are longer. With a loss that
    is 0 from a margin of 1 on, such as `adaptive_dp.erm.SmoothedHinge`, it is made of the rows
    alone whose margin fails. Inputs are the rows by cells; and of released values the scores by
    cell, flat from shape (k, cells), the bin of each cell (as of `BinGradient`), the features'
    levels, shape (d,), and the number of the feature that comes first: values are those of the
    features from it on, and of those before it.
    A further one, if `scaled`, is a number that slopes are divided by before they are clipped. With
    `last` the values are those of the last features, d their number.

    *Sensitivity* (own proof). A row adds a slope of at most B to one bin of each feature. By the
    triangle inequality it moves the sum of the bins' sizes by at most B, whatever the scores and
    bins, and each feature's gain by itself, up or down. So a unit moves each by at most ``s B``, s
    being `Change.both` (rows that are exchanged may have opposite slopes), two of them apart by
    twice that, and all d of them by ``sqrt(d)`` times it in l2, d times in l1. Of k scores a row
    adds slopes whose sizes add up to at most ``sqrt(k) B``, which takes the place of B. Levels,
    order and scale are released: they move nothing. Gains and levels are integer steps: exact.

    Parameters
    ----------
    loss
        Of one row, as a str.
    clip
        B.
    most
        The most bins of a feature.
    scaled
        Whether slopes, of one score, are divided by a released number.
    last
        The number of last features whose gains are returned; 0 for all.
    """

    kind: ClassVar[str] = "bin_gains"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 5
    quantity: ClassVar[str] = "gain of {} by feature"

    scaled: bool = False
    last: int = 0

    def label(self) -> str:
        """Return the loss and the clip."""
        return super().label().replace(", clipped", ", slopes clipped")

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells; refuse a loss that reads other labels."""
        several = not self.scaled
        return self.checked(inputs, 4 + self.scaled, last=self.last, several=several)

    def dimension(self, domain: BinsDomain) -> int:
        """Return the number of features."""
        return self.last or len(domain.sizes)

    def moves(self, domain: BinsDomain) -> dict[float, float]:
        """Return how far a row of slope `clip` moves the value, over that, by norm."""
        d, slopes = self.dimension(domain), loss_of(self.loss, domain.examples).outputs ** 0.5
        return {1: slopes * d, 2: slopes * math.sqrt(d), math.inf: slopes}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the gains less their levels, shape (d,)."""
        sums, _, unit = self.sums(inputs, scaled=self.scaled, last=self.last)
        widths = bin_sizes(inputs[0].sizes[-self.last :], self.most)
        own = _inside(sums[:, (not self.last) :]).astype(np.int64)
        # Python's integers, which do not overflow
        gains = [
            sum(map(abs, each.reshape(-1).tolist()))
            for each in np.split(own, np.cumsum(widths)[:-1], axis=1)
        ]
        given = np.nan_to_num(np.resize(np.asarray(inputs[3], dtype=np.float64), len(widths)))
        levels = np.clip(np.rint(given / unit), -grid.EXACT, grid.EXACT)
        # clamped to integers that floats hold: 1-Lipschitz, so it moves no two values apart
        above = [
            min(max(gain - int(level), -grid.EXACT), grid.EXACT)
            for gain, level in zip(gains, levels.tolist(), strict=True)
        ]
        values = np.array(above, dtype=np.float64) * unit
        return np.asarray(np.roll(values, -feature_number(inputs[4])))

    def candidate(self, index: int) -> Any:
        """Return the place of a feature, from the one that comes first."""
        return index


def feature_number(value: Any) -> int:
    """Return a released number as an int between -2^30 and 2^30; noise may make it anything."""
    return int(np.clip(np.nan_to_num(float(np.asarray(value).reshape(-1)[0])), -(2**30), 2**30))


@frozen
class FeatureGradient(_SlopesByBin):
    """The gradient of an additive model's summed loss by the scores of one feature's bins.

    A row's slope, of its loss by its score, is clipped to B and added to the bin of the row's cell
    in a feature that was released. Inputs are the rows by cells; and of released values the scores
    by cell, the bin of each cell (as of `BinGradient`), and the number of the feature: where there
    is no feature of this number, such as -1, no row is read and the gradient is 0.

    *Sensitivity* (own proof). Whatever the scores, the bins and the feature, a row adds a slope of
    at most B to one coordinate or to none. By the triangle inequality a unit moves the sum by at
    most ``s B`` in any norm, s being `Change.both`, which rows that are exchanged attain where
    their slopes are opposite and their bins the same. Shares are integers, and their sum is exact.

    Parameters
    ----------
    loss
        Of one row and one score, as a str.
    clip
        B.
    most
        The most bins of a feature.
    """

    kind: ClassVar[str] = "feature_gradient"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 3
    quantity: ClassVar[str] = "gradient of {} by a feature's bins"

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells; refuse a loss that reads other labels, or has several scores."""
        return self.checked(inputs, 3)

    def dimension(self, domain: BinsDomain) -> int:
        """Return the largest number of a feature's bins."""
        return max(bin_sizes(domain.sizes, self.most))

    def coordinates_moved(self, domain: BinsDomain, change: Change) -> int:
        """Return how many bins one unit's rows are in."""
        return min(self.dimension(domain), change.both)

    def moves(self, domain: BinsDomain) -> dict[float, float]:
        """Return how far a row of slope `clip` moves the value, over that, by norm."""
        return {1: 1.0, 2: 1.0, math.inf: 1.0}

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sums, of the feature's bins first, then 0."""
        widths = bin_sizes(inputs[0].sizes, self.most)
        total, number = np.zeros(max(widths)), feature_number(inputs[3])
        if 0 <= number < len(widths):
            sums, _, unit = self.sums(inputs)
            own = _inside(sums[0]).astype(np.int64)
            first = 1 + sum(widths[:number])
            total[: widths[number]] = own[first : first + widths[number]] * unit
        return total


@frozen
class ShallowRows(Query):
    """The number of rows whose slopes at released scores by cell have a norm of at most a bound.

    Inputs are the rows by cells, and the scores, flat from shape (k, cells), as of `BinGradient`.

    *Sensitivity*. A count: a unit of up to r rows that appears, vanishes or is exchanged moves it
    by at most r.

    Parameters
    ----------
    loss
        Of one row, as a str.
    bound
        The largest norm.
    """

    kind: ClassVar[str] = "shallow_rows"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = BinsDomain
    max_released_inputs: ClassVar[int] = 1

    loss: str = field(converter=loss_text)
    bound: float = field(converter=_clip)

    def label(self) -> str:
        """Return the query."""
        return "count of rows of small slopes"

    def assumes(self) -> str:
        """Return what is assumed of a user's own loss."""
        return loss_assumption(self.loss)

    def domain(self, inputs: Sequence[Any]) -> BinsDomain:
        """Return the cells; refuse a loss that reads other labels."""
        if len(inputs) != 2:
            raise DeclarationError("a count of rows of small slopes needs released scores")
        loss_of(self.loss, inputs[0].examples)
        return inputs[0]  # type: ignore[no-any-return]

    def step(self, domain: BinsDomain) -> float:
        """Return 1: it is a count."""
        return 1.0

    def sensitivity(self, domain: BinsDomain, change: Change, norm: float) -> float:
        """Return r (one number: any norm)."""
        return float(change.rows)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the count."""
        return float(self._shallow(inputs, self.bound))

    def _shallow(self, inputs: Sequence[Any], bound: float) -> int:
        """Return the number of rows whose slopes have a norm of at most a bound."""
        rows, scores = inputs
        loss = losses.read_any(self.loss)
        given = np.asarray(scores, dtype=np.float64).reshape(loss.outputs, rows.cells)
        return int(rows.shallow(loss, given, bound))


@frozen
class ShallowLessSteep(ShallowRows):
    """The number of rows whose slopes have a norm of at most a bound, less that of all others.

    *Sensitivity*. Each row adds 1 or -1. So a unit that appears or vanishes moves it by at most its
    number of rows; one that is exchanged, by that of both data sets together.
    """

    kind: ClassVar[str] = "shallow_less_steep"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query."""
        return "rows of small slopes less all others"

    def sensitivity(self, domain: BinsDomain, change: Change, norm: float) -> float:
        """Return the rows of a unit in both data sets together (one number: any norm)."""
        return float(change.both)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the difference."""
        # a norm that is no number is of neither kind
        return float(2 * self._shallow(inputs, self.bound) - self._shallow(inputs, math.inf))
