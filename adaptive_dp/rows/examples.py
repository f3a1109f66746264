"""Rows of features with labels, in whole steps, so that sums over rows are exact.

A row lies in the ball of radius R and is kept as whole steps of about ``R / 2^19`` (see `grid`),
which float32 holds. Products of such rows with weights that are whole steps too are sums of whole
numbers below 2^53, which float64 adds exactly in whatever order a matrix product adds them: a
row's scores hang on that row alone, and a sum over rows knows no order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.rows import lots
from adaptive_dp.rows.lots import Coins
from adaptive_dp.rows.rows import Integers

T = TypeVar("T")
Floats = NDArray[np.float64]
Steps = NDArray[np.float32]

BLOCK = 1024
"""Most rows in a block: 2^22 steps of weight times 2^20 of a row, so many times, are 2^52."""

CACHED = 2**17
"""Numbers in a block, 1 MiB, so that its second pass finds it in the cache; or 512 wide rows."""

WEIGHT = 22
"""A row's weights in a sum are at most 2^WEIGHT steps."""

SCORE = 32
"""Parameters of one score have at most 2^SCORE steps, in l2 norm; its product is below 2^53."""


@frozen(eq=False, repr=False)
class Examples:
    """Features and labels in memory.

    Parameters
    ----------
    steps
        Shape (n, p), float32, whole numbers; a row's l2 norm is at most ``radius / unit``.
    labels
        Shape (n,).
    radius
        R.
    unit
        A step, a power of two.
    units
        Shape (n,), whose each row is: 0, ..., ``count`` - 1.
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
        # squares of whole numbers up to 2^20 add up exactly; the root is rounded up
        found = [np.einsum("ij,ij->i", block, block) for _, block in self.blocks()]
        squares = np.concatenate(found) if found else np.zeros(0)
        return np.asarray(np.sqrt(squares) * ((1 + 2.0**-50) * self.unit))

    def __repr__(self) -> str:
        return "<private examples>"

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def shape(self) -> tuple[int]:
        """Of what is learned with one score: (p,)."""
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
        """Return where each block is, and its steps as float64; the next takes its place."""
        size = min(BLOCK, max(BLOCK // 2, CACHED // max(1, self.width)))
        # one array for all: Dask has workers give memory back at once, and to get it anew for
        # each block takes longer than to compute with it
        found = np.empty((min(size, len(self)), self.width))
        for start in range(0, len(self), size):
            where = slice(start, min(start + size, len(self)))
            block = found[: where.stop - start]
            np.copyto(block, self.steps[where])
            yield where, block

    def total(self, work: Callable[[Examples], T]) -> T:
        """Return what work makes of the rows: whole numbers that are a sum over them.

        All that is learned from rows wherever they are goes through here; what needs the rows
        themselves asks for `gathered`.
        """
        return work(self)

    def gathered(self) -> Examples:
        """Return the examples in memory: these."""
        return self

    def sample(self, rate: float, source: Coins) -> Examples:
        """Return the rows of a Poisson sample of the units."""
        coins = lots.coins(source, rate, self.count)
        return self.only(np.flatnonzero(coins if self.single else coins[self.units]))

    def parted(self, cuts: Sequence[int], source: Coins) -> list[Examples]:
        """Return disjoint parts of the units, each in one by its own word: see `lots.between`."""
        index = np.searchsorted(
            np.array(cuts, dtype=np.uint64), lots.words(source, self.count), side="right"
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


def whole(parameters: Floats) -> tuple[Floats, float]:
    """Return parameters of shape (k, p) as whole steps, and the step; NaN counts as 0.

    Whatever they are rounded to is what a learner's gradients are taken at: no promise of privacy
    hangs on it.
    """
    clean = np.nan_to_num(parameters, nan=0.0, posinf=1e100, neginf=-1e100)
    clean = np.clip(clean, -1e100, 1e100)
    largest = float(np.sqrt((clean**2).sum(axis=1)).max(initial=0.0))
    if largest <= 1e-200:
        return np.zeros_like(clean), 1.0
    unit = math.ldexp(1.0, math.frexp(largest)[1] - (SCORE - 1))
    # rounding to the nearest adds at most sqrt(p) / 2 steps to a norm of at most 2^31
    return np.rint(clean / unit), unit


def weighted(
    examples: Examples, weights: Callable[[slice, Floats], Floats], outputs: int
) -> NDArray[Any]:
    """Return ``sum_i a_i x_i'`` exactly, in whole steps: shape (k, p), int64 or Python integers.

    Parameters
    ----------
    examples
        The rows x_i.
    weights
        Given where a block is and its steps, returns a_i as whole numbers of at most 2^WEIGHT,
        shape (k, m).
    outputs
        k.
    """
    products = ((weights(where, block) @ block).reshape(-1) for where, block in examples.blocks())
    return added(products, outputs * examples.width).reshape(outputs, -1)


def added(parts: Iterator[Floats], size: int) -> NDArray[Any]:
    """Return the sum of whole numbers of at most 2^52: shape (size,), int64 or Python integers."""
    total = np.zeros(size, dtype=np.int64)
    full: NDArray[Any] | None = None
    for i, part in enumerate(parts, 1):
        total += part.astype(np.int64)
        if i % 512 == 0:  # below 2^61
            full = total.astype(object) if full is None else full + total
            total = np.zeros_like(total)
    return total if full is None else full + total


def examples(steps: Steps, unit: float, labels: Floats, radius: float, units: Integers) -> Examples:
    """Return examples of which ``units`` may be any numbers: equal ones are of one unit."""
    names, codes = np.unique(units, return_inverse=True)
    return Examples(steps, labels, radius, unit, codes.reshape(-1), len(names))
