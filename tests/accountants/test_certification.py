"""Which accountants are asked for a certificate, and when."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accountants import (
    ACCOUNTANTS,
    Accountant,
    Advanced,
    Basic,
    Bounds,
    DiscreteGaussian,
    Distribution,
    Gaussian,
    Laplace,
    Pure,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    certification,
    certify,
    measure,
    tightest,
)
from accountants.numerics import totals
from accountants.world import fold


def different(kinds: list[type], count: int) -> Term:
    """Return releases of many different parameters."""
    return Sequential([Spend(kinds[i % len(kinds)](0.01 + 1e-5 * i)) for i in range(count)])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the accountants that are measured, as they are."""
    names: list[str] = []

    def recorded(term: Any, accountant: Accountant[Any], **at: float) -> Any:
        names.append(accountant.name)
        return measure(term, accountant, **at)

    monkeypatch.setattr(certification, "measure", recorded)
    return names


def test_accountants_are_asked_when_they_are_looked_at(asked: list[str]) -> None:
    answers = certify(different([Laplace], 3), delta=1e-6)
    assert list(answers) == [each.name for each in ACCOUNTANTS]
    assert not asked
    assert answers["basic"].bounds == answers["basic"].bounds
    assert asked == ["basic"]
    # next to the sum of pure epsilons all are compared
    tightest(answers)
    assert sorted(asked) == sorted(each.name for each in ACCOUNTANTS)


@pytest.mark.parametrize(
    "kinds", [[Laplace], [Gaussian], [Laplace, Laplace, Pure], [Laplace, Gaussian, Pure]]
)
@pytest.mark.parametrize("delta", [1e-6, 0.1])
def test_of_many_losses_those_that_cannot_be_tightest_are_left_out(
    kinds: list[type], delta: float, asked: list[str]
) -> None:
    answers = certify(different(kinds, 90), delta=delta)
    best = tightest(answers)
    assert asked == ["distribution"]
    assert best.bounds is not None
    # nor is one of them tighter
    for answer in answers.values():
        assert answer.bounds is not None
        assert best.bounds.upper <= answer.bounds.upper


plain = st.floats(0.01, 3.0)
releases = st.one_of(
    plain.map(lambda epsilon: Spend(Laplace(epsilon))),
    plain.map(lambda mu: Spend(Gaussian(mu))),
    plain.map(lambda epsilon: Spend(Pure(epsilon))),
    st.floats(0.5, 20.0).map(lambda sigma: Spend(DiscreteGaussian(sigma))),
    st.builds(lambda mu, rate: Sampled(Spend(Gaussian(mu)), rate), plain, st.floats(1e-3, 0.5)),
)
analyses = st.lists(st.builds(Repeated, releases, st.integers(1, 60)), min_size=1, max_size=4)


@given(analyses.map(Sequential), st.sampled_from([1e-9, 1e-5, 0.1]))
@settings(max_examples=20)
def test_none_that_is_left_out_is_tighter(term: Term, delta: float) -> None:
    answers = certify(term, delta)
    best = tightest(answers).bounds
    assert best is not None
    uppers = [answer.bounds.upper for answer in answers.values() if answer.bounds is not None]
    assert best.upper <= min(uppers) * (1 + 1e-12)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [Laplace, Pure, Gaussian, lambda x: Laplace(Fraction(x).limit_denominator(50))]
            ),
            st.floats(0.01, 2),
            st.integers(1, 5),
        ),
        min_size=2,
        max_size=8,
    )
)
@settings(max_examples=50, deadline=None)
def test_many_losses_at_once_leave_the_state_of_one_after_another(drawn: list[Any]) -> None:
    spends = totals((kind(x), times) for kind, x, times in drawn)
    for accountant in ACCOUNTANTS:
        one = accountant.start()
        for loss, times in spends.items():
            one = accountant.compose(one, loss, times)
        assert fold(accountant, accountant.start(), spends) == one


def test_an_accountant_with_a_composition_of_its_own_is_asked_for_each_loss() -> None:
    seen = []

    class Own(Basic):
        def compose(self, state: Any, loss: Any, times: int = 1) -> Any:
            seen.append(loss)
            return super().compose(state, loss, times)

    measure(different([Laplace], 5), Own(), delta=1e-6)
    assert len(seen) == 5


@pytest.mark.parametrize("rate", [0.01, 0.001])
def test_a_training_run_is_asked_of_one_accountant(rate: float, asked: list[str]) -> None:
    answers = certify(Repeated(Sampled(Spend(Gaussian(0.9)), rate), 1000), delta=1e-6)
    tightest(answers)
    assert asked == ["distribution"]
    dict(answers)  # the table asks them all
    assert sorted(asked) == sorted(each.name for each in ACCOUNTANTS)


def test_of_responses_all_are_asked(asked: list[str]) -> None:
    answers = certify(different([Pure], 90), delta=1e-6)
    best = tightest(answers)  # the advanced accountant is within 1e-8 of the distribution
    assert sorted(asked) == sorted(each.name for each in ACCOUNTANTS)
    assert best.bounds is not None
    assert all(a.bounds and best.bounds.upper <= a.bounds.upper for a in answers.values())


def test_accountants_of_others_are_always_asked() -> None:
    class Optimist(Basic):
        def epsilon(self, state: Any, delta: float) -> Bounds:
            return Bounds(0.0, 1e-3)

    answers = certify(different([Laplace], 90), 1e-6, [Distribution(), Optimist(name="optimist")])
    assert tightest(answers).accountant.name == "optimist"


def test_many_different_responses_are_bounded_by_their_exact_law() -> None:
    """Of 66 responses whose losses are 1 to 66 times 1/256: all sums are multiples of that."""
    sizes = np.arange(1, 67)
    law = np.ones(1)
    for size in sizes.tolist():
        more = 1 / (1 + math.exp(-size / 256))
        both = np.zeros(2 * size + 1)
        both[0], both[-1] = 1 - more, more
        law = np.convolve(law, both)
    at = np.arange(-sizes.sum(), sizes.sum() + 1) / 256

    def delta(epsilon: float) -> float:
        return float(law @ np.maximum(-np.expm1(epsilon - at), 0.0))

    term = Sequential([Spend(Pure(size / 256)) for size in sizes.tolist()])
    for point in (1e-3, 1e-6, 1e-30):
        bounds = measure(term, Advanced(), delta=point).bounds
        assert bounds is not None
        assert delta(bounds.upper) <= point * (1 + 1e-9)
        assert delta(bounds.upper * (1 - 1e-3)) > point


def test_states_of_many_different_losses_are_shown() -> None:
    term = Sequential([Spend(Pure((i + 1) / 4096)) for i in range(1500)])
    assert repr(measure(term, Advanced(), delta=1e-6)).count("Pure") >= 1500
