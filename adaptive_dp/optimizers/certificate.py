r"""How near a point is to the minimizer: the one proof that all optimizers share.

It uses nothing that the search knows. F is mu-strongly convex on the closed convex set C, P the
projection on C, w* the minimizer over C.

**Residual.** *Let q = P(u) for any point u, g a subgradient of F at q, and s >= 0. Then*
``mu |q - w*| <= |g + s (u - q)|``.

*Proof.* ``n = s (u - q)`` satisfies ``<n, x - q> <= 0`` for every x in C (the projection's
characterisation), so ``<n, q - w*> >= 0``. As w* is optimal, some subgradient g* there has
``<g*, q - w*> >= 0``. Strong monotonicity, then these two, then Cauchy-Schwarz:
``mu |q - w*|^2 <= <g - g*, q - w*> <= <g, q - w*> <= <g + n, q - w*> <= |g + n| |q - w*|``. QED

With u = w it is the gradient's norm: the proof away from the boundary. At the boundary a good u is
the gradient step ``u = w - grad F(w) / beta``. The point that is returned is then not w but
``w+ = P(u)``, the gradient is computed there afresh, and no smoothness is used: a wrong beta costs
tightness, not truth (but for the term of the projection's rounding).

That the proof is no weaker than the usual one by the gradient mapping ``G = beta (w - w+)``: for F
convex and beta-smooth around C the map ``w - grad F(w) / beta`` does not expand (Baillon and Haddad
1977), and ``g(w+) + beta (u - w+)`` is beta times the difference of its values at w and w+, so the
residual is at most ``|G|``. (At w itself only ``|w - w*| <= |G| (1/mu + 1/beta)``.)

**Rounding.** The computed w+ is off by ``e`` (`Objective.astray`): let q be the exact projection of
the u that was given to it. The proof holds for q, with ``|g(q) - g(w+)| <= beta e`` and
``|s (u - q) - s (u - w+)| <= s e``; and ``|w+ - w*| <= e + |q - w*|``. Hence
``(beta + s + mu) e`` is added, besides the gradient's own error (`Objective.rounding`) and that of
the norm's computation.

**Gap.** Where F has kinks the gradient need not become small. There an objective may bound
``F(w) - min F`` from its dual problem, and ``mu/2 |w - w*|^2 <= F(w) - F(w*)`` for w in C gives
``mu |w - w*| <= sqrt(2 mu gap)``. With q the exact projection, ``F(q) <= F(w) + L e``, L a
Lipschitz constant.

Both are own proofs of textbook facts (Nesterov 2018, sections 2.1.3 and 2.2.3).
"""

from __future__ import annotations

import math

import numpy as np

from adaptive_dp.optimizers.objective import Floats, Gapped, Objective, Solution

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
