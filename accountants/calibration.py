"""Solving one free number of a term, on the certified upper bound.

The result is the private end of a bracket, so the target is never exceeded.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from accountants.errors import DomainError, positive


def least_noise(
    epsilon_at: Callable[[float], float],
    target: float,
    *,
    start: float = 1.0,
    digits: float = 1e-10,
) -> float:
    """Return the least noise multiplier, to a relative ``digits``, that stays within a target.

    Parameters
    ----------
    epsilon_at
        The certified upper bound at a noise multiplier; falling in it.
    target
        The epsilon not to exceed, positive.
    start
        Where the search begins.
    digits
        Relative width of the final bracket, whose larger (more private) end is returned.

    Raises
    ------
    DomainError
        If no multiplier between 1e-12 and 1e12 reaches the target.

    Examples
    --------
    >>> noise = least_noise(lambda b: 3 / b, target=1.5)
    >>> 2 <= noise < 2.0000001
    True
    """
    target, digits = positive("target", target), max(positive("digits", digits), _FINEST)
    low = high = min(max(math.log(positive("start", start)), _LEAST), _MOST)
    gap = _gap(epsilon_at, target)
    at_low = at_high = gap(high)
    step = math.log(2.0)
    while at_high > 0:
        if high >= _MOST:
            raise DomainError(
                f"no noise up to 1e12 times the weights reaches epsilon <= {target}: releases "
                "whose noise is fixed, or failures, already cost more; free more of them"
            )
        low, at_low, high, step = high, at_high, min(high + step, _MOST), step * 2
        at_high = gap(high)
    while at_low <= 0 and low > _LEAST:
        high, at_high, low, step = low, at_low, max(low - step, _LEAST), step * 2
        at_low = gap(low)
    if at_low <= 0:
        return math.exp(low)
    return math.exp(_private_end(gap, (low, at_low), (high, at_high), digits))


_LEAST, _MOST = math.log(1e-12), math.log(1e12)
_FINEST = 1e-14
"""Below this a logarithm of the noise has no digits."""

_NEAREST = 1e-300
"""The gap of an epsilon above the target whose logarithm is the target's."""

Point = tuple[float, float]


def _private_end(gap: Callable[[float], float], left: Point, right: Point, digits: float) -> float:
    """Return the right end of a bracket of the root, where the gap was seen not to be positive.

    Illinois' variant of regula falsi on log(epsilon / target), which is close to linear: an end
    kept twice in a row counts half. Where two steps have not halved the bracket, the next one
    does, so there are at most three for each of its bits.
    """
    (low, at_low), (high, at_high) = left, right
    widths, moved = [math.inf, math.inf], 0
    while high - low > digits:
        width = high - low
        cut = high - at_high * width / (at_high - at_low) if at_high < 0 else math.inf
        slow = width > widths[0] / 2
        if slow or not low < cut < high:
            cut = (low + high) / 2
        elif moved:  # shorter steps would creep along the end that is close to the root
            cut = min(max(cut, low + digits / 2), high - digits / 2)
        if not low < cut < high:
            break
        widths = [math.inf, math.inf] if slow else [widths[1], width]
        value = gap(cut)
        if value > 0:
            low, at_low, at_high = cut, value, at_high / 2 if moved < 0 else at_high
            moved = -1
        else:
            high, at_high, at_low = cut, value, at_low / 2 if moved > 0 else at_low
            moved = 1
    return high


def _gap(epsilon_at: Callable[[float], float], target: float) -> Callable[[float], float]:
    def gap(log_noise: float) -> float:
        """Return log(epsilon / target), positive exactly where epsilon is not within the target."""
        value = epsilon_at(math.exp(log_noise))
        if not value < math.inf:
            return 50.0
        # a difference of logarithms: the quotient of a tiny cost would underflow
        found = math.log(value) - math.log(target) if value > 0 else -50.0
        return min(0.0, found) if value <= target else max(_NEAREST, found)

    return gap
