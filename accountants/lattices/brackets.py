"""From the laws of each pair to the composed profile, from above and from below.

With M(c) the composed moment ``E_P e^{cL}``, errors are kept relative to ``M(c) e^{-c eps}``,
Chernoff's bound of delta(eps); E~ is the mean under the tilted law:

* tails known within E: ``2 E`` a pair, whatever the step (`accountants.lattices.discretisation`);
* transforms: an error e of each mass adds ``e sum_j e^{-cx_j} (1 - e^{-x_j})``, with
  ``x_j = l_j - eps > 0``; the sum is at most ``1 / (step c (c+1))`` and one largest term;
* what lies above the window's end b is missing from the upper law: at most
  ``e^{-c (b - eps)} E~ e^{r (L - b)}`` for every r >= 0;
* what is folded into the window from elsewhere only adds to the upper law; from the lower one
  its Chernoff bounds are subtracted. From above: ``E~ e^{r (L - eps - width)}``. From below,
  where L < start lands at ``x = L + width - eps > 0`` with a weight of at most
  ``e^{-cx} <= e^{-hx}`` for every h in [0, c]: ``E~ e^{-h (L + width - eps)} e^{g (start - L)}``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from accountants.lattices.convolution import Sum, compose, log_moment
from accountants.lattices.discretisation import Law
from accountants.lattices.profiles import Errors, Profile, tail_rounding, tails
from accountants.lattices.tilting import Window
from accountants.rounding import UNIT

_Laws = Sequence[tuple[Law, int]]


@frozen(eq=False)
class _Composed:
    """The composition of the laws of one side; indices are less the sum's centre."""

    laws: _Laws
    sum: Sum
    origin: Fraction
    """Where index 0 of the lattice lies."""
    step: Fraction
    first: int
    """The first index of the window."""
    base: int
    """The first index that is kept."""
    folded: bool
    """Whether the law is longer than the window."""

    @property
    def tilt(self) -> float:
        return self.laws[0][0].tilt

    @property
    def scale(self) -> float:
        return self.sum.log_mass - self.tilt * self.base


def composed_bracket(
    above: _Laws, below: _Laws, around: Window, step: float, size: int
) -> tuple[Profile, Profile]:
    """Return the composed profile from above and from below, by transforms of length ``size``."""
    upper, lower = _composed(above, around, step, size), _composed(below, around, step, size)
    outer, inner = _rest(upper, lower)
    return _profile(upper, around, size, outer, 1), _profile(lower, around, size, inner, -1)


def _composed(laws: _Laws, around: Window, step: float, size: int) -> _Composed:
    total, exact = compose(laws, size), Fraction(step)
    # exact: a rounded origin times many mechanisms would move the answer
    offsets = (times * (Fraction(law.offset[0]) + Fraction(law.offset[1])) for law, times in laws)
    origin = sum(offsets, Fraction()) + total.centre * exact
    folded = sum(times * (len(law.weights) - 1) for law, times in laws) >= size
    first = sum(times * (law.first - law.centre) for law, times in laws)
    if folded:
        first = math.floor((Fraction(around.start) - origin) / exact)
    low = math.floor((Fraction(around.low) - origin) / exact)
    # from here on the profile is kept
    base = min(max(first, low), first + size - 2)  # left of it errors outgrow the answer
    return _Composed(laws, total, origin, exact, first, base, folded)


def _rest(upper: _Composed, lower: _Composed) -> tuple[float, float]:
    """Return what the laws' tails and strays cost, relative to each one's moment.

    The upper law's moment is the larger one, and that of all mixtures of true and replaced pairs
    is at most ``swell`` times it.
    """
    h, tilt = float(upper.step), upper.tilt
    c = tilt / h
    error = math.fsum(times * law.tail_error for law, times in upper.laws)
    # between two edges t = e^l changes by up to e^{2h}, and t^-c by up to e^{2 tilt}
    grow = math.exp(min(700.0, 2 * h + 2 * tilt))
    # the tilted mass that rounding misplaced, counted threefold
    strays = [math.fsum(3 * times * law.stray for law, times in one.laws) for one in (upper, lower)]
    swell = [
        math.exp(min(700.0, 4 * (2 * c + 1) * grow * error + (c + 1) * stray))
        for stray in (strays[0], sum(strays))
    ]
    # 2 E M(c) t^-c a pair, errors add over the composition (module docstring)
    outer = 2 * grow * error + strays[0]
    # the lower law's error is relative to the upper law's moment: their ratio, as logs
    apart = upper.sum.log_mass - lower.sum.log_mass + c * float(upper.origin - lower.origin)
    apart += upper.sum.log_error + lower.sum.log_error + 1e-6
    inner = outer * math.exp(min(700.0, apart)) + strays[1]
    return outer * swell[0], inner * swell[1]


def _profile(one: _Composed, around: Window, size: int, rest: float, side: int) -> Profile:
    masses = np.roll(one.sum.masses, -(one.first % size))[one.base - one.first :]
    start, h = float(one.origin + one.base * one.step), float(one.step)
    # of the tails, and of e^{eps - start}
    rounding = tail_rounding(len(masses), one.tilt + h) + 8 * UNIT * min(h * len(masses), 745.0)
    return Profile(
        side=side,
        start=start,
        step=h,
        p_tail=tails(masses, one.tilt),
        q_tail=tails(masses, one.tilt + h),
        scale=one.scale,
        blur=one.sum.log_error + 8 * UNIT * (abs(one.sum.log_mass) + abs(one.tilt * one.base) + 2),
        slack=4 * UNIT * (abs(start) + h * len(masses)),
        rounding=rounding,
        errors=_errors(one, around, size, rest, side),
    )


def _errors(one: _Composed, around: Window, size: int, rest: float, side: int) -> Errors:
    # both fall as e^{-c (eps - base)}
    relative = rest + one.sum.error * _kernel(one.tilt, float(one.step), size)
    terms = [(math.log(relative), one.tilt)]
    # mass above a pair's own grid: an infinite loss, whatever eps is
    lost = math.fsum(times * (law.lost + 4e-300) for law, times in one.laws)
    always = lost * math.exp(-one.scale) if one.scale > -600 else math.inf
    # what folds in adds to an upper law; it only lacks what lies beyond the window's end
    if one.folded and side > 0:
        always += _ahead(one, around, size)
    elif one.folded:
        terms += _folds(one, around, size)
    return Errors(tuple(terms), always * (1 + 1e-9))


def _kernel(tilt: float, step: float, size: int) -> float:
    """Return a bound of ``sum_j e^{-c x_j} (1 - e^{-x_j})`` over points a step apart."""
    c = tilt / step
    largest = 1 / (1 + c)
    # the maximum of e^{-cx} (1 - e^{-x}) is below 1 / (1 + c); a sum over a lattice is the integral
    # 1 / (c (c + 1)) over the step, and one largest term
    return min(size * largest, 1 / (step * c * (c + 1)) + largest) if c > 0 else float(size)


def _ahead(one: _Composed, around: Window, size: int) -> float:
    """Return a bound of what lies beyond the window."""
    rate, end = around.end * float(one.step), one.first + size
    exponent = log_moment(one.laws, rate) - rate * end - one.tilt * (end - one.base)
    return math.exp(exponent) if exponent < 700 else math.inf


def _folds(one: _Composed, around: Window, size: int) -> list[tuple[float, float]]:
    """Return bounds of what is folded into the window, from above and from below."""
    right, left = around.right * float(one.step), around.left * float(one.step)
    up, held = log_moment(one.laws, right), min(left, one.tilt)
    down = log_moment(one.laws, -left) + left * one.first - held * size
    # at a point v after the base, that is base - first + v after the window's start
    return [
        (up - right * (one.base + size), one.tilt + right),
        (down + held * (one.base - one.first), one.tilt - held),
    ]
