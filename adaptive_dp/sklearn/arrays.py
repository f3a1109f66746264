"""Arrays from scikit-learn, read without leaking rows, and public bounds of features."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from adaptive_dp.data import MemoryRows, Reading, SchemaError, cells
from adaptive_dp.data.cells import read_column

# -----------------------------------------------------------------------------
# Warnings of the estimators; whether one is given does not depend on private values.


class PrivacyLeakWarning(UserWarning):
    """Something was read from the private data that no certificate covers.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateLogisticRegression
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = PrivateLogisticRegression(bounds=(-1, 1), random_state=0).fit(X, X[:, 0] > 0)
    >>> [warning.category.__name__ for warning in caught]
    ['PrivacyLeakWarning']
    """


class RepeatedFitWarning(UserWarning):
    """An estimator, or a clone of it, is fitted again: each fit spends its own budget.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateRidge
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateRidge(bounds=(-1, 1), bounds_y=(-1, 1), random_state=0).fit(X, X[:, 0])
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always")
    ...     _ = model.fit(X, X[:, 0])
    >>> [warning.category.__name__ for warning in caught]
    ['RepeatedFitWarning']
    """


# -----------------------------------------------------------------------------
# Arrays from scikit-learn, read so that no message and no refusal reveals a row.
#
# scikit-learn's own checks quote data ("could not convert string to float: ..."), print arrays that
# are complex or of one dimension, and tell how many rows there are. Here a refusal depends on types
# and shapes only, and its message never has the number of rows. A missing number is not refused, as
# that would reveal that someone's is missing: it is read as the point of its bounds that is closest
# to 0. Lists are read cell by cell: as an array, one str would make every number a str.


Floats = NDArray[np.float64]


def features(estimator: Any, X: Any, *, reset: bool) -> Floats:
    """Return features as floats, shape (n, p), NaN where a cell is not a number.

    Parameters
    ----------
    estimator
        Stores the number and names of the features where ``reset``; else X must match them.
    X
        Dense features, as scikit-learn accepts them.

    Raises
    ------
    ValueError, TypeError
        If the shape or the type does not match.
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
        If it is None, does not have one dimension, or does not have ``count`` rows.
    """
    if y is None:
        raise ValueError("this estimator requires y to be passed, but the target y is None")
    y = _cells_of(y)
    shape = _shape(y)
    # a column (n, 1) is read as (n,), with scikit-learn's warning
    if len(shape) == 2 and shape[1] == 1:
        _warn_of_column()
    elif len(shape) != 1:
        raise ValueError(f"y should be a 1d array, got one of {len(shape)} dimensions")
    array = _array(y)
    # the message has neither of the two numbers: n is private
    if len(array) != count:
        raise ValueError("X and y have inconsistent numbers of samples")
    return array.reshape(-1)


def real_target(y: NDArray[Any]) -> Floats:
    """Return a target of numbers, NaN where a cell is not one.

    Raises
    ------
    ValueError
        If none is a finite number: then there is nothing to learn from.
    """
    values = _floats("y", y)
    # NaN and infinite targets alone leave no row to learn from
    if not np.isfinite(values).any():
        raise ValueError("y holds no finite number at all: there is nothing to learn from")
    return values


def _cells_of(array: Any) -> Any:
    """Return a list as an array of objects, so that each cell keeps its own type."""
    if not isinstance(array, list | tuple):
        return array
    try:
        return np.array(array, dtype=object)
    except ValueError:
        pass
    # raised outside of the handler, so that no cause quotes the data
    raise ValueError("an array of numbers is needed: all rows must be of one length")


def _shape(array: Any) -> tuple[int, ...]:
    """Return the shape, refused without quoting the data if there is none."""
    try:
        shape = array.shape if hasattr(array, "shape") else np.asarray(array).shape
        return tuple(int(v) for v in shape)
    except Exception:
        pass
    # outside of the handler: the cause may quote shapes, or data
    raise ValueError("an array of numbers is needed: all rows must be of one length")


def _array(values: Any) -> NDArray[Any]:
    """Return a dense array of real cells."""
    if issparse(values):
        raise TypeError("sparse data is not supported: pass a dense array, X.toarray()")
    array = np.asarray(values)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    return array


def _floats(what: str, array: NDArray[Any]) -> Floats:
    """Return an array as float64, NaN where an object is not a number."""
    if array.dtype.kind == "O":
        objects = array.ravel().tolist()
        if any(isinstance(cell, _CONTAINERS) for cell in objects):
            raise TypeError(f"each cell of {what}: argument must be a string or a real number")
        return cells.numbers(objects).reshape(array.shape)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{what} must hold numbers, got the type {array.dtype.kind!r}")
    # integers and longer floats beyond float64 become infinite
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float64)


_CONTAINERS = (dict, list, tuple, set, np.ndarray)
"""Types that are never a cell of a table of numbers, whatever its rows are."""


def _warn_of_column() -> None:
    """Warn that a target of shape (n, 1) is read as one of shape (n,)."""
    warnings.warn(
        "A column-vector y was passed when a 1d array was expected; it is read as y.ravel()",
        DataConversionWarning,
        stacklevel=5,
    )


# -----------------------------------------------------------------------------
# Public bounds of features: a pair of numbers, or of one array each.


def feature_bounds(bounds: Any, width: int, what: str = "bounds") -> tuple[Floats, Floats]:
    """Return lower and upper bounds of each feature, shapes (p,).

    Parameters
    ----------
    bounds
        A pair (low, high), each a number for all features or p numbers.
    width
        p.

    Raises
    ------
    ValueError
        If they are not such a pair.

    Examples
    --------
    >>> feature_bounds(([0, 1], 5), 2)
    (array([0., 1.]), array([5., 5.]))
    """
    try:
        # a pair unpacks into two; anything else raises, and is refused below in one message
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        lower = np.array(np.broadcast_to(low, (width,)))
        upper = np.array(np.broadcast_to(high, (width,)))
    except (TypeError, ValueError):
        # NaN fails the check of finiteness
        lower, upper = np.array([np.nan]), np.array([np.nan])
    if not (np.all(np.isfinite([lower, upper])) and np.all(lower <= upper)):
        raise ValueError(
            f"{what} must be a pair (low, high) with low <= high, each a finite number or one for "
            f"each of {width} features, chosen without looking at the data; got {bounds!r}"
        )
    return lower, upper


def clip_to_bounds(values: Floats, lower: Floats, upper: Floats) -> Floats:
    """Return values clipped to their bounds; NaN becomes the point of them closest to 0."""
    # NaN as 0, clipped: the point of the bounds closest to 0
    return np.clip(np.where(np.isnan(values), 0.0, values), lower, upper)


def standardised(values: Floats, lower: Floats, upper: Floats, *, centred: bool = False) -> Floats:
    """Return values within their bounds as learners scale them (see `queries.examples.standard`).

    Centred, the middle of the bounds is 0 also where one of them is: so are learned bounds.

    Examples
    --------
    >>> standardised(np.array([[3.0, 3.0]]), np.array([0.0, 2.0]), np.array([6.0, 6.0]))
    array([[ 0.5, -0.5]])
    """
    zero_bound = ((lower == 0) | (upper == 0)) & (not centred)  # then 0 stays 0
    # halves before the difference, which then does not overflow
    half = np.where(zero_bound, np.maximum(abs(lower), abs(upper)), upper / 2 - lower / 2)
    middle = np.where(zero_bound, 0.0, lower + half)
    scaled = np.zeros_like(values)
    # a feature whose bounds are equal stays 0
    np.divide(values - middle, half, out=scaled, where=half > 0)
    # rounding may leave [-1, 1] by a unit in the last place
    return np.clip(scaled, -1.0, 1.0)


# -----------------------------------------------------------------------------
# The rows of arrays: columns are views, so that many features cost no copies.


UNIT = "unit"
"""The column that identifies the unit of each row."""


def feature_names(width: int) -> tuple[str, ...]:
    """Return names for the columns of p features."""
    return tuple(f"x{j}" for j in range(width))


@frozen(eq=False, repr=False)
class ArrayRows:
    """Features, targets and units that open as rows.

    Parameters
    ----------
    features
        Shape (n, p).
    targets
        By the name of their column, each of shape (n,).
    units
        The unit of each row, any identifier; None where each row is a unit.
    """

    features: NDArray[np.float64]
    targets: Mapping[str, NDArray[Any]]
    units: Any = None

    def __repr__(self) -> str:
        # the default would print private values
        return "<private arrays>"

    def open_rows(self, columns: Mapping[str, Reading], unit: str | None) -> MemoryRows:
        """Return the rows; those without a unit are dropped."""
        available = {
            name: self.features[:, j]
            for j, name in enumerate(feature_names(self.features.shape[1]))
        }
        available.update(self.targets)
        # names are public: a refusal shows them and no value
        missing = sorted(set(columns) - set(available))
        if missing:
            raise SchemaError(f"the arrays have no column {', '.join(missing)}")
        views = {name: available[name] for name in columns}
        count = len(self.features)
        # each row is its own unit
        if unit is None:
            return MemoryRows(views, range(count))
        codes = cells.unit_codes(read_column(self.units, UNIT, "value"))
        if len(codes) != count:
            raise SchemaError("units and features differ in length")
        # a negative code is a row without a unit, which is left out
        identified = codes >= 0
        return MemoryRows(
            {name: view[identified] for name, view in views.items()}, codes[identified]
        )


# -----------------------------------------------------------------------------
# Scaling by public bounds: a transformer whose `fit` reads no value.


class BoundedScaler(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer that maps features from public bounds onto [-1, 1] and clips to them.

    A missing number becomes the point of its bounds closest to 0, so that later steps see none.

    Parameters
    ----------
    bounds
        (low, high), each a number or one for each feature, chosen without looking at the data.
        Needed, and never assumed.

    Examples
    --------
    >>> BoundedScaler(bounds=(0, 100)).fit_transform([[25.0], [200.0]]).tolist()
    [[-0.5], [1.0]]
    """

    def __init__(self, bounds: Any = None) -> None:
        self.bounds = bounds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # NaN is read as a point of the bounds, as by the estimators
        tags.input_tags.allow_nan = True
        return tags

    def fit(self, X: Any, y: Any = None) -> BoundedScaler:
        """Return the scaler; only the number of features and their names are read from X."""
        # reads shape and names; values are converted, and not kept
        features(self, X, reset=True)
        feature_bounds(self.bounds, self.n_features_in_)
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:
        """Return the features within [-1, 1], shape (n, p)."""
        check_is_fitted(self, "n_features_in_")
        read = features(self, X, reset=False)
        low, high = feature_bounds(self.bounds, self.n_features_in_)
        half = high / 2 - low / 2
        scaled = np.zeros_like(read)
        np.divide(clip_to_bounds(read, low, high) - (low + half), half, out=scaled, where=half > 0)
        return np.clip(scaled, -1.0, 1.0)
