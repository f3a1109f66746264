"""A computation that is begun again after an interruption goes on in its first pass.

Whoever computes something by passes over parts says so by `going`, each time with the same
`Attempt`. Its first pass, if it is a sum, then keeps what it has so far (`Memory`), until it is
done or another begins. What is begun again must be *the same*: a function of the same values that
draws nothing at random. Then its first pass is the same too: no pass was done before, so that
nothing is there which one could have left, and what it has of each part is what it would have
again. (Of later passes nobody could say: they may hang on what earlier ones have left.)
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Memory = dict[Any, Any]
"""What an engine knows of a pass that is under way; what is in it, it alone says."""


class Attempt:
    """What was computed when it was interrupted."""

    def __init__(self) -> None:
        self._passes = 0
        self._first: tuple[tuple[Any, ...], Memory] | None = None

    def begin(self) -> None:
        """Begin, or begin again."""
        self._passes = 0

    def memory(self, what: tuple[Any, ...]) -> Memory:
        """Return the memory of the next pass; ``what`` are objects by which it is known too."""
        self._passes += 1
        if self._passes > 1:
            self._first = None
            return {}
        if self._first is not None:
            known, memory = self._first
            if len(known) == len(what) and all(a is b for a, b in zip(known, what, strict=True)):
                return memory
        self._first = what, {}
        return self._first[1]


class _Current(threading.local):
    """The attempt of each thread; a context's would be kept by tasks of a client's event loop."""

    attempt: Attempt | None = None


_CURRENT = _Current()


@contextmanager
def going(attempt: Attempt | None) -> Iterator[None]:
    """Let passes go on where an attempt stood; without one they begin at the beginning."""
    if attempt is not None:
        attempt.begin()
    outer, _CURRENT.attempt = _CURRENT.attempt, attempt
    try:
        yield
    finally:
        _CURRENT.attempt = outer


def memory(*what: Any) -> Memory:
    """Return what is known of a pass that begins now."""
    return {} if _CURRENT.attempt is None else _CURRENT.attempt.memory(what)
