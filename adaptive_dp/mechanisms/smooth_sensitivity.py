"""Noise in proportion to the smooth sensitivity: Laplace, Student's t, Cauchy, log-normal.

These mechanisms release ``f(x) + S(x)/a Z`` with S a beta-smooth sensitivity of f
(`LocalSensitivity.smooth`; Nissim, Raskhodnikova and Smith 2007, Def. 2.2) and Z a draw of a fixed
law: noise is small where the data are stable, and its scale does not show how stable they are.

The common step of their proofs: neighbours have ``S(x') = e^b S(x)`` with ``|b| <= beta``, and
``|f(x) - f(x')|`` is at most both S(x) and S(x'). So, in units of ``S(x)/a``, the two outputs are
the pair

    Z  against  e^b Z + s,   |b| <= beta,  |s| <= a min(1, e^b),

which is said to be *stretched* by e^b and *shifted* by s. Each mechanism is a law of Z with the
(a, beta) that the loss of this pair allows.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss, Pure, StretchedShift
from accountants.numerics import multiple, up
from adaptive_dp.graph.mechanism import SLACK, LocalSensitivity, Mechanism, budget_parameter
from adaptive_dp.graph.values import POSITIVE, number, positive
from adaptive_dp.mechanisms.additive import checked, is_number
from adaptive_dp.noise.continuous import laplace, nearest
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream

# -----------------------------------------------------------------------------
# Rounding to a grid inside declared bounds, so that low bits tell nothing.
#
# Where the scale of noise depends on the data, so do the numbers that float noise can reach. So
# what is released is rounded to a power of two that the bounds alone determine, clamped to them,
# and with probability 2^-32 is any point of the grid instead: each point can then be released
# whatever the data. All three are post-processing.


UNIFORM_PROBABILITY = 2.0**-32
"""The probability that a uniform point of the grid is released in place of the nearest one."""


def grid_step(lower: float, upper: float) -> float:
    """Return the grid's step: between 2^-31 and 2^-30 of the width, or 2^-50 of the bounds."""
    size = max((upper - lower) * 2.0**-30, max(abs(lower), abs(upper)) * 2.0**-50)
    return math.ldexp(1.0, max(-1022, math.frexp(size)[1] - 1)) if size > 0 else 1.0


def round_to_grid(number: float, lower: float, upper: float, stream: Stream) -> NDArray[np.float64]:
    """Return a number rounded to the grid inside the bounds, or rarely any point of it.

    Where no point of the grid lies in the bounds it is the one next to 0 that they are nearest to.
    """
    # NaN counts as the lower bound, so that every value has a release
    if math.isnan(number):
        number = lower
    nearest_step = round(min(max(number, lower), upper) / grid_step(lower, upper))
    return _on_grid(nearest_step, lower, upper, stream)


def laplace_on_grid(value: LocalSensitivity, scale: float, stream: Stream) -> NDArray[np.float64]:
    """Return the value with Laplace noise, as `round_to_grid` does, but for the exact sum.

    Noise in float64 has a granularity of 2^-53 of its scale, which may be more than a millionth of
    the grid's step: then the probability of a point depends on where the value lies between
    granules. Here as many bits are drawn as rounding needs, so that only the scale is a float.
    """
    lower, upper = value.lower, value.upper
    # NaN counts as the lower bound; a scale beyond all floats as the largest
    center = lower if math.isnan(value.value) else value.value
    factor = min(scale, sys.float_info.max)
    steps = nearest(center, factor, laplace(stream), grid_step(lower, upper))
    return _on_grid(steps, lower, upper, stream)


def _on_grid(steps: int, lower: float, upper: float, stream: Stream) -> NDArray[np.float64]:
    """Return a point of the grid, clamped to the bounds, or rarely any point of it."""
    unit = grid_step(lower, upper)
    first, last = math.ceil(lower / unit), math.floor(upper / unit)
    # no multiple of the step lies inside the bounds: public, since the bounds are
    if first > last:
        first = last = int(lower / unit)
    # with a small probability the release is uniform: all grid points are reached by all data
    uniform = first + _nearly_uniform_below(last - first + 1, stream)
    is_uniform = bool(stream.bernoulli(UNIFORM_PROBABILITY, 1)[0])
    chosen = uniform if is_uniform else min(max(steps, first), last)
    return np.array(chosen * unit)


def _nearly_uniform_below(count: int, stream: Stream) -> int:
    """Return an integer of [0, count), uniform to within 2^-64, for a count below 2^52."""
    return int(stream.words(1)[0]) * count >> 64


# -----------------------------------------------------------------------------
# What the mechanisms share: budgets, noise, group privacy, parameters.


DEEPEST_EXPONENT = 320
"""Uniform numbers below 2^-320 are drawn with that exponent."""


def fine_uniform(stream: Stream) -> float:
    """Return a uniform number of (0, 1), rounded down to 53 significant bits however small it is.

    The exponent is the number of leading zero bits of an endless sequence of random bits. A
    uniform number of k fixed bits has no values below 2^-k, and noise made of it no tail beyond
    those.
    """
    first, second = stream.words(2).tolist()
    # leading zero bits of the first word; a word of 0 has 64, and the next one is looked at
    zeros = 64 - first.bit_length()
    while not first and zeros < DEEPEST_EXPONENT:
        first = int(stream.words(1)[0])
        zeros += 64 - first.bit_length()
    # 52 random bits after the leading one, which is 2^52
    return math.ldexp(float(2**52 + (second >> 12)), -53 - zeros)


MIN_EPSILON, MAX_EPSILON = 1e-9, 50.0
"""Noise is made for an epsilon between these."""


def noise_epsilon(epsilon: float) -> float:
    """Return the epsilon that noise is made for: at most `charged_epsilon`."""
    # epsilons beyond these limits make noise for the limit
    return min(max(epsilon, MIN_EPSILON), MAX_EPSILON)


def charged_epsilon(epsilon: float) -> float:
    """Return the epsilon that the loss charges: at least `noise_epsilon`."""
    # at least the epsilon of the noise, and never less than was declared
    return max(epsilon, MIN_EPSILON)


def add_noise(
    value: LocalSensitivity,
    beta: float,
    shift: float,
    draw: Callable[[Stream], float],
    stream: Stream,
) -> NDArray[np.float64]:
    """Return ``f + S/a Z`` on the grid of the bounds, with ``a = shift`` and Z from ``draw``.

    S is at least the grid's step, which keeps it smooth. It is too large by at most a relative
    `SLACK`; the callers make room for that in beta (`computed_smoothness`).
    """
    lower, upper = value.lower, value.upper
    sensitivity = value.smooth(beta, least=grid_step(lower, upper))
    noisy = value.value + sensitivity * (draw(stream) / shift)
    return round_to_grid(noisy, lower, upper, stream)


def computed_smoothness(beta: float) -> float:
    """Return the smoothness of a computed S: beta, and the errors of S at both neighbours."""
    return (beta + 2 * SLACK) * (1 + SLACK)


def group_loss(loss: PrivacyLoss, distance: float) -> PrivacyLoss:
    """Return the loss where ``distance`` rows change, by group privacy from ``loss`` for one row.

    The distance arrives rounded up by a few units in the last place.
    """
    # lowered by 1e-12 first, so that a rounded-up integer is not counted as one more
    rows = math.ceil(distance * (1 - 1e-12))
    if rows <= 0:  # no row changes, no loss
        return Pure(0.0)
    # the group of a pure loss costs a little less than this, but has no form in a ledger
    return Pure(multiple(loss.epsilon, rows)) if isinstance(loss, Pure) else loss.grouped(rows)


def delta_parameter() -> Any:
    """Declare a delta, from 1e-60 to below 1; calibration leaves it alone."""
    check = checked(
        lambda v: is_number(v) and 1e-60 <= v < 1,
        "a probability from 1e-60 on, below 1",
        "; it is declared, not calibrated: 1e-7, say",
    )
    return attrs.field(
        converter=number, validator=check, metadata={"symbol": "delta", "role": "budget"}
    )


def public_parameter(symbol: str) -> Any:
    """Declare a positive public parameter that costs nothing; calibration leaves it alone."""
    check = checked(
        positive,
        f"a {POSITIVE}",
        "; it is declared, not calibrated, in units of the value and without looking at the data",
    )
    return attrs.field(converter=number, validator=check, metadata={"symbol": symbol})


class _InstanceMechanism(Mechanism):
    """The base of mechanisms whose noise follows the data: a loss for one changed row, and groups.

    The loss of one row is a pure epsilon, unless a subclass says otherwise.
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    no_interval: ClassVar[str] = (
        "its noise follows the data, so that how much noise there is must stay private; release it "
        "with noise of a fixed scale, or a histogram, to have intervals"
    )

    epsilon: float = budget_parameter("epsilon")

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return group_loss(self.row_loss(), distance)

    def row_loss(self) -> PrivacyLoss:
        """Return the loss of one changed row."""
        return Pure(charged_epsilon(self.epsilon))


class _ApproximateInstanceMechanism(_InstanceMechanism):
    """The base of those that need a delta: (epsilon, delta) for one changed row."""

    delta: float = delta_parameter()

    def row_loss(self) -> PrivacyLoss:
        """Return the loss of one changed row."""
        return Approximate(charged_epsilon(self.epsilon), self.delta)


# -----------------------------------------------------------------------------
# Laplace noise: (epsilon, delta), with light tails.


class SmoothLaplace(_ApproximateInstanceMechanism):
    """Add Laplace noise in proportion to the smooth sensitivity: (epsilon, delta), light tails.

    Released is ``f + S/a Z`` with ``a = epsilon / 2``, Z of density ``e^{-|z|}/2`` and S the smooth
    sensitivity at ``beta = laplace_smoothness(epsilon, delta)``, about ``epsilon / (2
    log(1/delta))``.

    Privacy: (epsilon, delta) for one changed row, by `laplace_delta`; groups for more.

    Parameters
    ----------
    epsilon
        In nats.
    delta
        From 1e-60 to below 1.

    Notes
    -----
    Noise: `laplace_on_grid`: the exact sum, rounded to a grid of the declared bounds.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (``beta = eps / (2 log(2/delta))``); the exact
    delta is derived in `laplace_delta`.

    See Also
    --------
    SmoothStudent, SmoothCauchy : a pure epsilon, with heavier tails.

    Examples
    --------
    >>> SmoothLaplace(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact delta of shifted and stretched "
        "Laplace laws"
    )
    sampler: ClassVar[str] = "continuous Laplace noise, rounded exactly to a grid of the bounds"

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, shape ()."""
        epsilon = noise_epsilon(self.epsilon)
        # beta by the exact delta, of which about half of epsilon is the shift's
        beta = laplace_smoothness(epsilon, self.delta)
        sensitivity = value.smooth(beta, least=grid_step(value.lower, value.upper))
        # the scale is a float: rounded up, within the `SLACK` that beta makes room for
        return laplace_on_grid(value, up(sensitivity / (epsilon / 2)), stream)


def laplace_delta(epsilon: float, beta: float, shift: float) -> float:
    r"""Return the exact worst delta at epsilon of the pair of the module, for Laplace noise.

    Let the laws be Lap(0, 1), Q, and Lap(s, e^b), P, with ``0 <= s <= a`` and ``b >= 0``, in units
    of the smaller scale. ``log dP/dQ > eps`` on ``E = {z > t} and {z < -t'}`` alone, with
    ``t - s = (eps + b - s)/(1 - e^-b) >= 0`` and ``t' + s = (eps + b + s)/(1 - e^-b)``, whence

    ``delta = (1 - e^-b) e^{-(eps + b)/(e^b - 1)} cosh(s / (e^b - 1))``.

    It grows in s. It grows in b, since P(E) does for each E beyond s and below 0, and delta is
    the largest ``P(E) - e^eps Q(E)``. So the worst is at ``b = beta``, ``s = a``. The other way
    round, and for b = 0, the log-ratio is at most ``c + a e^{-c}``, ``0 <= c <= beta``, at most
    the larger of a and ``beta + a e^{-beta}``, which must not exceed epsilon.
    """
    # P against Q at b = 0, and Q against P: no output may lose more than epsilon
    if max(shift, beta + shift * math.exp(-beta)) > epsilon:
        return 1.0
    growth = math.expm1(beta)  # e^b - 1
    # the two halves of 2 cosh(s / (e^b - 1)), each with its factor, so that neither overflows
    tails = math.exp(-(epsilon + beta - shift) / growth)
    tails += math.exp(-(epsilon + beta + shift) / growth)
    return -math.expm1(-beta) * tails / 2


def laplace_smoothness(epsilon: float, delta: float) -> float:
    """Return the largest beta, rounded down, at which delta holds with ``a = epsilon / 2``.

    Half of epsilon for each is best to first order: beta is nearly in proportion to ``eps - a``.
    """

    def fits(beta: float) -> bool:  # 1e-9 is far more than the rounding of `laplace_delta`
        return laplace_delta(epsilon, computed_smoothness(beta), epsilon / 2) <= delta * (1 - 1e-9)

    # below epsilon / 2, so that `beta + shift` stays within epsilon
    low, high = 0.0, epsilon / 2 * (1 - 1e-9)
    if fits(high):
        return high
    for _ in range(60):  # `low` holds throughout: what is returned has been checked
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def laplace_draw(stream: Stream) -> float:
    """Return a draw of density ``e^{-|z|}/2``."""
    sign = 1.0 if bool(stream.bernoulli(0.5, 1)[0]) else -1.0
    # -log of a uniform number is exponential; the sign makes it Laplace's
    return -sign * math.log(fine_uniform(stream))


# -----------------------------------------------------------------------------
# Student's t and Cauchy noise: pure epsilon, with heavy tails.


def student_smoothness(epsilon: float, degrees: float) -> float:
    """Return beta, the part of epsilon that goes to the change of scale, of `SmoothStudent`.

    It maximises ``beta a`` to first order in epsilon: the noise is least where values are evenly
    spaced, for which S is in proportion to 1/beta. With ``beta = c epsilon``, c solves
    ``2 + 3 (1 - d) c - 4 d c^2 = 0``, and does not depend on the data.
    """
    d = degrees
    # the positive root of the docstring's quadratic, over 2 * 4 d
    return epsilon * (3 * (1 - d) + math.sqrt(9 * (1 - d) ** 2 + 32 * d)) / (8 * d)


def student_shift(epsilon: float, beta: float, degrees: float) -> float:
    r"""Return the largest a at which the pair of the module is epsilon-DP, rounded down.

    *The pair's exact loss.* Cauchy laws of location m and scale g are points (m, g) of the upper
    half-plane, and the largest log-ratio of two of them, either way, is their hyperbolic distance
    rho: ``cosh rho = 1 + ((m - m')^2 + (g - g')^2) / (2 g g')``. The density of Student's t with
    location m and scale ``g / sqrt d`` is proportional to ``g^{(d-1)/2}`` times the Cauchy density
    of (m, g) to the power (d+1)/2. So, for ``|log(g/g')| = b``, the loss is exactly

    ``(d-1)/2 b + (d+1)/2 rho``, ``cosh rho = cosh b + s^2 e^{-b} / (2 d)``,

    s the distance of locations in units of the smaller scale. It is at most epsilon if and only
    if ``s^2 <= 4 d e^b sinh((eps + b)/(d+1)) sinh((eps - d b)/(d+1))``. The right side is
    log-concave in b, so it is least at 0 or at beta: no other b need be looked at.

    (The sum of the parts, ``b d + s (d+1) / (2 sqrt d)``, bounds it: Bun and Steinke 2019.)

    Examples
    --------
    >>> round(student_shift(1.0, 0.5, degrees=1.0), 4)  # 0.5 by the sum of the parts
    1.0422
    """
    d, b = degrees, beta
    if d * b >= epsilon:  # the stretch alone costs d b
        return 0.0
    # the bound on s^2 / (4 d) where the scale stays (b = 0) and where it changes most (b = beta)
    unstretched = math.sinh(epsilon / (d + 1)) ** 2
    stretched = (
        math.exp(b) * math.sinh((epsilon + b) / (d + 1)) * math.sinh((epsilon - d * b) / (d + 1))
    )
    # rounded down: a may only be too small, and the noise too large
    return math.sqrt(4 * d * min(unstretched, stretched)) * (1 - 1e-9)


def student_draw(degrees: float, stream: Stream) -> float:
    """Return a draw of Student's t (Bailey 1994): ``sqrt(d (U^{-2/d} - 1)) cos(2 pi V)``."""
    # U^(-2/d) - 1 without cancellation for U near 1
    radius = math.expm1(-2 / degrees * math.log(fine_uniform(stream)))
    # cos(2 pi V) is the projection of a uniform direction onto one axis
    return math.sqrt(degrees * radius) * math.cos(2 * math.pi * float(stream.uniform()))


class SmoothStudent(_InstanceMechanism):
    """Add Student's t noise in proportion to the smooth sensitivity: a pure epsilon.

    Released is ``f + S/a Z`` with Z of Student's t law with d degrees of freedom, S the smooth
    sensitivity at ``beta = student_smoothness(epsilon, d)`` and ``a = student_shift(epsilon, beta,
    d)``.

    Privacy: pure epsilon for one changed row, by the exact loss in `student_shift`.

    Parameters
    ----------
    epsilon
        In nats.
    degrees
        d, at least 1; above 2 the noise has a variance, ``d/(d-2) (S/a)^2``.

    Notes
    -----
    Noise: `student_draw`, in float64 with full relative precision in the tails, then rounded to a
    grid of the declared bounds (`round_to_grid`).

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (noise in proportion to S); Bun and
    Steinke 2019 (Student's t); the exact loss is derived in `student_shift`.

    See Also
    --------
    SmoothCauchy : the least scale, and the heaviest tails.
    SmoothLaplace : light tails, at a delta.

    Examples
    --------
    >>> SmoothStudent(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019; exact loss "
        "of Student's t (hyperbolic distance)"
    )
    sampler: ClassVar[str] = f"Student's t, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    degrees: float = attrs.field(
        default=3.0,
        converter=number,
        validator=checked(
            lambda v: is_number(v) and 1 <= v <= 1000,
            "a number from 1 to 1000",
            "; with 3, the default, the noise has a variance, with 1 it is Cauchy noise",
        ),
    )

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, shape ()."""
        epsilon = noise_epsilon(self.epsilon)
        beta = student_smoothness(epsilon, self.degrees)
        # the smoothness of a computed S, its error included, is what neighbours may differ by
        shift = student_shift(epsilon, computed_smoothness(beta), self.degrees)
        return add_noise(value, beta, shift, lambda s: student_draw(self.degrees, s), stream)


class SmoothCauchy(_InstanceMechanism):
    """Add Cauchy noise in proportion to the smooth sensitivity: a pure epsilon, at the least scale.

    Released is ``f + S/a Z`` with Z of density ``1 / (pi (1 + z^2))``, S the smooth sensitivity at
    ``beta = eps / sqrt 2``.

    Privacy: pure epsilon for one changed row. The exact loss is ``cosh eps = max(1 + a^2/2,
    cosh beta + a^2 e^{-beta}/2)``: about ``eps^2 = a^2 + beta^2``, where the sum of the parts is
    ``a + beta`` (`student_shift` at one degree of freedom).

    Parameters
    ----------
    epsilon
        In nats.

    Notes
    -----
    The noise has no variance: half of it lies within S/a, but one draw in a hundred is beyond
    64 S/a.

    Noise: `student_draw` at one degree of freedom, in float64 with full relative precision in the
    tails, then rounded to a grid of the declared bounds (`round_to_grid`).

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (Cauchy noise, ``a = beta = eps/6``); the
    exact loss is derived in `student_shift`.

    See Also
    --------
    SmoothStudent : lighter tails, at a larger scale.

    Examples
    --------
    >>> SmoothCauchy(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact loss of Cauchy laws (hyperbolic "
        "distance)"
    )
    sampler: ClassVar[str] = f"Cauchy, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, shape ()."""
        epsilon = noise_epsilon(self.epsilon)
        beta = student_smoothness(epsilon, 1)
        shift = student_shift(epsilon, computed_smoothness(beta), 1)
        return add_noise(value, beta, shift, lambda s: student_draw(1, s), stream)


# -----------------------------------------------------------------------------
# Laplace noise of a log-normal scale: concentrated DP.


LOG_SIGMA = math.sqrt(1 / 3)
"""The standard deviation of the logarithm of the noise's scale; 1/3 maximises ``a beta``."""


class SmoothLaplaceLogNormal(_InstanceMechanism):
    r"""Add Laplace noise of a log-normal scale in proportion to the smooth sensitivity: zCDP.

    Released is ``f + S/a Z`` with ``Z = X e^{sigma Y}``, X of density ``e^{-|x|}/2``, Y standard
    normal and ``sigma^2 = 1/3``.

    Privacy: ``eps^2/2``-zCDP for one changed row, where the pair of the module has
    ``eps = b/sigma + e^{3 sigma^2 / 2} s``:

    * A shift by s: with ``V = e^{-sigma Y}`` the density is ``E[V e^{-|z| V}] / 2``, and the
      derivative of its logarithm at most ``E[V^2 w] / E[V w]`` in size, ``w = e^{-|z| V}``. That is
      a mean of V under a law that w, falling in V, tilts downward: at most its value at z = 0,
      ``E V^2 / E V = e^{3 sigma^2 / 2}``. So a shift by s is pure ``e^{3 sigma^2/2} s``-DP, hence
      half its square in zCDP.
    * A stretch by e^b: ``X e^{sigma (Y + b / sigma)}``, a function of a normal variable shifted by
      ``b / sigma``: ``(b / sigma)^2 / 2``.
    * One after the other the roots of the rhos add up, by the inequality ``D_alpha(P||R) <=
      k alpha/(k alpha - 1) D_{(k alpha - 1)/(k - 1)}(P||Q) + D_{k alpha}(Q||R)`` at the best k,
      ``1 + sqrt(rho_1/rho_2)``, as for groups (Bun and Steinke 2016, section 5). The stretch can
      come first in both directions (Z, ``e^b Z``, ``e^b Z + s``; and ``e^b Z + s``, ``Z + s``, Z),
      so that at large orders the shift costs its pure epsilon alone: `accountants.StretchedShift`.

    Half of eps for each, and ``sigma^2 = 1/3``, maximise ``a beta``. As the order grows
    ``D_alpha / alpha`` does tend to ``(b / sigma)^2 / 2``, a quarter of rho: the tails are those of
    the stretched normal variable.

    Parameters
    ----------
    epsilon
        A changed row costs ``epsilon^2 / 2`` in zCDP.

    Notes
    -----
    Noise: `lognormal_draw`, in float64 with full relative precision in the tails, then rounded to a
    grid of the declared bounds (`round_to_grid`).

    References
    ----------
    Bun and Steinke 2019 (Laplace log-normal); the proof is as above.

    See Also
    --------
    SmoothStudent : a pure epsilon.

    Examples
    --------
    >>> SmoothLaplaceLogNormal(epsilon=1.0).loss(distance=1).rho().__round__(6)
    0.5
    """

    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019 (Laplace log-normal)"
    )
    sampler: ClassVar[str] = f"Laplace log-normal, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds, shape ()."""
        beta, shift = lognormal_split(noise_epsilon(self.epsilon))
        # epsilon is split between the stretch and the shift
        return add_noise(value, beta, shift, lognormal_draw, stream)

    def row_loss(self) -> PrivacyLoss:
        """Return the loss of one changed row: a stretch in zCDP, then a pure shift."""
        epsilon = min(charged_epsilon(self.epsilon), 1e140)  # its square stays finite
        # half of epsilon for each; the error of S is the stretch's
        stretch = computed_smoothness(LOG_SIGMA * epsilon / 2) / LOG_SIGMA
        return StretchedShift(shift=up(epsilon / 2), stretch=up(stretch * stretch / 2, 16))


def lognormal_split(epsilon: float) -> tuple[float, float]:
    """Return beta and a, rounded down, with ``beta/sigma + e^{3 sigma^2/2} a <= epsilon``."""
    # half of epsilon for the stretch: b / sigma = epsilon / 2
    beta = LOG_SIGMA * epsilon / 2
    stretch = computed_smoothness(beta) / LOG_SIGMA  # half of epsilon, and the error of S
    # what remains is the shift's, over e^{3 sigma^2 / 2}; rounded down
    return beta, (epsilon - stretch) * math.exp(-1.5 * LOG_SIGMA**2) * (1 - 1e-9)


def lognormal_draw(stream: Stream) -> float:
    """Return a draw of ``X e^{sigma Y}``, X Laplace's of scale 1 and Y standard normal."""
    # Box and Muller: a normal number from two uniform ones
    radius = math.sqrt(-2 * math.log(fine_uniform(stream)))
    normal = radius * math.cos(2 * math.pi * float(stream.uniform()))
    return laplace_draw(stream) * math.exp(LOG_SIGMA * normal)
