"""Sums of independent lattice losses by the fast Fourier transform, with a bound of its error.

Every output of a transform of length n = 2^m is reached from each input through at most m
butterflies, whose factors have modulus 1: rounding moves it by at most ``C m UNIT`` times the
sum of the inputs' moduli (Higham 2002, Thm 24.2, counts the same butterflies in the l2 norm).
C = 16 covers real transforms, radix 4 and 5, and roots of unity within four units. Errors are
thus bounded frequency by frequency, and fall with the powers of the transform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from attrs import frozen

from accountants.complexes import Complex
from accountants.lattices.discretisation import Law, exponentials
from accountants.rounding import UNIT, Array

Values = TypeVar("Values", Array, Complex)


@frozen(eq=False)
class Sum:
    """Masses of the sum of laws, tilted, folded onto n points.

    ``masses[j mod n]`` is the sum of the masses at j, j + n, j - n, ..., where j is the index
    less ``centre``, each within ``error``, times ``exp(log_mass - tilt j)``.
    """

    masses: Array
    error: float
    log_mass: float
    log_error: float
    centre: int


def transform_error(n: int) -> float:
    """Return the error of any output of a transform, over the sum of the inputs' moduli."""
    return 16 * UNIT * max(1.0, math.log2(n))


def compose(laws: Sequence[tuple[Law, int]], n: int) -> Sum:
    """Return the law of the sum of ``times`` independent copies of each law."""
    product: Complex = np.ones(n // 2 + 1, dtype=np.complex128)
    size, wrong = np.ones(n // 2 + 1), np.zeros(n // 2 + 1)
    log_mass = log_error = 0.0
    for law, times in laws:
        spectrum = np.fft.rfft(_folded(law, n))
        # an input's own rounding, and the transform's; one unit for each multiplication
        off = (law.error + 2 * transform_error(n)) * (1 + 1e-9) + 6 * UNIT
        # |X_k| + error bounds both the true and the computed spectrum
        modulus = np.abs(spectrum) + off
        rest = power(modulus, times - 1)
        # |prod x - prod y| <= sum over factors of |x_i - y_i| times the others' moduli; x^t - y^t
        # likewise, t times
        wrong = wrong * (rest * modulus) + size * (times * off) * rest
        size = size * (rest * modulus)
        product = product * power(spectrum, times)
        log_mass += times * law.log_mass
        # of the scale, which is a sum of logs; the masses are relative to it
        log_error += 16 * UNIT * (times * (1 + abs(law.log_mass)) + abs(log_mass))
    masses = np.fft.irfft(product, n)
    steps = (1 + 1e-9) * math.exp(min(700.0, 8 * UNIT * sum(times for _, times in laws)))
    # the mean over frequencies is what the inverse transform makes of them, plus its own rounding
    error = steps * (_mean(wrong, n) + transform_error(n) * _mean(size, n)) + 1e-300
    centre = sum(times * law.centre for law, times in laws)
    # negative masses are rounding: 0 is nearer to the truth
    return Sum(np.maximum(masses, 0.0), error, log_mass, log_error, centre)


def _mean(half: Array, n: int) -> float:
    """Return the mean over all n frequencies of what is even in them."""
    # of a real law the spectrum is conjugate-symmetric: all but the first and last frequency count
    # twice
    return float(2 * half.sum() - half[0] - half[-1]) / n


def _folded(law: Law, n: int) -> Array:
    start, folded = (law.first - law.centre) % n, np.zeros(n)
    if len(law.weights) > n:
        positions = (start + np.arange(len(law.weights))) % n
        np.add.at(folded, positions, law.weights)
        return folded
    head = min(n - start, len(law.weights))
    folded[start : start + head] = law.weights[:head]
    folded[: len(law.weights) - head] = law.weights[head:]
    return folded


def power(base: Values, times: int) -> Values:
    """Return ``base ** times`` by squaring, ``times - 1`` roundings in all at most."""
    result = np.ones_like(base)
    while times:
        if times & 1:
            result = result * base
        times >>= 1
        if times:
            base = base * base
    return result


def log_moment(laws: Sequence[tuple[Law, int]], shift: float) -> float:
    """Return an upper bound of the log of ``E e^{shift j}`` under the tilted sum of the laws."""
    total = 0.0
    for law, times in laws:
        first, count = law.first - law.centre, len(law.weights)
        end = first + count - 1 if shift > 0 else first  # where the exponential is largest
        one = float(law.weights @ exponentials(shift, first - end, count)) + 1e-290
        # rounding of the exponentials and the sum, and the weights' own error; upward
        slip = 1e-11 + 1e-13 * (1 + abs(shift) * (abs(first) + count)) + law.error
        total += times * (shift * end + math.log(one) + slip)
    return total + 1e-12 * abs(total)
