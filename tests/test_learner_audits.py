"""Every learner by itself, end to end: its releases on neighbouring data do not differ too much.

A bound of an audit at this confidence errs with a chance of 1e-7, so correct learners are accused
less than once in 10^5 runs of all of these tests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from attrs import evolve
from test_learner_budgets import ALL, COLUMNS, PURE

import adaptive_dp as dp

SURE = 1 - 1e-7
SAMPLES = 500  # of each of two neighbours: enough to find what test_too_little_noise_is_found has
# of four steps in place of forty, in the same budget: the same releases, in a tenth of the time
LEARNERS = [evolve(v, steps=4) if isinstance(v, dp.AdditiveModel) else v for v in ALL]


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
    result = plan(learner, 1.0).audit(samples=SAMPLES, confidence=SURE, seed=1)
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
    [
        dp.SSP(["a", "b"], "y"),
        dp.AdditiveModel(["a", "b"], "c", steps=4),
        dp.OutputPerturbation(["a"], "c"),
    ],
    ids=name,
)
def test_too_little_noise_is_found(learner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thirtieth of the Gaussian noise: what the audit above would find."""
    honest = dp.Gaussian.release

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / 30), value, stream)

    made = plan(learner, 1.0)
    monkeypatch.setattr(dp.Gaussian, "release", release)
    result = made.audit(samples=SAMPLES, confidence=SURE, seed=1)
    assert result.verdict == "violation", str(result)
    assert np.isfinite(result.epsilon)


CLUSTERINGS = [dp.statistics.KMeans, dp.statistics.KMedians]


def clusters(kind: Any) -> dp.Pipeline:
    table = dp.dataset("people", columns={"u": (-1, 1), "v": (-1, 1)})
    found = table.solve(kind(["u", "v"], clusters=2), epsilon=1.0, delta=1e-6)
    return dp.Pipeline(found=found).with_delta(1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_clusterings_are_not_accused_with_a_row_planted_among_others(kind: Any) -> None:
    """Rows of two clusters, and one at the edge of the bounds or at a cluster more or less."""
    draw = np.random.default_rng(0)
    centers = np.array([[-0.5, -0.5], [0.5, 0.5]])[np.arange(40) % 2]
    u, v = (centers + 0.05 * draw.standard_normal((40, 2))).T
    result = clusters(kind).audit(samples=600, confidence=SURE, seed=1, people={"u": u, "v": v})
    assert result.verdict != "violation", str(result)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLUSTERINGS)
def test_clusterings_with_a_hundredth_of_the_noise_are_found(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = dp.Gaussian.release

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / 100), value, stream)

    made = clusters(kind)
    monkeypatch.setattr(dp.Gaussian, "release", release)
    result = made.audit(samples=600, confidence=SURE, seed=1)
    assert result.verdict == "violation", str(result)
