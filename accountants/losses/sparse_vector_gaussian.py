"""Sparse vector with Gaussian noise; `accountants.losses.sparse_vector` has the proof."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import numpy as np
from attrs import evolve, field, frozen

from accountants import special
from accountants.errors import DomainError, positive, whole
from accountants.losses.curved import Curved, lowered
from accountants.losses.sparse_vector import flag
from accountants.rounding import UNIT, Array, down, up

_CELL = 2**-6
"""Width of the cells on which w is bounded, in standard deviations of the query's noise."""

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
    return whole("GaussianSparseVector's queries and hits", value)


@frozen(slots=False, cache_hash=True)
class GaussianSparseVector(Curved):
    """Above threshold with Gaussian noise, on at most so many queries.

    Parameters
    ----------
    threshold_noise, query_noise
        Standard deviations over the sensitivity of a query: drawn once, and for each query.
        Numbers, where released, are a `Gaussian` of their own with fresh noise.
    queries
        K, the largest number of queries asked, answers "below" included. A bound on it is
        needed: the curve grows like its logarithm.
    hits
        c, the number of "above" after which the run ends.
    monotone
        Whether between neighbours all queries move in one direction.

    References
    ----------
    Zhu and Wang 2020 (Gaussian sparse vector); with the bound proven in
    `accountants.losses.sparse_vector`.

    Examples
    --------
    >>> loss = GaussianSparseVector(threshold_noise=10.0, query_noise=20.0, queries=1000)
    >>> round(float(loss.renyi(np.array([8.0]))[0]), 3)
    0.36
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
        moved = up((1.0 if self.monotone else 2.0) / self.query_noise)
        logs = log_transcripts(orders, moved, self.queries)
        with np.errstate(over="ignore"):
            # the threshold's noise, shifted by 1: a / (2 sigma_1^2)
            shift = up(orders / (2 * self.threshold_noise) / self.threshold_noise, 8)
            return up(shift + up(self.hits * logs, 2) / (orders - 1), 8)

    def pure(self) -> None:
        """Return None: no pure epsilon is known."""

    def grouped(self, size: int) -> GaussianSparseVector:
        """Return the loss for queries that move ``size`` times as far."""
        k = whole("group size", size)
        noises = (down(self.threshold_noise / k, 2), down(self.query_noise / k, 2))
        return self if k == 1 else evolve(self, threshold_noise=noises[0], query_noise=noises[1])


_HIGHER = 1 + np.geomspace(1e-2, 1e4, 97)
"""Higher orders that may bound a lower one: D_alpha never falls in alpha."""


def log_transcripts(orders: Array, moved: float, queries: int) -> Array:
    """Return bounds of log S for one hit, at each order; ``moved`` is s over the noise."""
    return np.array([_log_transcripts(order, moved, queries) for order in orders.tolist()])


@lru_cache(maxsize=2**14)
def _log_transcripts(order: float, moved: float, queries: int) -> float:
    """Return the least of ``log(1 + K (M - 1))`` and ``log(1 + v + K phi(v))`` over a grid of v."""
    c, log_count = order - 1, math.log(queries)
    log_moment = up(order * c / 2 * moved * moved, 8)
    if log_moment > _FAR or log_count > _FAR:
        return up(log_count + log_moment, 8)
    gained, count = up(math.expm1(log_moment), 8), up(float(queries))
    # v = 0: w <= M - 1, hence v_K <= K (M - 1)
    least = count * gained
    if max(moved, c * moved) <= _SHIFT:
        gain, survival, beyond = _gains(c, moved, log_moment)
        gain = np.minimum(gain, gained)
        spread = np.append(0.0, np.geomspace(0.1, 11 + 10 * log_count, 24))
        levels = float(gain.max()) * spread
        # phi(v) = sup_x w - G v, cell by cell and beyond the cells
        grows = [max(float((gain - survival * v).max()), beyond) for v in levels.tolist()]
        # v_K <= v + K phi(v) for every v >= 0
        least = min(least, float((levels + count * np.array(grows)).min()))
    return up(math.log1p(up(least, 16)), 8)


def _gains(c: float, moved: float, log_moment: float) -> tuple[Array, Array, float]:
    """Return on cells of x upper bounds of w and lower bounds of G, and a bound of w beyond.

    With r = log G(x) - log G(x+s), which rises, and r' = log F(x+s) - log F(x), which falls,

    ``w = G k(r) + F k(-r')``, ``k(l) = e^{c l} - 1 - c (1 - e^{-l}) >= 0``,

    since ``E_P e^{-l} = 1``. k falls, then rises, from 0 at 0. Right of the cells, by Hoelder's
    inequality on [x, infinity), ``w <= g <= M G(x - c s)``, which falls; left of them w is at most
    ``k(r) + c F(x + s)`` at their beginning.
    """
    first, last = -(moved + 12), c * moved + 24
    x = np.linspace(first, last, math.ceil((last - first) / _CELL) + 1)
    log_g, log_f = special.log_ndtr(-x), special.log_ndtr(x)
    risen, fallen = log_g - special.log_ndtr(-(x + moved)), special.log_ndtr(x + moved) - log_f
    # the rounding of log_ndtr and of its argument
    noise = 1e-12 * (1 + np.abs(log_g) + np.abs(log_f) + moved * (np.abs(x) + moved))
    # the hazard rates' integrals, the one rising and the other falling: for small s
    hazard = math.sqrt(2 / math.pi) / special.erfcx(np.array([x + moved, -x]) / math.sqrt(2))
    # r <= s times the hazard rate at x + s, which rises; r' <= s times the one at -x, which falls
    risen = np.minimum(risen + noise, moved * hazard[0] * (1 + 1e-12))
    fallen = np.minimum(fallen + noise, moved * hazard[1] * (1 + 1e-12))
    up_there = np.exp(log_g[:-1] + _log_convex(c, 1.0, risen[1:]) + 1e-12 * (1 - log_g[:-1]))
    down_there = np.exp(log_f[1:] + _log_convex(1.0, c, fallen[:-1]) + math.log(c))
    start = math.exp(_log_convex(c, 1.0, risen[:1])[0]) + c * math.exp(log_f[0] + fallen[0])
    # right of the cells w <= M G(x - c s)
    beyond = math.exp(min(700.0, log_moment + float(special.log_ndtr(c * moved - last))))
    gain = np.append((up_there + down_there) * (1 + 1e-11), start * (1 + 1e-11))
    survival = np.append(np.exp(log_g[1:]) * (1 - 1e-11), 0.0)
    return gain, survival, beyond * (1 + 1e-9)


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
