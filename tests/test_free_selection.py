"""Adaptive for free: gaps, two thresholds, joint top-k, inverse sensitivity, by exact laws.

Laws are enumerated, or integrals over the thresholds' noise; neighbours are all those of a small
universe. Statistical tests are at a level of 1e-7 with fixed seeds.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats
from streams import Quick

import adaptive_dp as dp
from adaptive_dp.mechanisms import selection
from adaptive_dp.mechanisms.selection import _joint_levels, uniform_below
from adaptive_dp.noise import bernoulli, choice
from adaptive_dp.noise.stream import word
from adaptive_dp.queries.order_statistics import (
    QuantileSensitivity,
    TrimmedMeanSensitivity,
    UserSensitivity,
)

ALPHA = 1e-7


def accepted(seen: Counter[Any], law: dict[Any, float]) -> bool:
    assert set(seen) <= set(law)
    names = [k for k in law if law[k] > 0]
    rates = np.array([law[k] for k in names])
    counts = np.array([seen[k] for k in names])
    return bool(stats.chisquare(counts, rates / rates.sum() * counts.sum()).pvalue > ALPHA)


# --- Joint top-k -------------------------------------------------------------------------------


def joint_law(scores: Any, k: int, scale: float) -> dict[tuple[int, ...], float]:
    """The law over all sequences, by enumeration."""
    best = sorted(scores, reverse=True)
    weights = {
        s: math.exp(-max(best[i] - scores[j] for i, j in enumerate(s)) / scale)
        for s in itertools.permutations(range(len(scores)), k)
    }
    total = sum(weights.values())
    return {s: w / total for s, w in weights.items()}


@pytest.mark.parametrize("doubt", [bernoulli.FLOAT_ERROR, 1e3])
def test_joint_top_k_has_the_law(doubt: float, monkeypatch: pytest.MonkeyPatch) -> None:
    if doubt > 1:  # always by exact numbers: no float decides
        monkeypatch.setattr(
            selection,
            "choose_by_logs",
            lambda logs, exact, counts, stream: choice._choose_exactly(
                exact, counts, word(stream), stream
            ),
        )
    for scores, k, scale in (([5, 3, 3, 0], 2, 1.5), ([2, 2, 1, 0.5], 3, 1.0), ([1, 4], 2, 2.0)):
        mechanism, stream = dp.JointTopK(k=k, scale=scale), Quick(1)
        draws = 3_000 if doubt < 1 else 500
        seen = Counter(
            tuple(mechanism.release(np.array(scores, dtype=float), stream).tolist())
            for _ in range(draws)
        )
        assert accepted(seen, joint_law(scores, k, scale))
        if len(scores) == 4 and doubt < 1:
            assert not accepted(seen, joint_law(scores, k, scale * 2))


def test_levels_count_every_sequence() -> None:
    draw = np.random.default_rng(1)
    for _ in range(60):
        d = int(draw.integers(1, 6))
        k = int(draw.integers(1, d + 1))
        ordered = np.sort(draw.integers(0, 5, d))[::-1].astype(np.int64)
        levels, totals = _joint_levels(ordered, k)
        worst = [
            max(ordered[i] - ordered[j] for i, j in enumerate(s))
            for s in itertools.permutations(range(d), k)
        ]
        assert levels == sorted(set(worst))
        assert totals == [sum(w <= v for w in worst) for v in levels]


def test_joint_top_k_is_within_its_range_for_all_neighbours() -> None:
    """Counts of four candidates; a unit adds any subset of them."""
    scale, k, worst = 2.0, 2, 0.0
    epsilon = dp.JointTopK(k=k, scale=scale).loss(1.0, 1.0).pure()
    assert epsilon == pytest.approx(2 / scale, rel=1e-6)
    laws: dict[Any, Any] = {}

    def law(counts: tuple[int, ...]) -> dict[Any, float]:
        return laws.setdefault(counts, joint_law(counts, k, scale))

    for counts in itertools.product(range(4), repeat=4):
        for more in itertools.product((0, 1), repeat=4):
            p, q = law(counts), law(tuple(np.add(counts, more).tolist()))
            ratios = [math.log(p[s] / q[s]) for s in p]
            worst = max(worst, max(ratios) - min(ratios))
    assert worst <= epsilon * (1 + 1e-12)
    assert worst == pytest.approx(2 / scale)  # attained


def test_rounding_of_scores_is_paid_for() -> None:
    mechanism = dp.JointTopK(k=2, scale=3.0)
    unit = mechanism.unit()
    assert unit == 2.0**-29
    assert mechanism.loss(1.0, 1.0).epsilon >= 2 * (1 + unit) / 3.0
    assert dp.JointTopK(k=2, scale=1e12).unit() == 1.0
    # integers are not moved, whatever the scale
    assert dp.JointTopK(k=1, scale=1e9).release(np.array([0.0, 1e13]), Quick(1)).tolist() == [1]
    assert mechanism.release(np.array([np.nan, np.inf, -np.inf]), Quick(1)).tolist() == [1, 0]
    assert mechanism.release(np.array([7.0]), Quick(1)).tolist() == [0]
    for bad in (0, 1.5, True, 2**21):
        with pytest.raises(dp.DeclarationError):
            dp.JointTopK(k=bad, scale=1.0)  # type: ignore[arg-type]


def test_rounding_may_take_two_scores_two_units_farther_apart() -> None:
    """Scores that move by .9 and 1.1, apart by .2, may go from (2, 0, 0) to (2, 0, 2)."""
    here, there = np.array([1.55, -0.45, 0.45]), np.array([2.45, 0.45, 1.55])
    span = float(np.ptp(there - here)) + 1e-12  # of floats near .9 and 1.1
    for scale, unit in ((2.0**40, 1.0), (3.0, 2.0**-29)):
        mechanism = dp.JointTopK(k=2, scale=scale)
        assert mechanism.unit() == unit
        # the law of what is rounded, by enumeration: the log-ratio's range, in units over the scale
        ranks = [joint_ranks(np.rint(scores).tolist(), 2) for scores in (here, there)]
        moves = [ranks[1][s] - ranks[0][s] for s in ranks[0]]
        assert max(moves) - min(moves) == 4
        loss = mechanism.loss(1.1 * unit * (1 + 1e-12), span * unit)
        assert Fraction(loss.epsilon) >= Fraction(4 * unit) / Fraction(scale)
        # and of scores whose span is a multiple of the unit it is one unit farther
        assert Fraction(mechanism.loss(unit, unit).epsilon) == Fraction(4 * unit) / Fraction(scale)


def joint_ranks(scores: list[float], k: int) -> dict[tuple[int, ...], float]:
    """``-u`` of all sequences, by its definition."""
    best = sorted(scores, reverse=True)
    return {
        s: max(best[i] - scores[j] for i, j in enumerate(s))
        for s in itertools.permutations(range(len(scores)), k)
    }


def test_uniform_integers_of_any_size() -> None:
    stream = Quick(3)
    big = 3 * 2**70
    found = [uniform_below(big, stream) for _ in range(2_000)]
    assert max(found) < big
    thirds = Counter(f // 2**70 for f in found)
    assert stats.chisquare([thirds[i] for i in range(3)]).pvalue > ALPHA
    assert {uniform_below(1, stream) for _ in range(5)} == {0}


# --- Sparse vector with gap --------------------------------------------------------------------

# a step that divides 1, so that neighbours' grids of threshold noise and of leads are the same
RHO = np.arange(-280, 281) / 4


def gap_law(mechanism: dp.SparseVectorWithGap, values: Any) -> dict[Any, float]:
    """The law of the answers, leads in cells of 1 (all far ones together)."""
    b, scale, margin = mechanism.scale, mechanism.query_scale(), 0.0
    margin = 4 * math.sqrt(2) * scale
    weight = np.exp(-np.abs(RHO) / b)
    weight /= weight.sum()
    edges = np.append(np.arange(0, 7, 1.0), np.inf)
    law: dict[Any, float] = {}

    def follow(said: tuple[Any, ...], chance: Any, left: int) -> None:
        if len(said) == len(values) or not left:
            law[said] = law.get(said, 0.0) + float(chance.sum())
            return
        lead = values[len(said)] - mechanism.threshold - RHO
        far = stats.laplace(loc=lead, scale=2 * scale)
        near = stats.laplace(loc=lead, scale=scale)
        below = np.ones_like(RHO)
        if mechanism.adaptive:
            below = far.cdf(margin)
            for i, (low, high) in enumerate(itertools.pairwise(margin + edges)):
                follow((*said, ("far", i)), chance * (far.cdf(high) - far.cdf(low)), left - 1)
        if left >= 2:
            for i, (low, high) in enumerate(itertools.pairwise(edges)):
                cell = near.cdf(high) - near.cdf(low)
                follow((*said, ("near", i)), chance * below * cell, left - 2)
            below = below * near.cdf(0.0)
        follow((*said, "-"), chance * below, left)

    follow((), weight, 2 * mechanism.count)
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    return law


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("monotone", [False, True])
def test_leads_are_free(monotone: bool, adaptive: bool) -> None:
    mechanism = dp.SparseVectorWithGap(
        scale=2.0, threshold=0.0, monotone=monotone, adaptive=adaptive
    )
    epsilon = mechanism.loss(1.0, 1.0 if monotone else 2.0).pure()
    moves, worst = ([(0, 1)] if monotone else [(-1, 0, 1)])[0], 0.0
    for values in ((0.0, -1.0), (9.0, 20.0), (-30.0, 30.0)):
        p = gap_law(mechanism, values)
        for move in itertools.product(moves, repeat=2):
            q = gap_law(mechanism, np.add(values, move))
            worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p if p[k] > 1e-250))
    assert 0.45 * epsilon < worst <= epsilon + 1e-6


def test_leads_have_the_law() -> None:
    values, stream = np.array([3.0, -2.0]), Quick(4)
    mechanism = dp.SparseVectorWithGap(scale=1.0, threshold=0.0, monotone=True)
    margin = 4 * math.sqrt(2) * mechanism.query_scale()
    law = gap_law(mechanism, values)
    # the kinds of answers only: both tests, and leads beyond 6 together
    kinds: dict[Any, float] = {}
    for said, chance in law.items():
        key = tuple(s if s == "-" else s[0] for s in said)
        kinds[key] = kinds.get(key, 0.0) + chance
    seen: Counter[Any] = Counter()
    leads = []
    for _ in range(4_000):
        answers = mechanism.release(values, stream)
        said = [
            "-" if a == -math.inf else "far" if a >= margin else "near"
            for a in answers
            if not math.isnan(a)
        ]
        leads += [a for a in answers[:1] if math.isfinite(a)]
        seen[tuple(said)] += 1
    # a lead of the second test may exceed the margin: such outcomes count as far in what is seen
    near_but_far = sum(c for s, c in law.items() if s and s[0] != "-" and s[0][0] == "near")
    assert near_but_far > 0.3
    assert abs(seen[("-", "-")] / 4_000 - kinds[("-", "-")]) < 5.4 * math.sqrt(0.25 / 4_000)
    assert all((lead * 2**20).is_integer() for lead in leads)
    assert min(leads) >= 0


def test_far_answers_cost_half() -> None:
    values = np.array([1e6] * 12)
    answers = dp.SparseVectorWithGap(scale=1.0, threshold=0.0, count=3).release(values, Quick(1))
    assert (np.isfinite(answers)).sum() == 6
    assert np.isnan(answers[6:]).all()
    plain = dp.SparseVectorWithGap(1.0, 0.0, count=3, adaptive=False).release(values, Quick(1))
    assert np.isfinite(plain).sum() == 3
    assert plain[0] == pytest.approx(1e6, abs=100)


# --- Between thresholds ------------------------------------------------------------------------


def between_law(mechanism: dp.BetweenThresholds, values: Any) -> dict[Any, float]:
    b, scale = mechanism.scale, mechanism.query_scale()
    noise = np.arange(-1_600, 1_601) / 16
    weight = np.exp(-np.abs(noise) / b)
    weight /= weight.sum()
    law: dict[Any, float] = {}

    def follow(said: tuple[int, ...], chance: Any) -> None:
        if len(said) == len(values) or (said and said[-1] == 0):
            law[said] = law.get(said, 0.0) + float(chance.sum())
            return
        own = stats.laplace(loc=values[len(said)], scale=scale)
        below = own.cdf(mechanism.lower + noise)
        above = np.minimum(own.sf(mechanism.upper - noise), 1 - below)
        follow((*said, -1), chance * below)
        follow((*said, 1), chance * above)
        follow((*said, 0), chance * (1 - below - above))

    follow((), weight)
    return law


@pytest.mark.parametrize("failure", [0.2, 0.02])
@pytest.mark.parametrize("width", [9.0, 16.0])
def test_between_thresholds_is_within_its_loss(width: float, failure: float) -> None:
    mechanism = dp.BetweenThresholds(scale=1.5, lower=0.0, upper=width, failure=failure)
    loss = mechanism.loss(1.0)
    if loss.delta == 1:
        assert width - 2 * 1.5 * math.log(1 / (2 * failure)) <= 2
        return
    worst = 0.0
    for values in ((0.0, width), (-4.0, width / 2), (width, width), (-20.0, 30.0), (2.0, 2.0)):
        p = between_law(mechanism, values)
        for move in itertools.product((-1, 0, 1), repeat=2):
            q = between_law(mechanism, np.add(values, move))
            for one, two in ((p, q), (q, p)):
                delta = sum(max(0.0, one[k] - math.exp(loss.epsilon) * two[k]) for k in one)
                assert delta <= loss.delta + 1e-9
                big = [one[k] / two[k] for k in one if one[k] > 1e-12]
                worst = max(worst, math.log(max(big)))
    assert worst > 0.3 * loss.epsilon


def test_the_largest_factor_of_an_interval_is_that_of_the_proof() -> None:
    """Of all intervals of Laplace noise that both ends leave by x and y, x + y = 2 Delta."""
    law = stats.laplace()
    for move, width in ((0.3, 1.0), (0.3, 5.0), (1.0, 2.5)):
        bound = 1 + math.expm1(2 * move) / -math.expm1(-(width - 2 * move))
        worst = 0.0
        for start in np.linspace(-8, 8, 161):
            whole = law.cdf(start + width) - law.cdf(start)
            for x in np.linspace(0, 2 * move, 9):
                rest = law.cdf(start + width - (2 * move - x)) - law.cdf(start + x)
                worst = max(worst, whole / rest)
        assert worst <= bound * (1 + 1e-9)
        assert worst > 0.99 * bound


def test_between_thresholds_ends_at_the_first() -> None:
    mechanism = dp.BetweenThresholds(scale=0.01, lower=0, upper=10, failure=1e-6)
    answers = mechanism.release(np.array([-5.0, 20.0, 5.0, -5.0]), Quick(1))
    assert answers[:3].tolist() == [-1, 1, 0]
    assert math.isnan(answers[3])
    with pytest.raises(dp.DeclarationError, match="below upper"):
        dp.BetweenThresholds(scale=1.0, lower=3, upper=3, failure=0.1)
    # thresholds too near for the noise: nothing is promised
    assert dp.BetweenThresholds(scale=9.0, lower=0, upper=3, failure=0.1).loss(1.0).delta == 1


# --- Inverse sensitivity -----------------------------------------------------------------------


GRID = (0.0, 1.0, 2.0, 4.0)


def datasets(exchange: bool, most: int) -> list[tuple[float, ...]]:
    sizes = [most] if exchange else range(most + 1)
    return [c for n in sizes for c in itertools.combinations_with_replacement(GRID, n)]


def neighbours(x: tuple[float, ...], exchange: bool) -> set[tuple[float, ...]]:
    fewer = [x[:i] + x[i + 1 :] for i in range(len(x))]
    base = fewer if exchange else [x]
    found = {tuple(sorted((*y, v))) for y in base for v in GRID}
    return found if exchange else found | set(fewer)


def quantile(q: float, exchange: bool) -> Any:
    return lambda x: QuantileSensitivity(np.array(x), 0.0, 4.0, q, exchange)


def spread(x: Any) -> Any:
    """Half the range of the values, whose local sensitivity at any distance is the half width."""
    return UserSensitivity(
        np.array(x), 0.0, 4.0, lambda v: (max(v) - min(v)) / 2 if len(v) else 0.0, lambda v, k: 2.0
    )


CASES = {
    "median, exchanged": (quantile(0.5, True), True, 3),
    "median": (quantile(0.5, False), False, 4),
    "quantile": (quantile(0.2, False), False, 4),
    "trimmed mean": (lambda x: TrimmedMeanSensitivity(np.array(x), 0.0, 4.0, 0.25), True, 4),
    "own": (spread, False, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_path_lengths_of_neighbours_are_one_step_apart(name: str) -> None:
    make, exchange, most = CASES[name]
    mechanism = dp.InverseSensitivity(scale=1.0)
    levels = {x: mechanism.levels(make(x)) for x in datasets(exchange, most)}

    def lengths(x: Any, points: Any) -> Any:
        _, starts, found, _ = levels[x]
        counts = np.diff(starts)
        kept = counts > 0
        return found[kept][np.searchsorted(starts[1:][kept], points, side="right")]

    apart = 0
    for x in levels:
        value = make(x)
        first, starts, _, unit = levels[x]
        assert starts[0] == 0
        assert (np.diff(starts) >= 0).all()
        own = np.array([round(value.value / unit) - first])
        assert lengths(x, own)[0] == 0
        for y in neighbours(x, exchange):
            if y in levels:
                ends = np.unique(np.concatenate([starts[:-1], levels[y][1][:-1]]))
                ends = ends[ends < starts[-1]]
                difference = np.abs(lengths(x, ends) - lengths(y, ends)).max()
                apart = max(apart, int(difference))
    assert apart == 1


@pytest.mark.parametrize("name", ["median, exchanged", "median", "quantile"])
def test_path_lengths_of_quantiles_are_exact(name: str) -> None:
    """The fewest changes that make the quantile a value of the universe, by a search."""
    make, exchange, most = CASES[name]
    every = datasets(exchange, most if exchange else most + 3)
    first, _, _, unit = dp.InverseSensitivity(scale=1.0).levels(make(every[-1]))
    for x in datasets(exchange, most):
        if not x:
            continue
        _, starts, found, _ = dp.InverseSensitivity(scale=1.0).levels(make(x))
        distance, reached = {x: 0}, [x]
        for y in reached:
            for z in neighbours(y, exchange):
                if z not in distance and (exchange or len(z) <= most + 3) and distance[y] < 3:
                    distance[z] = distance[y] + 1
                    reached.append(z)
        kept = np.diff(starts) > 0
        for v in GRID:
            away = [k for z, k in distance.items() if make(z).value == v]
            if away:
                point = round(v / unit) - first
                length = found[kept][np.searchsorted(starts[1:][kept], point, side="right")]
                # a number that no row has may take one addition more than is said
                assert 0 <= min(away) - length <= (not exchange and v not in x)


def test_the_law_is_that_of_the_lengths() -> None:
    data = QuantileSensitivity(np.array([0.1, 0.2, 0.35, 0.5, 0.9]), 0.0, 1.0, 0.5, True)
    mechanism, stream = dp.InverseSensitivity(scale=1.0), Quick(2)
    found = [float(mechanism.release(data, stream)) for _ in range(2_000)]
    # within k changes: the order statistics k places away
    ends = [0.0, 0.1, 0.2, 0.35, 0.5, 0.9, 1.0]
    steps = [3, 2, 1, 1, 2, 3]
    widths = np.diff(ends)
    weights = widths * np.exp(-np.array(steps, dtype=float))
    weights /= weights.sum()
    counts = np.histogram(found, ends)[0]
    assert stats.chisquare(counts, weights * counts.sum()).pvalue > ALPHA
    other = widths * np.exp(-np.array(steps) / 2)
    assert stats.chisquare(counts, other / other.sum() * counts.sum()).pvalue < ALPHA


def test_lengths_beyond_a_public_number_count_as_that() -> None:
    data = UserSensitivity(np.arange(5.0), 0.0, 4.0, lambda v: 2.0, lambda v, k: 0.0)
    _, starts, lengths, unit = dp.InverseSensitivity(scale=1.0).levels(data)
    # nothing is ever reached but the value, up to rounding: all else is as far as can be
    assert lengths.max() == lengths[0] == lengths[-1] < 100
    assert starts[-1] * unit == pytest.approx(4.0)
    broken = UserSensitivity(np.arange(5.0), 0.0, 4.0, lambda v: math.nan, lambda v, k: math.nan)
    assert 0 <= float(dp.InverseSensitivity(scale=1.0).release(broken, Quick(1))) <= 4
    loss = dp.InverseSensitivity(scale=4.0).loss(3.0)
    assert loss.epsilon == pytest.approx(1.5)
    assert Fraction(loss.epsilon) >= Fraction(3, 2)


def test_calibrated_on_real_queries() -> None:
    people = dp.dataset("people", columns={"age": (0, 100)})
    draw = np.random.default_rng(1)
    rows = {"age": draw.normal(50, 10, 4_001).clip(0, 100)}
    for query, truth in (
        (people["age"].median(), np.median(rows["age"])),
        (people["age"].quantile(0.9), np.quantile(rows["age"], 0.9)),
    ):
        plan = dp.Pipeline(x=query.release(dp.InverseSensitivity())).calibrate(epsilon=1.0)
        assert plan.certify().epsilon == pytest.approx(1.0, rel=1e-6)
        assert plan.simulate(seed=1, people=rows)["x"] == pytest.approx(truth, abs=0.3)
