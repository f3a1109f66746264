"""Additive models: their cost by hand, sums by brute force, shapes against known ones, an audit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr, ndtri, softmax
from scipy.stats import multivariate_normal

import adaptive_dp as dp
from adaptive_dp.data import make_examples
from adaptive_dp.data.examples import BLOCK
from adaptive_dp.erm import Logistic, Multinomial, Squared
from adaptive_dp.learning import additive
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.bins import (
    BinCounts,
    BinGains,
    BinGradient,
    BinnedRows,
    BinPairs,
    ShallowLessSteep,
    ShallowRows,
    cell_count,
    cell_edges,
    column_cells,
)
from adaptive_dp.queries.counts import Histogram
from adaptive_dp.queries.domains import Categories, Interval

RELATIONS = ["add_remove", "replace_one", "zero_out"]
COLUMNS: dict[str, Any] = {"a": (-3, 5), "b": (0, 1000), "c": ["u", "v", "w"], "y": ["no", "yes"]}
FEATURES = ["a", "b", "c"]


def solved(
    epsilon: float | None = None,
    delta: float | None = None,
    neighbors: Any = "add_remove",
    rows: int | None = None,
    target: str = "y",
    **options: Any,
) -> dp.Pipeline:
    unit: dict[str, Any] = {} if rows is None else {"unit": "id", "rows_per_unit": rows}
    table = dp.dataset("people", columns=COLUMNS, neighbors=neighbors, **unit)
    features = [name for name in FEATURES if name != target]
    learner = dp.AdditiveModel(features, target, **{"pairs": 0, **options})
    plan = dp.Pipeline(model=table.solve(learner, epsilon=epsilon, delta=delta))
    return plan if delta is None else plan.with_delta(delta)


def made(count: int, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    data: dict[str, Any] = {
        "a": draw.uniform(-3, 5, count),
        "b": np.minimum(draw.lognormal(1, 2, count), 1000),
        "c": draw.choice(np.array(["u", "v", "w"], dtype=object), count),
    }
    score = score_of(data)
    data["y"] = np.where(draw.random(count) < expit(score), "yes", "no").astype(object)
    return data


def score_of(data: dict[str, Any]) -> Any:
    """Return true log odds: a bump, a step in the tail, and one category that differs."""
    bump = 2.0 * np.cos(data["a"])
    return bump + 2.0 * (data["b"] > 10) - 1.5 * (data["c"] == "v")


# --- the cost


def profile(mu: float, epsilon: float) -> float:
    """Return a Gaussian release's exact delta (Balle and Wang 2018, Theorem 8)."""
    first, second = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return math.exp(log_ndtr(first)) - math.exp(epsilon + log_ndtr(second))


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize(
    ("epsilon", "delta", "target"), [(0.1, 1e-6, "y"), (4.0, 1e-5, "y"), (1.0, 1e-6, "a")]
)
def test_a_budget_is_respected_and_spent(
    neighbors: Any, rows: int | None, epsilon: float, delta: float, target: str
) -> None:
    """By hand: mu^2 adds over counts, steps and the check; the linear start has its share."""
    plan = solved(epsilon, delta, neighbors, rows, target)
    d, r, exchange = 3 - (target != "y"), rows or 1, neighbors == "replace_one"
    sizes = {
        # exchanged rows lie in other cells of each feature; the number of rows stays
        "counts": (1, r * math.sqrt(2 * d if exchange else d + 1)),
        "gradient": (40, r * (2 if exchange else 1) * 0.5 * math.sqrt(d + 1)),
    }
    total, check, seen = 0.0, 0.0, 0
    if target == "a":
        # the sum of squares, as one more feature's bin
        sizes["gradient"] = (40, r * (2 if exchange else 1) * math.sqrt(d + 2))
    for node in plan.structure:
        mechanism = getattr(node.handle.operation, "mechanism", None)
        query = node.handle.inputs[0].operation if mechanism is not None else None
        if isinstance(query, BinCounts | BinGradient):
            times, size = sizes["counts" if isinstance(query, BinCounts) else "gradient"]
            total += times * (size / mechanism.sigma) ** 2
            seen += 1
        elif isinstance(query, ShallowLessSteep) or node.name.endswith(".rows"):
            # the check: each row is 1 or -1 in two sums, and counted
            size = r * (2 if exchange and isinstance(query, ShallowLessSteep) else 1)
            check += (size / mechanism.sigma) ** 2
            seen += 1
    total = total / (1 - additive.LINE) + check
    assert seen == (5 if target == "y" else 2)
    exact = brentq(lambda e: profile(math.sqrt(total), e) - delta, 1e-3, 50, xtol=1e-12)
    certificate = plan.certify()
    assert exact <= certificate.epsilon <= epsilon
    assert certificate.epsilon >= 0.995 * epsilon


@pytest.mark.parametrize("pairs", [0, 2])
def test_free_noise_is_calibrated(pairs: int) -> None:
    epsilon = solved(pairs=pairs).calibrate(epsilon=2.0, delta=1e-6).certify().epsilon
    assert 0.995 * 2 <= epsilon <= 2.0


@pytest.mark.parametrize("neighbors", RELATIONS)
@pytest.mark.parametrize("rows", [None, 3])
@pytest.mark.parametrize(("epsilon", "target"), [(0.1, "y"), (8.0, "y"), (1.0, "b"), (1.0, "c")])
def test_the_budget_of_pairs_is_respected_and_spent(
    neighbors: Any, rows: int | None, epsilon: float, target: str
) -> None:
    """By hand: mu^2 adds up, and of each choice it is that of a randomized response."""
    table = dp.dataset(
        "people",
        columns=COLUMNS,
        neighbors=neighbors,
        **({} if rows is None else {"unit": "id", "rows_per_unit": rows}),
    )
    number, features = target == "b", [name for name in COLUMNS if name != target][:3]
    model = table.solve(dp.AdditiveModel(features, target, pairs=2), epsilon=epsilon, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    r, exchange = rows or 1, neighbors == "replace_one"
    moved = r * (2 if exchange else 1) * (1.0 if number else 0.5)
    main, others, seen = 0.0, 0.0, []
    for node in plan.structure:
        mechanism = getattr(node.handle.operation, "mechanism", None)
        query = node.handle.inputs[0].operation if mechanism is not None else None
        last = getattr(query, "last", 0)
        if isinstance(query, BinCounts):
            # exchanged rows lie in other cells of each feature, and of each table
            size = r * math.sqrt((2 if exchange else 1) * (last or 3) + (not last and not exchange))
            square = (size / mechanism.sigma) ** 2
        elif isinstance(query, BinGradient):
            size = moved * math.sqrt(2 if last else 4 + number)
            square = (additive.ROUNDS if last else 40) * (size / mechanism.sigma) ** 2
        elif isinstance(query, BinGains):
            # scores may move apart by twice that: of two responses one is e^(range / 2) likelier;
            # a row's three slopes may add up to the root of 3 times their norm
            odds = expit(2 * moved * (math.sqrt(3) if target == "c" else 1) / mechanism.scale / 2)
            square = mechanism.k * (2 * ndtri(odds)) ** 2
        elif isinstance(query, ShallowRows | Histogram) or node.name.endswith(".rows"):
            times = {ShallowLessSteep: 2, Histogram: math.sqrt(2)}.get(type(query), 1)
            square = (r * (times if exchange else 1) / mechanism.sigma) ** 2
        else:
            continue
        seen.append(type(query).__name__)
        if isinstance(query, BinCounts | BinGradient) and not last:
            main += square
        else:
            others += square
    assert sorted(seen)[:5] == ["BinCounts", "BinCounts", "BinGains", "BinGradient", "BinGradient"]
    # several classes have no linear start
    mu = math.sqrt(main / (1 - additive.LINE * (target != "c")) + others)
    exact = brentq(lambda e: profile(mu, e) - 1e-6, 1e-3, 50, xtol=1e-12)
    assert 0.9999 * epsilon <= exact <= epsilon
    # a choice costs a little less than the Gaussian that it is charged as
    assert 0.995 * epsilon <= plan.certify().epsilon <= exact * (1 + 1e-9)


# --- the sums


def binned(codes: Any, labels: Any, sizes: tuple[int, ...]) -> BinnedRows:
    steps = (np.asarray(codes) + np.cumsum([1, *sizes[:-1]])).astype(np.float32)
    owners = np.arange(len(labels))
    return BinnedRows(make_examples(steps, 1.0, np.asarray(labels, float), 1.0, owners), sizes)


@pytest.mark.parametrize("classes", [2, 4])
def test_sums_are_those_of_single_rows(classes: int) -> None:
    """Against a sum of one-hot rows; and exactly that of each row alone, wherever it stands."""
    draw, sizes = np.random.default_rng(classes), (3, 5)
    loss = Logistic() if classes == 2 else Multinomial(classes)
    for count in (1, BLOCK - 1, 2 * BLOCK + 5):
        codes = np.stack([draw.integers(0, size, count) for size in sizes], axis=1)
        labels = draw.integers(0, classes, count)
        read = 2.0 * labels - 1 if classes == 2 else labels
        scores = draw.normal(size=(loss.outputs, 9)) * 3
        design = np.zeros((count, 9))
        design[:, 0] = 1
        for j, start in enumerate((1, 4)):
            design[np.arange(count), start + codes[:, j]] = 1
        z = scores @ design.T
        if classes == 2:
            slopes = expit(z) - (labels == 1)
        else:
            slopes = softmax(z, axis=0) - (np.arange(classes)[:, None] == labels)
        slopes *= np.minimum(1, 0.4 / np.linalg.norm(slopes, axis=0))
        rows = binned(codes, read, sizes)
        sums, _, unit = rows.slope_sums(loss, scores, 0.4)
        np.testing.assert_allclose(sums * unit, slopes @ design, atol=1e-4 * count**0.5)
        np.testing.assert_array_equal(rows.counts(), design.sum(axis=0))
        where = int(draw.integers(0, count))
        alone = binned(codes[[where]], read[[where]], sizes).slope_sums(loss, scores, 0.4)[0]
        rest = np.arange(count) != where
        others = binned(codes[rest], read[rest], sizes).slope_sums(loss, scores, 0.4)[0]
        np.testing.assert_array_equal(alone + others, sums)


def test_no_slope_is_longer_than_the_clip() -> None:
    for seed in range(200):
        draw = np.random.default_rng(seed)
        clip = 10.0 ** draw.uniform(-5, 1)
        scores = draw.normal(size=(4, 9)) * 10.0 ** draw.uniform(-3, 6)
        rows = binned([[draw.integers(0, 3), 1]], [draw.integers(0, 4)], (3, 5))
        sums, _, unit = rows.slope_sums(Multinomial(4), scores, clip)
        steps = [int(v) for v in sums[:, 0]]
        assert math.fsum(v * v for v in steps) <= (clip / unit) ** 2


# --- the cells


@pytest.mark.parametrize("bounds", [(0, 1), (-5, 1e6), (3, 3), (-7, -2), (0, 5e-324), (1e9, 1e12)])
def test_cells_cover_all_numbers(bounds: tuple[float, float]) -> None:
    interval = Interval(*bounds)
    edges = cell_edges(interval)
    assert (edges[0], edges[-1]) == bounds
    assert np.all(np.diff(edges) > 0) or bounds[0] == bounds[1]
    inside = np.random.default_rng(0).uniform(*bounds, 500)
    values = np.concatenate([inside, edges, [-math.inf, math.inf, math.nan, 0.0, 1e300]])
    places = column_cells(values, interval)
    assert places.min() >= 0
    assert places.max() < cell_count(interval)
    np.testing.assert_array_equal(places == 0, np.isnan(values))
    for value, place in zip(inside, places, strict=False):
        assert edges[place - 1] <= value <= edges[place]


def test_what_is_missing_or_not_declared_is_a_cell_of_its_own() -> None:
    words = np.array(["v", None, "x", "u", math.nan], dtype=object)
    assert column_cells(words, Categories(("u", "v"))).tolist() == [2, 0, 0, 1, 0]
    data = made(8_000, 3)
    gone = np.random.default_rng(4).random(8_000) < 0.3
    # only those with a gap are mostly "yes"
    data["a"] = np.where(gone, math.nan, data["a"])
    data["y"] = np.where(gone, "yes", data["y"]).astype(object)
    plan = solved(8.0, 1e-6)
    assert "is present" in str(plan)  # of the target alone
    model = plan.simulate(seed=1, people=data)["model"]
    shape = model["shapes"]["a"]
    assert shape["missing"] > max(shape["scores"])
    found = dp.predict(model, {"a": [math.nan], "b": [1.0], "c": ["v"]}, classes=["no", "yes"])
    assert found.tolist() == ["yes"]


def test_bins_stand_above_the_noise() -> None:
    counts = np.array([0, 500.0, 2, -3, 1, 400, 0, 0, 90, 5, *[0.0] * 30])
    places = additive.merged_in_order(counts, 10.0, 64)
    assert np.all(np.diff(places) >= 0)
    assert places[-1] + 1 == additive.LEAST
    assert places[1] != places[5] != places[8]
    many = additive.merged_in_order(np.full(100, 1000.0), 1.0, 64)
    assert many.max() + 1 == 64
    by_size = additive.merged_by_size(np.array([500.0, -3, 400, 2]), 10.0, 64)
    assert by_size.tolist() == [0, 2, 1, 2]


# --- what is learned


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_it_finds_the_shapes(neighbors: Any) -> None:
    model = solved(8.0, 1e-6, neighbors).simulate(seed=1, people=made(20_000, 5))["model"]
    fresh = made(5_000, 6)
    found, true = dp.predict(model, fresh), score_of(fresh)
    assert np.corrcoef(found, true)[0, 1] > 0.97
    shapes = model["shapes"]
    # a cosine goes down from 0 to pi, which no linear model sees beside its rise before 0
    at = dict(zip(shapes["a"]["edges"][:-1], shapes["a"]["scores"], strict=True))
    middle = [v for edge, v in at.items() if -0.5 < edge < 0.3]
    assert min(middle) > max(v for edge, v in at.items() if 2.6 < edge < 3.4)
    scores = dict(zip(shapes["c"]["categories"], shapes["c"]["scores"], strict=True))
    assert scores["v"] < min(scores["u"], scores["w"]) - 0.8


def test_several_classes() -> None:
    data = made(15_000, 7)
    data["c"] = np.where(data["a"] < -1, "u", np.where(data["a"] < 2, "v", "w")).astype(object)
    model = solved(4.0, 1e-6, target="c").simulate(seed=1, people=data)["model"]
    found = dp.predict(model, {"a": [-2.0, 0.5, 4.0], "b": [1.0] * 3})
    assert found.tolist() == ["u", "v", "w"]


def test_scaled_sums_are_those_of_single_rows() -> None:
    """Residuals over a released number, clipped; and their squares, against plain sums."""
    draw, sizes = np.random.default_rng(3), (3, 5)
    codes = np.stack([draw.integers(0, size, 3_000) for size in sizes], axis=1)
    goals, scores = draw.uniform(-1, 1, 3_000), draw.normal(size=(1, 9))
    rows = binned(codes, goals, sizes)
    z = scores[0, 0] + scores[0, 1 + codes[:, 0]] + scores[0, 4 + codes[:, 1]]
    for scale, bound in [(0.7, 1.0), (5.0, 0.3), (1e-3, 2.0)]:
        slopes = np.clip((z - goals) / scale, -bound, bound)
        sums, squares, unit = rows.slope_sums(Squared(), scores, bound, scale)
        assert squares * unit == pytest.approx((slopes**2).sum() / bound, rel=1e-5)
        assert sums[0, 0] * unit == pytest.approx(slopes.sum(), abs=1e-2)
        by_cell = np.bincount(codes[:, 1], slopes, minlength=5)
        np.testing.assert_allclose(sums[0, 4:].astype(float) * unit, by_cell, atol=1e-2)


def numbers(count: int, seed: int) -> dict[str, Any]:
    """Return rows whose column "b" is a bump of "a", a step by "c", and a heavy tail of noise."""
    data = made(count, seed)
    draw = np.random.default_rng(seed + 1)
    true = 400 + 150 * np.cos(data["a"]) + 100 * (data["c"] == "v")
    data["true"] = true
    data["b"] = np.clip(true + 20 * draw.standard_t(3, count), 0, 1000)
    return data


@pytest.mark.parametrize("neighbors", RELATIONS)
def test_it_finds_the_shapes_of_a_number(neighbors: Any) -> None:
    table = dp.dataset("people", columns=COLUMNS, neighbors=neighbors)
    model = table.solve(dp.AdditiveModel(["a", "c"], "b"), epsilon=2.0, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    data, fresh = numbers(10_000, 11), numbers(2_000, 12)
    true = data.pop("true")
    found = plan.simulate(seed=1, people=data)["model"]
    error = dp.predict(found, fresh) - fresh["true"]
    # nine tenths of the true function's variance are found; a line has less than a third
    assert np.mean(error**2) < 0.1 * np.var(true)
    scores = dict(
        zip(found["shapes"]["c"]["categories"], found["shapes"]["c"]["scores"], strict=True)
    )
    assert scores["v"] - scores["u"] == pytest.approx(100, abs=25)


@pytest.mark.parametrize("count", [0, 1, 30, 300])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_noise_does_not_diverge_where_rows_are_few(count: int, epsilon: float) -> None:
    """The noise exceeds what can be learned: shapes shrink, and nothing diverges."""
    table = dp.dataset("people", columns=COLUMNS)
    model = table.solve(dp.AdditiveModel(["a", "c", "y"], "b"), epsilon=epsilon, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    fresh, errors = numbers(500, 13), []
    for seed in range(6):
        data = {name: values[:count] for name, values in numbers(300, seed).items()}
        del data["true"]
        found = dp.predict(plan.simulate(seed=seed, people=data)["model"], fresh)
        errors.append(np.sqrt(np.mean((found - fresh["b"]) ** 2)))
    # the middle of the bounds errs by some 180, their ends by 500 or more
    assert max(errors) < 600
    assert count < 300 or np.mean(errors) < 200


@pytest.mark.parametrize("true", [0.0, 0.06, 1.0])
def test_the_prior_is_the_likeliest_one(true: float) -> None:
    """Against densities of a random walk's values at its bins, added up of its increments."""
    draw = np.random.default_rng(int(true * 100))
    widths, joined, level = [5, 9], [np.zeros(1)], [np.zeros(1)]
    cov, scale = [], 3.0
    for width in widths:
        # bin 0, of what is missing, stands alone; the others are a chain
        joined.append(np.append(np.append(0.0, draw.uniform(1, 4, width - 2)), 0.0))
        level.append(np.full(width, 1 / (width - 1)))
        precision = np.diag(level[-1])
        for i, j in enumerate(joined[-1][:-1] / additive.ROUGH):
            e = np.zeros(width)
            e[i], e[i + 1] = 1.0, -1.0
            precision += j * np.outer(e, e)
        cov.append(np.linalg.inv(precision))
    bins = {"joined": np.concatenate(joined), "level": np.concatenate(level)}
    d, v = draw.uniform(5, 50, 15), draw.uniform(20, 60, 15)
    covariance = np.zeros((15, 15))
    covariance[0, 0], begin = 1.0, 1
    for one in cov:
        covariance[begin : begin + len(one), begin : begin + len(one)] = one
        begin += len(one)
    covariance = np.outer(d, d) * covariance * scale
    seen = draw.multivariate_normal(np.zeros(15), true * covariance + np.diag(v))
    densities = [
        multivariate_normal(np.zeros(14), (t * covariance + np.diag(v))[1:, 1:]).logpdf(seen[1:])
        for t in additive.SHARES_OF_PRIOR
    ]
    best = additive.SHARES_OF_PRIOR[int(np.argmax(densities))]
    assert additive.likeliest(seen, v, d, bins, scale, widths) == best
    if true in (0.0, 1.0):
        assert (best < 0.1) == (true == 0)


def test_shapes_of_targets_that_nothing_tells_are_flat() -> None:
    """At epsilon 8, where privacy costs little: a share for each bin would be a tenth."""
    names = [f"x{i}" for i in range(10)]
    table = dp.dataset("rows", columns={**dict.fromkeys(names, (-1.0, 1.0)), "y": (-1.0, 1.0)})
    model = table.solve(dp.AdditiveModel(names, "y", pairs=0), epsilon=8.0, delta=1e-5)
    plan, lost = dp.Pipeline(m=model).with_delta(1e-5), []
    for seed in range(4):
        draw = np.random.default_rng(seed)
        data = {name: draw.uniform(-1, 1, 800) for name in [*names, "y"]}
        found = plan.simulate(seed=seed, rows=data)["m"]
        new = {name: draw.uniform(-1, 1, 4000) for name in names}
        lost.append(3 * float(np.mean(np.asarray(dp.predict(found, new)) ** 2)))
    assert np.mean(lost) < 0.04


def test_constant_columns_and_targets_are_learned_from() -> None:
    table = dp.dataset("people", columns={"x": (2, 2), "z": (0, 9), "t": (5, 5), "u": (0, 10)})
    data = {"x": [2.0] * 99, "z": [4.0] * 99, "t": [5.0] * 99, "u": [7.0] * 99}
    for target, wanted, error in [("t", 5.0, 1e-9), ("u", 7.0, 1.5)]:
        model = table.solve(dp.AdditiveModel(["x", "z"], target), epsilon=8.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        found = dp.predict(plan.simulate(seed=1, people=data)["model"], {"x": [2.0], "z": [4.0]})
        assert found == pytest.approx([wanted], abs=error)


def test_shapes_can_be_edited() -> None:
    model = solved(4.0, 1e-6).simulate(seed=1, people=made(5_000, 8))["model"]
    rows = {"a": [0.0], "b": [1.0], "c": ["v"]}
    before = dp.predict(model, rows)
    model["shapes"]["c"]["scores"] = model["shapes"]["c"]["scores"] + 1.0
    assert dp.predict(model, rows) - before == pytest.approx([1.0])
    with pytest.raises(dp.DeclarationError, match="'c'"):
        dp.predict(model, {"a": [0.0], "b": [1.0]})


# --- pairs


def test_sums_by_tables_are_those_of_single_rows() -> None:
    """Against loops over rows, whatever the released groups and pairs."""
    draw, sizes, stream = np.random.default_rng(5), (3, 5, 2), SeededStream(0)
    codes = np.stack([draw.integers(0, size, 300) for size in sizes], axis=1)
    goals, groups = draw.uniform(-1, 1, 300), [0.0, 0, 1, 2, 0, 2, math.nan, 1, 9, 0, 1]
    read = [0, 0, 1, 2, 0, 2, 0, 1, 2, 0, 1]
    pairs = [[1, 0], [2, 2], [-4, 77]]
    rows = BinPairs(2, 3).run([binned(codes, goals, sizes), groups, pairs], stream)
    at = draw.normal(size=rows.cells)
    places = codes + np.cumsum([1, 3, 5])
    group = np.array(read)[places]
    own = [group[:, i] * 3 + group[:, j] for i, j in ([1, 0], [2, 2], [0, 2])]
    z = at[0] + at[places].sum(axis=1) + sum(at[11 + 9 * k + own[k]] for k in range(3))
    slopes = np.clip((z - goals) / 0.7, -1, 1)
    sums = np.array([np.bincount(of, slopes, minlength=9) for of in own])
    bins = np.concatenate([np.zeros(11), np.tile(np.arange(9.0), 3)])
    found = BinGradient("Squared()", 1.0, 9, True, 3).run([rows, at, bins, 0.7], stream)
    np.testing.assert_allclose(found, sums.reshape(-1), atol=1e-3)
    gains = BinGains("Squared()", 1.0, 9, True, 3).run([rows, at, bins, [1, 2, 3], 0, 0.7], stream)
    np.testing.assert_allclose(gains, np.abs(sums).sum(axis=1) - [1, 2, 3], atol=1e-3)
    counts = BinCounts(3).run([rows], stream)
    np.testing.assert_array_equal(
        counts, np.concatenate([np.bincount(c, minlength=9) for c in own])
    )


def crossed(count: int, seed: int) -> dict[str, Any]:
    """Return rows in which "y" and "n" follow the product of two features, and nothing else."""
    draw = np.random.default_rng(seed)
    data: dict[str, Any] = {name: draw.uniform(-1, 1, count) for name in "abde"}
    data["c"] = draw.choice(np.array(["u", "v", "w"], dtype=object), count)
    data["a"][:: count // 50] = math.nan
    sign = np.where(np.nan_to_num(data["a"]) * (data["c"] == "u") > 0, 1.0, -1.0)
    data["n"] = np.clip(0.5 * sign * (data["c"] == "u") + draw.normal(0, 0.2, count), -1, 1)
    data["y"] = np.where(draw.random(count) < expit(5 * data["n"]), "yes", "no").astype(object)
    return data


@pytest.mark.parametrize("target", ["n", "y"])
def test_it_finds_what_features_tell_together(target: str, tmp_path: Any) -> None:
    features = ["a", "b", "c", "d", "e"]
    columns = {**dict.fromkeys("abden", (-1, 1)), "c": ["u", "v", "w"], "y": ["no", "yes"]}
    table = dp.dataset("people", columns=columns)
    learner = dp.AdditiveModel(features, target, pairs=2)
    model = table.solve(learner, epsilon=2.0, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    # its document is the same plan
    assert dp.load(plan.certify().plan).fingerprint == plan.fingerprint
    found = plan.simulate(seed=1, people=crossed(8_000, 1))["model"]
    assert found["pairs"][0]["features"] == ["a", "c"]
    fresh = crossed(3_000, 2)
    apart = np.nan_to_num(fresh["a"]) * (fresh["c"] == "u")
    said = dp.predict(found, fresh)
    strong = np.abs(apart) > 0.3
    assert np.mean((said > 0) == (apart > 0), where=strong) > 0.95
    # a table can be read and edited: its score is added to that of the shapes
    pair, rows = found["pairs"][0], {n: v[strong][:1] for n, v in fresh.items()}
    edges, names = pair["axes"][0]["edges"], pair["axes"][1]["categories"]
    assert pair["scores"].shape == (len(edges), 1 + len(names))
    before = dp.predict(found, rows)
    place = int(np.searchsorted(edges[1:-1], rows["a"][0], side="right"))
    pair["scores"][1 + place, 1 + names.index("u")] += 1.0
    assert dp.predict(found, rows) - before == pytest.approx([1.0])
    # what is missing has the row and the column of its own
    rows["a"] = np.array([math.nan])
    assert math.isfinite(dp.predict(found, rows)[0])


def test_several_classes_have_tables_of_their_own() -> None:
    draw = np.random.default_rng(4)
    columns = {"a": (-1, 1), "b": (-1, 1), "d": (-1, 1), "k": ["u", "v", "w"]}

    def rows(count: int) -> dict[str, Any]:
        data: dict[str, Any] = {name: draw.uniform(-1, 1, count) for name in "abd"}
        cell = np.where(data["a"] * data["b"] > 0, np.where(data["d"] > 0, "u", "v"), "w")
        data["k"] = np.where(draw.random(count) < 0.9, cell, "u").astype(object)
        return data

    right = []
    for pairs in (0, 1):
        learner = dp.AdditiveModel(["a", "b", "d"], "k", pairs=pairs)
        model = dp.dataset("people", columns=columns).solve(learner, epsilon=4.0, delta=1e-6)
        plan = dp.Pipeline(model=model).with_delta(1e-6)
        found, fresh = plan.simulate(seed=1, people=rows(10_000))["model"], rows(3_000)
        right.append(np.mean(dp.predict(found, fresh) == fresh["k"]))
    assert right[1] > right[0] + 0.15
    (table,) = found["pairs"]
    assert table["features"] == ["a", "b"]
    assert table["scores"].shape[2] == 3


@pytest.mark.parametrize("target", ["n", "y"])
def test_tables_stay_flat_where_nothing_is_left_in_pairs(target: str) -> None:
    """Noise is most of what is seen, and pairs add less than two hundredths to the error.

    Of one draw the difference is within .04, of 24 its mean is 0.
    """
    added = []
    columns = {**dict.fromkeys("abden", (-1, 1)), "y": ["no", "yes"]}
    table = dp.dataset("people", columns=columns)
    model = table.solve(dp.AdditiveModel(list("abde"), target, pairs=4), epsilon=0.5, delta=1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    for seed in range(3):
        draw = np.random.default_rng(seed)
        data: dict[str, Any] = {name: draw.uniform(-1, 1, 1_000) for name in "abde"}
        data["n"] = np.clip(0.5 * data["a"] + draw.normal(0, 0.3, 1_000), -1, 1)
        data["y"] = np.where(draw.random(1_000) < expit(4 * data["a"]), "yes", "no").astype(object)
        found = plan.simulate(seed=seed, people=data)["model"]
        without = {name: part for name, part in found.items() if name != "pairs"}
        both, alone = dp.predict(found, data), dp.predict(without, data)
        if target == "n":
            errors = [np.mean((z - data["n"]) ** 2) / data["n"].var() for z in (both, alone)]
        else:
            errors = [np.mean((z > 0) != (data["a"] > 0)) for z in (both, alone)]
        added.append(errors[0] - errors[1])
    assert np.mean(added) < 0.02


def test_pairs_by_public_numbers() -> None:
    """Where rows times epsilon are few there are none, unless they are asked for."""
    for size, epsilon, wanted in [(500, 1.0, 0), (50_000, 1.0, 3), (50_000, 0.01, 0)]:
        table = dp.dataset("people", columns=COLUMNS, neighbors="replace_one", size=size)
        for pairs in (None, 0, 1):
            learner = dp.AdditiveModel(FEATURES, "y", pairs=pairs)
            plan = dp.Pipeline(model=table.solve(learner, epsilon=epsilon, delta=1e-6))
            found = [node.handle.operation for node in plan.structure]
            counts = [each.count for each in found if isinstance(each, BinPairs)]
            # the first are all of them, to choose from
            assert min(counts, default=0) == (wanted if pairs is None else pairs)
    # of several classes more are needed
    assert additive.paired(10, 1.0, 4_000) == 4
    assert additive.paired(10, 1.0, 4_000, 5) == 0
    with pytest.raises(dp.DeclarationError, match="pairs"):
        dp.AdditiveModel(["a"], "y", pairs=-1)


def test_refusals() -> None:
    table = dp.dataset("people", columns=COLUMNS)
    with pytest.raises(dp.DeclarationError, match="epsilon and delta"):
        table.solve(dp.AdditiveModel(["a"], "y"), epsilon=1.0)
    with pytest.raises(dp.DeclarationError, match="steps"):
        dp.AdditiveModel(["a"], "y", steps=0)


def test_no_rows_and_one_class_are_learned_from() -> None:
    none = {name: [] for name in COLUMNS}
    model = solved(1.0, 1e-6).simulate(seed=1, people=none)["model"]
    assert math.isfinite(model["intercept"])
    data = {**made(500, 9), "y": ["no"] * 500}
    model = solved(4.0, 1e-6).simulate(seed=1, people=data)["model"]
    assert np.mean(dp.predict(model, made(500, 10)) < 0) > 0.9


# --- an audit from end to end


CANARIES = 60
"""Canaries, each the only one of its category: fewer than a feature's bins."""


def planted(confidence: float) -> Any:
    """Audit by one run: each canary a "yes" in a category of its own, behind a balanced crowd."""
    names = [f"c{i}" for i in range(CANARIES)]
    table = dp.dataset("people", columns={"c": names, "y": ["no", "yes"]})
    model = table.solve(dp.AdditiveModel(["c"], "y"), epsilon=1.0, delta=1e-6)
    crowd = {"c": names * 40, "y": ["no", "yes"] * (20 * CANARIES)}
    return dp.audit.planted(
        dp.Pipeline(model=model).with_delta(1e-6),
        {"c": names, "y": ["yes"] * CANARIES},
        lambda seen: seen["model"]["shapes"]["c"]["scores"],
        data={"people": crowd},
        confidence=confidence,
        seed=1,
    )


def planted_in_pairs(confidence: float) -> Any:
    """The same in a table of two features: each canary a "yes" in a cell of its own."""
    names = [f"c{i}" for i in range(7)]
    cells = [(a, b) for a in names for b in names]
    table = dp.dataset("people", columns={"a": names, "b": names, "y": ["no", "yes"]})
    model = table.solve(dp.AdditiveModel(["a", "b"], "y", pairs=1), epsilon=1.0, delta=1e-6)
    # what is left in the pair: so tables are no more flat
    often = [(names.index(a) + names.index(b)) % 2 for a, b in cells]
    crowd = {
        "a": [a for a, _ in cells for _ in range(160)],
        "b": [b for _, b in cells for _ in range(160)],
        "y": [
            y
            for k in often
            for y in (["yes", "no", "yes", "yes"] if k else ["no", "yes", "no", "no"]) * 40
        ],
    }

    def above(scores: Any) -> Any:
        # beyond what its kind of cell has
        kinds = np.array([names.index(a) % 2 * 2 + names.index(b) % 2 for a, b in cells])
        usual = [np.median(scores[kinds == k]) for k in range(4)]
        return scores - np.take(usual, kinds)

    return dp.audit.planted(
        dp.Pipeline(model=model).with_delta(1e-6),
        {"a": [a for a, _ in cells], "b": [b for _, b in cells], "y": ["yes"] * len(cells)},
        lambda seen: above(seen["model"]["pairs"][0]["scores"][1:, 1:].reshape(-1)),
        data={"people": crowd},
        confidence=confidence,
        seed=1,
    )


AUDITS = [planted, planted_in_pairs]


@pytest.mark.parametrize("audit", AUDITS)
def test_a_model_that_keeps_its_promise_is_not_accused(audit: Any) -> None:
    result = audit(1 - 1e-7)  # errs with a chance of 1e-7
    assert result.epsilon == pytest.approx(1.0, rel=5e-3)
    assert result.verdict != "violation"


@pytest.mark.parametrize("audit", AUDITS)
def test_a_model_with_too_little_noise_is_detected(
    audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the plan declares is certified, what the code adds is a hundred times less."""
    honest = dp.Gaussian.release

    def release(self: Any, value: Any, stream: Any) -> Any:
        return honest(dp.Gaussian(sigma=self.sigma / 100), value, stream)

    monkeypatch.setattr(dp.Gaussian, "release", release)
    result = audit(0.95)
    assert result.verdict == "violation"
    assert result.epsilon_lower > 1.2
