"""The workers of a cluster, of whom none holds up the others.

A *job* is something that any worker can do, with the same result. Every job is handed out once; now
and then, what is not done is handed out once more, to workers that have nothing to do. The first
result of a job is taken, the others are dropped.

No pass waits for threads that sleep, are stuck or slow. For let one thread of all workers be awake:
whatever it begins, it ends. So it comes to have nothing to do, and a thread that was given a job
and does not end it has something to do, so that it is given no other. Each time a job that is not
done goes to a thread that has nothing to do, one fewer is left to take it from the one that is
awake: there it is done, at the latest.

This counts on what a stuck worker has in its memory: others can read it there while its threads
sleep. A worker that does not answer at all is lost, for the scheduler, after five minutes
(``distributed.scheduler.worker-ttl``). What was lost with a worker is made again by another: a task
that was to be done by one alone may be done by any, when that one is gone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import cycle
from queue import Empty, SimpleQueue
from typing import Any

from adaptive_dp.rows.reading import SchemaError

PATIENCE = 5.0
"""Seconds that a worker has at least, before what it was given is also given to another."""

Attempt = tuple[Any, ...]
"""Futures of one way to do a job, each of which needs the one before; the last has the result."""

Workers = Sequence[str] | None
"""The addresses of those who may do something; None for all."""

Job = Callable[[Workers, bool], Attempt]
"""Hands a job out; the second argument is whether that is once more."""


class Crew:
    """The workers of a `distributed.Client`.

    Parameters
    ----------
    client
        The client.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._probes: dict[str, Any] = {}

    def finished(
        self,
        jobs: Sequence[Job],
        found: dict[int, Attempt] | None = None,
        told: Callable[[], object] = lambda: None,
    ) -> list[Attempt]:
        """Return for each job the attempt that was first.

        Parameters
        ----------
        jobs
            What is to be done.
        found
            What is done already, by the numbers of the jobs; what is done is put there.
        told
            Called whenever one more is done.

        Raises
        ------
        SchemaError
            If a job cannot be done: it killed several workers, or the cluster is gone.
        """
        news: SimpleQueue[tuple[int, Attempt]] = SimpleQueue()
        tried: list[list[Attempt]] = [[] for _ in jobs]
        found = {} if found is None else found
        known = len(found)

        def hand_out(i: int, workers: Workers) -> None:
            attempt = jobs[i](workers, len(tried[i]) > 0)
            tried[i].append(attempt)
            attempt[-1].add_done_callback(lambda _: news.put((i, attempt)))

        start = last = time.monotonic()
        copies = start + PATIENCE
        try:
            awake = self._awake()
            for i in range(len(jobs)):
                if i not in found:
                    hand_out(i, awake)
            while len(found) < len(jobs):
                try:
                    i, attempt = news.get(timeout=max(0.0, copies - time.monotonic()))
                except Empty:
                    left = {i: tried[i] for i in range(len(jobs)) if i not in found}
                    for i, worker in self._spread(left):
                        hand_out(i, [worker])
                    now, done = time.monotonic(), len(found) - known
                    copies = now + (self._span(last - start, done) if done else now - start)
                    continue
                if i not in found:
                    if attempt[-1].status in ("error", "cancelled"):
                        raise SchemaError("a part of the data was lost: the cluster gave it up")
                    found[i], last = attempt, time.monotonic()
                    told()
            return [found[i] for i in range(len(jobs))]
        finally:
            lost = [a for i, each in enumerate(tried) for a in each if a is not found.get(i)]
            with suppress(OSError):  # the cluster is gone
                self._drop(lost)

    def _span(self, gone: float, done: int) -> float:
        """Return the seconds that three jobs take a thread, if so many took all of them so long."""
        threads: int = sum(self._client.nthreads().values())
        return max(PATIENCE, 3 * gone * threads / done)

    def _spread(self, left: Mapping[int, Sequence[Attempt]]) -> list[tuple[int, str]]:
        """Return who is to do what is left too: whoever has nothing to do, in turns."""
        keys = {key for attempts in left.values() for attempt in attempts for key in _keys(attempt)}
        busy = Counter(worker for key, worker in self._places() if key in keys)
        asleep = self._asleep()
        threads = self._client.nthreads()
        free = sorted(w for w, count in threads.items() if busy[w] < count and w not in asleep)
        turns = cycle(free)
        return [(i, next(turns)) for i in left] if free else []

    def _drop(self, attempts: Sequence[Attempt]) -> None:
        """Forget attempts; whoever is at one of them is asked to answer, once free to."""
        if not attempts or self._client.status != "running":
            return
        keys = {key for attempt in attempts for key in _keys(attempt)}
        for worker in {worker for key, worker in self._places() if key in keys} - self._asleep():
            self._probes[worker] = self._client.submit(_answer, pure=False, workers=[worker])
        self._client.cancel([future for attempt in attempts for future in attempt])

    def _asleep(self) -> set[str]:
        """Return the workers that have not answered since they were overtaken."""
        self._probes = {k: v for k, v in self._probes.items() if not v.done()}
        return set(self._probes)

    def _awake(self) -> Workers:
        """Return the other workers; None if nobody is asleep, or everybody."""
        asleep = self._asleep()
        return sorted(set(self._client.nthreads()) - asleep) or None if asleep else None

    def _places(self) -> Iterator[tuple[str, str]]:
        """Yield tasks that are under way or wait for their turn, and the workers where they are."""
        for worker, keys in self._client.processing().items():
            yield from ((str(key), worker) for key in keys)


def _keys(attempt: Attempt) -> Iterator[str]:
    return (str(future.key) for future in attempt)


def _answer() -> None:
    """Do nothing: it is done as soon as the worker can do anything."""
