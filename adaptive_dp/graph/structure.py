"""The graph above a plan's outputs: order, names, digests, groups and loops.

Handles are expressions; here they become nodes. Private transforms and queries that are
written twice are one node. A digest names a node by what it is: its operation and its
inputs' digests; equal random nodes (two releases of one query) are told apart by their
order of creation. Digests do not depend on outputs, on names, or on other branches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import field, frozen

from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.group import Group
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.repeat import Repeat
from adaptive_dp.graph.steps import Release

Path = tuple[str, ...]


@frozen(eq=False)
class Node:
    """A node of the plan.

    Parameters
    ----------
    handle
        The expression.
    name
        Unique in the plan.
    digest
        Hexadecimal; equal for nodes that compute the same.
    inputs
        Names of the nodes that it reads.
    group
        Names of the groups around it, outermost first.
    loops
        Names of the repeats whose body it is in, outermost first.
    outputs
        The outputs that are this node.
    born
        The order of creation: the serial of the first of the handles that are merged in it.
    age
        When the first handle was made that is this node: inputs are older.
    """

    handle: Handle
    name: str
    digest: str
    inputs: tuple[str, ...]
    group: Path
    loops: Path
    outputs: tuple[Path, ...]
    born: int
    age: int


@frozen(eq=False)
class Structure:
    """All nodes, in topological order, by name; groups are names around nodes, not nodes.

    Parameters
    ----------
    nodes
        By name.
    groups
        Each group's handle by its title.
    by_handle
        The node's name by the identity of a handle; a group's handle stands for its result.
    """

    nodes: dict[str, Node]
    groups: dict[str, Handle]
    by_handle: dict[int, str] = field(repr=False)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def of(self, handle: Handle) -> Node:
        """Return the node of a handle."""
        return self.nodes[self.by_handle[id(handle)]]


def structure(outputs: Sequence[tuple[Path, Handle]]) -> Structure:
    """Return the structure above ``outputs``; what none of them needs is not in it."""
    builder = _Builder()
    for _, handle in outputs:
        builder.visit(handle)
    return builder.finish(outputs)


def through(handle: Handle) -> Handle:
    """Return what a chain of groups stands for."""
    while isinstance(handle.operation, Group):
        handle = handle.inputs[0]
    return handle


class _Builder:
    """One pass over the handles; loops are entered by recursion, all else by a stack."""

    def __init__(self) -> None:
        self.order: list[Handle] = []
        self.canonical: dict[int, Handle] = {}
        self.key: dict[int, str] = {}
        self.merged: dict[tuple[str, tuple[int, ...]], Handle] = {}
        self.born: dict[int, int] = {}
        self.loops: dict[int, tuple[Handle, ...]] = {}
        self.groups: dict[int, list[tuple[Handle, str]]] = {}

    def visit(self, root: Handle, around: tuple[Handle, ...] = ()) -> None:
        stack: list[tuple[Handle, bool]] = [(root, False)]
        while stack:
            handle, ready = stack.pop()
            if id(handle) in self.canonical:
                continue
            if not ready:
                stack.append((handle, True))
                stack.extend((child, False) for child in reversed(handle.inputs))
                continue
            if isinstance(handle.operation, Repeat):
                loop = handle.operation
                self._add(loop.state, (*around, handle))
                self.visit(loop.result, (*around, handle))
            self._add(handle, around)

    def _add(self, handle: Handle, around: tuple[Handle, ...]) -> None:
        operation = handle.operation
        if isinstance(operation, Group):
            inner = self.canonical[id(handle.inputs[0])]
            self.canonical[id(handle)] = inner
            self.groups.setdefault(id(inner), []).append((handle, operation.name))
            return
        inputs = [self.key[id(self.canonical[id(i)])] for i in handle.inputs]
        described: Any = [operation.kind, encode(operation.parameters()), inputs]
        if isinstance(operation, Repeat):
            described.append(self.key[id(self.canonical[id(operation.result)])])
        key = _digest(described)
        loops = tuple(
            loop
            for loop in around
            if loop.operation.inside(handle)  # type: ignore[attr-defined]
        )
        if operation.colour == "private" and not operation.random:
            # only within one body: a round's step is run again, an equal one outside is not
            place = (key, tuple(id(loop) for loop in loops))
            if place in self.merged:
                first = self.merged[place]
                self.canonical[id(handle)] = first
                self.born[id(first)] = min(self.born[id(first)], handle.serial)
                return
            self.merged[place] = handle
        self.canonical[id(handle)] = handle
        self.born[id(handle)] = handle.serial
        # what is random, a round's state, or a function that the digest cannot tell from
        # another (two closures of one code) is itself alone, and so is what reads it
        alone = operation.random or operation.kind in ("state", "post")
        self.key[id(handle)] = f"{key}/{handle.serial}" if alone else key
        self.loops[id(handle)] = loops
        self.order.append(handle)

    def finish(self, outputs: Sequence[tuple[Path, Handle]]) -> Structure:
        digests = self._digests()
        named: dict[int, list[Path]] = {}
        for path, handle in outputs:
            named.setdefault(id(self.canonical[id(handle)]), []).append(path)
        titles, groups = self._memberships()
        names = self._names(named, groups)
        nodes = {}
        for handle in self.order:
            name = names[id(handle)]
            reads = list(handle.inputs)
            if isinstance(handle.operation, Repeat):  # what its body reads, the body's nodes show
                reads = [handle.inputs[0], handle.operation.result]
            inputs = [names[id(self.canonical[id(i)])] for i in reads]
            nodes[name] = Node(
                handle,
                name,
                digests[id(handle)],
                tuple(dict.fromkeys(inputs)),
                tuple(groups.get(id(handle), ())),
                tuple(names[id(loop)] for loop in self.loops[id(handle)]),
                tuple(named.get(id(handle), ())),
                self.born[id(handle)],
                self.born[id(handle)],
            )
        by_handle = {i: names[id(h)] for i, h in self.canonical.items()}
        return Structure(nodes, titles, by_handle)

    def _digests(self) -> dict[int, str]:
        """Return the final digests: twins by rank, so that no serial number enters them."""
        result: dict[int, str] = {}
        twins: dict[str, int] = {}
        # by the first of what is merged, so that inputs come before their readers
        for handle in sorted(self.order, key=lambda h: self.born[id(h)]):
            operation = handle.operation
            described: Any = [
                operation.kind,
                encode(operation.parameters()),
                [result[id(self.canonical[id(i)])] for i in handle.inputs],
            ]
            if isinstance(operation, Repeat):
                described.append(result[id(self.canonical[id(operation.result)])])
            if operation.kind == "state":
                loop = self.loops[id(handle)][-1]
                start = result[id(self.canonical[id(loop.inputs[0])])]
                described += [start, loop.operation.parameters()]
            digest = _digest([*described, len(self.loops[id(handle)])])
            if operation.random:
                twins[digest] = twins.get(digest, -1) + 1
                digest = _digest([digest, twins[digest]])
            result[id(handle)] = digest
        return result

    def _memberships(self) -> tuple[dict[str, Handle], dict[int, list[str]]]:
        """Return the groups by title, and the titles around each node, outermost first."""
        members: dict[int, list[str]] = {}
        titles: dict[str, Handle] = {}
        position = {id(h): i for i, h in enumerate(self.order)}
        wrappers = [w for found in self.groups.values() for w in found]
        # the outermost group has the latest result; ties by creation, the wrapper made last
        wrappers.sort(key=lambda w: -w[0].serial)
        counts: dict[str, int] = {}
        for _, name in wrappers:
            counts[name] = counts.get(name, 0) + 1
        seen: dict[str, int] = {}
        for wrapper, name in wrappers:
            seen[name] = seen.get(name, 0) + 1
            title = name if counts[name] == 1 else f"{name} {counts[name] - seen[name] + 1}"
            titles[title] = wrapper
            outside = self._above([self.canonical[id(b)] for b in wrapper.inputs[1:]])
            inside = self._above([self.canonical[id(wrapper.inputs[0])]]) - outside
            for handle in sorted(inside, key=lambda i: position.get(i, -1)):
                if handle in position:
                    members.setdefault(handle, []).append(title)
        return titles, members

    def _above(self, roots: Sequence[Handle]) -> set[int]:
        found: set[int] = set()
        queue = list(roots)
        while queue:
            handle = self.canonical[id(queue.pop())]
            if id(handle) not in found:
                found.add(id(handle))
                queue.extend(handle.inputs)
                if isinstance(handle.operation, Repeat):
                    queue.append(handle.operation.result)
        return found

    def _names(self, named: dict[int, list[Path]], groups: dict[int, list[str]]) -> dict[int, str]:
        names: dict[int, str] = {}
        taken: set[str] = set()
        counters: dict[str, int] = {}

        def claim(handle: Handle, base: str) -> None:
            name = base
            while name in taken:
                counters[base] = counters.get(base, 1) + 1
                name = f"{base}_{counters[base]}"
            taken.add(name)
            names[id(handle)] = name

        for handle in self.order:
            if id(handle) in named:
                claim(handle, ".".join(min(named[id(handle)])))
        for handle in self.order:
            if id(handle) not in names:
                prefix = "".join(f"{g}." for g in groups.get(id(handle), ()))
                claim(handle, prefix + _base(handle))
        return names


def _base(handle: Handle) -> str:
    operation = handle.operation
    if operation.kind == "dataset":
        return operation.label()
    if isinstance(operation, Release):
        return operation.name or f"noisy_{handle.inputs[0].operation.kind}"
    if operation.kind == "column":
        return operation.label()
    if operation.kind == "post":
        return operation.label()
    return operation.kind


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
