"""The privacy filter of advanced composition, as tight as with parameters fixed in advance."""

from __future__ import annotations

from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import nonnegative, probability
from accountants.filters.concentrated import largest_rho, rho_cost
from accountants.filters.sums import (
    UnionFilter,
    checked_failures,
    delta_beside_failures,
    rational_cost,
)
from accountants.loss import PrivacyLoss


def _approximate_cost(value: float) -> float:
    return nonnegative("ApproximateFilter.epsilon", value)


def _approximate_delta(value: float) -> float:
    return probability("ApproximateFilter.delta", value)


@frozen
class ApproximateFilter(UnionFilter):
    """Admits (eps_t, delta_t) while the whole is (epsilon, delta)-DP, by either of two sums.

    * ``sum eps_t <= epsilon``: on such paths the log-likelihood ratio is at most epsilon, and
      they add nothing to delta;
    * ``sum rho_t <= rho``, ``rho_t = eps_t tanh(eps_t / 2)``, rho the largest that has epsilon
      at delta': by the supermartingale of `accountants.filters.sums`, stopped where this
      sum would pass rho, all paths together add at most delta'.

    A path needs to be in one of the two cases only, whichever ends it. As printed by
    Whitehouse et al., ``sqrt(2 log(1/delta') sum eps_t^2) + sum eps_t^2 / 2 <= epsilon`` is the
    second case with ``rho_t = eps_t^2 / 2``, which is more, and the conversion
    ``rho + 2 sqrt(rho log(1/delta'))``, which is more too: whatever it admits, this admits.

    Parameters
    ----------
    epsilon, delta
        The guarantee.
    failures
        The part of delta that is kept for ``sum delta_t``; half of it by default.

    References
    ----------
    Whitehouse, Ramdas, Rogers and Wu 2023.

    Examples
    --------
    >>> from accountants.losses.approximate import Approximate
    >>> budget = ApproximateFilter(epsilon=1.0, delta=1e-6)
    >>> budget.fitting(budget.start(), Approximate(epsilon=0.01, delta=1e-10))
    458
    """

    name: ClassVar[str] = "approximate"
    theorem: ClassVar[str] = "fully adaptive composition: Whitehouse, Ramdas, Rogers & Wu 2023"

    epsilon: float = field(converter=_approximate_cost)
    delta: float = field(converter=_approximate_delta)
    failures: float = None  # type: ignore[assignment]
    rho: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        share = self.delta / 2 if self.failures is None else self.failures
        failures = checked_failures("ApproximateFilter", share, self.delta)
        left = delta_beside_failures(self.delta, failures)
        object.__setattr__(self, "failures", failures)
        # the first case adds nothing to delta, so all that the failures leave is the second's
        object.__setattr__(self, "rho", largest_rho(self.epsilon, left) if left > 0 else 0.0)

    def units(self) -> tuple[str, ...]:
        """Return epsilon and rho."""
        return "epsilon", "rho"

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the pure epsilon, where there is one, and rho."""
        return rational_cost(loss.pure()), rho_cost(loss)

    def budgets(self) -> tuple[Fraction, ...]:
        """Return epsilon and rho."""
        return Fraction(self.epsilon), Fraction(self.rho)
