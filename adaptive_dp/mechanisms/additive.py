"""Additive noise: the Laplace, Gaussian and norm mechanisms."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import betaincinv, gamma, gammaincc, gammaincinv, ndtri

from accountants import Gaussian as GaussianLoss
from accountants import Laplace as LaplaceLoss
from accountants import PrivacyLoss, Pure
from accountants.definitions import gdp_log_profile
from accountants.numerics import crossing, quotient, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import IN_PROPORTION, Mechanism, noise_parameter
from adaptive_dp.graph.values import number
from adaptive_dp.noise import lattice
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Floats, Stream

# -----------------------------------------------------------------------------
# What mechanisms share: checks of their parameters, and what rounding adds to a distance.


Validator = Callable[[Any, "attrs.Attribute[Any]", Any], None]


def checked(holds: Callable[[Any], bool], what: str, hint: str = "") -> Validator:
    """Return an attrs validator that refuses a value for which ``holds`` is False.

    Parameters
    ----------
    holds
        Whether a value is allowed.
    what
        What the value must be, for the message.
    hint
        What the message says after the value.
    """

    def check(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if not holds(value):
            raise DeclarationError(
                f"{type(instance).__name__}.{attribute.name} must be {what}, got {value!r}{hint}"
            )

    return check


def is_number(value: Any) -> bool:
    """Whether a value is an int or a float."""
    # bool is an int to isinstance; True would be read as 1
    return isinstance(value, int | float) and not isinstance(value, bool)


def rounded_distance(distance: float, ones: float, step: float, unit: float) -> float:
    """Return a bound of the distance of two values rounded to ``unit``.

    Parameters
    ----------
    distance
        A bound of the distance of the values themselves.
    ones
        The norm of the vector of as many ones as the values have coordinates: rounding moves each
        coordinate by one step at most.
    step
        A number whose integer multiples the coordinates are; 0 where none is known.
    unit
        To whose integer multiples they are rounded.
    """
    rounding = ones * lattice.rounding_distance(step, unit)
    # rounded up past the sum's error; nothing is added where values lie on the lattice already
    return up(distance + rounding, 8) if rounding else distance


def rounding_error(step: float, unit: float) -> float:
    """Return the most that rounding value and noise to ``unit`` moves a release: see `lattice`.

    Noise is rounded by at most half of a step, and so is a value that is no multiple of it.
    """
    return (unit + lattice.rounding_distance(step, unit)) / 2


# -----------------------------------------------------------------------------
# The mechanisms.


class Laplace(Mechanism):
    """Add independent Laplace noise to each coordinate of a query's value.

    Privacy: ``epsilon = Delta_1 / b``, with Delta_1 the query's sensitivity in the l1 norm.

    Parameters
    ----------
    scale
        b, in the query's units; the noise has standard deviation ``sqrt(2) b``.

    Notes
    -----
    Noise: `adaptive_dp.noise.laplace.rounded_laplace` draws an integer number of steps g, a power
    of two near b / 2^26. What is released is the continuous mechanism's release of the value
    rounded to steps, rounded to steps again, and its law is exact (see `adaptive_dp.noise.lattice`;
    beyond 2^62 steps, an event of probability below e^-(2^34), noise is clamped). Rounding d
    coordinates adds d g to Delta_1, and nothing where the query's values are multiples of g, as
    counts are while b is below 2^26.

    References
    ----------
    Dwork, McSherry, Nissim and Smith 2006, Prop. 1.

    See Also
    --------
    DiscreteLaplace : integers plus integer noise.
    Gaussian : less noise where many coordinates move.

    Examples
    --------
    >>> Laplace(scale=2.0).loss(distance=1.0)
    Laplace(epsilon=0.5)
    """

    norm: ClassVar[float] = 1
    rounds_outward: ClassVar[bool] = True
    rounds_coordinates: ClassVar[bool] = True
    theorem: ClassVar[str] = "Dwork, McSherry, Nissim & Smith 2006, Prop. 1"
    sampler: ClassVar[str] = "Laplace, exact, rounded to a power-of-two step"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise, on a lattice."""
        # a power of two: multiples of it are exact floats, and division by it is exact
        unit = lattice.step(self.scale)
        # the sampler works in steps; its scale is exact, as the step is a power of two
        noise = rounded_laplace(stream, self.scale / unit, value.size)
        return lattice.noisy(value, noise, unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l1 distance ``distance``."""
        # rounded up: the loss may only be too large
        return LaplaceLoss(quotient(distance, self.scale))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        # each of d coordinates may move by one step more: d steps in l1
        return self.loss(rounded_distance(distance, dimension, step, lattice.step(self.scale)))

    def deviation(self) -> float:
        """Return the standard deviation on each coordinate, ``sqrt(2) b``."""
        return math.sqrt(2) * self.scale

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return t with ``P(|Z| > t) = e^{-t/b} = 1 - level``, and what rounding adds."""
        t = -self.scale * math.log1p(-level)
        return up(t + rounding_error(step, lattice.step(self.scale)), 8)


class Gaussian(Mechanism):
    """Add independent normal noise N(0, sigma^2) to each coordinate of a query's value.

    Privacy: mu-Gaussian DP with ``mu = Delta_2 / sigma``, Delta_2 the query's sensitivity in the l2
    norm. The profile delta(epsilon) is exact for every epsilon.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in the query's units.

    Notes
    -----
    Noise: `adaptive_dp.noise.gaussian.rounded_gaussian` draws an integer number of steps g, a power
    of two near sigma / 2^26. What is released is the continuous mechanism's release of the value
    rounded to steps, rounded to steps again, and its law is exact (see `adaptive_dp.noise.lattice`;
    beyond 2^62 steps, an event of probability below e^-(2^68), noise is clamped). Rounding d
    coordinates adds ``g sqrt(d)`` to Delta_2, and nothing where the query's values are multiples
    of g, as counts are while sigma is below 2^26.

    References
    ----------
    Balle and Wang 2018, Thm 8 (the exact profile, for every epsilon).

    See Also
    --------
    DiscreteGaussian : integers plus integer noise.
    Laplace : a pure epsilon.

    Examples
    --------
    >>> Gaussian(sigma=2.0).loss(distance=1.0)
    Gaussian(mu=0.5)
    """

    norm: ClassVar[float] = 2
    rounds_outward: ClassVar[bool] = True
    rounds_coordinates: ClassVar[bool] = True
    shifts: ClassVar[bool] = True
    theorem: ClassVar[str] = "Balle & Wang 2018, Thm 8"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise, on a lattice."""
        unit = lattice.step(self.sigma)
        # drawn in steps of the lattice, as in `Laplace.release`
        noise = rounded_gaussian(stream, self.sigma / unit, value.size)
        return lattice.noisy(value, noise, unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l2 distance ``distance``."""
        # mu = Delta / sigma, rounded up
        return GaussianLoss(quotient(distance, self.sigma))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        # each of d coordinates may move by one step more: sqrt(d) steps in l2
        ones = math.sqrt(dimension)
        return self.loss(rounded_distance(distance, ones, step, lattice.step(self.sigma)))

    def deviation(self) -> float:
        """Return the standard deviation on each coordinate, sigma."""
        return self.sigma

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return sigma times the normal quantile of ``(1 + level) / 2``, and what rounding adds."""
        t = -self.sigma * float(ndtri((1 - level) / 2))
        return up(t + rounding_error(step, lattice.step(self.sigma)), 64)


def sigma_for(mu: float, distance: float, dimension: int, step: float = 0.0) -> float:
    """Return the least sigma at which a `Gaussian` release costs at most ``mu``, rounding included.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter that the release may cost.
    distance
        The query's l2 sensitivity, in its units; sigma is in the same.
    dimension
        The number of coordinates.
    step
        A number whose integer multiples the coordinates are; 0 where none is known.

    Raises
    ------
    DeclarationError
        If mu is too small for the rounding of so many coordinates.

    Examples
    --------
    >>> round(sigma_for(0.5, 1.0, 1), 6)
    2.0
    """
    ones = math.sqrt(dimension)
    rounding = ones * 2.0**-lattice.BITS
    # at least half of mu must remain after rounding, so that the division is well conditioned
    if not (mu > 2 * rounding):
        raise DeclarationError(
            f"a Gaussian release of {dimension} numbers needs mu above {2 * rounding:.3g}, got "
            f"{mu!r}: its noise is drawn in steps; raise epsilon or delta"
        )
    # the steps of the lattice double where sigma reaches a power of two: from the least that they
    # may be on, the first sigma whose own steps were counted, as in `Gaussian.cost`
    unit = lattice.step(distance / mu)
    while True:
        # rounded up by 1e-12: sigma may only be too large
        sigma = rounded_distance(distance, ones, step, unit) * (1 + 1e-12) / mu
        if lattice.step(sigma) <= unit:
            return sigma
        unit = lattice.step(sigma)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest Gaussian-DP mu whose exact profile stays within (epsilon, delta).

    Rounded down: at the mu that is returned the profile was evaluated, and is at most delta.

    Raises
    ------
    DeclarationError
        If epsilon is not positive and finite, or delta not in (0, 1).

    Examples
    --------
    >>> round(1 / largest_mu(1.0, 1e-5), 5)
    3.73063
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        pure = "; at delta 0 choose a learner or a mechanism without Gaussian noise" * (delta == 0)
        raise DeclarationError(
            f"a Gaussian release needs epsilon > 0 and 0 < delta < 1, got {epsilon!r} and "
            f"{delta!r}{pure}"
        )

    def log_delta_slack(mu: float) -> float:
        # the profile grows in mu (Balle and Wang 2018, Thm 8); its upper bound is used
        return math.log(delta) - gdp_log_profile(mu, epsilon, 1)

    # doubling and halving find a bracket: the profile is below delta at low, above it at high
    low, high = 1.0, 1.0
    while log_delta_slack(low) <= 0:
        low /= 2
    while log_delta_slack(high) > 0:
        high *= 2
    # the bracket's lower end, at which the slack was evaluated and is not negative
    return crossing(log_delta_slack, min(low, high), high)[0]


class Norm(Mechanism):
    """Add one random vector, of density proportional to ``exp(-|z|_p / b)``, to a query's value.

    Privacy: ``epsilon = Delta_p / b``, with Delta_p the query's sensitivity in the lp norm: by the
    triangle inequality the density changes by a factor of at most ``e^{|v|_p / b}`` where the
    value moves by v.

    Parameters
    ----------
    scale
        b, in the query's units. In d dimensions the noise on a coordinate is about b d^{1 - 1/p}.
    p
        The norm's exponent, from 1 to ``math.inf``. Distances are known in l1, l2 and the maximum
        norm, and bounded between them.

    Notes
    -----
    Noise: `ball_noise` draws a radius of law Gamma(d, b) times a direction of the cone measure of
    the unit sphere, in float64, which certificates say. Value and noise are rounded to steps of a
    power of two (`adaptive_dp.noise.lattice`), which adds ``d^{1/p}`` steps to Delta_p.

    References
    ----------
    Hardt and Talwar 2010, section 4 (the K-norm mechanism); Schechtman and Zinn 1990 (cone
    measure).

    See Also
    --------
    Laplace : the same for p = 1, with exact noise.

    Examples
    --------
    >>> Norm(scale=2.0, p=2).loss(distance=1.0)
    Pure(epsilon=0.5)
    """

    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "Hardt & Talwar 2010, section 4"
    sampler: ClassVar[str] = f"norm ball, {FLOAT_SAMPLER}"

    scale: float = noise_parameter("b")
    p: float = attrs.field(
        default=2.0,
        converter=number,
        validator=checked(
            lambda v: is_number(v) and v >= 1,
            "a number from 1 to math.inf",
            "; 2 is the Euclidean norm",
        ),
        metadata={"symbol": "p", "role": "shape"},
    )

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm in which distances are taken: p."""
        return self.p

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise, on a lattice."""
        unit = lattice.step(self.scale)
        # a vector for scale 1 in value units, then in steps of the lattice
        noise = ball_noise(stream, self.p, value.size) * (self.scale / unit)
        # clamping and rounding the noise is post-processing of its sum with an integer of steps
        steps = np.rint(np.clip(noise, -(2.0**62), 2.0**62)).astype(np.int64)
        return lattice.noisy(value, steps, unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l_p distance ``distance``."""
        return Pure(quotient(distance, self.scale))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        # each of d coordinates may move by one step more: d^(1/p) steps in lp
        rounding = dimension ** (1 / self.p) * lattice.rounding_distance(
            step, lattice.step(self.scale)
        )
        # d^(1/p) and the sum are rounded up separately: the power has the larger error
        moved = up(distance + up(rounding, 64), 8) if rounding else distance
        # in one dimension every norm is the absolute value, and the noise is Laplace's
        return LaplaceLoss(quotient(moved, self.scale)) if dimension == 1 else self.loss(moved)

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return the quantile of one coordinate's noise (`ball_tail`), and what rounding adds."""
        # the tail falls from 1 at 0 to below e^-700 at 700 + 2 d: Gamma(d) bounds every coordinate
        high = 700.0 + 2 * dimension
        t = self.scale * brentq(lambda x: ball_tail(x, self.p, dimension) - (1 - level), 0.0, high)
        # 1e-4: more than the error of the integral
        return t * (1 + 1e-4) + rounding_error(step, lattice.step(self.scale))


def ball_noise(stream: Stream, p: float, count: int) -> Floats:
    """Return a vector of density proportional to ``exp(-|z|_p)`` in R^count, in float64.

    The norm has the law Gamma(count), and the direction is independent of it: coordinates of
    density ``exp(-|x|^p)`` (uniform ones for p = inf), divided by their norm, have the cone measure
    of the unit sphere (Schechtman and Zinn 1990).
    """
    # a sum of `count` exponentials has the law Gamma(count)
    # -log of a uniform number is an exponential one
    radius = -np.log(stream.uniform((count,))).sum()
    # signs are symmetric and independent of sizes, by the symmetry of the norm
    sign = np.where(stream.bernoulli(0.5, count), 1.0, -1.0)
    uniform = stream.uniform((count,))
    size = uniform if math.isinf(p) else _generalised_normal_size(uniform, p)
    largest = size.max(initial=0.0)
    # all sizes underflowed: the direction is lost, and the vector is 0
    if largest == 0:
        return np.zeros(count)
    # divided by the largest first, so that no power overflows
    size = size / largest
    # after the division the largest size is 1, which is its maximum norm
    length = 1.0 if math.isinf(p) else float((size**p).sum()) ** (1 / p)
    return np.asarray(radius / length * sign * size)


def ball_tail(t: float, p: float, count: int) -> float:
    """Return ``P(|z_1| > t)`` for a vector of density proportional to ``exp(-|z|_p)``.

    ``z_1 = r u`` with r of the law Gamma(d) and u a coordinate of the cone measure, for which
    ``|u|^p`` has the law Beta(1/p, (d-1)/p); on the cube (p = inf) |u| is 1 with probability 1/d,
    and else uniform on [0, 1].
    """
    if count == 1 or t <= 0:
        return math.exp(-max(t, 0.0))
    weights, sizes = _cone_coordinate(p, count)
    tail = float(weights @ gammaincc(count, t / sizes))
    if math.isinf(p):
        return float(gammaincc(count, t)) / count + (1 - 1 / count) * tail
    return tail


@cache
def _cone_coordinate(p: float, count: int) -> tuple[Floats, Floats]:
    """Return weights, and quantiles of |u| in `ball_tail`, for an integral over its law."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    probability = (nodes + 1) / 2
    if math.isinf(p):
        return weights / 2, probability
    sizes = np.maximum(betaincinv(1 / p, (count - 1) / p, probability), 1e-300) ** (1 / p)
    return weights / 2, sizes


def _generalised_normal_size(uniform: Floats, p: float) -> Floats:
    """Return |x| of density ``exp(-|x|^p)`` by inversion: |x|^p has the law Gamma(1/p).

    Next to 0, where that power underflows, ``|x| = u Gamma(1 + 1/p)``.
    """
    power = gammaincinv(1 / p, uniform)
    # the law's distribution function near 0 is linear, |x| / Gamma(1 + 1/p)
    small = uniform * gamma(1 + 1 / p)
    return np.asarray(np.where(power < 1e-200, small, power ** (1 / p)))
