"""Boosted SSP: its cost by hand, its noise by a covariance, its fits by least squares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_ndtr

import adaptive_dp as dp
from adaptive_dp.data import MemoryRows
from adaptive_dp.learning import boosted_ssp as steps
from adaptive_dp.learning.boosted_ssp import step_size
from adaptive_dp.learning.descent import noise_variances

COLUMNS = {"a": (-3, 5), "b": (0, 8), "c": (-4, 0), "y": (-5, 30)}
FEATURES = ["a", "b", "c"]
RELATIONS = ["add_remove", "replace_one", "zero_out"]


def made(count, seed, off=0.5):
    generator = np.random.default_rng(seed)
    rows = {
        name: generator.uniform(low, high, count)
        for name, (low, high) in COLUMNS.items()
        if name != "y"
    }
    y = 12 + 2 * rows["a"] - rows["b"] + 0.5 * rows["c"] + generator.normal(size=count) * off
    return {**rows, "y": y}


def solved(epsilon=None, delta=None, neighbors="add_remove", learner=None):
    table = dp.dataset("rows", columns=COLUMNS, neighbors=neighbors)
    learner = learner or dp.BoostedSSP(FEATURES, "y")
    plan = dp.Pipeline(fit=table.solve(learner, epsilon=epsilon, delta=delta))
    return plan if delta is None else plan.with_delta(delta)


def profile(mu, epsilon):
    """Return a Gaussian release's exact delta (Balle and Wang 2018, Theorem 8)."""
    first, second = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return math.exp(log_ndtr(first)) - math.exp(epsilon + log_ndtr(second))


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (3.0, 1e-5)])
def test_a_budget_is_respected_and_spent(neighbors, epsilon, delta):
    """By hand: mu^2 adds over 3 + 2 x 10 releases; its exact profile is the certificate's."""
    plan = solved(epsilon, delta, neighbors)
    width, exchange = 4, neighbors == "replace_one"
    radius = math.sqrt(width)
    square, total = (radius / 2) ** 2, 0.0
    nodes = {}
    for node in plan.structure:
        mechanism = getattr(node.handle.operation, "mechanism", None)
        if mechanism is not None:
            nodes[node.name] = mechanism.sigma
    sizes = {
        # the target's distance from the middle of its bounds is at most 17.5
        "target_sum": (1, 17.5 * (2.0 if exchange else 1.0)),
        # with columns that may miss values a row that is exchanged may come or go
        "number_of_rows": (1, 1.0),
        "second_moments": (1, square * (math.sqrt(2) if exchange else 1)),
        "squares": (steps.STEPS, 1.0),
        "gradient": (steps.STEPS, 2.0 if exchange else 1.0),
    }
    assert len(nodes) == 5
    for name, (times, size) in sizes.items():
        (sigma,) = [s for key, s in nodes.items() if name in key]
        total += times * (size / sigma) ** 2
    exact = brentq(lambda e: profile(math.sqrt(total), e) - delta, 1e-3, 50, xtol=1e-12)
    certificate = plan.certify()
    assert exact <= certificate.epsilon <= epsilon
    assert certificate.epsilon == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("count", [1, 60, 100_000])
def test_a_public_number_of_rows_is_not_released_and_all_of_the_budget_is_spent(neighbors, count):
    """By hand: the sum has 3 / (n mu) of mu^2, at most .3, and 21 other releases have the rest."""
    learner = dp.BoostedSSP(FEATURES, "y", rows=count)
    plan = solved(0.5, 1e-6, neighbors, learner=learner)
    names = [node.name for node in plan.structure if hasattr(node.handle.operation, "mechanism")]
    assert sorted(name.rpartition(".")[2] for name in names) == [
        "gradient",
        "second_moments",
        "squares",
        "target_sum",
    ]
    assert 0.995 * 0.5 <= plan.certify().epsilon <= 0.5
    (sigma,) = [
        node.handle.operation.mechanism.sigma
        for node in plan.structure
        if node.name.endswith("target_sum")
    ]
    mu = brentq(lambda m: profile(m, 0.5) - 1e-6, 0.01, 1, xtol=1e-12)
    moved = 2.0 if neighbors == "replace_one" else 1.0
    share = min(0.3, 3 / (count * mu / moved))
    assert sigma == pytest.approx(17.5 * moved / (mu * math.sqrt(share)), rel=1e-3)


@pytest.mark.parametrize("rows", [0, -5, 2.5, True])
def test_a_number_of_rows_that_is_none_is_refused(rows):
    with pytest.raises(dp.DeclarationError, match="rows must be an int of at least 1"):
        dp.BoostedSSP(FEATURES, "y", rows=rows)


@pytest.mark.parametrize("count", [100_000, 200_000, 400_000])
def test_a_wrong_number_of_rows_is_a_wrong_start_that_steps_mend(count):
    learner = dp.BoostedSSP(FEATURES, "y", rows=count)
    model = solved(2.0, 1e-6, learner=learner).simulate(seed=1, rows=made(200_000, 5))["fit"]
    np.testing.assert_allclose(list(model.values()), [12, 2, -1, 0.5], atol=0.1)


def test_every_accountant_charges_what_one_gaussian_of_all_mu_costs():
    """Gaussians in sequence cost what one does whose mu^2 is their sum: under each accountant."""
    plan = solved(1.0, 1e-6)
    mu = brentq(lambda m: profile(m, 1.0) - 1e-6, 0.01, 1, xtol=1e-12)
    people = dp.dataset("people", columns={"x": (0, 1)})
    alone = dp.Pipeline(n=people.count().release(dp.Gaussian(sigma=1 / mu))).with_delta(1e-6)
    one, all_of_them = alone.certify().bounds, plan.certify().bounds
    compared = set(one) - {"basic", "advanced"}  # which add up epsilons
    assert len(compared) >= 4
    for name in compared:
        assert all_of_them[name].upper == pytest.approx(one[name].upper, rel=0.02), name


def test_free_noise_is_calibrated():
    assert solved().calibrate(epsilon=2.0, delta=1e-6).certify().epsilon <= 2.0


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_it_finds_the_line(neighbors):
    model = solved(2.0, 1e-6, neighbors).simulate(seed=1, rows=made(200_000, 5))["fit"]
    assert list(model) == ["intercept", *FEATURES]
    np.testing.assert_allclose(list(model.values()), [12, 2, -1, 0.5], atol=0.1)


def test_without_noise_it_is_least_squares():
    rows = made(3000, 3, off=3.0)
    design = np.column_stack([np.ones(3000), *(rows[name] for name in FEATURES)])
    inside = np.clip(rows["y"], -5, 30)
    expected = np.linalg.lstsq(design, inside, rcond=None)[0]
    model = solved(1e5, 1e-6).simulate(seed=0, rows=rows)["fit"]
    np.testing.assert_allclose(list(model.values()), expected, atol=0.05)


def test_it_is_closer_than_ssp_where_noise_is_large():
    """Medians of 12 runs: a false alarm would need half of them to be far off."""
    rows, errors = made(2000, 6), []
    for learner in (dp.SSP(FEATURES, "y"), dp.BoostedSSP(FEATURES, "y")):
        plan = solved(0.5, 1e-6, learner=learner)
        fits = [plan.simulate(seed=seed, rows=rows)["fit"] for seed in range(12)]
        off = [f["intercept"] + sum(f[c] * rows[c] for c in FEATURES) - rows["y"] for f in fits]
        errors.append(np.median([np.mean(o**2) for o in off]))
    assert errors[1] < errors[0] / 2


def test_columns_that_are_mostly_zero_cost_little():
    """Twenty columns on [0, 1], few of them not 0: short rows, and so little is clipped."""
    generator = np.random.default_rng(9)
    names = [f"x{i}" for i in range(20)]
    x = generator.uniform(size=(8000, 20)) * (generator.uniform(size=(8000, 20)) < 0.1)
    y = np.clip(x @ np.linspace(-1, 1, 20) + 0.1 * generator.normal(size=8000), -1, 1)
    table = dp.dataset("rows", columns={**dict.fromkeys(names, (0, 1)), "y": (-1, 1)})
    fit = table.solve(dp.BoostedSSP(names, "y"), epsilon=1.0, delta=1e-6)
    data = {**dict(zip(names, x.T, strict=True)), "y": y}
    model = dp.Pipeline(fit=fit).with_delta(1e-6).simulate(seed=0, rows=data)["fit"]
    predicted = model["intercept"] + x @ [model[name] for name in names]
    assert np.mean((y - predicted) ** 2) < 0.5 * np.var(y)


def test_vectors_that_keep_zero_are_the_features_of_examples():
    rows = {name: np.array([-9.0, -3, 0, 4, 9, math.nan]) for name in COLUMNS}
    table = dp.dataset("rows", columns=COLUMNS)
    operation = table.vectors(FEATURES, scale=True, intercept=True, zero=True).operation
    examples = table.examples(FEATURES, "y").operation
    features = operation.run([MemoryRows(rows, np.arange(6))], None).of(rows)
    np.testing.assert_allclose(features, examples.vectors(rows, examples.scales()), atol=1e-12)
    np.testing.assert_allclose(features[:, 2], [0, 0, 0, 0.5, 1, 0])
    np.testing.assert_allclose(features[:, 3], [-1, -0.75, 0, 0, 0, 0])


def test_steps_halve_and_then_average():
    sizes = [step_size(t) for t in range(steps.STEPS)]
    assert sizes[:5] == [0.5] * 5
    assert sizes == sorted(sizes, reverse=True)
    # in a well-determined direction, steps of 1/2, 1/3, ... leave the plain mean of what they saw
    weights, rest = [], 1.0
    for eta in reversed(sizes[4:]):
        weights.append(eta * rest)
        rest *= 1 - eta
    np.testing.assert_allclose(weights, 1 / 7)


@pytest.mark.parametrize("sigma", [0.5, 5.0, 50.0])
def test_the_clip_balances_the_noise_of_all_steps_with_bias(sigma):
    """The noise by the recursion of its covariance matrix, the balance by a search."""
    generator = np.random.default_rng(4)
    rows = generator.uniform(-1, 1, (5000, 4)) / 4
    gram, scaling = rows.T @ rows, steps.step_scaling(rows.T @ rows, sigma, square=1.0)
    inverse = np.linalg.inv(gram + scaling["ridge"] * np.eye(4))
    s = 4 * sigma * math.sqrt(0.25 / (0.75 / 10 * 0.96))  # the matrix moves by 1/4, g by 1
    covariance = np.zeros((4, 4))
    for t in range(10):
        keep = np.eye(4) - step_size(t) * inverse @ gram
        covariance = keep @ covariance @ keep.T + (step_size(t) * s) ** 2 * inverse @ inverse
    assert scaling["rows"] == pytest.approx(max(np.trace(gram), 2 * sigma) * 4)
    k = np.trace(gram @ covariance) / scaling["rows"] / 4
    best = minimize_scalar(
        lambda c: k * c * c + math.exp(-2 * (c + 1)) / 2, bounds=(0, 20), method="bounded"
    ).x
    assert scaling["clip"] == pytest.approx(max(best, 0.5), rel=1e-3)


def test_noise_of_steps_is_what_shrinks_their_end():
    """Steps on noise alone, against a Monte Carlo of 600 runs (within 6 standard errors)."""
    generator = np.random.default_rng(5)
    rows = generator.uniform(-1, 1, (500, 3)) / 4
    scaling = steps.step_scaling(rows.T @ rows, 1.0, square=1.0)
    ends = []
    for _ in range(600):
        state = steps.initial_state(3)
        for _ in range(10):
            noise = generator.normal(size=3) * 7.0  # of a gradient that is 2 G v at v
            gradient = (rows.T @ rows @ state["v"]) / 0.4 + noise
            state = steps.gradient_step(state, gradient, 7.0, 0.8, scaling, radius=2.0)
        ends.append(np.sum(scaling["values"] * (scaling["basis"].T @ state["v"]) ** 2))
    expected = np.sum(scaling["values"] * state["variances"])
    assert np.mean(ends) == pytest.approx(expected, rel=6 * np.std(ends) / np.mean(ends) / 24)


def test_the_mean_and_the_slopes_are_shrunk_apart():
    """The two parts and their noise by matrices and many draws, not by the eigenvectors."""
    generator = np.random.default_rng(6)
    rows = np.column_stack([np.ones(500), generator.uniform(-1, 2, (500, 2))]) / 6
    gram = rows.T @ rows
    scaling = steps.step_scaling(gram, 0.01, square=1.0)
    # without residuals, so that the sample has no noise
    state = {**steps.initial_state(3), "start": np.array([0.2, 0, 0]), "square": 0.0}
    state["variances"] = np.array([1e-4, 2e-4, 3e-4])
    scale = scaling["basis"] * np.sqrt(state["variances"])
    noise = scale @ generator.normal(size=(3, 100_000))

    def parts(u):
        mean = (gram @ u)[0] / gram[0, 0]
        rest = u - np.outer([1, 0, 0], mean) if u.ndim == 2 else u - np.array([mean, 0, 0])
        return mean, rest

    mean_noise, rest_noise = parts(noise)
    of_mean = np.mean(mean_noise**2)
    of_rest = np.mean(np.sum(rest_noise * (gram @ rest_noise), axis=0))
    for u in (np.array([0.3, 0.1, -0.2]), np.array([0.05, 0.02, 0.01]), 1e-6 * np.ones(3)):
        mean, rest = parts(u)
        # what is left of each; the sizes add up
        np.testing.assert_allclose(u @ gram @ u, mean**2 * gram[0, 0] + rest @ gram @ rest)
        left = max(0, 1 - of_mean / mean**2), max(0, 1 - of_rest / (rest @ gram @ rest))
        expected = np.array([0.2 + left[0] * mean, 0, 0]) + left[1] * rest
        found = steps.shrunk_coefficients({**state, "v": state["start"] + u}, scaling, radius=2.0)
        # 1e5 draws: the variances' relative errors are below .005
        np.testing.assert_allclose(found, expected / 2, atol=0.002)
    assert not steps.shrunk_coefficients(
        {**state, "start": np.zeros(3), "v": 1e-6 * np.ones(3)}, scaling, radius=2.0
    ).any()


def test_a_mean_that_noise_hides_is_left_alone():
    """Where G_00 is lost in noise, (G u)_0 / G_00 could be anything."""
    scaling = {"values": np.array([0.0, 4.0]), "basis": np.array([[1.0, 1e-9], [-1e-9, 1.0]])}
    state = {**steps.initial_state(2), "v": np.ones(2), "variances": np.ones(2)}
    scaling |= {"noise": 3.0, "ridge": 1.0, "rows": 16.0}
    found = steps.shrunk_coefficients(state, scaling, radius=1.0)
    assert np.abs(found).max() <= 1


def test_what_a_sample_says_by_chance_is_shrunk_as_noise_is():
    """The steps on targets that nothing tells, without privacy: the mean size is what is taken off.

    Against a Monte Carlo of 400 samples (within 5 standard errors), of rows short enough for G.
    """
    generator = np.random.default_rng(8)
    rows = np.column_stack([np.ones(300), generator.uniform(-1, 1, (300, 4)) * [1, 1, 0.3, 0.02]])
    rows /= 5
    gram = rows.T @ rows
    scaling = steps.step_scaling(gram, 0.05, square=1.0)
    state = {**steps.initial_state(5), "rows": 300.0, "doubt": 0.0}
    sizes, ends = [], []
    for _ in range(400):
        y = generator.normal(size=300) * 0.2
        v = np.zeros(5)
        for number in range(steps.STEPS):
            scaled = (
                scaling["basis"].T
                @ (rows.T @ (rows @ v - y))
                / (scaling["values"] + scaling["ridge"])
            )
            v = v - step_size(number) * (scaling["basis"] @ scaled)
        rest = v - np.array([(gram @ v)[0] / gram[0, 0], 0, 0, 0, 0])
        sizes.append(rest @ gram @ rest)
        ends.append(rest)
    # the mean squared norm of gradients, of residuals of size .2
    square = 0.2**2 * np.trace(gram) / 300
    u = ends[0] * math.sqrt(2 * np.mean(sizes) / sizes[0])  # twice as large as by chance: half is
    found = steps.shrunk_coefficients({**state, "square": square, "v": u}, scaling, radius=1.0)
    kept = np.linalg.norm(found) / np.linalg.norm(u)
    assert kept == pytest.approx(0.5, abs=5 * np.std(sizes) / np.mean(sizes) / 20 + 0.05)
    few = steps.shrunk_coefficients({**state, "square": square, "v": u / 2}, scaling, radius=1.0)
    assert np.abs(few).max() < 1e-9


@pytest.mark.parametrize("rows", [300, 1200])
def test_targets_that_nothing_tells_are_answered_by_their_mean(rows):
    """At epsilon 8, where privacy costs little: least squares loses a column's share for each."""
    names = [f"x{i}" for i in range(20)]
    columns = {**dict.fromkeys(names, (-1.0, 1.0)), "y": (-1.0, 1.0)}
    table = dp.dataset("rows", columns=columns)
    plan = dp.Pipeline(m=table.solve(dp.BoostedSSP(names, "y"), epsilon=8.0, delta=1e-5))
    plan = plan.with_delta(1e-5)
    lost = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        data = {name: generator.uniform(-1, 1, rows) for name in names}
        data["y"] = generator.uniform(-1, 1, rows)
        model = plan.simulate(seed=seed, rows=data)["m"]
        # of new rows: the mean is 0, the variance of the target and of a column 1/3
        slopes = np.array([model[name] for name in names])
        lost.append(model["intercept"] ** 2 * 3 + slopes @ slopes)
    assert np.mean(lost) < 0.4 * 21 / rows


def test_the_size_of_gradients_is_a_posterior_mean():
    """By integrals over two steps: Gaussian before, a wandering between, noisy measurements."""
    scaling, state = {"rows": 400.0}, steps.initial_state(2)
    q = np.linspace(-0.6, 1.0, 160_001)
    log_law = -((q - steps.GUESS) ** 2) / 2 / steps.GUESS**2
    variance = steps.GUESS**2
    for squares, spread in ((150.0, 60.0), (220.0, 90.0)):
        thought = float(state["square"])
        assert steps.squares_bound(state, radius=3.0) == pytest.approx(6 * math.sqrt(thought))
        unit = 4 * thought / 400
        mean = thought
        # a Gaussian that wanders is as wide as the squares together
        variance += (0.2 * thought) ** 2
        log_law = -((q - mean) ** 2) / 2 / variance
        log_law = log_law - ((q - unit * squares) ** 2) / 2 / (unit * spread) ** 2
        law = np.exp(log_law - log_law.max())
        law /= law.sum()
        mean = float(law @ q)
        variance = float(law @ (q - mean) ** 2)
        state = steps.measured(state, scaling, squares, spread)
        assert state["square"] == pytest.approx(mean, rel=1e-4)
        assert state["doubt"] == pytest.approx(variance, rel=1e-3)


def test_the_clip_follows_the_gradients_and_stays_within_bounds():
    scaling, state = {"rows": 16_000.0, "clip": 2.0}, steps.initial_state(2)
    for size in (0.3, 0.01, 0.0004):
        for _ in range(12):
            # what rows of one size add, without noise
            share = min(1.0, size / steps.squares_bound(state, radius=1.0) ** 2)
            state = steps.measured(state, scaling, 16_000 * share, 1.0)
        clip = steps.clip_norm(state, scaling, radius=3.0)
        assert clip == pytest.approx(min(6 * math.sqrt(size), 3.0), rel=0.05)
    for odd in (1e9, -1e9, math.inf, -math.inf):
        after = steps.measured(state, scaling, odd, 1.0)
        assert 3 * 2**-6 <= steps.clip_norm(after, scaling, radius=3.0) <= 3.0
        assert 0 < steps.squares_bound(after, radius=3.0) <= 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dp.BoostedSSP([], "y"), "BoostedSSP"),
        (lambda: dp.BoostedSSP(["y"], "y"), "BoostedSSP"),
        (lambda: solved(epsilon=1.0), "BoostedSSP"),
        (lambda: solved(1.0, 0.0), "0 < delta < 1"),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(dp.DeclarationError, match=message):
        make()


# --- never worse than nothing


def test_a_mean_far_from_the_middle_is_not_lost_to_noise():
    """Targets near one end of wide bounds, nothing to learn, a small budget: near the mean's error.

    With a start in the middle of the bounds the median here is 4.2 times the mean's error.
    """
    names = [f"x{i}" for i in range(8)]
    table = dp.dataset("rows", columns={**dict.fromkeys(names, (0, 4)), "y": (0, 1000)})
    model = table.solve(dp.BoostedSSP(names, "y"), epsilon=0.1, delta=1e-6)
    plan, errors = dp.Pipeline(fit=model).with_delta(1e-6), []
    for seed in range(8):
        draw = np.random.default_rng(seed)
        data = {name: draw.uniform(0, 4, 8_000) for name in names}
        data["y"] = 30 + 3 * data["x0"] + draw.gamma(2, 10, 8_000)
        fit = plan.simulate(seed=seed, rows=data)["fit"]
        errors.append(np.mean((dp.predict(fit, data) - data["y"]) ** 2) / np.var(data["y"]))
    assert np.median(errors) < 2.2


def test_the_start_is_the_posterior_mean():
    """By integrals: before anything is known, the mean is Gaussian of variance 1/3."""
    about = {"half": 2.0, "width": 3, "radius": 2.0}
    means = np.linspace(-30, 30, 200_001)
    # a mean of 1/2 of a half width, in units of rows divided by 2; of (500 +- hypot(10, 5)) / 1000
    for total, sigma, off in ((1000.0, 20.0, math.hypot(10, 5)), (50.0, 1000.0, 500.0)):
        found = steps.start_at_mean(total, sigma, 1000.0, 10.0, **about)["start"]
        logs = -1.5 * means**2 - ((total / 2000 - means) * 1000 / off) ** 2 / 2
        law = np.exp(logs - logs.max())
        np.testing.assert_allclose(found, [2 * (law @ means) / law.sum(), 0, 0], rtol=1e-3)
    most = steps.start_at_mean(1e9, 1.0, 1000.0, 1e-9, **about)["v"]
    np.testing.assert_allclose(most, [2.0, 0, 0], rtol=1e-5)
    # a number of rows that noise explains makes no mean of the sum's noise
    assert abs(steps.start_at_mean(-90.0, 40.0, 3.0, 20.0, **about)["start"][0]) < 1
    assert abs(steps.start_at_mean(1e4, 1e4, 3.0, 1.0, **about)["start"][0]) < 1e-6


def test_the_variance_that_noise_gives_a_descent_is_that_of_many_descents():
    """By hand, 4,000 times: the recursion with momentum, and the mean of the last half."""
    rng, own = np.random.default_rng(0), {"steps": 12, "learning_rate": 0.8, "momentum": 0.9}
    values, divisors, noise = np.array([0.0, 5.0, 100.0]), np.array([10.0, 10.0, 100.0]), 2.0
    v, u = np.zeros((4_000, 3)), np.zeros((4_000, 3))
    rounds = []
    for _ in range(12):
        d = (values * v + noise * rng.normal(size=v.shape)) / divisors
        u = 0.9 * u + d
        v = v - 0.8 * (d + 0.9 * u)
        rounds.append(v)
    found = np.var(np.mean(rounds[6:], axis=0), axis=0)
    # the relative error of a variance of 4,000 is .022
    np.testing.assert_allclose(noise_variances(values, divisors, noise, **own), found, rtol=0.12)


@pytest.mark.parametrize("learner", [dp.BoostedSSP, dp.NoisyGradientDescent])
def test_where_targets_are_noise_the_mean_is_the_answer(learner):
    """Targets in a hundredth of their bounds, on which features tell nothing."""
    loss = {} if learner is dp.BoostedSSP else {"loss": dp.Squared()}
    rows = made(4_000, 2)
    rows["y"] = np.random.default_rng(1).normal(-3.0, 0.2, 4_000)
    for seed in range(3):
        plan = solved(0.3, 1e-6, learner=learner(FEATURES, "y", **loss))
        said = dp.predict(plan.simulate(seed=seed, rows=rows)["fit"], rows)
        error = np.mean((said - rows["y"]) ** 2)
        # the noise of the sum is that of 45 rows, in half widths of 17.5
        assert error < np.var(rows["y"]) + (5 * 45 / 4_000 * 17.5) ** 2


def test_bounds_that_are_almost_equal_have_no_mean() -> None:
    """Half of the width of (0, 5e-324) is rounded to 0, by which the mean was divided."""
    people = dp.dataset("people", columns={"age": (0, 100), "y": (0, 5e-324)})
    model = people.solve(dp.BoostedSSP(["age"], "y"), epsilon=1.0, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    found = plan.simulate(seed=1, people={"age": [1.0, 2.0], "y": [0.0, 0.0]})["model"]
    assert found == {"intercept": 0.0, "age": 0.0}
