"""Given data that many runs of an audit read, each in turn: from a file once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import define, field

from adaptive_dp.data import MemoryRows, Reading, Rows, open_rows, read_rows


@define(eq=False, repr=False)
class Given:
    """Data that are opened once: rows in memory are kept, and shared by all who read them.

    Files that a plan reads in batches are opened once too, and read anew by each pass over them.

    Parameters
    ----------
    data
        What a data set reads.
    """

    data: Any
    _found: dict[Any, Rows] = field(factory=dict, init=False)

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> Rows:
        """Return the rows as a data set reads them; nothing ever writes to their columns."""
        key = (tuple(columns.items()), unit)
        if key not in self._found:
            self._found[key] = open_rows(self.data, columns, unit)
        return self._found[key]

    def in_memory(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows in memory; those that a plan reads in batches are not kept there."""
        found = self.open_rows(columns, unit)
        return found if isinstance(found, MemoryRows) else read_rows(self.data, columns, unit)
