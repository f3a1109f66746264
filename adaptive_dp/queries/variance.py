"""The variance of a bounded column, of a fixed number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data.grid import step
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.order import ordered
from adaptive_dp.queries.row_steps import counted, row_steps
from adaptive_dp.queries.sum import bounded


@frozen(repr=False)
class Spread(Stability):
    r"""The variance ``sum (x - mean)^2 / n`` of n values in [0, W], n fixed (derived here).

    With mu the mean of the n - 1 values w that neighbours share, a further value z adds
    ``(n-1)/n^2 (z - mu)^2`` to what w makes: the variance moves by at most ``(n-1)/n^2`` times the
    larger of ``mu^2`` and ``(W - mu)^2``. Within k steps w lacks at most k + 1 of the values, and
    has at most k others. Over all such w, mu lies between those without the k + 1 largest and with
    k zeros, and without the k + 1 least and with k times W. The set of w at k lies in that of a
    neighbour at k + 1, so the bound keeps the laws of `Stability.local`.

    Values are whole numbers of a unit, so that sums are exact and both laws hold to the last bit.

    Parameters
    ----------
    values
        Whole numbers in ascending order, from 0 to ``top``, which is W.
    top
        At most 2^21.
    unit
        A power of two.
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

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def value(self) -> float:
        """The variance; 0 where there are no values."""
        n = len(self.values)
        if not n:
            return 0.0
        some = range(0, n, SQUARES)
        squares = sum(int((self.values[i : i + SQUARES] ** 2).sum()) for i in some)
        return (n * squares - int(self.sums[n]) ** 2) / n**2 * self.unit**2

    @property
    def last(self) -> int:
        """One less than the number of values: then w is wholly free."""
        return max(0, len(self.values) - 1)

    def local(self, distance: int) -> float:
        """Return the bound of the class docstring, with room for the rounding of two variances."""
        n, k = len(self.values), int(distance)
        if n < 2:
            return 0.0
        kept = max(0, n - 1 - k)
        low = int(self.sums[kept])
        high = int(self.sums[n] - self.sums[n - kept]) + (n - 1 - kept) * self.top
        reach = max(self.top * (n - 1) - low, high)  # of mu, times n - 1
        moved = reach**2 / (n**2 * (n - 1)) * self.unit**2
        return min(self.upper, moved + self.upper * 2.0**-50)


SQUARES = 2**20
"""So many squares of numbers up to 2^21 add up below 2^63."""


@frozen
class Variance(Query):
    """The variance of a column, with n in the denominator; see `Spread`.

    Under ``replace_one`` alone, where the number of rows is fixed.
    """

    kind: ClassVar[str] = "variance"
    reads: ClassVar[type] = Values
    gives: ClassVar[type] = Spread

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"variance in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        wide = self.bounds.upper - self.bounds.lower
        require(
            wide == 0 or 1e-140 <= wide <= 1e140,
            f"bounds {self.bounds} are too far apart, or too close, for squares; "
            "rescale the column",
        )
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`, of rows exchanged."""
        return row_steps(self.kind, change, norm, exchange=True)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Spread:
        """Return the sorted values, from the lower bound on."""
        wide = self.bounds.upper - self.bounds.lower
        unit = step(wide, 20)
        top = math.floor(wide / unit)
        apart = ordered(inputs[0], self.bounds) - self.bounds.lower
        return Spread(np.clip(np.rint(apart / unit), 0, top).astype(np.int64), top, unit)
