"""Differences of means: of two groups, with an interval, and analysis of variance of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.outputs import ConfidenceInterval, released_ends
from adaptive_dp.graph.values import as_tuple
from adaptive_dp.mechanisms import Laplace
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats, check_alternative

DRAWS = 9999
"""Draws of a statistic under its hypothesis."""

MARGIN = 1.5
"""By how many standard deviations of their noise variances are raised for the law of a statistic
under its hypothesis: their noise would else make some p-values too small."""

CLEAR = 5.0
"""An interval is narrower than all that the bounds admit where both released counts are at least
so many deviations of their noise."""

WEIGHTS = (2.0, 1.0, 2.0)
"""How much more noise counts, sums and sums of squares have, in units of their sensitivities."""


def _moments(
    test: str,
    table: Table,
    column: str,
    by: str,
    groups: Sequence[Any] | None,
    count: int | None,
    mechanism: Mechanism | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the released moments of each group, with their noise, and the scale of the values."""
    nulls.check_units(test, table)
    declared = table.domain.find(by)
    if not isinstance(declared, Categories):
        raise DeclarationError(f"{test} needs groups of a column with categories; {by!r} has none")
    keys = as_tuple(declared.values if groups is None else groups)
    if len(keys) < 2 or (count is not None and len(keys) != count):
        wanted = "two groups or more" if count is None else f"{count} groups"
        raise DeclarationError(
            f"{test} compares {wanted}, got {len(keys)}; choose them by groups=[...]"
        )
    bounds = table.domain.interval(column)
    # from the bounds onto [-1, 1]: the sum of a row's value then moves by 1 at most
    middle, half = (bounds.lower + bounds.upper) / 2, (bounds.upper - bounds.lower) / 2 or 1.0
    rows = complete_rows(table, (column, by))
    value = (rows[column].clip(bounds.lower, bounds.upper) - middle) / half
    rows = rows.with_columns(_value=value, _square=value * value)
    grouped = rows.group_by(by, keys=keys)
    noise = nulls.known_noise(test, mechanism, Laplace())
    released: list[Any] = []
    queries = (grouped.count(), grouped.sum("_value"), grouped.sum("_square"))
    for name, query, weight in zip(("counts", "sums", "squares"), queries, WEIGHTS, strict=True):
        release = query.release(nulls.weighted_noise(query, noise, weight), name=name)
        kind, scale = nulls.noise_of(release, noise)
        released += [release, scale]
    return released, {"kind": kind, "middle": middle, "half": half}


class Moments:
    """Means and variances of groups in [-1, 1], of released counts, sums and sums of squares."""

    def __init__(self, inputs: Sequence[Any], kind: str) -> None:
        counts, count_scale, sums, sum_scale, squares, square_scale = inputs
        arrays = (np.asarray(each, dtype=np.float64).ravel() for each in (counts, sums, squares))
        self.counts, self.sums, self.squares = arrays
        self.kind = kind
        self.scales = [float(each) for each in (count_scale, sum_scale, square_scale)]
        self.noise = [nulls.variance_of(kind, each) for each in self.scales]

    def spread(self, counts: Floats, sums: Floats, squares: Floats, margin: float) -> Floats:
        """Return the variance of each group's values, at most 1; raised by its noise's margin."""
        n = np.maximum(counts, 1.0)
        mean = np.clip(sums / n, -1, 1)
        found = squares / n - mean**2
        # of the ratio's noise: the square sum's, the mean's and the count's
        noise = self.noise[2] + 4 * mean**2 * self.noise[1] + self.noise[0]
        return np.asarray(np.clip(found + margin * np.sqrt(noise) / n, 1e-6, 1.0))

    def mean_of_all(self, counts: Floats, sums: Floats) -> Floats:
        """Return the mean of all groups together, shape (..., 1)."""
        total = np.maximum(counts.sum(axis=-1, keepdims=True), 1.0)
        return np.asarray(np.clip(sums.sum(axis=-1, keepdims=True) / total, -1, 1))

    def spread_of_sums(self, counts: Floats, sums: Floats, squares: Floats, mean: Floats) -> Floats:
        """Return the variance of each ``S_k - n_k mean``, that of noise included."""
        variances = self.spread(counts, sums, squares, 0.0)
        within = np.maximum(counts, 1.0) * variances
        return np.asarray(within + self.noise[1] + mean**2 * self.noise[0])

    def of_one_mean(self) -> tuple[Floats, Floats, Floats]:
        """Return draws of what is released where all groups have the mean of all."""
        generator = nulls.generator_of(self.counts, self.sums, self.squares, *self.scales)
        means = np.full(len(self.counts), float(self.mean_of_all(self.counts, self.sums)[0]))
        variances = self.spread(self.counts, self.sums, self.squares, MARGIN)
        return self.drawn(generator, np.maximum(np.rint(self.counts), 1.0), means, variances)

    def drawn(
        self, generator: np.random.Generator, sizes: Floats, means: Floats, variances: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return counts, sums and sums of squares of normal groups with these means, with noise."""
        shape = (DRAWS, len(sizes))
        sums = sizes * means + np.sqrt(sizes * variances) * generator.standard_normal(shape)
        # around the mean: a sum of squares of n normal values; as a normal number of its moments
        extra = np.sqrt(2 * sizes) * variances * generator.standard_normal(shape)
        squares = sizes * (variances - means**2) + 2 * means * sums + extra
        noise = [nulls.draw_noise(generator, self.kind, scale, shape) for scale in self.scales]
        return sizes + noise[0], sums + noise[1], squares + noise[2]


# -----------------------------------------------------------------------------
# Two groups.


def mean_difference(
    table: Table,
    column: str,
    by: str,
    groups: Sequence[Any] | None = None,
    *,
    alternative: str = "two-sided",
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    """Test whether two groups have one mean, and estimate how far apart the means are.

    Counts, sums and sums of squares of both groups are released (a row is in one group). The
    statistic is ``n_1 S_2 - n_2 S_1`` over its standard deviation, noise included (Welch's, where
    there is no noise); its law is drawn 9,999 times with the noise of all releases.

    Parameters
    ----------
    table
        One row for each unit.
    column
        With bounds.
    by
        A column with categories.
    groups
        Two of them; by default all that it declares.
    alternative
        ``"greater"``: the second group's mean is larger.
    mechanism
        ``dp.Laplace()`` (the default) or ``dp.Gaussian()``; a fixed noise is that of a query of
        sensitivity 1, and is scaled for each release.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, the second group's mean less
        the first's in the column's units, whose interval is of the population.

    References
    ----------
    Welch 1947; Ferrando, Wang and Sheldon 2022 (parametric bootstrap of released moments).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"days": (0, 40), "drug": ["no", "yes"]})
    >>> test = dp.statistics.mean_difference(people, "days", by="drug")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> values = np.concatenate([np.linspace(5, 25, 500), np.linspace(8, 28, 500)])
    >>> drug = ["no"] * 500 + ["yes"] * 500
    >>> result = plan.simulate(seed=1, people={"days": values, "drug": drug})["test"]
    >>> result["p_value"] < 0.01, round(result["estimate"])
    (True, 3)
    """
    check_alternative(alternative)
    released, constants = _moments("a test of two means", table, column, by, groups, 2, mechanism)
    result = post(mean_difference_test, *released, alternative=alternative, **constants)
    return group("mean_difference", result, table)


def _means(m: Moments, counts: Floats, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Return the mean of each group, and the variance of each, noise included."""
    n = np.maximum(counts, 1.0)
    means = np.clip(sums / n, -1, 1)
    variances = m.spread(counts, sums, squares, 0.0)
    return means, (n * variances + m.noise[1] + means**2 * m.noise[0]) / n**2


def _around_means(m: Moments) -> tuple[Floats, Floats]:
    """Return draws of how far groups' released means are off, and of their variances."""
    generator = nulls.generator_of(m.counts, m.sums, m.squares, *m.scales)
    sizes = np.maximum(np.rint(m.counts), 1.0)
    means = np.clip(m.sums / sizes, -1, 1)
    drawn = m.drawn(generator, sizes, means, m.spread(m.counts, m.sums, m.squares, MARGIN))
    draws, variances = _means(m, *drawn)
    return draws - means, variances


def _difference_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    kind: str,
    middle: float,
    half: float,
    alternative: str,
) -> dict[str, Any]:
    m = Moments(inputs, kind)
    means, variances = _means(m, m.counts, m.sums, m.squares)
    found, deviation = float(means[1] - means[0]), math.sqrt(float(variances.sum()))
    off, spread = _around_means(m)
    draws = (off[:, 1] - off[:, 0]) / np.sqrt(spread.sum(axis=-1))
    if m.counts.min() < CLEAR * math.sqrt(m.noise[0]):
        draws = np.array([-math.inf, math.inf])
    beta = nulls.share_beyond(level, 2 if alternative == "two-sided" else 1)
    low, high = -2.0, 2.0
    if alternative != "less":
        low = max(low, found - float(np.quantile(draws, 1 - beta, method="higher")) * deviation)
    if alternative != "greater":
        high = min(high, found - float(np.quantile(draws, beta, method="lower")) * deviation)
    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": ConfidenceInterval(half * low, half * high),
    }


@released_ends(_difference_ends)
def mean_difference_test(
    *inputs: Any, kind: str, middle: float, half: float, alternative: str
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `mean_difference`."""
    m = Moments(inputs, kind)

    def statistic(counts: Floats, sums: Floats, squares: Floats) -> Floats:
        # no division by a noisy count: n_1 S_2 - n_2 S_1, over its deviation
        n, mean = np.maximum(counts, 1.0), m.mean_of_all(counts, sums)
        spread = m.spread_of_sums(counts, sums, squares, mean)
        top = n[..., 0] * sums[..., 1] - n[..., 1] * sums[..., 0]
        square = n[..., 0] ** 2 * spread[..., 1] + n[..., 1] ** 2 * spread[..., 0]
        return np.asarray(top / np.sqrt(square))

    value = float(statistic(m.counts, m.sums, m.squares))
    draws = statistic(*m.of_one_mean())
    greater, less = nulls.exceedance(value, draws), nulls.exceedance(-value, -draws)
    means = np.clip(m.sums / np.maximum(m.counts, 1.0), -1, 1)
    return {
        "statistic": value,
        "p_value": nulls.sided(alternative, greater, less),
        "estimate": float(half * (means[1] - means[0])),
    }


# -----------------------------------------------------------------------------
# Several groups.


def anova(
    table: Table,
    column: str,
    by: str,
    groups: Sequence[Any] | None = None,
    *,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, Any]]:
    r"""Test whether several groups have one mean: analysis of variance of one factor.

    Counts, sums and sums of squares of all groups are released (a row is in one group). With the
    mean of all, mu, the statistic is ``sum_k (S_k - n_k mu)^2 / (n_k v_k + s^2 + mu^2 t^2)``, v_k
    the variances of the groups and s, t the deviations of the sums' and the counts' noise; its law
    is drawn 9,999 times with the noise of all releases.

    Parameters
    ----------
    table, column, by, groups, mechanism
        As of `mean_difference`; two groups or more.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, the means of the groups in the
        column's units, whose intervals are of the population, each by itself, up to the normal law
        of a group's mean: of few rows of a skewed law they are too narrow, as Student's are.

    Notes
    -----
    One released sum for each group has less noise than the released sum of differences between
    groups of Swanberg et al., whose sensitivity is 4 times the width of the bounds: below some
    hundred groups.

    References
    ----------
    Swanberg, Globus-Harris, Griffith, Ritz, Groce and Bray 2019 (the statistic in absolute values).

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"days": (0, 40), "town": ["A", "B", "C"]})
    >>> test = dp.statistics.anova(people, "days", by="town")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> data = {"days": np.linspace(0, 40, 600), "town": ["A"] * 200 + ["B"] * 200 + ["C"] * 200}
    >>> result = plan.simulate(seed=1, people=data)["test"]
    >>> result["p_value"], round(result["estimate"]["A"]), round(result["estimate"]["C"])
    (0.0001, 7, 33)
    """
    test = "an analysis of variance"
    released, constants = _moments(test, table, column, by, groups, None, mechanism)
    declared = table.domain.find(by)
    assert isinstance(declared, Categories)
    names = nulls.names_of(test, as_tuple(declared.values if groups is None else groups))
    result = post(anova_test, *released, groups=names, **constants)
    return group("anova", result, table)


def _anova_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    kind: str,
    middle: float,
    half: float,
    groups: Sequence[str],
) -> dict[str, Any]:
    m = Moments(inputs, kind)
    means, variances = _means(m, m.counts, m.sums, m.squares)
    off, spread = _around_means(m)
    draws, beta = off / np.sqrt(spread), nulls.share_beyond(level)
    ends = {}
    for k, name in enumerate(groups):
        low, high = -1.0, 1.0
        if m.counts[k] >= CLEAR * math.sqrt(m.noise[0]):
            deviation = math.sqrt(variances[k])
            most, least = np.quantile(draws[:, k], [1 - beta, beta])
            low, high = (
                max(low, means[k] - most * deviation),
                min(high, means[k] - least * deviation),
            )
        ends[name] = ConfidenceInterval(middle + half * low, middle + half * high)
    return {**nulls.no_intervals(["statistic", "p_value"]), "estimate": ends}


@released_ends(_anova_ends)
def anova_test(
    *inputs: Any, kind: str, middle: float, half: float, groups: Sequence[str]
) -> dict[str, Any]:
    """Return the statistic, p-value and means of `anova`."""
    m = Moments(inputs, kind)

    def statistic(counts: Floats, sums: Floats, squares: Floats) -> Floats:
        mean = m.mean_of_all(counts, sums)
        spread = m.spread_of_sums(counts, sums, squares, mean)
        return np.asarray(((sums - counts * mean) ** 2 / spread).sum(axis=-1))

    value = float(statistic(m.counts, m.sums, m.squares))
    draws = statistic(*m.of_one_mean())
    means = middle + half * np.clip(m.sums / np.maximum(m.counts, 1.0), -1, 1)
    return {
        "statistic": value,
        "p_value": nulls.exceedance(value, draws),
        "estimate": dict(zip(groups, means.tolist(), strict=True)),
    }
