"""Groups of which a unit has few, cross-tables, and several aggregates: beside brute force."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from test_groups import CHANGES, NORMS, apart, most, people, value, vectors

import adaptive_dp as dp
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.groups import GroupCount, GroupSum, with_margins

# --- Groups of which a unit has few, and few rows in each


def bounded_sides(cells, rows, groups, most_rows, points):
    """Return what a side may add: up to `rows` rows, in `groups` cells, `most_rows` in each."""
    width, result = len(points[0]), set()
    choices = [(cell, point) for cell in range(cells) for point in points]
    for count in range(rows + 1):
        for chosen in itertools.combinations_with_replacement(choices, count):
            held = [sum(c == cell for c, _ in chosen) for cell in range(cells)]
            if sum(h > 0 for h in held) <= groups and max(held) <= most_rows:
                vector = np.zeros(cells * width, dtype=np.int64)
                for cell, point in chosen:
                    vector[cell * width : (cell + 1) * width] += point
                result.add(tuple(vector))
    return np.array(sorted(result))


@pytest.mark.parametrize("limits", [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize(("a", "b"), [(1, 0), (3, 0), (2, 1), (3, 3)])
@pytest.mark.parametrize("cells", [1, 3])
def test_bounded_groups_move_by_no_more_than_is_declared(cells, a, b, limits):
    groups, most_rows = limits
    table = people(unit="free", rows_per_unit=3)
    bound = table.group_by("x", edges=list(range(cells + 1)), max_groups=groups, max_rows=most_rows)
    change = bound.operation.change(Change(b > 0, max(a, b), False, a + b))
    for bounds in [None, (0, 2), (-1, 2), (1, 2)]:
        if bounds is None:
            query, points = GroupCount(), [(1,)]
        else:
            query, points = GroupSum(["x"], [Interval(*bounds)]), [(v,) for v in bounds]
        more, fewer = (bounded_sides(cells, n, groups, most_rows, points) for n in (a, b))
        changes = (more[:, None] - fewer[None]).reshape(-1, more.shape[1])
        for norm in NORMS:
            declared = Fraction(query.sensitivity(bound.domain, change, norm))
            largest = most(changes, norm)
            assert declared ** (2 if norm == 2 else 1) >= largest
            if b == 0:  # attained by full cells and a rest
                exact = math.sqrt(largest) if norm == 2 else largest
                assert float(declared) == pytest.approx(exact, rel=1e-12)
        assert cells == 1 or query.span(bound.domain, change) >= apart(changes)
        moved = np.count_nonzero(changes, axis=1).max()
        assert query.coordinates_moved(bound.domain, change) >= moved


def first_in_groups(units, cells, groups, rows):
    """Return which rows are counted, looking at one after the other."""
    result, held = [], {}
    for unit, cell in zip(units, cells, strict=True):
        own = held.setdefault(unit, {})
        enters = cell >= 0 and (cell in own or len(own) < groups)
        result.append(enters and own.get(cell, 0) < rows)
        if enters:
            own[cell] = own.get(cell, 0) + 1
    return result


@pytest.mark.parametrize("source", ["memory", "csv", "parquet", "two files"])
def test_the_first_rows_of_the_first_groups_are_counted(source, tmp_path):
    draw = np.random.default_rng(5)
    ids, towns = draw.integers(0, 9, 200), draw.choice(["A", "B", "C", "elsewhere"], 200)
    frame = pd.DataFrame({"free": ids.astype(float), "c": towns, "x": draw.uniform(-1, 3, 200)})
    frame = frame.assign(k=1, y=0.0)
    places = frame["c"].map({"A": 0, "B": 1, "C": 2}).fillna(-1).astype(int)
    data = frame
    if source == "csv":
        data = tmp_path / "a.csv"
        frame.to_csv(data, index=False)
    elif source == "parquet":
        data = tmp_path / "a.parquet"
        frame.to_parquet(data, row_group_size=7)
    elif source == "two files":
        frame[:90].to_parquet(tmp_path / "1.parquet", row_group_size=20)
        frame[90:].to_parquet(tmp_path / "2.parquet")
        data = dp.Files([tmp_path / "1.parquet", tmp_path / "2.parquet"])
    table = people(unit="free", rows_per_unit=100)
    for groups, rows in [(1, 1), (2, 3), (3, 2), (2, 100)]:
        counted = first_in_groups(ids, places, groups, rows)
        exact = [sum(np.array(counted)[places == i]) for i in range(3)]
        counts = table.group_by("c", max_groups=groups, max_rows=rows).count()
        assert value(counts, data).round(3).tolist() == exact


def test_bounded_groups_need_less_noise():
    table = people(unit="free", rows_per_unit=8)
    cases = [({}, 8.0), ({"max_groups": 2, "max_rows": 2}, 8**0.5), ({"max_rows": 1}, 3**0.5)]
    one = dp.Pipeline(n=people().count().release(dp.Gaussian(sigma=1))).certify(1e-6)
    for bounds, far in cases:
        # three groups at most: of 8 rows with one in each, three count
        groups = {**bounds, "max_groups": 3} if bounds == {"max_rows": 1} else bounds
        counts = table.group_by("c", **groups).count()
        certificate = dp.Pipeline(n=counts.release(dp.Gaussian(sigma=far))).certify(1e-6)
        assert certificate.epsilon == pytest.approx(one.epsilon, rel=1e-5)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2"])
def test_limits_that_are_refused(limit):
    table = people(unit="free", rows_per_unit=8)
    with pytest.raises(dp.DeclarationError, match="max_groups"):
        table.group_by("c", max_groups=limit)
    with pytest.raises(dp.DeclarationError, match="unit"):
        people().group_by("c", max_groups=1)


# --- Cross-tables, and several aggregates


def test_margins_are_the_least_squares_estimate():
    draw = np.random.default_rng(6)
    for height, width in [(1, 1), (2, 3), (4, 1), (5, 7)]:
        noisy = [draw.normal(50, 10, n) for n in (height * width, height, width, 1)]
        table = with_margins(*noisy, shape=[height, width])
        cells = np.eye(height * width)
        grid = cells.reshape(height, width, -1)
        design = np.vstack([cells, grid.sum(1), grid.sum(0), grid.sum((0, 1))[None]])
        exact = np.linalg.lstsq(design, np.concatenate(noisy), rcond=None)[0].reshape(height, width)
        assert table[:-1, :-1] == pytest.approx(exact)
        assert table[:-1, -1] == pytest.approx(exact.sum(1))
        assert table[-1] == pytest.approx([*exact.sum(0), exact.sum()])


@pytest.mark.parametrize("margins", [False, True])
def test_a_crosstab_is_that_of_pandas(margins):
    draw = np.random.default_rng(7)
    frame = pd.DataFrame({"c": draw.choice(["A", "B", "C"], 300), "k": draw.choice([1, 2, 3], 300)})
    table = people().crosstab("c", "k", dp.Laplace(scale=1e-6), margins=margins)
    plan = dp.Pipeline(table=table)
    result = plan.simulate(seed=1, people=frame.assign(x=0.0, y=0.0, free=0.0))["table"]
    inside = frame[frame["k"] < 3]  # 3 is no key: such rows are in no cell, and in no margin
    exact = pd.crosstab(inside["c"], inside["k"], margins=margins).to_numpy()
    assert result == pytest.approx(exact, abs=1e-3)
    assert len(plan.certify().shares) == (4 if margins else 1)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint


@pytest.mark.parametrize(("a", "b"), CHANGES)
def test_margins_move_as_counts_do(a, b):
    change, groups = Change(b > 0, max(a, b), False, a + b), people().group_by("c", "k")
    for names, width in [((), 1), (("c",), 3), (("k",), 2)]:
        query = groups.margin(*names).operation
        assert query.dimension(groups.domain) == width
        sides = [vectors(width, n, [(1,)]) for n in (a, b)]
        changes = (sides[0][:, None] - sides[1][None]).reshape(-1, width)
        for norm in NORMS:
            declared = Fraction(query.sensitivity(groups.domain, change, norm))
            assert declared ** (2 if norm == 2 else 1) >= most(changes, norm)
        assert width == 1 or query.span(groups.domain, change) >= apart(changes)


def test_aggregates_of_each_group():
    frame = {"c": ["A", "B", "B"] * 400, "x": [0.0, 1.0, 3.0] * 400, "y": [8.0, 2.0, 2.0] * 400}
    groups = people().group_by("c")
    aggregates = {"n": dp.count(), "x": dp.average("x"), "y": dp.average("y"), "sum": dp.sum("y")}
    plan = dp.Pipeline(**groups.agg(dp.Laplace(scale=1e-6), **aggregates))
    result = plan.simulate(seed=1, people={**frame, "k": [1] * 1200, "free": [0.0] * 1200})
    assert result["n"] == pytest.approx([400, 800, 0], abs=1e-3)
    assert result["x"][:2] == pytest.approx([0, 2], abs=1e-3)
    assert result["y"][:2] == pytest.approx([8, 2], abs=1e-3)
    assert result["sum"] == pytest.approx([3200, 1600, 0], abs=1e-2)
    with pytest.raises(dp.DeclarationError, match="count"):
        groups.agg(n="count")


def test_quantiles_of_each_group():
    draw = np.random.default_rng(8)
    frame = {"c": np.repeat(["A", "B", "C"], 2_000), "k": np.tile([1, 2], 3_000)}
    frame["x"] = np.clip(draw.normal(0, 0.2, 6_000) + np.repeat([0.0, 1.0, 2.0], 2_000), -1, 3)
    noise = dp.QuantileExponential()
    plan = dp.Pipeline(q=people().group_by("c", "k").quantiles("x", [0.5, 0.1], noise))
    plan = plan.calibrate(epsilon=2.0)
    data = {**frame, "y": np.zeros(6_000), "free": np.zeros(6_000)}
    result = plan.simulate(seed=1, people=data)["q"]
    assert result.shape == (6, 2)
    by_group = pd.DataFrame(frame).groupby(["c", "k"])["x"]
    exact = by_group.quantile([0.5, 0.1]).to_numpy().reshape(6, 2)
    assert np.abs(result - exact).max() < 0.05
