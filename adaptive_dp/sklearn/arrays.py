"""Arrays as scikit-learn hands them over: read so that no message and no refusal tells of a row.

scikit-learn's own checks quote data ("could not convert string to float: ..."), print arrays that
are complex or of one dimension, and tell how many rows there are. Here all that is refused hangs on
types and shapes, and is told without the number of rows. A missing number is none of that: it is
read as the number of its bounds that is next to 0, since a refusal would tell that somebody's is
missing. Lists are read cell by cell: as an array, one text would make texts of everybody's numbers.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import validate_data

from adaptive_dp.data import cells

Floats = NDArray[np.float64]


def features(estimator: Any, X: Any, *, reset: bool) -> Floats:
    """Return features as floats, shape (n, p), NaN where a cell is no number.

    Parameters
    ----------
    estimator
        Remembers the features' number and names where ``reset``; else X must fit them.
    X
        What scikit-learn takes for dense features.

    Raises
    ------
    ValueError, TypeError
        If the shape or the type does not fit.
    """
    X = _cells_of(X)
    shape = _shape(X)
    name = type(estimator).__name__
    if len(shape) != 2:
        raise ValueError(
            f"{name} needs features of two dimensions, got {len(shape)}. Reshape your data: "
            "X.reshape(-1, 1) if it is one feature, X.reshape(1, -1) if it is one row"
        )
    if shape[1] == 0:
        raise ValueError(
            "Found array with 0 feature(s) (shape=(, 0)) while a minimum of 1 is required."
        )
    if shape[0] == 0:
        raise ValueError(f"Found array with 0 sample(s) while {name} needs a minimum of 1.")
    validate_data(estimator, X, reset=reset, skip_check_array=True)  # names and number of features
    return _floats("X", _array(X))


def target(y: Any, count: int) -> NDArray[Any]:
    """Return the target, shape (n,), as it is.

    Raises
    ------
    ValueError
        If there is none, if it has not one dimension, or not ``count`` rows.
    """
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    y = _cells_of(y)
    shape = _shape(y)
    if len(shape) == 2 and shape[1] == 1:
        _as_column()
    elif len(shape) != 1:
        raise ValueError(f"y should be a 1d array, got one of {len(shape)} dimensions")
    array = _array(y)
    if len(array) != count:
        raise ValueError("X and y have inconsistent numbers of samples")
    return array.reshape(-1)


def real_target(y: NDArray[Any]) -> Floats:
    """Return a target of numbers, NaN where there is none.

    Raises
    ------
    ValueError
        If not one is a finite number: then there is nothing to learn from.
    """
    values = _floats("y", y)
    if not np.isfinite(values).any():
        raise ValueError("y holds no finite number at all: there is nothing to learn from")
    return values


def _cells_of(array: Any) -> Any:
    if not isinstance(array, list | tuple):
        return array
    try:
        return np.array(array, dtype=object)
    except ValueError:
        pass
    raise ValueError("an array of numbers is needed: all rows must be of one length")


def _shape(array: Any) -> tuple[int, ...]:
    try:
        shape = array.shape if hasattr(array, "shape") else np.asarray(array).shape
        return tuple(int(v) for v in shape)
    except Exception:
        pass
    # outside of the handler: the cause may quote shapes, or data
    raise ValueError("an array of numbers is needed: all rows must be of one length")


def _array(values: Any) -> NDArray[Any]:
    if issparse(values):
        raise TypeError("sparse data is not supported: pass a dense array, X.toarray()")
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    return array


def _floats(what: str, array: NDArray[Any]) -> Floats:
    if array.dtype.kind == "O":
        listed = array.ravel().tolist()
        if any(isinstance(cell, _CONTAINERS) for cell in listed):
            raise TypeError(f"each cell of {what}: argument must be a string or a real number")
        return cells.numbers(listed).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold numbers, got the type {array.dtype.kind!r}")
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float64)


_CONTAINERS = (dict, list, tuple, set, np.ndarray)
"""What no table of numbers has as a cell, whoever is in it."""


def _as_column() -> None:
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; it is read as y.ravel()",
        DataConversionWarning,
        stacklevel=5,
    )
