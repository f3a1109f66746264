"""Sparse vector online: the law of adaptive runs, what they cost, and what a crash leaves.

Laws are integrals over the threshold's noise, for strategies that choose each question by the
answers before it.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from streams import Quick

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.errors import RunError
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.mechanisms.sparse_vector import (
    Questions,
    SparseVectorAnswer,
    SparseVectorRun,
    online_answer,
)
from adaptive_dp.session.recompute import recomputed

PEOPLE = dp.dataset("people", columns={"age": (0, 100), "town": ["A", "B"]})
ROWS = {"age": [float(i % 70) for i in range(700)], "town": ["A", "B"] * 350}

# A question: the number (which of the data set's), the threshold, and what it is compared around.
Question = tuple[int, float, float | None]
Strategy = Callable[[tuple[int, ...]], Question | None]


def chances(values: Any, ask: Strategy, bar: Any, noise: Any, count: int) -> dict[Any, float]:
    """The chance of each transcript of a strategy, by an integral over the threshold's noise."""
    # a step that divides 1, so that moving the threshold by 1 moves the grid onto itself
    rho = np.arange(-1500, 1501) / 16
    weight = bar.pdf(rho)
    weight = weight / weight.sum()
    law: dict[Any, float] = {}

    def follow(answers: tuple[int, ...], chance: Any) -> None:
        question = ask(answers) if sum(answers) < count else None
        if question is None:
            law[answers] = float(chance.sum())
            return
        which, threshold, around = question
        value = values[which] if around is None else abs(values[which] - around)
        above = noise.sf(threshold + rho - value)
        follow((*answers, 1), chance * above)
        follow((*answers, 0), chance * (1 - above))

    follow((), weight)
    assert sum(law.values()) == pytest.approx(1, abs=1e-6)
    return law


def branching(answers: tuple[int, ...]) -> Question | None:
    """Another number, another threshold and another form after each answer."""
    if len(answers) == 3:
        return None
    code = sum(a << i for i, a in enumerate(answers))
    which = (len(answers) + code) % 3
    return which, [0.0, 1.5, -1.0][code % 3], [None, None, 0.5][(code + len(answers)) % 3]


def rising(answers: tuple[int, ...]) -> Question | None:
    question = branching(answers)
    return question and (*question[:2], None)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("monotone", [False, True])
def test_no_adaptive_strategy_exceeds_the_loss(monotone: bool, count: int) -> None:
    run = SparseVectorRun(scale=2.5, threshold=0.0, count=count, monotone=monotone)
    epsilon = run.loss(1.0, 1.0 if monotone else 2.0).pure()
    bar, noise = stats.laplace(scale=2.5), stats.laplace(scale=run.query_scale())
    moves = [(0.0, 1.0)] if monotone else [(-1.0, 0.0, 1.0)]
    worst = 0.0
    for values in ((0.0, 0.0, 0.0), (12.0, -12.0, 30.0), (-1.0, 2.0, 0.5)):
        ask = rising if monotone else branching
        p = chances(values, ask, bar, noise, count)
        for move in itertools.product(*moves, repeat=3):
            q = chances(np.add(values, move), ask, bar, noise, count)
            assert p.keys() == q.keys()
            worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p))
    assert 0.3 * epsilon < worst <= epsilon + 1e-6


def test_releases_in_between_add_up() -> None:
    """A bit by randomized response is released between two questions, and chooses the second.

    Both together are within the sum, for all outcomes, as the run's proof says; and both matter.
    """
    run = SparseVectorRun(scale=2.0, threshold=0.0)
    epsilon, response = run.loss(1.0, 2.0).pure(), 0.7
    bar, noise = stats.laplace(scale=2.0), stats.laplace(scale=run.query_scale())
    right = 1 / (1 + math.exp(-response))
    worst = alone = 0.0
    for values in ((-1.0, 0.0, 0.0), (-9.0, 20.0, -20.0), (-3.0, 8.0, -1.0)):
        for move in itertools.product((-1.0, 0.0, 1.0), repeat=3):
            laws = []
            for numbers, bit in ((values, 0), (np.add(values, move), 1)):
                law = {}
                for said in (0, 1):
                    second = 1 + said  # the released bit chooses the second question

                    def ask(answers: tuple[int, ...], second: int = second) -> Question | None:
                        return None if len(answers) == 2 else ([0, second][len(answers)], 0.0, None)

                    chance = right if said == bit else 1 - right
                    for answers, own in chances(numbers, ask, bar, noise, 1).items():
                        law[answers, said] = own * chance
                laws.append(law)
            p, q = laws
            worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p))
            alone = max(alone, *(abs(math.log(p[k] / q[k])) - response for k in p))
    assert worst <= epsilon + response + 1e-6
    assert alone > 0.4 * epsilon


@pytest.mark.parametrize("sign", [1, -1])
def test_one_who_draws_a_bit_can_answer_for_the_run(sign: int) -> None:
    """The proof's two laws are laws: not negative, and the same prefix by prefix."""
    run = SparseVectorRun(scale=1.5, threshold=0.0, count=2)
    growth = math.exp(run.loss(1.0, 2.0).pure())
    bar, noise = stats.laplace(scale=1.5), stats.laplace(scale=run.query_scale())
    values = np.array([0.5, -0.5, 1.0])
    p = chances(values, branching, bar, noise, 2)
    q = chances(values + sign * np.array([1.0, -1.0, 1.0]), branching, bar, noise, 2)
    for one, other in ((p, q), (q, p)):
        law = {k: (growth * one[k] - other[k]) / (growth - 1) for k in one}
        assert min(law.values()) >= -1e-6
        assert sum(law.values()) == pytest.approx(1, abs=1e-5)


def test_answers_have_the_law() -> None:
    run = SparseVectorRun(scale=2.0, threshold=0.0, count=2)
    bar, noise = stats.laplace(scale=2.0), stats.laplace(scale=run.query_scale())
    values, stream = (1.0, 2.5, -0.5), Quick(5)
    seen: Counter[tuple[int, ...]] = Counter()
    for _ in range(6_000):
        state, answers = run.begin(stream), ()
        while sum(answers) < 2 and (question := branching(answers)) is not None:
            which, threshold, around = question
            above = state.ask(values[which], threshold=threshold, around=around)
            answers = (*answers, int(above is True))
        seen[answers] += 1
    law = chances(values, branching, bar, noise, 2)
    other = chances(values, branching, bar, stats.laplace(scale=run.query_scale() / 2), 2)
    assert set(seen) <= set(law)

    def pvalue(expected: dict[Any, float]) -> float:
        rates = np.array([expected[k] for k in law])
        counts = np.array([seen[k] for k in law])
        return float(stats.chisquare(counts, rates / rates.sum() * counts.sum()).pvalue)

    assert pvalue(law) > 1e-7 > pvalue(other)


# --- In a session ------------------------------------------------------------------------------


def older(age: float) -> Any:
    return PEOPLE.filter(PEOPLE["age"] >= age).count()


def paid(session: dp.Session) -> int:
    return paid_in(session._ledger.entries())


def test_only_tops_are_paid_for() -> None:
    budget = dp.Budget(1.0)
    with dp.Session(budget=budget, accountant="basic", seed=3, people=ROWS) as session:
        svt = session.above_threshold(300, tops=3, share=0.6, monotone=True)
        assert session.spent.costs[0] == 0
        assert not any(svt.ask(older(age)) for age in range(69, 55, -1))
        assert session.spent.costs[0] == pytest.approx(0.2, rel=1e-6)
        assert svt.ask(older(10))
        assert session.spent.costs[0] == pytest.approx(0.2, rel=1e-6)  # the next is not begun
        assert not svt.ask(older(66))
        assert session.spent.costs[0] == pytest.approx(0.4, rel=1e-6)
        assert svt.ask(older(0))
        assert svt.ask(older(1))
        assert svt.tops == 0
        assert svt.ask(older(2)) is None
        assert session.spent.costs[0] == pytest.approx(0.6, rel=1e-6)
        again = session.run(older(50).release(dp.Laplace(scale=5)))
        assert again > 0
        check = session.certificate()
        assert dp.verify(check).holds
        assert [row.theorem for row in check.nodes].count(SparseVectorAnswer.theorem) == 18


@pytest.mark.slow
def test_an_audit_of_the_steps_finds_no_more_than_they_cost() -> None:
    with dp.Session(budget=dp.Budget(1.0), seed=3, people=ROWS) as session:
        svt = session.above_threshold(1, tops=2, scale=5.0, monotone=True)
        for age in (69, 68, 1, 2):
            svt.ask(older(age))
        assert session.audit(samples=4_000, seed=1).verdict != "violation"


def test_all_tops_together_are_one_spend() -> None:
    with dp.Session(budget=dp.Budget(1.0), seed=3, people=ROWS) as session:
        with session.above_threshold(300, tops=3, share=0.6, monotone=True, together=True) as svt:
            assert [svt.ask(older(age)) for age in (69, 1, 2, 3, 4)] == [
                False,
                True,
                True,
                True,
                None,
            ]
        assert paid(session) == 1
        assert session.spent.costs[0] == pytest.approx(0.6, rel=1e-6)
        with pytest.raises(dp.DeclarationError, match="closed"):
            svt.ask(older(3))


@pytest.mark.parametrize("accountant", ["gaussian", "renyi", "concentrated", "advanced", "best"])
def test_every_filter_has_a_cost(accountant: str) -> None:
    budget = dp.Budget(1.0, 1e-6)
    with dp.Session(budget=budget, accountant=accountant, seed=3, people=ROWS) as session:
        svt = session.above_threshold(300, tops=10, share=0.5, monotone=True)
        tops = [svt.ask(older(5)), *(svt.ask(older(age)) for age in (6, 7, 8, 69))]
        assert tops == [True] * 4 + [False]
        assert 0 < session.epsilon <= 1
        assert dp.verify(session.certificate()).holds


def test_costs_follow_the_relation_and_the_unit() -> None:
    def epsilon(monotone: bool, **declared: Any) -> float:
        table = dp.dataset("people", columns={"age": (0, 100)}, **declared)
        rows = {"age": [1.0, 2.0], "id": [1, 2]}
        with dp.Session(budget=dp.Budget(1e3), accountant="basic", seed=1, people=rows) as session:
            session.above_threshold(0, scale=1.0, monotone=monotone).ask(table.count())
            return session.spent.costs[0]

    root = 2 ** (1 / 3)
    # monotone noise on each value is b, else b 2^(1/3); the spans are 1 and 2
    assert epsilon(True) == pytest.approx(1 + 1)
    assert epsilon(False) == pytest.approx(1 + 2 / root)
    filtered = {"neighbors": "replace_one"}  # a filter may count either row: here all count, fixed
    assert epsilon(True, unit="id", rows_per_unit=3) == pytest.approx(3 + 3)
    assert epsilon(False, neighbors="zero_out") == pytest.approx(1 + 2 / root)
    table = dp.dataset("people", columns={"age": (0, 100)}, **filtered)
    with dp.Session(budget=dp.Budget(9.0), accountant="basic", seed=1, people=ROWS) as session:
        svt = session.above_threshold(0, scale=1.0, monotone=True)
        svt.ask(table.filter(table["age"] > 5).count())
        # exchanged: one count may rise and another fall, whatever `monotone` says
        assert session.spent.costs[0] == pytest.approx(1 + 2)


def test_what_a_run_has_not_paid_for_is_refused() -> None:
    other = dp.dataset("others", columns={"age": (0, 100)})
    with dp.Session(budget=dp.Budget(1.0), seed=1, people=ROWS, others=ROWS) as session:
        svt = session.above_threshold(300, tops=2, share=0.6, monotone=True)
        assert svt.ask(older(3)) is True
        spent = session.spent
        with pytest.raises(dp.DeclarationError, match=r"may move this number by 100\.0"):
            svt.ask(PEOPLE["age"].sum())
        with pytest.raises(dp.DeclarationError, match="not several"):
            svt.ask(PEOPLE["town"].histogram())
        with pytest.raises(dp.DeclarationError, match="a sample"):
            svt.ask(PEOPLE.sample(0.5).count())
        with pytest.raises(dp.DeclarationError, match="monotone=False"):
            svt.ask(older(3), around=2.0)
        with pytest.raises(dp.DeclarationError, match="a query"):
            svt.ask(older(3).release(dp.Laplace(scale=1)))  # type: ignore[arg-type]
        svt.ask(older(69))
        with pytest.raises(dp.DeclarationError, match="one data set"):
            svt.ask(other.count())
        falls = dp.dataset("people", columns={"age": (-1, 1)})
        assert not falls["age"].sum().operation.rises(None)
        assert session.spent.costs[0] == pytest.approx(2 * spent.costs[0])
        with pytest.raises(dp.BudgetError):
            session.above_threshold(3, scale=0.1).ask(older(3))
        for bad in ({"tops": 0}, {"share": None}, {"share": 2.0}, {"monotone": 1}):
            with pytest.raises(dp.DeclarationError):
                session.above_threshold(**{"threshold": 3, "share": 0.1} | bad)


def test_questions_about_parts_are_paid_by_all() -> None:
    with dp.Session(budget=dp.Budget(1.0), seed=1, people=ROWS) as session:
        svt = session.above_threshold(300, share=0.6, monotone=True)
        for _, part in PEOPLE.partition("town"):
            assert svt.ask(part.filter(part["age"] > 60).count()) is False
        assert svt.ask(PEOPLE.count()) is True
        assert session.spent.costs[0] == pytest.approx(0.6, rel=1e-6)
        part = session.part("topic", 0.5)
        assert part.above_threshold(300, share=0.5, monotone=True).ask(PEOPLE.count()) is True
        assert part.spent.costs[0] == pytest.approx(0.25, rel=1e-6)


def test_a_plan_without_its_beginning_is_refused() -> None:
    begun = PrivateQuery(Questions(1.0, True), (PEOPLE,)).release(
        SparseVectorRun(scale=2.0, threshold=3.0, monotone=True)
    )
    number = PEOPLE.count().release(dp.Laplace(scale=1))
    with pytest.raises(dp.DeclarationError, match="continues a run"):
        dp.Pipeline(x=older(3).release(SparseVectorAnswer(), given=[number]))
    with pytest.raises(dp.DeclarationError, match="the question says"):
        dp.Pipeline(x=older(3).release(SparseVectorAnswer(sensitivity=5.0), given=[begun]))
    with pytest.raises(dp.DeclarationError, match="questions come later"):
        dp.Pipeline(x=older(3).release(SparseVectorRun(scale=2.0, threshold=3.0)))
    with pytest.raises(dp.DeclarationError, match="loop"):
        dp.Pipeline(
            x=dp.repeat(
                lambda _, people: online_answer(begun, people.count(), None, None),
                2,
                PEOPLE,
                start=0.0,
            )
        )
    plan = dp.Pipeline(
        a=online_answer(begun, older(3), None, None), b=online_answer(begun, older(69), 2.0, None)
    )
    assert plan.certify().epsilon == pytest.approx(1.0)  # both questions, one run
    document = dp.load(plan.to_json())
    assert document.fingerprint == plan.fingerprint
    out = plan.simulate(seed=1, people=ROWS)
    assert (out["a"], math.isnan(out["b"])) == (1.0, True)


# --- After a crash -----------------------------------------------------------------------------

CHILD = """
import os, signal, sys
import adaptive_dp as dp
from adaptive_dp.session.session import Session
path, kill_at, ages = sys.argv[1], int(sys.argv[2]), [float(a) for a in sys.argv[3].split(",")]
people = dp.dataset("people", columns={"age": (0, 100)})
rows = {"age": [float(i % 70) for i in range(700)]}
calls = 0
def dying(name):
    real = getattr(Session, name)
    def method(self, *args, **kw):
        global calls
        for _ in (0, 1):
            calls += 1
            if calls == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            if _ == 0:
                out = real(self, *args, **kw)
        return out
    setattr(Session, name, method)
for name in ("_spend", "_compute", "_record"):
    dying(name)
with dp.Session(budget=dp.Budget(10.0), ledger=path, create=True, people=rows) as session:
    svt = session.above_threshold(300, tops=3, scale=4.0, monotone=True)
    print([svt.ask(people.filter(people["age"] >= a).count()) for a in ages], svt.tops)
"""


def crashing(path: Path, kill_at: int) -> str:
    root = str(Path(__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(kill_at), "69,1,68,2"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        timeout=60,
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.stdout


# the beginning of the first run, its question, the one that is "above", the second run's beginning
@pytest.mark.parametrize(
    "kill_at", [2, 5, 9, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 11, 14, 17, 21))]
)
def test_a_crash_wastes_budget_and_repeats_no_noise(kill_at: int, tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    assert crashing(path, kill_at) == ""
    people = dp.dataset("people", columns={"age": (0, 100)})
    rows = {"age": [float(i % 70) for i in range(700)]}
    with dp.Session(budget=dp.Budget(10.0), ledger=path, people=rows) as session:
        before = session.spent.costs[0]
        recorded = sum("SparseVectorAnswer" in str(e["plan"]) for e in session._spends)
        svt = session.above_threshold(300, tops=3, scale=4.0, monotone=True)
        # the same questions: what is recorded costs nothing, what is not begins a run of its own
        asked = [svt.ask(people.filter(people["age"] >= a).count()) for a in (69, 1, 68, 2)]
        assert asked == [False, True, False, True]
        assert session.spent.costs[0] > before or recorded > 3
        assert paid(session) >= 2
        entries = session._ledger.entries()
    result = recomputed(entries)
    assert result.reasons == ()
    assert result.epsilon == pytest.approx(0.5 * paid_in(entries))
    # no run was asked for more than one top that it had paid for
    tops: Counter[str] = Counter()
    for entry in entries:
        if entry["kind"] == "release" and "SparseVectorAnswer" in str(entries[entry["of"]]["plan"]):
            plan = entries[entry["of"]]
            (value,) = entry["values"].values()
            tops[str(sorted(plan["reads"].values()))] += value["array"] == 1.0
    assert max(tops.values()) <= 1


def paid_in(entries: Any) -> int:
    return sum(e["kind"] == "spend" and "SparseVector" in str(e["costs"]) for e in entries)


def test_the_noise_of_a_run_is_in_its_process_alone(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    with dp.Session(budget=dp.Budget(10.0), ledger=path, create=True, people=ROWS) as first:
        svt = first.above_threshold(300, scale=4.0, monotone=True)
        assert svt.ask(older(69)) is False
        begun = svt._begun
        hidden = first._hidden[first._solved.get(begun, begun)]
        with pytest.raises(TypeError):
            __import__("pickle").dumps(hidden.state.reveal())
        assert "noise" not in repr(first._hidden)
    with dp.Session(budget=dp.Budget(10.0), ledger=path, people=ROWS) as second:
        begun = PrivateQuery(Questions(1.0, True), (PEOPLE,)).release(
            SparseVectorRun(scale=4.0, threshold=300, monotone=True, run="sparse vector 1/0")
        )
        second.run(begun)  # recorded, at no cost
        assert second.spent.costs[0] == pytest.approx(0.5)
        with pytest.raises(RunError, match="begin another one"):
            second.run(online_answer(begun, older(3), None, None))
        svt = second.above_threshold(300, scale=4.0, monotone=True)
        assert svt.ask(older(69)) is False  # the recorded answer
        assert second.spent.costs[0] == pytest.approx(0.5)
        assert svt.ask(older(68)) is False
        assert second.spent.costs[0] == pytest.approx(1.0)


def test_a_child_that_was_forked_begins_a_run_of_its_own(tmp_path: Path) -> None:
    """Each would answer "above" by one noise, which is paid for one such answer."""
    path = tmp_path / "study.db"
    with dp.Session(budget=dp.Budget(10.0), ledger=path, create=True, people=ROWS) as session:
        svt = session.above_threshold(300, scale=4.0, monotone=True)
        assert svt.ask(older(69)) is False
        child = os.fork()
        if child == 0:
            try:
                said = svt.ask(older(2))
            finally:
                os._exit(int(said is not True))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert svt.ask(older(3)) is True
        assert session.spent.costs[0] == pytest.approx(1.0)  # 0.5 for each


def test_a_loss_of_zero_is_what_an_answer_adds() -> None:
    assert SparseVectorAnswer(sensitivity=2.0).loss(2.0) == accountants.Pure(0.0)
    with pytest.raises(dp.DeclarationError):
        SparseVectorAnswer(sensitivity=2.0).loss(2.0000001)
    with pytest.raises(dp.DeclarationError):
        Questions(0.0)
