"""A Gaussian release of a clipped sum: what each record loses.

The mechanism releases ``sum_i x_i min(1, C / |x_i|) + N(0, sigma^2 I)``. With or without record i
its mean moves by ``min(|x_i|, C)``, so the loss of the pair is exactly that of a Gaussian with

``mu_i = min(|x_i|_2, C) / sigma``  (Dong, Roth and Su 2022, Thm 1; Feldman and Zrnic 2021, sec. 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accountants.errors import positive
from accountants.rounding import Array, up
from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError


def clipped_sum_mus(x: ArrayLike, *, bound: float, sigma: float) -> Secret[Array]:
    """Return the mu of every record of the data.

    Parameters
    ----------
    x
        Records as rows, of shape (n, d), before they are clipped. One that holds anything but
        finite numbers counts as one at the bound.
    bound, sigma
        Positive: the bound of ``|x_i|_2`` and the noise's standard deviation on each coordinate.

    Returns
    -------
    Secret
        Of n numbers; ``.reveal()`` shows them, which releases them unprotected.

    Examples
    --------
    >>> mus = clipped_sum_mus([[3.0, 4.0], [0.0, 0.1]], bound=1.0, sigma=2.0)
    >>> mus, mus.reveal().round(3).tolist()
    (<private>, [0.5, 0.05])
    """
    bound, sigma = positive("bound", bound), positive("sigma", sigma)
    rows = np.asarray(x, dtype=np.float64)
    if rows.ndim != 2:
        raise DataError(f"records come as rows of a table, got an array of {rows.ndim} dimensions")
    with np.errstate(all="ignore"):
        largest = np.abs(rows).max(axis=1, initial=0.0)  # by it, since squares would overflow
        scaled = rows / np.where(largest > 0, largest, 1.0)[:, None]
        length = up(largest * np.sqrt((scaled * scaled).sum(axis=1)), rows.shape[1] + 4)
    length = np.where(largest > 0, length, np.where(largest == 0, 0.0, np.inf))
    return Secret(up(np.minimum(np.where(np.isnan(length), np.inf, length), bound) / sigma, 2))
