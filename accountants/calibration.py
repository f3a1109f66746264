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
    target, digits = positive("target", target), positive("digits", digits)
    low = high = math.log(positive("start", start))
    gap = _gap(epsilon_at, target)
    step = math.log(2.0)
    least, most = math.log(1e-12), math.log(1e12)
    while gap(high) > 0:
        low, high, step = high, min(high + step, most), step * 2
        if low >= most:
            raise DomainError(
                f"no noise up to 1e12 times the weights reaches epsilon <= {target}: releases "
                "whose noise is fixed, or failures, already cost more; free more of them"
            )
    if low == high:
        step = math.log(2.0)
        while gap(low) <= 0:
            high, low, step = low, max(low - step, least), step * 2
            if high <= least:
                break
    # Illinois' variant of regula falsi on log(epsilon / target), which is close to linear
    at_low, at_high = gap(low), gap(high)
    while high - low > digits:
        cut = (
            high - at_high * (high - low) / (at_high - at_low) if at_high < 0 < at_low else math.inf
        )
        if not low + 0.001 * (high - low) < cut < high - 0.001 * (high - low):
            cut = (low + high) / 2
        value = gap(cut)
        if value > 0:
            low, at_low, at_high = cut, value, at_high / 2
        else:
            high, at_high, at_low = cut, value, at_low / 2
    result = math.exp(high)
    while epsilon_at(result) > target:  # exp may have rounded to the other side
        result = math.nextafter(result, math.inf)
    return result


def _gap(epsilon_at: Callable[[float], float], target: float) -> Callable[[float], float]:
    def gap(log_noise: float) -> float:
        value = epsilon_at(math.exp(log_noise))
        if math.isinf(value):
            return 50.0
        # a difference of logarithms: the quotient of a tiny cost would underflow
        return math.log(value) - math.log(target) if value > 0 else -50.0

    return gap
