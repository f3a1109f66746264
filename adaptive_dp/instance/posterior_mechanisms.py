"""Mechanisms whose loss rests on per-instance bounds: posterior samples, noisy ridge coefficients.

`PosteriorSample` and `PerturbedCoefficients` are given released bounds of the data's own loss, and
adapt to them; `TruncatedPosterior` needs no bound. They are here, and not in
`adaptive_dp.mechanisms`, since their losses are computed in `adaptive_dp.instance.records`.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import Approximate, BoundedRange, PrivacyLoss
from accountants import Gaussian as GaussianLoss
from accountants.losses.composite import Composite
from accountants.numerics import down, up
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
from adaptive_dp.graph.mechanism import Mechanism, budget_parameter
from adaptive_dp.graph.values import number, positive
from adaptive_dp.instance.following import (
    InstanceGaussian,
    group_failure,
    is_release,
    is_within,
    rows_of,
    times,
)
from adaptive_dp.instance.records import RidgeBounds, worst_curve
from adaptive_dp.mechanisms.additive import Validator, checked, sigma_for
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
# A sample of the ridge posterior, at a temperature that released bounds allow.


class _RidgeMechanism(Mechanism):
    """The base of mechanisms that read second moments and release ridge coefficients."""

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = Moments
    no_interval: ClassVar[str] = (
        "how far it is from the minimizer depends on the second moments of the data, which are not "
        "released; for intervals of a linear regression use dp.SSP"
    )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the coefficients, (p,); the moments have one column more."""
        return (value[0] - 1,)


class PosteriorSample(_RidgeMechanism):
    """Draw from a ridge regression's posterior at a temperature that released bounds allow, or NaN.

    The posterior is ``N(theta, (1/gamma) H^-1)``, ``H = X'X + ridge I``, ``theta = H^-1 X'y``. Five
    released values are given: the ridge, gamma, a `LowerBound` l of the least eigenvalue of
    ``X'X``, an `UpperBound` u of the value of `CoefficientNorm` for some ridge r and l, and r,
    which is at most the ridge.

    Privacy: for each row that comes or goes the loss of a Gaussian of ``mu``, and a delta of
    ``failure``, where the bounds are right. Let Z be the smaller of two neighbours. Then
    ``H >= (ridge + l) I`` at Z, and every record has there ``|y - x'theta| <= 1 + T`` with
    ``log(1 + T) = u log(1 + 1/(r + l))``: a larger ridge only makes theta shorter. So the worst
    loss of all such pairs, in both directions, is a function of released values
    (`adaptive_dp.instance.records`). Where it is not within the promise at the given gamma
    (`is_dominated`), NaN is returned: propose, test, release. Where the bounds are wrong nothing is
    promised; they pay for that themselves (`LowerBound`).

    Several rows go one by one until only those are left that both data sets have, and then come one
    by one. All data sets on this way are within the bounds' reach, so that each step keeps the
    promise: k rows cost a Gaussian's loss of ``k mu``, and the delta of `group_failure`. Less would
    not do: where ``(x, 1)`` is exchanged for ``(x, -1)``, theta moves by nearly twice as much.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, between neighbours of one row.
    failure
        The delta of the promise, in [1e-18, 0.5).

    Notes
    -----
    Noise: `Stream.gaussian`, in float64, times an exact factor. The factor and theta are computed
    in decimals whose error costs no privacy: gamma is taken 2^-30 smaller for it. The draw is
    rounded to 2^-40 of the largest deviation that the released values allow.

    References
    ----------
    Wang 2018 (AdaOPS); Wang 2019; Redberg, Zhu and Wang 2023. The printed constants are not
    private: the loss used here is the exact one.

    See Also
    --------
    PerturbedCoefficients : the coefficients plus noise, by the same bounds.
    TruncatedPosterior : a pure epsilon, without released bounds.

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

    released_inputs: ClassVar[int] = 5
    theorem: ClassVar[str] = "exact loss of a ridge posterior: adaptive_dp.instance.records"
    sampler: ClassVar[str] = f"Gaussian, {FLOAT_SAMPLER}, through an exact factor"

    mu: float = budget_parameter("mu")
    failure: float = field(converter=number, validator=check_failure)

    def release(self, value: Moments, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the draw, or NaN where gamma fails the test; shape (p,)."""
        width = len(value) - 1
        noise = stream.gaussian(1.0, (width,))
        ridge, gamma, bound, size, first = (float(v) for v in given)
        # the test reads released values alone, so that it costs nothing and its answer is public
        if not passes_test(gamma, ridge, bound, size, first, mu=self.mu, failure=self.failure):
            return np.full(width, math.nan)
        ridge, bound = clamp_released(ridge, bound)
        factor, centre = solution(value, ridge)
        # no direction has a larger deviation; like the step, it is a function of released values
        deviation = 1 / math.sqrt(gamma * (ridge + bound))
        step = 2.0 ** (math.floor(math.log2(deviation)) - 40)
        return round_to_step(gaussian_draw(factor, centre, noise, gamma * (1 - 2.0**-30)), step)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the Gaussian's loss with the failure, for ``distance`` rows that come or go."""
        rows = rows_of(distance)
        failure = group_failure(self.failure, self.mu, rows)
        return Composite(((GaussianLoss(times(self.mu, rows)), 1), (Approximate(0.0, failure), 1)))

    def premises(self, release: Any) -> None:
        """Refuse released bounds that are not of the moments that are read, or of this ridge."""
        query, _, _, bound, size, first = release.inputs
        check_bounds("PosteriorSample", query.inputs[0], first, bound, size)


# -----------------------------------------------------------------------------
# The coldest ridge posterior whose loss a Gaussian of a given mu dominates, but for a failure.
#
# The losses of all pairs that bounds allow (`adaptive_dp.instance.records`) are to be within the
# promise (`is_within`). So the sample composes as a Gaussian does, by the sum of squares, instead
# of by the sum of epsilons: of the total's mu the bounds that it follows take a few per cent.


def largest_dominated_gamma(bounds: RidgeBounds, mu: float, failure: float) -> float:
    """Return the largest gamma that `is_dominated` allows, from below; 0 where there is none.

    What is returned has been checked.

    Examples
    --------
    >>> bounds = RidgeBounds(curvature=100, ridge=1, norm=1, residual=2, removals=False)
    >>> round(largest_dominated_gamma(bounds, mu=0.2, failure=1e-7), 4)
    0.8206
    """
    # start: at a small leverage the gap is mu where gamma residual^2 / curvature = mu^2
    high = 2 * mu * mu * (bounds.curvature + 1) / bounds.residual**2
    low = high
    while not is_dominated(low, bounds, mu, failure):
        low /= 4
        if low < high * 1e-12 or low < 1e-280:
            return 0.0
    high = min(high, 4 * low)
    while high > low * (1 + 1e-6):
        middle = (low + high) / 2
        low, high = (middle, high) if is_dominated(middle, bounds, mu, failure) else (low, middle)
    return low


def is_dominated(gamma: float, bounds: RidgeBounds, mu: float, failure: float) -> bool:
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
    return is_within(lambda epsilons: worst_curve(epsilons, gamma, bounds), mu, failure)


# -----------------------------------------------------------------------------
# Ridge coefficients with noise for a released bound of their local sensitivity.


class PerturbedCoefficients(InstanceGaussian):
    """Release ridge coefficients with noise for a bound of their local sensitivity, or NaN.

    The coefficients are ``theta = (X'X + ridge I)^-1 X'y``. Three released values are given: the
    ridge, a `LowerBound` l of the least eigenvalue of ``X'X``, and an `UpperBound` u of the value
    of `CoefficientNorm` for that ridge and l. The noise is ``N(0, sigma^2)`` at the sigma for which
    the local sensitivity costs mu: a function of released values. Where these bound nothing, NaN
    is returned.

    Privacy: at most the loss of a Gaussian of ``mu``, where the bounds are right. Let Z be the
    smaller of two neighbours, and (x, y) the row that the larger has more. Then
    ``theta' - theta = H'^-1 x (y - x'theta)`` with ``H' = X'X + x x' + ridge I``, so
    ``|theta' - theta| <= (1 + T) / h``, with ``h = ridge + l`` and ``log(1 + T) = u log(1 + 1/h)``.
    Where the bounds are wrong nothing is promised; they pay for that themselves (`LowerBound`).
    Several rows go and come one by one, as for `PosteriorSample`: k of them cost ``k mu``.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, between neighbours of one row.

    Notes
    -----
    Noise: that of `Gaussian`, exact. Theta is rounded to floats, by at most 2^-52 (1 + T) in each
    coordinate at either neighbour; that, and the rounding of `Gaussian`, are in the distance.

    References
    ----------
    Redberg, Zhu and Wang 2023 (from per-instance to differential privacy); the bound is derived
    here. For a loss that is not quadratic the curvature at theta bounds nothing: it may be less on
    the way to theta'.

    See Also
    --------
    PosteriorSample : a draw of the posterior, by the same bounds.

    Examples
    --------
    `AdaptiveOutputPerturbation` releases these values, and then the coefficients:

    >>> import adaptive_dp as dp
    >>> PerturbedCoefficients(mu=0.25).loss(distance=1)
    GaussianBound(mu=0.25)
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.AdaptiveOutputPerturbation(["age"], "days")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6))
    >>> [name.split(".")[1] for name in plan.certify(delta=1e-6).shares]
    ['smallest_eigenvalue', 'coefficient_norm', 'coefficients']
    """

    input_type: ClassVar[type] = Moments
    released_inputs: ClassVar[int] = 3
    no_interval: ClassVar[str] = _RidgeMechanism.no_interval
    theorem: ClassVar[str] = (
        "local sensitivity of ridge regression: adaptive_dp.instance.posterior_mechanisms"
    )

    def shape(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the coefficients, (p,); the moments have one column more."""
        return (value[0] - 1,)

    def sensitivity(self, width: int, *given: Any) -> float:
        """Return ``(1 + T) / h``, and the rounding of theta; infinite where it is unknown."""
        bounds = bounds_of(*(float(v) for v in given))
        if bounds is None:
            return math.inf
        # twice the rounding of theta to floats, at both neighbours, with room for its computation
        rounding = math.sqrt(width) * bounds.residual * 2.0**-50
        return (bounds.residual / bounds.curvature + rounding) * (1 + 1e-12)

    def center(self, value: Moments, *given: Any) -> NDArray[Any]:
        """Return theta as floats."""
        ridge, bound, _ = (float(v) for v in given)
        _, theta = solution(value, clamp_released(ridge, bound)[0])
        return np.array([float(c) for c in theta])

    def premises(self, release: Any) -> None:
        """Refuse released bounds that are not of the moments that are read, or of this ridge."""
        query, ridge, bound, size = release.inputs
        check_bounds("PerturbedCoefficients", query.inputs[0], ridge, bound, size)


def sigma_of_bounds(ridge: float, bound: float, size: float, *, mu: float, width: int) -> float:
    """Return the sigma for which the local sensitivity costs mu; infinite where it is unknown.

    Examples
    --------
    >>> round(sigma_of_bounds(1.0, 99.0, 0.0, mu=0.5, width=3), 6)
    0.02
    """
    moved = PerturbedCoefficients(mu).sensitivity(width, ridge, bound, size)
    return sigma_for(mu, moved, width) if moved < math.inf else math.inf


# -----------------------------------------------------------------------------
# What both mechanisms read off released bounds.


def check_bounds(name: str, moments: Any, ridge: Any, bound: Any, size: Any) -> None:
    """Refuse released bounds that are not of these moments, or of this ridge (all are handles)."""
    fits = (
        is_release(bound, LowerBound, LeastEigenvalue)
        and bound.inputs[0].inputs[0] is moments
        and is_release(size, UpperBound, CoefficientNorm)
        # the very same handles: equal ones could be other releases
        and [id(each) for each in size.inputs[0].inputs] == [id(moments), id(ridge), id(bound)]
        # all rows that come and go are within the reach of `size`, or it is refused; an exchange
        # moves the eigenvalue by fewer, but there are data sets in between
        and bound.operation.mechanism.reach >= size.operation.mechanism.reach
    )
    if not fits:
        raise DeclarationError(
            f"{name} is given a LowerBound release of the least eigenvalue and an UpperBound "
            "release of the coefficient norm for that bound, both of the moments that it reads, "
            "the latter with a reach of at most the former's, and the very ridge that the latter "
            "is given; see dp.AdaOPS"
        )


def passes_test(
    gamma: float,
    ridge: float,
    bound: float,
    size: float,
    first: float,
    *,
    mu: float,
    failure: float,
) -> bool:
    """Return whether the promise holds for every pair of neighbours that the bounds allow."""
    bounds = bounds_of(ridge, bound, size, first)
    if bounds is None or not 1e-280 < gamma < 1e280:
        return False
    return is_dominated(gamma, bounds, mu, failure)


def bounds_of(
    ridge: float, bound: float, size: float, first: float | None = None
) -> RidgeBounds | None:
    """Return what released values say of the smaller data set; None where they bound nothing.

    Parameters
    ----------
    ridge, bound, size
        The released ridge, the lower bound l of the least eigenvalue of ``X'X``, and the upper
        bound u of the value of `CoefficientNorm`.
    first
        The ridge at which u was released, at most the other one; by default the same.
    """
    if not size < FARTHEST / 2:  # the norm may be cut off
        return None
    least, _ = clamp_released(ridge if first is None else first, bound)
    ridge, bound = clamp_released(ridge, bound)
    exponent = up(max(0.0, size) * unit(least, bound), 8)  # log(1 + T)
    # |theta| falls as the ridge grows: at a ridge below the first, T would not bound it
    if not (least <= ridge and exponent < 200):
        return None
    # |y - x'theta| <= 1 + T, which is the exponential itself
    return RidgeBounds(
        curvature=down(ridge + bound), ridge=down(ridge), norm=1.0,
        residual=up(math.exp(exponent), 8), removals=False,
    )  # fmt: skip


@precise
def gaussian_draw(
    factor: Matrix, centre: Vector, noise: NDArray[Any], gamma: float
) -> NDArray[Any]:
    """Return ``theta + L'^-1 z / sqrt(gamma)`` in decimals, as the nearest floats."""
    scale = Decimal(gamma).sqrt()
    offset = backward(factor, [Decimal(float(z)) / scale for z in noise])
    return np.array([float(c + m) for c, m in zip(centre, offset, strict=True)])


def round_to_step(values: NDArray[Any], step: float) -> NDArray[Any]:
    """Return the nearest multiples of a power of two."""
    return np.asarray(np.rint(values / step) * step)


# -----------------------------------------------------------------------------
# A sample of the ridge posterior restricted to a ball: pure epsilon, for any data.


BATCH = 512
"""Proposals at a time."""

FLOAT_TOLERANCE = 1e-6
"""How far off a float proposal's squared norm may be, as a part of the squared radius."""


def _within(low: float, high: float) -> Validator:
    return checked(lambda v: positive(v) and low <= v <= high, f"in [{low:g}, {high:g}]")


class TruncatedPosterior(_RidgeMechanism):
    """Draw from a ridge regression's posterior restricted to a ball ``|w| <= radius``.

    The density is proportional to ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on the ball.

    Privacy: a bounded range of ``gamma (1 + radius)^2 / 2`` for a row that comes or goes, for any
    data: a row with ``|x| <= 1, |y| <= 1`` moves the exponent by ``gamma (y - x'w)^2 / 2``, between
    0 and that. In a small ball the range is less: see `row_range`. Without the ball no gamma would
    do for all data: n rows of ``|x| = sqrt(ridge / n)``, y = 1, make ``|theta| = sqrt(n / ridge) /
    2``, and with it the loss of the next row as large as one likes. With at most n rows ``|theta|
    <= sqrt(n / ridge) / 2`` is the bound.

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

    Notes
    -----
    Noise: rejection from a Gaussian in float64 (`ball_draw`). How many proposals that takes depends
    on the data: 512 of them are always drawn, and are nearly always enough, but no proof bounds
    their number. Where the time of a run can be observed, choose among the points of a grid instead
    (`FiniteLearner`).

    References
    ----------
    Wang, Fienberg and Smola 2015, Thm 1 (one posterior sample), with the range in place of the
    absolute value; Dimitrakakis et al. 2017. The bound of the excess is a well-known one for Gibbs
    measures; its proof above is our own.

    See Also
    --------
    PosteriorSample : follows released bounds, at a delta.

    Examples
    --------
    A row ranges over ``(1 + radius)^2 = 4``, and costs gamma / 2 of that:

    >>> loss = TruncatedPosterior(gamma=0.5, ridge=1.0, radius=1.0).loss(distance=1)
    >>> round(loss.pure(), 6)
    1.0
    """

    theorem: ClassVar[str] = "Wang, Fienberg & Smola 2015, Thm 1, as a bounded range"
    sampler: ClassVar[str] = f"truncated Gaussian by rejection, {FLOAT_SAMPLER}"

    gamma: float = budget_parameter("gamma")
    ridge: float = field(converter=number, validator=_within(2.0**-9, 2.0**40))
    radius: float = field(converter=number, validator=_within(2.0**-20, 2.0**20))

    def release(self, value: Moments, stream: Stream) -> NDArray[Any]:
        """Return the draw, shape (p,)."""
        draw = ball_draw(value, stream, self.gamma, self.ridge, self.radius)
        return round_to_step(draw, 2.0 ** (math.floor(math.log2(self.radius)) - 40))

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bounded range of ``distance`` rows that come or go."""
        return BoundedRange(up(distance * self.gamma * row_range(self.radius) / 2, 16))


def row_range(radius: float) -> float:
    """Return the range of ``(y - x'w)^2`` over the ball ``|w| <= radius``, the worst row's.

    With ``a = |x| radius`` the residual ranges over ``[y - a, y + a]``. Its square ranges over
    ``(|y| + a)^2`` where that contains 0, ``a >= |y|``, and else over ``4 a |y|``. With
    ``|x|, |y| <= 1`` the most is ``(1 + radius)^2``, or ``4 radius`` for a radius below 1.

    Two rows that are exchanged move the exponent by at most twice as much, and no less will do. For
    a radius of at most 1 they do by ``(1 - x'w)^2 - (1 + x'w)^2 = -4 x'w``. For a larger one and
    two features or more take ``x = (1, 0)``, ``u = (-1/r, (1 - 1/r^2)^{1/2})``, both with
    ``y = 1``: at ``w = -r x`` the exponent is ``(1 + r)^2 - 0``, and at ``w = -r u`` it is
    ``0 - (1 + r)^2``. The range is what a pure epsilon must be: other rows may bring all of the
    posterior's mass near either point. (With one feature it is ``(1 + r)^2 + (1 + 1/r)^2``; an
    intercept makes them two.)

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
    inside the ball are accepted with probability ``exp(-gamma k (radius^2 - |w|^2) / 2)``. The law
    of the result is the same for every k; `tilt` returns one at which proposals lie about the
    ball's surface where they would lie outside of it.
    """
    pull = tilt(moments, gamma, ridge, radius)  # gamma k
    lower, centre = tilted(moments, gamma, ridge, pull)
    factor = np.array([[float(v) for v in row] + [0.0] * (len(lower) - len(row)) for row in lower])
    mean = np.array([float(v) for v in centre])
    inverse = np.linalg.inv(factor) / math.sqrt(gamma)
    tolerance = FLOAT_TOLERANCE * radius**2
    while True:
        # all are drawn before any is looked at
        normal = stream.gaussian(1.0, (BATCH, len(mean)))
        log_uniform = np.log(stream.uniform((BATCH,)))
        proposals = mean + normal @ inverse
        # radius^2 - |w|^2 in floats, and their tolerance: these only sort out what is far from
        # being accepted, for collinear rows make them inexact
        slack = radius**2 - (proposals**2).sum(axis=1) + tolerance
        candidates = (slack >= 0) & (log_uniform <= pull * (tolerance - slack / 2))
        for i in np.flatnonzero(candidates):
            # decided again for the draw that is released, computed in decimals
            draw = gaussian_draw(lower, centre, normal[i], gamma)
            exact_slack = radius**2 - float(draw @ draw)
            if exact_slack >= 0 and log_uniform[i] <= -pull / 2 * exact_slack:
                return draw


@precise
def tilted(moments: Moments, gamma: float, ridge: float, pull: float) -> tuple[Matrix, Vector]:
    """Return the factor of ``H + k I`` and theta_k, at ``k = pull / gamma``."""
    return solution(moments, Decimal(ridge) + Decimal(pull) / Decimal(gamma))


def tilt(moments: Moments, gamma: float, ridge: float, radius: float) -> float:
    """Return ``gamma k`` at which ``E |w|^2`` of a proposal is radius^2; 0 where it is less at 0.

    ``E |w|^2 = |theta_k|^2 + trace (H + k I)^-1 / gamma`` falls as k grows. Floats suffice, since
    the law of the draw does not depend on k.
    """
    matrix, cross = system(moments, ridge)
    eigenvalues, basis = np.linalg.eigh(np.array([[float(v) for v in row] for row in matrix]))
    curvature = np.maximum(eigenvalues, ridge)
    projected = basis.T @ np.array([float(v) for v in cross])

    def mean_square(pull: float) -> float:
        with np.errstate(over="ignore"):
            theta = projected / (curvature + pull / gamma)
            return float(theta @ theta + (1 / (gamma * curvature + pull)).sum())

    if mean_square(0.0) <= radius**2:
        return 0.0
    low, high = 0.0, 1.0
    while mean_square(high) > radius**2:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_square(middle) > radius**2 else (low, middle)
    return high
