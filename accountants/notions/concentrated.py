"""Zero-concentrated DP: ``D_alpha <= rho alpha`` for every alpha > 1 (Bun and Steinke 2016)."""

from __future__ import annotations

from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.notions.pure import pure_to_zcdp
from accountants.rounding import up


def zcdp_rho(loss: PrivacyLoss) -> float:
    """Return the loss's rho outside of its failure: its own, or from its mu or pure epsilon.

    Raises
    ------
    InapplicableError
        If the loss has none of them.
    """
    own = loss.rho()
    if own is not None:
        return own
    mu, eps = loss.mu(), loss.pure()
    if mu is not None:
        return up(mu * mu / 2)
    if eps is not None:
        return pure_to_zcdp(eps)
    raise InapplicableError(f"{type(loss).__name__} has no zCDP rho")
