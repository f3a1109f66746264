"""A unit's rows in several parts: what is charged against every split there is, and in no time."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp
from accountants import Basic, Parallel, Pure, Sequential, Spend, Term
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.operation import Change

Cost = Callable[[int, Change], float]
"""What a part, by its index, costs at a change."""


def linear(part: int, change: Change) -> float:
    return (1 + part) * change.both


def flag(part: int, change: Change) -> float:
    """Whatever changes costs the same, more where it is exchanged."""
    return 2.0 + part + change.replaced


def square(part: int, change: Change) -> float:
    return (1 + part % 2) * change.rows**2 + change.both


def equal(part: int, change: Change) -> float:
    return float(change.both)


COSTS: list[Cost] = [linear, flag, square, equal]


def splits(rows: int, parts: int) -> Iterator[tuple[int, ...]]:
    """Every way to put at most ``rows`` rows into parts, by brute force."""
    return (s for s in itertools.product(range(rows + 1), repeat=parts) if sum(s) <= rows)


def exact(cost: Cost, parts: int, change: Change) -> float:
    """The dearest pair of splits: that of one data set and that of its neighbour."""
    here = list(splits(change.rows, parts))
    there = here if change.replaced else [(0,) * parts]
    dearest = 0.0
    for a, b in itertools.product(here, there):
        if sum(a) + sum(b) > change.both:
            continue
        paid = [
            cost(i, Change(min(x, y) > 0, max(x, y), False, x + y))
            for i, (x, y) in enumerate(zip(a, b, strict=True))
            if x + y
        ]
        dearest = max(dearest, sum(paid))
    return dearest


def charged(cost: Cost, parts: int, change: Change) -> float:
    def inside(i: int, arriving: Change) -> Term:
        return Spend(Pure(epsilon=cost(i, arriving)))

    term = compiler.several_parts(inside, change, {i: f"p = {i}" for i in range(parts)}, 1)
    bounds = accountants.measure(term, Basic(), delta=0.0).bounds
    assert bounds is not None
    return bounds.upper


CHANGES = [
    *(Change(False, rows, False) for rows in (2, 3, 5)),
    *(Change(True, rows, False) for rows in (2, 3)),
    Change(True, 3, False, 4),
    Change(True, 4, False, 5),
]


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("parts", [1, 2, 3])
@pytest.mark.parametrize("cost", COSTS)
def test_few_splits_are_charged_exactly(cost: Cost, parts: int, change: Change) -> None:
    assert charged(cost, parts, change) == pytest.approx(exact(cost, parts, change), rel=1e-9)


@examples(150)
@given(
    st.sampled_from(COSTS),
    st.integers(1, 4),
    st.sampled_from([Change(False, 12, False), Change(False, 7, False), *CHANGES]),
    st.sampled_from([(1, 1), (8, 4), (20, 10), (40, 6), (40, 100), (1000, 8)]),
)
def test_many_splits_are_never_charged_less(
    cost: Cost, parts: int, change: Change, limits: tuple[int, int]
) -> None:
    """Whatever the limits force: rounded steps, parts that become equal, all steps."""
    if parts == 4 and change.rows > 7:
        parts = 3
    least = exact(cost, parts, change)
    label = {i: f"p = {i}" for i in range(parts)}

    def inside(i: int, arriving: Change) -> Term:
        return Spend(Pure(epsilon=cost(i, arriving)))

    terms: list[Term] = [compiler._dominating_choice(inside, change, label, limits[0])]
    for alike, growth in itertools.product((False, True), compiler.GROWTHS):
        steps = compiler.row_levels(change.rows, growth, 1000)
        term = compiler._split_choices(inside, change, label, steps, limits, alike)
        terms += [] if term is None else [term]
    for term in terms:
        bounds = accountants.measure(term, Basic(), delta=0.0).bounds
        assert bounds is not None
        assert bounds.upper >= least * (1 - 1e-12)


@pytest.mark.parametrize("growth", [g for g in compiler.GROWTHS if g <= 4])
@pytest.mark.parametrize("change", [Change(False, 40, False), Change(True, 9, False)], ids=str)
def test_steps_are_little_looser(growth: float, change: Change) -> None:
    """A cost that is linear in rows is overcharged by at most the growth of the steps."""
    label = {0: "p = 0", 1: "p = 1"}
    term = compiler._split_choices(
        lambda i, c: Spend(Pure(epsilon=linear(i, c))),
        change,
        label,
        compiler.row_levels(change.rows, growth, 1000),
        (10**6, 10**6),
        False,
    )
    assert term is not None
    bounds = accountants.measure(term, Basic(), delta=0.0).bounds
    assert bounds is not None
    assert bounds.upper <= max(growth, 1) * exact(linear, 2, change) * (1 + 1e-9)


@pytest.mark.parametrize("growth", compiler.GROWTHS)
@pytest.mark.parametrize("rows", [1, 2, 7, 300, 10**5])
def test_steps_grow_no_faster_and_end_at_all_rows(growth: float, rows: int) -> None:
    levels = compiler.row_levels(rows, growth, 10**6)
    assert levels[0] == 1
    assert levels[-1] == rows
    for one, two in itertools.pairwise(levels):
        assert one < two <= max(one + 1, growth * one)


def plan(parts: int, rows: int, relation: Any, distinct: bool) -> dp.Pipeline:
    table = dp.dataset(
        "t", columns={"r": list(range(parts))}, unit="id", rows_per_unit=rows, neighbors=relation
    )
    released = {
        str(k): p.count().release(dp.Laplace(scale=1 + k / 100 * distinct))
        for k, p in table.partition("r")
    }
    return dp.Pipeline(parts=released)


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize(
    ("parts", "rows", "relation", "looser"),
    [
        (2, 300, "replace_one", 1.05),
        (2, 10**5, "add_remove", 1.05),
        (3, 10**5, "add_remove", 1.3),
        (3, 50, "replace_one", 1.5),
        pytest.param(10, 20, "add_remove", 1.5, marks=pytest.mark.slow),
        (1000, 2, "replace_one", 1.02),
        (300, 300, "add_remove", 20),
        (3000, 10**6, "replace_one", 3000),
    ],
)
def test_many_rows_are_charged_at_once(
    parts: int, rows: int, relation: str, looser: float, distinct: bool
) -> None:
    """A count's loss is linear: all rows in the dearest part are the truth, in both data sets."""
    made = plan(parts, rows, relation, distinct)
    _ = made.structure
    start = time.process_time()
    term = made.term
    assert time.process_time() - start < 2  # a second, and room for a slow machine
    bounds = accountants.measure(term, Basic(), delta=0.0).bounds
    assert bounds is not None
    truth = rows * (2 if relation == "replace_one" else 1)
    least = truth if not distinct else truth / (1 + 1 / 100)
    assert least * (1 - 1e-9) <= bounds.upper <= truth * looser * (1 + 1e-9)


def test_where_it_is_left_open_where_the_rows_lie_shares_still_add_up() -> None:
    certificate = plan(300, 300, "add_remove", True).certify()
    assert sum(certificate.shares.values()) == pytest.approx(1)


def test_parts_inside_of_parts_take_no_longer() -> None:
    columns = {"r": ["A", "B"], "s": ["a", "b", "c"]}
    table = dp.dataset("t", columns=columns, unit="id", rows_per_unit=40, neighbors="replace_one")
    released = {
        f"{r}{s}": q.count().release(dp.Laplace(scale=1.0))
        for r, p in table.partition("r")
        for s, q in p.partition("s")
    }
    start = time.process_time()
    bounds = dp.Pipeline(parts=released).certify().bounds
    assert time.process_time() - start < 10
    assert 80 <= bounds["basic"].upper <= 80 * 3 + 1


def test_terms_of_one_choice_and_of_several() -> None:
    inside = lambda i, change: Spend(Pure(epsilon=1.0 + i))  # noqa: E731
    term = compiler.several_parts(inside, Change(False, 2, False), {0: "p = 0", 1: "p = 1"}, 1)
    assert isinstance(term, Parallel)
    assert all(isinstance(choice, Sequential) for choice in term.choices)
    assert ("p = 0 (1 rows)", "p = 1 (1 rows)") in term.labels


# --- What `whole_units` saves, and what it drops ------------------------------------------------

VISITS = {"cost": (0, 100), "region": ["north", "south", "west"]}


def by_region(
    query: Callable[[Any], Any], mechanism: Any, rows: int, whole_units: bool, **relation: Any
) -> float:
    table = dp.dataset("v", columns=VISITS, unit="person", rows_per_unit=rows, **relation)
    parts = table.partition("region", whole_units=whole_units)
    plan = dp.Pipeline(parts={k: query(part).release(mechanism) for k, part in parts})
    return plan.certify(delta=0 if isinstance(mechanism, dp.Laplace) else 1e-6).epsilon


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
@pytest.mark.parametrize("relation", [{}, {"neighbors": "replace_one", "size": 40}])
def test_one_part_saves_nothing_for_counts_and_sums(rows: int, relation: dict[str, Any]) -> None:
    """By hand: shares a_i of r rows have sum a_i <= r, and sum a_i^2 <= r^2."""
    # an exchanged unit is in one part before and in another after, as far as it is declared
    places = 1 if not relation else 2
    for mechanism in (dp.Laplace(scale=20), dp.Gaussian(sigma=20)):
        scaled = type(mechanism)(2000)
        for query, noise in ((lambda p: p.count(), mechanism), (lambda p: p["cost"].sum(), scaled)):
            free, together = (by_region(query, noise, rows, w, **relation) for w in (False, True))
            assert free == pytest.approx(together, rel=1e-9)
            if isinstance(noise, dp.Laplace):
                assert together == pytest.approx(places * rows / 20, rel=1e-6)


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_one_part_saves_for_means(rows: int) -> None:
    """By hand: a rows in n move a mean of range 100 by at most 100 a / (a + 1)."""
    mean = dp.Laplace(scale=500)
    free, together = (by_region(lambda p: p["cost"].mean(), mean, rows, w) for w in (False, True))

    def moved(a: int) -> float:
        return 100 * a / (a + 1) / 500

    shares = [(a, b, rows - a - b) for a in range(rows + 1) for b in range(rows + 1 - a)]
    assert free == pytest.approx(max(sum(map(moved, each)) for each in shares), rel=1e-6)
    assert together == pytest.approx(moved(rows), rel=1e-6)
    assert together < free


def test_one_part_drops_the_rows_of_a_unit_in_the_others() -> None:
    rows = {
        "person": [1, 1, 1, 2, 2, 3],
        "region": ["south", "north", "west", "west", "west", "south"],
    }
    table = dp.dataset("v", columns={"region": VISITS["region"]}, unit="person", rows_per_unit=3)
    counts = []
    for whole_units in (False, True):
        parts = table.partition("region", whole_units=whole_units)
        plan = dp.Pipeline(**{k: p.count().release(dp.Laplace(scale=1e-6)) for k, p in parts})
        counts.append([round(n) for n in plan.simulate(seed=1, v=rows).values()])
    assert counts == [[1, 2, 3], [1, 1, 2]]
