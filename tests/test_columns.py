"""A run reads the columns that its plan needs, and no others."""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from plans import PLANS, built
from profiles import examples

import adaptive_dp as dp
from adaptive_dp.data import csv_files, parquet_files, read_rows, sources
from adaptive_dp.data.cells import objects, read_column, same_cells
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.graph import run as runs
from adaptive_dp.graph.handles import PrivateQuery, SourceOperation
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.passes import columns_needed, columns_read, passes
from adaptive_dp.graph.registry import operation
from adaptive_dp.names import OPERATIONS
from adaptive_dp.pate.ballots import BallotsSource
from adaptive_dp.pate.ensembles import Points
from adaptive_dp.queries.domains import Categories, Interval, Strings
from adaptive_dp.queries.source import Source
from adaptive_dp.queries.sums import Sum

READ_BY_NONE = {
    # they read released values, or public rows of their own
    "case", "disagreement", "function_start", "group", "network_parameters", "network_start",
    "network_value", "optax_step", "optimizer_step",
    "parameter", "points", "post", "public", "release", "repeat", "select", "state", "student",
    "trained_network",
}  # fmt: skip
"""Kinds whose inputs are not private rows."""


def kinds() -> dict[str, type[Operation]]:
    return {kind: operation(kind) for kind in OPERATIONS}


def test_every_operation_on_private_values_says_which_columns_it_reads() -> None:
    silent = {k for k, cls in kinds().items() if vars(cls).get("column_fields") is None}
    assert silent == READ_BY_NONE & set(kinds())
    private = {kind for kind, cls in kinds().items() if cls.visibility == "private"}
    assert not silent & private
    for kind, cls in kinds().items():
        # names of parameters, or of properties that follow from them
        assert all(hasattr(cls, name) for name in cls.column_fields or ()), kind


# --- columns that must not be read

RUN = [name for name in PLANS if name not in ("free", "constants")]
"""Plans that can be run."""


class Sealed(Sequence[Any]):
    """A column that allows nothing but its length to be read."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("a cell was read")


def made_up(plan: dp.Pipeline, rows: int = 40) -> dict[str, Any]:
    """Data for every source of a plan."""
    draw = np.random.default_rng(5)
    data: dict[str, Any] = {}
    for node in plan.structure:
        source = node.handle.operation
        if isinstance(source, BallotsSource):
            counts = np.zeros((source.questions, source.classes), dtype=int)
            counts[:, 0] = source.teachers
            data[source.name] = {"counts": counts}
        if isinstance(source, Points):
            declared = source.columns.items()
            data[source.name] = {k: column(draw, c, source.size) for k, c in declared}
        if isinstance(source, Source):
            size = source.size or rows
            table = {name: column(draw, each, size) for name, each in source.columns.items()}
            if source.unit is not None:
                table[source.unit] = np.arange(size)
            data[source.name] = table
    return data


def column(draw: np.random.Generator, declared: Any, rows: int) -> np.ndarray:
    if isinstance(declared, Categories):
        return np.array(
            [declared.values[i] for i in draw.integers(len(declared.values), size=rows)]
        )
    if isinstance(declared, Strings):
        return np.array(["A", "B"] * rows)[:rows]
    low, high = (declared.lower, declared.upper) if isinstance(declared, Interval) else (0, 3)
    return draw.uniform(low - 1, high + 1, rows)


def sealed(plan: dp.Pipeline, data: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The same data with each column sealed that the plan does not announce, and how many are."""
    needed = {
        plan.structure.nodes[name].handle.operation.name: names
        for name, names in columns_needed(plan.structure).items()
    }
    count = 0
    result = dict(data)
    for node in plan.structure:
        source = node.handle.operation
        if isinstance(source, Source):
            assert needed[source.name] is not None
            table = dict(data[source.name])
            for name in set(source.columns) - needed[source.name] - {source.unit}:
                table[name] = Sealed(len(table[name]))
                count += 1
            result[source.name] = table
    return result, count


@pytest.mark.parametrize("name", RUN)
def test_plans_read_no_column_that_they_do_not_announce(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = built(name)
    data = made_up(plan)
    locked, _ = sealed(plan, data)
    released = plan.simulate(seed=3, **locked)
    # the same as of rows that have all columns
    monkeypatch.setattr(runs, "columns_needed", lambda structure: {})
    assert repr(dict(plan.simulate(seed=3, **data))) == repr(dict(released))


def test_some_columns_are_sealed() -> None:
    plans = [built(name) for name in RUN]
    assert sum(sealed(plan, made_up(plan))[1] for plan in plans) > 20


@pytest.mark.parametrize("name", PLANS)
def test_what_passes_read_is_among_what_is_bound(name: str) -> None:
    structure = built(name).structure
    needed = {
        structure.nodes[node].handle.operation.name: names
        for node, names in columns_needed(structure).items()
    }
    for each in passes(structure):
        if each.columns is not None and not isinstance(source_of(structure, each), BallotsSource):
            assert set(each.columns) <= needed[each.source]


def source_of(structure: Any, each: Any) -> Operation:
    operations = [node.handle.operation for node in structure]
    return next(o for o in operations if isinstance(o, SourceOperation) and o.name == each.source)


class Louder(Sum):
    """What derives from a query of the library may read more."""


def test_what_a_base_reads_says_nothing_of_its_subclass() -> None:
    assert Sum(Interval(0, 1)).columns_read() == frozenset()
    assert Louder(Interval(0, 1)).columns_read() is None


@frozen
class Unsaid(dp.Query):
    """A query that does not say what it reads."""

    kind = "unsaid"

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return float(change.rows)

    def run(self, inputs: Any, stream: Any) -> float:
        return float(inputs[0].total(lambda c: np.array([len(c["b"])]))[0])


def test_all_columns_are_read_where_a_query_does_not_say_which() -> None:
    table = dp.dataset("t", columns={"a": (0, 1), "b": (0, 1)})
    plan = dp.Pipeline(n=PrivateQuery(Unsaid(), (table,)).release(dp.Laplace(scale=1)))
    assert list(columns_needed(plan.structure).values()) == [None]
    assert plan.simulate(seed=1, t={"a": [0.0, 1.0], "b": [0.0, 1.0]})["n"] > -50
    with pytest.raises(dp.DataError):
        plan.simulate(seed=1, t={"a": Sealed(2), "b": [0.0, 1.0]})


# --- what is not read is checked all the same

TABLE = dp.dataset("t", columns={"a": (0, 1), "b": (0, 1), "c": ["u", "v"], "d": [1, 2]})
SUM = dp.Pipeline(total=TABLE["a"].sum().release(dp.Laplace(scale=1.0)))
GOOD = {
    "a": np.array([0.25, 0.5, 1.0]),
    "b": np.array([1.0, 2.0, 3.0]),
    "c": np.array(["u", "v", "w"]),
    "d": np.array([1, 2, 3]),
}


BAD: dict[str, dict[str, Any]] = {
    "missing": {k: v for k, v in GOOD.items() if k != "b"},
    "strings for numbers": GOOD | {"b": np.array(["1", "2", "3"])},
    "numbers for strings": GOOD | {"c": np.array([1, 2, 3])},
    "strings for codes": GOOD | {"d": np.array(["1", "2", "3"])},
    "dates": GOOD | {"b": np.array([1, 2, 3], dtype="M8[D]")},
    "masked strings": GOOD | {"b": np.ma.masked_array(["1", "2", "3"])},
    "short": GOOD | {"b": np.array([1.0])},
    "short list": GOOD | {"b": [1.0]},
    "wide": GOOD | {"b": np.zeros((3, 2))},
    "no array": GOOD | {"b": 7},
    "pandas": GOOD | {"b": pd.Series(["1", "2", "3"])},
    "polars": GOOD | {"b": pl.Series(["1", "2", "3"])},
    "arrow": GOOD | {"b": pa.array(["1", "2", "3"])},
}


@pytest.mark.parametrize("name", BAD)
def test_a_column_that_is_not_read_is_refused_as_one_that_is(name: str) -> None:
    everything = dp.Pipeline(
        **{k: TABLE[k].histogram([0, 1, 2]).release(dp.Laplace(scale=1.0)) for k in "ab"},
        **{k: TABLE[k].histogram().release(dp.Laplace(scale=1.0)) for k in "cd"},
    )
    messages = []
    for plan in (SUM, everything):
        with pytest.raises(dp.DataError) as caught:
            plan.simulate(seed=1, t=BAD[name])
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def ways(folder: Any, table: pa.Table) -> dict[str, Any]:
    """One table in every form that has columns which need not be read."""
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    table.to_pandas().to_csv(folder / "t.csv", index=False)
    return {
        "arrow": table,
        "pandas": table.to_pandas(),
        "polars": pl.from_arrow(table),
        "small parquet": folder / "t.parquet",
        "small csv": folder / "t.csv",
        "parquet": dp.Files(folder / "t.parquet"),
        "csv": dp.Files(folder / "t.csv"),
        "data set": ds.dataset(folder / "t.parquet"),
    }


@pytest.mark.parametrize("unit", [None, "id"])
def test_every_form_gives_the_same(unit: str | None, tmp_path: Any) -> None:
    more: dict[str, Any] = {} if unit is None else {"unit": unit, "rows_per_unit": 2}
    table = dp.dataset("t", columns=dict(TABLE.domain.columns), **more)
    noise = dp.Laplace(scale=0.5)
    plans = [
        dp.Pipeline(count=table.count().release(noise)),
        dp.Pipeline(total=table["a"].sum().release(noise)),
        dp.Pipeline(some=table.filter(table["c"].isin(["u"]))["b"].sum().release(noise)),
        dp.Pipeline(middle=table["b"].median().release(dp.SmoothCauchy(epsilon=1.0))),
        dp.Pipeline(whole={k: p.count().release(noise) for k, p in table.partition("d", **(
            {} if unit is None else {"whole_units": True}))}),
    ]  # fmt: skip
    data = pa.table({k: pa.array(v) for k, v in GOOD.items()} | {"id": [7, 7, 8]})
    for plan in plans:
        given = ways(tmp_path, data)
        outputs = {k: repr(dict(plan.simulate(seed=2, t=v))) for k, v in given.items()}
        assert len(set(outputs.values())) == 1, outputs


@pytest.mark.parametrize("form", ["small parquet", "parquet", "data set", "arrow", "polars"])
@pytest.mark.parametrize("fault", ["missing", "strings for numbers", "numbers for strings"])
def test_every_form_is_checked(form: str, fault: str, tmp_path: Any) -> None:
    data = pa.table({k: pa.array(v) for k, v in BAD[fault].items()})
    with pytest.raises(dp.DataError):
        SUM.simulate(seed=1, t=ways(tmp_path, data)[form])


@pytest.mark.parametrize("form", ["small csv", "csv"])
def test_a_csv_file_has_every_declared_column(form: str, tmp_path: Any) -> None:
    data = pa.table({k: pa.array(v) for k, v in BAD["missing"].items()})
    with pytest.raises(dp.DataError):
        SUM.simulate(seed=1, t=ways(tmp_path, data)[form])


def test_cells_of_a_csv_file_that_are_not_needed_are_not_parsed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed = []
    monkeypatch.setattr(
        csv_files, "parse_cell", lambda text, reading: parsed.append(text) or float(text)
    )
    (tmp_path / "t.csv").write_text("b,a,c,d\n7,0.5,u,1\n8,0.25,v,2\n")
    SUM.simulate(seed=1, t=tmp_path / "t.csv")
    assert parsed == ["0.5", "0.25"]


# --- how much is read of wide files

WIDTH, LENGTH = 200, 200_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Parquet file of 20 columns of floats, and 180 of small integers."""
    draw, path = np.random.default_rng(0), tmp_path_factory.mktemp("wide") / "wide.parquet"
    table = pa.table(
        {
            f"x{i}": draw.uniform(0, 1, LENGTH) if i < 20 else draw.integers(0, 16, LENGTH)
            for i in range(WIDTH)
        }
    )
    pq.write_table(table, path, row_group_size=LENGTH // 4)
    return path


def stored(path: Any, names: set[str]) -> int:
    """The bytes of columns in a file, by its metadata."""
    metadata = pq.read_metadata(path)
    chunks = [
        metadata.row_group(i).column(j)
        for i in range(metadata.num_row_groups)
        for j in range(metadata.num_columns)
    ]
    return sum(each.total_compressed_size for each in chunks if each.path_in_schema in names)


def bytes_read() -> int:
    """The bytes that this process has read of files so far."""
    with open("/proc/self/io") as file:
        return int(file.readline().removeprefix("rchar:"))


def sums(count: int) -> dp.Pipeline:
    table = dp.dataset("t", columns={f"x{i}": (0, 1) for i in range(WIDTH)})
    noise = dp.Laplace(scale=1.0)
    return dp.Pipeline(**{f"x{i}": table[f"x{i}"].sum().release(noise) for i in range(count)})


@pytest.mark.skipif("not __import__('os').path.exists('/proc/self/io')", reason="Linux counts")
@pytest.mark.parametrize("form", ["small", "batches", "data set"])
@pytest.mark.parametrize("count", [2, 20])
def test_only_the_needed_columns_bytes_are_read(wide: Any, form: str, count: int) -> None:
    plan = sums(count)
    data = {"small": wide, "batches": dp.Files(wide, "threads"), "data set": ds.dataset(wide)}[form]
    plan.simulate(seed=1, t=data)  # what is imported is not counted

    def read_by_a_run() -> int:
        before = bytes_read()
        plan.simulate(seed=1, t=data)
        return bytes_read() - before

    # other threads of this process read too, from pipes: the least of several runs is the run's own
    read = min(read_by_a_run() for _ in range(3))
    released = plan.simulate(seed=1, t=data)
    names = {f"x{i}" for i in range(count)}
    assert stored(wide, names) <= read <= 1.1 * stored(wide, names)
    # nearly the sums that PyArrow computes: the noise is below 50 but with probability e^-50
    for name in names:
        exact = float(np.sum(pq.read_table(wide, columns=[name])[name].to_numpy()))
        assert abs(released[name] - exact) < 51


def test_ten_thousand_columns_cost_what_one_does() -> None:
    """The times are ten times what they were on a machine that was busy with other work."""
    values = np.linspace(0, 1, 100)
    start = time.process_time()
    table = dp.dataset("t", columns={f"x{i}": (0, 1) for i in range(10_000)})
    plan = dp.Pipeline(total=table["x7"].sum().release(dp.Laplace(scale=1.0)))
    declared = time.process_time() - start
    assert declared < 5
    columns = {f"x{i}": values for i in range(10_000)}
    plan.certify()
    for data in (columns, pa.table(columns), pl.DataFrame(columns), pd.DataFrame(columns)):
        start = time.process_time()
        assert abs(plan.simulate(seed=1, t=data)["total"] - 50) < 40
        assert time.process_time() - start < 2


@pytest.mark.parametrize("form", ["batches", "data set"])
def test_no_value_decides_which_row_groups_and_columns_are_read(
    form: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statistics could skip all but one group, all of them, or none."""
    table = dp.dataset("t", columns={"a": (0, 100), "b": (0, 1), "c": (0, 1)})
    old = table.filter(table["a"] >= 90)
    noise = dp.Laplace(scale=1.0)
    plan = dp.Pipeline(
        n=old.count().release(noise),
        b=old["b"].sum().release(noise),
        middle=old["b"].median().release(dp.SmoothCauchy(epsilon=1.0)),
    )
    read: list[list[Any]] = []
    for a in ([95, 1, 1, 1, 1, 1], [1] * 6, [95] * 6, [np.nan] * 6):
        pq.write_table(
            pa.table({"a": np.array(a, dtype=float), "b": np.linspace(0, 1, 6), "c": np.zeros(6)}),
            tmp_path / "t.parquet",
            row_group_size=2,
        )
        seen: list[Any] = []
        with monkeypatch.context() as patch:
            for cls in (parquet_files.RowGroup, parquet_files.DatasetPiece):
                patch.setattr(cls, "blocks", recorded(cls.blocks, seen))
            data = (
                dp.Files(tmp_path / "t.parquet", "threads")
                if form == "batches"
                else ds.dataset(tmp_path / "t.parquet")
            )
            plan.simulate(seed=1, t=data)
        read.append(sorted(seen))
    assert read[0] == read[1] == read[2] == read[3]
    assert len(read[0]) == 3 * 2 * 2  # each row, in both passes, with both columns


def recorded(blocks: Any, seen: list[Any]) -> Any:
    """Return `blocks`, which then says the columns and rows of each block that it yields."""

    def wrapped(self: Any, columns: Any) -> Any:
        for rows in blocks(self, columns):
            seen.extend((name, len(rows.units), str(self.rows())) for name in rows.columns)
            yield rows

    return wrapped


@pytest.mark.parametrize("name", RUN)
def test_no_pass_over_files_reads_another_column(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums, each row's values, examples, bounds, samples and units: whatever reads a part."""
    plan = built(name)
    data, needed = made_up(plan), columns_needed(plan.structure)
    bound, allowed = dict(data), dict[str, set[str]]()
    for node in plan.structure:
        source = node.handle.operation
        if isinstance(source, Source):
            path = tmp_path / f"{source.name}.parquet"
            pq.write_table(pa.table(data[source.name]), path, row_group_size=16)
            bound[source.name] = dp.Files(path, "threads")
            allowed[path.name] = set(needed[node.name] or ()) | {source.unit or ""}
    read: list[tuple[str, frozenset[str]]] = []
    blocks = parquet_files.RowGroup.blocks

    def recorded(self: Any, columns: Any) -> Any:
        read.append((self.path.name, frozenset(columns)))
        return blocks(self, columns)

    with monkeypatch.context() as patch:
        patch.setattr(parquet_files.RowGroup, "blocks", recorded)
        released = plan.simulate(seed=3, **bound)
    assert all(columns <= allowed[file] for file, columns in read)
    # and each pass those of one node at a time, or of sums that are computed together
    nodes = {names for names in columns_read(plan.structure).values() if names is not None}
    nodes |= {frozenset(each.columns) for each in passes(plan.structure) if each.columns}
    units = {frozenset([source.unit]) for source in sources_of(plan) if source.unit}
    assert {columns for _, columns in read} <= nodes | units
    for node in plan.structure:
        source = node.handle.operation
        if isinstance(source, Source) and source.unit and source.unit not in needed[node.name]:
            # identities are read of the unit's column alone
            own = [columns for file, columns in read if file == f"{source.name}.parquet"]
            assert {columns for columns in own if source.unit in columns} == {
                frozenset([source.unit])
            }
    assert repr(dict(released)) == repr(dict(plan.simulate(seed=3, **data)))


def sources_of(plan: dp.Pipeline) -> list[Source]:
    operations = [node.handle.operation for node in plan.structure]
    return [each for each in operations if isinstance(each, Source)]


@pytest.mark.parametrize("form", ["parquet", "csv", "data set"])
def test_a_median_reads_its_column_alone(
    form: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    median = TABLE.filter(TABLE["c"].isin(["u"]))["b"].median()
    plan = dp.Pipeline(
        total=TABLE["a"].sum().release(dp.Laplace(scale=1.0)),
        middle=median.release(dp.SmoothCauchy(epsilon=1.0)),
    )
    read = set[frozenset[str]]()

    def spied(blocks: Any) -> Any:
        def wrapped(self: Any, columns: Any) -> Any:
            read.add(frozenset(columns))
            return blocks(self, columns)

        return wrapped

    for cls in (parquet_files.RowGroup, parquet_files.DatasetPiece, csv_files.CsvPart):
        monkeypatch.setattr(cls, "blocks", spied(cls.blocks))
    forms = ways(tmp_path, pa.table({k: pa.array(v) for k, v in GOOD.items()}))
    assert str(plan.simulate(seed=1, t=forms[form])) == str(plan.simulate(seed=1, t=GOOD))
    assert read == {frozenset("a"), frozenset("bc")}


def test_rows_in_memory_are_copied_column_by_column() -> None:
    rows = read_rows(GOOD, {"a": "number", "b": "number", "c": "text"}, None)
    some = rows.where(lambda c: c["a"] < 0.75).where(lambda c: c["c"] != "u")
    assert some.values(lambda c: c["b"]).tolist() == [2.0]
    assert set(some.columns._copies) == {"b"}
    assert pickle.loads(pickle.dumps(some.columns)).keys() == {"a", "b", "c"}
    assert all(len(column) == 1 for column in pickle.loads(pickle.dumps(some.columns)).values())


# --- steps of a session

STEPS = [
    ("a", TABLE["a"].sum().release(dp.Laplace(scale=0.5))),
    ("a", TABLE["a"].sum().release(dp.Laplace(scale=0.25))),
    ("bc", TABLE.filter(TABLE["c"].isin(["u"]))["b"].sum().release(dp.Laplace(scale=0.5))),
    ("c", TABLE["c"].histogram().release(dp.Laplace(scale=0.5))),
]


def test_a_step_copies_the_columns_that_it_needs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is written into one of them then changes no step."""
    arrays = {name: column.copy() for name, column in GOOD.items()}
    copied: list[list[str]] = []
    plain = MemoryRows.copied

    def recorded(self: MemoryRows) -> MemoryRows:
        copied.append(sorted(self.columns))
        return plain(self)

    monkeypatch.setattr(MemoryRows, "copied", recorded)
    with dp.Session(budget=dp.Budget(100.0), seed=2, t=GOOD) as session:
        expected = [session.run(handle) for _, handle in STEPS]
    copied.clear()
    with dp.Session(budget=dp.Budget(100.0), seed=2, t=arrays) as session:
        got = [session.run(STEPS[0][1])]
        got.append(session.run(STEPS[1][1]))
        got.append(session.run(STEPS[2][1]))
        for name in arrays:
            arrays[name][:] = arrays[name][::-1].copy()
        got.append(session.run(STEPS[3][1]))  # reads what is in memory
    assert copied == [["a"], ["b", "c"]]
    assert str(got) == str(expected)


@pytest.mark.parametrize("kind", ["arrays", "lists", "pandas", "polars", "units"])
def test_a_table_that_changes_between_two_steps_is_refused(kind: str) -> None:
    """Columns read before and after a change would be those of two tables."""
    size = len(GOOD["a"])
    held: Any = {name: column.tolist() for name, column in GOOD.items()}
    table = TABLE
    if kind == "units":
        held["who"] = np.arange(size)
        table = dp.dataset("t", columns=dict(TABLE.domain.columns), unit="who", rows_per_unit=1)
    elif kind != "lists":
        held = {name: column.copy() for name, column in GOOD.items()}
        held = {"pandas": pd.DataFrame, "polars": pl.DataFrame}.get(kind, dict)(held)
    first = table.count() if kind == "units" else table["a"].sum()
    later = table["b"].sum().release(dp.Laplace(scale=1.0))
    with dp.Session(budget=dp.Budget(100.0), t=held) as session:
        session.run(first.release(dp.Laplace(scale=1.0)))
        spent = session.spent.costs[0]
        if kind == "units":
            held["who"][:] = held["who"][::-1].copy()
            held["who"][0] = held["who"][1]
        elif kind == "pandas":
            held.loc[0, "a"] = -1.0
        elif kind == "polars":
            held[0, "a"] = -1.0
        else:
            held["a"][0] = -1.0
        with pytest.raises(dp.DataError, match="changed"):
            session.run(later)
        assert session.spent.costs[0] == spent  # it is not paid for


CELLS = [None, "u", "v", 1, 1.0, True, math.nan, b"u", ("foreign",)]


@examples(60)
@given(
    cells=st.lists(st.sampled_from(CELLS), min_size=1, max_size=5),
    place=st.integers(0, 4),
    other=st.sampled_from(CELLS),
)
def test_cells_are_the_same_as_they_print(cells: Any, place: int, other: Any) -> None:
    changed = list(cells)
    changed[place % len(cells)] = other
    assert same_cells(objects(cells), objects(list(cells)))
    assert same_cells(objects(cells), objects(changed)) == (repr(cells) == repr(changed))
    for kind in (lambda v: pa.array(v, pa.string()), np.array):
        texts = [[repr(c) for c in each] for each in (cells, changed)]
        one, two = (read_column(kind(text), "k", "text") for text in texts)
        assert same_cells(one, two) == (texts[0] == texts[1])


def test_a_step_reads_the_columns_that_it_needs_once(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pa.table({k: pa.array(v) for k, v in GOOD.items()})
    file = ways(tmp_path, data)["small parquet"]
    read: list[list[str]] = []
    whole = sources.read_parquet

    def recorded(path: Any, schema: Any) -> Any:
        read.append(sorted(schema.read))
        return whole(path, schema)

    monkeypatch.setattr(sources, "read_parquet", recorded)
    budget = dp.Budget(100.0)
    with dp.Session(budget=budget, seed=2, t=file) as files:
        by_column = [files.run(handle) for _, handle in STEPS]
    assert read == [["a"], ["b", "c"]]
    with dp.Session(budget=budget, seed=2, t=data) as memory:
        at_once = [memory.run(handle) for _, handle in STEPS]
    assert str(by_column) == str(at_once)


def test_a_file_that_changes_between_steps_is_refused(tmp_path: Any) -> None:
    data = pa.table({k: pa.array(v) for k, v in GOOD.items()})
    file = ways(tmp_path, data)["small parquet"]
    with dp.Session(budget=dp.Budget(100.0), t=file) as session:
        session.run(STEPS[0][1])
        pq.write_table(data.slice(1), file)
        session.run(STEPS[1][1])  # reads what is in memory
        with pytest.raises(dp.DataError, match="changed"):
            session.run(STEPS[2][1])
        assert session.spent.costs[0] == 6.0  # the third step is not paid for
