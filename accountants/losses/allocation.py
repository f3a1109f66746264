"""The law of the mean of independent likelihood ratios, built by doubling.

A ratio is spread outward onto a grid, and so is each mean of two (`accountants.losses.grids`).
What is spread still dominates, since sums of independent variables keep that order. Of the
moments of Gaussian ratios under P's removal the whole ones are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from attrs import frozen

from accountants import special
from accountants.atoms import Atoms
from accountants.losses.gaussian import GaussianPair
from accountants.losses.grids import spread
from accountants.losses.laplace import LaplacePair
from accountants.losses.pure import ResponsePair
from accountants.pair import Pair
from accountants.rounding import UNIT, Array, up

_FINE, _GROWTH = 1 / 64, 0.01
"""Grids are this fine at 1, in standard deviations, and grow by this share of the loss."""

_LARGEST_RATIO = 190.0
"""A body with a loss above this is not amplified: what underflows would be too much."""

_NORMAL_TAIL = 37.6
"""So many standard deviations of a Gaussian body are followed: all but 1e-308."""

LOST = 1e-200
"""More than all that underflows: ``2^30`` products of less than 1e-323, times ``e^190``."""

_MOVED = 1e-13
"""More than the relative error of a ratio."""

_MOST_POINTS = 2**20
"""More steps than this count as this many."""

_LARGEST_ORDER = 256
"""Whole orders whose moments are summed."""


@frozen
class _Law:
    """Ratios x, rising, with their masses under Q, each within a relative ``error``."""

    x: Array
    mass: Array
    error: float


@lru_cache(maxsize=64)
def allocated(inner: Pair, steps: int) -> Pair:
    """Return the pair of the mean of ``steps`` ratios of ``inner``, or ``inner`` itself."""
    steps = min(steps, _MOST_POINTS)
    law = _ratio(inner)
    if law is None:
        return inner
    spare, variance = law, max(float(law.mass @ (law.x - 1) ** 2), 1e-300)
    power, done, total = 1, 0, None
    while True:
        if steps & power:
            total = spare if total is None else _mean(total, done, spare, power, variance)
            done += power
        if done == steps:
            break
        spare = _mean(spare, power, spare, power, variance)
        power *= 2
    assert total is not None
    return _atoms(total, inner.top())


def _mean(a: _Law, m: int, b: _Law, n: int, variance: float) -> _Law:
    """Return the law of the mean of m copies and n copies, spread."""
    # all pairs of two ratios, weighted as means of m and of n copies
    at = ((m / (m + n)) * a.x[:, None] + (n / (m + n)) * b.x).ravel()
    mass = (a.mass[:, None] * b.mass).ravel()
    at, mass = at[mass > 0], mass[mass > 0]
    width = min(math.sqrt(variance / (m + n)), 1.0)
    logs = _grid(math.log(float(at.min())), math.log(float(at.max())), width)
    grid = np.exp(logs)
    # a mean-preserving spread under Q: every E (X - t)_+ grows, and stays so in means with others
    masses = spread(at, mass, grid)
    used = masses > 0
    finest = float(np.diff(logs).min())
    # a share is at least 1/32, and is off by 8 units of a ratio to a step of the grid
    # relative errors of products add
    error = a.error + b.error + (256 / finest + 16 + len(a.x) + len(b.x)) * UNIT
    return _Law(grid[used], masses[used], error)


def _grid(low: float, high: float, width: float) -> Array:
    """Return logs of ratios, dense at 0, from one step below ``low`` to two above ``high``."""
    fine = width * _FINE
    first = math.floor(math.asinh(low * _GROWTH / fine) / _GROWTH) - 1
    last = math.ceil(math.asinh(high * _GROWTH / fine) / _GROWTH) + 3
    logs: Array = fine / _GROWTH * np.sinh(_GROWTH * np.arange(first, last + 1))
    return logs


def _ratio(inner: Pair) -> _Law | None:
    """Return the law of ``e^L`` under Q, spread; None where it is not known."""
    if isinstance(inner, ResponsePair) and 1e-9 < inner.epsilon <= _LARGEST_RATIO:
        eps = inner.epsilon
        more, less = 1 / (1 + math.exp(-eps)), math.exp(-eps) / (1 + math.exp(-eps))
        x = np.array([math.exp(-eps), math.exp(eps)])
        return _Law(x, np.array([more, less]), 16 * UNIT)
    if isinstance(inner, LaplacePair) and 1e-9 < inner.epsilon <= _LARGEST_RATIO:
        eps = inner.epsilon
        logs = np.linspace(-eps, eps, math.ceil(128 + 8 * eps))
        masses = _hats(logs, lambda loss: np.exp(-(loss + eps) / 2) / 4)
        masses[0] += 0.5
        masses[-1] += math.exp(-eps) / 2
        return _Law(np.exp(logs), masses, 256 * UNIT)
    if isinstance(inner, GaussianPair) and inner.mu > 1e-9:
        mu = inner.mu
        low, high = -mu * mu / 2 - _NORMAL_TAIL * mu, mu * mu / 2 + _NORMAL_TAIL * mu
        if high > _LARGEST_RATIO:
            return None
        logs = _grid(low, high, mu)
        x = np.exp(logs)
        return _Law(x, _hats(logs, lambda loss: _normal(loss / mu + mu / 2) / mu), 1e-12)
    return None


def _normal(x: Array) -> Array:
    density: Array = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _hats(logs: Array, density: Callable[[Array], Array]) -> Array:
    """Return masses of ratios ``e^logs``, each cell's mass spread to its two ends.

    By Gauss's rule of 24 points, whose error is nothing beside the cell's mass: the integrand
    varies by less than e^20 on the ellipse whose axes sum to 4 half-widths (`symmetric`).
    """
    nodes, weights = np.polynomial.legendre.leggauss(24)
    width = np.diff(logs)[:, None]
    offset = width / 2 * (1 + nodes)
    mass = density(logs[:-1, None] + offset) * (width / 2 * weights)
    # the split that keeps mass under Q and under P: by e^l, so by expm1
    rises = (mass * (np.expm1(offset) / np.expm1(width))).sum(axis=1)
    falls = (mass * (np.expm1(offset - width) / np.expm1(-width))).sum(axis=1)
    total: Array = np.append(falls, 0.0) + np.append(0.0, rises)
    return total


def _atoms(law: _Law, top: float) -> Atoms:
    """Return the pair: P's masses are x times Q's.

    Losses are moved outward by more than the rounding of their ratios. Where the body's are
    bounded, its extremes take up what underflowed.
    """
    losses = np.log(law.x)
    # away from 0 by more than their rounding: the pair dominates
    losses = losses + np.copysign(_MOVED, losses)
    q, p = law.mass, law.mass * law.x
    if top < math.inf:
        bound = max(top, float(np.abs(losses).max())) + _MOVED
        losses = np.concatenate([[-bound], losses, [bound]])
        q, p = np.pad(q, 1, constant_values=LOST), np.pad(p, 1, constant_values=LOST)
        q[-1], p[0] = LOST * math.exp(-bound), LOST * math.exp(-bound)
    return Atoms(losses, p, q, law.error + 2 * _MOVED, exact=False)


def chords(mu: float, steps: int, orders: Array) -> Array:
    """Return ``log E X^a / (a-1)`` at real orders: between whole ones log E X^a has chords."""
    most = min(steps, _LARGEST_ORDER)
    logs = np.append(_log_moments(mu, steps), np.inf)
    below = np.clip(np.floor(orders), 1, most).astype(np.int64)
    share = orders - below
    with np.errstate(invalid="ignore"):
        # log E X^a is convex in a, and 0 at a = 1
        chord = np.where(share == 0, 0.0, share * logs[below]) + (1 - share) * logs[below - 1]
    curve: Array = np.where(orders <= most, up(chord, 8) / (orders - 1), np.inf)
    return curve


@lru_cache(maxsize=256)
def _log_moments(mu: float, steps: int) -> Array:
    """Return bounds of ``log E X^n`` for n = 1, 2, ... up to the steps, or 256.

    With m_k the moments of one ratio, the power t of a series has the coefficients

    ``E X^n = sum_k C(n-1, k-1) (t + 1 - n/k) t^-k m_k E X^{n-k}``, k from 1 to n,

    all positive for ``n <= t``. Their weights without m_k sum to 1 (all m_k = 1), so
    ``g_n = E X^n - 1`` is the sum of ``(m_k - 1)(1 + g_{n-k}) + g_{n-k}`` so weighted.
    """
    most = min(steps, _LARGEST_ORDER)
    k = np.arange(1, most + 1, dtype=np.float64)
    exponent = k * (k - 1) / 2 * mu * mu
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log(np.expm1(np.minimum(exponent, 1.0)))
        # log(m_k - 1), m_k = e^{k (k-1) mu^2 / 2}
        log_m = np.where(exponent < 1, near, exponent + np.log1p(-np.exp(-np.maximum(exponent, 1))))
    factorials = np.asarray(special.gammaln(np.arange(1.0, most + 2)))
    log_g = np.full(most + 1, -np.inf)
    for n in range(2, most + 1):
        j = np.arange(1, n + 1)
        choose = factorials[n - 1] - factorials[j - 1] - factorials[n - j]
        weight = choose + np.log(steps + 1 - n / j) - j * math.log(steps)
        rest = log_g[n - j]
        # (m_k - 1)(1 + g_{n-k}) + g_{n-k}, all positive, as logs
        terms = weight + np.logaddexp(log_m[j - 1] + np.logaddexp(0.0, rest), rest)
        sizes = np.abs(choose) + factorials[n - 1] + j * math.log(steps) + exponent[j - 1]
        terms = terms + 16 * UNIT * (4 + sizes + np.where(rest > -np.inf, np.abs(rest), 0.0))
        total = float(np.logaddexp.reduce(terms))
        log_g[n] = total + 4 * UNIT * (n + abs(total))
    logs: Array = up(np.logaddexp(0.0, log_g[1:]), 8) + 1e-300
    return logs
