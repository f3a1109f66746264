"""Ridge regression by output perturbation, at its worst-case sensitivity."""

from __future__ import annotations

from attrs import field, frozen

from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import Released
from adaptive_dp.graph.operation import require
from adaptive_dp.primitives.gaussian import Gaussian, sigma_for
from adaptive_dp.queries.constrained_coefficients import ConstrainedCoefficients
from adaptive_dp.queries.moments import LEAST, MOST
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers.adassp import Coefficients, change_at, largest_mu
from adaptive_dp.solvers.regression import columns, inside, regression


@frozen
class OutputPerturbation:
    """Ridge coefficients in a ball, with Gaussian noise: what adaptive learners are compared with.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm R, or clipped to ``norm`` and divided by it. The minimiser of
    ``|y - Xw|^2 / 2 + ridge |w|^2 / 2`` on ``|w| <= R radius`` moves by at most
    ``(1 + R radius) / ridge`` in l2 norm for each row that comes or goes, whatever the data.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    ridge
        For rows of norm at most 1, in [2^-9, 2^40]. The noise falls in it, the bias rises.
    radius
        The largest norm of coefficients that there may be, of columns on [-1, 1].
    norm
        By default the largest that the scaled features can have.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate 2011, Algorithm 1, with Gaussian noise and a ball.
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    ridge: float
    radius: float = 1.0
    norm: float | None = None
    free: str = "sigma"

    def __attrs_post_init__(self) -> None:
        columns("OutputPerturbation", self.features, self.target)
        inside("OutputPerturbation.ridge", self.ridge, LEAST, MOST)
        inside("OutputPerturbation.radius", self.radius, 1e-3, 1e3)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first."""
        require(
            (epsilon is None) == (delta is None),
            "OutputPerturbation needs epsilon and delta, or neither to leave its noise free",
        )
        rows = regression(table, self.features, self.target, self.norm)
        query = rows.query(ConstrainedCoefficients(self.ridge, rows.radius * self.radius))
        size = query.operation.sensitivity(rows.moments.domain, change_at(table), 2)  # type: ignore[attr-defined]
        if epsilon is None or delta is None:
            noise = Gaussian(sigma=Free(self.free, weight=size))
        else:
            width = len(self.features) + 1
            noise = Gaussian(sigma=sigma_for(largest_mu(epsilon, delta), size, width))
        return group(
            "output perturbation",
            rows.coefficients(query.release(noise, name="coefficients")),
            table,
        )
