"""Queries by group: sensitivities, values, costs, labels and documents, beside brute force."""

from __future__ import annotations

import itertools
import json
import math
import pickle
import time
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.domains import Interval
from adaptive_dp.queries.groups import GroupCount, GroupSum, Keys, ratios

NORMS = (1, 2, math.inf)
COLUMNS = {"c": ["A", "B", "C"], "k": [1, 2], "x": (-1.0, 3.0), "y": (0.0, 8.0), "free": None}


def people(**declared):
    return dp.dataset("people", columns=COLUMNS, **declared)


def value(query, frame):
    """Return a query's value: noise of 1e-9 is rounded off by the values' own steps."""
    plan = dp.Pipeline(out=query.release(dp.Laplace(scale=1e-9)))
    return plan.simulate(seed=1, people=frame)["out"]


# --- Sensitivities, by all small neighbouring data sets


def vectors(cells, rows, points):
    """Return all sums of at most ``rows`` rows, each a point in one cell, or in none."""
    width = len(points[0])
    single = [np.zeros(cells * width, dtype=np.int64)]
    for cell, point in itertools.product(range(cells), points):
        one = np.zeros(cells * width, dtype=np.int64)
        one[cell * width : (cell + 1) * width] = point
        single.append(one)
    sums = {
        tuple(np.sum(chosen, axis=0) if chosen else single[0])
        for count in range(rows + 1)
        for chosen in itertools.combinations_with_replacement(single, count)
    }
    return np.array(sorted(sums))


def most(changes, norm):
    """Return the largest norm among integer vectors, squared for the norm 2."""
    sizes = np.abs(changes)
    if norm == 2:
        return int((sizes * sizes).sum(axis=1).max())
    return int((sizes.sum(axis=1) if norm == 1 else sizes.max(axis=1)).max())


def apart(changes):
    """Return the most by which two coordinates move apart."""
    return int((changes.max(axis=1) - changes.min(axis=1)).max())


BOUNDS = [(0, 4), (-1, 3), (-3, 1), (-2, 2), (2, 5), (-5, -2), (0, 0), (-1, 2)]
CHANGES = [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (2, 2), (3, 2), (3, 3)]


@pytest.mark.parametrize("cells", [1, 2, 3])
@pytest.mark.parametrize(("a", "b"), CHANGES)
def test_sensitivities_of_one_number_are_the_largest_changes(cells, a, b):
    table = people()
    edges = list(range(cells + 1))
    grouped = table.group_by("x", edges=edges).domain
    assert grouped.count == cells
    change = Change(b > 0, max(a, b), False, a + b)
    for bounds in [None, *BOUNDS]:
        if bounds is None:
            query, points = GroupCount(), [(1,)]
        else:
            query = GroupSum(["x"], [Interval(*bounds)])
            points = [(v,) for v in {*bounds, (bounds[0] + bounds[1]) // 2}]
        more, fewer = vectors(cells, a, points), vectors(cells, b, points)
        changes = (more[:, None] - fewer[None]).reshape(-1, more.shape[1])
        for norm in NORMS:
            declared = Fraction(query.sensitivity(grouped, change, norm))
            largest = most(changes, norm)
            assert declared ** (2 if norm == 2 else 1) >= largest
            # attained: by rows that are all at one corner, in one cell or in two
            exact = math.sqrt(largest) if norm == 2 else largest
            assert float(declared) == pytest.approx(exact, rel=1e-15, abs=0)
        if cells > 1:
            assert query.span(grouped, change) == apart(changes)
        assert query.coordinates_moved(grouped, change) >= np.count_nonzero(changes, axis=1).max()


@pytest.mark.parametrize("cells", [1, 2])
@pytest.mark.parametrize(("a", "b"), [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2)])
def test_sensitivities_of_several_columns_cover_all_changes(cells, a, b):
    grouped = people().group_by("x", edges=list(range(cells + 1))).domain
    change = Change(b > 0, max(a, b), False, a + b)
    for first, second in itertools.product(BOUNDS, BOUNDS[:5]):
        query = GroupSum(["x", "y"], [Interval(*first), Interval(*second)])
        points = list(itertools.product(first, second))
        more, fewer = vectors(cells, a, points), vectors(cells, b, points)
        changes = (more[:, None] - fewer[None]).reshape(-1, more.shape[1])
        mixed = first[0] <= 0 <= first[1] and second[0] <= 0 <= second[1]
        for norm in NORMS:
            declared = Fraction(query.sensitivity(grouped, change, norm))
            largest = most(changes, norm)
            assert declared ** (2 if norm == 2 else 1) >= largest
            if b == 0 or mixed:
                exact = math.sqrt(largest) if norm == 2 else largest
                assert float(declared) == pytest.approx(exact, rel=1e-15, abs=0)
        assert query.span(grouped, change) >= apart(changes)
        assert query.coordinates_moved(grouped, change) >= np.count_nonzero(changes, axis=1).max()


@pytest.mark.parametrize("scale", [1e-280, 1e280, 0.1])
def test_sensitivities_at_the_ends_of_the_floats(scale):
    grouped = people().group_by("k").domain
    change = Change(True, 3, False, 5)
    low, high = Fraction(-scale), Fraction(3 * scale)
    query = GroupSum(["x"], [Interval(-scale, 3 * scale)])
    square = max((3 * high - 2 * low) ** 2, 13 * high**2)
    sensitivity = Fraction(query.sensitivity(grouped, change, 2))
    assert square <= sensitivity**2 <= square * (1 + Fraction(1, 2**50))


def test_a_unit_costs_what_its_vector_moves():
    """The certificate of counts by group is that of one vector, under each relation."""
    noise = dp.Laplace(scale=4)
    for relation, rows, epsilon in [
        ("add_remove", 1, 0.25),
        ("add_remove", 3, 0.75),
        ("zero_out", 2, 0.5),
        ("replace_one", 1, 0.5),
        ("replace_one", 3, 1.5),
    ]:
        unit = {} if rows == 1 else {"unit": "id", "rows_per_unit": rows}
        table = people(neighbors=relation, **unit)
        plan = dp.Pipeline(n=table.group_by("c", "k").count().release(noise))
        assert plan.certify().epsilon == pytest.approx(epsilon, rel=1e-9)
        # a part may hold fewer of a unit's rows, and costs no more; b rows come where a went
        part = table.partition("c")["A"].group_by("k").count().release(noise)
        assert dp.Pipeline(n=part).certify().epsilon <= epsilon * (1 + 1e-9)


def test_rounding_costs_what_one_unit_moves():
    """Values are rounded to the noise's step: coordinates that are equal stay equal."""
    keys = list(range(2**20))
    table = dp.dataset("people", columns={"key": keys, "x": (0.0, 1.0)})
    total = table.group_by("key").sum("x").release(dp.Laplace(scale=1e4))
    # one coordinate moves, by 1 and a step of 2^-26 of the noise: a million steps would be 1.5%
    assert dp.Pipeline(t=total).certify().epsilon <= 1e-4 * (1 + 1e-3)


MECHANISMS = [
    dp.Laplace(scale=3),
    dp.Gaussian(sigma=3),
    dp.DiscreteLaplace(scale=3),
    dp.DiscreteGaussian(sigma=3),
    dp.Norm(scale=3, p=2),
    dp.Norm(scale=3, p=1.5),
    dp.NoisyMax(scale=3),
    dp.Exponential(scale=3),
    dp.PermuteAndFlip(scale=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one", "zero_out"])
def test_every_mechanism_costs_what_it_does_for_a_histogram(mechanism, relation):
    table = people(neighbors=relation, unit="id", rows_per_unit=2)
    pair = table["c"].histogram(), table.group_by("c").count()
    one, two = (dp.Pipeline(n=q.release(mechanism)).certify(1e-6) for q in pair)
    assert two.epsilon == pytest.approx(one.epsilon, rel=1e-12)
    for first, second in zip(one.accountants, two.accountants, strict=True):
        assert (first.upper is None) == (second.upper is None)
        assert first.upper is None or second.upper == pytest.approx(first.upper, rel=1e-9)


class Rounding(dp.Mechanism):
    """Says how many coordinates it was asked for."""

    rounds_coordinates = True

    def release(self, value, stream):
        return np.array(value)

    def loss(self, distance):
        raise NotImplementedError

    def cost(self, distance, dimension, step):
        return accountants.Pure(epsilon=float(dimension))


def test_other_mechanisms_are_given_all_coordinates():
    """A mechanism may need the dimension for more than rounding: noise of a norm, say."""
    groups = people().group_by("c", "k")
    assert dp.Pipeline(n=groups.count().release(Rounding())).certify().epsilon == 6
    ball = dp.Norm(scale=1, p=2)
    assert not ball.rounds_coordinates


def test_discrete_noise_of_sums_rounds_what_one_unit_moves():
    groups = people().group_by("c", "k")
    total = groups.sum("x").release(dp.DiscreteLaplace(scale=1))
    # one sum moves by 3 at most, and by 1 more when both ends are rounded to integers
    assert dp.Pipeline(n=total).certify().epsilon == pytest.approx(4)


# --- Values


def frame(rows, seed=0):
    chance = np.random.default_rng(seed)
    x = chance.uniform(-5, 5, rows)
    x[chance.random(rows) < 0.1] = np.nan
    x[chance.random(rows) < 0.05] = np.inf
    return {
        "c": chance.choice(["A", "B", "C", "elsewhere", ""], rows),
        "k": chance.choice([1, 2, 3], rows),
        "x": x,
        "y": chance.uniform(-1, 9, rows),
        "free": chance.choice(["u", "v", "w"], rows),
        "id": chance.integers(0, max(1, rows // 2), rows),
    }


def steps(number, low, high):
    """Return a value clipped and rounded as sums do, an exact rational."""
    unit = Fraction(2) ** (math.frexp(max(abs(low), abs(high)))[1] - 1 - 22)
    clean = 0.0 if math.isnan(number) else number
    clipped = Fraction(min(max(clean, low), high))
    return round(clipped / unit) * unit


def by_hand(data, by, columns=()):
    """Return counts, or sums of columns, by tuples of keys, row by row."""
    cells = {}
    for row in range(len(data["c"])):
        key = tuple(data[name][row].item() for name in by)
        cell = cells.setdefault(key, [0] + [Fraction(0)] * len(columns))
        cell[0] += 1
        for j, name in enumerate(columns):
            cell[j + 1] += steps(float(data[name][row]), *COLUMNS[name])
    return cells


@pytest.mark.parametrize("rows", [0, 1, 7, 3_000])
def test_counts_and_sums_are_those_of_each_row(rows):
    data, groups = frame(rows), people().group_by("c", "k")
    expected = by_hand(data, ("c", "k"), ("x", "y"))
    counts, sums = value(groups.count(), data), value(groups.sum("x"), data)
    both = value(groups.sum(["x", "y"]), data).reshape(-1, 2)
    assert list(groups.keys) == list(itertools.product("ABC", [1, 2]))
    for i, key in enumerate(groups.keys):
        count, x, y = expected.get(key, [0, 0, 0])
        assert round(counts[i]) == count
        assert Fraction(float(np.rint(sums[i] * 2**22))) == x * 2**22
        assert np.abs(both[i] - [float(x), float(y)]).max() < 1e-7


def test_a_histogram_by_group_is_a_count_by_both():
    data = frame(2_000)
    counts = value(people().group_by("k").histogram("x", edges=[-1, 0, 2]), data)
    x = data["x"]
    bins = [(x >= -1) & (x < 0), (x >= 0) & (x <= 2)]
    expected = [np.sum(b & (data["k"] == k)) for k in (1, 2) for b in bins]
    assert counts.round().tolist() == expected
    query = people().group_by("k").histogram("free", keys=["w", "u"])
    expected = [np.sum((data["k"] == k) & (data["free"] == f)) for k in (1, 2) for f in "wu"]
    assert value(query, data).round().tolist() == expected
    assert query.inputs[0].keys[1] == (1, "u")


def test_groups_of_filtered_parted_and_bounded_rows():
    data = frame(2_000)
    remaining = [i for i in range(2_000) if data["x"][i] >= 0.5 and data["c"][i] == "B"]
    table = people()
    groups = table.filter(table["x"] >= 0.5).partition("c")["B"].group_by("k")
    expected = [sum(data["k"][i] == k for i in remaining) for k in (1, 2)]
    assert value(groups.count(), data).round().tolist() == expected
    first = {}
    for i, unit in enumerate(data["id"].tolist()):
        first.setdefault(unit, []).append(i)
    # of each unit at most three rows remain, and all of them where it has no more
    bounded = people(unit="id", rows_per_unit=3).group_by("k")
    counts = value(bounded.count(), data)
    small = [i for rows in first.values() if len(rows) <= 3 for i in rows]
    large = sum(3 for rows in first.values() if len(rows) > 3)
    least = [sum(data["k"][i] == k for i in small) for k in (1, 2)]
    assert all(np.rint(counts) >= least)
    assert np.rint(counts).sum() <= sum(least) + large


def test_equal_values_in_every_source(tmp_path):
    data = pd.DataFrame(frame(1_000))
    data.to_csv(tmp_path / "people.csv", index=False)
    data.to_parquet(tmp_path / "people.parquet", row_group_size=100)
    groups = people().group_by("c", "x", edges={"x": [-1, 0, 3]})
    plan = dp.Pipeline(
        n=groups.count().release(dp.DiscreteLaplace(scale=1)),
        t=groups.sum("y").release(dp.Laplace(scale=8)),
    )
    first = plan.simulate(seed=3, people=data)
    for source in (tmp_path / "people.csv", tmp_path / "people.parquet", data.to_dict("list")):
        again = plan.simulate(seed=3, people=source)
        assert again["n"].tolist() == first["n"].tolist()
        assert again["t"].tolist() == first["t"].tolist()


def test_groups_in_a_sample_and_in_a_loop():
    table = people()

    def add(total, rows):
        counts = rows.sample(0.5).group_by("k").count().release(dp.Gaussian(sigma=2))
        return dp.post(np.add, total, counts)

    plan = dp.Pipeline(total=dp.repeat(add, 4, table, start=[0.0, 0.0]))
    data = frame(4_000)
    total = plan.with_delta(1e-6).simulate(seed=1, people=data)["total"]
    expected = np.array([np.sum(data["k"] == k) for k in (1, 2)])
    # 4 rounds of half of the rows; 10 standard deviations of sampling and noise
    assert np.abs(total - 2 * expected).max() < 10 * math.sqrt(expected.max() + 16)


def test_averages_are_of_each_group_and_in_the_bounds():
    data = frame(4_000)
    groups = people().group_by("c", "k")
    plan = dp.Pipeline(mean=groups.average("x", dp.Laplace(scale=0.01)))
    result = plan.simulate(seed=1, people=data)
    expected = by_hand(data, ("c", "k"), ("x",))
    there = by_hand({k: v[~np.isnan(data["x"])] for k, v in data.items()}, ("c", "k"))
    # of the rows that have a value
    means = [float(expected[key][1]) / there[key][0] for key in groups.keys]
    assert np.abs(result["mean"] - means).max() < 0.01
    # the noise of sums is scaled by the largest bound, so that both cost the same
    shares = plan.certify().shares
    assert sorted(shares) == ["noisy_group_count", "sum of x"]
    assert shares["sum of x"] == pytest.approx(0.5, rel=1e-3)
    assert list(result.entries["mean"])[:2] == ["A, 1", "A, 2"]
    assert ratios(
        np.array([5.0, -9.0, 9.0]), np.array([2.0, -3.0, 0.0]), lower=-1, upper=3
    ).tolist() == [2.5, -1.0, 3.0]


def test_a_count_that_is_there_is_shared():
    groups = people().group_by("c")
    counts = groups.count().release(dp.Gaussian(sigma=4))
    plan = dp.Pipeline(
        n=counts,
        x=groups.average("x", dp.Gaussian(sigma=4), count=counts),
        y=groups.average("y", dp.Gaussian(sigma=4), count=counts, bounds=(0, 4)),
    )
    assert len(plan.structure.releases) == 3
    assert plan.with_delta(1e-6).simulate(seed=1, people=frame(100))["y"].max() <= 4


def test_what_a_row_adds_for_individual_accounting():
    data, table = frame(300), people(unit="id", rows_per_unit=1_000)
    groups = table.group_by("c", "k")
    handle = groups.sum(["x", "y"])
    from accountants.secret import Secret
    from adaptive_dp.graph.run import Run

    plan = dp.Pipeline(a=handle.release(dp.Gaussian(sigma=1)))
    run = Run(plan.structure, 0)
    source = next(n for n in plan.structure if n.handle.operation.kind == "dataset")
    run.bind({source.name: Secret(source.handle.operation.bind(data))})
    for node in plan.structure:
        run.compute_node(node)
    grouped = next(n for n in plan.structure if n.handle.operation.kind == "group_by")
    inside = run.secrets[grouped.name].reveal()
    _, norms = handle.operation.contributions(inside)
    _, ones = groups.count().operation.contributions(inside)
    for i, norm in enumerate(norms):
        is_declared = data["c"][i] in ("A", "B", "C") and data["k"][i] in (1, 2)
        added = [steps(float(data[name][i]), *COLUMNS[name]) if is_declared else 0 for name in "xy"]
        square = sum(Fraction(each) ** 2 for each in added)
        assert ones[i] == is_declared
        assert square <= Fraction(float(norm)) ** 2 <= square * (1 + Fraction(1, 2**40))


def test_a_session_charges_each_record_for_its_own_rows():
    data = frame(400)
    with dp.Session(people=data, budget=dp.Budget(2.0, 1e-6), accountant="individual") as session:
        table = people()
        counts = session.run(table.group_by("c", "k").count().release(dp.Gaussian(sigma=10)))
    assert counts.shape == (6,)


def test_what_each_record_loses():
    """Of two rows in one group and one in another: sqrt(5) in l2, 3 in l1."""
    data = {"c": ["A", "A", "B", "C", "D"], "x": [3.0, 3.0, -1.0, 0.0, 1.0], "id": [1, 1, 1, 2, 3]}
    table = dp.dataset("people", columns=COLUMNS, unit="id", rows_per_unit=3)
    groups, rest = table.group_by("c"), {name: [0] * 5 for name in ("k", "y", "free")}
    count = dp.Pipeline(n=groups.count().release(dp.Laplace(scale=10)))
    losses = dp.instance.per_instance(count, people=data | rest).reveal()
    assert losses == pytest.approx([0.3, 0.1, 0.0], rel=1e-6)
    # sums 6 and -1
    total = dp.Pipeline(t=groups.sum("x").release(dp.Gaussian(sigma=20))).with_delta(1e-6)
    alone = dp.Pipeline(
        t=people()["x"].clip(0, 1).sum().release(dp.Gaussian(sigma=20 / math.sqrt(37)))
    ).with_delta(1e-6)
    losses = dp.instance.per_instance(total, people=data | rest).reveal()
    assert losses[0] == pytest.approx(alone.certify().epsilon, rel=1e-5)
    assert losses[1:].tolist() == [0, 0]


def test_the_most_frequent_group():
    data = {"c": ["A", "B", "B"] * 500, "k": [1, 2, 2] * 500, "x": [0.0] * 1500, "y": [0.0] * 1500}
    data["free"] = ["u"] * 1500
    groups = people().group_by("c", "k")
    best = groups.count().release(dp.NoisyMax(scale=1))
    alone = people().group_by("c").count().release(dp.Exponential(scale=1))
    result = dp.Pipeline(best=best, alone=alone).simulate(seed=1, people=data)
    assert (result["best"], result["alone"]) == (("B", 2), "B")
    again = dp.load(dp.Pipeline(best=best).to_json()).simulate(seed=1, people=data)
    assert again["best"] == ("B", 2)


# --- Keys and labels


def test_keys_are_the_product_in_row_major_order():
    axes = (("A", "B"), (1, 2, 3), (True, "x"))
    keys, written = Keys(axes), list(itertools.product(*axes))
    assert list(keys) == written
    assert [keys[i] for i in range(-12, 12)] == written * 2
    assert keys[3:7] == written[3:7]
    assert [keys.index(key) for key in written] == list(range(12))
    assert ("A", 3, "x") in keys
    for other in (("A", 3), "A", ("C", 1, "x"), (["A"], 1, "x"), None):
        assert other not in keys
        with pytest.raises(ValueError, match="not among"):
            keys.index(other)
    with pytest.raises(IndexError):
        keys[12]
    assert list(pickle.loads(pickle.dumps(keys))) == written


def test_entries_of_a_result():
    groups = people().group_by("c", "k")
    plan = dp.Pipeline(
        n=groups.count().release(dp.DiscreteLaplace(scale=1)),
        t=groups.sum(["x", "y"]).release(dp.Laplace(scale=9)),
    )
    result = plan.simulate(seed=1, people=frame(10))
    assert list(result.entries["n"]) == ["A, 1", "A, 2", "B, 1", "B, 2", "C, 1", "C, 2"]
    assert list(result.entries["t"])[:3] == ["A, 1, x", "A, 1, y", "A, 2, x"]
    assert "n[B, 2]" in str(result)
    again = pickle.loads(pickle.dumps(result))
    assert str(again) == str(result)
    assert "n[B, 2]" in again._repr_html_()


def test_a_million_groups():
    """Declared, certified, run and printed; times on one core are a tenth of the limits."""
    towns, years = [f"town {i}" for i in range(10_000)], list(range(100))
    start = time.process_time()
    table = dp.dataset("people", columns={"town": towns, "year": years, "x": (0, 1)})
    groups = table.group_by("town", "year")
    assert len(groups) == 10**6
    assert groups.keys[-1] == ("town 9999", 99)
    long = dp.dataset("long", columns={"key": [f"key {i}" for i in range(10**6)]})
    assert long.group_by("key").count().inputs[0].keys[999_999] == "key 999999"
    assert time.process_time() - start < 5
    data = {"town": ["town 3", "town 9999", "no town"], "year": [0, 99, 5], "x": [1.0, 0.5, 1.0]}
    start = time.process_time()
    plan = dp.Pipeline(
        n=groups.count().release(dp.DiscreteLaplace(scale=1e-3)),
        mean=groups.average("x", dp.Laplace(scale=2)),
    )
    result = plan.simulate(seed=1, people=data)
    assert np.flatnonzero(result["n"]).tolist() == [300, 999_999]
    text = str(result)
    assert time.process_time() - start < 60
    assert len(text.splitlines()) < 30
    for words in ("n[town 0, 0]", "n[town 9999, 99]", "1,000,000", "mean[town 0, 0]"):
        assert words in text


def test_documents_and_their_fingerprints():
    groups = people().group_by("c", "x", edges={"x": [0, 1, 2.5]}, keys={"c": ["C", "A"]})
    plan = dp.Pipeline(
        n=groups.count().release(dp.DiscreteLaplace(scale=1)),
        t=groups.sum("y", bounds=(0, 2)).release(dp.Laplace(scale=2)),
        m=groups.average("y", dp.Laplace(scale=2)),
    )
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    data = frame(100)
    assert (
        again.simulate(seed=4, people=data)["t"].tolist()
        == plan.simulate(seed=4, people=data)["t"].tolist()
    )
    document = json.loads(plan.to_json())
    node = next(n for n in document["nodes"] if n["kind"] == "group_by")
    assert node["keys"] == [{"categories": ["C", "A"]}, {"edges": [0, 1, 2.5]}]
    assert dp.verify(plan.certify()).holds
    for change in (
        {"keys": node["keys"][:1]},
        {"by": ["c", "c"]},
        {"by": ["c", "nothing"]},
        {"keys": [{"categories": ["A", "D"]}, {"edges": [0, 1]}]},
        {"keys": [{"categories": ["A"]}, {"edges": [1, 0]}]},
        {"keys": [{"edges": [0, 1]}, {"edges": [0, 1]}]},
        {"keys": [{"bounds": [0, 1]}, {"edges": [0, 1]}]},
    ):
        other = json.loads(plan.to_json())
        next(n for n in other["nodes"] if n["kind"] == "group_by").update(change)
        with pytest.raises(dp.DocumentError):
            dp.load(other)
    for change in ({"names": []}, {"names": ["c"]}, {"bounds": [{"bounds": [1e9, 1e9 + 1]}]}):
        other = json.loads(plan.to_json())
        next(n for n in other["nodes"] if n["kind"] == "group_sum").update(change)
        with pytest.raises(dp.DocumentError):
            dp.load(other)


WRONG = {
    "no column": (lambda t: t.group_by(), "group_by needs a column"),
    "no column, but keys": (lambda t: t.group_by(keys=["A"]), "group_by needs a column"),
    "a list": (lambda t: t.group_by(["c", "k"]), r"list of str"),
    "twice": (lambda t: t.group_by("c", "c"), "different columns"),
    "unknown": (lambda t: t.group_by("town"), "'town'"),
    "no categories": (lambda t: t.group_by("x"), r"'x' declares no categories.*keys=.*edges="),
    "keys not declared": (lambda t: t.group_by("c", keys=["A", "D"]), "no category 'D'"),
    "repeated keys": (lambda t: t.group_by("c", keys=["A", "A"]), "must differ"),
    "no keys": (lambda t: t.group_by("c", keys=[]), "must not be empty"),
    "keys of another": (lambda t: t.group_by("c", keys={"k": [1]}), "'k', which is not grouped"),
    "a list for two": (lambda t: t.group_by("c", "k", keys=[1]), "by column"),
    "both": (lambda t: t.group_by("x", keys=[1], edges=[0, 1]), "keys and edges"),
    "edges of text": (lambda t: t.group_by("c", edges=[0, 1]), "not numbers"),
    "one edge": (lambda t: t.group_by("x", edges=[0]), "two finite numbers"),
    "falling edges": (lambda t: t.group_by("x", edges=[1, 0]), "increase"),
    "a number of bins": (lambda t: t.group_by("x", edges=10), "linspace"),
    "too many": (
        lambda t: t.group_by("x", "y", edges={"x": range(5000), "y": range(5000)}),
        "24,990,001 cells",
    ),
    "a sum of text": (lambda t: t.group_by("k").sum("c"), "'c'"),
    "a sum without bounds": (lambda t: t.group_by("k").sum("free"), "no bounds"),
    "a sum of nothing": (lambda t: t.group_by("k").sum([]), "a column at least"),
    "an unknown sum": (lambda t: t.group_by("k").sum("z"), "'z'"),
    "a sum twice": (lambda t: t.group_by("k").sum(["x", "x"]), "must differ"),
    "a histogram by itself": (lambda t: t.group_by("k").histogram("k"), "different columns"),
    "a histogram of numbers": (lambda t: t.group_by("k").histogram("x"), "edges="),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_refused_when_it_is_declared(name):
    declare, words = WRONG[name]
    with pytest.raises(dp.DeclarationError, match=words):
        declare(people())


def test_hints_of_groups():
    groups = people().group_by("c")
    with pytest.raises(AttributeError, match=r"\.average"):
        groups.mean("x")
    with pytest.raises(AttributeError, match=r"\.count"):
        groups.release(dp.Laplace())
    with pytest.raises(dp.LeakError):
        dp.Pipeline(n=groups)
