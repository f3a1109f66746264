"""What a plan must be, checked when it is built."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from adaptive_dp.graph.change import UNBOUNDED
from adaptive_dp.graph.errors import DeclarationError, LeakError, NeighborError
from adaptive_dp.graph.handles import Handle, lineage, path
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.merge import described, digest
from adaptive_dp.graph.operation import Query, require
from adaptive_dp.graph.roles import PartOperation, SampleOperation, SourceOperation
from adaptive_dp.graph.steps import admitted
from adaptive_dp.graph.traversal import ancestors

Path = tuple[str, ...]
DEPTH = 64
"""Parts and samples may be nested this deep."""


def checked(
    outputs: Mapping[str, Any] | Sequence[tuple[Path, Handle]],
) -> list[tuple[Path, Handle]]:
    """Return the outputs as (path, handle) pairs, sorted by path: step 2 before step 10.

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
        if handle.color == "private":
            raise LeakError(
                f"output {'.'.join(name)!r} is private: {path(handle)}; release it first, for "
                "example with .release(dp.Laplace(scale=...))"
            )
    _distinct([name for name, _ in flat])
    sources: dict[str, SourceOperation] = {}
    for handle in ancestors(*(handle for _, handle in flat), bodies=True):
        flows(handle)
        if isinstance(handle.operation, SourceOperation):
            declared(handle.operation, sources)
    for name, handle in flat:
        # a whole loop depends on no state of its own
        require(
            not handle.states,
            f"output {'.'.join(name)!r} reads what belongs to the body of a loop from outside of "
            "it; return it as (a part of) the round's result",
        )
    return sorted(flat, key=lambda pair: [*map(_counted, pair[0])])


def _counted(name: str) -> tuple[Any, ...]:
    """Return a key that orders names as people count: whole numbers in them by size."""
    parts = re.split("([0-9]+)", name)  # texts at even places, digits at odd ones
    numbers = [part.lstrip("0") for part in parts[1::2]]
    sizes = [(len(digits), digits) for digits in numbers]
    return [x for pair in zip(parts[::2], [*sizes, ()], strict=True) for x in pair], name


def _distinct(paths: Sequence[Path]) -> None:
    """Refuse two outputs of one path, and an output inside of another."""
    for names in paths:
        require(
            bool(names) and all(isinstance(name, str) and name != "" for name in names),
            f"an output's name must be a text that is not empty, got {list(names)!r}",
        )
    counts = Counter(paths)
    for names in paths:
        inner = any(names[:i] in counts for i in range(1, len(names)))
        require(
            counts[names] == 1 and not inner,
            f"two outputs are named {'.'.join(names)!r}, or one is a part of the other; rename one",
        )


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


def flows(handle: Handle) -> None:
    """Check that private values flow along one input, and out through releases only."""
    kind = handle.operation.kind
    inside = [i.color == "private" for i in handle.inputs]
    if isinstance(handle.operation, Loop) or kind == "group":
        require(bool(inside) and not inside[0], f"the first input of a {kind} must be released")
        if isinstance(handle.operation, Loop) and handle.operation.result.color == "private":
            raise LeakError(
                f"the body of a loop returns a private value: {path(handle.operation.result)}; "
                "release it first"
            )
    elif kind == "release":
        query = handle.inputs[0].operation if handle.inputs else None
        if inside[:1] != [True] or any(inside[1:]) or not isinstance(query, Query):
            raise DeclarationError(
                "a release has one private input, its first: a query, a private value with a "
                "sensitivity; beside it only released values"
            )
        admitted(query, handle.inputs[0].inputs[0].domain, handle.domain, len(inside) - 1)
        handle.domain.premises(handle)
        _limited(handle)
    elif handle.color == "private":
        if isinstance(handle.operation, SourceOperation):
            require(not inside, "a dataset has no inputs")
        elif not inside or not inside[0] or any(inside[1:]):
            raise LeakError(
                f"{handle!r} must read one private value, its first input, and released values "
                "beside it"
            )
        else:
            require(
                len(inside) - 1 <= handle.operation.beside,
                f"{handle!r} reads {len(inside) - 1} values beside its private one, it can read "
                f"{handle.operation.beside}",
            )
            require(
                not isinstance(handle.inputs[0].operation, Query),
                f"{handle!r} reads a query's value; a query can only be released",
            )
    elif any(inside):
        leak = handle.inputs[inside.index(True)]
        raise LeakError(f"{handle!r} reads a private value: {path(leak)}; release it first")
    if kind == "post":
        require(bool(inside), "a post reads at least one released value; a constant is public")
    if kind in ("public", "state"):
        require(not inside, f"a {kind} value has no inputs")


def _limited(release: Handle) -> None:
    """Check that something bounds the rows of a unit on the way to a release."""
    first, *chain = lineage(release.inputs[0])
    source = first.operation
    if not isinstance(source, SourceOperation):
        raise DeclarationError(f"the way to {release!r} does not begin at a dataset")
    change = source.initial()
    regions = 0
    for handle in chain:
        part = isinstance(handle.operation, PartOperation)
        regions += part or isinstance(handle.operation, SampleOperation)
        whole = not part or handle.inputs[0].domain.whole_units
        if whole or change.rows != UNBOUNDED:  # bounds in each part bound no sum over the parts
            change = handle.operation.change(change)
        else:
            break
    require(
        change.rows != UNBOUNDED,
        f"nothing bounds the rows of a unit ({source.unit}) of {source.name!r}; declare the data "
        "set with dataset(unit=..., rows_per_unit=...), a 'bound' node in a document",
    )
    require(
        regions <= DEPTH,
        f"parts and samples are nested {regions} deep, more than {DEPTH}: no accountant follows",
    )


def declared(operation: SourceOperation, sources: dict[str, SourceOperation]) -> None:
    """Take in a data set, unless it is declared otherwise, or under other neighbours."""
    for known in sources.values():
        if known.neighbors != operation.neighbors:
            raise NeighborError(
                f"the data sets {known.name!r} ({known.neighbors}) and {operation.name!r} "
                f"({operation.neighbors}) have different neighbour relations; declare both with "
                "the same neighbors=..."
            )
    known = sources.get(operation.name, operation)
    # digests, since == would take 1 and True for one category
    if known is not operation and digest(described(known)) != digest(described(operation)):
        raise DeclarationError(
            f"two different data sets are named {operation.name!r}; declare it once and reuse the "
            "handle, or give the other another name"
        )
    sources.setdefault(operation.name, operation)
