"""Exact second moments in one pass, and what is released of them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.data import MemoryRows
from adaptive_dp.data.rows import BLOCK
from adaptive_dp.graph.handles import Private, PrivateQuery
from adaptive_dp.graph.operation import Change
from adaptive_dp.learning.base import regression
from adaptive_dp.queries.moments import (
    CrossOfMoments,
    EigenvalueOfMoments,
    GramOfMoments,
    MomentsDomain,
    MomentsOf,
)

COLUMNS = {"a": (0.0, 1.0), "b": (-3.0, 5.0), "c": (2.0, 2.0), "y": (-1.0, 3.0)}
NAMES = ("a", "b", "c")
PARTS = (GramOfMoments(), CrossOfMoments(), EigenvalueOfMoments())


class Bare(dp.Mechanism):
    """Releases the value itself, so that a test can look at it."""

    def release(self, value, stream):
        return np.array(value)

    def loss(self, distance):
        return accountants.Gaussian(distance)


def made(count, seed=0):
    """Return rows in, at and outside of their bounds, some of them no numbers."""
    draw = np.random.default_rng(seed)
    data = {n: draw.uniform(lo - 0.2, hi + 0.2, count) for n, (lo, hi) in COLUMNS.items()}
    for i, odd in enumerate((math.nan, math.inf, -math.inf, 1e308, -1e308)):
        for name in COLUMNS:
            data[name][draw.integers(0, count, 2 + i)] = odd
    return data


def fit(norm=None, **kind):
    table = dp.dataset("t", columns=COLUMNS, **kind)
    return regression(table, NAMES, "y", norm)


def moments_of(rows, data):
    """Return the integers that the plan's transforms make."""
    chain = [rows.data]
    while chain[-1].inputs:
        chain.append(chain[-1].inputs[0])
    value = chain.pop().operation.bind(data)
    for handle in reversed(chain):
        value = handle.operation.run([value], None)
    return value


def by_hand(data, radius):
    """Return the exact moments of rows in steps of 2^-19, in rationals but for the roundings."""
    there = ~np.isnan([data[name] for name in NAMES]).any(axis=0)
    columns = [[Fraction(1)] * int(there.sum())]
    for name in NAMES:
        columns.append([on_unit(float(v), COLUMNS[name]) for v in np.asarray(data[name])[there]])
    rounded = [[round(v * 2**19 / Fraction(radius)) for v in column] for column in columns]
    targets = np.asarray(data["y"])[there]
    rounded.append([round(on_unit(float(v), COLUMNS["y"]) * 2**19) for v in targets])
    return [[sum(a * b for a, b in zip(x, y, strict=True)) for x in rounded] for y in rounded]


def on_unit(value, bounds):
    low, high = map(Fraction, bounds)
    if low == high:
        return Fraction(0)
    clipped = Fraction(0) if math.isnan(value) else value
    exact = high if clipped == math.inf else low if clipped == -math.inf else Fraction(clipped)
    return (2 * min(max(exact, low), high) - low - high) / (high - low)


def test_the_moments_are_those_of_rows_rounded_to_steps():
    """But for a tie in the rounding, which a last bit decides: none is among these."""
    data = made(300)
    rows = fit()
    moments = moments_of(rows, data)
    assert [[int(v) for v in row] for row in moments] == by_hand(data, rows.radius)


@pytest.mark.parametrize("norm", [None, 0.8, 1.3, 5.0])
def test_a_row_adds_the_same_wherever_it_stands(norm):
    """To the last bit, over block boundaries: in any order, in parts, and with it or without it."""
    count = 2 * BLOCK + 3
    data, rows = made(count), fit(norm)
    everything = moments_of(rows, data)
    order = np.random.default_rng(1).permutation(count)
    assert (moments_of(rows, {k: v[order] for k, v in data.items()}) == everything).all()
    for cut in (1, 777, BLOCK, BLOCK + 1):
        parts = [{k: v[s] for k, v in data.items()} for s in (slice(cut), slice(cut, None))]
        assert (sum(moments_of(rows, p) for p in parts) == everything).all()
    for k in (0, BLOCK - 1, count - 1):
        rest = {name: np.delete(v, k) for name, v in data.items()}
        one = {name: v[k : k + 1] for name, v in data.items()}
        assert (moments_of(rows, rest) + moments_of(rows, one) == everything).all()


@pytest.mark.parametrize("norm", [None, 0.8, 1.3, 5.0])
@pytest.mark.parametrize("scale", [1.0, 1e-99, 1e-120, 1e-300, 5e-324, 1e289])
def test_no_row_leaves_the_unit_ball(norm, scale):
    """Whatever it holds, at whatever bounds: its share is of trace at most 1, exactly."""
    columns = {n: (lo * scale, hi * scale) for n, (lo, hi) in COLUMNS.items()}
    table = dp.dataset("t", columns=columns)
    ways = [fit(norm), regression(table, NAMES, "y", norm)]
    vectors = table.vectors(["a", "b"])
    if 1e-150 < scale < 1e100:  # unscaled, where the radius is that of the bounds, or twice as much
        for radius in (vectors.domain.radius, 2 * vectors.domain.radius):
            node = Private(MomentsOf(radius, "y", table.domain.interval("y")), (vectors,))
            ways.append(type(ways[0])(("a", "b"), [], [], radius, node))
    corners = [math.nan, math.inf, -math.inf, 1e308, 0.0, -0.0, 5e-324]
    corners += [end * scale for bounds in COLUMNS.values() for end in bounds]
    for rows in ways:
        for first in corners:
            for second in corners:
                data = {"a": [first], "b": [second], "c": [second], "y": [first]}
                moments = moments_of(rows, {k: np.array(v) for k, v in data.items()})
                assert 0 <= sum(moments.diagonal()[:-1]) <= 2**38
                assert 0 <= moments[-1, -1] <= 2**38


def plan_of(rows, parts):
    released = {type(p).kind: rows.query(p).release(Bare()) for p in parts}
    return dp.Pipeline(**released)


@pytest.mark.parametrize("norm", [None, 1.3])
def test_parts_of_one_pass_are_those_of_passes_of_their_own(norm, monkeypatch):
    passes = []
    scan = MemoryRows.scan
    monkeypatch.setattr(MemoryRows, "scan", lambda s, *a: (passes.append(1), scan(s, *a))[1])
    data = made(BLOCK + 9)
    together = plan_of(fit(norm), PARTS).simulate(seed=0, t=data)
    assert len(passes) == 1
    for part in PARTS:
        alone = plan_of(fit(norm), [part]).simulate(seed=0, t=data)
        assert np.array_equal(alone[part.kind], together[part.kind])
    assert len(passes) == 4


def test_adassp_passes_over_the_rows_once(monkeypatch):
    passes = []
    scan = MemoryRows.scan
    monkeypatch.setattr(MemoryRows, "scan", lambda s, *a: (passes.append(1), scan(s, *a))[1])
    table = dp.dataset("t", columns=COLUMNS)
    plan = dp.Pipeline(f=table.solve(dp.AdaSSP(NAMES, "y"), epsilon=1.0, delta=1e-6))
    plan.with_delta(1e-6).run(t=made(100))
    assert len(passes) == 1


def test_parts_are_those_of_numpy():
    draw = np.random.default_rng(3)
    data = {n: draw.uniform(*bounds, 900) for n, bounds in COLUMNS.items()}
    rows = fit()
    released = plan_of(rows, PARTS).simulate(seed=0, t=data)
    x = np.column_stack([np.ones(900), 2 * data["a"] - 1, (data["b"] - 1) / 4, np.zeros(900)])
    x, y = x / rows.radius, (data["y"] - 1) / 2
    # each entry of a row is off by half a step
    close = {"rtol": 0, "atol": 900 * 2.0**-18}
    np.testing.assert_allclose(released["gram_of_moments"], x.T @ x, **close)
    np.testing.assert_allclose(released["cross_of_moments"], x.T @ y, **close)
    least = np.linalg.eigvalsh((x.T @ x)[:3, :3])[0]
    assert released["eigenvalue_of_moments"] == pytest.approx(0.0, abs=4 * 900 * 2.0**-18)
    small = regression(dp.dataset("t", columns=COLUMNS), ("a", "b"), "y", None)
    released = plan_of(small, PARTS).simulate(seed=0, t=data)["eigenvalue_of_moments"]
    assert released == pytest.approx(least * (rows.radius / small.radius) ** 2, abs=0.01)


@pytest.mark.parametrize("times", [1, 10**6, 2**29, 2**30, 10**10, 10**15])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_the_rounding_of_totals_is_within_the_sensitivity(times, width):
    """Of many equal rows and one that comes, goes or is exchanged, in rationals."""
    draw = np.random.default_rng(width)
    domain, one = MomentsDomain(width), 2**19
    for _ in range(8):
        crowd = integer_rows(draw.uniform(-1, 1, (4, width + 1)), one)
        ends = integer_rows(draw.choice([-1.0, 1.0], (2, width + 1)), one)
        outer = [np.multiply.outer(row, row) for row in (*crowd, *ends)]
        many = sum(outer[:4]) * times
        for change, other in ((Change(False, 1, False, 1), many), (None, many + outer[5])):
            change = change or Change(True, 1, True, 2)
            for part in PARTS:
                a, b = (np.atleast_1d(part.run([m], None)) for m in (many + outer[4], other))
                by = [Fraction(float(u)) - Fraction(float(v)) for u, v in zip(a, b, strict=True)]
                for norm, size in (
                    (1, sum(map(abs, by))),
                    (2, math.sqrt(sum(v * v for v in by))),
                    (math.inf, max(map(abs, by))),
                ):
                    assert size <= part.sensitivity(domain, change, norm)


def integer_rows(rows, one):
    """Return rows, features shortened into the unit ball, as Python integers."""
    rows = rows.copy()
    rows[:, :-1] /= np.maximum(1, np.linalg.norm(rows[:, :-1], axis=1, keepdims=True)) * (1 + 1e-5)
    return np.array([[int(v * one) for v in row] for row in rows], dtype=object)


def test_queries_of_moments_are_queries():
    rows = fit()
    for part in PARTS:
        query = rows.query(part)
        assert isinstance(query, PrivateQuery)
        assert query.operation.label() in repr(query)
