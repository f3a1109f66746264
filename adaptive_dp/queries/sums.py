"""Sums and means of bounded columns and vectors.

**Where a sum is clipped.** Every sum clips its values itself, when it is computed: `Steps` (and
`Sum.contributions`) by `adaptive_dp.data.grid.interval_steps`, `BallSteps` by
`adaptive_dp.data.grid.ball_steps`. These two functions clip to the bounds and round to multiples of
a power of two inside them, so that the bounds hold exactly and sums over rows are exact. The nodes
`clip` and `norm_clip` of a plan only declare the bounds that are enforced here.

**Sensitivities.** A unit has up to r rows (`Change.rows`; r = 1 where rows are the units). It
*appears or vanishes* (add/remove, zero-out), or it is *exchanged* (replace-one): then a rows go and
b rows come, r = max(a, b) is `Change.rows` and a + b is `Change.both`. Each class derives its
sensitivity for each of these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, ClassVar, overload

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from accountants.numerics import ceiling, up
from adaptive_dp.data import Columns, grid
from adaptive_dp.data.scan import Cells, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Change, Contributions
from adaptive_dp.graph.outputs import varies
from adaptive_dp.graph.values import evolved, fields_of
from adaptive_dp.queries.domains import (
    Ball,
    Categories,
    Floats,
    Interval,
    Selected,
    Strings,
    SumOverRows,
    Values,
    finite_float,
    interval,
    numbers,
    refuse_missing,
)

# -----------------------------------------------------------------------------
# Sums of a bounded column, and of bounded vectors.


def bounded(values: Values) -> Interval:
    """Return the bounds of a column.

    Raises
    ------
    DeclarationError
        If the column has none; the message says how to declare them.
    """
    if isinstance(values.column, Interval):
        return values.column.numbers
    if isinstance(values.column, Categories):
        texts = any(isinstance(value, str) for value in values.column.values)
        raise DeclarationError(
            f"column {values.of!r} is declared as {values.column}, where numbers in bounds are "
            "needed; " + ("ask for its .histogram()" if texts else "use .clip(low, high)")
        )
    if isinstance(values.column, Strings):
        raise DeclarationError(
            f"column {values.of!r} holds str, where numbers in bounds are needed; ask for its "
            ".histogram(keys=[...]), or declare bounds"
        )
    raise DeclarationError(
        f"column {values.of!r} has no bounds, so its sensitivity is infinite; declare "
        f"columns={{{values.of!r}: (low, high)}} or use .clip(low, high)"
    )


def refuse_narrow(bounds: Interval) -> None:
    """Refuse bounds so narrow, and so far from 0, that a sum's steps would not tell them apart."""
    width = bounds.upper - bounds.lower
    if width != 0 and not (width >= bounds.largest * 2.0**-16):
        raise DeclarationError(
            f"bounds {bounds} are too narrow for their distance from 0: sums are exact to "
            "2^-22 of the largest bound; subtract a public constant from the column first"
        )


def interval_sensitivity(bounds: Interval, change: Change) -> float:
    """Return the most that one unit moves a sum of values in ``bounds``, rounded up.

    A unit with up to r rows contributes a sum of 0 to r values of [lo, hi].

    * *Appears or vanishes*: the largest absolute value of such a sum, ``r max(|lo|, |hi|)``.
    * *Exchanged*: the distance of two such sums, ``r (max(hi, 0) - min(lo, 0))``; with a rows for
      b rows the smaller of the two sizes counts only min(a, b) times.
    * *Exchanged, with exactly r rows before and after* (`Change.fixed`): ``r (hi - lo)``.
    """
    lower, upper = Fraction(bounds.lower), Fraction(bounds.upper)
    if change.replaced and change.fixed:
        return ceiling(change.rows * (upper - lower))  # r (hi - lo), exactly, then rounded up
    # the two ends' sizes: max(a, b) rows at the larger one, min(a, b) at the other;
    # min(a, b) = both - rows is 0 where the unit appears or vanishes
    smaller, larger = sorted((max(upper, Fraction()), max(-lower, Fraction())))
    return ceiling(change.rows * larger + (change.both - change.rows) * smaller)


def ball_sensitivity(ball: Ball, change: Change, norm: float) -> float:
    """Return the most that one unit moves a sum of vectors of l2 norm at most R.

    * *Appears or vanishes*: ``r R`` in the l2 and the maximum norm (triangle inequality),
      ``sqrt(d) r R`` in the l1 norm (Cauchy-Schwarz; equal coordinates attain it).
    * *Exchanged*: ``(a + b) R`` and ``sqrt(d) (a + b) R`` (opposite vectors attain it).

    Where each coordinate has bounds besides (`Ball.sides`), it is a sum of numbers that moves by at
    most what `interval_sensitivity` says, and the vector by at most the norm of those: the less of
    the two. So vectors in ``[0, 1]^d`` that are exchanged move by ``sqrt(d) r`` in l2, not by twice
    as much, and by r in the maximum norm.
    """
    # triangle inequality over a + b rows; |v|_1 <= sqrt(d) |v|_2 (`Query` rounds it up: see
    # `rounds_outward`)
    by_norm = change.both * ball.radius * (math.sqrt(ball.width) if norm == 1 else 1.0)
    ends = sides_in_steps(ball, ball.radius)
    if ends is None:
        return by_norm
    low, high, unit = ends
    # each coordinate of the sum as a sum of its own (`interval_sensitivity`); whole numbers
    smaller, larger = np.minimum(-low, high), np.maximum(-low, high)
    moves = [float(m) for m in change.rows * larger + (change.both - change.rows) * smaller]
    sizes: dict[float, float] = {
        1: math.fsum(moves),
        2: math.sqrt(math.fsum(m * m for m in moves)),
    }
    return min(by_norm, sizes.get(norm, max(moves)) * unit)


def sides_in_steps(ball: Ball, radius: float) -> tuple[Floats, Floats, float] | None:
    """Return the least and the largest step of each coordinate of rows clipped to a radius.

    As `adaptive_dp.data.grid.ball_steps` rounds them: scaled down, each coordinate stays between 0
    and its side, and it is rounded to at most the next step outward. Third is the step's size; None
    where no sides are known.
    """
    if not ball.sides or not 1e-140 <= radius < 1e140:
        return None
    unit = grid.step(radius, grid.BALL_BITS)
    # clipped to the radius too: at most 2^21 steps, so that the quotient by a power of two is exact
    low = np.array([max(side.lower, -radius) for side in ball.sides])
    high = np.array([min(side.upper, radius) for side in ball.sides])
    return np.floor(low / unit), np.ceil(high / unit), unit


@frozen
class Sum(SumOverRows):
    """The sum of a column over the rows, each value clipped to the bounds.

    Values are rounded to multiples of a power of two inside the bounds (`adaptive_dp.data.grid`),
    so that the sum is exact and each row's share stays in the bounds. A missing value adds nothing,
    as if its row were not there.

    *Sensitivity*, in any norm since it is one number: with up to r rows of a unit, where it appears
    or vanishes ``r max(|lo|, |hi|)``; where it is exchanged ``r (max(hi, 0) - min(lo, 0))``, or
    ``r (hi - lo)`` with exactly r values before and after: where none can be missing. See
    `interval_sensitivity`.

    Parameters
    ----------
    bounds
        ``(lower, upper)`` in the column's units; values outside are clipped.
    """

    kind: ClassVar[str] = "sum"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"sum in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or with too narrow ones."""
        bounded(inputs[0])
        refuse_narrow(self.bounds)
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `interval_sensitivity` (one number: any norm)."""
        # a row whose value is missing is left out: a unit may have fewer values than rows
        own = evolve(change, fixed=False) if domain.missing else change
        return interval_sensitivity(self.bounds, own)

    def rises(self, domain: Values) -> bool:
        """Return whether no value is negative."""
        return self.bounds.lower >= 0

    def step(self, domain: Values) -> float:
        """Return the grid's step: 2^-22 to 2^-23 of the largest bound."""
        return grid.step(self.bounds.largest, grid.BITS)

    def contributions(self, value: Selected) -> Contributions:
        """Return the absolute value of what each row adds to the sum, exactly.

        The total may be clamped, which is 1-Lipschitz: it moves no two totals apart.
        """
        bounds, steps = self.bounds, Steps(value.of, self.bounds)

        def block(columns: Columns) -> Floats:
            return np.abs(steps(columns)) * grid.step(bounds.largest, grid.BITS)

        return value.rows.units, value.rows.values(block)

    def block(self, value: Selected) -> Cells:
        """Return each row's value, clipped and in steps."""
        return Cells(weights=Steps(value.of, self.bounds))

    def finish(self, total: NDArray[Any]) -> float:
        """Return the sum."""
        # clamped to 2^53 steps, where floats are exact: 1-Lipschitz, so no two totals move apart
        return grid.total(total[0], grid.step(self.bounds.largest, grid.BITS))


@frozen
class Steps(RowFunction):
    """Values clipped to bounds, as integer numbers of steps: ``value - zero`` of each row.

    This is where the values of a column are clipped before they are summed, and where missing ones
    become 0. The step is ``grid.step`` of the largest of the bounds less ``zero``.
    """

    of: Callable[[Columns], NDArray[Any]]
    bounds: Interval
    zero: float = 0.0

    def __call__(self, columns: Columns) -> Floats:
        """Return the steps, shape (m,)."""
        values, zero = numbers(once(columns, self.of)), self.zero
        # clipped and rounded inside the bounds: integers, so the sum over rows is exact
        shifted = values - zero if zero else values
        low, high = self.bounds.lower - zero, self.bounds.upper - zero
        steps = grid.interval_steps(shifted, low, high)
        if not low <= 0 <= high:  # else a missing value is 0 already
            steps[np.isnan(values)] = 0
        return steps


@frozen
class StepsAndPresence(RowFunction):
    """The steps of values, and 1 where there is a value: 0 and 0 where it is missing."""

    steps: Steps

    def __call__(self, columns: Columns) -> Floats:
        """Return an array of shape (m, 2)."""
        values = numbers(once(columns, self.steps.of))
        return np.stack([once(columns, self.steps), ~np.isnan(values)], axis=1)


@frozen
class BallSteps(RowFunction):
    """Vectors clipped to a ball, as integer numbers of steps."""

    of: Callable[[Columns], NDArray[Any]]
    radius: float

    def __call__(self, columns: Columns) -> Floats:
        """Return the steps, shape (m, d)."""
        # clipped to the ball and rounded inside it: integers, so the sum over rows is exact
        return grid.ball_steps(once(columns, self.of), self.radius)[0]


def enforced_ball(ball: Ball, radius: float, width: int) -> Ball:
    """Return the ball of radius ``radius``, to which the query itself clips its vectors.

    Raises
    ------
    DeclarationError
        If the width is not the input's, or the radius is outside of [1e-140, 1e140) and not 0.
    """
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
class BallQuery(SumOverRows):
    """Base of the sums over vectors that each are clipped to an l2 norm of at most ``radius``.

    Parameters
    ----------
    radius
        R, in the vectors' units.
    width
        d, the number of coordinates.
    """

    input_type: ClassVar[type] = Ball

    radius: float
    width: int

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces."""
        return enforced_ball(inputs[0], self.radius, self.width)


@frozen
class VectorSum(BallQuery):
    """The sum of vectors over the rows, each clipped to an l2 norm of at most ``radius``.

    Vectors are rounded to multiples of a power of two inside the ball (`adaptive_dp.data.grid`), so
    that the sum is exact and each row's vector stays in the ball.

    *Sensitivity*, with up to r rows of a unit and ``R = radius``: where it appears or vanishes
    ``r R`` in l2 and the maximum norm, ``sqrt(d) r R`` in l1; where a rows are exchanged for b,
    ``(a + b) R`` and ``sqrt(d) (a + b) R``; less where the columns' bounds say so
    (`ball_sensitivity`).

    Parameters
    ----------
    radius
        R, in the vectors' units.
    width
        d, the number of coordinates.
    """

    kind: ClassVar[str] = "vector_sum"
    column_fields: ClassVar[tuple[str, ...]] = ()

    def label(self) -> str:
        """Return the query with its bound."""
        return f"sum in norm {self.radius:.4g}"

    def dimension(self, domain: Ball) -> int:
        """Return the number of coordinates."""
        return self.width

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return `ball_sensitivity`."""
        return ball_sensitivity(domain, change, norm)

    def step(self, domain: Ball) -> float:
        """Return the grid's step, about 2^-19 of the radius."""
        return grid.step(self.radius, grid.BALL_BITS)

    def contributions(self, value: Selected) -> Contributions:
        """Return the l2 norm of what each row adds to the sum, rounded up.

        A row has a norm of at most about 2^20 steps, so that the sum of its squares is exact.
        """
        radius = self.radius

        def block(columns: Columns) -> Floats:
            steps, unit = grid.ball(value.of(columns), radius)
            squares = (steps * steps).sum(axis=1)
            return np.where(squares == 0, 0.0, up(np.sqrt(squares)) * unit)

        return value.rows.units, value.rows.values(block)

    def block(self, value: Selected) -> Cells:
        """Return each row's vector, clipped and in steps."""
        return Cells(weights=BallSteps(value.of, self.radius), width=self.width)

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return the sum, shape (d,)."""
        unit = grid.step(self.radius, grid.BALL_BITS)
        return np.array([grid.total(v, unit) for v in total])


# -----------------------------------------------------------------------------
# Means.


@frozen
class Mean(SumOverRows):
    """The mean of a column; the middle of the bounds where there are no values.

    Without a public size, rows whose value is missing are left out. With one, the mean divides by
    it: then the column has no missing values.

    *Sensitivity with a public number of rows n* (a declared ``size`` of units that are rows): the
    mean is ``z + sum(x - z) / n`` with z the point of the bounds next to 0, so it moves by what a
    sum of values in ``[lo - z, hi - z]`` does (`interval_sensitivity`), over n.

    *Sensitivity with a private number of rows*: one unit of up to r rows can be most of a small
    data set. Where it appears or vanishes, the mean moves by at most ``r/(r+1) (hi - lo)`` (one
    other row), and from the middle by half of ``hi - lo``; where it is exchanged, by ``hi - lo``.
    A released sum over a released count (`ratio`) nearly always needs less noise.

    Parameters
    ----------
    bounds
        ``(lower, upper)`` in the column's units; values outside are clipped.
    size
        The public number of rows, or None.
    """

    kind: ClassVar[str] = "mean"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Values

    bounds: Interval = field(converter=interval)
    size: int | None = None

    def label(self) -> str:
        """Return the query with its bounds."""
        return f"mean in {self.bounds}"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse no bounds, and gaps where the number is public."""
        bounded(inputs[0])
        declared = inputs[0].size
        if self.size is not None and (self.size != declared or isinstance(self.size, bool)):
            raise DeclarationError(
                f"a mean divides by a public size, got {self.size!r}; the data set declares "
                f"{declared!r}"
            )
        if self.size is not None:
            refuse_missing("a mean over a public size", inputs[0], "by average()")
        return inputs[0]  # type: ignore[no-any-return]

    @property
    def zero(self) -> float:
        """z, the point of the bounds next to 0."""
        return min(max(0.0, self.bounds.lower), self.bounds.upper)

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (one number: any norm).

        What is summed is the distance from the bound next to 0, exactly. Each of two means is
        rounded by at most an ulp of the bounds (half for the quotient, half for adding that
        bound again), which can be more than one unit's share of narrow bounds far from 0.
        """
        bounds, rounding = self.bounds, 2 * math.ulp(self.bounds.largest)
        if self.size is not None:
            # mean = z + sum(x - z) / n: its movement is that of the shifted sum, over n
            shifted = Interval(bounds.lower - self.zero, bounds.upper - self.zero)
            return interval_sensitivity(shifted, change) / self.size + rounding
        width = bounds.upper - bounds.lower
        if change.replaced:
            return width  # both means are clamped to the bounds
        # r rows against one other row: r/(r+1) of the width, at least the half from the middle
        return width * change.rows / (change.rows + 1) + rounding

    def block(self, value: Selected) -> Cells:
        """Return each row's distance to z, in steps, and 1 for a value that is not missing."""
        # of the distances to z: narrow bounds far from 0 lose no precision
        steps = Steps(value.of, self.bounds, self.zero)
        return Cells(weights=StepsAndPresence(steps), width=2)

    def finish(self, total: NDArray[Any]) -> float:
        """Return the mean."""
        lower, upper, zero = self.bounds.lower, self.bounds.upper, self.zero
        largest = max(abs(lower - zero), abs(upper - zero))
        distances = grid.total(total[0], grid.step(largest, grid.BITS))
        if self.size is not None:
            return zero + distances / self.size
        if total[1] == 0:
            return lower + (upper - lower) / 2
        # clamped: the sensitivity of an exchange is the width of the bounds
        return min(upper, max(lower, zero + distances / float(total[1])))

    def sampled(self, domain: Values, values: Any, normals: Any) -> Floats:
        """Return `averages_of_population`, of a public number of rows."""
        if self.size is None:
            raise NoIntervalError(
                "the number of rows is private, and how a mean varies depends on it; use "
                ".average(mechanism), which releases a count"
            )
        count = np.full(np.shape(values), float(self.size))
        lower, upper = self.bounds.lower, self.bounds.upper
        return averages_of_population(values, [values, count], normals, lower=lower, upper=upper)


# -----------------------------------------------------------------------------
# Means as a released sum over a released count: two releases and post-processing.


@overload
def scale_noise(mechanism: Mechanism, factor: float) -> Mechanism: ...


@overload
def scale_noise(mechanism: Mechanism | None, factor: float) -> Mechanism | None: ...


def scale_noise(mechanism: Mechanism | None, factor: float) -> Mechanism | None:
    """Return the mechanism with all of its noise times a factor; None for the default one."""
    if mechanism is None:  # in proportion to each query already
        return None

    def times(value: Any) -> Any:
        if isinstance(value, Free):
            return value if value.weight is None else evolve(value, weight=value.weight * factor)
        return value * factor

    noise = [f.name for f in fields_of(type(mechanism)) if f.metadata.get("role") == "noise"]
    return evolved(mechanism, **{name: times(getattr(mechanism, name)) for name in noise})


def averages_of_population(
    values: Floats, inputs: Sequence[Floats], normals: Floats, *, lower: float, upper: float
) -> Floats:
    """Return plausible means of a population, given plausible means of a random sample's rows.

    A value in [lower, upper] of mean m has a variance of at most ``(upper - m) (m - lower)``
    (Bhatia and Davis 2000), and the mean of n rows the n-th part of it.

    Parameters
    ----------
    values
        Plausible means, any shape.
    inputs
        The sums and the counts of which they are ratios.
    normals
        Standard normal numbers of their shape.
    """
    variance = np.maximum((upper - values) * (values - lower), 0.0) / np.maximum(inputs[1], 1.0)
    return np.clip(values + np.sqrt(variance) * normals, lower, upper)


@varies(averages_of_population)
def ratio(total: float, count: float, *, lower: float, upper: float) -> float:
    """Return the mean of values in [lower, upper] from a sum and a count."""
    return min(upper, max(lower, total / max(count, 1.0)))


def far_bound(bounds: Interval) -> float:
    """Return the bound that is farther from 0."""
    return bounds.upper if abs(bounds.upper) >= abs(bounds.lower) else bounds.lower


def present_ratio(
    sums: Floats, count: float, *, lower: float, upper: float, missing: float
) -> float:
    """Return the mean of the values that are not missing, from the count of all rows.

    Parameters
    ----------
    sums
        Over the rows whose value is missing, each counted as ``missing``, and over the others.
    count
        Of all rows.
    lower, upper
        The bounds of the values.
    missing
        What a missing value counts as in the first sum; not 0.
    """
    return ratio(float(sums[1]), count - float(sums[0]) / missing, lower=lower, upper=upper)
