"""Noise that is drawn from an interval, against integrals of its two densities."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest

from accountants import (
    Basic,
    Distribution,
    Gaussian,
    Grouped,
    InapplicableError,
    Laplace,
    PrivacyLoss,
    Renyi,
    Repeated,
    Spend,
    TruncatedGaussian,
    TruncatedLaplace,
    measure,
)
from accountants.errors import DomainError
from accountants.pair import Symmetric

LAPLACE = [(1.0, 12.0), (0.1, 1.0), (0.1, 30.0), (3.0, 1.5), (1e-3, 1e3), (8.0, 4.0), (0.5, 1.0001)]
GAUSSIAN = [(0.5, 10.0), (1.0, 1.0), (1.0, 30.0), (3.0, 1.5), (0.1, 60.0), (20.0, 1.2), (1e-6, 1e6)]
SHARES = [-1.1, -0.5, 0.0, 0.01, 0.3, 0.9, 0.999, 1.0, 1.5]
"""Epsilons, as shares of the largest loss."""


def laplace_mass(eps: float, bound: float) -> Callable[[object, object], mp.mpf]:
    """The noise's mass of an interval, in sensitivities: an integral of ``e^{-eps |x|}``."""
    eps, bound = truth.real(eps), truth.real(bound)

    def half(x: mp.mpf) -> mp.mpf:
        return mp.sign(x) * -mp.expm1(-eps * abs(x))

    def mass(low: mp.mpf, high: mp.mpf) -> mp.mpf:
        low, high = max(low, -bound), min(high, bound)
        return (half(high) - half(low)) / (2 * half(bound)) if low < high else mp.mpf(0)

    return mass


def gaussian_mass(mu: float, bound: float) -> Callable[[object, object], mp.mpf]:
    mu, bound = truth.real(mu), truth.real(bound)

    def mass(low: mp.mpf, high: mp.mpf) -> mp.mpf:
        low, high = max(low, -bound), min(high, bound)
        if low >= high:
            return mp.mpf(0)
        ends = [mp.erfc(mu * x / mp.sqrt(2)) for x in (low, high, -bound, bound)]
        return (ends[0] - ends[1]) / (ends[2] - ends[3])

    return mass


def hockey_stick(mass: Callable, bound: float, loss: Callable, t: mp.mpf) -> mp.mpf:  # type: ignore[type-arg]
    """The noise on 1 against the noise on 0, by bisection for where the ratio is t."""
    bound = truth.real(bound)
    alone = mass(bound - 1, bound)  # the sum is above A: impossible under Q
    low, high = 1 - bound, bound  # both are possible, the ratio rises
    if mp.exp(loss(high)) <= t:
        return alone
    for _ in range(220):
        middle = (low + high) / 2
        low, high = (middle, high) if mp.exp(loss(middle)) <= t else (low, middle)
    return alone + mass(low - 1, bound - 1) - t * mass(low, bound)


CASES = [
    *(
        (
            TruncatedLaplace(eps, bound),
            laplace_mass(eps, bound),
            bound,
            lambda x, e=eps: truth.real(e) * (abs(x) - abs(x - 1)),
        )
        for eps, bound in LAPLACE
    ),
    *(
        (
            TruncatedGaussian(mu, bound),
            gaussian_mass(mu, bound),
            bound,
            lambda x, m=mu: truth.real(m) ** 2 * (x - mp.mpf(1) / 2),
        )
        for mu, bound in GAUSSIAN
    ),
]


@pytest.mark.parametrize(
    ("loss", "mass", "bound", "ratio"), CASES, ids=[repr(case[0]) for case in CASES]
)
def test_one_release_is_the_integral(
    loss: PrivacyLoss,
    mass: Callable,  # type: ignore[type-arg]
    bound: float,
    ratio: Callable,  # type: ignore[type-arg]
) -> None:
    with mp.workdps(80):
        top = loss.pure()
        assert top is not None
        for share in SHARES:
            epsilon = share * top
            true = hockey_stick(mass, bound, ratio, mp.exp(truth.real(epsilon)))
            bounds = loss.profile(epsilon)
            assert bounds is not None
            small = mp.mpf(10) ** -290
            assert truth.real(bounds.lower) <= true * (1 + mp.mpf(10) ** -30) + small
            assert truth.real(bounds.upper) >= true * (1 - mp.mpf(10) ** -30) - small
            # tails are asked at a loss that is off by its rounding
            slope = 1e-14 * (1 + abs(epsilon)) * max(1.0, float(mp.exp(epsilon)))
            assert bounds.upper - bounds.lower <= 1e-7 * float(true) + 4 * slope + 2e-11
        # never pure: what is possible under one law alone stays
        floor = mass(truth.real(bound) - 1, truth.real(bound))
        assert truth.real(loss.delta_floor()) >= floor
        assert loss.delta_floor() <= float(floor) * (1 + 1e-10)


@pytest.mark.parametrize(("eps", "bound"), LAPLACE)
def test_moments_are_integrals(eps: float, bound: float) -> None:
    """Of both laws given the outcomes that both have: atoms at both ends and a density."""
    pair = TruncatedLaplace(eps, bound).pair()
    mass = laplace_mass(eps, bound)
    b, e = truth.real(bound), truth.real(eps)
    whole = 1 - mass(b - 1, b)
    for z in (0.0, 0.3, 2.0, 40.0, 10 + 3j, -0.5 + 0.1j, -0.2 + 50j, -4.0, -1.0):
        at = mp.mpmathify(z)
        # x from 1 to A, from 1 - A to 0, and between
        total = mass(0, b - 1) * mp.exp(at * e) + mass(-b, -1) * mp.exp(-at * e)
        scale = e / (2 * -mp.expm1(-e * b))
        grid = mp.linspace(0, 1, 9)
        total += mp.quad(lambda x: scale * mp.exp(-e * (1 - x) + at * e * (2 * x - 1)), grid)  # noqa: B023
        value, error = pair.log_moment(np.array([z], dtype=np.complex128))
        off = mp.mpmathify(value[0]) - mp.log(total / whole)
        turns = mp.nint(off.imag / (2 * mp.pi))
        assert abs(off - 2j * mp.pi * turns) <= error[0]
        assert error[0] < 1e-10
        if isinstance(z, complex):
            least = pair.log_moment(np.array([z.real], dtype=np.complex128))[0].real[0]
            assert value.real[0] - least <= pair.decay(z.real, np.array([abs(z.imag)]))[0] + 1e-12


@pytest.mark.parametrize(("eps", "bound"), [(1.0, 3.0), (0.2, 1.5)])
def test_two_releases_are_the_double_integral(eps: float, bound: float) -> None:
    """By sums over a fine grid of both noises."""
    n = 6000
    x = (np.arange(n) + 0.5) / n * (2 * bound + 1) - bound
    q = np.where(abs(x) <= bound, np.exp(-eps * abs(x)), 0.0)
    p = np.where(abs(x - 1) <= bound, np.exp(-eps * abs(x - 1)), 0.0)
    p, q = p / p.sum(), q / q.sum()
    for at in (0.1, 0.7, 1.5):
        total = 0.0
        for some in np.array_split(np.arange(n), 12):
            both = np.outer(p[some], p) - np.exp(at * eps) * np.outer(q[some], q)
            total += float(both[both > 0].sum())
        term = Repeated(Spend(TruncatedLaplace(eps, bound)), 2)
        bounds = measure(term, Distribution(), epsilon=at * eps).bounds
        assert bounds is not None
        assert bounds.lower - 2e-3 * total <= total <= bounds.upper + 2e-3 * total
        assert bounds.upper - bounds.lower < 1e-5


def test_far_bounds_cost_what_the_noise_does() -> None:
    for cut, whole in (
        (TruncatedLaplace(0.1, 900.0), Laplace(0.1)),
        (TruncatedGaussian(0.5, 60.0), Gaussian(0.5)),
    ):
        for times, accountant in itertools.product((1, 100), (Distribution(), Renyi())):
            one, two = (
                measure(Repeated(Spend(loss), times), accountant, delta=1e-6).bounds
                for loss in (cut, whole)
            )
            assert one is not None
            assert two is not None
            assert one.upper == pytest.approx(two.upper, rel=0.02)


@pytest.mark.parametrize("loss", [TruncatedLaplace(0.5, 20.0), TruncatedGaussian(0.5, 20.0)])
def test_without_a_delta_nothing_is_promised(loss: PrivacyLoss) -> None:
    none = measure(Spend(loss), Basic(), delta=0.0).bounds
    assert none is None or none.upper == np.inf
    answer = measure(Spend(loss), Basic(), delta=loss.delta_floor()).bounds
    assert answer is not None
    assert answer.upper == loss.pure()


@pytest.mark.parametrize("loss", [TruncatedLaplace(0.5, 20.0), TruncatedGaussian(0.5, 20.0)])
def test_groups_shift_farther(loss: PrivacyLoss) -> None:
    three = loss.grouped(3)
    assert three.dominates(loss)
    assert not loss.dominates(three)
    direct = type(loss)(1.5, 20 / 3)  # type: ignore[call-arg]
    for epsilon in (0.0, 0.4, 1.2, 9.0):
        one, two = three.profile(epsilon), direct.profile(epsilon)
        assert one is not None
        assert two is not None
        assert one.upper == pytest.approx(two.upper, rel=1e-9)
    group = measure(Grouped(Spend(loss), 3), Distribution(), delta=0.2).bounds
    assert group is not None
    assert group.upper > 0
    with pytest.raises(InapplicableError, match="wider interval"):
        loss.grouped(21)


@pytest.mark.parametrize(("eps", "bound"), [(5.6602994728593234, 59.0), (0.8, 50.0), (0.3, 3.0)])
def test_groups_of_cut_laplace_noise_are_not_rounded_to_less(eps: float, bound: float) -> None:
    """The interval's end in units of the noise, up to 700, counts with each unit of rounding."""
    group = TruncatedLaplace(eps, bound).grouped(3)
    floor = mp.expm1(3 * truth.real(eps)) / (2 * mp.expm1(truth.real(eps) * truth.real(bound)))
    assert truth.real(group.delta_floor()) >= floor
    answer = measure(Grouped(Spend(TruncatedLaplace(eps, bound)), 3), Distribution(), epsilon=40.0)
    for bounds in (answer.bounds, group.profile(40.0)):
        assert bounds is not None
        assert truth.real(bounds.lower) <= floor <= truth.real(bounds.upper)
        assert bounds.lower == pytest.approx(bounds.upper, rel=1e-11)


def test_tighter_bounds_dominate() -> None:
    epsilons = np.linspace(-1, 3, 9)
    for kind in (TruncatedLaplace, TruncatedGaussian):
        many = [kind(size, reach / size) for size, reach in ((1, 2), (1, 4), (0.5, 4), (0.5, 2))]  # type: ignore[arg-type]
        for a, b in itertools.permutations(many, 2):
            if a.dominates(b):
                for epsilon in epsilons.tolist():
                    larger, smaller = a.profile(epsilon), b.profile(epsilon)
                    assert larger is not None
                    assert smaller is not None
                    assert larger.upper >= smaller.lower
        assert many[0].dominates(many[1])
        assert many[1].dominates(many[2])
        assert not many[1].dominates(many[3])


def test_pairs_are_alike_both_ways() -> None:
    for loss in (TruncatedLaplace(1.0, 2.0), TruncatedGaussian(1.0, 2.0)):
        pair = loss.pair()
        assert isinstance(pair, Symmetric)
        points = np.array([-9.0, -0.5, 0.0, 0.3, 9.0])
        above, below = pair.above(points), pair.below(points)
        for side in (0, 1):  # no atom at these points
            assert above[side] + below[side] == pytest.approx(np.ones(5))


@pytest.mark.parametrize(
    "make",
    [
        lambda: TruncatedLaplace(0.0, 2.0),
        lambda: TruncatedLaplace(1.0, 0.9),
        lambda: TruncatedLaplace(1e4, 2.0),
        lambda: TruncatedLaplace(1.0, np.inf),
        lambda: TruncatedGaussian(-1.0, 2.0),
        lambda: TruncatedGaussian(1.0, 0.9),
        lambda: TruncatedGaussian(100.0, 2.0),
    ],
)
def test_what_is_out_of_bounds_is_refused(make: Callable[[], PrivacyLoss]) -> None:
    with pytest.raises(DomainError):
        make()
