"""The Renyi moments of the sampled Gaussian, at every real order above 1.

With ``r = e^(mu x - mu^2/2)`` under ``x ~ N(0, 1)``, wanted is ``A = E (1 - q + q r)^a``, by which
``D_a = log A / (a - 1)`` (Mironov, Talwar and Zhang 2019, Sec. 3.3: removal; addition is no larger
at any order, their Thm 5). Two ways, the second where it is worth it:

* At a whole order the binomial expansion, whose terms l = 0, 1 carry no divergence; taking
  ``sum C q^l (1-q)^(a-l) = 1`` out leaves
  ``A - 1 = sum_{l>=2} C(a,l) q^l (1-q)^(a-l) (e^{l(l-1) mu^2/2} - 1)``, which keeps its digits.
  Between whole orders log A is convex in a and lies under its chords.
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
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from accountants import special
from accountants.rounding import UNIT, Array, up

LARGEST_ORDER = 2048
"""Whole orders beyond this are not summed; the curve is infinite there."""

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
    result = np.full_like(orders, np.inf)
    for most in (4.0, 16.0, _REAL):  # together, since they share their nodes
        some = np.flatnonzero((orders > most / 4) & (orders <= most) & (orders % 1 != 0))
        if len(some):
            result[some] = _trapezoid(mu, orders[some], rate)
    for i in np.flatnonzero(np.isinf(result) & (orders <= LARGEST_ORDER)).tolist():
        result[i] = _chord(mu, float(orders[i]), rate)
    result[:] = up(result / (orders - 1), 8)
    return result


def _chord(mu: float, order: float, rate: float) -> float:
    """Return log A, or at a fractional order its chord between the whole ones around it."""
    below, above = math.floor(order), math.ceil(order)
    moment = _whole(mu, above, rate)
    if above > below:
        share = order - below
        # log A is convex in the order, so the chord between whole orders is above it
        moment = share * moment + (1 - share) * _whole(mu, below, rate)
    return up(moment, 8)


@lru_cache(maxsize=2**16)
def _whole(mu: float, order: int, rate: float) -> float:
    """Return ``log A`` at a whole order, rounded up."""
    if order < 2:
        return 0.0
    count = np.arange(2, order + 1, dtype=np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        exponent = count * (count - 1) / 2 * mu * mu
        # log(e^x - 1): by expm1 for small exponents, by log1p(-e^-x) for large ones
        near = np.log(np.expm1(np.minimum(exponent, 1)))
        far = exponent + np.log1p(-np.exp(-np.maximum(exponent, 1)))
    factorials = _log_factorials()[: order + 1]
    binomial = factorials[order] - factorials[2:] - factorials[order - 2 :: -1]
    weight = binomial + count * math.log(rate) + (order - count) * math.log1p(-rate)
    # the terms l >= 2 of A - 1, all positive
    terms = weight + np.where(exponent < 1, near, far)
    # each term's own rounding: a smaller one may be made of larger numbers than the largest is
    terms = terms + 16 * UNIT * (1 + factorials[order] + np.abs(weight) + exponent)
    largest = float(terms.max())
    if not largest < math.inf:
        return math.inf
    noise = 32 * UNIT * (1 + abs(largest) + order)
    return _log1p_exp(float(_log_sum(terms)) + noise)


@lru_cache(maxsize=1)
def _log_factorials() -> Array:
    return np.asarray(special.gammaln(np.arange(1.0, LARGEST_ORDER + 2)))


def _log_sum(logs: Array) -> Array:
    """Return the log of the sum of exponentials over the last axis; the largest is finite."""
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
    last = math.ceil((most * mu + _CURVE_TAIL) / step)
    first = -math.ceil(_CURVE_TAIL / step)
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
    exponent = mu * x - mu * mu / 2
    slip = 8 * UNIT * (np.abs(mu * x) + mu * mu)
    u = rate * np.expm1(np.minimum(exponent, 600))
    beyond = exponent + np.log(rate + (1 - rate) * np.exp(-np.maximum(exponent, 600)))
    log_mixed = np.where(exponent < 600, np.log1p(u), beyond)
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
