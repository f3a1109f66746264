"""Rows from files: CSV by the standard library, Parquet by narwhals."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from adaptive_dp.rows.reading import SchemaError


def read(path: Path, *, numeric: Collection[str], text: Collection[str]) -> Any:
    """Return the named columns of a file.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (UTF-8, a header line, one record a line) or ``.parquet``.
    numeric
        Columns to read as numbers; what is no number is missing.
    text
        Columns to read as text.

    Raises
    ------
    SchemaError
        If the file cannot be read or lacks a column; no content is told.
    """
    if not path.is_file():
        raise SchemaError(f"there is no file {path}")
    name = path.name.lower()
    if name.endswith(".parquet"):
        return _parquet(path)
    if not name.endswith((".csv", ".csv.gz")):
        raise SchemaError(f"{path.name}: a data file ends in .csv, .csv.gz or .parquet")
    try:
        return _csv(path, numeric, text)
    except SchemaError as error:
        failed = str(error)
    except Exception:  # compression
        failed = f"{path.name} cannot be read as a CSV file"
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file


def _csv(path: Path, numeric: Collection[str], text: Collection[str]) -> dict[str, list[Any]]:
    """Return columns as lists, each line read by itself.

    A field cannot go on in the next line: one quote that is left open would swallow the lines of
    others. A line that is not well formed is a row of missing values; empty lines are none.
    """
    with _opened(path) as file:
        header = _fields(next(file, "")) or []
        if len(set(header)) != len(header):
            raise SchemaError(f"{path.name}: column names repeat")
        wanted = [name for name in (*numeric, *text) if name in header]
        if not wanted and (numeric or text):
            raise SchemaError(
                f"{path.name}: none of the columns {', '.join(map(repr, (*numeric, *text)))} is in "
                f"the first line, which has {len(header)} columns separated by commas"
            )
        positions = [header.index(name) for name in wanted]
        columns: list[list[Any]] = [[] for _ in wanted]
        for line in file:
            if not line.strip():
                continue
            record = _fields(line) or []
            fits = len(record) == len(header)
            for column, position in zip(columns, positions, strict=True):
                column.append(record[position] if fits else None)
    return {
        name: [_number(cell) for cell in column] if name in numeric else column
        for name, column in zip(wanted, columns, strict=True)
    }


def _fields(line: str) -> list[str] | None:
    """Return the fields of one line; None where it is not well formed."""
    try:
        return next(csv.reader([line.rstrip("\r\n")], strict=True), [])
    except csv.Error:
        return None


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    # what is not UTF-8 is replaced where it stands, and a mark at the beginning is left out
    if path.name.lower().endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield file
    else:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield file


def _number(cell: str | None) -> float | None:
    """Return a field as a number, true and false as 1 and 0; None for anything else."""
    text = (cell or "").strip()
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return float(text)
    except ValueError:
        return None


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
