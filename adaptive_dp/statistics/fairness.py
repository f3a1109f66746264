"""Errors of a released model by group, measured on private rows and bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen

from adaptive_dp.data import Columns
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import Cells, RowFunction, RowSum
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import (
    Handle,
    Post,
    PrivateQuery,
    Released,
    group,
    post,
    public,
    unaliased,
)
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.outputs import ConfidenceInterval, released_ends
from adaptive_dp.graph.values import strings
from adaptive_dp.learning.networks import predict
from adaptive_dp.mechanisms import DiscreteLaplace
from adaptive_dp.queries import domains
from adaptive_dp.queries.counts import Histogram
from adaptive_dp.queries.domains import Categories, Interval, SumOverRows, numbers
from adaptive_dp.queries.labeled import open_handle
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.queries.transforms import category_index
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats

MOST_CELLS = 2**16


@frozen
class Outcome(RowFunction):
    """The cell of each row: its group, its class, and the class that a model predicts."""

    model: Any
    features: tuple[str, ...]
    target: str
    by: str
    declared: Mapping[str, domains.Column]

    def __call__(self, columns: Columns) -> Integers:
        """Return the cells, -1 for rows of no declared group or class."""
        groups, classes = (_values(self.declared[name]) for name in (self.by, self.target))
        of_group = category_index(columns[self.by], groups)
        truth = category_index(columns[self.target], classes)
        data = {name: _column(columns[name], self.declared[name]) for name in self.features}
        predicted = _predicted(self.model, data, classes)
        cell = (of_group * len(classes) + truth) * len(classes) + predicted
        return np.where((of_group < 0) | (truth < 0), -1, cell).astype(np.int64)


def _values(column: domains.Column) -> tuple[Any, ...]:
    assert isinstance(column, Categories)
    return tuple(column.values)


def _column(values: Any, declared: domains.Column) -> Any:
    """Return a column as `predict` reads it: numbers, or categories as objects."""
    if isinstance(declared, Categories):
        keys = np.empty(len(declared.values) + 1, dtype=object)
        keys[:-1] = declared.values
        return keys[category_index(values, declared.values)]  # -1 is the last: None
    return numbers(values)


def _predicted(model: Any, data: Mapping[str, Any], classes: tuple[Any, ...]) -> Integers:
    """Return the position of the class that a model predicts for each row."""
    with np.errstate(all="ignore"):
        found = np.asarray(predict(model, data, classes=[0, 1] if len(classes) == 2 else None))
    if len(classes) == 2 and found.dtype.kind == "i":
        return found.astype(np.int64)
    places = {str(each): i for i, each in enumerate(classes)}
    # what is no class counts as the first: a model of other classes, a score that is not a number
    return np.array([places.get(str(each), 0) for each in found], dtype=np.int64)


@frozen
class GroupErrors(SumOverRows):
    """The number of rows of each group, class, and class that a released model predicts.

    What is predicted of a row depends on that row and on the released model alone, to the last bit:
    scores are sums of numbers of one row, one after the other. (A network's are matrix products,
    whose rounding may depend on other rows; it is refused.) So a row is in one cell, and the counts
    move as those of a `Histogram`: by r where a unit of at most r rows appears, vanishes or is
    zeroed; by a + b in l1, ``sqrt(a^2 + b^2)`` in l2, where a rows are exchanged for b.

    Parameters
    ----------
    features
        The columns that the model reads.
    target, by
        Columns with categories: what is predicted, and the groups.
    declared
        The columns' declarations.
    """

    kind: ClassVar[str] = "group_errors"
    column_fields: ClassVar[tuple[str, ...]] = ("features", "target", "by")
    input_type: ClassVar[type] = domains.Table
    rounds_outward: ClassVar[bool] = True
    disjoint: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 1

    features: tuple[str, ...] = field(converter=strings)
    target: str
    by: str
    declared: Mapping[str, domains.Column] = field(converter=domains.columns)

    def label(self) -> str:
        """Return what is counted."""
        return f"outcomes of {self.target} by {self.by}"

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns."""
        table: domains.Table = inputs[0]
        if not self.features:
            raise DeclarationError("errors of a model need the features that it reads; got none")
        for name in (*self.features, self.target, self.by):
            domains.check_declared(table, name, self.declared)
            if not isinstance(self.declared[name], Interval | Categories):
                table.interval(name)  # raises with the remedy
        for name in (self.target, self.by):
            if not isinstance(self.declared[name], Categories):
                raise DeclarationError(
                    f"errors by group need categories of {name!r}; it declares none"
                )
        if self.dimension(table) > MOST_CELLS:
            raise DeclarationError(
                f"errors by group have {self.dimension(table):,} cells, at most {MOST_CELLS:,}"
            )
        return table

    @property
    def shape(self) -> tuple[int, int, int]:
        """Groups, classes, predicted classes."""
        classes = len(_values(self.declared[self.target]))
        return len(_values(self.declared[self.by])), classes, classes

    def dimension(self, domain: domains.Table) -> int:
        """Return the number of cells."""
        return math.prod(self.shape)

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return that of a histogram of as many bins."""
        return Histogram(keys=range(math.prod(self.shape))).sensitivity(domain, change, norm)  # type: ignore[arg-type]

    def span(self, domain: domains.Table, change: Change) -> float:
        """Return that of a histogram."""
        return float(change.both if change.replaced else change.rows)

    def step(self, domain: domains.Table) -> float:
        """Return 1."""
        return 1.0

    def row_sum(self, inputs: Sequence[Any]) -> RowSum:
        """Return the sum of `Outcome` over the rows, of the model that is the second input."""
        outcome = Outcome(inputs[1], self.features, self.target, self.by, self.declared)
        return RowSum(inputs[0], Cells(math.prod(self.shape), outcome), self.finish)

    def present(self, value: Any) -> Floats:
        """Return the counts, shape (groups, classes, predicted classes)."""
        return np.asarray(value).reshape(self.shape)


def checked_model(model: Any) -> dict[str, Any]:
    """Return a model whose scores depend on one row alone, or refuse it.

    Raises
    ------
    DeclarationError
        If it is a network, or no model that a learner releases.
    """
    if not isinstance(model, Mapping) or {"weights", "inputs"} <= set(model):
        kind = "a network" if isinstance(model, Mapping) else type(model).__name__
        raise DeclarationError(
            "errors by group are of linear and additive models, whose scores are sums of numbers "
            f"of one row; got {kind}"
        )
    return dict(model)


def _refuse_network(handle: Handle) -> None:
    """Refuse a handle of a network before anything is paid for."""
    operation = unaliased(handle).operation
    if isinstance(operation, Post) and operation.function.name == "network.model/1":
        checked_model({"weights": (), "inputs": ()})


def group_errors(
    model: Released[Any] | Mapping[str, Any],
    table: Table,
    by: str,
    *,
    target: str,
    features: Sequence[str],
    mechanism: Mechanism | None = None,
) -> Released[dict[str, Any]]:
    r"""Measure how often a released model errs in each group, and bound the largest gap.

    One release: the counts of rows by group, class and predicted class. Of these follow, for each
    group, the rate of errors, and for two classes those of false positives (the second class
    predicted where it is the first), of false negatives, and of positive predictions; and of each
    the largest gap between two groups.

    *Intervals* are of the population. A rate p = E / N of a group is in the interval if
    ``|E - p N| <= z sqrt(N p (1 - p) + s^2 (e (1 - p)^2 + f p^2))``, where E is a sum of e released
    counts with noise of variance s^2, and N - E one of f: Wilson's score interval, with the noise
    in it. The gap's lies between what intervals of all groups leave, each at a level such that all
    hold at once (Bonferroni).

    Parameters
    ----------
    model
        A released model of a classifier, such as ``people.solve(...)`` or what a run gave:
        coefficients, those by class, or an additive model's shapes; not a network.
    table
        Rows that the model has not learned from, or the measured errors are too small. Rows that
        lack a value are left out.
    by
        A column with categories: the groups.
    target
        What the model predicts, a column with categories.
    features
        The columns that the model reads.
    mechanism
        By default ``dp.DiscreteLaplace()``; or ``dp.Laplace()``, ``dp.Gaussian()``.

    Returns
    -------
    Released
        A mapping: ``"error"`` (and, for two classes, ``"false_positive"``, ``"false_negative"``,
        ``"positive"``), each a mapping from groups to rates, and ``"largest_gap"``, one of each.

    References
    ----------
    Hardt, Price and Srebro 2016 (equalised odds). Wilson 1927, for the form of the intervals.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> columns = {"score": (0, 1), "group": ["A", "B"], "paid": ["no", "yes"]}
    >>> loans = dp.dataset("loans", columns=columns)
    >>> rule = {"intercept": -0.5, "score": 1.0}  # yes where the score is above a half
    >>> errors = dp.statistics.group_errors(
    ...     rule, loans, by="group", target="paid", features=["score"]
    ... )
    >>> plan = dp.Pipeline(errors=errors).calibrate(epsilon=1.0)
    >>> rng = np.random.default_rng(1)
    >>> score, b = rng.uniform(size=4_000), rng.uniform(size=4_000) < 0.3
    >>> wrong = rng.uniform(size=4_000) < np.where(b, 0.2, 0.1)
    >>> data = {"score": score, "group": np.where(b, "B", "A")}
    >>> data["paid"] = np.where((score > 0.5) ^ wrong, "yes", "no")
    >>> errors = plan.simulate(seed=1, loans=data)["errors"]
    >>> {name: round(rate, 2) for name, rate in errors["error"].items()}
    {'A': 0.1, 'B': 0.19}
    >>> errors["largest_gap"]["error"].interval(0.9).low > 0
    True
    """
    nulls.check_units("errors by group", table)
    names = strings(features)
    read = (*names, target, by)
    if len(set(read)) < len(read) - (by in names) or target in names or target == by:
        raise DeclarationError(
            f"errors by group need different features, target and groups, got {list(names)}, "
            f"{target!r} and {by!r}"
        )
    declared = {name: table.domain.find(name) for name in read}
    given: Any = model if isinstance(model, Handle) else public(checked_model(model))
    opened = open_handle("group_errors: model", given)
    _refuse_network(opened)
    used = post(checked_model, given)
    asked: PrivateQuery[Any] = PrivateQuery(
        GroupErrors(names, target, by, declared), (complete_rows(table, read), used)
    )
    noise = nulls.known_noise("errors by group", mechanism, DiscreteLaplace())
    counts = asked.release(noise, name="outcomes")
    kind, scale = nulls.noise_of(counts, noise)
    groups = nulls.names_of("errors by group", _values(declared[by]))
    result = post(group_error_rates, counts, scale, groups=groups, kind=kind)
    return group("group_errors", result, table)


# -----------------------------------------------------------------------------
# From counts to rates.


def _parts(counts: Floats) -> dict[str, tuple[Floats, Floats, int, int]]:
    """Return, by rate, counts by group of what it counts and of the rest, and of how many cells."""
    classes = counts.shape[1]
    right = counts[:, range(classes), range(classes)].sum(axis=1)
    wrong = counts.sum(axis=(1, 2)) - right
    found = {"error": (wrong, right, classes * (classes - 1), classes)}
    if classes == 2:
        found["false_positive"] = counts[:, 0, 1], counts[:, 0, 0], 1, 1
        found["false_negative"] = counts[:, 1, 0], counts[:, 1, 1], 1, 1
        positive = counts[:, :, 1].sum(axis=1)
        found["positive"] = positive, counts[:, :, 0].sum(axis=1), 2, 2
    return found


def _error_ends(
    inputs: list[Any], level: float, sampling: bool, *, groups: Sequence[str], kind: str
) -> dict[str, Any]:
    counts = np.asarray(inputs[0], dtype=np.float64)
    variance = nulls.variance_of(kind, float(inputs[1]))
    found: dict[str, Any] = {}
    gaps = {}
    for name, (hits, others, e, f) in _parts(counts).items():
        found[name] = {
            group: nulls.rate_interval(hits[i], others[i], (e, f), kind, variance, (1 - level) / 2)
            for i, group in enumerate(groups)
        }
        # all groups at once: then no gap is above the widest way between two, nor below the least
        beta = (1 - level) / (2 * len(groups))
        every = [
            nulls.rate_interval(hits[i], others[i], (e, f), kind, variance, beta)
            for i in range(len(groups))
        ]
        low = max(0.0, max(each.low for each in every) - min(each.high for each in every))
        high = max(
            (a.high - b.low for i, a in enumerate(every) for j, b in enumerate(every) if i != j),
            default=0.0,
        )
        gaps[name] = ConfidenceInterval(low, max(0.0, high))
    return {**found, "largest_gap": gaps}


@released_ends(_error_ends)
def group_error_rates(
    counts: Floats, scale: float, *, groups: Sequence[str], kind: str
) -> dict[str, Any]:
    """Return the rates of `group_errors` by group, and their largest gaps."""
    found: dict[str, Any] = {}
    gaps = {}
    for name, (hits, others, _, _) in _parts(np.asarray(counts, dtype=np.float64)).items():
        rates = np.clip(hits / np.maximum(hits + others, 1.0), 0.0, 1.0)
        found[name] = dict(zip(groups, map(float, rates), strict=True))
        gaps[name] = float(rates.max() - rates.min())
    return {**found, "largest_gap": gaps}
