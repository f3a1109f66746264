"""A subgraph that runs several times, each with the released result of the time before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, TypeVarTuple

from attrs import field, frozen

from accountants import Repeated, Term
from adaptive_dp.graph.convert import number, whole
from adaptive_dp.graph.errors import DeclarationError, LeakError
from adaptive_dp.graph.handles import Handle, Released, path, public
from adaptive_dp.graph.loop import (
    Loop,
    State,
    fresh_in_each_round,
    frontier,
    own_handles,
)
from adaptive_dp.graph.operation import require

T = TypeVar("T")
Own = TypeVarTuple("Own")


@frozen(eq=False)
class Repeat(Loop):
    """``times`` rounds of a body, each with the result of the round before.

    Parameters
    ----------
    times
        A whole number of at least 1.
    """

    kind: ClassVar[str] = "repeat"

    times: int = field(converter=number)

    @times.validator
    def _whole(self, _: object, times: int) -> None:
        require(
            whole(times) is not None and 1 <= times <= 10**9,
            f"repeat's times must be a whole number between 1 and 10^9, got {times!r}",
        )

    def label(self) -> str:
        """Return the number of rounds."""
        return f"repeat {self.times} times"

    def rounds(self) -> int:
        """Return the number of rounds."""
        return self.times

    def term(self, body: Term) -> Term:
        """Return the body, so many times."""
        return Repeated(body, self.times)


def repeat(
    body: Callable[[Released[T], *Own], Released[T]],
    times: int,
    *tables: *Own,
    start: Released[T] | Any,
) -> Released[T]:
    """Return the result of ``times`` rounds of ``body``.

    Parameters
    ----------
    body
        Takes the handle of the round before, and the body's own handle of each of ``tables``, and
        returns this round's. It is called once, to learn the subgraph. What depends on its
        arguments is fresh in every round; all else is shared by all rounds.
    times
        How many rounds.
    tables
        Private tables, columns or queries: releases and samples that the body makes of its own
        handles of them are fresh in every round, whether or not they read the round before.
    start
        What the first round reads: a released handle, or a constant.

    Raises
    ------
    LeakError
        If the start, or what the body returns, is private.
    DeclarationError
        If the body makes a release or a sample that depends on none of its arguments: all rounds
        would share it. Make it from the body's own table, or outside of the body.

    Examples
    --------
    A noisy binary search for a median, with eight noisy counts:

    >>> import adaptive_dp as dp
    >>> def middle(bounds):
    ...     return sum(bounds) / 2
    >>> def narrow(bounds, below, total):
    ...     low, high = bounds
    ...     return [middle(bounds), high] if below < total / 2 else [low, middle(bounds)]
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> total = people.count().release(dp.Laplace(scale=4))
    >>> def halve(bounds):
    ...     below = people.filter(people["age"] <= dp.post(middle, bounds)).count()
    ...     return dp.post(narrow, bounds, below.release(dp.Laplace(scale=4)), total)
    >>> plan = dp.Pipeline(median=dp.repeat(halve, 8, start=[0.0, 100.0]))
    >>> plan.certify()
    <certificate epsilon=2.25 delta=0 by basic>
    >>> plan.simulate(seed=1, people={"age": [20] * 400 + [42] * 300 + [70] * 400})["median"]
    [41.796875, 42.1875]

    Five noisy counts, each with noise of its own:

    >>> def append(counts, count):
    ...     return [*counts, count]
    >>> def again(counts, people):
    ...     return dp.post(append, counts, people.count().release(dp.Laplace(scale=4)))
    >>> counts = dp.repeat(again, 5, people, start=[])
    >>> dp.Pipeline(counts=counts).certify()
    <certificate epsilon=1.25 delta=0 by basic>
    """
    require(
        callable(body),
        f"repeat needs a function of the round before, such as lambda state: ..., got {body!r}",
    )
    initial = start if isinstance(start, Handle) else public(start)
    if initial.color == "private":
        raise LeakError(f"repeat: the start is private: {path(initial)}; release it first")
    state: Released[T] = Released(State())
    Repeat(times, state=state, result=state)  # refuses times before the body is built
    result = body(state, *own_handles("repeat", tables, state))
    if not isinstance(result, Handle):
        raise DeclarationError(
            f"repeat: the body must return a released handle, got {type(result).__name__}"
        )
    if result.color == "private":
        raise LeakError(
            f"repeat: the body returns a private value: {path(result)}; release it first"
        )
    fresh_in_each_round("repeat", state, result)
    operation = Repeat(times, state=state, result=result)
    return Released(operation, (initial, *frontier(operation)))
