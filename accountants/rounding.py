"""Rounding that never under-reports: every bound of this package moves outward.

A float computation of ``n`` basic steps has relative error at most about
``n * 2**-53``; `up` and `down` move a result past that error. Sums that decide a
certificate are exact rationals (`fractions.Fraction`), rounded once, at the end.
"""

from __future__ import annotations

import math
import sys
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

UNIT = 2.0**-53
"""Relative error of one correctly rounded operation (float64)."""

Array = NDArray[np.float64]


Number = TypeVar("Number", float, Array)


def up(value: Number, steps: float = 4) -> Number:
    """Return a number at least ``value * (1 + steps * 2**-53)`` (for either sign)."""
    return value + abs(value) * ((steps + 1) * UNIT) + 5e-324


def down(value: float, steps: float = 4) -> float:
    """Return a number at most ``value * (1 - steps * 2**-53)`` (for either sign)."""
    return value - abs(value) * ((steps + 1) * UNIT) - 5e-324


def shown(value: float, *, upward: bool, digits: int = 6) -> str:
    """Return a bound as text, rounded outward at ``digits`` significant digits.

    Examples
    --------
    >>> shown(1.2345678, upward=True), shown(1.2345678, upward=False), shown(2.0, upward=True)
    ('1.23457', '1.23456', '2')
    """
    if not math.isfinite(value):
        return str(value)
    rounding = ROUND_CEILING if upward else ROUND_FLOOR
    return f"{float(Context(prec=digits, rounding=rounding).create_decimal(value)):.{digits}g}"


def ceiling(value: Fraction) -> float:
    """Return the least float that is at least the rational ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def flooring(value: Fraction) -> float:
    """Return the greatest float that is at most the rational ``value``."""
    return -ceiling(-value)
