"""Exact integer Gaussian noise: the discrete law, and the continuous law rounded.

For s >= 8 the discrete Gaussian is drawn by rejection from the rounded normal. An integer k from a
rounded normal of the same s has probability ``q(k)``, the normal's mass of ``[k - 1/2, k + 1/2]``.
Over the discrete Gaussian's mass this is in proportion to

``I(k) = int_{-1/2}^{1/2} e^{-x^2/(2 s^2)} cosh(k x/s^2) dx``,

which is least at k = 0. So accepting k with probability ``I(0)/I(k)``, which is at most 1, gives
masses in proportion to the discrete Gaussian's (derived here). Rejected draws are drawn again; they
do not depend on the data.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise import exact
from adaptive_dp.noise.exact import (
    LOG_TEN,
    Floats,
    Integers,
    LazyUniform,
    checked_scale,
    decimal_precision,
    draw_by_words,
    erfc,
    invert,
)
from adaptive_dp.noise.stream import Stream

SMALL = 8.0
"""Below it a table of tails, of at most some 90 entries; from it on rejection."""

REJECTION_BITS = 32
"""Bits of the uniform number that decides a rejection, before more are drawn."""


# --- the rounded normal


def rounded_gaussian(stream: Stream, sigma: float, count: int) -> Integers:
    """Return normal noise of standard deviation s, rounded to the nearest integer.

    ``P(|K| >= j) = erfc((j - 1/2)/(s sqrt 2))`` for j >= 1, so ``|K| = floor(s z + 1/2)`` with z
    the normal quantile of 1 - V/2. As V falls, z rises by at most sqrt(pi/2) times what log V
    falls by (Mills' ratio).

    Parameters
    ----------
    stream
        Where the words come from.
    sigma
        s, positive and at most 2^50; the float is taken as it is.
    count
        How many draws.

    Returns
    -------
    Shape (count,), int64.

    Raises
    ------
    ValueError
        If sigma is not positive, or above 2^50.

    See Also
    --------
    discrete_gaussian, adaptive_dp.noise.exact.invert
    """

    def tail(j: int, digits: int) -> Decimal:
        # |erfc'| <= 2/sqrt(pi): the error of its argument, below 10^-(digits + 1), adds little
        return erfc(_standardized(j, -1, sigma, digits), digits + 1)

    return invert(stream, count, sigma, lambda v: _normal_quantile(v, sigma), tail)


def _normal_quantile(v: Floats, sigma: float) -> Floats:
    """Return ``s z + 1/2``, z the normal quantile of 1 - v/2, in the place of ``v``."""
    from scipy.special import ndtri  # here: a process that only reads rows draws nothing

    v *= 0.5
    ndtri(v, out=v)  # of v/2 rather than 1 - v/2: no cancellation, and the same up to the sign
    v *= -sigma
    v += 0.5
    return v


def _standardized(k: int, side: int, sigma: float, digits: int) -> Decimal:
    """Return ``(k + side/2) / (sigma sqrt 2)``, relatively off by at most 10^-(digits + 5)."""
    with decimal_precision(digits):
        return (k + Decimal(side) / 2) / (Decimal(sigma) * Decimal(2).sqrt())


# --- the discrete Gaussian


def discrete_gaussian(stream: Stream, sigma: float, count: int) -> Integers:
    """Return noise with masses proportional to ``e^{-k^2/(2 s^2)}``, k an integer.

    Parameters
    ----------
    stream
        Where the words come from.
    sigma
        s, positive and at most 2^50: the parameter, not quite the standard deviation. From s = 8
        on, magnitudes beyond 2^62 count as 2^62, of probability below e^-(2^23).
    count
        How many draws.

    Returns
    -------
    Shape (count,), int64.

    Raises
    ------
    ValueError
        If sigma is not positive, or above 2^50.

    See Also
    --------
    rounded_gaussian

    References
    ----------
    Canonne, Kamath and Steinke 2020, Def. 1 (the law); its samplers are derived here.
    """
    sigma = checked_scale(sigma)
    if sigma >= SMALL:
        return _by_rejection(stream, sigma, count)
    table = _table(sigma, exact.PREFIX_BITS)

    def guess(prefix: NDArray[np.uint64]) -> tuple[Integers, NDArray[np.bool_]]:
        # |K| is the number of thresholds above V. With a = floor(T 2^PREFIX_BITS) for a tail T, a
        # prefix below a means V < T, and one above it V > T, whatever bits follow; for a prefix
        # equal to it more bits are drawn
        index = np.searchsorted(table, prefix)
        return len(table) - 1 - index, table[index] != prefix

    return draw_by_words(stream, count, guess, lambda j, digits: _tail(sigma, j, digits))


@lru_cache(maxsize=256)
def _table(sigma: float, bits: int) -> NDArray[np.uint64]:
    """Return floor(2^bits P(|K| >= j)), increasing; the last is 2^64 - 1, above all prefixes."""
    digits = bits * 30103 // 100000 + 10
    while True:
        unit = Decimal(10) ** -digits
        with decimal_precision(digits + 30):
            cells = [
                [math.floor(max(t + off, Decimal(0)) * 2**bits) for off in (-unit, unit)]
                for t in _tails(sigma, digits)
            ]
        # the floors of both ends agree, so they are that of the tail itself
        if all(low == high for low, high in cells):
            return np.array([low for low, _ in cells[::-1]] + [2**64 - 1], dtype=np.uint64)
        digits += 10


def _tail(sigma: float, j: int, digits: int) -> Decimal:
    tails = _tails(sigma, digits)
    return tails[j - 1] if j <= len(tails) else Decimal(0)


@lru_cache(maxsize=256)
def _tails(sigma: float, digits: int) -> tuple[Decimal, ...]:
    """Return P(|K| >= j) for j = 1, 2, ..., off by at most 10^-digits, until it is below that.

    It is ``2 S_j / (1 + 2 S_1)``, ``S_j = sum_{k >= j} e^{-k^2/(2 s^2)}``. What is left out beyond
    n is at most ``(1 + s sqrt(pi/2)) e^{-n^2/(2 s^2)}``, 11 times the first mass left out.
    """
    # e^{-n^2/(2 s^2)} <= 10^-(digits + 4) for n = last
    last = math.floor(sigma * math.sqrt(2 * LOG_TEN * (digits + 4))) + 2
    with decimal_precision(digits + 5):
        square = 2 * Decimal(sigma) ** 2
        sums = [Decimal(0)]
        for k in range(last, 0, -1):
            sums.append(sums[-1] + (Decimal(-k * k) / square).exp())
        total = 1 + 2 * sums[-1]
        return tuple(2 * s / total for s in sums[:0:-1])


# --- rejection


def _by_rejection(stream: Stream, sigma: float, count: int) -> Integers:
    """Return ``count`` draws of the discrete Gaussian, for sigma >= 8."""
    drawn = rounded_gaussian(stream, sigma, count)
    left = np.flatnonzero(~_accepted(stream, sigma, drawn))
    while len(left):
        drawn[left] = rounded_gaussian(stream, sigma, len(left))
        left = left[~_accepted(stream, sigma, drawn[left])]
    return drawn


def _accepted(stream: Stream, sigma: float, drawn: Integers) -> NDArray[np.bool_]:
    """Return which draws are accepted, each by a uniform number of its own."""
    accepted = np.empty(len(drawn), dtype=np.bool_)
    for start in range(0, len(drawn), exact.BLOCK):
        block = drawn[start : start + exact.BLOCK]
        words = stream.words((len(block) + 1) // 2).view(np.uint32)[: len(block)]
        prefix = words >> np.uint32(32 - REJECTION_BITS)
        accepted[start : start + len(block)] = _not_rejected(prefix, sigma, block, stream)
    return accepted


def _not_rejected(
    prefix: NDArray[np.uint32], sigma: float, drawn: Integers, stream: Stream
) -> NDArray[np.bool_]:
    """Return the draws whose uniform number is not below ``r = 1 - I(0)/I(k)``.

    With b = |k|/s^2 <= 1 and a = 1/(2 s^2), r is within ``a b^2/160 + b^4/500`` of b^2/24. For X of
    density e^{-a x^2} on [-1/2, 1/2], ``I(k)/I(0) = E cosh(b X)`` is at least ``1 + b^2/2 E X^2``,
    ``1/12 >= E X^2 >= 1/12 - a/80``, and at most ``1 + b^2/24 + b^4/1920 cosh(1/2)``; with u what
    it is above 1, ``u - u^2 <= r <= u``.
    """
    square = (drawn * (1 / sigma / sigma)) ** 2  # b^2
    uniform = prefix * 2.0**-REJECTION_BITS
    # a b^2/160 = b^2/(320 s^2): the bounds of r above
    center, wide = square / 24, square * (1 / (320 * sigma * sigma)) + square * square / 500
    wide += 2.0 ** (1 - REJECTION_BITS)  # the cell's width, and the rounding of these few floats
    accepted = uniform > center + wide
    for i in np.flatnonzero(~accepted):
        # the lower bound of r was derived for b <= 1
        if uniform[i] < center[i] - wide[i] and square[i] <= 0.99:
            continue
        accepted[i] = not _rejected(int(prefix[i]), sigma, abs(int(drawn[i])), stream)
    return accepted


def _rejected(prefix: int, sigma: float, k: int, stream: Stream) -> bool:
    number = LazyUniform(stream, REJECTION_BITS, prefix)
    return number.below(lambda digits: rejection_probability(k, sigma, digits))


def rejection_probability(k: int, sigma: float, digits: int) -> Decimal:
    """Return ``1 - I(0)/I(k)``, off by at most 10^-digits.

    ``I(0)/I(k) = e^{-k^2/(2 s^2)} q(0)/q(k)``. As a difference of two error functions q(k) loses
    as many digits as it is small: some ``(k + 1)^2/(2 s^2) / log 10 + log10 (s + 1)``.
    """
    more = (k + 1.0) / sigma
    inner = digits + 10 + math.ceil(more * more / 2 / LOG_TEN + math.log10(sigma + 1))
    here = erfc(_standardized(k, -1, sigma, inner), inner) if k else None
    there = erfc(_standardized(k, 1, sigma, inner), inner)
    middle = erfc(_standardized(0, 1, sigma, inner), inner)
    with decimal_precision(inner):
        mass = (here - there) / 2 if here is not None else 1 - there  # q(k)
        fall = (-((Decimal(k) / Decimal(sigma)) ** 2) / 2).exp()
        return 1 - fall * (1 - middle) / mass  # 1 - middle = q(0)
