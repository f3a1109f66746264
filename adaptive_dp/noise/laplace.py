"""Exact integer Laplace noise: the discrete law, and the continuous law rounded."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np

from adaptive_dp.noise.exact import Floats, Integers, checked_scale, decimal_precision, invert
from adaptive_dp.noise.stream import Stream


def discrete_laplace(stream: Stream, scale: float, count: int) -> Integers:
    """Return noise with masses proportional to ``e^{-|k|/t}``, k an integer.

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
        How many draws.

    Returns
    -------
    Shape (count,), int64.

    Raises
    ------
    ValueError
        If the scale is not positive, or above 2^50.

    See Also
    --------
    rounded_laplace, adaptive_dp.noise.exact.invert

    References
    ----------
    Ghosh, Roughgarden and Sundararajan 2009, section 2 (the law).
    """
    scale = checked_scale(scale)
    # t log(2/(1 + q)) = -t log(1 - (1 - q)/2), without cancellation where q is near 1
    shift = -scale * math.log1p(math.expm1(-1 / scale) / 2)

    def tail(j: int, digits: int) -> Decimal:
        with decimal_precision(digits):
            t = Decimal(scale)
            # 2 q^j/(1 + q), decides the draws that the float quantile leaves open
            return 2 * (-j / t).exp() / (1 + (-1 / t).exp())

    return invert(stream, count, scale, lambda v: _exponential_quantile(v, scale, shift), tail)


def rounded_laplace(stream: Stream, scale: float, count: int) -> Integers:
    """Return Laplace noise of scale t, rounded to the nearest integer.

    ``P(|K| >= j) = e^{-(j - 1/2)/t}`` for j >= 1, so ``|K| = floor(-t log V + 1/2)``.

    Parameters
    ----------
    stream
        Where the words come from.
    scale
        t, positive and at most 2^50; the float is taken as it is.
    count
        How many draws.

    Returns
    -------
    Shape (count,), int64.

    Raises
    ------
    ValueError
        If the scale is not positive, or above 2^50.

    See Also
    --------
    discrete_laplace, adaptive_dp.noise.exact.invert
    """

    def tail(j: int, digits: int) -> Decimal:
        with decimal_precision(digits):
            # |K| >= j if and only if the continuous |Z| >= j - 1/2
            return ((Decimal("0.5") - j) / Decimal(scale)).exp()

    return invert(stream, count, scale, lambda v: _exponential_quantile(v, scale, 0.5), tail)


def _exponential_quantile(v: Floats, scale: float, shift: float) -> Floats:
    """Return ``-scale log(v) + shift``, in the place of ``v``."""
    np.log(v, out=v)
    v *= -scale
    v += shift
    return v
