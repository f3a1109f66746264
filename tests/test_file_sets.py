"""Files read as one data set: identifiers across files, and that no row counts twice."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from adaptive_dp.data import Files, SchemaError, open_rows
from adaptive_dp.data.grid import exact_add

X = {"x": "number"}


def parquet(path, ids, kind=None):
    pq.write_table(pa.table({"x": np.arange(float(len(ids))), "id": pa.array(ids, kind)}), path)
    return path


def csv(path, ids):
    path.write_text("x,id\n" + "".join(f"{i},{each}\n" for i, each in enumerate(ids)))
    return path


@pytest.mark.parametrize(
    ("kind", "ids"),
    [
        (None, [1, 2]),
        (pa.float64(), [1, 2]),
        (pa.binary(), [b"1", b"2"]),
        (pa.bool_(), [True, False]),
    ],
)
def test_identifiers_of_several_kinds_are_refused(tmp_path, kind, ids):
    """Whoever is "1" here and 1 there would have twice the rows of a unit."""
    other = parquet(tmp_path / "1.parquet", ids, kind)
    dictionary = pa.dictionary(pa.int8(), pa.string())
    for text in (
        csv(tmp_path / "2.csv", ["1", "2"]),
        parquet(tmp_path / "3.parquet", ["1", "2"]),
        parquet(tmp_path / "4.parquet", ["1", "2"], dictionary),
    ):
        with pytest.raises(SchemaError, match="'id'"):
            Files([other, text]).open_rows(X, "id")


def test_identifiers_of_one_kind_are_compared_by_value(tmp_path):
    dictionary = pa.dictionary(pa.int8(), pa.string())
    files = [
        csv(tmp_path / "1.csv", ["a", "b"]),
        parquet(tmp_path / "2.parquet", ["b", "c"]),
        parquet(tmp_path / "3.parquet", ["c", None], dictionary),
        parquet(tmp_path / "4.parquet", [None, None], pa.null()),
    ]
    assert Files(files).open_rows(X, "id").units.tolist() == [0, 1, 1, 2, 2]
    numbers = [
        parquet(tmp_path / "5.parquet", [1, 2]),
        parquet(tmp_path / "6.parquet", [2.0, np.nan, -0.0]),
        parquet(tmp_path / "7.parquet", [0, 1], pa.uint8()),
    ]
    assert Files(numbers).open_rows(X, "id").units.tolist() == [0, 1, 1, 2, 2, 0]


def test_identifiers_with_declared_numbers_are_read_as_in_memory(tmp_path):
    """A column that is declared with categories 1 and 2, and tells people apart."""
    path = csv(tmp_path / "1.csv", ["1", "2", "1.0", "none", ""])
    columns = {**X, "id": "code"}
    block = lambda c: np.array([sum(v == 1 for v in c["id"])], dtype=np.int64)  # noqa: E731
    single, parted = open_rows(path, columns, "id"), Files(path).open_rows(columns, "id")
    assert parted.units.tolist() == single.units.tolist() == [0, 1, 0]
    assert parted.total(block) == single.total(block) == 2


def test_a_file_that_is_named_twice_is_refused(tmp_path):
    """As part of a pattern, or by another path."""
    path = parquet(tmp_path / "1.parquet", [1, 2])
    os.symlink(path, tmp_path / "link.parquet")
    for paths in ([path, path], [path, f"{tmp_path}/*1.parquet"], [f"{tmp_path}/*.parquet"]):
        with pytest.raises(SchemaError):
            Files(paths).open_rows(X, None)
        with pytest.raises(SchemaError):
            open_rows(paths, X, None)
    with pytest.raises(SchemaError):
        open_rows(ds.dataset([ds.dataset(path), ds.dataset(path)]), X, None)


def test_a_hard_link_of_a_file_is_the_file(tmp_path):
    path = parquet(tmp_path / "1.parquet", [1, 2])
    other = tmp_path / "2.parquet"
    os.link(path, other)
    plain = csv(tmp_path / "1.csv", ["1"])
    os.link(plain, tmp_path / "2.csv")
    for paths in ([path, other], [plain, tmp_path / "2.csv"], [f"{tmp_path}/*.parquet"]):
        with pytest.raises(SchemaError, match="twice"):
            Files(paths).open_rows(X, None)
        with pytest.raises(SchemaError, match="twice"):
            open_rows(paths, X, None)
    for twice in (
        ds.dataset([ds.dataset(path), ds.dataset(other)]),
        ds.dataset([str(path), str(other)], format="parquet"),
        ds.dataset([str(path), f"{tmp_path}/../{tmp_path.name}/1.parquet"], format="parquet"),
    ):
        with pytest.raises(SchemaError, match="twice"):
            open_rows(twice, X, None)
    copy = tmp_path / "3.parquet"
    shutil.copy(path, copy)  # a copy is another file: nobody can tell that its rows are the same
    open_rows(ds.dataset([str(path), str(copy)], format="parquet"), X, None)


@pytest.mark.parametrize("kind", ["csv", "parquet", "dataset"])
def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, kind):
    path = tmp_path / f"1.{'csv' if kind == 'csv' else 'parquet'}"
    (csv if kind == "csv" else parquet)(path, ["a", "b"])
    rows = open_rows(ds.dataset(path), X, None) if kind == "dataset" else Files(path)
    rows = rows if kind == "dataset" else rows.open_rows(X, None)

    def changes(columns):
        os.utime(path, ns=(1, 1))
        return np.array([len(columns["x"])], dtype=np.int64)

    with pytest.raises(SchemaError, match="changed"):
        rows.total(changes)


def test_sums_of_integers_do_not_overflow():
    most = np.int64(2**63 - 1)
    assert exact_add(most, most) == 2**64 - 2
    assert exact_add(None, most) == most
    assert exact_add(np.array([most]), np.array([1])).tolist() == [2**63]
    assert exact_add(np.array([-(2**63)]), np.array([-(2**63)])).tolist() == [-(2**64)]
