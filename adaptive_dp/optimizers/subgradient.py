"""Subgradient descent for strongly convex objectives, stochastic or not."""

from __future__ import annotations

import numpy as np

from adaptive_dp.optimizers.certificate import certify
from adaptive_dp.optimizers.counting import (
    Counted,
    refuse_unless_positive,
    refuse_unless_strong,
    start_at,
)
from adaptive_dp.optimizers.objective import Floats, Objective, Solution


def subgradient(
    objective: Objective,
    *,
    steps: int,
    generator: np.random.Generator | None = None,
    start: Floats | None = None,
) -> Solution:
    """Return the average of the points, weights proportional to t, steps ``2 / (mu (t + 1))``.

    With estimates of the subgradient whose expected squared norm is at most ``L^2`` the expected
    ``F - min F`` is at most ``2 L^2 / (mu (T + 1))``. Single runs are above it every so often: the
    proof of a run is its certificate, which for losses with kinks needs the objective's `gap`;
    without one the residual is what the subgradient says, seldom of use.

    Parameters
    ----------
    objective
        Strongly convex.
    steps
        How many, T.
    generator
        Draws the part whose subgradient, times n, is the estimate; without it all parts are used,
        and the bound holds without expectation.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Lacoste-Julien, Schmidt and Bach 2012; Bubeck 2015, Theorems 3.9 and 6.2.

    Examples
    --------
    >>> from adaptive_dp.problems import Hinge, Problem
    >>> x, y = np.eye(2), np.array([1.0, -1.0])
    >>> problem = Problem(x, y, Hinge(), row_norm=1.0, ridge=1.0, radius=2.0)
    >>> found = subgradient(problem, steps=1_000)
    >>> problem.value(found.w) <= 1 + 2 * problem.lipschitz**2 / 1_001  # the minimum is 1
    True
    """
    refuse_unless_strong(objective)
    refuse_unless_positive("steps", steps)
    counted, w = Counted(objective), start_at(objective, start)
    average, n = w, objective.parts
    drawn = None if generator is None else generator.integers(n, size=(steps, 1))
    for t in range(1, steps + 1):
        average = average + 2 / (t + 1) * (w - average)
        slope = counted.gradient(w) if drawn is None else n * counted.part(drawn[t - 1], w)
        w = objective.project(w - 2 / (objective.strong * (t + 1)) * slope)
    return certify(objective, average, counted.gradients)
