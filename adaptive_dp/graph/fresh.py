"""Copies that share nothing: no function of a user's reaches into the plan, or into another's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np


def fresh(value: Any) -> Any:
    """Return a copy of a value that shares no mapping, list, tuple or array with it.

    Whatever else cannot be copied is passed on as it is.

    Examples
    --------
    >>> inner = [1.0]
    >>> fresh({"a": inner})["a"] is inner
    False
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return deepcopy(value)
    except Exception:  # a generator, say: what can be copied around it still is
        return _pieces(value)


def _pieces(value: Any) -> Any:
    if type(value) is dict:
        return {key: fresh(inner) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(fresh(inner) for inner in value)
    return value.copy() if isinstance(value, np.ndarray) else value
