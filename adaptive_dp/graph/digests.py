"""Names of nodes by what they are: the digests that make up a plan's fingerprint."""

from __future__ import annotations

from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.merge import Merged, digest


def digests(nodes: Merged) -> dict[int, str]:
    """Return each node's digest; equal random nodes are told apart by their order in the graph."""
    result: dict[int, str] = {}
    twins: dict[str, int] = {}
    for handle in nodes.order:
        operation = handle.operation
        reads = handle.inputs
        if isinstance(operation, Loop):  # what its body reads is in its result, in no order
            reads = reads[:1]
        parts = [*nodes.told[id(handle)], [result[id(nodes.of(i))] for i in reads]]
        if isinstance(operation, Loop):
            parts.append(result[id(nodes.of(operation.result))])
        if operation.kind == "state":
            loop = nodes.loops[id(handle)][-1]
            start = result[id(nodes.of(loop.inputs[0]))]
            parts += [start, loop.operation.parameters()]
        found = digest([*parts, len(nodes.loops[id(handle)])])
        if operation.random:
            twins[found] = twins.get(found, -1) + 1
            found = digest([found, twins[found]])
        result[id(handle)] = found
    return result
