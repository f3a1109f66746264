"""The losses of amplification by sampling: Poisson, of a fixed size, and under replace-one.

First the pair of a Poisson sample: ``(1-q) Q + q P`` against ``Q``, of the body's pair.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.definitions import LARGEST_MU
from accountants.errors import DomainError, InapplicableError, integer, probability
from accountants.finite import FinitePair
from accountants.loss import PrivacyLoss, _profile, mirrored
from accountants.losses.composite import Composite
from accountants.losses.cut_sample import cut_sample
from accountants.losses.gaussian import GaussianPair
from accountants.losses.given import PureBound
from accountants.losses.laplace import LaplacePair
from accountants.losses.mixture import group_of_sample
from accountants.losses.pure import ResponsePair
from accountants.losses.sampled_gaussian import (
    sampled_gaussian_curve,
    sampled_gaussian_decay,
    sampled_gaussian_log_moment,
)
from accountants.losses.sampled_gaussians import (
    sampled_gaussian_falls,
    sampled_gaussian_log_moments,
)
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    ceiling,
    down,
    enclosure,
    expm1,
    flooring,
    gauss_rule,
    log1p,
    up,
)
from accountants.pair import (
    Half,
    LooseBound,
    Pair,
    Symmetric,
    convexity,
    decays_by_values,
    symmetric_decay,
    symmetric_log_moment,
)


def sampled_pair(body: Pair, rate: float) -> Pair:
    """Return ``(1-q) Q + q P`` against ``Q``; finitely many losses stay finitely many."""
    if rate == 0 or body.top() <= 0 <= body.bottom():
        return GaussianPair(0.0)
    if rate == 1:
        return body
    if isinstance(body, GaussianPair) and body.mu < 1e-100:
        return LooseBound(body)  # sampling costs no more than none
    if isinstance(body, GaussianPair) and body.mu <= 1e3:
        return SampledGaussianPair(body, rate)
    if isinstance(body, LaplacePair) and 1e-6 <= body.epsilon <= 50:
        return SampledLaplacePair(body, rate)
    if isinstance(body, ResponsePair) and body.top() < 600:
        body = body.atoms()
    if isinstance(body, FinitePair) and body.top() < 600 and not body.loss_error:
        return _sampled_atoms(body, rate)
    return SampledPair(body, rate)


def _sampled_atoms(body: FinitePair, rate: float) -> Pair:
    losses = [_mixture(loss, rate) for loss in body.losses]
    if any(low >= high for low, high in pairwise(losses)):
        return SampledPair(body, rate)  # too close to tell apart
    # P' = (1 - q) Q + q P, and the loss log(1 - q + q e^l)
    p = [(1 - rate) * b + rate * a for a, b in zip(body.p, body.q, strict=True)]
    error = body.error + 8 * UNIT * (1 + max(abs(body.bottom()), abs(body.top())))
    return FinitePair(losses, p, body.q, error, body.tight, loss_error=16 * UNIT + body.loss_error)


@frozen
class SampledPair(Pair):
    """``(1-q) Q + q P`` against ``Q``: ``e^L' = 1 - q + q e^L``.

    ``L' > l`` exactly where ``L > log(1 + (e^l - 1) / q)``. That number, computed, is the right
    one for a loss within `accountants.pair.slip` of l.

    References
    ----------
    Zhu, Dong and Wang 2022, Thm 11.
    """

    body: Pair
    rate: float

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the body's tails at ``log(1 + (e^l - 1)/q)``, mixed."""
        return self._mixed(*self.body.above(self._inside(loss)))

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the body's tails at ``log(1 + (e^l - 1)/q)``, mixed."""
        return self._mixed(*self.body.below(self._inside(loss)))

    def _mixed(self, p: Array, q: Array) -> tuple[Array, Array]:
        return (1 - self.rate) * q + self.rate * p, q

    def _inside(self, loss: Array) -> Array:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            ratio = np.expm1(np.minimum(loss, 600)) / self.rate
            inner = np.where(ratio > -1, np.log1p(np.maximum(ratio, -1.0)), -np.inf)
            beyond = np.maximum(loss, 600) - math.log(self.rate)
        return np.where((loss < 600) & (ratio < np.inf), inner, beyond)

    def tail_error(self) -> float:
        """Return the body's and a few units."""
        return self.body.tail_error() + 8 * UNIT

    def is_tight(self) -> bool:
        """As the body."""
        return self.body.is_tight()

    def top(self) -> float:
        """Return ``log(1 + q (e^top - 1))``."""
        return amplified(self.body.top(), self.rate)

    def bottom(self) -> float:
        """Return ``log(1 - q + q e^bottom)``."""
        return down(_mixture(self.body.bottom(), self.rate), 16)

    def epsilon_next_to(self, delta: float) -> Bounds | None:
        """Return epsilon of one step at a delta as near to q as floats are; None of other bodies.

        ``delta(eps) = q (1 - w(l))``, ``eps = log(1 + q (e^l - 1))``, where the body's profile at l
        lacks w of 1: of Laplace noise of loss e it is ``e^{(l - e) / 2}``, of Gaussian noise
        ``Phi(l / mu - mu / 2) + e^l Phi(-l / mu - mu / 2)``. The share ``1 - delta / q`` is an
        exact rational, rounded once. For the addition of a unit delta is no larger.
        """
        share = 1 - Fraction(delta) / Fraction(self.rate)
        if share <= 0:  # delta(0) is q times a total variation distance
            return Bounds(0.0, 0.0)
        least, most = flooring(share), ceiling(share)
        if not least > 1e-200 or not isinstance(self.body, LaplacePair | GaussianPair):
            return None
        if isinstance(self.body, LaplacePair):
            e = self.body.epsilon
            slack = 8 * UNIT * (1 + e - 2 * math.log(least))
            low = max(0.0, e + 2 * math.log(least) - slack)
            high = max(0.0, min(e, e + 2 * math.log(most) + slack))
        else:
            mu = self.body.mu
            if mu > 1e3:  # the share, of 1e-200 and more, is at a loss that is no float's
                return None
            # of the tails, and of what the rounding of their arguments, below 40 + mu, moves them
            wrong, far = 1e-11 + 1e-12 * mu * mu, mu * mu / 2 + 40 * mu

            def half(loss: Array) -> tuple[Array, Array]:
                """Return bounds of the share over twice the lack, which falls; at most 1."""
                lack = special.ndtr(loss / mu - mu / 2)
                lack = lack + np.exp(loss + special.log_ndtr(-loss / mu - mu / 2))
                ends = least / (lack * (1 + wrong) + 1e-300), most / (lack * (1 - wrong) + 1e-300)
                return np.minimum(1.0, ends[0] / 2), np.minimum(1.0, ends[1] / 2)

            low, high = enclosure(half, 0.5, 0.0, far)  # at the far end nothing is left
        if not high <= LARGEST_LOSS:
            return None
        value, error = _amplified_losses(np.array([low, high]), self.rate)
        lower, upper = float(value[0] - error[0]), float(value[1] + error[1])
        return Bounds(max(0.0, down(lower)), max(0.0, up(upper)))


@frozen
class SampledGaussianPair(SampledPair):
    """The sampled Gaussian, with moments by quadrature (`accountants.losses.sampled_gaussian`)."""

    body: GaussianPair
    rate: float

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{z+1}``."""
        return sampled_gaussian_log_moment(self.body.mu, self.rate, z + 1)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum, of all pairs at once."""
        return sampled_gaussian_log_moments(*_columns(spends), z + 1)

    @classmethod
    def mirrored_moments(
        cls, spends: Sequence[tuple[Pair, int]], z: Complex
    ) -> tuple[Complex, Array]:
        """Return the sum of ``log E_Q R^{-z}``."""
        return sampled_gaussian_log_moments(*_columns(spends), -z)

    @classmethod
    def quick_decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the bounds from uniform parts alone."""
        return sampled_gaussian_falls(*_columns(spends), tilt + 1, beyond)

    @classmethod
    def quick_mirrored_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array
    ) -> Array:
        """Return the bounds at ``R^-tilt``."""
        return sampled_gaussian_falls(*_columns(spends), -tilt, beyond)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bounds from the density of the loss."""
        return sampled_gaussian_decay(self.body.mu, self.rate, tilt + 1, beyond)

    def without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the outcomes up to a point (`accountants.losses.cut_sample`)."""
        found = cut_sample(self.body.mu, self.rate, lost)
        return (self, 0.0) if found is None else found

    def mirrored_without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the outcomes up to a point, of the reversed pair."""
        found = cut_sample(self.body.mu, self.rate, lost, mirrored=True)
        return (self.reversed(), 0.0) if found is None else found

    def mirrored_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{-z}``: next to z = 0 the error is relative to z."""
        return sampled_gaussian_log_moment(self.body.mu, self.rate, -z)

    def mirrored_decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bounds at ``R^-tilt``."""
        return sampled_gaussian_decay(self.body.mu, self.rate, -tilt, beyond)


def _columns(spends: Sequence[tuple[Pair, int]]) -> tuple[Array, Array, Array]:
    """Return mu, q and the number of times of each sampled Gaussian."""
    some = [
        (pair.body.mu, pair.rate, times)
        for pair, times in spends
        if isinstance(pair, SampledGaussianPair)
    ]
    mu, rate, times = np.array(some, dtype=np.float64).reshape(-1, 3).T
    return mu, rate, times


@frozen
class SampledLaplacePair(SampledPair):
    """The sampled Laplace, with moments by quadrature.

    Under Q the body's loss l is -e with probability 1/2, e with ``e^-e / 2``, and between them it
    has the density ``e^{-(l + e)/2} / 4``. So with ``R = 1 - q + q e^l``, whose logarithm is the
    loss, ``E_P e^{zL} = E_Q R^{z+1}`` is two terms and an integral over [-e, e].

    Panels of 24 Gauss points: on the ellipse around a panel of half-width w, whose semi-axes are
    2.125 w and ``y = 1.875 w``, ``|R|`` lies between ``1 - q + q r cos y`` at the left end and
    ``1 - q + q r`` at the right one, ``r = e^{Re l}``, and ``|arg R| <= y q r / (1 - q + q r cos
    y)``, which rises in r. The rule is then off by at most ``8 M w 4^-48 / (1 - 1/4)``, M the bound
    of the integrand (as in `accountants.pair`).

    As t grows the two terms swing and the integral falls: as a density of the loss it is
    proportional to ``e^{-3l/2} R^{a+1}``, whose logarithm is convex in ``log R``, so that it varies
    by at most the sum of its ends, and ``|int g e^{itx} dx| <= 2 (g(first) + g(last)) / t``.
    """

    body: LaplacePair
    rate: float

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{z+1}``."""
        return _sampled_laplace_moment(self.body.epsilon, self.rate, z + 1)

    def mirrored_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log E_Q R^{-z}``."""
        return _sampled_laplace_moment(self.body.epsilon, self.rate, -z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bound from the two terms and what is left of the integral."""
        return _sampled_laplace_decay(self.body.epsilon, self.rate, tilt + 1, beyond)

    def mirrored_decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bound at ``R^-tilt``."""
        return _sampled_laplace_decay(self.body.epsilon, self.rate, -tilt, beyond)

    @classmethod
    def decays_between(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
    ) -> Array:
        """Return the bound by values, or beyond; of few beyond alone, as values take long."""
        if sum(times for _, times in spends) < _MANY:
            return cls.decays(spends, tilt, starts)
        return decays_by_values(spends, tilt, starts, stops)

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return a guess from the range of the losses: so wide, so many panels.

        Most points of a line lie near the axis, where a moment takes few.
        """
        sizes = [pair.body.epsilon for pair, _ in spends if isinstance(pair, SampledLaplacePair)]
        return math.ceil(sum(64 * max(1.0, size) for size in sizes))


_MANY = 10_000
"""Of fewer samples with Laplace noise nothing is gained by values."""

_PANELS = 128
"""No moment takes more panels than this."""


def _sampled_laplace_moment(e: float, q: float, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E_Q R^s`` and bounds of its error; ``0 < q < 1``."""
    points = np.ravel(s)
    value, error = np.zeros(len(points), dtype=np.complex128), np.full(len(points), np.inf)
    share = q * math.exp(e) / (1 - q + q * math.exp(e))
    # within a panel the integrand may grow by e^16 at most, in either direction
    widths = 8 / (share * np.maximum(np.abs(points), 1.0))
    counts = 2.0 ** np.ceil(np.log2(np.maximum(1.0, e / np.minimum(widths, 0.5))))
    for count in np.unique(counts[counts <= _PANELS]).tolist():
        some = np.flatnonzero(counts == count)
        for part in np.array_split(some, -(-len(some) * int(count) * 24 // 2**18)):
            value[part], error[part] = _laplace_panels(e, q, points[part], int(count))
    return value.reshape(np.shape(s)), error.reshape(np.shape(s))


def _laplace_panels(e: float, q: float, s: Complex, count: int) -> tuple[Complex, Array]:
    """Return the log-moments by so many panels."""
    w = e / count
    centres = w * (2 * np.arange(count, dtype=np.float64) + 1) - e
    nodes, weights = gauss_rule(24)
    body = np.concatenate([[-e, e], (centres[:, None] + w * nodes).ravel()])
    masses = np.exp(-(body[2:] + e) / 2) / 4 * np.tile(weights * w, count)
    masses = np.concatenate([[0.5, math.exp(-e) / 2], masses])
    mixed = (1 - q) + q * np.exp(body)
    loss = np.log1p(q * np.expm1(body)) if q < 0.5 else np.log(mixed)
    exponents = s[:, None] * loss
    with np.errstate(over="ignore", invalid="ignore"):
        terms, sizes = expm1(exponents), np.exp(exponents.real)
        moment = (terms * masses).sum(axis=1)
        # each loss is within 16 units of itself, and of 1 where q is large; the body's is off by
        # units of e, which reach it by the share of q e^l in R; each mass is within 64 + 8 e units
        slip = 16 * UNIT * (np.abs(loss) + (0.0 if q < 0.5 else 1.0))
        slip = slip + 8 * UNIT * (1 + e) * q * np.exp(body) / mixed
        moved = 2 * np.abs(s)[:, None] * slip * sizes + (160 + 8 * e) * UNIT * np.abs(terms)
        # a sum by halves of blocks of 128
        wrong = ((moved + 96 * UNIT * np.abs(terms)) * masses).sum(axis=1)
        rule = _laplace_remainder(e, q, s, centres, w)
        value, error = log1p(moment, (wrong + rule) * (1 + 1e-9))
    good = np.isfinite(value) & np.isfinite(error) & ((exponents.real).max(axis=1) < 300)
    return np.where(good, value, 0.0), np.where(good, error, np.inf)


def _laplace_remainder(e: float, q: float, s: Complex, centres: Array, w: float) -> Array:
    """Return the bound of the rule's error, all panels together."""
    y = 1.875 * w
    least, most = np.exp(centres - 2.125 * w), np.exp(centres + 2.125 * w)
    low = np.log((1 - q) + q * least * math.cos(y))
    high = np.log((1 - q) + q * most)
    angle = y * np.minimum(1.0, q * most / ((1 - q) + q * most * math.cos(y)))
    a, turn = s.real[:, None], np.abs(s.imag)[:, None]
    grown = np.maximum(a * low, a * high) + turn * angle
    # of the density and of R^s - 1
    log_most = np.logaddexp(grown, 0.0) - (centres - 2.125 * w + e) / 2 - math.log(4)
    # the square root's modulus is at most that at the real part; e^{1e-6} covers all rounding
    log_rule = math.log(8 * w / (1 - 1 / 4)) - 48 * math.log(4) + 1e-6
    return np.asarray(np.exp(np.minimum(log_most + log_rule, 700.0)).sum(axis=1), dtype=np.float64)


def _sampled_laplace_decay(e: float, q: float, a: float, beyond: Array) -> Array:
    """Return bounds of ``log |E R^{a + it'} / E R^a|`` for all ``t' >= t``."""
    value, error = _sampled_laplace_moment(e, q, np.array([complex(a, 0.0)]))
    if not error[0] < 0.1:
        return np.zeros_like(beyond)
    least = math.exp(float(value[0].real) - float(error[0])) * (1 - 64 * UNIT)
    first, last = (1 - q) + q * math.exp(-e), (1 - q) + q * math.exp(e)
    ends = (first**a + math.exp(-e) * last**a) / 2
    # the density of the loss at its ends: e^{-(l + e)/2} / 4 R^a dl / dlog R
    steep = first ** (a + 1) / (q * math.exp(-e)) + math.exp(-e) * last ** (a + 1) / (
        q * math.exp(e)
    )
    swung = (ends + 2 * steep / 4 / beyond) * (1 + 1e-12 * (1 + abs(a) * e))
    return np.asarray(np.minimum(0.0, np.log(swung / least)), dtype=np.float64)


def _mixture(loss: float, rate: float) -> float:
    """Return ``log(1 - q + q e^loss)``."""
    moved = rate * math.expm1(loss)
    # near -1 the sum 1 + q (e^loss - 1) cancels; (1 - q) + q e^loss is a sum of positive numbers
    return math.log1p(moved) if moved > -0.5 else math.log((1 - rate) + rate * math.exp(loss))


# -----------------------------------------------------------------------------
# Advanced joint convexity: what mixing both laws with a common part leaves of their loss.
#
# Let ``P = (1-q) B + q A`` and ``Q = (1-q) B + q A'``, where the hockey-stick of A against A', of A
# against B, and of both in the other order is at most ``delta(t) = E (r - t)_+``, t >= 1. With
# ``t' = 1 + q (t - 1)``
#
# ``H_t'(P, Q) = q H_t(A, (1-b) B + b A') <= q delta(t)``, ``b = t'/t``
#
# (Balle, Barthe and Gaboardi 2018, Thm 2), and below 1 ``H_t'(P, Q) = 1 - t' + t' H_{1/t'}(Q, P)``.
# These bounds together are the profile of one pair, which therefore dominates (Zhu, Dong and
# Wang 2022, Prop. 30): its slope gives the tails. For ``e^l = 1 + q (e^l~ - 1)``, l >= 0,
#
# ``Q'(L' > l) = Q(L > l~)`` and ``P'(L' > l) = (1-q) Q(L > l~) + q P(L > l~)``;
#
# the pair is symmetric, and what is left lies at 0. No mechanism need attain its compositions,
# since B is taken as far from A as A' is from A and, for the other sign, as far from A' as A.
#
# A failure f of the body enters with its sampling only: ``q (f + (1-f) delta)`` is at most
# ``q f + (1 - q f) q delta``.


LARGEST_LOSS = 600.0
"""A pure epsilon above this is left as it is: its exponential would overflow."""


def checked_body(value: Composite) -> Composite:
    """Return ``value``, or raise `DomainError` unless it is a `Composite`."""
    if not isinstance(value, Composite):
        raise DomainError(f"what is sampled must be a Composite of its losses, got {value!r}")
    return value


def body_pair(body: Composite) -> Pair | None:
    """Return a pair that dominates the body beside its delta floor, where one is known.

    Gaussian releases are one Gaussian vector; what has a pure epsilon is a post-processing of
    randomized response.
    """
    single = body.single()
    if single is not None:
        return single.pair()
    mu, eps = body.gaussian_mu(), body.pure()
    if mu is not None:
        return GaussianPair(mu)
    return None if eps is None else ResponsePair(eps)


def of_loose_pair(body: Composite) -> Composite | None:
    """Return the body unless its pair is as good as its losses one by one."""
    single = body.single()
    pair = None if single is None else single.pair()
    tight = body.gaussian_mu() is not None or (pair is not None and pair.is_tight())
    return None if tight else body


class _Subsampled(PrivacyLoss):
    """Base of the losses of a body on a random sample of the units."""

    __slots__ = ()

    body: Composite

    @property
    def rate(self) -> float:
        """Return q, with which a unit is in the sample, rounded up."""
        raise NotImplementedError

    def mixture(self) -> tuple[Composite, float]:
        """Return the loss on a sample that holds the unit, by default the body's, and q."""
        return self.body, self.rate

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and rate (the mixture, and each bound of it, is monotone in both)."""
        # rates that are rounded up are so in the same way
        return (
            isinstance(other, type(self))
            and self.rate >= other.rate
            and self.body.dominates(other.body)
        )

    def within(self) -> Composite | None:
        """Return the body on a sample that holds the unit, where its pair may be a loose one."""
        return of_loose_pair(self.mixture()[0])

    def delta_floor(self) -> float:
        """Return ``q`` times the body's delta floor."""
        body, rate = self.mixture()
        delta_floor = body.delta_floor()
        if rate == 0 or delta_floor == 0:  # exactly none: delta 0 stays within reach
            return 0.0
        return min(1.0, up(rate * delta_floor, 2))

    def pure(self) -> float | None:
        """Return ``log(1 + q (e^eps - 1))``."""
        body, rate = self.mixture()
        eps = body.pure()
        # Balle, Barthe and Gaboardi 2018, Thms 2 and 8 with delta = 0: t' = 1 + q (e^eps - 1)
        return 0.0 if rate == 0 else None if eps is None else amplified(eps, rate)


class Mixed(_Subsampled):
    """Base of the losses that advanced joint convexity bounds.

    `mixture` has the loss of A against A', and of either against B.
    """

    __slots__ = ()

    def within(self) -> Composite | None:
        """Return it also where it has no symmetric pair."""
        return super().within() or (self.mixture()[0] if self.pair() is None else None)

    def pair(self) -> Pair | None:
        """Return the pair of the section above, if the body has a symmetric one."""
        body, rate = self.mixture()
        inner = body_pair(body)
        if inner is None or inner.reversed() != inner:
            return None
        if rate == 1:
            return inner if body.single() is not None else LooseBound(inner)
        return mixed(inner, rate)

    def renyi(self, orders: Array) -> Array | None:
        """Return the pair's curve, or the body's by joint convexity where that is less."""
        body, rate = self.mixture()
        unsampled = body.renyi(orders)
        if unsampled is None or rate in (0, 1):
            return np.zeros_like(orders) if rate == 0 else unsampled
        curve = np.minimum(unsampled, convexity(unsampled, orders, rate))
        own = super().renyi(orders)
        return curve if own is None else np.minimum(curve, own)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return ``q`` times the body's profile at ``log(1 + (e^epsilon - 1)/q)``."""
        if epsilon < 0:
            opposite = self.profile(-epsilon)
            return None if opposite is None else mirrored(lambda _: opposite, epsilon)
        body, rate = self.mixture()
        if rate == 0:
            return Bounds(0.0, 0.0)
        inside = float(_loss_inside(np.array([epsilon]), rate)[0])
        # delta falls in epsilon: each end at the inside epsilon rounded to its own side
        low, high = body.profile(up(inside, 16)), body.profile(max(0.0, down(inside, 16)))
        if low is None or high is None:
            bounds = super().profile(epsilon)
            return None if bounds is None else Bounds(0.0, bounds.upper)
        lower = max(0.0, down(rate * low.lower, 64) - 1e-300)
        return Bounds(lower, min(1.0, up(rate * high.upper, 64)))


def amplified(eps: float, rate: float) -> float:
    """Return ``log(1 + q (e^eps - 1))``, rounded up."""
    if eps > LARGEST_LOSS:
        return eps
    return min(eps, up(math.log1p(rate * math.expm1(eps)), 16))


def _loss_inside(loss: Array, rate: float) -> Array:
    """Return ``log(1 + (e^loss - 1)/q)`` of losses that are not negative."""
    with np.errstate(over="ignore"):
        ratio = np.expm1(np.minimum(loss, 600.0)) / rate
    near = np.log1p(np.maximum(np.where(ratio < np.inf, ratio, 0.0), 0.0))
    # where the ratio is large: log(e^loss - 1) - log q, to which 1 adds nothing
    far = np.log(np.maximum(np.expm1(np.minimum(loss, 600.0)), 1e-300))
    far = np.where(loss < 600, far, loss) - math.log(rate)
    return np.where((loss < 600) & (ratio < 1e300), near, far)


def mixed(inner: Pair, rate: float) -> Pair:
    """Return the dominating pair of a symmetric pair, for rates below 1."""
    if rate == 0 or inner.top() == 0:
        return FinitePair((0.0,), (1.0,), (1.0,), tight=False)
    if isinstance(inner, ResponsePair) and inner.epsilon <= LARGEST_LOSS:
        return _mixed_response(inner.epsilon, rate)
    return MixedPair(inner, rate)


def _mixed_response(eps: float, rate: float) -> FinitePair:
    """Return three atoms: of randomized response the positive loss has mass 1/(1 + e^eps)."""
    less = math.exp(-eps) / (1 + math.exp(-eps))
    loss = amplified(eps, rate)
    more = less * (1 + rate * math.expm1(eps))
    # 1 - less - more = (1 - q) (1 - e^-eps) / (1 + e^-eps)
    # the mass at loss 0, written without cancellation
    middle = (1 - rate) * -math.expm1(-eps) / (1 + math.exp(-eps))
    if loss == 0:
        return FinitePair((0.0,), (1.0,), (1.0,), tight=False)
    masses = (less, middle, more)
    error = (64 + 4 * eps) * UNIT
    return FinitePair((-loss, 0.0, loss), masses, masses[::-1], error, tight=False, multiple=loss)


@frozen
class MixedPair(Symmetric):
    """The pair of advanced joint convexity; ``0 < q < 1``, ``inner`` symmetric."""

    inner: Pair = field()
    rate: float

    def tail_error(self) -> float:
        """Return the inner pair's, and that of the sum of its tails."""
        return self.inner.tail_error() * 2 + 64 * UNIT

    def is_tight(self) -> bool:
        """No mechanism need attain its compositions."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the slopes' tails; a negative loss has those of its mirror image, below.

        The inner loss is rounded down, so that no atom is lost.
        """
        q = self.rate
        # rounded down: a tail at a smaller loss is larger, which is outward
        inside = _loss_inside(np.abs(loss), q) * (1 - 16 * UNIT)
        p_above, q_above = self.inner.above(inside)
        p_below, q_below = self.inner.below(inside)
        # P'(L' > l) = (1-q) Q(L > l~) + q P(L > l~): the slope of the bounding profile
        p = np.where(loss >= 0, (1 - q) * q_above + q * p_above, q_below)
        return p, np.where(loss >= 0, q_above, (1 - q) * q_below + q * p_below)

    def top(self) -> float:
        """Return ``log(1 + q (e^top - 1))`` of the inner pair's top."""
        return amplified(self.inner.top(), self.rate)

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return it by quadrature, for a Gaussian or a Laplace body."""
        half = self._half()
        return None if half is None else symmetric_log_moment(half, z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return what values and uniform parts give, or the bound of an integral by parts.

        The latter is of the densities, beside the atoms' share.
        With ``h = e^{c w} f / w'`` the integral of ``e^{(c + it) w} f`` is at most
        ``(h(0) + TV h) / t <= 5 max h / t``: the slope of log h has at most three zeros, since
        ``w'`` is a logistic curve in s, and what is not a multiple of it is a line.
        """
        half, z = self._half(), np.array([tilt], dtype=np.complex128)
        log_moment = self.log_moment(z)
        if half is None or log_moment is None or not np.isfinite(log_moment[1][0]):
            return np.zeros_like(beyond)
        value, error = float(log_moment[0][0].real), float(log_moment[1][0])
        (p_above,), (p_below,) = self.above(np.zeros(1))[0], self.below(np.zeros(1))[0]
        log_sums = [math.log(max(1 - p_above - p_below, 0.0) + 2 * self.tail_error() + 1e-15)]
        log_parts = []
        for power in (1 + tilt, -tilt):
            log_parts.append(math.log(5) + half.log_peak(power))
            if half.atom() > 0:
                log_sums.append(math.log(half.atom()) + power * self.top())
        fixed, falling = np.logaddexp.reduce(log_sums), np.logaddexp.reduce(log_parts)
        # triangle inequality: the atoms' moduli, and an integral by parts of the densities that
        # falls as 1 / t
        total = np.logaddexp(fixed, falling - np.log(beyond)) + 1e-9
        decay = symmetric_decay(self, half, tilt, beyond)
        return np.asarray(np.minimum(decay, total - value + error))

    def _half(self) -> _Gaussian | _Laplace | None:
        if isinstance(self.inner, GaussianPair) and _LEAST_BODY < self.inner.mu <= LARGEST_MU:
            return _Gaussian(self.inner.mu, self.rate)
        if isinstance(self.inner, LaplacePair) and _LEAST_BODY < self.inner.epsilon <= LARGEST_LOSS:
            return _Laplace(self.inner.epsilon, self.rate)
        return None


_LEAST_BODY = 1e-290
"""Panels of a body that loses less than this have no width."""


def _log_peak(power: float, w: Array, log_rest: Array) -> float:
    """Return a bound of the largest ``power w + log_rest``, whose second part falls in s."""
    at = w[1:] if power >= 0 else w[:-1]
    most: float = (power * at + log_rest[:-1]).max()
    return most + 1e-9 * (1 + abs(most))


@frozen
class _Laplace(Half):
    """Inner losses s in (0, eps) of a Laplace body, of density ``e^{-(s + eps)/2} / 4`` under Q."""

    epsilon: float
    rate: float

    def scale(self) -> float:
        return 1.0

    def end(self, power: float) -> float:
        return self.epsilon

    def loss(self, s: Array) -> tuple[Array, Array]:
        return _amplified_losses(s, self.rate)

    def log_density(self, s: Array) -> Array:
        return -(s + self.epsilon) / 2 - math.log(4)

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        return -(low + self.epsilon) / 2 - math.log(4)

    def atom(self) -> float:
        return math.exp(-self.epsilon) / 2

    def slope(self, low: Array, high: Array) -> Array:
        return _amplified_slope(high, self.rate)

    def log_peak(self, power: float) -> float:
        """Return a bound of the largest ``log(e^{power w} f / w')``, ``w' = q e^{s - w}``."""
        s = np.linspace(0.0, self.epsilon, 257)
        rest = self.log_density(s) - s - math.log(self.rate)
        return _log_peak(power + 1, self.loss(s)[0], rest)


@frozen
class _Gaussian(Half):
    """Outcomes ``mu/2 + s`` of a Gaussian body under N(0, 1); the inner loss is ``mu s``."""

    mu: float
    rate: float

    def scale(self) -> float:
        return self.mu

    def end(self, power: float) -> float:
        return (power - 0.5) * self.mu + 10.0

    def log_tail(self, power: Array, end: float) -> Array:
        """There ``1 - q + q r <= r (q + (1-q)/r_end)``, and r^a moves the mean by ``a mu``."""
        mu, q = self.mu, self.rate
        # R <= r (q + (1-q) / r_end) beyond the end
        log_share = math.log(q + (1 - q) * math.exp(-mu * end))
        beyond = special.log_ndtr(-(mu / 2 + end - power * mu))
        tail: Array = power * log_share + power * (power - 1) * mu * mu / 2 + beyond
        return tail

    def loss(self, s: Array) -> tuple[Array, Array]:
        return _amplified_losses(self.mu * s, self.rate)

    def log_density(self, s: Array) -> Array:
        x = self.mu / 2 + s
        return -x * x / 2 - math.log(2 * math.pi) / 2

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        least = np.maximum(0.0, self.mu / 2 + low)
        return imaginary * imaginary / 2 - least * least / 2

    def slope(self, low: Array, high: Array) -> Array:
        return np.asarray(self.mu * _amplified_slope(self.mu * high, self.rate), dtype=np.float64)

    def log_peak(self, power: float) -> float:
        """Return a bound of the largest ``log(e^{power w} f / w')``, ``w' = q mu e^{mu s - w}``.

        It is not beyond ``s = (power + 1) mu``, where its slope is negative.
        """
        mu = self.mu
        s = np.linspace(0.0, max(power + 1, 1.0) * mu + 1, 1025)
        rest = self.log_density(s) - mu * s - math.log(self.rate * mu)
        return _log_peak(power + 1, self.loss(s)[0], rest)


def _amplified_slope(loss: Array, rate: float) -> Array:
    """Return the slope of ``log(1 + q (e^loss - 1))``, which rises, rounded up."""
    rise = np.exp(math.log(rate) + loss - _amplified_losses(loss, rate)[0])
    return np.asarray(np.minimum(1.0, rise * (1 + 1e-9)), dtype=np.float64)


def _amplified_losses(loss: Array, rate: float) -> tuple[Array, Array]:
    """Return ``log(1 + q (e^loss - 1))``, and a bound of its error."""
    near = np.log1p(rate * np.expm1(np.minimum(loss, 30.0)))
    far = loss + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, 30.0)))
    value = np.where(loss < 30, near, far)
    size = np.abs(value)
    return value, UNIT * (16 * size + (8 + 4 * np.abs(loss)) * np.minimum(size, 1.0))


# -----------------------------------------------------------------------------
# Amplification by Poisson sampling: the body sees each unit with probability q.
#
# Neighbours differ by one unit that is present or absent (add/remove, zero-out). With P0, P1
# the body's output laws without and with the unit in the sample, the pair is
# ``(1-q) P0 + q P1`` against ``P0``, in either order; let r = P1/P0.
#
# * pure: r in [e^-eps, e^eps], so the ratio is at most ``1 + q (e^eps - 1)`` one way, and
#   ``1 / (1 + q (e^-eps - 1))``, which is smaller, the other (Balle, Barthe and Gaboardi 2018,
#   Thm 8).
# * profile: ``delta'(eps') = q delta(eps)`` with ``eps = log(1 + (e^eps' - 1)/q)``, exactly so for
#   removal (Balle, Barthe and Gaboardi 2018, Thm 8). For addition the hockey-stick is
#   ``w (P0 - e^eps'' P1)_+`` with ``w = 1 - e^eps' (1-q) <= q`` and ``eps'' >= eps``: no larger.
# * Renyi, removal: ``E_P0 (1 - q + q r)^a``; for the Gaussian at every real order, to many
#   digits (`accountants.losses.sampled_gaussian`).
# * Renyi, addition: ``E_P0 (1 - q + q r)^{1-a}``. For the Gaussian the removal is the larger of
#   the two (Mironov, Talwar and Zhang 2019, Thm 5). For any body, ``x^{1-a}`` is convex, so it is
#   at most ``1 - q + q e^{(a-1) D_a}``.
# * a body with a pure epsilon is a post-processing of randomized response, and mixing commutes
#   with post-processing, so the sampled pair of randomized response bounds both directions.


def _sampled_rate(value: float) -> float:
    return probability("Sampled.rate", value)


@frozen(cache_hash=True)
class Sampled(_Subsampled):
    """A body that runs on a Poisson sample of the units.

    Parameters
    ----------
    body
        The body's loss on a unit that is in the sample.
    rate
        The probability q, in [0, 1], with which each unit enters, independently.
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "Poisson sampling: Balle, Barthe & Gaboardi 2018, Thm 8; "
        "Mironov, Talwar & Zhang 2019, Thm 5"
    )

    body: Composite = field(converter=checked_body)
    rate: float = field(converter=_sampled_rate)

    def pair(self) -> Pair | None:
        """Return ``(1-q) Q + q P`` against ``Q``, of the body's pair (Zhu et al. 2022, Thm 11).

        A failure of the body, a point of its own under P and another under Q, leaves the sampled
        pair a failure of q times it: the point under Q then has ``L = log(1 - q)``, within the
        pair's range, and splits into a failure of q times it and a part with ``L = 0``. No
        mechanism attains that.
        """
        body = self.body.pair()
        if body is None or self.rate == 1:
            return body
        pair = sampled_pair(body, self.rate)
        return LooseBound(pair) if self.body.delta_floor() > 0 else pair

    def renyi(self, orders: Array) -> Array | None:
        """Return the least of the bounds of the section above, at each order."""
        if self.rate == 0:
            return np.zeros_like(orders)
        unsampled = self.body.renyi(orders)
        if unsampled is None or self.rate == 1:
            return unsampled
        curve = np.minimum(unsampled, convexity(unsampled, orders, self.rate))
        eps, mu = self.body.pure(), self.body.gaussian_mu()
        if eps is not None:
            curve = np.minimum(curve, _randomized_response(eps, orders, self.rate))
        if mu is not None and 0 < mu <= LARGEST_MU:
            curve = np.minimum(curve, sampled_gaussian_curve(mu, orders, self.rate))
        return curve

    def profile(self, epsilon: float) -> Bounds | None:
        """Return ``q`` times the body's profile at ``log(1 + (e^epsilon - 1)/q)``."""
        if epsilon < 0:
            opposite = self.profile(-epsilon)
            return None if opposite is None else mirrored(lambda _: opposite, epsilon)
        if self.rate == 0:
            return Bounds(0.0, 0.0)
        inside = _epsilon_inside(epsilon, self.rate)
        # delta falls in epsilon: each end at the inside epsilon rounded to its own side
        low, high = self.body.profile(up(inside, 16)), self.body.profile(max(0.0, down(inside, 16)))
        if low is None or high is None:
            return None
        upper = min(1.0, up(self.rate * high.upper))
        if self._turns():
            return Bounds(max(0.0, down(self.rate * low.lower)), upper)
        own = super().profile(epsilon)  # by the pair of each direction
        return Bounds(0.0 if own is None else min(own.lower, upper), upper)

    def _turns(self) -> bool:
        """Whether the body's laws, and its failures, are the same both ways round.

        Then ``q`` times the body's profile is what the removal of a unit attains; of other bodies
        the profile may be that of the addition, which samples amplify more.
        """
        single, pair = self.body.single(), self.body.pair()
        if single is not None and single.is_response_pair:
            return True
        return pair is not None and pair.reversed() == pair and self.body.delta_floor() == 0

    def joined(self, size: int) -> PrivacyLoss:
        """Return the loss of ``size`` units that are present or absent together.

        Of Gaussian noise it is a mixture, over how many of them are in the sample; of what has a
        pure epsilon, as many times that of one unit.
        """
        k, mu, eps = integer("group size", size), self.body.gaussian_mu(), self.pure()
        if k == 1:
            return self
        if mu is not None and mu <= LARGEST_MU:
            return group_of_sample(mu, self.rate, k)
        if eps is not None and self.delta_floor() == 0:
            return PureBound(up(eps * k, 2))
        return super().grouped(k)

    def grouped(self, size: int) -> PrivacyLoss:
        """Return the loss itself for one unit; of more, some may leave as others join.

        Raises
        ------
        InapplicableError
            For more than one.
        """
        if integer("group size", size) == 1:
            return self
        raise InapplicableError(
            f"a sample has no one loss for {size} units of which some may leave as others join: "
            "declare GaussianMixture.of_sample(mu, rate, leaving=, joining=) for Gaussian noise, "
            "or Grouped for units that are present or absent together"
        )

    def replaced(self) -> PrivacyLoss:
        """Return that of a sample whose unit is replaced."""
        return ReplacedSample(self.body, self.rate)

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return ``log(1 + q (e^eps - 1))`` of the body's epsilon at ``delta / q``."""
        if delta >= self.rate:
            return Bounds(0.0, 0.0)
        inside = delta / self.rate
        # epsilon falls in delta: each end at delta / q rounded to its own side
        low = self.body.epsilon_at(min(1.0, up(inside)))
        high = self.body.epsilon_at(max(0.0, down(inside)))
        if low is None or high is None or high.upper > 600:
            return None
        lower = down(math.log1p(self.rate * math.expm1(low.lower)), 16) if self._turns() else 0.0
        return Bounds(max(0.0, lower), up(math.log1p(self.rate * math.expm1(high.upper)), 16))


def _epsilon_inside(epsilon: float, rate: float) -> float:
    """Return ``log(1 + (e^epsilon - 1)/q)``."""
    if epsilon > 600:
        return epsilon - math.log(rate)
    ratio = math.expm1(epsilon) / rate
    return math.log1p(ratio) if ratio < math.inf else math.log(math.expm1(epsilon)) - math.log(rate)


def _randomized_response(eps: float, orders: Array, rate: float) -> Array:
    if eps > 300:
        return np.full_like(orders, np.inf)
    # P0's masses where r = e^eps and where r = e^-eps: 1 and e^eps over 1 + e^eps
    log_p0 = np.array([-eps, 0.0]) - math.log1p(math.exp(-eps))
    logs = np.array([_mixture(eps, rate), _mixture(-eps, rate)])
    curves = []
    # removal is the moment of order a, addition that of 1 - a; the larger bounds both directions
    for power in (orders, 1 - orders):
        gain = power[:, None] * logs
        terms = gain + log_p0
        # gain and log_p0 have opposite signs: the rounding is that of each, not of their sum
        noise = 16 * UNIT * (1 + (np.abs(gain) + np.abs(log_p0)).max(axis=1))
        curves.append(special.logsumexp(terms, axis=1) + noise)
    # both again as 1 + E (e^{b L} - 1), b = a - 1, L the log-ratio under P or -L under P0, which
    # keeps the digits of moments near 1. Of each part the law's mass is off by its exponent's
    # rounding, and e^x - 1 by (1 + x) times that of x: far less than 64 units where |x| < 1
    for log_law, sign in ((log_p0 + logs, 1.0), (log_p0, -1.0)):
        exponent = sign * (orders[:, None] - 1) * logs
        small = np.exp(log_law) * np.expm1(np.clip(exponent, -1.0, 1.0))
        wrong = (64 + 8 * eps) * UNIT * np.abs(small).sum(axis=1) + 1e-300
        near = np.log1p(np.maximum(small.sum(axis=1) + wrong, 0.0)) * (1 + 8 * UNIT)
        near = np.where((np.abs(exponent) < 1).all(axis=1), near, np.inf)
        curves.append(near)
    removal, addition = np.minimum(curves[0], curves[2]), np.minimum(curves[1], curves[3])
    return up(np.maximum(np.maximum(removal, addition), 0.0) / (orders - 1), 8)


# -----------------------------------------------------------------------------
# Amplification by a sample of a fixed size, drawn without replacement.


def _size(value: int) -> int:
    return integer("FixedSize.size", value, least=0)


def _of(value: int) -> int:
    return integer("FixedSize.of", value)


@frozen(cache_hash=True)
class FixedSize(Mixed):
    """A body that runs on ``size`` of ``of`` units, each set of that many equally likely.

    Neighbours differ in the value of one unit (replace-one), and ``of`` is public. If the sample
    holds the unit, the body sees two samples that differ in it (A and A'); if not, the sample
    (B) is one of them with that unit replaced by another, so all three differ by one
    replacement, and advanced joint convexity holds with ``q = size / of``.

    Parameters
    ----------
    body
        The body's loss on samples of which one unit is replaced: for a sum of vectors of norm 1
        with noise sigma, ``Gaussian(mu=2 / sigma)``.
    size, of
        Integers, ``0 <= size <= of``.

    Notes
    -----
    No pair that dominates is smaller: at every ``t >= 1`` the bound ``q delta(t)`` of one sample is
    attained where B is A', and at every ``t <= 1`` where B is A. But no one mechanism attains both,
    so that of many samples the upper end lies above what a mechanism is known to attain: for 5,000
    samples of 100 out of 60,000 with mu 2, at delta 1e-5, by 6%, for 50,000 with mu 1 by 16%. The
    lower end is the better of two mechanisms: B is A' (`attained_pair`), or all three are equally
    far apart (`attained_by_many`). To close the gap takes an argument about whole compositions, not
    a tighter pair; none is published that the authors know of.

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 9 (profile); Zhu, Dong and Wang 2022, Prop. 30 (pair).

    Examples
    --------
    >>> from accountants import Composite, Pure
    >>> round(FixedSize(Composite({Pure(epsilon=1.0): 1}), size=1, of=100).pure(), 6)
    0.017037
    """

    theorem: ClassVar[str] = (
        "sampling without replacement: Balle, Barthe & Gaboardi 2018, Thm 9; "
        "Zhu, Dong & Wang 2022, Prop. 30"
    )

    body: Composite = field(converter=checked_body)
    size: int = field(converter=_size)
    of: int = field(converter=_of)

    def __attrs_post_init__(self) -> None:
        if self.size > self.of:
            raise DomainError(
                f"FixedSize needs a sample no larger than the data, got {self.size} of {self.of}"
            )

    @property
    def rate(self) -> float:
        """Return ``size / of``, rounded up: how likely a unit is in the sample."""
        return min(1.0, ceiling(Fraction(self.size, self.of)))

    def attained_pair(self) -> Pair | None:
        """Return the pair of a Poisson sample: of a mechanism to which all other rows are alike.

        Let them have the value that the unit has in one of the two data sets: then B is A', and
        the laws are ``(1-q) A' + q A`` and A'.
        """
        if self.size == self.of:
            return super().attained_pair()
        # the pair of a smaller rate is a post-processing
        return Sampled(self.body, flooring(Fraction(self.size, self.of))).attained_pair()

    def attained_by_many(self) -> Pair | None:
        """Return a pair below that of Gaussian noise where A, A' and B are equally far apart.

        Each unit's value is one of three at the distance mu from each other, and the other rows all
        have the third: a mechanism with the body's loss. Both data sets' samples now have rare
        losses, above 0 and below.
        """
        body = self.body.pair()
        if not 0 < self.size < self.of or not isinstance(body, GaussianPair):
            return None
        if not (body.is_tight() and _LEAST_OF_THREE <= body.mu <= _LARGEST_OF_THREE):
            return None
        return _of_three(body.mu, flooring(Fraction(self.size, self.of)))


_LEAST_OF_THREE, _LARGEST_OF_THREE = 1e-3, 8.0
"""Between these the cells of `_of_three` are finer than what they tell."""

_SIDE, _LOSSES = 160, 400
"""Cells of half an axis, and losses of a sign."""


@lru_cache(maxsize=64)
def _of_three(mu: float, rate: float) -> FinitePair | None:
    """Return a pair below ``(1-q) N(0, I) + q N(a, I)`` against ``(1-q) N(0, I) + q N(b, I)``.

    In the plane, with ``|a| = |b| = |a - b| = mu``: of which cell an outcome lies in no more is
    told, and of all cells of about one loss which of these (post-processing). What lies farther
    than twelve deviations out is left out, which only lowers. Mirrored at the line between a and b
    one law is the other.
    """
    height = mu * math.sqrt(0.75)
    # away from that line on a's side, and along it
    across = np.linspace(0.0, mu / 2 + 12, _SIDE + 1)
    along = np.linspace(-12.0, height + 12, 2 * _SIDE + 1)

    def masses(edges: Array, mean: float) -> Array:
        nodes, weights = gauss_rule(24)
        half = np.diff(edges)[:, None] / 2
        at = edges[:-1, None] + half * (1 + nodes) - mean
        inside: Array = (np.exp(-at * at / 2) * weights * half).sum(axis=1)
        return inside / math.sqrt(2 * math.pi)

    without = np.outer(masses(across, 0.0), masses(along, 0.0)) * (1 - rate)
    raised = masses(along, height) * rate
    p = (without + np.outer(masses(across, mu / 2), raised)).ravel()
    q = (without + np.outer(masses(across, -mu / 2), raised)).ravel()
    used = np.minimum(p, q) > 1e-290
    p, q = p[used], q[used]
    losses = np.log(p / q)
    largest = float(losses.max())
    if not largest > 0:
        return None
    # finer where losses are small, as most are
    fine = 1e-3 * largest
    cell = np.rint(np.arcsinh(losses / fine) * (_LOSSES / math.asinh(largest / fine)))
    _, cell, counts = np.unique(cell, return_inverse=True, return_counts=True)
    p, q = np.bincount(cell, p).astype(np.float64), np.bincount(cell, q).astype(np.float64)
    losses = np.log(p / q)
    # cells that rounding makes one are left out
    rising = np.append(losses[0] > 0, (np.diff(losses) > 0) & (losses[1:] > 0))
    losses, p, q = losses[rising], p[rising], q[rising]
    # of densities up to 24 deviations out, of sums, and of the logarithm
    error = (8192 + 2 * int(counts.max()) + 4 * largest) * UNIT
    if not np.all(np.diff(losses) > 0):
        return None
    return FinitePair(
        np.concatenate([-losses[::-1], losses]),
        np.concatenate([q[::-1], p]),
        np.concatenate([p[::-1], q]),
        error,
        # a loss is the logarithm of a quotient of two such masses: it is off by the errors of both
        loss_error=(2 * error + 8 * UNIT * (1 + largest)) / float(losses[-1]),
    )


# -----------------------------------------------------------------------------
# Amplification by Poisson sampling, for neighbours that differ in the value of one unit.
#
# With B the body's law without the unit, A and A' with one or the other value of it, the laws are
# ``(1-q) B + q A`` and ``(1-q) B + q A'``: not those of add/remove, and not those of a sample of a
# fixed size.
#
# * a Gaussian body, ``A = N(a, I)``, ``A' = N(b, I)`` about ``B = N(0, I)``, ``|a|, |b| <= mu``:
#   the worst is ``a = mu``, ``b = -mu`` in one dimension, for every t at once. Let t >= 1 (below 1
#   exchange the two). Then H_t is q times the integral of ``(A - c B - t A')_+`` with
#   ``c = (1-q)(t - 1)/q >= 0``. Let ``S = {A > c B + t A'}``. Turn b away from a: of each two
#   points that mirror each other at the line of b, the one on a's side is in S if the other is,
#   since there A is larger, and B and A' are equal; so A'(S) falls, and the integral, whose slope
#   is that of ``-t A'(S)``, rises, until b points away from a. There S is a half-line, from which b
#   recedes, and into which a advances.
# * a body of pure epsilon: of ``E_B (1-q+q r - t (1-q+q r'))_+``, convex in the ratios r and r',
#   only the vertices ``e^{+-eps}`` count, and for t >= 1 of these only ``(e^eps, e^-eps)``, whose
#   mass is at most 1/(1 + e^eps). Three outcomes have that mass, its mirror image, and the rest.
# * any body: advanced joint convexity, with the body's loss for two units (one goes, one comes).


_LARGEST_MU = 30.0
"""Of a larger mu the sampled pair's odds would underflow: it is left to joint convexity."""


def _replaced_rate(value: float) -> float:
    return probability("ReplacedSample.rate", value)


@frozen(cache_hash=True)
class ReplacedSample(Mixed):
    """A body on a Poisson sample of the units, of which one is replaced (replace-one).

    Parameters
    ----------
    body
        The body's loss on a unit that is present or absent (add/remove, as for `Sampled`): for
        a sum of vectors of norm 1 with noise sigma, ``Gaussian(mu=1 / sigma)``. It must have
        group privacy.
    rate
        The probability q, in [0, 1], with which each unit enters, independently.

    References
    ----------
    Balle, Barthe and Gaboardi 2018, Thm 2 (any body); the section above (Gaussian and pure
    bodies; the Gaussian pair is that of Lebeda, Regehr, Kamath and Steinke 2024).

    Examples
    --------
    >>> from accountants import Composite, Pure
    >>> round(ReplacedSample(Composite({Pure(epsilon=1.0): 1}), rate=0.01).pure(), 6)
    0.023378
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "Poisson sampling, replace-one: Balle, Barthe & Gaboardi 2018, Thm 2; "
        "Lebeda, Regehr, Kamath & Steinke 2024"
    )

    body: Composite = field(converter=checked_body)
    rate: float = field(converter=_replaced_rate)

    def __attrs_post_init__(self) -> None:
        self.body.replaced()  # refuses here a body without group privacy

    def mixture(self) -> tuple[Composite, float]:
        """Return the body's loss for two units, and the rate."""
        return self.body.replaced(), self.rate

    def grouped(self, size: int) -> PrivacyLoss:
        """Return the loss of ``size`` units that are replaced.

        Of Gaussian noise one mixture against another, of how many of those that leave are in the
        sample, and of those that join; of what has a pure epsilon as many times that of one.
        """
        k, mu, eps = integer("group size", size), self.body.gaussian_mu(), self.pure()
        if k == 1:
            return self
        if mu is not None and mu <= LARGEST_MU:
            return group_of_sample(mu, self.rate, k, k)
        if eps is not None and self.delta_floor() == 0:
            return PureBound(up(eps * k, 2))
        return super().grouped(k)

    def pair(self) -> Pair | None:
        """Return the worst pair of a Gaussian or pure body, or that of joint convexity."""
        pair = self._worst() or super().pair()
        loose = pair is not None and pair.is_tight() and not self._is_attained()
        return LooseBound(pair) if pair is not None and loose else pair

    def attained_pair(self) -> Pair | None:
        """Return the worst pair if it is attained, or that of a unit whose new value adds nothing.

        Then the unit is as if absent: A' is B.
        """
        pair, single = self.pair(), self.body.single()
        if pair is not None and pair.is_tight():
            return pair
        if self.rate == 1 and single is not None and self._is_attained():
            return single.replaced().attained_pair()
        return Sampled(self.body, self.rate).attained_pair()

    def _is_attained(self) -> bool:
        """Whether what is known of two units is attained where every unit is in the sample."""
        return self.rate < 1 or all(
            loss.grouped_is_tight or loss.replaced().attains_group for loss, _ in self.body.spends
        )

    def _worst(self) -> Pair | None:
        mu, eps, single = self.body.gaussian_mu(), self.body.pure(), self.body.single()
        if not 0 < self.rate < 1:
            return None
        if mu is not None:
            return ReplacedGaussianPair(mu, self.rate) if 1e-100 < mu <= _LARGEST_MU else None
        if eps is None or not 0 < eps <= LARGEST_LOSS or self.body.delta_floor() > 0:
            return None
        return _replaced_response(eps, self.rate, single is not None and single.is_response_pair)

    def pure(self) -> float | None:
        """Return ``log((1 - q + q e^eps) / (1 - q + q e^-eps))``, if that is less."""
        worst, generic = self._worst(), super().pure()
        if generic is None or worst is None:
            return generic
        return min(generic, worst.top())

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the worst pair's, or that of joint convexity, of which none need be attained."""
        worst = self._worst()
        if worst is not None:
            return _profile(worst, 0.0, epsilon)
        bounds = super().profile(epsilon)
        if bounds is None or self.rate == 0 or (self.rate == 1 and self._is_attained()):
            return bounds
        return Bounds(0.0, bounds.upper)


def _replaced_response(eps: float, rate: float, tight: bool) -> FinitePair | None:
    """Return the three outcomes of the worst pure body; None where their losses underflow."""
    less = math.exp(-eps) / (1 + math.exp(-eps))
    rise, fall = rate * math.expm1(eps), rate * math.expm1(-eps)
    # log((1 + rise) / (1 + fall)): both laws' extreme ratios at one outcome
    loss = up(math.log1p((rise - fall) / (1 + fall)), 16)
    middle = -math.expm1(-eps) / (1 + math.exp(-eps)) * (1 + fall)
    if loss <= 1e-300:
        return None
    masses = (less * (1 + fall), middle, less * (1 + rise))
    error = (64 + 4 * eps) * UNIT
    return FinitePair((-loss, 0.0, loss), masses, masses[::-1], error, tight, multiple=loss)


@frozen
class ReplacedGaussianPair(Symmetric):
    """``(1-q) N(0, 1) + q N(mu, 1)`` against ``(1-q) N(0, 1) + q N(-mu, 1)``; ``0 < q < 1``.

    L rises in the outcome x and is odd: with ``m = mu^2 / 2``,
    ``mu x = l/2 + asinh((1-q)/q e^m sinh(l/2))`` where it is l. The pair is symmetric.
    """

    mu: float
    rate: float

    def tail_error(self) -> float:
        """Return ndtr's error where it is above 1e-300, at most 37 deviations out.

        There an outcome is off by a few units of its size, and of m of its size.
        """
        return 6e-13 + 2e-14 * (40 + 2 * self.mu) + 2e-12 * self.mu * self.mu

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the normal tails above the outcome of that loss."""
        x, q = self.outcome(loss), self.rate
        # L rises in x, so its tails are those of the two mixtures above x
        rest = (1 - q) * special.ndtr(-x)
        return rest + q * special.ndtr(self.mu - x), rest + q * special.ndtr(-self.mu - x)

    def outcome(self, loss: Array) -> Array:
        """Return x; where sinh is large its logarithm is taken, to which 1 adds nothing."""
        # the outcome is odd in the loss: solved for |l|, its sign put back at the end
        size, m = np.abs(loss), self.mu * self.mu / 2
        log_odds = math.log1p(-self.rate) - math.log(self.rate) + m
        exponent = log_odds + size / 2
        with np.errstate(over="ignore"):
            odds = (1 - self.rate) / self.rate * math.exp(m)
            near = np.arcsinh(odds * np.sinh(np.minimum(size / 2, 300.0)))
            far = exponent + np.log(-np.expm1(-np.maximum(size, 1e-300)))
        # past 300 the sum of the logarithms is as good
        outcome = (size / 2 + np.where(exponent < 300, near, far)) / self.mu
        return np.copysign(outcome, loss)

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return it by quadrature over the outcomes above 0."""
        return symmetric_log_moment(_Positive(self.mu, self.rate), z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return what values and uniform parts give."""
        return symmetric_decay(self, _Positive(self.mu, self.rate), tilt, beyond)

    def without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the outcomes up to a point (`accountants.losses.cut_sample`)."""
        found = cut_sample(self.mu, self.rate, lost, replaced=True)
        return (self, 0.0) if found is None else found


@frozen
class _Positive(Half):
    """The outcomes above 0; the loss is ``log n - log d`` of both mixtures' densities."""

    mu: float
    rate: float

    def scale(self) -> float:
        return self.mu

    def end(self, power: float) -> float:
        """Return where `log_tail` is -53 or less: of little mu d counts long before 1 - q is all.

        ``log Phi(-y) <= log Phi(-10) - (y^2 - 100) / 2``, and what else is in the tail falls.
        """
        reach = power * self.mu
        excess = 53.0 + float(self.log_tail(np.array([power]), reach + 10.0)[0])
        return reach + math.sqrt(100.0 + 2 * max(0.0, excess))

    def log_tail(self, power: Array, end: float) -> Array:
        """There ``n <= r (q + (1-q)/r_end)``, ``r = e^{mu s - m}``, and d is at least ``1 - q``.

        The moment is that of ``n^a d^{1-a}`` under N(0, 1), where r^a moves the mean by a mu.
        """
        mu, q = self.mu, self.rate
        # the bound of n / r at the end, beyond which it falls
        log_n = np.logaddexp(math.log(q), math.log1p(-q) - mu * end + mu * mu / 2)
        log_d = (1 - power) * math.log1p(-q)
        beyond = special.log_ndtr(power * mu - end)
        tail: Array = power * log_n + log_d + power * (power - 1) * mu * mu / 2 + beyond
        return tail

    def loss(self, s: Array) -> tuple[Array, Array]:
        """Return ``log1p((n - d) / d)``, or ``log n - log d`` where it is large."""
        y, m, q = self.mu * s, self.mu * self.mu / 2, self.rate
        log_d = np.logaddexp(math.log1p(-q), math.log(q) - y - m)
        log_n = np.logaddexp(math.log1p(-q), math.log(q) + y - m)
        # n - d = 2 q e^-m sinh(y): near 0 nothing cancels in this form
        some = np.clip(y, -2.0, 2.0)
        gap = 2 * q * math.exp(-m) * np.sinh(some) / (1 - q + q * np.exp(-some - m))
        value = np.where(np.abs(y) < 2, np.log1p(gap), log_n - log_d)
        size = np.abs(value)
        sizes = 16 + 4 * (np.abs(y) + m) + np.where(np.abs(y) < 2, 0.0, abs(math.log(q)))
        return value, UNIT * (16 * size + sizes * np.minimum(size, 1.0)) + np.where(
            np.abs(y) < 2, 0.0, UNIT * 8 * (np.abs(log_n) + np.abs(log_d))
        )

    def log_density(self, s: Array) -> Array:
        y, m, q = self.mu * s, self.mu * self.mu / 2, self.rate
        log_d = np.logaddexp(math.log1p(-q), math.log(q) - y - m)
        return log_d - s * s / 2 - math.log(2 * math.pi) / 2

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        """Both normals are at most those at the box's nearest point to their centres."""
        least = np.maximum(0.0, low)
        return imaginary * imaginary / 2 - least * least / 2

    def slope(self, low: Array, high: Array) -> Array:
        """The shares of the shifted normals: one of the numerator's rises, the other falls."""
        m, odds = self.mu * self.mu / 2, math.log(self.rate) - math.log1p(-self.rate)
        rising = special.expit(odds + self.mu * high - m)
        falling = special.expit(odds - self.mu * low - m)
        return np.asarray(self.mu * (rising + falling) * (1 + 1e-9), dtype=np.float64)
