"""Where a falling function crosses zero, as a bracket that its own signs prove."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from accountants.rounding import Array


def crossing(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return (left, right) with ``function(left) > 0 >= function(right)``, close together.

    Parameters
    ----------
    function
        Falling, with ``function(low) > 0 >= function(high)``; rounding may blur its sign near
        the root, so both ends are checked by evaluation, and moved outward until they hold.
    low, high
        Finite, ``low < high``.
    """
    from scipy.optimize import brentq  # here: it takes most of the package's import time

    def clamped(x: float) -> float:
        return max(-1e6, min(1e6, function(x)))

    root = float(brentq(clamped, low, high, xtol=1e-300, rtol=1e-15, maxiter=200, disp=False))
    # the root is a guess; `around` evaluates both ends
    return around(function, root, low, high)


def around(
    function: Callable[[float], float], root: float, low: float, high: float
) -> tuple[float, float]:
    """Return (left, right) as `crossing` does, from a good guess of the root."""
    root = min(high, max(low, root))
    width = 2e-15 * abs(root) + 5e-324
    left, right = max(low, root - width), min(high, root + width)
    # moved outward until the sign is seen
    while left > low and not function(left) > 0:
        width *= 4
        left = max(low, root - width)
    width = 2e-15 * abs(root) + 5e-324
    while right < high and function(right) > 0:
        width *= 4
        right = min(high, root + width)
    return left, right


def enclosure(
    profile: Callable[[Array], tuple[Array, Array]], delta: float, left: float, right: float
) -> tuple[float, float]:
    """Return where a falling profile in [0, 1], known by bounds, crosses ``delta``.

    Parameters
    ----------
    profile
        From points to lower and upper bounds.
    delta
        In (0, 1).
    left, right
        Finite, ``left < right``.

    Returns
    -------
    tuple
        Two points between those: ``left``, or one whose lower bound is above ``delta``, and
        ``right``, or one whose upper bound is not; close together where the bounds are.
        Each round asks some points around the crossing of the last bounds' chord, and some that
        shorten the bracket in any case.
    """
    points = np.array([left, right])
    ends: list[tuple[float, float]] = []
    for _ in range(64):
        low, high = profile(points)
        # the profile falls: the last point whose lower bound is above, the first whose upper is not
        before, left = right - left, float(points[low > delta].max(initial=left))
        right = float(points[(high <= delta) & (points >= left)].min(initial=right))
        width = right - left
        if not width > 1e-11 * right or (len(points) > 2 and width > 0.3 * before):
            break
        known = sorted([*ends, *zip(points.tolist(), high.tolist(), strict=True)])
        after = next((i for i, (_, value) in enumerate(known) if value <= delta), 0)
        ends = known[max(0, after - 1) : after + 1]
        around = _chord_root(ends, delta, left, right) + width * _OFFSETS
        points = np.sort(np.clip(np.append(around, left + width * _INSIDE), left, right))
    return left, right


_INSIDE = np.array([0.25, 0.5, 0.75])
_OFFSETS = np.ldexp([-1.0, -1, -1, 0, 1, 1, 1], [-5, -12, -24, 0, -24, -12, -5])


def _chord_root(ends: list[tuple[float, float]], delta: float, left: float, right: float) -> float:
    """Return about where a profile crosses ``delta``, from a point before and one after that.

    On their chord, that of the logarithms where the profile does not fall to almost nothing.
    """
    if len(ends) < 2 or not ends[0][1] > delta >= ends[1][1]:
        return (left + right) / 2
    (x, a), (y, b) = ends
    if b > 1e-3 * delta:
        a, b, delta = math.log(a), math.log(b), math.log(delta)
    return min(right, max(left, x + (y - x) * (a - delta) / (a - b)))
