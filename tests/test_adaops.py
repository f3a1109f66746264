"""AdaOPS: exact moments, conditional releases, the posterior sample, and all of it together."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.stats import norm

import adaptive_dp as dp
from adaptive_dp.data.linear_systems import Moments, least_eigenvalue, solution
from adaptive_dp.instance.following import group_failure
from adaptive_dp.instance.posterior_mechanisms import (
    bounds_of,
    is_dominated,
    largest_dominated_gamma,
)
from adaptive_dp.instance.records import RidgeBounds, worst_curve
from adaptive_dp.learning.adaops import largest_gamma, shrinking_ridge
from adaptive_dp.learning.base import regression
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.moments import (
    REACH,
    SLACK,
    CoefficientNorm,
    ExactMoments,
    LeastEigenvalue,
    clamp_released,
    unit,
)

STREAM = SeededStream(0)


def moments(rows: Any) -> Moments:
    """Moments of rows (x, y), on the grid."""
    steps = np.rint(np.asarray(rows) * 2**19).astype(object)
    return (steps.T @ steps).view(Moments)


def random_rows(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Rows with |x| <= 1, |y| <= 1: random, extreme, nearly collinear."""
    x = rng.normal(size=(n, d)) * rng.choice([1.0, 1e-3, 1e-6], size=d)
    x /= np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True))
    extreme = rng.random(n) < 0.3
    x[extreme] = np.eye(d)[rng.integers(d, size=extreme.sum())] * rng.choice([-1, 1])
    y = rng.choice([-1.0, 1.0, 0.3], size=n)
    return np.c_[x * (1 - 1e-5), y]


def norm_value(m: Moments, ridge: float, bound: float) -> float:
    return CoefficientNorm().run([m, ridge, bound], STREAM)


class TestExact:
    def test_the_solution_is_exact_where_floats_fail(self) -> None:
        """A billion equal rows, and one across: mpmath at 200 digits."""
        m = moments([[1, 0, 1], [0.5, 0.5, -1]])
        m = (np.asarray(m) * 2**40 + np.asarray(moments([[0.25, -0.5, 1]]))).view(Moments)
        _, theta = solution(m, 0.01)
        with mpmath.workdps(200):
            a = mpmath.matrix([[int(v) for v in row] for row in np.asarray(m)]) / 2**38
            h = a[:2, :2] + mpmath.mpf(0.01) * mpmath.eye(2)
            exact = mpmath.lu_solve(h, a[:2, 2])
            for computed, true in zip(theta, exact, strict=True):
                assert abs(mpmath.mpf(str(computed)) / true - 1) < mpmath.mpf(10) ** -80

    def test_the_least_eigenvalue_is_rounded_down(self) -> None:
        rng = np.random.default_rng(1)
        for _ in range(30):
            m = moments(random_rows(rng, int(rng.integers(1, 40)), int(rng.integers(1, 5))))
            width = len(m) - 1
            with mpmath.workdps(60):
                a = mpmath.matrix([[int(v) for v in row] for row in np.asarray(m)]) / 2**38
                true = min(mpmath.eigsy(a[:width, :width], eigvals_only=True))
            steps = least_eigenvalue(m, 16)
            assert steps <= true * 2**16 + mpmath.mpf(10) ** -40
            assert steps + 1 >= true * 2**16 or steps == 0

    def test_the_least_eigenvalue_moves_by_its_sensitivity(self) -> None:
        rng = np.random.default_rng(2)
        changes = []
        for k in range(60):
            d = 1 + k % 4
            rows = random_rows(rng, int(rng.integers(1, 30)), d)
            less, more = moments(rows[:-1].reshape(-1, d + 1)), moments(rows)
            a, b = (LeastEigenvalue().run([m], STREAM) for m in (less, more))
            changes.append(b - a)
        exact = LeastEigenvalue().run([moments([[1.0, 0.0]] * 3)], STREAM)
        more = LeastEigenvalue().run([moments([[1.0, 0.0]] * 4)], STREAM)
        assert more - exact == 1.0  # attained
        assert min(changes) >= -(2.0**-16)
        assert max(changes) <= 1 + SLACK


class TestCoefficientNorm:
    def test_it_moves_by_at_most_1_whatever_is_released(self) -> None:
        """Pairs with bounds that are right and wrong; some come close to 1."""
        rng = np.random.default_rng(3)
        worst = 0.0
        for k in range(500):
            d = 1 + k % 3
            rows = random_rows(rng, int(rng.integers(1, 12)), d)
            if k % 2:  # a last row along theta, as wrong as can be
                theta = np.array(
                    [float(v) for v in solution(moments(rows[:-1].reshape(-1, d + 1)), 0.5)[1]]
                )
                size = np.linalg.norm(theta)
                direction = theta / size if size > 0 else np.eye(d)[0]
                rows[-1] = [*direction * (1 - 1e-5), -1.0]
            less, more = moments(rows[:-1].reshape(-1, d + 1)), moments(rows)
            ridge, bound = rng.choice([0.01, 0.5, 3.0]), rng.choice([0.0, 0.2, 1.0, 40.0])
            apart = abs(norm_value(less, ridge, bound) - norm_value(more, ridge, bound))
            worst = max(worst, apart)
        assert worst <= 1 + SLACK
        assert worst > 0.6

    def test_the_first_row_attains_it(self) -> None:
        nothing, one = moments(np.zeros((1, 2))), moments([[1.0, 1.0]])
        # theta = 1 / (1 + ridge): log(1 + theta) against log(1 + 1/ridge)
        assert norm_value(nothing, 1e3, 0.0) == 0.0
        assert norm_value(one, 1e3, 0.0) == pytest.approx(1, abs=2e-3)

    def test_the_printed_product_fails(self) -> None:
        """ridge * lambda_min in place of their sum: units disagree (the difference is 5%)."""
        rows = [[1.0, 1.0]] * 3
        ridge, least = 2.0, 3.0
        logs = [
            norm_value(moments(r), ridge, least) * unit(ridge, least)
            for r in (rows, [*rows, [1.0, -1.0]])
        ]
        assert abs(logs[0] - logs[1]) > math.log1p(1 / (ridge * least)) + 0.01
        assert abs(logs[0] - logs[1]) <= math.log1p(1 / (ridge + least)) * (1 + SLACK)

    def test_trusting_a_wrong_bound_fails(self) -> None:
        """Negative control: without the correction, a bound that is wrong breaks it."""
        nothing, one = moments(np.zeros((1, 2))), moments([[1.0, 1.0]])
        sizes = [abs(float(solution(m, 0.1)[1][0])) for m in (nothing, one)]
        assert abs(math.log1p(sizes[0]) - math.log1p(sizes[1])) > 2 * unit(0.1, 9.0)
        assert abs(norm_value(nothing, 0.1, 9.0) - norm_value(one, 0.1, 9.0)) <= 1 + SLACK

    def test_odd_released_values(self) -> None:
        m = moments([[0.5, 1.0], [0.1, -1.0]])
        for ridge in (math.nan, math.inf, -1.0, 0.0, 1e300):
            for bound in (math.nan, math.inf, -math.inf, -5.0, 1e300):
                assert 0 <= norm_value(m, ridge, bound) < 2**31
                assert all(math.isfinite(v) for v in clamp_released(ridge, bound))


def pair_profile(epsilon: Any, gamma: float, leverage: Any, error: Any) -> Any:
    """delta of N(theta, H^-1/gamma) with and without a row, both ways: four normal tails each.

    Along the row's prediction, s = sqrt(gamma)(y - x'w) is N(a, m) without, N(a, m)/(1+m) with it,
    and the log ratio is s^2/2 less a constant (its mean under neither matters).
    """
    a, m = math.sqrt(gamma) * error, leverage
    p_mean, p_dev = a, np.sqrt(m)
    q_mean, q_dev = a / (1 + m), np.sqrt(m / (1 + m))
    constant = np.log1p(m) + a * a / (1 + m)

    def outside(mean: Any, dev: Any, square: Any) -> Any:
        c = np.sqrt(np.maximum(square, 0))
        return norm.sf((c - mean) / dev) + norm.sf((c + mean) / dev)

    def inside(mean: Any, dev: Any, square: Any) -> Any:
        c = np.sqrt(np.maximum(square, 0))
        return norm.cdf((c - mean) / dev) - norm.cdf((-c - mean) / dev)

    up, low, ratio = 2 * epsilon + constant, constant - 2 * epsilon, np.exp(epsilon)
    first = outside(p_mean, p_dev, up) - ratio * outside(q_mean, q_dev, up)
    second = inside(q_mean, q_dev, low) - ratio * inside(p_mean, p_dev, low)
    return np.maximum(0, np.maximum(first, second))


class TestPromise:
    def test_the_log_ratio_of_two_posteriors(self) -> None:
        """Both densities of four coordinates, at random points: mismatch below 1e-12."""
        rng = np.random.default_rng(4)
        for _ in range(20):
            n, d, gamma, ridge = 8, 4, 0.7, 0.3
            x, y = rng.normal(size=(n, d)), rng.normal(size=n)
            x /= np.linalg.norm(x, axis=1, keepdims=True)

            def log_density(w: Any, x: Any, y: Any) -> float:
                h = x.T @ x + ridge * np.eye(d)  # noqa: B023
                theta = np.linalg.solve(h, x.T @ y)
                return float(
                    np.linalg.slogdet(gamma * h)[1] / 2 - gamma * (w - theta) @ h @ (w - theta) / 2  # noqa: B023
                )

            w = rng.normal(size=d)
            direct = log_density(w, x[1:], y[1:]) - log_density(w, x, y)
            h = x[1:].T @ x[1:] + ridge * np.eye(d)
            m = x[0] @ np.linalg.solve(h, x[0])
            e = y[0] - x[0] @ np.linalg.solve(h, x[1:].T @ y[1:])
            s = math.sqrt(gamma) * (y[0] - x[0] @ w)
            formula = (s * s - math.log1p(m) - gamma * e * e / (1 + m)) / 2
            assert abs(direct - formula) < 1e-12 * (1 + abs(formula))
            # as printed, N(theta, (1/ridge) (X'X)^-1) in place of (1/gamma) (X'X + ridge I)^-1
            printed = ridge / gamma * s * s / 2
            assert abs(direct - printed) > 1e-3

    def test_the_curve_covers_every_pair(self) -> None:
        rng = np.random.default_rng(5)
        for _ in range(150):
            curvature = math.exp(rng.uniform(-1, 8))
            residual, gamma = math.exp(rng.uniform(0, 2)), math.exp(rng.uniform(-5, 6))
            ridge_bounds = RidgeBounds(curvature, curvature / 2, 1.0, residual, removals=False)
            leverage = np.r_[np.geomspace(1e-4, 1, 40)] / curvature
            errors = np.linspace(0, 1, 15)[:, None] * residual
            size = math.sqrt(gamma / curvature) * residual
            points = np.array([0.0, 0.3, 1.0, 2.0, 4.0]) * (size + 1 / curvature) + size * size / 2
            bound = worst_curve(points, gamma, ridge_bounds)
            for e, b in zip(points, bound, strict=True):
                if e < 300:
                    assert pair_profile(e, gamma, leverage, errors).max() <= b + 1e-11

    def test_the_coldest_posterior_keeps_its_promise(self) -> None:
        rng = np.random.default_rng(6)
        for curvature, residual, mu, failure in (
            (15.0, 1.0, 0.9, 1e-4),
            (100.0, 2.0, 0.2, 1e-7),
            (1e4, 5.0, 1.5, 1e-6),
            (3.0, 1.5, 2.0, 1e-2),
        ):
            ridge_bounds = RidgeBounds(curvature, 1.0, 1.0, residual, removals=False)
            gamma = largest_dominated_gamma(ridge_bounds, mu, failure)
            assert gamma > 0
            assert not is_dominated(gamma * 1.00001, ridge_bounds, mu, failure)
            e = np.abs(rng.normal(size=4000)) * 4 * mu + mu * mu / 2 * rng.integers(0, 2, size=4000)
            promised = norm.sf(e / mu - mu / 2) - np.exp(e) * norm.sf(e / mu + mu / 2)
            leverage = np.array([[0.01], [0.3], [1.0]]) / curvature
            worst = pair_profile(e, gamma, leverage, residual).max(axis=0)
            assert np.all(worst <= failure + (1 - failure) * promised + 1e-12)
            hotter = pair_profile(e, gamma * 1.3, 1 / curvature, residual)
            assert np.any(hotter > failure + (1 - failure) * promised)  # negative control

    def test_data_sets_within_their_bounds(self) -> None:
        """Adversarial neighbours: what is true of the smaller set's bounds decides gamma."""
        rng = np.random.default_rng(7)
        mu, failure, tight = 0.5, 1e-5, 0.0
        for k in range(40):
            d = 1 + k % 3
            rows = random_rows(rng, int(rng.integers(d, 400)), d)
            m = moments(rows)
            bound = LeastEigenvalue().run([m], STREAM)
            ridge = max(1.0, 30.0 - bound)
            size = norm_value(m, ridge, bound)
            gamma = largest_gamma(ridge, bound, size, mu=mu, failure=failure)
            theta = np.array([float(v) for v in solution(m, ridge)[1]])
            h = rows[:, :d].T @ rows[:, :d] + ridge * np.eye(d)
            new = [*np.eye(d), theta / max(np.linalg.norm(theta), 1e-9)]
            new += list(np.linalg.eigh(h)[1].T) + list(rng.normal(size=(20, d)))
            x = np.array(new)
            x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
            leverage = (x * np.linalg.solve(h, x.T).T).sum(axis=1)
            e = np.array([0.0, 0.2, 1.0, 2.0])[:, None]
            promised = norm.sf(e / mu - mu / 2) - np.exp(e) * norm.sf(e / mu + mu / 2)
            for y in (-1.0, 1.0, 0.0):
                delta = pair_profile(e, gamma, leverage, np.abs(y - x @ theta))
                assert np.all(delta <= failure + (1 - failure) * promised + 1e-12)
                tight = max(tight, (delta / (failure + promised)).max())
        assert tight > 0.7

    def test_the_failure_of_several_rows(self) -> None:
        """Against the trade-off function of one row, applied as often as rows change."""
        masses = np.r_[0.0, np.geomspace(1e-12, 1, 4000)]
        for mu, failure, rows in ((0.1, 1e-6, 2), (0.5, 1e-9, 3), (1.0, 1e-4, 2), (0.2, 1e-7, 8)):
            total = group_failure(failure, mu, rows)
            assert rows * failure < total < 1
            power = masses
            for _ in range(rows):  # what an event of this mass under Q may have under P
                inner = np.minimum(power / (1 - failure), 1)
                power = failure + (1 - failure) * norm.cdf(norm.ppf(inner) + mu)
            for e in np.linspace(-2, 6, 33) * rows * mu:
                exact = np.max(power - math.exp(e) * masses)
                m = rows * mu
                promised = norm.cdf(m / 2 - e / m) - math.exp(e) * norm.cdf(-m / 2 - e / m)
                assert exact <= total + (1 - total) * promised + 1e-14
        loss = dp.PosteriorSample(mu=0.2, failure=1e-7).loss(8.0)
        assert loss.delta_floor() >= group_failure(1e-7, 0.2, 8)
        assert loss.mu() == pytest.approx(1.6)
        assert group_failure(1e-9, 5.0, 4) == 1.0

    def test_exchanged_rows(self) -> None:
        """One feature: both posteriors' densities, integrated, for every pair of extreme rows."""
        mu, failure, ridge, rng, tight = 0.3, 1e-5, 20.0, np.random.default_rng(11), 0.0
        points = [(x, y) for x in (-1.0, 0.3, 1.0) for y in (-1.0, 0.0, 1.0)]
        e = np.array([0.0, 0.3, 1.0, 2.0])
        single, double = (
            total + norm.sf(e / m - m / 2) - np.exp(e) * norm.sf(e / m + m / 2)
            for m, total in ((mu, failure), (2 * mu, group_failure(failure, mu, 2)))
        )
        violated = False
        for n in (0, 5, 60):
            common = random_rows(rng, n, 1)
            h, c = float(common[:, 0] @ common[:, 0]) + ridge, float(common[:, 0] @ common[:, 1])
            least = h - ridge  # right at all data sets between
            sizes = [abs((c + x * y) / (h + x * x)) for x, y in [*points, (0.0, 0.0)]]
            size = math.log1p(max(sizes)) / unit(ridge, least)
            gamma = largest_gamma(ridge, least, size, mu=mu, failure=failure)
            laws = [
                norm((c + x * y) / (h + x * x), 1 / math.sqrt(gamma * (h + x * x)))
                for x, y in points
            ]
            mean, deviation = c / h, 1 / math.sqrt(gamma * h)
            w = mean + deviation * np.linspace(-12, 12, 40_001)
            densities = [law.pdf(w) for law in laws]
            for p in densities:
                for q in densities:
                    excess = np.maximum(p - np.exp(e)[:, None] * q, 0)
                    delta = np.trapezoid(excess, w, axis=1)
                    assert np.all(delta <= double + 1e-9)
                    tight = max(tight, float((delta / double).max()))
                    violated |= bool(np.any(delta > single * 1.1))
        assert tight > 0.8
        assert violated  # negative control: one row's promise does not hold

    def test_a_larger_ridge_is_covered_by_the_size_at_the_first(self) -> None:
        """Pairs of all shapes, at the ridge that follows the size."""
        rng, mu, failure, e = np.random.default_rng(12), 0.4, 1e-5, np.array([0.0, 0.5, 1.5])
        promised = norm.sf(e / mu - mu / 2) - np.exp(e) * norm.sf(e / mu + mu / 2)
        grown = 0
        for k in range(30):
            d = 1 + k % 3
            rows = random_rows(rng, int(rng.integers(d, 200)), d)
            rows[:, d] *= 0.1
            m = moments(rows)
            least = LeastEigenvalue().run([m], STREAM)
            first = max(1.0, 10.0 - least)
            size = norm_value(m, first, least)
            ridge = shrinking_ridge(
                first, least, size + 2, 1e-3, width=d, mu=mu, failure=1e-6, reach=2.0
            )
            assert ridge >= first
            grown += ridge > first
            gamma = largest_gamma(ridge, least, size, first, mu=mu, failure=failure)
            h = rows[:, :d].T @ rows[:, :d] + ridge * np.eye(d)
            theta = np.linalg.solve(h, rows[:, :d].T @ rows[:, d])
            assert np.linalg.norm(theta) <= math.expm1(size * unit(first, least)) * (1 + 1e-4)
            x = np.linalg.eigh(h)[1].T
            leverage = (x * np.linalg.solve(h, x.T).T).sum(axis=1)
            for y in (-1.0, 1.0):
                delta = pair_profile(e[:, None], gamma, leverage, np.abs(y - x @ theta))
                assert np.all(delta.max(axis=1) <= failure + (1 - failure) * promised + 1e-12)
        assert grown > 5
        assert bounds_of(9.0, 1.0, 1.0, 10.0) is None
        assert bounds_of(1e300, 1.0, 1.0, 10.0) is not None
        draw = dp.PosteriorSample(mu=1.0, failure=1e-6).release(
            moments([[0.5, 0.0, 1.0]]), STREAM, 9.0, 1e-3, 1.0, 1.0, 10.0
        )
        assert np.isnan(draw).all()

    def test_released_values_that_tell_nothing(self) -> None:
        for ridge, bound, size in ((1.0, 0.0, 2.0**30), (1.0, 5.0, math.nan), (1.0, 0.0, 1e9)):
            assert bounds_of(ridge, bound, size) is None
            assert largest_gamma(ridge, bound, size, mu=1.0, failure=1e-6) == 0.0
        assert largest_gamma(1.0, math.nan, math.inf, mu=1.0, failure=1e-6) == 0.0

    def test_the_printed_noise_is_not_private(self) -> None:
        """std sqrt(log(6/d)) / (eps/4) for sensitivity 1: over its delta/3 by far."""
        epsilon, delta = 8.0, 1e-6
        mu = epsilon / 4 / math.sqrt(math.log(6 / delta))
        share = epsilon / 4
        exact = norm.sf(share / mu - mu / 2) - math.exp(share) * norm.sf(share / mu + mu / 2)
        assert exact > 10 * delta / 3


FEATURES = ["a", "b", "c", "d", "e"]


def table(**options: Any) -> Any:
    return dp.dataset("people", columns=dict.fromkeys([*FEATURES, "y"], (-1, 1)), **options)


def made_up(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, size=(n, 5))
    y = np.clip(0.1 + x @ [0.3, -0.2, 0.1, 0.25, -0.05] + 0.2 * rng.normal(size=n), -1, 1)
    return {**dict(zip(FEATURES, x.T, strict=True)), "y": y}


def plan(solver: Any, people: Any = None, epsilon: float = 1.0, delta: float = 1e-6) -> dp.Pipeline:
    source = table() if people is None else people
    fit = source.solve(solver, epsilon=epsilon, delta=delta)
    return dp.Pipeline(fit=fit).with_delta(delta)


def error(solver: Any, frame: Any, seeds: int = 6) -> float:
    """The root of the mean squared difference in prediction from least squares, over seeds."""
    x = np.column_stack([np.ones(len(frame["y"])), *[frame[f] for f in FEATURES]])
    best = np.linalg.lstsq(x, frame["y"], rcond=None)[0]
    made = plan(solver)
    fits = [list(made.simulate(seed=s, people=frame)["fit"].values()) for s in range(seeds)]
    return float(np.sqrt(np.mean([(x @ (np.array(f) - best)) ** 2 for f in fits])))


class TestAdaOPS:
    def test_its_certificate_uses_the_budget(self) -> None:
        for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-6), (10.0, 1e-3)):
            certificate = plan(dp.AdaOPS(FEATURES, "y"), epsilon=epsilon, delta=delta).certify()
            assert 0.999 * epsilon < certificate.epsilon <= epsilon

    def test_it_comes_to_least_squares_as_rows_grow(self) -> None:
        solver = dp.AdaOPS(FEATURES, "y")
        errors = [error(solver, made_up(n)) for n in (3_000, 10_000, 100_000)]
        assert errors[0] > 2 * errors[1] > 10 * errors[2]
        assert errors[1] < 0.05
        assert error(dp.OPS(FEATURES, "y"), made_up(10_000)) > 2 * errors[1]

    def test_a_document_keeps_it(self) -> None:
        made = plan(dp.AdaOPS(FEATURES, "y"))
        again = dp.load(made.to_json())
        assert again.fingerprint == made.fingerprint
        data = made_up(10_000)
        assert (
            again.simulate(seed=3, people=data)["fit"] == made.simulate(seed=3, people=data)["fit"]
        )

    def test_it_is_a_group(self) -> None:
        assert "AdaOPS.posterior_sample" in str(plan(dp.AdaOPS(FEATURES, "y")))
        assert "propose-test-release" in str(plan(dp.AdaOPS(FEATURES, "y", gamma=1.0)))

    def test_propose_test_release(self) -> None:
        data = made_up(10_000)
        cold, hot = (
            plan(dp.AdaOPS(FEATURES, "y", ridge=1.0, gamma=g)).simulate(seed=1, people=data)["fit"]
            for g in (0.1, 1e4)
        )
        assert all(math.isfinite(v) for v in cold.values())
        assert all(math.isnan(v) for v in hot.values())

    @pytest.mark.parametrize("rows", [0, 1, 3])
    def test_odd_data(self, rows: int) -> None:
        odd = np.array([math.nan, math.inf, -1e308])[:rows]
        frame = {**dict.fromkeys(FEATURES, odd), "y": odd}
        fit = plan(dp.AdaOPS(FEATURES, "y")).simulate(seed=1, people=frame)["fit"]
        assert len(fit) == 6

    def test_constant_and_equal_columns(self) -> None:
        frame = made_up(5_000)
        frame["b"] = frame["a"]
        frame["c"] = np.zeros(5_000)
        fit = plan(dp.AdaOPS(FEATURES, "y")).simulate(seed=1, people=frame)["fit"]
        assert all(math.isfinite(v) for v in fit.values())

    def test_wide_and_narrow_bounds(self) -> None:
        for low, high in ((-1e289, 1e289), (0.0, 5e-324), (3.0, 3.0), (1e200, 1.5e200)):
            people = dp.dataset("people", columns={"a": (low, high), "y": (low, high)})
            frame = {"a": np.array([low, high, 0.0]), "y": np.array([1e308, low, high])}
            fit = plan(dp.AdaOPS(["a"], "y"), people).simulate(seed=1, people=frame)["fit"]
            assert len(fit) == 2

    @pytest.mark.parametrize(
        "options", [{"unit": "id", "rows_per_unit": 4}, {"neighbors": "replace_one", "size": 9}]
    )
    @pytest.mark.parametrize("learner", [dp.AdaOPS, dp.AdaptiveOutputPerturbation])
    def test_units_of_several_rows_and_exchanges(self, learner: Any, options: Any) -> None:
        for epsilon in (0.1, 1.0, 10.0):
            made = plan(learner(FEATURES, "y"), table(**options), epsilon=epsilon)
            assert 0.995 * epsilon <= made.certify().epsilon <= epsilon

    def test_a_failure_that_would_grow_too_much_is_refused(self) -> None:
        people = table(neighbors="replace_one")
        with pytest.raises(dp.NeighborError, match="exchanged row counts twice"):
            people.solve(dp.AdaOPS(FEATURES, "y"), epsilon=100.0, delta=1e-6)

    def test_its_arguments(self) -> None:
        for wrong in ({"ridge": 0.0}, {"gamma": -1.0}, {"gamma": math.nan}, {"ridge": 1e300}):
            with pytest.raises(dp.DeclarationError):
                dp.AdaOPS(FEATURES, "y", **wrong)
        with pytest.raises(dp.DeclarationError, match=r"\bAdaOPS\b"):
            dp.AdaOPS(["y"], "y")
        for epsilon, delta in ((None, None), (1.0, 0.0), (0.0, 1e-6), (1.0, 0.7)):
            with pytest.raises(dp.DeclarationError):
                table().solve(dp.AdaOPS(FEATURES, "y"), epsilon=epsilon, delta=delta)


class TestPosteriorSample:
    def sampled(self, ridge: float, gamma: float, m: Moments, n: int) -> np.ndarray:
        sampler, stream = dp.PosteriorSample(mu=1.0, failure=1e-6), SeededStream(5)
        given = [ridge, gamma, 0.0, 0.5, ridge]
        return np.array([sampler.release(m, stream, *given) for _ in range(n)])

    def test_its_mean_and_covariance(self) -> None:
        """800 draws; chi-square of the Mahalanobis norms and means, 6 deviations: 1e-8."""
        n, ridge, gamma = 800, 40.0, 2.0
        rows = random_rows(np.random.default_rng(8), 60, 3)
        draws = self.sampled(ridge, gamma, moments(rows), n)
        x, y = rows[:, :3], rows[:, 3]
        h = gamma * (x.T @ x + ridge * np.eye(3))
        theta = np.linalg.solve(h / gamma, x.T @ y)
        white = (draws - theta) @ np.linalg.cholesky(h)
        assert abs((white**2).sum() - 3 * n) < 6 * math.sqrt(6 * n)
        assert np.all(np.abs(white.mean(axis=0)) < 6 / math.sqrt(n))
        second = white.T @ white / n
        assert np.all(np.abs(second - np.eye(3)) < 6 * math.sqrt(2 / n))
        off = (draws - theta) @ np.linalg.cholesky(h * 1.3)  # negative control
        assert abs((off**2).sum() - 3 * n) > 6 * math.sqrt(6 * n)

    def test_its_grid(self) -> None:
        draws = self.sampled(40.0, 2.0, moments([[0.5, 0.0, 1.0]]), 50)
        step = 2.0 ** (math.floor(math.log2(1 / math.sqrt(80))) - 40)
        assert np.all(draws / step == np.rint(draws / step))

    def test_a_gamma_that_is_too_hot_or_no_number(self) -> None:
        for gamma in (1e3, math.nan, math.inf, -1.0, 0.0):
            assert np.isnan(self.sampled(40.0, gamma, moments([[0.5, 0.0, 1.0]]), 1)).all()

    def test_a_billion_rows(self) -> None:
        many = (np.asarray(moments([[1, 0, 1], [0.5, 0.5, -1]])) * 2**33).view(Moments)
        assert np.isfinite(self.sampled(40.0, 2.0, many, 1)).all()

    def test_its_premises(self) -> None:
        people = table()
        rows = regression(people, tuple(FEATURES), "y", None)
        other = regression(people, tuple(FEATURES[:4]), "y", None)
        sampler = dp.PosteriorSample(mu=1.0, failure=1e-6)
        low, high = (
            k(sigma=9.0, failure=1e-7, reach=REACH) for k in (dp.LowerBound, dp.UpperBound)
        )
        ridge, gamma = dp.public(5.0), dp.public(1.0)

        def made(rows: Any, given: Any) -> dp.Pipeline:
            return dp.Pipeline(s=rows.query(ExactMoments()).release(sampler, given=given))

        bound = rows.query(LeastEigenvalue()).release(low)
        size = rows.query(CoefficientNorm(), ridge, bound).release(high)
        assert made(rows, [ridge, gamma, bound, size, ridge]).certify(delta=1e-3).epsilon < 20
        noisy = rows.query(LeastEigenvalue()).release(dp.Gaussian(sigma=9.0))
        # as far as an exchange moves the eigenvalue, but not the data sets in between
        far = dp.UpperBound(sigma=9.0, failure=1e-7, reach=2 * REACH)
        farther = rows.query(CoefficientNorm(), ridge, bound).release(far)
        wrong_size = rows.query(LeastEigenvalue()).release(high)
        strange = rows.query(CoefficientNorm(), ridge, dp.public(3.0)).release(high)
        foreign = other.query(LeastEigenvalue()).release(low)
        for given in (
            [ridge, gamma, dp.public(1e6), size, ridge],
            [ridge, gamma, bound, dp.public(0.0), ridge],
            [ridge, gamma, noisy, size, ridge],
            [ridge, gamma, bound, wrong_size, ridge],
            [ridge, gamma, foreign, size, ridge],
            [ridge, gamma, bound, size, dp.public(5.0)],
            [ridge, gamma, dp.post(abs, bound), size, ridge],
            [ridge, gamma, bound, strange, ridge],
            [ridge, gamma, bound, farther, ridge],
            [
                ridge,
                gamma,
                bound,
                rows.query(CoefficientNorm(), ridge, dp.public(3.0)).release(high),
                ridge,
            ],
        ):
            with pytest.raises(dp.DeclarationError, match="PosteriorSample"):
                made(rows, given)
        with pytest.raises(dp.DeclarationError, match="PosteriorSample"):
            made(other, [ridge, gamma, bound, size, ridge])
        with pytest.raises(dp.DeclarationError, match="reads 5 released"):
            made(rows, [ridge, gamma, bound])
