"""What learners share: the protocol of their budget, their rows, and conversion to data units."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from attrs import Attribute, evolve, field, frozen
from numpy.typing import NDArray

from accountants import ACCOUNTANTS
from accountants.numerics import up
from adaptive_dp.erm import Logistic, Loss, Multinomial, Network
from adaptive_dp.erm.losses import Weighted
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError
from adaptive_dp.graph.handles import (
    Handle,
    Private,
    PrivateQuery,
    Released,
    change_at,
    group,
    parameter,
    post,
    public,
    unaliased,
)
from adaptive_dp.graph.loops import RoundInput, ancestors, rewritten
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.nodes import structure
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.outputs import estimates
from adaptive_dp.graph.plan import Pipeline, free_weights, multiplier, scale_free
from adaptive_dp.graph.values import positive, strings
from adaptive_dp.mechanisms.additive import (
    Gaussian,
    Laplace,
    Validator,
    checked,
    largest_mu,
    sigma_for,
)
from adaptive_dp.queries.domains import Categories, Interval, Strings
from adaptive_dp.queries.examples import standard
from adaptive_dp.queries.labeled import LabeledRows
from adaptive_dp.queries.moments import ExactMoments, MomentsOf
from adaptive_dp.queries.table import Table, Vectors, complete_rows
from adaptive_dp.queries.vectors import EncodedVectors, encoded

Coefficients = dict[str, float]
"""Coefficients by feature in data units, ``"intercept"`` first."""

Model = Coefficients | dict[str, Coefficients]
"""Coefficients of one score, or of several classes, by class."""

Array = NDArray[np.float64]
Releases = Callable[[PrivateQuery[Any], str, float], tuple[Released[Any], Released[float]]]
"""A function that releases a query under a name, with a part of a share of a budget: the value, and
its noise's deviation."""

M = TypeVar("M")
L = TypeVar("L", bound=Loss | Network)

# -----------------------------------------------------------------------------
# The budget of a learner: what it is given, what it returns, how a share becomes noise.


@frozen
class LearnerBudget:
    """The (epsilon, delta) that one learner may spend, checked.

    Parameters
    ----------
    epsilon
        In nats, positive.
    delta
        A probability; 0 for pure differential privacy.
    """

    epsilon: float
    delta: float


class Learner(ABC, Generic[M]):
    """A learner: parameters of a method, and the subgraph that it builds over a table.

    Every learner keeps one protocol. ``table.solve(learner, epsilon=..., delta=...)`` calls
    `build`, which does the same for all:

    1. `budget` checks epsilon and delta. Without a budget it returns None.
    2. `learn` declares the queries, the mechanisms and the post-processing, and returns the
       released model. It is given the table and the budget, and gives every mechanism its noise:

       - without a budget, the noise of each release is ``Free(free, weight=...)``, its weight
         proportional to the release's sensitivity. The plan's calibration then solves it together
         with everything else under that name;
       - with one, each release gets a share of it in closed form. Gaussian releases compose by
         ``mu^2 = mu_1^2 + mu_2^2 + ...`` (Dong, Roth and Su 2022, Corollary 2), so that shares of
         mu^2 add up to 1: `gaussian_noise` turns a share into a sigma. A pure learner divides
         epsilon.

    3. The nodes between the table and the model become one group.
    4. Where `calibrated` is set, `learn` leaves all noise free with a budget too, and one
       multiplier of it is solved here over the learner's own subgraph (`calibrated_to`). This
       is for learners whose cost no closed form gives, such as rounds on Poisson samples; the
       budget tells them how to divide it.

    In each case the certificate is computed from the resulting graph and not from the budget: a
    learner that asked for too little noise would be certified at what it really costs.

    See Also
    --------
    adaptive_dp.queries.table.Solver : The part of this that a learner from elsewhere must have.
    """

    __slots__ = ()

    title: ClassVar[str]
    """The name of the group of the learner's nodes."""

    calibrated: ClassVar[bool] = False
    """Whether `learn` leaves all noise free, to be solved for the budget by `build`."""

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[M]:
        """Return the released model: see the class for the steps.

        Parameters
        ----------
        table
            The rows to learn from.
        epsilon, delta
            The learner's budget, or None to leave its noise to the plan's calibration.

        Raises
        ------
        DeclarationError
            If the learner cannot work with this budget, or with the columns of this table.
        """
        budget = self.budget(epsilon, delta)
        # with `calibrated` the budget tells what to spend it on, and all noise is free until below
        learned = group(self.group_name(), self.learn(self.complete(table), budget), table)
        # without a budget the plan's calibration solves the noise
        if budget is None or not self.calibrated:
            return learned
        return calibrated_to(budget, type(self).__name__, table, learned)

    @abstractmethod
    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[M]:
        """Return the released model, with noise for ``budget``, or free noise for None."""

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget, checked; by default both numbers are needed, or neither.

        Raises
        ------
        DeclarationError
            If one of them is missing, or they are outside of what the learner can calibrate to.
        """
        return optional_budget(type(self).__name__, epsilon, delta)

    def complete(self, table: Table) -> Table:
        """Return the rows that are learned from: by default those of the table."""
        return table

    def group_name(self) -> str:
        """Return the name of the group of the learner's nodes."""
        return self.title


def optional_budget(kind: str, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
    """Return the budget, or None if there is none; refuse one of which a number is missing."""
    # one of the two numbers alone is refused: the other has no default
    if (epsilon is None) != (delta is None):
        raise DeclarationError(
            f"{kind} needs epsilon and delta, or neither of them to leave its noise free"
        )
    return None if epsilon is None or delta is None else LearnerBudget(epsilon, delta)


def required_budget(kind: str, epsilon: float | None, delta: float | None) -> LearnerBudget:
    """Return the budget of a learner that cannot leave its noise free."""
    if epsilon is None or delta is None:
        raise DeclarationError(
            f"{kind} calibrates itself to a budget: solve({kind}(...), epsilon=..., delta=...)"
        )
    if not (0 < epsilon < math.inf and 1e-15 <= delta < 0.5):
        raise DeclarationError(
            f"{kind} needs epsilon > 0 and delta in [1e-15, 0.5), got {epsilon!r} and {delta!r}"
        )
    return LearnerBudget(float(epsilon), float(delta))


def pure_budget(
    kind: str, epsilon: float | None, bounds: tuple[float, float]
) -> LearnerBudget | None:
    """Return the budget of a learner that is epsilon-DP whatever delta is, or None without one."""
    if epsilon is None:
        return None
    if not (bounds[0] <= epsilon <= bounds[1]):
        raise DeclarationError(
            f"{kind} needs an epsilon in [{bounds[0]:g}, {bounds[1]:g}], or None to leave its "
            f"noise free, got {epsilon!r}"
        )
    return LearnerBudget(epsilon, 0.0)


def query_sensitivity(query: PrivateQuery[Any], table: Table, norm: float = 2) -> float:
    """Return the l_p sensitivity of a query to one unit of the table, p being ``norm``."""
    operation = query.operation
    # one unit may change several rows: `change_at` says how many, and in what way
    assert isinstance(operation, Query)
    return float(operation.sensitivity(query.inputs[0].domain, change_at(table), norm))


def gaussian_noise(
    query: PrivateQuery[Any],
    table: Table,
    mu: float | None,
    *,
    free: str,
    share: float = 1.0,
    weight: float = 1.0,
) -> Gaussian:
    """Return the Gaussian mechanism of a release that has a share of a learner's budget.

    Parameters
    ----------
    query
        The value to release.
    table
        The learner's table, whose units are protected.
    mu
        The Gaussian-DP parameter of all of the learner's releases together; None for free noise.
    free
        The name of the free noise.
    share
        The release's share of mu^2, in (0, 1].
    weight
        A factor of the free noise.
    """
    sensitivity = query_sensitivity(query, table)
    if mu is None:
        # sigma proportional to Delta / sqrt(share), so that (Delta / sigma)^2 keeps the shares
        return Gaussian(sigma=Free(free, weight=sensitivity / math.sqrt(share) * weight))
    operation = query.operation
    assert isinstance(operation, Query)
    # coordinates that one unit may move are rounded to the noise's lattice, but for its multiples
    domain, change = query.inputs[0].domain, change_at(table)
    moved, step = operation.coordinates_moved(domain, change), operation.step(domain)
    # mu^2 times the share, so that shares which add up to 1 cost mu in all
    return Gaussian(sigma=sigma_for(mu * math.sqrt(share), sensitivity, moved, step))


def epsilon_of_share(epsilon: float, delta: float, share: float) -> float:
    """Return the epsilon of what has a share of a budget: of mu^2, or of epsilon at delta 0.

    Examples
    --------
    >>> [round(epsilon_of_share(1.0, delta, 0.25), 3) for delta in (0.0, 1e-6)]
    [0.25, 0.475]
    """
    if delta == 0:
        return epsilon * share * (1 - 1e-9)
    wanted = largest_mu(epsilon, delta) * math.sqrt(share)
    low, high = 0.0, epsilon
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if largest_mu(middle, delta) < wanted else (low, middle)
    return low


def calibrated_to(
    budget: LearnerBudget, kind: str, table: Table, model: Released[M]
) -> Released[M]:
    """Return a learner's model with its free noise solved for the learner's own budget.

    Raises
    ------
    DeclarationError
        If the table depends on a loop's state, or on a release whose own noise is still free,
        under whatever name: it would be solved with the learner's, and the learner would read a
        copy of it, another release than the one whose handle the caller has.
    """
    # without the handles of a loop around it: one round's cost, as in `outside_of_loops`
    learned, rows = outside_of_loops(model), outside_of_loops(table)
    if learned.states or rows.states:
        raise DeclarationError(
            f"{kind} has a budget of its own, but its table follows the rounds of a repeat or a "
            "selection; leave out epsilon and delta there, and calibrate the plan"
        )
    # noise above the table that is still free would be solved with the learner's
    names = set(free_weights(structure([(("table",), rows)])))
    if names:
        raise DeclarationError(
            f"{kind} has a budget of its own, but its table follows a release whose noise is free "
            f"({', '.join(sorted(names))}); fix that, or leave out the learner's epsilon and delta"
        )
    # the cost is that of the learner as it stands alone; the noise then goes into the graph as
    # the caller has it, with the handles of the loop around it
    noise = multiplier([(("learned",), learned)], budget.epsilon, budget.delta, ACCOUNTANTS)
    solved: Released[M] = scale_free([(("learned",), model)], noise)[0][1]  # type: ignore[assignment]
    return solved


def outside_of_loops(handle: Handle) -> Handle:
    """Return a handle that reads the tables themselves where it reads a loop's own handles of them.

    It costs what one round's costs; it still depends on a loop's state where it reads that.
    """
    above = ancestors(handle, bodies=True)
    inputs = [
        node
        # a loop's own input, which stands for a table or value outside of it
        for node in above
        if isinstance(node.operation, RoundInput) and node.inputs[1] in handle.states
    ]
    # every such input is replaced by the handle that it stands for
    return rewritten([handle], replacements={node: unaliased(node) for node in inputs})[handle]


# -----------------------------------------------------------------------------
# Parameters of learners that learn a column from others, and their checks.


def within(low: float, high: float) -> Validator:
    """Return an attrs validator that refuses what is not a number in [low, high]."""
    # `positive` refuses NaN, infinity and what is not a number
    return checked(
        lambda value: positive(value) and low <= value <= high,
        f"a number in [{low:g}, {high:g}]",
    )


@frozen
class ColumnLearner(Learner[M]):
    """A learner of one column of a table, the target, from others, the features.

    Rows in which one of these columns is missing are left out, by a filter: a visible node. Nothing
    that learners promise rests on a unit's number of rows being the same in both data sets, nor on
    a public number of rows, so no noise follows from that; a filter looks at each row by itself, so
    a sample of what it keeps is what it keeps of a sample. `Table.fill` imputes instead.
    """

    features: tuple[str, ...] = field(converter=strings)
    target: str = field()

    linear: ClassVar[bool] = True
    """Whether the result is coefficients by feature (but for networks)."""

    losses: ClassVar[tuple[type, ...]] = (Loss, Network)
    """What a ``loss`` may be, where the learner has one."""

    @target.validator
    def _not_a_feature(self, attribute: Attribute[str], target: str) -> None:
        """Refuse to learn from no features, or from the target itself."""
        kind = type(self).__name__
        if not self.features:
            raise DeclarationError(f"{kind} needs at least one feature")
        if target in self.features:
            raise DeclarationError(f"{kind}'s target {target!r} is among its features; take it out")

    def build(self, table: Table, epsilon: float | None, delta: float | None) -> Released[M]:
        """Return the released model; refuse a target of a single category, and what is no loss."""
        kind, loss = type(self).__name__, getattr(self, "loss", None)
        check_classes(kind, table, self.target)
        if not (loss is None or isinstance(loss, self.losses)):
            raise DeclarationError(f"{kind}'s loss is a loss such as dp.Logistic(), got {loss!r}")
        return super().build(table, epsilon, delta)

    def complete(self, table: Table) -> Table:
        """Return the rows that have all features and the target."""
        return complete_rows(table, (*self.features, self.target))


def check_classes(kind: str, table: Table, target: str) -> None:
    """Refuse a target of which a single category is declared."""
    goal = table.domain.find(target)
    if isinstance(goal, Categories) and len(goal.values) < 2:
        raise DeclarationError(
            f"{kind}'s target {target!r} is declared with one category, {goal.values[0]!r}: "
            "nothing can be learned; declare all categories that a row may have, two or more"
        )


WEIGHED = 0.01
"""The share of the budget (of mu^2, or of epsilon) for the number of each class's rows."""


@frozen
class WeightedLearner(ColumnLearner[M]):
    """A learner whose rows may weigh differently.

    A weight multiplies its row's loss. Weights are divided by the largest that there may be, so
    that the heaviest row counts as a row without weights does: noise and sensitivity stay what they
    are, and light rows count for less. (In units in which a row without a weight counts once, the
    loss's Lipschitz constant, and with it the noise, is as large as the largest weight.) A ridge
    that is given is in units of the heaviest row.

    Parameters
    ----------
    class_weight
        The weight of each of the target's categories, 1 where none is given, such as
        ``{"rare": 50}``; or ``"balanced"``, all classes weighing the same: by one over their
        numbers of rows, which are released first with a hundredth of the budget.
    sample_weight
        A column of weights, with bounds from 0 on.
    """

    class_weight: Mapping[Any, float] | str | None = field(default=None, kw_only=True)
    sample_weight: str | None = field(default=None, kw_only=True)

    @class_weight.validator
    def _known_weights(self, attribute: Attribute[Any], value: Any) -> None:
        """Refuse what is neither ``"balanced"`` nor weights by label."""
        if value is None or value == "balanced":
            return
        fits = isinstance(value, Mapping) and all(
            isinstance(w, int | float) and 0 <= w < math.inf for w in value.values()
        )
        if not (fits and any(w > 0 for w in value.values())):
            raise DeclarationError(
                f"{type(self).__name__}.class_weight must be 'balanced', or finite numbers of at "
                f"least 0 by label, such as {{'rare': 50}}, not all of them 0; got {value!r}"
            )

    @property
    def is_weighted(self) -> bool:
        """Whether rows have weights."""
        return self.class_weight is not None or self.sample_weight is not None

    def complete(self, table: Table) -> Table:
        """Return the rows that have all features, the target, and a weight where one is read."""
        weight = () if self.sample_weight is None else (self.sample_weight,)
        return complete_rows(super().complete(table), weight)

    def weighed(self, loss: L) -> L:
        """Return the loss, or the network, for rows with weights where they have them."""
        if not self.is_weighted:
            return loss
        if isinstance(loss, Network):
            return evolve(loss, loss=Weighted(loss.loss))
        return Weighted(loss)  # type: ignore[return-value]

    def weights(self, table: Table, noise: Callable[[PrivateQuery[Any]], Mechanism]) -> RowWeights:
        """Return the weights of a table's rows.

        Parameters
        ----------
        table
            The learner's.
        noise
            Of the query of each class's number of rows, where weights are balanced by it.
        """
        if self.class_weight is None:
            return RowWeights(self.sample_weight)
        goal, kind = table.domain.find(self.target), type(self).__name__
        if not isinstance(goal, Categories):
            raise DeclarationError(
                f"{kind}.class_weight needs a target of categories; {self.target!r} is declared as "
                f"{goal}"
            )
        if isinstance(self.class_weight, str):
            query = table[self.target].histogram()
            mechanism = noise(query)
            counts = query.release(mechanism, name="rows_of_each_class")
            # Gaussian or Laplace: its own parameter says how far a count may be off
            spread = "sigma" if isinstance(mechanism, Gaussian) else "scale"
            return RowWeights(
                self.sample_weight, post(balanced_weights, counts, parameter(counts, spread))
            )
        unknown = [label for label in self.class_weight if label not in goal.values]
        if unknown:
            raise DeclarationError(
                f"{kind}.class_weight names {unknown!r}, which {self.target!r} does not have: its "
                f"categories are {list(goal.values)!r}"
            )
        weights = [float(self.class_weight.get(label, 1.0)) for label in goal.values]
        return RowWeights(self.sample_weight, tuple(w / max(weights) for w in weights))


@frozen
class RowWeights:
    """What rows are weighted by, as `Table.examples` reads it: a column, and classes' weights."""

    weight: str | None = None
    class_weights: tuple[float, ...] | Released[Any] | None = None


def balanced_weights(counts: Any, spread: float) -> Any:
    """Return weights by which all classes weigh the same: the smallest number over each.

    A number of rows below twice the noise says little, and is read as that.
    """
    numbers = np.maximum(np.asarray(counts, dtype=np.float64), max(1.0, 2 * float(spread)))
    return numbers.min() / numbers


# -----------------------------------------------------------------------------
# Learners of columns whose bounds nobody knows.


def _optional_names(value: Any) -> tuple[str, ...] | None:
    return None if value is None else strings(value)


@frozen
class Standardised(Learner[Model]):
    """A learner of columns whose bounds are learned first, privately, with a share of the budget.

    Each column's range is released by a histogram over powers of two (`Column.bounds`), and the
    column mapped from it onto [-1, 1]: both are nodes of the plan. What is outside of the range is
    clipped to it. The learner then has what is left of the budget, by all that the certificate
    knows of the two together. Its coefficients come back in the columns' own units.

    For columns with bounds that are known without looking at the data this is a waste; for bounds
    a hundred times too wide it is not.

    Parameters
    ----------
    learner
        Such as ``dp.ObjectivePerturbation(["income"], "ill")``: one whose result is coefficients.
    columns
        Those whose ranges are learned, of its features; by default all that are numbers.
    share
        The share of the budget for all ranges together: of mu^2, or of epsilon where delta is 0.

    References
    ----------
    Wilson, Zhang, Lam, Desfontaines, Simmons-Marengo and Gipson 2020 (approximate bounds).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"income": None, "ill": ["no", "yes"]})
    >>> learner = dp.Standardised(dp.ObjectivePerturbation(["income"], "ill"))
    >>> model = people.solve(learner, epsilon=1.0, delta=1e-6)
    >>> plan = dp.Pipeline(model=model).with_delta(1e-6)
    >>> 0.99 < plan.certify().epsilon <= 1
    True
    >>> income = np.random.default_rng(0).lognormal(10, 1, 5_000)
    >>> rows = {"income": income, "ill": np.where(income < 20_000, "yes", "no")}
    >>> model = plan.simulate(seed=1, people=rows)["model"]
    >>> dp.predict(model, {"income": [2_000, 90_000]}, classes=["no", "yes"]).tolist()
    ['yes', 'no']
    """

    learner: ColumnLearner[Any] = field()
    columns: tuple[str, ...] | None = field(default=None, converter=_optional_names)
    share: float = field(default=0.1, validator=within(1e-6, 1 - 1e-6))

    title: ClassVar[str] = "standardised"

    @learner.validator
    def _linear(self, attribute: Attribute[Any], learner: Any) -> None:
        """Refuse a learner whose result is not coefficients by feature."""
        returns = isinstance(learner, ColumnLearner) and learner.linear
        if not returns or isinstance(getattr(learner, "loss", None), Network):
            raise DeclarationError(
                "Standardised needs a learner of coefficients by feature, such as dp.SSP(...) or "
                f"dp.ObjectivePerturbation(...), got {type(learner).__name__}"
            )

    def budget(self, epsilon: float | None, delta: float | None) -> LearnerBudget | None:
        """Return the budget; ranges and learner share it, so it is needed."""
        if epsilon is None or delta is None or not (0 < epsilon < math.inf and 0 <= delta < 1):
            raise DeclarationError(
                "Standardised divides a budget: solve(dp.Standardised(...), epsilon=..., "
                f"delta=...), got {epsilon!r} and {delta!r}"
            )
        return LearnerBudget(float(epsilon), float(delta))

    def learn(self, table: Table, budget: LearnerBudget | None) -> Released[Model]:
        """Return the coefficients by feature, in data units, ``"intercept"`` first."""
        assert budget is not None
        return self.ranges_and_model(table, budget)[1]

    def ranges_and_model(
        self, table: Table, budget: LearnerBudget
    ) -> tuple[Released[Any], Released[Model]]:
        """Return the columns' released ranges, shape (k, 2), and the model in data units."""
        names = self._names(table)
        ranges = self._ranges(table, names, budget)
        scaled = table.rescale(names, ranges)
        allowed = epsilon_of_share(budget.epsilon, budget.delta, 1 - self.share)
        if allowed < 1e-6 * budget.epsilon:
            raise DeclarationError(
                f"Standardised divides epsilon, and of {budget.epsilon:g} nothing is left for "
                f"{type(self.learner).__name__} at delta = {budget.delta:g}, which is most of this "
                "budget; give a smaller delta or a larger epsilon"
            )
        best = None
        for _ in range(5):
            learned = self.learner.build(scaled, allowed, budget.delta)
            model: Released[Model] = post(in_own_units, learned, ranges, names=list(names))
            cost = _cost(model, budget.delta)
            if cost <= budget.epsilon:
                best = model
            # the whole costs about a nat more for each that the learner has more
            if 0.995 * budget.epsilon <= cost <= budget.epsilon:
                break
            allowed = max(allowed + (0.9985 * budget.epsilon - cost), allowed / 2)
        if best is None:
            raise DeclarationError(
                f"{type(self.learner).__name__} and the ranges of {len(names)} columns do not fit "
                f"into epsilon = {budget.epsilon:g}: give a smaller share than {self.share:g}"
            )
        return ranges, best

    def _names(self, table: Table) -> tuple[str, ...]:
        """Return the columns whose ranges are learned."""
        features = self.learner.features
        names = self.columns
        if names is None:
            names = tuple(
                name
                for name in features
                if not isinstance(table.domain.find(name), Categories | Strings)
            )
        if not names or not set(names) <= set(features):
            raise DeclarationError(
                f"Standardised.columns must be some of the features {list(features)!r} that are "
                f"numbers, got {list(names)!r}"
            )
        return names

    def _ranges(self, table: Table, names: tuple[str, ...], budget: LearnerBudget) -> Released[Any]:
        """Return the released ranges, each with an equal part of the share."""
        part, noise = self.share / len(names), {}
        for name in names:
            query = table[name].magnitudes()
            if budget.delta == 0:
                scale = up(query_sensitivity(query, table, 1) / (part * budget.epsilon), 8)
                noise[name] = table[name].bounds(Laplace(scale=scale))
            else:
                mu = largest_mu(budget.epsilon, budget.delta)
                gaussian = gaussian_noise(query, table, mu, free="sigma", share=part)
                noise[name] = table[name].bounds(gaussian)
        return post(stacked_ranges, *noise.values())


def _cost(model: Released[Any], delta: float) -> float:
    """Return the epsilon of a model and of the ranges that it follows, by the tightest accountant.

    In a loop it is that of one round.
    """
    return Pipeline(model=outside_of_loops(model)).certify(delta=delta).epsilon


def stacked_ranges(*ranges: Any) -> Any:
    """Return ranges as an array of shape (k, 2)."""
    return np.array([np.asarray(each, dtype=np.float64) for each in ranges]).reshape(-1, 2)


def in_own_units(model: Any, ranges: Any, *, names: Sequence[str]) -> Any:
    """Return coefficients of columns in their own units, from those of columns on [-1, 1]."""
    if any(isinstance(each, Mapping) for each in model.values()):
        return {label: in_own_units(each, ranges, names=names) for label, each in model.items()}
    result = dict(model)
    for name, (low, high) in zip(names, np.asarray(ranges).tolist(), strict=True):
        half = high / 2 - low / 2
        # a range of one point: the column is 0 in all rows
        slope = float(result[name]) / half if half > 0 else 0.0
        result[name] = slope
        result["intercept"] -= slope * (low + half)
    return result


# -----------------------------------------------------------------------------
# Regression of a number on numbers, from exact second moments.


ROUNDING_MARGIN = 2.0**-18
"""By how much a radius exceeds the longest row, for each coefficient: twice what rounding needs."""


@frozen(eq=False)
class Regression:
    """Features and target of a table, mapped from their declared bounds onto [-1, 1].

    Parameters
    ----------
    features
        Names of columns with bounds, or ``column=category``.
    bounds
        Each feature's (lower, upper).
    goal
        The target's bounds.
    radius
        What the features, with an intercept, are divided by to lie in the unit ball.
    data
        What queries read, private: the rows' exact second moments, or the rows themselves.
    """

    features: tuple[str, ...]
    bounds: list[list[float]]
    goal: Interval
    radius: float
    data: Private[Any]

    @property
    def width(self) -> int:
        """The number of coefficients, the intercept's included."""
        return len(self.features) + 1

    def query(self, operation: Query, *released: Released[Any]) -> PrivateQuery[Any]:
        """Return a query of the data, which may depend on released values."""
        return PrivateQuery(operation, (self.data, *released))

    def exact(self) -> PrivateQuery[Any]:
        """Return the moments as a query."""
        return self.query(ExactMoments())

    def coefficients(self, theta: Released[Any]) -> Released[Coefficients]:
        """Return coefficients of features divided by the radius in data units."""
        return post(
            to_data_units,
            theta,
            names=list(self.features),
            bounds=self.bounds,
            goal=[self.goal.lower, self.goal.upper],
            radius=self.radius,
        )


def regression(
    table: Table,
    features: tuple[str, ...],
    target: str,
    norm: float | None,
    *,
    categories: bool = False,
) -> Regression:
    """Return the regression of ``target`` on ``features``; longer rows are clipped to ``norm``.

    With ``categories`` features may be columns of categories.

    Without a norm the radius is a little more than any row's length, so that nothing is clipped,
    and nothing needs to be measured (see `MomentsOf`).
    """
    goal = table.domain.interval(target)
    # vectors lie in [-1, 1], with a 1 in front for the intercept
    if categories:
        vectors, names, bounds = encoded_features(table, features)
    else:
        vectors, names = table.vectors(features, scale=True, intercept=True), features
        bounds = declared_bounds(table, features)
    if norm is not None:
        vectors = vectors.clip(norm=norm)
    # the margin covers the rounding of each coordinate to the lattice: no row leaves the unit ball
    margin = 1.0 if norm is not None else 1 + vectors.domain.width * ROUNDING_MARGIN
    radius = vectors.domain.radius * margin
    moments: Private[Any] = Private(MomentsOf(radius, target, goal), (vectors,))
    return Regression(names, bounds, goal, radius, moments)


def encoded_features(
    table: Table, features: tuple[str, ...]
) -> tuple[Vectors, tuple[str, ...], list[list[float]]]:
    """Return a regression's vectors with an intercept, their names, and each one's bounds.

    Of numbers alone they are those of `Table.vectors`; where there are categories, each but the
    first is a feature of 0 and 1 (`EncodedVectors`).
    """
    declared = {name: table.domain.find(name) for name in features}
    if not any(isinstance(each, Categories) for each in declared.values()):
        vectors = table.vectors(features, scale=True, intercept=True)
        return vectors, features, declared_bounds(table, features)
    for name, each in declared.items():
        if each is None:
            table.domain.interval(name)  # raises with the remedy
    names, bounds = zip(*encoded(declared), strict=True)
    return Vectors(EncodedVectors(features, declared), (table,)), names, list(bounds)


def declared_bounds(table: Table, features: Sequence[str]) -> list[list[float]]:
    """Return each feature's declared (lower, upper)."""
    intervals = [table.domain.interval(name) for name in features]
    return [[interval.lower, interval.upper] for interval in intervals]


def to_data_units(
    theta: Any,
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
    radius: float,
) -> Coefficients:
    """Return coefficients in data units, from those of features divided by ``radius``."""
    # a feature divided by R has a coefficient R times as large
    return from_unit_interval(np.asarray(theta) / radius, names=names, bounds=bounds, goal=goal)


def from_unit_interval(
    theta: Array,
    *,
    names: Sequence[str],
    bounds: Sequence[Sequence[float]],
    goal: Sequence[float],
) -> Coefficients:
    """Return coefficients for columns in their own units, from those for columns on [-1, 1].

    With ``x = (value - middle_x) / half_x`` and ``y = (target - middle_y) / half_y``, a
    coefficient w of x is ``half_y w / half_x`` in data units, and the intercept takes the middles.
    """
    low, high = goal
    scales = [
        (name, (upper + lower) / 2, (upper - lower) / 2)
        for name, (lower, upper) in zip(names, bounds, strict=True)
    ]
    return _coefficients(theta, scales, ((high + low) / 2, (high - low) / 2))


# -----------------------------------------------------------------------------
# Linear models of any loss, from examples: numbers or categories, one class or several.


@frozen(eq=False)
class Linear:
    """Examples of a table, and how parameters for them read in data units.

    Parameters
    ----------
    table, rows
        The private rows, and the examples: numbers mapped onto [-1, 1], categories onto 0 and 1.
    scales
        For each feature but the intercept, its name, and the numbers (middle, half) such that the
        feature is ``(value - middle) / half``.
    target_scale
        Middle and half of the target, (0, 1) for labels.
    classes
        The target's categories where there are more than two.
    """

    table: Table
    rows: LabeledRows
    scales: tuple[tuple[str, float, float], ...]
    target_scale: tuple[float, float]
    classes: tuple[str, ...]

    @property
    def radius(self) -> float:
        # the domain's: public, as declared bounds and clip norm are
        """The largest norm of a row."""
        return float(self.rows.domain.radius)

    @property
    def width(self) -> int:
        """The number of features, the intercept's included."""
        return int(self.rows.domain.width)

    def model(self, theta: Released[Any]) -> Released[Model]:
        """Return parameters (k times p numbers) as coefficients in data units."""
        return post(
            linear_coefficients,
            theta,
            scales=[list(scale) for scale in self.scales],
            goal=list(self.target_scale),
            classes=list(self.classes),
        )


def linear(
    table: Table,
    features: Sequence[str],
    target: str,
    loss: Loss | Network,
    norm: float | None,
    *,
    classes: bool = False,
    weights: RowWeights | None = None,
) -> Linear:
    """Return the examples of a linear model with an intercept; rows are clipped to ``norm``.

    Without it, rows are kept as they are where the target is a number. Where it is a class they
    are clipped to 1, and an intercept makes them as long as that: which class scores highest does
    not change if a row is scaled. A network's are clipped to 1 in either case: with the intercept
    in front nothing of a row is lost, and its first parameters fit rows of that norm. With
    ``classes``, a loss of two classes learns several, one by one.
    """
    goal = table.domain.find(target)
    # `classes`: a loss of two classes is applied to each class against the rest
    labels = loss.labels
    if classes and labels == "sign" and isinstance(goal, Categories) and len(goal.values) > 2:
        labels = "class"
    if norm is None and (labels in ("sign", "class") or isinstance(loss, Network)):
        norm = 1.0
    by = weights or RowWeights()
    rows = table.examples(
        features,
        target,
        labels=labels,
        norm=norm,
        weight=by.weight,
        class_weights=by.class_weights,
    )
    # (0, 1) leaves labels as they are
    middle, half = 0.0, 1.0
    if isinstance(goal, Interval) and labels == "number":
        half = (goal.upper - goal.lower) / 2
        middle = goal.lower + half
    several = isinstance(goal, Categories) and labels == "class"
    # of two classes there is one score, and no names are needed
    names = tuple(str(v) for v in goal.values) if several else ()
    return Linear(table, rows, tuple(_scales(table, features)), (middle, half), names)


def _scales(table: Table, features: Sequence[str]) -> list[tuple[str, float, float]]:
    """Return (name, middle, half) of each feature; a category is a feature of 0 and 1."""
    scales = []
    for name in features:
        declared = table.domain.find(name)
        if isinstance(declared, Categories):
            # one-hot: one feature of 0 and 1 for each declared category
            scales += [(f"{name}={value}", 0.0, 1.0) for value in declared.values]
        elif isinstance(declared, Interval):
            scales.append((name, *standard(declared)))
    return scales


# -----------------------------------------------------------------------------
# Never worse than the most frequent class: a model is checked by releases of its own rows.

CHECK = 0.1
"""The share of mu^2 that the check costs where the budget is not known."""

CHECK_ROWS = 25.0
"""The noise of numbers of rows, in rows, where that costs less than 1 over the classes' number."""

CHECK_SIGNS = 30.0
"""The same of two classes, whose numbers tell twice as much (`ShortLessLong`)."""

CHECK_COUNT = 0.06
"""Of two classes the part of the check that the number of rows has."""

CHECK_CLASSES = 0.6
"""The part of the check that says which class is the most frequent."""

OPTIMISM = 0.1
"""Of how many of ``sqrt(d n)`` rows a model is right because it was fitted to them."""

STEEP = 1e4
"""The largest parameter at which a slope says whether a row's class is the predicted one."""

SHALLOW = 0.4
"""The largest slope of a row of the predicted class; of others it is 1 or more, 1/2 on a tie."""


def check_share(budget: LearnerBudget | None, classes: int) -> float:
    """Return the check's share of mu^2, by public numbers alone.

    The smaller the budget is, the more of it must tell whether anything was learned at all.

    Examples
    --------
    >>> [round(check_share(LearnerBudget(e, 1e-6), 2), 3) for e in (0.1, 1.0, 8.0)]
    [0.5, 0.04, 0.001]
    """
    if budget is None or budget.delta == 0:
        return CHECK
    noise = CHECK_SIGNS if classes == 2 else CHECK_ROWS
    # the most frequent of k classes is right in one of k rows or more: of many it says little
    return min(1 / classes, 2 / (noise * largest_mu(budget.epsilon, budget.delta)) ** 2)


def checked_classes(
    problem: Linear, target: str, theta: Released[Any], release: Releases
) -> Released[Any]:
    """Return parameters of log odds, or those of the most frequent class where they know no more.

    Of two classes are released the rows whose class the parameters predict less those of the other
    (``"right"``), those of the second class less those of the first (``"classes"``), and the number
    of rows. Each row adds 1 or -1 to the first two, so what is right more often than the most
    frequent class is known twice as well as by numbers of rows. Of more classes they are the rows
    whose class is predicted, and the rows by class. Of what follows from these `better_of_both`
    makes the choice, which costs nothing more.

    A class is the predicted one where the gradient is short: at parameters that are scaled up a
    row's slope is near 0 where it is predicted rightly, and at least 1 where it is not, and rows
    have a norm of at least 1, or the one that they are clipped to. That bears on accuracy alone:
    what is charged are counts, whatever the parameters.

    Parameters
    ----------
    problem, target
        The rows, and the column of their classes.
    theta
        The parameters, for rows as they are.
    release
        A function of a query, a name and a part of the check, that releases it, and returns its
        noise too.
    """
    goal = problem.table.domain.find(target)
    assert isinstance(goal, Categories)
    count = len(goal.values)
    loss: Loss = Logistic() if count == 2 else Multinomial(count)
    bound = public(SHALLOW * min(1.0, problem.radius))

    def right(at: Released[Any]) -> PrivateQuery[Any]:
        gradients = problem.rows.gradients(loss, at=at)
        return gradients.short_less_long(bound) if count == 2 else gradients.short(bound)

    # parameters that predict the second class for every row
    second = public([STEEP, *[0.0] * (problem.width - 1)])
    learned = post(steep, theta)
    checks = released_checks(right, learned, second, problem.table, target, release)
    return post(better_of_both, theta, *checks, width=problem.width)


def released_checks(
    right: Callable[[Released[Any]], PrivateQuery[Any]],
    learned: Released[Any],
    second: Released[Any],
    table: Table,
    target: str,
    release: Releases,
) -> tuple[Released[Any], ...]:
    """Return what `odds_of_classes` compares: right, counts, sigma, and of two classes rows.

    Parameters
    ----------
    right
        A function from steep parameters to the query of how many rows they are right of: of two
        classes less how many they are wrong of.
    learned, second
        The model's steep parameters, and those that predict the second of two classes throughout.
    table, target
        The rows, and the column of their classes.
    release
        As of `checked_classes`.
    """
    goal = table.domain.find(target)
    assert isinstance(goal, Categories)
    if len(goal.values) != 2:
        found, _ = release(right(learned), "right", 1 - CHECK_CLASSES)
        return found, *release(table[target].histogram(), "classes", CHECK_CLASSES)
    found, _ = release(right(learned), "right", 1 - CHECK_CLASSES - CHECK_COUNT)
    counts, noise = release(right(second), "classes", CHECK_CLASSES)
    return found, counts, noise, release(table.count(), "rows", CHECK_COUNT)[0]


def steep(theta: Any) -> Array:
    """Return parameters scaled so that the largest is `STEEP`; of any scale, a class is the same.

    >>> steep([0.5, -0.25]).tolist()
    [10000.0, -5000.0]
    """
    weights = np.nan_to_num(np.asarray(theta, dtype=np.float64))
    return np.asarray(weights * (STEEP / max(float(np.abs(weights).max(initial=0.0)), 1e-100)))


def expected_share(counts: Array, sigma: float) -> float:
    """Return how many rows the class of the largest noisy count is expected to have.

    The largest of noisy counts is too large. Each is shrunk towards their mean, by the part of
    their variance that noise does not explain (Efron and Morris 1973).

    Examples
    --------
    >>> expected_share(np.array([70.0, 30.0]), 0.0), expected_share(np.array([70.0, 30.0]), 50.0)
    (70.0, 50.0)
    """
    mean, spread = float(counts.mean()), float(counts.var(ddof=1))
    kept = max(0.0, 1 - sigma**2 / max(spread, 1e-300))
    return mean + kept * (float(counts.max()) - mean)


def odds_of_classes(
    right: float, counts: Any, sigma: float, features: int, rows: float | None = None
) -> tuple[Array, float] | None:
    """Return None where a model is right more often than the most frequent class would be.

    It is counted on the rows that it learned from, of which it is right more often than of others:
    by the order of ``sqrt(d n)`` rows where there is nothing to learn, of which `OPTIMISM` is
    taken off.

    Else the logarithms of the classes' numbers of rows, and by how much the largest is above the
    next one.

    Parameters
    ----------
    right
        The released number of rows whose class the model predicts.
    counts, sigma
        The released numbers of rows by class, and their noise.
    features
        d.
    rows
        Where ``right`` and ``counts`` are not numbers of rows but differences of two: the released
        number of rows (`checked_classes`).
    """
    by_class, noise = np.asarray(counts, dtype=np.float64), float(sigma)
    if rows is not None:
        # Of n rows in all a difference v is of (n + v) / 2 rows of one kind, with half its noise.
        # The same n is in both numbers, so that its noise is in no comparison. `expected_share`
        # reads two numbers of noise s, whose difference has that of sqrt(2) s.
        more, odd = float(right), float(by_class)
        n = max(float(rows), abs(odd), abs(more), 1.0)
        by_class, right = np.array([n - odd, n + odd]) / 2, (n + more) / 2
        noise /= math.sqrt(2)
    fitted = OPTIMISM * math.sqrt(features * max(float(by_class.sum()), 0.0))
    if right - fitted > expected_share(by_class, noise):
        return None
    # a count that noise explains is of as many rows as the noise
    log_odds = np.log(np.maximum(by_class, max(noise, 1.0)))
    first, second = np.argsort(-by_class, kind="stable")[:2]
    log_odds[first] = max(log_odds[first], log_odds[second] + 0.01)
    return log_odds, float(log_odds[first] - log_odds[second])


def better_of_both(
    theta: Any,
    right: float,
    counts: Any,
    sigma: float,
    rows: float | None = None,
    *,
    width: int,
) -> Array:
    """Return the parameters, or those that predict the most frequent class for every row.

    Of the latter the intercepts are the classes' log odds, and the other parameters so small that
    no row's class differs: rows keep their order, so that the area under the ROC curve is the same.

    Parameters
    ----------
    theta
        Parameters of one score or of k, the intercept's first, for features in [-1, 1].
    right, counts, sigma, rows
        As of `odds_of_classes`.
    width
        The number of parameters of a score.

    Examples
    --------
    >>> better_of_both([0.0, 3.0], 80.0, [40.0, 60.0], 1.0, width=2).tolist()
    [0.0, 3.0]
    >>> better_of_both([0.0, 3.0], 55.0, [40.0, 60.0], 1.0, width=2).round(2).tolist()
    [0.41, 0.2]
    >>> better_of_both([0.0, 3.0], 10.0, 20.0, 1.0, 100.0, width=2).round(2).tolist()
    [0.41, 0.2]
    """
    weights = np.nan_to_num(np.asarray(theta, dtype=np.float64)).reshape(-1, width)
    constant = odds_of_classes(right, counts, sigma, width - 1, rows)
    if constant is None:
        return weights.reshape(-1)
    log_odds, gap = constant
    intercepts = log_odds[1:] - log_odds[:1] if len(weights) == 1 else log_odds
    # |x'w| <= sqrt(p) |w|, and two scores that move by less than half of the gap keep their order
    most = float(np.linalg.norm(weights[:, 1:], axis=1).max()) * math.sqrt(max(width - 1, 1))
    slopes = weights[:, 1:] * min(1.0, 0.49 * gap / max(most, 1e-300))
    return np.column_stack([intercepts, slopes]).reshape(-1)


def checked_parameters(
    problem: Linear,
    loss: Any,
    target: str,
    theta: Released[Any],
    free: str,
    budget: LearnerBudget | None,
    *,
    unit: float = 1.0,
    pure: bool = False,
) -> Released[Any]:
    """Return parameters that are checked with free noise, as `checked_classes` does.

    Only log odds are compared with those of the classes; the scores of other losses, and of
    networks, stay as they are, and those of rows that weigh differently: to be right often is not
    all of those.

    Parameters
    ----------
    problem, loss, target, theta
        The rows, what was minimized, the column of classes, and the parameters.
    free
        The name of the free noise.
    budget
        What the noise will be calibrated to.
    unit
        The noise of a release that costs what learning does, over its sensitivity.
    pure
        Whether noise is Laplace's, and epsilons add up.
    """
    if not isinstance(loss, Logistic | Multinomial):
        return theta
    goal = problem.table.domain.find(target)
    assert isinstance(goal, Categories)
    share = CHECK if pure else check_share(budget, len(goal.values))

    def release(
        query: PrivateQuery[Any], name: str, part: float
    ) -> tuple[Released[Any], Released[float]]:
        if pure:
            moved = query_sensitivity(query, problem.table, 1)
            scale = Free(free, weight=unit * moved * (1 - share) / share / part)
            released = query.release(Laplace(scale=scale), name=name)
            return released, post(deviation_of_laplace, parameter(released, "scale"))
        odds = math.sqrt((1 - share) / (share * part)) * unit
        released = query.release(Gaussian(sigma=Free(free, weight=odds)), name=name)
        return released, parameter(released, "sigma")

    return checked_classes(problem, target, theta, release)


def deviation_of_laplace(scale: float) -> float:
    """Return the standard deviation of Laplace noise.

    >>> round(deviation_of_laplace(10.0), 3)
    14.142
    """
    return math.sqrt(2) * float(scale)


def penalized(inputs: Sequence[Any], drawn: Sequence[Any], **constants: Any) -> list[Any]:
    """Refuse an interval of a penalized minimizer: it would be of what the penalty has shrunk."""
    raise NoIntervalError(
        "its penalty pulls coefficients towards 0 by an amount that is not released; for intervals "
        "of a linear regression use dp.SSP"
    )


@estimates(penalized)
def linear_coefficients(
    theta: Any, *, scales: list[list[Any]], goal: list[float], classes: list[str]
) -> Model:
    """Return coefficients by feature in data units; by class where there are several."""
    # k rows of p parameters, one row for each class
    weights = np.asarray(theta, dtype=np.float64).reshape(-1, len(scales) + 1)
    models = [_coefficients(row, scales, goal) for row in weights]
    return dict(zip(classes, models, strict=True)) if classes else models[0]


def _coefficients(row: Any, scales: Sequence[Sequence[Any]], goal: Sequence[float]) -> Coefficients:
    """Return one score's coefficients in data units.

    Parameters
    ----------
    row
        The intercept's parameter, then those of the features in their order.
    scales
        Of each feature (name, middle, half): it is ``(value - middle) / half``.
    goal
        The target's (middle, half).
    """
    target_middle, target_half = goal
    intercept, slopes = target_middle + target_half * float(row[0]), {}
    for (name, middle, half), weight in zip(scales, row[1:], strict=True):
        # a feature of constant value has a half width of 0, and gets no slope
        slope = target_half * float(weight) / half if half > 0 else 0.0
        slopes[name] = slope
        # the feature is 0 at its middle in data units
        intercept -= slope * middle
    return {"intercept": intercept, **slopes}
