"""Where a falling function crosses zero, as a bracket that its own signs prove."""

from __future__ import annotations

from collections.abc import Callable


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
    return around(function, root, low, high)


def around(
    function: Callable[[float], float], root: float, low: float, high: float
) -> tuple[float, float]:
    """Return (left, right) as `crossing` does, from a good guess of the root."""
    root = min(high, max(low, root))
    width = 2e-15 * abs(root) + 5e-324
    left, right = max(low, root - width), min(high, root + width)
    while left > low and not function(left) > 0:
        width *= 4
        left = max(low, root - width)
    width = 2e-15 * abs(root) + 5e-324
    while right < high and function(right) > 0:
        width *= 4
        right = min(high, root + width)
    return left, right
