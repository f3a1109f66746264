"""Discrete noise on integers: the discrete Laplace and discrete Gaussian mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from accountants import DiscreteGaussian as DiscreteGaussianLoss
from accountants import DiscreteLaplace as DiscreteLaplaceLoss
from accountants import PrivacyLoss, Pure, ZeroConcentrated
from accountants.numerics import ceiling
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import IN_PROPORTION, Free, Mechanism, noise_parameter
from adaptive_dp.mechanisms.additive import rounded_distance
from adaptive_dp.noise import lattice
from adaptive_dp.noise.exact import LARGEST_SCALE
from adaptive_dp.noise.gaussian import discrete_gaussian
from adaptive_dp.noise.laplace import discrete_laplace
from adaptive_dp.noise.stream import Stream


def check_scale(name: str, scale: Any) -> None:
    """Refuse a scale of discrete noise above 2^50, the most that its samplers accept."""
    # a Free scale is checked once calibration has replaced it by a number
    if not isinstance(scale, Free) and not (scale <= LARGEST_SCALE):
        raise DeclarationError(f"{name} must be at most 2^50, got {scale!r}; count in larger units")


class DiscreteLaplace(Mechanism):
    """Add integer noise, of probabilities proportional to ``e^{-|k|/b}``, to counts.

    For counts and histograms, whose release stays integer.

    Privacy: ``epsilon = Delta_1 / b``, with Delta_1 the query's sensitivity in the l1 norm, rounded
    down: vectors of integers differ by an integer l1 distance.

    Parameters
    ----------
    scale
        b, in counts; at most 2^50.

    Notes
    -----
    Noise: `adaptive_dp.noise.laplace.discrete_laplace`, whose law is exact. Values that are not
    integers are rounded, which adds d to Delta_1 for d coordinates.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan 2009, section 2 (the geometric mechanism).

    See Also
    --------
    Laplace : for values that are not integers.
    DiscreteGaussian : less noise for many counts.

    Examples
    --------
    >>> DiscreteLaplace(scale=2.0).loss(distance=1.0)
    DiscreteLaplace(scale=2.0, sensitivity=1)
    """

    norm: ClassVar[float] = 1
    rounds_outward: ClassVar[bool] = True
    rounds_coordinates: ClassVar[bool] = True
    theorem: ClassVar[str] = "Ghosh, Roughgarden & Sundararajan 2009, section 2"
    sampler: ClassVar[str] = "discrete Laplace, exact"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def __attrs_post_init__(self) -> None:
        check_scale("DiscreteLaplace.scale", self.scale)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value, rounded, with noise."""
        # a lattice of step 1: integers are exact, other values are rounded to them
        return lattice.noisy(value, discrete_laplace(stream, self.scale, value.size), 1.0)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss between vectors of integers at most ``distance`` apart in l1."""
        sensitivity = math.floor(distance)  # their distance is an integer
        # a distance below 1 means that no integer moves: the release costs nothing
        return DiscreteLaplaceLoss(self.scale, sensitivity) if sensitivity else Pure(0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        # each of d coordinates may move by 1 more: d in l1
        # rounded up past the sum's error, so that the floor in `loss` cannot lose an integer
        return self.loss(rounded_distance(distance, dimension, step, 1.0))

    def deviation(self) -> float | None:
        """Return the standard deviation, ``1 / (sqrt(2) sinh(1 / (2 b)))``."""
        if isinstance(self.scale, float | int):
            half = 0.5 / self.scale
            # beyond 700 sinh overflows, and the deviation is 0 as a float
            return 1 / (math.sqrt(2) * math.sinh(half)) if half < 700 else 0.0
        return None

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return the least integer k with ``P(|K| > k) <= 1 - level``, and what rounding adds.

        ``P(|K| > k) = 2 q^{k+1} / (1 + q)`` with ``q = e^{-1/b}``.
        """
        # (k + 1) / b >= log(2 / ((1 + q) (1 - level))); 1e-9 of it for its rounding
        tail = math.log(2 / ((1 + math.exp(-1 / self.scale)) * (1 - level)))
        k = max(0, math.ceil(self.scale * tail * (1 + 1e-9) - 1))
        return k + lattice.rounding_distance(step, 1.0) / 2


class DiscreteGaussian(Mechanism):
    """Add integer noise, of probabilities proportional to ``e^{-k^2/(2 sigma^2)}``, to counts.

    For counts and histograms, whose release stays integer.

    Privacy: ``rho = Delta_2^2/(2 sigma^2)`` in zCDP, with Delta_2 the query's sensitivity in the l2
    norm; ``Delta_2^2`` is rounded down, since vectors of integers differ by an integer squared
    distance. The loss is exact for one number, and for a vector of which one coordinate moves by 1
    (``Delta_2^2 = 1``).

    Parameters
    ----------
    sigma
        In counts, at most 2^50. For a small sigma the standard deviation is less (`deviation`).

    Notes
    -----
    Noise: `adaptive_dp.noise.gaussian.discrete_gaussian`, whose law is exact. Values that are not
    integers are rounded, which adds sqrt(d) to Delta_2 for d coordinates.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Thm 4.

    See Also
    --------
    Gaussian : for values that are not integers.
    DiscreteLaplace : a pure epsilon.

    Examples
    --------
    >>> DiscreteGaussian(sigma=2.0).loss(distance=1.0)
    DiscreteGaussian(sigma=2.0, sensitivity=1)
    """

    norm: ClassVar[float] = 2
    rounds_outward: ClassVar[bool] = True
    rounds_coordinates: ClassVar[bool] = True
    theorem: ClassVar[str] = "Canonne, Kamath & Steinke 2020, Thm 4"
    sampler: ClassVar[str] = "discrete Gaussian, exact"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)

    def __attrs_post_init__(self) -> None:
        check_scale("DiscreteGaussian.sigma", self.sigma)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value, rounded, with noise."""
        # a lattice of step 1, as of the discrete Laplace
        return lattice.noisy(value, discrete_gaussian(stream, self.sigma, value.size), 1.0)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss between integers at most ``distance`` apart."""
        sensitivity = math.floor(distance)  # their distance is an integer
        return DiscreteGaussianLoss(self.sigma, sensitivity) if sensitivity else Pure(0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` plus what rounding the value adds to it."""
        # each of d coordinates may move by 1 more: sqrt(d) in l2
        # rounded up before the square, so that its floor cannot lose an integer
        moved = rounded_distance(distance, math.sqrt(dimension), step, 1.0)
        square = math.floor(Fraction(moved) ** 2)  # an integer for vectors of integers
        if dimension == 1 or square <= 1:  # one coordinate moves: its loss is the exact one
            return self.loss(moved)
        # coordinates are independent, and their rhos add up to |moves|^2 / (2 sigma^2)
        return ZeroConcentrated(ceiling(square / (2 * Fraction(self.sigma) ** 2)))

    def deviation(self) -> float | None:
        """Return the standard deviation; from sigma 8 on it is sigma, to a relative 1e-500."""
        if not isinstance(self.sigma, float | int):
            return None
        if self.sigma >= 8:
            return float(self.sigma)
        # below sigma 8, masses from 100 on are at most e^(-100^2 / 128), about 1e-34
        k = np.arange(100.0)
        with np.errstate(over="ignore"):  # masses that underflow are 0
            mass = np.exp(-((k / self.sigma) ** 2) / 2)
        # sum of k^2 p(k) over all integers: twice the positive half, and 0 counted once below
        return math.sqrt(2 * float(k * k @ mass) / (2 * float(mass.sum()) - 1))

    def error(self, level: float, dimension: int, step: float) -> float:
        """Return the least integer k with ``P(|K| > k) <= 1 - level``, and what rounding adds."""
        t = -self.sigma * float(ndtri((1 - level) / 2))
        rounding = lattice.rounding_distance(step, 1.0) / 2
        if self.sigma > 1e4:
            # steps are below 1e-4 of sigma: K is a rounded normal number to within one step
            return math.ceil(t) + 1 + rounding
        # masses from 0 on, those beyond 12 sigma are below e^-72 in all
        k = np.arange(math.ceil(12 * self.sigma) + 2.0)
        with np.errstate(over="ignore", under="ignore"):
            mass = np.exp(-((k / self.sigma) ** 2) / 2)
        mass[1:] *= 2  # both signs
        inside = np.cumsum(mass) / mass.sum()
        # 1e-12: a level that is met but for rounding counts as not met
        return float(np.searchsorted(inside, level + 1e-12)) + rounding
