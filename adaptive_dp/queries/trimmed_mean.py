"""The mean without the smallest and largest values, of a fixed number of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.order import PARTS, ordered, statistics
from adaptive_dp.queries.row_steps import counted, row_steps
from adaptive_dp.queries.sum import bounded


@frozen(repr=False)
class Trimmed(Stability):
    r"""The mean of ``x_{t+1}, ..., x_{n-t}`` of n values in order, ``t = floor(share n)``.

    For rows exchanged, n fixed (derived here). Of the n - 1 values that neighbours share, the mean
    is largest with the further one at the top, least with it at the bottom, and moves by
    ``(w_{n-t} - w_t) / (n - 2t)``: a range of order statistics ``x_{i+n-2t} - x_i`` of one of the
    two, i = t or t + 1. Of k changes b go below and a above: an order statistic falls by at most b
    places, and the other rises by at most a, ``a + b = k``. So ``A_k`` is at most the largest
    ``(x_{i+n-2t+k} - x_i) / (n - 2t)`` with ``t - k <= i <= t + 1``, and equal to it while k rows
    are left between; ``x_i`` is the bound for i < 1 and i > n. The bound keeps the laws of
    `Stability.local`: neighbours' order statistics lie within one place of each other.
    """

    values: Floats
    lower: float
    upper: float
    share: float

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def trimmed(self) -> int:
        """t, exactly."""
        return round(self.share * PARTS) * len(self.values) // PARTS

    @property
    def value(self) -> float:
        """The mean of what is kept; the middle of the bounds where there are no values."""
        if not len(self.values):
            return self.lower + (self.upper - self.lower) / 2
        kept = self.values[self.trimmed : len(self.values) - self.trimmed]
        return min(self.upper, max(self.lower, mean(kept)))

    @property
    def last(self) -> int:
        """The number of values: they may all be changed."""
        return len(self.values)

    def local(self, distance: int) -> float:
        """Return the bound of the class docstring; room for the rounding of two means included."""
        n, k, t = len(self.values), int(distance), self.trimmed
        wide = self.upper - self.lower
        if n == 0 or k >= n:
            return wide if n == 0 else self._room(wide / (n - 2 * t))
        left = np.arange(t - k, t + 2)
        low = statistics(self.values, self.lower, self.upper, left)
        high = statistics(self.values, self.lower, self.upper, left + n - 2 * t + k)
        return self._room(float((high - low).max()) / (n - 2 * t))

    def _room(self, moved: float) -> float:
        """Return the bound with room, never more than the width."""
        rounding = 4 * np.spacing(max(abs(self.lower), abs(self.upper)))
        return min(self.upper - self.lower, moved * (1 + 2.0**-50) + float(rounding))


def mean(values: Floats) -> float:
    """Return the mean, within two units in the last place: the sum is exact, and rounded once."""
    return math.fsum(values.tolist()) / len(values)


def _share(value: Any) -> Any:
    found = number(value)
    return round(found, 6) if isinstance(found, int | float) else found


@frozen
class TrimmedMean(Query):
    """The mean of a column without a share of its values at either end; see `Trimmed`.

    Under ``replace_one`` alone, where the number of rows is fixed.
    """

    kind: ClassVar[str] = "trimmed_mean"
    reads: ClassVar[type] = Values
    gives: ClassVar[type] = Trimmed

    bounds: Interval = field(converter=interval)
    share: float = field(converter=_share)

    def __attrs_post_init__(self) -> None:
        real = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        require(
            real and 0 <= self.share < 0.5,
            "a trimmed mean drops a share below 1/2 at either end, of at most six decimals, got "
            f"{self.share!r}",
        )

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"mean without {self.share:g} at either end in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`, of rows exchanged."""
        return row_steps(self.kind, change, norm, exchange=True)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Trimmed:
        """Return the sorted values."""
        values = ordered(inputs[0], self.bounds)
        return Trimmed(values, self.bounds.lower, self.bounds.upper, self.share)
