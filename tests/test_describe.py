"""`Table.describe`: a count, averages and histograms, beside NumPy and their costs by hand."""

import numpy as np
import pytest

import adaptive_dp as dp

COLUMNS = {"age": (0, 100), "debt": (-50, 20), "town": ["a", "b"], "note": None}
ROWS = {
    "age": [20.0, 30.0, 70.0, 500.0],
    "debt": [-50.0, 10.0, 0.0, 0.0],
    "town": ["a", "a", "b", "nowhere"],
    "note": ["x"] * 4,
}


def test_it_is_what_numpy_says_of_the_clipped_rows():
    people = dp.dataset("people", columns=COLUMNS)
    plan = dp.Pipeline(**people.describe(dp.Laplace(scale=1e-9)))
    released = plan.simulate(seed=1, people=ROWS)
    assert released["count"] == pytest.approx(4, abs=1e-6)
    ages = np.clip(ROWS["age"], 0, 100)
    assert released["average"]["age"] == pytest.approx(np.mean(ages), abs=1e-5)
    assert released["average"]["debt"] == pytest.approx(np.mean(ROWS["debt"]), abs=1e-5)
    assert released["histogram"]["town"] == pytest.approx([2, 1], abs=1e-6)
    assert list(released["average"]) == ["age", "debt"]


def test_each_costs_what_the_count_does():
    """One row moves the count by 1, a bar by 1, and a sum by the largest bound: 4 times 1/5."""
    people = dp.dataset("people", columns=COLUMNS)
    plan = dp.Pipeline(**people.describe(dp.Laplace(scale=5)))
    assert plan.certify().epsilon == pytest.approx(0.8, rel=1e-6)
    some = dp.Pipeline(**people.describe(dp.Laplace(scale=5), ["debt"]))
    assert some.certify().epsilon == pytest.approx(0.4, rel=1e-6)
    free = dp.Pipeline(**people.describe(dp.Laplace())).calibrate(epsilon=1.0)
    assert 0.999 < free.certify().epsilon <= 1


def test_where_the_number_of_rows_is_public_it_is_not_released():
    """Exchanging a row moves a mean by 100/4, for which the noise is 5 * 25, and two bars by 1."""
    gaps = dp.dataset("people", columns=COLUMNS, neighbors="replace_one", size=4)
    people = gaps.fill(age=50)
    queries = people.describe(dp.Laplace(scale=5), ["age", "town"])
    assert set(queries) == {"average", "histogram"}
    assert dp.Pipeline(**queries).certify().epsilon == pytest.approx(0.6, rel=1e-6)
    # a value may be missing after the exchange alone: 100 less in one sum, 100 more in the other
    more = dp.Pipeline(**gaps.describe(dp.Laplace(scale=5), ["age", "town"]))
    assert more.certify().epsilon == pytest.approx(0.8, rel=1e-6)
    for table in (people, gaps):
        exact = dp.Pipeline(**table.describe(dp.Laplace(scale=1e-9), ["age"]))
        assert exact.simulate(seed=1, people=ROWS)["average"]["age"] == pytest.approx(55, abs=1e-5)


def test_parts_and_filtered_rows_can_be_described():
    people = dp.dataset("people", columns=COLUMNS)
    old = people.filter(people["age"] >= 65).describe(dp.Laplace(scale=5), ["debt"])
    towns = {k: part.describe(dp.Laplace(scale=5), ["age"]) for k, part in people.partition("town")}
    assert dp.Pipeline(old=old, towns=towns).certify().epsilon == pytest.approx(0.8, rel=1e-6)


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        (["height"], "height"),
        (["note"], "'note'"),
        ("age", r"\['age'\]"),
    ],
)
def test_what_cannot_be_described_is_refused(columns, match):
    people = dp.dataset("people", columns=COLUMNS)
    with pytest.raises(dp.DeclarationError, match=match):
        people.describe(dp.Laplace(), columns)
