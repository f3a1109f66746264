"""A dominating pair: what one mechanism lets an adversary see, in one direction.

A *pair* is two laws (P, Q) of an outcome: P with the unit, Q without it (or, under
replace-one, with one or the other value of it). Its *privacy loss* is the random variable
``L = log dP/dQ``. The pair *dominates* a mechanism when, for every t > 0 (below 1 too) and all
neighbours, the mechanism's hockey-stick ``E_Q (dP/dQ - t)_+`` is at most the pair's. Then

* the reversed pair (Q, P) dominates the other direction, since ``H_t(Q, P) = 1 - t + t H_{1/t}(P,
  Q)``;
* pairs compose by adding independent losses, adaptive queries included (Zhu, Dong and Wang
  2022, Thm 10), and are sampled by mixing (their Thm 11).

Three views of a pair, the first of which every pair has:

=====================  ==========================================================
``above``, ``below``   the tails of L under P and under Q, from which profiles and
                       discretisations follow
``log_moment(z)``      ``log E_P e^{zL}`` at complex z: Renyi divergences are its
                       values at real z, compositions its sums
``decay(tilt, t)``     how small ``|E_P e^{zL}|`` stays on ``Re z = tilt`` beyond
                       ``Im z = t``: where a contour integral may stop
=====================  ==========================================================

The event on which nothing is promised (`PrivacyLoss.delta_floor`) is not part of the pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
from attrs import frozen

from accountants.numerics import UNIT, Array, Complex, by_class, gauss_rule, log1p, up


class Pair:
    """Base of every pair: a frozen attrs class, hashable and comparable by value.

    Two methods are needed, `above` and `below`. All others have defaults that hold for every pair,
    and make answers narrower or faster where a family defines them: log-moments give Renyi
    divergences and contour integrals, a largest loss a pure epsilon, atoms on multiples of one
    number an exact lattice, and `is_tight` must say False of a pair that no mechanism attains.

    Examples
    --------
    Laplace noise, by its tails alone; the distribution accountant needs no more.

    >>> from attrs import frozen
    >>> from accountants import Distribution, PrivacyLoss, Repeated, Spend, measure
    >>> @frozen
    ... class ShiftedNoise(Pair):
    ...     epsilon: float
    ...
    ...     def above(self, loss):
    ...         x = (np.clip(loss, -self.epsilon, self.epsilon) - self.epsilon) / 2
    ...         inside = abs(loss) < self.epsilon
    ...         p = np.where(inside, 1 - np.exp(x) / 2, loss < self.epsilon)
    ...         q = np.where(inside, np.exp(-x - self.epsilon) / 2, loss < self.epsilon)
    ...         return p, q
    ...
    ...     def below(self, loss):  # the noise is symmetric
    ...         return self.above(-loss)[::-1]
    >>> @frozen
    ... class Noisy(PrivacyLoss):
    ...     epsilon: float
    ...     theorem = "Laplace noise: Dwork et al. 2006"
    ...
    ...     def pair(self):
    ...         return ShiftedNoise(self.epsilon)
    >>> print(measure(Repeated(Spend(Noisy(0.1)), 1000), Distribution(), delta=1e-5).bounds)
    [17.3922, 17.4237]

    What a family gives beside its tails:

    >>> from accountants import Gaussian
    >>> pair = Gaussian(mu=1.0).pair()
    >>> [round(float(tail[0]), 4) for tail in pair.above(np.array([0.5]))]
    [0.5, 0.1587]
    >>> pair.reversed() == pair, pair.top()
    (True, inf)
    """

    __slots__ = ()

    def tail_error(self) -> float:
        """Return the relative error of what `above` and `below` return (beside 1e-300)."""
        return 1e-13

    def is_tight(self) -> bool:
        """Whether a mechanism attains the pair and its compositions: then it bounds from below."""
        return True

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``P(L > l)`` and ``Q(L > l)`` at each ``l`` (any real numbers).

        They are within `tail_error` of the tails at some loss within ``slip(l)`` of ``l``.
        """
        raise NotImplementedError

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return ``P(L < l)`` and ``Q(L < l)`` at each ``l``, as `above` does."""
        raise NotImplementedError

    def top(self) -> float:
        """Return the least upper bound of L, rounded up; infinite where there is none."""
        return math.inf

    def bottom(self) -> float:
        """Return the greatest lower bound of L, rounded down; -infinite where there is none."""
        return -math.inf

    def spacing(self) -> float | None:
        """Return d where the atoms of L lie on integer multiples of d; None without atoms."""
        return None

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return ``log E_P e^{zL}``, up to multiples of 2 pi i, and a bound of its error.

        Parameters
        ----------
        z
            Any shape; ``z.real`` of either sign. Infinite real part where the moment is.

        Returns
        -------
        tuple or None
            The logarithms, and bounds of the modulus of their absolute error. None where
            the pair has no formula.
        """
        return None

    @classmethod
    def log_moments(
        cls, spends: Sequence[tuple[Pair, int]], z: Complex
    ) -> tuple[Complex, Array] | None:
        """Return the sum of ``times * log_moment(z)`` over pairs of this very class.

        A family may add up many pairs at once; this adds them one by one.
        """
        total, error = np.zeros_like(z), np.zeros(np.shape(z))
        for pair, times in spends:
            log_moment = pair.log_moment(z)
            if log_moment is None:
                return None
            part = times * np.where(log_moment[1] < np.inf, log_moment[0], 0.0)
            total = total + part
            error = error + times * log_moment[1] + 4 * UNIT * (np.abs(part) + np.abs(total))
        return total, error * (1 + 1e-9)

    @classmethod
    def log_moduli(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> Array:
        """Return upper bounds of the sum of ``times * log |E_P e^{zL}|``.

        By default those of the real parts of z, as the modulus is largest there; a family whose
        atoms swing out of phase has better ones.
        """
        tilts, places = np.unique(z.real, return_inverse=True)
        log_moments = cls.log_moments(spends, tilts.astype(np.complex128))
        if log_moments is None:
            return np.full(np.shape(z), np.inf)
        return up(log_moments[0].real + log_moments[1])[places.reshape(np.shape(z))]

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return about how many exponentials `log_moments` takes at a z of modulus ``reach``."""
        return 4096 * len(spends)

    @classmethod
    def missing(cls, spends: Sequence[tuple[Pair, int]]) -> float:
        """Return about minus the log of the mass: 0, but of laws that have left something out."""
        return 0.0

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return bounds of ``log |M(tilt + i t') / M(tilt)|``, ``M(z) = E_P e^{zL}``.

        Each holds for every ``t' >= t``, t the entry of ``beyond`` (positive); at most 0, and
        falling. Zeros promise nothing.
        """
        return np.zeros_like(beyond)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the sum of ``times * decay`` over pairs of this very class."""
        total = np.zeros(np.shape(beyond))
        for pair, times in spends:
            total = total + times * pair.decay(tilt, beyond)
        return total * (1 - 1e-12)

    @classmethod
    def quick_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array
    ) -> Array | None:
        """Return weaker bounds than `decays`, of a family for which those take long; else None."""
        return None

    @classmethod
    def decays_between(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
    ) -> Array:
        """Return the sum of ``times * log |M(tilt + it) / M(tilt)|``, bounded between two ends.

        Each bound holds for every t from the entry of ``starts`` to that of ``stops``; by default
        it holds beyond. A family whose atoms swing out of phase has better ones.
        """
        return cls.decays(spends, tilt, starts)

    @classmethod
    def grid_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, step: float, count: int
    ) -> Array | None:
        """Return bounds of the sum of ``times * log |M(tilt + i n step) / M(tilt)|``, n from 0.

        Of a family that has them for all n at once; else None.
        """
        return None

    @classmethod
    def swing(cls, spends: Sequence[tuple[Pair, int]]) -> float:
        """Return the largest loss whose phase `decays_between` follows; 0 for none."""
        return 0.0

    def mirrored_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return `log_moment` at ``-1 - z``, for families that must not round that sum."""
        return self.log_moment(-1 - z)

    def mirrored_decay(self, tilt: float, beyond: Array) -> Array:
        """Return `decay` on the line through ``-1 - tilt``."""
        return self.decay(-1 - tilt, beyond)

    @classmethod
    def mirrored_moments(
        cls, spends: Sequence[tuple[Pair, int]], z: Complex
    ) -> tuple[Complex, Array] | None:
        """Return `log_moments` of the reversed pairs; None where they are asked one by one."""
        return None

    @classmethod
    def quick_mirrored_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array
    ) -> Array | None:
        """Return `quick_decays` of the reversed pairs."""
        return None

    def reversed(self) -> Pair:
        """Return the pair (Q, P); a pair with the same loss both ways returns itself."""
        return Reversed(self)

    def without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the law without its largest losses, and a bound of their mass under P.

        About ``lost`` at most; by default nothing is left out. What is left has masses that add up
        to less than 1, and log-moments and decays at least. It is asked for where the largest
        losses make the moments of use astronomical.
        """
        return self, 0.0

    def mirrored_without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the same of the reversed pair."""
        return Reversed(self), 0.0

    def together(self, times: int) -> tuple[tuple[Pair, int], ...]:
        """Return pairs, each with how often, that together dominate ``times`` copies of this one.

        By default the copies. A pair that no mechanism attains may know a smaller one of several:
        wherever these stand in a composition, and whatever their parameters depend on.
        """
        return ((self, times),)

    def composed(self, times: int, epsilon: Array) -> tuple[Array, Array] | None:
        """Return bounds of the hockey-stick of ``times`` copies, eps >= 0; None without a formula.

        It is asked where the log-moments are of no use, and may refuse what costs too much.
        """
        return None

    def profile(self, epsilon: Array) -> tuple[Array, Array]:
        """Return lower and upper bounds of ``P(L > eps) - e^eps Q(L > eps)``, at any real eps.

        Every event bounds the hockey-stick from below; it falls in eps, so the event at a loss
        surely below eps, at that loss's own factor e^l, bounds it from above.
        """
        below = epsilon - 2 * slip(epsilon)
        least = np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0)))  # of every pair
        with np.errstate(over="ignore", invalid="ignore"):
            # the event {L > l} of some l near eps: any event bounds the hockey-stick from below
            lower = _stick(*self.above(epsilon), epsilon, self.tail_error(), -1)
            # at a loss l surely below eps, with its own factor e^l: the hockey-stick falls in eps
            upper = _stick(*self.above(below), below - slip(epsilon), self.tail_error(), 1)
        # delta(eps) >= 1 - e^eps for every pair of laws
        lower = np.maximum(lower, least * (1 - 4 * UNIT))
        upper = np.minimum(1.0, np.maximum(upper, least * (1 + 4 * UNIT)))
        return np.nan_to_num(lower, nan=0.0), np.nan_to_num(upper, nan=1.0)


def _stick(p: Array, q: Array, epsilon: Array, error: float, side: int) -> Array:
    """Return a bound (above for side 1, below for -1) of ``p - e^eps q``, never negative."""
    ratio = np.exp(epsilon)
    paid = np.where(ratio < np.inf, ratio * q, 0.0 if side > 0 else np.inf)
    # tails within a relative error, e^eps within units of |eps|, and 1e-300 absolute
    wrong = error * (p + paid) + 8 * UNIT * (1 + np.abs(epsilon)) * paid
    wrong = wrong + 2e-300 * (1 + np.minimum(ratio, 1e300))
    bound = np.maximum(p - paid + side * wrong, 0.0)
    # never above P's tail itself
    return np.minimum(bound, p * (1 + error) + 1e-300) if side > 0 else bound


def slip(loss: Array) -> Array:
    """Return how far off a loss may be that tails are asked at: a few units of its size."""
    return 8 * UNIT * (1 + np.abs(loss))


@frozen
class Reversed(Pair):
    """The pair (Q, P): its loss is ``-L``, with the laws exchanged.

    ``E_Q e^{-zL} = E_P e^{-(1+z)L}``.
    """

    pair: Pair

    def tail_error(self) -> float:
        """Return the pair's."""
        return self.pair.tail_error()

    def is_tight(self) -> bool:
        """As the pair."""
        return self.pair.is_tight()

    def top(self) -> float:
        """Return minus the pair's bottom."""
        return -self.pair.bottom()

    def bottom(self) -> float:
        """Return minus the pair's top."""
        return -self.pair.top()

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's tails below ``-l``, exchanged."""
        p, q = self.pair.below(-loss)
        return q, p

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's tails above ``-l``, exchanged."""
        p, q = self.pair.above(-loss)
        return q, p

    def spacing(self) -> float | None:
        """Return the pair's."""
        return self.pair.spacing()

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return the pair's at ``-1 - z``."""
        return self.pair.mirrored_moment(z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the pair's on the line through ``-1 - tilt``."""
        return self.pair.mirrored_decay(tilt, beyond)

    @classmethod
    def log_moments(
        cls, spends: Sequence[tuple[Pair, int]], z: Complex
    ) -> tuple[Complex, Array] | None:
        """Return the sum, of one family at once where it has a way."""
        total, error = np.zeros_like(z), np.zeros(np.shape(z))
        for family, some in _bodies(spends):
            moments = family.mirrored_moments(some, z)
            if moments is None:
                moments = super().log_moments([(Reversed(pair), n) for pair, n in some], z)
            if moments is None:
                return None
            total = total + moments[0]
            error = error + moments[1] + 2 * UNIT * np.abs(total)
        return total, error * (1 + 1e-9)

    @classmethod
    def quick_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array
    ) -> Array | None:
        """Return the sum of those that are quick."""
        return added(f.quick_mirrored_decays(some, tilt, beyond) for f, some in _bodies(spends))

    def without_largest(self, lost: float) -> tuple[Pair, float]:
        """Return the pair's, mirrored."""
        return self.pair.mirrored_without_largest(lost)

    @classmethod
    def decays_between(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
    ) -> Array:
        """Return the bound by values, or beyond."""
        return decays_by_values(spends, tilt, starts, stops)

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return those of the pairs."""
        pairs = [pair.pair for pair, _ in spends if isinstance(pair, Reversed)]
        return sum(type(pair).units(((pair, 1),), reach) for pair in pairs)

    def reversed(self) -> Pair:
        """Return the pair itself."""
        return self.pair


def _bodies(spends: Sequence[tuple[Pair, int]]) -> list[tuple[type[Pair], list[tuple[Pair, int]]]]:
    """Return what is reversed, by class."""
    bodies = [(pair.pair, times) for pair, times in spends if isinstance(pair, Reversed)]
    return list(by_class(bodies).items())


def added(parts: Iterable[Array | None]) -> Array | None:
    """Return the sum of bounds that are known, each at most 0; None where none is."""
    known = [part for part in parts if part is not None]
    return np.sum(known, axis=0) if known else None


class Symmetric(Pair):
    """Base of a pair whose loss has the same laws both ways: Q sees -L as P sees L."""

    __slots__ = ()

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails above ``-l``, exchanged."""
        p, q = self.above(-loss)
        return q, p

    def bottom(self) -> float:
        """Return minus the top."""
        return -self.top()

    def reversed(self) -> Self:
        """Return the pair itself."""
        return self


def right_half(z: Complex) -> tuple[Complex, Array]:
    """Return z, or its mirror image ``-1 - z`` where it lies left of -1/2, and what that costs.

    A symmetric pair has the same moment at both; the image is rounded by a unit, so its
    log-moment moves by that times the largest loss.
    """
    mirrored = z.real < -0.5
    return np.where(mirrored, -1 - z, z), np.where(mirrored, 4 * UNIT * (1 + np.abs(z)), 0.0)


def summed(
    spends: Sequence[tuple[Pair, int]],
    z: Complex,
    parameter: Callable[[Any], float],
    log_moment: Callable[[Array, Complex], tuple[Complex, Array]],
) -> tuple[Complex, Array]:
    """Return the sum of ``times * log_moment`` over a family of one parameter, in batches.

    Parameters
    ----------
    parameter
        Reads it from a pair.
    log_moment
        From n parameters and m points to (n, m) log-moments and bounds of their errors.
    """
    points = np.ravel(z)
    total, error = np.zeros(len(points), dtype=np.complex128), np.zeros(len(points))
    for start in range(0, len(spends), _SUM_BATCH):
        some = spends[start : start + _SUM_BATCH]
        values = np.array([parameter(pair) for pair, _ in some], dtype=np.float64)
        times = np.array([count for _, count in some], dtype=np.float64)
        value, wrong = log_moment(values, points)
        # an unknown log-moment counts as 0 with an infinite error
        value = np.where(wrong < np.inf, value, 0.0)  # nothing is known of it
        total = total + times @ value
        error = error + times @ (wrong + (len(some) + 4) * UNIT * np.abs(value))
    error = error * (1 + 1e-9) + (len(spends) // _SUM_BATCH + 1) * UNIT * np.abs(total)
    return total.reshape(np.shape(z)), error.reshape(np.shape(z))


_SUM_BATCH = 256
"""So many pairs at once: their matrices stay in a processor's cache."""


# -----------------------------------------------------------------------------
# A pair that dominates, and that no mechanism need attain.


@frozen
class LooseBound(Pair):
    """The pair, as an upper bound only."""

    pair: Pair

    def is_tight(self) -> bool:
        """Return False."""
        return False

    def tail_error(self) -> float:
        """Return the pair's."""
        return self.pair.tail_error()

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's."""
        return self.pair.above(loss)

    def below(self, loss: Array) -> tuple[Array, Array]:
        """Return the pair's."""
        return self.pair.below(loss)

    def top(self) -> float:
        """Return the pair's."""
        return self.pair.top()

    def bottom(self) -> float:
        """Return the pair's."""
        return self.pair.bottom()

    def spacing(self) -> float | None:
        """Return the pair's."""
        return self.pair.spacing()

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return the pair's."""
        return self.pair.log_moment(z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the pair's."""
        return self.pair.decay(tilt, beyond)

    def reversed(self) -> Pair:
        """Return the pair's, as an upper bound only."""
        other = self.pair.reversed()
        return self if other == self.pair else LooseBound(other)


# -----------------------------------------------------------------------------
# Log-moments of symmetric pairs, whose loss has the law of ``-L`` once P and Q are exchanged.
#
# Of such a pair the half of the outcomes with a positive loss says all. With a = 1 + z, b = -z
# (or exchanged, to have Re a >= 1/2; the moment is the same), under Q
#
# ``E_P e^{zL} - 1 = E_Q[(e^{aL} - 1)(1 - e^{bL}); L > 0]``, two factors that do not cancel.
#
# A `Half` gives the positive losses by a variable s > 0: the loss w(s), rising from ``w(0) = 0``,
# and the density of s under Q, both analytic where ``|Im s| <= 1.2 / scale``. The integral is
# taken by Gauss's rule, 24 points a panel. On the ellipse around a panel whose semi-axes are 2.125
# and 1.875 half-widths (the sum, rho, is 4) let M bound the integrand. Its Chebyshev coefficients
# are then at most ``2 M rho^-k``; the rule is exact up to k = 47, and beyond it and the integral
# are at most 2 each: the error is below ``8 M rho^-48 / (1 - 1/rho)``, for a half-width of 1.


_POINTS = 24
_AXES = (2.125, 1.875)
_MOST = 2**15
"""No more nodes than this for one moment."""

_BATCH = 2**18
_SPLIT = 16
_FAR = 300.0
"""Beyond this the logarithm of the integrand is taken out, and what is 1 beside it is lost."""


class Half:
    """The positive losses of a symmetric pair that have a density under Q."""

    __slots__ = ()

    def scale(self) -> float:
        """Return the greatest slope of the loss."""
        raise NotImplementedError

    def end(self, power: float) -> float:
        """Return where the integral may stop, for moments of Q of ``power`` and less."""
        raise NotImplementedError

    def log_tail(self, power: Array, end: float) -> Array:
        """Return the log of a bound of ``E_Q[e^{power w}; s > end]``, for powers from 1."""
        return np.full_like(power, -np.inf)

    def loss(self, s: Array) -> tuple[Array, Array]:
        """Return the loss w, at negative s too, and a bound of its absolute error."""
        raise NotImplementedError

    def log_density(self, s: Array) -> Array:
        """Return the log of the density of s under Q, within ``64 UNIT`` of 1 and its size.

        It falls from ``s = 0`` on.
        """
        raise NotImplementedError

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        """Return the log of a bound of the density's modulus on ``[low, high] + i[-y, y]``."""
        raise NotImplementedError

    def atom(self) -> float:
        """Return Q's mass at the end, within a relative ``64 UNIT``."""
        return 0.0

    def slope(self, low: Array, high: Array) -> Array:
        """Return upper bounds of the loss's slope between two points, ``0 <= low < high``."""
        raise NotImplementedError


def symmetric_log_moment(half: Half, z: Complex) -> tuple[Complex, Array]:
    """Return ``log E_P e^{zL}``, and a bound of its error."""
    points = np.asarray(z, dtype=np.complex128).ravel()
    # the moment is the same at z and -1 - z: the half with Re a >= 1/2 does not cancel
    left = points.real < -0.5
    a, b = np.where(left, -points, 1 + points), np.where(left, 1 + points, -points)
    value, error = np.zeros(len(a), dtype=np.complex128), np.full(len(a), np.inf)
    octave = np.floor(np.log2(_half_width(half, a)))
    for group in np.unique(octave):
        chosen = np.flatnonzero(octave == group)
        value[chosen], error[chosen] = _group(half, a[chosen], b[chosen], float(2.0**group))
    return value.reshape(np.shape(z)), error.reshape(np.shape(z))


def _half_width(half: Half, a: Complex) -> Array:
    """Return half-widths of panels in which the integrand neither turns nor grows much."""
    turns = np.maximum(np.abs(a.imag) / 3.3, a.real / 20)
    return np.minimum(0.5, 1 / (half.scale() * np.maximum(turns, 1.57)))


def _group(half: Half, a: Complex, b: Complex, width: float) -> tuple[Complex, Array]:
    """Return the log-moments of powers for which panels of one width will do."""
    power = np.maximum(1.0, a.real)
    end = half.end(float(power.max()))
    if not end / (2 * width) * _POINTS < _MOST:
        return np.zeros_like(a), np.full(len(a), np.inf)
    panels = max(1, math.ceil(end / (2 * width)))
    width = end / (2 * panels)
    left: Array = 2 * width * np.arange(panels, dtype=np.float64)
    nodes, weights = gauss_rule(_POINTS)
    s = np.append((left[:, None] + width * (1 + nodes)).ravel(), end)
    log_mass = np.append(half.log_density(s[:-1]) + np.log(np.tile(weights * width, panels)), 0.0)
    with np.errstate(divide="ignore"):
        log_mass[-1] = np.log(half.atom())
    # the rule's error on all panels, and four times the tail beyond the end
    log_missing = np.logaddexp(
        _remainder(half, a, b, left, width), half.log_tail(power, end) + math.log(4)
    )
    log_missing = log_missing + 1e-9 * (1 + np.abs(log_missing))
    value, error = np.zeros_like(a), np.zeros(len(a))
    loss = half.loss(s)
    # on a line all powers have one real part: what depends on it alone is computed once
    reals, place = np.unique(a.real + 1j * b.real, return_inverse=True)
    for at, real in enumerate(reals.tolist()):
        alike = np.flatnonzero(place == at)
        value[alike], error[alike] = _sum(
            (real.real, real.imag), a.imag[alike], loss, log_mass, log_missing[alike]
        )
    return value, error


def _sum(
    power: tuple[float, float],
    turns: Array,
    losses: tuple[Array, Array],
    log_mass: Array,
    log_missing: Array,
) -> tuple[Complex, Array]:
    """Return log-moments from the rule's sum, with its rounding and what it misses.

    With ``a = A + iy``, ``b = B - iy`` and ``h = yw / 2`` the product of both factors is
    ``(e^{Aw} - 1)(e^{Bw} - 1) + 2 (e^{Aw} + e^{Bw}) sin^2 h - i (e^{Aw} - e^{Bw}) sin 2h``. As
    A is at least 1/2 and w at least 0, the first term is no larger than the product's modulus, nor
    is the last, and the second is at most 11 times as large: let ``e^{Aw}`` be at most e, else both
    factors are at least 0.63 and ``0.63 sin^2 h`` times it. So nothing that matters cancels.

    Parameters
    ----------
    power
        A and B.
    turns
        y of each log-moment.
    losses
        w with the bound of its error, at the rule's nodes.
    log_mass, log_missing
        The log of the nodes' masses, and of what the rule misses in each log-moment.
    """
    kept = log_mass > -np.inf
    w, slip, log_mass = losses[0][kept], losses[1][kept], log_mass[kept]
    more, less = power
    rise, fall, between = more * w, less * w, (more - less) * w
    with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
        peak = float((rise + log_mass).max())
        far = peak > _FAR
        shift = peak if far else 0.0
        mass, grown = np.exp(log_mass - shift), np.exp(rise + log_mass - shift)
        lower, factor = np.exp(fall + log_mass - shift), np.exp(fall)
        # mass (e^{Aw} - 1) is as much as mass e^{Aw} where e^{-40} is nothing
        small = (rise < 40) & (not far)
        one = np.where(small, mass * np.expm1(np.where(small, rise, 0.0)), grown)
        two = np.expm1(fall)
        apart = np.where(between < 40, lower * np.expm1(np.minimum(between, 40.0)), grown - lower)
        # the moduli are at most ``one + 2 first |sin h|`` and ``|two| + 2 second |sin h|``
        first, second = np.sqrt(grown) * np.sqrt(mass), np.exp(fall / 2)
        # of a node's mass, and of each term, relative to the product of the moduli
        wrong = UNIT * (512 + 192 * np.abs(log_mass) + 24 * shift)
        # of both exponents: the loss's own error, and the rounding of each product with it
        moved = 2 * (slip + 16 * UNIT * w)
        size_a, size_b = np.hypot(more, turns), np.hypot(less, turns)
        total = np.full(len(turns), -(one * two).sum(), dtype=np.complex128)
        summed = np.full(len(turns), (one * np.abs(two)).sum())
        off = (wrong * one * np.abs(two)).sum() + size_a * (moved * grown * np.abs(two)).sum()
        off = off + size_b * (moved * factor * one).sum()
        off = off + size_a * size_b * (moved * moved * grown * factor).sum()
        if turns.any():
            by_sine = np.stack(
                [
                    2 * wrong * (one * second + first * np.abs(two)),
                    2 * moved * grown * second,
                    2 * moved * factor * first,
                    2 * np.abs(apart),
                ],
                axis=1,
            )
            by_square = np.stack([2 * (grown + lower), 4 * wrong * first * second], axis=1)
            step = max(1, _BATCH // len(w))
            for at in range(0, len(turns), step):
                some = slice(at, at + step)
                half = np.multiply.outer(turns[some] / 2, w)
                sine = np.sin(half)
                total.imag[some] = 2 * ((sine * np.cos(half)) @ apart)
                squares, sines = (sine * sine) @ by_square, np.abs(sine) @ by_sine
                total.real[some] -= squares[:, 0]
                summed[some] += squares[:, 0] + sines[:, 3]
                off[some] += squares[:, 1] + sines[:, 0]
                off[some] += size_a[some] * sines[:, 1] + size_b[some] * sines[:, 2]
        # the sum's own rounding, in whatever order it is made, and what has underflowed
        off = (off + 4 * len(w) * UNIT * summed) * (1 + 1e-9) + 1e-300
        # what is 1 beside an astronomical moment is lost: 1e-100 covers it
        missing = np.exp(log_missing - shift) + (1e-100 if far else 0.0)
        error = (off + missing) * (1 + 1e-9)
        near, near_error = log1p(total, error)
        moved_by = error / np.abs(total)
        beyond = np.log(np.where(total == 0, 1.0, total)) + shift
        beyond_error = np.where(moved_by < 0.5, 2 * moved_by + 8 * UNIT * np.abs(beyond), np.inf)
    value, bound = (beyond, beyond_error) if far else (near, near_error)
    finite = np.isfinite(value) & np.isfinite(bound)
    return np.where(finite, value, 0.0), np.where(finite, up(bound), np.inf)


def _remainder(half: Half, a: Complex, b: Complex, left: Array, width: float) -> Array:
    """Return the log of the bound of the rule's error, all panels together.

    Each ellipse's box is cut into strips; off the axis the loss's exponential loses or gains
    ``cos(angle / 2)`` at most, and turns by twice the angle.
    """
    angle = half.scale() * _AXES[1] * width
    shrunk = -math.log(math.cos(angle / 2))
    box_width = 2 * _AXES[0] * width
    start: Array = left[:, None] + width - box_width / 2 + box_width / _SPLIT * np.arange(_SPLIT)
    low, high = start.ravel(), (start + box_width / _SPLIT).ravel()
    density = half.log_ceiling(low, high, _AXES[1] * width)
    # the largest loss on the strip, and the least, off the real axis
    above = np.maximum(half.loss(high)[0] + shrunk, 0.0)
    below = np.maximum(shrunk - half.loss(low)[0], 0.0)
    decays, grows = np.maximum(-b.real, 0.0), np.maximum(b.real, 0.0)
    log_most = np.array(
        [
            float((power * above + falling * below + growing * above + density).max())
            for power, falling, growing in zip(a.real, decays, grows, strict=True)
        ]
    )
    # 8 M rho^-48 / (1 - 1/rho) a panel, rho = 4, for a half-width of `width`
    panels = math.log(8 * 4 * width * len(left) / (1 - 1 / 4)) - 2 * _POINTS * math.log(4)
    bound: Array = log_most + 2 * angle * (np.abs(a.imag) + np.abs(b.imag)) + panels
    return bound


# -----------------------------------------------------------------------------
# How the moments of a pair fall between two ends, from their values there.
#
# Let phi be the characteristic function of the loss under the law tilted by ``e^{cL}``, and V its
# variance. ``G = |phi|^2`` is that of the difference of two independent such losses, whose variance
# is 2 V, so ``|G''| <= 2 V``: between two ends d apart G exceeds the larger of its values there by
# at most ``V d^2 / 4``.


_MULTIPLE = 400.0
"""Beyond so many times one over the standard deviation nothing is computed."""


def decay_by_values(pair: Pair, tilt: float, starts: Array, stops: Array) -> Array:
    """Return bounds of ``log |M(tilt + it) / M(tilt)|`` for t between rising starts and stops."""
    bound, variance = np.zeros(len(starts)), tilted_variance(pair, tilt)
    # what V d^2 / 4 leaves nothing of is not asked for
    useful = (variance * (stops - starts) ** 2 < 2) & (stops * math.sqrt(variance) < _MULTIPLE)
    if not useful.any():
        return bound
    ends = np.concatenate([starts[useful], stops[useful]])
    moments = pair.log_moment(np.append(tilt, tilt + 1j * ends).astype(np.complex128))
    if moments is None or not moments[1][0] < 0.1:
        return bound
    value, error = moments
    logs = 2 * (value.real[1:] + error[1:] - value.real[0] + error[0])
    square = np.exp(np.minimum(0.0, np.where(np.isfinite(logs), logs, 0.0))) * (1 + 64 * UNIT)
    left, right = np.split(square, 2)
    between = np.maximum(left, right) + variance * (stops - starts)[useful] ** 2 / 4
    bound[useful] = np.log(np.minimum(1.0, between * (1 + 8 * UNIT))) / 2 * (1 - 8 * UNIT)
    return bound


def decays_by_values(
    spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
) -> Array:
    """Return the sum over pairs of the better one of `decay_by_values` and of what holds beyond."""
    total = np.zeros(len(starts))
    for pair, times in spends:
        beyond = pair.decay(tilt, starts)
        total += times * np.minimum(beyond, decay_by_values(pair, tilt, starts, stops))
    return total * (1 - 1e-12)


def tilted_variance(pair: Pair, tilt: float) -> float:
    """Return an upper bound of the loss's variance under the law tilted by ``e^{tilt L}``.

    For any m and h, ``E (L - m)^2 <= 2 (E cosh(h (L - m)) - 1) / h^2``, of moments at tilt +- h.
    """
    best = math.inf
    for h in (1.0, 0.1, 1e-2):
        moments = pair.log_moment(np.array([tilt, tilt - h, tilt + h], dtype=np.complex128))
        if moments is None or not np.all(moments[1] < 0.05):
            continue
        middle, left, right = moments[0].real.tolist()
        slack = float(moments[1].sum()) + 8 * UNIT * (1 + abs(left) + abs(middle) + abs(right))
        # log of E cosh(h (L - m)) at the m at which both exponentials are equal
        spread = (left + right) / 2 - middle
        if spread < 300:
            best = min(best, 2 * math.expm1(max(0.0, spread) + 2 * slack) / (h * h))
    return best * (1 + 1e-9) if best < math.inf else 1e300


# -----------------------------------------------------------------------------
# How the moments of a law with a density fall, from values near the axis and uniform parts beyond.
#
# Where the density of the loss under the tilted law is at least a step function, the law is a
# mixture of uniform ones, the layers of that function, and of a rest. A uniform law on an interval
# of length d has the characteristic function ``sin(td/2) / (td/2)``, any rest one of modulus at
# most 1, so that ``|phi(t)| <= 1 - sum lambda (1 - |sinc(td/2)|)``.


def suprema(
    square: Callable[[Array], Array],
    uniform: Callable[[Array], Array],
    variance: float,
    first: float,
    last: float,
) -> tuple[Array, Array]:
    """Return points t, ``first`` the first, and bounds of ``log |phi|`` from each of them on.

    The last is ``last``, or four over the standard deviation if that is less.

    Parameters
    ----------
    square
        Upper bounds of ``|phi(t)|^2``.
    uniform
        Bounds of ``log |phi|`` from a point on.
    variance
        An upper bound of the loss's variance.
    """
    last = max(1.01 * first, min(last, 4 / math.sqrt(variance)))
    t = np.geomspace(first, last, 2 + math.ceil(3 * math.log(last / first)))
    squares = square(t)
    for _ in range(6):  # halve the gaps that cost more than a tenth of what is gained
        gap = variance * np.diff(t) ** 2 / 4
        wide = np.flatnonzero(gap > 0.1 * (1 - np.maximum(squares[1:], squares[:-1])))
        if not len(wide) or len(t) > 200:
            break
        middle = (t[wide] + t[wide + 1]) / 2
        place = np.searchsorted(t, middle)
        squares = np.insert(squares, place, square(middle))
        t = np.insert(t, place, middle)
    # |G''| <= 2 V: between two points G exceeds the larger end by at most V d^2 / 4
    between = np.maximum(squares[1:], squares[:-1]) + variance * np.diff(t) ** 2 / 4
    last_square = float(np.exp(2 * uniform(t[-1:]))[0])
    # from each point on: the largest of what follows, and of the uniform bound beyond the last
    most = np.maximum.accumulate(np.append(between, last_square)[::-1])[::-1]
    logs = np.log(np.clip(most * (1 + 4 * UNIT) + 1e-300, 0.0, 1.0)) / 2
    return t, np.minimum(0.0, logs + 4 * UNIT)


def decay_of_parts(weight: Array, width: Array, beyond: Array) -> Array:
    """Return ``log(1 - sum lambda (1 - |sinc|))`` of uniform parts, from each point on."""
    lost = np.einsum("ij,j->i", _one_less_sinc(beyond[:, None] * (width / 2)), weight) * (1 - 1e-7)
    bound: Array = np.log1p(-np.clip(lost, 0.0, 1 - 1e-12))
    return bound


def decay_from_points(
    points: tuple[Array, Array], parts: tuple[Array, Array], beyond: Array
) -> Array:
    """Return the lesser bound from each t on: that of `suprema`, or that of uniform parts."""
    (starts, bounds), t = points, np.ravel(beyond)
    seen = bounds[np.maximum(np.searchsorted(starts, t, side="right") - 1, 0)]
    return np.minimum(decay_of_parts(*parts, t), seen).reshape(np.shape(beyond))


def _one_less_sinc(u: Array) -> Array:
    """Return a lower bound of ``1 - |sin v / v|`` for every ``v >= u``.

    ``sin v / v`` falls to its first minimum, of modulus below 0.2173, at 4.4934; afterwards it
    is at most ``1 / v``.
    """
    near = u * u / 6 * (1 - u * u / 20)  # sin v / v <= 1 - v^2/6 + v^4/120
    with np.errstate(divide="ignore", invalid="ignore"):
        middle = np.minimum(1 - np.sin(u) / u, 1 - 0.2173)
        far = np.maximum(1 - 1 / u, 1 - 0.2173)
    return np.where(u < 1, near, np.where(u < 4.4934, middle, far))


def uniform_parts(log_height: Array, loss: Array) -> tuple[Array, Array]:
    """Return the weights and widths of the layers of a step function.

    Parameters
    ----------
    log_height
        Logs of lower bounds of the density of the loss, between each two of its values.
    loss
        Rising values, one more, each within 16 units of its size.
    """
    width = np.diff(loss)
    # of a narrower cell the width is not known within 1e-8
    usable = (width > 1e-6 * (np.abs(loss[1:]) + 1e-300)) & np.isfinite(log_height)
    height = np.where(usable, np.exp(np.minimum(log_height, 600) - 1e-9), 0.0)
    heights = np.sort(height[height > 0])
    if not len(heights):
        return np.zeros(1), np.zeros(1)
    levels = np.unique(heights[np.linspace(0, len(heights) - 1, 16).astype(int)])
    edges = np.concatenate([[0.0], np.cumsum(width)])
    inside = np.zeros((len(levels), len(height) + 2), dtype=np.bool_)
    inside[:, 1:-1] = height >= levels[:, None]
    # each level's runs: they begin and end by turns, as no level begins or ends inside of one
    level, place = np.divmod(np.flatnonzero(inside[:, 1:] != inside[:, :-1]), len(height) + 1)
    run = edges[place[1::2]] - edges[place[::2]]
    # height times width of one uniform part: its mass
    return np.diff(levels, prepend=0.0)[level[::2]] * run, run


def symmetric_decay(pair: Pair, half: Half, tilt: float, beyond: Array) -> Array:
    """Return bounds of ``log |M(tilt + it') / M(tilt)|`` for ``t' >= t`` of a symmetric pair."""
    parts = _symmetric_parts(pair, half, tilt)
    if not parts[0].any():
        return np.zeros_like(beyond)
    points = _symmetric_suprema(pair, half, tilt, float(beyond.min()), float(beyond.max()))
    return decay_from_points(points, parts, beyond)


@lru_cache(maxsize=256)
def _symmetric_suprema(
    pair: Pair, half: Half, tilt: float, first: float, last: float
) -> tuple[Array, Array]:
    def square(t: Array) -> Array:
        points = np.asarray(tilt + 1j * np.concatenate([[0.0], t]), dtype=np.complex128)
        value, error = symmetric_log_moment(half, points)
        logs = value.real[1:] + error[1:] - value.real[0] + error[0]
        most = np.exp(np.minimum(0.0, np.where(np.isfinite(logs), 2 * logs, 0.0)))
        return np.asarray(most * (1 + 8 * UNIT), dtype=np.float64)

    def uniform(t: Array) -> Array:
        return decay_of_parts(*_symmetric_parts(pair, half, tilt), t)

    return suprema(square, uniform, tilted_variance(pair, tilt), first, last)


@lru_cache(maxsize=256)
def _symmetric_parts(pair: Pair, half: Half, tilt: float) -> tuple[Array, Array]:
    """Return the uniform parts of the loss under the law tilted by ``e^{tilt L}``.

    A loss w has the density ``e^w f / w'`` under P, and its opposite ``f / w'``.
    """
    value, error = symmetric_log_moment(half, np.array([tilt], dtype=np.complex128))
    if not error[0] < 0.1:
        return np.zeros(1), np.zeros(1)
    end = half.end(max(1.0, 1 + tilt, -tilt))
    s = np.linspace(0.0, end, 1 + max(160, min(2000, math.ceil(10 * end))))
    loss = half.loss(s)[0]
    # the density of s falls; the exponential is least at an end
    with np.errstate(divide="ignore"):
        least = half.log_density(s)[1:] - np.log(half.slope(s[:-1], s[1:]))
    least = least - (float(value[0].real) + float(error[0])) - 1e-9
    above, below = (
        least + np.minimum(power * loss[:-1], power * loss[1:]) for power in (1 + tilt, -tilt)
    )
    heights = np.concatenate([below[::-1], above])
    return uniform_parts(heights, np.concatenate([-loss[:0:-1], loss]))


def convexity(divergences: Array, orders: Array, rate: float) -> Array:
    """Return the divergences of ``(1-q) B + q A`` and ``(1-q) B + q A'``, from those of A and A'.

    ``e^{(a-1) D_a}`` is jointly convex: ``1 - q + q e^{(a-1) D_a}``, rounded up.
    """
    with np.errstate(over="ignore"):
        exponent = (orders - 1) * divergences
        # log(1 - q + q e^{(a-1) D}); what is subnormal is rounded by the least of numbers
        small = np.log1p(rate * np.expm1(np.minimum(exponent, 700))) + 2e-323
    return up(np.where(exponent < 600, small, exponent) / (orders - 1), 16)
