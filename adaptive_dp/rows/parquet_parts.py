"""Row groups of Parquet files, and fragments of PyArrow data sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import BLOCK, Reading
from adaptive_dp.rows.stamps import Stamp, stamped

BATCH = 4 * BLOCK
"""Rows that are read at a time, however large a row group is: few enough for the cache."""


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
        self.stamp.check(self.path)


def row_groups(
    path: Path, columns: dict[str, Reading], unit: str | None
) -> tuple[list[RowGroup], MemoryRows, str]:
    """Return the row groups of a file, no rows of its types, and what its identifiers are.

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
    return groups, empty, "" if unit is None else _kind(schema.field(unit).type)


def _kind(identifiers: Any) -> str:
    """Return which identifiers can be equal to each other, in a word; "" of those that are none."""
    import pyarrow as pa

    found = identifiers.value_type if pa.types.is_dictionary(identifiers) else identifiers
    if pa.types.is_null(found):
        return ""
    if pa.types.is_binary(found) or pa.types.is_large_binary(found):
        return "bytes"
    plain = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return "numbers" if any(each(found) for each in plain) else "texts"


def block(batch: Any, columns: Mapping[str, Reading]) -> MemoryRows:
    """Return a batch as rows; each cell is what it would be in memory (see `_floats`)."""
    import pyarrow as pa

    if not columns:
        return rows({"": [0.0] * batch.num_rows}, {"": "number"}, None)
    floats = {
        name: _floats(batch.column(name))
        for name, reading in columns.items()
        if reading == "number"
    }
    plain = {name: column for name, column in floats.items() if column is not None}
    rest = {name: reading for name, reading in columns.items() if name not in plain}
    units = np.arange(batch.num_rows, dtype=np.int64)
    if not rest:
        return MemoryRows(plain, units)
    found = rows(pa.table({name: batch.column(name) for name in rest}), rest, None).columns
    return MemoryRows({name: plain.get(name, found.get(name)) for name in columns}, units)  # type: ignore[misc]


def _floats(column: Any) -> NDArray[np.float64] | None:
    """Return numbers and truth values as floats, gaps as NaN; None for what is none of them.

    A whole number becomes the float next to it, halves to even, as Python's ``float`` has it.
    """
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        return None
    floats = column if pa.types.is_float64(kind) else column.cast(pa.float64(), safe=False)
    return np.asarray(floats.to_numpy(zero_copy_only=False))
