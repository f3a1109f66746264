"""How far each point's rank is from a quantile's: the score of a quantile."""

from __future__ import annotations

import numpy as np
from attrs import frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.instance import Floats, Ranked

UNIT = 2.0**-20
"""A quantile's share of the rows is rounded to multiples of this, so that scores are exact."""


@frozen(repr=False, eq=False)
class Ranks(Ranked):
    """Of a point t, ``-|#{x < t} - q n|``: 0 at the q-quantile of n values.

    Exact for fewer than 2^32 values, q being a multiple of `UNIT`.

    Parameters
    ----------
    values
        In ascending order, inside the bounds, shape (n,).
    lower, upper
        The declared bounds.
    q
        Between 0 and 1; `share` rounds it.
    """

    values: Floats
    lower: float
    upper: float
    q: float

    def __repr__(self) -> str:
        return "<private ranks>"

    def steps(self) -> tuple[Floats, Floats]:
        """Return bounds and values as edges; above the i-th value i values are smaller."""
        edges = np.concatenate([[self.lower], self.values, [self.upper]])
        size = len(self.values)
        return edges, -np.abs(np.arange(size + 1, dtype=np.float64) - share(self.q) * size)


def share(q: float) -> float:
    """Return the multiple of `UNIT` next to q."""
    return round(q / UNIT) * UNIT


def sensitivity(q: float, change: Change) -> float:
    """Return the most that one unit's change moves any point's score.

    A row that appears below t moves ``#{x < t} - q n`` by ``1 - q``, any other by ``-q``. Where a
    rows are exchanged for b, it moves by between ``-(1-q) a - q b`` and ``(1-q) b + q a``: never by
    more than ``max(a, b)``. Both are attained.
    """
    rounded = share(q)
    return change.rows * (1.0 if change.replaced else max(rounded, 1 - rounded))
