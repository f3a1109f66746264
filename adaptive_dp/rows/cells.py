"""What one cell of a column is, whatever stands in the other cells.

If one person's value could change how another's is read, both would move when one leaves:
no sensitivity would hold. So nothing here looks at a column as a whole.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Hashable, Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.rows.rows import Integers

_NUMBERS = (bool, int, float, Decimal, Fraction, np.bool_, np.integer, np.floating)
_TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
_BOXED = (np.bool_, np.integer, np.floating, np.str_)


def spelled(text: str) -> float | None:
    """Return the number that a text spells, true and false as 1 and 0; None if it spells none."""
    word = text.strip().lower()
    if word in ("true", "false"):
        return float(word == "true")
    try:
        return float(word)
    except ValueError:
        return None


def number(cell: Any) -> float:
    """Return a cell as a float; NaN for what is no number, infinity for what is too large.

    A text is the number that it spells, as in a CSV file.
    """
    if isinstance(cell, str):
        found = spelled(cell)
        return math.nan if found is None else found
    if not isinstance(cell, _NUMBERS) or isinstance(cell, np.timedelta64):
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
        boxed = isinstance(cell, _BOXED) and not isinstance(cell, np.timedelta64)
        array[i] = cell.item() if boxed else cell
    return array


def codes(cells: Iterable[Any]) -> NDArray[np.object_]:
    """Return cells among which texts stand for numbers; None for a text that spells none."""
    return objects(spelled(cell) if isinstance(cell, str) else cell for cell in cells)


def units(column: NDArray[Any]) -> Integers:
    """Return a number for each row that is equal for equal identifiers; -1 where there is none.

    None, NaN, an empty text, and what cannot identify anybody (a list, say) are none. Units are
    numbered in the order of their first rows, whatever the column's type.
    """
    if column.dtype.kind == "O":
        return told_apart(column)[0]
    missing = np.zeros(len(column), dtype=np.bool_)
    if column.dtype.kind in "fc":
        missing = np.isnan(column)
    elif column.dtype.kind in "mM":
        missing = np.isnat(column)
    elif column.dtype.kind in "USV":
        missing = np.char.str_len(column) == 0 if column.dtype.kind in "US" else ~missing
    _, first, codes = np.unique(column[~missing], return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    found = np.full(len(column), -1, dtype=np.int64)
    found[~missing] = rank[codes.reshape(-1)]
    return found


def told_apart(column: NDArray[Any]) -> tuple[Integers, list[Hashable]]:
    """Return a number for each cell, -1 for none, and the identities that are numbered."""
    known: dict[Hashable, int] = {}
    keys = [identity(cell) for cell in column]
    codes = [-1 if key is None else known.setdefault(key, len(known)) for key in keys]
    return np.array(codes, dtype=np.int64), list(known)


def identity(cell: Any) -> Hashable | None:
    """Return what is equal for equal identifiers and for them alone; None where there is none.

    Numbers are equal by value, whatever their type; times by type and text. (Python's own
    equality is not transitive here: whether two are equal would hang on a third.)
    """
    if isinstance(cell, str | bytes):
        return (str(cell) if isinstance(cell, str) else bytes(cell)) or None
    if isinstance(cell, UUID):
        return cell
    if isinstance(cell, _TIMES):
        text = str(cell)
        return None if text == "NaT" else (type(cell).__qualname__, text)
    if isinstance(cell, _NUMBERS):
        return _value(cell)
    return None


def _value(cell: Any) -> Hashable | None:
    """Return a number as an exact fraction, or a whole number; infinities as texts in a tuple."""
    if isinstance(cell, bool | int | np.bool_ | np.integer):
        return int(cell)
    try:
        return Fraction(*cell.as_integer_ratio())
    except OverflowError:
        return ("infinity", bool(cell > 0))
    except ValueError:  # NaN, signalling too
        return None
