"""Data frames and arrays of Dask as data: their partitions stay on the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaptive_dp.rows.cluster import Cluster
from adaptive_dp.rows.memory import MemoryRows, rows
from adaptive_dp.rows.reading import SchemaError
from adaptive_dp.rows.rows import Reading


def of_frame(frame: Any, columns: dict[str, Reading], unit: str | None) -> Cluster:
    """Return the partitions of a Dask data frame, on the cluster of the current client.

    Raises
    ------
    SchemaError
        If there is no client, or the frame's columns do not fit.
    """
    wanted = _wanted(frame.columns, columns, unit)
    pieces = (frame[wanted] if wanted else frame).to_delayed()
    return _on_cluster(pieces, frame._meta, columns, unit)


def of_arrays(data: Any, columns: dict[str, Reading], unit: str | None) -> Cluster:
    """Return the chunks of Dask arrays, on the cluster of the current client.

    Parameters
    ----------
    data
        A structured array, or a mapping of column names to arrays of one dimension.
    columns, unit
        What is read.

    Raises
    ------
    SchemaError
        If there is no client, an array has no column names, or arrays differ in their chunks.
    """
    import dask

    if not isinstance(data, Mapping) and data.dtype.names is None:
        raise SchemaError(
            "a plain Dask array has no column names; pass a mapping such as {'age': array[:, 0]}, "
            "or dask.dataframe.from_dask_array(array, columns=[...])"
        )
    names = data if isinstance(data, Mapping) else data.dtype.names
    wanted = _wanted(names, columns, unit) or list(names)[:1]
    arrays = {name: data[name] for name in wanted}
    for name, array in arrays.items():
        if array.ndim != 1:
            raise SchemaError(
                f"column {name!r} must be one-dimensional, got {array.ndim} dimensions"
            )
    if len({_layout(array) for array in arrays.values()}) > 1:
        raise SchemaError("the columns differ in length, or in their chunks: rechunk them alike")
    chunks = [array.to_delayed().ravel() for array in arrays.values()]
    bind = dask.delayed(_bound)
    pieces = [bind(wanted, list(each)) for each in zip(*chunks, strict=True)]
    none = {name: np.empty(0, dtype=array.dtype) for name, array in arrays.items()}
    return _on_cluster(pieces, none, columns, unit)


def _on_cluster(
    pieces: Sequence[Any], none: Any, columns: dict[str, Reading], unit: str | None
) -> Cluster:
    from distributed import default_client

    typed = rows(none, {**{unit or "": "value"}, **columns} if unit else columns, None)
    try:
        client = default_client()
    except ValueError:
        client = None
    if client is None:
        raise SchemaError("data of Dask need a cluster: make a dask.distributed.Client first")
    found = {name: typed.columns[name] for name in columns} or {"": typed.units}
    sources = client.compute(list(pieces))
    return Cluster(client, tuple(sources), columns, MemoryRows(found, typed.units))


def _wanted(names: Any, columns: Mapping[str, Reading], unit: str | None) -> list[str]:
    wanted = [*columns, *([unit] if unit is not None and unit not in columns else [])]
    missing = [name for name in wanted if name not in names]
    if missing:
        raise SchemaError(f"the data has no column {', '.join(map(repr, missing))}")
    return wanted


def _layout(array: Any) -> tuple[Any, ...]:
    """Return an array's chunks; those of unknown length are told apart by their number alone."""
    return tuple("?" if np.isnan(size) else size for size in array.chunks[0])


def _bound(names: list[str], chunks: list[Any]) -> dict[str, Any]:
    return dict(zip(names, chunks, strict=True))
