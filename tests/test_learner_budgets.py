"""A learner's budget determines its own noise, and that of no other release."""

from __future__ import annotations

from typing import Any

import pytest
from objectives import moved_rows
from plans import tied

import adaptive_dp as dp
from adaptive_dp import erm
from adaptive_dp.learning.auto import Constant

LEARNERS = [
    dp.NoisyGradientDescent(["x"], "y", steps=2),
    dp.NoisySGD(["x"], "y", steps=2, sampling_rate=0.5, adaptive=dp.Clipping()),
    dp.DPFTRL(["x"], "y", steps=2),
    dp.PhasedERM(["x"], "y", phases=2, rounds=2),
]


def half(value: float) -> float:
    return float(value) / 2


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("name", ["sigma", "other"])
def test_noise_that_is_free_before_the_learner_is_refused(learner: Any, name: str) -> None:
    # of the learner's own name it would be solved too, in a copy that the caller has no handle of
    table = dp.dataset("people", columns={"x": (0, 1), "y": ["a", "b"]})
    released = table["x"].sum().release(dp.Gaussian(sigma=dp.Free(name)))
    some = table.filter(table["x"] <= dp.post(half, released))
    with pytest.raises(dp.DeclarationError):
        some.solve(learner, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda v: type(v).__name__)
def test_a_table_that_follows_a_loop_is_refused(learner: Any) -> None:
    table = dp.dataset("people", columns={"x": (0, 1), "y": ["a", "b"]})

    def body(state: Any) -> Any:
        return table.filter(table["x"] <= state).solve(learner, epsilon=1.0, delta=1e-6)

    with pytest.raises(dp.DeclarationError):
        dp.repeat(body, 3, start=0.5)


COLUMNS = {"a": (-1, 1), "b": (0, 5), "y": (-3, 3), "c": ["no", "yes"], "k": ["r", "s", "t"]}
AB = ["a", "b"]
ALL = [
    Constant(AB, "y", rows=100),
    Constant(AB, "k", rows=100),
    dp.SSP(AB, "y"),
    dp.SSP(AB, "y", pure=True),
    dp.AdaSSP(AB, "y"),
    dp.BoostedSSP(AB, "y"),
    dp.AdditiveModel(AB, "y"),
    dp.AdditiveModel(AB, "c"),
    dp.AdditiveModel(AB, "k"),
    dp.AdditiveModel(["c", "a"], "y"),
    dp.AdditiveModel(["c"], "y"),
    dp.AdditiveModel(["c", "a", "k"], "y", pairs=2),
    dp.MarginBoosting(AB, "c"),
    dp.AdaOPS(AB, "y"),
    dp.AdaptiveOutputPerturbation(AB, "y"),
    dp.OPS(AB, "y"),
    dp.OutputPerturbation(AB, "y"),
    dp.OutputPerturbation(AB, "c", noise="norm"),
    dp.OutputPerturbation(["a"], "c", game=erm.Game(moved_rows, slope=1.1)),
    dp.OutputPerturbation(["b"], "c", noise="norm", ridge=3.0, game=erm.Game(moved_rows, 1.1)),
    dp.OutputPerturbation(AB, "y", game=erm.Game(tied, slope=1.0, shift=1.0, strong_concavity=1.0)),
    dp.ObjectivePerturbation(AB, "c"),
    dp.ObjectivePerturbation(AB, "k"),
    dp.NoisyGradientDescent(AB, "c"),
    dp.NoisyGradientDescent(AB, "k", loss=dp.Multinomial(3)),
    dp.NoisySGD(AB, "c", steps=50),
    dp.NoisySGD(AB, "c", steps=40, sampling_rate=0.1, reference=10),
    dp.NoisySGD(AB, "y", dp.Squared(), steps=20, sampling_rate=0.1, reference=5),
    dp.NoisySGD(AB, "k", loss=dp.Multinomial(3), steps=50, adaptive=dp.Clipping()),
    dp.DPFTRL(AB, "c"),
    dp.PhasedERM(AB, "c"),
    dp.ExponentialSampling(AB, "c"),
    dp.ExponentialSampling(AB, "y", dp.Huber()),
    dp.FiniteLearner(AB, "y", [[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]], loss=dp.Absolute(), width=1.0),
]
RELATIONS: dict[str, dict[str, Any]] = {
    "add_remove": {},
    "replace_one": {"neighbors": "replace_one", "size": 1000},
    "zero_out": {"neighbors": "zero_out", "size": 1000},
    "three rows a unit": {"unit": "person", "rows_per_unit": 3},
    "three rows of an exchanged unit": {
        **{"neighbors": "replace_one", "size": 1000, "unit": "person", "rows_per_unit": 3},
    },
    "three rows of a zeroed unit": {
        **{"neighbors": "zero_out", "size": 1000, "unit": "person", "rows_per_unit": 3},
    },
}
PURE = ("OPS", "FiniteLearner")


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "learner",
    ALL,
    ids=lambda v: "-".join(
        [type(v).__name__, *v.features, v.target, *(["pure"] * getattr(v, "pure", 0))]
    ),
)
def test_the_certificate_is_all_of_the_budget(learner: Any, relation: str) -> None:
    table = dp.dataset("people", columns=COLUMNS, **RELATIONS[relation])
    kind = type(learner).__name__
    delta = 0.0 if kind in PURE or getattr(learner, "pure", False) else 1e-6
    model = table.solve(learner, epsilon=1.0, delta=delta)
    assert 0.995 <= dp.Pipeline(model=model).with_delta(delta).certify().epsilon <= 1.0


@pytest.mark.parametrize(
    ("learner", "epsilon", "delta", "relation"),
    [
        # epsilon falls by far more than the noise rises: more digits of the noise are needed
        pytest.param(
            *(dp.ObjectivePerturbation(AB, "k"), 0.00936, 0.3, "replace_one"),
            marks=pytest.mark.slow,
        ),
        # one model's profile is loose at a large delta, and its Renyi divergence is not
        (dp.ObjectivePerturbation(AB, "y", dp.Huber()), 0.2, 0.3, "three rows a unit"),
        (dp.ObjectivePerturbation(AB, "c", dp.SmoothedHinge()), 0.7, 0.9, "replace_one"),
        # the failures of bounds are independent of what they bound
        (dp.AdaOPS(AB, "y"), 1.0, 0.3, "three rows a unit"),
        (dp.AdaptiveOutputPerturbation(AB, "y"), 0.22, 0.3, "zero_out"),
        # noise so large that the steps of its lattice are some of what is released
        (dp.AdditiveModel(AB, "k"), 0.00056, 6.5e-25, "zero_out"),
        (dp.AdditiveModel(AB, "y"), 0.001, 1e-100, "replace_one"),
        # a Gaussian's mu of a choice is above what it costs here
        (dp.AdditiveModel(["c", "a", "k"], "y", pairs=2), 0.001, 0.03, "three rows a unit"),
        # another accountant is the tightest at the answer than near it
        pytest.param(
            *(dp.OutputPerturbation(AB, "c", noise="norm"), 0.0056, 0.3, "replace_one"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "features") else str(v),
)
def test_so_is_that_of_a_budget_which_is_small_or_whose_delta_is_large(
    learner: Any, epsilon: float, delta: float, relation: str
) -> None:
    table = dp.dataset("people", columns=COLUMNS, **RELATIONS[relation])
    model = table.solve(learner, epsilon=epsilon, delta=delta)
    assert 0.995 <= dp.Pipeline(model=model).with_delta(delta).certify().epsilon / epsilon <= 1.0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_largest_budget_is_no_error(delta: float) -> None:
    # e^(a tenth of epsilon) is no float
    table = dp.dataset("people", columns=COLUMNS)
    model = table.solve(dp.ObjectivePerturbation(AB, "c"), epsilon=1e4, delta=delta)
    assert dp.Pipeline(model=model).with_delta(delta).certify().epsilon <= 1e4


def test_a_delta_that_samples_keep_without_noise_is_refused() -> None:
    # of 50 samples at .02 a unit is in none with probability .364
    table = dp.dataset("people", columns=COLUMNS)
    with pytest.raises(dp.DeclarationError, match=r"delta below 0\.636"):
        table.solve(dp.NoisySGD(AB, "c", steps=50), epsilon=50.0, delta=0.9)
