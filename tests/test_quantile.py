"""Quantiles by the exponential mechanism on a grid: the exact law, every point of it, the loss.

The chi-square tests are at a level of 1e-7 with a fixed seed, beside a law that they must reject.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from streams import GivenWords, Quick

import adaptive_dp as dp
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Ranked
from adaptive_dp.graph.operation import Change
from adaptive_dp.mechanisms import selection
from adaptive_dp.queries import order_statistics
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.order_statistics import (
    UNIT,
    CellRows,
    EndRanks,
    QuantileEnd,
    QuantileGrid,
    QuantileLevel,
    Ranks,
    rank_lines,
    rounded_order,
    score_sensitivity,
    search_levels,
)

ALPHA = 1e-7


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of few points, so that each can be counted."""
    monkeypatch.setattr(order_statistics, "GRID_BITS", 2)
    monkeypatch.setattr(order_statistics, "POINTS", 4)


def rows_of(values: Any, grid: QuantileGrid) -> CellRows:
    counts = np.bincount(grid.cells(np.array(values, dtype=float)), minlength=grid.count)
    return CellRows.of_counts(counts)


def ranks(values: Any, lower: float, upper: float, q: float) -> Ranks:
    grid = QuantileGrid.of(Interval(lower, upper))
    return Ranks(((rows_of(values, grid), q),), grid)


# -----------------------------------------------------------------------------
# An independent statement of the law: rows as fractions of a cell, one point after another.


def places(counts: Sequence[int], start: int, stop: int, points: int) -> list[Fraction]:
    """Where the rows of each cell lie in a range, evenly: the middles of equal shares."""
    result = []
    for cell, rows in enumerate(counts):
        a, b = max(start, cell * points), min(stop, (cell + 1) * points)
        result += [a + Fraction((2 * i + 1) * (b - a), 2 * rows) for i in range(rows)]
    return result


def law(counts: Sequence[int], start: int, stop: int, q: float, scale: float) -> Any:
    """The chance of every point of a range: by how many places are before it."""
    points = order_statistics.POINTS
    rows = places(counts, start, stop, points)
    scores = [
        -abs(sum(math.floor(x) < p for x in rows) - rounded_order(q) * len(rows))
        for p in range(start, max(stop, start + 1))
    ]
    weights = np.exp((np.array(scores) - max(scores)) / scale)
    return weights / weights.sum()


def divided(counts: Sequence[int], start: int, stop: int, cut: int) -> tuple[list[int], list[int]]:
    """The rows of each cell before a cut, and the others."""
    points = order_statistics.POINTS
    left = []
    for cell, rows in enumerate(counts):
        a, b = max(start, cell * points), min(stop, (cell + 1) * points)
        share = Fraction(min(max(cut - a, 0), max(b - a, 0)), max(b - a, 1))
        left.append(max(0, math.ceil(rows * share - Fraction(1, 2))))
    return left, [rows - before for rows, before in zip(counts, left, strict=True)]


CASES = [
    ([0.2, 0.5, 0.5, 0.51, 3.0, -7.0], 0.0, 1.0, 0.5),
    ([], -1.0, 2.0, 0.25),
    ([5.0], -1.0, 2.0, 0.9),
    ([-1.0, -1.0, -1.0, 2.0], -1.0, 2.0, 0.3),
    ([0.0625, 0.125, 0.1875, 0.25], 0.05, 0.26, 0.5),
]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_law_of_every_number(case: Any) -> None:
    values, lower, upper, q = case
    grid = QuantileGrid.of(Interval(lower, upper))
    counts = np.bincount(grid.cells(np.array(values, dtype=float)), minlength=grid.count)
    stop = grid.count * 4
    expected = law(counts.tolist(), 0, stop, q, 1.5).reshape(-1, 4).sum(1)
    numbers = [grid.number(cell) for cell in range(grid.count)]
    mechanism, stream, value = dp.QuantileExponential(scale=1.5), Quick(1), ranks(*case)
    drawn = [float(mechanism.release(value, stream)) for _ in range(4_000)]
    assert set(drawn) <= set(numbers)
    seen = np.array([drawn.count(t) for t in numbers])
    assert stats.chisquare(seen, expected * len(drawn)).pvalue > ALPHA
    if len(values) > 1:
        wrong = law(counts.tolist(), 0, stop, q, 0.2).reshape(-1, 4).sum(1)
        assert stats.chisquare(seen, wrong * len(drawn)).pvalue < ALPHA


Counts = tuple[int, ...]


def neighbours(cells: int, rows: int, replaced: bool) -> Iterator[tuple[Counts, Counts]]:
    """All pairs of counts of up to `rows` rows that differ in one row."""
    for size in range(rows + 1):
        for base in itertools.combinations_with_replacement(range(cells), size):
            counts = tuple(base.count(c) for c in range(cells))
            more = [tuple(n + (c == d) for c, n in enumerate(counts)) for d in range(cells)]
            yield from itertools.permutations(more, 2) if replaced else ((counts, m) for m in more)


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("q", [0.5, 0.25, 0.9])
def test_the_loss_is_not_exceeded_on_any_neighbours(q: float, replaced: bool) -> None:
    far = score_sensitivity(q, Change(replaced, 1, replaced))
    loss = dp.QuantileExponential(scale=1.5).loss(far)
    worst, grid = 0.0, np.linspace(-loss.pure(), loss.pure(), 9)
    for one, other in neighbours(4, 4, replaced):
        p, r = (law(counts, 0, 16, q, 1.5) for counts in (one, other))
        worst = max(worst, float(np.abs(np.log(p / r)).max()))
        for epsilon in grid:
            delta = np.maximum(p - math.exp(epsilon) * r, 0).sum()
            assert delta <= loss.profile(float(epsilon)).upper + 1e-12
    assert worst <= loss.pure() + 1e-9
    assert q != 0.5 or worst > 0.6 * loss.pure()  # of other shares, on more rows than these


@pytest.mark.parametrize("q", [0.5, 0.1, 0.75])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.usefixtures("coarse")
def test_the_score_moves_by_its_sensitivity(q: float, rows: int, replaced: bool) -> None:
    several = itertools.combinations_with_replacement
    units = [u for k in range(rows + 1) for u in several(range(3), k)]
    worst = Fraction(0)
    for size in range(4):
        for base in several(range(3), size):
            scores = [point_scores((*base, *u), q) for u in units]
            appears = ((scores[0], s) for s in scores)
            for one, other in itertools.combinations(scores, 2) if replaced else appears:
                worst = max(worst, *(abs(a - b) for a, b in zip(one, other, strict=True)))
    assert worst == Fraction(score_sensitivity(q, Change(replaced, rows, False)))


def point_scores(cells: Sequence[int], q: float) -> list[Fraction]:
    """The score of each of 12 points, off the steps, as exact numbers."""
    counts = np.bincount(np.array(cells, dtype=int), minlength=3)
    [(starts, scores)] = Ranks(((CellRows.of_counts(counts), q),)).steps()
    result = []
    for p in range(12):
        i = int(np.searchsorted(starts, p, side="right")) - 1
        result.append(Fraction(float(scores[i])))
        before = sum(math.floor(x) < p for x in places(counts.tolist(), 0, 12, 4))
        assert result[-1] == -abs(before - Fraction(rounded_order(q)) * len(cells))
    return result


# -----------------------------------------------------------------------------
# Several at once: the levels of a search.


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("orders", [(0.25, 0.5, 0.75), (0.1, 0.4), (0.2, 0.5, 0.6)])
def test_the_loss_of_a_level_is_not_exceeded_by_all_of_its_choices(
    orders: tuple[float, ...], replaced: bool
) -> None:
    """Whatever the first level released, the second's choices together cost one release."""
    level = QuantileLevel(orders, 1)
    change = Change(replaced, 1, replaced)
    mechanism = dp.QuantileExponential(scale=1.5)
    loss = mechanism.loss(level.sensitivity(None, change, math.inf))  # type: ignore[arg-type]
    grid, worst = np.linspace(-loss.pure(), loss.pure(), 7), 0.0
    for one, other in neighbours(3, 3, replaced):
        for cut in range(12):
            p, r = (second_level(counts, orders, cut) for counts in (one, other))
            worst = max(worst, float(np.abs(np.log(p / r)).max()))
            for epsilon in grid:
                delta = np.maximum(p - math.exp(epsilon) * r, 0).sum()
                assert delta <= loss.profile(float(epsilon)).upper + 1e-12
    assert 0.3 * loss.pure() < worst <= loss.pure() + 1e-9


def second_level(counts: Counts, orders: Sequence[float], cut: int) -> Any:
    """The law of all choices of the second level, as one vector."""
    middle = orders[len(orders) // 2]
    left, right = divided(counts, 0, 12, cut)
    laws = [
        law(left, 0, cut, q / middle, 1.5)
        if q < middle
        else law(right, cut, 12, (q - middle) / (1 - middle), 1.5)
        for q, _, _ in search_levels(orders)[1]
    ]
    joint = laws[0]
    for each in laws[1:]:
        joint = np.outer(joint, each).ravel()
    return joint


@pytest.mark.usefixtures("coarse")
@given(
    st.lists(st.integers(0, 5), min_size=3, max_size=3), st.lists(st.integers(0, 12), max_size=4)
)
def test_a_row_more_changes_one_of_the_ranges(counts: list[int], cuts: list[int]) -> None:
    """After any cuts, the rows before each point of one range are 0 or 1 more; others are equal."""
    for cell in range(3):
        more = [n + (c == cell) for c, n in enumerate(counts)]
        one, other = [CellRows.of_counts(np.array(counts))], [CellRows.of_counts(np.array(more))]
        for cut in cuts:
            i = next(i for i, r in enumerate(one) if r.start <= cut <= r.stop)
            assert (one[i].start, one[i].stop) == (other[i].start, other[i].stop)
            one[i : i + 1], other[i : i + 1] = one[i].cut(cut), other[i].cut(cut)
        changed = 0
        for a, b in zip(one, other, strict=True):
            before, after = a.positions(), b.positions()
            changed += len(after) - len(before)
            assert len(after) - len(before) in (0, 1)
            points = np.arange(a.start, a.stop + 1)
            gained = (after[:, None] < points).sum(0) - (before[:, None] < points).sum(0)
            assert set(gained.tolist()) <= ({0, 1} if len(after) > len(before) else {0})
        assert changed == 1


def test_several_quantiles_in_the_order_asked() -> None:
    people = dp.dataset("people", columns={"x": (0, 150)})
    orders = [0.9, 0.1, 0.5, 0.25, 0.75]
    mechanism = dp.QuantileExponential()
    plan = dp.Pipeline(q=people["x"].quantiles(orders, mechanism)).calibrate(epsilon=2.0)
    values = np.random.default_rng(4).lognormal(3, 0.5, 100_000)
    got = plan.simulate(seed=1, people={"x": values})["q"]
    exact = np.quantile(values, orders)
    near = [np.quantile(values, np.add(orders, shift)) for shift in (-0.002, 0.002)]
    assert (near[0] <= got).all()
    assert (got <= near[1]).all(), (got, exact)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    # three levels of a search among five, each of which is one release
    assert len(plan.certify().shares) == len(search_levels(sorted(orders))) == 3


def test_all_rows_alike() -> None:
    people = dp.dataset("people", columns={"x": (0, 150)})
    plan = dp.Pipeline(
        one=people["x"].median().release(dp.QuantileExponential()),
        all=people["x"].quantiles([0.25, 0.5, 0.75], dp.QuantileExponential()),
    ).calibrate(epsilon=1.0)
    result = plan.simulate(seed=2, people={"x": np.full(100_000, 40.0)})
    assert result["one"] == 40
    assert result["all"].tolist() == [40, 40, 40]


def test_integers_on_their_own_grid() -> None:
    people = dp.dataset("people", columns={"x": (0, 20)})
    values = np.repeat([0, 1, 4, 9], [31, 25, 24, 20]).repeat(3)
    plan = dp.Pipeline(q=people["x"].quantiles([0.25, 0.5, 0.75], dp.QuantileExponential(), step=1))
    plan = plan.calibrate(epsilon=3.0)
    for seed in range(20):
        assert plan.simulate(seed=seed, people={"x": values})["q"].tolist() == [0, 1, 4]


@pytest.mark.parametrize("step", [0, -1, math.inf, math.nan, "1", True, 1e-9, 200])
def test_steps_that_are_refused(step: Any) -> None:
    column = dp.dataset("people", columns={"x": (0, 150)})["x"]
    with pytest.raises(dp.DeclarationError, match="step"):
        column.quantile(0.5, step=step)
    with pytest.raises(dp.DeclarationError, match="step"):
        column.quantiles([0.5], dp.QuantileExponential(), step=step)


@pytest.mark.parametrize("orders", [0.5, [], [0.5, 0.5], [0], [1.5], ["a"], "ab"])
def test_orders_that_are_refused(orders: Any) -> None:
    column = dp.dataset("people", columns={"x": (0, 150)})["x"]
    with pytest.raises(dp.DeclarationError):
        column.quantiles(orders, dp.QuantileExponential())


def test_only_mechanisms_that_choose_by_rank() -> None:
    column = dp.dataset("people", columns={"x": (0, 150)})["x"]
    with pytest.raises(dp.DeclarationError, match="Ranked"):
        column.quantiles([0.5], dp.Laplace(scale=1.0))


# -----------------------------------------------------------------------------
# The ends of intervals.


def end_law(end: EndRanks, scale: float) -> Any:
    """The chance of every cell, off the steps."""
    [(starts, scores)] = end.at(scale).steps()
    assert (np.diff(starts) > 0).all()
    weights = np.zeros(end.width)
    for low, high, score in zip(starts, starts[1:], scores, strict=False):
        weights[low:high] = math.exp((score - scores.max()) / scale)
    return weights / weights.sum()


def end_of(counts: Sequence[int], q: float, above: bool, level: float, sampling: bool) -> EndRanks:
    return QuantileEnd(q, above, level, sampling).run([np.array(counts)], None)  # type: ignore[arg-type]


def all_counts(cells: int, rows: int) -> Iterator[Counts]:
    for size in range(rows + 1):
        for base in itertools.combinations_with_replacement(range(cells), size):
            yield tuple(base.count(c) for c in range(cells))


@pytest.mark.parametrize("scale", [0.05, 0.4, 2.0])
@pytest.mark.parametrize("q", [0.5, 0.1, 0.875])
def test_an_end_is_on_its_own_side_of_the_quantile_by_adding_up(q: float, scale: float) -> None:
    """Over all data of up to 7 rows in 4 cells: the exact law, against the quantile by sorting."""
    level, worst = 0.8, 0.0
    for counts in all_counts(4, 7):
        values = [cell for cell, rows in enumerate(counts) for _ in range(rows)]
        r = math.ceil(Fraction(q) * len(values))
        quantile = values[r - 1] if values else 0
        low, high = (end_law(end_of(counts, q, up, level, False), scale) for up in (False, True))
        miss = low[quantile + 1 :].sum(), high[:quantile].sum() if values else 0.0
        worst = max(worst, *miss)
        assert max(miss) <= 0.1 * (1 + 1e-9)
    # half at one end, half at the other: no rank is nearer, and the bound is attained
    counts = (64, 0, 0, 64) if q == 0.5 else (0, 0, 0, 0)
    tight = end_law(end_of(counts, 0.5, False, level, False), scale)[1:].sum()
    assert q != 0.5 or tight == pytest.approx(0.1, rel=1e-3)


def binomial_miss(q: float, rows: Any, chance: float) -> Any:
    lines = rank_lines(q, chance)
    rank = np.max([a + d * rows for a, d in lines], axis=0)
    # fewer rows up to the quantile than the integer part of the rank
    return stats.binom.cdf(np.floor(rank) - 1, rows, q), rank


@pytest.mark.parametrize("chance", [0.1, 0.0225, 1e-4])
@pytest.mark.parametrize("q", [0.5, 0.005, 0.1, 0.9, 0.995])
def test_ranks_of_a_population_hold_by_adding_up_binomial_masses(q: float, chance: float) -> None:
    rows = np.concatenate([np.arange(3000), np.geomspace(3001, 2e9, 2000).astype(int)])
    miss, rank = binomial_miss(q, rows, chance)
    assert (miss <= chance * (1 + 1e-9)).all()
    exact = stats.binom.ppf(chance, rows, q)
    # near the best: 2% of its distance from q n, some rows where there are few, and a unit of q
    room = 0.02 * (q * rows - exact) + 5 * stats.norm.ppf(chance) ** 2 + 2 * UNIT * rows
    assert (exact - rank <= room).all()
    slopes = [d for _, d in rank_lines(q, chance)]
    assert all(d / UNIT == round(d / UNIT) for d in slopes)
    assert max(slopes) <= q
    assert min(slopes) >= q - 2.0**-4 - 2 * UNIT or min(slopes) == 0


@pytest.mark.parametrize("sampling", [False, True])
@pytest.mark.parametrize("q", [0.5, 0.1])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
def test_no_score_of_an_end_moves_by_more_than_its_sensitivity(
    q: float, rows: int, replaced: bool, sampling: bool
) -> None:
    units = [np.array(counts) for counts in all_counts(4, rows)]
    # few rows, and many, where the rank of a population's quantile grows as fast as q
    bases = [*all_counts(4, 1), (40, 0, 40, 0), (0, 5000, 5000, 0)]
    for above in (False, True):
        query, worst = QuantileEnd(q, above, 0.9, sampling), Fraction(0)
        most = Fraction(query.sensitivity(None, Change(replaced, rows, False), math.inf))  # type: ignore[arg-type]
        for base in bases:
            scores = [cell_scores(np.array(base) + unit, query) for unit in units]
            appears = ((scores[0], s) for s in scores)
            for one, other in itertools.combinations(scores, 2) if replaced else appears:
                worst = max(worst, *(abs(a - b) for a, b in zip(one, other, strict=True)))
        assert most * (Fraction(1, 2) if sampling else Fraction(9, 10)) <= worst <= most


def cell_scores(counts: Any, query: QuantileEnd) -> list[Fraction]:
    """The score of each cell as an exact number, which is checked against its definition."""
    end = query.run([counts], None).at(0.3)  # type: ignore[arg-type]
    [(starts, scores)] = end.steps()
    rows = int(counts.sum())
    aim = max(a + d * rows for a, d in end.lines) - (
        end.distance or 0.0
    )  # exact: multiples of UNIT
    aim = rows - aim if query.above else aim
    result = []
    for v in range(4):
        below = -math.inf if v == 0 else float(counts[:v].sum())
        up_to = math.inf if v == 3 else float(counts[: v + 1].sum())
        score = float(scores[np.searchsorted(starts, v, side="right") - 1])
        assert -score == max(0.0, below - aim, aim - up_to)
        result.append(Fraction(score))
    return result


def test_noise_of_more_rows_than_there_are_leaves_the_bounds() -> None:
    for above, cell in ((False, 0), (True, 3)):
        end = end_of((3, 4, 1, 2), 0.5, above, 0.95, False)
        assert end_law(end, 1e300)[cell] == 1
        assert end_law(end, 1e8)[cell] > 0.9


INTERVALS = {
    "median": lambda x, noise, kind: x.median(**kind).release(noise),
    "min": lambda x, noise, kind: x.min(share=0.05, **kind).release(noise),
    "max": lambda x, noise, kind: x.max(share=0.05, **kind).release(noise),
    "several": lambda x, noise, kind: x.quantiles([0.9, 0.25], noise, **kind),
}
TRUE = {"median": 0.5, "min": 0.05, "max": 0.95, "several": [0.9, 0.25]}


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", INTERVALS)
def test_intervals_hold_quantiles_of_rows_and_of_populations(name: str, neighbors: str) -> None:
    """Each misses one time in 20 at most: all of 30 runs with 99.99% and a margin of 0.003."""
    column = dp.dataset("people", columns={"x": (0, 150)}, neighbors=neighbors)["x"]
    for sampling in (False, True):
        kind = {"interval": 0.9999, "sampling": sampling}
        handle = INTERVALS[name](column, dp.QuantileExponential(), kind)
        plan = dp.Pipeline(q=handle).calibrate(epsilon=3.0)
        for seed in range(3):
            draw = np.random.default_rng([seed, sampling])
            values = np.sort(np.round(draw.lognormal(3, 0.5, 3_000), seed))
            order = np.array(TRUE[name])
            rows = values[np.ceil(np.round(order * len(values), 6)).astype(int) - 1]
            true = np.exp(3 + 0.5 * stats.norm.ppf(order)) if sampling and seed else rows
            low, high = plan.simulate(seed=seed, people={"x": values})["q"].interval(
                0.95, sampling=sampling
            )
            assert (low <= true + 0.05 * bool(seed == 1 and sampling)).all()
            assert (true - 0.05 * bool(seed == 1 and sampling) <= high).all()
            assert np.max(high - low) < 0.7 * np.max(true)


def test_intervals_by_group_and_in_documents() -> None:
    people = dp.dataset("people", columns={"x": (0, 150), "town": ["A", "B"]})
    by_town = people.group_by("town")
    got = by_town.quantiles("x", [0.5, 0.9], dp.QuantileExponential(), interval=0.95, step=1)
    plan = dp.Pipeline(q=got).calibrate(epsilon=30.0)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    values = {"x": np.r_[np.full(500, 40), np.full(500, 70)], "town": ["A"] * 500 + ["B"] * 500}
    result = plan.simulate(seed=1, people=values)
    low, high = result["q"].interval()
    assert low.tolist() == high.tolist() == [[40, 40], [70, 70]] == result["q"].tolist()
    table = result["q"].columns()
    assert list(table) == ["town", "quantile", "value", "low", "high"]
    assert table["quantile"] == [0.5, 0.9, 0.5, 0.9]
    # a level, and two ends for each of two orders, for the rows of a town
    assert len(plan.certify().shares) == 2 * (2 + 4)


def test_intervals_that_are_refused() -> None:
    people = dp.dataset("people", columns={"x": (0, 150)})
    x, noise = people["x"], dp.QuantileExponential(scale=1.0)
    with pytest.raises(dp.DeclarationError, match=r"interval=0\.95"):
        x.median(sampling=True)
    with pytest.raises(dp.DeclarationError, match="level"):
        x.quantiles([0.5], noise, interval=95)
    with pytest.raises(dp.DeclarationError, match="SmoothStudent"):
        x.median(interval=0.95).release(dp.SmoothStudent(epsilon=1.0))
    visits = dp.dataset("visits", columns={"x": (0, 1)}, unit="person", rows_per_unit=3)
    with pytest.raises(dp.DeclarationError, match="independently"):
        visits["x"].median(interval=0.95, sampling=True)
    visits["x"].median(interval=0.95).release(noise)
    plan = dp.Pipeline(m=x.median(interval=0.95).release(noise))
    value = plan.simulate(seed=1, people={"x": np.arange(100.0)})["m"]
    with pytest.raises(dp.NoIntervalError, match=r"interval=0\.99"):
        value.interval(0.99)
    with pytest.raises(dp.NoIntervalError, match="sampling=True"):
        value.interval(sampling=True)
    assert value.interval(0.5) == value.interval(0.95)


# -----------------------------------------------------------------------------
# The grid.


def test_scores_are_exact_for_many_rows() -> None:
    size, q = 2**31 - 1, rounded_order(1 / 3)
    exact = abs(size // 2 - Fraction(q) * size)
    assert Fraction(abs(float(size // 2) - q * size)) == exact
    assert abs(q - 1 / 3) <= 2.0**-21


@pytest.mark.parametrize("step", [0.7, 0.3])
def test_steps_that_floats_do_not_resolve_have_no_cell_outside(step: float) -> None:
    lower, upper = 1e17, 1e17 + 1000
    grid = QuantileGrid.of(Interval(lower, upper), step)
    cells = grid.cells(np.array([lower, upper, (lower + upper) / 2, np.inf, -np.inf, np.nan]))
    assert cells.min() >= 0
    assert cells.max() < grid.count


def test_outputs_are_the_same_numbers_whatever_the_data() -> None:
    lower, upper = -3.7, 11.3
    grid = QuantileGrid.of(Interval(lower, upper))
    assert grid.unit == 2.0 ** (math.floor(math.log2(15)) - 18)
    assert grid.first * grid.unit >= lower > (grid.first - 1) * grid.unit
    last = grid.first + grid.count - 1
    assert last * grid.unit <= upper < (last + 1) * grid.unit
    stream, mechanism = Quick(4), dp.QuantileExponential(scale=2.0)
    draw = np.random.default_rng(1)
    for _ in range(50):
        values = draw.normal(3, 8, size=int(draw.integers(0, 30)))
        median = float(mechanism.release(ranks(values, lower, upper, 0.5), stream))
        assert lower <= median <= upper
        assert (median / grid.unit).is_integer()


@pytest.mark.usefixtures("coarse")
def test_every_number_has_a_chance_and_so_have_far_ones() -> None:
    """Words that point at the ends reach the ends, a thousand nats below the median."""
    values = [0.5] * 4_000
    value, mechanism = ranks(values, 0.0, 1.0, 0.5), dp.QuantileExponential(scale=1.0)
    lowest = mechanism.release(value, GivenWords([0] * 60))
    highest = mechanism.release(value, GivenWords([2**64 - 1] * 47 + [0] * 9))
    assert (float(lowest), float(highest)) == (0.0, 0.75)  # the first cell past all values


def test_it_finds_the_median_of_much_data() -> None:
    values = np.random.default_rng(2).normal(50, 10, 200_000)
    stream, value = Quick(3), ranks(values, 0, 100, 0.5)
    medians = [float(dp.QuantileExponential(scale=20.0).release(value, stream)) for _ in range(5)]
    assert np.abs(np.array(medians) - np.median(values)).max() < 0.05


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0.0, 0.0),
        (0.1, 0.1),
        (1e16, 1e16 + 2),
        (0.1, math.nextafter(0.1, 1)),
        (-1e289, 1e289),
        (-1e-310, 1e-310),
        (1e-310, 2e-310),
        (1e9, 1e9 + 1e-6),
        (-1e-300, 1e280),
    ],
)
def test_odd_bounds(lower: float, upper: float) -> None:
    stream = Quick(5)
    for values in ([], [lower], [upper, lower, math.inf, -math.inf], [math.nan] * 9):
        for scale in (1e-300, 1.0, 1e299):
            value = ranks(values, lower, upper, 0.5)
            median = float(dp.QuantileExponential(scale=scale).release(value, stream))
            assert lower <= median <= upper


def test_uniform_points_are_uniform() -> None:
    """A word in the last, partial multiple of the count is drawn again."""
    last = (2**64 // 3) * 3
    assert selection.uniform_below(3, GivenWords([last, 7])) == 1
    assert selection.uniform_below(1, GivenWords([2**64 - 1])) == 0
    seen = np.bincount([selection.uniform_below(5, Quick(s)) for s in range(2_000)], minlength=5)
    assert stats.chisquare(seen).pvalue > ALPHA


class Middle(dp.Query):
    """A quantile of a column as some query may give it."""

    kind: ClassVar[str] = "a middle of tests"
    output_type: ClassVar[type] = Ranked

    def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
        assert norm == math.inf
        return score_sensitivity(0.5, change)

    def parameters(self) -> dict[str, Any]:
        return {}

    def run(self, inputs: Sequence[Any], stream: Any) -> Ranks:
        return ranks(inputs[0].rows.columns["x"], 0.0, 10.0, 0.5)


def test_in_a_plan() -> None:
    for neighbors, epsilon in (("add_remove", 2 * 0.5 / 4), ("replace_one", 2 / 4)):
        people = dp.dataset("people", columns={"x": (0, 10)}, neighbors=neighbors)  # type: ignore[arg-type]
        middle: PrivateQuery[float] = PrivateQuery(Middle(), (people["x"],))
        plan = dp.Pipeline(median=middle.release(dp.QuantileExponential(scale=4.0)))
        assert plan.certify().epsilon == pytest.approx(epsilon)
        assert plan.run(people={"x": [4.0] * 500 + [4.5] * 500})["median"] == pytest.approx(4.25, 1)
        with pytest.raises(dp.DeclarationError, match="Ranked"):
            middle.release(dp.Laplace(scale=1.0))
        with pytest.raises(dp.DeclarationError, match="Ranked"):
            people["x"].sum().release(dp.QuantileExponential(scale=1.0))
