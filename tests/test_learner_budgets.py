"""A learner's budget determines its own noise, and that of no other release."""

from __future__ import annotations

from typing import Any

import pytest

import adaptive_dp as dp

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
