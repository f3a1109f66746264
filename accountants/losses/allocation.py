"""The loss of amplification by random allocation.

First the law of the mean of independent likelihood ratios, built by doubling.
A ratio is spread outward onto a grid, and so is each mean of two (`accountants.finite`).
What is spread still dominates, since sums of independent variables keep that order. For lower
bounds the ratios of a cell of the grid are taken together instead, at their mean: that is a
post-processing of a step's outcome, or of several steps'. Of the
moments of Gaussian ratios under P's removal those of integer order are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import integer
from accountants.finite import FinitePair, spread
from accountants.loss import PrivacyLoss
from accountants.losses.composite import Composite
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair, log_factorials
from accountants.losses.pure import ResponsePair
from accountants.losses.sampled_gaussian import log_expm1
from accountants.losses.sampling import body_pair, checked_body
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    gauss_rule,
    remembered,
    up,
)
from accountants.pair import LooseBound, Pair

_FINE, _GROWTH, _SMALL_GROWTH, _FAR_GROWTH = 1 / 80, 0.005, 0.04, 0.01
"""Grids are this fine at 1, in standard deviations, and grow by this share of the loss.

Of ratios below 1 a larger share will do: beside others in a mean they are next to nothing. And of
those so large that next to nothing of P is there.
"""

_NEAR = 1e-11
"""Grids are fine up to ratios above which P has less than this."""

_LARGEST_RATIO = 190.0
"""A body with a loss above this is not amplified: what underflows would be too much."""

_NORMAL_TAIL = 37.6
"""The standard deviations of a Gaussian body that are followed: all but 1e-308."""

LOST = 1e-200
"""More than all that underflows: ``2^30`` products of less than 1e-323, times ``e^190``."""

_LEAST = 1e-290
"""Lower bounds leave out outcomes of less mass, which may have lost digits to underflow."""

_MOVED = 1e-13
"""More than the relative error of a ratio."""

_MOST_POINTS = 2**20
"""More steps than this count as this many."""

_MOST_NESTED = 16
"""A body of more parts than this has no pair."""

_LARGEST_ORDER = 256
"""The largest integer order whose moments are summed."""


@frozen
class _Law:
    """Ratios x, rising, with their masses under Q, each within a relative ``error``."""

    x: Array
    mass: Array
    error: float


def allocated(inner: Pair, steps: int) -> Pair:
    """Return the pair of the mean of ``steps`` ratios of ``inner``, or ``inner`` itself."""
    # a mean of fewer ratios dominates: fewer steps are safe
    law = _law(inner, min(steps, _MOST_POINTS), True)
    return inner if law is None else _atoms(law, inner.top())


@remembered(64)
def _nested(body: Composite, steps: int) -> Pair | None:
    """Return the pair of the mean of ratios of Gaussian releases and allocations of such, or None.

    A step's ratio is the product of theirs.
    """
    if not any(isinstance(loss, Allocated) for loss, _ in body.spends):
        return None
    gaussian = Composite(tuple(one for one in body.spends if not isinstance(one[0], Allocated)))
    parts: list[tuple[Composite, int]] = [(gaussian, 1)] if gaussian.spends else []
    for loss, times in body.spends:
        if isinstance(loss, Allocated):
            parts += [(loss.body, min(loss.steps, _MOST_POINTS))] * min(times, _MOST_NESTED + 1)
    if len(parts) > _MOST_NESTED:
        return None
    laws = []
    for part, fewer in parts:
        inner = body_pair(part)
        law = _law(inner, fewer, True) if isinstance(inner, GaussianPair) else None
        if law is None:
            return None
        laws.append(law)
    if sum(math.log(float(law.x.max())) for law in laws) > _LARGEST_RATIO:
        return None
    # a product of ratios, each spread, is spread too
    return _atoms(_doubled(reduce(_product, laws), min(steps, _MOST_POINTS), True), math.inf)


def _product(a: _Law, b: _Law) -> _Law:
    """Return the law of the product of two ratios, spread."""
    low, high = a.x[0] * b.x[0], a.x[-1] * b.x[-1]
    # E (xy - 1)^2 of means 1
    variance = _second(a) * _second(b) - 1
    near = _near(a) + _near(b)
    grid = _grid(low, high, min(math.sqrt(max(variance, 0.0)), 1.0), near)
    return _spread(_pairs(a, b, np.multiply), grid, a, b)


def _second(law: _Law) -> float:
    return float(law.mass @ law.x**2)


def _allocated_below(inner: Pair, steps: int) -> Pair | None:
    """Return a pair that the mean of ``steps`` ratios dominates, or None."""
    law = _law(inner, steps, False) if steps <= _MOST_POINTS else None
    if law is None or not np.all(np.diff(losses := np.log(law.x)) > 0):
        return None
    # masses under P and Q are within the law's error, so a loss is within twice that, as if the
    # mass under P were; the extremes, which decide at delta 0, are moved inward by as much and more
    losses[0], losses[-1] = losses[0] + 4 * law.error, losses[-1] - 4 * law.error
    if not np.all(np.diff(losses) > 0):
        return None
    return FinitePair(losses, law.mass * law.x, law.mass, 7 * law.error + 4 * _MOVED)


@remembered(64)
def _law(inner: Pair, steps: int, outward: bool) -> _Law | None:
    """Return the law of the mean, spread outward or with cells taken together."""
    law = _ratio(inner, outward)
    return None if law is None else _doubled(law, steps, outward)


def _doubled(law: _Law, steps: int, outward: bool) -> _Law:
    """Return the law of the mean of ``steps`` ratios of one law."""
    spare, variance = law, max(float(law.mass @ (law.x - 1) ** 2), 1e-300)
    power, done, total = 1, 0, law
    # binary powers: spare is the mean of `power` ratios, total of `done` of them
    while True:
        if steps & power:
            total = _mean(total, done, spare, power, variance, outward) if done else spare
            done += power
        if done == steps:
            return total
        spare = _mean(spare, power, spare, power, variance, outward)
        power *= 2


def _mean(a: _Law, m: int, b: _Law, n: int, variance: float, outward: bool) -> _Law:
    """Return the law of the mean of m copies and n copies, spread or with cells taken together."""
    # a standard deviation of the mean of m + n ratios
    width = min(math.sqrt(variance / (m + n)), 1.0)
    one, other = m / (m + n), n / (m + n)
    low, high = (one * a.x[at] + other * b.x[at] for at in (0, -1))
    # inward, what lies below the grid is in its first cell: a ratio may have underflowed
    near = max(_near(a), _near(b))
    if outward:
        grid = _grid(float(low), float(high), width, near)
    else:
        # what is taken together loses half of the variance that spreading adds: coarser by the root
        grid = _grid(max(float(low), 1e-300), float(high), width, near, math.sqrt(2))
    pairs = _pairs(a, b, lambda x, y: one * x + other * y, a is b and m == n)
    return _spread(pairs, grid, a, b) if outward else _taken_together(pairs, grid, a, b)


_BLOCK = 2**14
"""So many pairs are made at once: they stay in the processor's cache."""


def _pairs(
    a: _Law, b: _Law, join: Callable[[Array, Array], Array], alike: bool = False
) -> Iterator[tuple[Array, Array]]:
    """Yield what one ratio of each law makes, with masses, in blocks; ``alike`` for one law.

    What underflowed is lost here; LOST covers it.
    """
    rows = max(1, _BLOCK // len(b.x))
    for first in range(0, len(a.x), rows):
        one, other = slice(first, first + rows), slice(first if alike else 0, None)
        at, mass = join(a.x[one, None], b.x[other]), a.mass[one, None] * b.mass[other]
        if alike:  # each pair of two different ratios once, for both orders
            count = len(mass)
            mass[:, count:] *= 2
            mass[:, :count] = np.triu(mass[:, :count]) + np.triu(mass[:, :count], 1)
        some = mass > 0
        yield at[some], mass[some]


def _rounding(a: _Law, b: _Law) -> float:
    """Return the relative error of sums over pairs, of blocks and of their sums."""
    return (_BLOCK + 2 * len(a.x) + len(b.x) + 16) * UNIT


def _spread(pairs: Iterable[tuple[Array, Array]], grid: Array, a: _Law, b: _Law) -> _Law:
    """Return the law of ratios made of one of each of two laws, spread onto a grid."""
    # a mean-preserving spread under Q: every E (X - t)_+ grows, and stays so in means and products
    # with others
    masses = spread(pairs, grid)
    used = masses > 0
    finest = float(np.diff(np.log(grid)).min())
    # a share is at least 1/32, and is off by 8 units of a ratio to a step of the grid
    # relative errors of products add
    error = a.error + b.error + 256 / finest * UNIT + _rounding(a, b)
    return _Law(grid[used], masses[used], error)


def _taken_together(pairs: Iterable[tuple[Array, Array]], grid: Array, a: _Law, b: _Law) -> _Law:
    """Return the ratios of each cell of the grid at their mean under Q."""
    masses, under_p = np.zeros(len(grid) + 1), np.zeros(len(grid) + 1)
    for at, mass in pairs:
        # outcomes that are left out only lower a hockey-stick: what may have underflowed
        kept = mass > _LEAST
        cell = np.searchsorted(grid, at[kept])
        masses += np.bincount(cell, mass[kept], len(masses))
        under_p += np.bincount(cell, mass[kept] * at[kept], len(masses))
    used = masses > 0
    # sums of so many positive products, under Q and, ratio times mass, under P
    error = a.error + b.error + 2 * _rounding(a, b)
    return _Law(under_p[used] / masses[used], masses[used], error)


def _near(law: _Law) -> float:
    """Return the loss above which P has next to nothing."""
    above = np.cumsum((law.x * law.mass)[::-1])[::-1]
    return math.log(law.x[max(int(np.searchsorted(-above, -_NEAR)) - 1, 0)])


def _grid(low: float, high: float, width: float, near: float, coarser: float = 1.0) -> Array:
    """Return ratios, dense at 1, from one step below ``low`` to two above ``high``."""
    return np.exp(_log_grid(math.log(low), math.log(high), width, near, coarser))


def _log_grid(low: float, high: float, width: float, near: float, coarser: float = 1.0) -> Array:
    """Return logs of ratios, dense at 0, from one step below ``low`` to two above ``high``.

    They are finer up to ``near``.
    """
    fine, end = width * _FINE * coarser, min(high, max(near, width))
    small, large = _SMALL_GROWTH * coarser, _GROWTH * coarser
    first = math.floor(math.asinh(low * small / fine) / small) - 1
    last = math.ceil(math.asinh(end * large / fine) / large) + 3
    k = np.arange(first, last + 1)
    growth = np.where(k < 0, small, large)
    logs: Array = fine / growth * np.sinh(growth * k)
    if high > end:
        # from the last two on, by a larger share of the loss
        steps = math.ceil(math.log(max(high / logs[-1], 1.0)) / _FAR_GROWTH) + 3
        logs = np.append(logs, logs[-1] * np.exp(_FAR_GROWTH * np.arange(1, steps + 1)))
    return logs


def _ratio(inner: Pair, outward: bool) -> _Law | None:
    """Return the law of ``e^L`` under Q, spread or in cells; None where it is not known."""
    if isinstance(inner, ResponsePair) and 1e-9 < inner.epsilon <= _LARGEST_RATIO:
        eps = inner.epsilon
        more, less = 1 / (1 + math.exp(-eps)), math.exp(-eps) / (1 + math.exp(-eps))
        x = np.array([math.exp(-eps), math.exp(eps)])
        return _Law(x, np.array([more, less]), 16 * UNIT)
    if isinstance(inner, LaplacePair) and 1e-9 < inner.epsilon <= _LARGEST_RATIO:
        eps = inner.epsilon
        logs = np.linspace(-eps, eps, math.ceil(128 + 8 * eps))

        def between(loss: Array) -> Array:
            density: Array = np.exp(-(loss + eps) / 2) / 4
            return density

        if not outward:
            x, mass = _cells(logs, between)
            ends, weights = np.exp([-eps, eps]), np.array([0.5, math.exp(-eps) / 2])
            return _Law(np.insert(ends, 1, x), np.insert(weights, 1, mass), 1e-12)
        masses = _hats(logs, between)
        # Laplace: the loss has atoms at both ends, of mass 1/2 and e^-eps/2 under Q
        masses[0] += 0.5
        masses[-1] += math.exp(-eps) / 2
        return _Law(np.exp(logs), masses, 256 * UNIT)
    if isinstance(inner, GaussianPair) and inner.mu > 1e-9:
        mu = inner.mu
        low, high = -mu * mu / 2 - _NORMAL_TAIL * mu, mu * mu / 2 + _NORMAL_TAIL * mu
        # not amplified: too much would underflow
        if high > _LARGEST_RATIO:
            return None
        logs = _log_grid(low, high, mu, mu * mu / 2 + 6.7 * mu)

        def density(loss: Array) -> Array:
            return _normal(loss / mu + mu / 2) / mu

        if not outward:
            return _Law(*_cells(logs, density), 1e-12)
        return _Law(np.exp(logs), _hats(logs, density), 1e-12)
    return None


def _normal(x: Array) -> Array:
    density: Array = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return density


def _hats(logs: Array, density: Callable[[Array], Array]) -> Array:
    """Return masses of ratios ``e^logs``, each cell's mass spread to its two ends.

    By Gauss's rule of 24 points, whose error is nothing beside the cell's mass: the integrand
    varies by less than e^20 on the ellipse whose axes sum to 4 half-widths (`symmetric`).
    """
    nodes, weights = gauss_rule(24)
    width = np.diff(logs)[:, None]
    offset = width / 2 * (1 + nodes)
    mass = density(logs[:-1, None] + offset) * (width / 2 * weights)
    # the split that keeps mass under Q and under P: by e^l, so by expm1
    to_right = (mass * (np.expm1(offset) / np.expm1(width))).sum(axis=1)
    to_left = (mass * (np.expm1(offset - width) / np.expm1(-width))).sum(axis=1)
    total: Array = np.append(to_left, 0.0) + np.append(0.0, to_right)
    return total


def _cells(logs: Array, density: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Return the mean ratio of each cell under Q, and its mass, by the rule of `_hats`."""
    nodes, weights = gauss_rule(24)
    width = np.diff(logs)[:, None]
    offset = width / 2 * (1 + nodes)
    mass = density(logs[:-1, None] + offset) * (width / 2 * weights)
    under_q = mass.sum(axis=1)
    # outcomes that are left out only lower a hockey-stick
    used = under_q > _LEAST
    under_p = (mass * np.exp(logs[:-1, None] + offset)).sum(axis=1)
    return under_p[used] / under_q[used], under_q[used]


def _atoms(law: _Law, top: float) -> FinitePair:
    """Return the pair: P's masses are x times Q's.

    Losses are moved outward by more than the rounding of their ratios. Where the body's are
    bounded, its extremes take up what underflowed.
    """
    losses = np.log(law.x)
    # away from 0 by more than their rounding: the pair dominates
    losses = losses + np.copysign(_MOVED, losses)
    q, p = law.mass, law.mass * law.x
    # bounded losses: two atoms at the extremes dominate what underflowed, in both directions
    if top < math.inf:
        bound = max(top, float(np.abs(losses).max())) + _MOVED
        losses = np.concatenate([[-bound], losses, [bound]])
        q, p = np.pad(q, 1, constant_values=LOST), np.pad(p, 1, constant_values=LOST)
        # masses whose ratio is e^{+-bound} exactly where the atoms lie
        q[-1], p[0] = LOST * math.exp(-bound), LOST * math.exp(-bound)
    return FinitePair(losses, p, q, law.error + 2 * _MOVED, tight=False)


def chords(mu: float, steps: int, orders: Array) -> Array:
    """Return ``log E X^a / (a-1)`` at real orders, by chords of log E X^a between integer ones."""
    # the recurrence's coefficients are positive only for n <= t
    most = min(steps, _LARGEST_ORDER)
    logs = np.append(_log_moments(mu, steps), np.inf)
    below = np.clip(np.floor(orders), 1, most).astype(np.int64)
    share = orders - below
    with np.errstate(invalid="ignore"):
        # log E X^a is convex in a, and 0 at a = 1
        chord = np.where(share == 0, 0.0, share * logs[below]) + (1 - share) * logs[below - 1]
    curve: Array = np.where(orders <= most, up(chord, 8) / (orders - 1), np.inf)
    return curve


@remembered(256)
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
    # log(m_k - 1), m_k = e^{k (k-1) mu^2 / 2}
    log_m = log_expm1(exponent)
    factorials = log_factorials(most)
    # g_0 = g_1 = 0: E X^0 = E X = 1
    log_g = np.full(most + 1, -np.inf)
    for n in range(2, most + 1):
        j = np.arange(1, n + 1)
        choose = factorials[n - 1] - factorials[j - 1] - factorials[n - j]
        weight = choose + np.log(steps + 1 - n / j) - j * math.log(steps)
        # g_{n-k}, known since k >= 1
        rest = log_g[n - j]
        # (m_k - 1)(1 + g_{n-k}) + g_{n-k}, all positive, as logs
        terms = weight + np.logaddexp(log_m[j - 1] + np.logaddexp(0.0, rest), rest)
        sizes = np.abs(choose) + factorials[n - 1] + j * math.log(steps) + exponent[j - 1]
        terms = terms + 16 * UNIT * (4 + sizes + np.where(rest > -np.inf, np.abs(rest), 0.0))
        total = float(np.logaddexp.reduce(terms))
        log_g[n] = total + 4 * UNIT * (n + abs(total))
    logs: Array = up(np.logaddexp(0.0, log_g[1:]), 8) + 1e-300
    return logs


# -----------------------------------------------------------------------------
# Amplification by random allocation: each unit takes part in one of several steps.
#
# Let r_1, ..., r_t be the steps' likelihood ratios of the unit present against absent, under the
# laws without it. The unit lies in each step with probability 1/t, so the ratio of all steps
# together is their mean X. Each ``E (r_i - s)_+`` is at most that of the body's pair, given all
# that came before; since X is a mean, a convex function of X is convex in each ratio, and backwards
# from the last step each can be exchanged for an independent ratio of the pair. So the pair of X, a
# mean of t independent ratios, dominates (both directions: its reversed pair is of the same X).
# A body that is a sequence, of Gaussian parts and of other allocations, has the product of their
# ratios, which is convex in each.
#
# Of k steps out of t each set of k equally likely: cut t at random into k blocks of ``t // k``
# steps (and a rest), then take one step of each block: that is such a set. Given the blocks, the
# ratio is a product of k means, convex in each ratio; so it is dominated by k allocations to one of
# ``t // k`` steps (Feldman and Shenfeld 2025).


def _steps(value: int) -> int:
    return integer("Allocated.steps", value)


@frozen(cache_hash=True)
class Allocated(PrivacyLoss):
    """A body that runs ``steps`` times, on each unit in one of them (balls and bins).

    Each unit's step is uniform, and independent of the other units. Neighbours differ by one
    unit that is present or absent (add/remove, zero-out). The steps may depend on the outcomes
    of earlier ones.

    Parameters
    ----------
    body
        The loss of one step on a unit that takes part in it.
    steps
        An integer of at least 1.

    References
    ----------
    Feldman and Shenfeld 2025 and 2026 (random allocation); Chua et al. 2024 (balls and bins); the
    section above has the proof.

    Examples
    --------
    >>> from accountants import Composite, Gaussian
    >>> one = Allocated(Composite({Gaussian(mu=1.0): 1}), steps=100)
    >>> one.profile(1.0).upper < Gaussian(mu=1.0).profile(1.0).upper / 100
    True
    """

    theorem: ClassVar[str] = "random allocation: Feldman & Shenfeld 2025; Chua et al. 2024"

    body: Composite = field(converter=checked_body)
    steps: int = field(converter=_steps)

    def delta_floor(self) -> float:
        """Return the body's, and what underflows of the law of an unbounded loss."""
        delta_floor = self.body.delta_floor()
        inner = body_pair(self.body)
        cut = isinstance(self.pair(), FinitePair) and (inner is None or inner.top() == math.inf)
        return min(1.0, up(delta_floor + LOST)) if cut else delta_floor

    def pair(self) -> Pair | None:
        """Return the pair of the mean, or the body's, which dominates it."""
        inner = body_pair(self.body)
        if (nested := _nested(self.body, self.steps)) is not None:
            return nested
        if inner is None or (self.steps == 1 and self.body.single() is not None):
            return inner
        pair = inner if self.steps == 1 else allocated(inner, self.steps)
        return LooseBound(pair) if pair == inner else pair

    def attained_pair(self) -> Pair | None:
        """Return a pair below that of the mean of the body's own ratios, if it attains its pair.

        A mechanism whose steps are independent, and to which the other units add nothing, has
        that mean.
        """
        inner = self.body.pair()
        if self.steps == 1 or inner is None or not inner.is_tight():
            return super().attained_pair()
        return _allocated_below(inner, self.steps)

    def profile(self, epsilon: float) -> Bounds | None:
        """Return the pair's profile, as an upper bound only."""
        if self.steps == 1:
            return self.body.profile(epsilon)
        bounds = super().profile(epsilon)
        return None if bounds is None else Bounds(0.0, bounds.upper)

    def pure(self) -> float | None:
        """Return the body's pure epsilon: all steps may have the largest ratio."""
        return self.body.pure()

    def renyi(self, orders: Array) -> Array | None:
        """Return the pair's curve, or the body's where that is less.

        Of the removal from a Gaussian body the exact moments are known (`chords`).
        """
        unsampled, inner, pair = self.body.renyi(orders), body_pair(self.body), self.pair()
        if unsampled is None or pair is None or not isinstance(pair, FinitePair):
            return unsampled
        removal, addition = (_curve(one, orders) for one in (pair, pair.reversed()))
        if isinstance(inner, GaussianPair):
            removal = np.minimum(removal, chords(inner.mu, self.steps, orders))
        # the costlier direction, and never above the body's own curve
        return np.minimum(np.maximum(removal, addition), unsampled)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by body and steps: fewer dominate."""
        if not isinstance(other, Allocated):
            return False
        # a mean of more independent ratios is smaller in the convex order
        return self.steps <= other.steps and self.body.dominates(other.body)


def _curve(pair: Pair, orders: Array) -> Array:
    log_moment = pair.log_moment((orders - 1).astype(np.complex128))
    # no moments: no curve, so infinite and never the minimum
    if log_moment is None:
        return np.full_like(orders, np.inf)
    value = up((log_moment[0].real + log_moment[1]) / (orders - 1))
    return np.where(np.isnan(value), np.inf, np.maximum(value, 0.0))
