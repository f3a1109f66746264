"""What private linear models of scikit-learn share: one plan, run once on the rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.queries.table import Table, dataset
from adaptive_dp.sklearn import arrays
from adaptive_dp.sklearn.bounds import inside, sides
from adaptive_dp.sklearn.rows import UNIT, ArrayRows, names
from adaptive_dp.sklearn.warn import RepeatedFitWarning

Floats = NDArray[np.float64]

ASSUMED = (
    "There is at least one row whose target can be learned from: no other data set is fitted.",
)
"""What estimators assume beside their certificate."""


class Family:
    """How often an estimator and its clones were fitted."""

    def __init__(self) -> None:
        self.fits = 0


class PrivateLinear(BaseEstimator):  # type: ignore[misc]
    """A linear model that is fitted by a certified plan.

    After `fit` it has ``coef_`` and ``intercept_`` in the data's units, ``n_features_in_``,
    ``bounds_``, ``plan_``, ``certificate_``, ``assumptions_`` (the certificate's, and what this
    estimator assumes beside), ``solver_`` and ``reason_``.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # a missing number is the one of its bounds next to 0
        return tags

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        copy._family = self.__dict__.setdefault("_family", Family())
        return copy

    @property
    def plan_(self) -> Pipeline:
        """The plan that was run, read from the certificate."""
        check_is_fitted(self)
        return load(self.certificate_.plan)

    def _read(self, X: Any, y: Any) -> tuple[Floats, NDArray[Any]]:
        """Return features and target, their shapes checked."""
        read = arrays.features(self, X, reset=True)
        self.bounds_ = sides(self.bounds, read.shape[1])
        return read, arrays.target(y, len(read))

    def _declared(self, targets: Mapping[str, Any], units: Any) -> Table:
        """Return the table of features and targets by their public declarations."""
        low, high = self.bounds_
        columns: dict[str, Any] = {
            name: (float(a), float(b))
            for name, a, b in zip(names(self.n_features_in_), low, high, strict=True)
        }
        return dataset(
            "rows",
            columns={**columns, **targets},
            neighbors=self.neighbors,
            unit=None if units is None else UNIT,
            rows_per_unit=self.rows_per_unit,
        )

    def _run(self, plan: Pipeline, rows: ArrayRows) -> Any:
        """Return the model that the plan releases; remember plan and certificate."""
        family = self.__dict__.setdefault("_family", Family())
        family.fits += 1
        if family.fits > 1:
            warnings.warn(
                f"{type(self).__name__}, or a clone of it, is fitted again: each fit spends its "
                "own epsilon and delta on the records it reads, and a certificate covers one fit",
                RepeatedFitWarning,
                stacklevel=4,
            )
        if self.verbose:
            print(self.reason_)
        seed = _seed(self.random_state)
        result = plan.run(rows=rows) if seed is None else plan.simulate(seed=seed, rows=rows)
        self.certificate_: Certificate = result.certificate
        self.assumptions_ = (*result.certificate.assumptions, *ASSUMED)
        return result["model"]

    def _learned(self, models: list[Mapping[str, float]]) -> tuple[Floats, Floats]:
        """Return coefficients of shape (k, p) and intercepts of shape (k,)."""
        found = names(self.n_features_in_)
        coefficients = np.array([[model[name] for name in found] for model in models])
        return coefficients, np.array([model["intercept"] for model in models])

    def _inside(self, X: Any) -> Floats:
        """Return features as `fit` reads them: within their bounds."""
        check_is_fitted(self)
        read = arrays.features(self, X, reset=False)
        return inside(read, *self.bounds_)


def _seed(random_state: Any) -> int | None:
    """Return None for the operating system's randomness, or a seed for a simulation."""
    if random_state is None:
        return None
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
