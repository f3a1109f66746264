"""Workers of this machine: threads, processes, and whatever the user has set with joblib.

*Threads* share this process: NumPy and PyArrow release the interpreter while they compute.

*Processes* do not wait for each other's interpreter. They are those of loky, which joblib brings:
started when first needed, kept for the next pass, and ended `IDLE` seconds after the last, or with
the process that started them. Each reads its parts from the files itself. A task is sent as bytes
through a pipe, and a result or an error comes back. They run a Python of their own: what a function
prints goes to the same places, what it counts stays there. A process that dies takes nothing with
it but its task, which another repeats: a task reads nothing but its part, and one result of a part
is used. What cannot be sent back is repeated here, by the pass itself.

*joblib's workers* do the same work on each of several independent objects, such as PATE's teachers
(`map_unordered`), where the user has set them with ``joblib.parallel_config``.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from queue import Empty
from threading import Lock, Thread
from typing import Any, Protocol

import numpy as np

from adaptive_dp.data.engine import Part, Task
from adaptive_dp.data.rows import Reading, SchemaError


class Pending(Protocol):
    """A task that is under way, or waits for its turn."""

    def result(self) -> Any:
        """Wait for the task's result and return it."""
        ...

    def cancel(self) -> Any:
        """Withdraw the task if it was not started."""
        ...


Submit = Callable[[Part, dict[str, Reading], Task], Pending]

Pool = Callable[[int, Task | None], AbstractContextManager[Submit]]
"""Opens a pool of so many workers; the task is one like all that will be submitted."""


def core_count() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_task(part: Part, columns: dict[str, Reading], task: Task) -> Any:
    """Return a task's result for a part, without warnings, which would tell of the data."""
    with np.errstate(all="ignore"):
        return task(part.blocks(columns))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep each worker's matrix products on one thread, where threadpoolctl is installed.

    Threads of threads wait for each other: on a busy machine that takes ten times as long.
    """
    try:
        import threadpoolctl  # noqa: F401
    except ImportError:
        return nullcontext()
    return _libraries(len(sys.modules)).limit(limits=1, user_api="blas")  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return what limits the threads of the libraries that are loaded.

    The search for them takes as long as a pass over 10^5 rows. They are those of before while no
    module was imported: ``modules`` is how many there are.
    """
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# --- threads


@contextmanager
def threads(workers: int, like: Task | None) -> Iterator[Submit]:
    """Open a pool of threads."""
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:

        def submit(part: Part, columns: dict[str, Reading], task: Task) -> Future[Any]:
            context = contextvars.copy_context()  # for one, where printed output goes
            return pool.submit(context.run, run_task, part, columns, task)

        yield submit


# --- processes, as the process that reads sees them

IDLE = 30.0
"""Seconds after which a process without work ends."""

TRIES = 3
"""How often a task is given to processes that die."""

WORKER_ENVIRONMENT = {
    f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")
}
"""The environment of the processes: matrix products on one thread."""

_POOLS: dict[tuple[int, int], Any] = {}
"""Pools by process id, since a fork has none of its parent's, and by number of workers."""

# before loky's own exit handlers: later, its modules are half gone and it prints errors
atexit.register(_POOLS.clear)

_LOCK = Lock()


def _forked() -> None:
    global _LOCK  # another thread of the parent may have held it
    _LOCK = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_IS_WORKER = False
"""Whether this process runs tasks for another."""

_DYING = (
    "the processes that read the data died, one after the other; is memory short? "
    'Read by threads: adaptive_dp.Files(paths, engine="threads")'
)


@contextmanager
def processes(workers: int, like: Task | None) -> Iterator[Submit]:
    """Open a pool of processes, or of threads if none can be started or the task cannot be sent."""
    try:
        if like is not None and _can_run(workers, like):
            yield lambda part, columns, task: ProcessTask(workers, part, columns, task)
            return
    except BaseException:
        # An error or Ctrl-C: what is under way has no reader any more, and could run for hours.
        # So the processes are ended rather than waited for.
        _end_pool(workers, _POOLS.get((os.getpid(), workers)))
        raise
    with threads(workers, like) as submit:
        yield submit


class ProcessTask:
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
        job = os.getcwd(), _to_bytes(self._job)
        self._pool, self._future = _submitted(self._workers, _run_in_worker, *job)

    def result(self) -> Any:
        """Wait for the task's result and return it, or raise the error that the task raised.

        Raises
        ------
        SchemaError
            If several processes died of it.
        """
        from joblib.externals.loky.process_executor import ShutdownExecutorError

        died = 0
        while True:
            try:
                outcome = _from_bytes(self._future.result())
                break
            except ShutdownExecutorError:
                pass  # another pass was interrupted and ended the pool: not this task's fault
            except Exception:
                died += 1
            # A pool that has lost a process is broken for all its tasks. It is ended before the
            # task is sent again, so that the next submission starts a new one.
            _end_pool(self._workers, self._pool)
            if died == TRIES:
                raise SchemaError(_DYING)
            self._send()
        if outcome is None:  # what it returned or raised cannot be sent: repeat it here
            with one_blas_thread():
                return run_task(*self._job)
        succeeded, value = outcome
        if not succeeded:
            raise value
        return value

    def cancel(self) -> None:
        """Do nothing: when a pass is given up, the processes are ended."""


def processes_available() -> bool:
    """Return whether joblib is installed."""
    try:
        import joblib  # noqa: F401
    except ImportError:
        return False
    return True


def _can_run(workers: int, like: Task) -> bool:
    """Return whether processes can be started, and can import the code of a task."""
    try:
        job = os.getcwd(), _to_bytes(like)
    except Exception:  # it cannot be pickled, or there is no working directory
        return False
    for _ in range(2):  # one of them may have died while there was nothing to do
        pool, future = _submitted(workers, _can_import, *job)
        try:
            return bool(future.result())
        except Exception:  # for example, a machine that lets no process start
            _end_pool(workers, pool)
    return False


def _to_bytes(job: Any) -> bytes:
    """Return a task as bytes, with the code of functions that are not in a module."""
    import cloudpickle

    pickled: bytes = cloudpickle.dumps(job)
    return pickled


def _from_bytes(outcome: bytes) -> Any:
    """Return whether a task succeeded, and its result or error; None if it cannot be read."""
    try:
        return pickle.loads(outcome)
    except Exception:
        return None


def _submitted(workers: int, work: Any, folder: str, job: bytes) -> tuple[Any, Future[Any]]:
    """Return the pool (None if there is none), and the future of a job, failed or not."""
    pool = None
    try:
        with _interrupts_blocked(), _LOCK:
            pool = _pool(workers)
            return pool, pool.submit(work, folder, job)
    except Exception as error:
        failed = Future[Any]()
        failed.set_exception(error)
        return pool, failed


def _pool(workers: int) -> Any:
    """Return the pool of so many workers, under the lock."""
    from joblib.externals.loky.process_executor import ProcessPoolExecutor

    key = os.getpid(), workers
    if key not in _POOLS:
        _POOLS[key] = ProcessPoolExecutor(
            workers,
            timeout=IDLE,
            initializer=_start_worker,
            initargs=(os.getpid(),),
            env=WORKER_ENVIRONMENT,
        )
    return _POOLS[key]


def _end_pool(workers: int, pool: Any) -> None:
    """End a pool at once, so that the next task gets another; what is under way is lost."""
    key = os.getpid(), workers
    with _LOCK:  # out of the table first: no other thread may submit to a pool that is ending
        ended: Any = _POOLS.get(key)
        if ended is None or ended is not pool:
            return  # another pass has ended it
        del _POOLS[key]
        # Jobs that were not started: loky up to 3.6 forgets them first and looks them up then,
        # which kills its thread with an error on the terminal. Their futures fail with the pool.
        with suppress(Empty):
            while True:
                ended._work_ids.get(block=False)
    ended.shutdown(wait=True, kill_workers=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Start processes with SIGINT blocked.

    Ctrl-C reaches every process of the terminal. Only the one that waits decides what it means, and
    a new process inherits the mask: it cannot be interrupted before it ignores the signal itself.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --- processes, as they see themselves


def refuse_in_worker() -> None:
    """Refuse to open data in a process that runs tasks for another.

    A module that runs a plan when it is imported, and has a function that a task needs, would do
    so: each process would run the plan, and release its outputs, once more.

    Raises
    ------
    SchemaError
        If this is such a process.
    """
    if _IS_WORKER:
        raise SchemaError(
            "a process that reads for another opens no data; a module that is imported runs no "
            'plan: put that under if __name__ == "__main__"'
        )


def _start_worker(parent: int) -> None:
    """Prepare a process to run tasks: it ends with its parent, and ignores Ctrl-C."""
    global _IS_WORKER
    from joblib.externals.loky import process_executor

    _IS_WORKER = True
    # loky takes growing memory for a leak, warns and restarts; here it is a large row group
    process_executor._USE_PSUTIL = False
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    # not by a closed pipe: a worker that is computing, or has more to write than a pipe takes,
    # would not notice
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)  # at once: an ordinary exit could print an error that quotes the data


def _can_import(folder: str, job: bytes) -> bool:
    """Return whether a task can be unpickled in a worker."""
    try:
        _job(folder, job)
    except BaseException:  # a module that is imported may also exit
        return False
    return True


def _run_in_worker(folder: str, job: bytes) -> bytes:
    """Run a task in a worker and return what `_from_bytes` reads.

    Errors are returned, not raised: loky prints one that it cannot send, with its message, which
    may quote the data.
    """
    try:
        outcome: tuple[bool, Any] = True, run_task(*_job(folder, job))
    except BaseException as error:
        outcome = False, error
    try:
        return _to_bytes(outcome)
    except Exception:
        return b""


def _job(folder: str, job: bytes) -> Any:
    os.chdir(folder)  # where relative paths mean the same as in the parent
    return pickle.loads(job)


# --- joblib's workers, where the user has set them


def map_unordered(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
    """Yield ``function(*task)`` of each task, in the order in which they end.

    Tasks run in a loop, or by the workers of ``joblib.parallel_config`` around the call. A task
    must not depend on any other: then neither the number of workers nor the order in which they
    end changes a result.
    """
    joblib = sys.modules.get("joblib")  # who has not imported joblib has set no workers
    if joblib is None or joblib.effective_n_jobs(None) == 1:
        for task in tasks:
            yield function(*task)
        return
    backend, _ = joblib.parallel.get_active_backend()
    streams = getattr(backend, "supports_return_generator", False)
    # arrays are sent, not memory-mapped: a map would be a file that other users may read
    parallel = joblib.Parallel(
        return_as="generator_unordered" if streams else "list", max_nbytes=None, verbose=0
    )
    yield from parallel(joblib.delayed(function)(*task) for task in tasks)
