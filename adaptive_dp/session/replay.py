"""What steps of a session share: released values, data as they were first read, random parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from accountants.secret import Secret
from adaptive_dp.data.engine import FileFingerprint, file_fingerprint
from adaptive_dp.data.rows import SchemaError
from adaptive_dp.data.sources import columnar_file
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.handles import PublicSource, Release, SampleOperation, SourceOperation
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.passes import columns_needed
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.run import Run, bind_source, run_guarded
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
                self.values.setdefault(digests[node.name], run.opened[node.name])


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
            values[key] = value_to_json(run.opened[node.name] if raw is None else raw)
        except TypeError:
            # no form in a ledger: the value stays in this session, and has been paid for all the
            # same
            continue
    return values


@frozen(eq=False, repr=False)
class _ColumnsRead:
    """What steps have read so far of a Parquet file in memory.

    Parameters
    ----------
    rows
        With the columns that steps needed.
    names
        The names of these columns.
    fingerprint
        Tells whether the file has changed since the first of them was read.
    """

    rows: Secret[Any]
    names: frozenset[str]
    fingerprint: FileFingerprint


class DataCache:
    """The private values that all steps share: data as first read, random parts as first drawn.

    A partition's claim that its parts hold different people would be void between steps that read
    other rows, or drew the parts anew.

    Parameters
    ----------
    data
        What the session was given, by name.
    by_column
        Whether a step may read fewer columns than are declared. Not where rows are kept from one
        step to the next, which may need other columns.
    """

    def __init__(self, data: Mapping[str, Any], by_column: bool = True) -> None:
        self._data = {name: Secret(value) for name, value in data.items()}
        self._values: dict[Any, Secret[Any]] = {}
        self._by_column = by_column
        self._columns_read: dict[str, _ColumnsRead] = {}

    def clear(self) -> None:
        """Let go of everything."""
        self._data.clear()
        self._values.clear()
        self._columns_read.clear()

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
            If the session was given no data for a data set, or a file has changed.
        """
        needed = _columns_needed(run.structure, required) if self._by_column else {}
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
                bound = self._read(operation, digests[node.name], needed.get(node.name))
                run.bind({node.name: bound})

    def _read(
        self, source: SourceOperation | PublicSource, key: str, needed: frozenset[str] | None
    ) -> Secret[Any]:
        """Return what is bound to a source; of a Parquet file, the needed columns (None: all).

        Rows that stay in their files are read when a pass needs them, and only the columns that it
        needs. Arrays and frames are copied at once with all their declared columns: what a caller
        writes into them later must not change what steps read.
        """
        data = self._data[source.name]
        file = run_guarded(source.name, lambda: _columnar_path(data))
        declared = frozenset(getattr(source, "columns", ()))
        if file is None or not declared or not isinstance(source, SourceOperation):
            bound = self._values[key] = bind_source(source, data, copied=True)
            return bound
        wanted = declared if needed is None else needed & declared
        try:
            # before and after: a file that changes between two steps, or while one reads it, would
            # give them the columns of two data sets
            before = self._columns_read.get(key)
            fingerprint = file_fingerprint(file) if before is None else before.fingerprint
            if before is None or wanted - before.names:
                names = wanted if before is None else wanted - before.names
                fingerprint.check(file)
                rows = bind_source(source, data, columns=names, copied=True)
                fingerprint.check(file)
                if before is not None:
                    rows = _joined(source.name, before.rows, rows)
                    names |= before.names
                before = self._columns_read[key] = _ColumnsRead(rows, names, fingerprint)
            return before.rows
        except SchemaError as error:
            message = str(error)
        raise DataError(f"dataset {source.name!r}: {message}")

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


def _columnar_path(data: Secret[Any]) -> Path | None:
    try:
        return columnar_file(data.reveal())
    except SchemaError:  # `bind_source` refuses it, by name
        return None


def _joined(name: str, before: Secret[Any], new: Secret[Any]) -> Secret[Any]:
    return run_guarded(name, lambda: Secret(before.reveal().joined(new.reveal())))


def _columns_needed(
    structure: Structure, required: Collection[str]
) -> dict[str, frozenset[str] | None]:
    """Return the columns that a step reads of each data set; None for all."""
    needed = columns_needed(structure, required)
    for node in structure:
        operation = node.handle.operation
        kept = operation.random and node.handle.visibility == "private"
        # Random rows are kept, and a later step may read any column of them. The library's own
        # random operations return examples and teachers, which are made of the columns they name.
        if node.name in required and kept and not is_own(type(operation)):
            return dict.fromkeys(needed)
    return needed


def _keys(node: Node, digests: Mapping[str, str]) -> tuple[Any, ...]:
    """Return by what a bound or drawn value is kept: itself first, then what it is equal to."""
    # the serial tells apart two random nodes with the same digest; the digest finds the value again
    # for an equal node of a later plan, which has another serial
    itself = (node.handle.serial, tuple(digests[name] for name in node.inputs))
    return (itself, digests[node.name]) if node.handle.operation.random else (digests[node.name],)
