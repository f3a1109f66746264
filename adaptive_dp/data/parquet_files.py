"""Parquet files by their row groups, and data sets of PyArrow by their pieces."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from adaptive_dp.data.engine import FileFingerprint, file_fingerprint, file_identity
from adaptive_dp.data.memory import MemoryRows, table_rows
from adaptive_dp.data.rows import BLOCK, Reading, Schema, SchemaError

BATCH_ROWS = 4 * BLOCK
"""Rows that are read at once, however large a row group is: few enough for the cache."""

READ_BYTES = 2**16
"""Bytes that are read at once of a column: few enough for the cache."""


def read_parquet(path: Path, schema: Schema) -> Any:
    """Return the needed columns of a file, and that of its units, as a PyArrow table.

    Parameters
    ----------
    path
        The file's.
    schema
        What is read.

    Raises
    ------
    SchemaError
        If the file cannot be read, or its columns do not fit, whether they are needed or not. The
        message contains nothing of its content.
    """
    try:
        import narwhals  # noqa: F401
    except ImportError:
        raise SchemaError("to read Parquet install adaptive-dp[frames] and pyarrow") from None
    failed = f"{path.name} is not a Parquet file"
    try:
        import pyarrow.parquet as pq

        file = pq.ParquetDataset(str(path))
        empty = file.schema.empty_table()
    except ImportError:
        failed, empty = "to read Parquet install pyarrow", None
    except Exception:
        empty = None
    if empty is not None:
        # names and types are checked, needed or not
        table_rows(empty, evolve(schema, needed=()))
        try:
            return file.read(columns=list(schema.read_with_unit))
        except Exception:
            pass
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file


@frozen
class RowGroup:
    """A row group of a file.

    Parameters
    ----------
    path
        Of the file.
    index
        Which one.
    length
        How many rows it has.
    fingerprint
        Tells whether the file has changed.
    dictionaries
        The columns of ``str`` that it has as codes and a few values.
    """

    path: Path
    index: int
    length: int
    fingerprint: FileFingerprint
    dictionaries: tuple[str, ...] = ()

    def rows(self) -> int | None:
        """Return how many rows it has."""
        return self.length

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        import pyarrow.parquet as pq

        # before and after: a file that changes in between would mix two data sets
        self.fingerprint.check(self.path)
        # columns that are read as they are stored: their values once, and a code for each row
        dictionaries = [name for name in self.dictionaries if name in columns]
        metadata = _metadata(self.path, self.fingerprint)
        # not "pre_buffer", which reads all columns of the row group into memory first
        how: dict[str, Any] = {"pre_buffer": False, "buffer_size": READ_BYTES}
        with pq.ParquetFile(
            self.path, metadata=metadata, read_dictionary=dictionaries, **how
        ) as file:
            batches = file.iter_batches(
                BATCH_ROWS, row_groups=[self.index], columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield rows_of_batch(batch, columns)
        self.fingerprint.check(self.path)


@lru_cache(maxsize=8)
def _metadata(path: Path, fingerprint: FileFingerprint) -> Any:
    """Return the metadata of a file as it is now.

    It describes every column of every row group: read again for each of them, it would be most of
    what is read of a wide file.
    """
    import pyarrow.parquet as pq

    return pq.read_metadata(path)


def row_groups(path: Path, schema: Schema) -> tuple[list[RowGroup], MemoryRows, str]:
    """Return the row groups of a file, its columns without rows, and the kind of its identifiers.

    Parameters
    ----------
    path
        The file's.
    schema
        What is read.

    Raises
    ------
    SchemaError
        If the file cannot be read, or its columns do not fit.
    """
    fingerprint, failed = file_fingerprint(path), ""
    try:
        import pyarrow as pa

        # only the metadata is read: lengths and types, no cells
        metadata = _metadata(path, fingerprint)
        stored = metadata.schema.to_arrow_schema()
        lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    except ImportError:
        failed = "to read Parquet in batches install adaptive-dp[arrow]"
    except Exception:
        failed = f"{path.name} is not a Parquet file"
    if failed:  # outside of the handler: the cause may quote the file
        raise SchemaError(failed)
    empty = table_rows(stored.empty_table(), schema)
    strings = {
        each.name
        for each in stored
        if pa.types.is_string(each.type) or pa.types.is_large_string(each.type)
    }
    groups = [
        RowGroup(path, i, length, fingerprint, _few(metadata.row_group(i), strings))
        for i, length in enumerate(lengths)
    ]
    return groups, empty, "" if schema.unit is None else _kind(stored.field(schema.unit).type)


def _few(group: Any, strings: Container[str]) -> tuple[str, ...]:
    """Return which columns of ``str`` have few values in a row group, by its metadata."""
    chunks = [group.column(i) for i in range(group.num_columns)]
    return tuple(
        each.path_in_schema
        for each in chunks
        if each.path_in_schema in strings
        and each.has_dictionary_page
        # a dictionary of a few thousand values; a larger one costs more than it saves
        and each.data_page_offset - each.dictionary_page_offset < 2**16
    )


def _kind(identifiers: Any) -> str:
    """Return the kind of identifiers that can be equal to each other; "" for a column of nulls."""
    import pyarrow as pa

    # a dictionary column is what its values are
    type_ = identifiers.value_type if pa.types.is_dictionary(identifiers) else identifiers
    if pa.types.is_null(type_):
        return ""
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return "bytes"
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return "numbers" if any(each(type_) for each in plain) else "strings"


def rows_of_batch(batch: Any, columns: Mapping[str, Reading]) -> MemoryRows:
    """Return a batch as rows; each cell is read as it would be in memory (see `_floats`)."""
    import pyarrow as pa

    # without columns only the number of rows counts: one column of zeros carries it
    if not columns:
        count = batch.num_rows
        return MemoryRows({"": np.zeros(count)}, range(count))
    floats = {
        name: _floats(batch.column(name))
        for name, reading in columns.items()
        if reading == "number"
    }
    # columns that PyArrow converts; the rest is read cell by cell
    plain = {name: column for name, column in floats.items() if column is not None}
    rest = {name: reading for name, reading in columns.items() if name not in plain}
    units = range(batch.num_rows)
    if not rest:
        return MemoryRows(plain, units)
    table = pa.table({name: batch.column(name) for name in rest})
    others = table_rows(table, Schema(rest)).columns
    # in the order of `columns`, which of the two ways each was read
    return MemoryRows({name: plain.get(name, others.get(name)) for name in columns}, units)  # type: ignore[misc]


def _floats(column: Any) -> NDArray[np.float64] | None:
    """Return numbers and booleans as floats, gaps as NaN; None for any other type.

    An integer becomes the nearest float, ties to even, as with Python's ``float``.
    """
    import pyarrow as pa

    kind = column.type
    if not pa.types.is_float64(kind):
        if pa.types.is_boolean(kind):
            # False and True become 0 and 1, then floats as integers do
            column = column.cast(pa.uint8())
        elif not (pa.types.is_integer(kind) or pa.types.is_float32(kind)):
            return None
        # not "safe": integers above 2^53 are rounded instead of refused
        column = column.cast(pa.float64(), safe=False)
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


STORED_TYPES = ("ParquetFileFormat", "IpcFileFormat", "FeatherFileFormat", "OrcFileFormat")
"""Formats that store the types of their columns: nothing is inferred from cells."""


@frozen(eq=False, repr=False)
class DatasetPiece:
    """A piece of a data set: a row group of one of its files, or a table in memory.

    Parameters
    ----------
    fragment
        The ``pyarrow.dataset.Fragment``.
    schema
        Of the data set.
    length
        How many rows it has.
    fingerprint
        Tells whether its file has changed; None for one in memory.
    """

    fragment: Any
    schema: Any
    length: int
    fingerprint: FileFingerprint | None

    def rows(self) -> int | None:
        """Return how many rows it has."""
        return self.length

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        self._check()
        batches = self.fragment.to_batches(
            schema=self.schema, columns=list(columns), batch_size=BATCH_ROWS, use_threads=False
        )
        for batch in batches:
            yield rows_of_batch(batch, columns)
        self._check()

    def _check(self) -> None:
        """Refuse a file that has changed, before it is read or while it is read."""
        if _fingerprint(self.fragment) != self.fingerprint:
            raise SchemaError("a file of the data set has changed since it was opened")


def dataset_pieces(data: Any, schema: Schema) -> tuple[list[DatasetPiece], MemoryRows]:
    """Return the pieces of a data set, and its columns without rows.

    Parameters
    ----------
    data
        A ``pyarrow.dataset.Dataset``.
    schema
        What is read.

    Raises
    ------
    SchemaError
        If it is filtered, names a file twice, its files do not store their types, or its columns
        do not fit.
    """
    twice = False
    empty = table_rows(data.schema.empty_table(), schema)
    result: list[DatasetPiece] | None = None
    try:
        fragments = list(data.get_fragments())
        paths = [path for each in fragments if (path := getattr(each, "path", None)) is not None]
        # on a disk of this machine, hard links and other spellings are the same file
        kinds = {getattr(getattr(each, "filesystem", None), "type_name", "") for each in fragments}
        names = set(map(file_identity, paths) if kinds == {"local"} else paths)
        twice = len(names) < len(paths)
        formats = {type(each.format).__name__ for each in fragments if hasattr(each, "format")}
        # other formats infer types from cells, so that one row could change how others are read
        if formats <= set(STORED_TYPES):
            pieces = [piece for each in fragments for piece in _split(each)]
            result = [
                DatasetPiece(each, data.schema, _length(each), _fingerprint(each))
                for each in pieces
            ]
    except Exception:  # its message may quote the files
        formats = set()
    # raised outside of the handler: the cause may quote the file
    if twice:
        raise SchemaError("a file of the data set is named twice, and its rows would count twice")
    if result is None and formats:
        raise SchemaError(
            "a data set of PyArrow must consist of Parquet, ORC or Arrow files: types of others "
            "are inferred from their content; pass CSV files as dp.Files('part-*.csv')"
        )
    if result is None:
        raise SchemaError(
            "the data set of PyArrow cannot be read in fragments: one of its files is damaged, or "
            "it is filtered; filter in the plan: people.filter(...)"
        )
    return result, empty


def _split(fragment: Any) -> list[Any]:
    # formats that cannot be split are one piece a file
    split = getattr(fragment, "split_by_row_group", None)
    return [fragment] if split is None else list(split())


def _length(fragment: Any) -> int:
    groups = getattr(fragment, "row_groups", None)
    # PyArrow 26 counts all rows of the file, whichever row groups the fragment is of
    return fragment.count_rows() if groups is None else sum(each.num_rows for each in groups)


def _fingerprint(fragment: Any) -> FileFingerprint | None:
    """Return the fingerprint of a fragment's file; None for one in memory."""
    if getattr(fragment, "filesystem", None) is None:
        return None
    info = fragment.filesystem.get_file_info(fragment.path)
    # some file systems do not say when a file was written
    return FileFingerprint(info.size or 0, info.mtime_ns or 0)
