"""Private middles of columns: a point deep among the rows, and a mean in their own ellipsoid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.numerics import up
from adaptive_dp.data import Columns, Rows, grid
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import RowSum, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    PrivateQuery,
    Released,
    change_at,
    group,
    parameter,
    post,
    public,
)
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.values import as_int, strings
from adaptive_dp.mechanisms.discrete import DiscreteLaplace
from adaptive_dp.mechanisms.propose_test_release import distance_threshold, is_far
from adaptive_dp.mechanisms.selection import Exponential
from adaptive_dp.mechanisms.smooth_sensitivity import (
    MIN_EPSILON,
    _ApproximateInstanceMechanism,
    noise_epsilon,
    public_parameter,
)
from adaptive_dp.noise.continuous import nearest_sum, normal
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Ball, Floats, Selected
from adaptive_dp.queries.sums import BallQuery, BallSteps
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.statistics.batches import Number

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


# -----------------------------------------------------------------------------
# A mean whose noise has the shape of the rows.
#
# A row x is seen as z = (1, x), and a set G of rows by ``Z_G``, the sum of ``z z'``. G is *good* at
# a level v, an integer, if it is empty, or ``Z_G`` is positive definite and ``z z' <= Z_G / v`` for
# each of its rows: none has a leverage above 1 / v. A union of good sets is good, since ``Z``
# grows; so there is a largest one, ``G_v(D)``. Removing all rows of a larger leverage, again and
# again, leaves it: in a good set theirs is larger still. ``G_v`` shrinks as v grows. No invertible
# affine map of the rows changes any of it.
#
# **Let D' be D and one row y more.** Then ``G_v(D) <= G_v(D')``, as sets; and ``G_v(D') - {y} <=
# G_{v-1}(D)``, v at least 2, since without y a leverage h becomes at most ``h / (1 - 1/v) <= 1 / (v
# - 1)`` (Sherman and Morrison, Cauchy and Schwarz), and what is left is still positive definite.
#
# *The test.* Let r_v(D) be the number of rows outside of G_v(D), and F(D) the least ``j +
# r_{s-j}(D)`` over j from 0 to T, or ``p - |D|`` if that is more, p a released number of rows.
# Since ``r_v(D') <= r_v(D) + 1`` and ``r_{v-1}(D) <= r_v(D')``, the lesser of F and T moves by at
# most 1 between D and D', and so does ``d = max(0, T - F)``, the distance that is tested. If F(D) >
# T then F(D') >= T, and d is 0 at both. (Levels whose set is
# empty are left out of F: if G_v(D) has rows so has G_v(D'), and if that has, so has G_{v-1}(D).)
#
# *What is released* where the test passes: a normal vector about a weighted mean m, with c^2 times
# the weighted scatter S about it as its covariance. The weight of a row is the share of the levels
# v in (o - K, o] with it in G_v(D), ``o = s - T``. (NaN, where r_o(D) > T + 1.)
#
# **Where F(D) <= T**, r_o(D) <= T, for the j of the least is at most T; and r_o(D') <= T + 1.
# Weights grow from D to D'; that of y by at most 1, and those of all others together by ``(1/K)
# sum_v |G_v(D') - {y}| - |G_v(D)|``, at most ``(r_o(D) - r_{o-K}(D)) / K <= T / K`` by telescoping.
# Let q be ``1 + T / K``. Rows whose weight grows are in some G_v(D'), v > o - K, which has at most
# T + 1 rows more than G_o(D'); so with regard to Z', the weighted sum for D', which is no less than
# that of G_o(D'), their leverage is at most ``1 / (v - T - 1) <= h``, h being ``1 / (o - K - T)``.
# In units in which S' is 1 and m' is 0 these rows have norms of at most sqrt(h). The sum N of D's
# weights is at least ``|D| - T``, so at least ``n = p - 2T``; and of ``N m = -sum u x``, u being
# the growth of weights, and ``S' - S = sum u x x' + N m m'`` follow
#
# ``|m| <= q sqrt(h) / N``,  ``S <= 1``,  ``trace(1 - S) <= q h (1 + q / N) <= a``.
#
# *Two normal laws* with such means and covariances have, with ``c = q sqrt(h) / (n t)``, a Renyi
# divergence of order alpha < 1 / a of at most ``g(a) + alpha t^2 / (2 (1 - alpha a))``: that of one
# direction, g, is convex and 0 at 0, so that its sum over eigenvalues is at most its value at their
# sum (`tilted`). By it t is the largest for (e_2, delta) (`largest_shift`).
#
# *Privacy.* Where F(D) <= T the test is within e_1 and what is released within (e_2, delta), in
# both directions; else both distances are 0, and each passes with the same probability, at most
# delta. Together ``(e_1 + e_2, delta)``. (own proof; nested good sets and averaged weights are
# those of Brown, Hopkins and Smith 2023, whose published constants begin at ``20 k lambda`` rows,
# 66,000 of two columns.)
#
# Leverages, distances and weights are computed in integers, exactly.

STEPS = 40
"""Rows and means are multiples of 2^-40, between -2^40 and 2^40."""

SHARES = (0.2, 0.3, 0.4, 0.5, 0.6)
"""The shares of epsilon that the test may have: one is chosen by the released number of rows."""

SPARE = 8.0
"""T is this over e_1 above what passes by noise alone: a few rows may be far off."""

COUNT = 0.05
"""The share of epsilon of the number of rows."""


@frozen(eq=False, repr=False)
class LatticeRows:
    """Rows as integers, in steps of 2^-40: private.

    Parameters
    ----------
    steps
        Shape (n, d), of Python's integers.
    """

    steps: NDArray[Any]

    def __repr__(self) -> str:
        return "<private rows>"

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of columns."""
        return (self.steps.shape[1],)


@frozen
class RowsOnLattice(Query):
    """The rows of some columns, rounded to multiples of 2^-40: for mechanisms that test them.

    A step between data sets is a row that appears or vanishes; an exchanged one is two.

    Parameters
    ----------
    names
        Columns of numbers.
    declared
        Their declarations: bounds, to which values are clipped, or None.
    """

    kind: ClassVar[str] = "rows_on_lattice"
    column_fields: ClassVar[tuple[str, ...]] = ("names",)
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = domains.Table
    output_type: ClassVar[type] = LatticeRows

    names: tuple[str, ...] = field(converter=strings)
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)

    def label(self) -> str:
        """Return the columns."""
        return "rows of " + ", ".join(self.names[:3]) + (", ..." if len(self.names) > 3 else "")

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns."""
        table: domains.Table = inputs[0]
        domains.refuse_zero_out("mean in the rows' ellipsoid", inputs[0])
        if not self.names or len(set(self.names)) != len(self.names):
            raise DeclarationError(f"a mean is of different columns, got {list(self.names)!r}")
        for name in self.names:
            found = table.find(name)
            if not (found is None or isinstance(found, domains.Interval)) or name == table.unit:
                raise DeclarationError(
                    f"means are of columns of numbers; {name!r} is declared as {found}"
                )
            domains.check_declared(table, name, self.declared)
        return table

    def dimension(self, domain: domains.Table) -> int:
        """Return the number of columns."""
        return len(self.names)

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return how many rows appear or vanish: a + b."""
        return float(change.both)

    def run(self, inputs: Sequence[Any], stream: Stream) -> LatticeRows:
        """Return the rows."""
        rows: Rows = inputs[0]
        columns = []
        for name in self.names:
            values = rows.values(Number(name, self.declared[name]))  # type: ignore[arg-type]
            clipped = np.clip(np.nan_to_num(values), -(2.0**STEPS), 2.0**STEPS)
            # a product with a power of two is exact
            columns.append([int(x) for x in np.rint(clipped * 2.0**STEPS).tolist()])
        steps = np.empty((len(columns[0]), len(columns)), dtype=object)
        for i, column in enumerate(columns):
            steps[:, i] = column
        return LatticeRows(steps)


@frozen
class Levels:
    """The public numbers of the test and of the noise: see the comment of this section.

    Parameters
    ----------
    strict
        s, the level of which no row is far off.
    room
        T, how many rows or levels may be missing.
    levels
        K, over how many levels weights are averaged.
    first
        e_1.
    factor
        c: the covariance of the noise is c^2 times the weighted scatter.
    """

    strict: int
    room: int
    levels: int
    first: float
    factor: float

    @property
    def outer(self) -> int:
        """O."""
        return self.strict - self.room


def tilted(a: float, t: float, order: float) -> float:
    """Return a bound of the Renyi divergence of two normal laws, in either direction.

    One has covariance 1 and mean 0, the other a covariance of at most 1 that lacks at most ``a`` of
    its trace, and a mean of norm t at most. For an eigenvalue 1 - x of the second, alpha the order,
    the divergence from it and that to it are (Gil, Alajaji and Linder 2013)

    ``-(log(1 - x) + log(1 + (alpha - 1) x) / (alpha - 1)) / 2 + alpha t^2 / 2`` at most, and

    ``(alpha log(1 - x) - log(1 - alpha x)) / (2 (alpha - 1)) + alpha t^2 / (2 (1 - alpha x))``.

    What does not have t is convex in x, with a minimum of 0 at 0, so superadditive: of several
    eigenvalues at most that of their sum.

    >>> round(tilted(0.0, 0.1, 10.0), 6)
    0.05
    """
    if a * order >= 1:
        return math.inf
    first = -(math.log1p(-a) + math.log1p((order - 1) * a) / (order - 1)) / 2
    second = (order * math.log1p(-a) - math.log1p(-order * a)) / (2 * (order - 1))
    return max(first, second) + order * t * t / (2 * (1 - order * a))


def largest_shift(a: float, epsilon: float, delta: float) -> float:
    """Return a t at which `tilted` proves (epsilon, delta); 0 where there is none.

    Of a divergence D at order alpha, ``delta = e^{(alpha - 1)(D - epsilon + log(1 - 1/alpha))} /
    alpha`` (Balle, Barthe, Gaboardi, Hsu and Sato 2020, Theorem 21), solved for t^2.

    >>> 0.15 < largest_shift(0.0, 1.0, 1e-6) < largest_shift(0.0, 1.0, 1e-5)
    True
    """
    best = 0.0
    for order in np.geomspace(1.01, 1e4, 400).tolist():
        if order * a >= 0.999:
            break
        allowed = epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)
        # 1e-9 less, for the roundings of these floats and of the roots of the noise's covariance
        left = (allowed * (1 - 1e-9) - 1e-12 if allowed > 0 else 0.0) - tilted(a, 0.0, order)
        if left > 0:
            best = max(best, math.sqrt(2 * (1 - order * a) * left / order) * (1 - 1e-9))
    return best


def chosen_levels(
    rows: float, reach: float, width: int, epsilon: float, delta: float
) -> Levels | None:
    """Return the levels of the least noise; None where no noise keeps the promise.

    Of public and released numbers alone. Of normal rows hardly one is farther from the mean than
    the root of ``d + 2 sqrt(d log n) + 2 log n`` deviations (Laurent and Massart 2000, Lemma 1);
    ``reach`` times that is not far off.
    """
    if not rows >= 1:
        return None
    tail = math.log(rows)
    farthest = reach * (width + 2 * math.sqrt(width * tail) + 2 * tail)
    # n times a leverage is 1 and the squared distance
    strict = min(math.floor(rows / (1 + farthest)), 10**9)
    best: Levels | None = None
    for share in SHARES:
        first = share * epsilon
        # e_1 + e_2 is at most epsilon, rounding included
        second = (epsilon - first) * (1 - 1e-12)
        room = distance_threshold(first, delta) + math.ceil(SPARE / first)
        spare = strict - 2 * room - 1  # what is left for K, and for 1 / h
        for part in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7):
            levels = math.floor(part * spare)
            if levels < 1:
                continue
            q, h, least = 1 + room / levels, 1 / (strict - 2 * room - levels), rows - 2 * room
            if least < 1:
                continue
            a = q * h * (1 + q / least) * (1 + 1e-9)
            t = largest_shift(a, second, delta) if a < 0.5 else 0.0
            factor = q * math.sqrt(h) / (least * t) * (1 + 1e-9) if t > 0 else math.inf
            if factor < (best.factor if best else math.inf):
                best = Levels(strict, room, levels, first, factor)
    return best


def nested_sets(
    rows: NDArray[Any], low: int, high: int, most: int
) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the largest good sets of levels from ``low`` to ``high``, each with its last level.

    Each set is that of the levels after the last of the one before. They end before a level at
    which more than ``most`` rows are outside.
    """
    ones = np.array([[1]] * len(rows), dtype=object).reshape(-1, 1)
    z = np.concatenate([ones, rows], axis=1)
    inside, level = np.arange(len(z)), low
    found: list[tuple[int, NDArray[np.intp]]] = []
    while True:
        while len(inside):
            own = z[inside]
            inverse, det = adjugate(own.T @ own)
            # leverages are quotients of these and det
            scores = ((own @ inverse) * own).sum(axis=1)
            far = np.array([level * x > det for x in scores], dtype=bool) if det else None
            if far is None:
                inside = inside[:0]  # in a subspace, as all of its subsets are
            elif far.any():
                inside = inside[~far]
            else:
                break
        if not len(inside) or len(z) - len(inside) > most:
            return found
        last = int(det // max(scores))
        found.append((last, inside))
        if last >= high:
            return found
        level = last + 1


def adjugate(matrix: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """Return the inverse of a matrix of integers times its determinant, and that; 0 if singular.

    >>> adjugate(np.array([[2, 1], [1, 3]], dtype=object))[1]
    5
    """
    size = len(matrix)
    rows = [
        [Fraction(int(x)) for x in row] + [Fraction(int(i == j)) for j in range(size)]
        for i, row in enumerate(matrix)
    ]
    det = Fraction(1)
    for i in range(size):
        pivot = next((j for j in range(i, size) if rows[j][i]), None)
        if pivot is None:
            return np.zeros((size, size), dtype=object), 0
        if pivot != i:
            rows[i], rows[pivot], det = rows[pivot], rows[i], -det
        det *= rows[i][i]
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(size):
            if j != i and rows[j][i]:
                factor = rows[j][i]
                rows[j] = [x - factor * y for x, y in zip(rows[j], rows[i], strict=True)]
    inverse = np.array([[int(x * det) for x in row[size:]] for row in rows], dtype=object)
    return inverse, int(det)


def simpler(rows: NDArray[Any]) -> NDArray[Any]:
    """Return rows after an affine map to smaller integers: leverages stay as they are."""
    result = rows.copy()
    for i in range(rows.shape[1] if len(rows) else 0):
        shifted = rows[:, i] - rows[0, i]
        result[:, i] = shifted // max(math.gcd(*shifted.tolist()), 1)
    return result


def outside_distance(
    sets: list[tuple[int, NDArray[np.intp]]], rows: int, least: float, levels: Levels
) -> int:
    """Return d: see the comment of this section."""
    best = levels.room
    for j in range(levels.room + 1):
        level = levels.strict - j
        inside = next((own for last, own in sets if last >= level), None)
        if inside is not None:
            best = min(best, j + rows - len(inside))
    return max(0, levels.room - max(best, math.ceil(least) - rows))


class EllipsoidMean(_ApproximateInstanceMechanism):
    """Release a mean with noise in proportion to the rows' own covariance, if few rows are far off.

    The second input is a released number of rows, below theirs; a wrong one costs accuracy, never
    privacy. The theorem is in the comment of the module's last section.

    Privacy: (epsilon, delta) for one row that appears or vanishes.

    Parameters
    ----------
    epsilon
        In nats, for one row.
    delta
        For one row, from 1e-60 to below 1.
    reach
        How much farther than normal ones rows may be, in squares: see `chosen_levels`.

    References
    ----------
    Brown, Hopkins and Smith 2023; Duchi, Haque and Kuditipudi 2023; the bound is proven in this
    module.

    Examples
    --------
    >>> EllipsoidMean(epsilon=1.0, delta=1e-6, reach=1.0).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    input_type: ClassVar[type] = LatticeRows
    released_inputs: ClassVar[int] = 1
    no_interval: ClassVar[str] = "its noise has the shape of the rows, which stays private"
    theorem: ClassVar[str] = (
        "propose-test-release of a mean in the rows' covariance: after Brown, Hopkins & Smith "
        "2023; proven in adaptive_dp.statistics.depth"
    )
    sampler: ClassVar[str] = (
        "two-sided geometric on integers; Gaussian, exact, rounded to multiples of 2^-40"
    )

    reach: float = public_parameter("reach")

    def release(self, value: LatticeRows, stream: Stream, rows: Any) -> NDArray[np.float64]:
        """Return the mean, or NaN for all of it."""
        epsilon, width = noise_epsilon(self.epsilon), value.shape[0]
        least = float(np.nan_to_num(np.asarray(rows, dtype=np.float64)))
        failed = np.full(width, math.nan)
        levels = chosen_levels(least, self.reach, width, epsilon, self.delta)
        if levels is None:  # public: the released number of rows is too small
            return failed
        low = levels.outer - levels.levels + 1
        sets = nested_sets(simpler(value.steps), low, levels.strict, levels.room + 1)
        distance = outside_distance(sets, len(value.steps), least, levels)
        if not is_far(distance, levels.first, self.delta, stream):
            return failed
        if not sets or sets[-1][0] < levels.outer:
            return failed  # more rows are outside than where the distance is above 0 at a neighbour
        center, factors = weighted_ellipsoid(value.steps, sets, levels)
        return with_noise(center, factors, stream)


def with_noise(
    center: list[Fraction], factors: list[list[Fraction]], stream: Stream
) -> NDArray[np.float64]:
    """Return a centre and a matrix times a standard normal vector, in multiples of 2^-40."""
    noise = [normal(stream) for _ in center]
    # the exact sum, rounded once: a function of the normal vector of the theorem
    steps = [
        nearest_sum([m], [(f, z) for f, z in zip(row, noise, strict=True) if f], 1.0)
        for m, row in zip(center, factors, strict=True)
    ]
    return np.array([each / 2**STEPS for each in steps])


def weighted_ellipsoid(
    rows: NDArray[Any], sets: list[tuple[int, NDArray[np.intp]]], levels: Levels
) -> tuple[list[Fraction], list[list[Fraction]]]:
    """Return the weighted mean, and a matrix L with ``L L' = c^2 S``, as fractions.

    But for relative errors of 2^-60 in the square roots of the diagonal, which make it as if S had
    been scaled by that along some directions.
    """
    weights, level = np.zeros(len(rows), dtype=object), levels.outer - levels.levels
    for last, inside in sets:
        last = min(last, levels.outer)
        weights[inside] += max(last - level, 0)
        level = max(last, level)
    total = int(weights.sum())
    center = [Fraction(int(s), total) for s in (rows * weights[:, None]).sum(axis=0)]
    second = rows.T @ (rows * weights[:, None])
    width, k = len(center), levels.levels
    scatter = [
        [(Fraction(int(second[i, j])) - total * center[i] * center[j]) / k for j in range(width)]
        for i in range(width)
    ]
    # S = U D U', U with ones on its diagonal: no error whatever the rows' correlations are
    unit = [[Fraction(int(i == j)) for j in range(width)] for i in range(width)]
    diagonal: list[Fraction] = []
    for j in range(width):
        own = scatter[j][j] - sum(unit[j][k] ** 2 * diagonal[k] for k in range(j))
        diagonal.append(own)
        for i in range(j + 1, width):
            rest = scatter[i][j] - sum(unit[i][k] * unit[j][k] * diagonal[k] for k in range(j))
            unit[i][j] = rest / own
    roots = [root(Fraction(levels.factor) ** 2 * each) for each in diagonal]
    return center, [[unit[i][j] * roots[j] for j in range(width)] for i in range(width)]


def root(value: Fraction) -> Fraction:
    """Return the square root of a positive number, within 2^-60 of itself.

    >>> root(Fraction(9, 4)) == Fraction(3, 2)
    True
    """
    bits = 128 + 2 * max(0, value.denominator.bit_length() - value.numerator.bit_length())
    bits += bits % 2
    return Fraction(math.isqrt(value.numerator * 2**bits // value.denominator), 2 ** (bits // 2))


def below(count: Any, scale: float) -> float:
    """Return a number that a noisy count's own is hardly ever below."""
    return float(count) - 5 * float(scale)


def by_column(mean: NDArray[np.float64], *, names: list[str]) -> dict[str, float]:
    """Return numbers by column."""
    return dict(zip(names, np.asarray(mean).tolist(), strict=True))


@frozen
class AffineInvariantMean:
    """The mean of columns without bounds, with noise in the shape of the rows' own covariance.

    No range, unit or correlation of the columns plays a part: with any invertible affine map of the
    rows the error is mapped as they are, however thin their ellipsoid is. Nothing is released of
    the covariance. A private test finds whether few rows are far from the others; if it fails the
    mean is NaN. The theorem and its proof are in the last section of the module.

    It takes some thousands of normal rows to pass at epsilon 1 and delta 1e-6 (5,100 of two
    columns, 6,600 of five, 8,600 of ten), and twice as many at half of epsilon. `Mean` needs fewer,
    and is nearer where columns do not move together.

    Parameters
    ----------
    columns
        Columns of numbers, with bounds (to which values are clipped) or None. Rows in which one is
        missing are left out. Values are rounded to multiples of 2^-40, between -2^40 and 2^40.
    reach
        How far rows may be, in squared distances, over those of normal rows: more for heavy tails,
        which takes as many times more rows.
    free
        Where no budget is given: the name of the free parameter.

    Returns
    -------
    dict
        The mean by column, in data units; NaN where the test fails.

    References
    ----------
    Brown, Gaboardi, Smith, Ullman and Zakynthinou 2021; Brown, Hopkins and Smith 2023; Duchi, Haque
    and Kuditipudi 2023.

    See Also
    --------
    Mean : by ranges that are found first.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"left": None, "right": None})
    >>> learner = dp.statistics.AffineInvariantMean(["left", "right"])
    >>> plan = dp.Pipeline(mean=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by basic>
    >>> rng = np.random.default_rng(1)
    >>> left = rng.normal(70, 9, 20_000)
    >>> data = {"left": left, "right": left + rng.normal(0, 0.001, 20_000)}
    >>> found = plan.simulate(seed=1, people=data)["mean"]
    >>> abs(found["left"] - 70) < 0.3, abs(found["left"] - found["right"]) < 3e-5
    (True, True)
    """

    columns: tuple[str, ...] = field(converter=strings)
    reach: float = field(default=1.0, kw_only=True)
    free: str = field(default="epsilon", kw_only=True)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[dict[str, float]]:
        """Return the released mean."""
        if delta is None or not delta > 0:
            raise DeclarationError(
                "AffineInvariantMean tests how far rows are, which needs a delta above 0, such as "
                f"1e-6, got {delta!r}"
            )
        if epsilon is not None and not 1e-9 <= epsilon <= 1e9:
            raise DeclarationError(
                "AffineInvariantMean needs an epsilon in [1e-9, 1e9], or None to leave it free, "
                f"got {epsilon!r}"
            )
        declared = {name: table.domain.find(name) for name in self.columns}
        rows = complete_rows(table, self.columns)
        query: PrivateQuery[Any] = PrivateQuery(RowsOnLattice(self.columns, declared), (rows,))
        # a row is a step: of k steps, (k e, k e^{(k - 1) e} delta)
        number, change = rows.count(), change_at(rows)
        assert isinstance(query.operation, Query)
        assert isinstance(number.operation, Query)
        steps = query.operation.sensitivity(rows.domain, change, 0)
        moved = number.operation.sensitivity(rows.domain, change, 1)
        scale: Any = Free(self.free, weight=moved / COUNT)
        budget: Any = Free(self.free, weight=1 / steps)
        if epsilon is not None:
            scale = up(moved / (COUNT * epsilon), 64)
            budget = (1 - COUNT) * epsilon / steps * (1 - 1e-12)
            if not budget >= MIN_EPSILON:  # noise for less is charged as much
                lowest = MIN_EPSILON * steps * 1.06
                raise DeclarationError(
                    f"AffineInvariantMean needs an epsilon of at least {lowest:.3g}"
                    f" where {steps:g} rows may come or go, got {epsilon!r}"
                )
        together = (epsilon or 1.0) * (1 - 1 / steps)
        own = delta * math.exp(-together) / steps * (1 - 1e-12 if steps > 1 else 1.0)
        if not own >= 1e-60:
            raise DeclarationError(
                f"AffineInvariantMean needs a delta for each of {steps:g} rows that may come or go "
                f"of at least 1e-60: delta e^(-{together:g}) / {steps:g}, which is {own:.2g} for "
                f"delta {delta!r}; give it a larger delta, or less than epsilon {epsilon or 1.0!r}"
            )
        count = number.release(DiscreteLaplace(scale=scale), name="rows")
        least = post(below, count, parameter(count, "scale"))
        mechanism = EllipsoidMean(
            epsilon=budget,
            delta=own,
            reach=self.reach,
        )
        mean = query.release(mechanism, given=[least], name="mean")
        return group("AffineInvariantMean", post(by_column, mean, names=list(self.columns)), table)
