"""Adversarial empirical risk: linear models of two classes whose rows an adversary moves."""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.erm.loss import TINY, UNIT, Constants, Floats, above, gamma
from adaptive_dp.erm.objective import Derived
from adaptive_dp.erm.problem import Problem, blocks, curvature, length, scores, sum_error
from adaptive_dp.erm.sets import norm

NORMS = (1.0, 2.0, math.inf)


@frozen(eq=False)
class Adversarial(Derived[Problem]):
    """The empirical risk of rows at their worst within a distance, with a ridge.

    ``F(w) = sum_i max_{|v|_q <= rho} f(w.(x_i + v), y_i) + (ridge / 2) |w|^2``.

    f must fall with the margin ``y z`` (a monotone loss of labels -1 and 1). The worst margin is
    ``y w.x - rho |w|_{q*}`` with ``1/q + 1/q* = 1`` (Hölder, attained), so the worst loss is f
    there: no inner search. (The loss is convex in v: no method for concave adversaries applies, and
    none is needed.)

    Parameters
    ----------
    problem
        Rows, loss, ridge and ball.
    budget
        rho, at least 0, in units of x.
    norm
        q: 1, 2 or infinity.
    smoothing
        s, at least 0, only for q = 2: ``sqrt(|w|^2 + s^2)``, which has no kink, replaces ``|w|``. F
        is then larger by at most ``n L rho s``, and the notes hold for that F.

    Notes
    -----
    A row's term is a maximum of convex functions, each ``L |x + v|_2``-Lipschitz: it is convex and
    ``L (R + rho c)``-Lipschitz, c the most that ``|v|_2`` is of ``|v|_q`` (1, but ``sqrt p`` for
    q infinite). The ridge's strong convexity is kept. So the minimizer's sensitivity is that of
    ordinary risk with the larger constant. Without smoothing F is not smooth: ``|w|_{q*}`` has
    kinks, at 0 at least.

    *Smoothing.* ``d(w) = sqrt(|w|^2 + s^2)`` is convex, with a gradient shorter than 1 and a second
    derivative ``(I - w w' / d^2) / d`` of at most 1/s; and f falls with the margin ``y w.x - rho
    d``, which is concave. So a row's term is convex, ``L (R + rho)``-Lipschitz, and
    ``(beta (R + rho)^2 + L rho / s)``-smooth.

    Examples
    --------
    >>> from adaptive_dp.erm.losses import Hinge
    >>> plain = Problem(np.eye(2), np.ones(2), Hinge(), row_norm=1.0)
    >>> Adversarial(plain, 0.5).value(np.array([0.0, 1.0]))
    2.0
    """

    budget: float = field()
    norm: float = field(default=2.0)
    smoothing: float = field(default=0.0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Refuse what the closed form does not cover."""
        loss = self.problem.loss
        if loss.labels != "sign" or not loss.monotone:
            raise ValueError(
                f"Adversarial needs a loss that falls with the margin, got {type(loss).__name__}; "
                "use Logistic, Hinge, SmoothedHinge or HuberHinge"
            )
        if not 0 <= self.budget < math.inf:
            raise ValueError(
                f"Adversarial.budget must be a finite number of at least 0, got {self.budget!r}"
            )
        if self.norm not in NORMS:
            raise ValueError(f"Adversarial.norm must be 1, 2 or math.inf, got {self.norm!r}")
        # only the l2 norm has a smoothed form here, sqrt(|w|^2 + s^2)
        if not 0 <= self.smoothing < math.inf or (self.smoothing and self.norm != 2):
            raise ValueError(
                "Adversarial.smoothing must be at least 0, and 0 for a norm other than 2, got "
                f"{self.smoothing!r} at norm {self.norm!r}"
            )

    @property
    def strong_convexity(self) -> float:
        """The ridge, rounded down; `Problem.proven` need not hold for the worst losses."""
        return max(0.0, math.nextafter(self.problem.ridge, -math.inf))

    @property
    def smoothness(self) -> float:
        """``n (beta (R + rho)^2 + L rho / s) + ridge``; infinite without smoothing."""
        if not self.budget:
            return self.problem.smoothness
        # the norm has a kink at w = 0, where no second derivative bounds it
        if not self.smoothing:
            return math.inf
        c, longest = self.constants, self.longest
        kink = above(c.lipschitz * self.budget / self.smoothing)  # L rho / s
        row = above(c.smoothness * longest * longest + kink)
        return above(self.parts * row + self.problem.ridge)

    @property
    def longest(self) -> float:
        """``R + rho c``, an upper bound of the norm of a moved row."""
        # a move of maximum norm rho is up to rho sqrt(p) long in l2
        stretch = math.sqrt(self.width) if self.norm == math.inf else 1.0
        return above(self.problem.longest + above(self.budget * stretch))

    @property
    def constants(self) -> Constants:
        """The constants of a row's loss at every margin within reach of the adversary."""
        return self.problem.loss.constants(self.margin(self.problem.span))

    def margin(self, reach: float) -> float:
        """Return an upper bound of a moved row's score at ``|w| <= reach``."""
        return above(above(reach * self.longest) + above(self.budget * self.smoothing))

    @property
    def row_lipschitz(self) -> float:
        """A Lipschitz constant of one row's worst loss."""
        return above(self.constants.lipschitz * self.longest)

    @property
    def lipschitz(self) -> float:
        """``n L (R + rho c) + ridge radius``."""
        p = self.problem
        return above(self.parts * self.row_lipschitz + (p.ridge * p.span if p.ridge else 0.0))

    def rounding(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `gradient` at w."""
        return self.rounding_within(length(w))

    def rounding_within(self, reach: float) -> float:
        """Return an upper bound of the l2 error of `gradient` at any ``|w| <= reach``.

        As of a `Problem` whose rows have norm ``R + rho c``. The norm's subgradient is exact for q
        of 1 and infinity, off by a relative ``gamma_{p+8}`` for q = 2. Where the loss has a kink,
        a row's subgradient is off by at most 2 L.
        """
        p, n = self.problem, self.parts
        if not reach < math.inf:
            return math.inf
        dz = above(2 * gamma(self.width + 8) * self.margin(reach))
        c = p.loss.constants(above(self.margin(reach) + dz))
        own = p.loss.rounding(above(self.margin(reach) + dz)).slope
        # the score's error by the slope's Lipschitz constant, at most 2 L; and its own computation
        slope = min(c.smoothness * dz if dz else 0.0, 2 * c.lipschitz) + own
        total = n * self.longest * (c.lipschitz + slope)
        summation = (sum_error(n, self.width) + gamma(n + self.width + 12)) * total
        ridge = 4 * UNIT * (total * 1.001 + 2 * p.ridge * reach)
        return above(n * self.longest * slope + summation + ridge) + TINY

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        p, total = self.problem, 0.0
        for block in blocks(p.x):
            total += float(
                p.loss.value(self._worst_scores(w, p.x[block], p.y[block]), p.y[block]).sum()
            )
        return total + p.ridge / 2 * float(w @ w)

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (p,)."""
        p, total, weight = self.problem, np.zeros(self.width), 0.0
        for block in blocks(p.x):
            row_sum, slope_sum = self._row_sums(w, p.x[block], p.y[block])
            total += row_sum
            weight += slope_sum
        return np.asarray(total + weight * (self.budget * self._norm_gradient(w)) + p.ridge * w)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen rows' subgradients at w, each with its n-th of the ridge."""
        p = self.problem
        row_sum, weight = self._row_sums(w, p.x[chosen], p.y[chosen])
        # the ridge is spread evenly over the n parts, so that parts sum to F
        share = p.ridge * len(chosen) / max(self.parts, 1)
        return np.asarray(row_sum + weight * (self.budget * self._norm_gradient(w)) + share * w)

    def hessian(self, w: Floats) -> Floats:
        """Return the second derivative of F at w, shape (p, p), where it has one."""
        p, eye = self.problem, np.eye(self.width)
        total, weight, direction = p.ridge * eye, 0.0, self._norm_gradient(w)
        for block in blocks(p.x):
            x, y = p.x[block], p.y[block]
            z = self._worst_scores(w, x, y)
            # the derivative in w of a row's worst score, w'x - y rho d(w)
            moved = x - (self.budget * y)[:, None] * direction  # the rows at their worst
            total += curvature(p.loss.second(z, y), moved)
            weight += float(np.abs(p.loss.slope(z, y)).sum())
        if self.norm == 2 and (length := self._smoothed_norm(w)):
            # the second derivative of the norm: (I - w w' / d^2) / d
            total += weight * self.budget / length * (eye - np.outer(direction, direction))
        return total

    def _smoothed_norm(self, w: Floats) -> float:
        """Return ``d(w) = sqrt(|w|^2 + s^2)``."""
        return math.hypot(norm(w), self.smoothing)

    def _row_sums(self, w: Floats, x: Floats, y: Floats) -> tuple[Floats, float]:
        """Return ``sum s_i x_i`` and ``sum |s_i|``: each slope s_i has the sign of -y_i."""
        slope = self.problem.loss.slope(self._worst_scores(w, x, y), y)
        return np.asarray((slope @ x)[0]), float(np.abs(slope).sum())

    def _worst_scores(self, w: Floats, x: Floats, y: Floats) -> Floats:
        """Return the scores of the moved rows: their margins are smaller by ``rho |w|_{q*}``."""
        # by the adversary's norm q, the norm q* with 1/q + 1/q* = 1
        dual = {
            1.0: np.max(np.abs(w), initial=0.0),
            2.0: self._smoothed_norm(w),
            math.inf: np.abs(w).sum(),
        }
        return scores(w[None], x) - y * (self.budget * float(dual[self.norm]))

    def _norm_gradient(self, w: Floats) -> Floats:
        """Return a subgradient of ``|w|_{q*}``, 0 at 0."""
        if not np.any(w):
            return np.zeros_like(w)
        if self.norm == 2:
            return np.asarray(w / self._smoothed_norm(w))
        if self.norm == math.inf:
            return np.sign(w)
        # the dual norm of l1 is the maximum: any one largest coordinate gives a subgradient
        first = int(np.argmax(np.abs(w)))
        return np.where(np.arange(len(w)) == first, np.sign(w), 0.0)
