"""What a learned model says of rows: free, since models are released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.operation import require
from adaptive_dp.solvers.network import network_predictions

Array = NDArray[np.float64]


def predict(model: Any, data: Any, *, classes: Sequence[Any] | None = None) -> NDArray[Any]:
    """Return what a learned model says of each row: a number, or a category of the target.

    It computes with a released model and with rows that need not be private: it costs nothing.

    Parameters
    ----------
    model
        As a learner released it: coefficients by feature, those by class, or a network.
    data
        A mapping of the features' names to columns, a structured array, or a frame, in the data's
        own units. A linear model takes values as they are, beyond the bounds of its data too.
    classes
        The target's two categories as they were declared, for the coefficients of two classes,
        which do not tell their names: where the score is positive it is the second. Without them
        scores are returned.

    Returns
    -------
    numpy.ndarray
        Of shape (n,): numbers for a regression, scores for two classes without ``classes``, else
        categories (of several classes their texts).

    Raises
    ------
    DeclarationError
        If it is no model, or the data lack a feature.

    Examples
    --------
    >>> predict({"intercept": 10.0, "age": 2.0, "town=Ulm": 5.0},
    ...         {"age": [20, 30], "town": ["Ulm", "Bonn"]})
    array([55., 70.])
    >>> predict({"intercept": -1.0, "age": 0.04}, {"age": [20, 30]}, classes=["no", "yes"]).tolist()
    ['no', 'yes']
    """
    require(
        isinstance(model, Mapping) and ("weights" in model or len(model) > 0),
        f"predict needs a model that a learner released, got {type(model).__name__}; read it off "
        "the result, such as result['model']",
    )
    if {"weights", "inputs"} <= set(model):
        return network_predictions(model, data)
    several = [isinstance(value, Mapping) for value in model.values()]
    if all(several):
        scores = np.stack([_scores(each, data) for each in model.values()])
        named: NDArray[Any] = np.asarray(list(model))[scores.argmax(axis=0)]
        return named
    require("intercept" in model and not any(several), "a linear model has an 'intercept'")
    scores = _scores(model, data)
    if classes is None:
        return scores
    require(
        isinstance(classes, Sequence) and not isinstance(classes, str) and len(classes) == 2,
        f"classes must be the two categories of the target as declared, got {classes!r}",
    )
    chosen: NDArray[Any] = np.asarray(list(classes))[(scores > 0).astype(np.intp)]
    return chosen


def _scores(model: Mapping[str, float], data: Any) -> Array:
    """Return the intercept plus each row's features times their coefficients."""
    parts = [weight * _feature(name, data) for name, weight in model.items() if name != "intercept"]
    return np.asarray(model["intercept"] + sum(parts), dtype=np.float64)


def _feature(name: str, data: Any) -> Array:
    """Return a column; of ``name=value`` 1 where the column has the value, else 0."""
    found = _column(name, data)
    if found is not None:
        try:
            return found.astype(np.float64)
        except (TypeError, ValueError):
            raise DeclarationError(f"predict: the column {name!r} must be of numbers") from None
    for place in (i for i, letter in enumerate(name) if letter == "="):
        found = _column(name[:place], data)
        if found is not None:
            cells = found.tolist()
            return np.array([_is(cell, name[place + 1 :]) for cell in cells], dtype=np.float64)
    raise DeclarationError(f"predict: the data have no column for the feature {name!r}")


def _column(name: str, data: Any) -> NDArray[Any] | None:
    try:
        return np.asarray(data[name])
    except (KeyError, ValueError, IndexError, TypeError, LookupError):
        return None
    except Exception as error:  # a polars frame's own
        if type(error).__name__ != "ColumnNotFoundError":
            raise
        return None


def _is(cell: Any, value: str) -> bool:
    whole = isinstance(cell, float) and cell.is_integer()
    return str(cell) == value or (whole and str(int(cell)) == value)
