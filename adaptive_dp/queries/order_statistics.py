"""Quantiles, trimmed means, variances and modes: values with their local sensitivities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data.grid import step
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import FOREVER, Choice, Floats, Ranked, Stability
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import number, perhaps
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.counts import Histogram
from adaptive_dp.queries.domains import (
    Interval,
    Selected,
    Values,
    clipped,
    counted,
    edges_of,
    interval,
    row_steps,
)
from adaptive_dp.queries.sums import bounded
from adaptive_dp.queries.transforms import bins

# -----------------------------------------------------------------------------
# How far each point's rank is from a quantile's: the score of a quantile.


UNIT = 2.0**-20
"""A quantile's share of the rows is rounded to multiples of this, so that scores are exact."""


@frozen(repr=False, eq=False)
class Ranks(Ranked):
    """Of a point t, ``-|#{x < t} - q n|``: 0 at the q-quantile of n values.

    Exact for fewer than 2^32 values, q being a multiple of `UNIT`.

    Parameters
    ----------
    values
        In ascending order, inside the bounds, shape (n,).
    lower, upper
        The declared bounds.
    q
        Between 0 and 1; `share` rounds it.
    """

    values: Floats
    lower: float
    upper: float
    q: float

    def __repr__(self) -> str:
        return "<private ranks>"

    def steps(self) -> tuple[Floats, Floats]:
        """Return bounds and values as edges; above the i-th value i values are smaller."""
        edges = np.concatenate([[self.lower], self.values, [self.upper]])
        size = len(self.values)
        return edges, -np.abs(np.arange(size + 1, dtype=np.float64) - share(self.q) * size)


def share(q: float) -> float:
    """Return the multiple of `UNIT` next to q."""
    return round(q / UNIT) * UNIT


def sensitivity(q: float, change: Change) -> float:
    """Return the most that one unit's change moves any point's score.

    A row that appears below t moves ``#{x < t} - q n`` by ``1 - q``, any other by ``-q``. Where a
    rows are exchanged for b, it moves by between ``-(1-q) a - q b`` and ``(1-q) b + q a``: never by
    more than ``max(a, b)``. Both are attained.
    """
    rounded = share(q)
    return change.rows * (1.0 if change.replaced else max(rounded, 1 - rounded))


# -----------------------------------------------------------------------------
# Quantiles of a bounded column, with their local sensitivity at every distance.


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
    input_type: ClassVar[type] = Values
    output_type: ClassVar[type] = Sorted

    bounds: Interval = field(converter=interval)
    q: float = field(converter=_quantile)
    exchange: bool = False

    def __attrs_post_init__(self) -> None:
        real = isinstance(self.q, int | float) and not isinstance(self.q, bool)
        if not (real and 0 < self.q < 1):
            raise DeclarationError(
                f"a quantile is a number between 0 and 1, of at most six decimals, got {self.q!r}"
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


# -----------------------------------------------------------------------------
# The mean without the smallest and largest values, of a fixed number of rows.


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
    input_type: ClassVar[type] = Values
    output_type: ClassVar[type] = Trimmed

    bounds: Interval = field(converter=interval)
    share: float = field(converter=_share)

    def __attrs_post_init__(self) -> None:
        real = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not (real and 0 <= self.share < 0.5):
            raise DeclarationError(
                "a trimmed mean drops a share below 1/2 at either end, of at most six decimals, "
                f"got {self.share!r}"
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


# -----------------------------------------------------------------------------
# The variance of a bounded column, of a fixed number of rows.


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
    input_type: ClassVar[type] = Values
    output_type: ClassVar[type] = Spread

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"variance in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        wide = self.bounds.upper - self.bounds.lower
        if wide != 0 and not (1e-140 <= wide <= 1e140):
            raise DeclarationError(
                f"bounds {self.bounds} are too far apart, or too close, for squares; "
                "rescale the column"
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


# -----------------------------------------------------------------------------
# The most frequent category, or bin, with its distance to another one.


@frozen
class Mode(Query):
    """The most frequent category, or bin; of equal ones the first. See `instability`."""

    kind: ClassVar[str] = "mode"
    input_type: ClassVar[type] = Values
    output_type: ClassVar[type] = Choice

    keys: tuple[Any, ...] | None = field(default=None, converter=perhaps)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    exchange: bool = False

    def label(self) -> str:
        """Return the number of candidates."""
        return f"mode of {self._counts().dimension(None)} bins"  # type: ignore[arg-type]

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; check the bins."""
        counted(self.kind, inputs[0])
        return self._counts().domain(inputs)

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`."""
        return row_steps(self.kind, change, norm, self.exchange)

    def candidate(self, index: int) -> Any:
        """Return the category, or the bin as ``[low, high)``."""
        return self.keys[index] if self.keys is not None else bins("mode", self.edges or ())[index]

    def run(self, inputs: Sequence[Any], stream: Stream) -> Choice:
        """Return the choice with its distance."""
        return instability(self._counts().run(inputs, stream), self.exchange)

    def _counts(self) -> Histogram:
        return Histogram(self.keys, self.edges)


def instability(counts: NDArray[np.float64], exchange: bool) -> Choice:
    """Return the first of the largest counts, and how many steps it withstands.

    Another candidate j is chosen once it has more, or as many and stands before: once its deficit
    of g falls by ``g + 1`` for j behind, by g for j before. A row added or removed takes 1 from it;
    one exchanged takes 2, a row of the chosen that becomes one of j. The least such number of
    steps, less 1, is how many there are before one more may change the choice. That there always
    are rows to take is assumed, which can only make the distance smaller: it still moves by at
    most 1 a step, and is 0 at the edge.

    Examples
    --------
    >>> choice = instability(np.array([3.0, 9.0, 4.0]), exchange=False)
    >>> choice.index, choice.distance
    (1, 5)
    """
    chosen = int(np.argmax(counts))
    needed = counts[chosen] - counts + (np.arange(len(counts)) > chosen)
    others = np.delete(needed, chosen)
    if not len(others):
        return Choice(chosen, FOREVER)
    least = int(others.min())
    return Choice(chosen, max(0, (-(-least // 2) if exchange else least) - 1))


# -----------------------------------------------------------------------------
# A user's own function of a column, with its own local sensitivity at every distance.


@frozen(repr=False)
class Own(Stability):
    """A number and its local sensitivities, as functions that a user wrote say.

    What they return is brought into the declared range: a value outside of it, or none at all,
    counts as the nearest end, or as the lower one; a local sensitivity that is none counts as the
    whole width, and so does whatever they raise.
    """

    values: Floats
    lower: float
    upper: float
    function: Callable[[Floats], float]
    own_local: Callable[[Floats, int], float]

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def value(self) -> float:
        """The function's value, in the range."""
        found = _number(lambda: self.function(self.values.copy()))
        return self.lower if math.isnan(found) else min(self.upper, max(self.lower, found))

    @property
    def last(self) -> int:
        """Two beyond the number of rows: from there on the local sensitivity is the whole width.

        It moves by at most 1 where a row is added or removed. If it moved by more, the width would
        break the law ``local_k(x) <= local_{k+1}(x')``, however true the functions are.
        """
        return len(self.values) + 2

    def local(self, distance: int) -> float:
        """Return the local sensitivity at a distance, at most the width of the range."""
        wide = self.upper - self.lower
        if distance >= self.last:
            return wide
        found = _number(lambda: self.own_local(self.values.copy(), int(distance)))
        return wide if not found >= 0 else min(wide, found)


def _number(call: Callable[[], Any]) -> float:
    """Return what a function returns as a float; NaN for whatever is none, or is raised.

    That a function failed on private data would tell of them.
    """
    try:
        return float(call())
    except Exception:
        return math.nan


@frozen
class Instance(Query):
    """A user's own function of a column's values in ascending order; see `Own`."""

    kind: ClassVar[str] = "instance"
    input_type: ClassVar[type] = Values
    output_type: ClassVar[type] = Own
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

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`."""
        return row_steps(self.kind, change, norm, self.exchange)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Own:
        """Return the sorted values with the functions."""
        return Own(
            ordered(inputs[0], self.bounds),
            self.range.lower,
            self.range.upper,
            self.function.resolve(),
            self.local.resolve(),
        )
