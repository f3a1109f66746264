"""A private linear support vector machine for scikit-learn."""

from __future__ import annotations

from typing import Any

from adaptive_dp.problems import HuberHinge, Loss
from adaptive_dp.sklearn.classifier import PrivateClassifier


class PrivateLinearSVC(PrivateClassifier):
    """A linear support vector machine with a smooth hinge; several classes one against the rest.

    Its parameters are those of `PrivateClassifier`; its solvers are the gradient solvers.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateLinearSVC
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateLinearSVC(epsilon=1.0, classes=["low", "high"], random_state=0)
    >>> model.fit(X, np.where(X[:, 0] > 0, "high", "low")).predict([[-0.9], [0.9]]).tolist()
    ['low', 'high']
    """

    def _loss(self, classes: int) -> Loss:
        return HuberHinge()

    def _descent(self) -> dict[str, Any]:
        return {"learning_rate": 2.0, "clip": 1.0}  # four times as curved as the logistic loss
