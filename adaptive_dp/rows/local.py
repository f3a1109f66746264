"""Tasks on parts that are read one after the other by the cores of this machine."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from attrs import evolve, field, frozen

from adaptive_dp.rows.attempts import Memory
from adaptive_dp.rows.memory import MemoryRows
from adaptive_dp.rows.parts import Task
from adaptive_dp.rows.progress import Told, silent
from adaptive_dp.rows.rows import Reading
from adaptive_dp.rows.threads import threads


class Part(Protocol):
    """A piece of a file, or of anything that can be read piece by piece."""

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield its rows in blocks; the same whenever it is read."""
        ...

    def rows(self) -> int | None:
        """Return how many rows it has, if that is known without reading it."""
        ...


class Pending(Protocol):
    """A task that is under way, or waits for its turn."""

    def result(self) -> Any:
        """Return what the task makes of its part, as soon as it is there."""
        ...

    def cancel(self) -> Any:
        """Take it back, if nobody has begun."""
        ...


Submit = Callable[[Part, dict[str, Reading], Task], Pending]

Pool = Callable[[int, Task | None], AbstractContextManager[Submit]]
"""Opens for so many workers; the task is one like all that are to come."""


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@frozen(eq=False, repr=False)
class Local:
    """An engine of as many workers as the machine has cores.

    At most one part more than there are workers is under way or waits for its turn, so memory does
    not grow with the data.

    Parameters
    ----------
    parts
        In the order of the rows.
    columns
        What is read of them.
    empty
        No rows, of the parts' types.
    pool
        Who does the tasks: `adaptive_dp.rows.threads.threads`, or
        `adaptive_dp.rows.processes.processes`.
    workers
        How many of them.
    told
        Is told how far a pass is.
    """

    parts: tuple[Part, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    pool: Pool = threads
    workers: int = field(factory=cores)
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

    def only(self, columns: dict[str, Reading]) -> Local:
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
        waiting: deque[Pending] = deque()
        left = list(zip(self.parts, tasks, strict=True))[start:]
        first = left[0][1] if left else None
        with self.pool(self.workers, first) as submit, self.told(len(left)) as told:
            try:
                for part, task in left:
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                        told()
                    waiting.append(submit(part, self.columns, task))
                while waiting:
                    yield waiting.popleft().result()
                    told()
            finally:
                for each in waiting:
                    each.cancel()

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> None:
        """Return None: nothing is kept in memory."""
        return
