"""Examples, as learners read them: features and a label for each row; samples and phases."""

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
from adaptive_dp.graph.values import as_tuple, number, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import (
    Categories,
    Column,
    Floats,
    Interval,
    Strings,
    Table,
    Tensors,
    clipped,
    finite_float,
    numbers,
)
from adaptive_dp.queries.transforms import Sample, category_index
from adaptive_dp.queries.vectors import scale_to_unit


@frozen
class ExamplesDomain:
    """The domain of examples: rows of norm at most ``radius``, with labels of a kind.

    Parameters
    ----------
    names
        Of the features: ``intercept``, a column with bounds, or ``column=category``.
    labels
        ``"sign"``: -1 or 1; ``"class"``: 0, ..., ``classes`` - 1; ``"number"``: in [-1, 1], of
        two categories -1 and 1; ``"count"``: from 0 to ``most``.
    weighted
        Whether each row has a weight in [0, 1]: losses are `adaptive_dp.erm.Weighted` then.
    """

    names: tuple[str, ...]
    radius: float
    labels: str
    classes: int
    most: float
    table: Table
    weighted: bool = False

    @property
    def width(self) -> int:
        """The number of features, p."""
        return len(self.names)


def _norm(value: Any) -> float | None:
    return None if value is None else finite_float("examples' norm", value)


def _weights(value: Any) -> tuple[float, ...] | None:
    return None if value is None else tuple(finite_float("a class weight", v) for v in value)


@frozen
class ExamplesOf(Operation):
    """Features and labels of a table's rows.

    Numbers are mapped from their bounds onto [-1, 1] (bounds that include 0 as an end keep it: see
    `standard`), so that sparse columns stay sparse. A column of k categories becomes k features of
    0 and 1; a value outside of the declared categories becomes zeros. Rows longer than the norm are
    scaled down to it, and rounded to a grid (`adaptive_dp.data.examples`). Rows whose label is
    none of the declared categories are left out.

    Parameters
    ----------
    features
        Columns with bounds or categories.
    target
        The column of labels, with bounds or categories; of two categories the first is -1.
    labels
        The kind of labels: see `ExamplesDomain`.
    norm
        The largest norm of a row; None for the largest that the columns can have.
    intercept
        Whether the first feature is the constant 1.
    columns
        The columns' declarations, filled in when the plan is built.
    weight
        A column of numbers from 0 on, by which rows are weighted: divided by its upper bound, so
        that no row weighs more than 1. A weight multiplies its row's loss (`erm.Weighted`).
    class_weights
        The weight of each of the target's categories, in [0, 1]; a second input is a released
        array of them. Where there is a column too, a row has the product.
    """

    kind: ClassVar[str] = "examples"
    column_fields: ClassVar[tuple[str, ...]] = ("features", "target", "weight")
    input_type: ClassVar[type] = Table
    max_released_inputs: ClassVar[int] = 1

    features: tuple[str, ...] = field(converter=strings)
    target: str
    labels: str
    norm: float | None = field(default=None, converter=_norm)
    intercept: bool = True
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)
    weight: str | None = None
    class_weights: tuple[float, ...] | None = field(default=None, converter=_weights)

    def label(self) -> str:
        """Return the target and the number of columns."""
        return f"{self.target} by {len(self.features)} columns"

    def detail(self) -> str:
        """Return the norm, and whether there is an intercept."""
        parts = [] if self.norm is None else [f"norm {self.norm:g}"]
        if self.weight is not None:
            parts.append(f"weighted by {self.weight}")
        if self.class_weights is not None:
            parts.append("class weights " + " ".join(f"{w:.3g}" for w in self.class_weights))
        return ", ".join(parts + (["with intercept"] if self.intercept else []))

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the ball of the features, and the kind of labels."""
        table: Table = inputs[0]
        if not (len(self.features) > 0):
            raise DeclarationError("examples need at least one feature")
        # a repeated feature, or the label among the features, makes the set smaller
        if len({*self.features, self.target}) != len(self.features) + 1:
            raise DeclarationError(
                f"features and label must be different columns, got {list(self.features)} and "
                f"{self.target!r}"
            )
        declared = declarations(table, self.column_names)
        # a plan document repeats the declarations: scales and labels below are computed from them
        if dict(self.columns) != declared:
            raise DeclarationError(
                f"the columns of examples must be declared as {table.name!r} declares them"
            )
        if self.norm is not None and not (1e-100 <= self.norm <= 1e100):
            raise DeclarationError(f"examples' norm must be a positive number, got {self.norm!r}")
        names: tuple[str, ...] = ("intercept",) if self.intercept else ()
        for name in self.features:
            column = declared[name]
            is_categorical = isinstance(column, Categories)
            values = column.values if isinstance(column, Categories) else ()
            names += tuple(f"{name}={value}" for value in values) if is_categorical else (name,)
        target = declared[self.target]
        classes = len(target.values) if isinstance(target, Categories) else 0
        self._check_labels(target)
        # the largest count: it bounds the slope of losses of counts
        most = target.upper if isinstance(target, Interval) else 0.0
        weighted = self._check_weights(declared, classes, released=len(inputs) > 1)
        return ExamplesDomain(names, self.radius, self.labels, classes, most, table, weighted)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*self.features, self.target, *([] if self.weight is None else [self.weight]))

    def _check_weights(
        self, declared: Mapping[str, Column], classes: int, *, released: bool
    ) -> bool:
        """Return whether rows have weights; refuse what gives none in [0, 1] to each row."""
        if self.weight is not None:
            column = declared[self.weight]
            if not (isinstance(column, Interval) and column.lower >= 0 and column.upper > 0):
                raise DeclarationError(
                    f"a column of weights needs bounds such as (0, 10), from 0 on; {self.weight!r} "
                    f"is declared as {column}"
                )
            if self.weight == self.target:
                raise DeclarationError(f"{self.weight!r} is the target; it cannot weigh its rows")
        of_classes = self.class_weights
        if (released or of_classes is not None) and self.labels not in ("sign", "class"):
            raise DeclarationError(
                f"class weights need a target of categories; the labels are {self.labels!r}"
            )
        if released and of_classes is not None:
            raise DeclarationError("class weights are given or released; not both")
        if of_classes is not None and not (
            len(of_classes) == classes and all(0 <= w <= 1 for w in of_classes)
        ):
            raise DeclarationError(
                f"class weights must be a number in [0, 1] for each of {classes} categories, got "
                f"{list(of_classes)!r}"
            )
        return released or self.weight is not None or of_classes is not None

    def _check_labels(self, target: Column) -> None:
        of = self.target
        if isinstance(target, Categories):
            # signs, and numbers -1 and 1, need two categories; classes take any number of them
            k = len(target.values)
            fits = self.labels == "class" or (self.labels in ("sign", "number") and k == 2)
            wanted = "'class', or 'sign' or 'number' where there are two categories"
            loss = f"dp.Multinomial({k})" if k > 2 else "dp.Logistic()"
        else:
            assert isinstance(target, Interval)
            fits = self.labels == "number" or (self.labels == "count" and target.lower >= 0)
            wanted = "'number', or 'count' where no number is negative"
            loss = "dp.Squared()"
        if not (fits and (not isinstance(target, Categories) or len(target.values) >= 2)):
            raise DeclarationError(
                f"labels of {of!r}, declared as {target}, can be read as {wanted}; got "
                f"{self.labels!r}: choose a loss that reads such labels, for example {loss}"
            )

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: rows without a declared label are left out."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:
        """Return the examples; they are computed once for all that is learned from them.

        On a cluster they stay with the workers that have the rows.
        """
        rows: Rows = inputs[0]
        target = self.columns[self.target]
        if isinstance(target, Categories):
            values = target.values
            # drop rows of another label; row by row, so that units stay independent
            rows = rows.where(lambda c: category_index(c[self.target], values) >= 0)
        # the grid's unit depends on the radius alone, so any vector will do: one of zeros
        radius, unit = self.radius, grid.ball(np.zeros((1, 1)), self.radius)[1]
        scales = self.scales()

        def steps(columns: Columns) -> Floats:
            return grid.ball_steps(self.vectors(columns, scales), radius)[0]

        of_classes: Any = inputs[1] if len(inputs) > 1 else self.class_weights
        if of_classes is None and self.weight is None:
            return examples_of_rows(rows, steps, self.goals, radius, unit)
        if of_classes is not None:
            # released values may be anything: what is no weight counts as 0, more than 1 as 1
            clean = np.nan_to_num(np.asarray(of_classes, dtype=np.float64).reshape(-1), nan=0.0)
            of_classes = np.zeros(len(self.columns[self.target].values))  # type: ignore[union-attr]
            of_classes[: len(clean)] = np.clip(clean, 0.0, 1.0)[: len(of_classes)]

        def goals(columns: Columns) -> Floats:
            return np.stack([self.goals(columns), self.weights(columns, of_classes)], axis=1)

        return examples_of_rows(rows, steps, goals, radius, unit, weighted=True)

    def weights(self, columns: Columns, of_classes: Floats | None) -> Floats:
        """Return the weights of a block of rows in [0, 1], shape (m,)."""
        result = np.ones(len(columns[self.target]))
        if self.weight is not None:
            declared = self.columns[self.weight]
            assert isinstance(declared, Interval)
            # at most 1, as x / u <= 1 in floats too where x <= u
            result *= clipped(columns[self.weight], declared) / declared.upper
        if of_classes is not None:
            target = self.columns[self.target]
            assert isinstance(target, Categories)
            result *= of_classes[category_index(columns[self.target], target.values)]
        return result

    def goals(self, columns: Columns) -> Floats:
        """Return the labels of a block of rows, shape (m,)."""
        target, declared = columns[self.target], self.columns[self.target]
        if isinstance(declared, Categories):
            index = category_index(target, declared.values).astype(np.float64)
            # 0 and 1 become -1 and 1
            return index if self.labels == "class" else 2 * index - 1
        assert isinstance(declared, Interval)
        inside = clipped(target, declared)
        return inside if self.labels == "count" else scale_to_unit(inside, declared)

    def vectors(self, columns: Columns, scales: Floats) -> Floats:
        """Return the features of a block of rows, shape (m, p); ``scales`` as of `scales`."""
        low, high, middle, half = scales
        rows = np.ones((len(low), len(columns[self.target])))  # each feature is contiguous
        # row 0 stays 1 where there is an intercept; `position` is the next feature's row
        position = int(self.intercept)
        for name in self.features:
            declared = self.columns[name]
            if isinstance(declared, Categories):
                index = category_index(columns[name], declared.values)
                for i in range(len(declared.values)):
                    # index -1, an undeclared value, sets none of them
                    rows[position + i] = index == i
                position += len(declared.values)
            else:
                rows[position] = numbers(columns[name])
                position += 1
        missing = np.isnan(rows)
        if missing.any():
            # NaN is 0 in the column's units, then the bound next to it: as `domains.clipped`
            rows[missing] = 0.0
        np.clip(rows, low, high, out=rows)
        rows -= middle
        rows /= half
        # the quotient may round to just above 1
        return np.clip(rows, -1.0, 1.0, out=rows).T

    def scales(self) -> Floats:
        """Return each feature's lower and upper bound, middle and half, shape (4, p, 1)."""
        # (lower, upper, middle, half): the maps of 1 and of 0-1 features are the identity
        scales = [(-1.0, 1.0, 0.0, 1.0)] * self.intercept
        for name in self.features:
            declared = self.columns[name]
            if isinstance(declared, Categories):
                scales += [(0.0, 1.0, 0.0, 1.0)] * len(declared.values)
            else:
                assert isinstance(declared, Interval)
                middle, half = standard(declared)
                # a column of one point is 0
                standardization = (middle, half) if half > 0 else (declared.lower, 1.0)
                scales.append((declared.lower, declared.upper, *standardization))
        return np.array(scales).T[:, :, None]

    @property
    def radius(self) -> float:
        """The largest l2 norm of a row."""
        # each column adds at most 1 to the square: a number, or one 1; rounded up
        largest = math.sqrt(len(self.features) + self.intercept) * (1 + 1e-12)
        return largest if self.norm is None else min(self.norm, largest)


def standard(bounds: Interval) -> tuple[float, float]:
    """Return (middle, half) such that ``(value - middle) / half`` is in [-1, 1].

    Bounds with 0 as an end are divided by the other end, so that 0 stays 0; other bounds are
    centered.
    """
    if bounds.lower == 0 or bounds.upper == 0:
        return 0.0, bounds.largest
    half = bounds.upper / 2 - bounds.lower / 2
    return bounds.lower + half, half


def declarations(table: Table, names: Sequence[str]) -> dict[str, Column]:
    """Return how a table declares columns; refuse one without bounds or categories."""
    columns = {name: table.find(name) for name in names}
    for name, declared in columns.items():
        if declared is None or isinstance(declared, Strings | Tensors):
            table.interval(name)  # raises with the remedy
    return columns


@frozen
class SampleExamples(Sample):
    """A Poisson sample of the units of examples."""

    kind: ClassVar[str] = "sample_examples"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples, their number no longer public."""
        examples: ExamplesDomain = inputs[0]
        return evolve(examples, table=super().domain([examples.table]))

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:  # type: ignore[override]
        """Return a new sample, independent of all others."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]


# -----------------------------------------------------------------------------
# The examples themselves, for mechanisms that read them (objective perturbation).


@frozen
class ExactExamples(Query):
    """The examples themselves, or with one class against the rest.

    For mechanisms whose loss is proven for the examples: the sensitivity counts rows, in norm 0. It
    is r for a unit of up to r rows that appears or vanishes, a + b for a rows exchanged for b.

    Parameters
    ----------
    against
        A class, whose label becomes 1 and all others -1; None to leave labels as they are.
    """

    kind: ClassVar[str] = "every_example"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    output_type: ClassVar[type] = Examples

    against: int | None = None

    def label(self) -> str:
        """Return whether one class is against the rest."""
        return "examples" if self.against is None else f"class {self.against} against the rest"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the domain of the examples; with one class against the rest labels are signs."""
        examples: ExamplesDomain = inputs[0]
        if self.against is None:
            return examples
        if not (examples.labels == "class" and 0 <= self.against < examples.classes):
            raise DeclarationError(
                f"against must be a class from 0 to {examples.classes - 1}, got {self.against!r}"
            )
        return evolve(examples, labels="sign")

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the number of rows added and removed; refuse any norm but 0."""
        if norm != 0:
            raise DeclarationError(
                "examples say how many rows change, not how far they move: release them with "
                f"PerturbedObjective, whose norm is 0, got norm {norm!r}"
            )
        # a rows removed and b added: each is one loss more or less
        return float(change.both)

    def span(self, domain: ExamplesDomain, change: Change) -> float:
        """Return the larger of the numbers of rows that only one of the data sets has."""
        return float(change.rows)

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of features."""
        return domain.width

    def run(self, inputs: Sequence[Any], stream: Stream) -> Examples:
        """Return the examples, brought into this process's memory."""
        examples: Examples = inputs[0].in_memory()
        if self.against is None:
            return examples
        if examples.labels.ndim == 1:
            return evolve(examples, labels=np.where(examples.labels == self.against, 1.0, -1.0))
        signs = np.where(examples.labels[:, 0] == self.against, 1.0, -1.0)
        return evolve(examples, labels=np.stack([signs, examples.labels[:, 1]], axis=1))


# -----------------------------------------------------------------------------
# How much the rows weigh together: what stands in place of their number.


WEIGHT_STEPS = 20
"""A row's weight is summed in steps of 2^-20."""


@frozen
class TotalWeight(Query):
    """The sum of the rows' weights, each in [0, 1] and rounded to steps of 2^-20.

    *Sensitivity*, in any norm since it is one number: a unit of up to r rows adds between 0 and r,
    so it moves the sum by at most r where it appears or vanishes, and where it is exchanged.
    """

    kind: ClassVar[str] = "total_weight"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = ExamplesDomain
    rounds_outward: ClassVar[bool] = True

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples' domain; refuse examples without weights."""
        domain: ExamplesDomain = inputs[0]
        if not domain.weighted:
            raise DeclarationError(
                "the examples have no weights: count their rows, table.count(), or give weights"
            )
        return domain

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return r."""
        return float(change.rows)

    def step(self, domain: ExamplesDomain) -> float:
        """Return 2^-20."""
        return 2.0**-WEIGHT_STEPS

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the sum, exact."""
        examples: AnyExamples = inputs[0]
        return float(math.ldexp(examples.total(_weight_steps), -WEIGHT_STEPS))


def _weight_steps(examples: Examples) -> int:
    """Return the sum of the weights in integer steps, each in [0, 2^20]."""
    return int(np.rint(examples.labels[:, 1] * 2.0**WEIGHT_STEPS).sum())


# -----------------------------------------------------------------------------
# Phases: disjoint random parts of examples, for parallel composition.


def draw_parts(stream: Stream, shares: Sequence[float], count: int) -> NDArray[np.int64]:
    """Return the part of each of ``count`` units, by independent draws.

    Part i has probability ``shares[i]`` to 2^-50; the last one has the remainder.
    """
    # uniform in [0, 2^64)
    words = stream.words(count)
    parts = np.searchsorted(np.array(cuts(shares), dtype=np.uint64), words, side="right")
    return parts.astype(np.int64)


def cuts(shares: Sequence[float]) -> list[int]:
    """Return the thresholds that cut uniform 64-bit words into intervals of these shares."""
    # the last share is not used: its part takes what remains above the last threshold
    return [min(2**64 - 1, int(total * 2.0**64)) for total in accumulate(shares[:-1])]


@frozen
class PhasesDomain:
    """The domain of phases: examples in parts, each unit in one of them."""

    keys: tuple[int, ...]
    examples: ExamplesDomain
    whole_units: ClassVar[bool] = True


def _shares(value: Any) -> tuple[Any, ...]:
    return tuple(number(v) for v in as_tuple(value))


@frozen
class Phases(PartitionOperation):
    """Examples split into disjoint parts at random, each unit into one part by its own draw.

    The draws follow a law that does not depend on the data, so that the part of a unit does not
    depend on whether any other unit is present.

    Parameters
    ----------
    shares
        The probability of each part, positive; they add up to 1.

    Notes
    -----
    *Parallel composition holds.* Let D and D' be neighbours that differ in the unit u. The parts A
    of the other units have the same law under D and D', and so has u's part i, independent of A.
    Given A and i, the parts of D and D' are equal except part i, where they differ in u: a release
    of another part has privacy loss 0, a release of part i costs what it costs for that change. So
    an observer of (A, i) and the releases distinguishes D from D' no better than in the worst of
    the *worlds* i, and the releases alone are post-processing of that. Under replace_one u keeps
    its part, so that it is exchanged within one.
    """

    kind: ClassVar[str] = "phases"
    column_fields: ClassVar[tuple[str, ...]] = ()
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
        """Return the parts, numbered from 1, their sizes not public."""
        are_numbers = all(
            isinstance(s, int | float) and not isinstance(s, bool) for s in self.shares
        )
        if not (
            # 2^-40 is far above the 2^-50 to which a share is rounded
            are_numbers and len(self.shares) >= 1 and all(2.0**-40 <= s <= 1 for s in self.shares)
        ):
            raise DeclarationError(
                f"phases need shares of at least 2^-40, got {list(self.shares)!r}"
            )
        # shares such as 1/3 add up to 1 only up to rounding
        if not (abs(math.fsum(self.shares) - 1) < 1e-9):
            raise DeclarationError(
                f"the shares of phases must add up to 1, got {list(self.shares)!r}"
            )
        examples: ExamplesDomain = inputs[0]
        # the size of a phase is random, and it depends on the private number of units
        part = evolve(examples, table=examples.table.uncounted())
        return PhasesDomain(tuple(range(1, len(self.shares) + 1)), part)

    def change(self, change: Change) -> Change:
        """Return the change as it is; the accountant enumerates the part that it is in."""
        return change

    def run(self, inputs: Sequence[Any], stream: Stream) -> list[AnyExamples]:
        """Return the parts."""
        examples: AnyExamples = inputs[0]
        # one draw for each unit, so that all its rows go into one part
        return list(examples.split(cuts(self.shares), stream))


@frozen
class Phase(PartOperation):
    """One of the phases."""

    kind: ClassVar[str] = "phase"
    column_fields: ClassVar[tuple[str, ...]] = ()
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
        """Return the change without `fixed`: a unit may be in another phase."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:
        """Return the examples of the phase."""
        parts: list[AnyExamples] = inputs[0]
        return parts[self.index]
