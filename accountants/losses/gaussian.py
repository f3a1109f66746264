"""The losses of Gaussian noise: N(0, 1) against N(mu, 1), Gaussian DP, smooth sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, Self

import numpy as np
from attrs import evolve, field, frozen

from accountants import special
from accountants.definitions import gdp_epsilon, gdp_profile
from accountants.errors import DomainError, integer, nonnegative, positive, probability
from accountants.loss import PrivacyLoss
from accountants.numerics import UNIT, Array, Bounds, Complex, ceiling, up
from accountants.pair import Pair, Symmetric
from accountants.secret import Secret


@frozen(repr=False)
class _OfMu(PrivacyLoss):
    """Base of the losses of which mu-GDP is known, attained or not."""

    mu_: float = field(alias="mu")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(mu={self.mu_!r})"

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

    def grouped(self, size: int) -> Self:
        """Return ``size * mu`` (Dong, Roth and Su 2022, Thm 6): shifts add."""
        k = integer("group size", size)
        return evolve(self, mu=up(self.mu_ * k, 2)) if k > 1 else self


def _gaussian_mu(value: float) -> float:
    return nonnegative("Gaussian.mu", value)


@frozen(repr=False)
class Gaussian(_OfMu):
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

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "Gaussian: Balle & Wang 2018, Thm 8; Bun & Steinke 2016, Prop. 1.6"

    is_gaussian_pair: ClassVar[bool] = True
    grouped_is_tight: ClassVar[bool] = True

    mu_: float = field(alias="mu", converter=_gaussian_mu)

    def pair(self) -> GaussianPair:
        """Return N(mu, 1) against N(0, 1)."""
        return GaussianPair(self.mu_)

    def profile(self, epsilon: float) -> Bounds:
        """Return the exact profile."""
        # Balle and Wang 2018, Thm 8
        return gdp_profile(self.mu_, epsilon)

    def epsilon_at(self, delta: float) -> Bounds:
        """Return the root of the exact profile."""
        return gdp_epsilon(self.mu_, delta)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order Gaussians by mu."""
        return isinstance(other, Gaussian) and self.mu_ >= other.mu_


@frozen
class GaussianPair(Symmetric):
    """N(mu, 1) against N(0, 1): L is N(mu^2/2, mu^2) under P, and the reversed pair is the same.

    ``log E_P e^{zL} = z (z+1) mu^2 / 2``.
    """

    mu: float
    tight: bool = True

    def is_tight(self) -> bool:
        """Return ``tight``: False where mu was rounded up."""
        return self.tight

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
        # an overflow is reported as an infinite error, never as a value
        finite = np.isfinite(value) & np.isfinite(error)
        return np.where(finite, value, 0.0), np.where(finite, error, np.inf)

    @classmethod
    def log_moduli(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> Array:
        """Return the real part of the formula, rounded up."""
        value, error = cls.log_moments(spends, z)
        return np.where(np.isfinite(error), up(value.real + error), np.inf)

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return 1: one formula for them all."""
        return 1

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return ``-mu^2 t^2 / 2``, exactly."""
        return self.decays(((self, 1),), tilt, beyond)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return one formula for them all."""
        # rounded towards 0: the moments may only decay faster than this
        return -_square(spends) / 2 * beyond * beyond * (1 - 16 * UNIT)


def _square(spends: Sequence[tuple[Pair, int]]) -> float:
    """Return the sum of the squares of mu, to four units of its size."""
    mus = ((getattr(pair, "mu", 0.0), times) for pair, times in spends)
    return math.fsum(mu * mu * times for mu, times in mus)


# -----------------------------------------------------------------------------
# The loss of which only Gaussian DP is known: no easier to tell apart than N(0, 1), N(mu, 1).


def _bound_mu(value: float) -> float:
    return nonnegative("GaussianBound.mu", value)


@frozen(repr=False)
class GaussianBound(_OfMu):
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

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "Gaussian DP alone: Dong, Roth & Su 2022, Def. 4 and Cor. 1"

    mu_: float = field(alias="mu", converter=_bound_mu)

    def pair(self) -> GaussianPair:
        """Return N(mu, 1) against N(0, 1), as a bound."""
        return GaussianPair(self.mu_, tight=False)

    def profile(self, epsilon: float) -> Bounds:
        """Return the Gaussian's profile, as an upper bound."""
        # an upper bound only: nothing says that mu is attained
        return Bounds(0.0, gdp_profile(self.mu_, epsilon).upper)

    def epsilon_at(self, delta: float) -> Bounds:
        """Return the root of the Gaussian's profile, as an upper bound."""
        return Bounds(0.0, gdp_epsilon(self.mu_, delta).upper)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by mu; a Gaussian of no larger mu is one of the mechanisms bounded."""
        return isinstance(other, GaussianBound | Gaussian) and self.mu_ >= other.mu_


# -----------------------------------------------------------------------------
# Gaussian noise in proportion to a smooth sensitivity; releasing a private bound by it.


def _sigma(value: float) -> float:
    return positive("SmoothSanitization.sigma", value)


def _beta(value: float) -> float:
    return nonnegative("SmoothSanitization.beta", value)


@frozen
class SmoothSanitization(PrivacyLoss):
    """Releasing ``N(f(D), S(D)^2 sigma^2)``, S a beta-smooth bound of f's local sensitivity.

    Under any neighbour relation for which S is one: ``S(D) >= |f(D) - f(D')|`` and
    ``S(D) <= e^beta S(D')`` for all neighbours, both ways round.

    With ``S' = e^b S`` the pair is N(0, 1) against N(s, e^{2b}) in units of S sigma,
    ``|b| <= beta`` and ``|s| <= min(1, e^b) / sigma``. Its divergence (finite while
    ``a (1 - e^{2b}) < 1``) grows with ``|s|``. For b < 0 both of its terms grow as b falls; for
    b > 0 the first is below its value at 0, and the second, whose slope there is
    ``a x / (1 + a x)`` with ``x = e^{2b} - 1``, is below that at -b, whose slope is
    ``a x / (1 - (a - 1) x)``. So the worst is ``b = -beta``: with ``c = (a - 1)(e^{2 beta} - 1)``

    ``D_a = a / (2 sigma^2 (1 - c)) - beta - log(1 - c) / (2 (a - 1))``,

    infinite where ``c >= 1``. Some pair attains it.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in units of the smooth sensitivity.
    beta
        The smoothness.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, Def. 2.1 (smooth sensitivity); Gil, Alajaji and Linder
    2013, Table 2 (the divergence of two normal laws); the maximum as above.

    Examples
    --------
    >>> import numpy as np
    >>> SmoothSanitization(sigma=10.0, beta=0.01).renyi(np.array([2.0, 60.0])).round(6)
    array([0.01041,     inf])
    """

    theorem: ClassVar[str] = (
        "Gaussian noise at smooth sensitivity: Nissim, Raskhodnikova & Smith 2007, Def. 2.1; "
        "exact divergence of two normal laws, maximised"
    )

    sigma: float = field(converter=_sigma)
    beta: float = field(converter=_beta)

    def renyi(self, orders: Array) -> Array:
        """Return the formula, at c rounded up; its last terms cancel, so sizes bound the error."""
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            # (a - 1)(e^{2 beta} - 1), rounded up: D_a rises in it
            c = up((orders - 1) * np.expm1(2 * self.beta), 8)
            shift = up(orders / (2 * (1 - c)) / self.sigma / self.sigma, 8)
            spread = -np.log1p(-c) / (2 * (orders - 1))
            error = 16 * UNIT * (self.beta + spread) + 1e-320
            # infinite where the divergence of the two normal laws is
            value = np.where(c < 1, shift + np.maximum(0.0, spread - self.beta) + error, np.inf)
        return np.where(np.isnan(value), np.inf, value)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by both parameters: less noise and less smoothness lose more."""
        return (
            isinstance(other, SmoothSanitization)
            and self.sigma <= other.sigma
            and self.beta >= other.beta
        )


def _positive_beta(value: float) -> float:
    return positive("Sanitization.beta", value)


def _spread(value: float) -> float:
    return positive("Sanitization.spread", value)


def _log(smooth: float) -> float:
    if not 0 < smooth < math.inf:
        raise DomainError("Sanitization needs a smooth sensitivity that is positive and finite")
    return math.log(smooth)


@frozen
class Sanitization:
    """The release of a private bound and of its scale, and the public estimate from both.

    With S a beta-smooth sensitivity of a private number f, two releases,

    ``f + S sigma Z_1`` and ``log S + beta spread Z_2``, Z_1 and Z_2 standard normal,

    cost `losses`: ``log S`` moves by at most beta between neighbours. `upper` is
    post-processing of both.

    Parameters
    ----------
    sigma, beta
        As in `SmoothSanitization`; beta positive.
    spread
        The standard deviation of the second release, in units of beta.

    Examples
    --------
    >>> route = Sanitization(sigma=10.0, beta=0.01, spread=8.0)
    >>> route.losses()
    (SmoothSanitization(sigma=10.0, beta=0.01), Gaussian(mu=0.125))
    """

    sigma: float = field(converter=_sigma)
    beta: float = field(converter=_positive_beta)
    spread: float = field(converter=_spread)

    def losses(self) -> tuple[PrivacyLoss, PrivacyLoss]:
        """Return what the two releases cost; both are paid."""
        return SmoothSanitization(self.sigma, self.beta), Gaussian(
            ceiling(1 / Fraction(self.spread))
        )

    def scale(self, smooth: Secret[float]) -> Secret[float]:
        """Return the standard deviation of the first release, ``S sigma``; private."""
        return smooth.map(lambda s: self.sigma * s)

    def log_scale(self, smooth: Secret[float]) -> Secret[float]:
        """Return the centre of the second release, ``log S``; private.

        Raises
        ------
        DomainError
            If S is not positive; smoothness makes it 0 on every data set or on none.
        """
        return smooth.map(_log)

    def upper(self, released: float, released_log_scale: float, beta_fail: float) -> float:
        """Return a public estimate that is at least f, but with probability ``beta_fail``.

        Each noise stays above ``-z`` but with probability ``beta_fail / 2``; then S is at most
        ``e^{released_log_scale + z beta spread}``, and f at most ``released + z sigma`` times that.

        Parameters
        ----------
        released, released_log_scale
            The two releases.
        beta_fail
            A failure probability of the estimate (not of privacy), in (0, 1).
        """
        share = probability("beta_fail", positive("beta_fail", beta_fail), below_one=True) / 2
        # each of the two noises stays above -z but with probability beta_fail / 2: a union bound
        z = max(0.0, up(-float(special.ndtri(share)), 64))
        exponent = up(released_log_scale + z * self.beta * self.spread, 8)
        try:
            largest = up(math.exp(exponent), 8 + 2 * abs(exponent))
        except OverflowError:
            # S has no finite bound as a double: infinity is a true upper estimate
            return math.inf
        value = up(released + up(z * self.sigma * largest, 4), 4)
        return math.inf if math.isnan(value) else value
