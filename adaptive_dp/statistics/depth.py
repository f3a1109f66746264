"""A private median of one to three columns: a point that lies deep among the rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.numerics import up
from adaptive_dp.data import Columns, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import RowSum, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, change_at, group, post, public
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.values import as_int, strings
from adaptive_dp.mechanisms.selection import Exponential
from adaptive_dp.queries.domains import Ball, Floats, Selected
from adaptive_dp.queries.sums import BallQuery, BallSteps
from adaptive_dp.queries.table import Table

DIRECTIONS = {1: 2, 2: 64, 3: 128}
"""How many directions there are, by the number of columns."""

MOST = 2**14
"""The most points of a grid."""

BITS = 12
"""Directions are integers of about 2^BITS."""

SEED = 20229
"""In three dimensions directions are drawn with this public seed."""


@frozen
class TukeyDepths(BallQuery):
    """Of each point of a grid, how many rows lie on the side of it on which fewest do.

    The depth of p is the least number of rows x with ``u'(x - p) >= 0`` among directions u: both of
    one column, 64 evenly spaced ones of two, 128 random ones (with a public seed) of three. With
    all directions it would be Tukey's; with these it is no smaller than that. The grid has G points
    along each axis, about a released middle: the second input is a mapping of ``middle`` and
    ``half``, half of the grid's width.

    *Sensitivity*, for any directions and grid, in the maximum norm. Where a unit of up to r rows
    appears, each number of rows on a side grows by 0 to r, and so does the least of them: the
    depths move by at most r, all to the same side, and the span is r. Where a rows are exchanged
    for b, each moves by -a to b: by ``max(a, b)`` at most, and two depths move ``a + b`` apart. In
    l1 it is m times as much for m points, in l2 sqrt(m) times (own proof).

    Rows and grid are integer steps, directions integers, so that sides are decided exactly.

    Parameters
    ----------
    radius, width
        As of `BallQuery`.
    points
        G.

    References
    ----------
    Tukey 1975; Cuesta-Albertos and Nieto-Reyes 2008 (finitely many directions).
    """

    kind: ClassVar[str] = "tukey_depths"
    column_fields: ClassVar[tuple[str, ...]] = ()
    max_released_inputs: ClassVar[int] = 1

    points: int

    def label(self) -> str:
        """Return the number of points."""
        return f"depths of {self.points**self.width} points"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces; refuse too many columns or points."""
        if len(inputs) != 2:
            raise DeclarationError("tukey_depths needs vectors and a released place of the grid")
        if self.width not in DIRECTIONS:
            raise DeclarationError(f"depths are of 1 to 3 columns, got {self.width}")
        if as_int(self.points) is None or not 2 <= self.points <= MOST ** (1 / self.width) + 1e-9:
            raise DeclarationError(
                f"a grid of {self.width} columns has 2 to {int(MOST ** (1 / self.width) + 1e-9)} "
                f"points along each, got {self.points!r}"
            )
        return super().domain(inputs)

    def dimension(self, domain: Ball) -> int:
        """Return the number of points."""
        return int(self.points**self.width)

    def step(self, domain: Ball) -> float:
        """Return 1: depths are numbers of rows."""
        return 1.0

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        count = self.points**self.width
        factors: dict[float, float] = {1: float(count), 2: math.sqrt(count)}
        return change.rows * factors.get(norm, 1.0)

    def span(self, domain: Ball, change: Change) -> float:
        """Return a + b: r where a unit appears or vanishes."""
        return float(change.both)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the numbers of rows between the points along each direction."""
        value: Selected = inputs[0]
        place: Mapping[str, Any] = inputs[1]
        unit = grid.step(self.radius, grid.BALL_BITS)
        given = np.asarray(grid_points(place, self.points, self.width), dtype=np.float64)
        inside = np.clip(np.nan_to_num(given), -self.radius, self.radius)
        # integers below 2^20 times integers of about 2^12: exact in floats
        along = np.rint(inside / unit) @ directions(self.width).T
        sides = np.sort(along, axis=0)
        return RowSum(value.rows, self._block(value, sides), self._finish(along, sides))

    def _block(self, value: Selected, sides: Floats) -> Callable[[Columns], Integers]:
        vectors, axes, size = BallSteps(value.of, self.radius), directions(self.width), len(sides)

        def counts(columns: Columns) -> Integers:
            along = once(columns, vectors) @ axes.T
            # a row is at or beyond so many of the points, along each direction
            beyond = [
                np.searchsorted(own, x, side="right")
                for own, x in zip(sides.T, along.T, strict=True)
            ]
            return np.concatenate([np.bincount(b, minlength=size + 1) for b in beyond])

        return counts

    def _finish(self, along: Floats, sides: Floats) -> Callable[[NDArray[Any]], Floats]:
        size = len(sides)

        def depths(total: NDArray[Any]) -> Floats:
            # numbers of rows, which 64 bits hold; clamped to 2^53, where floats are exact: monotone
            # and 1-Lipschitz
            by_direction = np.asarray(total, dtype=np.int64).reshape(-1, size + 1)
            beyond = np.cumsum(by_direction[:, ::-1], axis=1)[:, ::-1]
            least = np.full(size, float(grid.EXACT))
            for k, own in enumerate(np.minimum(beyond, grid.EXACT)):
                # rows at or beyond a point are beyond one point more than lie before it
                before = np.searchsorted(sides[:, k], along[:, k], side="left")
                least = np.minimum(least, own[before + 1].astype(np.float64))
            return least

        return depths

    def finish(self, total: NDArray[Any]) -> Floats:
        """Refuse: `row_sum` says what becomes of the total, which depends on the grid."""
        raise NotImplementedError("depths are computed by row_sum")


def directions(width: int) -> Floats:
    """Return directions as integers, shape (k, width)."""
    if width == 1:
        return np.array([[1.0], [-1.0]])
    count = DIRECTIONS[width]
    if width == 2:
        angles = 2 * np.pi * np.arange(count) / count
        return np.asarray(np.rint(2**BITS * np.stack([np.cos(angles), np.sin(angles)], axis=1)))
    drawn = np.random.default_rng(SEED).normal(size=(count // 2, width))
    drawn /= np.sqrt(np.square(drawn).sum(axis=1))[:, None]
    return np.asarray(np.rint(2**BITS * np.concatenate([drawn, -drawn])))


def grid_points(place: Mapping[str, Any], points: int, width: int) -> Floats:
    """Return the points of the grid, shape (points^width, width), the last axis fastest.

    >>> grid_points({"middle": [0.0], "half": 1.0}, 3, 1).tolist()
    [[-1.0], [0.0], [1.0]]
    """
    steps = np.linspace(-1.0, 1.0, points)
    axes = [np.asarray(place["middle"])[i] + float(place["half"]) * steps for i in range(width)]
    return np.array(list(itertools.product(*axes)))


def finer(place: Mapping[str, Any], index: int, *, points: int, width: int) -> dict[str, Any]:
    """Return the place of a grid of two steps on either side of a chosen point."""
    half = float(place["half"])
    middle = grid_points(place, points, width)[int(index)]
    narrow = half * min(1.0, 4 / (points - 1))
    # inside of the bounds
    return {"middle": np.clip(middle, narrow - 1, 1 - narrow), "half": narrow}


def chosen_point(
    place: Mapping[str, Any],
    index: int,
    *,
    names: list[str],
    bounds: list[list[float]],
    points: int,
) -> dict[str, float]:
    """Return a chosen point in data units, by column."""
    point = grid_points(place, points, len(names))[int(index)]
    low, high = np.array(bounds, dtype=np.float64).T
    values = low + (high / 2 - low / 2) * (1 + np.clip(point, -1.0, 1.0))
    return dict(zip(names, values.tolist(), strict=True))


@frozen
class TukeyMedian:
    """A point that lies deep among the rows of one to three columns: a private Tukey median.

    The exponential mechanism on the depths of a grid's points (`TukeyDepths`), exactly: pure
    epsilon, and no tail of the rows moves it far. It is done twice, half of epsilon each, on a grid
    over the bounds, and on a finer one about the first point. Of m points with b the span over half
    of epsilon, the depth of the chosen one is within ``b log(m / beta)`` of the largest, but for a
    probability of beta (McSherry and Talwar 2007).

    Parameters
    ----------
    columns
        One to three, with bounds. Rows in which one is missing are left out.
    points
        The number of points of the grid along each column; by default 257, 33 or 17.
    free
        Where no budget is given: the name of the free parameter.

    Returns
    -------
    dict
        The point by column, in data units.

    References
    ----------
    Tukey 1975; McSherry and Talwar 2007. For its use as a mean see Brown, Gaboardi, Smith, Ullman
    and Zakynthinou 2021; here it is the depth itself that is maximized, over a public grid.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "visits": (0, 50)})
    >>> median = people.solve(dp.statistics.TukeyMedian(["age", "visits"]), epsilon=1.0, delta=0)
    >>> plan = dp.Pipeline(median=median)
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> rng = np.random.default_rng(1)
    >>> data = {"age": rng.normal(40, 10, 2_000), "visits": rng.normal(12, 3, 2_000)}
    >>> found = plan.simulate(seed=1, people=data)["median"]
    >>> abs(found["age"] - 40) < 2, abs(found["visits"] - 12) < 1
    (True, True)
    """

    columns: tuple[str, ...] = field(converter=strings)
    points: int | None = None
    free: str = field(default="b", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if not 1 <= len(self.columns) <= 3 or len(set(self.columns)) != len(self.columns):
            raise DeclarationError(
                f"TukeyMedian is of one to three different columns, got {list(self.columns)!r}"
            )

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[dict[str, float]]:
        """Return the released point; delta is not used."""
        if epsilon is not None and not 1e-9 <= epsilon <= 1e9:
            raise DeclarationError(
                "TukeyMedian needs an epsilon in [1e-9, 1e9], or None to leave its noise free, got "
                f"{epsilon!r}"
            )
        vectors = table.vectors(list(self.columns), scale=True)
        ball, width = vectors.domain, len(self.columns)
        points = {1: 257, 2: 33, 3: 17}[width] if self.points is None else self.points
        operation = TukeyDepths(ball.radius, width, points)
        span = operation.span(ball, change_at(table))
        # half of epsilon for each of two choices, rounded up past the accountants' own rounding
        scale: Any = Free(self.free, weight=span) if epsilon is None else up(2 * span / epsilon, 64)
        place: Released[Any] = public({"middle": [0.0] * width, "half": 1.0})
        for name in ("coarse", "fine"):
            depths: PrivateQuery[Any] = PrivateQuery(operation, (vectors, place))
            index = depths.release(Exponential(scale=scale), name=name)
            if name == "coarse":
                place = post(finer, place, index, points=points, width=width)
        bounds = [table.domain.interval(name) for name in self.columns]
        point = post(
            chosen_point,
            place,
            index,
            names=list(self.columns),
            bounds=[[each.lower, each.upper] for each in bounds],
            points=points,
        )
        return group("TukeyMedian", point, table)
