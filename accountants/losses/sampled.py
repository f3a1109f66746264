"""Amplification by Poisson sampling: the body sees each unit with probability q.

Neighbours differ by one unit that is present or absent (add/remove, zero-out). With P0, P1
the body's output laws without and with the unit in the sample, the pair is
``(1-q) P0 + q P1`` against ``P0``, in either order; let r = P1/P0.

* pure: r in [e^-eps, e^eps], so the ratio is at most ``1 + q (e^eps - 1)`` one way, and
  ``1 / (1 + q (e^-eps - 1))``, which is smaller, the other (Balle, Barthe and Gaboardi 2018,
  Thm 8).
* profile: ``delta'(eps') = q delta(eps)`` with ``eps = log(1 + (e^eps' - 1)/q)``, exactly so for
  removal (Balle, Barthe and Gaboardi 2018, Thm 8). For addition the hockey-stick is
  ``w (P0 - e^eps'' P1)_+`` with ``w = 1 - e^eps' (1-q) <= q`` and ``eps'' >= eps``: no larger.
* Renyi, removal: ``E_P0 (1 - q + q r)^a`` expands, for a whole order a, into
  ``sum_l C(a,l) (1-q)^(a-l) q^l e^{(l-1) D_l}``, exactly (Mironov, Talwar and Zhang 2019).
* Renyi, addition: ``E_P0 (1 - q + q r)^{1-a}``. For the Gaussian the removal is the larger of
  the two (Mironov, Talwar and Zhang 2019, Thm 5). For any body, ``x^{1-a}`` is convex, so it is
  at most ``1 - q + q e^{(a-1) D_a}``.
* a body with a pure epsilon is a post-processing of randomized response, and mixing commutes
  with post-processing, so the sampled pair of randomized response bounds both directions.
* between whole orders ``(a-1) D_a`` is convex in a and lies under its chords.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from attrs import field, frozen
from scipy.special import gammaln, logsumexp

from accountants.bounds import Bounds
from accountants.errors import DomainError, probability
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.rounding import UNIT, Array, down, up

LARGEST_ORDER = 2048
"""Whole orders beyond this are not summed; the curve is infinite there unless pure."""


def _body(value: Composite) -> Composite:
    if not isinstance(value, Composite):
        raise DomainError(f"Sampled.body must be a Composite of what is sampled, got {value!r}")
    return value


def _rate(value: float) -> float:
    return probability("Sampled.rate", value)


@frozen(cache_hash=True)
class Sampled(PrivacyLoss):
    """A body that runs on a Poisson sample of the units.

    Parameters
    ----------
    body
        The body's loss on a unit that is in the sample.
    rate
        The probability q, in [0, 1], with which each unit enters, independently.
    """

    theorem: ClassVar[str] = (
        "Poisson sampling: Balle, Barthe & Gaboardi 2018, Thm 8; "
        "Mironov, Talwar & Zhang 2019, Thm 5"
    )

    body: Composite = field(converter=_body)
    rate: float = field(converter=_rate)

    def failure(self) -> float:
        """Return ``q`` times the body's failure."""
        failure = self.body.failure()
        if self.rate == 0 or failure == 0:  # exactly none: delta 0 stays within reach
            return 0.0
        return min(1.0, up(self.rate * failure, 2))

    def pure(self) -> float | None:
        """Return ``log(1 + q (e^eps - 1))``."""
        eps = self.body.pure()
        if eps is None or self.rate == 0:
            return 0.0 if self.rate == 0 else None
        if eps > 600:
            return eps
        return min(eps, up(math.log1p(self.rate * math.expm1(eps)), 16))

    def renyi(self, orders: Array) -> Array | None:
        """Return the least of the bounds of this module's docstring, at each order."""
        if self.rate == 0:
            return np.zeros_like(orders)
        unsampled = self.body.renyi(orders)
        if unsampled is None or self.rate == 1:
            return unsampled
        curve = np.minimum(unsampled, _convexity(unsampled, orders, self.rate))
        eps, mu = self.body.pure(), _gaussian(self.body)
        if eps is not None:
            curve = np.minimum(curve, _randomized_response(eps, orders, self.rate))
        if mu is not None:
            curve = np.minimum(curve, _gaussian_curve(mu, orders, self.rate))
        return curve

    def profile(self, epsilon: float) -> Bounds | None:
        """Return ``q`` times the body's profile at ``log(1 + (e^epsilon - 1)/q)``."""
        if self.rate == 0:
            return Bounds(0.0, 0.0)
        if epsilon > 600:
            inside = epsilon - math.log(self.rate)
        else:
            inside = math.log1p(math.expm1(epsilon) / self.rate)
        low, high = self.body.profile(up(inside, 16)), self.body.profile(max(0.0, down(inside, 16)))
        if low is None or high is None:
            return None
        return Bounds(max(0.0, down(self.rate * low.lower)), min(1.0, up(self.rate * high.upper)))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and rate (the mixture is monotone in both)."""
        if isinstance(other, Sampled):
            return self.rate >= other.rate and self.body.dominates(other.body)
        return self == other


def _gaussian(body: Composite) -> float | None:
    """Return the mu of a body of Gaussian releases on the same sample: one Gaussian vector."""
    return body.mu() if all(loss.gaussian_pair for loss, _ in body.spends) else None


def _convexity(divergences: Array, orders: Array, rate: float) -> Array:
    exponent = (orders - 1) * divergences
    with np.errstate(over="ignore"):
        small = np.log1p(rate * np.expm1(np.minimum(exponent, 700)))
    log_moment = np.where(exponent < 600, small, exponent)
    return up(log_moment / (orders - 1), 16)


def _randomized_response(eps: float, orders: Array, rate: float) -> Array:
    if eps > 300:
        return np.full_like(orders, np.inf)
    # P0's masses where r = e^eps and where r = e^-eps: 1 and e^eps over 1 + e^eps
    log_p0 = np.array([-eps, 0.0]) - math.log1p(math.exp(-eps))
    high, low = rate * math.expm1(eps), rate * math.expm1(-eps)
    # near -1 the sum 1 + low cancels; (1 - q) + q e^-eps is a sum of positive numbers
    log_low = math.log1p(low) if low > -0.5 else math.log((1 - rate) + rate * math.exp(-eps))
    logs = np.array([math.log1p(high), log_low])
    curves = []
    for power in (orders, 1 - orders):
        gain = power[:, None] * logs
        terms = gain + log_p0
        # gain and log_p0 have opposite signs: the rounding is that of each, not of their sum
        noise = 16 * UNIT * (1 + (np.abs(gain) + np.abs(log_p0)).max(axis=1))
        log_moment = logsumexp(terms, axis=1) + noise
        curves.append(np.maximum(log_moment, 0) / (orders - 1))
    return up(np.maximum(curves[0], curves[1]), 8)


def _gaussian_curve(mu: float, orders: Array, rate: float) -> Array:
    curve = np.full_like(orders, np.inf)
    for i, order in enumerate(orders):
        if order <= LARGEST_ORDER:
            below, above = math.floor(order), math.ceil(order)
            moment = _gaussian_moment(mu, above, rate)
            if above > below:
                share = order - below
                moment = share * moment + (1 - share) * _gaussian_moment(mu, below, rate)
            curve[i] = up(moment / (order - 1), 8)
    return curve


def _gaussian_moment(mu: float, order: int, rate: float) -> float:
    """Return ``log E_P0 (1 - q + q r)^order`` for a whole order, rounded up.

    The terms l = 0, 1 carry no divergence; taking ``sum C q^l (1-q)^(a-l) = 1`` out leaves
    ``log1p(sum_{l>=2} C(a,l) q^l (1-q)^(a-l) (e^{l(l-1) mu^2/2} - 1))``, which keeps its digits.
    """
    if order < 2:
        return 0.0
    count = np.arange(2, order + 1, dtype=np.float64)
    exponent = count * (count - 1) / 2 * mu * mu
    binomial = gammaln(order + 1) - gammaln(count + 1) - gammaln(order - count + 1)
    weight = binomial + count * math.log(rate) + (order - count) * math.log1p(-rate)
    with np.errstate(divide="ignore"):
        near = np.log(np.expm1(np.minimum(exponent, 1)))
        far = exponent + np.log1p(-np.exp(-np.maximum(exponent, 1)))
    growth = np.where(exponent < 1, near, far)
    terms = weight + growth
    size = gammaln(order + 1) + np.abs(weight) + exponent
    noise = 32 * UNIT * (1 + float(size[np.argmax(terms)]) + order)
    total = float(logsumexp(terms)) + noise
    return up(math.log1p(math.exp(total)) if total < 700 else up(total), 8)
