"""GNMax behind a test of what the votes at hand lose: exact laws of a small world."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from vote_worlds import divergence, first, neighbours, table, worlds

import accountants
import adaptive_dp as dp
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.pate.aggregators import GNMax
from adaptive_dp.pate.ballots import Ballots, BallotsSource, VoteCounts
from adaptive_dp.pate.vote_divergence import TestedGNMax

SMALL = {"sigma": 2.0, "order": 3.0, "budget": 0.1, "epsilon": 1.0, "failure": 0.1}
TEACHERS = 40


def passing(distance: int, epsilon: float, failure: float) -> float:
    """P(distance + N > T), with N two-sided geometric and T the least with P(N > T) <= failure."""
    r = math.exp(-epsilon)

    def above(t: int) -> float:
        return r ** (t + 1) / (1 + r) if t >= -1 else 1 - r**-t / (1 + r)

    least = next(t for t in range(10_000) if above(t) <= failure)
    return above(least - distance)


def laws(n: int, teachers: int, mechanism: Any) -> np.ndarray:
    """The chances of no answer, of the first class, and of the second; one question."""
    votes = GNMax(sigma=mechanism.sigma).votes(teachers, 2)
    distance = votes.distance(table((n,), teachers), mechanism.order, mechanism.budget)
    p = passing(distance, mechanism.epsilon, mechanism.failure)
    one = first(n, teachers, mechanism.sigma)
    return np.array([1 - p, p * one, p * (1 - one)])


def epsilons(teachers: int, questions: int, mechanism: Any, delta: float) -> float:
    votes = Ballots(BallotsSource("votes", teachers, questions, 2))
    return float(dp.Pipeline(a=votes.release(mechanism)).certify(delta).epsilon)


class TestSmallWorld:
    @pytest.mark.parametrize("budget", [0.003, 0.1, 0.5])
    @pytest.mark.parametrize("epsilon", [0.5, 2.0])
    def test_every_pair_is_within_the_certificate(self, budget: float, epsilon: float) -> None:
        """Both directions, exactly: the sum of what P has above e^eps Q is at most delta."""
        mechanism = TestedGNMax(**{**SMALL, "budget": budget, "epsilon": epsilon})
        loss, teachers = mechanism.cost(1.0, 1, 1.0), TEACHERS
        result = {w: laws(w[0], teachers, mechanism) for w in worlds(teachers, 1)}
        for eps in (0.0, 0.1, 0.5, 1.0, 2.0, 3.0, 5.0):
            bound = loss.profile(eps)
            assert bound is not None
            for w, p in result.items():
                for v in neighbours(w, teachers):
                    assert np.maximum(p - math.exp(eps) * result[v], 0).sum() <= bound.upper + 1e-15
        for delta in (0.11,):
            certified = epsilons(teachers, 1, mechanism, delta)
            for w, p in result.items():
                for v in neighbours(w, teachers):
                    over = np.maximum(p - math.exp(certified) * result[v], 0).sum()
                    assert over <= delta + 1e-15

    def test_it_does_pass_and_does_fail(self) -> None:
        """Else the exact check above would have nothing to find."""
        mechanism = TestedGNMax(**{**SMALL, "epsilon": 2.0})
        passes = [1 - laws(n, TEACHERS, mechanism)[0] for n in (0, TEACHERS // 2)]
        assert passes[0] > 0.9 > SMALL["failure"] >= passes[1] > 0

    def test_whoever_passes_surely_keeps_the_budget(self) -> None:
        teachers, sigma, order = 20, 1.5, 3.0
        votes = GNMax(sigma=sigma).votes(teachers, 2)
        for budget in (0.003, 0.3):
            for w in [*worlds(teachers, 1), (0, 0), (0, 20), (0, 3), (2, 19)]:
                distance = votes.distance(table(w, teachers), order, budget)
                for v in neighbours(w, teachers):
                    assert abs(distance - votes.distance(table(v, teachers), order, budget)) <= 1
                    if distance > 0:
                        assert divergence(w, v, teachers, sigma, order) <= budget
                        assert divergence(v, w, teachers, sigma, order) <= budget

    def test_releases_follow_the_law(self) -> None:
        """Exact binomial; false alarm below 1e-7."""
        mechanism = TestedGNMax(**{**SMALL, "epsilon": 0.2, "failure": 0.3})
        law, many = laws(36, TEACHERS, mechanism), 600
        assert law[:2].min() > 0.05
        value = VoteCounts(table((36,), TEACHERS), TEACHERS)
        drawn = [float(mechanism.release(value, SeededStream(3, i))[0]) for i in range(many)]
        assert set(map(str, drawn)) == {"nan", "0.0"}  # the second class has a chance of 1e-8
        failed = sum(map(math.isnan, drawn))
        assert stats.binomtest(failed, many, law[0]).pvalue > 1e-7


class TestConsensus:
    def test_it_costs_less_than_the_worst_case_where_teachers_agree(self) -> None:
        """Equal noise, 200 questions, 400 teachers of whom 10 disagree: 0.6 in place of 4.4."""
        mechanism = TestedGNMax(sigma=20.0, order=32.0, budget=0.2, epsilon=0.2, failure=1e-6)
        certified = epsilons(400, 200, mechanism, 1e-5)
        assert certified < 0.7 < 4.0 < epsilons(400, 200, GNMax(sigma=20.0), 1e-5)
        counts = np.tile([390, 10], (200, 1))
        answers = mechanism.release(VoteCounts(counts, 400), SeededStream(1))
        assert (answers == 0).all()
        far = GNMax(sigma=20.0).votes(400, 2).distance(counts, 32.0, 0.2)
        assert passing(far, 0.2, 1e-6) > 0.999

    def test_nothing_is_answered_where_they_do_not(self) -> None:
        mechanism = TestedGNMax(sigma=20.0, order=32.0, budget=0.2, epsilon=0.2, failure=1e-6)
        counts = np.tile([210, 190], (200, 1))
        answers = mechanism.release(VoteCounts(counts, 400), SeededStream(1))
        assert np.isnan(answers).all()
        votes = Ballots(BallotsSource("votes", 400, 200, 2))
        plan = dp.Pipeline(labels=votes.release(mechanism))
        assert (plan.simulate(seed=1, votes={"counts": counts})["labels"] == -1).all()


class TestDeclaration:
    def test_groups_pay_the_worst_case(self) -> None:
        mechanism = TestedGNMax(**SMALL)
        assert mechanism.cost(0.0, 9, 1.0) == accountants.Pure(0.0)
        two = mechanism.cost(2.0, 9, 1.0)
        by_hand = accountants.Gaussian(mu=2 * math.sqrt(2) / 2.0 * 3)
        orders = np.array([2.0, 5.0])
        assert two.delta_floor() == 0
        assert (two.renyi(orders) >= by_hand.renyi(orders)).all()
        assert mechanism.loss(1.0) == mechanism.cost(1.0, 1, 1.0)

    def test_hospitals(self) -> None:
        """A unit with three rows may change three teachers, who are charged together."""
        people = dp.dataset(
            "people",
            columns={"x": (0, 1), "y": ["a", "b"], "h": list("ABCDE")},
            unit="id",
            rows_per_unit=3,
        )
        teachers = dp.pate.teachers(people, ["x"], "y", "sklearn.naive_bayes:GaussianNB", by="h")
        labels = teachers.votes(teachers.points("pool", 9)).release(TestedGNMax(**SMALL))
        plan = dp.Pipeline(labels=labels)
        mu = 3 * math.sqrt(2) / 2.0 * 3
        assert plan.certify(1e-5).epsilon > accountants.Gaussian(mu=mu).epsilon_at(1e-5).lower

    @pytest.mark.parametrize(
        ("name", "value"),
        [("order", 1.0), ("order", True), ("budget", 0), ("epsilon", -1), ("failure", 1)],
    )
    def test_parameters_that_are_none(self, name: str, value: Any) -> None:
        with pytest.raises(dp.DeclarationError, match=rf"TestedGNMax\.{name}"):
            TestedGNMax(**{**SMALL, name: value})

    def test_more_teachers_than_the_bounds_cover(self) -> None:
        many = dp.pate.ballots("votes", teachers=10**6, questions=3, classes=2)
        with pytest.raises(dp.DeclarationError, match="teachers"):
            dp.Pipeline(a=many.release(TestedGNMax(**SMALL)))
        few = dp.pate.ballots("votes", teachers=9, questions=3, classes=2)
        wild = dp.Pipeline(a=few.release(TestedGNMax(**{**SMALL, "sigma": 1e13, "failure": 1e-9})))
        votes = {"counts": np.tile([9, 0], (3, 1))}
        assert (wild.simulate(seed=1, votes=votes)["a"] == -1).all()
        free = few.release(TestedGNMax(**{**SMALL, "sigma": dp.Free("s")}))
        solved = dp.Pipeline(a=free).calibrate(epsilon=2.0, delta=0.2)
        assert solved.certify().epsilon <= 2.0

    def test_one_class(self) -> None:
        mechanism = TestedGNMax(**{**SMALL, "epsilon": 5.0})
        answers = mechanism.release(VoteCounts(np.array([[30], [30]]), 30), SeededStream(2))
        assert (answers == 0).all()

    def test_the_test_is_paid_in_the_certificate(self) -> None:
        text = dp.Pipeline(
            a=Ballots(BallotsSource("votes", 9, 3, 2)).release(TestedGNMax(**SMALL))
        ).certify(0.2)
        assert "Tested" in text.to_json()
        assert "Redberg, Zhu & Wang 2023" in text.to_json()
