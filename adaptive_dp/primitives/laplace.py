"""The Laplace mechanism."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from numpy.typing import NDArray

from accountants import Laplace as LaplaceLoss
from accountants import PrivacyLoss
from accountants.rounding import quotient, up
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise import lattice
from adaptive_dp.noise.laplace import rounded_laplace
from adaptive_dp.noise.stream import Stream


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
    exact: ClassVar[bool] = True
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
