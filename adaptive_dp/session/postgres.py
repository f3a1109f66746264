"""A ledger in a PostgreSQL database, for teams: processes of many hosts share one budget.

One ledger is one table, ``adaptive_dp_ledger``, in the first schema of the connection's search
path. For several ledgers in one database, make a schema for each, and say so in the URL:
``postgresql://host/database?options=-csearch_path%3Dsurvey``.

Each transaction locks the table against other writers before it reads, and waits for the server to
have the entry on its disk (``synchronous_commit = on``, whatever the server's default). A server
that runs with ``fsync = off`` is refused, and so is an unlogged table, which a crash empties.

Where the connection breaks during a commit, it is uncertain whether the entry was written: it is an
error, and no value is drawn; budget may be wasted then, never spent without a record. The next
spend waits for the lock of the one that broke, so that it reads the outcome. A client that vanishes
within a transaction holds that lock for half of `LOCK_TIMEOUT` at most: the server then ends the
transaction.

All of this depends on one server. One that fails over to a replica which is not synchronous can
lose what it had committed; open sessions detect that, later ones cannot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session.database import LOCK_TIMEOUT, DatabaseLedger, Row
from adaptive_dp.session.entries import unusable

_BODY = " BEGIN RAISE EXCEPTION 'a ledger is append-only'; END "
_SCHEMA = (
    "CREATE TABLE adaptive_dp_ledger "
    "(number bigint PRIMARY KEY, hash text NOT NULL UNIQUE, entry text NOT NULL)",
    f"CREATE FUNCTION adaptive_dp_ledger_kept() RETURNS trigger LANGUAGE plpgsql AS $${_BODY}$$",
    "CREATE TRIGGER kept BEFORE UPDATE OR DELETE OR TRUNCATE ON adaptive_dp_ledger "
    "FOR EACH STATEMENT EXECUTE FUNCTION adaptive_dp_ledger_kept()",
)
_TRIGGERS = "SELECT CASE WHEN tgqual IS NULL AND tgattr = '' THEN tgtype END, tgenabled, prosrc "
_TRIGGERS += "FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid "
_TRIGGERS += "WHERE tgrelid = 'adaptive_dp_ledger'::regclass AND NOT tgisinternal"
_BEFORE_CHANGES = 2 + 8 + 16 + 32
"""A trigger's type: before, for each statement; delete, update, truncate."""
_CREATION_LOCK = 4702111234474983745
"""The advisory lock of a client that makes the table."""


class PostgresLedger(DatabaseLedger):
    """A ledger in a PostgreSQL database; needs the extra ``postgres``.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``; a password is safer in ``~/.pgpass``.
    create
        Whether the table is made where it does not exist.

    Raises
    ------
    LedgerError
        If it cannot be opened, does not exist, or the server runs without fsync.
    """

    def __init__(self, url: str, *, create: bool = True) -> None:
        super().__init__(re.sub(r"//.*@|password=[^&]*", _without, url))
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs psycopg: pip install 'adaptive-dp[postgres]'"
            ) from None
        self._driver: Any = psycopg
        self._url, self._create = url, create
        with self._using():
            pass  # opened now, so that an error comes at once

    def _connect(self) -> Any:
        connection = self._driver.connect(
            self._url, autocommit=True, connect_timeout=10, **_OPTIONS
        )
        try:
            (syncs,) = connection.execute("SHOW fsync").fetchone()
            if syncs != "on":
                raise unusable(f"the server of {self.location} runs with fsync = {syncs}")
            if self._create and not _exists(connection):
                # One transaction: a client that vanishes in it leaves no table, or all of it. The
                # advisory lock, since there is no table yet to lock: of two clients at once, the
                # second waits, and then sees the table of the first.
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
                    if not _exists(connection):
                        for statement in _SCHEMA:
                            connection.execute(statement)
            if not _exists(connection):
                raise unusable(f"there is no ledger at {self.location}")
            if not _is_protected(connection):
                raise unusable(
                    f"the table of {self.location}, or the trigger that protects it, was changed"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _error_types(self) -> tuple[type[Exception], ...]:
        return (self._driver.Error,)

    def _reason(self, error: Exception) -> str:
        return " ".join(str(error).split())

    # The four statements of a spend, and what is left if this process is killed, or the connection
    # breaks, after each:
    #
    # BEGIN; LOCK  the table as it was. The lock comes before anything is read: others may read,
    #              none can write, until this transaction ends. The server ends it when it sees
    #              that the client is gone, or after half of `LOCK_TIMEOUT`.
    # SELECT       the table as it was. READ COMMITTED: the statement sees all that was committed
    #              before it began, that of the transaction that was waited for too.
    # INSERT       the table as it was: the server rolls back what was not committed.
    # COMMIT       the entry, on the server's disk. If the connection breaks before the answer, it
    #              is uncertain here whether it was written; the spend fails, nothing is drawn, and
    #              the next reading shows.

    def _begin(self, connection: Any) -> None:
        wait = int(LOCK_TIMEOUT * 1000)
        connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED;"
            # LOCAL, for this transaction: a pooler may run each on another of its connections
            f"SET LOCAL synchronous_commit = on; SET LOCAL lock_timeout = {wait};"
            f"SET LOCAL idle_in_transaction_session_timeout = {wait // 2};"
            # after this lock, all that others have written is read, and none can write more
            "LOCK TABLE adaptive_dp_ledger IN EXCLUSIVE MODE"
        )

    def _commit(self, connection: Any) -> None:
        connection.execute("COMMIT")

    def _roll_back(self, connection: Any) -> None:
        if self._broken(connection):
            self._disconnect()
        else:
            connection.execute("ROLLBACK")

    def _broken(self, connection: Any) -> bool:
        return bool(connection.closed or connection.broken)

    def _rows(self, connection: Any, start: int) -> Iterable[Row]:
        rows: list[Row] = connection.execute(
            "SELECT number, hash, entry FROM adaptive_dp_ledger WHERE number >= %s ORDER BY number",
            (start,),
        ).fetchall()
        return rows

    def _insert(self, connection: Any, row: Row) -> None:
        made = connection.execute("INSERT INTO adaptive_dp_ledger VALUES (%s, %s, %s)", row)
        if made.rowcount != 1:  # a rule or a trigger of a user's can drop a row without an error
            raise unusable(f"{self.location} did not take an entry")


_OPTIONS = {
    "keepalives_idle": 10,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": int(LOCK_TIMEOUT * 1000),
    "prepare_threshold": None,
}
"""A server that does not answer is an error after a minute, where systems wait for hours; and no
statement is prepared, since a pooler may give the connection to another client."""


def _without(secret: re.Match[str]) -> str:
    """Return what replaces a user and a password in messages."""
    return "//" if secret.group().startswith("//") else ""


def _exists(connection: Any) -> bool:
    (exists,) = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_tables WHERE tablename = 'adaptive_dp_ledger' "
        "AND schemaname = current_schema())"
    ).fetchone()
    return bool(exists)


def _is_protected(connection: Any) -> bool:
    """Return whether the table is logged, has its trigger, and shows all its rows to everyone.

    A trigger may have been replaced by one with a condition, or of some columns alone; rows may be
    in a table that inherits, which has no such trigger, or be hidden from some users.
    """
    triggers = connection.execute(_TRIGGERS).fetchall()
    (plain_table,) = connection.execute(
        "SELECT relpersistence = 'p' AND relkind = 'r' AND "
        "NOT relhassubclass AND NOT relrowsecurity AND "
        "NOT EXISTS (SELECT FROM pg_rewrite WHERE ev_class = pg_class.oid) "
        "FROM pg_class WHERE oid = 'adaptive_dp_ledger'::regclass"
    ).fetchone()
    actual = [(kind, body, str(when)) for kind, when, body in triggers]
    # enabled for ordinary sessions ("O") or always ("A")
    return bool(plain_table) and actual in ([(_BEFORE_CHANGES, _BODY, when)] for when in ("O", "A"))
