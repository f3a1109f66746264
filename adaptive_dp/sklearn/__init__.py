"""Private models for scikit-learn: fitted by a certified plan, safe in a pipeline.

The extra ``adaptive-dp[sklearn]`` brings scikit-learn. `PrivateRidge`, `PrivateLogisticRegression`,
`PrivateLinearSVC` and `PrivateAdditiveClassifier` are estimators; `BoundedScaler` scales by public
bounds; `private_pipeline` and `check_pipeline` refuse steps that learn from private data without
noise.
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError:
    raise ImportError(
        "adaptive_dp.sklearn needs scikit-learn: install adaptive-dp[sklearn]"
    ) from None

from adaptive_dp.sklearn.arrays import BoundedScaler, PrivacyLeakWarning, RepeatedFitWarning
from adaptive_dp.sklearn.estimators import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMarginClassifier,
    PrivateRidge,
)
from adaptive_dp.sklearn.pipelines import check_pipeline, private_pipeline

__all__ = [
    "BoundedScaler",
    "PrivacyLeakWarning",
    "PrivateAdditiveClassifier",
    "PrivateAdditiveRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateMarginClassifier",
    "PrivateRidge",
    "RepeatedFitWarning",
    "check_pipeline",
    "private_pipeline",
]


def __dir__() -> list[str]:
    """Return the public names, for tab completion, without the modules that define them."""
    return __all__
