"""Published and recomputed reference values.

``EXACT``: analytic Gaussian (Balle and Wang 2018) at 60 digits. ``BRACKETS``: Laplace sums by
exact Irwin-Hall mixtures or a contour-trapezoid in ball arithmetic (160 bit) with closed-form
moments and alias and tail bounds; Poisson-subsampled Gaussians likewise, moments by rigorous
integration, the far tail by a grid with a Lipschitz and a total-variation argument; one-step
values by the hockey-stick at 50 digits. Randomized response: binomial sums (Kairouz, Oh and
Viswanath 2015, Thm 3.3) at 60 digits, or enumeration (Murtagh and Vadhan 2016, Thm 1.5).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from accountants import (
    ACCOUNTANTS,
    Advanced,
    Basic,
    Composite,
    Concentrated,
    Gaussian,
    GaussianDP,
    Laplace,
    Pure,
    Renyi,
    Repeated,
    Sampled,
    Sequential,
    Spend,
    Term,
    certify,
    measure,
)
from accountants import losses as families
from accountants.advanced import textbook
from accountants.definitions import renyi_epsilon

# sigma, times, delta, epsilon
GAUSSIANS = [
    (10.0, 1, 1e-5, 0.3406693646843264107490682),
    (10.0, 100, 1e-5, 4.377178095681224627650116),
    (10.0, 10_000, 1e-5, 91.81728962466374468493167),
    (1.0, 1, 1e-30, 11.74388302523173625397514),
    (0.2, 100, 1e-6, 1486.716041494015127879042),
    (100.0, 1, 1e-9, 0.04886639301570327253856112),
    (50.0, 10_000_000, 1e-30, 2724.129617208713989199152),
    (1000.0, 1, 1e-12, 0.005699546468426282095945241),
]
# sigma, times, epsilon, delta
GAUSSIAN_DELTAS = [
    (10.0, 100, 1.0, 0.1269367375066439458008296),
    (1.0, 1, 10.0, 9.812705826846955949223311e-23),
    (0.5, 1, 100.0, 0.0),  # 1.3587e-525
]
# epsilon of each, times, delta, bracket
LAPLACES = [
    (1.0, 1, 1e-6, 0.9999979999989999993333328, 0.9999979999989999993333328),
    (1.0, 2, 1e-6, 1.9999959999999999, 1.999996),
    (1.0, 10, 1e-5, 9.989962311150627, 9.989962311150629),
    (0.1, 100, 1e-5, 4.22034732508024, 4.2203473250803825),
    (0.1, 1000, 1e-5, 17.42365198753737, 17.42365198753787),
    (0.1, 3000, 1e-9, 46.045093270738406, 46.0450932707389),
    (1.0, 1000, 1e-6, 486.29750944342203, 486.29750944342857),
]
RESPONSES = [
    (0.1, 10, 1e-6, 0.999370905721758725),
    (0.1, 1000, 1e-6, 19.3446714479930437),
    (0.01, 2000, 1e-10, 2.74868895600476803),
]
MURTAGH_VADHAN = [
    ([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], 1e-3, 2.074615561426659845202601),
    ([1.0, 0.5, 0.25, 0.125, 2.0], 1e-2, 3.787757247668341371507871),
]
# rate, sigma, steps, delta, bracket
SAMPLED = [
    (0.004266666666666667, 1.1, 14063, 1e-5, 2.3816897261350873, 2.3816897261607872),
    (0.001, 1.0, 10_000, 1e-6, 0.5551396679127625, 0.5551396679384625),
    (0.1, 4.0, 1000, 1e-6, 3.86883233846393, 3.86883233846443),
    (0.01, 1.0, 10_000, 1e-12, 10.346689837669443, 10.346689837675942),
    (0.05, 0.7, 1000, 1e-5, 24.160464560380547, 24.160464560382245),
    (0.01, 1.1, 10_000_000, 1e-6, 801.1575537521038, 801.1575541715343),
    (0.5, 0.3, 1, 1e-4, 15.98509994734275, 15.98509994734276),
    (0.9, 2.0, 1, 1e-6, 2.149103250662395, 2.149103250662396),
    (0.001, 1.0, 1, 1e-12, 0.3914145245842397, 0.3914145245842398),
]
# of 1000 and 300 losses: see `heterogeneous`
HETEROGENEOUS = [
    (1000, 1e-6, 3.7047784501846293, 3.704778450184829),
    (300, 1e-5, 1.6672167274598655, 1.6672167274600653),
]


def times(loss: families.Gaussian | families.Pure | families.Laplace, count: int) -> Term:
    return Repeated(Spend(loss), count)


def check(term: Term, delta: float, low: float, high: float) -> None:
    """Every accountant that answers has its upper >= low and its lower <= high."""
    answers = [a.bounds for a in certify(term, delta).values() if a.bounds is not None]
    assert answers
    for bounds in answers:
        assert bounds.upper >= low * (1 - 2e-16)
        assert bounds.lower <= high * (1 + 2e-16)


@pytest.mark.parametrize(("sigma", "count", "delta", "epsilon"), GAUSSIANS)
def test_gaussians(sigma: float, count: int, delta: float, epsilon: float) -> None:
    # mu = 1/sigma is rounded to a float: 1e-15 of epsilon either way
    check(times(Gaussian(1 / sigma), count), delta, epsilon * (1 - 1e-15), epsilon * (1 + 1e-15))
    bounds = measure(times(Gaussian(1 / sigma), count), GaussianDP(), delta=delta).bounds
    assert bounds is not None
    assert bounds.lower == pytest.approx(epsilon, rel=1e-9)
    assert bounds.upper == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("sigma", "count", "epsilon", "delta"), GAUSSIAN_DELTAS)
def test_gaussian_deltas(sigma: float, count: int, epsilon: float, delta: float) -> None:
    term = times(Gaussian(1 / sigma), count)
    for accountant in ACCOUNTANTS:
        bounds = measure(term, accountant, epsilon=epsilon).bounds
        assert bounds is not None
        assert bounds.lower * (1 - 1e-12) <= delta <= bounds.upper * (1 + 1e-12)
    exact = measure(term, GaussianDP(), epsilon=epsilon).bounds
    assert exact is not None
    assert exact.upper == pytest.approx(delta, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("eps", "count", "delta", "low", "high"), LAPLACES)
def test_laplaces(eps: float, count: int, delta: float, low: float, high: float) -> None:
    check(times(Laplace(eps), count), delta, low, high)
    check(Sequential([Spend(Laplace(eps))] * min(count, 30)), delta, 0.0, math.inf)


@pytest.mark.parametrize(("eps", "count", "delta", "epsilon"), RESPONSES)
def test_randomized_responses_are_exact(
    eps: float, count: int, delta: float, epsilon: float
) -> None:
    check(times(Pure(eps), count), delta, epsilon, epsilon)
    bounds = measure(times(Pure(eps), count), Advanced(), delta=delta).bounds
    assert bounds is not None
    assert bounds.lower == pytest.approx(epsilon, rel=1e-9)
    assert bounds.upper == pytest.approx(epsilon, rel=1e-9)


@pytest.mark.parametrize(("each", "delta", "epsilon"), MURTAGH_VADHAN)
def test_heterogeneous_responses(each: list[float], delta: float, epsilon: float) -> None:
    term = Sequential([Spend(Pure(e)) for e in each])
    check(term, delta, epsilon, epsilon)
    bounds = measure(term, Advanced(), delta=delta).bounds
    assert bounds is not None
    assert bounds.upper <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "sigma", "steps", "delta", "low", "high"), SAMPLED)
def test_sampled_gaussians(
    rate: float, sigma: float, steps: int, delta: float, low: float, high: float
) -> None:
    check(Repeated(Sampled(Spend(Gaussian(1 / sigma)), rate), steps), delta, low, high)


def test_sampled_gaussian_deltas() -> None:
    # one step, exact hockey-stick; and a composition, removal only, where a peer under-reports
    one = Sampled(Spend(Gaussian(1 / 0.7)), 0.2)
    many = Repeated(Sampled(Spend(Gaussian(1 / 1.1)), 0.004266666666666667), 14063)
    for term, epsilon, delta in [
        (one, 1.0, 0.01778052981477569110297806),
        (many, 4.0, 6.569963128179488e-12),
    ]:
        for accountant in (Renyi(), Basic(), Advanced()):
            bounds = measure(term, accountant, epsilon=epsilon).bounds
            assert bounds is not None
            assert bounds.upper >= delta * (1 - 1e-15)
            assert bounds.lower <= delta * (1 + 1e-15)
    exact = measure(one, Basic(), epsilon=1.0).bounds
    assert exact is not None
    assert exact.upper == pytest.approx(0.01778052981477569110297806, rel=1e-9)


@pytest.mark.parametrize(("count", "delta", "low", "high"), HETEROGENEOUS)
def test_heterogeneous_mixture(count: int, delta: float, low: float, high: float) -> None:
    """i % 5 < 2: Gaussian; < 4: Laplace; else randomized response; u = (7919 i mod n) / n."""
    spends: list[Term] = []
    for i in range(count):
        u = ((i * 7919) % count) / count
        kinds = [Gaussian(1 / (30 + 70 * u)), Laplace(1 / (20 + 80 * u)), Pure(0.01 + 0.05 * u)]
        spends.append(Spend(kinds[(i % 5) // 2]))
    check(Sequential(spends), delta, low, high)


# rate, sigma, order, divergence (removal), by quadrature at 40 digits
@pytest.mark.parametrize(
    ("rate", "sigma", "order", "divergence", "tolerance"),
    [
        (0.01, 1.0, 32.0, 11.24627593704806883540821, 1e-12),
        (0.1, 4.0, 1.5, 0.0004821344823229757896438808, 0.5),
        (0.5, 2.0, 64.0, 7.295850630032513694944742, 1e-12),
    ],
)
def test_sampled_renyi(
    rate: float, sigma: float, order: float, divergence: float, tolerance: float
) -> None:
    loss = families.Sampled(Composite({Gaussian(1 / sigma): 1}), rate)
    curve = loss.renyi(np.array([order]))
    assert curve is not None
    assert divergence * (1 - 1e-15) <= curve[0] <= divergence * (1 + tolerance)


@pytest.mark.parametrize(
    ("eps", "order", "divergence"),
    [(1.0, 1.5, 0.5128835112945085956011492), (0.01, 10.0, 0.0004975952377351465234024624)],
)
def test_laplace_renyi(eps: float, order: float, divergence: float) -> None:
    """Mironov 2017, Prop. 6."""
    curve = Laplace(eps).renyi(np.array([order]))
    assert divergence * (1 - 1e-15) <= curve[0] <= divergence * (1 + 1e-10)


@pytest.mark.parametrize(
    ("rho", "delta", "epsilon"),
    [(0.01, 1e-9, 0.8101744678675341638100049), (1e-4, 1e-6, 0.05372712063485986802495242)],
)
def test_zcdp_conversion(rho: float, delta: float, epsilon: float) -> None:
    """Canonne, Kamath and Steinke 2020, Prop. 12, minimized over the order at 60 digits."""
    value, _ = renyi_epsilon(lambda orders: orders * rho, delta)
    assert epsilon * (1 - 1e-14) <= value <= epsilon * (1 + 1e-9)


def test_anchors() -> None:
    one = Spend(Gaussian(1.0))
    for accountant in (Renyi(), Concentrated()):
        bounds = measure(one, accountant, delta=1e-5).bounds
        assert bounds is not None
        assert round(bounds.upper, 4) == 4.7284
    # q = .01, sigma = 4, T = 10^4 at Abadi et al.'s delta
    steps = Repeated(Sampled(Spend(Gaussian(0.25)), 0.01), 10_000)
    bounds = measure(steps, Renyi(), delta=4.2436e-6).bounds
    assert bounds is not None
    assert round(bounds.upper, 4) == 1.0871
    assert round(textbook(0.1, 100, 1e-6), 4) == 6.3082
    assert round(textbook(0.1, 100, 1e-5), 4) == 5.8502
    for delta in (1e-5, 1e-6):
        bounds = measure(times(Pure(0.1), 100), Advanced(), delta=delta).bounds
        assert bounds is not None
        assert bounds.upper <= textbook(0.1, 100, delta)
