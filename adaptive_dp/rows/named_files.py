"""Files as data: where they are, and who reads them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from adaptive_dp.rows.opening import HERE, in_batches, paths_of
from adaptive_dp.rows.parts import PartedRows
from adaptive_dp.rows.processes import available
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading

Path = str | os.PathLike[str]


def _listed(value: Any) -> tuple[Path, ...]:
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(value) if several else (value,)


def _engine(value: Any) -> Any:
    if isinstance(value, str) and value not in HERE and not value.startswith("dask://"):
        raise SchemaError(
            f'an engine is "threads", "processes", or "dask://HOST:PORT", got {value!r}'
        )
    if value == "processes" and not available():
        raise SchemaError("to read by processes install adaptive-dp[arrow], which brings loky")
    return value


@frozen
class Files:
    """CSV and Parquet files that a plan reads in batches, on this machine or by a cluster.

    Parameters
    ----------
    paths
        A path, a pattern such as ``"part-*.parquet"``, or a list of them. Rows are in the order of
        the files; those of a pattern are in the order of their names.
    engine
        ``"threads"`` or ``"processes"``, as many as this machine has cores; None for processes
        where there is so much to read that they are worth a second to start (a GiB of Parquet,
        256 MiB of CSV), threads otherwise. For a Dask cluster the address of its scheduler,
        ``"dask://HOST:PORT"``, or a ``distributed.Client``. Its workers must see the files under
        the same paths, and have this library.
    progress
        Whether passes show on the standard error how many parts of all they have read. That is for
        whoever holds the data: how many parts there are tells how many rows.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.Files("part-*.parquet")
    Files(paths=('part-*.parquet',), engine=None, progress=False)
    """

    paths: tuple[Path, ...] = field(converter=_listed)
    engine: Any = field(default=None, converter=_engine)
    progress: bool = False

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> PartedRows:
        """Return the rows, of which a few batches are in memory at a time.

        Raises
        ------
        SchemaError
            If there is no such file or engine, or the columns do not fit.
        """
        paths = paths_of(list(self.paths))
        if paths is None:
            raise SchemaError("a data file ends in .csv, .csv.gz or .parquet")
        return in_batches(paths, columns, unit, self.engine, self.progress)
