"""Parts of a budget that sessions share: one share each, recorded in the ledger, recomputed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import FAILS
from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.entries import GENESIS, chained
from adaptive_dp.session.ledger import MemoryLedger, create_ledger
from adaptive_dp.session.recompute import recomputed
from adaptive_dp.session.sqlite import SQLiteLedger

PEOPLE = dp.dataset("people", columns={"age": (0, 100)})
ROWS = {"age": [30.0, 40.0, 50.0] * 10}
BUDGET, WIDE = Budget(1.0), Budget(4.0, 1e-6)
Entries = list[dict[str, Any]]


def open_session(ledger: Any, accountant: str = "basic", budget: Budget = BUDGET) -> Session:
    return Session(budget=budget, accountant=accountant, ledger=ledger, people=ROWS)


def count(epsilon: float) -> Any:
    return PEOPLE.count().release(dp.Laplace(scale=1 / epsilon))


def test_a_share_is_written_with_each_spend_and_holds_for_other_sessions() -> None:
    ledger = MemoryLedger()
    open_session(ledger).part("a", 0.5).part("b", 0.5).run(count(0.125))
    entry = ledger.entries()[1]
    assert entry["part"] == "a/b"
    assert entry["shares"] == pytest.approx([0.5, 0.25], rel=1e-12)
    assert entry["shares"][1] <= 0.25
    other = open_session(ledger)
    for share in (0.6, 0.4, 1):
        with pytest.raises(DeclarationError, match=r"0\.5"):
            other.part("a", share)
    same = other.part("a", 0.5)
    with pytest.raises(DeclarationError, match="'a/b'"):
        same.part("b", 0.6)
    assert same.spent.costs[0] == pytest.approx(0.125)
    assert same.part("b", 0.5).remaining.costs[0] == pytest.approx(0.125)
    with pytest.raises(BudgetError):
        same.part("b", 0.5).run(count(0.126))
    with pytest.raises(BudgetError):
        same.run(count(0.376))
    same.run(count(0.374))


def test_the_first_spend_settles_a_share_that_two_sessions_see_otherwise() -> None:
    ledger = MemoryLedger()
    small, large = open_session(ledger), open_session(ledger)
    mine, theirs = small.part("a", 0.2), large.part("a", 0.9)
    inner = theirs.part("inner", 0.5)
    assert [e["kind"] for e in ledger.entries()] == ["open"]
    mine.run(count(0.125))
    written = ledger.entries()
    for ask in (
        lambda: theirs.run(count(0.01)),
        lambda: theirs.what_if(count(0.01)),
        lambda: theirs.remaining,
        lambda: inner.run(count(0.01)),
        lambda: theirs.part("more", 0.5),
        lambda: large.part("a", 0.9),
    ):
        with pytest.raises(DeclarationError, match=r"'a' has 0\.2 of .* not 0\.9"):
            ask()
    assert ledger.entries() == written
    again = large.part("a", 0.2)
    assert again.remaining.costs[0] == pytest.approx(0.075)
    with pytest.raises(BudgetError):
        again.run(count(0.076))
    again.run(count(0.07))
    assert large.spent.costs[0] == small.spent.costs[0] == pytest.approx(0.195)


def test_the_share_is_settled_under_the_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other session spends after this one has looked, and before it decides."""
    ledger = MemoryLedger()
    one, two = open_session(ledger), open_session(ledger)
    mine, theirs = one.part("a", 0.9), two.part("a", 0.2)
    pay = Session._spend

    def late(self: Session, *rest: Any) -> int:
        monkeypatch.setattr(Session, "_spend", pay)
        theirs.run(count(0.1))
        return pay(self, *rest)

    monkeypatch.setattr(Session, "_spend", late)
    with pytest.raises(DeclarationError, match="share"):
        mine.run(count(0.5))
    assert [e["kind"] for e in ledger.entries()] == ["open", "spend", "release"]
    assert one.spent.costs[0] == pytest.approx(0.1)


def test_a_part_of_a_part_reopens_under_another_outer_share() -> None:
    ledger = MemoryLedger()
    mine, theirs = open_session(ledger), open_session(ledger)
    stale = mine.part("a", 0.5).part("b", 0.5)
    theirs.part("a", 0.25).run(count(0.05))
    with pytest.raises(DeclarationError, match=r"has 0\.25"):
        stale.run(count(0.06))
    inner = mine.part("a", 0.25).part("b", 0.5)
    assert inner.share == pytest.approx(0.125)
    inner.run(count(0.07))
    with pytest.raises(BudgetError):
        inner.run(count(0.06))
    for refused in (stale.run, stale.what_if):
        with pytest.raises(DeclarationError, match=r"has 0\.25"):
            refused(count(0.01))
    assert recomputed(ledger.entries()).holds


@pytest.mark.parametrize("part", [None, ["a"], 7, True])
def test_a_part_that_is_not_a_str_is_detected(part: Any) -> None:
    ledger = MemoryLedger()
    open_session(ledger).part("a", 0.5).run(count(0.05))
    entries = copy.deepcopy(ledger.entries())
    entries[1]["part"] = part
    verdict = recomputed(rechained(entries))
    assert any(f"got {part!r}" in reason for reason in verdict.reasons)


def test_a_share_too_small_to_be_one() -> None:
    session = open_session(None)
    tiny = session.part("tiny", 1e-300)
    with pytest.raises(BudgetError):
        tiny.run(count(1e-6))
    with pytest.raises(DeclarationError, match="tiny/none"):
        tiny.part("none", 1e-300)


def spent_in_parts(ledger: Any, accountant: str = "basic") -> None:
    session = open_session(ledger, accountant, BUDGET if accountant == "basic" else WIDE)
    topic = session.part("topic", 0.5)
    topic.run(count(0.125), name="one")
    topic.part("inner", 0.5).run(count(0.0625), name="two")
    session.run(count(0.25), name="three")


def rechained(entries: Entries) -> Entries:
    chain: Entries = []
    for entry in entries:
        own = {k: v for k, v in entry.items() if k not in ("hash", "number", "previous")}
        chain.append(chained(own, len(chain), chain[-1]["hash"] if chain else GENESIS))
    return chain


def test_the_sums_of_parts_are_recomputed() -> None:
    ledger = MemoryLedger()
    spent_in_parts(ledger)
    verdict = recomputed(ledger.entries())
    assert verdict.holds
    assert recomputed(rechained(ledger.entries())).holds
    assert verdict.epsilon == pytest.approx(0.4375)
    assert list(verdict.parts) == ["topic", "topic/inner"]
    topic, inner = verdict.parts.values()
    assert (topic.share, topic.epsilon) == (0.5, pytest.approx(0.1875))
    assert topic.left == pytest.approx(0.625)
    assert inner.epsilon == pytest.approx(0.0625)
    assert inner.left == pytest.approx(0.75)


@pytest.mark.parametrize("accountant", ["best", "renyi", "gaussian", "concentrated", "advanced"])
def test_what_is_left_of_a_part_in_other_accounting_units(accountant: str) -> None:
    ledger = MemoryLedger()
    spent_in_parts(ledger, accountant)
    verdict = recomputed(ledger.entries())
    assert verdict.holds
    session = open_session(ledger, accountant, WIDE)
    part = session.part("topic", 0.5)
    assert verdict.parts["topic"].epsilon == part.epsilon
    keeps = session._account.totals((("topic", 0.5),)).unit.filter
    each = [
        left / (left + gone) if left + gone < 1e300 and left + gone > 0 else 0.0
        for left, gone in zip(part.remaining.costs, part.spent.costs, strict=True)
    ]
    assert 0 < verdict.parts["topic"].left < 1
    assert verdict.parts["topic"].left == pytest.approx(
        (min if keeps.needs_every_unit else max)(each), rel=1e-6
    )


def larger(entries: Entries) -> None:
    """A second spend that says more than the first has settled."""
    entries[3]["shares"][0] = 0.75


def larger_later(entries: Entries) -> None:
    for i in (1, 3):
        entries[i]["shares"] = [0.1, *entries[i]["shares"][1:]]


def dropped(entries: Entries) -> None:
    del entries[3]["shares"]


def shorter(entries: Entries) -> None:
    entries[3]["shares"] = entries[3]["shares"][1:]


def inner_larger(entries: Entries) -> None:
    entries[3]["shares"][1] = 0.6


def beyond(entries: Entries) -> None:
    for i in (1, 3):
        entries[i]["shares"][0] = 1.5


def no_number(entries: Entries) -> None:
    entries[3]["shares"][1] = True


def of_no_part(entries: Entries) -> None:
    entries[5]["shares"] = [0.5]


def moved(entries: Entries) -> None:
    """All in the inner part, which has room for 0.25 alone."""
    for i in (1, 5):
        entries[i]["part"], entries[i]["shares"] = "topic/inner", entries[3]["shares"]


FORGED: list[Callable[[Entries], None]] = [
    larger,
    larger_later,
    dropped,
    shorter,
    inner_larger,
    beyond,
    no_number,
    of_no_part,
    moved,
]


@pytest.mark.parametrize("forge", FORGED, ids=lambda f: f.__name__)
def test_a_part_that_did_not_keep_its_share_is_detected(forge: Callable[[Entries], None]) -> None:
    ledger = MemoryLedger()
    spent_in_parts(ledger)
    entries = copy.deepcopy(ledger.entries())
    forge(entries)
    verdict = recomputed(rechained(entries))
    assert not verdict.holds
    assert any("part" in reason or "share" in reason for reason in verdict.reasons)
    if forge not in (moved, larger_later):  # those contradict nothing: a session keeps the limit
        forged = MemoryLedger()
        for entry in entries:
            forged.spend(len(forged.entries()), lambda _, e=entry: e)
        with pytest.raises(LedgerError, match=r"share|part"):
            open_session(forged)


def test_the_command_line_shows_parts_and_what_is_left_in_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.db"
    create_ledger(path, BUDGET, "basic")
    spent_in_parts(path)
    assert main(["ledger", "show", str(path)]) == 0
    text = capsys.readouterr().out
    line = "part 'topic': 0.5 of the budget, epsilon 0.1875 at delta = 0, 62.4% of it left"
    assert line in text  # rounded outward
    assert "of 1 at delta = 0, 56.2% left" in text  # 1 - 0.125 - 0.0625 - 0.25 = 0.5625
    assert "topic/inner" in text.splitlines()[3]
    assert "not released" not in text
    assert main(["ledger", "show", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [step["part"] for step in document["steps"]] == ["topic", "topic/inner", ""]
    assert document["parts"]["topic"]["left"] == pytest.approx(0.625)
    assert main(["ledger", "verify", str(path)]) == 0
    assert "part 'topic'" in capsys.readouterr().out
    entries = SQLiteLedger(path).entries()
    moved(entries)
    export = tmp_path / "export.jsonl"
    export.write_text("\n".join(map(json.dumps, rechained(entries))))
    assert main(["verify", str(export)]) == FAILS
    assert "of the part 'topic/inner'" in capsys.readouterr().out


def test_a_certificate_is_of_one_reading() -> None:
    """Another session spends whenever this one looks: what the certificate says stays one state."""
    ledger = MemoryLedger()
    session, other = open_session(ledger), open_session(ledger)
    session.run(count(0.125))
    read = ledger.entries

    def busy(after: int = 0) -> Entries:
        result = read(after)
        ledger.entries = read  # type: ignore[method-assign]
        other.run(count(0.0625), again=True)
        ledger.entries = busy  # type: ignore[method-assign]
        return result

    ledger.entries = busy  # type: ignore[method-assign]
    paper = session.certificate()
    ledger.entries = read  # type: ignore[method-assign]
    assert dp.verify(paper).holds
    statement = paper.session
    assert statement.spent == (pytest.approx(0.125),)
    assert statement.odometer.epsilon == pytest.approx(0.125)
    assert (statement.ledger.head, statement.ledger.entries) == (read()[2]["hash"], 3)
    assert session.certificate().session.spent[0] > 0.125
