"""Private k-means and k-medians: clusters are split in two, level by level, and then refined.

Every round reads all rows once: a row goes to the nearest released centre, and what is released of
each centre is its number of rows and the sum of their offsets from it, clipped to a released radius
(`ClusterSums`). All else is post-processing of that.

*Levels.* From one centre, the middle of the bounds, each level doubles the centres: two take the
place of one, apart along a random direction, and rounds pull them to where the rows are (the
splitting of Linde, Buzo and Gray 1980). Noise falls from level to level as clusters get smaller, so
that the many coarse levels together cost about as much as the finest (`RATIO`). The finest level
has four times as many centres as are wanted, which finds clusters that k centres would miss; of
what it released, k are made by k-means with weights, without further cost.

*Offsets, not positions.* In the end rows are close to their centres, and so is the radius that
bounds what one row may add: the noise shrinks with the clusters. Noise in proportion to the width
of the declared bounds, which sums of positions need, is what makes private Lloyd iterations poor.

*How far a centre moves.* A mean offset of squared length L, of noise with expected squared length
N, is moved by ``max(0, 1 - N / L)`` of it (James and Stein 1961): centres stop by themselves when
what moves them is noise, and later rounds refine what earlier ones found instead of replacing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.numerics import up
from adaptive_dp.data import Columns, grid
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
from adaptive_dp.graph.loops import repeat
from adaptive_dp.graph.mechanism import Free
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.values import as_int, strings
from adaptive_dp.mechanisms.additive import Gaussian, largest_mu, sigma_for
from adaptive_dp.mechanisms.selection import PermuteAndFlip
from adaptive_dp.queries.domains import Ball, Floats, Selected
from adaptive_dp.queries.sums import BallQuery, BallSteps
from adaptive_dp.queries.table import Table, Vectors

COUNT = 0.5
"""What a row adds to its cluster's count, where its offset has a norm of 1 at most."""

BIN = 0.25
"""What a row adds to its bin of the histogram of distances."""

BINS = 24
"""Distances are counted in this many bins, each wider by sqrt(2) than the one before."""

WIDEST = 4096
"""The most coordinates: with more, products of steps would not be exact in floats."""

MOST = 1024
"""The most centres of a level."""

MORE = 4
"""The centres of the finest level, over the clusters that are wanted."""

RATIO = 2.0
"""The share of mu^2 of a level, over that of the level before."""

LEVEL_ROUNDS = 2
"""The rounds of each level."""

FINAL = 0.5
"""The share of mu^2 of the rounds with as many centres as are wanted."""

CHOICE = 0.1
"""The share of epsilon that the choice of the number of clusters costs."""

SEED = 20211
"""Directions in which centres are split, and starts of k-means, are drawn with this public seed."""

# -----------------------------------------------------------------------------
# What is released of rows and centres.


@frozen
class NearestCenters(BallQuery):
    """Base of the queries that send each row to the nearest of released centres.

    Rows are integer multiples of a step, of at most 2^20 steps in norm, and centres are rounded to
    the same step, each coordinate within the radius. So ``|c|^2 - 2 x'c`` is an integer below
    2^53, and exact in whatever order a product of matrices adds: a row's centre depends on that
    row and on the centres alone. Of equally near centres it is the first.
    """

    max_released_inputs: ClassVar[int] = 1
    column_fields: ClassVar[tuple[str, ...]] = ()

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces; released centres are needed."""
        if len(inputs) != 2:
            raise DeclarationError(f"{self.kind} needs vectors and released centres")
        if self.width > WIDEST:
            raise DeclarationError(
                f"clusters are of at most {WIDEST} columns, got {self.width}; leave some out, or "
                "sum them up"
            )
        return super().domain(inputs)

    @property
    def unit(self) -> float:
        """The step of rows and centres."""
        return grid.step(self.radius, grid.BALL_BITS)

    def in_steps(self, centers: Any, count: int) -> tuple[Floats, Floats]:
        """Return centres in steps, shape (count, width), and ``|c|^2``, infinite for no centre.

        Parameters
        ----------
        centers
            Released: any numbers. A row of them with one that is not finite is no centre.
        """
        given = np.full((count, self.width), np.nan)
        flat = np.asarray(centers, dtype=np.float64).reshape(-1, self.width)[:count]
        given[: len(flat)] = flat
        used = np.isfinite(given).all(axis=1)
        inside = np.clip(np.where(used[:, None], given, 0.0), -self.radius, self.radius)
        steps = np.rint(inside / self.unit)
        return steps, np.where(used, grid.squares(steps), math.inf)


def move_of(change: Change, first: float, rest: float, other: float, *, several: bool) -> float:
    """Return the largest l2 distance of sums of a rows and of b rows of `ClusterSums`.

    The proof is in its docstring.

    Parameters
    ----------
    change
        What arrives at the query.
    first, rest, other
        The squares of what a row adds to its count, to its offsets at most, and to its bin.
    several
        Whether two rows can be of different clusters.
    """
    a, b = change.rows, change.both - change.rows
    # one data set has no rows of the unit
    squares = [(first + rest + other) * max(a, b) ** 2]
    # opposite offsets in one cluster
    squares.append(first * (a - b) ** 2 + rest * (a + b) ** 2 + other * (a * a + b * b))
    if several:
        squares.append((first + rest + other) * (a * a + b * b))
    return math.sqrt(max(squares))


@frozen
class ClusterSums(NearestCenters):
    """Of each of k centres its number of rows and the sum of their offsets; and all distances.

    The centres c_j and a radius r are released values, the second input (a mapping of ``centers``
    and ``radius``). A row x whose nearest centre is c_j adds, with ``o = x - c_j``,

    * ``COUNT`` to the j-th count,
    * ``o min(1/r, 1/|o|)`` to the j-th sum: its offset in units of r, shortened to norm 1,
    * ``BIN`` to one of `BINS` bins by ``|o|``, whose edges are ``R 2^(-i/2)``, R the rows' radius.

    Rows and offsets are rounded to steps inside their balls, so that sums are exact.

    *Sensitivity.* What a row adds is ``v = (COUNT e_j, w at j, BIN e_b)`` with ``|w| <= 1``,
    whatever centres and radius are. The distance of a sum of a such vectors and a sum of b of them
    is convex in each of them. So it is largest where all a are one vector v and all b one vector
    v' (own proof: for given b, the sum of a vectors lies in a times the convex hull of what a row
    can add, and a convex function on that is largest at a corner ``a v``; then the same for b).
    With A = COUNT^2 and B = BIN^2, ``|a v - b v'|^2`` is at most

    * ``(A + 1 + B) a^2`` for b = 0: a unit appears, vanishes or is zeroed,
    * ``A (a - b)^2 + (a + b)^2 + B (a^2 + b^2)`` in one cluster, for w' = -w,
    * ``(A + 1 + B) (a^2 + b^2)`` in two clusters.

    In l1 it is at most ``(a + b) (COUNT + sqrt(d) + BIN)``, in the maximum norm ``a + b``.

    Parameters
    ----------
    radius, width
        As of `BallQuery`.
    clusters
        k, the most centres there may be.
    """

    kind: ClassVar[str] = "cluster_sums"
    column_fields: ClassVar[tuple[str, ...]] = ()

    clusters: int

    def label(self) -> str:
        """Return the number of centres."""
        return f"counts and offsets of {self.clusters} clusters"

    def domain(self, inputs: Sequence[Any]) -> Ball:
        """Return the ball that the query enforces."""
        if as_int(self.clusters) is None or not 1 <= self.clusters <= MOST:
            raise DeclarationError(f"cluster_sums has 1 to {MOST} clusters, got {self.clusters!r}")
        return super().domain(inputs)

    def dimension(self, domain: Ball) -> int:
        """Return the number of counts, offsets and bins."""
        return self.clusters * (1 + self.width) + BINS

    def coordinates_moved(self, domain: Ball, change: Change) -> int:
        """Return the most that a unit's rows add to: a count, a sum and a bin each."""
        return min(self.dimension(domain), change.both * (self.width + 2))

    def step(self, domain: Ball) -> float:
        """Return the step of offsets, in units of the radius; `COUNT` and `BIN` are multiples."""
        return grid.step(1.0, grid.BALL_BITS)

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        if math.isinf(norm):
            return float(change.both)
        if norm == 1:
            return change.both * (COUNT + math.sqrt(self.width) + BIN)
        return move_of(change, COUNT**2, 1.0, BIN**2, several=self.clusters > 1)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum over the rows, at the released centres and radius."""
        value: Selected = inputs[0]
        released: Mapping[str, Any] = inputs[1]
        return RowSum(value.rows, self._block(value, released), self.finish)

    def _block(self, value: Selected, released: Mapping[str, Any]) -> Callable[[Columns], Integers]:
        vectors, unit, count = BallSteps(value.of, self.radius), self.unit, self.clusters
        centers, lengths = self.in_steps(released["centers"], count)
        # a released radius may be anything; one below the step of rows would not bound more
        radius = float(np.nan_to_num(np.asarray(released["radius"], dtype=np.float64), nan=1.0))
        radius = min(max(radius, unit), 2 * self.radius * math.sqrt(self.width))
        edges = (distance_edges(self.radius)[:-1] / unit) ** 2
        places = np.arange(self.width)

        def sums(columns: Columns) -> Integers:
            rows: Floats = once(columns, vectors)
            nearest = np.argmin(lengths - 2 * (rows @ centers.T), axis=1)
            offsets = rows - centers[nearest]  # integers, exactly
            bins = np.searchsorted(edges, grid.squares(offsets))
            # the clipping to the radius: each row's share is inside the unit ball, in steps
            shares = grid.ball_steps(offsets * (unit / radius), 1.0)[0]
            cells = (nearest[:, None] * self.width + places).reshape(-1)
            return np.concatenate(
                [
                    np.bincount(nearest, minlength=count),
                    # integers below 2^20 of at most 2^14 rows: exact
                    np.bincount(cells, shares.reshape(-1), minlength=count * self.width).astype(
                        np.int64
                    ),
                    np.bincount(bins, minlength=BINS),
                ]
            )

        return sums

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return counts, sums and bins, flat."""
        count, unit = self.clusters, grid.step(1.0, grid.BALL_BITS)
        sizes = [COUNT] * count + [unit] * (count * self.width) + [BIN] * BINS
        # clamped to 2^53 of these: 1-Lipschitz, so it moves no two totals apart
        return np.array([grid.total(v, s) for v, s in zip(total, sizes, strict=True)])

    def present(self, value: Any) -> dict[str, Floats]:
        """Return what is released as counts, sums and distances, in numbers of rows."""
        flat, cut = np.asarray(value, dtype=np.float64), self.clusters * (1 + self.width)
        return {
            "counts": flat[: self.clusters] / COUNT,
            "offsets": flat[self.clusters : cut].reshape(self.clusters, self.width),
            "distances": flat[cut:] / BIN,
        }


def distance_edges(radius: float) -> Floats:
    """Return the upper edges of the bins of distances, the largest last, which has all above it."""
    return radius * 2.0 ** (-np.arange(BINS - 1, -1, -1) / 2)


SILHOUETTE_STEPS = 20
"""A row's silhouette is summed in steps of 2^-20."""


@frozen
class Silhouettes(NearestCenters):
    """The sum over the rows of the simplified silhouette of each of m released sets of centres.

    A row at distance a from its nearest centre, and b from the next, has ``1 - a / b`` in [0, 1]:
    1 at its own centre, 0 half-way between two. Sets whose clusters are apart have large sums; it
    is a score by which the number of clusters is chosen.

    *Sensitivity*, as of counts: a unit of up to r rows moves each sum by at most r, and where it
    appears or vanishes all to the same side, so that the span is r; where a rows are exchanged for
    b, two sums move apart by at most ``a + b``. In l1 m times and in l2 sqrt(m) times as much.

    Parameters
    ----------
    radius, width
        As of `BallQuery`.
    candidates
        m.
    clusters
        The most centres of one of them.

    References
    ----------
    Rousseeuw 1987; Hruschka, de Castro and Campello 2004 (simplified: of centres).
    """

    kind: ClassVar[str] = "silhouettes"
    column_fields: ClassVar[tuple[str, ...]] = ()

    candidates: int
    clusters: int

    def label(self) -> str:
        """Return the number of candidates."""
        return f"silhouettes of {self.candidates} sets of centres"

    def dimension(self, domain: Ball) -> int:
        """Return m."""
        return self.candidates

    def step(self, domain: Ball) -> float:
        """Return the step of a sum."""
        return 2.0**-SILHOUETTE_STEPS

    def sensitivity(self, domain: Ball, change: Change, norm: float) -> float:
        """Return the bound of the class docstring."""
        factors: dict[float, float] = {1: self.candidates, 2: math.sqrt(self.candidates)}
        return change.rows * factors.get(norm, 1.0)

    def span(self, domain: Ball, change: Change) -> float:
        """Return a + b: r where a unit appears or vanishes."""
        return float(change.both)

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sums, at the released centres."""
        value: Selected = inputs[0]
        vectors = BallSteps(value.of, self.radius)
        sets = [self.in_steps(each, self.clusters) for each in list(inputs[1])[: self.candidates]]
        missing = self.candidates - len(sets)

        def sums(columns: Columns) -> Integers:
            rows: Floats = once(columns, vectors)
            own = grid.squares(rows)
            totals = [_silhouette_steps(rows, own, *each) for each in sets]
            return np.array(totals + [0] * missing, dtype=np.int64)

        return RowSum(value.rows, sums, self.finish)

    def finish(self, total: NDArray[Any]) -> Floats:
        """Return the sums, shape (m,)."""
        return np.array([grid.total(v, 2.0**-SILHOUETTE_STEPS) for v in total])


def _silhouette_steps(rows: Floats, own: Floats, centers: Floats, lengths: Floats) -> int:
    if np.isfinite(lengths).sum() < 2:
        return 0
    scores = lengths - 2 * (rows @ centers.T)
    first, second = np.partition(scores, 1, axis=1)[:, :2].T + own
    # integers, so that both are exact; a row's silhouette depends on that row alone
    shares = 1 - np.sqrt(np.maximum(first, 0.0) / np.maximum(second, 1.0))
    return int(np.rint(np.clip(shares, 0.0, 1.0) * 2.0**SILHOUETTE_STEPS).sum())


# -----------------------------------------------------------------------------
# Post-processing: steps of centres, splits, and k-means of what was released.

State = dict[str, Any]
"""``centers`` of shape (k, d), NaN where there is none; ``counts``; ``radius``, to which the next
round clips offsets; ``spread``, the root of the mean squared distance; ``total`` and ``weight``,
sums over rounds of counts over the square of their noise, and of 1 over that; ``sigma``, the noise
of the last round, and ``moved``, how far it moved rows' centres, in mean square."""


def start(width: int, *, reach: float) -> State:
    """Return one centre, the middle of the bounds, before anything is known.

    >>> start(2, reach=1.5)["centers"].tolist()
    [[0.0, 0.0]]
    """
    return {
        "centers": np.zeros((1, int(width))),
        "counts": np.array([math.inf]),
        "radius": float(reach),
        "spread": float(reach),
        "total": np.zeros(1),
        "weight": 0.0,
        "sigma": math.inf,
        "moved": math.inf,
    }


def split(state: State, *, most: int) -> State:
    """Return the state with two centres in place of one, where rows suffice for another split.

    Parameters
    ----------
    state
        Of the level before.
    most
        How many centres there may be: places without one have NaN.
    """
    old = np.asarray(state["centers"], dtype=np.float64)
    counts = np.asarray(state["counts"], dtype=np.float64)
    used = np.isfinite(old).all(axis=1)
    # of the next level's sums, in rows
    width, sigma = old.shape[1], float(state["sigma"]) / math.sqrt(RATIO)
    centers, sizes = old[used], counts[used]
    # of fewer rows the offset's noise would exceed its length by far
    enough = np.flatnonzero(sizes > 2 * sigma * math.sqrt(width))
    enough = enough[np.argsort(-sizes[enough], kind="stable")][: most - len(centers)]
    draw = np.random.default_rng([SEED, most])
    moves = draw.normal(size=(len(enough), width))
    moves *= 0.3 * float(state["spread"]) / np.sqrt(np.square(moves).sum(axis=1))[:, None]
    new = centers[enough] - moves
    centers[enough] += moves
    return {**state, **placed(np.vstack([centers, new]), most), "weight": 0.0}


def placed(centers: Floats, most: int) -> State:
    """Return centres in ``most`` places, NaN where there is none, and counts of 0."""
    places = np.full((most, centers.shape[1]), np.nan)
    places[: len(centers)] = centers
    return {"centers": places, "counts": np.zeros(most), "total": np.zeros(most)}


def lloyd_step(
    state: State,
    released: Mapping[str, Any],
    sigma: float,
    *,
    reach: float,
    medians: bool,
    keep: bool,
) -> State:
    """Return the state after a round: each centre moved by its rows' mean offset, shrunk.

    Parameters
    ----------
    state
        Before the round.
    released
        What `ClusterSums` releases.
    sigma
        Its noise.
    reach
        R.
    medians
        Whether centres are to become medians: then rows far away count by direction alone.
    keep
        Whether centres without rows stay; else they are dropped.
    """
    centers = np.asarray(state["centers"], dtype=np.float64)
    counts = np.asarray(released["counts"], dtype=np.float64)
    offsets = np.asarray(released["offsets"], dtype=np.float64)
    used, radius, width = np.isfinite(centers).all(axis=1), float(state["radius"]), centers.shape[1]
    rows = np.maximum(counts, sigma)
    total = max(float(counts[used].sum()), 1.0)
    shares = histogram_shares(np.asarray(released["distances"]), total)
    middles = distance_edges(reach) * 2.0**-0.25
    # of medians, the mean weight of a row: the step is Weiszfeld's
    weight = float(shares @ np.minimum(1.0, radius / middles)) if medians else 1.0
    moves = offsets * (radius / (rows * max(weight, 0.05)))[:, None]
    lengths = np.square(moves).sum(axis=1)
    noise = width * np.square(radius * sigma / (rows * max(weight, 0.05)))
    # James and Stein 1961: what is no longer than its noise is not moved by
    kept = np.maximum(0.0, 1 - noise / np.maximum(lengths, 1e-300))
    before, centers = centers, np.clip(centers + kept[:, None] * moves, -reach, reach)
    weights = np.where(used, rows, 0.0)
    squares = np.square(np.nan_to_num(centers - before)).sum(axis=1)
    moved = math.sqrt(float(weights @ squares) / max(float(weights.sum()), 1.0))
    if not keep:
        enough = used & (counts > 2 * sigma / COUNT)
        if not enough.any():
            enough[int(np.argmax(np.where(used, counts, -math.inf)))] = True
        centers[~enough] = np.nan
        used = enough
    precision = float(sigma) ** -2
    summed = np.asarray(state["total"]) + counts * precision
    noisy = sigma * math.sqrt(width) * int(used.sum()) / total
    return {
        "centers": centers,
        "counts": np.where(used, counts, 0.0),
        "radius": clip_radius(shares, middles, reach, noisy, medians=medians and keep),
        "spread": math.sqrt(float(shares @ middles**2)),
        "total": summed,
        "weight": float(state["weight"]) + precision,
        "sigma": float(sigma),
        "moved": moved,
    }


def histogram_shares(counts: Floats, total: float) -> Floats:
    """Return the shares of a noisy histogram: the nearest non-negative ones of that total.

    >>> histogram_shares(np.array([5.0, -1.0, 2.0]), 6.0).round(3).tolist()
    [0.75, 0.0, 0.25]
    """
    ordered = np.sort(counts)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(counts) + 1)
    threshold = over[np.flatnonzero(ordered > over)[-1]]
    return np.asarray(np.maximum(counts - threshold, 0.0) / total)


def clip_radius(
    shares: Floats, middles: Floats, reach: float, noise: float, *, medians: bool
) -> float:
    """Return the radius for the next round's offsets, where noise and clipping cost about the same.

    Parameters
    ----------
    shares, middles
        Of distances.
    reach
        R.
    noise
        The length of the noise of a cluster's mean offset, over the radius.
    medians
        Whether offsets count by direction: then the radius is half of their median.
    """
    edges = distance_edges(reach)
    if medians:
        return float(edges[int(np.searchsorted(np.cumsum(shares), 0.5 * shares.sum()))] / 2)
    # the mean length that is cut off; of a symmetric cluster cuts cancel, so half of it counts
    excess = np.array([float(shares @ np.maximum(middles - edge, 0.0)) for edge in edges])
    return float(edges[int(np.argmin((noise * edges) ** 2 + 0.5 * excess**2))])


def merge(state: State, *, clusters: int, medians: bool) -> State:
    """Return k centres of the finest level's, by their released counts: k-means with weights."""
    centers = np.asarray(state["centers"], dtype=np.float64)
    used = np.isfinite(centers).all(axis=1)
    weights = np.maximum(np.asarray(state["counts"], dtype=np.float64)[used], 1e-9)
    points = centers[used]
    draw = np.random.default_rng([SEED, clusters])
    if len(points) > clusters:
        points = weighted_centers(points, weights, clusters, draw, medians=medians)
    while len(points) < clusters:  # too few rows for as many: the largest are split, blindly
        most = np.argsort(-weights, kind="stable")[: clusters - len(points)]
        moves = draw.normal(size=(len(most), points.shape[1]))
        moves *= 0.3 * float(state["spread"]) / np.sqrt(np.square(moves).sum(axis=1))[:, None]
        weights[most] /= 2
        points = np.vstack([points, points[most] - moves])
        weights = np.concatenate([weights, weights[most]])
        points[most] += moves
    return {**state, **placed(points, clusters), "weight": 0.0}


def weighted_centers(
    points: Floats,
    weights: Floats,
    clusters: int,
    draw: np.random.Generator,
    *,
    medians: bool,
    starts: int = 16,
) -> Floats:
    """Return k centres of points with weights: Lloyd's algorithm, the best of many starts.

    The starts are k-means++ (Arthur and Vassilvitskii 2007).
    """
    best, least = points[:clusters], math.inf
    for _ in range(starts):
        chosen = [int(draw.choice(len(points), p=weights / weights.sum()))]
        near = squared_distances(points, points[chosen])[:, 0]
        for _ in range(clusters - 1):
            odds = weights * near
            # all points are at centres: any of them
            odds = odds / odds.sum() if odds.sum() > 0 else weights / weights.sum()
            chosen.append(int(draw.choice(len(points), p=odds)))
            near = np.minimum(near, squared_distances(points, points[chosen[-1:]])[:, 0])
        centers, cost = points[chosen].copy(), math.inf
        for _ in range(50):
            distances = squared_distances(points, centers)
            own = distances.argmin(axis=1)
            lengths = distances[np.arange(len(points)), own]
            before = cost
            cost = float(weights @ (np.sqrt(lengths) if medians else lengths))
            if not cost < before * (1 - 1e-9):
                break
            pull = weights / np.maximum(np.sqrt(lengths), 1e-9) if medians else weights
            sums = np.bincount(own, pull, minlength=clusters)
            for j in range(points.shape[1]):
                column = np.bincount(own, pull * points[:, j], minlength=clusters)
                centers[:, j] = np.where(sums > 0, column / np.maximum(sums, 1e-300), centers[:, j])
        if cost < least:
            best, least = centers.copy(), cost
    return best


def squared_distances(points: Floats, centers: Floats) -> Floats:
    """Return the squared distances of points and centres, shape (n, k)."""
    products = points @ centers.T
    lengths = np.square(points).sum(axis=1)[:, None] + np.square(centers).sum(axis=1)
    return np.asarray(np.maximum(lengths - 2 * products, 0.0))


def candidates(state: State, *, clusters: list[int], medians: bool) -> list[State]:
    """Return `merge` for each number of clusters, in places for the largest."""
    most = max(clusters)
    merged = [merge(state, clusters=k, medians=medians) for k in clusters]
    return [{**each, **placed(np.asarray(each["centers"]), most)} for each in merged]


def center_sets(states: list[State]) -> list[Any]:
    """Return the centres of each candidate."""
    return [each["centers"] for each in states]


def chosen_state(states: list[State], index: int) -> State:
    """Return the candidate that was chosen."""
    return states[int(index)]


def round_inputs(state: State) -> dict[str, Any]:
    """Return what `ClusterSums` reads of a state."""
    return {"centers": state["centers"], "radius": state["radius"]}


def model_of(state: State, *, features: list[str], bounds: list[list[float]]) -> dict[str, Any]:
    """Return the clusters in data units: see `KMeans`."""
    centers = np.asarray(state["centers"], dtype=np.float64)
    used, weight = np.isfinite(centers).all(axis=1), float(state["weight"])
    low, high = np.array(bounds, dtype=np.float64).T
    half = high / 2 - low / 2
    return {
        "features": list(features),
        "bounds": [list(each) for each in bounds],
        # of centres pushed out of the bounds by noise, the nearest point inside
        "centers": low + half * (1 + np.clip(centers[used], -1.0, 1.0)),
        "counts": np.asarray(state["total"], dtype=np.float64)[used] / weight,
        "count_noise": 1 / (COUNT * math.sqrt(weight)),
        "spread": float(state["spread"]),
        "moved": float(state["moved"]),
    }


def labels(model: Mapping[str, Any], data: Mapping[str, Any]) -> NDArray[np.int64]:
    """Return the cluster of each row: the nearest centre, features scaled by their bounds.

    Parameters
    ----------
    model
        As `KMeans` or `KMedians` releases it.
    data
        Columns by name, in data units; anything that is indexed by a column's name.

    Returns
    -------
    numpy.ndarray
        Shape (n,), positions in ``model["centers"]``.

    Raises
    ------
    ValueError
        If a feature has a missing value: such rows are in no cluster.

    Examples
    --------
    >>> model = {"features": ["age"], "bounds": [[0, 100]], "centers": [[20.0], [70.0]]}
    >>> labels(model, {"age": [25, 60, 44]}).tolist()
    [0, 1, 0]
    """
    low, high = np.array(model["bounds"], dtype=np.float64).T
    half = np.where(high > low, high / 2 - low / 2, 1.0)
    columns = [np.asarray(data[name], dtype=np.float64) for name in model["features"]]
    points = (np.stack(columns, axis=1) - low) / half
    if not np.isfinite(points).all():
        raise ValueError("a row with a missing value is in no cluster; leave such rows out")
    centers = (np.asarray(model["centers"], dtype=np.float64) - low) / half
    # as the rows that were learned from: clipped to the bounds
    return np.asarray(squared_distances(np.clip(points, 0.0, 2.0), centers).argmin(axis=1))


# -----------------------------------------------------------------------------
# The learners.


def _clusters(value: Any) -> tuple[int, ...]:
    numbers = (value,) if isinstance(value, int) else tuple(value) if _is_list(value) else ()
    if not numbers or not all(
        as_int(k) is not None and not isinstance(k, bool) and 1 <= k <= MOST for k in numbers
    ):
        raise DeclarationError(
            f"clusters must be an int from 1 to {MOST}, or a list of such to choose from, got "
            f"{value!r}"
        )
    if len(set(numbers)) != len(numbers) or (len(numbers) > 1 and min(numbers) < 2):
        raise DeclarationError(
            f"a choice of the number of clusters is between different ones of at least 2, got "
            f"{value!r}"
        )
    return numbers


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | Mapping)


def shared_gaussian(
    query: PrivateQuery[Any], table: Table, mu: float | None, share: float, free: str
) -> Gaussian:
    """Return the noise of a release that has a share of mu^2; free noise where mu is None.

    Shares that add up to 1 cost mu in all, whatever each release reads of those before it (Dong,
    Roth and Su 2022, Corollary 2).
    """
    operation, domain, change = query.operation, query.inputs[0].domain, change_at(table)
    assert isinstance(operation, Query)
    distance = up(operation.sensitivity(domain, change, 2), 8)
    if mu is None:
        # sigma in proportion to Delta / sqrt(share) keeps the shares of (Delta / sigma)^2
        return Gaussian(sigma=Free(free, weight=distance / math.sqrt(share)))
    moved = operation.coordinates_moved(domain, change)
    return Gaussian(sigma=sigma_for(mu * math.sqrt(share), distance, moved))


@frozen
class KMeans:
    """k centres near which the rows are, by squared distance: private k-means.

    Columns are mapped from their bounds onto [-1, 1]; distances are between these. See
    `adaptive_dp.statistics.clustering` for how it works: levels of splits, k-means of what was
    released, and `rounds` more rounds with k centres. A round is one Gaussian release of the counts
    and offsets of all clusters together (`ClusterSums`), which moves by 1.15 for a row that comes
    or goes, however many clusters and columns there are; with several candidates for the number of
    clusters one is chosen by `Silhouettes`.

    *Cost.* Releases add up in mu^2, and each has its share of the mu of (epsilon, delta); a choice
    of the number of clusters costs a tenth of epsilon besides, so that mu is that of the rest. The
    certificate is computed of the graph: the number of rounds is fixed, whether or not centres
    still move. A session pays for the rounds that it runs: see `in_rounds`.

    Parameters
    ----------
    features
        Columns with bounds. Rows in which one is missing are left out.
    clusters
        k; or a list of numbers of at least 2 to choose from.
    rounds
        The rounds with k centres.
    free
        Where no budget is given: the name of the free noise.

    Returns
    -------
    dict
        ``centers`` in data units, shape (k, d), and ``features``; ``counts``, the released number
        of rows of each, with noise of deviation ``count_noise``; ``spread``, the root of the rows'
        mean squared distance, for columns in [-1, 1], and ``moved``, how far the last round moved
        their centres, likewise; and ``bounds``. `labels` says in which cluster rows are.

    References
    ----------
    Blum, Dwork, McSherry and Nissim 2005 (private Lloyd iterations); Linde, Buzo and Gray 1980
    (splitting); James and Stein 1961. The offsets' radius and its choice are our own.

    See Also
    --------
    KMedians : by distance, which far rows move less.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "visits": (0, 50)})
    >>> kmeans = dp.statistics.KMeans(["age", "visits"], clusters=2)
    >>> plan = dp.Pipeline(clusters=people.solve(kmeans, epsilon=1.0, delta=1e-6))
    >>> plan = plan.with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> age = np.repeat([20.0, 70.0], 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "visits": age / 2})["clusters"]
    >>> sorted(found["centers"].round().tolist())
    [[20.0, 10.0], [70.0, 35.0]]
    >>> dp.statistics.labels(found, {"age": [15, 80], "visits": [3, 30]}).shape
    (2,)
    """

    features: tuple[str, ...] = field(converter=strings)
    clusters: tuple[int, ...] = field(converter=_clusters)
    rounds: int = 4
    free: str = "sigma"

    title: ClassVar[str] = "KMeans"
    medians: ClassVar[bool] = False

    def __attrs_post_init__(self) -> None:
        if not self.features:
            raise DeclarationError(f"{self.title} needs at least one feature")
        if as_int(self.rounds) is None or not 1 <= self.rounds <= 1000:
            raise DeclarationError(
                f"{self.title}.rounds must be an int from 1 to 1000, got {self.rounds!r}"
            )

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[dict[str, Any]]:
        """Return the released clusters: see the class."""
        return group(self.title, self._models(table, epsilon, delta, 1)[-1], table)

    def in_rounds(
        self, table: Table, *, epsilon: float | None = None, delta: float | None = None
    ) -> list[Released[dict[str, Any]]]:
        """Return the clusters after each of the last rounds, to be run one by one in a session.

        Each is computed from the one before, for which a session does not pay again. The first
        costs all levels and a round, each other a round: where centres have come to rest, by
        ``moved``, the rest remains, for a last round of less noise or for anything else. When to
        stop, and what each round may cost, may depend on all that was released: the session's
        filter holds the sum of mu^2 of the rounds that ran (Smith and Thakurta 2022; Koskela,
        Tobaben and Honkela 2023).

        Parameters
        ----------
        table
            As of ``table.solve``.
        epsilon, delta
            What all rounds together cost; None leaves each round's noise to the session.

        Examples
        --------
        >>> import numpy as np, adaptive_dp as dp
        >>> people = dp.dataset("people", columns={"age": (0, 100)})
        >>> rounds = dp.statistics.KMeans(["age"], clusters=2, rounds=8).in_rounds(people)
        >>> rows = {"age": np.repeat([20.0, 70.0], 5_000)}
        >>> with dp.Session(budget=dp.Budget(1.0, 1e-6), people=rows) as session:
        ...     found = session.run(rounds[0], share=0.5)
        ...     for clusters in rounds[1:]:
        ...         if found["moved"] < 0.01:
        ...             break
        ...         found = session.run(clusters, share=0.05)
        ...     count = session.run(people.count().release(dp.Gaussian()), share=0.1)
        >>> sorted(found["centers"].round().ravel().tolist()), round(count, -3)
        ([20.0, 70.0], 10000.0)
        """
        return self._models(table, epsilon, delta, self.rounds)

    def _models(
        self, table: Table, epsilon: float | None, delta: float | None, stops: int
    ) -> list[Released[dict[str, Any]]]:
        """Return the clusters at some stops, between which there are equally many rounds."""
        if (epsilon is None) != (delta is None):
            raise DeclarationError(
                f"{self.title} needs epsilon and delta, or neither of them to leave its noise free"
            )
        mu = choice = None
        if epsilon is not None and delta is not None:
            if not (0 < epsilon < math.inf and 0 < delta < 1):
                raise DeclarationError(
                    f"{self.title}'s noise is Gaussian: it needs epsilon > 0 and 0 < delta < 1, "
                    f"got {epsilon!r} and {delta!r}"
                )
            # basic composition: the choice is pure, and the rest has what is left of epsilon
            choice = CHOICE * epsilon if len(self.clusters) > 1 else 0.0
            mu = largest_mu(epsilon - choice, delta)
        vectors = table.vectors(list(self.features), scale=True)
        bounds = [table.domain.interval(name) for name in self.features]
        ends = [[each.lower, each.upper] for each in bounds]
        return [
            post(model_of, state, features=list(self.features), bounds=ends)
            for state in self._learn(vectors, table, mu, choice, stops)
        ]

    def _learn(
        self, vectors: Vectors, table: Table, mu: float | None, choice: float | None, stops: int
    ) -> list[Released[State]]:
        """Return the states at some stops."""
        reach, most = vectors.domain.radius, max(self.clusters)
        levels = math.ceil(math.log2(min(MORE * most, MOST)))
        # each level has RATIO times the share of the one before, for its two rounds
        weights = [RATIO**level for level in range(levels + 1)]
        state: Released[State] = post(start, public(vectors.domain.width), reach=reach)
        for level, weight in enumerate(weights):
            if level:
                state = post(split, state, most=2**level)
            share = (1 - FINAL) * weight / sum(weights) / LEVEL_ROUNDS
            name, again = f"level_{level}", LEVEL_ROUNDS
            state = self._rounds(vectors, table, state, 2**level, again, share, mu, name)
        if len(self.clusters) == 1:
            state = post(merge, state, clusters=most, medians=self.medians)
        else:
            state = self._chosen(vectors, table, state, choice)
        share, states = FINAL / self.rounds, []
        for _ in range(stops):
            times = self.rounds // stops
            state = self._rounds(vectors, table, state, most, times, share, mu, "clusters")
            states.append(state)
        return states

    def _rounds(
        self,
        vectors: Vectors,
        table: Table,
        state: Released[State],
        count: int,
        times: int,
        share: float,
        mu: float | None,
        name: str,
    ) -> Released[State]:
        """Return the state after rounds that have a share of mu^2 each."""
        ball, keep = vectors.domain, name == "clusters"
        operation = ClusterSums(ball.radius, ball.width, count)

        def body(before: Released[State], rows: Vectors) -> Released[State]:
            query: PrivateQuery[Any] = PrivateQuery(operation, (rows, post(round_inputs, before)))
            noise_of = shared_gaussian(query, table, mu, share, self.free)
            released = query.release(noise_of, name=name)
            noise = parameter(released, "sigma")
            return post(
                lloyd_step,
                before,
                released,
                noise,
                reach=ball.radius,
                medians=self.medians,
                keep=keep,
            )

        return repeat(body, times, vectors, start=state)

    def _chosen(
        self, vectors: Vectors, table: Table, state: Released[State], choice: float | None
    ) -> Released[State]:
        """Return the state of one of the numbers of clusters, chosen by silhouettes."""
        ball, most = vectors.domain, max(self.clusters)
        among = post(candidates, state, clusters=list(self.clusters), medians=self.medians)
        operation = Silhouettes(ball.radius, ball.width, len(self.clusters), most)
        # the span, not twice the sensitivity: the most by which two sums move apart
        span = operation.span(ball, change_at(table))
        # b = span / epsilon, rounded up past the accountants' own rounding
        scale: Any = Free(self.free, weight=span) if choice is None else up(span / choice, 64)
        scores: PrivateQuery[Any] = PrivateQuery(operation, (vectors, post(center_sets, among)))
        return post(chosen_state, among, scores.release(PermuteAndFlip(scale=scale), name="number"))


@frozen
class KMedians(KMeans):
    """k centres near which the rows are, by distance: private k-medians.

    As `KMeans`, but for the last rounds, in which rows farther from their centre than a small
    radius pull it by the same force: the steps are those of Weiszfeld 1937 for the spatial median,
    whose pull of one row is bounded as it stands. A few rows far away move no centre much.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> kmedians = dp.statistics.KMedians(["age"], clusters=1, rounds=8)
    >>> plan = dp.Pipeline(clusters=people.solve(kmedians, epsilon=4.0, delta=1e-6))
    >>> age = np.concatenate([np.full(8_000, 20.0), np.full(2_000, 100.0)])
    >>> found = plan.with_delta(1e-6).simulate(seed=1, people={"age": age})["clusters"]
    >>> 19 < float(found["centers"][0, 0]) < 22  # the mean is 36
    True
    """

    title: ClassVar[str] = "KMedians"
    medians: ClassVar[bool] = True
