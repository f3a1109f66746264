"""A subgraph that runs several times: what repeats and selections have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from attrs import field, frozen

from accountants import Term
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.operation import Color, Operation
from adaptive_dp.graph.roles import PublicSource, SourceOperation
from adaptive_dp.noise.stream import Stream


@frozen(eq=False)
class State(Operation):
    """What the body reads in each round: a repeat's round before, a selection's candidate."""

    kind: ClassVar[str] = "state"
    color: ClassVar[Color] = "released"

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds the state in each round."""
        raise DeclarationError("the state of a loop exists only inside of its body")


@frozen(eq=False)
class Loop(Operation):
    """Rounds of a body; the outer graph stays acyclic.

    Parameters
    ----------
    state
        The handle that changes from round to round, in the body. Handles made after it
        are inside the body and run (and are paid for) in each round.
    result
        What a round returns.
    """

    color: ClassVar[Color] = "released"
    random: ClassVar[bool] = True

    state: Handle = field(kw_only=True)
    result: Handle = field(kw_only=True)

    def inside(self, handle: Handle) -> bool:
        """Whether a handle belongs to the body; a data set is the same in every round."""
        source = isinstance(handle.operation, SourceOperation | PublicSource)
        return not source and handle.serial >= self.state.serial

    def parameters(self) -> dict[str, Any]:
        """Return the operation's own parameters; the body is written on its own."""
        found = super().parameters()
        return {name: v for name, v in found.items() if name not in ("state", "result")}

    def rounds(self) -> int:
        """Return how many rounds there are, or may be expected."""
        raise NotImplementedError(f"{type(self).__name__} must define rounds")

    def term(self, body: Term) -> Term:
        """Return what the rounds cost, from what one costs."""
        raise NotImplementedError(f"{type(self).__name__} must define term")


def ancestors(*roots: Handle, bodies: bool = False) -> Iterator[Handle]:
    """Yield handles and all that they are computed from; with ``bodies`` what loops do, too."""
    seen: set[int] = set()  # else a graph whose ways meet again and again would take for ever
    queue = list(roots)
    while queue:
        handle = queue.pop()
        if id(handle) not in seen:
            seen.add(id(handle))
            yield handle
            queue.extend(handle.inputs)
            if bodies and isinstance(handle.operation, Loop):
                queue.append(handle.operation.result)


def frontier(operation: Loop) -> tuple[Handle, ...]:
    """Return the handles from outside that the body reads, in order of creation."""
    found: dict[int, Handle] = {}
    seen: set[int] = set()
    queue = [operation.result]
    while queue:
        handle = queue.pop()
        if id(handle) in seen or handle is operation.state:
            continue
        seen.add(id(handle))
        if operation.inside(handle):
            queue.extend(handle.inputs)
        else:
            found[id(handle)] = handle  # a handle and its calibrated copy share a serial
    return tuple(sorted(found.values(), key=lambda handle: handle.serial))
