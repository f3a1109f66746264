"""Poisson sampling: each unit enters by itself, with probability q."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from attrs import evolve, field, frozen

from adaptive_dp.data import Rows
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.errors import NeighborError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import SampleOperation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.domains import Table


@frozen
class Sample(SampleOperation):
    """A Poisson sample of the units; what is released from it is amplified.

    The amplification theorems hold where a unit is present or absent (add/remove,
    zero-out), so ``replace_one`` data sets are refused.
    """

    kind: ClassVar[str] = "sample"
    reads: ClassVar[type] = Table

    rate: float = field()

    @rate.validator
    def _probability(self, _: object, rate: float) -> None:
        number = isinstance(rate, int | float) and not isinstance(rate, bool)
        require(
            number and 0 < rate <= 1,
            f"sample's rate must be a probability above 0 and at most 1, got {rate!r}",
        )

    def label(self) -> str:
        """Return the rate."""
        return f"sample {self.rate:g}"

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the table, of which the size is no longer known."""
        if inputs[0].neighbors == "replace_one":
            raise NeighborError(
                f"sample: {inputs[0].name!r} has replace_one neighbours, for which Poisson "
                "amplification is not proven here; declare neighbors='add_remove' or 'zero_out'"
            )
        return evolve(inputs[0], size=None)

    def change(self, change: Change) -> Change:
        """Return the change of a unit that is in the sample."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> Rows:
        """Return a fresh sample."""
        return inputs[0].sample(self.rate, stream)  # type: ignore[no-any-return]
