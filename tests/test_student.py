"""The student, and which questions are asked for it."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.registry import Function
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.pate.ballots import (
    NEVER,
    known_answers,
    random_positions,
    record_answers,
    select_points,
    unasked,
)
from adaptive_dp.pate.questions import Disagreement, _skill
from adaptive_dp.pate.students import Learn, Student

pytest.importorskip("sklearn")
BAYES = "sklearn.naive_bayes:GaussianNB"
LINEAR = "sklearn.linear_model:LogisticRegression"
SPREADING = "sklearn.semi_supervised:LabelSpreading"
COLUMNS = {"x": (0, 10), "color": ["red", "blue"], "kind": ["low", "mid", "high"]}
STREAM = SeededStream(0)


def rows(size: int, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    x = draw.uniform(0, 10, size)
    kind = np.array(["low", "mid", "high"])[np.digitize(x, [3, 6])]
    return {"x": x, "color": draw.choice(["red", "blue"], size), "kind": kind}


def world(size: int = 40, count: int = 20) -> tuple[Any, Any]:
    people = dp.dataset("people", columns=COLUMNS)
    taught = dp.pate.teachers(people, ["x", "color"], "kind", BAYES, count=count, var_smoothing=0.1)
    return taught, taught.points("pool", size)


def learn(model: Any, **options: Any) -> Learn:
    return Learn(Function.of(model), options.pop("classes", ("a", "b", "c")), **options)


def threshold(x: Any, y: Any, seed: int) -> Any:
    """A model that is a function."""
    middle = (x[y == 0, 0].mean() + x[y == 1, 0].mean()) / 2
    return lambda at: (at[:, 0] > middle).astype(int)


def raising(x: Any, y: Any, seed: int) -> Any:
    raise ValueError("as it were")


def picky(x: Any, y: Any, seed: int) -> Any:
    """Fails but on made-up rows, which are many."""
    if len(x) < 20:
        raise ValueError("too few")
    return lambda at: np.zeros(len(at))


class TestStudent:
    def test_it_is_scikit_learns_model_of_the_answers(self) -> None:
        from sklearn.naive_bayes import GaussianNB

        draw = np.random.default_rng(1)
        x, answers = draw.normal(size=(60, 4)), draw.integers(-1, 3, 60)
        made = learn(GaussianNB).run([x, answers.astype(float)], STREAM)
        direct = GaussianNB().fit(x[answers >= 0], answers[answers >= 0])
        test = draw.normal(size=(200, 4))
        assert np.array_equal(made.positions(test), direct.predict(test))
        assert np.array_equal(made.predict(test), np.array(["a", "b", "c"])[direct.predict(test)])
        assert np.array_equal(made.probabilities(test), direct.predict_proba(test))
        assert made.answers == np.count_nonzero(answers >= 0)

    def test_unlabeled_points_help_where_labels_are_few(self) -> None:
        from sklearn.semi_supervised import LabelSpreading

        draw = np.random.default_rng(2)
        truth = np.arange(100) % 2
        angle = np.pi * draw.uniform(size=100)  # two moons
        x = np.stack([np.cos(angle) + truth, (1 - 2 * truth) * np.sin(angle) + 0.3 * truth], 1)
        answers = np.where(np.arange(100) < 2, truth, -1)
        options = {"gamma": 20}
        half = learn(LabelSpreading, settings=options, classes=("a", "b"), unlabeled=True)
        made = half.run([x, answers], STREAM)
        direct = LabelSpreading(gamma=20).fit(x, answers)
        assert np.array_equal(made.positions(x), direct.predict(x))
        assert made.answers == 2
        alone = learn(LabelSpreading, settings=options, classes=("a", "b")).run(
            [x, answers], STREAM
        )
        right = [np.mean(m.positions(x) == truth) for m in (made, alone)]
        assert right[0] > right[1]

    @pytest.mark.parametrize("unlabeled", [False, True])
    @pytest.mark.parametrize(
        ("answers", "always"), [([-1, -1, -1], "a"), ([-1, 2, 2], "c"), ([7, 1, -2], "b")]
    )
    def test_no_answers_or_one_class(
        self, answers: list[int], always: str, unlabeled: bool
    ) -> None:
        made = learn(raising, unlabeled=unlabeled).run([np.eye(3), answers], STREAM)
        assert made.predict(np.eye(3)).tolist() == [always] * 3
        sure = np.zeros((3, 3))
        sure[:, "abc".index(always)] = 1
        assert np.array_equal(made.probabilities(np.eye(3)), sure)
        assert f"always {always!r}" in repr(made)

    def test_what_fails_on_the_answers_costs_no_answers(self) -> None:
        made = learn(picky).run([np.eye(3), [1, 1, 0]], STREAM)
        assert made.predict(np.eye(3)).tolist() == ["b"] * 3
        assert "ValueError" in repr(made)
        assert "too few" not in repr(made)
        assert made.answers == 3

    def test_a_model_may_be_a_function(self) -> None:
        at = np.array([[0.0], [1], [5], [6]])
        made = learn(threshold, classes=(10, 20)).run([at, [0, 0, 1, 1]], STREAM)
        assert made.predict(at).tolist() == [10, 10, 20, 20]
        assert made.probabilities(at).tolist() == [[1, 0], [1, 0], [0, 1], [0, 1]]

    def test_errors(self) -> None:
        made = learn(threshold, classes=(10, 20)).run([np.eye(4), [0, 0, 1, 1]], STREAM)
        with pytest.raises(dp.DeclarationError):
            made.predict({"x": [1.0]})
        with pytest.raises(dp.DeclarationError, match="shape"):
            made.predict(np.zeros(3))
        with pytest.raises(dp.RunError, match="shape"):
            learn(threshold).run([np.eye(4), [0, 0, 1]], STREAM)
        with pytest.raises(dp.DeclarationError):
            learn(threshold, classes=())
        with pytest.raises(dp.DeclarationError, match="'yes'"):
            learn(threshold, unlabeled="yes")


class TestPlan:
    def test_it_learns_what_the_teachers_know(self) -> None:
        taught, pool = world()
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=1.0))
        plan = dp.Pipeline(labels=labels, student=dp.pate.student(pool, labels, BAYES))
        result = plan.with_delta(1e-6).simulate(seed=1, people=rows(600, 1), pool=rows(40, 2))
        student, test = result["student"], rows(300, 3)
        assert isinstance(student, Student)
        assert np.mean(student.predict(test) == test["kind"]) > 0.85
        assert str(result).count("<student: GaussianNB; 3 classes, 40 answers>") == 1
        assert "&lt;student: GaussianNB" in result._repr_html_()
        assert np.array_equal(
            pickle.loads(pickle.dumps(student)).predict(test), student.predict(test)
        )

    def test_raw_columns_become_the_features_of_the_points(self) -> None:
        taught, pool = world()
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=1.0))
        plan = dp.Pipeline(
            at=dp.post(np.asarray, pool), student=dp.pate.student(pool, labels, BAYES)
        ).with_delta(1e-6)
        public = rows(40, 2)
        result = plan.simulate(seed=1, people=rows(200, 1), pool=public)
        student = result["student"]
        assert np.array_equal(student.positions(public), student.positions(result["at"]))

    def test_it_costs_nothing_and_is_trained_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        taught, pool = world()
        calls: Counter[int] = Counter()
        learnt = Learn._train

        def counted(self: Learn, x: Any, y: Any) -> Student:
            calls[len(x)] += 1
            return learnt(self, x, y)

        monkeypatch.setattr(Learn, "_train", counted)
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=5.0))
        bare = dp.Pipeline(labels=labels).with_delta(1e-6)
        plan = dp.Pipeline(labels=labels, student=dp.pate.student(pool, labels, BAYES))
        assert plan.with_delta(1e-6).certify().epsilon == bare.certify().epsilon
        result = plan.with_delta(1e-6).simulate(seed=1, people=rows(200, 1), pool=rows(40, 2))
        assert calls == {200: 1, 40: 1}  # on made-up rows, and on the answers
        assert "noisy votes" in str(result.intervals()["student"])
        assert calls == {200: 1, 40: 1}

    def test_a_model_that_fails_is_reported_before_anything_is_spent(self) -> None:
        taught, pool = world()
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=5.0))
        plan = dp.Pipeline(student=dp.pate.student(pool, labels, raising)).with_delta(1e-6)
        with pytest.raises(dp.RunError, match="student"):
            plan.simulate(seed=1, people=rows(200, 1), pool=rows(40, 2))

    def test_private_values_are_refused(self) -> None:
        taught, pool = world()
        with pytest.raises(dp.LeakError, match=r"labels.*people -> "):
            dp.pate.student(pool, taught.votes(pool), BAYES)  # type: ignore[arg-type]
        with pytest.raises(dp.LeakError, match=r"points.*people -> "):
            dp.pate.student(taught, dp.public([1]), BAYES)  # type: ignore[arg-type]
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=5.0))
        document = json.loads(dp.Pipeline(s=dp.pate.student(pool, labels, BAYES)).to_json())
        of = {node["kind"]: node for node in document["nodes"]}
        of["student"]["inputs"] = [of["points"]["id"], of["votes"]["id"]]
        with pytest.raises(dp.PlanError, match="private"):
            dp.load(document)

    def test_classes_come_with_the_votes(self) -> None:
        taught, pool = world()
        other = dp.pate.teachers(dp.dataset("o", columns=COLUMNS), ["x"], "color", BAYES, count=3)
        votes = [t.votes(t.points("pool", 40)).release(dp.pate.GNMax(1.0)) for t in (taught, other)]
        made = dp.pate.student(pool, dp.post(np.maximum, votes[0], votes[0]), BAYES)
        assert made.operation.classes == ("low", "mid", "high")
        outside = dp.pate.ballots("votes", teachers=9, questions=40, classes=3)
        labels = outside.release(dp.pate.GNMax(sigma=1.0))
        assert dp.pate.student(pool, labels, BAYES).operation.classes == (0, 1, 2)
        with pytest.raises(dp.DeclarationError):
            dp.pate.student(pool, dp.post(np.maximum, *votes), BAYES)
        with pytest.raises(dp.DeclarationError):
            dp.pate.student(pool, dp.public([1] * 40), BAYES)

    def test_points_may_be_anybodys(self) -> None:
        outside = dp.pate.ballots("votes", teachers=9, questions=4, classes=2)
        labels = outside.release(dp.pate.GNMax(sigma=0.01))
        mine = dp.public([[0.0], [1.0], [5.0], [6.0]])
        plan = dp.Pipeline(s=dp.pate.student(mine, labels, BAYES)).with_delta(1e-6)
        counts = np.array([[9, 0], [9, 0], [0, 9], [0, 9]])
        student = plan.simulate(seed=1, votes={"counts": counts})["s"]
        assert student.predict(np.array([[0.5], [5.5]])).tolist() == [0, 1]

    def test_a_document_brings_no_code(self) -> None:
        taught, pool = world()
        labels = taught.votes(pool).release(dp.pate.GNMax(sigma=5.0))
        plan = dp.Pipeline(s=dp.pate.student(pool, labels, BAYES)).with_delta(1e-6)
        assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
        data = {"people": rows(100, 1), "pool": rows(40, 2)}
        with pytest.raises(dp.DeclarationError, match="allow"):
            dp.load(plan.to_json()).simulate(seed=1, **data)
        again = dp.load(plan.to_json(), allow=["sklearn.naive_bayes"])
        test = rows(50, 3)
        predictions = [
            p.simulate(seed=1, **data)["s"].predict(test).tolist() for p in (plan, again)
        ]
        assert predictions[0] == predictions[1]


class TestPassive:
    def test_it_asks_so_many_at_random(self) -> None:
        taught, pool = world()
        labels = dp.pate.passive(taught, pool, dp.pate.GNMax(sigma=0.5), size=15, seed=4)
        plan = dp.Pipeline(labels=labels).with_delta(1e-6)
        result = plan.simulate(seed=1, people=rows(200, 1), pool=rows(40, 2))["labels"]
        expected = np.random.default_rng(4).permutation(40)[:15]
        assert set(np.flatnonzero(result >= 0)) == set(expected)
        assert set(result[result < 0]) == {-1}
        at_once = taught.votes(taught.points("some", 15)).release(dp.pate.GNMax(sigma=0.5))
        assert plan.certify().epsilon == dp.Pipeline(x=at_once).with_delta(1e-6).certify().epsilon

    def test_functions(self) -> None:
        assert unasked(3.0).tolist() == [NEVER] * 3  # type: ignore[arg-type]
        assert sorted(random_positions(5, size=5, seed=1)) == [0, 1, 2, 3, 4]
        assert select_points([[1], [2], [3]], [2, 0]).tolist() == [[3], [1]]
        assert record_answers([-2, 0, -2], [2, 0], [1, -1]).tolist() == [-1, 0, 1]
        assert known_answers([-2, -1, 0, 3]).tolist() == [-1, -1, 0, 3]


class TestActive:
    def choose(self, at: Any, answers: Any, **options: Any) -> list[int]:
        from sklearn.linear_model import LogisticRegression

        made = Disagreement(Function.of(LogisticRegression), 2, **options)
        return made.run([np.asarray(at, float), np.asarray(answers)], STREAM).tolist()

    def test_it_asks_where_the_answers_leave_it_open(self) -> None:
        at = np.linspace(-1, 1, 41)[:, None]
        answers = np.full(41, NEVER)
        answers[[0, 1, 2, 3, 37, 38, 39, 40]] = [0, 0, 0, 0, 1, 1, 1, 1]
        chosen = self.choose(at, answers, batch=5, members=40)
        assert max(abs(i - 20) for i in chosen) <= 6

    def test_a_committee_that_has_learned_nothing_asks_at_random(self) -> None:
        """Answers of pure noise: nowhere near the middle more often than elsewhere."""
        draw, near, asked = np.random.default_rng(0), 0, 0
        for seed in range(30):
            at = draw.uniform(-1, 1, (200, 1))
            answers = np.full(200, NEVER)
            answers[:60] = draw.integers(2, size=60)
            chosen = self.choose(at, answers, batch=20, seed=seed)
            near, asked = near + int((abs(at[chosen]) < 0.25).sum()), asked + 20
        assert asked == 600
        assert near < 0.45 * asked  # a quarter at random, more where a committee is skilled by luck

    @pytest.mark.parametrize(("right", "skill"), [(4, 1.0), (3, 0.5), (2, 0.0), (0, 0.0)])
    def test_skill_is_how_far_unseen_answers_are_beaten(self, right: int, skill: float) -> None:
        answers = np.array([0, 0, 1, 1, 1])
        votes = np.eye(2)[1 - answers] * 3
        votes[:right] = np.eye(2)[answers[:right]]
        votes[4] = 0  # of which no member knows nothing
        assert _skill(votes, answers) == skill
        assert _skill(votes * 0, answers) == _skill(votes, answers * 0) == 0

    @pytest.mark.parametrize("answers", [NEVER, -1])
    def test_without_answers_it_asks_at_random(self, answers: int) -> None:
        state = np.full(30, NEVER)
        state[:10] = answers
        chosen = [self.choose(np.eye(30), state, batch=6, seed=seed) for seed in range(20)]
        assert len({tuple(c) for c in chosen}) == 20
        assert all(len(set(c)) == 6 for c in chosen)
        assert {i for c in chosen for i in c} >= set(range(10, 30))  # missed by chance: < 1e-2
        if answers == -1:
            assert min(min(c) for c in chosen) >= 10

    def test_it_asks_nothing_twice(self) -> None:
        taught, pool = world(size=24)
        labels = dp.pate.active(
            taught,
            pool,
            dp.pate.GNMax(sigma=0.01),
            BAYES,
            rounds=4,
            batch=6,
            noisiest=math.inf,
            var_smoothing=0.1,
        )
        plan = dp.Pipeline(labels=labels).with_delta(1e-6)
        public = rows(24, 2)
        outcome = plan.simulate(seed=1, people=rows(300, 1), pool=public)["labels"]
        assert (outcome >= 0).all()
        votes = taught.votes(pool).release(dp.pate.GNMax(sigma=0.01))
        once = dp.Pipeline(labels=votes).with_delta(1e-6)
        other = once.simulate(seed=1, people=rows(300, 1), pool=public)["labels"]
        assert np.mean(outcome == other) > 0.8  # other teachers, of the same people

    def test_it_costs_what_as_many_questions_cost(self) -> None:
        taught, pool = world()
        labels = dp.pate.active(taught, pool, dp.pate.GNMax(sigma=4.0), LINEAR, rounds=3, batch=5)
        at_once = taught.votes(taught.points("some", 15)).release(dp.pate.GNMax(sigma=4.0))
        outcome = [
            dp.Pipeline(x=x).with_delta(1e-6).certify().epsilon
            for x in (labels, dp.pate.student(pool, labels, BAYES), at_once)
        ]
        assert outcome[0] == outcome[1] == pytest.approx(outcome[2], rel=1e-9)

    @pytest.mark.parametrize("noise", [6.0, 4.0])
    @pytest.mark.parametrize("kind", ["gaussian", "laplace", "free"])
    def test_with_much_noise_it_asks_what_passive_asks(self, noise: float, kind: str) -> None:
        """Where the noise exceeds a quarter of the 20 teachers: the same plan, and answers."""
        taught, pool = world()
        mechanism = {
            "gaussian": dp.pate.GNMax(sigma=noise),
            "laplace": dp.pate.LNMax(scale=noise / 2**0.5),
            "free": dp.pate.GNMax(sigma=dp.Free("s")),
        }[kind]
        plain = dp.Pipeline(x=dp.pate.passive(taught, pool, mechanism, size=15, seed=3))
        asked = {"rounds": 3, "batch": 5, "seed": 3}
        for model in (LINEAR, BAYES):
            found = dp.Pipeline(x=dp.pate.active(taught, pool, mechanism, model, **asked))
            same = found.to_document()["nodes"] == plain.to_document()["nodes"]
            # a model of each class's distribution is misled by chosen points at any noise
            assert same == (model == BAYES or (noise > 5 and kind != "free"))
            always = dp.pate.active(taught, pool, mechanism, model, **asked, noisiest=math.inf)
            assert dp.Pipeline(x=always).to_document() != plain.to_document()

    def test_unanswered_questions_are_not_repeated(self) -> None:
        taught, pool = world(size=12)
        strict = dp.pate.ConfidentGNMax(1e6, 1.0, 1.0)
        labels = dp.pate.active(taught, pool, strict, LINEAR, rounds=3, batch=4)
        plan = dp.Pipeline(labels=labels, s=dp.pate.student(pool, labels, BAYES)).with_delta(1e-6)
        result = plan.simulate(seed=1, people=rows(100, 1), pool=rows(12, 2))
        assert result["labels"].tolist() == [-1] * 12
        assert result["s"].predict(rows(3, 1)).tolist() == ["low"] * 3

    def test_errors(self) -> None:
        taught, pool = world()
        vote = dp.pate.GNMax(sigma=1.0)
        for wrong, message in (
            ({"rounds": 0, "batch": 3}, "rounds"),
            ({"rounds": 2, "batch": 2.5}, r"2\.5"),
            ({"rounds": 9, "batch": 9}, r"\b81\b.*\b40\b"),
            ({"rounds": 2, "batch": 3, "members": 1}, "members"),
            ({"rounds": 2, "batch": 3, "seed": -1}, "seed"),
            ({"rounds": 2, "batch": 3, "noisiest": 0}, "noisiest"),
        ):
            with pytest.raises(dp.DeclarationError, match=message):
                dp.pate.active(taught, pool, vote, BAYES, **wrong)  # type: ignore[arg-type]
        with pytest.raises(dp.DeclarationError, match="41 questions"):
            dp.pate.passive(taught, pool, vote, size=41)
        with pytest.raises(dp.DeclarationError, match=r"teachers\.points"):
            dp.pate.passive(taught, dp.public([[0.0]]), vote, size=1)
        with pytest.raises(dp.RunError):
            self.choose(np.eye(3), [0, NEVER, 1], batch=2)
