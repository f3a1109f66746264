"""What an optimizer is given and returns, and the proof of how near it came to the minimum."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable

import numpy as np
from attrs import define, frozen
from numpy.typing import NDArray

# -----------------------------------------------------------------------------
# What an optimizer is given, and what it returns.
#
# An objective is a convex function F of p numbers over a closed convex set, a sum of n parts. A
# solution comes with a proof of how near it is, computed from F on the whole data after the search
# ended (`certificate.py`): where F is mu-strongly convex, ``|w - w*| <= residual / mu``. An
# expected
# or an asymptotic rate is no such proof, and the number of steps is not one either.
#
# How near it came, how many steps it took and whether it came near at all depend on the data: they
# are private. What is public is the tolerance, fixed in advance.


Floats = NDArray[np.float64]


class Objective(Protocol):
    """A convex function, a sum of parts, over a closed convex set.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> problem.width, problem.parts, round(problem.strong, 6)
    (2, 2, 0.5)
    """

    @property
    def width(self) -> int:
        """The number of parameters, p."""
        ...

    @property
    def parts(self) -> int:
        """The number of summands, n."""
        ...

    @property
    def strong(self) -> float:
        """A mu for which F is mu-strongly convex; 0 where none is known."""
        ...

    @property
    def smooth(self) -> float:
        """A Lipschitz constant of F's gradient; infinite where it has none."""
        ...

    @property
    def lipschitz(self) -> float:
        """A Lipschitz constant of F on the set; infinite where it has none."""
        ...

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        ...

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (p,)."""
        ...

    def rounding(self, w: Floats) -> float:
        """Return the most, in l2 norm, by which `gradient` at w is off."""
        ...

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' subgradients at w, shape (p,)."""
        ...

    def project(self, w: Floats) -> Floats:
        """Return the point of the set that is nearest to w."""
        ...

    def astray(self, w: Floats) -> float:
        """Return the most, in l2 norm, by which `project` at w is off; 0 where it is exact."""
        ...


@runtime_checkable
class Curved(Protocol):
    """What an objective may offer besides: second derivatives.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> isinstance(problem, Curved), problem.hessian(np.zeros(2)).tolist()
    (True, [[0.75, 0.0], [0.0, 0.75]])
    """

    def hessian(self, w: Floats) -> Floats:
        """Return the second derivative of F at w, shape (p, p)."""
        ...


@runtime_checkable
class Gapped(Protocol):
    """What an objective may offer besides: a duality gap, the proof where F has kinks.

    Examples
    --------
    >>> class Sides:
    ...     def gap(self, w):  # of the sum of |w_i|, which is least at 0
    ...         return float(np.abs(w).sum()) * (1 + 1e-12)
    >>> isinstance(Sides(), Gapped)
    True
    """

    def gap(self, w: Floats) -> float:
        """Return an upper bound of ``F(w) - min F`` for w in the set, rounding included."""
        ...


class NotReached(Exception):
    """No solution within the tolerance was found. That it happened is private, so say no more."""


@frozen(eq=False)
class Solution:
    """Where an optimizer ended.

    Parameters
    ----------
    w
        Shape (p,), in the set but for the projection's rounding.
    residual
        An upper bound of mu times the distance from w to the minimizer, rounding included;
        infinite where nothing is proven.
    gradients
        How many gradients of single parts were computed, those of the proof included.

    Examples
    --------
    >>> from adaptive_dp.erm import minimize
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> found = minimize(problem, tolerance=1e-6)
    >>> found.w.shape, found.residual / problem.strong <= 2e-6  # its distance to the minimizer
    ((2,), True)
    """

    w: Floats
    residual: float
    gradients: int


# -----------------------------------------------------------------------------
# An objective that counts the gradients of parts that are asked of it.


@define
class Counted:
    """Gradients of an objective, counted; a full gradient counts as one of every part."""

    objective: Objective
    gradients: int = 0

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient at w."""
        self.gradients += self.objective.parts
        return self.objective.gradient(w)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' gradients at w."""
        self.gradients += len(chosen)
        return self.objective.part(chosen, w)


def start_at(objective: Objective, start: Floats | None) -> Floats:
    """Return the point of the set that is nearest to ``start`` (to the origin, if not given)."""
    if start is None:
        start = np.zeros(objective.width)
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (objective.width,) or not np.isfinite(start).all():
        raise ValueError(
            f"start must be {objective.width} finite numbers; leave it out to begin at 0"
        )
    return objective.project(start)


def refuse_unless_smooth(objective: Objective) -> None:
    """Raise where an optimizer needs a Lipschitz gradient and the objective has none."""
    if not 0 < objective.smooth < np.inf:
        raise ValueError(
            f"the objective's `smooth` must be positive and finite, got {objective.smooth}; "
            "use `subgradient` where the loss has kinks"
        )


def refuse_unless_strong(objective: Objective) -> None:
    """Raise where an optimizer needs strong convexity and the objective has none."""
    if not 0 < objective.strong < np.inf:
        raise ValueError(
            f"the objective's `strong` must be positive, got {objective.strong}; add a ridge"
        )


def refuse_unless_positive(name: str, value: float) -> None:
    """Raise where a parameter of an optimizer is not a positive number."""
    if not value > 0:
        raise ValueError(f"{name} must be positive, got {value}")


# -----------------------------------------------------------------------------
# How near a point is to the minimizer: the one proof that all optimizers share.
#
# It uses nothing that the search knows. F is mu-strongly convex on the closed convex set C, P the
# projection on C, w* the minimizer over C.
#
# **Residual.** *Let q = P(u) for any point u, g a subgradient of F at q, and s >= 0. Then*
# ``mu |q - w*| <= |g + s (u - q)|``.
#
# *Proof.* ``n = s (u - q)`` satisfies ``<n, x - q> <= 0`` for every x in C (the projection's
# characterisation), so ``<n, q - w*> >= 0``. As w* is optimal, some subgradient g* there has
# ``<g*, q - w*> >= 0``. Strong monotonicity, then these two, then Cauchy-Schwarz:
# ``mu |q - w*|^2 <= <g - g*, q - w*> <= <g, q - w*> <= <g + n, q - w*> <= |g + n| |q - w*|``. QED
#
# With u = w it is the gradient's norm: the proof away from the boundary. At the boundary a good u
# is
# the gradient step ``u = w - grad F(w) / beta``. The point that is returned is then not w but
# ``w+ = P(u)``, the gradient is computed there afresh, and no smoothness is used: a wrong beta
# costs
# tightness, not truth (but for the term of the projection's rounding).
#
# That the proof is no weaker than the usual one by the gradient mapping ``G = beta (w - w+)``: for
# F
# convex and beta-smooth around C the map ``w - grad F(w) / beta`` does not expand (Baillon and
# Haddad
# 1977), and ``g(w+) + beta (u - w+)`` is beta times the difference of its values at w and w+, so
# the
# residual is at most ``|G|``. (At w itself only ``|w - w*| <= |G| (1/mu + 1/beta)``.)
#
# **Rounding.** The computed w+ is off by ``e`` (`Objective.astray`): let q be the exact projection
# of
# the u that was given to it. The proof holds for q, with ``|g(q) - g(w+)| <= beta e`` and
# ``|s (u - q) - s (u - w+)| <= s e``; and ``|w+ - w*| <= e + |q - w*|``. Hence
# ``(beta + s + mu) e`` is added, besides the gradient's own error (`Objective.rounding`) and that
# of
# the norm's computation.
#
# **Gap.** Where F has kinks the gradient need not become small. There an objective may bound
# ``F(w) - min F`` from its dual problem, and ``mu/2 |w - w*|^2 <= F(w) - F(w*)`` for w in C gives
# ``mu |w - w*| <= sqrt(2 mu gap)``. With q the exact projection, ``F(q) <= F(w) + L e``, L a
# Lipschitz constant.
#
# Both are own proofs of textbook facts (Nesterov 2018, sections 2.1.3 and 2.2.3).


EPS = 2.0**-52
TINY = 1e-150
"""More than what underflow can hide in a norm: squares below 1e-324 are 0."""


def certify(objective: Objective, w: Floats, gradients: int = 0) -> Solution:
    """Return the point near w with what is proven of it.

    Parameters
    ----------
    objective
        With its constants and rounding bounds, which the proof trusts.
    w
        Where a search ended, shape (p,); any point at all. It may be moved by a projection and one
        gradient step.
    gradients
        How many gradients of parts the search computed.
    """
    if np.shape(w) != (objective.width,):
        raise ValueError(f"w must be {objective.width} numbers, got shape {np.shape(w)}")
    if not np.isfinite(w).all():
        return Solution(w, math.inf, gradients)
    best = stationary(objective, w, gradients)
    if isinstance(objective, Gapped):
        by_gap = _from_gap(objective, objective, w, best.gradients)
        if by_gap.residual < best.residual:
            return by_gap
        best = Solution(best.w, best.residual, by_gap.gradients)
    return best


def stationary(
    objective: Objective, w: Floats, gradients: int = 0, step: float | None = None
) -> Solution:
    """Return the proof by the residual alone.

    The gradient step is ``1 / step`` long (``1 / smooth``, if not given). Where it stays inside of
    the set the gradient at w is the better proof (u = w), and w is left where it is.
    """
    end = target = objective.project(w)
    s = objective.smooth if step is None else step
    gradient = objective.gradient(end)
    gradients += objective.parts
    if 0 < s < math.inf:
        ahead = end - gradient / s
        landed = objective.project(ahead)
        if not np.array_equal(landed, ahead):
            end, target = landed, ahead
            gradient = objective.gradient(end)
            gradients += objective.parts
    inside = target is end
    normal = 0 * gradient if inside else s * (target - end)
    astray = objective.astray(w if inside else target)
    total = length(gradient + normal) + 4 * EPS * length(normal) + objective.rounding(end)
    if astray:
        total += (objective.smooth + (0.0 if inside else s) + objective.strong) * astray
    residual = (total + TINY) * (1 + 16 * EPS)
    known = residual < math.inf and bool(np.isfinite(end).all())
    return Solution(end, residual if known else math.inf, gradients)


def _from_gap(objective: Objective, gapped: Gapped, w: Floats, gradients: int) -> Solution:
    """Return the proof by the duality gap; none without strong convexity."""
    end, astray = objective.project(w), objective.astray(w)
    gap = gapped.gap(end) + (objective.lipschitz * astray if astray else 0.0)
    residual = from_gap(gap, objective.strong) + objective.strong * astray
    return Solution(end, residual, gradients + objective.parts)


def from_gap(gap: float, strong: float) -> float:
    """Return ``sqrt(2 mu gap)``, rounded up; infinite where that proves nothing.

    A gap below 0, or one that is not a number, is no bound of anything.
    """
    residual = (math.sqrt(2 * strong * gap) + TINY) * (1 + 16 * EPS) if gap >= 0 else math.inf
    return residual if strong > 0 and residual < math.inf else math.inf


def length(v: Floats) -> float:
    """Return an upper bound of ``|v|_2``."""
    return float(np.linalg.norm(v)) * (1 + (len(v) + 8) * EPS) + TINY
