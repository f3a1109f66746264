"""Noise that is left free in proportion to sensitivity, averages, and files as data."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.handles import Release

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
    with pytest.raises(dp.DeclarationError, match="mean"):
        dp.dataset("p", columns=PEOPLE, neighbors="replace_one", size=9)["age"].average(
            dp.Laplace()
        )


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
