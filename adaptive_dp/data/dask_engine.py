"""The engine of a Dask cluster: tasks go where the rows are, small results come back.

Workers see rows, so they are as trusted as this process; they draw no noise. The first pass reads
the parts and keeps none; from the second pass on each part is kept by the worker that read it.
Dask's scheduler knows how each part was made, so that what a worker had is made again by another if
it is lost. A sum is one of the parts' results, each of which is there once however often it was
computed. Sums are added in a tree, eight at a time.

Parts are pieces of files, or partitions of Dask's own frames and arrays (`frame_engine`,
`array_engine`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, reduce, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import finalize

import numpy as np
from attrs import Factory, evolve, field, frozen
from dask.sizeof import sizeof

from adaptive_dp.data.engine import Memory, Progress, Task, no_progress
from adaptive_dp.data.memory import MemoryRows, refuse_missing, table_rows
from adaptive_dp.data.parquet_files import RowGroup
from adaptive_dp.data.rows import Reading, Schema, SchemaError
from adaptive_dp.data.scheduler import Attempt, Scheduler, Workers

P = ParamSpec("P")
T = TypeVar("T")

BRANCHES = 8
"""Sums that are added by one task."""

WAIT = 10.0
"""Seconds to wait for a scheduler to answer."""


class Failed:
    """What a task returns in place of an error, which a worker would write to its log."""


@frozen(eq=False, repr=False)
class Derived:
    """A part that is computed from another, whenever it is read."""

    source: Any
    columns: dict[str, Reading]
    task: Task

    def blocks(self, _: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield its rows in blocks."""
        yield from self.task(_blocks(self.source, self.columns))


@frozen(eq=False, repr=False)
class DaskEngine:
    """An engine of the workers of a `distributed.Client`.

    Parameters
    ----------
    client
        The client.
    sources
        For each part what reads it: a `adaptive_dp.data.engine.Part`, or a future of a frame.
    columns
        What is read of them.
    empty
        No rows, with the types of the parts' columns.
    scheduler
        Submits jobs to the workers, and retries what is late.
    progress
        Shows how far a pass is.
    origin
        The engine that this one's parts are computed from, whose client it shares.
    """

    client: Any
    sources: tuple[Any, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    scheduler: Scheduler = field(
        default=Factory(lambda self: Scheduler(self.client), takes_self=True)
    )
    progress: Progress = no_progress
    origin: DaskEngine | None = None
    _pinned: dict[int, Any] = field(factory=dict, init=False)
    _passes: list[None] = field(factory=list, init=False)
    _narrowed: dict[Any, DaskEngine] = field(factory=dict, init=False)

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.sources)

    def lengths(self) -> Sequence[int] | None:
        """Return None: the workers count."""
        return None

    def only(self, columns: dict[str, Reading]) -> DaskEngine:
        """Return the same parts with other columns to read.

        An engine keeps its parts in the workers' memory from its second pass on. One that has kept
        them with these columns among others is returned as it is. Those for different columns have
        together at most as many columns as this one, so that they take about as much memory as one
        copy of the data: beyond that, the engines that were asked for longest ago are forgotten.
        """
        for engine in (self, *self._narrowed.values()):
            if engine._pinned and columns.items() <= engine.columns.items():
                break
        else:
            key = frozenset(columns.items())
            engine = self._narrowed.get(key) or evolve(self, columns=columns)
        if engine is not self:
            # a dict is in the order of insertion, and the last is the one asked for last
            self._narrowed.pop(frozenset(engine.columns.items()), None)
            self._narrowed[frozenset(engine.columns.items())] = engine
            self._forget_least_recent()
        return engine

    def _forget_least_recent(self) -> None:
        """Let go of engines whose parts are too many; a pass that is under way keeps its own."""
        size = sum(len(each.columns) for each in self._narrowed.values())
        for key in list(self._narrowed)[:-1]:
            if size <= len(self.columns):
                break
            size -= len(self._narrowed.pop(key).columns)

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> DaskEngine:
        """Return an engine of the rows that the tasks yield; each part is kept by who computes it.

        A part that is lost is read and computed again, as any other.
        """
        made = [self._derived(i, task) for i, task in enumerate(tasks)]
        engine = evolve(self, sources=tuple(made), columns={}, empty=empty, origin=self)
        engine._passes.append(None)  # so that parts are kept from the first pass on
        return engine

    def _derived(self, i: int, task: Task) -> Any:
        source = self.sources[i]
        # a source with `blocks` is described here; a future of a frame only where its rows are
        if hasattr(source, "blocks"):
            return Derived(source, self.columns, task)
        return self._submit(None, Derived, source, self.columns, task)

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield the results of the tasks, in the order of the parts; all are under way at once."""
        # reversed, so that `pop` takes parts in order and lets each future go at once
        waiting = self._finished(tasks, {})[::-1]
        while waiting:
            try:
                result = _result(waiting.pop())
            except SchemaError:
                self._forget(self._pinned, {})
                raise
            yield result

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: Memory) -> Any:
        """Return the sum of the results, which the workers add up.

        ``memory`` has the futures of the parts that are done.
        """
        level = parts = self._finished(tasks, memory)
        # a tree: groups of BRANCHES results are added by a worker, until one is left
        while len(level) > 1:
            groups = [level[i : i + BRANCHES] for i in range(0, len(level), BRANCHES)]
            jobs = [partial(self._adding, group, add) for group in groups]
            level = [attempt[-1] for attempt in self.scheduler.run(jobs)]
        try:
            return _result(level[0]) if level else None
        except SchemaError:
            self._forget(dict(enumerate(parts)), memory)
            raise

    def _finished(self, tasks: Sequence[Task], memory: Memory) -> list[Any]:
        """Return a future for each part, all of them done.

        A part that was repeated by another worker stays there. It counts once: both results are
        equal, and one of them is used.
        """
        # what an earlier try left unfinished or lost is done again
        for i in [i for i, attempt in memory.items() if attempt[-1].status != "finished"]:
            del memory[i]
        # a fold that is taken up again is the same pass
        if not memory:
            self._passes.append(None)
        # the first pass streams; from the second on, parts are kept in the workers' memory
        keeps = len(self._passes) > 1
        way = self._keeping if keeps else self._streaming
        jobs = [partial(way, i, task) for i, task in enumerate(tasks)]
        left = {
            job: place for place, job in enumerate(j for j in range(len(jobs)) if j not in memory)
        }
        lengths = [self._rows(job) for job in left]
        with self.progress(lengths) as one_done:
            attempts = self.scheduler.run(jobs, memory, lambda job: one_done(left[job]))
        if keeps:
            # an attempt of two futures has the kept part first
            self._pinned.update((i, each[0]) for i, each in enumerate(attempts) if len(each) > 1)
        return [attempt[-1] for attempt in attempts]

    def _rows(self, i: int) -> int | None:
        """Return how many rows a part has, where its file says so."""
        source = self.sources[i]
        return source.rows() if isinstance(source, RowGroup) else None

    def _forget(self, parts: Mapping[int, Any], memory: Memory) -> None:
        """Forget the parts that failed, so that they are read again."""
        numbers = list(parts)
        jobs = [partial(self._asking, parts[i]) for i in numbers]
        for i, attempt in zip(numbers, self.scheduler.run(jobs), strict=True):
            if attempt[-1].result():
                memory.pop(i, None)
                self._pinned.pop(i, None)

    def _asking(self, part: Any, workers: Workers, retry: bool) -> Attempt:
        return (self._submit(workers, _failed, part),)

    def _streaming(self, i: int, task: Task, workers: Workers, retry: bool) -> Attempt:
        return (self._submit(workers, _streamed, self.sources[i], self.columns, task),)

    def _keeping(self, i: int, task: Task, workers: Workers, retry: bool) -> Attempt:
        # a retry reads the part itself: the worker that has it may be the stuck one
        part = None if retry else self._pinned.get(i)
        if part is None or part.status in ("cancelled", "error"):
            part = self._submit(workers, _loaded, self.sources[i], self.columns)
        return part, self._submit(workers, _done, part, task)

    def _adding(
        self, group: list[Any], add: Callable[[Any, Any], Any], workers: Workers, retry: bool
    ) -> Attempt:
        return (self._submit(workers, _added, group, add),)

    def _submit(self, workers: Workers, function: Callable[..., Any], *given: Any) -> Any:
        # other workers may do it when all of these are gone, not before
        return self.client.submit(
            function, *given, pure=False, workers=workers, allow_other_workers=workers is not None
        )


def _silent(function: Callable[P, T]) -> Callable[P, T | Failed]:
    """Return the function, made to raise nothing: a worker would write the error to its log.

    Not even ``SystemExit``: it would end the worker, and be written to its log too.
    """

    @wraps(function)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T | Failed:
        try:
            with np.errstate(all="ignore"):  # a warning would tell of the data
                return function(*args, **kwargs)
        except BaseException:
            return Failed()

    return inside


@_silent
def _loaded(source: Any, columns: dict[str, Reading]) -> MemoryRows:
    """Return all rows of a part, in memory."""
    if not hasattr(source, "blocks"):
        return table_rows(source, Schema(columns))
    blocks = list(_blocks(source, columns))
    count = sum(block.length for block in blocks)
    names = blocks[0].columns
    joined = {k: np.concatenate([block.columns[k] for block in blocks]) for k in names}
    return MemoryRows(joined, range(count))


@_silent
def _streamed(source: Any, columns: dict[str, Reading], task: Task) -> Any:
    """Return a task's result for a part; no more than a block of it is in memory."""
    return task(_blocks(source, columns))


def _blocks(source: Any, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
    """Yield a part's rows in blocks: at least one, so that there are columns."""
    if not hasattr(source, "blocks"):
        yield table_rows(source, Schema(columns))
        return
    # a loop variable that outlives the loop: None tells that there was no block
    block = None
    for block in source.blocks(columns):
        yield block
    if block is None:  # for example, a file with a header alone
        none = columns or {"": "number"}
        yield table_rows({name: [] for name in none}, Schema(none))


@_silent
def _done(part: MemoryRows | Failed, task: Task) -> Any:
    # a failed part is passed on as it is: `_result` reports it once, without its content
    return part if isinstance(part, Failed) else task(iter([part]))


def _failed(result: Any) -> bool:
    return isinstance(result, Failed)


@_silent
def _added(results: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    # one failed part makes the sum fail: a sum of the others would be of other data
    if any(isinstance(each, Failed) for each in results):
        return Failed()
    return reduce(add, results)


def _result(future: Any) -> Any:
    outcome = future.result()
    if isinstance(outcome, Failed):
        # the message says which kind of thing failed, and nothing of the rows
        raise SchemaError("a part of the data could not be read, or its rows not be computed with")
    return outcome


def connect(engine: Any) -> Any:
    """Return a client: the one that is given, or one of the scheduler at ``dask://HOST:PORT``.

    Raises
    ------
    SchemaError
        If no scheduler answers there.
    """
    from distributed import Client

    if not isinstance(engine, str):
        return engine
    address = "tcp://" + engine.removeprefix("dask://")
    try:
        # not the default client, which is the user's to choose
        return Client(address, set_as_default=False, timeout=WAIT)
    except OSError:
        pass
    raise SchemaError(f"no Dask scheduler answers at {engine}")


def closing_client(engine: DaskEngine) -> DaskEngine:
    """Return the engine; its client is closed when the engine is no longer used."""
    finalize(engine, engine.client.close)
    return engine


@sizeof.register(MemoryRows)  # type: ignore[untyped-decorator]
def _size(rows: MemoryRows) -> int:
    """Return how many bytes rows take, for the scheduler: a ``str`` is about 60."""
    return sum(v.nbytes + (60 * len(v) if v.dtype == object else 0) for v in rows.columns.values())


def frame_engine(frame: Any, schema: Schema) -> DaskEngine:
    """Return an engine of the partitions of a Dask frame, on the current client's cluster.

    Parameters
    ----------
    frame
        The frame.
    schema
        What is read.

    Raises
    ------
    SchemaError
        If there is no client, or the frame's columns do not fit.
    """
    refuse_missing("the data", schema.declared_with_unit, frame.columns)
    # even if no column is read, one is needed: it has the number of rows
    wanted = list(schema.read_with_unit) or list(schema.columns)[:1]
    pieces = (frame[wanted] if wanted else frame).to_delayed()
    return _on_cluster(pieces, frame._meta, schema)


def array_engine(data: Any, schema: Schema) -> DaskEngine:
    """Return an engine of the chunks of Dask arrays, on the current client's cluster.

    Parameters
    ----------
    data
        A structured array, or a mapping of column names to arrays of one dimension.
    schema
        What is read.

    Raises
    ------
    SchemaError
        If there is no client, an array has no column names, or arrays differ in their chunks.
    """
    import dask

    if not isinstance(data, Mapping) and data.dtype.names is None:
        raise SchemaError(
            "a plain Dask array has no column names; pass a mapping such as {'age': array[:, 0]}, "
            "or dask.dataframe.from_dask_array(array, columns=[...])"
        )
    names = data if isinstance(data, Mapping) else data.dtype.names
    refuse_missing("the data", schema.declared_with_unit, names)
    # even if no column is declared, one is needed: it has the number of rows
    arrays = {name: data[name] for name in list(schema.declared_with_unit) or list(names)[:1]}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise SchemaError(
                f"column {name!r} must be one-dimensional, got {array.ndim} dimensions"
            )
    # partitions are formed from chunks in order, so the chunks of all columns must agree
    if len({_layout(array) for array in arrays.values()}) > 1:
        raise SchemaError("the columns differ in length, or in their chunks: rechunk them alike")
    wanted = list(schema.read_with_unit) or list(arrays)[:1]
    chunks = [arrays[name].to_delayed().ravel() for name in wanted]
    bind = dask.delayed(_bound)
    pieces = [bind(wanted, list(each)) for each in zip(*chunks, strict=True)]
    # no rows, with the types of the columns
    none = {name: np.empty(0, dtype=array.dtype) for name, array in arrays.items()}
    return _on_cluster(pieces, none, schema)


def _on_cluster(pieces: Sequence[Any], none: Any, schema: Schema) -> DaskEngine:
    from distributed import default_client

    # types are checked on the empty frame: a wrong column is refused before any work is sent
    empty = table_rows(none, schema).only(schema.read)
    try:
        client = default_client()
    except ValueError:
        client = None
    if client is None:
        raise SchemaError("data of Dask need a cluster: make a dask.distributed.Client first")
    sources = client.compute(list(pieces))
    return DaskEngine(client, tuple(sources), schema.read, empty)


def _layout(array: Any) -> tuple[Any, ...]:
    """Return an array's chunks; unknown lengths count as equal, so only their number differs."""
    return tuple("?" if np.isnan(size) else size for size in array.chunks[0])


def _bound(names: list[str], chunks: list[Any]) -> dict[str, Any]:
    return dict(zip(names, chunks, strict=True))
