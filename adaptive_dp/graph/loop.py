"""A subgraph that runs several times: what repeats and selections have in common.

A handle is inside of a loop exactly if it depends on the loop's state, through its inputs; an inner
loop through its start and through what its body reads. So scope follows from the graph alone: when
a handle was made does not matter. What shall be fresh in each round without reading the state is
made from the body's own handles (`in_each_round`), which depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import attrs
from attrs import field, frozen

from accountants import Term
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.operation import Color, Operation, Query
from adaptive_dp.graph.traversal import upward
from adaptive_dp.noise.stream import Stream

H = TypeVar("H", bound=Handle)


@frozen(eq=False)
class State(Operation):
    """What the body reads in each round: a repeat's round before, a selection's candidate."""

    kind: ClassVar[str] = "state"
    color: ClassVar[Color] = "released"

    def states(self, handle: Handle) -> frozenset[Handle]:
        """Return the state itself."""
        return frozenset((handle,))

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds the state in each round."""
        raise DeclarationError("the state of a loop exists only inside of its body")


@frozen
class RoundInput(Operation):
    """A private value as a loop's body reads it: its first input, unchanged.

    The second input is the loop's state, on which all depends that is computed from it. It is an
    alias, no node: digests, costs, drawings and documents know its first input alone.
    """

    kind: ClassVar[str] = "round input"
    alias: ClassVar[bool] = True
    alone: ClassVar[bool] = True
    beside: ClassVar[int] = 1

    def domain(self, inputs: Sequence[Any]) -> Any:
        """Return the domain of the value."""
        return inputs[0]

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Return the value."""
        return inputs[0]


@frozen(eq=False)
class Loop(Operation):
    """Rounds of a body; the outer graph stays acyclic.

    Parameters
    ----------
    state
        The handle that changes from round to round, in the body. Handles that depend on it are
        inside the body and run (and are paid for) in each round.
    result
        What a round returns.
    """

    color: ClassVar[Color] = "released"
    random: ClassVar[bool] = True

    state: Handle = field(kw_only=True)
    result: Handle = field(kw_only=True)

    def states(self, handle: Handle) -> frozenset[Handle]:
        """Return the states of other loops on which the loop depends.

        The body's are among them: one that no loop around binds shows that a handle was read from
        outside of its body, which a plan refuses.
        """
        return super().states(handle) | (self.result.states - {self.state})

    def body(self) -> tuple[Handle, Handle]:
        """Return the state and the result."""
        return self.state, self.result

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


def in_each_round(handle: H, state: Handle) -> H:
    """Return a private handle as the body of a loop reads it, which depends on the loop's state.

    Of a query it is the query's input, so that the query can be released.
    """
    if isinstance(handle.operation, Query):
        asked, *beside = handle.inputs
        return attrs.evolve(handle, inputs=(in_each_round(asked, state), *beside))
    return attrs.evolve(handle, operation=RoundInput(), inputs=(handle, state))


def own_handles(kind: str, handles: Sequence[Any], state: Handle) -> list[Any]:
    """Return the body's own handles of those that a loop was given.

    Raises
    ------
    DeclarationError
        If one of them is not private.
    """
    for each in handles:
        if not isinstance(each, Handle) or each.color != "private":
            raise DeclarationError(
                f"{kind}: the body's own handles are of private tables, columns or queries, got "
                f"{each!r}; released values and constants can be read as they are"
            )
    return [in_each_round(each, state) for each in handles]


def fresh_in_each_round(kind: str, state: Handle, result: Handle) -> None:
    """Refuse a body that makes a release or a sample which is not inside of the loop.

    It would be drawn once and shared by all rounds, and whoever writes it in the body expects fresh
    noise in each. That it was written there is told by when it was made; no scope follows from it.

    Raises
    ------
    DeclarationError
        With the handle.
    """

    def before(handle: Handle) -> tuple[Handle, ...]:
        made = state in handle.states or handle.serial > state.serial
        return handle.inputs if made else ()  # above what is older all is older

    for handle in upward([result], before):
        outside = state not in handle.states
        if outside and handle.operation.random and handle.serial > state.serial:
            raise DeclarationError(
                f"{kind}: the body makes {handle!r}, which depends on nothing that changes from "
                "round to round, so that all rounds would share it. For a fresh one in each, give "
                f"{kind} the table and make it from the body's own handle of it: "
                "dp.repeat(lambda state, people: ..., times, people, start=...); to share it, make "
                "it outside of the body"
            )


def frontier(operation: Loop) -> tuple[Handle, ...]:
    """Return the handles from outside that the body reads, in the order in which it reads them."""
    state = operation.state
    found = upward([operation.result], lambda h: h.inputs if state in h.states else ())
    return tuple(handle for handle in found if state not in handle.states)
