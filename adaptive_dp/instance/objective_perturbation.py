"""Logistic regression by objective perturbation: what each record loses by the released theta.

The mechanism releases the minimizer of ``J(t) + b't``, ``b ~ N(0, sigma^2 I)``, where
``J(t) = sum_i log(1 + e^(-y_i x_i't)) + (ridge / 2) |t|^2``. Since ``b = -grad J(theta)``, theta
has the density ``N(grad J(theta); 0, sigma^2 I) det(Hess J(theta))``. Without record i, of gradient
g and curvature ``f = s (1 - s)`` in direction x, ``s = 1 / (1 + e^(y x'theta))``, the log of the
densities' ratio is

``loss_i = -log(1 - f m) + |g|^2 / (2 sigma^2) - g'grad J / sigma^2``,
``m = x'(Hess J)^-1 x``, J and its derivatives at theta and with the record, ridge included.

An equality, not a bound, as for every generalised linear model: the Hessian moves by one rank.

References
----------
Redberg and Wang 2021, Thm 3.2 (ex-post per-instance privacy of objective perturbation, as an
inequality); the change of variables is in Chaudhuri, Monteleoni and Sarwate 2011, Thm 9.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accountants import special
from accountants.errors import positive
from accountants.rounding import Array, up
from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError
from adaptive_dp.instance.ridge import rounding, table


def objective_losses(
    x: ArrayLike, y: ArrayLike, theta: ArrayLike, *, ridge: float, sigma: float
) -> Secret[Array]:
    """Return ``|log p_Z(theta) / p_{Z - i}(theta)|`` for every record i of the data Z.

    An ex-post loss: of the theta that was released, not of the mechanism before it ran. Rounding
    goes outward (see `adaptive_dp.instance.ridge.rounding`).

    Parameters
    ----------
    x, y
        Records as rows of shape (n, d), and labels -1 or 1, as the mechanism reads them. A label
        counts by its sign, a row without finite numbers as zeros.
    theta
        Of shape (d,), what was released: the exact minimizer.
    ridge, sigma
        Positive; sigma is the standard deviation on each coordinate of b.

    Returns
    -------
    Secret
        Of n numbers in nats; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [1, -1, 1]
    >>> losses = objective_losses(x, y, theta=[0.5, 0.1], ridge=1.0, sigma=2.0)
    >>> losses, (np.ceil(1_000 * losses.reveal()) / 1_000).tolist()
    (<private>, [0.204, 0.193, 0.215])
    """
    ridge, sigma = positive("ridge", ridge), positive("sigma", sigma)
    a, label = table(x, y)
    at = np.asarray(theta, dtype=np.float64)
    if at.shape != (a.shape[1],) or not np.isfinite(at).all():
        raise DataError(f"theta must be {a.shape[1]} finite numbers, one for each column of x")
    with np.errstate(all="ignore"):
        return Secret(_losses(a, np.sign(label), at, ridge, sigma))


def _losses(a: Array, label: Array, theta: Array, ridge: float, sigma: float) -> Array:
    margin = label * (a @ theta)
    wrong = special.expit(-margin)
    curvature = np.where(label == 0, 0.0, wrong * special.expit(margin))
    gradients = -(label * wrong)[:, None] * a
    total = gradients.sum(axis=0) + ridge * theta
    hessian = (a * curvature[:, None]).T @ a + ridge * np.eye(len(theta))
    if not np.isfinite(hessian).all():
        return np.full(len(a), np.inf)
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(values, ridge / 2)
    blur = rounding(a, float(values[-1] / values[0]))
    square = np.einsum("ij,ij->i", a, a)
    share = curvature * (((a @ vectors) ** 2) / values).sum(axis=1)
    share = np.minimum(share, up(curvature * square / (curvature * square + ridge), 8))
    blur *= 1 + float(np.sqrt(square.max(initial=0.0)) * np.linalg.norm(theta))  # of the margins
    norms, size = np.linalg.norm(gradients, axis=1), np.linalg.norm(gradients, axis=1).sum()
    size += ridge * np.linalg.norm(theta)
    loss = -np.log1p(-share) + norms**2 / (2 * sigma**2) - gradients @ total / sigma**2
    slack = blur * (share / (1 - share) + norms * (norms + size) / sigma**2)
    bound = up(np.abs(loss) + slack, 8)
    result: Array = np.where(np.isfinite(bound) & (blur < 0.5), bound, np.inf)
    return result
