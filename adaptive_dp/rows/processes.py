"""Processes that do tasks on parts, on this machine: none waits for another's interpreter.

They are loky's: started when first needed, kept for the next pass, gone `IDLE` seconds after the
last, or with the process that started them. Each reads its parts from the files itself; a task
goes there and a result, or an error, comes back through a pipe, as bytes. Python of their own:
what a function prints goes to the same places, what it counts stays there.

A process that dies takes nothing with it but its task, which another does again: a task reads
nothing but its part, and a part's result is taken once. What cannot be sent back is done again
here, by the pass itself.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Lock, Thread
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

atexit.register(_POOLS.clear)  # while loky's modules are whole: later it prints that they are not

_LOCK = Lock()


def _forked() -> None:
    global _LOCK  # another thread of the parent may have held it
    _LOCK = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_HELPS = False
"""Whether this process is one that does tasks for another."""


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
        self._send()

    def _send(self) -> None:
        """Give the task to the processes, which may be new ones."""
        job = os.getcwd(), _bytes(self._job)
        self._pool, self._future = _submitted(self._workers, _elsewhere, *job)

    def result(self) -> Any:
        """Return what the task makes of its part.

        Raises
        ------
        SchemaError
            If several processes died of it.
        """
        from loky.process_executor import ShutdownExecutorError

        died = 0
        while True:
            try:
                outcome = _read(self._future.result())
                break
            except ShutdownExecutorError:  # another pass was interrupted, and ended the pool
                pass
            except Exception:
                died += 1
            _drop(self._workers, self._pool)
            if died == TRIES:
                raise SchemaError(_DYING)
            self._send()
        if outcome is None:
            with one_blas_thread():
                return done(*self._job)
        good, found = outcome
        if not good:
            raise found
        return found

    def cancel(self) -> None:
        """Leave it: when a pass is given up, the processes are ended."""


_DYING = (
    "the processes that read the data died, one after the other; is memory short? "
    'Read by threads: adaptive_dp.Files(paths, engine="threads")'
)


@contextmanager
def processes(workers: int, like: Task | None) -> Iterator[Submit]:
    """Open a pool of processes; of threads, where none can be started or a task cannot be sent."""
    try:
        if like is not None and _can(workers, like):
            yield lambda part, columns, task: Sent(workers, part, columns, task)
            return
    except BaseException:
        _drop(workers, _POOLS.get((os.getpid(), workers)))  # nobody waits for what is under way
        raise
    with threads(workers, like) as submit:
        yield submit


def available() -> bool:
    """Return whether loky is installed."""
    try:
        import loky  # noqa: F401
    except ImportError:
        return False
    return True


def refuse_helpers() -> None:
    """Refuse to open data in a process that does tasks for another.

    Who does it is a module that runs a plan when it is imported, for a function of it that a task
    needs: the plan would be run, and released, once more by each process.

    Raises
    ------
    SchemaError
        If this is one.
    """
    if _HELPS:
        raise SchemaError(
            "a process that reads for another opens no data; a module that is imported runs no "
            'plan: put that under if __name__ == "__main__"'
        )


def _can(workers: int, like: Task) -> bool:
    """Return whether there are processes, and they can read the code of a task."""
    try:
        job = os.getcwd(), _bytes(like)
    except Exception:  # what cannot be sent
        return False
    for _ in range(2):  # one of them may have died while there was nothing to do
        pool, future = _submitted(workers, _readable, *job)
        try:
            return bool(future.result())
        except Exception:  # a machine that lets no process start, for one
            _drop(workers, pool)
    return False


def _bytes(job: Any) -> bytes:
    """Return a task as bytes, with the code of functions that no module has."""
    import cloudpickle

    found: bytes = cloudpickle.dumps(job)
    return found


def _read(outcome: bytes) -> Any:
    """Return whether a task was done, and its result or error; None if it cannot be read."""
    try:
        return pickle.loads(outcome)
    except Exception:
        return None


def _readable(folder: str, job: bytes) -> bool:
    """Return whether a task can be read in a process that is here for it."""
    try:
        _job(folder, job)
    except BaseException:  # a module that is imported may also exit
        return False
    return True


def _elsewhere(folder: str, job: bytes) -> bytes:
    """Do a task in a process that is here for it, and return what `_read` reads.

    Errors are returned, not raised: loky prints one that it cannot send, message and all.
    """
    try:
        outcome: tuple[bool, Any] = True, done(*_job(folder, job))
    except BaseException as error:
        outcome = False, error
    try:
        return _bytes(outcome)
    except Exception:
        return b""


def _job(folder: str, job: bytes) -> Any:
    os.chdir(folder)  # where relative paths mean the same
    return pickle.loads(job)


def _submitted(workers: int, work: Any, folder: str, job: bytes) -> tuple[Any, Future[Any]]:
    """Return the pool, None if there is none, and what it makes of a job, or how it failed."""
    pool = None
    try:
        with _deaf():
            pool = _pool(workers)
            return pool, pool.submit(work, folder, job)
    except Exception as error:
        failed = Future[Any]()
        failed.set_exception(error)
        return pool, failed


def _pool(workers: int) -> Any:
    from loky.process_executor import ProcessPoolExecutor

    with _LOCK:
        key = os.getpid(), workers
        if key not in _POOLS:
            _POOLS[key] = ProcessPoolExecutor(
                workers, timeout=IDLE, initializer=_help, initargs=(os.getpid(),), env=ALONE
            )
        return _POOLS[key]


def _drop(workers: int, pool: Any) -> None:
    """End a pool at once, so that the next task gets another; what is under way is lost."""
    key = os.getpid(), workers
    with _LOCK:
        ended = _POOLS.pop(key) if key in _POOLS and _POOLS[key] is pool else None
    if ended is not None:  # else another pass has ended it
        ended.shutdown(wait=True, kill_workers=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """Let processes that are started here leave it to this one what Ctrl-C means."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _help(whom: int) -> None:
    """Begin to do tasks for a process: end with it, and leave it to it what Ctrl-C means."""
    global _HELPS
    from loky import process_executor

    _HELPS = True
    process_executor._USE_PSUTIL = False  # a large row group is no leak, to be restarted and told
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(whom,), daemon=True).start()


def _end_with(whom: int) -> None:
    while os.getppid() == whom:
        time.sleep(1)
    os._exit(1)
