"""Every kind of rows against plain Python, and against rows in memory."""

from __future__ import annotations

import functools
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.data import (
    MemoryRows,
    SchemaError,
    csv_files,
    open_rows,
    read_rows,
    sampling,
    sources,
)
from adaptive_dp.data.cells import number_identities
from adaptive_dp.data.sources import rows_of_files
from adaptive_dp.noise import SeededStream

COLUMNS = {"x": "number", "c": "text"}
FIXTURES = [HealthCheck.function_scoped_fixture]
SETTINGS = settings(examples(7), suppress_health_check=FIXTURES)
NUMBERS = st.one_of(
    st.none(), st.integers(-5, 5).map(float), st.sampled_from([math.inf, -math.inf, 1e300, -0.0])
)
RECORD = st.tuples(
    st.one_of(st.none(), st.integers(0, 4).map(lambda i: f"p{i}")),
    NUMBERS,
    st.sampled_from(["a", "b", "é\u2028", "z"]),
)
RECORDS = st.lists(RECORD, max_size=25)


def arrow(records):
    return pa.table(
        {
            "c": pa.array([c for _, _, c in records], pa.string()),
            "id": pa.array([who for who, _, _ in records], pa.string()),
            "x": pa.array([x for _, x, _ in records], pa.float64()),
        }
    )


def as_memory(records, folder, unit):
    return read_rows(arrow(records), COLUMNS, unit)


def as_parquet(size, files):
    def made(records, folder, unit):
        paths = [folder / f"{i}.parquet" for i in range(files)]
        ends = [round(i * len(records) / files) for i in range(files + 1)]
        for path, start, end in zip(paths, ends[:-1], ends[1:], strict=True):
            pq.write_table(arrow(records[start:end]), path, row_group_size=size)
        return open_rows(paths, COLUMNS, unit)

    return made


def lines(records):
    cells = [(c, who or "", "" if x is None else repr(x)) for who, x, c in records]
    return ["c,id,x", *(",".join(each) for each in cells)]


def as_csv(files, ending):
    def made(records, folder, unit):
        import gzip

        paths = [folder / f"{i}{ending}" for i in range(files)]
        ends = [round(i * len(records) / files) for i in range(files + 1)]
        for path, start, end in zip(paths, ends[:-1], ends[1:], strict=True):
            text = ("\n".join(lines(records[start:end])) + "\n").encode()
            path.write_bytes(gzip.compress(text) if ending.endswith(".gz") else text)
        return open_rows(paths, COLUMNS, unit)

    return made


def as_processes(way):
    def made(records, folder, unit):
        with pytest.MonkeyPatch.context() as patch:
            by = functools.partial(rows_of_files, engine="processes")
            patch.setattr(sources, "rows_of_files", by)
            return way(records, folder, unit)

    return made


def as_dataset(size, where):
    def made(records, folder, unit):
        import pyarrow.dataset as ds

        table = arrow(records)
        if where == "memory":
            batches = table.to_batches(max_chunksize=size)
            return open_rows(ds.InMemoryDataset(batches, table.schema), COLUMNS, unit)
        half = len(records) // 2
        for i, piece in enumerate((table.slice(0, half), table.slice(half))):
            path = str(folder / f"{i}.arrow")
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(piece, max_chunksize=size)
            pq.write_table(piece, folder / f"{i}.parquet", row_group_size=size)
        kinds = {"ipc": ".arrow", "parquet": ".parquet"}
        paths = [str(folder / f"{i}{kinds[where]}") for i in range(2)]
        return open_rows(ds.dataset(paths, format=where), COLUMNS, unit)

    return made


KINDS = {
    "memory": as_memory,
    "parquet 1": as_parquet(1, 1),
    "parquet 7 in 3 files": as_parquet(7, 3),
    "parquet in one group": as_parquet(1000, 1),
    "csv": as_csv(1, ".csv"),
    "csv in 3 files": as_csv(3, ".csv"),
    "csv, compressed": as_csv(2, ".csv.gz"),
    "parquet by processes": as_processes(as_parquet(7, 3)),
    "csv by processes": as_processes(as_csv(2, ".csv")),
    "data set of Parquet": as_dataset(3, "parquet"),
    "data set of Arrow files": as_dataset(4, "ipc"),
    "data set in memory": as_dataset(5, "memory"),
}


@pytest.fixture(params=KINDS)
def made(request, tmp_path, monkeypatch):
    """Return what makes rows of records, with parts and blocks as small as can be."""
    monkeypatch.setattr(csv_files, "PART_BYTES", 60)
    monkeypatch.setattr(csv_files, "READ_BYTES", 13)
    monkeypatch.setattr(sampling, "LOCAL_UNITS", 3)
    monkeypatch.setattr(sampling, "CHILD_UNITS", 2)
    return lambda records, unit="id": KINDS[request.param](records, tmp_path, unit)


def plain(records, unit="id"):
    """Return (unit, x, c) of the rows that count: units by the order of their first rows."""
    if unit is None:
        return [(i, x, c) for i, (_, x, c) in enumerate(records)]
    numbers = {}
    return [
        (numbers.setdefault(who, len(numbers)), x, c) for who, x, c in records if who is not None
    ]


def listed(table):
    """Return (unit, x, c) of each row, read by the operations of `Rows` alone."""
    x = table.values(lambda c: c["x"])
    index = {"a": 0, "b": 1, "é\u2028": 2, "z": 3}
    c = table.integer_rows(lambda c: np.array([[index[v]] for v in c["c"]]).reshape(-1, 1))
    names = list(index)
    numbers = [None if math.isnan(v) else v for v in np.asarray(x).tolist()]
    return list(zip(table.units.tolist(), numbers, [names[int(i)] for i in c[:, 0]], strict=True))


def same(records, expected):
    assert repr(records) == repr([(u, None if x is None else float(x), c) for u, x, c in expected])


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]))
def test_what_is_there(made, records, unit):
    table = made(records, unit)
    expected = plain(records, unit)
    same(listed(table), expected)
    assert table.size() == len({u for u, _, _ in expected})
    assert repr(table) == "<private rows>"


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]), most=st.integers(1, 3))
def test_bound(made, records, unit, most):
    table = made(records, unit).where(lambda c: c["x"] != 0)
    seen, expected = {}, []
    for u, x, c in plain(records, unit):
        if x != 0:
            seen[u] = seen.get(u, 0) + 1
            if seen[u] <= most:
                expected.append((u, x, c))
    same(listed(table.bound(most)), expected)


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]))
def test_strings(made, records, unit):
    table = made(records, unit).where(lambda c: c["c"] != "b")
    expected = [c for _, _, c in plain(records, unit) if c != "b"]
    names, codes = table.strings(lambda c: c["c"])
    assert names == sorted(set(expected))
    assert [names[i] for i in codes] == expected
    assert codes.dtype == np.int64


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]), chosen=st.sets(st.integers(0, 24)))
def test_among(made, records, unit, chosen):
    table = made(records, unit).where(lambda c: c["x"] != 0)
    names = np.unique(table.units)
    wanted = {int(names[i]) for i in chosen if i < len(names)}
    whose = [int(u) for u in table.units]
    rest = [r for r in plain(records, unit) if r[1] != 0]
    expected = [r for r, u in zip(rest, whose, strict=True) if u in wanted]
    same(listed(table.among(np.array(sorted(wanted), dtype=np.int64))), expected)


def part_of(columns):
    clean = np.nan_to_num(columns["x"], nan=-1.0, posinf=9.0, neginf=-9.0)
    return np.clip(clean, -9, 9).astype(np.int64)


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]))
def test_gather(made, records, unit):
    table = made(records, unit).where(lambda c: c["c"] != "z")
    remaining = [r for r in plain(records, unit) if r[2] != "z"]
    part = {
        i: -1 if x is None else int(min(max(x, -9), 9)) for i, (_, x, _) in enumerate(remaining)
    }
    least = {}
    for i, (u, _, _) in enumerate(remaining):
        if part[i] >= 0:
            least[u] = min(least.get(u, 99), part[i])
    expected = [r for i, r in enumerate(remaining) if part[i] >= 0 and part[i] == least[r[0]]]
    same(listed(table.gather(part_of)), expected)


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]), seed=st.integers(0, 99))
def test_sample(made, records, unit, seed):
    """One trial for each remaining unit, in order of the units; filters apply before and after."""
    table = made(records, unit).where(lambda c: c["c"] != "z").bound(2)
    remaining = listed(table)
    units = sorted({u for u, _, _ in remaining})
    trials = SeededStream(seed).bernoulli(0.5, len(units))
    if len(units) > 3:  # the trials of each two units are of a source of their own
        each = SeededStream(seed).children((len(units) + 1) // 2)
        trials = np.concatenate([one.words(2) < 2**63 for one in each])[: len(units)]
    taken = {u for u, coin in zip(units, trials, strict=True) if coin}
    drawn = table.sample(0.5, SeededStream(seed))
    same(listed(drawn), [r for r in remaining if r[0] in taken])
    assert drawn.size() == len(taken)
    after = drawn.where(lambda c: c["x"] > 0)
    same(listed(after), [r for r in remaining if r[0] in taken and r[1] is not None and r[1] > 0])
    same(listed(table.sample(1.0, SeededStream(seed))), remaining)


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]), seed=st.integers(0, 99))
def test_a_sample_of_a_sample(made, records, unit, seed):
    """A sample is the same for every query; a sample of it draws for its units alone."""
    stream = SeededStream(seed)
    once = made(records, unit).where(lambda c: c["c"] != "z").sample(0.7, stream)
    first = listed(once)
    assert listed(once) == first
    assert once.size() == len({u for u, _, _ in first})
    twice = once.where(lambda c: ~(c["x"] < 0)).sample(0.5, stream)
    again = SeededStream(seed)
    in_memory = as_memory(records, None, unit).where(lambda c: c["c"] != "z").sample(0.7, again)
    expected = in_memory.where(lambda c: ~(c["x"] < 0)).sample(0.5, again)
    same(listed(twice), listed(expected))
    assert stream.words(1) == again.words(1)


@SETTINGS
@given(records=RECORDS, unit=st.sampled_from([None, "id"]))
def test_total(made, records, unit):
    def block(columns):
        assert len(columns["x"]) <= 4000
        positive = columns["x"] > 0
        return np.array([positive.sum(), len(positive)], dtype=np.int64)

    for chosen in (None, "z", "nobody"):
        table = made(records, unit)
        if chosen is not None:
            table = table.where(lambda c, v=chosen: c["c"] == v)
        rest = [x for _, x, c in plain(records, unit) if chosen in (None, c)]
        total = table.total(block)
        assert total.shape == (2,)
        assert total.tolist() == [sum(x is not None and x > 0 for x in rest), len(rest)]


def test_totals_are_exact_past_64_bits(made):
    table = made([("p", 1.0, "a")] * 15)
    ones = table.total(lambda c: np.array([len(c["x"]) * 2**59], dtype=np.int64))
    assert ones.tolist() == [15 * 2**59]


def test_rows_that_change_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(lines([("p", 1.0, "a")] * 3)) + "\n")
    table = open_rows([path], COLUMNS, None)
    assert table.size() == 3
    with path.open("a") as file:
        file.write("a,p,1.0\n")
    with pytest.raises(SchemaError, match="changed"):
        table.values(lambda c: c["x"])


CELL = st.one_of(
    st.text(max_size=6),
    st.floats().map(repr),
    st.integers(-(10**400), 10**400).map(str),
    st.sampled_from(
        ["", " ", "1", " 1.5\t", "true", "FALSE", "nan", "-nan", "NaN", "inf", "-Infinity", "1e400",
         "1_000", "+1", "0x1", "1e-400", "5e-324", "١", "nan(1)", "NULL", "NA", "n/a", "-0",
         '"a"', '"a,b"', '"', 'a"b', '""', "\r", "a\rb", "\0", "\ufeff", "\x85", "é", "1."]
    ),
)  # fmt: skip
LINE = st.one_of(
    st.tuples(CELL, CELL, CELL).map(",".join),
    st.lists(CELL, max_size=4).map(",".join),
)
READINGS = {"x": "number", "c": "text", "v": "value"}


@settings(examples(70), suppress_health_check=FIXTURES)
@given(
    body=st.lists(
        st.one_of(LINE.map(lambda t: t.encode("utf-8", "replace")), st.binary(max_size=6)),
        max_size=12,
    ),
    ending=st.sampled_from([b"\n", b"\r\n"]),
    last=st.booleans(),
    mark=st.booleans(),
    part=st.sampled_from([9, 40, 10**6]),
    unit=st.sampled_from([None, "c", "v"]),
)
def test_a_csv_file_in_parts_is_read_as_in_memory(tmp_path, body, ending, last, mark, part, unit):
    path = tmp_path / "t.csv"
    head = b"\xef\xbb\xbf" if mark else b""
    path.write_bytes(head + ending.join([b"x,c,v", *body]) + (ending if last else b""))
    readings = {name: READINGS[name] for name in READINGS if name != unit}
    in_memory = open_rows(path, readings, unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv_files, "PART_BYTES", part)
        patch.setattr(csv_files, "READ_BYTES", max(1, part // 3))
        table = open_rows([path], readings, unit)
        assert table.units.tolist() == in_memory.units.tolist()
        for name in readings:
            cells = np.concatenate([[], *cells_of(table, name)]).tolist()
            assert repr(cells) == repr(np.concatenate([[], in_memory.columns[name]]).tolist())


def cells_of(table, name):
    """Return the blocks of a column."""
    seen = []

    def block(columns):
        seen.append(columns[name])
        return np.zeros(len(columns[name]))

    type(table)(evolve(table.engine, workers=1), table.codes, table.masks).values(block)
    return seen


TYPES = [
    (pa.int64(), [2**63 - 1, None, -(2**53) - 1, 0]),
    (pa.uint64(), [2**64 - 1, 2**53 + 1, None]),
    (pa.int8(), [-128, None, 3]),
    (pa.bool_(), [True, None, False]),
    (pa.float32(), [1.1, None, math.nan, 3.4e38]),
    (pa.float16(), [np.float16(1.5), None]),
    (pa.float64(), [1e308, None, math.nan, -0.0]),
]


@pytest.mark.parametrize(("kind", "cells"), TYPES)
@pytest.mark.parametrize("reading", ["number", "value", "code"])
def test_arrow_types_are_read_as_in_memory(tmp_path, kind, cells, reading):
    frame = pa.table({"x": pa.array(cells, kind)})
    path = tmp_path / "t.parquet"
    pq.write_table(frame, path, row_group_size=2)
    in_memory = open_rows(path, {"x": reading}, None)
    table = open_rows([path], {"x": reading}, None)
    values = np.concatenate(cells_of(table, "x"))
    assert values.dtype.kind == in_memory.columns["x"].dtype.kind
    assert repr(values.tolist()) == repr(in_memory.columns["x"].tolist())


@pytest.mark.parametrize(
    ("kind", "reading"),
    [(pa.string(), "number"), (pa.int64(), "text"), (pa.date32(), "value"), (pa.string(), "code")],
)
def test_types_that_do_not_fit_are_refused_in_the_same_words(tmp_path, kind, reading):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": pa.array([None], kind)}), path)
    messages = []
    for data in (path, [path]):
        with pytest.raises(SchemaError, match="column 'x'") as caught:
            open_rows(data, {"x": reading}, None)
        messages.append(str(caught.value))
    assert len(set(messages)) == 1


def test_patterns_and_lists(tmp_path):
    for i in range(12):
        pq.write_table(arrow([("p", float(i), "a")]), tmp_path / f"part-{i:02}.parquet")
    one = open_rows(str(tmp_path / "part-03.parquet"), COLUMNS, None)
    assert isinstance(one, MemoryRows)
    for data in (str(tmp_path / "part-*.parquet"), sorted(tmp_path.iterdir())):
        rows = open_rows(data, COLUMNS, None)
        assert rows.values(lambda c: c["x"]).tolist() == [float(i) for i in range(12)]
    for data in (str(tmp_path / "no-*.parquet"), [tmp_path / "none.parquet"]):
        with pytest.raises(SchemaError, match=r"\.parquet"):
            open_rows(data, COLUMNS, None)
    with pytest.raises(SchemaError, match=r"\.csv"):
        open_rows([tmp_path / "part-00.parquet", Path(__file__)], COLUMNS, None)
    (tmp_path / "bad.parquet").write_bytes(b"secret 82734615")
    with pytest.raises(SchemaError, match=r"bad\.parquet"):
        open_rows([tmp_path / "bad.parquet"], COLUMNS, None)
    odd = tmp_path / "odd[1].csv"
    odd.write_text("x,c\n1,a\n")
    assert open_rows(str(odd), COLUMNS, None).size() == 1


def test_data_sets_of_pyarrow(tmp_path):
    """Columns of folders' names are read; what guesses, hides or has changed is refused."""
    import pyarrow.dataset as ds

    table = arrow([("p", float(i), "ab"[i % 2]) for i in range(6)])
    keys = ds.partitioning(pa.schema([("c", pa.string())]), flavor="hive")
    ds.write_dataset(table, tmp_path / "t", format="parquet", partitioning=keys)
    data = ds.dataset(tmp_path / "t", partitioning="hive")
    rows = open_rows(data, COLUMNS, "id")
    assert rows.where(lambda c: c["c"] == "b").values(lambda c: c["x"]).tolist() == [1, 3, 5]
    assert open_rows(data, {}, None).size() == 6
    with pytest.raises(SchemaError, match="column 'x'"):
        open_rows(data, {"x": "text"}, None)
    with pytest.raises(SchemaError, match="'y'"):
        open_rows(data, {"y": "text"}, None)
    with pytest.raises(SchemaError, match="filter"):
        open_rows(data.filter(ds.field("x") > 1), COLUMNS, None)
    (tmp_path / "t.csv").write_text("x,c\n1,a\n")
    with pytest.raises(SchemaError, match="types"):
        open_rows(ds.dataset(tmp_path / "t.csv", format="csv"), COLUMNS, None)
    pq.write_table(table.slice(3), sorted((tmp_path / "t").rglob("*.parquet"))[0])
    with pytest.raises(SchemaError, match="changed"):
        rows.values(lambda c: c["x"])


def test_rows_are_counted_without_columns(tmp_path):
    pq.write_table(arrow([("p", 1.0, "a")] * 5), tmp_path / "a.parquet", row_group_size=2)
    (tmp_path / "b.csv").write_text("x,c\n1,a\n2,b\n")
    table = open_rows([tmp_path / "a.parquet", tmp_path / "b.csv"], {}, None)
    count = table.total(lambda c: np.array([len(next(iter(c.values())))], dtype=np.int64))
    assert (table.size(), count.tolist()) == (7, [7])
    assert open_rows(tmp_path / "b.csv", {}, None).size() == 2


def test_long_arrays_lie_in_a_file(monkeypatch, made):
    from adaptive_dp.data import partitioned

    monkeypatch.setattr(partitioned, "MEMORY_BYTES", 8)
    records = [("p", float(i), "a") for i in range(20)] + [("q", 1.0, "b")]
    same(listed(made(records)), plain(records))
    assert isinstance(partitioned.concatenated([np.arange(3.0)] * 2, np.empty(0)), np.memmap)


@pytest.mark.parametrize(
    "column",
    [
        np.array([3, 1, 3, 2]),
        np.array([0.5, math.nan, -0.0, 0.0]),
        np.array(["b", "", "a", "b"]),
        np.array(["2020-01-02", "NaT", "2020-01-01"], dtype="datetime64[D]"),
        np.array([True, False, True]),
    ],
)
def test_units_of_a_typed_array_are_those_of_its_cells(column):
    from adaptive_dp.data.cells import unit_codes

    assert unit_codes(column).tolist() == number_identities(column)[0].tolist()
