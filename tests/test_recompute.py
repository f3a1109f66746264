"""Ledgers recomputed from their plans: honest ones hold, forged ones with valid hashes do not."""

from __future__ import annotations

import copy
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import FAILS, UNUSABLE
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.entries import GENESIS, broken_entries, chained
from adaptive_dp.session.ledger import MemoryLedger
from adaptive_dp.session.recompute import exported, imported, recomputed

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B", "C"]})
ROWS = {"age": [30.0, 40.0, 50.0] * 100, "region": ["A", "B", "C"] * 100}
Entries = list[dict[str, Any]]


def largest(*values: float) -> float:
    return max(values)


def analysis(path: Path, accountant: str = "renyi") -> float:
    """Thirty steps, each after the values before: parts, a loop, releases made again and cached."""
    with Session(
        budget=Budget(2.0, 1e-6),
        accountant=accountant,
        ledger=path,
        create=True,
        people=ROWS,
    ) as session:
        count = PEOPLE.count().release(dp.Gaussian(sigma=40))
        level = session.run(count, name="people")
        session.run(count, again=True)
        session.run(count)  # cached
        parts = PEOPLE.partition("region")
        for _, part in parts:
            n = session.run(part.count().release(dp.Gaussian(sigma=40)))
            inner = part["age"].clip(0, 50 if n > 50 else 60)
            session.run(inner.sum().release(dp.Gaussian(sigma=5000)), name="sum of a part")
        rounds = dp.repeat(
            lambda state, people: dp.post(
                largest, state, people.count().release(dp.Gaussian(sigma=90))
            ),
            2,
            PEOPLE,
            start=0.0,
        )
        session.run(rounds, name="rounds")
        later = dp.post(
            largest, count, rounds, PEOPLE["age"].sum().release(dp.Gaussian(sigma=9000))
        )
        session.run(later)  # two of its three releases are known
        for i in range(20):
            sigma = 60 + 2 * i + (1 if level > 300 else 0)
            level = session.run(PEOPLE.count().release(dp.Gaussian(sigma=sigma)))
        with pytest.raises(BudgetError):
            session.run(PEOPLE.count().release(dp.Gaussian(sigma=0.1)))
        return session.epsilon


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger") / "a.db"
    analysis(path)
    return path


@pytest.fixture
def entries(ledger: Path) -> Entries:
    from adaptive_dp.session.sqlite import SQLiteLedger

    return SQLiteLedger(ledger).entries()


def rechained(entries: Entries) -> Entries:
    """Forge every hash."""
    chain: Entries = []
    for entry in entries:
        own = {k: v for k, v in entry.items() if k not in ("hash", "number", "previous")}
        chain.append(chained(own, len(chain), chain[-1]["hash"] if chain else GENESIS))
    return chain


@pytest.mark.parametrize("accountant", ["gaussian", "concentrated"])
def test_an_honest_ledger_holds(tmp_path: Path, accountant: str) -> None:
    from adaptive_dp.session.sqlite import SQLiteLedger

    epsilon = analysis(tmp_path / "a.db", accountant)
    verdict = recomputed(SQLiteLedger(tmp_path / "a.db").entries())
    assert verdict.reasons == ()
    assert verdict.epsilon == pytest.approx(epsilon, rel=1e-12)


def test_an_honest_ledger_holds_under_renyi(entries: Entries) -> None:
    verdict = recomputed(entries, head=entries[-1]["hash"])
    assert verdict.holds
    assert verdict.reasons == ()
    assert verdict.spends == sum(e["kind"] == "spend" for e in entries) == 30
    read, left = zip(*verdict.running.values(), strict=True)
    assert list(read) == sorted(read)
    assert list(left) == sorted(left, reverse=True)
    assert verdict.running[max(verdict.running)] == (verdict.epsilon, verdict.left)
    assert verdict.epsilon < 2
    assert recomputed(rechained(entries)).holds  # the forger below forges nothing by itself


def spends(entries: Entries) -> Entries:
    return [e for e in entries if e["kind"] == "spend"]


def smaller(entries: Entries) -> None:
    loss = spends(entries)[5]["costs"][0][1]["loss"]
    loss["mu"] *= 0.999


def none(entries: Entries) -> None:
    spends(entries)[5]["costs"] = []


def deeper(entries: Entries) -> None:
    """Say that a spend on everyone touched one part."""
    place = next(c[0] for e in spends(entries) for c in e["costs"] if c[0])
    spends(entries)[0]["costs"][0][0] = place


def elsewhere(entries: Entries) -> None:
    cost = next(c for e in spends(entries) for c in e["costs"] if c[0])
    cost[0][0][1] = 7


def unlisted(entries: Entries) -> None:
    spend = spends(entries)[4]
    spend["releases"], spend["costs"] = [], []


def another_plan(entries: Entries) -> None:
    """Less noise than what was paid for."""
    for node in spends(entries)[6]["plan"]["nodes"]:
        if node["kind"] == "release":
            node["mechanism"]["sigma"] = 1.0


def another_bound(entries: Entries) -> None:
    for node in next(e for e in spends(entries) if e["name"] == "sum of a part")["plan"]["nodes"]:
        if node["kind"] == "clip":
            node["bounds"] = [0.0, 500.0]


def more_values(entries: Entries) -> None:
    release = next(e for e in entries if e["kind"] == "release")
    release["values"]["0" * 64] = 1.0


def twice(entries: Entries) -> None:
    release = next(e for e in entries if e["kind"] == "release")
    entries.append({**release, "values": dict.fromkeys(release["values"], 7.0)})


def before_paying(entries: Entries) -> None:
    release = next(i for i, e in enumerate(entries) if e["kind"] == "release")
    entries[release]["of"] = len(entries)


def over_budget(entries: Entries) -> None:
    entries += [copy.deepcopy(spends(entries)[0]) for _ in range(240)]


def left_out(entries: Entries) -> None:
    """A spend and its release, which a later step reads."""
    later = next(e for e in spends(entries) if e["name"] == "rounds")
    at = entries.index(later)
    del entries[at : at + 2]
    for entry in entries[at:]:
        if entry["kind"] == "release":
            entry["of"] -= 2


def not_released(entries: Entries) -> None:
    """A release that a later step reads at no cost."""
    later = next(e for e in spends(entries) if e["name"] == "rounds")
    at = entries.index(later) + 1
    del entries[at]
    for entry in entries[at:]:
        if entry["kind"] == "release":
            entry["of"] -= 1


def no_declaration(entries: Entries) -> None:
    """What no entry names, a later step could read as public."""
    spends(entries)[3]["data"] = {}


def another_kind(entries: Entries) -> None:
    spends(entries)[3]["kind"] = "note"


def reopened(entries: Entries) -> None:
    entries.insert(4, copy.deepcopy(entries[0]))
    for entry in entries[5:]:
        if entry["kind"] == "release":
            entry["of"] += 1


def another_accountant(entries: Entries) -> None:
    entries[0]["accountant"] = "gaussian"


def another_unit(entries: Entries) -> None:
    for node in spends(entries)[8]["plan"]["nodes"]:
        if node["kind"] == "dataset":
            node["neighbors"] = "zero_out"


def no_budget(entries: Entries) -> None:
    entries[0]["budget"] = ["inf", 1e-6, 0.0]


def a_small_budget(entries: Entries) -> None:
    entries[0]["budget"] = [0.2, 1e-6, 0.0]


FORGED: list[Callable[[Entries], None]] = [
    smaller,
    none,
    deeper,
    elsewhere,
    unlisted,
    another_plan,
    another_bound,
    more_values,
    twice,
    before_paying,
    over_budget,
    left_out,
    not_released,
    no_declaration,
    another_kind,
    reopened,
    another_accountant,
    another_unit,
    no_budget,
    a_small_budget,
]


@pytest.mark.parametrize("forge", FORGED, ids=lambda f: f.__name__)
def test_a_forged_entry_is_detected(entries: Entries, forge: Callable[[Entries], None]) -> None:
    forged = copy.deepcopy(entries)
    forge(forged)
    forged = rechained(forged)
    assert not list(broken_entries(forged))
    assert not recomputed(forged).holds


def test_whatever_a_document_holds_is_no_crash(entries: Entries) -> None:
    draw = random.Random(5)
    for _ in range(60):
        forged = copy.deepcopy(entries[:8])
        where: Any = forged[draw.randrange(len(forged))]
        while True:
            keys = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not keys:
                break
            key = draw.choice(keys)
            if isinstance(where[key], dict | list) and draw.random() < 0.8:
                where = where[key]
                continue
            where[key] = draw.choice([None, -1, 1e308, "x", [], {}, [[]], True, 10**400])
            break
        recomputed(rechained(forged))
    for wrong in ([], [None], [1, 2], [{}], [{"kind": "open"}]):
        assert not recomputed(wrong).holds


def test_an_export_is_read_back(entries: Entries) -> None:
    assert imported(json.dumps(exported(entries))) == entries
    assert imported("\n".join(map(json.dumps, entries))) == entries
    assert imported(json.dumps(entries[0])) == entries[:1]
    assert imported('{"format": "adaptive-dp/certificate/2"}') is None
    assert imported("text") is None
    assert imported("") is None


def test_the_command_line_shows_exports_and_verifies(
    ledger: Path, entries: Entries, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, head = str(ledger), entries[-1]["hash"]
    assert main(["ledger", "show", place]) == 0
    text = capsys.readouterr().out
    assert "sum of a part" in text
    assert head in text
    assert main(["ledger", "show", place, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["steps"]) == 30
    assert main(["ledger", "verify", place, "--head", entries[9]["hash"]]) == 0
    assert "holds" in capsys.readouterr().out
    assert main(["ledger", "verify", place, "--json", "--head", "0" * 63 + "1"]) == FAILS
    assert "cut off" in json.loads(capsys.readouterr().out)["reasons"][0]
    for flags in ([], ["--json"]):
        assert main(["ledger", "export", place, *flags]) == 0
        paper = tmp_path / "export.json"
        paper.write_text(capsys.readouterr().out)
        assert main(["verify", str(paper), "--head", head]) == 0
        assert main(["verify", str(paper), "--json"]) == 0
        capsys.readouterr()
    smaller(entries)
    paper.write_text(json.dumps(exported(entries)))
    assert main(["verify", str(paper)]) == FAILS
    assert "too small" in capsys.readouterr().out
    for arguments in (["show", "none.db"], ["export", str(paper)], ["verify", "x://y"]):
        assert main(["ledger", *arguments]) == UNUSABLE
        assert "ledger" in capsys.readouterr().err


def test_a_reading_is_not_capped_where_a_ledger_has_passed_its_budget() -> None:
    # the cap is the filter's promise, and no filter let this through
    loud = PEOPLE.count().release(dp.Laplace(scale=0.1))
    with Session(budget=Budget(50.0, 1e-6), people=ROWS) as session:
        session.part("a", 0.5).run(loud)
        entries = copy.deepcopy(session._ledger.entries())
    entries[0]["budget"] = [1.0, 1e-6, 0.0]
    ledger = MemoryLedger()
    ledger._entries += rechained(entries)
    with Session(budget=Budget(1.0, 1e-6), ledger=ledger, people=ROWS) as session:
        forecast = session.what_if(loud)
        assert forecast.fits
        assert forecast.already_paid
        readings = [session.epsilon, session.history()[0].epsilon, forecast.epsilon]
        readings.append(session.part("a", 0.5).epsilon)
        assert readings == [pytest.approx(10.0)] * 4
        assert "epsilon 10" in str(session)
        assert "left     0%" in str(session)
    verdict = recomputed(ledger.entries())
    assert not verdict.holds
    assert [verdict.epsilon, verdict.parts["a"].epsilon] == [pytest.approx(10.0)] * 2


def test_what_is_read_must_be_what_was_recorded() -> None:
    # the second of two twins: where the first is left out, it would pass for the first
    first, second = (PEOPLE.count().release(dp.Laplace(scale=5)) for _ in range(2))
    with Session(budget=Budget(5.0), people=ROWS) as session:
        session.run(dp.post(largest, first, second))
        session.run(dp.post(largest, second, PEOPLE.count().release(dp.Laplace(scale=8))))
        entries = copy.deepcopy(session._ledger.entries())
    assert recomputed(entries).holds
    both, alone = spends(entries)
    names = [node["id"] for node in both["plan"]["nodes"] if node["kind"] == "release"]
    assert both["offers"] == {}
    twin = both["releases"][1]
    both["offers"] = {names[1]: twin}
    nodes = [node for node in alone["plan"]["nodes"] if node["kind"] == "post"]
    nodes[0]["inputs"] = [names[1]]
    alone["plan"]["nodes"], alone["reads"] = nodes, {names[1]: twin}
    (reason,) = recomputed(rechained(entries)[:4]).reasons
    assert names[1] in reason
    assert twin in reason


def test_sessions_that_read_one_another_s_steps_have_one_certificate(tmp_path: Path) -> None:
    # functions of a script are distinguished in the process, but not in a ledger
    module = vars(sys.modules["__main__"])
    exec("def bigger(*values):\n    return max(values)\n", module)
    try:
        bigger = module["bigger"]
        start = PEOPLE.count().release(dp.Laplace(scale=7))
        rounds = dp.repeat(
            lambda state, people: dp.post(
                bigger, state, start, people.count().release(dp.Gaussian(sigma=40))
            ),
            2,
            PEOPLE,
            start=0.0,
        )
        budget = Budget(60.0, 1e-6)
        path = tmp_path / "a.db"
        ours, theirs, third = (
            Session(budget=budget, ledger=path, create=new, people=ROWS)
            for new in (True, False, False)
        )
        ours.run(rounds)
        ours.run(rounds, again=True)
        theirs.run(dp.post(bigger, rounds, PEOPLE.count().release(dp.Laplace(scale=9))))
        for session in (ours, theirs, third):
            assert dp.verify(session.certificate()).reasons == ()
        assert len({session.pipeline.fingerprint for session in (ours, theirs, third)}) == 1
    finally:
        del module["bigger"]


def test_records_budgets_outlast_steps_on_one_another_s(tmp_path: Path) -> None:
    def count(sigma: float) -> Any:
        return PEOPLE.count().release(dp.Gaussian(sigma=sigma))

    ours, theirs = (
        Session(
            budget=Budget(5.0, 1e-6),
            accountant="individual",
            edition="1",
            ledger=tmp_path / "a.db",
            create=new,
            people=ROWS,
        )
        for new in (True, False)
    )
    first = count(50)
    ours.run(first)
    second = dp.post(largest, first, count(51))
    theirs.run(second)
    ours.run(dp.post(largest, second, first, count(52)))
    theirs.run(count(53))
    ours.run(count(54))
    spent = [session.records.reveal()[0] for session in (ours, theirs)]
    assert spent == [pytest.approx(sum(s**-2 for s in (50, 51, 52, 53, 54)))] * 2
    assert dp.verify(ours.certificate()).reasons == ()
