"""Losses of which only Renyi divergences are known: at some orders, or as one line through 0."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.errors import DomainError, InapplicableError, nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.losses.derived_pair import proven_pair
from accountants.losses.gaussian import Gaussian
from accountants.notions.renyi import renyi_log_delta
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, up


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


class _Curve(PrivacyLoss):
    """What follows from a Renyi curve: a profile, and a pair that bounds it."""

    def profile(self, epsilon: float) -> Bounds:
        """Return what the best order proves (Canonne, Kamath and Steinke 2020, Prop. 12)."""
        if epsilon < 0:  # h(1/t) = 1 - 1/t + h(t)/t
            other = self.profile(-epsilon).upper
            upper = up(-math.expm1(epsilon) + math.exp(epsilon) * other, 16)
            return Bounds(0.0, min(1.0, upper))
        # any order proves a delta: the best that the search found
        log_delta = renyi_log_delta(self._known, epsilon)
        delta = up(math.exp(log_delta), 4 + 2 * abs(log_delta)) + 1e-323
        return Bounds(0.0, 0.0 if self._nothing() else min(1.0, delta))

    def pair(self) -> Pair | None:
        """Return a pair that bounds every mechanism with this curve."""
        return self._pair

    @cached_property
    def _pair(self) -> Pair | None:
        if self._nothing():
            return Atoms((0.0,), (1.0,), (1.0,), exact=False)
        return proven_pair(self)

    def pure(self) -> float | None:
        """Return 0 for a curve of zeros; otherwise there is no pure epsilon."""
        return 0.0 if self._nothing() else None

    def _known(self, orders: Array) -> Array:
        known = self.renyi(orders)
        assert known is not None
        return known

    def _nothing(self) -> bool:
        """Whether some divergence is 0: then the two laws are the same."""
        raise NotImplementedError


@frozen(slots=False, cache_hash=True)
class RenyiCurve(_Curve):
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
        if self._nothing():
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

    def _nothing(self) -> bool:
        return min(self.divergences) == 0

    def grouped(self, size: int) -> RenyiCurve:
        """Return the curve for a group, by Mironov's triangle inequality, doubled until enough.

        ``D_a(P, R) <= (a - 1/2)/(a - 1) D_{2a}(P, Q) + D_{2a-1}(Q, R)``, so each doubling of
        the group halves the orders.
        """
        k, curve = whole("group size", size), self
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
        if isinstance(other, RenyiCurve) and self.orders == other.orders:
            return all(a >= b for a, b in zip(self.divergences, other.divergences, strict=True))
        return self == other


def _turns_right(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])


@frozen(repr=False, slots=False, cache_hash=True)
class ZeroConcentrated(_Curve):
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

    def _nothing(self) -> bool:
        return self.rho_ == 0

    def grouped(self, size: int) -> ZeroConcentrated:
        """Return ``k^2 rho`` (Bun and Steinke 2016, Prop. 1.9)."""
        k = whole("group size", size)
        return ZeroConcentrated(up(self.rho_ * k * k, 4) if k > 1 else self.rho_)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by rho; a Gaussian of no larger rho is one of the mechanisms bounded."""
        if isinstance(other, ZeroConcentrated):
            return self.rho_ >= other.rho_
        return isinstance(other, Gaussian) and self.rho_ >= other.rho() * (1 + 4 * UNIT)
