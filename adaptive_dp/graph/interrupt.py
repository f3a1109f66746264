"""What is left of a run that was interrupted: what was released before, and what it cost."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.repeat import Repeat
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Path
from adaptive_dp.graph.traversal import folded, rebuilt

if TYPE_CHECKING:
    from adaptive_dp.graph.run import Result


class Interrupted(KeyboardInterrupt):
    """A run was interrupted; it has released what `result` holds, and no more.

    Attributes
    ----------
    result
        The outputs that could be computed: of a repeat that was under way, after its last complete
        round. Its certificate is of the plan with that many rounds. None where nothing was there.
        It holds if when to stop was not chosen by what was released: if functions of the plan
        showed released values on the way, or stopped the run themselves, the certificate of the
        whole plan is what covers it.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> rounds = iter(["first", "second", "third"])
    >>> def add(total, count):
    ...     if next(rounds, "") == "third":
    ...         raise KeyboardInterrupt  # stands for Ctrl-C
    ...     return total + count
    >>> people = dp.dataset("people", columns={})
    >>> def count(total, people):
    ...     return dp.post(add, total, people.count().release(dp.Laplace(scale=4)))
    >>> plan = dp.Pipeline(total=dp.repeat(count, 10, people, start=0.0))
    >>> plan.certify()
    <certificate epsilon=2.5 delta=0 by basic>
    >>> try:
    ...     plan.simulate(seed=1, people={"id": [1, 2, 3]})
    ... except dp.Interrupted as stopped:
    ...     stopped.result.certificate
    <certificate epsilon=0.5 delta=0 by basic>
    """

    def __init__(self, result: Result | None) -> None:
        super().__init__()
        self.result = result


def shortened(
    outputs: tuple[tuple[Path, Handle], ...],
    made: Container[int],
    rounds: Mapping[int, int],
) -> tuple[list[tuple[Path, Handle]], dict[int, int]]:
    """Return the outputs that follow from what was released, with repeats cut short.

    Handles are told apart by their identity.

    Parameters
    ----------
    outputs
        Of the plan.
    made
        The identities of the handles of releases and loops that are complete.
    rounds
        How many rounds of a repeat are complete, by its handle's identity.

    Returns
    -------
    outputs
        Those that can be computed.
    cut
        By the identity of a repeat that was cut short, that of the one it was.
    """

    def before(handle: Handle) -> tuple[Handle, ...]:
        closed = id(handle) in made or handle.color == "private"
        return () if closed else handle.inputs

    def make(handle: Handle, inputs: list[Handle | None]) -> Handle | None:
        closed = id(handle) in made or handle.color == "private"
        return handle if closed else _shortened(handle, inputs, rounds)

    done = folded([handle for _, handle in outputs], before, make)
    cut = {id(new): id(old) for old, new in done.items() if new is not None and id(old) in rounds}
    kept = [(path, done[handle]) for path, handle in outputs]
    return [(path, handle) for path, handle in kept if handle is not None], cut


def _shortened(
    handle: Handle, inputs: Sequence[Handle | None], rounds: Mapping[int, int]
) -> Handle | None:
    operation = handle.operation
    if isinstance(operation, Repeat) and rounds.get(id(handle), 0) > 0:
        operation = evolve(operation, times=rounds[id(handle)])
    elif isinstance(operation, Repeat | Release) or operation.random:
        return None
    known = [each for each in inputs if each is not None]
    return rebuilt(handle, known, operation) if len(known) == len(inputs) else None
