"""The variance of a bounded column, of a fixed number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.order import ordered
from adaptive_dp.queries.row_steps import counted, row_steps
from adaptive_dp.queries.sum import bounded
from adaptive_dp.queries.trimmed_mean import mean


@frozen(repr=False)
class Spread(Stability):
    r"""The variance ``sum (x - mean)^2 / n`` of n values in [0, W], n fixed (derived here).

    With mu the mean of the n - 1 values w that neighbours share, a further value z adds
    ``(n-1)/n^2 (z - mu)^2`` to what w makes: the variance moves by at most ``(n-1)/n^2`` times the
    larger of ``mu^2`` and ``(W - mu)^2``. Within k steps w lacks at most k + 1 of the values, and
    has at most k others. Over all such w, mu lies between those without the k + 1 largest and with
    k zeros, and without the k + 1 least and with k times W. The set of w at k lies in that of a
    neighbour at k + 1, so the bound keeps the laws of `Stability.local`.

    Parameters
    ----------
    values
        In ascending order, less the column's lower bound.
    width
        W.
    sums
        Of the first 0, 1, ..., n values.
    """

    values: Floats
    width: float
    sums: Floats
    lower: float = 0.0

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def upper(self) -> float:  # type: ignore[override]
        """``W^2 / 4``."""
        return self.width * self.width / 4

    @property
    def value(self) -> float:
        """The variance; 0 where there are no values."""
        if not len(self.values):
            return 0.0
        found = mean((self.values - mean(self.values)) ** 2)
        return min(self.upper, max(0.0, found))

    @property
    def last(self) -> int:
        """One less than the number of values: then w is wholly free."""
        return max(0, len(self.values) - 1)

    def local(self, distance: int) -> float:
        """Return the bound of the class docstring, with room for the rounding of both variances."""
        n, k = len(self.values), int(distance)
        if n < 2:
            return 0.0
        kept = max(0, n - 1 - k)
        free = (n - 1 - kept) * self.width
        low = float(self.sums[kept]) / (n - 1)
        high = (float(self.sums[n] - self.sums[n - kept]) + free) / (n - 1)
        room = n * self.width * 2.0**-50  # n additions of at most n W, over n
        reach = min(self.width, max(self.width - low, high) + room)
        return min(self.upper, reach * reach * ((n - 1) / n / n) + self.upper * 2.0**-46)


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
        values = np.clip(ordered(inputs[0], self.bounds) - self.bounds.lower, 0.0, wide)
        return Spread(values, wide, np.concatenate([[0.0], np.cumsum(values)]))
