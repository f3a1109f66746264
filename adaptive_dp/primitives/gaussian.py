"""The Gaussian mechanism."""

from __future__ import annotations

from typing import Any, ClassVar

from numpy.typing import NDArray

from accountants import Gaussian as GaussianLoss
from accountants import PrivacyLoss
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream


class Gaussian(Mechanism):
    """Add independent N(0, sigma^2) to each coordinate: ``mu = Delta_2 / sigma``, any epsilon.

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
    theorem: ClassVar[str] = "Balle & Wang 2018, Thm 8"
    sampler: ClassVar[str] = f"Gaussian, {FLOAT_SAMPLER}"

    sigma: float = noise_parameter("sigma")

    def release(self, value: NDArray[Any], stream: Stream) -> NDArray[Any]:
        """Return the value with noise."""
        return value + stream.gaussian(self.sigma, value.shape)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the loss at l2 distance ``distance``."""
        return GaussianLoss(distance / self.sigma)

    def deviation(self) -> float:
        """Return sigma."""
        return self.sigma
