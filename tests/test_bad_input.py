"""Data that nothing can be learned from: every learner answers with numbers, whatever the rows are.

An error that one row can cause would reveal that row: what is wrong with a declaration is refused
when the learner is declared, and what is wrong with rows is no error at all.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import numpy as np
import pytest

import adaptive_dp as dp
from adaptive_dp.learning.base import ColumnLearner, Standardised
from adaptive_dp.sklearn import (
    PrivateAdditiveClassifier,
    PrivateAdditiveRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateMarginClassifier,
    PrivateRidge,
)

WIDE = [f"x{i}" for i in range(9)]
COLUMNS = {
    **dict.fromkeys(WIDE, (-1, 1)),
    "y": (-3, 3),
    "c": ["no", "yes"],
    "k": ["r", "s", "t"],
    "w": (0, 2),
}
LEARNERS = {
    "SSP": dp.SSP(WIDE, "y"),
    "SSP, pure": dp.SSP(WIDE, "y", pure=True),
    "AdaSSP": dp.AdaSSP(WIDE, "y"),
    "BoostedSSP": dp.BoostedSSP(WIDE, "y"),
    "AdaOPS": dp.AdaOPS(WIDE, "y"),
    "AdaptiveOutputPerturbation": dp.AdaptiveOutputPerturbation(WIDE, "y"),
    "OPS": dp.OPS(WIDE, "y"),
    "OutputPerturbation": dp.OutputPerturbation(WIDE, "y"),
    "OutputPerturbation, classes": dp.OutputPerturbation(WIDE, "k", sample_weight="w"),
    "ObjectivePerturbation": dp.ObjectivePerturbation(WIDE, "k"),
    "ObjectivePerturbation, weighted": dp.ObjectivePerturbation(WIDE, "c", class_weight="balanced"),
    "ObjectivePerturbation, numbers": dp.ObjectivePerturbation(WIDE, "y", dp.Huber()),
    "NoisyGradientDescent": dp.NoisyGradientDescent(WIDE, "k", dp.Multinomial(3), steps=9),
    "NoisySGD": dp.NoisySGD(WIDE, "c", steps=9, sampling_rate=0.5, class_weight="balanced"),
    "DPFTRL": dp.DPFTRL(WIDE, "c", steps=4),
    "PhasedERM": dp.PhasedERM(WIDE, "c", phases=2, rounds=3),
    "AdditiveModel": dp.AdditiveModel(WIDE, "k", steps=3),
    "MarginBoosting": dp.MarginBoosting(WIDE, "c", rounds=3),
    "FiniteLearner": dp.FiniteLearner(WIDE[:1], "y", [[0.0, 0.0], [0.0, 1.0]], width=1.0),
    "ExponentialSampling": dp.ExponentialSampling(WIDE[:2], "c"),
    "ExponentialSampling, numbers": dp.ExponentialSampling(WIDE[:2], "y", dp.Huber()),
    "FiniteLearner, classes": dp.FiniteLearner(WIDE[:1], "c", [[0.0, 0.0], [0.0, 1.0]]),
    "Auto, a number": dp.Auto(WIDE, "y"),
    "Auto, classes": dp.Auto(WIDE, "k"),
    "Auto, few rows": dp.Auto(WIDE, "c", rows=20),
    "Auto, many rows": dp.Auto(WIDE, "c", rows=100_000),
    "tune": dp.ObjectivePerturbation(WIDE, "c"),
    "Standardised": dp.Standardised(dp.AdaSSP(WIDE, "y")),
}
PURE = ("SSP, pure", "OPS", "FiniteLearner", "FiniteLearner, classes", "tune")


def rows(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(count)
    return {
        **{name: rng.uniform(-1, 1, count) for name in WIDE},
        "y": rng.uniform(-3, 3, count),
        "c": rng.choice(["no", "yes"], count),
        "k": rng.choice(["r", "s", "t"], count),
        "w": rng.uniform(0, 2, count),
    }


def ordinary(**columns: Any) -> dict[str, Any]:
    return {**rows(60), **{name: np.full(60, value) for name, value in columns.items()}}


MISSING = dict.fromkeys(WIDE, math.nan)
CASES = {
    "no rows": rows(0),
    "one row": rows(1),
    "fewer rows than features": rows(5),
    "one class and a constant target": ordinary(c="no", k="s", y=1.25),
    "a target at its bound": ordinary(y=3.0),
    "constant features": ordinary(**dict.fromkeys(WIDE, 1.0)),
    "all features missing": ordinary(**MISSING),
    "target missing": {**ordinary(y=math.nan), "c": np.full(60, None), "k": np.full(60, None)},
    "labels that were not declared": ordinary(c="perhaps", k="u"),
    "no weight at all": ordinary(w=0.0),
    "far outside of the bounds": ordinary(**dict.fromkeys(WIDE, 1e300), y=-1e300, w=1e300),
    "infinite": ordinary(**dict.fromkeys(WIDE, math.inf), y=-math.inf, w=math.inf),
}


def made(table: dp.Table, name: str) -> Any:
    learner, delta = LEARNERS[name], 0.0 if name in PURE else 1e-6
    if name == "tune":
        return dp.tune(table, learner, {"norm": [0.5, 1.0]}, epsilon=1.0, delta=delta)
    return table.solve(learner, epsilon=1.0, delta=delta)


@functools.cache
def plan(name: str) -> Any:
    table = dp.dataset("people", columns=COLUMNS)
    learner, delta = LEARNERS[name], 0.0 if name in PURE else 1e-6
    if delta and type(learner) in (
        dp.NoisySGD,
        dp.ObjectivePerturbation,
    ):  # calibrating takes seconds
        return dp.Pipeline(model=table.solve(learner)).fix(sigma=1.0)
    return dp.Pipeline(model=made(table, name)).with_delta(delta)


def test_no_public_learner_is_left_out() -> None:
    public = [getattr(dp, name) for name in dir(dp)]
    kinds = [each for each in public if isinstance(each, type)]
    learners = {each for each in kinds if issubclass(each, ColumnLearner | Standardised)}
    assert learners == {type(learner) for learner in LEARNERS.values()}


def numbers(model: Any) -> list[float]:
    """All numbers in a model."""
    if isinstance(model, dict):
        return [n for value in model.values() for n in numbers(value)]
    if isinstance(model, np.ndarray | list | tuple):
        return [n for value in model for n in numbers(value)]
    return [float(model)] if isinstance(model, int | float | np.number) else []


@pytest.mark.parametrize("name", LEARNERS)
def test_whatever_the_rows_are_there_is_a_model(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a warning that depends on the rows reveals them
        for case, data in CASES.items():
            model = plan(name).simulate(seed=1, people=data)["model"]
            found = [v for v in numbers(model) if not math.isinf(v)]  # ends of outer bins
            assert found, case
            assert np.isfinite(found).all(), case


@pytest.mark.parametrize("name", [*LEARNERS][:-1])
def test_columns_without_bounds_or_categories_are_refused(name: str) -> None:
    """And so is a target of one category; nothing is spent, and a session goes on."""
    learner = LEARNERS[name]
    odd: dict[str, Any] = dict.fromkeys((learner.features[0], learner.target))
    if isinstance(COLUMNS[learner.target], list):
        odd |= {f"{learner.target} of one": ["only"]}
    with dp.Session(budget=dp.Budget(2.0, 1e-5), seed=1, people=rows(40)) as session:
        for column, declared in odd.items():
            changed = {column.split()[0]: declared}
            table = dp.dataset("people", columns={**COLUMNS, **changed})
            with pytest.raises(dp.DeclarationError, match=column.split()[0]):
                session.run(made(table, name))
        assert session.epsilon == 0


ESTIMATORS = {
    "ridge": PrivateRidge(bounds=(-1, 1), bounds_y=(-1, 1), random_state=0),
    "logistic": PrivateLogisticRegression(
        0.5,
        bounds=(-1, 1),
        classes=[0, 1],
        class_weight="balanced",
        solver="noisy_gradient_descent",
        options={"steps": 9},
        random_state=0,
    ),
    "svc": PrivateLinearSVC(bounds=(-1, 1), classes=[0, 1], random_state=0, options={"steps": 9}),
    "additive": PrivateAdditiveClassifier(
        bounds=(-1, 1), classes=[0, 1], random_state=0, options={"steps": 3}
    ),
    "additive regressor": PrivateAdditiveRegressor(
        bounds=(-1, 1), bounds_y=(0, 1), random_state=0, options={"steps": 3}
    ),
    "margins": PrivateMarginClassifier(
        bounds=(-1, 1), classes=[0, 1], random_state=0, options={"rounds": 2}
    ),
    "auto": PrivateLogisticRegression(bounds=(-1, 1), classes=[0, 1], random_state=0),
    "auto, few rows": PrivateLogisticRegression(
        0.1, bounds=(-1, 1), classes=[0, 1], rows=40, random_state=0
    ),
    "learned bounds": PrivateRidge(bounds="private", bounds_y=(0, 1), random_state=0),
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_fits_what_is_no_data(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (40, 3))
    for features, y in (
        (X, np.ones(40)),  # one class, a constant target
        (X[:2], np.array([0, 1])),  # fewer rows than features
        (np.full((40, 3), np.nan), rng.integers(0, 2, 40)),
        (np.where(np.arange(3) == 1, np.nan, X), rng.integers(0, 2, 40)),
        (X * 1e300, rng.integers(0, 2, 40)),
    ):
        model = ESTIMATORS[name].__class__(**ESTIMATORS[name].get_params()).fit(features, y)
        assert model.certificate_.epsilon <= 1
        assert np.isfinite(np.asarray(model.predict(X), dtype=float)).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_was_not_declared_is_refused_by_an_estimator(name: str) -> None:
    """Bounds are not assumed; a label that is none of the classes is an error before the fit."""
    X, y = np.random.default_rng(0).uniform(-1, 1, (40, 3)), np.arange(40) % 2
    kind, given = ESTIMATORS[name].__class__, ESTIMATORS[name].get_params()
    for part in {"bounds", "bounds_y"} & set(given):
        with pytest.raises(ValueError, match=part):
            kind(**{**given, part: None}).fit(X, y)
    for features, labels in ((X[:0], y[:0]), (X, y[:5])):
        with pytest.raises(ValueError, match="sample"):
            kind(**given).fit(features, labels)
    if "classes" in given:
        model = kind(**given)
        with pytest.raises(ValueError, match="classes"):
            model.fit(X, y.astype(str))
        with pytest.raises(ValueError, match="two different"):
            kind(**{**given, "classes": [1]}).fit(X, y)
        assert not hasattr(model, "certificate_")
