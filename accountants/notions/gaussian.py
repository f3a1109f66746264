"""Gaussian DP: the pair is no easier to tell apart than N(0, 1) and N(mu, 1).

The profile (Balle and Wang 2018, Thm 8), ``Phi(a) - e^eps Phi(b)`` with
``a = mu/2 - eps/mu`` and ``b = -mu/2 - eps/mu``, cancels badly as printed. Since
``e^eps phi(b) = phi(a)`` it equals ``phi(a) (R(-a) - R(-b))`` with Mills' ratio
``R(x) = (1 - Phi(x)) / phi(x) = sqrt(pi/2) special.erfcx(x / sqrt 2)``, which does not.
"""

from __future__ import annotations

import math
from functools import lru_cache

from accountants import special
from accountants.bounds import Bounds
from accountants.errors import InapplicableError
from accountants.loss import PrivacyLoss
from accountants.notions.pure import pure_epsilon, pure_to_gdp
from accountants.roots import around
from accountants.rounding import UNIT

_SPECIAL = 1e-14
"""Relative error allowed for erfcx and ndtr; the tests hold both to a tenth of it."""

LARGEST_MU = 1e150
"""A mu above this has no finite epsilon: its square would overflow."""


def gdp_mu(loss: PrivacyLoss) -> float:
    """Return mu of a loss, outside of its failure: its own, or from its pure epsilon.

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
    # x = -a and y = -b of the module's docstring
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
    """Return the lower end of `epsilon` alone."""
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
