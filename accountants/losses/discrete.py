"""The losses of discrete mechanisms: discrete Gaussian, discrete Laplace, randomized response.

First sums over the integers of ``e^{-x^2/(2 sigma^2)}``: theta functions, and one-sided tails.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import evolve, field, frozen

from accountants import special
from accountants.errors import DomainError, integer, positive
from accountants.finite import FinitePair
from accountants.loss import PrivacyLoss, _profile, _renyi
from accountants.losses.laplace import LaplacePair, closer
from accountants.losses.pure import Pure, ResponsePair
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    RoundedUp,
    bracket,
    ceiling,
    cost,
    down,
    expm1,
    flooring,
    log1p,
    multiple,
    remembered,
    rounded_up,
    up,
)
from accountants.pair import Pair, Symmetric, right_half

_TERMS = np.arange(1.0, 6.0)
"""Terms of a theta function: with g >= pi the next, k = 6, is below e^{-30 pi} of the first."""


def log_theta_ratio(g: float, tau: Complex) -> tuple[Complex, Array]:
    """Return ``log(Theta(tau)/Theta(0))``, with ``Theta(tau) = sum_k e^{-g k^2 + k tau}``.

    Parameters
    ----------
    g
        At least 3.14, within 4 UNIT of what is meant.
    tau
        Each part within ``4 UNIT |tau|`` of what is meant.

    Returns
    -------
    tuple
        The logarithms, up to multiples of 2 pi i, and bounds of their errors.

    Notes
    -----
    ``Theta(tau) = e^{m (tau - m g)} Theta(tau - 2 m g)``: with m the integer nearest to
    ``Re tau/(2g)`` the first term is the largest, and the others are below ``e^{-g (k^2 - |k|)}``
    of it. For m = 0, ``Theta(tau) - Theta(0) = 4 sum_{k>0} e^{-g k^2} sinh^2(k tau/2)``, in which
    nothing cancels near 0.
    """
    # m shifts the sum's index so that the term k = 0 is the largest
    m = np.rint(tau.real / (2 * g))
    rest = tau - 2 * g * m
    slip = 8 * UNIT * (np.abs(tau) + 2 * g * np.abs(m))
    far = _far(g, rest, slip)
    near = _near(g, tau)
    moved = m * (tau - m * g)
    # both formulas are exact: at each point the one with the smaller error bound
    value = np.where(near[1] < far[1], near[0], moved + far[0])
    size = np.abs(m) * (np.abs(tau) + np.abs(m) * g)
    return value, np.minimum(near[1], far[1] + 16 * UNIT * size)


def _far(g: float, rest: Complex, slip: Array) -> tuple[Complex, Array]:
    total, wrong = np.zeros_like(rest), np.zeros(np.shape(rest))
    at_zero = 0.0
    for k in _TERMS:
        up, down = np.exp(-g * k * k + k * rest), np.exp(-g * k * k - k * rest)
        size = np.abs(up) + np.abs(down)
        steps = 16 + 8 * g * k * k + 4 * k * np.abs(rest)
        # each exponential: its own rounding, and tau off by `slip`
        total, wrong = total + (up + down), wrong + size * (UNIT * steps + 2 * k * slip)
        at_zero += 2 * math.exp(-g * k * k)
    # 1e-40 covers the terms left out, below e^{-30 pi} of the first
    value, error = log1p(total, wrong + 1e-40)
    return value - math.log1p(at_zero), error + 8 * UNIT * ((2 + g) * at_zero + np.abs(value))


def _near(g: float, tau: Complex) -> tuple[Complex, Array]:
    # only there is |sinh(k tau/2)| at most |k tau/2| cosh(k/2)
    inside = np.abs(tau) <= 1
    rest = np.where(inside, tau, 0.0)
    total, wrong, at_zero = np.zeros_like(rest), np.zeros(np.shape(rest)), 0.0
    for k in _TERMS:
        weight, sinh = math.exp(-g * k * k), np.sinh(k * rest / 2)
        total = total + 4 * weight * (sinh * sinh)
        # tau off by 4 UNIT of itself moves sinh by as much of |x| cosh x
        size = k * np.abs(rest) * math.cosh(k / 2)
        wrong = wrong + UNIT * (80 + 8 * g * k * k) * weight * size * size
        at_zero += 2 * weight
    wrong = wrong + 1e-40 * np.abs(rest) ** 2
    relative = (total / (1 + at_zero)).astype(np.complex128)
    value, error = log1p(relative, wrong + 8 * UNIT * np.abs(total))
    return value, np.where(inside, error, np.inf)


def upper_tail(sigma: float, least: Array) -> Array:
    """Return ``P(X >= n)`` at integers n, within 1e-12 of itself and 1e-300."""
    folded = np.maximum(least, 1 - least)  # X and -X have the same law; here n >= 1
    tails = _from_table(sigma, folded) if sigma <= _TABLED else _from_integral(sigma, folded)
    return np.where(least >= 1, tails, 1 - tails)


_TABLED = 2000.0


def _from_table(sigma: float, least: Array) -> Array:
    table = _table(sigma)
    return table[np.minimum(least, len(table) - 1).astype(np.intp)]


@remembered(64)
def _table(sigma: float) -> Array:
    """Return ``P(X >= n)`` for n = 0, 1, ... until it is 0 or below 1e-300.

    Masses are off by ``8 UNIT`` of their exponent, at most 720. Each sum from the end adds a
    unit of itself, in all ``sum_{m>=n} P(X >= m)``, at most ``sigma + 2`` times ``P(X >= n)``
    (the hazard of a log-concave law grows).
    """
    # e^{-38^2/2} is below 1e-300: nothing is left beyond 38 sigma
    count = math.ceil(38 * sigma) + 2
    points = np.arange(count, dtype=np.float64) / sigma
    masses = np.exp(-points * points / 2)
    # 1 for x = 0, and each other x with both signs
    total = 1 + 2 * float(np.sum(masses[:0:-1]))
    # sums from the far end: each tail keeps its relative precision
    return np.append(np.cumsum(masses[::-1])[::-1] / total, 0.0)


def _from_integral(sigma: float, least: Array) -> Array:
    """Return the tail by Euler and Maclaurin's midpoint formula, up to the third derivative.

    ``sum_{y>=n} h(y) = int h + h'/24 - 7 h'''/5760 + R`` from x = n - 1/2 on, for ``h(y) =
    e^{-y^2/(2 sigma^2)}``, with ``|R| <= 7e-5 int |h^(6)|``; ``|He_6(t)| <= (t^2+5)^3``, so that
    R is below ``7e-5 (1600/sigma^2)^3``, 1e-14, of the tail up to t = 38. The total is ``sigma
    sqrt(2 pi)`` but for ``e^{-2 pi^2 sigma^2}``.
    """
    # the integral starts at n - 1/2; beyond 1e3 the tail is 0 as a double
    t = np.minimum((least - 0.5) / sigma, 1e3)
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    square = sigma * sigma
    # the Euler-Maclaurin terms h'/24 and 7 h'''/5760, at t = (n - 1/2) / sigma
    corrected = density * (7 * t * (t * t - 3) / (5760 * square) - t / 24) / square
    tail: Array = special.ndtr(-t) + corrected
    return np.maximum(tail, 0.0)


# -----------------------------------------------------------------------------
# The discrete Gaussian loss: a normal law on the integers, added to an integer.


def _gaussian_sigma(value: float) -> float:
    return positive("DiscreteGaussian.sigma", value)


def _gaussian_sensitivity(value: int) -> int:
    return integer("DiscreteGaussian.sensitivity", value)


@frozen
class DiscreteGaussian(PrivacyLoss):
    """Adding noise with masses proportional to ``e^{-x^2/(2 sigma^2)}``, x an integer.

    The query is an integer of sensitivity Delta, or a vector of integers, with noise on each, of
    l1 sensitivity Delta: the noise is log-concave, so a vector costs no more than the sum of its
    shifts (as for `accountants.losses.discrete`). For vectors of l2 sensitivity Delta
    only the curve ``alpha Delta^2/(2 sigma^2)`` holds, coordinate by coordinate; declare a zCDP
    loss for those, not this one.

    ``D_alpha = alpha Delta^2/(2 sigma^2) + log(S((alpha-1) Delta)/S(0))/(alpha - 1)`` with
    ``S(c) = sum_y e^{-(y-c)^2/(2 sigma^2)}``, which is largest at integers c: there, so at every
    integer alpha, the continuous Gaussian's divergence is attained, and rho is the best.

    Parameters
    ----------
    sigma
        Positive; the parameter, not quite the standard deviation.
    sensitivity
        Delta, an integer from 1 to 2^52.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Thm 4 (zCDP), Prop. 5 (Renyi).

    Examples
    --------
    >>> DiscreteGaussian(sigma=2.0, sensitivity=2).rho()
    0.5
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "discrete Gaussian: Canonne, Kamath & Steinke 2020, Thm 4"

    grouped_is_tight: ClassVar[bool] = True

    sigma: float = field(converter=_gaussian_sigma)
    sensitivity: int = field(default=1, converter=_gaussian_sensitivity)

    def __attrs_post_init__(self) -> None:
        bounded = 1e-100 <= self.sigma <= 1e100 and self.sensitivity <= 2**52
        if not bounded:
            raise DomainError(
                "DiscreteGaussian needs a sigma from 1e-100 to 1e100 and a sensitivity of at most "
                f"2^52, got {self.sigma} and {self.sensitivity}; count in larger units"
            )

    def pair(self) -> DiscreteGaussianPair:
        """Return the noise shifted by the sensitivity, against the noise."""
        return DiscreteGaussianPair(self.sigma, self.sensitivity)

    def pure(self) -> None:
        """Return None: the likelihood ratio is unbounded."""

    def renyi(self, orders: Array) -> Array:
        """Return the exact divergence, or the continuous Gaussian's where rounding exceeds it."""
        value, error = self.pair().log_moment((orders - 1).astype(np.complex128))
        # Canonne, Kamath and Steinke 2020: S(c) <= S(0), so alpha rho bounds every order
        return np.fmin(up((value.real + error) / (orders - 1)), up(orders * self.rho()))

    def rho(self) -> float:
        """Return ``Delta^2 / (2 sigma^2)``."""
        return ceiling(Fraction(self.sensitivity) ** 2 / Fraction(self.sigma) ** 2 / 2)

    def grouped(self, size: int) -> DiscreteGaussian:
        """Return the loss of ``size`` times the sensitivity: shifts add."""
        return evolve(self, sensitivity=self.sensitivity * integer("group size", size))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by sensitivity, of the same noise."""
        if not isinstance(other, DiscreteGaussian):
            return False
        # the divergence grows with the shift of the same log-concave noise
        return self.sigma == other.sigma and self.sensitivity >= other.sensitivity


@frozen
class DiscreteGaussianPair(Symmetric):
    """The noise shifted by d = ``sensitivity``, against the noise; the same reversed.

    ``L = d (2y + d)/(2 sigma^2)`` with y the noise under P, and ``d (2y - d)/(2 sigma^2)`` under
    Q. With ``q = d^2/(2 sigma^2)`` and ``Theta(g, tau) = sum_k e^{-g k^2 + k tau}``,

    ``E_P e^{zL} = e^{z q} Theta(1/(2 sigma^2), z d/sigma^2) / Theta(1/(2 sigma^2), 0)
    = e^{z (z+1) q} Theta(2 pi^2 sigma^2, 2 pi i z d) / Theta(2 pi^2 sigma^2, 0)``,

    the second by Poisson's summation; at least one of the two g is pi or more.
    """

    sigma: float
    sensitivity: int

    def _half_square(self) -> float:
        """Return q, within 4 UNIT of itself."""
        ratio = self.sensitivity / self.sigma
        return ratio * ratio / 2

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the noise's tails from the least n with ``2n + d`` (or - d) above, on."""
        d = float(self.sensitivity)
        # L > l exactly where 2n +- d is above 2 l sigma^2 / d; rounding moves l by less than its
        # slip
        steps = np.floor(np.clip(2 * loss * (self.sigma / d) * self.sigma, -1e300, 1e300))
        p = upper_tail(self.sigma, np.floor((steps - d) / 2) + 1)
        q = upper_tail(self.sigma, np.floor((steps + d) / 2) + 1)
        return p, q

    def tail_error(self) -> float:
        """Return that of `upper_tail`."""
        return 2e-12

    def spacing(self) -> float:
        """Return ``d/sigma^2`` where d is even, else half of it, of which L is an odd multiple."""
        d = float(self.sensitivity)
        return d / self.sigma / self.sigma / (1 if self.sensitivity % 2 == 0 else 2)

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula whose g is larger."""
        d, square, q = float(self.sensitivity), self.sigma * self.sigma, self._half_square()
        # the series that converges faster: its g is pi or more
        if square * 2 * math.pi < 1:
            g, base = 0.5 / square, z * q
            tau = z * (2 * g * d)
        else:
            g, base = 2 * math.pi * math.pi * square, z * (z + 1) * q
            tau = 2j * math.pi * d * z
        with np.errstate(over="ignore", invalid="ignore"):
            value, error = log_theta_ratio(g, tau)
            value = base + value
            error = error + 8 * UNIT * (2 * np.abs(base) + np.abs(value))
        return value, np.where(np.isfinite(error), error, np.inf)

    def composed(self, times: int, epsilon: Array) -> tuple[Array, Array] | None:
        """Return the bounds of one discrete Gaussian of sigma ``sqrt(n) sigma`` and shift ``n d``.

        The total loss ``d (2S + n d)/(2 sigma^2)``, S the sum of all noises, is that of such a
        pair. S has masses ``c(s) e^{-s^2/(2 n sigma^2)}``, where each further noise multiplies c by

        ``sum_j e^{-g (j - u)^2} = sqrt(pi/g) (1 + 2 sum_{k>0} e^{-pi^2 k^2/g} cos(2 pi k u))``,

        ``g = (m + 1)/(2 m sigma^2)`` from m noises to m + 1, ``u = s m/(m + 1)`` (Poisson's
        summation). As ``1/g >= sigma^2`` that is one factor for all s but for ``1 +- h``, ``h = 2
        sum_k e^{-pi^2 sigma^2 k^2}``; both laws have the total 1, so that each mass is within
        ``((1 + h)/(1 - h))^{n - 1}`` of the discrete Gaussian's.
        """
        shift = times * self.sensitivity
        h = 2.01 * math.exp(-9.869 * self.sigma * self.sigma)
        apart = 2.1 * h * times  # log((1 + h) / (1 - h)) < 2.1 h for h < .2
        if not (self.sigma >= 1 and apart < 1e-3 and shift <= 2**52):
            return None
        one = _DiscreteGaussianSum(self.sigma * math.sqrt(times), shift, apart)
        return one.profile(epsilon)


@frozen
class _DiscreteGaussianSum(DiscreteGaussianPair):
    """Sums of noises by one: its masses are within a factor ``e^{+-apart}`` of theirs."""

    apart: float

    def tail_error(self) -> float:
        """Return that of the masses, and of sigma, within 2 UNIT of itself.

        That moves each mass up to 39 sigma, and the total, by less than ``4 UNIT 39^2/2``.
        """
        return 3e-12 + 1.01 * self.apart


# -----------------------------------------------------------------------------
# The discrete Laplace loss: two-sided geometric noise on an integer.


def _laplace_scale(value: float) -> float:
    return positive("DiscreteLaplace.scale", value)


def _laplace_sensitivity(value: int) -> int:
    return integer("DiscreteLaplace.sensitivity", value)


@frozen
class DiscreteLaplace(PrivacyLoss):
    r"""Adding noise with masses proportional to ``e^{-|x|/scale}``, x an integer.

    The query is an integer of sensitivity Delta, or a vector of integers, with noise on each, of
    l1 sensitivity Delta. Vectors cost no more: the noise is log-concave, so the best tests of a
    shift a, of a further shift b and of a + b are all thresholds, and the trade-off curve of
    a + b is that of b after that of a. Two coordinates that shift by a and b are a chain of two
    such steps, whose trade-off curve is at least that (group privacy).

    Losses are ``(2j - Delta) s`` with s = 1/scale and j = 0, ..., Delta. For Delta = 1 it is
    randomized response.

    ``rho = s Delta - (s/sinh s)(1 - e^{-s Delta})``, the limit of D_alpha at alpha = 1: with
    x = cosh theta, theta = (z + 1/2) s, the moments are ``(1 + c) U_Delta(x) - (1 - c)
    U_{Delta-2}(x)`` but for a factor (Chebyshev, second kind), ``c = tanh(s/2)``. With x =
    cos phi the first of the two wins at Delta + 1 points, with signs in turn, so all zeros are
    real, between -1 and 1; there theta^2 is negative, so the log-moment is concave in theta^2
    and lies under its tangent at z = 0, which is ``z (z+1) rho``.

    Parameters
    ----------
    scale
        Positive.
    sensitivity
        Delta, an integer from 1 to 2^52.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan 2009, section 2 (geometric mechanism);
    Dong, Roth and Su 2022, Thm 2.14 (chains of trade-off curves).

    Examples
    --------
    >>> loss = DiscreteLaplace(scale=2.0, sensitivity=3)
    >>> round(loss.pure(), 12), round(loss.rho(), 12)
    (1.5, 0.75457989003)
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "discrete Laplace: Ghosh, Roughgarden & Sundararajan 2009; Dong, Roth & Su 2022, Thm 2.14"
    )

    grouped_is_tight: ClassVar[bool] = True

    scale: float = field(converter=_laplace_scale)
    sensitivity: int = field(default=1, converter=_laplace_sensitivity)

    def __attrs_post_init__(self) -> None:
        bounded = self.sensitivity <= 2**52 and self.sensitivity / self.scale <= 1e300
        if not (bounded and 1e-300 <= self.scale <= 1e300):
            raise DomainError(
                "DiscreteLaplace needs a scale from 1e-300 to 1e300, a sensitivity of at most 2^52 "
                f"and sensitivity / scale <= 1e300, got {self.scale} and {self.sensitivity}; "
                "count in larger units"
            )

    def pair(self) -> Pair:
        """Return the noise shifted by the sensitivity, against the noise.

        Of a large sensitivity, Laplace noise shifted by little more: the losses are too many to
        count, and their moments do not decay. What an event of probability a has under the shift
        by one is ``F(a)`` (`PureGroup`), and Laplace noise that moves by s adds s to
        ``y(a) = log(2a)`` below a half, ``-log(2 (1 - a))`` above. F does so, too, but for one
        step, where it crosses the half: there it adds ``-log(4b (1 - b))`` more, b between a half
        and ``1/(1 + e^-s)``, at most ``2 log cosh(s/2)``. So Delta steps of F lie between Laplace
        noise that moves by ``s Delta`` and by that much more.
        """
        above = self._laplace()
        return self._exact() if above is None else _LaplaceBound(above)

    def attained_pair(self) -> Pair:
        """Return that pair, or of a large sensitivity Laplace noise shifted by no more."""
        below = flooring(Fraction(self.sensitivity) / Fraction(self.scale))
        return self._exact() if self._laplace() is None else LaplacePair(below)

    def _exact(self) -> DiscreteLaplacePair:
        few = self.sensitivity <= _FEW and self.sensitivity / self.scale <= _LARGEST_FEW
        return (_FewLosses if few else DiscreteLaplacePair)(self.scale, self.sensitivity)

    def _laplace(self) -> float | None:
        """Return the shift of Laplace noise that costs next to no more; None where none does."""
        s, shift = 1 / self.scale, self.sensitivity / self.scale
        more = s * min(1.0, up(s, 4) / 4)  # 2 log cosh(s/2) is at most s^2/4, and below s
        if self.sensitivity <= _FEW or not 1e-300 < more <= _NEAR * shift:
            return None
        return up(self.pure() + up(more, 4))

    def profile(self, epsilon: float) -> Bounds:
        """Return that of the noise itself."""
        return _profile(self._exact(), 0.0, epsilon)

    def renyi(self, orders: Array) -> Array:
        """Return that of the noise itself."""
        curve = _renyi(self._exact(), orders)
        assert curve is not None
        return curve

    def pure(self) -> float:
        """Return ``sensitivity / scale``."""
        return rounded_up(Fraction(self.sensitivity) / Fraction(self.scale))

    def rho(self) -> float:
        """Return ``s Delta - (s/sinh s)(1 - e^{-s Delta})``; at most s Delta^2/2 times s.

        ``s/sinh s >= 1 - s^2/6`` and ``1 - e^-x >= x - x^2/2`` bound it where it cancels.
        """
        s, eps = 1 / self.scale, self.sensitivity / self.scale
        # an upper bound without cancellation, used where the formula would lose its digits
        small = eps * eps / 2 + eps * s * s / 6
        # rho <= s Delta, the pure epsilon, below which it is by less than e^-290 here
        if s > 300:
            return self.pure()
        fall = -math.expm1(-eps) * s / math.sinh(s)
        return min(up(small, 8), up(eps - fall) + 16 * UNIT * eps, self.pure())

    def grouped(self, size: int) -> DiscreteLaplace:
        """Return the loss of ``size`` times the sensitivity: shifts add."""
        return evolve(self, sensitivity=self.sensitivity * integer("group size", size))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by scale and sensitivity.

        Noise of a larger scale is this noise plus more: a geometric variable is one of a smaller
        ratio plus an independent one (zero, or geometric).
        """
        if not isinstance(other, DiscreteLaplace):
            return False
        return self.scale <= other.scale and self.sensitivity >= other.sensitivity


@frozen
class DiscreteLaplacePair(Symmetric):
    """The noise shifted by d = ``sensitivity``, against the noise; the same reversed.

    With s = 1/scale, r = e^-s, and theta = (z + 1/2) s,

    ``E_P e^{zL} = e^{-s d/2} (cosh(d theta) + tanh(s/2) sinh(d theta)/tanh(theta))``,

    the geometric sum over the d + 1 losses. Times ``e^{is d Im z}`` it has period pi in Im theta.
    """

    scale: float
    sensitivity: int
    tight: bool = True

    def is_tight(self) -> bool:
        """Return ``tight``."""
        return self.tight

    def _losses(self) -> tuple[float, float]:
        """Return s and s d."""
        return 1 / self.scale, self.sensitivity / self.scale

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the tails from j, the least with ``(2j - d) s > l``, on.

        They are ``1 - r^{d-j+1}/(1 + r)`` under P and ``r^j/(1 + r)`` under Q for j = 1, ..., d.
        """
        s, d = 1 / self.scale, float(self.sensitivity)
        with np.errstate(over="ignore"):
            steps = np.floor(np.clip(loss * self.scale, -2 * d - 2, 2 * d + 2))
        j = np.clip(np.floor((steps + d) / 2) + 1, 0, d + 1)
        ratio = math.exp(-s)
        p = 1 - np.exp(-s * (d - np.minimum(j, d) + 1)) / (1 + ratio)
        q = np.exp(-s * j) / (1 + ratio)
        some, every = j <= d, j <= 0
        p, q = np.where(every, 1.0, p), np.where(every, 1.0, q)
        return np.where(some, p, 0.0), np.where(some, q, 0.0)

    def tail_error(self) -> float:
        """Return that of exponentials of up to s (d + 1)."""
        return (32 + 4 * sum(self._losses())) * UNIT

    def top(self) -> float:
        """Return ``s d``, rounded up."""
        return rounded_up(Fraction(self.sensitivity) / Fraction(self.scale))

    def spacing(self) -> float:
        """Return s, or 2s where d is even (the losses are odd or even multiples of s)."""
        return (2 if self.sensitivity % 2 == 0 else 1) / self.scale

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula, from the moment less 1 where it is near 1."""
        z, slip = right_half(z)
        value, error = closer(self._near(z), self._far(z))
        return value, error + slip * self._losses()[1]

    def _near(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``log(1 + (M - 1))`` where u = (z+1) s and v = z s are at most 1/d.

        ``M - 1 = (sinh u (e^{vd} - 1) + sinh v (e^{-ud} - 1)) / (2 cosh(s/2) sinh theta)``; what
        cancels in it, ``d (v sinh u - u sinh v)``, is taken apart. Nine terms of each series
        leave less than 1e-19 of the first.
        """
        s, d = 1 / self.scale, float(self.sensitivity)
        u, v = (z + 1) * s, z * s
        inside = (np.abs(u) * d <= 1) & (np.abs(v) * d <= 1) & (z != -0.5)
        u, v = np.where(inside, u, 1.0), np.where(inside, v, 1.0)
        parts = [
            np.sinh(u) * _beyond(v * d),
            np.sinh(v) * _beyond(-u * d),
            d * v * _sinh_beyond(u),
            -d * u * _sinh_beyond(v),
        ]
        half = 2 * math.cosh(min(s, 2.0) / 2) * np.sinh(np.where(inside, (z + 0.5) * s, 1.0))
        with np.errstate(over="ignore", invalid="ignore"):  # of numbers below 1e-300
            size = np.sum([np.abs(part) for part in parts], axis=0) / np.abs(half)
            value, error = log1p(np.sum(parts, axis=0) / half, 64 * UNIT * size)
        return value, np.where(inside, error + 1e-300, np.inf)

    def _far(self, z: Complex) -> tuple[Complex, Array]:
        """Return ``z s d + log R``, ``R = (1 + E)/2 + tanh(s/2)/2 (1 + e)(1 - E)/(1 - e)``.

        ``e = e^{-2 theta}`` and ``E = e^{-2 d theta}``, with theta in one period. R is a sum of
        exponentials ``e^{-x theta}``, 0 <= x <= 2d, with positive weights: theta off by h moves
        it by at most 2dh times its value at Re theta.
        """
        s, eps = self._losses()
        d = float(self.sensitivity)
        unreduced_theta = (z + 0.5) * s
        theta = unreduced_theta - 1j * math.pi * np.rint(unreduced_theta.imag / math.pi)
        theta = np.where(theta == 0, 1e-200, theta)  # R is entire
        tanh = math.tanh(s / 2)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            one, many = expm1(-2 * theta), expm1(-2 * d * theta)
            rest = (2 + many) / 2 + tanh / 2 * (2 + one) * many / one
            x = np.maximum(theta.real, 1e-200)
            small, smaller = np.expm1(-2 * x), np.expm1(-2 * d * x)
            size = (2 + smaller) / 2 + tanh / 2 * (2 + small) * smaller / small
            # of theta, of the argument of E, of the arithmetic
            # theta off by h moves R by at most 2 d h times its value at Re theta
            wrong = 16 * d * np.abs(unreduced_theta) * size
            wrong = wrong + 4 * d * np.abs(theta) * (1 + tanh * np.abs(2 + one) / np.abs(one))
            wrong = wrong + 40 * (3 + tanh * np.abs((2 + one) * many / one))
            moved = UNIT * wrong / np.abs(rest)
            value = z * eps + np.log(rest)
            error = 2 * moved + 8 * UNIT * (1 + np.abs(value) + np.abs(z) * eps)
        return value, np.where(moved < 0.5, error, np.inf)


_FEW, _LARGEST_FEW = 4095, 600.0
"""Of no more units, and no larger a loss, the losses are a finite pair as well."""

_NEAR = 2e-7
"""Laplace noise that moves by relatively less more stands for discrete noise of more units."""


@frozen
class _LaplaceBound(LaplacePair):
    """Laplace noise's pair, as an upper bound."""

    def is_tight(self) -> bool:
        """Return False."""
        return False


@frozen
class _FewLosses(DiscreteLaplacePair):
    """The same of a small sensitivity, whose losses may be counted."""

    def atoms(self) -> FinitePair:
        """Return the same pair as its ``sensitivity + 1`` losses."""
        s, d = 1 / self.scale, self.sensitivity
        j = np.arange(float(d + 1))
        # r^j (1 - r) / (1 + r) under Q, and all beyond either end at the ends
        q = np.exp(-s * j) / (1 + math.exp(-s))
        q[1:-1] *= -math.expm1(-s)
        error = (16 + 8 * s * d) * UNIT
        spacing = self.spacing() if d > 1 else s
        return FinitePair(
            (2 * j - d) * s, q[::-1], q, error, self.tight, multiple=spacing, loss_error=4 * UNIT
        )


def _beyond(x: Complex) -> Complex:
    """Return ``e^x - 1 - x`` for |x| <= 1, by its series, within 32 UNIT of ``|x|^2``."""
    total, term = np.zeros_like(x), x
    for n in range(2, 20):
        term = term * x / n
        total = total + term
    return total


def _sinh_beyond(x: Complex) -> Complex:
    """Return ``sinh x - x`` for |x| <= 1, by its series, within 32 UNIT of ``|x|^3``."""
    total, term = np.zeros_like(x), x
    for n in range(3, 21, 2):
        term = term * x * x / (n * (n - 1))
        total = total + term
    return total


# -----------------------------------------------------------------------------
# Groups of pure losses: discrete Laplace noise, too.


def pure_group(epsilon: float, size: int, *, attained: bool) -> PrivacyLoss:
    """Return the loss of ``size`` units of any epsilon-DP mechanism.

    Where a scale or a size is out of range, that of its pure epsilon.
    """
    if 1e-290 <= epsilon <= 1e280 and size <= 2**52:
        return PureGroup(epsilon, size, attained=attained)
    # k neighbours in a row: the log-ratios add, each at most epsilon
    return Pure(multiple(epsilon, size))


@frozen
class PureGroup(PrivacyLoss):
    """A group of k units of any epsilon-DP mechanism, by the pair that dominates it.

    That is discrete Laplace noise of scale ``1 / epsilon`` on an integer that moves by k, which a
    pure mechanism on a count attains. An event that has the probability a under one law has at
    most ``F(a) = min(e^eps a, 1 - e^-eps (1 - a))`` under the next; F rises, so that after k units
    it has at most F k times. Of the noise, ``a = P(x <= t)`` becomes ``P(x <= t + 1) = F(a)``: it
    attains that at each integer t, and F k times is a polygon whose corners are among those.
    Randomized response of ``k epsilon`` costs more, and no k - 1 laws lie between its two.

    Parameters
    ----------
    epsilon
        Of one unit, in nats.
    size
        k, at least 2.
    attained
        Whether each epsilon-DP mechanism is meant, or one that need not lose as much.

    References
    ----------
    Dong, Roth and Su 2022, Thm 2.14 (groups); Kairouz, Oh and Viswanath 2015 (one unit).
    """

    joins_apart: ClassVar[bool] = True

    attains_group: ClassVar[bool] = True

    theorem: ClassVar[str] = "groups of pure DP: Dong, Roth & Su 2022, Thm 2.14"

    epsilon: float
    size: int
    attained: bool = True

    def _above(self) -> DiscreteLaplace:
        # noise of a larger scale is this noise and more: less noise bounds from above
        return DiscreteLaplace(flooring(1 / Fraction(self.epsilon)), self.size)

    def pair(self) -> Pair:
        """Return the noise's pair, tight where the scale is a float."""
        above = self._above()
        tight = self.attained and Fraction(above.scale) * Fraction(self.epsilon) == 1
        pair = above.pair()
        return evolve(pair, tight=tight) if isinstance(pair, DiscreteLaplacePair) else pair

    def attained_pair(self) -> Pair | None:
        """Return that of noise that is at least as large: an epsilon-DP mechanism."""
        less = DiscreteLaplace(ceiling(1 / Fraction(self.epsilon)), self.size)
        return less.attained_pair() if self.attained else None

    def pure(self) -> float:
        """Return ``size * epsilon``."""
        return multiple(self.epsilon, self.size)

    def rho(self) -> float:
        """Return the noise's."""
        return min(self._above().rho(), self.pure())

    def renyi(self, orders: Array) -> Array:
        """Return the noise's, at most the pure epsilon."""
        return np.minimum(self._above().renyi(orders), self.pure())

    def profile(self, epsilon: float) -> Bounds:
        """Return the noise's profile."""
        if epsilon >= self.pure():
            return Bounds(0.0, 0.0)
        upper, attained = self._above().profile(epsilon).upper, self.attained_pair()
        at = np.array([epsilon])
        return bracket(0.0 if attained is None else float(attained.profile(at)[0][0]), upper)

    def grouped(self, size: int) -> PrivacyLoss:
        """Return that of as many groups."""
        k = self.size * integer("group size", size)
        return pure_group(self.epsilon, k, attained=self.attained)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by both numbers; of pure losses it dominates those of one unit."""
        if isinstance(other, PureGroup):
            return self.epsilon >= other.epsilon and self.size >= other.size
        return Pure(self.epsilon).dominates(other)


# -----------------------------------------------------------------------------
# The loss of k-ary randomized response.


def _epsilon(value: float) -> float:
    return cost("RandomizedResponse.epsilon", value)


def _categories(value: int) -> int:
    return integer("RandomizedResponse.categories", value, least=2)


@frozen
class RandomizedResponse(PrivacyLoss):
    """An answer out of k, kept with probability ``e^eps/(e^eps + k - 1)``, else any other one.

    Every other answer has probability ``1/(e^eps + k - 1)``. Neighbours differ in the answer
    (replace-one); the loss is eps, -eps, or 0 at the k - 2 answers that neither of them gave.

    ``rho``: with ``t = (z + 1/2)^2`` the moments are ``cosh(eps sqrt t) + beta`` but for a factor,
    ``beta = (k-2)/2 e^{-eps/2}``. Where beta <= 1 all of their zeros are negative, their logarithm
    is concave in t, and rho is the limit of D_alpha at alpha = 1. Elsewhere it is the supremum of
    ``D_alpha/alpha``, bounded on a grid.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.
    categories
        k, at least 2.

    References
    ----------
    Warner 1965 (k = 2); Kairouz, Oh and Viswanath 2014, section 3.1 (k-ary).

    Examples
    --------
    >>> RandomizedResponse(epsilon=1.0, categories=4).pure()
    1.0
    """

    theorem: ClassVar[str] = "randomized response: Kairouz, Oh & Viswanath 2014 (k-ary)"

    epsilon: float = field(converter=_epsilon)
    categories: int = field(default=2, converter=_categories)

    def pair(self) -> Pair:
        """Return the answer's law given one value against another."""
        if self.categories == 2:
            return ResponsePair(self.epsilon)
        return AnswerPair(self.epsilon, self.categories)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def profile(self, epsilon: float) -> Bounds:
        """Return ``a (1 - e^{s-eps})_+ + c (1 - e^s)_+`` at s = ``epsilon`` from -eps on.

        Below, ``1 - e^s``.
        """
        truthful, other, _ = _masses(self.epsilon, self.categories)
        if epsilon >= self.epsilon:
            exact = -math.expm1(min(epsilon, 0.0))
        elif epsilon > -self.epsilon:
            exact = truthful * -math.expm1(epsilon - self.epsilon)
            # a (1 - e^{s - eps})_+ + c (1 - e^s)_+: the outcomes of positive loss less s
            exact -= other * math.expm1(min(epsilon, 0.0))
        else:
            exact = -math.expm1(epsilon)
        # a rational eps, which its float is above
        rational = exact and isinstance(self.epsilon, RoundedUp)
        wrong = 4 * UNIT * (self.epsilon + abs(epsilon)) if rational else 0.0
        upper = min(1.0, up(exact, 32) + wrong) if exact else 0.0
        return Bounds(max(0.0, down(exact, 32) - wrong), upper)

    def renyi(self, orders: Array) -> Array | None:
        """Return that of the three losses; of two, the closed form."""
        if self.categories == 2:
            return Pure(self.epsilon).renyi(orders)
        return PrivacyLoss.renyi(self, orders)

    def rho(self) -> float:
        """Return ``eps (e^eps - 1)/(e^eps + k - 1)`` where beta <= 1; at most eps."""
        less = math.exp(-self.epsilon)
        others = float(self.categories - 2)
        limit = up(self.epsilon * -math.expm1(-self.epsilon) / (1 + less + others * less), 16)
        beta = others / 2 * math.exp(-self.epsilon / 2)
        if self.epsilon == 0 or beta <= 1 - 1e-12:
            return min(limit, self.epsilon)
        return min(self._chords(beta), Pure(self.epsilon).rho(), self.epsilon)

    def _chords(self, beta: float) -> float:
        """Bound the chords of log F, ``F(t) = cosh(eps sqrt t) + beta``, from t = 1/4.

        F grows, so between two orders the chord is at most the later rise over the earlier run;
        before the first order, the tangent ``eps^2/2 sinh x/(x (cosh x + beta))``, x = eps sqrt t,
        is at most sinh x / x at its right over the rest at its left; past the last, D_alpha is at
        most eps. The supremum is near the order ``2 log(k)/eps``.
        """
        eps = self.epsilon
        last = min(1e150, 1e3 * (1 + math.log(self.categories) / eps))
        orders = 1 + np.geomspace(1e-3, last, 6000)
        curve = self.renyi(orders)
        assert curve is not None
        run = orders * (orders - 1)
        # the later value over the earlier run: an upper bound of the chord between
        chords = up((orders - 1) * curve)[1:] / run[:-1]
        x = eps * (orders[0] - 0.5)
        if x > 300:  # the first tangents would overflow; every divergence is at most eps
            return math.inf
        first = eps / 2 * math.sinh(x) / ((orders[0] - 0.5) * (math.cosh(eps / 2) + beta))
        return up(max(float(chords.max()), float(first), eps / float(orders[-1])), 64)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by epsilon, of answers out of as many."""
        if not isinstance(other, RandomizedResponse):
            return False
        return self.categories == other.categories and self.epsilon >= other.epsilon


def _masses(epsilon: float, categories: int) -> tuple[float, float, float]:
    """Return a, c and b, within 16 UNIT of themselves."""
    less, others = math.exp(-epsilon), float(categories - 2)
    total = 1 + less + others * less
    return 1 / total, others * less / total, less / total


@frozen
class AnswerPair(Symmetric):
    """L is eps, 0 or -eps, under P with masses a, c and b, under Q with b, c and a.

    ``b = 1/(e^eps + k - 1)``, ``a = e^eps b``, ``c = (k-2) b``, so that

    ``E_P e^{zL} = 1 - b (e^{(z+1) eps} - 1)(e^{-z eps} - 1)``.
    """

    epsilon: float
    categories: int

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the sums of the masses above."""
        truthful, other, swapped = _masses(self.epsilon, self.categories)
        where = [loss < -self.epsilon, loss < 0, loss < self.epsilon]
        return (
            np.select(where, [1.0, truthful + other, truthful], 0.0),
            np.select(where, [1.0, swapped + other, swapped], 0.0),
        )

    def tail_error(self) -> float:
        """Return that of an exponential of eps and a few sums."""
        return 32 * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def spacing(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula; where it is large, with its exponential out."""
        z, slip = right_half(z)
        value, error = closer(self._near(z), self._far(z))
        return value, error + slip * self.epsilon

    def _near(self, z: Complex) -> tuple[Complex, Array]:
        _, _, swapped = _masses(self.epsilon, self.categories)
        one, two = (z + 1) * self.epsilon, -z * self.epsilon
        with np.errstate(over="ignore", invalid="ignore"):
            rise, fall = expm1(one), expm1(two)
            # an argument off by 4 UNIT of itself moves the exponential by as much of it
            # each exponential less 1, with its argument's rounding; then of the product
            wrong_rise = UNIT * (36 * np.abs(rise) + 4 * np.abs(one) * np.exp(one.real))
            wrong_fall = UNIT * (36 * np.abs(fall) + 4 * np.abs(two) * np.exp(two.real))
            wrong = wrong_rise * (np.abs(fall) + wrong_fall) + np.abs(rise) * wrong_fall
            wrong = swapped * (wrong + 40 * UNIT * np.abs(rise) * np.abs(fall))
            return log1p(-swapped * rise * fall, wrong)

    def _far(self, z: Complex) -> tuple[Complex, Array]:
        truthful, other, swapped = _masses(self.epsilon, self.categories)
        x = z * self.epsilon
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            rest = truthful + other * np.exp(-x) + swapped * np.exp(-2 * x)
            size = truthful + other * np.exp(-x.real) + swapped * np.exp(-2 * x.real)
            moved = UNIT * (48 + 8 * np.abs(x)) * size / np.abs(rest)
            value = x + np.log(rest)
            error = 2 * moved + 8 * UNIT * (1 + np.abs(value) + np.abs(x))
        return value, np.where(moved < 0.5, error, np.inf)

    def atoms(self) -> FinitePair:
        """Return the same pair as its losses (one where epsilon is 0)."""
        if self.epsilon == 0:
            return FinitePair((0.0,), (1.0,), (1.0,))
        truthful, other, swapped = _masses(self.epsilon, self.categories)
        losses = (-self.epsilon, 0.0, self.epsilon)
        masses = (swapped, other, truthful)
        return FinitePair(losses, masses, masses[::-1], 32 * UNIT, multiple=self.epsilon)
