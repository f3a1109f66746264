"""Private tests: their sensitivities, laws, sizes and intervals, against brute force and data."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from attrs import evolve
from scipy import stats

import adaptive_dp as dp
from adaptive_dp.data import read_rows
from adaptive_dp.graph.handles import PrivateQuery, change_at
from adaptive_dp.graph.operation import Change
from adaptive_dp.graph.registry import Function
from adaptive_dp.noise.stream import SeededStream
from adaptive_dp.queries.domains import column
from adaptive_dp.queries.moments import pack, unpack
from adaptive_dp.statistics import (
    differences,
    nulls,
    proportions,
    ranks,
    regression,
    subsamples,
    tables,
)
from adaptive_dp.statistics.subsamples import Rejections

S = dp.statistics
LEVELS = (0.01, 0.05, 0.1, 0.5)


def seldom(times, share):
    """A number of events above which there are more than expected but for probability 1e-7."""
    return float(stats.binom.isf(1e-7, times, share))


def sizes_hold(p_values, slack=0.0):
    """Whether p-values are not too small too often, but for what chance alone would do."""
    p = np.asarray(p_values)
    return all((p <= a).sum() <= seldom(len(p), a * (1 + slack)) for a in LEVELS)


# -----------------------------------------------------------------------------
# The tails of noise.


@pytest.mark.parametrize("scale", [0.3, 1.0, 2.0, 7.5])
def test_the_tails_of_noise_are_those_of_sums_of_masses(scale):
    k = np.arange(-2000, 2001)
    mass = np.exp(-np.abs(k) / scale) * math.tanh(0.5 / scale)
    assert math.isclose(mass.sum(), 1, rel_tol=1e-9)
    for x in (-3.0, -0.6, 0.0, 0.2, 0.5, 1.0, 4.7):
        assert nulls.tail("discrete_laplace", scale, x) == pytest.approx(mass[k >= x].sum(), 1e-9)
        # K + U >= x with U uniform: a share of each integer
        share = np.clip(k + 0.5 - x, 0, 1)
        assert nulls.tail("tulap", scale, x) == pytest.approx((mass * share).sum(), rel=1e-9)
    # and the variance
    found = (mass * k**2.0).sum()
    assert nulls.variance_of("discrete_laplace", scale) == pytest.approx(found)
    assert nulls.variance_of("tulap", scale) == pytest.approx(found + 1 / 12)


def test_tulap_draws_follow_the_tail_that_tests_assume():
    draws = S.Tulap(scale=2.0).release(np.zeros(200_000), SeededStream(5))
    for x in (-2.2, 0.1, 0.5, 3.4):
        p = float(nulls.tail("tulap", 2.0, x))
        assert abs((draws >= x).mean() - p) < 6 * math.sqrt(p * (1 - p) / len(draws))


def test_normal_plus_laplace_is_an_integral():
    z = np.linspace(-12, 12, 200_001)
    for variance, scale in ((1.0, 1.0), (4.0, 0.5), (0.01, 3.0), (900.0, 2.0)):
        density = stats.norm.pdf(z)
        for t in (0.0, 0.7, 5.0, 40.0):
            tail = nulls.tail("laplace", scale, t - math.sqrt(variance) * z)
            integral = np.trapezoid(density * tail, z)
            found = float(nulls.normal_laplace_tail(t, variance, scale))
            assert found == pytest.approx(integral, rel=1e-4, abs=1e-13)
    # noise of a 10^-10th of the deviation is none, and of 10^10 deviations all
    assert float(nulls.normal_laplace_tail(30.0, 100.0, 1e-9)) == pytest.approx(stats.norm.sf(3.0))
    assert float(nulls.normal_laplace_tail(3.0, 1e-20, 1.0)) == pytest.approx(math.exp(-3) / 2)


# -----------------------------------------------------------------------------
# Sensitivities, by brute force over all small data sets.


def multisets(rows, most):
    for n in range(most + 1):
        yield from itertools.combinations_with_replacement(rows, n)


def moves(value, rows, most):
    """The most that a value moves when a row appears, and when one is exchanged."""
    found = {data: value(data) for data in multisets(rows, most)}
    appears = exchanged = 0.0
    for data, before in found.items():
        if len(data) < most:
            after = [found[tuple(sorted((*data, row)))] for row in rows]
            appears = max(appears, *(abs(v - before) for v in after))
            exchanged = max(exchanged, max(after) - min(after))
    return appears, exchanged


def declared(query, relation, rows=1):
    table = dp.dataset(
        "t",
        columns={"x": None, "g": ["a", "b", "c"]},
        neighbors=relation,
        **({} if rows == 1 else {"unit": "id", "rows_per_unit": rows}),
    )
    return query.sensitivity(table.domain, change_at(table), 1)


@pytest.mark.parametrize("clamp", [0.25, 0.5, 1.0])
def test_rank_statistics_move_by_no_more_than_declared(clamp):
    for groups, values, most in ((2, 4, 6 if clamp == 0.5 else 5), (3, 3, 4 if clamp == 1 else 5)):
        rows = sorted(itertools.product(range(values), range(groups)))

        def difference(data, groups=groups):
            x, k = (np.array([row[i] for row in data], dtype=np.int64) for i in (0, 1))
            return ranks.rank_difference(x.astype(float), k, groups, clamp)

        appears, exchanged = moves(difference, rows, most)
        query = ranks.RankDifference("x", "g", ("a", "b", "c")[:groups], clamp)
        assert appears <= declared(query, "add_remove")
        assert exchanged <= declared(query, "replace_one")
    rows = [-2, -1, 0, 1, 2, 3]
    appears, exchanged = moves(
        lambda data: ranks.signed_ranks(np.array(data, dtype=float), clamp), rows, 7
    )
    query = ranks.SignedRanks("x", clamp)
    assert 1 < appears <= declared(query, "add_remove") < 1.01 * (1 + clamp)
    assert exchanged <= declared(query, "replace_one")
    # three rows of a unit: three steps
    assert declared(query, "add_remove", 3) == pytest.approx(3 * (1 + clamp), rel=1e-5)
    assert declared(query, "replace_one", 3) == pytest.approx(3 * (2 + clamp), rel=1e-5)


def test_signed_ranks_over_a_public_number_move_by_two_at_most():
    most = 0.0
    for n in range(1, 7):
        query = ranks.SignedRanks("x", size=n)
        table = dp.dataset("t", columns={"x": None}, neighbors="replace_one", size=n)
        bound = query.sensitivity(table.domain, change_at(table), 1)
        for rest in itertools.combinations_with_replacement((-2, -1, 0, 1, 2), n - 1):
            values = [ranks.signed_rank_sum(np.array([*rest, v], float)) / n for v in range(-3, 4)]
            most = max(most, max(values) - min(values))
            assert most <= bound
    assert 1.99 < most <= 2
    adding = dp.dataset("t", columns={"x": None})
    with pytest.raises(dp.DeclarationError, match="size"):
        PrivateQuery(ranks.SignedRanks("x", size=3), (adding,))
    several = Change(True, 2, True)
    with pytest.raises(dp.DeclarationError, match="one row"):
        ranks.SignedRanks("x", size=3).sensitivity(table.domain, several, 1)


def test_the_bound_of_rank_differences_is_nearly_attained():
    rng = np.random.default_rng(1)
    appears = exchanged = 0.0
    for _ in range(600):
        n, groups = int(rng.integers(5, 60)), int(rng.integers(2, 4))
        k = rng.integers(0, groups, n)
        x = rng.permutation(n) + rng.choice([-1, 1]) * n * k * rng.random()
        before = ranks.rank_difference(x, k, groups, 0.5)
        after = [
            ranks.rank_difference(np.append(x, v), np.append(k, g), groups, 0.5)
            for v in (-1e9, 1e9)
            for g in range(groups)
        ]
        appears = max(appears, *(abs(v - before) for v in after))
        exchanged = max(exchanged, max(after) - min(after))
    assert 1.35 < appears <= 1.5
    assert 2.1 < exchanged <= 2.5


def test_units_of_several_rows_move_ranks_by_no_more_than_declared():
    # a rows go and b come, a and b at most 2, in all small data sets
    value = {d: ranks.signed_ranks(np.array(d, float), 0.25) for d in multisets((-2, -1, 1, 3), 5)}
    query = ranks.SignedRanks("x", 0.25)
    for rest in multisets((-2, -1, 1, 3), 3):
        own = [value[tuple(sorted(rest + u))] for u in multisets((-2, -1, 1, 3), 2)]
        assert max(own) - min(own) <= query.sensitivity(None, Change(True, 2, False), 1)
        appear = [abs(v - value[rest]) for v in own]
        assert max(appear) <= query.sensitivity(None, Change(False, 2, False), 1)


def above(rows, *, limit):
    x = rows["x"]
    return 0.0 if len(x) and x.mean() > limit else 1.0


def rejections(parts=2, balanced=False):
    declared = {"x": column("x", (0.0, 1.0))}
    settings = {"limit": 0.5}
    return Rejections(("x",), Function.of(above), parts, 0.05, declared, settings, balanced)


def law_of_rejections(values, parts=2, balanced=False):
    """The law of the number of parts whose mean is above 1/2, over all draws of parts.

    None stands for a missing value. Balanced: over all orders of the rows, dealt out in turn.
    """
    n, law = len(values), np.zeros(parts + 1)
    draws = list(itertools.product(range(parts), repeat=n))
    if balanced:
        draws = [tuple(i % parts for i in order) for order in itertools.permutations(range(n))]
    for draw in draws:
        present = [(v, d) for v, d in zip(values, draw, strict=True) if v is not None]
        means = [[v for v, d in present if d == i] for i in range(parts)]
        law[sum(bool(m) and np.mean(m) > 0.5 for m in means)] += 1 / len(draws)
    return law


def test_parts_of_one_size_keep_epsilon_where_a_row_is_exchanged():
    scale, universe = 1.0, (None, 0.0, 0.6, 1.0)
    noise = np.exp(-np.abs(np.arange(-40, 45)[:, None] - np.arange(3)) / scale)
    noise *= math.tanh(0.5 / scale)
    exchanged = 0.0
    for data in itertools.product(universe, repeat=4):
        one = noise @ law_of_rejections(data, balanced=True)
        for v in universe:
            two = noise @ law_of_rejections((*data[:-1], v), balanced=True)
            exchanged = max(exchanged, float(np.abs(np.log(one / two)).max()))
    assert 0.4 < exchanged <= 1 / scale + 1e-12
    table = dp.dataset("t", columns={"x": (0.0, 1.0)})
    with pytest.raises(dp.DeclarationError, match="fixed number of units"):
        dp.Pipeline(
            n=PrivateQuery(rejections(balanced=True), (table,)).release(S.Tulap(scale=1))
        ).certify()


def test_parts_are_of_one_size_where_rows_are_exchanged():
    def too_many(rows, *, limit):
        return 0.0 if len(rows["x"]) > limit else 1.0

    values = np.append(np.linspace(0, 1, 97), [np.nan] * 3)
    for limit, parts in ((9, 0), (8, None)):  # 100 rows in 10 parts, of which three lack a value
        table = dp.dataset("t", columns={"x": (0, 1)}, neighbors="replace_one", size=100)
        test = S.any_test(table, ["x"], too_many, parts=10, limit=limit)
        plan = dp.Pipeline(test=test).calibrate(epsilon=100.0)
        counts = [
            round(plan.simulate(seed=seed, t={"x": values})["test"]["statistic"])
            for seed in range(20)
        ]
        # at least seven parts are whole, whichever the three are in
        assert min(counts) >= 7 if parts == 0 else set(counts) <= {9, 10}
    # a filter may lose the row: independent draws, as where a row appears
    some = S.any_test(table.filter(table["x"] > 0), ["x"], too_many, parts=10, limit=10)
    plan = dp.Pipeline(test=some).calibrate(epsilon=100.0)
    assert any(
        round(plan.simulate(seed=seed, t={"x": values})["test"]["statistic"]) for seed in range(5)
    )


def test_the_exact_law_of_a_released_count_of_rejections_keeps_epsilon():
    universe = (0.0, 0.6, 1.0)
    scale = 1.0
    outcomes = np.arange(-40, 45)
    noise = np.exp(-np.abs(outcomes[:, None] - np.arange(3)) / scale) * math.tanh(0.5 / scale)
    largest = 0.0
    for n in range(4):
        for data in itertools.product(universe, repeat=n):
            one = noise @ law_of_rejections(data)
            others = [(*data, v) for v in universe]  # a row appears
            others += [(*data[:-1], v) for v in universe if n]  # a row is exchanged
            for other in others:
                two = noise @ law_of_rejections(other)
                largest = max(largest, float(np.abs(np.log(one / two)).max()))
    assert 0.4 < largest <= 1 / scale + 1e-12


def test_rejections_are_drawn_by_that_law():
    table = dp.dataset("t", columns={"x": (0.0, 1.0)})
    values = [0.0, 0.6, 1.0, 0.2]
    law = law_of_rejections(values)
    query = PrivateQuery(rejections(), (table,)).operation
    counts = np.zeros(3)
    rows = read_rows({"x": values}, {"x": "number"}, None)
    for seed in range(80):
        counts[round(query.run([rows], SeededStream(seed)))] += 1
    for k, p in enumerate(law):
        assert abs(counts[k] - 80 * p) <= 5.5 * math.sqrt(80 * p * (1 - p)) + 1e-9
    law, query = law_of_rejections(values, balanced=True), rejections(balanced=True)
    counts = np.zeros(3)
    for seed in range(80):
        counts[round(query.run([rows], SeededStream(seed)))] += 1
    for k, p in enumerate(law):
        assert abs(counts[k] - 80 * p) <= 5.5 * math.sqrt(80 * p * (1 - p)) + 1e-9


def test_a_unit_is_in_one_part_whatever_its_rows():
    for relation in ("add_remove", "replace_one", "zero_out"):
        visits = dp.dataset(
            "v", columns={"x": (0.0, 1.0)}, neighbors=relation, unit="id", rows_per_unit=5
        )
        test = S.any_test(visits, ["x"], above, parts=10, level=0.1, limit=0.5)
        assert dp.Pipeline(test=test).calibrate(epsilon=1.0).certify().epsilon == 1.0
        plan = dp.Pipeline(n=PrivateQuery(rejections(), (visits,)).release(S.Tulap(scale=2)))
        assert plan.certify().epsilon == 0.5


# -----------------------------------------------------------------------------
# What tests cost, under each relation.


COLUMNS = {"x": (0.0, 1.0), "g": ["a", "b"], "h": ["u", "v", "w"], "ill": bool}
DECLARED = {
    "proportion": lambda t: S.proportion(t, t["ill"], 0.3),
    "mann_whitney": lambda t: S.mann_whitney(t, "x", "g"),
    "kruskal_wallis": lambda t: S.kruskal_wallis(t, "x", "h"),
    "signed_rank": lambda t: S.signed_rank(t, "x"),
    "goodness_of_fit": lambda t: S.goodness_of_fit(t, "h", {"u": 1, "v": 1, "w": 2}),
    "independence": lambda t: S.independence(t, "g", "h"),
    "mean_difference": lambda t: S.mean_difference(t, "x", "g"),
    "anova": lambda t: S.anova(t, "x", "h"),
    "any_test": lambda t: S.any_test(t, ["x", "g"], public_test, parts=8),
    "coefficients": lambda t: S.coefficients(t.with_columns(z=t["x"] * t["x"]), ["z"], "x"),
}
RANKED = {"mann_whitney", "kruskal_wallis", "signed_rank"}


def public_test(rows):
    return stats.mannwhitneyu(*(rows["x"][rows["g"] == g] for g in ("a", "b"))).pvalue


def made_up(n=300, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "x": rng.uniform(size=n),
        "g": rng.choice(["a", "b"], n),
        "h": rng.choice(["u", "v", "w"], n),
        "ill": rng.uniform(size=n) < 0.3,
    }


@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("name", DECLARED)
def test_each_test_is_calibrated_run_and_written(name, relation):
    size = {} if relation == "add_remove" else {"size": 300}
    table = dp.dataset("t", columns=COLUMNS, neighbors=relation, **size)
    if relation == "zero_out" and name in RANKED:
        with pytest.raises(dp.DeclarationError, match="zero_out"):
            DECLARED[name](table)
        return
    plan = dp.Pipeline(test=DECLARED[name](table))
    delta = 1e-6 if name == "coefficients" else 0.0
    plan = plan.calibrate(epsilon=1.0, delta=delta)
    certificate = plan.certify()
    assert 0.98 < certificate.epsilon <= 1.0
    result = plan.simulate(seed=3, t=made_up())
    found = result["test"]
    for each in found.values() if name == "coefficients" else [found]:
        assert 0 < each["p_value"] <= 1
        if isinstance(each.get("estimate"), float):
            low, high = each["estimate"].interval(0.9) if name != "coefficients" else (0, 1)
            assert low <= high
    assert "p_value" in str(result)
    module = __name__ if name == "any_test" else "json"
    assert dp.load(plan.to_json(), allow=[module]).fingerprint == plan.fingerprint
    assert "tests." in plan.to_json()
    # an equal run of equal releases has an equal p-value: it is a function of them
    assert plan.simulate(seed=3, t=made_up())["test"] == found


@pytest.mark.parametrize("name", sorted(set(DECLARED) - {"any_test"}))
def test_units_of_several_rows_are_refused_by_name(name):
    table = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=3)
    with pytest.raises(dp.DeclarationError, match=r"up to 3.*rows_per_unit=1"):
        DECLARED[name](table)
    unbounded = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=1)
    assert dp.Pipeline(test=DECLARED[name](unbounded)).free


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda t: S.proportion(t, t["ill"], 1.0), "null must be above 0"),
        (lambda t: S.proportion(t, t["ill"], alternative="more"), "'more'"),
        (lambda t: S.proportion(t, t["ill"], mechanism=dp.DiscreteGaussian()), "DiscreteGaussian"),
        (lambda t: S.mann_whitney(t, "x", "h"), "got 3"),
        (lambda t: S.mann_whitney(t, "x", "x"), "categories"),
        (lambda t: S.mann_whitney(t, "g", "h", ["u", "v"]), "'g'"),
        (lambda t: S.mann_whitney(t, "x", "h", ["u", "z"]), "'z'"),
        (lambda t: S.kruskal_wallis(t, "x", "g"), "mann_whitney"),
        (lambda t: S.goodness_of_fit(t, "x"), "categories"),
        (lambda t: S.goodness_of_fit(t, "g", {"a": 1}), "'b'"),
        (lambda t: S.goodness_of_fit(t, "g", {"a": 1, "b": 0}), "share of 'b'"),
        (lambda t: S.independence(t, "g", "g"), "twice"),
        (lambda t: S.mean_difference(t, "x", "h"), "got 3"),
        (lambda t: S.anova(t, "g", "h"), "'g'"),
        (lambda t: S.coefficients(t, ["x"], "x"), "different"),
        (lambda t: S.coefficients(t, ["g"], "x"), "'g'"),
        (lambda t: S.coefficients(t, ["x"], "x2", mechanism=dp.Laplace()), "x2"),
        (lambda t: S.any_test(t, ["x"], public_test, parts=1), "got 1"),
        (lambda t: S.any_test(t, ["x"], public_test, parts=5, level=0), "level"),
        (lambda t: S.any_test(t, [], public_test, parts=5), "at least one column"),
        (lambda t: S.any_test(t, ["x"], 3, parts=5), "int"),
        (lambda t: S.any_test(t, ["x"], public_test, parts=5, a=np), "parameter a"),
    ],
)
def test_what_cannot_be_tested_is_refused_when_it_is_declared(make, match):
    table = dp.dataset("t", columns=COLUMNS)
    with pytest.raises(dp.DeclarationError, match=match):
        make(table)


def test_a_public_tests_error_is_shown_before_data_are_read_and_none_of_theirs_after():
    table = dp.dataset("t", columns={"x": (0.0, 1.0)})

    def fails(rows):
        return rows["y"].mean()

    plan = dp.Pipeline(test=S.any_test(table, ["x"], fails, parts=4)).calibrate(epsilon=1.0)
    with pytest.raises(dp.RunError, match=r"KeyError.*'y'"):
        plan.simulate(seed=1, t={"x": [0.5]})

    def particular(rows):
        print(rows["x"].max())
        if 0.123 in rows["x"]:
            raise ValueError(str(rows["x"]))
        return 0.01

    plan = dp.Pipeline(test=S.any_test(table, ["x"], particular, parts=4))
    plan = plan.calibrate(epsilon=100.0)
    found = plan.simulate(seed=1, t={"x": [0.123, *np.linspace(0, 1, 99)]})["test"]
    assert round(found["statistic"]) == 3  # a test that fails does not reject


# -----------------------------------------------------------------------------
# Chi-square tests whose counts have a public total.


def test_a_public_total_is_used_where_no_row_lacks_a_category():
    columns = {"g": ["a", "b", "c"], "h": ["u", "v"]}
    table = dp.dataset("t", columns=columns, neighbors="replace_one", size=50)
    for found, size in (
        (S.goodness_of_fit(table, "g"), None),
        (S.goodness_of_fit(table.fill(g="a"), "g"), 50),
        (S.goodness_of_fit(dp.dataset("t", columns=columns).fill(g="a"), "g"), None),
        (S.goodness_of_fit(table.fill(g="a").filter(table["h"] == "u"), "g"), None),
        (S.independence(table.fill(g="a"), "g", "h"), None),
        (S.independence(table.fill(g="a", h="u"), "g", "h"), 50),
    ):
        document = dp.Pipeline(test=found).calibrate(epsilon=1.0).to_json()
        assert f'"size": {json.dumps(size)}}}' in document


def test_counts_with_a_public_total_have_the_law_of_a_generalised_least_squares_residual():
    # the metric of counts known to add up to n, by a pseudo-inverse (Kifer and Rogers, section 5.2)
    rng = np.random.default_rng(2)
    p, n, sigma = np.array([0.6, 0.3, 0.1]), 400, 9.0
    project = np.eye(3) - 1 / 3
    inverse = np.linalg.inv(n * (np.diag(p) - np.outer(p, p)) + sigma**2 * np.eye(3))
    for _ in range(20):
        counts = rng.multinomial(n, p) + rng.normal(0, sigma, 3)
        found = tables.goodness_of_fit_test(
            counts, sigma, shares=p, categories="abc", kind="gaussian", size=n
        )["statistic"]
        rest = project @ (counts - n * p)
        assert found == pytest.approx(rest @ project @ inverse @ project @ rest, rel=1e-9)


# -----------------------------------------------------------------------------
# P-values of a proportion are exact.


@pytest.mark.parametrize("kind", ["tulap", "discrete_laplace", "laplace", "gaussian"])
def test_p_values_of_a_count_are_convolutions(kind):
    n, share, scale = 12, 0.3, 1.5
    for t in (-2.5, 3.0, 3.6, 9.9):
        mass = [math.comb(n, x) * share**x * (1 - share) ** (n - x) for x in range(n + 1)]
        exact = sum(m * float(nulls.tail(kind, scale, t - x)) for x, m in enumerate(mass))
        greater, less = proportions.count_tails(t, n, share, kind, scale)
        assert greater == pytest.approx(exact, rel=1e-9)
        if kind != "discrete_laplace":  # of which a value is both at least and at most itself
            assert greater + less == pytest.approx(1.0)


def test_p_values_of_a_count_with_tulap_noise_are_uniform_exactly():
    # P(p <= a) for the one-sided test is a: p = 1 - F(X + N) of a continuous law
    n, share, scale = 9, 0.35, 1.2
    grid = np.linspace(-25, 40, 2_601)
    p = np.array([proportions.count_tails(t, n, share, "tulap", scale)[0] for t in grid])
    assert (np.diff(p) <= 1e-12).all()
    cdf = 1 - p  # the law of X + N itself, whose density is its slope
    for a in (0.01, 0.05, 0.3):
        reject = grid[p <= a][0]
        assert 1 - np.interp(reject, grid, cdf) == pytest.approx(a, rel=5e-2)


def test_the_most_powerful_test_beats_a_normal_approximation_and_laplace_noise():
    n, epsilon = 30, 1.0
    x = np.arange(n + 1)

    def power(kind, at, level=0.05):
        scale = 1 / epsilon
        low, threshold = 0.0, 60.0
        for _ in range(40):  # the least count that rejects
            middle = (low + threshold) / 2
            rejects = proportions.count_tails(middle, n, 0.8, kind, scale)[0] <= level
            low, threshold = (low, middle) if rejects else (middle, threshold)
        mass = stats.binom.pmf(x, n, at)
        return float(mass @ nulls.tail(kind, scale, threshold - x))

    for at in (0.85, 0.9, 0.95):
        assert power("tulap", at) > power("laplace", at)
        assert power("tulap", at) > power("discrete_laplace", at)


# -----------------------------------------------------------------------------
# Sizes and coverage, on data that follow the hypothesis.


def of_ranks(rng, sizes, scales, shift=0.0, clamp=ranks.GROUPS_CLAMP):
    k = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(k)) + shift * k
    f = ranks.rank_difference(x, k, len(sizes), clamp) + rng.laplace(0, scales[0])
    return f, scales[0], np.array(sizes) + rng.laplace(0, scales[1], len(sizes)), scales[1]


def of_groups(rng, sizes, scales, means):
    found = [[], [], []]
    for n, mean in zip(sizes, means, strict=True):
        x = np.clip(rng.normal(mean, 0.2, n), -1, 1)
        for values, value in zip(found, (n, x.sum(), (x * x).sum()), strict=True):
            values.append(value)
    noisy = (
        np.array(v) + rng.laplace(0, s, len(sizes)) for v, s in zip(found, scales, strict=True)
    )
    return [each for pair in zip(noisy, scales, strict=True) for each in pair]


def p_value(name, rng):
    """A p-value of data that follow the hypothesis, from released values with noise of its own."""
    laplace = {"kind": "laplace"}
    if name == "tulap":
        count = rng.binomial(40, 0.3) + nulls.draw_noise(rng, "discrete_laplace", 2.0, ())
        count += rng.uniform(-0.5, 0.5)
        constants = {"size": 40, "null": 0.3, "alternative": "two-sided", "kind": "tulap"}
        return proportions.binomial_test(count, 2.0, **constants)["p_value"]
    if name == "proportion":
        yes = rng.binomial(200, 0.1)
        counts = np.array([200 - yes, yes]) + rng.laplace(0, 4.0, 2)
        constants = {"null": 0.1, "alternative": "two-sided", "kind": "laplace"}
        return proportions.binomial_test_of_counts(counts, 4.0, **constants)["p_value"]
    if name == "mann_whitney":
        inputs = of_ranks(rng, (60, 40), (2.0, 4.0))
        return ranks.mann_whitney_test(*inputs, alternative="two-sided", **laplace)["p_value"]
    if name == "kruskal_wallis":
        return ranks.kruskal_wallis_test(*of_ranks(rng, (60, 40, 30), (2.0, 4.0)), **laplace)[
            "p_value"
        ]
    if name == "mann_whitney, rows public":
        # as calibrated to epsilon 1 under the exchange of a row: a tenth of it for the counts
        inputs = of_ranks(rng, (30, 70), (2.4 / 0.9, 20.0), clamp=0.4)
        constants = {"alternative": "two-sided", "clamp": 0.4, "size": 100}
        return ranks.mann_whitney_test(*inputs, **constants, **laplace)["p_value"]
    if name == "kruskal_wallis, rows public":
        inputs = of_ranks(rng, (30, 50, 20), (2.4 / 0.9, 20.0), clamp=0.4)
        return ranks.kruskal_wallis_test(*inputs, clamp=0.4, size=100, **laplace)["p_value"]
    if name == "signed_rank, rows public":
        f = ranks.signed_rank_sum(rng.normal(size=40)) / 40 + rng.laplace(0, 2.0)
        constants = {"alternative": "two-sided", "size": 40}
        return ranks.signed_rank_test(f, 2.0, **constants, **laplace)["p_value"]
    if name == "signed_rank":
        f = ranks.signed_ranks(rng.normal(size=80), ranks.SIGNS_CLAMP) + rng.laplace(0, 1.7)
        inputs = f, 1.7, 80 + rng.laplace(0, 4.0), 4.0
        return ranks.signed_rank_test(*inputs, alternative="two-sided", **laplace)["p_value"]
    if name == "goodness_of_fit":
        shares = [0.6, 0.3, 0.1]
        counts = rng.multinomial(300, shares) + nulls.draw_noise(rng, "discrete_laplace", 5.0, (3,))
        return tables.goodness_of_fit_test(
            counts, 5.0, shares=shares, categories="abc", kind="discrete_laplace"
        )["p_value"]
    if name == "goodness_of_fit, rows public":
        shares = [0.9, 0.06, 0.04]
        counts = rng.multinomial(100, shares) + nulls.draw_noise(rng, "discrete_laplace", 5.0, (3,))
        constants = {"shares": shares, "categories": "abc", "size": 100}
        return tables.goodness_of_fit_test(counts, 5.0, kind="discrete_laplace", **constants)[
            "p_value"
        ]
    if name == "independence, rows public":
        shares = np.outer([0.8, 0.2], [0.9, 0.1]).ravel()
        counts = rng.multinomial(200, shares) + rng.normal(0, 5, 4)
        constants = {"categories": ("ab", "cd"), "kind": "gaussian", "size": 200}
        return tables.independence_test(counts, 5.0, **constants)["p_value"]
    if name == "independence":
        shares = np.outer([0.7, 0.3], [0.5, 0.3, 0.2]).ravel()
        counts = rng.multinomial(400, shares) + nulls.draw_noise(rng, "discrete_laplace", 3.0, (6,))
        return tables.independence_test(
            counts, 3.0, categories=("ab", "cde"), kind="discrete_laplace"
        )["p_value"]
    if name == "mean_difference":
        inputs = of_groups(rng, (120, 60), (6.0, 3.0, 6.0), (0.3, 0.3))
        constants = {"middle": 0.0, "half": 1.0, "alternative": "two-sided"}
        return differences.mean_difference_test(*inputs, **constants, **laplace)["p_value"]
    if name == "anova":
        inputs = of_groups(rng, (120, 60, 80), (6.0, 3.0, 6.0), (0.3, 0.3, 0.3))
        constants = {"middle": 0.0, "half": 1.0, "groups": "abc"}
        return differences.anova_test(*inputs, **constants, **laplace)["p_value"]
    assert name == "coefficients"
    x = rng.uniform(-1, 1, (600, 2))
    y = np.clip(0.1 + 0.3 * x[:, 0] + rng.normal(0, 0.2, 600), -1, 1)
    moments, constants = noisy_moments(rng, x, y, 5.0)
    return regression.regression_test(moments, 5.0, **constants)["x1"]["p_value"]


def noisy_moments(rng, x, y, sigma):
    rows = np.column_stack([np.ones(len(x)), x, y])
    packed = pack(rows.T @ rows)
    names = [f"x{i}" for i in range(x.shape[1])]
    ends = {"middle": [0.0] * (len(names) + 1), "half": [1.0] * (len(names) + 1)}
    constants = {"names": names, "kind": "gaussian", **ends}
    return unpack(packed + rng.normal(0, sigma, packed.shape)), constants


SIZED = [
    "tulap",
    "proportion",
    "mann_whitney",
    "kruskal_wallis",
    "signed_rank",
    "mann_whitney, rows public",
    "kruskal_wallis, rows public",
    "signed_rank, rows public",
    "goodness_of_fit",
    "goodness_of_fit, rows public",
    "independence",
    "independence, rows public",
    "mean_difference",
    "anova",
    "coefficients",
]


@pytest.mark.parametrize("name", SIZED)
def test_p_values_are_not_too_small(name, monkeypatch):
    for module in (tables, differences, ranks):
        monkeypatch.setattr(module, "DRAWS", 199)
    rng = np.random.default_rng(17)
    assert sizes_hold([p_value(name, rng) for _ in range(300)], slack=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SIZED)
def test_p_values_are_uniform_or_larger_over_ten_thousand_runs(name, monkeypatch):
    for module in (tables, differences, ranks):
        monkeypatch.setattr(module, "DRAWS", 999)
    rng = np.random.default_rng(18)
    p = np.array([p_value(name, rng) for _ in range(10_000)])
    assert sizes_hold(p, slack=0.05)
    # and not far from uniform: the test has power to lose
    assert (p <= 0.05).mean() > 0.02


WIDE = ["signed_rank", "signed_rank, clique", "kruskal_wallis"]  # whatever the laws are
COVERED = ["tulap", "mann_whitney", "mean_difference", "coefficients", "any_test", *WIDE]


def covered(name, rng, times, monkeypatch):
    """In how many of some runs a 95% interval holds what it is of."""
    hits = 0
    for _ in range(times):
        if name == "tulap":
            constants = {"size": 60, "null": 0.5, "alternative": "two-sided", "kind": "tulap"}
            count = rng.binomial(60, 0.2) + nulls.draw_noise(rng, "discrete_laplace", 2.0, ())
            inputs, truth = [count + rng.uniform(-0.5, 0.5), 2.0], 0.2
            ends = proportions.binomial_ends(inputs, 0.95, True, **constants)["estimate"]
        elif name == "mann_whitney":
            inputs, truth = of_ranks(rng, (150, 100), (2.0, 4.0), 0.5), stats.norm.cdf(0.5**1.5)
            constants = {"kind": "laplace", "alternative": "two-sided"}
            ends = ranks._mann_whitney_ends(list(inputs), 0.95, True, **constants)["estimate"]
        elif name == "mean_difference":
            inputs, truth = of_groups(rng, (150, 100), (6.0, 3.0, 6.0), (0.0, 0.15)), 0.15
            constants = {"kind": "laplace", "middle": 0.0, "half": 1.0, "alternative": "two-sided"}
            ends = differences._difference_ends(inputs, 0.95, True, **constants)["estimate"]
        elif name.startswith("signed_rank"):
            # 7 of 10 rows are barely above 0, the others far below: degrees vary most in a clique
            n, clique = 150, name.endswith("clique")
            x = np.where(rng.random(n) < 0.7, 1.0, -9.0) if clique else rng.normal(0.3, 1, n)
            truth = -0.02 if clique else 2 * stats.norm.cdf(0.3 * math.sqrt(2)) - 1
            constants = {"kind": "laplace", "alternative": "two-sided"}
            if clique:  # a public number of rows
                inputs = [ranks.signed_rank_sum(x) / n + rng.laplace(0, 2.0), 2.0]
                constants["size"] = n
            else:
                f = ranks.signed_ranks(x, ranks.SIGNS_CLAMP) + rng.laplace(0, 1.7)
                inputs = [f, 1.7, n + rng.laplace(0, 4.0), 4.0]
            ends = ranks._signed_rank_ends(inputs, 0.95, True, **constants)["estimate"]
        elif name == "kruskal_wallis":
            inputs = list(of_ranks(rng, (100, 80, 60), (2.0, 4.0), 0.5))
            n, p = np.array([100, 80, 60]), stats.norm.cdf(0.5 * np.arange(-2, 3) / math.sqrt(2))
            above = [sum(n[k] * p[2 + i - k] for k in range(3)) / 240 for i in range(3)]
            truth = float(n @ np.abs(np.array(above) - 0.5)) / 240
            ends = ranks._kruskal_wallis_ends(inputs, 0.95, True, kind="laplace")["estimate"]
        elif name == "any_test":
            count = rng.binomial(20, 0.4) + nulls.draw_noise(rng, "discrete_laplace", 1.0, ())
            inputs, truth = [count + rng.uniform(-0.5, 0.5), 1.0], 0.4
            constants = {"parts": 20, "share": 0.1, "kind": "tulap"}
            ends = subsamples._rejections_ends(inputs, 0.95, True, **constants)["estimate"]
        else:
            x = rng.uniform(-1, 1, (600, 2))
            y = np.clip(0.1 + 0.3 * x[:, 0] + rng.normal(0, 0.2, 600), -1, 1)
            moments, constants = noisy_moments(rng, x, y, 5.0)
            found = regression._regression_ends([moments, 5.0], 0.95, True, **constants)
            ends, truth = found["x0"]["estimate"], 0.3
        hits += ends.low <= truth <= ends.high
    return hits / times


@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover(name, monkeypatch):
    monkeypatch.setattr(differences, "DRAWS", 199)
    assert covered(name, np.random.default_rng(19), 120, monkeypatch) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("name", COVERED)
def test_intervals_cover_ninety_three_percent_or_more(name, monkeypatch):
    monkeypatch.setattr(differences, "DRAWS", 999)
    share = covered(name, np.random.default_rng(20), 4000, monkeypatch)
    assert 0.93 < share < (1.0 if name in WIDE else 0.985)


def test_a_shift_is_found_by_every_test():
    n = 2000
    rng = np.random.default_rng(4)
    g = rng.choice(["a", "b"], n)
    h = np.where(rng.uniform(size=n) < 0.5, np.where(g == "a", "u", "v"), "w")
    x = np.clip(rng.normal(0.4, 0.2, n) + 0.15 * (g == "b"), 0, 1)
    ill = rng.uniform(size=n) < 0.5
    table = dp.dataset("t", columns=COLUMNS)
    changed = {
        **DECLARED,
        "signed_rank": lambda t: S.signed_rank(t.with_columns(d=t["x"] - 0.2), "d"),
        "goodness_of_fit": lambda t: S.goodness_of_fit(t, "h"),
    }
    for name, make in changed.items():
        test = make(table)
        if name == "coefficients":
            continue
        plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
        found = plan.simulate(seed=9, t={"x": x, "g": g, "h": h, "ill": ill})
        assert found["test"]["p_value"] < 0.01, name


@pytest.mark.parametrize("wrong", [["x"], {}, np.array([1, 2]), None])
def test_what_is_no_column_table_or_budget_is_refused_by_name(wrong):
    table = dp.dataset("t", columns=COLUMNS)
    with pytest.raises(dp.DeclarationError, match="declares no column"):
        S.mann_whitney(table, wrong, by="g")
    with pytest.raises(dp.DeclarationError, match="declares no column"):
        S.independence(table, wrong, "h")
    with pytest.raises(dp.DeclarationError, match="needs a table"):
        S.mann_whitney(wrong, "x", by="g")
    if wrong is not None:  # None is a budget to be calibrated, and shares that are equal
        with pytest.raises(dp.DeclarationError, match="epsilon must be a number"):
            table.solve(S.Mean(["x"]), epsilon=wrong, delta=1e-6)
        with pytest.raises(dp.DeclarationError, match="pass a dict"):
            S.goodness_of_fit(table, "h", wrong)


def test_a_p_value_is_never_zero():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1, 1, (4000, 1))
    moments, constants = noisy_moments(rng, x, 0.9 * x[:, 0], 1.0)
    found = regression.regression_test(moments, 1.0, **constants)
    assert found["x0"]["p_value"] == 1e-300


def test_missing_values_and_other_categories_are_left_out():
    table = dp.dataset("t", columns=COLUMNS)
    data = {**made_up(40), "x": [None if i % 5 == 0 else i / 40 for i in range(40)]}
    data["g"] = ["z" if i % 7 == 0 else "ab"[i % 2] for i in range(40)]
    query = ranks.RankDifference("x", "g", ("a", "b"))
    plan = dp.Pipeline(f=PrivateQuery(query, (table,)).release(dp.Laplace(scale=1e-9)))
    kept = [i for i in range(40) if i % 5 and i % 7]
    x, k = np.array([i / 40 for i in kept]), np.array([i % 2 for i in kept])
    # the same by SciPy: U of the second group, less half of the product of the sizes
    u = stats.mannwhitneyu(x[k == 1], x[k == 0]).statistic
    sizes = (k == 0).sum(), (k == 1).sum()
    expected = 2 * (u - sizes[0] * sizes[1] / 2) / max(sizes)
    assert plan.simulate(seed=1, t=data)["f"] == pytest.approx(expected, abs=1e-6)
    assert evolve(query, clamp=1.0).clamp == 1.0


def test_means_of_groups_and_shares_have_intervals() -> None:
    """What tests of several groups release says of each group too, at no cost."""
    rng = np.random.default_rng(1)
    group, side = rng.choice(["A", "B"], 4_000, p=[0.7, 0.3]), rng.choice(["u", "v"], 4_000)
    rows = {"group": group, "side": side, "x": rng.normal(40 + 5.0 * (group == "B"), 4)}
    table = dp.dataset("t", columns={"group": ["A", "B"], "side": ["u", "v"], "x": (0, 100)})
    plan = dp.Pipeline(
        means=S.anova(table, "x", "group"),
        shares=S.goodness_of_fit(table, "group"),
        cells=S.independence(table, "group", "side"),
    ).calibrate(epsilon=6.0)
    found = {name: each["estimate"] for name, each in plan.simulate(seed=1, t=rows).items()}
    for value, true, width in (
        (found["means"]["B"], 45.0, 1.5),
        (found["shares"]["B"], 0.3, 0.04),
        (found["cells"]["A"]["v"], 0.5, 0.05),
    ):
        low, high = value.interval(0.95)
        assert low <= float(value) <= high
        assert abs(true - float(value)) < 1.5 * (high - low)  # 5.8 deviations: missed once in 10^8
        assert high - low < width
    few = plan.simulate(seed=1, t={name: values[:4] for name, values in rows.items()})
    assert tuple(few["means"]["estimate"]["B"].interval(0.95)) == (0.0, 100.0)


def test_intervals_of_shares_allow_for_the_tails_of_laplace_noise() -> None:
    """Noise of Laplace exceeds 4.5 of its scale with probability e^-4.5 > 1%, normal noise less."""
    of = {
        kind: nulls.rate_interval(4.5, 1e5, (1, 2), kind, 2.0, 0.005)
        for kind in ("laplace", "gaussian")
    }
    assert math.exp(-4.5) > 0.01 > 2 * stats.norm.sf(4.5 / math.sqrt(2))
    assert of["laplace"].low == 0.0 < of["gaussian"].low
    # of 10^9 rows the interval is Wald's, between the points of any grid of all rates
    low, high = nulls.rate_interval(3.0013e8, 6.9987e8, (1, 2), "laplace", 2.0, 0.005)
    half = stats.norm.isf(0.005) * math.sqrt(0.30013 * 0.69987 / 1e9)
    assert (low, high) == pytest.approx((0.30013 - half, 0.30013 + half), abs=0.05 * half)
    # a negative total says nothing of a share
    assert tuple(nulls.rate_interval(3.0, -10.0, (1, 2), "laplace", 20.0, 0.005)) == (0.0, 1.0)


def test_intervals_of_many_small_groups_count_noise_as_no_rows() -> None:
    """Sizes below 0 once counted as 1: of 50 groups of 10, two intervals in three were too low."""
    rng, groups = np.random.default_rng(1), 50
    # groups lie apart: their probabilities against all are (k + 1/2) / 50
    codes, true = np.repeat(np.arange(groups), 10), np.abs((np.arange(50) + 0.5) / 50 - 0.5).mean()
    value = ranks.rank_difference(codes.astype(float), codes, groups, 0.5)
    missed = 0
    for _ in range(60):
        f, sizes = value + rng.laplace(0, 1500.0), 10 + rng.laplace(0, 3000.0, groups)
        ends = ranks._kruskal_wallis_ends([f, 1500.0, sizes, 3000.0], 0.95, True, kind="laplace")
        missed += not ends["estimate"].low <= true <= ends["estimate"].high
    assert missed <= stats.binom.isf(1e-6, 60, 0.05)
    # sets of 2,000 groups are more than floats can count
    many = [5.0, 1.0, np.full(2000, 2.0), 1.0]
    ends = ranks._kruskal_wallis_ends(many, 0.95, True, kind="laplace")["estimate"]
    assert ends.low == 0.0 < ends.high


def test_a_chi_square_of_no_rows_and_no_noise_is_nothing() -> None:
    """0 over 0 was NaN, which no draw is as large as: p was 1 in 10,000."""
    columns = {"g": ["a", "b"], "h": ["a", "b"]}
    table = dp.dataset("t", columns=columns)
    tests = {"shares": S.goodness_of_fit(table, "g"), "cells": S.independence(table, "g", "h")}
    plan = dp.Pipeline(**tests).calibrate(epsilon=5e3)
    for rows in ([], ["a"] * 3):
        found = plan.simulate(seed=1, t={"g": rows, "h": rows})
        assert found["cells"]["statistic"] == 0.0
        assert found["cells"]["p_value"] > 0.5
    assert plan.simulate(seed=1, t={"g": [], "h": []})["shares"]["p_value"] == 1.0


def test_categories_of_one_name_are_refused_where_results_are_by_name() -> None:
    """1 and "1" were one key of the estimate, which lost the shares of the first."""
    table = dp.dataset("t", columns={"g": [1, "1"], "h": ["u", "v"], "x": (0, 1)})
    for make in (
        lambda: S.goodness_of_fit(table, "g"),
        lambda: S.anova(table, "x", "g"),
        lambda: S.independence(table, "h", "g"),
    ):
        with pytest.raises(dp.DeclarationError, match="names, of which two are the same"):
            make()
