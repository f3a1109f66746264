"""Delta and epsilon of a composed law on a lattice, with all errors outward.

Sums are of non-negative terms, and ``P(L > eps) - e^eps Q(L > eps)`` loses no more digits than
the tilt has (it is a sum of ``p (1 - e^{eps - l})``). A discrete law's delta is linear in
``e^eps`` between two of its losses, so the root there is exact.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import frozen

from accountants.lattices.discretisation import exponentials
from accountants.rounding import UNIT, Array

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
