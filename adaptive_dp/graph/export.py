"""The plan as a networkx graph, for drawings and for anyone's own algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import networkx as nx

from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.roles import PartOperation, part_title
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.graph.traversal import upward


def graph(structure: Structure, adaptive: Sequence[str] = ()) -> nx.DiGraph[str]:
    """Return a directed acyclic graph: an edge from each input to the node that reads it.

    Node attributes: ``kind``, ``label``, ``detail``, ``color`` (private, released or
    public), ``group`` (names of learners and repeats around it, outermost first),
    ``outputs``, ``digest``, ``name`` of the mechanism's norm and parameters where it is a
    release. Where ``adaptive`` names outputs, each may depend on all before it: an edge with
    ``kind="adaptive"`` leads from each to what the next one releases.
    """
    result: nx.DiGraph[str] = nx.DiGraph()
    for node in structure:
        result.add_node(node.name, **_attributes(node, structure))
    for node in structure:
        for name in node.inputs:
            result.add_edge(name, node.name)
    _steps(result, structure, adaptive)
    return result


def _steps(result: nx.DiGraph[str], structure: Structure, adaptive: Sequence[str]) -> None:
    """Add an edge from each step of a session to what the next one releases."""
    ends = {".".join(path): node.name for node in structure for path in node.outputs}
    seen: set[str] = set()
    last = ""

    def new(name: str) -> list[str]:
        return [each for each in structure.nodes[name].inputs if each not in seen]

    for step in adaptive:
        found = [] if ends[step] in seen else list(upward([ends[step]], new))
        seen.update(found)
        for name in found:
            node = structure.nodes[name]
            paid = isinstance(node.handle.operation, Release | Loop) and not node.loops
            if last and paid and not result.has_edge(last, node.name):
                result.add_edge(last, node.name, kind="adaptive")
        last = ends[step]


def _attributes(node: Node, structure: Structure) -> dict[str, Any]:
    operation = node.handle.operation
    label = operation.label()
    if isinstance(operation, PartOperation):
        label = part_title(node.handle)
    loops = [_title(structure.nodes[name]) for name in node.loops]
    attributes: dict[str, Any] = {
        "kind": operation.kind,
        "label": label,
        "detail": operation.detail(),
        "color": node.handle.color,
        "group": (*loops, *node.group),
        "outputs": tuple(".".join(path) for path in node.outputs),
        "digest": node.digest,
    }
    if isinstance(operation, Release):
        attributes["label"] = node.name
        attributes["parameters"] = operation.mechanism.parameters()
    return attributes


def _title(node: Node) -> str:
    assert isinstance(node.handle.operation, Loop)
    return f"{node.name}: {node.handle.operation.label()}"
