"""Calibration never exceeds its target and stops at it."""

from __future__ import annotations

import math

import accountants_truth as truth
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountants import (
    Basic,
    DomainError,
    Gaussian,
    GaussianDP,
    Laplace,
    Renyi,
    Repeated,
    Sequential,
    Spend,
    measure,
)
from accountants.calibration import least_noise


@truth.steady(200)
@given(
    st.floats(1e-6, 1e6),
    st.floats(0.1, 5),
    st.floats(1e-4, 1e4),
    st.floats(1e-4, 1e4),
    st.floats(1e-3, 1e3),
)
def test_power_laws_are_inverted(
    scale: float, power: float, unit: float, target: float, start: float
) -> None:
    """epsilon = scale (unit / b)^power is met at b = unit (scale / target)^(1/power)."""
    best = unit * (scale / target) ** (1 / power)
    if not 1e-11 < best < 1e11:
        return

    def epsilon_at(noise: float) -> float:
        return scale * (unit / noise) ** power

    noise = least_noise(epsilon_at, target, start=start)
    assert epsilon_at(noise) <= target
    assert noise <= best * (1 + 1e-9)


@truth.steady(100)
@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 5)), min_size=1, max_size=5),
    st.floats(0.01, 5),
)
def test_falling_steps_are_never_exceeded(steps: list[tuple[float, float]], target: float) -> None:
    """Falling, discontinuous functions: the target holds, and just below the answer it does not."""

    def epsilon_at(noise: float) -> float:
        return sum(size for place, size in steps if noise < place) + 1e-3 / noise

    noise = least_noise(epsilon_at, target)
    assert epsilon_at(noise) <= target
    assert epsilon_at(noise * (1 - 1e-9)) > target


def test_certified_answers() -> None:
    for make in (lambda b: Gaussian(1 / b), lambda b: Laplace(1 / b)):
        for accountant in (GaussianDP(), Renyi()):

            def epsilon_at(b: float, make=make, accountant=accountant) -> float:  # type: ignore[no-untyped-def]
                bounds = measure(Repeated(Spend(make(b)), 10), accountant, delta=1e-6).bounds
                assert bounds is not None
                return bounds.upper

            noise = least_noise(epsilon_at, 1.0)
            assert epsilon_at(noise) <= 1.0
            assert epsilon_at(noise * (1 - 1e-8)) > 1.0


def test_infinite_then_finite() -> None:
    noise = least_noise(lambda b: math.inf if b < 7 else 0.5, 1.0)
    assert 7 <= noise <= 7 * (1 + 1e-9)


def test_out_of_reach_is_refused() -> None:
    with pytest.raises(DomainError, match="no noise"):
        least_noise(lambda b: 2.0 + 1 / b, 1.0)
    assert least_noise(lambda b: 0.0, 1.0) <= 1e-11


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_bad_targets(target: float) -> None:
    with pytest.raises(DomainError, match="target"):
        least_noise(lambda b: 1 / b, target)


def counted(function):  # type: ignore[no-untyped-def]
    calls = []

    def call(noise: float) -> float:
        calls.append(noise)
        assert len(calls) <= 200
        return function(noise)

    return call, calls


@pytest.mark.parametrize(
    ("fixed", "target"),
    [(50.0, 50.000001414049535), (50.0, 50 * (1 + 1e-13)), (1.0, 1 + 1e-9), (1e-3, 0.0010000001)],
)
@pytest.mark.parametrize("digits", [1e-10, 1e-300])
def test_a_fixed_part_may_take_nearly_all(fixed: float, target: float, digits: float) -> None:
    epsilon_at, calls = counted(
        lambda b: (
            measure(
                Sequential([Spend(Laplace(fixed)), Spend(Laplace(1 / b))]), Basic(), delta=0.0
            ).bounds.upper
        )
    )
    noise = least_noise(epsilon_at, target, digits=digits)
    assert noise in calls
    assert epsilon_at(noise) <= target
    assert noise == pytest.approx(1 / (target - fixed), rel=1e-2)


def test_a_target_that_the_fixed_part_takes_is_refused_at_once() -> None:
    epsilon_at, calls = counted(lambda b: 50.0 + 1 / b)
    for target in (50.0, 49.0, 50 * (1 + 1e-15)):
        with pytest.raises(DomainError, match="no noise"):
            least_noise(epsilon_at, target)
    assert len(calls) < 40


@pytest.mark.parametrize("start", [1e-20, 1.0, 1e20])
def test_what_is_no_number_is_never_accepted(start: float) -> None:
    epsilon_at, _ = counted(lambda b: math.nan if b < 4 else 1.0)
    noise = least_noise(epsilon_at, 1.0, start=start)
    assert 4 <= noise < 4.000001


def test_steps_and_plateaus_end() -> None:
    for place in (1e-9, 0.3, 7.123, 1e9):
        for below in (math.inf, 1e300, math.nextafter(1.0, 2.0)):
            epsilon_at, _ = counted(lambda b, p=place, h=below: h if b < p else 1.0)
            noise = least_noise(epsilon_at, 1.0, digits=1e-300)
            assert place <= noise <= place * (1 + 1e-12)
