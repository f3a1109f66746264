"""Mechanisms that follow released bounds: posterior samples and perturbed ridge coefficients."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import Approximate, BoundedRange, GaussianBound, PrivacyLoss
from accountants import Gaussian as GaussianLoss
from accountants.definitions import gdp_profile
from accountants.losses.composite import Composite
from accountants.numerics import Array, down, up
from adaptive_dp.data.linear_systems import (
    Matrix,
    Moments,
    Vector,
    backward,
    precise,
    solution,
    system,
)
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Release
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.values import number, positive
from adaptive_dp.instance.records import RidgeBounds, worst_curve
from adaptive_dp.mechanisms.additive import Gaussian, sigma_for
from adaptive_dp.mechanisms.released_bounds import LowerBound, UpperBound, check_failure
from adaptive_dp.noise.stream import FLOAT_SAMPLER, Stream
from adaptive_dp.queries.moments import (
    FARTHEST,
    CoefficientNorm,
    LeastEigenvalue,
    clamp_released,
    unit,
)

# -----------------------------------------------------------------------------
# The coldest ridge posterior whose loss a Gaussian of a given mu dominates, but for a failure.
#
# The losses of all pairs that bounds allow (`adaptive_dp.instance.records`) are to be at
# most
# ``failure + (1 - failure) delta_mu(epsilon)`` at every epsilon, delta_mu the profile of N(0, 1)
# against N(mu, 1). At a negative epsilon the same then follows from the other direction:
# ``delta(-e) = 1 - e^-e + e^-e delta'(e)`` for both. So the sample composes as a Gaussian does,
# by the sum of squares, instead of by the sum of epsilons: of the total's mu the bounds that it
# follows take a few per cent.
#
# Both sides fall in epsilon. They are compared between the points of a grid: the left at its lower
# end, the right at its upper; beyond the last point the failure alone must do.


_POINTS = 800
"""The grid goes on to a little after where the Gaussian's own loss is a failure's."""


def coldest(bounds: RidgeBounds, mu: float, failure: float) -> float:
    """Return the largest gamma that is `within` the promise, from below; 0 where none is.

    What is returned has been checked.

    Examples
    --------
    >>> known = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(coldest(known, mu=0.2, failure=1e-7), 4)
    0.8206
    """
    # at a small leverage the gap is mu: gamma residual^2 / curvature = mu^2
    high = 2 * mu * mu * (bounds.curvature + 1) / bounds.residual**2
    low = high
    while not within(low, bounds, mu, failure):
        low /= 4
        if low < high * 1e-12 or low < 1e-280:
            return 0.0
    high = min(high, 4 * low)
    while high > low * (1 + 1e-6):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle, bounds, mu, failure) else (low, middle)
    return low


def within(gamma: float, bounds: RidgeBounds, mu: float, failure: float) -> bool:
    """Return whether the Gaussian of ``mu`` dominates every pair, outside of the failure.

    Parameters
    ----------
    gamma
        Positive: the posterior's precision is ``gamma (X'X + ridge I)``.
    bounds
        Of the smaller of two neighbours (``removals=False``).
    mu, failure
        The promise: positive, and a probability.
    """
    points, promised = _promise(mu, failure)
    found = worst_curve(points, gamma, bounds)
    return bool(np.all(found <= down_all(failure + (1 - failure) * promised)))


@lru_cache(maxsize=64)
def _promise(mu: float, failure: float) -> tuple[Array, Array]:
    """Return the grid, and lower bounds of the Gaussian's profile at each next point."""
    middle, far = mu * mu / 2, mu * 1.25 * math.sqrt(-2 * math.log(failure))
    near = np.linspace(0.0, middle, 40, endpoint=False)
    points = np.concatenate([near, middle + np.linspace(0.0, far, _POINTS)])
    lower = [gdp_profile(mu, float(e)).lower for e in points[1:]]
    return points, np.array([*lower, 0.0])


def down_all(values: Array) -> Array:
    """Return numbers below ``values`` and their rounding."""
    return values * (1 - 2.0**-50)


# -----------------------------------------------------------------------------
# A sample of the ridge posterior, at a temperature that released bounds allow.


class PosteriorSample(Mechanism):
    """A draw of ``N(theta, (1/gamma) H^-1)``, ``H = X'X + ridge I``, ``theta = H^-1 X'y``, or NaN.

    It follows four released values: the ridge, gamma, a `LowerBound` l of the least eigenvalue of
    ``X'X``, and an `UpperBound` u of what `CoefficientNorm` says of that ridge and l. Let Z be the
    smaller of two neighbours. Where the bounds are right, ``H >= (ridge + l) I`` at Z, and every
    record has there ``|y - x'theta| <= 1 + T`` with ``log(1 + T) = u log(1 + 1/(ridge + l))``. So
    the worst loss of all such pairs, in both directions, is a function of released values
    (`adaptive_dp.instance.records`). Where it is not within the promise at the gamma that
    was proposed (`adaptive_dp.instance.posterior_mechanisms`), NaN is returned: propose, test,
    release.

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
    >>> round(loss.mu(), 6), loss.delta_floor()
    (0.25, 1e-07)
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> plan = dp.Pipeline(model=people.solve(dp.AdaOPS(["age"], "days"), epsilon=1.0, delta=1e-6))
    >>> [name.split(".")[1] for name in plan.certify(delta=1e-6).shares]
    ['smallest_eigenvalue', 'coefficient_norm', 'posterior_sample']
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Moments
    released_inputs: ClassVar[int] = 4
    theorem: ClassVar[str] = "exact loss of a ridge posterior: adaptive_dp.instance.records"
    sampler: ClassVar[str] = f"Gaussian, {FLOAT_SAMPLER}, through an exact factor"

    mu: float = budget_parameter("mu")
    failure: float = field(converter=number, validator=check_failure)

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
        ridge, bound = clamp_released(ridge, bound)
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
    ridge, bound = clamp_released(ridge, bound)
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


# -----------------------------------------------------------------------------
# A sample of the ridge posterior that is kept to a ball: pure epsilon, for any data.


BATCH = 512
"""Proposals at a time."""

NEAR = 1e-6
"""How far off, as a part of the ball's radius squared, a float proposal's square is taken to be."""


class TruncatedPosterior(Mechanism):
    """A draw of the posterior ``N(theta, (1/gamma) H^-1)`` kept to the ball ``|w| <= radius``.

    Its density is ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on the ball, but for a constant. A
    row with ``|x| <= 1, |y| <= 1`` moves the exponent by ``gamma (y - x'w)^2 / 2``, between 0 and
    ``gamma (1 + radius)^2 / 2``: the log ratio of two neighbours has that range, for any data.

    Without the ball no gamma would do for all data: n rows of ``|x| = sqrt(ridge / n)``, y = 1,
    make ``|theta| = sqrt(n / ridge) / 2``, and with it the loss of the next row as large as one
    likes. With at most n rows ``|theta| <= sqrt(n / ridge) / 2`` is the bound.

    A row's ``(y - x'w)^2`` ranges over less than that in a small ball: see `row_range`.

    It is drawn by rejection. How many proposals that takes depends on the data: `ball_draw` chooses
    its proposals so that 512 of them, which are always drawn, are nearly always enough, but no
    proof bounds their number. Where the time of a run can be seen, choose among the points of a
    grid instead (`FiniteLearner`).

    *Utility.* Let ``F(w) = (|y - Xw|^2 + ridge |w|^2) / 2``, f its excess over the minimum in the
    ball, which lies at w*. Then ``E f <= d / gamma``: ``s^d Z(s) = s^d int_C e^{-s f}`` is the
    integral of ``e^{-s f(w* + u/s)}`` over ``s (C - w*)``, which grows with s, and so does the
    integrand, since f is convex and 0 at w*; so ``0 <= d/ds log(s^d Z(s)) = d/s - E f`` at
    ``s = gamma``. It holds for every convex loss and body: d times the temperature, and
    ``f = |w|`` attains it as the body grows.

    Parameters
    ----------
    gamma
        The inverse temperature: the loss's range is ``gamma row_range(radius) / 2`` for a row.
    ridge
        Of the prior ``N(0, I / (gamma ridge))``, kept to the ball.
    radius
        Of the ball, in [2^-20, 2^20].

    References
    ----------
    Wang, Fienberg and Smola 2015, Thm 1 (one posterior sample), with the range in place of the
    absolute value; Dimitrakakis et al. 2017. The bound of the excess is a well-known one for Gibbs
    measures; its proof above is our own.

    Examples
    --------
    A row ranges over ``(1 + radius)^2 = 4``, of which gamma / 2 are paid:

    >>> loss = TruncatedPosterior(gamma=0.5, ridge=1.0, radius=1.0).loss(distance=1)
    >>> round(loss.pure(), 6)
    1.0
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Moments
    theorem: ClassVar[str] = "Wang, Fienberg & Smola 2015, Thm 1, as a bounded range"
    sampler: ClassVar[str] = f"truncated Gaussian by rejection, {FLOAT_SAMPLER}"

    gamma: float = budget_parameter("gamma")
    ridge: float = field(converter=number)
    radius: float = field(converter=number)

    def __attrs_post_init__(self) -> None:
        for name, value, low, high in (
            ("ridge", self.ridge, 2.0**-9, 2.0**40),
            ("radius", self.radius, 2.0**-20, 2.0**20),
        ):
            if not (positive(value) and low <= value <= high):
                raise DeclarationError(
                    f"TruncatedPosterior.{name} must be in [{low:g}, {high:g}], got {value!r}"
                )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return that of the coefficients."""
        return (value[0] - 1,)

    def release(self, value: Moments, stream: Stream) -> NDArray[Any]:
        """Return the draw."""
        found = ball_draw(value, stream, self.gamma, self.ridge, self.radius)
        return rounded(found, 2.0 ** (math.floor(math.log2(self.radius)) - 40))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bounded range of ``distance`` rows that come or go."""
        return BoundedRange(up(distance * self.gamma * row_range(self.radius) / 2, 16))


def row_range(radius: float) -> float:
    """Return the range of ``(y - x'w)^2`` over the ball ``|w| <= radius``, the worst row's.

    With ``a = |x| radius`` the residual ranges over ``[y - a, y + a]``. Its square ranges over
    ``(|y| + a)^2`` where that contains 0, ``a >= |y|``, and else over ``4 a |y|``. With
    ``|x|, |y| <= 1`` the most is ``(1 + radius)^2``, or ``4 radius`` for a radius below 1.

    Two rows that are exchanged move the exponent by at most twice as much, and for a radius of at
    most 1 by that: ``(1 - x'w)^2 - (1 + x'w)^2 = -4 x'w``.

    Examples
    --------
    >>> row_range(2.0), row_range(0.25)
    (9.0, 1.0)
    """
    return (1 + radius) ** 2 if radius >= 1 else 4 * radius


def ball_draw(
    moments: Moments, stream: Stream, gamma: float, ridge: float, radius: float
) -> NDArray[Any]:
    """Return one draw of ``exp(-gamma (w - theta)' H (w - theta) / 2)`` on ``|w| <= radius``.

    For any ``k >= 0`` and ``theta_k = (H + k I)^-1 X'y`` the exponent is, but for a constant, that
    of ``N(theta_k, (H + k I)^-1 / gamma)`` plus ``gamma k |w|^2 / 2``. So proposals of that law
    inside the ball are kept with probability ``exp(-gamma k (radius^2 - |w|^2) / 2)``. The law of
    the result hangs on no k; `tilt` takes one at which proposals lie about the ball's surface where
    they would lie outside of it.
    """
    pull = tilt(moments, gamma, ridge, radius)
    lower, centre = tilted(moments, gamma, ridge, pull)
    factor = np.array([[float(v) for v in row] + [0.0] * (len(lower) - len(row)) for row in lower])
    middle = np.array([float(v) for v in centre])
    backward = np.linalg.inv(factor) / math.sqrt(gamma)
    while True:
        normal = stream.gaussian(1.0, (BATCH, len(middle)))
        coin = np.log(stream.uniform((BATCH,)))
        proposals = middle + normal @ backward
        inside = radius**2 - (proposals**2).sum(axis=1) + NEAR * radius**2
        # floats only sort out what is far from being kept: collinear rows make them inexact
        for i in np.flatnonzero((inside >= 0) & (coin <= pull * (NEAR * radius**2 - inside / 2))):
            found = drawn(lower, centre, normal[i], gamma)
            room = radius**2 - float(found @ found)
            if room >= 0 and coin[i] <= -pull / 2 * room:
                return found


@precise
def tilted(moments: Moments, gamma: float, ridge: float, pull: float) -> tuple[Matrix, Vector]:
    """Return the factor of ``H + k I`` and theta_k, at ``k = pull / gamma``."""
    return solution(moments, Decimal(ridge) + Decimal(pull) / Decimal(gamma))


def tilt(moments: Moments, gamma: float, ridge: float, radius: float) -> float:
    """Return ``gamma k`` at which ``E |w|^2`` of a proposal is radius^2; 0 where it is less at 0.

    ``E |w|^2 = |theta_k|^2 + trace (H + k I)^-1 / gamma`` falls as k grows. Floats will do.
    """
    matrix, cross = system(moments, ridge)
    values, basis = np.linalg.eigh(np.array([[float(v) for v in row] for row in matrix]))
    curved = np.maximum(values, ridge)
    along = basis.T @ np.array([float(v) for v in cross])

    def square(pull: float) -> float:
        with np.errstate(over="ignore"):
            theta = along / (curved + pull / gamma)
            return float(theta @ theta + (1 / (gamma * curved + pull)).sum())

    if square(0.0) <= radius**2:
        return 0.0
    low, high = 0.0, 1.0
    while square(high) > radius**2:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if square(middle) > radius**2 else (low, middle)
    return high


# -----------------------------------------------------------------------------
# Ridge coefficients with noise scaled to a released bound of their local sensitivity.


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
    input_type: ClassVar[type] = Moments
    released_inputs: ClassVar[int] = 3
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
        _, centre = solution(value, clamp_released(ridge, bound)[0])
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
