"""A user's own function of a column, with its own local sensitivity at every distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from attrs import field, frozen

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.stability import Stability
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import Interval, Values, interval
from adaptive_dp.queries.order import ordered
from adaptive_dp.queries.row_steps import counted, row_steps
from adaptive_dp.queries.sum import bounded


@frozen(repr=False)
class Own(Stability):
    """A number and its local sensitivities, as functions that a user wrote say.

    What they return is brought into the declared range: a value outside of it, or none at all,
    counts as the nearest end, or as the lower one; a local sensitivity that is none counts as the
    whole width, and so does whatever they raise.
    """

    values: Floats
    lower: float
    upper: float
    function: Callable[[Floats], float]
    own_local: Callable[[Floats, int], float]

    def __repr__(self) -> str:
        return "<private values>"

    @property
    def value(self) -> float:
        """The function's value, in the range."""
        found = _number(lambda: self.function(self.values.copy()))
        return self.lower if math.isnan(found) else min(self.upper, max(self.lower, found))

    @property
    def last(self) -> int:
        """Two beyond the number of rows: from there on the local sensitivity is the whole width.

        It moves by at most 1 where a row is added or removed. If it moved by more, the width would
        break the law ``local_k(x) <= local_{k+1}(x')``, however true the functions are.
        """
        return len(self.values) + 2

    def local(self, distance: int) -> float:
        """Return the local sensitivity at a distance, at most the width of the range."""
        wide = self.upper - self.lower
        if distance >= self.last:
            return wide
        found = _number(lambda: self.own_local(self.values.copy(), int(distance)))
        return wide if not found >= 0 else min(wide, found)


def _number(call: Callable[[], Any]) -> float:
    """Return what a function returns as a float; NaN for whatever is none, or is raised.

    That a function failed on private data would tell of them.
    """
    try:
        return float(call())
    except Exception:
        return math.nan


@frozen
class Instance(Query):
    """A user's own function of a column's values in ascending order; see `Own`."""

    kind: ClassVar[str] = "instance"
    reads: ClassVar[type] = Values
    gives: ClassVar[type] = Own
    assumption: ClassVar[str] = (
        "The local sensitivities of the plan's own functions (instance queries) are exact at every "
        "distance, or bounds that grow with it and are at most a neighbour's one step farther."
    )

    bounds: Interval = field(converter=interval)
    range: Interval = field(converter=interval)
    function: Function
    local: Function
    exchange: bool = False

    def label(self) -> str:
        """Return the function's short name."""
        label = self.function.label
        return "own function" if label == "function" else label

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; refuse a column without bounds, or zeroed-out rows."""
        bounded(inputs[0])
        counted(self.kind, inputs[0])
        return inputs[0]  # type: ignore[no-any-return]

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`."""
        return row_steps(self.kind, change, norm, self.exchange)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Own:
        """Return the sorted values with the functions."""
        return Own(
            ordered(inputs[0], self.bounds),
            self.range.lower,
            self.range.upper,
            self.function.resolve(),
            self.local.resolve(),
        )
