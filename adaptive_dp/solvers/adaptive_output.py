"""Output perturbation whose noise follows the data: ridge regression."""

from __future__ import annotations

import math

from attrs import field, frozen

from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.group import group
from adaptive_dp.graph.handles import Released
from adaptive_dp.instance.perturbed_coefficients import PerturbedCoefficients
from adaptive_dp.primitives.gaussian import largest_mu
from adaptive_dp.queries.moments import LEAST, MOST
from adaptive_dp.queries.table import Table
from adaptive_dp.solvers.adaops import BOUND, FAILURE, released_bounds
from adaptive_dp.solvers.budget import budget
from adaptive_dp.solvers.regression import Coefficients, columns, inside, regression


@frozen
class AdaptiveOutputPerturbation:
    """Ridge regression with Gaussian noise scaled to a private bound of its local sensitivity.

    As `AdaOPS`, with the coefficients themselves in place of a posterior's draw: released are a
    lower bound of the least eigenvalue, from it the ridge, an upper bound of the coefficients'
    size, and the coefficients with noise ``(1 + T) / (h mu)``, h the ridge and the first bound, T
    the second. The noise falls as ``1 / h``, where output perturbation's at the worst case falls
    only with the ridge. One row a unit, under add_remove or zero_out.

    *Privacy.* As for `AdaOPS`: ``mu^2 = mu_1^2 + mu_2^2 + mu_3^2``, of which the bounds take a
    tenth each, and ``delta = f_1 + f_2 + (1 - f_1 - f_2) delta_mu(epsilon)``.

    Parameters
    ----------
    features
        Columns with bounds.
    target
        A column with bounds.
    norm
        By default the largest that the scaled features can have, so that nothing is clipped.
    ridge
        A public ridge, for rows of norm at most 1, instead of one that follows the first bound.

    References
    ----------
    Redberg, Zhu and Wang 2023; see `PerturbedCoefficients`.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> learner = dp.AdaptiveOutputPerturbation(["age"], "days")
    >>> plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0, delta=1e-6)).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=1 delta=1e-06 by distribution>
    >>> age = np.linspace(0, 100, 5_000)
    >>> found = plan.simulate(seed=1, people={"age": age, "days": 0.3 * age + 5})["model"]
    >>> round(found["age"], 1)
    0.3
    """

    features: tuple[str, ...] = field(converter=texts)
    target: str
    norm: float | None = None
    ridge: float | None = None

    def __attrs_post_init__(self) -> None:
        columns("AdaptiveOutputPerturbation", self.features, self.target)
        if self.ridge is not None:
            inside("AdaptiveOutputPerturbation.ridge", self.ridge, LEAST, MOST)

    def build(
        self, table: Table, epsilon: float | None, delta: float | None
    ) -> Released[Coefficients]:
        """Return the coefficients by feature, in the data's units, ``"intercept"`` first."""
        total, failures = budget("AdaptiveOutputPerturbation", epsilon, delta)
        rows = regression(table, self.features, self.target, self.norm)
        mu = largest_mu(total, failures * (1 - 2 * FAILURE)) * (1 - 1e-9)
        ridge, bound, size = released_bounds(rows, mu, failures * FAILURE * (1 - 1e-9), self.ridge)
        found = rows.exact().release(
            PerturbedCoefficients(mu * math.sqrt(1 - 2 * BOUND)),
            given=[ridge, bound, size],
            name="coefficients",
        )
        return group("adaptive output perturbation", rows.coefficients(found), table)
