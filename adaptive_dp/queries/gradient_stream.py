"""Sums of clipped gradients at parameters that are chosen later, for learners with their own noise.

A learner whose noise hangs together from round to round is one mechanism: it asks for the sum
of each batch at parameters that follow from what it has released of the batches before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples, grid
from adaptive_dp.data.examples import to_steps
from adaptive_dp.graph.adaptive_sums import AdaptiveSums
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.noise.stream import Stream
from adaptive_dp.problems import Loss, names
from adaptive_dp.queries.columns import Floats
from adaptive_dp.queries.domains import number
from adaptive_dp.queries.examples import ExamplesDomain
from adaptive_dp.queries.phases import cuts
from adaptive_dp.queries.row_gradients import LinearGradients, loss_of, trusted, written

FINE = 20
"""Sums are given in steps of at least 2^-21 of the bound, and at most 2^-20."""

MOST = 2**52
"""Sums are clamped to so many steps; it moves no two of them apart."""


@frozen(eq=False, repr=False)
class ClippedGradients(AdaptiveSums):
    """The rows' gradients, each scaled down to norm ``clip`` where it is longer."""

    examples: AnyExamples
    loss: Loss
    clip: float

    def __repr__(self) -> str:
        return "<private gradients>"

    @property
    def shape(self) -> tuple[int]:
        """The number of parameters."""
        return (self.loss.outputs * self.examples.width,)

    @property
    def step(self) -> float:
        """In what steps sums are counted."""
        return grid.step(self.clip, FINE)

    def split(self, parts: int, stream: Stream) -> list[ClippedGradients]:
        """Return batches of whole units, each in one of them by its own uniform draw."""
        batches = self.examples.split(cuts([1 / parts] * parts), stream)
        return [ClippedGradients(batch, self.loss, self.clip) for batch in batches]

    def at(self, parameters: Floats) -> NDArray[np.int64]:
        """Return the sum at parameters, shape (d,), rounded to whole steps."""
        steps, unit = to_steps(parameters.reshape(self.loss.outputs, self.examples.width))
        gradients = LinearGradients(self.examples, self.loss, steps, unit)
        exact, finer = gradients.clipped_sum(self.clip, relative=False)
        halvings = round(math.log2(self.step / finer))
        assert halvings > 0, "a row's steps are finer than the sum's"
        rounded = (exact.reshape(-1) + (1 << (halvings - 1))) >> halvings
        return np.asarray(np.minimum(np.maximum(rounded, -MOST), MOST), dtype=np.int64)


def _clip(value: Any) -> float:
    return number("a gradient's clip", value)


@frozen
class GradientStream(Query):
    """Sums of gradients clipped to ``clip``, at parameters that a mechanism chooses as it goes.

    What a unit moves is the sum of the one batch that it is in, whatever the parameters.
    """

    kind: ClassVar[str] = "gradient_stream"
    reads: ClassVar[type] = ExamplesDomain
    gives: ClassVar[type] = AdaptiveSums

    loss: str = field(converter=written)
    clip: float = field(default=1.0, converter=_clip)

    def label(self) -> str:
        """Return whose gradients they are."""
        return f"gradients of {self.loss.removesuffix('()')} clipped to {self.clip:g}"

    def assumes(self) -> str:
        """Return what a loss of somebody's own must keep."""
        return trusted(self.loss)

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples; refuse a loss that reads other labels."""
        loss_of(self.loss, inputs[0])
        require(
            1e-100 <= self.clip <= 1e100, f"a gradient's clip must be positive, got {self.clip!r}"
        )
        return inputs[0]  # type: ignore[no-any-return]

    def dimension(self, domain: ExamplesDomain) -> int:
        """Return the number of parameters."""
        return loss_of(self.loss, domain).outputs * domain.width

    def step(self, domain: ExamplesDomain) -> float:
        """Return the step in which sums are given."""
        return grid.step(self.clip, FINE)

    def sensitivity(self, domain: ExamplesDomain, change: Change, norm: float) -> float:
        """Return what a unit moves its batch's sum in l2: the bound for each of its rows.

        And what rounding the sum to steps adds: up to one in each coordinate.
        """
        require(
            norm == 2,
            "a gradient_stream is a sum in each round, which moves in l2: release it with "
            f"FollowTheLeader, whose norm is 2, got norm {norm!r}",
        )
        rounding = self.step(domain) * math.sqrt(self.dimension(domain))
        return (change.both * self.clip + rounding) * (1 + 1e-12)

    def run(self, inputs: Sequence[Any], stream: Stream) -> ClippedGradients:
        """Return the sums; nothing is computed yet."""
        return ClippedGradients(inputs[0], names.read_any(self.loss), self.clip)
