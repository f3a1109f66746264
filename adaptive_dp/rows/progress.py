"""How far a pass over parts is, for whoever holds the data.

How many parts there are is private: it tells how many rows. So nothing shows it unless the holder
of the data asks, and it is written to the standard error alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count as counted

Told = Callable[[int], AbstractContextManager[Callable[[], object]]]
"""Opens a pass over so many parts; what it gives is called whenever one more is done."""


@contextmanager
def silent(count: int) -> Iterator[Callable[[], object]]:
    """Show nothing."""
    yield lambda: None


@contextmanager
def shown(count: int) -> Iterator[Callable[[], object]]:
    """Write on one line how many parts of ``count`` are done."""
    done = counted()

    def one() -> None:
        sys.stderr.write(f"\rparts read: {next(done)} of {count}")
        sys.stderr.flush()

    one()
    try:
        yield one
    finally:
        sys.stderr.write("\n")
