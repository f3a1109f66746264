"""Released values as JSON-like values, whatever a function made of them.

A release is spent when it is drawn, so showing it must not fail: what has no form of its own is
shown by its ``repr``, and what has not even that by its type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

DEEPEST = 32
"""Values nested deeper than this are shown by their ``repr``."""
DIGITS = 300
"""Whole numbers of more digits than a float can hold are written as text."""


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value as numbers, texts, booleans, None, lists and mappings with text keys.

    Examples
    --------
    >>> import numpy as np
    >>> plain({1: np.arange(2.0), "b": (float("nan"), 1j)})
    {'1': [0.0, 1.0], 'b': ['nan', '1j']}
    """
    try:
        return _plain(value, depth)
    except Exception:  # a type whose own methods fail
        return said(value)


def said(value: Any) -> str:
    """Return a value's ``repr``, or what is left where that fails."""
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if abs(value) < 10**DIGITS else _huge(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, complex | Decimal | Fraction | date | time | timedelta):
        return str(value)
    if isinstance(value, np.generic):
        return _generic(value, depth)
    if depth >= DEEPEST:
        return said(value)
    if isinstance(value, Mapping):
        return _mapping(value, depth)
    if isinstance(value, np.ndarray):
        return _array(value, depth)
    if isinstance(value, Set):
        return plain(sorted(value, key=said), depth + 1)
    if isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return _frame(value, depth)


def _huge(value: int) -> str:
    try:
        return str(value)
    except ValueError:  # more digits than Python writes in base ten
        return hex(value)


def _generic(value: np.generic, depth: int) -> Any:
    item = str(value) if value.dtype.kind in "mM" else value.item()
    return str(value) if isinstance(item, np.generic) else plain(item, depth)


def _array(value: np.ndarray[Any, Any], depth: int) -> Any:
    whole = value.astype(np.str_) if value.dtype.kind in "mM" else value
    return plain(whole.tolist(), depth + 1)


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    pairs = list(value.items())
    keys = [str(plain(key)) for key, _ in pairs]
    if len(set(keys)) < len(keys):  # such as 1 and "1"
        keys = [said(key) for key, _ in pairs]
    return {key: plain(item, depth + 1) for key, (_, item) in zip(keys, pairs, strict=True)}


def _frame(value: Any, depth: int) -> Any:
    """Return a pandas or polars object as its columns; anything else by its ``repr``."""
    module = type(value).__module__.partition(".")[0]
    if module == "pandas" and hasattr(value, "index") and hasattr(value, "to_dict"):
        if value.index.is_unique and getattr(value, "columns", value.index).is_unique:
            return plain(value.to_dict(), depth + 1)
        return plain(value.to_numpy(), depth + 1)
    if module == "polars" and hasattr(value, "to_dict"):
        return plain(value.to_dict(as_series=False), depth + 1)
    if module == "polars" and hasattr(value, "to_list"):
        return plain(value.to_list(), depth + 1)
    return said(value)
