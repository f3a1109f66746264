"""The learner: its budget, its ridge, what it learns, and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp import erm as pb
from adaptive_dp.learning.output_perturbation import TYPICAL, balanced_ridge, project_onto_ball

NAMES = [f"x{i}" for i in range(5)]


def table(**more: Any) -> dp.Table:
    columns: dict[str, Any] = dict.fromkeys(NAMES, (-1, 1))
    columns |= {"sign": ["n", "p"], "kind": ["a", "b", "c"], "y": (-2, 2), "k": (0, 6)}
    return dp.dataset("people", columns=columns, **more)


def frame(n: int = 8000) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    x = draw.uniform(-1, 1, (n, 5))
    z = x @ [2.0, -1.5, 1.0, 0.0, 0.5]
    kinds = (x @ draw.normal(size=(5, 3)) * 3 + draw.gumbel(size=(n, 3))).argmax(axis=1)
    return {
        **{name: x[:, i] for i, name in enumerate(NAMES)},
        "sign": np.where(z + draw.logistic(size=n) / 2 > 0, "p", "n"),
        "kind": np.array(["a", "b", "c"])[kinds],
        "y": np.clip(0.3 + z / 3 + 0.1 * draw.normal(size=n), -2, 2),
        "k": np.minimum(draw.poisson(np.exp(z / 4)), 6).astype(float),
        "id": np.arange(n) // 2,
    }


DATA = frame()


def fit(solver: Any, epsilon: float = 1.0, delta: float | None = 1e-6, **more: Any) -> Any:
    learned = table(**more).solve(solver, epsilon=epsilon, delta=delta)
    plan = dp.Pipeline(m=learned).with_delta(delta or 0.0)
    assert 0.99 * epsilon < plan.certify().epsilon <= epsilon
    return plan.simulate(seed=2, people=DATA)["m"]


def score(model: Any) -> Any:
    return model["intercept"] + sum(model[name] * DATA[name] for name in NAMES)


def right(model: Any) -> float:
    return float(((score(model) > 0) == (DATA["sign"] == "p")).mean())


@pytest.mark.parametrize("noise", ["gaussian", "norm"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ridge": 30.0},
        {"loss": pb.SmoothedHinge(0.5)},
        {"adversary": 0.05},
        {"ridge": 0.01, "radius": 3.0, "tilt": 0.5, "rows": 5000},
        {"optimizer": lambda objective: np.zeros(objective.width)},
    ],
    ids=["default", "ridge", "hinge", "adversary", "tilt", "optimizer"],
)
def test_two_classes(noise: Any, more: Any) -> None:
    solver = dp.OutputPerturbation(NAMES, "sign", noise=noise, **more)
    model = fit(solver, delta=1e-6 if noise == "gaussian" else None)
    most = max(np.mean(DATA["sign"] == s) for s in ("n", "p"))
    assert right(model) > most + 0.2


def test_several_classes() -> None:
    model = fit(dp.OutputPerturbation(NAMES, "kind"), epsilon=4.0)
    predicted = np.array([score(model[k]) for k in "abc"]).argmax(axis=0)
    assert (np.array(["a", "b", "c"])[predicted] == DATA["kind"]).mean() > 0.6


@pytest.mark.parametrize(
    "more",
    [
        {"ridge": 30.0},
        {},
        {"loss": pb.Huber(0.5)},
        {"adversary": None, "ridge": 30.0, "tilt": None},
    ],
)
def test_numbers(more: Any) -> None:
    solver = dp.OutputPerturbation(NAMES, "y", **{"radius": 1.0, **more})
    model = fit(solver, epsilon=4.0)
    off = np.mean((score(model) - DATA["y"]) ** 2)
    assert off < 0.5 * DATA["y"].var()


def test_both_ways_to_squared_losses_agree() -> None:
    """From exact moments and by descent over rows: the same minimizer under huge budgets."""

    def zero(objective: Any) -> np.ndarray:
        return np.zeros(objective.width)

    ways = [{}, {"optimizer": zero}]
    fits = [fit(dp.OutputPerturbation(NAMES, "y", ridge=3.0, **way), epsilon=1e6) for way in ways]
    for name in ("intercept", *NAMES):
        assert fits[0][name] == pytest.approx(fits[1][name], abs=5e-3)


def test_counts() -> None:
    solver = dp.OutputPerturbation(NAMES, "k", loss=pb.Poisson(most=6.0), radius=1.0)
    model = fit(solver, epsilon=4.0)
    assert abs(np.corrcoef(score(model), DATA["k"])[0, 1]) > 0.2


def test_units_of_several_rows_and_every_relation() -> None:
    for more in (
        {"neighbors": "replace_one"},
        {"neighbors": "zero_out"},
        {"unit": "id", "rows_per_unit": 2},
    ):
        for noise, delta in (("gaussian", 1e-6), ("norm", None)):
            model = fit(dp.OutputPerturbation(NAMES, "sign", noise=noise), 2.0, delta, **more)
            assert right(model) > 0.7


def test_what_is_free_is_calibrated() -> None:
    for noise, delta in (("gaussian", 1e-6), ("norm", 0.0)):
        learned = table().solve(dp.OutputPerturbation(NAMES, "sign", noise=noise))
        plan = dp.Pipeline(m=learned).calibrate(epsilon=0.7, delta=delta)
        assert 0.69 < plan.certify().epsilon <= 0.7


def test_the_number_of_rows_costs_a_hundredth() -> None:
    """Read off the plan: epsilons add under the norm mechanism, squared mus under the other."""
    for noise, power, delta in (("norm", 1, 0.0), ("gaussian", 2, 1e-6)):
        learned = table().solve(dp.OutputPerturbation(NAMES, "sign", noise=noise))
        plan = dp.Pipeline(m=learned).calibrate(epsilon=1.0, delta=delta)
        scales = {}
        for node in plan.structure:
            mechanism = getattr(node.handle.operation, "mechanism", None)
            scale = getattr(mechanism, "sigma", getattr(mechanism, "scale", None))
            scales[node.name.split(".")[-1]] = scale
        count, coefficients = scales["number_of_rows"], scales["coefficients"]
        shares = (1 / count) ** power, (1.002 / coefficients) ** power  # sensitivities 1 and L
        assert shares[0] / sum(shares) == pytest.approx(0.01, rel=2e-3)


def test_odd_data() -> None:
    numbers, labels = np.array([math.nan, math.inf, -1e308]), np.array(["n", "p", "neither"])
    odd = dict.fromkeys([*NAMES, "y", "k"], numbers) | dict.fromkeys(["sign", "kind"], labels)
    learned = table().solve(dp.OutputPerturbation(NAMES, "sign"), epsilon=1.0, delta=1e-6)
    plan = dp.Pipeline(m=learned)
    for data in (odd, {c: v[:0] for c, v in odd.items()}):
        model = plan.with_delta(1e-6).simulate(seed=1, people=data)["m"]
        assert all(math.isfinite(v) for v in model.values())


def test_the_balanced_ridge_is_the_least_of_bias_and_noise() -> None:
    """Against a grid of ridges, for the sum of the two that its docstring names."""
    n, s, bend, radius = 5000.0, 3.0, 0.25, 2.0
    ridge = balanced_ridge(n, 1.0, spread=s, bend=bend, radius=radius)
    ridges = np.geomspace(ridge / 10, ridge * 10, 2001)
    harm = ridges * TYPICAL**2 / (2 * radius**2) + n * bend * radius**2 * s**2 / (2 * ridges**2)
    assert ridges[harm.argmin()] == pytest.approx(ridge, rel=5e-3)
    for number, noise in ((-1e300, 1.0), (math.inf, 1.0), (1.0, 1e300)):
        assert 0 < balanced_ridge(number, noise, spread=s, bend=bend, radius=radius) < math.inf


def test_the_ball_comes_after_the_noise() -> None:
    assert np.linalg.norm(project_onto_ball([3.0, 4.0], radius=1.0)) <= 1.0
    assert np.array_equal(project_onto_ball([0.3, 0.4], radius=1.0), [0.3, 0.4])
    solver = dp.OutputPerturbation(NAMES, "sign", radius=0.5, ridge=1.0)
    model = fit(solver, epsilon=0.01)
    assert np.linalg.norm([model[name] for name in NAMES]) <= 0.5 + 1e-9


def test_its_arguments() -> None:
    for bad, said in (
        (lambda: dp.OutputPerturbation(NAMES, "sign", noise="laplace"), "'gaussian' or 'norm'"),  # type: ignore[arg-type]
        (lambda: dp.OutputPerturbation(NAMES, "sign", tilt=1.0), "needs a ridge"),
        (lambda: dp.OutputPerturbation(NAMES, "sign", ridge=-1.0), r"\bridge\b"),
        (lambda: dp.OutputPerturbation(NAMES, "sign", radius=math.inf), r"\bradius\b"),
        (lambda: fit(dp.OutputPerturbation(NAMES, "sign", loss=pb.Hinge())), "SmoothedHinge"),
        (lambda: fit(dp.OutputPerturbation(NAMES, "sign"), 1.0, None), "OutputPerturbation"),
    ):
        with pytest.raises(dp.DeclarationError, match=said):
            bad()
