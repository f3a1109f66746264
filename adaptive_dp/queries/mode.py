"""The most frequent category, or bin, with its distance to another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import perhaps
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.stability import FOREVER, Choice
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Values, edges_of
from adaptive_dp.queries.histogram import Histogram
from adaptive_dp.queries.partition import bins
from adaptive_dp.queries.row_steps import counted, row_steps


@frozen
class Mode(Query):
    """The most frequent category, or bin; of equal ones the first. See `instability`."""

    kind: ClassVar[str] = "mode"
    reads: ClassVar[type] = Values
    gives: ClassVar[type] = Choice

    keys: tuple[Any, ...] | None = field(default=None, converter=perhaps)
    edges: tuple[float, ...] | None = field(default=None, converter=edges_of)
    exchange: bool = False

    def label(self) -> str:
        """Return the number of candidates."""
        return f"mode of {self._counts().dimension(None)} bins"  # type: ignore[arg-type]

    def domain(self, inputs: Sequence[Any]) -> Values:
        """Return the column's values; check the bins."""
        counted(self.kind, inputs[0])
        return self._counts().domain(inputs)

    def sensitivity(self, domain: Values, change: Change, norm: float) -> float:
        """Return `row_steps`."""
        return row_steps(self.kind, change, norm, self.exchange)

    def candidate(self, index: int) -> Any:
        """Return the category, or the bin as ``[low, high)``."""
        return self.keys[index] if self.keys is not None else bins("mode", self.edges or ())[index]

    def run(self, inputs: Sequence[Any], stream: Stream) -> Choice:
        """Return the choice with its distance."""
        return instability(self._counts().run(inputs, stream), self.exchange)

    def _counts(self) -> Histogram:
        return Histogram(self.keys, self.edges)


def instability(counts: NDArray[np.float64], exchange: bool) -> Choice:
    """Return the first of the largest counts, and how many steps it withstands.

    Another candidate j is chosen once it has more, or as many and stands before: once its deficit
    of g falls by ``g + 1`` for j behind, by g for j before. A row added or removed takes 1 from it;
    one exchanged takes 2, a row of the chosen that becomes one of j. The least such number of
    steps, less 1, is how many there are before one more may change the choice. That there always
    are rows to take is assumed, which can only make the distance smaller: it still moves by at
    most 1 a step, and is 0 at the edge.

    Examples
    --------
    >>> choice = instability(np.array([3.0, 9.0, 4.0]), exchange=False)
    >>> choice.index, choice.distance
    (1, 5)
    """
    chosen = int(np.argmax(counts))
    needed = counts[chosen] - counts + (np.arange(len(counts)) > chosen)
    others = np.delete(needed, chosen)
    if not len(others):
        return Choice(chosen, FOREVER)
    least = int(others.min())
    return Choice(chosen, max(0, (-(-least // 2) if exchange else least) - 1))
