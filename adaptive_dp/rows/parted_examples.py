"""Examples that stay where their rows are: sums over them travel, they do not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from adaptive_dp.rows.examples import Examples, examples
from adaptive_dp.rows.lots import Coins
from adaptive_dp.rows.parts import Elsewhere, PartedRows, plus
from adaptive_dp.rows.rows import Columns, Rows

T = TypeVar("T")
Make = Callable[[Columns], NDArray[Any]]


@frozen(eq=False, repr=False)
class PartedExamples:
    """What `Examples` is, for rows in parts; both have the same methods, and give the same.

    Parameters
    ----------
    rows
        Of columns "steps", of shape (n, p), "labels" and "norms".
    radius, unit, width
        As of `Examples`.
    """

    rows: PartedRows
    radius: float
    unit: float
    width: int

    def __repr__(self) -> str:
        return "<private examples>"

    def __reduce__(self) -> Any:
        return Elsewhere, ()  # the work that travels to a part gets that part's in their place

    @property
    def shape(self) -> tuple[int]:
        """Of what is learned with one score: (p,)."""
        return (self.width,)

    def total(self, work: Callable[[Examples], T]) -> T:
        """Return the sum of what work makes of each part: whole numbers, one or an array of them.

        Work is deterministic and sums over rows exactly, each by itself, so that no partitioning
        changes a bit.
        """
        own = partial(_part, radius=self.radius, unit=self.unit)
        found = self.rows.folded(
            lambda chosen: reduce(plus, (work(own(rows.columns)) for rows in chosen), None), plus
        )
        return work(own(self.rows.engine.empty.columns)) if found is None else found

    def gathered(self) -> Examples:
        """Return all examples, in memory or in a temporary file."""
        steps = self.rows.gathered(lambda columns: columns["steps"])
        labels = self.rows.values(lambda columns: columns["labels"])
        return examples(steps, self.unit, labels, self.radius, self.rows.units)

    def sample(self, rate: float, source: Coins) -> PartedExamples:
        """Return the rows of a Poisson sample of the units."""
        return evolve(self, rows=self.rows.sample(rate, source))

    def parted(self, cuts: Sequence[int], source: Coins) -> list[PartedExamples]:
        """Return disjoint parts of the units, each in one by its own word."""
        return [evolve(self, rows=rows) for rows in self.rows.parted(cuts, source)]


AnyExamples = Examples | PartedExamples


def learned(rows: Rows, steps: Make, labels: Make, radius: float, unit: float) -> AnyExamples:
    """Return examples of rows, where the rows are, or here if those are not kept in memory.

    Parameters
    ----------
    rows
        The rows.
    steps, labels
        Map columns of m rows (at most `BLOCK` of them) to whole numbers of shape (m, p), and to
        labels of shape (m,).
    radius, unit
        As of `Examples`.
    """
    if isinstance(rows, PartedRows):
        made = partial(_columns, steps=steps, labels=labels, radius=radius, unit=unit)
        found = rows.derived(made)
        if found is not None:
            width = found.engine.empty.columns["steps"].shape[1]
            return PartedExamples(found, radius, unit, width)
    return examples(rows.gathered(steps), unit, rows.values(labels), radius, rows.units)


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
