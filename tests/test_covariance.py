"""Covariances, and shares below edges: against NumPy where noise is negligible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.queries.moments import correlations, covariances
from adaptive_dp.queries.order_statistics import cumulative_shares


def people(neighbors: Any = "add_remove") -> dp.Table:
    columns = {"age": (0, 100), "visits": (-2, 10), "same": (5, 5)}
    return dp.dataset("people", columns=columns, neighbors=neighbors)


def frame(rows: int = 5_000) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(1)
    age = draw.uniform(10, 90, rows)
    return {"age": age, "visits": age / 15 + draw.normal(0, 1, rows), "same": np.full(rows, 5.0)}


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
def test_they_agree_with_numpy(neighbors: Any) -> None:
    table, data = people(neighbors), frame()
    noise = dp.Gaussian(sigma=1e-3)
    plan = dp.Pipeline(
        covariance=table.covariance(["age", "visits", "same"], noise),
        correlation=table.correlation(["age", "visits"], noise),
        variance=table["age"].variance(noise),
        std=table["age"].std(noise),
    )
    result = plan.simulate(seed=1, people=data)
    values = np.clip(
        [data["age"], data["visits"], data["same"]], [[0], [-2], [5]], [[100], [10], [5]]
    )
    exact = np.cov(values, ddof=0)
    assert result["covariance"] == pytest.approx(exact, rel=1e-3, abs=1e-3)
    assert result["correlation"] == pytest.approx(np.corrcoef(values[:2]), rel=1e-3)
    assert result["variance"] == pytest.approx(exact[0, 0], rel=1e-3)
    assert result["std"] == pytest.approx(np.sqrt(exact[0, 0]), rel=1e-3)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint


def test_whatever_the_noise_the_matrices_are_valid() -> None:
    draw = np.random.default_rng(2)
    for _ in range(200):
        noisy = draw.normal(0, 10, (4, 4))
        matrix = covariances(noisy + noisy.T, half=[1.0, 50.0, 0.0])
        assert np.linalg.eigvalsh(matrix).min() >= -1e-9 * np.abs(matrix).max()
        assert (np.abs(matrix) <= 3 * np.outer([1, 50, 0], [1, 50, 0]) + 1e-9).all()
        related = correlations(matrix)
        assert (np.abs(related) <= 1).all()
        assert (related.diagonal() == 1).all()


def test_shares_below() -> None:
    table, data = people(), frame()
    edges = [0, 25, 50, 75, 100]
    plan = dp.Pipeline(shares=table["age"].cdf(edges, dp.Laplace(scale=1e-3)))
    shares = plan.simulate(seed=1, people=data)["shares"]
    exact = [np.mean(data["age"] < edge) for edge in edges]
    assert shares == pytest.approx(exact, abs=1e-6)
    assert cumulative_shares(np.array([-3.0, 2.0, -1.0, 2.0])).tolist() == [0, 0, 0.5, 0.5, 1]
    assert cumulative_shares(np.array([-3.0, -2.0])).tolist() == [0, 0.5, 1]


def test_names_that_are_refused() -> None:
    with pytest.raises(dp.DeclarationError, match="list"):
        people().covariance("age", dp.Gaussian(sigma=1))
    with pytest.raises(dp.DeclarationError):
        people().covariance([], dp.Gaussian(sigma=1))
