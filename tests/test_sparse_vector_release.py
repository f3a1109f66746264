"""Sparse vector's releases: the law of the answers, their cost, and the variants that break it.

Laws are integrals over the threshold's noise. Statistical tests are at a level of 1e-7 with fixed
seeds, each with a law slightly off that the same draws must reject.
"""

from __future__ import annotations

import copy
import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sparse_vector_variants as variants
from scipy import stats
from streams import Quick

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.handles import Release
from adaptive_dp.mechanisms.sparse_vector import AboveThreshold
from adaptive_dp.noise import bernoulli, continuous

ALPHA = 1e-7


def laplace(scale: float) -> Any:
    return stats.laplace(scale=scale)


def law(values: Any, count: float, bar: Any, query: Any, threshold: float = 0.0) -> Any:
    """The chance of each transcript, of 1, 0 and NaN after the end."""
    wide = bar.std() * 30
    rho = np.linspace(-wide, wide, 8_001)
    weight = bar.pdf(rho) * (rho[1] - rho[0])
    below = [query.cdf(rho + threshold - q) for q in values]
    chances = {}
    for bits in itertools.product((0, 1), repeat=len(values)):
        ends = [i + 1 for i in range(len(values)) if sum(bits[: i + 1]) == count]
        length = ends[0] if ends else len(values)
        if any(bits[length:]):
            continue
        chance = weight
        for bit, low in zip(bits[:length], below, strict=False):
            chance = chance * (1 - low if bit else low)
        chances[(*map(str, bits[:length]), *["-"] * (len(values) - length))] = chance.sum()
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    return chances


def shown(answers: Any) -> tuple[str, ...]:
    return tuple("-" if math.isnan(a) else str(int(a)) for a in answers)


def accepted(seen: Counter[Any], expected: Any) -> bool:
    assert set(seen) <= set(expected)
    total, names = sum(seen.values()), list(expected)
    rates = np.array([expected[n] for n in names])
    counts = np.array([seen[n] for n in names])
    return bool(stats.chisquare(counts, rates / rates.sum() * total).pvalue > ALPHA)


VALUES = [1.0, 2.5, -0.5]


@pytest.mark.parametrize(
    "doubt", [bernoulli.FLOAT_ERROR, 1e3], ids=["quick", "always by rational numbers"]
)
def test_laplace_answers_have_the_law(doubt: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bernoulli, "FLOAT_ERROR", doubt)
    monkeypatch.setattr(continuous, "FLOAT_ERROR", doubt)
    mechanism = dp.SparseVector(scale=2.0, threshold=1.25, count=2)
    scale = mechanism.query_scale()
    assert scale == pytest.approx(2 * 4 ** (1 / 3))
    stream, draws = Quick(1), 6_000 if doubt < 1 else 2_000
    seen = Counter(shown(mechanism.release(np.array(VALUES), stream)) for _ in range(draws))
    assert accepted(seen, law(VALUES, 2, laplace(2.0), laplace(scale), 1.25))
    assert not accepted(seen, law(VALUES, 2, laplace(2.0), laplace(scale / 2), 1.25))


def test_gaussian_answers_have_the_law() -> None:
    mechanism = dp.GaussianSparseVector(2.0, 3.0, threshold=1.25, queries=3, count=2)
    stream = Quick(2)
    seen = Counter(shown(mechanism.release(np.array(VALUES), stream)) for _ in range(5_000))
    assert accepted(seen, law(VALUES, 2, stats.norm(scale=2.0), stats.norm(scale=3.0), 1.25))
    assert not accepted(seen, law(VALUES, 2, stats.norm(scale=2.0), stats.norm(scale=1.5), 1.25))


def test_the_threshold_has_one_noise() -> None:
    """Equal values, next to no noise of their own: all are answered alike."""
    mechanism = dp.GaussianSparseVector(2.0, 1e-9, threshold=0, queries=6, count=6)
    stream = Quick(3)
    seen = Counter(shown(mechanism.release(np.zeros(6), stream)) for _ in range(400))
    assert set(seen) == {("0",) * 6, ("1",) * 6}


def test_numbers_are_fresh_and_on_a_grid() -> None:
    mechanism = dp.SparseVector(scale=1e-6, threshold=0.0, numeric=3.0)
    stream, unit = Quick(4), 2.0 ** (1 - 20)
    seen = []
    for _ in range(3_000):
        low, number, end = mechanism.release(np.array([-9.0, 7.1, 8.0]), stream)
        assert low == -math.inf
        assert math.isnan(end)
        seen.append(number)
    assert all((x / unit).is_integer() for x in seen)
    assert stats.kstest(seen, stats.laplace(7.1, 3.0).cdf).pvalue > ALPHA
    assert stats.kstest(seen, stats.laplace(7.1, 4.0).cdf).pvalue < ALPHA
    for value in (1e308, math.inf, -0.0, 5e-324):
        run = dp.SparseVector(scale=1.0, threshold=-1e299, numeric=3.0).begin(Quick(1))
        assert run.ask(value)
        assert abs(run.number()) <= 2.0**53 * unit


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize(("count", "tuned"), [(1, False), (1, True), (2, False)])
def test_the_laplace_loss_is_not_exceeded(count: int, tuned: bool, monotone: bool) -> None:
    mechanism = dp.SparseVector(scale=3.0, threshold=0.0, count=count, monotone=tuned)
    loss = mechanism.loss(1.0, 1.0 if monotone else 2.0)
    noise = laplace(3.0), laplace(mechanism.query_scale())
    steps = [(0, 1), (0, -1)] if monotone else [(-1, 1)]
    worst = 0.0
    for values in ((0.0, 0.0, 0.0), (20.0, 20.0, -20.0), (-4.0, 5.0, 0.5)):
        p = law(values, count, *noise)
        for move in itertools.chain(*(itertools.product(step, repeat=3) for step in steps)):
            q = law(np.add(values, move), count, *noise)
            worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p))
    assert 0.4 * loss.pure() < worst <= loss.pure() + 1e-4


@pytest.mark.parametrize("span", [0.0, 0.5, 1.0, 1.5])
def test_the_loss_by_the_span_is_not_exceeded(span: float) -> None:
    """Values whose moves lie in [m, M], for every M: the span's proof, not the monotone one."""
    mechanism = dp.SparseVector(scale=2.0, threshold=0.0, count=2)
    noise = laplace(2.0), laplace(mechanism.query_scale())
    loss, worst = mechanism.loss(1.0, span), 0.0
    for values in ((0.0, 0.0, 0.0), (9.0, 9.0, -9.0)):
        p = law(values, 2, *noise)
        for low in np.linspace(-1, 1 - span, 3):
            for move in itertools.product((low, low + span), repeat=3):
                q = law(np.add(values, move), 2, *noise)
                worst = max(worst, *(abs(math.log(p[k] / q[k])) for k in p))
    assert worst <= loss.pure() + 1e-4
    # nearly attained: many values far above the bar that are below, then two that are above
    far, near = [80.0] * 300 + [0.0] * 2, [81.0] * 300 + [1.0 - span] * 2
    log_ratio = long_run(far, near, [0] * 300 + [1] * 2, 2.0, mechanism.query_scale())
    assert 0.97 * loss.pure() < log_ratio <= loss.pure() + 1e-6


def test_the_costs_are_those_of_the_theorem() -> None:
    for count, monotone, numeric in itertools.product((1, 3), (False, True), (None, 7.0)):
        mechanism = dp.SparseVector(2.0, 0.0, count, monotone, numeric)
        for distance, span in ((1.0, 1.0), (1.0, 2.0), (0.3, None)):
            apart = Fraction(2 * distance if span is None else span)
            loss = mechanism.loss(distance, span)
            bar_cost = Fraction(distance) / 2
            queries = count * apart / Fraction(mechanism.query_scale())
            numbers = count * Fraction(distance) / 7 if numeric else 0
            exact = bar_cost + queries + numbers
            if span == distance:  # never all three at once
                exact = max(bar_cost + max(queries, numbers), queries + numbers)
            assert exact <= Fraction(loss.pure()) <= exact * (1 + Fraction(1, 10**14))
            # at least as much noise as the loss says that it has
            assert isinstance(loss, accountants.SparseVector)
            bar, query, number = loss.scales()
            assert bar * distance <= 2.0 * (1 + 1e-14)
            assert query * distance <= mechanism.query_scale() * (1 + 1e-14)
            assert not numeric or number * distance <= numeric * (1 + 1e-14)
        assert mechanism.loss(0.0, 0.0) == accountants.Pure(0.0)


def test_the_ratio_of_the_noises_is_the_best() -> None:
    """Of the variance of both, at the same epsilon, for values that move both ways or one."""
    for count, monotone in itertools.product((1, 2, 10), (False, True)):
        factor = count if monotone else 2 * count
        mechanism = dp.SparseVector(1.0, 0.0, count, monotone)
        ratio = mechanism.query_scale()

        def variance(ratio: float, factor: int = factor) -> float:
            return (1 + factor / ratio) ** 2 * (1 + ratio**2)

        assert variance(ratio) <= min(variance(ratio * 1.01), variance(ratio / 1.01))


def test_the_gaussian_loss_is_not_exceeded() -> None:
    orders = np.array([1.5, 4.0, 16.0])
    for span in (0.5, 1.0, 2.0):
        mechanism = dp.GaussianSparseVector(3.0, 4.0, threshold=0, queries=3, count=2)
        noise, curve = (stats.norm(scale=3.0), stats.norm(scale=4.0)), None
        curve = mechanism.loss(1.0, span).renyi(orders)
        values = (0.0, 4.0, -2.0)
        p = law(values, 2, *noise)
        for low in {-1.0, 1 - span, -span / 2 if span > 1 else 0.0}:
            for move in itertools.product((low, low + span), repeat=3):
                q = law(np.add(values, move), 2, *noise)
                for order, bound in zip(orders, curve, strict=True):
                    moment = sum(p[k] ** order * q[k] ** (1 - order) for k in p)
                    assert math.log(moment) / (order - 1) <= bound + 1e-4


def test_a_count_at_a_distance_of_nothing_is_free() -> None:
    people = dp.dataset("people", columns={"x": (0, 1)}, neighbors="replace_one")
    laplace_noise = dp.SparseVector(scale=1.0, threshold=0.0)
    gaussian = dp.GaussianSparseVector(1.0, 1.0, threshold=0.0, queries=1)
    assert laplace_noise.loss(0.0).pure() == gaussian.loss(0.0).pure() == 0
    assert dp.Pipeline(a=people.count().release(laplace_noise)).certify().epsilon < 1e-300
    # the least distance that a compiler passes on
    assert gaussian.loss(5e-324).renyi(np.array([2.0]))[0] < 1e-300


# --- asking one at a time


def test_a_run_ends() -> None:
    run = dp.SparseVector(scale=1e-6, threshold=10, count=2).begin(Quick(1))
    assert [run.ask(v) for v in (0, 20, math.nan, -math.inf)] == [False, True, False, False]
    assert run.remaining == 1
    assert run.ask(math.inf) is True
    assert run.remaining == 0
    assert run.ask(20) is None
    few = dp.GaussianSparseVector(1e-6, 1e-6, threshold=10, queries=2, count=2).begin(Quick(1))
    assert [few.ask(20), few.ask(0), few.ask(20)] == [True, False, None]


def test_numbers_are_given_once_and_only_where_they_are_paid() -> None:
    silent = dp.SparseVector(scale=1e-6, threshold=10).begin(Quick(1))
    assert silent.ask(20)
    paid = dp.SparseVector(scale=1e-6, threshold=10, count=3, numeric=1e-6).begin(Quick(1))
    for run in (silent, paid):
        if run is paid:
            assert run.ask(20)
            assert run.number() == pytest.approx(20, abs=1e-3)
        with pytest.raises(dp.DeclarationError, match="'above'"):
            run.number()
    paid.ask(0)
    with pytest.raises(dp.DeclarationError, match="'above'"):
        paid.number()


def test_a_run_shows_nothing_and_is_not_copied() -> None:
    run = dp.SparseVector(scale=1.0, threshold=10).begin()
    run.ask(123.0)
    assert isinstance(run, AboveThreshold)
    assert repr(run) in ("<sparse vector, 1 left>", "<sparse vector, 0 left>")
    for copying in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copying(run)


def test_the_release_is_the_run_in_a_loop() -> None:
    mechanism = dp.SparseVector(scale=2.0, threshold=0.5, count=2)
    values = np.array([[0.0, 1.0], [0.3, 2.0]])
    for seed in range(20):
        released = mechanism.release(values, Quick(seed))
        run = mechanism.begin(Quick(seed))
        answers = [run.ask(v) for v in values.ravel()]
        assert released.shape == values.shape
        again = [math.nan if a is None else float(a) for a in answers]
        assert np.array_equal(released.ravel(), again, equal_nan=True)


def test_ties_and_odd_values() -> None:
    for value in (1e308, -1e308, math.inf, math.nan, 5e-324, -0.0, 2.0**53):
        for scale in (5e-324, 1e-300, 1.0, 1e299, 7):
            for mechanism in (
                dp.SparseVector(scale=scale, threshold=1e299, numeric=1.0),
                dp.GaussianSparseVector(scale, scale, threshold=0, queries=2),
            ):
                assert mechanism.release(np.array([value, value]), Quick(1)).shape == (2,)
    noise = Counter(
        dp.SparseVector(scale=1.0, threshold=3.0).begin(Quick(s)).ask(3.0) for s in range(600)
    )
    assert stats.binomtest(noise[True], 600, 0.5).pvalue > ALPHA


def test_refusals() -> None:
    for arguments, message in (
        ({"threshold": math.nan}, "threshold"),
        ({"threshold": "ten"}, "threshold"),
        ({"count": 0}, r"\bcount\b"),
        ({"count": 1.5}, r"\bcount\b"),
        ({"monotone": 1}, "monotone"),
        ({"numeric": 0}, "numeric"),
    ):
        with pytest.raises(dp.DeclarationError, match=message):
            dp.SparseVector(**{"scale": 1.0, "threshold": 0.0} | arguments)
    with pytest.raises(dp.DeclarationError, match="queries"):
        dp.GaussianSparseVector(1.0, 1.0, threshold=0.0, queries=True)


def test_in_a_plan() -> None:
    people = dp.dataset("people", columns={"x": (0, 10)})
    counts = people.counts([people["x"] >= k for k in range(9, -1, -1)])
    free = dp.SparseVector(scale=dp.Free("b"), threshold=40, monotone=True, numeric=dp.Free("n"))
    plan = dp.Pipeline(first=counts.release(free)).calibrate(epsilon=1e3)
    assert 999 < plan.certify().epsilon <= 1000
    released = plan.run(people={"x": np.arange(100) / 10})["first"]
    assert list(released[:3]) == [-math.inf] * 3
    assert released[3] == pytest.approx(40, abs=1) or released[4] == pytest.approx(50, abs=1)
    assert math.isnan(released[-1])
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    # the cost does not depend on how many counts there are
    solved = plan.outputs[0][1].operation
    assert isinstance(solved, Release)
    two = people.counts([people["x"] >= 5, people["x"] >= 1]).release(solved.mechanism)
    assert dp.Pipeline(first=two).certify().epsilon == plan.certify().epsilon


# --- the published variants


def ratio(p: Any, q: Any) -> float:
    return max(abs(math.log(p[k] / q[k])) for k in p)


def long_run(here: Any, there: Any, outcome: Any, bar: float, query: float) -> float:
    """The log-ratio of one long transcript, by integration of logarithms."""
    rho = np.linspace(-90 * bar, 90 * bar, 40_001)
    logs = []
    for values in (here, there):
        log = laplace(bar).logpdf(rho)
        for (value, bit), times in Counter(zip(values, outcome, strict=True)).items():
            noise = laplace(query)
            each = noise.logsf(rho - value) if bit else noise.logcdf(rho - value)
            log = log + times * each
        logs.append(np.logaddexp.reduce(log))
    return float(abs(logs[0] - logs[1]))


EPSILON = 1.0


def test_variants_are_drawn_as_they_are_integrated() -> None:
    """Each function against its law, so that what is proven of the law is true of the code."""
    draw = np.random.default_rng(8)
    noise = [
        (variants.algorithm_1, 2, 2.0, 8.0),
        (variants.algorithm_4, 2, 4.0, 4 / 3),
        (variants.algorithm_6, math.inf, 2.0, 2.0),
    ]
    for algorithm, count, bar, query in noise:
        seen = Counter(
            (*(str(int(a)) for a in answers), *["-"] * (3 - len(answers)))
            for answers in (
                algorithm(VALUES, 0.0, EPSILON, 2, lambda b: draw.laplace(scale=b))
                for _ in range(3_000)
            )
        )
        assert accepted(seen, law(VALUES, count, laplace(bar), laplace(query)))
        assert not accepted(seen, law(VALUES, count, laplace(bar), laplace(query / 3)))


def test_algorithm_1_keeps_its_claim() -> None:
    for count in (1, 2):
        noise = laplace(2 / EPSILON), laplace(4 * count / EPSILON)
        for values in ((0.0, 0.0, 0.0), (30.0, 30.0, -30.0)):
            p = law(values, count, *noise)
            for move in itertools.product((-1, 1), repeat=3):
                assert ratio(p, law(np.add(values, move), count, *noise)) <= EPSILON + 1e-4
    long = [60.0] * 200 + [0.0]
    neighbour = [61.0] * 200 + [-1.0]
    log_ratio = long_run(long, neighbour, [0] * 200 + [1], 2.0, 4.0)
    assert 0.99 < log_ratio <= EPSILON + 1e-6


def test_algorithm_2_keeps_its_claim() -> None:
    """The noise is drawn anew after each positive answer, so the segments' laws multiply."""
    count = 2
    bar, query = laplace(2 * count / EPSILON), laplace(4 * count / EPSILON)
    worst = 0.0
    for values in ((0.0, 0.0), (30.0, -30.0), (5.0, 5.0)):
        p = law(values, 1, bar, query)
        for move in itertools.product((-1, 0, 1), repeat=2):
            worst = max(worst, ratio(p, law(np.add(values, move), 1, bar, query)))
    assert count * worst <= EPSILON + 1e-4
    segment = long_run([60.0] * 200 + [0.0], [61.0] * 200 + [-1.0], [0] * 200 + [1], 4.0, 8.0)
    assert 0.98 < count * segment <= EPSILON + 1e-6


def test_algorithm_3_breaks_its_claim() -> None:
    """Below ten times, then the number 0: the noise on the threshold is then at most 0.

    There ``F(rho)/F(rho - 1)`` is ``e^{1/b}`` for each answer below, whatever rho is.
    """
    count, below = 1, 10
    scale = 2 * count / EPSILON
    rho = np.linspace(-200, 0, 200_001)
    weight = np.exp(-np.abs(rho) * EPSILON / 2)
    here = (weight * laplace(scale).cdf(rho) ** below).sum() * laplace(scale).pdf(0 - 1)
    there = (weight * laplace(scale).cdf(rho - 1) ** below).sum() * laplace(scale).pdf(0 - 0)
    assert math.log(here / there) == pytest.approx((below - 1) / scale)
    assert math.log(here / there) > 4 * EPSILON
    draw = np.random.default_rng(1)
    answers = variants.algorithm_3(
        [0.0] * 9 + [99.0], 0.0, 50.0, 1, lambda b: draw.laplace(scale=b)
    )
    assert answers[-1] not in (True, False)


def test_algorithm_4_breaks_its_claim() -> None:
    """``(1 + 6c)/4`` times its epsilon, nearly attained by long runs."""
    for count in (1, 3):
        far = [60.0] * 400 + [0.0] * count
        neighbour = [61.0] * 400 + [-1.0] * count
        log_ratio = long_run(far, neighbour, [0] * 400 + [1] * count, 4.0, 4 / 3)
        assert 0.95 * (1 + 6 * count) / 4 < log_ratio <= (1 + 6 * count) / 4 * EPSILON + 1e-6
        assert log_ratio > 1.5 * EPSILON


def test_algorithm_5_breaks_its_claim() -> None:
    """E32: .197 against an impossible answer."""
    rho = np.linspace(-60, 60, 1_200_001)
    weight = np.exp(-np.abs(rho) / 2) / 4 * (rho[1] - rho[0])
    here = weight[(rho > 0) & (rho <= 1)].sum()  # 0 below, then 1 above
    there = weight[(rho > 1) & (rho <= 0)].sum()  # 1 below, then 0 above
    assert here == pytest.approx(0.197, abs=5e-4)
    assert there == 0
    draw = np.random.default_rng(2)

    def laplace(scale: float) -> float:
        return float(draw.laplace(scale=scale))

    seen = [
        sum(variants.algorithm_5(v, 0.0, EPSILON, 1, laplace) == [False, True] for _ in range(4000))
        for v in ((0.0, 1.0), (1.0, 0.0))
    ]
    assert stats.binomtest(seen[0], 4000, float(here)).pvalue > ALPHA
    assert seen[1] == 0


def test_the_mechanism_itself_answers_the_same_question_within_its_claim() -> None:
    """E32's two queries, noise on both: the exact ratio at epsilon 1."""
    noise = laplace(2.0), laplace(4.0)
    p, q = (law(v, 1, *noise) for v in ((0.0, 1.0), (1.0, 0.0)))
    assert abs(math.log(p["0", "1"] / q["0", "1"])) == pytest.approx(0.396, abs=5e-4)


def test_algorithm_6_breaks_its_claim() -> None:
    """m answers below and m above: the loss grows with m without end."""
    log_ratios = []
    for half in (5, 20, 80):
        here, there = [0.0] * half + [1.0] * half, [1.0] * half + [0.0] * half
        log_ratios.append(long_run(here, there, [0] * half + [1] * half, 2.0, 2.0))
    assert log_ratios == sorted(log_ratios)
    assert log_ratios[1] > 3 * EPSILON
    assert log_ratios[2] > 10 * EPSILON
