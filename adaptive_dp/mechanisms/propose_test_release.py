"""Tests of stability: distance to instability, propose-test-release, released sensitivity."""

from __future__ import annotations

import math
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from adaptive_dp.graph.mechanism import Choice, LocalSensitivity, Mechanism, budget_parameter
from adaptive_dp.mechanisms.smooth_sensitivity import (
    charged_epsilon,
    declared_parameter,
    failure_parameter,
    fine_uniform,
    flag,
    laplace,
    on_grid,
    step,
    steps_loss,
    usable,
)
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream

# -----------------------------------------------------------------------------
# Two-sided geometric noise on whole numbers, and the test whether a distance is large.
#
# Distances between data sets are whole numbers, so noise on them can be too: masses proportional
# to ``r^|k|`` with ``r = e^-epsilon`` (Ghosh, Roughgarden and Sundararajan 2009), and
#
#     P(N > T) = r^{T+1} / (1 + r)   for T >= -1.


ROUNDING = 1e-12
"""More than what rounding adds to the log-ratio of two of the noise's masses."""


def integer_noise(epsilon: float, stream: Stream) -> int:
    """Return the difference of two geometric variables, ``P(G >= k) = r^k``.

    The binary digits of G are independent: the i-th is 1 with odds ``r^{2^i}`` to 1. Each is a coin
    of a float probability, drawn exactly (`fine_uniform` is rounded down to floats), and each
    float is within a relative 2^-50 of its probability. Of at most 60 digits and two variables
    that is below `ROUNDING`, for so much less than ``epsilon`` the noise is made. Digits whose
    probability is below e^-190 are 0.
    """
    used = epsilon - ROUNDING
    return _geometric(used, stream) - _geometric(used, stream)


def _geometric(epsilon: float, stream: Stream) -> int:
    total, digit = 0, 0
    while math.ldexp(epsilon, digit) < 190:
        odds = math.exp(-math.ldexp(epsilon, digit))
        total += (fine_uniform(stream) < odds / (1 + odds)) << digit
        digit += 1
    return total


def threshold(epsilon: float, delta: float) -> int:
    """Return the least ``T >= 0`` with ``P(N > T) <= delta``.

    ``T + 1 >= log(1 / (delta (1 + r))) / epsilon``: a little above ``log(1/(2 delta))/epsilon``.
    """
    used = epsilon - ROUNDING
    least = -(math.log(delta * (1 - 1e-11)) + math.log1p(math.exp(-used))) / used
    return max(0, math.ceil(least * (1 + 1e-12)) - 1)


def passes(distance: int, epsilon: float, delta: float, stream: Stream) -> bool:
    """Return whether ``distance + N > T``: at distance 0 with probability at most ``delta``.

    Its laws at distances that differ by 1 are within ``e^epsilon``. Distances far above T count
    as ``T + 100/epsilon``, so that there is no distance at which it cannot fail.
    """
    least = threshold(epsilon, delta)
    near = min(distance, least + math.ceil(100 / epsilon))
    return near + integer_noise(epsilon, stream) > least


# -----------------------------------------------------------------------------
# Releasing a choice as it is where no few changes of the data would change it.


class DistanceToInstability(Mechanism):
    """Release f(x) itself if ``d(x) + N > T``, else nothing: None.

    d(x) is how many steps x is from where a further one may change f; N has masses proportional
    to ``e^{-epsilon |k|}``, and T is the least with ``P(N > T) <= delta``: about
    ``log(1/(2 delta)) / epsilon``.

    (epsilon, delta)-DP for one step: where f(x) = f(x'), d moves by at most 1, and what is released
    is a function of ``d + N``: epsilon. Where f(x) and f(x') differ both d are 0, so that f is
    released with probability at most delta, and with the same one: their laws are within delta.
    The two cases exclude each other, so no sum is paid. (With the threshold ``log(1/epsilon) /
    epsilon``, as is sometimes printed, f is released with probability epsilon/2 at d = 0.)

    Parameters
    ----------
    epsilon, delta
        For one changed row.

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.3 (stability); the discrete noise and the
    constant as above.

    Examples
    --------
    >>> DistanceToInstability(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Choice
    is_selection: ClassVar[bool] = True
    theorem: ClassVar[str] = "Dwork & Roth 2014, sec. 7.3 (distance to instability)"
    sampler: ClassVar[str] = "two-sided geometric on whole numbers, by independent binary digits"

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()

    def release(self, value: Choice, stream: Stream) -> NDArray[np.float64]:
        """Return the choice's index, or NaN."""
        stable = passes(value.distance, usable(self.epsilon), self.delta, stream)
        return np.array(float(value.index) if stable else math.nan)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(charged_epsilon(self.epsilon), self.delta), distance)


# -----------------------------------------------------------------------------
# Propose a bound of the local sensitivity, test it privately, and release with noise for it.


class ProposeTestRelease(Mechanism):
    """Release f(x) + Lap(2 bound / epsilon) if x is far from where A_0 > bound, else NaN.

    The distance d(x) is the least k with ``A_k > bound``, and x passes if ``d + N > T``, N with
    masses proportional to ``e^{-epsilon |k| / 2}`` and T the least with ``P(N > T) <= delta``.

    (epsilon, delta)-DP for one step. Where A_0 is at most ``bound`` at x or at x', f moves by no
    more: epsilon/2 for the test, since d moves by at most 1, and epsilon/2 for what follows. Where
    it is above at both, both d are 0: each passes with probability at most delta, and with the
    same one, so their laws are within delta. The cases exclude each other: neither is a delta
    paid in the first, nor an epsilon in the second. (With ``T = log(1/delta) / epsilon`` for an
    epsilon each, it is ``(2 epsilon, delta / 2)``, not ``(2 epsilon, 2 delta)``.)

    Parameters
    ----------
    epsilon, delta
        For one changed row; half of epsilon is the test's.
    bound
        The proposed bound of the local sensitivity, in units of the value: chosen without
        looking at the data.

    References
    ----------
    Dwork and Lei 2009; Dwork and Roth 2014, section 7.2; the constants as above.

    Examples
    --------
    >>> ProposeTestRelease(epsilon=1.0, delta=1e-6, bound=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = "Dwork & Lei 2009; Dwork & Roth 2014, sec. 7.2 (propose-test-release)"
    sampler: ClassVar[str] = (
        f"two-sided geometric on whole numbers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()
    bound: float = declared_parameter("bound")

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, or NaN."""
        half = usable(self.epsilon) / 2
        if not passes(value.distance_above(self.bound), half, self.delta, stream):
            return np.array(math.nan)
        noisy = value.value + laplace(stream) * (self.bound * (1 + 1e-12) / half)
        return on_grid(noisy, value.lower, value.upper, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(charged_epsilon(self.epsilon), self.delta), distance)


# -----------------------------------------------------------------------------
# Releasing an upper bound of the local sensitivity privately, and noise in proportion to it.


class ReleasedSensitivity(Mechanism):
    r"""Release ``f(x) + Lap(2 B / epsilon)``, B a private upper bound of the local sensitivity.

    Let L be a bound of A_0, and let g(L), for ``g = log`` or ``g(L) = L``, move by at most
    ``slope`` a step. On the levels ``l = ceil(g(L) / slope)``, which move by at most 1,

    ``B = g^{-1}(slope (l + N + T))``,

    N with masses proportional to ``e^{-epsilon |k| / 2}``, T the least with ``P(N < -T) <= delta``.

    (epsilon, delta)-DP for one step: ``B >= L(x) >= |f(x) - f(x')|`` unless ``N < -T``. So for an
    event E, ``P_x(E) <= P_x(E, B >= |f - f'|) + delta <= e^{eps/2 + eps/2} P_{x'}(E) + delta``:
    half for B, which is not released itself, and half for Laplace noise of that scale.

    That g(L) moves so little is not taken on trust: L is ``max_k e^{-slope k} A_k`` for the
    logarithm, ``max_k A_k - slope k`` else. Both are at least A_0, and are A_0 itself where it
    moves no more than that.

    Parameters
    ----------
    epsilon, delta
        For one changed row; half of epsilon is for the bound.
    slope
        By how much log A_0 moves in one step (or A_0, in units of the value).
    logarithmic
        Whether ``slope`` is of the logarithm.

    References
    ----------
    Dwork and Lei 2009 (the scale first); Karwa and Vadhan 2018 (on a logarithmic scale); the
    proof is as above.

    Examples
    --------
    >>> ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.1).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = "private bound of the local sensitivity: Dwork & Lei 2009"
    sampler: ClassVar[str] = (
        f"two-sided geometric on whole numbers; Laplace, {FLOAT_SAMPLER}, rounded to a grid of the "
        "bounds"
    )

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()
    slope: float = declared_parameter("slope")
    logarithmic: bool = attrs.field(default=True, validator=flag)

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        half = usable(self.epsilon) / 2
        moved = integer_noise(half, stream) + threshold(half, self.delta)
        scale = self.bounded(value, moved) / half
        return on_grid(value.value + laplace(stream) * scale, value.lower, value.upper, stream)

    def bounded(self, value: LocalSensitivity, moved: int) -> float:
        """Return B for a noise of ``moved = N + T``; private. At least the grid's step.

        Levels are a little farther apart than ``slope``, by more than all rounding of L.
        """
        least, widest = step(value.lower, value.upper), value.upper - value.lower
        if self.logarithmic:
            apart = self.slope + 1e-11
            level = math.ceil(math.log(value.smooth(self.slope, least) / least) / apart)
            return least * math.exp(min(max(apart * (level + moved), 0.0), 700.0)) * (1 + 1e-9)
        apart = self.slope + widest * 2.0**-40 + least
        level = math.ceil(value.linear(self.slope, least) / apart)
        return max(least, apart * (level + moved)) * (1 + 1e-9)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(charged_epsilon(self.epsilon), self.delta), distance)
