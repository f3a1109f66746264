"""The benchmark of published learners: what it calls their noise, and noisy SVRG of queries."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accountants
import adaptive_dp as dp

pytest.importorskip("pandas")
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import competitors

COLUMNS = {"a": (-1, 1), "b": (0, 5), "target": ["no", "yes"]}


def test_printed_noise_is_enough_where_it_is_said_to_be() -> None:
    # sqrt(2 log(1.25/delta)) / epsilon is enough below epsilon 1, and not at any (Balle and Wang)
    gaussian = competitors.classical_gaussian
    assert competitors.spent(gaussian(0.9, 1e-5), 1e-5) < 0.9
    assert competitors.spent(gaussian(12.0, 1e-5), 1e-5) > 12.0
    assert competitors.spent(competitors.objective_perturbation(1.0, 1e-5), 1e-5) < 1.0


def test_noisy_svrg_costs_its_releases() -> None:
    """An epoch is a release of all rows at a third of mu^2, and rounds of two on one sample."""
    table = dp.dataset("rows", columns=COLUMNS)
    plan = dp.Pipeline(model=competitors.noisy_svrg(table, ["a", "b"], 1_000, epochs=2, steps=3))
    fixed = plan.fix(sigma=2.0)
    # gradients are clipped to 1/2 and rows have norm 1: a row moves each sum by 1/2
    full, one = 0.5 / (2.0 * math.sqrt(3)), 0.5 / 2.0
    both = accountants.Spend(accountants.Gaussian(one * math.sqrt(2)))
    step = accountants.Sampled(both, 0.1)
    epoch = accountants.Sequential(
        [accountants.Spend(accountants.Gaussian(full)), accountants.Repeated(step, 3)]
    )
    expected = competitors.spent(accountants.Repeated(epoch, 2), 1e-6)
    assert fixed.certify(delta=1e-6).epsilon == pytest.approx(expected, rel=1e-3)


def test_noisy_svrg_learns() -> None:
    table = dp.dataset("rows", columns=COLUMNS)
    model = competitors.noisy_svrg(table, ["a", "b"], 2_000, epochs=3, steps=10)
    plan = dp.Pipeline(model=model).fix(sigma=0.5).with_delta(1e-6)
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {"a": rng.uniform(-1, 1, 2_000), "b": rng.uniform(0, 5, 2_000)}
    rows["target"] = np.where(rows["a"] + 0.1 * rows["b"] > 0.2, "yes", "no")
    said = dp.predict(plan.simulate(seed=1, rows=rows)["model"], rows, classes=["no", "yes"])
    assert np.mean(said == rows["target"]) > 0.9


@pytest.mark.slow
def test_every_competitor_keeps_the_budget() -> None:
    table = dp.dataset("rows", columns=COLUMNS)
    for name, entry in competitors.competitors(["a", "b"], 1_000).items():
        if entry is not None:
            assert competitors.fitted(entry, table, 1.0).certify().epsilon <= 1.0, name
