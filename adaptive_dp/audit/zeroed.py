"""Data in which one unit counts as zero, though the number of units is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen

from adaptive_dp.data import MemoryRows, Reading, read_rows


@frozen(eq=False, repr=False)
class Counted(MemoryRows):
    """Rows among a declared number of units, of which one may have none."""

    declared: int

    def size(self) -> int:
        """Return the declared number of units."""
        return self.declared


@frozen
class Zeroed:
    """Rows of all units but the zeroed one, which still counts among the declared number.

    Parameters
    ----------
    data
        The columns of the others.
    size
        The declared number of units.
    """

    data: Mapping[str, Any]
    size: int

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows as a data set reads them."""
        found = read_rows(self.data, columns, unit)
        return Counted(found.columns, found.units, self.size)
