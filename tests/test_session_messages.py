"""Messages of a session's refusals and of its ledger: each says what to do."""

from __future__ import annotations

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


def open_session(ledger: Path | None = None) -> dp.Session:
    budget = dp.Budget(50.0, 1e-6)
    return dp.Session(budget=budget, accountant="renyi", ledger=ledger, people=ROWS)


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
    with open_session(where) as session:
        for i in range(many):
            session.run(PEOPLE.count().release(dp.Laplace(scale=50 + i)), name=f"called {i}.")
    assert main(["ledger", "show", str(where)]) == 0
    short = capsys.readouterr().out
    assert "... and 3 more (pass --all to see them)" in short
    assert main(["ledger", "show", "--all", str(where)]) == 0
    output = capsys.readouterr().out
    assert "more" not in output
    assert all(f"called {i}." in output for i in range(many))
