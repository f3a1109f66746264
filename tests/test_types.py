"""Types of columns: str without a list of categories, and booleans; every kind of data alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
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
