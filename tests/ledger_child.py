"""Processes of the ledger tests, forked from one that has imported the library.

``python ledger_child.py killed FOLDER PLACE POINTS INSTANTS`` kills a session at every point of its
work (if POINTS is 1), and at random instants: in files of the folder, or in schemas of the server
at a URL. ``python ledger_child.py many FOLDER PLACE PROCESSES ATTEMPTS MOST`` spends at once.
``python ledger_child.py faulty FOLDER PLACE ATTEMPTS VALUES`` releases, under ``io_faults.c``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import adaptive_dp as dp
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session import Budget, Session
from adaptive_dp.session import session as core
from adaptive_dp.session.database import DatabaseLedger
from adaptive_dp.session.entries import broken_entries, value_from_json
from adaptive_dp.session.ledger import open_ledger
from adaptive_dp.session.postgres import PostgresLedger
from adaptive_dp.session.sqlite import SQLiteLedger

BUDGET = Budget(4.0)
PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}
DATABASE = ("_begin", "_insert", "_commit")
METHODS: list[tuple[type, str]] = [
    *((kind, name) for kind in (SQLiteLedger, PostgresLedger) for name in DATABASE),
    (DatabaseLedger, "spend"),
    (Session, "_read"),
    (Session, "_spend"),
    (core.Run, "compute_node"),
    (Session, "_record"),
]
POINTS = [f"{when} {name}" for _, name in METHODS[3:] for when in ("before", "after")]


def child(*arguments: object) -> list[list[int]]:
    """Run this file in a process of its own, and return the numbers that it prints, by lines."""
    root = str(Path(__file__).parent.parent)
    given = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    process = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": given},
    )
    assert process.returncode == 0, process.stderr
    return [[int(word) for word in line.split()] for line in process.stdout.splitlines() if line]


def session(path: str, *, create: bool = False) -> Session:
    return Session(budget=BUDGET, accountant="basic", ledger=path, create=create, people=ROWS)


def steps(path: str, *, create: bool = True) -> None:
    """Release until stopped, printing each value as soon as it is released."""
    with session(path, create=create) as running:
        for _ in range(300):
            print(running.run(PEOPLE.count().release(dp.Laplace(scale=100.0)), again=True))
            sys.stdout.flush()


def steps_until(path: str, point: str, left: int) -> None:
    """Release until a point is passed for the ``left``-th time, and be killed there."""

    def passing(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(kind: type, name: str) -> None:
        inner = getattr(kind, name)

        def outer(*args: Any, **kwargs: Any) -> Any:
            passing(f"before {name}")
            result = inner(*args, **kwargs)
            passing(f"after {name}")
            return result

        setattr(kind, name, outer)

    for kind, name in METHODS:
        watch(kind, name)
    steps(path)


def forked(work: Callable[[], Any], out: Path) -> int:
    """Return the process that does some work and prints to a file."""
    out.touch()  # here: the child may be killed before it comes to that
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(out, os.O_CREAT | os.O_WRONLY), sys.stdout.fileno())
            work()
            code = 0
        finally:
            sys.stdout.flush()
            os._exit(code)
    return pid


def place(folder: Path, server: str, name: str) -> str:
    """Return a new place for a ledger: a file, or a schema on a server."""
    if server == "file":
        return str(folder / f"{name}.db")
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{name}"'.encode())
    return f"{server}?options=-csearch_path%3D{name}"


def killed(folder: Path, server: str, points: int, instants: int) -> None:
    with Session(budget=BUDGET, accountant="basic", people=ROWS) as warm:  # what a step imports,
        warm.run(PEOPLE.count().release(dp.Laplace(scale=100.0)))  # lest each process does
    for i, point in enumerate(POINTS if points else ()):
        for often in (1, 4):
            name = f"{folder.name}-{i}-{often}"
            path, out = place(folder, server, name), folder / f"{name}.out"
            pid = forked(lambda p=path, q=point, n=often: steps_until(p, q, n), out)
            assert os.waitpid(pid, 0)[1] == signal.SIGKILL, point
    draw = random.Random(7)
    for i in range(instants):
        name = f"{folder.name}-instant-{i}"
        path = place(folder, server, name)
        made = i % 2 == 1  # every other one is killed while it makes its ledger, or after that
        if made:
            session(path, create=True).close()
        pid = forked(lambda p=path, m=made: steps(p, create=not m), folder / f"{name}.out")
        # many kills have the time for many values each
        time.sleep(draw.uniform(0, 0.3 if server == "file" and instants < 100 else 1.0))
        os.kill(pid, signal.SIGKILL)
        assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def recorded(folder: Path, server: str) -> int:
    """Check what killed sessions have said against their ledgers, and return how much it is."""
    released = 0
    for out in sorted(folder.glob("*.out")):
        lines = out.read_text().split("\n")[:-1]  # the last line may have been cut
        path = place(folder, server, out.stem)
        try:
            ledger = open_ledger(path)
        except LedgerError:  # killed before it was made
            assert not lines
            continue
        if not ledger.entries():  # or while it was made: no session takes it
            assert not lines
            continue
        entries = ledger.entries()
        assert not list(broken_entries(entries))
        paid = {e["number"] for e in entries if e["kind"] == "spend"}
        releases = [e for e in entries if e["kind"] == "release"]
        assert all(e["of"] in paid and e["of"] < e["number"] for e in releases)
        written = [str(value_from_json(v)) for e in releases for v in e["values"].values()]
        assert lines == written[: len(lines)]
        assert len(lines) <= len(written) <= len(paid) <= len(lines) + 1
        released += len(lines)
        ledger.close()
        with session(path) as after:
            after.run(PEOPLE.count().release(dp.Laplace(scale=100.0)), again=True)
            spent = after.spent.costs[0]
            assert abs(spent - 0.01 * (len(paid) + 1)) < 1e-9 * spent
    return released


def spend(path: str, attempts: int, most: int) -> None:
    """Try to append entries while there are fewer than ``most``; say how many it got, and lost.

    Lost are those that raised an error: only the ledger says whether they were recorded.
    """
    ledger, seen, granted, lost = open_ledger(path), 0, 0, 0

    def decide(new: Any) -> Any:
        return {"kind": "spend", "pid": os.getpid()} if seen + len(new) < most else None

    for _ in range(attempts):
        try:
            new_entries = ledger.spend(seen, decide)
        except LedgerError:
            lost += 1
            time.sleep(0.3)
            continue
        seen += len(new_entries)
        granted += bool(new_entries) and new_entries[-1]["pid"] == os.getpid()
    print(os.getpid(), granted, lost)


def faulty(folder: Path, path: str, attempts: int, values: int) -> None:
    """Release values, each printed at once, where the ledger's file may fail at any call."""
    for _ in range(attempts):
        with suppress(LedgerError), session(path, create=not Path(path).exists()) as running:
            for _ in range(values):
                value = running.run(PEOPLE.count().release(dp.Laplace(scale=100.0)), again=True)
                os.write(1, f"{value}\n".encode())


def many(folder: Path, path: str, processes: int, attempts: int, most: int) -> None:
    with suppress(LedgerError):  # or the test has made it
        open_ledger(path, create=True).close()
    outs = [folder / f"many.{i}" for i in range(processes)]
    pids = [forked(lambda: spend(path, attempts, most), out) for out in outs]
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0] * processes
    print("".join(out.read_text() for out in outs))


if __name__ == "__main__":
    mode, folder, place_, *numbers = sys.argv[1:]
    modes = {"killed": killed, "many": many, "faulty": faulty}
    modes[mode](Path(folder), place_, *map(int, numbers))
