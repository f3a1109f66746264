"""Private estimators for scikit-learn: ridge, logistic regression, linear SVC, additive models."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from adaptive_dp import learning
from adaptive_dp.data import cells
from adaptive_dp.erm import HuberHinge, Logistic, Loss, Multinomial, Squared
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.document import load
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.learning.additive import additive_scores, paired
from adaptive_dp.learning.auto import Constant, recommended_classifier, recommended_line
from adaptive_dp.learning.base import Standardised
from adaptive_dp.queries.table import Table, dataset
from adaptive_dp.sklearn import arrays
from adaptive_dp.sklearn.arrays import (
    UNIT,
    ArrayRows,
    PrivacyLeakWarning,
    RepeatedFitWarning,
    clip_to_bounds,
    feature_bounds,
    feature_names,
    standardised,
)

# -----------------------------------------------------------------------------
# The base of the estimators: one plan, certified, and run once on the rows.


Floats = NDArray[np.float64]

ASSUMPTIONS = (
    "There is at least one row whose target can be learned from: no other data set is fitted.",
)
"""Assumptions of the estimators, in addition to those of their certificates."""


class FitCount:
    """The number of fits of an estimator and its clones, which share it."""

    def __init__(self) -> None:
        self.count = 0


class PrivateLinear(BaseEstimator):  # type: ignore[misc]
    """The base of private linear models: one that is fitted by a certified plan.

    After `fit` it has ``coef_`` and ``intercept_`` in data units, ``n_features_in_``,
    ``bounds_``, ``plan_``, ``certificate_``, ``assumptions_`` (the certificate's, and what this
    estimator assumes in addition), ``solver_`` and ``reason_``.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True  # NaN is read as the point of its bounds closest to 0
        return tags

    def __sklearn_clone__(self) -> Any:
        copy = super().__sklearn_clone__()
        # clones share the count: a grid search fits clones, and each fit spends its own budget
        copy._fit_count = self.__dict__.setdefault("_fit_count", FitCount())
        return copy

    @property
    def plan_(self) -> Pipeline:
        """The plan that was run, read from the certificate."""
        check_is_fitted(self)
        return load(self.certificate_.plan)

    def _read(self, X: Any, y: Any) -> tuple[Floats, NDArray[Any]]:
        """Return features and target, their shapes checked."""
        read = arrays.features(self, X, reset=True)
        # bounds are public declarations: they are checked against the number of columns alone
        if not self._learns_bounds():
            self.bounds_ = feature_bounds(self.bounds, read.shape[1])
        return read, arrays.target(y, len(read))

    def _known_rows(self, rows: int, units: Any) -> None:
        """Keep the number of rows where it is public: as given, or where none comes or goes."""
        given = getattr(self, "rows", None)
        if given is not None:
            if isinstance(given, bool) or not isinstance(given, Integral) or given < 1:
                raise ValueError(
                    f"rows must be a whole number of at least 1, or None; got {given!r}"
                )
            rows = int(given)
        is_public = given is not None or (self.neighbors != "add_remove" and units is None)
        self._rows: int | None = rows if is_public else None

    def _rows_of_units(self) -> int | None:
        """Return the number of rows over the most that a unit has, where it is public."""
        return self._rows and self._rows // self.rows_per_unit

    def _constant(self, target: str) -> Constant:
        """Return the learner of one answer for all rows, whose number is public."""
        assert self._rows is not None  # `too_few` is never said of an unknown number
        return Constant(feature_names(self.n_features_in_), target, rows=self._rows)

    def _learns_bounds(self) -> bool:
        """Return whether the bounds of features are learned; refuse that none are given."""
        if self.bounds is None:
            raise ValueError(
                f"{type(self).__name__} needs bounds=(low, high) of the features, each a number or "
                "one for each feature, chosen without looking at the data; or bounds='private' to "
                "learn them with a tenth of the budget"
            )
        return isinstance(self.bounds, str) and self.bounds == "private"

    def _declared(self, targets: Mapping[str, Any], units: Any) -> Table:
        """Return the table of features and targets by their public declarations."""
        names = feature_names(self.n_features_in_)
        columns: dict[str, Any] = dict.fromkeys(names)
        if not self._learns_bounds():
            pairs = zip(names, *self.bounds_, strict=True)
            columns = {name: (float(a), float(b)) for name, a, b in pairs}
        return dataset(
            "rows",
            columns={**columns, **targets},
            neighbors=self.neighbors,
            # units are protected only where they are given; else each row is its own unit
            unit=None if units is None else UNIT,
            rows_per_unit=self.rows_per_unit,
        )

    def _solved(self, table: Table, learner: Any) -> dict[str, Any]:
        """Return what a plan releases: a model, and learned bounds of features."""
        if not self._learns_bounds():
            return {"model": table.solve(learner, epsilon=self.epsilon, delta=self.delta)}
        both = Standardised(learner)
        budget = both.budget(self.epsilon, self.delta)
        assert budget is not None
        ranges, model = both.ranges_and_model(table, budget)
        return {"model": model, "bounds": ranges}

    def _additive_model(
        self, target: str, learner: Any = learning.AdditiveModel, **parameters: Any
    ) -> Any:
        """Return an additive learner of a target; refuse learned bounds, which give no bins."""
        if self._learns_bounds():
            raise ValueError(
                "an additive model's bins need bounds=(low, high), chosen without looking at the "
                "data"
            )
        names = feature_names(self.n_features_in_)
        return learner(names, target, **{**parameters, **(self.options or {})})

    def _keep_shapes(self, model: Any) -> None:
        """Keep an additive model in the attributes: shapes by the features' own names."""
        names = self.__dict__.get("feature_names_in_", feature_names(self.n_features_in_))
        self.intercept_ = np.asarray(model["intercept"], dtype=np.float64)
        self.shapes_ = dict(zip(map(str, names), model["shapes"].values(), strict=True))
        own = dict(zip(model["shapes"], self.shapes_, strict=True))
        self.pairs_ = [
            {**pair, "features": [own[name] for name in pair["features"]]}
            for pair in model.get("pairs", [])
        ]

    def _shape_scores(self, X: Any) -> NDArray[np.float64]:
        """Return an additive model's scores, shape (n,), or (n, k) of several classes."""
        read = arrays.features(self, X, reset=False)
        model = {"intercept": self.intercept_, "shapes": self.shapes_, "pairs": self.pairs_}
        return additive_scores(model, dict(zip(self.shapes_, read.T, strict=True)))

    def _run(self, plan: Pipeline, rows: ArrayRows) -> Any:
        """Return the model that the plan releases; store the plan and its certificate."""
        fits = self.__dict__.setdefault("_fit_count", FitCount())
        # counted before the run, so that a run that fails halfway counts as a fit
        fits.count += 1
        if fits.count > 1:
            warnings.warn(
                f"{type(self).__name__}, or a clone of it, is fitted again: each fit spends its "
                "own epsilon and delta on the records it reads, and a certificate covers one fit",
                RepeatedFitWarning,
                stacklevel=4,
            )
        if self.verbose:
            print(self.reason_)
        seed = _seed(self.random_state)
        # a seed makes the noise reproducible, which is a simulation and says so in its certificate
        result = plan.run(rows=rows) if seed is None else plan.simulate(seed=seed, rows=rows)
        self.certificate_: Certificate = result.certificate
        self.assumptions_ = (*result.certificate.assumptions, *ASSUMPTIONS)
        if self._learns_bounds():
            self.bounds_ = tuple(np.asarray(result["bounds"]).T)
        return result["model"]

    def _learned(self, models: list[Mapping[str, float]]) -> tuple[Floats, Floats]:
        """Return coefficients of shape (k, p) and intercepts of shape (k,)."""
        names = feature_names(self.n_features_in_)
        coefficients = np.array([[model[name] for name in names] for model in models])
        return coefficients, np.array([model["intercept"] for model in models])

    def _clipped(self, X: Any) -> Floats:
        """Return features as `fit` reads them: within their bounds."""
        check_is_fitted(self)
        read = arrays.features(self, X, reset=False)
        # clipped to the same bounds as in `fit`, so that no feature is extrapolated
        return clip_to_bounds(read, *self.bounds_)


def _seed(random_state: Any) -> int | None:
    """Return None for the operating system's randomness, or a seed for a simulation."""
    if random_state is None:
        return None
    if isinstance(random_state, Integral):
        # a given seed is the same for each fit
        return int(random_state)
    # a generator moves on with each fit
    return int(check_random_state(random_state).randint(2**31 - 1))


# -----------------------------------------------------------------------------
# Which solver is expected to be best: a rule that reads public facts only, with its reason.


SOLVERS: dict[str, Any] = {
    "additive_model": learning.AdditiveModel,
    "adaops": learning.AdaOPS,
    "adassp": learning.AdaSSP,
    "boosted_ssp": learning.BoostedSSP,
    "noisy_gradient_descent": learning.NoisyGradientDescent,
    "noisy_sgd": learning.NoisySGD,
    "objective_perturbation": learning.ObjectivePerturbation,
    "ops": learning.OPS,
    "ssp": learning.SSP,
}
"""Learners by the names that the parameter ``solver`` accepts."""

REGRESSORS = (
    "boosted_ssp",
    "ssp",
    "adassp",
    "adaops",
    "ops",
    "noisy_gradient_descent",
    "noisy_sgd",
)
DESCENTS = ("noisy_gradient_descent", "noisy_sgd")
SHAPES = ("additive_model", "margin_boosting")
"""Those whose model is a shape function of each feature."""


def regression(solver: Any, *, epsilon: float, delta: float, rows: int | None) -> tuple[str, str]:
    """Return the solver for a target of numbers, and why."""
    return _choose(solver, recommended_line(epsilon, delta, rows), REGRESSORS)


def classification(
    solver: Any,
    allowed: Sequence[str],
    *,
    epsilon: float,
    delta: float,
    classes: int,
    features: int,
    rows: int | None,
    few: int | None,
) -> tuple[str, str]:
    """Return the solver for so many classes, of those that can minimize the loss, and why."""
    # public facts alone: `few` are rows over those of a unit, None where no constant is wanted
    curves = "additive_model" in allowed
    choice = recommended_classifier(classes, features, epsilon, delta, rows, curves=curves, few=few)
    if choice[0] not in (*allowed, "constant") and delta > 0:
        choice = "noisy_gradient_descent", "rounds over all rows suit a convex smooth loss"
    return _choose(solver, choice, allowed)


def _choose(solver: Any, choice: tuple[str, str], allowed: Sequence[str]) -> tuple[str, str]:
    """Return the solver that was named, or the recommended one, and the reason."""
    # a solver named by the user is taken without looking at the rule
    if solver in allowed:
        return solver, f"{solver}: asked for by name"
    if solver != "auto":
        raise ValueError(f"solver must be 'auto' or one of {', '.join(allowed)}; got {solver!r}")
    name, reason = choice
    if name not in (*allowed, "constant"):
        raise ValueError(
            f"none of {', '.join(allowed)} works at delta=0; pass a delta such as 1e-6"
        )
    return name, f"{name}: {reason}"


# -----------------------------------------------------------------------------
# Least squares.


DESCENT = {"loss": Squared()}
"""Parameters of gradient solvers."""


class PrivateRidge(RegressorMixin, PrivateLinear):  # type: ignore[misc]
    """Private linear regression with an intercept, whose ridge is chosen from the noise.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit. delta is a number, not a function of the number of rows, which
        is private; choose it far below one over the number of people.
    bounds
        Of the features: (low, high), each a number or one for each feature, chosen without looking
        at the data; or ``"private"``: learned with a tenth of the budget
        (`adaptive_dp.Standardised`). Needed to fit, and never assumed. What is outside is clipped,
        in `fit` and in `predict`. A row with a missing number is left out of `fit`; `predict` reads
        it as the point of its bounds closest to 0.
    bounds_y
        Of the target, (low, high), chosen without looking at the data too: what is outside is
        clipped. Needed to fit, and never assumed.
    neighbors
        ``"add_remove"``, ``"replace_one"`` or ``"zero_out"``.
    rows_per_unit
        The number of rows to which each of the ``units`` given to `fit` is bounded; 1 without them.
    solver
        ``"auto"``, ``"boosted_ssp"``, ``"ssp"``, ``"adassp"``, ``"adaops"``, ``"ops"``,
        ``"noisy_gradient_descent"`` or ``"noisy_sgd"``.
    options
        Parameters of the solver that is used, by name, such as ``{"norm": 2.0}`` of ``"ssp"``.
    rows
        About how many rows there are, if that is public. Where they are few for the budget,
        ``"auto"`` gives all of it to the mean; ``"boosted_ssp"`` need not release their number.
        Under ``"add_remove"`` the rows of X are not counted.
    random_state
        None for noise from the operating system. With a number the fit is a simulation: its
        certificate says so, and it is not for release.
    verbose
        Print which solver was chosen, and why.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateRidge
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateRidge(1.0, bounds=(-1, 1), bounds_y=(-1, 1), random_state=0)
    >>> model = model.fit(X, 0.5 * X[:, 0])
    >>> model.certificate_.epsilon <= 1.0
    True
    >>> bool(abs(model.coef_[0] - 0.5) < 0.2)
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: Any = None,
        bounds_y: tuple[float, float] | None = None,
        neighbors: str = "add_remove",
        rows_per_unit: int = 1,
        solver: str = "auto",
        options: Mapping[str, Any] | None = None,
        rows: int | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.bounds_y = bounds_y
        self.neighbors = neighbors
        self.rows_per_unit = rows_per_unit
        self.solver = solver
        self.options = options
        self.rows = rows
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # of the few rows of scikit-learn's checks
        return tags

    def fit(self, X: Any, y: Any, units: Any = None) -> PrivateRidge:
        """Return the model, fitted.

        Parameters
        ----------
        X
            Features, shape (n, p).
        y
            Numbers, shape (n,).
        units
            The unit of each row, shape (n,); None to protect single rows.
        """
        read, values = self._read(X, y)
        target = arrays.real_target(values)
        if self.bounds_y is None:
            raise ValueError(
                f"{type(self).__name__} needs bounds_y=(low, high), between which targets are "
                "expected, chosen without looking at the data: what is outside is clipped"
            )
        # the target's bounds are read as those of one feature
        (low,), (high,) = feature_bounds(self.bounds_y, 1, "bounds_y")
        table = self._declared({"y": (float(low), float(high))}, units)
        self._known_rows(len(read), units)
        plan = Pipeline(**self._solved(table, self._learner())).with_delta(self.delta)
        self._keep(self._run(plan, ArrayRows(read, {"y": target}, units)))
        return self

    def _learner(self) -> Any:
        """Return the learner that the solver's name stands for."""
        # learned bounds have a part of the budget, which a constant would not need
        known = None if self._learns_bounds() or self.options else self._rows_of_units()
        self.solver_, self.reason_ = regression(
            self.solver, epsilon=self.epsilon, delta=self.delta, rows=known
        )
        if self.solver_ == "constant":
            return self._constant("y")
        # the user's options come last and override these
        parameters: dict[str, Any] = dict(DESCENT) if self.solver_ in DESCENTS else {}
        # at delta 0 only Laplace noise has a certificate
        if self.solver_ == "ssp" and self.delta == 0:
            parameters["pure"] = True
        if self.solver_ == "boosted_ssp":
            parameters["rows"] = self._rows
        kind = SOLVERS[self.solver_]
        return kind(
            feature_names(self.n_features_in_), "y", **{**parameters, **(self.options or {})}
        )

    def _keep(self, model: Any) -> None:
        """Keep what was released."""
        # one model, so that shapes are (p,) and (): the single rows are unpacked
        (self.coef_,), (self.intercept_,) = self._learned([model])

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions, shape (n,)."""
        return np.asarray(self._clipped(X) @ self.coef_ + self.intercept_)


# -----------------------------------------------------------------------------
# The base of the classifiers: public classes, scores, decisions.


LABELS_READ = (
    "The set of labels in y is public: it was read from the private data, which no certificate "
    "covers."
)


class PrivateClassifier(ClassifierMixin, PrivateLinear):  # type: ignore[misc]
    """A private linear classifier: the class of the largest score is predicted.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit. delta is a number, not a function of the number of rows, which
        is private; choose it far below one over the number of people.
    bounds
        Of the features: (low, high), each a number or one for each feature, chosen without looking
        at the data; or ``"private"``: learned with a tenth of the budget
        (`adaptive_dp.Standardised`). Needed to fit, and never assumed. What is outside is clipped,
        in `fit` and when predicting. A row with a missing number is left out of `fit` (but by
        ``"additive_model"``, which has a bin for it); predictions read it as the point of its
        bounds closest to 0.
    classes
        The possible labels; rows with another are left out. None reads them from y, with a
        `PrivacyLeakWarning`: a label that only one person has reveals that person.
    neighbors
        ``"add_remove"``, ``"replace_one"`` or ``"zero_out"``.
    rows_per_unit
        The number of rows to which each of the ``units`` given to `fit` is bounded; 1 without them.
    solver
        ``"auto"``, ``"noisy_gradient_descent"``, ``"noisy_sgd"``, or of the logistic loss
        ``"objective_perturbation"`` and ``"additive_model"``.
    class_weight
        The weight of each class's rows in the sum of losses, 1 where none is given, such as
        ``{"rare": 50}``; ``"balanced"`` for all classes weighing the same, by their numbers of
        rows, which are released with a hundredth of the budget. The noise is that of the heaviest.
        ``"additive_model"`` has none.
    options
        Parameters of the solver that is used, by name, such as ``{"steps": 200}``.
    rows
        About how many rows there are, if that is public, for ``"auto"`` to choose by; under
        ``"add_remove"`` those of X are not counted, and without this it takes them for some 5,000.
    random_state
        None for noise from the operating system. With a number the fit is a simulation: its
        certificate says so, and it is not for release.
    verbose
        Print which solver was chosen, and why.
    """

    _allowed: tuple[str, ...] = DESCENTS
    """The solvers that can minimize the loss."""

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        neighbors: str = "add_remove",
        rows_per_unit: int = 1,
        solver: str = "auto",
        class_weight: Mapping[Any, float] | str | None = None,
        options: Mapping[str, Any] | None = None,
        rows: int | None = None,
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
        self.class_weight = class_weight
        self.options = options
        self.rows = rows
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
            The unit of each row, shape (n,); None to protect single rows.
        """
        read, labels = self._read(X, y)
        # classes come from the declaration; reading them from y is a leak, of which it warns
        self.classes_ = (
            self._declared_classes() if self.classes is not None else self._classes_of(y)
        )
        self._known_rows(len(read), units)
        allowed = self._allowed
        if self.solver == "auto" and (self._learns_bounds() or self.class_weight is not None):
            # bins need declared bounds, and weigh no rows
            allowed = tuple(name for name in allowed if name != "additive_model")
        self.solver_, self.reason_ = classification(
            self.solver,
            allowed,
            epsilon=self.epsilon,
            delta=self.delta,
            classes=len(self.classes_),
            features=self.n_features_in_,
            rows=self._rows,
            few=self._rows_of_units() if self._is_plain() else None,
        )
        # -1 for labels that are not among the classes: these rows are left out
        codes = class_codes(labels, self.classes_)
        targets = self._targets(codes)
        # only the public declarations of the targets; their values are passed to the run
        table = self._declared({name: declared for name, (declared, _) in targets.items()}, units)
        # one learner spends all of the budget; several are calibrated together in one plan
        if len(targets) == 1:
            (name,) = targets
            solved = self._solved(table, self._learner(name))
            plan = Pipeline(**{**solved, "model": {name: solved["model"]}}).with_delta(self.delta)
        elif self._learns_bounds():
            raise ValueError(
                f"{type(self).__name__} learns {len(targets)} classes one by one, for which bounds "
                "cannot be learned: give bounds=(low, high), or use PrivateLogisticRegression"
            )
        else:
            model = {name: table.solve(self._learner(name)) for name in targets}
            plan = Pipeline(model=model).calibrate(self.epsilon, self.delta)
        rows = ArrayRows(read, {name: values for name, (_, values) in targets.items()}, units)
        released = self._run(plan, rows)
        self._keep(list(released.values()))
        # a certificate cannot know that the classes were read from the data: it is said here
        if self.classes is None:
            self.assumptions_ = (*self.assumptions_, LABELS_READ)
        return self

    def _keep(self, models: list[Any]) -> None:
        """Keep what was released, by target, in the attributes of a fitted model."""
        if self.solver_ in SHAPES:
            (model,) = models
            self._keep_shapes(model)
            return
        if "intercept" not in models[0]:  # one learner of all classes
            models = [models[0][str(k)] for k in range(len(self.classes_))]
        self.coef_, self.intercept_ = self._learned(models)

    def _targets(self, codes: NDArray[np.int64]) -> dict[str, tuple[list[int], NDArray[np.int64]]]:
        """Return columns to learn: their categories and values."""
        count = len(self.classes_)
        # two classes need one score, and so does a learner of all classes at once
        if count == 2 or self._one_learner():
            return {"y": (list(range(count)), codes)}
        # one column for each class against the rest; -1 stays -1, and that row is left out
        return {f"y{k}": ([0, 1], np.where(codes < 0, -1, codes == k)) for k in range(count)}

    def _is_plain(self) -> bool:
        """Return whether a constant may take the place of a model: nothing of one was asked for."""
        return not (self._learns_bounds() or self.options or self.class_weight is not None)

    def _one_learner(self) -> bool:
        """Return whether one learner serves more than two classes."""
        # a multinomial loss reads classes; others split them by themselves
        if self.solver_ in ("constant", "objective_perturbation", *SHAPES):
            return True
        return self._loss(3).labels == "class"

    def _learner(self, target: str) -> Any:
        """Return the learner of a column of labels."""
        if self.solver_ == "constant":
            return self._constant(target)
        if self.solver_ == "additive_model":
            known, own = self._rows, {}
            # without a number of rows the learner's own rule says how many pairs there are
            if known:
                count = len(self.classes_)
                own = {"pairs": paired(self.n_features_in_, self.epsilon, known, count)}
            learner = self._additive_model(target, **own)
            if self.class_weight is not None:
                raise ValueError(
                    "an additive model has no class_weight; choose solver='objective_perturbation' "
                    "or 'noisy_gradient_descent'"
                )
            return learner
        parameters: dict[str, Any] = {"loss": self._loss(len(self.classes_)), "norm": 1.0}
        if self.solver_ in DESCENTS:
            parameters.update(self._descent())
        else:  # the learner knows what to do of several classes
            parameters["loss"] = self._loss(2)
        if self.class_weight is not None:
            parameters["class_weight"] = self._weights(target)
        # the user's options override what the loss suggests
        parameters.update(self.options or {})
        return SOLVERS[self.solver_](feature_names(self.n_features_in_), target, **parameters)

    def _weights(self, target: str) -> Mapping[int, float] | str:
        """Return the weights of a column's categories, which are places among the classes."""
        if isinstance(self.class_weight, str):
            return self.class_weight
        labels = self.classes_.tolist()
        given = self.class_weight
        if not isinstance(given, Mapping) or not set(given) <= set(labels):
            raise ValueError(
                f"class_weight must be 'balanced', or weights by class of {labels!r}; got {given!r}"
            )
        weights = {k: given.get(label, 1.0) for k, label in enumerate(labels)}
        if target == "y":
            return weights
        raise ValueError(
            f"{type(self).__name__} learns {len(labels)} classes one against the rest from columns "
            "of their own, where a class's weight has no place; pass class_weight='balanced', "
            "which balances each against the rest, or use PrivateLogisticRegression"
        )

    def _loss(self, classes: int) -> Loss:
        """Return the loss for so many classes."""
        raise NotImplementedError

    def _descent(self) -> dict[str, Any]:
        """Return the parameters of gradient solvers that suit the loss."""
        return {}

    def _declared_classes(self) -> NDArray[Any]:
        """Return the classes that were given, in order."""
        classes = np.unique(np.asarray(self.classes))
        sortable = classes.ndim == 1 and classes.dtype.kind in "biufUO"
        # np.unique sorts and removes duplicates: a shorter result means that labels were repeated
        if not sortable or len(classes) != len(self.classes or ()) or len(classes) < 2:
            raise ValueError(
                "classes must be at least two different labels, all str or all numbers; got "
                f"{self.classes!r}"
            )
        return classes

    def _classes_of(self, y: Any) -> NDArray[Any]:
        """Return the labels in y, in order: a leak, of which it warns."""
        warnings.warn(
            f"{type(self).__name__}: classes=None reads the set of labels from the private data, "
            "which the certificate does not cover; pass classes=[...]",
            PrivacyLeakWarning,
            stacklevel=3,
        )
        labels = np.asarray(y).reshape(-1)
        # refuses continuous targets, which are no labels
        check_classification_targets(labels)
        classes = np.unique(labels)
        if len(classes) < 2:
            raise ValueError(f"a classifier needs at least two classes, got {len(classes)} class")
        return classes

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores: shape (n,) of two classes, positive for the second; else (n, k)."""
        check_is_fitted(self)
        if self.solver_ in SHAPES:
            return self._shape_scores(X)
        scores = self._clipped(X) @ self.coef_.T + self.intercept_
        # of two classes there is one score, for the second
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return labels, shape (n,)."""
        scores = self.decision_function(X)
        # the sign of one score, or the largest of k
        index = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[index])


def class_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """Return the index of each label among the classes, -1 for a label that is not one of them.

    Raises
    ------
    ValueError
        If the type of the labels is not that of the classes.

    Examples
    --------
    >>> class_codes(np.array([3.0, 1.0, np.nan, 2.0]), np.array([1, 3]))
    array([ 1,  0, -1, -1])
    """
    strings = [array.dtype.kind in "UT" for array in (labels, classes)]
    # str never equals a number: silently all codes would be -1
    if "O" not in (labels.dtype.kind, classes.dtype.kind) and strings[0] != strings[1]:
        types = ["str" if is_string else "numbers" for is_string in strings]
        raise ValueError(f"y holds {types[0]}, but the classes are {types[1]}")
    if "O" in (labels.dtype.kind, classes.dtype.kind) or strings[0]:
        lookup = {value: k for k, value in enumerate(classes.tolist())}
        hashable = (str, int, float, bool)  # other types may run code of their own when compared
        objects = cells.objects(labels.tolist()).tolist()
        codes = [lookup.get(v, -1) if type(v) in hashable else -1 for v in objects]
        return np.array(codes, dtype=np.int64)
    # searchsorted may return the length for labels beyond the last class
    index = np.minimum(np.searchsorted(classes, labels), len(classes) - 1).astype(np.int64)
    # a label between two classes, and NaN, equal neither
    return np.where(classes[index] == labels, index, -1)


# -----------------------------------------------------------------------------
# Logistic regression.


class PrivateLogisticRegression(PrivateClassifier):
    """Private logistic regression with an intercept; for more than two classes, multinomial.

    Its parameters are those of `PrivateClassifier`. With ``"auto"`` the log odds are a sum of
    curves of the features where the budget is enough for that: ``solver_`` is then
    ``"additive_model"``, and ``shapes_`` takes the place of ``coef_``, as of
    `PrivateAdditiveClassifier`. Another solver that is named gives coefficients.

    Examples
    --------
    >>> from adaptive_dp.sklearn import PrivateLogisticRegression
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateLogisticRegression(
    ...     epsilon=1.0, bounds=(-1, 1), classes=["low", "high"], random_state=0
    ... )
    >>> model.fit(X, np.where(X[:, 0] > 0, "high", "low")).predict([[-0.9], [0.9]]).tolist()
    ['low', 'high']
    """

    _allowed = ("objective_perturbation", "additive_model", *DESCENTS)

    def _loss(self, classes: int) -> Loss:
        return Logistic() if classes == 2 else Multinomial(classes)

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return log odds: shape (n,) of two classes, positive for the second; else scores (n, k).

        Of coefficients they are those of rows as `fit` read them: features mapped from their bounds
        onto [-1, 1] (or [0, 1]), and rows, with the intercept's 1, shortened to norm 1.
        """
        scores = super().decision_function(X)
        if self.solver_ in ("additive_model", "constant"):
            return scores
        unit = standardised(self._clipped(X), *self.bounds_, centred=self._learns_bounds())
        # the norm with the intercept's 1, at least 1: `fit` divided the row by it
        return np.asarray((scores.T / np.sqrt(1 + (unit**2).sum(axis=1))).T)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the classes' probabilities, shape (n, k), by `decision_function`."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            # two classes: the score is the log odds of the second
            return np.stack([expit(-scores), expit(scores)], axis=1)
        own = (self.options or {}).get("loss", Logistic())
        # of another loss each class is learned against the rest
        if self.solver_ == "objective_perturbation" and not isinstance(own, Logistic):
            each = expit(scores)
            return np.asarray(each / each.sum(axis=1, keepdims=True))
        return np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the logarithms of `predict_proba`."""
        # a probability that underflows to 0 has the logarithm -inf
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))


# -----------------------------------------------------------------------------
# Additive models.


class PrivateAdditiveClassifier(PrivateClassifier):
    """A private additive model: a class by the sum of a shape function of each feature.

    After `fit` it has ``shapes_``, by feature: ``"edges"`` of bins, their ``"scores"``, the
    released counts ``"rows"``, and the score of what is ``"missing"``, which is a bin of its own;
    ``pairs_``, the tables of pairs of features, where there are any; and ``intercept_``. See
    `adaptive_dp.AdditiveModel`.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit.
    bounds, classes, neighbors, rows_per_unit, random_state, verbose
        As of `PrivateClassifier`.
    options
        Parameters of `adaptive_dp.AdditiveModel`, by name, such as ``{"steps": 20}``.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateAdditiveClassifier
    >>> X = np.linspace(-1, 1, 5000).reshape(-1, 1)
    >>> model = PrivateAdditiveClassifier(
    ...     epsilon=1.0, bounds=(-1, 1), classes=["in", "out"], random_state=0
    ... )
    >>> y = np.where(abs(X[:, 0]) < 0.5, "in", "out")
    >>> model.fit(X, y).predict([[-0.9], [0], [0.9]]).tolist()
    ['out', 'in', 'out']
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        neighbors: str = "add_remove",
        rows_per_unit: int = 1,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta=delta,
            bounds=bounds,
            classes=classes,
            neighbors=neighbors,
            rows_per_unit=rows_per_unit,
            solver=self._allowed[0],
            options=options,
            random_state=random_state,
            verbose=verbose,
        )

    _allowed: tuple[str, ...] = ("additive_model",)


class PrivateMarginClassifier(PrivateAdditiveClassifier):
    """Two classes by shape functions whose steps cost budget only where margins fail.

    For many features of which few matter. After `fit` it has ``shapes_``, ``intercept_``, and
    ``n_steps_``, the number of steps that were needed. See `adaptive_dp.MarginBoosting`.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit.
    bounds, classes, neighbors, rows_per_unit, random_state, verbose
        As of `PrivateClassifier`; there are two classes.
    options
        Parameters of `adaptive_dp.MarginBoosting`, by name, such as ``{"rounds": 10}``.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateMarginClassifier
    >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 20))
    >>> model = PrivateMarginClassifier(
    ...     epsilon=1.0, bounds=(-1, 1), classes=["in", "out"], random_state=0
    ... )
    >>> y = np.where(abs(X[:, 3]) < 0.5, "in", "out")
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    _allowed = ("margin_boosting",)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def _learner(self, target: str) -> Any:
        if len(self.classes_) > 2:
            raise ValueError(
                "Only binary classification is supported, and there are "
                f"{len(self.classes_)} classes: use PrivateAdditiveClassifier"
            )
        return self._additive_model(target, learning.MarginBoosting)

    def _keep(self, models: list[Any]) -> None:
        super()._keep(models)
        self.n_steps_ = int(models[0]["steps"])


class PrivateAdditiveRegressor(PrivateRidge):
    """A private additive model of a number: the sum of a shape function of each feature.

    After `fit` it has ``shapes_``, ``pairs_`` and ``intercept_``, as `PrivateAdditiveClassifier`
    has. See
    `adaptive_dp.AdditiveModel`.

    Parameters
    ----------
    epsilon, delta
        The budget of one fit.
    bounds, bounds_y, neighbors, rows_per_unit, random_state, verbose
        As of `PrivateRidge`.
    options
        Parameters of `adaptive_dp.AdditiveModel`, by name, such as ``{"steps": 20}``.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateAdditiveRegressor
    >>> X = np.linspace(-1, 1, 5000).reshape(-1, 1)
    >>> model = PrivateAdditiveRegressor(
    ...     epsilon=4.0, bounds=(-1, 1), bounds_y=(-1, 1), random_state=0
    ... )
    >>> (model.fit(X, X[:, 0] ** 2).predict([[-0.9], [0], [0.9]]).round(1) + 0.0).tolist()
    [0.8, 0.0, 0.8]
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float = 1e-6,
        bounds: Any = None,
        bounds_y: tuple[float, float] | None = None,
        neighbors: str = "add_remove",
        rows_per_unit: int = 1,
        options: Mapping[str, Any] | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            delta=delta,
            bounds=bounds,
            bounds_y=bounds_y,
            neighbors=neighbors,
            rows_per_unit=rows_per_unit,
            solver="additive_model",
            options=options,
            random_state=random_state,
            verbose=verbose,
        )

    def _learner(self) -> Any:
        self.solver_, self.reason_ = "additive_model", "the only one"
        return self._additive_model("y")

    def _keep(self, model: Any) -> None:
        self._keep_shapes(model)

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return predictions, shape (n,)."""
        check_is_fitted(self)
        return self._shape_scores(X)


# -----------------------------------------------------------------------------
# Linear support vector machines.


class PrivateLinearSVC(PrivateClassifier):
    """A private linear support vector machine with a smooth hinge.

    Several classes are learned one against the rest. Its parameters are those of
    `PrivateClassifier`; its solvers are the gradient solvers.

    Examples
    --------
    >>> import numpy as np
    >>> from adaptive_dp.sklearn import PrivateLinearSVC
    >>> X = np.linspace(-1, 1, 2000).reshape(-1, 1)
    >>> model = PrivateLinearSVC(
    ...     epsilon=1.0, bounds=(-1, 1), classes=["low", "high"], random_state=0
    ... )
    >>> model.fit(X, np.where(X[:, 0] > 0, "high", "low")).predict([[-0.9], [0.9]]).tolist()
    ['low', 'high']
    """

    def _loss(self, classes: int) -> Loss:
        return HuberHinge()

    def _descent(self) -> dict[str, Any]:
        return {"clip": 1.0}
