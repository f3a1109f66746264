"""Transforms of tables: partitions, filters and Poisson samples, each with its stability.

The stability of a transform is its method `change`: how a change of the input arrives at the
output. None of these enlarges a change; what can be lost is that a unit has a fixed number of rows
(`Change.fixed`), since a unit may leave a part, a filter or a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NoReturn

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.scan import InPart, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError, NeighborError
from adaptive_dp.graph.handles import (
    Handle,
    PartitionOperation,
    PartOperation,
    Released,
    SampleOperation,
)
from adaptive_dp.graph.operation import Change, Operation
from adaptive_dp.graph.values import perhaps
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Categories,
    ColumnValues,
    Parts,
    Table,
    edges_of,
    finite_float,
    numbers,
    refuse_text_categories,
    refuse_unknown_keys,
)

# -----------------------------------------------------------------------------
# Partitions: rows in disjoint parts, for parallel composition.


@frozen
class Partition(PartitionOperation):
    """Rows split into disjoint parts by a column: a row is in the part of its category or bin.

    Rows whose value is in no category or bin are in no part. A unit with several rows may lie in
    several parts, which costs more than one; with ``whole_units`` a unit's rows are kept in the
    first part (in the order of the keys) that any of them is in, and dropped from the others, so
    that every unit lies in one part.

    Parameters
    ----------
    by
        The column to part by.
    keys, edges
        Categories, or ascending edges of bins: one of the two.
    whole_units
        Keep each unit in one part.
    """

    kind: ClassVar[str] = "partition"
    column_fields: ClassVar[tuple[str, ...]] = ("by",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True

    by: str
    keys: tuple[Any, ...] | None = field(default=None, converter=perhaps)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    whole_units: bool = False

    def label(self) -> str:
        """Return the column."""
        return f"partition by {self.by}"

    def detail(self) -> str:
        """Return whether each unit is in one part."""
        return "each unit in one part" if self.whole_units else ""

    def domain(self, inputs: Sequence[Any]) -> Parts:
        """Return the parts, named by category or bin."""
        table: Table = inputs[0]
        declared = table.find(self.by)
        # exactly one of the two says how to part
        if (self.keys is None) == (self.edges is None):
            raise DeclarationError(
                f"column {self.by!r} declares no categories; pass keys=[...] or edges=[...]"
                if self.keys is None
                else "partition takes keys (of categories) or edges (of a numeric column), not both"
            )
        if self.edges is not None:
            keys: tuple[Any, ...] = bins(self.by, self.edges)
            refuse_text_categories(self.by, declared)
        else:
            keys = Categories(self.keys or ()).values
            refuse_unknown_keys(self.by, declared, keys)
        # how many units lie in a part is private even where the total is public
        return Parts(evolve(table, size=None), keys, self.whole_units)

    def change(self, change: Change) -> Change:
        """Return the change as it is; the accountant enumerates the part that it is in."""
        return change

    @property
    def index(self) -> RowFunction:
        """The function that gives each row's part, -1 for none."""
        if self.edges is not None:
            return BinIndex(ColumnValues(self.by), self.edges)
        return KeyIndex(ColumnValues(self.by), self.keys or ())

    @property
    def count(self) -> int:
        """The number of parts."""
        return len(self.edges) - 1 if self.edges is not None else len(self.keys or ())

    def run(self, inputs: Sequence[Any], stream: Stream) -> tuple[RowFunction, int, Rows]:
        """Return each row's part as a function, the number of parts, and the rows.

        With ``whole_units`` they are each unit's rows in its first part only.
        """
        # one function for all parts, by which `Part.run` selects its rows when they are read
        index = self.index
        return index, self.count, inputs[0].gather(index) if self.whole_units else inputs[0]


@frozen
class Part(PartOperation):
    """One part of a partition."""

    kind: ClassVar[str] = "part"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Parts
    is_rowwise: ClassVar[bool] = True

    index: int

    def label(self) -> str:
        """Return the part's number; `Pipeline` shows its key."""
        return f"part {self.index + 1}"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table of the part."""
        parts: Parts = inputs[0]
        if not (0 <= self.index < len(parts.keys)):
            raise DeclarationError(
                f"a partition of {len(parts.keys)} parts has no part {self.index}"
            )
        return parts.table

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may have any number of rows in the part."""
        return evolve(change, fixed=False) if change.fixed else change

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows of the part."""
        part_of, count, rows = inputs[0]
        # parts of one partition are told apart by `InPart` alone: sums over them are one pass
        return rows.where(InPart(part_of, self.index, count))  # type: ignore[no-any-return]


@frozen
class KeyIndex(RowFunction):
    """The position of each row's value among keys, -1 for any other value."""

    of: Callable[[Columns], NDArray[Any]]
    keys: tuple[Any, ...]

    def __call__(self, columns: Columns) -> NDArray[np.int64]:
        """Return the positions."""
        return category_index(once(columns, self.of), self.keys)


@frozen
class BinIndex(RowFunction):
    """The bin of each row's value between edges, -1 for none."""

    of: Callable[[Columns], NDArray[Any]]
    edges: tuple[float, ...]

    def __call__(self, columns: Columns) -> NDArray[np.int64]:
        """Return the bins."""
        return bin_index(once(columns, self.of), self.edges)


def category_index(values: NDArray[Any], keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each value among ``keys``, -1 for any other value.

    Objects of types that a key cannot have (lists, say) count as other values and are never
    compared, so that no foreign ``__eq__`` or ``__hash__`` runs on private data.
    """
    positions = {key: i for i, key in enumerate(keys)}
    # `type(v) in` and not `isinstance`: a subclass could bring its own __eq__ or __hash__
    types = (str, int, float, bool)
    return np.array(
        [positions.get(v, -1) if type(v) in types else -1 for v in values.tolist()], dtype=np.int64
    )


def bins(name: str, edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the bins between increasing edges, the last one closed.

    Raises
    ------
    DeclarationError
        If there are fewer than two edges, or they do not increase.
    """
    if not (
        len(edges) >= 2
        and all(isinstance(e, int | float) and not isinstance(e, bool) for e in edges)
        # this refuses NaN too, which compares as false
        and all(-1e300 < e < 1e300 for e in edges)
    ):
        raise DeclarationError(
            f"edges of {name!r} must be at least two finite numbers, got {list(edges)!r}"
        )
    if not all(a < b for a, b in pairwise(edges)):
        raise DeclarationError(f"edges of {name!r} must increase, got {list(edges)!r}")
    last = len(edges) - 2
    return tuple(
        f"[{a:g}, {b:g}{']' if i == last else ')'}" for i, (a, b) in enumerate(pairwise(edges))
    )


def bin_index(values: NDArray[Any], edges: Sequence[float]) -> NDArray[np.int64]:
    """Return the bin of each value, -1 for values outside of all bins and for NaN."""
    values, cuts = numbers(values), np.asarray(edges, dtype=np.float64)
    # side="right": a value on an edge belongs to the bin that starts there
    index = np.searchsorted(cuts, values, side="right") - 1
    # the last bin is closed, so its upper edge is inside of it
    index = np.where(values == cuts[-1], len(cuts) - 2, index)
    with np.errstate(invalid="ignore"):
        # written so that NaN, for which both comparisons are false, is outside
        outside = ~((values >= cuts[0]) & (values <= cuts[-1]))
    return np.where(outside, -1, index).astype(np.int64)


# -----------------------------------------------------------------------------
# Filters: the rows that meet a condition.


_TESTS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@frozen
class Condition:
    """A comparison of a table's column with a number, a released number, or a list of values.

    Made by ``table["age"] >= 18`` or ``table["town"].isin([...])``. It is private: it has no truth
    value, and conditions are not combined.

    Parameters
    ----------
    column, test, operand
        As of `Filter`; no operand where a released value is compared with.
    handle
        The released value, or None.
    table
        The table of the column.
    """

    column: str
    test: str
    operand: Any = None
    handle: Released[Any] | None = None
    table: Handle | None = None

    def __bool__(self) -> bool:
        raise TypeError(
            f"the condition {self.column} {self.test} ... is private and has no truth value; pass "
            "it to table.filter(...), one condition at a time"
        )

    def __and__(self, other: Any) -> NoReturn:
        raise DeclarationError(
            "conditions are not joined; chain filters: table.filter(...).filter(...)"
        )

    def __or__(self, other: Any) -> NoReturn:
        raise DeclarationError(
            "conditions are not joined; for several values use table[column].isin([...])"
        )

    def __invert__(self) -> NoReturn:
        raise DeclarationError("a condition is not negated; compare the other way")


@frozen
class Meets(RowFunction):
    """Whether each row's column meets a comparison; NaN meets none. See `Filter`."""

    column: str
    test: str
    operand: Any

    def __call__(self, columns: Columns) -> NDArray[np.bool_]:
        """Return which rows meet it."""
        if self.test == "in":
            return once(columns, KeyIndex(ColumnValues(self.column), self.operand)) >= 0
        with np.errstate(invalid="ignore"):
            values, operand = numbers(columns[self.column]), float(self.operand)
            return np.asarray(_TESTS[self.test](values, operand))


def _operand(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@frozen
class Filter(Operation):
    """The rows whose column meets a comparison; NaN meets none.

    A row stays or goes by its own values, so the stability is 1: one unit still changes only its
    own rows, but may now have fewer of them, or none.

    Parameters
    ----------
    column
        A column's name.
    test
        ``"<"``, ``"<="``, ``">"``, ``">="`` or ``"in"``.
    operand
        A number, or a tuple of values for ``"in"``; None where a released number is the second
        input.
    """

    kind: ClassVar[str] = "filter"
    column_fields: ClassVar[tuple[str, ...]] = ("column",)
    input_type: ClassVar[type] = Table
    is_rowwise: ClassVar[bool] = True
    max_released_inputs: ClassVar[int] = 1

    column: str
    test: str = field()
    operand: Any = field(default=None, converter=_operand)

    @test.validator
    def _known(self, _: object, test: str) -> None:
        if test not in _TESTS and test != "in":
            raise DeclarationError(
                f"a filter's test must be one of {', '.join(_TESTS)} or 'in', got {test!r}"
            )

    def label(self) -> str:
        """Return the condition."""
        shown = "..." if self.operand is None else self.operand
        if isinstance(shown, tuple):
            shown = "{" + ", ".join(map(str, shown)) + "}"
        return f"{self.column} {self.test} {shown}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, its number of units no longer public."""
        declared = inputs[0].find(self.column)
        values = declared.values if isinstance(declared, Categories) else ()
        texts = any(isinstance(v, str) for v in values)
        # an order of str is not defined here; equality of them is the test 'in'
        if self.test != "in" and texts:
            raise DeclarationError(
                f"column {self.column!r} holds categories, which {self.test} cannot compare; use "
                f"table[{self.column!r}].isin([...])"
            )
        if self.test == "in":
            refuse_unknown_keys(
                self.column, declared, self.operand if isinstance(self.operand, tuple) else ()
            )
            if not (isinstance(self.operand, tuple) and len(inputs) == 1):
                raise DeclarationError(
                    f"the test 'in' needs a list of values, got {self.operand!r}"
                )
        # one input: the operand is a constant; two: it is the second input, a released value
        elif len(inputs) == 1:
            finite_float(f"the operand of {self.column} {self.test}", self.operand)
        elif self.operand is not None:
            raise DeclarationError(
                "a filter compares with a constant or with a released value, not both"
            )
        return evolve(inputs[0], size=None)

    def change(self, change: Change) -> Change:
        """Return the change without `fixed`: a unit may lose rows to the filter."""
        return evolve(change, fixed=False)

    def condition(self, operand: Any = None) -> Meets:
        """Return the condition on rows, with a released operand where there is one."""
        return Meets(self.column, self.test, self.operand if operand is None else operand)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows that meet the condition."""
        # a released operand is public, so the condition still reads nothing but the row
        return inputs[0].where(self.condition(*inputs[1:]))  # type: ignore[no-any-return]


# -----------------------------------------------------------------------------
# Poisson sampling: each unit enters independently with probability q.


@frozen
class Sample(SampleOperation):
    """A Poisson sample of the units, which amplifies the privacy of what is released from it.

    The amplification theorems (see `accountants.Sampled`) hold where a unit is present or absent
    (add/remove, zero-out), so ``replace_one`` data sets are refused.

    Parameters
    ----------
    rate
        q in (0, 1], each unit's probability to be in the sample.
    """

    kind: ClassVar[str] = "sample"
    column_fields: ClassVar[tuple[str, ...]] = ()
    input_type: ClassVar[type] = Table

    rate: float = field()

    @rate.validator
    def _probability(self, _: object, rate: float) -> None:
        is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
        if not (is_number and 0 < rate <= 1):
            raise DeclarationError(
                f"sample's rate must be a probability above 0 and at most 1, got {rate!r}"
            )

    def label(self) -> str:
        """Return the rate."""
        return f"sample {self.rate:g}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, its number of units no longer public."""
        # the theorems compare a unit present with the same unit absent
        if inputs[0].neighbors == "replace_one":
            raise NeighborError(
                f"sample: {inputs[0].name!r} has replace_one neighbours, for which Poisson "
                "amplification is not proven here; declare neighbors='add_remove' or 'zero_out'"
            )
        return evolve(inputs[0], size=None)

    def change(self, change: Change) -> Change:
        """Return the change of a unit in the sample, without `fixed`: units may be left out."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return a fresh sample."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]
