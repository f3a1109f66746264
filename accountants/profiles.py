"""From composed laws on a lattice to bounds of delta and epsilon.

With M(c) the composed moment ``E_P e^{cL}``, every error is kept relative to
``M(c) e^{-c eps}``, Chernoff's bound of delta(eps):

* tails known within E: ``2 E`` a pair, whatever the step (`accountants.discretisation`);
* transforms: an error e of each mass adds ``e sum_j e^{-cx_j} (1 - e^{-x_j})``, with
  ``x_j = l_j - eps > 0``; the sum is at most ``1 / (step c (c+1))`` and one largest term;
* what lies above the window b is missing from the upper law: at most
  ``e^{-c (b - eps)} E~ e^{r (L - b)}`` for every r >= 0;
* what is folded into the window from elsewhere only adds to the upper law; from the lower one
  its Chernoff bounds are subtracted: from above, ``E~ e^{r (L - eps - width)}``; from below,
  where a fold from L < start lands at x = L + width - eps > 0 with weight
  ``e^{-cx} <= e^{-hx}`` for every h in [0, c], ``E~ e^{-h (L + width - eps)} e^{g (start - L)}``.

Sums are of non-negative terms, and the difference ``P(L > eps) - e^eps Q(L > eps)`` costs c units
at most on that scale. A discrete law's delta is linear in ``e^eps`` between two of its losses,
so the root there is exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from accountants.convolution import Sum, compose, log_moment
from accountants.discretisation import Law, exponentials
from accountants.rounding import UNIT, Array
from accountants.tilting import Window

_BLOCK = 512
_Laws = Sequence[tuple[Law, int]]


@frozen(eq=False)
class Errors:
    """Additive errors at window positions v: each falls in v, on the profile's scale."""

    tilt: float
    relative: float
    ahead: tuple[float, float] = (0.0, 0.0)
    behind: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0

    def at(self, position: Array) -> Array:
        """Return their sum."""
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            total = np.exp(-self.tilt * position) * self.relative
            for log_size, rate in (self.ahead, self.behind):
                if rate:
                    total = total + np.exp(log_size - rate * position)
        return total * (1 + 1e-9) + self.lost + 1e-290

    def one(self, position: int) -> float:
        """Return their sum at one position."""
        return float(self.at(np.array([float(position)]))[0])


@frozen(eq=False)
class Profile:
    """A composed law in a window, in units of ``e^scale`` that are known within ``e^blur``.

    Parameters
    ----------
    start, step
        The points of the window are ``start + i * step``, within ``slack``.
    p_tail, q_tail
        Masses of all later points: under P, and under Q times ``e^start``.
    """

    start: float
    step: float
    p_tail: Array
    q_tail: Array
    scale: float
    blur: float
    slack: float
    errors: Errors

    def upper_bounds(self, epsilons: Array) -> Array:
        """Return upper bounds of delta."""
        return self._bounds(epsilons - self.slack, 1)

    def lower_bounds(self, epsilons: Array) -> Array:
        """Return lower bounds of delta."""
        return self._bounds(epsilons + self.slack, -1)

    def _bounds(self, epsilons: Array, side: int) -> Array:
        away = epsilons - self.start
        at = np.floor(away / self.step)  # the last point below, or next to it
        inside = (at >= 0) & (at < len(self.p_tail)) & (away < 690)
        at = np.where(inside, at, 0).astype(int)
        paid = np.exp(np.minimum(away, 690.0)) * self.q_tail[at]
        value = self.p_tail[at] - paid + side * self._rounding * (self.p_tail[at] + paid)
        value = np.maximum(value + side * self.errors.at(at.astype(np.float64)), 0.0)
        with np.errstate(over="ignore", divide="ignore"):
            logs = np.log(value) + self.scale + side * (self.blur + 4 * UNIT * abs(self.scale))
            bounds = np.exp(np.minimum(logs, 1.0)) * (1 + side * 1e-15)
        trivial = 1.0 if side > 0 else 0.0
        return np.where(inside, np.clip(bounds, 0.0, 1.0), trivial)

    @property
    def _rounding(self) -> float:
        return (2 * _BLOCK + 16) * UNIT

    def _target(self, delta: float, side: int) -> float:
        log_target = math.log(delta) - self.scale
        log_target -= side * (self.blur + 4 * UNIT * (abs(self.scale) + abs(log_target) + 4))
        return math.exp(log_target) if log_target < 700 else math.inf

    def _at(self, index: int, side: int) -> float:
        """Return a bound of delta at a point of the window, in the profile's units."""
        p = float(self.p_tail[index])
        paid = math.exp(min(700.0, self.step * index)) * float(self.q_tail[index])
        return p - paid + side * (self._rounding * (p + paid) + self.errors.one(index))

    def _first(self, target: float, side: int) -> int:
        """Return the first index at which the bound is below the target, by bisection."""
        low, high = -1, min(len(self.p_tail), int(690 / self.step))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._at(middle, side) <= target else (middle, high)
        return high

    def upper_root(self, delta: float) -> float:
        """Return an epsilon at which delta is not exceeded; infinite where none is known."""
        target = self._target(delta, 1)
        at = self._first(target, 1)
        if at >= len(self.p_tail) or not self._at(at, 1) <= target:
            return math.inf
        root = self.start + self.step * at
        if at > 0:  # between two points the tails, and the errors at most, are the first's
            owed = self._owed(at - 1, target, 1)
            root = min(root, max(self.start + self.step * (at - 1), owed))
        return max(0.0, root + self.slack)

    def lower_root(self, delta: float) -> float:
        """Return an epsilon at which delta is still exceeded; 0 where none is known."""
        target = self._target(delta, -1)
        at = self._first(target, -1) - 1
        if at < 0 or not self._at(at, -1) >= target:
            return 0.0
        root = self.start + self.step * at
        owed = self._owed(at, target, -1)
        return max(0.0, max(root, min(root + self.step, owed)) - self.slack)

    def _owed(self, index: int, target: float, side: int) -> float:
        """Return the loss at which the line through the tails after ``index`` meets the target."""
        rounding = side * self._rounding
        excess = float(self.p_tail[index]) * (1 + rounding) + side * self.errors.one(index) - target
        slope = float(self.q_tail[index]) * (1 - rounding)
        if not (excess > 0 and slope > 0):
            return -math.inf if excess <= 0 else math.inf
        away = math.log(excess / slope)
        return self.start + away + side * 8 * UNIT * (1 + abs(away) + abs(self.start))


def profiles(
    above: _Laws, below: _Laws, around: Window, step: float, size: int
) -> tuple[Profile, Profile]:
    """Return both composed profiles."""
    upper, lower = compose(above, size), compose(below, size)
    tilt = above[0][0].tilt
    c = tilt / step
    # the moment of the upper law is the larger one, and the scale of both laws' tail errors
    gap = _log_moment(upper, above, c, step) - _log_moment(lower, below, c, step)
    tails = math.fsum(times * law.tail_error for law, times in above)
    grow = math.exp(min(700.0, 2 * step + 2 * tilt))
    stray = [math.fsum(3 * times * law.stray for law, times in laws) for laws in (above, below)]
    swell = math.exp(min(700.0, 4 * (2 * c + 1) * grow * tails + (c + 1) * sum(stray)))
    common = (2 * grow * tails + stray[0]) * swell
    rest = common, common * math.exp(min(700.0, gap)) * (1 + 1e-6) + stray[1] * swell
    return (
        _profile(upper, above, around, step, size, rest[0], 1),
        _profile(lower, below, around, step, size, rest[1], -1),
    )


def _log_moment(total: Sum, laws: _Laws, c: float, step: float) -> float:
    return total.log_mass + c * (float(_origin(laws)) + total.centre * step)


def _origin(laws: _Laws) -> Fraction:
    """Return the sum of all lattices' origins, exactly."""
    return sum(
        (times * (Fraction(law.offset[0]) + Fraction(law.offset[1])) for law, times in laws),
        Fraction(),
    )


def _profile(
    total: Sum, laws: _Laws, around: Window, step: float, size: int, rest: float, side: int
) -> Profile:
    tilt, origin = laws[0][0].tilt, _origin(laws)
    first = sum(times * (law.first - law.centre) for law, times in laws)
    count = sum(times * (len(law.weights) - 1) for law, times in laws) + 1
    whole = count <= size
    exact_step = Fraction(step)
    if not whole:  # indices less the centre
        first = math.floor((Fraction(around.start) - origin) / exact_step) - total.centre
    low = math.floor((Fraction(around.low) - origin) / exact_step) - total.centre
    skipped = max(0, low - first)  # left of it errors outgrow the answer
    skipped = min(skipped, size - 2)
    base = first + skipped
    masses = np.roll(total.masses, -(first % size))[skipped:]
    p_tail, q_tail = _tails(masses, tilt, step)
    begin = origin + (base + total.centre) * exact_step
    scale = total.log_mass - tilt * base
    blur = total.log_error + 4 * UNIT * (
        abs(total.log_mass) + abs(tilt * base) + 2 + min(tilt * size, 745) + min(step * size, 745)
    )
    return Profile(
        float(begin),
        step,
        p_tail,
        q_tail,
        scale,
        blur,
        4 * UNIT * (abs(float(begin)) + step * len(masses)),
        _errors(total, laws, around, step, size, rest, side, first, base, scale, whole),
    )


def _errors(
    total: Sum,
    laws: _Laws,
    around: Window,
    step: float,
    size: int,
    rest: float,
    side: int,
    first: int,
    base: int,
    scale: float,
    whole: bool,
) -> Errors:
    tilt = laws[0][0].tilt
    c = tilt / step
    largest = math.exp(-math.log1p(c) - (c * math.log1p(1 / c) if c > 0 else 0.0))
    kernel = min(size * largest, 1 / (step * c * (c + 1)) + largest) if c > 0 else size
    relative = rest + total.error * kernel * (1 + 1e-9)
    lost = 0.0
    for law, times in laws:
        if side > 0:
            lost += times * law.lost
        lost += times * 4e-300
    lost = lost * math.exp(min(700.0, -scale)) * (1 + 1e-9)
    ahead = behind = (0.0, 0.0)
    if not whole:
        if side > 0:
            rate = around.end * step
            above = log_moment(laws, rate) - rate * (first + size) - tilt * (first + size - base)
            lost += math.exp(min(700.0, above))
        else:
            right, left = around.right * step, around.left * step
            up, held = log_moment(laws, right), min(left, tilt)
            ahead = (up - right * (base + size), tilt + right)
            down = log_moment(laws, -left) + left * first - held * size + held * (base - first)
            behind = (down, tilt - held)
            if tilt == held:
                behind = 0.0, 0.0
                lost += math.exp(min(700.0, down))
    return Errors(tilt, relative, ahead, behind, lost)


def _tails(masses: Array, tilt: float, step: float) -> tuple[Array, Array]:
    """Return, at every point, the sums over all later points, in blocks.

    No sum is of more than two rows of 512 terms, so each is within ``(2 * 512 + 16) UNIT``.
    """
    rows = -(-len(masses) // _BLOCK)
    tails = []
    for rate in (tilt, tilt + step):
        padded = np.zeros(rows * _BLOCK)
        padded[: len(masses)] = masses * exponentials(-rate, 0, len(masses))
        terms = padded.reshape(rows, _BLOCK)
        inside = np.cumsum(terms[:, ::-1], axis=1)[:, ::-1]
        after = np.concatenate([np.cumsum(inside[::-1, 0])[::-1][1:], [0.0]])
        sums = (inside + after[:, None]).ravel()
        tails.append(np.append(sums[1:], 0.0)[: len(masses)])
    return tails[0], tails[1]
