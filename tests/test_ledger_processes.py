"""Real processes on one ledger: what is granted, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli import main
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session import Budget, Session, values
from adaptive_dp.session import session as core
from adaptive_dp.session.chain import broken
from adaptive_dp.session.sqlite import SQLiteLedger

CHILD = Path(__file__).parent / "ledger_child.py"
PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def child(*arguments: object) -> str:
    root = str(CHILD.parent.parent)
    given = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    found = subprocess.run(
        [sys.executable, CHILD, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": given},
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_eight_processes_get_together_exactly_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    assert int(child("many", path, 8, 1250, 120)) == 120  # of 10,000 attempts
    entries = SQLiteLedger(path).entries()
    assert len(entries) == 120
    assert not list(broken(entries))


def test_a_killed_session_has_recorded_whatever_it_said(tmp_path: Path) -> None:
    child("killed", tmp_path, 12)
    outs = sorted(tmp_path.glob("*.out"))
    assert len(outs) == 16 * 2 + 12
    said = 0
    for out in outs:
        lines = out.read_text().split("\n")[:-1]  # the last line may have been cut
        path = out.with_suffix(".db")
        if not path.exists():
            assert not lines
            continue
        ledger = SQLiteLedger(path)
        entries = ledger.entries()
        assert not list(broken(entries))
        paid = {e["number"] for e in entries if e["kind"] == "spend"}
        known = [e for e in entries if e["kind"] == "release"]
        assert all(e["of"] in paid and e["of"] < e["number"] for e in known)
        recorded = [str(values.read(v)) for e in known for v in e["values"].values()]
        assert lines == recorded[: len(lines)]
        assert len(lines) <= len(recorded) <= len(paid) <= len(lines) + 1
        said += len(lines)
        ledger.close()
        with Session(budget=Budget(4.0), accountant="basic", ledger=path, people=ROWS) as after:
            after.run(PEOPLE.count().release(dp.Laplace(scale=100.0)), again=True)
            assert after.spent.costs[0] == pytest.approx(0.01 * (len(paid) + 1), rel=1e-9)
    assert said > 10


def in_child(work: object) -> int:
    """Return the exit code of a forked process that does some work."""
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = work()  # type: ignore[operator]
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def grants(session: Session, most: int) -> int:
    found = 0
    for _ in range(most):
        try:
            session.run(PEOPLE.count().release(dp.Laplace(scale=10.0)), again=True)
        except BudgetError:
            break
        found += 1
    return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_paid_and_not_released_is_lost_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed after the spend is on the disk, and before anything is drawn."""
    path, query = tmp_path / "a.db", PEOPLE.count().release(dp.Laplace(scale=8.0))

    def opened() -> Session:
        return Session(budget=Budget(1.0), accountant="basic", ledger=path, people=ROWS)

    def work() -> None:
        monkeypatch.setattr(core.Run, "value", lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        opened().run(query, name="lost")

    assert in_child(work) == -signal.SIGKILL
    assert main(["ledger", "show", str(path), "--json"]) == 0
    assert [step["released"] for step in json.loads(capsys.readouterr().out)["steps"]] == ["no"]
    with opened() as session:
        assert session.spent.costs[0] == pytest.approx(0.125)
        value = session.run(query, name="again")  # nobody knows the lost value: it is paid anew
        assert session.run(query) == value
        assert session.spent.costs[0] == pytest.approx(0.25)
        paper = session.certificate()
    assert dp.verify(paper).holds
    assert paper.document["session"]["odometer"]["epsilon"] == pytest.approx(0.25)
    assert main(["ledger", "show", str(path)]) == 0
    lost, again, *rest = capsys.readouterr().out.splitlines()[2:]
    assert " no " in lost
    assert " yes " in again
    assert any(line.startswith("1 paid and not released") for line in rest)
    assert main(["ledger", "verify", str(path)]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_session_shares_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "ten.db"
    session = Session(budget=Budget(1.0 + 1e-9), accountant="basic", ledger=path, people=ROWS)
    first = grants(session, 3)
    theirs = in_child(lambda: grants(session, 4))
    mine = grants(session, 20)
    assert (first, theirs, mine) == (3, 4, 3)
    assert in_child(lambda: grants(session, 20)) == 0
    entries = SQLiteLedger(path).entries()
    assert sum(e["kind"] == "spend" for e in entries) == 10
    assert len({e["by"] for e in entries if e["kind"] == "spend"}) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_session_without_a_ledger_is_refused() -> None:
    session = Session(budget=Budget(1.0), accountant="basic", people=ROWS)

    def work() -> int:
        with pytest.raises(LedgerError, match="forked process"):
            grants(session, 1)
        return 5

    assert in_child(work) == 5
    assert grants(session, 1) == 1
