"""What the mechanisms that choose have in common: scores as exact numbers, and their cost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountants.rounding import ceiling

Floats = NDArray[np.float64]

EXACT = "exact: rational arithmetic where 64 bits of randomness do not decide"


def finite(values: Any) -> Floats:
    """Return scores in one row, finite: NaN counts as 0, infinite ones as the largest floats."""
    most = sys.float_info.max
    return np.nan_to_num(np.ravel(values), nan=0.0, posinf=most, neginf=-most)


def gaps(scores: Floats, scale: float) -> tuple[Floats, Callable[[int], Fraction]]:
    """Return ``(max q - q_i) / scale`` as floats, and exactly by index.

    Each float is rounded twice, off by less than 2^-51 of itself; past the largest it is infinite.
    """
    top = float(scores.max())
    with np.errstate(over="ignore", under="ignore"):
        near = (top - scores) / float(scale)

    def exact(index: int) -> Fraction:
        return (Fraction(top) - Fraction(float(scores[index]))) / Fraction(scale)

    return near, exact


def widest(distance: float, span: float | None) -> float:
    """Return the span: never more than twice the distance, and that where it is not known."""
    return 2 * distance if span is None else min(span, 2 * distance)


def cost(distance: float, span: float | None, scale: float) -> float:
    """Return ``span / scale``, rounded up."""
    return ceiling(Fraction(widest(distance, span)) / Fraction(scale))
