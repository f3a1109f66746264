"""The privacy filter of zero-concentrated DP: rhos add up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import InapplicableError, nonnegative, probability
from accountants.filters.sums import (
    SumFilter,
    checked_failures,
    delta_beside_failures,
    largest_budget,
    rational_cost,
)
from accountants.loss import PrivacyLoss
from accountants.notions.concentrated import zcdp_rho
from accountants.notions.renyi import zcdp_epsilon


def _zcdp_cost(value: float) -> float:
    return nonnegative("ConcentratedFilter.rho", value)


def _zcdp_delta(value: float) -> float:
    return probability("ConcentratedFilter.failures", value)


@frozen
class ConcentratedFilter(SumFilter):
    """Admits while ``sum rho_t <= rho``; what it admits is rho-zCDP, as with fixed parameters.

    Parameters
    ----------
    rho
        The budget.
    failures
        The budget of what losses fail with.

    References
    ----------
    Feldman and Zrnic 2021 (the sum at each order); Whitehouse, Ramdas, Rogers and Wu 2023
    (approximate zCDP). Conversion: Canonne, Kamath and Steinke 2020, Prop. 12.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> budget = ConcentratedFilter.within(epsilon=1.0, delta=1e-6)
    >>> budget.fitting(budget.start(), Gaussian(mu=0.01))
    487
    """

    name: ClassVar[str] = "concentrated"
    theorem: ClassVar[str] = "zCDP filter: Feldman & Zrnic 2021; Whitehouse et al. 2023"

    rho: float = field(converter=_zcdp_cost)
    failures: float = field(default=0.0, converter=_zcdp_delta)

    @classmethod
    def within(cls, epsilon: float, delta: float, failures: float = 0.0) -> ConcentratedFilter:
        """Return the filter with the largest rho that keeps ``(epsilon, delta)``."""
        failures = checked_failures("ConcentratedFilter", failures, probability("delta", delta))
        epsilon = nonnegative("epsilon", epsilon)
        return cls(largest_rho(epsilon, delta_beside_failures(delta, failures)), failures)

    def units(self) -> tuple[str, ...]:
        """Return rho."""
        return ("rho",)

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return rho."""
        return (rho_cost(loss),)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return rho."""
        return (Fraction(self.rho),)

    def converted(self, delta: float) -> float:
        """Return the epsilon of rho-zCDP at ``delta``."""
        return rho_epsilon(self.rho, delta)


def rho_cost(loss: PrivacyLoss) -> Fraction:
    """Return the loss's rho; of a Gaussian-DP mu exactly ``mu^2 / 2``."""
    mu, rho = loss.mu(), rational_cost(zcdp_rho(loss))
    # both are proven, so the smaller is: a float of mu^2 / 2 is rounded up, the rational is not
    return rho if mu is None or math.isinf(mu) else min(rho, Fraction(mu) ** 2 / 2)


def rho_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at ``delta``; infinite at 0 and below, but for rho 0."""
    if delta >= 1 or (rho == 0 and delta >= 0):
        return 0.0
    if delta <= 0:
        return math.inf
    return zcdp_epsilon(rho, delta)[0]


def largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho with an epsilon of at most ``epsilon`` at ``delta``.

    Raises
    ------
    InapplicableError
        If ``delta`` is not positive: zCDP has no finite epsilon there.
    """
    if delta <= 0:
        raise InapplicableError(
            "this filter needs a delta beside the failures: zCDP, Renyi DP and Gaussian DP have no "
            "finite epsilon at delta 0; use PureFilter, or a larger delta"
        )
    return largest_budget(lambda rho: rho_epsilon(rho, delta), epsilon)
