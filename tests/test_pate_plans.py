"""Ballots and aggregators in plans: certify, calibrate, run, simulate, refuse."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from plans import pate, plurality

import adaptive_dp as dp
from adaptive_dp.pate import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax, Plurality, StableVotes

VOTES = np.random.default_rng(0).integers(0, 3, (20, 4))


def four(**more: Any) -> dp.pate.Ballots:
    return dp.pate.ballots("votes", teachers=20, questions=4, classes=3, **more)


@pytest.mark.parametrize(
    ("epsilon", "every", "some"),
    [(0.5, 378.28, 207.17), (1.0, 200.69, 109.91), (2.0, 107.26, 58.74)],
)
def test_the_noise_of_passive_and_active_queries(epsilon: float, every: float, some: float) -> None:
    """1447 and 434 questions at delta = 1e-5: published figures, to what they were rounded to."""
    for questions, sigma in ((1447, every), (434, some)):
        votes = dp.pate.ballots("votes", teachers=250, questions=questions, classes=2)
        plan = dp.Pipeline(a=votes.release(GNMax(dp.Free("s")))).calibrate(epsilon, 1e-5)
        (row,) = plan.certify().nodes
        result = json.loads(plan.to_json())["nodes"][-1]["mechanism"]["sigma"]
        assert result == pytest.approx(sigma, abs=0.011)
        assert plan.certify().epsilon <= epsilon
        assert row.distance == pytest.approx(1)


def test_free_noise_is_shared() -> None:
    b = dp.Free("b")
    plan = dp.Pipeline(
        a=four().release(LNMax(b)),
        b=four().release(ConfidentGNMax(12, dp.Free("b", weight=3), b, answers=2)),
        c=four().release(StableVotes(dp.Free("b", weight=9), 1e-9)),
    )
    solved = plan.calibrate(epsilon=4, delta=1e-5)
    assert 3.9 < solved.certify().epsilon <= 4
    assert solved.simulate(seed=1, votes=VOTES)["a"].shape == (4,)


def test_a_unit_with_rows_at_several_teachers() -> None:
    table = dp.dataset("t", columns={"x": (0, 1), "y": [0, 1], "g": list("abcd")}, unit="id",
                       rows_per_unit=3)  # fmt: skip
    local = dp.pate.teachers(table, ["x"], "y", "sklearn.naive_bayes:GaussianNB", by="g")
    votes = local.votes(local.points("pool", 5))
    for mechanism, one in ((LNMax(30.0), 2 / 30), (StableVotes(0.1, 1e-9), 0.1)):
        for delta in (0.0, 1e-5):
            certificate = dp.Pipeline(a=votes.release(mechanism)).with_delta(delta).certify()
            most = 3 * one * (5 if isinstance(mechanism, LNMax) else 1)
            assert certificate.epsilon <= most * (1 + 1e-9) or not delta
    mechanism = ConfidentGNMax(2, 30.0, 20.0)
    (row,) = dp.Pipeline(a=votes.release(mechanism)).certify(1e-5).nodes
    assert row.distance == pytest.approx(3)
    assert mechanism.cost(3.0, 5, 1.0).mu() == pytest.approx(3 * math.sqrt(5 / 900 + 10 / 400))


class TestPlurality:
    def test_the_certificate_says_infinity(self) -> None:
        for delta in (0.0, 1e-6, 0.5):
            assert plurality().certify(delta).epsilon == math.inf
        assert "infinite" in str(plurality().certify(1e-6)) or "inf" in str(
            plurality().certify(1e-6)
        )

    def test_a_run_is_refused(self) -> None:
        with pytest.raises(dp.DeclarationError, match="most"):
            plurality().with_delta(1e-6).run(votes=[[0, 0], [0, 1], [1, 1]])

    def test_a_simulation_is_stamped(self) -> None:
        for plan in (plurality(), dp.load(plurality().to_json())):
            result = plan.simulate(seed=1, votes=[[0, 0], [0, 1], [1, 1]])
            assert result["most"].tolist() == [0, 1]
            assert result.certificate.randomness.release is False
            assert result.certificate.epsilon == math.inf

    def test_one_unbounded_release_makes_the_plan_unbounded(self) -> None:
        plan = dp.Pipeline(a=four().release(GNMax(9.0)), b=four().release(Plurality()))
        assert plan.certify(1e-6).epsilon == math.inf
        with pytest.raises(dp.DeclarationError, match=r"^b: "):
            plan.with_delta(1e-6).run(votes=VOTES)
        free = dp.Pipeline(a=four().release(GNMax(dp.Free("s"))), b=four().release(Plurality()))
        with pytest.raises(dp.CalibrationError):
            free.calibrate(1, 1e-6)


class TestInteractive:
    def plan(self, p: Any) -> dp.Pipeline:
        mechanism = InteractiveGNMax(3, 1.0, 1.0, confidence=0.6)
        return dp.Pipeline(a=four().release(mechanism, given=[dp.public(p)])).with_delta(1e-6)

    def test_it_follows_the_student(self) -> None:
        sure = np.eye(3)[[0, 1, 2, 0]]
        for plan in (self.plan(sure.tolist()), dp.load(self.plan(sure.tolist()).to_json())):
            same = np.tile([0, 1, 2, 0], (20, 1))
            assert plan.run(votes=same)["a"].tolist() == [0, 1, 2, 0]
            other = np.tile([1, 1, 2, 2], (20, 1))
            assert plan.run(votes=other)["a"].tolist() == [1, 1, 2, 2]

    @pytest.mark.parametrize(
        "p",
        [[[0.5, 0.5]] * 4, [[0.2] * 3] * 3, 0.5, [[0.5, 0.5, 1.5]] * 4, [[0.5, 0.5, math.nan]] * 4],
    )
    def test_invalid_probabilities_are_reported_openly(self, p: Any) -> None:
        for run in (self.plan(p).run, lambda votes: self.plan(p).simulate(seed=1, votes=votes)):
            with pytest.raises(dp.RunError, match="probabilities") as caught:
                run(votes=VOTES)
            assert "withheld" not in str(caught.value) or "probabilities" in str(caught.value)

    def test_private_probabilities_are_a_leak(self) -> None:
        with pytest.raises(dp.LeakError):
            four().release(InteractiveGNMax(3, 1.0, 1.0, 0.6), given=[four()])  # type: ignore[list-item]
        with pytest.raises(dp.DeclarationError, match=r"\b1\b.*\b0\b"):
            four().release(InteractiveGNMax(3, 1.0, 1.0, 0.6))

    def test_past_the_check_it_still_fails_closed(self) -> None:
        """A document may leave the check out."""
        wrong = dp.public([[0.5]])
        query = four().counts()
        plan = dp.Pipeline(a=query.release(InteractiveGNMax(3, 1.0, 1.0, 0.6), given=[wrong]))
        with pytest.raises(dp.RunError, match="withheld"):
            plan.with_delta(1e-6).run(votes=VOTES)


class TestBallots:
    def test_both_forms_are_the_same_votes(self) -> None:
        counts = np.stack([np.bincount(v, minlength=3) for v in VOTES.T])
        plan = dp.Pipeline(a=four().release(Plurality()))
        forms: list[Any] = [
            VOTES,
            VOTES.astype(float),
            VOTES.astype(np.uint8),
            VOTES.tolist(),
            {"counts": counts},
            {"counts": counts.astype(np.uint64)},
            {"counts": counts.astype(np.float16)},
            {"counts": counts.tolist()},
        ]
        answers = [plan.simulate(seed=1, votes=form)["a"].tolist() for form in forms]
        assert answers == [np.argmax(counts, axis=1).tolist()] * len(forms)

    def test_truth_values_are_two_classes(self) -> None:
        votes = dp.pate.ballots("votes", teachers=3, questions=2, classes=2)
        plan = dp.Pipeline(a=votes.release(Plurality()))
        seen = plan.simulate(seed=1, votes=[[True, False], [True, False], [False, True]])
        assert seen["a"].tolist() == [1, 0]

    def test_what_is_no_class_counts_as_the_first(self) -> None:
        odd = VOTES.astype(float)
        odd[:, 0] = np.resize([np.nan, -1, 3, 1.5, np.inf, -np.inf, 1e300], 20)
        plan = dp.Pipeline(a=four().release(Plurality()))
        assert plan.simulate(seed=1, votes=odd)["a"][0] == 0

    @pytest.mark.parametrize(
        "wrong",
        [
            VOTES.T,
            VOTES[:19],
            VOTES[:, :3],
            VOTES[None],
            VOTES.ravel(),
            VOTES.astype(str),
            VOTES.astype(complex),
            VOTES.astype(object),
            [[1, 2], [3]],
            7,
            None,
        ],
    )
    def test_votes_of_another_form(self, wrong: Any) -> None:
        plan = dp.Pipeline(a=four().release(GNMax(9.0))).with_delta(1e-6)
        with pytest.raises(dp.DataError, match="'votes'"):
            plan.run(votes=wrong)

    @pytest.mark.parametrize(
        "row",
        [
            [21, -1, 0],
            [19, 0, 0],
            [21, 0, 0],
            [19.5, 0.5, 0],
            [20, 0, np.nan],
            [np.inf, -np.inf, 0],
            [2.0**63, 2.0**63, 20.0],
            [10, 10],
            [10, 10, 0, 0],
        ],
    )
    def test_counts_that_are_none(self, row: list[float]) -> None:
        plan = dp.Pipeline(a=four().release(GNMax(9.0))).with_delta(1e-6)
        with pytest.raises(dp.DataError, match="'votes'") as caught:
            plan.run(votes={"counts": [row] * 4})
        assert not any(str(value) in str(caught.value) for value in ("19.5", "-1", "21"))

    @pytest.mark.parametrize(
        ("row", "kind"),
        [([2**63, 2**63, 20], np.uint64), ([2**62, 2**62, 2**63 + 20], np.uint64)],
    )
    def test_counts_that_wrap_around(self, row: list[int], kind: type) -> None:
        plan = dp.Pipeline(a=four().release(GNMax(9.0))).with_delta(1e-6)
        with pytest.raises(dp.DataError, match="'votes'"):
            plan.run(votes={"counts": np.array([row] * 4, dtype=kind)})

    def test_counts_under_another_name(self) -> None:
        plan = dp.Pipeline(a=four().release(GNMax(9.0))).with_delta(1e-6)
        for wrong in ({}, {"votes": VOTES}, {"counts": None}, {"counts": "x"}):
            with pytest.raises(dp.DataError, match=r"'votes'.*\(4, 3\)"):
                plan.run(votes=wrong)

    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"name": "a b"}, "name"),
            ({"name": "class"}, "name"),
            ({"name": "seed"}, "'seed'"),
            ({"teachers": 0}, r"\b1\b.*\b0\b"),
            ({"questions": 2.5}, "questions"),
            ({"classes": "3"}, "'3'"),
            ({"teachers": True}, "teachers"),
            ({"neighbors": "swap"}, "neighbors"),
        ],
    )
    def test_refused_declarations(self, wrong: dict[str, Any], message: str) -> None:
        given: dict[str, Any] = {"name": "votes", "teachers": 20, "questions": 4, "classes": 3}
        given |= wrong
        with pytest.raises(dp.DeclarationError, match=message):
            dp.pate.ballots(given.pop("name"), **given)

    @pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
    def test_one_teacher_changes_under_every_relation(self, neighbors: str) -> None:
        plan = dp.Pipeline(a=four(neighbors=neighbors).release(LNMax(4.0)))
        assert plan.certify().epsilon == pytest.approx(4 * 2 / 4)
        (row,) = plan.certify().protects
        assert row.neighbors == neighbors
        assert any("disjoint data" in line for line in plan.certify().assumptions)

    def test_other_mechanisms_do_not_read_votes(self) -> None:
        with pytest.raises(dp.DeclarationError, match="vote_counts"):
            four().release(dp.Gaussian(sigma=1.0))
        assert repr(four()) == "<private votes 20 teachers, 4 questions, 3 classes>"


def test_the_shared_plan_runs() -> None:
    plan = dp.load(pate().to_json(), allow=["plans", "sklearn.naive_bayes"]).with_delta(1e-6)
    draw = np.random.default_rng(1)
    people = {"x": draw.normal(3, 4, 60), "y": draw.uniform(0, 3, 60)}
    people |= {"region": draw.choice(list("ABC"), 60)}
    people["z"] = np.where(people["x"] > 3, "b", "a")
    bound = {
        "people": people,
        "pool": {"x": [-5, 0, 5, 10], "y": [0, 1, 2, 3]},
        "others": {"x": [-5, 10]},
        "votes": VOTES,
    }
    for result in (plan.run(**bound), plan.simulate(seed=2, **bound)):
        for name, classes in (("gaussian", 2), ("confident", 3), ("stable", 3), ("local", 2)):
            outcome = result[name]
            assert outcome.dtype == np.int64
            assert outcome.shape == ((2,) if name == "local" else (4,))
            assert ((outcome >= -1) & (outcome < classes)).all()
        assert (result["confident"] >= 0).sum() <= 2
    again = [str(plan.simulate(seed=3, **bound)["interactive"]) for _ in range(2)]
    assert again[0] == again[1]


def test_rounds_of_questions_add_up() -> None:
    """Streaming: each round asks the teachers about what earlier answers chose."""
    table = dp.dataset("people", columns={"x": (0, 1), "y": ["a", "b"]})
    taught = dp.pate.teachers(table, ["x"], "y", "sklearn.naive_bayes:GaussianNB", count=5)
    pool = taught.points("pool", 6)

    def body(state: dp.Released[Any]) -> dp.Released[Any]:
        votes = taught.votes(dp.post(chosen, pool, state), size=2)
        return dp.post(extended, state, votes.release(ConfidentGNMax(3, 20.0, 15.0)))

    plan = dp.Pipeline(labels=dp.repeat(body, 3, start=[])).with_delta(1e-5)
    one = ConfidentGNMax(3, 20.0, 15.0).cost(1.0, 6, 1.0)
    all_at_once = dp.pate.ballots("v", teachers=5, questions=6, classes=2)
    same = dp.Pipeline(a=all_at_once.release(ConfidentGNMax(3, 20.0, 15.0))).certify(1e-5)
    assert one.mu() is not None
    assert plan.certify().epsilon == pytest.approx(same.epsilon, rel=1e-6)
    people = {"x": np.linspace(0, 1, 50), "y": np.where(np.arange(50) < 25, "a", "b")}
    result = plan.run(people=people, pool={"x": np.linspace(0, 1, 6)})
    assert len(result["labels"]) == 6


def chosen(points: Any, state: Any) -> Any:
    start = len(state)
    return points[start : start + 2]


def extended(state: Any, answers: Any) -> list[int]:
    return [*state, *np.asarray(answers).tolist()]
