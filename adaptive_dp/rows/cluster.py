"""Parts in the memories of a Dask cluster: tasks go where the rows are, small results come back.

Workers see rows, so they are as trusted as this process; no noise is drawn by them. The first pass
reads the parts and keeps none; from the second on each is kept by the worker that read it. The
scheduler knows how each part was made, so that what a worker had is made again by another, if it
is lost; a sum is one of the parts' results, each of which is there once however often it was
computed. Sums are added up in a tree, eight at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar
from weakref import finalize

import numpy as np
from attrs import Factory, evolve, field, frozen
from dask.sizeof import sizeof

from adaptive_dp.rows.attempts import Memory
from adaptive_dp.rows.crew import Attempt, Crew, Workers
from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.parts import Task
from adaptive_dp.rows.progress import Told, silent
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading

P = ParamSpec("P")
T = TypeVar("T")

BRANCHES = 8
"""Sums that are added up by one task."""


WAIT = 10.0
"""Seconds after which a scheduler does not answer."""


class Failed:
    """What a task gives in place of an error, which a worker would write to its log."""


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
class Cluster:
    """An engine of a `distributed.Client`'s workers.

    Parameters
    ----------
    client
        The client.
    sources
        For each part what reads it: a `adaptive_dp.rows.local.Part`, or a future of a frame.
    columns
        What is read of them.
    empty
        No rows, of the parts' types.
    crew
        Who hands tasks to the workers.
    told
        Is told how far a pass is.
    origin
        The engine that this one's parts are computed from, whose client it shares.
    """

    client: Any
    sources: tuple[Any, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    crew: Crew = field(default=Factory(lambda self: Crew(self.client), takes_self=True))
    told: Told = silent
    origin: Cluster | None = None
    _pinned: dict[int, Any] = field(factory=dict, init=False)
    _passes: list[None] = field(factory=list, init=False)

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.sources)

    def lengths(self) -> Sequence[int] | None:
        """Return None: the workers count."""
        return None

    def only(self, columns: dict[str, Reading]) -> Cluster:
        """Return the same parts, of which other columns are read."""
        return evolve(self, columns=columns)

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> Cluster:
        """Return an engine of what the tasks yield of the parts; each is kept by who computes it.

        A part that is lost is read and computed again, as any other.
        """
        made = [self._derived(i, task) for i, task in enumerate(tasks)]
        found = evolve(self, sources=tuple(made), columns={}, empty=empty, origin=self)
        found._passes.append(None)  # to keep parts from the first pass on
        return found

    def _derived(self, i: int, task: Task) -> Any:
        source = self.sources[i]
        if hasattr(source, "blocks"):
            return Derived(source, self.columns, task)
        return self._submit(None, Derived, source, self.columns, task)

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield what the tasks make of the parts, in order; all are under way at once."""
        waiting = self._finished(tasks, {})[::-1]
        while waiting:
            try:
                found = _result(waiting.pop())
            except SchemaError:
                self._forget(self._pinned, {})
                raise
            yield found

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: Memory) -> Any:
        """Return the sum of the results, of which the workers make one.

        In memory are the futures of parts that are done.
        """
        level = parts = self._finished(tasks, memory)
        while len(level) > 1:
            groups = [level[i : i + BRANCHES] for i in range(0, len(level), BRANCHES)]
            jobs = [partial(self._adding, group, add) for group in groups]
            level = [attempt[-1] for attempt in self.crew.finished(jobs)]
        try:
            return _result(level[0]) if level else None
        except SchemaError:
            self._forget(dict(enumerate(parts)), memory)
            raise

    def _finished(self, tasks: Sequence[Task], memory: Memory) -> list[Any]:
        """Return a future for each part, all of them done.

        A part that has been done anew, by another worker, stays there: it counts once, since both
        results are equal and one of them is taken.
        """
        for i in [i for i, attempt in memory.items() if attempt[-1].status != "finished"]:
            del memory[i]
        if not memory:
            self._passes.append(None)
        keeps = len(self._passes) > 1
        way = self._keeping if keeps else self._streaming
        jobs = [partial(way, i, task) for i, task in enumerate(tasks)]
        with self.told(len(jobs) - len(memory)) as told:
            found = self.crew.finished(jobs, memory, told)
        if keeps:
            self._pinned.update((i, each[0]) for i, each in enumerate(found) if len(each) > 1)
        return [attempt[-1] for attempt in found]

    def _forget(self, parts: Mapping[int, Any], memory: Memory) -> None:
        """Forget the parts of which there is nothing, so that they are read again."""
        numbers = list(parts)
        jobs = [partial(self._asking, parts[i]) for i in numbers]
        for i, attempt in zip(numbers, self.crew.finished(jobs), strict=True):
            if attempt[-1].result():
                memory.pop(i, None)
                self._pinned.pop(i, None)

    def _asking(self, part: Any, workers: Workers, again: bool) -> Attempt:
        return (self._submit(workers, _failed, part),)

    def _streaming(self, i: int, task: Task, workers: Workers, again: bool) -> Attempt:
        return (self._submit(workers, _streamed, self.sources[i], self.columns, task),)

    def _keeping(self, i: int, task: Task, workers: Workers, again: bool) -> Attempt:
        part = None if again else self._pinned.get(i)
        if part is None or part.status in ("cancelled", "error"):
            part = self._submit(workers, _loaded, self.sources[i], self.columns)
        return part, self._submit(workers, _done, part, task)

    def _adding(
        self, group: list[Any], add: Callable[[Any, Any], Any], workers: Workers, again: bool
    ) -> Attempt:
        return (self._submit(workers, _added, group, add),)

    def _submit(self, workers: Workers, function: Callable[..., Any], *given: Any) -> Any:
        # others may do it when all of these are gone, not before
        return self.client.submit(
            function, *given, pure=False, workers=workers, allow_other_workers=workers is not None
        )


def _silent(function: Callable[P, T]) -> Callable[P, T | Failed]:
    """Return the function, which raises nothing: a worker would write it to its log.

    Not even what ends a process: it would end the worker, and be written to its log too.
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
    """Return a part's rows, read whole."""
    if not hasattr(source, "blocks"):
        return rows(source, columns, None)
    blocks = list(_blocks(source, columns))
    count = sum(len(block.units) for block in blocks)
    names = blocks[0].columns
    joined = {k: np.concatenate([block.columns[k] for block in blocks]) for k in names}
    return MemoryRows(joined, np.arange(count, dtype=np.int64))


@_silent
def _streamed(source: Any, columns: dict[str, Reading], task: Task) -> Any:
    """Return what a task makes of a part, of which no more than a block is in memory."""
    return task(_blocks(source, columns))


def _blocks(source: Any, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
    """Yield a part's rows in blocks, of which there is one at least."""
    if not hasattr(source, "blocks"):
        yield rows(source, columns, None)
        return
    block = None
    for block in source.blocks(columns):
        yield block
    if block is None:  # a file of a header alone, say
        yield rows({name: [] for name in columns or [""]}, columns or {"": "number"}, None)


@_silent
def _done(part: MemoryRows | Failed, task: Task) -> Any:
    return part if isinstance(part, Failed) else task(iter([part]))


def _failed(result: Any) -> bool:
    return isinstance(result, Failed)


@_silent
def _added(results: list[Any], add: Callable[[Any, Any], Any]) -> Any:
    if any(isinstance(each, Failed) for each in results):
        return Failed()
    total = results[0]
    for each in results[1:]:
        total = add(total, each)
    return total


def _result(future: Any) -> Any:
    found = future.result()
    if isinstance(found, Failed):
        raise SchemaError("a part of the data could not be read, or its rows not be computed with")
    return found


def connected(engine: Any) -> Any:
    """Return a client: the one that is given, or one of the scheduler at ``dask://HOST:PORT``.

    Raises
    ------
    SchemaError
        If nobody answers there.
    """
    from distributed import Client

    if not isinstance(engine, str):
        return engine
    address = "tcp://" + engine.removeprefix("dask://")
    try:
        return Client(address, set_as_default=False, timeout=WAIT)
    except OSError:
        pass
    raise SchemaError(f"no Dask scheduler answers at {engine}")


def closing(engine: Cluster) -> Cluster:
    """Return the engine, whose client is closed when it is gone."""
    finalize(engine, engine.client.close)
    return engine


@sizeof.register(MemoryRows)  # type: ignore[untyped-decorator]
def _size(found: MemoryRows) -> int:
    """Return how many bytes rows take, for the scheduler: a text is about 60."""
    return sum(v.nbytes + (60 * len(v) if v.dtype == object else 0) for v in found.columns.values())
