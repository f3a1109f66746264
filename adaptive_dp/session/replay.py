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
    """Released values by session digest: public, and known at no cost to all later steps.

    A value is held as this process computed it, or as the ledger has it until it is asked for.
    The first value of a digest stays: what follows from it stays true whatever is drawn again.
    """

    def __init__(self) -> None:
        # as presented to the analyst, by session digest
        self.values: dict[str, Any] = {}
        # as JSON of the ledger, read only when a step asks
        self._written: dict[str, Any] = {}

    def has(self, node: Node, key: str) -> bool:
        """Return whether a release or a loop was made before.

        Parameters
        ----------
        node
            Any node of a plan.
        key
            Its session digest.
        """
        # only paid nodes: everything else is computed again from these, at no cost
        return is_paid(node) and (key in self.values or key in self._written)

    def value(self, node: Node, key: str) -> Any:
        """Return what was released before."""
        if key not in self.values:
            # the ledger holds the raw value; post-processing to its form is done at each reading
            value, operation = value_from_json(self._written[key]), node.handle.operation
            if isinstance(operation, Release):
                value = operation.presented(node.handle.inputs[0], value)
            self.values[key] = value
        return self.values[key]

    def read(self, written: Mapping[str, Any]) -> None:
        """Take in the values of an entry of the ledger; the first of each stays."""
        for key, value in written.items():
            self._written.setdefault(key, value)

    def add(self, run: Run, digests: Mapping[str, str], new: Iterable[Node]) -> None:
        """Take in what a run has released; the first of each stays."""
        for node in new:
            # values of the ledger come first: all sessions of one ledger must show the same draw
            if digests[node.name] not in self._written:  # else another session released it first
                self.values.setdefault(digests[node.name], run.public_values[node.name])


def values_to_json(run: Run, digests: Mapping[str, str], new: Iterable[Node]) -> dict[str, Any]:
    """Return what a run has released, by session digest, as a ledger keeps it.

    A value with no form there, or a digest with no meaning in other processes, is left out: it is
    known to this session alone.
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
            # no form in a ledger: the value stays in this session, and has been paid for all the
            # same
            continue
    return values


class DataCache:
    """The private values that all steps share: data as first read, random parts as first drawn.

    A partition's claim that its parts hold different people would be void between steps that read
    other rows, or drew the parts anew.

    Parameters
    ----------
    data
        What the session was given, by name.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: Secret(value) for name, value in data.items()}
        self._values: dict[Any, Secret[Any]] = {}

    def clear(self) -> None:
        """Let go of everything."""
        self._data.clear()
        self._values.clear()

    def bind(self, run: Run, digests: Mapping[str, str], required: Collection[str]) -> None:
        """Give a run what it reads of data, and of what was drawn before.

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
            # drawn or read before in this session: every step reads the very same value
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

    def keep(self, run: Run, digests: Mapping[str, str]) -> None:
        """Keep what is private and random, so that later steps read the very same."""
        sampled: set[str] = set()
        for node in run.structure:
            operation = node.handle.operation
            # a sample, or what is computed of one (its first input is sampled)
            if isinstance(operation, SampleOperation) or sampled & set(node.inputs[:1]):
                # not kept: amplification by sampling needs a sample for each step that is paid
                # for, independent of those of earlier steps
                sampled.add(node.name)
            elif operation.random and node.name in run.secrets and not node.loops:
                # values inside of loops are drawn anew in each round, and are never shared
                for key in _keys(node, digests):
                    self._values.setdefault(key, run.secrets[node.name])


def _keys(node: Node, digests: Mapping[str, str]) -> tuple[Any, ...]:
    """Return by what a bound or drawn value is kept: itself first, then what it is equal to."""
    # the serial tells apart two random nodes with the same digest; the digest finds the value again
    # for an equal node of a later plan, which has another serial
    itself = (node.handle.serial, tuple(digests[name] for name in node.inputs))
    return (itself, digests[node.name]) if node.handle.operation.random else (digests[node.name],)
