"""The graph above a plan's outputs: order, names, digests, groups and loops.

Handles are expressions; here they become nodes. Private transforms, queries and public values that
are written twice are one node. A digest names a node by what it is: its operation and its
inputs' digests; equal random nodes (two releases of one query) are told apart by the order in which
the outputs, sorted by name, lead to them. Else digests do not depend on outputs, on names, or on
other branches, and on the order in which handles were made nothing depends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from adaptive_dp.graph.digests import digests
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.membership import memberships, titles
from adaptive_dp.graph.merge import Merged
from adaptive_dp.graph.naming import names

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
    rank
        Where it stands in the graph: its inputs have lower ranks.
    """

    handle: Handle
    name: str
    digest: str
    inputs: tuple[str, ...]
    group: Path
    loops: Path
    outputs: tuple[Path, ...]
    rank: int

    @property
    def key(self) -> tuple[int, ...]:
        """What tells its seeded stream from those of other nodes: four words of its digest."""
        return tuple(int(self.digest[i : i + 8], 16) for i in range(0, 32, 8))


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
    ranks
        Where each handle stands, by its identity: those of groups, too.
    """

    nodes: dict[str, Node]
    groups: dict[str, Handle]
    by_handle: dict[int, str] = field(repr=False)
    ranks: dict[int, int] = field(repr=False)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def lineage(self, node: Node) -> list[Node]:
        """Return a private node and all it comes from, each the first input of the next."""
        steps = [node]
        while steps[-1].handle.inputs:
            steps.append(self.of(steps[-1].handle.inputs[0]))
        return steps[::-1]

    def of(self, handle: Handle) -> Node:
        """Return the node of a handle."""
        return self.nodes[self.by_handle[id(handle)]]


def structure(outputs: Sequence[tuple[Path, Handle]]) -> Structure:
    """Return the structure above ``outputs``; what none of them needs is not in it."""
    merged = Merged([handle for _, handle in outputs])
    named: dict[int, list[Path]] = {}
    for path, handle in outputs:
        named.setdefault(id(merged.of(handle)), []).append(path)
    groups = titles(merged)
    around = memberships(merged, groups)
    name = names(merged, named, around)
    digest = digests(merged)
    nodes = [
        Node(
            handle,
            name[id(handle)],
            digest[id(handle)],
            tuple(dict.fromkeys(name[id(merged.of(i))] for i in _reads(handle))),
            tuple(around.get(id(handle), ())),
            tuple(name[id(loop)] for loop in merged.loops[id(handle)]),
            tuple(named.get(id(handle), ())),
            merged.rank[id(handle)],
        )
        for handle in merged.order
    ]
    by_handle = {i: name[id(h)] for i, h in merged.canonical.items()}
    return Structure({node.name: node for node in nodes}, groups, by_handle, merged.rank)


def _reads(handle: Handle) -> Sequence[Handle]:
    """Return a node's inputs; what a repeat's body reads, the body's nodes show."""
    if isinstance(handle.operation, Loop):
        return handle.inputs[0], handle.operation.result
    return handle.inputs
