"""The discrete Gaussian law: exact."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise import inversion
from adaptive_dp.noise.digits import LOG_TEN, precision
from adaptive_dp.noise.inversion import Integers, checked, signed
from adaptive_dp.noise.refine import Uniform, magnitude
from adaptive_dp.noise.thinning import thinned

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream

SMALL = 8.0
"""Below it a table of tails, of at most some 90 entries; from it on a thinned rounded normal."""


def discrete_gaussian(stream: Stream, sigma: float, count: int) -> Integers:
    """Return noise with masses proportional to ``e^{-k^2/(2 s^2)}``, k a whole number.

    Parameters
    ----------
    stream
        Where the words come from.
    sigma
        s, positive and at most 2^50: the parameter, not quite the standard deviation. From s = 8
        on, magnitudes beyond 2^62 count as 2^62, of probability below e^-(2^23).
    count
        How many.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Def. 1 (the law); its samplers are derived here.
    """
    sigma = checked(sigma)
    if sigma >= SMALL:
        return thinned(stream, sigma, count)
    found = np.empty(count, dtype=np.int64)
    for start in range(0, count, inversion.BLOCK):
        size = min(inversion.BLOCK, count - start)
        found[start : start + size] = _looked_up(stream, sigma, size)
    return found


def _looked_up(stream: Stream, sigma: float, count: int) -> Integers:
    """Return draws from a table: |K| is the number of thresholds above V.

    With a = floor(T 2^BITS) for a tail T, a prefix below a means V < T, one above it V > T,
    whatever bits follow; a prefix equal to it is refined.
    """
    words = stream.words(count)
    prefix = words >> np.uint64(64 - inversion.BITS)
    table = _table(sigma, inversion.BITS)
    index = np.searchsorted(table, prefix)
    found = len(table) - 1 - index
    for i in np.flatnonzero(table[index] == prefix):
        number = Uniform(int(prefix[i]), inversion.BITS, stream)
        found[i] = magnitude(lambda j, digits: _tail(sigma, j, digits), number, int(found[i]))
    return signed(found, words)


@lru_cache(maxsize=256)
def _table(sigma: float, bits: int) -> NDArray[np.uint64]:
    """Return floor(2^bits P(|K| >= j)), rising, and 2^64 - 1 (no prefix) at the end."""
    digits = bits * 30103 // 100000 + 10
    while True:
        unit = Decimal(10) ** -digits
        with precision(digits + 30):
            cells = [
                [math.floor(max(t + off, Decimal(0)) * 2**bits) for off in (-unit, unit)]
                for t in _tails(sigma, digits)
            ]
        if all(low == high for low, high in cells):
            return np.array([low for low, _ in cells[::-1]] + [2**64 - 1], dtype=np.uint64)
        digits += 10


def _tail(sigma: float, j: int, digits: int) -> Decimal:
    tails = _tails(sigma, digits)
    return tails[j - 1] if j <= len(tails) else Decimal(0)


@lru_cache(maxsize=256)
def _tails(sigma: float, digits: int) -> tuple[Decimal, ...]:
    """Return P(|K| >= j) for j = 1, 2, ..., off by at most 10^-digits, until it is below that.

    It is ``2 S_j / (1 + 2 S_1)``, ``S_j = sum_{k >= j} e^{-k^2/(2 s^2)}``. What is left out past n
    is at most ``(1 + s sqrt(pi/2)) e^{-n^2/(2 s^2)}``, 11 times the first mass left out.
    """
    last = math.floor(sigma * math.sqrt(2 * LOG_TEN * (digits + 4))) + 2
    with precision(digits + 5):
        square = 2 * Decimal(sigma) ** 2
        sums = [Decimal(0)]
        for k in range(last, 0, -1):
            sums.append(sums[-1] + (Decimal(-k * k) / square).exp())
        whole = 1 + 2 * sums[-1]
        return tuple(2 * s / whole for s in sums[:0:-1])
