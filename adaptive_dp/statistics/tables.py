"""Chi-square tests: of given shares, and of the independence of two columns, by noisy counts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.linalg import eigh, null_space

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import Released, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.outputs import released_ends
from adaptive_dp.mechanisms import DiscreteLaplace
from adaptive_dp.queries.domains import Categories
from adaptive_dp.queries.table import Table
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats

DRAWS = 9999
"""Draws of a statistic under its hypothesis."""

MARGIN = 1.5
"""By how many standard deviations of its noise a released number of rows is raised for them."""


def raised_total(counts: Floats, kind: str, scale: float) -> int:
    """Return the sum of released counts and `MARGIN` deviations of its noise: at least 1."""
    noise = np.sqrt(counts.size * nulls.variance_of(kind, scale))
    return max(1, round(float(counts.sum() + MARGIN * noise)))


def public_total(table: Table, *columns: str) -> int | None:
    """Return how many rows the counts of all categories add up to; None where that is private.

    A row that lacks a value is in no category: so the number of rows must be public, and missing
    values filled.
    """
    return nulls.public_rows(table) if table.domain.complete.issuperset(columns) else None


def add_up(counts: Floats, size: int | None, axes: tuple[int, ...] = (-1,)) -> Floats:
    """Return counts without the part of their noise that their public total shows."""
    if size is None:
        return counts
    over = counts.sum(axis=axes, keepdims=True) - size
    return np.asarray(counts - over / math.prod(counts.shape[axis] for axis in axes))


# -----------------------------------------------------------------------------
# Given shares.


def goodness_of_fit(
    table: Table,
    column: str,
    shares: Mapping[Any, float] | None = None,
    *,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, Any]]:
    r"""Test whether the categories of a column have given shares.

    The histogram is released. Of released counts c with noise of variance s^2 and the shares p, the
    residuals ``r = c - p sum(c)`` have under the hypothesis the covariance
    ``n (diag p - p p') + s^2 (I - p 1') (I - 1 p')``; the statistic is their squared length in its
    metric, which is Pearson's where there is no noise. Its law is drawn 9,999 times, each with
    counts of a multinomial law and noise: not a chi-square law, which would reject too often.

    Where the number of rows n is public and no row lacks a category (``size=`` declared, and
    ``table.fill(column=...)``), what n shows of the noise, the mean over categories of it, is taken
    out, and p-values are exact. Then the hypothesis is that all n rows have these shares.

    Parameters
    ----------
    table
        One row for each unit.
    column
        With categories.
    shares
        By category, positive; they are divided by their sum. None for equal ones.
    mechanism
        By default ``dp.DiscreteLaplace()``; or ``dp.Laplace()``, ``dp.Gaussian()``.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, the shares of the categories,
        whose intervals are of the population, each by itself (Wilson's, with the noise in it).

    References
    ----------
    Kifer and Rogers 2017, section 5.2 (the metric). Gaboardi, Lim, Rogers and Vadhan 2016,
    Algorithm 1 (the law by simulation).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"blood": ["0", "A", "B", "AB"]})
    >>> test = dp.statistics.goodness_of_fit(people, "blood", {"0": 4, "A": 4, "B": 1, "AB": 1})
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=0.5)
    >>> blood = ["0"] * 400 + ["A"] * 300 + ["B"] * 200 + ["AB"] * 100
    >>> result = plan.simulate(seed=1, people={"blood": blood})["test"]
    >>> result["p_value"], round(result["estimate"]["0"], 1)
    (0.0001, 0.4)
    """
    nulls.check_units("a test of shares", table)
    keys = _categories(table, column)
    given = dict.fromkeys(keys, 1.0) if shares is None else shares
    if not isinstance(given, Mapping) or set(given) != set(keys):
        raise DeclarationError(
            f"shares map each of {list(keys)} to a number, got {given!r}; pass a dict"
        )
    numbers = [nulls.check_inside(f"the share of {key!r}", given[key], 0.0, 1e300) for key in keys]
    total = sum(numbers)
    noise = nulls.known_noise("a test of shares", mechanism, DiscreteLaplace())
    counts = table[column].histogram().release(noise, name="counts")
    kind, scale = nulls.noise_of(counts, noise)
    probabilities = [each / total for each in numbers]
    names = nulls.names_of("a test of shares", keys)
    result = post(
        goodness_of_fit_test,
        counts,
        scale,
        shares=probabilities,
        categories=names,
        kind=kind,
        size=public_total(table, column),
    )
    return group("goodness_of_fit", result, table)


def _categories(table: Table, column: str) -> tuple[Any, ...]:
    declared = table.domain.find(column)
    if not isinstance(declared, Categories) or len(declared.values) < 2:
        raise DeclarationError(
            f"a chi-square test counts categories, of which {column!r} declares fewer than two; "
            "declare them as a list, or cut a number into some by Table.with_columns"
        )
    return tuple(declared.values)


def _shares_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    shares: Sequence[float],
    categories: Sequence[str],
    kind: str,
    size: int | None = None,
) -> dict[str, Any]:
    counts = np.asarray(inputs[0], dtype=np.float64)
    variance, beta = nulls.variance_of(kind, float(inputs[1])), nulls.share_beyond(level)
    cells = (1, counts.size - 1)
    ends = {
        name: nulls.rate_interval(count, counts.sum() - count, cells, kind, variance, beta)
        for name, count in zip(categories, counts.tolist(), strict=True)
    }
    return {**nulls.no_intervals(["statistic", "p_value"]), "estimate": ends}


@released_ends(_shares_ends)
def goodness_of_fit_test(
    counts: Floats,
    scale: float,
    *,
    shares: Sequence[float],
    categories: Sequence[str],
    kind: str,
    size: int | None = None,
) -> dict[str, Any]:
    """Return the statistic, p-value and shares of `goodness_of_fit`."""
    counts, p = np.asarray(counts, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    variance = nulls.variance_of(kind, scale)
    width = len(p)
    # residuals add up to 0: coordinates in that subspace, in which both covariances are diagonal
    basis = null_space(np.ones((1, width)))
    # of a private total p times its noise is in the residuals; `basis` has no part of a public one
    noise = np.eye(width) - (np.outer(p, np.ones(width)) if size is None else 0.0)
    rows = np.diag(p) - np.outer(p, p)
    roots, axes = eigh(basis.T @ rows @ basis, basis.T @ (noise @ noise.T) @ basis)
    axes = basis @ axes

    def statistic(c: Floats) -> Floats:
        c = add_up(c, size)
        total = c.sum(axis=-1, keepdims=True)
        along = (c - p * total) @ axes
        spread = np.maximum(total, 0.0) * np.maximum(roots, 0.0) + variance
        # without rows and noise nothing is off by nothing
        return np.asarray((along**2 / np.maximum(spread, 1e-9)).sum(axis=-1))

    generator = nulls.generator_of(counts, scale, p)
    n = raised_total(counts, kind, scale) if size is None else size
    drawn: Floats = generator.multinomial(n, p / p.sum(), DRAWS).astype(np.float64)
    drawn = drawn + nulls.draw_noise(generator, kind, scale, drawn.shape)
    value = float(statistic(counts))
    found = np.clip(counts / max(float(counts.sum()), 1.0), 0.0, 1.0)
    return {
        "statistic": value,
        "p_value": nulls.exceedance(value, statistic(drawn)),
        "estimate": dict(zip(categories, found.tolist(), strict=True)),
    }


# -----------------------------------------------------------------------------
# Independence.


def independence(
    table: Table, first: str, second: str, *, mechanism: Mechanism | None = None
) -> Released[dict[str, Any]]:
    """Test whether two columns of categories are independent.

    The counts of all pairs are released. The statistic is Pearson's, with the noise's variance
    added to each expected count. Its law is drawn 9,999 times from the independent table of the
    released margins, noise and estimated margins included (a parametric bootstrap). A public number
    of rows, none without a category, is used as in `goodness_of_fit`.

    Parameters
    ----------
    table
        One row for each unit.
    first, second
        Columns with categories.
    mechanism
        By default ``dp.DiscreteLaplace()``; or ``dp.Laplace()``, ``dp.Gaussian()``.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, for each category of the first
        column the shares of those of the second among its rows, with intervals as of
        `goodness_of_fit`.

    References
    ----------
    Gaboardi, Lim, Rogers and Vadhan 2016, section 5; Kifer and Rogers 2017, section 5.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"town": ["A", "B"], "ill": ["no", "yes"]})
    >>> test = dp.statistics.independence(people, "town", "ill")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=0.5)
    >>> data = {"town": ["A", "B"] * 500, "ill": ["no", "no", "no", "yes", "yes", "yes"] * 166}
    >>> data["town"] = data["town"][:996]
    >>> plan.simulate(seed=1, people=data)["test"]["p_value"] < 0.05
    True
    """
    test = "a test of independence"
    nulls.check_units(test, table)
    keys = [nulls.names_of(test, _categories(table, each)) for each in (first, second)]
    if first == second:
        raise DeclarationError(f"{test} needs two columns, got {first!r} twice")
    noise = nulls.known_noise(test, mechanism, DiscreteLaplace())
    counts = table.group_by(first, second).count().release(noise, name="counts")
    kind, scale = nulls.noise_of(counts, noise)
    size = public_total(table, first, second)
    result = post(independence_test, counts, scale, categories=keys, kind=kind, size=size)
    return group("independence", result, table)


def _table_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    categories: Sequence[Sequence[str]],
    kind: str,
    size: int | None = None,
) -> dict[str, Any]:
    counts = np.asarray(inputs[0], dtype=np.float64).reshape(len(categories[0]), -1)
    ends = {
        name: _shares_ends(
            [row, inputs[1]], level, sampling, shares=(), categories=categories[1], kind=kind
        )["estimate"]
        for name, row in zip(categories[0], counts, strict=True)
    }
    return {**nulls.no_intervals(["statistic", "p_value"]), "estimate": ends}


@released_ends(_table_ends)
def independence_test(
    counts: Any,
    scale: float,
    *,
    categories: Sequence[Sequence[str]],
    kind: str,
    size: int | None = None,
) -> dict[str, Any]:
    """Return the statistic, p-value and shares of `independence`."""
    rows, columns = map(len, categories)
    observed = np.asarray(counts, dtype=np.float64).reshape(rows, columns)
    variance = nulls.variance_of(kind, scale)

    def expected(c: Floats) -> Floats:
        """The independent table of the margins, those below 0 counted as 0."""
        one, two = np.maximum(c.sum(axis=-1), 0.0), np.maximum(c.sum(axis=-2), 0.0)
        total = np.maximum(c.sum(axis=(-1, -2)), 0.0)
        one = one / np.maximum(one.sum(axis=-1, keepdims=True), 1e-9)
        two = two / np.maximum(two.sum(axis=-1, keepdims=True), 1e-9)
        return np.asarray(total[..., None, None] * one[..., :, None] * two[..., None, :])

    def statistic(c: Floats) -> Floats:
        c = add_up(c, size, (-2, -1))
        e = expected(c)
        # of a category without rows, and without noise, nothing is off by nothing
        return np.asarray(((c - e) ** 2 / np.maximum(e + variance, 1e-9)).sum(axis=(-1, -2)))

    generator = nulls.generator_of(observed, scale)
    n = raised_total(observed, kind, scale) if size is None else size
    e = expected(add_up(observed, size, (-2, -1))).ravel()
    # without any counts above 0: all cells alike
    shares = e / e.sum() if e.sum() > 0 else np.full(e.size, 1 / e.size)
    drawn: Floats = generator.multinomial(n, shares, DRAWS).astype(np.float64)
    drawn = drawn.reshape(DRAWS, rows, columns)
    drawn = drawn + nulls.draw_noise(generator, kind, scale, drawn.shape)
    value = float(statistic(observed))
    found = np.clip(observed / np.maximum(observed.sum(axis=1, keepdims=True), 1.0), 0.0, 1.0)
    return {
        "statistic": value,
        "p_value": nulls.exceedance(value, statistic(drawn)),
        "estimate": {
            name: dict(zip(categories[1], row, strict=True))
            for name, row in zip(categories[0], found.tolist(), strict=True)
        },
    }
