"""The continuous Laplace law, rounded to whole numbers: exact."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from adaptive_dp.noise.digits import precision
from adaptive_dp.noise.inversion import Floats, Integers, invert

if TYPE_CHECKING:
    from adaptive_dp.noise.stream import Stream


def rounded_laplace(stream: Stream, scale: float, count: int) -> Integers:
    """Return Laplace noise of a scale t, rounded to the nearest whole number.

    ``P(|K| >= j) = e^{-(j - 1/2)/t}`` for j >= 1, so ``|K| = floor(-t log V + 1/2)``.

    Parameters
    ----------
    stream
        Where the words come from.
    scale
        t, positive and at most 2^50; the float is taken as it is.
    count
        How many.
    """

    def tail(j: int, digits: int) -> Decimal:
        with precision(digits):
            return ((Decimal("0.5") - j) / Decimal(scale)).exp()

    return invert(stream, count, scale, lambda v: exponential(v, scale, 0.5), tail)


def exponential(v: Floats, scale: float, shift: float) -> Floats:
    """Return ``-scale log(v) + shift``, in the place of ``v``."""
    np.log(v, out=v)
    v *= -scale
    v += shift
    return v
