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


COSTS = frozenset({"epsilon", "delta", "mu", "rho"})
"""Parameters of losses that are bounds themselves: a larger one promises less."""


def shown(value: float, *, upward: bool, digits: int = 6) -> str:
    """Return a bound as text, rounded outward at ``digits`` significant digits.

    A number that has no more digits is itself: its text, read again, is the very same float.

    Examples
    --------
    >>> shown(1.2345678, upward=True), shown(1.2345678, upward=False), shown(0.1, upward=True)
    ('1.23457', '1.23456', '0.1')
    """
    if not math.isfinite(value):
        return str(value)
    rounding = ROUND_CEILING if upward else ROUND_FLOOR
    return f"{to_digits(value, digits, rounding):.{digits}g}"


def to_digits(value: float, digits: int, rounding: str) -> float:
    """Return a finite number rounded to significant digits, by a way of rounding of `decimal`."""
    return float(Context(prec=digits, rounding=rounding).create_decimal(repr(float(value))))


def ceiling(value: Fraction) -> float:
    """Return the least float that is at least the rational ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def quotient(value: float, by: float) -> float:
    """Return ``value / by``, rounded up: itself where a float is the quotient.

    Examples
    --------
    >>> quotient(1.0, 10.0), quotient(3.0, 10.0), quotient(1.0, 2.0)
    (0.1, 0.30000000000000004, 0.5)
    """
    if not (math.isfinite(value) and math.isfinite(by)):
        return value / by
    return ceiling(Fraction(value) / Fraction(by))


def flooring(value: Fraction) -> float:
    """Return the greatest float that is at most the rational ``value``."""
    return -ceiling(-value) + 0.0  # not minus zero
