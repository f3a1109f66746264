"""Newton's method with a line search on the gradient's norm."""

from __future__ import annotations

import numpy as np

from adaptive_dp.optimizers.certificate import certify
from adaptive_dp.optimizers.counting import Counted, refuse_unless_positive, start_at
from adaptive_dp.optimizers.objective import Curved, Floats, Objective, Solution

NOISE = 1e-12
"""The share of F by which it must fall at least: far above what computing it is off by."""


def newton(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Return where Newton's method ended.

    Steps are halved until ``|grad F|`` falls by a quarter of what the linear model promises. Along
    ``-H^-1 grad F`` the squared norm falls at rate ``2 |grad F|^2``, so that such a step exists
    where F is twice differentiable. Where its gradient has kinks (Huber's loss), F itself need fall
    by a thousandth of what the linear model promises; values alone would not do, since they stop to
    tell points apart at the square root of the float's precision. It ends where no step makes
    either smaller, or where one leaves the set.

    Parameters
    ----------
    objective
        With a `hessian`, which is counted as p gradients.
    tolerance
        Ends the search where the gradient is at most half of this.
    steps
        The most steps.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Nocedal and Wright 2006, sections 3.3 and 11.2.

    Examples
    --------
    >>> from adaptive_dp.problems import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> newton(problem, tolerance=1e-10, steps=20).residual <= 1e-10
    True
    """
    if not isinstance(objective, Curved):
        raise TypeError("newton needs an objective with a hessian(w); use `lbfgs` without one")
    refuse_unless_positive("steps", steps)
    counted, w = Counted(objective), start_at(objective, start)
    gradient = counted.gradient(w)
    for _ in range(steps):
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance / 2:
            break
        counted.gradients += objective.parts * objective.width
        towards, before = _direction(objective.hessian(w), gradient), objective.value(w)
        for halvings in range(30):
            part = 0.5**halvings
            ahead = w + part * towards
            if not np.array_equal(objective.project(ahead), ahead):
                return certify(objective, w, counted.gradients)
            then = counted.gradient(ahead)
            if float(np.linalg.norm(then)) <= (1 - part / 4) * norm:
                break
            fall = part / 1000 * float(gradient @ towards)
            if objective.value(ahead) - before <= fall - NOISE * abs(before):
                break
        else:
            break
        w, gradient = ahead, then
    return certify(objective, w, counted.gradients)


def _direction(hessian: Floats, gradient: Floats) -> Floats:
    """Return the Newton step; that of a gradient step where the Hessian is not positive."""
    from scipy import linalg  # here: it takes long to import

    try:
        factor = linalg.cho_factor(hessian)
    except linalg.LinAlgError:
        return -gradient / max(float(np.abs(hessian).sum(axis=1).max()), 1e-300)
    return np.asarray(-linalg.cho_solve(factor, gradient), dtype=np.float64)
