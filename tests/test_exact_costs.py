"""Costs of common releases: the least float that is at least what they are, exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import attrs
import numpy as np
import pytest
from attrs import astuple, frozen
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp
from accountants.numerics import quotient
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.counts import Count, Counts, Histogram

QUICK = examples(150)
POSITIVE = st.floats(1e-6, 1e6)
PEOPLE = dp.dataset("people", columns={"x": (-3, 10), "c": ["a", "b", "c"]})


def spent(query, mechanism, **declared):
    [part] = dp.Pipeline(n=query.release(mechanism)).term.parts
    return part.loss


def least(value, exact):
    """Whether a float is the least that is at least a rational."""
    return Fraction(value) >= exact > Fraction(math.nextafter(value, -math.inf))


@QUICK
@given(st.floats(-1e9, 1e9), POSITIVE)
def test_quotients_are_rounded_up(value, by):
    assert least(quotient(value, by), Fraction(value) / Fraction(by))


def test_quotients_of_what_is_no_number():
    assert quotient(math.inf, 2.0) == math.inf
    assert math.isnan(quotient(math.nan, 2.0))


@QUICK
@given(POSITIVE, st.integers(1, 50), st.sampled_from([dp.Laplace, dp.Gaussian]))
def test_a_count_costs_what_it_costs(noise, rows, kind):
    people = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=rows)
    loss = spent(people.count(), kind(noise))
    assert least(astuple(loss)[0], rows / Fraction(noise))


@QUICK
@given(
    st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)).filter(lambda b: b[0] < b[1]),
    st.integers(1, 9),
    st.booleans(),
)
def test_a_sum_moves_by_what_it_moves(bounds, rows, fixed):
    lower, upper = map(Fraction, bounds)
    relation = "replace_one" if fixed else "add_remove"
    people = dp.dataset("p", columns={"x": bounds}, unit="id", rows_per_unit=rows)
    # where a value may be missing, exchanged rows may have different numbers of values
    query = people["x"].fill(bounds[0]).sum() if fixed else people["x"].sum()
    change = Change(relation == "replace_one", rows, fixed)
    exact = rows * (upper - lower if fixed else max(abs(lower), abs(upper)))
    assert least(query.operation.sensitivity(query.inputs[0].domain, change, 1), exact)


@pytest.mark.parametrize("both", range(2, 9))
def test_roots_are_rounded_up(both):
    change = Change(True, (both + 1) // 2, False, both)
    histogram = PEOPLE["c"].histogram()
    sensitivity = histogram.operation.sensitivity(histogram.inputs[0].domain, change, 2)
    assert Fraction(sensitivity) ** 2 >= change.rows**2 + (both - change.rows) ** 2
    counts = PEOPLE.counts([PEOPLE["x"] > i for i in range(both)])
    sensitivity = counts.operation.sensitivity(counts.inputs[0].domain, Change(False, 3, False), 2)
    assert Fraction(sensitivity) ** 2 >= 9 * both
    assert isinstance(histogram.operation, Histogram)
    assert isinstance(counts.operation, Counts)


def test_the_plain_choice_fits_the_plain_budget():
    query = PEOPLE.count().release(dp.Laplace(scale=1.0))
    assert "epsilon=1 " in repr(dp.Pipeline(n=query).certify())
    with dp.Session(budget=dp.Budget(1.0), people={"x": [1.0], "c": ["a"]}) as session:
        session.run(query)
        assert session.remaining.costs[0] == 0


def test_a_loss_of_ones_own_still_gets_room_for_its_division():
    class Third(dp.Laplace):
        def loss(self, distance):
            return accountants.Laplace(epsilon=distance / 3)

    class Cost(dp.Laplace):
        def cost(self, distance, dimension, step):
            return accountants.Pure(distance - 1)

    class Other(dp.Laplace):
        scale: float = dp.noise_parameter("b", default=2.0)

    third = spent(PEOPLE.count(), Third(1.0)).epsilon
    assert Fraction(1, 3) <= Fraction(third) <= Fraction(1, 3) * (1 + Fraction(2) ** -48)
    assert 0 < spent(PEOPLE.count(), Cost(1.0)).epsilon < 1e-14
    assert spent(PEOPLE.count(), Other()).epsilon == 0.5


def test_a_mechanism_in_whole_steps_pays_for_no_step_more():
    """It is asked at the distance itself, and what it answers is rounded up."""
    table = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=5)
    asked = []

    class Steps(dp.Mechanism):
        each: float = dp.noise_parameter("e")
        limit: float = math.inf

        def release(self, value, stream):
            return value

        def loss(self, distance):
            asked.append(distance)
            if distance > self.limit and distance != round(distance):
                raise ValueError("whole steps alone")
            steps = math.ceil(distance)
            return accountants.Approximate(epsilon=steps * self.each, delta=1e-6)

    for limit in (math.inf, 4.5):
        asked.clear()
        loss = spent(table.count(), Steps(each=0.1, limit=limit))
        assert asked[0] == 5
        # five steps of a tenth, rounded up, and a delta that no distance moves
        assert Fraction(0.1) * 5 <= Fraction(loss.epsilon) <= Fraction(1, 2) * (1 + 2**-48)
        assert loss.delta == 1e-6


def test_each_number_of_a_loss_that_jumps_is_rounded_towards_the_costlier():
    table = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=5)

    class Lattice(dp.Mechanism):
        sigma: float = dp.noise_parameter("s")

        def release(self, value, stream):
            return value

        def loss(self, distance):
            steps = math.ceil(distance)
            return accountants.Composite(
                [
                    (accountants.DiscreteGaussian(self.sigma, steps), 1),
                    (accountants.GaussianSparseVector(self.sigma / steps, 7.0, 3, 1, False), 1),
                ]
            )

    loss = spent(table.count(), Lattice(30.0))
    (noise, _), (tested, _) = loss.spends
    assert tuple(attrs.astuple(noise)) == (30.0, 5)
    assert (tested.query_noise, tested.queries) == (7.0, 3)
    assert 6 * (1 - 2**-48) < tested.threshold_noise < 6


def test_a_sensitivity_of_ones_own_still_gets_room():
    from adaptive_dp.graph.handles import PrivateQuery

    @frozen
    class Odd(Count):
        kind = "odd_count"

        def sensitivity(self, domain, change, norm):
            return float(np.sqrt(1.0))

    loss = spent(PrivateQuery(Odd(), (PEOPLE,)), dp.Laplace(1.0))
    assert 1 < loss.epsilon < 1 + 1e-14
