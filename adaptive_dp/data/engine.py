"""Engines: who holds the parts of a data set, and what can be asked of them.

A *part* is a piece of a file or a partition of a cluster; parts are never all in memory. A *task*
is a function of the selected rows of one part. An *engine* holds the parts and runs tasks on them
(`adaptive_dp.data.local`, `adaptive_dp.data.dask_engine`).

A task reads nothing but its part, and a file that changes between two passes is refused. So a task
that is run again, after a worker was lost, gives what the first run would have given, and each
part counts once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.data.rows import Columns, Reading, SchemaError
from adaptive_dp.data.sampling import PartSample

Bools = NDArray[np.bool_]
RowFilter = Callable[[Columns], Bools]


# --- parts and tasks


class Part(Protocol):
    """A piece of a file, or of anything that can be read piece by piece."""

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield its rows in blocks; the same rows at every call."""
        ...

    def rows(self) -> int | None:
        """Return how many rows it has, if that is known without reading it."""
        ...


@frozen(eq=False, repr=False)
class RowMask:
    """Which rows of a part are selected.

    Parameters
    ----------
    length
        How many rows the part has.
    bits
        Packed, eight rows a byte; None where all are selected.
    count
        How many are selected.
    """

    length: int
    bits: NDArray[np.uint8] | None
    count: int

    @staticmethod
    def of(mask: Bools) -> RowMask:
        """Return the packed form of a mask of shape (length,)."""
        count = int(np.count_nonzero(mask))
        return RowMask(len(mask), None if count == len(mask) else np.packbits(mask), count)

    @property
    def mask(self) -> Bools:
        """Shape (length,)."""
        if self.bits is None:
            return np.ones(self.length, dtype=np.bool_)
        return np.unpackbits(self.bits, count=self.length).view(np.bool_)

    def narrowed(self, chosen: Bools) -> RowMask:
        """Return the mask of some of the selected rows; ``chosen`` has shape (count,)."""
        mask = self.mask
        mask[mask] = chosen
        return RowMask.of(mask)


@frozen(eq=False, repr=False)
class Task:
    """Work on the selected rows of one part: a function of that part alone.

    Parameters
    ----------
    work
        What is computed.
    filters
        Applied last, in order.
    mask
        Which rows are selected; None for all.
    sample
        Selects some of these rows, before the filters; None for all.
    """

    work: Callable[[SelectedRows], Any]
    filters: tuple[RowFilter, ...] = ()
    mask: RowMask | None = None
    sample: PartSample | None = None

    def __call__(self, blocks: Iterator[MemoryRows]) -> Any:
        """Return the result for a part, given its rows in blocks of any size."""
        return self.work(SelectedRows(blocks, self.filters, self.mask, self.sample))


class SelectedRows:
    """The selected rows of a part by blocks; `units` of a block are positions in the part."""

    def __init__(
        self,
        blocks: Iterator[MemoryRows],
        filters: tuple[RowFilter, ...],
        mask: RowMask | None,
        sample: PartSample | None = None,
    ) -> None:
        self._blocks, self._filters, self._mask, self._sample = blocks, filters, mask, sample
        self.length = 0

    def __iter__(self) -> Iterator[MemoryRows]:
        mask = None
        if self._mask is not None and not (self._mask.bits is None and self._sample is None):
            mask = self._mask.mask
            if self._sample is not None:
                mask[mask] = self._sample.selected()
        for block in self._blocks:
            start, self.length = self.length, self.length + block.length
            rows = MemoryRows(block.columns, range(start, self.length))
            if mask is not None:
                if self.length > len(mask):
                    break
                rows = rows.take(mask[start : self.length])
            for keep in self._filters:
                rows = rows.take(np.asarray(keep(rows.columns), dtype=np.bool_))
            yield rows
        # the mask holds positions: in a part of another length they would be other people's rows
        if self._mask is not None and self.length != self._mask.length:
            raise SchemaError("the data changed while they were read")


class NotSent:
    """What takes the place of rows in a task that was sent elsewhere: nothing that can be read."""


Memory = dict[Any, Any]
"""The partial results of a pass that is under way. Only the engine interprets them."""


class Engine(Protocol):
    """Holds the parts; their order is the order of the rows."""

    @property
    def count(self) -> int:
        """How many parts there are."""
        ...

    @property
    def columns(self) -> dict[str, Reading]:
        """What is read of the parts."""
        ...

    @property
    def empty(self) -> MemoryRows:
        """No rows: the columns with their types and without cells."""
        ...

    def lengths(self) -> Sequence[int] | None:
        """Return how many rows each part has, if that is known without reading them."""
        ...

    def only(self, columns: dict[str, Reading]) -> Engine:
        """Return the same parts with other columns to read."""
        ...

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield the result of each part's task, in order."""
        ...

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: Memory) -> Any:
        """Return the sum of all results, added in any order; None without parts.

        What is done is put into ``memory``; if the same memory is passed again, that work is not
        repeated.
        """
        ...

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> Engine | None:
        """Return an engine whose parts are the rows that the tasks yield for these parts.

        Each part is computed once and stays where it is. None if the engine keeps nothing.
        """
        ...


# --- files that must not change


@frozen
class FileFingerprint:
    """A file's size in bytes, and when it was last written, in nanoseconds."""

    size: int
    written: int

    def check(self, path: Path) -> None:
        """Refuse a file that has changed since: masks hold positions of rows in the old one.

        Raises
        ------
        SchemaError
            If the file has changed or is gone.
        """
        if file_fingerprint(path) != self:
            raise SchemaError(f"{path.name} has changed since it was opened")


def file_identity(path: str | os.PathLike[str]) -> object:
    """Return what is equal for all names of one file: links, hard links and relative paths too."""
    try:
        status = os.stat(path)
    except OSError:  # reading it says more
        return os.path.realpath(path)
    # some file systems number no files: links and relative paths are one name there as well
    return (status.st_dev, status.st_ino) if status.st_ino else os.path.realpath(path)


def file_fingerprint(path: Path) -> FileFingerprint:
    """Return the fingerprint of a file.

    Raises
    ------
    SchemaError
        If there is no such file.
    """
    try:
        status = path.stat()
    except OSError:
        raise SchemaError(f"there is no file {path}") from None
    return FileFingerprint(status.st_size, status.st_mtime_ns)


# --- progress
#
# How many rows there are is private, and the number of parts tells it. So nothing shows them unless
# the holder of the data asks, and they are written to the standard error alone.

Progress = Callable[[Sequence[int | None]], AbstractContextManager[Callable[[int], object]]]
"""Shows a pass over parts, given how many rows each has (None where no file says so); the function
that it yields is called with the place of each part that is done."""


@contextmanager
def no_progress(lengths: Sequence[int | None]) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda place: None


@contextmanager
def show_progress(lengths: Sequence[int | None]) -> Iterator[Callable[[int], object]]:
    """Write on one line how many rows are read; how many parts, where a length is missing."""
    counted = [length for length in lengths if length is not None]
    by_rows = len(counted) == len(lengths)
    sizes = counted if by_rows else [1] * len(lengths)
    total, done = sum(sizes), 0

    def show() -> None:
        sys.stderr.write(f"\r{'rows' if by_rows else 'parts'} read: {done:,} of {total:,}")
        sys.stderr.flush()

    def one(place: int) -> None:
        nonlocal done
        done += sizes[place]
        show()

    show()
    try:
        yield one
    finally:
        sys.stderr.write("\n")


# --- which columns passes read
#
# Rows are read while a node of a plan is computed, by code that knows rows and not the plan. So
# whoever computes a node says which columns it depends on, and every pass until then reads those.


class _ColumnsOfThread(threading.local):
    names: frozenset[str] | None = None


_COLUMNS = _ColumnsOfThread()


@contextmanager
def reading(names: frozenset[str] | None) -> Iterator[None]:
    """Let passes of this thread read these columns alone; None for all that are bound."""
    outer, _COLUMNS.names = _COLUMNS.names, names
    try:
        yield
    finally:
        _COLUMNS.names = outer


def narrowed_engine(engine: Engine, names: frozenset[str] | None = None) -> Engine:
    """Return the engine that reads only some of its columns: by default those of `reading`."""
    if names is None:
        names = _COLUMNS.names
    if names is None or names.issuperset(engine.columns):
        return engine
    return engine.only({name: each for name, each in engine.columns.items() if name in names})


# --- passes that continue after an interruption


class Checkpoint:
    """What the first pass of an interrupted computation has so far.

    Whoever computes something by passes over parts says so by `resuming`, each time with the same
    checkpoint. Its first pass, if it is a sum, then keeps its partial results (`Memory`) until it
    is done or another begins.

    A computation that is repeated must be the same: a deterministic function of the same values.
    Then its first pass is the same too. No pass came before it that could have left anything
    behind, and the partial result of each part is what it would be again. Later passes do not
    resume: they may depend on results of earlier ones.
    """

    def __init__(self) -> None:
        self._passes = 0
        self._first: tuple[tuple[Any, ...], Memory] | None = None

    def begin(self) -> None:
        """Begin, or begin again."""
        self._passes = 0

    def memory(self, what: tuple[Any, ...]) -> Memory:
        """Return the memory of the next pass; ``what`` are objects that identify it further."""
        self._passes += 1
        if self._passes > 1:
            self._first = None
            return {}
        if self._first is not None:
            first, memory = self._first
            # by identity: equal objects may be of other data
            if len(first) == len(what) and all(a is b for a, b in zip(first, what, strict=True)):
                return memory
        self._first = what, {}
        return self._first[1]


class _Current(threading.local):
    """The checkpoint of each thread; a client's event loop would hold on to a context variable."""

    checkpoint: Checkpoint | None = None


_CURRENT = _Current()


@contextmanager
def resuming(checkpoint: Checkpoint | None) -> Iterator[None]:
    """Let passes continue from a checkpoint; without one they begin at the beginning."""
    if checkpoint is not None:
        checkpoint.begin()
    outer, _CURRENT.checkpoint = _CURRENT.checkpoint, checkpoint
    try:
        yield
    finally:
        _CURRENT.checkpoint = outer


def pass_memory(*what: Any) -> Memory:
    """Return the partial results of a pass that begins now; empty if it was not interrupted."""
    return {} if _CURRENT.checkpoint is None else _CURRENT.checkpoint.memory(what)
