"""A rounded normal, thinned to the discrete Gaussian law.

A whole number k from a rounded normal of the same s has probability ``q(k)``, the normal's mass of
``[k - 1/2, k + 1/2]``. Over the discrete Gaussian's mass this is in proportion to

``I(k) = int_{-1/2}^{1/2} e^{-x^2/(2 s^2)} cosh(k x/s^2) dx``,

least at k = 0. So keeping k with probability ``I(0)/I(k)`` gives the discrete Gaussian (derived
here). Dropped draws are drawn anew; they are noise alone, and tell nothing of the data.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.noise.digits import LOG_TEN, erfc, precision
from adaptive_dp.noise.inversion import BLOCK, Integers
from adaptive_dp.noise.refine import Uniform
from adaptive_dp.noise.rounded_gaussian import rounded_gaussian, standard

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream

BITS = 32
"""Bits of the coin that drops a draw, before it is refined."""


def thinned(stream: Stream, sigma: float, count: int) -> Integers:
    """Return ``count`` draws of the discrete Gaussian law, for sigma >= 8."""
    found = rounded_gaussian(stream, sigma, count)
    left = np.flatnonzero(~_kept(stream, sigma, found))
    while len(left):
        found[left] = rounded_gaussian(stream, sigma, len(left))
        left = left[~_kept(stream, sigma, found[left])]
    return found


def _kept(stream: Stream, sigma: float, drawn: Integers) -> NDArray[np.bool_]:
    kept = np.empty(len(drawn), dtype=np.bool_)
    for start in range(0, len(drawn), BLOCK):
        block = drawn[start : start + BLOCK]
        words = stream.words((len(block) + 1) // 2).view(np.uint32)[: len(block)]
        kept[start : start + len(block)] = _coins(
            words >> np.uint32(32 - BITS), sigma, block, stream
        )
    return kept


def _coins(
    prefix: NDArray[np.uint32], sigma: float, drawn: Integers, stream: Stream
) -> NDArray[np.bool_]:
    """Return which draws are kept: those whose coin is not below ``r = 1 - I(0)/I(k)``.

    With b = |k|/s^2 <= 1 and a = 1/(2 s^2), r is within ``a b^2/160 + b^4/500`` of b^2/24. For X of
    density e^{-a x^2} on [-1/2, 1/2], ``I(k)/I(0) = E cosh(b X)`` is at least ``1 + b^2/2 E X^2``,
    ``1/12 >= E X^2 >= 1/12 - a/80``, and at most ``1 + b^2/24 + b^4/1920 cosh(1/2)``; with u what
    it is above 1, ``u - u^2 <= r <= u``.
    """
    square = (drawn * (1 / sigma / sigma)) ** 2  # b^2
    coin = prefix * 2.0**-BITS
    center, wide = square / 24, square * (1 / (320 * sigma * sigma)) + square * square / 500
    wide += 2.0 ** (1 - BITS)  # a cell, and the rounding of these few floats
    kept = coin > center + wide
    for i in np.flatnonzero(~kept):
        if coin[i] < center[i] - wide[i] and square[i] <= 0.99:
            continue
        kept[i] = not _dropped(int(prefix[i]), sigma, abs(int(drawn[i])), stream)
    return kept


def _dropped(prefix: int, sigma: float, k: int, stream: Stream) -> bool:
    return Uniform(prefix, BITS, stream).below(lambda digits: drop_rate(k, sigma, digits))


def drop_rate(k: int, sigma: float, digits: int) -> Decimal:
    """Return ``1 - I(0)/I(k)``, off by at most 10^-digits.

    ``I(0)/I(k) = e^{-k^2/(2 s^2)} q(0)/q(k)``. As a difference of two error functions q(k) loses
    what it is below 1 in digits: some ``(k + 1)^2/(2 s^2) / log 10 + log10 (s + 1)``.
    """
    more = (k + 1.0) / sigma
    inner = digits + 10 + math.ceil(more * more / 2 / LOG_TEN + math.log10(sigma + 1))
    here = erfc(standard(k, -1, sigma, inner), inner) if k else None
    there = erfc(standard(k, 1, sigma, inner), inner)
    middle = erfc(standard(0, 1, sigma, inner), inner)
    with precision(inner):
        mass = (here - there) / 2 if here is not None else 1 - there
        fall = (-((Decimal(k) / Decimal(sigma)) ** 2) / 2).exp()
        return 1 - fall * (1 - middle) / mass
