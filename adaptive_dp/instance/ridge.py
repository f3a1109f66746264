"""What a ridge regression says of each of its records: leverage, prediction error, influence.

With ``H = X'X + ridge I`` and ``theta = H^-1 X'y``, and for record i what is left without it
marked by -i (Sherman and Morrison 1950):

``m' = x_i' H^-1 x_i``, ``m = x_i' H_-i^-1 x_i = m' / (1 - m')``,
``y_i - x_i' theta_-i = (y_i - x_i' theta) / (1 - m')``,
``theta - theta_-i = H^-1 x_i (y_i - x_i' theta) / (1 - m')``.
"""

from __future__ import annotations

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from accountants.errors import positive
from accountants.rounding import UNIT, Array, up
from adaptive_dp.graph.errors import DataError


@frozen(eq=False, repr=False)
class Records:
    """Upper bounds for every record, in its data set, against the data set without it.

    Parameters
    ----------
    leverage
        ``m``, without the record.
    error
        ``|y_i - x_i' theta_-i|``, the prediction error without the record.
    influence
        ``|theta - theta_-i|_2``.
    """

    leverage: Array
    error: Array
    influence: Array


def records(x: ArrayLike, y: ArrayLike, ridge: float) -> Records:
    """Return leverage, prediction error and influence of all records.

    Rounding goes outward, see `rounding`; what overflows or is ill-conditioned past that is
    infinite. A row with a number that is not finite counts as zeros.

    Parameters
    ----------
    x, y
        Of shapes (n, d) and (n,).
    ridge
        Positive.
    """
    ridge = positive("ridge", ridge)
    a, b = table(x, y)
    with np.errstate(all="ignore"):
        h = a.T @ a + ridge * np.eye(a.shape[1])
        if not np.isfinite(h).all():
            return Records(*(np.full(len(a), np.inf) for _ in range(3)))
        values, vectors = np.linalg.eigh(h)
        least = max(float(values[0]), ridge / 2)
        blur = rounding(a, float(values[-1]) / least)
        solved = (a @ vectors / np.maximum(values, least)) @ vectors.T
        theta = solved.T @ b
        square = np.einsum("ij,ij->i", a, a)
        inside = np.einsum("ij,ij->i", a, solved) * (1 + blur)
        inside = np.minimum(inside, up(square / (square + ridge), 8))  # for X'X >= x x'
        left = (1 - inside) * (1 - blur) if blur < 0.5 else np.zeros(len(a))
        size = float(np.linalg.norm(theta) + np.linalg.norm(b) / np.sqrt(values[-1]))
        slack = blur * (np.abs(b) + np.sqrt(square) * size)
        error = up((np.abs(b - a @ theta) + slack) / left, 8)
        influence = up(error * np.linalg.norm(solved, axis=1) * (1 + blur), 8)
        found = up(inside / left, 8), error, influence
    return Records(*(np.where((left > 0) & np.isfinite(v), v, np.inf) for v in found))


def rounding(a: Array, condition: float) -> float:
    """Return how far, relatively, rounding may move what is solved with ``A'A``.

    To form the matrix and right-hand sides of n rows and d columns costs at most n units in each
    entry, so ``n d`` of its norm, and to solve a few times ``d^2``; the condition multiplies both
    (Higham 2002, Thm 7.2).
    """
    n, d = a.shape
    return float(8 * (n + d + 8) * d * UNIT * condition)


def table(x: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
    """Return records as float64, those without finite numbers as zeros.

    Raises
    ------
    DataError
        If the shapes do not fit; it tells of the columns only.
    """
    a, b = np.array(x, dtype=np.float64), np.array(y, dtype=np.float64)
    if a.ndim != 2 or b.shape != a.shape[:1]:
        raise DataError(
            f"records come as x with a row each and y with a number each, got arrays of {a.ndim} "
            f"and {b.ndim} dimensions, or of different lengths"
        )
    odd = ~(np.isfinite(a).all(axis=1) & np.isfinite(b))
    a[odd], b[odd] = 0.0, 0.0
    return a, b
