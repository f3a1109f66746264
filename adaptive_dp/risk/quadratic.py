"""The hard instance: records pull w towards a point each, ``f(w; x) = |A (w - x)|^2 / 2``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accountants.errors import DomainError, positive
from accountants.rounding import down, up
from adaptive_dp.risk.setting import ROUNDING, Neighbors, Setting


def quadratic(
    matrix: ArrayLike, n: int, radius: float, *, neighbors: Neighbors = "replace_one"
) -> Setting:
    """Return the setting of ``|A (w - x)|^2 / 2`` with w and x in the ball of a radius.

    The Hessian is A'A: mu and beta are its least and greatest eigenvalue, the squares of A's
    singular values s. The gradient ``A'A (w - x)`` has norm at most ``2 R s_max^2``. The minimizer
    of the sum is the mean of the x, where the gradient vanishes.

    Parameters
    ----------
    matrix
        A, public; shape (k, p), of rank p where mu is to be positive.
    n, radius, neighbors
        As for `Setting`.

    Examples
    --------
    >>> known = quadratic([[1.0, 0.0], [0.0, 2.0]], n=100, radius=1.0)
    >>> round(known.strong, 6), round(known.smooth, 6), round(known.lipschitz, 6)
    (1.0, 4.0, 8.0)
    """
    a = np.asarray(matrix, dtype=np.float64)
    if a.ndim != 2 or not a.size or not np.all(np.isfinite(a)):
        raise DomainError(f"matrix must be a finite array of shape (k, p), got shape {a.shape}")
    values = np.linalg.svd(a, compute_uv=False)
    largest = float(values[0])
    slack = largest * max(a.shape) * 2.0**-50  # of LAPACK's singular values, absolute
    least = max(0.0, float(values[-1]) - slack) if a.shape[0] >= a.shape[1] else 0.0
    steepest = up((largest + slack) ** 2, ROUNDING)
    return Setting(
        n=n,
        width=a.shape[1],
        lipschitz=up(2 * positive("radius", radius) * steepest, ROUNDING),
        radius=radius,
        strong=max(0.0, down(least**2, ROUNDING)),
        smooth=steepest,
        stationary=True,
        neighbors=neighbors,
    )
