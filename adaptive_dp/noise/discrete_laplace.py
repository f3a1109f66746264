"""The discrete Laplace law: exact."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import TYPE_CHECKING

from adaptive_dp.noise.digits import precision
from adaptive_dp.noise.inversion import Integers, checked, invert
from adaptive_dp.noise.rounded_laplace import exponential

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream


def discrete_laplace(stream: Stream, scale: float, count: int) -> Integers:
    """Return noise with masses proportional to ``e^{-|k|/t}``, k a whole number.

    With q = e^{-1/t}, ``P(|K| >= j) = 2 q^j/(1 + q)`` for j >= 1, so
    ``|K| = floor(-t log V + t log(2/(1 + q)))``: one word a draw, and no draw is rejected. The
    constant lies between 0 and 1/2 (derived here).

    Parameters
    ----------
    stream
        Where the words come from.
    scale
        t, positive and at most 2^50; the float is taken as it is.
    count
        How many.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan 2009, section 2 (the law).
    """
    scale = checked(scale)
    shift = -scale * math.log1p(math.expm1(-1 / scale) / 2)

    def tail(j: int, digits: int) -> Decimal:
        with precision(digits):
            t = Decimal(scale)
            return 2 * (-j / t).exp() / (1 + (-1 / t).exp())

    return invert(stream, count, scale, lambda v: exponential(v, scale, shift), tail)
