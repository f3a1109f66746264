"""One table in every form that people hold it in: the same answers, and no copy without need."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.data.cells import read_column
from adaptive_dp.graph.errors import DataError

pytest.importorskip("narwhals")
pd: Any = pytest.importorskip("pandas")
pl: Any = pytest.importorskip("polars")
pa: Any = pytest.importorskip("pyarrow")

X = [1.5, None, 3.0, 4.0, None, 90.0]
K = [1, 2, None, 4, 2**53 + 1, 6]
R = ["A", "B", None, "A", "C", "B"]
IDS = ["a", "b", "c", "d", "e", None]

PEOPLE = dp.dataset(
    "people",
    columns={"x": (0, 10), "k": (0, 5), "r": ["A", "B", "C"]},
    unit="id",
    rows_per_unit=1,
)
EXACT = dp.Laplace(scale=1e-9)
PLAN = dp.Pipeline(
    n=PEOPLE.count().release(EXACT),
    x=PEOPLE["x"].sum().release(EXACT),
    k=PEOPLE["k"].sum().release(EXACT),
    r=PEOPLE["r"].histogram().release(EXACT),
)


def arrow() -> Any:
    return pa.table({"x": X, "k": K, "r": R, "id": IDS})


def polars() -> Any:
    return pl.DataFrame({"x": X, "k": K, "r": R, "id": IDS})


def pandas(number: Any, integer: Any, text: Any) -> Any:
    return pd.DataFrame(
        {
            "x": pd.array(X, number),
            "k": pd.array(K, integer),
            "r": pd.array(R, text),
            "id": pd.array(IDS, text),
        }
    )


FORMS: dict[str, Callable[[], Any]] = {
    "lists": lambda: {"x": X, "k": K, "r": R, "id": IDS},
    "pandas, NumPy's types": lambda: pd.DataFrame({"x": X, "k": K, "r": R, "id": IDS}),
    "pandas, nullable": lambda: pandas("Float64", "Int64", "string"),
    "pandas, strings in Arrow": lambda: pandas("Float64", "Int64", "string[pyarrow]"),
    "pandas, all in Arrow": lambda: pandas(
        pd.ArrowDtype(pa.float64()), pd.ArrowDtype(pa.int64()), pd.ArrowDtype(pa.large_string())
    ),
    "pandas, categorical": lambda: pandas("Float64", "Int64", "string").astype(
        {"r": "category", "id": "category"}
    ),
    "Arrow": arrow,
    "Arrow, in chunks": lambda: pa.concat_tables([arrow().slice(0, 2), arrow().slice(2)]),
    "Arrow, a record batch": lambda: arrow().to_batches()[0],
    "Arrow, dictionaries": lambda: pa.table(
        {
            "x": X,
            "k": K,
            "r": pa.array(R).dictionary_encode(),
            "id": pa.array(IDS).dictionary_encode(),
        }
    ),
    "Arrow, narrow and odd types": lambda: pa.table(
        {
            "x": pa.array([None if v is None else Decimal(str(v)) for v in X]),
            "k": pa.array([1, 2, None, 4, 100, 6], pa.int8()),
            "r": pa.array(R, pa.large_string()),
            "id": pa.array(IDS, pa.string_view()),
        }
    ),
    "polars": polars,
    "polars, categorical": lambda: polars().with_columns(
        pl.col("r").cast(pl.Enum(["A", "B", "C"])), pl.col("id").cast(pl.Categorical)
    ),
    "polars, in chunks": lambda: pl.concat([polars()[:2], polars()[2:]], rechunk=False),
    "a column of each": lambda: {
        "x": polars()["x"],
        "k": pd.array(K, "Int64"),
        "r": pa.chunked_array([R[:2], R[2:]]),
        "id": IDS,
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same(form: str) -> None:
    """By hand: who has no id is dropped, a gap is the bound next to 0, or in no category."""
    released = PLAN.simulate(seed=0, people=FORMS[form]())
    assert released["n"] == pytest.approx(5)
    assert released["x"] == pytest.approx(1.5 + 0 + 3 + 4 + 0)
    assert released["k"] == pytest.approx(1 + 2 + 0 + 4 + 5)
    np.testing.assert_allclose(released["r"], [2, 1, 1], atol=1e-6)


def test_lazy_frames_are_to_be_collected() -> None:
    with pytest.raises(dp.DataError, match="'people'"):
        PLAN.simulate(seed=0, people=polars().lazy())


@pytest.mark.parametrize("values", [["2020-01-01"] * 6, ["1"] * 6], ids=["dates", "strings"])
@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array])
def test_what_is_no_number_is_refused_by_its_type(values: list[str], make: Any) -> None:
    with pytest.raises(dp.DataError, match="'people'"):
        PLAN.simulate(seed=0, people={"x": make(values), "k": K, "r": R, "id": IDS})


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda a: a,
        lambda a: pd.Series(a, copy=False),
        pl.Series,
        lambda a: pa.chunked_array([pa.array(a)]),
        lambda a: pd.Series(pd.array(pa.array(a), dtype=pd.ArrowDtype(pa.float64()))),
        lambda a: pl.from_arrow(pa.array(a)),
    ],
    ids=["NumPy", "pandas", "polars", "Arrow", "pandas in Arrow", "polars from Arrow"],
)
def test_float_columns_without_gaps_are_read_where_they_lie(wrapped: Any) -> None:
    array = np.arange(1000.0)
    assert np.shares_memory(read_column(wrapped(array), "x", "number"), array)


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame({"age": pl.Series(["SECRET", "b"], dtype=pl.Enum(["SECRET", "b"]))}),
        pd.DataFrame({"age": pd.Categorical(["SECRET", "b"], ordered=True)}),  # types hold values
        pl.DataFrame({"age": [{"SECRET": 1}]}),
        pa.table({"age": pa.array([{"SECRET": 1}])}),
    ],
)
def test_a_type_that_is_refused_does_not_tell_what_is_in_the_column(frame: Any) -> None:
    people = dp.dataset("people", columns={"age": (0, 100)})
    plan = dp.Pipeline(n=people["age"].sum().release(dp.Laplace(scale=100)))
    with pytest.raises(DataError, match="'people'") as refused:
        plan.run(people=frame)
    assert "SECRET" not in str(refused.value)
