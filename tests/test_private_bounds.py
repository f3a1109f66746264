"""Bounds found privately: what they cost, what they contain, and what noise alone does to them."""

from __future__ import annotations

import math

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
