"""What lies outside its domain is refused, with the value in the message."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from accountants import (
    ACCOUNTANTS,
    Approximate,
    Basic,
    Bounds,
    Composite,
    DomainError,
    Envelope,
    Gaussian,
    Grouped,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    certify,
    measure,
    tightest,
    worlds,
)
from accountants import losses as families
from accountants.loss import parameters
from accountants.rounding import ceiling, down, flooring, up

ONE = Spend(Gaussian(1.0))
NUMBERS = [math.nan, math.inf, -math.inf, -1.0, -1e-300, "1", b"1", True, None, [1.0], 10**400, 1j]
SHARES = [*NUMBERS, 1.0000001, 2]
COUNTS = [math.nan, math.inf, -1, 1.5, 2.0, "3", True, None]


def refused(make: Callable[[Any], object], value: object) -> None:
    with pytest.raises(DomainError) as caught:
        make(value)
    assert repr(value)[:40] in str(caught.value)


@pytest.mark.parametrize("value", NUMBERS, ids=lambda v: repr(v)[:12])
def test_numbers(value: object) -> None:
    for make in (Gaussian, Laplace, Pure, lambda v: Approximate(v, 0.0)):
        refused(make, value)
    refused(lambda v: measure(ONE, Basic(), epsilon=v), value) if value is not None else None


@pytest.mark.parametrize("value", SHARES, ids=lambda v: repr(v)[:12])
def test_shares(value: object) -> None:
    refused(lambda v: Approximate(1.0, v), value)
    refused(lambda v: Sampled(ONE, v), value)
    refused(lambda v: families.Sampled(Composite({Gaussian(1.0): 1}), v), value)
    if value is not None:
        refused(lambda v: measure(ONE, Basic(), delta=v), value)
    for accountant in ACCOUNTANTS:
        state = accountant.compose(accountant.start(), Gaussian(1.0))
        refused(lambda v, a=accountant, s=state: a.epsilon(s, v), value)
    for accountant in ACCOUNTANTS:
        state = accountant.compose(accountant.start(), Gaussian(1.0))
        if value not in (1.0000001, 2):
            refused(lambda v, a=accountant, s=state: a.delta(s, v), value)


@pytest.mark.parametrize("value", COUNTS, ids=repr)
def test_counts(value: object) -> None:
    refused(lambda v: Repeated(ONE, v), value)
    refused(lambda v: Grouped(ONE, v), value)
    refused(lambda v: Composite([(Pure(1.0), v)]), value)
    for accountant in ACCOUNTANTS:
        refused(lambda v, a=accountant: a.compose(a.start(), Pure(1.0), v), value)
    for loss in (Gaussian(1.0), Laplace(1.0), Approximate(1.0, 0.1)):
        refused(loss.grouped, value)


@pytest.mark.parametrize("value", ["x", 1.0, None, Gaussian(1.0), object])
def test_terms_are_made_of_terms(value: object) -> None:
    for make in (
        lambda v: Sequential([v]),
        lambda v: Parallel([ONE, v]),
        lambda v: Repeated(v, 2),
        lambda v: Sampled(v, 0.5),
        lambda v: Grouped(v, 2),
        worlds,
        lambda v: certify(v, 1e-6),
    ):
        refused(make, value)
    if not isinstance(value, PrivacyLoss):
        refused(Spend, value)
        refused(lambda v: Envelope((v,)), value)
        refused(lambda v: Composite([(v, 1)]), value)
        refused(lambda v: families.Sampled(v, 0.5), value)


def test_grouped_zero_and_empty() -> None:
    refused(lambda v: Grouped(ONE, v), 0)
    refused(Sequential, 3)
    refused(Envelope, ())
    with pytest.raises(DomainError, match="at least one choice"):
        Parallel([])
    with pytest.raises(DomainError, match="label"):
        Parallel([ONE, ONE], labels=["a"])
    with pytest.raises(DomainError, match="lower <= upper"):
        Bounds(2.0, 1.0)
    with pytest.raises(DomainError, match="nan"):
        Bounds(math.nan, 1.0)
    with pytest.raises(TypeError, match="not both"):
        measure(ONE, Basic())
    with pytest.raises(TypeError, match="not both"):
        measure(ONE, Basic(), delta=0.1, epsilon=1.0)


def test_numbers_of_other_types_are_taken() -> None:
    assert Gaussian(np.float32(0.5)).mu() == 0.5
    assert Pure(Fraction(1, 4)).pure() == 0.25
    assert Repeated(ONE, np.int64(3)).times == 3
    assert parameters(Gaussian(0.5)) == {"mu": 0.5}
    assert parameters(PrivacyLoss()) == {}


class Unknown(PrivacyLoss):
    """A loss of which nothing is known."""


def test_what_cannot_be_bounded_raises() -> None:
    answers = certify(Spend(Unknown()), 1e-6)
    assert all(a.bounds is None and "Unknown" in a.reason for a in answers.values())
    with pytest.raises(InapplicableError, match="Unknown"):
        tightest(answers)
    with pytest.raises(InapplicableError, match="no group privacy"):
        Unknown().grouped(2)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [5e-324, 1e-300, 1e-160, 800.0, 1e150, 1e300])
def test_absurd_sizes_answer_without_a_warning(size: float) -> None:
    for loss in (Gaussian(size), Laplace(size), Pure(size), Approximate(size, 1e-9)):
        for answer in certify(
            Sequential([Repeated(Spend(loss), 3), Spend(Pure(1.0))]), 1e-6
        ).values():
            assert answer.bounds is not None
            assert answer.bounds.upper >= 1 - 1e-4
            if size >= 1e150 and isinstance(loss, Gaussian):
                assert math.isinf(answer.bounds.upper) or answer.bounds.upper > 1e299


def test_many_repetitions_are_quick_and_finite() -> None:
    """Counts far beyond any array: the atoms near the mean are enough."""
    for spec in ([(1e-5, 10**9)], [(1e-5, 10**9), (0.1, 1)], [(1e-6, 10**12)]):
        term = Sequential([Repeated(Spend(Pure(e)), n) for e, n in spec])
        for answer in certify(term, 1e-6).values():
            assert answer.bounds is not None
            assert 0 < answer.bounds.upper < math.inf


def test_rounding_moves_outward() -> None:
    third = Fraction(1, 3)
    assert flooring(third) < third < ceiling(third)
    assert Fraction(ceiling(third)) - Fraction(flooring(third)) < Fraction(1, 2**53)
    huge = Fraction(10) ** 400
    assert ceiling(huge) == math.inf
    assert flooring(-huge) == -math.inf
    assert 0 < flooring(huge) < math.inf
    assert -math.inf < ceiling(-huge) < 0
    for x in (1.0, -1.0, 1e300, 1e-310, 0.0):
        assert down(x) < x < up(x)
