"""Uniform numbers whose bits are drawn as they are needed: comparisons that are never wrong.

A draw begins as a cell ``[prefix, prefix + 1) 2^-bits``. To compare it with a threshold, the
threshold is computed to about as many digits; if it lies within the cell, 64 more bits are drawn.
The comparison ends with probability 1 (the cell shrinks to a point, and the draw is no threshold)
and is that of a real uniform number with the real threshold.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

from attrs import define

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream

LIMIT = 2**62
"""Magnitudes are clamped to it; at the largest scale, 2^50, it is reached with less than
probability e^-4096."""

LARGEST_SCALE = 2.0**50

Threshold = Callable[[int], Decimal]
"""A probability to so many digits: off by at most 10^-digits."""

Tail = Callable[[int, int], Decimal]
"""``P(|K| >= j)`` from j and digits, off by at most 10^-digits; falling in j."""


@define
class Uniform:
    """A uniform number of which the first bits are drawn."""

    prefix: int
    bits: int
    stream: Stream

    def below(self, threshold: Threshold) -> bool:
        """Whether the number is below ``threshold``; draws what bits it takes."""
        while True:
            digits = self.bits * 30103 // 100000 + 4  # 10^-digits is below a cell's thousandth
            found, off = threshold(digits), Fraction(2, 10**digits)
            # far below a cell it counts as 0: as a fraction it might have billions of digits
            exact = Fraction(found) if found.adjusted() >= -digits else Fraction(0)
            if Fraction(self.prefix + 1, 2**self.bits) <= exact - off:
                return True
            if Fraction(self.prefix, 2**self.bits) >= exact + off:
                return False
            self.prefix = self.prefix << 64 | int(self.stream.words(1)[0])
            self.bits += 64


def magnitude(tail: Tail, number: Uniform, start: int) -> int:
    """Return |K| by inversion: the largest j >= 0 with ``number < P(|K| >= j)``, up to `LIMIT`.

    ``P(|K| >= j) > number`` exactly if j is at most that, so its law is the one of ``tail``.
    ``start`` is where to look first; it costs time alone where it is wrong.
    """

    def reached(j: int) -> bool:
        return j <= 0 or number.below(lambda digits: tail(j, digits))

    low, step = min(max(start, 0), LIMIT), 1
    while not reached(low):
        low, step = low - step, 2 * step
    high, step = low + 1, 1
    while high <= LIMIT and reached(high):
        low, high, step = high, high + step, 2 * step
    high = min(high, LIMIT + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if reached(middle) else (low, middle)
    return max(low, 0)
