"""Projected gradient descent: its last point, or its average."""

from __future__ import annotations

import math

import numpy as np

from adaptive_dp.optimizers.certificate import certify
from adaptive_dp.optimizers.counting import (
    Counted,
    refuse_unless_positive,
    refuse_unless_smooth,
    start_at,
)
from adaptive_dp.optimizers.objective import Floats, Objective, Solution


def gradient_descent(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Return the last point of ``w <- P(w - eta grad F(w))``, ``eta = 2 / (mu + beta)``.

    The distance to the minimizer shrinks by ``(k - 1) / (k + 1)`` a step, ``k = beta / mu``, where
    F is smooth and strongly convex on the whole space.

    Parameters
    ----------
    objective
        Smooth; without strong convexity the step is ``1 / beta``.
    tolerance
        Ends the search where the residual is at most this.
    steps
        The most steps.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Nesterov 2018, Theorem 2.1.15.

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> gradient_descent(problem, tolerance=1e-6, steps=1_000).residual <= 1e-6
    True
    """
    refuse_unless_smooth(objective)
    refuse_unless_positive("steps", steps)
    strong, smooth = objective.strong, objective.smooth
    eta = 2 / (strong + smooth) if strong > 0 else 1 / smooth
    counted, w, near = Counted(objective), start_at(objective, start), tolerance
    for _ in range(steps):
        ahead = objective.project(w - eta * counted.gradient(w))
        moved = float(np.linalg.norm(ahead - w)) / eta
        w = ahead
        if moved <= near:
            solution = certify(objective, w, counted.gradients)
            if solution.residual <= tolerance:
                return solution
            counted.gradients, near = solution.gradients, near / 2
    return certify(objective, w, counted.gradients)


def averaged_descent(
    objective: Objective, *, diameter: float, steps: int, start: Floats | None = None
) -> Solution:
    r"""Return the average of T points of projected subgradient descent, ``eta = D / (L sqrt T)``.

    ``F(average) - min F <= L D / sqrt(T)`` for every convex F with subgradients of norm at most L
    on a set of diameter D (of the whole F: of a sum of n losses L is n times that of one).

    *Proof.* ``|w_{t+1} - w*|^2 <= |w_t - w*|^2 - 2 eta <g_t, w_t - w*> + eta^2 L^2``, since P does
    not expand. Summed over t, with ``F(w_t) - F* <= <g_t, w_t - w*>`` and Jensen's inequality, the
    gap is at most ``D^2 / (2 eta T) + eta L^2 / 2``, which is ``L D / sqrt(T)`` at this eta. With
    the largest norm of the set in the place of D (as is sometimes printed) the bound is false.

    References
    ----------
    Bubeck 2015, Theorem 3.2.

    Examples
    --------
    >>> from adaptive_dp.problems import Hinge, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Hinge(), row_norm=1.0, radius=1.0)
    >>> w = averaged_descent(problem, diameter=2.0, steps=400).w
    >>> problem.value(w) <= 2 - 2**0.5 + 2 * problem.lipschitz / 20
    True
    """
    refuse_unless_positive("steps", steps)
    if not 0 < diameter < math.inf or not 0 < objective.lipschitz < math.inf:
        raise ValueError(
            "averaged_descent needs a positive, finite diameter of the set and `lipschitz` of the "
            f"objective, got {diameter} and {objective.lipschitz}"
        )
    eta = diameter / (objective.lipschitz * math.sqrt(steps))
    counted, w = Counted(objective), start_at(objective, start)
    total = np.zeros(objective.width)
    for _ in range(steps):
        total += w
        w = objective.project(w - eta * counted.gradient(w))
    return certify(objective, total / steps, counted.gradients)
