"""Writing a plan as a document."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop, State
from adaptive_dp.graph.registry import name_of
from adaptive_dp.graph.structure import Node, Structure

if TYPE_CHECKING:
    from adaptive_dp.graph.pipeline import Pipeline

FORMAT = "adaptive-dp/plan/2"


def to_document(plan: Pipeline) -> dict[str, Any]:
    """Return the plan as JSON values: nodes in order, outputs by path."""
    return excerpt(plan, ())[0]


def excerpt(plan: Pipeline, without: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the plan as JSON values, some nodes left out; and of these the digests of those read.

    Parameters
    ----------
    plan
        What is written.
    without
        Names of the nodes that the reader has; `load` does not read what is written without them,
        `loaded` does, given their handles by the ids under which digests are returned.
    """
    writer = _Writer(plan.structure, frozenset(without))
    document = {
        "format": FORMAT,
        "delta": plan.delta,
        "nodes": writer.nodes(None),
        "outputs": [
            {"path": list(path), "node": writer.reference(handle)} for path, handle in plan.outputs
        ],
    }
    return document, writer.read


class _Writer:
    """The entries of a structure's nodes and groups; inputs are named by their entries."""

    def __init__(self, structure: Structure, without: frozenset[str] = frozenset()) -> None:
        self.structure, self.without = structure, without
        self.read: dict[str, str] = {}
        self.groups = {id(h): self._free(f"group {t}") for t, h in structure.groups.items()}

    def nodes(self, loop: str | None) -> list[dict[str, Any]]:
        """Return the entries of one repeat's body, or of what is in none, in the graph's order.

        It lists inputs before their readers.
        """
        inside = [n for n in self.structure if _innermost(n) == loop and n.name not in self.without]
        nodes = [n for n in inside if not _is_state(n)]
        entries = [(n.rank, self._node(n)) for n in nodes]
        of = {n.name for n in inside}
        groups = self.structure.groups.values()
        rank = self.structure.ranks
        entries += [
            (rank[id(h)], self._group(h)) for h in groups if self.structure.of(h).name in of
        ]
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def reference(self, handle: Handle) -> str:
        """Return the id of a handle's entry."""
        node = self.structure.of(handle)
        name = self.groups.get(id(handle)) or node.name
        if node.name in self.without:
            self.read[name] = node.digest
        return name

    def _free(self, title: str) -> str:
        while title in self.structure.nodes:
            title += "'"
        return title

    def _node(self, node: Node) -> dict[str, Any]:
        operation = node.handle.operation
        entry: dict[str, Any] = {"id": node.name, "kind": name_of(type(operation), operation.kind)}
        if isinstance(operation, Loop):
            return entry | self._loop(node, operation)
        if node.handle.inputs:
            entry["inputs"] = [self.reference(i) for i in node.handle.inputs]
        return entry | {k: encode(v) for k, v in operation.parameters().items()}

    def _loop(self, node: Node, operation: Loop) -> dict[str, Any]:
        return {
            "inputs": [self.reference(node.handle.inputs[0])],
            **operation.parameters(),
            "state": self.structure.of(operation.state).name,
            "body": self.nodes(node.name),
            "result": self.reference(operation.result),
        }

    def _group(self, handle: Handle) -> dict[str, Any]:
        inputs = [self.reference(i) for i in handle.inputs]
        entry = {"id": self.reference(handle), "kind": "group", "inputs": inputs}
        return entry | handle.operation.parameters()


def _innermost(node: Node) -> str | None:
    return node.loops[-1] if node.loops else None


def _is_state(node: Node) -> bool:
    return isinstance(node.handle.operation, State)
