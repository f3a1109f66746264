"""Which groups are around which nodes."""

from __future__ import annotations

from collections import Counter

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.merge import Merged


def titles(nodes: Merged) -> dict[str, Handle]:
    """Return the groups by title, outermost first; groups of one name are numbered."""
    wrappers = [wrapper for found in nodes.groups.values() for wrapper in found]
    # the outermost group comes last: it reads the others
    wrappers.sort(key=lambda wrapper: -nodes.rank[id(wrapper[0])])
    left = Counter(name for _, name in wrappers)
    several = {name for name, count in left.items() if count > 1}
    result = {}
    for handle, name in wrappers:
        result[f"{name} {left[name]}" if name in several else name] = handle
        left[name] -= 1
    return result


def memberships(nodes: Merged, groups: dict[str, Handle]) -> dict[int, list[str]]:
    """Return the titles of the groups around each node, outermost first."""
    members: dict[int, list[str]] = {}
    for title, wrapper in groups.items():
        outside = nodes.above([nodes.of(b) for b in wrapper.inputs[1:]])
        inside = nodes.above([nodes.of(wrapper.inputs[0])]) - outside
        for handle in nodes.order:
            if id(handle) in inside:
                members.setdefault(id(handle), []).append(title)
    return members
