"""What was run is paid for: Confident-GNMax in two steps of a session, by the exact law."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr
from streams import Quick

import adaptive_dp as dp
from accountants.definitions import gdp_profile
from adaptive_dp.pate import PassedGNMax, VoteCheck, confident_answers
from adaptive_dp.pate.ballots import VoteCounts

TEACHERS, THRESHOLD, CHECK, SIGMA = 6, 4.3, 2.0, 1.5


def neighbours() -> list[tuple[int, int]]:
    """All pairs of counts of two classes where one vote has moved: (k, k + 1) for the first."""
    return [(k, k + 1) for k in range(TEACHERS)] + [(k + 1, k) for k in range(TEACHERS)]


def passes(k: int) -> float:
    """The chance that the check passes, noise and threshold in steps of its grid."""
    unit = 2.0**-20
    bar = (math.ceil(THRESHOLD / unit) - 0.5) * unit
    return float(ndtr((max(k, TEACHERS - k) - bar) / CHECK))


def first(k: int) -> float:
    """The chance that GNMax answers the first class."""
    return float(ndtr((2 * k - TEACHERS) / (math.sqrt(2) * SIGMA)))


def transcripts(ks: Any, budget: float) -> dict[Any, float]:
    """The law of a strategy that asks until its budget of mu^2 is spent, answers counted ex post.

    After a question that was answered by the second class it asks the second kind of question.
    """
    law: dict[Any, float] = {}
    check, answer = 1 / CHECK**2, 2 / SIGMA**2

    def follow(said: tuple[str, ...], chance: float, spent: float, kind: int) -> None:
        # a question is asked only if its check and its answer would both fit
        if spent + check + answer > budget or len(said) == 5:
            law[said] = chance
            return
        k = ks[kind]
        follow((*said, "-"), chance * (1 - passes(k)), spent + check, kind)
        for name, part in (("0", first(k)), ("1", 1 - first(k))):
            step = spent + check + answer
            follow((*said, name), chance * passes(k) * part, step, kind ^ (name == "1"))

    follow((), 1.0, 0.0, 0)
    assert sum(law.values()) == pytest.approx(1)
    return law


@pytest.mark.parametrize("budget", [1.2, 2.2, 3.3])
def test_a_budget_of_mu_squared_covers_what_was_answered(budget: float) -> None:
    """Of all neighbours, the exact delta of the adaptive strategy is within mu = sqrt(budget)."""
    worst = 0.0
    for a in neighbours():
        for b in neighbours():
            one, two = (transcripts(ks, budget) for ks in ((a[0], b[0]), (a[1], b[1])))
            for epsilon in (0.05, 0.3, 1.0, 2.0):
                delta = sum(max(0.0, one[k] - math.exp(epsilon) * two[k]) for k in one)
                bound = gdp_profile(math.sqrt(budget), epsilon).upper
                assert delta <= bound * (1 + 1e-9) + 1e-12
                worst = max(worst, delta / bound)
    assert worst > 0.2


def test_releases_have_the_law() -> None:
    stream = Quick(1)
    counts = VoteCounts(np.array([[5, 1], [3, 3]]), teachers=TEACHERS)
    seen = Counter()
    for _ in range(3_000):
        passed = VoteCheck(THRESHOLD, CHECK).release(counts, stream)
        answers = PassedGNMax(SIGMA, 2).release(counts, stream, passed)
        seen[tuple("-" if math.isnan(a) else str(int(a)) for a in answers)] += 1
    each = [
        {"-": 1 - passes(k), "0": passes(k) * first(k), "1": passes(k) * (1 - first(k))}
        for k in (5, 3)
    ]
    law = {(x, y): each[0][x] * each[1][y] for x in each[0] for y in each[1]}
    expected = np.array([law[k] for k in law])
    found = np.array([seen[k] for k in law])
    assert stats.chisquare(found, expected / expected.sum() * found.sum()).pvalue > 1e-7
    wrong = expected * np.linspace(0.6, 1.4, len(expected))
    assert stats.chisquare(found, wrong / wrong.sum() * found.sum()).pvalue < 1e-7


def test_no_more_are_answered_than_are_paid_for() -> None:
    counts, stream = VoteCounts(np.array([[90, 10]] * 5), teachers=100), Quick(2)
    found = PassedGNMax(1.0, most=2).release(counts, stream, np.array([0, 1, 1, 1, 1.0]))
    assert [math.isnan(x) for x in found] == [True, False, False, True, True]
    # whatever the released value is: of another length, or no 0 and 1
    for odd in (np.array([1.0]), np.ones(9), np.full(5, np.nan), np.array(1.0)):
        assert (~np.isnan(PassedGNMax(1.0, 2).release(counts, stream, odd))).sum() <= 2
    assert PassedGNMax(2.0, 3).cost(2.0, 9, 1.0).mu() == pytest.approx(2 * math.sqrt(6) / 2)
    assert PassedGNMax(2.0, 30).cost(1.0, 2, 1.0).mu() == pytest.approx(math.sqrt(4) / 2)
    assert VoteCheck(1, 2.0).cost(3.0, 4, 1.0).mu() == pytest.approx(3.0)
    for bad in (0, 1.5, None):
        with pytest.raises(dp.DeclarationError):
            PassedGNMax(1.0, most=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("accountant", ["gaussian", "renyi", "best"])
def test_a_session_pays_for_what_was_answered(accountant: str) -> None:
    votes = dp.pate.ballots("votes", teachers=250, questions=50, classes=3)
    counts = np.array([[230, 10, 10] if i % 5 == 0 else [90, 80, 80] for i in range(50)])
    noise = {"threshold": 180, "sigma_check": 40.0, "sigma": 30.0}
    budget = dp.Budget(2.0, 1e-6)
    with dp.Session(
        budget=budget, accountant=accountant, seed=1, votes={"counts": counts}
    ) as session:
        answers = confident_answers(session.run, votes, **noise)
        assert (answers >= 0).tolist() == [i % 5 == 0 for i in range(50)]
        assert set(answers[::5]) == {0}
        check = session.certificate()
        assert dp.verify(check).holds
        paid = session.remaining
        whole = votes.release(dp.pate.ConfidentGNMax(180, 40.0, 30.0))
        forecast = session.what_if(whole)
        if accountant == "gaussian":
            assert session.spent.costs[0] == pytest.approx(50 / 40**2 + 10 * 2 / 30**2)
            assert forecast.cost.costs[0] == pytest.approx(50 / 40**2 + 50 * 2 / 30**2)
        assert len(paid.costs) >= 1
        strict = confident_answers(session.run, votes, **(noise | {"threshold": 1e6}))
        assert (strict == -1).all()
        with pytest.raises(dp.BudgetError):
            confident_answers(session.run, votes, threshold=0, sigma_check=900.0, sigma=3.0)
