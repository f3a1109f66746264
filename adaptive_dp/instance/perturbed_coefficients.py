"""Ridge coefficients with noise scaled to a released bound of their local sensitivity."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from accountants import GaussianBound, PrivacyLoss
from adaptive_dp.data.linear_systems import Moments, solution
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.instance.posterior_sample import bounds_of, follows
from adaptive_dp.noise.stream import Stream
from adaptive_dp.primitives.gaussian import Gaussian, sigma_for
from adaptive_dp.queries.moments import kept


class PerturbedCoefficients(Mechanism):
    """Release ``theta = (X'X + ridge I)^-1 X'y`` with noise for its local sensitivity, or NaN.

    It follows three released values: the ridge, a `LowerBound` l of the least eigenvalue of
    ``X'X``, and an `UpperBound` u of what `CoefficientNorm` says of that ridge and l. Let Z be the
    smaller of two neighbours, and (x, y) the row that the larger has more. Then
    ``theta' - theta = H'^-1 x (y - x'theta)`` with ``H' = X'X + x x' + ridge I``, so where the
    bounds are right ``|theta' - theta| <= (1 + T) / h``, with ``h = ridge + l`` and
    ``log(1 + T) = u log(1 + 1/h)``. The noise is ``N(0, sigma^2)`` at the sigma for which that
    costs mu: a function of released values. Where these tell nothing, NaN is returned.

    Where the bounds are wrong nothing is promised; they pay for that themselves (`LowerBound`).
    Theta is rounded to floats, by at most 2^-52 (1 + T) in each coordinate of two, and the noise is
    exact (see `Gaussian`): both are in the distance.

    Parameters
    ----------
    mu
        The promise: no more than a Gaussian's loss, between neighbours of one row.

    References
    ----------
    Redberg, Zhu and Wang 2023 (from per-instance to differential privacy); the bound is derived
    here. For a loss that is not quadratic the curvature at theta bounds nothing: it may be less on
    the way to theta'.

    Examples
    --------
    `AdaptiveOutputPerturbation` releases the values that it follows, and then the coefficients:

    >>> import adaptive_dp as dp
    >>> PerturbedCoefficients(mu=0.25).loss(distance=1)
    GaussianBound(mu=0.25)
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.AdaptiveOutputPerturbation(["age"], "days")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6))
    >>> [name.split(".")[1] for name in plan.certify(delta=1e-6).shares]
    ['smallest_eigenvalue', 'coefficient_norm', 'coefficients']
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Moments
    given: ClassVar[int] = 3
    theorem: ClassVar[str] = "local sensitivity of ridge regression: perturbed_coefficients.py"
    sampler: ClassVar[str] = Gaussian.sampler

    mu: float = budget_parameter("mu")

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of the coefficients."""
        return (value[0] - 1,)

    def release(self, value: Moments, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the coefficients with noise, or NaN where the bounds tell nothing."""
        ridge, bound, size = (float(v) for v in given)
        width = len(value) - 1
        sigma = noise(ridge, bound, size, mu=self.mu, width=width)
        if math.isinf(sigma):
            return np.full(width, math.nan)
        _, centre = solution(value, kept(ridge, bound)[0])
        return Gaussian(sigma).release(np.array([float(c) for c in centre]), stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bound of mu, for one row that comes or goes."""
        if distance > 1 + 1e-9:
            raise DeclarationError(
                f"PerturbedCoefficients protects one row that comes or goes, here {distance:.6g} "
                "do; use neighbors='add_remove' or 'zero_out' and rows_per_unit=1"
            )
        return GaussianBound(self.mu)

    def premises(self, release: Any) -> None:
        """Refuse to follow bounds that are not of the data that is read, or of this ridge."""
        query, ridge, bound, size = release.inputs
        follows("PerturbedCoefficients", query.inputs[0], ridge, bound, size)


def noise(ridge: float, bound: float, size: float, *, mu: float, width: int) -> float:
    """Return the sigma for which the local sensitivity costs mu; infinite where it is unknown.

    Examples
    --------
    >>> round(noise(1.0, 99.0, 0.0, mu=0.5, width=3), 6)
    0.02
    """
    known = bounds_of(ridge, bound, size)
    if known is None:
        return math.inf
    rounding = math.sqrt(width) * known.residual * 2.0**-50
    return sigma_for(mu, (known.residual / known.curvature + rounding) * (1 + 1e-12), width)
