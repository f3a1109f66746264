"""Rows of a regression, features and target shortened together, as whole steps.

A row whose features are longer than C is multiplied by ``C / |x|``, its target too. That is a
weight, a function of the features alone: where the target is linear in them, the coefficients stay
what they were, while a long row can move no sum further than one of length C. To shorten the
features only would bend the line.

Everything here looks at each row by itself, so that a row's share of a sum is the same whatever the
other rows are.
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_dp.data import Columns, grid
from adaptive_dp.queries.columns import Floats, Selected
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.gram import inside
from adaptive_dp.queries.vectors import onto_unit

GOAL = 19
"""Targets in [-1, 1] are whole multiples of 2^-19."""

UNIT = 20
"""Features in the unit ball are whole multiples of 2^-20."""


def weighted(
    selected: Selected, columns: Columns, target: str, bounds: Interval, radius: float
) -> tuple[Floats, Floats]:
    """Return features in steps of 2^-20 and targets in steps of 2^-19, as whole floats.

    Parameters
    ----------
    selected
        The features' vectors, shape (n, d).
    columns
        The block of rows that they and the target are computed from.
    target, bounds
        The target's column, mapped from its bounds onto [-1, 1].
    radius
        C: longer rows are shortened to it; then features are divided by it.

    Returns
    -------
    Features of norm at most ``1 - d 2^-20``, shape (n, d), which leaves room for the rounding of
    totals, and targets of size at most 1, shape (n,).
    """
    goal = onto_unit(columns[target], bounds)
    shorter: float | Floats
    if selected.box and selected.box.longest <= radius:  # as the plan says: no row is longer
        shorter = _room(selected.box.width) / radius
        steps = np.empty((selected.box.width, len(goal))).T
        selected.box.write(columns, shorter * 2.0**UNIT, steps.T)
    else:
        vectors, lengths = _measured(selected.of(columns))
        shorter = _room(vectors.shape[1]) / np.maximum(lengths, radius)
        steps = vectors * (shorter * 2.0**UNIT)[:, None]
    return np.rint(steps, out=steps), np.rint(goal * (shorter * (radius * 2.0**GOAL)))


def _room(width: int) -> float:
    """Return the length of the longest row; it keeps room for being rounded, sqrt(d) / 2 steps."""
    largest = inside(1.0, width, UNIT) - math.sqrt(width) * 2.0 ** -(UNIT + 1)
    return max(0.0, largest) * (1 - 2.0**-40)


def _measured(vectors: Floats) -> tuple[Floats, Floats]:
    """Return vectors and their lengths; where a length is no number, what is none becomes 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = np.sqrt(grid.squares(vectors))
        if not np.isfinite(lengths).all():
            vectors = np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
            lengths = np.sqrt(grid.squares(vectors))
    return vectors, lengths
