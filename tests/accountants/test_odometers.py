"""Odometers: no adaptive strategy and no stopping rule breaks what they read."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import pytest
from accountants_truth import Pair, real, response
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import Approximate, Gaussian, Laplace, PrivacyLoss, Pure
from accountants.errors import BudgetError, DomainError, InapplicableError
from accountants.filters import ConcentratedFilter
from accountants.odometers import (
    BestOdometer,
    ConcentratedOdometer,
    GaussianOdometer,
    Odometer,
    PureOdometer,
    RenyiOdometer,
)

DELTA = 0.05
ODOMETERS = [
    PureOdometer(),
    RenyiOdometer(DELTA, orders=[2.0, 4.0]),
    RenyiOdometer(DELTA, orders=[3.0], uniform=False),
    RenyiOdometer(DELTA, orders=[2.0, 4.0], uniform=False),
    ConcentratedOdometer(DELTA),
    ConcentratedOdometer(DELTA, orders=3.0, uniform=False),
    GaussianOdometer(DELTA, first=0.5, ratio=1.5, count=6),
    BestOdometer(DELTA),
]
MENU = [(Pure(0.4), response(0.4)), (Pure(1.0), response(1.0))]


def worst(odometer: Odometer, uniform: bool, depth: int) -> mp.mpf:
    """Over all strategies: the most likely crossing, or the largest stopped hockey-stick."""

    def value(state, loss: mp.mpf, left: int) -> mp.mpf:  # type: ignore[no-untyped-def]
        over = loss - real(odometer.epsilon(state))
        if uniform and over > mp.mpf(10) ** -20:
            return mp.mpf(1)
        best = mp.mpf(0) if uniform else max(mp.mpf(0), 1 - mp.exp(-over))
        for spend, pair in MENU if left else []:
            after = odometer.spend(state, spend)
            best = max(best, expected(after, loss, pair, left))
        return best

    def expected(state, loss: mp.mpf, pair: Pair, left: int) -> mp.mpf:  # type: ignore[no-untyped-def]
        return mp.fsum(p * value(state, loss + mp.log(p / q), left - 1) for p, q in pair)

    with mp.workdps(25):
        return value(odometer.start(), mp.mpf(0), depth)


@pytest.mark.parametrize("odometer", ODOMETERS, ids=lambda o: f"{o.name}-{o.uniform}")
def test_no_strategy_breaks_an_odometer(odometer: Odometer) -> None:
    assert odometer.adaptive
    assert odometer.theorem
    depth = 4 if isinstance(odometer, GaussianOdometer | BestOdometer) else 5
    assert worst(odometer, odometer.uniform, depth) <= real(odometer.delta)


def test_the_tighter_reading_is_not_uniform() -> None:
    # the conversion at a stopping rule admits a crossing that a uniform bound does not
    loose = RenyiOdometer(0.5, orders=[1.5], uniform=False)
    strict = RenyiOdometer(0.5, orders=[1.5])
    state = loose.spend(loose.start(), Pure(0.4), 6)
    assert loose.epsilon(state) < strict.epsilon(state)


@examples(40)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.builds(Pure, st.floats(0, 3)), st.builds(Laplace, st.floats(0, 3))),
            st.integers(0, 10**6),
        ),
        max_size=6,
    )
)
def test_running_bounds_rise_and_stay_below_the_sum(spends) -> None:  # type: ignore[no-untyped-def]
    for odometer in (
        PureOdometer(),
        RenyiOdometer(1e-6),
        RenyiOdometer(1e-6, uniform=False),
        ConcentratedOdometer(1e-6),
        BestOdometer(1e-6),
    ):
        state, before, total = odometer.start(), 0.0, Fraction()
        for loss, times in spends:
            state = odometer.spend(state, loss, times)
            total += Fraction(loss.pure()) * times
            epsilon = odometer.epsilon(state)
            assert before <= epsilon
            assert epsilon <= float(total) * (1 + 1e-12)
            before = epsilon
        if isinstance(odometer, PureOdometer):
            assert Fraction(before) >= total


def test_the_price_of_not_knowing_when_to_stop() -> None:
    # beside a filter with the same spends and the same delta, over seven orders of magnitude
    for times in (10**2, 10**4, 10**6, 10**8, 10**9):
        filter_ = ConcentratedFilter(rho=times * 1e-6 / 2)
        filter_epsilon = filter_.guarantee(1e-6).epsilon
        for odometer in (
            RenyiOdometer(1e-6),
            ConcentratedOdometer(1e-6),
            GaussianOdometer(1e-6),
            BestOdometer(1e-6),
        ):
            state = odometer.spend(odometer.start(), Gaussian(1e-3), times)
            assert filter_epsilon * 0.9 <= odometer.epsilon(state) <= 1.45 * filter_epsilon + 0.06


def test_constant_state_and_work() -> None:
    odometer = RenyiOdometer(1e-6, orders=[2.0, 8.0])
    state, sizes = odometer.start(), []
    for i in range(3000):
        state = odometer.spend(state, Pure(1e-7 * (1 + i % 7)))
        if i in (99, 2999):
            sizes.append(sum(s.numerator.bit_length() for s in state.sums))
    assert sizes[1] <= sizes[0] + 20 * len(state.sums)


def test_failures_are_set_aside() -> None:
    odometer = ConcentratedOdometer(1e-6, delta_reserve=1.05e-8)
    loss = Approximate(0.1, 1e-9)
    state = odometer.spend(odometer.start(), loss, 9)
    with pytest.raises(BudgetError) as caught:
        odometer.spend(state, loss, 2)
    assert caught.value.fitting == 1
    assert odometer.epsilon(odometer.spend(state, Pure(0.1))) > odometer.epsilon(state)
    assert PureOdometer().delta == 0
    with pytest.raises(BudgetError):
        PureOdometer().spend(PureOdometer().start(), Approximate(0.0, 1e-300))
    full = PureOdometer(delta_reserve=1e-9)
    assert full.epsilon(full.spend(full.start(), loss)) == 0.1


def test_extremes() -> None:
    tiny = RenyiOdometer(1e-300)
    assert tiny.epsilon(tiny.spend(tiny.start(), Gaussian(1.0))) < 100
    for odometer in ODOMETERS[1:]:
        state = odometer.spend(odometer.start(), Gaussian(1e200))
        assert math.isinf(odometer.epsilon(state))
        assert math.isinf(odometer.epsilon(odometer.spend(state, Pure(0.1))))
    past = GaussianOdometer(1e-6, first=1.0, ratio=2.0, count=2)
    assert math.isfinite(past.epsilon(past.spend(past.start(), Gaussian(2.0))))
    assert math.isinf(past.epsilon(past.spend(past.start(), Gaussian(2.1))))


@pytest.mark.parametrize("value", [-1.0, math.nan, 2.0, "1", None, True])
def test_refusals(value: object) -> None:
    for make in (RenyiOdometer, ConcentratedOdometer, GaussianOdometer):
        with pytest.raises(DomainError):
            make(value)  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        PureOdometer(value)  # type: ignore[arg-type]


def test_more_refusals() -> None:
    for delta in (0.0, 1.0):
        with pytest.raises(InapplicableError):
            RenyiOdometer(delta)
    with pytest.raises(InapplicableError):
        ConcentratedOdometer(1e-6, delta_reserve=1e-6)
    with pytest.raises(DomainError):
        GaussianOdometer(1e-6, ratio=1.0)
    with pytest.raises(DomainError):
        RenyiOdometer(1e-6, orders=1.0)
    with pytest.raises(DomainError):
        PureOdometer().spend(PureOdometer().start(), 0.5)  # type: ignore[arg-type]
    with pytest.raises(InapplicableError):
        PureOdometer().spend(PureOdometer().start(), Gaussian(1.0))
    loss: PrivacyLoss = Pure(0.0)
    assert (
        GaussianOdometer(1e-6).epsilon(
            GaussianOdometer(1e-6).spend(GaussianOdometer(1e-6).start(), loss)
        )
        >= 0
    )
