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
* Renyi, removal: ``E_P0 (1 - q + q r)^a``; for the Gaussian at every real order, to many
  digits (`accountants.losses.sampled_gaussian`).
* Renyi, addition: ``E_P0 (1 - q + q r)^{1-a}``. For the Gaussian the removal is the larger of
  the two (Mironov, Talwar and Zhang 2019, Thm 5). For any body, ``x^{1-a}`` is convex, so it is
  at most ``1 - q + q e^{(a-1) D_a}``.
* a body with a pure epsilon is a post-processing of randomized response, and mixing commutes
  with post-processing, so the sampled pair of randomized response bounds both directions.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.bounds import Bounds
from accountants.errors import probability
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.composite import Composite
from accountants.losses.joint_convexity import checked_body, gaussian_body_mu
from accountants.losses.sampled_gaussian import sampled_gaussian_curve
from accountants.losses.symmetric import convexity
from accountants.losses.unattained import Unattained
from accountants.notions.gaussian import LARGEST_MU
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, down, up


def _sampled_rate(value: float) -> float:
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

    body: Composite = field(converter=checked_body)
    rate: float = field(converter=_sampled_rate)

    def pair(self) -> Pair | None:
        """Return ``(1-q) Q + q P`` against ``Q``, of the body's pair (Zhu et al. 2022, Thm 11).

        A failure of the body, a point of its own under P and another under Q, leaves the sampled
        pair a failure of q times it: the point under Q then has ``L = log(1 - q)``, within the
        pair's range, and splits into a failure of q times it and a part with ``L = 0``. No
        mechanism attains that.
        """
        body = self.body.pair()
        if body is None or self.rate == 1:
            return body
        from accountants.losses.sampled_pair import sampled_pair  # here: a contour's alone

        pair = sampled_pair(body, self.rate)
        return Unattained(pair) if self.body.failure() > 0 else pair

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
        # Balle, Barthe and Gaboardi 2018, Thm 8
        return min(eps, up(math.log1p(self.rate * math.expm1(eps)), 16))

    def renyi(self, orders: Array) -> Array | None:
        """Return the least of the bounds of this module's docstring, at each order."""
        if self.rate == 0:
            return np.zeros_like(orders)
        unsampled = self.body.renyi(orders)
        if unsampled is None or self.rate == 1:
            return unsampled
        curve = np.minimum(unsampled, convexity(unsampled, orders, self.rate))
        eps, mu = self.body.pure(), gaussian_body_mu(self.body)
        if eps is not None:
            curve = np.minimum(curve, _randomized_response(eps, orders, self.rate))
        if mu is not None and 0 < mu <= LARGEST_MU:
            curve = np.minimum(curve, sampled_gaussian_curve(mu, orders, self.rate))
        return curve

    def profile(self, epsilon: float) -> Bounds | None:
        """Return ``q`` times the body's profile at ``log(1 + (e^epsilon - 1)/q)``."""
        if epsilon < 0:
            known = self.profile(-epsilon)
            return None if known is None else mirrored(lambda _: known, epsilon)
        if self.rate == 0:
            return Bounds(0.0, 0.0)
        inside = _epsilon_inside(epsilon, self.rate)
        # delta falls in epsilon: each end at the inside epsilon rounded to its own side
        low, high = self.body.profile(up(inside, 16)), self.body.profile(max(0.0, down(inside, 16)))
        if low is None or high is None:
            return None
        return Bounds(max(0.0, down(self.rate * low.lower)), min(1.0, up(self.rate * high.upper)))

    def epsilon_at(self, delta: float) -> Bounds | None:
        """Return ``log(1 + q (e^eps - 1))`` of the body's epsilon at ``delta / q``."""
        if delta >= self.rate:
            return Bounds(0.0, 0.0)
        inside = delta / self.rate
        # epsilon falls in delta: each end at delta / q rounded to its own side
        low = self.body.epsilon_at(min(1.0, up(inside)))
        high = self.body.epsilon_at(max(0.0, down(inside)))
        if low is None or high is None or high.upper > 600:
            return None
        lower = down(math.log1p(self.rate * math.expm1(low.lower)), 16)
        return Bounds(max(0.0, lower), up(math.log1p(self.rate * math.expm1(high.upper)), 16))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and rate (the mixture is monotone in both)."""
        if isinstance(other, Sampled):
            return self.rate >= other.rate and self.body.dominates(other.body)
        return self == other


def _epsilon_inside(epsilon: float, rate: float) -> float:
    """Return ``log(1 + (e^epsilon - 1)/q)``."""
    if epsilon > 600:
        return epsilon - math.log(rate)
    ratio = math.expm1(epsilon) / rate
    return math.log1p(ratio) if ratio < math.inf else math.log(math.expm1(epsilon)) - math.log(rate)


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
    # removal is the moment of order a, addition that of 1 - a; the larger bounds both directions
    for power in (orders, 1 - orders):
        gain = power[:, None] * logs
        terms = gain + log_p0
        # gain and log_p0 have opposite signs: the rounding is that of each, not of their sum
        noise = 16 * UNIT * (1 + (np.abs(gain) + np.abs(log_p0)).max(axis=1))
        log_moment = special.logsumexp(terms, axis=1) + noise
        curves.append(np.maximum(log_moment, 0) / (orders - 1))
    return up(np.maximum(curves[0], curves[1]), 8)
