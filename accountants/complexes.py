"""Complex exponentials and logarithms near 1, with the error that a float makes of them.

A log-moment of a small privacy loss, paid a million times, is a million times a number next
to 0: it must be known to a relative error, not to one unit of 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accountants.rounding import UNIT, Array

Complex = NDArray[np.complex128]


def expm1(z: Complex) -> Complex:
    """Return ``e^z - 1``, within ``32 UNIT`` of its own modulus.

    ``e^{x+iy} - 1 = expm1(x) cos y - 2 sin^2(y/2) + i e^x sin y``; neither part of the real
    part is larger than four times the modulus, so what cancels there is harmless.
    """
    x, y = z.real, z.imag
    half = np.sin(y / 2)
    result = np.empty(np.shape(z), dtype=np.complex128)
    result.real = np.expm1(x) * np.cos(y) - 2 * half * half
    result.imag = np.exp(x) * np.sin(y)
    return result


def log1p(m: Complex, error: Array) -> tuple[Complex, Array]:
    """Return ``log(1 + m)`` and a bound of its error, where ``m`` is within ``error``.

    ``log|1 + m| = log1p(2a + a^2 + b^2) / 2`` for ``m = a + ib``. Where the error is not small
    beside ``|1 + m|`` nothing is known, and the bound is infinite.
    """
    a, b = m.real, m.imag
    size = np.hypot(1 + a, b)
    result = np.empty(np.shape(m), dtype=np.complex128)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = a * a + b * b
        result.real = np.log1p(2 * a + square) / 2
        result.imag = np.arctan2(b, 1 + a)
        # relative to |1 + m|: the given error, and the rounding of 2a + a^2 + b^2
        moved = error / size + 8 * UNIT * (np.abs(a) + square) / (size * size)
        # |log(1 + x)| <= 2 |x| for |x| <= 1/2
        bound = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(result), np.inf)
    return result, np.where(np.isfinite(bound), bound, np.inf)
