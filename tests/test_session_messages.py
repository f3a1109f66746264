"""Messages of a session's refusals and of its ledger: each says what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

import accountants
import adaptive_dp as dp
from accountants import InapplicableError
from adaptive_dp.cli.main import main
from adaptive_dp.graph.certificate import LIMIT
from adaptive_dp.graph.errors import DeclarationError

ROWS = {"x": [0.5] * 50}
PEOPLE = dp.dataset("people", columns={"x": (0, 1)})


@frozen
class Theirs(accountants.PrivacyLoss):
    """Of somebody's own."""

    theorem = "by hand"
    epsilon: float

    def pure(self) -> float:
        return self.epsilon


class Own(dp.Mechanism):
    """Noise whose loss no ledger can write."""

    width: float = dp.noise_parameter("w")
    theorem = "their own proof"

    def release(self, value: Any, stream: Any) -> Any:
        return value + stream.laplace(self.width, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return Theirs(distance / self.width)


def open_session(ledger: Path | None = None, *, create: bool = False) -> dp.Session:
    budget = dp.Budget(50.0, 1e-6)
    return dp.Session(budget=budget, accountant="renyi", ledger=ledger, create=create, people=ROWS)


def test_a_loss_that_no_ledger_can_write_is_refused_with_a_cure() -> None:
    with open_session() as session:
        with pytest.raises(DeclarationError, match=r"Theirs.*Pure"):
            session.run(PEOPLE.count().release(Own(width=5.0)))
        assert session.epsilon == 0
        session.run(PEOPLE.count().release(dp.Laplace(scale=5)))


@pytest.mark.parametrize("accountant", ["renyi", "gaussian", "concentrated"])
def test_a_session_s_plan_says_where_its_promise_is(accountant: str) -> None:
    with dp.Session(
        budget=dp.Budget(3.0, 1e-6), accountant=accountant, seed=1, people=ROWS
    ) as session:
        session.run(PEOPLE.count().release(dp.Gaussian(sigma=60)))
        with pytest.raises(InapplicableError, match=r"session\.certificate\(\)"):
            session.pipeline.certify()
        assert session.certificate().epsilon == 3.0


def test_a_long_ledger_says_how_to_see_all_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where, many = tmp_path / "ledger.db", LIMIT + 3
    with open_session(where, create=True) as session:
        for i in range(many):
            session.run(PEOPLE.count().release(dp.Laplace(scale=50 + i)), name=f"called {i}.")
    assert main(["ledger", "show", str(where)]) == 0
    short = capsys.readouterr().out
    assert "... and 3 more (pass --all to see them)" in short
    assert main(["ledger", "show", "--all", str(where)]) == 0
    output = capsys.readouterr().out
    assert "pass --all" not in output
    assert all(f"called {i}." in output for i in range(many))


# --- A delta for Gaussian noise ----------------------------------------------------------------


@pytest.mark.parametrize("accountant", ["best", "basic", "advanced", "renyi"])
def test_gaussian_noise_at_delta_0_says_that_it_needs_a_delta(accountant: str) -> None:
    fixed, free = (PEOPLE.count().release(dp.Gaussian(sigma=s)) for s in (9.0, dp.Free("s")))
    with dp.Session(budget=dp.Budget(1.0), accountant=accountant, people=ROWS) as session:
        for ask in (session.run, session.what_if):
            with pytest.raises(InapplicableError, match=r"needs one, as in Budget\(1\.0, 1e-6\)"):
                ask(fixed)
            with pytest.raises(InapplicableError, match=r"needs one, as in Budget\(1\.0, 1e-6\)"):
                ask(free, share=0.1)
        session.run(PEOPLE.count().release(dp.Laplace()), share=0.1)


@pytest.mark.parametrize("accountant", ["gaussian", "concentrated", "individual"])
def test_a_session_whose_sum_needs_a_delta_names_one(accountant: str) -> None:
    with pytest.raises(InapplicableError, match=r"needs a delta.*Budget\(1\.0, 1e-6\)"):
        dp.Session(budget=dp.Budget(1.0), accountant=accountant, people=ROWS)


def test_a_plan_of_gaussian_noise_at_delta_0_says_that_it_needs_a_delta() -> None:
    fixed, free = (
        dp.Pipeline(n=PEOPLE.count().release(dp.Gaussian(sigma=s))) for s in (9.0, dp.Free("s"))
    )
    with pytest.raises(dp.CalibrationError, match=r"'n' \(Gaussian\).*needs a delta.*delta=1e-6"):
        free.calibrate(epsilon=1.0)
    with pytest.raises(DeclarationError, match=r"'n' \(Gaussian\).*needs a delta.*with_delta"):
        fixed.run(people=ROWS)
    assert "Gaussian noise has no finite epsilon at delta 0" in str(fixed.certify())
    assert "no finite epsilon" not in str(fixed.certify(delta=1e-6))
    session = dp.Session(budget=dp.Budget(1.0, 1e-6), people=ROWS)
    with session, pytest.raises(dp.CalibrationError, match="needs a delta above 0"):
        session.run(free.outputs[0][1], epsilon=0.1, delta=0)


# --- Another declaration -----------------------------------------------------------------------

OTHERS = {
    "columns.x.bounds is [0.0, 1.0], now [0.0, 2.0]": {"columns": {"x": (0, 2)}},
    "columns.y is not declared, now {'bounds': [0.0, 1.0]}": {
        "columns": {"x": (0, 1), "y": (0, 1)}
    },
    "unit is not declared, now 'id'": {"unit": "id", "rows_per_unit": 2},
    "neighbors is 'add_remove', now 'replace_one'": {"neighbors": "replace_one", "size": 50},
}


@pytest.mark.parametrize("says", OTHERS)
@pytest.mark.parametrize("resumed", [False, True])
def test_another_declaration_names_the_field_and_both_values(
    says: str, resumed: bool, tmp_path: Path
) -> None:
    other = dp.dataset("people", **{"columns": {"x": (0, 1)}, **OTHERS[says]})
    where = tmp_path / "ledger.db"
    step = other.count().release(dp.Laplace(scale=5))
    with open_session(where, create=True) as session:
        session.run(PEOPLE.count().release(dp.Laplace(scale=5)))
        if not resumed:
            with pytest.raises(DeclarationError, match=re.escape(says)):
                session.run(step)
    if resumed:
        with open_session(where) as session, pytest.raises(DeclarationError, match=re.escape(says)):
            session.run(step)


def test_two_declarations_in_one_plan_name_the_field_and_both_values() -> None:
    other = dp.dataset("people", columns={"x": (0, 2)})
    n, m = (t.count().release(dp.Laplace(scale=5)) for t in (PEOPLE, other))
    with pytest.raises(DeclarationError, match=r"columns\.x\.bounds is \[0\.0, .*now \[0\.0, "):
        dp.Pipeline(n=n, m=m)


# --- Reports of plans --------------------------------------------------------------------------


def test_a_plan_alone_is_reported_at_its_own_delta() -> None:
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Gaussian(sigma=9)))
    for write in (dp.report, dp.markdown):
        with pytest.raises(DeclarationError, match=r"plan\.with_delta\(1e-6\)"):
            write(plan)
    stated = plan.with_delta(1e-6)
    assert dp.report(stated) == dp.report(stated.certify(), stated)
    assert dp.markdown(stated) == dp.markdown(stated.certify())
    with pytest.raises(DeclarationError, match="free"):
        dp.report(dp.Pipeline(n=PEOPLE.count().release(dp.Laplace())))
