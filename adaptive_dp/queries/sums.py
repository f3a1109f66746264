"""Sums and means of bounded columns, and the first look at a table."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from accountants.numerics import ceiling, up
from adaptive_dp.data import Columns, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Change, Contributions, Query
from adaptive_dp.graph.values import evolved, fields_of
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Ball,
    Categories,
    Floats,
    Interval,
    Selected,
    Values,
    finite_float,
    interval,
    numbers,
)

if TYPE_CHECKING:
    from adaptive_dp.queries.table import Table

# -----------------------------------------------------------------------------
# The sum of a bounded column, or of bounded vectors.


def bounded(values: Values) -> Interval:
    """Return the bounds of a column, or raise for one that has none."""
    if isinstance(values.column, Interval):
        return values.column
    if isinstance(values.column, Categories):
        texts = any(isinstance(value, str) for value in values.column.values)
        raise DeclarationError(
            f"column {values.of!r} is declared as {values.column}, where numbers in bounds are "
            "needed; " + ("ask for its .histogram()" if texts else "use .clip(low, high)")
        )
    raise DeclarationError(
        f"column {values.of!r} has no bounds, so its sensitivity is infinite; declare "
        f"columns={{{values.of!r}: (low, high)}} or use .clip(low, high)"
    )


def interval_sensitivity(bounds: Interval, change: Change) -> float:
    """Return how far one unit's rows, each in ``bounds``, can move their sum, rounded up.

    A unit with up to r rows contributes a number of the set of sums of 0 to r values. Where
    it appears or vanishes: the largest absolute value, ``r max(|lo|, |hi|)``. Where it is
    exchanged: the diameter, ``r (max(hi, 0) - min(lo, 0))`` (with a rows against b, the smaller
    of the two counts only min(a, b) times), or ``r (hi - lo)`` if it has exactly r rows before
    and after.
    """
    lower, upper = Fraction(bounds.lower), Fraction(bounds.upper)
    if change.replaced and change.fixed:
        return ceiling(change.rows * (upper - lower))
    less, more = sorted((max(upper, Fraction()), max(-lower, Fraction())))
    return ceiling(change.rows * more + (change.both - change.rows) * less)


def ball_sensitivity(ball: Ball, change: Change, norm: float) -> float:
    """Return how far one unit's vectors, each of norm at most R, can move their sum.

    ``r R`` in the l2 and the maximum norm, ``sqrt(d) r R`` in the l1 norm (equal
    coordinates); twice that for an exchange (opposite vectors), where ``both = 2 r``.
    """
    return change.both * ball.radius * (math.sqrt(ball.width) if norm == 1 else 1.0)


@frozen
class Sum(Query):
    """The sum of a column over the rows, computed exactly on a grid inside its bounds."""

    kind: ClassVar[str] = "sum"
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"sum in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or with too narrow ones."""
        bounded(inputs[0])
        width, largest = self.bounds.upper - self.bounds.lower, self.bounds.largest
        if width != 0 and not (width >= largest * 2.0**-16):
            raise DeclarationError(
                f"bounds {self.bounds} are too narrow for their distance from 0: sums are exact to "
                "2^-22 of the largest bound; subtract a public constant from the column first"
            )
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `interval_sensitivity` (one number: any norm)."""
        return interval_sensitivity(self.bounds, change)

    def step(self, domain: Values) -> float:
        """Return the grid's."""
        return grid.step(self.bounds.largest, grid.BITS)

    def contributions(self, value: Selected) -> Contributions:
        """Return each row's whole steps, times the step: exactly what it adds.

        The total may be clamped, which moves no two totals apart.
        """
        bounds = self.bounds

        def block(columns: Columns) -> Floats:
            steps, unit = grid.interval(numbers(value.of(columns)), bounds.lower, bounds.upper)
            return np.abs(steps) * unit

        return value.rows.units, value.rows.values(block)

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum."""
        return column_sum(inputs[0], self.bounds)


def column_sum(selected: Selected, bounds: Interval, zero: float = 0.0) -> float:
    """Return the exact sum of a column's distances from ``zero``, on a grid inside its bounds."""
    lower, upper = bounds.lower - zero, bounds.upper - zero
    unit = grid.interval(np.zeros(1), lower, upper)[1]

    def block(columns: Columns) -> Integers:
        values = numbers(selected.of(columns)) - zero
        total: Integers = grid.interval(values, lower, upper)[0].sum(keepdims=True)
        return total

    return grid.total(selected.rows.total(block)[0], unit)


def enforced(ball: Ball, radius: float, width: int) -> Ball:
    """Return the ball of radius ``radius``, to which a query clips its vectors itself."""
    if not (ball.width == width and not isinstance(width, bool)):
        raise DeclarationError(
            f"the query is declared for {width!r} columns, its input has {ball.width}"
        )
    if finite_float("a radius", radius) != 0 and not (1e-140 <= radius < 1e140):
        raise DeclarationError(
            f"a radius must be 0, or at least 1e-140 and below 1e140, got {radius!r}; scale or "
            "clip the vectors"
        )
    return evolve(ball, radius=float(radius))


@frozen
class VectorSum(Query):
    """The sum of vectors over the rows, computed exactly on a grid inside their ball."""

    kind: ClassVar[str] = "vector_sum"
    input_type: ClassVar[type] = Ball

    radius: float
    width: int

    def label(self) -> str:
        """Return the query with its bound."""
        return f"sum in norm {self.radius:.4g}"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the sum enforces."""
        return enforced(inputs[0], self.radius, self.width)

    def dimension(self, domain: Ball) -> int:
        """Return the number of coordinates."""
        return self.width

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return `ball_sensitivity`."""
        return ball_sensitivity(domain, change, norm)

    def step(self, domain: Ball) -> float:
        """Return the grid's."""
        return grid.ball(np.zeros((1, self.width)), self.radius)[1]

    def contributions(self, value: Selected) -> Contributions:
        """Return each row's length, in whole steps, times the step.

        A row has at most some 2^20 steps in norm, so that the sum of its squares is exact; the
        root is rounded up.
        """
        radius = self.radius

        def block(columns: Columns) -> Floats:
            steps, unit = grid.ball(value.of(columns), radius)
            squares = (steps * steps).sum(axis=1)
            return np.where(squares == 0, 0.0, up(np.sqrt(squares)) * unit)

        return value.rows.units, value.rows.values(block)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the sum, shape (d,)."""
        selected = inputs[0]
        unit = grid.ball(np.zeros((1, self.width)), self.radius)[1]

        def block(columns: Columns) -> Integers:
            total: Integers = grid.ball(selected.of(columns), self.radius)[0].sum(axis=0)
            return total

        return np.array([grid.total(v, unit) for v in selected.rows.total(block)])


# -----------------------------------------------------------------------------
# The mean of a bounded column.


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
    input_type: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)
    size: int | None = None

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"mean in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds."""
        bounded(inputs[0])
        known = inputs[0].size
        if self.size is not None and not (self.size == known and not isinstance(self.size, bool)):
            raise DeclarationError(
                f"a mean divides by a public size, got {self.size!r}; the data set declares "
                f"{known!r}"
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


# -----------------------------------------------------------------------------
# The mean of a bounded column, as a released sum over a released count.


def average(
    total: PrivateQuery[float],
    count: Released[float],
    bounds: Interval,
    mechanism: Mechanism,
    *,
    name: str = "",
) -> Released[float]:
    """Return a released sum over a released count, in the bounds.

    One row moves the sum by up to the largest bound where it moves the count by one, so the
    sum's noise is the mechanism's times that bound. ``name`` is how tables call the sum.
    """
    noisy = total.release(louder(mechanism, bounds.largest or 1.0), name=name)
    return post(ratio, noisy, count, lower=bounds.lower, upper=bounds.upper)


def louder(mechanism: Mechanism, factor: float) -> Mechanism:
    """Return the mechanism with all of its noise times a factor."""

    def times(value: Any) -> Any:
        if isinstance(value, Free):
            return value if value.weight is None else evolve(value, weight=value.weight * factor)
        return value * factor

    noise = [f.name for f in fields_of(type(mechanism)) if f.metadata.get("role") == "noise"]
    return evolved(mechanism, **{name: times(getattr(mechanism, name)) for name in noise})


def ratio(total: float, count: float, *, lower: float, upper: float) -> float:
    """Return the mean of values in [lower, upper] from a sum and a count."""
    return min(upper, max(lower, total / max(count, 1.0)))


# -----------------------------------------------------------------------------
# The first look at a table: how many rows, the averages and the histograms of its columns.


def described(table: Table, mechanism: Mechanism, names: Sequence[str] | None) -> dict[str, Any]:
    """Return releases by kind and column; see `Table.describe`."""
    domain = table.domain
    if names is not None and not (isinstance(names, list | tuple) and all(map(_text, names))):
        raise DeclarationError(f"describe reads a list of columns, such as ['age'], got {names!r}")
    kinds = {name: domain.find(name) for name in (domain.columns if names is None else names)}
    if names is not None:
        for name, kind in kinds.items():
            if kind is None:
                raise DeclarationError(f"the column {name!r} has neither bounds nor categories")
    known = domain.size
    count = table.count().release(mechanism) if known is None else None
    averages = {
        name: table[name].mean().release(louder(mechanism, (kind.upper - kind.lower) / known or 1))
        if known is not None
        else table[name].average(mechanism, count=count)
        for name, kind in kinds.items()
        if isinstance(kind, Interval)
    }
    bars = {
        name: table[name].histogram().release(mechanism)
        for name, kind in kinds.items()
        if isinstance(kind, Categories)
    }
    found = {"count": count, "average": averages, "histogram": bars}
    return {name: value for name, value in found.items() if value is not None and value != {}}


def _text(name: Any) -> bool:
    return isinstance(name, str)
