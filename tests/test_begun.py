"""A session's step that was interrupted goes on at no cost, unless what was under way is random."""

from __future__ import annotations

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.rows import MemoryRows
from adaptive_dp.session.opened import opened

PEOPLE = dp.dataset("people", columns={"x": (0, 1), "c": ["a", "b"]})
ROWS = {"x": np.linspace(0, 1, 40), "c": ["a", "b"] * 20}
COUNT = PEOPLE.count().release(dp.Laplace(scale=4.0))
BUDGET = dp.Budget(2.0, 1e-6)


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
    ledger = opened(path, create=False)
    found = [entry["kind"] for entry in ledger.entries()]
    ledger.close()
    return found[1:]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_an_interrupted_pass_is_paid_for_once(tmp_path, broken, error):
    broken(MemoryRows, "total", {0, 1}, error)
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as session:
        for _ in range(2):
            with pytest.raises((KeyboardInterrupt, dp.RunError)):
                session.run(COUNT)
            spent = session.spent.costs
            assert kinds(path) == ["spend"]
            forecast = session.what_if(COUNT)
            assert forecast.fits and forecast.known and not any(forecast.cost.costs)
        value = session.run(COUNT)
        assert kinds(path) == ["spend", "release"]
        assert session.spent.costs == spent
        assert session.run(COUNT) == value
        assert kinds(path) == ["spend", "release"]


def test_the_value_is_that_of_a_step_that_was_not_interrupted(broken):
    with dp.Session(budget=BUDGET, seed=5, people=ROWS) as session:
        expected = session.run(COUNT)
    broken(MemoryRows, "total", {0})
    with dp.Session(budget=BUDGET, seed=5, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        assert session.run(COUNT) == expected


def test_what_was_drawn_is_not_drawn_again(tmp_path, broken):
    """Neither a first release, when the second's pass is interrupted, nor a sample."""
    both = dp.post(
        lambda n, s: (n, s),
        COUNT,
        PEOPLE.sample(0.5)["x"].sum().release(dp.Laplace(scale=9.0)),
    )
    passes = broken(MemoryRows, "total", {1})
    drawn = broken(dp.Laplace, "release", set())
    samples = broken(MemoryRows, "sample", set())
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(both)
        assert (len(passes), len(drawn), len(samples)) == (2, 1, 1)
        session.run(both)
        assert (len(passes), len(drawn), len(samples)) == (3, 2, 1)
    assert kinds(path) == ["spend", "release"]


def loop():
    def step(state):
        return dp.post(lambda s, n: s + n, state, PEOPLE.count().release(dp.Laplace(scale=50.0)))

    return dp.repeat(step, 3, start=0.0)


@pytest.mark.parametrize(
    ("handle", "owner", "name", "at"),
    [
        (COUNT, dp.Laplace, "release", 0),
        (PEOPLE.sample(0.5).count().release(dp.Laplace(scale=4.0)), MemoryRows, "sample", 0),
        (loop(), MemoryRows, "total", 2),
    ],
)
def test_what_is_random_is_paid_for_again(tmp_path, broken, handle, owner, name, at):
    """Or a mechanism that fails until its noise suits would be released more often than paid."""
    broken(owner, name, {at}, ValueError)
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as session:
        with pytest.raises(dp.RunError):
            session.run(handle)
        once = session.spent.costs
        session.run(handle)
        assert np.allclose(session.spent.costs, 2 * np.array(once))
    assert kinds(path) == ["spend", "spend", "release"]


def test_only_the_same_request_goes_on(tmp_path, broken):
    """Not one with other noise, in another part, once more, or in another session."""
    broken(MemoryRows, "total", {0})
    path = tmp_path / "l.db"
    with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        session.run(PEOPLE.count().release(dp.Laplace(scale=5.0)))
        session.run(COUNT, again=True)
        with dp.Session(budget=BUDGET, ledger=path, people=ROWS) as other:
            other.part("b", 0.9).run(PEOPLE["x"].sum().release(dp.Laplace(scale=4.0)))
        assert kinds(path).count("spend") == 4
        assert len([entry for entry in kinds(path) if entry == "release"]) == 3


def test_a_closed_session_keeps_nothing(broken):
    broken(MemoryRows, "total", {0})
    with dp.Session(budget=BUDGET, people=ROWS) as session:
        with pytest.raises(KeyboardInterrupt):
            session.run(COUNT)
        assert len(session._begun._steps) == 1
    assert not session._begun._steps
