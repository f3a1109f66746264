"""The privacy filter of basic composition: pure epsilons add up."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import nonnegative, probability
from accountants.filters.sums import SumFilter, rational_cost
from accountants.loss import PrivacyLoss
from accountants.notions.pure import pure_epsilon


def _pure_cost(value: float) -> float:
    return nonnegative("PureFilter.epsilon", value)


def _pure_delta(value: float) -> float:
    return probability("PureFilter.failures", value)


@frozen
class PureFilter(SumFilter):
    """Admits while ``sum eps_t <= epsilon`` and ``sum delta_t <= failures``.

    The log-likelihood ratio of all outcomes is the sum of the steps' ratios, each at most its
    eps_t whatever came before, so on every path it is at most the sum of the epsilons.

    Parameters
    ----------
    epsilon
        The budget, in nats.
    failures
        The budget of what losses fail with, and the delta of the guarantee.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan 2016, Thm 3.6.

    Examples
    --------
    >>> from accountants.losses.laplace import Laplace
    >>> budget = PureFilter(epsilon=1.0)
    >>> state = budget.spend(budget.start(), Laplace(epsilon=0.25), 3)
    >>> budget.admits(state, Laplace(epsilon=0.5)), budget.remaining(state).costs
    (False, (0.25,))
    """

    name: ClassVar[str] = "pure"
    theorem: ClassVar[str] = "a sum is a filter: Rogers, Roth, Ullman & Vadhan 2016, Thm 3.6"

    epsilon: float = field(converter=_pure_cost)
    failures: float = field(default=0.0, converter=_pure_delta)

    @classmethod
    def within(cls, epsilon: float, delta: float) -> PureFilter:
        """Return the filter with all of ``delta`` for failures."""
        return cls(epsilon, delta)

    def units(self) -> tuple[str, ...]:
        """Return epsilon."""
        return ("epsilon",)

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the pure epsilon."""
        return (rational_cost(pure_epsilon(loss)),)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return epsilon."""
        return (Fraction(self.epsilon),)

    def converted(self, delta: float) -> float:
        """Return epsilon, where ``delta`` covers the failures."""
        return self.epsilon if delta >= 0 else math.inf
