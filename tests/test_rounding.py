"""Values of very large data sets: what one unit moves stays within the declared sensitivity.

Rounding a total to a float can move it by more than one unit does. `Many` stands for more rows
than fit here: each total counts so many times.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from accountants.numerics import up
from adaptive_dp.data import MemoryRows, read_rows
from adaptive_dp.queries.domains import interval
from adaptive_dp.queries.vectors import column_scale, stack_scales, write_scaled


class Bare(dp.Mechanism):
    """Releases the value itself."""

    norm = 2

    def release(self, value, stream):
        return np.array(value)

    def loss(self, distance):
        return accountants.Gaussian(distance)


class Many(MemoryRows):
    """Rows: all but the last ``odd`` represent ``times`` equal ones each."""

    times = 1
    odd = 0

    def total(self, block):
        split = len(self.units) - self.odd
        crowd = MemoryRows({k: v[:split] for k, v in self.columns.items()}, self.units[:split])
        alone = MemoryRows({k: v[split:] for k, v in self.columns.items()}, self.units[split:])
        return crowd.total(block) * self.times + alone.total(block)


class Data:
    """Opens as `Many` rows."""

    def __init__(self, data, times, odd):
        self.data, self.times, self.odd = data, times, odd

    def open_rows(self, columns, unit):
        plain = read_rows(self.data, columns, unit)
        many = Many(plain.columns, plain.units)
        object.__setattr__(many, "times", self.times)
        object.__setattr__(many, "odd", self.odd)
        return many


def moved(query, crowd, times, one, other):
    """Return how far the value moves from one odd row to another (None: no row), and the claim."""
    plan = dp.Pipeline(a=query.release(Bare()))
    totals = []
    for odd in (one, other):
        data = {k: np.append(v, [] if odd is None else odd[k]) for k, v in crowd.items()}
        totals.append(plan.simulate(seed=0, t=Data(data, times, int(odd is not None)))["a"])
    claimed = accountants.worlds(plan.term).common
    (loss,) = claimed
    return np.subtract(*totals), loss.mu()


@pytest.mark.parametrize("bounds", [(0.0, 0.7), (1e9, 1.001e9), (-0.3, 0.1), (0.0, 9.9e289)])
@pytest.mark.parametrize("times", [1, 3_000_000, 10**9 + 7, 10**12])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_sums(bounds, times, relation):
    table = dp.dataset("t", columns={"x": bounds}, neighbors=relation)
    for value in (*bounds, sum(bounds) / 3):
        for one, other in ((bounds[0], bounds[1]), (bounds[1], value)):
            left = None if relation == "add_remove" else {"x": other}
            by, claim = moved(table["x"].sum(), {"x": np.full(3, value)}, times, {"x": one}, left)
            assert math.isfinite(by)
            assert abs(Fraction(float(by))) <= Fraction(up(claim, 8))


@pytest.mark.parametrize("times", [1, 10**6, 2**28, 2**30, 10**12, 10**15])
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_second_moments_and_their_smallest_eigenvalue(times, width, relation):
    generator = np.random.default_rng(width)
    names = [f"c{i}" for i in range(width)]
    table = dp.dataset("t", columns=dict.fromkeys(names, (-1, 1)), neighbors=relation)
    vectors = table.vectors(names)
    for _ in range(3):
        crowd = dict(zip(names, generator.uniform(-1, 1, (width, 4)), strict=True))
        one = dict(zip(names, generator.choice([-1.0, 1.0], width), strict=True))
        other = dict(zip(names, generator.choice([-1.0, 1.0], width), strict=True))
        left = None if relation == "add_remove" else other
        for query in (vectors.gram(), vectors.smallest_eigenvalue()):
            by, claim = moved(query, crowd, times, one, left)
            assert math.sqrt(np.sum(np.square(by))) <= claim * (1 + 1e-12)


def test_second_moments_are_exact_up_to_rounding_where_rows_are_few():
    values = np.random.default_rng(0).uniform(-0.5, 0.5, (50, 3))
    table = dp.dataset("t", columns=dict.fromkeys("uvw", (-1, 1)))
    vectors = table.vectors(list("uvw"))
    data = dict(zip("uvw", values.T, strict=True))
    plan = dp.Pipeline(
        m=vectors.gram().release(Bare()), e=vectors.smallest_eigenvalue().release(Bare())
    )
    released = plan.simulate(seed=0, t=data)
    assert released["m"] == pytest.approx(values.T @ values, abs=1e-3)
    assert released["e"] == pytest.approx(np.linalg.eigvalsh(values.T @ values)[0], abs=1e-3)


@pytest.mark.slow
def test_a_mean_with_a_public_size_far_from_zero():
    """Sum and quotient each rounded would move it by 3 units in the last place."""
    low, high, size = 1073741822.0, 1073741823.0, 5_352_712
    table = dp.dataset("t", columns={"x": (low, high)}, neighbors="replace_one", size=size)
    values = np.full(size, low)
    values[: size // 3] = high
    plan = dp.Pipeline(a=table["x"].mean().release(Bare()))
    (loss,) = accountants.worlds(plan.term).common
    averages = []
    for own in (low, high):
        values[-1] = own
        averages.append(plan.simulate(seed=0, t={"x": values})["a"])
    assert abs(Fraction(averages[1]) - Fraction(averages[0])) <= Fraction(loss.mu())
    assert averages[0] == pytest.approx(low + (size // 3) / size, abs=1e-6)


@pytest.mark.parametrize("radius", [9e149, 1e140, 9e-141, 1e-161])
def test_a_radius_whose_square_floats_cannot_hold_is_refused(radius):
    """Second moments would be infinite, or rounded to multiples of the least subnormal float."""
    table = dp.dataset("t", columns={"x": (-1e200, 1e200)})
    vectors = table.vectors(["x"]).clip(norm=radius)
    for ask in (vectors.gram, vectors.smallest_eigenvalue, vectors.sum):
        with pytest.raises(dp.DeclarationError, match=r"\b0\b"):
            ask()


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.0, 3.0), (-2.5, 7.0), (-1e-3, 1e3)])
def test_a_scaled_number_is_the_clipped_and_multiplied_one_in_blocks_of_any_size(bounds):
    scales = stack_scales([column_scale(interval(bounds), scaled=True, zero=True)] * 2)
    low, high, middle, half = column_scale(interval(bounds), scaled=True, zero=True)
    values = np.random.default_rng(0).uniform(bounds[0] - 1, bounds[1] + 1, 3000)
    values[:9] = [math.nan, math.inf, -math.inf, 1e308, -1e308, *bounds, 0.0, -0.0]
    values[9:20] = np.nextafter(bounds[1], math.inf)
    factor = 2.0**19 / 3
    wanted = [
        min(max((0.0 if math.isnan(v) else v) - middle, low), high) * (factor / half)
        for v in values.tolist()
    ]
    for size in (100, 1000, 3000):
        for start in range(0, 3000, size):
            out = np.empty((2, size))
            write_scaled([values[start : start + size]] * 2, scales, out, factor)
            assert (out == wanted[start : start + size]).all()
