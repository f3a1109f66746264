"""CSV files: read into memory, or in pieces of a few MiB, one line at a time.

Each line is read by itself, and each cell by its column's declaration alone, so that one person's
line cannot change how another's is read. `CsvFormat` does that with the standard library.
`fast_columns` does the same ten times as fast with PyArrow, for lines that every CSV reader
understands alike.
"""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.data.cells import number, of_strings, parse_number
from adaptive_dp.data.engine import FileFingerprint, file_fingerprint
from adaptive_dp.data.memory import MemoryRows, refuse_missing, table_rows
from adaptive_dp.data.rows import Reading, Schema, SchemaError

PART_BYTES = 2**25
"""Bytes of a part, 32 MiB; a compressed file is one part."""

READ_BYTES = 2**20
"""Bytes that are read at once."""

MOST_EXPANSION, FREE_BYTES = 200, 2**28
"""A compressed file may be so many times smaller than its text, or that of 256 MiB at most.

Numbers and words of people are about 3 to 20 times smaller; a file of zeros is 1,000 times.
"""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

SPECIAL = ('"', "\r", "\0")
"""Characters that fast lines do not have."""

DECIMAL = r"^-?[0-9]{1,30}(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,2})?$"
"""Numbers between 1e-140 and 1e130, or zero."""


# --- lines and cells


def read_csv(
    path: Path, readings: Mapping[str, Reading], needed: Container[str | None] | None = None
) -> dict[str, list[Any]]:
    """Return the needed columns of a file (None for all); see `CsvFormat`.

    Raises
    ------
    SchemaError
        If a column is not there, needed or not.
    """
    with _open_text(path) as file:
        form = CsvFormat.of(path.name, next(file, ""), readings)
        refuse_missing(path.name, readings, {name for name, _, _ in form.wanted})
        wanted = [each for each in form.wanted if needed is None or each[0] in needed]
        return CsvFormat(form.width, tuple(wanted)).columns(file)


@frozen
class CsvFormat:
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
    def of(name: str, line: str, readings: Mapping[str, Reading]) -> CsvFormat:
        """Return the format of a file with this first line, for the columns that it has.

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
        return CsvFormat(len(header), tuple(wanted))

    def columns(self, lines: Iterable[str]) -> dict[str, list[Any]]:
        """Return columns as lists, each line read by itself.

        A field cannot continue in the next line: one quote that is left open would swallow the
        lines of other people. A line that is not well formed is a row of missing values. An empty
        line is not a row, except in a file of one column, where it is an empty cell. If no column
        is read, a column without a name has one cell for each row.
        """
        cells: list[list[Any]] = [[] for _ in self.wanted]
        count = 0
        for line in lines:
            # an empty line is an empty cell of one column; with more columns it is no row
            if not line.strip() and self.width > 1:
                continue
            count += 1
            record = _fields(line) or []
            # a line of another width is a row of missing values: its fields cannot be assigned
            fits = len(record) == self.width
            for column, (_, position, reading) in zip(cells, self.wanted, strict=True):
                column.append(parse_cell(record[position], reading) if fits else None)
        # no column is wanted: a column without a name carries the number of rows
        if not self.wanted:
            return {"": [None] * count}
        return {name: column for (name, _, _), column in zip(self.wanted, cells, strict=True)}


def _fields(line: str) -> list[str] | None:
    """Return the fields of one line; None where it is not well formed."""
    try:
        # one line at a time: a quote that is left open ends with its line
        return next(csv.reader([line.rstrip("\r\n")], strict=True), [])
    except csv.Error:
        return None


@contextmanager
def _open_text(path: Path) -> Iterator[IO[str]]:
    # bytes that are not UTF-8 are replaced where they stand; a byte order mark is left out
    if path.name.lower().endswith(".gz"):
        with (
            _open_bytes(path) as raw,
            io.TextIOWrapper(raw, "utf-8-sig", "replace", newline="\n") as file,
        ):
            yield file
    else:
        with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
            yield file


def parse_cell(text: str | None, reading: Reading) -> float | str | None:
    """Return a field by what its column holds; true and false are 1 and 0 among numbers."""
    if text is None or reading in ("text", "date"):
        return text  # a date is read with the column's other cells
    number = parse_number(text)
    # a column that may hold both keeps what is no number as text
    return text if number is None and reading == "value" else number


# --- the same, fast


def fast_columns(form: CsvFormat, text: str) -> dict[str, Any] | None:
    """Return what ``form.columns`` returns, or None if that is not certain.

    Lines without quotes in which only a line feed ends a line have their cells between commas.
    PyArrow splits them, and converts plain decimal numbers with so few digits that they neither
    overflow nor underflow: it gives the nearest float, as Python does. All other cells are read by
    `parse_cell`.

    Parameters
    ----------
    form
        The format of the file. It must have at least two columns: otherwise an empty line would be
        an empty cell.
    text
        Complete lines.
    """
    lines = text.replace("\r\n", "\n")
    # what is refused here is what readers of CSV disagree on
    special = any(each in lines for each in SPECIAL) or lines.startswith("\ufeff")
    if form.width < 2 or special or _longest(lines) > csv.field_size_limit():
        return None
    try:
        import pyarrow as pa
        import pyarrow.csv as reader
    except ImportError:
        return None
    # names are positions: the header was read already, and may have any characters
    names = [str(i) for i in range(form.width)]
    # one column for the number of lines, where nothing else is asked for
    included = [str(position) for _, position, _ in form.wanted] or names[:1]
    data = lines.encode()
    try:
        table = reader.read_csv(
            pa.BufferReader(data),
            # one block of all lines; every cell is text, so that no type is inferred
            reader.ReadOptions(column_names=names, use_threads=False, block_size=len(data) + 1),
            reader.ParseOptions(quote_char=False, escape_char=False),
            reader.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=included,
            ),
        )
    except pa.ArrowException:  # no lines, or one of another width
        return None
    if not form.wanted:
        return {"": [None] * table.num_rows}
    columns: dict[str, Any] = {}
    for name, position, reading in form.wanted:
        column = table.column(str(position))
        if reading == "number":
            columns[name] = _floats(column)
        else:
            parse = None if reading == "text" else partial(parse_cell, reading=reading)
            columns[name] = of_strings(column, parse)
    return columns


def _longest(lines: str) -> int:
    return max(map(len, lines.split("\n")))


def _floats(column: Any) -> NDArray[np.float64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    # cells that PyArrow may read as Python does; the others are "nan" first, then one at a time
    plain = pc.match_substring_regex(column, DECIMAL)
    floats = pc.if_else(plain, column, "nan").cast(pa.float64()).to_numpy().copy()
    for i in np.flatnonzero(~plain.to_numpy()):
        floats[i] = number(parse_cell(column[int(i)].as_py(), "number"))
    return floats  # type: ignore[no-any-return]


# --- parts of a file


@frozen
class CsvPart:
    """The lines of a file that begin in a range of its bytes.

    Parameters
    ----------
    path
        Of the file.
    start, stop
        The range; that of the first part starts after the header. A stop of None means the end.
    header
        The first line.
    unit
        The column of identifiers if it is read as ``str``; or None.
    fingerprint
        Tells whether the file has changed.
    """

    path: Path
    start: int
    stop: int | None
    header: str
    unit: str | None
    fingerprint: FileFingerprint

    def rows(self) -> int | None:
        """Return None: the lines have not been counted."""
        return None

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        form = CsvFormat.of(self.path.name, self.header, _readings(columns, self.unit))
        with _open_bytes(self.path) as file:
            self.fingerprint.check(self.path)
            for text in self._pieces(file):
                fast = fast_columns(form, text)
                lists = form.columns(_lines(text)) if fast is None else fast
                yield table_rows(lists, Schema(columns))
        self.fingerprint.check(self.path)

    def _pieces(self, file: IO[bytes]) -> Iterator[str]:
        """Yield complete lines, many at a time: invalid UTF-8 in one cannot affect the next."""
        at = self.start
        # from the byte before: if that ends a line, the line at `start` belongs to this part
        file.seek(at - 1 if at else 0)
        if at:
            # a line belongs to the part in which it begins: skip the end of one of the part before
            at = at - 1 + len(file.readline())
        while self.stop is None or at < self.stop:
            piece = file.read(READ_BYTES if self.stop is None else min(READ_BYTES, self.stop - at))
            if not piece:
                return
            # the rest of a line that a piece cuts: no line is split, even if it ends after `stop`
            if not piece.endswith(b"\n"):
                piece += file.readline()
            at += len(piece)
            yield piece.decode("utf-8", errors="replace")


def _readings(columns: dict[str, Reading], unit: str | None) -> dict[str, Reading]:
    """Return how the columns of a CSV file are read: identifiers as ``str``."""
    return {name: "text" if name == unit else reading for name, reading in columns.items()}


def csv_parts(path: Path, columns: dict[str, Reading], unit: str | None) -> list[CsvPart]:
    """Return the parts of a file.

    Raises
    ------
    SchemaError
        If the file cannot be read or lacks a column. The message contains nothing of its content.
    """
    failed = ""
    try:
        fingerprint = file_fingerprint(path)
        with _open_bytes(path) as file:
            line = file.readline()
        header = line.removeprefix(BYTE_ORDER_MARK).decode("utf-8", errors="replace")
        form = CsvFormat.of(path.name, header, _readings(columns, unit))
    except SchemaError as error:
        failed = str(error)
    except Exception:  # compression
        failed = f"{path.name} cannot be read as a CSV file"
    if failed:  # outside of the handler: the cause may quote the file
        raise SchemaError(failed)
    refuse_missing(path.name, columns, {name for name, _, _ in form.wanted})
    if path.name.lower().endswith(".gz"):
        # one part: a compressed file cannot be read from the middle
        return [CsvPart(path, len(line), None, header, unit, fingerprint)]
    # at least one part, even if there is nothing after the header
    starts = range(len(line), max(fingerprint.size, len(line) + 1), PART_BYTES)
    return [CsvPart(path, at, at + PART_BYTES, header, unit, fingerprint) for at in starts]


def empty_rows(columns: dict[str, Reading]) -> MemoryRows:
    """Return no rows, with the types that columns of a CSV file have."""
    empty: dict[str, Any] = {name: [] for name in columns}
    return table_rows(empty, Schema(columns))


def _open_bytes(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return io.BufferedReader(_Expanded(path), READ_BYTES)
    return path.open("rb")


class _Expanded(io.RawIOBase):
    """The text of a compressed file, as it is read, or an error once there is far too much of it.

    A file of some kilobytes can stand for terabytes, which would be read for days.
    """

    def __init__(self, path: Path) -> None:
        self._file = gzip.GzipFile(path, "rb")
        self._left = max(FREE_BYTES, MOST_EXPANSION * path.stat().st_size)
        self._name = path.name

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise SchemaError(
                f"{self._name} expands to more than {MOST_EXPANSION} times its size, which no "
                "table of people does; if it is right, expand it first"
            )
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _lines(text: str) -> io.StringIO:
    """Return lines; only a line feed ends one."""
    return io.StringIO(text, newline="\n")
