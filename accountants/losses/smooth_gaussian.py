"""Gaussian noise in proportion to a smooth sensitivity; releasing a private bound by it."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.errors import DomainError, nonnegative, positive, probability
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import Gaussian
from accountants.rounding import UNIT, Array, ceiling, up
from accountants.secret import Secret


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
        if isinstance(other, SmoothSanitization):
            return self.sigma <= other.sigma and self.beta >= other.beta
        return self == other


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
            return math.inf
        value = up(released + up(z * self.sigma * largest, 4), 4)
        return math.inf if math.isnan(value) else value
