"""The worst losses of pure and of approximate DP: randomized response, and a leak beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.definitions import pure_to_renyi, pure_to_zcdp
from accountants.errors import InapplicableError, integer, nonnegative, probability
from accountants.finite import FinitePair
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.laplace import AtomsAtEnds, Laplace
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    RoundedUp,
    ceiling,
    cost,
    down,
    expm1,
    log1p,
    multiple,
    up,
)
from accountants.pair import Pair, right_half


def _pure_epsilon(value: float) -> float:
    return cost("Pure.epsilon", value)


class _Response(PrivacyLoss):
    """Base of the losses that randomized response attains, beside their delta floor."""

    __slots__ = ()

    is_response_pair: ClassVar[bool] = True

    epsilon: float

    def pair(self) -> ResponsePair:
        """Return randomized response, beside the delta floor."""
        return ResponsePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon, which holds beside the delta floor."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return randomized response's divergence, beside the delta floor."""
        return pure_to_renyi(self.epsilon, orders)

    @classmethod
    def renyi_sum(cls, spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array | None:
        """Return the sum of many curves, some hundred losses at a time."""
        if len(spends) <= 16:
            return None
        total = np.zeros_like(orders)
        for start in range(0, len(spends), 256):
            some = spends[start : start + 256]
            eps = np.array([loss.pure() for loss, _ in some], dtype=np.float64)[:, None]
            times = np.array([count for _, count in some], dtype=np.float64)
            curves = pure_to_renyi(eps, orders)
            # D_alpha <= D_infinity = eps, where the formula overflows
            curves = np.where(np.isfinite(curves), curves, eps)
            total = total + up(times @ curves, 2 * len(some))
        return up(total, 2 * (len(spends) // 256 + 1))

    def rho(self) -> float:
        """Return ``epsilon tanh(epsilon / 2)``, beside the delta floor."""
        return pure_to_zcdp(self.epsilon)


@frozen
class Pure(_Response):
    """Any epsilon-DP mechanism, by the pair that dominates it: binary randomized response.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    Kairouz, Oh and Viswanath 2015, Thm 2.1 and Lemma 2.3 (every pure pair is a
    post-processing of randomized response).

    Examples
    --------
    >>> Pure(epsilon=1.0).pure()
    1.0
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "pure DP: Kairouz, Oh & Viswanath 2015 (randomized response dominates)"

    epsilon: float = field(converter=_pure_epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return ``(e^eps0 - e^eps)_+ / (1 + e^eps0)``."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        if epsilon >= self.epsilon:
            return Bounds(0.0, 0.0)
        # (e^eps0 - e^eps) / (1 + e^eps0), without overflow or cancellation
        exact = -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))
        # a rational eps0, which its float is above
        wrong = 3 * UNIT * self.epsilon if isinstance(self.epsilon, RoundedUp) else 0.0
        return Bounds(max(0.0, down(exact, 8) - wrong), min(1.0, up(exact, 8) + wrong))

    def grouped(self, size: int) -> PrivacyLoss:
        """Return what ``size`` units lose at most: below ``size * epsilon``, the pure epsilon.

        References
        ----------
        Dong, Roth and Su 2022, Thm 2.14; Dwork and Roth 2014, Thm 2.2 (the pure epsilon).
        """
        k = integer("group size", size)
        if k == 1:
            return self
        from accountants.losses.discrete import pure_group  # its pairs stand on these

        return pure_group(self.epsilon, k, attained=self.is_response_pair)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by epsilon; a pure loss also dominates the Laplace loss of its epsilon."""
        return isinstance(other, Pure | Laplace) and self.epsilon >= other.epsilon


@frozen
class ResponsePair(AtomsAtEnds):
    """Binary randomized response: L is eps or -eps, with odds ``e^eps`` under P.

    With ``p = 1 / (1 + e^-eps)``: ``E_P e^{zL} = p e^{z eps} + (1 - p) e^{-z eps}``, which does
    not decay.
    """

    epsilon: float

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the mass at eps, or everything."""
        return _above(self.epsilon, loss)

    def tail_error(self) -> float:
        """Return that of an exponential."""
        return 16 * UNIT

    def spacing(self) -> float:
        """Return epsilon."""
        return self.epsilon

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return zeros: two losses swing for ever."""
        return np.zeros_like(beyond)

    @staticmethod
    def _modulus(eps: float, a: float, least: Array, starts: Array, stops: Array) -> Array:
        """Return ``log(1 - sin^2(t eps) / cosh^2(a eps)) / 2``.

        ``M = cosh(w eps) / cosh(eps/2)``, and ``|cosh(w eps)|^2 = cosh^2(a eps) - sin^2(t eps)``.
        """
        far = math.exp(-2 * a * eps)
        share = least * far / ((1 + far) / 2) ** 2 * (1 - 32 * UNIT)
        return np.asarray(np.log1p(-np.minimum(share, 1 - 1e-12)) / 2, dtype=np.float64)

    def atoms(self) -> FinitePair:
        """Return the same pair as its two losses (one where they are equal)."""
        eps = self.epsilon
        if eps == 0:
            return FinitePair((0.0,), (1.0,), (1.0,), tight=self.is_tight())
        (p,), (q,) = _above(eps, np.array([0.0]))
        return FinitePair((-eps, eps), (q, p), (p, q), 16 * UNIT, self.is_tight(), eps)

    @staticmethod
    def _log_moments_at(eps: Array, z: Complex) -> tuple[Complex, Array]:
        """Return log-moments, (n, m) for n losses at m points, and bounds of their errors."""
        # the pair is symmetric, so the moment at z is that at -1 - z: Re z >= -1/2 without loss
        z, slip = right_half(z)
        every = eps[:, None].astype(np.complex128)
        more, less = 1 / (1 + np.exp(-every.real)), np.exp(-every.real) / (1 + np.exp(-every.real))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # the moment less 1, for small exponents: p (e^{z eps} - 1) + (1 - p) (e^{-z eps} - 1)
            grow, fall = more * expm1(z * every), less * expm1(-z * every)
            units = 64 + 4 * np.abs(z) * every.real
            # an exponent's own rounding counts even where its exponential is next to 1
            wrong = units * (np.abs(grow) + np.abs(fall)) + 4 * np.abs(z) * every.real
            near, near_error = log1p(grow + fall, wrong * UNIT)
            # for large ones e^{z eps} is taken out, so that nothing overflows
            rest = more + less * np.exp(-2 * z * every)
            far = z * every + np.log(rest)
            moved = units * UNIT * (more + less) / np.abs(rest)
            far_error = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(far), np.inf)
        small, slipped = z.real * every.real < 1, slip * every.real
        return np.where(small, near, far), np.where(small, near_error, far_error) + slipped

    @staticmethod
    def _exponentials(eps: float | Array, z: Complex) -> tuple[Array, Array]:
        """Return how much of M cancels, and the log of the size of its terms."""
        z, _ = right_half(z)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            first, less = 1 / (1 + np.exp(-eps)), np.exp(-eps) / (1 + np.exp(-eps))
            # not 1 - first, which loses all digits where Re z < 0 makes this term the larger one
            second = less * np.exp(-2 * z * eps)
            size = first + np.abs(second)
            return np.abs(first + second) / size, z.real * eps + np.log(size)


def _above(eps: float, loss: Array) -> tuple[Array, Array]:
    more, less = 1 / (1 + math.exp(-eps)), math.exp(-eps) / (1 + math.exp(-eps))
    p = np.where(loss < -eps, 1.0, np.where(loss < eps, more, 0.0))
    q = np.where(loss < -eps, 1.0, np.where(loss < eps, less, 0.0))
    return p, q


# -----------------------------------------------------------------------------
# The worst loss of an (epsilon, delta): leak with probability delta, else randomized response.


def _approximate_epsilon(value: float) -> float:
    return cost("Approximate.epsilon", value)


def _approximate_delta(value: float) -> float:
    return probability("Approximate.delta", value)


@frozen
class Approximate(_Response):
    """Any (epsilon, delta)-DP mechanism, by the pair that dominates it.

    Parameters
    ----------
    epsilon
        Non-negative, in nats; the pure epsilon beside the delta floor.
    delta
        The delta floor, in [0, 1].

    References
    ----------
    Kairouz, Oh and Viswanath 2015, Thm 2.1; Murtagh and Vadhan 2016, Lemma 3.2.

    Examples
    --------
    >>> Approximate(epsilon=1.0, delta=1e-6).delta_floor()
    1e-06
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "(epsilon, delta)-DP: Kairouz, Oh & Viswanath 2015, Thm 2.1"

    epsilon: float = field(converter=_approximate_epsilon)
    delta: float = field(converter=_approximate_delta)

    def delta_floor(self) -> float:
        """Return delta."""
        return self.delta

    def profile(self, epsilon: float) -> Bounds:
        """Return ``delta + (1 - delta)`` times randomized response's profile."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        rest = Pure(self.epsilon).profile(epsilon)
        low = self.delta + (1 - self.delta) * rest.lower
        high = self.delta + (1 - self.delta) * rest.upper
        # F + (1 - F) delta' of randomized response
        return Bounds(max(0.0, down(low)), min(1.0, up(high)))

    def grouped(self, size: int) -> Approximate:
        """Return ``(k eps, delta (e^{k eps} - 1)/(e^eps - 1))`` (Vadhan 2017, Lemma 2.2)."""
        k, eps = integer("group size", size), self.epsilon
        if k == 1:
            return self
        with_overflow = k * eps > 700
        factor = math.inf if with_overflow else math.expm1(k * eps) / math.expm1(eps) if eps else k
        # a relative error u of x = k eps is one of x u / (1 - e^-x) <= (1 + x) u of expm1(x)
        steps = math.inf if with_overflow else 16 + 4 * k * eps
        delta = min(1.0, up(self.delta * factor, steps)) if self.delta else 0.0
        return Approximate(multiple(eps, k), delta)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by both parameters."""
        if isinstance(other, Approximate):
            return self.epsilon >= other.epsilon and self.delta >= other.delta
        return Pure(self.epsilon).dominates(other)


# -----------------------------------------------------------------------------
# A mechanism that is only nearly sampled from.


def with_total_variation(
    loss: PrivacyLoss, distance: float, *, epsilon: float | None = None
) -> Approximate:
    """Return the loss of a mechanism whose sampler is within a total-variation distance of it.

    Let M have ``(epsilon, delta)``, and let M'(D) be within ``distance`` = t of M(D) for *every*
    data set D. For neighbours D, E and every set S of outputs

    ``M'(D)(S) <= M(D)(S) + t <= e^epsilon M(E)(S) + delta + t
    <= e^epsilon (M'(E)(S) + t) + delta + t``,

    so M' has ``(epsilon, delta + (1 + e^epsilon) t)``, under any neighbour relation. The factor is
    attained: where S has mass of at least t under M(E), ``e^epsilon`` times that under M(D), and
    the sampler adds t to it under D and takes t from it under E. So t is not a failure of the loss
    as others are, which would cost t alone: samples that are near in distribution need not be near
    on the same event.

    The distance must be a theorem about the sampler, with explicit constants, for all data sets. A
    Markov chain's trace plots, effective sample sizes or R-hat are none: they say that no
    difference was seen on the data at hand. Nor does the law of a chain that ran until a diagnostic
    was content have such a bound, since then its length depends on the data as well.

    Parameters
    ----------
    loss
        Of the mechanism that is meant.
    distance
        t, in [0, 1]: the most, over all sets, by which the probabilities differ, for any data set.
    epsilon
        At which the result holds; by default the loss's pure epsilon.

    References
    ----------
    Own proof, above; the same statement is in Wang, Fienberg and Smola 2015, for posterior samples.

    Examples
    --------
    >>> from accountants import Pure
    >>> near = with_total_variation(Pure(1.0), 1e-9)
    >>> near.epsilon, round(near.delta * 1e9, 6)
    (1.0, 3.718282)
    """
    near = probability("distance", distance)
    at = loss.pure() if epsilon is None else nonnegative("epsilon", epsilon)
    if at is None:
        raise InapplicableError(
            f"{type(loss).__name__} has no pure epsilon; pass epsilon= to say at which one the "
            "nearly sampled mechanism is to be certified"
        )
    profile = None if epsilon is None else loss.profile(at)
    if epsilon is not None and profile is None:
        raise InapplicableError(f"{type(loss).__name__} has no privacy profile")
    delta = loss.delta_floor() if profile is None else profile.upper
    # e^epsilon is rounded up, and with it (1 + e^epsilon) t
    grown = up(math.exp(at), 8) if at < 700 else math.inf
    if near == 0:
        return Approximate(at, delta)
    if grown == math.inf:
        return Approximate(at, 1.0)
    # delta + (1 + e^epsilon) t, summed exactly
    total = Fraction(delta) + (1 + Fraction(grown)) * Fraction(near)
    return Approximate(at, min(1.0, ceiling(total)))
