"""Tasks on parts that are read one after the other by a few threads."""

from __future__ import annotations

import contextvars
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import reduce
from typing import Any, Protocol

import numpy as np
from attrs import evolve, field, frozen

from adaptive_dp.rows.memory import MemoryRows
from adaptive_dp.rows.parts import Task
from adaptive_dp.rows.rows import Reading


class Part(Protocol):
    """A piece of a file, or of anything that can be read piece by piece."""

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield its rows in blocks; the same whenever it is read."""
        ...

    def rows(self) -> int | None:
        """Return how many rows it has, if that is known without reading it."""
        ...


@frozen(eq=False, repr=False)
class Threads:
    """An engine of as many threads as the machine has cores.

    NumPy and PyArrow let other threads run while they compute. At most one part more than there
    are threads is under way or waits for its turn, so memory does not grow with the data.

    Parameters
    ----------
    parts
        In the order of the rows.
    columns
        What is read of them.
    empty
        No rows, of the parts' types.
    workers
        How many threads.
    """

    parts: tuple[Part, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    workers: int = field(factory=lambda: len(os.sched_getaffinity(0)))

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.parts)

    def lengths(self) -> Sequence[int] | None:
        """Return how many rows each part has, if the files say so."""
        found = [part.rows() for part in self.parts]
        known = [each for each in found if each is not None]
        return known if len(known) == len(found) else None

    def only(self, columns: dict[str, Reading]) -> Threads:
        """Return the same parts, of which other columns are read."""
        return evolve(self, columns=columns)

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield what the tasks make of the parts, in order."""
        waiting: deque[Future[Any]] = deque()
        with one_blas_thread(), ThreadPoolExecutor(self.workers) as pool:
            try:
                for part, task in zip(self.parts, tasks, strict=True):
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                    context = contextvars.copy_context()  # where what is printed goes, for one
                    waiting.append(pool.submit(context.run, self._done, part, task))
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for each in waiting:
                    each.cancel()

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any]) -> Any:
        """Return the sum of the results."""
        return reduce(add, self.map(tasks), None)

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> None:
        """Return None: nothing is kept in memory."""
        return

    def _done(self, part: Part, task: Task) -> Any:
        with np.errstate(all="ignore"):  # a warning would tell of the data
            return task(part.blocks(self.columns))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep each thread's matrix products to that thread, where threadpoolctl is installed.

    Threads of threads wait for each other: on a busy machine ten times as long.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")  # type: ignore[no-any-return]
