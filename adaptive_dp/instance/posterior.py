"""Posterior sampling of a ridge regression: what each record loses by one sample.

The mechanism releases a sample of ``N(theta, (1/gamma) (X'X + ridge I)^-1)``; its density is
proportional to ``exp(-(gamma/2) (|y - X t|^2 + ridge |t|^2))``. Gamma and ridge are public.

References
----------
Wang 2019, sec. 4, with the constants of `closed_form` put right; the exact loss is derived in
`adaptive_dp.instance.quadratic`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accountants.errors import positive
from accountants.rounding import Array, up
from accountants.secret import Secret
from adaptive_dp.instance import quadratic
from adaptive_dp.instance.ridge import records


def posterior_pairs(
    x: ArrayLike, y: ArrayLike, *, ridge: float, gamma: float
) -> tuple[Array, Array]:
    """Return each record's leverage and gap, those of the data set without it (private)."""
    gamma = positive("gamma", gamma)
    found = records(x, y, ridge)
    with np.errstate(over="ignore", invalid="ignore"):
        gap = up(np.sqrt(gamma) * np.sqrt(found.leverage) * found.error, 8)
    return found.leverage, np.where(np.isnan(gap), np.inf, gap)


def posterior_epsilons(
    x: ArrayLike, y: ArrayLike, *, ridge: float, gamma: float, delta: float
) -> Secret[Array]:
    """Return the exact epsilon at ``delta`` of every record of the data, in both directions.

    Parameters
    ----------
    x, y
        Records as rows of shapes (n, d) and (n,), as the mechanism reads them: clipped.
    ridge, gamma
        Positive.
    delta
        In (0, 1).

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> x, y = np.eye(2).repeat(50, axis=0), np.linspace(-1, 1, 100)
    >>> posterior_epsilons(x, y, ridge=1.0, gamma=0.1, delta=1e-6)
    <private>
    """
    return Secret(quadratic.epsilon(delta, *posterior_pairs(x, y, ridge=ridge, gamma=gamma)))
