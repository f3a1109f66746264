"""Rows in memory: NumPy arrays, and any frame that narwhals reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from adaptive_dp.rows.rows import BLOCK, Coins, Columns, Integers


@frozen(repr=False, eq=False)
class MemoryRows:
    """Columns in memory, with each row's unit as a whole number.

    Parameters
    ----------
    columns
        Arrays of equal length.
    units
        Shape (n,), int64; rows of one unit carry the same number.
    """

    columns: dict[str, NDArray[Any]]
    units: Integers

    def __repr__(self) -> str:
        return "<private rows>"

    def where(self, keep: Callable[[Columns], NDArray[np.bool_]]) -> MemoryRows:
        """Return the rows for which ``keep`` is True."""
        return self._take(np.asarray(keep(self.columns), dtype=np.bool_))

    def bound(self, rows: int) -> MemoryRows:
        """Return the first ``rows`` rows of each unit, in the data's order."""
        order = np.argsort(self.units, kind="stable")
        ordered = self.units[order]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(order) else order
        rank = np.arange(len(order)) - np.repeat(starts, np.diff(np.r_[starts, len(order)]))
        keep = np.zeros(len(order), dtype=np.bool_)
        keep[order[rank < rows]] = True
        return self._take(keep)

    def gather(self, part: Callable[[Columns], NDArray[np.int64]]) -> MemoryRows:
        """Return, of each unit, the rows in its least part."""
        parts = np.asarray(part(self.columns), dtype=np.int64)
        if not len(parts):
            return self
        _, codes = np.unique(self.units, return_inverse=True)
        least = np.full(int(codes.max()) + 1, np.iinfo(np.int64).max)
        valid = parts >= 0
        np.minimum.at(least, codes[valid], parts[valid])
        return self._take(valid & (parts == least[codes]))

    def sample(self, rate: float, source: Coins) -> MemoryRows:
        """Return the rows of the units whose coin came up."""
        names, codes = np.unique(self.units, return_inverse=True)
        return self._take(source.coins(rate, len(names))[codes])

    def total(self, block: Callable[[Columns], Integers]) -> NDArray[Any]:
        """Return the exact sum over blocks."""
        result: NDArray[Any] | None = None
        for start in range(0, max(1, len(self.units)), BLOCK):
            part = block({k: v[start : start + BLOCK] for k, v in self.columns.items()})
            # Python integers cannot overflow, however many blocks there are
            exact = part.astype(object)
            result = exact if result is None else result + exact
        assert result is not None
        return result

    def _take(self, keep: NDArray[np.bool_]) -> MemoryRows:
        return MemoryRows({k: v[keep] for k, v in self.columns.items()}, self.units[keep])


class SchemaError(ValueError):
    """The data's columns or types do not fit; the message depends on the schema only."""


def rows(data: Any, columns: Sequence[str], unit: str | None) -> MemoryRows:
    """Return rows over ``data``: a mapping of arrays, a structured array, or a frame.

    Parameters
    ----------
    data
        A mapping of column names to one-dimensional arrays, a NumPy structured array, or
        any eager frame that narwhals knows (pandas, polars, PyArrow).
    columns
        The columns to read; the others are left alone.
    unit
        The column that identifies a unit; None where each row is a unit of its own.

    Raises
    ------
    SchemaError
        If a column is missing, is not one-dimensional, or the lengths differ.
    """
    if isinstance(data, MemoryRows):
        return data
    wanted = [*columns, *([unit] if unit is not None and unit not in columns else [])]
    table = _columns(data, wanted)
    missing = [name for name in wanted if name not in table]
    if missing:
        raise SchemaError(f"the data has no column {', '.join(map(repr, missing))}")
    try:
        arrays = {name: np.asarray(table[name]) for name in wanted}
    except ValueError:  # ragged lists
        raise SchemaError(f"the columns must be one-dimensional: {', '.join(wanted)}") from None
    for name, array in arrays.items():
        if array.ndim != 1:
            raise SchemaError(
                f"column {name!r} must be one-dimensional, got {array.ndim} dimensions"
            )
    if len({len(array) for array in arrays.values()}) > 1:
        raise SchemaError("the columns differ in length")
    count = len(next(iter(arrays.values()))) if arrays else _length(data)
    units = np.arange(count, dtype=np.int64)
    if unit is not None:
        identity = arrays[unit]
        values = identity.astype(str) if identity.dtype == object else identity
        units = np.unique(values, return_inverse=True)[1].astype(np.int64)
    # a table without columns still has rows to count
    return MemoryRows({name: arrays[name] for name in columns} or {"": units}, units)


def _columns(data: Any, wanted: Sequence[str]) -> Mapping[str, Any]:
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
        raise SchemaError(
            "data must be a mapping of column names to arrays, a structured array or a pandas, "
            f"polars or PyArrow table, got {type(data).__name__}"
        ) from None
    return {name: _array(frame[name]) for name in wanted if name in frame.columns}


def _array(series: Any) -> NDArray[Any]:
    """Return a frame's column; numbers with gaps become floats with NaN, not objects."""
    array = series.to_numpy()
    if array.dtype == object and series.dtype.is_numeric():
        import narwhals as nw

        return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    return np.asarray(array)


def _length(data: Any) -> int:
    if isinstance(data, Mapping):
        return max((len(v) for v in data.values()), default=0)
    return len(data)
