"""Noise in proportion to the smooth sensitivity: Laplace, Student's t, Cauchy, log-normal."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss, Pure, ZeroConcentrated
from accountants.numerics import up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import SLACK, LocalSensitivity, Mechanism, budget_parameter
from adaptive_dp.graph.values import POSITIVE, number, positive
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream

# -----------------------------------------------------------------------------
# Releasing a number on a grid in declared bounds, so that its low bits tell nothing.
#
# Where the scale of noise follows the data, so do the numbers that float noise can reach. So what
# is released is rounded to a power of two that the bounds alone determine, clamped to them, and
# with probability 2^-32 is any point of the grid instead: each point can then be released whatever
# the data. All three are post-processing.


ANY = 2.0**-32
"""How often any point of the grid is released."""


def step(lower: float, upper: float) -> float:
    """Return the grid's step: between 2^-31 and 2^-30 of the width, or 2^-50 of the bounds."""
    wide = max((upper - lower) * 2.0**-30, max(abs(lower), abs(upper)) * 2.0**-50)
    return math.ldexp(1.0, max(-1022, math.frexp(wide)[1] - 1)) if wide > 0 else 1.0


def on_grid(number: float, lower: float, upper: float, stream: Stream) -> NDArray[np.float64]:
    """Return a number rounded to the grid inside the bounds, or rarely any point of it.

    Where the bounds hold no point of the grid it is the one next to 0 that they are nearest to.
    """
    unit = step(lower, upper)
    low, high = math.ceil(lower / unit), math.floor(upper / unit)
    if low > high:
        low = high = int(lower / unit)
    if math.isnan(number):
        number = lower
    nearest = round(min(max(number, lower), upper) / unit)
    any_point = low + _below(high - low + 1, stream)
    chosen = any_point if bool(stream.bernoulli(ANY, 1)[0]) else min(max(nearest, low), high)
    return np.array(chosen * unit)


def _below(count: int, stream: Stream) -> int:
    """Return a uniform whole number below ``count``, which is below 2^52, to within 2^-64."""
    return int(stream.words(1)[0]) * count >> 64


# -----------------------------------------------------------------------------
# Uniform numbers in (0, 1) with 53 bits however small they are: for the tails of heavy noise.


DEEPEST = 320
"""Numbers below 2^-320 are drawn with that exponent."""


def fine_uniform(stream: Stream) -> float:
    """Return a uniform number of (0, 1), rounded down to 53 significant bits.

    The exponent is how many coins came up tails before the first head: a uniform number of k
    fixed bits has no small values of its own, and noise made of it no tail beyond them.
    """
    first, second = stream.words(2).tolist()
    zeros = 64 - first.bit_length()
    while not first and zeros < DEEPEST:
        first = int(stream.words(1)[0])
        zeros += 64 - first.bit_length()
    return math.ldexp(float(2**52 + (second >> 12)), -53 - zeros)


# -----------------------------------------------------------------------------
# What the mechanisms share whose noise follows the smooth sensitivity.
#
# They release ``f(x) + S(x)/a Z`` with S a beta-smooth sensitivity (`LocalSensitivity.smooth`). For
# neighbours ``S(x') = e^b S(x)`` with ``|b| <= beta``, and ``|f(x) - f(x')|`` is at most both
# S(x) and S(x'). So, in units of ``S(x)/a``, the pair of outputs is
#
#     Z  against  e^b Z + s,   |b| <= beta,  |s| <= a min(1, e^b),
#
# and a mechanism is a law of Z with the (a, beta) that this pair's loss allows.


LEAST, MOST = 1e-9, 50.0
"""Budgets outside of these are used as if they were the nearest of them."""


def usable(epsilon: float) -> float:
    """Return the epsilon that noise is made for: at most what is paid, `paid`."""
    return min(max(epsilon, LEAST), MOST)


def charged_epsilon(epsilon: float) -> float:
    """Return the epsilon that is charged: at least what noise is made for."""
    return max(epsilon, LEAST)


def noisy(
    value: LocalSensitivity,
    beta: float,
    shift: float,
    draw: Callable[[Stream], float],
    stream: Stream,
) -> NDArray[np.float64]:
    """Return ``f + S/a Z`` on the grid of the bounds, with ``a = shift`` and Z from ``draw``.

    S is at least the grid's step, which keeps it smooth. It is too large by at most a relative
    `SLACK`; the callers make room for that in beta (`room`).
    """
    lower, upper = value.lower, value.upper
    spread = value.smooth(beta, least=step(lower, upper))
    return on_grid(value.value + spread * (draw(stream) / shift), lower, upper, stream)


def room(beta: float) -> float:
    """Return the smoothness that a computed S has: beta, and twice its own error."""
    return (beta + 2 * SLACK) * (1 + SLACK)


def steps_loss(loss: PrivacyLoss, distance: float) -> PrivacyLoss:
    """Return the loss where ``distance`` rows change, by the group privacy of ``loss`` for one.

    The distance arrives rounded up by a few units in the last place.
    """
    size = math.ceil(distance * (1 - 1e-12))
    return loss.grouped(size) if size > 0 else Pure(0.0)


def failure_parameter() -> Any:
    """Declare a failure probability, strictly between 0 and 1; calibration leaves it alone."""
    return attrs.field(
        converter=number, validator=_failure, metadata={"symbol": "delta", "role": "budget"}
    )


def _failure(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 1e-60 <= value < 1):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a probability from 1e-60 on, "
            f"below 1, got {value!r}; it is declared, not calibrated: 1e-7, say"
        )


def declared_parameter(symbol: str) -> Any:
    """Declare a positive parameter that costs nothing, so that calibration leaves it alone."""
    return attrs.field(converter=number, validator=_declared, metadata={"symbol": symbol})


def _declared(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not positive(value):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be a {POSITIVE}, got {value!r}; it "
            "is declared, not calibrated, in units of the value and without looking at the data"
        )


def flag(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise DeclarationError(
            f"{type(instance).__name__}.{attribute.name} must be True or False, got {value!r}"
        )


# -----------------------------------------------------------------------------
# Laplace noise in proportion to the smooth sensitivity: (epsilon, delta), with light tails.


def failure(epsilon: float, beta: float, shift: float) -> float:
    r"""Return the exact worst delta at epsilon of the pair of `smooth`, for Laplace noise.

    Let the laws be Lap(0, 1), Q, and Lap(s, e^b), P, with ``0 <= s <= a`` and ``b >= 0``, in units
    of the smaller scale. ``log dP/dQ > eps`` on ``E = {z > t} and {z < -t'}`` alone, with
    ``t - s = (eps + b - s)/(1 - e^-b) >= 0`` and ``t' + s = (eps + b + s)/(1 - e^-b)``, whence

    ``delta = (1 - e^-b) e^{-(eps + b)/(e^b - 1)} cosh(s / (e^b - 1))``.

    It grows in s. It grows in b, since P(E) does for each E beyond s and below 0, and delta is
    the largest ``P(E) - e^eps Q(E)``. So the worst is at ``b = beta``, ``s = a``. The other way
    round, and for b = 0, the log-ratio is at most ``c + a e^{-c}``, ``0 <= c <= beta``, at most
    the larger of a and ``beta + a e^{-beta}``, which must not exceed epsilon.
    """
    if max(shift, beta + shift * math.exp(-beta)) > epsilon:
        return 1.0
    grow = math.expm1(beta)
    tail = math.exp(-(epsilon + beta - shift) / grow) + math.exp(-(epsilon + beta + shift) / grow)
    return -math.expm1(-beta) * tail / 2


def laplace_smoothness(epsilon: float, delta: float) -> float:
    """Return the largest beta, rounded down, at which delta holds with ``a = epsilon / 2``.

    Half of epsilon for each is best to first order: beta is nearly in proportion to ``eps - a``.
    """
    low, high = 0.0, epsilon / 2 * (1 - 1e-9)
    if failure(epsilon, room(high), epsilon / 2) <= delta * (1 - 1e-9):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        fits = failure(epsilon, room(middle), epsilon / 2) <= delta * (1 - 1e-9)
        low, high = (middle, high) if fits else (low, middle)
    return low


def laplace(stream: Stream) -> float:
    """Return a draw of density ``e^{-|z|}/2``."""
    sign = 1.0 if bool(stream.bernoulli(0.5, 1)[0]) else -1.0
    return -sign * math.log(fine_uniform(stream))


class SmoothLaplace(Mechanism):
    """Add ``S/a`` times Laplace noise to a number that follows the data, ``a = epsilon / 2``.

    Parameters
    ----------
    epsilon, delta
        For one changed row. S is the smooth sensitivity at `laplace_smoothness`, about
        ``epsilon / (2 log(1/delta))``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (``beta = eps / (2 log(2/delta))``); the exact
    delta is derived in `failure`.

    Examples
    --------
    >>> SmoothLaplace(epsilon=1.0, delta=1e-6).loss(distance=1)
    Approximate(epsilon=1.0, delta=1e-06)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact delta of shifted and stretched "
        "Laplace laws"
    )
    sampler: ClassVar[str] = f"Laplace, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")
    delta: float = failure_parameter()

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = laplace_smoothness(epsilon, self.delta)
        return noisy(value, beta, epsilon / 2, laplace, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss of ``distance`` changed rows."""
        return steps_loss(Approximate(charged_epsilon(self.epsilon), self.delta), distance)


# -----------------------------------------------------------------------------
# Student's t noise in proportion to the smooth sensitivity: pure epsilon.


def smoothness(epsilon: float, degrees: float) -> float:
    """Return beta: the share of epsilon that goes to the changes of scale.

    It maximises ``beta a`` to first order in epsilon: the noise is least where values are evenly
    spaced, for which S is in proportion to 1/beta. With ``beta = c epsilon``, c solves
    ``2 + 3 (1 - d) c - 4 d c^2 = 0``, and does not depend on the data.
    """
    d = degrees
    return epsilon * (3 * (1 - d) + math.sqrt(9 * (1 - d) ** 2 + 32 * d)) / (8 * d)


def largest_shift(epsilon: float, beta: float, degrees: float) -> float:
    r"""Return the largest a at which the pair of `smooth` is epsilon-DP, rounded down.

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
    >>> round(largest_shift(1.0, 0.5, degrees=1.0), 4)  # 0.5 by the sum of the parts
    1.0422
    """
    d, b = degrees, beta
    if d * b >= epsilon:
        return 0.0
    still = math.sinh(epsilon / (d + 1)) ** 2
    moved = (
        math.exp(b) * math.sinh((epsilon + b) / (d + 1)) * math.sinh((epsilon - d * b) / (d + 1))
    )
    return math.sqrt(4 * d * min(still, moved)) * (1 - 1e-9)


def student(degrees: float, stream: Stream) -> float:
    """Return a draw of Student's t (Bailey 1994): ``sqrt(d (U^{-2/d} - 1)) cos(2 pi V)``."""
    radius = math.expm1(-2 / degrees * math.log(fine_uniform(stream)))
    return math.sqrt(degrees * radius) * math.cos(2 * math.pi * float(stream.uniform()))


def _degrees(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    if not (real and 1 <= value <= 1000):
        raise DeclarationError(
            f"SmoothStudent.degrees must be a number from 1 to 1000, got {value!r}; with 3, the "
            "default, noise has a variance, with 1 it is Cauchy's"
        )


class SmoothStudent(Mechanism):
    """Add ``S/a`` times Student's t to a number that follows the data, S its smooth sensitivity.

    Parameters
    ----------
    epsilon
        Pure, for one changed row; `smoothness` and `largest_shift` make beta and a of it.
    degrees
        d, at least 1; the noise has a variance from above 2 on, ``d/(d-2) (S/a)^2``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (noise in proportion to S); Bun and
    Steinke 2019 (Student's t); the exact loss is derived in `largest_shift`.

    Examples
    --------
    >>> SmoothStudent(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019; exact loss "
        "of Student's t (hyperbolic distance)"
    )
    sampler: ClassVar[str] = f"Student's t, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")
    degrees: float = attrs.field(default=3.0, converter=number, validator=_degrees)

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = smoothness(epsilon, self.degrees)
        shift = largest_shift(epsilon, room(beta), self.degrees)
        return noisy(value, beta, shift, lambda s: student(self.degrees, s), stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the pure loss of ``distance`` changed rows."""
        return steps_loss(Pure(charged_epsilon(self.epsilon)), distance)


# -----------------------------------------------------------------------------
# Cauchy noise in proportion to the smooth sensitivity: pure epsilon, at the least scale.


class SmoothCauchy(Mechanism):
    """Add ``S/a`` times Cauchy noise (density ``1 / (pi (1 + z^2))``), S the smooth sensitivity.

    ``cosh eps = max(1 + a^2/2, cosh beta + a^2 e^{-beta}/2)`` is the exact loss: about
    ``eps^2 = a^2 + beta^2``, where the sum of the parts is ``a + beta`` (see `largest_shift` at
    one degree of freedom). The noise has no variance: half of it lies within S/a, but one draw in
    a hundred is beyond 64 S/a. `SmoothStudent` has lighter tails at a larger scale.

    Parameters
    ----------
    epsilon
        Pure, for one changed row; ``beta = eps / sqrt 2``.

    References
    ----------
    Nissim, Raskhodnikova and Smith 2007, section 2.2 (Cauchy noise, ``a = beta = eps/6``); the
    exact loss is derived in `largest_shift`.

    Examples
    --------
    >>> SmoothCauchy(epsilon=1.0).loss(distance=1)
    Pure(epsilon=1.0)
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; exact loss of Cauchy laws (hyperbolic "
        "distance)"
    )
    sampler: ClassVar[str] = f"Cauchy, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        epsilon = usable(self.epsilon)
        beta = smoothness(epsilon, 1)
        shift = largest_shift(epsilon, room(beta), 1)
        return noisy(value, beta, shift, lambda s: student(1, s), stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the pure loss of ``distance`` changed rows."""
        return steps_loss(Pure(charged_epsilon(self.epsilon)), distance)


# -----------------------------------------------------------------------------
# Laplace log-normal noise in proportion to the smooth sensitivity: concentrated DP.


SIGMA = math.sqrt(1 / 3)


def laplace_lognormal(stream: Stream) -> float:
    """Return a draw of ``X e^{sigma Y}``, X Laplace's of scale 1 and Y standard normal."""
    radius = math.sqrt(-2 * math.log(fine_uniform(stream)))
    normal = radius * math.cos(2 * math.pi * float(stream.uniform()))
    return laplace(stream) * math.exp(SIGMA * normal)


class SmoothLaplaceLogNormal(Mechanism):
    r"""Add ``S/a`` times ``Z = X e^{sigma Y}``: Laplace noise of a log-normal scale.

    The pair of `smooth` is ``eps^2/2``-zCDP with ``eps = b/sigma + e^{3 sigma^2 / 2} s``:

    * A shift by s: with ``V = e^{-sigma Y}`` the density is ``E[V e^{-|z| V}] / 2``, and the
      derivative of its logarithm at most ``E[V^2 w] / E[V w]`` in size, ``w = e^{-|z| V}``. That is
      a mean of V under a law that w, falling in V, tilts downward: at most its value at z = 0,
      ``E V^2 / E V = e^{3 sigma^2 / 2}``. So a shift by s is pure ``e^{3 sigma^2/2} s``-DP, hence
      half its square in zCDP.
    * A stretch by e^b: ``X e^{sigma (Y + b / sigma)}``, a function of a normal variable shifted by
      ``b / sigma``: ``(b / sigma)^2 / 2``.
    * One after the other the roots of the rhos add up, by the inequality ``D_alpha(P||R) <=
      k alpha/(k alpha - 1) D_{(k alpha - 1)/(k - 1)}(P||Q) + D_{k alpha}(Q||R)`` at the best k,
      ``1 + sqrt(rho_1/rho_2)``, as for groups (Bun and Steinke 2016, section 5).

    Half of eps for each, and ``sigma^2 = 1/3``, maximise ``a beta``.

    Parameters
    ----------
    epsilon
        A changed row costs ``epsilon^2 / 2`` in zCDP.

    References
    ----------
    Bun and Steinke 2019 (Laplace log-normal); the proof is as above.

    Examples
    --------
    >>> SmoothLaplaceLogNormal(epsilon=1.0).loss(distance=1).rho().__round__(6)
    0.5
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = (
        "Nissim, Raskhodnikova & Smith 2007, sec. 2.2; Bun & Steinke 2019 (Laplace log-normal)"
    )
    sampler: ClassVar[str] = f"Laplace log-normal, {FLOAT_SAMPLER}, rounded to a grid of the bounds"

    epsilon: float = budget_parameter("epsilon")

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[np.float64]:
        """Return the value with noise, on a grid inside its bounds."""
        beta, shift = lognormal_split(usable(self.epsilon))
        return noisy(value, beta, shift, laplace_lognormal, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the zCDP loss of ``distance`` changed rows."""
        epsilon = min(charged_epsilon(self.epsilon), 1e140)  # far beyond what noise is made for
        return steps_loss(ZeroConcentrated(up(epsilon * epsilon / 2)), distance)


def lognormal_split(epsilon: float) -> tuple[float, float]:
    """Return beta and a, rounded down, with ``beta/sigma + e^{3 sigma^2/2} a <= epsilon``."""
    beta = SIGMA * epsilon / 2
    return beta, (epsilon - room(beta) / SIGMA) * math.exp(-1.5 * SIGMA**2) * (1 - 1e-9)
