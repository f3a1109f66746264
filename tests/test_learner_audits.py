"""Every learner by itself, end to end: its releases on neighbouring data do not differ too much.

A bound of an audit at this confidence errs with a chance of 1e-7, so correct learners are accused
less than once in 10^5 runs of all of these tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_learner_budgets import ALL, COLUMNS, PURE

import adaptive_dp as dp

SURE = 1 - 1e-7
LEARNERS = [*ALL, dp.AdditiveModel(["a", "b"], "c")]


def name(learner: Any) -> str:
    return f"{type(learner).__name__}-{learner.target}{'-pure' * getattr(learner, 'pure', 0)}"


def plan(learner: Any, epsilon: float) -> dp.Pipeline:
    pure = type(learner).__name__ in PURE or getattr(learner, "pure", False)
    delta = 0.0 if pure else 1e-6
    table = dp.dataset("people", columns=COLUMNS)
    model = table.solve(learner, epsilon=epsilon, delta=delta)
    return dp.Pipeline(model=model).with_delta(delta)


@pytest.mark.slow
@pytest.mark.parametrize("learner", LEARNERS, ids=name)
def test_defaults_are_not_accused(learner: Any) -> None:
    result = plan(learner, 1.0).audit(samples=1_500, confidence=SURE, seed=1)
    assert result.verdict != "violation", str(result)


@pytest.mark.slow
@pytest.mark.parametrize("norms", [[1.0, None], [0.5, 1.0, 1.2, 1.4, None]])
def test_what_is_tuned_is_not_accused(norms: list[float | None]) -> None:
    """All of a few candidates are run, or a random number of many."""
    table, learner = dp.dataset("people", columns=COLUMNS), dp.SSP(["a", "b"], "y")
    best = dp.tune(table, learner, {"norm": norms}, epsilon=1.0, delta=1e-6)
    result = dp.Pipeline(best=best).with_delta(1e-6).audit(samples=1_500, confidence=SURE, seed=1)
    assert result.verdict != "violation", str(result)


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner",
    [dp.SSP(["a", "b"], "y"), dp.AdditiveModel(["a", "b"], "c"), dp.OutputPerturbation(["a"], "c")],
    ids=name,
)
def test_too_little_noise_is_found(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thirtieth of the Gaussian noise: what the audit above would find."""
    honest = dp.Gaussian.release

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / 30), value, stream)

    made = plan(learner, 1.0)
    monkeypatch.setattr(dp.Gaussian, "release", release)
    result = made.audit(samples=1_500, confidence=SURE, seed=1)
    assert result.verdict == "violation", str(result)
    assert np.isfinite(result.epsilon)
