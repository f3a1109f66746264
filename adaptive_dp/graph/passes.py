"""Passes over the data: which queries are computed together, and the columns that they read.

A query can be computed when the releases that it reads are there. So nodes have a *depth*: the
number of passes that must come before. Queries of one depth that are sums over rows of the same
data set are one pass over it; anything else (a quantile, say) reads the data for itself.

Depths and columns follow from the plan alone, so that neither how often the data are read nor what
is read of them tells anything about a private value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import frozen

from adaptive_dp.graph.handles import Release, SourceOperation
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.operation import Operation


@frozen
class DataPass:
    """One reading of a data set.

    Parameters
    ----------
    source
        The data set's name.
    queries
        The names of the nodes that are computed in it.
    columns
        The columns that are read, in the order of their declaration; None where all are.
    depth
        How many passes come before it, on whose releases it depends.
    rounds
        How often it is made: the number of rounds of the loops that it is in. 0 where that is
        drawn at random.
    """

    source: str
    queries: tuple[str, ...]
    columns: tuple[str, ...] | None
    depth: int = 0
    rounds: int = 1

    def __str__(self) -> str:
        names = "all columns" if self.columns is None else ", ".join(self.columns) or "no column"
        often = "" if self.rounds == 1 else f" ({self.rounds or 'some'} times)"
        return f"{self.source}: {', '.join(self.queries)}; reads {names}{often}"


def is_row_sum(operation: Operation) -> bool:
    """Return whether an operation's value is one sum over rows."""
    # one that defines `run` too means that
    kind = type(operation)
    return kind.row_sum is not Operation.row_sum and kind.run is Operation.run


def depths(structure: Structure) -> dict[str, int]:
    """Return how many passes come before each node's."""
    result: dict[str, int] = {}
    for node in structure:
        before = max((result[name] for name in node.inputs), default=0)
        # what is released is there when the pass that computed its query is over
        released = isinstance(node.handle.operation, Release | Loop)
        result[node.name] = before + released
    return result


def in_run_order(nodes: Iterable[Node], depth: Mapping[str, int]) -> list[Node]:
    """Return nodes in the order in which a run computes them: pass by pass."""
    return sorted(nodes, key=lambda node: depth[node.name])  # stable: as they are within a pass


def columns_read(structure: Structure) -> dict[str, frozenset[str] | None]:
    """Return the columns on which each private value depends; None where that is not known."""
    result: dict[str, frozenset[str] | None] = {}
    for node in structure:
        own = node.handle.operation.columns_read()
        inputs = [result[name] for name in node.inputs if name in result]
        if node.handle.visibility != "private" or isinstance(node.handle.operation, Release):
            own, inputs = frozenset(), []  # of released values no column is read
        known = [each for each in inputs if each is not None]
        complete = own is not None and len(known) == len(inputs)
        result[node.name] = own.union(*known) if own is not None and complete else None
    return result


def columns_needed(structure: Structure) -> dict[str, frozenset[str] | None]:
    """Return the columns that a run reads of each data set, by its node; None for all.

    They are what all private nodes below the data set read, whichever of them are computed.
    """
    needed: dict[str, set[str] | None] = {}
    sources: dict[str, frozenset[str]] = {}  # the data sets above each private node
    for node in structure:
        if isinstance(node.handle.operation, SourceOperation):
            needed[node.name], sources[node.name] = set(), frozenset([node.name])
        elif node.handle.visibility == "private":
            above = frozenset[str]().union(*(sources.get(name, ()) for name in node.inputs))
            own = node.handle.operation.columns_read()
            for name in above:
                known = needed[name]
                if known is None or own is None:
                    needed[name] = None
                else:
                    known |= own
            sources[node.name] = above
    return {k: None if known is None else frozenset(known) for k, known in needed.items()}


def passes(structure: Structure) -> list[DataPass]:
    """Return the passes of a run over its data sets, in their order."""
    depth, columns = depths(structure), columns_read(structure)
    together: dict[tuple[object, ...], list[Node]] = {}
    for node in structure:
        if node.handle.visibility == "private" and _reads_rows(structure, node):
            start = structure.lineage(node)[0].name
            alone = None if is_row_sum(node.handle.operation) else node.name
            key = (start, depth[node.name], node.loops, alone)
            together.setdefault(key, []).append(node)
    result = []
    for nodes in sorted(together.values(), key=lambda each: depth[each[0].name]):
        source = structure.lineage(nodes[0])[0].handle.operation
        assert isinstance(source, SourceOperation)
        read = [columns[node.name] for node in nodes]
        known = [each for each in read if each is not None]
        declared = getattr(source, "columns", {})
        names = frozenset[str]().union(*known)
        result.append(
            DataPass(
                source.name,
                tuple(node.name for node in nodes),
                tuple(c for c in declared if c in names) if len(known) == len(read) else None,
                depth[nodes[0].name],
                _rounds(structure, nodes[0]),
            )
        )
    return result


def _reads_rows(structure: Structure, node: Node) -> bool:
    """Return whether a node's value is computed from rows, and not from what was computed of them.

    Rows are also read, for their units alone, where contributions are bounded or units sampled.
    """
    *before, last = structure.lineage(node)
    return last.handle.operation.is_computed and not any(
        each.handle.operation.is_computed for each in before
    )


def _rounds(structure: Structure, node: Node) -> int:
    total = 1
    for name in node.loops:
        loop = structure.nodes[name].handle.operation
        assert isinstance(loop, Loop)
        total *= getattr(loop, "times", 0)
    return total
