"""Several losses on the same unit, as one loss: functionals add up inside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import ClassVar

from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.errors import DomainError, InapplicableError, whole
from accountants.loss import PrivacyLoss
from accountants.notions import concentrated, gaussian, pure, renyi
from accountants.rounding import Array, ceiling, up

Spends = tuple[tuple[PrivacyLoss, int], ...]
"""Losses with how often each is paid: a multiset, as a value."""


def _spends(value: Mapping[PrivacyLoss, int] | Iterable[tuple[PrivacyLoss, int]]) -> Spends:
    pairs = tuple(value.items() if isinstance(value, Mapping) else value)
    for loss, times in pairs:
        if not isinstance(loss, PrivacyLoss):
            raise DomainError(f"Composite.spends must be of privacy losses, got {loss!r}")
        whole("Composite.spends' times", times, least=0)
    return pairs


@frozen
class Composite(PrivacyLoss):
    """The composition of losses whose parameters do not depend on earlier outcomes.

    Parameters
    ----------
    spends
        Pairs of a loss and the times it is paid, or a mapping.

    References
    ----------
    Mironov 2017, Prop. 1 (Renyi); Bun and Steinke 2016, Lemma 1.7 (zCDP); Dong, Roth and Su
    2022, Cor. 2 (GDP); Dwork and Roth 2014, Thm 3.14 (pure).
    """

    theorem: ClassVar[str] = "composition of independent losses"

    spends: Spends = field(converter=_spends)

    def failure(self) -> float:
        """Return the sum of the failures, at most 1."""
        return min(
            1.0, ceiling(sum((Fraction(s.failure()) * n for s, n in self.spends), Fraction()))
        )

    def pure(self) -> float | None:
        """Return the sum of the pure epsilons, if every loss has one."""
        try:
            return ceiling(sum((Fraction(pure.epsilon(s)) * n for s, n in self.spends), Fraction()))
        except InapplicableError:
            return None

    def renyi(self, orders: Array) -> Array | None:
        """Return the sum of the curves."""
        try:
            return renyi.total(self.spends, orders)
        except InapplicableError:
            return None

    def rho(self) -> float | None:
        """Return the sum of the rhos."""
        try:
            return ceiling(
                sum((Fraction(concentrated.rho(s)) * n for s, n in self.spends), Fraction())
            )
        except InapplicableError:
            return None

    def mu(self) -> float | None:
        """Return the root of the sum of the squares."""
        try:
            square = sum((Fraction(gaussian.mu(s)) ** 2 * n for s, n in self.spends), Fraction())
        except (InapplicableError, OverflowError):
            return None
        return up(math.sqrt(ceiling(square)), 2)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the exact profile of Gaussian pairs, or of a single loss."""
        if all(loss.gaussian_pair for loss, _ in self.spends):
            mu = self.mu()
            return None if mu is None else gaussian.profile(mu, epsilon)
        if len(self.spends) == 1 and self.spends[0][1] == 1:
            return self.spends[0][0].profile(epsilon)
        return None

    def grouped(self, size: int) -> Composite:
        """Return the composition of the grouped losses."""
        return Composite(tuple((loss.grouped(size), times) for loss, times in self.spends))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Compare spend by spend; see `covers`."""
        inner = other.spends if isinstance(other, Composite) else ((other, 1),)
        return covers(dict(self.spends), dict(inner))


def covers(large: Mapping[PrivacyLoss, int], small: Mapping[PrivacyLoss, int]) -> bool:
    """Whether each spend of ``small`` has a spend of its own in ``large`` that dominates it.

    Gaussian pairs compose exactly to the root of the sum of squares, so they are compared as
    one. A matching is searched greedily: False means "not shown".
    """
    rest_large, square_large = _split(large)
    rest_small, square_small = _split(small)
    if square_small > square_large:
        return False
    budget = dict(rest_large)
    for loss, times in rest_small.items():
        taken = min(times, budget.get(loss, 0))
        if taken:
            budget[loss] -= taken
        missing = times - taken
        for candidate in budget:
            if missing == 0:
                break
            if budget[candidate] and candidate.dominates(loss):
                taken = min(missing, budget[candidate])
                budget[candidate] -= taken
                missing -= taken
        if missing:
            return False
    return True


def _split(spends: Mapping[PrivacyLoss, int]) -> tuple[dict[PrivacyLoss, int], Fraction]:
    rest: dict[PrivacyLoss, int] = {}
    square = Fraction()
    for loss, times in spends.items():
        mu = loss.mu() if loss.gaussian_pair else None
        if mu is None:
            rest[loss] = times
        else:
            square += Fraction(mu) ** 2 * times
    return rest, square
