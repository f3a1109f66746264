"""The coldest ridge posterior whose loss a Gaussian of a given mu dominates, but for a failure.

The losses of all pairs that bounds allow (`adaptive_dp.instance.worst_posterior`) are to be at most
``failure + (1 - failure) delta_mu(epsilon)`` at every epsilon, delta_mu the profile of N(0, 1)
against N(mu, 1). At a negative epsilon the same then follows from the other direction:
``delta(-e) = 1 - e^-e + e^-e delta'(e)`` for both. So the sample composes as a Gaussian does,
by the sum of squares, instead of by the sum of epsilons: of the total's mu the bounds that it
follows take a few per cent.

Both sides fall in epsilon. They are compared between the points of a grid: the left at its lower
end, the right at its upper; beyond the last point the failure alone must do.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accountants.notions.gaussian import gdp_profile
from accountants.rounding import Array
from adaptive_dp.instance.worst_posterior import RidgeBounds, worst_curve

_POINTS = 800
"""The grid goes on to a little after where the Gaussian's own loss is a failure's."""


def coldest(bounds: RidgeBounds, mu: float, failure: float) -> float:
    """Return the largest gamma that is `within` the promise, from below; 0 where none is.

    What is returned has been checked.

    Examples
    --------
    >>> known = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(coldest(known, mu=0.2, failure=1e-7), 4)
    0.8206
    """
    # at a small leverage the gap is mu: gamma residual^2 / curvature = mu^2
    high = 2 * mu * mu * (bounds.curvature + 1) / bounds.residual**2
    low = high
    while not within(low, bounds, mu, failure):
        low /= 4
        if low < high * 1e-12 or low < 1e-280:
            return 0.0
    high = min(high, 4 * low)
    while high > low * (1 + 1e-6):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, bounds, mu, failure) else (low, middle)
    return low


def within(gamma: float, bounds: RidgeBounds, mu: float, failure: float) -> bool:
    """Return whether the Gaussian of ``mu`` dominates every pair, outside of the failure.

    Parameters
    ----------
    gamma
        Positive: the posterior's precision is ``gamma (X'X + ridge I)``.
    bounds
        Of the smaller of two neighbours (``removals=False``).
    mu, failure
        The promise: positive, and a probability.
    """
    points, promised = _promise(mu, failure)
    found = worst_curve(points, gamma, bounds)
    return bool(np.all(found <= down_all(failure + (1 - failure) * promised)))


@lru_cache(maxsize=64)
def _promise(mu: float, failure: float) -> tuple[Array, Array]:
    """Return the grid, and lower bounds of the Gaussian's profile at each next point."""
    middle, far = mu * mu / 2, mu * 1.25 * math.sqrt(-2 * math.log(failure))
    near = np.linspace(0.0, middle, 40, endpoint=False)
    points = np.concatenate([near, middle + np.linspace(0.0, far, _POINTS)])
    lower = [gdp_profile(mu, float(e)).lower for e in points[1:]]
    return points, np.array([*lower, 0.0])


def down_all(values: Array) -> Array:
    """Return numbers below ``values`` and their rounding."""
    return values * (1 - 2.0**-50)
