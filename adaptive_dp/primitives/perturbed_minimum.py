"""The minimizer of a linear model's objective with noise, to a proven gradient.

``F(w) = sum_i f(x_i'w, y_i) + (ridge/2) |w|^2 + b'w``, rows x_i in the unit ball: whole steps n_i
times s. It is found in ``v = s w``, of which a float is two sets of whole numbers, so that scores
``n_i'v`` are off by one rounding, and the sum of the slopes' parts is exact. What is left of the
gradient's error is each slope's own, which `Loss` bounds; F is ridge-strongly convex, so
``|w - w*| <= |grad F(w)| / ridge``.

The search: Newton's steps, each to where F is least on its way, for a large ridge first, which
falls to its own. Where floats cannot prove
the gradient to be small (very many rows), decimals do, from where the floats ended; a step that
finds nothing better is ``-M^-1 grad F``, ``M = ridge I + smoothness X'X``, with which F always
falls. So the tolerance is reached for any data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants.rounding import UNIT, down, up
from adaptive_dp.data import Examples
from adaptive_dp.data.examples import WEIGHT_BITS, to_steps, weighted_sum
from adaptive_dp.problems import Loss

Floats = NDArray[np.float64]
Point = list[Fraction]

SLOPE = 2.0**-48
"""How far off a slope may be, as a part of the Lipschitz constant (`Loss.slope`)."""

_STEPS = 200
_SPLITS = 3


@frozen(eq=False)
class Problem:
    """An objective with noise.

    Parameters
    ----------
    examples
        The rows; they are divided by their radius.
    loss
        Of one score, with `precise`.
    ridge
        Positive.
    noise
        b, exactly: p rational numbers.
    """

    examples: Examples
    loss: Loss
    ridge: float
    noise: Point

    @property
    def scale(self) -> float:
        """A number s for which a row of n steps is ``s n``, of norm at most 1."""
        return down(self.examples.unit / self.examples.radius, 8)

    def gradient(self, near: Floats) -> Gradient:
        """Return the gradient at a point next to ``w = near / scale``."""
        high, coarse = to_steps(near[None])
        low, fine = to_steps(near[None] - high * coarse)
        limits = self.loss.constants()
        top = math.ldexp(1.0, math.frexp(limits.lipschitz)[1])
        size = 0.0

        def parts(where: slice, block: Floats) -> Floats:
            nonlocal size
            z = (high @ block.T) * coarse + (low @ block.T) * fine
            size += float(np.abs(z).sum())
            left = self.loss.slope(z, self.examples.labels[where])[0] * (2.0**WEIGHT_BITS / top)
            split = np.empty((_SPLITS, len(left)))
            for k in range(_SPLITS):
                split[k] = np.rint(left)
                left = (left - split[k]) * 2.0**WEIGHT_BITS
            return split

        sums = weighted_sum(self.examples, parts, _SPLITS)
        at = [Fraction(h) * Fraction(coarse) + Fraction(m) * Fraction(fine)
              for h, m in zip(high[0].tolist(), low[0].tolist(), strict=True)]  # fmt: skip
        step = Fraction(self.scale) * Fraction(top)
        total = [
            sum((Fraction(int(sums[k][j])) / 2 ** (WEIGHT_BITS * (k + 1)) for k in range(_SPLITS)),
                Fraction()) * step
            for j in range(len(at))
        ]  # fmt: skip
        exact = self._rest(total, at)
        own = len(self.examples) * limits.lipschitz * SLOPE
        error = up(own + limits.smoothness * 2 * UNIT * size, 1 << 20)
        return Gradient(at, np.array([float(x) for x in exact]), error)

    def precise(self, v: Point) -> Gradient:
        """Return the gradient at ``w = v / scale``, computed in decimals."""
        with localcontext(Context(prec=80)):
            at = [Decimal(x.numerator) / Decimal(x.denominator) for x in v]
            total = [Decimal(0)] * len(at)
            for steps, label in zip(self.examples.steps, self.examples.labels, strict=True):
                row = [Decimal(int(n)) for n in steps]
                score = sum((n * a for n, a in zip(row, at, strict=True)), Decimal(0))
                slope = self.loss.precise(score, Decimal(float(label)))
                total = [t + slope * n for t, n in zip(total, row, strict=True)]
        exact = self._rest([Fraction(t) * Fraction(self.scale) for t in total], v)
        size = float(max((abs(x) for x in at), default=Decimal(0)))
        error = len(self.examples) * (1 + size * 2.0**24) * 1e-60
        return Gradient(v, np.array([float(x) for x in exact]), error)

    def _rest(self, total: Point, v: Point) -> Point:
        ridge = Fraction(self.ridge) / Fraction(self.scale)
        return [t + ridge * x + b for t, x, b in zip(total, v, self.noise, strict=True)]

    def hessian(self, v: Floats) -> Floats:
        """Return the second derivative by w, as floats give it."""
        at, labels = v[None] / self.scale, self.examples.labels
        return self._curved(lambda where, x: self.loss.second(at @ x.T, labels[where])[0, 0])

    def metric(self) -> Floats:
        """Return M, as floats give it."""
        beta = self.loss.constants().smoothness
        return self._curved(lambda w, x: np.full(len(x), beta))

    def _curved(self, weights: Callable[[slice, Floats], Floats]) -> Floats:
        total = np.eye(self.examples.width) * self.ridge
        for where, block in self.examples.blocks():
            x = block * self.scale
            total += (x * weights(where, x)[:, None]).T @ x
        return total


@frozen(eq=False)
class Gradient:
    """The gradient by w at ``w = at / scale``, off by at most ``error`` in l2 norm."""

    at: Point
    slope: Floats
    error: float

    @property
    def near(self) -> Floats:
        """The point as floats."""
        return np.array([float(x) for x in self.at])

    def most(self) -> float:
        """Return an upper bound of the norm."""
        return up(float(np.linalg.norm(self.slope)) + self.error, 1 << 20)


def minimum(problem: Problem, tolerance: float) -> Point:
    """Return a point w at which the gradient is proven to be at most ``tolerance``, exactly."""
    here = problem.gradient(np.zeros(problem.examples.width))
    ridge = max(problem.ridge, len(problem.examples) * problem.loss.constants().smoothness)
    while ridge > problem.ridge:  # from there on each minimum is near to the next
        easier = evolve(problem, ridge=ridge)
        size = float(np.linalg.norm(here.near)) / problem.scale
        here = _newton(easier, easier.gradient(here.near), ridge * (1 + size) / 32)
        ridge /= 4
    here = _newton(problem, problem.gradient(here.near), tolerance)
    if here.most() <= tolerance:
        return [x / Fraction(problem.scale) for x in here.at]
    return _precisely(problem, here.at, tolerance)


def _newton(problem: Problem, here: Gradient, tolerance: float) -> Gradient:
    """Return where Newton's steps end: at the tolerance, or where floats get no further."""

    def moved(at: Point, step: Floats) -> Gradient:
        return problem.gradient(here.near - problem.scale * step)

    for _ in range(_STEPS):
        if here.most() <= tolerance:
            break
        move = _Inverse(problem.hessian(here.near), problem.ridge).of(here.slope)
        found = _along(here, move, moved)
        if found is None:
            break
        here = found
    return here


def _precisely(problem: Problem, at: Point, tolerance: float) -> Point:
    """Return the point by decimals: the steps of M alone would do, Newton's are quicker."""

    def moved(at: Point, step: Floats) -> Gradient:
        scale = Fraction(problem.scale)
        there = [x - scale * Fraction(float(m)) for x, m in zip(at, step, strict=True)]
        return problem.precise([Fraction(round(x * 2**200), 2**200) for x in there])

    factor, here = _Inverse(problem.metric(), problem.ridge), problem.precise(at)
    while here.most() > tolerance:
        newton = _Inverse(problem.hessian(here.near), problem.ridge)
        found = _along(here, newton.of(here.slope), moved)
        here = found or moved(here.at, factor.of(here.slope))
    return [x / Fraction(problem.scale) for x in here.at]


def _along(
    here: Gradient, move: Floats, moved: Callable[[Point, Floats], Gradient]
) -> Gradient | None:
    """Return a point on the way to ``w - move`` where F is least, or with half the gradient."""
    low, high, t = 0.0, 1.0, 1.0
    for _ in range(40):
        there = moved(here.at, t * move)
        falls = float(there.slope @ move)
        if there.most() <= here.most() / 2 or 0 <= falls <= float(here.slope @ move) / 2:
            return there
        if falls < 0:
            high = t
        elif t == 1:
            return there
        else:
            low = t
        t = (low + high) / 2
    return None


class _Inverse:
    """The inverse of a matrix of which no eigenvalue is below ``least``."""

    def __init__(self, matrix: Floats, least: float) -> None:
        values, self._basis = np.linalg.eigh(matrix)
        self._values = np.maximum(values, least)

    def of(self, vector: Floats) -> Floats:
        """Return the inverse times a vector."""
        return np.asarray(self._basis @ ((self._basis.T @ vector) / self._values))
