"""The engine of this machine: parts that are read one after the other by threads or processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count as counted
from typing import Any

from attrs import evolve, field, frozen

from adaptive_dp.data.engine import Memory, Part, Progress, Task, no_progress
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.data.rows import Reading
from adaptive_dp.data.workers import Pending, Pool, core_count, threads


@frozen(eq=False, repr=False)
class Local:
    """An engine with as many workers as the machine has cores.

    At most one part more than there are workers is under way or waits for its turn, so memory does
    not grow with the data.

    Parameters
    ----------
    parts
        In the order of the rows.
    columns
        What is read of them.
    empty
        No rows, with the types of the parts' columns.
    pool
        `adaptive_dp.data.workers.threads` or `adaptive_dp.data.workers.processes`.
    workers
        How many of them.
    progress
        Shows how far a pass is.
    """

    parts: tuple[Part, ...]
    columns: dict[str, Reading]
    empty: MemoryRows
    pool: Pool = threads
    workers: int = field(factory=core_count)
    progress: Progress = no_progress

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.parts)

    def lengths(self) -> Sequence[int] | None:
        """Return how many rows each part has, if the files say so."""
        counts = [part.rows() for part in self.parts]
        lengths = [each for each in counts if each is not None]
        return lengths if len(lengths) == len(counts) else None

    def only(self, columns: dict[str, Reading]) -> Local:
        """Return the same parts with other columns to read."""
        return evolve(self, columns=columns)

    def map(self, tasks: Sequence[Task]) -> Iterator[Any]:
        """Yield the results of the tasks, in the order of the parts."""
        return self._from(0, tasks)

    def fold(self, tasks: Sequence[Task], add: Callable[[Any, Any], Any], memory: Memory) -> Any:
        """Return the sum of the results; ``memory`` has that of the first parts, and how many."""
        done, total = memory.get("sum", (0, None))
        for value in self._from(done, tasks):
            done, total = done + 1, add(total, value)
            memory["sum"] = done, total  # both at once: an interruption never separates them
        return total

    def _from(self, start: int, tasks: Sequence[Task]) -> Iterator[Any]:
        waiting: deque[Pending] = deque()
        left = list(zip(self.parts, tasks, strict=True))[start:]
        first = left[0][1] if left else None
        lengths = [part.rows() for part, _ in left]
        with self.pool(self.workers, first) as submit, self.progress(lengths) as one_done:
            done = counted()
            try:
                for part, task in left:
                    # wait before submitting: one result more than workers is in memory at most
                    if len(waiting) > self.workers:
                        yield waiting.popleft().result()
                        one_done(next(done))
                    waiting.append(submit(part, self.columns, task))
                while waiting:
                    yield waiting.popleft().result()
                    one_done(next(done))
            finally:
                # on an error or an interruption too: tasks that wait are never started
                for each in waiting:
                    each.cancel()

    def derived(self, tasks: Sequence[Task], empty: MemoryRows) -> None:
        """Return None: nothing is kept in memory."""
        return
