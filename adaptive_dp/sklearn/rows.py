"""The rows of arrays: columns are views, so that many features cost no copies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data import MemoryRows, Reading, SchemaError, cells
from adaptive_dp.data.cells import read_column

UNIT = "unit"
"""The column of whom a row belongs to."""


def names(width: int) -> tuple[str, ...]:
    """Return the columns' names of p features."""
    return tuple(f"x{j}" for j in range(width))


@frozen(eq=False, repr=False)
class ArrayRows:
    """Features, targets and units that open as rows.

    Parameters
    ----------
    features
        Shape (n, p).
    targets
        By the name of their column, each of shape (n,).
    units
        Whose each row is, anything that identifies; None where each row is a unit.
    """

    features: NDArray[np.float64]
    targets: Mapping[str, NDArray[Any]]
    units: Any = None

    def __repr__(self) -> str:
        return "<private arrays>"

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows; those of nobody are dropped."""
        known = {name: self.features[:, j] for j, name in enumerate(names(self.features.shape[1]))}
        known.update(self.targets)
        missing = sorted(set(columns) - set(known))
        if missing:
            raise SchemaError(f"the arrays have no column {', '.join(missing)}")
        views = {name: known[name] for name in columns}
        count = len(self.features)
        if unit is None:
            return MemoryRows(views, np.arange(count, dtype=np.int64))
        whose = cells.unit_codes(read_column(self.units, UNIT, "value"))
        if len(whose) != count:
            raise SchemaError("units and features differ in length")
        kept = whose >= 0
        return MemoryRows({name: view[kept] for name, view in views.items()}, whose[kept])
