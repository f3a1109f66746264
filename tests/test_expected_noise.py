"""The expected noise that a run reports for its outputs, against closed forms."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

import adaptive_dp as dp

FRAME = {"x": np.linspace(0, 10, 200), "y": np.linspace(10, 0, 200)}


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 10), "y": (0, 10)})


def test_of_a_release_it_is_the_mechanisms_own() -> None:
    plan = dp.Pipeline(
        n=table().count().release(dp.Laplace(scale=3.0)),
        h=table()["x"].histogram([0, 5, 10]).release(dp.Gaussian(sigma=7.0)),
    ).with_delta(1e-6)
    noise = plan.run(t=FRAME).noise
    assert noise["n"] == pytest.approx(math.sqrt(2) * 3, rel=1e-9)
    assert noise["h"] == pytest.approx(np.array([7.0, 7.0]), rel=1e-9)


def test_of_second_moments_off_the_diagonal_it_is_smaller() -> None:
    """The packed matrix counts an entry that stands twice by sqrt(2), so its noise is less."""
    moments = table().vectors(["x", "y"]).gram().release(dp.Gaussian(sigma=4.0))
    noise = dp.Pipeline(m=moments).with_delta(1e-6).run(t=FRAME).noise["m"]
    assert noise == pytest.approx(np.array([[4, 4 / math.sqrt(2)], [4 / math.sqrt(2), 4]]))


def test_of_a_function_it_is_what_noise_does_to_it() -> None:
    """256 draws of a normal deviation: within 25% but with probability below 1e-7."""
    total = table()["x"].sum().release(dp.Gaussian(sigma=6.0))
    plan = dp.Pipeline(half=dp.post(lambda v: v / 2, total)).with_delta(1e-6)
    assert plan.run(t=FRAME).noise["half"] == pytest.approx(3.0, rel=0.25)


def test_a_function_that_fails_on_other_noise_costs_its_own_estimate_only() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    calls: list[float] = []

    def once(value: float) -> float:
        calls.append(value)
        if len(calls) > 1:
            raise ValueError("only once")
        return value

    noise = dp.Pipeline(n=count, once=dp.post(once, count)).run(t=FRAME).noise
    assert noise["once"] is None
    assert noise["n"] == pytest.approx(math.sqrt(2), rel=1e-9)


def test_the_noise_of_a_learner_is_reported_with_others() -> None:
    """Coefficients follow three releases in a group; over simulations they vary as it says.

    Deviations of 30 and of 256 normal draws are a factor of 2.4 apart with probability < 1e-6.
    """
    model = table().solve(dp.SSP(features=["x"], target="y"))
    total = table()["x"].sum().release(dp.Gaussian(sigma=6.0))
    plan = dp.Pipeline(model=model, half=dp.post(lambda v: v / 2, total))
    plan = plan.calibrate(epsilon=20.0, delta=1e-6)
    released = plan.run(t=FRAME)
    assert released.noise["half"] == pytest.approx(3.0, rel=0.25)
    drawn = [plan.simulate(seed=seed, t=FRAME)["model"]["x"] for seed in range(30)]
    assert 1 / 2.4 < released.noise["model"]["x"] / np.std(drawn) < 2.4


def test_nothing_is_computed_before_it_is_read_and_it_is_pickled_as_numbers() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    calls: list[float] = []

    def watched(value: float) -> float:
        calls.append(value)
        return value + 5.0

    result = dp.Pipeline(sum=dp.post(watched, count)).run(t=FRAME)
    assert len(calls) == 1
    again = pickle.loads(pickle.dumps(result))
    assert len(calls) > 200
    assert again["sum"] == result["sum"]
    assert again.noise == result.noise
    assert result.noise["sum"] == pytest.approx(math.sqrt(2), rel=0.7)  # 7% a deviation
    assert again.certificate.to_json() == result.certificate.to_json()
