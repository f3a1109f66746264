"""The privacy filter of Gaussian DP: squares of mu add up, as with parameters fixed in advance."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import InapplicableError, nonnegative, probability
from accountants.filters.sums import (
    BEYOND,
    SumFilter,
    checked_failures,
    delta_beside_failures,
    largest_budget,
)
from accountants.loss import PrivacyLoss
from accountants.notions.gaussian import LARGEST_MU, gdp_epsilon, gdp_mu


def _gdp_cost(value: float) -> float:
    return nonnegative("GaussianFilter.mu", value)


def _gdp_delta(value: float) -> float:
    return probability("GaussianFilter.failures", value)


@frozen
class GaussianFilter(SumFilter):
    """Admits while ``sum mu_t^2 <= mu^2``; what it admits is mu-GDP.

    By induction from the last step backwards: after a step that spends m of r, whatever
    follows is ``sqrt(r^2 - m^2)``-GDP for every outcome, and Gaussian trade-off curves compose
    to ``G_m (x) G_sqrt(r^2 - m^2) = G_r``, the same for every choice of m. This is what other
    trade-off curves lack.

    Parameters
    ----------
    mu
        The budget.
    failures
        The budget of what losses fail with.

    References
    ----------
    Smith and Thakurta 2022; Koskela, Tobaben and Honkela 2023. Conversion: Balle and Wang
    2018, Thm 8.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> budget = GaussianFilter(mu=1.0)
    >>> budget.fitting(budget.start(), Gaussian(mu=0.25))
    16
    """

    name: ClassVar[str] = "gaussian"
    theorem: ClassVar[str] = (
        "Gaussian-DP filter: Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023"
    )

    mu: float = field(converter=_gdp_cost)
    failures: float = field(default=0.0, converter=_gdp_delta)

    @classmethod
    def within(cls, epsilon: float, delta: float, failures: float = 0.0) -> GaussianFilter:
        """Return the filter with the largest mu that keeps ``(epsilon, delta)``.

        Raises
        ------
        InapplicableError
            If nothing of ``delta`` is left beside the failures.
        """
        failures = checked_failures("GaussianFilter", failures, probability("delta", delta))
        epsilon, left = nonnegative("epsilon", epsilon), delta_beside_failures(delta, failures)
        if left <= 0:
            raise InapplicableError(
                "GaussianFilter needs a delta beside the failures: Gaussian DP has no finite "
                "epsilon at delta 0; use PureFilter, or a larger delta"
            )
        # the largest mu whose exact epsilon is within the target, as evaluated
        return cls(largest_budget(lambda mu: _mu_epsilon(mu, left), epsilon), failures)

    def units(self) -> tuple[str, ...]:
        """Return mu squared."""
        return ("mu^2",)

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the square of mu."""
        return (mu_square_cost(loss),)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return the square of mu."""
        return (Fraction(self.mu) ** 2,)

    def converted(self, delta: float) -> float:
        """Return the exact epsilon of mu-GDP at ``delta``."""
        return _mu_epsilon(self.mu, delta)


def mu_square_cost(loss: PrivacyLoss) -> Fraction:
    """Return the square of the loss's mu, exactly; beyond all budgets where it is too large."""
    mu = gdp_mu(loss)
    # a larger mu has no finite epsilon
    return Fraction(mu) ** 2 if mu <= LARGEST_MU else BEYOND


def _mu_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of mu-GDP at ``delta``; infinite at 0 and below, but for mu 0."""
    if delta >= 1 or (mu == 0 and delta >= 0):
        return 0.0
    return gdp_epsilon(mu, delta).upper if delta > 0 else math.inf
