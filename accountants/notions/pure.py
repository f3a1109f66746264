"""Pure DP: the log-likelihood ratio of neighbours is at most epsilon, everywhere.

Every pair of an epsilon-DP mechanism is a post-processing of binary randomized response
RR(epsilon) (Kairouz, Oh and Viswanath 2015), so whatever holds for RR holds for it. With
``w = alpha - 1/2``, RR's moments are ``E_Q (P/Q)^alpha = cosh(w eps) / cosh(eps / 2)``.
"""

from __future__ import annotations

import math

import numpy as np

from accountants import special
from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.rounding import UNIT, Array, up


def pure_epsilon(loss: PrivacyLoss) -> float:
    """Return the loss's pure epsilon outside of its failure.

    Raises
    ------
    InapplicableError
        If the loss has none (the Gaussian's likelihood ratio is unbounded).
    """
    value = loss.pure()
    if value is None:
        raise InapplicableError(f"{type(loss).__name__} has no pure epsilon")
    return value


def pure_to_renyi(eps: float, orders: Array) -> Array:
    """Return RR's Renyi divergence ``log(cosh(w eps)/cosh(eps/2)) / (alpha - 1)``.

    At order infinity it is eps itself.

    Both log cosh are ``x - log 2 + log1p(e^{-2x})``; for small ``w eps`` the difference is
    taken by ``cosh a - cosh b = 2 sinh((a+b)/2) sinh((a-b)/2)``, which does not cancel.
    """
    half = eps / 2
    with np.errstate(over="ignore", invalid="ignore"):  # of the branch that is not taken
        far = (orders - 0.5) * eps
        near = 2 * np.sinh(orders * half) * np.sinh((orders - 1) * half) / np.cosh(half)
        small = np.log1p(near)
        large = far - half + np.log1p(np.exp(-2 * far)) - np.log1p(np.exp(-2 * half))
        log_moment = np.where(far < 1, up(small, 32), large + 8 * UNIT * (1 + far))
        # D_alpha <= D_infinity = eps
        curve = np.minimum(up(log_moment / (orders - 1)), eps)
    divergences: Array = np.where(np.isinf(orders), eps, curve)
    return divergences


def pure_to_zcdp(eps: float) -> float:
    """Return ``eps tanh(eps / 2)``: pure epsilon-DP implies zCDP with this rho.

    ``t -> log cosh(sqrt t)`` is concave, its derivative ``tanh(sqrt t) / (2 sqrt t)``
    decreasing; between ``t = (eps/2)^2`` and ``(w eps)^2``, which differ by
    ``alpha (alpha - 1) eps^2``, it rises by at most the tangent:
    ``(alpha - 1) D_alpha <= alpha (alpha - 1) eps tanh(eps/2)``. Equality as alpha -> 1, so it
    is the best; Bun and Steinke 2016, Prop. 3.3 has ``eps^2 / 2``.
    """
    return up(eps * math.tanh(eps / 2), 8) if eps else 0.0


def pure_to_gdp(eps: float) -> float:
    """Return ``2 Phi^-1(e^eps / (1 + e^eps))``: pure epsilon-DP implies GDP with this mu.

    RR's trade-off curve is two chords that meet at ``alpha = beta = 1/(1 + e^eps)``. The curve
    of mu-GDP is convex, passes through that point when ``Phi(-mu/2) = 1/(1 + e^eps)``, and so
    lies below both chords.
    """
    if eps == 0:
        return 0.0
    if eps > 700:
        return math.inf
    # ndtri is accurate to a few units in the last place relative to its argument's error
    return up(-2 * float(special.ndtri(1 / (1 + math.exp(eps)) * (1 - 8 * UNIT))), 64)
