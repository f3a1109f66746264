"""What an audit runs: a mechanism on each of two neighbouring data sets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from accountants.errors import DomainError
from accountants.numerics import Array
from accountants.secret import Secret
from adaptive_dp.data import MemoryRows, Reading, Rows, open_rows, read_rows
from adaptive_dp.graph.handles import Handle, Release
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import Run, bind_sources
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream

# -----------------------------------------------------------------------------
# What an audit runs: a mechanism on each of two neighbouring data sets.
#
# A *sampler* runs it so many times on one data set and returns the outcomes; a *side* is a sampler;
# the two sides of a `Neighbors` are the laws that a claim says can hardly be told apart.


Outcomes = Array | Sequence[Any]
"""Many outcomes: an array whose first axis counts them, or a sequence of any values.

A value may be a number, a text, None, a bool, an array, or tuples, lists and mappings of these, of
any length. NaN and infinity are values like others.
"""

Sampler = Callable[[int, Stream], Outcomes]
"""``sampler(count, stream)``: as many independent outcomes, all randomness from the stream."""

LogRatio = Callable[[Outcomes], Array]
"""The log-likelihood ratio of outcomes, first side against second, shape (count,).

It decides how much is found, never whether what is found is true: a wrong one costs power alone.
"""


@frozen
class Neighbors:
    """A pair of neighbouring data sets, as two samplers.

    Parameters
    ----------
    words
        What the two data sets are, for the reader of the audit. Synthetic or public data only: the
        words, and how often each outcome was seen, are part of the result.
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
        If it is no whole number of at least 0.
    """
    if seed is None:
        return None
    number = None if isinstance(seed, bool) or not hasattr(seed, "__index__") else seed.__index__()
    if number is None or number < 0:
        raise DomainError(f"seed must be a whole number of at least 0, or None, got {seed!r}")
    return number


def stream(seed: int | None, *place: int) -> Stream:
    """Return the operating system's randomness, or for a seed a stream of its own per place."""
    return SecureStream() if seed is None else SeededStream(seed, *place)


# -----------------------------------------------------------------------------
# A query's private value on a data set, for audits and tests on made-up data.


def release_of(plan: Pipeline, query: Handle | None = None) -> tuple[Handle, Handle]:
    """Return the release of a query in a plan, and the query; of the only one by default."""
    found = [n.handle for n in plan.structure if isinstance(n.handle.operation, Release)]
    release = next(h for h in found if query is None or h.inputs[0] is query)
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
        if not node.loops:
            run.value(node)
        if node.name == target.name:
            break
    return run.secrets[target.name].reveal()


# -----------------------------------------------------------------------------
# Given data that many runs of an audit read, each in turn: from a file once.


@define(eq=False, repr=False)
class FixedData:
    """Data that are opened once: rows in memory are kept, and shared by all who read them.

    Files that a plan reads in batches are opened once too, and read anew by each pass over them.

    Parameters
    ----------
    data
        What a data set reads.
    """

    data: Any
    _found: dict[Any, Rows] = field(factory=dict, init=False)

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> Rows:
        """Return the rows as a data set reads them; nothing ever writes to their columns."""
        key = (tuple(columns.items()), unit)
        if key not in self._found:
            self._found[key] = open_rows(self.data, columns, unit)
        return self._found[key]

    def in_memory(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows in memory; those that a plan reads in batches are not kept there."""
        found = self.open_rows(columns, unit)
        return found if isinstance(found, MemoryRows) else read_rows(self.data, columns, unit)
