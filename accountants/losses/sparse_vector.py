"""Sparse vector: which of many queries lie above a threshold, paid for by the answers above.

One noise rho is drawn on the threshold, one nu on each query; a query answers "above" where
``q + nu >= T + rho``, and the run ends after c such answers. Let A be the chance of a transcript
on one data set given rho, B that on its neighbour given ``rho + t`` (sensitivities are 1), t any
number. The two joint laws of rho and transcript have the run's laws as marginals, so with a = alpha

``D_a <= D_a(rho + t, rho) + log sup_rho S / (a - 1)``, ``S = sum over transcripts A^a B^{1-a}``.

An "above" at survival ``G(x) = P(nu >= x)`` is there ``G(x + y)``, with ``t - 1 <= y <= t + 1``; or
``t - 1 <= y <= t`` for monotone queries that rise, and ``t <= y <= t + 1`` for those that fall; and
``t - 1 - m <= y <= t - m`` where all move by between m and m + 1, which is what is needed of them.

* Laplace, ``t = 1`` (t = 0 for monotone queries that fall): every "below" of the first is as
  likely in the second, and ``G(x) <= e^{s/b} G(x + s)``, s = 2, or s = 1 for monotone queries. So
  ``A <= e^{eps_2} B`` with ``eps_2 = c s / b`` and ``S <= e^{(a-1) eps_2}``: eps_2 plus the Laplace
  curve of the threshold. As a is infinite, ``eps_1 + eps_2`` (Lyu, Su and Li 2017, Thm 2 and its
  monotone form).
* Gaussian, at most K queries: let ``g(x) = G(x)^a G(x+y)^{1-a}``, f likewise with F = 1 - G, and
  ``1 + v_k`` the largest S of a run of k queries and one "above", whatever answers choose them:

  ``v_k = T(v_{k-1})``, ``T(v) = sup over x and y of w + f v``, ``w = g + f - 1``.

  As ``p^{1-a}`` is convex, only the largest and the least y count: a *fall* of the chance of
  "above" by t + 1 and a *rise* by 1 - t, which is a fall of "below" at -x. T is
  convex and never falls, so between two values of v each step adds at most the larger of both
  ``T(v) - v``. After each "above" the rest is such a run again: c of them multiply. Besides,
  ``w <= M - 1``, ``M = e^{a (a-1) y^2 / (2 sigma^2)}`` the two Gaussians' moment; and all is a
  function of the K noisy queries, rho being drawn from no data: ``D_a <= a K / (2 sigma^2)``.

  Every t bounds. At low orders, as of many runs, t = 0 is best: the noise of the queries hides
  moves either way by itself (without noise on the threshold the recursion is exact). At high
  orders it is t = 1, by which "below" costs nothing.

The Gaussian form with t = 1 and ``K M`` for ``1 + v_K`` is Zhu and Wang's (2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from attrs import evolve, field, frozen

from accountants import special
from accountants.definitions import pure_to_renyi
from accountants.errors import DomainError, integer, positive
from accountants.loss import PrivacyLoss
from accountants.losses.given import Curved, ResponseBound, lowered
from accountants.losses.laplace import Laplace
from accountants.losses.pure import Pure
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    ceiling,
    cost,
    down,
    multiple,
    rounded_up,
    up,
)


def flag(value: bool) -> bool:
    """Return a boolean as it is, or raise `DomainError`."""
    if not isinstance(value, bool):
        raise DomainError(f"monotone must be True or False, got {value!r}")
    return value


def _epsilon(value: float) -> float:
    epsilon = cost("SparseVector's epsilons", value)
    return epsilon if epsilon > 0 else positive("SparseVector's epsilons", value)


def _numbers(value: float) -> float:
    return cost("SparseVector.numbers", value)


def _hits(value: int) -> int:
    return integer("SparseVector.hits", value)


@frozen
class SparseVector(PrivacyLoss):
    """Above threshold with Laplace noise, until so many answers are "above".

    The noise on the threshold is drawn once, that on each query independently, and an answer's
    number has noise of its own: `scales`. The loss does not depend on the number of queries.

    Parameters
    ----------
    threshold, queries
        epsilon_1 and epsilon_2, positive.
    numbers
        epsilon_3, paid where the noisy values of the queries "above" are released too; or 0.
    hits
        c, the number of "above" after which the run ends.
    monotone
        Whether between neighbours all queries move in one direction (as counts do under
        add/remove), or by amounts that are at most 1 apart: half the noise on the queries then.

    Notes
    -----
    Where numbers are released, and ``monotone``, the three epsilons are never paid at once: see
    `pure`.

    References
    ----------
    Lyu, Su and Li 2017, Alg. 7 and Thms 2 to 4; sensitivities and neighbours are those of the
    queries. The loss with numbers of monotone queries is derived here.

    Examples
    --------
    >>> loss = SparseVector(threshold=0.25, queries=0.75, hits=3)
    >>> loss.pure(), loss.scales()
    (1.0, (4.0, 8.0, inf))
    """

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = "sparse vector: Lyu, Su & Li 2017, Alg. 7, Thms 2 to 4"

    threshold: float = field(converter=_epsilon)
    queries: float = field(converter=_epsilon)
    numbers: float = field(default=0.0, converter=_numbers)
    hits: int = field(default=1, converter=_hits)
    monotone: bool = field(default=False, converter=flag)

    def scales(self) -> tuple[float, float, float]:
        """Return the Laplace scales on threshold, query and number, in units of the sensitivity."""
        moved = self.hits if self.monotone else 2 * self.hits
        number = _scale(self.hits, self.numbers) if self.numbers else math.inf
        return _scale(1, self.threshold), _scale(moved, self.queries), number

    def pair(self) -> ResponseBound:
        """Return randomized response at `pure`, as a bound."""
        return ResponseBound(self.pure())

    def pure(self) -> float:
        """Return the sum of the three; less where queries are monotone and numbers are released.

        Then it is ``max(e1 + max(e2, e3), e2 + e3)``, and no less holds. Let queries move by
        d_i between m and M, with ``M - m <= 1`` and sizes of at most 1; the threshold's noise moves
        by ``t = max(M, 0)``, that of an "above" by ``t - d_i``, and that of its number by
        ``-d_i``. All cost at most ``t e1 + max_d (t - d) e2 + |d| e3``, convex in d, so largest at
        m or M.

        * ``M <= 0``: ``-m (e2 + e3) <= e2 + e3``.
        * ``m >= 0``: ``M e1 + max((M - m) e2 + m e3, M e3) <= e1 + max(e2, e3)``.
        * ``m < 0 < M``: ``M e1 + (M - m) e2 - m e3 <= M e1 + e2 + (1 - M) e3``, linear in M, so at
          most ``max(e1 + e2, e2 + e3)``; or ``M (e1 + e3) <= e1 + e3``.

        It is attained in the limit: all queries rise but the c "above", which stay (e1 + e2), or
        all rise (e1 + e3), or all fall (e2 + e3).
        """
        e1, e2, e3 = Fraction(self.threshold), Fraction(self.queries), Fraction(self.numbers)
        if self.monotone:
            return rounded_up(max(e1 + max(e2, e3), e2 + e3))
        return rounded_up(e1 + e2 + e3)

    def renyi(self, orders: Array) -> Array:
        """Return ``epsilon_2`` and the Laplace curves of the rest, or the pure epsilon's."""
        # eps_2 is a pure cost at every order; the threshold's shift costs its own Laplace curve
        shifts = Laplace(self.threshold).renyi(orders) + self.queries
        if self.numbers:
            each = Laplace(up(self.numbers / self.hits)).renyi(orders)
            # the c numbers compose, each of epsilon_3 / c
            shifts = shifts + up(each * self.hits)
        return np.minimum(up(shifts, 4), pure_to_renyi(self.pure(), orders))

    def profile(self, epsilon: float) -> Bounds:
        """Return randomized response's, as an upper bound."""
        return Bounds(0.0, Pure(self.pure()).profile(epsilon).upper)

    def grouped(self, size: int) -> SparseVector:
        """Return the loss for queries that move ``size`` times as far."""
        k = integer("group size", size)
        if k == 1:
            return self
        threshold, queries = multiple(self.threshold, k), multiple(self.queries, k)
        numbers = multiple(self.numbers, k)
        return evolve(self, threshold=threshold, queries=queries, numbers=numbers)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the three epsilons, for the same number of hits."""
        if not isinstance(other, SparseVector) or self.hits != other.hits:
            return False
        if self.monotone and not other.monotone and other.numbers:
            return False  # with numbers, the other pays all three at once
        more = self.threshold >= other.threshold and self.queries >= other.queries
        return more and self.numbers >= other.numbers


def _scale(moved: int, epsilon: float) -> float:
    return ceiling(moved / Fraction(epsilon))


# -----------------------------------------------------------------------------
# Sparse vector with Gaussian noise; `accountants.losses.sparse_vector` has the proof.


_CELL = 2**-6
"""Width of the cells on which w is bounded, in standard deviations of the query's noise."""

_NEAR = 5.5
"""Within as many of them, cells are a quarter as wide."""

_HUGE = 1e12
"""Where v may be above this, another shift is better."""

_FEW = 64
"""For no more queries than this, every step is taken."""

_STRIDE = 1.1
"""How far apart the values of v are between which steps are counted."""

_FAR = 300.0
"""Where log M or log K is above this, the bound is simply ``K M``."""

_SHIFT = 30.0
"""Where s or ``(a - 1) s`` is above this, w is bounded by ``M - 1`` alone."""


def _noise(value: float) -> float:
    noise = positive("GaussianSparseVector's noise", value)
    if noise < 1e-100:
        raise DomainError(f"GaussianSparseVector's noise must be at least 1e-100, got {value!r}")
    return noise


def _count(value: int) -> int:
    return integer("GaussianSparseVector's queries and hits", value)


@frozen(slots=False, cache_hash=True)
class GaussianSparseVector(Curved):
    """Above threshold with Gaussian noise, on at most so many queries.

    Parameters
    ----------
    threshold_noise, query_noise
        Standard deviations over the sensitivity of a query: drawn once, and for each query.
        Numbers, where released, are a `Gaussian` of their own with independent noise.
    queries
        K, the largest number of queries asked, answers "below" included. A bound on it is
        needed: the curve grows like its logarithm, and so do the divergences of some queries.
    hits
        c, the number of "above" after which the run ends.
    monotone
        Whether between neighbours all queries move in one direction, or no two of their moves are
        more than the sensitivity apart.

    References
    ----------
    Zhu and Wang 2020 (Gaussian sparse vector); with the bound proven in
    `accountants.losses.sparse_vector`.

    Examples
    --------
    >>> loss = GaussianSparseVector(threshold_noise=10.0, query_noise=20.0, queries=1000)
    >>> round(float(loss.renyi(np.array([8.0]))[0]), 3)
    0.111
    """

    theorem: ClassVar[str] = "Gaussian sparse vector: after Zhu & Wang 2020"

    threshold_noise: float = field(converter=_noise)
    query_noise: float = field(converter=_noise)
    queries: int = field(converter=_count)
    hits: int = field(default=1, converter=_count)
    monotone: bool = field(default=False, converter=flag)

    def renyi(self, orders: Array) -> Array:
        """Return the least of the bounds, at the order or the best of a grid of higher orders."""
        wanted = np.asarray(orders, dtype=np.float64)
        with np.errstate(over="ignore"):
            # D_a <= a K / (2 sigma^2): all is a function of the K noisy queries
            released = up(wanted * self.queries / (2 * self.query_noise) / self.query_noise, 8)
        return np.minimum(lowered(self._bound, wanted, _HIGHER), released)

    def _bound(self, orders: Array) -> Array:
        return np.array([self._at(order) for order in orders.tolist()])

    def _at(self, order: float) -> float:
        """Return the bound by the shifts that are estimated to be best; any would be a bound."""
        logs = _estimates(order, self.query_noise, self.queries, self.monotone)
        with np.errstate(over="ignore", invalid="ignore"):
            # the threshold's noise, shifted by t: a t^2 / (2 sigma_1^2)
            costs = order / 2 * np.square(_SHIFTS / self.threshold_noise)
            # moves in [m, m + 1], m from -1 to 0, and fall and rise as at t: shifted by t + m
            cases = [costs, costs[::-1]] if self.monotone else [costs]
            best = [int(np.argmin(cost + self.hits * logs / (order - 1))) for cost in cases]
        bounds = [self._by(order, i, float(c[i])) for i, c in zip(best, cases, strict=True)]
        if self.monotone:
            # that of m = 0 holds for m >= -2 t, where |t + m| <= t; that of m = -1 for m <= 1 - 2 t
            least, most = 1 - 2 * float(_SHIFTS[best[1]]), -2 * float(_SHIFTS[best[0]])
            if least < most:
                shift = max(abs(0.5 + least), abs(0.5 + most)) / self.threshold_noise
                bounds.append(self._by(order, _SHIFTS.size // 2, order / 2 * shift * shift))
        return max(bounds)

    def _by(self, order: float, chosen: int, cost: float) -> float:
        fall, rise = _moves(self.query_noise, self.monotone)[chosen].tolist()
        log = log_transcripts(order, fall, rise, self.queries)
        if math.isinf(log) and rise:  # the guess was wrong: t = 1 always has a bound
            return self._by(order, -1, order / 2 / self.threshold_noise / self.threshold_noise)
        return up(up(cost, 16) + up(self.hits * log, 2) / (order - 1), 8)

    def pure(self) -> None:
        """Return None: no pure epsilon is known."""

    def grouped(self, size: int) -> GaussianSparseVector:
        """Return the loss for queries that move ``size`` times as far."""
        k = integer("group size", size)
        noises = (down(self.threshold_noise / k, 2), down(self.query_noise / k, 2))
        return self if k == 1 else evolve(self, threshold_noise=noises[0], query_noise=noises[1])


_HIGHER = 1 + np.geomspace(1e-2, 1e4, 49)
"""Higher orders that may bound a lower one: D_alpha never falls in alpha."""


_SHIFTS = np.linspace(0.0, 1.0, 17)
"""The shifts t of the threshold's noise that are tried."""


@lru_cache(maxsize=32)
def _moves(noise: float, monotone: bool) -> Array:
    """Return upper bounds of fall and rise at each shift, in units of the queries' noise."""
    fall, rise = (_SHIFTS if monotone else 1 + _SHIFTS), 1 - _SHIFTS
    moves = np.stack([fall, rise], axis=1)
    return np.where(moves > 0, up(moves / noise, 8), 0.0)


@lru_cache(maxsize=2**13)
def _estimates(order: float, noise: float, queries: int, monotone: bool) -> Array:
    """Return for each shift log S of the best stream of equal queries, or infinity: a guess.

    Of such a stream ``v_K = w (1 - f^K) / (1 - f)``.
    """
    c, count = order - 1, float(min(queries, 10**300))
    moves = _moves(noise, monotone)
    far = (c * moves[:, 1] > _SHIFT) | (moves[:, 1] > _SHIFT)
    if max(1.0, c) * moves[-1].max() > _SHIFT:
        # both bounds of a fall without a rise stay
        return np.where(_SHIFTS == 1, 0.0, np.inf)
    log_g, log_f, risen, fallen = _points(noise, monotone)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        w = np.exp(log_g) * _convex(c, risen) + np.exp(log_f) * _convex(c, -fallen)
        # of a fall; of a rise it is g at the mirrored point
        logs = np.stack([(log_f - c * fallen)[0], (log_g + c * risen)[1]])
        z = count * logs
        grown = np.where(z == 0, 1.0, np.expm1(z) / z)
        v = np.nan_to_num(count * w * grown, nan=np.inf, posinf=np.inf).max(axis=(0, 2))
    return np.where(far | (v > _HUGE), np.inf, np.log1p(v))


@lru_cache(maxsize=32)
def _points(noise: float, monotone: bool) -> tuple[Array, Array, Array, Array]:
    """Return log G and log F at some x, and what both lose: by fall and rise, shift and x."""
    x = np.append(np.linspace(-9, 9, 109), np.linspace(9.5, 36, 54))
    s = np.minimum(_moves(noise, monotone).T[:, :, None], _SHIFT)
    log_g, log_f = special.log_ndtr(-x), special.log_ndtr(x)
    return log_g, log_f, log_g - special.log_ndtr(-(x + s)), special.log_ndtr(x + s) - log_f


def _convex(c: float, loss: Array) -> Array:
    """Return about ``e^{c l} - 1 - c (1 - e^{-l})``."""
    small = np.abs(loss) * max(1.0, c) < 1e-4
    exact = np.expm1(c * loss) + c * np.expm1(-loss)
    value: Array = np.where(small, c * (c + 1) / 2 * loss * loss, exact)
    return value


@lru_cache(maxsize=2**14)
def log_transcripts(order: float, fall: float, rise: float, queries: int) -> float:
    """Return a bound of ``log(1 + v_K)``.

    Parameters
    ----------
    order
        a.
    fall, rise
        The most that a query falls and rises, in standard deviations of its noise.
    queries
        K.
    """
    c, log_count, moved = order - 1, math.log(queries), max(fall, rise)
    log_moment = up(order * c / 2 * moved * moved, 8)
    # w <= M - 1 and, without a rise, f <= F <= 1: v_K <= K (M - 1)
    if log_moment > _FAR or log_count > _FAR or max(moved, c * moved) > _SHIFT:
        return math.inf if rise else up(log_count + log_moment, 8)
    gained = up(math.expm1(log_moment), 8)
    count = float(queries) if queries <= 2**53 else up(float(queries))
    least = math.inf if rise else up(count * gained)
    least = min(least, _steps(_growth(c, fall, rise, gained, log_moment), count, gained))
    return up(math.log1p(up(least, 16)), 8)


def _growth(
    c: float, fall: float, rise: float, gained: float, log_moment: float
) -> Callable[[float], float]:
    """Return an upper bound of ``T(v) - v``: the largest of lines in v."""
    lines = []
    if fall:
        gain, below, _, beyond = _cells(c, fall, log_moment)
        # beyond the cells w alone, as f <= F <= 1
        lines.append((np.append(gain, beyond), np.append(below, 0.0)))
    if rise:
        gain, _, above, beyond = _cells(c, rise, log_moment)
        # f of a rise is g of the fall at -x; beyond the cells g <= 1
        lines.append((np.append(gain, beyond), np.append(above, 0.0)))
    at = np.concatenate([np.minimum(gain, gained) for gain, _ in lines])
    slope = np.concatenate([slopes for _, slopes in lines])
    slope += 1e-15 * np.abs(slope)
    return lambda v: float((at + slope * v).max())


def _steps(growth: Callable[[float], float], count: float, gained: float) -> float:
    """Return a bound of v after so many steps of at most ``growth``, or infinity.

    ``v -> v + growth`` is convex and never falls: from ``v <= low``, ``n`` steps of at most
    ``p = max(growth(low), growth(high))`` end at most at ``low + n p``, if that is at most high.
    """
    if count <= _FEW:
        v = 0.0
        for _ in range(int(count)):
            v = (v + max(growth(v), 0.0)) * (1 + 1e-12)
            if v > _HUGE:
                return math.inf
        return v
    low, rate = 0.0, growth(0.0)
    # the first step adds at most w, and later ones about as much while v is small
    high = rate
    while count > 0 and rate > 0:
        if high > _HUGE:
            return math.inf
        next_rate = growth(high)
        if next_rate <= 0:
            # T(v) <= v: no step passes it; look for a smaller such v
            for _ in range(5):
                middle = (low + high) / 2
                low, high = (middle, high) if growth(middle) > 0 else (low, middle)
            return high
        largest = max(rate, next_rate) * (1 + 1e-12)
        steps = math.floor(min((high - low) / largest, count) * (1 - 1e-12))
        if steps >= count * (1 - 1e-11):
            return (low + count * largest) * (1 + 1e-12)
        if steps >= 1:
            count = count - steps if count <= 2**53 else up(count - steps)
            low, rate, high = high, next_rate, high * _STRIDE
        elif count <= 1:
            return (low + rate) * (1 + 1e-12)
        else:
            # one step passes it
            count = count - 1 if count <= 2**53 else count
            low = (low + rate) * (1 + 1e-12)
            rate, high = growth(low), max(high, low) * _STRIDE
    return low


@lru_cache(maxsize=64)
def _table(moved: float, end: float) -> tuple[Array, Array, Array, Array, Array, float]:
    """Return at ascending x log G and log F, bounds of r, r' (and of it from below); the last x."""
    near = np.arange(-_NEAR, _NEAR, _CELL / 4)
    left = np.arange(-(moved + 12), -_NEAR, _CELL)
    x = np.concatenate([left, near, np.arange(_NEAR, end + 24 + _CELL, _CELL)])
    log_g, log_f = special.log_ndtr(-x), special.log_ndtr(x)
    risen, fallen = log_g - special.log_ndtr(-(x + moved)), special.log_ndtr(x + moved) - log_f
    # the rounding of log_ndtr and of its argument
    noise = 1e-12 * (1 + np.abs(log_g) + np.abs(log_f) + moved * (np.abs(x) + moved))
    least = np.maximum(fallen - noise, 0.0)
    # the hazard rates' integrals, the one rising and the other falling: for small s
    hazard = math.sqrt(2 / math.pi) / special.erfcx(np.array([x + moved, -x]) / math.sqrt(2))
    # r <= s times the hazard rate at x + s, which rises; r' <= s times the one at -x, which falls
    risen = np.minimum(risen + noise, moved * hazard[0] * (1 + 1e-12))
    fallen = np.minimum(fallen + noise, moved * hazard[1] * (1 + 1e-12))
    return log_g, log_f, risen, fallen, least, float(x[-1])


def _cells(c: float, moved: float, log_moment: float) -> tuple[Array, Array, Array, float]:
    """Return of a fall on cells of x upper bounds: of w, f - 1, g - 1; and of w beyond the cells.

    With r = log G(x) - log G(x+s), which rises, and r' = log F(x+s) - log F(x), which falls,

    ``w = G k(r) + F k(-r')``, ``k(l) = e^{c l} - 1 - c (1 - e^{-l}) >= 0``,

    since ``E_P e^{-l} = 1``; ``g = G e^{c r}`` and ``f = F e^{-c r'}``. k falls, then rises, from 0
    at 0. Right of the cells, by Hoelder's inequality on [x, infinity), ``w <= g <= M G(x - c s)``,
    which falls and is below 1 there; left of them w is at most ``k(r) + c F(x + s)``, and g at most
    ``e^{c r}``, at their beginning.
    """
    log_g, log_f, risen, fallen, least, last = _table(moved, math.ceil(c * moved / 8) * 8)
    up_there = np.exp(log_g[:-1] + _log_convex(c, 1.0, risen[1:]) + 1e-12 * (1 - log_g[:-1]))
    down_there = np.exp(log_f[1:] + _log_convex(1.0, c, fallen[:-1]) + math.log(c))
    start = math.exp(_log_convex(c, 1.0, risen[:1])[0]) + c * math.exp(log_f[0] + fallen[0])
    # right of the cells w <= M G(x - c s)
    beyond = math.exp(min(700.0, log_moment + float(special.log_ndtr(c * moved - last))))
    gain = np.append((up_there + down_there) * (1 + 1e-11), start * (1 + 1e-11))
    # log G and log F to 1e-12 of themselves; at the left end f <= F
    log_below = np.append(log_f[1:] * (1 - 1e-11) - c * least[1:], log_f[0] * (1 - 1e-11))
    log_above = np.append(log_g[:-1] * (1 - 1e-11) + c * risen[1:] * (1 + 1e-12), c * risen[0])
    below, above = np.expm1(log_below), np.expm1(np.minimum(log_above, 700.0))
    return gain, below + 1e-14 * np.abs(below), above + 1e-14 * np.abs(above), beyond * (1 + 1e-9)


def _log_convex(grow: float, fall: float, t: Array) -> Array:
    """Return an upper bound of ``log`` of ``e^{at} - 1 - (a/b) (1 - e^{-bt})``, t >= 0.

    Its derivative ``a (e^{at} - e^{-bt})`` is at most ``a (a + b) t e^{at}``; it is also at most
    ``e^{at}``. With a = c, b = 1 it is k(t); with a = 1, b = c it is k(-t) over c.
    """
    with np.errstate(divide="ignore", over="ignore"):
        near = np.log(grow * (grow + fall) / 2) + 2 * np.log(t) + grow * t
        direct = np.expm1(grow * t) + grow / fall * np.expm1(-fall * t)
        direct = np.log(direct + 8 * UNIT * (1 + np.exp(grow * t)) * (1 + grow * t))
    exact = np.where(grow * t < 600, direct, grow * t)
    bound: Array = np.minimum(near, exact) + 1e-12 * (1 + grow * t)
    return bound
