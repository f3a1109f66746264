"""A sample of the ridge posterior, at a temperature that released bounds allow."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import Approximate, PrivacyLoss
from accountants import Gaussian as GaussianLoss
from accountants.losses.composite import Composite
from accountants.rounding import down, up
from adaptive_dp.data.linear_systems import Matrix, Moments, Vector, backward, precise, solution
from adaptive_dp.graph.convert import number
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.steps import Release
from adaptive_dp.instance.gaussian_promise import within
from adaptive_dp.instance.worst_posterior import RidgeBounds
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.primitives.gaussian_bound import LowerBound, UpperBound, probable
from adaptive_dp.queries.moments import FARTHEST, CoefficientNorm, LeastEigenvalue, kept, unit


class PosteriorSample(Mechanism):
    """A draw of ``N(theta, (1/gamma) H^-1)``, ``H = X'X + ridge I``, ``theta = H^-1 X'y``, or NaN.

    It follows four released values: the ridge, gamma, a `LowerBound` l of the least eigenvalue of
    ``X'X``, and an `UpperBound` u of what `CoefficientNorm` says of that ridge and l. Let Z be the
    smaller of two neighbours. Where the bounds are right, ``H >= (ridge + l) I`` at Z, and every
    record has there ``|y - x'theta| <= 1 + T`` with ``log(1 + T) = u log(1 + 1/(ridge + l))``. So
    the worst loss of all such pairs, in both directions, is a function of released values
    (`adaptive_dp.instance.worst_posterior`). Where it is not within the promise at the gamma that
    was proposed (`adaptive_dp.instance.gaussian_promise`), NaN is returned: propose, test, release.

    Where the bounds are wrong nothing is promised; they pay for that themselves (`LowerBound`).

    The factor and theta are computed in decimals that cost no privacy; gamma is taken 2^-30
    smaller for it. The noise is float64, and the draw is rounded to 2^-40 of the largest deviation
    that the released values allow.

    Parameters
    ----------
    mu, failure
        The promise: a Gaussian's loss, but for a failure, between neighbours of one row.

    References
    ----------
    Wang 2018 (AdaOPS); Wang 2019; Redberg, Zhu and Wang 2023. The printed constants are not
    private: the loss used here is the exact one.

    Examples
    --------
    `AdaOPS` releases the values that it follows, and then the draw:

    >>> import adaptive_dp as dp
    >>> loss = PosteriorSample(mu=0.25, failure=1e-7).loss(distance=1)
    >>> round(loss.mu(), 6), loss.failure()
    (0.25, 1e-07)
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> plan = dp.Pipeline(model=people.solve(dp.AdaOPS(["age"], "days"), epsilon=1.0, delta=1e-6))
    >>> [name.split(".")[1] for name in plan.certify(delta=1e-6).shares]
    ['smallest_eigenvalue', 'coefficient_norm', 'posterior_sample']
    """

    norm: ClassVar[float] = 0
    reads: ClassVar[type] = Moments
    given: ClassVar[int] = 4
    theorem: ClassVar[str] = "exact loss of a ridge posterior: adaptive_dp.instance.worst_posterior"
    sampler: ClassVar[str] = f"Gaussian, {FLOAT_SAMPLER}, through an exact factor"

    mu: float = budget_parameter("mu")
    failure: float = field(converter=number, validator=probable)

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of the coefficients."""
        return (value[0] - 1,)

    def release(self, value: Moments, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the draw, or NaN where gamma fails the test."""
        width = len(value) - 1
        noise = stream.gaussian(1.0, (width,))
        ridge, gamma, bound, size = (float(v) for v in given)
        if not passes(gamma, ridge, bound, size, mu=self.mu, failure=self.failure):
            return np.full(width, math.nan)
        ridge, bound = kept(ridge, bound)
        factor, centre = solution(value, ridge)
        spread = 1 / math.sqrt(gamma * (ridge + bound))
        step = 2.0 ** (math.floor(math.log2(spread)) - 40)
        return rounded(drawn(factor, centre, noise, gamma * (1 - 2.0**-30)), step)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the Gaussian's loss with the failure, for one row that comes or goes."""
        if distance > 1 + 1e-9:
            raise DeclarationError(
                f"PosteriorSample protects one row that comes or goes, here {distance:.6g} do; use "
                "neighbors='add_remove' or 'zero_out' and rows_per_unit=1"
            )
        return Composite(((GaussianLoss(self.mu), 1), (Approximate(0.0, self.failure), 1)))

    def premises(self, release: Any) -> None:
        """Refuse to follow bounds that are not of the data that is sampled, or of this ridge."""
        query, ridge, _, bound, size = release.inputs
        follows("PosteriorSample", query.inputs[0], ridge, bound, size)


def follows(name: str, moments: Any, ridge: Any, bound: Any, size: Any) -> None:
    """Refuse bounds that are not of these moments, or of this ridge (all are handles)."""
    good = _bounds(bound, LowerBound, LeastEigenvalue) and bound.inputs[0].inputs[0] is moments
    good = good and _bounds(size, UpperBound, CoefficientNorm)
    if not good or not _same(size.inputs[0].inputs, (moments, ridge, bound)):
        raise DeclarationError(
            f"{name} is given a ridge, a LowerBound release of the least eigenvalue and, last, an "
            "UpperBound release of the coefficient norm, all of the moments that it reads, the "
            "last for that ridge and that bound; see dp.AdaOPS"
        )


def passes(
    gamma: float, ridge: float, bound: float, size: float, *, mu: float, failure: float
) -> bool:
    """Return whether the promise holds for every pair of neighbours that the bounds allow."""
    known = bounds_of(ridge, bound, size)
    if known is None or not 1e-280 < gamma < 1e280:
        return False
    return within(gamma, known, mu, failure)


def bounds_of(ridge: float, bound: float, size: float) -> RidgeBounds | None:
    """Return what released values say of the smaller data set; None where that is nothing."""
    if not size < FARTHEST / 2:  # the norm may be cut off
        return None
    ridge, bound = kept(ridge, bound)
    exponent = up(max(0.0, size) * unit(ridge, bound), 8)
    if not exponent < 200:
        return None
    # (1 + T) is the exponential itself
    return RidgeBounds(
        curvature=down(ridge + bound), ridge=down(ridge), norm=1.0,
        residual=up(math.exp(exponent), 8), removals=False,
    )  # fmt: skip


@precise
def drawn(factor: Matrix, centre: Vector, noise: NDArray[Any], gamma: float) -> NDArray[Any]:
    """Return ``theta + L'^-1 z / sqrt(gamma)``, of the nearest floats."""
    scale = Decimal(gamma).sqrt()
    moved = backward(factor, [Decimal(float(z)) / scale for z in noise])
    return np.array([float(c + m) for c, m in zip(centre, moved, strict=True)])


def rounded(values: NDArray[Any], step: float) -> NDArray[Any]:
    """Return the nearest multiples of a power of two."""
    return np.asarray(np.rint(values / step) * step)


def _bounds(handle: Any, mechanism: type[Mechanism], query: type) -> bool:
    operation = handle.operation
    return (
        isinstance(operation, Release)
        and isinstance(operation.mechanism, mechanism)
        and isinstance(handle.inputs[0].operation, query)
    )


def _same(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    return len(found) == len(wanted) and all(a is b for a, b in zip(found, wanted, strict=True))
