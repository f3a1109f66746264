"""The hockey-stick of k copies of the Laplace pair: a sum of positive terms, derived here.

One copy's loss is e, -e or drawn between, under P with chances 1/2, ``e^-e / 2`` and
``(1 - e^-e) / 2``. Let i copies be e and j be drawn: given that, the sum is ``(2i + j - k) e + V``,
V of j draws with density proportional to ``e^{v/2}`` on ``[-e, e]``. At epsilon, with
``x = (2i + j - k) e - epsilon`` and U the sum of j uniform draws on [-e, e], such an outcome
adds its chance times

``E (1 - e^{-x-V})_+ = e^{-x/2} r^j E 2 sinh((x + U)/2)_+``, ``r = (e/2) / sinh(e/2)``.

That is ``1 - e^-x`` where ``x >= j e``. Elsewhere, with ``x = 2e y - j e`` and W the sum of j
uniform draws on [0, 1], it is by the series of sinh ``2 sum_n e^n F_jn`` over odd n, where
``F_jn = E (y - W)_+^n / n!`` and, as of all B-splines,

``(n + j) F_jn(y) = y F_j,n-1(y) + j F_j-1,n(y - 1)``, and for the density ``F_j,-1``
``(j - 1) F_j,-1(y) = y F_j-1,-1(y) + (j - y) F_j-1,-1(y - 1)``.

Nothing is ever subtracted, so all keep their digits. Outcomes with more than J draws are left
out: they add at most ``e^{-c epsilon} c^c / (1 + c)^{1+c}`` times their moment at c, for any
c > 0 (Chernoff), and their number is binomial under the tilted law.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from attrs import frozen

from accountants import special
from accountants.rounding import UNIT, Array, up

_DRAWS = 128
_REACH = 100.0
"""No more draws than this, nor ``e`` times as many: their terms would leave the floats."""

_WORK = 2**18
"""No more outcomes (i, j) than this."""

_FEWER = -34.0
"""Log of the share of the tilted law that is left out."""

_FAINT = 1e-180
"""More than all that underflows: ``e^{(e+1) J}`` of the least float at most, and some factors."""


def laplace_sum_profile(epsilon: float, times: int, epsilons: Array) -> tuple[Array, Array] | None:
    """Return bounds of the hockey-stick of ``times`` copies; None where they ask for too much.

    Parameters
    ----------
    epsilon
        Of one copy, e.
    epsilons
        Where to ask, shape (m,), non-negative.
    """
    if not (1e-6 <= epsilon <= _REACH and 1 < times < _WORK):
        return None
    # beyond the largest loss the profile is 0: nothing finer need be told apart
    epsilons = np.minimum(epsilons, 2 * times * epsilon)  # the largest loss is half of that
    tails = _tails(epsilon, times)
    at = tails.best(epsilons)
    draws = tails.enough(at)
    if draws > _DRAWS or draws * epsilon > _REACH or (draws + 1) * (times + 1) > _WORK:
        return None
    weights, wrong = _weights(epsilon, times, draws)
    low, high = np.empty(len(epsilons)), np.empty(len(epsilons))
    batch = max(1, _WORK // weights.size)
    for start in range(0, len(epsilons), batch):
        some = slice(start, start + batch)
        low[some], high[some] = _sums(epsilon, times, weights, epsilons[some])
    steps = 8 * _levels(epsilon, draws) + 16 * draws * (1 + epsilon) + draws**2 + times + 64
    # relative: all terms are positive, so the sum's error is at most the largest of theirs
    wrong += steps * UNIT
    # outcomes with more than J draws, by Chernoff: added above, absent below
    rest = tails.left_out(at, draws, epsilons)
    high = high * (1 + wrong) + rest + _FAINT
    # at and beyond the largest loss k e delta is 0, exactly
    high = np.where(epsilons >= up(times * epsilon), 0.0, np.minimum(high, 1.0))
    return np.minimum(np.maximum(0.0, low * (1 - wrong) - _FAINT), high), high


# --- outcomes with too many draws


@frozen(eq=False)
class _Tails:
    """Chernoff's bounds at some tilts c.

    Parameters
    ----------
    tilts, moments, shapes
        c, log M(c) and ``log(c^c / (1 + c)^{1+c})``.
    logs, noise
        Of shape (J, c): the log of the moment of all outcomes with more than J draws, and its
        rounding.
    """

    tilts: Array
    moments: Array
    shapes: Array
    logs: Array
    noise: Array

    def best(self, epsilons: Array) -> Array:
        """Return the index of Chernoff's best tilt at each epsilon."""
        bound = self.moments - epsilons[:, None] * self.tilts + self.shapes
        return np.asarray(np.argmin(bound, axis=1))

    def enough(self, at: Array) -> int:
        """Return the least J that leaves out next to nothing at any of those tilts."""
        share = (self.logs - self.moments)[:, np.unique(at)].max(axis=1)
        small = np.flatnonzero(share <= _FEWER)
        return int(small[0]) if len(small) else _DRAWS + 1

    def left_out(self, at: Array, draws: int, epsilons: Array) -> Array:
        """Return bounds of what outcomes with more draws add."""
        paid = self.tilts[at] * epsilons
        noise = self.noise[draws, at] + 32 * UNIT * (1 + paid + np.abs(self.shapes[at]))
        # e^{-c epsilon} c^c / (1 + c)^{1 + c} times the moment of those outcomes at c
        log = self.logs[draws, at] - paid + self.shapes[at] + noise
        return np.asarray(np.exp(np.minimum(log, 0.0)) * (1 + 1e-9))


@lru_cache(maxsize=64)
def _tails(epsilon: float, times: int) -> _Tails:
    """Return Chernoff's bounds: the ratio of a binomial's next terms to this one falls."""
    c = np.geomspace(1e-2 / math.sqrt(times), 1e3, 64) / epsilon
    a = c + 0.5
    # one copy's moment at c, split into its two atoms and its draws
    log_atoms = c * epsilon - math.log(2) + np.log1p(np.exp(-2 * a * epsilon))
    log_drawn = c * epsilon + np.log(-np.expm1(-2 * a * epsilon)) - np.log(4 * a)
    fewest = np.arange(min(times, _DRAWS) + 1)[:, None]  # J
    first = np.minimum(fewest + 1.0, times)
    factorials = _log_factorials(times)
    chosen = factorials[times] - factorials[first.astype(int)]
    chosen = chosen - factorials[(times - first).astype(int)]
    logs = chosen + (times - first) * log_atoms + first * log_drawn
    ratio = (times - first) / (first + 1) * np.exp(log_drawn - log_atoms) * (1 + 1e-9)
    most = 1 - 1e-6
    # a binomial's tail is at most its first term over 1 - ratio, since the ratios fall
    logs = np.where(ratio < most, logs - np.log1p(-np.minimum(ratio, most)), np.inf)
    logs = np.where(fewest == times, -np.inf, logs)
    sizes = 3 * factorials[times] + times * (np.abs(log_atoms) + c * epsilon + 4)
    noise = 32 * UNIT * (sizes + first * (np.abs(log_drawn) + 2)) + 1e-6
    moments = times * np.logaddexp(log_atoms, log_drawn)
    return _Tails(c, moments, -c * np.log1p(1 / c) - np.log1p(c), logs, noise)


@lru_cache(maxsize=8)
def _log_factorials(most: int) -> Array:
    return np.asarray(special.gammaln(np.arange(1.0, most + 2)))


# --- outcomes with few


def _weights(epsilon: float, times: int, draws: int) -> tuple[Array, float]:
    """Return the chances of j draws and i losses e, shape (J + 1, k + 1), and their error."""
    j, i = np.arange(draws + 1.0)[:, None], np.arange(times + 1.0)
    falls = times - i - j
    factorials, log_drawn = _log_factorials(times), math.log(-math.expm1(-epsilon))
    chosen = factorials[times] - factorials[: draws + 1, None] - factorials
    chosen = chosen - factorials[np.maximum(falls, 0).astype(int)]
    logs = chosen - times * math.log(2) - falls * epsilon + j * log_drawn
    sizes = 4 * factorials[times] + times * (1 + epsilon) + draws * (2 - log_drawn)
    return np.where(falls >= 0, np.exp(np.minimum(logs, 0.0)), 0.0), 16 * UNIT * (1 + float(sizes))


def _sums(epsilon: float, times: int, weights: Array, epsilons: Array) -> tuple[Array, Array]:
    """Return the sums over all outcomes, without and with what the series leave out.

    With q for where epsilon lies among the points ``(2s - k) e``, next to s above it.
    """
    q = [(Fraction(x) / Fraction(epsilon) + times) / 2 for x in epsilons.tolist()]
    above = np.array([min(math.floor(x), times) + 1 for x in q])
    after = np.array([float(x - math.floor(x)) for x in q])
    ahead = np.array([float(math.floor(x) + 1 - x) for x in q])
    far = _far(epsilon, weights, above, ahead)
    near, missing = _near(epsilon, weights, above, ahead, after)
    return far + near, far + near + missing


def _far(epsilon: float, weights: Array, above: Array, ahead: Array) -> Array:
    """Return the sum over outcomes all of whose losses lie beyond epsilon: i from s on."""
    draws, first = weights.shape[0] - 1, int(above.min())
    i, j = np.arange(first, weights.shape[1]), np.arange(draws + 1.0)[:, None]
    steps = (i - above[:, None] + ahead[:, None])[:, None, :]
    # 1 - e^-x, x = (2i + j - k) e - epsilon
    gain = -np.expm1(-2 * epsilon * np.maximum(steps + j / 2, 0.0))
    some = np.where(steps > 0, weights[:, first:] * gain, 0.0)
    return np.asarray(some.sum(axis=2).sum(axis=1))


def _near(
    epsilon: float, weights: Array, above: Array, ahead: Array, after: Array
) -> tuple[Array, Array]:
    """Return the sum over outcomes whose losses lie on both sides, and what it is without.

    Their y is ``m + ahead``, m from 0 to j - 1, and ``i = s + m - j``.
    """
    draws = weights.shape[0] - 1
    if draws == 0:
        return np.zeros(len(above)), np.zeros(len(above))
    table, missing = _table(epsilon, draws, ahead, after)
    j, m = np.arange(1, draws + 1)[:, None, None], np.arange(draws)[:, None]
    i = above + m - j
    inside = (i >= 0) & (i < weights.shape[1]) & (m < j)
    chance = np.where(inside, weights[j, np.clip(i, 0, weights.shape[1] - 1)], 0.0)
    # x = 2 e y - j e
    x = epsilon * (2 * (m + ahead) - j)
    ratio = epsilon / 2 / math.sinh(epsilon / 2)
    # e^{-x/2} r^j of the module's docstring
    chance *= np.exp(-x / 2) * ratio ** j.astype(float)
    near, rest = (np.einsum("jmp,jmp->p", chance, part) for part in (table, missing))
    return near, rest


def _levels(epsilon: float, draws: int) -> int:
    return draws + math.ceil(3.3 * epsilon * draws) + 20


def _table(epsilon: float, draws: int, ahead: Array, after: Array) -> tuple[Array, Array]:
    """Return ``2 sum_n e^n F_jn(m + ahead)`` over odd n, shape (j, m, points), and its rest.

    Level by level of ``n + j``, each from the one before; kept is ``e^{n+1} F_jn``. The next term
    of any row is at most ``e y / (n + 1) <= 1/3`` of the one before, since ``0 <= y - W <= y``:
    all after the last level are together below half of it.
    """
    j, m = np.arange(1.0, draws + 1)[:, None, None], np.arange(float(draws))[:, None]
    y = m + ahead
    grown = epsilon * y
    term = np.zeros((draws, draws, len(ahead)))  # by j, m and point: rows lie together
    term[0, 0] = 1.0
    total = np.zeros_like(term)
    for level in range(1, _levels(epsilon, draws) + 1):
        last = min(level, draws)
        density, moved = term[last - 1].copy(), term[: last - 1, :-1] * j[1:last]
        term[:last] *= grown
        term[1:last, 1:] += moved
        if level < draws:  # the densities of j = level + 1, from those of j - 1
            term[level] = y * density
            term[level, 1:] += np.maximum(level - m[1:] + after, 0.0) * density[:-1]  # j - y
        term[: last + 1] /= level
        rows = slice(level % 2, min(level - 1, draws), 2)  # those of odd n
        total[rows] += term[rows]
    return total * (2 / epsilon), term * (2 / epsilon)
