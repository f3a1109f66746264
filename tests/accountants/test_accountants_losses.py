"""Each loss's functionals against integrals, closed forms and enumeration at 50 digits."""

from __future__ import annotations

import math

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import Approximate, Composite, Envelope, Gaussian, Laplace, PrivacyLoss, Pure
from accountants.definitions import pure_to_gdp, renyi_total
from accountants.losses import Sampled

ORDERS = [1.0001, 1.05, 1.5, 2.0, 2.7, 5.0, 16.0, 63.5, 256.0, 4096.0, 1e6]
EPSILONS = [1e-8, 1e-4, 9.9e-3, 1.1e-2, 0.1, 0.7, 1.0, 3.0, 10.0, 40.0, 300.0]


def at(curve: np.ndarray | None) -> float:
    assert curve is not None
    return float(curve[0])


def orders(order: float) -> np.ndarray:
    return np.array([float(order)])


# --- Gaussian


@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 4.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 3.5, 8.0])
def test_gaussian_renyi_is_the_integral_of_its_densities(mu: float, order: float) -> None:
    m, a = truth.real(mu), truth.real(order)
    # E_Q (P/Q)^a with Q = N(0, 1), P = N(mu, 1)
    moment = truth.normal_expectation(
        lambda x: mp.exp(a * (m * x - m * m / 2)), -14, 14 + order * mu, strip=6
    )
    truth.within(at(Gaussian(mu).renyi(orders(order))), mp.log(moment) / (a - 1), 1e-14, 1e-18)


@pytest.mark.parametrize("mu", [1e-200, 1e-162, 1e-160, 1e-9, 1 / 3, 1e3, 1e100])
def test_gaussian_closed_forms_are_rounded_up(mu: float) -> None:
    loss, m = Gaussian(mu), truth.real(mu)
    for order in ORDERS:
        truth.within(at(loss.renyi(orders(order))), truth.real(order) * m**2 / 2, 2e-15, 1e-323)
    truth.within(loss.rho(), m**2 / 2, 2e-15, 1e-323)
    truth.within(loss.mu(), m, 0)
    truth.within(loss.grouped(7).mu(), 7 * m, 2e-15)


# --- Laplace


def laplace_curve(epsilon: float, order: float) -> mp.mpf:
    e, a = truth.real(epsilon), truth.real(order)
    with mp.workdps(80 + int(2 * abs(math.log10(epsilon)))):
        grow = a / (2 * a - 1) * mp.exp((a - 1) * e)
        fall = (a - 1) / (2 * a - 1) * mp.exp(-a * e)
        return mp.log(grow + fall) / (a - 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.3, 2.0, 9.0])
@pytest.mark.parametrize("order", [1.1, 2.0, 5.5, 20.0])
def test_laplace_renyi_is_the_integral_of_its_densities(epsilon: float, order: float) -> None:
    a = truth.real(order)
    moment = truth.laplace_expectation(lambda loss: mp.exp(a * loss), epsilon)
    assert mp.almosteq(mp.log(moment) / (a - 1), laplace_curve(epsilon, order), 1e-30)
    computed = at(Laplace(epsilon).renyi(orders(order)))
    truth.within(computed, laplace_curve(epsilon, order), 1e-11)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_renyi_is_rounded_up_everywhere(epsilon: float) -> None:
    for order in ORDERS:
        exact = laplace_curve(epsilon, order)
        # the expansion of log(1 + growth - fall) leaves an absolute error of a few units of eps
        truth.within(at(Laplace(epsilon).renyi(orders(order))), exact, 2e-12, 2e-14 * epsilon)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laplace_rho_is_the_supremum_of_the_curve_over_the_order(epsilon: float) -> None:
    rho = Laplace(epsilon).rho()
    ratios = []
    for exponent in np.linspace(-12, 6, 73):
        with mp.workdps(90):
            order = 1 + mp.mpf(10) ** float(exponent)
            ratios.append(laplace_curve(epsilon, order) / order)
    assert max(ratios) <= rho
    assert max(ratios) >= truth.real(rho) * (1 - mp.mpf("1e-9"))
    e = truth.real(epsilon)
    truth.within(rho, e + mp.expm1(-e), 1e-12, 0)


@pytest.mark.parametrize("parts", [(0.5, 0.5), (0.01, 1.0), (3.0, 2.0), (0.2, 0.3)])
def test_laplace_serves_vectors_of_the_same_l1_shift(parts: tuple[float, float]) -> None:
    """Two coordinates that shift by s1 and s2 cost at most one that shifts by s1 + s2."""
    one, two = parts
    total = Laplace(one + two)
    for order in (1.5, 4.0, 50.0):
        both = laplace_curve(one, order) + laplace_curve(two, order)
        assert both <= at(total.renyi(orders(order)))
    second = truth.real(two)

    def rest(t: mp.mpf) -> mp.mpf:  # E_P (1 - e^{t - L2})_+ at any real t
        if t >= second:
            return mp.mpf(0)
        return -mp.expm1((t - second) / 2) if t >= -second else -mp.expm1(t)

    for share in (0.0, 0.2, 0.5, 0.8, 0.99):
        e = share * (truth.real(one) + second)
        s = truth.real(one)
        cuts = sorted(
            {0, s, *(c for c in ((s + second - e) / 2, (s - second - e) / 2) if 0 < c < s)}
        )
        inside = mp.quad(lambda x, e=e, s=s: mp.exp(-x) / 2 * rest(e - s + 2 * x), cuts)
        exact = rest(e - s) / 2 + mp.exp(-s) / 2 * rest(e + s) + inside
        bounds = total.profile(float(e))
        assert exact <= truth.real(bounds.upper) + mp.mpf(10) ** -15


# --- Pure and Approximate


@pytest.mark.parametrize("epsilon", [*EPSILONS, 705.0, 1500.0])
def test_pure_is_exact_randomized_response(epsilon: float) -> None:
    loss = Pure(epsilon)
    with mp.workdps(60 + int(epsilon)):
        pair = truth.response(epsilon)
        for order in ORDERS if epsilon < 100 else ORDERS[:8]:
            exact = truth.renyi(pair, order)
            noise = 1e-14 * (1 + epsilon) / (order - 1)
            truth.within(at(loss.renyi(orders(order))), exact, 2e-14, noise * min(1.0, epsilon))
        e = truth.real(epsilon)
        truth.within(loss.rho(), e * mp.tanh(e / 2), 3e-15)
        for other in (0.0, epsilon / 3, epsilon * 0.999999, epsilon, 2 * epsilon):
            bounds, exact = loss.profile(other), truth.hockey(pair, other)
            truth.within(bounds.upper, exact, 3e-15, 1e-323)
            assert truth.real(bounds.lower) <= exact
            assert bounds.lower >= exact * (1 - mp.mpf(3e-15)) - mp.mpf("1e-323")


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0])
def test_pure_rho_is_the_supremum_over_the_order(epsilon: float) -> None:
    pair = truth.response(epsilon)
    ratios = [truth.renyi(pair, 1 + 10.0**x) / (1 + truth.real(10.0**x)) for x in range(-9, 7)]
    assert max(ratios) <= Pure(epsilon).rho() <= max(ratios) * (1 + mp.mpf("1e-7"))


@pytest.mark.parametrize(
    "epsilon", [1e-12, 1e-6, 0.01, 0.5, 1.0, 1.86, 1.87, 3.0, 20.0, 300.0, 699.0]
)
def test_pure_mu_puts_the_gaussian_below_randomized_responses_trade_off(epsilon: float) -> None:
    mu, grow = truth.real(pure_to_gdp(epsilon)), mp.exp(truth.real(epsilon))
    with mp.workdps(50 + int(epsilon)):
        # mu is exact where Phi(-mu/2) = 1 / (1 + e^eps): the corner of the trade-off curve
        corner = mp.erfc(mu / 2 / mp.sqrt(2)) / 2
        assert corner <= 1 / (1 + grow)
        slack = mp.mpf(1e-13) * mu + mp.mpf(1e-14)
        assert mp.erfc((mu - slack) / 2 / mp.sqrt(2)) / 2 >= 1 / (1 + grow)
        if epsilon > 30:
            return
        for alpha in [mp.mpf(i) / 37 for i in range(1, 37)]:
            response = max(0, 1 - grow * alpha, (1 - alpha) / grow)
            quantile = mp.sqrt(2) * mp.erfinv(1 - 2 * alpha)
            gaussian = mp.erfc(-(-mu + quantile) / mp.sqrt(2)) / 2
            assert response >= gaussian - mp.mpf(10) ** -30


@examples(60)
@given(st.floats(1e-6, 8), st.floats(0, 1), st.floats(0, 10))
def test_approximate_profile_is_the_leaky_response(eps: float, delta: float, other: float) -> None:
    with mp.workdps(400):  # sums cancel down to delta, which may be the least float
        exact = truth.hockey(truth.leaky(eps, delta), other)
    bounds = Approximate(eps, delta).profile(other)
    truth.within(bounds.upper, exact, 1e-14, 1e-38)
    assert truth.real(bounds.lower) <= exact + mp.mpf(10) ** -38


@examples(40)
@given(st.floats(1e-6, 3), st.floats(0, 0.05), st.integers(1, 5))
def test_grouped_approximate_is_the_sum_of_a_chain(eps: float, delta: float, size: int) -> None:
    """``P(S) <= e^eps P'(S) + delta`` along ``size`` steps."""
    grouped = Approximate(eps, delta).grouped(size)
    grow = mp.exp(truth.real(eps))
    geometric = truth.real(delta) * mp.fsum(grow**i for i in range(size))
    truth.within(grouped.pure(), size * truth.real(eps), 2e-15)
    truth.within(grouped.delta_floor(), min(mp.mpf(1), geometric), 1e-13, 1e-322)  # subnormal steps


# --- Sampled


RATES = [1e-8, 1e-5, 1e-3, 0.01, 0.2, 0.5, 0.99, 1 - 1e-10, 1.0]


def sampled(*spends: tuple[object, int], rate: float) -> Sampled:
    return Sampled(Composite(spends), rate)  # type: ignore[arg-type]


@pytest.mark.parametrize("sigma", [0.3, 0.7, 1.1, 4.0, 50.0])
@pytest.mark.parametrize("rate", RATES)
def test_sampled_gaussian_is_exact_at_integer_orders_for_removal(sigma: float, rate: float) -> None:
    mu = 1 / sigma
    loss = sampled((Gaussian(mu), 1), rate=rate)
    for order in (2, 3, 5, 16, 64, 200):
        exact = truth.gaussian_removal(mu, rate, order)
        # the sum is taken in logs: its rounding is some units of log(order!) + exponents
        tolerance = 1e-10 if rate < 1 else 1e-14
        truth.within(at(loss.renyi(orders(order))), exact, tolerance)


def gaussian_moments(mu: float, rate: float, order: float) -> tuple[mp.mpf, mp.mpf]:
    m = truth.real(mu)
    strip = min(3.0, 3.0 / mu)  # zeros of 1 - q + q r lie at Im x = pi / mu
    limit = 13 + order * mu

    def expectation(f):  # type: ignore[no-untyped-def]
        return truth.normal_expectation(lambda x: f(m * x - m * m / 2), -limit, limit, strip)

    with mp.workdps(30):
        return truth.sampled_moments(expectation, rate, order)


@pytest.mark.parametrize(
    ("sigma", "rate", "order"),
    [
        (0.3, 1e-8, 2.5), (0.3, 0.01, 1.7), (0.3, 0.9, 3.0), (0.7, 0.2, 1.1), (0.7, 1e-3, 6.5),
        (1.1, 0.0042, 4.2), (1.1, 0.5, 1.01), (1.1, 0.999, 2.3), (4.0, 0.1, 1.5), (4.0, 0.01, 30.5),
        (4.0, 0.9, 8.0), (50.0, 1e-5, 12.3), (50.0, 0.3, 40.7), (2.0, 0.5, 64.0),
    ],
)  # fmt: skip
def test_sampled_gaussian_covers_both_directions_at_real_orders(
    sigma: float, rate: float, order: float
) -> None:
    loss = sampled((Gaussian(1 / sigma), 1), rate=rate)
    computed = truth.real(at(loss.renyi(orders(order))))
    remove, add = gaussian_moments(1 / sigma, rate, order)
    slack = mp.mpf(10) ** -18 * rate * rate  # of the quadrature
    assert computed >= max(remove, add) - slack
    # the chord lies below the curve's value at the next integer order
    above = truth.gaussian_removal(1 / sigma, rate, max(2, math.ceil(order)))
    assert computed <= above * (1 + mp.mpf("1e-9"))


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2.0, 8.0])
@pytest.mark.parametrize("rate", [1e-8, 0.1, 0.9])
def test_sampled_laplace_covers_both_directions(epsilon: float, rate: float) -> None:
    loss = sampled((Laplace(epsilon), 1), rate=rate)
    for order in (1.05, 3.7, 30.0):
        remove, add = truth.sampled_moments(
            lambda f: truth.laplace_expectation(f, epsilon), rate, order
        )
        computed = truth.real(at(loss.renyi(orders(order))))
        assert computed >= max(remove, add) * (1 - mp.mpf(10) ** -20)


# a weight taken as 1 - 1/(1 + e^-eps) and a log of 1 + q(e^-eps - 1) both cancelled here
@pytest.mark.parametrize("epsilon", [1e-8, 1e-3, 0.1, 1.0, 5.0, 15.0, 20.0, 25.0, 29.0, 31.0, 60.0])
@pytest.mark.parametrize("rate", [*RATES, 1 - 1e-14])
def test_sampled_response_covers_both_directions(epsilon: float, rate: float) -> None:
    loss = sampled((Pure(epsilon), 1), rate=rate)
    q = truth.real(rate)
    with mp.workdps(60 + int(epsilon)):
        pair = [((1 - q) * b + q * a, b) for a, b in truth.response(epsilon)]
        for order in (1.0001, 1.01, 1.5, 2.0, 3.3, 10.0, 50.0, 300.0):
            exact = truth.renyi(pair, order)
            noise = 2e-14 * (1 + epsilon * order) / (order - 1)
            truth.within(at(loss.renyi(orders(order))), exact, 1e-13, noise)
        exact_pure = max(abs(mp.log(a / b)) for a, b in pair)
        truth.within(loss.pure(), exact_pure, 1e-14)
        for other in (0.0, 0.3 * float(exact_pure), 0.9 * float(exact_pure)):
            bounds, exact = loss.profile(other), truth.hockey(pair, other)
            assert truth.real(bounds.lower) <= exact
            assert exact <= truth.real(bounds.upper)


@pytest.mark.parametrize("rate", [1e-8, 0.5, 1.0])
@pytest.mark.parametrize("mu", [0.02, 1.0, 3.3])
def test_sampled_gaussian_profile_by_integration_in_both_directions(mu: float, rate: float) -> None:
    """Removal's region is r > t, an interval of x; addition's likewise."""
    loss, m, q = sampled((Gaussian(mu), 1), rate=rate), truth.real(mu), truth.real(rate)
    for epsilon in (0.0, 1e-6, 0.5, 3.0):
        e = truth.real(epsilon)

        def gap(x: mp.mpf, sign: int, e: mp.mpf = e) -> mp.mpf:
            p0, r = mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi), mp.exp(m * x - m * m / 2)
            mixed = 1 - q + q * r
            return p0 * (mixed - mp.exp(e) if sign > 0 else 1 - mp.exp(e) * mixed)

        remove_from = mp.log((mp.exp(e) - 1 + q) / q) / m + m / 2
        start = max(remove_from, mp.mpf(-40))
        cuts = [start, start + 1, start + 3, start + 8, start + 25, start + 80]
        remove = mp.quad(lambda x: gap(x, 1), cuts)
        below = mp.exp(-e) - 1 + q
        add = mp.mpf(0)
        if below > 0:
            stop = min(mp.log(below / q) / m + m / 2, mp.mpf(40))
            add = mp.quad(lambda x: gap(x, -1), [stop - 80, stop - 25, stop - 8, stop - 3, stop])
        bounds = loss.profile(epsilon)
        assert truth.real(bounds.upper) >= max(remove, add) - mp.mpf(10) ** -25
        assert truth.real(bounds.lower) <= remove + mp.mpf(10) ** -25
        assert bounds.upper <= remove * (1 + mp.mpf(2e-10)) + mp.mpf("1e-15") * q


def test_sampled_mixed_body_covers_both_directions() -> None:
    """Gaussian and Laplace on one sample, by a product rule (relative error about 1e-12)."""
    x, w = np.polynomial.legendre.leggauss(60)
    g = np.linspace(-14, 24, 1500)
    for mu, eps, rate in [(0.5, 0.3, 0.1), (1.0, 2.0, 0.01), (0.2, 1.0, 0.9), (2.0, 0.1, 0.5)]:
        normal = np.exp(-g * g / 2) / math.sqrt(2 * math.pi) * (g[1] - g[0])
        losses = np.concatenate([[-eps, eps], eps * (x + 1) - eps])
        weight = np.concatenate(
            [[0.5, math.exp(-eps) / 2], w * eps / 2 * np.exp(-eps * (x + 1) / 2) / 2]
        )
        ratio = np.exp((mu * g - mu * mu / 2)[:, None] + losses)
        mixed = 1 - rate + rate * ratio
        mass = normal[:, None] * weight
        loss = sampled((Gaussian(mu), 1), (Laplace(eps), 1), rate=rate)
        for order in (1.2, 2.0, 5.0, 8.5):
            computed = at(loss.renyi(orders(order)))
            for power in (order, 1 - order):
                # E (mixed^power - 1 - power (mixed - 1)), since E (mixed - 1) = 0
                excess = float((mass * (mixed**power - 1 - power * (mixed - 1))).sum())
                assert computed >= math.log1p(excess) / (order - 1) * (1 - 1e-9)


def test_sampled_extremes() -> None:
    body = Composite({Gaussian(1.0): 2, Approximate(0.5, 1e-6): 3})
    nothing, everything = Sampled(body, 0.0), Sampled(body, 1.0)
    assert nothing.pure() == nothing.delta_floor() == nothing.renyi(orders(3.0))[0] == 0.0
    assert at(everything.renyi(orders(3.0))) == at(body.renyi(orders(3.0)))
    assert truth.real(everything.delta_floor()) >= 3 * truth.real(1e-6)
    truth.within(Sampled(body, 0.25).delta_floor(), 3 * truth.real(1e-6) / 4, 1e-14)


@examples(40)
@given(
    st.floats(0.05, 4),
    st.floats(0, 0.2),
    st.floats(0.05, 4),
    st.floats(0, 0.2),
    st.floats(0.001, 1),
)
def test_sampled_leaky_body_as_an_approximate_pair(
    e1: float, d1: float, e2: float, d2: float, rate: float
) -> None:
    """The sampled pair, failure and pure epsilon together, dominates the enumerated mixture."""
    pair = truth.product([truth.leaky(e1, d1), truth.leaky(e2, d2)])
    q = truth.real(rate)
    loss = sampled((Approximate(e1, d1), 1), (Approximate(e2, d2), 1), rate=rate)
    failure, eps = truth.real(loss.delta_floor()), loss.pure()
    mixed = [((1 - q) * b + q * a, b) for a, b in pair]
    for share in (0.0, 0.5, 0.9, 1.0):
        other = share * eps
        claimed = failure + (1 - failure) * truth.hockey(truth.response(eps), other)
        assert truth.hockey(mixed, other) <= claimed


# --- Composite and Envelope


@examples(40)
@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(1, 3)), min_size=1, max_size=3))
def test_composite_is_the_product(spends: list[tuple[float, int]]) -> None:
    loss = Composite([(Pure(e), n) for e, n in spends])
    pair = truth.product(truth.response(e) for e, n in spends for _ in range(n))
    truth.within(loss.pure(), mp.fsum(truth.real(e) * n for e, n in spends), 1e-15)
    for order in (1.3, 2.0, 9.0):
        exact = truth.renyi(pair, order)
        truth.within(at(loss.renyi(orders(order))), exact, 1e-13, 1e-13)
    e = [(truth.real(e), n) for e, n in spends]
    truth.within(loss.rho(), mp.fsum(n * x * mp.tanh(x / 2) for x, n in e), 1e-14)
    # a trade-off between hypotheses that every test of the product must respect
    mu = truth.real(loss.mu())
    for epsilon in (0.0, 0.3, 1.0):
        assert truth.hockey(pair, epsilon) <= truth.gaussian_delta(mu, epsilon)


def test_composite_of_gaussians_is_one_gaussian() -> None:
    loss = Composite({Gaussian(0.3): 4, Gaussian(0.5): 1})
    mu = mp.sqrt(4 * truth.real(0.3) ** 2 + truth.real(0.5) ** 2)
    truth.within(loss.mu(), mu, 1e-15)
    bounds = loss.profile(0.7)
    exact = truth.gaussian_delta(mu, 0.7)
    assert truth.real(bounds.lower) <= exact <= truth.real(bounds.upper)
    assert Composite({Gaussian(1.0): 1, Laplace(1.0): 1}).profile(0.1) is None
    assert Composite({Gaussian(1.0): 1, Laplace(1.0): 1}).pure() is None
    assert Composite({Gaussian(1.0): 1, Approximate(1.0, 0.25): 2}).delta_floor() == 0.5


def test_envelope_is_the_largest_of_each_functional() -> None:
    loss = Envelope((Pure(0.5), Laplace(0.9), Approximate(0.2, 0.1)))
    assert loss.delta_floor() == 0.1
    assert loss.pure() == 0.9
    for order in (1.5, 3.0, 1e3):
        every = [truth.renyi(truth.response(e), order) for e in (0.5, 0.2)]
        exact = max(*every, laplace_curve(0.9, order))
        truth.within(at(loss.renyi(orders(order))), exact, 1e-12)
    assert Envelope((Pure(0.5), Gaussian(1.0))).pure() is None
    assert Envelope((Pure(0.5), Gaussian(1.0))).mu() is None
    assert loss.grouped(2).pure() >= 1.8


def test_composite_merges_equal_losses_before_it_compares() -> None:
    one, two = Composite({Pure(1.0): 1}), Composite([(Pure(1.0), 1), (Pure(1.0), 1)])
    assert two == Composite({Pure(1.0): 2})
    assert two.dominates(one)
    assert not one.dominates(two)
    assert two.pure() == 2.0
    assert Composite([(Pure(1.0), 0)]) == Composite(())
    # neighbouring floats whose groups are one loss
    x = 1 / 3
    close = Composite([(Pure(x), 1), (Pure(math.nextafter(x, 1.0)), 1)]).grouped(3)
    assert sum(times for _, times in close.spends) == 2
    assert not Composite({max((s for s, _ in close.spends), key=lambda s: s.pure()): 1}).dominates(
        close
    )


@pytest.mark.parametrize("size", [2, 3, 7, 100, 690])
def test_grouped_approximate_holds_where_the_exponent_amplifies_rounding(size: int) -> None:
    for eps in (0.1, 0.3, 0.7, 0.999, 1 / 3):
        delta = 1e-300
        grow = mp.exp(truth.real(eps))
        exact = truth.real(delta) * (grow**size - 1) / (grow - 1)
        truth.within(
            Approximate(eps, delta).grouped(size).delta_floor(), min(mp.mpf(1), exact), 1e-12
        )


def test_infinite_parts_are_infinite() -> None:
    class Infinite(PrivacyLoss):
        def pure(self) -> float:
            return math.inf

    loss = Composite({Infinite(): 1, Pure(1.0): 2})
    assert loss.pure() == loss.rho() == loss.mu() == math.inf
    assert Composite({Gaussian(1e200): 1}).mu() == math.inf
    assert Composite(()).pure() == Composite(()).rho() == Composite(()).mu() == 0.0


@pytest.mark.parametrize("scale", [1e-8, 0.1, 40.0])
def test_curves_of_many_responses_are_added_at_once(scale: float) -> None:
    losses = [(Pure(scale * (1 + i / 64)), 1 + i % 3) for i in range(64)]
    every = np.array([1.001, 2.0, 63.5, 1e6])
    for order, total in zip(every, renyi_total(losses, every), strict=True):
        with mp.workdps(60):
            alpha, exact = mp.mpf(float(order)), mp.mpf(0)
            for loss, times in losses:
                half = mp.mpf(loss.epsilon) / 2
                exact += times * mp.log(mp.cosh((2 * alpha - 1) * half) / mp.cosh(half))
            assert exact <= total * (alpha - 1) <= exact * (1 + mp.mpf(10) ** -9)
