"""A vector for each row, of bounded Euclidean norm.

What a norm clip enforces is computed where vectors are summed: see `adaptive_dp.queries.sums`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from adaptive_dp.data import Columns, grid
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.values import strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import (
    Ball,
    Box,
    Categories,
    Column,
    Floats,
    Interval,
    Selected,
    Table,
    clipped,
    finite_float,
    interval,
    intervals,
    numbers,
)
from adaptive_dp.queries.transforms import category_index


@frozen
class VectorsOf(Operation):
    """Several bounded columns as one vector a row; with ``scale`` each mapped into [-1, 1].

    Parameters
    ----------
    names
        Columns with bounds.
    scale
        Map ``[lo, hi]`` onto ``[-1, 1]`` by the declared (public) bounds.
    intercept
        Put a 1 in front.
    zero
        With ``scale``: bounds of which one is 0 keep it, as those of examples do (``[0, hi]`` is
        mapped onto [0, 1]), so that what is mostly 0 is mostly short.
    bounds
        The columns' bounds, as declared; filled in when the plan is built.
    """

    kind: ClassVar[str] = "vectors"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    names: tuple[str, ...] = field(converter=strings)
    scale: bool = False
    intercept: bool = False
    bounds: tuple[Interval, ...] = field(default=(), converter=intervals)
    zero: bool = False

    def label(self) -> str:
        """Return the columns."""
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"({shown})"

    def detail(self) -> str:
        """Return whether they are scaled."""
        parts = ["scaled to [-1, 1]"] if self.scale else []
        parts += ["0 kept"] if self.zero else []
        return ", ".join(parts + (["with intercept"] if self.intercept else []))

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball around the box of the columns' bounds."""
        table: Table = inputs[0]
        if not (len(self.names) > 0):
            raise DeclarationError("a vector needs at least one column")
        if len(set(self.names)) != len(self.names):
            raise DeclarationError(f"columns must differ, got {self.names}")
        bounds = tuple(table.interval(name) for name in self.names)
        # a plan document carries the bounds: they must not be wider than the table's
        if self.bounds != bounds:
            raise DeclarationError(
                f"the bounds of {self.names} must be those that {table.name!r} declares"
            )
        names = (("intercept",) if self.intercept else ()) + self.names
        return Ball(names, self._longest(), table, self._sides())

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the rows' vectors."""
        scales = stack_scales(
            [column_scale(b, scaled=self.scale, zero=self.zero) for b in self.bounds]
        )

        def times(columns: Columns, factor: float) -> Floats:
            values = [numbers(columns[name]) for name in self.names]
            stacked = np.empty((box.width, len(values[0])))
            # coordinate 0 is the intercept, 1 times the factor; none where the slice is empty
            stacked[: int(self.intercept)] = factor
            write_scaled(values, scales, stacked[int(self.intercept) :], factor)
            return stacked

        def of(columns: Columns) -> Floats:
            return times(columns, 1.0).T

        box = Box(len(self.names) + self.intercept, self._longest(), times)
        return Selected(inputs[0], of, box=box)

    def _sides(self) -> tuple[Interval, ...]:
        """Return what each coordinate lies in: 0 too, so that a shortened vector stays inside."""
        ends = [(1.0, 1.0)] * self.intercept
        for low, high, _, half in (
            column_scale(b, scaled=self.scale, zero=self.zero) for b in self.bounds
        ):
            # a quotient of at most 1 is rounded to at most 1; without a scale half is 1
            ends.append((low / half, high / half))
        return tuple(Interval(min(low, 0.0), max(high, 0.0)) for low, high in ends)

    def _longest(self) -> float:
        """Return an upper bound of the norm of the farthest corner of the columns' bounds."""
        largest = [1.0 if self.scale else b.largest for b in self.bounds] + [1.0] * self.intercept
        # |v| is largest at a corner; 1e-12 is far above the rounding of the sum and the root
        return math.sqrt(math.fsum(v * v for v in largest)) * (1 + 1e-12)


@frozen
class EncodedVectors(Operation):
    """Columns of numbers and of categories as one vector a row, with a 1 in front.

    Numbers are mapped from their bounds onto [-1, 1]. A column of k categories becomes k - 1
    coordinates of 0 and 1, for all categories but the first, which the 1 in front stands for: so
    that coefficients are determined. A value outside of the declared categories is counted as the
    first.

    *Length.* Each column adds at most 1 to the squared norm: a number, or one 1.

    Parameters
    ----------
    names
        Columns with bounds or categories.
    columns
        Their declarations, filled in when the plan is built.
    """

    kind: ClassVar[str] = "encoded_vectors"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    names: tuple[str, ...] = field(converter=strings)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return the columns."""
        shown = ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")
        return f"({shown}) with indicators of categories"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball around the vectors that the declarations allow."""
        table: Table = inputs[0]
        if not (len(self.names) > 0 and len(set(self.names)) == len(self.names)):
            raise DeclarationError(
                f"a vector needs a column at least, and different ones, got {list(self.names)}"
            )
        # a plan document repeats the declarations: coordinates are computed from them
        declared = {name: table.find(name) for name in self.names}
        if None in declared.values() or dict(self.columns) != declared:
            raise DeclarationError(
                f"the columns of encoded vectors need bounds or categories, as {table.name!r} "
                f"declares them; got {list(self.names)}"
            )
        names = [name for name, _ in encoded(self.columns)]
        # 1e-12 is far above the rounding of the root
        longest = math.sqrt(1 + len(self.names)) * (1 + 1e-12)
        return Ball(("intercept", *names), longest, table)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the rows' vectors; the query that sums them bounds them exactly."""

        def of(columns: Columns) -> Floats:
            parts = [np.ones(len(columns[self.names[0]]))]
            for name in self.names:
                declared = self.columns[name]
                if isinstance(declared, Interval):
                    parts.append(onto_unit(columns[name], declared))
                elif isinstance(declared, Categories):
                    place = category_index(columns[name], declared.values)
                    parts += [(place == i) * 1.0 for i in range(1, len(declared.values))]
            return np.stack(parts, axis=1)

        return Selected(inputs[0], of)


def encoded(columns: Mapping[str, Column]) -> list[tuple[str, list[float]]]:
    """Return the coordinates of `EncodedVectors`: names, and what is mapped onto [-1, 1] of each.

    An indicator is 0 or 1 as it stands: its bounds are those of the map that changes nothing.
    """
    coordinates: list[tuple[str, list[float]]] = []
    for name, declared in columns.items():
        if isinstance(declared, Categories):
            coordinates += [(f"{name}={value}", [-1.0, 1.0]) for value in declared.values[1:]]
        elif isinstance(declared, Interval):
            coordinates.append((name, [declared.lower, declared.upper]))
    return coordinates


def _norm(value: Any) -> float:
    return finite_float("clip's norm", value)


@frozen
class NormClip(Operation):
    """Vectors scaled down to norm ``radius`` where they are longer.

    Its ``run`` scales in floating point; the query that sums the vectors clips them again, exactly
    (`adaptive_dp.data.grid.ball`), so that no rounding here can matter for privacy.
    """

    kind: ClassVar[str] = "norm_clip"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Ball
    is_rowwise: ClassVar[bool] = True

    radius: float = field(converter=_norm)

    def __attrs_post_init__(self) -> None:
        if not (self.radius > 0):
            raise DeclarationError(f"clip's norm must be positive, got {self.radius!r}")

    def label(self) -> str:
        """Return the bound."""
        return f"clip to norm {self.radius:g}"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball of the smaller of the two radii."""
        ball: Ball = inputs[0]
        # clipping to more than the radius changes nothing
        return evolve(ball, radius=min(self.radius, ball.radius))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the clipped vectors; the query that sums them bounds them exactly."""
        selected, radius = inputs[0], self.radius
        # no vector of the box is longer: keep it, so that sums need no norms
        if selected.box is not None and selected.box.longest <= radius:
            return selected  # type: ignore[no-any-return]

        def of(columns: Columns) -> Floats:
            values = selected.of(columns)
            with np.errstate(over="ignore"):
                # an overflow to inf gives the factor 0; sums clip exactly in any case
                norms = np.sqrt(grid.squares(values))[:, None]
            # max(norm, radius) as the divisor: no division by 0, and short rows get the factor 1
            return np.asarray(values * np.minimum(1.0, radius / np.maximum(norms, radius)))

        return Selected(selected.rows, of)


@frozen
class Times(Operation):
    """Each row's vector times a bounded column of the same rows.

    Parameters
    ----------
    name, bounds
        The column and its declared bounds.
    scale
        Map the factor from its bounds onto [-1, 1] first.
    """

    kind: ClassVar[str] = "times"
    column_fields: ClassVar[tuple[str, ...]] = ("name",)
    input_type: ClassVar[type] = Ball
    is_rowwise: ClassVar[bool] = True

    name: str
    bounds: Interval = field(converter=interval)
    scale: bool = False

    def label(self) -> str:
        """Return the factor."""
        return f"times {self.name}"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball, its radius multiplied by the largest factor."""
        ball: Ball = inputs[0]
        ball.table.check_bounds(self.name, self.bounds)
        factor = 1.0 if self.scale else self.bounds.largest
        # |f v| <= |f| |v|, rounded up; the coordinates' sides are not those of the products
        return evolve(ball, radius=ball.radius * factor * (1 + 1e-12), sides=())

    def run(self, inputs: Sequence[Any], stream: Stream) -> Selected:
        """Return the products."""
        selected = inputs[0]

        def of(columns: Columns) -> Floats:
            factor = clipped(columns[self.name], self.bounds)
            if self.scale:
                factor = scale_to_unit(factor, self.bounds)
            return np.asarray(selected.of(columns) * factor[:, None])

        return Selected(selected.rows, of)


def column_scale(
    bounds: Interval, *, scaled: bool, zero: bool = False
) -> tuple[float, float, float, float]:
    """Return (low, high, middle, half) of the map ``clip(v - middle, low, high) / half``."""
    if not scaled:
        return bounds.lower, bounds.upper, 0.0, 1.0
    # 0 is an end, and not both: divide by the other end, without a shift
    if zero and bounds.largest > 0 and 0 in (bounds.lower, bounds.upper):
        return bounds.lower, bounds.upper, 0.0, bounds.largest
    half = bounds.upper / 2 - bounds.lower / 2
    # low and high are in units after the shift; a column of one point becomes 0
    return (-half, half, bounds.lower + half, half) if half > 0 else (0.0, 0.0, 0.0, 1.0)


def write_scaled(
    columns: Sequence[Floats], scales: Scales, out: Floats, factor: float = 1.0
) -> None:
    """Write columns into ``out``, clipped to their bounds and scaled, times a factor.

    The same as `clipped` and `scale_to_unit` up to the last bits, without temporary arrays: this is
    run on every value that is learned from. NaN counts as 0, or as the bound next to it.

    Parameters
    ----------
    columns
        p arrays of m numbers, which are left as they are.
    scales
        The columns' scales, by `stack_scales`.
    out
        Shape (p, m), a column in each row, one after the other in memory.
    """
    with np.errstate(over="ignore"):
        if columns:  # at once: a call for each of many columns takes longer than their numbers
            np.concatenate(columns, out=out.reshape(-1))
        if scales.shifts is not None:
            out -= scales.shifts
        np.clip(out, scales.low, scales.high, out=out)
        if out.size and math.isnan(float(out.max())):  # the maximum is NaN where any value is
            np.copyto(out, scales.missing, where=np.isnan(out))
        # one multiplication where factor / half cannot overflow, else two roundings
        if scales.is_wide and factor != 1:
            out *= factor / scales.half
        elif factor != 1 or scales.divides:
            out /= scales.half
            out *= factor


@frozen(eq=False)
class Scales:
    """How columns are clipped and scaled.

    Parameters
    ----------
    low, high
        The bounds, after the shift; one number for all columns, or shape (p, 1), as the next two.
    missing
        What NaN becomes there.
    half
        By which values are divided.
    shifts
        By which values are lowered first, shape (p, 1); None where all are 0.
    is_wide
        Whether a factor over `half` cannot overflow.
    divides
        Whether any of `half` is not 1.
    """

    low: Any
    high: Any
    missing: Any
    half: Any
    shifts: Floats | None
    is_wide: bool
    divides: bool


def stack_scales(scales: Sequence[tuple[float, float, float, float]]) -> Scales:
    """Return columns' scales as arrays, or as one number where all are equal (twice as fast)."""
    low, high, middle, half = (
        # `each` is one of the four numbers, over all columns
        np.float64(each[0]) if len(set(each)) == 1 else np.array(each)[:, None]
        for each in np.array(scales).reshape(-1, 4).T.tolist()
    )
    return Scales(
        low,
        high,
        np.clip(-middle, low, high),  # 0 in a column's units is -middle here
        half,
        np.array([[shift] for _, _, shift, _ in scales])
        if any(s for _, _, s, _ in scales)
        else None,
        bool(np.min(half) > 1e-100),
        bool(np.any(half != 1)),
    )


@lru_cache(maxsize=256)
def unit_scale(bounds: Interval) -> Scales:
    """Return the scale of a column that is mapped from its bounds onto [-1, 1]."""
    return stack_scales([column_scale(bounds, scaled=True)])


def onto_unit(values: Any, bounds: Interval, factor: float = 1.0) -> Floats:
    """Return a column mapped from its bounds onto [-1, 1], times a factor; shape (m,)."""
    out: Floats = np.empty((1, len(values)))
    write_scaled([numbers(values)], unit_scale(bounds), out, factor)
    return out.ravel()


def scale_to_unit(values: Floats, bounds: Interval) -> Floats:
    """Return values in [lo, hi] mapped onto [-1, 1] (a constant column onto 0)."""
    # bounds are below 1e290, so that the difference is finite
    half = (bounds.upper - bounds.lower) / 2
    middle = bounds.lower + half
    return np.clip((values - middle) / half, -1.0, 1.0) if half > 0 else np.zeros_like(values)
