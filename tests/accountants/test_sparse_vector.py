"""Sparse vector: the law of every transcript by integration over the threshold's noise."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from accountants import DomainError, Repeated, Spend, certify
from accountants.losses.pure import Pure
from accountants.losses.sparse_vector import GaussianSparseVector, SparseVector, log_transcripts

ORDERS = np.array([1.05, 1.5, 2.0, 4.0, 16.0])


@functools.lru_cache(maxsize=32)
def tails(answer, threshold, query):  # type: ignore[no-untyped-def]
    """Chances that a noisy answer is above and below each noisy threshold, and its weights."""
    wide = threshold.std() * 30
    # smooth laws need fewer points than those with a corner
    rho = np.linspace(-wide, wide, 20001 if threshold.dist.name == "laplace" else 3001)
    weight = threshold.pdf(rho) * (rho[1] - rho[0])
    return query.sf(rho - answer), query.cdf(rho - answer), weight


def transcripts(answers, hits, threshold, query):  # type: ignore[no-untyped-def]
    """The law of all transcripts at threshold 0; noises are frozen scipy distributions."""
    above, below, (weight, *_) = zip(*(tails(q, threshold, query) for q in answers), strict=True)
    law = []
    for outcome in itertools.product((0, 1), repeat=len(answers)):
        ended = [i for i in range(len(answers)) if sum(outcome[: i + 1]) == hits]
        length = ended[0] + 1 if ended else len(answers)
        if any(outcome[length:]):
            continue  # counted once, with zeros after its end
        chance = weight
        for i in range(length):
            chance = chance * (above[i] if outcome[i] else below[i])
        law.append(chance.sum())
    assert abs(sum(law) - 1) < 1e-5
    return np.array(law)


def stopped(answers, neighbour, threshold, query):  # type: ignore[no-untyped-def]
    """The chance that all but the last of the answers are below and the last is above."""
    wide = threshold.std() * 60
    rho = np.linspace(-wide, wide, 40001)
    logs = []
    for values in (answers, neighbour):
        log = threshold.logpdf(rho) + query.logsf(rho - values[-1])
        for value, times in zip(*np.unique(values[:-1], return_counts=True), strict=True):
            log = log + times * query.logcdf(rho - value)
        logs.append(np.logaddexp.reduce(log))
    return abs(logs[0] - logs[1])


def neighbours(answers, monotone):  # type: ignore[no-untyped-def]
    steps = [(0.0, 1.0), (0.0, -1.0), (-0.5, 0.5)] if monotone else [(1.0, -1.0, 0.0)]
    for step in steps:
        for move in itertools.product(step, repeat=len(answers)):
            yield [q + m for q, m in zip(answers, move, strict=True)]


VECTORS = [(0.0, 0.0), (3.0, -2.0), (0.5, 4.0, -1.0), (-6.0, 6.0, 6.0)]


def divergences(p, q):  # type: ignore[no-untyped-def]
    log_p, log_q = np.log(p), np.log(q)
    return np.array([np.logaddexp.reduce(a * log_p + (1 - a) * log_q) / (a - 1) for a in ORDERS])


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2])
@pytest.mark.parametrize("split", [(0.5, 0.5), (0.2, 1.8), (2.0, 1.0)])
def test_laplace_loss_is_never_exceeded(split, hits, monotone) -> None:  # type: ignore[no-untyped-def]
    loss = SparseVector(*split, hits=hits, monotone=monotone)
    first, second, _ = loss.scales()
    noise = (stats.laplace(scale=first), stats.laplace(scale=second))
    for answers in VECTORS:
        p = transcripts(answers, hits, *noise)
        for neighbour in neighbours(answers, monotone):
            q = transcripts(neighbour, hits, *noise)
            assert np.abs(np.log(p / q)).max() <= loss.pure() + 1e-5
            for one, other in ((p, q), (q, p)):
                assert np.all(divergences(one, other) <= loss.renyi(ORDERS) + 1e-5)


@pytest.mark.parametrize("monotone", [False, True])
def test_laplace_loss_is_nearly_attained(monotone: bool) -> None:
    loss = SparseVector(0.5, 0.5, monotone=monotone)
    first, second, _ = loss.scales()
    noise = (stats.laplace(scale=first), stats.laplace(scale=second))
    # a hundred answers that are surely above unless the threshold is high, then one far below
    answers = [40.0] * 100 + [0.0]
    above = [41.0] * 100 + [0.0 if monotone else -1.0]
    assert 0.99 * loss.pure() <= stopped(answers, above, *noise) <= loss.pure() + 1e-6
    below = [39.0] * 100 + [0.0 if monotone else 1.0]
    assert stopped(answers, below, *noise) <= loss.pure() + 1e-6


def test_noise_on_the_threshold_alone_is_not_private() -> None:
    """E32: with no noise on the query a transcript is impossible on one side only."""
    rho = np.linspace(-40, 40, 80001)
    weight = np.exp(-np.abs(rho)) / 2 * (rho[1] - rho[0])
    # two queries: the first below, the second above
    here = (weight * ((rho > 0.0) & (rho <= 1.0))).sum()
    there = (weight * ((rho > 1.0) & (rho <= 0.0))).sum()
    assert here > 0.1
    assert there == 0


def test_scales_are_those_of_the_algorithm() -> None:
    assert SparseVector(0.5, 0.5).scales() == (2.0, 4.0, math.inf)
    assert SparseVector(0.5, 0.5, hits=4, monotone=True).scales() == (2.0, 8.0, math.inf)
    loss = SparseVector(0.25, 0.5, numbers=0.25, hits=3)
    assert loss.pure() == 1.0
    assert loss.scales()[2] == 12.0
    for part in loss.scales():
        assert part > 0


def test_laplace_grouped_and_ordered() -> None:
    loss = SparseVector(0.1, 0.2, hits=3)
    assert loss.grouped(1) == loss
    assert 0.9 <= loss.grouped(3).pure() <= 0.9 * (1 + 1e-14)
    assert loss.grouped(3).dominates(loss)
    assert not loss.dominates(loss.grouped(3))
    assert not loss.dominates(SparseVector(0.1, 0.2, hits=2))
    whole, alike = (SparseVector(0.1, 0.2, 0.3, monotone=m) for m in (False, True))
    assert (whole.pure(), alike.pure()) == pytest.approx((0.6, 0.5), rel=1e-15)
    assert whole.dominates(alike)
    assert not alike.dominates(whole)


def test_laplace_under_every_accountant() -> None:
    loss = SparseVector(0.05, 0.1)
    answers = certify(Repeated(Spend(loss), 30), 1e-6)
    worst = certify(Repeated(Spend(Pure(loss.pure())), 30), 1e-6)
    for name, answer in answers.items():
        assert answer.bounds is not None, name
        assert answer.bounds.lower == 0.0
        assert answer.bounds.upper <= worst[name].bounds.upper * (1 + 1e-9) + 1e-12  # type: ignore[union-attr]


# --- Gaussian


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("hits", [1, 2])
@pytest.mark.parametrize("sigmas", [(1.0, 1.0), (2.0, 4.0), (0.7, 3.0), (6.0, 2.0)])
def test_gaussian_curve_is_never_exceeded(sigmas, hits, monotone) -> None:  # type: ignore[no-untyped-def]
    noise = (stats.norm(scale=sigmas[0]), stats.norm(scale=sigmas[1]))
    for answers in VECTORS:
        loss = GaussianSparseVector(*sigmas, len(answers), hits, monotone)
        curve = loss.renyi(ORDERS)
        p = transcripts(answers, hits, *noise)
        for neighbour in neighbours(answers, monotone):
            q = transcripts(neighbour, hits, *noise)
            for one, other in ((p, q), (q, p)):
                assert np.all(divergences(one, other) <= curve + 1e-5), (answers, neighbour)


@pytest.mark.parametrize("moves", [(0.01, 0.0), (0.5, 0.5), (0.1, 0.4), (0.0, 0.3), (2.0, 0.0)])
@pytest.mark.parametrize("queries", [1, 3, 50])
def test_transcripts_of_one_hit_are_bounded_at_every_threshold(moves, queries) -> None:  # type: ignore[no-untyped-def]
    """The best of all strategies, by dynamic programming over a grid of answers and moves."""
    x = np.linspace(-12, 40, 2601)[:, None]
    change = np.linspace(-moves[1], moves[0], 5)[None, :]
    survive, fail = stats.norm.logsf(x), stats.norm.logcdf(x)
    other, otherwise = stats.norm.logsf(x + change), stats.norm.logcdf(x + change)
    for order in (1.01, 1.5, 3.0, 6.0):
        hit = np.exp(order * survive + (1 - order) * other)
        still = np.exp(order * fail + (1 - order) * otherwise)
        worst = 1.0
        for _ in range(queries):
            worst = max(float((hit + still * worst).max()), worst)
        bound = log_transcripts(order, *moves, queries)
        assert math.log(worst) <= bound
        # above that another shift is better, or the moment of both Gaussians
        assert worst > 1e6 or math.expm1(bound) <= 1.25 * (worst - 1)


@pytest.mark.parametrize(("monotone", "louder"), [(False, 2), (True, 2), (True, 10)])
def test_gaussian_curve_is_nearly_attained(monotone: bool, louder: int) -> None:
    """Queries of which half go up and half down, at the level where that is worst."""
    noise, count = (stats.norm(scale=20.0 / louder), stats.norm(scale=20.0)), 40
    rho = np.linspace(-160 / louder, 160 / louder, 801)
    weight = noise[0].pdf(rho) * (rho[1] - rho[0])
    halves, turns = np.repeat([1.0, 0.0], count // 2), np.tile([1.0, -1.0], count // 2)
    # moves that are not all of one direction, but no farther apart, count as monotone
    patterns = [halves, halves - 0.5, turns / 2] if monotone else [2 * halves - 1, turns]
    largest = np.zeros(len(ORDERS))
    for level, moves in itertools.product((-60.0, -40.0, -30.0, -20.0, -10.0), patterns):
        laws = []
        for values in (level + 0 * moves, level + moves):
            below = noise[1].logcdf(rho - values[:, None])
            before = np.cumsum(below, axis=0) - below
            stops = np.exp(before + noise[1].logsf(rho - values[:, None])) @ weight
            laws.append(np.append(stops, np.exp(below.sum(axis=0)) @ weight))
        both = (divergences(*laws), divergences(*laws[::-1]))
        largest = np.maximum(largest, np.maximum(*both))
    curve = GaussianSparseVector(20.0 / louder, 20.0, count, monotone=monotone).renyi(ORDERS)
    assert np.all(largest <= curve + 1e-7)
    # with so little on the threshold the worst is that all move alike, which is not tried here
    assert louder > 2 or np.all(curve <= 1.6 * largest)


def test_gaussian_curve_rises_with_queries_and_falls_with_noise() -> None:
    curves = [GaussianSparseVector(5.0, 10.0, k).renyi(ORDERS) for k in (1, 2, 10, 10**6, 10**200)]
    for less, more in itertools.pairwise(curves):
        assert np.all(less <= more)
    louder = GaussianSparseVector(10.0, 20.0, 10).renyi(ORDERS)
    assert np.all(louder <= curves[2])
    assert np.all(np.diff(curves[2]) >= 0)


def test_few_queries_cost_no_more_than_their_release() -> None:
    loss = GaussianSparseVector(1e-3, 4.0, 3)
    assert np.all(loss.renyi(ORDERS) <= ORDERS * 3 / 32 * (1 + 1e-12))


@pytest.mark.parametrize("noise", [1e-100, 1e-3, 1e9, 1e100, 1e300])
def test_gaussian_at_extremes(noise: float) -> None:
    curve = GaussianSparseVector(noise, noise, 1000, 5).renyi(np.array([1 + 1e-9, 2.0, 1e9]))
    assert np.all(curve >= 0)
    assert not np.any(np.isnan(curve))


def test_gaussian_under_every_accountant() -> None:
    loss = GaussianSparseVector(20.0, 40.0, 1000)
    answers = certify(Repeated(Spend(loss), 5), 1e-6)
    for name in ("basic", "advanced", "renyi"):
        bounds = answers[name].bounds
        assert bounds is not None
        assert bounds.lower == 0.0
        assert bounds.upper < math.inf
    assert answers["gaussian"].bounds is None
    assert answers["concentrated"].bounds is None
    assert answers["renyi"].bounds.upper < answers["basic"].bounds.upper  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "make",
    [
        lambda: SparseVector(0.0, 1.0),
        lambda: SparseVector(1.0, math.inf),
        lambda: SparseVector(1.0, 1.0, hits=0),
        lambda: SparseVector(1.0, 1.0, numbers=-1.0),
        lambda: SparseVector(1.0, 1.0, monotone=1),  # type: ignore[arg-type]
        lambda: GaussianSparseVector(0.0, 1.0, 1),
        lambda: GaussianSparseVector(1e-200, 1.0, 1),
        lambda: GaussianSparseVector(1.0, 1.0, 0),
        lambda: GaussianSparseVector(1.0, 1.0, 1, monotone="no"),  # type: ignore[arg-type]
    ],
)
def test_bad_parameters(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError):
        make()
