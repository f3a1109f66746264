"""All that a session has run, as handles of one plan."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set

from attrs import evolve

from adaptive_dp.graph.handles import Handle, once_more, rebuilt
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.roles import SampleOperation
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.session.needs import pays


class Record:
    """Puts steps into one plan: what was recorded before is the same node, samples are fresh.

    A step that asks for a twin of an earlier release got its value, and a step that reads an
    earlier step's sample drew another: the handles that were asked for do not say so, these do.
    What a step has paid for is a node of its own: a release once more, or one whose first attempt
    failed, was drawn twice and counts twice.
    What was paid for is known by its identity; where a ledger does not tell that (it brings no
    functions along, see `adaptive_dp.session.identity`), by its digest, as what a step reads and
    does not pay for was released before.
    All of a step is copied, since what is in a loop is told by when it was made (`Loop.inside`).
    """

    def __init__(self) -> None:
        self._made: dict[str, Handle] = {}

    def add(
        self,
        handle: Handle,
        structure: Structure,
        keys: Mapping[str, str],
        paid: Collection[str],
    ) -> Handle:
        """Return the handle of a step as it was run, with a record of what it made.

        Parameters
        ----------
        handle, structure
            Of the step.
        keys
            The identity of each node.
        paid
            Names of the releases and loops that the step has paid for.
        """
        lasting = {
            id(old): (keys[node.name], node.digest if pays(node) else keys[node.name])
            for old, node in _nodes(handle, structure)
            if old.operation.random and not node.loops and not _sampled(old)
        }
        new = {keys[name] for name in paid}
        done: dict[int, Handle] = {}
        self._copy(handle, lasting, new, done)
        return done[id(handle)]

    def _copy(
        self,
        root: Handle,
        lasting: Mapping[int, tuple[str, str]],
        new: Set[str],
        done: dict[int, Handle],
    ) -> None:
        for old in _order(root, done):
            found: tuple[str, ...] = lasting.get(id(old), ())
            made = next((self._made[key] for key in found if key in self._made), None)
            if made is not None and new.isdisjoint(found[:1]):
                done[id(old)] = made
                continue
            operation = old.operation
            inputs = tuple(done[id(i)] for i in old.inputs)
            if isinstance(operation, Loop):
                done[id(operation.state)] = once_more(operation.state)
                self._copy(operation.result, lasting, new, done)
                operation = evolve(
                    operation,
                    state=done[id(operation.state)],
                    result=done[id(operation.result)],
                )
            done[id(old)] = once_more(rebuilt(old, inputs, operation))
            for key in found:
                self._made.setdefault(key, done[id(old)])


def _nodes(handle: Handle, structure: Structure) -> Iterator[tuple[Handle, Node]]:
    for old in _order(handle, {}):
        name = structure.by_handle[id(old)]
        yield old, structure.nodes[name]


def _sampled(handle: Handle) -> bool:
    """Whether a private handle is a sample, or is drawn from one."""
    while handle.color == "private" and handle.inputs:
        if isinstance(handle.operation, SampleOperation):
            return True
        handle = handle.inputs[0]
    return False


def _order(root: Handle, done: Mapping[int, Handle]) -> Iterator[Handle]:
    """Yield a handle and all above it that is not done, inputs first; bodies stay closed."""
    seen = set(done)
    stack = [(root, False)]
    while stack:
        handle, ready = stack.pop()
        if ready:
            yield handle
        elif id(handle) not in seen:
            seen.add(id(handle))
            stack.append((handle, True))
            stack += [(i, False) for i in reversed(handle.inputs)]
