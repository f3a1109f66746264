"""Rows against plain Python, and errors that carry no data."""

from __future__ import annotations

import copy
import itertools
import logging
import math
import pickle
import traceback
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import adaptive_dp as dp
from adaptive_dp.data import MemoryRows, SchemaError, open_rows, read_rows
from adaptive_dp.data.cells import identity, objects, unit_codes
from adaptive_dp.data.rows import BLOCK, Schema
from adaptive_dp.noise import SeededStream

SETTINGS = examples(100)
TABLE = st.lists(st.tuples(st.integers(0, 5), st.integers(-2, 3)), max_size=30)


def memory(records):
    units = np.array([u for u, _ in records], dtype=np.int64)
    return MemoryRows({"k": np.array([k for _, k in records], dtype=np.int64)}, units)


def listed(table):
    return list(zip(table.units.tolist(), table.columns["k"].tolist(), strict=True))


@SETTINGS
@given(TABLE, st.integers(1, 4))
def test_bound_keeps_the_first_rows_of_each_unit(records, most):
    seen, expected = {}, []
    for unit, k in records:
        seen[unit] = seen.get(unit, 0) + 1
        if seen[unit] <= most:
            expected.append((unit, k))
    assert listed(memory(records).bound(most)) == expected


@SETTINGS
@given(TABLE)
def test_gather_keeps_the_least_part_of_each_unit(records):
    least = {}
    for unit, k in records:
        if k >= 0:
            least[unit] = min(least.get(unit, k), k)
    expected = [(unit, k) for unit, k in records if k >= 0 and k == least[unit]]
    assert listed(memory(records).gather(lambda c: c["k"])) == expected


@SETTINGS
@given(TABLE, st.integers(0, 99))
def test_a_sample_takes_all_rows_of_a_unit(records, seed):
    sampled = listed(memory(records).sample(0.5, SeededStream(seed)))
    units = {unit for unit, _ in sampled}
    assert sampled == [record for record in records if record[0] in units]
    assert listed(memory(records).sample(1.0, SeededStream(seed))) == records


def test_units_are_sampled_independently_at_the_rate():
    """20 000 Bernoulli trials of rate 0.3: six standard errors are a false alarm of 2e-9."""
    count, rate = 20_000, 0.3
    table = memory([(i % count, i) for i in range(2 * count)])
    size = len(table.sample(rate, SeededStream(0)).units)
    assert size % 2 == 0
    assert abs(size / 2 - count * rate) <= 6 * math.sqrt(count * rate * (1 - rate))


@SETTINGS
@given(TABLE)
def test_where_and_total(records):
    table = memory(records).where(lambda c: c["k"] > 0)
    assert listed(table) == [(u, k) for u, k in records if k > 0]
    total = table.total(lambda c: np.array([c["k"].sum(), len(c["k"])], dtype=np.int64))
    positive = [k for _, k in records if k > 0]
    assert total.tolist() == [sum(positive), len(positive)]


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1])
def test_totals_over_block_boundaries(size):
    values = np.arange(size, dtype=np.int64)
    blocks = []

    def block(columns):
        blocks.append(len(columns["k"]))
        return np.array([columns["k"].sum()], dtype=np.int64)

    total = MemoryRows({"k": values}, values).total(block)
    assert total.tolist() == [size * (size - 1) // 2]
    assert max(blocks) <= BLOCK
    assert sum(blocks) == size


def test_totals_do_not_overflow():
    values = np.full(3 * BLOCK, 2**62 // BLOCK, dtype=np.int64)
    total = MemoryRows({"k": values}, np.arange(len(values))).total(
        lambda c: c["k"].sum(keepdims=True)
    )
    assert total.tolist() == [3 * BLOCK * (2**62 // BLOCK)]


class Bare(dp.Mechanism):
    """Releases the value itself."""

    scale: float = dp.noise_parameter("b")

    def release(self, value, stream):
        return np.array(value)

    def loss(self, distance):
        import accountants

        return accountants.Pure(epsilon=distance / self.scale)


COLUMNS = {"x": (-5.0, 5.0), "y": (0.0, 1.0), "c": ["a", "b"]}


def outputs(table):
    asks = {
        "count": table.count(),
        "sum": table["x"].sum(),
        "mean": table["x"].mean(),
        "histogram": table["c"].histogram(),
        "bins": table["x"].histogram([-5, 0, 5]),
        "vectors": table.vectors(["x", "y"]).clip(norm=2.0).sum(),
        "gram": table.vectors(["x", "y"], scale=True, intercept=True).gram(),
        "eigenvalue": table.vectors(["x", "y"]).smallest_eigenvalue(),
    }
    return {name: ask.release(Bare(scale=1.0)) for name, ask in asks.items()}


def values(plan, data):
    released = plan.simulate(seed=0, t=data)
    return {name: np.asarray(released[name]).tobytes() for name in released}


def made(size, seed=0):
    generator = np.random.default_rng(seed)
    return {
        "x": generator.normal(scale=4.0, size=size),
        "y": generator.uniform(size=size),
        "c": generator.choice(np.array(["a", "b", "z"]), size=size),
        "id": generator.integers(0, max(1, size // 3), size=size),
    }


@pytest.mark.parametrize("size", [0, 1, 10, BLOCK, BLOCK + 1, 3 * BLOCK + 17])
def test_sums_do_not_depend_on_the_order_of_rows(size):
    plan = dp.Pipeline(**outputs(dp.dataset("t", columns=COLUMNS)))
    data = made(size)
    first = values(plan, data)
    for seed in (1, 2):
        order = np.random.default_rng(seed).permutation(size)
        assert values(plan, {n: v[order] for n, v in data.items()}) == first


def test_a_sum_is_that_of_the_grid_points():
    data = made(2 * BLOCK + 5)
    table = dp.dataset("t", columns=COLUMNS)
    plan = dp.Pipeline(a=table["x"].sum().release(Bare(scale=1.0)))
    unit = Fraction(1, 2**20)  # 5 / 2^22, as a power of two
    exact = sum(round(Fraction(min(max(v, -5.0), 5.0)) / unit) * unit for v in data["x"].tolist())
    assert Fraction(plan.simulate(seed=0, t=data)["a"]) == exact


@pytest.mark.parametrize("unit", [None, "id"])
def test_every_kind_of_frame_gives_the_same(unit):
    extra = {} if unit is None else {"unit": "id", "rows_per_unit": 2}
    plan = dp.Pipeline(**outputs(dp.dataset("t", columns=COLUMNS, **extra)))
    data = made(300)
    structured = np.empty(300, dtype=[(n, v.dtype) for n, v in data.items()])
    for name, column in data.items():
        structured[name] = column
    frames = [
        {n: v.tolist() for n, v in data.items()},
        structured,
        pd.DataFrame(data),
        pd.DataFrame(data).astype({"c": "category", "x": "Float64"}),
        pd.DataFrame(data | {"id": [f"person {i}" for i in data["id"]]}),
        pd.DataFrame(data).set_index(np.arange(300)[::-1]),
        pl.DataFrame(data),
        pa.table(data),
        pa.table(data | {"unread": [None] * 300}),
    ]
    first = values(plan, data)
    for frame in frames:
        assert values(plan, frame) == first, type(frame)


def test_a_frame_may_have_columns_that_are_named_like_methods():
    names = ["total", "where", "bound", "gather", "sample", "columns", "shape"]
    table = dp.dataset("t", columns=dict.fromkeys(names, (0, 10)))
    plan = dp.Pipeline(**{f"o_{n}": table[n].sum().release(Bare(scale=1.0)) for n in names})
    data = {name: [1.0, 2.0, 4.0] for name in names}
    for frame in (data, pd.DataFrame(data), pl.DataFrame(data), pa.table(data)):
        released = plan.simulate(seed=0, t=frame)
        assert [released[f"o_{n}"] for n in names] == [7.0] * len(names)


def test_missing_numbers_are_the_same_in_every_frame():
    table = dp.dataset("t", columns={"x": (1.0, 5.0)})
    plan = dp.Pipeline(
        a=table["x"].sum().release(Bare(scale=1.0)),
        b=table.filter(table["x"] >= 0).count().release(Bare(scale=1.0)),
    )
    holes = [3.0, None, 9.0]
    frames = [
        {"x": np.array([3.0, math.nan, 9.0])},
        pd.DataFrame({"x": holes}),
        pd.DataFrame({"x": pd.array([3, None, 9], dtype="Int64")}),
        pl.DataFrame({"x": holes}),
        pl.DataFrame({"x": [3, None, 9]}),
        pa.table({"x": holes}),
        pa.table({"x": [3, None, 9]}),
    ]
    for frame in frames:
        released = plan.simulate(seed=0, t=frame)
        assert (released["a"], released["b"]) == (8.0, 2.0)  # a hole is left out


def test_a_table_without_columns_has_rows_to_count():
    plan = dp.Pipeline(a=dp.dataset("t", columns={}).count().release(Bare(scale=1.0)))
    data = {"x": np.arange(BLOCK + 3.0)}
    for frame in (data, pd.DataFrame(data), pl.DataFrame(data), pa.table(data)):
        assert plan.simulate(seed=0, t=frame)["a"] == BLOCK + 3


EXTREME = {
    "int64": np.array([-(2**63), 2**63 - 1, 0], dtype=np.int64),
    "uint64": np.array([0, 2**64 - 1, 3], dtype=np.uint64),
    "large": np.array([1e308, -1e308, 1e308]),
    "infinite": np.array([math.inf, -math.inf, math.nan]),
    "denormal": np.array([5e-324, -5e-324, 1e-310]),
    "zeros": np.array([0.0, -0.0, -0.0]),
    "float32": np.array([3.4e38, -1e-45, 0.5], dtype=np.float32),
    "float16": np.array([6e4, -6e-8, math.nan], dtype=np.float16),
    "bool": np.array([True, False, True]),
    "int8": np.array([-128, 127, 0], dtype=np.int8),
}


@pytest.mark.parametrize("name", EXTREME)
def test_extreme_numbers_are_clipped_like_any(name):
    column = EXTREME[name]
    table = dp.dataset("t", columns={"x": (-2.0, 3.0)})
    plan = dp.Pipeline(
        a=table["x"].sum().release(Bare(scale=1.0)),
        b=table["x"].histogram([-2.0, 0.0, 3.0]).release(Bare(scale=1.0)),
        c=table.filter(table["x"] >= 0).count().release(Bare(scale=1.0)),
        d=table.vectors(["x"]).gram().release(Bare(scale=1.0)),
    )
    released = plan.simulate(seed=0, t={"x": column})
    numbers = [float(v) for v in column.tolist()]
    clipped = [min(max(0.0 if math.isnan(v) else v, -2.0), 3.0) for v in numbers]
    assert abs(released["a"] - math.fsum(clipped)) <= 3 * 2.0**-21
    assert released["b"].tolist() == [
        sum(-2 <= v < 0 for v in numbers),
        sum(0 <= v <= 3 for v in numbers),
    ]
    assert released["c"] == sum(v >= 0 for v in numbers)
    assert abs(released["d"][0, 0] - math.fsum(v * v for v in clipped)) <= 3 * 9 * 2.0**-17


def test_empty_data_runs():
    table = dp.dataset("t", columns=COLUMNS, unit="id", rows_per_unit=2)
    inner = table.filter(table["x"] >= 1).sample(0.5)
    plan = dp.Pipeline(
        **outputs(table),
        inner=inner.count().release(Bare(scale=1.0)),
        parts={
            k: p.count().release(Bare(scale=1.0)) for k, p in inner.partition("c", whole_units=True)
        },
    )
    for data in ({n: v[:0] for n, v in made(3).items()}, made(3)):
        released = plan.run(t=data)
        assert released["count"] in (0, 2)  # all three rows are one unit's


CANARY, NUMBER = "canary-7b1f", 82_734_615.0


def leaky():
    """Return tables that do not fit, each with the canary in it."""
    good = {"x": np.array([NUMBER, 1.0]), "y": np.array([0.0, 1.0]), "c": np.array([CANARY, "a"])}
    strings = np.array([CANARY, "1"])
    return {
        "missing column": {k: v for k, v in good.items() if k != "y"},
        "different lengths": good | {"y": np.array([NUMBER])},
        "strings for numbers": good | {"x": strings},
        "objects for numbers": good | {"x": np.array([NUMBER, CANARY], dtype=object)},
        "complex numbers": good | {"x": np.array([NUMBER + 1j, 0])},
        "two dimensions": good | {"x": np.full((2, 2), NUMBER)},
        "numbers for strings": good | {"c": np.array([NUMBER, 1.0])},
        "no columns": np.full(3, NUMBER),
        "no table": CANARY,
        "pandas strings": pd.DataFrame(good | {"x": strings}),
        "polars strings": pl.DataFrame(good | {"x": strings}),
        "arrow strings": pa.table(good | {"x": strings}),
    }


def message_of(error):
    """Return all that an error can show, the locals of every frame below this file included."""
    shown = [str(error), repr(error), *map(str, error.args)]
    while error is not None:
        report = traceback.TracebackException.from_exception(error, capture_locals=True)
        frames = [f for f in report.stack if f.filename != __file__]
        assert frames
        shown += [str(f.locals) for f in frames] + [str(f.line) for f in frames]
        shown += list(report.format_exception_only())
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


def clean(text):
    return CANARY not in text and "82734615" not in text and "82_734" not in text


@pytest.mark.parametrize("name", leaky())
@pytest.mark.parametrize("verb", ["run", "simulate"])
def test_errors_carry_no_data(name, verb, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    plan = dp.Pipeline(**outputs(dp.dataset("t", columns=COLUMNS)))
    extra = {"seed": 1} if verb == "simulate" else {}
    with pytest.raises(dp.PlanError) as caught:
        getattr(plan, verb)(t=leaky()[name], **extra)
    assert clean(message_of(caught.value))
    assert clean(caplog.text)
    assert clean("".join(capsys.readouterr()))


class Breaks(Bare):
    """A mechanism that fails on what it is given, and quotes it."""

    def release(self, value, stream):
        raise ValueError(f"bad value {value} {CANARY}")


def test_a_mechanism_that_fails_tells_nothing():
    table = dp.dataset("t", columns={"x": (0, 1e9)})
    plan = dp.Pipeline(a=table["x"].sum().release(Breaks(scale=1.0)))
    with pytest.raises(dp.RunError) as caught:
        plan.run(t={"x": np.array([NUMBER])})
    assert clean(message_of(caught.value))


@pytest.mark.parametrize(
    "column",
    [
        np.array(["1", "2"]),
        np.array(["1", CANARY]),
        np.array([b"1", b"2"]),
    ],
    ids=["digits", "strings", "bytes"],
)
def test_what_is_no_number_fails_by_its_type_not_by_its_values(column):
    """Whether a plan fails must not depend on one person's value."""
    table = dp.dataset("t", columns={"x": None})
    asks = [
        table["x"].clip(0, 1).sum(),
        table["x"].clip(0, 1).mean(),
        table["x"].histogram([0, 1, 2]),
        table.filter(table["x"] <= 1).count(),
        table.partition("x", edges=[0, 1, 2])["[0, 1)"].count(),
    ]
    for ask in asks:
        plan = dp.Pipeline(a=ask.release(Bare(scale=1.0)))
        with pytest.raises(dp.PlanError) as caught:
            plan.run(t={"x": column})
        assert clean(message_of(caught.value))


def test_foreign_objects_are_in_no_category():
    table = dp.dataset("t", columns={"c": ["a", "b"]})
    plan = dp.Pipeline(
        a=table["c"].histogram().release(Bare(scale=1.0)),
        b=table.filter(table["c"].isin(["a"])).count().release(Bare(scale=1.0)),
        c={k: p.count().release(Bare(scale=1.0)) for k, p in table.partition("c")},
    )

    class Odd:
        def __hash__(self):
            raise RuntimeError(CANARY)

        def __eq__(self, other):
            raise RuntimeError(CANARY)

    column = np.empty(7, dtype=object)
    column[:] = ["a", ["a"], {"a": 1}, math.nan, None, Odd(), "b"]
    released = plan.run(t={"c": column})
    assert released["a"].tolist() == [1, 1]
    assert (released["b"], released["c"]["a"], released["c"]["b"]) == (1, 1, 1)


def test_private_values_show_themselves_nowhere():
    table = read_rows(
        {"x": np.array([NUMBER]), "c": np.array([CANARY])}, {"x": "number", "c": "text"}, None
    )
    secret = dp.Secret(CANARY)
    handle = dp.dataset("t", columns=COLUMNS)["x"].sum()
    for thing in (table, secret, handle):
        assert clean(f"{thing!r} {thing} {[thing]} {vars(type(thing)).get('x', '')}")
    for thing in (secret, handle):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            bool(thing)
    with pytest.raises(TypeError):
        copy.deepcopy(secret)
    with pytest.raises(TypeError):
        np.asarray(secret)


def test_schema_errors_name_the_column():
    with pytest.raises(SchemaError, match="'y'"):
        read_rows({"x": [1]}, {"x": "number", "y": "number"}, None)
    with pytest.raises(SchemaError, match="length"):
        read_rows({"x": [1], "y": [1, 2]}, {"x": "number", "y": "number"}, None)
    with pytest.raises(SchemaError, match="'id'"):
        read_rows({"x": [1]}, {"x": "number"}, "id")


IDS = [2**53 + i for i in range(6)]
UNITED = dp.dataset("t", columns={"x": (-1, 1)}, unit="id", rows_per_unit=1)


def counts(ids):
    """Return the count of units' rows for every kind of frame that holds the ids."""
    plan = dp.Pipeline(
        n=UNITED.count().release(Bare(scale=1.0)), s=UNITED["x"].sum().release(Bare(scale=1.0))
    )
    ones = [1.0] * len(ids)
    frames = [{"id": ids, "x": ones}, {"id": np.array(ids, dtype=object), "x": np.array(ones)}]
    if all(i is None or isinstance(i, int) for i in ids):
        frames += [
            pl.DataFrame({"id": ids, "x": ones}, schema={"id": pl.Int64, "x": pl.Float64}),
            pd.DataFrame({"id": pd.array(ids, dtype="Int64"), "x": ones}),
            pa.table({"id": pa.array(ids, pa.int64()), "x": ones}),
        ]
    released = [plan.simulate(seed=0, t=frame) for frame in frames]
    assert all(f["n"] == f["s"] for f in released)
    return {f["n"] for f in released}


def more_frames(ids):
    """Arrays with gaps of their own, which NumPy would read as floats, or as objects."""
    return [
        pa.array(ids, pa.int64()),
        pd.array(ids, dtype="Int64"),
        pd.Index(ids, dtype="Int64"),
        pd.Series(ids, dtype=pd.ArrowDtype(pa.int64())),
        pl.Series(ids, dtype=pl.Int128),
        pl.Series(ids, dtype=pl.Int64),
        np.ma.MaskedArray([0 if i is None else i for i in ids], [i is None for i in ids]),
    ]


@pytest.mark.parametrize("kind", range(7))
def test_gaps_of_any_array_change_no_other_cell(kind):
    table = dp.dataset("t", columns={"g": [2**53, 2**53 + 1]}, unit="id", rows_per_unit=1)
    plan = dp.Pipeline(
        n=table.count().release(Bare(scale=1.0)),
        h=table["g"].histogram().release(Bare(scale=1.0)),
    )
    for ids in (IDS, [*IDS, None]):
        column = more_frames(ids)[kind]
        released = plan.simulate(seed=0, t={"id": column, "g": column})
        assert (released["n"], released["h"].tolist()) == (6.0, [1.0, 1.0])
    bounded = dp.Pipeline(
        s=dp.dataset("t", columns={"x": (0, 9)})["x"].sum().release(Bare(scale=1.0))
    )
    for numbers in ([1, 2], [1, 2, None]):
        assert bounded.simulate(seed=0, t={"x": more_frames(numbers)[kind]})["s"] == 3.0


@pytest.mark.parametrize("make", [pa.array, lambda v: pd.array(v, dtype="boolean"), pl.Series])
def test_gaps_in_booleans_fail_nothing(make):
    table = dp.dataset("t", columns={"x": (0, 1)})
    plan = dp.Pipeline(s=table["x"].sum().release(Bare(scale=1.0)))
    for values in ([True, False], [True, False, None]):
        assert plan.simulate(seed=0, t={"x": make(values)})["s"] == 1.0


IDENTIFIERS = [
    *(1, True, 1.0, np.float32(1), np.longdouble(1), Fraction(1), Decimal(1), Decimal("1.0")),
    *("1", b"1", np.str_("1"), 0, 0.0, -0.0, 2**53, float(2**53), 2**53 + 1, Fraction(1, 3)),
    *(np.datetime64("2020-01-01"), datetime(2020, 1, 1), pd.Timestamp("2020-01-01")),
    *(date(2020, 1, 1), timedelta(1), np.timedelta64(1, "D"), pd.Timedelta(days=1)),
    *(math.inf, -math.inf, Decimal("Infinity"), UUID(int=1)),
]


def test_two_identifiers_are_equal_or_not_whatever_a_third_is():
    """Python's equality is not transitive over types; what units are must be."""
    keys = [identity(cell) for cell in IDENTIFIERS]
    for one, two in itertools.product(range(len(keys)), repeat=2):
        same = len(set(unit_codes(objects([IDENTIFIERS[one], IDENTIFIERS[two]])).tolist())) == 1
        assert same == (keys[one] == keys[two])
        for third in IDENTIFIERS:
            codes = unit_codes(objects([third, IDENTIFIERS[one], IDENTIFIERS[two]])).tolist()
            assert (codes[1] == codes[2]) == same
    numbers = {identity(cell) for cell in IDENTIFIERS[:8]}
    assert numbers == {1}


def test_what_is_no_identifier_fails_nothing():
    for odd in (Decimal("sNaN"), Decimal("NaN"), np.nan, np.longdouble("nan"), None, [1], {}):
        assert identity(odd) is None
        assert unit_codes(objects([1, 2, odd])).tolist() == [0, 1, -1]


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([1, 2], dtype=pl.Int32).cast(pl.Date),
        pl.Series([], dtype=pl.Datetime("ms")),
        pa.array([1], pa.date32()),
        pa.array([], pa.timestamp("s")),
        pl.Series([[1]]),
    ],
)
def test_dates_and_lists_of_frames_are_refused_by_their_type(column):
    """Listing them may fail for a date after the year 9999: one person's."""
    plan = dp.Pipeline(n=UNITED.count().release(Bare(scale=1.0)))
    with pytest.raises(dp.DataError, match="column 'id'"):
        plan.run(t={"id": column, "x": [0.0] * len(column)})


@pytest.mark.parametrize("column", [pd.Series([], dtype=object), np.array([], dtype="U1")])
def test_a_type_that_does_not_fit_is_refused_without_rows_too(column):
    plan = dp.Pipeline(n=dp.dataset("t", columns={"x": (0, 1)}).count().release(Bare(scale=1.0)))
    with pytest.raises(dp.DataError, match="column 'x'"):
        plan.run(t={"x": column})


@pytest.mark.parametrize("other", [None, 0.5, "x", [1], math.nan, float(2**53)])
def test_one_persons_identifier_changes_no_other(other):
    """Large integers as floats would be equal: one gap would merge all units."""
    assert counts(IDS) == {6.0}
    assert counts([*IDS, other]) == {7.0 if other in (0.5, "x") else 6.0}


def test_rows_without_an_identifier_are_left_out():
    """Two people without an identifier would be one unit, whose bound leaves one row: 2 for 1."""
    for missing in (
        None,
        math.nan,
        "",
        b"",
        float("nan"),
        np.datetime64("NaT", "D"),
        pd.NaT,
        pd.NA,
    ):
        plan = dp.Pipeline(s=UNITED["x"].sum().release(Bare(scale=1.0)))
        data = {"id": [missing, missing, "ann"], "x": [1.0, -1.0, 0.5]}
        without = {"id": [missing, "ann"], "x": [-1.0, 0.5]}
        assert plan.simulate(seed=0, t=data)["s"] == plan.simulate(seed=0, t=without)["s"] == 0.5
    strings = {"id": np.array(["", "", "ann"]), "x": [1.0, -1.0, 0.5]}
    floats = {"id": np.array([math.nan, math.nan, 3.0]), "x": [1.0, -1.0, 0.5]}
    for data in (strings, floats):
        assert plan.simulate(seed=0, t=data)["s"] == 0.5


def test_identifiers_are_distinguished_by_value_and_type():
    plan = dp.Pipeline(n=UNITED.count().release(Bare(scale=1.0)))
    for ids, people in (([1, "1"], 2), (["a", "a\0"], 2), ([1, 1.0, True, np.float32(1)], 1)):
        assert plan.simulate(seed=0, t={"id": ids, "x": [0.0] * len(ids)})["n"] == people


@pytest.mark.parametrize(
    ("categories", "cells", "odd"),
    [
        ([1, 2, 3], [1, 2, 3] * 5, "unknown"),
        ([True, False], [True, False] * 5, "?"),
        ([2**53, 2**53 + 1], [2**53, 2**53 + 1] * 5, 0.5),
        (["a", "b"], ["a", "b"] * 5, 7),
        (["a", 1], ["a", 1] * 5, None),
    ],
)
def test_one_cell_changes_how_no_other_is_read(categories, cells, odd):
    """A list is not an array: NumPy would make all of them str, or all of them float."""
    table = dp.dataset("t", columns={"g": categories})
    parts = {str(k): p.count().release(Bare(scale=1.0)) for k, p in table.partition("g")}
    plan = dp.Pipeline(h=table["g"].histogram().release(Bare(scale=1.0)), p=parts)
    for data in (cells, [*cells, odd]):
        released = plan.simulate(seed=0, t={"g": data})
        assert released["h"].tolist() == [5.0] * len(categories)
        assert list(released["p"].values()) == [5.0] * len(categories)


def test_gaps_and_strange_cells_fail_nothing():
    """Whether a plan runs must not depend on one person's value."""
    table = dp.dataset("t", columns={"x": (0, 1), "g": ["a"], "z": None})
    plan = dp.Pipeline(
        s=table["x"].sum().release(Bare(scale=1.0)),
        h=table["g"].histogram().release(Bare(scale=1.0)),
        z=table["z"].clip(0, 1).sum().release(Bare(scale=1.0)),
    )
    odd_cells = [
        (odd, 0.0)
        for odd in (
            None,
            "text",
            [1],
            {},
            object(),
            1j,
            pd.NA,
            b"1",
            np.timedelta64(1, "D"),
            Decimal("sNaN"),
        )
    ]
    for odd, more in (*odd_cells, (10**400, 1.0), (math.inf, 1.0)):
        released = plan.simulate(seed=0, t={"x": [1, odd], "g": ["a", odd], "z": [1, odd]})
        assert (released["s"], released["h"][0], released["z"]) == (1.0 + more, 1.0, 1.0 + more)


@pytest.mark.parametrize("frame", [pl.DataFrame, pa.table])
def test_gaps_in_booleans_are_missing_numbers(frame):
    table = dp.dataset("t", columns={"x": (0, 1)})
    plan = dp.Pipeline(s=table["x"].sum().release(Bare(scale=1.0)))
    for values in ([True, False], [True, False, None]):
        assert plan.simulate(seed=0, t=frame({"x": values}))["s"] == 1.0


@pytest.mark.parametrize(
    ("declared", "column"),
    [
        ((0, 1), np.array(["1"])),
        ((0, 1), pd.Series(["1"])),
        ((0, 1), pl.Series(["1"])),
        (["a"], np.array([1])),
        (["a"], np.array([b"a"])),
        ((0, 1), pd.Series(["1"], dtype=object)),
        ((0, 1), pa.array(["1"])),
        ((0, 1), pa.array([b"1"])),
        ((0, 1), np.array(["1"], dtype=object)),
        (["a"], pl.Series([1, None])),
        (["a"], pl.Series([b"a"])),
        ([1, 2], pl.Series([b"1"])),
        (["a"], pd.Series([1, None], dtype="Int64")),
        ([True, False], np.array(["True"])),
        ([1, 2], pl.Series(["1", None])),
    ],
)
def test_a_type_that_does_not_fit_is_refused(declared, column):
    plan = dp.Pipeline(n=dp.dataset("t", columns={"x": declared}).count().release(Bare(scale=1.0)))
    with pytest.raises(dp.DataError, match="column 'x'"):
        plan.run(t={"x": column})


def test_a_str_in_a_list_is_read_as_in_a_csv_file(tmp_path):
    """Each cell by itself: a str that spells no number is missing, and moves no other."""
    spelled = ["1.5", " 2 ", "1e3", "true", "False", "", "x", "nan", "-inf", "0x10", "1_0"]
    path = tmp_path / "t.csv"
    path.write_text("x,c\n" + "".join(f"{text},{text}\n" for text in spelled))
    columns = {"x": "number", "c": "code"}
    listed = read_rows({"x": spelled, "c": spelled}, columns, None).columns
    filed = open_rows(path, columns, None).columns
    assert np.array_equal(listed["x"], filed["x"], equal_nan=True)
    assert str(listed["c"].tolist()) == str(filed["c"].tolist())
    for text, cell in zip(spelled, listed["x"], strict=True):
        alone = read_rows({"x": [text, 7]}, {"x": "number"}, None).columns["x"]
        assert np.array_equal(alone, [cell, 7.0], equal_nan=True)


def test_numeric_strings_in_a_list_count():
    table = dp.dataset("t", columns={"x": (0, 10), "c": [1, 2]})
    total, counts = table["x"].sum(), table["c"].histogram()
    plan = dp.Pipeline(total=total.release(Bare(scale=1.0)), counts=counts.release(Bare(scale=1.0)))
    released = plan.simulate(seed=0, t={"x": ["1.5", 2, "x"], "c": ["1", "2.0", 2]})
    assert released["total"] == 3.5
    assert released["counts"].tolist() == [1.0, 2.0]


def test_no_message_tells_the_longest_str():
    plan = dp.Pipeline(n=dp.dataset("t", columns={"x": (0, 1)}).count().release(Bare(scale=1.0)))
    messages = set()
    for text in ("a", "a" * 37):
        with pytest.raises(dp.DataError) as caught:
            plan.run(t={"x": np.array([text])})
        messages.add(str(caught.value))
    assert len(messages) == 1


def test_data_that_opens_itself_gets_what_is_declared():
    calls = []

    class Ready:
        def open_rows(self, columns, unit):
            calls.append((dict(columns), unit))
            return read_rows({"x": [1.0, 1.0], "id": ["a", "a"]}, columns, unit)

    plan = dp.Pipeline(s=UNITED["x"].sum().release(Bare(scale=1.0)))
    assert plan.simulate(seed=0, t=Ready())["s"] == 1.0
    assert calls == [({"x": "number"}, "id")]
    with pytest.raises(dp.DataError):
        plan.run(t=read_rows({"x": [1.0]}, {"x": "number"}, None))


def test_a_line_of_a_file_is_read_by_itself(tmp_path):
    """An open quote, a strange byte, a missing field or an empty line touch one line alone."""
    from adaptive_dp.data.sources import read_file

    def columns(*lines):
        path = tmp_path / "t.CSV"
        path.write_bytes(b"\xef\xbb\xbfg,x\n" + b"\n".join(lines) + b"\n")
        return read_file(path, Schema({"x": "number", "g": "text"}))

    plain = columns(b"a,1", b"b,true", b"c,x")
    assert plain == {"x": [1.0, 1.0, None], "g": ["a", "b", "c"]}
    for odd in (b'"oops,1', b"\xff,1", b"a", b"a,1,2", b"", b'a,"1\r2"', b"\0,1"):
        read = columns(odd, b"a,1", b"b,true", b"c,x")
        assert read["x"][-3:] == plain["x"]
        assert read["g"][-3:] == plain["g"]
        assert len(read["x"]) == (3 if odd == b"" else 4)
    for content, cells in ((b"x\n7\n\n", [7.0, None]), (b"x\n7\n10\n", [7.0, 10.0])):
        assert read_file(_file(tmp_path, content), Schema({"x": "number"})) == {"x": cells}
    with pytest.raises(SchemaError, match=r"other\.csv"):
        read_file(_file(tmp_path, b"g;x\na;1\n"), Schema({"x": "number", "g": "text"}))


def test_a_file_is_read_as_what_is_declared(tmp_path):
    from adaptive_dp.data.sources import read_file

    path = _file(tmp_path, b"n,t,c,v,id\n1,1,true,1,1\nx,x,x,x,x\n")
    readings = {"n": "number", "t": "text", "c": "code", "v": "value", "id": "number"}
    table = read_file(path, Schema(readings, "id"))
    assert table == {
        "n": [1.0, None],
        "t": ["1", "x"],
        "c": [1.0, None],
        "v": [1.0, "x"],
        "id": ["1", "x"],
    }


def _file(folder, content):
    path = folder / "other.csv"
    path.write_bytes(content)
    return path


def test_a_files_unit_that_is_declared_by_numbers_is_read_as_numbers(tmp_path):
    """Else no row would be in any of the declared categories."""
    path = tmp_path / "visits.csv"
    path.write_text("id,x\n1,5\n2,6\n02,7\nnobody,8\n")
    visits = dp.dataset("visits", columns={"id": [1, 2], "x": (0, 10)}, unit="id")
    counts = visits["id"].histogram().release(dp.Laplace(scale=1e-9))
    released = dp.Pipeline(n=counts).run(visits=path)["n"]
    assert released == pytest.approx([1.0, 1.0], abs=1e-6)
