"""Processes that do tasks on parts, on this machine: none waits for another's interpreter.

They are loky's: started when first needed, kept for the next pass, gone `IDLE` seconds after the
last. Each reads its parts from the files itself; a task goes there and a result comes back through
a pipe, as bytes. Python of their own: what a function prints or counts there stays there.

A process that dies takes nothing with it but its task, which another does again: a task reads
nothing but its part, and a part's result is taken once.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading
from adaptive_dp.rows.threads import done, one_blas_thread, threads

if TYPE_CHECKING:
    from adaptive_dp.rows.local import Part, Submit
    from adaptive_dp.rows.parts import Task

IDLE = 30.0
"""Seconds after which a process with nothing to do ends."""

TRIES = 3
"""How often a task is given to processes that die."""

ALONE = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
"""The environment of the processes: matrix products without threads."""

_POOLS: dict[tuple[int, int], Any] = {}
"""Pools by this process, since a fork has none of its parent's, and by how many workers."""

_LOCK = Lock()


class Unread:
    """What a process gives for a task that it cannot read: its code is not to be found there."""


class Sent:
    """A task that was given to the processes.

    Parameters
    ----------
    workers
        How many processes there are.
    part, columns, task
        What is to be done.
    """

    def __init__(self, workers: int, part: Part, columns: dict[str, Reading], task: Task) -> None:
        self._workers, self._job = workers, (part, columns, task)
        self._tried: list[tuple[Any, Any]] = []
        self._send()

    def _send(self) -> None:
        """Give the task to the processes, which may be new ones."""
        pool = _pool(self._workers)
        try:
            self._tried.append((pool, pool.submit(_elsewhere, os.getcwd(), _bytes(self._job))))
        except RuntimeError:  # the pool has just ended
            self._tried.append((pool, None))

    def result(self) -> Any:
        """Return what the task makes of its part.

        Raises
        ------
        SchemaError
            If several processes died of it.
        """
        while True:
            pool, future = self._tried[-1]
            try:
                found = None if future is None else future.result()
            except _lost():
                future = None
            if future is not None:
                break
            _drop(self._workers, pool)
            if len(self._tried) == TRIES:
                raise SchemaError(_DYING)
            self._send()
        if isinstance(found, Unread):
            with one_blas_thread():
                return done(*self._job)
        return found

    def cancel(self) -> None:
        """Take it back, if nobody has begun."""
        future = self._tried[-1][1]
        if future is not None:
            future.cancel()


_DYING = (
    "the processes that read the data died, one after the other; is memory short? "
    'Read by threads: adaptive_dp.Files(paths, engine="threads")'
)


@contextmanager
def processes(workers: int, like: Task | None) -> Iterator[Submit]:
    """Open a pool of processes; of threads, where none can be started or a task cannot be sent."""
    if not _can(workers, like):
        with threads(workers, like) as submit:
            yield submit
        return
    try:
        yield lambda part, columns, task: Sent(workers, part, columns, task)
    except BaseException:
        _drop(workers, _POOLS.get((os.getpid(), workers)))  # nobody waits for what is under way
        raise


def available() -> bool:
    """Return whether loky is installed."""
    try:
        import loky  # noqa: F401
    except ImportError:
        return False
    return True


def _can(workers: int, like: Task | None) -> bool:
    try:
        _bytes(like)
        for _ in range(2):
            pool = _pool(workers)
            try:
                pool.submit(os.getpid)
                return True
            except _lost():  # one of them died while there was nothing to do
                _drop(workers, pool)
    except Exception:  # what cannot be sent, or a machine that lets no process start
        pass
    return False


def _bytes(job: Any) -> bytes:
    """Return a task as bytes, with the code of functions that no module has."""
    import cloudpickle

    found: bytes = cloudpickle.dumps(job)
    return found


def _elsewhere(folder: str, job: bytes) -> Any:
    """Do a task in a process that is here for it, where relative paths mean the same."""
    try:
        os.chdir(folder)
        read = pickle.loads(job)
    except Exception:
        return Unread()
    return done(*read)


def _pool(workers: int) -> Any:
    from loky.process_executor import ProcessPoolExecutor

    with _LOCK:
        key = os.getpid(), workers
        if key not in _POOLS:
            _POOLS[key] = ProcessPoolExecutor(workers, timeout=IDLE, initializer=_deaf, env=ALONE)
        return _POOLS[key]


def _drop(workers: int, pool: Any) -> None:
    """End a pool at once, so that the next task gets another; what is under way is lost."""
    with _LOCK:
        key = os.getpid(), workers
        if _POOLS.get(key) is pool:
            _POOLS.pop(key, None)
    if pool is not None:
        pool.shutdown(wait=True, kill_workers=True)


def _lost() -> tuple[type[Exception], ...]:
    """Return how a future says that its process, or its pool, is gone."""
    from loky.process_executor import ShutdownExecutorError

    return BrokenProcessPool, CancelledError, ShutdownExecutorError


def _deaf() -> None:
    """Leave it to the process that waits for this one what Ctrl-C means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
