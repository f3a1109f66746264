"""Amplification by Poisson sampling, for neighbours that differ in the value of one unit.

With B the body's law without the unit, A and A' with one or the other value of it, the laws are
``(1-q) B + q A`` and ``(1-q) B + q A'``: not those of add/remove, and not those of a sample of a
fixed size.

* a Gaussian body, ``A = N(a, I)``, ``A' = N(b, I)`` about ``B = N(0, I)``, ``|a|, |b| <= mu``: the
  worst is ``a = mu``, ``b = -mu`` in one dimension, for every t at once. Let t >= 1 (below 1
  exchange the two). Then H_t is q times the integral of ``(A - c B - t A')_+`` with
  ``c = (1-q)(t - 1)/q >= 0``. Let ``S = {A > c B + t A'}``. Turn b away from a: of each two
  points that mirror each other at the line of b, the one on a's side is in S if the other is,
  since there A is larger, and B and A' are equal; so A'(S) falls, and the integral, whose slope
  is that of ``-t A'(S)``, rises, until b points away from a. There S is a half-line, from which b
  recedes, and into which a advances.
* a body of pure epsilon: of ``E_B (1-q+q r - t (1-q+q r'))_+``, convex in the ratios r and r', only
  the vertices ``e^{+-eps}`` count, and for t >= 1 of these only ``(e^eps, e^-eps)``, whose mass is
  at most 1/(1 + e^eps). Three outcomes have that mass, its mirror image, and the rest.
* any body: advanced joint convexity, with the body's loss for two units (one goes, one comes).
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.complexes import Complex
from accountants.errors import probability
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.composite import Composite
from accountants.losses.joint_convexity import (
    LARGEST_LOSS,
    Mixed,
    checked_body,
    gaussian_body_mu,
    is_single,
)
from accountants.losses.symmetric import Half, symmetric_log_moment
from accountants.pair import Pair, Symmetric
from accountants.rounding import UNIT, Array, up

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
    Balle, Barthe and Gaboardi 2018, Thm 2 (any body); the module's docstring (Gaussian and pure
    bodies; the Gaussian pair is that of Lebeda, Regehr, Kamath and Steinke 2024).

    Examples
    --------
    >>> from accountants import Composite, Pure
    >>> round(ReplacedSample(Composite({Pure(epsilon=1.0): 1}), rate=0.01).pure(), 6)
    0.023378
    """

    theorem: ClassVar[str] = (
        "Poisson sampling, replace-one: Balle, Barthe & Gaboardi 2018, Thm 2; "
        "Lebeda, Regehr, Kamath & Steinke 2024"
    )

    body: Composite = field(converter=checked_body)
    rate: float = field(converter=_replaced_rate)

    def __attrs_post_init__(self) -> None:
        self.body.grouped(2)  # refuses here a body without group privacy

    def mixture(self) -> tuple[Composite, float]:
        """Return the body's loss for two units, and the rate."""
        return self.body.grouped(2), self.rate

    def pair(self) -> Pair | None:
        """Return the worst pair of a Gaussian or pure body, or that of joint convexity."""
        return self._worst() or super().pair()

    def _worst(self) -> Pair | None:
        mu, eps = gaussian_body_mu(self.body), self.body.pure()
        if not 0 < self.rate < 1:
            return None
        if mu is not None:
            return ReplacedGaussianPair(mu, self.rate) if 1e-100 < mu <= _LARGEST_MU else None
        if eps is None or not 0 < eps <= LARGEST_LOSS or self.body.failure() > 0:
            return None
        exact = is_single(self.body) and self.body.spends[0][0].response_pair
        return _replaced_response(eps, self.rate, exact)

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
        known = super().profile(epsilon)
        if known is None or self.rate in (0, 1):
            return known
        return Bounds(0.0, known.upper)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and rate."""
        if isinstance(other, ReplacedSample):
            return self.rate >= other.rate and self.body.dominates(other.body)
        return self == other


def _replaced_response(eps: float, rate: float, exact: bool) -> Atoms:
    """Return the three outcomes of the worst pure body."""
    less = math.exp(-eps) / (1 + math.exp(-eps))
    rise, fall = rate * math.expm1(eps), rate * math.expm1(-eps)
    # log((1 + rise) / (1 + fall)): both laws' extreme ratios at one outcome
    loss = up(math.log1p((rise - fall) / (1 + fall)), 16)
    middle = -math.expm1(-eps) / (1 + math.exp(-eps)) * (1 + fall)
    if loss <= 1e-300:
        return Atoms((0.0,), (1.0,), (1.0,), exact=False)
    masses = (less * (1 + fall), middle, less * (1 + rise))
    error = (64 + 4 * eps) * UNIT
    return Atoms((-loss, 0.0, loss), masses, masses[::-1], error, exact, multiple=loss)


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
        x, q = self._outcome(loss), self.rate
        # L rises in x, so its tails are those of the two mixtures above x
        rest = (1 - q) * special.ndtr(-x)
        return rest + q * special.ndtr(self.mu - x), rest + q * special.ndtr(-self.mu - x)

    def _outcome(self, loss: Array) -> Array:
        """Return x; where sinh is large its logarithm is taken, to which 1 adds nothing."""
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


@frozen
class _Positive(Half):
    """The outcomes above 0; the loss is ``log n - log d`` of both mixtures' densities."""

    mu: float
    rate: float

    def scale(self) -> float:
        return self.mu

    def end(self, power: float) -> float:
        return power * self.mu + 10.0

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
