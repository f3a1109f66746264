"""The losses of selection: exponential mechanism, noisy max, permute-and-flip, private selection.

The exponential mechanism's log-likelihood ratio has a bounded range.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from attrs import evolve, field, frozen
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from accountants import special
from accountants.definitions import pure_to_gdp, pure_to_renyi, renyi_divergence
from accountants.errors import DomainError, integer, nonnegative, positive
from accountants.finite import LARGEST, FinitePair
from accountants.loss import PrivacyLoss
from accountants.losses.given import Curved, PureBound, log_deltas, lowered
from accountants.losses.laplace import EpsilonPair, closer
from accountants.numerics import (
    UNIT,
    Array,
    Bounds,
    Complex,
    RoundedUp,
    ceiling,
    cost,
    down,
    expm1,
    log1p,
    multiple,
    remembered,
    rounded_up,
    up,
)
from accountants.pair import Pair, right_half
from accountants.terms import expected_runs, stopping_rate, stopping_shape


def _epsilon(value: float) -> float:
    return cost("BoundedRange.epsilon", value)


@frozen
class BoundedRange(PrivacyLoss):
    r"""A log-likelihood ratio in ``[t - epsilon, t]``, for a t that each pair of neighbours has.

    The exponential mechanism with density proportional to ``e^{c q}`` has it, for scores q that
    move by at most Delta: ``epsilon = 2 c Delta``, or ``c Delta`` where all of the scores move
    the same way (monotone). Any neighbour relation; ratios over a chain of neighbours add their
    ranges, so a group of k has k times the range.

    Profile: among the ratios with a given range the hockey-stick, convex in the ratio, is largest
    for the two at its ends, and there ``(e^eps - e^t)(1 - e^{s-t})/(e^eps - 1)`` at any real s in
    the range. The best t is ``(eps + s)/2``, for each s another:
    ``delta(s) = (1 - e^{(s-eps)/2})^2 / (1 - e^{-eps})`` for |s| <= eps.

    Renyi: with ``k(x) = log(sinh(x/2)/(x/2))`` the best t of each order alpha gives
    ``(alpha-1) D_alpha = alpha k(alpha eps) - (alpha-1) k((alpha-1) eps) - k(eps)``.

    ``rho = k(eps) + eps k'(eps)``, the limit of D_alpha at alpha = 1, below ``eps^2/8``. Since
    ``k(x) = sum_n log(1 + x^2/(2 pi n)^2)``, it is enough that, for c > 0 and alpha >= 1,
    ``g(a) = a (a-1) (log(1+c) + 2c/(1+c)) + (a-1) log(1 + c (a-1)^2) + log(1+c) - a log(1 + c
    a^2)`` is not negative. g and g' vanish at 1; g'' is twice the bracket less ``q(a) - q(a-1)``,
    ``q(x) = 2cx/(1+c x^2) + 4cx/(1+c x^2)^2``, whose slope falls, crosses 0 once, and rises
    again below 0: so ``q(a) - q(a-1) <= q(1)``, and q(1) is at most twice the bracket.

    ``mu = 2 Phi^-1(1/(1 + e^{-eps/2}))``, that of randomized response with half the epsilon. A pair
    with range [t - eps, t] is a post-processing of the two-point pair ``(p, 1-p)``, ``(q, 1-q)``
    with the ratios at the ends (the ratio's law under Q is spread to the ends with its mean kept,
    so every hockey-stick is at least as large), and there ``logit p - logit q = eps``, whatever t
    is. Its trade-off curve is two chords that meet at ``(q, 1 - p)``; that of mu-GDP is convex, so
    it lies below both if it does at that point: if ``mu >= Phi^-1(p) - Phi^-1(q)``. With s the
    logistic function, ``p = s(u + eps/2)`` and ``q = s(u - eps/2)``. So mu is the largest
    ``h(u) = psi(u + eps/2) - psi(u - eps/2)``, ``psi = Phi^-1 o s``, which is odd; where psi is
    concave on x >= 0 its even slope falls in ``|x|``, so that h' has the sign of -u, and u = 0 is
    the best. Psi is concave there if ``logit Phi`` is convex on z >= 0, so if its slope
    ``phi/(Phi (1 - Phi))`` rises, that is, if
    ``g = phi (2 Phi - 1) - z Phi (1 - Phi)`` is not negative. ``g(0) = g(inf) = 0``;
    ``g' = 2 phi^2 - Phi (1 - Phi)`` is positive at 0 (``1/pi > 1/4``) and 0 at infinity;
    ``g'' = phi (2 Phi - 1 - 4 z phi)``, and the bracket, 0 at 0 and 1 at infinity, has the slope
    ``phi (4 z^2 - 2)``: it falls first and then rises, and changes its sign once, to positive.
    So g' falls first, then rises to 0: it is positive first and negative then. So g rises from 0,
    then falls to 0. That mu is attained, at u = 0.

    Parameters
    ----------
    epsilon
        Non-negative, in nats: the range, and the pure epsilon.

    References
    ----------
    Durfee and Rogers 2019 (bounded range); Dong, Durfee and Rogers 2020 (the two-point pairs);
    Cesar and Rogers 2021, Lemma 3.4 (``rho <= eps^2/8``); the mu is proven above.

    Examples
    --------
    >>> loss = BoundedRange(epsilon=1.0)
    >>> loss.pure(), round(loss.rho(), 6), round(loss.profile(0.0).upper, 6)
    (1.0, 0.123302, 0.244919)
    >>> round(loss.mu(), 6)  # 1.232036 follows from the pure epsilon alone
    0.623893
    """

    joins_apart: ClassVar[bool] = True

    grouped_is_tight: ClassVar[bool] = True

    theorem: ClassVar[str] = (
        "bounded range: Durfee & Rogers 2019; Dong, Durfee & Rogers 2020; Cesar & Rogers 2021"
    )

    epsilon: float = field(converter=_epsilon)

    def pair(self) -> BoundedRangePair:
        """Return the pair whose profile is the largest of all t, at each epsilon."""
        return BoundedRangePair(self.epsilon)

    def pure(self) -> float:
        """Return epsilon: the ratio's expectation is 1, so its range has 0 inside."""
        return self.epsilon

    def renyi(self, orders: Array) -> Array:
        """Return the largest of all t, below what the pair would give."""
        return _curve(self.epsilon, self.rho(), orders)

    def rho(self) -> float:
        """Return ``k(eps) + eps k'(eps)``."""
        eps = self.epsilon
        if eps < 0.1:  # the series alternates: cutting it after a positive term bounds it
            # the series of k(eps) + eps k'(eps)
            return up(eps**2 / 8 - eps**4 / 576 + 7 * eps**6 / 181440, 16) if eps else 0.0
        half = eps / 2
        log_sinhc = half + math.log(-math.expm1(-eps) / eps)
        return up(log_sinhc + (half / math.tanh(half) - 1)) + 16 * UNIT * (1 + eps)

    def mu(self) -> float | None:
        """Return randomized response's at half the range: the largest of all t (proof above)."""
        value = pure_to_gdp(up(self.epsilon / 2) if self.epsilon else 0.0)
        return value if value < math.inf else None

    def attained_pair(self) -> Pair:
        """Return the pair of one exponential mechanism: which one is worst depends on the delta."""
        return _two_losses(self.epsilon, 0.6)

    def attained_together(self, times: int) -> tuple[Pair, int] | None:
        """Return what exponential mechanisms attain that are chosen as one goes.

        Of very many a pair of two losses, the same one each time.
        """
        if not _groups(self.epsilon, times):
            return None
        if times <= _FOLLOWED:
            pair = _at_least(self.epsilon, times)
            return None if pair is None else (pair, 1)
        # t = (eps + s / k) / 2 for the sum s that is exceeded with a probability of about 1e-6
        spread = math.sqrt(times * self.rho())
        share = (1 + spread * (spread + 7.5) / (times * self.epsilon)) / 2
        return _two_losses(self.epsilon, share), times

    def profile(self, epsilon: float) -> Bounds:
        """Return the profile: at each point some exponential mechanism attains it."""
        eps = self.epsilon
        if epsilon >= eps:
            return Bounds(0.0, 0.0)
        if epsilon <= -eps:
            exact = -math.expm1(epsilon)
        else:
            # the largest over all t of the two-point pairs' profiles
            root, rest = -math.expm1((epsilon - eps) / 2), -math.expm1(-eps)
            exact = root**2 / rest
            if isinstance(eps, RoundedUp):  # a rational eps, which its float is above
                moved = UNIT * (eps + abs(epsilon))
                wrong = moved * (2 * root + moved) / rest * (1 + 1e-9)
                return Bounds(max(0.0, down(exact, 32) - wrong), min(1.0, up(exact, 32) + wrong))
        return Bounds(max(0.0, down(exact, 16)), min(1.0, up(exact, 16)))

    def grouped(self, size: int) -> BoundedRange:
        """Return ``BoundedRange(size * epsilon)``: the ranges of a chain of ratios add.

        Attained: of two candidates whose scores move apart, each unit moves the logit by epsilon.
        """
        k = integer("group size", size)
        return BoundedRange(multiple(self.epsilon, k))

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order bounded ranges by epsilon."""
        return isinstance(other, BoundedRange) and self.epsilon >= other.epsilon


def _log_sinhc(x: Array) -> tuple[Array, Array]:
    """Return ``k(x) = log(sinh(x/2)/(x/2))`` and a bound of its error, x being off by 2 UNIT.

    Where x < 1, by the Taylor series of sinhc in ``y = (x/2)^2`` up to ``y^6``: it leaves less
    than a unit, and ``x k'(x) <= 2 k(x)``; elsewhere ``x k'(x) <= x/2``.
    """
    y = x * x / 4
    series = y / 6 * (1 + y / 20 * (1 + y / 42 * (1 + y / 72 * (1 + y / 110 * (1 + y / 156)))))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        far = x / 2 + np.log(-np.expm1(-x) / x)
        near = np.log1p(series)
        return np.where(x < 1, near, far), UNIT * np.where(x < 1, 32 * near, 16 + 8 * x)


def _curve(eps: float, rho: float, orders: Array) -> Array:
    """Return the divergences: the formula, or where it cancels ``rho alpha``; at most eps."""
    less = orders - 1
    if eps == 0:
        return np.zeros(np.shape(orders))
    with np.errstate(over="ignore", invalid="ignore"):
        first, wrong_first = _log_sinhc(orders * eps)
        second, wrong_second = _log_sinhc(less * eps)
        third, wrong_third = _log_sinhc(np.full(np.shape(orders), eps))
        # the three terms' errors, and the rounding of their sum
        wrong = orders * wrong_first + less * wrong_second + wrong_third
        wrong = wrong + 4 * UNIT * (orders * first + less * second + third)
        exact = (orders * first - less * second - third + wrong) / less
        # both are proven, so the smaller holds; not a number where the formula overflows
        curve: Array = np.fmin(up(exact), up(orders * rho))
    return np.minimum(curve, eps)


@frozen
class BoundedRangePair(EpsilonPair):
    """The pair of the largest profile: L has no atoms, and the same law reversed.

    Under P its density is ``e^{l/2}/(4 sinh(eps/2))`` on [-eps, eps]. With w = z + 1/2,

    ``E_P e^{zL} = sinh(w eps) / (2 w sinh(eps/2))``.

    No exponential mechanism has this pair: each profile value belongs to another one.
    """

    epsilon: float

    def is_tight(self) -> bool:
        """Return that it is not."""
        return False

    def above(self, loss: Array) -> tuple[Array, Array]:
        """Return ``(1 - e^{(l-eps)/2})/(1 - e^-eps)`` under P, ``e^{-(l+eps)/2}`` of it under Q."""
        eps = self.epsilon
        inside = np.clip(loss, -eps, eps)
        # (1 - e^{(l-eps)/2}) / (1 - e^-eps), by expm1 so that it keeps its digits
        p = np.expm1((inside - eps) / 2) / (math.expm1(-eps) if eps else -1.0)
        q = np.exp(-(inside + eps) / 2) * p
        p, q = np.where(loss < -eps, 1.0, p), np.where(loss < -eps, 1.0, q)
        return np.where(loss < eps, p, 0.0), np.where(loss < eps, q, 0.0)

    def together(self, times: int) -> tuple[tuple[Pair, int], ...]:
        """Return the pairs of groups of copies, above what any mechanisms of the range attain."""
        found = [(_at_most(self.epsilon, size), n) for size, n in _groups(self.epsilon, times)]
        some = tuple((pair, n) for pair, n in found if pair is not None)
        return some if some and len(some) == len(found) else super().together(times)

    def decay(self, tilt: float, beyond: Array) -> Array:
        """Return the bound from ``|sinh(x + iy)|^2 = sinh^2 x + sin^2 y``, x + iy = w eps.

        ``(sinh^2 x + sin^2 y)/(x^2 + y^2)`` falls in y up to pi/2, since ``y cos y <= sin y`` and
        ``x <= sinh x``; from there on sin y is bounded by 1.
        """
        x, y = abs(tilt + 0.5) * self.epsilon, self.epsilon * beyond
        sine = np.sin(np.minimum(y, math.pi / 2))
        if x > 1:
            grown = math.sinh(min(x, 300.0))
            bound = np.log1p((sine / grown) ** 2) - np.log1p((y / x) ** 2)
        else:
            sinh = math.sinh(x)
            sinhc = sinh / x if x > 0 else 1.0
            above, size = sinh * sinh + sine * sine, x * x + y * y
            bound = np.log(np.maximum(above, 1e-300) / np.maximum(size, 1e-300) / sinhc**2)
        result: Array = np.minimum(0.0, bound / 2 + 16 * UNIT * (1 + np.abs(bound)))
        return result

    @staticmethod
    def _log_moments_at(eps: Array, z: Complex) -> tuple[Complex, Array]:
        """Return log-moments, (n, m) for n losses at m points, and bounds of their errors."""
        z, slip = right_half(z)
        every = eps[:, None]
        value, error = closer(_near(every, z), _far(every, z))
        return value, error + slip * every


def _near(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return the series of M - 1, where x = w eps and y = eps/2 are at most 1.

    ``sinhc(x) - sinhc(y) = sum_n (x^{2n} - y^{2n})/(2n+1)!``, each difference from the last:
    ``x^{2n+2} - y^{2n+2} = x^2 (x^{2n} - y^{2n}) + y^{2n} (x^2 - y^2)``, at most n+1 times the
    first, ``eps^2 z (z+1)``. So are their errors, and what twelve of them leave: 1e-26.
    """
    y = np.minimum(eps / 2, 1.0)
    x = (z + 0.5) * eps
    inside = (np.abs(x) <= 1) & (eps <= 2)
    x = np.where(inside, x, 0.0)
    first = np.where(inside, eps * eps * (z * (z + 1)), 0.0)
    difference, power, factorial, total = first, y * y, 6.0, first / 6
    for n in range(2, 13):
        difference = x * x * difference + power * first
        power = power * y * y
        factorial *= 2 * n * (2 * n + 1)
        total = total + difference / factorial
    sinhc = np.where(y > 0, np.sinh(y) / np.where(y > 0, y, 1.0), 1.0)
    # M - 1 = (sinhc(x) - sinhc(y)) / sinhc(y)
    less_one = (total / sinhc).astype(np.complex128)
    value, error = log1p(less_one, 64 * UNIT * np.abs(first))
    return value, np.where(inside, error + 1e-300, np.inf)


def _far(eps: Array, z: Complex) -> tuple[Complex, Array]:
    """Return ``z eps + log((1 - e^{-2x})/(2x)) - log((1 - e^-eps)/eps)``, x = w eps."""
    x = (z + 0.5) * eps
    x = np.where(x == 0, 1e-200, x)  # M is even and entire in x
    grown = expm1(-2 * x)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scaled = np.where(eps > 0, -np.expm1(-eps) / np.where(eps > 0, eps, 1.0), 1.0)
        value = z * eps + np.log(grown / (-2 * x)) - np.log(scaled)
        # x is off by 4 UNIT of itself, and so is its exponential
        moved = UNIT * (80 + 16 * np.abs(x) * np.exp(-2 * x.real) / np.abs(grown))
        error = 2 * moved + 8 * UNIT * (1 + np.abs(z) * eps + np.abs(value))
    return value, np.where(moved < 0.5, error, np.inf)


# -----------------------------------------------------------------------------
# Bounded ranges, several times: what those who choose as they go attain, and no more.
#
# Let D_k(a) be the largest hockey-stick at e^a of k mechanisms of range eps, each chosen by what
# came before it: D_0 is ``(1 - e^a)_+``, and
#
# ``D_k(a) = max over t in [0, eps] of p D_{k-1}(a - t) + (1 - p) D_{k-1}(a - t + eps)``,
# ``p = (1 - e^{t - eps}) / (1 - e^-eps)``
#
# (Dong, Durfee and Rogers 2020, whose mechanisms with two losses t and t - eps these are). Proof:
# given the first outcome, of loss l, no more than D_{k-1}(a - l) is left, and some mechanisms
# attain it. ``E_P D_{k-1}(a - L) = E_Q r D_{k-1}(a - log r)`` is the mean of a convex function of
# r, since D_{k-1} is a largest of hockey-sticks and so convex in e^a; so it is largest for the two
# ratios at the ends. The class is the same with P and Q exchanged: so are D_k and
# ``D_k(-a) = 1 - e^-a + e^-a D_k(a)``.
#
# D_k is convex in e^a, so it is the hockey-stick of a pair (`BoundedRangePair.together`). That pair
# dominates the k also among other mechanisms, in any order. Proof: let S be the maximum above of
# any function g that is a sum of translates of D_0 with weights (all convex ones are), and T the
# sum of what S makes of each translate. Then ``S g <= T g`` (a maximum of sums), likewise for a
# pair's own mean U g over translates ``S U g <= U S g``; so S, once per mechanism, wherever it
# stands, can be moved to where it meets D_0 first. Groups of copies compose as these pairs do.
#
# Of a group that comes last the choices may depend on all other outcomes: so D_k at what is left of
# a is attained, and what is below it everywhere is a lower bound of the whole
# (`BoundedRange.attained_together`).
#
# Both on a lattice of step ``h = eps / m``. From above D_{k-1} is replaced by its chords in e^a
# between points. With t in one cell, ``y = e^{t - t_j}`` in [1, e^h], both terms stay in one cell
# of theirs, and the sum is ``A + B y + C / y``: largest at ``(C / B)^{1/2}`` if B, C < 0, else at
# an end, which is the next cell's first one. From below t is on the lattice too, and the masses P
# and Q of the event where the loss is above a are followed, each with that of its complement: lines
# ``P - e^a Q`` that the hockey-stick of these mechanisms is at one a, and is not below elsewhere.


_TOGETHER = 100
"""So many are taken together, no more: of more each group has choices of its own."""

_FOLLOWED = 400
"""What more attain is bounded by mechanisms that are all alike."""

_LATTICE = 2400
"""Points of the lattice from 0 to ``k eps``."""

_CORNERS = 800, 400
"""About so many points are kept of the upper bound, and of the lower one."""

_RANGE = 1e-6, 8.0
"""The ranges that are taken together."""

_AT_ONCE = 2**15


def _groups(epsilon: float, times: int) -> list[tuple[int, int]]:
    """Return the sizes of the groups, each with how many there are; none of others."""
    if times < 2 or not _RANGE[0] <= epsilon <= _RANGE[1]:
        return []
    count = -(-times // _TOGETHER)
    size, more = divmod(times, count)
    return [(number, n) for number, n in ((size, count - more), (size + 1, more)) if n]


@remembered(64)
def _at_most(epsilon: float, times: int) -> FinitePair | None:
    """Return a pair above all that ``times`` mechanisms of the range attain."""
    top = ceiling(Fraction(epsilon) * times)
    if top > LARGEST:
        return None
    m = _LATTICE // times
    h = up(epsilon / m, 4)
    values = _largest_deltas(h, m, times)
    kept = _some(m * times, _CORNERS[0])
    # chords between fewer points are above the others; no loss is above k times the range. So far
    # out that a mass would underflow one chord goes to the end
    kept = kept[(values[kept] > 1e-285 * math.exp(top)) | (kept == m * times)]
    losses = np.append(up(np.asarray(h * kept[:-1], dtype=np.float64), 4), top)
    ratio, deltas = np.exp(losses), values[kept]
    # Q's mass is by how much the slope grows: no less, so that no sum of masses is below a chord
    step = np.expm1(np.diff(losses)) * ratio[:-1]
    fall = -np.diff(deltas) / step
    wrong = (8 * UNIT * (deltas[:-1] + deltas[1:]) / step + 16 * UNIT * fall) * (1 + losses[1:])
    q = np.append(fall[:-1] - fall[1:] + wrong[:-1] + wrong[1:], fall[-1] + wrong[-1])
    losses, q = losses[1:][q > 0], q[q > 0]
    p = q * np.exp(losses)
    none = 1 - float((p + q).sum())
    if not (q.min() > 1e-290 and none > 0):
        return None
    none += 256 * UNIT  # of the sum: more than is left has no loss
    # masses are floats that are larger than is needed, but for what an exponential may lack
    return FinitePair(
        np.concatenate([-losses[::-1], [0.0], losses]),
        np.concatenate([q[::-1], [none], p]),
        np.concatenate([p[::-1], [none], q]),
        (512 + 8 * top) * UNIT,
        tight=False,
    )


def _largest_deltas(h: float, m: int, times: int) -> Array:
    """Return bounds of D_k at the lattice's points from 0 on."""
    last, slack = m * times, 64 * UNIT
    grow, scale = math.expm1(h), -1 / math.expm1(-m * h)
    cells = h * np.arange(-m, 0)
    share, rest = np.exp(cells), -np.expm1(cells)
    back = h * np.arange(1, m + 2)
    values = np.zeros(last + 1)
    for done in range(1, times + 1):
        # D(-a) = 1 - e^-a + e^-a D(a); beyond the last point it is no more than there
        mirrored = -np.expm1(-back) + np.exp(-back) * values[1 : m + 2]
        every = np.concatenate([mirrored[::-1], values, np.full(m, values[-1])])
        runs = sliding_window_view(every, m)
        found = np.zeros(last + 1)
        for first in range(0, min(done * m, last) + 1, max(1, _AT_ONCE // m)):
            at = np.arange(first, min(last + 1, first + max(1, _AT_ONCE // m)))
            # at a - t_j and one point below, at a - t_j + eps and one point below
            near, before = runs[at + 2][:, ::-1], runs[at + 1][:, ::-1]
            far, before_far = runs[at + 2 + m][:, ::-1], runs[at + 1 + m][:, ::-1]
            fall, fall_far = before - near, before_far - far
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                c = (scale * fall - (scale - 1) * fall_far) * ((1 + grow) / grow)
                b = scale * share * (before - before_far + (fall - fall_far) / grow)
                best = np.sqrt(c / b)
                # where the best y is off by rounding, the sum is by the square of that, or little
                off = before * np.fmin(1.0, slack / h * before / fall)
                off += before_far * np.fmin(1.0, slack / h * before_far / fall_far)
            y = np.where(best > 1, np.minimum(best, 1 + grow), 1.0)
            left = np.clip((grow - (y - 1)) / (grow * y), 0.0, 1.0)
            p = np.clip(scale * (rest - share * (y - 1)), 0.0, 1.0)
            sums = p * (near + (1 - left) * fall) + (1 - p) * (far + (1 - left) * fall_far)
            sums += slack * scale * (off + rest * before)
            found[at] = sums.max(axis=1)
        # t = eps is the end of the last cell; it falls, and is 0 from k eps on
        found = np.maximum(found, values) * (1 + slack)
        values = np.maximum.accumulate(found[::-1])[::-1]
        values[done * m :] = 0.0
    return values


def _some(last: int, count: int) -> NDArray[np.int64]:
    """Return about so many indices up to the last one, all of the last few among them."""
    even = np.linspace(0, last, count).astype(np.int64)
    return np.unique(np.concatenate([even, np.arange(max(0, last - 16), last + 1)]))


@remembered(64)
def _at_least(epsilon: float, times: int) -> FinitePair | None:
    """Return a pair below what ``times`` mechanisms of the range attain."""
    # what is beyond the reach is hardly ever lost
    square = times * epsilon * epsilon / 8
    reach = min(1.0, (square + 16 * math.sqrt(square)) / (times * epsilon))
    m = max(2, int(_LATTICE / (times * reach)))
    h = down(epsilon / m, 4)
    p, q = _attained_masses(h, m, times, math.ceil(m * times * reach))
    kept = _some(len(p) - 1, _CORNERS[1])
    # of masses after so many products, and of the differences of two
    wrong = (16 + epsilon) * UNIT * times
    points = [(0.0, 0.0)]
    for x, y in zip(q[kept][::-1].tolist(), p[kept][::-1].tolist(), strict=True):
        far = y - points[-1][1] > 1e-3 * y and x - points[-1][0] > 1e-3 * x
        if far and x > 1e-280 and x + y < 1:
            points.append((x, y))
    # the upper hull: all events and their mixtures are attained
    hull_q, hull_p = _hull(*np.array(points).T)
    less, more = np.diff(hull_q), np.diff(hull_p)
    steep = more > less * (1 + 1e-6)
    if not steep.any():
        return None
    losses, less, more = (
        np.log(more[steep] / less[steep])[::-1],
        less[steep][::-1],
        more[steep][::-1],
    )
    error = 4e3 * wrong
    # a loss is known within twice the masses' error: the largest one, which decides at delta 0,
    # is moved inward by more, and what lies beside it is left out
    largest = float(losses[-1]) - 4 * error
    inside = losses < largest
    inside[-1] = True
    losses, less, more = losses[inside], less[inside], more[inside]
    losses[-1] = largest
    middle = 1 - float(hull_q[-1] + hull_p[-1])
    none = np.array([middle] if middle > 1e-3 and losses[0] > 0 else [])
    if not (losses[0] > 0 and (np.diff(losses) > 0).all()):
        return None
    return FinitePair(
        np.concatenate([-losses[::-1], 0 * none, losses]),
        np.concatenate([less[::-1], none, more]),
        np.concatenate([more[::-1], none, less]),
        7 * error,
    )


def _two_losses(epsilon: float, share: float) -> FinitePair:
    """Return the pair of an exponential mechanism with the losses t and t - epsilon."""
    epsilon = down(epsilon, 4)  # what is rounded up is less
    if not epsilon > 0:
        return FinitePair(np.zeros(1), np.ones(1), np.ones(1), 0.0)
    t = min(share, 0.999) * epsilon
    rest = -math.expm1(-epsilon)
    p = -math.expm1(t - epsilon) / rest, math.exp(t - epsilon) * -math.expm1(-t) / rest
    q = math.exp(-t) * p[0], -math.expm1(-t) / rest
    error = (32 + 8 * epsilon) * UNIT
    return FinitePair((t - epsilon, t), p[::-1], q[::-1], error)


def _attained_masses(h: float, m: int, times: int, last: int) -> tuple[Array, Array]:
    """Return P and Q of an event that some mechanisms make, for each point up to the last one.

    At more no event at all is looked at.
    """
    eps = m * h
    # products of h: their differences keep all digits
    t, under = h * np.arange(m + 1), h * np.arange(-m, 1)
    more, less = (
        np.expm1(under) / math.expm1(-eps),
        np.exp(under) * (np.expm1(-t) / math.expm1(-eps)),
    )
    more_q, less_q = np.exp(-t) * more, np.exp(-under) * less
    loss = h * np.arange(-m, last + m + 1)
    with np.errstate(over="ignore"):
        paid = np.exp(np.minimum(loss, 700.0))
    p, q = np.zeros(last + 1), np.zeros(last + 1)
    rest_p, rest_q = np.ones(last + 1), np.ones(last + 1)
    for _ in range(times):
        # the event at -a is the complement of that at a, P and Q exchanged
        ends = ((p, rest_q, 0.0), (q, rest_p, 0.0), (rest_p, q, 1.0), (rest_q, p, 1.0))
        every = [
            np.concatenate([mirror[m:0:-1], values, np.full(m, end)])
            for values, mirror, end in ends
        ]
        with np.errstate(over="ignore", invalid="ignore"):
            deltas = np.maximum(every[0] - paid * every[1], 0.0)
            near = -np.expm1(loss) + np.maximum(paid * every[3] - every[2], 0.0)
        runs = sliding_window_view(np.where(loss < 0, near, deltas), m + 1)
        pick = np.zeros(last + 1, dtype=np.int64)
        for first in range(0, last + 1, max(1, _AT_ONCE // m)):
            at = np.arange(first, min(last + 1, first + max(1, _AT_ONCE // m)))
            sums = more * runs[at][:, ::-1] + less * runs[at + m][:, ::-1]
            pick[at] = sums.argmax(axis=1)  # any t serves
        low = np.arange(last + 1) - pick + m
        p, rest_p = (more[pick] * x[low] + less[pick] * x[low + m] for x in (every[0], every[2]))
        q, rest_q = (
            more_q[pick] * x[low] + less_q[pick] * x[low + m] for x in (every[1], every[3])
        )
    return p, q


# -----------------------------------------------------------------------------
# The losses of report noisy max: Gumbel, Laplace and exponential noise.
#
# Noise of scale b is added to each of finitely many scores, and the largest one's index alone is
# reported. Neighbours move each score by at most Delta; *monotone* scores move all up, or all down.
#
# Proof of the pure epsilon, for the three noises. Hold the noise of all others fixed: candidate r
# wins when its noise exceeds ``T = max_{j != r} (q_j + noise_j) - q_r``. Neighbours move T by at
# most 2 Delta, by at most Delta where scores are monotone. The noise's hazard, its density over
# the probability of more, is at most 1/b (Laplace: 1/b above 0, less below; exponential: 1/b above
# 0; Gumbel: ``u/(b (e^u - 1))`` with ``u = e^{-x/b}``). So the probability of more than T changes
# by a factor of at most ``e^{2 Delta/b}``, or ``e^{Delta/b}``, and so does its mean over the
# others' noise.
#
# Gumbel noise is more: the answer has the law of the exponential mechanism, whose log-ratios have
# bounded range. With the other two noises the ratios may range over more than epsilon.


def report_noisy_max(
    scale: float, sensitivity: float = 1.0, *, noise: str = "gumbel", monotone: bool = False
) -> PrivacyLoss:
    """Return the loss of reporting the index of the largest noisy score.

    Parameters
    ----------
    scale
        Of the noise: Gumbel with distribution function ``exp(-e^{-x/scale})``, Laplace with
        density ``e^{-|x|/scale}/(2 scale)``, exponential with ``e^{-x/scale}/scale``, x >= 0.
    sensitivity
        The most that one score moves between neighbours.
    noise
        ``"gumbel"``, ``"laplace"`` or ``"exponential"``.
    monotone
        Whether all scores of neighbours move the same way, such as counts under add/remove.

    Examples
    --------
    >>> report_noisy_max(2.0)
    GumbelNoisyMax(epsilon=1.0)
    >>> report_noisy_max(2.0, noise="laplace", monotone=True)
    LaplaceNoisyMax(epsilon=0.5)
    """
    noise_scale, largest_change = positive("scale", scale), nonnegative("sensitivity", sensitivity)
    if noise not in _LOSSES:
        raise DomainError(f"noise must be one of {', '.join(_LOSSES)}, got {noise!r}")
    if not isinstance(monotone, bool):
        raise DomainError(f"monotone must be True or False, got {monotone!r}")
    # the threshold T moves by at most Delta or 2 Delta (the proof above)
    steps = 1 if monotone else 2
    return _LOSSES[noise](rounded_up(steps * Fraction(largest_change) / Fraction(noise_scale)))


@frozen
class GumbelNoisyMax(BoundedRange):
    """Report noisy max with Gumbel noise of scale b: ``epsilon = 2 Delta/b``; monotone, Delta/b.

    The law is that of the exponential mechanism, ``P(r)`` proportional to ``e^{q_r/b}``.

    References
    ----------
    Durfee and Rogers 2019, Lemma 4.2 (Gumbel noise); see `BoundedRange` for the loss.

    Examples
    --------
    >>> GumbelNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = (
        "report noisy max, Gumbel noise, as an exponential mechanism: "
        "Durfee & Rogers 2019, Lemma 4.2; Dong, Durfee & Rogers 2020"
    )


@frozen
class LaplaceNoisyMax(PureBound):
    """Report noisy max with Laplace noise of scale b: ``epsilon = 2 Delta/b``; monotone, Delta/b.

    References
    ----------
    Dwork and Roth 2014, Claim 3.9 (counts, which are monotone); the proof for all scores is
    above, at the head of this module.

    Examples
    --------
    >>> LaplaceNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "report noisy max, Laplace noise: Dwork & Roth 2014, Claim 3.9"


@frozen
class ExponentialNoisyMax(PureBound):
    """Report noisy max with exponential noise of scale b: ``epsilon = 2 Delta/b``, or Delta/b.

    The law is that of permute-and-flip with c = 1/b (`PermuteAndFlip`).

    References
    ----------
    McKenna and Sheldon 2020, Thm 1; Ding, Kifer, Saghaian, Steinke, Wang, Xiao and Zhang 2021.

    Examples
    --------
    >>> ExponentialNoisyMax(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = (
        "report noisy max, exponential noise: McKenna & Sheldon 2020, Thm 1; Ding et al. 2021"
    )


_LOSSES: dict[str, type[GumbelNoisyMax] | type[LaplaceNoisyMax] | type[ExponentialNoisyMax]] = {
    "gumbel": GumbelNoisyMax,
    "laplace": LaplaceNoisyMax,
    "exponential": ExponentialNoisyMax,
}


# -----------------------------------------------------------------------------
# The loss of permute-and-flip: a pure epsilon, and no bounded range.


@frozen
class PermuteAndFlip(PureBound):
    """Candidates in random order; each is taken with probability ``e^{c (q - max q)}``.

    With scores that move by at most Delta, ``epsilon = 2 c Delta``; ``c Delta`` where all of the
    scores move the same way (monotone). It is report noisy max with exponential noise of scale
    1/c, whose proof is at the head of that section.

    It has no bounded range of epsilon: of two equal scores that move apart by epsilon/c, one is
    taken with probability ``e^-eps / 2`` instead of 1/2, the other with ``1 - e^-eps / 2``, so
    that the log-ratios lie ``eps + log(2 - e^-eps)`` apart. What is known of it is the pure
    epsilon, and the accountants bound it by the worst pair of that.

    Parameters
    ----------
    epsilon
        Non-negative, in nats.

    References
    ----------
    McKenna and Sheldon 2020, Thm 1 (privacy); Ding, Kifer, Saghaian, Steinke, Wang, Xiao and
    Zhang 2021 (as report noisy max).

    Examples
    --------
    >>> PermuteAndFlip(epsilon=1.0).pure()
    1.0
    """

    theorem: ClassVar[str] = "permute-and-flip: McKenna & Sheldon 2020 (pure DP)"


# -----------------------------------------------------------------------------
# Private selection: the best of a random number of runs of one mechanism.
#
# K runs, K independent of everything with generating function ``f(x) = E x^K``; the best output is
# released, ties broken at random. Let q be a run's output law, and ``u(y)`` the chance that a run
# is no better than y; then the selected output has the density ``q(y) f'(u(y))``, and
#
# ``E (selected density)^a (other's)^{1-a} <= e^{(a-1) D_a(q, q')} sup f'(u)^a f'(v)^{1-a}``,
#
# where u, v are the two probabilities of one event.
#
# Truncated negative binomial, ``f'(x) = E K (gamma / (1 - (1 - gamma) x))^{1 + eta}``: with
# ``s = 1 - (1 - gamma) u`` and t likewise of v, themselves the probabilities of a post-processed
# event and at least gamma, ``f'(u)^a f'(v)^{1-a} = E K ((t/s)^{a-1} gamma/s)^{1+eta}``. Any order b
# gives ``t <= e^{(1 - 1/b) D_b} s^{1 - 1/b}``, so
# ``t/s <= e^{(1 - 1/b) D_b} gamma^{-1/b}``, and
#
# ``D'_a <= D_a + (1 + eta) ((1 - 1/b) D_b + log(1/gamma)/b) + log(E K)/(a - 1)``
#
# (Papernot and Steinke 2022, Thm 2). A pure run has ``t/s <= e^eps``, hence ``(2 + eta) eps``.
#
# Poisson, ``f'(x) = mu e^{mu (x - 1)}``:
# ``f'(u)^a f'(v)^{1-a} = mu e^{mu (a-1) ((1-v) - a/(a-1) (1-u))}``, at most
# ``mu e^{mu (a-1) delta}`` with the run's delta at ``eps = log(a/(a-1))`` (their Thm 6). No run
# at all has probability ``e^-mu`` on both sides, which their theorem leaves out and which decides
# where mu is small; it is added here. A pure run gives ``eps + mu delta(0)``.
#
# Where a run fails with probability d, all of them hold with probability f(1 - d), on both sides,
# and given that K has the same family's law with fewer runs: the bounds hold with the parameters
# given, after a failure of ``1 - f(1 - d) <= d E K``.


_ORDERS = 1 + np.geomspace(1e-3, 1e6, 241)
"""Where the other order b, and higher orders that bound a lower one, are looked for."""


def _base(value: PrivacyLoss) -> PrivacyLoss:
    if not isinstance(value, PrivacyLoss):
        raise DomainError(f"private selection needs the loss of one run, got {value!r}")
    renyi_divergence(value, np.array([2.0]))  # refuses here a loss that has no curve
    return value


def _mean(value: float) -> float:
    return positive("PoissonSelection.mean", value)


@frozen(slots=False, cache_hash=True)
class _Selection(Curved):
    """What both families share: a delta floor, a curve, and all that follows from them."""

    base: PrivacyLoss = field(converter=_base)

    def runs(self) -> float:
        """Return the expected number of runs, rounded up."""
        raise NotImplementedError

    def delta_floor(self) -> float:
        """Return the run's delta floor times the expected number of runs."""
        # a union bound over the runs: 1 - f(1 - d) <= d E K
        delta_floor = self.base.delta_floor()
        return min(1.0, up(delta_floor * self.runs(), 4)) if delta_floor else 0.0

    def renyi(self, orders: Array) -> Array:
        """Return the theorem's bound at the order or the best of a grid of higher orders."""
        wanted = np.asarray(orders, dtype=np.float64)
        # divergences rise with the order: a bound at a higher order holds at a lower one
        curve = lowered(self._bound, wanted, _ORDERS)
        eps = self.pure()
        return curve if eps is None else np.minimum(curve, pure_to_renyi(eps, wanted))

    def _bound(self, orders: Array) -> Array:
        """Return the theorem's bound at each order."""
        raise NotImplementedError

    def grouped(self, size: int) -> Self:
        """Return the selection among runs of the grouped loss."""
        return evolve(self, base=self.base.grouped(size))


@frozen(eq=False)
class _GaussianRuns:
    r"""The delta of the best of K runs that are mu-GDP, for every score (own proof).

    Let f be the generating function of K, and s(y) the chance that a run on D is better than y,
    ties broken at random, s'(y) that on D'. The best of the runs has the density ``A = p f'(1 -
    s)``, on D', ``B = q f'(1 - s')``. Being better than y is an event, so ``s' <= k(s)``, ``k(s) =
    Phi(Phi^-1(s) + mu)``; and f' rises. So

    ``(A - e^eps B)_+ <= p h(e^eps q / p)``, ``h(t) = sup_s (f'(1 - s) - t f'(1 - k(s)))_+``.

    h is convex, so the sum of the right side over all outcomes is an f-divergence, and at most that
    of the two normal laws, of which the runs are a function: ``delta <= E h(e^{eps - L})``, L
    normal of mean ``mu^2 / 2`` and deviation mu. Here ``f'(1 - s) = E K (gamma / (gamma + (1 -
    gamma) s))^{1 + eta}``. A score that is known attains epsilon to within 1% at delta 1e-6.

    h is bounded on a grid of s, cell by cell, and is taken as a step function of ``eps - L``, of
    which it falls: at ``ends``, which fall, it rises by ``rises``.

    Parameters
    ----------
    mu
        Of one run.
    ends, rises
        Shape (n,).
    """

    mu: float
    ends: Array
    rises: Array

    @classmethod
    def of(cls, mu: float, shape: float, stopping: float, runs: float) -> _GaussianRuns | None:
        """Return the bound of a truncated negative binomial number of runs; None beyond floats."""
        z = np.linspace(-9.0, 9.0, 2**14)

        def slope(s: Array) -> Array:  # f'(1 - s)
            return np.asarray(runs * (stopping / (stopping + (1 - stopping) * s)) ** (1 + shape))

        # of the cell from one s to the next, with 0 and 1 at the ends: f' at its lower end, and at
        # k of its upper one; 1e-12 is more than their rounding
        high = slope(np.append(0.0, special.ndtr(z))) * (1 + 1e-12)
        low = slope(np.append(special.ndtr(z + mu), 1.0)) * (1 - 1e-12)
        # beyond this eps - L, h is 0
        with np.errstate(all="ignore"):
            first = float(np.log(high / low).max()) + 1e-9
        if not (first < 300 and runs < 1e100):
            return None
        ends: Array = first - np.arange(0.0, 16 * 512) * (mu / 512)
        # the largest high - t low at each t: of lines, on the hull of the points (low, high)
        hull_low, hull_high = _hull(low[::-1], high[::-1])
        with np.errstate(over="ignore"):
            t = np.exp(ends[1:])
        slopes = np.diff(hull_high) / np.diff(hull_low)  # fall
        at = np.searchsorted(-slopes, -t, side="right")
        heights = np.maximum(hull_high[at] - t * hull_low[at], 0.0) * (1 + 1e-12) + 1e-12 * runs
        heights = np.append(0.0, np.maximum.accumulate(np.minimum(heights, runs)))
        # below the last end h is at most f'(1)
        return cls(mu, ends, np.append(np.diff(heights), max(runs - heights[-1], 0.0)))

    def delta(self, epsilon: float) -> float:
        """Return a bound of delta at epsilon."""
        beyond = special.ndtr((self.ends + self.mu**2 / 2 - epsilon) / self.mu)
        # what is too small for a float is not 0: at no epsilon is there no delta at all
        return min(1.0, float(self.rises @ beyond) * (1 + 1e-9) + 1e-300)


def _hull(x: Array, y: Array) -> tuple[Array, Array]:
    """Return the upper hull of points whose x do not fall, from the left to the highest one."""
    kept: list[tuple[float, float]] = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if kept and a <= kept[-1][0]:
            if b <= kept[-1][1]:
                continue
            kept.pop()
        while len(kept) > 1 and (kept[-1][1] - kept[-2][1]) * (a - kept[-1][0]) <= (
            b - kept[-1][1]
        ) * (kept[-1][0] - kept[-2][0]):
            kept.pop()
        kept.append((a, b))
    xs, ys = np.array(kept).T
    return xs, ys


@frozen(slots=False, cache_hash=True)
class PrivateSelection(_Selection):
    """The best of K runs, K truncated negative binomial: geometric, logarithmic and between.

    ``P(K = k)`` is proportional to ``(1 - gamma)^k (eta)_k / k!`` for k >= 1; for eta = 0 to
    ``(1 - gamma)^k / k``. The neighbour relation is the base's.

    Parameters
    ----------
    base
        The loss of one run, everything included that the run releases and is compared by.
    shape
        eta, above -1: 1 for a geometric K, 0 for a logarithmic one.
    stopping
        gamma, in (0, 1): for a geometric K the chance to stop after each run.

    References
    ----------
    Liu and Talwar 2019, Thm 3.2 (geometric, 3 epsilon); Papernot and Steinke 2022, Thm 2. Of runs
    that are Gaussian DP also the delta of `_GaussianRuns`, with its proof.

    Examples
    --------
    >>> from accountants.losses.pure import Pure
    >>> selection = PrivateSelection(Pure(epsilon=0.5), shape=1.0, stopping=0.1)
    >>> round(selection.pure(), 9), round(selection.runs(), 9)
    (1.5, 10.0)
    """

    theorem: ClassVar[str] = (
        "private selection: Liu & Talwar 2019, Thm 3.2; Papernot & Steinke 2022, Thm 2"
    )

    shape: float = field(converter=stopping_shape)
    stopping: float = field(converter=stopping_rate)

    def runs(self) -> float:
        """Return ``eta (1 - gamma) / (gamma (1 - gamma^eta))``, its limit at eta = 0."""
        return expected_runs(self.shape, self.stopping)

    def pure(self) -> float | None:
        """Return ``(2 + eta)`` times the run's."""
        eps = self.base.pure()
        return None if eps is None else up((2 + self.shape) * eps, 4)

    def _bound(self, orders: Array) -> Array:
        curve = renyi_divergence(self.base, orders)
        # Papernot and Steinke 2022, Thm 2
        return up(curve + self._fixed + math.log(self.runs()) / (orders - 1), 8)

    @cached_property
    def _fixed(self) -> float:
        """Return ``(1 + eta)`` times the least over b; the limit b = infinity where it is pure."""
        curve = renyi_divergence(self.base, _ORDERS)
        # (1 - 1/b) D_b + log(1/gamma) / b, for each b of the grid: all of them are bounds
        costs = up((1 - 1 / _ORDERS) * curve, 4) + up(-math.log(self.stopping) / _ORDERS, 4)
        eps = self.base.pure()
        # any order b bounds t/s; a pure run bounds it by e^eps, the limit of b
        least = min(float(costs.min()), math.inf if eps is None else eps)
        return up((1 + self.shape) * least, 8)

    def _promised(self, epsilon: float) -> float | None:
        """Return the least of the pair's bound and, of Gaussian runs, `_GaussianRuns`."""
        upper = super()._promised(epsilon)
        if self._gaussian is None:
            return upper
        found = self._gaussian.delta(epsilon)
        return found if upper is None else min(upper, found)

    @cached_property
    def _gaussian(self) -> _GaussianRuns | None:
        mu = self.base.mu()
        if mu is None or not 1e-4 <= mu <= 30:
            return None
        return _GaussianRuns.of(mu, self.shape, self.stopping, self.runs())

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the base, for the same law of K."""
        return (
            isinstance(other, PrivateSelection)
            and (self.shape, self.stopping) == (other.shape, other.stopping)
            and self.base.dominates(other.base)
        )


@frozen(slots=False, cache_hash=True)
class PoissonSelection(_Selection):
    """The best of K runs, K Poisson; nothing is released where K = 0.

    The neighbour relation is the base's.

    Parameters
    ----------
    base
        The loss of one run, everything included that the run releases and is compared by.
    mean
        mu, positive: the expected number of runs.

    References
    ----------
    Papernot and Steinke 2022, Thm 6, with the outcome of no run added.

    Examples
    --------
    >>> from accountants.losses.gaussian import Gaussian
    >>> selection = PoissonSelection(Gaussian(mu=0.1), mean=10.0)
    >>> round(float(selection.renyi(np.array([8.0]))[0]), 2)
    0.38
    """

    theorem: ClassVar[str] = "private selection, Poisson: Papernot & Steinke 2022, Thm 6"

    mean: float = field(converter=_mean)

    def runs(self) -> float:
        """Return the mean."""
        return self.mean

    def pure(self) -> float | None:
        """Return ``eps + mu delta(0)`` of a pure run."""
        eps = self.base.pure()
        if eps is None:
            return None
        return up(eps + up(self.mean * float(self._deltas(np.array([math.inf]))[0])), 4)

    def _bound(self, orders: Array) -> Array:
        c = orders - 1
        deltas = self._deltas(orders)
        with np.errstate(over="ignore", invalid="ignore"):
            # (a - 1) (D_a + mu delta), Thm 6
            exponent = up(c * up(renyi_divergence(self.base, orders) + self.mean * deltas), 8)
            # log(mu e^x + e^-mu), at least 0
            logs = np.logaddexp(math.log(self.mean) + exponent, -self.mean)
            slack = 16 * UNIT * (2 + exponent + abs(math.log(self.mean)) + self.mean)
            bound = up(np.maximum(logs + slack, 0.0) / c, 8)
        return np.where(np.isnan(bound), np.inf, bound)

    def _deltas(self, orders: Array) -> Array:
        """Return the run's delta at ``log(a/(a-1))``, without its delta floor where known."""
        # log(a/(a-1)) rounded down: delta may only be too large
        epsilons = np.where(np.isinf(orders), 0.0, -np.log1p(-1 / orders) * (1 - 8 * UNIT))
        logs, _ = log_deltas(lambda some: renyi_divergence(self.base, some), epsilons)
        deltas = np.exp(logs) * (1 + 4 * UNIT * (1 + np.abs(logs))) + 1e-320
        pair = self.base.pair()
        if pair is not None:
            both = [side.profile(epsilons)[1] for side in (pair, pair.reversed())]
            # of both directions, since either may be the run's
            deltas = np.minimum(deltas, np.maximum(*both))
        eps = self.base.pure()
        # a pure run's delta is 0 from its epsilon on
        if eps is not None:
            deltas = np.where(epsilons >= eps, 0.0, deltas)
        return np.minimum(deltas, 1.0)

    def dominates(self, other: PrivacyLoss) -> bool:
        """Order by the base, for the same mean."""
        return (
            isinstance(other, PoissonSelection)
            and self.mean == other.mean
            and self.base.dominates(other.base)
        )
