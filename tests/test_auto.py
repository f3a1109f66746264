"""The rule of public numbers: what it chooses, that it reads no data, and what it cannot take."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.learning.auto import Constant, recommended_classifier
from adaptive_dp.mechanisms.additive import largest_mu

COLUMNS = {"a": (0, 1), "b": ["u", "v"], "y": ["no", "yes"], "k": ["r", "s", "t"], "n": (0, 5)}


@pytest.mark.parametrize(
    ("target", "features", "rows", "delta", "kind"),
    [
        ("y", ["a", "b"], 300, 1e-6, dp.NoisyGradientDescent),
        ("k", ["a", "b"], 300, 1e-6, dp.NoisyGradientDescent),
        ("y", ["a", "b"], 30_000, 1e-6, dp.AdditiveModel),
        ("k", ["a", "b"], 30_000, 1e-6, dp.AdditiveModel),
        ("y", ["a", "b"], 30_000, 0.0, dp.ObjectivePerturbation),
        ("n", ["a"], 30_000, 1e-6, dp.AdditiveModel),
        ("n", ["a"], 150, 1e-6, dp.BoostedSSP),
        ("n", ["a", "b"], 150, 1e-6, dp.AdditiveModel),
        ("n", ["a"], 30_000, 0.0, dp.SSP),
        ("y", ["a", "b"], 80, 1e-6, Constant),
        ("k", ["b"], 80, 1e-6, Constant),
        ("k", ["a"], 30, 0.0, Constant),
        ("n", ["a", "b"], 80, 1e-6, Constant),
        ("n", ["a"], 30, 0.0, Constant),
    ],
)
def test_the_chosen_learners_graph_is_what_is_built(
    target: str, features: list[str], rows: int, delta: float, kind: type[Any]
) -> None:
    table = dp.dataset("rows", columns=COLUMNS)
    auto = dp.Auto(features, target, rows=rows)
    chosen = auto.chosen(table, 1.0, delta)
    assert type(chosen) is kind
    # those that can use a public number of rows are told it
    assert getattr(chosen, "rows", rows) == rows
    plans = [
        dp.Pipeline(m=table.solve(learner, epsilon=1.0, delta=delta)).with_delta(delta)
        for learner in (auto, chosen)
    ]
    assert plans[0].fingerprint == plans[1].fingerprint
    assert 0.995 <= plans[0].certify().epsilon <= 1.0


def test_a_public_size_is_read_and_a_private_one_is_not() -> None:
    few = dp.dataset("rows", columns=COLUMNS, neighbors="replace_one", size=300)
    assert isinstance(dp.Auto(["a"], "y").chosen(few, 1.0, 1e-6), dp.NoisyGradientDescent)
    unknown = dp.dataset("rows", columns=COLUMNS)
    assert isinstance(dp.Auto(["a"], "y").chosen(unknown, 1.0, 1e-6), dp.AdditiveModel)


def test_more_budget_more_rows_and_fewer_features_only_go_one_way() -> None:
    def shapes(rows: int, epsilon: float, features: int) -> bool:
        return recommended_classifier(2, features, epsilon, 1e-6, rows)[0] == "additive_model"

    for low, high in [((100, 1.0, 9), (10**5, 1.0, 9)), ((5000, 0.1, 9), (5000, 8.0, 9))]:
        assert (shapes(*low), shapes(*high)) == (False, True)
    by_width = [shapes(5_000, 1.0, d) for d in (1, 10, 100, 1_000)]
    assert by_width == sorted(by_width, reverse=True)
    assert by_width[0] is True
    assert by_width[-1] is False


@pytest.mark.parametrize("rows", [0, -5, 2.5, "many", True])
def test_rows_that_are_no_number_are_refused(rows: Any) -> None:
    with pytest.raises(dp.DeclarationError):
        dp.Auto(["a"], "y", rows=rows)


@pytest.mark.parametrize("target", ["y", "n", "thin"])
def test_an_epsilon_of_0_is_refused_and_nearly_equal_bounds_are_not_divided_by(target: str) -> None:
    columns = {**COLUMNS, "thin": (0.0, 5e-324)}
    table, learner = dp.dataset("rows", columns=columns), dp.Auto(["a"], target, rows=10)
    with pytest.raises(dp.DeclarationError, match="epsilon"):
        table.solve(learner, epsilon=0.0, delta=0.0)
    assert isinstance(learner.chosen(table, 0.1, 0.0), Constant)


def test_it_learns() -> None:
    data = {"a": np.linspace(0, 1, 4_000)}
    data["y"] = np.where(abs(data["a"] - 0.5) < 0.25, "yes", "no")
    table = dp.dataset("rows", columns={"a": (0, 1), "y": ["no", "yes"]})
    fit = table.solve(dp.Auto(["a"], "y"), epsilon=2.0, delta=1e-6)
    model = dp.Pipeline(m=fit).with_delta(1e-6).simulate(seed=0, rows=data)["m"]
    assert np.mean(dp.predict(model, data, classes=["no", "yes"]) == data["y"]) > 0.95


def test_few_rows_are_answered_by_the_most_frequent_class_or_the_mean() -> None:
    """40 rows at epsilon 1, where 106 are needed (at delta 1e-5 94); of units of two rows twice."""
    draw = np.random.default_rng(0)
    data = {"a": draw.uniform(0, 1, 40), "b": np.full(40, "u"), "n": np.full(40, 4.0)}
    data |= {"k": np.where(np.arange(40) < 35, "t", "r"), "y": np.full(40, "no")}
    table = dp.dataset("rows", columns=COLUMNS)
    made = {
        target: table.solve(dp.Auto(["a", "b"], target, rows=40), epsilon=1.0, delta=1e-6)
        for target in ("k", "n")
    }
    plan = dp.Pipeline(**made).with_delta(2e-6)
    models = plan.simulate(seed=3, rows=data)
    assert set(dp.predict(models["k"], data, classes=["r", "s", "t"])) == {"t"}
    said = dp.predict(models["n"], data)
    # the sum's deviation is 4.2 half widths: .1 of them in the mean, of 2.5 days each
    assert np.ptp(said) == 0
    assert abs(said[0] - 4.0) < 5 * 0.11 * 2.5

    twice = dp.dataset("rows", columns=COLUMNS, unit="person", rows_per_unit=2)
    for rows, kind in ((130, dp.NoisyGradientDescent), (90, Constant)):
        assert type(dp.Auto(["a"], "y", rows=rows).chosen(table, 1.0, 1e-5)) is kind
    assert isinstance(dp.Auto(["a"], "y", rows=130).chosen(twice, 1.0, 1e-5), Constant)


@pytest.mark.parametrize("target", ["k", "n"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_a_constant_has_the_noise_that_is_smaller(target: str, relation: str) -> None:
    """The profile of Laplace noise, 1 - exp((epsilon - 1/b) / 2), by hand; all of it is spent."""
    table = dp.dataset("rows", columns=COLUMNS, neighbors=relation)
    kinds = set()
    for epsilon, delta in ((0.1, 1e-5), (8.0, 1e-5), (0.02, 0.4), (0.003, 0.9), (40.0, 0.02)):
        model = table.solve(Constant(["a"], target, rows=40), epsilon=epsilon, delta=delta)
        plan = dp.Pipeline(m=model).with_delta(delta)
        assert 0.995 * epsilon <= plan.certify().epsilon <= epsilon
        (noise,) = [
            node.handle.operation.mechanism
            for node in plan.structure
            if hasattr(node.handle.operation, "mechanism")
        ]
        kinds.add(type(noise).__name__)
        half, moved = (1.0 if target == "k" else 2.5), 2.0 if relation == "replace_one" else 1.0
        own = moved * half / (epsilon + 2 * math.log(1 / (1 - delta)))
        l2 = half * (math.sqrt(moved) if target == "k" else moved)
        other = l2 / largest_mu(epsilon, delta)
        if isinstance(noise, dp.Laplace):
            assert noise.scale == pytest.approx(own, rel=1e-6)
            assert math.sqrt(2) * own <= other * (1 + 1e-6)
        else:
            assert noise.sigma == pytest.approx(other, rel=1e-3)
            assert other <= math.sqrt(2) * own * (1 + 1e-6)
    assert "Laplace" in kinds


def test_equal_bounds_tell_the_target_and_cost_nothing() -> None:
    table = dp.dataset("rows", columns={"a": (0, 1), "n": (3.0, 3.0)})
    for delta in (0.0, 1e-6):
        fit = table.solve(dp.Auto(["a"], "n", rows=10), epsilon=1.0, delta=delta)
        plan = dp.Pipeline(m=fit).with_delta(delta)
        assert plan.certify().epsilon == 0
        rows = {"a": np.zeros(10), "n": np.full(10, 3.0)}
        assert plan.simulate(seed=1, rows=rows)["m"] == {"intercept": 3.0, "a": 0.0}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bounds", [(-1e289, 1e289), (9e288, 1e289)])
def test_bounds_near_the_largest_number_overflow_nothing(bounds: tuple[float, float]) -> None:
    table = dp.dataset("rows", columns={"a": (0, 1), "n": bounds})
    learners = [dp.BoostedSSP(["a"], "n"), dp.NoisyGradientDescent(["a"], "n", loss=dp.Squared())]
    made = [table.solve(learner, epsilon=1.0, delta=1e-6) for learner in learners]
    plan = dp.Pipeline(first=made[0], second=made[1]).with_delta(2e-6)
    rows = {"a": np.linspace(0, 1, 300), "n": np.linspace(*np.array(bounds) / 2, 300) * 2}
    for model in plan.simulate(seed=1, rows=rows).values():
        assert np.isfinite(list(model.values())).all()


@pytest.mark.parametrize(
    "learner",
    [
        dp.Auto(["a"], "y"),
        dp.Auto(["a"], "y", rows=5),
        dp.AdditiveModel(["a"], "y"),
        dp.OutputPerturbation(["a"], "y"),
        dp.ObjectivePerturbation(["a"], "y"),
        dp.MarginBoosting(["a"], "y"),
        dp.NoisySGD(["a"], "y"),
        dp.PhasedERM(["a"], "y"),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_one_category_is_refused_by_name(learner: Any) -> None:
    table = dp.dataset("rows", columns={"a": (0, 1), "y": ["only"]})
    with pytest.raises(dp.DeclarationError, match="'y' is declared with one category, 'only'"):
        table.solve(learner, epsilon=1.0, delta=1e-6)
