"""Two-sided geometric noise on whole numbers, and the test whether a distance is large.

Distances between data sets are whole numbers, so noise on them can be too: masses proportional
to ``r^|k|`` with ``r = e^-epsilon`` (Ghosh, Roughgarden and Sundararajan 2009), and

    P(N > T) = r^{T+1} / (1 + r)   for T >= -1.
"""

from __future__ import annotations

import math

from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.fine_uniform import fine_uniform

ROUNDING = 1e-12
"""More than what rounding adds to the log-ratio of two of the noise's masses."""


def integer_noise(epsilon: float, stream: Stream) -> int:
    """Return the difference of two geometric variables, ``P(G >= k) = r^k``.

    The binary digits of G are independent: the i-th is 1 with odds ``r^{2^i}`` to 1. Each is a coin
    of a float probability, drawn exactly (`fine_uniform` is rounded down to floats), and each
    float is within a relative 2^-50 of its probability. Of at most 60 digits and two variables
    that is below `ROUNDING`, for so much less than ``epsilon`` the noise is made. Digits whose
    probability is below e^-190 are 0.
    """
    used = epsilon - ROUNDING
    return _geometric(used, stream) - _geometric(used, stream)


def _geometric(epsilon: float, stream: Stream) -> int:
    total, digit = 0, 0
    while math.ldexp(epsilon, digit) < 190:
        odds = math.exp(-math.ldexp(epsilon, digit))
        total += (fine_uniform(stream) < odds / (1 + odds)) << digit
        digit += 1
    return total


def threshold(epsilon: float, delta: float) -> int:
    """Return the least ``T >= 0`` with ``P(N > T) <= delta``.

    ``T + 1 >= log(1 / (delta (1 + r))) / epsilon``: a little above ``log(1/(2 delta))/epsilon``.
    """
    used = epsilon - ROUNDING
    least = -(math.log(delta * (1 - 1e-11)) + math.log1p(math.exp(-used))) / used
    return max(0, math.ceil(least * (1 + 1e-12)) - 1)


def passes(distance: int, epsilon: float, delta: float, stream: Stream) -> bool:
    """Return whether ``distance + N > T``: at distance 0 with probability at most ``delta``.

    Its laws at distances that differ by 1 are within ``e^epsilon``. Distances far above T count
    as ``T + 100/epsilon``, so that there is no distance at which it cannot fail.
    """
    least = threshold(epsilon, delta)
    near = min(distance, least + math.ceil(100 / epsilon))
    return near + integer_noise(epsilon, stream) > least
