"""Which rows stand for what a plan is given: arrays, frames, one file or many, a cluster's data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import numpy as np

from adaptive_dp.rows import cells, files, memory
from adaptive_dp.rows.csv_parts import csv_parts, no_lines
from adaptive_dp.rows.fragments import fragments
from adaptive_dp.rows.local import Local, Part, Pool, cores
from adaptive_dp.rows.parquet_parts import row_groups
from adaptive_dp.rows.parts import Chosen, Kept, PartedRows, Task
from adaptive_dp.rows.processes import available, processes, refuse_helpers
from adaptive_dp.rows.progress import shown, silent
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Integers, Reading, Rows
from adaptive_dp.rows.spill import collected
from adaptive_dp.rows.threads import threads

LARGE = 2**28
"""Bytes of a file, 256 MiB, past which it is read in batches."""

MANY = {".parquet": 2**30, ".csv": 2**28}
"""Bytes of files of a kind past which processes are worth a second to start."""

HERE: dict[str, Pool] = {"threads": threads, "processes": processes}
"""Engines of this machine."""


def opened(data: Any, columns: Mapping[str, Reading], unit: str | None) -> Rows:
    """Return rows over whatever a plan is given.

    Several files (a list of paths, or a pattern such as ``part-*.parquet``), and a file of more
    than 256 MiB, and a data set of PyArrow are read in batches; Dask's frames and arrays stay on
    their cluster; what is `Readable` makes its own rows; anything else is in memory, as `rows` has
    it.
    """
    refuse_helpers()
    if callable(getattr(type(data), "open_rows", None)):
        made: Rows = data.open_rows(columns, unit)
        return made
    if _is_frame(data):
        return joined(_dask_data().of_frame(data, dict(columns), unit), unit)
    if _is_array(data) or _of_arrays(data, [*columns, unit]):
        return joined(_dask_data().of_arrays(data, dict(columns), unit), unit)
    if _is_dataset(data):
        return _of_dataset(data, dict(columns), unit)
    paths = paths_of(data)
    if paths is None:
        return memory.rows(data, columns, unit)
    if len(paths) == 1 and not _large(paths[0]) and not isinstance(data, list | tuple):
        return memory.rows(paths[0], columns, unit)
    return in_batches(paths, columns, unit)


def paths_of(data: Any) -> list[Path] | None:
    """Return the files that a path, a pattern or a list of them names; None for other data.

    The files of a pattern are in the order of their names: so are their rows.

    Raises
    ------
    SchemaError
        If a pattern matches no file, or one that is no data file.
    """
    several = isinstance(data, list | tuple) and len(data) > 0
    given: Sequence[Any] = data if several else [data]
    if not all(isinstance(each, os.PathLike) or _named(each) for each in given):
        return None
    found: list[Path] = []
    for each in given:
        path = Path(each)
        if has_magic(str(path)) and not path.exists():
            matches = sorted(glob(str(path)))
            if not matches:
                raise SchemaError(f"no file matches {path}")
            found += map(Path, matches)
        else:
            found.append(path)
    return found


def in_batches(
    paths: Sequence[Path],
    columns: Mapping[str, Reading],
    unit: str | None,
    engine: Any = None,
    progress: bool = False,
) -> PartedRows:
    """Return the rows of files, one file after the other, of which a few batches are in memory.

    Parameters
    ----------
    paths, columns, unit
        What is read.
    engine, progress
        See `adaptive_dp.rows.named_files.Files`.

    Raises
    ------
    SchemaError
        If a file cannot be read, or its columns do not fit.
    """
    refuse_helpers()
    wanted = dict(columns)
    every = wanted if unit is None or unit in wanted else {**wanted, unit: "value"}
    coded = unit is not None and wanted.get(unit) == "code"  # categories that are no texts
    parts: list[Part] = []
    kinds: dict[str, str] = {}
    empty = no_lines(wanted)
    once(paths)
    for path in paths:
        name, kind = path.name.lower(), "numbers" if coded else "texts"
        if not path.is_file():
            raise SchemaError(f"there is no file {path}")
        if not name.endswith(files.ENDINGS):
            raise SchemaError(f"{path.name}: a data file ends in .csv, .csv.gz or .parquet")
        if name.endswith(".parquet"):
            groups, typed, kind = row_groups(path, every, unit)
            parts += groups
            found = {name: typed.columns[name] for name in wanted}
            empty = memory.MemoryRows(found or empty.columns, empty.units)
        else:
            parts += csv_parts(path, every, None if coded else unit)
        if kind:
            kinds.setdefault(kind, path.name)
    if unit is not None and len(kinds) > 1:
        which = " and ".join(f"{kind} in {name}" for kind, name in kinds.items())
        raise SchemaError(
            f"the identifiers {unit!r} are {which}: the same person would be taken for two; "
            "convert them in the files"
        )
    told = shown if progress else silent
    if engine is None:
        engine = _worth(paths)
    if isinstance(engine, str) and engine in HERE:
        return joined(Local(tuple(parts), wanted, empty, HERE[engine], told=told), unit)
    cluster = _cluster()
    found = cluster.Cluster(cluster.connected(engine), tuple(parts), wanted, empty, told=told)
    return joined(cluster.closing(found) if isinstance(engine, str) else found, unit)


def _worth(paths: Sequence[Path]) -> str:
    """Return processes where there is much to read by several cores, threads elsewhere."""
    sizes = {".parquet": 0, ".csv": 0}
    for path in paths:
        sizes[".parquet" if path.suffix.lower() == ".parquet" else ".csv"] += path.stat().st_size
    large = any(sizes[kind] > MANY[kind] for kind in MANY)
    return "processes" if large and cores() > 1 and available() else "threads"


def once(paths: Sequence[Path]) -> None:
    """Refuse a file that is named twice: each of its rows would count twice.

    Raises
    ------
    SchemaError
        If there is one.
    """
    known = set[Path]()
    for path in paths:
        found = path.resolve()
        if found in known:
            raise SchemaError(f"{path.name} is named twice, and its rows would count twice")
        known.add(found)


def joined(engine: Any, unit: str | None) -> PartedRows:
    """Return the rows of an engine, with whose each of them is.

    Equal identifiers get equal numbers in all parts, and unequal ones never do: they are compared
    themselves, not by digests, of which two could be equal, so that one person's rows would push
    another's out of a bound. While the numbers are given, every different identifier is in memory,
    some 100 bytes each.
    """
    if unit is None:
        return PartedRows(engine)
    reading: Reading = "code" if engine.columns.get(unit) == "code" else "value"
    known: dict[Any, int] = {}
    lengths: list[int] = []

    def numbered() -> Iterator[Integers]:
        tasks = [Task(_Identities(unit))] * engine.count
        for found in engine.only({unit: reading}).map(tasks):
            lengths.append(sum(len(own) for own, _ in found))
            for own, keys in found:
                numbers = [known.setdefault(key, len(known)) for key in keys]
                yield np.array([*numbers, -1], dtype=np.int64)[own]  # -1, nobody's, is the last

    codes = collected(numbered(), np.empty(0, dtype=np.int64))
    ends = np.cumsum(lengths)
    kept = [
        Kept.of(np.asarray(codes[end - length : end]) >= 0)
        for end, length in zip(ends, lengths, strict=True)
    ]
    return PartedRows(engine, codes, tuple(kept))


class _Identities:
    """The identities of a part's rows, block by block."""

    def __init__(self, unit: str) -> None:
        self.unit = unit

    def __call__(self, chosen: Chosen) -> list[tuple[Integers, list[Any]]]:
        return [cells.told_apart(rows.columns[self.unit]) for rows in chosen]


def _of_dataset(data: Any, columns: dict[str, Reading], unit: str | None) -> PartedRows:
    """Return the rows of a data set of PyArrow, of which a few batches are in memory."""
    every = columns if unit is None or unit in columns else {**columns, unit: "value"}
    parts, typed = fragments(data, dict(every))
    found = {name: typed.columns[name] for name in columns} or no_lines(columns).columns
    empty = memory.MemoryRows(found, typed.units)
    return joined(Local(tuple(parts), columns, empty), unit)


def _is_frame(data: Any) -> bool:
    """Return whether it is a Dask data frame, whose package is there if one is."""
    return _of_package(data, "dask", "dask_expr") and hasattr(data, "columns")


def _is_array(data: Any) -> bool:
    """Return whether it is a Dask array."""
    return _of_package(data, "dask") and hasattr(data, "chunks")


def _of_arrays(data: Any, names: Sequence[Any]) -> bool:
    """Return whether all columns that are read are Dask arrays."""
    found = [data[name] for name in names if name in data] if isinstance(data, Mapping) else []
    return bool(found) and all(map(_is_array, found))


def _is_dataset(data: Any) -> bool:
    """Return whether it is a data set of PyArrow."""
    return _of_package(data, "pyarrow") and hasattr(data, "get_fragments")


def _of_package(data: Any, *names: str) -> bool:
    return type(data).__module__.partition(".")[0] in names


def _dask_data() -> Any:
    _cluster()
    from adaptive_dp.rows import dask_data

    return dask_data


def _cluster() -> Any:
    try:
        from adaptive_dp.rows import cluster
    except ImportError:
        raise SchemaError("to read on a cluster install adaptive-dp[dask]") from None
    return cluster


def _named(data: Any) -> bool:
    return isinstance(data, str) and files.names(data)


def _large(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > LARGE
