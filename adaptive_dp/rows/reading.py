"""How columns are read into arrays: by what is declared of them, a cell at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

    A list is read cell by cell: what is no number is missing, where numbers are declared. An
    array or a frame's column has a type, which is part of the schema: one that does not fit
    is refused.

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
        return cells.numbers(column) if reading == "number" else cells.objects(column)
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


def _array(array: NDArray[Any], name: str, reading: Reading) -> NDArray[Any]:
    if array.ndim != 1:
        raise SchemaError(f"column {name!r} must be one-dimensional, got {array.ndim} dimensions")
    if len(array) == 0:  # NumPy calls an empty list floats
        return np.empty(0, dtype=np.float64 if reading == "number" else object)
    if array.dtype.kind not in _KINDS[reading]:
        cure = "; convert it with .astype(float)" if reading == "number" else ""
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {kind(array)}{cure}")
    if reading == "number":
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    return cells.objects(array) if array.dtype.kind in "OT" else array


def _series(column: Any) -> Any:
    try:
        import narwhals as nw
    except ImportError:
        return None
    try:
        return nw.from_native(column, series_only=True)
    except TypeError:
        return None


def _cells(series: Any, name: str, reading: Reading) -> NDArray[Any]:
    """Return a series as an array in which each cell is its own, with gaps or without.

    Whole numbers with gaps would become floats, and large ones equal to others; and whether
    the type fits must not depend on the gaps.
    """
    import narwhals as nw

    plain = series.dtype.is_numeric() or series.dtype == nw.Boolean
    # pandas' objects are of any type: narwhals looks at the values to call them texts
    boxed = str(getattr(series.to_native(), "dtype", "")) == "object"
    wrong = plain if reading == "text" else reading == "code" and series.dtype == nw.String
    if wrong and not boxed:
        raise SchemaError(f"column {name!r}: {_NEEDS[reading]}, got {series.dtype}")
    if reading == "number":
        array = np.asarray(series.to_numpy())
        return cells.numbers(series.to_list()) if plain and array.dtype.kind == "O" else array
    if plain and not series.is_null().any():
        array = np.asarray(series.to_numpy())
        if array.dtype.kind in "biuf":
            return array
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
    try:
        frame = nw.from_native(data, eager_only=True)
    except TypeError:
        lazy = hasattr(data, "collect")
        raise SchemaError(
            "data must be a mapping of column names to arrays, a structured array or a pandas, "
            f"polars or PyArrow table, got {type(data).__name__}"
            + ("; collect it first" if lazy else "")
        ) from None
    return {name: frame[name].to_native() for name in wanted if name in frame.columns}


def length(data: Any) -> int:
    """Return the number of rows of data of which no column is read."""
    if isinstance(data, Mapping):
        return max((len(v) for v in data.values()), default=0)
    return len(data)
