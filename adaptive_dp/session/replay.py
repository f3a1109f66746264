"""What steps of a session share: released values, data as they were first read, random parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from accountants.secret import Secret
from adaptive_dp.data.engine import FileFingerprint, file_fingerprint
from adaptive_dp.data.rows import SchemaError
from adaptive_dp.data.sources import columnar_file, is_table
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.handles import PublicSource, Release, SampleOperation, SourceOperation
from adaptive_dp.graph.nodes import Node, Structure
from adaptive_dp.graph.passes import columns_needed
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.run import Run, bind_source, run_guarded
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

    def drawn(self, key: str) -> Any:
        """Return what a mechanism has drawn, before it was presented; None where it is unknown."""
        return value_from_json(self._written[key]) if key in self._written else None

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


@frozen(eq=False, repr=False)
class _ColumnsRead:
    """What steps have read so far of a table or a Parquet file.

    Parameters
    ----------
    rows
        With the columns that steps needed.
    names
        The names of these columns.
    fingerprint
        Tells whether the file has changed since the first of them was read; None for a table.
    """

    rows: Secret[Any]
    names: frozenset[str]
    fingerprint: FileFingerprint | None


class DataCache:
    """The private values that all steps share: data as first read, random parts as first drawn.

    Parallel composition holds between steps only where they have the same parts of the same rows.
    Where each step read the data again, or drew random parts of its own, a person could be in
    different parts.

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
        """Drop all data and values."""
        self._data.clear()
        self._values.clear()
        self._columns_read.clear()

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
            If the session was given no data for a data set, or a file has changed.
        """
        needed = _columns_needed(run.structure, required) if self._by_column else {}
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
                bound = self._read(operation, digests[node.name], needed.get(node.name))
                run.bind({node.name: bound})

    def _read(
        self, source: SourceOperation | PublicSource, key: str, needed: frozenset[str] | None
    ) -> Secret[Any]:
        """Return what is bound to a source; of a table or a Parquet file, the needed columns.

        Rows that stay in their files are read when a pass needs them, and only the columns that it
        needs (``needed``; None: all). A column of an array or a frame is copied when a step first
        needs it: what a caller writes into it later must not change what steps read. If by then a
        column that was read before has changed, the step is refused. So what all steps have read
        is always the table as it was at one time, and a person is in one part of it.
        """
        data = self._data[source.name]
        declared = frozenset(getattr(source, "columns", ()))
        table, file = run_guarded(source.name, lambda: _by_columns(data))
        if not (table or file) or not declared or not isinstance(source, SourceOperation):
            bound = self._values[key] = bind_source(source, data, copied=True)
            return bound
        wanted = declared if needed is None else needed & declared
        try:
            before = self._columns_read.get(key)
            if before is None or wanted - before.names:
                if file is None:
                    read = _more_of_table(source, data, wanted, before)
                else:
                    read = _more_of_file(source, data, file, wanted, before)
                before = self._columns_read[key] = read
            return before.rows
        except SchemaError as error:
            message = str(error)
        raise DataError(f"dataset {source.name!r}: {message}")

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


def _by_columns(data: Secret[Any]) -> tuple[bool, Path | None]:
    """Return whether data are a table, and the path of a Parquet file that is read into memory."""
    try:
        return is_table(data.reveal()), columnar_file(data.reveal())
    except SchemaError:  # `bind_source` refuses it, by name
        return False, None


def _more_of_table(
    source: SourceOperation, data: Secret[Any], wanted: frozenset[str], before: _ColumnsRead | None
) -> _ColumnsRead:
    """Return what was read of a table, with the wanted columns too."""
    if before is None:
        return _ColumnsRead(bind_source(source, data, columns=wanted, copied=True), wanted, None)
    names = before.names | wanted
    now = bind_source(source, data, columns=names)
    earlier = before.rows
    more = run_guarded(source.name, lambda: Secret(earlier.reveal().widened(now.reveal())))
    if more.reveal() is None:
        raise SchemaError(
            "the data have changed since an earlier step read other columns; give each session a "
            "table that nothing is written into"
        )
    return _ColumnsRead(more, names, None)


def _more_of_file(
    source: SourceOperation,
    data: Secret[Any],
    file: Path,
    wanted: frozenset[str],
    before: _ColumnsRead | None,
) -> _ColumnsRead:
    """Return what was read of a Parquet file, with the wanted columns too."""
    # before and after: a file that changes between two steps, or while one reads it, would
    # give them the columns of two data sets
    fingerprint = before.fingerprint if before else None
    fingerprint = fingerprint or file_fingerprint(file)
    fingerprint.check(file)
    names = wanted - before.names if before else wanted
    rows = bind_source(source, data, columns=names, copied=True)
    fingerprint.check(file)
    if before is not None:
        earlier, new = before.rows, rows
        rows = run_guarded(source.name, lambda: Secret(earlier.reveal().joined(new.reveal())))
        names |= before.names
    return _ColumnsRead(rows, names, fingerprint)


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
    """Return the keys of a bound or drawn value: that of the node itself, then of its equals."""
    if not node.handle.operation.random:
        return (digests[node.name],)
    # the serial tells apart two random nodes with the same digest; by the digest an equal node of a
    # later plan, which has another serial, gets the same value
    return (node.handle.serial, tuple(digests[each] for each in node.inputs)), digests[node.name]
