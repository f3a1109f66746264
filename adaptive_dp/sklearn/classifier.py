"""What private linear classifiers of scikit-learn share: public classes, scores, decisions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from adaptive_dp.data import cells
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.problems import Loss
from adaptive_dp.sklearn import choice
from adaptive_dp.sklearn.estimator import PrivateLinear
from adaptive_dp.sklearn.rows import ArrayRows, names
from adaptive_dp.sklearn.warn import PrivacyLeakWarning

LEARNED = (
    "The set of labels in y is public: it was read off the private data, which no certificate "
    "covers."
)


class PrivateClassifier(ClassifierMixin, PrivateLinear):  # type: ignore[misc]
    """A private linear classifier: the class of the largest score is predicted.

    Parameters
    ----------
    epsilon, delta
        What one fit may cost. delta is a number, not a function of how many rows there are, which
        is private; choose it far below one over the number of people.
    bounds
        Of the features: (low, high), each a number or one for each feature, chosen without looking
        at the data. What is outside is clipped, in `fit` and when predicting; a missing number is
        read as the one of its bounds next to 0.
    classes
        The labels that there can be; rows with another are left out. None reads them off y, with a
        `PrivacyLeakWarning`: a label that one person alone has gives that person away.
    neighbors
        ``"add_remove"``, ``"replace_one"`` or ``"zero_out"``.
    rows_per_unit
        The most rows that count of each of the ``units`` given to `fit`; 1 without them.
    solver
        ``"auto"``, ``"noisy_gradient_descent"``, ``"noisy_sgd"``, or of the logistic loss
        ``"objective_perturbation"``.
    options
        Parameters of the solver that is used, by name, such as ``{"steps": 200}``.
    random_state
        None for noise from the operating system. With a number the fit is a simulation: its
        certificate says so, and it is not for release.
    verbose
        Print which solver was chosen, and why.
    """

    _allowed: tuple[str, ...] = choice.DESCENTS
    """The solvers that can minimize the loss."""

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: Any = (-1.0, 1.0),
        classes: Sequence[Any] | None = None,
        neighbors: str = "add_remove",
        rows_per_unit: int = 1,
        solver: str = "auto",
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.classes = classes
        self.neighbors = neighbors
        self.rows_per_unit = rows_per_unit
        self.solver = solver
        self.options = options
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # of the few rows of scikit-learn's checks
        return tags

    def fit(self, X: Any, y: Any, units: Any = None) -> Any:
        """Return the model, fitted.

        Parameters
        ----------
        X
            Features, shape (n, p).
        y
            Labels, shape (n,).
        units
            Whom each row belongs to, shape (n,); None to protect a row.
        """
        read, labels = self._read(X, y)
        self.classes_ = self._public() if self.classes is not None else self._learned_from(y)
        self.solver_, self.reason_ = choice.classification(
            self.solver, self.epsilon, self.delta, len(self.classes_), self._allowed
        )
        codes = coded(labels, self.classes_)
        targets = self._targets(codes)
        table = self._declared({name: declared for name, (declared, _) in targets.items()}, units)
        model = {
            name: table.solve(self._learner(name), **self._budget(len(targets))) for name in targets
        }
        plan = Pipeline(model=model)
        if len(targets) == 1:
            plan = plan.with_delta(self.delta)
        else:
            plan = plan.calibrate(self.epsilon, self.delta)
        rows = ArrayRows(read, {name: values for name, (_, values) in targets.items()}, units)
        found = self._run(plan, rows)
        models = list(found.values())
        if "intercept" not in models[0]:  # one learner of all classes
            models = [models[0][str(k)] for k in range(len(self.classes_))]
        self.coef_, self.intercept_ = self._learned(models)
        if self.classes is None:
            self.assumptions_ = (*self.assumptions_, LEARNED)
        return self

    def _targets(self, codes: NDArray[np.int64]) -> dict[str, tuple[list[int], NDArray[np.int64]]]:
        """Return columns to learn: their categories and values."""
        count = len(self.classes_)
        if count == 2 or self._at_once():
            return {"y": (list(range(count)), codes)}
        return {f"y{k}": ([0, 1], np.where(codes < 0, -1, codes == k)) for k in range(count)}

    def _at_once(self) -> bool:
        """Return whether one learner serves more than two classes."""
        return self._loss(3).labels == "class" or self.solver_ == "objective_perturbation"

    def _budget(self, count: int) -> dict[str, float]:
        return {"epsilon": self.epsilon, "delta": self.delta} if count == 1 else {}

    def _learner(self, target: str) -> Any:
        given: dict[str, Any] = {"loss": self._loss(len(self.classes_)), "norm": 1.0}
        if self.solver_ in choice.DESCENTS:
            given.update(self._descent())
        else:  # several classes one against the rest
            given["loss"] = self._loss(2)
        given.update(self.options or {})
        return choice.SOLVERS[self.solver_](names(self.n_features_in_), target, **given)

    def _loss(self, classes: int) -> Loss:
        """Return the loss for so many classes."""
        raise NotImplementedError

    def _descent(self) -> dict[str, Any]:
        """Return the parameters of gradient solvers that suit the loss."""
        return {}

    def _public(self) -> NDArray[Any]:
        """Return the classes that were given, in order."""
        found = np.unique(np.asarray(self.classes))
        plain = found.ndim == 1 and found.dtype.kind in "biufUO"
        if not plain or len(found) != len(self.classes or ()) or len(found) < 2:
            raise ValueError(
                "classes must be at least two different labels, all texts or all numbers; got "
                f"{self.classes!r}"
            )
        return found

    def _learned_from(self, y: Any) -> NDArray[Any]:
        """Return the labels that there are, in order."""
        warnings.warn(
            f"{type(self).__name__}: classes=None reads the set of labels off the private data, "
            "which the certificate does not cover; pass classes=[...]",
            PrivacyLeakWarning,
            stacklevel=3,
        )
        labels = np.asarray(y).reshape(-1)
        check_classification_targets(labels)
        found = np.unique(labels)
        if len(found) < 2:
            raise ValueError(f"a classifier needs at least two classes, got {len(found)} class")
        return found

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores: shape (n,) of two classes, positive for the second; else (n, k)."""
        scores = self._inside(X) @ self.coef_.T + self.intercept_
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, shape (n,)."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


def coded(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the place of each label among the classes, -1 for one that is none of them.

    Raises
    ------
    ValueError
        If the type of the labels is not that of the classes.

    Examples
    --------
    >>> coded(np.array([3.0, 1.0, np.nan, 2.0]), np.array([1, 3]))
    array([ 1,  0, -1, -1])
    """
    texts = [array.dtype.kind in "UT" for array in (labels, classes)]
    if "O" not in (labels.dtype.kind, classes.dtype.kind) and texts[0] != texts[1]:
        words = ["texts" if text else "numbers" for text in texts]
        raise ValueError(f"y holds {words[0]}, but the classes are {words[1]}")
    if "O" in (labels.dtype.kind, classes.dtype.kind) or texts[0]:
        lookup = {value: k for k, value in enumerate(classes.tolist())}
        plain = (str, int, float, bool)
        each = cells.objects(labels.tolist()).tolist()
        found = [lookup.get(v, -1) if type(v) in plain else -1 for v in each]
        return np.array(found, dtype=np.int64)
    place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1).astype(np.int64)
    return np.where(classes[place] == labels, place, -1)
