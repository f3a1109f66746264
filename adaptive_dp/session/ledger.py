"""Ledgers: append-only records of what was spent, written before anything is released.

A ledger is shared by all sessions that spend from one budget, in however many processes.
`Ledger.spend` is one transaction: it sees every entry before its own, and no other writer can come
between. When it returns, the entry is on the disk. Only then may a value be drawn: a crash can
waste budget, never lose a record of it.

What an entry says is in `adaptive_dp.session.entries`; how it gets to a disk in
`adaptive_dp.session.database`, with the two databases `sqlite` and `postgres`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.entries import GENESIS, Entry, chained, timestamped
from adaptive_dp.session.postgres import PostgresLedger
from adaptive_dp.session.sqlite import SQLiteLedger


class Ledger(Protocol):
    """What a session needs of a ledger: to append in a transaction, to read, and to close.

    Examples
    --------
    `MemoryLedger`, `SQLiteLedger` and `PostgresLedger` are ledgers, and a class of yours may be:

    >>> import adaptive_dp as dp
    >>> class PrintingLedger(MemoryLedger):
    ...     def spend(self, seen, decide):
    ...         entries = super().spend(seen, decide)
    ...         print(*(entry["kind"] for entry in entries))
    ...         return entries
    >>> people, rows = dp.dataset("people", columns={}), {"id": [1, 2, 3]}
    >>> with dp.Session(budget=dp.Budget(1.0), ledger=PrintingLedger(), people=rows) as session:
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
            How many entries the caller has read.
        decide
            Gets the entries after those, and returns the one to append; None, or an exception,
            appends nothing.

        Returns
        -------
        list of dict
            The entries after those that were seen, the new one last. They are on the disk.

        Raises
        ------
        LedgerError
            If the ledger cannot be read or written, or was changed in the meantime.
        """
        ...

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        ...

    def close(self) -> None:
        """Close files and connections."""
        ...


class MemoryLedger:
    """A ledger in memory, which lives as long as its process: for a session without one.

    A forked process has a copy of it, and both would spend the same budget: the child is refused.

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
        """Append one entry; see `Ledger.spend`."""
        # before `decide`: a forked child must not decide on its copy of the entries
        self._check_process()
        with self._lock:
            entry = decide(self._entries[seen:])
            # once more: `decide` runs a caller's code, which may have forked, and the child must
            # not append
            self._check_process()
            if entry is not None:
                # number and previous hash are set under the lock, so that no two entries have the
                # same
                last = self._entries[-1]["hash"] if self._entries else GENESIS
                self._entries.append(chained(timestamped(entry), len(self._entries), last))
            # with the new entry: the caller has then read all up to its own
            return self._entries[seen:]

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        self._check_process()
        # a copy (a slice), so that a later append does not change the caller's list
        with self._lock:
            return self._entries[after:]

    def close(self) -> None:
        """Do nothing."""

    def _check_process(self) -> None:
        # a child has a copy of the memory, whose spends the parent would never see
        if self._pid != os.getpid():
            raise LedgerError(
                "a session without a ledger cannot be used in a forked process, which would spend "
                "its budget a second time; pass ledger=PATH, which processes share"
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled; processes share one by its path or URL")


def open_ledger(ledger: Ledger | str | os.PathLike[str], *, create: bool = True) -> Ledger:
    """Return a ledger: itself, or the one at a path (SQLite) or a URL (``postgresql://...``).

    Parameters
    ----------
    ledger
        The ledger, its path or its URL.
    create
        Whether it is made where it does not exist.

    Raises
    ------
    LedgerError
        If it does not exist and cannot be made, or it is not a ledger.

    Examples
    --------
    >>> open_ledger(MemoryLedger()).entries()
    []
    >>> open_ledger("privacy.db", create=False)
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LedgerError: the ledger cannot be used: there is no file ...privacy.db
    """
    if not isinstance(ledger, str | os.PathLike):
        # by its methods, not by its class: a ledger need not inherit from anything
        if all(callable(getattr(ledger, name, None)) for name in ("spend", "entries", "close")):
            return ledger
        raise LedgerError(f"a ledger is a path, a URL or a Ledger, got a {type(ledger).__name__}")
    place = os.fspath(ledger)
    if isinstance(place, str) and place.startswith(("postgresql://", "postgres://")):
        return PostgresLedger(place, create=create)
    # a mistyped URL must not become a file of that name
    if not isinstance(place, str) or not place or "://" in place or place.startswith("file:"):
        raise LedgerError(
            "a ledger is the path of a file, or a URL such as postgresql://host/database; got "
            f"{place!r}"
        )
    return SQLiteLedger(place, create=create)
