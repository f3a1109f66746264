"""Rank tests: whether groups, or pairs, differ, whatever the law of the values is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray
from scipy.stats import rankdata

from adaptive_dp.data import Columns, Rows
from adaptive_dp.data.scan import RowFunction
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.handles import PrivateQuery, Released, group, post
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Change, Query
from adaptive_dp.graph.outputs import ConfidenceInterval, released_ends
from adaptive_dp.graph.values import as_tuple, number
from adaptive_dp.mechanisms import Laplace
from adaptive_dp.noise.stream import Stream
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Categories, numbers, refuse_text_categories
from adaptive_dp.queries.table import Table, complete_rows
from adaptive_dp.queries.transforms import category_index
from adaptive_dp.statistics import nulls
from adaptive_dp.statistics.nulls import Floats, check_alternative, sided

COUNTS_WEIGHT = 3.0
"""How much more noise counts have than statistics, in units of their sensitivities: where noise is
Laplace's, they cost a quarter of the test's epsilon."""

PUBLIC_WEIGHT = 9.0
"""The same where the number of rows is public, which bounds all that p-values need of counts."""

MARGIN = 1.5
"""By how many standard deviations of their noise released sizes are raised for a p-value."""

GROUPS_CLAMP = 0.5
SIGNS_CLAMP = 0.25
"""At which multiple of what it is divided by a statistic is clamped: see the queries."""

ROUNDING = 1 + 2.0**-20
"""More than the rounding of a quotient of up to 2^33 rows can add to a sensitivity."""


# -----------------------------------------------------------------------------
# How far the ranks of groups are apart.


@frozen
class Cells(RowFunction):
    """A column of numbers."""

    of: str

    def __call__(self, columns: Columns) -> Floats:
        """Return the numbers, NaN where they are missing."""
        return numbers(columns[self.of])


@frozen
class Codes(RowFunction):
    """The position of each row's key; -1 for any other."""

    of: str
    keys: tuple[Any, ...]

    def __call__(self, columns: Columns) -> Floats:
        """Return the positions."""
        return category_index(columns[self.of], self.keys).astype(np.float64)


class RankQuery(Query):
    """Base of the queries of ranks, whose sensitivity is a number of steps times that of a step."""

    input_type: ClassVar[type] = domains.Table
    clamp: float

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; refuse zeroed-out rows, whose ranks mean nothing."""
        table: domains.Table = inputs[0]
        if table.neighbors == "zero_out":
            raise DeclarationError(
                f"a {self.kind} looks at rows, not at sums, so zero_out neighbours, whose rows "
                "count as zero in sums, mean nothing to it; declare neighbors='add_remove' or "
                "'replace_one'"
            )
        refuse_text_categories(self.of, table.find(self.of))  # type: ignore[attr-defined]
        return table

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return ``1 + c`` a row that appears, ``2 + c`` one that is exchanged, in any norm.

        A value f, never negative or with its sign, moves by at most 1 away from 0 and 1 + c toward
        it when a row appears. Of a rows that go and b that come, it rises and falls by at most
        ``max(a, b) + min(a, b) (1 + c)`` where one of each makes a pair, and by ``1 + c`` a row
        where there is none.
        """
        pairs = change.both - change.rows  # min(a, b)
        alone = change.rows - pairs
        return (pairs * (2 + self.clamp) + alone * (1 + self.clamp)) * ROUNDING


@frozen
class RankDifference(RankQuery):
    r"""How far the ranks of groups are from what they would be if groups did not matter.

    Of n rows with midranks R_i, in g groups of sizes n_1, ..., n_g, let
    ``S_k = sum_{i in k} (R_i - (n + 1)/2) = (1/2) sum_{i in k} sum_j sgn(x_i - x_j)`` and
    ``D = n - min_k n_k``, the size of all groups but the smallest. With two groups the value is
    ``f = 2 S_2 / D``, the centred statistic of Mann and Whitney over that, with its sign; with more
    it is ``f = sum_k |S_k| / D``, that of Kruskal and Wallis in absolute values. It is clamped to
    ``[-c D, c D]``.

    *Sensitivity* (own; Couch et al. bound the numerator). Let ``h = sum |S_k|``, of two groups
    ``2 |S_2|``. A row of group k that appears moves ``S_l`` of any other group by at most
    ``n_l / 2`` and, since all S add up to 0, S_k by at most ``(n - n_k) / 2``: so h (and 2 S_2) by
    at most ``n - n_k <= D``. D grows by 1, or stays where k was the only smallest group.

    * D stays: ``h / D`` moves by at most 1.
    * D grows: ``|h'/(D+1) - h/D| <= |h' - h|/(D+1) + h/(D (D+1))``, the latter toward 0. The first
      term is below 1; where ``h/D <= c D`` the second is below c.
    * The clamp: let a be the quotient, b = c D, f = min(a, b), and the row appear. From a <= b to
      b' < a' f rises by less than ``a' - a <= 1``, and does not fall, as b does not. From b < a to
      a' <= b' it rises by at most ``b' - b <= c``; it falls by at most ``1 + c``, since
      ``h' >= h - D > c D^2 - D`` and so ``a' >= (c D^2 - D) / (D + 1) = b - (1 + c) D / (D + 1)``.

    So a row that appears moves f by at most 1 away from 0, and by at most ``1 + c`` toward 0. (A
    statistic divided by n in place of D would need twice the noise of equal groups.)

    Parameters
    ----------
    of
        A column of numbers.
    by
        A column of categories.
    groups
        Which of them; rows of others are left out.
    clamp
        c, inside (0, 1].

    References
    ----------
    Couch, Kazan, Shi, Bray and Groce 2019, sections 3 (Kruskal-Wallis) and 4 (Mann-Whitney), where
    the size of the smallest group is released for a (epsilon, delta) bound of the sensitivity.
    """

    kind: ClassVar[str] = "rank_difference"
    column_fields: ClassVar[tuple[str, ...]] = ("of", "by")
    rounds_outward: ClassVar[bool] = True

    of: str
    by: str
    groups: tuple[Any, ...] = field(converter=as_tuple)
    clamp: float = GROUPS_CLAMP

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the columns and the groups."""
        table = super().domain(inputs)
        nulls.check_inside("a rank query's clamp", self.clamp, 0.0, 1.0 + 1e-12)
        declared = table.find(self.by)
        if len(self.groups) < 2 or len(set(self.groups)) < len(self.groups):
            raise DeclarationError(f"ranks are compared of two groups at least, got {self.groups}")
        domains.refuse_unknown_keys(self.by, declared, self.groups)
        return table

    def label(self) -> str:
        """Return what is compared."""
        return f"ranks of {self.of} by {self.by}, {len(self.groups)} groups"

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return f."""
        rows: Rows = inputs[0]
        values = rows.values(Cells(self.of))
        codes = rows.values(Codes(self.by, self.groups)).astype(np.int64)
        used = (codes >= 0) & ~np.isnan(values)
        return rank_difference(values[used], codes[used], len(self.groups), self.clamp)


def rank_difference(values: Floats, codes: NDArray[np.int64], groups: int, clamp: float) -> float:
    """Return the value of `RankDifference`."""
    n = len(values)
    sizes = np.bincount(codes, minlength=groups)
    divisor = n - int(sizes.min())
    if divisor == 0:
        return 0.0
    # midranks less (n + 1)/2 are multiples of 1/2: their sums are exact below 2^52
    sums = np.bincount(codes, weights=rankdata(values) - (n + 1) / 2, minlength=groups)
    total = 2 * float(sums[1]) if groups == 2 else float(np.abs(sums).sum())
    return float(np.clip(total / divisor, -clamp * divisor, clamp * divisor))


def _compared(
    test: str, table: Table, column: str, by: str, groups: Sequence[Any] | None, count: int | None
) -> tuple[Table, tuple[Any, ...]]:
    """Return the complete rows and the groups of a test."""
    nulls.check_units(test, table)
    declared = table.domain.find(by)
    keys: Any = groups
    if keys is None and isinstance(declared, Categories):
        keys = declared.values
    if keys is None:
        raise DeclarationError(
            f"{test} needs a column with categories, or groups=[...]; {by!r} declares none"
        )
    keys = as_tuple(keys)
    if count is not None and len(keys) != count:
        raise DeclarationError(
            f"{test} compares {count} groups, got {len(keys)}; choose them by groups=[...]"
        )
    table.domain.find(column)
    return complete_rows(table, (column, by)), keys


def _released(
    test: str,
    table: Table,
    query: RankQuery,
    by: str | None,
    keys: Sequence[Any],
    mechanism: Mechanism | None,
    weight: float = COUNTS_WEIGHT,
) -> tuple[Any, ...]:
    """Return the released statistic, its noise, the counts, their noise, and the noise's kind."""
    noise = nulls.known_noise(test, mechanism, Laplace())
    asked: PrivateQuery[float] = PrivateQuery(query, (table,))
    statistic = asked.release(nulls.weighted_noise(asked, noise, 1.0), name="statistic")
    counted: PrivateQuery[Any] = table.count() if by is None else table[by].histogram(keys=keys)
    counts = counted.release(nulls.weighted_noise(counted, noise, weight), name="counts")
    kind, scale = nulls.noise_of(statistic, noise)
    return statistic, scale, counts, nulls.noise_of(counts, noise)[1], kind


def _groups_released(
    test: str,
    table: Table,
    rows: Table,
    column: str,
    by: str,
    keys: tuple[Any, ...],
    mechanism: Mechanism | None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return what a test of groups reads, and its constants.

    Of a public number of rows n the statistic has a deviation of about ``sqrt(n / 3)`` at most: it
    is clamped at some 3.5 times that, where its divisor is the least that it can be, n/2.
    """
    size = nulls.public_rows(table)
    clamp = GROUPS_CLAMP if size is None else min(1.0, 4 / math.sqrt(size))
    weight = COUNTS_WEIGHT if size is None else PUBLIC_WEIGHT
    query = RankDifference(column, by, keys, clamp)
    *released, kind = _released(test, rows, query, by, keys, mechanism, weight)
    return released, {"kind": kind, "clamp": clamp, "size": size}


# -----------------------------------------------------------------------------
# Two groups.


def mann_whitney(
    table: Table,
    column: str,
    by: str,
    groups: Sequence[Any] | None = None,
    *,
    alternative: str = "two-sided",
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    r"""Test whether the values of two groups follow one law, by their ranks.

    Two releases: the groups' sizes, and how far the ranks of the second group are above those of
    the first (`RankDifference`), whose noise does not depend on the unknown sizes. The p-value is
    computed from the normal law of the ranks plus the exact law of the noise, at sizes of 1.5
    standard deviations of their noise above the released ones: their noise would else make some
    p-values too small (``benchmarks/tests.py`` measures how often each p is fallen short of). Ties
    make it larger than need be.

    Parameters
    ----------
    table
        One row for each unit.
    column
        Numbers; bounds are not needed.
    by
        A column with categories.
    groups
        Two of them; by default all that it declares.
    alternative
        ``"greater"``: values of the second group are larger.
    mechanism
        ``dp.Laplace()`` (the default) or ``dp.Gaussian()``; a fixed noise is that of a query of
        sensitivity 1, and is scaled for each release.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, the probability that a value
        of the second group is above one of the first (ties count half), with an interval.

    Notes
    -----
    The interval of the estimate p has the variance of Hanley and McNeil, which is that of ranks
    exactly where p is 1/2, and of exponential laws elsewhere.

    References
    ----------
    Couch, Kazan, Shi, Bray and Groce 2019, section 4. Hanley and
    McNeil 1982, for the interval's variance.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"days": None, "drug": ["no", "yes"]})
    >>> test = dp.statistics.mann_whitney(people, "days", by="drug")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> values = np.concatenate([np.arange(300.0), np.arange(300.0) + 60])
    >>> drug = ["no"] * 300 + ["yes"] * 300
    >>> result = plan.simulate(seed=1, people={"days": values, "drug": drug})["test"]
    >>> result["p_value"] < 1e-3, round(result["estimate"], 1)
    (True, 0.7)
    """
    check_alternative(alternative)
    test = "a Mann-Whitney test"
    rows, keys = _compared(test, table, column, by, groups, 2)
    released, constants = _groups_released(test, table, rows, column, by, keys, mechanism)
    result = post(mann_whitney_test, *released, alternative=alternative, **constants)
    return group("mann_whitney", result, table)


def raised(counts: Any, scale: float, kind: str) -> Floats:
    """Return released sizes plus `MARGIN` deviations of their noise, at least 1."""
    above = np.atleast_1d(counts) + MARGIN * math.sqrt(nulls.variance_of(kind, scale))
    return np.asarray(np.maximum(above, 1.0))


def _mann_whitney_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    kind: str,
    alternative: str,
    clamp: float = GROUPS_CLAMP,
    size: int | None = None,
) -> dict[str, Any]:
    f, scale, counts, counts_scale = inputs
    beta = nulls.share_beyond(level, 1 if alternative != "two-sided" else 2)
    sizes = np.maximum(np.asarray(counts), 1.0)
    above = raised(counts, counts_scale, kind)
    unknown = nulls.variance_of(kind, float(counts_scale))
    ends = [0.0, 1.0]
    for side, sign in enumerate((-1, 1)):
        if alternative != ("less" if sign < 0 else "greater"):
            ends[side] = _end(
                float(f), float(scale), sizes, above, unknown, kind, beta, sign, clamp
            )
    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": ConfidenceInterval(*ends),
    }


def _end(
    f: float,
    scale: float,
    sizes: Floats,
    above: Floats,
    unknown: float,
    kind: str,
    beta: float,
    sign: int,
    clamp: float,
) -> float:
    """Return the largest (or smallest) probability p at which f is no surprise.

    With m and M the smaller and the larger size, f estimates ``(2 p - 1) m``, with the variance
    ``4 m^2 v`` of ranks and ``(2 p - 1)^2`` times that of the released size's noise. Hanley and
    McNeil: ``v m M = p (1 - p) + (m - 1) (p / (2 - p) - p^2) + (M - 1) (2 p^2 / (1 + p) - p^2)``,
    or with m and M exchanged; the larger is taken, at the raised sizes. Beyond the clamp f tells
    one side alone.
    """
    mean_size, clamped = float(sizes.min()), clamp * float(sizes.max())
    m, larger = float(above.min()), float(above.max())

    def surprising(p: float) -> bool:
        one, two = p / (2 - p) - p * p, 2 * p * p / (1 + p) - p * p
        rest = max((m - 1) * one + (larger - 1) * two, (m - 1) * two + (larger - 1) * one)
        variance = 4 * m / larger * (p * (1 - p) + rest) + (2 * p - 1) ** 2 * unknown
        far = sign * (float(np.clip((2 * p - 1) * mean_size, -clamped, clamped)) - f)
        return far > 0 and float(nulls.normal_noise_tail(far, variance, kind, scale)) < beta

    return outermost(surprising, 0.5 - sign * 0.5, 0.5 + sign * 0.5)


def outermost(surprising: Callable[[float], bool], inside: float, outside: float) -> float:
    """Return the end, toward ``outside``, of the parameters that are no surprise, by bisection."""
    for _ in range(40):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if surprising(middle) else (middle, outside)
    return outside


@released_ends(_mann_whitney_ends)
def mann_whitney_test(
    f: float,
    scale: float,
    counts: Floats,
    counts_scale: float,
    *,
    kind: str,
    alternative: str,
    clamp: float = GROUPS_CLAMP,
    size: int | None = None,
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `mann_whitney`."""
    sizes = raised(counts, counts_scale, kind)
    m, larger = float(sizes.min()), float(sizes.max())
    # both together are at most so many, and equal sizes have the most variance
    if size is not None:
        m = min(m, size / 2)
        larger = max(m, min(larger, size - m))
    # of 2 S_2 / M: Var(S_2) = m M (m + M + 1) / 12 without ties, and less with ties; symmetric and
    # unimodal laws have larger tails where the variance is larger (Anderson 1955)
    variance = m * (m + larger + 1) / (3 * larger)
    greater, less = (
        float(nulls.normal_noise_tail(sign * f, variance, kind, scale)) for sign in (1, -1)
    )
    smaller = max(1.0, float(np.min(counts)))
    return {
        "statistic": float(f),
        "p_value": sided(alternative, greater, less),
        "estimate": float(np.clip(0.5 + f / (2 * smaller), 0.0, 1.0)),
    }


# -----------------------------------------------------------------------------
# Several groups.


DRAWS = 9999
"""Draws of a statistic under its hypothesis."""


def kruskal_wallis(
    table: Table,
    column: str,
    by: str,
    groups: Sequence[Any] | None = None,
    *,
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    """Test whether the values of several groups follow one law, by their ranks.

    The groups' sizes and the sum of the groups' absolute differences in rank (`RankDifference`) are
    released. The p-value is the share of 9,999 draws of its law under the hypothesis (the normal
    law of the ranks, clamped, plus the noise) that are as large, with sizes as of `mann_whitney`.

    Parameters
    ----------
    table, column, by, groups, mechanism
        As of `mann_whitney`; three groups or more.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, with an interval: the mean
        over all rows of how far from 1/2 is the probability that a value of the row's group is
        above one drawn from all groups (ties count half). It is 0 where groups do not differ and
        1/4 where two halves do not overlap; of few rows it is rather too large, by chance.

    Notes
    -----
    Which group is above which is not released: that is `mann_whitney` of two of them. The interval
    holds whatever the groups' laws are, up to the normal law of sums of ranks, and is wide for it;
    the proof is in ``_kruskal_wallis_ends``.

    References
    ----------
    Couch, Kazan, Shi, Bray and Groce 2019, section 3: of absolute values the test has more power
    than of squares. Brunner and Puri 2001 (a group's probability against all). Hoeffding 1963,
    section 5, for the interval's variance.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"days": None, "town": ["A", "B", "C"]})
    >>> test = dp.statistics.kruskal_wallis(people, "days", by="town")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> data = {"days": np.arange(600.0), "town": ["A"] * 200 + ["B"] * 200 + ["C"] * 200}
    >>> plan.simulate(seed=1, people=data)["test"]["p_value"] < 1e-3
    True
    """
    test = "a Kruskal-Wallis test"
    rows, keys = _compared(test, table, column, by, groups, None)
    if len(keys) < 3:
        raise DeclarationError(f"{test} compares three groups or more; use mann_whitney for two")
    released, constants = _groups_released(test, table, rows, column, by, keys, mechanism)
    result = post(kruskal_wallis_test, *released, **constants)
    return group("kruskal_wallis", result, table)


def _rows_and_divisor(counts: Any, size: int | None) -> tuple[float, float]:
    """Return the number of rows, and that of all groups but the smallest, by released sizes.

    Sizes below 0 count as they are: raised to 1 each, many of noise alone would be many rows.
    """
    given = np.asarray(counts, dtype=np.float64)
    n = max(float(given.sum()), 1.0) if size is None else float(size)
    return n, min(max(n - max(float(given.min()), 1.0), n * (1 - 1 / len(given))), n)


def _kruskal_wallis_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    kind: str,
    clamp: float = GROUPS_CLAMP,
    size: int | None = None,
) -> dict[str, Any]:
    """Return the interval of the estimate e, by the largest of sums that each compare two sets.

    For each way s to split the g groups in two sets, of a and b rows, let
    ``L_s = sum_k s_k S_k = sum_{i in one, j in other} sgn(x_i - x_j)``. Then ``sum |S_k|`` is the
    largest L_s of ``2^g - 2`` ways (one set empty gives 0), and ``sum |E S_k| = e n^2`` that of
    their expectations. L_s over a b is a mean over matchings of min(a, b) independent pairs
    (Hoeffding 1963, section 5), so that, by convexity,
    ``Var L_s <= a b max(a, b) (1 - (E L_s / (a b))^2)``, whatever the laws.

    * Too large an e: the sum is at least the L_s with ``E L_s = e n^2``; of all a, b the variance
      is at most the largest ``a^2 b - (e n^2)^2 / b`` with ``a >= b``.
    * Too small an e: each L_s has an expectation of at most ``e n^2`` and a variance of at most
      ``a^2 b <= 4 n^3 / 27``; the chance that one of them is so large is at most the sum of all.

    f estimates ``e n^2 / D``: to the variance comes that of released sizes.
    """
    f, scale, counts, counts_scale = inputs
    groups, unknown = len(counts), nulls.variance_of(kind, float(counts_scale))
    n, divisor = _rows_and_divisor(counts, size)
    most = float(raised(counts, counts_scale, kind).sum()) if size is None else n
    q = n / divisor
    # the squares of the slopes of n^2 / D by the counts: of the smallest group, and of others
    slopes = 4 * q**2 + (groups - 1) * (2 * q - q**2) ** 2 if size is None else q**4
    b = np.linspace(0.0, 0.5, 201)[1:]
    ends = [0.0, 0.25]
    for side, sign in enumerate((-1, 1)):
        # of more sets than a float can count nothing is a surprise: infinity times 0 is below none
        ways = 1.0 if sign > 0 else 2.0**groups - 2 if groups < 1000 else math.inf

        def surprising(e: float, sign: int = sign, ways: float = ways) -> bool:
            share = 4 / 27 if sign < 0 else max(0.0, float(np.max((1 - b) ** 2 * b - e * e / b)))
            variance = share * most**3 / divisor**2 + e * e * slopes * unknown
            far = sign * (min(e * n * q, clamp * divisor) - float(f))
            tail = nulls.normal_noise_tail(far, variance, kind, float(scale))
            return far > 0 and ways * float(tail) < nulls.share_beyond(level)

        ends[side] = outermost(surprising, 0.125 - sign * 0.125, 0.125 + sign * 0.125)
    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": ConfidenceInterval(*ends),
    }


@released_ends(_kruskal_wallis_ends)
def kruskal_wallis_test(
    f: float,
    scale: float,
    counts: Floats,
    counts_scale: float,
    *,
    kind: str,
    clamp: float = GROUPS_CLAMP,
    size: int | None = None,
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `kruskal_wallis`."""
    generator = nulls.generator_of(f, scale, counts, counts_scale)
    groups = len(counts)
    sizes = raised(counts, counts_scale, kind)
    if size is not None:
        sizes = sizes * min(1.0, size / float(sizes.sum()))
    n, least = float(sizes.sum()), float(sizes.min())
    # the sums of ranks: independent normal numbers less their share of the total, which is 0
    normals = generator.standard_normal((DRAWS, groups)) * np.sqrt(sizes)
    sums = normals - np.outer(normals.sum(axis=1), sizes / n)
    draws = np.abs(sums * math.sqrt(n * (n + 1) / 12)).sum(axis=1) / (n - least)
    draws = np.minimum(draws, clamp * (n - least))
    draws = draws + nulls.draw_noise(generator, kind, scale, (DRAWS,))
    rows, divisor = _rows_and_divisor(counts, size)
    return {
        "statistic": float(f),
        "p_value": nulls.exceedance(f, draws),
        "estimate": float(np.clip(f * divisor / rows**2, 0.0, 0.25)),
    }


# -----------------------------------------------------------------------------
# Pairs.


@frozen
class SignedRanks(RankQuery):
    r"""The sum of signed ranks of differences, over their number.

    Of n numbers d_i with midranks R_i of their sizes, ``W = sum sgn(d_i) R_i`` (Pratt: zeros are
    ranked, and count nothing), and ``f = W / n``, clamped to ``[-c n, c n]``.

    *Sensitivity*. A number that appears, of a size below which are L others, of which T are equal
    and G above, adds its rank ``L + T/2 + 1``, and moves the ranks of G by 1 and of T by 1/2: W by
    at most ``L + T + G + 1 = n + 1``. So ``W'/(n+1) - W/n`` is at most 1 away from 0, and at most
    ``1 + W/(n (n+1)) <= 1 + c`` toward it; the clamp as at `RankDifference`.

    Parameters
    ----------
    of
        A column of numbers.
    clamp
        c, inside (0, 1]; W is at most half of n (n + 1), so that from 1/2 on it clamps nothing.
    size
        The public number of rows, where one row is exchanged and its number is fixed: then W is
        divided by it, and nothing is clamped. An exchange is a row that vanishes and one that
        appears among ``n - 1`` others, so that W moves by at most 2 n. A missing value counts as 0.

    References
    ----------
    Couch, Kazan, Shi, Bray and Groce 2019, section 5, for W under replace-one with n public.
    """

    kind: ClassVar[str] = "signed_ranks"
    column_fields: ClassVar[tuple[str, ...]] = ("of",)
    rounds_outward: ClassVar[bool] = True

    of: str
    clamp: float = SIGNS_CLAMP
    size: int | None = field(default=None, converter=number)

    def label(self) -> str:
        """Return what is ranked."""
        return f"signed ranks of {self.of}"

    def domain(self, inputs: Sequence[Any]) -> domains.Table:
        """Return the table; check the clamp."""
        nulls.check_inside("a rank query's clamp", self.clamp, 0.0, 1.0 + 1e-12)
        table = super().domain(inputs)
        if self.size is not None and self.size != table.size:
            raise DeclarationError(
                f"signed ranks are divided by size={self.size!r}, but {table.name!r} declares "
                f"size={table.size!r}"
            )
        return table

    def sensitivity(self, domain: domains.Table, change: Change, norm: float) -> float:
        """Return 2 where the number of rows is public, else the bound of the base class."""
        if self.size is None:
            return super().sensitivity(domain, change, norm)
        if not (change.replaced and change.fixed and change.rows == 1):
            raise DeclarationError(
                "signed ranks are divided by a public number of rows only where one row is "
                "exchanged for another; leave out size"
            )
        return 2.0 * ROUNDING

    def run(self, inputs: Sequence[Any], stream: Stream) -> float:
        """Return f."""
        rows: Rows = inputs[0]
        values = rows.values(Cells(self.of))
        if self.size is not None:
            # clamped at W's largest value, which changes nothing where there are so many rows
            total = signed_rank_sum(np.nan_to_num(values, nan=0.0))
            return float(np.clip(total / self.size, -(self.size + 1) / 2, (self.size + 1) / 2))
        return signed_ranks(values[~np.isnan(values)], self.clamp)


def signed_ranks(values: Floats, clamp: float) -> float:
    """Return the value of `SignedRanks`."""
    n = len(values)
    if n == 0:
        return 0.0
    return float(np.clip(signed_rank_sum(values) / n, -clamp * n, clamp * n))


def signed_rank_sum(values: Floats) -> float:
    """Return the sum of signed midranks, in halves: exact below 2^52."""
    return float(np.sum(np.sign(values) * rankdata(np.abs(values)))) if len(values) else 0.0


def signed_rank(
    table: Table,
    column: str,
    *,
    alternative: str = "two-sided",
    mechanism: Mechanism | None = None,
) -> Released[dict[str, float]]:
    """Test whether differences are as often above 0 as below, and as far (Wilcoxon's test).

    The number of rows and the signed-rank sum over it (`SignedRanks`) are released; the p-value is
    as of `mann_whitney`. Where the number of rows is public (``replace_one`` with ``size=``), it is
    not released, and a missing difference counts as 0.

    Parameters
    ----------
    table
        One row for each unit.
    column
        Differences, such as ``after - before`` by `Table.with_columns`; bounds are not needed.
    alternative
        ``"greater"``: differences are above 0 rather than below.
    mechanism
        ``dp.Laplace()`` (the default) or ``dp.Gaussian()``; a fixed noise is that of a query of
        sensitivity 1, and is scaled for each release.

    Returns
    -------
    Released
        A mapping: ``"statistic"``, ``"p_value"`` and ``"estimate"``, the rank correlation: the
        signed-rank sum over the largest that it can be, from -1 to 1. Its interval is of
        ``P(X + X' > 0) - P(X + X' < 0)`` for two differences of the population.

    Notes
    -----
    The interval holds whatever the law is, up to the normal law of sums of ranks. The p-value is
    that of a law that is symmetric about 0, whose ranks vary less: 0 may be inside where it is
    small. Where the number of rows is private, nothing above half of the largest is released.

    References
    ----------
    Couch, Kazan, Shi, Bray and Groce 2019, section 5. Pratt 1959, on zeros. Ahlswede and
    Katona 1978, for the interval's variance.

    Examples
    --------
    >>> import numpy as np, adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"change": None})
    >>> test = dp.statistics.signed_rank(people, "change", alternative="greater")
    >>> plan = dp.Pipeline(test=test).calibrate(epsilon=1.0)
    >>> changes = np.linspace(-1, 1.5, 400)
    >>> plan.simulate(seed=1, people={"change": changes})["test"]["p_value"] < 1e-3
    True
    """
    check_alternative(alternative)
    test = "a signed-rank test"
    nulls.check_units(test, table)
    constants: dict[str, Any] = {"alternative": alternative}
    size = nulls.public_rows(table)
    if size is not None and table.domain.neighbors == "replace_one":
        noise = nulls.known_noise(test, mechanism, Laplace())
        asked = PrivateQuery[float](SignedRanks(column, size=size), (table,))
        statistic = asked.release(nulls.weighted_noise(asked, noise, 1.0), name="statistic")
        kind, scale = nulls.noise_of(statistic, noise)
        constants |= {"kind": kind, "size": size}
        return group("signed_rank", post(signed_rank_test, statistic, scale, **constants), table)
    table.domain.find(column)
    rows = complete_rows(table, (column,))
    *released, kind = _released(test, rows, SignedRanks(column), None, (), mechanism)
    result = post(signed_rank_test, *released, kind=kind, **constants)
    return group("signed_rank", result, table)


def _signed_rank_ends(
    inputs: list[Any],
    level: float,
    sampling: bool,
    *,
    kind: str,
    alternative: str,
    size: int | None = None,
) -> dict[str, Any]:
    """Return the interval of ``t = P(X + X' > 0) - P(X + X' < 0)``.

    ``W = sum_i sgn(d_i) + sum_{i<j} sgn(d_i + d_j)`` exactly, ties and zeros included (Tukey 1949
    without), so that ``E W = n u + n (n - 1) t / 2`` with ``u = P(X > 0) - P(X < 0)``. With
    ``p = (1 + t) / 2``, ``1 - 2 sqrt(1 - p) <= u <= 2 sqrt(p) - 1``: two of one sign have a sum of
    that sign.

    *Variance.* Let g(x) be the expectation of sgn(x + X), of variance z. Then
    ``Var W <= n (n - 1)/2 (2 (n - 2) z + 1 - t^2) + 2 n (n - 1) sqrt(z) + n`` (Hoeffding 1948, and
    Cauchy and Schwarz). Whether ``X + X' > 0`` is an edge of a graph of density p: of graphs with
    so many edges, degrees vary most in a clique or the complement of one (Ahlswede and Katona
    1978), so that without ties ``z <= 4 max(p^1.5 - p^2, q^1.5 - q^2)``, q = 1 - p. With ties g is
    the sum of two such degrees less 1, whose deviations add up at most: the bound holds of a
    concave root, where between 7/16 and 9/16 is the bound's largest value, ``4 (9/16)^2 / 3``.
    """
    f, scale = float(inputs[0]), float(inputs[1])
    count = float(inputs[2] if size is None else size)
    unknown = 0.0
    n, most = max(count, 1.0), max(count, 1.0)
    if size is None:
        unknown = nulls.variance_of(kind, float(inputs[3]))
        most = float(raised(count, inputs[3], kind)[0])
    clamped = math.inf if size is not None else SIGNS_CLAMP * n
    beta = nulls.share_beyond(level, 1 if alternative != "two-sided" else 2)
    ends = [-1.0, 1.0]
    for side, sign in enumerate((-1, 1)):
        if alternative == ("less" if sign < 0 else "greater"):
            continue

        def surprising(t: float, sign: int = sign) -> bool:
            # the law nearest to f
            own = 2 * math.sqrt((1 - sign * t) / 2) - 1
            mean = (n - 1) * t / 2 - sign * own
            far = sign * (float(np.clip(mean, -clamped, clamped)) - f)
            variance = signed_rank_variance(most, t) + t * t / 4 * unknown
            return far > 0 and float(nulls.normal_noise_tail(far, variance, kind, scale)) < beta

        ends[side] = outermost(surprising, -sign, sign)
    return {
        **nulls.no_intervals(["statistic", "p_value"]),
        "estimate": ConfidenceInterval(*ends),
    }


def signed_rank_variance(n: float, t: float) -> float:
    """Return the bound of the variance of W / n that ``_signed_rank_ends`` proves."""
    p = max((1 + abs(t)) / 2, 9 / 16)
    z = 4 * (p * math.sqrt(p) - p * p)
    pairs = (n - 1) / (2 * n) * (2 * max(n - 2, 0.0) * z + 1 - t * t)
    return pairs + 2 * math.sqrt(z) * (n - 1) / n + 1 / n


@released_ends(_signed_rank_ends)
def signed_rank_test(
    f: float, scale: float, *counted: float, kind: str, alternative: str, size: int | None = None
) -> dict[str, float]:
    """Return the statistic, p-value and estimate of `signed_rank`.

    Parameters
    ----------
    f, scale
        The released statistic and its noise.
    counted
        The released number of rows and its noise, where no ``size`` is public.
    """
    count = float(counted[0] if size is None else size)
    n = count if size is not None else float(raised(count, counted[1], kind)[0])
    # Var(W) = n (n + 1) (2 n + 1) / 6, over n^2: it grows with n; ties and zeros make it less
    variance = (n + 1) * (2 * n + 1) / (6 * n)
    greater, less = (
        float(nulls.normal_noise_tail(sign * f, variance, kind, scale)) for sign in (1, -1)
    )
    return {
        "statistic": float(f),
        "p_value": sided(alternative, greater, less),
        "estimate": float(np.clip(2 * f / max(count + 1, 1.0), -1.0, 1.0)),
    }
