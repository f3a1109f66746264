"""Passes over the data: which queries are computed together, and the columns that they read.

A query can be computed when the releases that it reads are there. So nodes have a *depth*: the
number of passes that must come before. Sums over rows of one depth and the same rows are one pass
over them, whatever filters and partitions the sums come after. Anything else (a quantile, say)
reads the rows for itself.

Passes and columns follow from the plan alone, so that neither how often the data are read nor what
is read of them depends on a private value. (A query that is not a sum, such as the search for a
minimum, may read its rows a number of times that depends on the data.)
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import wraps
from typing import TypeVar

from attrs import frozen

from adaptive_dp.graph.handles import (
    Handle,
    PartitionOperation,
    Release,
    SourceOperation,
)
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.operation import Operation

T = TypeVar("T")


@frozen
class DataPass:
    """One reading of rows, for the queries that are computed in it.

    Parameters
    ----------
    source
        The data set's name.
    queries
        The names of the nodes that are computed.
    columns
        The columns that are read, in the order of their declaration; None where all are. The column
        of units is read beside them, once for each data set that declares it.
    depth
        How many passes come before it, on whose releases it depends.
    rounds
        How often it is made: the number of rounds of the loops that it is in. 0 where that is
        drawn at random.
    rows
        The node whose rows are read, where contributions are bounded, units sampled or assigned to
        one part each; empty for the rows of the data set.
    once
        Whether one reading is all: it is for sums over rows. Any other query may read its rows
        several times, and how often may depend on them.
    """

    source: str
    queries: tuple[str, ...]
    columns: tuple[str, ...] | None
    depth: int = 0
    rounds: int = 1
    rows: str = ""
    once: bool = True

    def __str__(self) -> str:
        names = "all columns" if self.columns is None else _listed(self.columns) or "no column"
        often = f", in each of {self.rounds} rounds" if self.rounds > 1 else ""
        often = ", in a random number of rounds" if self.rounds == 0 else often
        where = f"{self.source} ({self.rows})" if self.rows else self.source
        alone = "" if self.once else ", by itself"
        return f"{where}: {_listed(self.queries)}{alone}; reads {names}{often}"


MAX_LISTED = 12
"""Names that are listed before the rest is counted."""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")


def is_row_sum(operation: Operation) -> bool:
    """Return whether an operation's value is one sum over rows."""
    # a class that defines `run` too is computed by that
    kind = type(operation)
    return kind.row_sum is not Operation.row_sum and kind.run is Operation.run


def _once(function: Callable[[Structure], T]) -> Callable[[Structure], T]:
    """Compute a function of a plan's nodes for its first run; what it returns stays as it is."""

    @wraps(function)
    def known(structure: Structure) -> T:
        key = "passes", function.__name__
        if key not in structure.computed:
            structure.computed[key] = function(structure)
        result: T = structure.computed[key]
        return result

    return known


def depths(structure: Structure) -> dict[str, int]:
    """Return how many passes come before each node's."""
    result: dict[str, int] = {}
    for node in structure:
        before = max((result[name] for name in node.inputs), default=0)
        # what is released is there when the pass that computed its query is over
        released = isinstance(node.handle.operation, Release | Loop)
        result[node.name] = before + released
    return result


@_once
def turns(structure: Structure) -> dict[str, tuple[int, int]]:
    """Return when each node is computed: its depth, and in it 1 for sums and what reads them.

    What sums over rows read thus comes before all sums of the same depth, which are one pass; and
    nothing is computed before its turn, so that the node at which a run was interrupted is certain.
    """
    depth, result = depths(structure), dict[str, tuple[int, int]]()
    for node in structure:
        own = depth[node.name], int(is_row_sum(node.handle.operation))
        # never before an input: turns compare by depth first, then sums after all others
        result[node.name] = max([own, *(result[name] for name in node.inputs)])
    return result


def in_run_order(nodes: Iterable[Node], turn: Mapping[str, tuple[int, int]]) -> list[Node]:
    """Return nodes in the order in which a run computes them: turn by turn."""
    return sorted(nodes, key=lambda node: turn[node.name])  # stable: as they are within a turn


Origins = Mapping[str, frozenset[str]]
"""Of computed columns, by name, the stored columns that they are made of."""


def _origins(structure: Structure) -> dict[str, Origins]:
    """Return the computed columns of the rows that each private node makes, or of its input's."""
    result: dict[str, Origins] = {}
    for node in structure:
        below = result.get(node.inputs[0], {}) if node.inputs else {}
        added = node.handle.operation.computed_columns()
        if added:
            below = {**below, **{name: _stored(made, below) for name, made in added.items()}}
        if below:
            result[node.name] = below
    return result


def _stored(names: frozenset[str], origins: Origins) -> frozenset[str]:
    """Return the stored columns that are read where columns are."""
    if not origins:
        return names
    return frozenset[str]().union(*(origins.get(name, {name}) for name in names))


def _own_columns(node: Node, origins: Mapping[str, Origins]) -> frozenset[str] | None:
    """Return the stored columns that an operation reads of its rows itself; None for all."""
    names = node.handle.operation.columns_read()
    below = origins.get(node.inputs[0], {}) if node.inputs else {}
    return None if names is None else _stored(names, below)


@_once
def columns_read(structure: Structure) -> dict[str, frozenset[str] | None]:
    """Return the columns on which each private value depends; None where that is not known."""
    result: dict[str, frozenset[str] | None] = {}
    origins = _origins(structure)
    for node in structure:
        own = _own_columns(node, origins)
        inputs = [result[name] for name in node.inputs if name in result]
        if node.handle.visibility != "private" or isinstance(node.handle.operation, Release):
            own, inputs = frozenset(), []  # of released values no column is read
        above = [columns for columns in inputs if columns is not None]
        # one input that may read any column makes the answer unknown
        complete = own is not None and len(above) == len(inputs)
        result[node.name] = own.union(*above) if own is not None and complete else None
    return result


def columns_needed(
    structure: Structure, computed: Container[str] | None = None
) -> dict[str, frozenset[str] | None]:
    """Return the columns that a run reads of each data set, by its node; None for all.

    They are what all private nodes below the data set read.

    Parameters
    ----------
    structure
        The plan's nodes.
    computed
        The names of the nodes that are computed; None for all.
    """
    needed: dict[str, set[str] | None] = {}
    sources: dict[str, frozenset[str]] = {}  # the data sets above each private node
    origins = _origins(structure)
    for node in structure:
        if computed is not None and node.name not in computed:
            continue
        if isinstance(node.handle.operation, SourceOperation):
            needed[node.name], sources[node.name] = set(), frozenset([node.name])
        elif node.handle.visibility == "private":
            above = frozenset[str]().union(*(sources.get(name, ()) for name in node.inputs))
            own = _own_columns(node, origins)
            for name in above:
                columns = needed[name]
                if columns is None or own is None:
                    needed[name] = None
                else:
                    columns |= own
            sources[node.name] = above
    return {name: None if c is None else frozenset(c) for name, c in needed.items()}


def passes(structure: Structure) -> list[DataPass]:
    """Return the passes of a run over its data sets, in their order."""
    turn, columns = turns(structure), columns_read(structure)
    together: dict[tuple[object, ...], list[Node]] = {}
    for node in structure:
        rows = _rows_read(structure, node)
        if rows is not None:
            alone = None if is_row_sum(node.handle.operation) else node.name
            together.setdefault((rows.name, turn[node.name], node.loops, alone), []).append(node)
    result = []
    for nodes in sorted(together.values(), key=lambda each: turn[each[0].name]):
        rows = _rows_read(structure, nodes[0])
        assert rows is not None
        source = structure.lineage(rows)[0].handle.operation
        assert isinstance(source, SourceOperation)
        read = [columns[node.name] for node in nodes]
        listed = [each for each in read if each is not None]
        names = frozenset[str]().union(*listed)
        declared = getattr(source, "columns", {})
        result.append(
            DataPass(
                source.name,
                tuple(node.name for node in nodes),
                tuple(c for c in declared if c in names) if len(listed) == len(read) else None,
                turn[nodes[0].name][0],
                _rounds(structure, nodes[0]),
                "" if rows.handle.operation is source else rows.name,
                is_row_sum(nodes[0].handle.operation),
            )
        )
    return result


def _rows_read(structure: Structure, node: Node) -> Node | None:
    """Return the node whose rows a query reads; None where it reads what was computed of them.

    Filters and parts select rows while they are read. A node makes rows of its own where it needs
    all rows of a unit at once.
    """
    if node.handle.visibility != "private" or not node.handle.operation.is_computed:
        return None
    before = structure.lineage(node)[:-1]
    if any(each.handle.operation.is_computed for each in before):
        return None
    return next(each for each in reversed(before) if _makes_rows(each.handle))


def _makes_rows(handle: Handle) -> bool:
    if isinstance(handle.operation, PartitionOperation):
        return bool(handle.domain.whole_units)
    return handle.operation.makes_rows


def _rounds(structure: Structure, node: Node) -> int:
    total = 1
    for name in node.loops:
        loop = structure.nodes[name].handle.operation
        assert isinstance(loop, Loop)
        total *= getattr(loop, "times", 0)
    return total
