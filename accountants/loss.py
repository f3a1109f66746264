"""What one mechanism costs: the contract that every privacy loss keeps.

A *loss* describes a pair of output distributions (P, Q), one for each of two
neighbouring data sets, in both directions. With probability at most `delta_floor` nothing is
promised (the two may be told apart); outside of that event the loss offers any subset of
exact functionals:

=========================  =====================================================
``pure()``                 epsilon: the log-likelihood ratio is bounded by it
``renyi(orders)``          D_alpha(P || Q) at each real order alpha > 1
``rho()``                  zCDP: D_alpha <= rho alpha for every alpha > 1
``mu()``                   GDP: the pair is no easier to tell apart than N(0,1), N(mu,1)
``profile(epsilon)``       delta(epsilon), the hockey-stick divergence, as a bracket
``pair()``                 the dominating pair (`accountants.pair`), unit present against
                           absent; reversed it dominates the other direction
=========================  =====================================================

A functional that a loss does not know is None; `accountants.definitions` derives it from
those that it knows, by a proven conversion, or says that there is none. A functional
holds for both directions and is rounded outward: never below the truth. From a pair all of
the others that exist follow, so a new loss need only define `pair`.

A loss that is known as numbers needs no class: `PrivacyLoss.from_probabilities`, `from_densities`,
`from_tradeoff` and `from_curve` make it in a line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import fields, has

from accountants.errors import InapplicableError
from accountants.numerics import Array, Bounds, down, shown, up
from accountants.pair import Pair

if TYPE_CHECKING:
    from accountants.losses.composite import Composite
    from accountants.losses.given import PrivacyProfile
    from accountants.losses.outcomes import EstimatedLoss, FiniteOutcomes


class PrivacyLoss:
    """Base of every privacy loss: a frozen attrs class, hashable and comparable by value.

    See Also
    --------
    from_probabilities : of a mechanism with finitely many outcomes.
    from_densities : of a mechanism with densities, from facts about them.
    from_tradeoff, from_curve : of what is known of errors of tests, or of delta at each epsilon.
    accountants.Pair : the pair of a loss that is none of these; two methods.

    Examples
    --------
    >>> from attrs import frozen
    >>> @frozen
    ... class Bought(PrivacyLoss):
    ...     epsilon: float
    ...     theorem = "an epsilon-DP mechanism of which no more is known; author, year, number"
    ...
    ...     def pure(self):
    ...         return self.epsilon
    >>> from accountants import Repeated, Spend, certify, tightest
    >>> print(tightest(certify(Repeated(Spend(Bought(epsilon=0.1)), 100), delta=1e-6)).bounds)
    [0, 4.77457]
    """

    __slots__ = ()

    theorem: ClassVar[str] = ""
    """What the functionals rest on, with author, year and number."""

    is_gaussian_pair: ClassVar[bool] = False
    """True where the pair is exactly N(0, 1) against N(mu, 1), which composes in closed form."""

    grouped_is_tight: ClassVar[bool] = False
    """Whether some mechanism with this loss attains `grouped`, at the distance of a group."""

    joins_apart: ClassVar[bool] = False
    """Whether `joined` holds, too, of units each of which meets a mechanism of its own.

    That is: ``joined(a + b)`` dominates ``joined(a)`` composed with ``joined(b)``, and rises as the
    loss does, which a theorem must say; `accountants.world` charges more where none does.
    """

    attains_group: ClassVar[bool] = False
    """Whether it is the loss of a group, and `attained_pair` below what some mechanism attains."""

    is_response_pair: ClassVar[bool] = False
    """True where the pair is exactly randomized response at `pure`, after `delta_floor`."""

    # the four constructors are in a family's file, which stands on this one: imported when called

    @staticmethod
    def from_probabilities(
        p: Mapping[Any, Any] | Iterable[Any], q: Mapping[Any, Any] | Iterable[Any]
    ) -> FiniteOutcomes:
        """Return the exact loss of a mechanism with finitely many outcomes.

        Parameters
        ----------
        p, q
            The probability of each outcome with the unit, and without it: mappings by outcome, in
            which a missing one is impossible, or arrays in one order. Rational numbers must add up
            to 1; floats, within 1e-9, and are divided by their sum. An outcome that is possible
            under one law alone has an infinite loss, and its probability is a delta.

        Returns
        -------
        FiniteOutcomes
            Valid in both directions; exact in composition where the mass of the infinite losses
            is the same both ways round, and else an upper bound there.

        Raises
        ------
        DomainError
            Where a number is negative, or a sum is not 1.

        Examples
        --------
        A survey that keeps an answer with probability 1/10, and else tells one of three:

        >>> from fractions import Fraction as F
        >>> from accountants import Distribution, Repeated, Spend, measure
        >>> loss = PrivacyLoss.from_probabilities(
        ...     {"a": F(4, 10), "b": F(3, 10), "c": F(3, 10)},
        ...     {"a": F(3, 10), "b": F(4, 10), "c": F(3, 10)},
        ... )
        >>> round(loss.pure(), 6)  # log 4/3
        0.287682
        >>> print(measure(Repeated(Spend(loss), 100), Distribution(), delta=1e-5).bounds)
        [12.2839, 12.284]
        """
        from accountants.losses import outcomes

        return outcomes.from_probabilities(p, q)

    @staticmethod
    def from_densities(
        log_p: Callable[[Array], Array],
        log_q: Callable[[Array], Array],
        *,
        support: tuple[float, float],
        lipschitz: float | None = None,
        log_concave: bool = False,
        monotone: bool = False,
        outside: float = 0.0,
    ) -> PrivacyProfile:
        """Return an upper bound of the loss of a mechanism with densities on an interval.

        The interval is cut into cells. The facts that are stated bound each density's mass in a
        cell, and the log-ratio there, so the guarantees returned are proven from the values at the
        cells' ends and from those facts. One of ``lipschitz`` and ``log_concave`` is needed. Each
        is checked at all of the points, which can refute it and cannot prove it.

        Parameters
        ----------
        log_p, log_q
            From an array of points to the logarithms of the densities with the unit, and without
            it; finite on the support, and right to a relative 1e-14 (beside 1).
        support
            Both ends of the interval.
        lipschitz
            A constant that bounds the slopes of both logarithms there.
        log_concave
            Whether both logarithms are concave there: Laplace, Gaussian, logistic, Gumbel noise.
        monotone
            Whether ``log_p - log_q`` rises, or falls, throughout; then the bound is tighter.
        outside
            A bound of the mass that either law has outside of the support. It is a delta.

        Returns
        -------
        PrivacyProfile
            About 400 guarantees for each direction. Beside ``outside``, its pure epsilon is the
            largest log-ratio.

        Raises
        ------
        DomainError
            Where the values contradict a fact, or do not integrate to 1.

        Notes
        -----
        The bound of delta is off by the square of a cell's width, ``1 / 65536`` of the support,
        and of the 300 steps between the epsilons; with ``lipschitz`` alone, by the width. So a
        support that is no wider than necessary gives the tightest bound.

        Examples
        --------
        Logistic noise of scale 1 on a count:

        >>> def logistic(shift):
        ...     return lambda x: -(x - shift) - 2 * np.log1p(np.exp(-(x - shift)))
        >>> loss = PrivacyLoss.from_densities(
        ...     logistic(1.0), logistic(0.0), support=(-40, 41), log_concave=True, monotone=True,
        ...     outside=1e-16,
        ... )
        >>> round(loss.pure(), 6), round(loss.profile(0.5).upper, 4)
        (1.0, 0.0774)
        """
        from accountants.losses import outcomes

        return outcomes.from_densities(
            log_p,
            log_q,
            support=support,
            lipschitz=lipschitz,
            log_concave=log_concave,
            monotone=monotone,
            outside=outside,
        )

    @staticmethod
    def from_tradeoff(
        tradeoff: Callable[[float], float] | Iterable[tuple[Any, Any]],
        *,
        at: Iterable[float] | None = None,
        polygon: bool = False,
    ) -> FiniteOutcomes:
        """Return the loss of a mechanism whose trade-off function is known, at points or as code.

        The function tells the least type II error beta of a test with type I error alpha. It
        is convex and falls. Between points it lies above the chords of its neighbours, continued,
        and the loss returned is that of the hull of these: an upper bound.

        Parameters
        ----------
        tradeoff
            Points (alpha, beta) *on* the function, in any order (for points below it see
            `TradeOff`); or the function itself, right to a relative 1e-12.
        at
            The alphas at which a function is asked; 500 by default.
        polygon
            State that the function is the polygon through the points, which start at alpha = 0
            and end at beta = 0. Then the loss is exact. Of any other function the chords between
            points are above it, and prove nothing.

        Raises
        ------
        DomainError
            Where no convex and falling function goes through the points.

        References
        ----------
        Dong, Roth and Su 2022, Props 1, 2 and 6.

        Examples
        --------
        >>> from fractions import Fraction as F
        >>> exact = PrivacyLoss.from_tradeoff([(0, 1), (F(1, 4), F(1, 4)), (1, 0)], polygon=True)
        >>> round(exact.pure(), 6)  # log 3
        1.098612
        """
        from accountants.losses import outcomes

        return outcomes.from_tradeoff(tradeoff, at=at, polygon=polygon)

    @staticmethod
    def from_curve(
        curve: Callable[[float], float] | Iterable[tuple[float, float]],
        *,
        at: Iterable[float] | None = None,
    ) -> PrivacyProfile:
        """Return the loss of a mechanism that is (epsilon, delta(epsilon))-DP at every epsilon.

        Parameters
        ----------
        curve
            From an epsilon to a delta that holds there in both directions; or points of it.
        at
            The epsilons at which a function is asked; by default 400, up to where delta is next to
            nothing. Beyond the last its delta holds, as the delta floor.

        Raises
        ------
        DomainError
            Where a delta is no probability, or rises in epsilon.

        See Also
        --------
        PrivacyProfile : the loss that is returned, and how it is bounded between the points.

        Examples
        --------
        >>> import math
        >>> loss = PrivacyLoss.from_curve(lambda eps: math.exp(-eps) / 4)
        >>> round(loss.profile(0.1).upper, 4), round(math.exp(-0.1) / 4, 4)
        (0.2264, 0.2262)
        """
        from accountants.losses import outcomes

        return outcomes.from_curve(curve, at=at)

    @staticmethod
    def from_samples(p: Sequence[Any], q: Sequence[Any], bins: int | None = None) -> EstimatedLoss:
        """Return an estimate of the loss from outcomes with the unit and without it: no bound.

        Parameters
        ----------
        p, q
            Outcomes that can be keys of a dictionary; numbers, where ``bins`` is given.
        bins
            How many intervals numbers are sorted into.

        Examples
        --------
        >>> loss = PrivacyLoss.from_samples(["yes"] * 3 + ["no"], ["no"] * 3 + ["yes"])
        >>> round(loss.estimate(epsilon=0.0), 6)
        0.5
        >>> from accountants import Spend, certify
        >>> certify(Spend(loss), delta=1e-6)["distribution"].reason
        'EstimatedLoss is an estimate from samples, and proves no bound; ...'
        """
        from accountants.losses import outcomes

        return outcomes.from_samples(p, q, bins)

    def delta_floor(self) -> float:
        """Return the probability mass delta on which nothing is promised."""
        return 0.0

    def pair(self) -> Pair | None:
        """Return the dominating pair beside the delta floor, with the unit against without."""
        return None

    def attained_pair(self) -> Pair | None:
        """Return a pair, beside the delta floor, that some mechanism with this loss attains.

        Lower bounds follow from it. By default `pair`, where that is tight; a loss whose pair is
        not may know a smaller one.
        """
        pair = self.pair()
        return pair if pair is not None and pair.is_tight() else None

    def attained_by_many(self) -> Pair | None:
        """Return another such pair, which may be worse where the loss is paid many times."""
        return None

    def within(self) -> Composite | None:
        """Return the losses of a body that runs on some of the units, drawn by chance; or None.

        Their composition costs no less. It is asked for where this loss may have no pair, or one of
        what is known of all of the body together; None where its pair is never worse.
        """
        return None

    def attained_together(self, times: int) -> tuple[Pair, int] | None:
        """Return a pair, and how often it is paid, that ``times`` mechanisms attain as one goes.

        Of mechanisms with this loss that come after all others, each chosen by what came before it.
        None by default.
        """
        return None

    def pure(self) -> float | None:
        """Return the pure epsilon, in nats: by default the pair's largest loss either way."""
        pair = self.pair()
        if pair is None:
            return None
        # top bounds the losses of P against Q, -bottom those of the reversed direction
        largest = max(0.0, pair.top(), -pair.bottom())
        # an unbounded likelihood ratio has no pure epsilon
        return largest if largest < math.inf else None

    def renyi(self, orders: Array) -> Array | None:
        """Return the Renyi divergences at real orders above 1 (shape as ``orders``), in nats.

        By default ``log E_P e^{(alpha-1)L} / (alpha-1)``, of the pair's costlier direction.
        """
        pair = self.pair()
        return None if pair is None else _renyi(pair, orders)

    def rho(self) -> float | None:
        """Return the zCDP parameter, in nats."""
        return None

    def mu(self) -> float | None:
        """Return the Gaussian-DP parameter."""
        return None

    def profile(self, epsilon: float) -> Bounds | None:
        """Return delta(epsilon) of the loss, its delta floor included, as a bracket.

        By default that of the pair's costlier direction.
        """
        pair = self.pair()
        return None if pair is None else _profile(pair, self.delta_floor(), epsilon)

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return the tight epsilon at ``delta``, where that is had faster than from `profile`."""
        return None

    @classmethod
    def renyi_sum(cls, spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array | None:
        """Return the sum of ``times * renyi(orders)`` over losses of this very class.

        None where the family has no faster way than one by one.
        """
        return None

    def grouped(self, size: int) -> PrivacyLoss:
        """Return the loss between data sets that differ in ``size`` units.

        Raises
        ------
        InapplicableError
            Where no group privacy is proven for this loss.
        """
        raise InapplicableError(
            f"{type(self).__name__} has no group privacy; declare the mechanism's loss at the "
            f"distance of {size} units instead"
        )

    def joined(self, size: int) -> PrivacyLoss:
        """Return the loss between data sets of which one has ``size`` units more.

        By default that of any ``size`` units, some of which may leave as others join.
        """
        return self.grouped(size)

    def replaced(self) -> PrivacyLoss:
        """Return the loss between data sets of which one has another unit in one's place.

        By default that of any two units.
        """
        return self.grouped(2)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether this loss is at least ``other`` in every functional (False if unknown)."""
        # equal losses have equal functionals; families override this with more
        return self == other


def _renyi(pair: Pair, orders: Array) -> Array | None:
    costlier = np.zeros(np.shape(orders))
    for direction in {pair, pair.reversed()}:
        log_moment = direction.log_moment((orders - 1).astype(np.complex128))
        if log_moment is None:
            return None
        # D_a = log E_P e^{(a-1)L} / (a - 1), rounded up; both directions must hold
        costlier = np.maximum(costlier, up((log_moment[0].real + log_moment[1]) / (orders - 1)))
    # NaN proves nothing, so it counts as infinite
    return np.where(np.isnan(costlier), np.inf, costlier)


def _profile(pair: Pair, delta_floor: float, epsilon: float) -> Bounds:
    lower, upper = 0.0, 0.0
    for direction in {pair, pair.reversed()}:
        low, high = direction.profile(np.array([epsilon]))
        # a lower bound holds only where a mechanism attains the pair
        lower = max(lower, float(low[0]) if pair.is_tight() else 0.0)
        upper = max(upper, float(high[0]))
    # likewise the floor: a pair that only dominates need not fail at all
    least = delta_floor if pair.is_tight() else 0.0
    # F + (1 - F) delta' at both ends; below only where a mechanism attains the pair
    lower = least + (1 - least) * lower
    return Bounds(max(0.0, down(lower)), min(1.0, up(delta_floor + (1 - delta_floor) * upper)))


def mirrored(profile: Callable[[float], Bounds], epsilon: float) -> Bounds:
    """Return delta at a negative epsilon: ``1 - e^eps + e^eps delta(-eps)``, the other way round.

    Parameters
    ----------
    profile
        That of a loss whose two directions have the same profile.
    """
    opposite, ratio = profile(-epsilon), math.exp(epsilon)
    # 1 - e^eps as -expm1(eps): no cancellation near 0; 8 units for the operations
    lower = down(-math.expm1(epsilon) + ratio * opposite.lower, 8)
    return Bounds(max(0.0, lower), min(1.0, up(-math.expm1(epsilon) + ratio * opposite.upper, 8)))


def parameters(loss: PrivacyLoss) -> dict[str, object]:
    """Return the loss's own parameters by name."""
    kind = type(loss)
    # a loss that is no attrs class shows no parameters
    own_fields = fields(kind) if has(kind) else ()
    return {f.alias or f.name: getattr(loss, f.name) for f in own_fields}


def short(loss: PrivacyLoss) -> str:
    """Return a loss as one writes it, its numbers shortened, upward."""
    given = ", ".join(f"{name}={_short(value)}" for name, value in parameters(loss).items())
    return f"{type(loss).__name__}({given})"


def _short(value: object) -> str:
    if isinstance(value, PrivacyLoss):
        return short(value)
    # rounded up: a shortened privacy parameter is never below the true one
    return shown(value, upward=True) if isinstance(value, float) else repr(value)
