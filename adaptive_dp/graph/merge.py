"""Handles become nodes: what is written twice is one, loops are entered, groups set aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from accountants.registry import place_of
from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.group import Group
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.traversal import inputs_and_bodies, ordered, upward


class Merged:
    """The nodes of a graph, as handles.

    What they are and their order follow from the graph alone: from the outputs in their order, and
    from each handle's inputs in theirs. When a handle was made does not enter.

    Parameters
    ----------
    roots
        The outputs' handles, in order.

    Attributes
    ----------
    order
        The handles that are nodes, in topological order.
    canonical
        Each handle's node (a group's is that of its result), by identity.
    rank
        Where a handle stands among all, aliases included; inputs come before their readers.
    loops
        The loops whose body a node is in, outermost first.
    groups
        The groups around each node's value, with their names.
    told
        What each handle's operation is, as `described`.
    """

    def __init__(self, roots: Sequence[Handle]) -> None:
        self.order: list[Handle] = []
        self.canonical: dict[int, Handle] = {}
        self.rank: dict[int, int] = {}
        self.loops: dict[int, tuple[Handle, ...]] = {}
        self.groups: dict[int, list[tuple[Handle, str]]] = {}
        self.told: dict[int, list[Any]] = {}
        self._keys: dict[int, str] = {}
        self._first: dict[tuple[str, tuple[int, ...]], Handle] = {}
        self._enclosing = _Enclosing(roots)
        for rank, handle in enumerate(ordered(roots, inputs_and_bodies)):
            self.rank[id(handle)] = rank
            self._add(handle)

    def of(self, handle: Handle) -> Handle:
        """Return the node of a handle."""
        return self.canonical[id(handle)]

    def above(self, roots: Sequence[Handle]) -> set[int]:
        """Return the identities of the nodes that roots are or read, bodies included."""
        return {id(node) for node in upward(map(self.of, roots), self.before)}

    def before(self, node: Handle) -> list[Handle]:
        """Return the nodes that a node reads, and of a loop the state and the body's result."""
        return [self.of(each) for each in inputs_and_bodies(node)]

    def _add(self, handle: Handle) -> None:
        operation = handle.operation
        if operation.alias:
            inner = self.of(handle.inputs[0])
            self.canonical[id(handle)] = inner
            if isinstance(operation, Group):
                self.groups.setdefault(id(inner), []).append((handle, operation.name))
            return
        key = self._key(handle)
        loops = self._enclosing.loops(handle)
        if operation.color != "released" and not operation.random:
            # only within one body: a round's step is run again, an equal one outside is not
            place = (key, tuple(id(loop) for loop in loops))
            first = self._first.setdefault(place, handle)
            if first is not handle:
                self.canonical[id(handle)] = first
                return
        self.canonical[id(handle)] = handle
        # what is random, a round's state, or a function that the digest cannot tell from
        # another (two closures of one code) is itself alone, and so is what reads it
        alone = operation.random or operation.kind in ("state", "post")
        self._keys[id(handle)] = f"{key}/{self.rank[id(handle)]}" if alone else key
        self.loops[id(handle)] = loops
        self.order.append(handle)

    def _key(self, handle: Handle) -> str:
        """Return what is equal for handles that compute the same from the same nodes."""
        operation = handle.operation
        inputs = [self._keys[id(self.of(i))] for i in handle.inputs]
        self.told[id(handle)] = told = described(operation)
        # the class itself: of two from outside of the library even the names may be equal
        key: Any = [*told, id(type(operation)), inputs]
        if isinstance(operation, Loop):
            key.append(self._keys[id(self.of(operation.result))])
        return digest(key)


class _Enclosing:
    """The loops in whose bodies handles are.

    A handle is inside of the loops on whose states it depends, and an inner loop's state is inside
    of all that the inner loop itself is in.
    """

    def __init__(self, roots: Sequence[Handle]) -> None:
        self._chains: dict[Handle, tuple[Handle, ...]] = {}
        self._binds: dict[Handle, Handle] = {}
        for handle in upward(roots, inputs_and_bodies):
            if isinstance(handle.operation, Loop):
                bound = self._binds.setdefault(handle.operation.state, handle)
                if bound is not handle:
                    raise DeclarationError(f"{bound!r} and {handle!r} share the state of one loop")

    def loops(self, handle: Handle) -> tuple[Handle, ...]:
        """Return the loops around a handle, outermost first."""
        chains = [self._chain(state) for state in handle.states]
        return max(chains, key=len, default=())

    def _chain(self, state: Handle) -> tuple[Handle, ...]:
        if state not in self._chains:
            loop = self._binds[state]
            self._chains[state] = (*self.loops(loop), loop)
        return self._chains[state]


def described(operation: Operation) -> list[Any]:
    """Return what an operation is, as JSON values: its kind and its parameters.

    Kinds name the library's own operations; others may share one, so their class is named too.
    """
    kind, cls = operation.kind, type(operation)
    if not is_own(cls):
        kind += f" {place_of(cls)}"
    return [kind, encode(operation.parameters())]


JSON = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return the SHA-256 of a JSON value, hexadecimal."""
    return hashlib.sha256(JSON.encode(value).encode()).hexdigest()
