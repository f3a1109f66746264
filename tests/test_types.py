"""Types of columns: str without a list of categories, and booleans; every kind of data alike."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.document import load

TINY = dp.DiscreteLaplace(scale=1e-3)
DATA: dict[str, list[Any]] = {
    "town": ["A", "B", "B", None, "C"],
    "member": [True, False, True, True, None],
    "age": [1, 2, 3, 4, 5],
}
PEOPLE = dp.dataset("people", columns={"town": str, "member": bool, "age": (0, 100)})


def plan() -> dp.Pipeline:
    towns = {"town": ["A", "B"]}
    return dp.Pipeline(
        member=PEOPLE["member"].histogram().release(TINY),
        town=PEOPLE["town"].histogram(keys=["A", "B"]).release(TINY),
        both=PEOPLE.group_by("town", "member", keys=towns).count().release(TINY),
        b=PEOPLE.filter(PEOPLE["town"].isin(["B"])).count().release(TINY),
        total=PEOPLE["member"].clip(0, 1).sum().release(dp.Laplace(scale=1e-9)),
        parts={k: p.count().release(TINY) for k, p in PEOPLE.partition("town", ["A", "C"])},
    )


def frame() -> pd.DataFrame:
    return pd.DataFrame(DATA).astype({"member": "boolean", "town": "string"})


@pytest.mark.parametrize(
    "form",
    [dict, frame, lambda: pl.DataFrame(DATA), "csv", "parquet"],
    ids=["mapping", "pandas", "polars", "csv", "parquet"],
)
def test_strings_and_booleans_are_read_alike(
    form: str | Callable[..., Any], tmp_path: Path
) -> None:
    if isinstance(form, str):
        data: Any = tmp_path / f"people.{form}"
        pl.DataFrame(DATA).write_csv(data) if form == "csv" else pl.DataFrame(DATA).write_parquet(
            data
        )
    else:
        data = form(DATA) if form is dict else form()
    result = plan().simulate(seed=1, people=data)
    assert result["member"].tolist() == [1, 3]
    assert result["town"].tolist() == [1, 2]
    assert result["both"].tolist() == [0, 1, 1, 1]
    assert (result["b"], round(result["total"])) == (2, 3)
    assert result["parts"] == {"A": 1, "C": 1}


def test_types_stand_in_documents() -> None:
    assert load(plan().to_json()).fingerprint == plan().fingerprint
    written = {"columns": {"town": {"type": "str"}, "member": {"type": "bool"}}}
    table = dp.dataset.from_schema(written, name="people")
    assert table.domain.columns == {k: PEOPLE.domain.columns[k] for k in ("town", "member")}


@pytest.mark.parametrize(
    "query",
    [
        lambda: PEOPLE.group_by("town").keys,
        lambda: PEOPLE.partition("town"),
        lambda: PEOPLE["town"].histogram().domain,
        lambda: PEOPLE["town"].sum(),
        lambda: PEOPLE["town"].clip(0, 1).domain,
        lambda: PEOPLE.filter(PEOPLE["town"] < 3).domain,
        lambda: PEOPLE.filter(PEOPLE["town"].isin([3])).domain,
        lambda: PEOPLE.partition("town", keys=[3]),
        lambda: PEOPLE.group_by("town", edges=[0, 1]).domain,
        lambda: PEOPLE.examples(["town"], "member"),
        lambda: PEOPLE["town"].mode().domain,
        lambda: PEOPLE.describe(dp.Laplace(), ["town"]),
        lambda: dp.dataset("people", columns={"age": int}),
    ],
)
def test_what_needs_categories_or_numbers_refuses_strings(query: Callable[[], Any]) -> None:
    with pytest.raises(dp.DeclarationError, match=r"town|age"):
        query()


# --- dates

BORN = (datetime.date(1900, 1, 1), datetime.date(2025, 12, 31))
DAYS = [
    datetime.date(1969, 12, 31),
    datetime.date(1970, 1, 1),
    datetime.date(2000, 2, 29),
    None,
    datetime.date(2024, 12, 31),
    datetime.date(1899, 12, 31),  # out of bounds: counts as the first day
]
VISITS = dp.dataset("visits", columns={"born": BORN, "town": ["A", "B"]})


def dated() -> dp.Pipeline:
    born = VISITS["born"]
    wide = VISITS.with_columns(year=born.year, month=born.month, day=born.weekday)
    exact = dp.Laplace(scale=1e-9)
    return dp.Pipeline(
        total=born.sum().release(exact),
        young=VISITS.filter(born >= datetime.date(2000, 2, 29)).count().release(TINY),
        one=VISITS.filter(born == datetime.date(1970, 1, 1)).count().release(TINY),
        missing=VISITS.filter(~born.is_present()).count().release(TINY),
        years=wide["year"].histogram([1900, 1970, 2000, 2025]).release(TINY),
        months=wide.group_by("month", keys=[1, 2, 12]).count().release(TINY),
        days=wide["day"].histogram(range(8)).release(TINY),
        filled=born.fill(datetime.date(1970, 1, 2)).sum().release(exact),
        age=(2025 - born.year).sum().release(exact),
        spans=born.histogram([datetime.date(1960, 1, 1), datetime.date(2010, 1, 1)]).release(TINY),
    )


def cells_of(form: str, tmp_path: Path) -> Any:
    towns = ["A", "B"] * 3
    times = [None if d is None else datetime.datetime(d.year, d.month, d.day, 23) for d in DAYS]
    frame = pl.DataFrame({"born": DAYS, "town": towns})
    if form == "csv":
        (tmp_path / "v.csv").write_text(
            "born,town\n" + "".join(f"{'' if d is None else d},A\n" for d in DAYS)
        )
    if form == "parquet":
        frame.write_parquet(tmp_path / "v.parquet")
    return {
        "list": lambda: {"born": DAYS, "town": towns},
        "text": lambda: {"born": ["nonsense" if d is None else f" {d}T08:30" for d in DAYS],
                         "town": towns},
        "times": lambda: {"born": times, "town": towns},
        "numpy": lambda: {"born": np.array(DAYS, dtype="datetime64[s]"), "town": towns},
        "pandas": lambda: pd.DataFrame({"born": pd.to_datetime(times), "town": towns}),
        "zoned": lambda: pl.DataFrame(
            {"born": pl.Series(times).dt.replace_time_zone("Asia/Tokyo"), "town": towns}
        ),
        "polars": lambda: frame,
        "strings": lambda: frame.with_columns(pl.col("born").cast(pl.String)),
        "arrow": frame.to_arrow,
        "csv": lambda: tmp_path / "v.csv",
        "parquet": lambda: tmp_path / "v.parquet",
    }[form]()  # fmt: skip


@pytest.mark.parametrize(
    "form",
    ["list", "text", "times", "numpy", "pandas", "zoned", "polars", "strings", "arrow", "csv",
     "parquet"],
)  # fmt: skip
def test_dates_are_read_alike(form: str, tmp_path: Path) -> None:
    result = dated().simulate(seed=1, visits=cells_of(form, tmp_path))
    inside = [max(d, BORN[0]) for d in DAYS if d is not None]
    days = [(d - datetime.date(1970, 1, 1)).days for d in inside]
    assert round(result["total"]) == sum(days)
    assert round(result["filled"]) == sum(days) + 1
    assert round(result["age"]) == sum(2025 - d.year for d in inside)
    assert [result[k] for k in ("young", "one", "missing")] == [2, 1, 1]
    assert result["years"].tolist() == [2, 1, 2]
    assert result["months"].tolist() == [2, 1, 2]
    assert result["days"].tolist() == [sum(d.weekday() == k for d in inside) for k in range(6)] + [
        sum(d.weekday() == 6 for d in inside)
    ]
    assert result["spans"].tolist() == [3]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Vienna", "America/New_York"])
@pytest.mark.parametrize("unit", ["ns", "us", "ms"])
@pytest.mark.parametrize("most", [2**63 - 1, -(2**63) + 1, 2**58])
def test_times_beyond_all_dates_of_a_zone_stop_no_run(most: int, unit: Any, zone: str) -> None:
    """Python's dates end at the year 9999, the times of frames do not."""
    times = [most, None, 0]
    arrow = pa.table({"born": pa.array(times, pa.int64()).cast(pa.timestamp(unit, zone))})
    polars = pl.DataFrame({"born": pl.Series(times, dtype=pl.Int64).cast(pl.Datetime(unit, zone))})
    table = dp.dataset("visits", columns={"born": BORN})
    plan = dp.Pipeline(years=table["born"].year.sum().release(dp.DiscreteLaplace(scale=0.01)))
    for frame in (arrow, polars):
        total = plan.simulate(seed=1, visits=frame)["years"]
        assert 1900 + 1969 <= round(total) <= 2025 + 1970


def test_dates_stand_in_documents() -> None:
    plan = dated()
    assert "born >= 2000-02-29" in str(plan)
    assert "born in {1970-01-01}" in str(plan)
    assert load(plan.to_json()).fingerprint == plan.fingerprint
    written = {"columns": {"born": {"dates": ["1900-01-01", "2025-12-31"]}}}
    table = dp.dataset.from_schema(written, name="visits")
    assert table.domain.columns["born"] == VISITS.domain.columns["born"]
    assert str(table.domain.columns["born"]) == "[1900-01-01, 2025-12-31]"


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ((datetime.date(2000, 1, 1), 3), "1970|two dates|lower"),
        ((datetime.date(2000, 1, 1), "soon"), "two dates"),
        ((datetime.date(2000, 1, 1), datetime.date(1999, 1, 1)), "lower"),
        ((datetime.date(2000, 1, 1),) * 3, "two bounds"),
        ((np.datetime64("NaT"), np.datetime64("2000-01-01")), "two dates"),
        (("2000-01-01", "2000-13-01"), "finite number"),
    ],
)
def test_bounds_of_dates(declared: Any, message: str) -> None:
    with pytest.raises(dp.DeclarationError, match=message):
        dp.dataset("v", columns={"born": declared})


def test_dates_are_declared_by_any_two_dates_and_clipped_by_them() -> None:
    first, last = datetime.date(1900, 1, 1), datetime.date(2025, 12, 31)
    for pair in ((str(first), str(last)), (np.datetime64(first), np.datetime64(last))):
        born = dp.dataset("v", columns={"born": pair})["born"]
        assert str(born.domain.column) == f"[{first}, {last}]"
    later = born.clip(datetime.date(2000, 1, 1), last)
    assert "2001-01-01" in str(later >= datetime.date(2001, 1, 1))
    assert later.domain.column.lower == (datetime.date(2000, 1, 1) - datetime.date(1970, 1, 1)).days


def test_a_date_is_compared_with_dates_alone() -> None:
    """Of a file of strings no cell would be after a date, and the count 0, without a word."""
    table = dp.dataset("v", columns={"born": None, "age": (0, 120)})
    day = np.datetime64("2000-01-01")
    asks: list[Callable[[Any], Any]] = [
        lambda c: c >= day,
        lambda c: c == day,
        lambda c: c.isin([1, day]),
        lambda c: c.clip(day, day),
    ]
    for name in ("born", "age"):
        for ask in asks:
            with pytest.raises(dp.DeclarationError, match="declare its first and last date"):
                ask(table[name])
    dated = dp.dataset("v", columns={"born": ("2000-01-01", "2009-12-31")})
    later = dated.with_columns(later=dated["born"] + 30)["later"]
    assert "later >= 10957" in str(later >= day)  # computed of dates
    assert "10957" in str(dated["born"] + 30 >= day)


def test_dates_of_a_column_without_a_declaration_are_days() -> None:
    table = dp.dataset("v", columns={"born": None})
    days = np.array(["1970-01-02", "1970-01-11", "NaT"], dtype="datetime64[s]")
    total = table["born"].clip(0, 100).sum().release(dp.Laplace(scale=1e-3))
    assert round(dp.Pipeline(a=total).simulate(seed=1, v={"born": days})["a"]) == 1 + 10
    undeclared, numbers = (dp.dataset("v", columns={"born": each}) for each in (None, (0, 1)))
    cells = days.astype("M8[ms]")
    for table, data in ((undeclared, pl.DataFrame({"born": cells})), (numbers, {"born": cells})):
        plan = dp.Pipeline(a=table["born"].clip(0, 1).sum().release(dp.Laplace(scale=1)))
        with pytest.raises(dp.DataError, match="declare its first and last date"):
            plan.simulate(seed=1, v=data)


def test_numbers_are_no_dates() -> None:
    for column in (np.array([1.0, 2.0]), pd.Series([1, 2]), pl.Series([1, 2])):
        data = {"born": column, "town": ["A", "B"]}
        with pytest.raises(dp.DataError, match="must hold dates"):
            dated().simulate(seed=1, visits=data)
    with pytest.raises(dp.DeclarationError, match="is not a date"):
        _ = PEOPLE["age"].year
