"""The privacy filter of whichever unit lasts longest: epsilons, squares of mu, a divergence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.errors import InapplicableError, nonnegative, probability
from accountants.filters.concentrated import largest_rho
from accountants.filters.gaussian import GaussianFilter, mu_square_cost
from accountants.filters.renyi import divergence_budget, divergence_costs
from accountants.filters.sums import (
    BEYOND,
    UnionFilter,
    checked_failures,
    delta_beside_failures,
    rational_cost,
)
from accountants.loss import PrivacyLoss
from accountants.notions.renyi import zcdp_epsilon
from accountants.rounding import down

GAUSSIAN_SHARE = 2 / 3
"""The share of delta for squares of mu; the divergence has the rest."""
_NO_BUDGET = -1.0


@frozen
class BestFilter(UnionFilter):
    """Admits while one of three sums is still within its budget; each is a filter by itself.

    The sums are epsilons, squares of mu, and divergences at one order: that which is best for the
    line ``D_a = a rho``. Each sum i has its budget and its share delta_i of delta (epsilons need
    none), all fixed in advance, and the sums only grow: one that is passed stays passed. So a path
    of outcomes ends within budget i exactly if i's own filter would have let all of it through.

    Which sum is kept may depend on the outcomes, and no filter's theorem is about such a choice.
    But let L be the log-likelihood ratio of a path, and L_i that of its beginning, up to where
    budget i would be passed: the filter's theorem for the interaction that stops there is
    ``E_P (1 - e^{epsilon - L_i})_+ <= delta_i``. Paths that end within budget i have ``L = L_i``,
    every path ends within some budget, and nothing is negative, so

    ``E_P (1 - e^{epsilon - L})_+ <= sum_i E_P [(1 - e^{epsilon - L_i})_+; i is kept] <= delta``

    (own proof; the same holds with P and Q exchanged). That delta need not be shared at all, as if
    the sum that is kept were known in advance, is not proven and not claimed.

    What it costs not to know the best unit in advance is the share of delta: at delta = 1e-6, 4%
    of the answers that the best sum alone would admit with Gaussian noise, and 9% with small
    Laplace noise. A loss without a cost in one of the units ends that sum; the others go on.

    Parameters
    ----------
    epsilon, delta
        The guarantee.
    failures
        The part of delta that is kept for what losses fail with.

    References
    ----------
    Rogers, Roth, Ullman and Vadhan 2016, Thm 3.6 (epsilons); Smith and Thakurta 2022, and Koskela,
    Tobaben and Honkela 2023 (Gaussian DP); Feldman and Zrnic 2021 (an order). A union over orders:
    Lecuyer 2021.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> from accountants.losses.laplace import Laplace
    >>> budget = BestFilter(epsilon=1.0, delta=1e-6)
    >>> budget.fitting(budget.start(), Gaussian(mu=0.01))
    539
    >>> budget.fitting(budget.start(), Laplace(epsilon=0.01))
    449
    """

    name: ClassVar[str] = "best"
    theorem: ClassVar[str] = (
        "union of three filters: epsilons (Rogers, Roth, Ullman & Vadhan 2016), Gaussian DP (Smith "
        "& Thakurta 2022), one Renyi order (Feldman & Zrnic 2021)"
    )

    epsilon: float = field()
    delta: float = field()
    failures: float = 0.0
    mu: float = field(init=False)
    order: float = field(init=False)
    divergence: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        epsilon, delta = nonnegative("epsilon", self.epsilon), probability("delta", self.delta)
        failures = checked_failures("BestFilter", self.failures, delta)
        mine, others = delta_shares(delta, failures)
        mu, order, divergence = (
            _NO_BUDGET,
            2.0,
            _NO_BUDGET,
        )  # at delta 0 only the sum of epsilons admits
        if mine > 0 and others > 0:
            mu = GaussianFilter.within(epsilon, mine).mu
            order = zcdp_epsilon(largest_rho(epsilon, others), others)[1]
            divergence = divergence_budget(order, epsilon, others)
        values = {"epsilon": epsilon, "delta": delta, "failures": failures}
        for name, value in {**values, "mu": mu, "order": order, "divergence": divergence}.items():
            object.__setattr__(self, name, value)

    def units(self) -> tuple[str, ...]:
        """Return epsilon, mu squared and the order."""
        return "epsilon", "mu^2", f"divergence at order {self.order:.6g}"

    def prices(self, loss: PrivacyLoss) -> tuple[Fraction, ...]:
        """Return the pure epsilon, the square of mu and the divergence, where there are any."""
        return (
            rational_cost(loss.pure()),
            cost_or_beyond(lambda: mu_square_cost(loss)),
            cost_or_beyond(lambda: divergence_costs(loss, (self.order,))[0]),
        )

    def budgets(self) -> tuple[Fraction, ...]:
        """Return epsilon, the square of mu and the divergence; a negative one is never kept."""
        square = Fraction(self.mu) ** 2 if self.mu >= 0 else Fraction(_NO_BUDGET)
        return Fraction(self.epsilon), square, Fraction(self.divergence)


def delta_shares(delta: float, failures: float) -> tuple[float, float]:
    """Return the deltas of squares of mu and of divergences, rounded down."""
    left = delta_beside_failures(delta, failures)
    mine = down(left * GAUSSIAN_SHARE, 2)
    return mine, down(left - mine, 2)  # rounded down, so that mine + others <= delta'


def cost_or_beyond(price: Callable[[], Fraction]) -> Fraction:
    """Return a cost; `BEYOND` every budget where a loss has none in the accounting unit."""
    try:
        return price()
    except InapplicableError:
        return BEYOND
