"""Posterior sampling in a ball, and output perturbation: what holds for any data."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import kstwobign, norm

import adaptive_dp as dp
from accountants import BoundedRange
from adaptive_dp.data.linear_systems import Moments, constrained
from adaptive_dp.graph.operation import Change
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.moments import ConstrainedCoefficients, MomentsDomain

STREAM = SeededStream(0)
GRID = np.linspace(-1, 1, 4001)


def moments(rows: Any) -> Moments:
    steps = np.rint(np.asarray(rows) * 2**19).astype(object)
    return (steps.T @ steps).view(Moments)


def random_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    x = rng.normal(size=(n, d))
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    return np.c_[x * (1 - 1e-5), rng.choice([-1.0, 1.0, 0.4], size=n)]


def log_density(rows: np.ndarray, gamma: float, ridge: float, radius: float) -> np.ndarray:
    """The truncated posterior of one coefficient, on a grid."""
    w = GRID * radius
    exponent = -gamma / 2 * ((rows[:, 1] - np.outer(w, rows[:, 0])) ** 2).sum(axis=1)
    exponent -= gamma / 2 * ridge * w**2
    return exponent - np.log(np.sum(np.exp(exponent - exponent.max()))) - exponent.max()


class TestLoss:
    def test_the_range_of_the_log_ratio(self) -> None:
        """Rows at the corners, on data of all kinds; one pair comes close to the range."""
        rng, gamma, ridge, radius, widest = np.random.default_rng(1), 0.8, 0.5, 1.7, 0.0
        limit = dp.TruncatedPosterior(gamma=gamma, ridge=ridge, radius=radius).loss(1.0)
        for _ in range(100):
            rows = random_rows(rng, int(rng.integers(1, 50)), 1)
            for row in ([1, 1], [1, -1], [-1, 1], [0.3, 1], [1, 0]):
                more = np.vstack([rows, row])
                before, after = (log_density(r, gamma, ridge, radius) for r in (rows, more))
                ratio = before - after
                widest = max(widest, np.ptp(ratio))
                assert ratio.max() >= -1e-9 >= ratio.min() - 1e-9
        assert isinstance(limit, BoundedRange)
        assert 0.999 * limit.epsilon < widest <= limit.epsilon

    def test_two_rows_add_their_ranges(self) -> None:
        sampler = dp.TruncatedPosterior(gamma=0.5, ridge=1.0, radius=1.0)
        assert sampler.loss(1.0).pure() == pytest.approx(1.0)
        assert sampler.loss(2.0).pure() == pytest.approx(2.0)

    def test_without_the_ball_no_gamma_is_private_for_all_data(self) -> None:
        ridge, losses = 1.0, []
        for n in (10, 1_000, 100_000):
            x = math.sqrt(ridge / n)
            theta = n * x / (n * x * x + ridge)
            assert theta == pytest.approx(math.sqrt(n / ridge) / 2)
            losses.append((1 + theta) ** 2 / (2 * ridge))
        assert losses[2] > 50 * losses[1] > 500 * losses[0] / 10
        rng = np.random.default_rng(2)  # and it is the largest there is with n rows
        for _ in range(200):
            rows = random_rows(rng, 10, 2)
            h = rows[:, :2].T @ rows[:, :2] + ridge * np.eye(2)
            size = np.linalg.norm(np.linalg.solve(h, rows[:, :2].T @ rows[:, 2]))
            assert size <= math.sqrt(10 / ridge) / 2


class TestDraws:
    @pytest.mark.parametrize("n", [0, 3, 400])
    def test_one_coefficient_has_its_law(self, n: int) -> None:
        """Kolmogorov's test on 2000 draws, at a false alarm of 1e-8; with n = 400 w* is outside."""
        rows = np.array([[0.9, 1.0]] * n or [[0.0, 0.0]])
        gamma, ridge, radius = 1.3, 8.0, 0.6
        sampler, stream = dp.TruncatedPosterior(gamma, ridge, radius), SeededStream(3)
        m = moments(rows)
        draws = np.sort([sampler.release(m, stream)[0] for _ in range(2000)])
        x, y = rows[:, 0], rows[:, 1]
        h = x @ x + ridge
        centre, deviation = x @ y / h, 1 / math.sqrt(gamma * h)

        def law(w: Any, middle: float) -> Any:
            low, high = (norm.cdf((v - middle) / deviation) for v in (-radius, radius))
            return (norm.cdf((w - middle) / deviation) - low) / (high - low)

        steps = np.arange(1, 2001) / 2000
        limit = kstwobign.isf(1e-8) / math.sqrt(2000)
        assert np.abs(law(draws, centre) - steps).max() < limit + 1 / 2000
        assert np.abs(law(draws, centre - deviation) - steps).max() > limit + 1 / 2000 or n == 400
        assert np.abs(draws).max() <= radius

    def test_two_coefficients_far_outside(self) -> None:
        """Moments of 1500 draws against numerical integrals: 6 deviations, 1e-8."""
        rows = np.vstack([[[0.9, 0.1, 1.0]] * 60, [[0.0, 0.6, -1.0]] * 30])
        gamma, ridge, radius = 1.0, 20.0, 0.5
        sampler, stream = dp.TruncatedPosterior(gamma, ridge, radius), SeededStream(4)
        m = moments(rows)
        draws = np.array([sampler.release(m, stream) for _ in range(1500)])
        axis = np.linspace(-radius, radius, 301)
        w = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
        w = w[(w**2).sum(axis=1) <= radius**2]
        misfit = ((rows[:, 2] - w @ rows[:, :2].T) ** 2).sum(axis=1)
        exponent = -gamma / 2 * (misfit + ridge * (w**2).sum(axis=1))
        weight = np.exp(exponent - exponent.max())
        mean = weight @ w / weight.sum()
        second = weight @ w**2 / weight.sum()
        off = np.abs(draws.mean(axis=0) - mean)
        assert np.all(off < 6 * draws.std(axis=0) / math.sqrt(1500) + 1e-3)
        off = np.abs((draws**2).mean(axis=0) - second)
        assert np.all(off < 6 * (draws**2).std(axis=0) / math.sqrt(1500) + 1e-3)
        assert np.linalg.norm(draws, axis=1).max() <= radius * (1 + 1e-12)

    def test_a_prior_that_would_not_fit(self) -> None:
        """In 30 coordinates next to no draw of ``N(0, I / (gamma ridge))`` is in the ball."""
        sampler = dp.TruncatedPosterior(gamma=0.01, ridge=0.01, radius=1.0)
        draws = [sampler.release(moments(np.zeros((1, 31))), SeededStream(k)) for k in range(20)]
        sizes = np.linalg.norm(draws, axis=1)
        assert sizes.max() <= 1
        assert sizes.mean() > 0.5

    def test_its_parameters(self) -> None:
        for wrong in ({"ridge": 0.0}, {"radius": math.nan}, {"radius": 1e9}, {"gamma": -1.0}):
            with pytest.raises(dp.DeclarationError):
                dp.TruncatedPosterior(**{"gamma": 1.0, "ridge": 1.0, "radius": 1.0} | wrong)


class TestConstrained:
    def test_it_is_the_minimizer(self) -> None:
        rng = np.random.default_rng(5)
        for k in range(12):
            rows, ridge, radius = random_rows(rng, 20, 3), 0.7, (0.05, 0.3, 5.0)[k % 3]
            x, y = rows[:, :3], rows[:, 3]

            def cost(w: Any, x: Any = x, y: Any = y, ridge: float = ridge) -> float:
                return float(((y - x @ w) ** 2).sum() + ridge * w @ w)

            ball = {"type": "ineq", "fun": lambda w, r=radius: r * r - w @ w}
            best = minimize(cost, np.zeros(3), constraints=[ball], tol=1e-14)
            _, minimizer, extra = constrained(moments(rows), ridge, radius)
            w = np.array([float(v) for v in minimizer])
            assert np.linalg.norm(w) <= radius * (1 + 1e-14)
            assert cost(w) <= best.fun * (1 + 1e-7)
            assert w == pytest.approx(best.x, abs=2e-4)
            assert (extra > 0) == (np.linalg.norm(w) > radius * (1 - 1e-9))

    def test_its_sensitivity(self) -> None:
        rng, worst = np.random.default_rng(6), 0.0
        for k in range(300):
            d, ridge, radius = 1 + k % 3, (0.5, 3.0, 30.0)[k % 3], (0.2, 1.0, 4.0)[k % 4 % 3]
            rows = random_rows(rng, int(rng.integers(1, 6)), d) if k % 5 else np.zeros((1, d + 1))
            rows[-1] = 0.0
            query = ConstrainedCoefficients(ridge, radius)
            more = rows.copy()
            before = query.run([moments(rows)], STREAM)
            direction = before / np.linalg.norm(before) if np.any(before) else np.eye(d)[0]
            more[-1] = [*(direction * (1 - 1e-5)), -1.0]
            after = query.run([moments(more)], STREAM)
            limit = query.sensitivity(MomentsDomain(d), Change(False, 1, False), 2)
            worst = max(worst, np.linalg.norm(after - before) / limit)
        assert 0.2 < worst <= 1


FEATURES = ["a", "b"]


def plan(
    solver: Any, epsilon: float | None = 1.0, delta: float | None = 1e-6, **options: Any
) -> Any:
    people = dp.dataset("people", columns={"a": (0, 10), "b": (-1, 1), "y": (0, 1)}, **options)
    return dp.Pipeline(fit=people.solve(solver, epsilon=epsilon, delta=delta))


def made_up(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    a, b = rng.uniform(0, 10, n), rng.uniform(-1, 1, n)
    y = 0.2 + 0.04 * a + 0.1 * b + 0.05 * rng.normal(size=n)
    return {"a": a, "b": b, "y": np.clip(y, 0, 1)}


class TestSolvers:
    def test_ops_is_pure(self) -> None:
        for epsilon in (0.01, 1.0, 20.0):
            certified = plan(dp.OPS(FEATURES, "y"), epsilon).with_delta(0.0).certify().epsilon
            assert 0.999 * epsilon < certified <= epsilon

    def test_what_is_free_is_calibrated(self) -> None:
        for solver in (dp.OPS(FEATURES, "y"), dp.OutputPerturbation(FEATURES, "y", ridge=100.0)):
            solved = plan(solver, None, None).calibrate(epsilon=0.7, delta=1e-6)
            assert 0.69 < solved.certify().epsilon <= 0.7

    def test_they_learn(self) -> None:
        frame, true = made_up(200_000), {"intercept": 0.2, "a": 0.04, "b": 0.1}
        for solver in (dp.OPS(FEATURES, "y"), dp.OutputPerturbation(FEATURES, "y", ridge=300.0)):
            fit = plan(solver, 3.0).with_delta(1e-6).simulate(seed=1, people=frame)["fit"]
            assert all(abs(fit[k] - v) < 0.05 for k, v in true.items())

    def test_any_neighbour_relation(self) -> None:
        for options in ({"neighbors": "replace_one"}, {"unit": "id", "rows_per_unit": 3}):
            for solver in (dp.OPS(FEATURES, "y"), dp.OutputPerturbation(FEATURES, "y", ridge=9.0)):
                solved = plan(solver, None, None, **options).calibrate(epsilon=1.0, delta=1e-6)
                assert 0.99 < solved.certify().epsilon <= 1.0
                charged = plan(solver, **options).with_delta(1e-6).certify().epsilon
                assert 0.99 < charged <= 1.0

    def test_odd_data(self) -> None:
        odd = {c: np.array([math.nan, math.inf, -1e308]) for c in ("a", "b", "y")}
        for frame in (odd, {c: v[:0] for c, v in odd.items()}):
            for solver in (dp.OPS(FEATURES, "y"), dp.OutputPerturbation(FEATURES, "y", ridge=9.0)):
                fit = plan(solver).with_delta(1e-6).simulate(seed=1, people=frame)["fit"]
                assert all(math.isfinite(v) for v in fit.values())

    def test_their_arguments(self) -> None:
        for made in (
            lambda: dp.OPS(FEATURES, "y", radius=0.0),
            lambda: dp.OPS(FEATURES, "y", ridge=-1.0),
            lambda: dp.OPS([], "y"),
            lambda: dp.OutputPerturbation(FEATURES, "y", ridge=0.0),
            lambda: plan(dp.OPS(FEATURES, "y"), 0.0),
            lambda: plan(dp.OutputPerturbation(FEATURES, "y", ridge=1.0), 1.0, None),
        ):
            with pytest.raises(dp.DeclarationError):
                made()


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Exponential(scale=1.0),
        dp.NoisyMax(scale=1.0),
        dp.PermuteAndFlip(scale=1.0),
        dp.Gaussian(sigma=1.0),
        dp.Laplace(scale=1.0),
        dp.LowerBound(sigma=1.0, failure=1e-6, reach=10.0),
    ],
    ids=lambda m: type(m).__name__,
)
def test_moments_are_no_numbers_for_other_mechanisms(mechanism: dp.Mechanism) -> None:
    """They are arrays in steps of 2^-38: noise for a sensitivity of 1 would hide nothing."""
    people = dp.dataset("people", columns={"a": (0, 1), "y": (0, 1)})
    sample = people.solve(dp.OPS(features=["a"], target="y"), epsilon=1.0)
    document = dp.Pipeline(sample=sample).to_document()
    nodes = {node["kind"]: node for node in document["nodes"] if node["kind"] != "release"}
    plain = dp.Pipeline(c=people["a"].sum().release(dp.Laplace(scale=1.0))).to_document()
    (release,) = [node for node in plain["nodes"] if node["kind"] == "release"]
    queried = nodes["exact_moments"]
    chain = [nodes[kind] for kind in ("dataset", "where", "vectors", "moments")]
    fields = {"mechanism": type(mechanism).__name__, **mechanism.parameters()}
    edited = {
        **plain,
        "nodes": [*chain, queried, {**release, "inputs": [queried["id"]], "mechanism": fields}],
        "outputs": [{"path": ["c"], "node": release["id"]}],
    }
    with pytest.raises(dp.DeclarationError, match="norm"):
        dp.load(edited).with_delta(1e-6).certify()


@pytest.mark.parametrize("gamma", [1e-100, 1e-4, 1.0])
def test_few_rows_and_a_wide_prior_do_not_keep_the_sampler_waiting(gamma: float) -> None:
    empty = np.full((7, 7), 0, dtype=object).view(Moments)
    sampler = dp.TruncatedPosterior(gamma=gamma, ridge=2.0**-9, radius=1.0)
    draw = sampler.release(empty, SeededStream(1))
    assert draw.shape == (6,)
    assert float(draw @ draw) <= 1 + 1e-9
