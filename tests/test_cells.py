"""Sums of integers by cell, and bins of columns, against Python integers and comparisons."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.data import MemoryRows
from adaptive_dp.data.scan import MORE_ROWS, Cells, Job, RowFunction, RowSum, Scan, total_of
from adaptive_dp.queries.domains import ColumnValues, Interval
from adaptive_dp.queries.sums import Steps
from adaptive_dp.queries.transforms import BinLookup, bin_index

INDEX, WEIGHTS = ColumnValues("index"), ColumnValues("weights")


class Together(RowFunction):
    """The columns w0, w1, ... as one array."""

    def __init__(self, width, order):
        self.width, self.order = width, order

    def __call__(self, columns):
        parts = [columns[f"w{j}"] for j in range(self.width)]
        return np.asarray(np.stack(parts, axis=1), order=self.order)


def summed(columns, cells):
    rows = len(next(iter(columns.values())))
    return total_of(RowSum(MemoryRows(columns, np.arange(rows)), cells, list))


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
@examples(60)
@given(st.data())
def test_cells(dtype, order, data):
    count = data.draw(st.sampled_from([1, 2, 7, 40, 10**5]))  # fewer and more than rows
    width, counted = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    size = data.draw(st.sampled_from([0, 1, 5, 60, MORE_ROWS + 3]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    columns = {"index": rng.integers(-1, count, size)}
    for j in range(width):
        columns[f"w{j}"] = rng.integers(-(2**24), 2**24, size, endpoint=True).astype(dtype)
    indexed = data.draw(st.booleans())
    cells = Cells(
        count if indexed else 1,
        INDEX if indexed else None,
        Together(width, order),
        width + counted,
        counted,
    )
    expected = {}
    for i, at in enumerate(columns["index"].tolist() if indexed else [0] * size):
        if at >= 0:
            row = [int(columns[f"w{j}"][i]) for j in range(width)] + [1] * counted
            expected[at] = [a + b for a, b in zip(expected.get(at, [0] * 9), row, strict=False)]
    sums = np.array(summed(columns, cells)).reshape(cells.count, cells.width)
    for at, row in expected.items():
        assert sums[at].tolist() == row
    assert not np.delete(sums, list(expected), axis=0).any()


def test_totals_beyond_64_bits(monkeypatch):
    """Where int64 might overflow, a total becomes Python integers; so it does here at once."""
    index, weights = np.array([0, 1, -1, 0]), np.array([2**24, -(2**24), 5, 1])
    scan = Scan([Job((), Cells(2, INDEX, WEIGHTS)), Job((), Cells(1, None, WEIGHTS, 2, True))])
    monkeypatch.setattr("adaptive_dp.data.scan.WEIGHT_BITS", 61)
    totals = scan.of([({"index": index, "weights": weights}, 4)] * 10)
    assert [v.tolist() for v in totals] == [[10 * (2**24 + 1), -10 * 2**24], [60, 40]]


BOUND = st.one_of(st.floats(-1e289, 1e289), st.sampled_from([0.0, -0.0, 5e-324, 1.0, 2.0**-1022]))


@examples(300)
@given(BOUND, BOUND, st.lists(st.floats(), max_size=20))
def test_steps(one, other, values):
    """Each value that is not missing is clipped, divided and rounded to even, in fractions."""
    low, high = min(one, other), max(one, other)
    cells = Cells(weights=Steps(ColumnValues("x"), Interval(low, high)))
    values = [*values, low, high, 5e-324, -5e-324, 1e308, -1e308]
    unit = max(Fraction(2) ** -1022, Fraction(1))
    largest = Fraction(max(abs(low), abs(high)))
    if largest:
        # the largest power of two that is at most 2^-22 of the largest bound
        exponent = max(-1022, math.frexp(low if abs(low) > abs(high) else high)[1] - 25)
        while Fraction(2) ** (exponent + 1) * 2**22 <= largest:
            exponent += 1
        unit = Fraction(2) ** exponent
    first, last = -(-Fraction(low) // unit), Fraction(high) // unit
    if first > last:
        first = last = int((low + high) / 2 / float(unit))
    expected = 0
    for value in values:
        if value != value:  # a missing value adds nothing
            continue
        inside = min(max(value, low), high)
        expected += min(max(round(Fraction(inside) / unit), first), last)
    assert summed({"x": np.array(values)}, cells) == [expected]


def brute_bins(values, edges):
    bins = []
    for value in values:
        at = [i for i in range(len(edges) - 1) if edges[i] <= value < edges[i + 1]]
        bins.append(len(edges) - 2 if value == edges[-1] else (at or [-1])[0])
    return bins


@st.composite
def even_edges(draw):
    """Equal bins, as users write them, some edges moved by an ulp or by much more."""
    low = draw(st.sampled_from([0.0, -1.0, 1e-300, 5e-324, 1e17, -1e299, 0.1, 2.0**52, 3e-310]))
    width = draw(st.sampled_from([1.0, 0.1, 1e-17, 1e299, 5e-324, 1e-310, 1 / 3, 2.0**-52, 2.0]))
    count = draw(st.sampled_from([1, 3, 23, 24, 60, 300]))
    form = draw(st.integers(0, 2))
    if form == 0:
        edges = np.linspace(low, low + count * width, count + 1)
    else:
        edges = low + np.arange(count + 1) * width if form == 1 else np.arange(count + 1.0)
    for _ in range(draw(st.integers(0, 3))):
        i = draw(st.integers(0, count))
        shift = draw(st.sampled_from([np.inf, -np.inf, 0.2, 0.26, 0.4]))
        edges[i] = np.nextafter(edges[i], shift) if np.isinf(shift) else edges[i] + shift * width
    edges = [e for e in np.unique(edges).tolist() if abs(e) < 1e300]
    return edges if len(edges) >= 2 else [0.0, 1.0]


@examples(300)
@given(even_edges(), st.lists(st.floats(), max_size=20))
def test_bins(edges, values):
    # all edges, and the numbers next to them
    values = np.array([*values, *edges, np.nan, np.inf, -np.inf, -0.0, 5e-324, -5e-324])
    with np.errstate(over="ignore"):  # next to the largest float is infinity
        near = [np.nextafter(values, np.inf), np.nextafter(values, -np.inf)]
    values = np.concatenate([values, *near])
    assert bin_index(values, edges).tolist() == brute_bins(values.tolist(), edges)


def test_equal_bins_are_computed_by_arithmetic():
    for edges in (
        np.linspace(0, 100, 101),
        np.arange(0, 5000, 0.1),
        np.linspace(-1e299, 1e299, 99),
    ):
        assert BinLookup(edges.tolist())._even
    assert not BinLookup([*range(50), 50.3, *range(51, 60)])._even
    assert not BinLookup(np.geomspace(1, 100, 60).tolist())._even
