"""The benchmark of published learners: what it calls their noise; noisy SVRG."""

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


def svrg(**more: object) -> dp.NoisySGD:
    own = {"steps": 6, "sampling_rate": 0.1, "reference": 3, "momentum": 0.0, "learning_rate": 4.0}
    return dp.NoisySGD(["a", "b"], "target", **{**own, **more})


def test_noisy_svrg_costs_its_releases() -> None:
    """An epoch is a release of all rows, and rounds of two on one sample; and three counts."""
    table = dp.dataset("rows", columns=COLUMNS)
    plan = dp.Pipeline(model=table.solve(svrg(loss=dp.SmoothedHinge()))).fix(sigma=2.0)
    # in units of the clip: noise of w sigma on all rows, w^2 = 1 / (3 .1^2), and sigma on a sample
    full, one = 0.1 * math.sqrt(3) / 2.0, 1 / 2.0
    both = accountants.Spend(accountants.Gaussian(one * math.sqrt(2)))
    step = accountants.Sampled(both, 0.1)
    epoch = accountants.Sequential(
        [accountants.Spend(accountants.Gaussian(full)), accountants.Repeated(step, 3)]
    )
    # the number of rows: COUNT of what the rounds cost by the central limit
    count = 1 / (2.0 * math.sqrt(99) / (math.sqrt(18) * 0.1))
    expected = competitors.spent(
        accountants.Sequential(
            [accountants.Repeated(epoch, 2), accountants.Spend(accountants.Gaussian(count))]
        ),
        1e-6,
    )
    assert plan.certify(delta=1e-6).epsilon == pytest.approx(expected, rel=1e-3)


def test_noisy_svrg_learns() -> None:
    table = dp.dataset("rows", columns=COLUMNS)
    learner = svrg(steps=60, reference=10)
    plan = dp.Pipeline(model=table.solve(learner)).fix(sigma=0.5).with_delta(1e-6)
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {"a": rng.uniform(-1, 1, 2_000), "b": rng.uniform(0, 5, 2_000)}
    rows["target"] = np.where(rows["a"] + 0.1 * rows["b"] > 0.2, "yes", "no")
    said = dp.predict(plan.simulate(seed=1, rows=rows)["model"], rows, classes=["no", "yes"])
    assert np.mean(said == rows["target"]) > 0.9


def test_without_noise_it_converges_where_samples_do_not() -> None:
    """Next to no noise, against samples of nearly all rows: as descent on all of them."""
    table = dp.dataset("rows", columns=COLUMNS)
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {"a": rng.uniform(-1, 1, 300), "b": rng.uniform(0, 5, 300)}
    rows["target"] = np.where(rows["a"] + rng.normal(size=300) > 0, "yes", "no")
    models = []
    for own in ({"sampling_rate": 0.999}, {}, {"reference": None}):
        learner = svrg(
            **{"loss": dp.SmoothedHinge(), "steps": 400, "reference": 20, "clip": 2.0}
            | {"learning_rate": 1.0}
            | own
        )
        plan = dp.Pipeline(model=table.solve(learner)).fix(sigma=1e-6)
        models.append(np.array(list(plan.simulate(seed=1, rows=rows)["model"].values())))
    # samples alone wander by the gradients' spread; what differs from the reference does not
    assert np.abs(models[1] - models[0]).max() < 1e-3
    assert np.abs(models[2] - models[0]).max() > 1e-2


def test_a_reference_that_is_none_is_refused() -> None:
    for more in ({"reference": 4}, {"reference": 0}, {"reference": 2.0}):
        with pytest.raises(dp.DeclarationError, match="reference must be"):
            svrg(**more)
    for more in ({"adaptive": dp.Clipping()}, {"sampling_rate": 1.0}):
        with pytest.raises(dp.DeclarationError, match="fixed clip"):
            svrg(**more)


@pytest.mark.slow
def test_every_competitor_keeps_the_budget() -> None:
    table = dp.dataset("rows", columns=COLUMNS)
    for name, entry in competitors.competitors(["a", "b"], 1_000).items():
        if entry is not None:
            assert competitors.fitted(entry, table, 1.0).certify().epsilon <= 1.0, name
