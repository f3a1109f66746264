"""The discrete Laplace loss: two-sided geometric noise on an integer."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.complexes import Complex, expm1, log1p
from accountants.errors import DomainError, positive, whole
from accountants.loss import PrivacyLoss
from accountants.pair import Symmetric, right_half
from accountants.rounding import UNIT, Array, ceiling, up


def _laplace_scale(value: float) -> float:
    return positive("DiscreteLaplace.scale", value)


def _laplace_sensitivity(value: int) -> int:
    return whole("DiscreteLaplace.sensitivity", value)


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

    theorem: ClassVar[str] = (
        "discrete Laplace: Ghosh, Roughgarden & Sundararajan 2009; Dong, Roth & Su 2022, Thm 2.14"
    )

    grouped_exact: ClassVar[bool] = True

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

    def pair(self) -> DiscreteLaplacePair:
        """Return the noise shifted by the sensitivity, against the noise."""
        return DiscreteLaplacePair(self.scale, self.sensitivity)

    def pure(self) -> float:
        """Return ``sensitivity / scale``."""
        return ceiling(Fraction(self.sensitivity) / Fraction(self.scale))

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
        k = whole("group size", size)
        return DiscreteLaplace(self.scale, self.sensitivity * k)

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
        return ceiling(Fraction(self.sensitivity) / Fraction(self.scale))

    def spacing(self) -> float:
        """Return s, or 2s where d is even (the losses are odd or even multiples of s)."""
        return (2 if self.sensitivity % 2 == 0 else 1) / self.scale

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula, from the moment less 1 where it is near 1."""
        z, slip = right_half(z)
        near, far = self._near(z), self._far(z)
        small = near[1] < far[1]
        value = np.where(small, near[0], far[0])
        return value, np.where(small, near[1], far[1]) + slip * self._losses()[1]

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
        whole_theta = (z + 0.5) * s
        theta = whole_theta - 1j * math.pi * np.rint(whole_theta.imag / math.pi)
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
            wrong = 16 * d * np.abs(whole_theta) * size
            wrong = wrong + 4 * d * np.abs(theta) * (1 + tanh * np.abs(2 + one) / np.abs(one))
            wrong = wrong + 40 * (3 + tanh * np.abs((2 + one) * many / one))
            moved = UNIT * wrong / np.abs(rest)
            value = z * eps + np.log(rest)
            error = 2 * moved + 8 * UNIT * (1 + np.abs(value) + np.abs(z) * eps)
        return value, np.where(moved < 0.5, error, np.inf)


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
