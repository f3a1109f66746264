"""Pieces of CSV files, read line by line as a whole file would be."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from attrs import frozen

from adaptive_dp.rows.csv_plain import plain_columns
from adaptive_dp.rows.files import Form
from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading
from adaptive_dp.rows.stamps import Stamp, stamped

PART = 2**25
"""Bytes of a file that make a part, 32 MiB; a compressed file is one part."""

READ = 2**20
"""Bytes that are read at a time."""

MARK = b"\xef\xbb\xbf"


@frozen
class CsvPart:
    """The lines of a file that begin in a range of its bytes.

    Parameters
    ----------
    path
        Of the file.
    start, stop
        The range; the first part's starts after the header. Without a stop, to the end.
    first
        The header.
    unit
        The column of identifiers, if it is read as text; or None.
    stamp
        What tells whether the file has changed.
    """

    path: Path
    start: int
    stop: int | None
    first: str
    unit: str | None
    stamp: Stamp

    def rows(self) -> int | None:
        """Return None: nobody knows before the lines are counted."""
        return None

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        form = Form.of(self.path.name, self.first, read_as(columns, self.unit))
        with _opened(self.path) as file:
            self.stamp.check(self.path)
            for text in self._pieces(file):
                found = plain_columns(form, text)
                yield rows(form.columns(_lines(text)) if found is None else found, columns, None)
        self.stamp.check(self.path)

    def _pieces(self, file: IO[bytes]) -> Iterator[str]:
        """Yield the lines, many at a time: each whole, so that what is no UTF-8 ends with it."""
        at = self.start
        file.seek(at - 1 if at else 0)
        if at:
            at = at - 1 + len(file.readline())  # the rest of a line of the part before
        while self.stop is None or at < self.stop:
            piece = file.read(READ if self.stop is None else min(READ, self.stop - at))
            if not piece:
                return
            if not piece.endswith(b"\n"):
                piece += file.readline()
            at += len(piece)
            yield piece.decode("utf-8", errors="replace")


def read_as(columns: dict[str, Reading], unit: str | None) -> dict[str, Reading]:
    """Return how a CSV file's columns are read: identifiers are texts."""
    return {name: "text" if name == unit else reading for name, reading in columns.items()}


def csv_parts(path: Path, columns: dict[str, Reading], unit: str | None) -> list[CsvPart]:
    """Return the parts of a file.

    Raises
    ------
    SchemaError
        If the file cannot be read or lacks a column; no content is told.
    """
    failed = ""
    try:
        stamp = stamped(path)
        with _opened(path) as file:
            line = file.readline()
        first = line.removeprefix(MARK).decode("utf-8", errors="replace")
        form = Form.of(path.name, first, read_as(columns, unit))
    except SchemaError as error:
        failed = str(error)
    except Exception:  # compression
        failed = f"{path.name} cannot be read as a CSV file"
    if failed:  # outside of the handler: the cause may quote the file
        raise SchemaError(failed)
    there = {name for name, _, _ in form.wanted}
    missing = [name for name in columns if name not in there]
    if missing:
        names = ", ".join(map(repr, missing))
        raise SchemaError(f"{path.name} has no column {names}; each declared column must be there")
    if path.name.lower().endswith(".gz"):
        return [CsvPart(path, len(line), None, first, unit, stamp)]
    starts = range(len(line), max(stamp.size, len(line) + 1), PART)
    return [CsvPart(path, at, at + PART, first, unit, stamp) for at in starts]


def no_lines(columns: dict[str, Reading]) -> MemoryRows:
    """Return no rows, of the types that a CSV file's have."""
    empty: dict[str, Any] = {name: [] for name in columns}
    return rows(empty, columns, None)


def _opened(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rb")  # type: ignore[return-value]
    return path.open("rb")


def _lines(text: str) -> io.StringIO:
    """Return lines, of which nothing ends one but a line feed."""
    return io.StringIO(text, newline="\n")
