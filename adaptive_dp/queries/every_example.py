"""Examples themselves, for mechanisms that know what a row can do to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, frozen

from adaptive_dp.data import Examples
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.examples import ExamplesDomain


@frozen
class EveryExample(Query):
    """The examples, or one class against the rest.

    Parameters
    ----------
    against
        A class, whose label becomes 1 and all others -1; None to leave labels as they are.
    """

    kind: ClassVar[str] = "every_example"
    reads: ClassVar[type] = ExamplesDomain
    gives: ClassVar[type] = Examples

    against: int | None = None

    def label(self) -> str:
        """Return whether one class stands against the rest."""
        return "examples" if self.against is None else f"class {self.against} against the rest"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the input's, with signs for labels where one class is against the rest."""
        found: ExamplesDomain = inputs[0]
        if self.against is None:
            return found
        require(
            found.labels == "class" and 0 <= self.against < found.classes,
            f"{self.against!r} is none of the classes 0 to {found.classes - 1} of the examples",
        )
        return evolve(found, labels="sign")

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return the number of rows that come or go; refuse any norm but 0."""
        require(
            norm == 0,
            "examples say how many rows change, not how far they move: release them with "
            f"PerturbedObjective, whose norm is 0, got norm {norm!r}",
        )
        return float(change.both)

    def span(self, domain: ExamplesDomain, change: Change) -> float:
        """Return the most of these rows that are in either data set alone."""
        return float(change.rows)

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of features."""
        return domain.width

    def run(self, inputs: Sequence[Any], stream: Stream) -> Examples:
        """Return the examples, all of them here: mechanisms look at each."""
        found: Examples = inputs[0].in_memory()
        if self.against is None:
            return found
        return evolve(found, labels=np.where(found.labels == self.against, 1.0, -1.0))
