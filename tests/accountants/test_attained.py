"""Lower ends for losses whose own pair is an upper bound only: what some mechanism attains.

The truths are laws of whole mechanisms, by enumeration of samples and outcomes and by integrals.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from scipy import integrate, special

from accountants import (
    Allocated,
    Approximate,
    BoundedRange,
    Distribution,
    Gaussian,
    Laplace,
    PrivacyLoss,
    Pure,
    Repeated,
    ReplacedSample,
    Sampled,
    Sequential,
    Spend,
    Subset,
    Term,
    measure,
)
from accountants.losses.allocation import Allocated as AllocatedLoss
from accountants.losses.composite import Composite
from accountants.losses.sampling import FixedSize
from accountants.losses.selection import PermuteAndFlip

POINTS = np.array([-1.5, -0.4, -0.05, 0.0, 0.05, 0.4, 1.0])


def bracketed(term: Term, exact: truth.Pair, epsilon: float, *, share: float) -> None:
    """The bracket of delta holds the truth of a mechanism, and starts next to it."""
    bounds = measure(term, Distribution(), epsilon=epsilon).bounds
    assert bounds is not None
    true = truth.Profile(exact)(epsilon)
    assert bounds.lower <= true * (1 + mp.mpf(10) ** -13)
    assert true <= bounds.upper
    assert bounds.lower >= share * true


def answers(eps: float, is_one: bool) -> list[mp.mpf]:
    """Randomized response to whether a sample holds a 1."""
    more = 1 / (1 + mp.exp(-truth.real(eps)))
    return [more, 1 - more] if is_one else [1 - more, more]


def on_samples(rows: tuple[int, ...], chances: dict, eps: float) -> list[mp.mpf]:  # type: ignore[type-arg]
    law = [mp.mpf(0), mp.mpf(0)]
    for chosen, chance in chances.items():
        told = answers(eps, any(rows[i] for i in chosen))
        law = [a + truth.real(chance) * b for a, b in zip(law, told, strict=True)]
    return law


@pytest.mark.parametrize(("size", "of", "eps"), [(1, 3, 1.0), (2, 5, 0.3), (3, 4, 2.0)])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.5])
def test_samples_of_a_fixed_size(size: int, of: int, eps: float, epsilon: float) -> None:
    chosen = list(itertools.combinations(range(of), size))
    chances = {one: Fraction(1, len(chosen)) for one in chosen}
    with_unit = on_samples((1,) + (0,) * (of - 1), chances, eps)
    without = on_samples((0,) * of, chances, eps)
    exact = truth.product([list(zip(with_unit, without, strict=True))] * 6)
    term = Repeated(Subset(Spend(Pure(eps)), size, of), 6)
    bracketed(term, exact, epsilon, share=1 - 1e-9)


def test_poisson_samples_of_which_a_unit_is_replaced() -> None:
    """Laplace noise, a unit that is replaced by one that adds nothing: an integral, one round."""
    eps, rate = 0.8, 0.2
    bounds = measure(ReplacedSample(Spend(Laplace(eps)), rate), Distribution(), epsilon=0.1).bounds
    e, q, t = truth.real(eps), truth.real(rate), mp.exp(truth.real(0.1))

    def gain(x: mp.mpf) -> mp.mpf:
        absent, present = mp.exp(-abs(x)) / 2, mp.exp(-abs(x - e)) / 2
        return max(mp.mpf(0), (1 - q) * absent + q * present - t * absent)

    crossing = (e + mp.log((t - 1 + q) / q)) / 2
    true = mp.quad(gain, [crossing, e, 40])
    assert bounds is not None
    assert true * (1 - mp.mpf("1e-9")) <= bounds.lower <= true * (1 + mp.mpf("1e-9"))
    assert bounds.lower < bounds.upper


@pytest.mark.parametrize(
    ("loss", "fails"),
    [(Pure(0.5), 0.0), (PermuteAndFlip(0.5), 0.0), (Approximate(0.5, 1e-6), 3e-6)],
)
def test_a_unit_replaced_where_all_are_in_the_sample(loss: PrivacyLoss, fails: float) -> None:
    """Two steps of e^eps, by the law between them: less than one step of e^(2 eps)."""
    # events of two pure steps: F(F(x)) with F(x) = min(e^eps x, 1 - e^-eps (1 - x))
    grow, t, x = math.exp(0.5), math.exp(0.3), np.linspace(0.0, 1.0, 100_001)
    once = np.minimum(grow * x, 1 - (1 - x) / grow)
    most = np.max(np.minimum(grow * once, 1 - (1 - once) / grow) - t * x) + fails
    bounds = measure(ReplacedSample(Spend(loss), 1.0), Distribution(), epsilon=0.3).bounds
    assert bounds.lower <= most + 1e-4
    if not fails:
        assert most - 1e-9 <= bounds.upper <= most + 1e-4


def allocation(eps: float, steps: int, times: int = 1) -> truth.Pair:
    """Outcomes by what each step told: the unit in ``times`` of the steps, others add nothing."""
    sets = list(itertools.combinations(range(steps), times))
    pair = []
    for told in itertools.product((0, 1), repeat=steps):
        chance = [[answers(eps, is_in)[o] for o in told] for is_in in (False, True)]
        q = mp.fprod(chance[0])
        p = mp.fsum(
            mp.fprod(chance[i in chosen][i] for i in range(steps)) for chosen in sets
        ) / len(sets)
        pair.append((p, q))
    return pair


@pytest.mark.parametrize(("eps", "steps"), [(1.0, 2), (0.3, 5), (3.0, 3)])
def test_allocated_responses_lie_in_the_bracket(eps: float, steps: int) -> None:
    twice = truth.product([allocation(eps, steps)] * 2)
    term = Repeated(Allocated(Spend(Pure(eps)), steps), 2)
    for epsilon in (0.0, eps / 4):
        bracketed(term, twice, epsilon, share=0.98)


def test_several_of_the_steps_have_no_lower_end() -> None:
    term = Allocated(Spend(Pure(1.0)), steps=4, times=2)
    bounds = measure(term, Distribution(), epsilon=0.2).bounds
    assert bounds is not None
    assert bounds.lower == 0
    assert bounds.upper >= truth.Profile(allocation(1.0, 4, 2))(0.2)
    # what their blocks would attain is above the truth
    blocks = Repeated(Allocated(Spend(Pure(1.0)), steps=2), 2)
    claimed = measure(blocks, Distribution(), epsilon=0.2).bounds
    assert claimed is not None
    assert claimed.lower > truth.Profile(allocation(1.0, 4, 2))(0.2)


def of_two(mu: float, loss: float) -> float:
    """``E ((r1 + r2)/2 - e^loss)_+`` of two lognormal ratios: half-lines of r2, integrated over r1.

    Next to ``r1 = 2 e^loss`` by the log of what r2 must be at least, which is rough there.
    """
    k = 2 * math.exp(loss)

    def density(z: np.ndarray) -> np.ndarray:
        return np.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    def beyond(ratio: np.ndarray, log_least: np.ndarray) -> np.ndarray:
        z = log_least / mu + mu / 2
        return (ratio * special.ndtr(-z) + special.ndtr(mu - z)) / 2 - k / 2 * special.ndtr(-z)

    logs = np.linspace(math.log(k / 2) - 40 * max(mu, 1.0), math.log(k / 2), 100_001)
    ratio = k - np.exp(logs)
    near = beyond(ratio, logs) * density(np.log(ratio) / mu + mu / 2) * np.exp(logs) / ratio / mu
    x = np.linspace(-14.0, math.log(k / 2) / mu + mu / 2, 20_001)
    ratio = np.exp(mu * x - mu * mu / 2)
    far = beyond(ratio, np.log(k - ratio)) * density(x)
    z = math.log(k) / mu + mu / 2
    above = (special.ndtr(-z) + special.ndtr(mu - z)) / 2 - k / 2 * special.ndtr(-z)
    return float(integrate.simpson(near, x=logs) + integrate.simpson(far, x=x) + above)


@pytest.mark.parametrize("mu", [0.3, 1.2, 3.0])
def test_two_allocated_gaussians_by_half_lines(mu: float) -> None:
    loss = AllocatedLoss(Composite([(Gaussian(mu), 1)]), 2)
    attained, pair = loss.attained_pair(), loss.pair()
    assert attained is not None
    assert pair is not None
    for at in POINTS.tolist():
        removal = of_two(mu, at)
        # H_{1/t}(Q || P) = (H_t(P || Q) - 1 + t) / t
        addition = (removal - 1 + math.exp(at)) * math.exp(-at)
        for true, sign in ((removal, 1), (addition, -1)):
            low = (attained if sign > 0 else attained.reversed()).profile(np.array([sign * at]))[0]
            high = (pair if sign > 0 else pair.reversed()).profile(np.array([sign * at]))[1]
            assert low <= true * (1 + 1e-10) + 1e-13
            assert high >= true * (1 - 1e-10) - 1e-13
            assert high - low <= true * (3e-5 if sign > 0 else 3e-4) + 1e-12


@pytest.mark.parametrize(("mu", "steps"), [(0.7, 20), (1.0, 100)])
def test_many_allocated_gaussians_by_a_laplace_transform(mu: float, steps: int) -> None:
    """``E (K - S)_+`` is the integral of ``e^{sK} (E e^{-sr})^t / s^2`` on a line, over 2 pi i."""
    z = np.linspace(-9, 12, 1001)
    weight = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    ratio = np.exp(mu * z - mu * mu / 2)
    deviation = math.sqrt(steps * math.expm1(mu * mu))
    omega = np.linspace(0, 60 / deviation, 4001)
    s = 1 / deviation + 1j * omega
    powers = np.array([weight @ np.exp(-one * ratio) for one in s]) ** steps / s**2
    assert abs(powers[-1]) < 1e-13 * abs(powers[0])
    loss = AllocatedLoss(Composite([(Gaussian(mu), 1)]), steps)
    attained, pair = loss.attained_pair(), loss.pair()
    assert attained is not None
    assert pair is not None
    for at in (-0.5, -0.1, 0.0, 0.2, 0.5):
        t = math.exp(at)
        below = integrate.simpson((np.exp(s * steps * t) * powers).real, x=omega) / math.pi
        true = 1 - t + below / steps
        low = attained.profile(np.array([at]))[0][0]
        high = pair.profile(np.array([at]))[1][0]
        assert low - 1e-12 <= true <= high + 1e-12
        assert high - low <= 4e-5 * true


@pytest.mark.parametrize("steps", [3, 64, 1000])
def test_the_ratio_s_variance_is_below_the_true_one_and_next_to_it(steps: int) -> None:
    mu = 0.9
    pair = AllocatedLoss(Composite([(Gaussian(mu), 1)]), steps).attained_pair()
    assert pair is not None
    x, q = np.exp(pair.losses), np.array(pair.q)  # type: ignore[attr-defined]
    true = math.expm1(mu * mu) / steps
    assert true * (1 - 5e-6) <= float(q @ (x - 1) ** 2) <= true * (1 + 1e-9)
    assert math.isclose(q.sum(), 1, rel_tol=1e-9)
    assert math.isclose(q @ x, 1, rel_tol=1e-9)


def test_what_attains_nothing_known_is_left_out() -> None:
    known = Repeated(Spend(Laplace(epsilon=0.1)), 30)
    both = measure(Sequential([known, Spend(BoundedRange(1.0))]), Distribution(), delta=1e-6).bounds
    alone = measure(known, Distribution(), delta=1e-6).bounds
    assert both is not None
    assert alone is not None
    assert alone.lower <= both.lower < both.upper


@pytest.mark.parametrize(("mu", "rate"), [(0.7, 0.3), (2.0, 0.01)])
def test_three_values_equally_far_apart_by_integrals(mu: float, rate: float) -> None:
    """Laws in other coordinates: the others' value at the origin, one of the unit's on an axis."""
    loss = FixedSize(Composite([(Gaussian(mu), 1)]), size=round(100 * rate), of=100)
    pair = loss.attained_by_many()
    assert pair is not None
    x = np.linspace(-9, 9 + mu, 1801)
    at, across = np.meshgrid(x, x)
    a, b = np.array([mu, 0.0]), mu * np.array([0.5, math.sqrt(0.75)])
    assert np.linalg.norm(a - b) == pytest.approx(mu)

    def density(mean: np.ndarray) -> np.ndarray:
        return np.exp(-((at - mean[0]) ** 2 + (across - mean[1]) ** 2) / 2) / (2 * math.pi)

    rest = (1 - rate) * density(np.zeros(2))
    p, q = rest + rate * density(a), rest + rate * density(b)
    assert p.sum() * (x[1] - x[0]) ** 2 == pytest.approx(1)
    for epsilon in (-0.3, -0.001, 0.0, 0.003, 0.2, 1.0):
        true = np.maximum(p - math.exp(epsilon) * q, 0).sum() * (x[1] - x[0]) ** 2
        low = float(pair.profile(np.array([epsilon]))[0][0])
        assert low <= true * (1 + 1e-4) + 1e-9
        assert low >= true * 0.99 - 1e-6


def test_many_samples_of_a_fixed_size_have_a_lower_end_above_a_poisson_samples() -> None:
    many = Repeated(Subset(Spend(Gaussian(1.0)), size=100, of=60_000), 50_000)
    bounds = measure(many, Distribution(), delta=1e-5).bounds
    assert bounds is not None
    poisson = Repeated(Sampled(Spend(Gaussian(1.0)), rate=100 / 60_000), 50_000)
    alike = measure(poisson, Distribution(), delta=1e-5).bounds
    assert alike is not None
    assert 1.1 * alike.lower < bounds.lower
    assert 0.82 * bounds.upper < bounds.lower < bounds.upper
    few = Repeated(Subset(Spend(Gaussian(1.0)), size=100, of=60_000), 1)
    one = measure(few, Distribution(), delta=1e-5).bounds
    assert one is not None
    assert one.upper - one.lower < 1e-6 * one.upper
