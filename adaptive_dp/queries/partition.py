"""Splitting rows into disjoint parts: parallel composition."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import Columns, Rows
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import perhaps
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import PartitionOperation, PartOperation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import numbers
from adaptive_dp.queries.domains import Categories, Parts, Table, edges_of, known, numeric


@frozen
class Partition(PartitionOperation):
    """Each row lies in at most one part: that of its category, or of the bin it falls in.

    A unit with several rows may lie in several parts, which costs more than one; with
    ``whole_units`` a unit's rows are kept in the first part (in the order of the keys) that
    any of them is in, and dropped from the others, so that every unit lies in one part.
    """

    kind: ClassVar[str] = "partition"
    reads: ClassVar[type] = Table
    alone: ClassVar[bool] = True

    by: str
    keys: tuple[Any, ...] | None = field(default=None, converter=perhaps)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    whole_units: bool = False

    def label(self) -> str:
        """Return the column."""
        return f"partition by {self.by}"

    def detail(self) -> str:
        """Return whether units are kept whole."""
        return "each unit in one part" if self.whole_units else ""

    def domain(self, inputs: Sequence[Any]) -> Parts:
        """Return the parts, named by category or bin."""
        table: Table = inputs[0]
        declared = table.find(self.by)
        require(
            (self.keys is None) != (self.edges is None),
            f"column {self.by!r} declares no categories; pass keys=[...] or edges=[...]"
            if self.keys is None
            else "partition takes keys (of categories) or edges (of a numeric column), not both",
        )
        if self.edges is not None:
            keys: tuple[Any, ...] = bins(self.by, self.edges)
            numeric(self.by, declared)
        else:
            keys = Categories(self.keys or ()).values
            known(self.by, declared, keys)
        return Parts(evolve(table, size=None), keys, self.whole_units)

    def change(self, change: Change) -> Change:
        """Return the change; which part it is in, the accountant enumerates."""
        return change

    def index(self, columns: Columns) -> NDArray[np.int64]:
        """Return each row's part, -1 for none."""
        values = columns[self.by]
        if self.edges is not None:
            return bin_index(values, self.edges)
        return category_index(values, self.keys or ())

    def run(self, inputs: Sequence[Any], stream: Stream) -> tuple[Partition, Rows]:
        """Return the rows, gathered if units are kept whole."""
        rows = inputs[0].gather(self.index) if self.whole_units else inputs[0]
        return self, rows


@frozen
class Part(PartOperation):
    """One part of a partition."""

    kind: ClassVar[str] = "part"
    reads: ClassVar[type] = Parts
    alone: ClassVar[bool] = True

    index: int

    def label(self) -> str:
        """Return the part's number; `Pipeline` shows its key."""
        return f"part {self.index + 1}"

    def domain(self, inputs: Sequence[Any]) -> Table:
        """Return the table of the part."""
        parts: Parts = inputs[0]
        require(
            0 <= self.index < len(parts.keys),
            f"a partition of {len(parts.keys)} parts has no part {self.index}",
        )
        return parts.table

    def change(self, change: Change) -> Change:
        """Return the change inside the part, where a unit may lie or not."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return the rows of the part."""
        partition, rows = inputs[0]
        return rows.where(lambda columns: partition.index(columns) == self.index)  # type: ignore[no-any-return]


def category_index(values: NDArray[Any], keys: Sequence[Any]) -> NDArray[np.int64]:
    """Return the position of each value among ``keys``, -1 for a value that is none of them.

    Objects of other types than a key can have (lists, say) are none of them, whatever their
    own ideas of equality and hashing.
    """
    lookup = {key: i for i, key in enumerate(keys)}
    types = (str, int, float, bool)
    return np.array(
        [lookup.get(v, -1) if type(v) in types else -1 for v in values.tolist()], dtype=np.int64
    )


def bins(name: str, edges: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the bins between increasing edges, the last one closed.

    Raises
    ------
    DeclarationError
        If there are fewer than two edges, or they do not increase.
    """
    require(
        len(edges) >= 2
        and all(isinstance(e, int | float) and not isinstance(e, bool) for e in edges)
        and all(-1e300 < e < 1e300 for e in edges),
        f"edges of {name!r} must be at least two finite numbers, got {list(edges)!r}",
    )
    require(
        all(a < b for a, b in pairwise(edges)),
        f"edges of {name!r} must increase, got {list(edges)!r}",
    )
    last = len(edges) - 2
    return tuple(
        f"[{a:g}, {b:g}{']' if i == last else ')'}" for i, (a, b) in enumerate(pairwise(edges))
    )


def bin_index(values: NDArray[Any], edges: Sequence[float]) -> NDArray[np.int64]:
    """Return the bin of each value, -1 for values outside of all bins and for NaN."""
    values, cuts = numbers(values), np.asarray(edges, dtype=np.float64)
    index = np.searchsorted(cuts, values, side="right") - 1
    index = np.where(values == cuts[-1], len(cuts) - 2, index)
    with np.errstate(invalid="ignore"):
        outside = ~((values >= cuts[0]) & (values <= cuts[-1]))
    return np.where(outside, -1, index).astype(np.int64)
