"""AdaSSP: ridge regression by adaptive sufficient-statistics perturbation."""

from __future__ import annotations

import math

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import Handle, Released, change_at, parameter, post
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.primitives.gaussian import Gaussian, largest_mu, sigma_for
from adaptive_dp.queries.of_moments import CrossOfMoments, EigenvalueOfMoments, GramOfMoments
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers.budget import both_or_neither
from adaptive_dp.solvers.regression import Coefficients, regression

Array = NDArray[np.float64]


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
        require(len(self.features) > 0, "AdaSSP needs at least one feature")
        require(
            self.target not in self.features,
            f"AdaSSP's target {self.target!r} is among its features; take it out",
        )
        require(
            isinstance(self.rho, float) and 0 < self.rho < 1,
            f"AdaSSP.rho must be a probability inside (0, 1), got {self.rho!r}",
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
