r"""Mechanisms that follow released bounds of the data: a contract, and two that keep it.

The loss of a mechanism between a data set D and a neighbour D' is often a function of a few numbers
of D: the least eigenvalue of a Hessian, the number of rows, a local sensitivity. Bounds of these
are released first (`dp.LowerBound`, `dp.UpperBound`, `SensitivityBound`); what follows them adds
noise for what the bounds say, and not for the worst data set. `InstanceMechanism` is the contract:
a subclass says what the loss of one row is where the bounds are right, and how a value is released.

Let Q be the released bounds, right for both of any two neighbours and for all data sets between
them but for their failures. Where they are right, the release's law is, for each row that comes or
goes, within the *promise*: the loss of a Gaussian of ``mu``, but for ``failure``. So is then that
of k rows within k times the promise (`group_failure`), and by the theorem of
`adaptive_dp.mechanisms.released_bounds` the plan is dominated by the promises and the bounds'
losses, each wrong bound paid once.

The noise is a function of released bounds, so what it is tells nothing more. Where one is
*proposed* instead, the promise is tested by released values alone, so that the test itself is free,
and where it fails NaN is released: generalised propose-test-release, of which
`ProposeTestRelease` is the case of one number.

References
----------
Wang 2019 (per-instance privacy); Redberg, Zhu and Wang 2023 (from per-instance to differential
privacy, generalised propose-test-release). That removals are covered, and that a wrong bound is
paid once and not ``e^epsilon`` times, are proven in `adaptive_dp.mechanisms.released_bounds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from attrs import field
from numpy.typing import NDArray

from accountants import Approximate, GaussianBound, PrivacyLoss, special
from accountants import Gaussian as GaussianLoss
from accountants.definitions import gdp_profile
from accountants.losses.composite import Composite
from accountants.numerics import Array, up
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Handle,
    PrivateQuery,
    Release,
    Released,
    change_at,
    group,
    unaliased,
)
from adaptive_dp.graph.mechanism import (
    SLACK,
    LocalSensitivity,
    Mechanism,
    budget_parameter,
    noise_parameter,
)
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.values import number, positive
from adaptive_dp.mechanisms.additive import Gaussian, checked, largest_mu, sigma_for
from adaptive_dp.mechanisms.released_bounds import check_failure, margin
from adaptive_dp.mechanisms.smooth_sensitivity import grid_step, public_parameter
from adaptive_dp.noise.stream import Stream

# -----------------------------------------------------------------------------
# The contract.


class _Following(Mechanism):
    """What all mechanisms that follow released bounds share: their premises, and their release."""

    norm: ClassVar[float] = 0
    no_interval: ClassVar[str] = (
        "how far it is from the query's value depends on the data beside the noise; release the "
        "value with noise of a fixed scale to have intervals"
    )
    bounds: ClassVar[tuple[tuple[type[Mechanism], type[Query] | None], ...]] = ()
    """The released bounds that it follows, in the order of ``given``: the class of the mechanism
    that releases each, and that of its query; None where that is the very query released here."""

    mu: float = budget_parameter("mu")

    def __init_subclass__(cls) -> None:
        """Count the released inputs, where a subclass names its bounds."""
        super().__init_subclass__()
        if "bounds" in vars(cls):
            cls.released_inputs = len(cls.bounds)

    def release(self, value: Any, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the draw at the noise that the bounds allow, or NaN where they allow none."""
        level = self.level(value, *given)
        if level is None:
            return np.full(self.shape(np.shape(value)) or (), math.nan)
        return self.draw(value, level, stream, *given)

    def level(self, value: Any, *given: Any) -> float | None:
        """Return the noise, a function of released values and of the value's shape alone."""
        raise NotImplementedError(f"{type(self).__name__} must define level(value, *given)")

    def draw(self, value: Any, noise: float, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return what is released at a noise that keeps the promise."""
        raise NotImplementedError(
            f"{type(self).__name__} must define draw(value, noise, stream, *given)"
        )

    def premises(self, release: Any) -> None:
        """Refuse given values that are not the bounds that the loss rests on."""
        query, *given = release.inputs
        for (mechanism, kind), handle in zip(self.bounds, given, strict=True):
            check_bound(type(self).__name__, query, handle, mechanism, kind)


class InstanceMechanism(_Following):
    r"""A mechanism whose loss is known where released bounds are right: the contract.

    A subclass has

    - `bounds`: which released bounds it follows;
    - `profile`: which (epsilon, delta)s hold at a noise t for every pair of neighbours that differ
      in one row, where the bounds are right *of the smaller of the two*, in both directions;
    - `draw`: what is released at a noise t.

    What is released is drawn at the least t, to a relative 1e-6, at which ``profile`` is within the
    promise, or at a ``proposed`` one; where none is, or where that one is not, NaN is.

    Privacy: for each row that comes or goes the loss of a Gaussian of ``mu`` and a delta of
    ``failure``, where the bounds are right; see the module. The promise is compared on a grid, at
    whose every interval the profile's left end is held against the promise's right end, so that it
    holds between as well.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, between neighbours of one row.
    failure
        The delta of the promise, in [1e-18, 0.5).
    proposed
        A noise to test, chosen without looking at the data; None to take the least.

    See Also
    --------
    InstanceGaussian : the case of Gaussian noise, which needs the sensitivity alone.

    Examples
    --------
    Laplace noise on a mean, where the number of rows is private and a lower bound of it is
    released: a row moves the mean of n rows by at most ``width / (n + 1)``.

    >>> import numpy as np, adaptive_dp as dp
    >>> from adaptive_dp.queries.counts import Count
    >>> class LaplaceMean(dp.instance.InstanceMechanism):
    ...     bounds = ((dp.LowerBound, Count),)
    ...     input_type = dp.LocalSensitivity
    ...     width: float = 100.0
    ...
    ...     def profile(self, noise, epsilons, count):
    ...         pure = self.width / (max(count, 0.0) + 1) / noise
    ...         return np.maximum(-np.expm1((epsilons - pure) / 2), 0.0) * (1 + 1e-12)
    ...
    ...     def draw(self, value, noise, stream, count):
    ...         return dp.Laplace(noise).release(np.array(value.value), stream)
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> low = people.count().release(dp.LowerBound(sigma=20.0, failure=1e-7, reach=1.0))
    >>> mean = people["age"].instance(
    ...     lambda values: float(np.mean(values)) if len(values) else 0.0,
    ...     lambda values, k: 100.0 / (max(len(values) - k, 0) + 1),
    ...     range=(0, 100),
    ... )
    >>> noisy = mean.release(LaplaceMean(mu=0.3, failure=1e-7), given=[low])
    >>> plan = dp.Pipeline(mean=noisy).with_delta(1e-6)
    >>> plan.certify().epsilon < 1.4
    True
    >>> rows = {"age": np.tile([20.0, 60.0], 5_000)}
    >>> abs(plan.simulate(seed=1, people=rows)["mean"] - 40) < 1
    True
    """

    failure: float = field(default=1e-7, converter=number, validator=check_failure, kw_only=True)
    proposed: float | None = field(
        default=None,
        kw_only=True,
        converter=lambda v: None if v is None else number(v),
        validator=checked(
            lambda v: v is None or positive(v), "a positive number, or None to follow the bounds"
        ),
    )

    def profile(self, noise: float, epsilons: Array, *given: Any) -> Array:
        """Return upper bounds of delta at each epsilon, in both directions; they fall in noise.

        Parameters
        ----------
        noise
            Positive.
        epsilons
            Non-negative, ascending, shape (m,).
        given
            The released bounds, right of the smaller of two neighbours.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define profile(noise, epsilons, *given)"
        )

    def level(self, value: Any, *given: Any) -> float | None:
        """Return the proposed noise, or the least one that keeps the promise; None for neither."""

        def holds(noise: float) -> bool:
            return is_within(lambda e: self.profile(noise, e, *given), self.mu, self.failure)

        if self.proposed is not None:
            return self.proposed if holds(self.proposed) else None
        high = 1.0
        while not holds(high):
            high *= 16
            if high > 1e60:
                return None
        low = high / 16
        while high > 1e-60 and holds(low):
            low, high = low / 16, low
        # `high` has been tested throughout
        while high > low * (1 + 1e-6):
            middle = math.sqrt(low) * math.sqrt(high)
            low, high = (low, middle) if holds(middle) else (middle, high)
        return high

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the Gaussian's loss with the failure, for ``distance`` rows that come or go."""
        rows = rows_of(distance)
        failure = group_failure(self.failure, self.mu, rows)
        return Composite(((GaussianLoss(times(self.mu, rows)), 1), (Approximate(0.0, failure), 1)))


class InstanceGaussian(_Following):
    """Gaussian noise for a sensitivity that released bounds prove: the contract of the simplest.

    A subclass has `bounds`, as `InstanceMechanism`; `sensitivity`, how far in l2 the value moves
    between neighbours that differ in one row, where the bounds are right of the smaller of the two;
    and `center`, the value itself. Released is ``center + N(0, sigma^2)``, sigma the one for which
    that sensitivity costs mu; NaN where the sensitivity is not finite.

    Privacy: at most the loss of a Gaussian of ``mu`` for each row that comes or goes, where the
    bounds are right; see the module.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, between neighbours of one row.

    Notes
    -----
    Noise: that of `Gaussian`, exact on a lattice, whose rounding is in the distance.

    See Also
    --------
    PerturbedCoefficients, PerturbedMinimizer, PerturbedValue : keep this contract.

    Examples
    --------
    The mean of a private number of rows:

    >>> import numpy as np, adaptive_dp as dp
    >>> from adaptive_dp.queries.counts import Count
    >>> class NoisyMean(dp.instance.InstanceGaussian):
    ...     bounds = ((dp.LowerBound, Count),)
    ...     input_type = dp.LocalSensitivity
    ...     width: float = 100.0
    ...
    ...     def sensitivity(self, width, count):
    ...         return self.width / (max(count, 0.0) + 1)
    ...
    ...     def center(self, value, count):
    ...         return value.value
    >>> NoisyMean(mu=0.3).loss(distance=1)
    GaussianBound(mu=0.3)
    >>> round(NoisyMean(mu=0.5).level(np.array(0.0), 9_999.0), 6)
    0.02
    """

    theorem: ClassVar[str] = "released bounds: adaptive_dp.instance.following"
    sampler: ClassVar[str] = Gaussian.sampler

    def sensitivity(self, width: int, *given: Any) -> float:
        """Return how far one row moves the value in l2, where the bounds are right; rounded up.

        Infinite where they bound nothing.

        Parameters
        ----------
        width
            The number of the value's coordinates, for their rounding.
        given
            The released bounds, right of the smaller of two neighbours.
        """
        raise NotImplementedError(f"{type(self).__name__} must define sensitivity(width, *given)")

    def center(self, value: Any, *given: Any) -> Any:
        """Return the value to which noise is added, an array or a number."""
        raise NotImplementedError(f"{type(self).__name__} must define center(value, *given)")

    def level(self, value: Any, *given: Any) -> float | None:
        """Return sigma, the least one that keeps the promise; None where nothing is bounded."""
        width = math.prod(self.shape(np.shape(value)) or ())
        moved = float(self.sensitivity(width, *given))
        # NaN makes the comparison false
        return sigma_for(self.mu, moved, width) if 0 < moved < 1e280 else None

    def draw(self, value: Any, noise: float, stream: Stream, *given: Any) -> NDArray[Any]:
        """Return the value with noise."""
        center = np.asarray(self.center(value, *given), dtype=np.float64)
        return Gaussian(noise).release(center, stream)

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the bound of mu times the number of rows that come or go."""
        return GaussianBound(times(self.mu, rows_of(distance)))


# -----------------------------------------------------------------------------
# What the contract rests on: rows one by one, the promise on a grid, the premises.


def rows_of(distance: float) -> int:
    """Return how many rows come and go, from a distance in norm 0; at least 1."""
    return max(1, math.ceil(distance - 1e-9))


def times(mu: float, rows: int) -> float:
    """Return ``rows * mu``, rounded up; mu itself for one row."""
    return mu if rows == 1 else up(rows * mu)


def group_failure(failure: float, mu: float, rows: int) -> float:
    """Return the failure of a promise for ``rows`` rows, from above, given that for one.

    Let each of k steps ``P_0, ..., P_k`` keep ``failure`` and ``mu``, in both directions. With
    ``G(a) = Phi(Phi^-1(a) + mu)`` that is ``P_i(A) <= f + (1 - f) G(P_{i+1}(A) / (1 - f))`` for
    every event A, at most ``f + G(P_{i+1}(A))``, for G is concave with ``G(0) = 0``. So G is
    subadditive too, and ``P_0(A) <= F + Phi(Phi^-1(P_k(A)) + k mu)`` with
    ``F = sum_{j < k} Phi(Phi^-1(f) + j mu)``. That is a delta of at most ``F + delta_{k mu}`` at
    every epsilon, and from 0 on, where ``1 - delta_{k mu} >= 2 Phi(-k mu / 2)``, at most
    ``f_k + (1 - f_k) delta_{k mu}`` with ``f_k = F / (2 Phi(-k mu / 2))``; below 0 it follows from
    the other direction.

    Examples
    --------
    >>> group_failure(1e-9, 0.25, 1)
    1e-09
    >>> round(group_failure(1e-9, 0.25, 2) * 1e9, 2)
    6.88
    """
    if rows == 1:
        return failure
    # 1e-9 covers the rounding of the quantile and of the tails, 1e-13 relative and a few units
    quantile = float(special.ndtri(failure)) * (1 - 1e-12)
    total = sum(float(special.ndtr(quantile + j * mu)) for j in range(rows))
    remainder = 2 * float(special.ndtr(-rows * mu / 2))
    return min(1.0, total * (1 + 1e-9) / remainder) if remainder > 0 else 1.0


_GRID_SIZE = 800
"""Points of the grid, which ends a little after where the Gaussian's delta is the failure."""


def is_within(profile: Callable[[Array], Array], mu: float, failure: float) -> bool:
    """Return whether a profile is at most the promise's at every epsilon.

    That is ``failure + (1 - failure) delta_mu(epsilon)`` from 0 on, delta_mu the profile of N(0, 1)
    against N(mu, 1). At a negative epsilon the same then follows from the other direction:
    ``delta(-e) = 1 - e^-e + e^-e delta'(e)`` for both.

    Parameters
    ----------
    profile
        From epsilons to upper bounds of delta that hold in both directions.
    mu, failure
        The promise: positive, and a probability.
    """
    points, gaussian = _gaussian_profile(mu, failure)
    # both sides fall in epsilon: the left is taken at the lower end of each interval of the grid,
    # the right at its upper end, so that the inequality holds on the whole of it
    return bool(np.all(profile(points) <= rounded_down(failure + (1 - failure) * gaussian)))


@lru_cache(maxsize=64)
def _gaussian_profile(mu: float, failure: float) -> tuple[Array, Array]:
    """Return the grid, and lower bounds of the Gaussian's profile at each next point."""
    mean, width = mu * mu / 2, mu * 1.25 * math.sqrt(-2 * math.log(failure))
    below_mean = np.linspace(0.0, mean, 40, endpoint=False)
    points = np.concatenate([below_mean, mean + np.linspace(0.0, width, _GRID_SIZE)])
    lower = [gdp_profile(mu, float(e)).lower for e in points[1:]]
    return points, np.array([*lower, 0.0])  # beyond the last point the failure alone must do


def rounded_down(values: Array) -> Array:
    """Return numbers below ``values`` and their rounding."""
    return values * (1 - 2.0**-50)


def is_release(handle: Any, mechanism: type[Mechanism], query: type) -> bool:
    """Return whether a handle releases such a query by such a mechanism."""
    operation = handle.operation
    return (
        isinstance(operation, Release)
        and isinstance(operation.mechanism, mechanism)
        and isinstance(handle.inputs[0].operation, query)
    )


def check_bound(
    name: str,
    query: Handle,
    handle: Handle,
    mechanism: type[Mechanism],
    kind: type[Query] | None,
) -> None:
    """Refuse a given value that is not such a bound, of the same rows, for all that may change.

    Parameters
    ----------
    name
        Of the mechanism that follows it, for messages.
    query
        The query that this mechanism releases.
    handle
        The given value.
    mechanism, kind
        The classes of the mechanism that must have released it, and of its query; None for
        ``query`` itself.
    """
    what = "the same query" if kind is None else f"a {kind.__name__} of the same rows"
    fits = is_release(handle, mechanism, type(query.operation) if kind is None else kind)
    if fits:
        bounded = unaliased(handle.inputs[0])
        if kind is None:
            fits = bounded.operation == query.operation
        fits = fits and _rows(bounded) is _rows(query)
    if not fits:
        raise DeclarationError(
            f"{name} is given a {mechanism.__name__} release of {what} that it reads, got "
            f"{handle!r}; release that first, and pass it as given=[...]"
        )
    # it must hold for every data set between two neighbours: their rows go and come one by one
    changed, own = change_at(bounded.inputs[0]).both, handle.operation.mechanism  # type: ignore[attr-defined]
    row = 1.0
    if own.norm != 0:
        row = bounded.operation.sensitivity(  # type: ignore[attr-defined]
            bounded.inputs[0].domain, Change(False, 1, False), own.norm
        )
        if own.reach * (1 + 1e-10) < changed * row:
            raise DeclarationError(
                f"{name}: {changed} rows of a unit may come and go, one by one, and the bound "
                f"{handle!r} reaches {own.reach:g}; give it a reach of {changed * row:g}"
            )


def _rows(query: Handle) -> Handle:
    """Return the rows that a query reads: of a column those of its table."""
    rows = unaliased(query.inputs[0])
    while rows.operation.kind == "column":
        rows = unaliased(rows.inputs[0])
    return rows


# -----------------------------------------------------------------------------
# A number with its local sensitivities: medians, quantiles, trimmed means, functions of your own.


class SensitivityBound(Mechanism):
    r"""Release a number that the log of a local sensitivity is below, at all data sets near.

    Released is ``log S(x) + N(0, sigma^2) + q sigma + slope rows``, S the smooth sensitivity at
    ``beta = slope`` (`LocalSensitivity.smooth`), which is at least the local sensitivity and whose
    logarithm moves by at most ``slope`` a step, ``P(N(0, 1) > q) = failure``.

    Privacy: a Gaussian of ``mu = slope / sigma`` for each row, and a delta of ``failure``, paid
    once: that of `UpperBound` for the query ``log S``. It is above ``log S`` at every data set
    within ``rows`` steps, but for its failure.

    Parameters
    ----------
    sigma
        The noise's standard deviation, of the logarithm.
    failure
        The probability that the number is not above, in [1e-18, 0.5).
    slope
        beta: a small one makes S large, a large one its bound.
    rows
        How many steps lie between neighbours at most: 1 where a unit has one row.

    References
    ----------
    Dwork and Lei 2009 (a private scale); Nissim, Raskhodnikova and Smith 2007 (smooth bounds); the
    failure by the theorem of `adaptive_dp.mechanisms.released_bounds`.

    See Also
    --------
    PerturbedValue : follows it.

    Examples
    --------
    >>> SensitivityBound(sigma=0.5, failure=1e-7, slope=0.05).loss(distance=1).delta_floor()
    1e-07
    """

    norm: ClassVar[float] = 0
    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = (
        "Gaussian: Balle & Wang 2018, Thm 8; one-sided bound: proven in "
        "adaptive_dp.mechanisms.released_bounds"
    )
    sampler: ClassVar[str] = Gaussian.sampler
    no_interval: ClassVar[str] = "it is a bound of the local sensitivity, but for its failure"

    sigma: float = noise_parameter("sigma")
    failure: float = field(converter=number, validator=check_failure)
    slope: float = public_parameter("slope")
    rows: int = field(
        default=1,
        validator=checked(lambda v: type(v) is int and v >= 1, "a positive int"),
    )

    def release(self, value: LocalSensitivity, stream: Stream) -> NDArray[Any]:
        """Return the bound of the logarithm, shape ()."""
        # at least the grid's step, which is public, so that the logarithm is finite
        smooth = value.smooth(self.slope, least=grid_step(value.lower, value.upper))
        return Gaussian(self.sigma).release(np.array(math.log(smooth)), stream) + self.margin()

    def step_size(self) -> float:
        """Return how far one step moves the computed logarithm: the slope, and its rounding."""
        # S is too large by a relative SLACK at most, and logs up to 710 are off by 2e-13
        return self.slope + 2 * SLACK + 1e-12

    def margin(self) -> float:
        """Return by how much the release is moved up."""
        return margin(self.sigma, self.failure, self.rows * self.step_size())

    def loss(self, distance: float) -> PrivacyLoss:
        """Return the Gaussian's loss for so many steps, and the failure; refuse more than rows."""
        steps = rows_of(distance)
        if steps > self.rows:
            raise DeclarationError(
                f"SensitivityBound(rows={self.rows}) cannot bound data sets {steps} steps apart; "
                f"give it rows={steps}"
            )
        noise = Gaussian(self.sigma).cost(steps * self.step_size(), 1, 0.0)
        return Composite(((noise, 1), (Approximate(0.0, self.failure), 1)))


class PerturbedValue(InstanceGaussian):
    """Release a number with Gaussian noise for a released bound of its local sensitivity.

    Given is a `SensitivityBound` of the same query: a number u, at least the log of the local
    sensitivity. The noise is ``N(0, sigma^2)`` at the sigma for which ``e^u`` costs mu.

    Privacy: at most the loss of a Gaussian of ``mu`` for one step, where the bound is right, for a
    step then moves f by at most ``e^u``; see `InstanceGaussian`. Beside other Gaussian releases it
    composes by squares.

    Parameters
    ----------
    mu
        The Gaussian-DP parameter of the promise, for one changed row.

    Notes
    -----
    Noise: that of `Gaussian`, exact.

    See Also
    --------
    SmoothLaplace, SmoothStudent : no bound is released, and less noise where the budget is small.
    ReleasedSensitivity : the same in one step, with Laplace noise.

    Examples
    --------
    >>> PerturbedValue(mu=0.25).loss(distance=1)
    GaussianBound(mu=0.25)
    """

    input_type: ClassVar[type] = LocalSensitivity
    theorem: ClassVar[str] = "released local sensitivity: adaptive_dp.instance.following"
    bounds: ClassVar[tuple[tuple[type[Mechanism], type[Query] | None], ...]] = (
        (SensitivityBound, None),
    )

    def sensitivity(self, width: int, *given: Any) -> float:
        """Return ``e^u``, rounded up; infinite where it is too large."""
        exponent = float(given[0])
        # NaN makes the comparison false
        return up(math.exp(exponent), 2**12) if exponent < 600 else math.inf

    def center(self, value: LocalSensitivity, *given: Any) -> float:
        """Return f(x)."""
        return value.value


BOUND_SHARE = 0.5
"""The share of mu^2 that `with_gaussian_noise` spends on the bound."""


def with_gaussian_noise(
    query: PrivateQuery[float], *, epsilon: float, delta: float, slope: float | None = None
) -> Released[float]:
    r"""Return a number with Gaussian noise for a released bound of its local sensitivity.

    Two releases, as a group: `SensitivityBound`, then `PerturbedValue`. The plan composes them with
    its other Gaussian releases by squares.

    By default the slope is the one at which the noise is least where values are evenly spaced, so
    that S is about ``1 / (e slope)`` of their distance: the bound is above it by
    ``slope (1 + q / mu_1)``, q the failure's quantile, and the product is least at
    ``slope = 1 / (1 + q / mu_1)``.

    Parameters
    ----------
    query
        A handle with local sensitivities, such as ``people["age"].median()``.
    epsilon, delta
        The budget of both; a sixteenth of delta is the bound's failure.
    slope
        Of the smooth sensitivity, chosen without looking at the data.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 120)})
    >>> median = dp.instance.with_gaussian_noise(
    ...     people["age"].median(), epsilon=1.0, delta=1e-6
    ... )
    >>> plan = dp.Pipeline(median=median).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by ...>
    >>> ages = np.linspace(20, 80, 20_001)
    >>> abs(plan.simulate(seed=1, people={"age": ages})["median"] - 50) < 10
    True
    """
    operation = query.operation if isinstance(query, PrivateQuery) else None
    if not (isinstance(operation, Query) and issubclass(operation.output_type, LocalSensitivity)):
        raise DeclarationError(
            "with_gaussian_noise needs a query with local sensitivities, such as "
            f"people['age'].median(), got {query!r}"
        )
    failure = delta / 16 * (1 - 1e-9)
    mu = largest_mu(epsilon, delta * (1 - 1 / 16)) * (1 - 1e-9)
    rows = rows_of(operation.sensitivity(query.inputs[0].domain, change_at(query.inputs[0]), 0))
    first = mu * math.sqrt(BOUND_SHARE) / rows
    if slope is None:
        slope = 1 / (rows + -float(special.ndtri(failure)) / first)
    room = 1 + 1e-9
    sigma = sigma_for(first, (slope + 2 * SLACK + 1e-12) * room, 1)
    bound = query.release(SensitivityBound(sigma, failure, slope, rows), name="sensitivity")
    second = mu * math.sqrt(1 - BOUND_SHARE) / rows
    value = query.release(PerturbedValue(second), given=[bound], name="value")
    result: Released[float] = group("released sensitivity", value, query.inputs[0])
    return result
