"""A pair's law on a lattice of losses, from above and from below.

The lattice serves where a contour integral does not converge.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants.errors import InapplicableError
from accountants.finite import FinitePair
from accountants.numerics import UNIT, Array
from accountants.pair import Pair

# -----------------------------------------------------------------------------
# Masses of a pair's losses between the edges of cells, and each cell's mean of dP/dQ.


Flags = NDArray[np.bool_]

_FAINT = 1e-285
"""A tail under Q below this is not trusted (tails are also wrong by 1e-300)."""


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
class Cells:
    """Masses of the cells between edges, below the first edge and above the last.

    Parameters
    ----------
    p, q
        The cells' masses under P and under Q.
    under, over
        The mass under P below all cells, and above them.
    beyond
        The mass under Q above them.
    faint
        Where the mass under Q is too small or too blurred to place a cell by its mean.
    """

    p: Array
    q: Array
    under: float
    over: float
    beyond: float
    faint: Flags

    @property
    def turns(self) -> int:
        """How often `faint` changes from one cell with mass to the next."""
        faint = self.faint[self.p > 0]
        return int(np.count_nonzero(faint[1:] != faint[:-1]))

    def means(self, points: Array) -> Array:
        """Return the loss of each cell's mean of dP/dQ under Q, less the cell's point."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            means = np.log(self.p / self.q) - points
        return np.where(np.isnan(means), 0.0, means)  # no mass at all


def cells(pair: Pair, edges: Array) -> Cells:
    """Return the masses between rising edges, each from the smaller of its two tails.

    An atom on an edge is in one of the cells beside it. Tails are made monotone, which does
    not take them further from the truth.
    """
    some = np.unique(np.linspace(0, len(edges) - 1, 65).astype(int))
    p_coarse, q_coarse = pair.above(edges[some])
    left = int(some[max(0, int(np.searchsorted(-q_coarse, -0.5)) - 1)])
    right = int(some[min(len(some) - 1, int(np.searchsorted(-p_coarse, -0.5)) + 1)])
    # each mass is the difference of its smaller tail, so that it keeps a relative error; monotone
    # tails keep masses from being negative
    p_above, q_above = (np.minimum.accumulate(x) for x in pair.above(edges[left:]))
    p_below, q_below = (np.maximum.accumulate(x) for x in pair.below(edges[: right + 1]))
    p, p_tail = _differences(p_below, p_above, left)
    q, q_tail = _differences(q_below, q_above, left)
    with np.errstate(divide="ignore", invalid="ignore"):
        # the mean's log is off by the tails' roundings over the masses: no use if that is a quarter
        # of a cell
        blurred = 4 * UNIT * (p_tail / p + q_tail / q) > (edges[1:] - edges[:-1]) / 4
    faint = (blurred & (p > 0)) | (q_tail < _FAINT)
    return Cells(p, q, float(p_below[0]), float(p_above[-1]), float(q_above[-1]), faint)


def _differences(below: Array, above: Array, left: int) -> tuple[Array, Array]:
    """Return masses, and the tails they come from.

    The tails are those below the first edges and those above the edges from ``left`` on; the
    median lies between ``left`` and the last of the former.
    """
    overlap = len(below) - left
    smaller = np.flatnonzero(above[:overlap] <= below[left:])
    turn = left + (int(smaller[0]) if len(smaller) else overlap)
    first, last = below[:turn], above[turn - left :]
    middle = []
    if 0 < turn < left + len(above):
        # the cell that holds the median: what both tails leave
        middle = [max(0.0, 1.0 - first[-1] - last[0])]
    masses = np.concatenate([np.diff(first), middle, -np.diff(last)])
    tails = np.concatenate([first[1:], np.ones(len(middle)), last[:-1]])
    return masses, tails


# -----------------------------------------------------------------------------
# A pair on a lattice: one law of losses above it and one below it, exponentially tilted.
#
# With t = e^l and ``H(t) = E_Q (dP/dQ - t)_+`` a law of losses is an upper bound of a pair where
# its hockey-stick is larger for every t, and stays one after composition with any other pair, since
# ``H_12(t) = E_Q2 [r_2 H_1(t / r_2)]``; likewise for lower bounds.
#
# Upper law. Each cell between two lattice points is replaced by two atoms at lattice points around
# its mean of r = dP/dQ, with the same mass under P and under Q (Doroshenko, Ghazi, Kamath, Kumar
# and Manurangsi 2022: a mean-preserving spread of r under Q). It gains ``O(step^2)``.
#
# Lower law. Each cell around a lattice point is collapsed to its mean of r under Q (Jensen), whose
# loss is the lattice point plus an offset ``O(step^2)`` where the law is smooth. The whole lattice
# is shifted by a common offset, and a cell whose own offset is smaller moves to the point below:
# moving mass under P to a smaller loss is a lower bound.
#
# Rounding. Let the tails be computed within a relative E, and be monotone. Masses that are their
# differences define laws whose hockey-stick at the edges, ``P(L > l) - t Q(L > l)``, telescopes: it
# is within ``E (P(L > l) + t Q(L > l)) <= 2 E P(L > l) <= 2 E M(c) t^-c`` of the pair's, M the
# moment ``E_P e^{cL}``, c >= 0. No error is divided by the step. Errors ``a t^-c`` compose:
# ``E_Q2 [r_2 a (t/r_2)^-c] = a t^-c M_2(c)``. So what is kept of a law is E and the tilted mass of
# the few cells that rounding left without a mean (`Law.stray`).


CELLS = 2**16
"""No law of one pair has many more cells."""

_TRIALS = 8
"""How often the cells' edges are moved to bring their means together."""


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
        E of the section above.
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


def law_above(pair: Pair, grid: Grid, tilt: float, slack: float) -> Law:
    """Return a law above the pair's.

    Parameters
    ----------
    tilt
        Masses are multiplied by ``e^{tilt i}``.
    slack
        The lattice is moved up by so much, so that atoms on it but for rounding are below it.
    """
    edges = grid.points()
    laid = cells(pair, edges)
    # the slack moves the lattice up first, which is outward for an upper law
    masses, strays, _ = _spread_cells(laid, edges, grid.step, slack)
    # what lies above the grid has infinite loss: it is added to delta
    lost = 0.0 if edges[-1] >= pair.top() else laid.over * (1 + 1e-9) + 1e-300
    return _law(pair, grid, masses, strays, tilt, (grid.anchor, slack), lost, laid.turns)


def _spread_cells(laid: Cells, edges: Array, h: float, slack: float) -> tuple[Array, Array, Array]:
    """Return the masses of cells at the points beside each, and those misplaced down, and up.

    They begin at the point before the first edge and end at the one after the last. Masses
    misplaced are kept as errors (`Law.stray`), at the points to which they are moved.
    """
    # of each cell: how far its mean lies from the point on its left, in integer steps and a rest
    away = laid.means(edges[:-1]) - slack
    # a mean outside of its cell, by rounding, is placed in the cell beside it; without a mean the
    # mass goes wholly to the right, its largest loss
    moved = np.where(laid.faint, 0, np.clip(np.floor(away / h), -1, 1))
    within = np.where(laid.faint, h, away - moved * h)
    # two atoms around the mean of r under Q with the same mass under P and under Q: weight u of P
    # to the right solves (1 - u) + u e^-h = e^-within
    share = np.expm1(-np.clip(within, 0.0, h)) / math.expm1(-h)  # what goes to the right
    masses = np.zeros(len(edges) + 2)
    at = np.arange(1, len(edges)) + moved.astype(int)
    masses += np.bincount(at, laid.p * (1 - share), len(masses))
    masses += np.bincount(at + 1, laid.p * share, len(masses))
    # losses below the grid move up to its first edge: outward
    masses[1] += laid.under
    # a mean more than one cell away breaks the spread
    strays = []
    for far in (within > h * (1 + 1e-9), laid.faint | (within < -1e-9 * h)):
        some = far & (laid.p > 0)
        each = np.zeros(len(masses) if np.any(some) else 0)
        np.add.at(each, at[some] + 1, laid.p[some])
        strays.append(each)
    return masses, strays[0], strays[1]


def laws_of_spread_cells(
    pair: Pair, grid: Grid, tilt: float
) -> tuple[Law, Law, tuple[float, float]]:
    """Return the law of a pair of which each loss is spread over the points beside it.

    The second law has the same masses, as an estimate from below: masses that are not where such
    spreading puts them are its errors. Losses above the grid are put on its last point and at
    infinity, so that the masses under P and under Q are kept as well; what is at infinity is
    `Law.lost`. The last numbers returned are that rounded down, and the mass above the grid.
    """
    edges = grid.points()
    laid = cells(pair, edges)
    masses, down, up = _spread_cells(laid, edges, grid.step, 0.0)
    least = most = 0.0
    if edges[-1] < pair.top():
        held = math.exp(min(700.0, float(edges[-1]))) * laid.beyond
        wrong = (pair.tail_error() + 8 * UNIT * (4 + abs(float(edges[-1])))) * (laid.over + held)
        masses[-2] += min(held, laid.over)
        most = max(0.0, laid.over - held) + wrong + 1e-300
        least = max(0.0, laid.over - held - wrong - 1e-300)
    above = _law(pair, grid, masses, down, tilt, (grid.anchor, 0.0), most, laid.turns)
    # of cells whose mean lies beside them by rounding, the sums telescope but for as much again
    above = evolve(above, tail_error=3 * above.tail_error)
    if laid.under > 0 or len(up):
        up = up if len(up) else np.zeros(len(masses))
        up[1] += laid.under
    stray = _total(up, tilt, above.centre - above.first, above.log_mass)
    return above, evolve(above, stray=stray, lost=0.0), (least, laid.over * (1 + 1e-9) + 1e-300)


def law_below(pair: Pair, grid: Grid, tilt: float) -> Law:
    """Return a law below the pair's; what lies outside of the grid has no mass."""
    points, h = grid.points(), grid.step
    around, offsets, shift = _aligned(pair, grid, tilt)
    # mass under P that moves to a smaller loss is a lower bound: cells whose mean lies below the
    # common offset go to the point below
    down = offsets < shift
    masses = np.zeros(len(points) + 1)  # from one point before the first
    masses[1:] += np.where(down, 0.0, around.p)
    masses[:-1] += np.where(down, around.p, 0.0)
    # where the mean lies below even that point, the mass is kept as an error (`Law.stray`)
    stray = _stray(around, offsets, shift - h)
    strays = np.zeros(len(masses) if np.any(stray) else 0)
    if len(strays):
        with np.errstate(over="ignore", invalid="ignore"):
            strays[:-1] = np.where(stray, around.q * np.exp(points - h + shift), 0.0)
    return _law(pair, grid, masses, strays, tilt, (grid.anchor, shift), 0.0, around.turns)


@frozen(eq=False)
class Atoms:
    """A finite pair whose losses lie on ``anchor + i * step``, each within ``slack``."""

    pair: FinitePair
    anchor: float
    step: float
    index: NDArray[np.int64]
    slack: float


def law_of_atoms(atoms: Atoms, tilt: float, side: int) -> Law:
    """Return the law of losses on a lattice, above the pair's (side 1) or below it (-1).

    The masses are the pair's own. Every loss moves to this side by at most twice ``slack``: moving
    mass under P to a larger loss is an upper bound, to a smaller one a lower bound.
    """
    p, first = np.array(atoms.pair.p), int(atoms.index[0])
    masses = np.bincount(atoms.index - first, p).astype(np.float64)
    centre, log_mass, weights, steps = _tilted(masses, tilt)
    total = float(weights.sum())
    # what is 0 was below the least float
    lost = 1e-300 * float(np.count_nonzero(p == 0))
    return Law(
        first=first,
        weights=weights / total,
        log_mass=log_mass + math.log(total),
        centre=first + centre,
        tilt=tilt,
        offset=(atoms.anchor, side * atoms.slack),
        error=atoms.pair.error + 4 * UNIT * (steps + len(p)) + 1e-290 / total,
        tail_error=0.0,
        stray=0.0,
        lost=lost,
    )


def laws_of_spread_atoms(pair: FinitePair, grid: Grid, tilt: float) -> tuple[Law, Law]:
    """Return the law of atoms that are spread over the lattice, each to the points beside it.

    As in `law_above` an atom keeps its masses under P and under Q, but for a move of its loss by
    rounding: up in the first law, down in the second. Atoms below the grid's anchor move up to it;
    in the second law they are not meant to be there (`Law.stray`).
    """
    losses, p = np.array(pair.losses), np.array(pair.p)
    h, few = grid.step, losses < grid.anchor
    if few.any():
        losses = np.append(grid.anchor, losses[~few])
        p = np.append(float(p[few].sum()), p[~few])
    at = np.floor((losses - grid.anchor) / h)
    within = np.clip((losses - grid.anchor) - at * h, 0.0, h)
    share = np.expm1(-within) / math.expm1(-h)  # what goes to the right
    index = at.astype(np.int64)
    masses = np.zeros(int(index[-1]) + 2)
    masses += np.bincount(index, p * (1 - share), len(masses))
    masses += np.bincount(index + 1, p * share, len(masses))
    centre, log_mass, weights, steps = _tilted(masses, tilt)
    total = float(weights.sum())
    if not 0 < total < math.inf:
        raise InapplicableError(f"{pair!r} has no mass on its lattice")
    # of the losses, of their places in the cells, and of the shares, which are the next loss's
    largest = float(np.abs(pair.losses).max()) + abs(grid.anchor) + h
    slip = largest * (pair.loss_error * (1 + 1e-9) + 16 * UNIT)
    above = Law(
        first=0,
        weights=weights / total,
        log_mass=log_mass + math.log(total),
        centre=centre,
        tilt=tilt,
        offset=(grid.anchor, slip),
        error=pair.error + 4 * UNIT * (steps + 8 + len(p)) + 1e-290 / total,
        tail_error=0.0,
        stray=0.0,
        lost=1e-300 * float(np.count_nonzero(p == 0)),
    )
    # the tilted mass of what is not meant to be there, which is at index 0
    stray = float(weights[0]) / total * (1 + 1e-9) + 1e-290 if few.any() else 0.0
    return above, evolve(above, offset=(grid.anchor, -slip), stray=stray)


def _aligned(pair: Pair, grid: Grid, tilt: float) -> tuple[Cells, Array, float]:
    """Return cells around the points, the offsets of their means, and the common offset.

    Any edges serve; halfway between the points they leave offsets of ``O(step^2)`` that differ
    from cell to cell, so they are moved until the means agree. No edge moves so far that the
    point below its cell, moved by the common offset, lies inside the cell.
    """
    points, h = grid.points(), grid.step
    middles = grid.points(0.5)[:-1]
    edges = np.concatenate([[points[0] - h / 2], middles, [points[-1] + h / 2]])
    best: tuple[float, Cells, Array, float] | None = None
    for _ in range(_TRIALS):
        around = cells(pair, edges)
        # a cell without a mean counts as one step below its point, which is below all of its losses
        offsets = np.where(around.faint, -h, around.means(points))
        weights = _likely(around.p, tilt)
        shift, cost = _shift(offsets, weights, h)
        if np.any(_stray(around, offsets, shift - h)):
            cost = math.inf if best else h
        slow = best is not None and cost > 0.9 * best[0]
        if best is None or cost < best[0]:
            best = cost, around, offsets, shift
        if slow or cost < 0.1 * h**2:
            break
        # a little above the median: at once where one cell holds it, else with care
        margin = cost if weights.sum() < 2 * weights.max() else min(cost, h / 50)
        moved = np.clip(_median(offsets, weights) + margin - offsets, -h / 2, h / 2)
        inner = edges[1:-1] + (moved[1:] + moved[:-1]) / 2
        edges[1:-1] = np.clip(inner, middles - 0.45 * h, middles + 0.45 * h)
    assert best is not None
    return best[1:]


def _stray(around: Cells, offsets: Array, least: float) -> Flags:
    """Return the cells whose means lie below ``least`` by more than rounding."""
    return np.asarray((offsets < least * (1 + 1e-9)) & ~around.faint & (around.q > 0), dtype=bool)


def _likely(masses: Array, tilt: float) -> Array:
    """Return the tilted masses, roughly, the largest of them 1."""
    with np.errstate(divide="ignore"):
        logs = np.log(masses) + tilt * np.arange(len(masses))
    if not math.isfinite(logs.max()):  # no mass on the grid: any weights serve, as all of them do
        return np.ones(len(masses))
    return np.asarray(np.exp(logs - logs.max()), dtype=np.float64)


def _heaviest(weights: Array) -> NDArray[np.intp]:
    """Return the places of the weights that count, or of some of them: a good guess is enough."""
    some = np.flatnonzero(weights > 1e-20)
    if len(some) > 8192:
        heavy = some[np.argpartition(weights[some], -64)[-64:]]
        some = np.unique(np.concatenate([heavy, some[:: len(some) // 8192 + 1]]))
    return some


def _median(offsets: Array, weights: Array) -> float:
    some = _heaviest(weights)
    order = some[np.argsort(offsets[some])]
    mass = np.cumsum(weights[order])
    return float(offsets[order[np.searchsorted(mass, mass[-1] / 2)]])


def _shift(offsets: Array, weights: Array, step: float) -> tuple[float, float]:
    """Return the common offset at which least is lost, and the mean of what is lost there.

    A cell whose offset o is at least the common s loses ``o - s``, any other ``o - s + step``.
    """
    some = _heaviest(weights)
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


def _law(
    pair: Pair,
    grid: Grid,
    masses: Array,
    strays: Array,
    tilt: float,
    offset: tuple[float, float],
    lost: float,
    turns: int,
) -> Law:
    """Return the tilted law of masses from the point before the grid's first on.

    Each turn between cells that are placed by their means and cells that are not breaks the sums
    that telescope: it costs two more tails.
    """
    centre, log_mass, weights, steps = _tilted(masses, tilt)
    total = float(weights.sum())
    if not 0 < total < math.inf:
        raise InapplicableError(f"{pair!r} has no mass on its lattice")
    log_mass += math.log(total)
    largest = max(1.0, float(np.abs(grid.points()[[0, -1]]).max())) + grid.step
    return Law(
        first=grid.first - 1,
        weights=weights / total,
        log_mass=log_mass,
        centre=grid.first - 1 + centre,
        tilt=tilt,
        offset=offset,
        error=4 * UNIT * steps + 1e-290 / total,
        # E of the section above, twice more for each place where the sum does not telescope; points
        # are known within units of their size
        tail_error=(1 + 2 * turns) * (pair.tail_error() + 1e-15 + 32 * UNIT * (1 + largest)),
        stray=_total(strays, tilt, centre, log_mass),
        lost=lost + 4e-300,  # tails are also wrong by 1e-300
    )


def _tilted(masses: Array, tilt: float) -> tuple[int, float, Array, float]:
    """Return a centre, a log-scale, ``masses e^{tilt (i - centre)}`` on it, and their error.

    The error is a mean over the weights, in units of ``4 UNIT``.
    """
    count = len(masses)
    # no weight overflows
    if tilt * count < 60:
        centre = count // 2
        return centre, 0.0, masses * exponentials(tilt, -centre, count), 16 + tilt * count
    with np.errstate(divide="ignore"):
        logs = np.log(masses)
    centre = int(np.argmax(logs + tilt * np.arange(count)))
    slopes = tilt * (np.arange(count) - centre)
    weights = np.exp(logs + slopes - logs[centre])
    some = weights > 0
    sizes = np.abs(logs[some]) + np.abs(slopes[some]) + abs(logs[centre])
    # the exponent's rounding is its size in units, averaged over the weights as the l1 error is
    steps = 16 + float(weights[some] @ sizes) / max(float(weights.sum()), 1e-300)
    return centre, float(logs[centre]), weights, steps


def _total(strays: Array, tilt: float, centre: int, log_mass: float) -> float:
    """Return the tilted mass of what has strayed, over that of the law."""
    with np.errstate(divide="ignore"):
        logs = np.log(strays) + tilt * (np.arange(len(strays)) - centre) - log_mass
    return float(np.exp(np.minimum(logs, 700.0)).sum()) if len(strays) else 0.0
