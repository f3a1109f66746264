"""The losses of amplification by random allocation and by shuffling.

First the law of the mean of independent likelihood ratios, built by doubling.
A ratio is spread outward onto a grid, and so is each mean of two (`accountants.finite`).
What is spread still dominates, since sums of independent variables keep that order. For lower
bounds the ratios of a cell of the grid are taken together instead, at their mean: that is a
post-processing of a step's outcome, or of several steps'. Of the
moments of Gaussian ratios under P's removal those of integer order are known exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import ClassVar

import numpy as np
from attrs import field, frozen

from accountants.errors import integer, nonnegative
from accountants.finite import FinitePair, spread
from accountants.loss import PrivacyLoss, _profile
from accountants.losses.composite import Composite
from accountants.losses.gaussian import GaussianPair
from accountants.losses.laplace import LaplacePair, log_factorials
from accountants.losses.pure import ResponsePair
from accountants.losses.sampled_gaussian import log_expm1
from accountants.losses.sampling import body_pair, checked_body
from accountants.numerics import UNIT, Array, Bounds, gauss_rule, up
from accountants.pair import LooseBound, Pair

_FINE, _GROWTH = 1 / 64, 0.01
"""Grids are this fine at 1, in standard deviations, and grow by this share of the loss."""

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


def _allocated_below(inner: Pair, steps: int) -> Pair | None:
    """Return a pair that the mean of ``steps`` ratios dominates, or None."""
    law = _law(inner, steps, False) if steps <= _MOST_POINTS else None
    if law is None or not np.all(np.diff(losses := np.log(law.x)) > 0):
        return None
    # masses under P and Q are within the law's error, so a loss is within twice that, as if the
    # mass under P were
    return FinitePair(losses, law.mass * law.x, law.mass, 3 * law.error + 4 * _MOVED)


@lru_cache(maxsize=64)
def _law(inner: Pair, steps: int, outward: bool) -> _Law | None:
    """Return the law of the mean, spread outward or with cells taken together."""
    law = _ratio(inner, outward)
    if law is None:
        return None
    spare, variance = law, max(float(law.mass @ (law.x - 1) ** 2), 1e-300)
    power, done, total = 1, 0, None
    # binary powers: spare is the mean of `power` ratios, total of `done` of them
    while True:
        if steps & power:
            total = spare if total is None else _mean(total, done, spare, power, variance, outward)
            done += power
        if done == steps:
            break
        spare = _mean(spare, power, spare, power, variance, outward)
        power *= 2
    return total


def _mean(a: _Law, m: int, b: _Law, n: int, variance: float, outward: bool) -> _Law:
    """Return the law of the mean of m copies and n copies, spread or with cells taken together."""
    # all pairs of two ratios, weighted as means of m and of n copies
    at = ((m / (m + n)) * a.x[:, None] + (n / (m + n)) * b.x).ravel()
    mass = (a.mass[:, None] * b.mass).ravel()
    # what underflowed is lost here; LOST covers it
    at, mass = at[mass > 0], mass[mass > 0]
    # a standard deviation of the mean of m + n ratios
    width = min(math.sqrt(variance / (m + n)), 1.0)
    logs = _grid(math.log(float(at.min())), math.log(float(at.max())), width)
    grid = np.exp(logs)
    if not outward:
        return _taken_together(at, mass, grid, a.error + b.error)
    # a mean-preserving spread under Q: every E (X - t)_+ grows, and stays so in means with others
    masses = spread(at, mass, grid)
    used = masses > 0
    finest = float(np.diff(logs).min())
    # a share is at least 1/32, and is off by 8 units of a ratio to a step of the grid
    # relative errors of products add
    error = a.error + b.error + (256 / finest + 16 + len(a.x) + len(b.x)) * UNIT
    return _Law(grid[used], masses[used], error)


def _taken_together(at: Array, mass: Array, grid: Array, error: float) -> _Law:
    """Return the ratios of each cell of the grid at their mean under Q."""
    # outcomes that are left out only lower a hockey-stick: what may have underflowed
    at, mass = at[mass > _LEAST], mass[mass > _LEAST]
    cell = np.searchsorted(grid, at)
    masses = np.bincount(cell, mass).astype(np.float64)
    under_p = np.bincount(cell, mass * at).astype(np.float64)
    used = masses > 0
    # sums of so many positive products, under Q and, ratio times mass, under P
    error = error + (2 * int(np.bincount(cell).max()) + 16) * UNIT
    return _Law(under_p[used] / masses[used], masses[used], error)


def _grid(low: float, high: float, width: float) -> Array:
    """Return logs of ratios, dense at 0, from one step below ``low`` to two above ``high``."""
    fine = width * _FINE
    first = math.floor(math.asinh(low * _GROWTH / fine) / _GROWTH) - 1
    last = math.ceil(math.asinh(high * _GROWTH / fine) / _GROWTH) + 3
    logs: Array = fine / _GROWTH * np.sinh(_GROWTH * np.arange(first, last + 1))
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
        logs = _grid(low, high, mu)

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
        cut = isinstance(self.pair(), FinitePair) and isinstance(body_pair(self.body), GaussianPair)
        return min(1.0, up(delta_floor + LOST)) if cut else delta_floor

    def pair(self) -> Pair | None:
        """Return the pair of the mean, or the body's, which dominates it."""
        inner = body_pair(self.body)
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


# -----------------------------------------------------------------------------
# Amplification by shuffling local reports, each of a pure epsilon.


_COUNT_TAIL = 70.0
"""Counts are followed as far as all but ``e^-70`` of them go."""

_BLOCKS = 256
_CELLS = 2000
_MOST_REPORTS = 10**8
"""More reports than this count as this many."""

_LARGEST_LOSS = 600.0
"""Reports of a larger epsilon are not amplified."""


def _epsilon(value: float) -> float:
    return nonnegative("Shuffled.epsilon", value)


def _reports(value: int) -> int:
    return integer("Shuffled.reports", value)


@frozen
class Shuffled(PrivacyLoss):
    """Reports of ``reports`` units by one epsilon-DP local randomizer, in a random order.

    Neighbours differ in the value of one unit (replace-one). With ``w = e^eps / (1 + e^eps)`` its
    two laws are ``w U + (1-w) V`` and ``(1-w) U + w V`` for some laws U and V; any other report is
    drawn from ``(U + V)/2`` with probability ``e^-eps``. So the shuffled reports are a
    post-processing of how many were drawn from U and from V: of ``C ~ Bin(n-1, e^-eps)`` clones,
    ``A ~ Bin(C, 1/2)`` from U, and of the unit's own report.

    The pair tells C too, which is not a gain: given C = c it is the same, and the fewer clones
    the easier to tell apart. So c is rounded down, far counts are taken for none at all
    (randomized response), and ratios are spread outward onto a grid.

    The reports may also come one by one, by randomizers chosen from the earlier ones, if the
    units, not the reports, are shuffled first.

    Parameters
    ----------
    epsilon
        Non-negative, in nats; of each report, under replacement.
    reports
        n, the integer of reports, the unit's own included; at least 1.

    References
    ----------
    Feldman, McMillan and Talwar 2021, Thm 3.2 and 2023, Thm 3.1.

    Examples
    --------
    >>> Shuffled(epsilon=1.0, reports=10_000).profile(0.1).upper < 1e-5
    True
    """

    theorem: ClassVar[str] = "shuffling: Feldman, McMillan & Talwar 2021, Thm 3.2; 2023, Thm 3.1"

    epsilon: float = field(converter=_epsilon)
    reports: int = field(converter=_reports)

    def pair(self) -> Pair:
        """Return the pair of the counts."""
        if self.reports == 1:
            return ResponsePair(self.epsilon)
        if self.epsilon > _LARGEST_LOSS:
            return LooseBound(ResponsePair(self.epsilon))
        return _pair(self.epsilon, self.reports)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def profile(self, epsilon: float) -> Bounds:
        """Return the pair's profile, and nothing from the reports' own epsilon on."""
        if epsilon >= self.epsilon:
            return Bounds(0.0, 0.0)
        return Bounds(0.0, _profile(self.pair(), 0.0, epsilon).upper)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Fewer reports of a larger epsilon dominate (C falls in epsilon)."""
        if not isinstance(other, Shuffled):
            return False
        return self.epsilon >= other.epsilon and self.reports <= other.reports


@lru_cache(maxsize=64)
def _pair(eps: float, reports: int) -> Pair:
    if eps < 1e-12:  # too small to amplify
        return LooseBound(ResponsePair(eps))
    clones, weights, steps = _clones(eps, min(reports, _MOST_REPORTS) - 1)
    laws = [_counts(eps, int(c)) for c in clones]
    losses = np.concatenate([law[0] for law in laws])
    q = np.concatenate([law[1] * weight for law, weight in zip(laws, weights, strict=True)])
    steps += 8 * max(len(law[0]) for law in laws) + 128 * _CELLS + 256
    step_of = min(eps, float(losses.max())) / _CELLS
    cells = math.ceil(eps / step_of)
    far = 4 * math.exp(-_COUNT_TAIL) / (1 + math.exp(eps))
    return _mirrored(losses, q, far, eps / cells * (1 + 4 * UNIT), cells, steps * UNIT)


def _clones(eps: float, others: int) -> tuple[Array, Array, int]:
    """Return counts C, each the least of a block, with the blocks' masses.

    By Chernoff's bound C is below ``m - sqrt(2 m 70)``, m its mean, with probability ``e^-70``.
    What is above the range is spread over it: downward. With it the steps of the recursion.
    """
    mean = others * math.exp(-eps)
    # Chernoff's lower tail of a binomial, e^{-reach^2 / (2 m)} = e^-70
    deviation = math.sqrt(2 * mean * _COUNT_TAIL)
    least = max(0, math.floor((mean - deviation) * (1 - 1e-12)))
    most = min(others, math.ceil(mean + 15 + math.sqrt(200 + 80 * mean)))
    c = np.arange(least, most + 1, dtype=np.float64)
    odds = (1 - 8 * UNIT) / math.expm1(eps)  # rounded down: fewer clones
    ratio = (others - c[:-1]) / (c[1:]) * odds
    mode = int(np.clip(math.floor(mean) - least, 0, len(c) - 1))
    rising = np.cumprod(ratio[mode:])
    falling = np.cumprod(1 / ratio[:mode][::-1])[::-1]
    weights = np.concatenate([falling, [1.0], rising])
    t = np.linspace(-1, 1, _BLOCKS if others <= 10**6 else _BLOCKS // 4)  # dense in the middle
    edges = mode + np.where(t < 0, mode, len(c) - 1 - mode) * (0.3 * t + 0.7 * t**3)
    starts = np.unique(np.append(0, np.clip(np.floor(edges), 0, len(c) - 1))).astype(np.int64)
    # a block counts as its least c: fewer clones amplify less
    return c[starts], np.add.reduceat(weights, starts) / weights.sum(), 8 * len(c)


def _counts(eps: float, clones: int) -> tuple[Array, Array]:
    """Return the losses, and masses under Q, of the counts a of U, ``a >= (c+1)/2``.

    With ``x = a / (c+1)`` and g the law of Bin(c+1, 1/2), ``Q(a) = 2 g(a) ((1-w) x + w (1-x))``
    and P likewise with w exchanged. By Hoeffding's bound a count is farther than
    ``sqrt(35 c) + 1`` from the middle with probability ``2 e^-70``, as likely under P.
    """
    total = clones + 1
    first = (total + 1) // 2
    # Hoeffding: counts farther out have probability 2 e^-70, and are told apart (`far`)
    last = min(total, math.ceil(total / 2 + math.sqrt(_COUNT_TAIL / 2 * clones) + 2))
    a = np.arange(first, last + 1, dtype=np.float64)
    g = np.cumprod(np.concatenate([[1.0], (total - a[:-1]) / a[1:]]))
    twice = 2.0 if total % 2 else 1.0
    g = g / (2 * g.sum() - (0.0 if twice == 2 else g[0]))
    less = math.exp(-eps) / (1 + math.exp(-eps))
    x = a / total
    away = (2 * a - total) / total
    under_q = less * x + (1 - less) * (1 - x)
    # log of ((w x + (1-w)(1-x)) / ((1-w) x + w (1-x))), from the ratio less 1
    return np.log1p(math.tanh(eps / 2) * away / under_q), 2 * g * under_q


def _mirrored(
    losses: Array, q: Array, far: float, step: float, cells: int, error: float
) -> FinitePair:
    """Return the symmetric pair on a grid, from the losses from 0 on and their masses under Q.

    What is off the tails, ``far`` at the reports' own loss, is randomized response: told apart.
    """
    ties = float(q[losses == 0].sum())
    count = max(cells + 1, int(losses.max() / step) + 4)
    grid = np.expm1(step * np.arange(count))
    # spread on the grid of e^l - 1: a mean-preserving spread under Q
    mass = spread(np.expm1(losses[losses > 0]), q[losses > 0], grid)
    # what was cut is put at the reports' own epsilon, the largest loss there is
    mass[cells] += far
    occupied = np.flatnonzero(mass[1:]) + 1
    points, middle = occupied * step, 2 * mass[0] + ties
    less, more = mass[occupied], mass[occupied] * np.exp(points)
    every = np.concatenate([-points[::-1], [0.0], points])
    p = np.concatenate([less[::-1], [middle], more])
    return FinitePair(every, p, p[::-1], error, tight=False, multiple=step)
