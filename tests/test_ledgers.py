"""Ledgers: what one entry after the other has to promise, in memory and in a file."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session import Budget, Session, database, sqlite
from adaptive_dp.session.entries import GENESIS, broken_entries, chained
from adaptive_dp.session.ledger import Ledger, MemoryLedger, create_ledger, open_ledger
from adaptive_dp.session.sqlite import SQLiteLedger, file_system

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made = (
        MemoryLedger()
        if request.param == "memory"
        else SQLiteLedger(tmp_path / "l.db", create=True)
    )
    yield made
    made.close()


def add(ledger: Ledger, n: int, **more: Any) -> None:
    for i in range(n):
        seen = len(ledger.entries())
        ledger.spend(seen, lambda _, i=i: {"kind": "spend", "n": i, **more})


def test_entries_are_chained_in_order(ledger: Ledger) -> None:
    add(ledger, 5)
    entries = ledger.entries()
    assert [e["number"] for e in entries] == list(range(5))
    assert not list(broken_entries(entries))
    assert ledger.entries(3) == entries[3:]
    assert ledger.entries(5) == []


def test_decide_sees_what_others_wrote_and_may_append_nothing(ledger: Ledger) -> None:
    add(ledger, 3)
    shown: list[Any] = []
    assert [e["number"] for e in ledger.spend(1, lambda new: shown.extend(new))] == [1, 2]
    assert [e["n"] for e in shown] == [1, 2]
    assert len(ledger.entries()) == 3


def test_an_exception_rolls_back(ledger: Ledger) -> None:
    def fail(_: Any) -> Any:
        raise BudgetError("no", None, 1, 0, None)

    with pytest.raises(BudgetError):
        ledger.spend(0, fail)
    add(ledger, 1)
    assert len(ledger.entries()) == 1


def test_a_time_is_written_with_a_spend_and_none_with_a_release(ledger: Ledger) -> None:
    add(ledger, 1)
    ledger.spend(1, lambda _: {"kind": "release", "of": 0, "values": {}})
    spend, release = ledger.entries()
    assert spend["time"].endswith("Z")
    assert spend["by"].endswith(f":{os.getpid()}")
    assert not {"time", "by"} & set(release)


def test_a_ledger_cannot_be_pickled(ledger: Ledger) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(ledger)
    with pytest.raises(TypeError):
        copy.deepcopy(ledger)


@pytest.mark.parametrize("storage", ["memory", "file"])
def test_thirty_two_threads_get_exactly_ten_of_ten(tmp_path: Path, storage: str) -> None:
    ledger = None if storage == "memory" else tmp_path / "ten.db"
    budget, new = Budget(1.0 + 1e-9), ledger is not None
    session = Session(budget=budget, accountant="basic", ledger=ledger, create=new, people=ROWS)
    granted: list[float] = []
    start = threading.Barrier(32)

    def work() -> None:
        start.wait()
        try:
            value = session.run(PEOPLE.count().release(dp.Laplace(scale=10.0)), again=True)
        except BudgetError:
            return
        granted.append(value)

    threads = [threading.Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == len(set(granted)) == 10


def test_sessions_of_threads_share_a_file(tmp_path: Path) -> None:
    path, granted = tmp_path / "ten.db", []
    create_ledger(path, Budget(1.0 + 1e-9), "basic")

    def work() -> None:
        with Session(
            budget=Budget(1.0 + 1e-9), accountant="basic", ledger=path, people=ROWS
        ) as session:
            try:
                for _ in range(5):
                    query = PEOPLE.count().release(dp.Laplace(scale=10.0))
                    granted.append(session.run(query, again=True))
            except BudgetError:
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 10


def test_a_file_is_for_its_owner_and_fully_synced(tmp_path: Path) -> None:
    ledger = SQLiteLedger(tmp_path / "a.db", create=True)
    assert stat.S_IMODE(os.stat(tmp_path / "a.db").st_mode) == 0o600
    assert ledger._connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert ledger._connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)


def test_a_session_goes_on_where_the_file_stands(tmp_path: Path) -> None:
    path = tmp_path / "a b%?#.db"
    query = PEOPLE.count().release(dp.Laplace(scale=10.0))
    with Session(
        budget=Budget(1.0), accountant="basic", ledger=path, create=True, people=ROWS
    ) as one:
        value = one.run(query)
    with Session(budget=Budget(1.0), accountant="basic", ledger=str(path), people=ROWS) as two:
        assert two.run(query) == value
        assert two.spent.costs == pytest.approx((0.1,))
    with pytest.raises(LedgerError, match="'basic'"):
        Session(budget=Budget(2.0), accountant="basic", ledger=path, people=ROWS)


def test_large_values_are_recorded_to_the_last_bit(tmp_path: Path) -> None:
    edges = np.linspace(0, 1, 20_001).tolist()
    rows = dp.dataset("rows", columns={"x": (0, 1)})
    query = rows["x"].histogram(edges).release(dp.Laplace(scale=10.0))
    data = {"x": np.linspace(0, 1, 1000)}
    path = tmp_path / "a.db"
    with Session(
        budget=Budget(1.0), accountant="basic", ledger=path, create=True, rows=data
    ) as one:
        value = np.asarray(one.run(query))
    with Session(budget=Budget(1.0), accountant="basic", ledger=path, rows=data) as two:
        again = np.asarray(two.run(query))
    assert again.dtype == value.dtype
    assert again.tobytes() == value.tobytes()


def test_update_and_delete_are_forbidden(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = SQLiteLedger(path, create=True)
    add(ledger, 3)
    ledger.close()
    other = sqlite3.connect(path)
    for statement in (
        "UPDATE entries SET entry = '{}' WHERE number = 1",
        "DELETE FROM entries",
        "INSERT OR REPLACE INTO entries VALUES (1, 'x', '{}')",
        "INSERT INTO entries VALUES (9, 'x', '{}')",
        "INSERT INTO entries VALUES (NULL, 'x', '{}')",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            other.execute(statement)
    other.close()
    assert len(SQLiteLedger(path).entries()) == 3


TRIGGERS = "; ".join(f"DROP TRIGGER {name}" for name in ("unchanged", "kept", "appended"))
TAMPER: dict[str, str] = {
    "change": "UPDATE entries SET entry = replace(entry, '\"n\":2', '\"n\":1') WHERE number = 2",
    "hash": "UPDATE entries SET hash = 'x' || substr(hash, 2) WHERE number = 2",
    "garbage": "UPDATE entries SET entry = '{' WHERE number = 2",
    "no text": "UPDATE entries SET entry = x'00' WHERE number = 2",
    "delete": "DELETE FROM entries WHERE number = 2",
    "close the gap": "DELETE FROM entries WHERE number = 2; "
    "UPDATE entries SET number = number - 1 WHERE number > 2",
    "first": "DELETE FROM entries WHERE number = 0",
    "insert": "UPDATE entries SET number = -number - 100 WHERE number > 2; "
    "UPDATE entries SET number = -number - 99 WHERE number < 0; "
    "INSERT INTO entries SELECT 3, hash || 'x', entry FROM entries WHERE number = 2",
    "swap": "UPDATE entries SET number = 9 WHERE number = 2; "
    "UPDATE entries SET number = 2 WHERE number = 3; "
    "UPDATE entries SET number = 3 WHERE number = 9",
}


def tampered(path: Path, statements: str) -> None:
    """Do something to a ledger, and put back what forbids it."""
    other = sqlite3.connect(path)
    other.executescript(f"{TRIGGERS}; {statements}")
    for statement in sqlite.SCHEMA[1:]:
        other.execute(statement)
    other.commit()
    other.close()


@pytest.mark.parametrize("kind", TAMPER)
@pytest.mark.parametrize("when", ["open", "closed"])
def test_tampering_is_detected(tmp_path: Path, kind: str, when: str) -> None:
    path = tmp_path / "a.db"
    ledger = SQLiteLedger(path, create=True)
    add(ledger, 6)
    if when == "closed":
        ledger.close()
        ledger = SQLiteLedger(path)
    tampered(path, TAMPER[kind])
    with pytest.raises(LedgerError):
        ledger.entries()
    with pytest.raises(LedgerError):
        ledger.spend(0, lambda _: {"kind": "spend"})


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e[:2] + e[3:],
        lambda e: [e[0], e[2], e[1], *e[3:]],
        lambda e: [*e[:3], e[2], *e[3:]],
        lambda e: [*e[:3], {**e[3], "n": 7}, *e[4:]],
        lambda e: [*e[:3], {**e[3], "more": None}, *e[4:]],
        lambda e: [*e[:3], chained({"kind": "spend"}, 3, e[2]["hash"]), *e[4:]],
        lambda e: [*e[:3], {**e[3], "n": float("nan")}, *e[4:]],
        lambda e: [*e[:3], "text", *e[4:]],
        lambda e: [{}, *e],
        lambda e: e[1:],
    ],
)
def test_the_chain_shows_whatever_was_changed(change: Callable[[Any], Any]) -> None:
    ledger = MemoryLedger()
    add(ledger, 6)
    assert list(broken_entries(change(ledger.entries())))


def test_an_open_session_sees_that_the_end_was_cut_or_forged(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = SQLiteLedger(path, create=True)
    add(ledger, 4)
    copy = tmp_path / "kept.db"
    shutil.copy(path, copy)
    tampered(path, "DELETE FROM entries WHERE number = 3")
    with pytest.raises(LedgerError, match="lost"):
        ledger.spend(4, lambda _: {"kind": "spend"})
    other = SQLiteLedger(path)
    add(other, 2)  # another end: valid by itself
    assert not list(broken_entries(other.entries()))
    with pytest.raises(LedgerError, match=r"\b3\b"):
        ledger.spend(4, lambda _: {"kind": "spend"})


def test_a_replaced_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    ledger = SQLiteLedger(path, create=True)
    add(ledger, 2)
    os.rename(path, tmp_path / "b.db")
    with pytest.raises(LedgerError):
        ledger.spend(2, lambda _: {"kind": "spend"})
    shutil.copy(tmp_path / "b.db", path)
    with pytest.raises(LedgerError, match="replaced"):
        ledger.spend(2, lambda _: {"kind": "spend"})
    os.link(path, tmp_path / "c.db")
    with pytest.raises(LedgerError):
        SQLiteLedger(path)


@pytest.mark.parametrize("change", ["DROP TRIGGER kept", "DROP TABLE entries"])
def test_changed_tables_are_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.db"
    add(SQLiteLedger(path, create=True), 2)
    other = sqlite3.connect(path)
    other.execute(change)
    other.close()
    with pytest.raises(LedgerError):
        SQLiteLedger(path)


@pytest.mark.parametrize("content", ["text", "database", "version"])
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.db"
    if content == "text":
        path.write_text("no database " * 1000)
    else:
        other = sqlite3.connect(path)
        if content == "version":
            SQLiteLedger(tmp_path / "b.db", create=True).close()
            other.close()
            shutil.copy(tmp_path / "b.db", path)
            other = sqlite3.connect(path)
            other.execute("PRAGMA user_version=3")
        else:
            other.execute("CREATE TABLE t (x)")
        other.commit()
        other.close()
    before = path.read_bytes()
    with pytest.raises(LedgerError):
        SQLiteLedger(path)
    assert path.read_bytes() == before


def test_a_locked_ledger_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "LOCK_TIMEOUT", 0.05)
    ledger = SQLiteLedger(tmp_path / "a.db", create=True)
    other = SQLiteLedger(tmp_path / "a.db")

    def within(_: Any) -> None:
        with pytest.raises(LedgerError, match="locked"):
            other.spend(0, lambda _: {"kind": "spend"})

    ledger.spend(0, within)
    add(other, 1)
    assert len(ledger.entries()) == 1


def test_a_closed_ledger_and_a_spend_within_a_spend_are_refused(tmp_path: Path) -> None:
    ledger = SQLiteLedger(tmp_path / "a.db", create=True)
    with pytest.raises(LedgerError):
        ledger.spend(0, lambda _: ledger.spend(0, lambda _: None))  # type: ignore[arg-type,return-value]
    add(ledger, 1)
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.entries()


def test_places_that_are_none(tmp_path: Path) -> None:
    for place in ("", "mysql://host/db", "file:x?mode=memory", b"bytes", 3):
        with pytest.raises(LedgerError):
            open_ledger(place)  # type: ignore[arg-type]
    with pytest.raises(LedgerError):
        open_ledger(tmp_path / "none.db")
    with pytest.raises(LedgerError):
        open_ledger(tmp_path / "none" / "none.db", create=True)
    assert not (tmp_path / "none.db").exists()


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not file_system(str(tmp_path)).startswith("nfs")
    monkeypatch.setattr(sqlite, "file_system", lambda path: "nfs4")
    with pytest.raises(LedgerError):
        SQLiteLedger(tmp_path / "a.db", create=True)
    assert database.LOCK_TIMEOUT >= 60
    assert GENESIS == "0" * 64
