"""What a session charges is never below what its own plan says of the worst place of a unit."""

from __future__ import annotations

import threading
from fractions import Fraction

import numpy as np
import pytest

import adaptive_dp as dp
from accountants import BudgetError, worlds
from accountants.errors import InapplicableError
from accountants.filters import UNPAYABLE
from adaptive_dp.graph.errors import DataError, DeclarationError, NeighborError
from adaptive_dp.graph.handles import SampleOperation, lineage
from adaptive_dp.graph.loops import Loop
from adaptive_dp.pate import teachers
from adaptive_dp.session import Budget, Session
from adaptive_dp.session.ledger import MemoryLedger

LARGE = Budget(1e6, 1e-6, 1e-7)
ROWS = {
    "id": [f"p{i // 2}" for i in range(120)],
    "age": [float(20 + i % 60) for i in range(120)],
    "region": [["A", "B", "C"][i % 3] for i in range(120)],
    "kind": [["x", "y"][i % 2] for i in range(120)],
}


def people(neighbors="add_remove", rows_per_unit=None, name="people"):
    more = {} if rows_per_unit is None else {"unit": "id", "rows_per_unit": rows_per_unit}
    return dp.dataset(
        name,
        columns={"age": (0, 100), "region": ["A", "B", "C"], "kind": ["x", "y"]},
        neighbors=neighbors,
        **more,
    )


def dearest(session):
    """The largest cost of any world of the session's plan, in each accounting unit, exactly."""
    enumerated = worlds(session.pipeline.term)
    keeps = session._account.unit.filter
    best = None
    for world in enumerated.alternatives:
        sums, failure = keeps.start().sums, Fraction()
        for loss, times in [*enumerated.common.items(), *world.spends.items()]:
            sums = tuple(s + p * times for s, p in zip(sums, keeps.costs(loss), strict=True))
            failure += Fraction(loss.delta_floor()) * times
        row = (*sums, failure)
        best = row if best is None else tuple(map(max, best, row))
    return best


def charged(session):
    spent = session._account.session_totals.filter_sums.maximum()
    return (*spent.sums, spent.delta_floor)


def table_of(rng, table, released, depth=0):
    """A random private table below another."""
    choice = rng.integers(0, 8)
    if depth > 2 or choice == 0:
        return table
    if choice == 1:
        inner = table.filter(table["age"] >= float(rng.integers(20, 60)))
    elif choice == 2 and released:
        inner = table.filter(table["age"] >= released[rng.integers(len(released))])
    elif choice == 3 and not (table.domain.neighbors == "replace_one" and is_sampled(table)):
        inner = table.sample(0.25)
    elif choice in (4, 5):
        whole_units = bool(rng.integers(2))
        inner = dict(table.partition("region", whole_units=whole_units))["ABC"[rng.integers(3)]]
    elif choice == 6:
        inner = dict(table.partition("kind"))["xy"[rng.integers(2)]]
    else:
        inner = list(table.partition("age", edges=[0.0, 40.0, 60.0, 100.0]))[rng.integers(3)][1]
    return table_of(rng, inner, released, depth + 1)


def is_sampled(table):
    return any(isinstance(each.operation, SampleOperation) for each in lineage(table))


def step_of(rng, base, released):
    table = table_of(rng, base, released)
    noise = dp.Gaussian(sigma=float(rng.integers(5, 9)))
    choice = rng.integers(0, 5)
    if choice == 0:
        scale = float(rng.integers(200, 300))
        exchanged = table.domain.neighbors == "replace_one" and is_sampled(table)
        kind = dp.Gaussian(sigma=scale) if exchanged else dp.Laplace(scale=scale)
        return table["age"].sum().release(kind)
    if choice == 1:

        def body(state, table):
            return dp.post(_add, state, table.count().release(noise))

        return dp.repeat(body, 3, table, start=0.0)
    return table.count().release(noise)


def _add(a, b):
    return a + b


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("rows_per_unit", [None, 2])
@pytest.mark.parametrize("accountant", ["renyi", "concentrated"])
def test_no_session_charges_less_than_its_worst_world(neighbors, rows_per_unit, accountant):
    rng = np.random.default_rng([3, len(neighbors), rows_per_unit or 0, len(accountant)])
    for trial in range(3):
        base = people(neighbors, rows_per_unit)
        session = Session(budget=LARGE, accountant=accountant, seed=trial, people=ROWS)
        released = []
        for _ in range(5):
            handle = step_of(rng, base, released)
            try:
                session.run(handle, again=bool(rng.integers(4) == 0))
            except InapplicableError:  # a sample has no zCDP rho
                continue
            if not isinstance(handle.operation, Loop):
                released.append(handle)
        for mine, plan in zip(charged(session), dearest(session), strict=True):
            # what no budget can pay is UNPAYABLE, however often; sums of one step are rounded once
            assert min(mine, UNPAYABLE) >= min(plan, UNPAYABLE) * (1 - Fraction(1, 10**12))


def test_simple_partitions_cost_just_their_worst_world():
    rng = np.random.default_rng(5)
    base = people()
    session = Session(budget=LARGE, accountant="gaussian", seed=0, people=ROWS)
    for i in range(40):
        table = base
        if rng.integers(3):
            table = dict(table.partition("region"))["ABC"[rng.integers(3)]]
            if rng.integers(2):
                table = dict(table.partition("kind"))["xy"[rng.integers(2)]]
        session.run(table.count().release(dp.Gaussian(sigma=5.0 + i)))
        assert charged(session) == dearest(session)


def test_partitions_of_two_data_sets_add_up_and_parts_of_one_do_not():
    one, two = people(), people(name="others")
    noise = dp.Gaussian(sigma=4)
    session = Session(budget=LARGE, accountant="gaussian", people=ROWS, others=ROWS)
    for _, part in [*one.partition("region"), *two.partition("region")]:
        session.run(part.count().release(noise))
    assert session.spent.costs[0] == pytest.approx(2 / 16)


def test_a_selection_from_two_data_sets_is_refused_in_sessions_too():
    one, two = people(), people(name="others")

    def body(candidate, one, two):
        a = one.count().release(dp.Laplace(scale=50))
        b = two.count().release(dp.Laplace(scale=50))
        return candidate, dp.post(_add, a, b)

    best = dp.select(body, [1, 2], one, two, stopping=0.5)
    session = Session(budget=LARGE, people=ROWS, others=ROWS)
    with pytest.raises(DeclarationError, match="selection"):
        session.run(best)
    assert session.spent.costs == Session(budget=LARGE).spent.costs


def test_one_name_has_one_declaration_and_one_kind_of_neighbours():
    session = Session(budget=LARGE, people=ROWS, others=ROWS)
    session.run(people().count().release(dp.Laplace(scale=9)))
    again = people().count().release(dp.Laplace(scale=9))
    assert session.what_if(again).already_paid  # an equal declaration, written once more
    for other in (people("replace_one"), people(rows_per_unit=2)):
        with pytest.raises(DeclarationError, match="'people'"):
            session.run(other["age"].sum().release(dp.Laplace(scale=900)))
    with pytest.raises(NeighborError, match="different"):
        session.run(people("zero_out", name="others").count().release(dp.Laplace(scale=9)))


def test_private_data_cannot_be_read_as_public_points():
    base = people()
    crowd = teachers(base, ["age"], "kind", constant_model, count=3)
    session = Session(budget=LARGE, people=ROWS)
    session.run(base.count().release(dp.Laplace(scale=9)))
    with pytest.raises(DeclarationError, match="'people'"):
        session.run(dp.post(_same, crowd.points("people", 120)))


def constant_model(x, y, classes, **settings):
    return lambda points: np.zeros(len(points), dtype=np.int64)


def _same(x):
    return x


def test_sessions_of_one_ledger_trust_each_others_parts_only_in_one_edition():
    parts = dict(people().partition("region"))
    noise = dp.Gaussian(sigma=4)
    for editions, expected in [((None, None), 2 / 16), (("a", "a"), 1 / 16), (("a", "b"), 2 / 16)]:
        ledger = MemoryLedger()
        for edition, key in zip(editions, "AB", strict=True):
            session = Session(
                budget=LARGE, accountant="gaussian", ledger=ledger, edition=edition, people=ROWS
            )
            session.run(parts[key].count().release(noise))
        assert session.spent.costs[0] == pytest.approx(expected)


def test_a_frame_that_changes_under_the_session_changes_nothing():
    ages = np.array([30.0] * 100)
    session = Session(budget=LARGE, seed=1, people={**ROWS, "age": ages[:120].repeat(2)[:120]})
    frame = {"age": np.full(100, 30.0)}
    base = dp.dataset("people", columns={"age": (0, 100)})
    session = Session(budget=LARGE, seed=1, people=frame)
    low, high = (table for _, table in base.partition("age", edges=[0, 50, 100]))
    assert session.run(low.count().release(dp.Laplace(scale=0.01))) == pytest.approx(100, abs=1)
    frame["age"][:] = 70.0
    assert session.run(high.count().release(dp.Laplace(scale=0.01))) == pytest.approx(0, abs=1)


def test_closures_over_objects_are_not_taken_for_one_another():
    class Box:
        def __init__(self, value):
            self.value = value

    base = people()
    session = Session(budget=LARGE, people=ROWS)
    n = base.count().release(dp.Laplace(scale=1))
    handles = []
    for value in (0.0, 1000.0):
        box = Box(value)
        edge = dp.post(lambda _, box=box: box.value, n)
        handles.append(base.filter(base["age"] >= edge).count().release(dp.Laplace(scale=0.1)))
    first, second = (session.run(handle) for handle in handles)
    assert first > 100 > 50 > second
    assert session.run(handles[0]) == first


def test_threads_never_pass_the_budget():
    base = people()
    session = Session(budget=Budget(1.0), accountant="basic", people=ROWS)
    admitted = []

    def work(i):
        for k in range(3):
            try:
                session.run(base.count().release(dp.Laplace(scale=10 + (3 * i + k) / 1e9)))
                admitted.append(1)
            except BudgetError:
                pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(admitted) in (9, 10)
    assert session.spent.costs[0] <= 1.0


def test_missing_data_is_named():
    session = Session(budget=LARGE, others=ROWS)
    with pytest.raises(DataError, match="people"):
        session.run(people().count().release(dp.Laplace(scale=9)))
