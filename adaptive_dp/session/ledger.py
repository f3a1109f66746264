"""What a ledger is: an append-only record of what was spent, written before anything is released.

Nouns. An *entry* is a mapping of JSON values with a ``kind``:

=============  =================================================================================
``open``       the budget, the filter and whom it protects; the first entry, and the only such
``spend``      what is about to be released (a plan document), and what it costs, place by place
               (the plan without what earlier entries hold: see `adaptive_dp.session.plans`)
``release``    what was released for an earlier spend: its values, for whoever asks again
=============  =================================================================================

Entries are chained: each carries the hash of the one before (see `adaptive_dp.session.chain`), so
that nobody can change, drop or insert one unseen.

A ledger is shared by all who spend of one budget, in however many processes. `spend` is one
transaction: whoever holds it sees every entry before its own, and no other can come between. When
it returns, the entry is on the disk. Only then may a value be drawn: a crash can waste budget,
never lose a record of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.chain import GENESIS, linked, stamped

Entry = dict[str, Any]


class Ledger(Protocol):
    """Where entries are kept.

    Examples
    --------
    `MemoryLedger`, `SQLiteLedger` and `PostgresLedger` are such, and a class of yours may be:

    >>> import adaptive_dp as dp
    >>> class Told(MemoryLedger):
    ...     def spend(self, seen, decide):
    ...         entries = super().spend(seen, decide)
    ...         print(*(entry["kind"] for entry in entries))
    ...         return entries
    >>> people, rows = dp.dataset("people", columns={}), {"id": [1, 2, 3]}
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=Told(), people=rows) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    open
    spend
    release
    """

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry, in a transaction that no other writer can enter.

        Parameters
        ----------
        seen
            How many entries the caller knows.
        decide
            Gets the entries after those, and returns the one to append; None, or an exception,
            appends nothing.

        Returns
        -------
        list of dict
            The entries after those that were seen, the new one last. They are on the disk.
        """
        ...

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries, those that came first left out."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""
        ...


class MemoryLedger:
    """A ledger that lives as long as the process: for a session without one.

    A process that is forked takes a copy of it along, and both would spend the same budget: the
    child is refused.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people, budget = dp.dataset("people", columns={}), dp.Budget(1.0)
    >>> ledger, rows = MemoryLedger(), {"id": [1, 2, 3]}
    >>> with dp.Session(budget=budget, ledger=ledger, people=rows) as session:
    ...     n = session.run(people.count().release(dp.Laplace(scale=4)))
    >>> [entry["kind"] for entry in ledger.entries()]
    ['open', 'spend', 'release']
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry."""
        self._mine()
        with self._lock:
            entry = decide(self._entries[seen:])
            self._mine()
            if entry is not None:
                last = self._entries[-1]["hash"] if self._entries else GENESIS
                self._entries.append(linked(stamped(entry), len(self._entries), last))
            return self._entries[seen:]

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries."""
        self._mine()
        with self._lock:
            return self._entries[after:]

    def close(self) -> None:
        """Do nothing."""

    def _mine(self) -> None:
        if self._pid != os.getpid():
            raise LedgerError(
                "a session without a ledger cannot be used in a forked process, which would spend "
                "its budget a second time; pass ledger=PATH, which processes share"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled; processes share one by its path or URL")


def require_ledger(condition: bool, message: str) -> None:
    """Raise `LedgerError` with ``message`` unless ``condition`` holds."""
    if not condition:
        raise LedgerError(f"the ledger cannot be used: {message}")
