"""Tasks on parts that are read one after the other by a few threads."""

from __future__ import annotations

import contextvars
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
from attrs import evolve, field, frozen

from adaptive_dp.rows.attempts import Memory
from adaptive_dp.rows.memory import MemoryRows
from adaptive_dp.rows.parts import Task
from adaptive_dp.rows.progress import Told, silent
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
    told
        Is told how far a pass is.
    """

    parts: tuple[Part, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    workers: int = field(factory=lambda: len(os.sched_getaffinity(0)))
    told: Told = silent

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
        return self._from(0, tasks)

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: Memory) -> Any:
        """Return the sum of the results; in memory are that of the first parts, and how many."""
        done, total = memory.get("sum", (0, None))
        for found in self._from(done, tasks):
            done, total = done + 1, add(total, found)
            memory["sum"] = done, total
        return total

    def _from(self, start: int, tasks: Sequence[Task]) -> Iterator[Any]:
        waiting: deque[Future[Any]] = deque()
        left = list(zip(self.parts, tasks, strict=True))[start:]
        with (
            one_blas_thread(),
            ThreadPoolExecutor(self.workers) as pool,
            self.told(len(left)) as told,
        ):
            try:
                for part, task in left:
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                        told()
                    context = contextvars.copy_context()  # where what is printed goes, for one
                    waiting.append(pool.submit(context.run, self._done, part, task))
                while waiting:
                    yield waiting.popleft().result()
                    told()
            finally:
                for each in waiting:
                    each.cancel()

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
