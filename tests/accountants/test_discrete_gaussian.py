"""The discrete Gaussian loss against its own masses, summed."""

from __future__ import annotations

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pairs_truth as pairs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import testing
from accountants.errors import DomainError
from accountants.losses.discrete import DiscreteGaussian, DiscreteGaussianPair, upper_tail

SIGMAS = [0.05, 0.2, 0.39, 0.4, 0.6, 1.0, 3.3, 8.0]


def masses(sigma: float, largest: int) -> dict[int, mp.mpf]:
    """The noise's masses at -reach, ..., reach, normalised by their own sum."""
    two = 2 * truth.real(sigma) ** 2
    half = [mp.exp(-mp.mpf(x * x) / two) for x in range(largest + 1)]
    total = half[0] + 2 * mp.fsum(half[1:])
    return {x: half[abs(x)] / total for x in range(-largest, largest + 1)}


def law(sigma: float, shift: int, deviations: int = 16) -> list[tuple[mp.mpf, mp.mpf, mp.mpf]]:
    """The losses where the noise has its mass but for about 1e-50."""
    largest = int(deviations * sigma) + 4 + 2 * shift
    mass = masses(sigma, largest + shift)
    unit = mp.mpf(shift) / truth.real(sigma) ** 2
    return [
        (unit * (x - mp.mpf(shift) / 2), mass[x - shift], mass[x])
        for x in range(-largest + shift, largest + 1)
    ]


def log_moment(sigma: float, shift: int):  # type: ignore[no-untyped-def]
    """By the sum over the noise for small sigma, else over its Fourier series."""
    s = truth.real(sigma)

    def log_sum(exponents: list[mp.mpc]) -> mp.mpc:
        most = max(mp.re(x) for x in exponents)
        near = [x - most for x in exponents if mp.re(x) > most - 400]
        return most + mp.log(mp.fsum(mp.exp(x) for x in near))

    def value(z: mp.mpc) -> mp.mpc:
        q = mp.mpf(shift) ** 2 / (2 * s * s)
        if sigma < 1:
            g, tau, base = 1 / (2 * s * s), z * shift / s**2, z * q
        else:
            g, tau, base = 2 * mp.pi**2 * s * s, 2j * mp.pi * z * shift, z * (z + 1) * q
        centre = int(mp.nint(mp.re(tau) / (2 * g)))
        terms = range(-14, 15)
        above = log_sum([-g * (k + centre) ** 2 + (k + centre) * tau for k in terms])
        return base + above - log_sum([-g * k * k for k in terms])

    return value


@pytest.mark.parametrize("sigma", [0.3, 0.99, 1.0, 2.5])
@pytest.mark.parametrize("shift", [1, 3])
def test_both_formulas_are_the_sum_over_the_law(sigma: float, shift: int) -> None:
    z = mp.mpc(0.7, 0.4)
    plain = mp.fsum(p * mp.exp(z * x) for x, p, _ in law(sigma, shift, 30))
    assert mp.almosteq(mp.exp(log_moment(sigma, shift)(z)), plain, 1e-40)


@pytest.mark.parametrize("sigma", SIGMAS)
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_tails_are_sums_of_masses(sigma: float, shift: int) -> None:
    pair = DiscreteGaussianPair(sigma, shift)
    rows = law(sigma, shift, 40)
    middle = len(rows) // 2
    largest = min(middle - 1, int(6 * sigma) + 3)
    places = [x for x, _, _ in rows[middle - largest : middle + largest : 1 + int(sigma)]]
    pairs.tails_hold(pair, rows, places)
    spacing = truth.real(pair.spacing())
    for x, _, _ in rows:
        assert abs(x / spacing - mp.nint(x / spacing)) < mp.mpf(10) ** -14 * (1 + abs(x / spacing))


@pytest.mark.parametrize("sigma", [0.05, 0.5, 3.0, 100.0, 1999.0, 2001.0, 1e4, 1e7])
def test_upper_tails_are_within_a_part_in_a_trillion(sigma: float) -> None:
    s = truth.real(sigma)
    where = sorted({1, 2, *(int(sigma * x) + 1 for x in (0.3, 1, 3, 9, 20, 30, 36.5))})
    for n in where:
        if sigma <= 100:
            mass = masses(sigma, n + int(12 * sigma) + 12)
            exact = mp.fsum(m for x, m in mass.items() if x >= n)
        else:  # by Euler and Maclaurin, two terms more than the formula under test
            x = (mp.mpf(n) - mp.mpf(1) / 2) / s
            with mp.workdps(60):
                fourth = mp.diff(lambda t: mp.exp(-t * t / 2), x, 5) / s**6
            h = mp.exp(-x * x / 2)
            exact = s * mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2))
            exact += -x / s * h / 24 + 7 * (x**3 - 3 * x) / s**3 * h / 5760
            exact += 31 * fourth * s / 967680
            exact /= s * mp.sqrt(2 * mp.pi)
        computed = float(upper_tail(sigma, np.array([float(n)]))[0])
        assert abs(computed - exact) <= mp.mpf("1e-12") * exact + mp.mpf(10) ** -300, (sigma, n)
        mirrored = float(upper_tail(sigma, np.array([1.0 - n]))[0])
        assert abs(mirrored - (1 - exact)) <= mp.mpf("1e-12")


@pytest.mark.parametrize("sigma", [2000.0])
def test_table_and_integral_agree_where_they_meet(sigma: float) -> None:
    n = np.concatenate([np.arange(1.0, 50), np.geomspace(50, 36 * sigma, 60).round()])
    tabled, integral = upper_tail(sigma, n), upper_tail(sigma * (1 + 1e-15), n)
    assert np.all(np.abs(tabled - integral) <= 3e-12 * tabled)


@pytest.mark.parametrize("sigma", [*SIGMAS, 50.0, 1e4, 1e8])
@pytest.mark.parametrize("shift", [1, 2, 7, 1000])
def test_log_moments_are_within_their_errors(sigma: float, shift: int) -> None:
    period = np.pi * sigma * sigma / shift
    draw = np.random.default_rng(3)
    inside = draw.normal(size=8) + 1j * period * draw.uniform(0, 2, size=8)
    edges = [0.2 + 1j * period, -0.5 + 1j * period, 0.3 + 2j * period]
    z = np.concatenate([pairs.points(13, 14), inside, edges])
    # where |M| is far below its terms, there is no bound of its logarithm
    pairs.moments_hold(DiscreteGaussianPair(sigma, shift), z, log_moment(sigma, shift), unknown=3)


@pytest.mark.parametrize(("sigma", "shift"), [(0.5, 1), (1.0, 1), (30.0, 2), (1e4, 3)])
def test_log_moments_near_zero_keep_their_digits(sigma: float, shift: int) -> None:
    z = np.array([1.0, 0.3 + 0.1j, 1e-5])
    value, error = DiscreteGaussianPair(sigma, shift).log_moment(z)
    assert np.all(error <= 1e-13 * np.abs(value))


@pytest.mark.parametrize("tilt", [-0.5, 0.3])
def test_it_does_not_decay_since_it_returns(tilt: float) -> None:
    pair = DiscreteGaussianPair(1.5, 2)
    turn = 2j * np.pi * 1.5**2 / 2
    once = pair.log_moment(np.array([tilt, tilt + turn]))[0].real
    assert abs(once[0] - once[1]) < 1e-12
    assert np.all(pair.decay(tilt, np.array([0.1, 5.0])) == 0)


@pytest.mark.parametrize(("sigma", "shift"), [(0.3, 1), (0.6, 2), (1.0, 1), (4.0, 3), (20.0, 1)])
def test_profiles_and_renyi_against_the_sums(sigma: float, shift: int) -> None:
    loss, rows = DiscreteGaussian(sigma, shift), law(sigma, shift)
    mu = shift / sigma
    places = [0.0, *(mu * x + mu * mu / 2 for x in (-0.3, 0.1, 1, 2.5, 6)), mu * mu / 2]
    pairs.profiles_hold(loss, rows, [e for e in places if e >= 0], 1e-8)
    for order in (1.001, 1.5, 2.0, 2.5, 7.25):
        exact = mp.re(log_moment(sigma, shift)(truth.real(order) - 1)) / (truth.real(order) - 1)
        truth.within(loss.renyi(np.array([order]))[0], exact, 1e-10)
        ceiling = truth.real(order) * loss.rho()
        assert exact <= ceiling
        tilt = (order - 1) * shift
        if tilt == int(tilt):
            assert mp.almosteq(exact, truth.real(order) * mu**2 / 2, 1e-14)


def test_renyi_is_below_the_continuous_gaussian_between_integer_orders() -> None:
    loss = DiscreteGaussian(0.3)
    curve = loss.renyi(np.array([1.5, 2.0]))
    assert curve[0] < 0.85 * 1.5 * loss.rho()
    assert curve[1] == pytest.approx(2 * loss.rho())


@pytest.mark.parametrize("sigma", [0.5, 2.0])
@pytest.mark.parametrize("shifts", [(1, 1), (1, 2), (1, 1, 1)])
def test_it_dominates_vectors_of_the_same_l1_shift(sigma: float, shifts: tuple[int, ...]) -> None:
    rows = pairs.composed([law(sigma, shift, 8) for shift in shifts])
    total = sum(shifts)
    at = (np.linspace(-1.5, 1.5, 13) * total * total / sigma**2).tolist()
    pairs.dominated(DiscreteGaussianPair(sigma, total), rows, at)
    pairs.dominated(DiscreteGaussianPair(sigma, total + 1), rows, at)


@pytest.mark.parametrize(
    "bad", [(0.0, 1), (-1.0, 1), (1.0, 0), (1.0, 1.5), (1.0, 2**52 + 1), (1e101, 1), ("1", 1)]
)
def test_bad_parameters_are_refused(bad: tuple[float, int]) -> None:
    with pytest.raises(DomainError):
        DiscreteGaussian(*bad)


@pytest.mark.parametrize(("sigma", "shift"), [(1e-100, 1), (1e100, 1), (1e100, 2**52), (1e-3, 9)])
def test_extremes_raise_no_warning_and_stay_sound(sigma: float, shift: int) -> None:
    loss = DiscreteGaussian(sigma, shift)
    value, error = loss.pair().log_moment(pairs.points(3, 20))
    assert not np.any(np.isnan(value[np.isfinite(error)]))
    assert loss.rho() > 0
    for epsilon in (0.0, 1e-310, 1.0, 800.0):
        assert 0 <= loss.profile(epsilon).lower <= loss.profile(epsilon).upper <= 1
    assert np.all(loss.renyi(np.array([1.01, 2.0, 1e5])) >= 0)


@pytest.mark.parametrize("case", [(0.5, 1), (2.0, 3), (50.0, 1)])
def test_the_kit_finds_nothing(case: tuple[float, int]) -> None:
    testing.check(DiscreteGaussian(*case), others=[DiscreteGaussian(case[0], case[1] + 1)])


@examples(25)
@given(st.floats(0.05, 1e4), st.integers(1, 9), st.integers(2, 5), st.floats(0, 20))
def test_laws(sigma: float, shift: int, size: int, at: float) -> None:
    loss = DiscreteGaussian(sigma, shift)
    group = loss.grouped(size)
    assert group == DiscreteGaussian(sigma, shift * size)
    assert group.dominates(loss)
    assert not loss.dominates(group)
    assert group.profile(at).upper >= loss.profile(at).lower
    orders = np.array([1.01, 2.0, 30.0])
    assert np.all(loss.renyi(orders) <= orders * loss.rho() * (1 + 1e-14))


@pytest.mark.parametrize(
    ("sigma", "shift", "times"), [(1.0, 1, 2), (1.0, 2, 4), (1.5, 1, 9), (3.3, 2, 12), (8.0, 3, 5)]
)
def test_sums_of_noises_are_bracketed_by_one(sigma: float, shift: int, times: int) -> None:
    """Against the masses of the sum, convolved as integers of 300 bits."""
    reach = int(40 * sigma) + 4
    one = masses(sigma, reach)
    scaled = np.array([int(one[x] * 2**300) for x in range(-reach, reach + 1)], dtype=object)
    total = scaled
    for _ in range(times - 1):
        total = np.convolve(total, scaled)
    moved = times * shift
    under_p = [0] * moved + total.tolist()
    under_q = total.tolist() + [0] * moved
    whole = mp.mpf(int(total.sum()))
    epsilons = np.array([0.0, 0.1, 0.7, 2.0, 6.0])
    found = DiscreteGaussianPair(sigma, shift).composed(times, epsilons)
    assert found is not None
    for epsilon, low, high in zip(epsilons.tolist(), *found, strict=True):
        factor = mp.exp(truth.real(epsilon))
        exact = mp.fsum(
            p - factor * q for p, q in zip(under_p, under_q, strict=True) if p > factor * q
        )
        assert low <= exact / whole <= high
        slack = 1e-3 if sigma == 1 else 1e-7 if sigma < 2 else 1e-11
        assert high - low <= slack * float(exact / whole + (1 + factor) / 2)


def test_many_noises_are_as_one_of_the_sum() -> None:
    """Where delta of a million was [.248, .383], it is that of the continuous Gaussian's limit."""
    found = DiscreteGaussianPair(1000.0, 1).composed(10**6, np.array([0.0, 1.0]))
    assert found is not None
    assert (found[1] <= found[0] * (1 + 1e-9)).all()
    # of mu = 1: Balle and Wang 2018; the lattice's spacing is a millionth, and moves it by as much
    for epsilon, low in zip([0.0, 1.0], found[0].tolist(), strict=True):
        exact = mp.ncdf(0.5 - epsilon) - mp.exp(epsilon) * mp.ncdf(-0.5 - epsilon)
        assert abs(low - exact) < 1e-6


def test_sums_of_narrow_noises_have_no_such_form() -> None:
    assert DiscreteGaussianPair(0.9, 1).composed(2, np.zeros(1)) is None
    assert DiscreteGaussianPair(1.0, 1).composed(100, np.zeros(1)) is None
