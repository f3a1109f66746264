"""Advanced joint convexity: what mixing both laws with a common part leaves of their loss.

Let ``P = (1-q) B + q A`` and ``Q = (1-q) B + q A'``, where the hockey-stick of A against A', of A
against B, and of both in the other order is at most ``delta(t) = E (r - t)_+``, t >= 1. With
``t' = 1 + q (t - 1)``

``H_t'(P, Q) = q H_t(A, (1-b) B + b A') <= q delta(t)``, ``b = t'/t``

(Balle, Barthe and Gaboardi 2018, Thm 2), and below 1 ``H_t'(P, Q) = 1 - t' + t' H_{1/t'}(Q, P)``.
These bounds together are the profile of one pair, which therefore dominates (Zhu, Dong and
Wang 2022, Prop. 30): its slope gives the tails. For ``e^l = 1 + q (e^l~ - 1)``, l >= 0,

``Q'(L' > l) = Q(L > l~)`` and ``P'(L' > l) = (1-q) Q(L > l~) + q P(L > l~)``;

the pair is symmetric, and what is left lies at 0. No mechanism need attain its compositions, since
B is taken as far from A as A' is from A and, for the other sign, as far from A' as A.

A failure f of the body enters with its sampling only: ``q (f + (1-f) delta)`` is at most
``q f + (1 - q f) q delta``.
"""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen

from accountants import special
from accountants.atoms import Atoms
from accountants.bounds import Bounds
from accountants.complexes import Complex
from accountants.errors import DomainError
from accountants.loss import PrivacyLoss, mirrored
from accountants.losses.composite import Composite
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair
from accountants.losses.pure import ResponsePair
from accountants.losses.symmetric import Half, convexity, symmetric_log_moment
from accountants.losses.unattained import Unattained
from accountants.notions.gaussian import LARGEST_MU
from accountants.pair import Pair, Symmetric
from accountants.rounding import UNIT, Array, down, up

LARGEST_LOSS = 600.0
"""A pure epsilon above this is left as it is: its exponential would overflow."""


def checked_body(value: Composite) -> Composite:
    """Return ``value``, or raise `DomainError` unless it is a `Composite`."""
    if not isinstance(value, Composite):
        raise DomainError(f"what is sampled must be a Composite of its losses, got {value!r}")
    return value


def body_pair(body: Composite) -> Pair | None:
    """Return a pair that dominates the body outside of its failure, where one is known.

    Gaussian releases are one Gaussian vector; what has a pure epsilon is a post-processing of
    randomized response.
    """
    if is_single(body):
        return body.spends[0][0].pair()
    mu, eps = gaussian_body_mu(body), body.pure()
    if mu is not None:
        return GaussianPair(mu)
    return None if eps is None else ResponsePair(eps)


def is_single(body: Composite) -> bool:
    """Whether the body is one loss, paid once."""
    return len(body.spends) == 1 and body.spends[0][1] == 1


def gaussian_body_mu(body: Composite) -> float | None:
    """Return the mu of a body of Gaussian releases alone."""
    return body.mu() if all(loss.gaussian_pair for loss, _ in body.spends) else None


class Mixed(PrivacyLoss):
    """Base of the losses that advanced joint convexity bounds."""

    __slots__ = ()

    def mixture(self) -> tuple[Composite, float]:
        """Return the loss of A against A', and of either against B; and q, rounded up."""
        raise NotImplementedError

    def failure(self) -> float:
        """Return ``q`` times the body's failure."""
        body, rate = self.mixture()
        failure = body.failure()
        if rate == 0 or failure == 0:  # exactly none: delta 0 stays within reach
            return 0.0
        return min(1.0, up(rate * failure, 2))

    def pair(self) -> Pair | None:
        """Return the pair of this module's docstring, if the body has a symmetric one."""
        body, rate = self.mixture()
        inner = body_pair(body)
        if inner is None or inner.reversed() != inner:
            return None
        if rate == 1:
            return inner if is_single(body) else Unattained(inner)
        return mixed(inner, rate)

    def pure(self) -> float | None:
        """Return ``log(1 + q (e^eps - 1))``."""
        body, rate = self.mixture()
        eps = body.pure()
        # Balle, Barthe and Gaboardi 2018, Thm 2 with delta = 0: t' = 1 + q (e^eps - 1)
        return 0.0 if rate == 0 else None if eps is None else amplified(eps, rate)

    def renyi(self, orders: Array) -> Array | None:
        """Return the pair's curve, or the body's by joint convexity where that is less."""
        body, rate = self.mixture()
        unsampled = body.renyi(orders)
        if unsampled is None or rate in (0, 1):
            return np.zeros_like(orders) if rate == 0 else unsampled
        curve = np.minimum(unsampled, convexity(unsampled, orders, rate))
        own = super().renyi(orders)
        return curve if own is None else np.minimum(curve, own)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return ``q`` times the body's profile at ``log(1 + (e^epsilon - 1)/q)``."""
        if epsilon < 0:
            opposite = self.profile(-epsilon)
            return None if opposite is None else mirrored(lambda _: opposite, epsilon)
        body, rate = self.mixture()
        if rate == 0:
            return Bounds(0.0, 0.0)
        inside = float(_loss_inside(np.array([epsilon]), rate)[0])
        # delta falls in epsilon: each end at the inside epsilon rounded to its own side
        low, high = body.profile(up(inside, 16)), body.profile(max(0.0, down(inside, 16)))
        if low is None or high is None:
            known = super().profile(epsilon)
            return None if known is None else Bounds(0.0, known.upper)
        lower = max(0.0, down(rate * low.lower, 64) - 1e-300)
        return Bounds(lower, min(1.0, up(rate * high.upper, 64)))


def amplified(eps: float, rate: float) -> float:
    """Return ``log(1 + q (e^eps - 1))``, rounded up."""
    if eps > LARGEST_LOSS:
        return eps
    return min(eps, up(math.log1p(rate * math.expm1(eps)), 16))


def _loss_inside(loss: Array, rate: float) -> Array:
    """Return ``log(1 + (e^loss - 1)/q)`` of losses that are not negative."""
    with np.errstate(over="ignore"):
        ratio = np.expm1(np.minimum(loss, 600.0)) / rate
    near = np.log1p(np.maximum(np.where(ratio < np.inf, ratio, 0.0), 0.0))
    # where the ratio is large: log(e^loss - 1) - log q, to which 1 adds nothing
    far = np.log(np.maximum(np.expm1(np.minimum(loss, 600.0)), 1e-300))
    far = np.where(loss < 600, far, loss) - math.log(rate)
    return np.where((loss < 600) & (ratio < 1e300), near, far)


def mixed(inner: Pair, rate: float) -> Pair:
    """Return the dominating pair of a symmetric pair, for rates below 1."""
    if rate == 0 or inner.top() == 0:
        return Atoms((0.0,), (1.0,), (1.0,), exact=False)
    if isinstance(inner, ResponsePair) and inner.epsilon <= LARGEST_LOSS:
        return _mixed_response(inner.epsilon, rate)
    return MixedPair(inner, rate)


def _mixed_response(eps: float, rate: float) -> Atoms:
    """Return three atoms: of randomized response the positive loss has mass 1/(1 + e^eps)."""
    less = math.exp(-eps) / (1 + math.exp(-eps))
    loss = amplified(eps, rate)
    more = less * (1 + rate * math.expm1(eps))
    # 1 - less - more = (1 - q) (1 - e^-eps) / (1 + e^-eps)
    # the mass at loss 0, written without cancellation
    middle = (1 - rate) * -math.expm1(-eps) / (1 + math.exp(-eps))
    if loss == 0:
        return Atoms((0.0,), (1.0,), (1.0,), exact=False)
    masses = (less, middle, more)
    error = (64 + 4 * eps) * UNIT
    return Atoms((-loss, 0.0, loss), masses, masses[::-1], error, exact=False, multiple=loss)


@frozen
class MixedPair(Symmetric):
    """The pair of this module's docstring; ``0 < q < 1``, ``inner`` symmetric."""

    inner: Pair = field()
    rate: float

    def tail_error(self) -> float:
        """Return the inner pair's, and that of the sum of its tails."""
        return self.inner.tail_error() * 2 + 64 * UNIT

    def attained(self) -> bool:
        """No mechanism need attain its compositions."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return the slopes' tails; a negative loss has those of its mirror image, below.

        The inner loss is rounded down, so that no atom is lost.
        """
        q = self.rate
        # rounded down: a tail at a smaller loss is larger, which is outward
        inside = _loss_inside(np.abs(loss), q) * (1 - 16 * UNIT)
        p_above, q_above = self.inner.above(inside)
        p_below, q_below = self.inner.below(inside)
        # P'(L' > l) = (1-q) Q(L > l~) + q P(L > l~): the slope of the bounding profile
        p = np.where(loss >= 0, (1 - q) * q_above + q * p_above, q_below)
        return p, np.where(loss >= 0, q_above, (1 - q) * q_below + q * p_below)

    def top(self) -> float:
        """Return ``log(1 + q (e^top - 1))`` of the inner pair's top."""
        top = self.inner.top()
        return amplified(top, self.rate) if top < math.inf else top

    def log_moment(self, z: Complex) -> tuple[Complex, Array] | None:
        """Return it by quadrature, for a Gaussian or a Laplace body."""
        half = self._half()
        return None if half is None else symmetric_log_moment(half, z)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the atoms' share, and of the densities the bound of an integral by parts.

        With ``h = e^{c w} f / w'`` the integral of ``e^{(c + it) w} f`` is at most
        ``(h(0) + TV h) / t <= 5 max h / t``: the slope of log h has at most three zeros, since
        ``w'`` is a logistic curve in s, and what is not a multiple of it is a line.
        """
        half, z = self._half(), np.array([tilt], dtype=np.complex128)
        known = self.log_moment(z)
        if half is None or known is None or not np.isfinite(known[1][0]):
            return np.zeros_like(beyond)
        value, error = float(known[0][0].real), float(known[1][0])
        (p_above,), (p_below,) = self.above(np.zeros(1))[0], self.below(np.zeros(1))[0]
        log_sums = [math.log(max(1 - p_above - p_below, 0.0) + 2 * self.tail_error() + 1e-15)]
        log_parts = []
        for power in (1 + tilt, -tilt):
            log_parts.append(math.log(5) + half.log_peak(power))
            if half.atom() > 0:
                log_sums.append(math.log(half.atom()) + power * self.top())
        fixed, falling = np.logaddexp.reduce(log_sums), np.logaddexp.reduce(log_parts)
        # triangle inequality: the atoms' moduli, and an integral by parts of the densities that
        # falls as 1 / t
        total = np.logaddexp(fixed, falling - np.log(beyond)) + 1e-9
        bound: Array = np.minimum(0.0, total - value + error)
        return bound

    def _half(self) -> _Gaussian | _Laplace | None:
        if isinstance(self.inner, GaussianPair) and 0 < self.inner.mu <= LARGEST_MU:
            return _Gaussian(self.inner.mu, self.rate)
        if isinstance(self.inner, LaplacePair) and 0 < self.inner.epsilon <= LARGEST_LOSS:
            return _Laplace(self.inner.epsilon, self.rate)
        return None


def _log_peak(power: float, w: Array, log_rest: Array) -> float:
    """Return a bound of the largest ``power w + log_rest``, whose second part falls in s."""
    at = w[1:] if power >= 0 else w[:-1]
    most: float = (power * at + log_rest[:-1]).max()
    return most + 1e-9 * (1 + abs(most))


@frozen
class _Laplace(Half):
    """Inner losses s in (0, eps) of a Laplace body, of density ``e^{-(s + eps)/2} / 4`` under Q."""

    epsilon: float
    rate: float

    def scale(self) -> float:
        return 1.0

    def end(self, power: float) -> float:
        return self.epsilon

    def loss(self, s: Array) -> tuple[Array, Array]:
        return _amplified_losses(s, self.rate)

    def log_density(self, s: Array) -> Array:
        return -(s + self.epsilon) / 2 - math.log(4)

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        return -(low + self.epsilon) / 2 - math.log(4)

    def atom(self) -> float:
        return math.exp(-self.epsilon) / 2

    def log_peak(self, power: float) -> float:
        """Return a bound of the largest ``log(e^{power w} f / w')``, ``w' = q e^{s - w}``."""
        s = np.linspace(0.0, self.epsilon, 257)
        rest = self.log_density(s) - s - math.log(self.rate)
        return _log_peak(power + 1, self.loss(s)[0], rest)


@frozen
class _Gaussian(Half):
    """Outcomes ``mu/2 + s`` of a Gaussian body under N(0, 1); the inner loss is ``mu s``."""

    mu: float
    rate: float

    def scale(self) -> float:
        return self.mu

    def end(self, power: float) -> float:
        return (power - 0.5) * self.mu + 10.0

    def log_tail(self, power: Array, end: float) -> Array:
        """There ``1 - q + q r <= r (q + (1-q)/r_end)``, and r^a moves the mean by ``a mu``."""
        mu, q = self.mu, self.rate
        # R <= r (q + (1-q) / r_end) beyond the end
        log_share = math.log(q + (1 - q) * math.exp(-mu * end))
        beyond = special.log_ndtr(-(mu / 2 + end - power * mu))
        tail: Array = power * log_share + power * (power - 1) * mu * mu / 2 + beyond
        return tail

    def loss(self, s: Array) -> tuple[Array, Array]:
        return _amplified_losses(self.mu * s, self.rate)

    def log_density(self, s: Array) -> Array:
        x = self.mu / 2 + s
        return -x * x / 2 - math.log(2 * math.pi) / 2

    def log_ceiling(self, low: Array, high: Array, imaginary: float) -> Array:
        least = np.maximum(0.0, self.mu / 2 + low)
        return imaginary * imaginary / 2 - least * least / 2

    def log_peak(self, power: float) -> float:
        """Return a bound of the largest ``log(e^{power w} f / w')``, ``w' = q mu e^{mu s - w}``.

        It is not beyond ``s = (power + 1) mu``, where its slope is negative.
        """
        mu = self.mu
        s = np.linspace(0.0, max(power + 1, 1.0) * mu + 1, 1025)
        rest = self.log_density(s) - mu * s - math.log(self.rate * mu)
        return _log_peak(power + 1, self.loss(s)[0], rest)


def _amplified_losses(loss: Array, rate: float) -> tuple[Array, Array]:
    """Return ``log(1 + q (e^loss - 1))``, and a bound of its error."""
    near = np.log1p(rate * np.expm1(np.minimum(loss, 30.0)))
    far = loss + math.log(rate) + np.log1p((1 - rate) / rate * np.exp(-np.maximum(loss, 30.0)))
    value = np.where(loss < 30, near, far)
    size = np.abs(value)
    return value, UNIT * (16 * size + (8 + 4 * np.abs(loss)) * np.minimum(size, 1.0))
