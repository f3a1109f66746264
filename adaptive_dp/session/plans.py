"""The plans of a ledger's spends, each written without what an earlier one holds.

A step that reads earlier ones has all that is above them in its plan. Written out each time, a
chain of steps would take a ledger as long as the square of its length. So an entry's plan leaves
out what is released or random (releases, loops, what is computed from them, samples, random parts)
and stands in an earlier entry, with all above it, and says under ``reads`` by which digest that was
meant; under ``offers`` it says the digests of what it brings itself. A digest names a node by all
that it computes, its inputs' digests among it, so what is read in place of what was left out is
what was meant, and the same costs, declarations and digests follow from it.

Twins (two equal random nodes of one plan) have digests by their rank in that plan, which would be
another in a part of it. A plan that has twins is written whole, and offers nothing. All other plans
have no twins when they are read, either: what is offered once is read and not written ever after,
so that there is one random handle for each digest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.functions import permitted
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.merge import described, digest
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.read import loaded
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.graph.write import excerpt, to_document
from adaptive_dp.session.needs import needed


def written(plan: Pipeline, offered: Collection[str]) -> dict[str, Any]:
    """Return what an entry says of a step's plan: ``plan``, ``reads`` and ``offers``.

    Parameters
    ----------
    plan
        Of one output.
    offered
        The digests that the entries before it offer.
    """
    structure = plan.structure
    if _twins(structure):
        return {"plan": to_document(plan), "reads": {}, "offers": {}}
    named = {n.name: n.digest for n in structure if _lasting(n)}
    held = {name for name, found in named.items() if found in offered}
    ((_, end),) = plan.outputs
    kept = needed(structure, structure.of(end), held)
    document, reads = excerpt(plan, structure.nodes.keys() - kept)
    offers = {name: found for name, found in named.items() if name in kept}
    return {"plan": document, "reads": reads, "offers": offers}


def _lasting(node: Node) -> bool:
    """Whether a node is written once: what is random or open, in no loop. The rest is cheap."""
    return not node.loops and (node.handle.operation.random or node.handle.color != "private")


def _twins(structure: Structure) -> bool:
    """Whether a plan has two random nodes that differ in nothing but their rank."""
    seen: set[tuple[Any, ...]] = set()
    for node in structure:
        operation = node.handle.operation
        if operation.random:
            reads = [*node.handle.inputs]
            if isinstance(operation, Loop):
                reads.append(operation.result)
            above = tuple(structure.of(handle).digest for handle in reads)
            key = (digest(described(operation)), above, len(node.loops))
            if key in seen:
                return True
            seen.add(key)
    return False


class Plans:
    """Reads the plans of a ledger's spends, in their order.

    Parameters
    ----------
    allow
        Modules from which the plans' own mechanisms may be imported.
    """

    def __init__(self, allow: Collection[str] = ()) -> None:
        self._modules = permitted(allow)
        self._handles: dict[str, Handle] = {}

    def read(self, entry: Mapping[str, Any]) -> Pipeline:
        """Return the plan of a spend, and keep what it offers.

        Raises
        ------
        DocumentError
            If it is no plan, or it does not read and offer what it says.
        """
        reads = _digests(entry, "reads")
        known = {}
        for name, found in reads.items():
            if found not in self._handles:
                raise DocumentError(
                    f"its plan reads {name!r}, which no entry before it offers (digest {found})"
                )
            known[name] = self._handles[found]
        plan, handles = loaded(entry["plan"], self._modules, known)
        structure = plan.structure
        for name, found in reads.items():
            handle = known[name]
            # a rank among twins is another where the twins are left out
            if id(handle) not in structure.by_handle or structure.of(handle).digest != found:
                raise DocumentError(
                    f"its plan says that it reads {name!r} of the digest {found!r}, and does not"
                )
        self._keep(entry, structure, handles)
        return plan

    def keep(self, entry: Mapping[str, Any], structure: Structure) -> None:
        """Keep what a spend offers that this process has written.

        As it is read, so that it reads the handles that earlier entries offer: those that were run
        are others, and twins of them to whoever reads both. Where an own mechanism cannot be read
        here, of the plan that was run.
        """
        try:
            self.read(entry)
        except PlanError:
            handles = {node.name: node.handle for node in structure}
            self._keep(entry, structure, handles)

    def _keep(
        self, entry: Mapping[str, Any], structure: Structure, handles: Mapping[str, Handle]
    ) -> None:
        for name, found in _digests(entry, "offers").items():
            handle = handles.get(name)
            node = None
            if handle is not None and id(handle) in structure.by_handle:
                node = structure.of(handle)
            if node is None or node.digest != found or node.loops:
                raise DocumentError(f"its plan has no node {name!r} of the digest {found!r}")
            self._handles.setdefault(found, node.handle)


def _digests(entry: Mapping[str, Any], what: str) -> dict[str, str]:
    found = entry[what]
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise DocumentError(f"{what!r} must name digests, got {found!r}")
    return found
