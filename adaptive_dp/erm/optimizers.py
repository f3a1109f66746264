"""Optimizers of convex objectives, from gradient descent to Newton's method, and `minimize`.

The rates in the docstrings say how long a search takes; what is proven of its result is the
certificate (`adaptive_dp.erm.objective.certify`), which looks at the result alone. So no rate is
assumed for privacy.
"""

from __future__ import annotations

import contextlib
import math

import numpy as np

from adaptive_dp.erm.objective import (
    Curved,
    Floats,
    Gapped,
    NotReached,
    Objective,
    Solution,
    begin_search,
    check_arguments,
)

# -----------------------------------------------------------------------------
# Projected gradient descent.


def gradient_descent(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Minimize by projected gradient descent; return the last point.

    ``w <- P(w - eta grad F(w))`` with ``eta = 2 / (mu + beta)``. The distance to the minimizer
    falls by a factor of ``(k - 1) / (k + 1)`` a step, ``k = beta / mu``, where F is smooth and
    strongly convex on the whole space.

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
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> gradient_descent(problem, tolerance=1e-6, steps=1_000).residual <= 1e-6
    True
    """
    search, w = begin_search(objective, start, tolerance, smoothness=True, steps=steps)
    strong_convexity, smoothness = objective.strong_convexity, objective.smoothness
    eta = (
        2 / (strong_convexity + smoothness) if strong_convexity > 0 else 1 / smoothness
    )  # Nesterov 2018, Theorem 2.1.15
    for _ in range(steps):
        next_w = objective.project(w - eta * search.gradient(w))
        mapping = float(np.linalg.norm(next_w - w)) / eta  # the gradient mapping's norm
        w = next_w
        if solution := search.proven(w, mapping):
            return solution
    return search.solution(w)


def averaged_descent(
    objective: Objective, *, diameter: float, steps: int, start: Floats | None = None
) -> Solution:
    r"""Minimize by projected subgradient descent; return the average of T points.

    With steps of ``eta = D / (L sqrt T)``: ``F(average) - min F <= L D / sqrt(T)`` for every convex
    F with subgradients of norm at most L on a set of diameter D (of the whole F: of a sum of n
    losses L is n times that of one).

    *Proof.* ``|w_{t+1} - w*|^2 <= |w_t - w*|^2 - 2 eta <g_t, w_t - w*> + eta^2 L^2``, since P is
    nonexpansive. Summed over t, with ``F(w_t) - F* <= <g_t, w_t - w*>`` and Jensen's inequality,
    the gap is at most ``D^2 / (2 eta T) + eta L^2 / 2``, which is ``L D / sqrt(T)`` at this eta.
    With the largest norm of the set instead of D (as is sometimes printed) the bound is false.

    References
    ----------
    Bubeck 2015, Theorem 3.2.

    Examples
    --------
    >>> from adaptive_dp.erm import Hinge, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Hinge(), row_norm=1.0, radius=1.0)
    >>> w = averaged_descent(problem, diameter=2.0, steps=400).w
    >>> problem.value(w) <= 2 - 2**0.5 + 2 * problem.lipschitz / 20
    True
    """
    search, w = begin_search(objective, start, steps=steps)
    if not 0 < diameter < math.inf or not 0 < objective.lipschitz < math.inf:
        raise ValueError(
            "averaged_descent needs a positive, finite diameter of the set and `lipschitz` of the "
            f"objective, got {diameter} and {objective.lipschitz}"
        )
    # minimizes D^2 / (2 eta T) + eta L^2 / 2 of the proof
    eta = diameter / (objective.lipschitz * math.sqrt(steps))
    total = np.zeros(objective.width)
    for _ in range(steps):
        total += w
        w = objective.project(w - eta * search.gradient(w))
    return search.solution(total / steps)


# -----------------------------------------------------------------------------
# Nesterov's accelerated gradient descent, projected.


def accelerated(
    objective: Objective,
    *,
    tolerance: float = 0.0,
    steps: int,
    restart: bool = False,
    start: Floats | None = None,
) -> Solution:
    """Minimize by Nesterov's accelerated projected gradient descent; return the last point.

    ``w' = P(y - grad F(y) / beta)``, ``y' = w' + m (w' - w)``. With strong convexity ``m = (sqrt k
    - 1) / (sqrt k + 1)``, ``k = beta / mu``, and ``F(w) - min F`` is at most ``(1 - 1 / sqrt k)^T``
    times ``F(w_0) - min F + mu/2 |w_0 - w*|^2``. Without it (or with ``restart``) m grows as in
    FISTA and is reset to 0 whenever the last step and the momentum have opposite directions, which
    adapts to curvature that is larger than mu.

    Parameters
    ----------
    objective
        Smooth.
    tolerance
        Ends the search where the residual is at most this.
    steps
        The most steps.
    restart
        Whether to use restarts even with strong convexity.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Nesterov 2018, section 2.2.1, constant step scheme III; Bubeck 2015, Theorem 3.18; Beck and
    Teboulle 2009 (FISTA); O'Donoghue and Candes 2015 (gradient restart).

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> accelerated(problem, tolerance=1e-6, steps=1_000).residual <= 1e-6
    True
    """
    search, w = begin_search(objective, start, tolerance, smoothness=True, steps=steps)
    fixed = objective.strong_convexity > 0 and not restart
    root = (
        math.sqrt(max(1.0, objective.smoothness / objective.strong_convexity))
        if fixed
        else math.inf
    )
    momentum, age = (root - 1) / (root + 1) if fixed else 0.0, 1.0
    y = w
    for _ in range(steps):
        next_w = objective.project(y - search.gradient(y) / objective.smoothness)
        if not fixed:
            # O'Donoghue and Candes 2015: restart where the gradient points along the momentum
            opposite = float((y - next_w) @ (next_w - w)) > 0
            last, age = (1.0, 1.0) if opposite else (age, (1 + math.sqrt(1 + 4 * age**2)) / 2)
            momentum = 0.0 if opposite else (last - 1) / age
        mapping = objective.smoothness * float(np.linalg.norm(y - next_w))  # its norm, at y
        w, y = next_w, next_w + momentum * (next_w - w)
        if solution := search.proven(w, mapping):
            return solution
    return search.solution(w)


# -----------------------------------------------------------------------------
# Subgradient descent for strongly convex objectives, stochastic or not.


def subgradient(
    objective: Objective,
    *,
    steps: int,
    generator: np.random.Generator | None = None,
    start: Floats | None = None,
) -> Solution:
    """Minimize a strongly convex objective by subgradient descent; return a weighted average.

    Steps are ``2 / (mu (t + 1))``, the points' weights proportional to t. With estimates of the
    subgradient whose expected squared norm is at most ``L^2`` the expected ``F - min F`` is at most
    ``2 L^2 / (mu (T + 1))``. Single runs are above it every so often: the proof of a run is its
    certificate, which for losses with kinks needs the objective's `gap`; without one the residual
    is the subgradient's norm, which is seldom small.

    Parameters
    ----------
    objective
        Strongly convex.
    steps
        The number of steps, T.
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
    >>> from adaptive_dp.erm import Hinge, Problem
    >>> x, y = np.eye(2), np.array([1.0, -1.0])
    >>> problem = Problem(x, y, Hinge(), row_norm=1.0, ridge=1.0, radius=2.0)
    >>> solution = subgradient(problem, steps=1_000)
    >>> problem.value(solution.w) <= 1 + 2 * problem.lipschitz**2 / 1_001  # the minimum is 1
    True
    """
    search, w = begin_search(objective, start, strong_convexity=True, steps=steps)
    average, n = w, objective.parts
    drawn = None if generator is None else generator.integers(n, size=(steps, 1))
    for t in range(1, steps + 1):
        average = average + 2 / (t + 1) * (w - average)  # weights proportional to t
        slope = search.gradient(w) if drawn is None else n * search.part(drawn[t - 1], w)
        w = objective.project(w - 2 / (objective.strong_convexity * (t + 1)) * slope)
    return search.solution(average)


# -----------------------------------------------------------------------------
# Newton's method with a line search on the gradient's norm.


VALUE_ROUNDING = 1e-12
"""The share of F by which it must decrease at least: far above the rounding error of F."""


def newton(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Minimize by Newton's method, with a line search on the gradient's norm.

    Steps are halved until ``|grad F|`` decreases by a quarter of the linear model's prediction.
    Along ``-H^-1 grad F`` the squared norm decreases at rate ``2 |grad F|^2``, so that such a step
    exists where F is twice differentiable. Where its gradient has kinks (Huber's loss), a decrease
    of F by a thousandth of the prediction suffices; values alone would not do, since in floats
    they cannot distinguish points closer than the square root of the precision. It ends where no
    step decreases either, or where one leaves the set.

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
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> newton(problem, tolerance=1e-10, steps=20).residual <= 1e-10
    True
    """
    if not isinstance(objective, Curved):
        raise TypeError("newton needs an objective with a hessian(w); use `lbfgs` without one")
    search, w = begin_search(objective, start, steps=steps)
    gradient = search.gradient(w)
    for _ in range(steps):
        norm = float(np.linalg.norm(gradient))
        if norm <= tolerance / 2:
            break
        # a Hessian is counted as p gradients of all parts
        search.gradients += objective.parts * objective.width
        direction, value = _direction(objective.hessian(w), gradient), objective.value(w)
        for halvings in range(30):
            length = 0.5**halvings
            next_w = w + length * direction
            # outside of the set: the minimum may lie on the boundary, which Newton cannot find
            if not np.array_equal(objective.project(next_w), next_w):
                return search.solution(w)
            next_gradient = search.gradient(next_w)
            # the linear model predicts (1 - length) |g|: a quarter of that decrease suffices
            if float(np.linalg.norm(next_gradient)) <= (1 - length / 4) * norm:
                break
            decrease = length / 1000 * float(gradient @ direction)  # negative
            if objective.value(next_w) - value <= decrease - VALUE_ROUNDING * abs(value):
                break
        else:
            break
        w, gradient = next_w, next_gradient
    return search.solution(w)


def _direction(hessian: Floats, gradient: Floats) -> Floats:
    """Return the Newton step; a gradient step where the Hessian is not positive definite."""
    from scipy import linalg  # here, since it takes long to import

    try:
        factor = linalg.cho_factor(hessian)
    except linalg.LinAlgError:
        return -gradient / max(float(np.abs(hessian).sum(axis=1).max()), 1e-300)
    return np.asarray(-linalg.cho_solve(factor, gradient), dtype=np.float64)


# -----------------------------------------------------------------------------
# L-BFGS.


class _LeftSet(Exception):
    """The search left the set."""


def lbfgs(
    objective: Objective, *, tolerance: float = 0.0, steps: int, start: Floats | None = None
) -> Solution:
    """Minimize by SciPy's L-BFGS with 20 corrections, where the minimum is not at the boundary.

    It does not use the set: where it would leave it, it ends at the best point before, and a
    projected method must continue from there. It also ends where the rounding of values stops its
    line search, at about the square root of the float's precision in the gradient.

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
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.01)
    >>> lbfgs(problem, tolerance=1e-5, steps=100).residual <= 1e-5
    True
    """
    from scipy import optimize  # here, since it takes long to import

    search, best = begin_search(objective, start, smoothness=True, steps=steps)
    least = np.inf

    def function(w: Floats) -> tuple[float, Floats]:
        nonlocal best, least
        # ends SciPy's search; `best` is the best point inside
        if not np.array_equal(objective.project(w), w):
            raise _LeftSet
        value, gradient = objective.value(w), search.gradient(w)
        if value < least:
            best, least = w.copy(), value
        return value, gradient

    # |g|_2 <= sqrt(p) |g|_inf: half of the tolerance in l2, from the maximum norm that SciPy tests
    gradient_tolerance = tolerance / np.sqrt(objective.width) / 2
    with contextlib.suppress(_LeftSet):
        best, _, _ = optimize.fmin_l_bfgs_b(
            function,
            best,
            m=20,
            factr=0.0,
            pgtol=gradient_tolerance,
            maxiter=steps,
            maxfun=3 * steps,
        )
    return search.solution(best)


# -----------------------------------------------------------------------------
# `minimize`, which chooses a method.


MAX_HESSIAN_WIDTH = 1000
"""The largest number of parameters for which a Hessian of p^2 numbers is computed."""


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
        If no solution within the tolerance was proven in these steps. The message holds no data.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> from adaptive_dp.erm import Problem
    >>> x, y = np.array([[1.0], [0.5], [-1.0]]), np.array([1.0, 0.5, -0.8])
    >>> problem = Problem(x, y, dp.Squared(), row_norm=1.0, ridge=0.25)
    >>> solution = minimize(problem, tolerance=1e-8)
    >>> round(float(solution.w[0]), 6), solution.residual <= 1e-8
    (0.82, True)
    """
    check_arguments(objective, strong_convexity=True, tolerance=tolerance, steps=steps)
    if objective.smoothness < math.inf:
        solution = _minimize_smooth(objective, tolerance, start, steps)
    elif isinstance(objective, Gapped):
        solution = _minimize_nonsmooth(objective, tolerance, start, steps)
    else:
        raise ValueError(
            "the objective has kinks (its `smoothness` is infinite) and no gap(w), so no solution "
            "can be proven; give it one, or take a smooth loss such as the Huber hinge"
        )
    if not solution.residual <= tolerance:
        raise NotReached(
            f"no solution within the tolerance {tolerance} was proven; allow more steps, or choose "
            "a tolerance above the rounding of the gradient"
        )
    return solution


def _minimize_smooth(
    objective: Objective, tolerance: float, start: Floats | None, steps: int
) -> Solution:
    """Return the first solution within the tolerance, or the last one."""
    curved = isinstance(objective, Curved) and objective.width <= MAX_HESSIAN_WIDTH
    second_order = newton if curved else lbfgs
    first = second_order(objective, tolerance=tolerance / 2, steps=min(steps, 1000), start=start)
    # or rounding alone exceeds the tolerance, so that no residual within it can be proven
    if first.residual <= tolerance or objective.rounding(first.w) >= tolerance:
        return first
    # an infinite residual proves nothing of the point: begin again
    begin = first.w if first.residual < math.inf else start
    last = accelerated(objective, tolerance=tolerance, steps=steps, start=begin)
    return Solution(last.w, last.residual, first.gradients + last.gradients)


def _minimize_nonsmooth(
    objective: Objective, tolerance: float, start: Floats | None, steps: int
) -> Solution:
    """Return the first solution within the tolerance, doubling the number of steps."""
    gradients, batch = 0, min(steps, 100)
    while True:
        solution = subgradient(objective, steps=batch, start=start)
        gradients += solution.gradients
        if solution.residual <= tolerance or batch >= steps:
            return Solution(solution.w, solution.residual, gradients)
        # doubling costs at most about twice the steps of the last run
        batch = min(steps, 2 * batch)
