"""Nesterov's accelerated gradient descent, projected."""

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


def accelerated(
    objective: Objective,
    *,
    tolerance: float = 0.0,
    steps: int,
    restart: bool = False,
    start: Floats | None = None,
) -> Solution:
    """Return the last point of ``w' = P(y - grad F(y) / beta)``, ``y' = w' + m (w' - w)``.

    With strong convexity ``m = (sqrt k - 1) / (sqrt k + 1)``, ``k = beta / mu``, and ``F(w) - min
    F`` is at most ``(1 - 1 / sqrt k)^T`` times ``F(w_0) - min F + mu/2 |w_0 - w*|^2``. Without it
    (or with ``restart``) m grows as in FISTA and falls back to 0 whenever the last step and the
    momentum point apart, which adapts to curvature that is better than mu.

    Parameters
    ----------
    objective
        Smooth.
    tolerance
        Ends the search where the residual is at most this.
    steps
        The most steps.
    restart
        Whether to use restarts although a strong convexity is known.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Nesterov 2018, section 2.2.1, constant step scheme III; Bubeck 2015, Theorem 3.18; Beck and
    Teboulle 2009 (FISTA); O'Donoghue and Candes 2015 (gradient restart).

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> accelerated(problem, tolerance=1e-6, steps=1_000).residual <= 1e-6
    True
    """
    refuse_unless_smooth(objective)
    refuse_unless_positive("steps", steps)
    fixed = objective.strong > 0 and not restart
    root = math.sqrt(max(1.0, objective.smooth / objective.strong)) if fixed else math.inf
    momentum, age = (root - 1) / (root + 1) if fixed else 0.0, 1.0
    counted, w, near = Counted(objective), start_at(objective, start), tolerance
    y = w
    for _ in range(steps):
        ahead = objective.project(y - counted.gradient(y) / objective.smooth)
        if not fixed:
            apart = float((y - ahead) @ (ahead - w)) > 0
            last, age = (1.0, 1.0) if apart else (age, (1 + math.sqrt(1 + 4 * age**2)) / 2)
            momentum = 0.0 if apart else (last - 1) / age
        mapping = objective.smooth * float(np.linalg.norm(y - ahead))
        w, y = ahead, ahead + momentum * (ahead - w)
        if mapping <= near:
            solution = certify(objective, w, counted.gradients)
            if solution.residual <= tolerance:
                return solution
            counted.gradients, near = solution.gradients, near / 2
    return certify(objective, w, counted.gradients)
