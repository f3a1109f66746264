"""What ledgers in a database have in common: one connection, one transaction for each entry.

`DatabaseLedger.spend` has the steps of the transaction; `sqlite` and `postgres` supply the
statements.

Forks. A database's connection must not be used by two processes: parent and child would write over
one another, and each could take the other's locks for its own. So no connection is open while the
process forks: the fork waits until no transaction is running, and closes the connection; parent and
child open their own when they next need one. (A fork that Python does not see, in C code, is
refused at the next use.)

The end. A ledger stores the last entry that it has read, and every transaction first checks that it
is still there. Where an old copy is put back, or entries are cut off, every session that is open
detects it; later ones can do so only by a hash that was stored elsewhere.
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
    chained,
    hashed_json,
    is_chained,
    timestamped,
    unusable,
)

Row = tuple[int, str, str, str]
"""An entry as it is stored: its number, its hash, the JSON that was hashed, and its kind; '' for
the kind where it is in the JSON alone."""

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
        # number and hash of the last entry that was read or written here, compared at the next
        # reading
        self._last: tuple[int, str] = (-1, GENESIS)
        # for forks: a child must not use the connections of its parent
        _LEDGERS.add(self)

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry; see `adaptive_dp.session.ledger.Ledger.spend`.

        Notes
        -----
        What a kill -9 leaves: before the commit, the ledger as it was (the database rolls the
        transaction back); during the commit, the ledger with the entry or without it; after it,
        with it. In none of these cases was a value drawn, so budget may be wasted, and nothing has
        leaked.
        """
        return self._appended(seen, decide)

    def restore(
        self, entries: Sequence[Entry], decide: Callable[[Sequence[Entry]], Entry]
    ) -> list[Entry]:
        """Append the entries of a backup to a ledger that has none, and one more, in a transaction.

        Parameters
        ----------
        entries
            Chained, from the first on.
        decide
            Gets them, and returns the one more.

        Raises
        ------
        LedgerError
            If the ledger has entries, or the backup is not a chain.
        """

        def prepare(connection: Any) -> None:
            if list(self._rows(connection, 0)):
                raise unusable(f"{self.location} has entries; a backup is restored to a new ledger")
            for entry in entries:
                self._insert(connection, row_of(entry))

        return self._appended(0, decide, prepare)

    def migrate(self, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Bring the tables to this version, and append an entry that says so, in a transaction."""
        return self._appended(0, decide, self._upgrade)

    def _appended(
        self,
        seen: int,
        decide: Callable[[Sequence[Entry]], Entry | None],
        prepare: Callable[[Any], None] | None = None,
    ) -> list[Entry]:
        """Do what `spend` does, after ``prepare``, in the same transaction."""
        with self._using() as connection:
            # the lock can be taken again by its own thread, in which `decide` may call `spend`
            if self._in_transaction:
                raise LedgerError("a spend began within another: `decide` must not call `spend`")
            self._in_transaction = True
            try:
                # 1. Lock out other writers. First, since what is read below must still hold when
                #    the entry is written: two sessions that both read that 0.4 remains could both
                #    spend it.
                with self._errors("written"):
                    self._begin(connection)
                    if prepare is not None:
                        prepare(connection)
                # 2. Read what others have written since, and check that nothing was cut off.
                with self._errors("read"):
                    entries = self._checked_entries(connection, seen)
                # 3. Decide by all entries. An exception here is a refusal: rolled back below.
                entry = decide(entries)
                self._check_process()  # `decide` may have forked: the child has no right to write
                if entry is not None:
                    # 4. Chain the entry to the last one and insert it. Other processes do not see
                    #    it yet; if this one is killed now, the database rolls back.
                    number, last = self._last
                    chained_entry = chained(timestamped(entry), number + 1, last)
                    with self._errors("written"):
                        self._insert(connection, row_of(chained_entry))
                    # 5. Commit: returns when the entry is on the disk. After an error here it may
                    #    be there or not; the caller draws nothing, and the next reading shows.
                    with self._errors("written, or it is uncertain whether it was"):
                        self._commit(connection)
                    # 6. Store the new end only now. After an interrupt before this line, the next
                    #    reading starts from the old end and reads the entry as if another process
                    #    had written it. In the other order it could expect an entry that does not
                    #    exist.
                    self._last = (number + 1, chained_entry["hash"])
                    entries.append(chained_entry)
                else:
                    self._roll_back(connection)
            except BaseException:  # a KeyboardInterrupt too must release the lock
                self._undo(connection)
                raise
            finally:
                self._in_transaction = False
            return entries

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries from a number on."""
        return self._read(lambda connection: self._checked_entries(connection, after))

    def unchecked(self) -> list[Entry]:
        """Return the entries as they are stored, damaged or not: to recompute or to print them."""
        # from before the first number on: damaged rows may have any number
        return self._read(lambda c: [entry_from_row(row) for row in self._rows(c, -(2**62))])

    def close(self) -> None:
        """Close files and connections."""
        with self._lock:
            self._disconnect()
            self._closed = True

    def __del__(self) -> None:
        self._disconnect()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a ledger cannot be pickled; open it again by its path or URL")

    def _read(self, read: Callable[[Any], list[Entry]]) -> list[Entry]:
        """Read, and where the connection has broken read again on a new one.

        (`spend` does not try again: a commit that broke may have written the entry.)
        """
        with self._using() as connection:
            try:
                with self._errors("read"):
                    return read(connection)
            except LedgerError:
                # a damaged ledger would be damaged at the second reading too
                if not self._broken(connection):
                    raise
                self._disconnect()
        with self._using() as connection, self._errors("read"):
            return read(connection)

    def _checked_entries(self, connection: Any, seen: int) -> list[Entry]:
        """Return the entries from a number on; the last one read before must not have changed.

        Reading starts at the first entry that the caller has not read, or at the last one that was
        read here if that is earlier. That one's hash must be the same as then; through the chain it
        covers all that came before, which need not be read again.
        """
        number, last = self._last
        # from the last entry read here, if that is earlier than what is asked for, to compare it
        start = max(0, min(seen, number))
        entries: list[Entry] = []
        end, expected = start - 1, ""
        for end, row in enumerate(self._rows(connection, start), start):
            # numbers follow each other without a gap, and the last entry read has the hash it had
            if row[0] != end or (end == number and row[1] != last):
                raise unusable(f"{self.location} has lost or changed entry {min(end, number)}")
            if end >= seen:
                entry = entry_from_row(row)
                # where the entry before it is not read, its own claim of that one's hash is taken
                before = expected if end > start else entry.get("previous") if end else GENESIS
                if not is_chained(entry, end, before):
                    raise unusable(
                        f"entry {end} of {self.location} is not what was written there; "
                        "`adaptive-dp ledger verify` says more"
                    )
                entries.append(entry)
            expected = row[1]
        # the ledger ends before an entry that was read: it was cut off
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
        """Yield the connection, opened if there is none, to one thread at a time."""
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

    def _undo(self, connection: Any) -> None:
        """Roll the transaction back, if this process has begun it."""
        if self._pid == os.getpid():
            try:
                self._roll_back(connection)
            except Exception:  # a broken connection, whose transaction the database rolls back
                self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()
        elif connection is not None:
            _OF_PARENT.append(connection)  # to close it would interfere with the parent's

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        """Turn a database's errors into `LedgerError`."""
        try:
            yield
        except self._error_types() as error:
            raise LedgerError(
                f"the ledger {self.location} could not be {what}: {self._reason(error)}"
            ) from error

    # What a subclass supplies.

    def _error_types(self) -> tuple[type[Exception], ...]:
        """Return the exceptions that the database raises."""
        raise NotImplementedError

    def _reason(self, error: Exception) -> str:
        """Return what a message says of an exception of the database."""
        return str(error)

    def _broken(self, connection: Any) -> bool:
        """Return whether a connection can no longer be used."""
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

    def _upgrade(self, connection: Any) -> None:
        """Bring tables of an earlier version to this one; do nothing to those of this version."""
        raise NotImplementedError


def row_of(entry: Entry) -> Row:
    """Return how a chained entry is stored."""
    return entry["number"], entry["hash"], hashed_json(entry), str(entry["kind"])


def entry_from_row(row: Row) -> Entry:
    """Return the entry of a row; where its JSON cannot be read, an entry that has a hash alone.

    So is one whose kind is not the one that it was stored with, by which a database may have
    decided who may write it.
    """
    try:
        content = json.loads(row[2])
        if row[3] and content.get("kind") != row[3]:
            content = None
    except (ValueError, RecursionError, TypeError, AttributeError):
        content = None
    # an entry that has a hash alone fails the check of the chain
    return {**content, "hash": row[1]} if isinstance(content, dict) else {"hash": row[1]}


# --- Forks -------------------------------------------------------------------------------------

_LEDGERS: weakref.WeakSet[DatabaseLedger] = weakref.WeakSet()
"""All ledgers of the process."""
_OF_PARENT: list[Any] = []
"""Connections of a parent that a child must neither use nor close: referred to here, so that no
garbage collection closes them."""
_locked: list[DatabaseLedger] = []
"""Ledgers whose locks the forking thread has taken."""


def _before_fork() -> None:
    for ledger in list(_LEDGERS):
        ledger._lock.acquire()  # waits for a transaction of another thread
        _locked.append(ledger)
        # a transaction of this very thread (`decide` forks) continues: its connection stays the
        # parent's, and the child is refused by `_check_process`
        if not ledger._in_transaction:
            ledger._disconnect()


def _after_fork() -> None:
    while _locked:
        _locked.pop()._lock.release()


def _in_child() -> None:
    # new locks, which no thread holds: the thread may have taken those from before more than once
    for ledger in _locked:
        ledger._lock = threading.RLock()
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
