"""Ridge regression by output perturbation: what each record loses by one release.

The mechanism releases ``theta + N(0, sigma^2 I)``, ``theta = (X'X + ridge I)^-1 X'y``. With or
without record i it is one Gaussian or another with the same covariance, so the loss of the pair
is exactly that of `accountants.Gaussian` with

``mu_i = |theta - theta_-i| / sigma = |y_i - x_i' theta| |H^-1 x_i| / ((1 - x_i' H^-1 x_i) sigma)``.

References
----------
Wang 2019, sec. 3 and Fig. 1; its caption's ``(X'X + I)^-1 X y`` is ``(X'X + I)^-1 X'y``.
"""

from __future__ import annotations

import math

from numpy.typing import ArrayLike

from accountants.errors import positive
from accountants.rounding import Array, up
from accountants.secret import Secret
from adaptive_dp.instance.composition import gaussian_epsilons
from adaptive_dp.instance.ridge import records
from adaptive_dp.instance.worst_posterior import RidgeBounds


def output_mus(x: ArrayLike, y: ArrayLike, *, ridge: float, sigma: float) -> Secret[Array]:
    """Return the mu of every record of the data.

    Parameters
    ----------
    x, y
        Records as rows of shapes (n, d) and (n,), as the mechanism reads them: clipped.
    ridge, sigma
        Positive; sigma is the noise's standard deviation on each coordinate.

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.5, -0.5, 1.0]
    >>> mus = output_mus(x, y, ridge=1.0, sigma=1.0)
    >>> mus, mus.reveal().round(3).tolist()
    (<private>, [0.032, 0.351, 0.35])
    """
    return Secret(up(records(x, y, ridge).influence / positive("sigma", sigma), 2))


def output_epsilons(
    x: ArrayLike, y: ArrayLike, *, ridge: float, sigma: float, delta: float
) -> Secret[Array]:
    """Return the exact epsilon at ``delta`` of every record of the data, in both directions.

    Examples
    --------
    >>> x, y = [[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], [0.5, -0.5, 1.0]
    >>> output_epsilons(x, y, ridge=1.0, sigma=1.0, delta=1e-6).reveal().round(2).tolist()
    [0.12, 1.53, 1.53]
    """
    return Secret(gaussian_epsilons(output_mus(x, y, ridge=ridge, sigma=sigma).reveal(), delta))


def worst_output_mu(bounds: RidgeBounds, *, sigma: float) -> float:
    """Return the largest mu of any record that may come or go, given bounds of the data set.

    For an addition ``v = H^-1 x`` moves theta by ``v e / (1 + v'Hv)``, with ``v'Hv >= h |v|^2`` and
    ``|v| <= B / h``: at most ``residual B / (h + B^2)`` where ``B^2 <= h``, and ``residual / (2
    sqrt h)`` beyond. For a removal h is what is left of the curvature, and the error there is
    ``residual (1 + m)`` with ``1 + m = 1 + v'Hv``, so theta moves by ``residual |v|`` at most.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(worst_output_mu(bounds, sigma=1.0), 6)
    0.019802
    """
    sigma = positive("sigma", sigma)
    leverage, h = bounds.leverage(), bounds.least()
    if bounds.removals:
        return up(bounds.residual * (bounds.norm / h) / sigma, 8) if h > 0 else math.inf
    reach = bounds.norm / h / (1 + leverage) if leverage <= 1 else 0.5 / math.sqrt(h)
    return up(bounds.residual * reach / sigma, 16)
