"""The scheduling of jobs on a Dask cluster, so that slow or stuck workers do not hold up a pass.

A *job* is something that any worker can do, with the same result. Every job is submitted once. From
time to time, what is not done is submitted again (a *retry*), to workers that have nothing to do.
The first result of a job is used, the others are dropped.

No pass waits for threads that sleep, are stuck or are slow. For assume that one thread of all
workers is awake: whatever it begins, it finishes, so it comes to have nothing to do. A thread that
was given a job and does not finish it is busy, so it is given no other. Each time that an
unfinished job goes to an idle thread, there is one fewer thread left that could take it from the
one that is awake. There it is done, at the latest.

This relies on what a stuck worker has in its memory: others can read it there while its threads
sleep. A worker that does not answer at all is lost, for Dask's scheduler, after five minutes
(``distributed.scheduler.worker-ttl``). What was lost with a worker is made again by another: a task
that is restricted to one worker may be done by any, once that one is gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from queue import Empty, SimpleQueue
from typing import Any

from adaptive_dp.data.rows import SchemaError

PATIENCE = 5.0
"""Seconds that a worker has at least, before its job is also given to another."""

Attempt = tuple[Any, ...]
"""Futures of one try at a job, each of which needs the one before; the last has the result."""

Workers = Sequence[str] | None
"""The addresses of the workers that may do something; None for all."""

Job = Callable[[Workers, bool], Attempt]
"""Submits a job; the second argument is whether it is a retry."""


class Scheduler:
    """Submits jobs to the workers of a `distributed.Client`.

    Parameters
    ----------
    client
        The client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._probes: dict[str, Any] = {}

    def run(
        self,
        jobs: Sequence[Job],
        attempts: dict[int, Attempt] | None = None,
        one_done: Callable[[int], object] = lambda job: None,
    ) -> list[Attempt]:
        """Return for each job the attempt that finished first.

        Parameters
        ----------
        jobs
            What is to be done.
        attempts
            What is done already, by the numbers of the jobs; more is put there.
        one_done
            Called with the number of each job that is done.

        Raises
        ------
        SchemaError
            If a job cannot be done: it killed several workers, or the cluster is gone.
        """
        # callbacks run in a thread of the client: the queue hands their news to this one
        news: SimpleQueue[tuple[int, Attempt]] = SimpleQueue()
        tried: list[list[Attempt]] = [[] for _ in jobs]
        attempts = {} if attempts is None else attempts
        # what was done in an earlier run does not count for the pace of this one
        earlier = len(attempts)

        def submit(i: int, workers: Workers) -> None:
            # the first attempt is no retry; each later one is
            attempt = jobs[i](workers, len(tried[i]) > 0)
            tried[i].append(attempt)
            attempt[-1].add_done_callback(lambda _: news.put((i, attempt)))

        start = last = time.monotonic()
        retry_at = start + PATIENCE
        try:
            awake = self._awake()
            for i in range(len(jobs)):
                if i not in attempts:
                    submit(i, awake)
            while len(attempts) < len(jobs):
                try:
                    i, attempt = news.get(timeout=max(0.0, retry_at - time.monotonic()))
                except Empty:
                    # nothing came in time: each unfinished job goes to one idle worker too
                    left = {i: tried[i] for i in range(len(jobs)) if i not in attempts}
                    for i, worker in self._spread(left):
                        submit(i, [worker])
                    now, done = time.monotonic(), len(attempts) - earlier
                    # wait as long as three jobs take; where none is done, as long again as so far
                    retry_at = now + (self._span(last - start, done) if done else now - start)
                    continue
                if i not in attempts:
                    if attempt[-1].status in ("error", "cancelled"):
                        raise SchemaError("a part of the data was lost: the cluster gave it up")
                    attempts[i], last = attempt, time.monotonic()
                    one_done(i)
            return [attempts[i] for i in range(len(jobs))]
        finally:
            # on an error or an interruption too: no result of the other attempts is used any more
            lost = [a for i, each in enumerate(tried) for a in each if a is not attempts.get(i)]
            with suppress(OSError):  # the cluster is gone
                self._drop(lost)

    def _span(self, gone: float, done: int) -> float:
        """Return how long three jobs take a thread, at the pace of those that are done.

        Parameters
        ----------
        gone
            Seconds that passed until the last of them was done.
        done
            How many all threads together have done in that time.
        """
        threads: int = sum(self._client.nthreads().values())
        # threads/done jobs were done by each thread, in `gone` seconds
        return max(PATIENCE, 3 * gone * threads / done)

    def _spread(self, left: Mapping[int, Sequence[Attempt]]) -> list[tuple[int, str]]:
        """Return which idle worker is to retry which unfinished job: each in turn."""
        keys = {key for attempts in left.values() for attempt in attempts for key in _keys(attempt)}
        # how many of the unfinished attempts each worker is at
        busy = Counter(worker for key, worker in self._places() if key in keys)
        asleep = self._asleep()
        threads = self._client.nthreads()
        free = sorted(w for w, count in threads.items() if busy[w] < count and w not in asleep)
        # in turn, so that no idle worker gets two jobs before each has one
        turns = cycle(free)
        return [(i, next(turns)) for i in left] if free else []

    def _drop(self, attempts: Sequence[Attempt]) -> None:
        """Forget attempts, and ask the workers that are at one of them to answer once they can."""
        if not attempts or self._client.status != "running":
            return
        keys = {key for attempt in attempts for key in _keys(attempt)}
        # a worker that answers its probe has finished what it was at
        for worker in {worker for key, worker in self._places() if key in keys} - self._asleep():
            self._probes[worker] = self._client.submit(_answer, pure=False, workers=[worker])
        self._client.cancel([future for attempt in attempts for future in attempt])

    def _asleep(self) -> set[str]:
        """Return the workers that have not answered since another was faster."""
        self._probes = {k: v for k, v in self._probes.items() if not v.done()}
        return set(self._probes)

    def _awake(self) -> Workers:
        """Return the other workers; None if none is asleep, or all are."""
        asleep = self._asleep()
        return sorted(set(self._client.nthreads()) - asleep) or None if asleep else None

    def _places(self) -> Iterator[tuple[str, str]]:
        """Yield each task that is under way or waits, and its worker."""
        for worker, keys in self._client.processing().items():
            yield from ((str(key), worker) for key in keys)


def _keys(attempt: Attempt) -> Iterator[str]:
    return (str(future.key) for future in attempt)


def _answer() -> None:
    """Do nothing: that is done as soon as the worker can do anything."""
