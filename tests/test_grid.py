"""The integer grid under all sums, against exact rational arithmetic."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.data import grid

SETTINGS = examples(300)
BOUND = st.floats(-1e299, 1e299)
ANY = st.floats(allow_nan=True, allow_infinity=True)
EXTREMES = [0.0, -0.0, 5e-324, -5e-324, 1e-310, 1e308, -1e308, math.inf, -math.inf, math.nan]


@SETTINGS
@given(st.floats(5e-324, 1.7e308), st.integers(0, 60))
def test_the_step_is_the_largest_power_of_two_that_fits(bound, bits):
    unit = Fraction(grid.step(bound, bits))
    assert unit.numerator == 1 or unit.denominator == 1
    assert math.log2(float(unit)).is_integer()
    least = Fraction(2) ** -1022  # below it steps would lose their digits
    assert unit == least or unit <= Fraction(bound) / 2**bits < 2 * unit


@SETTINGS
@given(BOUND, BOUND, st.lists(ANY, max_size=8))
@example(1.0, 1.0 + 2.0**-40, [])
@example(1.0 + 2.0**-40, 1.0 + 2.0**-39, [])
@example(-1.0 - 2.0**-39, -1.0 - 2.0**-40, [])
@example(0.0, 5e-324, [])
@example(-5e-324, 5e-324, [1.0])
@example(-1e299, 1e299, [])
def test_an_interval_is_obeyed_exactly(one, other, values):
    low, high = min(one, other), max(one, other)
    values = np.array([*values, *EXTREMES, low, high])
    steps = grid.interval_steps(values, low, high).astype(np.int64)
    unit = grid.step(max(abs(low), abs(high)), grid.BITS)
    assert steps.dtype == np.int64
    step, largest = Fraction(unit), Fraction(max(abs(low), abs(high)))
    for value, n in zip(values.tolist(), steps.tolist(), strict=True):
        point = n * step
        assert abs(point) <= largest
        assert abs(n) <= 2**32  # so that 2^31 rows of a block cannot overflow int64
        wanted = Fraction(min(max(0.0 if math.isnan(value) else value, low), high))
        assert abs(point - wanted) < step
        if Fraction(high) - Fraction(low) >= step:
            assert Fraction(low) <= point <= Fraction(high)
    # points of a narrower interval may lie outside of it, but all at one place
    if Fraction(high) - Fraction(low) < step:
        assert len(set(steps.tolist())) == 1 or (
            Fraction(low) <= min(steps.tolist()) * step
            and max(steps.tolist()) * step <= Fraction(high)
        )
    spread = (int(steps.max()) - int(steps.min())) * step
    assert spread <= Fraction(high) - Fraction(low)


def test_huge_rows_are_not_shortened_by_a_subnormal_factor():
    for radius, value, width in itertools.product((6e-13, 1e-139, 1.0), (1e308, -1.7e308), (2, 7)):
        steps, unit = grid.ball(np.full((1, width), value), radius)
        assert 0.999 * radius**2 < float(norms(steps, unit)[0]) <= radius**2
        assert norms(steps, unit)[0] <= Fraction(radius) ** 2


def norms(steps, unit):
    return [sum(Fraction(int(n)) ** 2 for n in row) * Fraction(unit) ** 2 for row in steps]


@SETTINGS
@given(
    st.floats(1e-150, 1e150),
    st.integers(1, 7).flatmap(
        lambda d: st.lists(st.lists(ANY, min_size=d, max_size=d), max_size=6)
    ),
)
def test_no_norm_exceeds_the_radius(radius, values):
    width = len(values[0]) if values else 3
    with np.errstate(all="ignore"):
        extremes = [[v] * width for v in EXTREMES] + [[radius / math.sqrt(width)] * width]
        steps, unit = grid.ball(np.array(values + extremes), radius)
    assert max(norms(steps, unit)) <= Fraction(radius) ** 2
    assert np.abs(steps).max() < 2**20  # products in blocks of 2^12 rows stay below 2^53


@pytest.mark.parametrize("width", [1, 2, 3, 10, pytest.param(100, marks=pytest.mark.slow)])
def test_vectors_near_the_sphere(width):
    generator = np.random.default_rng(width)
    for radius in (1.0, 0.7, 1e-5, 3e7, 2.0 - 2.0**-52, 1.0 + 2.0**-52, 1e-300):
        directions = generator.normal(size=(max(20, 200 // width), width))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        for stretch in (1 - 1e-6, 1 - 2.0**-53, 1.0, 1 + 2.0**-52, 1.5, 1e200):
            with np.errstate(over="ignore"):
                values = directions * (radius * stretch)
            steps, unit = grid.ball(values, radius)
            assert max(norms(steps, unit)) <= Fraction(radius) ** 2
            if stretch <= 1.5 and width <= 10:  # small steps: little is lost
                wanted = directions * radius * min(stretch, 1.0)
                assert np.abs(steps * unit - wanted).max() <= 2.0**-18 * radius * math.sqrt(width)


def test_inner_vectors_are_rounded_to_the_nearest_point():
    values = np.random.default_rng(0).uniform(-0.5, 0.5, size=(1000, 3))
    steps, unit = grid.ball(values, 1.0)
    assert np.abs(steps * unit - values).max() <= unit / 2


def test_empty_input():
    assert grid.interval_steps(np.zeros(0), -1.0, 1.0).shape == (0,)
    assert grid.ball(np.zeros((0, 3)), 1.0)[0].shape == (0, 3)
    assert (grid.ball(np.ones((2, 3)), 0.0)[0] == 0).all()


@pytest.mark.parametrize("width", [1, 3, 17, 40])
def test_a_row_has_the_same_length_in_any_company(width):
    values = np.random.default_rng(width).normal(size=(50, width))
    together = grid.squares(values)
    for layout in (values, np.asfortranarray(values), values[:, ::-1][:, ::-1]):
        assert (grid.squares(layout) == together).all()
        assert all(grid.squares(layout[i : i + 1])[0] == together[i] for i in range(50))
