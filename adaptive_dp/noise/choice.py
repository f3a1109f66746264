"""An exact choice among weights ``m_i e^{-x_i}``.

A uniform u in [0, 1) falls between two partial sums of the weights over their total. Floats
decide which, nearly always; where u lies too near to a partial sum, more of its bits and
tighter bounds of the weights do (see `adaptive_dp.noise.bernoulli`). So the law is exact: no
weight is lost, however small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.bernoulli import FLOAT_ERROR, exp_bounds
from adaptive_dp.noise.stream import Stream, word

Floats = NDArray[np.float64]
Exact = Callable[[int], Fraction]


def choose(exponents: Floats, exact: Exact, counts: NDArray[np.int64], stream: Stream) -> int:
    """Return i with probability proportional to ``counts[i] e^{-x_i}``.

    Parameters
    ----------
    exponents
        The x as floats, each off by less than 2^-45 of itself; not negative, one of them small.
    exact
        x by its index.
    counts
        Integers from 1 to 2^53.
    stream
        Where bits come from.
    """
    sums = np.cumsum(counts * np.exp(-exponents))
    drawn, total = word(stream), float(sums[-1])
    # exp of an x below 1000 is off by 2^-42 at most, and one of more is nothing here
    slack = total * (8 * FLOAT_ERROR + len(sums) * 2.0**-50)
    below = np.searchsorted(sums, drawn * 2.0**-64 * total - slack, side="right")
    above = np.searchsorted(sums, (drawn + 1) * 2.0**-64 * total + slack, side="right")
    # all that u may be lies between the same two partial sums, whatever the floats lost
    if below == above < len(sums):
        return int(below)
    return _choose_exactly(exact, counts.tolist(), drawn, stream)


def choose_by_logs(logs: Floats, exact: Exact, counts: Sequence[int], stream: Stream) -> int:
    """Return i with probability proportional to ``counts[i] e^{-x_i}``, for counts of any size.

    Parameters
    ----------
    logs
        ``log(counts[i]) - x_i`` as floats, off by less than 2^-31 where they are near the largest.
    exact, stream
        As of `choose`.
    counts
        Positive integers.
    """
    sums = np.cumsum(np.exp(logs - logs.max()))
    drawn, total = word(stream), float(sums[-1])
    slack = total * (2.0**-30 + len(sums) * 2.0**-50)
    below = np.searchsorted(sums, drawn * 2.0**-64 * total - slack, side="right")
    above = np.searchsorted(sums, (drawn + 1) * 2.0**-64 * total + slack, side="right")
    if below == above < len(sums):
        return int(below)
    return _choose_exactly(exact, counts, drawn, stream)


def _choose_exactly(exact: Exact, counts: Sequence[int], drawn: int, stream: Stream) -> int:
    """Return the choice of the uniform number that begins with the word ``drawn``."""
    exponents, bits = [exact(i) for i in range(len(counts))], 64
    while True:
        # u lies in [drawn, drawn + 1] 2^-bits, and S_i, the sum of the first i + 1 weights, in
        # [lows[i], highs[i]]: the choice is i if S_{i-1} <= u S_n < S_i for all of these
        bounds = {x: exp_bounds(x, bits + 64) for x in set(exponents)}
        lows = list(accumulate(m * bounds[x][0] for m, x in zip(counts, exponents, strict=True)))
        highs = list(accumulate(m * bounds[x][1] for m, x in zip(counts, exponents, strict=True)))
        # the first i whose partial sum is surely at least all that u S_n may be
        largest = (drawn + 1) * highs[-1]
        index = next((i for i, low in enumerate(lows) if low << bits >= largest), None)
        if index is not None and (index == 0 or highs[index - 1] << bits <= drawn * lows[-1]):
            return index
        drawn, bits = drawn << 64 | word(stream), bits + 64
