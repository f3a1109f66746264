"""What a step computes, and which part of it is paid for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from adaptive_dp.graph.charge import releases
from adaptive_dp.graph.compile import places
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.graph.traversal import upward
from adaptive_dp.session.spends import Costs


def pays(node: Node) -> bool:
    """Whether a node is paid for: a release or a loop that is in no loop itself."""
    return isinstance(node.handle.operation, Release | Loop) and not node.loops


def needed(structure: Structure, end: Node, known: Iterable[str]) -> set[str]:
    """Return the names of the nodes to compute for one, known values left out."""
    bodies: dict[str, list[str]] = {}
    for node in structure:
        for loop in node.loops:
            bodies.setdefault(loop, []).append(node.name)
    closed = set(known)

    def before(name: str) -> list[str]:
        read = [*structure.nodes[name].inputs, *bodies.get(name, ())]
        return [each for each in read if each not in closed]

    return set(upward([end.name] if end.name not in closed else [], before))


def costs_for(structure: Structure, new: Iterable[Node]) -> Costs:
    """Return what making some releases and loops costs, place by place."""
    names = {node.name for node in new}
    charges = [c for c in releases(structure) if names & {c.node.name, *c.node.loops[:1]}]
    return tuple(places(charges))


def paid_nodes(structure: Structure, digests: Sequence[str]) -> list[Node]:
    """Return the nodes of digests, among those that are paid for."""
    asked = set(digests)
    return [node for node in structure if pays(node) and node.digest in asked]
