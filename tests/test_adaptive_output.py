"""Output perturbation that follows the data: its noise, its law, its premises, its use."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from test_adaops import (
    FEATURES,
    error,
    made_up,
    moments,
    norm_value,
    plan,
    random_rows,
    table,
)

import adaptive_dp as dp
from adaptive_dp.data.linear_systems import solution
from adaptive_dp.instance.posterior_mechanisms import sigma_of_bounds
from adaptive_dp.learning.base import regression
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.moments import REACH, CoefficientNorm, ExactMoments, LeastEigenvalue


def test_two_neighbours_are_never_farther_apart_than_the_promise() -> None:
    """Random and extreme rows come to data sets of every shape; the bounds are the true ones."""
    rng, mu, tightest = np.random.default_rng(3), 0.7, 0.0
    for trial in range(300):
        width, ridge = int(rng.integers(1, 5)), float(10 ** rng.uniform(-2, 2))
        rows = random_rows(rng, int(rng.integers(0, 30)), width)
        row = random_rows(rng, 1, width)
        x, y = rows[:, :width], rows[:, width]
        if trial % 2:  # along the flattest direction, with the worst target
            basis = np.linalg.eigh(x.T @ x)[1]
            theta = np.linalg.solve(x.T @ x + ridge * np.eye(width), x.T @ y)
            direction = basis[:, 0]
            row = np.append(direction, -np.sign(direction @ theta) or 1.0)[None, :]
        least = float(np.linalg.eigvalsh(x.T @ x)[0]) if len(x) else 0.0
        bound = max(0.0, least * (1 - 1e-9))
        size = norm_value(moments(rows), ridge, bound) * (1 + 1e-9)
        h = x.T @ x + ridge * np.eye(width)
        before = np.linalg.solve(h, x.T @ y)
        after = np.linalg.solve(
            h + np.outer(row[0, :width], row[0, :width]), x.T @ y + row[0, :width] * row[0, width]
        )
        sigma = sigma_of_bounds(ridge, bound, size, mu=mu, width=width)
        cost = float(np.linalg.norm(after - before)) / sigma
        assert cost <= mu
        tightest = max(tightest, cost / mu)
    assert tightest > 0.4  # (1 + T) / h against (1 + T) / (h + 1) at best


def test_its_law() -> None:
    """1,000 draws; mean and variance within 6 deviations (1e-8), a wrong sigma is not."""
    n, ridge, bound, mu = 1_000, 40.0, 5.0, 0.5
    rows = random_rows(np.random.default_rng(8), 60, 3)
    m, mechanism, stream = moments(rows), dp.PerturbedCoefficients(mu=mu), SeededStream(4)
    draws = np.array([mechanism.release(m, stream, ridge, bound, 0.8) for _ in range(n)])
    x, y = rows[:, :3], rows[:, 3]
    theta = np.linalg.solve(x.T @ x + ridge * np.eye(3), x.T @ y)
    white = (draws - theta) / sigma_of_bounds(ridge, bound, 0.8, mu=mu, width=3)
    assert np.all(np.abs(white.mean(axis=0)) < 6 / math.sqrt(n))
    assert abs((white**2).sum() - 3 * n) < 6 * math.sqrt(6 * n)
    assert abs(((white * 1.2) ** 2).sum() - 3 * n) > 6 * math.sqrt(6 * n)


def test_bounds_that_tell_nothing_give_nothing() -> None:
    mechanism = dp.PerturbedCoefficients(mu=1.0)
    m = moments([[0.5, 0.0, 1.0]])
    for size in (1e300, math.inf):
        assert np.isnan(mechanism.release(m, SeededStream(1), 1.0, 0.0, size)).all()
    for ridge, bound in ((math.nan, math.nan), (1e300, -1e300), (0.0, 0.0)):
        assert np.isfinite(mechanism.release(m, SeededStream(1), ridge, bound, 1.0)).all()


def test_its_premises() -> None:
    rows = regression(table(), tuple(FEATURES), "y", None)
    low, high = (k(sigma=9.0, failure=1e-7, reach=REACH) for k in (dp.LowerBound, dp.UpperBound))
    ridge = dp.public(5.0)
    bound = rows.query(LeastEigenvalue()).release(low)
    size = rows.query(CoefficientNorm(), ridge, bound).release(high)

    def made(given: Any) -> dp.Pipeline:
        mechanism = dp.PerturbedCoefficients(mu=0.5)
        return dp.Pipeline(s=rows.query(ExactMoments()).release(mechanism, given=given))

    assert made([ridge, bound, size]).certify(delta=1e-3).epsilon < 20
    for given in (
        [ridge, dp.public(1e6), size],
        [ridge, bound, dp.public(0.0)],
        [dp.public(5.0), bound, size],
        [ridge, dp.post(abs, bound), size],
    ):
        with pytest.raises(dp.DeclarationError, match="PerturbedCoefficients"):
            made(given)


def test_its_certificate_uses_the_budget() -> None:
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (10.0, 1e-3)):
        solver = dp.AdaptiveOutputPerturbation(FEATURES, "y")
        certificate = plan(solver, epsilon=epsilon, delta=delta).certify()
        assert 0.999 * epsilon < certificate.epsilon <= epsilon


def test_it_beats_the_worst_case_where_the_data_determine_much() -> None:
    frame = made_up(20_000)
    adaptive = error(dp.AdaptiveOutputPerturbation(FEATURES, "y"), frame)
    worst = error(dp.OutputPerturbation(FEATURES, "y", ridge=300.0), frame)
    assert adaptive < worst / 3


def test_several_rows_cost_as_many_times_as_much() -> None:
    """Exchanged rows: theta moves by up to twice the bound for one, and no farther."""
    mechanism, mu = dp.PerturbedCoefficients(mu=0.25), 0.25
    assert mechanism.loss(2.0).mu() == pytest.approx(0.5)
    assert mechanism.loss(3.0).mu() == pytest.approx(0.75)
    ridge, rng, tightest = 20.0, np.random.default_rng(3), 0.0
    for _ in range(50):
        common = random_rows(rng, int(rng.integers(1, 30)), 2)
        x = rng.normal(size=2)
        x /= np.linalg.norm(x) * (1 + 1e-5)
        sets = [np.vstack([common, [*x, y]]) for y in (1.0, -1.0)]
        bound = LeastEigenvalue().run([moments(common)], SeededStream(0))
        size = max(norm_value(moments(r), ridge, bound) for r in (common, *sets))
        first, second = (np.array([float(v) for v in solution(moments(r), ridge)[1]]) for r in sets)
        sigma = sigma_of_bounds(ridge, bound, size, mu=mu, width=2)
        cost = float(np.linalg.norm(first - second)) / sigma
        assert cost <= 2 * mu
        tightest = max(tightest, cost / mu)
    assert tightest > 1.2  # more than one row may cost: the factor is needed


@pytest.mark.parametrize(
    "learner", [dp.AdaptiveOutputPerturbation, dp.OutputPerturbation, dp.NoisySGD]
)
@pytest.mark.parametrize("loss", ["Logistic()", 3, dp.Logistic])
def test_what_is_no_loss_is_refused(learner: Any, loss: Any) -> None:
    people = dp.dataset("people", columns={"x": (-1, 1), "y": [0, 1]})
    with pytest.raises(dp.DeclarationError, match="is a loss such as"):
        people.solve(learner(["x"], "y", loss=loss), epsilon=1.0, delta=1e-6)


def test_a_loss_whose_curvature_nothing_bounds_is_refused() -> None:
    people = dp.dataset("people", columns={"x": (-1, 1), "y": [0, 1]})
    learner = dp.AdaptiveOutputPerturbation(["x"], "y", loss=dp.Hinge())
    with pytest.raises(dp.DeclarationError, match="not generalised self-concordant"):
        people.solve(learner, epsilon=1.0, delta=1e-6)
