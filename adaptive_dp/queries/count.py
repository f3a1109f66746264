"""How many rows there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Contributions, Query
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Table


@frozen
class Count(Query):
    """The number of rows.

    A unit with at most r rows adds between 0 and r to it. So it moves by at most r, and by
    nothing where each unit is known to have exactly r rows and is only exchanged.
    """

    kind: ClassVar[str] = "count"
    exact: ClassVar[bool] = True
    reads: ClassVar[type] = Table

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        """Return r, or 0 for the exchange of a fixed number of rows (any norm)."""
        return 0.0 if change.replaced and change.fixed else float(change.rows)

    def step(self, domain: Any) -> float:
        """Return 1."""
        return 1.0

    def contributions(self, value: Any) -> Contributions:
        """Return 1 for each row."""
        return value.units, np.ones(len(value.units))

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return the count."""
        total = inputs[0].total(
            lambda columns: np.array([len(next(iter(columns.values()), ()))], dtype=np.int64)
        )
        return float(total[0])
