"""What a plan must be, checked when it is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adaptive_dp.graph.errors import DeclarationError, LeakError, NeighborError
from adaptive_dp.graph.handles import Handle, path
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.repeat import Repeat

Path = tuple[str, ...]


def checked(
    outputs: Mapping[str, Any] | Sequence[tuple[Path, Handle]],
) -> list[tuple[Path, Handle]]:
    """Return the outputs as (path, handle) pairs, sorted by path.

    Raises
    ------
    LeakError
        If an output or an input of a step in the open is private.
    NeighborError
        If data sets have different neighbour relations.
    DeclarationError
        If there are no outputs, or two data sets carry one name.
    """
    flat = list(_flat((), outputs)) if isinstance(outputs, Mapping) else list(outputs)
    require(bool(flat), "a plan needs at least one output: Pipeline(name=released_handle)")
    for name, handle in flat:
        if handle.colour == "private":
            raise LeakError(
                f"output {'.'.join(name)!r} is private: {path(handle)}; release it first, for "
                "example with .release(dp.Laplace(scale=...))"
            )
    sources: dict[str, Handle] = {}
    for handle in _reachable(handle for _, handle in flat):
        _node(handle)
        if handle.operation.kind == "dataset":
            _source(handle, sources)
    return sorted(flat, key=lambda pair: pair[0])


def _flat(prefix: Path, outputs: Mapping[Any, Any]) -> Iterator[tuple[Path, Handle]]:
    for name, value in outputs.items():
        where = (*prefix, str(name))
        if isinstance(value, Mapping):
            require(bool(value), f"output {'.'.join(where)!r} is an empty mapping")
            yield from _flat(where, value)
        elif isinstance(value, Handle):
            yield where, value
        else:
            raise DeclarationError(
                f"output {'.'.join(where)!r} must be a released handle or a mapping of such, got "
                f"{type(value).__name__}; a constant is dp.public(value)"
            )


def _reachable(roots: Iterator[Handle]) -> Iterator[Handle]:
    seen: set[int] = set()
    queue = list(roots)
    while queue:
        handle = queue.pop()
        if id(handle) not in seen:
            seen.add(id(handle))
            yield handle
            queue.extend(handle.inputs)
            if isinstance(handle.operation, Repeat):
                queue.append(handle.operation.result)


def _node(handle: Handle) -> None:
    """Check that private values flow along one input, and out through releases only."""
    kind = handle.operation.kind
    inside = [i.colour == "private" for i in handle.inputs]
    if kind in ("repeat", "group"):
        require(bool(inside) and not inside[0], f"the first input of a {kind} must be released")
    elif kind == "release":
        query = handle.inputs[0].operation if handle.inputs else None
        require(
            inside == [True] and isinstance(query, Query),
            "a release has one input, a query: a private value with a sensitivity",
        )
    elif handle.colour == "private":
        if kind == "dataset":
            require(not inside, "a dataset has no inputs")
        elif not inside or not inside[0] or any(inside[1:]):
            raise LeakError(
                f"{handle!r} must read one private value, its first input, and released values "
                "beside it"
            )
    elif any(inside):
        leak = handle.inputs[inside.index(True)]
        raise LeakError(f"{handle!r} reads a private value: {path(leak)}; release it first")


def _source(handle: Handle, sources: dict[str, Handle]) -> None:
    operation: Any = handle.operation
    for other in sources.values():
        known: Any = other.operation
        if known.neighbors != operation.neighbors:
            raise NeighborError(
                f"the data sets {known.name!r} ({known.neighbors}) and {operation.name!r} "
                f"({operation.neighbors}) have different neighbour relations; declare both with the "
                "same neighbors=..."
            )
    known_here = sources.get(operation.name)
    if known_here is not None and known_here.operation != operation:
        raise DeclarationError(
            f"two different data sets are named {operation.name!r}; declare it once and reuse the "
            "handle, or give the other another name"
        )
    sources.setdefault(operation.name, handle)
