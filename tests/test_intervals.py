"""How far outputs may be off: against the noise's law, by counting, and by simulated coverage."""

from __future__ import annotations

import copy
import importlib.util
import json
import math
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import adaptive_dp as dp
from adaptive_dp import names
from adaptive_dp.graph import outputs
from adaptive_dp.graph.outputs import ConfidenceInterval, bounds
from adaptive_dp.mechanisms.additive import ball_tail
from adaptive_dp.queries.counts import counts_of_population

FRAME = {"x": np.linspace(0, 10, 200), "y": np.linspace(10, 0, 200)}
LEVELS = (0.5, 0.8, 0.95, 0.99, 0.999)


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 10), "y": (0, 10)})


# --- one release: the exact law ---


@pytest.mark.parametrize("scale", [0.05, 0.3, 1.0, 2.0, 7.5, 100.0])
@pytest.mark.parametrize("level", LEVELS)
def test_a_discrete_laplace_is_within_the_least_integer(scale: float, level: float) -> None:
    """By adding up masses: the level is reached at t, and at no smaller integer."""
    k = np.arange(int(60 * scale) + 60)
    mass = np.exp(-k / scale) * np.where(k == 0, 1, 2) * math.tanh(0.5 / scale)
    inside = np.cumsum(mass)
    t = dp.DiscreteLaplace(scale=scale).error(level, 1, 1.0)
    assert t == np.flatnonzero(inside >= level * (1 - 1e-9))[0]


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 3.0, 40.0])
@pytest.mark.parametrize("level", LEVELS)
def test_a_discrete_gaussian_is_within_the_least_integer(sigma: float, level: float) -> None:
    """By adding up masses in rational numbers of 60 digits' worth of exponentials."""
    import mpmath

    with mpmath.workdps(60):
        masses = [mpmath.exp(-(mpmath.mpf(k) ** 2) / (2 * mpmath.mpf(sigma) ** 2))
                  for k in range(int(12 * sigma) + 12)]  # fmt: skip
        total = 2 * sum(masses) - 1
        inside, least = masses[0] / total, 0
        while inside < Fraction(level):
            least += 1
            inside += 2 * masses[least] / total
    assert dp.DiscreteGaussian(sigma=sigma).error(level, 1, 1.0) == least


def test_a_large_discrete_gaussian_is_a_normal_number_to_within_two_steps() -> None:
    t = dp.DiscreteGaussian(sigma=2e4).error(0.95, 1, 1.0)
    assert 0 <= t - 2e4 * stats.norm.ppf(0.975) <= 2


@pytest.mark.parametrize("level", LEVELS)
def test_continuous_noise_has_its_quantile(level: float) -> None:
    laplace, normal = dp.Laplace(scale=3.0), dp.Gaussian(sigma=3.0)
    truth = stats.laplace.ppf((1 + level) / 2, scale=3.0)
    assert truth <= laplace.error(level, 1, 1.0) < truth * (1 + 1e-7)
    truth = stats.norm.ppf((1 + level) / 2, scale=3.0)
    assert truth <= normal.error(level, 1, 1.0) < truth * (1 + 1e-7)


def test_values_that_are_no_multiples_of_a_step_are_rounded_too() -> None:
    """Integer noise on values between integers: half a step more."""
    noise = dp.DiscreteLaplace(scale=2.0)
    assert noise.error(0.95, 1, 0.0) == noise.error(0.95, 1, 1.0) + 0.5


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0, math.inf])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_a_norms_coordinate_has_its_quantile(p: float, count: int) -> None:
    """Against closed forms: Laplace for p = 1; for others, moments E z_1^2 by integration.

    ``E z_1^2 = E r^2 E u^2``; ``E r^2 = d (d + 1)`` for a Gamma(d), and ``E u^2`` is a Beta's or,
    on the cube, ``1/d + (1 - 1/d) / 3``.
    """
    if p == 1:
        assert ball_tail(3.0, p, count) == pytest.approx(math.exp(-3), rel=1e-4)
    if math.isinf(p):
        square = 1 / count + (1 - 1 / count) / 3
    elif count == 1:
        square = 1.0
    else:
        square = stats.beta(1 / p, (count - 1) / p).expect(lambda b: b ** (2 / p))
    grid = np.linspace(0, 60 + 3 * count, 2001)
    tails = np.array([ball_tail(t, p, count) for t in grid])
    second = np.trapezoid(2 * grid * tails, grid)
    assert second == pytest.approx(count * (count + 1) * square, rel=2e-3)
    t = dp.Norm(scale=2.0, p=p).error(0.95, count, 0.0)
    assert ball_tail(t / 2, p, count) == pytest.approx(0.05, rel=1e-3)


def test_of_a_release_it_is_the_mechanisms_own() -> None:
    plan = dp.Pipeline(
        n=table().count().release(dp.Laplace(scale=3.0)),
        h=table()["x"].histogram([0, 5, 10]).release(dp.Gaussian(sigma=7.0)),
    ).with_delta(1e-6)
    result = plan.run(t=FRAME)
    low, high = result["n"].interval(0.9)
    assert high - result["n"] == pytest.approx(3 * math.log(10), rel=1e-6)
    assert result["n"] - low == pytest.approx(3 * math.log(10), rel=1e-6)
    low, high = result["h"].interval()
    assert high - low == pytest.approx(2 * 7 * 1.959964 * np.ones(2), rel=1e-6)


def test_of_second_moments_off_the_diagonal_it_is_smaller() -> None:
    """The packed matrix counts an entry that stands twice by sqrt(2), so its noise is less."""
    moments = table().vectors(["x", "y"]).gram().release(dp.Gaussian(sigma=4.0))
    low, high = dp.Pipeline(m=moments).with_delta(1e-6).run(t=FRAME)["m"].interval()
    half = 4 * 1.959964
    assert (high - low) / 2 == pytest.approx(
        np.array([[half, half / math.sqrt(2)], [half / math.sqrt(2), half]]), rel=1e-5
    )


class Doubled(dp.Laplace):
    """Laplace noise, twice as much as the scale says: with the law that it inherits it errs."""

    def release(self, value: Any, stream: Any) -> Any:
        return dp.Laplace(scale=2 * self.scale).release(value, stream)


def test_a_release_of_ones_own_does_not_inherit_anothers_law() -> None:
    """Quantiles of 1999 draws are within 25% of theirs, but with probability below 1e-7."""
    plan = dp.Pipeline(n=table().count().release(Doubled(scale=3.0)))
    low, high = plan.simulate(seed=1, t=FRAME)["n"].interval()
    assert (high - low) / 2 == pytest.approx(6 * math.log(20), rel=0.25)


# --- functions of releases ---


def test_quantiles_of_draws_leave_a_place_for_the_value() -> None:
    """Of 1999 numbers the 50th and the 1950th: 2.5% of the 2000 places are beyond each."""
    shuffled = np.random.default_rng(1).permutation(1999) + 1.0
    assert bounds(list(shuffled), 0.95) == ConfidenceInterval(50.0, 1950.0)
    tree = bounds([{"a": v, "b": [v, -v]} for v in shuffled], 0.9)
    assert tree == {
        "a": ConfidenceInterval(100.0, 1900.0),
        "b": ConfidenceInterval(tree["b"].low, tree["b"].high),
    }
    assert tree["b"].low.tolist() == [100.0, -1900.0]


def test_a_linear_function_has_the_interval_of_its_noise() -> None:
    """Quantiles of 1999 draws are within 20% of theirs, but with probability below 1e-7."""
    total = table()["x"].sum().release(dp.Gaussian(sigma=6.0))
    plan = dp.Pipeline(half=dp.post(lambda v: v / 2, total)).with_delta(1e-6)
    low, high = plan.run(t=FRAME)["half"].interval()
    assert (high - low) / 2 == pytest.approx(3 * 1.96, rel=0.2)


def test_equal_releases_have_equal_intervals_whatever_the_data() -> None:
    """Nothing of the data enters but by what was released: other data of the same releases.

    The count's noise is the same for both, and so is the count; the rows are not.
    """
    count = table().count().release(dp.Laplace(scale=3.0))
    plan = dp.Pipeline(n=count, half=dp.post(lambda v: max(v, 0.0) / 2, count))
    other = {"x": FRAME["x"][::-1] ** 0.5, "y": np.zeros(200)}
    one, two = (plan.simulate(seed=4, t=data) for data in (FRAME, other))
    assert one["n"] == two["n"]
    for sampling in (False, True):
        assert one.intervals(sampling=sampling) == two.intervals(sampling=sampling)
    # nor does the seed of the noise itself: another run of another seed draws the same
    again = plan.simulate(seed=5, t=FRAME)
    shift = float(again["n"] - one["n"])
    assert again["half"].interval().low == pytest.approx(one["half"].interval().low + shift / 2)


def test_a_clamped_output_has_a_clamped_interval() -> None:
    few = {"x": np.zeros(3), "y": np.zeros(3)}
    mean = table()["x"].average(dp.Laplace(scale=4.0))
    low, high = dp.Pipeline(mean=mean).simulate(seed=1, t=few)["mean"].interval()
    assert 0 <= low <= high <= 10


def test_a_function_that_fails_on_other_noise_costs_its_own_interval_only() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    calls: list[float] = []

    def once(value: float) -> float:
        calls.append(value)
        if len(calls) > 1:
            raise ValueError("only once")
        return value

    result = dp.Pipeline(n=count, once=dp.post(once, count)).run(t=FRAME)
    with pytest.raises(dp.NoIntervalError, match=r"'once' fails on other noise .*ValueError"):
        result["once"].interval()
    assert result["n"].interval().low < result["n"]


def test_what_has_no_interval_says_why() -> None:
    people = table()

    def shown(handle: Any, delta: float = 1e-6) -> str:
        result = dp.Pipeline(v=handle).with_delta(delta).simulate(seed=1, t=FRAME)
        return str(result.intervals()["v"])

    assert "rank" in shown(people["x"].median().release(dp.QuantileExponential(scale=2.0)))
    assert "follows the data" in shown(people["x"].median().release(dp.SmoothStudent(epsilon=1.0)))
    choice = people["x"].histogram([0, 5, 10]).release(dp.NoisyMax(scale=2.0))
    assert "choice among candidates" in shown(choice)
    word = dp.post(
        lambda n: "many" if n > 3 else "few", people.count().release(dp.Laplace(scale=1))
    )
    assert "not a number" in shown(word)
    model = people.solve(dp.BoostedSSP(["x"], "y"), epsilon=1.0, delta=1e-6)
    assert "each round reads the data" in shown(model)
    bound = people.count().release(dp.LowerBound(sigma=4.0, failure=1e-7, reach=1.0))
    assert "bound" in shown(bound)


# --- sampling ---


def test_counts_vary_as_their_population_does() -> None:
    """Against exact laws: a Gamma's quantiles, widened by next to no noise."""
    count = table().count().release(dp.DiscreteLaplace(scale=0.01))
    result = dp.Pipeline(n=count, twice=dp.post(lambda v: 2 * v, count)).simulate(seed=1, t=FRAME)
    low, high = result["n"].interval(sampling=True)
    assert low == pytest.approx(stats.gamma.ppf(0.025, 200.5), rel=0.02)
    assert high == pytest.approx(stats.gamma.ppf(0.975, 200.5), rel=0.02)
    assert result["twice"].interval(sampling=True).low == pytest.approx(2 * low, rel=0.02)


def test_of_a_public_number_of_rows_counts_are_binomial() -> None:
    people = dp.dataset("t", columns={"x": (0, 10)}, neighbors="replace_one", size=200)
    bins = people["x"].histogram([0, 5, 10]).release(dp.DiscreteLaplace(scale=0.01))
    result = dp.Pipeline(h=bins).simulate(seed=1, t={"x": FRAME["x"]})
    low, _ = result["h"].interval(sampling=True)
    assert low[0] == pytest.approx(200 * stats.beta.ppf(0.025, 100.5, 100.5), rel=0.02)


@pytest.mark.parametrize("mean", [0.5, 1.0, 3.0, 10.0, 100.0])
def test_intervals_of_poisson_means_cover_by_summing_masses(mean: float) -> None:
    """Jeffreys' intervals are within 4% of their level for all means (Brown et al. 2003)."""
    k = np.arange(400.0)
    low, high = (counts_of_population(k, np.full(400, z), None) for z in (-1.959964, 1.959964))
    mass = stats.poisson.pmf(k, mean)
    assert 0.91 < mass[(low <= mean) & (mean <= high)].sum() < 0.99


def test_an_average_varies_by_at_most_its_bounds() -> None:
    """A column of its bounds alone has just the variance (10 - m) (m - 0)."""
    ends = {"x": np.repeat([0.0, 10.0], 5_000), "y": np.zeros(10_000)}
    mean = table()["x"].average(dp.Laplace(scale=0.1))
    low, high = dp.Pipeline(mean=mean).simulate(seed=1, t=ends)["mean"].interval(sampling=True)
    assert (high - low) / 2 == pytest.approx(1.96 * 5 / math.sqrt(10_000), rel=0.1)


def test_sampling_is_refused_where_releases_do_not_tell_it() -> None:
    several = dp.dataset("t", columns={"x": (0, 10)}, unit="id", rows_per_unit=3)
    n = several.count().release(dp.Laplace(scale=3))
    plan = dp.Pipeline(n=n)
    data = {"x": FRAME["x"], "id": np.arange(200) // 2}
    with pytest.raises(dp.NoIntervalError, match="up to 3 rows"):
        plan.simulate(seed=1, t=data)["n"].interval(sampling=True)
    total = dp.Pipeline(s=table()["x"].sum().release(dp.Laplace(scale=3)))
    with pytest.raises(dp.NoIntervalError, match="from sample to sample"):
        total.simulate(seed=1, t=FRAME)["s"].interval(sampling=True)


# --- regressions ---


def test_coefficients_have_intervals_of_least_squares() -> None:
    """Of 12 simulations of a plan with fixed seeds, at least 8 intervals of a slope cover it.

    At 93% each, fewer than 8 of 12 have a probability of 1e-4; `test_coverage` measures it.
    """
    rng = np.random.default_rng(3)
    x = rng.uniform(0, 10, 5_000)
    y = np.clip(2 + 0.5 * x + rng.normal(size=5_000), 0, 10)
    slope = np.polyfit(x, y, 1)[0]
    for learner in (dp.SSP(["x"], "y"), dp.AdaSSP(["x"], "y"), dp.SSP(["x"], "y", pure=True)):
        pure = getattr(learner, "pure", False)
        plan = dp.Pipeline(m=table().solve(learner, epsilon=1.0, delta=0 if pure else 1e-6))
        inside = 0
        for seed in range(12):
            model = plan.with_delta(1e-6).simulate(seed=seed, t={"x": x, "y": y})["m"]
            low, high = model["x"].interval()
            inside += low <= slope <= high
        assert inside >= 8


def test_where_noise_hides_the_data_there_is_no_interval_of_coefficients() -> None:
    plan = dp.Pipeline(m=table().solve(dp.SSP(["x"], "y"), epsilon=0.2, delta=1e-6))
    model = plan.with_delta(1e-6).simulate(seed=1, t=FRAME)["m"]
    with pytest.raises(dp.NoIntervalError, match="noise nearly hides some combination"):
        model["x"].interval()


# --- numbers and arrays as any other ---


def test_values_are_numbers_and_arrays_as_any_other() -> None:
    bins = table()["x"].histogram([0, 5, 10]).release(dp.DiscreteLaplace(scale=1.0))
    count = table().count().release(dp.DiscreteLaplace(scale=1.0))
    plan = dp.Pipeline(
        bins=bins, n=count, i=dp.post(round, count), f=dp.post(np.float64, count),
        m=dp.post(lambda v: {"a": v, "b": [v, "word", True]}, count),
    )  # fmt: skip
    result = plan.simulate(seed=1, t=FRAME)
    released = result.released
    for name in ("n", "i", "f"):
        assert result[name] == released[name]
        assert repr(result[name]) == repr(released[name])
        assert str(result[name]) == str(released[name])
        assert type(result[name] + 1) is type(released[name] + 1)
        assert type(copy.deepcopy(result[name])) is type(released[name])
        assert type(pickle.loads(pickle.dumps(result[name]))) is type(released[name])
        assert result[name].interval().low < result[name]
    array = result["bins"]
    assert isinstance(array, np.ndarray)
    assert repr(array) == repr(released["bins"])
    for derived in (array + 1, array[:1], array.round(), np.concatenate([array, array]),
                    copy.deepcopy(array), pickle.loads(pickle.dumps(array))):  # fmt: skip
        assert type(derived) is np.ndarray
    assert type(array.sum()) is type(array[0]) is np.float64
    with pytest.raises(dp.NoIntervalError, match="computed from outputs"):
        array.copy().interval()
    assert json.dumps(result["m"]) == json.dumps(released["m"])
    assert result["m"]["b"][0].interval() == result["m"]["a"].interval()
    assert type(result["m"]["b"][2]) is bool


def test_a_level_is_a_probability() -> None:
    n = dp.Pipeline(n=table().count().release(dp.Laplace(scale=1))).simulate(seed=1, t=FRAME)["n"]
    for wrong in (95, 0.0, 1.0, float("nan"), "0.95"):
        with pytest.raises(dp.DeclarationError, match="level"):
            n.interval(wrong)


def test_of_very_many_numbers_there_are_fewer_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many counts doubled: half the width is 2 * 1.96 * sigma, by a normal law of 67 draws."""
    keys = [str(i) for i in range(20_000)]
    monkeypatch.setattr(outputs, "MOST_DRAWN", 20_000 * 67)
    people = dp.dataset("p", columns={"k": keys})
    counts = people["k"].histogram().release(dp.Gaussian(sigma=2.0))
    plan = dp.Pipeline(twice=dp.post(lambda v: 2 * v, counts)).with_delta(1e-6)
    low, high = plan.simulate(seed=1, p={"k": keys[:10]})["twice"].interval()
    assert np.median(high - low) / 2 == pytest.approx(2 * 1.96 * 2.0, rel=0.05)


def test_a_pickle_keeps_the_usual_levels() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    calls: list[float] = []

    def watched(value: float) -> float:
        calls.append(value)
        return value + 5.0

    result = dp.Pipeline(sum=dp.post(watched, count)).run(t=FRAME)
    assert len(calls) == 1  # nothing is computed before it is asked for
    again = pickle.loads(pickle.dumps(result))
    assert again["sum"] == result["sum"]
    assert again["sum"].interval() == result["sum"].interval()
    with pytest.raises(dp.NoIntervalError, match=r"keeps the levels 0\.5"):
        again["sum"].interval(0.7)
    assert again.certificate.to_json() == result.certificate.to_json()


# --- how it is printed ---


def test_printed_results_show_intervals_and_mark_simulations() -> None:
    plan = dp.Pipeline(n=table().count().release(dp.DiscreteLaplace(scale=2.0)))
    result = plan.simulate(seed=1, t=FRAME)
    assert str(result).splitlines()[-2:] == [
        "n       201    195 to 207",
        "NOT FOR RELEASE: noise from seed 1",
    ]
    assert "NOT FOR RELEASE" not in str(plan.run(t=FRAME))
    assert "195 to 207" in result._repr_html_()


def test_noise_of_intervals_is_not_that_of_the_release() -> None:
    """Streams of simulations and of intervals differ: no draw is the release's own noise."""
    count = table().count().release(dp.DiscreteLaplace(scale=50.0))
    result = dp.Pipeline(n=count, m=dp.post(lambda v: v, count)).simulate(seed=3, t=FRAME)
    drawn = result._intervals._simulated(result._intervals._structure.nodes["m"], False, 1999)
    assert abs(np.median(drawn) - result["n"]) < 12


# --- coverage ---


FILE = Path(__file__).parent.parent / "benchmarks" / "coverage.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["average", "share", "difference", "SSP", "AdaSSP"])
def test_coverage(name: str) -> None:
    """Of 300 simulations at least as many intervals hold the truth as of 93% do but for 1e-7.

    Binomial: the runs are independent, and each counts one number.
    """
    spec = importlib.util.spec_from_file_location("coverage_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    benchmark: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    truth: Any
    if name in ("SSP", "AdaSSP"):
        people, data, solution = benchmark.regression(10_000, 3)
        learner = getattr(dp, name)(["x0", "x1", "x2"], "y")
        model = people.solve(learner, epsilon=1.0, delta=1e-6)
        plan, truth = dp.Pipeline(v=model).with_delta(1e-6), {"x0": solution["x0"]}
    else:
        age = np.random.default_rng(1).uniform(20, 60, 1_000)
        data = {"age": age}
        people = dp.dataset("people", columns={"age": (0, 100)})
        noise = dp.Laplace()
        old = people.filter(people["age"] >= 50)
        young = people.filter(people["age"] < 50)
        count = people.count().release(noise)
        handle, truth = {
            "average": (people["age"].average(noise), age.mean()),
            "share": (
                dp.post(benchmark.share, old.count().release(noise), count),
                (age >= 50).mean(),
            ),
            "difference": (
                dp.post(
                    benchmark.difference, old["age"].average(noise), young["age"].average(noise)
                ),
                age[age >= 50].mean() - age[age < 50].mean(),
            ),
        }[name]
        plan = dp.Pipeline(v=handle).calibrate(epsilon=0.5)
    got = benchmark.coverage(plan, data, truth, 300)
    assert got.given == 1
    assert got.share * 300 >= stats.binom.ppf(1e-7, 300, 0.93)


# --- what has no interval says why ---


def test_every_mechanism_has_intervals_or_says_why_not() -> None:
    """Of those that the library has: the law, or new draws, or a reason of its own."""
    for target in names.MECHANISMS.values():
        module, _, name = target.partition(":")
        kind: Any = getattr(importlib.import_module(module), name)
        law = {"error", "intervals"} & {n for c in kind.__mro__[:-1] for n in own(c)}
        plain = kind.input_type is np.ndarray and not kind.released_inputs and not kind.is_selection
        reason = kind.no_interval
        assert law or kind.is_selection or reason or (plain and own_shape(kind)), name
        if reason and not isinstance(reason, property):
            assert 20 < len(reason) < 170
            assert not reason.endswith(".")
            assert reason[0].islower()


def own(kind: type) -> set[str]:
    return set(vars(kind)) if kind is not dp.Mechanism else set()


def own_shape(kind: Any) -> bool:
    return kind.shape is dp.Mechanism.shape and kind.redrawn is dp.Mechanism.redrawn


TRUE_MODEL = np.random.default_rng(3).uniform(0, 10, (400, 2))
PEOPLE: dict[str, Any] = {
    "x": TRUE_MODEL[:, 0],
    "z": TRUE_MODEL[:, 1],
    "y": TRUE_MODEL @ [2.0, 1.0] + 3,
    "ill": np.where(TRUE_MODEL[:, 0] > 5, "yes", "no").astype(object),
}
COEFFICIENTS = [(0.0, 0.1, 0.2), (0.3, 0.0, -0.5)]
SOLVERS: dict[str, tuple[Any, str]] = {
    "SSP": (dp.SSP(["x", "z"], "y"), ""),
    "AdaSSP": (dp.AdaSSP(["x", "z"], "y"), ""),
    "BoostedSSP": (dp.BoostedSSP(["x", "z"], "y"), "each round reads the data where the noise"),
    "AdaOPS": (dp.AdaOPS(["x", "z"], "y"), "second moments"),
    "OPS": (dp.OPS(["x", "z"], "y"), "second moments"),
    "OutputPerturbation": (dp.OutputPerturbation(["x", "z"], "ill"), "penalty"),
    "of squares": (dp.OutputPerturbation(["x", "z"], "y", ridge=9.0), "penalty"),
    "adaptive output perturbation": (
        dp.AdaptiveOutputPerturbation(["x", "z"], "y"),
        "second moments",
    ),
    "ObjectivePerturbation": (dp.ObjectivePerturbation(["x", "z"], "ill"), "curvature"),
    "NoisyGradientDescent": (dp.NoisyGradientDescent(["x"], "ill", steps=2), "each round"),
    "NoisySGD": (dp.NoisySGD(["x"], "ill", steps=2, sampling_rate=0.1), "each round"),
    "DPFTRL": (dp.DPFTRL(["x"], "ill", steps=2), "each batch"),
    "FiniteLearner": (dp.FiniteLearner(["x", "z"], "y", candidates=COEFFICIENTS), "choice"),
}


@pytest.mark.parametrize("name", SOLVERS)
def test_learners_have_intervals_or_say_why_not(name: str) -> None:
    learner, why = SOLVERS[name]
    columns = {"x": (0, 10), "z": (0, 10), "y": (0, 50), "ill": ["no", "yes"]}
    people = dp.dataset("people", columns=columns)
    delta = 0 if name in ("OPS", "FiniteLearner") else 1e-6
    model = people.solve(learner, epsilon=50.0, delta=delta)
    result = dp.Pipeline(model=model).with_delta(1e-6).simulate(seed=1, people=PEOPLE)
    found = result.intervals()["model"]
    if not why:
        assert all(isinstance(each, ConfidenceInterval) for each in found.values())
        return
    with pytest.raises(dp.NoIntervalError, match=why) as error:
        result["model"]["x"].interval()
    assert str(error.value).count(". ") == 0  # one sentence


def test_numpy_converts_the_numbers_of_a_result() -> None:
    table = dp.dataset("t", columns={"a": (0, 1)})
    n = table.count().release(dp.Laplace(scale=1.0))
    both = dp.post(lambda n: {"a": np.float64(n), "b": float(n)}, n)
    result = dp.Pipeline(n=n, both=both).simulate(seed=1, t={"a": [0.1] * 10})
    for number in (result["n"], result["both"]["a"], result["both"]["b"]):
        assert np.asarray(number, dtype=float) == np.array([number], dtype=np.float64)[0] == number
    assert type(result["both"]["a"]) is not np.float64
