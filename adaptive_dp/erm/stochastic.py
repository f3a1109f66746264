"""Stochastic gradient methods with variance reduction: SVRG and Katyusha."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from adaptive_dp.erm.objective import (
    Floats,
    Objective,
    Search,
    Solution,
    begin_search,
    certify,
)


def svrg(
    objective: Objective,
    *,
    part_smoothness: float,
    generator: np.random.Generator,
    tolerance: float = 0.0,
    epochs: int,
    start: Floats | None = None,
) -> Solution:
    """Minimize by SVRG: a part's gradient, corrected by its gradient at the epoch's anchor.

    With ``k = n part_smoothness / mu``, an epoch has m = ``6 k log 2`` steps of
    ``eta = 1 / (6 n part_smoothness)`` on F, which go on from those before; the next anchor is
    their average, a later one weighing more, by powers of ``1 / (1 - eta mu)``. What is left of a
    potential is in expectation half of it each epoch, in n + 2 m gradients of parts: about n + 8 k.
    (Restarts from an average, with a fixed m for a contraction of 5/6, take 200 k.)

    *Proof*, for F/n, of part smoothness L and strong convexity mu/n, and alpha = n eta; D(x) is the
    Bregman divergence of F/n from the minimizer x*, and c the next anchor. The gradients' variance
    is at most ``4 L (D(x) + D(anchor))``, so ``E |x' - x*|^2 <= (1 - alpha mu/n) |x - x*|^2 -
    2 alpha (1 - 2 alpha L) D(x) + 4 alpha^2 L D(anchor)``, a projection included. Summed over the
    steps with their weights, of sum S: ``|x_m - x*|^2 + 8 alpha^2 L S D(c)`` is at most ``(1 -
    alpha mu/n)^m |x_0 - x*|^2`` and half of ``8 alpha^2 L S D(anchor)``, if ``alpha <= 1/(6 L)``.

    Parameters
    ----------
    objective
        Strongly convex, a sum of n convex parts.
    part_smoothness
        A Lipschitz constant of the gradient of every single part.
    generator
        Draws the parts.
    tolerance
        Ends the search where the residual is at most this.
    epochs
        The most epochs.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Johnson and Zhang 2013; Sebbouh, Gazagnadou, Jelassi, Bach and Gower 2019 (iterates that go on
    past the anchor). The proof is own.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> draw = np.random.default_rng(0)
    >>> solution = svrg(problem, part_smoothness=0.5, generator=draw, tolerance=1e-3, epochs=40)
    >>> solution.residual <= 1e-3
    True
    """
    requirements = {"strong_convexity": True, "epochs": epochs, "part_smoothness": part_smoothness}
    search, anchor = begin_search(objective, start, tolerance, **requirements)
    n = objective.parts
    eta, mu = 1 / (6 * n * part_smoothness), objective.strong_convexity
    # (1 - eta mu)^m <= 1/2
    steps = math.ceil(math.log(2) / (eta * mu))
    weights = (1 - eta * mu) ** np.arange(steps - 1, -1, -1)
    weights = weights / weights.sum()
    w = anchor

    def epoch(anchor: Floats, full: Floats) -> Floats:
        nonlocal w
        average = np.zeros(objective.width)
        for weight, chosen in zip(weights, generator.integers(n, size=(steps, 1)), strict=True):
            # an unbiased estimate of grad F(w), of a variance that falls as w and anchor meet
            change = search.part(chosen, w) - search.part(chosen, anchor)
            w = objective.project(w - eta * (full + n * change))
            average += weight * w
        return average

    return _anchored(search, anchor, epochs, epoch)


def katyusha(
    objective: Objective,
    *,
    part_smoothness: float,
    generator: np.random.Generator,
    tolerance: float = 0.0,
    epochs: int,
    start: Floats | None = None,
) -> Solution:
    """Minimize by Katyusha: SVRG with momentum, and a term that pulls back to the anchor.

    ``O((n + sqrt(n k)) log(1 / gap))`` gradients of parts suffice in expectation, with
    ``k = n part_smoothness / mu``, against ``n k log(1 / gap)`` of gradient descent. The theorem
    has the strong convexity in the proximal term ``mu/2 |w|^2``, so it is subtracted from the
    parts: a part less ``mu / (2n) |w|^2`` must still be convex.

    Parameters
    ----------
    objective
        Strongly convex, a sum of n convex parts, a ridge spread evenly over them.
    part_smoothness
        A Lipschitz constant of the gradient of every single part.
    generator
        Draws the parts.
    tolerance
        Ends the search where the residual is at most this.
    epochs
        The most epochs, of 2n steps.
    start
        Where to begin, shape (p,); the origin if not given.

    References
    ----------
    Allen-Zhu 2017, Algorithm 1 (option I) and Theorem 2.1.

    Examples
    --------
    >>> from adaptive_dp.erm import Logistic, Problem
    >>> problem = Problem(np.eye(2), np.array([1.0, -1.0]), Logistic(), row_norm=1.0, ridge=0.5)
    >>> draw = np.random.default_rng(0)
    >>> end = katyusha(problem, part_smoothness=0.5, generator=draw, tolerance=1e-3, epochs=200)
    >>> end.residual <= 1e-3
    True
    """
    requirements = {"strong_convexity": True, "epochs": epochs, "part_smoothness": part_smoothness}
    search, anchor = begin_search(objective, start, tolerance, **requirements)
    n, mu, smoothness = (
        objective.parts,
        objective.strong_convexity,
        objective.parts * part_smoothness,
    )
    steps = 2 * n
    # tau_2, tau_1 and alpha of Algorithm 1
    tau_2, tau_1 = 0.5, min(0.5, math.sqrt(steps * mu / (3 * smoothness)))
    alpha = 1 / (3 * tau_1 * smoothness)
    # the epoch's average gives later points more weight, by powers of 1 + alpha mu
    weights = (1 + alpha * mu) ** np.arange(steps)
    weights = weights / weights.sum()
    y = z = anchor

    def epoch(anchor: Floats, full: Floats) -> Floats:
        nonlocal y, z
        average = np.zeros(objective.width)
        for weight, chosen in zip(weights, generator.integers(n, size=(steps, 1)), strict=True):
            # momentum: between the mirror point z, the anchor and the gradient point y
            x = tau_1 * z + tau_2 * anchor + (1 - tau_1 - tau_2) * y
            change = search.part(chosen, x) - search.part(chosen, anchor)
            slope = full + n * change - mu * x  # of the parts less their strong convexity
            # proximal step of mu/2 |w|^2, with step size alpha
            z = objective.project((z - alpha * slope) / (1 + alpha * mu))
            # option I: a proximal gradient step from x, with step size 1 / (3 smooth)
            y = objective.project((3 * smoothness * x - slope) / (3 * smoothness + mu))
            average += weight * y
        return average

    return _anchored(search, anchor, epochs, epoch)


def _anchored(
    search: Search, anchor: Floats, epochs: int, epoch: Callable[[Floats, Floats], Floats]
) -> Solution:
    """Return the solution after epochs, each from an anchor and its full gradient to the next."""
    solution = certify(search.objective, anchor)
    for _ in range(epochs):
        anchor = epoch(anchor, search.gradient(anchor))
        solution = search.solution(anchor)
        search.gradients = solution.gradients
        if solution.residual <= search.tolerance:
            break
    return solution
