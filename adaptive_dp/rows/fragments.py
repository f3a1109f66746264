"""Data sets of PyArrow: fragments of a few files' row groups, or of tables in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attrs import frozen

from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.parquet_parts import BATCH, block
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading
from adaptive_dp.rows.stamps import Stamp

FORMATS = ("ParquetFileFormat", "IpcFileFormat", "FeatherFileFormat", "OrcFileFormat")
"""Files that say themselves of what types their columns are: nothing is guessed from cells."""


@frozen(eq=False, repr=False)
class Fragment:
    """A fragment of a data set.

    Parameters
    ----------
    fragment
        The ``pyarrow.dataset.Fragment``.
    schema
        Of the data set.
    length
        How many rows it has.
    stamp
        What tells whether its file has changed; None for one in memory.
    """

    fragment: Any
    schema: Any
    length: int
    stamp: Stamp | None

    def rows(self) -> int | None:
        """Return how many rows it has."""
        return self.length

    def blocks(self, columns: dict[str, Reading]) -> Iterator[MemoryRows]:
        """Yield the rows."""
        self._check()
        batches = self.fragment.to_batches(
            schema=self.schema, columns=list(columns), batch_size=BATCH, use_threads=False
        )
        for batch in batches:
            yield block(batch, columns)
        self._check()

    def _check(self) -> None:
        """Refuse a file that has changed: before it is read, and by another's hand meanwhile."""
        if _stamp(self.fragment) != self.stamp:
            raise SchemaError("a file of the data set has changed since it was opened")


def fragments(data: Any, columns: dict[str, Reading]) -> tuple[list[Fragment], MemoryRows]:
    """Return the fragments of a data set, and no rows of its types.

    Parameters
    ----------
    data
        A ``pyarrow.dataset.Dataset``.
    columns
        What is read of it.

    Raises
    ------
    SchemaError
        If it is filtered, names a file twice, its files do not say their types, or its columns do
        not fit.
    """
    twice = False
    empty = rows(data.schema.empty_table(), columns, None)
    found: list[Fragment] | None = None
    try:
        whole = list(data.get_fragments())
        paths = [path for each in whole if (path := getattr(each, "path", None)) is not None]
        twice = len(set(paths)) < len(paths)
        formats = {type(each.format).__name__ for each in whole if hasattr(each, "format")}
        if formats <= set(FORMATS):
            pieces = [piece for each in whole for piece in _split(each)]
            found = [
                Fragment(each, data.schema, each.count_rows(), _stamp(each)) for each in pieces
            ]
    except Exception:  # its message may quote the files
        formats = set()
    if twice:
        raise SchemaError("a file of the data set is named twice, and its rows would count twice")
    if found is None and formats:
        raise SchemaError(
            "a data set of PyArrow must be of Parquet, ORC or Arrow files: of others the types are "
            "guessed from what is in them; pass CSV files as dp.Files('part-*.csv')"
        )
    if found is None:
        raise SchemaError(
            "the data set of PyArrow cannot be read in fragments: one of its files is damaged, or "
            "it is filtered; filter in the plan: people.filter(...)"
        )
    return found, empty


def _split(fragment: Any) -> list[Any]:
    split = getattr(fragment, "split_by_row_group", None)
    return [fragment] if split is None else list(split())


def _stamp(fragment: Any) -> Stamp | None:
    """Return the size of a fragment's file, and when it was written if that is known."""
    if getattr(fragment, "filesystem", None) is None:
        return None
    found = fragment.filesystem.get_file_info(fragment.path)
    return Stamp(found.size or 0, found.mtime_ns or 0)
