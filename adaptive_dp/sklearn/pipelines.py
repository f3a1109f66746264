"""Pipelines: which steps may precede a private estimator, those that learn nothing from the data.

An estimator reads only the output of the steps before it: a scaler that was fitted on private data
moves every row by what it learned from all of them, which the estimator's certificate does not
cover. So steps are known by their type, or declared to be data-independent.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)

from adaptive_dp.graph.errors import LeakError
from adaptive_dp.sklearn.arrays import BoundedScaler
from adaptive_dp.sklearn.estimators import PrivateLinear


def _always(step: Any) -> bool:
    # what such a transformer computes for a row has no parameter that data could set
    return True


def _elementwise(step: Any) -> bool:
    # a ufunc works on each entry alone; another function may read whole columns
    return step.func is None or isinstance(step.func, np.ufunc)


def _public_categories(step: Any, unknown: str) -> bool:
    # categories='auto' would read them from the data; an unknown value must not raise an error
    return not isinstance(step.categories, str) and step.handle_unknown == unknown


def _one_hot(step: Any) -> bool:
    # each of these may drop or merge categories by what the data hold
    fixed = step.drop is None and step.min_frequency is None and step.max_categories is None
    return fixed and _public_categories(step, "ignore")


def _ordinal(step: Any) -> bool:
    fixed = step.min_frequency is None and step.max_categories is None
    return fixed and _public_categories(step, "use_encoded_value")


def _constant(step: Any) -> bool:
    # other strategies, empty columns and indicators depend on all rows
    fixed = step.strategy == "constant" and step.fill_value is not None
    return bool(fixed and step.keep_empty_features and not step.add_indicator)


INDEPENDENT: dict[type, tuple[Callable[[Any], bool], str]] = {
    BoundedScaler: (_always, ""),
    Normalizer: (_always, ""),
    Binarizer: (_always, ""),
    PolynomialFeatures: (_always, ""),
    FunctionTransformer: (_elementwise, "its function is a NumPy ufunc such as np.log1p"),
    OneHotEncoder: (_one_hot, "categories=[...] are given, with handle_unknown='ignore'"),
    OrdinalEncoder: (
        _ordinal,
        "categories=[...] are given, with handle_unknown='use_encoded_value'",
    ),
    SimpleImputer: (
        _constant,
        "strategy='constant' and keep_empty_features=True, with fill_value given",
    ),
}
"""Transformers whose result for a row depends on that row only, each with its condition."""


def private_pipeline(*steps: Any, independent: Collection[str] = ()) -> Pipeline:
    """Return scikit-learn's pipeline of the steps, if none of them leaks.

    Parameters
    ----------
    steps
        Transformers that learn nothing, then a private estimator.
    independent
        Names of further steps (the type's, in lower case) that you declare data-independent:
        their result for a row depends on that row only.

    Raises
    ------
    LeakError
        If a step may learn from the data, or the last is not a private estimator.

    Examples
    --------
    >>> from adaptive_dp.sklearn import BoundedScaler, PrivateRidge
    >>> ridge = PrivateRidge(epsilon=0.5, bounds_y=(-1, 1), bounds=(-1, 1))
    >>> pipeline = private_pipeline(BoundedScaler((0, 100)), ridge)
    >>> [name for name, step in pipeline.steps]
    ['boundedscaler', 'privateridge']
    """
    # steps are checked after scikit-learn has named them, so that errors can say which
    return check_pipeline(make_pipeline(*steps), independent=independent)


def check_pipeline(pipeline: Pipeline, *, independent: Collection[str] = ()) -> Pipeline:
    """Return a pipeline as it is, or refuse one that leaks (see `private_pipeline`).

    Parameters
    ----------
    pipeline
        Its steps may be pipelines, unions and column transformers themselves.
    independent
        Names of steps that you declare data-independent.

    Raises
    ------
    LeakError
        If a step may learn from the data, or the last is not a private estimator.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from adaptive_dp.sklearn import PrivateRidge
    >>> check_pipeline(make_pipeline(StandardScaler(), PrivateRidge(bounds=(-1, 1))))
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.LeakError: step 'standardscaler', a StandardScaler, may learn from
    the private data without noise; scale by public bounds with BoundedScaler, fit it on public
    data and wrap it in FunctionTransformer, or pass independent=['standardscaler'] if a row's
    result depends on that row only
    """
    if not isinstance(pipeline, Pipeline):
        raise TypeError(f"a scikit-learn Pipeline is needed, got {type(pipeline).__name__}")
    # all but the last are transformers, which see the private rows without noise
    *before, (name, last) = pipeline.steps
    for inner, step in before:
        _check(inner, step, independent)
    # a pipeline may end in a pipeline: what counts is the estimator at its end
    if isinstance(last, Pipeline):
        check_pipeline(last, independent=independent)
    elif not isinstance(last, PrivateLinear):
        raise LeakError(
            f"the last step, {name!r}, is a {type(last).__name__}: what it learns is not private; "
            "end with an estimator of adaptive_dp.sklearn"
        )
    return pipeline


def _check(name: str, step: Any, independent: Collection[str]) -> None:
    """Refuse a step, or a step inside of it, that may learn from the data."""
    if step is None or isinstance(step, str) or name in independent:  # passthrough, drop
        return
    # containers learn nothing of their own: their steps are checked one by one
    if isinstance(step, Pipeline | FeatureUnion | ColumnTransformer):
        for inner, nested in _inner(step):
            _check(inner, nested, independent)
        return
    kind = type(step).__name__
    # by the exact type: a subclass may learn from the data in its own `fit`
    is_independent, when = INDEPENDENT.get(type(step), (None, ""))
    if is_independent is None:
        raise LeakError(
            f"step {name!r}, a {kind}, may learn from the private data without noise; scale by "
            "public bounds with BoundedScaler, fit it on public data and wrap it in "
            f"FunctionTransformer, or pass independent=[{name!r}] if a row's result depends on "
            "that row only"
        )
    # of a known type, but with settings under which it learns
    if not is_independent(step):
        raise LeakError(
            f"step {name!r}, a {kind}, is data-independent only where {when}; else pass "
            f"independent=[{name!r}] if a row's result depends on that row only"
        )


def _inner(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield the steps inside of a step, by name."""
    if isinstance(step, Pipeline):
        yield from step.steps
    elif isinstance(step, FeatureUnion):
        yield from step.transformer_list
    else:
        yield from ((name, inner) for name, inner, _ in step.transformers)
        # the transformer of the columns that no other one takes
        yield "remainder", step.remainder
