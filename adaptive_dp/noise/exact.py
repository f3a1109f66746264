"""Exact integers by inversion: float64 where its error cannot matter, more digits elsewhere.

A symmetric law of integers is drawn as a sign and a magnitude: with V uniform on (0, 1), |K| is the
largest j with ``V < P(|K| >= j)``. Then ``P(|K| >= j) = P(V < P(|K| >= j))``, so the law is the one
of the tails, and one word a draw is enough.

Where the tail is a smooth function at half-way points, |K| is ``floor(y(V))`` for a real function
y. V has a prefix of `PREFIX_BITS` bits, which says that it lies in a cell; y is computed in float64
at the cell's middle, with a bound on its distance from y anywhere in the cell. If no integer is so
near, floor(y) is certain, whatever bits would follow. Otherwise, and where V is below
2^-`TAIL_BITS`, bits of V and digits of the tail are added until it is certain (`LazyUniform`). So
the law is exact: floats decide only how soon a draw is done.

This module has, in order: functions in as many decimal digits as are asked for, uniform numbers
whose bits are drawn as they are needed, and the inversion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from attrs import define
from numpy.typing import NDArray

from adaptive_dp.noise.stream import Stream, word

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

LOG_TEN = math.log(10)

LIMIT = 2**62
"""Magnitudes are clamped to it. At the largest scale, 2^50, it is reached with a probability below
e^-4096."""

LARGEST_SCALE = 2.0**50

PREFIX_BITS = 63
"""Bits of V in a word; the lowest bit is the sign."""

TAIL_BITS = 20
"""Below 2^-TAIL_BITS more bits are drawn at once, so that V's cell is narrow relative to V."""

QUANTILE_ERROR = 2.0**-42
"""The error of a standard quantile (``-log V``, or the normal's at V/2) that floats may make.

For V above 2^-20 quantiles are below 14, and a libm's error of 4 ulp of them is below 2^-46.
"""

BLOCK = 2**13
"""Draws that are computed at once, so that they stay in a cache."""

Threshold = Callable[[int], Decimal]
"""A probability to so many digits: off by at most 10^-digits."""

Tail = Callable[[int, int], Decimal]
"""``P(|K| >= j)`` from j and digits, off by at most 10^-digits; decreasing in j."""


# --- functions in many digits
#
# The standard library's decimals round `exp` and `sqrt` correctly. The other functions are here,
# each with an absolute error of at most 10^-digits.


@contextmanager
def decimal_precision(digits: int) -> Iterator[None]:
    """Compute with ten digits more than ``digits``, and exponents that nothing here exceeds."""
    with localcontext(
        Context(prec=digits + 10, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation])
    ):
        yield


@lru_cache(maxsize=64)
def pi(digits: int) -> Decimal:
    """Return pi by Machin's formula, ``16 arctan(1/5) - 4 arctan(1/239)``."""
    with decimal_precision(digits):
        return 16 * _arctan(5, digits) - 4 * _arctan(239, digits)


def _arctan(x: int, digits: int) -> Decimal:
    """Return arctan(1/x) by its alternating series, whose first omitted term bounds the rest."""
    power, total, n = Decimal(1) / x, Decimal(0), 1
    while power > Decimal(10) ** (-digits - 5):
        total += power / n if n % 4 == 1 else -power / n
        power, n = power / (x * x), n + 2
    return total


def erfc(x: Decimal, digits: int) -> Decimal:
    """Return ``2/sqrt(pi) int_x^inf e^{-t^2} dt`` for x >= 0, off by at most 10^-digits.

    Beyond ``x^2 = digits log 10`` it is below ``e^{-x^2}``, and 0 is near enough. Elsewhere it is 1
    minus ``2/sqrt(pi) x e^{-x^2} (1 + 2x^2/3 + (2x^2)^2/(3*5) + ...)``, whose terms are positive:
    their n rounding errors stay relative to a sum of at most 1. Once a term is at most half of the
    one before it, it bounds all that follow.
    """
    with decimal_precision(digits):
        square = x * x
        if square > Decimal(digits * LOG_TEN + 1):
            return Decimal(0)
        term = total = x
        least, n = Decimal(10) ** (-digits - 5), 1
        # the next term is 2 x^2 / (2n + 1) of this one: at most half, from 4 x^2 <= 2n + 1 on
        while term > least or 4 * square > 2 * n + 1:
            term = term * 2 * square / (2 * n + 1)
            total, n = total + term, n + 1
        return 1 - 2 * total * (-square).exp() / pi(digits).sqrt()


# --- uniform numbers


@define(eq=False, repr=False)
class LazyUniform:
    """A uniform number in [0, 1) whose bits are drawn as they are needed.

    The bits so far say that it lies in the cell ``[prefix, prefix + 1) 2^-bits``. Within the cell
    it is uniform, since the other bits have not been looked at.

    Parameters
    ----------
    stream
        Where more bits come from.
    bits
        How many are drawn.
    prefix
        The bits that are drawn, as an integer.
    """

    stream: Stream
    bits: int = 0
    prefix: int = 0

    def draw(self, bits: int) -> None:
        """Draw until there are at least so many bits."""
        while self.bits < bits:
            self._draw_word()

    def _draw_word(self) -> None:
        self.prefix, self.bits = self.prefix << 64 | word(self.stream), self.bits + 64

    def near(self) -> float:
        """Return it as a float, off by less than 2^-52."""
        self.draw(64)
        return (self.prefix >> self.bits - 64) * 2.0**-64

    def bounds(self, bits: int) -> tuple[Fraction, Fraction]:
        """Return the ends of its cell, after at least so many bits."""
        self.draw(bits)
        return Fraction(self.prefix, 1 << self.bits), Fraction(self.prefix + 1, 1 << self.bits)

    def below(self, threshold: Threshold) -> bool:
        """Return whether the number is below ``threshold``; draws as many bits as that takes.

        The threshold is computed to somewhat more digits than there are bits. If it may lie within
        the cell, 64 more bits are drawn. That ends with probability 1, since the cell shrinks to a
        point which is almost surely not the threshold, and the answer is that of the comparison of
        two real numbers.
        """
        while True:
            # log10(2) < 0.30103, so 10^-digits is below a thousandth of the cell
            digits = self.bits * 30103 // 100000 + 4
            bound, error = threshold(digits), Fraction(2, 10**digits)
            # far below a cell it counts as 0: as a fraction it might have billions of digits
            exact = Fraction(bound) if bound.adjusted() >= -digits else Fraction(0)
            # all of the cell is below all that the threshold may be ...
            if Fraction(self.prefix + 1, 2**self.bits) <= exact - error:
                return True
            # ... or not below any of it
            if Fraction(self.prefix, 2**self.bits) >= exact + error:
                return False
            self._draw_word()


# --- inversion


def magnitude(tail: Tail, number: LazyUniform, start: int) -> int:
    """Return |K| by inversion: the largest j >= 0 with ``number < P(|K| >= j)``, up to `LIMIT`.

    ``number < P(|K| >= j)`` if and only if j is at most that, so its law is the one of ``tail``.
    ``start`` is where the search begins; a wrong one costs time alone.
    """

    def reached(j: int) -> bool:
        return j <= 0 or number.below(lambda digits: tail(j, digits))

    # Bracket by doubling, then bisect. Every comparison is with the same number, of which only more
    # bits are drawn, so the answers are consistent: reached(j) is decreasing in j.
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


def draw_by_words(
    stream: Stream,
    count: int,
    guess: Callable[[NDArray[np.uint64]], tuple[Integers, NDArray[np.bool_]]],
    tail: Tail,
) -> Integers:
    """Return ``count`` draws by inversion, from one word each, and more for a few of them.

    Parameters
    ----------
    stream, count
        Where words come from, and how many draws are made of them.
    guess
        From the prefixes of V the magnitudes, and which of these are certain whatever bits follow;
        for the others they are where the search begins.
    tail
        The exact tails.
    """
    drawn = np.empty(count, dtype=np.int64)
    for start in range(0, count, BLOCK):
        words = stream.words(min(BLOCK, count - start))
        prefix = words >> np.uint64(64 - PREFIX_BITS)
        magnitudes, certain = guess(prefix)
        for i in np.flatnonzero(~certain):
            number = LazyUniform(stream, PREFIX_BITS, int(prefix[i]))
            magnitudes[i] = magnitude(tail, number, int(magnitudes[i]))
        drawn[start : start + len(words)] = signed(magnitudes, words)
    return drawn


def invert(
    stream: Stream, count: int, scale: float, place: Callable[[Floats], Floats], tail: Tail
) -> Integers:
    """Return ``count`` draws of the law with these tails, by its quantile function y.

    Parameters
    ----------
    stream, count, tail
        As for `draw_by_words`.
    scale
        y is a standard quantile q(V) times ``scale`` plus a constant of at most 1, where
        ``-dq/dlog V`` is at most 1.26.
    place
        y in float64, within ``scale QUANTILE_ERROR + 2^-40`` of its value at the same V.
    """
    scale = checked_scale(scale)
    # V >= 2^-TAIL_BITS differs from its cell's middle by at most 2^-(PREFIX_BITS + 1), so log V by
    # at most 2^(TAIL_BITS - PREFIX_BITS - 1), and q by 1.26 times that: less than the first term.
    # The second is the float error of q; 2^-40 covers the rounding of the constant and the sum.
    error = scale * (2.0 ** (TAIL_BITS - PREFIX_BITS) + QUANTILE_ERROR) + 2.0**-40
    least = 2 ** max(0, PREFIX_BITS - TAIL_BITS)

    def guess(prefix: NDArray[np.uint64]) -> tuple[Integers, NDArray[np.bool_]]:
        y = place(np.asarray((prefix.view(np.int64) + 0.5) * 2.0**-PREFIX_BITS, dtype=np.float64))
        floor = np.floor(y)
        y -= floor
        y -= 0.5
        # |y - floor(y) - 1/2| < 1/2 - error: the nearest integer is farther than `error`, so that
        # floor is the same everywhere in the cell
        certain = (np.abs(y, out=y) < 0.5 - error) & (prefix >= np.uint64(least))
        return floor.astype(np.int64), certain

    return draw_by_words(stream, count, guess, tail)


def signed(magnitudes: Integers, words: NDArray[np.uint64]) -> Integers:
    """Return the magnitudes with signs from the words' lowest bits (in two's complement)."""
    minus = -(words & np.uint64(1)).view(np.int64)  # 0, or -1: all bits set
    return (magnitudes ^ minus) - minus  # k, or ~k + 1 = -k


def checked_scale(scale: float) -> float:
    """Return a scale that the samplers take.

    Raises
    ------
    ValueError
        If it is not positive, or above 2^50.
    """
    if not 0 < scale <= LARGEST_SCALE:
        raise ValueError(f"a noise scale must be positive and at most 2^50 steps, got {scale!r}")
    return float(scale)
