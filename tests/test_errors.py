"""Wrong input is refused when it is declared, with the value, the rule and the remedy."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from plans import add, data, people

import accountants
import adaptive_dp as dp

NAN, INF = float("nan"), float("inf")
BAD_NUMBERS = [0, -1, NAN, INF, -INF, "x", "1", True, None, [1], 10**400, 1j, np.array([1.0])]


def table(**more: Any) -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 10), "r": ["A", "B"], "z": None}, **more)


def lap(scale: Any = 1.0) -> dp.Laplace:
    return dp.Laplace(scale=scale)


def plan() -> dp.Pipeline:
    return dp.Pipeline(n=table().count().release(lap()), s=table()["x"].sum().release(lap(10)))


FRAME = {"x": np.array([1.0, 2.0]), "r": np.array(["A", "B"]), "z": np.array([0.0, 1.0])}

Case = tuple[Callable[[], Any], type[Exception], str]
DECLARED: dict[str, Case] = {
    "a filter by another table's column": (
        lambda: table().filter(dp.dataset("u", columns={"x": (0, 9)})["x"] > 1),
        dp.DeclarationError,
        "'x > 1'.*'u'",
    ),
    "conditions without parentheses": (
        lambda: (table()["x"] > 1) & table()["x"] < 3,
        dp.DeclarationError,
        "parentheses",
    ),
    "a number as a condition": (
        lambda: table().filter(table()["x"] + 1),  # type: ignore[arg-type]
        dp.DeclarationError,
        r"table\['age'\] >= 18",
    ),
    "a divisor of 0": (
        lambda: table()["x"] / (table()["x"] - 1),
        dp.DeclarationError,
        r"x / \(x - 1\) the divisor may be 0.*clip",
    ),
    "a logarithm of 0": (
        lambda: table()["x"].log(),
        dp.DeclarationError,
        r"log\(x\) needs positive values.*clip",
    ),
    "a power of two columns": (
        lambda: table()["x"] ** table()["x"],  # type: ignore[operator]
        dp.DeclarationError,
        "an exponent must be an int",
    ),
    "columns of two tables": (
        lambda: table()["x"] + table().filter(table()["x"] > 1)["x"],
        dp.DeclarationError,
        "different tables",
    ),
    "a column of a released value": (
        lambda: table()["x"] - table().count().release(dp.Laplace(scale=1)),
        dp.DeclarationError,
        r"dp\.post",
    ),
    "an order of str": (
        lambda: table().filter(table()["r"] < table()["x"]),
        dp.DeclarationError,
        r"'r' holds .*isin",
    ),
    "nothing equals None": (
        lambda: table().filter(table()["x"] == None),  # type: ignore[arg-type] # noqa: E711
        dp.DeclarationError,
        "is_present",
    ),
    "a table in a column": (
        lambda: table().with_columns(y=3),  # type: ignore[arg-type]
        dp.DeclarationError,
        "'y' must be computed",
    ),
    "clipped categories": (
        lambda: table()["r"].clip(0, 1),
        dp.DeclarationError,
        "'r'",
    ),
    "edges of categories": (
        lambda: table()["r"].histogram([0, 1]),
        dp.DeclarationError,
        "'r'",
    ),
    "a key that is no category": (
        lambda: table().partition("r", ["A", "Q"]),
        dp.DeclarationError,
        r"'r'.*'Q'.*\['A', 'B'\]",
    ),
    "a value that is no category": (
        lambda: table().filter(table()["r"].isin(["Q"])),
        dp.DeclarationError,
        "'r'.*'Q'",
    ),
    "a str among numbers": (
        lambda: table().filter(table()["x"].isin(["Q"])),
        dp.DeclarationError,
        "'x'",
    ),
    "a unit with bounds": (
        lambda: dp.dataset("t", columns={"id": (0, 9)}, unit="id"),
        dp.DeclarationError,
        "'id'",
    ),
    "a mapping for a column": (
        lambda: dp.dataset("t", columns={"x": {"a": 1}}),
        dp.DeclarationError,
        r"'x'.*\['a'\]",
    ),
    "categories in a tuple of two": (
        lambda: dp.dataset("t", columns={"x": ("a", "b")}),
        dp.DeclarationError,
        "'x'",
    ),
    "one text for a list of columns": (
        lambda: table().vectors("x"),
        dp.DeclarationError,
        r"'x'.*\['x'\]",
    ),
    "one text for a learner's features": (
        lambda: dp.AdaSSP(features="x", target="y"),
        dp.DeclarationError,
        "'x'",
    ),
    "one text for values": (
        lambda: table()["r"].isin("AB"),
        dp.DeclarationError,
        "'AB'",
    ),
    "a number for values": (
        lambda: table()["r"].isin(3),
        dp.DeclarationError,
        r"\b3\b",
    ),
    "reversed bounds": (
        lambda: dp.dataset("t", columns={"x": (10, 0)}),
        dp.DeclarationError,
        r"'x'.*\(10, 0\)",
    ),
    "NaN bounds": (
        lambda: dp.dataset("t", columns={"x": (NAN, 0)}),
        dp.DeclarationError,
        r"'x'.*\bnan\b",
    ),
    "infinite bounds": (
        lambda: dp.dataset("t", columns={"x": (0, INF)}),
        dp.DeclarationError,
        r"\binf\b",
    ),
    "huge bounds": (
        lambda: dp.dataset("t", columns={"x": (0, 10**400)}),
        dp.DeclarationError,
        "'x'",
    ),
    "bounds of strings": (
        lambda: dp.dataset("t", columns={"x": ("0", "1")}),
        dp.DeclarationError,
        r"column 'x'",
    ),
    "three bounds": (
        lambda: dp.dataset("t", columns={"x": (0, 1, 2)})["x"].sum(),
        dp.DeclarationError,
        r"'x'.*\b3\b",
    ),
    "a column in one number": (
        lambda: dp.dataset("t", columns={"x": 3}),
        dp.DeclarationError,
        r"'x'.*\(0, 100\)",
    ),
    "no categories": (
        lambda: dp.dataset("t", columns={"x": []}),
        dp.DeclarationError,
        "'x'",
    ),
    "categories of lists": (
        lambda: dp.dataset("t", columns={"x": [["a"], ["b"]]}),
        dp.DeclarationError,
        r"\['a'\]",
    ),
    "columns as a list": (
        lambda: dp.dataset("t", columns=["x"]),  # type: ignore[arg-type]
        dp.DeclarationError,
        "columns",
    ),
    "a column's name": (
        lambda: dp.dataset("t", columns={3: (0, 1)}),  # type: ignore[dict-item]
        dp.DeclarationError,
        r"\b3\b",
    ),
    "the data set's name": (
        lambda: dp.dataset("my data", columns={}),
        dp.DeclarationError,
        "'my data'",
    ),
    "a name that simulate takes": (
        lambda: dp.dataset("seed", columns={}),
        dp.DeclarationError,
        "'seed'",
    ),
    "a relation": (
        lambda: table(neighbors="swap"),
        dp.DeclarationError,
        "neighbors.*add_remove.*replace_one",
    ),
    "rows without a unit": (
        lambda: table(rows_per_unit=5),
        dp.DeclarationError,
        "rows_per_unit=5.*unit=",
    ),
    "rows of 0": (
        lambda: table(unit="id", rows_per_unit=0),
        dp.DeclarationError,
        r"rows_per_unit.*10\^9",
    ),
    "a size that is private": (
        lambda: table(size=5),
        dp.DeclarationError,
        "add_remove.*replace_one",
    ),
    "a size of 0": (
        lambda: table(size=0, neighbors="replace_one"),
        dp.DeclarationError,
        r"\bsize\b",
    ),
    "a size of True": (
        lambda: table(size=True, neighbors="replace_one"),
        dp.DeclarationError,
        r"\bsize\b.*\bTrue\b",
    ),
    "a column that is not declared": (
        lambda: table()["w"],
        dp.DeclarationError,
        r"'t'.*'w'.*\['x', 'r', 'z'\]",
    ),
    "a column by number": (lambda: table()[0], dp.DeclarationError, r"\.vectors"),
    "a sum without bounds": (
        lambda: table()["z"].sum(),
        dp.DeclarationError,
        r"'z'.*\.clip",
    ),
    "a mean without bounds": (lambda: table()["z"].mean(), dp.DeclarationError, "'z'"),
    "vectors without bounds": (
        lambda: table().vectors(["z"]),
        dp.DeclarationError,
        "'z'.*'t'",
    ),
    "a reversed clip": (
        lambda: table()["z"].clip(1, 0),
        dp.DeclarationError,
        r"\(1, 0\)",
    ),
    "a norm of 0": (
        lambda: table().vectors(["x"]).clip(norm=0),
        dp.DeclarationError,
        r"\b0\b",
    ),
    "times a column of another table": (
        lambda: table().vectors(["x"]).times(people()["x"]),
        dp.DeclarationError,
        "times",
    ),
    "times a column's name": (
        lambda: table().vectors(["x"]).times("x"),
        dp.DeclarationError,
        r"\['age'\]",
    ),
    "a histogram of nothing": (
        lambda: table()["z"].histogram(),
        dp.DeclarationError,
        "'z'",
    ),
    "edges that fall": (
        lambda: table()["z"].histogram([1, 0]),
        dp.DeclarationError,
        r"'z'.*\[1, 0\]",
    ),
    "edges that are NaN": (
        lambda: table()["z"].histogram([0, NAN]),
        dp.DeclarationError,
        "'z'",
    ),
    "edges that are huge": (
        lambda: table()["z"].histogram([0, 10**400]),
        dp.DeclarationError,
        "'z'",
    ),
    "a partition of no categories": (
        lambda: table().partition("z"),
        dp.DeclarationError,
        r"keys=.*\[\.\.\.\].*edges=",
    ),
    "a part that is not there": (
        lambda: table().partition("r")["C"],
        dp.DeclarationError,
        r"'C'.*\['A', 'B'\]",
    ),
    "filter(True)": (
        lambda: table().filter(True),  # type: ignore[arg-type]
        dp.DeclarationError,
        r"\['age'\].*\bbool\b",
    ),
    "a filter by NaN": (
        lambda: table().filter(table()["x"] > NAN),
        dp.DeclarationError,
        r"\bnan\b",
    ),
    "a filter by a str": (
        lambda: table().filter(table()["x"] > "3"),
        dp.DeclarationError,
        "'3'",
    ),
    "a filter of categories": (
        lambda: table().filter(table()["r"] > 3),
        dp.DeclarationError,
        "'r'",
    ),
    "a filter by a private value": (
        lambda: table()["x"] > table().count(),
        dp.LeakError,
        "t -> count",
    ),
    "a rate of 0": (
        lambda: table().sample(0),
        dp.DeclarationError,
        r"\b0\b.*\b1\b",
    ),
    "a rate of NaN": (lambda: table().sample(NAN), dp.DeclarationError, r"sample's rate"),
    "a sample of exchanged people": (
        lambda: dp.Pipeline(
            n=table(neighbors="replace_one").sample(0.5).count().release(dp.Laplace(scale=1))
        ),
        dp.DeclarationError,
        r"replace_one.*dp\.Gaussian, got Laplace.*neighbors='add_remove'",
    ),
    "a sample of a sample of exchanged people": (
        lambda: dp.Pipeline(
            n=table(neighbors="replace_one").sample(0.5).sample(0.1).count().release(dp.Gaussian())
        ),
        dp.DeclarationError,
        r"replace_one.*one sample, at the product of both rates",
    ),
    "a release by no mechanism": (
        lambda: table().count().release(1.0),  # type: ignore[arg-type]
        dp.DeclarationError,
        r"Mechanism.*dp\.Laplace\(scale=1\).*\bfloat\b",
    ),
    "a post of a private value": (
        lambda: dp.post(add, table()["x"].sum()),
        dp.LeakError,
        r"\b1\b.*t -> x -> sum in \[0, 10\]",
    ),
    "a post of a number": (lambda: dp.post(add, 3), dp.DeclarationError, r"dp\.public\(value\)"),  # type: ignore[arg-type]
    "a post of nothing": (
        lambda: dp.post(add),
        dp.DeclarationError,
        r"dp\.public",
    ),
    "a post of no function": (
        lambda: dp.post(3, table().count().release(lap())),  # type: ignore[arg-type]
        dp.DeclarationError,
        r"\bint\b",
    ),
    "a constant that is none": (
        lambda: dp.public(object()),
        dp.DeclarationError,
        r"\bobject\b",
    ),
    "a constant of bytes": (lambda: dp.public(b"ab"), dp.DeclarationError, r"\bbytes\b"),
    "a constant that is complex": (lambda: dp.public(np.complex64(1)), dp.DeclarationError, r"got"),
    "a constant with numbers as keys": (
        lambda: dp.public({1: 2}),
        dp.DeclarationError,
        r"\b1\b",
    ),
    "a group of a private value": (
        lambda: dp.group("g", table().count()),  # type: ignore[arg-type]
        dp.LeakError,
        r"'g'.*t -> count",
    ),
    "a private output": (
        lambda: dp.Pipeline(a={"b": table()["x"].clip(0, 5)}),
        dp.LeakError,
        r"'a\.b'.*t -> x -> clip",
    ),
    "no output": (lambda: dp.Pipeline(), dp.DeclarationError, "Pipeline"),
    "an empty output": (lambda: dp.Pipeline(a={}), dp.DeclarationError, "'a'"),
    "an output that is a number": (
        lambda: dp.Pipeline(a=3),
        dp.DeclarationError,
        r"'a'.*dp\.public",
    ),
    "outputs that print alike": (
        lambda: dp.Pipeline(a={1: dp.public(1), "1": dp.public(2)}),
        dp.DeclarationError,
        r"'a\.1'",
    ),
    "an output without a name": (
        lambda: dp.Pipeline(**{"": dp.public(1)}),
        dp.DeclarationError,
        "name",
    ),
    "two data sets under one name": (
        lambda: dp.Pipeline(
            a=table().count().release(lap()),
            b=dp.dataset("t", columns={}).count().release(lap()),
        ),
        dp.DeclarationError,
        "'t'",
    ),
    "two relations": (
        lambda: dp.Pipeline(
            a=table().count().release(lap()), b=people("zero_out").count().release(lap())
        ),
        dp.NeighborError,
        "'people'",
    ),
    "a parameter that is not there": (
        lambda: dp.parameter(table().count().release(lap()), "sigma"),
        dp.DeclarationError,
        "Laplace.*'sigma'",
    ),
    "a free parameter without a name": (
        lambda: dp.Free(""),
        dp.DeclarationError,
        r"\bFree\b",
    ),
    "a learner of its own target": (
        lambda: table().solve(dp.AdaSSP(features=["x"], target="x")),
        dp.DeclarationError,
        r"\bAdaSSP\b",
    ),
    "half a budget": (
        lambda: people().solve(dp.AdaSSP(features=["x"], target="y"), epsilon=1),
        dp.DeclarationError,
        r"\bAdaSSP\b",
    ),
    "a delta of 1": (
        lambda: plan().certify(1),
        dp.DeclarationError,
        r"\bdelta\b.*\b1\b",
    ),
    "a delta below 0": (lambda: plan().certify(-1e-9), dp.DeclarationError, r"\bdelta\b"),
    "a delta that is NaN": (lambda: plan().certify(NAN), dp.DeclarationError, r"\bdelta\b"),
    "a delta in words": (lambda: plan().certify("0"), dp.DeclarationError, r"\bdelta\b"),  # type: ignore[arg-type]
    "nothing to calibrate": (
        lambda: plan().calibrate(epsilon=1),
        dp.DeclarationError,
        "'b'",
    ),
    "nothing to fix": (
        lambda: plan().fix(b=1),
        dp.DeclarationError,
        r"\bb\b",
    ),
    "a seed": (
        lambda: plan().simulate(seed=-1, t=FRAME),
        dp.DeclarationError,
        r"\bseed\b",
    ),
    "a seed in words": (
        lambda: plan().simulate(seed="1", t=FRAME),  # type: ignore[arg-type]
        dp.DeclarationError,
        r"\bseed\b",
    ),
    "an unknown data set": (
        lambda: plan().run(t=FRAME, u=FRAME),
        dp.DataError,
        r"\['t'\].*\['t', 'u'\]",
    ),
    "no data set": (lambda: plan().run(), dp.DataError, r"run\(people=frame\)"),
}


@pytest.mark.parametrize("name", DECLARED)
def test_declared(name: str) -> None:
    wrong, error, message = DECLARED[name]
    with pytest.raises(error, match=message) as caught:
        wrong()
    assert isinstance(caught.value, dp.PlanError)
    assert type(caught.value) is error


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=lambda v: str(v)[:12])
def test_noise_parameters(value: Any) -> None:
    with pytest.raises(dp.DeclarationError, match=r"Laplace\.scale"):
        dp.Laplace(scale=value)
    with pytest.raises(dp.DeclarationError, match=r"Gaussian\.sigma.*Free\('sigma'\)"):
        dp.Gaussian(sigma=value)
    if value is not None:  # None means the query's sensitivity
        with pytest.raises(dp.DeclarationError, match=r"Free\('b'\).*\.weight"):
            dp.Free("b", weight=value)


@pytest.mark.parametrize("value", BAD_NUMBERS, ids=lambda v: str(v)[:12])
def test_budgets(value: Any) -> None:
    free = dp.Pipeline(n=table().count().release(lap(dp.Free("b"))))
    with pytest.raises(dp.DeclarationError, match="epsilon"):
        free.calibrate(epsilon=value)
    with pytest.raises(dp.DeclarationError, match=r"\bb\b"):
        free.fix(b=value)


def test_what_is_free_is_named() -> None:
    free = dp.Pipeline(n=table().count().release(lap(dp.Free("b"))))
    for verb in (free.certify, lambda: free.run(t=FRAME), lambda: free.simulate(seed=1, t=FRAME)):
        with pytest.raises(dp.DeclarationError, match=r"calibrate\(epsilon="):
            verb()


def test_a_target_that_fixed_noise_exceeds() -> None:
    both = dp.Pipeline(
        n=table().count().release(lap(dp.Free("b"))), s=table()["x"].sum().release(lap(1.0))
    )
    with pytest.raises((dp.CalibrationError, accountants.DomainError), match=r"epsilon"):
        both.calibrate(epsilon=0.5)


HANDLES: dict[str, Callable[[], Any]] = {
    "table": table,
    "column": lambda: table()["x"],
    "query": lambda: table().count(),
    "vectors": lambda: table().vectors(["x"]),
    "release": lambda: table().count().release(lap()),
    "public": lambda: dp.public(1),
}


@pytest.mark.parametrize("name", HANDLES)
@pytest.mark.parametrize(
    "use",
    [bool, iter, list, len, pickle.dumps, copy.deepcopy, float, int, lambda h: 1 in h, np.asarray],
    ids=["bool", "iter", "list", "len", "pickle", "deepcopy", "float", "int", "in", "asarray"],
)
def test_handles_are_no_values(name: str, use: Callable[[Any], Any]) -> None:
    if use is np.asarray:  # an array of one object, which is the handle
        assert use(HANDLES[name]()).dtype == object
        return
    with pytest.raises(TypeError):
        use(HANDLES[name]())


def test_conditions_are_no_values() -> None:
    column = table()["x"]
    with pytest.raises(TypeError, match=r"x > .*table\.filter"):
        bool(column > 3)
    with pytest.raises(TypeError):
        _ = 1 < column < 3
    with pytest.raises(TypeError):
        _ = (column > 1) and (column < 3)


WRONG_DATA: dict[str, tuple[Any, str]] = {
    "a missing column": ({"x": [1.0], "r": ["A"]}, "'t'.*'z'"),
    "strings for numbers": (
        {**FRAME, "x": np.array(["a", "b"])},
        r"'x'.*\bnumeric\b.*\bstrings\b",
    ),
    "objects for numbers": (
        {**FRAME, "x": np.array([1.0, "Ann"], dtype=object)},
        "objects",
    ),
    "dates for numbers": (
        {**FRAME, "x": np.array(["2020", "2021"], dtype="datetime64[Y]")},
        r"\bdates\b",
    ),
    "complex for numbers": (
        {**FRAME, "x": np.array([1j, 2j])},
        "'t'",
    ),
    "numbers for strings": (
        {**FRAME, "r": np.array([1, 2])},
        "'r'",
    ),
    "columns of other lengths": ({**FRAME, "x": np.array([1.0])}, "'t'"),
    "a column of columns": ({**FRAME, "x": np.ones((2, 2))}, r"\b2\b"),
    "a column of one number": (
        {**FRAME, "x": 3.0},
        r"\bfloat\b",
    ),
    "a plain array": (np.ones((2, 3)), "'t'"),
    "a list": ([1, 2], r"\bdata\b"),
    "None": (None, r"\bdata\b"),
    "a str": ("30, 40", r"\bdata\b"),
    "no file": ("data.csv", r"data\.csv"),
}


@pytest.mark.parametrize("name", WRONG_DATA)
def test_data_that_does_not_fit(name: str) -> None:
    frame, message = WRONG_DATA[name]
    with pytest.raises(dp.DataError, match=message) as caught:
        plan_with_z().run(t=frame)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "Ann" not in str(caught.value)


def plan_with_z() -> dp.Pipeline:
    source = table()
    return dp.Pipeline(
        n=source.count().release(lap()),
        z=source["z"].histogram([0, 1]).release(lap()),
        r=source["r"].histogram().release(lap()),
        s=source["x"].sum().release(lap()),
    )


def test_a_size_that_does_not_fit() -> None:
    sized = table(neighbors="replace_one", size=3)
    with pytest.raises(dp.DataError, match=r"size=3.*\b2\b"):
        dp.Pipeline(m=sized["x"].fill(0).mean().release(lap())).run(t=FRAME)


def test_no_data_at_all_is_data() -> None:
    empty = {k: v[:0] for k, v in FRAME.items()}
    seen = plan_with_z().simulate(seed=1, t=empty)
    assert abs(seen["n"]) < 20
    assert seen["r"].shape == (2,)
    vectors = table().vectors(["x"], scale=True, intercept=True)
    more = dp.Pipeline(
        gram=vectors.gram().release(dp.Gaussian(sigma=1.0)),
        least=vectors.smallest_eigenvalue().release(lap()),
        mean=table()["x"].mean().release(lap()),
        parts={k: p.count().release(lap()) for k, p in table().partition("r", whole_units=True)},
        sample=table().sample(0.5).count().release(lap()),
    )
    assert more.simulate(seed=1, t=empty)["gram"].shape == (2, 2)


def test_odd_values_are_data() -> None:
    """NaN, infinities, huge numbers and unknown categories are clipped, or lie in no part."""
    seen = plan_with_z().simulate(
        seed=1,
        t={
            "x": np.array([NAN, INF, -INF, 1e308, -1e308]),
            "r": np.array(["A", "?", "", "B", "b"]),
            "z": np.array([NAN, INF, -INF, 1e308, 0.5]),
        },
    )
    assert seen["s"] == pytest.approx(20, abs=20)
    assert np.all(np.abs(seen["z"] - 1) < 20)


def test_a_frame_with_a_column_called_total() -> None:
    """A frame's columns are attributes of pandas frames: none makes it a Rows of its own."""
    source = dp.dataset(
        "t", columns={"total": (0, 1), "bound": (0, 1), "gather": (0, 1)}, unit="id"
    )
    frame = pd.DataFrame({"total": [1.0], "bound": [1.0], "gather": [1.0], "id": ["a"]})
    plan = dp.Pipeline(n=source.count().release(lap(1e-6)))
    assert plan.run(t=frame)["n"] == pytest.approx(1, abs=0.01)
    with pytest.raises(dp.DataError, match="'id'"):
        plan.run(t=frame.drop(columns="id"))


def test_sizes_that_overflow_are_reported() -> None:
    source = dp.dataset("t", columns={"x": (0, 1e289)}, unit="id", rows_per_unit=10**9)
    big = dp.Pipeline(s=source["x"].sum().release(lap(1e-300)))
    with pytest.raises(dp.DeclarationError, match=r"s: Laplace\(scale=1e-300\).loss"):
        big.certify()
    with pytest.raises(dp.DeclarationError):
        dp.dataset("t", columns={"x": (0, 1e200)}).vectors(["x"]).gram()


def test_messages_name_no_datum() -> None:
    frame = data(1) | {"x": np.array(["SECRET"] * len(data(1)["x"]))}
    with pytest.raises(dp.DataError) as caught:
        dp.Pipeline(n=people()["x"].sum().release(lap())).run(people=frame)
    assert "SECRET" not in str(caught.value)
