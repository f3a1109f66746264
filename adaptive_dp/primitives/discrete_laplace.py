"""The discrete Laplace mechanism, for whole numbers."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from numpy.typing import NDArray

from accountants import DiscreteLaplace as DiscreteLaplaceLoss
from accountants import PrivacyLoss, Pure
from accountants.rounding import up
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise import lattice
from adaptive_dp.noise.laplace import discrete_laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.limits import within


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
    exact: ClassVar[bool] = True
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
