"""Exact noise on real numbers: integer multiples of a step that is a power of two.

The value is rounded to an integer n of steps, the noise is an integer K of steps drawn exactly, and
what is released is n + K, correctly rounded to a float and clamped to the largest: a function of
the integer n + K alone. So the low bits of an output reveal no more than it does.

If K is continuous noise Z rounded to integers, then n + K is n + Z rounded: a function of the
mechanism that adds continuous noise to n steps, whose theorem holds as it stands. What rounding
does to values is a matter of their distance: ``|round(a) - round(b)| <= |a - b| + 1`` in steps,
since each moves by at most a half; and nothing where values are multiples of the step anyway.
"""

from __future__ import annotations

import math
import sys

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.exact import Floats, Integers

BITS = 26
"""A step is between 2^-27 and 2^-26 of the noise's scale: a rounding adds less than 2e-8 of it."""

FAR = 2.0**120
"""From so many steps on, noise of up to 2^62 of them is below half of a float's last bit."""

LARGEST = sys.float_info.max


def step(scale: float) -> float:
    """Return the largest power of two at most ``scale / 2^BITS``; never below the least float.

    It depends on the noise's scale alone, which is public.
    """
    # frexp gives scale = m 2^e with 1/2 <= m < 1, so 2^(e-1) is the largest power of two at most
    # the scale; 2^-1074 is the least positive float
    return math.ldexp(1.0, max(-1074, math.frexp(scale)[1] - 1 - BITS))


def rounding_distance(of: float, unit: float) -> float:
    """Return the most that rounding to ``unit`` moves two coordinates apart.

    Parameters
    ----------
    of
        A step of which the coordinates are integer multiples; 0 where none is known.
    unit
        The step to which they are rounded.
    """
    # multiples of the step are not moved; else each end moves by at most half a step
    return 0.0 if of > 0 and math.fmod(of, unit) == 0 else unit


def noisy(value: NDArray[np.float64], noise: Integers, unit: float) -> Floats:
    """Return ``value`` rounded to steps, plus ``noise`` steps; see the module.

    NaN, which no query returns, counts as 0. Adding two floats that are integers rounds their sum
    correctly; noise of more than 2^53 steps may not be a float, and is added as an integer. Where
    the value has 2^120 steps or more, the rounded sum is the value.
    """
    plain = np.reshape(value, -1)
    if not np.isfinite(plain).all():
        # an infinite value becomes the largest float, so that it is released as a clamped number
        plain = np.nan_to_num(plain, posinf=LARGEST, neginf=-LARGEST)
    # an overflow counts as large, below; a product beyond the floats is clipped to the largest
    with np.errstate(over="ignore"):
        steps = np.rint(plain / unit)
        large = np.abs(steps) >= FAR
        if large.any():
            # steps of large values are set to 0 here, and the value itself is returned below
            steps[large] = 0.0
        total: Floats = steps + noise
        for i in np.flatnonzero(np.abs(noise) > 2**53):
            # steps below 2^120 are an exact int; float() rounds the exact sum once
            total[i] = float(int(steps[i]) + int(noise[i]))
        total *= unit
    np.clip(total, -LARGEST, LARGEST, out=total)
    if large.any():
        total[large] = plain[large]
    return total.reshape(np.shape(value))
