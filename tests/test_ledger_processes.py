"""Real processes on one ledger: what is granted, and what a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from ledger_child import child, recorded

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli.main import main
from adaptive_dp.graph.errors import LedgerError
from adaptive_dp.session import Budget, Session
from adaptive_dp.session import session as core
from adaptive_dp.session.entries import broken_entries
from adaptive_dp.session.sqlite import SQLiteLedger

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def test_eight_processes_get_together_exactly_what_there_is(tmp_path: Path) -> None:
    path = tmp_path / "budget.db"
    rows = child("many", tmp_path, path, 8, 1250, 120)  # 10,000 attempts
    assert [sum(column) for column in list(zip(*rows, strict=True))[1:]] == [120, 0]
    entries = SQLiteLedger(path).entries()
    assert len(entries) == 120
    assert not list(broken_entries(entries))


def test_a_killed_session_has_recorded_whatever_it_said(tmp_path: Path) -> None:
    child("killed", tmp_path, "file", 1, 12)
    assert len(list(tmp_path.glob("*.out"))) == 16 * 2 + 12
    assert recorded(tmp_path, "file") > 3


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
    granted = 0
    for _ in range(most):
        try:
            session.run(PEOPLE.count().release(dp.Laplace(scale=10.0)), again=True)
        except BudgetError:
            break
        granted += 1
    return granted


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_was_paid_and_not_released_is_lost_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed after the spend is on the disk, and before anything is drawn."""
    path, query = tmp_path / "a.db", PEOPLE.count().release(dp.Laplace(scale=8.0))

    def open_session(create: bool = False) -> Session:
        return Session(
            budget=Budget(1.0),
            accountant="basic",
            ledger=path,
            create=create,
            people=ROWS,
        )

    def work() -> None:
        monkeypatch.setattr(
            core.Run, "compute_node", lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        )
        open_session(create=True).run(query, name="lost")

    assert in_child(work) == -signal.SIGKILL
    assert main(["ledger", "show", str(path), "--json"]) == 0
    assert [step["released"] for step in json.loads(capsys.readouterr().out)["steps"]] == ["no"]
    with open_session() as session:
        assert session.spent.costs[0] == pytest.approx(0.125)
        value = session.run(
            query, name="again"
        )  # the lost value was never recorded: it is paid anew
        assert session.run(query) == value
        assert session.spent.costs[0] == pytest.approx(0.25)
        paper = session.certificate()
    assert dp.verify(paper).holds
    assert paper.session.odometer.epsilon == pytest.approx(0.25)
    assert main(["ledger", "show", str(path)]) == 0
    lost, again, *rest = capsys.readouterr().out.splitlines()[2:]
    assert " no " in lost
    assert " yes " in again
    assert any(line.startswith("1 paid and not released") for line in rest)
    assert main(["ledger", "verify", str(path)]) == 0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_session_shares_its_budget(tmp_path: Path) -> None:
    path = tmp_path / "ten.db"
    session = Session(
        budget=Budget(1.0 + 1e-9),
        accountant="basic",
        ledger=path,
        create=True,
        people=ROWS,
    )
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
        with pytest.raises(LedgerError):
            grants(session, 1)
        return 5

    assert in_child(work) == 5
    assert grants(session, 1) == 1
