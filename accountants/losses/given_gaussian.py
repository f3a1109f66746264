"""The loss of which only Gaussian DP is known: no easier to tell apart than N(0, 1), N(mu, 1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import Gaussian, GaussianPair
from accountants.notions.gaussian import gdp_epsilon, gdp_profile
from accountants.rounding import Array, up


def _bound_mu(value: float) -> float:
    return nonnegative("GaussianBound.mu", value)


@frozen(repr=False)
class GaussianBound(PrivacyLoss):
    """A mu-GDP mechanism that need not attain its mu: `Gaussian`, without the lower bounds.

    Parameters
    ----------
    mu
        Non-negative, for both directions of the relation that it was proven for.

    References
    ----------
    Dong, Roth and Su 2022, Def. 4, Cor. 1 (profile) and Thm 6 (groups).

    Examples
    --------
    >>> GaussianBound(mu=1.0).profile(1.0).lower
    0.0
    """

    theorem: ClassVar[str] = "Gaussian DP alone: Dong, Roth & Su 2022, Def. 4 and Cor. 1"

    mu_: float = field(alias="mu", converter=_bound_mu)

    def __repr__(self) -> str:
        return f"GaussianBound(mu={self.mu_!r})"

    def pair(self) -> GaussianPair:
        """Return N(mu, 1) against N(0, 1), as a bound."""
        return GaussianPair(self.mu_, exact=False)

    def pure(self) -> float | None:
        """Return 0 for mu = 0; otherwise there is no pure epsilon."""
        return 0.0 if self.mu_ == 0 else None

    def renyi(self, orders: Array) -> Array:
        """Return ``alpha mu^2 / 2``."""
        with np.errstate(over="ignore"):
            return up(orders * self.mu_ * self.mu_ / 2)

    def rho(self) -> float:
        """Return ``mu^2 / 2``."""
        return up(self.mu_ * self.mu_ / 2, 1) if self.mu_ else 0.0

    def mu(self) -> float:
        """Return ``mu``."""
        return self.mu_

    def profile(self, epsilon: float) -> Bounds:
        """Return the Gaussian's profile, as an upper bound."""
        # an upper bound only: nothing says that mu is attained
        return Bounds(0.0, gdp_profile(self.mu_, epsilon).upper)

    def epsilon_at(self, delta: float) -> Bounds:
        """Return the root of the Gaussian's profile, as an upper bound."""
        return Bounds(0.0, gdp_epsilon(self.mu_, delta).upper)

    def grouped(self, size: int) -> GaussianBound:
        """Return ``size * mu`` (Dong, Roth and Su 2022, Thm 6)."""
        k = whole("group size", size)
        return GaussianBound(up(self.mu_ * k, 2) if k > 1 else self.mu_)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by mu; a Gaussian of no larger mu is one of the mechanisms bounded."""
        return isinstance(other, GaussianBound | Gaussian) and self.mu_ >= other.mu_
