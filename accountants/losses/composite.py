"""Several losses on the same unit, as one loss: functionals add up inside."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import ClassVar, TypeVar

import numpy as np
from attrs import field, frozen

from accountants.definitions import (
    LARGEST_MU,
    gdp_epsilon,
    gdp_mu,
    gdp_profile,
    pure_epsilon,
    pure_to_renyi,
    pure_to_zcdp,
    renyi_divergence,
    renyi_total,
    zcdp_rho,
)
from accountants.errors import (
    DomainError,
    InapplicableError,
    integer,
    nonnegative,
    positive,
    probability,
)
from accountants.loss import PrivacyLoss
from accountants.losses.gaussian import GaussianPair
from accountants.losses.given import Curved, implied
from accountants.numerics import Array, Bounds, ceiling, cost, plus, rounded_up, up
from accountants.pair import Pair

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
        count = integer("Composite.spends' times", times, least=0)
        if count:
            total[loss] = total.get(loss, 0) + count
    return tuple(total.items())


def _sum(values: Iterable[tuple[float, int]]) -> float:
    """Return the exact sum of ``times * value``: rounded up as a float."""
    total = Fraction()
    for value, times in values:
        if not math.isfinite(value):
            return math.inf
        total = plus(total, value, times)
    return rounded_up(total)


def _if_known(compute: Callable[[], T]) -> T | None:
    """Return what is computed, or None where a loss has no proven bound of that kind."""
    try:
        return compute()
    except InapplicableError:
        return None


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

    def single(self) -> PrivacyLoss | None:
        """Return the loss if it is one alone, paid once."""
        return self.spends[0][0] if len(self.spends) == 1 and self.spends[0][1] == 1 else None

    def gaussian_mu(self) -> float | None:
        """Return mu if the losses are exact Gaussian pairs alone, which compose to one of them."""
        return self.mu() if all(loss.is_gaussian_pair for loss, _ in self.spends) else None

    def pair(self) -> Pair | None:
        """Return a single loss's pair, that of Gaussians together, or what pure or mu implies."""
        single = self.single()
        if single is not None:
            return single.pair()
        mu = self.gaussian_mu()
        if mu is None:
            return implied(self)
        # tight only where the root of the sum of squares is a float itself
        square = sum((Fraction(loss.mu() or 0.0) ** 2 * n for loss, n in self.spends), Fraction())
        return GaussianPair(mu, tight=Fraction(mu) ** 2 == square)

    def delta_floor(self) -> float:
        """Return the sum of the delta floors, at most 1."""
        # a union bound over the losses' failures, rounded up
        return min(1.0, float(_sum((loss.delta_floor(), n) for loss, n in self.spends)))

    def pure(self) -> float | None:
        """Return the sum of the pure epsilons, if every loss has one."""
        return _if_known(lambda: _sum((pure_epsilon(loss), n) for loss, n in self.spends))

    def renyi(self, orders: Array) -> Array | None:
        """Return the sum of the curves."""
        return _if_known(lambda: renyi_total(self.spends, orders))

    def rho(self) -> float | None:
        """Return the sum of the rhos."""
        return _if_known(lambda: float(_sum((zcdp_rho(loss), n) for loss, n in self.spends)))

    def mu(self) -> float | None:
        """Return the root of the sum of the squares."""
        every = _if_known(lambda: [(gdp_mu(loss), n) for loss, n in self.spends])
        if every is None:
            return None
        # beyond that the square overflows a float
        if not all(mu <= LARGEST_MU for mu, _ in every):
            return math.inf
        # G_a (x) G_b = G_sqrt(a^2 + b^2): the sum of squares is exact; its root is rounded up
        square = sum((Fraction(mu) ** 2 * n for mu, n in every), Fraction())
        return up(math.sqrt(ceiling(square)), 2) if square else 0.0

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the exact profile of Gaussian pairs, or of a single loss."""
        single, mu = self.single(), self.gaussian_mu()
        if mu is not None:
            return gdp_profile(mu, epsilon)
        return None if single is None else single.profile(epsilon)

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return the root of the exact profile of Gaussian pairs, or what a single loss knows."""
        single, mu = self.single(), self.gaussian_mu()
        if mu is not None:
            return gdp_epsilon(mu, delta)
        return None if single is None else single.epsilon_at(delta)

    def grouped(self, size: int) -> Composite:
        """Return the composition of the grouped losses."""
        return Composite(tuple((loss.grouped(size), times) for loss, times in self.spends))

    def joined(self, size: int) -> Composite:
        """Return the composition of the losses of units that come together."""
        return Composite(tuple((loss.joined(size), times) for loss, times in self.spends))

    def replaced(self) -> Composite:
        """Return the composition of the losses of a replaced unit."""
        return Composite(tuple((loss.replaced(), times) for loss, times in self.spends))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Compare spend by spend; see `covers`."""
        inner = other.spends if isinstance(other, Composite) else ((other, 1),)
        # composition keeps domination: Gaussian pairs by their exact sum, other losses one by one
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
        mu = loss.mu() if loss.is_gaussian_pair else None
        if mu is not None and mu <= LARGEST_MU:
            square += Fraction(mu) ** 2 * times
        else:
            rest[loss] = times
    return rest, square


# -----------------------------------------------------------------------------
# The pointwise maximum of several losses: what holds whichever of them is paid.


def _losses(value: Iterable[PrivacyLoss]) -> tuple[PrivacyLoss, ...]:
    losses = tuple(value) if isinstance(value, Iterable) else ()
    if not losses or not all(isinstance(loss, PrivacyLoss) for loss in losses):
        raise DomainError(
            f"Envelope needs at least one privacy loss and nothing else, got {value!r}"
        )
    return losses


@frozen(cache_hash=True)
class Envelope(PrivacyLoss):
    """A bound on every one of ``losses``: each functional is the largest of theirs.

    Sound, since each functional is an upper bound and accountants grow in it; looser than
    the costliest single loss, since one may be costliest at one order, another at another.

    Parameters
    ----------
    losses
        At least one; a functional that one of them lacks, the envelope lacks.

    Examples
    --------
    >>> from accountants import Gaussian, Laplace
    >>> either = Envelope([Gaussian(mu=0.5), Laplace(epsilon=0.6)])
    >>> either.renyi(np.array([2.0, 64.0])).round(3).tolist()  # of Laplace, of Gaussian noise
    [0.274, 8.0]
    >>> either.pure() is None  # a Gaussian has none
    True
    """

    theorem: ClassVar[str] = "pointwise maximum of the curves of all alternatives"

    losses: tuple[PrivacyLoss, ...] = field(converter=_losses)

    def delta_floor(self) -> float:
        """Return the largest delta floor."""
        return max(loss.delta_floor() for loss in self.losses)

    def pair(self) -> Pair | None:
        """Return a pair that its pure epsilon or its mu implies.

        A Renyi curve alone implies one too, but takes long (`accountants.losses.given.curve_pair`).
        """
        return implied(self)

    def pure(self) -> float | None:
        """Return the largest pure epsilon."""
        return _largest([loss.pure() for loss in self.losses])

    def renyi(self, orders: Array) -> Array | None:
        """Return the largest divergence at each order; of compositions each loss is asked once."""
        asked: dict[PrivacyLoss, Array] = {}
        curves = [_curve(loss, orders, asked) for loss in self.losses]
        present = [curve for curve in curves if curve is not None]
        # each curve is an upper bound for its own loss: their maximum is one for all
        return np.max(present, axis=0) if len(present) == len(curves) else None

    def rho(self) -> float | None:
        """Return the largest rho."""
        return _largest([loss.rho() for loss in self.losses])

    def mu(self) -> float | None:
        """Return the largest mu."""
        return _largest([loss.mu() for loss in self.losses])

    def grouped(self, size: int) -> Envelope:
        """Return the envelope of the grouped losses."""
        return Envelope(tuple(loss.grouped(size) for loss in self.losses))

    def joined(self, size: int) -> Envelope:
        """Return the envelope of the losses of units that come together."""
        return Envelope(tuple(loss.joined(size) for loss in self.losses))

    def replaced(self) -> Envelope:
        """Return the envelope of the losses of a replaced unit."""
        return Envelope(tuple(loss.replaced() for loss in self.losses))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether one of the losses dominates ``other``."""
        return self == other or any(loss.dominates(other) for loss in self.losses)


def _curve(loss: PrivacyLoss, orders: Array, asked: dict[PrivacyLoss, Array]) -> Array | None:
    """Return a loss's curve; a composition's from those of its losses, each asked once."""
    if not isinstance(loss, Composite):
        return loss.renyi(orders)
    total = np.zeros_like(orders)
    for part, times in loss.spends:
        if part not in asked:
            try:
                asked[part] = renyi_divergence(part, orders)
            except InapplicableError:
                return None
        total = total + times * asked[part]
    # sums of n rounded products
    return up(total, 2 * len(loss.spends) + 2)


def _largest(values: list[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return max(present) if len(present) == len(values) else None


# -----------------------------------------------------------------------------
# A model behind a private test of what its data loses: propose-test-release of the model as one.


def _epsilon(value: float) -> float:
    return cost("Tested.epsilon", value)


def _delta(value: float) -> float:
    return probability("Tested.delta", value)


def _order(value: float) -> float:
    order = positive("Tested.order", value)
    if order <= 1:
        raise DomainError(f"Tested.order must be above 1, got {value!r}")
    return order


def _divergence(value: float) -> float:
    return nonnegative("Tested.divergence", value)


def _worst(value: PrivacyLoss) -> PrivacyLoss:
    if not isinstance(value, PrivacyLoss):
        raise DomainError(f"Tested.worst must be a privacy loss, got {value!r}")
    if value.delta_floor() > 0:
        raise DomainError(
            f"Tested.worst must be a loss without a delta floor, got {value!r}; give its "
            "Renyi curve"
        )
    renyi_divergence(value, np.array([2.0]))  # refuses here a loss that has no curve
    return value


@frozen(slots=False, cache_hash=True)
class Tested(Curved):
    """What a model loses that is released only if its data passes a test that it loses little.

    Under any neighbour relation. The model M has the curve `worst` on all data sets; on data D,
    ``b(D)`` bounds ``D_order(M(D) || M(D'))`` and ``D_order(M(D') || M(D))`` for all neighbours
    D'. An integer d(D) that moves by at most 1 between neighbours is 0 where
    ``b(D) > divergence``. The test is epsilon-DP as a function of d, and passes with probability at
    most delta where d = 0. Where it fails nothing is released but that it failed.

    Proof, for a pair of neighbours (own proof; as propose-test-release, Dwork and Lei 2009). If the
    budget ``divergence`` holds at D or at D', then it covers the pair, in both directions: D_a is
    at most ``divergence`` at a = order, so at every order below; and at most `worst`. The test adds
    a pure epsilon (composition). Nothing fails. If it holds at neither, both d are 0, the test's
    law is the same on both, and each is, for one p <= delta, a mixture of "failed" and with weight
    p of what the model releases: outside of a failure of probability delta the laws are the same.

    So the two do not add up: the profile at epsilon >= 0 is the larger of delta and the curve's.

    Parameters
    ----------
    epsilon, delta
        Of the test, for one changed unit.
    order, divergence
        The budget: a bound of the Renyi divergence at this order, in nats.
    worst
        What the model costs on every data set.

    References
    ----------
    Dwork and Lei 2009 (propose-test-release); van Erven and Harremoes 2014, Thm 3 (D_a never
    falls in a); Mironov 2017, Prop. 1 (composition).

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> loss = Tested(epsilon=0.1, delta=1e-6, order=8.0, divergence=0.2, worst=Gaussian(mu=1.0))
    >>> loss.renyi(np.array([4.0, 16.0])).round(4), loss.delta_floor()
    (array([0.2196, 8.06  ]), 1e-06)
    """

    theorem: ClassVar[str] = "propose-test-release of a whole model: Dwork & Lei 2009"

    __test__: ClassVar[bool] = False
    """pytest must not collect it as a test."""

    epsilon: float = field(converter=_epsilon)
    delta: float = field(converter=_delta)
    order: float = field(converter=_order)
    divergence: float = field(converter=_divergence)
    worst: PrivacyLoss = field(converter=_worst)

    def delta_floor(self) -> float:
        """Return delta."""
        return self.delta

    def renyi(self, orders: Array) -> Array:
        """Return the test's curve, and the budget's or the worst case's up to `order`."""
        worst = renyi_divergence(self.worst, orders)
        # D_a never falls in a: the budget at `order` holds at every order below it
        model = np.where(orders <= self.order, np.minimum(worst, self.divergence), worst)
        return up(pure_to_renyi(self.epsilon, orders) + model, 4)

    def pure(self) -> float | None:
        """Return the worst case's pure epsilon, and the test's."""
        eps = self.worst.pure()
        if eps is None or math.isinf(eps):
            return eps
        return rounded_up(Fraction(self.epsilon) + Fraction(eps))

    def rho(self) -> float | None:
        """Return the worst case's rho, and the test's."""
        rho = self.worst.rho()
        return None if rho is None else up(pure_to_zcdp(self.epsilon) + rho, 2)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the larger of delta and the pair's; their sum at a negative epsilon."""
        curve = self._promised(epsilon) if epsilon >= 0 else None
        if curve is None:
            return super().profile(epsilon)
        # the budget covers the pair, or the test fails but for delta: never both
        return Bounds(0.0, min(1.0, max(self.delta, curve)))
