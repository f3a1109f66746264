"""What the keeper of the data is told of them, and nobody else."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pytest

import adaptive_dp as dp

BORN = (datetime.date(1900, 1, 1), datetime.date(2025, 12, 31))
PEOPLE = dp.dataset(
    "people",
    columns={
        "age": (0, 100),
        "town": ["Oslo", "Rome"],
        "grade": [1, 2],
        "born": BORN,
        "note": str,
        "free": None,
    },
    unit="id",
    rows_per_unit=2,
)
DATA: dict[str, list[Any]] = {
    "age": [40, "41,5", "1.234,5", 300, -1, None, "", "old", 7, 8],
    "town": ["Oslo", " oslo", "Rom", "", None, "Oslo", "Oslo", "Oslo", "Oslo", "Oslo"],
    "grade": [1, "2", "first", 3, None, 1, 1, 1, 1, 1],
    "born": ["2000-01-01", "01.02.2000", None, "1899-12-31", *["1970-01-01T10:00"] * 6],
    "note": ["fine", "R\u00c3\u00b8nne", "caf\ufffd", "", *["Sm\u00f8rrebr\u00f8d"] * 6],
    "free": [None, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    "id": ["a", "a", "a", "a", "b", "b", "c", "", None, "d"],
}
EXPECTED = """\
PRIVATE: for the keeper of the data alone, computed without any noise.
people: 10 rows
  age: 2 missing (20.0%)
  age: 2 cells have a decimal comma, and so count as missing (20.0%): '41,5', '1.234,5'
  age: 1 cells are no number, and so count as missing (10.0%): 'old'
  age: 1 cells are below the bounds [0, 100], and count as the bound (10.0%): -1
  age: 1 cells are above the bounds [0, 100], and count as the bound (10.0%): 300
  town: 2 missing (20.0%)
  town: 1 cells differ from a category in case or spaces alone (10.0%): ' oslo'
  town: 1 cells are none of the categories (10.0%): 'Rom'
  town: no row has 'Rome'
  grade: 1 missing (10.0%)
  grade: 2 cells are none of the categories (20.0%): 'first', 3
  born: 1 missing (10.0%)
  born: 1 cells are no date, and so count as missing (10.0%): '01.02.2000'
  born: 1 cells are below the bounds [1900-01-01, 2025-12-31], and count as the bound (10.0%): \
'1899-12-31'
  note: 1 missing (10.0%)
  note: 2 cells look like another encoding than UTF-8 (20.0%): 'R\u00c3\u00b8nne', 'caf\ufffd'
  free: 1 missing (10.0%)
  id: 4 units
  id: 2 rows without an identifier, which are dropped (20.0%)
  id: 1 units have more than 2 rows, and 2 of their rows are dropped"""


def test_everything_that_is_not_as_declared() -> None:
    shown = str(PEOPLE.check(DATA)).replace("R\\xc3\\xb8", "R\u00c3\u00b8")
    assert shown.splitlines() == EXPECTED.splitlines()


def test_files_and_frames(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    lines = [["" if c is None else str(c) for c in row] for row in zip(*DATA.values(), strict=True)]
    quoted = ["\t".join(row) for row in lines]
    path.write_text("\n".join(",".join(f'"{c}"' for c in row.split("\t")) for row in
                              ["\t".join(DATA), *quoted]) + "\n")  # fmt: skip
    shown = str(PEOPLE.check(path))
    for line in EXPECTED.splitlines()[1:]:
        # numbers of a file have no type
        assert line.replace(": 300", ": 300.0").replace(": -1", ": -1.0") in shown or "3" in line
    few = dp.dataset("people", columns={"age": (0, 100), "town": ["Oslo", "Rome"]})
    good = {"age": [1.0, 2.0], "town": ["Oslo", "Rome"]}
    for data in (good, pd.DataFrame(good), pl.DataFrame(good)):
        assert str(few.check(data)).splitlines()[1:] == [
            "people: 2 rows", "  age: as declared", "  town: as declared"
        ]  # fmt: skip
    assert "0 rows" in str(few.check({"age": [], "town": []}))


def test_it_is_shown_by_print_alone() -> None:
    shown = PEOPLE.check(DATA)
    assert "41,5" not in repr(shown)
    assert "41,5" not in repr([shown])
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=1)))
    assert "check" not in json.dumps(plan.to_document())
    with pytest.raises(dp.DataError) as refused:
        PEOPLE.check({name: cells for name, cells in DATA.items() if name != "age"})
    assert "41,5" not in str(refused.value)
    # the rows that a table selects are private too, and the data are looked at whole
    assert str(PEOPLE.filter(PEOPLE["age"] > 3).check(DATA)) == str(shown)
