"""The Laplace mechanism."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from numpy.typing import NDArray

from accountants import Laplace as LaplaceLoss
from accountants import PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream


class Laplace(Mechanism):
    """Add independent Laplace noise of scale b to each coordinate: ``epsilon = Delta_1 / b``.

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
    theorem: ClassVar[str] = "Dwork, McSherry, Nissim & Smith 2006, Prop. 1"
    sampler: ClassVar[str] = f"Laplace, {FLOAT_SAMPLER}"

    scale: float = noise_parameter("b")

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        return value + stream.laplace(self.scale, value.shape)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l1 distance ``distance``."""
        return LaplaceLoss(distance / self.scale)

    def deviation(self) -> float:
        """Return ``sqrt(2) b``."""
        return math.sqrt(2) * self.scale
