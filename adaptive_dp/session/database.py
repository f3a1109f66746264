"""What every ledger on a disk does: one connection, one transaction per entry, a checked end.

`DatabaseLedger.spend` is the protocol; `sqlite` and `postgres` supply its statements.

Forks. A database's connection must not cross a fork: parent and child would write over one another,
and each could take the other's locks for its own. So no connection is open while the process forks:
the fork waits until no transaction is under way, and closes; parent and child open their own when
they next need one. (A fork that Python does not see, in C code, is refused when it is noticed.)

The end. A ledger remembers the last entry that it has seen, and every transaction begins by looking
whether it is still there. Whoever puts an old copy back, or cuts entries off, is noticed by every
session that is open; after that, only by those who keep a hash elsewhere.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.entries import (
    GENESIS,
    Entry,
    canonical_json,
    chained,
    is_chained,
    timestamped,
    unusable,
)

Row = tuple[int, str, str]
"""An entry as it is stored: its number, its hash, and the JSON that was hashed."""

LOCK_TIMEOUT = 60.0
"""How many seconds to wait for other writers."""


class DatabaseLedger:
    """Base of the ledgers that outlive a process: a subclass knows one kind of database.

    Parameters
    ----------
    location
        The path or the URL, as messages show it.
    """

    _connection: Any = None

    def __init__(self, location: str) -> None:
        self.location = location
        self._lock = threading.RLock()
        self._connection = None
        self._pid = os.getpid()
        self._closed = False
        self._in_transaction = False
        # number and hash of the last entry that was read or written here, checked at the next
        # reading
        self._last: tuple[int, str] = (-1, GENESIS)
        # for forks: a child must not use the connections of its parent
        _OPEN.add(self)

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

        Raises
        ------
        LedgerError
            If the ledger cannot be read or written, or is not what it was.

        Notes
        -----
        What a kill -9 leaves, by where it strikes: before the commit, the ledger as it was (the
        database undoes what was begun); during the commit, the ledger with the entry or without it;
        after it, with it. In none of these cases was a value drawn, so budget may be wasted, and
        nothing has leaked.
        """
        with self._using() as connection:
            if self._in_transaction:  # `decide` spends in its turn: the lock lets this thread pass
                raise LedgerError("a spend was asked for while another was being decided")
            self._in_transaction = True
            try:
                # 1. Lock out other writers. First, since what is read below must still hold when
                #    the entry is written: two sessions that both read 0.4 left could both spend it.
                with self._errors("written"):
                    self._begin(connection)
                # 2. Read what others have written since, and check that nothing was cut off.
                with self._errors("read"):
                    entries = self._after(connection, seen)
                # 3. Decide in view of all of it. An exception here is a refusal: rolled back below.
                entry = decide(entries)
                self._check_process()  # `decide` may have forked: the child has no right to write
                if entry is not None:
                    # 4. Chain the entry to the last one and insert it. Other processes do not see
                    #    it; if this one is killed now, the database forgets it.
                    number, last = self._last
                    chained_entry = chained(timestamped(entry), number + 1, last)
                    own = canonical_json({k: v for k, v in chained_entry.items() if k != "hash"})
                    with self._errors("written"):
                        self._insert(connection, (number + 1, chained_entry["hash"], own))
                    # 5. Commit: returns when the entry is on the disk. An error here leaves open
                    #    whether it is; the caller draws nothing, and the next reading shows.
                    with self._errors("written, as far as is known"):
                        self._commit(connection)
                    # 6. Remember the end only now. An interrupt before this line leaves the old
                    #    end, after which the next reading finds the entry, as if another had
                    #    written it; the reverse order could expect an entry that is not there.
                    self._last = (number + 1, chained_entry["hash"])
                    entries.append(chained_entry)
                else:
                    self._roll_back(connection)
            except BaseException:  # a KeyboardInterrupt too must let go of the lock
                self._abandon(connection)
                raise
            finally:
                self._in_transaction = False
            return entries

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        return self._read(lambda connection: self._after(connection, after))

    def unchecked(self) -> list[Entry]:
        """Return the entries as they are stored, damaged or not: for those who look into it."""
        # from before the first number on: damaged rows may have any number
        return self._read(lambda c: [entry_from_row(row) for row in self._rows(c, -(2**62))])

    def close(self) -> None:
        """Let go of files and connections."""
        with self._lock:
            self._drop()
            self._closed = True

    def __del__(self) -> None:
        self._drop()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled; open it again by its path or URL")

    def _read(self, read: Callable[[Any], list[Entry]]) -> list[Entry]:
        """Read, on a new connection where the old one has broken: to read twice does no harm.

        (To write twice would: whether a broken commit has written is not known, so `spend` does
        not try again.)
        """
        with self._using() as connection:
            try:
                with self._errors("read"):
                    return read(connection)
            except LedgerError:
                # only a connection that has broken is worth a second try; damage would be found
                # again
                if not self._broken(connection):
                    raise
                self._drop()
        with self._using() as connection, self._errors("read"):
            return read(connection)

    def _after(self, connection: Any, seen: int) -> list[Entry]:
        """Return the entries from a number on; the last one seen must be what it was.

        Reading starts at the first entry that the caller does not know, or at the last one that
        was seen here if that is earlier. Its hash must be what it was; through the chain it covers
        all that came before, which need not be read again.
        """
        number, last = self._last
        # from the last entry seen, if that is earlier than what is asked for: it is compared too
        start = max(0, min(seen, number))
        entries: list[Entry] = []
        end, expected = start - 1, ""
        for end, row in enumerate(self._rows(connection, start), start):
            # numbers follow each other without a gap, and the last one seen has the hash it had
            if row[0] != end or (end == number and row[1] != last):
                raise unusable(f"{self.location} has lost or changed entry {min(end, number)}")
            if end >= seen:
                entry = entry_from_row(row)
                # without the entry before it there is nothing to compare with but what it says
                # itself
                before = expected if end > start else entry.get("previous") if end else GENESIS
                if not is_chained(entry, end, before):
                    raise unusable(
                        f"entry {end} of {self.location} is not what was written there; "
                        "`adaptive-dp ledger verify` says more"
                    )
                entries.append(entry)
            expected = row[1]
        # the ledger ends before an entry that was seen: it was cut off
        if end < number or end < seen - 1:
            raise unusable(
                f"{self.location} has lost entries: it ends at {end}, and "
                f"{max(number, seen - 1)} was seen there"
            )
        # only what has been checked becomes the end that is expected next time
        if end >= start:
            self._last = (end, expected)
        return entries

    @contextmanager
    def _using(self) -> Iterator[Any]:
        """Give the connection, opened if there is none, to one thread at a time."""
        with self._lock:
            if self._closed:
                raise unusable(f"{self.location} was closed")
            if self._connection is None:
                # the connection belongs to the process that opens it
                self._pid = os.getpid()
                with self._errors("opened"):
                    self._connection = self._connect()
            # checked after a possible opening: a child may open a connection of its own
            self._check_process()
            yield self._connection

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise unusable(
                f"the process was forked while {self.location} was in use; open it again in the "
                "child"
            )

    def _abandon(self, connection: Any) -> None:
        """Undo what was begun, if that is this process's to undo."""
        if self._pid == os.getpid():
            try:
                self._roll_back(connection)
            except Exception:  # a broken connection: its server or file forgets what it began
                self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()
        elif connection is not None:
            _ABANDONED.append(connection)  # closing it would touch what is the parent's

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn a database's errors into `LedgerError`."""
        try:
            yield
        except self._failures() as error:
            raise LedgerError(
                f"the ledger {self.location} could not be {what}: {self._reason(error)}"
            ) from error

    # What a subclass supplies.

    def _failures(self) -> tuple[type[Exception], ...]:
        raise NotImplementedError

    def _reason(self, error: Exception) -> str:
        return str(error)

    def _broken(self, connection: Any) -> bool:
        """Whether a connection is of no more use."""
        return False

    def _connect(self) -> Any:
        raise NotImplementedError

    def _begin(self, connection: Any) -> None:
        """Begin a transaction, and wait until no other writer is in one."""
        raise NotImplementedError

    def _commit(self, connection: Any) -> None:
        """Commit; return when what was inserted is on the disk."""
        raise NotImplementedError

    def _roll_back(self, connection: Any) -> None:
        raise NotImplementedError

    def _rows(self, connection: Any, start: int) -> Iterable[Row]:
        """Return the rows from a number on, in order."""
        raise NotImplementedError

    def _insert(self, connection: Any, row: Row) -> None:
        raise NotImplementedError


def entry_from_row(row: Row) -> Entry:
    """Return an entry from how it is stored; what cannot be read does not fit its hash."""
    try:
        content = json.loads(row[2])
    except (ValueError, RecursionError, TypeError):
        content = None
    # what cannot be read has a hash alone, and so fails the check of the chain
    return {**content, "hash": row[1]} if isinstance(content, dict) else {"hash": row[1]}


# --- Forks -------------------------------------------------------------------------------------

_OPEN: weakref.WeakSet[DatabaseLedger] = weakref.WeakSet()
_ABANDONED: list[Any] = []
"""Connections of a parent that a child must neither use nor close: kept, so that no garbage
collection closes them."""
_held: list[DatabaseLedger] = []


def _before_fork() -> None:
    for ledger in list(_OPEN):
        ledger._lock.acquire()  # waits for a transaction of another thread
        _held.append(ledger)
        # a transaction of this very thread (`decide` forks) goes on: its connection stays with the
        # parent, and the child is refused by `_check_process`
        if not ledger._in_transaction:
            ledger._drop()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()


def _in_child() -> None:
    # new locks, which no thread holds: those from before the fork may be held more than once
    for ledger in _held:
        ledger._lock = threading.RLock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
