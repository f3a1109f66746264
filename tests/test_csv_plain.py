"""Plain lines of CSV are read by PyArrow as they are read one by one, to the last bit."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.data import read_rows
from adaptive_dp.data.csv_files import CsvFormat, fast_columns

READINGS = {"x": "number", "c": "text", "k": "code", "v": "value"}
FORM = CsvFormat.of("t.csv", "x,c,rest,k,v\n", READINGS)

DIGITS = st.text("0123456789", min_size=1, max_size=45)
DECIMAL = st.tuples(
    st.sampled_from(["", "-", "+"]),
    DIGITS,
    st.one_of(st.just(""), DIGITS.map(lambda d: "." + d), st.just(".")),
    st.one_of(st.just(""), st.integers(-400, 400).map(lambda e: f"e{e}")),
).map("".join)
CELL = st.one_of(
    DECIMAL,
    st.floats().map(repr),
    st.text(st.characters(exclude_characters='\n,"\r\0', codec="utf-8"), max_size=6),
    st.sampled_from(["", " ", " 1.5\t", "true", "FALSE", "nan", "inf", "1_000", "٣", "NULL", "NA"]),
)
LINES = st.lists(st.lists(CELL, min_size=5, max_size=5).map(",".join), min_size=1, max_size=6)


def same(fast, text):
    expected = FORM.columns(io.StringIO(text, newline="\n"))
    for columns in (fast, expected):
        assert list(columns) == list(READINGS)
    a, b = (read_rows(each, READINGS, None).columns for each in (fast, expected))
    for name in READINGS:
        assert a[name].dtype == b[name].dtype
        assert repr(a[name].tolist()) == repr(b[name].tolist())


@examples(50)
@given(lines=LINES, ending=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_plain_lines(lines, ending, last):
    text = ending.join(lines) + (ending if last else "")
    fast = fast_columns(FORM, text)
    if text.startswith("\ufeff"):
        assert fast is None
    else:
        same(fast, text)


def test_many_floats():
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 2**64, 4000, dtype=np.uint64).view(np.float64)
    halves = [f"{2**53 + 2 * i + 1}" for i in range(200)]  # between two floats
    close = [f"{2**53 + 2 * i + 1}.{'0' * 30}1" for i in range(200)]
    cells = [*map(repr, bits.tolist()), *halves, *close, *(f"{v:.17g}" for v in bits[:1000])]
    same(
        fast_columns(FORM, "".join(f"{c},a,,1,2\n" for c in cells)),
        "".join(f"{c},a,,1,2\n" for c in cells),
    )


@pytest.mark.parametrize(
    "strange",
    [
        '1,"a",b,2,3\n',
        "1,a,b,2\n",
        "1,a,b,2,3,4\n",
        "1,a\rb,c,2,3\n",
        "1,a,b,2,3\r\r\n",
        "   \n",
        "\ufeff1,a,b,2,3\n",
        f"1,{'a' * 140_000},b,2,3\n",
        "1,\0,b,2,3\n",
        "",
    ],
)
def test_other_lines_are_left_to_who_reads_them_one_by_one(strange):
    assert fast_columns(FORM, strange) is None


def test_empty_lines_are_none():
    text = "\n1,a,b,2,3\n\n\n1,a,b,2,3\n\n"
    same(fast_columns(FORM, text), text)
