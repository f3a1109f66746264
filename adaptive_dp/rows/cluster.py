"""Parts in the memories of a Dask cluster: tasks go where the rows are, small results come back.

Workers see rows, so they are as trusted as this process; no noise is drawn by them. The first pass
reads the parts and keeps none; from the second on each is kept by the worker that read it. The
scheduler knows how each part was made, so that what a worker had is made again by another, if it
is lost; a sum is one of the parts' results, each of which is there once however often it was
computed. Sums are added up in a tree, eight at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from weakref import finalize

import numpy as np
from attrs import evolve, field, frozen
from dask.sizeof import sizeof

from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.parts import Task
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading

BRANCHES = 8
"""Sums that are added up by one task."""


WAIT = 10.0
"""Seconds after which a scheduler does not answer."""


PATIENCE = 5.0
"""Seconds that the last parts of a step are waited for before others do them too."""


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
        For each part what reads it: a `adaptive_dp.rows.threads.Part`, or a future of a frame.
    columns
        What is read of them.
    empty
        No rows, of the parts' types.
    origin
        The engine that this one's parts are computed from, whose client it shares.
    """

    client: Any
    sources: tuple[Any, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
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
        return self._submit(Derived, source, self.columns, task)

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield what the tasks make of the parts, in order; all are under way at once."""
        waiting = self._finished(tasks)[::-1]
        while waiting:
            yield _result(waiting.pop())

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any]) -> Any:
        """Return the sum of the results, of which the workers make one."""
        level = self._finished(tasks)
        while len(level) > 1:
            groups = [level[i : i + BRANCHES] for i in range(0, len(level), BRANCHES)]
            level = [self._submit(_added, group, add) for group in groups]
        return _result(level[0]) if level else None

    def _finished(self, tasks: Sequence[Task]) -> list[Any]:
        """Return a future for each part, all of them done.

        When three parts of four are done, the rest are given as long again as those took, twice.
        What is late then is done anew by whoever is free: of two results of a part, which are
        equal, the first is taken, and the part stays where it came from.
        """
        from distributed import as_completed, wait

        if self._passes and not self._pinned:
            self._pinned.update((i, self._read(i)) for i in range(self.count))
        self._passes.append(None)
        start = time.monotonic()
        found = [self._started(i, task) for i, task in enumerate(tasks)]
        for _ in zip(range(math.ceil(0.75 * len(found))), as_completed(found), strict=False):
            pass
        with suppress(TimeoutError):
            wait(found, timeout=max(PATIENCE, 2 * (time.monotonic() - start)))
        late = {i for i, each in enumerate(found) if not each.done()}
        again = {i: self._read(i) for i in late} if self._pinned else {}
        copies = {i: self._started(i, tasks[i], again) for i in late}
        while late:
            pairs = [each for i in late for each in (found[i], copies[i])]
            wait(pairs, return_when="FIRST_COMPLETED")
            for i in [i for i in late if found[i].done() or copies[i].done()]:
                late.remove(i)
                if not found[i].done():
                    found[i] = copies[i]
                    if self._pinned:
                        self._pinned[i] = again[i]
        return found

    def _started(self, i: int, task: Task, pinned: Mapping[int, Any] | None = None) -> Any:
        if self._pinned:
            return self._submit(_done, (pinned or self._pinned)[i], task)
        return self._submit(_streamed, self.sources[i], self.columns, task)

    def _read(self, i: int) -> Any:
        return self._submit(_loaded, self.sources[i], self.columns)

    def _submit(self, function: Callable[..., Any], *given: Any) -> Any:
        return self.client.submit(function, *given, pure=False)


def _loaded(source: Any, columns: dict[str, Reading]) -> MemoryRows | Failed:
    """Return a part's rows, read whole."""
    try:
        with np.errstate(all="ignore"):
            if not hasattr(source, "blocks"):
                return rows(source, columns, None)
            blocks = list(source.blocks(columns))
            if not blocks:
                return rows({name: [] for name in columns}, columns, None)
            count = sum(len(block.units) for block in blocks)
            names = blocks[0].columns
            joined = {k: np.concatenate([block.columns[k] for block in blocks]) for k in names}
            return MemoryRows(joined, np.arange(count, dtype=np.int64))
    except Exception:
        return Failed()


def _streamed(source: Any, columns: dict[str, Reading], task: Task) -> Any:
    """Return what a task makes of a part, of which no more than a block is in memory."""
    try:
        with np.errstate(all="ignore"):
            return task(_blocks(source, columns))
    except Exception:
        return Failed()


def _blocks(source: Any, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
    blocks = getattr(source, "blocks", None)
    return iter([rows(source, columns, None)]) if blocks is None else blocks(columns)


def _done(part: MemoryRows | Failed, task: Task) -> Any:
    try:
        if isinstance(part, Failed):
            return part
        with np.errstate(all="ignore"):  # a warning would tell of the data
            return task(iter([part]))
    except Exception:
        return Failed()


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


def of_frame(frame: Any, columns: dict[str, Reading], unit: str | None) -> Cluster:
    """Return the partitions of a Dask data frame, on the cluster of the current client.

    Raises
    ------
    SchemaError
        If there is no client, or the frame's columns do not fit.
    """
    from distributed import default_client

    wanted = [*columns, *([unit] if unit is not None and unit not in columns else [])]
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise SchemaError(f"the data has no column {', '.join(map(repr, missing))}")
    typed = rows(frame._meta, {**{unit or "": "value"}, **columns} if unit else columns, None)
    try:
        client = default_client()
    except ValueError:
        client = None
    if client is None:
        raise SchemaError("a Dask frame needs a cluster: make a dask.distributed.Client first")
    sources = client.compute(frame[wanted].to_delayed() if wanted else frame.to_delayed())
    found = {name: typed.columns[name] for name in columns} or {"": typed.units}
    return Cluster(client, tuple(sources), columns, MemoryRows(found, typed.units))


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
