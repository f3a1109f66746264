"""The discrete Gaussian loss: a normal law on the integers, added to an integer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.complexes import Complex
from accountants.errors import DomainError, positive, whole
from accountants.loss import PrivacyLoss
from accountants.losses.discrete_gaussian_sums import log_theta_ratio, upper_tail
from accountants.pair import Symmetric
from accountants.rounding import UNIT, Array, ceiling, up


def _gaussian_sigma(value: float) -> float:
    return positive("DiscreteGaussian.sigma", value)


def _gaussian_sensitivity(value: int) -> int:
    return whole("DiscreteGaussian.sensitivity", value)


@frozen
class DiscreteGaussian(PrivacyLoss):
    """Adding noise with masses proportional to ``e^{-x^2/(2 sigma^2)}``, x an integer.

    The query is an integer of sensitivity Delta, or a vector of integers, with noise on each, of
    l1 sensitivity Delta: the noise is log-concave, so a vector costs no more than the sum of its
    shifts (as for `accountants.losses.discrete_laplace`). For vectors of l2 sensitivity Delta
    only the curve ``alpha Delta^2/(2 sigma^2)`` holds, coordinate by coordinate; declare a zCDP
    loss for those, not this one.

    ``D_alpha = alpha Delta^2/(2 sigma^2) + log(S((alpha-1) Delta)/S(0))/(alpha - 1)`` with
    ``S(c) = sum_y e^{-(y-c)^2/(2 sigma^2)}``, which is largest at whole c: there, so at every
    whole alpha, the continuous Gaussian's divergence is attained, and rho is the best.

    Parameters
    ----------
    sigma
        Positive; the parameter, not quite the standard deviation.
    sensitivity
        Delta, an integer from 1 to 2^52.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Thm 4 (zCDP), Prop. 5 (Renyi).

    Examples
    --------
    >>> DiscreteGaussian(sigma=2.0, sensitivity=2).rho()
    0.5
    """

    theorem: ClassVar[str] = "discrete Gaussian: Canonne, Kamath & Steinke 2020, Thm 4"

    grouped_exact: ClassVar[bool] = True

    sigma: float = field(converter=_gaussian_sigma)
    sensitivity: int = field(default=1, converter=_gaussian_sensitivity)

    def __attrs_post_init__(self) -> None:
        bounded = 1e-100 <= self.sigma <= 1e100 and self.sensitivity <= 2**52
        if not bounded:
            raise DomainError(
                "DiscreteGaussian needs a sigma from 1e-100 to 1e100 and a sensitivity of at most "
                f"2^52, got {self.sigma} and {self.sensitivity}; count in larger units"
            )

    def pair(self) -> DiscreteGaussianPair:
        """Return the noise shifted by the sensitivity, against the noise."""
        return DiscreteGaussianPair(self.sigma, self.sensitivity)

    def pure(self) -> None:
        """Return None: the likelihood ratio is unbounded."""

    def renyi(self, orders: Array) -> Array:
        """Return the exact divergence, or the continuous Gaussian's where rounding exceeds it."""
        value, error = self.pair().log_moment((orders - 1).astype(np.complex128))
        # Canonne, Kamath and Steinke 2020: S(c) <= S(0), so alpha rho bounds every order
        return np.fmin(up((value.real + error) / (orders - 1)), up(orders * self.rho()))

    def rho(self) -> float:
        """Return ``Delta^2 / (2 sigma^2)``."""
        return ceiling(Fraction(self.sensitivity) ** 2 / Fraction(self.sigma) ** 2 / 2)

    def grouped(self, size: int) -> DiscreteGaussian:
        """Return the loss of ``size`` times the sensitivity: shifts add."""
        k = whole("group size", size)
        return DiscreteGaussian(self.sigma, self.sensitivity * k)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by sensitivity, of the same noise."""
        if not isinstance(other, DiscreteGaussian):
            return False
        return self.sigma == other.sigma and self.sensitivity >= other.sensitivity


@frozen
class DiscreteGaussianPair(Symmetric):
    """The noise shifted by d = ``sensitivity``, against the noise; the same reversed.

    ``L = d (2y + d)/(2 sigma^2)`` with y the noise under P, and ``d (2y - d)/(2 sigma^2)`` under
    Q. With ``q = d^2/(2 sigma^2)`` and ``Theta(g, tau) = sum_k e^{-g k^2 + k tau}``,

    ``E_P e^{zL} = e^{z q} Theta(1/(2 sigma^2), z d/sigma^2) / Theta(1/(2 sigma^2), 0)
    = e^{z (z+1) q} Theta(2 pi^2 sigma^2, 2 pi i z d) / Theta(2 pi^2 sigma^2, 0)``,

    the second by Poisson's summation; at least one of the two g is pi or more.
    """

    sigma: float
    sensitivity: int

    def _half_square(self) -> float:
        """Return q, within 4 UNIT of itself."""
        ratio = self.sensitivity / self.sigma
        return ratio * ratio / 2

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the noise's tails from the least n with ``2n + d`` (or - d) above, on."""
        d = float(self.sensitivity)
        # L > l exactly where 2n +- d is above 2 l sigma^2 / d; rounding moves l by less than its
        # slip
        steps = np.floor(np.clip(2 * loss * (self.sigma / d) * self.sigma, -1e300, 1e300))
        p = upper_tail(self.sigma, np.floor((steps - d) / 2) + 1)
        q = upper_tail(self.sigma, np.floor((steps + d) / 2) + 1)
        return p, q

    def tail_error(self) -> float:
        """Return that of `upper_tail`."""
        return 2e-12

    def spacing(self) -> float:
        """Return ``d/sigma^2`` where d is even, else half of it, of which L is an odd multiple."""
        d = float(self.sensitivity)
        return d / self.sigma / self.sigma / (1 if self.sensitivity % 2 == 0 else 2)

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula whose g is larger."""
        d, square, q = float(self.sensitivity), self.sigma * self.sigma, self._half_square()
        # the series that converges faster: its g is pi or more
        if square * 2 * math.pi < 1:
            g, base = 0.5 / square, z * q
            tau = z * (2 * g * d)
        else:
            g, base = 2 * math.pi * math.pi * square, z * (z + 1) * q
            tau = 2j * math.pi * d * z
        with np.errstate(over="ignore", invalid="ignore"):
            value, error = log_theta_ratio(g, tau)
            value = base + value
            error = error + 8 * UNIT * (2 * np.abs(base) + np.abs(value))
        return value, np.where(np.isfinite(error), error, np.inf)
