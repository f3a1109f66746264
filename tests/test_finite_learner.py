"""Choosing among finitely many models: what it costs, and what it learns."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import adaptive_dp as dp
from adaptive_dp.erm import Logistic, Weighted
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.operation import Change
from adaptive_dp.learning.finite_learner import excess, sample_size
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.candidate_losses import CandidateLosses

STREAM = SeededStream(0)
COLUMNS = {"a": (0, 10), "y": (0, 1)}
COEFFICIENTS = dp.coefficient_grid([(-1.5, 1.5), (-3, 3)], [7, 5])


def scores(
    loss: str, frame: dict[str, Any], width: float, candidates: Any = COEFFICIENTS
) -> np.ndarray:
    """The query's private value."""
    table = dp.dataset("t", columns=COLUMNS)
    points = table.vectors(["a"], scale=True, intercept=True)
    goal, radius = table.domain.interval("y"), points.domain.radius
    query = CandidateLosses(candidates, loss, "y", goal, radius, width)
    handle: Any = PrivateQuery(query, (points,))
    rows = table.operation.bind({k: np.asarray(v, dtype=float) for k, v in frame.items()})
    return query.run([handle.inputs[0].operation.run([rows], STREAM)], STREAM)


class TestScores:
    def test_they_order_the_candidates_as_the_losses_do(self) -> None:
        """Against sums in plain floats of a loss written out here."""
        rng = np.random.default_rng(1)
        a, y = rng.uniform(0, 10, 5000), rng.integers(0, 2, 5000).astype(float)
        x, sign, w = a / 5 - 1, 2 * y - 1, np.array(COEFFICIENTS)
        z = w[:, 0] + np.outer(x, w[:, 1])
        truth = {
            "Logistic()": np.logaddexp(0, -sign[:, None] * z),
            "ZeroOne()": ((z >= 0) != (sign[:, None] > 0)).astype(float),
        }
        for loss, losses in truth.items():
            computed = scores(loss, {"a": a, "y": y}, 10.0)
            wanted = -(losses - losses.min(axis=1, keepdims=True)).sum(axis=0)
            assert np.abs(computed - wanted).max() < 5000 * 10 * 2.0**-20
            total = losses.sum(axis=0)
            assert np.ptp(computed + total) < 5000 * 10 * 2.0**-20

    @pytest.mark.parametrize("loss", ["Logistic()", "ZeroOne()"])
    def test_they_know_no_order_of_rows(self, loss: str) -> None:
        """To the last bit, beside whatever other rows, and of any number of blocks."""
        rng = np.random.default_rng(2)
        a, y = rng.uniform(0, 10, 9001), rng.integers(0, 2, 9001).astype(float)
        many = dp.coefficient_grid([(-1.5, 1.5), (-3, 3)], [19, 15])
        total = scores(loss, {"a": a, "y": y}, 2.0, many)
        turned = rng.permutation(9001)
        assert np.array_equal(total, scores(loss, {"a": a[turned], "y": y[turned]}, 2.0, many))
        cuts = [0, 1, 8, 4099, 4100, 9001]
        parts = [
            scores(loss, {"a": a[i:j], "y": y[i:j]}, 2.0, many) for i, j in itertools.pairwise(cuts)
        ]
        assert np.array_equal(total, np.sum(parts, axis=0))

    def test_odd_data(self) -> None:
        odd = {"a": [math.nan, math.inf, -1e308], "y": [math.inf, math.nan, -math.inf]}
        assert np.isfinite(scores("Logistic()", odd, 1.0)).all()
        assert not scores("Logistic()", {"a": [], "y": []}, 1.0).any()


def log_law(values: np.ndarray, scale: float) -> np.ndarray:
    exponents = values / scale
    return exponents - exponents.max() - math.log(np.exp(exponents - exponents.max()).sum())


def flip_law(values: np.ndarray, scale: float) -> np.ndarray:
    """Permute-and-flip by all orders of the candidates."""
    heads, law = np.exp((values - values.max()) / scale), np.zeros(len(values))
    for order in itertools.permutations(range(len(values))):
        left = 1.0
        for i in order:
            law[i] += left * heads[i]
            left *= 1 - heads[i]
    return np.log(law / math.factorial(len(values)))


class TestPrivacy:
    @pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
    @pytest.mark.parametrize("mechanism", ["exponential", "permute_and_flip"])
    def test_the_exact_loss_over_a_small_universe(self, neighbors: str, mechanism: str) -> None:
        """Laws in closed form on crowds of rows and all neighbours: within epsilon, and near."""
        candidates = [(0.0, 1.0), (0.0, -1.0), (1.0, 0.0), (-1.0, 0.0)]
        table = dp.dataset("t", columns=COLUMNS, neighbors=neighbors)  # type: ignore[arg-type]
        learner = dp.FiniteLearner(["a"], "y", candidates, mechanism=mechanism)
        plan = dp.Pipeline(h=table.solve(learner, epsilon=1.0)).with_delta(0.0)
        claimed = plan.certify().epsilon
        assert 0.999 < claimed <= 1.0
        (scale,) = [
            n["mechanism"]["scale"] for n in plan.to_document()["nodes"] if "mechanism" in n
        ]
        rows = list(itertools.product((1.0, 9.0), (0.0, 1.0)))
        law = log_law if mechanism == "exponential" else flip_law
        worst = 0.0
        for crowd in itertools.combinations_with_replacement(rows, 2):
            for size in (0, 1, 30):
                others = list(crowd) * size

                def at(own: list[Any], others: Any = others) -> np.ndarray:
                    data = np.array(others + own).reshape(-1, 2)
                    return scores("ZeroOne()", {"a": data[:, 0], "y": data[:, 1]}, 1.0, candidates)

                with_one = [law(at([row]), scale) for row in rows]
                without = law(at([]), scale)
                pairs = itertools.combinations(with_one, 2)
                if neighbors != "replace_one":
                    pairs = ((one, without) for one in with_one)  # type: ignore[assignment]
                worst = max(worst, *(float(np.abs(p - q).max()) for p, q in pairs))
        assert 0.9 < worst <= claimed

    @pytest.mark.parametrize(
        ("rows", "exchanged", "scale", "worst"),
        [(600, True, 4.0, 0.9967), (500, False, 2.0, 0.9980), (600, True, 2.0, 1.9967)],
    )
    def test_the_diameter_and_half_of_it(
        self, rows: int, exchanged: bool, scale: float, worst: float
    ) -> None:
        """Losses w and -w on [-1, 1], epsilon 1: what a row's range allows is nearly attained.

        Under an exchange the scale is twice the range 2 of a row's loss; the largest norm of w in
        place of the diameter would be private for 2 epsilon alone.
        """
        grid = np.linspace(-1, 1, 40_001)
        less = rows - 2 if exchanged else rows - 1
        ratio = log_law(-rows * grid, scale) - log_law(-less * grid, scale)
        query = CandidateLosses([(1.0,)], "ZeroOne()", "y", (0, 1), 1.0, 2.0)
        change = Change(exchanged, 1, False)
        claimed = dp.Exponential(scale).loss(2.0, query.span(None, change)).pure()  # type: ignore
        assert np.abs(ratio).max() == pytest.approx(worst, abs=2e-4)
        assert claimed == pytest.approx(round(worst))
        assert np.abs(ratio).max() <= claimed

    def test_the_mean_loss_in_the_exponent(self) -> None:
        """``exp(-(epsilon n / 2 Delta) mean loss)``, each record's loss in a range of Delta.

        With the sum in place of the mean, as it is sometimes printed, n rows are counted n times.
        """
        n, epsilon, delta = 51, 1.0, 1.0
        rng = np.random.default_rng(3)
        losses = rng.uniform(0, delta, (n, 10))
        other = losses.copy()
        other[0] = np.where(np.arange(10) % 2, delta, 0.0)
        losses[0] = delta - other[0]

        def law(values: np.ndarray, factor: float) -> np.ndarray:
            return log_law(-values.sum(axis=0), 2 * delta / (epsilon * factor))

        right = np.abs(law(losses, 1.0) - law(other, 1.0)).max()
        literal = np.abs(law(losses, n) - law(other, n)).max()
        assert 0.3 < right <= epsilon
        assert literal > 20 * epsilon


def thresholds(n: int, size: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Scores of all thresholds t in 0, ..., N - 1 (x >= t says 1) on n uniform rows; the true t."""
    true, x = int(rng.integers(size)), rng.integers(size, size=n)
    ones = np.bincount(x[x >= true], minlength=size)
    zeros = np.bincount(x[x < true], minlength=size)
    missed = np.concatenate([[0], np.cumsum(ones)[:-1]])
    wrong = zeros.sum() - np.concatenate([[0], np.cumsum(zeros)[:-1]])
    return -(missed + wrong).astype(float), true


class TestLearning:
    @pytest.mark.parametrize("bits", [4, 8, 12, 16])
    @pytest.mark.parametrize("kind", [dp.Exponential, dp.PermuteAndFlip])
    def test_thresholds_at_the_stated_size(self, bits: int, kind: Any) -> None:
        """At most 5 % of 80 runs miss by more than alpha, up to a false alarm of 1e-7."""
        size, alpha, runs = 2**bits, 0.1, 80
        n, rng = sample_size(size, alpha, 1.0), np.random.default_rng(bits)
        stream = SeededStream(bits)

        def misses(rows: int) -> int:
            missed = 0
            for _ in range(runs):
                values, true = thresholds(rows, size, rng)
                t = int(kind(scale=1.0).release(values, stream))
                missed += abs(t - true) / size > alpha
            return missed

        assert misses(n) <= binom.isf(1e-7, runs, 0.05)
        assert misses(n // 20) > binom.isf(1e-7, runs, 0.05)  # a few rows are not enough

    def test_the_size_is_linear_in_the_logarithm(self) -> None:
        sizes = [sample_size(2**k, 0.01, 0.5) for k in range(4, 17)]
        steps = np.diff(sizes)
        assert steps.max() - steps.min() <= 1
        assert sizes[0] < 400 * math.log(16 / 0.05)

    def test_an_agnostic_learner(self) -> None:
        """Noisy labels: the excess of the chosen threshold over the best, on the distribution."""
        size, alpha, noise = 64, 0.2, 0.2
        n = sample_size(size, alpha, 1.0, agnostic=True)
        rng, stream, far = np.random.default_rng(5), SeededStream(5), 0
        for _ in range(40):
            true, x = int(rng.integers(size)), rng.integers(size, size=n)
            y = (x >= true) ^ (rng.random(n) < noise)
            values = -((x[:, None] >= np.arange(size)) != y[:, None]).sum(axis=0).astype(float)
            t = int(dp.PermuteAndFlip(scale=1.0).release(values, stream))
            far += (1 - 2 * noise) * abs(t - true) / size > alpha
        assert far <= binom.isf(1e-7, 40, 0.05)

    def test_the_excess_of_the_chosen_score(self) -> None:
        """One good candidate among equals that are just too bad: exactly, by the laws."""
        count, beta, scale = 6, 0.1, 2.0
        bound = excess(count, beta, scale)
        for law in (log_law, flip_law):
            values = np.array([0.0] + [-bound] * (count - 1))
            missed = 1 - math.exp(law(values, scale)[0])
            assert 0.3 * beta < missed <= beta

    def test_a_plan_learns(self) -> None:
        rng = np.random.default_rng(6)
        a = rng.uniform(0, 10, 4000)
        frame = {"a": a, "y": (a + 0.1 * rng.normal(size=4000) > 6).astype(float)}
        table = dp.dataset("t", columns=COLUMNS)
        steps = dp.coefficient_grid([(-1, 1), (1, 1)], [101, 1])
        signs = dp.FiniteLearner(["a"], "y", steps)
        smooth = dp.FiniteLearner(
            ["a"], "y", dp.coefficient_grid([(-20, 20), (-20, 20)], [41, 41]), loss=Logistic()
        )
        for learner in (signs, smooth):
            plan = dp.Pipeline(h=table.solve(learner, epsilon=1.0)).with_delta(0.0)
            h = dp.load(plan.to_json()).simulate(seed=1, t=frame)["h"]
            assert -h["intercept"] / h["a"] == pytest.approx(6, abs=0.3)

    def test_a_grid_of_ten_values_an_axis(self) -> None:
        """It has ten to the number of axes points, not two."""
        grid = dp.coefficient_grid([(0, 1)] * 4, [10] * 4)
        assert len(grid) == len(set(grid)) == 10**4
        assert {v for point in grid for v in point} == set(np.linspace(0, 1, 10))

    def test_what_is_free_is_calibrated(self) -> None:
        table = dp.dataset("t", columns=COLUMNS, neighbors="replace_one")
        plan = dp.Pipeline(h=table.solve(dp.FiniteLearner(["a"], "y", COEFFICIENTS)))
        assert 0.69 < plan.calibrate(epsilon=0.7, delta=0.0).certify().epsilon <= 0.7


@pytest.mark.parametrize(
    "made",
    [
        lambda: dp.FiniteLearner(["a"], "y", []),
        lambda: dp.FiniteLearner(["y"], "y", COEFFICIENTS),
        lambda: dp.FiniteLearner(["a"], "y", [(1.0, math.nan)]),
        lambda: dp.FiniteLearner(["a"], "y", COEFFICIENTS, loss="os.system('true')"),
        lambda: dp.FiniteLearner(["a"], "y", COEFFICIENTS, mechanism="mcmc"),
        lambda: solved(dp.FiniteLearner(["a"], "y", [(1.0,)])),
        lambda: solved(dp.FiniteLearner(["a"], "y", COEFFICIENTS, width=0.0)),
        lambda: solved(dp.FiniteLearner(["a"], "y", COEFFICIENTS), epsilon=0.0),
        lambda: dp.coefficient_grid([(0, 1)] * 7, [10] * 7),
        lambda: dp.coefficient_grid([(0, 1)], [0]),
        lambda: sample_size(0, 0.1, 1.0),
        lambda: sample_size(4, 1.5, 1.0),
    ],
)
def test_bad_arguments(made: Any) -> None:
    with pytest.raises(dp.DeclarationError):
        made()


def solved(learner: Any, epsilon: float = 1.0) -> Any:
    return dp.dataset("t", columns=COLUMNS).solve(learner, epsilon=epsilon)


def test_categories_are_features_and_labels() -> None:
    rng = np.random.default_rng(0)
    age, town = rng.uniform(0, 100, 4000), rng.choice(["A", "B", "C"], 4000)
    ill = np.where(age + 20 * (town == "C") > 60, "yes", "no")
    columns = {"age": (0, 100), "town": ["A", "B", "C"], "ill": ["no", "yes"]}
    people = dp.dataset("people", columns=columns)
    # the intercept, age, and towns B and C against A
    grid = dp.coefficient_grid([(-1, 1), (1, 1), (0, 0), (-0.5, 0.5)], [21, 1, 1, 11])
    learner = dp.FiniteLearner(["age", "town"], "ill", grid)
    plan = dp.Pipeline(model=people.solve(learner, epsilon=1.0))
    assert 0.999 < plan.certify(delta=0.0).epsilon <= 1
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    rows = {"age": age, "town": town, "ill": ill}
    model = plan.simulate(seed=1, people=rows)["model"]
    # the score is 2 (age + 20 [C] - 60) / 100
    assert model == pytest.approx({"intercept": -1.2, "age": 0.02, "town=B": 0, "town=C": 0.4})
    assert np.array_equal(dp.predict(model, rows, classes=["no", "yes"]), ill)
    # a label that is not declared is no row: 4,000 of them change nothing but the noise
    more = {name: np.concatenate([v, v]) for name, v in rows.items()}
    more["ill"] = np.concatenate([ill, np.full(4000, "perhaps")])
    assert plan.simulate(seed=1, people=more)["model"] == model


def test_targets_that_are_no_number_and_not_two_categories_are_refused() -> None:
    columns = {"x": (-1, 1), "c": ["u", "v"], "y": ["no", "yes"]}
    table = dp.dataset("people", columns=columns)
    grid = dp.coefficient_grid([(-1, 1), (-1, 1), (-1, 1)], [3, 3, 3])
    learner = dp.FiniteLearner(["x", "c"], "y", grid, loss=dp.Hinge())
    assert dp.Pipeline(model=table.solve(learner, epsilon=1.0)).certify(delta=0.0).epsilon <= 1
    for wrong in (["u", "v", "w"], None):
        other = dp.dataset("people", columns={**columns, "y": wrong})
        with pytest.raises(dp.DeclarationError, match="y"):
            other.solve(learner, epsilon=1.0)
    with pytest.raises(dp.DeclarationError, match="weights"):
        dp.FiniteLearner(["x"], "y", grid, loss=Weighted(dp.Hinge()))
