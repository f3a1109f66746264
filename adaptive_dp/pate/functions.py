"""Functions of released values that plans of the library call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accountants.losses.smooth_gaussian import Sanitization
from accountants.notions.renyi import renyi_to_epsilon
from accountants.rounding import up
from adaptive_dp.graph.errors import RunError
from adaptive_dp.noise import lattice
from adaptive_dp.primitives.bounded_grid import step

Labels = NDArray[np.int64]


def checked_points(at: Any, *, size: int, width: int) -> Any:
    """Return rows to vote on, or refuse what does not have the declared shape.

    Raises
    ------
    RunError
        If it is not ``size`` rows of ``width`` numbers.
    """
    found = np.asarray(at)
    if found.dtype.kind not in "biuf" or found.shape != (size, width):
        raise RunError(
            f"votes are declared on {size} rows of {width} features, got shape {found.shape}; "
            "choose so many rows of the points, or declare votes(..., size=...) as they are"
        )
    return found.astype(np.float64)


NEVER = -2
"""The answer of a point that was not asked."""


def unasked(size: int) -> Labels:
    """Return the answers of so many points of which none was asked."""
    return np.full(int(size), NEVER, dtype=np.int64)


def at_random(count: int, *, size: int, seed: int) -> Labels:
    """Return ``size`` different positions among ``count``, drawn by a public seed."""
    return np.random.default_rng(seed).permutation(int(count))[:size]


def picked(points: Any, chosen: Any) -> Any:
    """Return the points at some positions."""
    return np.asarray(points)[np.asarray(chosen)]


def noted(answers: Any, chosen: Any, said: Any) -> Labels:
    """Return answers, with what was said on the points at some positions."""
    found = np.array(answers, dtype=np.int64)
    found[np.asarray(chosen)] = np.asarray(said)
    return found


def known(answers: Any) -> Labels:
    """Return answers, -1 where there is none."""
    return np.maximum(np.asarray(answers, dtype=np.int64), -1)


def checked_probabilities(given: Any, *, questions: int, classes: int) -> Any:
    """Return the student's probabilities, or refuse what are none.

    Raises
    ------
    RunError
        If they are not ``questions`` rows of ``classes`` numbers from 0 to 1.
    """
    found = np.asarray(given)
    if found.dtype.kind not in "biuf" or found.shape != (questions, classes):
        raise RunError(
            f"probabilities are of shape {(questions, classes)} (questions, classes), got shape "
            f"{found.shape}; give one for each class of each question"
        )
    found = found.astype(np.float64)
    if not ((found >= 0) & (found <= 1)).all():
        raise RunError(
            "probabilities must be numbers from 0 to 1; what is given has others, or NaN among them"
        )
    return found


def spent_upper(
    released: Any, sigma: float, beta: float, spread: float, *, failure: float, worst: float
) -> float:
    """Return what is at least f, but with probability ``failure``: see `pate.Sanitized`.

    Parameters
    ----------
    released
        The two numbers that `Sanitized` released.
    sigma, beta, spread
        Its parameters.
    worst
        The worst case, which f does not exceed.
    """
    bound, logarithm = (float(v) for v in released)
    # rounding to the grids, and that of S sigma; cuts at bounds make neither too small
    bound, logarithm = bound + step(0.0, worst), logarithm + lattice.step(beta * spread) + 1e-9
    found = Sanitization(sigma, beta, spread).upper(bound, logarithm, failure)
    return min(found, worst)


def spent_epsilon(bound: float, *, order: float, delta: float, beside: float) -> float:
    """Return the epsilon at delta of divergences ``bound + beside`` at one order."""
    total = np.array([up(bound + beside, 2)])
    return max(0.0, float(renyi_to_epsilon(total, np.array([order]), delta)[0]))
