"""The discrete Laplace loss against its own masses, summed."""

from __future__ import annotations

from fractions import Fraction

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pairs_truth as pairs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples
from scipy.optimize import linprog

from accountants import (
    Allocated,
    Composite,
    Distribution,
    Grouped,
    LaplaceNoisyMax,
    Parallel,
    Repeated,
    ReplacedSample,
    Spend,
    Subset,
    measure,
    testing,
    worlds,
)
from accountants.errors import DomainError
from accountants.losses.discrete import DiscreteLaplace, DiscreteLaplacePair
from accountants.losses.pure import Pure

CASES = [(0.01, 1), (0.3, 4), (1.0, 1), (1.7, 2), (3.0, 7), (10.0, 40), (1e3, 5), (1e7, 3)]


def noise(scale: float, x: int) -> mp.mpf:
    s = 1 / truth.real(scale)
    return (1 - mp.exp(-s)) / (1 + mp.exp(-s)) * mp.exp(-s * abs(x))


def law(scale: float, shift: int) -> list[tuple[mp.mpf, mp.mpf, mp.mpf]]:
    """The losses, with the masses of 0 and below and of shift and above as geometric series."""
    s = 1 / truth.real(scale)
    tail = 1 / (1 - mp.exp(-s))
    p = [noise(scale, x - shift) for x in range(shift + 1)]
    q = [noise(scale, x) for x in range(shift + 1)]
    p[0], q[0], p[-1], q[-1] = p[0] * tail, q[0] * tail, p[-1] * tail, q[-1] * tail
    return [(s * (2 * x - shift), p[x], q[x]) for x in range(shift + 1)]


def log_moment(scale: float, shift: int):  # type: ignore[no-untyped-def]
    def value(z: mp.mpc) -> mp.mpc:
        if shift <= 60:
            return mp.log(mp.fsum(p * mp.exp(z * x) for x, p, _ in law(scale, shift)))
        s = 1 / truth.real(scale)
        theta = (z + mp.mpf(1) / 2) * s
        turn = mp.sinh(shift * theta) * mp.coth(theta) if theta != 0 else mp.mpf(shift)
        return mp.log(mp.cosh(shift * theta) + mp.tanh(s / 2) * turn) - s * shift / 2

    return value


@pytest.mark.parametrize(("scale", "shift"), CASES)
def test_the_law_is_a_law_and_the_sum_over_the_noise(scale: float, shift: int) -> None:
    rows = law(scale, shift)
    assert mp.almosteq(mp.fsum(p for _, p, _ in rows), 1, 1e-40)
    assert mp.almosteq(mp.fsum(q for _, _, q in rows), 1, 1e-40)
    assert all(mp.almosteq(p / q, mp.exp(x), 1e-40) for x, p, q in rows)
    if scale < 4:  # by the masses alone
        far = range(-int(120 * scale) - 8, int(120 * scale) + 8 + shift)
        z = mp.mpc(0.4, 0.3)
        plain = mp.fsum(
            noise(scale, x - shift) * (noise(scale, x - shift) / noise(scale, x)) ** z for x in far
        )
        assert mp.almosteq(plain, mp.exp(log_moment(scale, shift)(z)), 1e-30)


@pytest.mark.parametrize(("scale", "shift"), CASES)
def test_tails_are_sums_of_masses(scale: float, shift: int) -> None:
    pair = DiscreteLaplacePair(scale, shift)
    pairs.tails_hold(pair, law(scale, shift))
    assert pair.top() >= law(scale, shift)[-1][0]
    spacing = truth.real(pair.spacing())
    for x, _, _ in law(scale, shift):
        assert abs(x / spacing - mp.nint(x / spacing)) < mp.mpf(10) ** -14 * (1 + abs(x / spacing))


@pytest.mark.parametrize(("scale", "shift"), [*CASES, (1e6, 10**8), (50.0, 10**4), (1e9, 2**52)])
def test_log_moments_are_within_their_errors(scale: float, shift: int) -> None:
    period = np.pi * scale * np.array([0.3, 0.5, 0.99, 1.0, 2.0, 7.25])
    turns = np.concatenate([0.2 + 1j * period, -0.5 + 1j * period, -0.5 + 1e-7 + 1j * period])
    z = np.concatenate([pairs.points(11, 24), turns])
    # at a zero of the moment, or past 2^53 turns, there is no bound of its logarithm
    unknown = 3 if shift < 2**50 else 20
    pairs.moments_hold(DiscreteLaplacePair(scale, shift), z, log_moment(scale, shift), unknown)


@pytest.mark.parametrize(("scale", "shift"), [(1e2, 1), (1e4, 7), (1e8, 100), (1e9, 10**6)])
def test_log_moments_of_small_losses_keep_their_digits(scale: float, shift: int) -> None:
    z = np.array([1.0, 3.0 + 2.0j, 1e-5])
    value, error = DiscreteLaplacePair(scale, shift).log_moment(z)
    assert np.all(error <= 2e-13 * np.abs(value))


@pytest.mark.parametrize("tilt", [-0.5, 0.3])
def test_it_does_not_decay_since_it_returns(tilt: float) -> None:
    pair = DiscreteLaplacePair(2.0, 3)
    once = pair.log_moment(np.array([tilt, tilt + 2j * np.pi]))[0].real
    assert abs(once[0] - once[1]) < 1e-13
    assert np.all(pair.decay(tilt, np.array([0.1, 5.0])) == 0)


@pytest.mark.parametrize(("scale", "shift"), CASES)
def test_profiles_and_renyi_against_the_sums(scale: float, shift: int) -> None:
    loss, rows = DiscreteLaplace(scale, shift), law(scale, shift)
    top = float(rows[-1][0])
    places = [0.0, *(share * top for share in (0.1, 0.5, 0.77, 0.999, 1.5))]
    pairs.profiles_hold(loss, rows, [e for e in places if e < 600], 1e-9 * (1 + 1 / top))
    for order in (1.0001, 1.5, 2.0, 7.0, 300.0):
        exact = truth.renyi([(p, q) for _, p, q in rows], order)
        truth.within(loss.renyi(np.array([order]))[0], exact, 1e-9, 1e-14 * top)
    truth.within(loss.pure(), rows[-1][0], 1e-15)


@pytest.mark.parametrize(("scale", "shift"), [*CASES, (0.001, 1), (2.0, 100)])
def test_rho_is_the_supremum_of_the_curve_over_the_order(scale: float, shift: int) -> None:
    rho, ratios = DiscreteLaplace(scale, shift).rho(), []
    with mp.workdps(90):
        exact = log_moment(scale, shift)
        for exponent in np.linspace(-12, 5, 69):
            z = mp.mpf(10) ** float(exponent)
            ratios.append(mp.re(exact(z)) / z / (1 + z))
    assert max(ratios) <= rho
    assert max(ratios) >= truth.real(rho) * (1 - mp.mpf("1e-7"))


@pytest.mark.parametrize(("scale", "shift"), [(0.5, 1), (2.0, 3), (1.3, 6)])
def test_rho_is_proven_by_zeros_that_lie_on_the_imaginary_axis(scale: float, shift: int) -> None:
    """``cos(d phi) + tanh(s/2) sin(d phi) cot(phi)`` has d zeros between 0 and pi."""
    s = 1 / scale
    phi = np.linspace(1e-6, np.pi - 1e-6, 20001)
    value = np.cos(shift * phi) + np.tanh(s / 2) * np.sin(shift * phi) / np.tan(phi)
    assert np.sum(np.diff(np.sign(value)) != 0) == shift


@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("shifts", [(1, 1), (1, 2), (3, 2), (1, 1, 1), (2, 1, 3)])
def test_it_dominates_vectors_of_the_same_l1_shift(scale: float, shifts: tuple[int, ...]) -> None:
    rows = pairs.composed([law(scale, shift) for shift in shifts])
    total = sum(shifts)
    at = np.linspace(-1.1, 1.1, 45) * total / scale
    pairs.dominated(DiscreteLaplacePair(scale, total), rows, at.tolist())
    pairs.dominated(DiscreteLaplacePair(scale, total + 1), rows, at.tolist())
    pairs.dominated(DiscreteLaplacePair(scale * 0.9, total), rows, at.tolist())


@pytest.mark.parametrize("scale", [0.2, 1.0, 30.0, 1e6])
def test_sensitivity_one_is_randomized_response(scale: float) -> None:
    loss, same = DiscreteLaplace(scale), Pure(1 / scale)
    for epsilon in (0.0, 0.3 / scale, 0.9 / scale):
        one, two = loss.profile(epsilon), same.profile(epsilon)
        assert one.lower <= two.upper
        assert two.lower <= one.upper
    assert abs(loss.rho() - same.rho()) <= 1e-5 * loss.rho()


@pytest.mark.parametrize(
    "bad", [(0.0, 1), (-1.0, 1), (1.0, 0), (1.0, 1.5), (1.0, 2**52 + 1), (1e301, 1), (1.0, True)]
)
def test_bad_parameters_are_refused(bad: tuple[float, int]) -> None:
    with pytest.raises(DomainError):
        DiscreteLaplace(*bad)


@pytest.mark.parametrize(("scale", "shift"), [(1e-300, 1), (1e300, 1), (1e300, 2**52), (1e-3, 9)])
def test_extremes_raise_no_warning_and_stay_sound(scale: float, shift: int) -> None:
    loss = DiscreteLaplace(scale, shift)
    value, error = loss.pair().log_moment(pairs.points(3, 20))
    assert not np.any(np.isnan(value[np.isfinite(error)]))
    assert 0 < loss.rho() <= loss.pure()
    for epsilon in (0.0, 1e-310, 1.0, 800.0):
        assert 0 <= loss.profile(epsilon).lower <= loss.profile(epsilon).upper <= 1
    assert np.all(loss.renyi(np.array([1.01, 2.0, 1e5])) >= 0)


@pytest.mark.parametrize("case", [(0.5, 1), (2.0, 3), (7.0, 20)])
def test_the_kit_finds_nothing(case: tuple[float, int]) -> None:
    testing.check(DiscreteLaplace(*case), others=[DiscreteLaplace(case[0], case[1] + 1)])


@examples(30)
@given(st.floats(0.05, 1e4), st.integers(1, 30), st.integers(2, 5), st.floats(0, 20))
def test_laws(scale: float, shift: int, size: int, at: float) -> None:
    loss = DiscreteLaplace(scale, shift)
    group = loss.grouped(size)
    assert group == DiscreteLaplace(scale, shift * size)
    assert group.dominates(loss)
    assert not loss.dominates(group)
    assert group.profile(at).upper >= loss.profile(at).lower
    orders = np.array([1.01, 2.0, 30.0])
    assert np.all(loss.renyi(orders) <= orders * loss.rho() * (1 + 1e-9))
    assert loss.profile(at).upper <= Pure(loss.pure()).profile(at).upper + 1e-12


def composed_masses(scale: float, shift: int, times: int) -> np.ndarray:
    """Return the masses under P of ``times`` payments, from the least loss up, by convolution."""
    one = np.array([float(p) for _, p, _ in law(scale, shift)])
    total = np.ones(1)
    for _ in range(times):
        total = np.convolve(total, one)  # of positive numbers: rounding adds up, nothing cancels
    return total


@pytest.mark.parametrize(("scale", "shift", "times"), [(35.1, 10, 1000), (9.0, 70, 3)])
def test_many_steps_of_few_losses_are_counted(scale: float, shift: int, times: int) -> None:
    """The bracket of the first was 4% wide: moments of losses on a lattice do not decay."""
    masses, s = composed_masses(scale, shift, times), 1 / scale
    losses = (2 * np.arange(len(masses)) - shift * times) * s
    steps = Repeated(Spend(DiscreteLaplace(scale, shift)), times)
    for at in (float(losses[-1]) * 0.2, 3 * s):  # the second is itself a loss, or next to one
        true = float(masses @ np.maximum(0.0, -np.expm1(np.minimum(0.0, at - losses))))
        bounds = measure(steps, Distribution(), epsilon=at).bounds
        assert bounds is not None
        assert bounds.lower * (1 - 1e-9) <= true <= bounds.upper * (1 + 1e-9)
        assert bounds.upper <= bounds.lower * (1 + 1e-7)


@examples(30, nightly=1000)
@given(st.integers(4096, 10**7), st.floats(1e-3, 60.0), st.floats(1e-12, 1.0))
def test_of_a_large_sensitivity_it_lies_between_two_laplace_noises(
    shift: int, epsilon: float, share: float
) -> None:
    """Thresholds of the noise itself, at 60 digits: its trade-off function's corners."""
    loss = DiscreteLaplace(shift / epsilon, shift)
    above, below = loss.pair(), loss.attained_pair()
    if above.is_tight():  # of an epsilon too large for that many units
        return
    with mp.workdps(60):
        s = 1 / truth.real(loss.scale)

        r = mp.exp(-s)
        at = -max(1, int(share * shift))  # P(x <= at), and after the shift
        before, after = r**-at / (1 + r), 1 - r ** (at + shift + 1) / (1 + r)
        # where Laplace noise has those probabilities: below a half, and above
        moved = -mp.log(2 * (1 - after)) - mp.log(2 * before)
        assert mp.mpf(below.top()) <= moved <= mp.mpf(above.top())
    assert above.top() - below.top() <= 3e-7 * below.top()


def most_of_a_group(epsilon: float, size: int, at: float) -> float:
    """Return the largest delta at the ends of a chain of laws, each within epsilon of the next.

    Over all laws of two outcomes, as a linear program: any event and its complement are two.
    """
    count = size + 1
    ratio = np.eye(count, k=1) * -np.exp(epsilon) + np.eye(count)
    steps = np.vstack([ratio[:-1], ratio[:, ::-1][::-1][1:]])  # up the chain, and down
    # P_i <= e^eps P_j, and the same of the complements: 1 - P_i <= e^eps (1 - P_j)
    above = np.vstack([steps, -steps])
    limits = np.append(np.zeros(2 * size), np.full(2 * size, np.expm1(epsilon)))
    gain = np.zeros(count)
    gain[0], gain[-1] = -1.0, np.exp(at)
    return float(-linprog(gain, A_ub=above, b_ub=limits, bounds=(0, 1)).fun)


@pytest.mark.parametrize(("epsilon", "size"), [(0.1, 3), (0.5, 2), (0.7, 5), (2.0, 4)])
def test_a_group_of_a_pure_loss_is_what_the_worst_chain_of_laws_attains(
    epsilon: float, size: int
) -> None:
    [world] = worlds(Grouped(Spend(Pure(epsilon)), size))
    [loss] = world.spends
    for share in (0.0, 0.2, 0.55, 0.9):
        at = share * size * epsilon
        most = most_of_a_group(epsilon, size, at)
        bounds = loss.profile(at)
        assert bounds.lower - 1e-9 <= most <= bounds.upper + 1e-9
        assert bounds.upper <= bounds.lower * (1 + 1e-9)
        if at:
            assert most < Pure(size * epsilon).profile(at).lower  # which no group attains
    assert Fraction(loss.pure()) == size * Fraction(epsilon)
    assert loss.grouped(3) == Pure(epsilon).grouped(3 * size)
    assert not loss.dominates(Pure(size * epsilon))
    assert loss.dominates(Pure(epsilon))
    testing.check(loss)


def test_groups_of_pure_losses_in_terms() -> None:
    """Ten steps of a group of three: the noise's masses, convolved; of a bound the lower end is 0.

    Inside samples of a fixed size and allocations the pure epsilon alone is used.
    """
    steps = Grouped(Repeated(Spend(Pure(0.1)), 10), 3)
    masses = composed_masses(10.0, 3, 10)
    losses = np.arange(-30, 31, 2) / 10
    true = float(masses @ np.maximum(0.0, -np.expm1(1 - losses)))
    found = measure(steps, Distribution(), epsilon=1.0).bounds
    assert found is not None
    assert found.lower <= true * (1 + 1e-12)
    assert true * (1 - 1e-12) <= found.upper <= found.lower * (1 + 1e-9)
    noisy = measure(Grouped(Spend(LaplaceNoisyMax(0.3)), 2), Distribution(), delta=0.01).bounds
    pure = measure(Grouped(Spend(Pure(0.3)), 2), Distribution(), delta=0.01).bounds
    assert noisy is not None
    assert pure is not None
    assert (noisy.lower, noisy.upper) == (0.0, pure.upper)
    assert pure.upper - pure.lower < 1e-9
    # two parts: a member in either costs what both in the larger one cost
    parts = Grouped(Parallel([Spend(Pure(0.3)), Spend(Pure(0.2))]), 2)
    assert measure(parts, Distribution(), delta=0.01).bounds == pure
    group = Grouped(Spend(Pure(0.25)), 2)
    for scheme in (lambda part: Allocated(part, 5), lambda part: Subset(part, 3, 9)):
        inside, plain = (
            measure(scheme(part), Distribution(), delta=0.01).bounds
            for part in (group, Spend(Pure(0.5)))
        )
        assert inside is not None
        assert plain is not None
        assert (inside.lower, inside.upper) == (0.0, plain.upper)
    replaced = Composite({Pure(0.25): 1}).replaced()
    assert replaced == Composite({Pure(0.25).grouped(2): 1})
    assert worlds(ReplacedSample(group, 0.1)).exact
