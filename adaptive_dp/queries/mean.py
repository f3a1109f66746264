"""The mean of a bounded column."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Selected
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.sum import bounded, column_sum, interval_sensitivity


@frozen
class Mean(Query):
    """Sum over number of rows; the middle of the bounds where there are no rows.

    With a public number of rows n (a declared ``size`` of units that are rows) it is
    ``z + sum(x - z) / n`` with z the point of the bounds next to 0, so it moves by what a sum
    of values in ``[lo - z, hi - z]`` does, over n. Otherwise one unit of up to r rows can be
    most of a small data set. Where it appears, the mean moves by at most ``r/(r+1) (hi - lo)``
    (one other row), and from the middle by half of ``hi - lo``; where it is exchanged, by
    ``hi - lo``. That is much noise: a released sum over a released count is nearly always better.
    """

    kind: ClassVar[str] = "mean"
    reads: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)
    size: int | None = None

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"mean in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds."""
        bounded(inputs[0])
        known = inputs[0].size
        require(
            self.size is None or (self.size == known and not isinstance(self.size, bool)),
            f"a mean divides by a public size, got {self.size!r}; the data set declares {known!r}",
        )
        return inputs[0]  # type: ignore[no-any-return]

    @property
    def near(self) -> float:
        """The point of the bounds next to 0."""
        return min(max(0.0, self.bounds.lower), self.bounds.upper)

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (one number: any norm).

        What is summed is the distance from the bound next to 0, exactly. Each of two means is
        rounded by at most an ulp of the bounds (half for the quotient, half for adding that
        bound again), which can be more than one unit's share of narrow bounds far from 0.
        """
        bounds, rounding = self.bounds, 2 * math.ulp(self.bounds.largest)
        if self.size is not None:
            apart = Interval(bounds.lower - self.near, bounds.upper - self.near)
            return interval_sensitivity(apart, change) / self.size + rounding
        width = bounds.upper - bounds.lower
        if change.replaced:
            return width
        return width * change.rows / (change.rows + 1) + rounding

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the mean."""
        selected: Selected = inputs[0]
        near = self.near
        total = column_sum(selected, self.bounds, near)
        if self.size is not None:
            return near + total / self.size
        count = selected.rows.total(lambda c: np.array([len(selected.of(c))], dtype=np.int64))[0]
        if count == 0:
            return self.bounds.lower + (self.bounds.upper - self.bounds.lower) / 2
        return min(self.bounds.upper, max(self.bounds.lower, near + total / float(count)))
