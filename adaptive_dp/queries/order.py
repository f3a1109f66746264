"""Quantiles of a bounded column, with their local sensitivity at every distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.instance import Ranked
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected, clipped
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.ranks import Ranks, sensitivity
from adaptive_dp.queries.row_steps import counted, row_steps
from adaptive_dp.queries.sum import bounded

PARTS = 10**6
"""Quantiles are whole multiples of one millionth, so that ranks are exact."""


@frozen(repr=False)
class Sorted(Stability, Ranked):
    r"""The values in order, ``x_1 <= ... <= x_n``, with ``x_i`` the bound for i < 1 and i > n.

    The quantile is x_r with ``r = ceil(q n)``: the lower one of two medians, and the lower bound
    where there are no values.

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
        Whether a step exchanges a row, or adds or removes one.

    Examples
    --------
    >>> data = Sorted(np.array([0.1, 0.2, 0.35, 0.5, 0.55, 0.8, 0.9]), 0.0, 1.0, 0.5, True)
    >>> data.value, round(data.local(0), 9), round(data.smooth(0.5), 5)
    (0.5, 0.15, 0.18196)
    """

    values: Floats
    lower: float
    upper: float
    q: float
    exchange: bool

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def rank(self) -> int:
        """``ceil(q n)``, exactly."""
        return -(-round(self.q * PARTS) * len(self.values) // PARTS)

    @property
    def value(self) -> float:
        """The quantile."""
        return float(self._at(np.array([self.rank]))[0])

    @property
    def last(self) -> int:
        """So many changes put every value on a bound, with no other between them."""
        return 2 * len(self.values) + 2

    def steps(self) -> tuple[Floats, Floats]:
        """Return the scores of `Ranks`, for mechanisms that choose by rank."""
        return Ranks(self.values, self.lower, self.upper, self.q).steps()

    def local(self, distance: int) -> float:
        """Return the widest gap that ``distance`` changes can make the quantile cross."""
        k = int(distance)
        if k >= self.last:
            return self.upper - self.lower
        left, right = self._exchanged(k) if self.exchange else self._added(k)
        return float((self._at(right) - self._at(left)).max())

    def _exchanged(self, k: int) -> tuple[Any, Any]:
        left = np.arange(self.rank - k - 1, self.rank + 1)
        return left, left + k + 1

    def _added(self, k: int) -> tuple[Any, Any]:
        n, p = len(self.values), round(self.q * PARTS)
        rest, most = PARTS - p, max(p, PARTS - p)
        # at j = i + 1 the least |h| is 0 at i = q n, and a step of i moves it by 1
        near = p * n // PARTS
        left = np.arange(max(0, near - k - 2), min(n, near + k + 2) + 1)
        # h = rest i - p (n - j + 1) and e = k + 1 + i - j, in millionths
        fixed = rest * left - p * (n + 1)
        reach = most * (k + 2 + left)
        # h + p j < M (1 + e)  and  h + p j >= -M (1 + e): both get harder as j grows
        right = np.minimum(left + 1 + k, (reach - fixed - 1) // (p + most))
        if most > p:
            right = np.minimum(right, (fixed + reach) // (most - p))
        else:  # the second does not depend on j
            right = np.where(fixed + reach >= 0, right, left)
        right = np.minimum(right, n + 1)
        able = right > left
        return left[able], right[able]

    def _at(self, index: Any) -> Floats:
        return statistics(self.values, self.lower, self.upper, index)


def statistics(values: Floats, lower: float, upper: float, index: Any) -> Floats:
    """Return the values of given ranks, from 1 on; the bounds for ranks before and after."""
    n = len(values)
    if n == 0:
        return np.where(index < 1, lower, upper)
    inside = values[np.clip(index, 1, n) - 1]
    return np.where(index < 1, lower, np.where(index > n, upper, inside))


def _quantile(value: Any) -> Any:
    found = number(value)
    return round(found, 6) if isinstance(found, int | float) else found


@frozen
class Quantile(Query):
    """A quantile of a column, its values clipped to the bounds; see `Sorted`."""

    kind: ClassVar[str] = "quantile"
    reads: ClassVar[type] = Values
    gives: ClassVar[type] = Sorted

    bounds: Interval = field(converter=interval)
    q: float = field(converter=_quantile)
    exchange: bool = False

    def __attrs_post_init__(self) -> None:
        real = isinstance(self.q, int | float) and not isinstance(self.q, bool)
        require(
            real and 0 < self.q < 1,
            f"a quantile is a number between 0 and 1, of at most six decimals, got {self.q!r}",
        )

    def label(self) -> str:
        """Return the query with its bounds."""
        name = "median" if self.q == 0.5 else f"quantile {self.q:g}"
        return f"{name} in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`; in the maximum norm, how far any point's score moves."""
        if norm == math.inf:
            return sensitivity(self.q, change)
        return row_steps(self.kind, change, norm, self.exchange)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Sorted:
        """Return the sorted values."""
        values = ordered(inputs[0], self.bounds)
        return Sorted(values, self.bounds.lower, self.bounds.upper, self.q, self.exchange)


def ordered(selected: Selected, bounds: Interval) -> Floats:
    """Return a column's values, clipped to the bounds, in ascending order."""
    values = selected.rows.values(lambda columns: clipped(selected.of(columns), bounds))
    return np.sort(values)
