"""Threads that do tasks on parts, in this process."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from adaptive_dp.rows.rows import Reading

if TYPE_CHECKING:
    from adaptive_dp.rows.local import Part, Submit
    from adaptive_dp.rows.parts import Task


@contextmanager
def threads(workers: int, like: Task | None) -> Iterator[Submit]:
    """Open a pool of threads: NumPy and PyArrow let others run while they compute."""
    with one_blas_thread(), ThreadPoolExecutor(workers) as pool:

        def submit(part: Part, columns: dict[str, Reading], task: Task) -> Future[Any]:
            context = contextvars.copy_context()  # where what is printed goes, for one
            return pool.submit(context.run, done, part, columns, task)

        yield submit


def done(part: Part, columns: dict[str, Reading], task: Task) -> Any:
    """Return what a task makes of a part; without warnings, which would tell of the data."""
    with np.errstate(all="ignore"):
        return task(part.blocks(columns))


def one_blas_thread() -> AbstractContextManager[Any]:
    """Keep each thread's matrix products to that thread, where threadpoolctl is installed.

    Threads of threads wait for each other: on a busy machine ten times as long.
    """
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")  # type: ignore[no-any-return]
