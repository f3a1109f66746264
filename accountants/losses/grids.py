"""Laws spread outward onto a grid: a mass between two points goes to both, its mean kept.

A likelihood ratio r under Q that is spread so has a larger ``E_Q (r - t)_+`` for every t: the
pair of the spread law dominates. A mass that lies near a point of the grid is spread to that
point's two neighbours, so that every share is at least 1/32 and has few relative errors.
"""

from __future__ import annotations

import numpy as np

from accountants.rounding import Array

_NEAR = 1 / 16


def spread(at: Array, mass: Array, grid: Array) -> Array:
    """Return the masses of the points of ``grid``.

    Parameters
    ----------
    at
        Ratios, within the grid, and before its last point but one.
    mass
        Their masses under Q.
    grid
        Rising; from 0, or from a point that no ratio is near.
    """
    low = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 3)
    step = grid[low + 1] - grid[low]
    place = (at - grid[low]) / step
    high = np.where(place > 1 - _NEAR, low + 2, low + 1)
    low = np.where((place < _NEAR) & (low > 0), low - 1, low)
    # the share that keeps the mean
    share = (at - grid[low]) / (grid[high] - grid[low])
    count = len(grid)
    lower = np.bincount(low, mass * (1 - share), minlength=count).astype(np.float64)
    upper = np.bincount(high, mass * share, minlength=count).astype(np.float64)
    total: Array = lower + upper
    return total
