"""Missing values: left out by default, imputed where that is asked for; on every kind of data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import adaptive_dp as dp

NAN = math.nan
EXACT = dp.Laplace(scale=1e-9)
SIZE = 10_000
DRAW = np.random.default_rng(5)
AGES = np.where(DRAW.random(SIZE) < 0.3, NAN, 50.0)
TOWNS = DRAW.choice(np.array(["A", "B"]), SIZE)
DATA = {"age": AGES, "town": TOWNS}
CELLS = [None, NAN, "", "NaN", "n/a", "12 years"]


def people(low: float = 0, **more: Any) -> dp.Table:
    return dp.dataset("people", columns={"age": (low, 100), "town": ["A", "B"]}, **more)


def answer(query: Any, data: Any = DATA) -> Any:
    released = query if isinstance(query, dp.Released) else query.release(EXACT)
    result = dp.Pipeline(a=released).with_delta(1e-6).simulate(seed=1, people=data)["a"]
    return np.asarray(result).round(5).tolist()


@pytest.mark.parametrize("low", [0, 18, -100])
def test_averages_are_of_the_values_that_are_there(low: float) -> None:
    table = people(low)
    groups, count = table.group_by("town"), table.count().release(EXACT)
    counts = groups.count().release(EXACT)
    age = table["age"]
    assert answer(age.average(EXACT)) == 50
    assert answer(age.average(EXACT, count=count)) == 50
    assert answer(age.clip(20, 60).average(EXACT, count=count)) == 50
    assert answer((age / 2 + 5).average(EXACT, count=count)) == 30
    assert answer(groups.average("age", EXACT)) == [50, 50]
    assert answer(groups.average("age", EXACT, count=counts)) == [50, 50]
    assert answer(groups.average("age", EXACT, count=counts, bounds=(20, 40))) == [40, 40]
    there = int(np.sum(~np.isnan(AGES)))
    assert answer(age.sum()) == answer(age.clip(20, 90).sum()) == 50 * there
    assert sum(answer(groups.sum("age"))) == 50 * there
    with pytest.warns(UserWarning, match="private"):
        assert answer(age.mean()) == 50


def test_imputing_is_asked_for() -> None:
    table = people(18)
    filled = table.fill(age=20)
    mean = 20 + 30 * np.mean(~np.isnan(AGES))
    count = table.count().release(EXACT)
    assert answer(filled["age"].average(EXACT)) == pytest.approx(mean, abs=1e-4)
    assert answer(table["age"].fill(20).average(EXACT, count=count)) == pytest.approx(
        mean, abs=1e-4
    )
    assert answer(filled.group_by("town").average("age", EXACT)) == pytest.approx(
        [20 + 30 * np.mean(~np.isnan(AGES[town == TOWNS])) for town in "AB"], abs=1e-4
    )
    # a visible node, and no other count than that of all rows
    plan = dp.Pipeline(a=filled["age"].average(EXACT), b=table["age"].average(EXACT))
    assert "fill(age, 20)" in str(plan)
    assert "age is present" in str(plan)
    kinds = [n.handle.operation.kind for n in dp.Pipeline(a=filled["age"].average(EXACT)).structure]
    assert "where" not in kinds


def test_quantiles_and_histograms_leave_missing_values_out() -> None:
    table = people()
    median = table["age"].median().release(dp.SmoothStudent(epsilon=50.0))
    assert answer(median, {"age": [NAN] * 60 + [70.0] * 40, "town": ["A"] * 100}) == pytest.approx(
        70, abs=1
    )
    there = int(np.sum(~np.isnan(AGES)))
    assert answer(table["age"].histogram([0, 40, 60])) == [0, there]
    assert answer(table["age"].clip(0, 60).histogram([0, 40, 60])) == [0, there]
    # the number of rows is fixed here, so each is a value
    fixed = dp.dataset(
        "people", columns={"age": (0, 100), "town": ["A", "B"]}, neighbors="replace_one"
    )
    median = fixed["age"].median().release(dp.SmoothStudent(epsilon=50.0))
    assert answer(median, {"age": [NAN] * 60 + [70.0] * 40, "town": ["A"] * 100}) == pytest.approx(
        0, abs=1
    )
    size = {"neighbors": "replace_one", "size": 4}
    four = {"age": [50.0, NAN, 50, 50], "town": ["A"] * 4}
    assert answer(people(18, **size)["age"].mean(), four) == (3 * 50 + 18) / 4
    assert answer(people(18, **size)["age"].fill(30).mean(), four) == (3 * 50 + 30) / 4


@pytest.mark.parametrize("form", ["list", "csv", "parquet"])
def test_cells_that_are_missing_in_every_kind_of_data(form: str, tmp_path: Path) -> None:
    table = people(18)
    ages: list[Any] = [*CELLS, 50, 50]
    data: Any = {"age": ages, "town": ["A"] * len(ages)}
    there = 2
    if form == "csv":
        path = tmp_path / "people.csv"
        path.write_text("age,town\n" + "".join(f"{'' if a is None else a},A\n" for a in ages))
        data = path
    if form == "parquet":
        data = tmp_path / "people.parquet"
        pl.DataFrame({"age": [None, NAN, 50.0, 50.0], "town": ["A"] * 4}).write_parquet(data)
    count = table.count().release(EXACT)
    assert answer(table["age"].average(EXACT), data) == 50
    assert answer(table["age"].average(EXACT, count=count), data) == 50
    assert answer(table.filter(table["age"].is_present()).count(), data) == there
    assert answer(table.filter(~table["age"].is_present()).count(), data) == (
        2 if form == "parquet" else len(CELLS)
    )


def test_three_averages_and_a_count_release_one_count() -> None:
    table = dp.dataset("people", columns=dict.fromkeys("abc", (0, 100)))
    plan = dp.Pipeline(**table.describe(dp.Laplace())).calibrate(epsilon=1.0)
    releases = list(plan.certify().shares)
    assert sorted(releases) == ["count", "sum of a", "sum of b", "sum of c"]
    # a row adds to a sum or to what is missing, so that each costs what a sum alone does
    assert {round(share, 3) for share in plan.certify().shares.values()} == {0.25}
    draw = np.random.default_rng(0)
    data = {
        name: np.where(draw.random(50_000) < 0.1 * k, NAN, 40.0 + k) for k, name in enumerate("abc")
    }
    for name, mean in plan.simulate(seed=1, people=data)["average"].items():
        assert abs(mean - 40 - "abc".index(name)) < 0.5


@pytest.mark.parametrize("neighbors", ["add_remove", "zero_out", "replace_one"])
def test_what_is_filtered_by_a_column_is_present(neighbors: Any) -> None:
    table = people(18, neighbors=neighbors)
    age, town = table["age"], table["town"]
    for condition, complete in (
        (age > 20, {"age"}),
        ((age > 20) & (town == "A"), {"age", "town"}),
        ((age > 20) | (town == "A"), set()),
        (~(age > 20), set()),
        (age.is_present(), {"age"}),
        (~age.is_present(), set()),
    ):
        assert table.filter(condition).domain.complete == complete
    assert table.fill(age=3).domain.complete == {"age"}
    assert table.fill(age=3).with_columns(age=age + 1).domain.complete == {"age"}
    assert table.with_columns(b=age.fill(3) * 2, c=age * 2).domain.complete == {"b"}
