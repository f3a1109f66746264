"""The sum of a bounded column, or of bounded vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from accountants.rounding import ceiling, up
from adaptive_dp.data import Columns, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Contributions, Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected, numbers
from adaptive_dp.queries.domains import Ball, Categories, Interval, Values, interval, number


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
    exact: ClassVar[bool] = True
    reads: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"sum in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or with too narrow ones."""
        bounded(inputs[0])
        width, largest = self.bounds.upper - self.bounds.lower, self.bounds.largest
        require(
            width == 0 or width >= largest * 2.0**-16,
            f"bounds {self.bounds} are too narrow for their distance from 0: sums are exact to "
            "2^-22 of the largest bound; subtract a public constant from the column first",
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
    require(
        ball.width == width and not isinstance(width, bool),
        f"the query is declared for {width!r} columns, its input has {ball.width}",
    )
    require(
        number("a radius", radius) == 0 or 1e-140 <= radius < 1e140,
        f"a radius must be 0, or at least 1e-140 and below 1e140, got {radius!r}; scale or clip "
        "the vectors",
    )
    return evolve(ball, radius=float(radius))


@frozen
class VectorSum(Query):
    """The sum of vectors over the rows, computed exactly on a grid inside their ball."""

    kind: ClassVar[str] = "vector_sum"
    reads: ClassVar[type] = Ball

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
