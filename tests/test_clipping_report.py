"""What `dp.clipped` says of a learner's rows against the rows themselves, and what it costs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp

LABELS = ["0", "1", "2"]
COLUMNS = {"a": (-1, 1), "b": (0, 5), "t": ["u", "v"], "y": (0, 10), "c": LABELS}


def rows(count: int = 4_000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "a": rng.uniform(-1, 1, count),
        "b": rng.uniform(-1, 4, count),
        "t": rng.choice(["u", "v"], count),
        "y": rng.normal(9, 2, count),
        "c": rng.choice(LABELS, count),
    }


def report(learner: Any, model: Any = None, b: float = 0.01) -> dict[str, Any]:
    people = dp.dataset("people", columns=COLUMNS)
    plan = dp.Pipeline(report=dp.clipped(learner, people, model)).fix(b=b).with_delta(0.0)
    result: dict[str, Any] = plan.simulate(seed=1, people=rows())["report"]
    return result


def test_rows_outside_of_bounds_are_counted_and_warned_of() -> None:
    data, said = rows(), report(dp.AdditiveModel(["a", "b", "t"], "y"))
    assert said["rows"] == pytest.approx(4_000, abs=1)
    assert list(said["outside"]) == ["y", "a", "b"]
    beyond = np.mean((data["y"] < 0) | (data["y"] > 10))
    assert said["outside"]["y"] == pytest.approx(beyond, abs=1e-3)
    assert said["outside"]["b"] == pytest.approx(np.mean(data["b"] < 0), abs=1e-3)
    assert said["outside"]["a"] == pytest.approx(0, abs=1e-3)
    assert [name for name in "yab" if any(repr(name) in w for w in said["warnings"])] == ["y", "b"]
    assert said["gradients"] is None


def test_noise_that_could_be_it_is_no_warning() -> None:
    # a fifth of the rows, and noise of a few hundred
    assert report(dp.SSP(["a", "b"], "y"), b=300.0)["warnings"] == []


@pytest.mark.parametrize("clip", [0.02, 0.2, 2.0])
def test_long_gradients_are_counted_at_the_released_model(clip: float) -> None:
    """Of Huber's loss: a gradient is the slope, at most its width, times the row."""
    learner = dp.NoisyGradientDescent(["a"], "y", loss=dp.Huber(0.5), clip=clip)
    known = {"intercept": 8.0, "a": 1.0}
    said = report(learner, dp.public(known))
    data = rows()
    residual = (known["intercept"] + data["a"] - np.clip(data["y"], 0, 10)) / 5
    length = np.abs(np.clip(residual, -0.5, 0.5)) * np.sqrt(1 + data["a"] ** 2)
    # the learner's clip is for rows of norm 1, and they are up to the root of 2 long
    share = np.mean(length > clip * np.sqrt(2))
    assert said["gradients"] == pytest.approx(share, abs=2e-3)
    assert any("clip of" in warning for warning in said["warnings"]) == (share > 0.06)


def test_classes_have_a_clip_by_default_and_numbers_one_that_is_not_known() -> None:
    zero = {label: {"intercept": 0.0, "a": 0.0} for label in LABELS}
    classes = dp.NoisyGradientDescent(["a"], "c", loss=dp.Multinomial(3))
    # at 0 each slope is the root of 2/3 long, and all rows have norm 1
    assert report(classes, dp.public(zero))["gradients"] == pytest.approx(1, abs=1e-3)
    numbers = dp.NoisyGradientDescent(["a"], "y", loss=dp.Squared())
    assert report(numbers, dp.public({"intercept": 0.0, "a": 0.0}))["gradients"] is None


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_its_cost_is_that_of_its_releases(relation: str) -> None:
    table = dp.dataset("people", columns=COLUMNS, neighbors=relation, unit="who", rows_per_unit=3)
    learner = dp.Standardised(dp.SSP(["a", "b"], "y"))
    plan = dp.Pipeline(report=dp.clipped(learner, table)).calibrate(epsilon=0.5, delta=0.0)
    assert 0.4999 < plan.certify().epsilon <= 0.5
    scale = {each.name: each.mechanism.scale for each in plan.structure.releases}
    # three rows; three columns, each of whose counts moves by three
    assert scale["outside"] == pytest.approx(3 * scale["rows"], rel=1e-6)
