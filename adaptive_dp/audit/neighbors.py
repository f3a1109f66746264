"""What an audit runs: a mechanism on each of two neighbouring data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from accountants.errors import integer
from accountants.numerics import Array
from accountants.secret import Secret
from adaptive_dp.data import MemoryRows, Reading, Rows, open_rows, read_rows
from adaptive_dp.graph.handles import Handle, Release
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import Run, bind_sources
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

# -----------------------------------------------------------------------------
# Samplers: each runs a mechanism many times on one data set. The claim that an audit tests bounds
# how well the two samplers of a `Neighbors` can be told apart by their outcomes.


Outcomes = Array | Sequence[Any]
"""Many outcomes: an array whose first axis counts them, or a sequence of any values.

A value may be a number, a str, None, a bool, an array, or tuples, lists and mappings of these, of
any length. NaN and infinity are allowed.
"""

Sampler = Callable[[int, Stream], Outcomes]
"""``sampler(count, stream)``: as many independent outcomes, all randomness from the stream."""

LogRatio = Callable[[Outcomes], Array]
"""The log-likelihood ratio of outcomes, first data set against second, shape (count,).

A wrong one costs power, never validity: bounds rest on counts of the test draws.
"""


@frozen
class Neighbors:
    """A pair of neighbouring data sets, as two samplers.

    Parameters
    ----------
    words
        A description of the two data sets for the reader of the audit. Synthetic or public data
        only: the description and counts of outcomes are part of the result.
    first, second
        The samplers. The claim must hold in both directions.
    log_ratio
        Where the likelihood is known.

    Examples
    --------
    >>> from adaptive_dp.noise.stream import SeededStream
    >>> def noisy(total):
    ...     return lambda count, stream: total + stream.laplace(2.0, (count,))
    >>> pair = Neighbors("a sum of 0, or of 1", noisy(0.0), noisy(1.0))
    >>> pair.first(1_000, SeededStream(1)).shape
    (1000,)
    """

    words: str
    first: Sampler
    second: Sampler
    log_ratio: LogRatio | None = None


def check_seed(seed: int | None) -> int | None:
    """Return a seed as an int, or None.

    Raises
    ------
    DomainError
        If it is not an int of at least 0.
    """
    return None if seed is None else integer("seed", seed, least=0)


def stream(seed: int | None, *place: int) -> Stream:
    """Return secure randomness, or for a seed the stream of its own for this place."""
    return SecureStream() if seed is None else SeededStream(seed, *place)


# -----------------------------------------------------------------------------
# The private value of a query on made-up data, for searches and tests.


def release_of(plan: Pipeline, query: Handle | None = None) -> tuple[Handle, Handle]:
    """Return the release of a query in a plan, and the query; by default the first release."""
    # in the plan's order, of which the first is the default
    releases = [n.handle for n in plan.structure if isinstance(n.handle.operation, Release)]
    release = next(h for h in releases if query is None or h.inputs[0] is query)
    return release, release.inputs[0]


def query_value(plan: Pipeline, query: Handle, data: Mapping[str, Any], seed: int = 0) -> Any:
    """Return the private value of a query of a plan.

    Parameters
    ----------
    plan
        A plan in which the query is released.
    query
        The query's handle.
    data
        Made-up data, by the data sets' names.
    seed
        Of samples and releases that the query depends on.
    """
    structure = plan.structure
    run = Run(structure, seed)
    run.bind(bind_sources(structure, {name: Secret(each) for name, each in data.items()}))
    target = structure.of(query)
    for node in structure:
        # the nodes inside a loop are computed by the loop itself
        if not node.loops:
            run.compute_node(node)
        # what comes later cannot be an input of the query
        if node.name == target.name:
            break
    return run.secrets[target.name].reveal()


# -----------------------------------------------------------------------------
# Data of the user that many runs of an audit read: opened once.


@define(eq=False, repr=False)
class FixedData:
    """Data that are opened once; all runs share the rows that are in memory.

    Files that a plan reads in batches are opened once too, and read anew by each pass over them.

    Parameters
    ----------
    data
        Whatever a data set can be bound to.
    """

    data: Any
    _opened: dict[Any, Rows] = field(factory=dict, init=False)

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> Rows:
        """Return the rows as a data set reads them; nothing ever writes to their columns."""
        # a data set may be read in several ways; each is opened once
        key = (tuple(columns.items()), unit)
        if key not in self._opened:
            self._opened[key] = open_rows(self.data, columns, unit)
        return self._opened[key]

    def in_memory(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows in memory; those that a plan reads in batches are read anew."""
        rows = self.open_rows(columns, unit)
        return rows if isinstance(rows, MemoryRows) else read_rows(self.data, columns, unit)
