"""The minimizer of an objective to a tolerance, by whichever method serves."""

from __future__ import annotations

import math

from adaptive_dp.optimizers.accelerated import accelerated
from adaptive_dp.optimizers.counting import refuse_unless_positive, refuse_unless_strong
from adaptive_dp.optimizers.lbfgs import lbfgs
from adaptive_dp.optimizers.newton import newton
from adaptive_dp.optimizers.objective import (
    Curved,
    Floats,
    Gapped,
    NotReached,
    Objective,
    Solution,
)
from adaptive_dp.optimizers.subgradient import subgradient

WIDEST = 1000
"""The most parameters for which a Hessian is worth its p^2 numbers."""


def minimize(
    objective: Objective,
    tolerance: float,
    *,
    start: Floats | None = None,
    steps: int = 100_000,
) -> Solution:
    """Return a solution whose residual is at most ``tolerance``, or raise.

    Smooth objectives: Newton's method where there is a Hessian of moderate size, L-BFGS otherwise,
    then accelerated projected descent from where that ended (at the boundary, or at the precision
    of its line search). Objectives with kinks, which need a `gap`: subgradient descent. Nothing is
    drawn at random: the same objective gives the same solution.

    Parameters
    ----------
    objective
        Strongly convex.
    tolerance
        Of the residual: ``|w - w*| <= tolerance / mu``.
    start
        Where to begin, shape (p,); the origin if not given.
    steps
        The most steps of accelerated or of subgradient descent.

    Raises
    ------
    NotReached
        Where the steps end first. The message holds nothing of the data.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> from adaptive_dp.problems import Problem
    >>> x, y = np.array([[1.0], [0.5], [-1.0]]), np.array([1.0, 0.5, -0.8])
    >>> problem = Problem(x, y, dp.Squared(), row_norm=1.0, ridge=0.25)
    >>> found = minimize(problem, tolerance=1e-8)
    >>> round(float(found.w[0]), 6), found.residual <= 1e-8
    (0.82, True)
    """
    refuse_unless_strong(objective)
    refuse_unless_positive("tolerance", tolerance)
    refuse_unless_positive("steps", steps)
    if objective.smooth < math.inf:
        solution = _smooth(objective, tolerance, start, steps)
    elif isinstance(objective, Gapped):
        solution = _kinked(objective, tolerance, start, steps)
    else:
        raise ValueError(
            "the objective has kinks (its `smooth` is infinite) and no gap(w), so no solution can "
            "be proven; give it one, or take a smooth loss such as the Huber hinge"
        )
    if not solution.residual <= tolerance:
        raise NotReached(
            f"no solution within the tolerance {tolerance} was proven; allow more steps, or choose "
            "a tolerance above the rounding of the gradient"
        )
    return solution


def _smooth(objective: Objective, tolerance: float, start: Floats | None, steps: int) -> Solution:
    """Return the first solution within the tolerance, or the last one."""
    curved = isinstance(objective, Curved) and objective.width <= WIDEST
    fast = newton if curved else lbfgs
    first = fast(objective, tolerance=tolerance / 2, steps=min(steps, 1000), start=start)
    if first.residual <= tolerance or objective.rounding(first.w) >= tolerance:
        return first
    begin = first.w if first.residual < math.inf else start
    last = accelerated(objective, tolerance=tolerance, steps=steps, start=begin)
    return Solution(last.w, last.residual, first.gradients + last.gradients)


def _kinked(objective: Objective, tolerance: float, start: Floats | None, steps: int) -> Solution:
    """Return the first solution of doubling numbers of steps that is within the tolerance."""
    gradients, batch = 0, min(steps, 100)
    while True:
        solution = subgradient(objective, steps=batch, start=start)
        gradients += solution.gradients
        if solution.residual <= tolerance or batch >= steps:
            return Solution(solution.w, solution.residual, gradients)
        batch = min(steps, 2 * batch)
