"""The loss of the exponential mechanism: a log-likelihood ratio of bounded range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.complexes import Complex, expm1, log1p
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss
from accountants.pair import Pair, Symmetric, right_half, summed
from accountants.rounding import UNIT, Array, down, up


def _epsilon(value: float) -> float:
    return nonnegative("BoundedRange.epsilon", value)


@frozen
class BoundedRange(PrivacyLoss):
    r"""A log-likelihood ratio in ``[t - epsilon, t]``, for a t that each pair of neighbours has.

    The exponential mechanism with density proportional to ``e^{c q}`` has it, for scores q that
    move by at most Delta: ``epsilon = 2 c Delta``, or ``c Delta`` where all of the scores move
    the same way (monotone). Any neighbour relation; ratios over a chain of neighbours add their
    ranges, so a group of k has k times the range.

    Profile: among the ratios with a given range the hockey-stick, convex in the ratio, is largest
    for the two at its ends, and there ``(e^eps - e^t)(1 - e^{s-t})/(e^eps - 1)`` at any real s in
    the range. The best t is ``(eps + s)/2``, for each s another:
    ``delta(s) = (1 - e^{(s-eps)/2})^2 / (1 - e^{-eps})`` for |s| <= eps.

    Renyi: with ``k(x) = log(sinh(x/2)/(x/2))`` the best t of each order alpha gives
    ``(alpha-1) D_alpha = alpha k(alpha eps) - (alpha-1) k((alpha-1) eps) - k(eps)``.

    ``rho = k(eps) + eps k'(eps)``, the limit of D_alpha at alpha = 1, below ``eps^2/8``. Since
    ``k(x) = sum_n log(1 + x^2/(2 pi n)^2)``, it is enough that, for c > 0 and alpha >= 1,
    ``g(a) = a (a-1) (log(1+c) + 2c/(1+c)) + (a-1) log(1 + c (a-1)^2) + log(1+c) - a log(1 + c
    a^2)`` is not negative. g and g' vanish at 1; g'' is twice the bracket less ``q(a) - q(a-1)``,
    ``q(x) = 2cx/(1+c x^2) + 4cx/(1+c x^2)^2``, whose slope falls, crosses 0 once, and rises
    again below 0: so ``q(a) - q(a-1) <= q(1)``, and q(1) is at most twice the bracket.

    Parameters
    ----------
    epsilon
        Non-negative, in nats: the range, and the pure epsilon.

    References
    ----------
    Durfee and Rogers 2019 (bounded range); Dong, Durfee and Rogers 2020 (the two-point pairs);
    Cesar and Rogers 2021, Lemma 3.4 (``rho <= eps^2/8``).

    Examples
    --------
    >>> loss = BoundedRange(epsilon=1.0)
    >>> loss.pure(), round(loss.rho(), 6), round(loss.profile(0.0).upper, 6)
    (1.0, 0.123302, 0.244919)
    """

    theorem: ClassVar[str] = (
        "bounded range: Durfee & Rogers 2019; Dong, Durfee & Rogers 2020; Cesar & Rogers 2021"
    )

    epsilon: float = field(converter=_epsilon)

    def pair(self) -> BoundedRangePair:
        """Return the pair whose profile is the largest of all t, at each epsilon."""
        return BoundedRangePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon: the ratio's expectation is 1, so its range has 0 inside."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return the largest of all t, below what the pair would give."""
        return _curve(self.epsilon, self.rho(), orders)

    def rho(self) -> float:
        """Return ``k(eps) + eps k'(eps)``."""
        eps = self.epsilon
        if eps < 0.1:  # the series alternates: cutting it after a positive term bounds it
            # the series of k(eps) + eps k'(eps)
            return up(eps**2 / 8 - eps**4 / 576 + 7 * eps**6 / 181440, 16) if eps else 0.0
        half = eps / 2
        log_sinhc = half + math.log(-math.expm1(-eps) / eps)
        return up(log_sinhc + (half / math.tanh(half) - 1)) + 16 * UNIT * (1 + eps)

    def profile(self, epsilon: float) -> Bounds:
        """Return the profile: at each point some exponential mechanism attains it."""
        eps = self.epsilon
        if epsilon >= eps:
            return Bounds(0.0, 0.0)
        if epsilon <= -eps:
            exact = -math.expm1(epsilon)
        else:
            # the largest over all t of the two-point pairs' profiles
            exact = math.expm1((epsilon - eps) / 2) ** 2 / -math.expm1(-eps)
        return Bounds(max(0.0, down(exact, 16)), min(1.0, up(exact, 16)))

    def grouped(self, size: int) -> BoundedRange:
        """Return ``BoundedRange(size * epsilon)``: the ranges of a chain of ratios add."""
        k = whole("group size", size)
        return BoundedRange(up(self.epsilon * k, 2) if k > 1 else self.epsilon)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order bounded ranges by epsilon."""
        return self == other or (isinstance(other, BoundedRange) and self.epsilon >= other.epsilon)


def _log_sinhc(x: Array) -> tuple[Array, Array]:
    """Return ``k(x) = log(sinh(x/2)/(x/2))`` and a bound of its error, x being off by 2 UNIT.

    Where x < 1, by the Taylor series of sinhc in ``y = (x/2)^2`` up to ``y^6``: it leaves less
    than a unit, and ``x k'(x) <= 2 k(x)``; elsewhere ``x k'(x) <= x/2``.
    """
    y = x * x / 4
    series = y / 6 * (1 + y / 20 * (1 + y / 42 * (1 + y / 72 * (1 + y / 110 * (1 + y / 156)))))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = x / 2 + np.log(-np.expm1(-x) / x)
        near = np.log1p(series)
        return np.where(x < 1, near, far), UNIT * np.where(x < 1, 32 * near, 16 + 8 * x)


def _curve(eps: float, rho: float, orders: Array) -> Array:
    """Return the divergences: the formula, or where it cancels ``rho alpha``; at most eps."""
    less = orders - 1
    if eps == 0:
        return np.zeros(np.shape(orders))
    with np.errstate(over="ignore", invalid="ignore"):
        first, wrong_first = _log_sinhc(orders * eps)
        second, wrong_second = _log_sinhc(less * eps)
        third, wrong_third = _log_sinhc(np.full(np.shape(orders), eps))
        # the three terms' errors, and the rounding of their sum
        wrong = orders * wrong_first + less * wrong_second + wrong_third
        wrong = wrong + 4 * UNIT * (orders * first + less * second + third)
        exact = (orders * first - less * second - third + wrong) / less
        # both are proven, so the smaller holds; not a number where the formula overflows
        curve: Array = np.fmin(up(exact), up(orders * rho))
    return np.minimum(curve, eps)


@frozen
class BoundedRangePair(Symmetric):
    """The pair of the largest profile: L has no atoms, and the same law reversed.

    Under P its density is ``e^{l/2}/(4 sinh(eps/2))`` on [-eps, eps]. With w = z + 1/2,

    ``E_P e^{zL} = sinh(w eps) / (2 w sinh(eps/2))``.

    No exponential mechanism has this pair: each profile value belongs to another one.
    """

    epsilon: float

    def attained(self) -> bool:
        """Return that it is not."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``(1 - e^{(l-eps)/2})/(1 - e^-eps)`` under P, ``e^{-(l+eps)/2}`` of it under Q."""
        eps = self.epsilon
        inside = np.clip(loss, -eps, eps)
        # (1 - e^{(l-eps)/2}) / (1 - e^-eps), by expm1 so that it keeps its digits
        p = np.expm1((inside - eps) / 2) / (math.expm1(-eps) if eps else -1.0)
        q = np.exp(-(inside + eps) / 2) * p
        p, q = np.where(loss < -eps, 1.0, p), np.where(loss < -eps, 1.0, q)
        return np.where(loss < eps, p, 0.0), np.where(loss < eps, q, 0.0)

    def tail_error(self) -> float:
        """Return that of an exponential of a difference."""
        return (16 + 4 * self.epsilon) * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula, near 1 from the moment less 1."""
        return self.log_moments(((self, 1),), z)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum over all, some hundred losses at a time."""
        return summed(spends, z, lambda pair: pair.epsilon, _log_moment)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bound from ``|sinh(x + iy)|^2 = sinh^2 x + sin^2 y``, x + iy = w eps.

        ``(sinh^2 x + sin^2 y)/(x^2 + y^2)`` falls in y up to pi/2, since ``y cos y <= sin y`` and
        ``x <= sinh x``; from there on sin y is bounded by 1.
        """
        x, y = abs(tilt + 0.5) * self.epsilon, self.epsilon * beyond
        sine = np.sin(np.minimum(y, math.pi / 2))
        if x > 1:
            grown = math.sinh(min(x, 300.0))
            bound = np.log1p((sine / grown) ** 2) - np.log1p((y / x) ** 2)
        else:
            sinh = math.sinh(x)
            sinhc = sinh / x if x > 0 else 1.0
            above, size = sinh * sinh + sine * sine, x * x + y * y
            bound = np.log(np.maximum(above, 1e-300) / np.maximum(size, 1e-300) / sinhc**2)
        result: Array = np.minimum(0.0, bound / 2 + 16 * UNIT * (1 + np.abs(bound)))
        return result


def _log_moment(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return log-moments, (n, m) for n losses at m points, and bounds of their errors."""
    z, slip = right_half(z)
    every = eps[:, None]
    near, far = _near(every, z), _far(every, z)
    small = near[1] < far[1]
    return np.where(small, near[0], far[0]), np.where(small, near[1], far[1]) + slip * every


def _near(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return the series of M - 1, where x = w eps and y = eps/2 are at most 1.

    ``sinhc(x) - sinhc(y) = sum_n (x^{2n} - y^{2n})/(2n+1)!``, each difference from the last:
    ``x^{2n+2} - y^{2n+2} = x^2 (x^{2n} - y^{2n}) + y^{2n} (x^2 - y^2)``, at most n+1 times the
    first, ``eps^2 z (z+1)``. So are their errors, and what twelve of them leave: 1e-26.
    """
    y = np.minimum(eps / 2, 1.0)
    x = (z + 0.5) * eps
    inside = (np.abs(x) <= 1) & (eps <= 2)
    x = np.where(inside, x, 0.0)
    first = np.where(inside, eps * eps * (z * (z + 1)), 0.0)
    difference, power, factorial, total = first, y * y, 6.0, first / 6
    for n in range(2, 13):
        difference = x * x * difference + power * first
        power = power * y * y
        factorial *= 2 * n * (2 * n + 1)
        total = total + difference / factorial
    sinhc = np.where(y > 0, np.sinh(y) / np.where(y > 0, y, 1.0), 1.0)
    # M - 1 = (sinhc(x) - sinhc(y)) / sinhc(y)
    less_one = (total / sinhc).astype(np.complex128)
    value, error = log1p(less_one, 64 * UNIT * np.abs(first))
    return value, np.where(inside, error + 1e-300, np.inf)


def _far(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return ``z eps + log((1 - e^{-2x})/(2x)) - log((1 - e^-eps)/eps)``, x = w eps."""
    x = (z + 0.5) * eps
    x = np.where(x == 0, 1e-200, x)  # M is even and entire in x
    grown = expm1(-2 * x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = np.where(eps > 0, -np.expm1(-eps) / np.where(eps > 0, eps, 1.0), 1.0)
        value = z * eps + np.log(grown / (-2 * x)) - np.log(scaled)
        # x is off by 4 UNIT of itself, and so is its exponential
        moved = UNIT * (80 + 16 * np.abs(x) * np.exp(-2 * x.real) / np.abs(grown))
        error = 2 * moved + 8 * UNIT * (1 + np.abs(z) * eps + np.abs(value))
    return value, np.where(moved < 0.5, error, np.inf)
