"""The Laplace loss: Lap(0, 1) against Lap(epsilon, 1)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.bounds import Bounds
from accountants.complexes import Complex, expm1, log1p
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.laplace_sums import laplace_sum_profile
from accountants.pair import Pair, Symmetric, right_half, summed
from accountants.rounding import UNIT, Array, down, up


def _epsilon(value: float) -> float:
    return nonnegative("Laplace.epsilon", value)


@frozen
class Laplace(PrivacyLoss):
    r"""Adding Laplace noise of scale b to a query of l1 sensitivity Delta: ``epsilon = Delta / b``.

    ``D_alpha = log(a/(2a-1) e^{(a-1)eps} + (a-1)/(2a-1) e^{-a eps}) / (a-1)`` with a = alpha.
    It is convex in eps and 0 at 0, hence superadditive: a vector whose coordinates shift by
    s_1, ..., s_d costs at most what one coordinate costs that shifts by their sum, so the
    scalar curve serves vectors of l1 sensitivity Delta.

    ``rho = eps + e^{-eps} - 1``, the limit of D_alpha at alpha = 1: with w = alpha - 1/2,
    ``(alpha-1) D_alpha + eps/2 = log F(w^2)`` with
    ``F(t) = cosh(eps sqrt t) + sinh(eps sqrt t)/(2 sqrt t)``. F is entire of order 1/2 and has
    only negative zeros (they are minus the eigenvalues of -u'' on [0, eps] with u'(0) = u(0)/2
    and u(eps) = 0, all positive since F > 0 on t >= 0), so log F is concave on t >= 0 and lies
    under its tangent at t = 1/4, which is ``alpha (alpha-1) rho``.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    Dwork, McSherry, Nissim and Smith 2006, Prop. 1 (pure); Mironov 2017, Prop. 6 (Renyi);
    Harrison and Manurangsi 2026 (rho).

    Examples
    --------
    >>> round(Laplace(epsilon=1.0).rho(), 12)
    0.367879441171
    """

    theorem: ClassVar[str] = (
        "Laplace: Dwork, McSherry, Nissim & Smith 2006, Prop. 1; Mironov 2017, Prop. 6; "
        "Harrison & Manurangsi 2026"
    )

    epsilon: float = field(converter=_epsilon)

    def pair(self) -> LaplacePair:
        """Return Lap(epsilon, 1) against Lap(0, 1)."""
        return LaplacePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return the closed form, in log space where it would overflow."""
        return _curve(self.epsilon, orders)

    @classmethod
    def renyi_sum(cls, spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array:
        """Return the sum of the curves, some hundred losses at a time."""
        total = np.zeros_like(orders)
        for start in range(0, len(spends), 256):
            some = spends[start : start + 256]
            eps = np.array([loss.pure() for loss, _ in some], dtype=np.float64)
            times = np.array([count for _, count in some], dtype=np.float64)
            total = total + up(times @ _curve(eps[:, None], orders), 2 * len(some))
        return up(total, 2 * (len(spends) // 256 + 1))

    def rho(self) -> float:
        """Return ``epsilon + e^-epsilon - 1``."""
        eps = self.epsilon
        if eps == 0:
            return 0.0
        if eps < 1e-2:  # the series alternates: cutting it after a positive term bounds it
            return up(eps**2 / 2 - eps**3 / 6 + eps**4 / 24 - eps**5 / 120 + eps**6 / 720, 16)
        # eps + e^-eps - 1, whose two terms cancel by less than a digit here: rounded up
        return up(eps + math.expm1(-eps)) + 2 * UNIT * eps

    def profile(self, epsilon: float) -> Bounds:
        """Return ``1 - e^{(eps - eps0)/2}``, the profile of one coordinate."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        exact = -math.expm1(min(0.0, (epsilon - self.epsilon) / 2))
        return Bounds(max(0.0, down(exact, 8)), min(1.0, up(exact, 8)))

    def epsilon_at(self, delta: float) -> Bounds:
        """Return ``eps0 + 2 log(1 - delta)``, where the profile is delta."""
        if delta >= 1:
            return Bounds(0.0, 0.0)
        fall = 2 * math.log1p(-delta)
        # 1 - e^{(eps - eps0)/2} = delta solved for eps, and the rounding of the two terms
        exact, wrong = self.epsilon + fall, 8 * UNIT * (self.epsilon - fall)
        return Bounds(max(0.0, exact - wrong), min(self.epsilon, max(0.0, exact + wrong)))

    def grouped(self, size: int) -> Laplace:
        """Return ``Laplace(size * epsilon)``: shifts add (triangle inequality)."""
        k = whole("group size", size)
        return Laplace(up(self.epsilon * k, 2) if k > 1 else self.epsilon)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order Laplace losses by epsilon."""
        return self == other or (isinstance(other, Laplace) and self.epsilon >= other.epsilon)


def _curve(eps: float | Array, order: Array) -> Array:
    """Return the divergences; ``eps`` is a number, or of shape (n, 1) for n losses at once."""
    with np.errstate(over="ignore", invalid="ignore"):
        grow = order / (2 * order - 1) * np.expm1((order - 1) * eps)
        fall = (order - 1) / (2 * order - 1) * np.expm1(-order * eps)
        # the moment less 1, of two terms of opposite sign: each brings its own rounding
        small = np.log1p(grow + fall) + 8 * UNIT * (grow - fall)
        large = (order - 1) * eps + np.log(order / (2 * order - 1))
        # the larger exponential taken out
        large = large + np.log1p((order - 1) / order * np.exp((1 - 2 * order) * eps))
        log_moment = np.where((order - 1) * eps < 1, small, up(large, 8) + 8 * UNIT)
        curve: Array = up(log_moment / (order - 1))
    # D_alpha <= D_infinity = eps
    return np.minimum(np.where(np.isfinite(curve), curve, eps), eps)


@frozen
class LaplacePair(Symmetric):
    """Lap(eps, 1) against Lap(0, 1), the same reversed.

    L lies in [-eps, eps]; under P it has mass 1/2 at eps, ``e^-eps / 2`` at -eps and the density
    ``e^{(l - eps)/2} / 4`` between. With w = z + 1/2,

    ``E_P e^{zL} = e^{-eps/2} (cosh(w eps) + sinh(w eps) / (2w))``.
    """

    epsilon: float

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``1 - e^{(l - eps)/2}/2`` under P, ``e^{-(l + eps)/2}/2`` under Q, inside."""
        eps = self.epsilon
        inside = np.clip(loss, -eps, eps)
        p = np.where(loss < -eps, 1.0, 1 - np.exp((inside - eps) / 2) / 2)
        q = np.where(loss < -eps, 1.0, np.exp(-(inside + eps) / 2) / 2)
        return np.where(loss < eps, p, 0.0), np.where(loss < eps, q, 0.0)

    def tail_error(self) -> float:
        """Return that of an exponential of a difference."""
        return (16 + 4 * self.epsilon) * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def spacing(self) -> float:
        """Return epsilon: both atoms are multiples of it."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula, from the moment less 1."""
        return self.log_moments(((self, 1),), z)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum over all, some hundred losses at a time."""
        return summed(spends, z, lambda pair: pair.epsilon, _log_moment)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the logarithm of the bound of `_decay`."""
        return self.decays(((self, 1),), tilt, beyond)

    def composed(self, times: int, epsilon: Array) -> tuple[Array, Array] | None:
        """Return the sum of `accountants.losses.laplace_sums`."""
        return laplace_sum_profile(self.epsilon, times, epsilon)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the sum over all at once."""
        eps = np.array([pair.top() for pair, _ in spends])
        times = np.array([count for _, count in spends], dtype=np.float64)
        # the log of a product of moduli; shrunk towards 0, outward
        return times @ _decay(eps[:, None], abs(tilt + 0.5), beyond) * (1 - 1e-12)


def _decay(eps: Array, a: float, beyond: Array) -> Array:
    """Return bounds of ``log |M|`` beyond t over its value at 0, on ``Re w = +-a``, at most 0.

    The sum of both exponentials' moduli: with ``|w| = |a + it|``, ``|1/2 + 1/(4w)|`` falls in t;
    ``|1/2 - 1/(4w)|`` is at most 1/2 where a >= 1/4, and at most ``1/2 + 1/(4|w|)``.
    """
    far = np.exp(-2 * a * eps)
    inverse = 1 / (a * a + beyond * beyond)
    # |1/2 + 1/(4w)|, exactly, at the line's point a + it: it falls in t
    first = np.sqrt(0.25 + a / 4 * inverse + inverse / 16)
    second = 0.5 if a >= 0.25 else 0.5 + np.sqrt(inverse) / 4
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(a * eps > 1e-8, -np.expm1(-2 * a * eps) / (4 * a), eps / 2 * (1 - a * eps))
    # over M(0 on the line) = e^{a eps} ((1 + e^{-2 a eps}) / 2 + sinh(a eps) e^{-a eps} / (2a))
    bound: Array = np.log((first + second * far) / ((1 + far) / 2 + slope))
    return np.minimum(0.0, up(bound, 16) + 16 * UNIT)


def _log_moment(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return log-moments, (n, m) for n losses at m points, and bounds of their errors.

    With z or its mirror image ``-1 - z``, whose moment is the same, and a = z + 1, w = z + 1/2,

    ``M - 1 = a/(2w) (e^{z eps} - 1) + z/(2w) (e^{-a eps} - 1)``.
    """
    z, slip = right_half(z)
    a, w = z + 1, z + 0.5
    w = np.where(w == 0, 1e-9, w)  # M is even and entire in w: there it moves by (w eps)^2
    every = eps[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        first, second = a / (2 * w), z / (2 * w)
        grow, fall = first * expm1(z * every), second * expm1(-a * every)
        # relative rounding of each term, in units: of the arithmetic and of its exponent
        reach = 64 + 4 * np.abs(a) * every
        size = np.abs(grow) + np.abs(fall)
        # an exponent's own rounding counts even where its exponential is next to 1
        moved = 4 * every * (np.abs(z * first) + np.abs(a * second))
        near, near_error = log1p(grow + fall, (reach * size + moved) * UNIT + 1e-18 * every * every)
        # where e^{z eps} is large it is taken out
        rest = first + second * np.exp(-2 * w * every)
        far = z * every + np.log(rest)
        wrong = reach * UNIT * (np.abs(first) + np.abs(second))
        moved = wrong / np.abs(rest)
        far_error = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(far), np.inf)
    small, slipped = z.real * every < 1, slip * every
    return np.where(small, near, far), np.where(small, near_error, far_error) + slipped
