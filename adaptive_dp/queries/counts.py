"""Counts: of rows, of rows that meet conditions, and by category or bin.

A unit has up to r rows (`Change.rows`). It *appears or vanishes*, or it is *exchanged*: a rows go,
b rows come, r = max(a, b), and a + b is `Change.both`. Counts are integers: their sensitivities
in l1 and the maximum norm are exact, roots are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray
from scipy.special import betaincinv, gammaincinv, ndtr

from accountants.numerics import up
from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.rows import Integers
from adaptive_dp.data.scan import Cells, RowFunction, once
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import Change, Contributions, Query
from adaptive_dp.graph.values import as_tuple, optional_tuple
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import (
    Categories,
    Floats,
    Selected,
    SumOverRows,
    Table,
    Values,
    edges_of,
    refuse_text_categories,
    refuse_unknown_keys,
)
from adaptive_dp.queries.expressions import CONDITIONS, Expression, Holds, Where, expression
from adaptive_dp.queries.transforms import BinIndex, Filter, KeyIndex, Meets, bins


@frozen
class Count(SumOverRows):
    """The number of rows.

    *Sensitivity*, in any norm since it is one number. A unit with at most r rows adds between 0 and
    r to the count. Where it appears or vanishes, and where it is exchanged, the count moves by at
    most r; by nothing where the unit has exactly r rows before and after (`Change.fixed`).
    """

    kind: ClassVar[str] = "count"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    disjoint: ClassVar[bool] = True
    input_type: ClassVar[type] = Table

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return r, or 0 for the exchange of a fixed number of rows (any norm)."""
        # r rows go and r come, so an exchange of exactly r rows leaves the count as it is
        return 0.0 if change.replaced and change.fixed else float(change.rows)

    def rises(self, domain: Any) -> bool:
        """Return True."""
        return True

    def step(self, domain: Any) -> float:
        """Return 1."""
        return 1.0

    def sampled(self, domain: Table, values: Any, normals: Any) -> Floats:
        """Return `counts_of_population`."""
        return counts_of_population(values, normals, domain.size)

    def contributions(self, value: Any) -> Contributions:
        """Return 1 for each row."""
        return value.units, np.ones(len(value.units))

    def block(self, value: Rows) -> Cells:
        """Return 1 for each row."""
        return Cells()

    def finish(self, total: NDArray[Any]) -> float:
        """Return the count."""
        return float(total[0])


@frozen
class CountDistinct(Query):
    """The number of units that have a row here.

    *Sensitivity*, in any norm since it is one number. A unit is counted once or not at all, however
    many rows it has. Where it appears or vanishes (add/remove; zero-out, where its rows count as
    nothing) the number moves by at most 1. Where its rows are exchanged for others, it may have a
    row here in one of the two data sets and none in the other: at most 1 again; by nothing where it
    has a row in both (`Change.fixed`). No other unit's rows change. In the parts of a partition the
    numbers of all parts in which it has a row move, by 1 each.
    """

    kind: ClassVar[str] = "count_distinct"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = Table

    def label(self) -> str:
        """Return the query."""
        return "count of units"

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return 1, or 0 for the exchange of a fixed number of rows (any norm)."""
        # a unit is counted once, in a data set in which it has a row
        return 0.0 if change.replaced and change.fixed else 1.0

    def rises(self, domain: Any) -> bool:
        """Return True."""
        return True

    def step(self, domain: Any) -> float:
        """Return 1."""
        return 1.0

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the number of units."""
        rows: Rows = inputs[0]
        return float(rows.size())


def counts_of_population(counts: Floats, normals: Floats, size: int | None) -> Floats:
    """Return plausible expected counts, given plausible counts of a random sample's rows.

    With n rows of which k count, the expected number has by Jeffreys' prior the law
    ``n Beta(k + 1/2, n - k + 1/2)`` where n is public, and Gamma(k + 1/2) where it is not and
    counts are Poisson. Intervals of these laws cover close to their level for all k (Brown, Cai and
    DasGupta 2001, section 4.1; 2003 for Poisson).

    Parameters
    ----------
    counts
        Any shape; below 0 they count as 0.
    normals
        Standard normal numbers, whose distribution function is inverted by that of these laws.
    size
        n, or None.
    """
    probability = ndtr(normals)
    k = np.maximum(counts, 0.0)
    if size is None:
        return np.asarray(gammaincinv(k + 0.5, probability))
    k = np.minimum(k, size)
    return np.asarray(size * betaincinv(k + 0.5, size - k + 0.5, probability))


# -----------------------------------------------------------------------------
# Counts of rows that meet conditions.


Condition = tuple[str, str, Any] | Expression
"""A column, a test and an operand, as the parameters of `Filter`; or any other condition."""


def _conditions(values: Iterable[Any]) -> tuple[Condition, ...]:
    return tuple(_condition(value) for value in as_tuple(values))


def _condition(value: Any) -> Condition:
    parts = as_tuple(value)
    if parts and parts[0] in CONDITIONS and not (len(parts) == 3 and isinstance(parts[1], str)):
        return expression(value)
    if not (len(parts) == 3 and isinstance(parts[0], str) and isinstance(parts[1], str)):
        raise DeclarationError(
            f"a counted condition is a column, a test and an operand, got {value!r}; write "
            '["age", ">=", 18]'
        )
    column, test, operand = parts
    return column, test, tuple(operand) if isinstance(operand, list | tuple) else operand


@frozen
class ConditionsMet(RowFunction):
    """For each condition 1 where a row meets it."""

    conditions: tuple[Meets | Holds, ...]

    def __call__(self, columns: Columns) -> Floats:
        """Return an array of shape (m, conditions)."""
        met = np.stack([once(columns, each) for each in self.conditions])
        return met.astype(np.float64).T


@frozen
class Counts(SumOverRows):
    """The number of rows that meet each condition; a row may meet several, or none.

    *Sensitivity*, for m conditions. A unit with at most r rows adds to each count between 0 and r.
    Where it appears or vanishes, all counts move the same way, each by at most r: ``m r`` in l1,
    ``sqrt(m) r`` in l2, r in the maximum norm. Where it is exchanged, each moves by at most r
    either way: the same bounds. All are attained by conditions that the same rows meet.

    Parameters
    ----------
    conditions
        Triples of a column, a test and an operand, such as ``("age", ">=", 18)``, or expressions.
    """

    kind: ClassVar[str] = "counts"
    column_fields: ClassVar[tuple[str, ...]] = ("counted_columns",)
    rounds_outward: ClassVar[bool] = True
    input_type: ClassVar[type] = Table

    conditions: tuple[Any, ...] = field(converter=_conditions)

    def label(self) -> str:
        """Return how many conditions there are."""
        return f"counts of {len(self.conditions)} conditions"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table; check each condition as a filter does."""
        if not (len(self.conditions) > 0):
            raise DeclarationError("counts needs at least one condition, got none")
        # a condition is checked by the filter that it would be, on the table alone
        for filtered in self._filters():
            filtered.domain(inputs[:1])
        table: Table = inputs[0]
        return table

    def dimension(self, domain: Table) -> int:
        """Return the number of conditions."""
        return len(self.conditions)

    def sensitivity(self, domain: Table, change: Change, norm: float) -> float:
        """Return ``m r`` (l1), ``sqrt(m) r`` (l2) or ``r`` (maximum norm), ``r = max(a, b)``."""
        count = len(self.conditions)
        # each of m counts moves by at most r
        if norm == 2 and count > 1:
            return up(math.sqrt(count) * change.rows)
        return float(change.rows * (count if norm == 1 else 1))

    def step(self, domain: Table) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: Table, change: Change) -> float:
        """Return r where a unit appears (all counts grow), a + b where it is exchanged."""
        # one count may rise by b while another falls by a
        return float(change.both if change.replaced else change.rows)

    def key_names(self, domain: Table) -> tuple[str, ...]:
        """Return ``"condition"``."""
        return ("condition",)

    def candidate(self, index: int) -> str:
        """Return the condition as a str such as ``age >= 18``."""
        return str(self._filters()[index].label())

    def sampled(self, domain: Table, values: Any, normals: Any) -> Floats:
        """Return `counts_of_population`."""
        return counts_of_population(values, normals, domain.size)

    def contributions(self, value: Rows) -> Contributions:
        """Return ``sqrt(m)`` for a row that meets m conditions, rounded up."""
        conditions = self._met()

        def block(columns: Columns) -> Floats:
            # how many of the conditions each row of the block meets
            met = np.sum([meets(columns) for meets in conditions], axis=0, dtype=np.float64)
            # the l2 norm of a vector of m ones
            return np.where(met == 0, 0.0, up(np.sqrt(met)))

        return value.units, value.values(block)

    def block(self, value: Rows) -> Cells:
        """Return for each condition 1 for a row that meets it."""
        met = ConditionsMet(self._met())
        return Cells(weights=met, width=len(self.conditions))

    @property
    def counted_columns(self) -> tuple[str, ...]:
        """The columns that the conditions compare."""
        names = (e.names if isinstance(e, Expression) else (e[0],) for e in self.conditions)
        return tuple(chain.from_iterable(names))

    def _filters(self) -> list[Filter | Where]:
        return [Where(e) if isinstance(e, Expression) else Filter(*e) for e in self.conditions]

    def _met(self) -> tuple[Meets | Holds, ...]:
        return tuple(
            Holds(e) if isinstance(e, Expression) else Filter(*e).condition()
            for e in self.conditions
        )


def of_constant(condition: Any) -> Condition:
    """Return the column, test and operand of a condition; refuse a released operand."""
    if condition.handles:
        raise DeclarationError(
            f"counts compares with constants, but {condition!r} compares with a released value; "
            "use table.filter(condition).count()"
        )
    plain: Condition | None = condition.plain
    return condition.expression if plain is None else plain


# -----------------------------------------------------------------------------
# Histograms.


@frozen
class Histogram(SumOverRows):
    """Counts by category, or by bin of a numeric column; a row is in one bin or in none.

    *Sensitivity*. A unit with up to r rows adds to it a vector of nonnegative integers that sum to
    at most r. Where it appears or vanishes: norm r, in l1, l2 and the maximum norm. Where a rows
    are exchanged for b, at most all a leave one bin and all b enter another: ``a + b`` in l1,
    ``sqrt(a^2 + b^2)`` in l2, ``max(a, b)`` in the maximum norm.

    Parameters
    ----------
    keys
        The categories; or None with edges.
    edges
        Ascending numbers, n + 1 of them for n bins, the last bin closed; or None with keys.
    """

    kind: ClassVar[str] = "histogram"
    column_fields: ClassVar[tuple[str, ...]] = ()
    rounds_outward: ClassVar[bool] = True
    disjoint: ClassVar[bool] = True
    input_type: ClassVar[type] = Values

    keys: tuple[Any, ...] | None = field(default=None, converter=optional_tuple)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)

    @property
    def width(self) -> int:
        """The number of bins."""
        return len(self.edges) - 1 if self.edges else len(self.keys or ())

    def label(self) -> str:
        """Return the number of bins."""
        return f"histogram of {self.width} bins"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; check the bins."""
        values: Values = inputs[0]
        if (self.keys is None) == (self.edges is None):
            raise DeclarationError(
                f"a histogram of {values.of!r} needs categories or edges=[...], one of the two"
            )
        if self.edges is not None:
            # for its checks: edges increase and are finite
            bins(values.of, self.edges)
            refuse_text_categories(values.of, values.column)
        else:
            refuse_unknown_keys(values.of, values.column, Categories(self.keys or ()).values)
        return values

    def dimension(self, domain: Values) -> int:
        """Return the number of bins."""
        return self.width

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return the bound of the class docstring.

        A single bin moves by at most ``max(a, b)``, not by 0: even if it spans the declared
        bounds, an exchanged row may leave it, since NaN and values out of bounds are in no bin.
        """
        more, fewer = float(change.rows), float(change.both - change.rows)  # max(a, b), min(a, b)
        # appearing, or in one bin: nonnegative integers with sum <= r have norm <= r, in every norm
        if not change.replaced or self.width == 1:
            return more
        # the vector (a, -b): its l1 and l2 norms, the root rounded up
        norms: dict[float, float] = {1: more + fewer, 2: up(math.hypot(more, fewer))}
        # the maximum norm of (a, -b) is max(a, b)
        return norms.get(norm, more)

    def step(self, domain: Values) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: Values, change: Change) -> float:
        """Return r where a unit appears (all counts grow), a + b where it is exchanged."""
        return float(change.both if change.replaced else change.rows)

    def key_names(self, domain: Values) -> tuple[str, ...]:
        """Return the column's name."""
        return (domain.of,)

    def entries(self, domain: Values) -> tuple[Any, ...]:
        """Return the categories, or the bins."""
        return bins("the column", self.edges) if self.edges is not None else self.keys or ()

    def candidate(self, index: int) -> Any:
        """Return the category, or the bin as a str such as ``[0, 10)``."""
        keys = bins("the column", self.edges) if self.edges is not None else self.keys or ()
        return keys[index]

    def sampled(self, domain: Values, values: Any, normals: Any) -> Floats:
        """Return `counts_of_population`."""
        return counts_of_population(values, normals, domain.size)

    def contributions(self, value: Selected) -> Contributions:
        """Return 1 for a row that is in a bin."""
        index = self._index(value)
        return value.rows.units, value.rows.values(
            lambda columns: (index(columns) >= 0).astype(np.float64)
        )

    def block(self, value: Selected) -> Cells:
        """Return 1 for a row, in its bin."""
        return Cells(self.width, self._index(value))

    def _index(self, value: Selected) -> Callable[[Columns], Integers]:
        """Return the function that gives each row's bin, -1 for none."""
        if self.edges is not None:
            return BinIndex(value.of, self.edges)
        return KeyIndex(value.of, self.keys or ())
