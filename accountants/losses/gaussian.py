"""The Gaussian loss: N(0, 1) against N(mu, 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.notions.gaussian import epsilon, profile
from accountants.rounding import Array, up


def _mu(value: float) -> float:
    return nonnegative("Gaussian.mu", value)


@frozen(repr=False)
class Gaussian(PrivacyLoss):
    """Adding N(0, sigma^2) to a query of l2 sensitivity Delta: ``mu = Delta / sigma``.

    ``D_alpha = alpha mu^2 / 2``, ``rho = mu^2 / 2``, and
    ``delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)``.

    Parameters
    ----------
    mu
        Non-negative; the shift in units of the noise's standard deviation.

    References
    ----------
    Bun and Steinke 2016, Prop. 1.6 (Renyi); Balle and Wang 2018, Thm 8 (profile);
    Dong, Roth and Su 2022, Thm 1 (GDP; a vector reduces to its length).

    Examples
    --------
    >>> round(Gaussian(mu=1.0).rho(), 12)
    0.5
    """

    theorem: ClassVar[str] = "Gaussian: Balle & Wang 2018, Thm 8; Bun & Steinke 2016, Prop. 1.6"

    gaussian_pair: ClassVar[bool] = True
    grouped_exact: ClassVar[bool] = True

    mu_: float = field(alias="mu", converter=_mu)

    def __repr__(self) -> str:
        return f"Gaussian(mu={self.mu_!r})"

    def pure(self) -> float | None:
        """Return 0 for no shift; otherwise there is no pure epsilon."""
        return 0.0 if self.mu_ == 0 else None

    def renyi(self, orders: Array) -> Array:
        """Return ``alpha mu^2 / 2``."""
        with np.errstate(over="ignore"):
            return up(orders * self.mu_ * self.mu_ / 2)  # in this order mu^2 cannot underflow

    def rho(self) -> float:
        """Return ``mu^2 / 2``."""
        return up(self.mu_ * self.mu_ / 2, 1) if self.mu_ else 0.0

    def mu(self) -> float:
        """Return ``mu``."""
        return self.mu_

    def profile(self, epsilon: float) -> Bounds:
        """Return the exact profile."""
        return profile(self.mu_, epsilon)

    def epsilon_at(self, delta: float) -> Bounds:
        """Return the root of the exact profile."""
        return epsilon(self.mu_, delta)

    def grouped(self, size: int) -> Gaussian:
        """Return ``Gaussian(size * mu)``: shifts add (triangle inequality)."""
        k = whole("group size", size)
        return Gaussian(up(self.mu_ * k, 2) if k > 1 else self.mu_)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order Gaussians by mu."""
        return self == other or (isinstance(other, Gaussian) and self.mu_ >= other.mu_)
