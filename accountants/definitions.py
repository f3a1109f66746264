"""Definitions of privacy, and the proven conversions between them.

One section for each: its definition, how a loss's own functional or a conversion gives it, and how
it becomes an (epsilon, delta).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from accountants import special
from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.numerics import UNIT, Array, Bounds, around, by_class, crossing, up

# -----------------------------------------------------------------------------
# Pure DP: the log-likelihood ratio of neighbours is at most epsilon, everywhere.
#
# Every pair of an epsilon-DP mechanism is a post-processing of binary randomized response
# RR(epsilon) (Kairouz, Oh and Viswanath 2015), so whatever holds for RR holds for it. With
# ``w = alpha - 1/2``, RR's moments are ``E_Q (P/Q)^alpha = cosh(w eps) / cosh(eps / 2)``.


def pure_epsilon(loss: PrivacyLoss) -> float:
    """Return the loss's pure epsilon beside its delta floor.

    Raises
    ------
    InapplicableError
        If the loss has none (the Gaussian's likelihood ratio is unbounded).
    """
    value = loss.pure()
    if value is None:
        raise InapplicableError(f"{type(loss).__name__} has no pure epsilon")
    return value


def pure_to_renyi(eps: float | Array, orders: Array) -> Array:
    """Return RR's Renyi divergence ``log(cosh(w eps)/cosh(eps/2)) / (alpha - 1)``.

    At order infinity it is eps itself.

    Both log cosh are ``x - log 2 + log1p(e^{-2x})``; for small ``w eps`` the difference is
    taken by ``cosh a - cosh b = 2 sinh((a+b)/2) sinh((a-b)/2)``, which does not cancel.
    """
    half = eps / 2
    with np.errstate(over="ignore", invalid="ignore"):  # of the branch that is not taken
        far = (orders - 0.5) * eps
        near = 2 * np.sinh(orders * half) * np.sinh((orders - 1) * half) / np.cosh(half)
        small = np.log1p(near)
        large = far - half + np.log1p(np.exp(-2 * far)) - np.log1p(np.exp(-2 * half))
        log_moment = np.where(far < 1, up(small, 32), large + 8 * UNIT * (1 + far))
        # D_alpha <= D_infinity = eps
        curve = np.minimum(up(log_moment / (orders - 1)), eps)
    divergences: Array = np.where(np.isinf(orders), eps, curve)
    return divergences


def pure_to_zcdp(eps: float) -> float:
    """Return ``eps tanh(eps / 2)``: pure epsilon-DP implies zCDP with this rho.

    ``t -> log cosh(sqrt t)`` is concave, its derivative ``tanh(sqrt t) / (2 sqrt t)``
    decreasing; between ``t = (eps/2)^2`` and ``(w eps)^2``, which differ by
    ``alpha (alpha - 1) eps^2``, it rises by at most the tangent:
    ``(alpha - 1) D_alpha <= alpha (alpha - 1) eps tanh(eps/2)``. Equality as alpha -> 1, so it
    is the best; Bun and Steinke 2016, Prop. 3.3 has ``eps^2 / 2``.
    """
    return up(eps * math.tanh(eps / 2), 8) if eps else 0.0


def pure_to_gdp(eps: float) -> float:
    """Return ``2 Phi^-1(e^eps / (1 + e^eps))``: pure epsilon-DP implies GDP with this mu.

    RR's trade-off curve is two chords that meet at ``alpha = beta = 1/(1 + e^eps)``. The curve
    of mu-GDP is convex, passes through that point when ``Phi(-mu/2) = 1/(1 + e^eps)``, and so
    lies below both chords.
    """
    if eps == 0:
        return 0.0
    if eps > 700:
        return math.inf
    # ndtri is accurate to a few units in the last place relative to its argument's error
    return up(-2 * float(special.ndtri(1 / (1 + math.exp(eps)) * (1 - 8 * UNIT))), 64)


# -----------------------------------------------------------------------------
# Zero-concentrated DP: ``D_alpha <= rho alpha`` for every alpha > 1 (Bun and Steinke 2016).


def zcdp_rho(loss: PrivacyLoss) -> float:
    """Return the loss's rho beside its delta floor: its own, or from its mu or pure epsilon.

    Raises
    ------
    InapplicableError
        If the loss has none of them.
    """
    own = loss.rho()
    if own is not None:
        return own
    mu, eps = loss.mu(), loss.pure()
    if mu is not None:
        return up(mu * mu / 2)
    if eps is not None:
        return pure_to_zcdp(eps)
    raise InapplicableError(f"{type(loss).__name__} has no zCDP rho")


# -----------------------------------------------------------------------------
# Gaussian DP: the pair is no easier to tell apart than N(0, 1) and N(mu, 1).
#
# The profile (Balle and Wang 2018, Thm 8), ``Phi(a) - e^eps Phi(b)`` with
# ``a = mu/2 - eps/mu`` and ``b = -mu/2 - eps/mu``, cancels badly as printed. Since
# ``e^eps phi(b) = phi(a)`` it equals ``phi(a) (R(-a) - R(-b))`` with Mills' ratio
# ``R(x) = (1 - Phi(x)) / phi(x) = sqrt(pi/2) special.erfcx(x / sqrt 2)``, which does not.


_SPECIAL = 1e-14
"""Relative error allowed for erfcx and ndtr; the tests hold both to a tenth of it."""

LARGEST_MU = 1e150
"""A mu above this has no finite epsilon: its square would overflow."""


def gdp_mu(loss: PrivacyLoss) -> float:
    """Return mu of a loss, beside its delta floor: its own, or from its pure epsilon.

    Raises
    ------
    InapplicableError
        If the loss has neither.
    """
    value = loss.mu()
    if value is not None:
        return value
    if loss.pure() is None:
        raise InapplicableError(
            f"{type(loss).__name__} has no Gaussian-DP mu, nor a pure epsilon to derive one from"
        )
    return pure_to_gdp(pure_epsilon(loss))


def gdp_log_profile(mu_: float, epsilon: float, side: int) -> float:
    """Return the log of an upper (side 1) or lower (side -1) bound of delta(epsilon).

    The inputs are moved outward by a few units in the last place, which covers the
    rounding of ``eps/mu`` and ``mu/2`` (the profile grows in mu and falls in epsilon).
    """
    mu_ *= 1 + side * 8 * UNIT
    epsilon -= side * 8 * UNIT * abs(epsilon)
    if mu_ <= 0:  # two equal laws
        value = math.log(-math.expm1(epsilon)) if epsilon < 0 else -math.inf
        return min(0.0, value + side * 8 * UNIT * (1 - value)) if epsilon < 0 else value
    # x = -a and y = -b of the section above
    x = epsilon / mu_ - mu_ / 2
    y = epsilon / mu_ + mu_ / 2
    tail = math.sqrt(math.pi / 2) * float(special.erfcx(max(y, 0.0) / math.sqrt(2)))
    if x < 0:
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        first = float(special.ndtr(-x))
        # at negative epsilons, where Mills' ratio may grow without bound: as it is printed
        second = density * tail if y >= 0 else math.exp(epsilon) * float(special.ndtr(-y))
        # Phi(-x) - phi(x) R(y), both terms with their error to the side
        value = first - second + side * _SPECIAL * (first + second)
        return math.log(min(1.0, value)) if value > 0 else -math.inf
    head = math.sqrt(math.pi / 2) * float(special.erfcx(x / math.sqrt(2)))
    # phi(x) (R(x) - R(y)), the difference of Mills' ratios
    gap = head - tail + side * _SPECIAL * (head + tail)
    if gap <= 0:
        return -math.inf
    log_density = -x * x / 2 - math.log(2 * math.pi) / 2
    return log_density + math.log(gap) + side * 8 * UNIT * (1 + x * x)


def gdp_profile(mu_: float, epsilon: float) -> Bounds:
    """Return a bracket of delta(epsilon) for mu-GDP."""
    low, high = gdp_log_profile(mu_, epsilon, -1), gdp_log_profile(mu_, epsilon, 1)
    # among the denormals exp is off by a spacing, whatever its relative error elsewhere
    lower = max(0.0, math.exp(low) * (1 - 4 * UNIT) - 1e-323)
    return Bounds(lower, min(1.0, math.exp(high) * (1 + 4 * UNIT) + 1e-323))


def gdp_epsilon(mu_: float, delta: float) -> Bounds:
    """Return a bracket of the tight epsilon of mu-GDP at ``delta``.

    Parameters
    ----------
    mu_
        Non-negative.
    delta
        In [0, 1]; at 0 a positive mu has no finite epsilon.
    """
    if mu_ == 0:
        return Bounds(0.0, 0.0)
    if delta == 0 or mu_ > LARGEST_MU:
        return Bounds(0.0, math.inf)
    # one root for each bound of the profile, so that the result is a bracket
    return Bounds(_gdp_root(mu_, delta, -1), _gdp_root(mu_, delta, 1))


def gdp_epsilon_floor(mu_: float, delta: float) -> float:
    """Return the lower end of `gdp_epsilon` alone."""
    return _gdp_root(mu_, delta, -1) if 0 < mu_ <= LARGEST_MU and delta > 0 else 0.0


@lru_cache(maxsize=4096)  # accountants, worlds and shares ask for the same
def _gdp_root(mu_: float, delta: float, side: int) -> float:
    """Return where a bound of the profile crosses ``delta``, on its own side of the crossing.

    ``log delta(eps)`` is concave, so Newton's steps from the right fall towards the root;
    they start at ``mu^2/2 + mu sqrt(-2 log delta)``, past it by the Gaussian's tail bound. The
    steps only guess: what is returned has been evaluated.
    """
    target = math.log(delta)
    target -= side * 4 * UNIT * (1 + abs(target))  # the logarithm may round the other way

    def excess(epsilon: float) -> float:
        return gdp_log_profile(mu_, epsilon, side) - target

    if excess(0.0) <= 0:
        return 0.0
    # the tail bound delta(eps) <= Phi(mu/2 - eps/mu) <= e^{-x^2/2} puts this past the root
    high = (mu_ * mu_ / 2 + mu_ * math.sqrt(-2 * target)) * (1 + 1e-9)
    while excess(high) > 0:
        high *= 2
    left, right = around(excess, _gdp_newton(mu_, target, high), 0.0, high)
    return right if side > 0 else left


def _gdp_newton(mu_: float, target: float, epsilon: float) -> float:
    """Return the root of ``log delta(eps) = target``, by ``-d delta / d eps = e^eps Phi(b)``."""
    for _ in range(40):
        value = gdp_log_profile(mu_, epsilon, 1)
        y = epsilon / mu_ + mu_ / 2
        x = epsilon / mu_ - mu_ / 2
        mills = math.sqrt(math.pi / 2) * float(special.erfcx(y / math.sqrt(2)))
        if not math.isfinite(value) or not mills > 0:
            return epsilon
        # -delta' = e^eps Phi(b) = phi(x) R(y), over delta: the slope of log delta
        log_slope = -x * x / 2 - math.log(2 * math.pi) / 2 + math.log(mills) - value
        if not abs(log_slope) < 300:
            return epsilon
        step = (value - target) * math.exp(-log_slope)
        epsilon = max(epsilon / 2, epsilon + step)
        if abs(step) <= 1e-9 * epsilon:  # the next would be its square
            break
    return epsilon


# -----------------------------------------------------------------------------
# Renyi DP: a bound on D_alpha(P || Q) at each real order alpha > 1.
#
# The conversion to (epsilon, delta): for every order, ``delta(eps) = E_P (1 - e^{eps - L})_+`` is
# at most ``max_y (1 - e^{-y}) e^{-(alpha-1) y} E_P e^{(alpha-1)(L-eps)}``, whose maximum is at
# ``y = log(alpha/(alpha-1))``. Solved for eps,
#
# ``eps = D_alpha + log(1 - 1/alpha) - log(alpha delta) / (alpha - 1)``
#
# (Canonne, Kamath and Steinke 2020, Prop. 12; Balle et al. 2020, Thm 21). Any order gives a
# proven bound, so however the best one is searched for, the answer is sound.


Curve = Callable[[Array], Array]
"""Orders in, divergences out; an upper bound, infinite where nothing is known."""

_GRID = np.log(np.geomspace(1e-3, 1e9, 41))
"""Logarithms of alpha - 1 where the search starts."""


def renyi_divergence(loss: PrivacyLoss, orders: Array) -> Array:
    """Return the loss's curve, beside its delta floor, at real orders (shape as ``orders``).

    Its own, or what its mu, its rho or its pure epsilon imply, in this order. Where a formula
    has no finite value, as at order infinity, it is the pure epsilon, or infinite without one.

    Raises
    ------
    InapplicableError
        If the loss has none of them.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # what that leaves is told apart below
        own = loss.renyi(orders)
    if own is not None:
        return _limited(own, loss)
    mu, rho, eps = loss.mu(), loss.rho(), loss.pure()
    if mu is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            return _limited(
                up(orders * mu * mu / 2), loss
            )  # in this order mu * mu cannot underflow
    if rho is not None:
        return _limited(up(orders * rho), loss)
    if eps is not None:
        return pure_to_renyi(eps, orders)
    raise InapplicableError(f"{type(loss).__name__} has no Renyi divergence")


def _limited(curve: Array, loss: PrivacyLoss) -> Array:
    """Return a curve with D_alpha <= D_infinity, the pure epsilon, where it is not finite."""
    unknown = ~np.isfinite(curve)
    if not unknown.any():
        return curve
    eps = loss.pure()
    # D_alpha <= D_infinity, the pure epsilon
    finite: Array = np.where(unknown, math.inf if eps is None else eps, curve)
    return finite


def renyi_total(spends: Sequence[tuple[PrivacyLoss, int]], orders: Array) -> Array:
    """Return the sum of ``times * divergence`` over spends, rounded up.

    Families that know how (`PrivacyLoss.renyi_sum`) add their own losses at once.
    """
    result = np.zeros_like(orders)
    for family, members in by_class(spends).items():
        at_once = family.renyi_sum(members, orders)
        if at_once is not None:
            result = result + at_once
            continue
        for loss, times in members:
            result = result + times * renyi_divergence(loss, orders)
    return up(result, 2 * len(spends) + 2)


def renyi_to_epsilon(divergences: Array, orders: Array, delta: float) -> Array:
    """Return the epsilon that each order proves at ``delta`` (formula above), rounded up."""
    log_delta, log_orders = math.log(delta), np.log(orders)
    # Canonne, Kamath and Steinke 2020, Prop. 12: eps = D + log(1 - 1/a) - log(a delta) / (a - 1)
    slack = (log_delta + log_orders) / (orders - 1)
    correction = np.log1p(-1 / orders)
    # the two logs have opposite signs, so their sum may be far less than their rounding
    sizes = abs(log_delta) + log_orders + 2
    noise = 8 * UNIT * (sizes / (orders - 1) + np.abs(correction))
    return up(divergences) + (correction - slack) + noise


def renyi_epsilon(curve: Curve, delta: float) -> tuple[float, float]:
    """Return the least epsilon that the curve proves at ``delta``, and the order that proves it."""
    if delta == 0:
        return math.inf, math.inf

    def proven(orders: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            return renyi_to_epsilon(curve(orders), orders, delta)

    best, order = _least_over_orders(proven)
    return max(0.0, best), order


def zcdp_epsilon(slope: float, delta: float) -> tuple[float, float]:
    """Return `renyi_epsilon` of the curve ``slope alpha``, whose best order is a root.

    The conversion is least where ``slope x^2 + log(1 + x) = -log delta``, ``x = alpha - 1``: in
    ``log x`` the left side rises and is convex, so Newton's steps from the right fall to the root.
    """
    if delta == 0 or not slope < math.inf:
        return math.inf, math.inf
    height = -math.log(delta)
    x = min(math.sqrt(height / slope) if slope > 0 else math.inf, math.expm1(min(height, 700.0)))
    for _ in range(20):
        x = min(max(x, 1e-6), 1e12)
        miss = slope * x * x + math.log1p(x) - height
        step = miss / (2 * slope * x * x + x / (1 + x))
        x *= math.exp(-max(-1.0, min(step, 1.0)))
        if abs(step) < 1e-9:
            break
    order = 1 + min(max(x, 1e-6), 1e12)
    at = np.array([order])
    # the search only guessed the order: the conversion is evaluated there, and holds at any order
    return max(0.0, float(renyi_to_epsilon(up(at * slope), at, delta)[0])), order


def renyi_log_delta(curve: Curve, epsilon_: float) -> float:
    """Return the log of the least delta that the curve proves at ``epsilon_``."""

    def proven(orders: Array) -> Array:
        with np.errstate(over="ignore"):  # an infinite divergence proves nothing
            # delta <= e^{(a-1)(D - eps)} (1 - 1/a)^{a-1} / a: the same proposition, solved for
            # delta
            exponent = np.maximum((orders - 1) * (up(curve(orders)) - epsilon_), -1e300)
        shape = (orders - 1) * np.log1p(-1 / orders) - np.log(orders)
        noise = 16 * UNIT * (1 + np.abs(exponent) + np.abs(shape))
        return np.asarray(exponent + shape + noise)

    return min(0.0, _least_over_orders(proven)[0])


def _least_over_orders(proven: Callable[[Array], Array]) -> tuple[float, float]:
    """Return about the least value over all orders, and its order.

    A grid finds the valley, a finer one its floor, then parabolas: each has a quarter of the
    points' distance of the one before. Where the floor is no parabola's, but a corner's, the
    values beside the least are still larger: then the gap between them is searched.
    """
    points, evaluated = np.zeros(0), np.zeros(0)
    logs = _GRID
    for zoom in range(6):
        values = proven(1 + np.exp(logs))
        points, evaluated = np.append(points, logs), np.append(evaluated, values)
        middle = min(max(int(np.argmin(values)), 1), len(logs) - 2)
        if zoom == 0:
            logs = np.linspace(logs[middle - 1], logs[middle + 1], 9)
        else:
            step = float(logs[1] - logs[0])
            logs = logs[middle] + step * (
                _parabola_vertex(values[middle - 1 : middle + 2]) + _AROUND
            )
    for _ in range(8):
        order = np.argsort(points, kind="stable")
        at = int(np.argmin(evaluated[order]))
        beside = order[[max(at - 1, 0), min(at + 1, len(order) - 1)]]
        least = float(evaluated[order[at]])
        if not math.isfinite(least) or evaluated[beside].max() - least <= 1e-6 * abs(least):
            break
        left, right = points[beside].tolist()
        logs = np.linspace(left, right, 9)[1:-1]
        points, evaluated = np.append(points, logs), np.append(evaluated, proven(1 + np.exp(logs)))
    best = int(np.argmin(evaluated))
    return float(evaluated[best]), 1 + math.exp(float(points[best]))


_AROUND = np.array([-0.5, -0.25, 0.0, 0.25, 0.5])


def _parabola_vertex(values: Array) -> float:
    """Return where the parabola through values at -1, 0 and 1 is least, at most 1 away."""
    left, middle, right = values.tolist()
    bend = left - 2 * middle + right
    return max(-1.0, min(1.0, (left - right) / (2 * bend))) if 0 < bend < math.inf else 0.0


# -----------------------------------------------------------------------------
# Approximate DP: the pair is (epsilon, delta)-indistinguishable.
#
# A loss that knows its privacy profile delta(epsilon) is approximate DP at every point of
# that curve; the epsilon for a given delta is the root of the profile's upper end.


@lru_cache(maxsize=4096)  # worlds have most losses in common, and a share of delta
def approximate_epsilon(loss: PrivacyLoss, delta: float) -> float:
    """Return an epsilon with ``profile(epsilon).upper <= delta``, to the last bits.

    Raises
    ------
    InapplicableError
        If the loss knows no profile.
    """
    bounds = loss.epsilon_at(delta)
    return (
        bounds.upper if bounds is not None else profile_root(_profile_of(loss), delta, upper=True)
    )


@lru_cache(maxsize=4096)  # each accountant asks for it
def approximate_epsilon_floor(loss: PrivacyLoss, delta: float) -> float:
    """Return a lower bound of the tight epsilon at ``delta``: there the profile exceeds delta."""
    bounds = loss.epsilon_at(delta)
    if bounds is not None:
        return bounds.lower
    try:
        return profile_root(_profile_of(loss), delta, upper=False)
    except InapplicableError:
        return 0.0


def _profile_of(loss: PrivacyLoss) -> Callable[[float], Bounds]:
    def profile(epsilon: float) -> Bounds:
        bounds = loss.profile(epsilon)
        if bounds is None:
            raise InapplicableError(f"{type(loss).__name__} has no privacy profile")
        return bounds

    return profile


_LAST_POWER = 996
"""Of two: the largest epsilon that is tried, 7e299."""


def profile_root(profile: Callable[[float], Bounds], delta: float, *, upper: bool) -> float:
    """Return where a profile's upper or lower end falls to ``delta``, on that end's safe side."""
    target = math.log(delta) if delta > 0 else 0.0
    # the target's own rounding, to the safe side: an upper root needs a smaller delta
    target -= (1 if upper else -1) * 2**-51 * (1 + abs(target))  # the logarithm's own rounding

    def excess(epsilon: float) -> float:
        bounds = profile(epsilon)
        value = bounds.upper if upper else bounds.lower
        if delta == 0:
            return value if value > 0 else -1.0
        return (math.log(value) if value > 0 else -1e6) - target

    if excess(0.0) <= 0:
        return 0.0
    if excess(1.0) <= 0:
        left, right = crossing(excess, 0.0, 1.0)
    else:
        # delta falls in epsilon: rising powers of two until it is below the target; an upper end
        # that never falls to it (the tails of most pairs end at 1e-300) takes few steps
        low, high = 0, 1
        while excess(2.0**high) > 0:
            if high == _LAST_POWER:
                return math.inf if upper else 2.0**high
            low, high = high, min(_LAST_POWER, high + max(1, high // 2))
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if excess(2.0**middle) > 0 else (low, middle)
        left, right = crossing(excess, 2.0**low, 2.0**high)
    # `crossing` has evaluated both ends: on the right delta is at most the target, on the left
    # above
    return right if upper else left
