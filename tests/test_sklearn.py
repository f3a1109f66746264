"""Estimators for scikit-learn: its own checks, what they spend, and what they must not tell."""

from __future__ import annotations

import io
import pickle
import warnings
from contextlib import redirect_stdout
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn (the sklearn extra)")

from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

import adaptive_dp as dp
from adaptive_dp.sklearn import (
    BoundedScaler,
    PrivacyLeakWarning,
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMarginClassifier,
    PrivateRidge,
    RepeatedFitWarning,
)
from adaptive_dp.sklearn.estimators import SOLVERS

DESCENT: dict[str, Any] = {"solver": "noisy_gradient_descent", "options": {"steps": 4}}
FEW = {**DESCENT, "classes": [0, 1], "random_state": 0}


def blobs(n: int, classes: int, seed: int = 0) -> tuple[Any, Any]:
    """Rows around corners of the square, in [-1, 1]."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.6, 0.6], [-0.6, -0.6], [0.6, -0.6]])[:classes]
    y = rng.integers(0, classes, n)
    return np.clip(centres[y] + 0.25 * rng.normal(size=(n, 2)), -1, 1), y


def line(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.clip(X @ [0.5, -0.3] + 0.1 + 0.05 * rng.normal(size=n), -1, 1)


@pytest.mark.parametrize(
    "estimator",
    [
        BoundedScaler(bounds=(-1, 1)),
        PrivateRidge(random_state=1, bounds_y=(-1, 1), bounds=(-1, 1)),
        PrivateRidge(bounds=(-100, 100), bounds_y=(-200, 200), random_state=1),
        PrivateLogisticRegression(**DESCENT, random_state=1, bounds=(-1, 1)),
        PrivateAdditiveClassifier(options={"steps": 2}, random_state=1, bounds=(-1, 1)),
        PrivateAdditiveRegressor(
            bounds_y=(-200, 200), options={"steps": 2}, random_state=1, bounds=(-1, 1)
        ),
        pytest.param(
            PrivateLinearSVC(**DESCENT, random_state=1, bounds=(-1, 1)), marks=pytest.mark.slow
        ),
        pytest.param(
            PrivateMarginClassifier(options={"rounds": 1}, random_state=1, bounds=(-1, 1)),
            marks=pytest.mark.slow,  # its noise is solved on distributions of the privacy loss
        ),
    ],
    ids=lambda e: type(e).__name__,
)
def test_scikit_learns_own_checks(estimator: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(estimator, on_skip=None, on_fail=None)
    failures = [
        (row["check_name"], row["exception"]) for row in checks if row["status"] == "failed"
    ]
    assert not failures
    skipped = {row["check_name"] for row in checks if row["status"] == "skipped"}
    assert skipped <= {"check_array_api_input"}


def test_margins_find_the_feature_that_matters() -> None:
    """As of two classes alone; and its cost is all of the budget."""
    X = np.random.default_rng(0).uniform(-1, 1, (6_000, 30))
    y = np.where(abs(X[:, 7]) < 0.5, "in", "out")
    model = PrivateMarginClassifier(1.0, bounds=(-1, 1), classes=["in", "out"], random_state=3)
    assert model.fit(X[:5_000], y[:5_000]).score(X[5_000:], y[5_000:]) > 0.9
    assert 0.995 < model.certificate_.epsilon <= 1.0
    assert 1 <= model.n_steps_ <= 20
    sizes = [np.ptp(shape["scores"]) for shape in model.shapes_.values()]
    assert int(np.argmax(sizes)) == 7
    several = PrivateMarginClassifier(1.0, bounds=(-1, 1), classes=["in", "out", "by"])
    with pytest.raises(ValueError, match="3 classes"):
        several.fit(X, y)


def test_pairs_have_the_features_own_names() -> None:
    pandas = pytest.importorskip("pandas")
    draw = np.random.default_rng(0)
    frame = pandas.DataFrame(
        draw.uniform(-1, 1, (6_000, 4)), columns=["one", "two", "three", "four"]
    )
    y = np.where(frame["one"] * frame["four"] > 0, 0.5, -0.5)
    model = PrivateAdditiveRegressor(8.0, bounds=(-1, 1), bounds_y=(-1, 1), random_state=0)
    assert model.fit(frame[:5_000], y[:5_000]).score(frame[5_000:], y[5_000:]) > 0.7
    assert ["one", "four"] in [pair["features"] for pair in model.pairs_]


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one", "zero_out"])
@pytest.mark.parametrize("kind", [PrivateRidge, PrivateLogisticRegression, PrivateLinearSVC])
def test_a_fit_costs_at_most_its_budget(kind: Any, neighbors: str) -> None:
    X, y = blobs(50, 3)
    model = kind(0.7, delta=1e-7, neighbors=neighbors, random_state=0, bounds=(-1, 1))
    declared = {"bounds_y": (-1, 1)} if kind is PrivateRidge else {"classes": [0, 1, 2], **DESCENT}
    model.set_params(**declared)
    certificate = model.fit(X, y).certificate_
    assert 0.69 < certificate.epsilon <= 0.7
    assert certificate.delta == 1e-7
    assert certificate.protects[0].neighbors == neighbors
    assert dp.verify(certificate).holds
    assert model.plan_.fingerprint == certificate.fingerprint
    assert not certificate.randomness.release


def test_secure_noise_is_for_release() -> None:
    # so many rows that the noise does not drown the slope: of few, two fits may both be 0
    X, y = line(5000)
    first, second = (PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y) for _ in range(2))
    assert first.certificate_.randomness.release
    assert (first.coef_ != second.coef_).all()


@pytest.mark.parametrize(
    "solver", sorted({*SOLVERS} - {"objective_perturbation", "additive_model"})
)
def test_every_regression_solver_finds_the_line(solver: str) -> None:
    """At epsilon = 100 all are near least squares, which scikit-learn computes."""
    X, y = line(4000)
    options = {"sampling_rate": 0.2, "steps": 60} if solver == "noisy_sgd" else None
    model = PrivateRidge(
        100.0, solver=solver, options=options, random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)
    ).fit(X, y)
    exact = Ridge(alpha=0).fit(X, y)
    assert model.solver_ == solver
    assert model.certificate_.epsilon <= 100
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.1)
    assert model.intercept_ == pytest.approx(exact.intercept_, abs=0.1)


def test_coefficients_are_in_the_datas_units() -> None:
    """Bounds that differ by feature, some of them 0, change nothing but the noise."""
    X, y = line(4000)
    low, high = np.array([0.0, 100.0]), np.array([10.0, 300.0])
    wide = low + (X + 1) / 2 * (high - low)
    model = PrivateRidge(100.0, bounds=(low, high), bounds_y=(-50, 50), random_state=0)
    model.fit(wide, 50 * y)
    exact = Ridge(alpha=0).fit(wide, 50 * y)
    np.testing.assert_allclose(model.coef_ * (high - low), exact.coef_ * (high - low), atol=2)
    np.testing.assert_allclose(model.predict(wide), exact.predict(wide), atol=3)
    outside = model.predict([[1e9, -1e9], [np.nan, np.inf]])
    np.testing.assert_array_equal(outside, model.predict([[10, 100], [0, 300]]))


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateLinearSVC])
@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
def test_classes_are_distinguished(kind: Any, classes: list[str]) -> None:
    """Blobs that a plain logistic regression tells apart nearly always."""
    X, y = blobs(3000, len(classes))
    model = kind(1.0, classes=classes, random_state=0, bounds=(-1, 1)).fit(X, np.array(classes)[y])
    plain = LogisticRegression().fit(X, y).score(X, y)
    # over seeds the additive model's score varies by .015
    assert model.score(X, np.array(classes)[y]) > plain - 0.05
    assert model.classes_.tolist() == classes
    if model.solver_ != "additive_model":
        assert model.coef_.shape == (1 if len(classes) == 2 else 3, 2)


@pytest.mark.parametrize("classes", [["no", "yes"], ["a", "b", "c"]])
def test_an_additive_model_sees_what_no_line_does(classes: list[str]) -> None:
    """Rings: classes by the distance from 0, with missing numbers of the last class alone."""
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (4000, 2))
    y = np.minimum((abs(X[:, 0]) * len(classes)).astype(int), len(classes) - 1)
    X[(y == len(classes) - 1) & (X[:, 0] > 0), 0] = np.nan
    model = PrivateAdditiveClassifier(8.0, classes=classes, random_state=0, bounds=(-1, 1))
    model.fit(X, np.array(classes)[y])
    assert model.certificate_.epsilon <= 8.0
    assert model.score(X, np.array(classes)[y]) > 0.8
    assert model.predict([[np.nan, 0.0]]).tolist() == [classes[-1]]
    assert list(model.shapes_) == ["x0", "x1"]
    assert len(model.shapes_["x0"]["edges"]) == len(model.shapes_["x0"]["scores"]) + 1


def test_an_additive_model_of_a_number_sees_what_no_line_does() -> None:
    rng = np.random.default_rng(4)
    X = rng.uniform(-1, 1, (5000, 2))
    y = np.cos(3 * X[:, 0]) + 0.1 * rng.normal(size=5000)
    model = PrivateAdditiveRegressor(2.0, bounds=(-1, 1), bounds_y=(-2, 2), random_state=0)
    model.fit(X, y)
    assert 1.98 <= model.certificate_.epsilon <= 2.0
    assert model.score(X, y) > 0.9
    assert list(model.shapes_) == ["x0", "x1"]
    with pytest.raises(ValueError, match="PrivateAdditiveRegressor needs bounds_y"):
        PrivateAdditiveRegressor(2.0, bounds=(-1, 1), random_state=0).fit(X, y)


@pytest.mark.parametrize("count", [2, 3])
def test_probabilities_are_those_of_rows_as_they_are_learned(count: int) -> None:
    X, y = blobs(3000, count)
    bounds = ([0, -1], [2, 1])
    model = PrivateLogisticRegression(
        50.0, bounds=bounds, classes=range(count), random_state=0, solver="noisy_gradient_descent"
    ).fit(X + np.array([1, 0]), y)
    row = np.array([1.5, 0.25])
    scaled = np.array([1, 1.5 / 2, 0.25])  # a bound of 0 is kept
    scores = (model.coef_ @ row + model.intercept_) / np.linalg.norm(scaled)
    scores = np.array([0, scores[0]]) if count == 2 else scores
    expected = np.exp(scores) / np.exp(scores).sum()
    np.testing.assert_allclose(model.predict_proba([row])[0], expected, rtol=1e-9)


def test_only_learned_classes_are_warned_of_and_assumed() -> None:
    X, y = blobs(100, 2)
    given = PrivateLogisticRegression(**FEW, bounds=(-1, 1)).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="classes=None"):
        learned = PrivateLogisticRegression(**{**FEW, "classes": None}, bounds=(-1, 1)).fit(X, y)
    np.testing.assert_array_equal(given.coef_, learned.coef_)
    assert len(learned.assumptions_) == len(given.assumptions_) + 1
    assert "set of labels" in learned.assumptions_[-1]
    assert set(given.certificate_.assumptions) < set(given.assumptions_)


def test_labels_that_are_no_class_are_left_out() -> None:
    """Whatever they are, alone or all: with classes given no label is refused."""
    X, y = blobs(200, 2)
    odd = [np.nan, np.inf, 0.5, 7, -1, 2, 3, 1e300, 1.5]
    numbers = np.concatenate([y, odd])
    same = np.concatenate([y.astype(object), odd])
    words: list[Any] = ["0", "1", None, float("nan"), 9, 1 + 0j, b"", "", -0.5]
    strings = np.concatenate([y.astype(object), np.array(words, dtype=object)])
    for rest in (np.ones((9, 2)), np.full((9, 2), np.nan)):
        fits = [
            PrivateLogisticRegression(**FEW, bounds=(-1, 1)).fit(np.concatenate([X, rest]), labels)
            for labels in (numbers, same, same.tolist(), strings)
        ]
        for fit in fits[1:]:
            np.testing.assert_array_equal(fit.coef_, fits[0].coef_)
    # one class alone, or none
    PrivateLogisticRegression(**FEW, bounds=(-1, 1)).fit(X, np.ones(200))
    PrivateLogisticRegression(**FEW, bounds=(-1, 1)).fit(X, np.full(200, np.nan))


def secret_rows() -> list[tuple[str, Any, Any]]:
    X, y = blobs(12, 2)
    names: Any = np.array([f"secret{i}" for i in range(12)], dtype=object)
    mixed = X.astype(object)
    mixed[0, 0] = {"secret7": 1}
    words: Any = [["secret1", "secret2"]] * 12
    return [
        ("one dimension", 77.125 + X[:, 0], y),
        ("another length", X, y[:-1]),
        ("a dict", mixed, y),
        ("strings", np.array(words), y),
        ("no features", X[:, :0], y),
        ("ragged", [[77.125], [1.0, 2.0]] * 6, y),
        ("a target of two dimensions", X, X + 77.125),
        ("complex", X + 77.125j, y),
        ("a complex target", X, y + 77.125j),
        ("labels of another type", X, names.astype(str)),
    ]


@pytest.mark.parametrize("case", secret_rows(), ids=lambda case: case[0])
@pytest.mark.parametrize("kind", [PrivateRidge, PrivateLogisticRegression])
def test_what_is_refused_tells_nothing(kind: Any, case: tuple[str, Any, Any]) -> None:
    """No value and no number of rows is in a message."""
    name, X, y = case
    model = kind(random_state=0, bounds=(-1, 1))
    if kind is PrivateLogisticRegression:
        model.set_params(classes=[0, 1])
    if name == "labels of another type" and kind is PrivateRidge:
        y = y.astype(object).astype(str)
    with pytest.raises((ValueError, TypeError)) as caught:
        model.fit(X, y)
    message = str(caught.value)
    assert "secret" not in message
    assert "77" not in message
    assert "12" not in message
    assert "11" not in message


def test_no_single_row_is_refused() -> None:
    """A row of odd cells is accepted among any others: a refusal would reveal that it is there."""
    X, y = line(30)
    for odd in (np.nan, np.inf, -np.inf, 1e308, -0.0):
        Xs, ys = X.copy(), y.copy()
        Xs[3], ys[4] = odd, odd
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(Xs, ys)
    for cell in ("word", None, float("nan"), 10**400, True, b"x"):
        Xo, yo = X.astype(object), y.astype(object)
        Xo[3, 0], yo[4] = cell, cell
        array = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(Xo, yo).coef_
        lists = (
            PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1))
            .fit(Xo.tolist(), yo.tolist())
            .coef_
        )
        np.testing.assert_array_equal(array, lists)
    missing = X.copy()
    missing[3] = np.nan
    np.testing.assert_array_equal(
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(missing, y).coef_,
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1))
        .fit(np.delete(X, 3, axis=0), np.delete(y, 3))
        .coef_,
    )


def test_frames_are_read() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = line(40)
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1]})
    plain = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)
    model = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(
        frame, pandas.Series(y)
    )
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    gaps = pandas.DataFrame({"a": pandas.array([1, None] * 20, dtype="Int64"), "b": X[:, 1]})
    there = np.column_stack([np.ones(20), X[::2, 1]])
    np.testing.assert_array_equal(
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(gaps, y).coef_,
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(there, y[::2]).coef_,
    )


def test_people_of_several_rows_are_protected_with_all_rows() -> None:
    X, y = line(60)
    people = np.repeat([f"p{i}" for i in range(15)], 4)
    model = PrivateRidge(rows_per_unit=2, random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(
        X, y, units=people
    )
    (protected,) = model.certificate_.protects
    assert (protected.unit, protected.rows_per_unit) == ("unit", 2)
    selected = np.arange(60) % 4 < 2
    same = PrivateRidge(rows_per_unit=2, random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(
        X[selected], y[selected], units=people[selected]
    )
    np.testing.assert_array_equal(model.coef_, same.coef_)
    with pytest.raises(dp.DataError, match="'rows'"):
        PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y, units=people[:-1])
    with pytest.raises(dp.DeclarationError, match="rows_per_unit"):
        PrivateRidge(rows_per_unit=2, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)


def test_the_solver_is_chosen_by_public_facts_and_says_why() -> None:
    X, y = line(40)
    out = io.StringIO()
    with redirect_stdout(out):
        model = PrivateRidge(random_state=0, verbose=True, bounds_y=(-1, 1), bounds=(-1, 1)).fit(
            X, y
        )
    assert out.getvalue() == model.reason_ + "\n"
    assert model.reason_.startswith(f"{model.solver_}: ")
    other = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X[:1], y[:1])
    assert other.reason_ == model.reason_
    pure = PrivateRidge(delta=0, random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)
    assert pure.certificate_.delta == 0
    assert pure.certificate_.epsilon <= 1
    assert "pure" in pure.reason_
    for rows, count, solver in [
        (500, 4, "noisy_gradient_descent"),
        (500, 2, "noisy_gradient_descent"),
        (50_000, 4, "additive_model"),
        (None, 2, "additive_model"),
    ]:
        auto = PrivateLogisticRegression(
            classes=range(count), rows=rows, random_state=0, bounds=(-1, 1)
        )
        assert auto.fit(X, y > 0).solver_ == solver
    for more in ({"bounds": "private"}, {"bounds": (-1, 1), "class_weight": "balanced"}):
        auto = PrivateLogisticRegression(classes=[0, 1], rows=50_000, random_state=0, **more)
        assert auto.fit(X, y > 0).solver_ == "noisy_gradient_descent"
        with pytest.raises(ValueError, match=r"bounds=|class_weight"):
            auto.set_params(solver="additive_model").fit(X, y > 0)
    # the number of rows is public where rows are exchanged, and then counts
    exchanged = PrivateLogisticRegression(
        classes=[0, 1], neighbors="replace_one", random_state=0, bounds=(-1, 1)
    )
    assert exchanged.fit(X, y > 0).solver_ == "constant"
    with pytest.raises(ValueError, match=r"\bsolver\b.*'auto'"):
        PrivateRidge(solver="lbfgs", bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)
    with pytest.raises(ValueError, match="delta=0"):
        PrivateLinearSVC(delta=0, classes=[0, 1], bounds=(-1, 1)).fit(X, y > 0)


@pytest.mark.parametrize("bounds", [None, 3, (1, -1), (0, np.nan), ([0, 0, 0], 1), "ab", (0, 1, 2)])
def test_bounds_that_are_none_are_refused(bounds: Any) -> None:
    X, y = line(10)
    with pytest.raises(ValueError, match=r"\bbounds\b"):
        PrivateRidge(bounds=bounds, bounds_y=(-1, 1)).fit(X, y)


@pytest.mark.parametrize("classes", [[0], [0, 0], [[0, 1], [2, 3]], []])
def test_classes_that_are_none_are_refused(classes: Any) -> None:
    X, y = blobs(10, 2)
    with pytest.raises(ValueError, match="class"):
        PrivateLogisticRegression(classes=classes, bounds=(-1, 1)).fit(X, y)


def test_weights_are_refused() -> None:
    X, y = line(10)
    with pytest.raises(TypeError, match="sample_weight"):
        PrivateRidge(bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y, sample_weight=np.ones(10))


def test_fits_of_one_family_are_warned_of() -> None:
    X, y = line(40)
    model = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1))
    model.fit(X, y)
    for again in (model, clone(model), clone(clone(model))):
        with pytest.warns(RepeatedFitWarning):
            again.fit(X, y)
    PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)  # of another family
    search = GridSearchCV(
        PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)),
        {"epsilon": [0.5, 50.0]},
        cv=2,
    )
    with pytest.warns(RepeatedFitWarning):
        search.fit(*line(400))
    assert search.best_params_ == {"epsilon": 50.0}
    assert search.best_estimator_.certificate_.epsilon <= 50


def test_a_model_can_be_stored() -> None:
    X, y = line(40)
    model = PrivateRidge(random_state=0, bounds_y=(-1, 1), bounds=(-1, 1)).fit(X, y)
    read = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(read.predict(X), model.predict(X))
    assert dp.verify(read.certificate_).holds
    assert repr(model.plan_) == repr(read.plan_)


def test_bounds_of_the_target_are_never_assumed():
    with pytest.raises(ValueError, match="needs bounds_y"):
        PrivateRidge(bounds=(-1, 1)).fit(np.zeros((5, 1)), np.arange(5.0))


# --- bounds that are not given, and those that are learned


@pytest.mark.parametrize(
    "kind",
    [PrivateRidge, PrivateLogisticRegression, PrivateLinearSVC, PrivateAdditiveClassifier],
)
def test_bounds_are_never_assumed(kind: Any) -> None:
    X, y = blobs(50, 2)
    declared = {"bounds_y": (0, 1)} if kind is PrivateRidge else {"classes": [0, 1]}
    model = kind(random_state=0, **declared)
    with pytest.raises(ValueError, match="bounds"):
        model.fit(X, y)
    assert not hasattr(model, "certificate_")
    with pytest.raises(ValueError, match="bounds"):
        BoundedScaler().fit_transform(X)


@pytest.mark.parametrize("kind", [PrivateRidge, PrivateLogisticRegression, PrivateLinearSVC])
def test_bounds_are_learned_with_a_share_of_the_budget(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(9, 0.3, 8000), rng.uniform(-0.02, 0.01, 8000)])
    score = X[:, 0] / 8000 + 50 * X[:, 1]
    y = score if kind is PrivateRidge else np.where(score > 0.75, "high", "low")
    declared = {"bounds_y": (-2, 5)} if kind is PrivateRidge else {"classes": ["low", "high"]}
    model = kind(1.0, bounds="private", random_state=0, **declared).fit(X, y)
    assert 0.99 < model.certificate_.epsilon <= 1.0
    assert "histogram" in str(model.plan_.graph.nodes(data=True))
    low, high = model.bounds_
    assert (low <= np.quantile(X, 0.05, axis=0)).all()
    assert (high >= np.quantile(X, 0.95, axis=0)).all()
    assert (high - low <= 8 * np.ptp(X, axis=0)).all()
    assert model.score(X, y) > 0.85
    if kind is PrivateLogisticRegression:
        sure = model.predict_proba(X).max(axis=1)
        assert ((sure > 0.5) & (sure <= 1)).all()


def test_a_rare_class_is_predicted_with_weights() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (10_000, 2))
    score = X.sum(axis=1) + 0.1 * rng.logistic(size=10_000)
    y = np.where(score > np.quantile(score, 0.99), "rare", "usual")
    for kind in (PrivateLogisticRegression, PrivateLinearSVC):
        for weight, finds in ((None, False), ("balanced", True), ({"rare": 50}, True)):
            model = kind(bounds=(-1, 1), classes=["rare", "usual"], class_weight=weight)
            found = model.set_params(random_state=0).fit(X, y).predict(X[y == "rare"])
            assert ((found == "rare").mean() > 0.7) == finds
            assert 0.995 <= model.certificate_.epsilon <= 1
        with pytest.raises(ValueError, match="class_weight"):
            model.set_params(class_weight={"never": 2}).fit(X, y)


def test_few_rows_that_are_public_have_one_answer_with_all_of_the_budget() -> None:
    draw = np.random.default_rng(0)
    X = draw.uniform(-1, 1, (60, 3))
    y = np.where(np.arange(60) < 50, "most", "few")
    few = {"epsilon": 0.5, "bounds": (-1, 1), "random_state": 0}
    for model in (
        PrivateLogisticRegression(classes=["few", "most"], rows=60, **few),
        PrivateLinearSVC(classes=["few", "most"], neighbors="replace_one", **few),
        PrivateLogisticRegression(classes=["a", "few", "most"], rows=60, **few),
        PrivateRidge(bounds_y=(0, 2), rows=60, **few),
    ):
        target = np.full(60, 1.5) if isinstance(model, PrivateRidge) else y
        model.fit(X, target)
        assert model.solver_ == "constant"
        assert "60 rows" in model.reason_
        assert 0.995 * 0.5 <= model.certificate_.epsilon <= 0.5
        said = model.predict(X)
        assert len(set(said.tolist())) == 1
        assert not np.any(model.coef_)
    # unknown, or enough, or with options of a solver, they are learned from
    assert PrivateRidge(bounds_y=(0, 2), **few).fit(X, X[:, 0]).solver_ != "constant"
    enough = PrivateRidge(bounds_y=(0, 2), rows=5_000, **few).fit(X, X[:, 0])
    assert enough.solver_ == "boosted_ssp"
    named = PrivateLogisticRegression(classes=["few", "most"], rows=60, options={"steps": 3}, **few)
    assert named.fit(X, y).solver_ != "constant"
    for odd in (0, -1, 2.5, "many", True):
        with pytest.raises(ValueError, match=r"\brows\b"):
            PrivateRidge(bounds_y=(0, 2), rows=odd, **few).fit(X, X[:, 0])
