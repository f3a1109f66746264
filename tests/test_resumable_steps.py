"""An interrupted step of a session resumes at no cost, unless the interrupted part is random."""

from __future__ import annotations

import os
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adaptive_dp as dp
from adaptive_dp.data import MemoryRows
from adaptive_dp.data.engine import Checkpoint, Task, resuming
from adaptive_dp.data.examples import Examples
from adaptive_dp.queries.examples import Phases
from adaptive_dp.session.ledger import open_ledger

PEOPLE = dp.dataset("people", columns={"x": (0, 1), "c": ["a", "b"]})
ROWS = {"x": np.linspace(0, 1, 40), "c": ["a", "b"] * 20}
COUNT = PEOPLE.count().release(dp.Laplace(scale=4.0))
BUDGET = dp.Budget(2.0, 1e-6)


class Broken(dp.Laplace):
    """A mechanism that fails."""

    def release(self, value, stream):
        raise ValueError


@pytest.fixture
def broken(monkeypatch):
    """Return what makes calls of a method fail, by numbers from 0; it lists all calls."""

    def breaks(owner, name, at, error=KeyboardInterrupt):
        calls, method = [], getattr(owner, name)

        def called(self, *given):
            calls.append(1)
            if len(calls) - 1 in at:
                raise error
            return method(self, *given)

        monkeypatch.setattr(owner, name, called)
        return calls

    return breaks


def kinds(path):
    ledger = open_ledger(path)
    recorded = [entry["kind"] for entry in ledger.entries()]
    ledger.close()
    return recorded[1:]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_an_interrupted_pass_is_paid_for_once(tmp_path, broken, error):
    broken(MemoryRows, "scan", {0, 1}, error)
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, create=True, people=ROWS) as session:
        for _ in range(2):
            with pytest.raises((KeyboardInterrupt, dp.RunError)):
                session.run(COUNT)
            spent = session.spent.costs
            assert kinds(path) == ["spend"]
            forecast = session.what_if(COUNT)
            assert forecast.fits
            assert forecast.already_paid
            assert not any(forecast.cost.costs)
        value = session.run(COUNT)
        assert kinds(path) == ["spend", "release"]
        assert session.spent.costs == spent
        assert session.run(COUNT) == value
        assert kinds(path) == ["spend", "release"]


def test_the_value_is_that_of_a_step_that_was_not_interrupted(broken):
    with dp.Session(budget=BUDGET, seed=5, people=ROWS) as session:
        expected = session.run(COUNT)
    broken(MemoryRows, "scan", {0})
    with dp.Session(budget=BUDGET, seed=5, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        assert session.run(COUNT) == expected


def test_what_was_drawn_is_not_drawn_again(tmp_path, broken):
    """Neither a first release, when the second's pass is interrupted, nor a sample."""
    some = PEOPLE.filter(PEOPLE["x"] <= COUNT).sample(0.5)  # a second pass, after the first release
    both = dp.post(lambda n, s: (n, s), COUNT, some["x"].sum().release(dp.Laplace(scale=9.0)))
    passes = broken(MemoryRows, "scan", {1})
    drawn = broken(dp.Laplace, "release", set())
    samples = broken(MemoryRows, "sample", set())
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, create=True, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(both)
        assert (len(passes), len(drawn), len(samples)) == (2, 1, 1)
        session.run(both)
        assert (len(passes), len(drawn), len(samples)) == (3, 2, 1)
    assert kinds(path) == ["spend", "release"]


def parts_of(tmp_path):
    for i in range(8):
        (tmp_path / f"{i}.csv").write_text("x,c\n" + f"{i / 8},a\n" * 5)
    return dp.Files(f"{tmp_path}/*.csv")


def test_finished_parts_are_not_read_again(tmp_path, broken):
    """Whatever was interrupted, and however often: each part counts once."""
    handle = PEOPLE["x"].sum().release(dp.Laplace(scale=1.0))
    with dp.Session(budget=BUDGET, seed=1, people=parts_of(tmp_path)) as session:
        expected = session.run(handle)
    read = broken(Task, "__call__", {3, 7}, KeyboardInterrupt)
    with dp.Session(budget=BUDGET, seed=1, people=parts_of(tmp_path)) as session:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                session.run(handle)
        assert session.run(handle) == expected
    assert len(read) <= 8 + 2 * (2 + len(os.sched_getaffinity(0)))


ONE = lambda c: np.array([len(c["x"])], dtype=np.int64)  # noqa: E731


def test_only_the_first_pass_goes_on(tmp_path, broken):
    """A later one may not be the same: what earlier ones have left is there now."""
    rows = parts_of(tmp_path).open_rows({"x": "number"}, None)
    totals = {}

    def times(k):
        if k not in totals:  # the same function for each k, on the same rows
            totals[k] = rows.total(lambda c: np.array([k * len(c["x"])], dtype=np.int64)).tolist()

    attempt = Checkpoint()
    broken(Task, "__call__", {8 + 4}, KeyboardInterrupt)
    for stops in (True, False):
        with resuming(attempt), pytest.raises(KeyboardInterrupt) if stops else nullcontext():
            times(1)
            times(2)
    assert totals == {1: [40], 2: [80]}


def test_a_stored_block_is_not_used_for_another_pass(tmp_path, broken):
    rows = parts_of(tmp_path).open_rows({"x": "number"}, None)
    broken(Task, "__call__", {4}, KeyboardInterrupt)
    attempt = Checkpoint()
    with resuming(attempt), pytest.raises(KeyboardInterrupt):
        rows.total(ONE)
    with resuming(attempt):
        assert rows.where(lambda c: c["x"] > 0.5).total(ONE).tolist() == [15]
    assert rows.total(ONE).tolist() == [40]


def test_progress_is_shown_to_who_asks_for_it(tmp_path, capsys):
    rows = parts_of(tmp_path).open_rows({"x": "number"}, None)
    rows.total(ONE)
    assert capsys.readouterr() == ("", "")
    shown = dp.Files(f"{tmp_path}/*.csv", progress=True).open_rows({"x": "number"}, None)
    shown.total(ONE)
    progress = "".join(f"\rparts read: {i} of 8" for i in range(9)) + "\n"
    assert capsys.readouterr() == ("", progress)


def test_rows_are_shown_where_files_say_how_many_they_have(tmp_path, capsys):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.linspace(0, 1, 2500)}), path, row_group_size=1000)
    dp.Files(path, "threads", progress=True).open_rows({"x": "number"}, None).total(ONE)
    progress = (
        "".join(f"\rrows read: {n} of 2,500" for n in ("0", "1,000", "2,000", "2,500")) + "\n"
    )
    assert capsys.readouterr() == ("", progress)
    # as parts, where one of the files does not say it
    (tmp_path / "u.csv").write_text("x\n0.5\n")
    both = dp.Files([path, tmp_path / "u.csv"], "threads", progress=True)
    both.open_rows({"x": "number"}, None).total(ONE)
    assert "parts read: 4 of 4" in capsys.readouterr().err


def loop():
    def step(state, people):
        return dp.post(lambda s, n: s + n, state, people.count().release(dp.Laplace(scale=50.0)))

    return dp.repeat(step, 3, PEOPLE, start=0.0)


@pytest.mark.parametrize(
    ("handle", "owner", "name", "at"),
    [
        (COUNT, dp.Laplace, "release", 0),
        (PEOPLE.sample(0.5).count().release(dp.Laplace(scale=4.0)), MemoryRows, "sample", 0),
        (loop(), MemoryRows, "scan", 2),
    ],
)
def test_what_is_random_is_paid_for_again(tmp_path, broken, handle, owner, name, at):
    """Or a mechanism that fails until its noise suits would be released more often than paid."""
    broken(owner, name, {at}, ValueError)
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, create=True, people=ROWS) as session:
        with pytest.raises(dp.RunError):
            session.run(handle)
        once = session.spent.costs
        session.run(handle)
        assert np.allclose(session.spent.costs, 2 * np.array(once))
    assert kinds(path) == ["spend", "spend", "release"]


def test_only_the_same_request_goes_on(tmp_path, broken):
    """Not one with other noise, in another part, once more, or in another session."""
    broken(MemoryRows, "scan", {0})
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, create=True, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        session.run(PEOPLE.count().release(dp.Laplace(scale=5.0)))
        session.run(COUNT, again=True)
        with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as other:
            other.part("b", 0.9).run(PEOPLE["x"].sum().release(dp.Laplace(scale=4.0)))
        assert kinds(path).count("spend") == 4
        assert len([entry for entry in kinds(path) if entry == "release"]) == 3


def test_a_closed_session_keeps_nothing(broken):
    broken(MemoryRows, "scan", {0})
    with dp.Session(budget=BUDGET, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        assert len(session._interrupted) == 1
    assert not session._interrupted


def slope(part):
    return part.gradients(dp.Logistic(), at=dp.public([0.0, 0.0])).sum(clip=1.0)


@pytest.fixture
def drawn(broken):
    """Return what lists how often random parts were drawn, and the parts of a data set."""
    return broken(Phases, "run", set()), PEOPLE.examples(["x"], "c", norm=1.0).phases([0.5, 0.5])


def add(a, b):
    return np.sum(a) + np.sum(b)


@pytest.mark.parametrize("at", [0, 1])
def test_random_parts_are_one_draw_for_all_steps(broken, drawn, at):
    """Whichever was interrupted: in `Session.pipeline` they are one node."""
    calls, parts = drawn
    noise = dp.Gaussian(9.0)
    owner, name = (MemoryRows, "scan") if at == 0 else (Examples, "total")
    one = dp.post(add, COUNT, slope(parts[0]).release(noise))
    broken(owner, name, {0})
    with dp.Session(budget=dp.Budget(9.0, 1e-6), people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(one)
        session.run(slope(parts[1]).release(noise))
        session.run(one)
        assert len(calls) == 1


def test_random_parts_last_though_a_step_is_lost(drawn):
    """Its functions may have revealed what it has computed of them."""
    calls, parts = drawn
    seen = []

    def tells(value):
        seen.append(value)
        return float(np.sum(value))

    level = dp.post(tells, slope(parts[0]).release(dp.Gaussian(9.0)))
    limit = dp.post(lambda v: 0 * v + 0.5, level)
    lost = PEOPLE.filter(PEOPLE["x"] > limit).count().release(Broken(scale=9.0))
    with dp.Session(budget=dp.Budget(9.0, 1e-6), people=ROWS) as session:
        with pytest.raises(dp.RunError):
            session.run(lost)
        assert len(seen) == 1
        session.run(slope(parts[1]).release(dp.Gaussian(9.0)))
        assert len(calls) == 1


def test_a_function_starts_no_step_in_its_session(drawn):
    _, parts = drawn
    noise, refused = dp.Gaussian(9.0), []

    def runs(value):
        try:
            session.run(slope(parts[1]).release(noise))
        except dp.DeclarationError as error:
            refused.append(str(error))
        return float(np.sum(value))

    with dp.Session(budget=dp.Budget(9.0, 1e-6), people=ROWS) as session:
        session.run(dp.post(runs, slope(parts[0]).release(noise)))
        assert len(refused) == 1
        assert "being computed" in refused[0]
        session.run(slope(parts[1]).release(noise))
