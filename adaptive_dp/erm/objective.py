"""Objectives, solutions, and the certificate of suboptimality that all optimizers share.

An objective is a convex function F of p numbers over a closed convex set, a sum of n parts. A
solution comes with a proof of how near it is to the minimizer w*, computed from F on all of the
data after the search ended (`certify`): where F is mu-strongly convex, ``|w - w*| <= residual /
mu``. Neither an expected or asymptotic rate nor a number of steps is such a proof.

How near a search came, how many steps it took and whether it succeeded depend on the data: they
are private. What is public is the tolerance, fixed beforehand.
"""

from __future__ import annotations

import math
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from attrs import Factory, define, field, frozen
from numpy.typing import NDArray

Floats = NDArray[np.float64]
P = TypeVar("P", bound="Objective")


class Objective(Protocol):
    """The protocol of objectives: a convex function, a sum of parts, over a closed convex set.

    Its constants and rounding bounds must hold in floating point too: certificates trust them.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> problem.width, problem.parts, round(problem.strong_convexity, 6)
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
    def strong_convexity(self) -> float:
        """mu: F is mu-strongly convex. A lower bound; 0 where none is known."""
        ...

    @property
    def smoothness(self) -> float:
        """beta, a Lipschitz constant of F's gradient; infinite where there is none."""
        ...

    @property
    def lipschitz(self) -> float:
        """A Lipschitz constant of F on the set; infinite where there is none."""
        ...

    def value(self, w: Floats) -> float:
        """Return F(w)."""
        ...

    def gradient(self, w: Floats) -> Floats:
        """Return a subgradient of F at w, shape (p,)."""
        ...

    def rounding(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `gradient` at w."""
        ...

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' subgradients at w, shape (p,)."""
        ...

    def project(self, w: Floats) -> Floats:
        """Return the point of the set that is nearest to w."""
        ...

    def projection_error(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `project` at w; 0 if exact."""
        ...


@frozen(eq=False)
class Derived(Generic[P]):
    """The base of objectives over the parameters and the set of another, the problem."""

    problem: P

    @property
    def width(self) -> int:
        """The number of parameters, p."""
        return self.problem.width

    @property
    def parts(self) -> int:
        """The number of summands, n; a new term is spread evenly over them."""
        return self.problem.parts

    def project(self, w: Floats) -> Floats:
        """Return the point of the set that is nearest to w."""
        return self.problem.project(w)

    def projection_error(self, w: Floats) -> float:
        """Return an upper bound of the l2 error of the computed `project` at w."""
        return self.problem.projection_error(w)


@runtime_checkable
class Curved(Protocol):
    """The protocol of objectives that have second derivatives as well.

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
    """The protocol of objectives that bound their duality gap: the proof where F has kinks.

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
    """No solution within the tolerance was proven.

    That this happened depends on the data, so the message holds nothing but the tolerance.
    """


@frozen(eq=False)
class Solution:
    """The point at which an optimizer ended, with what is proven of its distance to the minimizer.

    Parameters
    ----------
    w
        Shape (p,), in the set up to the projection's rounding.
    residual
        An upper bound of mu times the distance from w to the minimizer, rounding included;
        infinite where nothing is proven.
    gradients
        The number of gradients of single parts that were computed, those of the proof included.

    Examples
    --------
    >>> from adaptive_dp.erm import minimize
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> solution = minimize(problem, tolerance=1e-6)
    >>> distance = solution.residual / problem.strong_convexity  # to the minimizer, at most
    >>> solution.w.shape, distance <= 2e-6
    ((2,), True)
    """

    w: Floats
    residual: float
    gradients: int


# -----------------------------------------------------------------------------
# What optimizers share: checks of their arguments, the start, the count, and the end by a proof.


@define
class Search:
    """One run of an optimizer: its gradients are counted, and the proof is what ends it.

    A full gradient counts as one for every part.
    """

    objective: Objective
    tolerance: float = 0.0
    gradients: int = 0
    _threshold: float = field(init=False, default=Factory(lambda s: s.tolerance, takes_self=True))

    def gradient(self, w: Floats) -> Floats:
        """Return the gradient at w."""
        self.gradients += self.objective.parts
        return self.objective.gradient(w)

    def part(self, chosen: NDArray[np.int64], w: Floats) -> Floats:
        """Return the sum of the chosen parts' gradients at w."""
        self.gradients += len(chosen)
        return self.objective.part(chosen, w)

    def solution(self, w: Floats) -> Solution:
        """Return the certificate of w."""
        return certify(self.objective, w, self.gradients)

    def proven(self, w: Floats, mapping: float) -> Solution | None:
        """Return the certificate of w if its residual is within the tolerance, else None.

        ``mapping``, the norm of the gradient mapping, is only a reason to try the proof, which
        alone ends the search.
        """
        if not mapping <= self._threshold:
            return None
        solution = self.solution(w)
        if solution.residual <= self.tolerance:
            return solution
        self.gradients, self._threshold = solution.gradients, self._threshold / 2
        return None


def check_arguments(
    objective: Objective,
    *,
    smoothness: bool = False,
    strong_convexity: bool = False,
    **positive: float,
) -> None:
    """Refuse what a method cannot work with.

    Parameters
    ----------
    objective
        What is to be minimized.
    smoothness, strong_convexity
        Whether the method needs a Lipschitz gradient, or strong convexity.
    positive
        Parameters of the method, by name, which must be positive.
    """
    if smoothness and not 0 < objective.smoothness < np.inf:
        raise ValueError(
            "the objective's `smoothness` must be positive and finite, got "
            f"{objective.smoothness}; use `subgradient` where the loss has kinks"
        )
    if strong_convexity and not 0 < objective.strong_convexity < np.inf:
        raise ValueError(
            "the objective's `strong_convexity` must be positive, got "
            f"{objective.strong_convexity}; add a ridge"
        )
    for name, value in positive.items():
        if not value > 0:
            raise ValueError(f"{name} must be positive, got {value}")


def begin_search(
    objective: Objective, start: Floats | None, tolerance: float = 0.0, **requirements: Any
) -> tuple[Search, Floats]:
    """Return a search and its first point, the projection of ``start`` (of 0, if None) on the set.

    ``requirements`` are those of `check_arguments`.
    """
    check_arguments(objective, **requirements)
    if start is None:
        start = np.zeros(objective.width)
    start = np.asarray(start, dtype=np.float64)
    if start.shape != (objective.width,) or not np.isfinite(start).all():
        raise ValueError(
            f"start must be {objective.width} finite numbers; leave it out to begin at 0"
        )
    return Search(objective, tolerance), objective.project(start)


# -----------------------------------------------------------------------------
# The certificate of suboptimality, which uses nothing that the search knows.
#
# F is mu-strongly convex on the closed convex set C, P the projection on C, w* the minimizer on C.
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
# is the gradient step ``u = w - grad F(w) / beta``. The point that is returned is then not w but
# ``w+ = P(u)``, the gradient is computed there again, and no smoothness is used: a wrong beta
# costs tightness, not truth (except in the term of the projection's rounding).
#
# The proof is no weaker than the usual one by the gradient mapping ``G = beta (w - w+)``: for F
# convex and beta-smooth around C the map ``w - grad F(w) / beta`` is nonexpansive (Baillon and
# Haddad 1977), and ``g(w+) + beta (u - w+)`` is beta times the difference of its values at w and
# w+, so the residual is at most ``|G|``. (At w itself only ``|w - w*| <= |G| (1/mu + 1/beta)``.)
#
# **Rounding.** The computed w+ is off by ``e`` (`Objective.projection_error`): let q be the exact
# projection of the u that was given to it. The proof holds for q, ``|g(q) - g(w+)| <= beta e`` and
# ``|s (u - q) - s (u - w+)| <= s e``; and ``|w+ - w*| <= e + |q - w*|``. Hence
# ``(beta + s + mu) e`` is added, besides the gradient's own error (`Objective.rounding`) and that
# of the norm's computation.
#
# **Gap.** Where F has kinks the gradient need not become small. There an objective may bound
# ``F(w) - min F`` from its dual problem, and ``mu/2 |w - w*|^2 <= F(w) - F(w*)`` for w in C gives
# ``mu |w - w*| <= sqrt(2 mu gap)``. With q the exact projection, ``F(q) <= F(w) + L e``, L a
# Lipschitz constant.
#
# Both are own proofs of textbook facts (Nesterov 2018, sections 2.1.3 and 2.2.3).


EPS = 2.0**-52
TINY = 1e-150
"""An upper bound of what underflow can hide in a norm: squares below 1e-324 become 0."""


def certify(objective: Objective, w: Floats, gradients: int = 0) -> Solution:
    """Return a point near w with a proven bound of its distance to the minimizer.

    Parameters
    ----------
    objective
        With its constants and rounding bounds, which the proof trusts.
    w
        Where a search ended, shape (p,); any point is allowed. The solution's point may differ from
        it by a projection and one gradient step.
    gradients
        The number of gradients of parts that the search computed.

    Returns
    -------
    Solution
        By the residual, or by the duality gap where that proves more.

    References
    ----------
    Nesterov 2018, sections 2.1.3 and 2.2.3; the proofs stand above.
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
    """Return the proof by the residual alone: ``mu |q - w*| <= |g + s (u - q)|``, q = P(u).

    u is the gradient step of length ``1 / step`` (``1 / smoothness``, if not given). Where it stays
    in the interior of the set the gradient at w is the better proof (u = w), and w is not changed.
    """
    q = u = objective.project(w)
    s = objective.smoothness if step is None else step
    gradient = objective.gradient(q)
    gradients += objective.parts
    if 0 < s < math.inf:
        gradient_step = q - gradient / s
        projected = objective.project(gradient_step)
        if not np.array_equal(projected, gradient_step):  # at the boundary
            q, u = projected, gradient_step
            gradient = objective.gradient(q)  # computed again at q: no smoothness is used
            gradients += objective.parts
    inside = u is q
    normal = 0 * gradient if inside else s * (u - q)  # n = s (u - q)
    projection_error = objective.projection_error(w if inside else u)
    # |g + n|, the rounding of n (two operations, 4 eps) and of the gradient
    total = length(gradient + normal) + 4 * EPS * length(normal) + objective.rounding(q)
    if projection_error:  # not `inf * 0`: beta may be infinite where the projection is exact
        total += (
            objective.smoothness + (0.0 if inside else s) + objective.strong_convexity
        ) * projection_error
    residual = (total + TINY) * (1 + 16 * EPS)  # outward: the roundings of these sums
    is_proven = residual < math.inf and bool(np.isfinite(q).all())
    return Solution(q, residual if is_proven else math.inf, gradients)


def _from_gap(objective: Objective, gapped: Gapped, w: Floats, gradients: int) -> Solution:
    """Return the proof by the duality gap; an infinite residual without strong convexity."""
    q, projection_error = objective.project(w), objective.projection_error(w)
    # F at the exact projection is at most L e above F at the computed one
    gap = gapped.gap(q) + (objective.lipschitz * projection_error if projection_error else 0.0)
    # and the computed one is e farther from w*
    residual = (
        from_gap(gap, objective.strong_convexity) + objective.strong_convexity * projection_error
    )
    return Solution(q, residual, gradients + objective.parts)


def from_gap(gap: float, strong_convexity: float) -> float:
    """Return the residual ``sqrt(2 mu gap)``, rounded up; infinite where that proves nothing.

    By ``mu/2 |w - w*|^2 <= F(w) - F(w*) <= gap``. A negative gap, or NaN, bounds nothing.
    """
    residual = (
        (math.sqrt(2 * strong_convexity * gap) + TINY) * (1 + 16 * EPS) if gap >= 0 else math.inf
    )
    return residual if strong_convexity > 0 and residual < math.inf else math.inf


def length(v: Floats) -> float:
    """Return an upper bound of ``|v|_2``."""
    # a norm of p numbers is off by a relative (p/2 + 3) u; the slack is larger
    return float(np.linalg.norm(v)) * (1 + (len(v) + 8) * EPS) + TINY
