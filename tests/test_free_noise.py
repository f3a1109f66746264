"""Noise that is left free in proportion to sensitivity, averages, and files as data."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from attrs import frozen

import adaptive_dp as dp
from adaptive_dp.graph import plan as plan_module
from adaptive_dp.graph.handles import PrivateQuery, Release
from adaptive_dp.graph.operation import Change, Query

PEOPLE = {"age": (0, 70), "pay": (-10_000, 20_000), "kind": ["a", "b", "c"]}


def table(rows: int = 1, **options: object) -> dp.Table:
    """Return the declared data set."""
    unit = {"unit": "id", "rows_per_unit": rows} if rows > 1 else {}
    return dp.dataset("people", columns=PEOPLE, **unit, **options)


def mechanisms(plan: dp.Pipeline) -> list[Any]:
    """Return the mechanisms of a plan's releases."""
    made = (node.handle.operation for node in plan.structure)
    return [operation.mechanism for operation in made if isinstance(operation, Release)]


def weights(released: dp.Released[float]) -> list[float]:
    """Return the weights of what is free."""
    return [w for all_of in dp.Pipeline(x=released).free.values() for w in all_of]


@pytest.mark.parametrize("rows", [1, 5])
def test_free_noise_weighs_what_a_unit_moves(rows: int) -> None:
    people = table(rows)
    # by hand: a row adds 1 to a count, the largest bound to a sum, 1 to a bar
    for query, l1 in (
        (people.count(), 1),
        (people["pay"].sum(), 20_000),
        (people["kind"].histogram(), 1),
        (people.partition("kind")["a"]["age"].sum(), 70),
    ):
        (weight,) = weights(query.release(dp.Laplace()))
        assert weight == pytest.approx(rows * l1)
    (weight,) = weights(people["kind"].histogram().release(dp.Gaussian()))
    assert math.isclose(weight, rows)  # all of a unit's rows in one bar


def test_releases_with_free_noise_cost_the_same() -> None:
    people = table()
    plan = dp.Pipeline(
        n=people.count().release(dp.Laplace()), pay=people["pay"].sum().release(dp.Laplace())
    ).calibrate(epsilon=1.0)
    scales = {
        s.mechanism.scale
        for s in (n.handle.operation for n in plan.structure)
        if hasattr(s, "mechanism")
    }
    small, large = sorted(scales)
    assert large / small == pytest.approx(20_000)
    assert small == pytest.approx(2.0, rel=1e-6)  # half of epsilon each: 1 / b = 1 / 2
    assert plan.certify().epsilon <= 1


def test_free_noise_of_choices_and_unbounded_units() -> None:
    people = table()
    assert weights(people["kind"].histogram().release(dp.Exponential())) == [1.0]
    loose = dp.dataset("people", columns=PEOPLE, unit="id", rows_per_unit=2)
    assert dp.Pipeline(x=loose.count().release(dp.DiscreteLaplace())).free == {"noise": [2.0]}


def test_a_weight_is_none_or_positive() -> None:
    with pytest.raises(dp.DeclarationError, match=r"\bweight\b"):
        dp.Free("b", weight=0)
    assert str(dp.Free("noise", weight=None)) == "noise"


@pytest.mark.parametrize("seed", range(3))
def test_an_average_is_a_sum_over_a_count(seed: int) -> None:
    people = table()
    plan = dp.Pipeline(age=people["age"].average(dp.Laplace())).calibrate(epsilon=1.0)
    ages = np.linspace(20, 60, 20_001)
    frame = {"age": ages, "pay": ages, "kind": np.array(["a"] * len(ages))}
    value = plan.simulate(seed=seed, people=frame)["age"]
    # sum: scale 140, count: scale 2; 20,001 rows: off by far less than 0.2 but for exp(-28)
    assert abs(value - 40) < 0.2
    few = {"age": [70.0], "pay": [0.0], "kind": ["a"]}
    assert all(0 <= plan.simulate(seed=s, people=few)["age"] <= 70 for s in range(20))


def test_the_noise_of_an_average_that_is_given() -> None:
    people = table()
    plan = dp.Pipeline(pay=people["pay"].average(dp.Gaussian(sigma=3)))
    assert sorted(Fraction(m.sigma) for m in mechanisms(plan)) == [3, 60_000]
    fixed = dp.dataset("p", columns=PEOPLE, neighbors="replace_one", size=9)
    with pytest.raises(dp.DeclarationError, match="mean"):
        fixed["age"].fill(40).average(dp.Laplace())


def test_averages_may_share_a_count() -> None:
    """Three releases of equal cost instead of four: at epsilon 1 a count's scale is 3, not 4."""
    people = table()
    n = people.count().release(dp.Laplace())
    plan = dp.Pipeline(
        n=n,
        age=people["age"].average(dp.Laplace(), count=n),
        pay=people["pay"].average(dp.Laplace(), count=n),
    ).calibrate(epsilon=1.0)
    scales = sorted(float(m.scale) for m in mechanisms(plan))
    assert scales == pytest.approx([3, 3 * 70, 3 * 20_000], rel=1e-6)
    ages = np.linspace(20, 60, 20_001)
    frame = {"age": ages, "pay": 100 * ages, "kind": np.array(["a"] * len(ages))}
    released = plan.simulate(seed=1, people=frame)
    # sums: scales 210 and 60,000 over 20,001 rows; off by more has a chance below exp(-28)
    assert abs(released["age"] - 40) < 0.4
    assert abs(released["pay"] - 4_000) < 200
    with pytest.raises((dp.DeclarationError, dp.LeakError)):
        people["age"].average(dp.Laplace(), count=people.count())


def test_an_average_counts_the_table_of_a_clipped_column() -> None:
    people = table()
    plan = dp.Pipeline(pay=people["pay"].clip(0, 100).average(dp.Laplace(scale=1)))
    pay = np.repeat([-50.0, 1e9], 5000)
    frame = {"age": pay, "pay": pay, "kind": np.array(["a"] * len(pay))}
    assert plan.simulate(seed=1, people=frame)["pay"] == pytest.approx(50, abs=1)


def test_a_plan_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,pay,kind\n30,1,a\n40,2,b\nx,,\n")
    plan = dp.Pipeline(n=table().count().release(dp.Laplace(scale=1e-6)))
    assert plan.simulate(seed=0, people=str(path))["n"] == pytest.approx(3, abs=1e-3)
    assert plan.simulate(seed=0, people=path)["n"] == pytest.approx(3, abs=1e-3)
    with pytest.raises(dp.DataError, match="'people'"):
        plan.simulate(seed=0, people=str(tmp_path / "other.csv"))
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(dp.DataError, match="'people'"):
        plan.simulate(seed=0, people=tmp_path / "b.csv")


def test_a_session_reads_a_file_and_refuses_by_a_name_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("age,pay,kind\n" + "30,1,a\n" * 50)
    with dp.Session(budget=dp.Budget(1.0), seed=1, people=path) as session:
        n = session.run(table().count().release(dp.Laplace(scale=2)))
        assert 0 < n < 100
        with pytest.raises(dp.BudgetError):
            session.run(table().count().release(dp.Laplace(scale=1)))


def test_released_counts_are_shown_with_what_they_count() -> None:
    people = table()
    plan = dp.Pipeline(
        kinds=people["kind"].histogram().release(dp.Laplace(scale=1)),
        nested={"ages": people["age"].histogram([0, 18, 70]).release(dp.Gaussian(sigma=1))},
        rows=people.counts([people["age"] >= 18]).release(dp.Laplace(scale=1)),
        kind=people["kind"].histogram().release(dp.Exponential(scale=1)),
    )
    released = plan.simulate(seed=0, people={"age": [1.0], "pay": [1.0], "kind": ["a"]})
    for label in ("kinds[b]", "nested.ages[[0, 18)]", "rows[age >= 18", "kind "):
        assert label in str(released), str(released)
        assert label.strip() in released._repr_html_().replace("&gt;", ">")


# --- queries that nobody released: the default mechanism ---------------------------------------


def test_a_query_of_a_plan_has_noise_by_default() -> None:
    people = table(5)
    for query, mechanism in (
        (people.count(), "DiscreteLaplace"),
        (people.count_distinct(), "DiscreteLaplace"),
        (people["pay"].sum(), "Laplace"),
        (people["kind"].histogram(), "DiscreteLaplace"),
        (people.group_by("kind").sum("age"), "Laplace"),
        (people["age"].median(), "QuantileExponential"),
        (people.vectors(["age", "pay"], scale=True).gram(), "Laplace"),
        # exact noise with intervals comes before float64 noise, whatever `suitable` names first
        (people.counts([people["age"] > 3, people["pay"] > 5]), "DiscreteLaplace"),
    ):
        plan = dp.Pipeline(x=query)
        (made,) = mechanisms(plan)
        assert type(made).__name__ == mechanism
        assert made.free()
        first, *_ = (a.mechanism for a in dp.suitable(query) if a.mechanism is not dp.Norm)
        assert first is type(made)
        assert mechanism in str(plan)
        with pytest.raises(dp.DeclarationError, match="calibrate"):
            plan.certify()
        assert 0.99 < plan.calibrate(epsilon=1).certify().epsilon <= 1


def test_what_has_no_default_says_what_to_write() -> None:
    people = table()
    with pytest.raises(dp.DeclarationError, match=r"'x\.y'.*mode.*DistanceToInstability"):
        dp.Pipeline(x={"y": people["kind"].mode()})
    for private in (people, people["age"], people.partition("kind")["a"]):
        with pytest.raises(dp.LeakError, match="'x' is private"):
            dp.Pipeline(x=private)
    with pytest.raises(dp.LeakError, match=r"\.release\(\)"):
        dp.post(max, people.count())  # type: ignore[arg-type]


def names(**outputs: Any) -> list[str]:
    """Return the releases of a plan."""
    return sorted(dp.Pipeline(**outputs).calibrate(epsilon=1).certify().shares)


def test_averages_by_default_share_the_count_of_the_plan() -> None:
    people, groups = table(), table().group_by("kind")
    three = {
        "age": people["age"].average(),
        "pay": people["pay"].average(),
        "half": dp.post(lambda mean: mean / 2, people["age"].clip(0, 30).average()),
    }
    sums = ["sum of age (age)", "sum of age (half)", "sum of pay"]
    assert names(**three) == ["noisy_count", *sums]
    # with the count as a query, or as the user released it
    assert names(n=people.count(), **three) == ["n", *sums]
    assert names(n=people.count().release(dp.Laplace()), **three) == ["n", *sums]
    assert names(n=people.count(), m=people.count()) == ["m"]
    again = table().group_by("kind")
    assert names(n=groups.count(), a=again.average("age"), p=groups.average("pay")) == [
        "n",
        "sum of age",
        "sum of pay",
    ]
    # the count of other rows is another one; an average by itself counts rows with a value
    old = people.filter(people["age"] > 60)
    assert len(names(n=people.count(), age=old["age"].average())) == 3
    assert names(age=people["age"].average()) == ["noisy_count", "sum of age"]
    kinds = {n.handle.operation.kind for n in dp.Pipeline(a=three["age"]).structure}
    assert "where" in kinds or "filter" in kinds
    # fixed noise was chosen for that count alone, and two samples are two tables
    fixed = people.count().release(dp.Laplace(scale=500))
    assert len(names(n=fixed, age=people["age"].average())) == 3
    one, two = people.sample(0.5), people.sample(0.5)
    assert len(names(n=one.count(), age=two["age"].average())) == 3


def test_shared_counts_give_the_averages_of_the_rows_that_have_a_value() -> None:
    people = table()
    plan = dp.Pipeline(n=people.count(), age=people["age"].average(), pay=people["pay"].average())
    draw = np.random.default_rng(0)
    ages, pays = draw.uniform(0, 70, 9_000), draw.uniform(-9_000, 9_000, 9_000)
    ages[::3] = np.nan
    result = plan.fix(noise=1e-9).simulate(
        seed=1, people={"age": ages, "pay": pays, "kind": ["a"] * 9_000}
    )
    assert result["n"] == 9_000
    assert result["age"] == pytest.approx(np.nanmean(ages), abs=1e-4)
    assert result["pay"] == pytest.approx(np.mean(pays), abs=1e-2)


def test_noise_that_was_chosen_stays_where_an_average_gets_into_another_plan() -> None:
    people = table()
    plan = dp.Pipeline(age=people["age"].average(), pay=people["pay"].average()).fix(noise=2.0)
    again = dp.Pipeline(**{path[0]: handle for path, handle in plan.outputs}, n=people.count())
    assert sum(bool(made.free()) for made in mechanisms(again)) == 1
    assert len(mechanisms(again)) == 4


def test_a_session_runs_queries_with_noise_by_default() -> None:
    people = table()
    data = {"age": [30.0] * 500, "pay": [9.0] * 500, "kind": ["a", "b"] * 250}
    with dp.Session(budget=dp.Budget(1.0), people=data, seed=1) as session:
        assert session.what_if(people.count(), epsilon=0.1).fits
        first = session.run(people.count(), epsilon=0.1)
        # the same query for the same limit has the same noise, and so the recorded value
        assert session.run(people.count(), epsilon=0.1) == first == round(first)
        assert session.spent.costs[0] == pytest.approx(0.1)
        assert len(session.run(people.group_by("kind").count(), share=0.2)) == 3
        assert 0 <= session.run(people["age"].average(), share=0.2) <= 70
        with pytest.raises(dp.DeclarationError, match="DistanceToInstability"):
            session.run(people["kind"].mode(), share=0.2)


class Setting:
    """An object that is no function: what closes over one is described by its type."""

    def __init__(self, answer: float) -> None:
        self.answer = answer


def test_queries_of_functions_that_are_described_alike_are_answered_each_by_its_own() -> None:
    people = table()

    def query(answer: float) -> PrivateQuery[float]:
        setting = Setting(answer)
        return people["age"].instance(
            lambda values: setting.answer, lambda values, k: 0.0, range=(0, 100)
        )

    ten, ninety = query(10), query(90)
    noise = dp.SmoothCauchy(epsilon=1e9)
    plan = dp.Pipeline(ten=ten.release(noise), ninety=ninety.release(noise))
    result = plan.simulate(seed=1, people={"age": [1, 2], "pay": [3, 4], "kind": ["a", "b"]})
    assert (round(result["ten"]), round(result["ninety"])) == (10, 90)
    assert plan_module._question(ten) != plan_module._question(ninety)
    assert plan_module._question(ten) == plan_module._question(ten)


def own_query(factor: float) -> type[Query]:
    """Return a class that shares its name and its parameters with the others made here."""

    @frozen
    class Rows(Query):
        kind: ClassVar[str] = "own_rows"

        def domain(self, inputs: Any) -> Any:
            return None

        def sensitivity(self, domain: Any, change: Change, norm: float) -> float:
            return factor * change.rows

        def run(self, inputs: Any, stream: Any) -> float:
            return factor

    return Rows


def test_queries_of_classes_of_one_name_have_releases_of_their_own() -> None:
    people = table()
    one, hundred = (PrivateQuery(own_query(f)(), (people,)) for f in (1, 100))
    plan = dp.Pipeline(one=one, hundred=hundred).fix(noise=1e-9)
    data = {"age": [1, 2], "pay": [3, 4], "kind": ["a", "b"]}
    result = plan.simulate(seed=1, people=data)
    assert (round(result["one"]), round(result["hundred"])) == (1, 100)
