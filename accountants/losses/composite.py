"""Several losses on the same unit, as one loss: functionals add up inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import ClassVar, TypeVar

from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import DomainError, InapplicableError, whole
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.notions.concentrated import zcdp_rho
from accountants.notions.gaussian import LARGEST_MU, gdp_epsilon, gdp_mu, gdp_profile
from accountants.notions.pure import pure_epsilon
from accountants.notions.renyi import renyi_total
from accountants.pair import Pair
from accountants.rounding import Array, ceiling, up

T = TypeVar("T")

Spends = tuple[tuple[PrivacyLoss, int], ...]
"""Losses with how often each is paid: a multiset, as a value."""


def _spends(value: Mapping[PrivacyLoss, int] | Iterable[tuple[PrivacyLoss, int]]) -> Spends:
    items = value.items() if isinstance(value, Mapping) else value
    try:
        pairs = [(loss, times) for loss, times in items]
    except (TypeError, ValueError):
        raise DomainError(
            f"Composite.spends must be pairs of a privacy loss and its times, got {value!r}"
        ) from None
    total: dict[PrivacyLoss, int] = {}
    for loss, times in pairs:
        if not isinstance(loss, PrivacyLoss):
            raise DomainError(f"Composite.spends must be of privacy losses, got {loss!r}")
        count = whole("Composite.spends' times", times, least=0)
        if count:
            total[loss] = total.get(loss, 0) + count
    return tuple(total.items())


def _sum(values: Iterable[tuple[float, int]]) -> float:
    """Return the exact sum of ``times * value``, rounded up."""
    total = Fraction()
    for value, times in values:
        if not math.isfinite(value):
            return math.inf
        total += Fraction(value) * times
    return ceiling(total)


@frozen(cache_hash=True)
class Composite(PrivacyLoss):
    """The composition of losses whose parameters do not depend on earlier outcomes.

    Parameters
    ----------
    spends
        Pairs of a loss and the times it is paid, or a mapping; equal losses are merged.

    References
    ----------
    Mironov 2017, Prop. 1 (Renyi); Bun and Steinke 2016, Lemma 1.7 (zCDP); Dong, Roth and Su
    2022, Cor. 2 (GDP); Dwork and Roth 2014, Thm 3.14 (pure).

    Examples
    --------
    >>> from accountants import Gaussian, Laplace
    >>> round(Composite({Gaussian(mu=0.3): 1, Gaussian(mu=0.4): 1}).mu(), 6)
    0.5
    >>> Composite([(Laplace(epsilon=0.5), 2), (Laplace(epsilon=0.25), 4)]).pure()
    2.0
    """

    theorem: ClassVar[str] = "composition of independent losses"

    spends: Spends = field(converter=_spends)

    def pair(self) -> Pair | None:
        """Return a single loss's pair, that of Gaussians together, or what pure or mu implies."""
        if len(self.spends) == 1 and self.spends[0][1] == 1:
            return self.spends[0][0].pair()
        mu = self.mu() if all(loss.gaussian_pair for loss, _ in self.spends) else None
        if mu is None:
            from accountants.losses.derived_pair import implied  # here: seldom needed

            return implied(self)
        # attained only where the root of the sum of squares is a float itself
        square = sum((Fraction(loss.mu() or 0.0) ** 2 * n for loss, n in self.spends), Fraction())
        return GaussianPair(mu, exact=Fraction(mu) ** 2 == square)

    def failure(self) -> float:
        """Return the sum of the failures, at most 1."""
        return min(1.0, _sum((s.failure(), n) for s, n in self.spends))

    def pure(self) -> float | None:
        """Return the sum of the pure epsilons, if every loss has one."""
        try:
            return _sum((pure_epsilon(s), n) for s, n in self.spends)
        except InapplicableError:
            return None

    def renyi(self, orders: Array) -> Array | None:
        """Return the sum of the curves."""
        try:
            return renyi_total(self.spends, orders)
        except InapplicableError:
            return None

    def rho(self) -> float | None:
        """Return the sum of the rhos."""
        try:
            return _sum((zcdp_rho(s), n) for s, n in self.spends)
        except InapplicableError:
            return None

    def mu(self) -> float | None:
        """Return the root of the sum of the squares."""
        try:
            every = [(gdp_mu(s), n) for s, n in self.spends]
        except InapplicableError:
            return None
        if not all(mu <= LARGEST_MU for mu, _ in every):
            return math.inf
        # exact; then the root, rounded up
        square = sum((Fraction(mu) ** 2 * n for mu, n in every), Fraction())
        return up(math.sqrt(ceiling(square)), 2) if square else 0.0

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the exact profile of Gaussian pairs, or of a single loss."""
        if all(loss.gaussian_pair for loss, _ in self.spends):
            mu = self.mu()
            return None if mu is None else gdp_profile(mu, epsilon)
        if len(self.spends) == 1 and self.spends[0][1] == 1:
            return self.spends[0][0].profile(epsilon)
        return None

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return the root of the exact profile of Gaussian pairs, or what a single loss knows."""
        if all(loss.gaussian_pair for loss, _ in self.spends):
            mu = self.mu()
            return None if mu is None else gdp_epsilon(mu, delta)
        if len(self.spends) == 1 and self.spends[0][1] == 1:
            return self.spends[0][0].epsilon_at(delta)
        return None

    def grouped(self, size: int) -> Composite:
        """Return the composition of the grouped losses."""
        return Composite(tuple((loss.grouped(size), times) for loss, times in self.spends))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Compare spend by spend; see `covers`."""
        inner = other.spends if isinstance(other, Composite) else ((other, 1),)
        large, square = split(self.spends)
        small, other_square = split(inner)
        return square >= other_square and covers(large, small, lambda a, b: a.dominates(b))


def covers(
    large: Mapping[T, int], small: Mapping[T, int], dominates: Callable[[T, T], bool]
) -> bool:
    """Whether each entry of ``small`` has an entry of its own in ``large`` that dominates it.

    A matching is searched greedily: False means "not shown".
    """
    budget = dict(large)
    for loss, times in small.items():
        taken = min(times, budget.get(loss, 0))
        if taken:
            budget[loss] -= taken
        missing = times - taken
        # greedy: each entry of `large` is used once
        for candidate in budget:
            if missing == 0:
                break
            if budget[candidate] and dominates(candidate, loss):
                taken = min(missing, budget[candidate])
                budget[candidate] -= taken
                missing -= taken
        if missing:
            return False
    return True


def split(spends: Iterable[tuple[PrivacyLoss, int]]) -> tuple[dict[PrivacyLoss, int], Fraction]:
    """Return the losses without the Gaussian pairs, and the sum of the squares of those.

    Gaussian pairs compose exactly to the root of that sum, so they are compared as one.
    """
    rest: dict[PrivacyLoss, int] = {}
    square = Fraction()
    for loss, times in spends:
        mu = loss.mu() if loss.gaussian_pair else None
        if mu is not None and mu <= LARGEST_MU:
            square += Fraction(mu) ** 2 * times
        else:
            rest[loss] = times
    return rest, square
