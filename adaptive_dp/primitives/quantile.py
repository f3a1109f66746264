"""The exponential mechanism on an interval, for scores that are constant between data points."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import BoundedRange, PrivacyLoss
from adaptive_dp.data.grid import step
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.instance import Ranked
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.choice import choose
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.scores import EXACT, cost, finite, gaps

POINTS = 30
"""The interval is cut into at least 2^30 steps, where floats are as fine as that."""


class QuantileExponential(Mechanism):
    """Choose a point t of a grid on [lower, upper], in proportion to ``e^{q(t) / b}``.

    The grid's step is a power of two that the declared bounds alone determine: about 2^-30 of the
    width. The chance of an interval between data points is the number of grid points in it, a whole
    number, times ``e^{q/b}``; inside of it all points are equal. So the law is exact, and every
    point has a positive chance, whatever the data: the same numbers are reached by neighbours.
    The loss is that of `Exponential`: ``epsilon = 2 Delta / b``.

    Parameters
    ----------
    scale
        b, in the units of the score: ranks, for a quantile.

    References
    ----------
    McSherry and Talwar 2007, Thm 6; Smith 2011, Alg. 2 (of quantiles, by intervals).

    Examples
    --------
    >>> QuantileExponential(scale=2.0).loss(distance=0.5)
    BoundedRange(epsilon=0.5)
    """

    norm: ClassVar[float] = math.inf
    reads: ClassVar[type] = Ranked
    spans: ClassVar[bool] = True
    theorem: ClassVar[str] = "McSherry & Talwar 2007, Thm 6; Smith 2011, Alg. 2"
    sampler: ClassVar[str] = f"exponential mechanism on a power-of-two grid, {EXACT}"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: Ranked, stream: Stream) -> NDArray[Any]:
        """Return the chosen point."""
        edges, scores = value.steps()
        unit, first, last = points(float(edges[0]), float(edges[-1]))
        if first > last:  # no point of the grid is inside: as the bounds alone decide
            return np.array(float(edges[0]))
        ends = np.floor(edges / unit).astype(np.int64)
        ends[0] = first - 1
        counts = np.diff(ends)
        some = np.flatnonzero(counts)
        exponents, exact = gaps(finite(scores)[some], self.scale)
        found = some[choose(exponents, exact, counts[some], stream)]
        return np.array((int(ends[found]) + 1 + _below(int(counts[found]), stream)) * unit)

    def loss(self, distance: float, span: float | None = None) -> PrivacyLoss:
        """Return the loss between scores that move by at most ``distance``."""
        return BoundedRange(cost(distance, span, self.scale))


def points(lower: float, upper: float) -> tuple[float, int, int]:
    """Return the grid's step, and the first and last of its multiples in [lower, upper].

    No multiple is more than 2^53 steps from 0, so that each is a float.
    """
    unit = max(step(upper - lower, POINTS), step(max(abs(lower), abs(upper)), 52))
    first, last = math.ceil(Fraction(lower) / Fraction(unit)), math.floor(upper / unit)
    return unit, first, last


def _below(count: int, stream: Stream) -> int:
    """Return a uniform whole number below ``count``, at most 2^64: of words in whole multiples."""
    whole = (2**64 // count) * count
    while (found := int(stream.words(1)[0])) >= whole:
        pass
    return found % count
