"""Quantiles by the exponential mechanism on a grid: the exact law, every point of it, the loss.

The chi-square test is at a level of 1e-7 with a fixed seed, beside a law that it must reject.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import stats
from streams import GivenWords, Quick

import adaptive_dp as dp
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.mechanism import Ranked
from adaptive_dp.graph.operation import Change
from adaptive_dp.mechanisms import selection as quantile
from adaptive_dp.mechanisms.selection import grid_points
from adaptive_dp.queries.order_statistics import Ranks, rounded_order, score_sensitivity

ALPHA = 1e-7


def ranks(values: Any, lower: float, upper: float, q: float) -> Ranks:
    return Ranks(np.clip(np.sort(np.array(values, dtype=float)), lower, upper), lower, upper, q)


def law(values: Any, lower: float, upper: float, q: float, scale: float) -> Any:
    """The chance of every point of the grid, by each point's own rank."""
    unit, first, last = grid_points(lower, upper)
    grid = np.arange(first, last + 1) * unit
    inside = np.clip(np.array(values, dtype=float), lower, upper)
    score = [-abs(int((inside < t).sum()) - rounded_order(q) * len(inside)) for t in grid]
    weights = np.exp((np.array(score) - max(score)) / scale)
    return grid, weights / weights.sum()


@pytest.fixture
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid of few points, so that each can be counted."""
    monkeypatch.setattr(quantile, "GRID_BITS", 4)


CASES = [
    ([0.2, 0.5, 0.5, 0.51, 3.0, -7.0], 0.0, 1.0, 0.5),
    ([], -1.0, 2.0, 0.25),
    ([5.0], -1.0, 2.0, 0.9),
    ([-1.0, -1.0, -1.0, 2.0], -1.0, 2.0, 0.3),
    ([0.0625, 0.125, 0.1875, 0.25], 0.05, 0.26, 0.5),
]


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("case", CASES)
def test_draws_have_the_law_of_every_point(case: Any) -> None:
    values, lower, upper, q = case
    grid, expected = law(values, lower, upper, q, 1.5)
    mechanism, stream, value = dp.QuantileExponential(scale=1.5), Quick(1), ranks(*case)
    seen = [float(mechanism.release(value, stream)) for _ in range(4_000)]
    assert set(seen) <= set(grid)
    counts = np.array([seen.count(t) for t in grid])
    assert stats.chisquare(counts, expected * len(seen)).pvalue > ALPHA
    if len(values) > 1:
        wrong = law(values, lower, upper, q, 0.4)[1]
        assert stats.chisquare(counts, wrong * len(seen)).pvalue < ALPHA


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("neighbours", ["add_remove", "replace_one"])
@pytest.mark.parametrize("q", [0.5, 0.25, 0.9])
def test_the_loss_is_not_exceeded_on_any_neighbours(q: float, neighbours: str) -> None:
    replaced = neighbours == "replace_one"
    universe = [0.0, 0.3, 0.5, 0.7, 1.0]
    far = score_sensitivity(q, Change(replaced, 1, replaced))
    loss = dp.QuantileExponential(scale=1.5).loss(far)
    worst, grid = 0.0, np.linspace(-loss.pure(), loss.pure(), 9)
    for size in range(4):
        for base in itertools.combinations_with_replacement(universe, size):
            one = [(*base, x) for x in universe]
            pairs = itertools.combinations(one, 2) if replaced else ((base, x) for x in one)
            for here, there in pairs:
                p, r = (law(v, 0.0, 1.0, q, 1.5)[1] for v in (here, there))
                worst = max(worst, float(np.abs(np.log(p / r)).max()))
                for epsilon in grid:
                    delta = np.maximum(p - math.exp(epsilon) * r, 0).sum()
                    assert delta <= loss.profile(float(epsilon)).upper + 1e-12
    assert worst <= loss.pure() + 1e-9
    assert q != 0.5 or worst > 0.6 * loss.pure()  # of other shares, on more rows than these


@pytest.mark.parametrize("q", [0.5, 0.1, 0.75])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("replaced", [False, True])
def test_the_score_moves_by_its_sensitivity(q: float, rows: int, replaced: bool) -> None:
    several = itertools.combinations_with_replacement
    universe, at = [0.0, 0.25, 1.0], [0.0, 0.1, 0.25, 0.6, 1.0]
    units = [u for k in range(rows + 1) for u in several(universe, k)]
    worst = Fraction(0)
    for size in range(4):
        for base in several(universe, size):
            scores = [score_at((*base, *u), at, q) for u in units]
            appears = ((scores[0], s) for s in scores)
            for one, other in itertools.combinations(scores, 2) if replaced else appears:
                worst = max(worst, *(abs(a - b) for a, b in zip(one, other, strict=True)))
    declared = Fraction(score_sensitivity(q, Change(replaced, rows, False)))
    assert worst == declared


def score_at(values: Any, at: Any, q: float) -> list[Fraction]:
    """The score of each point, off the steps, as exact numbers."""
    edges, scores = ranks(values, 0.0, 1.0, q).steps()
    exact = []
    for t in at:
        i = max(0, int(np.searchsorted(edges, t, side="left")) - 1)
        exact.append(Fraction(float(scores[i])))
        rank = sum(v < t for v in values)
        assert exact[-1] == -abs(rank - Fraction(rounded_order(q)) * len(values))
    return exact


def test_scores_are_exact_for_many_rows() -> None:
    size, q = 2**31 - 1, rounded_order(1 / 3)
    exact = abs(size // 2 - Fraction(q) * size)
    assert Fraction(abs(float(size // 2) - q * size)) == exact
    assert abs(q - 1 / 3) <= 2.0**-21


def test_outputs_are_the_same_points_whatever_the_data() -> None:
    lower, upper = -3.7, 11.3
    unit, first, last = grid_points(lower, upper)
    assert unit == 2.0 ** (math.floor(math.log2(15)) - 30)
    assert first * unit >= lower > (first - 1) * unit
    assert last * unit <= upper < (last + 1) * unit
    stream, mechanism = Quick(4), dp.QuantileExponential(scale=2.0)
    draw = np.random.default_rng(1)
    for _ in range(200):
        values = draw.normal(3, 8, size=int(draw.integers(0, 30)))
        released = float(mechanism.release(ranks(values, lower, upper, 0.5), stream))
        assert lower <= released <= upper
        assert (released / unit).is_integer()


@pytest.mark.usefixtures("coarse")
def test_every_point_has_a_chance_and_so_have_far_ones() -> None:
    """Words that point at the ends reach the ends, a thousand nats below the median."""
    values = [0.5] * 4_000
    value, mechanism = ranks(values, 0.0, 1.0, 0.5), dp.QuantileExponential(scale=1.0)
    lowest = mechanism.release(value, GivenWords([0] * 60))
    highest = mechanism.release(value, GivenWords([2**64 - 1] * 47 + [0] * 9))
    assert (float(lowest), float(highest)) == (0.0, 0.5625)  # the first point past all values


def test_it_finds_the_median_of_much_data() -> None:
    values = np.random.default_rng(2).normal(50, 10, 200_000)
    stream, value = Quick(3), ranks(values, 0, 100, 0.5)
    released = [float(dp.QuantileExponential(scale=20.0).release(value, stream)) for _ in range(5)]
    assert np.abs(np.array(released) - np.median(values)).max() < 0.05


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
    for values in ([], [lower], [upper, lower, math.inf, -math.inf], [(lower + upper) / 2] * 9):
        for scale in (1e-300, 1.0, 1e299):
            value = ranks(values, lower, upper, 0.5)
            released = float(dp.QuantileExponential(scale=scale).release(value, stream))
            assert lower <= released <= upper


def test_uniform_points_are_uniform() -> None:
    """A word in the last, partial multiple of the count is drawn again."""
    multiple = (2**64 // 3) * 3
    assert quantile._uniform_below(3, GivenWords([multiple, 7])) == 1
    assert quantile._uniform_below(1, GivenWords([2**64 - 1])) == 0
    seen = np.bincount([quantile._uniform_below(5, Quick(s)) for s in range(2_000)], minlength=5)
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
    for neighbours, epsilon in (("add_remove", 2 * 0.5 / 4), ("replace_one", 2 / 4)):
        people = dp.dataset("people", columns={"x": (0, 10)}, neighbors=neighbours)  # type: ignore[arg-type]
        middle: PrivateQuery[float] = PrivateQuery(Middle(), (people["x"],))
        plan = dp.Pipeline(median=middle.release(dp.QuantileExponential(scale=4.0)))
        assert plan.certify().epsilon == pytest.approx(epsilon)
        assert plan.run(people={"x": [4.0] * 500 + [4.5] * 500})["median"] == pytest.approx(4.25, 1)
        with pytest.raises(dp.DeclarationError, match="Ranked"):
            middle.release(dp.Laplace(scale=1.0))
        with pytest.raises(dp.DeclarationError, match="Ranked"):
            people["x"].sum().release(dp.QuantileExponential(scale=1.0))
