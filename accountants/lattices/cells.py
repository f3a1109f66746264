"""Masses of a pair's losses between the edges of cells, and each cell's mean of dP/dQ."""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.pair import Pair
from accountants.rounding import UNIT, Array

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
    faint
        Where the mass under Q is too small or too blurred to place a cell by its mean.
    """

    p: Array
    q: Array
    under: float
    over: float
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
    return Cells(p, q, float(p_below[0]), float(p_above[-1]), faint)


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
