"""Classifiers against the most frequent class: what is counted, what is chosen, what it costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.learning import base
from adaptive_dp.learning.additive import additive_scores
from adaptive_dp.learning.additive import better_of_both as better_shapes

COLUMNS = {"a": (0, 10), "b": (-1, 1), "c": ["u", "v", "w"]}


def made(rows: int, classes: int, signal: float, first: float, seed: int = 0) -> dict[str, Any]:
    """Return rows whose class is mostly the first, and else follows the features if ``signal``."""
    draw = np.random.default_rng(seed)
    data: dict[str, Any] = {
        "a": draw.uniform(0, 10, rows),
        "b": draw.uniform(-1, 1, rows),
        "c": draw.choice(["u", "v", "w"], rows),
    }
    noisy = draw.choice(classes, rows, p=[first, *[(1 - first) / (classes - 1)] * (classes - 1)])
    follows = np.minimum((data["a"] / 10 * classes).astype(int), classes - 1)
    data["y"] = np.where(draw.random(rows) < signal, follows, noisy).astype(str)
    return data


def learners(classes: int) -> list[Any]:
    loss = dp.Logistic() if classes == 2 else dp.Multinomial(classes)
    features = list(COLUMNS)
    return [
        dp.ObjectivePerturbation(features, "y"),
        dp.NoisyGradientDescent(features, "y", loss=loss),
        dp.NoisySGD(features, "y", loss=loss, steps=60, sampling_rate=0.5),
        dp.AdditiveModel(features, "y", pairs=0),
        dp.AdditiveModel(features, "y", pairs=2),
        dp.DPFTRL(features, "y", loss=loss, steps=20),
        dp.PhasedERM(features, "y", loss=loss, rounds=40),
        dp.OutputPerturbation(features, "y"),
        *([] if classes > 2 else [dp.MarginBoosting(features, "y")]),
    ]


def named(learner: Any) -> str:
    return type(learner).__name__


@pytest.mark.parametrize(
    ("classes", "place"), [(k, place) for k in (2, 3) for place in range(len(learners(k)))]
)
def test_the_released_numbers_are_those_of_the_models_own_predictions(
    classes: int, place: int
) -> None:
    """With next to no noise: rows by class, and the rows that the released model gets right."""
    table = dp.dataset("rows", columns={**COLUMNS, "y": [str(k) for k in range(classes)]})
    model = table.solve(learners(classes)[place])
    nodes = {node.name.split(".")[-1]: node.handle for node in dp.Pipeline(model=model).structure}
    plan = dp.Pipeline(model=model, right=nodes["right"], classes=nodes["classes"])
    data = made(400, classes, 0.6, 0.5)
    result = plan.with_delta(1e-5).fix(sigma=0.05).simulate(seed=3, rows=data)
    said = dp.predict(result["model"], data, classes=[str(k) for k in range(classes)])
    right = np.sum(said == data["y"])
    counts = [np.sum(data["y"] == str(k)) for k in range(classes)]
    if classes == 2:  # differences of two numbers
        right, counts = 2 * right - 400, counts[1] - counts[0]
    assert abs(result["right"] - right) < 3
    np.testing.assert_allclose(result["classes"], counts, atol=3)


@pytest.mark.parametrize(
    "place", range(len(learners(2))), ids=[named(learner) for learner in learners(2)]
)
def test_where_nothing_can_be_learned_the_answer_is_the_most_frequent_class(place: int) -> None:
    """Labels without signal, three in four alike, and a small budget: in 10 fits of each learner.

    Without the check every one of them is wrong in a quarter of the rows or more on average.
    """
    table = dp.dataset("rows", columns={**COLUMNS, "y": ["0", "1"]})
    model = table.solve(learners(2)[place], epsilon=0.1, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    right = []
    for seed in range(10):
        data = made(2_000, 2, 0.0, 0.25, seed)
        said = dp.predict(plan.simulate(seed=seed, rows=data)["model"], data, classes=["0", "1"])
        right.append(np.mean(said == data["y"]))
    assert np.mean(right) > 0.735
    assert np.median(right) > 0.745


def test_expected_share_is_not_fooled_by_the_largest_of_noisy_counts() -> None:
    draw = np.random.default_rng(5)
    noisy = 1_000 + draw.normal(0, 100, (400, 26))
    estimates = [base.expected_share(row, 100.0) for row in noisy]
    assert np.mean(noisy.max(axis=1)) > 1_150
    assert abs(np.mean(estimates) - 1_000) < 60
    assert base.expected_share(np.array([3_000.0, 1_000.0]), 1.0) == pytest.approx(3_000, abs=1)


@pytest.mark.parametrize("rows", [-50.0, 0.0, 100.0, 1e6])
def test_signed_sums_are_compared_whatever_the_released_number_of_rows(rows: float) -> None:
    """A model is kept if it is right by more than the most frequent class; else that is said."""
    shapes = {"x": {"edges": [0.0, 1.0], "scores": np.array([0.2]), "missing": 0.0}}
    for odd in (-80.0, -5.0, 5.0, 80.0):
        for more in (-90.0, 4.0, 6.0, 79.0, 81.0):
            # without a feature nothing is taken off for the fit to these rows
            found = base.better_of_both([0.3], more, odd, 0.0, rows, width=1)
            assert (found[0] == 0.3) == (more > abs(odd))
            assert more > abs(odd) or np.sign(found[0]) == np.sign(odd)
            if abs(more - abs(odd)) > 1 + base.OPTIMISM * math.sqrt(max(rows, 100.0)):
                shaped = better_shapes({"intercept": 0.3, "shapes": shapes}, more, odd, 0.0, rows)
                assert (shaped["intercept"] == 0.3) == (more > abs(odd))


def test_a_signed_sum_is_shrunk_by_its_noise() -> None:
    """Of a difference that noise explains neither class is expected to be the more frequent."""
    for odd, more, kept in ((10.0, 1.0, True), (10.0, -1.0, False), (100.0, 50.0, False)):
        found = base.better_of_both([0.3], more, odd, 20.0, 500.0, width=1)
        assert (found[0] == 0.3) == kept
    # 100 of noise 50 is expected to be (1 - 1/4) 100
    for more, kept in ((74.0, False), (76.0, True)):
        found = base.better_of_both([0.3], more, 100.0, 50.0, 500.0, width=1)
        assert (found[0] == 0.3) == kept


@pytest.mark.parametrize("outputs", [1, 4])
def test_a_linear_answer_is_constant_and_keeps_the_order(outputs: int) -> None:
    """On random rows in [-1, 1]: always the class of the most rows, scores in their order."""
    draw = np.random.default_rng(outputs)
    for _ in range(50):
        counts = draw.uniform(0, 500, max(outputs, 2))
        theta = draw.normal(size=(outputs, 6)) * 10.0 ** draw.uniform(-3, 6)
        kept = base.better_of_both(theta.reshape(-1), 1e9, counts, 1.0, width=6)
        np.testing.assert_array_equal(kept, theta.reshape(-1))
        flat = base.better_of_both(theta.reshape(-1), -1e9, counts, 1.0, width=6).reshape(-1, 6)
        rows = np.column_stack([np.ones(500), draw.choice([-1.0, -0.3, 1.0], (500, 5))])
        scores = flat @ rows.T
        said = (scores[0] > 0).astype(int) if outputs == 1 else scores.argmax(axis=0)
        assert set(said.tolist()) == {int(counts.argmax())}
        if outputs == 1:
            before = rows[:, 1:] @ theta[0, 1:]
            np.testing.assert_array_equal(np.argsort(before), np.argsort(rows[:, 1:] @ flat[0, 1:]))


def test_an_additive_answer_is_constant_and_keeps_the_order() -> None:
    shapes = {
        "x": {"edges": [0.0, 1.0, 2.0], "scores": np.array([-5.0, 8.0]), "missing": 3.0},
        "c": {"categories": ["u", "v"], "scores": np.array([1.0, -1.0]), "missing": 0.0},
    }
    model = {"intercept": 0.5, "shapes": shapes}
    rows = {"x": np.array([0.5, 1.5, np.nan]), "c": np.array(["u", "v", "u"], dtype=object)}
    assert better_shapes(model, 90.0, [60.0, 40.0], 1.0) is model
    flat = better_shapes(model, 50.0, [60.0, 40.0], 1.0)
    scores, before = additive_scores(flat, rows), additive_scores(model, rows)
    assert (scores < 0).all()
    np.testing.assert_array_equal(np.argsort(scores), np.argsort(before))
    # the mean log odds of the shares
    assert flat["intercept"] == pytest.approx(math.log(40 / 60))
