"""Bounds found privately: what they cost, what they contain, and what noise alone does to them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.queries.order_statistics import MAGNITUDES, occupied_range

EDGES = [*(-e for e in reversed(MAGNITUDES)), 0.0, *MAGNITUDES]


def people() -> dp.Table:
    return dp.dataset("people", columns={"income": None, "town": str}, unit="id", rows_per_unit=2)


def test_it_costs_one_histogram() -> None:
    """Two rows of a unit move two counts by one, or one by two: epsilon 2 / scale."""
    plan = dp.Pipeline(bounds=people()["income"].bounds(dp.Laplace(scale=10)))
    assert plan.certify().epsilon == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.linspace(20, 90, 4_000), (16, 128)),
        (np.linspace(-500, 700, 4_000), (-512, 1_024)),
        (np.full(4_000, -3.0), (-4, -2)),
        (np.zeros(4_000), (0, 2.0**-16)),
        (np.full(4_000, 1e300), (2.0**49, 2.0**50)),
        (np.r_[np.full(4_000, 5.0), np.full(4_000, np.nan)], (4, 8)),
    ],
)
def test_they_contain_the_data(values: np.ndarray, expected: tuple[float, float]) -> None:
    """Bins of hundreds of rows show over noise of scale 1, and of 134 bins none by noise."""
    plan = dp.Pipeline(bounds=people()["income"].bounds(dp.Laplace(scale=1), failure=1e-9))
    data = {"income": values, "id": np.arange(len(values)), "town": ["A"] * len(values)}
    result = plan.simulate(seed=1, people=data)
    low, high = result["bounds"]
    assert (low, high) == expected


@pytest.mark.parametrize("gaussian", [False, True])
def test_noise_alone_rarely_widens_them(gaussian: bool) -> None:
    """4,000 times, one bin of rows: wider with probability .01 at most, .02 with the estimate.

    More than 150 of 4,000 at .02 has a probability below 1e-6 by Chernoff's bound.
    """
    draw = np.random.default_rng(3)
    count = len(EDGES) - 1
    noise = draw.normal(size=(4_000, count)) if gaussian else draw.laplace(size=(4_000, count))
    counts = 7 * noise
    counts[:, 90] += 1e6
    ranges = [occupied_range(row, edges=EDGES, failure=0.01) for row in counts]
    wider = sum(tuple(each) != (EDGES[90], EDGES[91]) for each in ranges)
    assert math.exp(150 - 80 - 150 * math.log(150 / 80)) < 1e-6
    assert wider <= 150


def test_without_rows_there_are_bounds() -> None:
    low, high = occupied_range(np.zeros(len(EDGES) - 1), edges=EDGES, failure=0.1)
    assert low < high


def test_released_bounds_clip_in_a_session() -> None:
    data = {"income": np.linspace(20, 90, 4_000), "id": np.arange(4_000), "town": ["A"] * 4_000}
    with dp.Session(budget=dp.Budget(4.0), people=data) as session:
        query = people()["income"].bounds(dp.Laplace(), failure=1e-9)
        low, high = session.run(query, epsilon=2.0)
        mean = session.run(people()["income"].clip(low, high).average(dp.Laplace()), epsilon=2.0)
    assert abs(mean - 55) < 5


def test_failure_is_a_probability() -> None:
    with pytest.raises(dp.DeclarationError, match="between 0 and 1"):
        people()["income"].bounds(dp.Laplace(), failure=2)


def test_made_up_columns_of_str_are_str() -> None:
    """`calibrate(error=...)` makes up rows, of a table with a column of str too."""
    table = dp.dataset("people", columns={"age": (0, 100), "town": str})
    plan = dp.Pipeline(age=table["age"].average(dp.Laplace()))
    assert plan.calibrate(error={"age": 1.0}, rows=1_000).certify().epsilon > 0


# --- learners of columns whose ranges are learned


def skewed(count: int = 6000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    income, offset = rng.lognormal(10, 0.5, count), rng.uniform(-0.02, 0.01, count)
    sick = income / 2e4 + 50 * offset + 0.1 * rng.logistic(size=count) < 1
    return {"income": income, "offset": offset, "ill": np.where(sick, "yes", "no")}


UNBOUNDED = {"income": None, "offset": None, "ill": ["no", "yes"], "spent": (0, 100)}


@pytest.mark.parametrize(
    ("learner", "delta", "relation"),
    [
        (
            dp.ObjectivePerturbation(["income", "offset"], "ill", dp.HuberHinge()),
            1e-6,
            "add_remove",
        ),
        (dp.ObjectivePerturbation(["income", "offset"], "ill"), 0.0, "replace_one"),
        (dp.AdaSSP(["income", "offset"], "spent"), 1e-6, "zero_out"),
        (dp.NoisyGradientDescent(["income"], "ill", steps=9), 1e-6, "replace_one"),
    ],
    ids=["objective", "pure", "moments", "descent"],
)
def test_ranges_and_learner_share_one_budget(learner: Any, delta: float, relation: str) -> None:
    size = None if relation == "add_remove" else 6000
    table = dp.dataset("people", columns=UNBOUNDED, neighbors=relation, size=size)
    model = table.solve(dp.Standardised(learner), epsilon=1.0, delta=delta)
    certificate = dp.Pipeline(model=model).with_delta(delta).certify()
    assert 0.995 <= certificate.epsilon <= 1.0
    ranges = [name for name in certificate.shares if "histogram" in name]
    assert len(ranges) == len(learner.features)


def test_coefficients_come_back_in_the_columns_own_units() -> None:
    """At a large epsilon they are those of a learner that was told the same ranges."""
    rows = skewed()
    rows["spent"] = np.clip(rows["income"] / 1e3 + 1e3 * rows["offset"], 0, 100)
    learner = dp.SSP(["income", "offset"], "spent")
    people = dp.dataset("people", columns=UNBOUNDED)
    solved = people.solve(dp.Standardised(learner), epsilon=1e3, delta=1e-6)
    model = dp.Pipeline(model=solved).simulate(seed=1, people=rows)["model"]
    x = np.column_stack([np.ones(len(rows["income"])), rows["income"], rows["offset"]])
    exact = np.linalg.lstsq(x, rows["spent"], rcond=None)[0]
    assert model["income"] == pytest.approx(exact[1], rel=0.02)
    assert model["offset"] == pytest.approx(exact[2], rel=0.02)
    assert model["intercept"] == pytest.approx(exact[0], abs=0.5)


def test_a_rescaled_column_is_within_its_bounds_whatever_the_range() -> None:
    values = np.array([-1e300, -3.0, 0.0, 2.0, 1e308, np.inf, -np.inf])
    people = dp.dataset("people", columns={"x": None})
    for low, high in ((-1.0, 1.0), (0.0, 0.0), (5.0, -5.0), (np.nan, np.inf), (-1e308, 1e308)):
        scaled = people.rescale(["x"], dp.public([[low, high]]))
        assert scaled.domain.columns["x"].largest == 1
        total = scaled["x"].sum().release(dp.Laplace(scale=1e-9))
        found = dp.Pipeline(total=total).simulate(seed=1, people={"x": values})["total"]
        assert abs(found) <= len(values)
    inside = people.rescale(["x"], dp.public([[0.0, 4.0]]))["x"].sum().release(dp.Laplace(1e-9))
    found = dp.Pipeline(t=inside).simulate(seed=1, people={"x": [0.0, 1.0, 4.0, 9.0, None]})["t"]
    assert found == pytest.approx(-1 - 0.5 + 1 + 1, abs=1e-5)


def test_what_cannot_be_standardised_is_refused() -> None:
    people = dp.dataset("people", columns=UNBOUNDED)
    for wrong in (
        dp.AdditiveModel(["income"], "ill"),
        dp.NoisyGradientDescent(["income"], "ill", dp.Network(dp.Logistic(), hidden=2)),
        "SSP",
    ):
        with pytest.raises(dp.DeclarationError, match="coefficients by feature"):
            dp.Standardised(wrong)
    both = dp.Standardised(dp.SSP(["income"], "spent"))
    with pytest.raises(dp.DeclarationError, match="budget"):
        people.solve(both)
    other = dp.Standardised(dp.SSP(["income"], "spent"), columns=["offset"])
    with pytest.raises(dp.DeclarationError, match="columns"):
        people.solve(other, epsilon=1.0, delta=1e-6)
    for names in ([], ["income", "income"], ["ill"]):
        with pytest.raises(dp.DeclarationError, match="rescaled"):
            people.rescale(names, dp.public([[0, 1]]))
    with pytest.raises(dp.LeakError):
        people.rescale(["income"], people["income"])
