"""Which learner is expected to be the best, by public numbers alone; and the learner it is."""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import field, frozen
from attrs.validators import optional

from adaptive_dp.erm import Logistic, Multinomial
from adaptive_dp.graph.handles import Released
from adaptive_dp.learning.additive import ROWS, AdditiveModel, paired, strength
from adaptive_dp.learning.base import ColumnLearner, LearnerBudget
from adaptive_dp.learning.boosted_ssp import BoostedSSP
from adaptive_dp.learning.noisy_gradient_descent import NoisyGradientDescent
from adaptive_dp.learning.objective_perturbation import ObjectivePerturbation
from adaptive_dp.learning.ssp import SSP
from adaptive_dp.mechanisms.additive import checked
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.table import Table

ENOUGH, ENOUGH_OF_NUMBERS = 2_500.0, 500.0
"""The rows times epsilon from which on shapes of ten features are learned better than slopes.

Of classes, and of numbers, where shapes start from a line and need fewer rows.
"""

Choice = tuple[str, str]
"""A learner's name, and why it is expected to be the best."""


def recommended_classifier(
    classes: int,
    features: int,
    epsilon: float,
    delta: float,
    rows: int | None = None,
    *,
    curves: bool = True,
) -> Choice:
    """Return the learner of classes that is expected to be the most accurate, and why.

    An additive model follows curves, and its noise grows with the root of its number of features;
    a linear model needs fewer rows. So what decides is rows times epsilon over that root, and the
    one constant, `ENOUGH`, was chosen on fourteen public tables (``benchmarks/regret.py``, which
    fits it to all sets but one, and prints what is lost on that one).

    Parameters
    ----------
    classes, features
        Their numbers, as declared.
    epsilon, delta
        The budget.
    rows
        About how many rows there are, if that is public.
    curves
        Whether it may be an additive model.

    Examples
    --------
    >>> recommended_classifier(2, 10, 1.0, 1e-6, rows=20_000)[0]
    'additive_model'
    >>> recommended_classifier(2, 10, 1.0, 1e-6, rows=500)[0]
    'noisy_gradient_descent'
    """
    if delta == 0:
        return "objective_perturbation", "delta is 0, and noise in the objective is pure"
    known = f"{rows} rows" if rows else f"rows unknown, taken for {ROWS}"
    if curves and strength(features, epsilon, rows) >= ENOUGH:
        return (
            "additive_model",
            f"at epsilon {epsilon:g} ({known}) a curve of each feature can be learned",
        )
    few = f"at epsilon {epsilon:g} ({known}) " if curves else ""
    return "noisy_gradient_descent", f"{few}a linear model needs the least, fitted to all classes"


def recommended_line(delta: float) -> Choice:
    """Return the linear learner of a number that is expected to be the most accurate, and why."""
    if delta == 0:
        return "ssp", "delta is 0, and Laplace noise on the moments is pure"
    return (
        "boosted_ssp",
        "steps on clipped gradients, scaled by a noisy second-moment matrix, were the best, or "
        "within .02 of the best, on nearly all tables and budgets",
    )


@frozen
class Auto(ColumnLearner[Any]):
    """The learner that is expected to be the most accurate, by public numbers alone.

    By the budget, the number of features and, where it is public, that of rows it is
    `AdditiveModel`; else of classes `NoisyGradientDescent`, of numbers `BoostedSSP`. Where
    ``delta=0`` it is `ObjectivePerturbation`, or `SSP` (`adaptive_dp.learning.auto`). The choice
    reads no data and costs nothing; what is released, and predicted by `predict`, is the chosen
    learner's model.

    Parameters
    ----------
    features
        Columns with bounds or categories. A number is learned from categories by `AdditiveModel`.
    target
        A column of categories, or with bounds.
    rows
        About how many rows there are, if that may be known; else the table's public size, if it
        has one. Do not count private rows for it.

    See Also
    --------
    adaptive_dp.select : choosing among candidates by the data, which costs a part of the budget.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> dp.Auto(["age"], "ill", rows=10_000).chosen(people, 1.0, 1e-6)
    AdditiveModel(features=('age',), target='ill', steps=40, clip=0.5, free='sigma', pairs=4)
    >>> type(dp.Auto(["age"], "ill", rows=500).chosen(people, 1.0, 1e-6)).__name__
    'NoisyGradientDescent'
    """

    rows: int | None = field(
        default=None,
        validator=optional(checked(lambda v: type(v) is int and v >= 1, "an int of at least 1")),
    )

    title: ClassVar[str] = "auto"

    def chosen(self, table: Table, epsilon: float | None, delta: float | None) -> Any:
        """Return the learner for a table's declarations and a budget (by default epsilon 1)."""
        goal = table.domain.find(self.target)
        at, slack = 1.0 if epsilon is None else epsilon, 1e-6 if delta is None else delta
        columns = self.features, self.target
        rows = self.rows or table.domain.size
        if not isinstance(goal, Categories):
            # lines are of bounded columns alone
            curved = strength(len(self.features), at, rows) >= ENOUGH_OF_NUMBERS or any(
                isinstance(table.domain.find(name), Categories) for name in self.features
            )
            if slack > 0 and curved:
                return AdditiveModel(*columns, pairs=paired(len(self.features), at, rows))
            name, _ = recommended_line(slack)
            return SSP(*columns, pure=True) if name == "ssp" else BoostedSSP(*columns)
        count = len(goal.values)
        name, _ = recommended_classifier(count, len(self.features), at, slack, rows)
        if name == "additive_model":
            pairs = paired(len(self.features), at, rows, count)
            return AdditiveModel(*columns, pairs=pairs)
        if name == "objective_perturbation":
            return ObjectivePerturbation(*columns)
        loss = Logistic() if count == 2 else Multinomial(count)
        return NoisyGradientDescent(*columns, loss=loss)

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[Any]:
        """Return the chosen learner's released model."""
        released: Released[Any] = self.chosen(table, epsilon, delta).build(table, epsilon, delta)
        return released

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Any]:
        """Return the chosen learner's model, of complete rows."""
        epsilon, delta = (None, None) if budget is None else (budget.epsilon, budget.delta)
        return self.build(table, epsilon, delta)
