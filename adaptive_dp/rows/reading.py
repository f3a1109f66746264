"""How columns are read into arrays: by what is declared of them, a cell at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows import cells
from adaptive_dp.rows.rows import Reading

_KINDS: dict[Reading, str] = {
    "number": "biuf",
    "text": "UTO",
    "code": "biufO",
    "value": "biufUTOSmM",
}
"""The NumPy kinds of arrays that a column may be."""

_WORDS = {
    "b": "booleans",
    "i": "whole numbers",
    "u": "whole numbers",
    "f": "floats",
    "c": "complex numbers",
    "S": "bytes",
    "U": "texts",
    "T": "texts",
    "O": "objects",
    "M": "dates",
    "m": "times",
    "V": "records",
}

_NEEDS: dict[Reading, str] = {
    "number": "it is declared with bounds, so it must be numeric",
    "text": "it is declared with categories that are texts, so it must hold texts",
    "code": "it is declared with categories that are no texts, so it must hold none",
    "value": "it must hold numbers or texts",
}


class SchemaError(ValueError):
    """The data's columns or types do not fit; the message depends on the schema only."""


def kind(array: NDArray[Any]) -> str:
    """Return what an array holds, in words (its width would tell of the longest text)."""
    return _WORDS.get(array.dtype.kind, "something else")


def read(column: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a column as an array.

    A list has no type, and nothing is told of its cells: each is read by itself, as in a CSV file.
    Where numbers are declared, a text is the number that it spells, and what is none is missing. An
    array or a frame's column has a type, which is part of the schema: one that does not fit is
    refused, whatever its cells spell.

    Parameters
    ----------
    column
        A list, an array, or a series of pandas, polars or PyArrow.
    name
        For messages.
    reading
        What is declared of it.

    Raises
    ------
    SchemaError
        If the column's type does not fit.
    """
    if isinstance(column, Sequence) and not isinstance(column, str | bytes | memoryview):
        return _untyped(column, reading)
    if isinstance(column, np.ma.MaskedArray):
        return _masked(column, name, reading)
    if isinstance(column, np.ndarray):
        return _array(column, name, reading)
    series = _series(column)
    if series is not None:
        return _array(_cells(series, name, reading), name, reading)
    if not hasattr(column, "__array__"):
        raise SchemaError(
            f"column {name!r} must be an array, a list or a series, got {type(column).__name__}"
        )
    return _array(np.asarray(column), name, reading)


def _untyped(column: Sequence[Any], reading: Reading) -> NDArray[Any]:
    if reading == "number":
        return cells.numbers(column)
    return cells.codes(column) if reading == "code" else cells.objects(column)


def _array(array: NDArray[Any], name: str, reading: Reading) -> NDArray[Any]:
    if array.ndim != 1:
        raise SchemaError(f"column {name!r} must be one-dimensional, got {array.ndim} dimensions")
    if array.dtype.kind not in _KINDS[reading]:
        cure = "; convert it with .astype(float)" if reading == "number" else ""
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {kind(array)}{cure}")
    if reading == "number":
        with np.errstate(over="ignore"):
            return np.asarray(array, dtype=np.float64)  # no copy: nothing ever writes to it
    return cells.objects(array) if array.dtype.kind in "OT" else array


def _masked(column: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a masked array in which what is masked is missing."""
    _array(np.empty(0, dtype=column.dtype), name, reading)  # its type is checked, gaps or not
    if column.ndim != 1:
        raise SchemaError(f"column {name!r} must be one-dimensional, got {column.ndim} dimensions")
    listed = column.tolist()
    return cells.numbers(listed) if reading == "number" else cells.objects(listed)


def _series(column: Any) -> Any:
    """Return a series as narwhals sees it; None for what is none."""
    try:
        import narwhals as nw
    except ImportError:
        return None
    package = type(column).__module__.partition(".")[0]
    if package == "pyarrow" and hasattr(column, "buffers"):  # an array, or one chunk
        column = import_module("pyarrow").chunked_array([column])
    if package == "pandas" and hasattr(column, "dtype"):  # an index, or an array of its own types
        column = import_module("pandas").Series(column)
    try:
        return nw.from_native(column, series_only=True)
    except TypeError:
        return None


def _cells(series: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a series as an array in which each cell is its own, with gaps or without.

    Whole numbers with gaps would become floats, and large ones equal to others. What is done
    hangs on the series' type alone, never on whether there are gaps, or which values.
    """
    import narwhals as nw

    native = getattr(series.to_native(), "dtype", None)
    numeric = series.dtype.is_numeric()
    plain = numeric or series.dtype == nw.Boolean
    if isinstance(native, np.dtype):  # pandas over NumPy: no gaps but NaN
        return np.asarray(series.to_native())
    known = (nw.String, nw.Categorical, nw.Enum, nw.Binary, nw.Object, nw.Unknown)
    called = type(series.dtype).__name__  # in full, categories and fields are named: private values
    if not (plain or any(series.dtype == dtype for dtype in known)):
        raise SchemaError(
            f"column {name!r}: {_NEEDS[reading]}, got {called}; convert it to one of them"
        )
    texts, binary = series.dtype == nw.String, series.dtype == nw.Binary
    wrong = {"text": plain or binary, "code": texts or binary, "number": not plain}
    if wrong.get(reading, False) and series.dtype != nw.Unknown:  # polars' type of no values
        cure = "; convert it to floats" if reading == "number" else ""
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {called}{cure}")
    if reading == "number":
        floats = series.dtype in (nw.Float64, nw.Float32)
        array = np.asarray(series.to_numpy()) if floats else cells.numbers(series.to_list())
        return array if array.dtype.kind == "f" else cells.numbers(series.to_list())
    return cells.objects(series.to_list())


def columns_of(data: Any, wanted: Sequence[str]) -> Mapping[str, Any]:
    """Return the columns of a mapping, a structured array or a frame, by name.

    Raises
    ------
    SchemaError
        If ``data`` is none of them.
    """
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray):
        if data.dtype.names is None:
            raise SchemaError(
                "a plain array has no column names; pass a mapping such as {'age': array[:, 0]}"
            )
        return {name: data[name] for name in data.dtype.names}
    try:
        import narwhals as nw
    except ImportError:
        raise SchemaError(
            f"to read a {type(data).__name__} install adaptive-dp[frames], or pass a mapping of "
            "column names to arrays"
        ) from None
    if hasattr(data, "__arrow_c_array__"):  # a record batch of PyArrow, or of any other library
        data = import_module("pyarrow").table(data)
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        lazy = hasattr(data, "collect")
        raise SchemaError(
            "data must be a mapping of column names to arrays, a structured array, the path of a "
            "CSV or Parquet file, a pandas, polars or PyArrow table, a data set of PyArrow, or a "
            f"frame or arrays of Dask, got {type(data).__name__}"
            + ("; collect it first" if lazy else "")
        ) from None
    return {name: frame[name].to_native() for name in wanted if name in frame.columns}


def length(data: Any) -> int:
    """Return the number of rows of data of which no column is read."""
    if isinstance(data, Mapping):
        return max((len(v) for v in data.values()), default=0)
    return len(data)
