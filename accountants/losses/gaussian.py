"""The Gaussian loss: N(0, 1) against N(mu, 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.bounds import Bounds
from accountants.complexes import Complex
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.notions.gaussian import gdp_epsilon, gdp_profile
from accountants.pair import Pair, Symmetric
from accountants.rounding import UNIT, Array, up


def _gaussian_mu(value: float) -> float:
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

    mu_: float = field(alias="mu", converter=_gaussian_mu)

    def __repr__(self) -> str:
        return f"Gaussian(mu={self.mu_!r})"

    def pair(self) -> GaussianPair:
        """Return N(mu, 1) against N(0, 1)."""
        return GaussianPair(self.mu_)

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
        # Balle and Wang 2018, Thm 8
        return gdp_profile(self.mu_, epsilon)

    def epsilon_at(self, delta: float) -> Bounds:
        """Return the root of the exact profile."""
        return gdp_epsilon(self.mu_, delta)

    def grouped(self, size: int) -> Gaussian:
        """Return ``Gaussian(size * mu)``: shifts add (triangle inequality)."""
        k = whole("group size", size)
        return Gaussian(up(self.mu_ * k, 2) if k > 1 else self.mu_)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order Gaussians by mu."""
        return self == other or (isinstance(other, Gaussian) and self.mu_ >= other.mu_)


@frozen
class GaussianPair(Symmetric):
    """N(mu, 1) against N(0, 1): L is N(mu^2/2, mu^2) under P, and the reversed pair is the same.

    ``log E_P e^{zL} = z (z+1) mu^2 / 2``.
    """

    mu: float
    exact: bool = True

    def attained(self) -> bool:
        """Return ``exact``: False where mu was rounded up."""
        return self.exact

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the normal tails; without a shift the loss is 0."""
        if self.mu == 0:
            beyond = np.where(loss < 0, 1.0, 0.0)
            return beyond, beyond
        with np.errstate(over="ignore"):
            x, half = loss / self.mu, self.mu / 2
        return special.ndtr(half - x), special.ndtr(-half - x)

    def tail_error(self) -> float:
        """Return ndtr's error where it is above 1e-300, at most 37 deviations out.

        There its argument is off by ``4 UNIT (37 + mu)``, and its logarithm by 37 times that.
        """
        return 4e-13 + 2e-14 * (40 + self.mu)

    def top(self) -> float:
        """Return 0 without a shift, else infinity."""
        return math.inf if self.mu else 0.0

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``z (z+1) mu^2 / 2``."""
        return self.log_moments(((self, 1),), z)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return one formula for them all: the squares of mu add up."""
        square = _square(spends)
        with np.errstate(over="ignore", invalid="ignore"):
            value = square / 2 * (z * (z + 1))
            # of z (z + 1), whose terms may cancel: relative to their moduli
            error = 16 * UNIT * square * (np.abs(z) ** 2 + np.abs(z))
        known = np.isfinite(value) & np.isfinite(error)
        return np.where(known, value, 0.0), np.where(known, error, np.inf)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return ``-mu^2 t^2 / 2``, exactly."""
        return self.decays(((self, 1),), tilt, beyond)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return one formula for them all."""
        return -_square(spends) / 2 * beyond * beyond * (1 - 16 * UNIT)


def _square(spends: Sequence[tuple[Pair, int]]) -> float:
    """Return the sum of the squares of mu, to four units of its size."""
    mus = ((getattr(pair, "mu", 0.0), times) for pair, times in spends)
    return math.fsum(mu * mu * times for mu, times in mus)
