"""Rows from files: CSV by the standard library, Parquet by narwhals."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows.memory import SchemaError


def read(path: Path, *, numeric: Collection[str], text: Collection[str]) -> Any:
    """Return the named columns of a file.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (with a header line, UTF-8) or ``.parquet``.
    numeric
        Columns to read as numbers; what is no number becomes NaN.
    text
        Columns to read as text.

    Raises
    ------
    SchemaError
        If the file cannot be read or lacks a column; no content is told.
    """
    if not path.is_file():
        raise SchemaError(f"there is no file {path}")
    if path.suffix == ".parquet":
        return _parquet(path)
    if not (path.name.endswith(".csv") or path.name.endswith(".csv.gz")):
        raise SchemaError(f"{path.name}: a data file ends in .csv, .csv.gz or .parquet")
    try:
        return _csv(path, numeric, text)
    except SchemaError as error:
        failed = str(error)
    except Exception:  # encoding, compression, quoting
        failed = f"{path.name} is not a UTF-8 CSV file with one record on each line"
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file


def _csv(path: Path, numeric: Collection[str], text: Collection[str]) -> dict[str, NDArray[Any]]:
    with _opened(path) as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if len(set(header)) != len(header):
            raise SchemaError(f"{path.name}: column names repeat")
        wanted = [name for name in (*numeric, *text) if name in header]
        positions = [header.index(name) for name in wanted]
        columns: list[list[str]] = [[] for _ in wanted]
        for record in reader:
            for column, position in zip(columns, positions, strict=True):
                column.append(record[position] if position < len(record) else "")
    return {
        name: _numbers(column) if name in numeric else np.array(column, dtype=np.str_)
        for name, column in zip(wanted, columns, strict=True)
    }


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            yield file
    else:
        with path.open(encoding="utf-8", newline="") as file:
            yield file


def _numbers(column: list[str]) -> NDArray[np.float64]:
    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return math.nan

    return np.array([number(text) for text in column], dtype=np.float64)


def _parquet(path: Path) -> Any:
    try:
        import narwhals as nw
    except ImportError:
        raise SchemaError("to read Parquet install adaptive-dp[frames] and pyarrow") from None
    try:
        return nw.read_parquet(str(path), backend="pyarrow").to_native()
    except ImportError:
        failed = "to read Parquet install pyarrow"
    except Exception:
        failed = f"{path.name} is not a Parquet file"
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file
