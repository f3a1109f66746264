"""Examples: rows of features with labels, as integers, so that sums over rows are exact.

A row lies in the ball of radius R and is kept as integer multiples of a step of about ``R / 2^19``
(see `grid`), which float32 holds. Products of such rows with integer weights are integers, and all
partial sums stay below 2^53, so float64 adds them exactly in whatever order a matrix product does:
the scores of a row depend on that row alone, and a sum over rows does not depend on their order.

`Examples` are in memory. `PartitionedExamples` stay where their rows are; sums over them travel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import sampling
from adaptive_dp.data.engine import NotSent
from adaptive_dp.data.grid import check_arithmetic, exact_add
from adaptive_dp.data.partitioned import PartitionedRows
from adaptive_dp.data.rows import Columns, Integers, Rows
from adaptive_dp.data.sampling import RandomSource
from adaptive_dp.data.scan import ComputedRows

T = TypeVar("T")
Floats = NDArray[np.float64]
Steps = NDArray[np.float32]

BLOCK = 1024
"""The most rows in a block: 1024 products of a weight of 2^22 and a coordinate of 2^20 are 2^52."""

CACHED_VALUES = 2**17
"""Values in a block, 1 MiB, so that a second pass finds it in the cache; or 512 wide rows."""

WEIGHT_BITS = 22
"""A row's weights in a sum are integers of at most 2^WEIGHT_BITS."""

SCORE_BITS = 32
"""Parameters of one score have an l2 norm of at most 2^SCORE_BITS steps.

A row's is below 2^20 steps, so by Cauchy and Schwarz every partial sum of their product is at most
2^52, which float64 holds exactly.
"""


@frozen(eq=False, repr=False)
class Examples:
    """Features and labels in memory.

    Parameters
    ----------
    steps
        Shape (n, p), float32, integers; a row's l2 norm is at most ``radius / unit``.
    labels
        Shape (n,); (n, 2) where rows have weights, which come second.
    radius
        R.
    unit
        The step, a power of two.
    units
        The unit of each row, shape (n,): 0, ..., ``count`` - 1.
    count
        The number of units.
    norms
        Upper bounds of the rows' l2 norms, shape (n,).
    """

    steps: Steps
    labels: Floats
    radius: float
    unit: float
    units: Integers
    count: int
    norms: Floats = field()

    @norms.default
    def _norms(self) -> Floats:
        # The squares of a row are integers whose sum is at most 2^40, so it is exact. The factor
        # covers the roundings of the root and the product: the norms are upper bounds.
        sums = [np.einsum("ij,ij->i", block, block) for _, block in self.blocks()]
        squares = np.concatenate(sums) if sums else np.zeros(0)
        return np.asarray(np.sqrt(squares) * ((1 + 2.0**-50) * self.unit))

    def __repr__(self) -> str:
        return "<private examples>"

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int]:
        """The shape of the parameters of a model with one score: (p,)."""
        return (self.width,)

    @property
    def width(self) -> int:
        """The number of features, p."""
        return int(self.steps.shape[1])

    @property
    def single(self) -> bool:
        """Whether each row is a unit of its own."""
        return self.count == len(self)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield each block's place, and its steps as float64, which the next block overwrites."""
        size = min(BLOCK, max(BLOCK // 2, CACHED_VALUES // max(1, self.width)))
        # one array for all: a Dask worker returns freed memory at once, and allocating it again
        # for each block takes longer than computing with it
        buffer = np.empty((min(size, len(self)), self.width))
        for start in range(0, len(self), size):
            where = slice(start, min(start + size, len(self)))
            block = buffer[: where.stop - start]
            np.copyto(block, self.steps[where])
            yield where, block

    def total(self, work: Callable[[Examples], T]) -> T:
        """Return ``work(self)``: an integer or an array of integers that is a sum over the rows.

        Whatever is learned from rows, wherever they are, is computed by this method. What needs the
        rows themselves calls `in_memory`.
        """
        return work(self)

    def in_memory(self) -> Examples:
        """Return the examples in memory: these."""
        return self

    def sample(self, rate: float, source: RandomSource) -> Examples:
        """Return the rows of a Poisson sample of the units."""
        sampled = sampling.poisson_sample(source, rate, self.count)
        return self.only(np.flatnonzero(sampled if self.single else sampled[self.units]))

    def split(self, cuts: Sequence[int], source: RandomSource) -> list[Examples]:
        """Return disjoint parts of the units, each unit in the one of its word's interval.

        See `adaptive_dp.data.sampling.cut_intervals`.
        """
        index = np.searchsorted(
            np.array(cuts, dtype=np.uint64), sampling.words(source, self.count), side="right"
        )
        of_rows = index[self.units]
        order = np.argsort(of_rows, kind="stable")
        ends = np.searchsorted(of_rows[order], np.arange(len(cuts) + 2))
        return [self.only(order[i:j]) for i, j in pairwise(ends)]

    def only(self, rows: Integers) -> Examples:
        """Return some of the rows, by their positions."""
        units, count = np.arange(len(rows)), len(rows)
        if not self.single:
            names, codes = np.unique(self.units[rows], return_inverse=True)
            units, count = codes.reshape(-1), len(names)
        return evolve(
            self,
            steps=self.steps[rows],
            labels=self.labels[rows],
            units=units,
            count=count,
            norms=self.norms[rows],
        )


def to_steps(parameters: Floats) -> tuple[Floats, float]:
    """Return parameters of shape (k, p) as integer multiples of a step, and the step.

    NaN counts as 0. A learner's gradients are taken at the rounded parameters; the guarantee does
    not depend on how they are rounded.
    """
    clean = np.nan_to_num(parameters, nan=0.0, posinf=1e100, neginf=-1e100)
    clean = np.clip(clean, -1e100, 1e100)
    largest = float(np.sqrt((clean**2).sum(axis=1)).max(initial=0.0))
    if largest <= 1e-200:
        return np.zeros_like(clean), 1.0
    unit = math.ldexp(1.0, math.frexp(largest)[1] - (SCORE_BITS - 1))
    # largest / unit < 2^(SCORE_BITS - 1) = 2^31, and rounding to the nearest adds at most
    # sqrt(p) / 2 steps to the norm: it stays below 2^SCORE_BITS for p below 2^64
    return np.rint(clean / unit), unit


def weighted_sum(
    examples: Examples, weights: Callable[[slice, Floats], Floats], outputs: int
) -> NDArray[Any]:
    """Return ``sum_i a_i x_i'`` exactly, in steps: shape (k, p), int64 or Python integers.

    Parameters
    ----------
    examples
        The rows x_i.
    weights
        Given the place of a block and its steps, returns a_i as integers of at most 2^WEIGHT_BITS,
        shape (k, m).
    outputs
        k, the number of scores.
    """
    products = (
        weighted_rows(weights(where, block), block).reshape(-1)
        for where, block in examples.blocks()
    )
    return exact_sum(products, outputs * examples.width).reshape(outputs, -1)


FEW = 4
"""Up to so many scores are computed one by one: a block is multiplied by each from the cache."""


def scores_of(parameters: Floats, block: Floats) -> Floats:
    """Return ``parameters block'``, shape (k, m), of integers whose sums stay below 2^53.

    So it is exact, and which product of the same numbers is the fastest bears on the time alone.
    """
    if not 1 < len(parameters) <= FEW:
        return np.asarray(parameters @ block.T)
    scores = np.empty((len(parameters), len(block)))
    for row, out in zip(parameters, scores, strict=True):
        np.matmul(block, row, out=out)
    return scores


def weighted_rows(weights: Floats, block: Floats) -> Floats:
    """Return ``weights block``, shape (k, p), of integers whose sums stay below 2^53: exact.

    OpenBLAS takes two thirds of the time for the product of the transposes.
    """
    if not 1 < len(weights) <= FEW:
        return np.asarray((block.T @ weights.T).T)
    total = np.empty((len(weights), block.shape[1]))
    for row, out in zip(weights, total, strict=True):
        np.matmul(row, block, out=out)
    return total


def exact_sum(parts: Iterator[Floats], size: int) -> NDArray[Any]:
    """Return the sum of integers of at most 2^52: shape (size,), int64 or Python integers."""
    check_arithmetic()  # in each process that adds up, such as a worker of another machine
    zeros = np.zeros(size, dtype=np.int64)
    total: NDArray[Any] = reduce(exact_add, (part.astype(np.int64) for part in parts), zeros)
    return total


def make_examples(
    steps: Steps, unit: float, labels: Floats, radius: float, units: Integers
) -> Examples:
    """Return examples in memory; ``units`` may be any integers, equal ones for rows of one unit."""
    names, codes = np.unique(units, return_inverse=True)
    return Examples(steps, labels, radius, unit, codes.reshape(-1), len(names))


Make = Callable[[Columns], NDArray[Any]]


@frozen(eq=False, repr=False)
class PartitionedExamples:
    """`Examples` that stay where their rows are, with the same methods and the same results.

    Parameters
    ----------
    rows
        With the columns "steps", of shape (n, p), "labels" and "norms".
    radius, unit, width
        As in `Examples`.
    """

    rows: PartitionedRows
    radius: float
    unit: float
    width: int

    def __repr__(self) -> str:
        return "<private examples>"

    def __reduce__(self) -> Any:
        return NotSent, ()  # work that is sent to a part gets that part's examples in their place

    @property
    def shape(self) -> tuple[int]:
        """The shape of the parameters of a model with one score: (p,)."""
        return (self.width,)

    def total(self, work: Callable[[Examples], T]) -> T:
        """Return the sum of the work's results on all parts: an integer or an array of integers.

        The work is deterministic and an exact sum over rows, each treated by itself, so that the
        partitioning does not change a bit.
        """
        own = partial(_part, radius=self.radius, unit=self.unit)
        folded = self.rows.fold(
            lambda chosen: reduce(exact_add, (work(own(rows.columns)) for rows in chosen), None),
            exact_add,
        )
        return work(own(self.rows.engine.empty.columns)) if folded is None else folded

    def in_memory(self) -> Examples:
        """Return all examples, in memory or in a temporary file."""
        steps = self.rows.integer_rows(lambda columns: columns["steps"])
        own = self.rows.engine.empty.columns["labels"]
        labels = self.rows.values(lambda columns: columns["labels"].reshape(-1))
        labels = labels.reshape(-1, *own.shape[1:])
        return make_examples(steps, self.unit, labels, self.radius, self.rows.units)

    def sample(self, rate: float, source: RandomSource) -> PartitionedExamples:
        """Return the rows of a Poisson sample of the units."""
        return evolve(self, rows=self.rows.sample(rate, source))

    def split(self, cuts: Sequence[int], source: RandomSource) -> list[PartitionedExamples]:
        """Return disjoint parts of the units, each unit in the one of its word's interval."""
        return [evolve(self, rows=rows) for rows in self.rows.split(cuts, source)]


AnyExamples = Examples | PartitionedExamples


def examples_of_rows(
    rows: Rows, steps: Make, labels: Make, radius: float, unit: float, *, weighted: bool = False
) -> AnyExamples:
    """Return examples of rows: where the rows are, if those are kept there, and else here.

    Parameters
    ----------
    rows
        The rows.
    steps, labels
        Map columns of m rows (at most `BLOCK` of them) to integers of shape (m, p), and to labels
        of shape (m,).
    radius, unit
        As in `Examples`.
    weighted
        Whether labels have shape (m, 2), the rows' weights second.
    """
    if isinstance(rows, ComputedRows):
        steps, labels = rows.seen(steps), rows.seen(labels)
        rows = rows.stored
    if isinstance(rows, PartitionedRows):
        made = partial(_columns, steps=steps, labels=labels, radius=radius, unit=unit)
        derived = rows.derived(made)
        if derived is not None:
            width = derived.engine.empty.columns["steps"].shape[1]
            return PartitionedExamples(derived, radius, unit, width)
    y = (
        rows.values(lambda columns: labels(columns).reshape(-1))
        if weighted
        else rows.values(labels)
    )
    y = y.reshape(-1, 2) if weighted else y
    return make_examples(rows.integer_rows(steps), unit, y, radius, rows.units)


def _columns(
    columns: Columns, *, steps: Make, labels: Make, radius: float, unit: float
) -> dict[str, NDArray[Any]]:
    """Return steps, labels and norms of a block of rows."""
    few = np.ascontiguousarray(steps(columns), dtype=np.float32)
    y = np.asarray(labels(columns), dtype=np.float64)
    made = Examples(few, y, radius, unit, np.arange(len(y)), len(y))
    return {"steps": few, "labels": y, "norms": made.norms}


def _part(columns: Columns, *, radius: float, unit: float) -> Examples:
    labels = columns["labels"]
    size = len(labels)
    units = np.arange(size)
    return Examples(columns["steps"], labels, radius, unit, units, size, columns["norms"])
