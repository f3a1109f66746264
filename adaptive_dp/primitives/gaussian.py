"""The Gaussian mechanism."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from numpy.typing import NDArray

from accountants import Gaussian as GaussianLoss
from accountants import PrivacyLoss
from accountants.notions.gaussian import gdp_log_profile
from accountants.roots import crossing
from accountants.rounding import quotient, up
from adaptive_dp.graph.free import IN_PROPORTION
from adaptive_dp.graph.mechanism import Mechanism, noise_parameter
from adaptive_dp.graph.operation import require
from adaptive_dp.noise import lattice
from adaptive_dp.noise.gaussian import rounded_gaussian
from adaptive_dp.noise.stream import Stream


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
    exact: ClassVar[bool] = True
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
    require(
        mu > 2 * rounding,
        f"a Gaussian release of {dimension} numbers needs mu above {2 * rounding:.3g}, got {mu!r}: "
        "its noise is drawn in steps; raise epsilon or delta",
    )
    return distance * (1 + 1e-12) / (mu - rounding)


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the largest Gaussian-DP mu whose exact profile stays within (epsilon, delta).

    Examples
    --------
    >>> round(1 / largest_mu(1.0, 1e-5), 5)
    3.73063
    """
    require(
        0 < epsilon < math.inf and 0 < delta < 1,
        f"a Gaussian release needs epsilon > 0 and 0 < delta < 1, got {epsilon!r} and {delta!r}",
    )

    def room(mu: float) -> float:
        return math.log(delta) - gdp_log_profile(mu, epsilon, 1)

    low, high = 1.0, 1.0
    while room(low) <= 0:
        low /= 2
    while room(high) > 0:
        high *= 2
    return crossing(room, min(low, high), high)[0]
