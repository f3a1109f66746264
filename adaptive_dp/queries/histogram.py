"""How many rows fall in each category or bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from accountants.rounding import up
from adaptive_dp.data import Columns
from adaptive_dp.data.rows import Integers
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import perhaps
from adaptive_dp.graph.operation import Contributions, Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats, Selected
from adaptive_dp.queries.domains import Categories, Values, edges_of, known, numeric
from adaptive_dp.queries.partition import bin_index, bins, category_index


@frozen
class Histogram(Query):
    """Counts by category, or by bin of a numeric column; a row is in one bin or in none.

    A unit with up to r rows adds to it a vector of whole numbers that sum to at most r. Where
    it appears: length r in every norm. Where it is exchanged, all rows move from one bin to
    another: 2r in l1, sqrt(2) r in l2, r in the maximum norm.
    """

    kind: ClassVar[str] = "histogram"
    exact: ClassVar[bool] = True
    reads: ClassVar[type] = Values

    keys: tuple[Any, ...] | None = field(default=None, converter=perhaps)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)

    def label(self) -> str:
        """Return the number of bins."""
        count = len(self.edges) - 1 if self.edges else len(self.keys or ())
        return f"histogram of {count} bins"

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; check the bins."""
        values: Values = inputs[0]
        require(
            (self.keys is None) != (self.edges is None),
            f"a histogram of {values.of!r} needs categories or edges=[...], one of the two",
        )
        if self.edges is not None:
            bins(values.of, self.edges)
            numeric(values.of, values.column)
        else:
            known(values.of, values.column, Categories(self.keys or ()).values)
        return values

    def dimension(self, domain: Values) -> int:
        """Return the number of bins."""
        return len(self.edges) - 1 if self.edges is not None else len(self.keys or ())

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return the bound of the class docstring (with a rows against b: a + b, or their length).

        One bin counts rows up to r both ways. Even if the bin spans the declared bounds, an
        exchanged row may leave it: data that is out of bounds, or NaN, falls in no bin.
        """
        rows, less = float(change.rows), float(change.both - change.rows)
        if not change.replaced or self.dimension(domain) == 1:
            return rows
        lengths: dict[float, float] = {1: rows + less, 2: up(math.hypot(rows, less))}
        return lengths.get(norm, rows)

    def step(self, domain: Values) -> float:
        """Return 1."""
        return 1.0

    def span(self, domain: Values, change: Change) -> float:
        """Return r where a unit appears: all counts grow; a + b for a rows against b."""
        return float(change.both if change.replaced else change.rows)

    def candidate(self, index: int) -> Any:
        """Return the category, or the bin as a text such as ``[0, 10)``."""
        keys = bins("the column", self.edges) if self.edges is not None else self.keys or ()
        return keys[index]

    def contributions(self, value: Selected) -> Contributions:
        """Return 1 for a row that is in a bin."""
        return value.rows.units, value.rows.values(
            lambda columns: (self._index(value.of(columns)) >= 0).astype(np.float64)
        )

    def run(self, inputs: Sequence[Any], stream: Stream) -> Floats:
        """Return the counts, shape (bins,)."""
        selected = inputs[0]
        width = len(self.edges) - 1 if self.edges is not None else len(self.keys or ())

        def block(columns: Columns) -> Integers:
            index = self._index(selected.of(columns))
            return np.bincount(index[index >= 0], minlength=width).astype(np.int64)

        return np.array([float(v) for v in selected.rows.total(block)])

    def _index(self, values: NDArray[Any]) -> Integers:
        """Return each value's bin, -1 for none."""
        if self.edges is not None:
            return bin_index(values, self.edges)
        return category_index(values, self.keys or ())
