"""A ledger in a PostgreSQL database, for teams: processes of many hosts share one budget.

One ledger is one table, ``adaptive_dp_ledger``, in the first schema of the connection's search
path. For several ledgers in one database, make a schema for each, and say so in the URL:
``postgresql://host/database?options=-csearch_path%3Dsurvey``.

Who may do what is the server's to say: `roles_sql` has three roles. The owner makes the ledger, and
alone may raise its budget, close and migrate it; analysts read and append; readers read. None
of the latter two may update, delete or lock the table, and a row that does not follow on the last
one, or an entry of the owner's kinds, is refused by a trigger. (Each row has its entry's kind
beside it for that, which every reader compares.)

Each transaction keeps out other writers before it reads, and waits for the server to
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

from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.session.database import LOCK_TIMEOUT, DatabaseLedger, Row
from adaptive_dp.session.entries import unusable

VERSION = 2
"""The version of the tables. In version 1 a row has no kind, and no trigger looks at what is
appended: whoever could append could do all that the owner can."""
_BODY = " BEGIN RAISE EXCEPTION 'a ledger is append-only'; END "
_APPENDED = """ DECLARE last record; BEGIN
EXECUTE format('SELECT number, hash FROM %I.%I ORDER BY number DESC LIMIT 1',
TG_TABLE_SCHEMA, TG_TABLE_NAME) INTO last;
IF NEW.number IS DISTINCT FROM coalesce(last.number + 1, 0)
OR position('"previous":"' || coalesce(last.hash, repeat('0', 64)) || '"' IN NEW.entry) = 0
OR NEW.hash IS DISTINCT FROM encode(sha256(convert_to(NEW.entry, 'UTF8')), 'hex')
THEN RAISE EXCEPTION 'a ledger is appended to at its end'; END IF;
IF NEW.kind NOT IN ('spend', 'release') AND NOT pg_has_role(current_user,
(SELECT relowner FROM pg_class WHERE oid = TG_RELID), 'USAGE')
THEN RAISE EXCEPTION 'only the owner of a ledger may write an entry of the kind %', NEW.kind;
END IF;
RETURN NEW; END """
"""What may be appended. It names no table, and no function but those of the server: what a client
puts into its search path must not change what it means."""
_TABLE = (
    "CREATE TABLE adaptive_dp_ledger "
    "(number bigint PRIMARY KEY, hash text NOT NULL UNIQUE, entry text NOT NULL)",
    f"CREATE FUNCTION adaptive_dp_ledger_kept() RETURNS trigger LANGUAGE plpgsql AS $${_BODY}$$",
    "CREATE TRIGGER kept BEFORE UPDATE OR DELETE OR TRUNCATE ON adaptive_dp_ledger "
    "FOR EACH STATEMENT EXECUTE FUNCTION adaptive_dp_ledger_kept()",
)
_TO_VERSION_2 = (
    # rows of version 1 get '', which no new row may have
    "ALTER TABLE adaptive_dp_ledger ADD COLUMN kind text NOT NULL DEFAULT ''",
    "ALTER TABLE adaptive_dp_ledger ALTER COLUMN kind DROP DEFAULT",
    "CREATE FUNCTION adaptive_dp_ledger_appended() RETURNS trigger LANGUAGE plpgsql "
    f"SET search_path = pg_catalog AS $${_APPENDED}$$",
    "CREATE TRIGGER appended BEFORE INSERT ON adaptive_dp_ledger "
    "FOR EACH ROW EXECUTE FUNCTION adaptive_dp_ledger_appended()",
    f"COMMENT ON TABLE adaptive_dp_ledger IS 'a ledger of adaptive-dp, version {VERSION}'",
)
_TRIGGERS = "SELECT CASE WHEN tgqual IS NULL AND tgattr = '' THEN tgtype END, prosrc, "
_TRIGGERS += "coalesce(proconfig::text, ''), tgenabled "
_TRIGGERS += "FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid "
_TRIGGERS += "WHERE tgrelid = 'adaptive_dp_ledger'::regclass AND NOT tgisinternal ORDER BY tgname"
_BEFORE_INSERT = 1 + 2 + 4
"""A trigger's type: for each row, before, insert."""
_BEFORE_CHANGES = 2 + 8 + 16 + 32
"""A trigger's type: before, for each statement; delete, update, truncate."""
_CREATION_LOCK = 4702111234474983745
"""The advisory lock of a client that makes the table."""
_WRITERS = 1094995505
"""The first half of the advisory lock of writers; the second is the table's number."""


class PostgresLedger(DatabaseLedger):
    """A ledger in a PostgreSQL database; needs the extra ``postgres``.

    Parameters
    ----------
    url
        ``postgresql://user@host/database``; a password is safer in ``~/.pgpass``.
    create
        True makes the table, without entries, and refuses one that is there. False opens one that
        is there.

    Raises
    ------
    LedgerError
        If it cannot be opened, does not exist, or the server runs without fsync.
    """

    def __init__(self, url: str, *, create: bool = False) -> None:
        super().__init__(re.sub(r"//.*@|password=[^&]*", _without, url))
        try:
            import psycopg
        except ImportError:
            raise LedgerError(
                "a ledger in PostgreSQL needs psycopg: pip install 'adaptive-dp[postgres]'"
            ) from None
        self._driver: Any = psycopg
        self._url, self._create, self._version = url, create, VERSION
        with self._using():
            pass  # opened now, so that an error comes at once
        self._create = False  # it is there now, and if it vanishes that is an error

    def _connect(self) -> Any:
        connection = self._driver.connect(
            self._url, autocommit=True, connect_timeout=10, **_OPTIONS
        )
        try:
            (syncs,) = connection.execute("SHOW fsync").fetchone()
            if syncs != "on":
                raise unusable(f"the server of {self.location} runs with fsync = {syncs}")
            if self._create:
                # One transaction: a client that vanishes in it leaves no table, or all of it. The
                # advisory lock, since there is no table yet to lock: of two clients at once, the
                # second waits, and then sees the table of the first.
                with connection.transaction():
                    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))
                    if _exists(connection):
                        raise unusable(
                            f"there is a ledger at {self.location} already, and a new one does not "
                            "replace it. To go on with it, leave out create=True; else choose "
                            "another schema: postgresql://.../DATABASE?options="
                            "-csearch_path%3DSCHEMA"
                        )
                    for statement in (*_TABLE, *_TO_VERSION_2):
                        connection.execute(statement)
            if not _exists(connection):
                raise unusable(
                    f"there is no ledger at {self.location}. Are the database and the schema "
                    "right? If it was dropped, put a backup back by `adaptive-dp ledger restore`. "
                    "A new one, with all of its budget, is made by `adaptive-dp ledger create`, or "
                    "by create=True"
                )
            self._version = _version(connection)
            if self._version > VERSION:
                raise unusable(
                    f"{self.location} is of version {self._version}, and this library reads "
                    f"versions up to {VERSION}; use the library that wrote it, or a later one"
                )
            if not _is_protected(connection, self._version):
                raise unusable(
                    f"the table of {self.location}, or a trigger that protects it, was changed"
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
    #              that the client is gone, or after half of `LOCK_TIMEOUT`. Between writers of this
    #              version it is the advisory one, which needs no right to change the table; the
    #              lock of the table, which a right to append is enough for, waits for writers of
    #              version 1, whose lock excludes all others, and for changes of the table itself.
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
            # after these locks, all that others have written is read, and none can write more
            f"SELECT pg_advisory_xact_lock({_WRITERS}, 'adaptive_dp_ledger'::regclass::oid::int4);"
            "LOCK TABLE adaptive_dp_ledger IN ROW EXCLUSIVE MODE"
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
        kind = "''" if self._version < VERSION else "kind"
        rows: list[Row] = connection.execute(
            f"SELECT number, hash, entry, {kind} FROM adaptive_dp_ledger WHERE number >= %s "
            "ORDER BY number",
            (start,),
        ).fetchall()
        return rows

    def _upgrade(self, connection: Any) -> None:
        if self._version < VERSION:
            for statement in _TO_VERSION_2:
                connection.execute(statement)
            # set before the commit: should that fail, the next connection reads it anew
            self._version = VERSION

    def _insert(self, connection: Any, row: Row) -> None:
        if self._version < VERSION:  # an owner has put the table back to an earlier version
            raise unusable(f"{self.location} has tables of version {self._version}: migrate it")
        made = connection.execute("INSERT INTO adaptive_dp_ledger VALUES (%s, %s, %s, %s)", row)
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


def _version(connection: Any) -> int:
    """Return the version of the tables, as their owner's comment says it; 1 where there is none."""
    (comment,) = connection.execute(
        "SELECT obj_description('adaptive_dp_ledger'::regclass, 'pg_class')"
    ).fetchone()
    found = re.fullmatch(r"a ledger of adaptive-dp, version (\d{1,9})", comment or "")
    return int(found[1]) if found else 1


def _is_protected(connection: Any, version: int) -> bool:
    """Return whether the table is logged, has its triggers, and shows all its rows to everyone.

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
    protects = [
        (_BEFORE_INSERT, _APPENDED, "{search_path=pg_catalog}"),
        (_BEFORE_CHANGES, _BODY, ""),
    ][-version:]
    return (
        bool(plain_table)
        and [tuple(each[:3]) for each in triggers] == protects
        # enabled for ordinary sessions ("O") or always ("A")
        and {str(each[3]) for each in triggers} <= {"O", "A"}
    )


def roles_sql(schema: str, *, owner: str, analyst: str, reader: str) -> str:
    """Return SQL that gives a ledger to an owner, and others the right to append or to read alone.

    To be run by a superuser, or by who may create roles and owns the schema and the table.

    Parameters
    ----------
    schema
        In which the ledger is.
    owner, analyst, reader
        Names of roles, made where they are not there. People get them by ``GRANT role TO person``.

    Raises
    ------
    DeclarationError
        If a name is not made of lower-case letters, digits and underscores.

    Examples
    --------
    >>> sql = roles_sql("survey", owner="keeper", analyst="team", reader="auditors")
    >>> for line in sql.splitlines()[-3:]:
    ...     print(line)
    GRANT USAGE ON SCHEMA survey TO team, auditors;
    GRANT SELECT, INSERT ON survey.adaptive_dp_ledger TO team;
    GRANT SELECT ON survey.adaptive_dp_ledger TO auditors;
    """
    for name in (schema, owner, analyst, reader):
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
            raise DeclarationError(
                "names of schemas and roles are made of lower-case letters, digits and "
                f"underscores, got {name!r}"
            )
    if len({owner, analyst, reader}) < 3:
        raise DeclarationError("the owner, the analysts and the readers are three roles")
    table = f"{schema}.adaptive_dp_ledger"
    return "\n".join(
        [
            "-- roles of a ledger of adaptive-dp; give them to people by GRANT role TO person",
            *(
                f"DO $$ BEGIN CREATE ROLE {role} NOLOGIN; EXCEPTION WHEN duplicate_object THEN "
                "NULL; END $$;"
                for role in (owner, analyst, reader)
            ),
            # an owner of a table needs to be able to make things in its schema
            f"GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner};",
            f"ALTER TABLE {table} OWNER TO {owner};",
            *(
                f"ALTER FUNCTION {schema}.adaptive_dp_ledger_{name}() OWNER TO {owner};"
                for name in ("kept", "appended")
            ),
            f"REVOKE ALL ON {table} FROM PUBLIC, {analyst}, {reader};",
            f"REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC, {analyst}, {reader};",
            f"GRANT USAGE ON SCHEMA {schema} TO {analyst}, {reader};",
            f"GRANT SELECT, INSERT ON {table} TO {analyst};",
            f"GRANT SELECT ON {table} TO {reader};",
        ]
    )
