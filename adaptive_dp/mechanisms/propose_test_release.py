"""Private tests of stability: distance to instability, propose-test-release, released sensitivity.

Each mechanism here first looks, with noise, at how stable a number or a choice is at the data, and
then releases it as it is, or with noise in proportion.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.mechanism import Choice, LocalSensitivity
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.mechanisms.smooth_sensitivity import (
    _ApproximateInstanceMechanism,
    fine_uniform,
    grid_step,
    laplace_draw,
    noise_epsilon,
    public_parameter,
    round_to_grid,
)
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream

# -----------------------------------------------------------------------------
# Two-sided geometric noise on integers, and the private test whether a distance is large.
#
# Distances between data sets are integers, so noise N on them can be too: probabilities
# proportional to ``r^|k|`` with ``r = e^-epsilon`` (Ghosh, Roughgarden and Sundararajan 2009), and
#
#     P(N > T) = r^{T+1} / (1 + r)   for T >= -1.


ROUNDING = 1e-12
"""More than what rounding adds to the log-ratio of two of the noise's probabilities."""


def two_sided_geometric(epsilon: float, stream: Stream) -> int:
    """Return N as the difference of two geometric variables, ``P(G >= k) = r^k``.

    The binary digits of G are independent: the i-th is 1 with odds ``r^{2^i}`` to 1. Each is a
    Bernoulli trial whose probability is a float, drawn exactly (`fine_uniform` is rounded down to
    floats), and each float is within a relative 2^-50 of its probability. For at most 60 digits and
    two variables that is below `ROUNDING`, and the noise is made for so much less than ``epsilon``.
    Digits whose probability is below e^-190 are 0.
    """
    # noise for a smaller epsilon: the trials' rounding may cost up to `ROUNDING`
    lowered = epsilon - ROUNDING
    return _geometric(lowered, stream) - _geometric(lowered, stream)


def _geometric(epsilon: float, stream: Stream) -> int:
    """Return G >= 0 with ``P(G >= k) = e^{-epsilon k}``, digit by digit."""
    total, digit = 0, 0
    while math.ldexp(epsilon, digit) < 190:
        # the odds of digit i are r^(2^i), which is e^(-epsilon 2^i)
        odds = math.exp(-math.ldexp(epsilon, digit))
        # a trial of probability odds / (1 + odds), worth 2^i where it succeeds
        total += (fine_uniform(stream) < odds / (1 + odds)) << digit
        digit += 1
    return total


def distance_threshold(epsilon: float, delta: float) -> int:
    """Return the least ``T >= 0`` with ``P(N > T) <= delta``.

    ``T + 1 >= log(1 / (delta (1 + r))) / epsilon``: a little above ``log(1/(2 delta))/epsilon``.
    """
    lowered = epsilon - ROUNDING
    # delta is taken smaller, and the quotient larger, than any rounding: T rounds up
    least = -(math.log(delta * (1 - 1e-11)) + math.log1p(math.exp(-lowered))) / lowered
    # T + 1 is at least the quotient
    return max(0, math.ceil(least * (1 + 1e-12)) - 1)


def is_far(distance: int, epsilon: float, delta: float, stream: Stream) -> bool:
    """Return whether ``distance + N > T``: at distance 0 with probability at most ``delta``.

    Its laws at distances that differ by 1 are within ``e^epsilon``. Distances far above T count
    as ``T + 100/epsilon``, so that there is no distance at which it cannot fail; capping moves no
    two distances apart.
    """
    # T depends on epsilon and delta alone: it is public
    least = distance_threshold(epsilon, delta)
    capped = min(distance, least + math.ceil(100 / epsilon))
    # at distance 0 this is N > T, of probability at most delta
    return capped + two_sided_geometric(epsilon, stream) > least


# -----------------------------------------------------------------------------
# The mechanisms.


class DistanceToInstability(_ApproximateInstanceMechanism):
    """Release a choice f(x) itself where few changes of the data would not change it, else None.

    Released if ``d(x) + N > T``: d(x) is how many steps x is from where a further one may change f;
    N has probabilities proportional to ``e^{-epsilon |k|}``, and T is the least with
    ``P(N > T) <= delta``: about ``log(1/(2 delta)) / epsilon``.

    Privacy: (epsilon, delta) for one step. Where f(x) = f(x'), d moves by at most 1, and what is
    released is a function of ``d + N``: epsilon. Where f(x) and f(x') differ both d are 0, so that
    f is released with probability at most delta, and with the same one: their laws are within
    delta. The two cases exclude each other, so no sum is paid. (With the threshold
    ``log(1/epsilon) / epsilon``, as is sometimes printed, f is released with probability epsilon/2
    at d = 0.)

    Parameters
    ----------
    epsilon
        In nats, for one changed row.
    delta
        For one changed row, from 1e-60 to below 1.

    Notes
    -----
    Noise: `two_sided_geometric`, exact integers.

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.3 (stability); the discrete noise and the
    constant as above.

    See Also
    --------
    ProposeTestRelease : the same test for a number.
    Exponential : a choice by scores that is always made.

    Examples
    --------
    >>> DistanceToInstability(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    input_type: ClassVar[type] = Choice
    is_selection: ClassVar[bool] = True
    theorem: ClassVar[str] = "Dwork & Roth 2014, sec. 7.3 (distance to instability)"
    sampler: ClassVar[str] = "two-sided geometric on integers, by independent binary digits"

    def release(self, value: Choice, stream: Stream) -> NDArray[np.float64]:
        """Return the choice's index, or NaN where the test fails, shape ()."""
        # at most one of epsilon and delta is paid, by the proof of the class
        stable = is_far(value.distance, noise_epsilon(self.epsilon), self.delta, stream)
        # NaN stands for None among released numbers
        return np.array(float(value.index) if stable else math.nan)


class ProposeTestRelease(_ApproximateInstanceMechanism):
    """Add noise for a proposed bound of the local sensitivity, after a private test; else NaN.

    Released is ``f(x) + Lap(2 bound / epsilon)`` if x passes the test: ``d + N > T``, where d(x) is
    the least k whose local sensitivity A_k exceeds ``bound``, N has probabilities proportional to
    ``e^{-epsilon |k| / 2}``, and T is the least with ``P(N > T) <= delta``.

    Privacy: (epsilon, delta) for one step. Where A_0 is at most ``bound`` at x or at x', f moves by
    no more: epsilon/2 for the test, since d moves by at most 1, and epsilon/2 for what follows.
    Where it is above at both, both d are 0: each passes with probability at most delta, and with
    the same one, so their laws are within delta. The cases exclude each other: neither is a delta
    paid in the first, nor an epsilon in the second. (With ``T = log(1/delta) / epsilon`` for an
    epsilon each, it is ``(2 epsilon, delta / 2)``, not ``(2 epsilon, 2 delta)``.)

    Parameters
    ----------
    epsilon
        In nats, for one changed row: half for the test, half for the noise.
    delta
        For one changed row, from 1e-60 to below 1.
    bound
        The proposed bound of the local sensitivity, in units of the value: chosen without
        looking at the data.

    Notes
    -----
    Noise: `two_sided_geometric`, exact integers, for the test; `laplace_draw`, in float64, for the
    value, which is rounded to a grid of the declared bounds (`round_to_grid`).

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.2; the constants as above.

    See Also
    --------
    ReleasedSensitivity : the bound comes from the data, and a number is always released.
    SmoothLaplace : noise in proportion to the smooth sensitivity.

    Examples
    --------
    >>> ProposeTestRelease(epsilon=1.0, delta=1e-6, bound=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    theorem: ClassVar[str] = "Dwork & Lei 2009; Dwork & Roth 2014, sec. 7.2 (propose-test-release)"
    sampler: ClassVar[str] = (
        f"two-sided geometric on integers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    bound: float = public_parameter("bound")

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise on a grid inside its bounds, or NaN; shape ()."""
        # half of epsilon for the test, half for the noise
        half = noise_epsilon(self.epsilon) / 2
        # test first: whether noise for `bound` would suffice is itself private
        if not is_far(value.distance_above(self.bound), half, self.delta, stream):
            return np.array(math.nan)
        # a little more noise than for `bound`: rounding is on the private side
        noisy = value.value + laplace_draw(stream) * (self.bound * (1 + 1e-12) / half)
        # the grid of the declared bounds is public, and rounding to it post-processing
        return round_to_grid(noisy, value.lower, value.upper, stream)


class ReleasedSensitivity(_ApproximateInstanceMechanism):
    r"""Add noise in proportion to a private upper bound of the local sensitivity.

    Released is ``f(x) + Lap(B / e_2)``, ``epsilon = e_1 + e_2``. Let L be a bound of the local
    sensitivity A_0, and let g(L), for ``g = log`` or ``g(L) = L``, move by at most ``slope`` a
    step. On the levels ``l = ceil(g(L) / slope)``, which move by at most 1,

    ``B = g^{-1}(slope (l + N + T))``,

    N with probabilities proportional to ``e^{-e_1 |k|}``. Where g is the logarithm, T is the least
    at which delta is not exceeded by `missed_delta`, and the split of epsilon the one with the
    least noise (`released_split`); else T is the least with ``P(N < -T) <= delta``, and both parts
    are halves.

    Privacy: (epsilon, delta) for one step. ``B >= L(x) >= |f(x) - f(x')|`` unless ``N < -T``. So
    for an event E, ``P_x(E) <= P_x(E, B >= |f - f'|) + delta <= e^{e_1 + e_2} P_{x'}(E) + delta``:
    e_1 for B, which is not released itself, and e_2 for Laplace noise of that scale. A bound that
    is missed by little costs little: that is what `missed_delta` counts.

    That g(L) moves so little is not taken on trust: L is ``max_k e^{-slope k} A_k`` for the
    logarithm, ``max_k A_k - slope k`` else. Both are at least A_0, and are A_0 itself where it
    moves no more than that.

    Parameters
    ----------
    epsilon
        In nats, for one changed row: for the bound and the noise together.
    delta
        For one changed row, from 1e-60 to below 1.
    slope
        By how much log A_0 moves in one step (or A_0, in units of the value).
    logarithmic
        Whether ``slope`` is of the logarithm.

    Notes
    -----
    Noise: `two_sided_geometric`, exact integers, for the bound; `laplace_draw`, in float64, for the
    value, which is rounded to a grid of the declared bounds (`round_to_grid`).

    References
    ----------
    Dwork and Lei 2009 (the scale first); Karwa and Vadhan 2018 (on a logarithmic scale); the
    proof is as above.

    See Also
    --------
    SmoothLaplace : the same promise without a slope that must be known.

    Examples
    --------
    >>> ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    theorem: ClassVar[str] = "private bound of the local sensitivity: Dwork & Lei 2009"
    sampler: ClassVar[str] = (
        f"two-sided geometric on integers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    slope: float = public_parameter("slope")
    logarithmic: bool = attrs.field(
        default=True, validator=checked(lambda v: isinstance(v, bool), "True or False")
    )

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise on a grid inside its bounds, shape ()."""
        epsilon = noise_epsilon(self.epsilon)
        if self.logarithmic:
            first, second, threshold = released_split(epsilon, self.delta, self.slope)
        else:
            first = second = epsilon / 2
            # B is too small only where N < -T, of probability at most delta
            threshold = distance_threshold(first, self.delta)
        # N + T, in levels
        offset = two_sided_geometric(first, stream) + threshold
        scale = self.sensitivity_bound(value, offset) / second
        noisy = value.value + laplace_draw(stream) * scale
        return round_to_grid(noisy, value.lower, value.upper, stream)

    def sensitivity_bound(self, value: LocalSensitivity, offset: int) -> float:
        """Return B at ``offset = N + T``; private. At least the grid's step.

        Levels are a little farther apart than ``slope``, by more than all rounding of L.
        """
        least, width = grid_step(value.lower, value.upper), value.upper - value.lower
        if self.logarithmic:
            # a step of the data moves the level by at most 1, rounding included
            spacing = self.slope + 1e-11
            # levels in log(L / least), which is not negative as L is at least `least`
            level = math.ceil(math.log(value.smooth(self.slope, least) / least) / spacing)
            # at least 0, so that B is at least the grid's step
            # beyond e^700 the exponential would overflow
            # 1e-9 rounds B up
            return least * math.exp(min(max(spacing * (level + offset), 0.0), 700.0)) * (1 + 1e-9)
        spacing = self.slope + width * 2.0**-40 + least
        level = math.ceil(value.linear(self.slope, least) / spacing)
        return max(least, spacing * (level + offset)) * (1 + 1e-9)


def missed_delta(first: float, second: float, slope: float) -> float:
    r"""Return K such that bounds that are missed cost a delta of at most ``K r^T``, r = e^-first.

    Let x and x' be neighbours of levels l and l', ``|l - l'| <= 1``. Given the level ``v = l + N +
    T`` of B, both outputs are Laplace laws of one scale, whose shift, in units of it, is at most
    ``t = second e^{slope j}``, ``j = min(l, l') - v``, since both bounds are at least ``|f - f'|``.
    The log-ratio of v is at most first, either way, and v is not released; so the delta at
    ``first + second`` is at most

    ``sum_v p(v) (1 - e^{(e - t)/2})_+``, ``e = first + second - log p(v)/p'(v) >= second``.

    Where ``j <= 0`` it is 0. For ``j >= 1`` it is largest for ``l' = l + 1``: then N is ``-T - j``,
    of probability ``r^{T + j} (1 - r)/(1 + r)``, and ``e = second``. So

    ``K = (1 - r)/(1 + r) sum_{j >= 1} r^j (1 - e^{second (1 - e^{slope j}) / 2})``.

    Without the second factor it is ``P(N < -T)``, as if a bound that is too small by little cost
    everything. (own proof)
    """
    # noise for a little less epsilon is drawn, and levels are a little farther apart
    r, spacing = math.exp(-(first - ROUNDING)), slope + 1e-11
    last = math.ceil(60 / first)
    j = np.arange(1.0, last + 1)
    with np.errstate(over="ignore"):
        shares = -np.expm1(-second * np.expm1(np.minimum(spacing * j, 700.0)) / 2)
    total = float((r**j * shares).sum()) * (1 - r) / (1 + r)
    # the rest, and the rounding of the sum
    return (total + r ** (last + 1) / (1 + r)) * (1 + 1e-9)


@lru_cache(maxsize=256)
def released_split(epsilon: float, delta: float, slope: float) -> tuple[float, float, int]:
    """Return the parts of epsilon for the bound and for the noise, and T, of `ReleasedSensitivity`.

    Of 32 splits the one with the least noise at ``N = 0``, ``slope T - log e_2``. All of it is
    public.

    Examples
    --------
    >>> first, second, threshold = released_split(1.0, 1e-7, 0.05)
    >>> round(first, 3), threshold, distance_threshold(0.5, 1e-7)  # two halves, as if all is lost
    (0.531, 22, 31)
    """
    best: tuple[float, float, float, int] | None = None
    for k in range(1, 32):
        first = epsilon * k / 32
        second = epsilon - first
        threshold = distance_threshold(first, delta)
        if 60 / first <= 2**17:  # else the sum of `missed_delta` is long
            # r^T K <= delta; T rounds up
            missed = math.log(missed_delta(first, second, slope) / (delta * (1 - 1e-9)))
            least = max(0, math.ceil(missed / (first - ROUNDING) * (1 + 1e-12)))
            threshold = min(threshold, least)
        noise = slope * threshold - math.log(second)
        if best is None or noise < best[0]:
            best = noise, first, second, threshold
    assert best is not None
    return best[1:]
