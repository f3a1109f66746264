"""Which learner is expected to be the best, by public numbers alone; and the learner it is."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from attrs.validators import optional
from numpy.typing import NDArray

from adaptive_dp.erm import Logistic, Multinomial, Squared
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, parameter, post, public
from adaptive_dp.learning.additive import ROWS, AdditiveModel, paired, strength
from adaptive_dp.learning.base import (
    ColumnLearner,
    LearnerBudget,
    Model,
    check_classes,
    gaussian_noise,
    linear,
    query_sensitivity,
)
from adaptive_dp.learning.boosted_ssp import BoostedSSP, shrunk
from adaptive_dp.learning.noisy_gradient_descent import NoisyGradientDescent
from adaptive_dp.learning.objective_perturbation import ObjectivePerturbation
from adaptive_dp.learning.ssp import SSP, laplace_scale
from adaptive_dp.mechanisms.additive import Laplace, checked, largest_mu
from adaptive_dp.queries.domains import Categories, Interval
from adaptive_dp.queries.table import Table

ENOUGH, ENOUGH_OF_NUMBERS = 2_500.0, 2_000.0
"""The rows times epsilon from which on shapes of ten features are learned better than slopes.

Of classes, and of numbers, where shapes start from a line and need fewer rows.
"""

FEW = 25.0
"""Fewer rows than so many times the noise that a count has are too few to learn from.

Of a count that is given all of the budget. On 300 rows at epsilon .1 the noise is 31 rows.
"""

Choice = tuple[str, str]
"""A learner's name, and why it is expected to be the best."""


def count_noise(epsilon: float, delta: float) -> float:
    """Return the standard deviation of the noise of a count that has all of the budget.

    Examples
    --------
    >>> round(count_noise(0.1, 1e-5), 1), round(count_noise(0.1, 0.0), 1)
    (30.7, 14.1)
    """
    # a Laplace scale of 1 / epsilon has the deviation sqrt(2) / epsilon
    if delta == 0:
        return math.sqrt(2) / epsilon if epsilon else math.inf  # 0 is refused by each learner
    return 1 / largest_mu(epsilon, delta)


def too_few(epsilon: float, delta: float, rows: int | None) -> bool:
    """Return whether so few rows are known to be there that one answer for all is safer.

    What is learned of fewer than `FEW` times the noise of a count was, on the tuning sets, as often
    worse than the most frequent class, or the mean, as better, and by more (`Constant`). An unknown
    number is not thought to be small.

    Examples
    --------
    >>> too_few(0.1, 1e-5, 300), too_few(0.5, 1e-5, 300), too_few(0.1, 1e-5, None)
    (True, False, False)
    """
    return rows is not None and rows < FEW * count_noise(epsilon, delta)


SAFER = "noise is most of what a model of features would know; all of the budget is for"


def recommended_classifier(
    classes: int,
    features: int,
    epsilon: float,
    delta: float,
    rows: int | None = None,
    *,
    curves: bool = True,
    few: int | None = None,
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
    few
        The rows that `too_few` is asked about; None where a constant is no answer.

    Examples
    --------
    >>> recommended_classifier(2, 10, 0.1, 1e-6, few=300)[0]
    'constant'
    >>> recommended_classifier(2, 10, 1.0, 1e-6, rows=20_000)[0]
    'additive_model'
    >>> recommended_classifier(2, 10, 1.0, 1e-6, rows=500)[0]
    'noisy_gradient_descent'
    """
    if too_few(epsilon, delta, few):
        return "constant", f"at epsilon {epsilon:g} ({few} rows) {SAFER} the most frequent class"
    if delta == 0:
        return "objective_perturbation", "delta is 0, and noise in the objective is pure"
    known = f"{rows} rows" if rows else f"rows unknown, taken for {ROWS}"
    if curves and strength(features, epsilon, rows) >= ENOUGH:
        return (
            "additive_model",
            f"at epsilon {epsilon:g} ({known}) a curve of each feature can be learned",
        )
    there = f"at epsilon {epsilon:g} ({known}) " if curves else ""
    return "noisy_gradient_descent", f"{there}a linear model needs the least, fitted to all classes"


def recommended_line(epsilon: float, delta: float, few: int | None = None) -> Choice:
    """Return the linear learner of a number that is expected to be the most accurate, and why."""
    if too_few(epsilon, delta, few):
        return "constant", f"at epsilon {epsilon:g} ({few} rows) {SAFER} the mean"
    if delta == 0:
        return "ssp", "delta is 0, and Laplace noise on the moments is pure"
    return (
        "boosted_ssp",
        "steps on clipped gradients, scaled by a noisy second-moment matrix, were the best, or "
        "within .02 of the best, on nearly all tables and budgets",
    )


@frozen
class Constant(ColumnLearner[Model]):
    """One answer for all rows: the most frequent class, or the mean, with all of the budget.

    What is left to learn where rows are too few for the budget (`too_few`). Of classes the numbers
    of rows are released, and the intercepts are their logarithms. Of a number with bounds
    ``c - h`` and ``c + h`` the sum of ``(y - c)`` is, with noise of deviation s; of n rows the mean
    is estimated as ``c + h v S / (v + e^2)``, ``S = sum / (h n)``, ``e = s / (h n)``: the posterior
    mean, of a prior variance v of 1/3 around the middle. All other coefficients are 0.

    The noise is Laplace's where it has the smaller deviation, which at a delta of 1e-5 it nearly
    always has: there is a single release, and its 1.4 / epsilon of a count at epsilon .1 are 14
    rows, where Gaussian noise has 31. Of scale b, at a distance of 1, it has the exact profile
    ``delta(epsilon) = 1 - exp((epsilon - 1 / b) / 2)``, so that ``1 / b = epsilon - 2 log(1 -
    delta)``.

    Parameters
    ----------
    features
        Columns with bounds or categories, whose coefficients are 0.
    target
        A column of categories, or with bounds.
    rows
        About how many rows there are, which must be public; a mean is a sum divided by it.
    free
        Where no budget is given: the name of the free noise.

    References
    ----------
    Gelman et al. 2013, Section 2.5 (the normal mean with a known variance). Balle, Barthe and
    Gaboardi 2018 (the profile of Laplace noise).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "days": (0, 40)})
    >>> model = people.solve(Constant(["age"], "days", rows=200), epsilon=0.5, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> plan.certify()
    <certificate epsilon=0.5 delta=1e-06 by distribution>
    >>> model = plan.simulate(seed=1, people={"age": np.zeros(200), "days": np.full(200, 9.0)})
    >>> {name: round(value) for name, value in model["model"].items()}
    {'intercept': 9, 'age': 0}
    """

    rows: int = field(
        kw_only=True, validator=checked(lambda v: type(v) is int and v >= 1, "an int of at least 1")
    )
    free: str = "sigma"

    title: ClassVar[str] = "constant"

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        goal = table.domain.find(self.target)
        if isinstance(goal, Categories):
            loss = Logistic() if len(goal.values) == 2 else Multinomial(len(goal.values))
            problem = linear(table, self.features, self.target, loss, None)
            counts, noise, _ = self._released(table[self.target].histogram(), table, budget)
            return problem.model(post(log_odds, counts, noise, width=problem.width))
        problem = linear(table, self.features, self.target, Squared(), None)
        middle, half = problem.target_scale
        if half <= 0:
            # bounds that are equal tell the target: nothing is asked of the rows
            if budget is not None and not budget.epsilon > 0:
                raise DeclarationError(f"epsilon must be above 0, got {budget.epsilon!r}")
            return problem.model(public([0.0] * problem.width))
        query = (table[self.target] - middle).sum()
        total, noise, deviation = self._released(query, table, budget)
        own = {"rows": self.rows, "half": half, "deviation": deviation, "width": problem.width}
        return problem.model(post(posterior_mean, total, noise, **own))

    def _released(
        self, query: PrivateQuery[Any], table: Table, budget: LearnerBudget | None
    ) -> tuple[Released[Any], Released[float], float]:
        """Return a query, released with all of the budget, its noise, and that one's deviation.

        The noise is sigma, of deviation 1, or Laplace's scale, of deviation sqrt(2).
        """
        mu = None
        if budget is not None:
            # a single count or sum: Laplace noise in l1; the factor rounds the budget down
            epsilon = (budget.epsilon - 2 * math.log1p(-budget.delta)) * (1 - 1e-12)
            scale = laplace_scale(epsilon, query_sensitivity(query, table, 1), 1)
            if budget.delta > 0:
                mu = largest_mu(budget.epsilon, budget.delta)
            if mu is None or math.sqrt(2) * scale * mu < query_sensitivity(query, table):
                released = query.release(Laplace(scale=scale), name=self.target)
                return released, parameter(released, "scale"), math.sqrt(2)
        released = query.release(gaussian_noise(query, table, mu, free=self.free), name=self.target)
        return released, parameter(released, "sigma"), 1.0


def log_odds(counts: Any, noise: float, *, width: int) -> NDArray[np.float64]:
    """Return parameters by which every row has the class of the largest noisy count.

    Examples
    --------
    >>> log_odds([40.0, 10.0], 5.0, width=2).round(2).tolist()
    [-1.39, 0.0]
    >>> log_odds([40.0, 10.0, -3.0], 5.0, width=1).round(2).tolist()
    [3.69, 2.3, 1.61]
    """
    by_class = np.asarray(counts, dtype=np.float64)
    # a count that noise explains is of as many rows as the noise
    logs = np.log(np.maximum(by_class, max(float(noise), 1.0)))
    first, second = np.argsort(-by_class, kind="stable")[:2]
    logs[first] = max(logs[first], logs[second] + 0.01)
    intercepts = logs[1:] - logs[:1] if len(logs) == 2 else logs
    theta = np.zeros((len(intercepts), width))
    theta[:, 0] = intercepts
    return theta.reshape(-1)


def posterior_mean(
    total: float, noise: float, *, rows: int, half: float, deviation: float, width: int
) -> NDArray[np.float64]:
    """Return parameters that predict the mean of a noisy sum for every row; see `Constant`.

    ``deviation`` is that of noise whose parameter is 1.

    Examples
    --------
    >>> posterior_mean(50.0, 1.0, rows=100, half=1.0, deviation=1.0, width=2).round(3).tolist()
    [0.5, 0.0]
    >>> posterior_mean(50.0, 60.0, rows=100, half=1.0, deviation=1.0, width=2).round(3).tolist()
    [0.24, 0.0]
    """
    mean, error = float(total) / (rows * half), float(noise) * deviation / (rows * half)
    theta = np.zeros(width)
    theta[0] = min(max(shrunk(mean, error), -1.0), 1.0)
    return theta


def _moves(table: Table, target: str) -> float:
    """Return by how much a unit moves the classes' counts, or the sum of a number's half widths.

    1 for a row that comes or goes, as many more as a unit has rows.
    """
    goal, column = table.domain.find(target), table[target]
    if isinstance(goal, Categories):
        return query_sensitivity(column.histogram(), table)
    half = (goal.upper - goal.lower) / 2 if isinstance(goal, Interval) else 0.0
    # no half width where bounds are equal, or so near that it is rounded to 0
    if isinstance(goal, Interval) and half > 0:
        return query_sensitivity((column - (goal.lower + half)).sum(), table) / half
    return 1.0


@frozen
class Auto(ColumnLearner[Any]):
    """The learner that is expected to be the most accurate, by public numbers alone.

    By the budget, the number of features and, where it is public, that of rows it is
    `AdditiveModel`; else of classes `NoisyGradientDescent`, of numbers `BoostedSSP`. Where
    ``delta=0`` it is `ObjectivePerturbation`, or `SSP` (`adaptive_dp.learning.auto`). Where so few
    rows are known to be there that noise would be most of what is learned, it is the most frequent
    class, or the mean, with all of the budget. The choice
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
        check_classes("Auto", table, self.target)
        goal = table.domain.find(self.target)
        at, slack = 1.0 if epsilon is None else epsilon, 1e-6 if delta is None else delta
        columns = self.features, self.target
        rows = self.rows or table.domain.size
        if rows is not None and too_few(at, slack, int(rows / _moves(table, self.target))):
            return Constant(*columns, rows=rows)
        if not isinstance(goal, Categories):
            # lines are of bounded columns alone
            curved = strength(len(self.features), at, rows) >= ENOUGH_OF_NUMBERS or any(
                isinstance(table.domain.find(name), Categories) for name in self.features
            )
            if slack > 0 and curved:
                return AdditiveModel(*columns, pairs=paired(len(self.features), at, rows))
            name, _ = recommended_line(at, slack)
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
