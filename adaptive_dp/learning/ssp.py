"""SSP: ridge regression by one release of the sufficient statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import PrivateQuery, Released, parameter, post
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.outputs import estimates
from adaptive_dp.learning.base import (
    Coefficients,
    ColumnLearner,
    LearnerBudget,
    Regression,
    encoded_features,
    gaussian_noise,
    query_sensitivity,
    regression,
)
from adaptive_dp.mechanisms.additive import Laplace, largest_mu
from adaptive_dp.noise import lattice
from adaptive_dp.queries.moments import (
    CrossOfMoments,
    EigenvalueOfMoments,
    GramOfMoments,
    StackedMoments,
)
from adaptive_dp.queries.table import Table

Array = NDArray[np.float64]

RIDGE = 0.6
"""The ridge over the spectral norm of the matrix's noise."""

EIGENVALUE_SHARE = 0.02
"""The smallest eigenvalue's share of the mu^2 of `AdaSSP`: of .02 to .33, the least did best."""

APART = 3.0
"""By how many times its error the mean must differ from the middle of the bounds to be used."""


@frozen
class SSP(ColumnLearner[Coefficients]):
    """Ridge regression from one noisy release of ``(X'X, X'y)``, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], features (with an
    intercept) divided by R, longer rows shortened to R with their targets: a weight, which leaves
    coefficients of a linear model what they are. In these units all statistics together move by
    ``sqrt(2)`` in l2 (`adaptive_dp.queries.moments`), and

    ``theta = ((X'X~)_+ + lambda I)^{-1} X'y~`` with ``lambda = 0.6 s sqrt(2 d)``,

    s the noise of the matrix, on whose diagonal its standard deviation is s and ``s / sqrt(2)``
    off it: ``s sqrt(2 d)`` is the edge of its spectrum (Wigner's semicircle). The ridge is public.
    0.6 is a constant: of 0.25 to 1, between 0.45 and 0.7 all did nearly as well on public data.
    Where noise may be all that it knows, it is drawn towards the mean (`steadied`).

    Parameters
    ----------
    features
        Columns with bounds or categories: of the latter, a coefficient ``column=category`` for each
        but the first is how much more the target is than for the first.
    target
        A column with bounds.
    norm
        R; by default the largest that the scaled features can have, so that nothing is shortened.
    pure
        Laplace noise instead of Gaussian: pure epsilon-DP, to be solved at ``delta=0``.
    free, weight
        Where no budget is given: the name of the free parameter, and its weight relative to the
        release's sensitivity.

    References
    ----------
    Vu and Slavkovic 2009 (Laplace); Sheffet 2017 and Wang 2018 (Gaussian). The ridge is by the
    known edge of the noise, not by a bound that holds with high probability.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(dp.SSP(["age"], "days", pure=True), epsilon=1.0, delta=0)
    >>> plan = dp.Pipeline(model=model)
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> age = np.linspace(0, 100, 5_000)
    >>> model = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(model["age"], 1)
    0.3
    """

    norm: float | None = None
    pure: bool = False
    free: str = "noise"
    weight: float = 1.0

    title: ClassVar[str] = "SSP"

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.pure, bool):
            raise DeclarationError(f"SSP.pure must be True or False, got {self.pure!r}")

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from.
        budget
            The learner's budget or None; its delta must be 0 where the learner is pure.
        """
        rows = regression_vectors(table, self.features, self.target, self.norm)
        # one stacked release of X'X and X'y: a single l2 (or l1) sensitivity for both
        query = rows.query(StackedMoments(rows.radius, rows.width, self.target, rows.goal))
        noise = self._noise(query, table, budget)
        statistics = query.release(noise, name="statistics")
        # the noise's level is public: it is read from the mechanism, not from the data
        level = parameter(statistics, "scale" if self.pure else "sigma")
        theta = post(ridge_coefficients, statistics, level, pure=self.pure)
        return rows.coefficients(theta)

    def _noise(
        self, query: PrivateQuery[Any], table: Table, budget: LearnerBudget | None
    ) -> Mechanism:
        """Return the release's noise: Gaussian at all of mu, or Laplace at epsilon."""
        if not self.pure:
            if budget is not None and not (budget.delta > 0):
                raise DeclarationError(
                    "SSP's Gaussian noise needs delta above 0; pass pure=True for delta=0"
                )
            # one Gaussian has all of the budget: mu is the largest whose exact profile fits in it
            mu = None if budget is None else largest_mu(budget.epsilon, budget.delta)
            return gaussian_noise(query, table, mu, free=self.free, weight=self.weight)
        # Laplace noise is calibrated in l1
        sensitivity = query_sensitivity(query, table, norm=1)
        if budget is None:
            return Laplace(scale=Free(self.free, weight=sensitivity * self.weight))
        if budget.delta != 0:
            raise DeclarationError(
                f"a pure SSP needs delta=0, got {budget.delta!r}; drop pure=True to use it"
            )
        operation = query.operation
        assert isinstance(operation, StackedMoments)
        # rounding moves each released entry, so that their number counts
        entries = operation.dimension(query.inputs[0].domain)
        return Laplace(scale=laplace_scale(budget.epsilon, sensitivity, entries))


def laplace_scale(epsilon: float, distance: float, dimension: int) -> float:
    """Return a scale at which a Laplace release costs at most epsilon, its rounding included.

    A step is at most ``scale / 2^26``, and d coordinates move by d of them in l1.

    Examples
    --------
    >>> round(laplace_scale(0.5, 1.0, 1), 6)
    2.0
    """
    # epsilon = (distance + d step) / scale with step <= scale 2^-BITS, solved for the scale
    rounding = dimension * 2.0**-lattice.BITS
    # at least half of epsilon must remain after rounding, and division by 0 is excluded
    if not (2 * rounding < epsilon < math.inf):
        raise DeclarationError(
            f"a Laplace release of {dimension} numbers needs a finite epsilon above "
            f"{2 * rounding:.3g}, got {epsilon!r}: its noise is drawn in steps"
        )
    # rounded up by 1e-12, more than the error of these operations: the scale may only be too large
    return distance * (1 + 1e-12) / (epsilon - rounding)


def regression_vectors(
    table: Table, features: tuple[str, ...], target: str, norm: float | None
) -> Regression:
    """Return a regression whose queries read rows, as vectors of any length.

    Longer rows than the radius are shortened together with their targets (`StackedMoments`).
    """
    vectors, names, bounds = encoded_features(table, features)
    # the largest norm that the scaled features can have: by default no row is shortened
    radius = max(1.0, vectors.domain.radius)
    if norm is not None:
        radius = vectors.clip(norm=norm).domain.radius
    goal = table.domain.interval(target)
    return Regression(names, bounds, goal, radius, vectors)


CLEAR = 5.0
"""The least eigenvalue of a noisy matrix over its noise from which on intervals are given."""


def least_squares(grams: Array, crosses: Array, noise: float, released: Array) -> list[Array]:
    """Return the coefficients of least squares, without a ridge, of plausible second moments.

    What a ridge estimates is ``theta = G^{-1} c``, which it moves by ``-(G + lambda)^{-1} lambda
    theta``: so intervals are of theta, and not of what the ridge gives without noise.

    Parameters
    ----------
    grams, crosses
        X'X and X'y less draws of their noise, shapes (n, d, d) and (n, d).
    noise
        The standard deviation on the matrix's diagonal.
    released
        The noisy matrix itself.

    Raises
    ------
    NoIntervalError
        If the noisy matrix has eigenvalues below `CLEAR` of its noise: some directions are lost in
        the noise then, and with them all coefficients.
    """
    least = float(np.linalg.eigvalsh(released)[0])
    if not (least >= CLEAR * noise and np.linalg.eigvalsh(grams)[:, 0].min() > 0):
        raise NoIntervalError(
            f"the noise nearly hides some combination of the features: the least eigenvalue of X'X "
            f"was released as {least:.3g}, with noise of {noise:.3g}, and {CLEAR:g} times as much "
            "is needed; have more rows, more budget or fewer features"
        )
    return list(np.linalg.solve(grams, crosses[..., None])[..., 0])


def ssp_least_squares(
    inputs: Sequence[Any], drawn: Sequence[Sequence[Any]], *, pure: bool
) -> list[Array]:
    """Return `least_squares` of what `ridge_coefficients` reads."""
    statistics, noise = inputs
    moments = np.array([each[0] for each in drawn])
    sigma = noise * math.sqrt(2) if pure else noise
    return least_squares(moments[..., :-1], moments[..., -1], sigma, statistics[:, :-1])


@estimates(ssp_least_squares)
def ridge_coefficients(statistics: Array, noise: float, *, pure: bool) -> Array:
    """Return the ridge coefficients of noisy statistics, shape (d, d + 1); see `SSP`."""
    sigma = noise * math.sqrt(2) if pure else noise  # a Laplace scale b has deviation b sqrt(2)
    # of the release, columns 0 to d - 1 are X'X and the last is X'y
    values, basis = nonnegative_spectrum(statistics[:, :-1])
    ridge = RIDGE * spectral_edge(sigma, len(values))
    # (V diag(values + ridge) V')^{-1} X'y, without forming the matrix; ridge > 0 as sigma is
    theta = np.asarray(basis @ ((basis.T @ statistics[:, -1]) / (values + ridge)))
    return steadied(theta, statistics[:, :-1], statistics[:, -1], values, basis, sigma)


def steadied(
    theta: Array, gram: Array, cross: Array, values: Array, basis: Array, sigma: float
) -> Array:
    """Return coefficients drawn towards a safer estimate, as far as noise may be all they know.

    ``L(theta) = theta' X'X theta - 2 theta' X'y`` is the sum of squares but for a constant, here by
    the noisy X'X and X'y, to whose noise theta was fitted: in proportion to all of theta, where
    targets are far from the middle of their bounds. The other estimate is `around_mean`, which
    noise hardly moves, but which is too flat where a few directions tell nearly all. By
    ``gain = L(other) - L(theta)`` and the standard deviation s with which noise moves it,

    ``other + max(0, 1 - (s / gain)^2) (theta - other)``, and other where gain is below 0.

    Where not even that is known, nothing can be: the middle of the bounds is near the answer.

    Parameters
    ----------
    theta
        Shape (d,), the intercept's first.
    gram, cross
        The noisy X'X and X'y that it was computed from.
    values, basis
        The spectrum of the matrix, and its eigenvectors.
    sigma
        The noise's standard deviation.

    Examples
    --------
    >>> gram, cross = np.diag([90.0, 30.0]), np.array([45.0, 15.0])
    >>> spectrum = np.diag(gram), np.eye(2)
    >>> steadied(np.array([0.5, 0.5]), gram, cross, *spectrum, 0.01).round(2).tolist()
    [0.5, 0.5]
    >>> steadied(np.array([0.4, -0.4]), gram, cross, *spectrum, 5.0).round(2).tolist()
    [0.5, 0.35]
    """
    other = around_mean(gram, cross, values, basis, sigma)

    def loss(at: Array) -> float:
        return float(at @ gram @ at - 2 * at @ cross)

    gain = loss(other) - loss(theta)
    if not gain > 0:
        return other
    noise = loss_noise(theta, other, sigma)
    return np.asarray(other + max(0.0, 1 - (noise / gain) ** 2) * (theta - other))


def loss_noise(a: Array, b: Array, sigma: float) -> float:
    """Return the standard deviation by which noise moves ``L(a) - L(b)`` of `steadied`.

    Noise of deviation sigma on the diagonal of X'X and in X'y, and of sigma / sqrt(2) off the
    diagonal, moves ``a'X'X a`` with the variance ``sigma^2 |a|^4``, that and ``b'X'X b`` with the
    covariance ``sigma^2 (a'b)^2``, and ``2 (a - b)'X'y`` with the variance ``4 sigma^2 |a - b|^2``.
    """
    squares = float(a @ a) ** 2 + float(b @ b) ** 2 - 2 * float(a @ b) ** 2
    return sigma * math.sqrt(max(squares, 0.0) + 4 * float(np.sum((a - b) ** 2)))


VARIANCES = np.concatenate([[0.0], np.geomspace(1e-4, 30.0, 60)])
"""The variances of coefficients that `around_mean` chooses among."""


def around_mean(gram: Array, cross: Array, values: Array, basis: Array, sigma: float) -> Array:
    """Return coefficients by an empirical Bayes estimate around those that predict the mean.

    With m the coefficients of `mean_alone` and ``r = X'y - X'X m`` along an eigenvector of X'X of
    value v, ``r = v (theta - m) + noise``, where ``theta - m`` are thought of as d independent
    numbers of variance t. X'X is noisy too, so that the noise has the variance ``s^2 = sigma^2 (1 +
    (|m|^2 + m_v^2 + (d + 1) t) / 2)``, m_v being m along the vector, and r ``v^2 t + s^2``. t is
    that under which all of r is the most likely (0 where it is noise), and the estimate
    ``m + t v r / (t v^2 + s^2)``.

    Parameters
    ----------
    gram, cross, values, basis, sigma
        As in `steadied`; the values are at least 0.

    References
    ----------
    Efron and Morris 1973 (empirical Bayes).
    """
    mean = mean_alone(gram, cross, sigma)
    left = basis.T @ (cross - gram @ mean)
    around = float(mean @ mean) + (basis.T @ mean) ** 2 + (len(mean) + 1) * VARIANCES[:, None]
    noise = sigma**2 * (1 + around / 2)
    spread = VARIANCES[:, None] * values**2 + noise
    best = int(np.argmin((np.log(spread) + left**2 / spread).sum(axis=1)))
    shares = VARIANCES[best] * values / spread[best]
    return np.asarray(mean + basis @ (shares * left))


def mean_alone(gram: Array, cross: Array, sigma: float) -> Array:
    """Return the coefficients that predict the mean for every row, ``(X'y)_0 / (X'X)_00``.

    The mean is shrunk towards the middle of the bounds, 0, and is that where it lies within `APART`
    errors of it.

    Examples
    --------
    >>> mean_alone(np.diag([90.0, 30.0]), np.array([45.0, 15.0]), 0.5).round(2).tolist()
    [0.5, 0.0]
    """
    mean, rows = np.zeros(len(cross)), float(gram[0, 0])
    if rows > APART * sigma:
        first = float(cross[0]) / rows
        error = sigma * math.hypot(1.0, first) / rows
        mean[0] = first * max(0.0, 1 - (APART * error) ** 2 / max(first**2, 1e-300))
    return mean


def spectral_edge(sigma: float, width: int) -> float:
    """Return the edge of the spectrum of a symmetric noise matrix, shape (width, width).

    Its entries have deviation sigma on the diagonal and ``sigma / sqrt(2)`` off it, so that the
    edge is ``2 (sigma / sqrt(2)) sqrt(width)`` (Wigner's semicircle law).
    """
    return sigma * math.sqrt(2 * width)


def nonnegative_spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues, those below 0 replaced by 0, and eigenvectors."""
    # projection onto positive semidefinite matrices: post-processing, (X'X~)_+ of `SSP`
    values, basis = np.linalg.eigh(matrix)
    return np.maximum(values, 0.0), basis


# -----------------------------------------------------------------------------
# AdaSSP: the statistics in three releases, one of which sets the ridge (Wang 2018, Algorithm 2).


@frozen
class AdaSSP(ColumnLearner[Coefficients]):
    """Ridge regression from three Gaussian releases, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], each row's
    features (with an intercept) clipped to Euclidean norm R and divided by it. One pass over the
    rows adds up their exact second moments (`adaptive_dp.queries.moments.MomentsOf`), of which are
    released the smallest eigenvalue of X'X, the matrix X'X and the vector X'y. The ridge is what
    the data's own eigenvalues lack; regression and the way back to the data's units are
    post-processing:

    ``theta = (X'X~ + lambda I)^{-1} X'y~`` with
    ``lambda = max(0, 0.6 s sqrt(2 d) - lambda_min~)``,

    s the noise of the matrix, as in `SSP`, whose ridge it is where lambda_min~ is 0. lambda_min~ is
    the released eigenvalue less its own noise's quantile, and at least 0; no eigenvalue of the
    noisy matrix is taken for less. Where noise may be all that it knows, it is drawn towards the
    mean, as in `SSP`. With a budget, the eigenvalue gets a fiftieth of the mu^2 of (epsilon,
    delta), and the others half of the rest each; without one, the noise is ``Free`` and the plan's
    calibration solves it together with all else.

    Parameters
    ----------
    features
        Columns with bounds or categories: of the latter, a coefficient ``column=category`` for each
        but the first is how much more the target is than for the first.
    target
        A column with bounds.
    norm
        R; by default the largest that the scaled features can have, so that nothing is clipped.
    rho
        The failure probability of the ridge's guarantee (utility only), in (0, 1).
    free, weight
        Where no budget is given: the name of the free parameter, and its weight. The three releases
        together have the mu^2 of three whose sigma is ``multiplier * weight * sensitivity``.

    Notes
    -----
    The paper divides epsilon and delta by three and has ``s sqrt(d log(2 d^2 / rho))`` in place of
    ``0.6 s sqrt(2 d)``, some three times as much. On ill-conditioned data, where lambda_min~ is
    near 0, that was up to 2.2 times the error of `SSP`; now the two are alike.

    References
    ----------
    Wang 2018, Algorithm 2. The paper's noise constants are not used: each release is
    calibrated on the Gaussian's exact profile (Balle and Wang 2018, Thm 8).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(dp.AdaSSP(["age"], "days"))
    >>> plan = dp.Pipeline(model=model).calibrate(epsilon=1.0, delta=1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by gaussian>
    >>> {name[7:]: round(share, 2) for name, share in sorted(plan.certify().shares.items())}
    {'cross_moments': 0.49, 'second_moments': 0.49, 'smallest_eigenvalue': 0.02}
    >>> age = np.linspace(0, 100, 5_000)
    >>> model = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(model["age"], 1)
    0.3
    """

    norm: float | None = None
    rho: float = 0.05
    free: str = "sigma"
    weight: float = 1.0

    title: ClassVar[str] = "AdaSSP"

    def __attrs_post_init__(self) -> None:
        if not (isinstance(self.rho, float) and 0 < self.rho < 1):
            raise DeclarationError(
                f"AdaSSP.rho must be a probability inside (0, 1), got {self.rho!r}"
            )

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Coefficients]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        rows = regression(table, self.features, self.target, self.norm, categories=True)
        mu = None if budget is None else largest_mu(budget.epsilon, budget.delta)
        # free noise: the mu^2 of three releases without shares
        weight = self.weight / math.sqrt(3)

        def release(query: PrivateQuery[Any], name: str, share: float) -> Released[Any]:
            noise = gaussian_noise(query, table, mu, free=self.free, share=share, weight=weight)
            return query.release(noise, name=name)

        half = (1 - EIGENVALUE_SHARE) / 2
        matrix = release(rows.query(GramOfMoments()), "second_moments", half)
        cross = release(rows.query(CrossOfMoments()), "cross_moments", half)
        least = release(rows.query(EigenvalueOfMoments()), "smallest_eigenvalue", EIGENVALUE_SHARE)
        theta = post(
            ridge,
            matrix,
            cross,
            least,
            parameter(matrix, "sigma"),
            parameter(least, "sigma"),
            rho=self.rho,
        )
        return rows.coefficients(theta)


def adassp_least_squares(
    inputs: Sequence[Any], drawn: Sequence[Sequence[Any]], *, rho: float
) -> list[Array]:
    """Return `least_squares` of what `ridge` reads."""
    grams, crosses = (np.array([each[i] for each in drawn]) for i in (0, 1))
    return least_squares(grams, crosses, inputs[3], inputs[0])


@estimates(adassp_least_squares)
def ridge(
    matrix: Array, cross: Array, least: float, sigma: float, sigma_least: float, *, rho: float
) -> Array:
    """Return the ridge coefficients of noisy second moments (see `AdaSSP`); shape (d,).

    A noisy matrix may have eigenvalues below its own noise; they are raised to it.
    """
    width = len(matrix)
    # a lower bound of the least eigenvalue but for probability rho: P(N(0,1) > t) <= exp(-t^2/2)
    floor = max(0.0, least - sigma_least * math.sqrt(2 * math.log(1 / rho)))
    # what the data's own eigenvalues lack of the ridge of `SSP`: utility only
    strength = max(0.0, RIDGE * spectral_edge(sigma, width) - floor)
    values, basis = np.linalg.eigh(matrix)
    # at least sigma: an eigenvalue below its noise would be divided by, and magnify X'y's noise
    raised = np.maximum(np.maximum(values, floor) + strength, sigma)
    # the inverse through the eigenbasis, as in `ridge_coefficients`
    theta = np.asarray(basis @ ((basis.T @ cross) / raised))
    return steadied(theta, matrix, cross, np.maximum(values, 0.0), basis, sigma)
