"""Disjoint parts of examples by chance: parallel composition for learning in phases.

Each unit goes into one part by its own draw, from a law that no data touches, so that nobody's
part hangs on anyone else's presence.

Let D and D' be neighbours that differ in the unit u. The parts A of the other units have the same
law under D and D', and so has u's part i, independent of them. Given A and i, the parts of D and D'
are equal but for part i, where they differ in u: what reads other parts has privacy loss 0, what
reads part i costs what it costs for that change. Whoever sees (A, i) beside the releases thus
tells D from D' no better than in the worst of the *worlds* i; the releases alone are
post-processing of that. Under replace_one u keeps its part, so that it is exchanged within one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from adaptive_dp.data import AnyExamples
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.convert import anything, number
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.roles import PartitionOperation, PartOperation
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries.examples import ExamplesDomain


def drawn(stream: Stream, shares: Sequence[float], count: int) -> NDArray[np.int64]:
    """Return for each of ``count`` units the part of its own independent draw.

    Part i has probability ``shares[i]`` to 2^-50; the last one has all that is left.
    """
    words = stream.words(count)
    found = np.searchsorted(np.array(cuts(shares), dtype=np.uint64), words, side="right")
    return found.astype(np.int64)


def cuts(shares: Sequence[float]) -> list[int]:
    """Return where 64-bit words are cut into intervals of these probabilities."""
    return [min(2**64 - 1, int(total * 2.0**64)) for total in accumulate(shares[:-1])]


@frozen
class PhasesDomain:
    """Examples in parts, each unit in one of them."""

    keys: tuple[int, ...]
    examples: ExamplesDomain
    whole_units: ClassVar[bool] = True


def _shares(value: Any) -> tuple[Any, ...]:
    return tuple(number(v) for v in anything(value))


@frozen
class Phases(PartitionOperation):
    """Each unit of examples in one of several parts, by its own draw; see the module.

    Parameters
    ----------
    shares
        The probability of each part, positive; they add up to 1.
    """

    kind: ClassVar[str] = "phases"
    reads: ClassVar[type] = ExamplesDomain
    random: ClassVar[bool] = True
    by = "phase"

    shares: tuple[float, ...] = field(converter=_shares)

    def label(self) -> str:
        """Return the number of parts."""
        return f"{len(self.shares)} phases"

    def detail(self) -> str:
        """Return the shares."""
        return ", ".join(f"{share:.3g}" for share in self.shares)

    def domain(self, inputs: Sequence[Any]) -> PhasesDomain:
        """Return the parts, numbered from 1; of none the size is known."""
        plain = all(isinstance(s, int | float) and not isinstance(s, bool) for s in self.shares)
        require(
            plain and len(self.shares) >= 1 and all(2.0**-40 <= s <= 1 for s in self.shares),
            f"phases need shares of at least 2^-40, got {list(self.shares)!r}",
        )
        require(
            abs(math.fsum(self.shares) - 1) < 1e-9,
            f"the shares of phases must add up to 1, got {list(self.shares)!r}",
        )
        found: ExamplesDomain = inputs[0]
        part = evolve(found, table=evolve(found.table, size=None))
        return PhasesDomain(tuple(range(1, len(self.shares) + 1)), part)

    def change(self, change: Change) -> Change:
        """Return the change; which part it is in, the accountant enumerates."""
        return change

    def run(self, inputs: Sequence[Any], stream: Stream) -> list[AnyExamples]:
        """Return the parts."""
        examples: AnyExamples = inputs[0]
        return list(examples.split(cuts(self.shares), stream))


@frozen
class Phase(PartOperation):
    """One of the phases."""

    kind: ClassVar[str] = "phase"
    reads: ClassVar[type] = PhasesDomain

    index: int

    def label(self) -> str:
        """Return the phase's number."""
        return f"phase {self.index + 1}"

    def domain(self, inputs: Sequence[Any]) -> ExamplesDomain:
        """Return the examples of the phase."""
        phases: PhasesDomain = inputs[0]
        require(
            0 <= self.index < len(phases.keys),
            f"{len(phases.keys)} phases have no phase of index {self.index}",
        )
        return phases.examples

    def change(self, change: Change) -> Change:
        """Return the change inside the phase, where a unit may lie or not."""
        return evolve(change, fixed=False)

    def run(self, inputs: Sequence[Any], stream: Stream) -> AnyExamples:
        """Return the examples of the phase."""
        parts: list[AnyExamples] = inputs[0]
        return parts[self.index]
