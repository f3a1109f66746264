"""Results as tables of other libraries, and faces in notebooks."""

from __future__ import annotations

import copy
import csv
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import adaptive_dp as dp

TOWNS = ["Ribe", "Aarhus", "Odense"]
DATA = {
    "town": np.repeat(TOWNS, [10, 30, 20]),
    "year": np.tile([2021, 2020], 30),
    "age": np.linspace(0, 100, 60),
}


def table() -> dp.Table:
    columns = {"town": TOWNS, "year": [2021, 2020], "age": (0, 100)}
    return dp.dataset("visits", columns=columns)


def result() -> Any:
    visits, noise = table(), dp.DiscreteLaplace(scale=0.01)  # of no size
    groups = visits.group_by("town", "year")
    plan = dp.Pipeline(
        by_town=visits.group_by("town").count().release(noise),
        cells=groups.count().release(noise),
        mean=groups.average("age", dp.Laplace(scale=0.01)),
        bins=visits["age"].histogram([0, 50, 100]).release(noise),
        ages=visits.counts([visits["age"] >= 50, visits["age"] < 20]).release(noise),
        parts={town: part.count().release(noise) for town, part in visits.partition("town")},
        moments=visits.vectors(["age"], intercept=True).gram().release(dp.Gaussian(sigma=1e-3)),
        median=visits["age"].median().release(dp.QuantileExponential(scale=1.0)),
        word=dp.post(lambda n: {"=size": "=many", "n": n}, visits.count().release(noise)),
    )
    return plan.simulate(seed=1, visits=DATA)


def test_a_grouped_output_is_a_table_with_its_keys() -> None:
    frame = result()["cells"].to_pandas()
    assert list(frame.columns) == ["town", "year", "value", "low", "high"]
    assert frame["town"].tolist() == np.repeat(TOWNS, 2).tolist()  # in the declared order
    assert frame["year"].tolist() == [2021, 2020] * 3
    assert frame["value"].tolist() == [5, 5, 15, 15, 10, 10]
    assert frame["low"].tolist() == frame["high"].tolist() == frame["value"].tolist()
    averages = result()["mean"].to_pandas()
    assert list(averages.columns) == ["town", "year", "value", "low", "high"]
    truth = pd.DataFrame(DATA).groupby(["town", "year"])["age"].mean()
    for row in averages.itertuples():
        assert row.low <= truth[row.town, row.year] <= row.high


def test_other_vectors_are_tables_too() -> None:
    given = result()
    assert given["by_town"].to_pandas()["town"].tolist() == TOWNS
    assert given["bins"].to_pandas()["age"].tolist() == ["[0, 50)", "[50, 100]"]
    assert given["ages"].to_pandas()["condition"].tolist() == ["age >= 50", "age < 20"]
    moments = given["moments"].to_pandas()
    assert list(moments.columns)[:2] == ["index 0", "index 1"]
    assert len(moments) == 4
    parts = given["parts"].to_pandas()
    assert parts["output"].tolist() == sorted(TOWNS)
    assert parts["value"].tolist() == [30, 20, 10]
    assert given["parts"] == {"Ribe": 10, "Aarhus": 30, "Odense": 20}
    for copied in (copy.deepcopy(given["parts"]), pickle.loads(pickle.dumps(given["parts"]))):
        assert type(copied) is dict


def test_a_result_is_one_table_in_every_library(tmp_path: Path) -> None:
    given = result()
    frame = given.to_pandas()
    assert list(frame.columns) == [
        "output", "key", "value", "low", "high", "note", "not for release"
    ]  # fmt: skip
    assert set(frame["not for release"]) == {"NOT FOR RELEASE: noise from seed 1"}
    assert len(frame) == 3 + 6 + 6 + 2 + 2 + 3 + 4 + 1 + 2
    median = frame[frame["output"] == "median"].iloc[0]
    assert "its rank is known" in median["note"]
    assert np.isnan(median["low"])
    word = frame[frame["output"] == "word.=size"].iloc[0]
    assert word["note"] == "=many"
    other = given.to_polars()
    assert isinstance(other, pl.DataFrame)
    assert other["value"].drop_nulls().to_list() == frame["value"].dropna().tolist()
    assert given.to_arrow().column("output").to_pylist() == frame["output"].tolist()
    given.to_csv(tmp_path / "all.csv")
    with open(tmp_path / "all.csv", encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["output"] for line in lines] == frame["output"].tolist()
    # no spreadsheet runs a released str
    assert [line["note"] for line in lines if line["output"] == "word.=size"] == ["'=many"]
    given["cells"].to_csv(tmp_path / "cells.csv")
    assert pd.read_csv(tmp_path / "cells.csv").equals(given["cells"].to_pandas())


def test_a_run_has_no_mark_and_levels_are_those_asked_for() -> None:
    plan = dp.Pipeline(n=table().group_by("town").count().release(dp.Laplace(scale=1.0)))
    released = plan.run(visits=DATA)
    assert "not for release" not in released.columns()
    narrow, wide = (released["n"].to_pandas(level) for level in (0.5, 0.99))
    assert (wide["high"] - wide["low"] > narrow["high"] - narrow["low"]).all()
    sampled = released["n"].to_pandas(sampling=True)
    assert (sampled["high"] - sampled["low"] > narrow["high"] - narrow["low"]).all()


def test_keys_that_are_called_like_numbers_keep_both() -> None:
    odd = dp.dataset("odd", columns={"value": ["a", "b"]})
    plan = dp.Pipeline(n=odd["value"].histogram().release(dp.Laplace(scale=1.0)))
    frame = plan.simulate(seed=1, odd={"value": ["a"]})["n"].to_pandas()
    assert list(frame.columns) == ["value (key)", "value", "low", "high"]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(dp.DeclarationError, match="pip install polars"):
        result()["cells"].to_polars()


def test_faces_in_notebooks_are_escaped_and_hold_no_data() -> None:
    people = dp.dataset("people", columns={"<b>": (0, 100), "town": ["<i>", "A"]})
    query = people.count()
    rows = {"<b>": [77.125], "town": ["A"]}
    certificate = dp.Pipeline(n=query.release(dp.Laplace(scale=4))).certify()
    with dp.Session(budget=dp.Budget(1.0), people=rows) as session:
        forecast = session.what_if(query.release(dp.Laplace(scale=4)))
        faces = [
            each._repr_html_()
            for each in (session, people, query, dp.suitable(query)[0], forecast,
                         dp.verify(certificate))
        ]  # fmt: skip
    for face in faces:
        assert face.startswith("<pre>")
        assert "<b>" not in face
        assert "77.125" not in face
    assert "&lt;b&gt;: [0, 100]" in faces[1]
    assert len(dp.dataset("w", columns={f"c{i}": (0, 1) for i in range(999)})._repr_html_()) < 2000
