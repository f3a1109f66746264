"""Choosing a learner, or its parameters, by the data: private selection, paid for in one budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from accountants.numerics import up
from accountants.terms import expected_runs
from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import RowSum
from adaptive_dp.erm import Network
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, post
from adaptive_dp.graph.loops import one_of, select
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import positive
from adaptive_dp.learning.additive import additive_scores
from adaptive_dp.learning.auto import Auto
from adaptive_dp.learning.base import (
    ColumnLearner,
    Standardised,
    epsilon_of_share,
    query_sensitivity,
)
from adaptive_dp.mechanisms.additive import Gaussian, Laplace, largest_mu, sigma_for
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Interval,
    SumOverRows,
    clipped,
    columns,
    numbers,
)
from adaptive_dp.queries.domains import Table as TableDomain
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.queries.transforms import category_index

Array = NDArray[np.float64]

WIDEST_ERROR = 0.5
"""From which size on errors of a target in [-1, 1] count alike."""

STEPS = 2**20
"""A row's error is summed in steps of 2^-20."""

SCORED = 0.25
"""The largest share of a run's mu^2, or epsilon, that its score costs."""

SCORED_ROWS, SCORED_NUMBERS = 25.0, 5.0
"""The noise of a score where that costs less: in rows, and in rows of the widest error."""

FEW = 4
"""Up to so many candidates all are tried: composing four runs costs about what selecting does."""

# -----------------------------------------------------------------------------
# The score: how far a released model is wrong on the rows.


@frozen
class PredictionErrors(SumOverRows):
    """How far a released model's predictions are from a table's target, added up.

    A row adds 0 or 1 where the target is a class: whether another one is predicted. Where it is a
    number, mapped from its bounds onto [-1, 1], a row adds the square of its error over
    `WIDEST_ERROR`, and at most 1. A row for which the model has no answer adds 1.

    A row's prediction is computed column by column, elementwise, so that it depends on that row
    alone to the last bit; errors are added as integers.

    *Sensitivity*, in any norm since it is one number. A row adds between 0 and 1 whatever the
    model: a unit of up to r rows that appears, vanishes or is exchanged moves the sum by at most r.

    Parameters
    ----------
    target
        The column that is predicted, with bounds or categories.
    declared
        How the target and the features are declared.
    """

    kind: ClassVar[str] = "prediction_errors"
    column_fields: ClassVar[tuple[str, ...]] = ("target", "declared")
    input_type: ClassVar[type] = TableDomain
    max_released_inputs: ClassVar[int] = 1
    rounds_outward: ClassVar[bool] = True

    target: str
    declared: Mapping[str, Column] = attrs.field(converter=columns)

    def label(self) -> str:
        """Return the target."""
        return f"errors of {self.target}"

    def domain(self, inputs: Sequence[Any]) -> TableDomain:
        """Return the table; both inputs are needed."""
        if len(inputs) != 2:
            raise DeclarationError("prediction errors need a table and a released model")
        table: TableDomain = inputs[0]
        for name, column in self.declared.items():
            if table.find(name) != column:
                raise DeclarationError(
                    f"prediction_errors: {name!r} is declared as {table.find(name)}, not {column}"
                )
        if not isinstance(self.declared.get(self.target), Categories | Interval):
            raise DeclarationError(
                f"prediction_errors needs a target with bounds or categories; {self.target!r} has "
                "neither"
            )
        return table

    def sensitivity(self, domain: TableDomain, change: Change, norm: float) -> float:
        """Return r."""
        return float(change.rows)

    def step(self, domain: TableDomain) -> float:
        """Return 1 where errors are counted, else 2^-20."""
        return 1.0 if isinstance(self.declared[self.target], Categories) else 1.0 / STEPS

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum of the rows' errors at the released model."""
        rows: Rows = inputs[0]
        return RowSum(rows, partial(self._errors, inputs[1]), self.finish)

    def finish(self, total: NDArray[Any]) -> float:
        """Return the sum."""
        if isinstance(self.declared[self.target], Categories):
            return float(total[0])
        return math.ldexp(float(total[0]), -20)

    def _errors(self, model: Any, data: Columns) -> Integers:
        goal = self.declared[self.target]
        scores = model_scores(model, data, self.declared)
        with np.errstate(all="ignore"):  # a warning would depend on the data
            if isinstance(goal, Categories):
                truth = category_index(data[self.target], goal.values)
                places = scores.argmax(axis=1) if scores.ndim == 2 else scores > 0
                # by the scores' own shape, since there may be no row
                unknown: Any = np.isnan(scores)
                unknown = unknown.any(axis=1) if scores.ndim == 2 else unknown
                wrong = (places.astype(np.int64) != truth) | unknown
                return np.array([wrong.sum()], dtype=np.int64)
            assert isinstance(goal, Interval)
            half = goal.upper / 2 - goal.lower / 2
            unit = WIDEST_ERROR * (half if half > 0 else 1.0)
            given = clipped(data[self.target], goal)
            square = np.nan_to_num(((scores - given) / unit) ** 2, nan=1.0, posinf=1.0)
            return np.array([np.rint(np.minimum(square, 1.0) * STEPS).sum()], dtype=np.int64)


def model_scores(model: Any, data: Columns, declared: Mapping[str, Any]) -> Array:
    """Return a model's scores of rows, shape (n,) or (n, k), each row by itself.

    NaN where a row lacks a feature that the model needs.

    Parameters
    ----------
    model
        Coefficients by feature, those by class, or an additive model's shapes.
    data
        The columns.
    declared
        How they are declared: numbers are clipped to their bounds, as learners do.
    """
    if isinstance(model.get("shapes"), Mapping):
        return additive_scores(model, {name: data[name] for name in model["shapes"]})
    if all(isinstance(each, Mapping) for each in model.values()):
        return np.stack([_linear_scores(each, data, declared) for each in model.values()], axis=1)
    return _linear_scores(model, data, declared)


def _linear_scores(model: Mapping[str, float], data: Columns, declared: Mapping[str, Any]) -> Array:
    total: Any = float(model["intercept"])
    for name, column in declared.items():
        if isinstance(column, Categories):
            weights = [float(model.get(f"{name}={value}", 0.0)) for value in column.values]
            if not any(f"{name}={value}" in model for value in column.values):
                continue
            # the last place, -1, is that of values that are missing or not declared
            total = (
                total + np.array([*weights, math.nan])[category_index(data[name], column.values)]
            )
        elif name in model:
            values = numbers(data[name])
            if isinstance(column, Interval):
                values = np.clip(values, column.lower, column.upper)
            total = total + float(model[name]) * values
    return np.asarray(total, dtype=np.float64)


# -----------------------------------------------------------------------------
# The choice.


def tune(
    table: Table,
    learner: ColumnLearner[Any] | Standardised | Sequence[Any],
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    epsilon: float,
    delta: float,
    runs: float | None = None,
) -> Released[dict[str, Any]]:
    """Return the best of several learners on a table's own rows: tuning, in one budget.

    Each candidate has the same noise. A run learns a model and releases how often it is wrong
    (`PredictionErrors`), both in the run's own budget; that is solved here so that everything
    together certifies epsilon.

    *Few candidates* (four, or three where delta is 0) are all run, and the best score is taken: m
    runs compose, of Gaussian noise each has ``mu / sqrt(m)``. *Of more*, a random number of runs of
    candidates drawn at random are made, and nothing is released of them but the best
    (`adaptive_dp.graph.loops.select`; Papernot and Steinke 2022): however many candidates there
    are, a run has about half of the whole mu, a third of epsilon where delta is 0.

    So tuning costs what half of the epsilon would buy. It pays where candidates differ by more than
    that: see the page on learning for what that was on public tables, and try the defaults first.

    *The score reads the rows that were learned from.* Other rows would be fewer to learn from, and
    a private model fits its own rows hardly better than new ones. The theorem of selection is one
    of a run with its score, so the score has noise of its own: it is no exact number that is only
    compared.

    Parameters
    ----------
    table
        The rows to learn from.
    learner
        A learner with coefficients or shapes, such as ``dp.NoisyGradientDescent(...)``; or several,
        which are the candidates, or the bases of a grid.
    grid
        Values to try by the name of a learner's parameter; all combinations are candidates.
    epsilon, delta
        The budget of it all.
    runs
        The expected number of random runs; None for all candidates once where they are few, and
        else twice as many runs as candidates.

    Returns
    -------
    Released
        A mapping of ``"candidate"`` (its place in the list), ``"parameters"`` (the learner's, as
        they differ between candidates), ``"errors"`` (the released score) and ``"value"``, the
        model.

    Raises
    ------
    DeclarationError
        If a learner is a network's, a parameter is not one of the learner's, or targets differ.

    References
    ----------
    Papernot and Steinke 2022, Thm 2 and Thm 6; Liu and Talwar 2019, Thm 3.2.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100), "ill": ["no", "yes"]})
    >>> learner = dp.ObjectivePerturbation(["age"], "ill")
    >>> best = dp.tune(people, learner, {"norm": [0.5, 1.0]}, epsilon=1.0, delta=0)
    >>> plan = dp.Pipeline(best=best)
    >>> 0.995 < plan.certify(delta=0).epsilon <= 1
    True
    >>> age = np.linspace(0, 100, 4_000)
    >>> rows = {"age": age, "ill": np.where(age < 60, "no", "yes")}
    >>> sorted(plan.with_delta(0.0).simulate(seed=1, people=rows)["best"])
    ['candidate', 'errors', 'parameters', 'value']
    """
    if not positive(epsilon) or not 0 <= delta < 0.5:
        raise DeclarationError(
            f"tune needs epsilon > 0 and delta in [0, 0.5), got {epsilon!r} and {delta!r}"
        )
    learners, settings = candidates(learner, grid or {})
    target, declared = _declarations(table, learners)
    few = len(learners) <= (FEW if delta > 0 else FEW - 1)
    if runs is None and not few:
        runs = 2.0 * len(learners)
    if runs is not None and not (positive(runs) and 1 < runs <= 1e6):
        raise DeclarationError(f"tune's runs must be in (1, 10^6], got {runs!r}")
    query = PredictionErrors(target, declared)

    def made(share: float, several: Sequence[Any] = learners) -> Released[Any]:
        """Return the choice where each run has an epsilon of ``share``."""
        bodies = [partial(_run, each, query, share, delta, runs) for each in several]
        return _choice(bodies, table, settings, runs)

    def cost(choice: Released[Any]) -> float:
        return Pipeline(choice=choice).certify(delta=delta).epsilon

    if runs is None:
        share = epsilon_of_share(epsilon, delta, 1 / len(learners))
    else:  # one candidate costs what the envelope of all does, nearly, and is declared sooner
        share = _root(lambda share: cost(made(share, learners[:1])), epsilon)
    for _ in range(8):
        choice = made(share)
        now = cost(choice)
        if 0.995 * epsilon <= now <= epsilon:
            return choice
        share *= 0.9985 * epsilon / now
    if now <= epsilon:
        return choice
    raise DeclarationError(
        f"{len(learners)} candidates do not fit into epsilon = {epsilon:g}, delta = {delta:g}: "
        "leave some of them out, or give fewer runs"
    )


def _root(cost: Callable[[float], float], epsilon: float) -> float:
    """Return a share whose cost is between .99 and 1 of epsilon, or near to it."""
    low, high, share = 0.0, math.inf, epsilon / 3
    for _ in range(12):
        now = cost(share)
        if 0.99 * epsilon <= now <= epsilon:
            break
        low, high = (share, high) if now <= epsilon else (low, share)
        guess = share * min(max(0.997 * epsilon / now, 0.1), 10.0)
        inside = low < guess < high
        share = guess if inside else (low + high) / 2 if high < math.inf else 2 * share
    return share


def candidates(
    learner: Any, grid: Mapping[str, Sequence[Any]]
) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the learners that are tried, and what of each differs between them."""
    bases = list(learner) if isinstance(learner, list | tuple) else [learner]
    names, learners, settings = list(grid), [], []
    for base in bases:
        inner = base.learner if isinstance(base, Standardised) else base
        if isinstance(base, Auto) or not isinstance(inner, ColumnLearner):
            raise DeclarationError(
                "tune needs learners of a column, such as dp.NoisyGradientDescent(...), got "
                f"{type(base).__name__}"
            )
        if isinstance(getattr(inner, "loss", None), Network):
            raise DeclarationError("tune cannot score a network: its errors are no query yet")
        for name in names:
            values = grid[name]
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                raise DeclarationError(f"tune's grid needs a list of values for {name!r}")
            if name not in {each.name for each in attrs.fields(type(inner))}:
                raise DeclarationError(f"{type(inner).__name__} has no parameter {name!r} to tune")
        for values in itertools.product(*[grid[name] for name in names]):
            chosen = dict(zip(names, values, strict=True))
            new = attrs.evolve(inner, **chosen)
            learners.append(attrs.evolve(base, learner=new) if inner is not base else new)
            learned = {"learner": type(inner).__name__} if len(bases) > 1 else {}
            settings.append({**learned, **{name: _said(value) for name, value in chosen.items()}})
    if len(learners) < 2:
        raise DeclarationError(
            "tune needs at least two candidates: values of a parameter, as in {'clip': [0.1, 1]}, "
            "or several learners"
        )
    return learners, settings


def _said(value: Any) -> Any:
    """Return a parameter as a document may hold it."""
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _declarations(table: Table, learners: Sequence[Any]) -> tuple[str, dict[str, Any]]:
    """Return the one target of all learners, and how it and all features are declared."""
    inner = [each.learner if isinstance(each, Standardised) else each for each in learners]
    targets = {each.target for each in inner}
    if len(targets) != 1:
        raise DeclarationError(f"tune's learners must have one target, got {sorted(targets)!r}")
    (target,) = targets
    names = dict.fromkeys(name for each in inner for name in each.features)
    return target, {name: table.domain.find(name) for name in [*names, target]}


def _run(
    learner: Any, query: PredictionErrors, epsilon: float, delta: float, runs: Any, table: Table
) -> Released[dict[str, Any]]:
    """Return a run: a model, and how often it is wrong, with a budget for both."""
    rows = complete_rows(table, (query.target,))
    number = isinstance(query.declared[query.target], Interval)
    wanted = SCORED_NUMBERS if number else SCORED_ROWS
    # a floor of delta that a learner may have adds up over runs: a part of it is given to each
    part = delta / (20 * (runs or FEW))
    mu = largest_mu(epsilon, part) if delta > 0 else 0.0
    share = min(SCORED, (wanted * mu) ** -2) if delta > 0 else min(SCORED, 1 / (wanted * epsilon))
    rest = epsilon_of_share(epsilon, part, 1 - share)
    model = learner.build(table, rest, part)
    errors: PrivateQuery[Any] = PrivateQuery(query, (rows, model))
    moved = query_sensitivity(errors, table)
    noise: Any = (
        Gaussian(sigma=sigma_for(mu * math.sqrt(share), moved, 1))
        if delta > 0
        else Laplace(scale=up(moved / (share * epsilon), 64))
    )
    return post(run_result, model, errors.release(noise, name="errors"))


def run_result(model: Any, errors: float) -> dict[str, Any]:
    """Return a run's model and its released errors."""
    return {"model": model, "errors": float(errors)}


def _choice(
    bodies: Sequence[Callable[[Table], Released[Any]]],
    table: Table,
    settings: list[dict[str, Any]],
    runs: float | None,
) -> Released[dict[str, Any]]:
    """Return the best run: of all of them, or of a random number of random ones."""
    if runs is None:
        return post(best_of_all, *[body(table) for body in bodies], settings=settings)

    def body(index: Released[int]) -> tuple[Released[Any], Released[float]]:
        run = one_of(bodies, index, table)
        return run, post(negated_errors, run)

    shape, stopping = 0.0, stopping_of_runs(runs)
    chosen = select(body, list(range(len(bodies))), stopping=stopping, shape=shape)
    return post(described, chosen, settings=settings)


def negated_errors(run: Mapping[str, Any]) -> float:
    """Return a run's score: the larger, the better."""
    return -float(run["errors"])


def best_of_all(*runs: Mapping[str, Any], settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the run with the fewest errors, with its parameters."""
    place = min(range(len(runs)), key=lambda i: runs[i]["errors"])
    return _described(place, runs[place], settings)


def described(chosen: Mapping[str, Any], *, settings: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a selection's best run with its parameters."""
    return _described(int(chosen["candidate"]), chosen["value"], settings)


def _described(place: int, run: Any, settings: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "candidate": place,
        "parameters": dict(settings[place]),
        "errors": run["errors"],
        "value": run["model"],
    }


def stopping_of_runs(runs: float) -> float:
    """Return gamma of the logarithmic law whose expected number of runs this is.

    Of the laws of one cost, this one tries the most candidates: with nine of them and a cost of
    three runs each is tried with a chance of .42, by the geometric law of .27.

    Examples
    --------
    >>> round(expected_runs(0.0, stopping_of_runs(18.0)), 6)
    18.0
    """
    low, high = -60.0, -1e-9
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if expected_runs(0.0, math.exp(middle)) > runs else (low, middle)
    return math.exp(high)
