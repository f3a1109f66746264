"""SSP: ridge regression by one release of the sufficient statistics."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Handle,
    PrivateQuery,
    Released,
    change_at,
    group,
    parameter,
    post,
)
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.values import texts
from adaptive_dp.learning.base import (
    Coefficients,
    both_or_neither,
    columns,
    of_the_ball,
    regression,
)
from adaptive_dp.mechanisms.additive import Gaussian, Laplace, largest_mu, sigma_for
from adaptive_dp.noise import lattice
from adaptive_dp.queries.domains import Interval
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


@frozen
class SSP:
    """Ridge regression from one noisy release of ``(X'X, X'y)``, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], features (with an
    intercept) divided by R, longer rows shortened to R with their targets: a weight, which leaves
    coefficients of a linear model what they are. In these units all statistics together move by
    ``sqrt(2)`` in l2 (`adaptive_dp.queries.moments`), and

    ``theta = ((X'X~)_+ + lambda I)^{-1} X'y~`` with ``lambda = 0.6 s sqrt(2 d)``,

    s the noise of the matrix, on whose diagonal its standard deviation is s and ``s / sqrt(2)``
    off it: ``s sqrt(2 d)`` is the edge of its spectrum (Wigner's semicircle). The ridge is public.
    0.6 is a constant: of 0.25 to 1, between 0.45 and 0.7 all did nearly as well on public data.

    Parameters
    ----------
    features
        Columns with bounds.
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
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    norm: float | None = None
    pure: bool = False
    free: str = "noise"
    weight: float = 1.0

    def __attrs_post_init__(self) -> None:
        columns("SSP", self.features, self.target)
        if not isinstance(self.pure, bool):
            raise DeclarationError(f"SSP.pure must be True or False, got {self.pure!r}")

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from.
        epsilon, delta
            The learner's budget, both or neither; ``delta=0`` where it is pure.
        """
        rows = rows_of(table, self.features, self.target, self.norm)
        query = PrivateQuery[Any](
            StackedMoments(rows.radius, rows.width, self.target, rows.goal), (rows.vectors,)
        )
        noise = self._noise(query, table, epsilon, delta)
        statistics = query.release(noise, name="statistics")
        level = parameter(statistics, "scale" if self.pure else "sigma")
        theta = post(solved, statistics, level, pure=self.pure)
        return group("SSP", rows.coefficients(theta), table)

    def _noise(
        self, query: PrivateQuery[Any], table: Table, epsilon: float | None, delta: float | None
    ) -> Mechanism:
        operation, domain = query.operation, query.inputs[0].domain
        assert isinstance(operation, StackedMoments)
        size = operation.sensitivity(domain, change_at(table), 1 if self.pure else 2)
        both_or_neither("SSP", epsilon, delta)
        if epsilon is None or delta is None:
            free = Free(self.free, weight=size * self.weight)
            return Laplace(scale=free) if self.pure else Gaussian(sigma=free)
        entries = operation.dimension(domain)
        if not self.pure:
            if not (delta > 0):
                raise DeclarationError(
                    "SSP's Gaussian noise needs delta above 0; pass pure=True for none"
                )
            return Gaussian(sigma=sigma_for(largest_mu(epsilon, delta), size, entries))
        if delta != 0:
            raise DeclarationError(
                f"a pure SSP needs delta=0, got {delta!r}; drop pure=True to use it"
            )
        return Laplace(scale=scale_for(epsilon, size, entries))


def scale_for(epsilon: float, distance: float, dimension: int) -> float:
    """Return a scale at which a Laplace release costs at most epsilon, its rounding included.

    A step is at most ``scale / 2^26``, and d coordinates move by d of them in l1.

    Examples
    --------
    >>> round(scale_for(0.5, 1.0, 1), 6)
    2.0
    """
    rounding = dimension * 2.0**-lattice.BITS
    if not (2 * rounding < epsilon < math.inf):
        raise DeclarationError(
            f"a Laplace release of {dimension} numbers needs a finite epsilon above "
            f"{2 * rounding:.3g}"
            f", got {epsilon!r}: its noise is drawn in steps"
        )
    return distance * (1 + 1e-12) / (epsilon - rounding)


@frozen(eq=False)
class Rows:
    """A table's features as vectors, and what is needed to come back to the data's units."""

    features: tuple[str, ...]
    bounds: list[list[float]]
    goal: Interval
    radius: float
    vectors: Any

    @property
    def width(self) -> int:
        """The number of coefficients, the intercept's included."""
        return len(self.features) + 1

    def coefficients(self, theta: Released[Any]) -> Released[Coefficients]:
        """Return coefficients of features divided by the radius in the data's units."""
        goal = [self.goal.lower, self.goal.upper]
        return of_the_ball(theta, self.features, self.bounds, goal, self.radius)


def rows_of(
    table: Table, features: tuple[str, ...], target: str, norm: float | None, share: float = 1.0
) -> Rows:
    """Return the rows of a regression, by default to be shortened to ``share`` of the most."""
    bounds = [table.domain.interval(name) for name in features]
    vectors = table.vectors(features, scale=True, intercept=True)
    largest = vectors.domain.radius
    radius = max(1.0, share * largest) if norm is None else vectors.clip(norm=norm).domain.radius
    sides = [[b.lower, b.upper] for b in bounds]
    return Rows(features, sides, table.domain.interval(target), radius, vectors)


def solved(statistics: Array, noise: float, *, pure: bool) -> Array:
    """Return the ridge coefficients of noisy statistics, shape (d, d + 1); see `SSP`."""
    sigma = noise * math.sqrt(2) if pure else noise
    values, basis = spectrum(statistics[:, :-1])
    ridge = RIDGE * edge(sigma, len(values))
    return np.asarray(basis @ ((basis.T @ statistics[:, -1]) / (values + ridge)))


def edge(sigma: float, width: int) -> float:
    """Return the edge of the spectrum of a symmetric matrix of noise, sigma on its diagonal."""
    return sigma * math.sqrt(2 * width)


def spectrum(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues, those below 0 raised to it, and eigenvectors."""
    values, basis = np.linalg.eigh(matrix)
    return np.maximum(values, 0.0), basis


# -----------------------------------------------------------------------------
# AdaSSP: ridge regression by adaptive sufficient-statistics perturbation.


@frozen
class AdaSSP:
    """Ridge regression from three Gaussian releases, as a subgraph.

    Features and target are mapped from their declared bounds onto [-1, 1], each row's
    features (with an intercept) clipped to Euclidean norm R and divided by it. One pass over the
    rows adds up their exact second moments (`adaptive_dp.queries.moments.MomentsOf`), of which are
    released the smallest eigenvalue of X'X, the matrix X'X and the vector X'y. The ridge is the
    least for which the noisy matrix stays well conditioned; regression and the way back to the
    data's units are post-processing:

    ``theta = (X'X~ + lambda I)^{-1} X'y~`` with
    ``lambda = max(0, s sqrt(d log(2 d^2/rho)) - lambda_min~)``,

    s the noise of the matrix and lambda_min~ the released eigenvalue less its own noise's
    quantile. With a budget, each release gets a third of (epsilon, delta), as in the paper but
    calibrated exactly; without one, the noise is ``Free`` and the plan's calibration solves
    it together with all else.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    norm
        R; by default the largest that the scaled features can have, so that nothing is clipped.
    rho
        The failure probability of the ridge's guarantee (utility only), in (0, 1).
    free, weight
        Where no budget is given: the name of the free parameter, and its weight relative to
        each release's sensitivity (sigma is ``multiplier * weight * sensitivity``).

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
    >>> sorted(plan.certify().shares)  # a third each
    ['AdaSSP.cross_moments', 'AdaSSP.second_moments', 'AdaSSP.smallest_eigenvalue']
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    norm: float | None = None
    rho: float = 0.05
    free: str = "sigma"
    weight: float = 1.0

    def __attrs_post_init__(self) -> None:
        if not (len(self.features) > 0):
            raise DeclarationError("AdaSSP needs at least one feature")
        if self.target in self.features:
            raise DeclarationError(
                f"AdaSSP's target {self.target!r} is among its features; take it out"
            )
        if not (isinstance(self.rho, float) and 0 < self.rho < 1):
            raise DeclarationError(
                f"AdaSSP.rho must be a probability inside (0, 1), got {self.rho!r}"
            )

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first.

        Parameters
        ----------
        table
            The rows to learn from.
        epsilon, delta
            The learner's budget, both or neither.
        """
        both_or_neither("AdaSSP", epsilon, delta)
        rows = regression(table, self.features, self.target, self.norm)
        change = change_at(table)
        queries = [
            rows.query(part) for part in (GramOfMoments(), CrossOfMoments(), EigenvalueOfMoments())
        ]
        noise = [self._noise(query, change, epsilon, delta) for query in queries]
        matrix = queries[0].release(noise[0], name="second_moments")
        cross = queries[1].release(noise[1], name="cross_moments")
        least = queries[2].release(noise[2], name="smallest_eigenvalue")
        theta = post(
            ridge,
            matrix,
            cross,
            least,
            parameter(matrix, "sigma"),
            parameter(least, "sigma"),
            rho=self.rho,
        )
        return group("AdaSSP", rows.coefficients(theta), table)

    def _noise(
        self, query: Handle, change: Change, epsilon: float | None, delta: float | None
    ) -> Gaussian:
        operation, domain = query.operation, query.inputs[0].domain
        assert isinstance(operation, Query)
        size = operation.sensitivity(domain, change, 2)
        if epsilon is None or delta is None:
            return Gaussian(sigma=Free(self.free, weight=size * self.weight))
        share = largest_mu(epsilon / 3, delta / 3)
        return Gaussian(sigma=sigma_for(share, size, operation.dimension(domain)))


def ridge(
    matrix: Array, cross: Array, least: float, sigma: float, sigma_least: float, *, rho: float
) -> Array:
    """Return the ridge coefficients of noisy second moments (see `AdaSSP`); shape (d,).

    A noisy matrix may have eigenvalues below its own noise; they are raised to it.
    """
    width = len(matrix)
    floor = max(0.0, least - sigma_least * math.sqrt(2 * math.log(1 / rho)))
    strength = max(0.0, sigma * math.sqrt(width * math.log(2 * width**2 / rho)) - floor)
    values, basis = np.linalg.eigh(matrix)
    raised = np.maximum(values + strength, sigma)
    return np.asarray(basis @ ((basis.T @ cross) / raised))
