"""The worst loss of a pure epsilon: randomized response."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.complexes import Complex, expm1, log1p
from accountants.errors import nonnegative, whole
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.laplace import Laplace
from accountants.notions.pure import pure_to_renyi, pure_to_zcdp
from accountants.pair import Pair, Symmetric, right_half, summed
from accountants.rounding import UNIT, Array, down, up


def _pure_epsilon(value: float) -> float:
    return nonnegative("Pure.epsilon", value)


@frozen
class Pure(PrivacyLoss):
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

    theorem: ClassVar[str] = "pure DP: Kairouz, Oh & Viswanath 2015 (randomized response dominates)"

    response_pair: ClassVar[bool] = True

    epsilon: float = field(converter=_pure_epsilon)

    def pair(self) -> ResponsePair:
        """Return randomized response."""
        return ResponsePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return randomized response's divergence."""
        return pure_to_renyi(self.epsilon, orders)

    def rho(self) -> float:
        """Return ``epsilon tanh(epsilon / 2)``."""
        return pure_to_zcdp(self.epsilon)

    def profile(self, epsilon: float) -> Bounds:
        """Return ``(e^eps0 - e^eps)_+ / (1 + e^eps0)``."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        if epsilon >= self.epsilon:
            return Bounds(0.0, 0.0)
        # (e^eps0 - e^eps) / (1 + e^eps0), without overflow or cancellation
        exact = -math.expm1(epsilon - self.epsilon) / (1 + math.exp(-self.epsilon))
        return Bounds(max(0.0, down(exact, 8)), min(1.0, up(exact, 8)))

    def grouped(self, size: int) -> Pure:
        """Return ``Pure(size * epsilon)`` (Dwork and Roth 2014, Thm 2.2)."""
        k = whole("group size", size)
        return Pure(up(self.epsilon * k, 2) if k > 1 else self.epsilon)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by epsilon; a pure loss also dominates the Laplace loss of its epsilon."""
        return isinstance(other, Pure | Laplace) and self.epsilon >= other.epsilon


@frozen
class ResponsePair(Symmetric):
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

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def spacing(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the formula, from the moment less 1."""
        return self.log_moments(((self, 1),), z)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum over all, some hundred losses at a time."""
        return summed(spends, z, lambda pair: pair.epsilon, _log_moment)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return zeros: two losses swing for ever."""
        return np.zeros_like(beyond)

    def atoms(self) -> Atoms:
        """Return the same pair as its two losses (one where they are equal)."""
        eps = self.epsilon
        if eps == 0:
            return Atoms((0.0,), (1.0,), (1.0,), exact=self.attained())
        (p,), (q,) = _above(eps, np.array([0.0]))
        return Atoms((-eps, eps), (q, p), (p, q), 16 * UNIT, self.attained(), eps)


def _above(eps: float, loss: Array) -> tuple[Array, Array]:
    more, less = 1 / (1 + math.exp(-eps)), math.exp(-eps) / (1 + math.exp(-eps))
    p = np.where(loss < -eps, 1.0, np.where(loss < eps, more, 0.0))
    q = np.where(loss < -eps, 1.0, np.where(loss < eps, less, 0.0))
    return p, q


def _log_moment(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return log-moments, (n, m) for n losses at m points, and bounds of their errors."""
    z, slip = right_half(z)
    every = eps[:, None].astype(np.complex128)
    more, less = 1 / (1 + np.exp(-every.real)), np.exp(-every.real) / (1 + np.exp(-every.real))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        grow, fall = more * expm1(z * every), less * expm1(-z * every)
        reach = 64 + 4 * np.abs(z) * every.real
        # an exponent's own rounding counts even where its exponential is next to 1
        wrong = reach * (np.abs(grow) + np.abs(fall)) + 4 * np.abs(z) * every.real
        near, near_error = log1p(grow + fall, wrong * UNIT)
        rest = more + less * np.exp(-2 * z * every)
        far = z * every + np.log(rest)
        moved = reach * UNIT * (more + less) / np.abs(rest)
        far_error = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(far), np.inf)
    small, slipped = z.real * every.real < 1, slip * every.real
    return np.where(small, near, far), np.where(small, near_error, far_error) + slipped
