"""Tables declared by a schema that their owner wrote."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import adaptive_dp as dp

COLUMNS = {
    "age": (0, 100),
    "town": ["A", "B"],
    "grade": [1, 2],
    "note": None,
}
WRITTEN: dict[str, Any] = {
    "unit": "id",
    "rows_per_unit": 3,
    "columns": {
        "age": {"bounds": [0, 100]},
        "town": {"categories": ["A", "B"]},
        "grade": {"categories": [1, 2]},
        "note": None,
    },
}
TOML = """
unit = "id"
rows_per_unit = 3
[columns]
age.bounds = [0, 100]
town = {categories = ["A", "B"]}
grade.categories = [1, 2]
note = {}
"""
ARROW = pa.schema(
    {
        "id": pa.int64(),
        "age": pa.float32(),
        "town": pa.dictionary(pa.int8(), pa.string()),
        "grade": pa.int8(),
        "note": pa.large_string(),
        "born": pa.date32(),
        "list": pa.list_(pa.int8()),
    }
)


def plan(table: dp.Table) -> str:
    count = table.filter(table["age"] > 3).count().release(dp.Laplace(scale=2.0))
    towns = table["town"].histogram().release(dp.Laplace(scale=2.0))
    return dp.Pipeline(count=count, towns=towns).fingerprint


def plain(**more: Any) -> dp.Table:
    return dp.dataset("people", columns={**COLUMNS, **more}, unit="id", rows_per_unit=3)


def test_a_schema_declares_what_is_declared_by_hand(tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text(json.dumps(WRITTEN))
    (tmp_path / "people.toml").write_text(TOML)
    read = dp.dataset.from_schema
    tables = [
        read(tmp_path / "people.json"),
        read(str(tmp_path / "people.toml")),
        read(WRITTEN, name="people"),
        read({**WRITTEN, "name": "people"}),
        read({k: v for k, v in WRITTEN.items() if k == "columns"}, name="people", unit="id",
             rows_per_unit=3),
        read(
            {"columns": list(COLUMNS), "bounds": {"a*": [0, 100]}},
            name="people", unit="id", rows_per_unit=3,
            categories={"town": ["A", "B"], "grade": [1, 2]},
        ),
    ]  # fmt: skip
    assert {plan(table) for table in tables} == {plan(plain())}


@pytest.mark.parametrize("form", ["file", "schema"])
def test_names_and_types_of_an_empty_file(form: str, tmp_path: Path) -> None:
    pq.write_table(ARROW.empty_table(), tmp_path / "people.parquet")
    table = dp.dataset.from_schema(
        tmp_path / "people.parquet" if form == "file" else ARROW,
        name=None if form == "file" else "people",
        bounds={"age": (0, 100)},
        categories={"tow?": ["A", "B"], "grade": [1, 2]},
        unit="id",
        rows_per_unit=3,
    )
    columns = {"id": None, **COLUMNS, "note": str}  # strings are str, whatever their categories
    by_hand = dp.dataset("people", columns=columns, unit="id", rows_per_unit=3)
    assert plan(table) == plan(by_hand)
    assert set(table.domain.columns) == {"id", *COLUMNS}  # no dates, no lists


def test_nothing_is_read_off_a_file_with_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"age": [1.0, 2.0]}), tmp_path / "people.parquet")
    with pytest.raises(dp.DeclarationError, match=r"people\.parquet.*empty"):
        dp.dataset.from_schema(tmp_path / "people.parquet", bounds={"age": (0, 1)})


def test_a_name_counts_before_a_pattern_and_no_pattern_is_for_the_unit() -> None:
    table = dp.dataset.from_schema(
        {"columns": ["id", "x_1", "x_2", "x_*"]},
        name="t",
        unit="id",
        bounds={"*": (0, 1), "x_2": (0, 5), "x_*": (0, 7)},
    )
    declared = {k: None if v is None else v.upper for k, v in table.domain.columns.items()}
    # the last is a column's name, whatever characters it has
    assert declared == {"id": None, "x_1": 1, "x_2": 5, "x_*": 7}
    mapping = {"columns": {"a": {"bounds": [0, 3]}, "b": None}}
    table = dp.dataset.from_schema(mapping, name="t", bounds={"*": (0, 1)})
    assert [v.upper for v in table.domain.columns.values()] == [3, 1]


WRONG: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no mapping": ([1], {}, "mapping"),
    "unknown field": ({"columns": [], "bound": {}}, {}, "'bound'"),
    "no columns": ({"name": "t"}, {}, "columns must be"),
    "columns of numbers": ({"columns": [1]}, {}, "columns must be"),
    "twice": ({"columns": ["a", "a"]}, {}, "'a' is there twice"),
    "no declaration": ({"columns": {"a": 3}}, {}, r"columns\.a"),
    "two declarations": (
        {"columns": {"a": {"bounds": [0, 1], "categories": [1]}}}, {}, r"columns\.a",
    ),
    "a typo": ({"columns": {"a": {"bound": [0, 1]}}}, {}, r"columns\.a"),
    "bounds of three": ({"columns": {"a": {"bounds": [0, 1, 2]}}}, {}, r"columns\.a: bounds"),
    "bounds the wrong way": ({"columns": {"a": {"bounds": [2, 1]}}}, {}, r"columns\.a.*swap"),
    "bounds of strings": ({"columns": {"a": {"bounds": ["0", "1"]}}}, {}, r"columns\.a"),
    "infinite bounds": ({"columns": {"a": {"bounds": [0, float("inf")]}}}, {}, r"columns\.a"),
    "no category": ({"columns": {"a": {"categories": []}}}, {}, r"columns\.a"),
    "a str for categories": ({"columns": {"a": {"categories": "AB"}}}, {}, r"columns\.a"),
    "no match": ({"columns": ["a"]}, {"bounds": {"b*": (0, 1)}}, r"bounds\.b\*"),
    "two patterns": (
        {"columns": ["ab"]}, {"bounds": {"a*": (0, 1), "*b": (0, 2)}}, r"bounds\.a\*",
    ),
    "in the file and beside it": (
        {"columns": ["a"], "bounds": {"a": [0, 1]}}, {"categories": {"a": [1]}}, r"categories\.a",
    ),
    "declared already": (
        {"columns": {"a": {"bounds": [0, 1]}}}, {"bounds": {"a": (0, 2)}}, r"bounds\.a",
    ),
    "bounds of a column of strings": (ARROW, {"bounds": {"note": (0, 1)}}, "'note' has strings"),
    "strings for a column of numbers": (ARROW, {"categories": {"age": ["a"]}}, "'age' has numbers"),
    "rules as a list": ({"columns": ["a"]}, {"bounds": [(0, 1)]}, "bounds must be a mapping"),
    "the unit twice": ({"columns": ["a"], "unit": "id"}, {"unit": "id"}, "'unit' already"),
    "no unit": ({"columns": ["a"]}, {"rows_per_unit": 3}, "unit="),
    "bounds of the unit": ({"columns": ["a"]}, {"unit": "a", "bounds": {"a": (0, 1)}}, "unit 'a'"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_say_where_and_what_would_be_right(name: str) -> None:
    schema, more, message = WRONG[name]
    with pytest.raises(dp.DeclarationError, match=message):
        dp.dataset.from_schema(schema, **{"name": "t", **more})


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("a.json", b'{"columns": ', "line 1"),
        ("a.json", b'{"columns": {"x": null, "x": {}}}', "'x' is there twice"),
        ("a.json", b"\xff", "not JSON"),
        ("a.toml", b"columns = [", "not TOML"),
        ("a.toml", b"[columns]\na = 1", r"a\.toml: columns\.a"),
        ("a.yaml", b"", ".json"),
        ("a.parquet", b"PAR1", "not a Parquet"),
        ("my table.json", b'{"columns": []}', "identifier"),
    ],
)
def test_a_file_that_is_no_schema(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_bytes(content)
    with pytest.raises(dp.DeclarationError, match=message):
        dp.dataset.from_schema(tmp_path / file)
    with pytest.raises(dp.DeclarationError, match="no schema"):
        dp.dataset.from_schema(tmp_path / ("no " + file))
    with pytest.raises(dp.DeclarationError, match="name"):
        dp.dataset.from_schema({"columns": []})


def test_ten_thousand_columns_by_one_pattern(tmp_path: Path) -> None:
    """Within a second of this process, times five for a machine that is busy with other work."""
    schema = pa.schema({f"x_{i}": pa.float64() for i in range(10_000)})
    pq.write_table(schema.empty_table(), tmp_path / "wide.parquet")
    start = time.process_time()
    table = dp.dataset.from_schema(tmp_path / "wide.parquet", bounds={"x_*": (0, 1)})
    plan = dp.Pipeline(total=table["x_7"].sum().release(dp.Laplace(scale=1.0)))
    assert time.process_time() - start < 5
    data = pa.Table.from_arrays([pa.array(np.linspace(0, 1, 101))] * 10_000, schema=schema)
    # the sum is 50.5, and the noise below 50 but with probability e^-50
    assert abs(plan.simulate(seed=1, wide=data)["total"] - 50.5) < 50
