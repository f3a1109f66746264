"""Handles become nodes: what is written twice is one, loops are entered, groups set aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from accountants.registry import place_of
from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.group import Group
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import is_own


class Merged:
    """One pass over the handles; loops are entered by recursion, all else by a stack.

    Attributes
    ----------
    order
        The handles that are nodes, in topological order.
    canonical
        Each handle's node (a group's is that of its result), by identity.
    born
        When the first handle was made that is a node.
    loops
        The repeats whose body a node is in, outermost first.
    groups
        The groups around each node's value, with their names.
    told
        What each handle's operation is, as `described`.
    """

    def __init__(self) -> None:
        self.order: list[Handle] = []
        self.canonical: dict[int, Handle] = {}
        self.born: dict[int, int] = {}
        self.loops: dict[int, tuple[Handle, ...]] = {}
        self.groups: dict[int, list[tuple[Handle, str]]] = {}
        self.told: dict[int, list[Any]] = {}
        self._keys: dict[int, str] = {}
        self._first: dict[tuple[str, tuple[int, ...]], Handle] = {}

    def visit(self, root: Handle, around: tuple[Handle, ...] = ()) -> None:
        """Add all that is above a handle."""
        stack: list[tuple[Handle, bool]] = [(root, False)]
        while stack:
            handle, ready = stack.pop()
            if id(handle) in self.canonical:
                continue
            if not ready:
                stack.append((handle, True))
                stack.extend((child, False) for child in reversed(handle.inputs))
                continue
            if isinstance(handle.operation, Loop):
                loop = handle.operation
                self._add(loop.state, (*around, handle))
                self.visit(loop.result, (*around, handle))
            self._add(handle, around)

    def of(self, handle: Handle) -> Handle:
        """Return the node of a handle."""
        return self.canonical[id(handle)]

    def above(self, roots: Sequence[Handle]) -> set[int]:
        """Return the identities of the nodes that roots are or read, bodies included."""
        found: set[int] = set()
        queue = list(roots)
        while queue:
            handle = self.of(queue.pop())
            if id(handle) not in found:
                found.add(id(handle))
                queue.extend(handle.inputs)
                if isinstance(handle.operation, Loop):
                    queue.append(handle.operation.result)
        return found

    def _add(self, handle: Handle, around: tuple[Handle, ...]) -> None:
        operation = handle.operation
        if isinstance(operation, Group):
            inner = self.of(handle.inputs[0])
            self.canonical[id(handle)] = inner
            self.groups.setdefault(id(inner), []).append((handle, operation.name))
            return
        key = self._key(handle)
        loops = tuple(loop for loop in around if _body(loop).inside(handle))
        if operation.color == "private" and not operation.random:
            # only within one body: a round's step is run again, an equal one outside is not
            place = (key, tuple(id(loop) for loop in loops))
            if place in self._first:
                first = self._first[place]
                self.canonical[id(handle)] = first
                self.born[id(first)] = min(self.born[id(first)], handle.serial)
                return
            self._first[place] = handle
        self.canonical[id(handle)] = handle
        self.born[id(handle)] = handle.serial
        # what is random, a round's state, or a function that the digest cannot tell from
        # another (two closures of one code) is itself alone, and so is what reads it
        alone = operation.random or operation.kind in ("state", "post")
        self._keys[id(handle)] = f"{key}/{handle.serial}" if alone else key
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


def _body(loop: Handle) -> Loop:
    assert isinstance(loop.operation, Loop)
    return loop.operation


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
