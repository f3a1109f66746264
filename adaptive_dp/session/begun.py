"""Steps that are paid for and were interrupted: they go on where they stood, at no more cost.

A spend pays for one draw of each of a step's mechanisms. What the step has computed, drawn values
too, stays here, where nobody sees it, and is never computed again: whoever goes on gets those very
draws. Only a node that was under way is begun anew. If it draws at random (a mechanism, a sample, a
loop of them), its first draw may have had to do with the interruption: an own mechanism, say, may
fail until its noise is small. The second would then be a second release, and must be paid for. So
such a step is not kept, and its spend is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from attrs import field, frozen

from adaptive_dp.graph.run import Run
from adaptive_dp.graph.structure import Node, Structure


@frozen(eq=False, repr=False)
class Step:
    """What computes a step.

    Parameters
    ----------
    structure
        Of its plan.
    keys
        The identity of each node.
    wanted
        Names of the nodes to compute.
    new
        Those of them that are paid for.
    end
        The node that is asked for.
    run
        The values so far.
    """

    structure: Structure
    keys: Mapping[str, str]
    wanted: Set[str]
    new: Sequence[Node]
    end: Node
    run: Run

    def compute(self) -> None:
        """Compute what is not there yet."""
        for node in self._nodes():
            self.run.value(node)

    @property
    def continues(self) -> bool:
        """Whether the step may go on: what was under way draws nothing."""
        left = (
            n for n in self._nodes() if not {n.name} & (self.run.opened | self.run.secrets).keys()
        )
        node = next(left, None)
        return node is not None and not node.handle.operation.random

    def _nodes(self) -> list[Node]:
        return [n for n in self.structure if n.name in self.wanted and not n.loops]


@frozen(eq=False, repr=False)
class Begun:
    """Steps that were interrupted, with the numbers of their spends."""

    _steps: dict[Any, tuple[Step, int]] = field(factory=dict, init=False)

    def __contains__(self, key: Any) -> bool:
        return key in self._steps

    def keep(self, key: Any, step: Step, number: int) -> None:
        """Keep a step that is not done, if it may go on."""
        if step.continues:
            self._steps[key] = step, number

    def take(self, key: Any) -> tuple[Step, int]:
        """Return a step, which is not kept any longer."""
        return self._steps.pop(key)

    def clear(self) -> None:
        """Let go of everything."""
        self._steps.clear()


def asked(
    keys: Mapping[str, str], new: Sequence[Node], end: Node, part: Any, again: bool
) -> tuple[Any, ...]:
    """Return what two requests have in common that ask for the same, to be paid by the same."""
    return tuple(sorted(keys[n.name] for n in new)), keys[end.name], part, again
