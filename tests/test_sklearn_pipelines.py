"""Pipelines of scikit-learn before private estimators: what learns from the data is refused."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn (the sklearn extra)")

from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
)

import adaptive_dp as dp
from adaptive_dp.sklearn import (
    BoundedScaler,
    PrivateLogisticRegression,
    PrivateRidge,
    check_pipeline,
    private_pipeline,
)


class Mine(BoundedScaler):
    """A subclass may do anything."""


def centred(X: Any) -> Any:
    return X - X.mean(axis=0)


def table(name: str, step: Any) -> ColumnTransformer:
    return ColumnTransformer([(name, step, [0])], remainder="passthrough")


LEAKY = [
    StandardScaler(),
    MinMaxScaler(),
    PCA(1),
    QuantileTransformer(),
    SelectKBest(),
    FunctionTransformer(centred),
    SimpleImputer(),
    SimpleImputer(strategy="constant"),
    SimpleImputer(strategy="constant", fill_value=0),
    OneHotEncoder(),
    OneHotEncoder(categories=[["a", "b"]]),
    OrdinalEncoder(categories=[["a", "b"]]),
    Mine(),
    make_pipeline(BoundedScaler(bounds=(-1, 1)), StandardScaler()),
    FeatureUnion([("a", Normalizer()), ("b", PCA(1))]),
    table("a", StandardScaler()),
    ColumnTransformer([("a", Normalizer(), [0])], remainder=StandardScaler()),
]
SAFE = [
    BoundedScaler(bounds=(-1, 1)),
    Normalizer(),
    Binarizer(),
    PolynomialFeatures(),
    FunctionTransformer(),
    FunctionTransformer(np.log1p),
    SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True),
    OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore", sparse_output=False),
    OrdinalEncoder(categories=[["a", "b"]], handle_unknown="use_encoded_value", unknown_value=-1),
    "passthrough",
    make_pipeline(BoundedScaler(bounds=(-1, 1)), Normalizer()),
    FeatureUnion([("a", Normalizer()), ("b", PolynomialFeatures())]),
    table("a", Normalizer()),
]


@pytest.mark.parametrize("step", LEAKY, ids=lambda step: type(step).__name__)
def test_steps_that_learn_are_refused(step: Any) -> None:
    with pytest.raises(dp.LeakError, match="independent="):
        private_pipeline(step, PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)))
    with pytest.raises(dp.LeakError):
        check_pipeline(
            Pipeline(
                [
                    ("first", BoundedScaler(bounds=(-1, 1))),
                    ("a", step),
                    ("b", PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1))),
                ]
            )
        )


@pytest.mark.parametrize("step", SAFE, ids=lambda step: type(step).__name__)
def test_steps_that_learn_nothing_pass(step: Any) -> None:
    private_pipeline(step, PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)))


def rowwise(step: Any, rows: Any, others: Any) -> None:
    """Fitted with other rows, the step makes the same of the first."""
    made = clone(step).fit(rows).transform(rows)
    again = clone(step).fit(np.concatenate([rows, others])).transform(rows)
    np.testing.assert_array_equal(made, again)


@pytest.mark.parametrize("step", [s for s in SAFE if s != "passthrough"], ids=lambda s: str(s)[:25])
def test_what_passes_looks_at_each_row_by_itself(step: Any) -> None:
    """Against the steps themselves: with other rows beside them, rows become the same."""
    rows: Any = np.random.default_rng(0).uniform(0, 1, (6, 2))
    others: Any = np.array([[100.0, -0.5], [0, 0]])
    if isinstance(step, OneHotEncoder | OrdinalEncoder):
        rows = np.array([["a"], ["b"], ["c"]], dtype=object)
        others = np.array([["d"], ["e"]], dtype=object)
    if isinstance(step, SimpleImputer):
        rows[:, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rowwise(step, rows, others)


def test_a_step_may_be_declared_independent() -> None:
    fitted = FunctionTransformer(centred)
    with pytest.raises(dp.LeakError, match="'functiontransformer'"):
        private_pipeline(fitted, PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)))
    private_pipeline(
        fitted, PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)), independent=["functiontransformer"]
    )
    check_pipeline(
        make_pipeline(table("known", PCA(1)), PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1))),
        independent={"known"},
    )


def test_the_last_step_must_be_private() -> None:
    for last in (
        Ridge(),
        StandardScaler(),
        GridSearchCV(PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)), {}),
        "passthrough",
    ):
        with pytest.raises(dp.LeakError):
            private_pipeline(BoundedScaler(bounds=(-1, 1)), last)
    nested = private_pipeline(
        BoundedScaler(bounds=(-1, 1)),
        make_pipeline(Normalizer(), PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1))),
    )
    assert check_pipeline(nested) is nested
    with pytest.raises(dp.LeakError):
        private_pipeline(
            make_pipeline(StandardScaler(), PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)))
        )
    with pytest.raises(TypeError, match="Pipeline"):
        check_pipeline(PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)))


def test_a_pipeline_fits_and_carries_its_certificate() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 100, (2000, 2))
    y = np.where(X[:, 0] > 50, "old", "young")
    X[5, 1] = np.nan
    model = PrivateLogisticRegression(2.0, classes=["young", "old"], random_state=0, bounds=(-1, 1))
    pipeline = private_pipeline(BoundedScaler((0, 100)), PolynomialFeatures(2), model)
    pipeline.fit(X, y)
    assert pipeline.score(X, y) > 0.9
    assert pipeline[-1].certificate_.epsilon <= 2
    people = np.arange(2000) // 2
    pipeline.set_params(privatelogisticregression=clone(model).set_params(rows_per_unit=2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline.fit(X, y, privatelogisticregression__units=people)
    assert pipeline[-1].certificate_.protects[0].rows_per_unit == 2


def test_the_scaler_maps_bounds_to_one() -> None:
    scaler = BoundedScaler(bounds=([0, -5, 2], [10, 5, 2]))
    made = scaler.fit_transform([[0, 5, 2], [10, -5, 9], [2.5, 0, 2], [np.nan, -np.inf, np.nan]])
    np.testing.assert_array_equal(made, [[-1, 1, 0], [1, -1, 0], [-0.5, 0, 0], [-1, -1, 0]])
    with pytest.raises(ValueError, match=r"\bbounds\b"):
        BoundedScaler(bounds=(1, 0)).fit([[1.0]])
