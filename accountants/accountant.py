"""The contract of an accountant: a fold over losses, whose state is a value.

An accountant never asks which mechanism a loss comes from; it reads functionals through
`accountants.notions`. What it cannot bound it refuses with `InapplicableError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Protocol, TypeVar

from attrs import frozen

from accountants.bounds import Bounds
from accountants.loss import PrivacyLoss
from accountants.notions.approximate import approximate_epsilon_floor
from accountants.notions.gaussian import LARGEST_MU, gdp_epsilon_floor, gdp_profile
from accountants.roots import crossing
from accountants.rounding import flooring

S = TypeVar("S")


class Accountant(Protocol[S]):
    """Composes losses and answers with a bracket.

    It may also have ``screens(state, delta)``, which gives screens (`accountants.screen`): then
    of many worlds few are measured.

    Examples
    --------
    >>> from accountants import Laplace, Renyi
    >>> accountant = Renyi()
    >>> state = accountant.compose(accountant.start(), Laplace(epsilon=0.1), times=100)
    >>> print(accountant.epsilon(state, delta=1e-6))
    [0.0999979, 4.98418]
    >>> accountant.name, accountant.adaptive
    ('renyi', False)
    """

    @property
    def name(self) -> str:
        """How certificates call it."""
        ...

    @property
    def theorem(self) -> str:
        """What its upper bound rests on."""
        ...

    @property
    def adaptive(self) -> bool:
        """Whether privacy parameters may be chosen as the analysis runs."""
        ...

    def start(self) -> S:
        """Return the state in which nothing is spent."""
        ...

    def compose(self, state: S, loss: PrivacyLoss, times: int = 1) -> S:
        """Return the state after paying ``loss`` ``times`` times; constant work."""
        ...

    def epsilon(self, state: S, delta: float) -> Bounds:
        """Return a bracket of the tight epsilon at ``delta``."""
        ...

    def delta(self, state: S, epsilon: float) -> Bounds:
        """Return a bracket of the tight delta at ``epsilon``."""
        ...

    def price(self, state: S, delta: float) -> Callable[[PrivacyLoss], float]:
        """Return what a loss costs in the accountant's additive currency, at its optimum."""
        ...

    def conversion(self, loss: PrivacyLoss) -> str:
        """Return which functional the accountant reads from ``loss``, and by what theorem."""
        ...


@frozen
class Chain:
    """A multiset of losses that grows in constant time: a linked list, shared as a value."""

    last: tuple[PrivacyLoss, int] | None = None
    before: Chain | None = None

    def add(self, loss: PrivacyLoss, times: int) -> Chain:
        """Return the chain with ``loss`` added ``times`` times."""
        return Chain((loss, times), self) if times else self

    def items(self) -> dict[PrivacyLoss, int]:
        """Return each distinct loss with its count."""
        result: dict[PrivacyLoss, int] = {}
        link: Chain | None = self
        while link is not None and link.last is not None:
            loss, times = link.last
            result[loss] = result.get(loss, 0) + times
            link = link.before
        return result


@frozen
class Floor:
    """What no accountant can go below, in constant space.

    The tight epsilon of a composition is at least that of any part of it. Two parts are
    kept: all exact Gaussian pairs, which compose in closed form, and among the losses that
    know their profile the one of the largest total variation (then pure epsilon).
    """

    square: Fraction = Fraction()
    dearest: PrivacyLoss | None = None
    rank: tuple[float, float] = (0.0, 0.0)

    def add(self, loss: PrivacyLoss, times: int) -> Floor:
        """Return the floor after ``times`` payments of ``loss``."""
        if times == 0:
            return self
        mu = loss.mu() if loss.gaussian_pair else None
        if mu is not None:  # less than the whole mu is a lower bound as well
            square = Fraction(min(mu, LARGEST_MU)) ** 2
            return Floor(self.square + square * times, self.dearest, self.rank)
        variation = loss.profile(0.0)
        if variation is not None and (rank := (variation.lower, loss.pure() or 0.0)) > self.rank:
            return Floor(self.square, loss, rank)
        return self

    def epsilon(self, delta: float) -> float:
        """Return a lower bound of the tight epsilon at ``delta``."""
        lower = gdp_epsilon_floor(self._mu(), delta)
        if self.dearest is not None:
            lower = max(lower, approximate_epsilon_floor(self.dearest, delta))
        return lower

    def delta(self, epsilon: float) -> float:
        """Return a lower bound of the tight delta at ``epsilon``."""
        lower = gdp_profile(self._mu(), epsilon).lower
        if self.dearest is not None and (bounds := self.dearest.profile(epsilon)) is not None:
            lower = max(lower, bounds.lower)
        return lower

    def _mu(self) -> float:
        return math.sqrt(flooring(self.square)) * (1 - 2**-50)


def delta_by_search(
    epsilon_at: Callable[[float], float], target: float, floor: Floor, failure: float
) -> Bounds:
    """Return a bracket of delta at epsilon ``target`` by a root in log delta.

    ``epsilon_at(delta)`` is any proven upper bound of epsilon; the answer's upper end is a
    delta at which it is at most ``target``, or 1, which always holds.
    """
    lower = min(1.0, floor.delta(target))
    if epsilon_at(failure) <= target:
        return Bounds(min(lower, failure), failure)
    if epsilon_at(0.999999) > target:
        return Bounds(lower, 1.0)

    def excess(log_delta: float) -> float:
        value = epsilon_at(min(1.0, math.exp(log_delta)))
        if value <= target:  # at target 0 on a plateau, where no root can be seen
            return min(-1e-300, value - target)
        return 1e6 if math.isinf(value) else value - target

    least = math.log(max(failure, 5e-324))
    if excess(least) <= 0:  # at e^least, which may be a unit above the failure
        return bracket(lower, max(failure, min(1.0, math.exp(least))))
    _, right = crossing(excess, least, math.log(0.999999))
    return bracket(lower, min(1.0, math.exp(right) * (1 + 2**-50)))


def bracket(lower: float, upper: float) -> Bounds:
    """Return the bounds; a lower end above the upper by rounding alone is lowered."""
    return Bounds(min(lower, upper), upper)
