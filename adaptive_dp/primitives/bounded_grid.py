"""Releasing a number on a grid in declared bounds, so that its low bits tell nothing.

Where the scale of noise follows the data, so do the numbers that float noise can reach. So what
is released is rounded to a power of two that the bounds alone determine, clamped to them, and
with probability 2^-32 is any point of the grid instead: each point can then be released whatever
the data. All three are post-processing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.stream import Stream

ANY = 2.0**-32
"""How often any point of the grid is released."""


def step(lower: float, upper: float) -> float:
    """Return the grid's step: between 2^-31 and 2^-30 of the width, or 2^-50 of the bounds."""
    wide = max((upper - lower) * 2.0**-30, max(abs(lower), abs(upper)) * 2.0**-50)
    return math.ldexp(1.0, max(-1022, math.frexp(wide)[1] - 1)) if wide > 0 else 1.0


def on_grid(number: float, lower: float, upper: float, stream: Stream) -> NDArray[np.float64]:
    """Return a number rounded to the grid inside the bounds, or rarely any point of it.

    Where the bounds hold no point of the grid it is the one next to 0 that they are nearest to.
    """
    unit = step(lower, upper)
    low, high = math.ceil(lower / unit), math.floor(upper / unit)
    if low > high:
        low = high = int(lower / unit)
    if math.isnan(number):
        number = lower
    nearest = round(min(max(number, lower), upper) / unit)
    any_point = low + _below(high - low + 1, stream)
    chosen = any_point if bool(stream.bernoulli(ANY, 1)[0]) else min(max(nearest, low), high)
    return np.array(chosen * unit)


def _below(count: int, stream: Stream) -> int:
    """Return a uniform whole number below ``count``, which is below 2^52, to within 2^-64."""
    return int(stream.words(1)[0]) * count >> 64
