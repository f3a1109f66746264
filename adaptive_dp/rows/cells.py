"""What one cell of a column is, whatever stands in the other cells.

If one person's value could change how another's is read, both would move when one leaves:
no sensitivity would hold. So nothing here looks at a column as a whole.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows.rows import Integers

_NUMBERS = (bool, int, float, Decimal, Fraction, np.bool_, np.integer, np.floating)
_TEXTS = (str, bytes, UUID)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_NAMES: tuple[type, ...] = (*_NUMBERS, *_TEXTS, *_TIMES)
_BOXED = (np.bool_, np.integer, np.floating, np.str_)


def number(cell: Any) -> float:
    """Return a cell as a float; NaN for what is no number, infinity for what is too large."""
    if not isinstance(cell, _NUMBERS):
        return math.nan
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf
    except ValueError:  # a signalling NaN
        return math.nan


def numbers(cells: Iterable[Any]) -> NDArray[np.float64]:
    """Return cells as floats, each by itself (see `number`)."""
    return np.array([number(cell) for cell in cells], dtype=np.float64)


def objects(cells: Iterable[Any]) -> NDArray[np.object_]:
    """Return cells as they are, in an array of one dimension."""
    listed = list(cells)
    array = np.empty(len(listed), dtype=object)
    for i, cell in enumerate(listed):
        array[i] = cell.item() if isinstance(cell, _BOXED) else cell
    return array


def units(column: NDArray[Any]) -> Integers:
    """Return a number for each row that is equal for equal identifiers; -1 where there is none.

    None, NaN, an empty text, and what cannot identify anybody (a list, say) are none.
    """
    if column.dtype.kind == "O":
        return _coded(column.tolist())
    missing = np.zeros(len(column), dtype=np.bool_)
    if column.dtype.kind in "fc":
        missing = np.isnan(column)
    elif column.dtype.kind in "mM":
        missing = np.isnat(column)
    elif column.dtype.kind in "USV":
        missing = np.char.str_len(column) == 0 if column.dtype.kind in "US" else ~missing
    codes = np.unique(column, return_inverse=True)[1].astype(np.int64)
    return np.where(missing, -1, codes)


def _coded(cells: list[Any]) -> Integers:
    known: dict[Any, int] = {}
    codes = [known.setdefault(cell, len(known)) if _identifies(cell) else -1 for cell in cells]
    return np.array(codes, dtype=np.int64)


def _identifies(cell: Any) -> bool:
    return isinstance(cell, _NAMES) and cell != "" and cell != b"" and bool(cell == cell)
