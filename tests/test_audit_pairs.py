"""The gallery of neighbouring pairs: each is one, and between them they reach every bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plans
import pytest

import accountants
import adaptive_dp as dp
from accountants.secret import Secret
from adaptive_dp.audit import gallery, search
from adaptive_dp.audit.neighbors import query_value
from adaptive_dp.audit.pairs import UNIT, DataPair
from adaptive_dp.graph.run import Run, bind_sources

NAMES = ("columns", "filters", "partitions", "vectors", "choices", "loops", "instances", "free")


class Bare(dp.Mechanism):
    """Releases the value itself, so that a test can look at it."""

    def release(self, value: Any, stream: Any) -> Any:
        return np.array(value)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance)


def cells_of(table: dict[str, list[Any]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(repr, row)) for row in zip(*table.values(), strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_every_pair_differs_in_one_unit(name: str) -> None:
    """Read off the data themselves: the others' rows are the same, the unit's are not."""
    for pair in gallery(getattr(plans, name)()):
        (first,), (second,) = pair.first.values(), pair.second.values()
        relation, unit = pair.source.neighbors, pair.source.unit
        one, two = cells_of(first), cells_of(second)
        assert one != two
        if unit is not None:
            where = list(first).index(unit)
            one = [row for row in one if row[where] != repr(UNIT)]
            two = [row for row in two if row[where] != repr(UNIT)]
            assert one == two
            if relation == "replace_one":
                assert UNIT in first[unit]
                assert UNIT in second[unit]
        else:
            common = list(one)
            for row in two:
                if row in common:
                    common.remove(row)
            assert len(common) == 1
            assert len(one) - len(two) == (0 if relation == "replace_one" else 1)


@pytest.mark.parametrize("name", NAMES[:-1])
def test_every_pair_can_be_run(name: str) -> None:
    plan = getattr(plans, name)()
    for pair in gallery(plan)[::20]:
        for side in (pair.first, pair.second):
            run = Run(plan.structure, 1)
            run.bind(
                bind_sources(plan.structure, {name: Secret(each) for name, each in side.items()})
            )
            run.all()


def moves(query: Any) -> Any:
    plan = dp.Pipeline(a=query.release(Bare()))

    def measure(pair: DataPair) -> float:
        one, two = (query_value(plan, query, side) for side in (pair.first, pair.second))
        return float(np.abs(np.asarray(one) - two).sum())

    return plan, measure


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("unit", [None, "id"])
def test_the_gallery_reaches_the_sensitivity(neighbors: str, unit: str | None) -> None:
    """By hand: a sum in [-5, 10] moves by 10 a row, or by 15 where a row is exchanged."""
    table = plans.people(neighbors, unit, rows=2)
    rows = 1 if unit is None else 2
    plan, measure = moves(table["x"].sum())
    expected = (15 if neighbors == "replace_one" else 10) * rows
    assert max(map(measure, gallery(plan))) == pytest.approx(expected, rel=1e-6)
    plan, measure = moves(table["region"].histogram())
    expected = (2 if neighbors == "replace_one" else 1) * rows
    assert max(map(measure, gallery(plan))) == expected


def test_thresholds_are_tried_in_both_directions() -> None:
    table = plans.people(unit=None)
    plan = dp.Pipeline(
        n=table.filter(table["x"] >= 7.25).count().release(dp.Laplace(scale=1)),
        s=table["y"].clip(0.5, 1.75).sum().release(dp.Laplace(scale=1)),
        h=table["z"].histogram([0, 3.5, 9]).release(dp.Laplace(scale=1)),
    )
    result = {
        (name, repr(value))
        for pair in gallery(plan)
        for row in pair.before
        for name, value in row.items()
    }
    for name, mark in [("x", 7.25), ("y", 0.5), ("y", 1.75), ("z", 3.5), ("z", 9.0)]:
        for near in (mark, math.nextafter(mark, 99.0), math.nextafter(mark, -99.0)):
            assert (name, repr(near)) in result
    for bad in (math.nan, math.inf, -math.inf, None):
        assert ("x", repr(bad)) in result


def test_units_with_too_many_rows_and_rows_in_several_parts() -> None:
    pairs = gallery(plans.partitions())
    assert max(len(pair.before) for pair in pairs) == 4
    assert any(len({row["region"] for row in pair.before}) > 1 for pair in pairs)


def test_pairs_have_the_declared_size() -> None:
    for neighbors in ("replace_one", "zero_out"):
        table = dp.dataset("t", columns={"x": (2, 5)}, neighbors=neighbors, size=7)
        plan, measure = moves(table["x"].fill(2).mean())
        expected = 3 / 7 if neighbors == "replace_one" else 5 / 7
        result = [measure(pair) for pair in gallery(plan)]
        assert max(result) <= expected * (1 + 1e-9)
        if neighbors == "replace_one":
            assert max(result) == pytest.approx(expected, rel=1e-6)


def test_other_data_sets_stay_the_same() -> None:
    one, two = (dp.dataset(n, columns={"x": (0, 1)}) for n in ("one", "two"))
    plan = dp.Pipeline(
        a=one.count().release(dp.Laplace(scale=1)), b=two.count().release(dp.Laplace(scale=1))
    )
    pairs = gallery(plan)
    assert {pair.source.name for pair in pairs} == {"one", "two"}
    for pair in pairs:
        other = "two" if pair.source.name == "one" else "one"
        assert pair.first[other] == pair.second[other]
        assert pair.first.keys() == pair.second.keys() == {"one", "two"}


def test_search_climbs_past_the_gallery() -> None:
    """The middle of a band that no threshold of the plan names is found by climbing."""
    table = dp.dataset("t", columns={"x": (0, 1), "y": (0, 1)}, neighbors="replace_one")
    plan, _ = moves(table["x"].sum())

    def measure(pair: DataPair) -> float:
        x, y = (pair.before[0][k] for k in ("x", "y"))
        if x is None or y is None or not (math.isfinite(x) and math.isfinite(y)):
            return math.nan
        return -abs(x - 0.3141) - abs(y - 0.2718)

    at_first = max(v for v in map(measure, gallery(plan)) if v == v)
    pair, result = search(plan, measure, rounds=600)
    assert at_first < -0.1 < -0.03 < result == measure(pair)
    assert search(plan, measure, rounds=50) == search(plan, measure, rounds=50)


def test_it_refuses_a_plan_without_tables() -> None:
    with pytest.raises(dp.DeclarationError):
        gallery(dp.Pipeline(a=dp.public(1.0)))
