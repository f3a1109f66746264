"""The Renyi moments of the sampled Gaussian, at every real order above 1.

With ``r = e^(mu x - mu^2/2)`` under ``x ~ N(0, 1)``, wanted is ``A = E (1 - q + q r)^a``, by which
``D_a = log A / (a - 1)`` (Mironov, Talwar and Zhang 2019, Sec. 3.3: removal; addition is no larger
at any order, their Thm 5). Two ways, the second where it is worth it:

* At an integer order the binomial expansion, whose terms l = 0, 1 carry no divergence; taking
  ``sum C q^l (1-q)^(a-l) = 1`` out leaves
  ``A - 1 = sum_{l>=2} C(a,l) q^l (1-q)^(a-l) (e^{l(l-1) mu^2/2} - 1)``, which keeps its digits.
  Between integer orders log A is convex in a and lies under its chords.
* At a real order the trapezoid rule. Since ``E r = 1``, with ``u = q (r - 1)`` also
  ``A - 1 = E f(u)``, ``f(u) = (1 + u)^a - 1 - a u >= 0``: a sum of positive numbers. The
  integrand is analytic where ``|Im x| < pi / mu`` (``1 - q + q r`` does not meet the negative
  axis), and on ``Im x = s`` at most ``e^{s^2/2}`` times the density times
  ``(1 - q + q r)^a + 1 + a q (r + 1)`` at ``Re x``. So at step h the rule is within
  ``c (A + 1 + 2 a q)``, ``c = 2 e^{s^2/2} / (e^{2 pi s / h} - 1)`` for any s below ``pi / mu``
  (Trefethen and Weideman 2014, Thm 5.1). What lies outside of the nodes is at most

  - left of -X, where r < 1 and f <= f(-q): ``f(-q) Phi(-X)``;
  - right of Y, where ``1 - q + q r <= r (q + (1 - q) / r_Y)``:
    ``(q + (1-q)/r_Y)^a e^{a (a-1) mu^2/2} Phi(a mu - Y)``,

  for the rule's own sum too, its integrand there being under a falling density.

Where the noise is small neither is needed. By Minkowski's inequality, for every real order above 1,
``log A <= a log(1 - q + q e^{(a-1) mu^2/2})``, and ``A >= q^a E r^a = q^a e^{a (a-1) mu^2/2}``. So
where ``g = (a-1) mu^2/2 + log q`` is large, the bound is relatively within ``e^{-g} / g`` of log A.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TypeVar

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from accountants import special
from accountants.losses.laplace import log_factorials
from accountants.numerics import UNIT, Array, Complex, expm1, log1p, up
from accountants.pair import decay_from_points, decay_of_parts, suprema, uniform_parts

LARGEST_ORDER = 2048
"""Integer orders beyond this are not summed; Minkowski's inequality bounds the curve there."""

_SHIFTED = 40.0
"""Where ``(a-1) mu^2/2 + log q`` is above this, Minkowski's inequality loses nothing."""

_REAL = 64.0
"""Orders above this lie under chords that are as good."""

_CURVE_NODES = 2**18
"""No more values of the integrand than this at once."""

_CURVE_TAIL = 14.0
"""The nodes end where the density has fallen by this many standard deviations."""


def sampled_gaussian_curve(mu: float, orders: Array, rate: float) -> Array:
    """Return the divergences at real orders, rounded up; ``0 < rate < 1``, mu positive.

    Searches ask for the same orders again and again, world by world: answers are remembered.
    """
    wanted = np.asarray(orders, dtype=np.float64)
    return np.array(_curve_by_order(mu, wanted.tobytes(), rate)).reshape(wanted.shape)


@lru_cache(maxsize=4096)
def _curve_by_order(mu: float, wanted: bytes, rate: float) -> Array:
    orders: Array = np.frombuffer(wanted, dtype=np.float64)
    shifted = (orders - 1) * mu * mu / 2 + math.log(rate) > _SHIFTED
    result = np.where(shifted, _minkowski(mu, orders, rate), np.inf)
    for most in (4.0, 16.0, _REAL):  # together, since they share their nodes
        inside = (orders > most / 4) & (orders <= most) & (orders % 1 != 0)
        some = np.flatnonzero(inside & ~shifted)
        if len(some):
            result[some] = _trapezoid(mu, orders[some], rate)
    for i in np.flatnonzero(np.isinf(result) & (orders <= LARGEST_ORDER) & ~shifted).tolist():
        result[i] = _chord(mu, float(orders[i]), rate)
    # past the orders that are summed the inequality is all that is known
    result = np.where(np.isinf(result), _minkowski(mu, orders, rate), result)
    result[:] = up(result / (orders - 1), 8)
    return result


def _minkowski(mu: float, orders: Array, rate: float) -> Array:
    """Return ``a log(1 - q + q e^{(a-1) mu^2/2})``, which is at least log A for any a >= 1."""
    with np.errstate(over="ignore", invalid="ignore"):
        # |1 - q + q r|_a <= 1 - q + q |r|_a in L_a under N(0, 1), |r|_a = e^{(a-1) mu^2/2}
        exponent = up((orders - 1) * mu * mu / 2)
        bound: Array = up(orders * _log_mixture(exponent, rate), 64)
    # log q enters a large exponent's mixture with a rounding of its own
    return bound + orders * (8 * UNIT * -math.log(rate))


def _chord(mu: float, order: float, rate: float) -> float:
    """Return log A, or at a fractional order its chord between the integers around it."""
    below, above = math.floor(order), math.ceil(order)
    moment = _integer_order(mu, above, rate)
    if above > below:
        share = order - below
        # log A is convex in the order, so the chord between integer orders is above it
        moment = share * moment + (1 - share) * _integer_order(mu, below, rate)
    return up(moment, 8)


@lru_cache(maxsize=2**16)
def _integer_order(mu: float, order: int, rate: float) -> float:
    """Return ``log A`` at an integer order, rounded up."""
    # order 1: the moment is 1, since E r = 1
    if order < 2:
        return 0.0
    count = np.arange(2, order + 1, dtype=np.float64)
    with np.errstate(over="ignore"):
        exponent = count * (count - 1) / 2 * mu * mu
    factorials = log_factorials(LARGEST_ORDER)[: order + 1]
    binomial = factorials[order] - factorials[2:] - factorials[order - 2 :: -1]
    weight = binomial + count * math.log(rate) + (order - count) * math.log1p(-rate)
    # the terms l >= 2 of A - 1, all positive
    terms = weight + log_expm1(exponent)
    # each term's own rounding: a smaller one may be made of larger numbers than the largest is
    terms = terms + 16 * UNIT * (1 + factorials[order] + np.abs(weight) + exponent)
    largest = float(terms.max())
    # infinite or nan: no bound
    if not largest < math.inf:
        return math.inf
    noise = 32 * UNIT * (1 + abs(largest) + order)
    return _log1p_exp(float(_log_sum(terms)) + noise)


def log_expm1(x: Array) -> Array:
    """Return ``log(e^x - 1)``: by expm1 for small numbers, by ``log1p(-e^-x)`` for large ones."""
    with np.errstate(divide="ignore"):
        near = np.log(np.expm1(np.minimum(x, 1)))
    far = x + np.log1p(-np.exp(-np.maximum(x, 1)))
    return np.where(x < 1, near, far)


def _log_sum(logs: Array) -> Array:
    """Return the log of the sum of exponentials over the last axis; the largest is finite."""
    # taken out, so that no exponential overflows
    most = logs.max(axis=-1, keepdims=True)
    total: Array = np.log(np.exp(logs - most).sum(axis=-1)) + most[..., 0]
    return total


def _log1p_exp(value: float) -> float:
    return up(math.log1p(math.exp(value)) if value < 700 else up(value), 8)


def _trapezoid(mu: float, orders: Array, rate: float) -> Array:
    """Return log A at real orders by the trapezoid rule, infinite where that would be too long."""
    most = float(orders.max())
    # so many digits that the rule's error is nothing beside A - 1, which is about (q mu)^2
    digits = 60 - 2 * math.log(rate) + 2 * max(0.0, -math.log(mu))
    digits -= math.log(float(orders.min()) - 1)
    # s: as wide as the digits ask, within the strip |Im x| < pi / mu of analyticity
    strip = min(math.sqrt(2 * digits), 0.99 * math.pi / mu)
    # solves s^2/2 - 2 pi s / h = -digits for h
    step = 2 * math.pi * strip / (digits + strip * strip / 2)
    # r^a moves the density's mean to a mu: nodes go a tail beyond that
    last = math.ceil((most * mu + _CURVE_TAIL) / step)
    first = -math.ceil(_CURVE_TAIL / step)
    # too many nodes: infinite here, and the caller takes chords instead
    if not (last - first) * len(orders) < _CURVE_NODES:
        return np.full_like(orders, np.inf)
    x = np.arange(first, last + 1, dtype=np.float64) * step
    sums = _log_sum(_log_integrand(mu, orders[:, None], rate, x)) + math.log(step)
    # the rule's sum, and what lies left and right of its nodes
    parts = np.stack([sums, *_tails(mu, orders, rate, float(-x[0]), float(x[-1]))])
    # log c = log 2 + s^2/2 - 2 pi s / h - log(1 - e^{-2 pi s / h}) of Trefethen and Weideman's
    # bound
    log_c = math.log(2) + strip * strip / 2 - 2 * math.pi * strip / step
    log_c += 1e-12 * digits - math.log1p(-math.exp(-digits / 2))
    error = log_c + np.log(2 + 2 * orders * rate)
    total = _log_sum(np.concatenate([parts, error[None]]).T)
    # the error is c (A + 1 + 2 a q) = c (A - 1) + c (2 + 2 a q): the first part relative to A - 1,
    # the second a term of the sum
    total = total + 2 * math.exp(log_c) + 4 * UNIT * (len(x) + np.abs(total) + 64)
    return np.array([_log1p_exp(value) for value in total.tolist()])


def _log_integrand(mu: float, orders: Array, rate: float, x: Array) -> Array:
    """Return the log of an upper bound of ``f(u)`` times the normal density (orders by nodes).

    The logarithm of r is off by at most ``slip``, so u by ``q r slip`` and its own rounding; f
    moves by its slope times that. With ``l = log(1 + u)``, where ``a l`` is large,

    ``f = e^{a l} (1 - e^{-s} - (a-1) e^{-s} (1 - e^{-l}))``, ``s = (a-1) l``,

    whose derivative in l is ``a e^{a l} (1 - e^{-s})``.
    """
    # log r at the nodes
    exponent = mu * x - mu * mu / 2
    slip = 8 * UNIT * (np.abs(mu * x) + mu * mu)
    # beyond 600 e^x nears overflow: log(q r + 1 - q) is taken with r factored out
    u = rate * np.expm1(np.minimum(exponent, 600))
    beyond = exponent + np.log(rate + (1 - rate) * np.exp(-np.maximum(exponent, 600)))
    log_mixed = np.where(exponent < 600, np.log1p(u), beyond)
    # y = a l: below 20 f is computed directly, above by the formula of the docstring
    y = orders * log_mixed
    some, far = np.minimum(y, 20), np.maximum(log_mixed, 0)
    # what is left of the rounding is that of expm1(a log1p(u)) and a u, each below |y| e^y
    rounding = 16 * UNIT * np.abs(some) * np.exp(np.maximum(some, 0))
    slope = orders * np.abs(np.expm1((1 - 1 / orders) * some))
    moved = slope * (rate * np.exp(np.minimum(exponent, 600)) * slip + 8 * UNIT * np.abs(u))
    small = np.log(np.maximum(np.expm1(some) - orders * u, 0) + rounding + moved + 1e-300)
    fall = -np.expm1(-(orders - 1) * far)
    share = fall + (orders - 1) * (1 - fall) * np.expm1(-far)
    share = np.maximum(share, 0) + 16 * UNIT * (fall + orders - 1)
    share = share + orders * fall * (slip + 8 * UNIT * far)
    log_f = np.where(y < 20, small, y + np.log(share + 1e-300))
    noise = 8 * UNIT * (1 + np.abs(y) + np.abs(log_f) + x * x)
    logs: Array = log_f - x * x / 2 - math.log(2 * math.pi) / 2 + noise
    return logs


def _tails(mu: float, orders: Array, rate: float, left: float, right: float) -> list[Array]:
    """Return the logs of bounds of what lies left of ``-left`` and right of ``right``."""
    # f(-q) = (1 - q)^a - 1 + a q, which bounds f left of the nodes
    at_zero = np.maximum(0.0, orders * rate - 1 + np.exp(orders * math.log1p(-rate)))
    below = np.log(at_zero + 16 * UNIT * (1 + orders * rate)) + float(special.log_ndtr(-left))
    # 1 / r_Y: right of the nodes 1 - q + q r <= r (q + (1 - q) / r_Y)
    least = math.exp(-min(600.0, mu * right - mu * mu / 2))
    parts: list[Array] = [
        orders * math.log(rate + (1 - rate) * least),
        orders * (orders - 1) * mu * mu / 2,
        special.log_ndtr(orders * mu - right),
    ]
    noise = 1e-12 * (1 + np.sum(np.abs(parts), axis=0))
    return [below + 1e-12 * (1 + np.abs(below)), np.sum(parts, axis=0) + noise]


# -----------------------------------------------------------------------------
# The dominating pair of the Poisson-sampled Gaussian, for contour integrals.
#
# With ``x ~ N(0, 1)`` under Q, ``r = e^{mu x - mu^2/2}`` and ``R = 1 - q + q r`` the loss is
# ``l = log R`` under ``P = R Q`` (Mironov, Talwar and Zhang 2019; Zhu, Dong and Wang 2022, Thm 11).
# So ``M(z) = E_Q R^s`` with ``s = z + 1``, of either sign, and the reversed pair's moments are the
# same function. ``M - 1 = E_Q (e^{s l} - 1)`` by the trapezoid rule, step h, on ``[-X, Y]``:
#
# * On ``Im x = y``, ``|y| mu < pi``, the argument of R is at most ``mu |y|`` and
#   ``R(Re x) cos(mu y / 2) <= |R| <= R(Re x)``. So there ``|R^s - 1|`` is at most ``g R^a + 1``,
#   ``a = Re s``, ``g = e^{|Im s| mu |y|} max(1, cos(mu y/2)^a)``, and the rule is within
#   ``2 e^{y^2/2} (g E R^a + 1) / (e^{2 pi |y| / h} - 1)`` (Trefethen and Weideman 2014, Thm 5.1).
# * What lies outside is at most ``E R^a 1[outside] + P(outside)``: for a > 0 left of -X, where
#   ``R <= 1``, and right of Y, where ``R <= r (q + (1-q)/r_Y)`` (for a <= 1,
#   ``R^a <= (1-q)^a + (q r)^a``), by Gaussian tails; for a < 0 left of -X, where ``R >= q r``,
#   ``R >= 1 - q`` and ``R >= r^q``. The rule's own sum there is under a falling density, so it is
#   at most the integral and a step more, which the margin of X and Y covers.


_TAIL = 10.5
"""Nodes end where the density has fallen by this many standard deviations."""

_DIGITS = 48.0
"""The trapezoid rule's error is about e^-48 of the moment."""

AnyArray = TypeVar("AnyArray", Array, Complex)

_NODES = 2**20
"""No more values of the integrand than this at once."""

_FEW = 2**15
"""Up to so many values it costs less to compute a few more than to group the points."""


def sampled_gaussian_log_moment(mu: float, rate: float, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E_Q R^s`` and bounds of its error; ``0 < rate < 1``, ``mu > 0``.

    Points whose integrands reach about as far, and oscillate about as fast, share their nodes.
    """
    points = np.ravel(s)
    value, error = _shifted_moments(mu, rate, points)
    if mu >= _APART:
        other, wrong = _moments_apart(mu, rate, points)
        better = wrong < np.minimum(error, 1e-9)
        value, error = np.where(better, other, value), np.where(better, wrong, error)
    rest = np.flatnonzero(~np.isfinite(error))
    for some in _kinds(mu, points[rest]):
        kind = rest[some]
        value[kind], error[kind] = _on_nodes(mu, rate, points[kind])
    return value.reshape(np.shape(s)), error.reshape(np.shape(s))


_APART = 10.0
"""From this mu on it is asked whether r is nearly always far from ``(1-q) / q``."""


def _moments_apart(mu: float, rate: float, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E R^s`` where the two parts of R hardly meet, else an infinite error.

    With ``u = q r / (1 - q)`` and ``a = Re s`` is ``R^s = (1-q)^s (1 + u)^s``. For ``a >= 1``

    * where ``u <= 1``, ``|(1 + u)^s - 1| <= |s| 2^{a-1} u``, and ``|u^s| = u^a``,
    * where ``u > 1``, ``|(1 + u)^s - u^s| <= |s| (2 u)^{a-1}``, and 1 is 1,

    so that ``E R^s`` is ``(1-q)^s + E (q r)^s`` within the expectations of these. For ``a <= 0`` it
    is ``(1-q)^s`` within ``(1-q)^a (|s| E[u; u <= 1] + 2 P(u > 1))``.
    """
    a, z, size, square = s.real, s - 1, np.abs(s), mu * mu / 2
    log_rest, log_rate = math.log1p(-rate), math.log(rate)
    odds = log_rate - log_rest
    k = mu / 2 - odds / mu  # where u = 1
    log_phi = special.log_ndtr
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        near = np.log(size) + odds + float(log_phi(k - mu))
        beyond = float(log_phi(-k))
        b, doubled = a - 1, (a - 1) * math.log(2)
        far = np.log(size) + doubled + b * odds + b * (b - 1) * square + log_phi(b * mu - k)
        under = a * odds + a * b * square + log_phi(k - a * mu)
        above = np.logaddexp(np.logaddexp(near + doubled, far), np.logaddexp(under, beyond))
        below = np.logaddexp(near, beyond + math.log(2))
        missed = np.exp(np.where(a >= 1, above, below) + a * log_rest + 1e-6)
        rounding = 8 * UNIT * (size + np.abs(z))
        # E (q r)^s = q e^{z (log q + s mu^2/2)}
        rise = z * (log_rate + s * square)
        both = (1 - rate) * expm1(z * log_rest) + rate * expm1(rise)
        moved = (1 - rate) * np.exp(z.real * log_rest) * rounding * -log_rest
        moved = moved + rate * np.exp(rise.real) * rounding * (-log_rate + (size + 1) * 2 * square)
        moved = 2 * moved + 64 * UNIT * (
            (1 - rate) * np.abs(expm1(z * log_rest)) + rate * np.abs(expm1(rise))
        )
        alone, alone_moved = expm1(s * log_rest), np.exp(a * log_rest) * rounding * -log_rest
        alone_moved = 2 * alone_moved + 64 * UNIT * np.abs(alone)
        moment = np.where(a >= 1, both, alone)
        wrong = missed + np.where(a >= 1, moved, alone_moved)
        good = ((a >= 1) | (a <= 0)) & (missed < 1e-20) & np.isfinite(moment) & (wrong < 1e290)
        value, error = log1p(np.where(good, moment, 0.0), np.where(good, wrong, np.inf))
    good &= rounding * (-log_rate + (size + 1) * 2 * square) < 0.5  # |e^x - 1| <= 2 |x| there
    return np.where(good, value, 0.0), np.where(good, error, np.inf)


def _shifted_moments(mu: float, rate: float, s: Complex) -> tuple[Complex, Array]:
    """Return ``log E (q r)^s`` where it is all of ``log E R^s`` but e^-40; else an infinite error.

    For ``a = Re s >= 1`` the difference ``(q r + 1 - q)^s - (q r)^s`` is s times an integral of
    ``(q r + u)^{s-1}`` over u up to 1 - q, and so at most ``|s| (1 - q) R^{a-1}``. The mean of
    ``R^{a-1}`` is at most 1 for ``a <= 2`` (Jensen), beyond at most Minkowski's bound.
    """
    a, square = s.real, mu * mu / 2
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # E (q r)^s = q^s e^{s (s-1) mu^2/2}
        value = s * math.log(rate) + s * (s - 1) * square
        below = np.where(a > 2, _minkowski(mu, np.maximum(a - 1, 1.0), rate), 0.0)
        log_ratio = np.log(np.abs(s)) + math.log1p(-rate) + below - value.real
        sizes = 1 + np.abs(s) * (-math.log(rate) + (1 + np.abs(s)) * square)
        log_ratio = log_ratio + 16 * UNIT * (sizes + np.abs(below))
        # |log(1 + x)| <= 2 |x| for |x| <= 1/2; then the rounding of the formula
        error = 2 * np.exp(log_ratio) + 16 * UNIT * sizes
        known = (a >= 1) & (log_ratio < -_SHIFTED) & np.isfinite(sizes)
    return np.where(known, value, 0.0), np.where(known, error, np.inf)


def _kinds(mu: float, points: Complex) -> list[NDArray[np.intp]]:
    """Return which points share their nodes: a few that ask for few nodes always do."""
    left = np.flatnonzero(points.real < 0)
    right = np.flatnonzero(points.real >= 0)
    kinds: list[NDArray[np.intp]] = []
    for some in (left, right):
        far, fast = (mu * np.abs(part[some]) for part in (points.real, points.imag))
        nodes = (far.max(initial=0.0) + 2 * _TAIL) * (fast.max(initial=0.0) + 2 * _TAIL)
        if len(some) and nodes * len(some) < _FEW:
            kinds.append(some)
            continue
        sort = np.ceil(np.log2(1 + far / 16) / 2) + 1000 * np.ceil(np.log2(1 + fast / 16) / 2)
        kinds += [some[sort == each] for each in np.unique(sort)]
    return kinds


@frozen
class _Nodes:
    """The trapezoid rule's nodes for points of one kind, and what they leave out.

    Parameters
    ----------
    x, loss, slip
        Nodes, the loss at each, and bounds of its error.
    step, strip
        h and y of the section above.
    aliased, outside
        For each point, the rule's error in units of ``E R^a``, and a bound of what lies outside.
    """

    x: Array
    loss: Array
    slip: Array
    step: float
    strip: float
    aliased: Array
    outside: Array


def _on_nodes(mu: float, rate: float, s: Complex) -> tuple[Complex, Array]:
    """Return log-moments at points of one kind."""
    a = s.real
    strip, step = _step(mu, float(a.min()), float(np.abs(s.imag).max()))
    left, right = _ends_of_nodes(mu, rate, float(a.min()), float(a.max()))
    # too many nodes: an infinite error says that the value is not known
    if not (left + right) / step * len(s) < _NODES:
        return np.zeros(len(s), dtype=np.complex128), np.full(len(s), np.inf)
    x = step * np.arange(-math.ceil(left / step), math.ceil(right / step) + 1, dtype=np.float64)
    log_r = mu * x - mu * mu / 2
    loss = _log_mixture(log_r, rate)
    # the exponent's rounding reaches the loss by the share of r in R
    share = np.exp(np.minimum(math.log(rate) + log_r - loss, 0))
    slip = share * 8 * UNIT * (np.abs(mu * x) + mu * mu) + 8 * UNIT * np.abs(loss)
    outside = _outside(mu, rate, a, -float(x[0]), float(x[-1]))
    nodes = _Nodes(x, loss, slip, step, strip, _aliased(mu, s, strip, step), outside)
    grown = a[:, None] * loss
    # e^{a l} could overflow at these points: they are left to `_far`
    large = (grown.max(axis=1) > 600) | ((grown - x * x / 2).max(axis=1) > 500)
    if not large.any():
        return _near(s, nodes, grown)
    value, error = np.zeros(len(s), dtype=np.complex128), np.full(len(s), np.inf)
    for some, way in ((large, _far), (~large, _near)):
        if some.any():
            part = evolve(nodes, aliased=nodes.aliased[some], outside=outside[some])
            value[some], error[some] = way(s[some], part, grown[some])
    return value, error


def _ends_of_nodes(mu: float, rate: float, least: float, most: float) -> tuple[float, float]:
    """Return how far the nodes go: where a < 0, as far as R goes on falling to 1 - q."""
    flat = math.sqrt(_TAIL * _TAIL - 2 * min(0.0, least) * -math.log1p(-rate))
    return min(_TAIL + max(0.0, -least) * mu, flat), _TAIL + max(0.0, most) * mu


def _near(s: Complex, nodes: _Nodes, grown: Array) -> tuple[Complex, Array]:
    """Return log-moments from ``M - 1``."""
    x, loss, count = nodes.x, nodes.loss, len(nodes.x)
    weight = np.exp(-x * x / 2) * (nodes.step / math.sqrt(2 * math.pi))
    power, size = np.exp(grown), np.abs(s)
    total = _sum(power, weight)
    moved = _sum(power, weight * nodes.slip)
    rounded = weight * (64 + count + 4 * x * x) * UNIT
    least = _sum(np.maximum(power, 1), rounded * np.abs(loss))
    # e^{s l} - 1, so that M - 1 keeps its digits next to 0
    terms = expm1(s[:, None] * loss) if s.imag.any() else np.expm1(grown)
    moment = _sum(terms, weight).astype(np.complex128)
    # the loss's error moves R^s by |s| times it; then the rounding of each term and of the sum
    wrong = 2 * size * moved + np.minimum(size * least, _sum(power + 1, rounded))
    inflation = 1 / np.maximum(1e-300, 1 - nodes.aliased)
    # E R^a is at most (the rule's sum + what is outside) / (1 - aliased)
    wrong = wrong + nodes.aliased * (total * (1 + 1e-9) + nodes.outside) * inflation
    return log1p(moment, wrong + _aliased_constant(nodes.strip, nodes.step) + nodes.outside)


def _far(s: Complex, nodes: _Nodes, grown: Array) -> tuple[Complex, Array]:
    """Return log-moments where they are astronomical: the largest term is taken out."""
    x, loss = nodes.x, nodes.loss
    top = (grown - x * x / 2).max(axis=1)
    sizes = np.exp(grown - (x * x / 2) - top[:, None])
    # a real point's terms are their sizes; of the others each has its angle, Im s times the loss
    turned = s.imag[:, None] * loss
    terms = sizes * np.exp(1j * turned) if s.imag.any() else sizes
    moment, size = terms.sum(axis=1).astype(np.complex128), sizes.sum(axis=1)
    exponents = np.abs(s) * float(np.abs(loss).max()) + float(x[-1] ** 2 + x[0] ** 2) + np.abs(top)
    # rounding of each exponent, then the loss's error times |s|
    wrong = size * (64 + len(x) + 8 * exponents) * UNIT + np.abs(s) * 2 * _sum(sizes, nodes.slip)
    inflation = 1 / np.maximum(1e-300, 1 - nodes.aliased)
    log_scale = math.log(math.sqrt(2 * math.pi) / nodes.step)
    rest = np.exp(np.minimum(700.0, np.log(nodes.outside + 1e-300) - top + log_scale))
    wrong = wrong + nodes.aliased * (size + rest) * inflation * (1 + 1e-9) + rest
    moved = wrong / np.maximum(np.abs(moment), 1e-300)
    value = np.log(np.where(moment == 0, 1.0, moment)) + (top - log_scale)
    error = 2 * moved + 16 * UNIT * (1 + np.abs(value) + np.abs(top))
    return np.where(moved < 0.5, value, 0.0), np.where(moved < 0.5, error, np.inf)


def _sum(terms: AnyArray, weight: Array) -> AnyArray:
    """Return each row's weighted sum: not by a BLAS, whose threads cost more than they save."""
    result: AnyArray = np.einsum("ij,j->i", terms, weight)
    return result


def _step(mu: float, a: float, turn: float) -> tuple[float, float]:
    """Return the strip's half width y and the step h that gives ``e^-48``."""
    widest = math.pi / mu
    strip = min(0.9 * widest if a >= 0 else 0.5 * widest, math.sqrt(2 * _DIGITS))
    digits = _DIGITS + strip * strip / 2 + turn * mu * strip
    if a < 0:
        # for a < 0 the factor cos(mu y / 2)^a of the section above grows: more digits are needed
        digits += a * math.log(math.cos(mu * strip / 2))
    return strip, 2 * math.pi * strip / digits


def _aliased(mu: float, s: Complex, strip: float, step: float) -> Array:
    """Return the rule's error in units of ``E R^a``."""
    grow = strip * strip / 2 + np.abs(s.imag) * mu * strip - 2 * math.pi * strip / step
    grow = grow + np.minimum(0.0, s.real) * math.log(math.cos(min(1.5, mu * strip / 2)))
    return 2.001 * np.exp(np.minimum(700.0, grow + 1e-9 * (1 + np.abs(grow))))


def _aliased_constant(strip: float, step: float) -> float:
    """Return the rule's error for the constant 1 that the moment is taken less of."""
    return 2.001 * math.exp(strip * strip / 2 - 2 * math.pi * strip / step + 1e-9)


def _log_mixture(log_r: Array, rate: float) -> Array:
    """Return ``log(1 - q + q r)`` to a few units of itself."""
    with np.errstate(over="ignore"):
        near = np.log1p(rate * np.expm1(np.minimum(log_r, 50)))
    if rate > 0.5:  # 1 + q (r - 1) cancels where r is small; a sum of positive numbers does not
        sure = np.log((1 - rate) + rate * np.exp(np.minimum(log_r, 50)))
        near = np.where(log_r < -0.5, sure, near)
    far = math.log(rate) + log_r + np.log1p((1 - rate) / rate * np.exp(-np.maximum(log_r, 50)))
    loss: Array = np.where(log_r < 50, near, far)
    return loss


def _outside(mu: float, rate: float, a: Array, left: float, right: float) -> Array:
    """Return bounds of ``E (R^a + 1)`` beyond the nodes, of the integral and of the rule."""
    log_phi = special.log_ndtr
    beyond = 2 * math.exp(float(log_phi(-min(left, right))))
    least = math.exp(-max(-600.0, min(600.0, mu * right - mu * mu / 2)))
    shifted = a * (a - 1) * mu * mu / 2
    single = a * math.log(rate) + shifted + log_phi(a * mu - right)
    both = a * math.log(rate + (1 - rate) * least) + shifted + log_phi(a * mu - right)
    split = np.logaddexp(single, a * math.log1p(-rate) + float(log_phi(-right)))
    # (x + y)^a <= x^a + y^a for a <= 1; else R <= r (q + (1-q)/r_Y)
    above = np.where(a <= 1, split, both)  # (x + y)^a <= x^a + y^a there
    # left of -X, for a < 0: by R >= 1 - q, by R >= q r, and by R >= r^q; the least holds
    flat = a * math.log1p(-rate) + float(log_phi(-left))
    below = np.minimum(flat, a * math.log(rate) + shifted + log_phi(-a * mu - left))
    b = rate * a
    below = np.minimum(below, b * (b - 1) * mu * mu / 2 + log_phi(-b * mu - left))
    tail = np.where(a >= 0, above, below)
    return np.asarray(2 * (beyond + np.exp(np.minimum(700.0, tail + 1e-9 * (1 + np.abs(tail))))))


# --- how the moments decay


def sampled_gaussian_decay(mu: float, rate: float, a: float, beyond: Array) -> Array:
    """Return bounds of ``log |E R^{a + it'} / E R^a|`` for all ``t' >= t``.

    Let phi be the characteristic function of the loss under the law proportional to R^a, and V
    its variance. ``G = |phi|^2`` has ``|G''| <= 2 V``, so between two points d apart it exceeds
    the larger of its values there by at most ``V d^2 / 4``: points at which it is computed give
    its supremum between them, up to the last point. Beyond, `_uniform_parts` bounds it.
    """
    points = _suprema(mu, rate, a, float(beyond.min()), float(beyond.max()))
    return decay_from_points(points, _uniform_parts(mu, rate, a), beyond)


def _uniform(mu: float, rate: float, a: float, beyond: Array) -> Array:
    """Return ``log(1 - sum lambda (1 - |sinc|))`` over the uniform parts."""
    return decay_of_parts(*_uniform_parts(mu, rate, a), beyond)


@lru_cache(maxsize=256)
def _suprema(mu: float, rate: float, a: float, first: float, last: float) -> tuple[Array, Array]:
    """Return points t, ``first`` the first, and bounds of ``log |phi|`` from each of them on."""
    return suprema(
        lambda t: _square(mu, rate, a, t),
        lambda t: _uniform(mu, rate, a, t),
        _variance(mu, rate, a),
        first,
        last,
    )


def _square(mu: float, rate: float, a: float, t: Array) -> Array:
    """Return upper bounds of ``|phi(t)|^2``, at most 1."""
    points = np.asarray(a + 1j * np.concatenate([[0.0], t]), dtype=np.complex128)
    value, error = sampled_gaussian_log_moment(mu, rate, points)
    value = np.where(np.isfinite(error), value, 0.0)
    logs = value.real[1:] + error[1:] - value.real[0] + error[0]
    square: Array = np.exp(np.minimum(0.0, np.where(np.isfinite(logs), 2 * logs, 0.0)))
    return square * (1 + 8 * UNIT)


def _variance(mu: float, rate: float, a: float) -> float:
    """Return an upper bound of the loss's variance under the law proportional to R^a.

    For any m and h, ``E (L - m)^2 <= 2 (E cosh(h (L - m)) - 1) / h^2``, of moments at a +- h.
    """
    best = math.inf
    # h about one over the deviation is best, which may be far from 1
    widths = sorted({0.1, 1.0, abs(a) / 64, abs(a) / 8})
    points = np.array([[a, a - h, a + h] for h in widths], dtype=np.complex128)
    values, errors = sampled_gaussian_log_moment(mu, rate, points)
    for h, value, error in zip(widths, values.real.tolist(), errors, strict=True):
        middle, left, right = value
        slack = float(error.sum()) + 8 * UNIT * (abs(left) + abs(middle) + abs(right))
        # log of E cosh(h (L - m)) at the m at which both exponentials are equal
        spread = (left + right) / 2 - middle
        if not slack < 0.1 or spread > 300:
            continue
        # with h m = (right - left) / 2 the two exponentials are both e^spread
        best = min(best, 2 * math.expm1(max(0.0, spread) + 2 * slack) / (h * h))
    return best * (1 + 1e-9) if best < math.inf else 1e300


@lru_cache(maxsize=256)
def _uniform_parts(mu: float, rate: float, a: float) -> tuple[Array, Array]:
    """Return the weights and widths of uniform parts under the density of the loss.

    On a cell of x the density of x is at least ``min(phi) min(R^a) / E R^a``, both minima at an
    end, and the loss moves by at most ``mu q r / R`` at its right end. The level sets of that
    step function, taken in layers, are the parts.
    """
    s = np.array([complex(a, 0.0)])
    total, error = sampled_gaussian_log_moment(mu, rate, s)
    return parts_below(mu, rate, a, float(total[0].real) + float(error[0]))


def parts_below(mu: float, rate: float, a: float, log_moment: float) -> tuple[Array, Array]:
    """Return the uniform parts from an upper bound of ``log E R^a``."""
    left, right = _ends_of_nodes(mu, rate, a, a)
    x = np.linspace(-left, right, 1 + max(160, min(2000, math.ceil((left + right) * 10))))
    log_r = mu * x - mu * mu / 2
    loss = _log_mixture(log_r, rate)
    log_share = np.minimum(math.log(rate) + log_r - loss, 0.0)
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    # the least of the tilted density on a cell: both factors are least at an end
    low = np.minimum(log_density[:-1], log_density[1:]) + np.minimum(a * loss[:-1], a * loss[1:])
    # over the greatest slope of the loss: a lower bound of the density of l; shrunk by 1e-9 below
    height = low - log_moment - math.log(mu) - log_share[1:]
    return uniform_parts(height, loss)
