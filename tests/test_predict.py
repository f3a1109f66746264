"""Prediction with released linear models, against the sum written out."""

import numpy as np
import pytest

import adaptive_dp as dp

ROWS = {"age": [20, 30, 40], "town": ["Ulm", "Bonn", "Kiel"], "code": np.array([1.0, 2.0, 1.0])}


def test_coefficients_are_summed_with_categories_as_indicators():
    model = {"intercept": 3.0, "age": 0.5, "town=Ulm": 10.0, "town=Bonn": -10.0, "code=1": 100.0}
    assert dp.predict(model, ROWS).tolist() == [123.0, 8.0, 123.0]


def test_a_column_whose_name_has_an_equals_sign_is_taken_first():
    assert dp.predict({"intercept": 0.0, "a=b": 2.0}, {"a=b": [1, 2]}).tolist() == [2.0, 4.0]
    predicted = dp.predict({"intercept": 0.0, "a=b=c": 2.0}, {"a=b": ["c", "d"]})
    assert predicted.tolist() == [2.0, 0.0]


def test_two_classes_go_by_the_sign_and_several_by_the_largest_score():
    model = {"intercept": -25.0, "age": 1.0}
    assert dp.predict(model, ROWS, classes=[0, 7]).tolist() == [0, 7, 7]
    several = {"low": {"intercept": 25.0, "age": 0.0}, "high": {"intercept": 0.0, "age": 1.0}}
    assert dp.predict(several, ROWS).tolist() == ["low", "high", "high"]


def test_a_structured_array_and_frames_will_do():
    model = {"intercept": 1.0, "age": 2.0, "town=Ulm": 5.0}
    array = np.array([(20, "Ulm"), (30, "Bonn")], dtype=[("age", float), ("town", "U9")])
    assert dp.predict(model, array).tolist() == [46.0, 61.0]
    for library in ("pandas", "polars"):
        frame = pytest.importorskip(library).DataFrame({"age": [20, 30], "town": ["Ulm", "Bonn"]})
        assert dp.predict(model, frame).tolist() == [46.0, 61.0]
        with pytest.raises(dp.DeclarationError, match="'height'"):
            dp.predict({"intercept": 0.0, "height": 1.0}, frame)


@pytest.mark.parametrize("model", [3.0, None, {}, {"age": 1.0}, {"intercept": 1.0, "a": {}}])
def test_what_is_no_model_is_refused(model):
    with pytest.raises(dp.DeclarationError):
        dp.predict(model, ROWS)


def test_columns_and_classes_that_do_not_fit_are_refused():
    with pytest.raises(dp.DeclarationError, match="'town'"):
        dp.predict({"intercept": 0.0, "town": 1.0}, ROWS)
    with pytest.raises(dp.DeclarationError, match="'no'"):
        dp.predict({"intercept": 0.0, "age": 1.0}, ROWS, classes="no")


def test_a_learned_model_predicts():
    people = dp.dataset("people", columns={"age": (18, 90), "pay": (0, 900)})
    learner = dp.AdaSSP(features=["age"], target="pay")
    plan = dp.Pipeline(model=people.solve(learner, epsilon=50.0, delta=1e-6)).with_delta(1e-6)
    ages = np.linspace(18, 90, 4_000)
    model = plan.simulate(seed=1, people={"age": ages, "pay": 10 * ages})["model"]
    assert np.abs(dp.predict(model, {"age": ages}) - 10 * ages).max() < 20
