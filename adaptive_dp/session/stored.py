"""What every ledger on a disk does: one connection, one transaction for each entry, a checked end.

Forks. A database's connection must not cross a fork: parent and child would write over one another,
and each could take the other's locks for its own. So no connection is open while the process forks:
the fork waits until no transaction is under way, and closes; parent and child open their own when
they next need one. (A fork that Python does not see, in C code, is refused when it is noticed.)

The end. A ledger remembers the last entry that it has seen, and every transaction begins by looking
whether it still stands there. Whoever takes an old copy back, or cuts entries off, is found out by
every session that is open; after that, only by those who keep a hash elsewhere.
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
from adaptive_dp.session.chain import GENESIS, canonical, fits, linked, stamped
from adaptive_dp.session.ledger import Entry, require_ledger

Row = tuple[int, str, str]
"""An entry as it is stored: its number, its hash, and the text that was hashed."""

PATIENCE = 60.0
"""How many seconds to wait for those who write before."""


class StoredLedger:
    """Base of the ledgers that outlive a process: a subclass knows one kind of database."""

    _connection: Any = None

    def __init__(self, place: str) -> None:
        self.place = place
        self._lock = threading.RLock()
        self._connection = None
        self._pid = os.getpid()
        self._closed = False
        self._inside = False
        self._last: tuple[int, str] = (-1, GENESIS)
        _OPEN.add(self)

    def spend(self, seen: int, decide: Callable[[Sequence[Entry]], Entry | None]) -> list[Entry]:
        """Append one entry, in a transaction that no other writer can enter."""
        with self._using() as connection:
            if self._inside:
                raise LedgerError("a spend was asked for while another was being decided")
            self._inside = True
            try:
                with self._errors("written"):
                    self._begin(connection)
                with self._errors("read"):
                    found = self._after(connection, seen)
                entry = decide(found)
                self._unforked()
                if entry is not None:
                    number, last = self._last
                    whole = linked(stamped(entry), number + 1, last)
                    own = canonical({k: v for k, v in whole.items() if k != "hash"})
                    with self._errors("written"):
                        self._insert(connection, (number + 1, whole["hash"], own))
                    with self._errors("written, as far as is known"):
                        self._commit(connection)
                    self._last = (number + 1, whole["hash"])
                    found.append(whole)
                else:
                    self._roll_back(connection)
            except BaseException:
                self._abandon(connection)
                raise
            finally:
                self._inside = False
            return found

    def entries(self, after: int = 0) -> list[Entry]:
        """Return the entries, those that came first left out."""
        return self._read(lambda connection: self._after(connection, after))

    def unchecked(self) -> list[Entry]:
        """Return the entries as they stand there, damaged or not: for those who look into it."""
        return self._read(lambda c: [entry_of(row) for row in self._rows(c, -(2**62))])

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
        """Read, on a new connection where the old one has broken: to read twice does no harm."""
        with self._using() as connection:
            try:
                with self._errors("read"):
                    return read(connection)
            except LedgerError:
                if not self._broken(connection):
                    raise
                self._drop()
        with self._using() as connection, self._errors("read"):
            return read(connection)

    def _after(self, connection: Any, seen: int) -> list[Entry]:
        """Return the entries from a number on; the last one known must be what it was."""
        number, last = self._last
        start = max(0, min(seen, number))
        entries: list[Entry] = []
        end, expected = start - 1, ""
        for end, row in enumerate(self._rows(connection, start), start):
            require_ledger(
                row[0] == end and (end != number or row[1] == last),
                f"{self.place} has lost or changed entry {min(end, number)}",
            )
            if end >= seen:
                entry = entry_of(row)
                before = expected if end > start else entry.get("previous") if end else GENESIS
                require_ledger(
                    fits(entry, end, before),
                    f"entry {end} of {self.place} is not what was written there; "
                    "`adaptive-dp ledger verify` says more",
                )
                entries.append(entry)
            expected = row[1]
        require_ledger(
            end >= number and end >= seen - 1,
            f"{self.place} has lost entries: it ends at {end}, and {max(number, seen - 1)} was "
            "seen there",
        )
        if end >= start:
            self._last = (end, expected)
        return entries

    @contextmanager
    def _using(self) -> Iterator[Any]:
        with self._lock:
            require_ledger(not self._closed, f"{self.place} was closed")
            if self._connection is None:
                self._pid = os.getpid()
                with self._errors("opened"):
                    self._connection = self._connect()
            self._unforked()
            yield self._connection

    def _unforked(self) -> None:
        require_ledger(
            self._pid == os.getpid(),
            f"the process was forked while {self.place} was in use; open it again in the child",
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
                f"the ledger {self.place} could not be {what}: {self._reason(error)}"
            ) from error

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
        raise NotImplementedError

    def _commit(self, connection: Any) -> None:
        raise NotImplementedError

    def _roll_back(self, connection: Any) -> None:
        raise NotImplementedError

    def _rows(self, connection: Any, start: int) -> Iterable[Row]:
        """Return the rows from a number on, in order."""
        raise NotImplementedError

    def _insert(self, connection: Any, row: Row) -> None:
        raise NotImplementedError


def entry_of(row: Row) -> Entry:
    """Return an entry from how it is stored; what cannot be read does not fit its hash."""
    try:
        found = json.loads(row[2])
    except (ValueError, RecursionError, TypeError):
        found = None
    return {**found, "hash": row[1]} if isinstance(found, dict) else {"hash": row[1]}


_OPEN: weakref.WeakSet[StoredLedger] = weakref.WeakSet()
_ABANDONED: list[Any] = []
_held: list[StoredLedger] = []


def _before_fork() -> None:
    for ledger in list(_OPEN):
        ledger._lock.acquire()
        _held.append(ledger)
        if not ledger._inside:
            ledger._drop()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()


def _in_child() -> None:
    for ledger in _held:
        ledger._lock = threading.RLock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
