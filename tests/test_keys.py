"""Values among keys, against Python's own equality, on every kind of column."""

from __future__ import annotations

import functools
import math
import pickle
import sys
import tempfile
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.data.cells import (
    Dictionary,
    DictionaryColumn,
    number_identities,
    of_strings,
    read_column,
    unit_codes,
)
from adaptive_dp.data.csv_files import parse_cell
from adaptive_dp.data.scan import Cells, RowSum, total_of
from adaptive_dp.data.sources import Files
from adaptive_dp.queries.domains import ColumnValues, numbers
from adaptive_dp.queries.transforms import HashTable, KeyIndex, KeyLookup, Meets, category_index

SETTINGS = examples(200)


def brute(values, keys):
    """Each value is compared with each key, if its type is one that a key can have."""
    indices = []
    for value in values:
        simple = any(type(value) is each for each in (str, int, float, bool))
        equal = [i for i, key in enumerate(keys) if simple and key is not None and value == key]
        indices.append(equal[-1] if equal else -1)
    return indices


class Metaclass(type):
    def __eq__(cls, other):
        raise AssertionError("a foreign class was compared")

    def __hash__(cls):
        raise AssertionError("a foreign class was hashed")


class Foreign(metaclass=Metaclass):
    def __eq__(self, other):
        raise AssertionError("a foreign object was compared")

    def __hash__(self):
        raise AssertionError("a foreign object was hashed")


class OwnText(str):
    def __eq__(self, other):
        raise AssertionError("a subclass of str was compared")

    def __hash__(self):
        raise AssertionError("a subclass of str was hashed")


NASTY_INTEGERS = [0, 1, -1, 2, 255, 256, -128, 2**31, 2**53, 2**53 + 1, -(2**53) - 1, 2**62 + 1]
NASTY_INTEGERS += [2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**64), 10**400]
NASTY_FLOATS = [0.0, -0.0, 0.1, 0.5, 1.0, -1.0, 5e-324, -5e-324, 2.0**53, 2.0**63, 2.0**64, 1e300]
NASTY_FLOATS += [math.inf, -math.inf, math.nan, 2.2250738585072014e-308, 255.0, 256.5]
NASTY_STRINGS = [
    "",
    "a",
    "b",
    "ab",
    "ba",
    "a\0",
    "a\0b",
    "\0",
    "\0a",
    "1",
    "True",
    "é",
    "😀",
    "\ud800",
]
NASTY_STRINGS += ["x" * 40, "x" * 41, "a ", " a"]
OTHERS = [None, [], (1,), Decimal(1), Fraction(1, 2), b"a", Foreign(), OwnText("a"), np.float64(1)]
CELLS = [*NASTY_INTEGERS, *NASTY_FLOATS, *NASTY_STRINGS, *OTHERS, True]

KEYS = st.lists(
    st.one_of(
        st.sampled_from([*NASTY_INTEGERS, *NASTY_FLOATS, *NASTY_STRINGS, True, False, None]),
        st.integers(-5, 40),
        st.floats(),
        st.text(max_size=4),
    ),
    max_size=40,
)


@SETTINGS
@given(KEYS, st.lists(st.sampled_from([*NASTY_FLOATS, *range(-7, 42)])))
def test_floats(keys, values):
    for dtype in ("f8", ">f8", "f4", "f2", "g"):
        with np.errstate(over="ignore"):
            array = np.array(values, dtype=dtype)
        assert category_index(array, keys).tolist() == brute(array.tolist(), keys)


@SETTINGS
@given(KEYS, st.lists(st.one_of(st.sampled_from(NASTY_INTEGERS), st.integers(-7, 42))))
def test_integers(keys, values):
    for dtype in ("i8", "u8", ">i8", "i1", "u1", "i4", "?"):
        limits = (0, 1) if dtype == "?" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        inside = [v for v in values if limits[0] <= v <= limits[1]]
        array = np.array(inside, dtype=dtype)
        index = category_index(array, keys)
        assert index.dtype == np.int64
        assert index.tolist() == brute(array.tolist(), keys)


@SETTINGS
@given(KEYS, st.lists(st.one_of(st.sampled_from(NASTY_STRINGS), st.text(max_size=5))))
def test_strings(keys, values):
    for dtype in ("U", "U3", "U100", ">U7"):
        array = np.array(values, dtype=dtype)
        assert category_index(array, keys).tolist() == brute(array.tolist(), keys)
        assert category_index(array[::2], keys).tolist() == brute(array[::2].tolist(), keys)


@SETTINGS
@given(
    KEYS,
    st.lists(st.integers(0, len(CELLS) - 1)),
    st.sampled_from([None, str, int, float, bool]),
)
def test_objects(keys, places, only):
    chosen = [CELLS[i] for i in places if only is None or type(CELLS[i]) is only]
    array = np.empty(len(chosen), dtype=object)
    for i, cell in enumerate(chosen):
        array[i] = cell
    # NaN equals nothing, whichever object it is
    keys = [key for key in keys if key == key]
    assert category_index(array, keys).tolist() == brute(chosen, keys)


def test_types_that_no_key_has():
    for values in (
        np.array(["2020-01-01", "NaT"], dtype="M8[ns]"),
        np.array([b"a", b"b"]),
        np.array([1 + 0j]),
    ):
        assert category_index(values, ["a", 1, 0]).tolist() == brute(values.tolist(), ["a", 1, 0])


def test_keys_of_other_types_are_compared_as_python_does():
    keys = [Decimal(1), Fraction(1, 2), np.float64(7), OwnText]
    values = np.array([1.0, 0.5, 7.0, 3.0])
    assert category_index(values, keys).tolist() == [0, 1, 2, -1]


@SETTINGS
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, unique=True), st.integers(0, 64))
def test_hash_table(words, shift):
    words = list(dict.fromkeys(word >> shift << shift for word in words))
    table = HashTable(np.array(words, dtype=np.uint64))
    queries = [*words, *((w + 1) % 2**64 for w in words), 0]
    expected = [words.index(w) if w in words else -1 for w in queries]
    assert table.find(np.array(queries, dtype=np.uint64)).tolist() == expected


def test_equal_hashes_of_keys(monkeypatch):
    from adaptive_dp.queries import transforms

    values = np.array(["a", "b", "zz", "c", ""])
    # all str have the same hash: keys are then found in another way
    monkeypatch.setattr(transforms, "_hash", lambda words: np.zeros(len(words[0]), np.uint64))
    assert category_index(values, ["a", "zz"]).tolist() == [0, -1, 1, -1, -1]
    assert category_index(values, ["a"]).tolist() == [0, -1, -1, -1, -1]


def test_many_keys():
    """They are prepared once: a look-up of a block costs nothing that grows with the keys."""
    rng = np.random.default_rng(1)
    count = 200_000
    scattered = np.unique(rng.integers(-(2**62), 2**62, count))
    for keys, column in (
        (scattered.tolist(), scattered),
        (scattered.astype(float).tolist(), scattered.astype(float)),
        (list(map(str, scattered.tolist())), scattered.astype(str)),
        (list(range(len(scattered))), np.arange(len(scattered))),
    ):
        lookup, rows = KeyLookup(keys), rng.integers(0, len(keys), 1000)
        expected = {key: i for i, key in enumerate(keys)}
        first = lookup(column[rows])
        assert first.tolist() == [expected[v] for v in column[rows].tolist()]
        start = time.process_time()
        for _ in range(100):
            lookup(column[rows])
        assert time.process_time() - start < 0.5  # it was prepared already


def test_an_index_is_sent_without_its_table():
    index = KeyIndex(ColumnValues("k"), tuple(range(1000)))
    rows = {"k": np.array([5, -1, 999])}
    before = len(pickle.dumps(index))
    assert index(rows).tolist() == [5, -1, 999]
    assert len(pickle.dumps(index)) == before
    assert pickle.loads(pickle.dumps(index))(rows).tolist() == [5, -1, 999]
    assert pickle.loads(pickle.dumps(index)) == index


@pytest.mark.parametrize("operand", [(1, "a"), ()])
def test_the_test_in(operand):
    rows = {"k": np.array([1.0, 2.0])}
    assert Meets("k", "in", operand)(rows).tolist() == [bool(operand), False]


# --- columns of codes


STRING_CELLS = [None, *(text for text in NASTY_STRINGS if text != "\ud800")]  # no UTF-8 has it
SERIES = {
    "pandas str": lambda v: pd.Series(v, dtype="str"),
    "pandas string": lambda v: pd.Series(v, dtype="string"),
    "pandas arrow": lambda v: pd.Series(v, dtype=pd.ArrowDtype(pa.string())),
    "pandas category": lambda v: pd.Series(pd.Categorical(v)),
    "pandas index": lambda v: pd.CategoricalIndex(v),
    "pandas of more": lambda v: pd.Series(pd.Categorical(v, [*reversed(STRING_CELLS[1:])])),
    "polars str": lambda v: pl.Series(v, dtype=pl.String),
    "polars category": lambda v: pl.Series(v, dtype=pl.Categorical),
    "polars enum": lambda v: pl.Series(v, dtype=pl.Enum(STRING_CELLS[1:])),
    "arrow str": lambda v: pa.chunked_array([v[:3], v[3:]], pa.string()),
    "arrow large": lambda v: pa.array(v, pa.large_string()),
    "arrow dictionary": lambda v: pa.array(v, pa.string()).dictionary_encode(),
    "arrow chunks": lambda v: pa.chunked_array(
        [pa.array(part, pa.string()).dictionary_encode() for part in (v[:3], v[3:])],
        pa.dictionary(pa.int32(), pa.string()),
    ),
    "arrow small": lambda v: pa.DictionaryArray.from_arrays(
        pa.array([None if c is None else STRING_CELLS.index(c) for c in v], pa.uint8()),
        pa.array([None, *STRING_CELLS[1:]]),
    ),
}


@pytest.mark.parametrize("kind", SERIES)
@examples(40)
@given(
    cells=st.lists(st.sampled_from(STRING_CELLS), max_size=12),
    keys=st.lists(st.sampled_from([*STRING_CELLS[1:], 1, "absent"]), unique=True),
    data=st.data(),
)
def test_columns_of_codes(kind, cells, keys, data):
    column = read_column(SERIES[kind](cells), "k", "text")
    assert isinstance(column, DictionaryColumn)
    assert column.tolist() == cells
    lookup = KeyLookup(keys)
    assert lookup(column).tolist() == brute(cells, keys)
    keep = data.draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
    mask = np.array(keep, dtype=np.bool_)
    chosen = [c for c, keeps in zip(cells, keep, strict=True) if keeps]
    for part, expected in (
        (column[mask], chosen),
        (column[np.flatnonzero(mask)], chosen),
        (column[1:4], cells[1:4]),
        (column.copy(), cells),
        (pickle.loads(pickle.dumps(column)), cells),
        (np.concatenate([column, column[:2]]), cells + cells[:2]),
    ):
        assert list(part) == expected
        assert lookup(part).tolist() == brute(expected, keys)
    plain = np.empty(len(cells), dtype=object)
    plain[:] = cells
    assert unit_codes(column).tolist() == unit_codes(plain).tolist()
    assert unit_codes(column[1:]).tolist() == unit_codes(plain[1:]).tolist()
    assert number_identities(column)[1] == number_identities(plain)[1]
    # what a user's function reads
    assert (column == "a").tolist() == [c == "a" for c in cells]
    assert np.asarray(column).dtype == object


INTEGER_CELLS = [0, 1, -1, 127, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, None]
INTEGER_SERIES = {
    "arrow": lambda v, kind: pa.chunked_array([pa.array(v[:3], kind), pa.array(v[3:], kind)], kind),
    "arrow slice": lambda v, kind: pa.array([None, *v, None], kind).slice(1, len(v)),
    "pandas": lambda v, kind: pd.Series(v, dtype=str(kind).capitalize().replace("Ui", "UI")),
    "pandas arrow": lambda v, kind: pd.Series(pa.array(v, kind), dtype=pd.ArrowDtype(kind)),
    "polars": lambda v, kind: pl.Series(pa.array(v, kind)),
}


@pytest.mark.parametrize("has_arrow", [True, False])
@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64"])
@examples(25)
@given(data=st.data())
def test_integers_with_gaps_are_read_as_their_cells(kind, has_arrow, data):
    limits = np.iinfo(kind)
    fit = [c for c in INTEGER_CELLS if c is None or limits.min <= c <= limits.max]
    cells = data.draw(st.lists(st.sampled_from(fit), max_size=9))
    keys = data.draw(st.lists(st.sampled_from([*fit[:-1], 1.5, "1"]), unique=True))
    plain = np.empty(len(cells), dtype=object)
    plain[:] = cells
    expected = number_identities(plain)
    for name, make in INTEGER_SERIES.items():
        series = make(cells, pa.type_for_alias(kind))
        for reading in ("value", "code"):
            column = read_column(series, "k", reading)
            assert column.tolist() == cells, name
            assert {type(c) for c in column} <= {int, type(None)}
            assert KeyLookup(keys)(column).tolist() == brute(cells, keys)
            with pytest.MonkeyPatch.context() as patch:
                if not has_arrow:  # identifiers are then sorted
                    patch.setitem(sys.modules, "pyarrow", None)
                assert unit_codes(column).tolist() == expected[0].tolist()
                codes, identities = number_identities(column)
            assert (codes.tolist(), list(identities)) == (expected[0].tolist(), list(expected[1]))
            floats = [math.nan if c is None else float(c) for c in cells]
            np.testing.assert_array_equal(numbers(column), floats)


def test_categories_of_numbers():
    cells = [2, 1, None, 2]
    for column in (
        pd.Series(pd.Categorical(cells)),
        pa.array(cells).dictionary_encode(),
        pd.Series(pd.Categorical([2.0, 1.0, None, 2.0])),
    ):
        read = read_column(column, "k", "code")
        assert KeyLookup([True, 2.0, "2"])(read).tolist() == [1, 0, -1, 1]
        assert numbers(read).tolist()[:2] == [2, 1]
        assert math.isnan(numbers(read)[2])
    days = pd.Series(pd.Categorical(pd.to_datetime(["2020-01-01", None, "2020-01-01"])))
    assert KeyLookup(["2020-01-01", 0])(read_column(days, "k", "value")).tolist() == [-1] * 3
    assert unit_codes(read_column(days, "k", "value")).tolist() == [0, -1, 0]


def test_a_value_is_looked_up_once(monkeypatch):
    column = DictionaryColumn(np.arange(1000) % 3, Dictionary(["a", "b", "c"]))
    lookup, seen = KeyLookup(["b"]), []
    of_cells = KeyLookup._of_cells
    counted = lambda self, cells: (seen.extend(cells), of_cells(self, cells))[1]  # noqa: E731
    monkeypatch.setattr(KeyLookup, "_of_cells", counted)
    for start in range(0, 1000, 100):
        lookup(column[start : start + 100])
    assert [cell for cell in seen if cell is not None] == ["a", "b", "c"]


@examples(25)
@given(st.data())
def test_parquet_strings(data):
    """The histogram of a file, whatever its pages, row groups and encodings."""
    cells = data.draw(st.lists(st.sampled_from([*STRING_CELLS[:8], "only once"]), max_size=60))
    table = pa.table({"k": pa.array(cells, pa.string()), "u": pa.array(cells, pa.string())})
    if data.draw(st.booleans()):
        table = table.set_column(0, "k", table.column("k").dictionary_encode())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.parquet"
        pq.write_table(
            table,
            path,
            row_group_size=data.draw(st.sampled_from([1, 7, 100])),
            use_dictionary=data.draw(st.booleans()),
        )
        rows = Files(str(path)).open_rows({"k": "text"}, "u")
        units = rows.units.tolist()
        totals = total_of(RowSum(rows, Cells(2, KeyIndex(ColumnValues("k"), ("a", "ab"))), list))
        assert totals == [cells.count("a"), cells.count("ab")]
    nonempty = [c for c in cells if c]
    numbered = list(dict.fromkeys(nonempty))
    assert sorted(u for u in units if u >= 0) == sorted(map(numbered.index, nonempty))


WORDS = st.one_of(
    st.text("ab", max_size=4),
    st.text("ab", min_size=60, max_size=70),
    st.text("a\0b", max_size=4),
    st.text("a\u00e9\U0001f600", max_size=4),
)


@given(st.lists(WORDS, max_size=8), st.lists(st.one_of(st.none(), WORDS), max_size=40), st.data())
def test_strings_in_any_form_are_found_as_python_finds_them(keys, values, data) -> None:
    """Arrow's plain and coded, arrays of any width, lists: short, long, with NUL, of any script."""
    expected = [dict(zip(keys, range(len(keys)), strict=True)).get(each, -1) for each in values]
    lookup, column = KeyLookup(keys), pa.chunked_array([pa.array(values, pa.string())])
    cut = data.draw(st.integers(0, len(values)))
    forms = {
        "plain": column,
        "large": column.cast(pa.large_string()),
        "coded": column.dictionary_encode(),
        "slices": pa.chunked_array([column.slice(0, cut).chunk(0), column.slice(cut).chunk(0)])
        if 0 < cut < len(values)
        else column,
        "list": values,
    }
    for name, form in forms.items():
        cells = read_column(form, "k", "text")
        assert lookup(cells).tolist() == expected, name
        assert np.asarray(cells).tolist() == list(cells) == values, name
        assert {type(each) for each in cells.tolist()} <= {str, type(None)}, name
        assert number_identities(cells)[0].tolist() == identities(values), name
    # arrays of str, which cannot hold NUL at the end, before and after the keys are prepared
    plain = [each for each in values if each is not None and not each.endswith("\0")]
    places = [dict(zip(keys, range(len(keys)), strict=True)).get(each, -1) for each in plain]
    for width in (1, 5, 64, 70):
        own = [i for i, each in enumerate(plain) if len(each) <= width]
        array = np.array([plain[i] for i in own], dtype=f"U{width}")
        for each in (lookup, KeyLookup([*keys, *(f"other {i}" for i in range(1000))])):
            assert each(array).tolist() == [places[i] for i in own]


def identities(values):
    known = {}
    return [known.setdefault(each, len(known)) if each else -1 for each in values]


@given(st.lists(st.text("a1.\u00e9 ", max_size=4), min_size=1, max_size=30))
def test_each_value_of_a_csv_column_is_parsed_as_each_cell_is(values) -> None:
    column = pa.chunked_array([pa.array(values)])
    for reading in ("text", "code", "value"):
        parse = None if reading == "text" else functools.partial(parse_cell, reading=reading)
        cells = of_strings(column, parse).tolist()
        assert [(type(a), a) for a in cells] == [
            (type(b), b) for b in (parse_cell(each, reading) for each in values)
        ]
