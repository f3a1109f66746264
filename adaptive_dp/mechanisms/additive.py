"""Additive noise: the Laplace, Gaussian and norm mechanisms."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray
from scipy.special import gamma, gammaincinv

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
# The Laplace mechanism.


class Laplace(Mechanism):
    """Add independent Laplace noise of scale b to each coordinate: ``epsilon = Delta_1 / b``.

    What is released is a whole number of steps of a power of two, about b / 2^26. It is the
    continuous mechanism's release of the value rounded to steps g, rounded to steps: exactly (see
    `adaptive_dp.noise.lattice`; beyond 2^62 steps, of probability below e^-(2^34), noise is
    clamped). Rounding d coordinates adds d g to Delta_1, and nothing where the query's values are
    whole steps, as counts are while b is below 2^26.

    Parameters
    ----------
    scale
        b, in the query's units; the noise's standard deviation is ``sqrt(2) b``.

    References
    ----------
    Dwork, McSherry, Nissim and Smith 2006, Prop. 1.

    Examples
    --------
    >>> Laplace(scale=2.0).loss(distance=1.0)
    Laplace(epsilon=0.5)
    """

    norm: ClassVar[float] = 1
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "Dwork, McSherry, Nissim & Smith 2006, Prop. 1"
    sampler: ClassVar[str] = "Laplace, exact, rounded to a power-of-two step"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        unit = lattice.step(self.scale)
        return lattice.noisy(value, rounded_laplace(stream, self.scale / unit, value.size), unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l1 distance ``distance``."""
        return LaplaceLoss(quotient(distance, self.scale))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` and what rounding adds to it."""
        added = dimension * lattice.rounding_distance(step, lattice.step(self.scale))
        return self.loss(up(distance + added, 8) if added else distance)

    def deviation(self) -> float:
        """Return ``sqrt(2) b``."""
        return math.sqrt(2) * self.scale


# -----------------------------------------------------------------------------
# The Gaussian mechanism.


class Gaussian(Mechanism):
    """Add independent N(0, sigma^2) to each coordinate: ``mu = Delta_2 / sigma``, any epsilon.

    What is released is a whole number of steps of a power of two, about sigma / 2^26. It is the
    continuous mechanism's release of the value rounded to steps g, rounded to steps: exactly (see
    `adaptive_dp.noise.lattice`; beyond 2^62 steps, of probability below e^-(2^68), noise is
    clamped). Rounding d coordinates adds ``g sqrt(d)`` to Delta_2, and nothing where the query's
    values are whole steps, as counts are while sigma is below 2^26.

    Parameters
    ----------
    sigma
        The noise's standard deviation, in the query's units.

    References
    ----------
    Balle and Wang 2018, Thm 8 (the exact profile, for every epsilon).

    Examples
    --------
    >>> Gaussian(sigma=2.0).loss(distance=1.0)
    Gaussian(mu=0.5)
    """

    norm: ClassVar[float] = 2
    rounds_outward: ClassVar[bool] = True
    shifts: ClassVar[bool] = True
    theorem: ClassVar[str] = "Balle & Wang 2018, Thm 8"
    sampler: ClassVar[str] = "Gaussian, exact, rounded to a power-of-two step"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        unit = lattice.step(self.sigma)
        return lattice.noisy(value, rounded_gaussian(stream, self.sigma / unit, value.size), unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l2 distance ``distance``."""
        return GaussianLoss(quotient(distance, self.sigma))

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` and what rounding adds to it."""
        added = math.sqrt(dimension) * lattice.rounding_distance(step, lattice.step(self.sigma))
        return self.loss(up(distance + added, 8) if added else distance)

    def deviation(self) -> float:
        """Return sigma."""
        return self.sigma


def sigma_for(mu: float, distance: float, dimension: int) -> float:
    """Return a sigma at which a release costs at most ``mu``, its rounding included.

    A step is at most ``sigma / 2^26``, and d coordinates move by ``sqrt(d)`` of them.

    Examples
    --------
    >>> round(sigma_for(0.5, 1.0, 1), 6)
    2.0
    """
    rounding = math.sqrt(dimension) * 2.0**-lattice.BITS
    if not (mu > 2 * rounding):
        raise DeclarationError(
            f"a Gaussian release of {dimension} numbers needs mu above {2 * rounding:.3g}, got "
            f"{mu!r}: "
            "its noise is drawn in steps; raise epsilon or delta"
        )
    return distance * (1 + 1e-12) / (mu - rounding)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest Gaussian-DP mu whose exact profile stays within (epsilon, delta).

    Examples
    --------
    >>> round(1 / largest_mu(1.0, 1e-5), 5)
    3.73063
    """
    if not (0 < epsilon < math.inf and 0 < delta < 1):
        raise DeclarationError(
            f"a Gaussian release needs epsilon > 0 and 0 < delta < 1, got {epsilon!r} and {delta!r}"
        )

    def room(mu: float) -> float:
        return math.log(delta) - gdp_log_profile(mu, epsilon, 1)

    low, high = 1.0, 1.0
    while room(low) <= 0:
        low /= 2
    while room(high) > 0:
        high *= 2
    return crossing(room, min(low, high), high)[0]


# -----------------------------------------------------------------------------
# The norm mechanism: noise whose density falls with the distance in a chosen norm.


def _power(instance: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not (plain and value >= 1):
        raise DeclarationError(
            f"Norm.p must be a number from 1 to math.inf, got {value!r}; 2 is the Euclidean norm"
        )


class Norm(Mechanism):
    """Add one vector of density ``exp(-|z|_p / b)`` in R^d: ``epsilon = Delta_p / b``.

    By the triangle inequality the density changes by a factor of at most ``e^{|v|_p / b}`` where
    the value moves by v. The noise is a radius of law Gamma(d, b) times a direction of the unit
    sphere's cone measure: coordinates of density ``exp(-|x|^p)`` over their norm (uniform ones
    for p = inf). Noise grows with d: a coordinate's is about b times d^{1 - 1/p}.

    Value and noise are rounded to whole steps, as `adaptive_dp.noise.lattice` says, which adds
    ``d^{1/p}`` steps to Delta_p. Noise itself is drawn in float64, which certificates say; of
    p = 1 the exact mechanism is `Laplace`.

    Parameters
    ----------
    scale
        b, in the query's units.
    p
        From 1 to ``math.inf``: which norm. Distances are known in l1, l2 and the maximum norm, and
        bounded between them.

    References
    ----------
    Hardt and Talwar 2010, section 4 (the K-norm mechanism); Schechtman and Zinn 1990 (cone
    measure).

    Examples
    --------
    >>> Norm(scale=2.0, p=2).loss(distance=1.0)
    Pure(epsilon=0.5)
    """

    theorem: ClassVar[str] = "Hardt & Talwar 2010, section 4"
    sampler: ClassVar[str] = f"norm ball, {FLOAT_SAMPLER}"

    scale: float = noise_parameter("b")
    p: float = attrs.field(
        default=2.0, converter=number, validator=_power, metadata={"symbol": "p", "role": "shape"}
    )

    @property
    def norm(self) -> float:  # type: ignore[override]
        """The norm in which distances are taken: p."""
        return self.p

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        unit = lattice.step(self.scale)
        z = ball_noise(stream, self.p, value.size) * (self.scale / unit)
        steps = np.rint(np.clip(z, -(2.0**62), 2.0**62)).astype(np.int64)
        return lattice.noisy(value, steps, unit)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l_p distance ``distance``."""
        return Pure(distance / self.scale)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss with what rounding adds; of one number it is the Laplace mechanism's."""
        added = dimension ** (1 / self.p) * lattice.rounding_distance(
            step, lattice.step(self.scale)
        )
        far = up(distance + up(added, 64), 8) if added else distance
        return LaplaceLoss(far / self.scale) if dimension == 1 else self.loss(far)


def ball_noise(stream: Stream, p: float, count: int) -> Floats:
    """Return a vector of density proportional to ``exp(-|z|_p)`` in R^count, in float64."""
    radius = -np.log(stream.uniform((count,))).sum()
    sign = np.where(stream.bernoulli(0.5, count), 1.0, -1.0)
    size = stream.uniform((count,)) if math.isinf(p) else _generalised(stream.uniform((count,)), p)
    largest = size.max(initial=0.0)
    if largest == 0:
        return np.zeros(count)
    size = size / largest
    length = 1.0 if math.isinf(p) else float((size**p).sum()) ** (1 / p)
    return np.asarray(radius / length * sign * size)


def _generalised(uniform: Floats, p: float) -> Floats:
    """Return |x| of density ``exp(-|x|^p)``: |x|^p has the law Gamma(1/p).

    Next to 0, where that power underflows, ``|x| = u Gamma(1 + 1/p)``.
    """
    power = gammaincinv(1 / p, uniform)
    near = uniform * gamma(1 + 1 / p)
    return np.asarray(np.where(power < 1e-200, near, power ** (1 / p)))
