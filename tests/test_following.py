"""Mechanisms that follow released bounds: the contract, minimizers, numbers with sensitivities."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from scipy import optimize
from scipy.stats import norm

import accountants
import adaptive_dp as dp
from adaptive_dp.data import make_examples
from adaptive_dp.erm import Constants, Loss
from adaptive_dp.graph.operation import Change
from adaptive_dp.instance import (
    InstanceGaussian,
    InstanceMechanism,
    PerturbedMinimizer,
    PerturbedValue,
    SensitivityBound,
    minimizer_mus,
    minimizer_sensitivity,
    stability_identity,
    with_gaussian_noise,
)
from adaptive_dp.instance.following import is_within
from adaptive_dp.mechanisms.objective_perturbation import Problem
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.counts import Count
from adaptive_dp.queries.gradients import GradientNorm, LeastCurvature, unit_scale
from adaptive_dp.queries.order_statistics import QuantileSensitivity

LOGISTIC = dp.Logistic()


@frozen
class PseudoHuber(Loss):
    """``sqrt(1 + (z - y)^2)``, whose third derivative is at most 3/2 of the second."""

    labels = "number"
    self_concordance = 1.5

    def value(self, z: Any, y: Any) -> Any:
        return np.sqrt(1 + (z[0] - y) ** 2)

    def slope(self, z: Any, y: Any) -> Any:
        return (z - y) / np.sqrt(1 + (z - y) ** 2)

    def second(self, z: Any, y: Any) -> Any:
        return ((1 + (z - y) ** 2) ** -1.5)[None]

    def constants(self, reach: float = math.inf) -> Constants:
        return Constants(lipschitz=1.0, smoothness=1.0)


def derivatives(loss: Loss, x: Any, y: Any, ridge: float, w: Any) -> tuple[Any, Any]:
    z = (x @ w)[None]
    gradient = x.T @ loss.slope(z, y)[0] + ridge * w
    hessian = (x * loss.second(z, y)[0, 0][:, None]).T @ x + ridge * np.eye(len(w))
    return gradient, hessian


def minimum(loss: Loss, x: Any, y: Any, ridge: float) -> Any:
    """By scipy, without the library's optimizers."""

    def both(w: Any) -> tuple[float, Any]:
        value = loss.value((x @ w)[None], y).sum() + ridge * w @ w / 2
        return value, derivatives(loss, x, y, ridge, w)[0]

    w = optimize.minimize(both, np.zeros(x.shape[1]), jac=True, method="BFGS").x
    for _ in range(8):
        gradient, hessian = derivatives(loss, x, y, ridge, w)
        w = w - np.linalg.solve(hessian, gradient)
    assert np.linalg.norm(derivatives(loss, x, y, ridge, w)[0]) < 1e-9
    return w


def unit_rows(rng: np.random.Generator, n: int, d: int) -> Any:
    x = rng.normal(size=(n, d))
    return x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))


class TestMinimizers:
    def test_no_row_moves_a_minimizer_farther_than_the_theorem_says(self) -> None:
        """Random points, data and rows, also along the flattest direction; with exact bounds."""
        rng, tightest = np.random.default_rng(1), 0.0
        for trial in range(150):
            loss: Loss = LOGISTIC if trial % 3 else PseudoHuber()
            d, ridge = int(rng.integers(1, 4)), float(10 ** rng.uniform(-2, 1))
            n = int(rng.integers(1, 80))
            x = unit_rows(rng, n + 1, d)
            y = np.sign(rng.normal(size=n + 1))
            if trial % 2:  # the row along the flattest direction, against its label
                w = minimum(loss, x[:n], y[:n], ridge)
                hessian = derivatives(loss, x[:n], y[:n], ridge, w)[1]
                x[n] = np.linalg.eigh(hessian)[1][:, 0]
                y[n] = -np.sign(x[n] @ w) or 1.0
            small, large = (minimum(loss, x[:k], y[:k], ridge) for k in (n, n + 1))
            u = small + rng.normal(size=d) * float(10 ** rng.uniform(-4, 0))
            parts = [derivatives(loss, x[:k], y[:k], ridge, u) for k in (n, n + 1)]
            least = min(float(np.linalg.eigvalsh(h)[0]) for _, h in parts) - ridge
            gradient = max(float(np.linalg.norm(g)) for g, _ in parts)
            bound = minimizer_sensitivity(
                loss, ridge=ridge, curvature=max(0.0, least), gradient=gradient
            )
            moved = float(np.linalg.norm(large - small))
            assert moved <= bound
            tightest = max(tightest, moved / bound)
        assert tightest > 0.5

    def test_the_curvature_at_the_minimizer_alone_bounds_nothing(self) -> None:
        """E24 of the errata: one row of slope .9 moves sqrt(1 + t^2) by 2.06, and not by .9."""
        slope = 0.9
        moved = slope / math.sqrt(1 - slope**2)
        near = minimizer_sensitivity(PseudoHuber(), ridge=1e-3, curvature=1.0, gradient=slope)
        assert slope < moved < near
        with pytest.raises(dp.DeclarationError, match="self_concordance"):
            minimizer_sensitivity(dp.Huber(), ridge=1.0, curvature=1.0)

    def test_the_identity_has_a_plus(self) -> None:
        rng = np.random.default_rng(2)
        x, y = unit_rows(rng, 30, 3), np.sign(rng.normal(size=30))
        moved = stability_identity(x, y, row=[0.5, -0.5, 0.6], label=-1.0, loss=LOGISTIC, ridge=0.3)
        difference = moved.without - moved.full
        assert moved.by_full == pytest.approx(difference, rel=1e-9)
        assert moved.by_without == pytest.approx(difference, rel=1e-9)
        assert np.linalg.norm(moved.by_full + difference) > 0.1  # the printed sign
        assert repr(moved) == "<private>"
        assert moved.without == pytest.approx(minimum(LOGISTIC, x, y, 0.3), rel=1e-9)

    def test_each_records_mu_is_above_what_leaving_it_out_moves(self) -> None:
        rng = np.random.default_rng(3)
        x, y = unit_rows(rng, 40, 2), np.sign(rng.normal(size=40))
        ridge, sigma = 0.2, 0.7
        theta = minimum(LOGISTIC, x, y, ridge)
        mus = minimizer_mus(x, y, theta, loss=LOGISTIC, ridge=ridge, sigma=sigma).reveal()
        left = [minimum(LOGISTIC, np.delete(x, i, 0), np.delete(y, i), ridge) for i in range(40)]
        exact = np.linalg.norm(np.array(left) - theta, axis=1) / sigma
        assert np.all(mus >= exact)
        assert np.median(exact / mus) > 0.5
        # a point that is not the minimizer: the bound still holds of the minimizer
        off = minimizer_mus(x, y, theta + 0.01, loss=LOGISTIC, ridge=ridge, sigma=sigma).reveal()
        assert np.all(off >= exact)


def labeled(n: int, seed: int = 0, d: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    frame = {f"x{j}": rng.uniform(-1, 1, n) for j in range(d)}
    score = 2 * frame["x0"] - frame["x1"] + rng.logistic(size=n)
    frame["y"] = np.where(score > 0, "yes", "no")
    columns: dict[str, Any] = {f"x{j}": (-1, 1) for j in range(d)}
    people = dp.dataset("people", columns={**columns, "y": ["no", "yes"]})
    return people, frame


def examples(x: Any, y: Any) -> Any:
    steps = np.rint(np.asarray(x) * 2.0**18).astype(np.float32)
    return make_examples(steps, 2.0**-18, y, 1.001, np.arange(len(y)))


class TestBoundsAtAPoint:
    def test_curvature_and_gradient_are_bounded_outward(self) -> None:
        people, frame = labeled(3_000)
        rows = people.examples(["x0", "x1"], "y", norm=1.0)
        inner = dp.Pipeline(
            c=rows.least_curvature(LOGISTIC, dp.public([0.5, -0.25, 1.0])).release(
                dp.Gaussian(sigma=1e-6)
            ),
            g=rows.gradient_norm(LOGISTIC, dp.public([0.5, -0.25, 1.0]), ridge=2.0).release(
                dp.Gaussian(sigma=1e-6)
            ),
        ).with_delta(1e-6)
        out = inner.simulate(seed=1, people=frame)
        x = np.column_stack([np.ones(3_000), frame["x0"], frame["x1"]])
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        y = np.where(frame["y"] == "yes", 1.0, -1.0)
        gradient, hessian = derivatives(LOGISTIC, x, y, 2.0, np.array([0.5, -0.25, 1.0]))
        least = float(np.linalg.eigvalsh(hessian)[0]) - 2.0
        assert out["c"] * 0.25 == pytest.approx(least, rel=1e-4)
        assert out["g"] == pytest.approx(float(np.linalg.norm(gradient)), rel=1e-4)

    def test_no_row_moves_them_by_more_than_their_sensitivity(self) -> None:
        """Every row of a grid comes to small data sets of rows of the same grid."""
        rng, points = np.random.default_rng(5), [(-1.0, 0.0), (0.6, 0.8), (0.0, 1.0), (0.3, -0.2)]
        change, most = Change(False, 1, False), [0.0, 0.0]
        queries = (LeastCurvature("Logistic()"), GradientNorm("Logistic()", 0.5))
        for _ in range(40):
            n, at = int(rng.integers(0, 12)), rng.normal(size=2)
            chosen = [points[i] for i in rng.integers(0, 4, n)]
            labels = np.sign(rng.normal(size=n + 1))
            for extra in points:
                two = [
                    examples(np.array([*chosen, *more]).reshape(-1, 2), labels[: n + len(more)])
                    for more in ([], [extra])
                ]
                for i, query in enumerate(queries):
                    before, after = (query.run([e, at], SeededStream(0)) for e in two)
                    moved = abs(after - before)
                    assert moved <= query.sensitivity(None, change, 2)  # type: ignore[arg-type]
                    most[i] = max(most[i], moved)
        assert min(most) > 0.5

    def test_the_scale_is_the_solvers(self) -> None:
        e = examples(np.array([[0.3, 0.4]]), np.array([1.0]))
        assert Problem(e, LOGISTIC, 1.0, []).scale == unit_scale(e)


def following(people: Any, mu: float = 0.3, **changed: Any) -> Any:
    rows = people.examples(["x0", "x1"], "y", norm=1.0)
    at = rows.as_query().release(
        dp.PerturbedObjective(sigma=8.0, ridge=2.0, blur=1e4, of="Logistic()")
    )
    reach = changed.get("reach", 1 + 2.0**-13)
    low = rows.least_curvature(LOGISTIC, changed.get("at", at)).release(
        dp.LowerBound(sigma=20.0, failure=1e-8, reach=reach)
    )
    high = rows.gradient_norm(LOGISTIC, at, ridge=changed.get("ridge", 1.0)).release(
        dp.UpperBound(sigma=10.0, failure=1e-8, reach=reach)
    )
    mechanism = PerturbedMinimizer(mu=mu, ridge=1.0, of="Logistic()")
    return rows.as_query().release(mechanism, given=[at, low, high]), low, high


class TestPerturbedMinimizer:
    def test_its_noise_falls_with_the_curvature(self) -> None:
        people, frame = labeled(20_000)
        model, low, high = following(people)
        plan = dp.Pipeline(model=model, low=low, high=high).with_delta(1e-6)
        assert plan.certify().epsilon < 3
        x = np.column_stack([np.ones(20_000), frame["x0"], frame["x1"]])
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        w = minimum(LOGISTIC, x, np.where(frame["y"] == "yes", 1.0, -1.0), 1.0)
        draws = [plan.simulate(seed=k, people=frame) for k in range(12)]
        mechanism = PerturbedMinimizer(mu=0.3, ridge=1.0, of="Logistic()")
        white = [
            (d["model"] - w) / (mechanism.sensitivity(3, np.zeros(3), d["low"], d["high"]) / 0.3)
            for d in draws
        ]
        # 36 normal numbers: chance 1e-7 below 7 and above 95
        assert 7 < float((np.array(white) ** 2).sum()) < 95
        # the worst case's noise is L / (ridge mu) = 3.3
        assert max(float(np.abs(d["model"] - w).max()) for d in draws) < 0.3

    def test_several_rows_and_bounds_that_tell_nothing(self) -> None:
        mechanism = PerturbedMinimizer(mu=0.5, ridge=1.0, of="Logistic()")
        assert mechanism.loss(3.0).mu() == pytest.approx(1.5)
        e = examples(np.array([[0.3, 0.4], [0.1, -0.9]]), np.array([1.0, -1.0]))
        for given in ((math.nan, 5.0), (1e300, 5.0), (3.0, math.nan), (3.0, math.inf)):
            draw = mechanism.release(e, SeededStream(1), np.zeros(2), *given)
            finite = not math.isnan(given[1]) and given[1] < 1e9 and not given[0] > 1e15
            assert np.isfinite(draw).all() == finite
            assert draw.shape == (2,)

    def test_its_premises(self) -> None:
        people, _ = labeled(10)
        for changed in ({"at": dp.public([0.0, 0.0, 0.0])}, {"ridge": 2.0}):
            with pytest.raises(dp.DeclarationError, match="PerturbedMinimizer"):
                dp.Pipeline(m=following(people, **changed)[0])
        _, low, high = following(people)
        rows = people.examples(["x0", "x1"], "y", norm=1.0)
        other = people.filter(people["x0"] > 0).examples(["x0", "x1"], "y", norm=1.0)
        at = low.inputs[0].inputs[1]
        for query, given in (
            (rows.as_query(), [at, dp.public(1e3), high]),
            (other.as_query(), [at, low, high]),
        ):
            mechanism = PerturbedMinimizer(mu=0.3, ridge=1.0, of="Logistic()")
            with pytest.raises(dp.DeclarationError, match="PerturbedMinimizer"):
                dp.Pipeline(m=query.release(mechanism, given=given))

    def test_an_exchanged_row_needs_a_reach_of_two(self) -> None:
        """The eigenvalue moves by one, but the data sets in between must be within reach too."""
        _, frame = labeled(10)
        columns = {"x0": (-1, 1), "x1": (-1, 1), "y": ["no", "yes"]}
        people = dp.dataset("people", columns=columns, neighbors="replace_one")
        with pytest.raises(dp.DeclarationError, match="reach of 2"):
            dp.Pipeline(m=following(people)[0])
        model, _, _ = following(people, reach=2 * (1 + 2.0**-13))
        assert dp.Pipeline(m=model).with_delta(1e-6).certify().epsilon < 7
        assert frame is not None


def joint_profile(
    epsilon: float, first: tuple[float, float], second: tuple[float, float], sigma: float,
    mu: float, shift: float,
) -> float:  # fmt: skip
    """The hockey-stick of (bound, value), each of (log S, f), by a sum over the bound."""
    logs = [first[0] + shift, second[0] + shift]
    b = np.linspace(min(logs) - 9 * sigma, max(logs) + 9 * sigma, 4_001)
    p, q = (norm.pdf(b, log, sigma) for log in logs)
    e = epsilon - np.log(np.maximum(p, 1e-300) / np.maximum(q, 1e-300))
    m = np.maximum(abs(first[1] - second[1]) * mu / np.exp(b), 1e-12)
    inner = norm.sf(e / m - m / 2) - np.exp(np.minimum(e, 700)) * norm.sf(e / m + m / 2)
    inner = np.where(e < 0, np.maximum(inner, -np.expm1(np.minimum(e, 0))), inner)
    return float((p * np.maximum(inner, 0)).sum() * (b[1] - b[0]))


class TestPerturbedValue:
    def test_all_neighbours_of_a_small_universe(self) -> None:
        """Medians of up to five of the values 0, 1, 4 and 10: every pair, both directions."""
        slope, sigma, failure, mu, worst = 0.5, 1.0, 1e-3, 0.8, 0.0
        bound = SensitivityBound(sigma, failure, slope)
        claim = accountants.Sequential(
            [accountants.Spend(each.loss(1.0)) for each in (bound, PerturbedValue(mu))]
        )
        epsilons = np.array([0.0, 0.5, 1.5, 3.0])
        promised = [
            float(
                accountants.measure(
                    claim, accountants.Distribution(), epsilon=float(e)
                ).bounds.upper
            )
            for e in epsilons
        ]
        data = {}
        for n in range(6):
            for values in itertools.combinations_with_replacement([0.0, 1.0, 4.0, 10.0], n):
                s = QuantileSensitivity(np.array(values), 0.0, 10.0, 0.5, exchange=False)
                data[values] = math.log(s.smooth(slope)), s.value
        for values in data:
            for i in range(len(values)):
                left = values[:i] + values[i + 1 :]
                for pair in ((values, left), (left, values)):
                    one, two = (data[v] for v in pair)
                    assert abs(one[0] - two[0]) <= bound.step_size()
                    for e, most in zip(epsilons, promised, strict=True):
                        exact = joint_profile(float(e), one, two, sigma, mu, bound.margin())
                        assert exact <= most * (1 + 1e-6)
                        worst = max(worst, exact / most)
        assert worst > 0.3

    def test_plans(self) -> None:
        people = dp.dataset("people", columns={"age": (0, 120)})
        median = people["age"].median()
        result = with_gaussian_noise(median, epsilon=1.0, delta=1e-6)
        plan = dp.Pipeline(m=result).with_delta(1e-6)
        assert 0.99 < plan.certify().epsilon <= 1.0
        again = dp.load(plan.to_json())
        assert again.fingerprint == plan.fingerprint
        with pytest.raises(dp.DeclarationError, match="local sensitivities"):
            with_gaussian_noise(people.count(), epsilon=1.0, delta=1e-6)
        bound = people["age"].quantile(0.9).release(SensitivityBound(0.5, 1e-7, 0.1))
        with pytest.raises(dp.DeclarationError, match="same query"):
            dp.Pipeline(m=median.release(PerturbedValue(0.3), given=[bound]))
        with pytest.raises(dp.DeclarationError, match="rows=3"):
            SensitivityBound(0.5, 1e-7, 0.1).loss(3.0)
        owners = dp.dataset("people", columns={"age": (0, 120)}, unit="id", rows_per_unit=3)
        three = with_gaussian_noise(owners["age"].median(), epsilon=1.0, delta=1e-6)
        assert 0.99 < dp.Pipeline(m=three).with_delta(1e-6).certify().epsilon <= 1.0


class LaplaceMean(InstanceMechanism):
    """Laplace noise for a released number of rows."""

    bounds = ((dp.LowerBound, Count),)
    input_type = dp.LocalSensitivity
    width: float = 10.0

    def profile(self, noise: float, epsilons: Any, *given: Any) -> Any:
        pure = self.width / (max(given[0], 0.0) + 1) / noise
        return np.maximum(-np.expm1((epsilons - pure) / 2), 0.0) * (1 + 1e-12)

    def draw(self, value: Any, noise: float, stream: Any, *given: Any) -> Any:
        return dp.Laplace(noise).release(np.array(value.value), stream)


class NoisyMean(InstanceGaussian):
    bounds = ((dp.LowerBound, Count),)
    input_type = dp.LocalSensitivity

    def sensitivity(self, width: int, *given: Any) -> float:
        return 10.0 / (max(given[0], 0.0) + 1)

    def center(self, value: Any, *given: Any) -> Any:
        return value.value


def mean_of(people: Any) -> Any:
    def mean(values: Any) -> float:
        return float(np.mean(values)) if len(values) else 0.0

    def moves(values: Any, k: int) -> float:
        return 10.0 / (max(len(values) - k, 0) + 1)

    return people["x"].instance(mean, moves, range=(0, 10))


class TestContract:
    def test_the_least_noise_keeps_the_promise_and_less_does_not(self) -> None:
        mechanism = LaplaceMean(mu=0.4, failure=1e-6)
        noise = mechanism.level(None, 99.0)
        assert noise is not None

        def holds(t: float) -> bool:
            return is_within(lambda e: mechanism.profile(t, e, 99.0), 0.4, 1e-6)

        assert holds(noise)
        assert not holds(noise * 0.99)
        # the exact profile against the promise's, at every epsilon of a fine grid
        pure = 0.1 / noise
        for e in np.linspace(0, 3, 301):
            most = norm.sf(e / 0.4 - 0.2) - math.exp(e) * norm.sf(e / 0.4 + 0.2)
            assert max(0.0, -math.expm1((e - pure) / 2)) <= 1e-6 + (1 - 1e-6) * most

    def test_a_proposed_noise_is_tested(self) -> None:
        least = LaplaceMean(mu=0.4).level(None, 99.0)
        assert least is not None
        enough = LaplaceMean(mu=0.4, proposed=2 * least)
        assert enough.level(None, 99.0) == 2 * least
        assert LaplaceMean(mu=0.4, proposed=least / 2).level(None, 99.0) is None
        people = dp.dataset("people", columns={"x": (0, 10)})
        low = people.count().release(dp.LowerBound(sigma=5.0, failure=1e-8, reach=1.0))
        tight = LaplaceMean(mu=0.4, failure=1e-8, proposed=least)
        mean = mean_of(people).release(tight, given=[low])
        plan = dp.Pipeline(mean=mean).with_delta(1e-6)
        assert np.isnan(plan.simulate(seed=1, people={"x": [1.0] * 50})["mean"])
        assert plan.simulate(seed=1, people={"x": [4.0] * 5_000})["mean"] == pytest.approx(4, abs=3)

    def test_bounds_of_other_rows_are_refused(self) -> None:
        people = dp.dataset("people", columns={"x": (0, 10)})
        few = people.filter(people["x"] > 5)
        for rows, mechanism in ((few, dp.LowerBound), (people, dp.UpperBound)):
            low = rows.count().release(mechanism(sigma=5.0, failure=1e-8, reach=1.0))
            with pytest.raises(dp.DeclarationError, match="NoisyMean"):
                dp.Pipeline(m=mean_of(people).release(NoisyMean(mu=0.3), given=[low]))

    def test_a_mean_of_its_own(self) -> None:
        people = dp.dataset("people", columns={"x": (0, 10)})
        low = people.count().release(dp.LowerBound(sigma=5.0, failure=1e-8, reach=1.0))
        mean = mean_of(people).release(NoisyMean(mu=0.3), given=[low])
        plan = dp.Pipeline(mean=mean).with_delta(1e-6)
        noise = accountants.Composite(
            ((accountants.Gaussian(0.2), 1), (accountants.Gaussian(0.3), 1))
        )
        assert plan.certify().epsilon == pytest.approx(noise.epsilon_at(1e-6).upper, rel=0.02)
        draws = [
            plan.simulate(seed=k, people={"x": np.tile([2.0, 6.0], 5_000)})["mean"]
            for k in range(60)
        ]
        # sigma is 10 / (.3 n), n the released bound: within 5 % of .00333 * 1; chance below 1e-6
        assert 0.5 < float(np.std(draws)) / (10 / 0.3 / 10_000) < 1.6


FEATURES = ["x0", "x1"]


def excess(people: Any, frame: Any, learner: Any, epsilon: float) -> float:
    """How far the loss of a learner's model is above the least one."""
    plan = dp.Pipeline(m=people.solve(learner, epsilon=epsilon, delta=1e-6)).with_delta(1e-6)
    assert 0.99 * epsilon < plan.certify().epsilon <= epsilon
    out = plan.simulate(seed=2, people=frame)["m"]
    x = np.column_stack([np.ones(len(frame["x0"])), frame["x0"], frame["x1"]])
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
    y = np.where(frame["y"] == "yes", 1.0, -1.0)
    w = np.array([out["intercept"], out["x0"], out["x1"]])
    losses = [LOGISTIC.value((x @ v)[None], y).mean() for v in (w, minimum(LOGISTIC, x, y, 1.0))]
    return float(losses[0] - losses[1])


def test_a_logistic_model_follows_its_curvature() -> None:
    """At one budget its loss is far below that of noise for the worst case."""
    people, frame = labeled(20_000)
    adaptive = excess(people, frame, dp.AdaptiveOutputPerturbation(FEATURES, "y"), 1.0)
    worst = excess(people, frame, dp.OutputPerturbation(FEATURES, "y"), 1.0)
    assert adaptive < 1e-3
    assert adaptive < worst / 10


@pytest.mark.slow
def test_where_bounds_say_little_the_first_model_is_the_answer() -> None:
    people, frame = labeled(1_000)
    assert excess(people, frame, dp.AdaptiveOutputPerturbation(FEATURES, "y"), 0.5) < 0.1
    columns: dict[str, Any] = {"x0": (-1, 1), "x1": (-1, 1), "y": ["no", "yes"]}
    exchanged = dp.dataset("people", columns=columns, neighbors="replace_one")
    model = exchanged.solve(dp.AdaptiveOutputPerturbation(FEATURES, "y"), epsilon=1.0, delta=1e-6)
    assert 0.99 < dp.Pipeline(m=model).with_delta(1e-6).certify().epsilon <= 1.0
