"""Values among keys, against Python's own equality, on every kind of column."""

from __future__ import annotations

import math
import pickle
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from adaptive_dp.queries.domains import ColumnValues
from adaptive_dp.queries.transforms import HashTable, KeyIndex, KeyLookup, Meets, category_index

SETTINGS = examples(200)


def brute(values, keys):
    """Each value is compared with each key, if its type is one that a key can have."""
    found = []
    for value in values:
        simple = any(type(value) is each for each in (str, int, float, bool))
        equal = [i for i, key in enumerate(keys) if simple and key is not None and value == key]
        found.append(equal[-1] if equal else -1)
    return found


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
NASTY_TEXTS = [
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
NASTY_TEXTS += ["x" * 40, "x" * 41, "a ", " a"]
OTHERS = [None, [], (1,), Decimal(1), Fraction(1, 2), b"a", Foreign(), OwnText("a"), np.float64(1)]
CELLS = [*NASTY_INTEGERS, *NASTY_FLOATS, *NASTY_TEXTS, *OTHERS, True]

KEYS = st.lists(
    st.one_of(
        st.sampled_from([*NASTY_INTEGERS, *NASTY_FLOATS, *NASTY_TEXTS, True, False, None]),
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
        found = category_index(array, keys)
        assert found.dtype == np.int64
        assert found.tolist() == brute(array.tolist(), keys)


@SETTINGS
@given(KEYS, st.lists(st.one_of(st.sampled_from(NASTY_TEXTS), st.text(max_size=5)), min_size=1))
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
    asked = [*words, *((w + 1) % 2**64 for w in words), 0]
    expected = [words.index(w) if w in words else -1 for w in asked]
    assert table.find(np.array(asked, dtype=np.uint64)).tolist() == expected


def test_equal_hashes_of_keys(monkeypatch):
    from adaptive_dp.queries import transforms

    values = np.array(["a", "b", "zz", "c", ""])
    # all str have the same hash: keys are then found in another way
    monkeypatch.setattr(transforms, "_hash", lambda words: np.zeros(len(words[0]), np.uint64))
    assert category_index(values, ["a", "zz"]).tolist() == [0, -1, 1, -1, -1]
    assert category_index(values, ["a"]).tolist() == [0, -1, -1, -1, -1]


def test_a_million_keys():
    """They are prepared once: a look-up of a block costs nothing that grows with the keys."""
    rng = np.random.default_rng(1)
    count = 10**6
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
        begun = time.process_time()
        for _ in range(20):
            lookup(column[rows])
        assert time.process_time() - begun < 0.5  # it was prepared already


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
