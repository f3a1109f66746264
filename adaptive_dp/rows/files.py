"""Rows from files: CSV by the standard library, Parquet by narwhals."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from attrs import frozen

from adaptive_dp.rows.cells import spelled
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading

ENDINGS = (".csv", ".csv.gz", ".parquet")


def names(text: str) -> bool:
    """Whether a text names a data file; any other may be data, which no error may show."""
    return text.lower().endswith(ENDINGS) and "\n" not in text


def read(path: Path, columns: Mapping[str, Reading], unit: str | None) -> Any:
    """Return the named columns of a file.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (UTF-8, a header line, one record a line) or ``.parquet``.
    columns
        The columns, and what each holds: of numbers and codes what is no number is missing, of
        values what is no number is a text.
    unit
        The column that identifies a unit, read as text unless its categories are numbers; or None.

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
    if not name.endswith(ENDINGS):
        raise SchemaError(f"{path.name}: a data file ends in .csv, .csv.gz or .parquet")
    # categories that are numbers are read as such, or they would be none of those declared
    readings = dict(columns)
    if unit is not None and columns.get(unit) != "code":
        readings[unit] = "text"
    try:
        return _csv(path, readings)
    except SchemaError as error:
        failed = str(error)
    except Exception:  # compression
        failed = f"{path.name} cannot be read as a CSV file"
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file


def _csv(path: Path, readings: Mapping[str, Reading]) -> dict[str, list[Any]]:
    with _opened(path) as file:
        form = Form.of(path.name, next(file, ""), readings)
        return form.columns(file)


@frozen
class Form:
    """How the lines of a CSV file are read.

    Parameters
    ----------
    width
        How many columns the file has.
    wanted
        The columns that are read: their names, positions, and what they hold.
    """

    width: int
    wanted: tuple[tuple[str, int, Reading], ...]

    @staticmethod
    def of(name: str, line: str, readings: Mapping[str, Reading]) -> Form:
        """Return the form of a file with this first line, of the columns that it has.

        Raises
        ------
        SchemaError
            If names repeat, or none of the columns is there.
        """
        header = _fields(line) or []
        if len(set(header)) != len(header):
            raise SchemaError(f"{name}: column names repeat")
        wanted = [(each, header.index(each), readings[each]) for each in readings if each in header]
        if readings and not wanted:
            raise SchemaError(
                f"{name}: none of the columns {', '.join(map(repr, readings))} is in the "
                f"first line, which has {len(header)} columns separated by commas"
            )
        return Form(len(header), tuple(wanted))

    def columns(self, lines: Iterable[str]) -> dict[str, list[Any]]:
        """Return columns as lists, each line read by itself.

        A field cannot go on in the next line: one quote that is left open would swallow the lines
        of others. A line that is not well formed is a row of missing values. Empty lines are none,
        but in a file of one column, where they are empty cells. Where no column is read, one
        without a name tells how many rows there are.
        """
        cells: list[list[Any]] = [[] for _ in self.wanted]
        count = 0
        for line in lines:
            if not line.strip() and self.width > 1:
                continue
            count += 1
            record = _fields(line) or []
            fits = len(record) == self.width
            for column, (_, position, reading) in zip(cells, self.wanted, strict=True):
                column.append(cell(record[position], reading) if fits else None)
        if not self.wanted:
            return {"": [None] * count}
        return {name: column for (name, _, _), column in zip(self.wanted, cells, strict=True)}


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


def cell(text: str | None, reading: Reading) -> float | str | None:
    """Return a field as what its column holds; true and false are 1 and 0 among numbers."""
    if text is None or reading == "text":
        return text
    found = spelled(text)
    return text if found is None and reading == "value" else found


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
