"""OPS: ridge regression by one posterior sample, for any data."""

from __future__ import annotations

from attrs import field, frozen

from accountants.rounding import down
from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import Released
from adaptive_dp.graph.operation import require
from adaptive_dp.instance.truncated_posterior import TruncatedPosterior, row_range
from adaptive_dp.queries.moments import LEAST, MOST
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers.regression import Coefficients, columns, inside, regression


@frozen
class OPS:
    """Ridge regression by one draw of the posterior, kept to a ball: pure epsilon, any data.

    Features and target are mapped from their declared bounds onto [-1, 1], rows (with an intercept)
    divided by their largest norm R, or clipped to ``norm`` and divided by it. The draw's density is
    ``exp(-gamma (|y - Xw|^2 + ridge |w|^2) / 2)`` on ``|w| <= R radius``. A row that comes or goes
    moves the log density by a range of ``gamma (1 + R radius)^2 / 2`` (``2 gamma R radius`` where
    that is below 1), so a budget of epsilon gives ``gamma = 2 epsilon / (1 + R radius)^2``; delta
    is not used. `AdaOPS` knows the data, and
    therefore needs less noise where they are many.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    radius
        The largest norm of coefficients that there may be, of columns on [-1, 1].
    norm
        By default the largest that the scaled features can have.
    ridge
        For rows of norm at most 1.
    free
        Where no budget is given: the name of the free parameter.

    References
    ----------
    Wang, Fienberg and Smola 2015 (one posterior sample); Durfee and Rogers 2019 (bounded range).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> plan = dp.Pipeline(model=people.solve(dp.OPS(["age"], "days"), epsilon=1.0, delta=0))
    >>> plan.certify()
    <certificate epsilon=1 delta=0 by basic>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    radius: float = 1.0
    norm: float | None = None
    ridge: float = LEAST
    free: str = "gamma"

    def __attrs_post_init__(self) -> None:
        columns("OPS", self.features, self.target)
        inside("OPS.radius", self.radius, 1e-3, 1e3)
        inside("OPS.ridge", self.ridge, LEAST, MOST)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first."""
        require(
            epsilon is None or 1e-6 <= epsilon <= 1e6,
            f"OPS needs an epsilon in [1e-6, 1e6], or none to leave gamma free, got {epsilon!r}",
        )
        rows = regression(table, self.features, self.target, self.norm)
        radius = rows.radius * self.radius
        weight = down(2 / row_range(radius), 32)
        gamma = weight * (1.0 if epsilon is None else epsilon)
        cold = Free(self.free, weight=weight) if epsilon is None else down(gamma, 4)
        sampler = TruncatedPosterior(cold, self.ridge, radius)
        sample = rows.exact().release(sampler, name="posterior_sample")
        return group("OPS", rows.coefficients(sample), table)
