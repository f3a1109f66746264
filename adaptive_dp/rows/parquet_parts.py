"""Row groups of Parquet files, and fragments of PyArrow data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading
from adaptive_dp.rows.stamps import Stamp, stamped

BATCH = 2**16
"""Rows that are read at a time, however large a row group is."""


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
    stamp
        What tells whether the file has changed.
    """

    path: Path
    index: int
    length: int
    stamp: Stamp

    def rows(self) -> int | None:
        """Return how many rows it has."""
        return self.length

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        import pyarrow.parquet as pq

        self.stamp.check(self.path)
        with pq.ParquetFile(self.path) as file:
            batches = file.iter_batches(
                BATCH, row_groups=[self.index], columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield block(batch, columns)


def row_groups(path: Path, columns: dict[str, Reading]) -> tuple[list[RowGroup], MemoryRows]:
    """Return the row groups of a file, and no rows of its types.

    Raises
    ------
    SchemaError
        If the file cannot be read, or its columns do not fit.
    """
    stamp, failed = stamped(path), ""
    try:
        import pyarrow.parquet as pq

        with pq.ParquetFile(path) as file:
            metadata, schema = file.metadata, file.schema_arrow
            lengths = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    except ImportError:
        failed = "to read Parquet in batches install adaptive-dp[arrow]"
    except Exception:
        failed = f"{path.name} is not a Parquet file"
    if failed:  # outside of the handler: the cause may quote the file
        raise SchemaError(failed)
    empty = rows(schema.empty_table(), columns, None)
    groups = [RowGroup(path, i, length, stamp) for i, length in enumerate(lengths)]
    return groups, empty


def block(batch: Any, columns: Mapping[str, Reading]) -> MemoryRows:
    """Return a batch as rows; each cell is what it would be in memory (see `_plain`)."""
    import pyarrow as pa

    if not columns:
        return rows({"": [0.0] * batch.num_rows}, {"": "number"}, None)
    found = [
        _plain(batch.column(name)) if reading == "number" else batch.column(name)
        for name, reading in columns.items()
    ]
    return rows(pa.table(dict(zip(columns, found, strict=True))), columns, None)


def _plain(column: Any) -> Any:
    """Return whole numbers and truth values as floats, gaps as gaps.

    A cell becomes the float next to it, halves to even, as Python's ``float`` has it.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.float64(), safe=False)
    return column
