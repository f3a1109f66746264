"""The losses of noise that is cut off: truncated Laplace and truncated Gaussian noise.

Noise drawn on ``[-A, A]``, with the density of Laplace or Gaussian noise there, is added to a query
of sensitivity Delta. It is never pure: beyond ``A``, and below ``Delta - A``, outcomes are possible
under one law alone. Both have the same mass F, which so is the delta floor; where both laws
live, on ``[Delta - A, A]``, the loss is that of the noise itself. The noise is symmetric, so that
the two directions are alike, and log-concave: a smaller shift is told apart less well, and a vector
costs at most what one coordinate does that shifts by the l1 sensitivity
(`accountants.losses.discrete.DiscreteLaplace` says why). So is noise with a larger A: with G the
distribution function without bounds and H the hockey-stick without, that at ``t >= 1`` is
``((1 - t) G(A) + t - 1 + H) / (2 G(A) - 1)``, which falls in G(A).

Noise that is drawn on the whole line and a *result* that is cut to a range afterwards is something
else: post-processing, which costs what the noise does (`Laplace`, `Gaussian`). Cutting the *noise*
to its bounds (all that lies beyond A released as A) is neither: then the two ends tell the data
apart, each by the probability of being cut, and no loss here covers it.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.definitions import pure_to_renyi
from accountants.errors import DomainError, InapplicableError, integer, positive
from accountants.loss import PrivacyLoss, _profile
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    bracket,
    ceiling,
    down,
    expm1,
    flooring,
    up,
)
from accountants.pair import LooseBound, Pair, Symmetric, right_half

_DIGITS = Context(prec=80)

_LARGEST = 600.0
"""Noise with a larger pure epsilon beside its delta floor is refused, for the floats' sake."""


def _checked_bound(name: str, size: float, bound: float) -> None:
    if not (bound >= 1 and 1e-12 <= size <= _LARGEST and size * bound <= 1e12):
        raise DomainError(
            f"{name} needs noise up to at least the sensitivity (a bound from 1 on, in "
            f"sensitivities), and a size from 1e-12 to {_LARGEST:g}, got {size!r} and {bound!r}"
        )


def _grouped(shift: float, bound: float, size: int, most: float) -> tuple[float, float]:
    """Return ``size`` times the shift, rounded up, and the bound in units of it.

    Refused if the bound is less than ``size``, or the shift above ``most``.

    The interval, ``shift * bound``, must not grow by the rounding of either: a wider one is less
    than what was promised. A bound of 1 may widen it, to the larger shift itself: there the floor
    is 1/2 at every shift, and what is told apart beside it rises in the shift.
    """
    farther = ceiling(Fraction(shift) * size)
    if Fraction(bound) < size or farther > most:
        raise InapplicableError(
            f"noise cut off at {bound} sensitivities has no group privacy for {size} units; "
            "draw it from a wider interval"
        )
    return farther, max(1.0, flooring(Fraction(shift) * Fraction(bound) / Fraction(farther)))


# -----------------------------------------------------------------------------
# Truncated Laplace noise.


def _epsilon(value: float) -> float:
    return positive("TruncatedLaplace.epsilon", value)


def _laplace_bound(value: float) -> float:
    return positive("TruncatedLaplace.bound", value)


@frozen
class TruncatedLaplace(PrivacyLoss):
    """Adding Laplace noise of scale b that is drawn from ``[-A, A]`` alone.

    With ``epsilon = Delta / b`` it is (epsilon, F)-DP, ``F = (e^epsilon - 1) / (2 (e^(A/b) - 1))``:
    for a delta, ``A = b log(1 + (e^epsilon - 1) / (2 delta))``.

    Parameters
    ----------
    epsilon
        ``Delta / b``, from 1e-12 to 600, in nats; the pure epsilon beside the delta floor.
    bound
        ``A / Delta``, at least 1 (below, the laws are told apart half of the time).

    References
    ----------
    Geng, Ding, Guo and Kumar 2020, Thm 1 (F); derived in the section above and in
    `TruncatedLaplacePair`.

    Examples
    --------
    >>> loss = TruncatedLaplace(epsilon=1.0, bound=12.0)
    >>> round(loss.delta_floor() * 1e6, 4), loss.pure()
    (5.2788, 1.0)
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "truncated Laplace noise: Geng, Ding, Guo & Kumar 2020, Thm 1"

    epsilon: float = field(converter=_epsilon)
    bound: float = field(converter=_laplace_bound)

    def __attrs_post_init__(self) -> None:
        _checked_bound("TruncatedLaplace", self.epsilon, self.bound)

    def delta_floor(self) -> float:
        """Return F, rounded up from 80 digits."""
        eps, reach = Decimal(self.epsilon), Decimal(self.epsilon) * Decimal(self.bound)
        if self.epsilon * self.bound > 2000:  # below e^-1400, the least float
            return 5e-324
        grown, whole = (_DIGITS.exp(x) - 1 for x in (eps, reach))
        return min(1.0, ceiling(Fraction(_DIGITS.divide(grown, 2 * whole))))

    def pair(self) -> Pair:
        """Return the pair where both laws live."""
        return TruncatedLaplacePair(self.epsilon, self.bound)

    def pure(self) -> float:
        """Return epsilon, which holds beside the delta floor."""
        return self.epsilon

    def profile(self, epsilon: float) -> Bounds:
        """Return ``F + (1 - F) delta'``, F alone from epsilon on."""
        lost = self.delta_floor()
        if epsilon >= self.epsilon:
            return Bounds(max(0.0, down(lost)), lost)
        return _profile(self.pair(), lost, epsilon)

    def grouped(self, size: int) -> TruncatedLaplace:
        """Return the loss of ``size`` times the sensitivity: shifts add."""
        k = integer("group size", size)
        if k == 1:
            return self
        shift, bound = _grouped(self.epsilon, self.bound, k, _LARGEST)
        # what a group attains: the shift from below, noise from no narrower an interval
        less = flooring(Fraction(self.epsilon) * k)
        wide = ceiling(Fraction(self.epsilon) * Fraction(self.bound) / Fraction(less))
        return _TruncatedLaplaceGroup(shift, bound, attained=TruncatedLaplace(less, wide))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by shift and by bound, in units of b: a tighter bound tells more."""
        if not isinstance(other, TruncatedLaplace):
            return False
        reach = [Fraction(each.epsilon) * Fraction(each.bound) for each in (self, other)]
        return reach[0] <= reach[1] and self.epsilon >= other.epsilon


@frozen
class _TruncatedLaplaceGroup(TruncatedLaplace):
    """The loss of a group, rounded up, with the lower ends of one that is rounded down."""

    attains_group: ClassVar[bool] = True

    attained: TruncatedLaplace = field(kw_only=True)

    def pair(self) -> Pair:
        """Return the pair, as an upper bound."""
        return LooseBound(super().pair())

    def attained_pair(self) -> Pair:
        """Return that of a little less; what is told apart beside it only adds."""
        return self.attained.pair()

    def profile(self, epsilon: float) -> Bounds:
        """Return the profile, from below that of a little less."""
        low = self.attained.profile(epsilon).lower
        return bracket(low, TruncatedLaplace.profile(self, epsilon).upper)


@frozen
class TruncatedLaplacePair(Symmetric):
    """Both laws given an outcome that is possible under both; the same reversed.

    With ``u = e^(-A/b)`` and ``n = 1 - u (1 + e^eps) / 2``, L has mass ``a = (1 - u e^eps) / (2n)``
    at eps and ``a e^-eps`` at -eps under P, and the density ``e^((l - eps) / 2) / (4n)`` between.
    So with ``w = z + 1/2``,

    ``E_P e^{zL} = e^{z eps} (a (1 + e^{-2w eps}) + (1 - e^{-2w eps}) / (4 w n))``.
    """

    epsilon: float
    bound: float

    def _parts(self) -> tuple[float, float]:
        """Return ``1 - u e^eps`` and 2n, both positive sums, within 8 units."""
        beyond = Fraction(self.epsilon) * (Fraction(self.bound) - 1)
        top = -math.expm1(-float(beyond))
        return top, top - math.expm1(-self.epsilon * self.bound)

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails; of P ``(2 - e^((l - eps)/2) - u e^eps) / (2n)`` inside."""
        eps = self.epsilon
        top, twice = self._parts()
        reach = Fraction(eps) * Fraction(self.bound)
        inside = np.clip(loss, -eps, eps)
        p = (-np.expm1((inside - eps) / 2) + top) / twice
        # e^(-(l + eps) / 2) - u
        ahead = (eps - inside) / 2
        rest = float(reach - Fraction(eps))
        q = np.exp(-(inside + eps) / 2) * -np.expm1(-(rest + ahead)) / twice
        p, q = np.where(loss < -eps, 1.0, p), np.where(loss < -eps, 1.0, q)
        return np.where(loss < eps, p, 0.0), np.where(loss < eps, q, 0.0)

    def tail_error(self) -> float:
        """Return that of an exponential of up to epsilon and a few sums."""
        return (48 + 4 * self.epsilon) * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def spacing(self) -> float | None:
        """Return epsilon where there are atoms: both are multiples of it."""
        return self.epsilon if self.bound > 1 else None

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula."""
        z, slip = right_half(z)
        eps = self.epsilon
        top, twice = self._parts()
        w = z + 0.5
        w = np.where(w == 0, 1e-9, w)  # M is even and entire in w: there it moves by (w eps)^2
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            fall = expm1(-2 * w * eps)
            rest = top * (2 + fall) - fall / (2 * w)
            # of each term, and of the exponent, 2 w eps within 4 units
            size = top * (2 + np.abs(fall)) + np.abs(fall / (2 * w))
            wrong = 40 * size + 8 * np.abs(w) * eps * (top + 1 / (2 * np.abs(w)))
            moved = wrong * UNIT / np.abs(rest) + 1e-18 * eps * eps
            value = z * eps + np.log(rest / twice)
            error = 2 * moved + 8 * UNIT * (4 + np.abs(value) + np.abs(z) * eps)
        return value, np.where(moved < 0.5, error, np.inf) + slip * eps

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the log of ``top (1 + e) + (1 + e) / (2 |w|)``, e = e^{-2 a eps}, over M(tilt)."""
        a, (top, _) = abs(tilt + 0.5), self._parts()
        far = math.exp(-2 * a * self.epsilon)
        slope = -math.expm1(-2 * a * self.epsilon) / (2 * a) if a > 1e-9 else self.epsilon
        most = (1 + far) * (top + 0.5 / np.hypot(a, beyond))
        least = (top * (1 + far) + slope) * (1 - 1e-9)
        return np.minimum(0.0, np.log(most / least))


# -----------------------------------------------------------------------------
# Truncated Gaussian noise.


def _shift(value: float) -> float:
    return positive("TruncatedGaussian.mu", value)


def _gaussian_bound(value: float) -> float:
    return positive("TruncatedGaussian.bound", value)


@frozen
class TruncatedGaussian(PrivacyLoss):
    """Adding Gaussian noise of standard deviation sigma that is drawn from ``[-A, A]`` alone.

    With ``mu = Delta / sigma`` and ``a = A / sigma``, the floor is ``F = (Phi(a) - Phi(a - mu))
    / (2 Phi(a) - 1)``, and beside it the loss is at most ``mu a - mu^2 / 2``.

    ``rho = mu^2 / 2`` holds beside the delta floor: where both live, the laws are an exponential
    family with the parameters mu and 0, whose log-partition has the normal law's values at both
    (they have the same mass there), and whose second derivative is the variance of a normal law
    on an interval, at most 1.

    Parameters
    ----------
    mu
        ``Delta / sigma``, from 1e-9 to 40.
    bound
        ``A / Delta``, at least 1.

    References
    ----------
    Derived in the section above; Brascamp and Lieb 1976, Thm 4.1 (the variance).

    Examples
    --------
    >>> loss = TruncatedGaussian(mu=0.5, bound=10.0)
    >>> round(loss.delta_floor() * 1e6, 4), round(loss.pure(), 3)
    (3.111, 2.375)
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "truncated Gaussian noise: derived; Brascamp & Lieb 1976, Thm 4.1"

    mu_: float = field(converter=_shift, alias="mu")
    bound: float = field(converter=_gaussian_bound)

    def __attrs_post_init__(self) -> None:
        if not (1e-9 <= self.mu_ <= 40 and 1 <= self.bound <= 1e9):
            raise DomainError(
                "TruncatedGaussian needs noise up to at least the sensitivity (a bound from 1 on, "
                f"in sensitivities), and a mu from 1e-9 to 40, got {self.bound!r} and {self.mu_!r}"
            )

    def delta_floor(self) -> float:
        """Return F, rounded up."""
        return min(1.0, up(self._lost() * (1 + _ERROR)))

    def _lost(self) -> float:
        """Return F, within a relative `_ERROR`."""
        a = self.mu_ * self.bound
        out, whole = _between(np.array([a - self.mu_, -a]), np.array([self.mu_, 2 * a]))
        return float(out / whole)

    def pair(self) -> TruncatedGaussianPair:
        """Return the pair where both laws live."""
        return TruncatedGaussianPair(self.mu_, self.bound)

    def attained_pair(self) -> TruncatedGaussianPair:
        """Return the pair: what is told apart beside it only adds."""
        return TruncatedGaussianPair(self.mu_, self.bound, tight=True)

    def pure(self) -> float:
        """Return ``mu a - mu^2 / 2``, which holds beside the delta floor."""
        return self.pair().top()

    def rho(self) -> float:
        """Return ``mu^2 / 2``, beside the delta floor."""
        return ceiling(Fraction(self.mu_) ** 2 / 2)

    def renyi(self, orders: Array) -> Array:
        """Return the lesser of rho's and the pure epsilon's, beside the delta floor."""
        return np.minimum(up(orders * self.rho(), 2), pure_to_renyi(self.pure(), orders))

    def profile(self, epsilon: float) -> Bounds:
        """Return ``F + (1 - F) delta'`` at both ends."""
        low, high = self.pair().profile(np.array([epsilon]))
        least, most = self._lost() * (1 - _ERROR), self.delta_floor()
        lower, upper = (f + (1 - f) * float(d) for f, d in ((least, low[0]), (most, high[0])))
        return Bounds(max(0.0, down(lower, 4)), min(1.0, up(upper, 4)))

    def grouped(self, size: int) -> TruncatedGaussian:
        """Return the loss of ``size`` times the sensitivity: shifts add."""
        k = integer("group size", size)
        if k == 1:
            return self
        shift, bound = _grouped(self.mu_, self.bound, k, 40)
        return TruncatedGaussian(shift, bound)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by shift and by bound, in units of sigma: a tighter bound tells more."""
        if not isinstance(other, TruncatedGaussian):
            return False
        reach = [Fraction(each.mu_) * Fraction(each.bound) for each in (self, other)]
        return reach[0] <= reach[1] and self.mu_ >= other.mu_


@frozen
class TruncatedGaussianPair(Symmetric):
    """Both laws given an outcome that is possible under both; the same reversed.

    The outcome x, in standard deviations, is in ``[mu - a, a]``, with the density of N(mu, 1) under
    P and of N(0, 1) under Q, by the same factor; ``L = mu x - mu^2 / 2``.
    """

    mu: float
    bound: float
    tight: bool = False

    def is_tight(self) -> bool:
        """Return ``tight``: beside the delta floor, which is rounded, it is a bound."""
        return self.tight

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the normal laws' masses between x and a."""
        mu, a = self.mu, self.mu * self.bound
        x = np.clip(loss / mu + mu / 2, mu - a, a)
        (whole,) = _between(np.array([mu - a]), np.array([2 * a - mu]))
        every, none = loss < -self.top(), x >= a
        p = np.where(every, 1.0, np.minimum(1.0, _between(x - mu, a - x) / whole))
        q = np.where(every, 1.0, np.minimum(1.0, _between(x, a - x) / whole))
        return np.where(none, 0.0, p), np.where(none, 0.0, q)

    def tail_error(self) -> float:
        """Return that of two normal masses, and of x: see `_between`."""
        return 2 * _ERROR + 16 * UNIT * (1 + self.mu) ** 2

    def top(self) -> float:
        """Return ``mu a - mu^2 / 2``, rounded up."""
        return ceiling(Fraction(self.mu) ** 2 * (Fraction(self.bound) - Fraction(1, 2)))


_ERROR = 3e-12
"""More than the relative error of a normal mass above 1e-300."""


def _between(low: Array, width: Array) -> Array:
    """Return the standard normal masses of intervals, each within a relative 3e-12 and 1e-300.

    Narrow ones by Gauss's rule of 8 points: on a width of h, ``h (1 + |x|) <= 1/4``, its remainder
    is below ``(h/2)^16`` times the density.
    """
    # on the upper side, where the tails keep their digits
    low = np.where(2 * low + width < 0, -(low + width), low)
    beyond = special.ndtr(-(low + width))
    wide = special.ndtr(-np.abs(low))
    wide = np.where(low >= 0, wide, 1 - wide) - beyond
    nodes, weights = _rule()
    narrow = width * (1 + np.abs(low + width / 2)) <= 0.25
    half = np.where(narrow, width / 2, 0.0)
    x = (low + half)[..., None] + half[..., None] * nodes
    inside: Array = half * (np.exp(-x * x / 2) @ weights) / math.sqrt(2 * math.pi)
    return np.where(narrow, inside, np.maximum(wide, 0.0))


@cache
def _rule() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(8)
    return nodes, weights
