"""Releases, each with its private chain from the data to the query."""

from __future__ import annotations

from attrs import field, frozen

from accountants import PrivacyLoss
from adaptive_dp.graph.change import Change
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.roles import PartOperation, SampleOperation, SourceOperation, part_title
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure


@frozen(eq=False)
class Charge:
    """A release with the way from the data to its query.

    Parameters
    ----------
    node
        The release.
    chain
        Nodes from the data set to the query, then loops where they begin.
    """

    node: Node
    chain: tuple[Node, ...]
    losses: dict[tuple[Change, ...], PrivacyLoss] = field(factory=dict, init=False, repr=False)
    """What `adaptive_dp.graph.compile` has computed, by the changes that arrive at the query."""

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that releases."""
        operation = self.node.handle.operation
        assert isinstance(operation, Release)
        return operation.mechanism

    @property
    def source(self) -> SourceOperation:
        """The data set at the beginning of the chain."""
        operation = self.chain[0].handle.operation
        assert isinstance(operation, SourceOperation)
        return operation


def releases(structure: Structure) -> list[Charge]:
    """Return every release, in order."""
    return [
        _charge(structure, node) for node in structure if isinstance(node.handle.operation, Release)
    ]


def regions(charge: Charge) -> list[str]:
    """Return the regions around a release, for people."""
    found = []
    for node in charge.chain[1:]:
        operation = node.handle.operation
        if isinstance(operation, PartOperation):
            found.append(part_title(node.handle))
        elif isinstance(operation, SampleOperation | Loop):
            found.append(operation.label())
    return found


def _charge(structure: Structure, node: Node) -> Charge:
    """Return the chain of a release, with the loops that it is in put where they begin."""
    chain = structure.lineage(structure.of(node.handle.inputs[0]))
    with_loops: list[Node] = []
    entered: set[str] = set()
    for step in [*chain, node]:
        new = [loop for loop in step.loops if loop not in entered]
        entered.update(new)
        begins = [structure.nodes[loop] for loop in new]
        if step is node:
            with_loops += begins
        elif isinstance(
            step.handle.operation, PartOperation
        ):  # which part is fixed: the loop is inside
            with_loops += [step, *begins]
        else:
            with_loops += [*begins, step]
    last = with_loops[-1]
    if isinstance(last.handle.operation, Loop):  # the release alone is inside: query last
        query = chain[-1]
        with_loops.remove(query)
        with_loops.append(query)
    return Charge(node, tuple(with_loops))
