"""Expressions: derived bounds against exact rationals, three-valued logic, every engine alike."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adaptive_dp as dp
from adaptive_dp.data.memory import MemoryRows
from adaptive_dp.data.scan import ComputedRows, RowSum, passes
from adaptive_dp.graph.passes import columns_needed
from adaptive_dp.queries.expressions import Expression, expression, present, text_of

NAN, INF = math.nan, math.inf
BOUNDS = {"x": (-5.0, 10.0), "y": (1.0, 3.0), "z": (-2.0, -0.5)}
TINY = dp.DiscreteLaplace(scale=1e-3)
EXACT = dp.Laplace(scale=1e-9)


def people(**more: Any) -> dp.Table:
    return dp.dataset("people", columns={**BOUNDS, **more})


# --- numbers

LEAVES = st.one_of(
    st.sampled_from([("column", name, *bounds) for name, bounds in BOUNDS.items()]),
    st.integers(-9, 9),
    st.floats(-1e3, 1e3),
)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "/"]), inner, inner),
        st.tuples(st.just("**"), inner, st.integers(-3, 5)),
        st.tuples(st.sampled_from(["abs", "negative", "sqrt", "exp", "log"]), inner),
        st.tuples(st.just("clip"), inner, st.floats(-9, 0), st.floats(0, 9)),
        st.tuples(st.just("where"), st.tuples(st.just("<"), inner, inner), inner, inner),
    )


TREES = st.recursive(LEAVES, grown, max_leaves=6)
ROWS = st.tuples(*(st.floats(*bounds) for bounds in BOUNDS.values()))
SEVEN = st.lists(
    st.sampled_from([-1e300, -5.0, -0.5, 0.0, 0.1, 1.0, 3.0, 10.0, 1e300, INF, -INF, NAN]),
    min_size=7,
    max_size=7,
)


def truth(tree: Any, row: Mapping[str, float]) -> Any:
    """The value of a tree in exact rationals, or in 60 digits where it has a root or the like."""
    if not isinstance(tree, tuple):
        return Fraction(tree)
    name, *rest = tree
    if name == "column":
        return min(max(Fraction(row[rest[0]]), Fraction(rest[1])), Fraction(rest[2]))
    if name == "where":
        return truth(rest[1] if truth(rest[0], row) else rest[2], row)
    if name == "<":
        return truth(rest[0], row) < truth(rest[1], row)
    if name == "**":
        return truth(rest[0], row) ** rest[1]
    values = [truth(each, row) for each in rest]
    if name == "clip":
        return min(max(values[0], values[1]), values[2])
    if name in ("sqrt", "exp", "log"):
        ratio = mpmath.mpf(values[0].numerator) / values[0].denominator
        result = getattr(mpmath, name)(ratio)
        return Fraction(int(mpmath.floor(result * 10**40)), 10**40)
    simple = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
              "abs": abs, "negative": operator.neg}  # fmt: skip
    return simple[name](*values)


def made(tree: Any) -> Expression | None:
    try:
        return expression(tree)
    except dp.DeclarationError:  # a divisor that may be 0, say
        return None


@settings(deadline=None, max_examples=300)
@given(
    TREES, st.lists(st.tuples(*(st.floats(*b) for b in BOUNDS.values())), min_size=1, max_size=4)
)
def test_derived_bounds_contain_the_exact_values(tree: Any, rows: list[tuple[float, ...]]) -> None:
    corners = list(itertools.product(*BOUNDS.values()))
    e = made(tree) if isinstance(tree, tuple) else None
    if e is None:
        return
    assert e.bounds is not None
    low, high = map(Fraction, e.bounds)
    slack = Fraction(1, 10**38)  # of the decimal places of `truth`
    with mpmath.workdps(60):
        for row in [*rows, *corners]:
            exact = truth(tree, dict(zip(BOUNDS, row, strict=True)))
            assert low - slack <= exact <= high + slack, (text_of(e), row)


@settings(deadline=None, max_examples=200)
@given(TREES, st.data())
def test_computed_values_stay_in_the_bounds(tree: Any, data: st.DataObject) -> None:
    e = made(tree) if isinstance(tree, tuple) else None
    if e is None or not e.names:
        return
    columns = {name: np.array(data.draw(SEVEN)) for name in BOUNDS}
    assert e.bounds is not None
    values = np.broadcast_to(e(columns), 7)
    there = ~np.isnan(values)
    assert (np.clip(values[there], *e.bounds) == values[there]).all()
    # a value is missing exactly where something that it is made of is
    gone = np.any([np.isnan(columns[name]) for name in e.names], axis=0)
    assert not (~there & ~gone).any()
    # each row by itself, to the last bit, wherever it is in a block
    for order in ([6, 0, 3], [3], [2, 1, 0, 6, 5, 4, 3]):
        part = {name: column[order] for name, column in columns.items()}
        np.testing.assert_array_equal(np.broadcast_to(e(part), len(order)), values[order])


def test_values_are_close_to_the_exact_ones() -> None:
    row = {"x": 2.5, "y": 1.7, "z": -1.25}
    columns = {name: np.array([value]) for name, value in row.items()}
    x, y, z = (("column", name, *bounds) for name, bounds in BOUNDS.items())
    for tree in (
        ("/", ("+", x, y), ("**", z, 3)),
        ("log", ("+", ("exp", y), ("abs", z))),
        ("sqrt", ("clip", ("*", x, y), 0, 100)),
        ("-", ("where", ("<", x, y), 1, 2), ("negative", z)),
        ("**", y, -2),
    ):
        e = expression(tree)
        with mpmath.workdps(60):
            exact = float(truth(tree, row))
        assert float(np.asarray(e(columns)).ravel()[0]) == pytest.approx(exact, rel=1e-14)


# --- conditions


def kleene(tree: Any, row: Mapping[str, float | None]) -> bool | None:
    """Three-valued logic by its definition: the answers over all completions, where they agree."""
    name, *rest = tree
    if name == "not":
        inner = kleene(rest[0], row)
        return None if inner is None else not inner
    if name in ("and", "or"):
        inner = [kleene(each, row) for each in rest]
        decided = name == "or"
        if decided in inner:
            return decided
        return None if None in inner else not decided
    value = row[rest[0][1]]
    if name == "present":
        return value is not None
    if value is None:
        return None
    return value in rest[1] if name == "in" else bool(value < rest[1])


COMPARISONS = st.sampled_from(
    [("<", ("column", name), 2) for name in BOUNDS]
    + [("in", ("column", name), (1.0, 2.0)) for name in BOUNDS]
    + [("present", ("column", name)) for name in BOUNDS]
)
LOGIC = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner),
        st.tuples(st.sampled_from(["and", "or"]), inner, inner, inner),
    ),
    max_leaves=7,
)


@settings(deadline=None, max_examples=200)
@given(LOGIC)
def test_conditions_follow_three_valued_logic(tree: Any) -> None:
    rows = list(itertools.product([None, 1.0, 2.0, 3.0], repeat=3))
    columns = {
        name: np.array([NAN if row[i] is None else row[i] for row in rows])
        for i, name in enumerate(BOUNDS)
    }
    trits = expression(tree)(columns)
    for trit, row in zip(trits, rows, strict=True):
        expected = kleene(tree, dict(zip(BOUNDS, row, strict=True)))
        assert trit == {True: 2, False: 0, None: 1}[expected]


def test_neither_a_comparison_with_a_missing_value_nor_its_negation_is_met() -> None:
    table = people(town=["A", "B"], home=str)
    x, y, town = table["x"], table["y"], table["town"]
    old, young = x >= 3, ~(x >= 3)
    counts = {
        "old": old, "young": young, "missing": ~x.is_present(), "either": old | young,
        "certain": old | (y > 0), "apart": x != y, "equal": x == y, "a": town == "A",
        "not a": town != "A", "same": town == table["home"], "other": ~(town == table["home"]),
        "one": x == 1, "all": old & (y > 0) & (town == "A"),
    }  # fmt: skip
    plan = dp.Pipeline(**{k: table.filter(c).count().release(TINY) for k, c in counts.items()})
    data = {
        "x": [1, 5, None, None, 2],
        "y": [1, 2, 3, None, 2],
        "z": [0] * 5,
        "town": ["A", "B", None, "A", "elsewhere"],
        "home": ["A", "A", "A", "A", ""],
    }
    result = plan.simulate(seed=1, people=data)
    assert {name: result[name] for name in counts} == {
        "old": 1, "young": 2, "missing": 2, "either": 3, "certain": 4, "apart": 1, "equal": 2,
        "a": 2, "not a": 2, "same": 2, "other": 1, "one": 1, "all": 0,
    }  # fmt: skip


def test_cells_that_are_missing() -> None:
    cells = [None, NAN, "", np.datetime64("NaT"), "x", 0, False, 1.5, np.float64(NAN)]
    array = np.empty(len(cells), dtype=object)
    array[:] = cells
    assert present(array).tolist() == [False] * 4 + [True] * 4 + [False]
    assert present(np.array([True, False])).all()
    assert present(np.array(["", "a"])).tolist() == [False, True]


def test_plain_conditions_keep_their_node() -> None:
    table = people(town=["A", "B"])
    released = table.count().release(TINY)
    for condition in (
        table["x"] >= 3,
        table["x"] < released,
        table["town"].isin(["A"]),
        table["town"] == "A",
        table["x"] == 3,
    ):
        assert table.filter(condition).operation.kind == "filter"
    for condition in (table["x"] < table["y"], table["town"] != "A", table["x"].is_present()):
        assert table.filter(condition).operation.kind == "where"


def test_released_values_keep_their_places() -> None:
    table = people()
    low, high = (dp.post(lambda n, to: to, table.count().release(TINY), to=to) for to in (1.0, 4.0))
    between = (table["x"] > low) & (table["y"] > 0) & ~(table["x"] >= high)
    plan = dp.Pipeline(n=table.filter(between).count().release(TINY))
    data = {"x": [0, 1, 2, 3, 4, 5], "y": [1, 1, 1, None, 1, 1], "z": [0] * 6}
    assert plan.simulate(seed=1, people=data)["n"] == 1
    # NaN, which a user's function may return, is unknown in every row
    nothing = dp.post(lambda n: NAN, table.count().release(TINY))
    either = (table["x"] > nothing) | (table["y"] < 0)
    assert (
        dp.Pipeline(n=table.filter(~either).count().release(TINY)).simulate(seed=1, people=data)[
            "n"
        ]
        == 0
    )


# --- everywhere a column is


def everything() -> dp.Pipeline:
    table = people(town=["A", "B"])
    wide = table.with_columns(
        ratio=table["x"] / table["y"] ** 2, high=table["x"] > table["y"], x=table["x"].fill(1)
    )
    twice = wide.with_columns(twice=wide["ratio"] * 2 + wide["x"])
    return dp.Pipeline(
        direct=(table["x"] / table["y"] ** 2).sum().release(EXACT),
        named=wide["ratio"].sum().release(EXACT),
        before=table["x"].histogram([-5, 1, 2, 10]).release(TINY),
        after=wide["x"].histogram([-5, 1, 2, 10]).release(TINY),
        filtered=twice.filter(twice["twice"] > 3).count().release(TINY),
        grouped=twice.group_by("high", "town").sum(["twice", "ratio"]).release(EXACT),
        parts={str(k): p["ratio"].sum().release(EXACT) for k, p in wide.partition("high")},
        points=twice.vectors(["twice", "z"], scale=True).gram().release(dp.Gaussian(sigma=1e-9)),
        median=twice["twice"].median().release(dp.QuantileExponential(scale=1e-3)),
        logs=(table["y"].log() + (table["x"] * 0.01).exp()).sum().release(EXACT),
        most=twice.examples(["twice", "ratio"], "high").domain and twice.count().release(TINY),
    )


def data(size: int = 2_000) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    odd = np.array([0.1, 1.7, -3.3, 2.9, 1e300, -1e300, NAN, 5.5, 1 / 3])
    columns = {name: draw.choice(odd, size) for name in BOUNDS}
    return {**columns, "town": draw.choice(np.array(["A", "B", "elsewhere"]), size)}


def answers(form: Any) -> dict[str, Any]:
    result = everything().simulate(seed=1, people=form)
    return {
        name: np.asarray(list(v.values()) if isinstance(v, dict) else v).tolist()
        for name in {path[0] for path, _ in everything().outputs}
        for v in [result[name]]
    }


@pytest.fixture(scope="module")
def in_memory() -> dict[str, Any]:
    return answers(data())


@pytest.mark.parametrize("form", ["csv", "parquet", "pieces", "polars", "dask"])
def test_the_same_integers_on_every_engine(
    form: str, in_memory: dict[str, Any], tmp_path: Path
) -> None:
    frame = pl.DataFrame(data())
    source: Any = frame
    if form == "csv":
        source = tmp_path / "people.csv"
        frame.write_csv(source)
    elif form == "parquet":
        source = tmp_path / "people.parquet"
        frame.write_parquet(source)
    elif form == "pieces":
        paths = []
        for i, part in enumerate(frame.iter_slices(701)):
            paths.append(tmp_path / f"{i}.parquet")
            part.write_parquet(paths[-1], row_group_size=97)
        source = dp.Files(paths, engine="threads")
    elif form == "dask":
        distributed = pytest.importorskip("distributed")
        dataframe = pytest.importorskip("dask.dataframe")
        with (
            # another process: functions are sent, and rows are not
            distributed.LocalCluster(n_workers=1, dashboard_address=None) as cluster,
            distributed.Client(cluster),
        ):
            source = dataframe.from_pandas(frame.to_pandas(), npartitions=5)
            assert answers(source) == in_memory
            return
    assert answers(source) == in_memory


def test_only_the_columns_that_are_needed_are_read() -> None:
    table = people(other=(0, 1))
    wide = table.with_columns(a=table["x"] + table["y"], b=table["z"] + table["other"])
    wider = wide.with_columns(c=wide["a"] * 2, a=wide["b"])
    for query, names in (
        (wide["a"].sum(), {"x", "y"}),
        (wide.count(), set[str]()),
        (wider["c"].sum(), {"x", "y"}),
        (wider["a"].sum(), {"z", "other"}),
        (wider.filter(wider["c"] > 1).filter(wider["y"] > 1).count(), {"x", "y"}),
        (wider.group_by("c", edges=[0, 1]).sum("a"), {"x", "y", "z", "other"}),
        (wide.partition("b", edges=[0, 1])["[0, 1]"]["x"].sum(), {"x", "z", "other"}),
    ):
        plan = dp.Pipeline(n=query.release(EXACT))
        assert columns_needed(plan.structure) == {"people": names}
        (one,) = plan.passes
        assert set(one.columns or ()) == names


def test_a_pass_computes_a_column_once() -> None:
    calls = []

    class Counted:
        def __call__(self, columns: Any) -> Any:
            calls.append(1)
            return columns["x"] * 2

    rows = MemoryRows({"x": np.arange(10.0)}, np.arange(10))
    wide = ComputedRows(rows, (("twice", Counted()),))
    requests = [
        RowSum(wide, lambda c, k=k: np.array([int(c["twice"].sum()) * k]), lambda t: t)  # type: ignore[misc]
        for k in (1, 2)
    ] + [RowSum(rows, lambda c: np.array([int(c["x"].sum())]), lambda t: t)]
    (one,) = passes(requests)
    assert [int(t[0]) for t in one.totals()] == [90, 180, 45]
    assert len(calls) == 1


def test_a_condition_has_no_truth_value() -> None:
    x = people()["x"]
    with pytest.raises(TypeError, match=r"& \(and\), \| \(or\) and ~ \(not\)"):
        _ = (x > 1) and (x < 3)
    with pytest.raises(TypeError, match="parentheses"):
        _ = 1 < x < 3
    with pytest.raises(TypeError, match="parentheses"):
        _ = not x > 1


@pytest.mark.parametrize(
    ("name", "at"), [("exp", -1000.0), ("exp", 1e-17), ("exp", -1e-17), ("sqrt", 1 - 2.0**-53)]
)
def test_bounds_hold_where_a_function_is_rounded_to_0_or_1(name: str, at: float) -> None:
    low, high = expression([name, ["column", "x", at, at]]).bounds or (0.0, 0.0)
    with mpmath.workdps(40):
        assert mpmath.mpf(low) <= getattr(mpmath, name)(mpmath.mpf(at)) <= mpmath.mpf(high)


def test_an_expression_is_bounded_in_size() -> None:
    x = people()["x"]
    with pytest.raises(dp.DeclarationError, match="with_columns"):
        functools.reduce(operator.add, [x] * 60)
    with pytest.raises(dp.DeclarationError, match="with_columns"):
        functools.reduce(lambda e, _: e.clip(0, 1) + e, range(20), x)
    condition = people()["x"] > 0
    for k in range(100):  # a chain is as deep as one
        condition = condition | (people()["x"] > k)
    assert condition.expression.depth == 3


@pytest.mark.parametrize(
    "wrong",
    [
        ["column", "x"],
        ["+", ["column", "x", 0, 1]],
        ["+", ["column", "x"], 1],
        ["?", 1, 2],
        ["released", 1],
        ["+", 1, 2],
        ["+", ["column", "x", 0, 1], NAN],
        ["+", ["column", "x", 0, 1], True],
        ["column", "x", 1, 0],
        ["clip", ["column", "x", 0, 1], 3],
        ["where", 1, 2, 3],
        ["year", ["column", "x", 0, 1]],
        ["/", ["column", "x", 0, 1], ["column", "x", 0, 1]],
        ["exp", ["column", "x", 0, 1000]],
        ["*", ["column", "x", 0, 1e200], ["column", "x", 0, 1e200]],
        ["column", "nowhere", 0, 1],
        "x",
        [],
        [["+"]],
    ],
)
def test_documents_hold_no_other_expressions(wrong: Any) -> None:
    plan = dp.Pipeline(total=people()["x"].abs().sum().release(EXACT))
    document = plan.to_document()
    (node,) = [each for each in document["nodes"] if each["kind"] == "computed"]
    node["expression"] = wrong
    with pytest.raises(dp.PlanError):
        dp.load(document)


# --- joins with public tables, and units

TOWNS = {"town": ["A", "B"], "size": [5, None], "coast": [True, False], "zone": ["n", "s"]}


def test_a_join_looks_up_each_row() -> None:
    table = people(town=["A", "B"]).join(TOWNS, on="town")
    wide = table.with_columns(twice=table["size"] * 2)
    data = {
        **{name: [1.0] * 5 for name in BOUNDS},
        "town": ["A", "B", "A", "elsewhere", None],
    }
    plan = dp.Pipeline(
        size=table["size"].sum().release(EXACT),
        twice=wide["twice"].sum().release(EXACT),
        zones=table["zone"].histogram().release(TINY),
        coast=table.group_by("coast").count().release(TINY),
        missing=table.filter(~table["zone"].is_present()).count().release(TINY),
        size_missing=table.filter(~table["size"].is_present()).count().release(TINY),
        inland=table.filter(table["coast"] == False).count().release(TINY),  # noqa: E712
    )
    result = plan.simulate(seed=1, people=data)
    assert [round(float(result[k])) for k in ("size", "twice")] == [10, 20]
    assert result["zones"].tolist() == [2, 1]
    assert result["coast"].tolist() == [1, 2]
    assert [result[k] for k in ("missing", "size_missing", "inland")] == [2, 3, 1]
    again = dp.load(plan.to_json())
    assert again.fingerprint == plan.fingerprint
    assert again.simulate(seed=1, people=data)["zones"].tolist() == [2, 1]
    assert columns_needed(plan.structure) == {"people": {"town"}}
    assert (
        table.domain.columns["size"] == dp.dataset("t", columns={"s": (5, 5)}).domain.columns["s"]
    )


@pytest.mark.parametrize(
    ("public", "message"),
    [
        ({"town": ["A", "A"], "size": [1, 2]}, "two rows with town = 'A'"),
        ({"town": ["A", None], "size": [1, 2]}, "is missing"),
        ({"town": ["A", "B"], "size": [1]}, "one length"),
        ({"town": ["A", "B"]}, "beside"),
        ({"city": ["A"], "size": [1]}, "no column 'town'"),
        ({"town": [1, 2], "size": [1, 2]}, "no row would match"),
        ({"town": ["A", "B"], "x": [1, 2]}, "rename"),
        ({"town": ["A", "B"], "size": [1, "large"]}, "alone"),
        ({"town": ["A", "B"], "size": [None, None]}, "no value at all"),
        ({"town": ["A", "B"], "size": [[1], [2]]}, "no value at all"),
        ([1, 2], "mapping"),
    ],
)
def test_a_join_refuses(public: Any, message: str) -> None:
    with pytest.raises(dp.DeclarationError, match=message):
        people(town=["A", "B"]).join(public, on="town")


@pytest.mark.parametrize("form", ["pandas", "polars", "arrow"])
def test_a_join_with_a_frame(form: str) -> None:
    frame = pl.DataFrame(TOWNS)
    public: Any = {"pandas": frame.to_pandas, "polars": lambda: frame, "arrow": frame.to_arrow}
    table = people(town=["A", "B"])
    one, other = table.join(TOWNS, on="town"), table.join(public[form](), on="town")
    assert one.domain == other.domain


@pytest.mark.parametrize("form", ["memory", "csv", "pieces"])
def test_units_are_counted_once_wherever_their_rows_are(form: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    frame = pl.DataFrame({"id": draw.integers(0, 400, 2_000), "x": draw.uniform(-5, 10, 2_000)})
    table = dp.dataset("people", columns={"x": (-5, 10)}, unit="id", rows_per_unit=3)
    some = table.filter(table["x"] > 5)
    plan = dp.Pipeline(
        all=table.count_distinct().release(TINY), some=some.count_distinct().release(TINY)
    )
    source: Any = frame
    if form == "csv":
        source = tmp_path / "people.csv"
        frame.write_csv(source)
    elif form == "pieces":
        paths = []
        for i, part in enumerate(frame.iter_slices(301)):
            paths.append(tmp_path / f"{i}.parquet")
            part.write_parquet(paths[-1])
        source = dp.Files(paths, engine="threads")
    result = plan.simulate(seed=1, people=source)
    first = frame.with_columns(k=pl.int_range(pl.len()).over("id")).filter(pl.col("k") < 3)
    expected = first.filter(pl.col("x") > 5)["id"].n_unique()
    assert (result["all"], result["some"]) == (frame["id"].n_unique(), expected)


def test_a_unit_in_several_parts_is_counted_in_each() -> None:
    for rows, epsilon in ((1, 1.0), (2, 2.0)):
        table = dp.dataset("t", columns={"c": ["A", "B"]}, unit="id", rows_per_unit=rows)
        parts = {
            k: p.count_distinct().release(dp.Laplace(scale=1)) for k, p in table.partition("c")
        }
        assert dp.Pipeline(parts=parts).certify().epsilon == pytest.approx(epsilon, rel=1e-5)


def test_a_column_of_bool_is_a_condition() -> None:
    columns = {"ill": bool, "old": [0, 1], "age": (0, 100)}
    people = dp.dataset("people", columns=columns)
    rows = {"ill": [True, False, None, True], "old": [1, 0, 1, 0], "age": [70, 40, 60, 30]}
    old, ill = people["old"], people["ill"]
    counted = {
        "ill": people.filter(ill),
        "well": people.filter(~ill),
        "both": people.filter(ill & old),
        "either": people.filter((people["age"] > 50) | ill),
        "none": people.filter(~(old | ill) & (people["age"] > 0)),
    }
    plan = dp.Pipeline(
        **{name: table.count() for name, table in counted.items()},
        pair=people.counts([ill, old]),
        ages=dp.where(ill, people["age"], 0).sum(),
    ).fix(noise=1e-9)
    result = plan.simulate(seed=1, people=rows)
    assert [result[name] for name in counted] == [2, 1, 1, 3, 1]
    assert result["pair"].tolist() == [2, 2]
    assert result["ages"] == pytest.approx(100, abs=1e-5)
    for wrong in (
        lambda: people.filter(people["age"]),
        lambda: ~people["age"],
        lambda: ill & people["age"],
        lambda: ill & 3,
    ):
        with pytest.raises(dp.DeclarationError, match=r"compare it|joins conditions"):
            wrong()
