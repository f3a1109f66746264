"""Sizes, power and coverage of the private tests: ``python benchmarks/tables.py tests_power``.

Each function returns a table in Markdown. All randomness is NumPy's, of a seed; the tests are given
released values with noise of the scales that their plans are calibrated to. The rivals are written
here as their papers have them, and their critical values are simulated at the truth, which favours
them: ours know nothing but what was released.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from scipy import stats

import adaptive_dp as dp
from adaptive_dp.statistics import (
    differences,
    nulls,
    proportions,
    ranks,
    regression,
    subsamples,
    tables,
)

S = dp.statistics
LEVELS = (0.01, 0.05, 0.1)
GROUPS = {"x": (0.0, 1.0), "g": ["a", "b"], "h": ["u", "v", "w"], "ill": bool}


def scales(test: dp.Released[Any], epsilon: float, delta: float = 0.0) -> dict[str, float]:
    """Return the scale of the noise of each release of a test, by its name."""
    plan = dp.Pipeline(test=test).calibrate(epsilon=epsilon, delta=delta)
    found = {}
    for release in plan.structure.releases:
        operation: Any = release.handle.operation
        (scale,) = operation.mechanism.parameters().values()
        found[operation.name] = float(scale)
    return found


def table_of(size: int | None = None) -> dp.Table:
    """Return the table on which tests are declared: of a public number of rows, or add/remove."""
    if size is None:
        return dp.dataset("t", columns=GROUPS)
    return dp.dataset("t", columns=GROUPS, neighbors="replace_one", size=size)


def markdown(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


# -----------------------------------------------------------------------------
# Released values of made-up data.


def ranked(
    rng: np.random.Generator,
    sizes: Sequence[int],
    noise: dict[str, float],
    shift: float,
    clamp: float = ranks.GROUPS_CLAMP,
) -> tuple[Any, ...]:
    """Return what a rank test of normal groups, each ``shift`` above the last, reads."""
    k = np.repeat(np.arange(len(sizes)), sizes)
    x = rng.normal(size=len(k)) + shift * k
    f = ranks.rank_difference(x, k, len(sizes), clamp)
    f += rng.laplace(0, noise["statistic"])
    counts = np.array(sizes) + rng.laplace(0, noise["counts"], len(sizes))
    return f, noise["statistic"], counts, noise["counts"]


def signed(
    rng: np.random.Generator, n: int, noise: dict[str, float], shift: float
) -> tuple[Any, ...]:
    """Return what a signed-rank test of normal differences around ``shift`` reads."""
    f = ranks.signed_ranks(rng.normal(shift, 1, n), ranks.SIGNS_CLAMP)
    f += rng.laplace(0, noise["statistic"])
    return f, noise["statistic"], n + rng.laplace(0, noise["counts"]), noise["counts"]


def grouped(
    rng: np.random.Generator, sizes: Sequence[int], noise: dict[str, float], means: Sequence[float]
) -> list[Any]:
    """Return what tests of means read, of normal groups of deviation .15 in [0, 1]."""
    found: list[list[float]] = [[], [], []]
    for n, mean in zip(sizes, means, strict=True):
        x = 2 * np.clip(rng.normal(mean, 0.15, n), 0, 1) - 1
        for values, value in zip(found, (n, x.sum(), (x * x).sum()), strict=True):
            values.append(float(value))
    inputs: list[Any] = []
    for values, name in zip(found, ("counts", "sums", "squares"), strict=True):
        inputs += [np.array(values) + rng.laplace(0, noise[name], len(sizes)), noise[name]]
    return inputs


TWO_SIDED = {"alternative": "two-sided", "kind": "laplace"}


# -----------------------------------------------------------------------------
# Sizes: how often p-values are at most .01, .05 and .1 where the hypothesis holds.


def sized(epsilon: float, n: int) -> dict[str, Callable[[np.random.Generator], float]]:
    """Return, by test, a draw of its p-value on n rows (add/remove) under the hypothesis."""
    table = table_of()
    of_share = scales(S.proportion(table, table["ill"], 0.2), epsilon)
    of_two, of_three = (
        scales(S.mann_whitney(table, "x", "g"), epsilon),
        scales(S.kruskal_wallis(table, "x", "h"), epsilon),
    )
    of_signs = scales(S.signed_rank(table, "x"), epsilon)
    of_cells = scales(S.independence(table, "g", "h"), epsilon)["counts"]
    of_means = scales(S.mean_difference(table, "x", "g"), epsilon)
    of_groups = scales(S.anova(table, "x", "h"), epsilon)
    two, three = (n // 2, n - n // 2), (n // 2, n // 4, n - n // 2 - n // 4)

    def share(rng: np.random.Generator) -> float:
        yes = rng.binomial(n, 0.2)
        counts = np.array([n - yes, yes]) + rng.laplace(0, of_share["counts"], 2)
        return proportions.binomial_test_of_counts(
            counts, of_share["counts"], null=0.2, **TWO_SIDED
        )["p_value"]

    def exact(rng: np.random.Generator) -> float:
        count = rng.binomial(n, 0.2) + rng.uniform(-0.5, 0.5)
        count += nulls.draw_noise(rng, "discrete_laplace", 1 / epsilon, ())
        constants = {"size": n, "null": 0.2, "alternative": "two-sided", "kind": "tulap"}
        return proportions.binomial_test(count, 1 / epsilon, **constants)["p_value"]

    def fit(rng: np.random.Generator, size: int | None = None) -> float:
        p, scale = (
            ([0.5, 0.3, 0.2], 1 / epsilon) if size is None else ([0.9, 0.06, 0.04], 2 / epsilon)
        )
        counts = rng.multinomial(n, p) + nulls.draw_noise(rng, "discrete_laplace", scale, (3,))
        return tables.goodness_of_fit_test(
            counts, scale, shares=p, categories="abc", kind="discrete_laplace", size=size
        )["p_value"]

    def independent(rng: np.random.Generator, size: int | None = None) -> float:
        p = np.outer([0.7, 0.3], [0.5, 0.3, 0.2]).ravel()
        scale = of_cells if size is None else 2 * of_cells
        counts = rng.multinomial(n, p) + nulls.draw_noise(rng, "discrete_laplace", scale, (6,))
        return tables.independence_test(
            counts, scale, categories=("ab", "cde"), kind="discrete_laplace", size=size
        )["p_value"]

    def in_parts(rng: np.random.Generator) -> float:
        p = stats.ttest_1samp(rng.normal(size=(10, n // 10)), 0.0, axis=-1).pvalue
        count = float(np.sum(p <= 0.2)) + rng.uniform(-0.5, 0.5)
        count += float(nulls.draw_noise(rng, "discrete_laplace", 1 / epsilon, ()))
        return subsamples.rejections_test(count, 1 / epsilon, parts=10, share=0.2, kind="tulap")[
            "p_value"
        ]

    kind = {"kind": "laplace"}
    return {
        "`proportion`, rows public": exact,
        "`proportion`": share,
        "`mann_whitney`": lambda rng: ranks.mann_whitney_test(
            *ranked(rng, two, of_two, 0.0), **TWO_SIDED
        )["p_value"],
        "`kruskal_wallis`": lambda rng: ranks.kruskal_wallis_test(
            *ranked(rng, three, of_three, 0.0), **kind
        )["p_value"],
        "`signed_rank`": lambda rng: ranks.signed_rank_test(
            *signed(rng, n, of_signs, 0.0), **TWO_SIDED
        )["p_value"],
        "`goodness_of_fit`, rows public": lambda rng: fit(rng, n),
        "`goodness_of_fit`": fit,
        "`independence`, rows public": lambda rng: independent(rng, n),
        "`independence`": independent,
        "`mean_difference`": lambda rng: differences.mean_difference_test(
            *grouped(rng, two, of_means, (0.6, 0.6)), middle=0.0, half=1.0, **TWO_SIDED
        )["p_value"],
        "`anova`": lambda rng: differences.anova_test(
            *grouped(rng, three, of_groups, (0.6,) * 3), middle=0.0, half=1.0, groups="abc", **kind
        )["p_value"],
        "`any_test`": in_parts,
    }


def fewer_draws(function: Callable[..., str]) -> Callable[..., str]:
    """Return a function that simulates laws by 999 draws, by which p-values are as exact."""

    def made(**settings: Any) -> str:
        modules: list[Any] = [differences, ranks, tables]
        before = [module.DRAWS for module in modules]
        for module in modules:
            module.DRAWS = 999
        try:
            return function(**settings)
        finally:
            for module, draws in zip(modules, before, strict=True):
                module.DRAWS = draws

    return made


@fewer_draws
def sizes(times: int = 10_000, seed: int = 1) -> str:
    """Return how often p-values are at most some levels where the hypothesis holds."""
    rows = []
    for name in sized(1.0, 100):
        row = [name]
        for epsilon, n in ((1.0, 100), (0.1, 1_000)):
            draw = sized(epsilon, n)[name]
            rng = np.random.default_rng([seed, n])
            p = np.array([draw(rng) for _ in range(times)])
            row.append(", ".join(f"{(p <= a).mean():.3f}" for a in LEVELS))
        rows.append(row)
    head = ["test", "100 rows, epsilon 1", "1,000 rows, epsilon .1"]
    return markdown(head, rows)


def coverage(times: int = 4_000, seed: int = 2) -> str:
    """Return how often 95% intervals hold what they are of."""
    rows = []
    for epsilon, n in ((1.0, 400), (0.1, 4_000)):
        table = table_of()
        of_two = scales(S.mann_whitney(table, "x", "g"), epsilon)
        of_means = scales(S.mean_difference(table, "x", "g"), epsilon)
        # of the moments' noise at delta 1e-6, by the plan's own calibration
        plain = S.coefficients(table.with_columns(z=table["x"] * table["x"]), ["z"], "x")
        sigma = scales(plain, epsilon, 1e-6)["moments"]
        of_signs = scales(S.signed_rank(table, "x"), epsilon)
        of_three = scales(S.kruskal_wallis(table, "x", "h"), epsilon)
        two, three = (n // 2, n - n // 2), (n // 2, n // 4, n - n // 2 - n // 4)
        signs = 2 * stats.norm.cdf(0.3 * math.sqrt(2)) - 1
        differ = np.subtract.outer(np.arange(3), np.arange(3)) * 0.3
        above = stats.norm.cdf(differ / math.sqrt(2)) @ three / n
        apart = float(np.array(three) @ np.abs(above - 0.5)) / n
        rng, more, ranked_rng = (np.random.default_rng([seed, n, *e]) for e in ((), (1,), (2,)))
        hits = np.zeros(4)
        of_shares, of_each, of_ranks = 0, 0, np.zeros(3)
        given = 0
        for _ in range(times):
            count = rng.binomial(n, 0.2) + rng.uniform(-0.5, 0.5)
            count += nulls.draw_noise(rng, "discrete_laplace", 1 / epsilon, ())
            constants = {"size": n, "null": 0.5, "alternative": "two-sided", "kind": "tulap"}
            inputs = [count, 1 / epsilon]
            ends = proportions.binomial_ends(inputs, 0.95, True, **constants)["estimate"]
            hits[0] += ends.low <= 0.2 <= ends.high
            inputs = list(ranked(rng, two, of_two, 0.5))
            ends = ranks._mann_whitney_ends(inputs, 0.95, True, **TWO_SIDED)["estimate"]
            hits[1] += ends.low <= stats.norm.cdf(0.5 / math.sqrt(2)) <= ends.high
            inputs = grouped(rng, two, of_means, (0.5, 0.55))
            ends = differences._difference_ends(
                inputs, 0.95, True, middle=0.0, half=0.5, **TWO_SIDED
            )["estimate"]
            hits[2] += ends.low <= 0.05 <= ends.high
            u = rng.uniform(-1, 1, n)
            v = np.clip(0.1 + 0.4 * u + rng.normal(0, 0.15, n), -1, 1)
            rows_of = np.column_stack([np.ones(n), u, v])
            noise = rng.normal(0, sigma, (3, 3)) / math.sqrt(2)
            moments = rows_of.T @ rows_of + np.triu(noise, 1) + np.triu(noise, 1).T
            moments += np.diag(rng.normal(0, sigma, 3))
            found = regression._regression_ends(
                [moments, sigma], 0.95, True, names=["u"], middle=[0.0] * 2, half=[1.0] * 2,
                kind="gaussian",
            )["u"]["estimate"]  # fmt: skip
            if not isinstance(found, Exception):
                given += 1
                hits[3] += found.low <= 0.4 <= found.high
            counts = more.multinomial(n, [0.6, 0.3, 0.1])
            counts = counts + nulls.draw_noise(more, "discrete_laplace", 1 / epsilon, (3,))
            ends = tables._shares_ends(
                [counts, 1 / epsilon], 0.95, True, shares=(), categories="abc",
                kind="discrete_laplace",
            )["estimate"]["c"]  # fmt: skip
            of_shares += ends.low <= 0.1 <= ends.high
            ends = differences._anova_ends(
                grouped(more, two, of_means, (0.5, 0.55)), 0.95, True, middle=0.5, half=0.5,
                groups="ab", kind="laplace",
            )["estimate"]["b"]  # fmt: skip
            of_each += ends.low <= 0.55 <= ends.high
            inputs = list(signed(ranked_rng, n, of_signs, 0.3))
            ends = ranks._signed_rank_ends(inputs, 0.95, True, **TWO_SIDED)["estimate"]
            of_ranks[0] += ends.low <= signs <= ends.high
            inputs = list(ranked(ranked_rng, three, of_three, 0.3))
            ends = ranks._kruskal_wallis_ends(inputs, 0.95, True, kind="laplace")["estimate"]
            of_ranks[1] += ends.low <= apart <= ends.high
            count = ranked_rng.binomial(20, 0.4) + ranked_rng.uniform(-0.5, 0.5)
            count += nulls.draw_noise(ranked_rng, "discrete_laplace", 1 / epsilon, ())
            ends = subsamples._rejections_ends(
                [count, 1 / epsilon], 0.95, True, parts=20, share=0.1, kind="tulap"
            )["estimate"]
            of_ranks[2] += ends.low <= 0.4 <= ends.high
        shares = [*(f"{h / times:.1%}" for h in hits[:3]), f"{hits[3] / max(given, 1):.1%}"]
        shares += [f"{of_shares / times:.1%}", f"{of_each / times:.1%}"]
        shares += [f"{each / times:.1%}" for each in of_ranks]
        rows.append([f"{n:,}", f"{epsilon:g}", *shares])
    head = [
        "rows",
        "epsilon",
        "share",
        "probability of ranks",
        "difference of means",
        "coefficient",
        "share of a category",
        "mean of a group",
        "signed ranks",
        "ranks of three groups",
        "power in parts",
    ]
    return markdown(head, rows)


# -----------------------------------------------------------------------------
# Power, beside the papers'.


def power_of_ranks(times: int = 1_000, seed: int = 3) -> str:
    """Return the power of rank tests of level .05, beside those of Couch et al. 2019."""
    rows = []
    for n in (30, 50, 70, 100, 150, 200):
        rng = np.random.default_rng([seed, n])
        table, half, clamp = table_of(n), (n // 2, n - n // 2), min(1.0, 4 / math.sqrt(n))
        of_two = scales(S.mann_whitney(table, "x", "g"), 1.0)
        of_signs = scales(S.signed_rank(table, "x"), 1.0)["statistic"]

        def two(clamp: float = clamp, n: int = n, half: Any = half, of: Any = of_two) -> float:
            inputs = ranked(rng, half, of, 1.0, clamp)  # noqa: B023
            constants = {**TWO_SIDED, "clamp": clamp, "size": n}
            return ranks.mann_whitney_test(*inputs, **constants)["p_value"]

        ours = np.mean([two() <= 0.05 for _ in range(times)])
        theirs = max(
            _couch_mann_whitney(rng, half, 1.0, share, times) for share in (0.2, 0.35, 0.5, 0.65)
        )
        signs, their_signs = _signed_rank_powers(rng, n, 0.5, of_signs, 20 * times)
        public = np.mean(
            [
                stats.mannwhitneyu(rng.normal(size=half[0]), rng.normal(1, 1, half[1])).pvalue
                <= 0.05
                for _ in range(times)
            ]
        )
        rows.append([n, *(f"{each:.2f}" for each in (ours, theirs, public, signs, their_signs))])
    head = [
        "rows",
        "`mann_whitney`",
        "Couch et al., delta 1e-6",
        "not private",
        "`signed_rank`",
        "Couch et al.",
    ]
    return markdown(head, rows)


def _couch_mann_whitney(
    rng: np.random.Generator, sizes: tuple[int, int], shift: float, share: float, times: int
) -> float:
    """Their Algorithm: the smaller size at share of epsilon 1, U by a bound of the larger one."""
    n, delta = sum(sizes), 1e-6

    def released(shifted: float) -> float:
        u = stats.mannwhitneyu(rng.normal(size=sizes[0]), rng.normal(shifted, 1, sizes[1]))
        smaller = min(u.statistic, sizes[0] * sizes[1] - u.statistic)
        found = min(sizes) + rng.laplace(0, 1 / share) + math.log(2 * delta) / share
        bound = n - max(0, math.ceil(found))
        return float(smaller + rng.laplace(0, bound / (1 - share)))

    null = np.quantile([released(0.0) for _ in range(times)], 0.05)
    return float(np.mean([released(shift) <= null for _ in range(times)]))


def _signed_rank_powers(
    rng: np.random.Generator, n: int, shift: float, scale: float, times: int
) -> tuple[float, float]:
    """Return the power of `signed_rank` and of their Algorithm at epsilon 1, of the same draws.

    Theirs is W with noise of scale 2 n: that over n is ours, so that critical values alone differ.
    """

    def released(shifted: float) -> Any:
        x = rng.normal(shifted, 1, (times, n))
        places = np.abs(x).argsort(axis=1).argsort(axis=1) + 1
        return (np.sign(x) * places).sum(axis=1) / n + rng.laplace(0, scale, times)

    null, found = np.quantile(np.abs(released(0.0)), 0.95), released(shift)
    p = [ranks.signed_rank_test(f, scale, size=n, **TWO_SIDED)["p_value"] for f in found]
    return float(np.mean(np.array(p) <= 0.05)), float(np.mean(np.abs(found) > null))


def power_of_anova(times: int = 1_000, seed: int = 4) -> str:
    """Return the power of analysis of variance, beside that of Swanberg et al. 2019."""
    rows = []
    for n in (60, 90, 150, 210, 300, 450):
        rng = np.random.default_rng([seed, n])
        noise, three = scales(S.anova(table_of(n), "x", "h"), 1.0), (n // 3,) * 3
        ours = np.mean(
            [
                differences.anova_test(
                    *grouped(rng, three, noise, (0.35, 0.5, 0.65)),
                    middle=0.0,
                    half=1.0,
                    groups="abc",
                    kind="laplace",
                )["p_value"]
                <= 0.05
                for _ in range(times)
            ]
        )
        theirs = _swanberg(rng, n, times)
        rows.append([n, f"{ours:.2f}", f"{theirs:.2f}"])
    return markdown(["rows", "`anova`", "Swanberg et al."], rows)


def _swanberg(rng: np.random.Generator, n: int, times: int) -> float:
    """Their F1 at epsilon 1, .7 of it for the differences between groups."""

    def released(means: Sequence[float]) -> float:
        x = np.clip(rng.normal(np.repeat(means, n // 3), 0.15), 0, 1)
        own = x.reshape(3, -1).mean(axis=1)
        between = n // 3 * np.abs(own - x.mean()).sum() + rng.laplace(0, 4 / 0.7)
        within = np.abs(x - np.repeat(own, n // 3)).sum() + rng.laplace(0, 3 / 0.3)
        # a noisy sum of differences that is not positive says nothing
        return float((between / 2) / (within / (n - 3))) if within > 0 else 0.0

    null = np.quantile([released([0.5] * 3) for _ in range(times)], 0.95)
    return float(np.mean([released([0.35, 0.5, 0.65]) > null for _ in range(times)]))


def power_of_proportions(epsilon: float = 1.0) -> str:
    """Return the exact power of one-sided tests of level .05 of a share of .9 against .95.

    The count with Tulap noise, with rounded and with continuous Laplace noise, and a normal
    approximation that ignores the noise's shape, whose true size stands beside it.
    """
    rows = []
    for n in (16, 32, 64, 128, 256, 512):
        cells = []
        for kind in ("tulap", "discrete_laplace", "laplace"):
            low, high = 0.0, n + 60.0
            for _ in range(50):  # the least count that rejects
                middle = (low + high) / 2
                rejects = proportions.count_tails(middle, n, 0.9, kind, 1 / epsilon)[0] <= 0.05
                low, high = (low, middle) if rejects else (middle, high)
            cells.append(proportions.count_tails(high, n, 0.95, kind, 1 / epsilon)[0])
        spread = math.sqrt(n * 0.9 * 0.1 + 2 / epsilon**2)
        at = n * 0.9 + stats.norm.isf(0.05) * spread
        normal = [proportions.count_tails(at, n, p, "laplace", 1 / epsilon)[0] for p in (0.95, 0.9)]
        public = stats.binom.sf(stats.binom.isf(0.05, n, 0.9), n, 0.95)
        cells = [*(f"{c:.3f}" for c in cells), f"{normal[0]:.3f} ({normal[1]:.3f})"]
        rows.append([n, *cells, f"{public:.3f}"])
    head = ["rows", "`proportion`", "integers", "Laplace", "normal (its size)", "not private"]
    return markdown(head, rows)


def power_in_parts(times: int = 2_000, seed: int = 5) -> str:
    """Return the power of a t-test in parts, by the number of parts, at 1,000 rows."""
    rows = []
    for epsilon in (1.0, 0.3):
        for parts in (5, 10, 20, 50, 100):
            rng = np.random.default_rng([seed, parts])
            cells = []
            for level in (0.05, 0.1, 0.2, 0.3):
                half = 1_000 // parts // 2
                x = rng.normal(size=(times, parts, half))
                y = rng.normal(0.3, 1, (times, parts, half))
                p = stats.ttest_ind(x, y, axis=-1).pvalue
                counts = (p <= level).sum(axis=-1)
                counts = counts + rng.uniform(-0.5, 0.5, times)
                counts = counts + nulls.draw_noise(rng, "discrete_laplace", 1 / epsilon, (times,))
                found = [
                    proportions.count_tails(c, parts, level, "tulap", 1 / epsilon)[0] <= 0.05
                    for c in counts
                ]
                cells.append(f"{np.mean(found):.2f}")
            rows.append([f"{epsilon:g}", parts, *cells])
    return markdown(["epsilon", "parts", "level .05", "level .1", "level .2", "level .3"], rows)


# -----------------------------------------------------------------------------
# Chi-square tests, beside those of Gaboardi et al. 2016 and of Kifer and Rogers 2017.


RHO, EPSILON = 0.00125, 0.1
"""Their budgets, under the exchange of one row of a public number of rows."""


@fewer_draws
def power_of_chi_square(times: int = 1_000, seed: int = 6) -> str:
    """Return the power of chi-square tests of level .05, of the same noisy counts as the papers'.

    Of Laplace noise ours has the integers that its plan draws. The first setting of each test is
    the papers'; counts of few rows, and one large category, are ours.
    """
    uneven = np.array([0.9, *[0.01] * 10])
    by_cell = np.outer([0.8, 0.1, 0.1], [0.9, 0.05, 0.05])
    aside = np.array([[1, -0.5, -0.5], [-1, 0.5, 0.5], [0, 0, 0]])
    thirds = np.array([1, -1 / 3, -1 / 3, -1 / 3])
    settings: list[tuple[str, Any, Any, tuple[int, ...]]] = [
        ("1/4, four times", np.full(4, 1 / 4), np.array([1, -1, 1, -1]), (2_000, 5_000, 10_000)),
        ("1/2, 1/6, 1/6, 1/6", np.array([3, 1, 1, 1]) / 6, thirds, (5_000, 20_000, 40_000)),
        ("0.9, 0.01 ten times", uneven, -np.array([1.0, *[-0.1] * 10]), (10_000, 20_000, 40_000)),
        (
            "2 x 2, even",
            np.full((2, 2), 1 / 4),
            np.array([[1, -1], [-1, 1]]),
            (2_000, 5_000, 10_000),
        ),
        ("3 x 3, uneven", by_cell, aside, (3_000, 10_000, 20_000)),
    ]
    sigma, rows = 1 / math.sqrt(RHO), []  # the sensitivity is the root of 2
    for what, shares, moved, counts in settings:
        for n in counts:
            rng = np.random.default_rng([seed, n, shares.size])
            drawn = rng.multinomial(n, (shares + 0.01 * moved).ravel(), times).astype(float)
            drawn = drawn.reshape(times, *shares.shape)
            normal = drawn + rng.normal(0, sigma, drawn.shape)
            scale = scales(S.independence(table_of(n), "g", "h"), EPSILON)["counts"]
            whole = drawn + nulls.draw_noise(rng, "discrete_laplace", scale, drawn.shape)
            laplace = drawn + rng.laplace(0, scale, drawn.shape)
            draws = [
                lambda shape: rng.normal(0, sigma, shape),  # noqa: B023
                lambda shape: rng.laplace(0, scale, shape),  # noqa: B023
            ]
            cells = [
                _ours_of_counts(normal, shares, n, "gaussian", sigma),
                _projected(normal, shares, n, sigma**2),
                _simulated(normal, shares, n, draws[0], rng),
                _ours_of_counts(whole, shares, n, "discrete_laplace", scale),
                _simulated(laplace, shares, n, draws[1], rng),
                _pearson(drawn, shares, n),
            ]
            rows.append([what, f"{n:,}", *(f"{each:.2f}" for each in cells)])
    head = [
        "shares or table",
        "rows",
        "ours, rho .00125",
        "Kifer and Rogers",
        "Gaboardi et al.",
        "ours, epsilon .1",
        "Gaboardi et al., Laplace",
        "not private",
    ]
    return markdown(head, rows)


def _ours_of_counts(counts: Any, shares: Any, n: int, kind: str, scale: float) -> float:
    """Return how often our test of noisy counts rejects."""
    found = []
    for each in counts:
        if shares.ndim == 1:
            names = [str(i) for i in range(shares.size)]
            result = tables.goodness_of_fit_test(
                each, scale, shares=shares, categories=names, kind=kind, size=n
            )
        else:
            keys = [[str(i) for i in range(width)] for width in shares.shape]
            result = tables.independence_test(each, scale, categories=keys, kind=kind, size=n)
        found.append(result["p_value"] <= 0.05)
    return float(np.mean(found))


def _pearson(counts: Any, shares: Any, n: int) -> float:
    """Return how often Pearson's tests of the counts themselves reject."""
    expected, free = n * shares, shares.size - 1
    if shares.ndim == 2:
        expected = counts.sum(axis=2, keepdims=True) * counts.sum(axis=1, keepdims=True) / n
        free = (shares.shape[0] - 1) * (shares.shape[1] - 1)
    axes = tuple(range(1, counts.ndim))
    statistic = ((counts - expected) ** 2 / np.maximum(expected, 1e-9)).sum(axis=axes)
    return float(np.mean(statistic > stats.chi2.isf(0.05, free)))


def _nearest_table(counts: Any, n: int) -> Any:
    """Return the nearest tables of numbers of at least 0 that add up to n (the papers' MLE)."""
    flat = counts.reshape(len(counts), -1)
    ordered = -np.sort(-flat, axis=1)
    over = (np.cumsum(ordered, axis=1) - n) / np.arange(1, flat.shape[1] + 1)
    last = (ordered > over).sum(axis=1) - 1
    return np.maximum(flat - over[np.arange(len(flat)), last][:, None], 0).reshape(counts.shape)


def _simulated(
    counts: Any, shares: Any, n: int, noise: Any, rng: np.random.Generator, draws: int = 199
) -> float:
    """Gaboardi et al.: Pearson's statistic of noisy counts, its law drawn with the noise.

    Of given shares it is one law (MCGOF). A table's law is that of its estimated margins, and a
    table with an estimated count below 5 is not rejected (MCIndep).
    """

    def of_tables(noisy: Any, tables_: Any) -> Any:
        margins = tables_.sum(axis=2, keepdims=True), tables_.sum(axis=1, keepdims=True)
        expected = margins[0] * margins[1] / n
        return ((noisy - expected) ** 2 / expected).sum(axis=(1, 2))

    if shares.ndim == 1:
        drawn = rng.multinomial(n, shares, 20_000) + noise((20_000, shares.size))
        null = ((drawn - n * shares) ** 2 / (n * shares)).sum(axis=1)
        found = ((counts - n * shares) ** 2 / (n * shares)).sum(axis=1)
        return float(np.mean(found > np.quantile(null, 0.95)))
    estimated = _nearest_table(counts, n)
    rejected = 0
    for noisy, own in zip(counts, estimated, strict=True):
        if own.min() < 5:
            continue
        law = np.outer(own.sum(axis=1), own.sum(axis=0)).ravel() / n**2
        drawn = rng.multinomial(n, law / law.sum(), draws).reshape(draws, *shares.shape)
        drawn = drawn + noise(drawn.shape)
        again = _nearest_table(drawn, n)
        usable = again.min(axis=(1, 2)) >= 5
        null = of_tables(drawn[usable], again[usable])
        above = np.sum(null >= of_tables(noisy[None], own[None]))
        rejected += (1 + above) / (1 + len(null)) <= 0.05
    return rejected / len(counts)


def _projected(counts: Any, shares: Any, n: int, variance: float) -> float:
    """Kifer and Rogers: the projected statistic, its law a chi-square; a table's is minimised.

    Over tables of independent columns, by Gauss-Newton steps from the estimated margins; a table
    with an estimated count below 5 is not rejected.
    """
    width = shares.size
    project = np.eye(width) - 1 / width

    def metric(p: Any) -> Any:
        covariance = np.diag(p) - np.outer(p, p) + variance / n * np.eye(width)
        return project @ np.linalg.inv(covariance) @ project

    if shares.ndim == 1:
        off = counts - n * shares
        found = np.einsum("ij,jk,ik->i", off, metric(shares), off) / n
        return float(np.mean(found > stats.chi2.isf(0.05, width - 1)))
    r, c = shares.shape
    moves = [np.vstack([np.eye(size - 1), -np.ones(size - 1)]).T for size in (r, c)]
    rejected = 0
    for noisy, own in zip(counts, _nearest_table(counts, n), strict=True):
        if own.min() < 5:
            continue
        one, two = own.sum(axis=1) / n, own.sum(axis=0) / n
        by = metric(np.outer(one, two).ravel())
        for _ in range(8):
            slopes = [np.outer(move, two).ravel() for move in moves[0]]
            slopes += [np.outer(one, move).ravel() for move in moves[1]]
            along, rest = np.array(slopes), (noisy / n - np.outer(one, two)).ravel()
            step = np.linalg.solve(along @ by @ along.T, along @ by @ rest)
            one, two = one + step[: r - 1] @ moves[0], two + step[r - 1 :] @ moves[1]
        rest = (noisy / n - np.outer(one, two)).ravel()
        rejected += n * rest @ by @ rest > stats.chi2.isf(0.05, (r - 1) * (c - 1))
    return float(rejected / len(counts))


# -----------------------------------------------------------------------------
# The test of tests, beside the figures that Kazan et al. 2023 have published.


PUBLISHED = {
    "t-test, mean .4, epsilon 1": {
        20: (0.089, 0.064),
        60: (0.232, 0.162),
        100: (0.426, 0.276),
        200: (0.817, 0.634),
        300: (0.952, 0.831),
    },
    "t-test, mean 3, epsilon .1": {
        40: (0.160, None),
        60: (0.286, None),
        100: (0.723, None),
        125: (0.904, None),
        200: (0.984, 0.110),
    },
}
"""Of their Figure 2, as their repository has it (diff-priv-ht/test-of-tests on GitHub): the power
of their test and that of Pena and Barrientos, of the nearest number of rows, within 3."""

PUBLISHED_GROUPS = {
    18: (0.132, 0.108, 0.032),
    27: (0.172, 0.235, None),
    42: (0.356, 0.452, 0.050),
    60: (0.615, 0.799, None),
    87: (0.850, 0.963, None),
    123: (0.956, 0.996, None),
    240: (0.996, 1.000, 0.640),
}
"""Of their Figure 4: their test, the Kruskal-Wallis test of Couch et al., Swanberg et al."""


def power_of_tests_of_tests(times: int = 1_000, seed: int = 7) -> str:
    """Return the power of tests of level .05, beside what Kazan et al. 2023 have published.

    One-sample t-tests of deviation 1, by their formula of the power. Ours, as theirs, has the parts
    and the level that reach a power of .9 at the smallest mean, which is not told the true one.
    """
    rows = []
    for what, published in PUBLISHED.items():
        mean, epsilon = (0.4, 1.0) if "epsilon 1" in what else (3.0, 0.1)
        for n, found in published.items():
            rng = np.random.default_rng([seed, n])
            parts, level = _chosen_parts(_t_power, n, epsilon)
            ours = _power_in_parts(_t_power, n, mean, parts, level, epsilon)
            scale = scales(S.signed_rank(table_of(n), "x"), epsilon)["statistic"]
            signs = _signed_rank_powers(rng, n, mean, scale, times)[0]
            above = _power_of_signs(n, float(stats.norm.cdf(mean)), epsilon)
            cells = [ours, *found, signs, above, _t_power(n, mean, 0.05)]
            chosen = f"{parts}, {level:g}"
            rows.append([what, n, chosen, *("-" if c is None else f"{c:.2f}" for c in cells)])
    head = [
        "setting",
        "rows",
        "parts, level",
        "`any_test`",
        "Kazan et al.",
        "Peña and Barrientos",
        "`signed_rank`",
        "`proportion` above 0",
        "not private",
    ]
    return markdown(head, rows)


@fewer_draws
def power_of_groups(times: int = 1_000, seed: int = 8) -> str:
    """Return the power of tests of three groups, beside what Kazan et al. 2023 have published.

    Normal groups with means -1, 0 and 1 and deviation 1, at epsilon 1, and for `anova` bounds of 4
    around 0. The published powers of Swanberg et al. are of nearest numbers of rows.
    """
    rows = []
    for n, published in PUBLISHED_GROUPS.items():
        rng = np.random.default_rng([seed, n])
        three, clamp = (n // 3,) * 3, min(1.0, 4 / math.sqrt(n))
        parts, level = min(8, max(3, n // 10)), 0.2
        kinds = np.repeat(np.arange(3), n // 3)
        rejected = np.zeros(3)
        of_ranks = scales(S.kruskal_wallis(table_of(n), "x", "h"), 1.0)
        of_means = scales(S.anova(table_of(n), "x", "h"), 1.0)
        for _ in range(times):
            x, place = rng.normal(kinds - 1.0), rng.permutation(n) % parts
            count = rng.uniform(-0.5, 0.5) + nulls.draw_noise(rng, "discrete_laplace", 1.0, ())
            count += np.sum(_f_tests(x, kinds, place, parts) <= level)
            p = proportions.count_tails(float(count), parts, level, "tulap", 1.0)[0]
            inputs = ranked(rng, three, of_ranks, 1.0, clamp)
            q = ranks.kruskal_wallis_test(*inputs, kind="laplace", clamp=clamp, size=n)["p_value"]
            clipped = np.clip(x, -4, 4) / 4
            values: list[Any] = []
            for name, power in (("counts", 0), ("sums", 1), ("squares", 2)):
                sums = np.bincount(kinds, clipped**power)
                values += [sums + rng.laplace(0, of_means[name], 3), of_means[name]]
            constants = {"middle": 0.0, "half": 4.0, "groups": "abc", "kind": "laplace"}
            r = differences.anova_test(*values, **constants)["p_value"]
            rejected += np.array([p, q, r]) <= 0.05
        tot, couch, swanberg = published
        free = 2, n - 3
        public = float(stats.ncf.sf(stats.f.isf(0.05, *free), *free, 2 * n / 3))
        ours = rejected / times
        cells = [ours[0], tot, ours[1], couch, ours[2], swanberg, public]
        chosen = f"{parts}, {level:g}"
        rows.append([n, chosen, *("-" if c is None else f"{c:.2f}" for c in cells)])
    head = [
        "rows",
        "parts, level",
        "`any_test`",
        "Kazan et al.",
        "`kruskal_wallis`",
        "Couch et al.",
        "`anova`",
        "Swanberg et al.",
        "not private",
    ]
    return markdown(head, rows)


def _f_tests(x: Any, kinds: Any, place: Any, parts: int) -> Any:
    """Return the p-value of an F test in each part; as in R, of the groups that it has rows of."""
    cells = place * 3 + kinds
    counts, sums = (np.bincount(cells, w, 3 * parts).reshape(parts, 3) for w in (x * 0 + 1, x))
    rows, squares = counts.sum(axis=1), np.bincount(place, x * x, parts)
    between = (sums**2 / np.maximum(counts, 1)).sum(axis=1)
    groups = (counts > 0).sum(axis=1)
    free = groups - 1, rows - groups
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = (between - sums.sum(axis=1) ** 2 / rows) / free[0]
        p = stats.f.sf(quotient / ((squares - between) / free[1]), *free)
    return np.where((free[0] > 0) & (free[1] > 0), p, 1.0)


def _power_of_signs(n: int, share: float, epsilon: float) -> float:
    """Return the power of a two-sided test of level .05 of a share of 1/2, exactly."""
    high = _least_count(n, 0.5, epsilon, 0.025)
    above = proportions.count_tails(high, n, share, "tulap", 1 / epsilon)[0]
    return above + proportions.count_tails(n - high, n, share, "tulap", 1 / epsilon)[1]


def _t_power(n: int, mean: float, level: float) -> float:
    """Return the power of a two-sided t-test; what has no degrees of freedom rejects by chance."""
    if n < 2:
        return level
    least = stats.f.isf(level, 1, n - 1)
    power = float(stats.ncf.sf(least, 1, n - 1, n * mean**2))
    return 1.0 if math.isnan(power) else power  # far beyond


@cache
def _least_count(size: int, share: float, epsilon: float, level: float = 0.05) -> float:
    """Return the least count with Tulap noise at which a share is too large at a level."""
    low, high = 0.0, size + 60 / epsilon
    for _ in range(60):
        middle = (low + high) / 2
        rejects = proportions.count_tails(middle, size, share, "tulap", 1 / epsilon)[0] <= level
        low, high = (low, middle) if rejects else (middle, high)
    return high


def _power_in_parts(
    power: Callable[[int, float, float], float],
    n: int,
    effect: float,
    parts: int,
    level: float,
    epsilon: float,
) -> float:
    """Return the power of a test of tests of level .05, exactly: parts of two sizes."""
    size, larger = divmod(n, parts)
    law = np.ones(1)
    for count, each in ((larger, size + 1), (parts - larger, size)):
        own = power(each, effect, level) if count else 0.0
        law = np.convolve(law, stats.binom.pmf(np.arange(count + 1), count, own))
    above = _least_count(parts, level, epsilon) - np.arange(parts + 1)
    return float(law @ nulls.tail("tulap", 1 / epsilon, above))


def _chosen_parts(
    power: Callable[[int, float, float], float], n: int, epsilon: float
) -> tuple[int, float]:
    """Return the parts and their level that reach a power of .9 at the smallest effect of a grid.

    Or those of the largest power at its last, where none does: as Kazan et al. choose them.
    """
    divisions = {*range(2, math.isqrt(n) + 1), *(n // k for k in range(2, math.isqrt(n) + 2))}

    def strongest(effect: float) -> tuple[float, int, float]:
        return max(
            (_power_in_parts(power, n, effect, parts, level, epsilon), parts, level)
            for parts in sorted(divisions)
            for level in (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
        )

    low, high, best = 0, 160, strongest(4.0)
    while high - low > 1:
        middle = (low + high) // 2
        found = strongest(middle / 40)
        if found[0] >= 0.9:
            high, best = middle, found
        else:
            low = middle
    return best[1], best[2]
