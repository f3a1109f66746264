"""Losses of which only some guarantees are known: points, trade-offs, Renyi curves, zCDP.

First the pairs that such losses have: from a pure epsilon, or from a Renyi curve.

A curve proves a delta at every epsilon (`accountants.definitions`). Any order's bound holds, so
the least over a grid of orders, at a grid of epsilons, is a set of guarantees, and the pair is
that of their hull (`accountants.finite`). Beyond the last epsilon the best order there goes on
alone (`accountants.finite`), unless a pure epsilon ends it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.definitions import Curve, pure_to_renyi, renyi_log_delta
from accountants.errors import DomainError, InapplicableError, integer, nonnegative, probability
from accountants.finite import (
    FinitePair,
    from_profile,
    gaussian_mu,
    logarithm,
    lower_hull,
    with_tails,
)
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.gaussian import Gaussian, GaussianPair
from accountants.losses.pure import Approximate, Pure, ResponsePair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    ceiling,
    down,
    remembered,
    up,
)
from accountants.pair import LooseBound, Pair

_ORDERS = 1 + np.geomspace(1e-3, 1e9, 1201)
_CELLS = 320
_NEGLIGIBLE = -160.0
"""The atoms end where the log of delta has come down to this."""

_FARTHEST = 200.0
"""No atom has a larger loss than this; ``e^-400`` times the least delta is still a float."""

_USELESS = -5.0
"""A curve that has not come down to this log of delta by then has no pair."""


@frozen
class ResponseBound(ResponsePair):
    """Randomized response as the bound of a mechanism that need not attain it."""

    def is_tight(self) -> bool:
        """Return False."""
        return False


@remembered(256)  # a root is found by asking for a pair's profile again and again
def implied(loss: PrivacyLoss) -> Pair | None:
    """Return a pair that the loss's pure epsilon implies, or else its mu."""
    eps, mu = loss.pure(), loss.mu()
    if eps is not None:
        return ResponseBound(eps)
    return None if mu is None else LooseBound(GaussianPair(mu))


@frozen
class PureBound(Pure):
    """A pure epsilon that need not be attained: no lower bounds follow from it."""

    is_response_pair: ClassVar[bool] = False

    def pair(self) -> ResponsePair:
        """Return randomized response, as a bound."""
        return ResponseBound(self.epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return randomized response's, as a bound."""
        return Bounds(0.0, super().profile(epsilon).upper)


def log_deltas(curve: Curve, epsilons: Array) -> tuple[Array, Array]:
    """Return bounds of log delta at each epsilon, and the orders that prove them."""
    with np.errstate(over="ignore"):  # an infinite divergence proves nothing
        divergences = up(curve(_ORDERS))
        c = _ORDERS - 1
        shape = c * np.log1p(-1 / _ORDERS) - np.log(_ORDERS)
        # every order proves its delta (Prop. 12): the least over the grid holds
        exponent = np.maximum(c * (divergences - epsilons[:, None]), -1e300)
        logs = exponent + shape + 16 * UNIT * (1 + np.abs(exponent) + np.abs(shape))
        # divergence - epsilon cancels: the rounding is that of each
        logs = logs + 4 * UNIT * c * np.where(
            divergences < np.inf, divergences + epsilons[:, None], 0.0
        )
    best = np.argmin(logs, axis=1)
    return np.minimum(logs[np.arange(len(logs)), best], 0.0), _ORDERS[best]


def curve_pair(curve: Curve, pure: float | None = None) -> Pair | None:
    """Return a pair that dominates whatever has the curve and, if given, the pure epsilon.

    None where the curve proves next to nothing at any epsilon that a float can carry.
    """
    # a pure epsilon within reach ends the atoms there; else the curve alone does
    if pure is not None and pure <= _FARTHEST:
        return _bounded(curve, pure)
    farthest = _negligible_from(curve)
    if farthest is None:
        return None if pure is None else ResponseBound(pure)
    epsilons = np.linspace(0.0, farthest, _CELLS + 1)
    logs, orders = log_deltas(curve, epsilons)
    deltas = _exp(logs)
    # only guarantees that say more than those before
    lower = np.append(True, np.diff(np.minimum.accumulate(deltas)) < 0) & (deltas < 1)
    guarantees = list(
        zip(epsilons[lower].tolist(), map(Fraction, deltas[lower].tolist()), strict=True)
    )
    return with_tails(guarantees, down(float(orders[-1] - 1))) if lower[-1] else None


@remembered(128)
def _proven_pair(loss: Curved) -> Pair | None:
    """Return `curve_pair` of a loss that knows its Renyi curve; of equal losses it is made once."""
    return curve_pair(loss.renyi, loss.pure())


def _bounded(curve: Curve, pure: float) -> Pair:
    """Return the pair of the curve and of randomized response together."""
    if pure <= 1e-12:
        return ResponseBound(pure)
    epsilons = np.linspace(0.0, pure, _CELLS + 1)
    deltas = _exp(log_deltas(curve, epsilons)[0])
    response = np.array([Pure(pure).profile(float(at)).upper for at in epsilons])
    # at the pure epsilon delta is 0; before it the smaller of two proven bounds
    deltas = np.append(np.minimum(deltas, response)[:-1], 0.0)
    some = (deltas > math.exp(_NEGLIGIBLE)) | (deltas == 0)
    delta_floor, pair = from_profile(epsilons[some], deltas[some])
    return pair if delta_floor == 0 else ResponseBound(pure)


def _negligible_from(curve: Curve) -> float | None:
    """Return where delta becomes negligible, or the farthest; None where that is useless."""
    epsilons = np.append(np.geomspace(1e-9, _FARTHEST, 400)[:-1], _FARTHEST)
    logs, _ = log_deltas(curve, epsilons)
    # the first epsilon at which the curve proves a negligible delta
    nothing = np.flatnonzero(logs <= _NEGLIGIBLE)
    if len(nothing):
        return float(epsilons[nothing[0]])
    return _FARTHEST if logs[-1] <= _USELESS else None


def _exp(logs: Array) -> Array:
    return np.minimum(1.0, np.exp(logs) * (1 + 4 * UNIT * (1 + np.abs(logs)))) + 1e-320


# -----------------------------------------------------------------------------
# Base of the losses that prove a Renyi curve: profile and dominating pair follow from it.


def lowered(bound: Curve, orders: Array, higher: Array) -> Array:
    """Return the least of a curve's bounds at each order and at those of ``higher`` above it.

    D_a never falls in a (van Erven and Harremoes 2014, Thm 3): what bounds it at a higher order
    bounds it at a lower one.
    """
    # wanted orders first: they are cut out again at the end
    every = np.concatenate([np.ravel(orders), higher])
    order = np.argsort(every, kind="stable")
    some = bound(every[order])
    some = np.where(np.isnan(some), np.inf, some)  # else one at the end would be all of them
    best = np.empty_like(some)
    # from the highest order down: the running least of the bounds
    best[order] = np.minimum.accumulate(some[::-1])[::-1]
    return best[: orders.size].reshape(orders.shape)


class Curved(PrivacyLoss):
    """A loss that defines its Renyi curve, and its pure epsilon or that it has none."""

    def renyi(self, orders: Array) -> Array:
        """Return the curve, beside the delta floor."""
        raise NotImplementedError

    def pure(self) -> float | None:
        """Return the pure epsilon, if there is one."""
        raise NotImplementedError

    def pair(self) -> Pair | None:
        """Return a pair that bounds every mechanism with this curve and pure epsilon."""
        return self._pair

    @cached_property
    def _pair(self) -> Pair | None:
        return _proven_pair(self)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's, delta floor included, as an upper bound."""
        upper, delta_floor = self._promised(epsilon), self.delta_floor()
        if upper is None:
            return None
        # the delta floor F, and delta' outside of it: F + (1 - F) delta'
        total = up(delta_floor + (1 - delta_floor) * upper, 8) if delta_floor else upper
        return Bounds(0.0, min(1.0, total))

    def _promised(self, epsilon: float) -> float | None:
        """Return an upper bound of delta beside the delta floor."""
        pair = self.pair()
        return None if pair is None else float(pair.profile(np.array([epsilon]))[1][0])


# -----------------------------------------------------------------------------
# Losses of which finitely many guarantees are known: (epsilon, delta)s, or errors of tests.


Points = tuple[tuple[float, float], ...]


def _pairs(what: str, value: Iterable[tuple[float, float]]) -> Points:
    try:
        points = tuple((first, second) for first, second in value)
    except (TypeError, ValueError):
        points = ()
    if not points:
        raise DomainError(f"{what} must be at least one pair of numbers, got {value!r}")
    return points


def _reverse(value: Iterable[tuple[float, float]]) -> Points:
    given = tuple(value)
    return _points(given) if given else ()


def _points(value: Iterable[tuple[float, float]]) -> Points:
    return tuple(
        (nonnegative("PrivacyProfile's epsilon", e), probability("PrivacyProfile's delta", d))
        for e, d in sorted(_pairs("PrivacyProfile.points", value))
    )


class _Guarantees(PrivacyLoss):
    """Base of the losses of which finitely many (epsilon, delta) guarantees follow."""

    def guarantees(self) -> Points:
        """Return an epsilon and a delta of each, epsilons rising."""
        raise NotImplementedError

    @cached_property
    def _worst(self) -> tuple[float, FinitePair]:
        epsilons, deltas = zip(*self.guarantees(), strict=True)
        return from_profile(epsilons, deltas)

    def delta_floor(self) -> float:
        """Return the least delta, at the largest epsilon of use."""
        return self._worst[0]

    def pair(self) -> FinitePair:
        """Return the atoms of the hull, beside the delta floor."""
        return self._worst[1]

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's with its delta floor, as an upper bound."""
        return Bounds(0.0, _profile(self.pair(), self.delta_floor(), epsilon).upper)

    def mu(self) -> float:
        """Return the least mu that the guarantees prove, beside the delta floor."""
        return gaussian_mu(self.pair())

    def grouped(self, size: int) -> PrivacyProfile:
        """Return the profile of each guarantee's group privacy."""
        k = integer("group size", size)
        grouped = (Approximate(e, d).grouped(k) for e, d in self.guarantees())
        return PrivacyProfile([(loss.epsilon, loss.delta) for loss in grouped])


@frozen(slots=False, cache_hash=True)
class PrivacyProfile(_Guarantees):
    """A mechanism that is (epsilon_i, delta_i)-DP at each of finitely many points, all at once.

    Between the points its profile lies under their convex hull in ``e^epsilon``
    (`accountants.finite`); beyond the last it is at most the last delta, which is the
    delta floor. One point is `Approximate`.

    Parameters
    ----------
    points
        Pairs (epsilon, delta), in any order; each guarantee holds in both directions of one
        neighbour relation, or of the unit present against absent if ``reverse`` is given.
    reverse
        Pairs that hold of the unit absent against present; none where the points hold both ways.

    References
    ----------
    Zhu, Dong and Wang 2022, Prop. 7 and Lemma 9 (a convex profile is that of a pair); Vadhan
    2017, Lemma 2.2 (groups).

    Examples
    --------
    >>> loss = PrivacyProfile([(0.5, 1e-2), (1.0, 1e-6)])
    >>> loss.delta_floor(), loss.pure(), round(loss.profile(0.5).upper, 9)
    (1e-06, 1.0, 0.01)
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "given (epsilon, delta)s: Zhu, Dong & Wang 2022 (convex profiles)"

    points: Points = field(converter=_points)
    reverse: Points = field(default=(), converter=_reverse)

    def guarantees(self) -> Points:
        """Return the points; with a reverse, those that hold both ways."""
        if not self.reverse:
            return self.points
        both = []
        for e in sorted({e for e, _ in (*self.points, *self.reverse)}):
            # delta falls in epsilon: a guarantee at a smaller one holds here too
            sides = [[b for a, b in side if a <= e] for side in (self.points, self.reverse)]
            if all(sides):
                both.append((e, max(min(deltas) for deltas in sides)))
        return tuple(both)

    @cached_property
    def _worst(self) -> tuple[float, FinitePair]:
        epsilons, deltas = zip(*self.points, strict=True)
        return from_profile(epsilons, deltas, reverse=self.reverse)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Whether each point here is no better than some point of the other profile."""
        return isinstance(other, PrivacyProfile) and all(
            any(a <= e and b <= d for a, b in theirs)
            for own, theirs in (
                (self.points, other.points),
                (self.reverse or self.points, other.reverse or other.points),
            )
            for e, d in own
        )


def _errors(value: Iterable[tuple[float, float]]) -> Points:
    points = tuple(
        (probability("TradeOff's alpha", a), probability("TradeOff's beta", b))
        for a, b in sorted(_pairs("TradeOff.points", value))
    )
    for a, b in points:
        if Fraction(a) + Fraction(b) > 1:
            raise DomainError(
                f"TradeOff needs alpha + beta <= 1, which guessing attains, got {a} and {b}"
            )
    return points


@frozen(slots=False, cache_hash=True)
class TradeOff(_Guarantees):
    """A mechanism of which the trade-off function T is bounded below at finitely many points.

    T(alpha) is the least type II error of any test of type I error alpha. It is convex, T(0) is
    at most 1 and T(1) = 0. So ``T(a) >= b`` forces, for convexity's sake,

    ``T(x) >= 1 - (1 - b) x / a`` right of a, and ``T(x) >= b (1 - x)/(1 - a)`` left of it;

    nothing more is known between the points (a chord of lower bounds is none). In the other
    direction T is its own inverse, so ``T(b) >= a`` as well. With F the largest of these,
    ``delta(epsilon) = sup_x 1 - e^epsilon x - T(x)`` is at most the same of F: a maximum of
    lines, one for each corner of F that points down.

    Parameters
    ----------
    points
        Pairs (alpha, beta), ``T(alpha) >= beta``, in any order; each in both directions. The
        delta floor is 1 minus the largest lower bound near alpha = 0, so give small alphas.

    References
    ----------
    Dong, Roth and Su 2022, Props 1 and 6 (duality); groups by Vadhan 2017, Lemma 2.2, on the
    profile.

    Examples
    --------
    >>> loss = TradeOff([(0.001, 0.99), (0.3, 0.4)])
    >>> round(loss.delta_floor(), 6)
    0.009009
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "trade-off function at given points: Dong, Roth & Su 2022, Prop. 6"

    points: Points = field(converter=_errors)

    def guarantees(self) -> Points:
        """Return an (epsilon, delta) at each kink, from epsilon 0 on, of the maximum of the lines.

        Lines ``1 - y - t x`` of points (x, y) meet on their maximum at minus the slopes of the
        lower hull of the points.
        """
        kinks = []
        for (_, x, y), (_, right, low) in pairwise(lower_hull(_corners(self.points))):
            t = (y - low) / (right - x)
            if t >= 1:
                # epsilon = log t rounded up, delta rounded up: each holds by monotonicity
                kinks.append((logarithm(t), ceiling(1 - y - t * x)))
        return tuple(sorted(kinks)) or ((0.0, 1.0),)


Corner = tuple[float, Fraction, Fraction]
"""A point of F; its first entry is of no use here."""


def _corners(points: Points) -> list[Corner]:
    """Return the lower ends of F: at each alpha, and where two lines meet between two alphas.

    All lines on the right of their points pass (0, 1), all on the left (1, 0); of each kind the
    flattest, or steepest, is F's.
    """
    both = {(Fraction(a), Fraction(b)) for a, b in points if a and b}
    both_ways = sorted(both | {(b, a) for a, b in both})
    if not both_ways:
        return []
    # right of each alpha: the flattest of the lines from (0, 1), which bounds T the most
    fall = list(accumulate(((1 - b) / a for a, b in both_ways), min))
    rise = list(accumulate((b / (1 - a) for a, b in reversed(both_ways)), max))[::-1]
    least = {Fraction(): rise[0], 1 / fall[-1]: Fraction()}
    for (a, _), (right, _), r, s in zip(both_ways, both_ways[1:], fall, rise[1:], strict=False):
        meet = (1 - s) / (r - s) if r > s else a  # else they are the same line
        for x in (a, right, *([meet] if a < meet < right else [])):
            # both lines bound T from below, so the larger does
            y = max(1 - r * x, s * (1 - x))
            least[x] = min(least.get(x, y), y)
    for x, y in (
        (both_ways[0][0], rise[0] * (1 - both_ways[0][0])),
        (both_ways[-1][0], both_ways[-1][1]),
    ):
        least[x] = min(least.get(x, y), y)
    return [(0.0, x, least[x]) for x in sorted(least)]


# -----------------------------------------------------------------------------
# Losses of which only Renyi divergences are known: at some orders, or as one line through 0.


def _orders(value: Iterable[float]) -> tuple[float, ...]:
    orders = tuple(nonnegative("an order of RenyiCurve", order) for order in value)
    if not orders or orders[0] <= 1 or any(b <= a for a, b in pairwise(orders)):
        raise DomainError(
            f"RenyiCurve.orders must rise, be above 1 and at least one, got {orders!r}; sort them "
            "and drop orders of at most 1"
        )
    return orders


def _divergences(value: Iterable[float]) -> tuple[float, ...]:
    return tuple(nonnegative("a divergence of RenyiCurve", each) for each in value)


def _rho(value: float) -> float:
    return nonnegative("ZeroConcentrated.rho", value)


class _CurveAlone(Curved):
    """Base of the losses of which a Renyi curve is known and nothing else."""

    def profile(self, epsilon: float) -> Bounds:
        """Return what the best order proves (Canonne, Kamath and Steinke 2020, Prop. 12)."""
        if epsilon < 0:  # h(1/t) = 1 - 1/t + h(t)/t
            other = self.profile(-epsilon).upper
            upper = up(-math.expm1(epsilon) + math.exp(epsilon) * other, 16)
            return Bounds(0.0, min(1.0, upper))
        # any order proves a delta: the best that the search found
        log_delta = renyi_log_delta(self.renyi, epsilon)
        delta = up(math.exp(log_delta), 4 + 2 * abs(log_delta)) + 1e-323
        return Bounds(0.0, 0.0 if self._is_zero() else min(1.0, delta))

    @cached_property
    def _pair(self) -> Pair | None:
        if self._is_zero():
            return FinitePair((0.0,), (1.0,), (1.0,), tight=False)
        return _proven_pair(self)

    def pure(self) -> float | None:
        """Return 0 for a curve of zeros; otherwise there is no pure epsilon."""
        return 0.0 if self._is_zero() else None

    def _is_zero(self) -> bool:
        """Whether some divergence is 0: then the two laws are the same."""
        raise NotImplementedError


@frozen(slots=False, cache_hash=True)
class RenyiCurve(_CurveAlone):
    """A mechanism of which bounds of D_alpha are known at finitely many orders, both ways.

    ``f(alpha) = (alpha - 1) D_alpha`` is convex with f(1) = 0, so between orders it lies under the
    lower hull of what is given; D_alpha never falls in alpha, so the value at any higher order
    bounds it as well. The smaller holds. Above the largest order nothing is known.

    Parameters
    ----------
    orders
        Rising, above 1.
    divergences
        As many, non-negative, in nats; each for both directions of the neighbour relation that
        the curve was proven for.

    References
    ----------
    van Erven and Harremoes 2014, Thms 3 and 11 (monotone in alpha, convexity); Mironov 2017,
    Cor. 4 (groups); Canonne, Kamath and Steinke 2020, Prop. 12 (profile).

    Examples
    --------
    >>> curve = RenyiCurve(orders=(2, 4), divergences=(0.1, 0.2))
    >>> curve.renyi(np.array([1.5, 3.0, 5.0])).round(4)
    array([0.1 , 0.175,  inf])
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "Renyi DP at given orders: van Erven & Harremoes 2014; "
        "Canonne, Kamath & Steinke 2020, Prop. 12"
    )

    orders: tuple[float, ...] = field(converter=_orders)
    divergences: tuple[float, ...] = field(converter=_divergences)

    def __attrs_post_init__(self) -> None:
        if len(self.orders) != len(self.divergences):
            raise DomainError(
                f"RenyiCurve needs a divergence for each order, got {len(self.orders)} orders and "
                f"{len(self.divergences)} divergences"
            )

    @cached_property
    def _hull(self) -> tuple[Array, Array]:
        """Return the hull's vertices ``alpha - 1`` and f, from 0 on, rounded up.

        Every chord between given points bounds f, so a misjudged vertex is loose, not wrong.
        """
        least = np.minimum.accumulate(np.array(self.divergences)[::-1])[::-1]
        x = np.array(self.orders) - 1
        hull = [(0.0, 0.0)]
        for point in zip(x.tolist(), up(x * least).tolist(), strict=True):
            while len(hull) > 1 and _turns_right(hull[-2], hull[-1], point):
                hull.pop()
            hull.append(point)
        return np.array([p[0] for p in hull]), np.array([p[1] for p in hull])

    def renyi(self, orders: Array) -> Array:
        """Return the hull's chord, or the value at the next higher order where it is less."""
        wanted = np.asarray(orders, dtype=np.float64)
        if self._is_zero():
            return np.zeros_like(wanted)
        x, f = self._hull
        c = wanted - 1
        right = np.clip(np.searchsorted(x, c), 1, len(x) - 1)
        left, width = right - 1, x[right] - x[right - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            # (alpha - 1) D_alpha is convex and 0 at alpha = 1: it lies below its chords
            chord = ((x[right] - c) * f[left] + (c - x[left]) * f[right]) / width / c
        least = np.minimum.accumulate(np.array(self.divergences)[::-1])[::-1]
        at = np.searchsorted(self.orders, wanted)
        inside = at < len(self.orders)
        step = least[np.minimum(at, len(least) - 1)]
        # left of the first vertex the chord is the step
        # both bounds hold, so the smaller; D_alpha never falls in alpha
        curve = np.where(left == 0, step, np.minimum(up(chord, 16), step))
        return np.where(inside, curve, np.inf)

    def _is_zero(self) -> bool:
        return min(self.divergences) == 0

    def grouped(self, size: int) -> RenyiCurve:
        """Return the curve for a group, by Mironov's triangle inequality, doubled until enough.

        ``D_a(P, R) <= (a - 1/2)/(a - 1) D_{2a}(P, Q) + D_{2a-1}(Q, R)``, so each doubling of
        the group halves the orders.
        """
        k, curve = integer("group size", size), self
        while k > 1:
            halved = np.array([order / 2 for order in curve.orders if order / 2 > 1])
            if not len(halved):
                raise InapplicableError(
                    f"RenyiCurve with orders up to {self.orders[-1]:g} says nothing of groups of "
                    f"{size} units; give divergences at orders above {2 ** (size - 1).bit_length()}"
                )
            weight = (halved - 0.5) / (halved - 1)
            # Mironov 2017, Cor. 4's triangle inequality, rounded up
            doubled = up(weight * curve.renyi(2 * halved), 8) + curve.renyi(2 * halved - 1)
            curve = RenyiCurve(tuple(halved.tolist()), tuple(up(doubled, 4).tolist()))
            k = (k + 1) // 2
        return curve

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order curves of the same orders by their divergences."""
        if not isinstance(other, RenyiCurve) or self.orders != other.orders:
            return False
        return all(a >= b for a, b in zip(self.divergences, other.divergences, strict=True))


def _turns_right(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


@frozen(repr=False, slots=False, cache_hash=True)
class ZeroConcentrated(_CurveAlone):
    """A mechanism of which only zCDP is known: ``D_alpha <= rho alpha`` for every alpha > 1.

    Unlike `Gaussian`, which attains its curve, it has no lower bounds and no mu.

    Parameters
    ----------
    rho
        Non-negative, in nats, for both directions of the relation that it was proven for.

    References
    ----------
    Bun and Steinke 2016, Def. 1.1 and Prop. 1.9 (groups); Canonne, Kamath and Steinke 2020,
    Prop. 12 (profile).

    Examples
    --------
    >>> ZeroConcentrated(rho=0.5).rho()
    0.5
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "zCDP alone: Bun & Steinke 2016, Def. 1.1; Canonne, Kamath & Steinke 2020, Prop. 12"
    )

    rho_: float = field(alias="rho", converter=_rho)

    def __repr__(self) -> str:
        return f"ZeroConcentrated(rho={self.rho_!r})"

    def rho(self) -> float:
        """Return rho."""
        return self.rho_

    def renyi(self, orders: Array) -> Array:
        """Return ``rho alpha``."""
        with np.errstate(over="ignore"):
            return up(orders * self.rho_) if self.rho_ else np.zeros_like(orders)

    def _is_zero(self) -> bool:
        return self.rho_ == 0

    def grouped(self, size: int) -> ZeroConcentrated:
        """Return ``k^2 rho`` (Bun and Steinke 2016, Prop. 1.9)."""
        k = integer("group size", size)
        return ZeroConcentrated(up(self.rho_ * k * k, 4) if k > 1 else self.rho_)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by rho; a Gaussian of no larger rho is one of the mechanisms bounded."""
        if isinstance(other, ZeroConcentrated):
            return self.rho_ >= other.rho_
        return isinstance(other, Gaussian) and self.rho_ >= other.rho() * (1 + 4 * UNIT)


def _shift(value: float) -> float:
    return nonnegative("StretchedShift.shift", value)


def _stretch(value: float) -> float:
    return nonnegative("StretchedShift.stretch", value)


_SHARES = np.concatenate([[math.inf], np.geomspace(1e3, 1e-3, 61)])
"""Values of ``k - 1`` at which `StretchedShift` is evaluated; each proves a bound."""


@frozen(slots=False, cache_hash=True)
class StretchedShift(_CurveAlone):
    """Two steps in a row: one of zCDP, and one of pure differential privacy.

    The laws P and R have a law Q between them, both ways, such that one of the two steps is
    ``stretch``-zCDP and the other ``shift``-DP, the first in front: noise that is stretched and
    then shifted. For every ``k > 1``

    ``D_a(P || R) <= k a/(k a - 1) D_{(k a - 1)/(k - 1)}(P || Q) + D_{k a}(Q || R)
    <= stretch a k / (k - 1) + min(shift, D_{k a})``,

    ``D_{k a}`` that of randomized response. At the best k it is at most ``a`` times the square of
    the sum of both roots, as zCDP; as k grows, ``stretch a + shift``: at large orders, which small
    deltas read, a quarter of that where both parts are equal.

    Parameters
    ----------
    shift
        The pure epsilon, in nats.
    stretch
        The rho of the other step.

    References
    ----------
    Bun and Steinke 2016, Lemma 5.2 (the inequality) and Prop. 1.9 (groups).

    Examples
    --------
    >>> loss = StretchedShift(shift=0.1, stretch=0.005)
    >>> round(loss.rho(), 6), loss.renyi(np.array([2.0, 40.0])).round(4)
    (0.02, array([0.0396, 0.3   ]))
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "a zCDP and a pure step: Bun & Steinke 2016, Lemma 5.2; Canonne, Kamath & Steinke 2020, "
        "Prop. 12"
    )

    shift: float = field(converter=_shift)
    stretch: float = field(converter=_stretch)

    def rho(self) -> float:
        """Return the square of the sum of both steps' roots."""
        root = self.shift / math.sqrt(2) + math.sqrt(self.stretch)
        return up(root * root, 16)  # infinite where ** would raise

    def renyi(self, orders: Array) -> Array:
        """Return the least bound over a grid of k, and over all k as zCDP."""
        wanted = np.asarray(orders, dtype=np.float64)
        if self._is_zero():
            return np.zeros_like(wanted)
        best = up(wanted * self.rho())
        with np.errstate(over="ignore", invalid="ignore"):
            for more in _SHARES:
                if math.isinf(more):
                    value = wanted * self.stretch + self.shift
                else:
                    pure = pure_to_renyi(self.shift, wanted * (1 + more))
                    value = wanted * self.stretch * ((1 + more) / more) + pure
                best = np.fmin(best, up(value, 16))
        return np.asarray(best)

    def _is_zero(self) -> bool:
        return self.shift == 0 and self.stretch == 0

    def grouped(self, size: int) -> StretchedShift | ZeroConcentrated:
        """Return ``k^2 rho``-zCDP for k units."""
        k = integer("group size", size)
        return self if k == 1 else ZeroConcentrated(self.rho()).grouped(k)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by both parts."""
        if not isinstance(other, StretchedShift):
            return False
        return self.shift >= other.shift and self.stretch >= other.stretch
