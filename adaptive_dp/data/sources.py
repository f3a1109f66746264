"""Sources: what a plan may be bound to, and which rows stand for it.

A plan is bound to arrays, a frame, one file or many, a data set of PyArrow, or data on a Dask
cluster. `open_rows` decides who reads them: everything in memory, a few batches at a time on this
machine, or the workers of a cluster. `Files` lets the user decide.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from attrs import field, frozen

from adaptive_dp.data.csv_files import csv_parts, empty_rows, read_csv
from adaptive_dp.data.engine import Part, file_identity, no_progress, show_progress
from adaptive_dp.data.local import Local
from adaptive_dp.data.memory import MemoryRows, table_rows
from adaptive_dp.data.parquet_files import dataset_pieces, read_parquet, row_groups
from adaptive_dp.data.partitioned import PartitionedRows, partitioned_rows
from adaptive_dp.data.rows import Reading, Rows, Schema, SchemaError, TensorReading
from adaptive_dp.data.workers import (
    Pool,
    core_count,
    processes,
    processes_available,
    refuse_in_worker,
    threads,
)

LARGE = 2**28
"""Bytes of a file, 256 MiB, beyond which it is read in batches."""

PROCESSES_FROM = {".parquet": 2**30, ".csv": 2**28}
"""Bytes of files of a kind beyond which processes are worth the second that they take to start."""

LOCAL_POOLS: dict[str, Pool] = {"threads": threads, "processes": processes}
"""The engines of this machine, by name."""

SUFFIXES = (".csv", ".csv.gz", ".parquet")

FilePath = str | os.PathLike[str]


def _listed(value: Any) -> tuple[FilePath, ...]:
    several = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(value) if several else (value,)


def _engine(value: Any) -> Any:
    if isinstance(value, str) and value not in LOCAL_POOLS and not value.startswith("dask://"):
        raise SchemaError(
            f'an engine is "threads", "processes", or "dask://HOST:PORT", got {value!r}'
        )
    if value == "processes" and not processes_available():
        raise SchemaError("to read by processes install adaptive-dp[arrow], which brings joblib")
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
        ``"threads"`` or ``"processes"``, as many as this machine has cores. None chooses processes
        where there is so much to read that they are worth a second to start (a GiB of Parquet,
        256 MiB of CSV), and threads otherwise. For a Dask cluster the address of its scheduler,
        ``"dask://HOST:PORT"``, or a ``distributed.Client``; its workers must see the files under
        the same paths, and have this library installed.
    progress
        Whether passes show on the standard error how many rows they have read, of how many (of CSV
        files, whose rows are not counted, how many parts). For the holder of the data alone.

    Raises
    ------
    SchemaError
        If there is no such engine, or it is not installed.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> dp.Files("part-*.parquet")
    Files(paths=('part-*.parquet',), engine=None, progress=False)
    """

    paths: tuple[FilePath, ...] = field(converter=_listed)
    engine: Any = field(default=None, converter=_engine)
    progress: bool = False

    def open_rows(
        self,
        columns: Mapping[str, Reading],
        unit: str | None,
        needed: Container[str] | None = None,
    ) -> PartitionedRows:
        """Return the rows; a few batches of them are in memory at a time.

        Parameters
        ----------
        columns, unit, needed
            As of `adaptive_dp.data.sources.open_rows`.

        Raises
        ------
        SchemaError
            If there is no such file, or the columns do not fit.
        """
        paths = paths_of(list(self.paths))
        if paths is None:
            raise SchemaError("a data file ends in .csv, .csv.gz or .parquet")
        schema = Schema(columns, unit, needed)
        return rows_of_files(paths, schema, self.engine, self.progress)


def open_rows(
    data: Any,
    columns: Mapping[str, Reading],
    unit: str | None,
    needed: Container[str] | None = None,
) -> Rows:
    """Return the rows of whatever a plan is bound to.

    Several files (a list of paths, or a pattern such as ``part-*.parquet``), a file of more than
    256 MiB, and a data set of PyArrow are read in batches. Dask's frames and arrays stay on their
    cluster. A `Readable` makes its own rows. Anything else is read into memory: a smaller file, and
    all that `read_rows` takes.

    Parameters
    ----------
    data
        The data.
    columns
        The declared columns, and what each holds.
    unit
        The column that identifies a unit; None where each row is a unit of its own.
    needed
        The columns that are read of the data; None for all. The others must be there with their
        types as well, but none of their cells is read. (A `Readable` reads what it will.)

    Raises
    ------
    SchemaError
        If the data cannot be read, or the columns do not fit. The message contains nothing of the
        content.
    """
    refuse_in_worker()
    schema = Schema(columns, unit, needed)
    tensors = [name for name, each in columns.items() if isinstance(each, TensorReading)]
    own = not isinstance(data, Files) and callable(getattr(type(data), "open_rows", None))
    if tensors and not (own or is_table(data)):
        raise SchemaError(
            f"column {tensors[0]!r} holds tensors, which are read from arrays and memory maps: "
            "pass a mapping of column names to arrays"
        )
    if isinstance(data, Files):
        return data.open_rows(columns, unit, needed)
    if callable(getattr(type(data), "open_rows", None)):
        made: Rows = data.open_rows(columns, unit)
        return made
    frame = _is_dask_frame(data)
    if frame or _is_dask_array(data) or _of_dask_arrays(data, [*columns, unit]):
        engines = _dask_engine()
        make = engines.frame_engine if frame else engines.array_engine
        return partitioned_rows(make(data, schema), unit, schema.has_coded_units)
    if _of_package(data, "pyarrow") and hasattr(data, "get_fragments"):
        return _rows_of_dataset(data, schema)
    paths = paths_of(data)
    small = _small_file(data, paths)
    if paths is None or small is not None:
        return read_rows(data if small is None else small, columns, unit, needed)
    return rows_of_files(paths, schema)


def is_table(data: Any) -> bool:
    """Return whether data are a table in memory that `read_rows` takes, by the type alone."""
    dask = _is_dask_frame(data) or _is_dask_array(data)
    if isinstance(data, Mapping):
        dask = any(map(_is_dask_array, data.values()))
    own = isinstance(data, Files) or callable(getattr(type(data), "open_rows", None))
    pieces = _of_package(data, "pyarrow") and hasattr(data, "get_fragments")
    return not (dask or own or pieces) and paths_of(data) is None


def columnar_file(data: Any) -> Path | None:
    """Return the path of a Parquet file that `open_rows` reads into memory; None for other data.

    Each of its columns can be read when it is needed, at the cost of that column alone.

    Raises
    ------
    SchemaError
        If there is no such file.
    """
    path = _small_file(data, paths_of(data))
    return path if path is not None and is_parquet(path) else None


def _small_file(data: Any, paths: Sequence[Path] | None) -> Path | None:
    """Return the file that is read into memory, of the paths that data name; None for others."""
    single = paths is not None and len(paths) == 1 and not isinstance(data, list | tuple)
    return paths[0] if paths and single and not _is_large(paths[0]) else None


def read_rows(
    data: Any,
    columns: Mapping[str, Reading],
    unit: str | None,
    needed: Container[str] | None = None,
) -> MemoryRows:
    """Return rows in memory: those of a table, or all of one CSV or Parquet file.

    Parameters
    ----------
    data
        The path of a file, or what `adaptive_dp.data.memory.table_rows` takes.
    columns, unit, needed
        What is read, as for `open_rows`.

    Raises
    ------
    SchemaError
        If the data cannot be read, or the columns do not fit.
    """
    if isinstance(data, os.PathLike) or (isinstance(data, str) and is_data_file(data)):
        schema = Schema(columns, unit, needed)
        # the others were checked
        return table_rows(read_file(Path(data), schema), Schema(schema.read, unit))
    return table_rows(data, Schema(columns, unit, needed))


# --- files


def is_data_file(name: str) -> bool:
    """Return whether a ``str`` names a data file; any other may be data, and no error shows it."""
    return name.lower().endswith(SUFFIXES) and "\n" not in name


def is_parquet(path: Path) -> bool:
    """Return whether a data file is a Parquet file; otherwise it is a CSV file.

    Raises
    ------
    SchemaError
        If there is no such file, or it is neither.
    """
    name = path.name.lower()
    if not path.is_file():
        raise SchemaError(f"there is no file {path}")
    if not name.endswith(SUFFIXES):
        raise SchemaError(f"{path.name}: a data file ends in .csv, .csv.gz or .parquet")
    return name.endswith(".parquet")


def paths_of(data: Any) -> list[Path] | None:
    """Return the files that a path, a pattern or a list of them names; None for other data.

    The files of a pattern are in the order of their names, and so are their rows.

    Raises
    ------
    SchemaError
        If a pattern matches no file.
    """
    several = isinstance(data, list | tuple) and len(data) > 0
    given: Sequence[Any] = data if several else [data]
    if not all(
        isinstance(each, os.PathLike) or (isinstance(each, str) and is_data_file(each))
        for each in given
    ):
        return None
    files: list[Path] = []
    for each in given:
        path = Path(each)
        # a name that has pattern characters and exists is a file, not a pattern
        if has_magic(str(path)) and not path.exists():
            # in the order of names: the order of rows may not depend on the file system
            matches = sorted(glob(str(path)))
            if not matches:
                raise SchemaError(f"no file matches {path}")
            files += map(Path, matches)
        else:
            files.append(path)
    return files


def read_file(path: Path, schema: Schema) -> Any:
    """Return the needed columns of one file, and that of its units, read into memory.

    Parameters
    ----------
    path
        ``.csv``, ``.csv.gz`` (UTF-8, a header line, one record a line) or ``.parquet``.
    schema
        What is read. In a column of numbers or codes a cell that is not a number is missing; in a
        column of values it is a ``str``. The column of a CSV file that identifies a unit is read as
        ``str`` unless its categories are numbers.

    Raises
    ------
    SchemaError
        If the file cannot be read or lacks a column. The message contains nothing of its content.
    """
    if is_parquet(path):
        return read_parquet(path, schema)
    # identifiers with numeric categories are read as numbers: as str they would match no category
    readings = dict(schema.columns)
    if schema.unit is not None and not schema.has_coded_units:
        readings[schema.unit] = "text"
    try:
        return read_csv(path, readings, schema.read_with_unit)
    except SchemaError as error:
        failed = str(error)
    except Exception:  # compression
        failed = f"{path.name} cannot be read as a CSV file"
    raise SchemaError(failed)  # outside of the handler: the cause may quote the file


def rows_of_files(
    paths: Sequence[Path], schema: Schema, engine: Any = None, progress: bool = False
) -> PartitionedRows:
    """Return the rows of files, one after the other; a few batches are in memory at a time.

    Parameters
    ----------
    paths, schema
        What is read.
    engine, progress
        See `adaptive_dp.data.sources.Files`.

    Raises
    ------
    SchemaError
        If a file cannot be read, or its columns do not fit.
    """
    refuse_in_worker()
    read, unit, coded = schema.read, schema.unit, schema.has_coded_units
    parts: list[Part] = []
    kinds: dict[str, str] = {}
    empty = empty_rows(read)
    refuse_repeated_files(paths)
    for path in paths:
        kind = "numbers" if coded else "strings"
        if is_parquet(path):
            # a Parquet file stores its types, and the kind of identifiers is one of them
            groups, typed, kind = row_groups(path, schema)
            parts += groups
            empty = typed.only(read)
        else:
            parts += csv_parts(path, schema.declared_with_unit, None if coded else unit)
        # the first file of each kind, for the message; a column of nulls alone has no kind
        if kind:
            kinds.setdefault(kind, path.name)
    if unit is not None and len(kinds) > 1:
        # the number 7 and the str "7" are different identifiers: a person with both would count
        # twice, beyond the declared bound
        which = " and ".join(f"{kind} in {name}" for kind, name in kinds.items())
        raise SchemaError(
            f"the identifiers {unit!r} are {which}: the same person would be taken for two; "
            "convert them in the files"
        )
    shown = show_progress if progress else no_progress
    if engine is None:
        engine = _chosen_engine(paths)
    if isinstance(engine, str) and engine in LOCAL_POOLS:
        local = Local(tuple(parts), read, empty, LOCAL_POOLS[engine], progress=shown)
        return partitioned_rows(local, unit, coded)
    dask_engine = _dask_engine()
    client = dask_engine.connect(engine)
    cluster = dask_engine.DaskEngine(client, tuple(parts), read, empty, progress=shown)
    if isinstance(engine, str):  # the client was made here, so it is closed with the rows
        cluster = dask_engine.closing_client(cluster)
    return partitioned_rows(cluster, unit, coded)


def refuse_repeated_files(paths: Sequence[Path]) -> None:
    """Refuse a file that is named twice: each of its rows would count twice.

    Raises
    ------
    SchemaError
        If there is one.
    """
    named = set[object]()
    for path in paths:
        identity = file_identity(path)
        if identity in named:
            raise SchemaError(f"{path.name} is named twice, and its rows would count twice")
        named.add(identity)


def _chosen_engine(paths: Sequence[Path]) -> str:
    """Return "processes" where there is much to read by several cores, else "threads"."""
    # bytes by format: each has its own size from which processes are worth their start
    sizes = {".parquet": 0, ".csv": 0}
    for path in paths:
        sizes[".parquet" if path.suffix.lower() == ".parquet" else ".csv"] += path.stat().st_size
    large = any(sizes[kind] > PROCESSES_FROM[kind] for kind in PROCESSES_FROM)
    return "processes" if large and core_count() > 1 and processes_available() else "threads"


def _is_large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > LARGE


# --- data of other libraries, recognised without importing them


def _rows_of_dataset(data: Any, schema: Schema) -> PartitionedRows:
    """Return the rows of a data set of PyArrow; a few batches are in memory at a time."""
    parts, typed = dataset_pieces(data, schema)
    local = Local(tuple(parts), schema.read, typed.only(schema.read))
    return partitioned_rows(local, schema.unit, schema.has_coded_units)


def _is_dask_frame(data: Any) -> bool:
    return _of_package(data, "dask", "dask_expr") and hasattr(data, "columns")


def _is_dask_array(data: Any) -> bool:
    return _of_package(data, "dask") and hasattr(data, "chunks")


def _of_dask_arrays(data: Any, names: Sequence[Any]) -> bool:
    """Return whether all columns that are read are Dask arrays."""
    arrays = [data[name] for name in names if name in data] if isinstance(data, Mapping) else []
    return bool(arrays) and all(map(_is_dask_array, arrays))


def _of_package(data: Any, *names: str) -> bool:
    # by the name of the class's package: nothing is imported to recognise it
    return type(data).__module__.partition(".")[0] in names


def _dask_engine() -> Any:
    """Return the module, which imports Dask: an extra, and slow to import."""
    try:
        from adaptive_dp.data import dask_engine
    except ImportError:
        raise SchemaError("to read on a cluster install adaptive-dp[dask]") from None
    return dask_engine
