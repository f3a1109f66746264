"""Features and a label for each row: what learners of linear models and networks read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen

from adaptive_dp.data import AnyExamples, Columns, Rows, examples_of_rows, grid
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import texts
from adaptive_dp.graph.operation import Operation, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.columns import Floats, clipped, numbers
from adaptive_dp.queries.domains import Categories, Column, Interval, Table, number
from adaptive_dp.queries.partition import category_index
from adaptive_dp.queries.sample import Sample
from adaptive_dp.queries.vectors import scaled

LABELS = ("sign", "class", "number", "count")


@frozen
class ExamplesDomain:
    """Rows of norm at most ``radius``, with labels of a kind that losses read.

    Parameters
    ----------
    names
        Of the features: ``intercept``, a column with bounds, or ``column=category``.
    labels
        ``"sign"``: -1 or 1; ``"class"``: 0, ..., ``classes`` - 1; ``"number"``: in [-1, 1];
        ``"count"``: from 0 to ``most``.
    """

    names: tuple[str, ...]
    radius: float
    labels: str
    classes: int
    most: float
    table: Table

    @property
    def width(self) -> int:
        """The number of features, p."""
        return len(self.names)


def _norm(value: Any) -> float | None:
    return None if value is None else number("examples' norm", value)


@frozen
class ExamplesOf(Operation):
    """Features of a table, numbers mapped from their bounds onto [-1, 1], categories onto 0 and 1.

    Bounds of which one is 0 keep it (see `standard`), so that what is mostly 0 stays so.
    A column of k categories makes k features, of which the row's is 1; a value that is none of the
    declared makes zeros. Rows longer than the norm are scaled down to it, and lie on a grid (see
    `adaptive_dp.data.examples`). Of a row whose label is none of the declared categories nothing
    is kept.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        The column of labels, with bounds or categories; of two categories the first is -1.
    labels
        As what the label is read: see `ExamplesDomain`.
    norm
        The largest norm of a row; None for the largest that the columns can have.
    intercept
        Put a 1 in front.
    columns
        The columns' declarations, filled in when the plan is built.
    """

    kind: ClassVar[str] = "examples"
    reads: ClassVar[type] = Table

    features: tuple[str, ...] = field(converter=texts)
    target: str
    labels: str
    norm: float | None = field(default=None, converter=_norm)
    intercept: bool = True
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def label(self) -> str:
        """Return what is learned from what."""
        return f"{self.target} by {len(self.features)} columns"

    def detail(self) -> str:
        """Return the norm, and whether there is an intercept."""
        parts = [] if self.norm is None else [f"norm {self.norm:g}"]
        return ", ".join(parts + (["with intercept"] if self.intercept else []))

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the ball of the features, and the kind of labels."""
        table: Table = inputs[0]
        require(len(self.features) > 0, "examples need at least one feature")
        require(
            len({*self.features, self.target}) == len(self.features) + 1,
            f"features and label must be different columns, got {list(self.features)} and "
            f"{self.target!r}",
        )
        declared = declarations(table, (*self.features, self.target))
        require(
            dict(self.columns) == declared,
            f"the columns of examples must be declared as {table.name!r} declares them",
        )
        require(
            self.norm is None or 1e-100 <= self.norm <= 1e100,
            f"examples' norm must be a positive number, got {self.norm!r}",
        )
        names: tuple[str, ...] = ("intercept",) if self.intercept else ()
        for name in self.features:
            found = declared[name]
            several = isinstance(found, Categories)
            values = found.values if isinstance(found, Categories) else ()
            names += tuple(f"{name}={value}" for value in values) if several else (name,)
        goal = declared[self.target]
        classes = len(goal.values) if isinstance(goal, Categories) else 0
        self._fits(goal)
        most = goal.upper if isinstance(goal, Interval) else 0.0
        return ExamplesDomain(names, self.radius, self.labels, classes, most, table)

    def _fits(self, goal: Column) -> None:
        of = self.target
        if isinstance(goal, Categories):
            k = len(goal.values)
            fits = self.labels == "class" or (self.labels == "sign" and k == 2)
            wanted = "'class', or 'sign' where there are two categories"
            loss = f"dp.Multinomial({k})" if k > 2 else "dp.Logistic()"
        else:
            assert isinstance(goal, Interval)
            fits = self.labels == "number" or (self.labels == "count" and goal.lower >= 0)
            wanted = "'number', or 'count' where no number is negative"
            loss = "dp.Squared()"
        require(
            fits and (not isinstance(goal, Categories) or len(goal.values) >= 2),
            f"labels of {of!r}, declared as {goal}, can be read as {wanted}; got {self.labels!r}: "
            f"choose a loss that reads such labels, for example {loss}",
        )

    def change(self, change: Change) -> Change:
        """Return the change of a unit, of which rows without a label are left out."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:
        """Return the examples; they are computed once for all that is learned from them.

        On a cluster they stay with the workers that have the rows.
        """
        rows: Rows = inputs[0]
        goal = self.columns[self.target]
        if isinstance(goal, Categories):
            values = goal.values
            rows = rows.where(lambda c: category_index(c[self.target], values) >= 0)
        radius, unit = self.radius, grid.ball(np.zeros((1, 1)), self.radius)[1]
        scales = self.scales()

        def steps(columns: Columns) -> Floats:
            return grid.ball_steps(self.vectors(columns, scales), radius)[0]

        return examples_of_rows(rows, steps, self.goals, radius, unit)

    def goals(self, columns: Columns) -> Floats:
        """Return the labels of a block of rows, shape (m,)."""
        goal, declared = columns[self.target], self.columns[self.target]
        if isinstance(declared, Categories):
            index = category_index(goal, declared.values).astype(np.float64)
            return 2 * index - 1 if self.labels == "sign" else index
        assert isinstance(declared, Interval)
        inside = clipped(goal, declared)
        return inside if self.labels == "count" else scaled(inside, declared)

    def vectors(self, columns: Columns, scales: Floats) -> Floats:
        """Return the features of a block of rows, shape (m, p); ``scales`` as of `scales`."""
        low, high, middle, half = scales
        rows = np.ones((len(low), len(columns[self.target])))  # a column is contiguous, as it came
        at = int(self.intercept)
        for name in self.features:
            found = self.columns[name]
            if isinstance(found, Categories):
                index = category_index(columns[name], found.values)
                for i in range(len(found.values)):
                    rows[at + i] = index == i
                at += len(found.values)
            else:
                rows[at] = numbers(columns[name])
                at += 1
        gaps = np.isnan(rows)
        if gaps.any():
            rows[gaps] = 0.0
        np.clip(rows, low, high, out=rows)
        rows -= middle
        rows /= half
        return np.clip(rows, -1.0, 1.0, out=rows).T

    def scales(self) -> Floats:
        """Return each feature's bounds and what it is mapped by, shape (4, p, 1)."""
        found = [(-1.0, 1.0, 0.0, 1.0)] * self.intercept
        for name in self.features:
            declared = self.columns[name]
            if isinstance(declared, Categories):
                found += [(0.0, 1.0, 0.0, 1.0)] * len(declared.values)
            else:
                assert isinstance(declared, Interval)
                middle, half = standard(declared)
                # a column of one point is 0
                by = (middle, half) if half > 0 else (declared.lower, 1.0)
                found.append((declared.lower, declared.upper, *by))
        return np.array(found).T[:, :, None]

    @property
    def radius(self) -> float:
        """The largest norm of a row."""
        largest = math.sqrt(len(self.features) + self.intercept) * (1 + 1e-12)
        return largest if self.norm is None else min(self.norm, largest)


def standard(bounds: Interval) -> tuple[float, float]:
    """Return (middle, half): a feature is ``(value - middle) / half``, of at most 1 in size.

    From 0 it is the value over its largest, from other bounds the distance from their middle.
    """
    if bounds.lower == 0 or bounds.upper == 0:
        return 0.0, bounds.largest
    half = bounds.upper / 2 - bounds.lower / 2
    return bounds.lower + half, half


def declarations(table: Table, names: Sequence[str]) -> dict[str, Column]:
    """Return how a table declares columns; refuse one without bounds or categories."""
    found = {name: table.find(name) for name in names}
    for name, declared in found.items():
        if declared is None:
            table.interval(name)  # which says what is missing
    return found


@frozen
class SampleExamples(Sample):
    """A Poisson sample of the units of examples."""

    kind: ClassVar[str] = "sample_examples"
    reads: ClassVar[type] = ExamplesDomain

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples, of which the number is no longer known."""
        found: ExamplesDomain = inputs[0]
        return evolve(found, table=super().domain([found.table]))

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:  # type: ignore[override]
        """Return a fresh sample."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]
