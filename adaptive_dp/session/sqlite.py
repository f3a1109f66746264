"""A ledger in one file, shared by processes of one host: SQLite.

What is promised. `spend` returns after SQLite has committed with ``synchronous=EXTRA``: the entry,
and the folder's record of the file, were handed to the disk by fsync (F_FULLFSYNC on macOS). A
process that is killed loses nothing that was returned, whatever the instant. Whether a power cut
does depends on the disk: one that answers an fsync before it has written (some consumer drives and
virtual disks do) can lose what it has confirmed. A file on a memory disk lasts until the machine
stops.

Why a rollback journal and no write-ahead log: a log is a second file with entries in it, so that a
copy of the ledger alone would lack them; it needs shared memory; and all versions of SQLite up to
3.51.2 can damage a file whose log two processes reset at once (sqlite.org/wal.html, "The WAL-reset
bug"). The journal is emptied, not removed, which saves syncs of the folder: about 11 instead of 27
milliseconds for an entry on the disk that this was measured on.

Network file systems are refused: their locks are not to be relied on (sqlite.org/faq.html, 5).

Two rules for users. No other code of the same process may open the file: by the rules of POSIX, to
close any of a process's handles of a file releases all its locks on it. And the file must have one
name: hard links are refused, since the journal has the name of the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.database import LOCK_TIMEOUT, DatabaseLedger, Row
from adaptive_dp.session.entries import EMPTY, unusable

APPLICATION = 0x41445031
"""The application number in the file's header, which says that it is a ledger of this library."""
VERSION = 2
"""The version of the tables, in the file's header. Those of version 1 are the same; it marks that
the entries are of an earlier format."""

NETWORK = ("nfs", "cifs", "smb", "afs", "ncp", "fuse.sshfs", "fuse.glusterfs", "fuse.s3")
"""Beginnings of the names of file systems whose locks are not reliable."""

SCHEMA = (
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, hash TEXT NOT NULL UNIQUE, "
    "entry TEXT NOT NULL)",
    "CREATE TRIGGER unchanged BEFORE UPDATE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER kept BEFORE DELETE ON entries "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is append-only'); END",
    "CREATE TRIGGER appended BEFORE INSERT ON entries "
    "WHEN NEW.number IS NOT (SELECT coalesce(max(number) + 1, 0) FROM entries) "
    "BEGIN SELECT RAISE(ABORT, 'a ledger is appended to at its end'); END",
)


class SQLiteLedger(DatabaseLedger):
    """A ledger in an SQLite file, which its owner alone can read.

    Parameters
    ----------
    path
        The file. To share it with others of the host, give them the right to write it and its
        folder.
    create
        True makes a new file, without entries, and refuses one that is there. False opens one that
        is there.

    Raises
    ------
    LedgerError
        If it cannot be opened, is not a ledger, or lies on a network file system.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import adaptive_dp as dp
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "privacy.db")
    >>> people, budget = dp.dataset("people", columns={}), dp.Budget(1.0)
    >>> for scale, new in ((4, True), (2, False)):  # today, and tomorrow
    ...     with dp.Session(
    ...         budget=budget, ledger=path, create=new, people={"id": [1, 2, 3]}
    ...     ) as session:
    ...         n = session.run(people.count().release(dp.Laplace(scale=scale)))
    ...         print(round(session.remaining.costs[0], 6))
    0.75
    0.25
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, create: bool = False) -> None:
        super().__init__(os.path.realpath(path))
        self._create = create
        self._file: tuple[int, int] | None = None
        kind = file_system(self.location)
        if kind.startswith(NETWORK):
            raise unusable(
                f"{self.location} lies on a network file system ({kind}), whose locks do not keep "
                "two writers apart; use a local disk, or postgresql://..."
            )
        with self._using():
            pass  # opened now, so that an error comes at once

    def _connect(self) -> sqlite3.Connection:
        # Only where it was asked for, and at the first opening: a file that was deleted, or whose
        # name is mistyped, must not become an empty ledger, with all of the budget.
        if self._create and self._file is None:
            _create_file(self.location)
        if not os.path.isfile(self.location):
            raise unusable(
                f"there is no file {self.location}. Is its name right? If it was deleted, put a "
                "backup back by `adaptive-dp ledger restore`. A new ledger, with all of its "
                "budget, is made by `adaptive-dp ledger create`, or by create=True"
            )
        connection = sqlite3.connect(
            f"file:{quote(self.location)}?mode=rw",  # rw: SQLite must not make a file by itself
            uri=True,
            timeout=LOCK_TIMEOUT,
            isolation_level=None,  # the statements below alone begin and end transactions
            check_same_thread=False,  # `DatabaseLedger._lock` lets one thread in at a time
        )
        try:
            self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Set what makes a commit durable, make the tables if there are none, and check them."""
        for pragma in ("synchronous=EXTRA", "fullfsync=ON", "trusted_schema=OFF"):
            connection.execute(f"PRAGMA {pragma}")
        (mode,) = connection.execute("PRAGMA journal_mode=TRUNCATE").fetchone()
        if mode != "truncate":
            raise unusable(f"{self.location} has the journal mode {mode!r}, not 'truncate'")
        if self._create and self._file is None:
            # `_create_file` has made the file just now. One transaction: a process that is killed
            # in it leaves an empty file, which every later opening refuses.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA application_id={APPLICATION}")
            connection.execute(f"PRAGMA user_version={VERSION}")
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute("COMMIT")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if _is_empty(connection):
            raise unusable(f"{self.location} {EMPTY}")
        if application != APPLICATION:
            raise unusable(f"{self.location} is not a ledger of adaptive-dp")
        if not 1 <= version <= VERSION:
            raise unusable(
                f"{self.location} is of version {version}, and this library reads versions up to "
                f"{VERSION}; use the library that wrote it, or a later one"
            )
        if _schema(connection) != set(SCHEMA):
            raise unusable(
                f"the tables of {self.location}, or the triggers that protect them, were changed"
            )
        self._check_file()

    def _check_file(self) -> None:
        """Refuse a file that was moved or replaced: later sessions would not read what it has."""
        status = os.stat(self.location)
        identity = (status.st_dev, status.st_ino)
        if self._file not in (None, identity):
            raise unusable(f"{self.location} was replaced while it was in use")
        if status.st_nlink != 1:
            raise unusable(f"{self.location} has several names (hard links)")
        self._file = identity

    def _error_types(self) -> tuple[type[Exception], ...]:
        return (sqlite3.Error, OSError)

    def _reason(self, error: Exception) -> str:
        if "locked" in str(error):
            return f"other processes had it locked for {LOCK_TIMEOUT:g} seconds"
        return str(error)

    # The four statements of a spend, and what a kill -9 leaves after each:
    #
    # BEGIN IMMEDIATE  the file as it was. It takes SQLite's lock against writers at once, and not
    #                  at the first write, since the entry depends on what is read in between. The
    #                  kernel releases the lock when the process ends.
    # SELECT           the file as it was.
    # INSERT           the file as it was. If SQLite had to write pages before the commit, the
    #                  journal has their old content, which the next process to open the file
    #                  restores.
    # COMMIT           the entry. It syncs the journal, then the file, and at last truncates the
    #                  journal: before that, the next process to open the file rolls the entry back.

    def _begin(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE")
        self._check_file()

    def _commit(self, connection: sqlite3.Connection) -> None:
        self._check_file()  # once more: the file may have been replaced while `decide` ran
        connection.execute("COMMIT")

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")

    def _rows(self, connection: sqlite3.Connection, start: int) -> Iterable[Row]:
        cursor = connection.execute(
            "SELECT number, hash, entry, '' FROM entries WHERE number >= ? ORDER BY number",
            (start,),
        )
        return cursor.fetchall()

    def _insert(self, connection: sqlite3.Connection, row: Row) -> None:
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", row[:3])

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA user_version={VERSION}")  # a part of the transaction


def file_system(path: str) -> str:
    """Return the kind of file system that a path lies on, '' where the system does not say."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    kind, longest = "", -1
    for line in lines:
        fields, _, rest = line.partition(" - ")
        point = fields.split()[4].replace("\\040", " ")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            kind, longest = rest.split()[0], len(point)
    return kind


def _create_file(path: str) -> None:
    """Make an empty file that its owner alone can read, where there is none."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        # it must not be opened here: closing it would release this process's locks on it
        raise unusable(
            f"there is a file {path} already, and a new ledger does not replace it. To go on with "
            "the ledger in it, leave out create=True; else choose another name"
        ) from None
    except OSError as error:
        raise LedgerError(f"the ledger {path} cannot be made: {error.strerror}") from error
    if hasattr(os, "O_DIRECTORY"):  # the folder's record of the new file, on the disk as well
        folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _schema(connection: sqlite3.Connection) -> set[str]:
    statements = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {sql for (sql,) in statements}


def _is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether a file has no tables and never had; a ledger that lost its is not empty."""
    return not _schema(connection) and connection.execute("PRAGMA application_id").fetchone() == (
        0,
    )
