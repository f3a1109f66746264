"""The sampled Gaussian's moments at real orders, against the trapezoid rule at 40 digits."""

from __future__ import annotations

import math
import random

import mpmath as mp
import numpy as np
import pytest

from accountants import Composite, Gaussian, Renyi, Repeated, Sampled, Spend, measure, worlds
from accountants import losses as families
from accountants.losses.sampled_gaussian import (
    _integer_order,
    _trapezoid,
    sampled_gaussian_curve,
    sampled_gaussian_log_moment,
)


def divergence(mu: float, rate: float, order: float, direction: int = 1) -> mp.mpf:
    """D_order of the sampled pair: removal (1) or addition (-1).

    The mean of ``(1 + u)^p - 1 - p u``, ``E u = 0``, is summed at a step of about 40 digits.
    """
    with mp.workdps(45):
        m, q, a = mp.mpf(mu), mp.mpf(rate), mp.mpf(order)
        power = a if direction > 0 else 1 - a
        strip = min(9.0, 3.1 / mu)
        step = mp.mpf(2 * math.pi * strip / (100 + strip * strip / 2))

        def value(x: mp.mpf) -> mp.mpf:
            u = q * mp.expm1(m * x - m * m / 2)
            return mp.exp(-x * x / 2) * ((1 + u) ** power - 1 - power * u)

        first, last = int(-17 / step), int((order * mu + 17) / step)
        mean = mp.fsum(value(i * step) for i in range(first, last + 1)) * step
        return mp.log1p(mean / mp.sqrt(2 * mp.pi)) / (a - 1)


def computed(mu: float, rate: float, order: float) -> mp.mpf:
    curve = families.Sampled(Composite({Gaussian(mu): 1}), rate).renyi(np.array([order]))
    assert curve is not None
    return mp.mpf(float(curve[0]))


@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.25, 1.0, 1 / 0.6, 4.7])
@pytest.mark.parametrize("rate", [1e-7, 1e-4, 0.01, 0.5, 0.97, 1 - 1e-9])
def test_real_orders_are_covered_and_tight_in_both_directions(mu: float, rate: float) -> None:
    draw = random.Random(f"{mu}{rate}")
    for low, high in ((-3, -1.5), (-1.5, 0), (0, 1.3)):
        order = 1 + 10 ** draw.uniform(low, high)
        if order * mu > 30:
            continue
        remove, bound = divergence(mu, rate, order), computed(mu, rate, order)
        assert remove <= bound
        assert divergence(mu, rate, order, -1) <= bound
        # the rounding of u, of order 2^-53 q, beside A - 1, of order (q mu)^2 (order - 1)
        assert bound <= remove * (1 + mp.mpf(1e-12) + mp.mpf(1e-14) / (rate * mu * (order - 1)))


def moment(mu: float, rate: float, power: complex) -> mp.mpc:
    """``log E R^power`` for a power whose real part is not far above 1, at 25 digits."""
    with mp.workdps(30):
        m, q, s = mp.mpf(mu), mp.mpf(rate), mp.mpc(power)
        strip = 2.9 / mu
        step = mp.mpf(2 * math.pi * strip / (60 + abs(power.imag) * mu * strip))
        first, last = int(-12 / step), int((power.real * mu + 12) / step)
        values = (
            mp.exp(
                -((i * step) ** 2) / 2 + s * mp.log(1 - q + q * mp.exp(m * i * step - m * m / 2))
            )
            for i in range(first, last + 1)
        )
        return mp.log(mp.fsum(values) * step / mp.sqrt(2 * mp.pi))


@pytest.mark.parametrize(("mu", "rate"), [(9.0, 1e-6), (12.5, 0.01), (20.0, 0.6)])
def test_of_small_noise_the_closed_form_is_exact(mu: float, rate: float) -> None:
    """Where ``(a - 1) mu^2 / 2 + log q`` is above 40, Minkowski's inequality is an equality."""
    gap = 1 + 2 * (41 - math.log(rate)) / mu**2
    for order in (gap, 2.5 * gap):
        remove, bound = (
            moment(mu, rate, complex(order)).real / (order - 1),
            computed(mu, rate, order),
        )
        assert remove <= bound <= remove * (1 + mp.mpf(1e-13))
        assert sampled_gaussian_log_moment(mu, rate, np.array([complex(order)]))[1][0] < 1e-8
    for power in (complex(gap, 0.01 / mu), complex(2 * gap, -2 / mu)):
        (value,), (error,) = sampled_gaussian_log_moment(mu, rate, np.array([power]))
        exact = moment(mu, rate, power)
        assert abs(1 - mp.exp(mp.mpc(complex(value)) - exact)) <= 1.1 * error
        assert error < 1e-9


def test_no_order_is_without_a_bound() -> None:
    """Beyond the integer orders that are summed, and above the trapezoid rule's numbers."""
    for mu, rate, order in ((0.01, 0.1, 3000.0), (1e-3, 1e-4, 1e6), (5.0, 0.5, 1e5)):
        bound = computed(mu, rate, order)
        # D_a rises in the order, and is at most Minkowski's bound
        assert computed(mu, rate, 2000.0) <= bound
        top = order / (order - 1) * math.log1p(rate * math.expm1(min(700, (order - 1) * mu**2 / 2)))
        assert bound <= top * (1 + 1e-9) or (order - 1) * mu**2 / 2 > 700


@pytest.mark.parametrize("mu", [1e-6, 0.3, 2.0, 30.0])
def test_integer_orders_agree_between_the_two_ways(mu: float) -> None:
    for rate in (1e-5, 0.2, 0.9):
        for order in (2, 3, 7, 16):
            one = _integer_order(mu, order, rate)
            other = float(_trapezoid(mu, np.array([float(order)]), rate)[0])
            assert other == pytest.approx(one, rel=1e-5)


def test_answers_do_not_depend_on_earlier_queries() -> None:
    orders = np.array([1.3, 2.0, 2.7, 9.5, 100.5])
    first = sampled_gaussian_curve(0.7, orders, 0.1)
    first[:] = 0.0  # a caller's own copy
    assert (sampled_gaussian_curve(0.7, orders, 0.1) > 0).all()


# what dp-accounting 0.6 answers with its default orders
@pytest.mark.parametrize(
    ("rate", "sigma", "times", "delta", "peer"),
    [(0.5, 0.6, 100, 1e-9, 141.84), (0.01, 0.6, 100, 1e-9, 8.589)],
)
def test_no_looser_than_a_peer(
    rate: float, sigma: float, times: int, delta: float, peer: float
) -> None:
    term = Repeated(Sampled(Spend(Gaussian(1 / sigma)), rate), times)
    bounds = measure(term, Renyi(), delta=delta).bounds
    assert bounds is not None
    assert bounds.lower < bounds.upper <= peer


@pytest.mark.parametrize(
    ("mu", "order", "rate"),
    [
        (1.2081530778287723, 400, 8.175499283525989e-128),
        (1.1521979387498127, 400, 2.589066718520057e-116),
    ],
)
def test_tiny_rates_at_integer_orders(mu: float, order: int, rate: float) -> None:
    """The second and the last term nearly meet, and the last is made of far larger numbers."""
    with mp.workdps(320):
        q, m = mp.mpf(rate), mp.mpf(mu)
        exact = mp.fsum(
            mp.binomial(order, i)
            * q**i
            * (1 - q) ** (order - i)
            * mp.expm1(m * m * i * (i - 1) / 2)
            for i in range(2, order + 1)
        )
        assert mp.mpf(_integer_order(mu, order, rate)) >= mp.log1p(exact)


def test_the_best_order_may_be_a_corner_of_the_curve() -> None:
    """A heavy tail's curve turns up at once: near the wall no parabola fits."""
    one = Sampled(Spend(Gaussian(mu=1 / 0.6)), 1e-4)
    term = Repeated(one, 100_000)
    bounds = measure(term, Renyi(), delta=1e-7).bounds
    (world,) = worlds(one)
    (loss,) = world.spends
    orders = 1 + np.linspace(4, 20, 8001)
    shape = np.log1p(-1 / orders) - (math.log(1e-7) + np.log(orders)) / (orders - 1)
    curve = loss.renyi(orders)
    assert curve is not None
    assert bounds is not None
    assert bounds.upper <= float((1e5 * curve + shape).min()) * (1 + 1e-5)
