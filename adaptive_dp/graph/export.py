"""The plan as a networkx graph, for drawings and for anyone's own algorithms."""

from __future__ import annotations

from typing import Any

import networkx as nx

from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.roles import PartOperation, part_title
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure


def graph(structure: Structure) -> nx.DiGraph[str]:
    """Return a directed acyclic graph: an edge from each input to the node that reads it.

    Node attributes: ``kind``, ``label``, ``detail``, ``colour`` (private, released or
    public), ``group`` (names of learners and repeats around it, outermost first),
    ``outputs``, ``digest``, ``name`` of the mechanism's norm and parameters where it is a
    release.
    """
    result: nx.DiGraph[str] = nx.DiGraph()
    for node in structure:
        result.add_node(node.name, **_attributes(node, structure))
    for node in structure:
        for name in node.inputs:
            result.add_edge(name, node.name)
    return result


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
        "colour": node.handle.colour,
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
