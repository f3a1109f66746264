"""Features and a label for each row: what learners read; phases and single examples."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, Columns, Examples, Rows, examples_of_rows, grid
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PartitionOperation, PartOperation
from adaptive_dp.graph.operation import Change, Operation, Query
from adaptive_dp.graph.values import anything, number, texts
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Floats,
    Interval,
    Table,
    clipped,
    finite_float,
    numbers,
)
from adaptive_dp.queries.transforms import Sample, category_index
from adaptive_dp.queries.vectors import scale_to_unit

# -----------------------------------------------------------------------------
# Features and a label for each row: what learners of linear models and networks read.


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
    return None if value is None else finite_float("examples' norm", value)


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
    input_type: ClassVar[type] = Table

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
        if not (len(self.features) > 0):
            raise DeclarationError("examples need at least one feature")
        if len({*self.features, self.target}) != len(self.features) + 1:
            raise DeclarationError(
                f"features and label must be different columns, got {list(self.features)} and "
                f"{self.target!r}"
            )
        declared = declarations(table, (*self.features, self.target))
        if dict(self.columns) != declared:
            raise DeclarationError(
                f"the columns of examples must be declared as {table.name!r} declares them"
            )
        if self.norm is not None and not (1e-100 <= self.norm <= 1e100):
            raise DeclarationError(f"examples' norm must be a positive number, got {self.norm!r}")
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
        if not (fits and (not isinstance(goal, Categories) or len(goal.values) >= 2)):
            raise DeclarationError(
                f"labels of {of!r}, declared as {goal}, can be read as {wanted}; got "
                f"{self.labels!r}: choose a loss that reads such labels, for example {loss}"
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
        return inside if self.labels == "count" else scale_to_unit(inside, declared)

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
    input_type: ClassVar[type] = ExamplesDomain

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples, of which the number is no longer known."""
        found: ExamplesDomain = inputs[0]
        return evolve(found, table=super().domain([found.table]))

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:  # type: ignore[override]
        """Return a fresh sample."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]


# -----------------------------------------------------------------------------
# Examples themselves, for mechanisms that know what a row can do to them.


@frozen
class EveryExample(Query):
    """The examples, or one class against the rest.

    Parameters
    ----------
    against
        A class, whose label becomes 1 and all others -1; None to leave labels as they are.
    """

    kind: ClassVar[str] = "every_example"
    input_type: ClassVar[type] = ExamplesDomain
    output_type: ClassVar[type] = Examples

    against: int | None = None

    def label(self) -> str:
        """Return whether one class stands against the rest."""
        return "examples" if self.against is None else f"class {self.against} against the rest"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the input's, with signs for labels where one class is against the rest."""
        found: ExamplesDomain = inputs[0]
        if self.against is None:
            return found
        if not (found.labels == "class" and 0 <= self.against < found.classes):
            raise DeclarationError(
                f"{self.against!r} is none of the classes 0 to {found.classes - 1} of the examples"
            )
        return evolve(found, labels="sign")

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the number of rows that come or go; refuse any norm but 0."""
        if norm != 0:
            raise DeclarationError(
                "examples say how many rows change, not how far they move: release them with "
                f"PerturbedObjective, whose norm is 0, got norm {norm!r}"
            )
        return float(change.both)

    def span(self, domain: ExamplesDomain, change: Change) -> float:
        """Return the most of these rows that are in either data set alone."""
        return float(change.rows)

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of features."""
        return domain.width

    def run(self, inputs: Sequence[Any], stream: Stream) -> Examples:
        """Return the examples, all of them here: mechanisms look at each."""
        found: Examples = inputs[0].in_memory()
        if self.against is None:
            return found
        return evolve(found, labels=np.where(found.labels == self.against, 1.0, -1.0))


# -----------------------------------------------------------------------------
# Disjoint parts of examples by chance: parallel composition for learning in phases.
#
# Each unit goes into one part by its own draw, from a law that no data touches, so that nobody's
# part hangs on anyone else's presence.
#
# Let D and D' be neighbours that differ in the unit u. The parts A of the other units have the same
# law under D and D', and so has u's part i, independent of them. Given A and i, the parts of D and
# D'
# are equal but for part i, where they differ in u: what reads other parts has privacy loss 0, what
# reads part i costs what it costs for that change. Whoever sees (A, i) beside the releases thus
# tells D from D' no better than in the worst of the *worlds* i; the releases alone are
# post-processing of that. Under replace_one u keeps its part, so that it is exchanged within one.


def draw_parts(stream: Stream, shares: Sequence[float], count: int) -> NDArray[np.int64]:
    """Return for each of ``count`` units the part of its own independent draw.

    Part i has probability ``shares[i]`` to 2^-50; the last one has all that is left.
    """
    words = stream.words(count)
    found = np.searchsorted(np.array(cuts(shares), dtype=np.uint64), words, side="right")
    return found.astype(np.int64)


def cuts(shares: Sequence[float]) -> list[int]:
    """Return where 64-bit words are cut into intervals of these probabilities."""
    return [min(2**64 - 1, int(total * 2.0**64)) for total in accumulate(shares[:-1])]


@frozen
class PhasesDomain:
    """Examples in parts, each unit in one of them."""

    keys: tuple[int, ...]
    examples: ExamplesDomain
    whole_units: ClassVar[bool] = True


def _shares(value: Any) -> tuple[Any, ...]:
    return tuple(number(v) for v in anything(value))


@frozen
class Phases(PartitionOperation):
    """Each unit of examples in one of several parts, by its own draw; see the module.

    Parameters
    ----------
    shares
        The probability of each part, positive; they add up to 1.
    """

    kind: ClassVar[str] = "phases"
    input_type: ClassVar[type] = ExamplesDomain
    random: ClassVar[bool] = True
    by = "phase"

    shares: tuple[float, ...] = field(converter=_shares)

    def label(self) -> str:
        """Return the number of parts."""
        return f"{len(self.shares)} phases"

    def detail(self) -> str:
        """Return the shares."""
        return ", ".join(f"{share:.3g}" for share in self.shares)

    def domain(self, inputs: Sequence[Any]) -> PhasesDomain:
        """Return the parts, numbered from 1; of none the size is known."""
        plain = all(isinstance(s, int | float) and not isinstance(s, bool) for s in self.shares)
        if not (plain and len(self.shares) >= 1 and all(2.0**-40 <= s <= 1 for s in self.shares)):
            raise DeclarationError(
                f"phases need shares of at least 2^-40, got {list(self.shares)!r}"
            )
        if not (abs(math.fsum(self.shares) - 1) < 1e-9):
            raise DeclarationError(
                f"the shares of phases must add up to 1, got {list(self.shares)!r}"
            )
        found: ExamplesDomain = inputs[0]
        part = evolve(found, table=evolve(found.table, size=None))
        return PhasesDomain(tuple(range(1, len(self.shares) + 1)), part)

    def change(self, change: Change) -> Change:
        """Return the change; which part it is in, the accountant enumerates."""
        return change

    def run(self, inputs: Sequence[Any], stream: Stream) -> list[AnyExamples]:
        """Return the parts."""
        examples: AnyExamples = inputs[0]
        return list(examples.split(cuts(self.shares), stream))


@frozen
class Phase(PartOperation):
    """One of the phases."""

    kind: ClassVar[str] = "phase"
    input_type: ClassVar[type] = PhasesDomain

    index: int

    def label(self) -> str:
        """Return the phase's number."""
        return f"phase {self.index + 1}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples of the phase."""
        phases: PhasesDomain = inputs[0]
        if not (0 <= self.index < len(phases.keys)):
            raise DeclarationError(f"{len(phases.keys)} phases have no phase of index {self.index}")
        return phases.examples

    def change(self, change: Change) -> Change:
        """Return the change inside the phase, where a unit may lie or not."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:
        """Return the examples of the phase."""
        parts: list[AnyExamples] = inputs[0]
        return parts[self.index]
