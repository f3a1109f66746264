"""The commonest mistakes of new users, and the remedy that each error names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import adaptive_dp as dp

PEOPLE: Any = dp.dataset(
    "people", columns={"age": (0, 100), "town": ["Bonn", "Ulm", "Kiel"], "code": [1, 2]}
)
PLAN = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=2)))
NOISE = dp.Laplace(scale=2)

CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a private sum over a private count": (
        lambda: PEOPLE["age"].sum() / PEOPLE.count(),
        TypeError,
        r"dp\.post",
    ),
    "a released value as a number": (
        lambda: float(PEOPLE.count().release(NOISE)),
        TypeError,
        r"dp\.post\(function, handle\)",
    ),
    "one plus a release": (lambda: 1 + PEOPLE.count().release(NOISE), TypeError, r"dp.post"),
    "a release rounded": (lambda: round(PEOPLE.count().release(NOISE)), TypeError, r"dp.post"),
    "a column that is released": (
        lambda: PEOPLE["age"].release(NOISE),
        AttributeError,
        "'release'",
    ),
    "a column as an attribute": (lambda: PEOPLE.age, AttributeError, r"\['age'\]"),
    "a table's mean": (lambda: PEOPLE.mean(), AttributeError, r"\.average\(\)"),
    "a column's filter": (lambda: PEOPLE["age"].filter(1), AttributeError, r"people\.filter"),
    "noise on a median": (
        lambda: PEOPLE["age"].median().release(NOISE),
        dp.DeclarationError,
        r"dp\.QuantileExponential.*dp\.suitable",
    ),
    "a choice of one number": (
        lambda: PEOPLE["age"].sum().release(dp.PermuteAndFlip()),
        dp.DeclarationError,
        "PermuteAndFlip",
    ),
    "a sum of strings": (
        lambda: PEOPLE["town"].sum(),
        dp.DeclarationError,
        r"\b3\b.*\.histogram",
    ),
    "a sum of codes": (lambda: PEOPLE["code"].sum(), dp.DeclarationError, r"use \.clip\(low"),
    "a regression on strings": (
        lambda: PEOPLE.solve(dp.AdaSSP(features=["age"], target="town")),
        dp.DeclarationError,
        "'town'.*'people'",
    ),
    "three classes by a loss of two": (
        lambda: PEOPLE.solve(dp.NoisySGD(features=["age"], target="town")),
        dp.DeclarationError,
        r"dp\.Multinomial\(3\)",
    ),
    "a number of bins": (
        lambda: PEOPLE["age"].histogram(10),
        dp.DeclarationError,
        r"\bedges\b.*numpy\.linspace",
    ),
    "parts by a number": (
        lambda: PEOPLE.partition("age", edges=3),
        dp.DeclarationError,
        "linspace",
    ),
    "a certificate as a plan": (
        lambda: dp.load(PLAN.certify().to_json()),
        dp.DocumentError,
        r"Certificate\.from_json",
    ),
    "a plan as a certificate": (
        lambda: dp.Certificate.from_json(PLAN.to_json()),
        dp.DocumentError,
        r"dp\.load",
    ),
    "a missing column": (
        lambda: PLAN.run(people={"age": [1.0], "code": [1]}),
        dp.DataError,
        "'town'",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_error_says_the_way_out(case):
    call, error, words = CASES[case]
    with pytest.raises(error, match=words):
        call()


def test_a_mean_of_a_private_number_of_rows_points_to_the_average():
    with pytest.warns(UserWarning, match=r"\.average\(mechanism\)"):
        PEOPLE["age"].mean()


@pytest.mark.filterwarnings("error")
def test_a_mean_of_a_public_number_of_rows_gives_no_warning():
    fixed = dp.dataset("f", columns={"age": (0, 9)}, neighbors="replace_one", size=10)
    assert repr(fixed["age"].fill(5).mean()) == "<private mean in [0, 9]>"


def test_attributes_that_do_not_exist_are_missing_as_ever():
    assert not hasattr(PEOPLE, "_repr_latex_")
    assert not hasattr(PEOPLE["age"], "__array__")
    assert not hasattr(PEOPLE["age"], "nothing")


def test_a_name_may_be_left_out_of_free_noise():
    assert dp.Free() == dp.Free("noise")
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=dp.Free())))
    assert plan.free == {"noise": [1.0]}
