"""L-BFGS, SciPy's, for smooth objectives whose minimum is not at the boundary."""

from __future__ import annotations

import contextlib

import numpy as np

from adaptive_dp.optimizers.certificate import certify
from adaptive_dp.optimizers.counting import (
    Counted,
    refuse_unless_positive,
    refuse_unless_smooth,
    start_at,
)
from adaptive_dp.optimizers.objective import Floats, Objective, Solution


class _Left(Exception):
    """The search left the set."""


def lbfgs(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Return where L-BFGS with 20 corrections ended.

    It knows nothing of the set: where it would leave it, it ends at the best point before, and a
    projected method must go on from there. It ends as well where the rounding of values stops its
    line search, which is at about the square root of the float's precision in the gradient.

    Parameters
    ----------
    objective
        Smooth.
    tolerance
        Ends the search where the gradient is about this small.
    steps
        The most iterations.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Liu and Nocedal 1989; Byrd, Lu, Nocedal and Zhu 1995 (L-BFGS-B).

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> lbfgs(problem, tolerance=1e-5, steps=100).residual <= 1e-5
    True
    """
    from scipy import optimize  # here: it takes long to import

    refuse_unless_smooth(objective)
    refuse_unless_positive("steps", steps)
    counted, best = Counted(objective), start_at(objective, start)
    least = np.inf

    def function(w: Floats) -> tuple[float, Floats]:
        nonlocal best, least
        if not np.array_equal(objective.project(w), w):
            raise _Left
        value, gradient = objective.value(w), counted.gradient(w)
        if value < least:
            best, least = w.copy(), value
        return value, gradient

    small = tolerance / np.sqrt(objective.width) / 2
    with contextlib.suppress(_Left):
        best, _, _ = optimize.fmin_l_bfgs_b(
            function, best, m=20, factr=0.0, pgtol=small, maxiter=steps, maxfun=3 * steps
        )
    return certify(objective, best, counted.gradients)
