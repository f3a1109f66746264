"""A pair on a lattice: one law of losses above it and one below it, exponentially tilted.

With t = e^l and ``H(t) = E_Q (dP/dQ - t)_+`` a law of losses is an upper bound of a pair where its
hockey-stick is larger for every t, and stays one after composition with any other pair, since
``H_12(t) = E_Q2 [r_2 H_1(t / r_2)]``; likewise for lower bounds.

Upper law. Each cell between two lattice points is replaced by two atoms at lattice points around
its mean of r = dP/dQ, with the same mass under P and under Q (Doroshenko, Ghazi, Kamath, Kumar
and Manurangsi 2022: a mean-preserving spread of r under Q). It gains ``O(step^2)``.

Lower law. Each cell around a lattice point is collapsed to its mean of r under Q (Jensen), whose
loss is the lattice point plus an offset ``O(step^2)`` where the law is smooth. The whole lattice
is shifted by a common offset, and a cell whose own offset is smaller moves to the point below:
moving mass under P to a smaller loss is a lower bound.

Rounding. Let the tails be computed within a relative E, and be monotone. Masses that are their
differences define laws whose hockey-stick at the edges, ``P(L > l) - t Q(L > l)``, telescopes: it
is within ``E (P(L > l) + t Q(L > l)) <= 2 E P(L > l) <= 2 E M(c) t^-c`` of the pair's, M the
moment ``E_P e^{cL}``, c >= 0. No error is divided by the step. Errors ``a t^-c`` compose:
``E_Q2 [r_2 a (t/r_2)^-c] = a t^-c M_2(c)``. So what is kept of a law is E and the tilted mass of
the few cells that rounding left without a mean (`Law.stray`).
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.errors import InapplicableError
from accountants.pair import Pair
from accountants.rounding import UNIT, Array

Flags = NDArray[np.bool_]

_FAINT = 1e-285
"""A tail under Q below this is not trusted (tails are also wrong by 1e-300)."""

_TRIALS = 8
"""How often the cells' edges are moved to bring their means together."""

CELLS = 2**16
"""No law of one pair has many more cells."""


@frozen
class Grid:
    """The lattice ``anchor + i * step`` for i from ``first`` to ``last``, real numbers."""

    anchor: float
    step: float
    first: int
    last: int

    def points(self, shift: float = 0.0) -> Array:
        """Return the points, moved by ``shift`` steps, within ``2 UNIT`` of each term."""
        indices = np.arange(self.first, self.last + 1, dtype=np.float64)
        return np.asarray(self.anchor + (indices + shift) * self.step, dtype=np.float64)


@frozen(eq=False)
class Law:
    """Masses under P at ``offset[0] + offset[1] + (first + i) * step``, tilted.

    The mass at index j = first + i is ``weights[i] exp(log_mass - tilt (j - centre))``.

    Parameters
    ----------
    weights
        Their sum is 1 but for rounding.
    error
        The l1 error of the weights, from rounding.
    tail_error
        E of this module's docstring.
    stray
        Tilted mass of the cells without a mean.
    lost
        Mass under P above the lattice, rounded up.
    """

    first: int
    weights: Array
    log_mass: float
    centre: int
    tilt: float
    offset: tuple[float, float]
    error: float
    tail_error: float
    stray: float
    lost: float


@frozen(eq=False)
class _Cells:
    """Masses of the cells between edges, below the first and above the last."""

    p: Array
    q: Array
    under: float
    over: float
    faint: Flags
    """Where the mass under Q is too small or too blurred to place a cell by its mean."""

    @property
    def turns(self) -> int:
        """How often `faint` changes from one cell with mass to the next."""
        faint = self.faint[self.p > 0]
        return int(np.count_nonzero(faint[1:] != faint[:-1]))


def _cells(pair: Pair, edges: Array) -> _Cells:
    """Return the masses, each from the smaller of its two tails."""
    some = np.unique(np.linspace(0, len(edges) - 1, 65).astype(int))
    p_coarse, q_coarse = pair.above(edges[some])
    left = int(some[max(0, int(np.searchsorted(-q_coarse, -0.5)) - 1)])
    right = int(some[min(len(some) - 1, int(np.searchsorted(-p_coarse, -0.5)) + 1)])
    p_above, q_above = (np.minimum.accumulate(x) for x in pair.above(edges[left:]))
    p_below, q_below = (np.maximum.accumulate(x) for x in pair.below(edges[: right + 1]))
    p, p_tail = _differences(p_below, p_above, left)
    q, q_tail = _differences(q_below, q_above, left)
    with np.errstate(divide="ignore", invalid="ignore"):
        blurred = 4 * UNIT * (p_tail / p + q_tail / q) > (edges[1:] - edges[:-1]) / 4
    faint = (blurred & (p > 0)) | (q_tail < _FAINT)
    return _Cells(p, q, float(p_below[0]), float(p_above[-1]), faint)


def _differences(below: Array, above: Array, left: int) -> tuple[Array, Array]:
    """Return masses, and the tails they come from.

    The tails are those below the first edges and those above the edges from ``left`` on.
    """
    overlap = len(below) - left
    smaller = np.flatnonzero(above[:overlap] <= below[left:])
    turn = left + (int(smaller[0]) if len(smaller) else overlap)
    first, last = below[:turn], above[turn - left :]
    middle = []
    if 0 < turn < left + len(above):
        middle = [max(0.0, 1.0 - first[-1] - last[0])]
    masses = np.concatenate([np.diff(first), middle, -np.diff(last)])
    tails = np.concatenate([first[1:], np.ones(len(middle)), last[:-1]])
    return masses, tails


def _means(cells: _Cells, points: Array) -> Array:
    """Return the loss of each cell's mean of r, less the cell's lattice point."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        means = np.log(cells.p / cells.q) - points
    return np.where(np.isnan(means), 0.0, means)  # no mass at all


def above(pair: Pair, grid: Grid, tilt: float, slack: float) -> Law:
    """Return a law above the pair's.

    Parameters
    ----------
    tilt
        Masses are multiplied by ``e^{tilt i}``.
    slack
        The lattice is moved up by so much, so that atoms on it but for rounding are below it.
    """
    edges = grid.points()
    cells = _cells(pair, edges)
    h = grid.step
    from_left = _means(cells, edges[:-1]) - slack
    moved = np.clip(np.floor(from_left / h), -1, 1)
    moved = np.where(cells.faint, 0, moved)
    within = np.where(cells.faint, h, from_left - moved * h)
    stray = (within > h * (1 + 1e-9)) & (cells.p > 0)
    within = np.clip(within, 0.0, h)
    share = np.expm1(-within) / math.expm1(-h)  # of the P-mass, to the point on the right
    size = len(edges) + 2  # from one point before the first edge to one after the last
    masses = np.zeros(size)
    right, left = cells.p * share, cells.p * (1 - share)
    at = np.arange(len(cells.p)) + 1
    if np.all(moved == 0):
        masses[1:-2] += left
        masses[2:-1] += right
    else:
        at = at + moved.astype(int)
        masses += np.bincount(at, left, size) + np.bincount(at + 1, right, size)
    masses[1] += cells.under
    lost = 0.0 if edges[-1] >= pair.top() else cells.over * (1 + 1e-9) + 1e-300
    strays = None
    if np.any(stray):
        strays = np.zeros(size)
        np.add.at(strays, at[stray] + 1, cells.p[stray])
    return _tilted(pair, grid, -1, masses, strays, tilt, (grid.anchor, slack), lost, cells.turns)


def below(pair: Pair, grid: Grid, tilt: float) -> Law:
    """Return a law below the pair's."""
    points = grid.points()
    edges = np.append(grid.points(-0.5), points[-1] + grid.step / 2)
    best: tuple[float, float, _Cells, Array] | None = None
    for _ in range(_TRIALS):
        cells = _cells(pair, edges)
        offsets = np.where(cells.faint, -grid.step, _means(cells, points))
        weights = _likely(cells.p, tilt)
        shift, cost = _shift(offsets, weights, grid.step)
        if np.any(_stray(cells, offsets, shift - grid.step)):
            cost = math.inf if best else grid.step
        slow = best is not None and cost > 0.9 * best[0]
        if best is None or cost < best[0]:
            best = cost, shift, cells, offsets
        if slow or cost < 0.1 * grid.step**2:
            break
        # a little above the median: at once where one cell holds it, else with care
        margin = cost if weights.sum() < 2 * weights.max() else min(cost, grid.step / 50)
        aim = _median(offsets, weights) + margin
        moved = np.clip(aim - offsets, -grid.step / 2, grid.step / 2)
        inner = edges[1:-1] + (moved[1:] + moved[:-1]) / 2
        middles = grid.points(0.5)[:-1]
        edges[1:-1] = np.clip(inner, middles - 0.45 * grid.step, middles + 0.45 * grid.step)
    assert best is not None
    _, shift, cells, offsets = best
    down = (offsets < shift).astype(int)
    masses = np.zeros(len(points) + 1)
    masses[1:] += np.where(down, 0.0, cells.p)
    masses[:-1] += np.where(down, cells.p, 0.0)
    bad = _stray(cells, offsets, shift - grid.step)
    strays = np.zeros(len(masses)) if np.any(bad) else None
    if strays is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            strays[:-1] = np.where(bad, cells.q * np.exp(points - grid.step + shift), 0.0)
    return _tilted(pair, grid, -1, masses, strays, tilt, (grid.anchor, shift), 0.0, cells.turns)


def _stray(cells: _Cells, offsets: Array, least: float) -> Flags:
    """Return the cells whose means lie below ``least`` by more than rounding."""
    return np.asarray((offsets < least * (1 + 1e-9)) & ~cells.faint & (cells.q > 0), dtype=bool)


def _likely(masses: Array, tilt: float) -> Array:
    """Return the tilted masses, roughly, the largest of them 1."""
    with np.errstate(divide="ignore"):
        logs = np.log(masses) + tilt * np.arange(len(masses))
    return np.asarray(np.exp(logs - logs.max()), dtype=np.float64)


def _median(offsets: Array, weights: Array) -> float:
    order = np.argsort(offsets)
    mass = np.cumsum(weights[order])
    return float(offsets[order[np.searchsorted(mass, mass[-1] / 2)]])


def _shift(offsets: Array, weights: Array, step: float) -> tuple[float, float]:
    """Return the common offset at which least is lost, and the mean of what is lost there.

    A cell whose offset o is at least the common s loses ``o - s``, any other ``o - s + step``.
    """
    some = np.flatnonzero(weights > 1e-20)
    if len(some) > 8192:  # a good guess is enough
        heavy = some[np.argpartition(weights[some], -64)[-64:]]
        some = np.unique(np.concatenate([heavy, some[:: len(some) // 8192 + 1]]))
    order = some[np.argsort(offsets[some])]
    mass = np.cumsum(weights[order])
    before = np.concatenate([[0.0], mass[:-1]]) / mass[-1]
    values = np.clip(offsets[order], -step, step / 20)
    mean = float(weights[order] @ values) / float(mass[-1])
    costs = mean + step * before - values
    at = int(np.argmin(costs))
    return float(values[at]), float(costs[at])


def exponentials(rate: float, first: int, count: int) -> Array:
    """Return ``e^{rate (first + i)}`` for i < count, as products of two exponentials.

    Within a relative error of ``4 UNIT (1 + |rate| (|first| + count))``.
    """
    rows = -(-count // 512)
    with np.errstate(over="ignore", under="ignore"):
        if abs(rate) > 1:  # else no factor overflows while the product does not
            return np.asarray(np.exp(rate * np.arange(first, first + count)), dtype=np.float64)
        coarse = np.exp(rate * (first + 512.0 * np.arange(rows)))
        fine = np.exp(rate * np.arange(512.0))
        return np.asarray(np.outer(coarse, fine).ravel()[:count])


def _tilted(
    pair: Pair,
    grid: Grid,
    before: int,
    masses: Array,
    strays: Array | None,
    tilt: float,
    offset: tuple[float, float],
    lost: float,
    turns: int,
) -> Law:
    """Return the law, each mass within a relative error of ``4 UNIT (|log p| + |tilt i| + 4)``."""
    count = len(masses)
    if tilt * count < 60:
        centre, log_peak, steps = count // 2, 0.0, 16 + tilt * count
        factors = exponentials(tilt, -centre, count)
        weights = masses * factors
        strayed = float(strays @ factors) if strays is not None else 0.0
    else:
        with np.errstate(divide="ignore"):
            logs = np.log(masses)
            centre = int(np.argmax(logs + tilt * np.arange(count)))
            log_peak = float(logs[centre])
            slopes = tilt * (np.arange(count) - centre)
            weights = np.exp(logs + slopes - log_peak)
            some = weights > 0
            sizes = np.abs(logs[some]) + np.abs(slopes[some]) + abs(log_peak)
            steps = 16 + float(weights[some] @ sizes) / float(weights.sum())
            strayed = 0.0
            if strays is not None:
                strayed = float(np.exp(np.minimum(np.log(strays) + slopes - log_peak, 700)).sum())
    total = float(weights.sum())
    if not 0 < total < math.inf:
        raise InapplicableError(f"{pair!r} has no mass on its lattice")
    error, stray = 4 * UNIT * steps + 1e-290 / total, strayed / total
    reach = max(abs(x) for x in (*grid.points()[[0, -1]], 1.0)) + grid.step
    return Law(
        first=grid.first + before,
        weights=weights / total,
        log_mass=log_peak + math.log(total),
        centre=grid.first + before + centre,
        tilt=tilt,
        offset=offset,
        error=error,
        tail_error=(1 + 2 * turns) * (pair.tail_error() + 1e-15 + 32 * UNIT * (1 + reach)),
        stray=stray,
        lost=lost,
    )
