"""Chi-square tests: of given shares, and of the independence of two columns, by noisy counts."""

from __future__ import annotations

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


# -----------------------------------------------------------------------------
# Given shares.


def goodness_of_fit(
    table: Table,
    column: str,
    shares: Mapping[Any, float] | None = None,
    *,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    r"""Test whether the categories of a column have given shares.

    The histogram is released. Of released counts c with noise of variance s^2 and the shares p, the
    residuals ``r = c - p sum(c)`` have under the hypothesis the covariance
    ``n (diag p - p p') + s^2 (I - p 1') (I - 1 p')``; the statistic is their squared length in its
    metric, which is Pearson's where there is no noise. Its law is drawn 9,999 times, each with
    counts of a multinomial law and noise: not a chi-square law, which would reject too often.

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
        A mapping: ``"statistic"`` and ``"p_value"``.

    References
    ----------
    Kifer and Rogers 2017, section 4 (the metric); Gaboardi, Lim, Rogers and Vadhan 2016, Algorithm
    1 (the law by simulation).

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"blood": ["0", "A", "B", "AB"]})
    >>> test = dp.statistics.goodness_of_fit(people, "blood", {"0": 4, "A": 4, "B": 1, "AB": 1})
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=0.5)
    >>> blood = ["0"] * 400 + ["A"] * 300 + ["B"] * 200 + ["AB"] * 100
    >>> plan.simulate(seed=1, people={"blood": blood})["test"]["p_value"]
    0.0001
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
    result = post(goodness_of_fit_test, counts, scale, shares=probabilities, kind=kind)
    return group("goodness_of_fit", result, table)


def _categories(table: Table, column: str) -> tuple[Any, ...]:
    declared = table.domain.find(column)
    if not isinstance(declared, Categories) or len(declared.values) < 2:
        raise DeclarationError(
            f"a chi-square test counts categories, of which {column!r} declares fewer than two; "
            "declare them as a list, or cut a number into some by Table.with_columns"
        )
    return tuple(declared.values)


@released_ends(nulls.no_ends)
def goodness_of_fit_test(
    counts: Floats, scale: float, *, shares: Sequence[float], kind: str
) -> dict[str, float]:
    """Return the statistic and p-value of `goodness_of_fit`."""
    counts, p = np.asarray(counts, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    variance = nulls.variance_of(kind, scale)
    width = len(p)
    # residuals add up to 0: coordinates in that subspace, in which both covariances are diagonal
    basis = null_space(np.ones((1, width)))
    noise = np.eye(width) - np.outer(p, np.ones(width))
    rows = np.diag(p) - np.outer(p, p)
    roots, axes = eigh(basis.T @ rows @ basis, basis.T @ (noise @ noise.T) @ basis)
    axes = basis @ axes

    def statistic(c: Floats) -> Floats:
        total = c.sum(axis=-1, keepdims=True)
        along = (c - p * total) @ axes
        spread = np.maximum(total, 0.0) * np.maximum(roots, 0.0) + variance
        return np.asarray((along**2 / spread).sum(axis=-1))

    generator = nulls.generator_of(counts, scale, p)
    n = raised_total(counts, kind, scale)
    drawn: Floats = generator.multinomial(n, p / p.sum(), DRAWS).astype(np.float64)
    drawn = drawn + nulls.draw_noise(generator, kind, scale, drawn.shape)
    value = float(statistic(counts))
    return {"statistic": value, "p_value": nulls.exceedance(value, statistic(drawn))}


# -----------------------------------------------------------------------------
# Independence.


def independence(
    table: Table, first: str, second: str, *, mechanism: Mechanism | None = None
) -> Released[dict[str, float]]:
    """Test whether two columns of categories are independent.

    The counts of all pairs are released. The statistic is Pearson's, with the noise's variance
    added to each expected count. Its law is drawn 9,999 times from the independent table of the
    released margins, noise and estimated margins included (a parametric bootstrap).

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
        A mapping: ``"statistic"`` and ``"p_value"``.

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
    nulls.check_units("a test of independence", table)
    shape = [len(_categories(table, each)) for each in (first, second)]
    if first == second:
        raise DeclarationError(f"a test of independence needs two columns, got {first!r} twice")
    noise = nulls.known_noise("a test of independence", mechanism, DiscreteLaplace())
    counts = table.group_by(first, second).count().release(noise, name="counts")
    kind, scale = nulls.noise_of(counts, noise)
    result = post(independence_test, counts, scale, shape=shape, kind=kind)
    return group("independence", result, table)


@released_ends(nulls.no_ends)
def independence_test(
    counts: Any, scale: float, *, shape: Sequence[int], kind: str
) -> dict[str, float]:
    """Return the statistic and p-value of `independence`."""
    rows, columns = (int(each) for each in shape)
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
        e = expected(c)
        return np.asarray(((c - e) ** 2 / (e + variance)).sum(axis=(-1, -2)))

    generator = nulls.generator_of(observed, scale)
    n = raised_total(observed, kind, scale)
    e = expected(observed).ravel()
    # without any counts above 0: all cells alike
    shares = e / e.sum() if e.sum() > 0 else np.full(e.size, 1 / e.size)
    drawn: Floats = generator.multinomial(n, shares, DRAWS).astype(np.float64)
    drawn = drawn.reshape(DRAWS, rows, columns)
    drawn = drawn + nulls.draw_noise(generator, kind, scale, drawn.shape)
    value = float(statistic(observed))
    return {"statistic": value, "p_value": nulls.exceedance(value, statistic(drawn))}
