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

from accountants import PrivacyLoss, Pure
from accountants.numerics import Array
from adaptive_dp.graph.mechanism import Choice, LocalSensitivity
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.mechanisms.smooth_sensitivity import (
    _ApproximateInstanceMechanism,
    charged_epsilon,
    fine_uniform,
    grid_step,
    laplace_on_grid,
    noise_epsilon,
    public_parameter,
)
from adaptive_dp.noise.stream import Stream

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
    Noise: `two_sided_geometric`, exact integers, for the test; `laplace_on_grid` for the value: the
    exact sum, rounded to a grid of the declared bounds.

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
        "two-sided geometric on integers; continuous Laplace noise, rounded exactly to a grid of "
        "the bounds"
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
        return laplace_on_grid(value, self.bound * (1 + 1e-12) / half, stream)


class ReleasedSensitivity(_ApproximateInstanceMechanism):
    r"""Add noise in proportion to a private upper bound of the local sensitivity.

    Let L be a bound of the local sensitivity A_0, and let g(L), for ``g = log`` or ``g(L) = L``,
    move by at most ``slope`` a step. On the levels ``l = ceil(g(L) / slope)``, which move by at
    most 1, the bound is ``B = g^{-1}(slope (l + N + T))``, N with probabilities proportional to
    ``e^{-e_1 |k|}``; it is not released. Released is ``f(x) + Lap(B / e_2)``.

    Privacy: for one step,

    * pure epsilon, if g is the logarithm and ``slope`` is below nine tenths of epsilon: e_1 is the
      one with the least noise, and ``e^{slope T} / e_2`` the least at which no output's log-ratio
      exceeds epsilon (`released_law`, which has the theorem). No delta is spent.
    * (epsilon, delta), else, or where a delta takes less noise; ``epsilon = e_1 + e_2``. ``B >=
      L(x) >= |f(x) - f(x')|`` unless ``N < -T``. So for an event E, ``P_x(E) <= P_x(E, B >= |f -
      f'|) + delta <= e^{e_1 + e_2} P_{x'}(E) + delta``: e_1 for B, and e_2 for Laplace noise of
      that scale. Where g is the logarithm, T is the least at which delta is not exceeded by
      `missed_delta` (a bound that is missed by little costs little), and the split of epsilon the
      one with the least noise (`released_split`); else T is the least with ``P(N < -T) <= delta``,
      and both parts are halves.

    That g(L) moves so little is not taken on trust: L is ``max_k e^{-slope k} A_k`` for the
    logarithm, ``max_k A_k - slope k`` else. Both are at least A_0, and are A_0 itself where it
    moves no more than that.

    Parameters
    ----------
    epsilon
        In nats, for one changed row: for the bound and the noise together.
    delta
        For one changed row, from 1e-60 to below 1; spent only where the above says so.
    slope
        By how much log A_0 moves in one step (or A_0, in units of the value).
    logarithmic
        Whether ``slope`` is of the logarithm.

    Notes
    -----
    Noise: `two_sided_geometric`, exact integers, for the bound; `laplace_on_grid` for the value:
    the exact sum, rounded to a grid of the declared bounds.

    References
    ----------
    Dwork and Lei 2009 (the scale first); Karwa and Vadhan 2018 (on a logarithmic scale); the
    proofs are as above and at `released_law`.

    See Also
    --------
    SmoothStudent : a pure epsilon without a slope that must be known.

    Examples
    --------
    >>> ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=0.1).loss(distance=1)
    Pure(epsilon=1.0)
    >>> ReleasedSensitivity(epsilon=1.0, delta=1e-6, slope=2.0).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    theorem: ClassVar[str] = (
        "private bound of the local sensitivity: Dwork & Lei 2009; exact loss of its Laplace "
        "mixture: proven in adaptive_dp.mechanisms.propose_test_release"
    )
    sampler: ClassVar[str] = (
        "two-sided geometric on integers; continuous Laplace noise, rounded exactly to a grid of "
        "the bounds"
    )

    slope: float = public_parameter("slope")
    logarithmic: bool = attrs.field(
        default=True, validator=checked(lambda v: isinstance(v, bool), "True or False")
    )

    def row_loss(self) -> PrivacyLoss:
        """Return the loss of one changed row: pure where the exact law is known to be."""
        return super().row_loss() if self._law() is None else Pure(charged_epsilon(self.epsilon))

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise on a grid inside its bounds, shape ()."""
        epsilon = noise_epsilon(self.epsilon)
        law = self._law()
        if law is not None:
            first, shift, slope = law
            scale = self._level_scale(value, slope, two_sided_geometric(first, stream)) / shift
        else:
            if self.logarithmic:
                first, second, threshold = released_split(epsilon, self.delta, self.slope)
            else:
                first = second = epsilon / 2
                # B is too small only where N < -T, of probability at most delta
                threshold = distance_threshold(first, self.delta)
            # N + T, in levels
            offset = two_sided_geometric(first, stream) + threshold
            scale = self.sensitivity_bound(value, offset) / second
        return laplace_on_grid(value, scale, stream)

    def _law(self) -> tuple[float, float, float] | None:
        """Return `released_law` where it has less noise than a delta buys; None elsewhere."""
        epsilon = noise_epsilon(self.epsilon)
        law = released_law(epsilon, self.slope) if self.logarithmic else None
        if law is None:
            return None
        first, second, threshold = released_split(epsilon, self.delta, self.slope)
        by_delta = math.exp(min(self.slope * threshold, 700.0)) / second
        first_law, shift, slope = law
        # by the mean size of the noise, all of it public
        less = mean_stretch(first_law, slope) / shift <= mean_stretch(first, self.slope) * by_delta
        return law if less else None

    def _level_scale(self, value: LocalSensitivity, slope: float, noise: int) -> float:
        """Return ``e^{slope (l + N)}`` in units of the grid's step, private, for `released_law`.

        Not bounded from below: the levels' law is as in the theorem, down to where the noise's
        digits end (`two_sided_geometric`), which is e^-380 where slope is below e_1.
        """
        least = grid_step(value.lower, value.upper)
        spacing = slope + LEVEL_ROUNDING
        level = math.ceil(math.log(value.smooth(slope, least) / least) / spacing)
        return least * math.exp(min(spacing * (level + noise), 700.0)) * (1 + 1e-9)

    def sensitivity_bound(self, value: LocalSensitivity, offset: int) -> float:
        """Return B at ``offset = N + T``; private. At least the grid's step.

        Levels are a little farther apart than ``slope``, by more than all rounding of L.
        """
        least, width = grid_step(value.lower, value.upper), value.upper - value.lower
        if self.logarithmic:
            # a step of the data moves the level by at most 1, rounding included
            spacing = self.slope + LEVEL_ROUNDING
            # levels in log(L / least), which is not negative as L is at least `least`
            level = math.ceil(math.log(value.smooth(self.slope, least) / least) / spacing)
            # at least 0, so that B is at least the grid's step
            # beyond e^700 the exponential would overflow
            # 1e-9 rounds B up
            return least * math.exp(min(max(spacing * (level + offset), 0.0), 700.0)) * (1 + 1e-9)
        spacing = self.slope + width * 2.0**-40 + least
        level = math.ceil(value.linear(self.slope, least) / spacing)
        return max(least, spacing * (level + offset)) * (1 + 1e-9)


LEVEL_ROUNDING = 1e-11
"""Levels are farther apart than ``slope`` by this much: more than the rounding of log L."""


def mean_stretch(first: float, slope: float) -> float:
    """Return ``E e^{slope N}``, of N with probabilities proportional to ``e^{-first |k|}``."""
    if slope >= first:
        return math.inf
    # (1 - r)^2 / ((1 - r e^slope) (1 - r e^-slope)), r = e^-first
    return math.expm1(-first) ** 2 / (math.expm1(slope - first) * math.expm1(-slope - first))


def _mixture(z: Array, log_mass: Array, rates: Array) -> tuple[Array, Array]:
    """Return ``phi = -log h`` and its slope at z, shape (n,), of `released_law`; see there."""
    with np.errstate(over="ignore"):
        logs = log_mass - np.minimum(z[:, None] * rates, 1e300)
    top = logs.max(axis=1)
    weights = np.exp(logs - top[:, None])
    total = weights.sum(axis=1)
    return -(top + np.log(total)), (weights @ rates) / total


@lru_cache(maxsize=256)
def released_law(epsilon: float, slope: float) -> tuple[float, float, float] | None:
    r"""Return e_1, the shift s, and the distance b of levels of a pure `ReleasedSensitivity`.

    Noise of scale ``e^{b (l + N)} / s`` is epsilon-DP for one step; None where none is found. Let
    ``p(k) = (1 - r)/(1 + r) r^{|k|}`` be the law of N, ``r = e^{-e_1}``, ``e_1 > b``, and
    ``h(z) = sum_k p(k) e^{-bk} exp(-z e^{-bk}) / 2``, ``z >= 0``: the density of the noise, at
    ``|z|``, in units of its scale at ``N = 0``.

    **Theorem.** *Let l be the smaller level of two neighbours, l' the other, which is l or l + 1,
    and t the distance of their values in units of ``e^{b l} / s``: at most s. With ``phi = -log h``
    and ``q = e^{-b}`` the largest log-ratio of their outputs is, where l' = l,
    ``phi(s) - phi(0)``, and else the larger of ``b + phi(q s) - phi(0)`` and
    ``sup_{w >= 0} A(w) + B(w)``, ``A(w) = phi(w + s) - phi(w)``, ``B(w) = phi(w) - phi(q w) - b``.
    A falls and B rises, to e_1.*

    Proof. h is a mixture of exponentials, so its logarithm is convex (Hoelder), and phi concave; it
    rises. Hence ``phi(y) - phi(x) <= phi(y - x) - phi(0)`` for ``0 <= x <= y``, and A falls. The
    outputs at l and l' have the densities ``h(|z|)`` and ``q h(q |z - t|)``. (i) l' = l, without
    q: ``| |z| - |z - t| | <= t``, and z = 0 attains it. (ii) ``log h(|z|) / (q h(q |z - t|))`` is
    at most ``b + phi(q (u + t)) - phi(u)``, ``u = |z|``. Where ``q (u + t) <= u`` that is at most
    b. Elsewhere its derivative in u, ``q phi'(q (u + t)) - phi'(u)``, is at most 0, as phi' falls;
    so u = 0 is the worst. (iii) ``log (q h(q |z - t|)) / h(|z|)`` is ``phi(|z|) - phi(q |z - t|) -
    b``: for a given |z| largest for z > 0, rising in z up to t, and ``A(w) + B(w)`` at ``z = w +
    t`` beyond. All three rise in t. Last, ``e^{B(w)} = q h(q w) / h(w)`` is, with k - 1 for k in
    the sum above, the mean of ``p(k - 1) / p(k)`` under the law of k that has weights ``p(k)
    e^{-bk} exp(-w e^{-bk})``. That ratio is ``e^{-e_1}`` for ``k <= 0`` and ``e^{e_1}`` for
    ``k >= 1``, it rises in k; and the law of k moves up as w grows, by its monotone likelihood
    ratio. So B rises, and is at most e_1. $\square$

    On a grid ``0 = w_0 < w_1 < ...`` the supremum is at most the largest ``A(w_i) + B(w_{i+1})``,
    with e_1 for B beyond the last: an enclosure, not a search. The largest s that it allows is the
    least of the roots in s, found by Newton's method from the left, which stays to the left of the
    root of a concave function.

    So the level's noise and the value's are not added up: where outputs show the level, far out,
    they hardly show the value, and the other way round. (own proof)

    Rounding and truncation: of k, what lies beyond the last is less than e^-50 of h. Sums of
    positive terms, with exponents that are at most some hundreds where terms count, are within
    1e-11, relatively; epsilon is lowered by 1e-9 for them and for the floats of the scale.

    Examples
    --------
    >>> first, shift, _ = released_law(1.0, 0.05)
    >>> round(first, 2), round(shift, 2)  # Laplace noise, of a scale for 1, would have 1
    (0.25, 0.92)
    """
    # a step may be taken for larger than it is: closer levels gain little, and cost much to sum up
    b = max(slope, epsilon / 50, 0.002) + LEVEL_ROUNDING
    if not b < 0.9 * epsilon:
        return None
    shares = [k / 32 for k in range(1, 32)]
    shifts = {e_1: _largest_shift(epsilon, e_1, b, 40) for e_1 in (epsilon * k for k in shares)}
    first = min(shifts, key=lambda e_1: mean_stretch(e_1, b) / max(shifts[e_1], 1e-300))
    shift = _largest_shift(epsilon, first, b, 400)
    # 1e-9 is more than the rounding of the root and of the scale that is divided by it
    return (first, shift * (1 - 1e-8), b - LEVEL_ROUNDING) if shift > 1e-6 else None


def _largest_shift(epsilon: float, e_1: float, b: float, points: int) -> float:
    """Return the largest s of `released_law` that its enclosure allows; 0 if none."""
    target, farthest = epsilon - 1e-9, 1e6
    if e_1 < 1.02 * b:
        return 0.0
    # p(k) falls by e_1 a step: below, by e_1 - b with the rate e^{-bk}, above, by e_1 + b; and at
    # the farthest z the largest term is at log(z) / b
    below = math.ceil(max((60 + e_1 + b) / (e_1 - b), math.log((e_1 + b) / b) / b))
    above = math.ceil(math.log(farthest) / b + 60 / (e_1 + b))
    if below + above > 2**15:
        return 0.0
    k = np.arange(-below, above + 1.0)
    # the noise is drawn for e_1 less `ROUNDING`; rates beyond e^700 have no part in h above 0
    log_mass = -(e_1 - ROUNDING) * np.abs(k) - b * k
    rates = np.exp(np.minimum(-b * k, 700.0))
    w = np.concatenate([[0.0], np.geomspace(1e-9, farthest / 2, points)])
    here, _ = _mixture(w, log_mass, rates)
    stretched, _ = _mixture(math.exp(-b) * w, log_mass, rates)
    steps = here - stretched - b  # B at each point of the grid
    # (i), (ii) and (iii) as: phi at `start + s` is at most `most`; B at the next point of the grid
    start = np.concatenate([[0.0, 0.0], w])
    most = np.concatenate(
        [here[:1] + target, here[:1] + target - b, here + target - np.append(steps[1:], e_1)]
    )
    if (most <= np.append(here[[0, 0]], here)).any():
        return 0.0
    # from the last point of the grid that is not beyond the root; not beyond the farthest z
    shifts = np.maximum(w[np.searchsorted(here, most, side="right") - 1] - start, 0.0)
    for _ in range(6):
        at, slopes = _mixture(start + shifts, log_mass, rates)
        shifts += np.maximum(most - at, 0.0) / (slopes * (1 + 1e-9))
        shifts = np.minimum(shifts, farthest / 2)
    at, _ = _mixture(start + shifts, log_mass, rates)
    shifts[at > most + 1e-10] = 0.0  # by rounding alone
    shifts[1] *= math.exp(b)  # (ii) has q s
    return float(shifts.min())


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
