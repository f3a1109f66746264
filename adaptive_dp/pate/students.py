"""The student: a model trained on public rows and released answers, by post-processing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.handles import Handle, Released
from adaptive_dp.graph.loops import ancestors
from adaptive_dp.graph.operation import Operation, Visibility
from adaptive_dp.graph.registry import Function
from adaptive_dp.graph.values import as_tuple, number, strings
from adaptive_dp.noise.stream import Stream
from adaptive_dp.pate.ballots import BallotsSource
from adaptive_dp.pate.ensembles import Points, TeachersDomain, make_features, public_rows
from adaptive_dp.pate.model import (
    FAILURES,
    Predict,
    describe_model,
    fit_model,
    made_up_rows,
    predicted_positions,
    predictions,
    settings_parameter,
)
from adaptive_dp.queries import domains
from adaptive_dp.queries.domains import Column
from adaptive_dp.queries.labeled import open_handle

Array = NDArray[np.float64]

SEED = 20_170
"""The seed of the student's training: public, the same for all data."""


@frozen(eq=False, repr=False)
class Student:
    """A released classifier that was trained on answers.

    Parameters
    ----------
    model
        The name of the model.
    classes
        The target's categories.
    answers
        How many answers it was trained on.
    predictor
        A function from features to class positions; None where one class is always predicted:
        there were no answers, or of one class alone, or training failed.
    always
        The position of that class.
    failed
        The error that training raised; empty for none.
    features, norm, columns
        How rows in the data's own units are made into features.

    Examples
    --------
    >>> import numpy as np
    >>> Student("GaussianNB", ("no", "yes"), answers=0).predict(np.zeros((2, 1)))
    array(['no', 'no'], dtype='<U3')
    """

    model: str
    classes: tuple[Any, ...]
    answers: int
    predictor: Predict | None = None
    always: int = 0
    failed: str = ""
    features: tuple[str, ...] = ()
    norm: float | None = None
    columns: Mapping[str, Column] = field(factory=dict)

    def __repr__(self) -> str:
        name = self.model
        if self.predictor is None:
            name = f"always {self.classes[self.always]!r}"
        if self.failed:
            name += f", since training failed ({self.failed.partition(':')[0]})"
        return f"<student: {name}; {len(self.classes)} classes, {self.answers} answers>"

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the class of each row, one of the target's categories.

        Parameters
        ----------
        data
            A frame or a mapping of the features to columns, in the data's own units; or features
            as `Teachers.points` makes them, an array of shape (n, p). A row with a missing number
            has an answer too: the number counts as the bound next to 0.
        """
        labels: NDArray[Any] = np.asarray(self.classes)[self.positions(data)]
        return labels

    def positions(self, data: Any) -> NDArray[np.int64]:
        """Return the position of each row's class, shape (n,)."""
        x = self._features(data)
        # constant: no model was trained
        if self.predictor is None:
            return np.full(len(x), self.always, dtype=np.int64)
        positions = predicted_positions(predictions(self.predictor, x), len(x), len(self.classes))
        if positions is None:
            raise RunError(f"the student's model {self.model} gave no class position for each row")
        return positions

    def probabilities(self, data: Any) -> Array:
        """Return the probability of each class for each row, shape (n, classes).

        A model without ``predict_proba`` gives probability 1 to the class that it predicts.
        """
        x = self._features(data)
        probabilities = np.zeros((len(x), len(self.classes)))
        # a classifier's `predict` is a bound method, and the classifier its owner
        classifier: Any = getattr(self.predictor, "__self__", None)
        if hasattr(classifier, "predict_proba"):
            # columns of classes that training has seen; the others stay 0
            known_classes = np.asarray(classifier.classes_).astype(np.int64)
            probabilities[:, known_classes] = classifier.predict_proba(x)
        else:
            probabilities[np.arange(len(x)), self.positions(x)] = 1
        return probabilities

    def _features(self, data: Any) -> Array:
        # a plain array holds features already; a structured one has columns
        if isinstance(data, np.ndarray) and data.dtype.names is None:
            if not (data.ndim == 2 and data.dtype.kind in "biuf"):
                raise DeclarationError(
                    f"features must be numbers of shape (rows, features), got {data.dtype} of "
                    f"shape {data.shape}"
                )
            return data.astype(np.float64)
        if not self.features:
            raise DeclarationError(
                "this student was trained on points whose columns are not known; pass features, "
                "an array of shape (rows, features)"
            )
        rows = public_rows(data, self.columns)
        return make_features(rows, self.features, self.norm, self.columns)


@frozen
class Learn(Operation):
    """Train a classifier on points that have answers: post-processing.

    Parameters
    ----------
    model
        The model's class or function.
    classes
        The target's categories.
    settings
        Keyword arguments of the model.
    unlabeled
        Whether training gets all points, those without an answer with class -1.
    features, norm, columns
        How the points' features are computed; empty where that is not known.
    """

    kind: ClassVar[str] = "student"
    visibility: ClassVar[Visibility] = "released"

    model: Function
    classes: tuple[Any, ...] = field(converter=as_tuple)
    settings: Mapping[str, Any] = settings_parameter("a student's model")
    unlabeled: bool = False
    features: tuple[str, ...] = field(default=(), converter=strings)
    norm: float | None = field(default=None, converter=number)
    columns: Mapping[str, Column] = field(factory=dict, converter=domains.columns)

    def __attrs_post_init__(self) -> None:
        if not self.classes:
            raise DeclarationError("a student needs at least one class, got none")
        if not isinstance(self.unlabeled, bool):
            raise DeclarationError(
                f"a student's unlabeled must be True or False, got {self.unlabeled!r}"
            )

    def label(self) -> str:
        """Return the label."""
        return "student"

    def detail(self) -> str:
        """Return the model."""
        name = self.model.name.partition(":")[2]
        return f"{name}, semi-supervised" if self.unlabeled else name

    def domain(self, inputs: Sequence[Any]) -> None:
        """Check that there are points and answers."""
        if len(inputs) != 2:
            raise DeclarationError("a student reads points, and answers on them")

    def rehearse(self, inputs: Sequence[Any]) -> None:
        """Train on made-up rows, so that errors appear before any budget is spent.

        Raises
        ------
        RunError
            If the model cannot be trained, or gives no classes.
        """
        # without a known width any few features will do
        x, y = made_up_rows(len(self.classes), inputs[0].width if inputs[0] else 3)
        if self.unlabeled:
            # half of the rows without an answer, as a semi-supervised model will see them
            y[len(y) // 2 :] = -1
        trained = self._train(x, y)
        if trained.failed:
            raise RunError(
                f"the student's model {self.model.name} cannot be trained on made-up rows: "
                f"{trained.failed}"
            )

    def run(self, inputs: Sequence[Any], stream: Stream) -> Student:
        """Return the student: a constant if training fails, since the budget is spent already."""
        points, answers = np.array(inputs[0], dtype=np.float64), np.asarray(inputs[1])
        fits = points.ndim == 2 and answers.shape == points.shape[:1]
        if not fits or answers.dtype.kind not in "biuf":
            raise RunError(
                "a student needs points of shape (n, features) and n answers, class positions or "
                f"-1; got points of shape {points.shape} and answers of shape {answers.shape}"
            )
        # NaN, -1 and positions of no class are "no answer"; comparisons with NaN are False
        is_answer = (answers >= 0) & (answers < len(self.classes))
        return self._train(points, np.where(is_answer, answers, -1).astype(np.int64))

    def _train(self, x: Array, y: NDArray[np.int64]) -> Student:
        has_answer = y >= 0
        counts = np.bincount(y[has_answer], minlength=len(self.classes))
        name = self.model.name.partition(":")[2]
        predictor, failed = None, ""
        # fewer than two classes among the answers need no model
        if np.count_nonzero(counts) > 1:
            # a semi-supervised model sees all points, others those with an answer
            used = np.ones(len(y), bool) if self.unlabeled else has_answer
            try:
                with warnings.catch_warnings(), np.errstate(all="ignore"):
                    warnings.simplefilter("ignore")
                    predictor = fit_model(
                        self.model.resolve(), self.settings, x[used], y[used], SEED
                    )
                    # one row shows whether predictions are class positions
                    first = predictions(predictor, x[:1])
                    if predicted_positions(first, 1, len(self.classes)) is None:
                        predictor, failed = None, "it gives no class position for each row"
            # answers are released, so their error may be shown; the budget is spent, so the run
            # goes on
            except FAILURES as error:
                predictor, failed = None, f"{type(error).__name__}: {error}"
        return Student(
            name,
            self.classes,
            int(has_answer.sum()),
            predictor,
            # the class of most answers, the first where there are none
            int(counts.argmax()),
            failed,
            self.features,
            self.norm,
            self.columns,
        )


def student(
    points: Released[Any],
    labels: Released[Any],
    model: Any,
    *,
    unlabeled: bool = False,
    **parameters: Any,
) -> Released[Student]:
    """Return a classifier trained on public points and released answers: post-processing.

    Its value is a `Student`, whose ``predict`` takes rows in the data's own units. Without answers,
    or with answers of one class alone, it always predicts the first class, or that class.

    Parameters
    ----------
    points
        Rows of shape (n, features): from `Teachers.points`, or computed from such.
    labels
        A class position for each, -1 for none: the release of an aggregator, or the result of
        `passive` or `active`.
    model
        As `adaptive_dp.pate.teachers` takes it.
    unlabeled
        Also give it the points without an answer, as of class -1: for scikit-learn's
        ``LabelSpreading``, ``LabelPropagation``, ``SelfTrainingClassifier`` and their like.
    parameters
        Of the model.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"x": (0, 1), "y": ["no", "yes"]})
    >>> bayes = "sklearn.naive_bayes:GaussianNB"
    >>> teachers = dp.pate.teachers(people, ["x"], "y", bayes, count=10)
    >>> pool = teachers.points("pool", 100)
    >>> labels = teachers.votes(pool).release(dp.pate.GNMax(sigma=4))
    >>> dp.pate.student(pool, labels, bayes)
    <released student GaussianNB>
    """
    point_handle = open_handle("student: points", points)
    label_handle = open_handle("student: labels", labels)
    function, settings = describe_model(model, parameters)
    # the points' own source has how features are made; other points come without it
    source = next(
        (h.operation for h in ancestors(point_handle) if isinstance(h.operation, Points)), None
    )
    operation = Learn(
        function,
        label_classes(label_handle),
        settings,
        unlabeled,
        source.features if source else (),
        source.norm if source else None,
        source.columns if source else {},
    )
    return Released(operation, (point_handle, label_handle))


def label_classes(labels: Handle) -> tuple[Any, ...]:
    """Return the classes of answers: the categories of the teachers' target, or positions."""
    all_classes = {
        h.domain.classes for h in ancestors(labels) if isinstance(h.domain, TeachersDomain)
    }
    sources = [h.operation for h in ancestors(labels) if isinstance(h.operation, BallotsSource)]
    # ballots from outside have no names of classes, so their positions serve
    all_classes |= {tuple(range(source.classes)) for source in sources}
    # teachers with different targets would give positions of different classes
    if len(all_classes) != 1:
        raise DeclarationError(
            "a student needs answers of teachers with the same classes; these "
            f"come from {'teachers of different classes' if all_classes else 'no votes'}"
        )
    return all_classes.pop()
