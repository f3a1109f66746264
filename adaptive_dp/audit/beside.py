"""A unit of a gallery put among the rows of given data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen

from adaptive_dp.audit.given import Given
from adaptive_dp.audit.pairs import DataPair, Own
from adaptive_dp.audit.zeroed import Counted
from adaptive_dp.data import MemoryRows, Reading, read_rows


@frozen(eq=False, repr=False)
class Beside:
    """Given data with the rows of one more unit; where the number of units is public, of one else.

    Parameters
    ----------
    data
        What the data set reads.
    own
        The unit's rows.
    size
        The public number of units: the first unit of the data makes room then.
    """

    data: Given
    own: Own
    size: int | None

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        found = self.data.in_memory(columns, unit)
        if self.size is not None and len(found.units):
            found = found.take(found.units != found.units[0])
        if self.own and columns:
            more = {name: [row[name] for row in self.own] for name in columns}
            added = read_rows(more, columns, None).columns
        else:
            added = {name: column[:0] for name, column in found.columns.items()}
            if self.own:  # a table without columns has rows to count
                added = {name: np.zeros(len(self.own), dtype=np.int64) for name in found.columns}
        fresh = int(found.units.max(initial=-1)) + 1
        units = np.concatenate([found.units, np.full(len(self.own), fresh, dtype=np.int64)])
        joined = {name: np.concatenate([c, added[name]]) for name, c in found.columns.items()}
        if self.size is not None and not self.own:
            return Counted(joined, units, self.size)
        return MemoryRows(joined, units)


def beside(pair: DataPair, data: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both data sets of a pair, its unit among given data instead of the pair's others."""
    source = pair.source
    one, two = (
        {**data, source.name: Beside(data[source.name], own, source.size)}
        for own in (pair.before, pair.after)
    )
    return one, two
