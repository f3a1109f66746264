"""What steps of a session share: released values, data as they were first read, random parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.handles import PublicSource, Release, SampleOperation, SourceOperation
from adaptive_dp.graph.nodes import Node
from adaptive_dp.graph.run import Run, bind_source
from adaptive_dp.session.entries import value_from_json, value_to_json
from adaptive_dp.session.plans import PROCESS_LOCAL, is_paid


class ReleasedValues:
    """Released values by session digest, which later steps read at no cost.

    The first value of a digest stays, whatever is drawn again: all steps read the same one.
    """

    def __init__(self) -> None:
        # as the analyst sees them, by session digest
        self._values: dict[str, Any] = {}
        # as JSON of the ledger, converted when a step reads them
        self._written: dict[str, Any] = {}

    def has(self, node: Node, key: str) -> bool:
        """Return whether a node is a release or a loop with a value from before.

        Parameters
        ----------
        node
            Any node of a plan.
        key
            Its session digest.
        """
        # only paid nodes: everything else is computed again from these, at no cost
        return is_paid(node) and (key in self._values or key in self._written)

    def value(self, node: Node, key: str) -> Any:
        """Return what was released before."""
        if key not in self._values:
            # the ledger has what the mechanism returned, which is presented as in the run
            value, operation = value_from_json(self._written[key]), node.handle.operation
            if isinstance(operation, Release):
                value = operation.presented(node.handle.inputs[0], value)
            self._values[key] = value
        return self._values[key]

    def read(self, written: Mapping[str, Any]) -> None:
        """Add the values of an entry of the ledger; the first of each digest stays."""
        for key, value in written.items():
            self._written.setdefault(key, value)

    def add(self, run: Run, digests: Mapping[str, str], new: Iterable[Node]) -> None:
        """Add what a run has released; the first of each digest stays."""
        for node in new:
            # unless another session has released it first: all must show the same draw
            if digests[node.name] not in self._written:
                self._values.setdefault(digests[node.name], run.public_values[node.name])


def values_to_json(run: Run, digests: Mapping[str, str], new: Iterable[Node]) -> dict[str, Any]:
    """Return what a run has released, by session digest, in the form of a ledger.

    A value that has no form there, or whose digest has no meaning in other processes, is left out:
    only this session can read it again.
    """
    values = {}
    for node in new:
        key, raw = digests[node.name], run.raw.get(node.name)
        # a digest with a mark of this process means nothing in another, and is not written
        if PROCESS_LOCAL in key:
            continue
        try:
            # the raw draw where there is one: the presented form can be recomputed from it
            values[key] = value_to_json(run.public_values[node.name] if raw is None else raw)
        except TypeError:
            continue  # no form in a ledger; it is paid for all the same
    return values


class DataCache:
    """The private values that all steps share: data as first read, random parts as first drawn.

    Parallel composition holds between steps only where they have the same parts of the same rows.
    Where each step read the data again, or drew random parts of its own, a person could be in
    different parts.

    Parameters
    ----------
    data
        What the session was given, by name.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: Secret(value) for name, value in data.items()}
        self._values: dict[Any, Secret[Any]] = {}

    def clear(self) -> None:
        """Drop all data and values."""
        self._data.clear()
        self._values.clear()

    def bind(self, run: Run, digests: Mapping[str, str], required: Collection[str]) -> None:
        """Bind to a run the data that it reads, and the private values drawn before.

        Parameters
        ----------
        run
            To bind to.
        digests
            The session digest of each node.
        required
            Names of the nodes that it computes.

        Raises
        ------
        DataError
            If the session was given no data for a data set.
        """
        for node in run.structure:
            operation = node.handle.operation
            if node.name not in required:
                continue
            # read or drawn before in this session: the same value for every step
            cached = next((k for k in _keys(node, digests) if k in self._values), None)
            if cached is not None:
                run.bind({node.name: self._values[cached]})
            elif isinstance(operation, SourceOperation | PublicSource):
                if operation.name not in self._data:
                    raise DataError(
                        f"the step reads the data set {operation.name!r}, the session has "
                        f"{sorted(self._data)}; pass it as Session({operation.name}=...)"
                    )
                # copied: a caller who changes the data later must not change what steps read
                bound = bind_source(operation, self._data[operation.name], copied=True)
                self._values[digests[node.name]] = bound
                run.bind({node.name: bound})

    def store(self, run: Run, digests: Mapping[str, str]) -> None:
        """Store what is private and random, so that later steps read the same values."""
        sampled: set[str] = set()
        for node in run.structure:
            operation = node.handle.operation
            # a sample, or what is computed of one (its first input is sampled)
            if isinstance(operation, SampleOperation) or sampled & set(node.inputs[:1]):
                # not stored: amplification by sampling needs a sample for each step that is paid
                # for, independent of those of earlier steps
                sampled.add(node.name)
            elif operation.random and node.name in run.secrets and not node.loops:
                # values inside of loops are drawn again in each round, and are never shared
                for key in _keys(node, digests):
                    self._values.setdefault(key, run.secrets[node.name])


def _keys(node: Node, digests: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the keys of a bound or drawn value: that of the node itself, then of its equals."""
    if not node.handle.operation.random:
        return (digests[node.name],)
    # the serial tells apart two random nodes with the same digest; by the digest an equal node of a
    # later plan, which has another serial, gets the same value
    return (node.handle.serial, tuple(digests[each] for each in node.inputs)), digests[node.name]
