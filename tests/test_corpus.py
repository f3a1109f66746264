"""Benchmarks' tables and the regret of the rule: sets are read as declared, and means are means."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("sklearn")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import corpus
import regret


@pytest.mark.parametrize(
    ("name", "rows", "features", "classes"),
    [("breast_cancer", 569, 30, 2), ("diabetes", 442, 10, 0)],
)
def test_a_set_is_read_with_bounds_around_its_data(
    name: str, rows: int, features: int, classes: int
) -> None:
    these = corpus.load(name)
    assert len(these.data["target"]) == rows
    assert len(these.features) == features
    assert these.classes == classes
    for column, declared in these.columns.items():
        if isinstance(declared, tuple):
            assert (
                declared[0] <= these.data[column].min() <= these.data[column].max() <= declared[1]
            )
    x, bounds = corpus.one_hot(these)
    assert x.shape == (rows, features) == (rows, len(bounds))


def test_a_missing_package_is_named() -> None:
    sets = {"x": corpus.Source("no_such_package", "x.csv", "y")}
    assert corpus.installed(sets) == {"x": False}
    with pytest.raises(FileNotFoundError, match="no_such_package"):
        corpus.load("x", sets)


def test_sets_of_a_file_take_the_place_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "sets.json"
    file.write_text(json.dumps({"own": {"package": "p", "file": "f.csv", "target": "y"}}))
    assert corpus.more(file) == {"own": corpus.Source("p", "f.csv", "y")}


@pytest.mark.parametrize("low", [-123.4, 0.0, 0.0123, 5.0])
def test_bounds_are_rounded_outward(low: float) -> None:
    high = low + 17.3
    below, above = corpus.rounded_outward(low, high)
    assert below <= low < high <= above
    assert above - below < 1.3 * (high - low) + 20


def test_regrets_are_those_of_means_over_splits(tmp_path: Path, capsys: Any) -> None:
    """By hand: at 1,000 rows the rule takes noisy gradients of three classes, .1 below the best."""
    lines = [
        {"set": "s", "rows": 1_000, "features": 10, "classes": 3, "epsilon": 1.0, "split": k}
        | {"learner": learner, "score": score + (-1) ** k * 0.05, "trivial": 0.4}
        for k in (0, 1)
        for learner, score in [("additive_model", 0.9), ("noisy_gradient_descent", 0.8)]
    ]
    regret.regrets(lines)
    said = capsys.readouterr().out
    assert "additive_model, always: 0.0000" in said
    assert "auto, as it is: 0.1000" in said
    assert np.isfinite(regret.auto.ENOUGH)


def test_cross_fitted_regret_has_no_luck_in_it() -> None:
    """Of ten learners that are alike the best by twelve splits is ahead, and no better."""
    draw = np.random.default_rng(0)
    naive, fair, ahead = [], [], []
    for _ in range(40):
        scores = {f"l{k}": dict(enumerate(draw.normal(0, 0.1, 12))) for k in range(10)}
        means = [np.mean(list(own.values())) for own in scores.values()]
        naive.append(max(means) - means[0])
        fair.append(regret.cross_fitted(scores, "l0"))
        better = {split: own + 0.5 for split, own in scores["l1"].items()}
        ahead.append(regret.cross_fitted({**scores, "l1": better}, "l0"))
    assert np.mean(naive) > 0.03
    # the deviation of a difference of two means of 12 is .04, of 40 of them .006
    assert abs(np.mean(fair)) < 5 * 0.0065
    assert abs(np.mean(ahead) - 0.5) < 5 * 0.0065


def test_a_score_is_below_the_trivial_one_by_more_than_its_error() -> None:
    trivial = {0: 0.5, 1: 0.6, 2: 0.7}
    assert regret.under({0: 0.4, 1: 0.5, 2: 0.6}, trivial)
    assert not regret.under({0: 0.4, 1: 0.5, 2: 0.9}, trivial)
    assert not regret.under(trivial, trivial)
