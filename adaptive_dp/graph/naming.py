"""Names of nodes, for people.

An output's node has the output's name. Any other is named by what it does (``count``, a release's
own name, ``noisy_count``), after the groups that it is in (``share.count``). Where several do the
same, the output to which each leads on the shortest way tells them apart: ``count (mean)``; where
several are as near, what their names begin with: ``partition (towns)`` for ``towns.A`` and
``towns.B``. Those that lead to the same one are numbered in the graph's order: ``count (mean)``,
``count 2 (mean)``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.merge import Merged
from adaptive_dp.graph.roles import PublicSource, SourceOperation
from adaptive_dp.graph.steps import Post, Release
from adaptive_dp.graph.traversal import nearest

Path = tuple[str, ...]


def names(
    nodes: Merged, named: dict[int, list[tuple[str, ...]]], groups: dict[int, list[str]]
) -> dict[int, str]:
    """Return a name for each node, unique in the plan.

    Parameters
    ----------
    nodes
        The nodes.
    named
        The outputs that are a node, by its identity.
    groups
        The titles of the groups around a node, outermost first, by its identity.
    """
    result: dict[int, str] = {}
    taken: set[str] = set()

    def claim(handle: Handle, name: str, again: str) -> None:
        """Give a node a name; ``again`` is a form with a number, for names that are taken."""
        number = 1
        while name in taken:
            number += 1
            name = again.format(number)
        taken.add(name)
        result[id(handle)] = name

    ends = {handle: min(named[id(handle)]) for handle in nodes.order if id(handle) in named}
    for handle, path in sorted(ends.items(), key=lambda pair: pair[1]):
        name = ".".join(path)
        claim(handle, name, _literal(name) + "_{}")
    owners = nearest(ends, nodes.before, _common)
    rest = [handle for handle in nodes.order if id(handle) not in result]
    released = [handle for handle in rest if isinstance(handle.operation, Release)]
    others = [handle for handle in rest if not isinstance(handle.operation, Release)]
    # releases choose before the private nodes that they read, which nobody asks for by name
    for kind in (released, others):
        for base, same in _by_base(kind, groups).items():
            # what only a step reads that is written twice leads nowhere: the first one is the node
            owned = [".".join(owners.get(handle, ())) for handle in same]
            alone = len(same) == 1 and base not in taken
            several = len(set(owned)) > 1 or base in taken
            for handle, owner in zip(same, owned, strict=True):
                if alone or not several or not owner:
                    claim(handle, base, _literal(base) + "_{}")
                else:
                    claim(handle, f"{base} ({owner})", f"{_literal(base)} {{}} ({_literal(owner)})")
    return result


def _by_base(handles: Iterable[Handle], groups: dict[int, list[str]]) -> dict[str, list[Handle]]:
    found: dict[str, list[Handle]] = {}
    for handle in handles:
        prefix = "".join(f"{g}." for g in groups.get(id(handle), ()))
        found.setdefault(prefix + _base(handle), []).append(handle)
    return found


def _common(one: Path, other: Path) -> Path:
    """Return what two outputs' paths begin with, or the first of them."""
    pairs = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(name for name, _ in pairs) or min(one, other)


def _literal(name: str) -> str:
    return name.replace("{", "{{").replace("}", "}}")


def _base(handle: Handle) -> str:
    """Return what a node does."""
    operation = handle.operation
    if isinstance(operation, Release):
        return operation.name or f"noisy_{handle.inputs[0].operation.kind}"
    if isinstance(operation, SourceOperation | PublicSource | Post) or operation.kind == "column":
        return operation.label()
    return operation.kind
