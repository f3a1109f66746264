"""The normal law, rounded to whole numbers: exact."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from adaptive_dp.noise.digits import erfc, precision
from adaptive_dp.noise.inversion import Floats, Integers, invert

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream


def rounded_gaussian(stream: Stream, sigma: float, count: int) -> Integers:
    """Return normal noise of standard deviation s, rounded to the nearest whole number.

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
        How many.
    """

    def tail(j: int, digits: int) -> Decimal:
        return erfc(standard(j, -1, sigma, digits), digits + 1)

    return invert(stream, count, sigma, lambda v: _place(v, sigma), tail)


def _place(v: Floats, sigma: float) -> Floats:
    from scipy.special import ndtri  # here: who reads rows on a cluster draws nothing

    v *= 0.5
    ndtri(v, out=v)
    v *= -sigma
    v += 0.5
    return v


def standard(k: int, side: int, sigma: float, digits: int) -> Decimal:
    """Return ``(k + side/2) / (sigma sqrt 2)``, relatively off by at most 10^-(digits + 5)."""
    with precision(digits):
        return (k + Decimal(side) / 2) / (Decimal(sigma) * Decimal(2).sqrt())
