"""A network learns what no linear model can, and its model predicts by itself."""

from __future__ import annotations

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.learning.networks import initial_parameters

COLUMNS = {"u": (-2.0, 2.0), "v": (0.0, 4.0), "w": ["a", "b"], "s": ["N", "P"], "y": (-3.0, 5.0)}


def rows(seed, n=3000):
    draw = np.random.default_rng(seed)
    u, v = draw.uniform(-2, 2, n), draw.uniform(0, 4, n)
    w = draw.choice(["a", "b"], n)
    s = np.where(u * (v - 2) > 0, "P", "N")
    return {"u": u, "v": v, "w": w, "s": s, "y": u * (v - 2)}


def fitted(learner, epsilon=4.0):
    table = dp.dataset("t", columns=COLUMNS)
    plan = dp.Pipeline(fit=table.solve(learner, epsilon=epsilon, delta=1e-6)).with_delta(1e-6)
    assert 0.9 * epsilon < plan.certify().epsilon <= epsilon
    return dp.load(plan.to_json()).simulate(seed=1, t=rows(0))["fit"]


def learner(activation="tanh", **more):
    network = dp.Network(dp.Logistic(), hidden=12, activation=activation)
    options = {"steps": 120, "sampling_rate": 0.1, "learning_rate": 3.0, **more}
    return dp.NoisySGD(["u", "v", "w"], "s", loss=network, **options)


CASES = {
    "tanh": {},
    "relu": {"activation": "relu"},
    "adaptive": {"adaptive": dp.Clipping()},
    "longer rows": {"norm": 2.0, "learning_rate": 1.0},
}


@pytest.mark.parametrize("case", CASES)
def test_exclusive_or(case):
    """Of a fixed seed; a linear model gets half of it."""
    model = fitted(learner(**CASES[case]))
    test = rows(7)
    assert np.mean(dp.predict(model, test) == test["s"]) > 0.85
    scores = dp.network_scores(model, {name: test[name].tolist() for name in ("u", "v", "w")})
    assert scores.shape == (1, 3000)
    assert ((scores[0] > 0) == (dp.predict(model, test) == "P")).all()


def test_classes():
    columns = {**COLUMNS, "s": ["N", "P", "far"]}
    table = dp.dataset("t", columns=columns)
    network = dp.Network(dp.Multinomial(3), hidden=12)
    fit = table.solve(
        dp.NoisySGD(["u", "v"], "s", loss=network, steps=120, sampling_rate=0.1, learning_rate=3.0),
        epsilon=4.0,
        delta=1e-6,
    )

    def far(data):
        return {**data, "s": np.where(np.abs(data["u"]) > 1.5, "far", data["s"])}

    model = dp.Pipeline(fit=fit).with_delta(1e-6).simulate(seed=1, t=far(rows(0)))["fit"]
    test = far(rows(7))
    assert np.mean(dp.predict(model, test) == test["s"]) > 0.8


def test_all_rows_in_each_round():
    full_batch = dp.NoisyGradientDescent(
        ["u", "v"], "s", loss=dp.Network(dp.Logistic(), 8), steps=60
    )
    test = rows(7)
    assert np.mean(dp.predict(fitted(full_batch), test) == test["s"]) > 0.9


def test_a_number():
    model = fitted(
        dp.NoisySGD(
            ["u", "v"], "y", loss=dp.Network(dp.Squared(), hidden=12), steps=150, sampling_rate=0.1
        )
    )
    test = rows(7)
    error = np.mean((dp.predict(model, test) - test["y"]) ** 2)
    assert error < 0.4 * np.var(test["y"])


def test_the_start_is_public():
    again = initial_parameters([3, 4, 2], radius=2.0)
    assert (again == initial_parameters([3, 4, 2], radius=2.0)).all()
    assert again.shape == (3 * 4 + 2 * 4,)


def test_adam_learns_what_momentum_does():
    for adaptive in (None, dp.Clipping()):
        learner = dp.NoisySGD(
            ["u", "v"], "s", steps=200, sampling_rate=0.05, adam=True, adaptive=adaptive
        )
        model = fitted(learner)
        assert set(model) == {"intercept", "u", "v"}
