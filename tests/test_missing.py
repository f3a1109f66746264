"""Missing values: left out by default, imputed where that is asked for; on every kind of data."""

from __future__ import annotations

import itertools
import math
import unicodedata
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import adaptive_dp as dp
from adaptive_dp.data.cells import objects, unit_codes
from adaptive_dp.graph.handles import PrivateQuery, change_at
from adaptive_dp.queries.domains import ColumnValues, Selected
from adaptive_dp.queries.table import complete_rows

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
    some = {"age": [NAN] * 60 + [70.0] * 40, "town": ["A"] * 100}
    for neighbors in ("add_remove", "replace_one"):
        age = people(neighbors=neighbors)["age"]
        assert answer(age.median().release(dp.SmoothStudent(epsilon=90.0)), some) == pytest.approx(
            70, abs=1
        )
        choice = dp.QuantileExponential(scale=0.1)
        assert answer(age.median(step=1).release(choice), some) == 70
        assert answer(age.quantiles([0.2, 0.5], choice, step=1), some) == [70, 70]
        assert answer(age.median(step=1, interval=0.9).release(choice), some) == 70
        filled = age.fill(20).median(step=1).release(choice)
        assert answer(filled, some) == 20


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


QUANTILES = [0.0, 3.0, 7.0, 10.0, NAN]


@pytest.mark.parametrize("q", [0.5, 0.2, 0.9])
def test_a_value_that_becomes_missing_is_two_steps_of_a_quantile(q: float) -> None:
    """By brute force over all data of up to 4 rows: with a fixed number of rows, none of values."""
    age = dp.dataset("people", columns={"age": (0, 10)}, neighbors="replace_one")["age"]
    query = age.quantile(q)
    operation: Any = query.operation
    change = change_at(age)
    assert operation.sensitivity(age.domain, change, 0) == 2
    filled: Any = age.fill(5).quantile(q)
    assert filled.operation.sensitivity(filled.inputs[0].domain, change, 0) == 1

    def values(cells: tuple[float, ...]) -> Any:
        rows = age.inputs[0].operation.bind({"age": np.array(cells)})  # type: ignore[attr-defined]
        return operation.run([Selected(rows, ColumnValues("age"))], None)

    moved = 0.0
    for base in itertools.combinations_with_replacement(QUANTILES, 3):
        data = [values((*base, each)) for each in QUANTILES]
        for one, other in itertools.permutations(data, 2):
            moved = abs(one.value - other.value)
            # a removal and an addition: each moves it by the local sensitivity where it starts
            assert moved <= one.local(0) + one.local(1)
    assert moved > 0


@pytest.mark.parametrize("low", [0, 18, -100])
def test_a_public_number_of_rows_says_nothing_of_values(low: float) -> None:
    table = people(low, neighbors="replace_one", size=4)
    age, four = table["age"], {"age": [50.0, NAN, 50, 50], "town": ["A", "B", "A", "A"]}
    assert answer(age.average(EXACT), four) == 50
    assert answer(age.clip(20, 60).average(EXACT), four) == 50
    assert answer(table.describe(EXACT, ["age"])["average"]["age"], four) == 50
    assert answer(age.fill(30).mean(), four) == (3 * 50 + 30) / 4
    assert answer(table.fill(age=30).describe(EXACT, ["age"])["average"]["age"], four) == 45
    none = dp.dataset("people", columns={"age": (0, 0)}, neighbors="replace_one", size=4)
    assert answer(none["age"].average(EXACT), {"age": [NAN, 0, 1, 2]}) == 0
    for refused, words in (
        (lambda: age.mean(), r"fill\(value\).*by average\(\)"),
        (lambda: age.fill(30).average(EXACT), r"use \.mean\(\)"),
        (lambda: age.average(EXACT, count=dp.post(len, age.average(EXACT))), r"leave out count"),
    ):
        with pytest.raises(dp.DeclarationError, match=words):
            refused()


@pytest.mark.parametrize("low", [0, 4, -20])
def test_an_average_over_a_public_size_moves_no_farther_than_it_says(low: float) -> None:
    """By brute force over all data of three rows and all exchanges of one."""
    age = dp.dataset("people", columns={"age": (low, 10)}, neighbors="replace_one", size=3)["age"]
    average = age.average(EXACT)
    (sums,) = average.inputs
    (query,) = sums.inputs
    assert isinstance(query, PrivateQuery)
    operation: Any = query.operation
    declared = {
        norm: operation.sensitivity(query.domain, change_at(query.inputs[0]), norm)
        for norm in (1, 2)
    }
    cells = (low, low / 2 + 5, 10.0, NAN)
    seen = {
        rows: np.asarray(answer(sums, {"age": rows}))  # the two sums, by whether there is a value
        for rows in itertools.combinations_with_replacement(cells, 3)
    }
    most = dict.fromkeys(declared, 0.0)
    for base in itertools.combinations_with_replacement(cells, 2):
        ends = [
            next(v for k, v in seen.items() if sorted(map(str, k)) == sorted(map(str, (*base, c))))
            for c in cells
        ]
        for one, other in itertools.combinations(ends, 2):
            for norm in most:
                most[norm] = max(most[norm], float(np.linalg.norm(one - other, norm)))
    for norm, moved in most.items():
        assert 0.5 * declared[norm] < moved <= declared[norm] + 1e-6


ROBUST: dict[str, Any] = {
    "trimmed mean": lambda c: c.trimmed_mean(0.2),
    "variance": lambda c: c.local_variance(),
    "own": lambda c: c.instance(middle, moves, range=(0, 10)),
    "median": lambda c: c.median(),
}


def middle(values: Any) -> float:
    return float(values[(len(values) - 1) // 2]) if len(values) else 0.0


def moves(values: Any, steps: int) -> float:
    return 10.0


@pytest.mark.parametrize("name", ROBUST)
def test_what_exchanges_rows_needs_a_value_in_each(name: str) -> None:
    """Refused where values may be missing; filled, one exchange is one step by brute force."""
    table = dp.dataset("people", columns={"age": (0, 10)}, neighbors="replace_one")
    age = table["age"]
    if name == "median":  # it leaves them out by itself
        assert not ROBUST[name](age).operation.exchange
    else:
        with pytest.raises(dp.DeclarationError, match=r"table\['age'\]\.fill\(value\), or leave"):
            ROBUST[name](age)
    filled = age.fill(5)
    query = ROBUST[name](filled)
    assert query.operation.exchange
    assert query.operation.sensitivity(filled.domain, change_at(filled), 0) == 1

    def value(cells: tuple[float, ...]) -> Any:
        rows = table.operation.bind({"age": np.array(cells)})  # type: ignore[attr-defined]
        return query.operation.run([filled.operation.run([rows], None)], None)  # type: ignore[arg-type]

    for base in itertools.combinations_with_replacement(QUANTILES, 3):
        data = [value((*base, each)) for each in QUANTILES]
        assert {len(each.values) for each in data} == {4}
        for one, other in itertools.permutations(data, 2):
            assert abs(one.value - other.value) <= one.local(0)
    # left out by a filter, a step adds or removes a row, and an exchange is two of them
    present = table.filter(age.is_present())["age"]
    if name in ("own", "median"):
        own = ROBUST[name](present)
        assert not own.operation.exchange
        assert own.operation.sensitivity(present.domain, change_at(present), 0) == 2
    else:
        with pytest.raises(dp.DeclarationError, match="fixed number of rows"):
            ROBUST[name](present)
    with pytest.raises(dp.DeclarationError, match="may be missing"):  # as a document might say
        PrivateQuery(query.operation, (age,))


COLUMNS: dict[str, Any] = {"x": (0, 10), "z": (-5, 5), "y": (0, 100), "ill": ["no", "yes"]}
LEARNERS: dict[str, Any] = {
    "SSP": lambda: dp.SSP(["x", "z"], "y"),
    "SSP of categories": lambda: dp.SSP(["x", "ill"], "y"),
    "AdaSSP": lambda: dp.AdaSSP(["x", "z"], "y"),
    "BoostedSSP": lambda: dp.BoostedSSP(["x", "z"], "y"),
    "AdaOPS": lambda: dp.AdaOPS(["x", "z"], "y"),
    "ObjectivePerturbation": lambda: dp.ObjectivePerturbation(["x", "z"], "ill"),
    "OutputPerturbation": lambda: dp.OutputPerturbation(["x", "z"], "y"),
    "NoisyGradientDescent": lambda: dp.NoisyGradientDescent(["x", "z"], "ill", steps=3),
    "FiniteLearner": lambda: dp.FiniteLearner(
        ["x", "z"], "y", candidates=[(0.0, 0.1, 0.2), (0.3, 0.0, -0.5)]
    ),
}


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("name", LEARNERS)
def test_learners_leave_out_rows_with_a_gap(name: str, neighbors: Any) -> None:
    """What they learn is what they learn of the other rows alone, with the same noise."""
    learner = LEARNERS[name]()
    table = dp.dataset("people", columns=COLUMNS, neighbors=neighbors)
    size, draw = 1_000, np.random.default_rng(2)
    data: dict[str, Any] = {"x": draw.uniform(0, 10, size), "z": draw.uniform(-5, 5, size)}
    data["y"] = 5 * data["x"] + data["z"] + draw.uniform(0, 20, size)
    data["ill"] = np.where(data["x"] > 5, "yes", "no").astype(object)
    used = {*learner.features, learner.target}
    gaps = {name: draw.random(size) < 0.2 for name in COLUMNS}
    data = {k: np.where(gaps[k], None if k == "ill" else NAN, v) for k, v in data.items()}
    complete = ~np.any([gaps[k] for k in used], axis=0)
    model = table.solve(learner, epsilon=8.0, delta=0 if name == "FiniteLearner" else 1e-6)
    plan = dp.Pipeline(model=model).with_delta(1e-6)
    assert "is present" in str(plan)
    got = plan.simulate(seed=1, people=data)["model"]
    assert got == plan.simulate(seed=1, people={k: v[complete] for k, v in data.items()})["model"]
    # it is not that nothing is read
    if name != "FiniteLearner":
        assert got != plan.simulate(seed=1, people={k: v[:500] for k, v in data.items()})["model"]


def test_vectors_and_covariances_leave_out_rows_with_a_gap() -> None:
    table = dp.dataset("people", columns=COLUMNS)
    data = {
        "x": [1.0, NAN, 3.0, 5.0],
        "z": [1.0, 1.0, 2.0, NAN],
        "y": [2.0, 2.0, NAN, 9.0],
        "ill": ["no"] * 4,
    }
    vectors = table.vectors(["x", "z"])
    assert answer(vectors.sum(), data) == [4, 3]
    assert answer(vectors.times(table["y"]).sum(), data) == [2, 2]
    assert answer(table.covariance(["x", "z"], EXACT), data) == [[1, 0.5], [0.5, 0.25]]
    with pytest.raises(dp.DeclarationError, match="same table"):
        vectors.times(table.with_columns(y=table["x"])["y"])


def test_what_is_filled_is_learned_from() -> None:
    table = dp.dataset("people", columns=COLUMNS)
    filled = table.fill(x=5, y=50)
    plan = dp.Pipeline(model=filled.solve(dp.SSP(["x"], "y"), epsilon=2.0, delta=1e-6))
    assert "is present" not in str(plan)
    # the noise is that of the table with gaps: nothing rests on the number of rows
    gaps = dp.Pipeline(model=table.solve(dp.SSP(["x"], "y"), epsilon=2.0, delta=1e-6))
    assert plan.certify(delta=1e-6).epsilon == gaps.certify(delta=1e-6).epsilon


@pytest.mark.parametrize("width", [64, 784])
def test_learners_of_many_columns_leave_incomplete_rows_out(width: int) -> None:
    names = [f"p{i}" for i in range(width)]
    table = dp.dataset("images", columns={**dict.fromkeys(names, (0, 1)), "y": (0, 1)})
    complete = dp.Pipeline(n=complete_rows(table, [*names, "y"]).count())
    data = {name: np.full(6, 0.5) for name in [*names, "y"]}
    data[names[0]][1] = data[names[-1]][2] = data["y"][3] = np.nan
    assert complete.fix(noise=1e-9).simulate(seed=1, images=data)["n"] == 3


TOWNS_WITH_GAPS: list[Any] = ["Oslo", None, "", "Rome", NAN, "Paris", "Oslo"]
"""Three are missing; Paris is none of the categories."""
VISITS = {
    "town": TOWNS_WITH_GAPS,
    "age": [1.0, 2, 3, 4, 5, 6, 7],
    "grade": [1.0, 2, NAN, 3, 3, NAN, 7],
    "smoker": [True, False, None, True, None, False, True],
    "name": ["x", "", "y", None, "x", "x", "x"],
}


def visits(**more: Any) -> dp.Table:
    columns: dict[str, Any] = {
        "town": ["Oslo", "Rome"],
        "age": (0, 100),
        "grade": [1, 2, 3],
        "smoker": bool,
        "name": str,
    }
    return dp.dataset("people", columns=columns, **more)


def again(query: Any, data: Any = VISITS) -> Any:
    """The answer of a plan that was written as a document and read."""
    released = query if isinstance(query, dp.Released) else query.release(EXACT)
    plan = dp.Pipeline(a=released).with_delta(1e-6)
    read = dp.load(plan.to_json())
    assert read.fingerprint == plan.fingerprint
    return np.asarray(read.simulate(seed=1, people=data)["a"]).round(4).tolist()


def test_categories_that_are_filled_are_categories() -> None:
    table = visits()
    filled = table.fill(town="unknown", grade=9, smoker=False)
    assert filled.domain.columns["town"] == dp.dataset(
        "t", columns={"town": ["Oslo", "Rome", "unknown"]}
    ).domain.find("town")
    assert filled.domain.complete == {"town", "grade", "smoker"}
    assert again(filled["town"].histogram()) == [2, 1, 3]
    assert again(table["town"].fill("Oslo").histogram()) == [5, 1]  # a category that there is
    assert again(filled.group_by("town").count()) == [2, 1, 3]
    assert again(filled.group_by("town").average("age", EXACT)) == [4, 4, 3.3333]
    assert again(filled.group_by("town", "smoker").count()) == [0, 2, 0, 1, 3, 0]
    assert [again(part.count()) for _, part in filled.partition("town")] == [2, 1, 3]
    assert again(filled["grade"].histogram()) == [1, 1, 2, 2]
    assert again(table["grade"].fill("none").histogram()) == [1, 1, 2, 2]
    assert again(filled.filter(filled["smoker"]).count()) == 3
    assert again(table.filter(~table["smoker"].fill(True)).count()) == 2
    town = table["town"].fill("unknown")
    assert again(table.filter(town == "unknown").count()) == 3
    assert again(table.filter(town.isin(["unknown", "Rome"])).count()) == 4
    assert again(table.filter(~town.is_present()).count()) == 0
    assert "town = fill(town, unknown)" in str(dp.Pipeline(a=filled.count()))
    assert "fill(town, unknown)" in str(dp.Pipeline(a=town.histogram()))


def test_numbers_of_categories_that_are_filled() -> None:
    grade = visits()["grade"].fill(9)
    assert again((grade + 0).sum()) == 1 + 2 + 9 + 3 + 3 + 9 + 7
    assert again(visits().filter(grade > 2).count()) == 5
    assert again(grade.clip(1, 3).sum()) == 1 + 2 + 3 * 5
    # of objects those that are no numbers are missing, or an exchange would move more than it says
    table = dp.dataset("people", columns={"grade": [2, 3]}, neighbors="replace_one")
    query = table["grade"].fill(2).clip(2, 3).sum()
    operation: Any = query.operation
    assert operation.sensitivity(query.domain, change_at(query.inputs[0]), 1) == 1
    cells = (2, 3, 7, None, NAN, "three", b"3", 2**70, True, 10**400)
    sums = [again(query, {"grade": np.array([cell, 3], dtype=object)}) for cell in cells]
    assert max(sums) - min(sums) == 1


def test_strings_that_nobody_lists_are_filled_with_one() -> None:
    table = visits()
    keys = table.fill(name="nobody").group_by("name").count()
    plan = dp.Pipeline(a=keys.release(dp.ThresholdLaplace(scale=0.01, delta=0.5)))
    read = dp.load(plan.to_json()).with_delta(0.5)
    assert read.simulate(seed=1, people=VISITS)["a"] == {"nobody": 2, "x": 4}
    # a key that one unit alone has shows as rarely as any other
    assert again(table["name"].fill("nobody").histogram(keys=["x", "nobody"])) == [4, 2]


@pytest.mark.parametrize("form", ["csv", "parquet", "categorical", "numpy"])
def test_filled_categories_in_every_kind_of_data(form: str, tmp_path: Path) -> None:
    table = dp.dataset("people", columns={"town": ["Oslo", "Rome"], "name": str})
    towns: list[Any] = ["Oslo", None, "Rome", None, "Paris"] * 50
    data: Any = {"town": towns, "name": towns}
    if form == "csv":
        data = tmp_path / "people.csv"
        data.write_text("town,name\n" + "".join(f"{t or ''},{t or ''}\n" for t in towns))
    elif form == "parquet":
        pl.DataFrame(data).write_parquet(data := tmp_path / "people.parquet")
    elif form == "categorical":
        data = pl.DataFrame(data).cast(pl.Categorical)
    else:
        data = {name: np.array([t or "" for t in cells]) for name, cells in data.items()}
    filled = table.fill(town="unknown", name="unknown")
    assert again(filled.group_by("town").count(), data) == [50, 50, 100]
    assert again(filled["name"].histogram(keys=["unknown", "Paris"]), data) == [100, 50]
    noise = dp.ThresholdLaplace(scale=0.01, delta=0.5)
    plan = dp.Pipeline(a=filled.group_by("name").count().release(noise)).with_delta(0.5)
    found = plan.simulate(seed=1, people=data)["a"]
    assert found == {"Oslo": 50, "Paris": 50, "Rome": 50, "unknown": 100}


REFUSED: dict[str, tuple[Any, str]] = {
    "an empty str": (lambda t: t["town"].fill(""), "missing value itself"),
    "None": (lambda t: t["town"].fill(None), "finite number"),
    "a number among strings": (lambda t: t["town"].fill(3), "fill strings with a str"),
    "a number among str": (lambda t: t["name"].fill(3), "fill strings with a str"),
    "NaN": (lambda t: t["grade"].fill(NAN), "finite number"),
    "a huge number": (lambda t: t["grade"].fill(10**400), "number"),
    "arithmetic": (lambda t: t["town"].fill("u") + 1, "not numbers"),
    "an order": (lambda t: t["town"].fill("u") > 3, "not numbers"),
    "another category": (lambda t: t.filter(t["town"].fill("u") == "Bonn"), "no category 'Bonn'"),
    "a sum": (lambda t: t["town"].fill("u").sum(), "histogram"),
    "a sum beside a str": (lambda t: t["grade"].fill("none").clip(0, 3).sum(), "not numbers"),
    "a column": (lambda t: t["town"].fill(t["name"]), "finite number"),
    "words among numbers": (lambda t: t["age"].fill("old"), "finite number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_filled(name: str) -> None:
    call, words = REFUSED[name]
    with pytest.raises(dp.DeclarationError, match=words):
        call(visits())


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
def test_groups_of_filled_categories_move_as_declared(neighbors: Any) -> None:
    """By brute force over all data of two rows, and all that one may be."""
    table = visits(neighbors=neighbors)
    query = table.fill(town="unknown").group_by("town").count()
    operation: Any = query.operation
    cells: tuple[Any, ...] = ("Oslo", "Rome", None, "Paris")

    def counts(*towns: Any) -> Any:
        data = {name: np.array(VISITS[name][: len(towns)], object) for name in VISITS}
        data |= {"town": np.array(towns, object), "age": np.zeros(len(towns))}
        return np.array(again(query, data))

    one = {cell: counts("Rome", cell) for cell in cells}
    none = counts("Rome")
    if neighbors == "replace_one":
        moved = [a - b for a, b in itertools.combinations(one.values(), 2)]
    else:
        moved = [each - none for each in one.values()]
    for norm in (1, 2, math.inf):
        most = max(float(np.linalg.norm(each, norm)) for each in moved)
        declared = operation.sensitivity(query.domain, change_at(query.inputs[0]), norm)
        assert most == pytest.approx(declared, rel=1e-9)


# --- Cells of classes of their own, and one rule for identifiers ------------------------------


class OddStr(str):
    """A str whose methods raise: what is private in it must not end a run."""

    def _fails(self, *_):
        raise RuntimeError("private")

    __str__ = __eq__ = __ne__ = __hash__ = strip = lower = encode = _fails


class OddFloat(float):
    def _fails(self, *_):
        raise RuntimeError("private")

    __float__ = __int__ = __eq__ = __lt__ = __gt__ = __hash__ = as_integer_ratio = _fails


class OddInt(int):
    def _fails(self, *_):
        raise RuntimeError("private")

    __float__ = __int__ = __index__ = __eq__ = __lt__ = __gt__ = __hash__ = _fails


class OddDecimal(Decimal):
    def _fails(self, *_):
        raise RuntimeError("private")

    __float__ = __eq__ = __hash__ = as_integer_ratio = _fails


class Shouts(str):
    """A harmless one: shown otherwise, equal to its characters."""

    def __str__(self):
        return self.upper() + "!"


ODD = [OddStr("1"), OddFloat(1), OddInt(1), OddDecimal(1)]
LITTLE = dp.Laplace(scale=1e-3)


def counted(columns, rows, condition, **declared):
    people = dp.dataset("people", columns=columns, **declared)
    plan = dp.Pipeline(n=condition(people).count().release(LITTLE))
    return round(plan.simulate(seed=1, people=rows)["n"])


@pytest.mark.parametrize("odd", ODD, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize(
    ("columns", "kind"), [((0, 5), list), ([0, 1], list), ([0, 1], "array"), (None, list)]
)
def test_a_cell_whose_methods_raise_is_missing(odd, columns, kind):
    rows = [odd, 1, odd, 0, 1]
    column = np.array(rows, dtype=object) if kind == "array" else rows
    for condition, expected in [
        (lambda p: p, 5),
        (lambda p: p.filter(p["x"].is_present()), 3),
        (lambda p: p.filter(p["x"] == 1), 2),
        (lambda p: p.filter(p["x"] != 1), 1),
    ]:
        assert counted({"x": columns}, {"x": column}, condition) == expected
    # as an identifier it is none: its rows are dropped
    ids = {"x": rows, "id": [odd, 1, odd, 2, 3]}
    assert counted({}, ids, lambda p: p, unit="id") == 3


def test_words_whose_methods_raise_are_missing():
    rows = {"x": [OddStr("a"), "a", "b", Shouts("a")]}
    assert counted({"x": ["a", "b"]}, rows, lambda p: p.filter(p["x"] == "a")) == 2
    assert counted({"x": ["a", "b"]}, rows, lambda p: p.filter(p["x"].is_present())) == 3
    dates = {"x": [OddStr("2024-01-01"), "2024-01-02"]}
    days = (date(2024, 1, 1), date(2024, 12, 31))
    assert counted({"x": days}, dates, lambda p: p.filter(p["x"].is_present())) == 1


IDENTIFIERS = [
    # numbers by their value, whatever their type
    ([1, 1.0, True, Decimal(1), Fraction(1), np.int8(1), np.float32(1)], 1),
    # str by their characters
    (["1", "01", "1.0", " 1", "１"], 5),
    # a str is never a number
    ([1, "1"], 2),
    ([1, 1.0, "1", "01", "1.0", 2**53, 2.0**53, 2**53 + 1], 6),
    (["1", Shouts("1"), np.str_("1")], 1),
    ([None, math.nan, "", OddInt(1)], 0),
]


@pytest.mark.parametrize(("ids", "units"), IDENTIFIERS)
def test_identifiers_follow_one_rule(ids, units):
    codes = unit_codes(objects(ids))
    assert len(set(codes[codes >= 0].tolist())) == units
    # one row a unit: as many rows are counted
    assert counted({}, {"id": ids}, lambda p: p, unit="id") == units


def test_in_a_csv_file_identifiers_are_str(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("id,x\n1,1\n01,1\n1.0,1\n1,1\n")
    assert counted({"x": (0, 1)}, file, lambda p: p, unit="id") == 3


def test_missing_is_the_same_in_lists_and_frames():
    pd, pa = (pytest.importorskip(name) for name in ("pandas", "pyarrow"))
    words = ["A", None, None, "", "B"]
    of_words = {
        "list": {"x": ["A", None, math.nan, "", "B"]},
        "array": {"x": np.array(["A", None, math.nan, "", "B"], dtype=object)},
        "pandas": pd.DataFrame({"x": pd.Series(["A", pd.NA, math.nan, "", "B"], dtype=object)}),
        "string": pd.DataFrame({"x": pd.Series(words, dtype="string")}),
        "category": pd.DataFrame({"x": pd.Categorical(words)}),
        "polars": pl.DataFrame({"x": words}),
        "arrow": pa.table({"x": words}),
    }
    numbers = [1.0, None, math.nan, 2.0, 0.0]
    of_numbers = {
        "list": {"x": [1.0, None, math.nan, 2, 0]},
        "pandas": pd.DataFrame({"x": pd.Series(numbers, dtype=float)}),
        "Int64": pd.DataFrame({"x": pd.Series([1, None, None, 2, 0], dtype="Int64")}),
        "polars": pl.DataFrame({"x": numbers}),
        "arrow": pa.table({"x": pa.array(numbers)}),
    }
    for forms, domains, one in [
        (of_words, [["A", "B"], None], "A"),
        (of_numbers, [(0, 5), [0, 1, 2], None], 1),
    ]:
        for domain in domains:
            for condition in (
                lambda p: p.filter(p["x"].is_present()),
                lambda p, one=one: p.filter(p["x"] != one),
                lambda p, one=one: p.filter(~(p["x"] == one)),
            ):
                found = {f: counted({"x": domain}, rows, condition) for f, rows in forms.items()}
                assert len(set(found.values())) == 1, found
        units = {f: counted({}, rows, lambda p: p, unit="x") for f, rows in forms.items()}
        assert len(set(units.values())) == 1, units


def test_no_text_of_a_plan_has_control_characters():
    people = dp.dataset("people", columns={"a\x07\x1b[2J": (0, 1), "c": ["x\x1b[31m", "y\u202e"]})
    plan = dp.Pipeline(
        **{"o\x1b[2J\r": people["a\x07\x1b[2J"].sum().release(dp.Laplace(scale=3))},
        h=people["c"].histogram().release(dp.Laplace(scale=3)),
        f=people.filter(people["c"] == "x\x1b[31m").count().release(dp.Laplace(3)),
    )
    result = plan.simulate(seed=1, people={"a\x07\x1b[2J": [1.0], "c": ["y\u202e"]})
    other = dp.Pipeline(n=people.count().release(dp.Laplace(1)))
    column = people["a\x07\x1b[2J"]
    shown = [repr(plan), str(plan), repr(column), plan.diff(other), str(plan.certify())]
    shown += [plan._repr_html_(), plan.mermaid(), plan.svg(), repr(result), str(result)]
    shown += [repr(handle) for _, handle in plan.outputs]
    for text in shown:
        hidden = [c for c in text if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"]
        assert not hidden, (hidden, text[:200])
