"""A subgraph that runs several times, each with the released result of the time before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

from attrs import field, frozen

from adaptive_dp.graph.convert import number, whole
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.handles import Handle, Released, path, public
from adaptive_dp.graph.operation import Colour, Operation, require
from adaptive_dp.graph.roles import SourceOperation
from adaptive_dp.noise.stream import Stream

T = TypeVar("T")


@frozen(eq=False)
class State(Operation):
    """What the body reads: the result of the round before."""

    kind: ClassVar[str] = "state"
    colour: ClassVar[Colour] = "released"

    def run(self, inputs: Sequence[Any], stream: Stream) -> Any:
        """Refuse: the executor binds the state in each round."""
        raise DeclarationError("the state of a repeat exists only inside of its body")


@frozen(eq=False)
class Repeat(Operation):
    """``times`` rounds of a body; the outer graph stays acyclic.

    Parameters
    ----------
    times
        A whole number of at least 1.
    state
        The handle that stands for the round before, in the body. Handles made after it
        are inside the body and run (and are paid for) in each round.
    result
        What a round returns.
    """

    kind: ClassVar[str] = "repeat"
    colour: ClassVar[Colour] = "released"
    random: ClassVar[bool] = True

    times: int = field(converter=number)
    state: Handle
    result: Handle

    @times.validator
    def _whole(self, _: object, times: int) -> None:
        require(
            whole(times) is not None and 1 <= times <= 10**9,
            f"repeat's times must be a whole number between 1 and 10^9, got {times!r}",
        )

    def label(self) -> str:
        """Return the number of rounds."""
        return f"repeat {self.times} times"

    def parameters(self) -> dict[str, Any]:
        """Return the number of rounds; the body is written on its own."""
        return {"times": self.times}

    def inside(self, handle: Handle) -> bool:
        """Whether a handle belongs to the body; a data set is the same in every round."""
        source = isinstance(handle.operation, SourceOperation)
        return not source and handle.serial >= self.state.serial


def repeat(
    body: Callable[[Released[T]], Released[T]], times: int, *, start: Released[T] | Any
) -> Released[T]:
    """Return the result of ``times`` rounds of ``body``.

    Parameters
    ----------
    body
        Takes the handle of the round before and returns this round's. It is called once, to
        learn the subgraph; releases and samples made in it are fresh in every round, handles
        made outside of it are shared by all rounds.
    times
        How many rounds.
    start
        What the first round reads: a released handle, or a constant.

    Examples
    --------
    A noisy binary search for a median, with eight noisy counts::

        def halve(bounds):
            low = people.filter(people["age"] <= dp.post(middle, bounds)).count()
            return dp.post(narrow, bounds, low.release(dp.Laplace(scale=4)), total)

        median = dp.repeat(halve, 8, start=[0.0, 100.0])
    """
    require(
        callable(body),
        f"repeat needs a function of the round before, such as lambda state: ..., got {body!r}",
    )
    initial = start if isinstance(start, Handle) else public(start)
    if initial.colour == "private":
        raise LeakError(f"repeat: the start is private: {path(initial)}; release it first")
    state: Released[T] = Released(State())
    Repeat(times, state, state)  # refuses times before the body is built
    result = body(state)
    if not isinstance(result, Handle):
        raise DeclarationError(
            f"repeat: the body must return a released handle, got {type(result).__name__}"
        )
    if result.colour == "private":
        raise LeakError(
            f"repeat: the body returns a private value: {path(result)}; release it first"
        )
    operation = Repeat(times, state, result)
    return Released(operation, (initial, *frontier(operation)))


def frontier(operation: Repeat) -> tuple[Handle, ...]:
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
            found[handle.serial] = handle
    return tuple(found[serial] for serial in sorted(found))
