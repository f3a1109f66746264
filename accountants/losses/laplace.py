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
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants import special
from accountants.errors import integer
from accountants.loss import PrivacyLoss, mirrored
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    RoundedUp,
    cost,
    down,
    expm1,
    least_square_of_sine,
    log1p,
    multiple,
    remembered,
    up,
)
from accountants.pair import Pair, Symmetric, right_half, summed

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


@remembered(64)
def _tails(epsilon: float, times: int) -> _Tails:
    """Return Chernoff's bounds, from a binomial's terms, whose successive ratios decrease."""
    c = np.geomspace(1e-2 / math.sqrt(times), 1e3, 64) / epsilon
    a = c + 0.5
    # one copy's moment at c, split into its two atoms and its draws
    log_atoms = c * epsilon - math.log(2) + np.log1p(np.exp(-2 * a * epsilon))
    log_drawn = c * epsilon + np.log(-np.expm1(-2 * a * epsilon)) - np.log(4 * a)
    fewest = np.arange(min(times, _DRAWS) + 1)[:, None]  # J
    first = np.minimum(fewest + 1.0, times)
    factorials = log_factorials(times)
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


@remembered(8)
def log_factorials(most: int) -> Array:
    """Return the logs of 0!, 1!, and so on up to ``most``!."""
    return np.asarray(special.gammaln(np.arange(1.0, most + 2)))


# --- outcomes with few


def _weights(epsilon: float, times: int, draws: int) -> tuple[Array, float]:
    """Return the chances of j draws and i losses e, shape (J + 1, k + 1), and their error."""
    j, i = np.arange(draws + 1.0)[:, None], np.arange(times + 1.0)
    remaining = times - i - j
    factorials, log_drawn = log_factorials(times), math.log(-math.expm1(-epsilon))
    chosen = factorials[times] - factorials[: draws + 1, None] - factorials
    chosen = chosen - factorials[np.maximum(remaining, 0).astype(int)]
    logs = chosen - times * math.log(2) - remaining * epsilon + j * log_drawn
    sizes = 4 * factorials[times] + times * (1 + epsilon) + draws * (2 - log_drawn)
    return np.where(remaining >= 0, np.exp(np.minimum(logs, 0.0)), 0.0), 16 * UNIT * (
        1 + float(sizes)
    )


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

    Level by level of ``n + j``, each from the one before; stored is ``e^{n+1} F_jn``. The next term
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


# -----------------------------------------------------------------------------
# The Laplace loss: Lap(0, 1) against Lap(epsilon, 1).


def _epsilon(value: float) -> float:
    return cost("Laplace.epsilon", value)


@frozen
class Laplace(PrivacyLoss):
    r"""Adding Laplace noise of scale b to a query of l1 sensitivity Delta: ``epsilon = Delta / b``.

    ``D_alpha = log(a/(2a-1) e^{(a-1)eps} + (a-1)/(2a-1) e^{-a eps}) / (a-1)`` with a = alpha.
    It is convex in eps and 0 at 0, hence superadditive: a vector whose coordinates shift by
    s_1, ..., s_d costs at most what one coordinate costs that shifts by their sum, so the
    scalar curve serves vectors of l1 sensitivity Delta.

    ``rho = eps + e^{-eps} - 1``, the limit of D_alpha at alpha = 1: with w = alpha - 1/2,
    ``(alpha-1) D_alpha + eps/2 = log F(w^2)`` with
    ``F(t) = cosh(eps sqrt t) + sinh(eps sqrt t)/(2 sqrt t)``. F is entire of order 1/2 and has
    only negative zeros (they are minus the eigenvalues of -u'' on [0, eps] with u'(0) = u(0)/2
    and u(eps) = 0, all positive since F > 0 on t >= 0), so log F is concave on t >= 0 and lies
    under its tangent at t = 1/4, which is ``alpha (alpha-1) rho``.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    Dwork, McSherry, Nissim and Smith 2006, Prop. 1 (pure); Mironov 2017, Prop. 6 (Renyi);
    Harrison and Manurangsi 2026 (rho).

    Examples
    --------
    >>> round(Laplace(epsilon=1.0).rho(), 12)
    0.367879441171
    """

    grouped_is_tight: ClassVar[bool] = True

    joins_apart: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "Laplace: Dwork, McSherry, Nissim & Smith 2006, Prop. 1; Mironov 2017, Prop. 6; "
        "Harrison & Manurangsi 2026"
    )

    epsilon: float = field(converter=_epsilon)

    def pair(self) -> LaplacePair:
        """Return Lap(epsilon, 1) against Lap(0, 1)."""
        return LaplacePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return the closed form, in log space where it would overflow."""
        return _curve(self.epsilon, orders)

    @classmethod
    def renyi_sum(cls, spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array:
        """Return the sum of the curves, some hundred losses at a time."""
        total = np.zeros_like(orders)
        for start in range(0, len(spends), 256):
            some = spends[start : start + 256]
            eps = np.array([loss.pure() for loss, _ in some], dtype=np.float64)
            times = np.array([count for _, count in some], dtype=np.float64)
            total = total + up(times @ _curve(eps[:, None], orders), 2 * len(some))
        return up(total, 2 * (len(spends) // 256 + 1))

    def rho(self) -> float:
        """Return ``epsilon + e^-epsilon - 1``."""
        eps = self.epsilon
        if eps == 0:
            return 0.0
        if eps < 1e-2:  # the series alternates: cutting it after a positive term bounds it
            return up(eps**2 / 2 - eps**3 / 6 + eps**4 / 24 - eps**5 / 120 + eps**6 / 720, 16)
        # eps + e^-eps - 1, whose two terms cancel by less than a digit here: rounded up
        return up(eps + math.expm1(-eps)) + 2 * UNIT * eps

    def profile(self, epsilon: float) -> Bounds:
        """Return ``1 - e^{(eps - eps0)/2}``, the profile of one coordinate."""
        if epsilon < 0:
            return mirrored(self.profile, epsilon)
        exact = -math.expm1(min(0.0, (epsilon - self.epsilon) / 2))
        # a rational eps0, which its float is above
        rational = isinstance(self.epsilon, RoundedUp)
        wrong = UNIT * (abs(epsilon) + 2 * self.epsilon) if rational else 0.0
        return Bounds(max(0.0, down(exact, 8) - wrong), min(1.0, up(exact, 8) + wrong))

    def epsilon_at(self, delta: float) -> Bounds:
        """Return ``eps0 + 2 log(1 - delta)``, where the profile is delta."""
        if delta >= 1:
            return Bounds(0.0, 0.0)
        fall = 2 * math.log1p(-delta)
        # 1 - e^{(eps - eps0)/2} = delta solved for eps, and the rounding of the two terms
        exact, wrong = self.epsilon + fall, 8 * UNIT * (self.epsilon - fall)
        return Bounds(max(0.0, exact - wrong), min(self.epsilon, max(0.0, exact + wrong)))

    def grouped(self, size: int) -> Laplace:
        """Return ``Laplace(size * epsilon)``: shifts add (triangle inequality)."""
        k = integer("group size", size)
        return Laplace(multiple(self.epsilon, k))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order Laplace losses by epsilon."""
        return isinstance(other, Laplace) and self.epsilon >= other.epsilon


def _curve(eps: float | Array, order: Array) -> Array:
    """Return the divergences; ``eps`` is a number, or of shape (n, 1) for n losses at once."""
    with np.errstate(over="ignore", invalid="ignore"):
        grow = order / (2 * order - 1) * np.expm1((order - 1) * eps)
        fall = (order - 1) / (2 * order - 1) * np.expm1(-order * eps)
        # the moment less 1, of two terms of opposite sign: each brings its own rounding, which of
        # subnormal numbers is some of the least of them
        small = np.log1p(grow + fall) + 8 * UNIT * (grow - fall) + 4e-323
        large = (order - 1) * eps + np.log(order / (2 * order - 1))
        # the larger exponential taken out
        large = large + np.log1p((order - 1) / order * np.exp((1 - 2 * order) * eps))
        log_moment = np.where((order - 1) * eps < 1, small, up(large, 8) + 8 * UNIT)
        curve: Array = up(log_moment / (order - 1))
    # D_alpha <= D_infinity = eps
    return np.minimum(np.where(np.isfinite(curve), curve, eps), eps)


def closer(near: tuple[Complex, Array], far: tuple[Complex, Array]) -> tuple[Complex, Array]:
    """Return of two computations, each with a bound of its error, the one whose bound is less."""
    first = near[1] < far[1]
    return np.where(first, near[0], far[0]), np.where(first, near[1], far[1])


class EpsilonPair(Symmetric):
    """Base of the symmetric pairs of one parameter: epsilon, their largest loss."""

    __slots__ = ()

    epsilon: float

    def tail_error(self) -> float:
        """Return that of an exponential of a difference."""
        return (16 + 4 * self.epsilon) * UNIT

    def top(self) -> float:
        """Return epsilon."""
        return self.epsilon

    def log_moment(self, z: Complex) -> tuple[Complex, Array]:
        """Return the logarithm of the family's formula."""
        return self.log_moments(((self, 1),), z)

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum over all, some hundred losses at a time."""
        return summed(spends, z, lambda pair: pair.epsilon, cls._log_moments_at)

    @staticmethod
    def _log_moments_at(eps: Array, z: Complex) -> tuple[Complex, Array]:
        """Return log-moments, (n, m) for n losses at m points, and bounds of their errors."""
        raise NotImplementedError


# Many losses that lie close together, at once: as a function of eps ``K = log M`` is analytic
# where M has no zero. ``M = A e^{z eps} + B e^{-z' eps}``, over ``1 + e^eps`` or not, moves from
# its value at e by at most ``S (e^{g x} - 1)`` on the disc ``|eps - e| <= x``, where ``S = |A
# e^{z e}| + |B e^{-z' e}|`` and ``g = 1 + |z|`` is at least either rate. Up to the x = R at which
# this is half of ``|M(e)|``, ``|K - K(e)| <= log 2``, and with the denominator's log, whose slope
# is at most 1 there, ``log 2 + R <= V = 1.1``. Interpolation at p Chebyshev points on ``[e - r, e
# + r]`` is then within ``4 V rho^{1-p} / (rho - 1)``, with the Bernstein ellipse of larger
# semi-axis R / r: ``rho = R/r + sqrt((R/r)^2 - 1)`` (Trefethen 2013, Thm 8.2; the aliases of
# points of the first kind are bounded alike). The interpolants of all losses add up to one weight
# for each of the p points.

_FEW = 64
"""So many losses are added up one by one."""

_NODES = 15
_REACHED = 0.06
"""The half-width of a panel, times ``1 + |z|``: then rho is about 13, where M hardly cancels."""

_VARIATION = 1.1


@frozen(eq=False)
class _Panel:
    """Losses whose epsilons lie within ``centre +- radius``.

    Parameters
    ----------
    count
        How many there are.
    nodes
        Chebyshev's points, shape (p,).
    sums, wrong
        The sums over the losses of Chebyshev's polynomials of degrees 0 to p - 1, the first of
        which is ``count``, and bounds of their errors.
    weights
        Moduli of the weight of each node in the sum of the interpolants.
    """

    centre: float
    radius: float
    count: float
    nodes: Array
    sums: Array
    wrong: Array
    weights: Array

    @staticmethod
    def of(values: Sequence[float] | Array, times: Sequence[int]) -> _Panel:
        """Return the panel of rising values, each ``times`` times."""
        counts, count = np.array(times, dtype=np.float64), float(sum(times))
        low, high = float(values[0]), float(values[-1])
        # the rounding of the centre must leave every loss inside
        centre, radius = (low + high) / 2, (high - low) / 2 * (1 + 1e-12) + 4 * UNIT * high + 1e-300
        angles = np.arccos(np.clip((np.asarray(values) - centre) / radius, -1, 1))
        degrees = np.arange(_NODES, dtype=np.float64)
        # by blocks of blocks: every sum is of 16 terms, so errors grow with the logarithm alone
        terms, levels = counts * np.cos(degrees[:, None] * angles), 0
        while terms.shape[1] > 1:
            padded = np.zeros((_NODES, -(-terms.shape[1] // 16), 16))
            padded.reshape(_NODES, -1)[:, : terms.shape[1]] = terms
            terms, levels = padded.sum(axis=2), levels + 1
        sums = terms[:, 0]
        # of each cosine, whose angle is at most pi times the degree, and of the sums
        wrong = count * UNIT * (16 * levels + 4 * degrees + 16)
        weights = np.abs((2 * sums @ _cosines() - sums[0]) / _NODES) + 1e-9 * count
        nodes = centre + radius * _cosines()[1]
        return _Panel(centre, radius, count, nodes, sums, wrong, weights)

    def log_moments(
        self,
        z: Complex,
        log_moments_at: Callable[[Array, Complex], tuple[Complex, Array]],
        exponentials: Callable[[float | Array, Complex], tuple[Array, Array]],
    ) -> tuple[Complex, Array]:
        """Return the sum of all log-moments, and a bound of its error."""
        points = np.ravel(z)
        total, error = np.zeros(len(points), dtype=np.complex128), np.zeros(len(points))
        for start in range(0, len(points), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            total[some], error[some] = self._at(points[some], log_moments_at, exponentials)
        return total.reshape(np.shape(z)), error.reshape(np.shape(z))

    def _at(
        self,
        z: Complex,
        log_moments_at: Callable[[Array, Complex], tuple[Complex, Array]],
        exponentials: Callable[[float | Array, Complex], tuple[Array, Array]],
    ) -> tuple[Complex, Array]:
        values, errors = log_moments_at(self.nodes, z)
        middle = values[_NODES // 2]
        ratio, _ = exponentials(self.centre, z)
        ratio = ratio - 1e-9 - 1e-14 * np.abs(z) * self.centre  # its rounding
        rate = 1 + np.abs(z)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            # of one branch of the logarithm: they differ by at most 2 V < pi
            apart = values - middle
            turns = np.round(apart.imag / (2 * np.pi))
            apart.imag -= 2 * np.pi * turns
            # what rounding makes of the differences, beside the parts' own errors
            errors = errors + UNIT * (
                4 * np.abs(apart) + np.where(turns, 4 * np.abs(values) + 8, 0.0)
            )
            coefficients = 2 / _NODES * (_cosines() @ apart)
            coefficients[0] /= 2
            total = self.count * middle + self.sums @ coefficients
            # R: S (e^{g R} - 1) = |M| / 2
            radius = np.log1p(np.maximum(ratio, 0.0) / 2) / rate * (1 - 1e-9)
            q = radius / self.radius * (1 - 1e-9)
            rho = q + np.sqrt(np.maximum(q * q - 1, 0.0))
            wrong = self.count * (4 * _VARIATION * rho ** (1.0 - _NODES) / (rho - 1))
            # the slope |K'| <= g S / |M| (and 1 of the denominator), at its worst in the panel
            moved = np.expm1(rate * self.radius)
            slope = rate * (1 + moved) / (ratio - moved) * (1 + 1e-9) + 1
            # nodes are rounded by a unit of their size; angles, and so the losses, by 32 units
            wrong = wrong + slope * UNIT * (
                self.weights.sum() * (self.centre + 40 * self.radius)
                + self.count * 48 * self.radius
            )
            wrong = wrong + self.weights @ errors + self.count * errors[_NODES // 2] * 1e-9
            # the sums' errors; the rounding of a coefficient: 32 units of a cosine, p of a sum
            wrong = wrong + self.wrong @ np.abs(coefficients)
            wrong = wrong + np.abs(self.sums).sum() * UNIT * (
                (2 * _NODES + 64) * 2 * np.abs(apart).mean(axis=0)
            )
            wrong = (wrong + 4 * UNIT * np.abs(total)) * (1 + 1e-9)
        usable = (q > 1.5) & np.isfinite(wrong) & (ratio > 1e-6 + moved)
        return np.where(usable, total, 0.0), np.where(usable, wrong, np.inf)


_AT_ONCE = 2048

_FOLLOWED = 256
"""The phases of so many losses are followed one by one at most, of twice as many at once."""

_CELLS = 2**14 + 2**10
_MET = 5
"""Those of more are followed together, in so many cells; a stretch meets few of them."""


def _squares_of_sines(eps: Array, weights: Array, width: float, cells: int) -> Array:
    """Return lower bounds of ``sum_j w_j sin^2(eps_j t_k)`` at ``t_k = k width``.

    Half of the weights' sum less that of ``w_j cos(2 eps_j t_k)``, where the angles turn by
    ``2 eps_j width <= 1`` from one k to the next. Each of these is one of N equal parts of a turn,
    and a rest r of at most ``pi / N``: with Taylor's polynomial of ``e^{ikr}`` the sum over j is a
    discrete Fourier transform for each degree.
    """
    size = 2 ** math.ceil(math.log2(2 * cells))
    turns = 2 * eps * width * (size / (2 * math.pi))
    nearest = np.rint(turns)
    rest = (turns - nearest) * (2 * math.pi / size)
    # Taylor's terms (-i k rest)^m / m!, of the conjugate sum
    k, terms = -1j * np.arange(cells), weights
    scale, sums = np.ones(cells, dtype=np.complex128), np.zeros(cells)
    for degree in range(_DEGREES):
        binned = np.bincount(nearest.astype(np.intp), terms, size)
        sums += (scale * np.fft.rfft(binned)[:cells]).real
        terms, scale = terms * rest, scale * (k / (degree + 1))
    # Taylor's remainder of e^{ix} is at most |x|^m / m!; rounding is far below 1e-6
    reach = math.pi / size * cells * (1 + 1e-9)
    wrong = reach**_DEGREES / math.factorial(_DEGREES) + 1e-6
    return np.asarray((float(weights.sum()) * (1 - wrong) - sums) / 2)


_DEGREES = 6


def _runs(values: Array, width: float) -> list[NDArray[np.intp]]:
    """Return the indices of values that lie within ``width`` of each other, each run rising."""
    order = np.argsort(values)
    rising, runs, first = values[order], [], 0
    while first < len(order):
        last = int(np.searchsorted(rising, rising[first] + width, side="right"))
        runs.append(order[first:last])
        first = last
    return runs


@cache
def _cosines() -> Array:
    """Return ``cos(k pi (2j + 1) / (2p))`` by degree k and point j, within 32 units."""
    multiples = np.outer(np.arange(_NODES), 2 * np.arange(_NODES) + 1) % (4 * _NODES)
    return np.asarray(np.cos(np.pi / (2 * _NODES) * multiples), dtype=np.float64)


class AtomsAtEnds(EpsilonPair):
    """Base of pairs with a moment of two exponentials: a large composition takes few of them."""

    __slots__ = ()

    @classmethod
    def log_moments(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> tuple[Complex, Array]:
        """Return the sum over all: interpolated in epsilon where many lie close together."""
        alone, panels = cls._panelled(spends, float(np.abs(z).max(initial=0.0)))
        total, error = summed(alone, z, lambda pair: pair.epsilon, cls._log_moments_at)
        for panel in panels:
            value, wrong = panel.log_moments(z, cls._log_moments_at, cls._exponentials)
            total, error = total + value, error + wrong + 2 * UNIT * np.abs(total + value)
        return total, error

    @classmethod
    def log_moduli(cls, spends: Sequence[tuple[Pair, int]], z: Complex) -> Array:
        """Return the logarithms of both exponentials' sum, of losses close together at once."""
        values = np.array([pair.top() for pair, _ in spends])
        counts = np.array([times for _, times in spends], dtype=np.float64)
        runs = _runs(values, 4 * _REACHED / (1 + float(np.abs(z).max(initial=0.0))))
        low, high = (np.array([values[run[i]] for run in runs]) for i in (0, -1))
        centre, radius = (low + high) / 2, (high - low) / 2 * (1 + 1e-12) + 8 * UNIT * high
        count = np.array([counts[run].sum() for run in runs])
        total = np.zeros(np.shape(z))
        for start in range(0, len(runs), 64):
            c, r, n = (part[start : start + 64, None] for part in (centre, radius, count))
            ratio, log_size = cls._exponentials(c, z)
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                # |M(e)| / S, its rounding, and how far M moves within the run
                moved = 1e-14 * (4 + np.abs(z) * c) + np.expm1((1 + np.abs(z)) * r)
                # the denominator 1 + e^eps changes by up to e^r
                bound = log_size + np.log(ratio + moved) + r
                bound = n * (bound + 64 * UNIT * (4 + np.abs(log_size) + np.abs(bound)))
            total = total + np.where(np.isnan(bound), np.inf, bound).sum(axis=0)
            total = total + 64 * UNIT * np.abs(bound).sum(axis=0)
        return up(total, 2 * len(runs))

    @classmethod
    def units(cls, spends: Sequence[tuple[Pair, int]], reach: float) -> int:
        """Return how many losses remain where panels serve those that lie close together."""
        alone, panels = cls._panelled(spends, reach)
        return len(alone) + _NODES * len(panels)

    @classmethod
    def decays_between(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, starts: Array, stops: Array
    ) -> Array:
        """Return the sum by the phase of their atoms: of many at once, else of the largest."""
        # what holds beyond a point holds beyond any later one: at some of them
        at = np.arange(0, len(starts), max(1, len(starts) // 64))
        beyond = np.repeat(
            cls.decays(spends, tilt, starts[at]), np.diff(np.append(at, len(starts)))
        )
        a, total = abs(tilt + 0.5), np.zeros(len(starts))
        if len(spends) > 2 * _FOLLOWED:
            return np.minimum(beyond, cls._phases(spends, a, starts, stops)) * (1 - 1e-12)
        # of the others the logarithm is at most 0
        some = sorted(spends, key=lambda spend: spend[1] * spend[0].top() ** 2)[-_FOLLOWED:]
        for pair, times in some:
            eps = pair.top()
            least = least_square_of_sine(eps * starts, eps * stops)
            between = cls._modulus(eps, a, least, starts, stops)
            total += times * np.minimum(0.0, up(between, 16) + 16 * UNIT)
        return np.minimum(beyond, total) * (1 - 1e-12)

    @classmethod
    def _phases(
        cls, spends: Sequence[tuple[Pair, int]], a: float, starts: Array, stops: Array
    ) -> Array:
        """Return bounds of the sum over all at once, by the phase of their atoms.

        Each logarithm is at most ``u(t) - sin^2(t eps) / (2 cosh^2(a eps))`` (`_excess`). The sum
        f of these squares of sines falls from a middle by at most the distance times the sum of
        its weights times eps, its largest slope. It is computed at the middles of narrow
        stretches, and of cells of one width, where it is a Fourier sum. Nothing is known of a
        stretch that meets many cells, or lies beyond the last.
        """
        eps, counts, weights = cls._weighted(spends, a)
        slope, squares = float(weights @ eps) * (1 + 1e-9), np.zeros(len(starts))
        width = 0.5 / float(eps.max())
        narrow = stops - starts < width / 2
        middles, half = (starts + stops)[narrow] / 2, (stops - starts)[narrow] / 2 * (1 + 1e-9)
        cosines = np.cos(2 * middles[:, None] * eps) @ weights
        # each angle is rounded by a few units of itself
        wrong = float(weights.sum()) * (1e-9 + 8 * UNIT * middles * float(eps.max()))
        squares[narrow] = (float(weights.sum()) - cosines - wrong) / 2 - half * slope
        cells = int(min(_CELLS, float(stops[-1]) / width)) + 2
        first = np.floor(starts / width * (1 - 1e-12) + 0.5)
        last = np.floor(stops / width * (1 + 1e-12) + 0.5)
        met = ~narrow & (last < cells) & (last - first < _MET)
        at = first[met].astype(np.intp)[:, None] + np.arange(_MET)
        at = np.minimum(at, last[met].astype(np.intp)[:, None])
        each = _squares_of_sines(eps, weights, width, cells) - width / 2 * slope
        squares[met] = each[at].min(axis=1)
        total = cls._excess(eps, counts, a, starts, stops) - np.maximum(squares, 0.0) / 2
        return np.asarray(np.minimum(total, 0.0) * (1 - 1e-9), dtype=np.float64)

    @classmethod
    def grid_decays(
        cls, spends: Sequence[tuple[Pair, int]], tilt: float, step: float, count: int
    ) -> Array | None:
        """Return the bounds of `_phases` at all points of a grid, which is one Fourier sum."""
        a = abs(tilt + 0.5)
        eps, counts, weights = cls._weighted(spends, a)
        if len(spends) <= _FEW or not 2 * step * float(eps.max()) <= 1:
            return None
        t = np.asarray(step * np.arange(count), dtype=np.float64)
        squares = _squares_of_sines(eps, weights, step, count)
        total = cls._excess(eps, counts, a, t, t) - np.maximum(squares, 0.0) / 2
        return np.asarray(np.minimum(total, 0.0) * (1 - 1e-9), dtype=np.float64)

    @staticmethod
    def _weighted(spends: Sequence[tuple[Pair, int]], a: float) -> tuple[Array, Array, Array]:
        """Return each epsilon, its count, and ``count / cosh^2(a eps)``, rounded down."""
        eps = np.array([pair.top() for pair, _ in spends])
        counts = np.array([times for _, times in spends], dtype=np.float64)
        far = np.exp(-2 * a * eps)
        return eps, counts, counts * 4 * far / (1 + far) ** 2 * (1 - 64 * UNIT * (1 + a * eps))

    @staticmethod
    def _excess(eps: Array, counts: Array, a: float, starts: Array, stops: Array) -> Array:
        """Return a bound of the sum of u (see `_phases`) from each start to its stop."""
        return np.zeros(len(starts))

    @classmethod
    def swing(cls, spends: Sequence[tuple[Pair, int]]) -> float:
        """Return the largest epsilon."""
        return max(pair.top() for pair, _ in spends)

    @staticmethod
    def _modulus(eps: float, a: float, least: Array, starts: Array, stops: Array) -> Array:
        """Return a bound of ``log |M / M(c)|``, where ``sin^2(t eps)`` is at least ``least``."""
        raise NotImplementedError

    @classmethod
    def _panelled(
        cls, spends: Sequence[tuple[Pair, int]], reach: float
    ) -> tuple[Sequence[tuple[Pair, int]], list[_Panel]]:
        """Return pairs that are asked one by one, and panels of pairs that lie close together."""
        if len(spends) <= _FEW or not reach < math.inf:
            return spends, []
        values = np.array([pair.top() for pair, _ in spends])
        alone, panels = [], []
        # within this width Chebyshev's polynomials leave less than a rounding (`_Panel`)
        for run in _runs(values, 2 * _REACHED / (1 + reach)):
            if len(run) > _NODES:
                panels.append(_Panel.of(values[run], [spends[i][1] for i in run.tolist()]))
            else:
                alone += [spends[i] for i in run.tolist()]
        return alone, panels

    @staticmethod
    def _exponentials(eps: float | Array, z: Complex) -> tuple[Array, Array]:
        """Return of ``M = A e^{z eps} + B e^{-z' eps}`` how much cancels, and its size.

        These are ``|M| / S`` and ``log S``, ``S = |A e^{z eps}| + |B e^{-z' eps}|``, where z' is z
        or ``z + 1`` or both exponents are larger by eps, and A and B are independent of eps but for
        a factor ``1 / (1 + e^eps)``.
        """
        raise NotImplementedError


@frozen
class LaplacePair(AtomsAtEnds):
    """Lap(eps, 1) against Lap(0, 1), the same reversed.

    L lies in [-eps, eps]; under P it has mass 1/2 at eps, ``e^-eps / 2`` at -eps and the density
    ``e^{(l - eps)/2} / 4`` between. With w = z + 1/2,

    ``E_P e^{zL} = e^{-eps/2} (cosh(w eps) + sinh(w eps) / (2w))``.
    """

    epsilon: float

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``1 - e^{(l - eps)/2}/2`` under P, ``e^{-(l + eps)/2}/2`` under Q, inside."""
        eps = self.epsilon
        inside = np.clip(loss, -eps, eps)
        p = np.where(loss < -eps, 1.0, 1 - np.exp((inside - eps) / 2) / 2)
        q = np.where(loss < -eps, 1.0, np.exp(-(inside + eps) / 2) / 2)
        return np.where(loss < eps, p, 0.0), np.where(loss < eps, q, 0.0)

    def spacing(self) -> float:
        """Return epsilon: both atoms are multiples of it."""
        return self.epsilon

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the logarithm of the bound of `_decay`."""
        return self.decays(((self, 1),), tilt, beyond)

    def composed(self, times: int, epsilon: Array) -> tuple[Array, Array] | None:
        """Return the sum of `accountants.losses.laplace`."""
        return laplace_sum_profile(self.epsilon, times, epsilon)

    @classmethod
    def decays(cls, spends: Sequence[tuple[Pair, int]], tilt: float, beyond: Array) -> Array:
        """Return the sum over all at once."""
        eps = np.array([pair.top() for pair, _ in spends])
        times = np.array([count for _, count in spends], dtype=np.float64)
        # the log of a product of moduli; shrunk towards 0, outward
        return times @ _decay(eps[:, None], abs(tilt + 0.5), beyond) * (1 - 1e-12)

    @staticmethod
    def _excess(eps: Array, counts: Array, a: float, starts: Array, stops: Array) -> Array:
        """Return the sum of ``min(1, T + t eps) / (2 |w|) - log(1 + T / (2a))``, T = tanh(a eps).

        Over ``cosh(a eps)``, with ``s = sin(t eps)`` (`_modulus`), the first term's modulus is at
        most ``1 - s^2 / (2 cosh^2)``, the second's at most ``min(1, T + |s|) / (2|w|)``, and the
        value at t = 0 is ``1 + T / (2a)``; ``log x <= x - 1``.
        """
        tangent = np.tanh(a * eps) * (1 + 16 * UNIT)
        most = np.minimum(counts.sum(), counts @ tangent + stops * float(counts @ eps))
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(a * eps > 1e-8, tangent / (2 * a), eps / 2 * (1 - a * eps))
        fixed = float(counts @ np.log1p(slope * (1 - 64 * UNIT)))
        return np.asarray(most / (2 * np.hypot(a, starts)) * (1 + 1e-9) - fixed * (1 - 1e-9))

    @staticmethod
    def _modulus(eps: float, a: float, least: Array, starts: Array, stops: Array) -> Array:
        """Return the bound from both terms' moduli.

        ``|cosh(w eps)|^2 = cosh^2(a eps) - sin^2(t eps)``, ``|sinh(w eps)|^2 = sinh^2(a eps) +
        sin^2(t eps)``, with ``w = a + it``.
        """
        far = math.exp(-2 * a * eps)
        cosh, sinh = (1 + far) / 2, -math.expm1(-2 * a * eps) / 2  # over e^{a eps}
        most = np.minimum(1.0, (eps * stops) ** 2)
        one = np.sqrt(np.maximum(cosh * cosh - least * far, 0.0))
        two = np.sqrt(sinh * sinh + most * far) / (2 * np.hypot(a, starts))
        slope = sinh / (2 * a) if a * eps > 1e-8 else eps / 2 * (1 - a * eps)
        return np.asarray(np.log((one + two) / (cosh + slope)), dtype=np.float64)

    @staticmethod
    def _log_moments_at(eps: Array, z: Complex) -> tuple[Complex, Array]:
        """Return log-moments, (n, m) for n losses at m points, and bounds of their errors.

        With z or its mirror image ``-1 - z``, whose moment is the same, and a = z + 1, w = z + 1/2,

        ``M - 1 = a/(2w) (e^{z eps} - 1) + z/(2w) (e^{-a eps} - 1)``.
        """
        z, slip = right_half(z)
        a, w = z + 1, z + 0.5
        w = np.where(w == 0, 1e-9, w)  # M is even and entire in w: there it moves by (w eps)^2
        every = eps[:, None]
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            first, second = a / (2 * w), z / (2 * w)
            grow, fall = first * expm1(z * every), second * expm1(-a * every)
            # relative rounding of each term, in units: of the arithmetic and of its exponent
            units = 64 + 4 * np.abs(a) * every
            size = np.abs(grow) + np.abs(fall)
            # an exponent's own rounding counts even where its exponential is next to 1
            moved = 4 * every * (np.abs(z * first) + np.abs(a * second))
            wrong = (units * size + moved) * UNIT + 1e-18 * every * every
            near, near_error = log1p(grow + fall, wrong)
            # where e^{z eps} is large it is taken out
            rest = first + second * np.exp(-2 * w * every)
            far = z * every + np.log(rest)
            wrong = units * UNIT * (np.abs(first) + np.abs(second))
            moved = wrong / np.abs(rest)
            far_error = np.where(moved < 0.5, 2 * moved + 8 * UNIT * np.abs(far), np.inf)
        small, slipped = z.real * every < 1, slip * every
        return np.where(small, near, far), np.where(small, near_error, far_error) + slipped

    @staticmethod
    def _exponentials(eps: float | Array, z: Complex) -> tuple[Array, Array]:
        """Return how much of M cancels, and the log of the size of its terms."""
        z, _ = right_half(z)
        w = z + 0.5
        w = np.where(w == 0, 1e-9, w)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            first, second = (z + 1) / (2 * w), z / (2 * w) * np.exp(-2 * w * eps)
            size = np.abs(first) + np.abs(second)
            return np.abs(first + second) / size, z.real * eps + np.log(size)


def _decay(eps: Array, a: float, beyond: Array) -> Array:
    """Return bounds of ``log |M|`` beyond t over its value at 0, on ``Re w = +-a``, at most 0.

    The sum of both exponentials' moduli: with ``|w| = |a + it|``, ``|1/2 + 1/(4w)|`` falls in t;
    ``|1/2 - 1/(4w)|`` is at most 1/2 where a >= 1/4, and at most ``1/2 + 1/(4|w|)``.
    """
    far = np.exp(-2 * a * eps)
    inverse = 1 / (a * a + beyond * beyond)
    # |1/2 + 1/(4w)|, exactly, at the line's point a + it: it falls in t
    first = np.sqrt(0.25 + a / 4 * inverse + inverse / 16)
    second = 0.5 if a >= 0.25 else 0.5 + np.sqrt(inverse) / 4
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(a * eps > 1e-8, -np.expm1(-2 * a * eps) / (4 * a), eps / 2 * (1 - a * eps))
    # over M(0 on the line) = e^{a eps} ((1 + e^{-2 a eps}) / 2 + sinh(a eps) e^{-a eps} / (2a))
    bound: Array = np.log((first + second * far) / ((1 + far) / 2 + slope))
    return np.minimum(0.0, up(bound, 16) + 16 * UNIT)
