"""Going through a graph: upward from its ends, in order from its beginnings, and rewriting it.

All of it is iterative, since a chain of steps may be longer than Python's stack is deep, and linear
in the number of edges. What is gone through may be handles, nodes or their names: anything that is
hashable, with a function that says what each reads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.operation import Operation

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


def inputs(handle: Handle) -> tuple[Handle, ...]:
    """Return what a handle reads; a loop's body stays closed."""
    return handle.inputs


def inputs_and_bodies(handle: Handle) -> tuple[Handle, ...]:
    """Return what a handle reads, and of a loop its state and its body's result."""
    return (*handle.inputs, *handle.operation.body())


def upward(roots: Iterable[K], before: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yield roots and all that they are computed from, each once, readers first (preorder)."""
    seen: set[K] = set()  # without it, ways that meet again and again would take for ever
    stack = list(roots)[::-1]
    while stack:
        each = stack.pop()
        if each not in seen:
            seen.add(each)
            yield each
            stack.extend(list(before(each))[::-1])


def nearest(
    roots: Mapping[K, R], before: Callable[[K], Iterable[K]], merge: Callable[[R, R], R]
) -> dict[K, R]:
    """Return the value of the nearest root, for each thing that a root is computed from.

    Parameters
    ----------
    roots
        With their values; what is itself a root has its own.
    before
        What each thing reads.
    merge
        Returns the value where several are equally near.
    """
    found = dict(roots)
    steps = dict.fromkeys(roots, 0)
    queue = deque(roots)
    while queue:  # breadth first: all that is as near as this is merged before it is its turn
        each = queue.popleft()
        for other in before(each):
            if other not in found:
                found[other], steps[other] = found[each], steps[each] + 1
                queue.append(other)
            elif steps[other] == steps[each] + 1:
                found[other] = merge(found[other], found[each])
    return found


def ordered(roots: Iterable[K], before: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Yield all that roots are computed from and roots themselves, each after what it reads.

    The order follows from the graph alone: that of the roots, and of each one's inputs (postorder).
    """
    done: set[K] = set()
    stack = [(root, False) for root in list(roots)[::-1]]
    while stack:
        each, ready = stack.pop()
        if each in done:
            continue
        if ready:
            done.add(each)
            yield each
        else:
            stack.append((each, True))
            stack.extend((other, False) for other in list(before(each))[::-1])


def folded(
    roots: Iterable[K], before: Callable[[K], Sequence[K]], make: Callable[[K, list[R]], R]
) -> dict[K, R]:
    """Return what ``make(each, values of what it reads)`` gives for roots and all above them."""
    found: dict[K, R] = {}
    for each in ordered(roots, before):
        found[each] = make(each, [found[other] for other in before(each)])
    return found


def ancestors(*roots: Handle, bodies: bool = False) -> Iterator[Handle]:
    """Yield handles and all that they are computed from; with ``bodies`` what loops do, too."""
    return upward(roots, inputs_and_bodies if bodies else inputs)


def rebuilt(handle: Handle, inputs: Sequence[Handle], operation: Operation | None = None) -> Handle:
    """Return the handle with other inputs, or another operation; itself where nothing changes."""
    operation = handle.operation if operation is None else operation
    same = operation is handle.operation and len(inputs) == len(handle.inputs)
    if same and all(a is b for a, b in zip(inputs, handle.inputs, strict=True)):
        return handle
    return attrs.evolve(handle, inputs=tuple(inputs), operation=operation)


def rewritten(
    roots: Collection[Handle],
    change: Callable[[Handle], Operation] = lambda handle: handle.operation,
    *,
    known: Mapping[Handle, Handle] | None = None,
    anew: Collection[Handle] = (),
) -> dict[Handle, Handle]:
    """Return what becomes of roots and all above them; whatever does not change stays the same.

    A loop whose body changes has a state of its own, so that it and what it was before are two
    loops, in one plan too.

    Parameters
    ----------
    roots
        Whose graph it is. Loops' bodies are rewritten, too.
    change
        Returns each handle's operation, the same object where it stays. Of a loop, the state and
        the result are not its to change.
    known
        Handles that are replaced by others as they are, with all above them.
    anew
        Handles that are copied, even where nothing above them changes: equal nodes, not the same.
    """
    known = known or {}
    operations: dict[Handle, Operation] = {}

    def before(handle: Handle) -> tuple[Handle, ...]:
        return () if handle in known else inputs_and_bodies(handle)

    def changes(handle: Handle, above: list[bool]) -> bool:
        if handle in known:
            return known[handle] is not handle
        operations[handle] = change(handle)
        return any(above) or operations[handle] is not handle.operation or handle in anew

    changed = folded(roots, before, changes)
    renewed: set[Handle] = set()
    for handle in changed:
        if handle not in known and (body := handle.operation.body()):
            state, result = body
            if changed[result] or handle in anew:
                renewed.add(state)

    def rewrite(handle: Handle, above: list[Handle]) -> Handle:
        if handle in known:
            return known[handle]
        if handle in renewed:
            return attrs.evolve(handle)
        operation = operations[handle]
        if operation.body():
            *above, state, result = above
            if (state, result) != operation.body():
                loop: Any = operation
                operation = attrs.evolve(loop, state=state, result=result)
        found = rebuilt(handle, above, operation)
        return attrs.evolve(handle) if found is handle and handle in anew else found

    return folded(roots, before, rewrite)
