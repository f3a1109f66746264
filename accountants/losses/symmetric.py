"""Log-moments of symmetric pairs, whose loss has the law of ``-L`` once P and Q are exchanged.

Of such a pair the half of the outcomes with a positive loss says all. With a = 1 + z, b = -z
(or exchanged, to have Re a >= 1/2; the moment is the same), under Q

``E_P e^{zL} - 1 = E_Q[(e^{aL} - 1)(1 - e^{bL}); L > 0]``, two factors that do not cancel.

A `Half` gives the positive losses by a variable s > 0: the loss w(s), rising from ``w(0) = 0``,
and the density of s under Q, both analytic where ``|Im s| <= 1.2 / scale``. The integral is
taken by Gauss's rule, 24 points a panel. On the ellipse around a panel whose semi-axes are 2.125
and 1.875 half-widths (the sum, rho, is 4) let M bound the integrand. Its Chebyshev coefficients
are then at most ``2 M rho^-k``; the rule is exact up to k = 47, and beyond it and the integral
are at most 2 each: the error is below ``8 M rho^-48 / (1 - 1/rho)``, for a half-width of 1.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from accountants.complexes import Complex, expm1, log1p
from accountants.rounding import UNIT, Array, up

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
        """Return the log of the density of s under Q, within ``64 UNIT`` of 1 and its size."""
        raise NotImplementedError

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        """Return the log of a bound of the density's modulus on ``[low, high] + i[-y, y]``."""
        raise NotImplementedError

    def atom(self) -> float:
        """Return Q's mass at the end, within a relative ``64 UNIT``."""
        return 0.0


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
    nodes, weights = _rule()
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
    step = max(1, _BATCH // len(s))
    for at in range(0, len(a), step):
        some = slice(at, at + step)
        value[some], error[some] = _sum(a[some], b[some], half.loss(s), log_mass, log_missing[some])
    return value, error


def _sum(
    a: Complex, b: Complex, losses: tuple[Array, Array], log_mass: Array, log_missing: Array
) -> tuple[Complex, Array]:
    """Return log-moments from the rule's sum, with its rounding and what it misses."""
    w, slip = losses
    with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
        peak = (a.real[:, None] * w + log_mass).max(axis=1)
        far = peak > _FAR
        shift = np.where(far, peak, 0.0)[:, None]
        rise, fall = a[:, None] * w, b[:, None] * w
        # mass e^{aL}, and mass (e^{aL} - 1), which is as much where e^{-40} is nothing
        grown = np.exp(rise.real + log_mass - shift)
        small = np.exp(log_mass) * expm1(np.where(rise.real < 40, rise, 0.0))
        one = np.where((rise.real < 40) & ~far[:, None], small, grown * np.exp(1j * rise.imag))
        two = expm1(fall)
        moved = slip + 2 * UNIT * w
        log_wrong = UNIT * (128 + 64 * np.abs(np.maximum(log_mass, -1e300)) + 4 * shift)
        # error of each factor: of its mass, and of its exponent (the loss's own error times |a|)
        off_one = log_wrong * np.abs(one) + (np.abs(a)[:, None] * moved * 2 + 1e-16) * grown
        off_two = 32 * UNIT * np.abs(two) + np.abs(b)[:, None] * moved * np.exp(fall.real) * 2
        # product rule of errors, second order included
        off = off_one * np.abs(two) + off_two * np.abs(one) + off_one * off_two
        off = off + len(w) * UNIT * np.abs(one) * np.abs(two)
        off = np.where(log_mass > -np.inf, off, 0.0).sum(axis=1)
        # what is 1 beside an astronomical moment is lost: 1e-100 covers it
        missing = np.exp(log_missing - shift[:, 0]) + np.where(far, 1e-100, 0.0)
        total, error = -(one * two).sum(axis=1), (off + missing) * (1 + 1e-9)
        near, near_error = log1p(total, error)
        moved = error / np.abs(total)
        beyond = np.log(np.where(total == 0, 1.0, total)) + shift[:, 0]
        beyond_error = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(beyond), np.inf)
    value, bound = np.where(far, beyond, near), np.where(far, beyond_error, near_error)
    known = np.isfinite(value) & np.isfinite(bound)
    return np.where(known, value, 0.0), np.where(known, up(bound), np.inf)


def _remainder(half: Half, a: Complex, b: Complex, left: Array, width: float) -> Array:
    """Return the log of the bound of the rule's error, all panels together.

    Each ellipse's box is cut into strips; off the axis the loss's exponential loses or gains
    ``cos(angle / 2)`` at most, and turns by twice the angle.
    """
    angle = half.scale() * _AXES[1] * width
    shrunk = -math.log(math.cos(angle / 2))
    reach = 2 * _AXES[0] * width
    start: Array = left[:, None] + width - reach / 2 + reach / _SPLIT * np.arange(_SPLIT)
    low, high = start.ravel(), (start + reach / _SPLIT).ravel()
    density = half.log_ceiling(low, high, _AXES[1] * width)
    # the largest loss on the strip, and the least, off the real axis
    above = np.maximum(half.loss(high)[0] + shrunk, 0.0)
    below = np.maximum(shrunk - half.loss(low)[0], 0.0)
    falls, grows = np.maximum(-b.real, 0.0), np.maximum(b.real, 0.0)
    log_most = np.array(
        [
            float((power * above + falling * below + growing * above + density).max())
            for power, falling, growing in zip(a.real, falls, grows, strict=True)
        ]
    )
    # 8 M rho^-48 / (1 - 1/rho) a panel, rho = 4, for a half-width of `width`
    panels = math.log(8 * 4 * width * len(left) / (1 - 1 / 4)) - 2 * _POINTS * math.log(4)
    bound: Array = log_most + 2 * angle * (np.abs(a.imag) + np.abs(b.imag)) + panels
    return bound


@cache
def _rule() -> tuple[Array, Array]:
    return np.polynomial.legendre.leggauss(_POINTS)


def convexity(divergences: Array, orders: Array, rate: float) -> Array:
    """Return the divergences of ``(1-q) B + q A`` and ``(1-q) B + q A'``, from those of A and A'.

    ``e^{(a-1) D_a}`` is jointly convex: ``1 - q + q e^{(a-1) D_a}``, rounded up.
    """
    with np.errstate(over="ignore"):
        exponent = (orders - 1) * divergences
        # log(1 - q + q e^{(a-1) D})
        small = np.log1p(rate * np.expm1(np.minimum(exponent, 700)))
    return up(np.where(exponent < 600, small, exponent) / (orders - 1), 16)
