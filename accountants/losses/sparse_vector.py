"""Sparse vector: which of many queries lie above a threshold, paid for by the answers above.

One noise rho is drawn on the threshold, one nu on each query; a query answers "above" where
``q + nu >= T + rho``, and the run ends after c such answers. Let A be the chance of a transcript
on one data set given rho, B that on its neighbour given ``rho + 1`` (sensitivities are 1). Every
"below" of the first is as likely in the second; an "above" at survival G(x) = P(nu >= x) is
there at least G(x + s), with s = 2, or s = 1 for monotone queries (all move the same way; the
other way needs no shift of rho). The two joint laws of rho and transcript have the run's laws as
marginals, so with a = alpha

``D_a <= D_a(rho + 1, rho) + log sup_rho S / (a - 1)``, ``S = sum over transcripts A^a B^{1-a}``.

* Laplace: ``G(x) <= e^{s/b} G(x + s)``, so ``A <= e^{eps_2} B`` with ``eps_2 = c s / b`` and
  ``S <= e^{(a-1) eps_2}``: eps_2 plus the Laplace curve of the threshold. As a is infinite,
  ``eps_1 + eps_2`` (Lyu, Su and Li 2017, Thm 2 and its monotone form).
* Gaussian, at most K queries: let ``g(x) = G(x)^a G(x+s)^{1-a}``, and
  ``f(x) = F(x)^a F(x+s)^{1-a} <= F(x)`` likewise with F = 1 - G. With ``1 + v_k`` the largest S of
  a run of k queries and one "above", ``v_k <= sup_x w + F v_{k-1}``, ``w = g + f - 1``. A v_k
  above some v grows by at most ``phi(v) = sup_x w - G v`` each time, hence
  ``v_K <= v + K phi(v)`` for every ``v >= 0``; and w is at most ``M - 1``, with
  ``M = e^{a (a-1) s^2 / (2 sigma^2)}`` the two Gaussians' moment. After each "above" the rest is
  such a run again: c of them multiply. Besides, all is a function of the K noisy queries, rho
  being drawn from no data: ``D_a <= a K / (2 sigma^2)``, whatever c is.

The Gaussian form is Zhu and Wang's (2020), who have ``K M`` for ``1 + v_K``.
"""

from __future__ import annotations

import math
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
        k = integer("group size", size)
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
