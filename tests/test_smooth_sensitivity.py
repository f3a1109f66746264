"""Local sensitivities at every distance, and smooth sensitivities, against brute force."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from adaptive_dp.graph.mechanism import FOREVER, SLACK, LocalSensitivity
from adaptive_dp.queries.order_statistics import QuantileSensitivity

POINTS = (0.0, 0.75, 2.5, 4.0)
"""The universe: [0, 4] with both ends, and points between."""

Data = tuple[float, ...]


def data_sets(sizes: Iterable[int]) -> list[Data]:
    return [x for n in sizes for x in itertools.combinations_with_replacement(POINTS, n)]


def neighbours(x: Data, exchange: bool) -> set[Data]:
    without = {tuple(v for j, v in enumerate(x) if j != i) for i in range(len(x))}
    if exchange:
        return {tuple(sorted((*y, z))) for y in without for z in POINTS}
    return without | {tuple(sorted((*x, z))) for z in POINTS}


class Brute:
    """Every local sensitivity of f on a universe of small data sets."""

    def __init__(self, f: Callable[[Data], float], sizes: Iterable[int], exchange: bool) -> None:
        self.exchange = exchange
        self.sets = data_sets(sizes)
        self.jump = {
            x: max((abs(f(x) - f(y)) for y in neighbours(x, exchange)), default=0.0)
            for x in self.sets
        }

        self.counts = np.array([[x.count(v) for v in POINTS] for x in self.sets])
        self.jumps = np.array([self.jump[x] for x in self.sets])

    def locals(self, x: Data, last: int) -> list[float]:
        apart = np.abs(self.counts - [x.count(v) for v in POINTS]).sum(axis=1)
        apart = apart // 2 if self.exchange else apart
        return [float(self.jumps[apart <= k].max()) for k in range(last + 1)]


def quantile(x: Data, q: float) -> float:
    rank = math.ceil(round(q * 1000) * len(x) / 1000)  # exact: few rows, thousandths
    return (0.0, *sorted(x))[rank]


def of(x: Data, q: float, exchange: bool) -> QuantileSensitivity:
    return QuantileSensitivity(np.array(sorted(x)), 0.0, 4.0, q, exchange)


QUANTILES = [0.5, 0.25, 0.9, 0.333, 0.001, 0.999]


@pytest.mark.parametrize("q", QUANTILES)
def test_rows_exchanged_against_brute_force(q: float) -> None:
    for n in range(1, 6):
        brute = Brute(lambda x: quantile(x, q), [n], exchange=True)
        for x in brute.sets:
            ours = of(x, q, True)
            assert ours.value == quantile(x, q)
            assert [ours.local(k) for k in range(n + 1)] == brute.locals(x, n)


@pytest.mark.parametrize("q", QUANTILES)
def test_rows_added_or_removed_against_brute_force(q: float) -> None:
    brute = Brute(lambda x: quantile(x, q), range(9), exchange=False)
    for x in data_sets(range(5)):
        ours = of(x, q, False)
        assert ours.value == quantile(x, q)
        room = 8 - len(x)
        assert [ours.local(k) for k in range(room + 1)] == brute.locals(x, room), x


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 40, 41])
def test_beyond_last_nothing_grows(n: int, exchange: bool) -> None:
    draw = np.random.default_rng(n)
    for q in (0.5, 0.05, 0.95):
        ours = QuantileSensitivity(np.sort(draw.uniform(1, 2, n)), 0.0, 4.0, q, exchange)
        sensitivities = [ours.local(k) for k in range(ours.max_distance + 3)]
        assert sensitivities == sorted(sensitivities)
        assert sensitivities[ours.max_distance] == 4.0


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("q", [0.5, 0.3, 0.9])
def test_smooth_sensitivity_is_the_maximum_and_smooth_on_all_neighbours(
    q: float, exchange: bool
) -> None:
    beta = 0.3

    def smooth(x: Data) -> float:
        return of(x, q, exchange).smooth(beta)

    for x in data_sets(range(5)):
        ours = of(x, q, exchange)
        exact = max(math.exp(-beta * k) * ours.local(k) for k in range(ours.max_distance + 1))
        assert exact <= smooth(x) <= exact * (1 + SLACK)
        for y in neighbours(x, exchange):
            assert smooth(x) <= math.exp(beta) * smooth(y) * (1 + SLACK)
            assert abs(quantile(x, q) - quantile(y, q)) <= min(smooth(x), smooth(y))


def test_the_reference() -> None:
    ours = QuantileSensitivity(np.array([0.1, 0.2, 0.35, 0.5, 0.55, 0.8, 0.9]), 0.0, 1.0, 0.5, True)
    assert ours.local(0) == pytest.approx(0.15)
    assert ours.smooth(0.5) == pytest.approx(0.18196, abs=5e-6)


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("beta", [1e-9, 1e-3, 0.01, 0.3, 5.0])
def test_the_search_finds_the_maximum_on_odd_data(beta: float, exchange: bool) -> None:
    draw = np.random.default_rng(3)
    shapes = [
        np.zeros(301),
        np.repeat([0.0, 1.0], 150),
        np.sort(draw.beta(0.1, 0.1, 300)),
        np.sort(np.round(draw.uniform(size=300), 1)),
        np.sort(draw.pareto(0.3, 300).clip(0, 1)),
    ]
    for values in shapes:
        for q in (0.5, 0.02):
            ours = QuantileSensitivity(values, 0.0, 1.0, q, exchange)
            every = [ours.local(k) for k in range(ours.max_distance + 1)]
            exact = max(math.exp(-beta * k) * a for k, a in enumerate(every))
            assert exact <= ours.smooth(beta) <= exact * (1 + SLACK)
            flat = max(a - beta * k for k, a in enumerate(every))
            assert flat <= ours.linear(beta) <= flat * (1 + SLACK) + 1e-300
            for bound in (0.0, 0.05, 0.5, 1.0):
                first = next((k for k, a in enumerate(every) if a > bound), FOREVER)
                assert ours.distance_above(bound) == first
            assert ours.smooth(beta, least=0.7) == max(0.7, exact) * (1 + SLACK / 2)


def test_additive_envelope_moves_by_its_slope() -> None:
    for exchange in (True, False):
        for x in data_sets(range(5)):
            for y in neighbours(x, exchange):
                a, b = (of(z, 0.5, exchange).linear(0.7) for z in (x, y))
                assert abs(a - b) <= 0.7 * (1 + 1e-9)
                assert of(x, 0.5, exchange).linear(0.7) >= of(x, 0.5, exchange).local(0)


@pytest.mark.parametrize("exchange", [True, False])
def test_extreme_values(exchange: bool) -> None:
    tiny = QuantileSensitivity(np.array([0.0, 5e-324, 5e-324]), 0.0, 5e-324, 0.5, exchange)
    assert 5e-324 <= tiny.smooth(0.1) <= 1e-323
    huge = QuantileSensitivity(np.array([-9e289, 0.0, 9e289]), -9e289, 9e289, 0.5, exchange)
    assert 9e289 <= huge.smooth(0.1) <= 1.8e290 * 1.01
    point = QuantileSensitivity(np.full(3, 2.0), 2.0, 2.0, 0.5, exchange)
    assert point.smooth(0.1) == 0.0


def test_ten_million_values_take_little_time() -> None:
    """Two seconds are the limit for all of it on one core; here twice that, on a busy machine."""
    values = np.random.default_rng(0).lognormal(3, 1, 10**7).clip(0, 100)
    start = time.process_time()
    ours: LocalSensitivity = QuantileSensitivity(np.sort(values), 0.0, 100.0, 0.5, False)
    for beta in (0.1, 1e-3):
        assert ours.smooth(beta, least=1e-7) >= ours.local(0)
    assert time.process_time() - start < 4
