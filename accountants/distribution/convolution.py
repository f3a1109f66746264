"""Delta and epsilon of a composed law on a lattice, with all errors outward.

Sums are of non-negative terms, and ``P(L > eps) - e^eps Q(L > eps)`` loses no more digits than
the tilt has (it is a sum of ``p (1 - e^{eps - l})``). A discrete law's delta is linear in
``e^eps`` between two of its losses, so the root there is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from attrs import frozen

from accountants.distribution.discretisation import Law, exponentials
from accountants.numerics import UNIT, Array, Complex

_BLOCK = 512
_REACH = 690.0


@frozen
class Errors:
    """Additive errors at the point number v of a window; each falls in v.

    Parameters
    ----------
    terms
        ``(s, r)`` for ``e^{s - r v}``; s may be -infinity.
    always
        What does not depend on v.
    """

    terms: tuple[tuple[float, float], ...]
    always: float

    def at(self, position: float) -> float:
        """Return their sum."""
        exponents = [size - rate * position for size, rate in self.terms]
        total = sum(math.exp(x) if x < 700 else math.inf for x in exponents)
        return (total + self.always) * (1 + 1e-9) + 1e-290


@frozen(eq=False)
class Profile:
    """A composed law in a window, in units of ``e^scale`` that are known within ``e^blur``.

    Parameters
    ----------
    side
        1 for a law above the truth, -1 for one below.
    start, step
        The points of the window are ``start + i * step``, within ``slack``.
    p_tail, q_tail
        Masses of all later points: under P, and under Q times ``e^start``.
    rounding
        The tails' relative error, and that of ``e^{eps - start}``.
    """

    side: int
    start: float
    step: float
    p_tail: Array
    q_tail: Array
    scale: float
    blur: float
    slack: float
    rounding: float
    errors: Errors

    def at(self, epsilon: float) -> float:
        """Return a bound of delta; what is trivial outside of the window."""
        away = epsilon - self.side * self.slack - self.start
        index = math.floor(away / self.step)  # the last point that is not above, or next to it
        if not (0 <= index < len(self.p_tail) and away < _REACH):
            return 1.0 if self.side > 0 else 0.0
        # between two points delta is at most what the tails after the point on the left give, which
        # a lattice law makes exact
        value = self._value(index, away)
        if value <= 0:
            return 0.0
        log = math.log(value) + self.scale
        log += self.side * (self.blur + 4 * UNIT * (abs(log) + abs(self.scale) + 4))
        return min(1.0, math.exp(min(log, 1.0)))

    def root(self, delta: float) -> float:
        """Return an epsilon on this side of where delta is crossed.

        Above: where delta is not exceeded, infinite where none is known. Below: where it still
        is, 0 where none is known.
        """
        target = self._target(delta)
        # a discrete law's delta falls in eps, and between two points is linear in e^eps
        at = self._first(target)
        if self.side < 0:
            at -= 1
            if at < 0 or not self._value(at) >= target:
                return 0.0
            least = self.start + self.step * at
            # the lower bound: at `least` delta is still at least the target; the root between the
            # points is exact
            owed = min(least + self.step, self._owed(at, target))
            return max(0.0, max(least, owed) - self.slack)
        if at >= self._usable() or not self._value(at) <= target:
            return math.inf
        most = self.start + self.step * at
        if at > 0:  # between two points the tails, and the errors at most, are the first's
            # the upper bound: never left of the point before, where delta was above the target
            most = min(most, max(most - self.step, self._owed(at - 1, target)))
        return max(0.0, most + self.slack)

    def _value(self, index: int, away: float | None = None) -> float:
        """Return a bound of delta, in this profile's units: at a point, or beyond it."""
        away = self.step * index if away is None else away
        p = float(self.p_tail[index])
        paid = math.exp(away) * float(self.q_tail[index])
        # P(L > eps) - e^eps Q(L > eps), both tails' rounding and the additive errors to this side
        return p - paid + self.side * (self.rounding * (p + paid) + self.errors.at(index))

    def _usable(self) -> int:
        return min(len(self.p_tail), int(_REACH / self.step))

    def _first(self, target: float) -> int:
        """Return the first point at which the bound is below the target, by bisection."""
        low, high = -1, self._usable()
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._value(middle) <= target else (middle, high)
        return high

    def _target(self, delta: float) -> float:
        log = math.log(delta) - self.scale
        # the logarithm's rounding and the scale's blur, to this side
        log -= self.side * (self.blur + 4 * UNIT * (abs(self.scale) + abs(log) + 4))
        return math.exp(log) if log < 700 else math.inf

    def _owed(self, index: int, target: float) -> float:
        """Return the loss at which the line through the tails after a point meets the target."""
        rounding = self.side * self.rounding
        excess = float(self.p_tail[index]) * (1 + rounding) - target
        excess += self.side * self.errors.at(index)
        slope = float(self.q_tail[index]) * (1 - rounding)
        if not (excess > 0 and slope > 0):
            return -math.inf if excess <= 0 else math.inf
        # P - e^{away} Q = target solved for away, with P and Q moved to this side
        away = math.log(excess / slope)
        return self.start + away + self.side * 8 * UNIT * (1 + abs(away) + abs(self.start))


def tails(masses: Array, rate: float) -> Array:
    """Return, at every point, the sum over all later points of ``masses[v] e^{-rate v}``.

    No sum is of more than two rows of 512 terms and one of their totals, so each is within
    `tail_rounding`.
    """
    rows = -(-len(masses) // _BLOCK)
    padded = np.zeros(rows * _BLOCK)
    padded[: len(masses)] = masses * exponentials(-rate, 0, len(masses))
    inside = np.cumsum(padded.reshape(rows, _BLOCK)[:, ::-1], axis=1)[:, ::-1]
    after = np.append(np.cumsum(inside[::-1, 0])[::-1][1:], 0.0)
    sums = (inside + after[:, None]).ravel()
    return np.append(sums[1:], 0.0)[: len(masses)]


def tail_rounding(count: int, rate: float) -> float:
    """Return the relative error of `tails`; terms below e^-745 of the first are none."""
    rows = -(-count // _BLOCK)
    return (_BLOCK + rows + 32 + 8 * min(rate * count, 745.0)) * UNIT


# -----------------------------------------------------------------------------
# Sums of independent lattice losses by the fast Fourier transform, with a bound of its error.
#
# Every output of a transform of length n = 2^m is reached from each input through at most m
# butterflies, whose factors have modulus 1: rounding moves it by at most ``C m UNIT`` times the
# sum of the inputs' moduli (Higham 2002, Thm 24.2, counts the same butterflies in the l2 norm).
# C = 16 covers real transforms, radix 4 and 5, and roots of unity within four units. Errors are
# thus bounded frequency by frequency, and fall with the powers of the transform.


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
        spectrum, rounding = _spectrum(law, n)
        # an input's own rounding, and the transform's; one unit for each multiplication
        off = (law.error + rounding) * (1 + 1e-9) + 6 * UNIT
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


def _spectrum(law: Law, n: int) -> tuple[Complex, float]:
    """Return the transform, and a bound of its rounding over the weights' sum."""
    some = np.flatnonzero(law.weights)
    if len(some) > _FEW_ATOMS:
        return np.fft.rfft(_folded(law, n)), 2 * transform_error(n)
    # of few atoms term by term: the exponents are exact integers, each root within 32 units
    roots = np.exp(-2j * np.pi / n * np.arange(n))
    total: Complex = np.zeros(n // 2 + 1, dtype=np.complex128)
    for place in some.tolist():
        at = (law.first - law.centre + place) % n
        total += law.weights[place] * roots[np.arange(n // 2 + 1) * at % n]
    return total, (40 + 4 * len(some)) * UNIT


_FEW_ATOMS = 8


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
