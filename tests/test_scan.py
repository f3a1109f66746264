"""One pass for many sums: the same integers as Python's own, wherever the rows are."""

from __future__ import annotations

import csv
import functools
import itertools
import math
import operator
import os
import pickle
import traceback
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import plans
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import example, given
from hypothesis import strategies as st
from profiles import examples

import adaptive_dp as dp
from accountants.secret import Secret
from adaptive_dp.cli import main as cli
from adaptive_dp.data import MemoryRows, csv_files, grid
from adaptive_dp.data import scan as scanning
from adaptive_dp.data.local import Local
from adaptive_dp.data.memory import table_rows
from adaptive_dp.data.rows import BLOCK, Schema
from adaptive_dp.data.scan import Batch, Cells, FunctionNames, InPart, RowSum, passes
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.run import Run, bind_sources, private_values
from adaptive_dp.queries import domains, sums, transforms
from adaptive_dp.queries.counts import Count, Histogram
from adaptive_dp.queries.domains import SumOverRows
from adaptive_dp.queries.moments import MomentsOf, Products

# --- a plan of sums of every kind, and what Python makes of the same rows

SCHEMA = {
    "x": (-5, 10),
    "u": (-8, 8),
    "v": (-8, 8),
    "c": ["a", "b", "never", "é"],
    "k": [0, 1, 2.5],
    "z": None,
    "unused": (0, 1),
}
EDGES = [-5, 0, 5, 10]
BINS = [0, 1, 2.5]
KEYS = ["b", "a"]


def queries(rows_per_unit: int | None) -> dict[str, Any]:
    """Return queries by what they are; the names are read by `expected`."""
    more: dict[str, Any] = {}
    if rows_per_unit is not None:
        more = {"unit": "id", "rows_per_unit": rows_per_unit}
    table = dp.dataset("people", columns=SCHEMA, **more)
    high, near = table.filter(table["x"] >= 1), table.filter(table["c"].isin(KEYS))
    both = high.filter(high["c"].isin(KEYS))
    vectors = table.vectors(["u", "v"])
    handles = {
        "count": table.count(),
        "sum": table["x"].sum(),
        "clipped": table["x"].clip(0, 1).sum(),
        "histogram c": table["c"].histogram(),
        "histogram k": table["k"].histogram(),
        "bins": table["z"].histogram(BINS),
        "conditions": table.counts([table["x"] >= 1, table["c"].isin(KEYS), table["k"] < 2]),
        "vector": vectors.sum(),
        "gram": vectors.gram(),
        "high count": high.count(),
        "high sum": high["x"].sum(),
        "near bins": near["z"].histogram(BINS),
        "both sum": both["x"].sum(),
    }
    places = {"": table, "high ": high}
    for where, rows in places.items():
        for key, part in rows.partition("c"):
            handles[f"{where}part {key} count"] = part.count()
            handles[f"{where}part {key} sum"] = part["x"].sum()
            handles[f"{where}part {key} k"] = part["k"].histogram()
    for key, part in table.partition("k"):
        handles[f"part {key} high"] = part.filter(part["x"] >= 1).count()
        for i, (_, inner) in enumerate(part.partition("x", edges=EDGES)):
            handles[f"part {key} {i} sum"] = inner["u"].sum()
    if rows_per_unit is not None:
        for key, part in table.partition("c", whole_units=True):
            handles[f"whole {key} sum"] = part["x"].sum()
    return handles


def power(bound: float, bits: int) -> Fraction:
    """Return the largest power of two that is at most bound / 2^bits."""
    step = Fraction(1)
    while step * 2**bits > Fraction(bound):
        step /= 2
    while step * 2 ** (bits + 1) <= Fraction(bound):
        step *= 2
    return step


def steps(value: float | None, low: float, high: float) -> int:
    """Return a value in steps, as sums count it: NaN is the point next to 0."""
    number = math.nan if value is None else float(value)
    inside = min(max(0.0, low), high) if math.isnan(number) else min(max(number, low), high)
    return round(Fraction(inside) / power(max(abs(low), abs(high)), 22))


def at_least(value: float | None, bound: float) -> bool:
    return value is not None and value >= bound


def between(value: float | None, edges: list[float]) -> int:
    """Return the bin of a value, the last one closed; -1 for none."""
    if value is None or math.isnan(value) or not edges[0] <= value <= edges[-1]:
        return -1
    return min(sum(value >= edge for edge in edges) - 1, len(edges) - 2)


def bounded(records: list[dict[str, Any]], rows: int | None) -> list[dict[str, Any]]:
    """Return the first rows of each unit; rows without an identifier belong to no unit."""
    if rows is None:
        return records
    seen: Counter[Any] = Counter()
    result = []
    for each in records:
        seen[each["id"]] += 1
        if each["id"] is not None and seen[each["id"]] <= rows:
            result.append(each)
    return result


def expected(name: str, rows: list[dict[str, Any]]) -> Any:
    """Return a query's value, by Python's integers alone."""
    words = name.split(" ")
    if words[0] == "whole":
        order = SCHEMA["c"]
        first: dict[Any, int] = {}
        for each in rows:
            if each["c"] in order:
                place = order.index(each["c"])
                first[each["id"]] = min(place, first.get(each["id"], place))
        rows = [r for r in rows if r["c"] == words[1] and order[first.get(r["id"], 0)] == words[1]]
        words = words[2:]
    while len(words) > 1 and words[0] in ("high", "near", "both", "part"):
        if words[0] in ("high", "both"):
            rows = [r for r in rows if at_least(r["x"], 1)]
        if words[0] in ("near", "both"):
            rows = [r for r in rows if r["c"] in KEYS]
        if words[0] == "part":
            by = "c" if words[1] in SCHEMA["c"] else "k"
            key: Any = words[1] if by == "c" else float(words[1])
            rows = [r for r in rows if r[by] is not None and r[by] == key]
            words = words[1:]
            if by == "k" and words[1].isdigit():
                rows = [r for r in rows if between(r["x"], EDGES) == int(words[1])]
                words = ["inner", words[2]]
        words = words[1:]
    if words[0] == "high":
        return float(sum(at_least(r["x"], 1) for r in rows))
    column = "u" if name.startswith("part") and len(name.split(" ")) == 4 else "x"
    if words[0] == "sum":
        low, high = SCHEMA[column]
        return float(sum(steps(r[column], low, high) for r in rows) * power(max(-low, high), 22))
    if words[0] == "count":
        return float(len(rows))
    if words[0] == "clipped":
        return float(sum(steps(r["x"], 0, 1) for r in rows) * power(1, 22))
    if words[0] in ("histogram", "k"):
        by = words[-1]
        return [float(sum(r[by] is not None and r[by] == key for r in rows)) for key in SCHEMA[by]]
    if words[0] == "bins":
        counts = Counter(between(r["z"], BINS) for r in rows)
        return [float(counts[i]) for i in range(2)]
    if words[0] == "conditions":
        return [
            float(sum(at_least(r["x"], 1) for r in rows)),
            float(sum(r["c"] in KEYS for r in rows)),
            float(sum(r["k"] is not None and r["k"] < 2 for r in rows)),
        ]
    # far inside of the ball: no row is shortened
    radius = math.sqrt(2 * 64)
    unit = power(radius * (1 - 1e-3), 19)
    there = [r for r in rows if r["u"] is not None and r["v"] is not None]
    points = [[round(Fraction(r[n]) / unit) for n in ("u", "v")] for r in there]
    if words[0] == "vector":
        return [float(sum(p[j] for p in points) * unit) for j in range(2)]
    assert words[0] == "gram"
    pairs = [(0, 0), (0, 1), (1, 1)]
    sums = [float(sum(p[i] * p[j] for p in points)) * float(unit) ** 2 for i, j in pairs]
    return [sums[0], sums[1] * math.sqrt(2), sums[2]]


# --- the same rows in every form


def arrow(records: list[dict[str, Any]], encoded: bool = False) -> pa.Table:
    text = pa.dictionary(pa.int8(), pa.string()) if encoded else pa.string()
    types = {"id": pa.string(), "c": text}
    return pa.table(
        {
            name: pa.array([r[name] for r in records], types.get(name, pa.float64()))
            for name in ("unused", "c", "x", "id", "u", "k", "v", "z")
        }
    )


def split(records: list[dict[str, Any]], files: int) -> list[list[dict[str, Any]]]:
    ends = [round(i * len(records) / files) for i in range(files + 1)]
    return [records[a:b] for a, b in itertools.pairwise(ends)]


def as_lists(records, folder):
    return arrow(records).to_pydict()


def as_arrays(records, folder):
    table = arrow(records)
    strings = {n: np.array(table[n].to_pylist(), dtype=object) for n in ("c", "id")}
    names = ("x", "u", "v", "k", "z", "unused")
    return strings | {n: table[n].to_numpy(zero_copy_only=False) for n in names}


def as_pandas(records, folder):
    return arrow(records).to_pandas()


def as_categories(records, folder):
    frame = arrow(records).to_pandas()
    return frame.assign(
        c=frame["c"].astype(pd.CategoricalDtype(["never", "z", "b", "a ", "a", "é"]))
    )


def as_polars(records, folder):
    return pl.from_arrow(arrow(records))


def as_polars_categories(records, folder):
    return as_polars(records, folder).with_columns(pl.col("c").cast(pl.Categorical))


def as_arrow_dictionary(records, folder):
    return arrow(records, encoded=True)


def as_csv(records, folder, files=2):
    paths = [folder / f"{i}.csv" for i in range(files)]
    for path, own in zip(paths, split(records, files), strict=True):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["c", "id", "x", "u", "v", "k", "z", "unused"])
            writer.writeheader()
            writer.writerows({k: "" if v is None else v for k, v in each.items()} for each in own)
    return dp.Files(paths, engine="threads")


def as_parquet(size, files, engine="threads", encoded=False):
    def made(records, folder):
        paths = [folder / f"{i}.parquet" for i in range(files)]
        for path, own in zip(paths, split(records, files), strict=True):
            pq.write_table(arrow(own, encoded), path, row_group_size=size)
        return dp.Files(paths, engine=engine)

    return made


def as_dataset(records, folder):
    batches = arrow(records).to_batches(max_chunksize=3)
    return pads.InMemoryDataset(batches, arrow(records).schema)


KINDS = {
    "lists": as_lists,
    "arrays": as_arrays,
    "pandas": as_pandas,
    "categories of pandas": as_categories,
    "polars": as_polars,
    "categories of polars": as_polars_categories,
    "dictionaries of PyArrow": as_arrow_dictionary,
    "CSV": as_csv,
    "Parquet, a row in a group": as_parquet(1, 2),
    "Parquet in 3 files": as_parquet(4, 3),
    "Parquet with dictionaries": as_parquet(1000, 1, encoded=True),
    "a data set of PyArrow": as_dataset,
}

NUMBERS = st.one_of(
    st.none(),
    st.sampled_from([-math.inf, -1e300, -5.0, -0.0, 0.0, 0.3, 1.0, 2.5, 5.0, 9.99, 10.0, math.inf]),
)
SMALL = st.one_of(st.none(), st.floats(-3, 3, allow_nan=False).map(lambda v: round(v, 3)))
RECORD = st.fixed_dictionaries(
    {
        "id": st.one_of(st.none(), st.sampled_from("pqrs")),
        "x": NUMBERS,
        "u": SMALL,
        "v": SMALL,
        "c": st.one_of(st.none(), st.sampled_from(["a", "b", "é", "z", "a "])),
        "k": st.sampled_from([None, 0.0, 1.0, 2.5, 3.0, -0.0]),
        "z": NUMBERS,
        "unused": st.just(0.5),
    }
)
RECORDS = st.lists(RECORD, max_size=30)


@functools.cache
def plan_and_names(
    rows_per_unit: int | None, only: str | None = None
) -> tuple[dp.Pipeline, dict[str, str]]:
    """Return a plan of the queries, or of one of them, and the names of their nodes."""
    chosen = {k: q for k, q in queries(rows_per_unit).items() if only in (None, k)}
    loud = dp.Gaussian(sigma=1e6)
    plan = dp.Pipeline(**{f"q{i}": q.release(loud) for i, q in enumerate(chosen.values())})
    return plan, {name: plan.structure.of(query).name for name, query in chosen.items()}


def values_of(plan: dp.Pipeline, names: dict[str, str], data: Any) -> dict[str, Any]:
    """Return the private values of queries, in the passes of their plan."""
    private = private_values(plan, {"people": Secret(data)}, 1, names.values())
    values = {name: private[node].reveal() for name, node in names.items()}
    return {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in values.items()}


def check(records, rows_per_unit, data) -> None:
    plan, names = plan_and_names(rows_per_unit)
    rows = bounded(records, rows_per_unit)
    assert values_of(plan, names, data) == {name: expected(name, rows) for name in names}
    for name in ("count", "part a sum", "bins"):  # no column, some, and one
        assert values_of(*plan_and_names(rows_per_unit, name), data) == {name: expected(name, rows)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows_per_unit", [None, 2])
def test_all_sums_are_those_of_Python_whatever_holds_the_rows(
    kind, rows_per_unit, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(csv_files, "PART_BYTES", 60)
    monkeypatch.setattr(csv_files, "READ_BYTES", 13)

    @examples(10)
    @example([])
    @given(RECORDS)
    def holds(records) -> None:
        check(records, rows_per_unit, KINDS[kind](records, tmp_path))

    holds()


def some(count: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = np.random.default_rng(seed)
    pick = lambda values: values[draw.integers(len(values))]  # noqa: E731
    return [
        {
            "id": pick([None, *"pqrstuvw"]),
            "x": pick([None, -7.0, 0.0, 0.3, 1.0, 4.9, 5.0, 11.0]),
            "u": float(draw.normal()),
            "v": float(draw.normal()),
            "c": pick(["a", "b", "é", "z", None]),
            "k": pick([0.0, 1.0, 2.5, 7.0, None]),
            "z": pick([0.0, 1.0, 2.5, -1.0, None]),
            "unused": 0.5,
        }
        for _ in range(count)
    ]


@pytest.mark.parametrize("rows_per_unit", [None, 2])
def test_processes_give_the_same_integers(rows_per_unit, tmp_path) -> None:
    pytest.importorskip("joblib")
    records = some(60)
    check(records, rows_per_unit, as_parquet(7, 3, "processes")(records, tmp_path))


@pytest.mark.parametrize("rows_per_unit", [None, 2])
def test_a_cluster_gives_the_same_integers(rows_per_unit, tmp_path) -> None:
    distributed = pytest.importorskip("distributed")
    records = some(60)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as local,
        distributed.Client(local, set_as_default=False) as client,
    ):
        check(records, rows_per_unit, as_parquet(7, 3, client)(records, tmp_path))


@examples(4)
@given(RECORDS, st.sampled_from([None, 1, 3]))
def test_joined_in_one_pass_each_sum_is_what_it_is_alone(records, rows_per_unit) -> None:
    data = as_arrays(records, None)
    together = values_of(*plan_and_names(rows_per_unit), data)
    for name, value in together.items():
        assert values_of(*plan_and_names(rows_per_unit, name), data) == {name: value}


# --- how many passes there are, and what they read


@pytest.fixture
def readings(monkeypatch) -> list[Any]:
    """Return the scans that are made, each as the columns that it reads of files."""
    seen: list[Any] = []
    fold = Local.fold

    def of_files(self, tasks, add, memory):
        seen.append(set(self.columns))
        return fold(self, tasks, add, memory)

    def of_memory(self, scan, columns):
        seen.append(columns)
        return in_memory(self, scan, columns)

    in_memory = MemoryRows.scan
    monkeypatch.setattr(Local, "fold", of_files)
    monkeypatch.setattr(MemoryRows, "scan", of_memory)
    return seen


def said(plan: dp.Pipeline) -> list[set[str]]:
    """Return the columns of each reading that the plan announces."""
    assert all(each.once and each.rounds for each in plan.passes)
    return [set(each.columns or ()) for each in plan.passes for _ in range(each.rounds)]


SUMS = ["columns", "filters", "partitions", "exchanged", "vectors", "choices", "learner"]


@pytest.mark.parametrize("name", [*SUMS, "regressions"])
@pytest.mark.parametrize("where", ["memory", "Parquet", "no rows"])
def test_a_plan_says_how_often_its_data_are_read_and_what_is_read(
    name, where, readings, tmp_path
) -> None:
    plan, data = plans.built(name), plans.data(3, units=40)
    if where == "no rows":
        data = {k: v[:0] for k, v in data.items()}
    table: Any = data
    if where == "Parquet":
        table = dp.Files(tmp_path / "0.parquet", engine="threads")
        pq.write_table(pa.table(data), tmp_path / "0.parquet", row_group_size=7)
    plan.simulate(seed=1, people=table)
    assert len(readings) == len(plan.passes)
    if where == "Parquet":
        assert readings == said(plan)


@pytest.mark.parametrize(
    "name", ["loops", "statistics", "instances", "regressions", "learning", "streams"]
)
def test_plans_release_the_same_from_the_columns_that_they_read_of_files(name, tmp_path) -> None:
    table = plans.data(2, units=50)
    if name in ("learning", "streams"):
        table["z"] = np.random.default_rng(0).choice(np.array(["a", "b"]), len(table["x"]))
    pq.write_table(pa.table(table), tmp_path / "0.parquet", row_group_size=17)
    made = [table, dp.Files(tmp_path / "0.parquet", engine="threads")]
    released = [plans.built(name).simulate(seed=1, people=each).released for each in made]
    assert repr(released[0]) == repr(released[1])


def at_most(value: float, count: float) -> float:
    return value + (1.0 if count > 5 else -1.0)


def looped() -> dp.Pipeline:
    table = dp.dataset("people", columns={"x": (0, 10), "y": (0, 1), "w": (0, 1)})

    def step(limit: Any) -> Any:
        below = table.filter(table["x"] <= limit)
        total = below["y"].sum().release(dp.Laplace(scale=1.0))
        return dp.post(at_most, limit, dp.post(max, below.count().release(dp.Laplace(1.0)), total))

    def twice(limit: Any) -> Any:
        return dp.repeat(step, 2, start=limit)

    return dp.Pipeline(
        inner=dp.repeat(step, 3, start=5.0),
        nested=dp.repeat(twice, 2, start=5.0),
        after=table["w"].sum().release(dp.Laplace(scale=1.0)),
    )


def test_each_round_of_a_loop_is_a_pass(readings, tmp_path) -> None:
    plan = looped()
    rows = {"x": np.arange(10.0), "y": np.ones(10), "w": np.ones(10)}
    pq.write_table(pa.table(rows), tmp_path / "0.parquet")
    plan.simulate(seed=1, people=tmp_path / "0.parquet")
    assert sorted(map(sorted, readings)) == sorted(map(sorted, said(plan)))
    assert len(readings) == 1 + 3 + 4
    assert any("3 rounds" in str(each) for each in plan.passes)


def test_a_plan_shows_its_passes(tmp_path, capsys) -> None:
    table = dp.dataset("people", columns={"x": (0, 1), "y": (0, 1)}, unit="id", rows_per_unit=2)
    noise = dp.Laplace(scale=20.0)
    plan = dp.Pipeline(
        total=table["x"].sum().release(noise), some=table.sample(0.5).count().release(noise)
    )
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    assert cli.main(["show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert len(plan.passes) == 2
    assert all(str(each) in shown for each in plan.passes)
    # a report draws curves too: of Gaussian noise alone these take no time
    noise, parts = dp.Gaussian(sigma=20.0), table.partition("y", edges=[0, 1], whole_units=True)
    plan = dp.Pipeline(
        total=table["x"].sum().release(noise),
        whole=next(part.count().release(noise) for _, part in parts),
    )
    page = dp.report(plan.certify(1e-6), plan)
    assert len(plan.passes) == 2
    assert all(str(each) in page for each in plan.passes)


def test_two_data_sets_are_two_passes(readings) -> None:
    one = dp.dataset("one", columns={"x": (0, 1)})
    other = dp.dataset("other", columns={"x": (0, 1)})
    noise = dp.Laplace(scale=1.0)
    plan = dp.Pipeline(
        **{
            f"{t.operation.name}{i}": t["x"].clip(0, (i + 1) / 2).sum().release(noise)
            for t in (one, other)
            for i in range(2)
        }
    )
    released = plan.simulate(seed=1, one={"x": np.ones(1000)}, other={"x": np.zeros(1000)})
    assert len(readings) == 2 == len(plan.passes)
    assert released["one0"] == pytest.approx(500, abs=50)
    assert released["one1"] == pytest.approx(1000, abs=50)
    assert released["other1"] == pytest.approx(0, abs=50)


@pytest.mark.parametrize("most", [1, 5])
def test_how_many_passes_there_are_does_not_tell_whether_rows_were_left_out(most, readings) -> None:
    # no unit has more than two rows
    table = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=most)
    other = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=most)
    noise = dp.Laplace(scale=9.0)
    plan = dp.Pipeline(
        all=table.count().release(noise),
        whole={
            k: p.count().release(noise)
            for k, p in other.partition("x", edges=[0, 0.5, 1], whole_units=True)
        },
    )
    plan.simulate(seed=1, people={"id": [1, 1, 2, 3], "x": [0.1, 0.2, 0.3, 0.4]})
    assert len(readings) == len(plan.passes) == 2


# --- what could go wrong in a pass


def rows_of(**columns: Any) -> MemoryRows:
    size = len(next(iter(columns.values())))
    return MemoryRows({k: np.asarray(v) for k, v in columns.items()}, np.arange(size))


def test_sums_over_parts_stay_one_pass_where_a_block_has_no_rows(readings, tmp_path) -> None:
    table = dp.dataset("people", columns={"x": (0, 10), "c": ["a", "b"]})
    noise = dp.Laplace(scale=10.0)
    plan = dp.Pipeline(
        parts={k: p.filter(p["x"] > 7)["x"].sum().release(noise) for k, p in table.partition("c")}
    )
    data = {"x": [1.0, 2.0], "c": ["a", "b"]}
    pq.write_table(pa.table(data), tmp_path / "0.parquet", row_group_size=1)
    in_memory = plan.simulate(seed=1, people=data)
    from_file = plan.simulate(seed=1, people=tmp_path / "0.parquet")
    assert in_memory.released == from_file.released
    assert len(readings) == 2


def test_no_number_of_filters_is_too_much(readings) -> None:
    table = dp.dataset("people", columns={"x": (0, 10), "y": (0, 1)})
    chain = table
    for i in range(1200):  # each of them leaves a row out
        chain = chain.filter(chain["x"] >= i + 0.5)
    plan = dp.Pipeline(
        all=table.count().release(dp.Gaussian(sigma=0.1)),
        few=chain["y"].sum().release(dp.Gaussian(sigma=0.1)),
    )
    released = plan.simulate(seed=1, people={"x": np.arange(1300.0), "y": np.ones(1300)})
    assert (round(released["all"]), round(released["few"])) == (1300, 100)
    assert len(readings) == 1


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.uint8, np.uint64, np.int64, np.bool_])
def test_sums_of_any_integers_are_exact(kind) -> None:
    largest = 1 if kind is np.bool_ else np.iinfo(kind).max
    size = 3 * BLOCK
    (one,) = passes([RowSum(rows_of(x=np.zeros(size)), lambda c: np.array([largest], kind), list)])
    # a block adds the largest number of its type
    assert [int(v) for v in one.totals()[0]] == [3 * int(largest)]
    mixed = iter(
        [np.array([2**64 - 1], np.uint64), np.array([-1]), np.array([2**31 - 1], np.int32)]
    )
    (one,) = passes([RowSum(rows_of(x=np.zeros(size)), lambda c: next(mixed), list)])
    assert [int(v) for v in one.totals()[0]] == [2**64 - 2 + 2**31 - 1]


@pytest.mark.parametrize("largest", [5, 2**62])
def test_a_total_is_int64_where_that_is_asked_for_and_fits(largest) -> None:
    block = Largest(largest)
    (one,) = passes([RowSum(rows_of(x=np.zeros(3 * BLOCK)), block, list)])
    (total,) = one.totals()
    assert total.dtype == (np.int64 if largest == 5 else object)
    assert [int(v) for v in total] == [3 * largest, 3 * BLOCK]


@frozen
class Largest:
    """A block that adds a number, and its rows."""

    number: int
    wants_int64 = True

    def __call__(self, columns):
        return np.array([self.number, len(columns["x"])])


def test_cells_are_exact_where_int64_could_overflow(monkeypatch) -> None:
    # as if weights were so large that two blocks could overflow
    monkeypatch.setattr(scanning, "WEIGHT_BITS", 61)
    cells = Cells(2, lambda c: c["x"] % 2, lambda c: np.full((len(c["x"]), 2), 2**24), 2)
    rows = rows_of(x=np.arange(5 * 4 * BLOCK))
    (one,) = passes([RowSum(rows, cells, list)])
    half = 5 * 4 * BLOCK // 2
    assert [int(v) for v in one.totals()[0]] == [half * 2**24] * 4


@pytest.mark.parametrize("mask", [True, np.array([True]), np.array([[True], [True], [False]])])
def test_a_filter_must_return_one_flag_for_each_row(mask) -> None:
    batch = Batch({"x": np.arange(3)}, 3, FunctionNames())
    with pytest.raises(ValueError, match="each row"):
        batch.where(mask)


def test_what_becomes_of_a_total_changes_no_other() -> None:
    def spoil(total: Any) -> int:
        result = int(total[0])
        total[:] = -1
        return result

    rows = rows_of(x=np.zeros(5))
    requested = [RowSum(rows, Cells(), spoil) for _ in range(3)]
    (one,) = passes(requested)
    assert len(one.scan.jobs) == 1
    totals = one.totals()
    assert [r.finish(t) for r, t in zip(requested, totals, strict=True)] == [5, 5, 5]


@pytest.mark.parametrize(
    "condition",
    [transforms.Meets("x", "in", (1.0, 2.0)), transforms.Meets("x", ">", 1.0)],
)
def test_a_pass_remembers_no_more_functions_for_more_rows(condition) -> None:
    counts = []
    for blocks in (2, 20):
        rows = rows_of(x=np.zeros(blocks * 5 * BLOCK)).where(condition)
        (one,) = passes([RowSum(rows, Cells(), list)])
        one.totals()
        counts.append(len(one.scan._names._alive))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("size", [0, 1, 7])
def test_a_sum_of_parts_of_parts_is_that_of_both(size) -> None:
    a, b = (lambda c: c["x"] % 3), (lambda c: c["x"] % 2)
    rows = rows_of(x=np.arange(size))
    parts = [(i, j) for i in range(3) for j in range(2)]
    requests = [
        RowSum(rows.where(InPart(a, i, 3)).where(InPart(b, j, 2)), Cells(), list) for i, j in parts
    ]
    (one,) = passes(requests)
    totals = [int(t[0]) for t in one.totals()]
    assert totals == [sum(v % 3 == i and v % 2 == j for v in range(size)) for i, j in parts]


# --- equal functions, and what a row may add


class Incomparable:
    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        raise ArithmeticError

    def __call__(self, columns: Any) -> Any:
        return columns["x"] > 1


@pytest.mark.parametrize("keep", [Incomparable, lambda: Unhashable([1])])
def test_functions_that_cannot_be_compared_are_equal_to_themselves_alone(keep) -> None:
    rows = rows_of(x=np.arange(5))
    requests = [RowSum(rows.where(keep()), Cells(), list) for _ in range(2)]
    (one,) = passes(requests)
    assert [t.tolist() for t in one.totals()] == [[3], [3]]


@frozen
class Unhashable:
    values: list[int]

    def __call__(self, columns: Any) -> Any:
        return columns["x"] > self.values[0]


ZEROS, ONES = st.sampled_from([0, 0.0, -0.0, False]), st.sampled_from([1, 1.0, True])
CELLS = np.array([0, 0.0, -0.0, 1, True, False, 2, "1", None, math.nan, 0.5], dtype=object)


@given(ZEROS, ONES, ZEROS, ONES)
def test_equal_functions_of_the_library_return_the_same(zero, one, nought, unit) -> None:
    # Python's 0, -0.0 and False are equal, and so are 1, 1.0 and True
    column = domains.ColumnValues("x")

    def made(low: Any, high: Any) -> list[Any]:
        bounds = domains.Interval(float(low), float(high))
        return [
            transforms.KeyIndex(column, (low, high)),
            transforms.BinIndex(column, (low, high)),
            *(transforms.Meets("x", test, low) for test in ("<", "<=", ">", ">=")),
            transforms.Meets("x", "in", (high, low)),
            domains.ClippedValues(column, bounds),
            sums.Steps(column, bounds),
            sums.Steps(column, bounds, float(low)),
        ]

    for values in (CELLS, np.array([0.0, -0.0, 1.0, math.nan, math.inf])):
        for first, second in zip(made(zero, one), made(nought, unit), strict=True):
            assert first == second
            columns = {"x": values}
            np.testing.assert_array_equal(first(columns), second(columns))


BOUNDS = st.floats(-1e289, 1e289)
NASTY = np.array([0, -0.0, math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 1.0, -1.0])


@given(BOUNDS, BOUNDS, st.sampled_from([0.0, 1.0, 1e-300, -1e-310, 1e280]))
def test_what_a_row_adds_to_a_sum_is_at_most_2_to_the_24(a, b, size) -> None:
    column = domains.ColumnValues("x")
    low, high = sorted([a / 1e289 * size, b / 1e289 * size])
    near = np.array([low, high, (low + high) / 2, np.nextafter(high, math.inf)])
    columns = {"x": np.concatenate([NASTY, near])}
    bounds = domains.Interval(low, high)
    zero = min(max(0.0, low), high)
    for steps in (sums.Steps(column, bounds), sums.Steps(column, bounds, zero)):
        assert np.abs(steps(columns)).max() <= 2**scanning.WEIGHT_BITS


@pytest.mark.parametrize("width", [1, 2, 30, 1000])
@pytest.mark.parametrize("radius", [0.0, 1e-140, 1e-3, 1.0, 3.7, 9e139])
def test_what_a_vector_adds_is_at_most_2_to_the_24(width, radius) -> None:
    def vectors(columns: Any) -> Any:
        return np.concatenate([columns["x"][:, None]] * width, axis=1)

    x = np.concatenate([NASTY, [radius, -radius, radius / math.sqrt(width), radius * 0.999999]])
    added = sums.BallSteps(vectors, radius)({"x": x})
    assert np.isfinite(added).all()
    assert np.abs(added).max() <= 2**scanning.WEIGHT_BITS
    assert (added == np.rint(added)).all()


# --- other people's queries


@frozen
class Late(SumOverRows):
    """The sum of a column that no parameter names."""

    kind = "late"
    input_type = None

    def sensitivity(self, domain, change, norm):
        return 1.0

    def block(self, value):
        return Cells(weights=lambda columns: np.clip(columns["x"], 0, 1).astype(np.int64))


@frozen
class Both(Late):
    """Has a sum over rows, and a value of its own."""

    kind = "both"

    def run(self, inputs, stream):
        return np.array([-7.0])


@frozen
class OfX(Count):
    """Counts rows by a column, as a subclass of a query that reads none."""

    def block(self, value):
        return Cells(weights=lambda columns: (columns["x"] > 0).astype(np.int64))


def test_queries_of_others_read_what_they_like(tmp_path) -> None:
    table = dp.dataset("people", columns={"x": (0, 1), "y": (0, 1)})
    requested = [Late(), Both(), OfX()]
    noise = dp.Gaussian(sigma=1e-3)
    plan = dp.Pipeline(
        **{type(q).__name__: PrivateQuery(q, (table,)).release(noise) for q in requested},
        y=table["y"].sum().release(noise),
    )
    pq.write_table(pa.table({"x": [1.0, 1.0, 0.0], "y": [1.0] * 3}), tmp_path / "0.parquet")
    for data in ({"x": [1.0, 1.0, 0.0], "y": [1.0] * 3}, tmp_path / "0.parquet"):
        released = plan.simulate(seed=1, people=data)
        values = [np.ravel(released[k])[0] for k in ("Late", "Both", "OfX", "y")]
        assert values == pytest.approx([2, -7, 2, 3], abs=0.1)
    alone = [each for each in plan.passes if not each.once]
    assert [len(each.queries) for each in alone] == [1]


SECRET = 31337.25


def broken(columns: Any) -> Any:
    hidden = float(columns["x"].max(initial=0))
    raise ValueError(f"it is {hidden}")


@frozen
class Broken(Late):
    """Shows what it was given, where it fails."""

    kind = "broken"

    def block(self, value):
        return broken


@pytest.mark.parametrize("kind", ["lists", "Parquet in 3 files"])
@pytest.mark.parametrize("others", [0, 2])
def test_a_query_that_fails_is_named_and_shows_nothing(kind, others, tmp_path) -> None:
    table = dp.dataset("people", columns=SCHEMA)
    noise = dp.Laplace(scale=100.0)
    plan = dp.Pipeline(
        culprit=PrivateQuery(Broken(), (table,)).release(noise),
        **{f"n{i}": table.filter(table["x"] > i).count().release(noise) for i in range(others)},
    )
    data = KINDS[kind]([each | {"x": SECRET} for each in some(9)], tmp_path)
    with pytest.raises(dp.RunError, match="'broken'") as caught:
        plan.simulate(seed=1, people=data)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    inner = error.__traceback__.tb_next.tb_next  # below this test, and the caller's own arguments
    stack = traceback.StackSummary.extract(traceback.walk_tb(inner), capture_locals=True)
    assert len(stack) > 2
    assert "31337" not in "".join(stack.format())


# --- interruptions


class Stops:
    """A block function that is interrupted at one of its calls."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def __call__(self, columns: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return np.array([len(columns["x"])])


def interrupted(name: str, stops: Stops) -> type[Late]:
    @frozen
    class Interrupted(Late):
        kind = name

        def block(self, value):
            return stops

    return Interrupted


def test_of_two_interrupted_passes_each_goes_on_where_it_was(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    first, second = Stops(0), Stops(5)
    noise = dp.Laplace(scale=1.0)
    tables, outputs = {}, {}
    for name, stops in (("one", first), ("two", second)):
        table = dp.dataset(name, columns={"x": (0, 1)})
        query = PrivateQuery(interrupted(name, stops)(), (table,))
        outputs[name] = query.release(noise)
        pq.write_table(pa.table({"x": np.ones(8)}), tmp_path / f"{name}.parquet", row_group_size=1)
        tables[name] = dp.Files(tmp_path / f"{name}.parquet", engine="threads")
    plan = dp.Pipeline(**outputs)
    run = Run(plan.structure, 1)
    run.bind(bind_sources(plan.structure, {k: Secret(v) for k, v in tables.items()}))
    with pytest.raises(KeyboardInterrupt):
        run.all()
    # what is under way holds rows, and is as private as they are
    assert "PartitionedRows" not in repr(vars(run))
    with pytest.raises(TypeError):
        pickle.dumps(run)
    before = first.calls
    run.all()
    assert first.calls == before
    for release in plan.structure.releases:
        assert run.secrets[release.inputs[0]].reveal().tolist() == [8.0]
    # of 8 parts 4 were added, the fifth was stopped and two may have followed: 4 are left, and one
    # call for no rows; anew it would have been at least 5 + 8 + 1
    assert second.calls <= 7 + 4 + 1


def limits(done: Stops) -> dp.Pipeline:
    table = dp.dataset("people", columns={"x": (0, 10)})

    def step(limit: Any) -> Any:
        below = table.filter(table["x"] <= limit)
        stops = PrivateQuery(interrupted("stops", done)(), (below,)).release(dp.Gaussian(0.01))
        return dp.post(follow, limit, stops, below.count().release(dp.Gaussian(0.01)))

    return dp.Pipeline(last=dp.repeat(step, 3, start=1.0))


def follow(limit: float, stops: Any, count: float) -> float:
    return 2 * limit + float(round(count)) / 100


def test_an_interrupted_round_begins_anew() -> None:
    values = []
    for at in (0, 2):
        plan, rows = limits(Stops(at)), Secret({"x": np.arange(10.0)})
        run = Run(plan.structure, 1)
        run.bind(bind_sources(plan.structure, {"people": rows}))
        if at:
            with pytest.raises(KeyboardInterrupt):
                run.all()
        run.all()
        values.append(run.public_values[plan.structure.of(plan.outputs[0][1]).name])
    assert values[0] == values[1]


# --- values of every type, against fractions

TYPES = ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]
WIDE = [(-1.0, 1.0), (0.0, 256.0), (-3.0, 5.0), (2.0, 2.0), (-1e289, 1e289), (0.0, 5e-324)]


def nasty(kind: str, size: int, bounds: tuple[float, float], seed: int) -> Any:
    """Return values of a type: at bounds and next to them, halves of steps, its own extremes."""
    draw = np.random.default_rng(seed)
    if np.dtype(kind).kind == "f":
        unit = grid.step(max(map(abs, bounds)), grid.BITS)
        near = [np.nextafter(end, to) for end in bounds for to in (-np.inf, np.inf)]
        halves = [(n + 0.5) * unit for n in (-3, -2, -1, 0, 1, 2, 4)]
        odd = [0.0, -0.0, 5e-324, -1e-310, 1e308, -1e308, math.inf, -math.inf, math.nan]
        some: list[Any] = [*bounds, *near, *halves, *odd, *draw.uniform(-2, 6, 5)]
    else:
        least, most = (0, 1) if kind == "?" else (np.iinfo(kind).min, np.iinfo(kind).max)
        some = [least, most, most - 1, 0, 1, most // 2 + 1]
    with np.errstate(over="ignore"):
        return np.array(some, dtype=kind)[draw.integers(0, len(some), size)]


def clipped_exactly(value: Any, bounds: tuple[float, float]) -> Fraction:
    """Return a value as a float, then inside of bounds; NaN is the point next to 0."""
    number, (low, high) = float(value), bounds
    return Fraction(min(max(0.0 if math.isnan(number) else number, low), high))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [0, 1, 300, scanning.MORE_ROWS + 1])
def test_values_of_every_type_are_summed_as_fractions_are(kind, size) -> None:
    data = {f"c{i}": nasty(kind, size, bounds, i) for i, bounds in enumerate(WIDE)}
    rows = table_rows(data, Schema(dict.fromkeys(data, "number")))
    asked, expected = [], []
    for (name, values), (low, high) in zip(data.items(), WIDE, strict=True):
        of = domains.ColumnValues(name)
        value = domains.Selected(rows, of)
        sum_ = sums.Sum(domains.Interval(low, high))
        asked.append(RowSum(rows, sum_.block(value), list))
        unit = Fraction(grid.step(max(abs(low), abs(high)), grid.BITS))
        least, most = math.ceil(Fraction(low) / unit), math.floor(Fraction(high) / unit)
        # a missing value is left out of a sum
        present = [v for v in values.tolist() if not math.isnan(v)]
        step_of = {v: round(clipped_exactly(v, (low, high)) / unit) for v in set(present)}
        steps = [step_of[v] for v in present]
        # narrower than a step: their one point
        expected.append([sum(min(max(n, least), most) if least <= most else 0 for n in steps)])
        if 0 < high - low < 1e100 and low + (high - low) / 2 not in (low, high):
            edges = [low, low + (high - low) / 2, high]
            asked.append(RowSum(rows, Histogram(edges=edges).block(value), list))
            inside = [float(v) for v in values.tolist() if low <= float(v) <= high]
            upper = sum(v >= edges[1] for v in inside)
            expected.append([len(inside) - upper, upper])
    (one,) = passes(asked)
    assert [[int(n) for n in total] for total in one.totals()] == expected


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("size", [0, 1, BLOCK, BLOCK + 1])
def test_moments_of_several_targets_are_those_of_fractions(kind, size) -> None:
    """Of one pass, in which the targets share the features' products."""
    # powers of two, so that the only rounding is that to the grid
    bounds = {"a": (-1.0, 1.0), "b": (-256.0, 256.0), "c": (-(2.0**300), 2.0**300)}
    targets = {"y": (-64.0, 64.0), "z": (-(2.0**-1000), 2.0**-1000)}
    both = {**bounds, **targets}
    data = {name: nasty(kind, size, each, i) for i, (name, each) in enumerate(both.items())}
    rows = table_rows(data, Schema(dict.fromkeys(data, "number")))
    table = dp.dataset("people", columns=both)
    vectors = table.vectors(list(bounds), scale=True, intercept=True)
    selected = vectors.operation.run([rows], None)
    asked = [MomentsOf(4.0, name, targets[name]).row_sum([selected]) for name in targets]

    def rounded(name: str, factor: int) -> list[int]:
        high = Fraction(both[name][1])
        values = (clipped_exactly(v, both[name]) for v in data[name].tolist())
        return [round(v / high * factor) for v in values]

    features = [[2**17] * size, *(rounded(name, 2**17) for name in bounds)]
    (one,) = passes(asked)
    for name, total in zip(targets, one.totals(), strict=True):
        points = [*features, rounded(name, 2**19)]
        products = [sum(map(operator.mul, p, q)) for p in points for q in points]
        assert [int(n) for n in total] == products


def test_products_are_exact_in_the_largest_blocks() -> None:
    """Of the longest rows, whose partial sums are the largest: 2^14 products of 19 bits."""
    assert scanning.MORE_ROWS * 2**19 * 2**19 < 2**53
    draw, size = np.random.default_rng(5), 2 * scanning.MORE_ROWS + 1
    data = {name: 1 - draw.integers(0, 2**8, size) * 2.0**-18 for name in "ay"}
    data["y"] += 2.0**-19 * (draw.integers(0, 2, size) - 1)
    rows = table_rows(data, Schema(dict.fromkeys(data, "number")))
    table = dp.dataset("people", columns=dict.fromkeys("ay", (-1, 1)))
    selected = table.vectors(["a"], scale=True).operation.run([rows], None)
    (one,) = passes([MomentsOf(2.0, "y", (-1, 1)).row_sum([selected])])
    assert one.scan.size == scanning.MORE_ROWS
    points = [(data["a"] * 2**18).astype(int).tolist(), (data["y"] * 2**19).astype(int).tolist()]
    (total,) = one.totals()
    assert [int(n) for n in total] == [sum(map(operator.mul, p, q)) for p in points for q in points]


def test_targets_share_the_products_of_their_features(monkeypatch) -> None:
    multiplied = []
    plain = Products.__call__

    def counted(self: Products, columns: Any) -> Any:
        multiplied.append(self)
        return plain(self, columns)

    monkeypatch.setattr(Products, "__call__", counted)
    table = dp.dataset("people", columns=dict.fromkeys("abyz", (-1, 1)))
    rows = table_rows({name: [0.5] for name in "abyz"}, Schema(dict.fromkeys("abyz", "number")))
    selected = table.vectors(["a", "b"], scale=True).operation.run([rows], None)
    asked = [MomentsOf(4.0, name, (-1, 1)).row_sum([selected]) for name in "yz"]
    (one,) = passes(asked)
    one.totals()
    assert len(multiplied) == 1


def test_rows_that_are_units_of_their_own_have_no_array_of_numbers() -> None:
    rows = table_rows({"x": np.arange(5.0)}, Schema({"x": "number"}))
    assert rows.unit_numbers == range(5)
    assert rows.units.tolist() == [0, 1, 2, 3, 4]
    assert rows.take(rows.columns["x"] > 2).units.tolist() == [3, 4]
    assert rows.size() == rows.length == 5
