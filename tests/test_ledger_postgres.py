"""A ledger in a real PostgreSQL server, where there is one (see `postgres_server`)."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from ledger_child import child, place, recorded
from postgres_server import PROGRAMS, VARIABLE, Server, private

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import FAILS
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session import Budget, Session, postgres
from adaptive_dp.session.entries import broken_entries
from adaptive_dp.session.ledger import (
    close_ledger,
    migrate_ledger,
    open_ledger,
    raise_budget,
    restored,
)
from adaptive_dp.session.recompute import recomputed

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.skipif(
    not PROGRAMS and VARIABLE not in os.environ,
    reason=f"the machine has no PostgreSQL server, and {VARIABLE} names none",
)

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}
QUERY = PEOPLE.count().release(dp.Laplace(scale=10.0))
OWNED = pytest.mark.skipif(not PROGRAMS, reason="needs a server of its own, to restart it")


@pytest.fixture(scope="module")
def owned() -> Iterator[Server]:
    with private() as server:
        yield server


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> str:
    given = os.environ.get(VARIABLE, "")
    address: str = given or request.getfixturevalue("owned").url
    return address


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """A schema of its own for each test."""
    name = f"test_{os.getpid()}_{abs(hash(request.node.name))}"
    yield place(Path(), server, name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP SCHEMA {name} CASCADE")


def session(url: str, budget: float, *, create: bool = False) -> Session:
    return Session(
        budget=Budget(budget), accountant="basic", ledger=url, create=create, people=ROWS
    )


def execute(url: str, *statements: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []


def spend(_: object) -> dict[str, Any]:
    return {"kind": "spend"}


def test_a_session_goes_on_where_the_table_stands(url: str) -> None:
    with pytest.raises(LedgerError, match="no ledger at"):
        open_ledger(url)
    with session(url, 0.15, create=True) as one:
        value = one.run(QUERY)
    with session(url, 0.15) as two:
        assert two.run(QUERY) == value
        with pytest.raises(BudgetError):
            two.run(QUERY, again=True)
    entries = open_ledger(url).entries()
    assert [e["kind"] for e in entries] == ["open", "spend", "release"]
    assert not list(broken_entries(entries))
    assert recomputed(entries).holds


def test_each_transaction_syncs_and_waits_no_longer_than_it_may(url: str) -> None:
    ledger: Any = open_ledger(url, create=True)
    shown: dict[str, str] = {}

    def look(_: object) -> None:
        names = ("synchronous_commit", "lock_timeout", "idle_in_transaction_session_timeout")
        for name in names:
            (shown[name],) = ledger._connection.execute(f"SHOW {name}").fetchone()

    ledger.spend(0, look)
    assert list(shown.values()) == ["on", "1min", "30s"]
    for i in range(8):  # more often than the driver waits until it prepares a statement
        assert ledger.spend(i, spend)[-1]["number"] == i


def test_writers_together_get_exactly_what_there_is(url: str) -> None:
    granted: list[float] = []
    session(url, 1.0 + 1e-9, create=True).close()

    def work() -> None:
        with session(url, 1.0 + 1e-9) as running:
            try:
                for _ in range(5):
                    granted.append(running.run(QUERY, again=True))
            except BudgetError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 10
    assert sum(e["kind"] == "spend" for e in open_ledger(url).entries()) == 10


def test_eight_processes_get_together_exactly_what_there_is(url: str, tmp_path: Path) -> None:
    rows = child("many", tmp_path, url, 8, 30, 120)  # of 240 attempts
    assert [sum(column) for column in list(zip(*rows, strict=True))[1:]] == [120, 0]
    entries = open_ledger(url).entries()
    assert len(entries) == 120
    assert not list(broken_entries(entries))
    for pid, granted, _ in rows:
        assert sum(e["pid"] == pid for e in entries) == granted


@OWNED
def test_processes_spend_on_after_the_server_was_restarted(owned: Server, tmp_path: Path) -> None:
    """What a process was granted is recorded; of what was lost on the way, some may be as well."""
    url = place(tmp_path, owned.url, "restarted")
    ledger, done = open_ledger(url, create=True), []
    work = threading.Thread(target=lambda: done.extend(child("many", tmp_path, url, 3, 120, 10**6)))
    work.start()
    while len({e["pid"] for e in ledger.entries()}) < 3:
        time.sleep(0.1)
    owned.stop()
    owned.start()
    before = len(ledger.entries())
    work.join()
    entries = ledger.entries()
    assert not list(broken_entries(entries))
    for pid, granted, lost in done:
        assert granted <= sum(e["pid"] == pid for e in entries) <= granted + lost
        assert granted + lost == 120
        assert lost > 0
    assert len(entries) > before + 3


@OWNED
def test_a_session_outlives_a_server_that_restarts_in_the_middle_of_a_step(
    owned: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it is decided, or recorded: nothing is told that is not recorded, once each."""
    url, places = place(tmp_path, owned.url, "middle"), ["_price", "_record"]

    def restarting(name: str) -> Any:
        inner, left = getattr(Session, name), [1]

        def around(*given: Any, **more: Any) -> Any:
            if left.pop() if left else 0:
                owned.stop()
                owned.start()
            return inner(*given, **more)

        return around

    told = []
    with session(url, 10.0, create=True) as running:
        for name in places:
            with monkeypatch.context() as patch:
                patch.setattr(Session, name, restarting(name))
                with pytest.raises(LedgerError):
                    running.run(QUERY, again=True)
            told.append(running.run(QUERY, again=True))
        entries = running._ledger.entries()
        assert dp.verify(running.certificate()).holds
        # before the spend nothing was paid; after it, what was paid is lost, and counted
        assert running.spent.costs[0] == pytest.approx(0.1 * (len(places) + 1))
    verdict = recomputed(entries)
    assert verdict.holds
    assert verdict.spends - len(verdict.released) == 1
    released = [
        v["array"] if isinstance(v, dict) else v
        for e in entries
        if e["kind"] == "release"
        for v in e["values"].values()
    ]
    assert [float(v) for v in told] == [float(v) for v in released]
    execute(owned.url, "DROP SCHEMA middle CASCADE")


def test_a_table_of_the_version_before_is_read_and_migrated(url: str) -> None:
    script = (Path(__file__).parent / "ledger_format_3.sql").read_text()
    with sqlite3.connect(":memory:") as memory:
        memory.executescript(script)
        rows = list(memory.execute("SELECT number, hash, entry FROM entries ORDER BY number"))
    execute(url, *postgres._TABLE)
    with psycopg.connect(url, autocommit=True) as connection:
        for row in rows:
            connection.execute("INSERT INTO adaptive_dp_ledger VALUES (%s, %s, %s)", row)
    assert recomputed(open_ledger(url).entries()).holds
    assert "ledger migrate" in refused(lambda: session(url, 1.0))
    head = migrate_ledger(url)
    assert "no migration" in refused(lambda: migrate_ledger(url))
    with session(url, 1.0) as running:
        assert running.head == head
        running.run(QUERY)
        assert running.spent.costs[0] == pytest.approx(0.475)
    entries = open_ledger(url).entries()
    assert recomputed(entries).holds
    assert [row[1] for row in rows] == [entry["hash"] for entry in entries[: len(rows)]]
    # a writer of the version before gives no kind, and is refused
    with pytest.raises(psycopg.Error, match=r"null value|at its end"):
        execute(url, "INSERT INTO adaptive_dp_ledger VALUES (99, 'x', '{}')")
    execute(url, "COMMENT ON TABLE adaptive_dp_ledger IS 'a ledger of adaptive-dp, version 3'")
    assert "version 3" in refused(lambda: open_ledger(url))


def test_ledgers_move_between_databases_by_backups(url: str, tmp_path: Path) -> None:
    with session(url, 1.0, create=True) as running:
        value = running.run(QUERY)
        assert "already" in refused(lambda: session(url, 1.0, create=True))
    file = tmp_path / "a.db"
    restored(file, open_ledger(url).entries(), reason="to a file")
    execute(
        url,
        "DROP TABLE adaptive_dp_ledger; DROP FUNCTION adaptive_dp_ledger_kept, "
        "adaptive_dp_ledger_appended",
    )
    assert "no ledger at" in refused(lambda: session(url, 1.0))
    restored(url, open_ledger(file).entries(), reason="and back")
    with session(url, 1.0) as running:
        assert running.run(QUERY) == value
        assert running.spent.costs[0] == pytest.approx(0.1)
    assert recomputed(open_ledger(url).entries()).holds


@pytest.mark.parametrize(
    ("points", "instants"),
    [pytest.param(1, 0, marks=pytest.mark.slow), (0, 10)],
    ids=["points", "instants"],
)
def test_a_killed_session_has_recorded_whatever_it_said(
    server: str, tmp_path: Path, points: int, instants: int
) -> None:
    child("killed", tmp_path, server, points, instants)
    assert len(list(tmp_path.glob("*.out"))) == 16 * 2 * points + instants
    assert recorded(tmp_path, server) > 3  # some were told; how many the load of the machine says
    names = [out.stem for out in tmp_path.glob("*.out")]
    execute(server, *(f'DROP SCHEMA "{name}" CASCADE' for name in names))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_session_shares_its_budget(url: str) -> None:
    with session(url, 0.2 + 1e-9, create=True) as running:
        running.run(QUERY)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                running.run(QUERY, again=True)
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        with pytest.raises(BudgetError):
            running.run(QUERY, again=True)


def test_entries_stay(url: str) -> None:
    session(url, 1.0, create=True).close()
    for statement in ("UPDATE {} SET hash = ''", "DELETE FROM {}", "TRUNCATE {}"):
        with pytest.raises(psycopg.Error, match="append-only"):
            execute(url, statement.format("adaptive_dp_ledger"))


TAMPER = {
    "change": "UPDATE {} SET entry = replace(entry, '\"mu\"', '\"nu\"') WHERE number = 2",
    "content": "UPDATE {} SET entry = replace(entry, 'basic', 'renyi') WHERE number = 0",
    # another digit, whichever it was
    "hash": "UPDATE {} SET hash = translate(substr(hash, 1, 1), '0123456789abcdef', "
    "'123456789abcdef0') || substr(hash, 2) WHERE number = 2",
    "garbage": "UPDATE {} SET entry = '{{' WHERE number = 2",
    "delete": "DELETE FROM {} WHERE number = 2",
    "close the gap": "DELETE FROM {} WHERE number = 1; "
    "UPDATE {} SET number = number - 1 WHERE number > 1",
    "first": "DELETE FROM {} WHERE number = 0",
    "kind": "UPDATE {} SET kind = 'budget' WHERE number = 2",
    "insert": "INSERT INTO {} SELECT 9, hash || 'x', entry, kind FROM {} WHERE number = 2",
    "swap": "UPDATE {} SET number = 9 WHERE number = 1; "
    "UPDATE {} SET number = 1 WHERE number = 2; UPDATE {} SET number = 2 WHERE number = 9",
}


@pytest.mark.parametrize("kind", TAMPER)
def test_tampering_is_detected(url: str, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with session(url, 1.0, create=True) as running:
        running.run(QUERY)
        running.run(QUERY, again=True)
        table = "adaptive_dp_ledger"
        statements = TAMPER[kind].replace("{}", table).replace("{{", "{")
        was = execute(url, f"SELECT hash || entry || kind FROM {table} ORDER BY number")
        execute(
            url,
            f"ALTER TABLE {table} DISABLE TRIGGER USER; {statements}; "
            f"ALTER TABLE {table} ENABLE TRIGGER USER",
        )
        changed = execute(url, f"SELECT hash || entry || kind FROM {table} ORDER BY number") != was
        assert changed == (kind != "change")  # there is no mu in the ledger: nothing to find
        if changed:
            with pytest.raises(LedgerError):
                session(url, 1.0)
            with pytest.raises(LedgerError):
                open_ledger(url).spend(0, spend)
    assert main(["ledger", "verify", url, "--json"]) == (FAILS if changed else 0)
    assert json.loads(capsys.readouterr().out)["holds"] != changed


def test_an_open_session_sees_that_the_end_was_cut(url: str) -> None:
    with session(url, 1.0, create=True) as running:
        running.run(QUERY)
        execute(
            url,
            "ALTER TABLE adaptive_dp_ledger DISABLE TRIGGER kept; "
            "DELETE FROM adaptive_dp_ledger WHERE number = 2; "
            "ALTER TABLE adaptive_dp_ledger ENABLE TRIGGER kept",
        )
        with pytest.raises(LedgerError, match="lost"):
            running.run(QUERY, again=True)


@pytest.mark.parametrize(
    "change",
    [
        "DROP TRIGGER kept ON adaptive_dp_ledger",
        "ALTER TABLE adaptive_dp_ledger DISABLE TRIGGER kept",
        "ALTER TABLE adaptive_dp_ledger ENABLE REPLICA TRIGGER kept",
        "ALTER TABLE adaptive_dp_ledger SET UNLOGGED",
        "CREATE OR REPLACE FUNCTION adaptive_dp_ledger_kept() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN RETURN NULL; END'",
        "CREATE RULE mute AS ON INSERT TO adaptive_dp_ledger DO INSTEAD NOTHING",
        "DROP TRIGGER kept ON adaptive_dp_ledger; CREATE TRIGGER kept BEFORE UPDATE OR DELETE OR "
        "TRUNCATE ON adaptive_dp_ledger FOR EACH STATEMENT WHEN (false) EXECUTE FUNCTION "
        "adaptive_dp_ledger_kept()",
        "DROP TRIGGER kept ON adaptive_dp_ledger; CREATE TRIGGER kept BEFORE UPDATE OF number OR "
        "DELETE OR TRUNCATE ON adaptive_dp_ledger FOR EACH STATEMENT EXECUTE FUNCTION "
        "adaptive_dp_ledger_kept()",
        "CREATE TABLE more () INHERITS (adaptive_dp_ledger)",
        "ALTER TABLE adaptive_dp_ledger ENABLE ROW LEVEL SECURITY",
        "CREATE TRIGGER more BEFORE INSERT ON adaptive_dp_ledger FOR EACH STATEMENT "
        "EXECUTE FUNCTION adaptive_dp_ledger_kept()",
    ],
)
def test_a_changed_table_is_refused(url: str, change: str) -> None:
    open_ledger(url, create=True).close()
    execute(url, change)
    with pytest.raises(LedgerError):
        open_ledger(url)


def test_an_entry_that_the_table_does_not_take_is_an_error(url: str) -> None:
    """A rule that is made while a session is open."""
    with session(url, 1.0, create=True) as running:
        running.run(QUERY)
        execute(url, "CREATE RULE mute AS ON INSERT TO adaptive_dp_ledger DO INSTEAD NOTHING")
        with pytest.raises(LedgerError):
            running.run(QUERY, again=True)
        assert running.spent.costs[0] == pytest.approx(0.1)


def test_roles_append_or_read_and_the_owner_alone_keeps(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script that the command prints, run twice, and what each role can do then."""
    session(url, 1.0, create=True).close()
    (schema,) = re.findall(r"%3D(.*)$", url)
    owner, team, auditors = (f"{schema}_{name}" for name in ("owner", "team", "auditors"))
    assert (
        main(
            [
                "ledger",
                "roles",
                "--schema",
                schema,
                "--owner",
                owner,
                "--analysts",
                team,
                "--readers",
                auditors,
            ]
        )
        == 0
    )
    script = capsys.readouterr().out
    people = {
        f"{schema}_{name}": role
        for name, role in {"keeper": owner, "ada": team, "rita": auditors}.items()
    }
    keeper, ada, rita = (re.sub(r"//[^@/]*@", f"//{name}@", url) for name in people)
    execute(
        url,
        *(f"CREATE ROLE {name} LOGIN" for name in people),
        script,
        script,
        *(f"GRANT {role} TO {name}" for name, role in people.items()),
    )
    try:
        with session(ada, 1.0) as running:
            value = running.run(QUERY)
            assert running.spent.costs[0] == pytest.approx(0.1)
        # all that would change what is there, or who is asked
        for who in (ada, rita):
            for statement in (
                "UPDATE adaptive_dp_ledger SET hash = ''",
                "DELETE FROM adaptive_dp_ledger",
                "TRUNCATE adaptive_dp_ledger",
                "DROP TABLE adaptive_dp_ledger",
                "BEGIN; LOCK TABLE adaptive_dp_ledger IN EXCLUSIVE MODE",
                "ALTER TABLE adaptive_dp_ledger DISABLE TRIGGER kept",
                "COMMENT ON TABLE adaptive_dp_ledger IS 'a ledger of adaptive-dp, version 1'",
                "SET session_replication_role = replica",
                f"CREATE TABLE {schema}.more ()",
            ):
                with pytest.raises(psycopg.Error, match=r"denied|owner"):
                    execute(who, statement)
        # a row that does not follow, or that is no hash of its content
        for row in (
            "9, 'x', '{}', 'spend'",
            "3, 'x', '{}', 'spend'",
            "3, encode(sha256('{}'), 'hex'), '{}', 'spend'",
            "3, 'x', entry, kind",
        ):
            with pytest.raises(psycopg.Error, match="at its end"):
                execute(
                    ada,
                    "INSERT INTO adaptive_dp_ledger SELECT "
                    + row
                    + " FROM adaptive_dp_ledger WHERE number = 2",
                )
        # what the owner alone may write; a search path with an own pg_has_role changes nothing
        larger: dict[str, Any] = {"reason": "a second survey", "user": "Ada"}
        for refusal in (
            lambda: raise_budget(ada, Budget(2.0), **larger),
            lambda: close_ledger(ada, reason="done"),
            lambda: raise_budget(rita, Budget(2.0), **larger),
            lambda: open_ledger(rita).spend(0, spend),
        ):
            assert re.search("only the owner|denied", refused(refusal))
        with session(rita, 1.0) as reading:
            assert reading.run(QUERY) == value  # it is recorded
            with pytest.raises(LedgerError, match="denied"):
                reading.run(QUERY, again=True)
        assert recomputed(open_ledger(url).entries()).holds
        raise_budget(keeper, Budget(2.0), **larger)
        with session(ada, 2.0) as running:
            running.run(QUERY, again=True)
        assert recomputed(open_ledger(rita).entries()).holds
    finally:
        execute(
            url,
            *(
                f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}"
                for name in (*people, team, auditors)
            ),
        )
        execute(
            url,
            f"REASSIGN OWNED BY {owner} TO CURRENT_USER; DROP OWNED BY {owner}; DROP ROLE {owner}",
        )


def test_an_analyst_s_search_path_changes_no_check(url: str) -> None:
    """A schema of their own, before that of the server, with a function that says yes to all."""
    session(url, 1.0, create=True).close()
    (schema,) = re.findall(r"%3D(.*)$", url)
    role, theirs = f"{schema}_eve", f"{schema}_theirs"
    execute(
        url,
        f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {schema} TO {role}; "
        f"GRANT SELECT, INSERT ON adaptive_dp_ledger TO {role}; "
        f"CREATE SCHEMA {theirs} AUTHORIZATION {role}",
    )
    eve = re.sub(r"//[^@/]*@", f"//{role}@", url)
    execute(
        eve,
        f"CREATE FUNCTION {theirs}.pg_has_role(name, oid, text) RETURNS boolean LANGUAGE sql "
        "AS 'SELECT true'",
    )
    try:
        path = eve.replace(f"%3D{schema}", f"%3D{schema},{theirs},pg_catalog")
        assert execute(path, "SELECT pg_has_role(current_user, 1::oid, 'x')") == [(True,)]
        message = refused(lambda: raise_budget(path, Budget(2.0), reason="for me"))
        assert "only the owner" in message
    finally:
        execute(url, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def cut_all(url: str) -> None:
    """Break all other connections to the tests' schema, as a server that restarts does."""
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid != pg_backend_pid() "
        "AND backend_type = 'client backend' AND datname = current_database()",
    )


def test_a_connection_that_breaks_is_an_error_and_is_made_again(url: str) -> None:
    ledger = open_ledger(url, create=True)

    def kill(_: object) -> dict[str, Any]:
        cut_all(url)
        return spend(_)

    with pytest.raises(LedgerError):
        ledger.spend(0, kill)
    assert ledger.spend(0, spend)[0]["number"] == 0
    cut_all(url)
    assert len(ledger.entries()) == 1  # to read again does no harm
    cut_all(url)
    with pytest.raises(LedgerError):
        ledger.spend(1, spend)
    assert ledger.spend(1, spend)[0]["number"] == 1


def test_a_session_outlives_idle_connections(url: str) -> None:
    with session(url, 1.0, create=True) as running:
        for i in range(3):
            running.run(QUERY, again=i > 0)
            cut_all(url)
            assert running.spent.costs[0] == pytest.approx(0.1 * (i + 1))
            cut_all(url)
    assert recomputed(open_ledger(url).entries()).holds


class Line:
    """A line to a server that breaks when a message passes: before it, or before its answer."""

    def __init__(self, url: str, message: bytes, when: str) -> None:
        match = re.search(r"@([^:/]+):(\d+)", url)
        assert match is not None
        self._to, self._message, self._when = (match[1], int(match[2])), message, when
        self.armed = False
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(match[0], f"@127.0.0.1:{self._listens.getsockname()[1]}")
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listens.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listens.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._to) as server, suppress(OSError):
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 16)
                    breaks = source is client and self.armed and self._message in data
                    if not data or (breaks and self._when == "before"):
                        self.armed = self.armed and not breaks
                        return
                    (client if source is server else server).sendall(data)
                    if breaks:
                        self.armed = False
                        client.close()
                        time.sleep(0.2)  # the server does not answer
                        return


@pytest.mark.parametrize(
    ("message", "when", "recorded_"),
    [
        (b"LOCK TABLE", "before", 0),
        (b"INSERT INTO", "before", 0),
        (b"INSERT INTO", "after", 0),
        (b"COMMIT\0", "before", 0),
        (b"COMMIT\0", "after", 1),
    ],
)
def test_a_line_that_breaks_while_it_is_decided_releases_nothing(
    url: str, message: bytes, when: str, recorded_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A spend may be recorded without an acknowledgement: it is paid, its value was never drawn."""
    line, drawn = Line(url, message, when), []
    inner = dp.Laplace.release
    monkeypatch.setattr(
        dp.Laplace,
        "release",
        lambda *given: drawn.append(1) or inner(*given),  # type: ignore[func-returns-value]
    )
    try:
        with session(line.url, 1.0, create=True) as running:
            first = running.run(QUERY)
            count = len(drawn)
            line.armed = True
            with pytest.raises(LedgerError):
                running.run(QUERY, again=True)
            assert len(drawn) == count
            time.sleep(0.3)  # what was asked of the server is done
            assert running.spent.costs[0] == pytest.approx(0.1 * (1 + recorded_))
            assert running.run(QUERY) == first
            running.run(QUERY, again=True)
            assert running.spent.costs[0] == pytest.approx(0.1 * (2 + recorded_))
            assert dp.verify(running.certificate()).holds
    finally:
        line.close()
    verdict = recomputed(open_ledger(url).entries())
    assert verdict.holds
    assert (verdict.spends, len(verdict.released)) == (2 + recorded_, 2)


def test_a_release_whose_answer_is_lost_is_recovered_from_the_record(url: str) -> None:
    line = Line(url, b"COMMIT\0", "after")
    note = Session._record

    def armed(self: Session, *rest: Any) -> None:
        line.armed = True
        Session._record = note  # type: ignore[method-assign]
        note(self, *rest)

    try:
        with session(line.url, 1.0, create=True) as running:
            Session._record = armed  # type: ignore[method-assign]
            with pytest.raises(LedgerError):
                running.run(QUERY)
            time.sleep(0.3)
            running.run(QUERY)
            assert running.spent.costs[0] == pytest.approx(0.1)
    finally:
        Session._record = note  # type: ignore[method-assign]
        line.close()


@pytest.mark.parametrize("limit", ["lock_timeout", "statement_timeout"])
def test_who_waits_too_long_is_refused_and_goes_on(
    url: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds: Any = open_ledger(url, create=True)
    waits = open_ledger(
        url + "%20-cstatement_timeout%3D200" if limit == "statement_timeout" else url
    )

    def within(_: object) -> dict[str, Any]:
        if limit == "lock_timeout":
            monkeypatch.setattr(postgres, "LOCK_TIMEOUT", 0.2)
        with pytest.raises(LedgerError):
            waits.spend(0, spend)
        return spend(_)

    assert holds.spend(0, within)[0]["number"] == 0
    assert waits.spend(0, spend)[-1]["number"] == 1


def test_a_process_that_vanishes_while_deciding_blocks_no_other(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LOCK_TIMEOUT", 0.3)
    ledger = open_ledger(url, create=True)

    def long(_: object) -> dict[str, Any]:
        time.sleep(0.8)
        open_ledger(url).spend(0, spend)
        return spend(_)

    with pytest.raises(LedgerError):
        ledger.spend(0, long)
    assert [e["number"] for e in ledger.spend(0, spend)] == [0, 1]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(LedgerError) as caught:
        call()
    return str(caught.value)


def test_a_server_that_is_not_there() -> None:
    assert "secret" not in refused(lambda: open_ledger("postgresql://me:secret@127.0.0.1:1/none"))
