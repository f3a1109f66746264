"""Calibration never exceeds its target and stops at it."""

from __future__ import annotations

import math

import accountants_truth as truth
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accountants import DomainError, Gaussian, GaussianDP, Laplace, Renyi, Repeated, Spend, measure
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
