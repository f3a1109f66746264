"""Calibration never exceeds its target and stops at it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Approximate,
    Basic,
    DomainError,
    Gaussian,
    GaussianDP,
    Laplace,
    Parallel,
    Pure,
    Renyi,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    measure,
)
from accountants.calibration import calibrate, least_noise, scaled, share


@examples(200)
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


@examples(100)
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


def test_the_last_bits_of_costs_do_not_reach_the_answer() -> None:
    """Costs that differ by relative 1e-14, as between machines, give the same few digits."""
    answers = set()
    for seed in range(20):
        noise = np.random.default_rng(seed)

        def epsilon_at(b: float, noise: np.random.Generator = noise) -> float:
            return 1.3 * b**-0.7 * (1 + 1e-14 * float(noise.uniform()))

        answers.add(least_noise(epsilon_at, 0.7, start=3.0))
    [answer] = answers
    assert float(f"{answer:.10e}") == answer
    assert answer >= (1.3 / 0.7) ** (1 / 0.7)


@pytest.mark.parametrize("best", [1.0, 0.3, 20.0, 1.25e-7, 3.0001])
def test_a_short_number_that_spends_the_target_is_chosen(best: float) -> None:
    for start in (1.0, 7.3):
        cost = lambda b: float(Fraction(1) / Fraction(b))  # noqa: E731
        assert least_noise(cost, cost(best), start=start) == best


def test_infinite_then_finite() -> None:
    noise = least_noise(lambda b: math.inf if b < 7 else 0.5, 1.0)
    assert 7 <= noise <= 7 * (1 + 1e-9)


def test_out_of_reach_is_refused() -> None:
    with pytest.raises(DomainError):
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
        with pytest.raises(DomainError):
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


def gaussian_sum(sigma: float, times: int = 100) -> Term:
    return Repeated(Spend(Gaussian(mu=1 / sigma)), times)


def sgd(sigma: float, rate: float = 256 / 60000, steps: int = 14063) -> Term:
    return Repeated(Sampled(Spend(Gaussian(mu=1 / sigma)), rate), steps)


class TestCalibrate:
    def test_the_analytic_gaussian(self) -> None:
        """Epsilon 1, delta 1e-5: the noise is published to all digits (Balle and Wang 2018)."""
        calibration = calibrate(lambda s: gaussian_sum(s, 1), epsilon=1, delta=1e-5)
        assert 0 <= calibration.value / 3.73063163482 - 1 < 1e-9
        assert calibration.epsilon.upper <= 1
        assert calibration.accountant == "gaussian" or calibration.epsilon.upper > 1 - 1e-8

    def test_what_is_returned_was_evaluated(self) -> None:
        calibration = calibrate(sgd, epsilon=3, delta=1e-5, accountant=Renyi())
        again = measure(sgd(calibration.value), Renyi(), delta=1e-5).bounds
        assert again == calibration.epsilon
        assert calibration.epsilon.upper <= 3
        assert calibration.term == sgd(calibration.value)
        below = measure(sgd(calibration.value * (1 - 2e-10)), Renyi(), delta=1e-5).bounds
        assert below is not None
        assert below.upper > 3

    @pytest.mark.parametrize("start", [0.01, 0.5, 1.0, 30.0])
    @pytest.mark.parametrize("target", [0.1, 1.0, 8.0])
    def test_few_evaluations(self, target: float, start: float) -> None:
        calibration = calibrate(
            sgd, epsilon=target, delta=1e-5, accountant=Renyi(), start=start, cost="decreasing"
        )
        assert calibration.evaluations <= 13

    def test_both_directions_are_calibrated(self) -> None:
        scale = calibrate(lambda b: Spend(Laplace(1 / b)), epsilon=2, delta=0.0)
        epsilon = calibrate(lambda e: Spend(Laplace(e)), epsilon=2, delta=0.0)
        assert scale.value == pytest.approx(0.5, rel=1e-9)
        assert epsilon.value == pytest.approx(2, rel=1e-9)
        assert max(scale.epsilon.upper, epsilon.epsilon.upper) <= 2

    @pytest.mark.parametrize("start", [1.0, 1000.0, 10**9])
    def test_the_largest_number_of_steps(self, start: float) -> None:
        calibration = calibrate(
            lambda n: sgd(1.1, steps=n),
            epsilon=3,
            delta=1e-5,
            accountant=Renyi(),
            integer=True,
            start=start,
        )
        assert isinstance(calibration.value, int)
        one_more = measure(sgd(1.1, steps=calibration.value + 1), Renyi(), delta=1e-5).bounds
        assert one_more is not None
        assert calibration.epsilon.upper <= 3 < one_more.upper

    @examples(60)
    @given(st.integers(1, 10**9), st.integers(1, 10**12))
    def test_integers_are_exact(self, most: int, start: int) -> None:
        """Pure epsilons of 2**-20 add up exactly: as many fit as the target has of them."""
        calibration = calibrate(
            lambda n: Repeated(Spend(Laplace(2**-20)), n),
            epsilon=most * 2**-20,
            delta=0.0,
            accountant=Basic(),
            integer=True,
            start=start,
        )
        assert calibration.value == most
        assert calibration.evaluations < 40

    def test_a_sampling_rate(self) -> None:
        calibration = calibrate(
            lambda q: sgd(1.1, rate=q, steps=1000),
            epsilon=3,
            delta=1e-5,
            accountant=Renyi(),
            between=(1e-9, 1),
            start=0.01,
        )
        assert 0.01 < calibration.value < 0.02
        assert calibration.epsilon.upper <= 3

    def test_where_everything_is_within_the_target(self) -> None:
        calibration = calibrate(
            lambda q: sgd(1.1, rate=q, steps=1),
            epsilon=30,
            delta=1e-5,
            accountant=Renyi(),
            between=(1e-9, 1),
        )
        assert calibration.value == 1

    def test_any_function_of_a_number(self) -> None:
        """The share of the noise that a first release takes, the rest for the second."""
        calibration = calibrate(
            lambda share: Sequential([Spend(Laplace(share)), Spend(Laplace(0.5 * share**2))]),
            epsilon=1,
            delta=0.0,
        )
        assert calibration.value == pytest.approx(math.sqrt(3) - 1, rel=1e-9)

    def test_the_worst_world_decides(self) -> None:
        calibration = calibrate(
            lambda b: Parallel([Spend(Laplace(1 / b)), Spend(Laplace(3 / b))]),
            epsilon=1,
            delta=0.0,
        )
        assert calibration.value == pytest.approx(3, rel=1e-9)

    def test_what_cannot_be_reached(self) -> None:
        def leaking(sigma: float) -> Term:
            return Sequential([gaussian_sum(sigma), Spend(Approximate(0.0, 1e-3))])

        with pytest.raises(DomainError, match="between"):
            calibrate(leaking, epsilon=1, delta=1e-5, accountant=GaussianDP(), cost="decreasing")
        with pytest.raises(DomainError, match=r"\b2\b"):
            calibrate(
                lambda n: Repeated(Spend(Laplace(2.0)), n), epsilon=1, delta=0.0, integer=True
            )
        with pytest.raises(DomainError):
            calibrate(lambda b: Spend(Laplace(1.0)), epsilon=1, delta=0.0)
        with pytest.raises(DomainError, match=r"\b2\b"):
            calibrate(lambda q: sgd(1.0, rate=q), epsilon=1, delta=1e-5, cost="increasing", start=2)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"epsilon": 0},
            {"epsilon": math.inf},
            {"delta": 2},
            {"digits": 0},
            {"start": -1},
            {"between": (2, 1)},
            {"between": (0, 1)},
            {"cost": "up"},
        ],
    )
    def test_bad_arguments(self, wrong: dict[str, float]) -> None:
        given: dict[str, float] = {"epsilon": 1, "delta": 1e-5}
        with pytest.raises(DomainError):
            calibrate(gaussian_sum, **(given | wrong))  # type: ignore[arg-type]


class TestSharing:
    def test_weights(self) -> None:
        parts = {name: lambda b: Spend(Laplace(1 / b)) for name in "abc"}
        weights = {"a": 1.0, "b": 2.0, "c": 4.0}
        calibration = calibrate(scaled(parts, weights), epsilon=1, delta=0.0)
        assert calibration.value == pytest.approx(1.75, rel=1e-9)
        assert calibration.epsilon.upper <= 1

    def test_shares_of_gaussians_are_exact(self) -> None:
        parts = {"a": lambda s: gaussian_sum(s, 1), "b": lambda s: gaussian_sum(s, 50)}
        sharing = share(parts, {"a": 3, "b": 7}, epsilon=1, delta=1e-6, accountant=GaussianDP())
        a, b = 1 / sharing.values["a"] ** 2, 50 / sharing.values["b"] ** 2
        assert a / (a + b) == pytest.approx(0.3, rel=1e-6)
        assert 1 - 1e-6 < sharing.epsilon.upper <= 1

    def test_shares_at_delta_zero_are_of_epsilon(self) -> None:
        parts = {name: lambda b: Spend(Laplace(1 / b)) for name in "ab"}
        sharing = share(parts, {"a": 0.25, "b": 0.75}, epsilon=2, delta=0.0)
        assert 1 / sharing.values["a"] == pytest.approx(0.5, rel=1e-7)
        assert 1 / sharing.values["b"] == pytest.approx(1.5, rel=1e-7)

    def test_the_calibrated_plan_is_within_the_target(self) -> None:
        parts = {
            "histogram": lambda b: Spend(Laplace(1 / b)),
            "model": lambda s: sgd(s, 0.01, 1000),
        }
        shares = {"histogram": 0.3, "model": 0.7}
        sharing = share(parts, shares, epsilon=2, delta=1e-6, accountant=Renyi())
        total = Sequential([parts[name](sharing.values[name]) for name in parts])
        bounds = measure(total, Renyi(), delta=1e-6).bounds
        assert bounds == sharing.epsilon
        assert 2 * (1 - 1e-6) < sharing.epsilon.upper <= 2

    def test_unusable_shares(self) -> None:
        parts = {"a": gaussian_sum}
        for shares in ({"b": 1.0}, {}, {"a": 0.0}, {"a": 1.0, "b": 1.0}):
            with pytest.raises(DomainError, match="share"):
                share(parts, shares, epsilon=1, delta=1e-6)
        two = {"a": gaussian_sum, "b": gaussian_sum}
        with pytest.raises(DomainError, match="'b'"):
            share(two, {"a": 1.0, "b": 1e-30}, epsilon=1, delta=1e-2, accountant=GaussianDP())


def test_a_start_at_the_solution_needs_few_costs() -> None:
    def term(sigma: float) -> Term:
        return Repeated(Spend(Gaussian(mu=1 / sigma)), 10)

    both = [Renyi(), GaussianDP()]
    near = calibrate(term, epsilon=1.0, delta=1e-6, accountant=both, start=13.36, digits=1e-3)
    far = calibrate(term, epsilon=1.0, delta=1e-6, accountant=both, start=1.0, digits=1e-3)
    # of several accountants the tightest is kept from the first value on
    assert near.accountant == far.accountant == "gaussian"
    assert near.evaluations <= 5 < far.evaluations
    assert near.value == pytest.approx(far.value, rel=2e-3)
    assert 0.998 <= near.epsilon.upper <= 1.0


def test_an_accountant_that_does_not_reach_the_target_is_not_kept() -> None:
    """One start above the target once kept the one that is tightest there, and refused."""

    def term(value: float) -> Term:
        # by basic composition 1.015 and 1.02, by Renyi's 1.094 and .43
        return Spend(Gaussian(0.24)) if value < 2 else Repeated(Spend(Pure(0.0102)), 100)

    solved = calibrate(
        term, epsilon=1.0, delta=1e-6, accountant=[Basic(), Renyi()], cost="decreasing"
    )
    assert solved.accountant == "renyi"
    assert solved.value == pytest.approx(2.0)
    assert solved.epsilon.upper <= 1.0
