"""Noisy descent against figures worked out elsewhere: its noise, its rounds, its clipping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import beta as beta_law
from scipy.stats import norm as normal

import accountants
import adaptive_dp as dp
from adaptive_dp.data import grid, make_examples
from adaptive_dp.data.examples import to_steps
from adaptive_dp.erm import Logistic, Loss, Multinomial
from adaptive_dp.learning import descent
from adaptive_dp.learning.base import Linear
from adaptive_dp.queries.gradients import LinearGradients

COLUMNS = {"x": (-1.0, 1.0), "s": ["N", "P"]}
WITH_Z = {**COLUMNS, "z": (0.0, 10.0)}


def logistic_rows(count: int, shift: float, seed: int) -> dict[str, Any]:
    """Return rows of a logistic model; the lower ``shift``, the rarer is the class "yes"."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(-1, 1, (count, 3))
    yes = x @ np.array([4.0, -3.0, 2.0]) + shift + draw.logistic(size=count) > 0
    return {**dict(zip("abc", x.T, strict=True)), "label": np.where(yes, "yes", "no")}


def profile(epsilon: float, mu: float) -> float:
    """Return the Gaussian's delta (Balle and Wang 2018, Theorem 8)."""
    low, high = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return float(normal.cdf(low) - math.exp(epsilon) * normal.cdf(high))


def mu_at(epsilon: float, delta: float) -> float:
    return float(brentq(lambda mu: profile(epsilon, mu) - delta, 1e-3, 50, xtol=1e-14))


def same(state: Any, total: Any) -> Any:
    """A round that forgets its gradient."""
    return state


def rounds(sigma: Any, times: int, neighbors: str, rate: float = 1.0) -> dp.Pipeline:
    """Return ``times`` rounds of the sum of gradients clipped to 1."""
    table = dp.dataset("t", columns=COLUMNS, neighbors=neighbors)
    rows = table.examples(["x"], "s", norm=1.0)

    def step(state: dp.Released[Any], rows: Any) -> dp.Released[Any]:
        seen = rows if rate == 1 else rows.sample(rate)
        total = seen.gradients(Logistic(), at=state).sum(clip=1.0)
        return dp.post(same, state, total.release(dp.Gaussian(sigma=sigma)))

    plan = dp.Pipeline(theta=dp.repeat(step, times, rows, start=dp.public([0.0, 0.0])))
    return plan.with_delta(1e-5)


class TestNoise:
    """How much noise (epsilon, delta) = (1, 1e-5) takes at n = 1000, L = 1, T = 100."""

    n, steps, epsilon, delta = 1000, 100, 1.0, 1e-5

    def test_the_printed_noise_is_too_small_where_rows_are_exchanged(self) -> None:
        """``2 L sqrt(T log(1/delta)) / (n epsilon)`` = .06786: delta is 4.28 times what it says."""
        printed = 2 * math.sqrt(self.steps * math.log(1 / self.delta)) / (self.n * self.epsilon)
        assert printed == pytest.approx(0.06786, abs=5e-6)
        mu = 2 * math.sqrt(self.steps) / (self.n * printed)
        assert profile(1.0, mu) / self.delta == pytest.approx(4.28, abs=5e-3)
        plan = rounds(printed * self.n, self.steps, "replace_one")
        assert plan.certify(self.delta).epsilon > 1.08
        assert plan.certify(profile(1.0, mu)).epsilon == pytest.approx(1.0, abs=1e-6)
        assert rounds(printed * self.n, self.steps, "add_remove").certify(1e-5).epsilon < 0.6

    def test_the_exact_noise_is_what_calibration_finds(self) -> None:
        """.07461, against .09801 by zero-concentrated privacy."""
        exact = 2 * math.sqrt(self.steps) / (self.n * mu_at(1.0, self.delta))
        assert exact == pytest.approx(0.07461, abs=5e-6)
        plan = rounds(dp.Free("sigma"), self.steps, "replace_one")
        solved = plan.calibrate(epsilon=1.0, delta=self.delta)
        (sigma,) = {
            node.handle.operation.mechanism.sigma
            for node in solved.structure
            if hasattr(node.handle.operation, "mechanism")
        }
        # outward, by what rounding the sum to steps can add
        assert exact * self.n <= sigma <= exact * self.n * (1 + 1e-5)
        log = math.log(1 / self.delta)
        rho = (math.sqrt(1 + log) - math.sqrt(log)) ** 2
        concentrated = 2 / self.n * math.sqrt(self.steps / (2 * rho))
        assert concentrated == pytest.approx(0.09801, abs=5e-6)
        computed = rounds(concentrated * self.n, self.steps, "replace_one")
        assert computed.measure(accountants.Concentrated(), 1e-5).bounds.upper < 1.0

    def test_the_classic_noise_by_rounds(self) -> None:
        """``sqrt(2 T log(1.25 T / delta)) / epsilon``: up to 170 times the delta by exchange."""
        ratios = []
        for epsilon in (0.5, 1.0):
            for delta in (1e-3, 1e-5):
                for steps in (1, 10, 100, 10**4):
                    sigma = math.sqrt(2 * steps * math.log(1.25 * steps / delta)) / epsilon
                    mu = math.sqrt(steps) / sigma
                    assert profile(epsilon, mu) <= delta
                    ratios.append(profile(epsilon, 2 * mu) / delta)
        assert 160 < max(ratios) < 175
        # past epsilon = 1 it fails for one round, where rows come or go
        sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
        assert profile(10.0, 1 / sigma) / 1e-5 > 2
        assert rounds(sigma, 1, "add_remove").certify(1e-5).epsilon > 10

    @pytest.mark.parametrize("kind", ["GaussianDP", "Renyi"])
    def test_many_rounds_cost_what_one_with_less_noise_does(self, kind: str) -> None:
        accountant = getattr(accountants, kind)()
        many = rounds(40.0, 100, "add_remove").measure(accountant, 1e-5).bounds
        one = rounds(4.0, 1, "add_remove").measure(accountant, 1e-5).bounds
        # apart from what rounding of sums adds, relative to either noise
        assert many.upper == pytest.approx(one.upper, rel=1e-6)
        if kind == "GaussianDP":
            assert many.upper == pytest.approx(
                brentq(lambda e: profile(e, 0.25) - 1e-5, 0.01, 5), rel=1e-6
            )

    def test_sampled_rounds_are_the_sampled_gaussian(self) -> None:
        """The MNIST run of 60 epochs that the literature quotes: 2.3816897261 by integration."""
        plan = rounds(1.1, 14_063, "add_remove", rate=256 / 60_000)
        bounds = plan.measure(accountants.Distribution(), 1e-5).bounds
        assert 2.3816897261 <= bounds.upper <= 2.3816897261 * (1 + 1e-5)

    def test_a_batch_of_fixed_size_is_another_sampler(self) -> None:
        """It is accounted for as such, never as a Poisson sample, and no plan offers it."""
        loss = accountants.Spend(accountants.Gaussian(mu=1.0))
        poisson = accountants.certify(
            accountants.Repeated(accountants.Sampled(loss, rate=0.01), 1000), delta=1e-5
        )
        assert accountants.tightest(poisson).bounds.upper == pytest.approx(1.83, abs=0.01)
        table = dp.dataset("t", columns=COLUMNS)
        with pytest.raises(dp.DeclarationError, match="probability"):
            table.examples(["x"], "s").sample(256)


def gradients(x: Any, y: Any, loss: Loss, theta: Any) -> LinearGradients:
    steps, unit = grid.ball(np.asarray(x, dtype=np.float64), 1.0)
    rows = make_examples(
        steps.astype(np.float32), unit, np.asarray(y, float), 1.0, np.arange(len(y))
    )
    return LinearGradients(rows, loss, *to_steps(np.asarray(theta, dtype=np.float64)))


class TestGradients:
    @pytest.mark.parametrize("loss", [Logistic(), Multinomial(4)], ids=["two", "four"])
    def test_they_are_the_slopes_of_the_loss(self, loss: Loss) -> None:
        """Against central differences; one row's gradient by classes has rank 1."""
        draw = np.random.default_rng(3)
        theta = draw.normal(size=(loss.outputs, 5))
        for _ in range(3):
            x = draw.uniform(-0.4, 0.4, (1, 5))
            y = draw.integers(0, 4, 1) if loss.outputs > 1 else draw.choice([-1.0, 1.0], 1)
            clipped, unit = gradients(x, y, loss, theta).clipped_sum(2.0, relative=False)
            expected = np.zeros(theta.shape)
            for at in np.ndindex(*theta.shape):
                move = np.zeros(theta.shape)
                move[at] = 1e-5
                up, down = (loss.value((theta + s * move) @ x.T, y)[0] for s in (1, -1))
                expected[at] = (up - down) / 2e-5
            np.testing.assert_allclose(clipped * unit, expected, atol=1e-4)
            values = np.linalg.svd(clipped * unit, compute_uv=False)
            assert (values[1:] <= 1e-4 * values[0]).all()

    def test_below_the_norm_nothing_is_clipped(self) -> None:
        draw = np.random.default_rng(4)
        x, y = draw.uniform(-0.4, 0.4, (50, 4)), draw.choice([-1.0, 1.0], 50)
        rows = gradients(x, y, Logistic(), draw.normal(size=(1, 4)))
        wide, narrow = (rows.clipped_sum(c, relative=False) for c in (2.0, 1.0))
        np.testing.assert_allclose(wide[0] * wide[1], narrow[0] * narrow[1], atol=1e-3)


def nesterov(
    x: Any, slope: Callable[[Any], Any], clip: float, rate: float, momentum: float, steps: int
) -> Any:
    """Return the mean of the last half of the iterates, without noise: plain NumPy."""
    v, u, iterates = np.zeros(x.shape[1]), np.zeros(x.shape[1]), []
    for _ in range(steps):
        each = slope(x @ v)[:, None] * x
        lengths = np.linalg.norm(each, axis=1)
        g = (each * np.minimum(1, clip / np.maximum(lengths, 1e-300))[:, None]).mean(axis=0)
        u = momentum * u + g
        v = v - rate * (g + momentum * u)
        iterates.append(v)
    return np.mean(iterates[steps // 2 :], axis=0)


class TestRounds:
    @pytest.mark.parametrize("momentum", [0.0, 0.9])
    def test_without_noise_it_is_gradient_descent(self, momentum: float) -> None:
        draw = np.random.default_rng(6)
        x, z = draw.uniform(-1, 1, 400), draw.uniform(0, 10, 400)
        y = np.where(x + (z - 5) / 5 + draw.normal(size=400) > 0, 1.0, -1.0)
        table = dp.dataset("t", columns=WITH_Z)
        learner = dp.NoisyGradientDescent(
            ["x", "z"], "s", steps=15, learning_rate=2.0, momentum=momentum, clip=0.4
        )
        plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-9)
        data = {"x": x, "z": z, "s": np.where(y > 0, "P", "N")}
        model = plan.simulate(seed=0, t=data)["m"]
        rows = np.column_stack([np.ones(400), x, z / 10])
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        w = nesterov(rows, lambda s: -y / (1 + np.exp(y * s)), 0.4, 2.0, momentum, 15)
        expected = {"intercept": w[0], "x": w[1], "z": w[2] / 10}
        assert model == pytest.approx(expected, abs=1e-4)

    def test_rows_of_any_norm_and_targets_that_are_numbers(self) -> None:
        """Parameters are those of rows divided by their largest norm, times it, in data's units."""
        draw = np.random.default_rng(7)
        x, z = draw.uniform(-1, 1, 300), draw.uniform(0, 10, 300)
        table = dp.dataset("t", columns={**WITH_Z, "y": (10.0, 30.0)})
        y = np.clip(20 + 4 * x + 0.5 * (z - 5) + draw.normal(size=300), 10, 30)
        learner = dp.NoisyGradientDescent(
            ["x", "z"], "y", loss=dp.Huber(0.2), steps=15, learning_rate=1.0, clip=0.1
        )
        plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-9)
        model = plan.simulate(seed=0, t={"x": x, "z": z, "y": y, "s": ["N"] * 300})["m"]
        radius, goal = math.sqrt(3), (y - 20) / 10
        rows = np.column_stack([np.ones(300), x, z / 10]) / radius
        w = nesterov(rows, lambda s: np.clip(s - goal, -0.2, 0.2), 0.1, 1.0, 0.9, 15) / radius
        expected = {"intercept": 20 + 10 * w[0], "x": 10 * w[1], "z": w[2]}
        assert model == pytest.approx(expected, abs=1e-3)

    def test_the_sum_is_divided_by_the_rows_expected_not_by_those_that_came(self) -> None:
        """Rows that are all the same: the step counts the sample, so that it varies with it."""
        table = dp.dataset("t", columns=COLUMNS)
        learner = dp.NoisySGD(
            ["x"], "s", steps=1, sampling_rate=0.1, learning_rate=1.0, momentum=0.0, clip=1.0
        )
        plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-7)
        data = {"x": np.ones(1000), "s": ["P"] * 1000}
        each = 0.5 / math.sqrt(2)  # slope 1/2, a row (1, 1) / sqrt(2)
        came = np.array([plan.simulate(seed=i, t=data)["m"]["x"] / each * 100 for i in range(25)])
        np.testing.assert_allclose(came, np.rint(came), atol=1e-2)
        # binomial of mean 100 and variance 90: 6 standard errors, false alarm below 1e-8; and of
        # 25 draws some differ but with a probability below 1e-50
        assert abs(came.mean() - 100) < 6 * math.sqrt(90 / 25)
        assert len(set(np.rint(came))) > 5

    def test_a_round_without_rows(self) -> None:
        table = dp.dataset("t", columns=COLUMNS)
        learner = dp.NoisySGD(["x"], "s", steps=3, sampling_rate=1e-9)
        plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-9)
        model = plan.simulate(seed=0, t={"x": [1.0], "s": ["P"]})["m"]
        assert all(math.isfinite(value) for value in model.values())


class TestAdaptiveClipping:
    def test_it_reaches_the_quantile(self) -> None:
        """2000 log-normal norms, quantile .9, from .05 on: 3.68, their true quantile 3.67."""
        draw = np.random.default_rng(17)
        norms = draw.lognormal(0, 1, 2000)
        quantile = float(np.quantile(norms, 0.9))
        assert quantile == pytest.approx(3.67, abs=0.01)
        table = dp.dataset("t", columns={"x": (-128.0, 128.0), "s": ["N", "P"]})
        rows = table.examples(["x"], "s", intercept=False)
        problem = Linear(table, rows, (), (0.0, 1.0), ())
        settings = descent.Descent(400, 1.0, 0.05, 1e-12, 0.0, dp.Clipping(quantile=0.9, rate=0.2))
        expected = dp.public(2000.0)
        start = dp.post(descent.initial_state, dp.public(1), clip=0.05 / problem.radius)

        def step(state: dp.Released[Any]) -> dp.Released[Any]:
            radius = problem.radius
            return descent.descent_round(
                problem.rows, radius, Logistic(), settings, state, expected, "sigma"
            )

        state = dp.repeat(step, settings.steps, start=start)
        clip = dp.post(descent.clip_norm, state, radius=problem.radius)
        plan = dp.Pipeline(clip=clip).with_delta(1e-5).fix(sigma=1.0)
        # at parameters 0 a gradient is x / 2, x of [-128, 128] mapped onto [-1, 1]
        data = {"x": 2 * norms, "s": ["P"] * 2000}
        reached = float(plan.simulate(seed=17, t=data)["clip"]) * 128
        assert abs(math.log(reached / quantile)) < 0.15
        assert reached == pytest.approx(3.68, abs=0.25)

    @pytest.mark.parametrize("share", [0.01, 0.3])
    def test_it_costs_what_a_fixed_norm_does_at_less_noise(self, share: float) -> None:
        """``1/z^2 = 1/z_g^2 + 1/z_b^2``; of a count centred by 1/2 it reads ``2 sigma_b``."""
        z = 1.3
        z_g, z_b = z / math.sqrt(1 - share), z / math.sqrt(share)
        assert 1 / z**2 == pytest.approx(1 / z_g**2 + 1 / z_b**2)
        assert z_g == pytest.approx((z**-2 - (2 * (z_b / 2)) ** -2) ** -0.5)
        table = dp.dataset("t", columns=COLUMNS)
        options: dict[str, Any] = {"steps": 30, "sampling_rate": 0.05}
        fixed = dp.NoisySGD(["x"], "s", **options)
        followed = dp.NoisySGD(["x"], "s", adaptive=dp.Clipping(share=share), **options)
        costs = [
            dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=z).certify().epsilon
            for learner in (fixed, followed)
        ]
        # of the fixed learner the noise is sigma times the norm: z is the multiplier of both
        assert costs[1] == pytest.approx(costs[0], rel=1e-4)

    def test_the_exact_percentile_is_not_private(self) -> None:
        """One row of a thousand moves the sum by 90.9; no plan can clip to it."""
        sums = []
        for short in (899, 900):
            lengths = np.r_[np.full(short, 0.1), np.full(1000 - short, 1.0)]
            tau = np.sort(lengths)[899]
            sums.append((tau, np.minimum(lengths, tau).sum()))
        assert [tau for tau, _ in sums] == [1.0, 0.1]
        assert sums[0][1] - sums[1][1] == pytest.approx(90.9)
        table = dp.dataset("t", columns=COLUMNS)
        each = table.examples(["x"], "s").gradients(Logistic(), at=dp.public([0.0, 0.0]))
        with pytest.raises(dp.LeakError, match="t -> x -> quantile"):
            each.sum(clip=table["x"].quantile(0.9))  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("shift", "quantile", "lost"), [(0.0, 0.1, (-0.01, 0.01)), (-3.5, 0.1, (0.04, 0.1))]
    )
    def test_what_it_does_without_noise(
        self, shift: float, quantile: float, lost: tuple[float, float]
    ) -> None:
        """Equal classes lose no accuracy; a rare one is silenced, but not at the 90th percentile.

        Without noise only the quantile's own bias is left.
        """
        table = dp.dataset(
            "rows", columns={**dict.fromkeys("abc", (-1, 1)), "label": ["no", "yes"]}
        )
        options: dict[str, Any] = {"steps": 80, "sampling_rate": 1.0, "learning_rate": 4.0}
        train, test = (logistic_rows(4_000, shift, seed) for seed in (0, 1))

        def right(**norm: Any) -> float:
            learner = dp.NoisySGD(["a", "b", "c"], "label", **norm, **options)
            plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5).fix(sigma=1e-6)
            model = plan.simulate(seed=0, rows=train)["m"]
            predicted = model["intercept"] + sum(model[name] * test[name] for name in "abc") > 0
            return float(np.mean(predicted == (test["label"] == "yes")))

        free = right(clip=1.0)
        low, high = lost
        assert low < free - right(clip=0.5, adaptive=dp.Clipping(quantile, rate=0.5)) < high
        assert abs(free - right(clip=0.5, adaptive=dp.Clipping(0.9, rate=0.5))) < 0.01


class TestAudit:
    """NoisySGD on a pair that is as far apart as can be: no rows, or one of the other class."""

    draws = 600

    def outcomes(self, plan: dp.Pipeline, classes: list[str], seed: int, draws: int) -> Any:
        """Return how far the model went towards the person."""
        data = {"x": np.ones(len(classes)), "s": classes}
        models = [plan.simulate(seed=seed + i, t=data)["m"] for i in range(draws)]
        return np.array([m["intercept"] + m["x"] for m in models])

    def least_epsilon(self, plan: dp.Pipeline, delta: float, absent: list[str]) -> float:
        """Return a lower bound of epsilon; above the true one with a probability below 1e-6."""
        pair = list(enumerate((absent, ["P"]), 1))
        pilot = [self.outcomes(plan, classes, 10**6 * i, 60) for i, classes in pair]
        cuts = np.quantile(np.concatenate(pilot), [0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98])
        draws = [self.outcomes(plan, classes, 10**7 * i, self.draws) for i, classes in pair]
        share = 1e-6 / (4 * len(cuts))
        epsilon = 0.0
        for cut in cuts:
            absent, present = ((d > cut).sum() for d in draws)
            for hits, misses in ((present, absent), (self.draws - absent, self.draws - present)):
                low = beta_law.ppf(share, hits, self.draws - hits + 1) if hits else 0.0
                high = beta_law.ppf(1 - share, misses + 1, max(self.draws - misses, 1e-9))
                if low > delta:
                    epsilon = max(epsilon, math.log((low - delta) / high))
        return epsilon

    @pytest.mark.parametrize(("neighbors", "absent"), [("add_remove", []), ("replace_one", ["N"])])
    def test_it_stays_below_the_certificate_and_a_broken_one_does_not(
        self, neighbors: str, absent: list[str]
    ) -> None:
        table = dp.dataset("t", columns=COLUMNS, neighbors=neighbors)
        # a loss whose scores are not checked against the odds of the classes
        settings = {"learning_rate": 1e-3, "momentum": 0.0, "clip": 0.1}
        learner = dp.NoisySGD(["x"], "s", dp.HuberHinge(), 2, 0.98, **settings)
        plan = dp.Pipeline(m=table.solve(learner)).with_delta(1e-5)
        # an exchange costs twice as much: with less noise, more than so few draws can show
        sound = plan.fix(sigma=4.0 if absent else 2.0)
        broken = plan.fix(sigma=0.2)
        paper = sound.certify()
        least = self.least_epsilon(sound, 1e-5, absent)
        assert 0.05 < least <= paper.epsilon
        assert self.least_epsilon(broken, 1e-5, absent) > paper.epsilon


def correlated(count: int, seed: int) -> tuple[Any, Any]:
    """Return rows whose classes differ along directions of a hundredth of the features' size."""
    draw = np.random.default_rng(seed)
    common = draw.uniform(-1, 1, (count, 1))
    x = np.clip(common + 0.04 * draw.normal(size=(count, 3)), -1, 1)
    z = (x - common) @ np.array([[90.0, -60, 0], [-60, 90, -60], [0, -60, 90]])
    return x, np.argmax(z + draw.gumbel(size=z.shape), axis=1)


class TestScaledSteps:
    """Steps scaled by the rows' second moments and by the noise, where no rate is given."""

    table = dp.dataset("t", columns={**dict.fromkeys("abc", (-1.0, 1.0)), "k": list("uvw")})

    def fit(self, learner: Any, x: Any, y: Any, **noise: float) -> dict[str, Any]:
        model = self.table.solve(learner) if "sigma" in noise else None
        if model is None:
            model = self.table.solve(learner, epsilon=noise["epsilon"], delta=1e-6)
        plan = dp.Pipeline(m=model).with_delta(1e-6)
        plan = plan.fix(**noise) if "sigma" in noise else plan
        data = {**dict(zip("abc", x.T, strict=True)), "k": np.array(list("uvw"))[y]}
        return dict(plan.simulate(seed=1, t=data)["m"])

    def test_without_noise_they_are_those_of_the_formula(self) -> None:
        """M = h X'X, h = 1/2 of several classes, and Nesterov's form: plain NumPy."""
        x, y = correlated(400, 1)
        learner = dp.NoisyGradientDescent(list("abc"), "k", loss=Multinomial(3), steps=9, clip=0.4)
        model = self.fit(learner, x, y, sigma=1e-9)
        rows = np.column_stack([np.ones(400), x])
        rows /= np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]
        inverse = np.linalg.inv(rows.T @ rows / 2)
        v, u, iterates = np.zeros((3, 4)), np.zeros((3, 4)), []
        for _ in range(9):
            z = np.exp(rows @ v.T)
            slopes = z / z.sum(axis=1, keepdims=True) - np.eye(3)[y]
            lengths = np.linalg.norm(slopes, axis=1) * np.linalg.norm(rows, axis=1)
            slopes *= np.minimum(1, 0.4 / lengths)[:, None]
            g = slopes.T @ rows @ inverse
            u = 0.9 * u + g
            v = v - (g + 0.9 * u)
            iterates.append(v)
        expected = np.mean(iterates[4:], axis=0)
        given = np.array([list(model[c].values()) for c in "uvw"])
        np.testing.assert_allclose(given, expected, atol=2e-3 * np.abs(expected).max())

    def test_directions_of_little_variation_are_learned(self) -> None:
        """Within .01 of the best linear rule at epsilon 8, where steps of one length are not."""
        x, y = correlated(8_000, 2)
        new, of = correlated(8_000, 3)

        def right(weights: Any) -> float:
            scores = np.column_stack([np.ones(len(new)), new]) @ weights.T
            return float(np.mean(scores.argmax(axis=1) == of))

        def learned(learner: Any, rate: float | None, **options: Any) -> float:
            given = {"loss": Multinomial(3), "learning_rate": rate, **options}
            model = self.fit(learner(list("abc"), "k", **given), x, y, epsilon=8)
            return right(np.array([list(model[c].values()) for c in "uvw"]))

        best = 0.857  # of scikit-learn's LogisticRegression(C=1e5) on the same rows
        assert learned(dp.NoisyGradientDescent, None) > best - 0.01
        assert learned(dp.NoisySGD, None, steps=150, sampling_rate=0.1) > best - 0.01
        assert learned(dp.NoisyGradientDescent, 8.0) < best - 0.01

    def test_of_few_rows_and_a_small_budget_they_do_not_diverge(self) -> None:
        """Noise moves predictions by about `NUMBER_REACH` of the target's half width, not more."""
        draw = np.random.default_rng(5)
        x, y = draw.uniform(-1, 1, (100, 8)), draw.uniform(-1, 1, 100)
        names = [f"x{i}" for i in range(8)]
        table = dp.dataset("t", columns={**dict.fromkeys(names, (-1, 1)), "y": (-1, 1)})
        learner = dp.NoisyGradientDescent(names, "y", loss=dp.Squared())
        plan = dp.Pipeline(m=table.solve(learner, epsilon=0.05, delta=1e-6)).with_delta(1e-6)
        data = {**dict(zip(names, x.T, strict=True)), "y": y}
        errors = []
        for seed in range(8):
            predicted = dp.predict(plan.simulate(seed=seed, t=data)["m"], data)
            errors.append(np.mean(np.square(predicted - y)) / np.var(y))
        # half of the noise's reach, as the momentum's last rounds are averaged; steps of one size
        # are here 50 to 500 times worse than the mean
        assert max(errors) < 1.5

    def test_the_clip_of_numbers_follows_the_noise(self) -> None:
        """At epsilon 50 what is learned is least squares; at epsilon .5 the clip is the least."""
        draw = np.random.default_rng(7)
        x, n = draw.uniform(-1, 1, (2_000, 3)), 2_000
        # residuals that are far longer than the least clip, on one side
        y = np.clip(x @ [0.3, -0.2, 0.1] - 0.6 + draw.exponential(0.3, n), -1, 1)
        table = dp.dataset("t", columns=dict.fromkeys("abcy", (-1.0, 1.0)))
        learner = dp.NoisyGradientDescent(list("abc"), "y", loss=dp.Squared())
        plan = dp.Pipeline(m=table.solve(learner, epsilon=50, delta=1e-6)).with_delta(1e-6)
        model = plan.simulate(seed=1, t={**dict(zip("abc", x.T, strict=True)), "y": y})["m"]
        rows = np.column_stack([np.ones(n), x])
        best = np.linalg.lstsq(rows, y, rcond=None)[0]
        np.testing.assert_allclose(list(model.values()), best, atol=0.02)
        # of 2,000 rows and 4 parameters, mu 1/40 at sigma 40 * sqrt(99): half a row of 25
        few = descent.clip_of_noise(2_000, 40 * math.sqrt(99), width=4, rate=1.0, most=2.0)
        assert few == descent.LEAST_CLIP
        # and mu = 1: 20 rows of 25
        many = descent.clip_of_noise(2_000, math.sqrt(99), width=4, rate=1.0, most=2.0)
        assert many == pytest.approx(descent.LEAST_CLIP * math.sqrt(20))
        assert descent.clip_of_noise(1e9, 1e-9, width=4, rate=1.0, most=0.5) == 0.5
