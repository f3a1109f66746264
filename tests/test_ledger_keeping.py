"""Who keeps a ledger: made once, pinned by its head, raised, closed, followed, restored."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from shell import own_modules

import adaptive_dp as dp
from accountants import BudgetError
from adaptive_dp.cli import commands
from adaptive_dp.cli.main import main
from adaptive_dp.cli.output import FAILS, UNUSABLE
from adaptive_dp.graph.errors import DeclarationError, LedgerError
from adaptive_dp.session import Budget, Session, sqlite
from adaptive_dp.session.budget import FILTER_ACCOUNTANTS, Account
from adaptive_dp.session.entries import (
    FORMAT,
    GENESIS,
    chained,
    check_raised,
    costs_in,
    part_in,
)
from adaptive_dp.session.ledger import (
    MemoryLedger,
    close_ledger,
    create_ledger,
    migrate_ledger,
    open_ledger,
    raise_budget,
    restored,
)
from adaptive_dp.session.recompute import exported, imported, recomputed
from adaptive_dp.session.sqlite import SCHEMA, SQLiteLedger

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "region": ["A", "B"]})
ROWS = {"age": [30.0, 40.0, 50.0] * 10, "region": ["A", "B", "A"] * 10}
Entries = list[dict[str, Any]]


def session(path: Path, budget: float = 1.0, **more: Any) -> Session:
    return Session(budget=Budget(budget), accountant="basic", ledger=path, people=ROWS, **more)


def count(scale: float = 8.0) -> Any:
    return PEOPLE.count().release(dp.Laplace(scale=scale))


def entries_of(path: Path) -> Entries:
    ledger = open_ledger(path)
    try:
        return list(ledger.entries())
    finally:
        ledger.close()


def refused(call: Callable[[], object]) -> str:
    with pytest.raises((LedgerError, DeclarationError)) as caught:
        call()
    return str(caught.value)


# --- Made once, and only opened after that -----------------------------------------------------


def test_a_mistyped_a_deleted_and_an_emptied_ledger_are_refused_and_say_what_to_do(
    tmp_path: Path,
) -> None:
    path = tmp_path / "survey.db"
    with session(path, create=True) as one:
        one.run(count())
    missing = tmp_path / "survye.db"
    said = refused(lambda: session(missing))
    assert "survye.db" in said
    assert "ledger restore" in said
    assert "ledger create" in said
    assert not missing.exists()
    full = path.read_bytes()
    for content in (b"", full[:0]):
        path.write_bytes(content)
        assert "is empty" in refused(lambda: session(path))
        assert path.read_bytes() == b""
        # nor does making a new one take its place
        assert "already" in refused(lambda: session(path, create=True))
    path.write_bytes(full[: len(full) // 2])
    refused(lambda: session(path))
    path.write_bytes(full)
    other = sqlite3.connect(path)  # emptied by its owner, the triggers put back
    other.executescript("DROP TRIGGER kept; DELETE FROM entries; " + SCHEMA[2])
    other.close()
    assert "is empty" in refused(lambda: session(path))
    path.unlink()
    assert "there is no file" in refused(lambda: session(path))
    assert not path.exists()


def test_a_ledger_that_vanishes_under_a_session_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True) as one:
        path.unlink()
        refused(lambda: one.run(count()))
        assert not path.exists()


def test_a_new_ledger_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    head = create_ledger(path, Budget(1.0), "basic", user="Ada")
    before = path.read_bytes()
    for attempt in (
        lambda: create_ledger(path, Budget(9.0), "basic"),
        lambda: session(path, 9.0, create=True),
        lambda: open_ledger(path, create=True),
        lambda: restored(path, entries_of(path), reason="why not"),
    ):
        assert "already" in refused(attempt)
    assert path.read_bytes() == before
    assert entries_of(path)[-1]["hash"] == head
    (first,) = entries_of(path)
    assert (first["format"], first["user"], first["budget"]) == (FORMAT, "Ada", [1.0, 0.0, 0.0])


def test_arguments_that_do_not_go_together() -> None:
    for more in ({"create": True}, {"head": "0" * 64}):
        with pytest.raises(DeclarationError, match="ledger="):
            Session(budget=Budget(1.0), people=ROWS, **more)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="path or a URL"):
        Session(budget=Budget(1.0), ledger=MemoryLedger(), create=True)
    for user in ("", "  ", "a\nb", 7, "x" * 201):
        with pytest.raises(DeclarationError, match="user"):
            Session(budget=Budget(1.0), user=user)  # type: ignore[arg-type]


# --- The head ----------------------------------------------------------------------------------


def test_an_older_copy_and_another_ledger_are_found_by_the_head(tmp_path: Path) -> None:
    path, old = tmp_path / "a.db", tmp_path / "old.db"
    with session(path, create=True) as one:
        one.run(count())
        early = one.head
        shutil.copy(path, old)
        one.run(count(9.0))
        head = one.head
        assert head in str(one)
    assert one.head == head  # of a closed session too
    with session(path, head=head) as two:
        assert two.head == head
        two.run(count(10.0))
    session(path, head=head).close()  # what others have added since is no loss
    session(path, head=early).close()
    shutil.copy(old, path)  # put back: valid by itself
    session(path).close()
    said = refused(lambda: session(path, head=head))
    assert head in said
    assert "older copy" in said
    session(path, head=early).close()
    create_ledger(tmp_path / "b.db", Budget(1.0), "basic")
    refused(lambda: session(tmp_path / "b.db", head=early))
    for wrong in ("", head[:40], head.upper(), 7, b"x" * 64):
        assert "64" in refused(lambda wrong=wrong: session(path, head=wrong))


# --- A raised budget ---------------------------------------------------------------------------


def test_a_raised_budget_is_recorded_and_what_was_spent_stays_spent(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True) as one:
        value = one.run(count(), name="people")
        half = one.part("half", 0.5)
        half.run(count(4.0))
        with pytest.raises(BudgetError):
            half.run(count(3.0))
        raise_budget(path, Budget(2.0), reason="the second wave", user="Ada")
        # an open session goes on with no figure of the smaller budget
        for use in (lambda: one.run(count(9.0)), lambda: one.remaining, one.certificate):
            said = refused(use)
            assert "raised" in said
            assert "Ada: the second wave" in said
    assert "Budget" in refused(lambda: session(path)) or "raised" in refused(lambda: session(path))
    with session(path, 2.0) as two:
        assert two.run(count()) == value
        assert two.spent.costs == pytest.approx((0.375,))
        assert two.part("half", 0.5).remaining.costs == pytest.approx((0.75,))
        two.part("half", 0.5).run(count(2.0))
        assert "the second wave" in str(two)
        assert dp.verify(two.certificate()).holds
        assert two.certificate().epsilon == 2.0
    verdict = recomputed(entries_of(path))
    assert verdict.holds, verdict.reasons
    assert (verdict.budget, verdict.left) == (Budget(2.0), pytest.approx(1 - 0.875 / 2))
    assert any("the second wave" in note for note in verdict.notes)


def test_a_budget_is_never_lowered(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    create_ledger(path, Budget(1.0, 1e-6, 1e-7), "best")
    for budget in (
        Budget(1.0, 1e-6, 1e-7),
        Budget(0.9, 1e-6, 1e-7),
        Budget(2.0, 1e-7, 1e-7),
        Budget(2.0, 1e-6, 0.0),
        Budget(2.0, 1e-6, 2e-7),  # less delta is left beside the reserve
    ):
        said = refused(lambda budget=budget: raise_budget(path, budget, reason="x"))
        assert "raised" in said
    for reason in ("", " ", None):
        refused(lambda reason=reason: raise_budget(path, Budget(2.0, 1e-6, 1e-7), reason=reason))
    assert len(entries_of(path)) == 1
    own = tmp_path / "b.db"
    create_ledger(own, Budget(1.0, 1e-6), "individual")
    assert "individual" in refused(lambda: raise_budget(own, Budget(2.0, 1e-6), reason="x"))


@pytest.mark.parametrize("accountant", FILTER_ACCOUNTANTS)
def test_a_larger_budget_limits_no_sum_more(accountant: str) -> None:
    """What a raised budget rests on: every filter's limits rise with epsilon and with delta."""
    budgets = [Budget(1.0, 1e-6, 1e-7)]
    budgets += [Budget(e, d, f) for e in (1.0, 1.1, 7.0) for d, f in ((1e-6, 1e-7), (1e-5, 2e-7))]
    for less in budgets:
        for more in budgets:
            try:
                check_raised(less, more, accountant)
            except DeclarationError:
                continue
            one, two = (Account(b, accountant).unit.filter for b in (less, more))
            # an order of the second may be another one: only sums of the same meaning compare
            limits = dict(zip(two.accounting_units.names, two.budgets(), strict=True))
            for name, limit in zip(one.accounting_units.names, one.budgets(), strict=True):
                assert limits.get(name, limit) >= limit
            assert two.delta_reserve >= one.delta_reserve


def rechained(entries: Entries) -> Entries:
    """Forge every hash."""
    chain: Entries = []
    for entry in entries:
        own = {k: v for k, v in entry.items() if k not in ("hash", "number", "previous")}
        chain.append(chained(own, len(chain), chain[-1]["hash"] if chain else GENESIS))
    return chain


def test_forged_entries_of_a_keeper_do_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True) as one:
        one.run(count(2.0))
    raise_budget(path, Budget(2.0), reason="more")
    with session(path, 2.0) as two:
        two.run(count(1.0))
    close_ledger(path, reason="done")
    entries = entries_of(path)
    assert recomputed(entries).holds
    first, spend, release, raised, later, later_release, closed = entries
    for forged, says in {
        "lowered": ([first, spend, release, {**raised, "budget": [0.4, 0.0, 0.0]}], "raised"),
        "unraised": ([first, spend, release, later, later_release], "does not fit"),
        "late": ([*entries, {**spend, "name": "late"}], "closed"),
        "raised when closed": ([first, closed, raised], "closed"),
        "twice": ([first, closed, closed], "closed"),
        "migrated": ([first, {"kind": "format", "format": FORMAT}], "it goes from"),
        "another format": (
            [first, {"kind": "format", "format": "adaptive-dp/ledger/9"}],
            "it goes",
        ),
        "restored": ([first, {"kind": "restore", "entries": 9, "reason": "x"}], "9 entries"),
        "theorem": ([first, {**raised, "theorem": "magic"}], "theorem"),
        "second": ([first, {**first}], "only the first"),
        "kind": ([first, {"kind": "gift"}], "'gift'"),
        "nothing": ([first, {"kind": "budget"}], "cannot come here"),
    }.values():
        verdict = recomputed(rechained(forged))
        assert any(says in reason for reason in verdict.reasons), (says, verdict.reasons)


# --- Closed, and followed ----------------------------------------------------------------------


def test_a_closed_ledger_is_read_and_not_spent_from(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True) as one:
        value = one.run(count())
        close_ledger(path, reason="the survey is over", user="Ada")
        for use in (lambda: one.run(count(9.0)), lambda: one.run(count(), again=True)):
            assert "Ada: the survey is over" in refused(use)
        assert not one.what_if(count(9.0)).fits
    with session(path) as two:
        assert two.run(count()) == value
        refused(lambda: two.run(count(9.0)))
        assert "closed" in str(two)
    new = tmp_path / "b.db"  # one that is put back is as closed as it was
    restored(new, entries_of(path), reason="a trial")
    with session(new) as three:
        assert three.run(count()) == value
        assert "Ada: the survey is over" in refused(lambda: three.run(count(9.0)))
    assert recomputed(entries_of(new)).holds
    assert "closed" in refused(lambda: close_ledger(path, reason="again"))
    assert "closed" in refused(lambda: raise_budget(path, Budget(3.0), reason="x"))
    assert recomputed(entries_of(path)).holds


def test_a_step_that_was_paid_before_the_close_may_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.db"
    inner = Session._record
    with session(path, create=True) as one:
        monkeypatch.setattr(
            Session,
            "_record",
            lambda *given: (close_ledger(path, reason="now"), inner(*given))[1],  # type: ignore[func-returns-value]
        )
        one.run(count())
    assert [e["kind"] for e in entries_of(path)] == ["open", "spend", "close", "release"]
    assert recomputed(entries_of(path)).holds


def test_periods_add_up_and_each_closes_the_one_before(tmp_path: Path) -> None:
    paths = [tmp_path / f"{year}.db" for year in (2025, 2026, 2027)]
    create_ledger(paths[0], Budget(0.1, 1e-6), period="2025")
    for before, path in pairwise(paths):
        refused(partial(create_ledger, path, Budget(0.1, 1e-6), follows=before))  # of no period
        create_ledger(path, Budget(0.1, 1e-6), period=path.stem, follows=before)
        with pytest.raises(LedgerError, match="closed"):
            Session(budget=Budget(0.1, 1e-6), ledger=before, people=ROWS).run(count(100.0))
    verdict = recomputed(entries_of(paths[2]))
    assert verdict.holds
    assert [row[0] for row in verdict.before] == ["2025", "2026"]
    assert verdict.before[1][3] == entries_of(paths[1])[-1]["hash"]
    # rounded up: three times the float 0.1, exactly, is not less
    assert verdict.together is not None
    assert Fraction(verdict.together[0]) >= 3 * Fraction(0.1)
    assert verdict.together[0] == pytest.approx(0.3)
    assert verdict.together[1] == pytest.approx(3e-6)


def test_a_period_that_was_stopped_half_way_goes_on_and_has_no_second_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = tmp_path / "1.db", tmp_path / "2.db"
    create_ledger(old, Budget(1.0), "basic", period="1")
    create_ledger(tmp_path / "taken.db", Budget(1.0), "basic")
    # a place that is taken is refused before anything is closed
    refused(lambda: create_ledger(tmp_path / "taken.db", Budget(1.0), period="2", follows=old))
    assert len(entries_of(old)) == 1
    with monkeypatch.context() as patch:

        def stop(path: str) -> None:
            raise KeyboardInterrupt

        patch.setattr(sqlite, "_create_file", stop)
        with pytest.raises(KeyboardInterrupt):
            create_ledger(new, Budget(1.0), "basic", period="2", follows=old)
    assert entries_of(old)[-1]["kind"] == "close"
    # for another period it was not closed
    assert "'2'" in refused(lambda: create_ledger(new, Budget(1.0), period="3", follows=old))
    create_ledger(new, Budget(1.0), "basic", period="2", follows=old)
    assert "already" in refused(
        lambda: create_ledger(new, Budget(1.0), "basic", period="2", follows=old)
    )
    assert recomputed(entries_of(new)).together == (2.0, 0.0)


# --- Backup and restore ------------------------------------------------------------------------


def test_a_backup_is_restored_with_the_last_head_or_says_that_it_was_not(tmp_path: Path) -> None:
    path, file = tmp_path / "a.db", tmp_path / "a.jsonl"
    with session(path, create=True) as one:
        value = one.run(count(), name="first")
        assert main(["ledger", "backup", str(path), str(file)]) == 0
        early = one.head
        one.run(count(9.0), name="second")
        head = one.head
    backup = imported(file.read_text())
    assert backup is not None
    assert backup[-1]["hash"] == early
    assert oct(file.stat().st_mode)[-3:] == "600"
    new = tmp_path / "b.db"
    assert "older" in refused(lambda: restored(new, backup, head=head))
    assert "last hash" in refused(lambda: restored(new, backup))
    assert "last hash" in refused(lambda: restored(new, backup, head=early, reason="x"))
    assert not new.exists()
    full = entries_of(path)
    restored(new, full, head=head, user="Ada")
    with session(new, head=head) as two:
        assert two.run(count()) == value
        assert two.spent.costs == pytest.approx((1 / 8 + 1 / 9,))
        assert "NOT COUNTED" not in str(two)
    assert recomputed(entries_of(new)).holds
    assert entries_of(new)[: len(full)] == full
    lossy = tmp_path / "c.db"
    restored(lossy, backup, reason="the disk is gone", user="Ada")
    refused(lambda: session(lossy, head=head))
    with session(lossy) as three:
        assert three.spent.costs == pytest.approx((1 / 8,))
        assert "Ada: the disk is gone; WHAT WAS SPENT AFTER THE BACKUP IS NOT COUNTED" in str(three)
    verdict = recomputed(entries_of(lossy))
    assert verdict.holds
    assert "NOT COUNTED" in verdict.notes[0]


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: [],
        lambda e: e[1:],
        lambda e: [*e[:1], *e[2:]],
        lambda e: [e[0], {**e[1], "costs": []}, *e[2:]],
        lambda e: rechained([{"kind": "open"}]),
        lambda e: rechained([{**e[0], "format": "adaptive-dp/ledger/9"}, *e[1:]]),
        lambda e: ["text"],
    ],
)
def test_a_damaged_backup_makes_no_ledger(tmp_path: Path, damage: Callable[[Any], Any]) -> None:
    path, new = tmp_path / "a.db", tmp_path / "b.db"
    with session(path, create=True) as one:
        one.run(count())
    entries = damage(entries_of(path))
    refused(lambda: restored(new, entries, reason="a trial"))
    assert not new.exists()


def test_a_backup_of_a_damaged_ledger_is_refused_and_a_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, file = tmp_path / "a.db", tmp_path / "a.jsonl"
    session(path, create=True).close()
    file.write_text("the backup of yesterday")
    other = sqlite3.connect(path)
    other.executescript("DROP TRIGGER unchanged; UPDATE entries SET hash = 'x'")
    other.execute(SCHEMA[1])
    other.commit()
    other.close()
    assert main(["ledger", "backup", str(path), str(file)]) == UNUSABLE
    assert "entry 0" in capsys.readouterr().err
    assert file.read_text() == "the backup of yesterday"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.db", "a.jsonl"]


# --- Versions ----------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger that the version before wrote: two spends, one of them in a part."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript((Path(__file__).parent / "ledger_format_3.sql").read_text())
    connection.close()
    return path


def test_a_ledger_of_the_version_before_is_read_and_migrated(old: Path) -> None:
    people = dp.dataset("people", columns={"age": (0, 100)})
    step = people.count().release(dp.Laplace(scale=8))

    def opened(**more: Any) -> Session:
        return Session(
            budget=Budget(1.0), accountant="basic", ledger=old, people={"age": [1.0]}, **more
        )

    before = entries_of(old)
    assert recomputed(before).holds
    assert imported(json.dumps(exported(before))) == before
    content = old.read_bytes()
    assert "ledger migrate" in refused(opened)
    for use in (
        lambda: raise_budget(old, Budget(2.0), reason="x"),
        lambda: close_ledger(old, reason="x"),
    ):
        assert "migrate" in refused(use)
    assert old.read_bytes() == content
    head = migrate_ledger(old, user="Ada")
    assert "no migration" in refused(lambda: migrate_ledger(old))
    with opened(head=before[-1]["hash"], user="Ben") as session_:
        assert session_.head == head
        assert float(session_.run(step)) == 35.89665102958679  # as it was released
        assert session_.spent.costs == pytest.approx((0.375,))
        assert session_.part("ages", 0.5).remaining.costs == pytest.approx((0.25,))
        session_.run(step, again=True)
        assert dp.verify(session_.certificate()).holds
    after = entries_of(old)
    assert after[: len(before)] == before
    assert [e["kind"] for e in after[len(before) :]] == ["format", "spend", "release"]
    verdict = recomputed(after)
    assert verdict.holds, verdict.reasons
    raise_budget(old, Budget(2.0), reason="it is of this version now")
    assert recomputed(entries_of(old)).holds


def test_a_backup_of_the_version_before_is_restored_and_migrated(old: Path) -> None:
    new, entries = old.with_name("new.db"), entries_of(old)
    restored(new, entries, head=entries[-1]["hash"])
    migrate_ledger(new)
    verdict = recomputed(entries_of(new))
    assert verdict.holds, verdict.reasons
    assert verdict.epsilon == pytest.approx(0.375)


def test_a_ledger_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    session(path, create=True).close()
    later = rechained([{**entries_of(path)[0], "format": "adaptive-dp/ledger/9"}])
    new = tmp_path / "b.db"
    ledger = SQLiteLedger(new, create=True)
    ledger.restore(later, lambda _: {"kind": "note"})
    ledger.close()
    said = refused(lambda: session(new))
    assert "adaptive-dp/ledger/9" in said
    assert "or a later one" in said
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version=3")
    other.commit()
    other.close()
    assert "version 3" in refused(lambda: session(path))
    assert "version 3" in refused(lambda: migrate_ledger(path))


# --- Names, words and the command line ---------------------------------------------------------


def test_every_entry_names_who_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True, user="Ada") as one:
        one.run(count())
    with session(path, user="Ben") as two:
        two.run(count(9.0))
    with session(path) as three:
        three.run(count(10.0))
    users = [entry.get("user") for entry in entries_of(path)]
    assert users == ["Ada", "Ada", "Ada", "Ben", "Ben", None, None]
    assert main(["ledger", "show", str(path)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert "  user  " in table[0]
    assert " Ada " in table[2]
    assert " Ben " in table[3]


@pytest.mark.parametrize("accountant", FILTER_ACCOUNTANTS)
def test_the_words_keep_what_they_promise(accountant: str) -> None:
    """As many more steps as they say do fit: of counts, in parts of a partition, in a part."""
    noise = dp.Laplace(scale=30) if accountant == "basic" else dp.Gaussian(sigma=30)
    parts = [part for _, part in PEOPLE.partition("region")]
    plan = dp.Pipeline(n=PEOPLE.count().release(noise), a=parts[0].count().release(noise))
    steps = [PEOPLE.count().release(noise), parts[1].count().release(noise), plan]
    with Session(budget=Budget(1.0, 1e-6), accountant=accountant, people=ROWS, seed=1) as one:
        assert str(one.remaining) == "left 100%"
        inner = one.part("inner", 0.9)
        for i, step in enumerate(steps):
            inner.run(step, name=f"step number {i}")
            words = str(one.remaining)
            assert " inf " not in words
            assert f"like 'step number {i}' in the part 'inner'" in words
            more = int(words.split("at least ")[1].split()[0])
            assert more >= 1
            # the same costs, once more each: by the filter itself
            (_, costs, path) = one._last_step(())
            for _ in range(more):
                one._account.check(costs, path)
                one._account.add(costs, path)
            one._account = Account(one.budget, accountant)
            one._account.open_part((), "inner", 0.9)
            for entry in one._spends:
                one._account.add(costs_in(entry), part_in(entry))


def test_the_words_of_a_basic_budget_by_hand() -> None:
    with Session(budget=Budget(1.0), accountant="basic", people=ROWS, seed=1) as one:
        one.run(count(8.0), name="people")
        assert str(one.remaining) == "left 87.5%: at least 7 more steps like 'people'"
        assert one.remaining == one.what_if(count(8.0)).remaining
        one.run(count(4 / 3), name="large")  # 0.75 in floats, rounded up
        said = "left 12.4%: not enough for another step like 'large', and enough for a smaller one"
        assert str(one.remaining) == said
    with Session(budget=Budget(1.0), accountant="basic", people=ROWS, seed=1) as all_:
        all_.run(count(1.0))
        assert str(all_.remaining) == "left 0%: nothing more fits"
    with Session(budget=Budget(1.0, 1e-6), accountant="individual", people=ROWS, seed=1) as private:
        assert "private" in str(private.remaining)


PLAN = """
import adaptive_dp as dp

people = dp.dataset("people", columns={"age": (0, 100)})
plan = dp.Pipeline(n=people.count().release(dp.Laplace(%s)))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("plan.py").write_text(PLAN % "scale=4")
    Path("free.py").write_text(PLAN % "")
    Path("people.csv").write_text("age\n30\n40\n")
    return tmp_path


def ran(*arguments: str) -> int:
    with own_modules():
        return main(["run", *arguments, "--data", "people=people.csv"])


def test_run_spends_from_a_ledger_and_a_refusal_is_an_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on = ["--ledger", "survey.db", "--as", "Ada"]
    assert ran("plan.py", *on) == UNUSABLE
    assert not Path("survey.db").exists()
    create = ["ledger", "create", "survey.db", "--epsilon", "0.5", "--accountant", "basic"]
    assert main([*create, "--as", "keeper"]) == 0
    assert main([*create, "--as", "keeper"]) == UNUSABLE
    capsys.readouterr()
    assert ran("plan.py", *on, "--name", "people", "--certificate", "paper.json", "--json") == 0
    out, err = capsys.readouterr()
    first = json.loads(out)
    entries = entries_of(Path("survey.db"))
    assert [e.get("user") for e in entries] == ["keeper", "Ada", "Ada"]
    assert first["head"] == entries[-1]["hash"]
    assert first["head"] in err
    assert "left 50%: at least 1 more step like 'people'" in err
    assert main(["verify", "paper.json"]) == 0
    capsys.readouterr()
    # the same plan again: what is recorded, at no cost
    assert ran("plan.py", *on, "--head", first["head"], "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["values"] == first["values"]
    assert "cost nothing" in err
    assert len(entries_of(Path("survey.db"))) == len(entries)
    # free noise is solved for what the run may cost; then nothing more fits
    assert ran("free.py", *on) == UNUSABLE
    assert ran("plan.py", *on, "--epsilon", "0.1") == UNUSABLE
    assert ran("free.py", *on, "--epsilon", "0.2") == 0
    capsys.readouterr()
    before = entries_of(Path("survey.db"))
    assert ran("free.py", *on, "--epsilon", "0.3") == FAILS
    out, err = capsys.readouterr()
    assert out == ""
    assert "not enough of the budget is left" in err
    assert entries_of(Path("survey.db")) == before
    assert ran("plan.py", *on, "--head", "0" * 64) == UNUSABLE
    assert ran("plan.py", *on, "--simulate", "1") == UNUSABLE
    assert main(["ledger", "verify", "survey.db", "--head", first["head"]]) == 0


def test_run_without_a_ledger_says_that_nothing_is_accounted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ran("plan.py") == 0
    out, err = capsys.readouterr()
    assert "no ledger: what this run spends is recorded nowhere" in err
    assert "ledger" not in out
    assert ran("plan.py", "--simulate", "1") == 0
    assert "no ledger" not in capsys.readouterr().err
    for argument in (["--as", "Ada"], ["--head", "0" * 64], ["--name", "n"], ["--edition", "1"]):
        assert ran("plan.py", *argument) == UNUSABLE
        assert f"{argument[0]} is for a ledger" in capsys.readouterr().err


def test_what_run_prints_was_recorded_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed by an error while it prints: the values are in the ledger all the same."""
    create_ledger(Path("survey.db"), Budget(1.0), "basic")
    kinds: list[list[str]] = []

    def say(text: str) -> None:
        kinds.append([e["kind"] for e in entries_of(Path("survey.db"))])

    monkeypatch.setattr(commands, "say", say)
    assert ran("plan.py", "--ledger", "survey.db") == 0
    assert kinds == [["open", "spend", "release"]]
    capsys.readouterr()


def test_the_commands_of_a_keeper(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = ["ledger"]
    assert main([*ledger, "create", "a.db", "--epsilon", "1", "--period", "1", "--json"]) == 0
    head = json.loads(capsys.readouterr().out)["head"]
    assert ran("plan.py", "--ledger", "a.db", "--as", "Ada") == 0
    assert main([*ledger, "raise", "a.db", "--epsilon", "2", "--reason", "more"]) == 0
    assert main([*ledger, "raise", "a.db", "--epsilon", "1", "--reason", "less"]) == UNUSABLE
    assert main([*ledger, "backup", "a.db", "a.jsonl", "--json"]) == 0
    kept = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert kept["entries"] == 4
    assert main([*ledger, "restore", "a.jsonl", "b.db", "--head", kept["head"]]) == 0
    assert main([*ledger, "restore", "a.jsonl", "c.db"]) == UNUSABLE
    assert main([*ledger, "restore", "a.jsonl", "c.db", "--without-head", "a trial"]) == 0
    assert main([*ledger, "restore", "people.csv", "d.db", "--without-head", "x"]) == UNUSABLE
    follows = ["--period", "2", "--follows", "a.db"]
    assert main([*ledger, "create", "n.db", "--epsilon", "1", *follows]) == 0
    capsys.readouterr()
    assert main([*ledger, "verify", "n.db"]) == 0
    assert "epsilon 3 at delta = 0 to a person who is in all of them" in capsys.readouterr().out
    assert main([*ledger, "verify", "n.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["together"] == [3.0, 0.0]
    assert main([*ledger, "verify", "c.db", "--head", head]) == 0
    assert "WHAT WAS SPENT AFTER THE BACKUP IS NOT COUNTED" in capsys.readouterr().out
    assert main([*ledger, "close", "n.db", "--reason", "over"]) == 0
    assert main([*ledger, "migrate", "n.db"]) == UNUSABLE
    assert main([*ledger, "roles", "--schema", 'x"; DROP']) == UNUSABLE
    assert main([*ledger, "roles", "--owner", "one", "--readers", "one"]) == UNUSABLE


# --- Forks inside a step -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.parametrize("place", ["query", "noise", "function", "record"])
def test_a_child_that_is_forked_inside_a_step_releases_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """It would release a second draw for one payment."""
    path, children = tmp_path / "a.db", list[int]()

    def forked(*given: Any) -> None:
        if not children:
            pid = os.fork()
            children.append(pid)

    def plus(x: float) -> float:
        if place == "function":
            forked()
        return x + 1

    owner, name = {
        "query": (dp.data.memory.MemoryRows, "scan"),
        "noise": (dp.Laplace, "release"),
        "function": (Session, "_prepare"),
        "record": (Session, "_record"),
    }[place]
    inner = getattr(owner, name)

    def around(*given: Any, **more: Any) -> Any:
        if place != "function":
            forked()
        return inner(*given, **more)

    with session(path, create=True, user="Ada") as one:
        monkeypatch.setattr(owner, name, around)
        step = dp.post(plus, count())
        value, said = None, ""
        try:
            value = one.run(step)
        except LedgerError as error:
            said = str(error)
        if children == [0]:
            # exit code 7: refused, and by what it should be
            os._exit(7 if value is None and "forked while a step" in said else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7
        assert value is not None
        # the child may go on with steps of its own on the ledger, and the parent with its own
        one.run(count(9.0))
    kinds = [e["kind"] for e in entries_of(path)]
    assert kinds == ["open", "spend", "release", "spend", "release"]
    assert recomputed(entries_of(path)).holds


def test_a_spend_releases_once_whoever_asks(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with session(path, create=True) as one:
        inner = Session._record

        def twice(self: Session, step: Any) -> None:
            inner(self, step)
            inner(self, step)

        Session._record = twice  # type: ignore[method-assign]
        try:
            with pytest.raises(LedgerError, match="released already"):
                one.run(count())
        finally:
            Session._record = inner  # type: ignore[method-assign]
    assert [e["kind"] for e in entries_of(path)] == ["open", "spend", "release"]
