"""Discrete noise on integers: the discrete Laplace and discrete Gaussian mechanisms."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import DiscreteGaussian as DiscreteGaussianLoss
from accountants import DiscreteLaplace as DiscreteLaplaceLoss
from accountants import PrivacyLoss, Pure, ZeroConcentrated
from accountants.numerics import ceiling, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import IN_PROPORTION, Free, Mechanism, noise_parameter
from adaptive_dp.noise import lattice
from adaptive_dp.noise.exact import LARGEST_SCALE
from adaptive_dp.noise.gaussian import discrete_gaussian
from adaptive_dp.noise.laplace import discrete_laplace
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# The largest noise that whole numbers take.


def within(name: str, scale: Any) -> None:
    """Refuse a scale of discrete noise above 2^50, which its samplers do not take."""
    if not isinstance(scale, Free) and not (scale <= LARGEST_SCALE):
        raise DeclarationError(f"{name} must be at most 2^50, got {scale!r}; count in larger units")


# -----------------------------------------------------------------------------
# The discrete Laplace mechanism, for whole numbers.


class DiscreteLaplace(Mechanism):
    """Add whole noise of masses proportional to ``e^{-|k|/b}``: ``epsilon = Delta_1 / b``.

    For counts and histograms, whose release stays whole. Other values are rounded to whole
    numbers, which adds d to Delta_1 for d coordinates. Whole vectors differ by a whole l1
    distance, so Delta_1 is rounded down.

    Parameters
    ----------
    scale
        b, at most 2^50.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan 2009, section 2 (the geometric mechanism).

    Examples
    --------
    >>> DiscreteLaplace(scale=2.0).loss(distance=1.0)
    DiscreteLaplace(scale=2.0, sensitivity=1)
    """

    norm: ClassVar[float] = 1
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "Ghosh, Roughgarden & Sundararajan 2009, section 2"
    sampler: ClassVar[str] = "discrete Laplace, exact"

    scale: float = noise_parameter("b", default=IN_PROPORTION)

    def __attrs_post_init__(self) -> None:
        within("DiscreteLaplace.scale", self.scale)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value, rounded, with noise."""
        return lattice.noisy(value, discrete_laplace(stream, self.scale, value.size), 1.0)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l1 distance ``distance`` of whole vectors."""
        apart = math.floor(distance)
        return DiscreteLaplaceLoss(self.scale, apart) if apart else Pure(0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` and what rounding adds to it."""
        added = dimension * lattice.rounding_distance(step, 1.0)
        return self.loss(up(distance + added, 8) if added else distance)

    def deviation(self) -> float | None:
        """Return ``1 / (sqrt(2) sinh(1 / (2 b)))``."""
        if isinstance(self.scale, float | int):
            half = 0.5 / self.scale
            return 1 / (math.sqrt(2) * math.sinh(half)) if half < 700 else 0.0
        return None


# -----------------------------------------------------------------------------
# The discrete Gaussian mechanism, for whole numbers.


class DiscreteGaussian(Mechanism):
    """Add whole noise of masses proportional to ``e^{-k^2/(2 sigma^2)}``.

    For counts and histograms, whose release stays whole. Other values are rounded to whole
    numbers, which adds sqrt(d) to Delta_2 for d coordinates. Whole vectors differ by a whole
    squared distance, so ``Delta_2^2`` is rounded down. One number that moves by Delta has the
    exact loss; so has a vector of which one coordinate moves by 1 (``Delta_2^2 = 1``). For others
    ``rho = Delta_2^2/(2 sigma^2)`` holds, the sum of the coordinates'.

    Parameters
    ----------
    sigma
        At most 2^50; the parameter, not quite the standard deviation.

    References
    ----------
    Canonne, Kamath and Steinke 2020, Thm 4.

    Examples
    --------
    >>> DiscreteGaussian(sigma=2.0).loss(distance=1.0)
    DiscreteGaussian(sigma=2.0, sensitivity=1)
    """

    norm: ClassVar[float] = 2
    rounds_outward: ClassVar[bool] = True
    theorem: ClassVar[str] = "Canonne, Kamath & Steinke 2020, Thm 4"
    sampler: ClassVar[str] = "discrete Gaussian, exact"

    sigma: float = noise_parameter("sigma", default=IN_PROPORTION)

    def __attrs_post_init__(self) -> None:
        within("DiscreteGaussian.sigma", self.sigma)

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value, rounded, with noise."""
        return lattice.noisy(value, discrete_gaussian(stream, self.sigma, value.size), 1.0)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss between whole numbers at most ``distance`` apart."""
        apart = math.floor(distance)
        return DiscreteGaussianLoss(self.sigma, apart) if apart else Pure(0.0)

    def cost(self, distance: float, dimension: int, step: float) -> PrivacyLoss:
        """Return the loss at ``distance`` and what rounding adds to it, of vectors too."""
        added = math.sqrt(dimension) * lattice.rounding_distance(step, 1.0)
        far = up(distance + added, 8) if added else distance
        square = math.floor(Fraction(far) ** 2)
        if dimension == 1 or square <= 1:
            return self.loss(far)
        return ZeroConcentrated(ceiling(square / (2 * Fraction(self.sigma) ** 2)))

    def deviation(self) -> float | None:
        """Return the standard deviation: from 8 on sigma, to a relative 1e-500."""
        if not isinstance(self.sigma, float | int):
            return None
        if self.sigma >= 8:
            return float(self.sigma)
        k = np.arange(100.0)
        with np.errstate(over="ignore"):  # far out there is no mass
            mass = np.exp(-((k / self.sigma) ** 2) / 2)
        return math.sqrt(2 * float(k * k @ mass) / (2 * float(mass.sum()) - 1))
