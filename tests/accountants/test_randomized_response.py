"""k-ary randomized response against its three masses, and the law of the complete answer."""

from __future__ import annotations

import math

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
from accountants.losses.discrete import AnswerPair, RandomizedResponse
from accountants.losses.pure import Pure, ResponsePair

CASES = [(1e-8, 3), (0.1, 3), (0.1, 1000), (1.0, 4), (3.0, 10**6), (10.0, 5), (60.0, 10**30)]


def law(epsilon: float, categories: int) -> list[tuple[mp.mpf, mp.mpf, mp.mpf]]:
    e = truth.real(epsilon)
    one = 1 / (mp.exp(e) + categories - 1)
    truthful, rest = mp.exp(e) * one, (categories - 2) * one
    return [(-e, one, truthful), (mp.mpf(0), rest, rest), (e, truthful, one)]


def test_the_three_losses_are_those_of_the_answer() -> None:
    """Five categories; values 1 and 3 against each other."""
    e = truth.real(0.7)
    one = 1 / (mp.exp(e) + 4)
    laws = [
        [mp.exp(e) * one if answer == true_answer else one for answer in range(5)]
        for true_answer in (1, 3)
    ]
    assert mp.almosteq(mp.fsum(laws[0]), 1)
    outcomes = [(mp.log(p / q), p, q) for p, q in zip(*laws, strict=True)]
    for at in (-0.9, -0.3, 0.0, 0.3, 0.69, 0.8):
        assert mp.almosteq(pairs.hockey(outcomes, at), pairs.hockey(law(0.7, 5), at), 1e-40)


@pytest.mark.parametrize(("epsilon", "categories"), CASES)
def test_tails_and_profiles(epsilon: float, categories: int) -> None:
    loss, rows = RandomizedResponse(epsilon, categories), law(epsilon, categories)
    pairs.tails_hold(loss.pair(), rows)
    pairs.tails_hold(AnswerPair(epsilon, categories).atoms(), rows)
    shares = (-1.3, -1.0, -0.4, 0.0, 0.2, 0.999, 1.0, 1.4)
    pairs.profiles_hold(loss, rows, [x * epsilon for x in shares], 1e-14)
    assert loss.pair().spacing() == loss.pure() == epsilon


@pytest.mark.parametrize(("epsilon", "categories"), CASES)
def test_log_moments_are_within_their_errors(epsilon: float, categories: int) -> None:
    def exact(z: mp.mpc) -> mp.mpc:
        return mp.log(mp.fsum(p * mp.exp(z * x) for x, p, _ in law(epsilon, categories)))

    turns = 0.2 + 1j * np.pi / epsilon * np.array([0.5, 1.0, 2.0, 7.1])
    z = np.concatenate([pairs.points(17, 30), turns])
    pairs.moments_hold(AnswerPair(epsilon, categories), z, exact)
    pairs.moments_hold(AnswerPair(epsilon, categories).atoms(), z, exact, unknown=40)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.1])
def test_log_moments_of_small_losses_keep_their_digits(epsilon: float) -> None:
    value, error = AnswerPair(epsilon, 7).log_moment(np.array([1.0, 3.0 + 2.0j, 1e-5]))
    assert np.all(error <= 1e-13 * np.abs(value))


@pytest.mark.parametrize(("epsilon", "categories"), CASES)
def test_renyi_and_rho_against_the_masses(epsilon: float, categories: int) -> None:
    loss = RandomizedResponse(epsilon, categories)
    pair = [(p, q) for _, p, q in law(epsilon, categories)]
    for order in (1.001, 1.5, 2.0, 9.0, 1e3):
        with mp.workdps(90):
            exact = truth.renyi([(p, q) for _, p, q in law(epsilon, categories)], order)
        truth.within(loss.renyi(np.array([order]))[0], exact, 1e-10)
    near = 2 * math.log(categories) / epsilon
    with mp.workdps(90):
        pair = [(p, q) for _, p, q in law(epsilon, categories)]
        places = [1 + near * 10.0**x for x in np.linspace(-12, 2, 141)]
        ratios = [truth.renyi(pair, a) / truth.real(a) for a in places if 1 < a < 1e13]
    rho = loss.rho()
    assert max(ratios) <= rho
    assert max(ratios) >= truth.real(rho) * (1 - mp.mpf("0.02"))
    assert rho <= Pure(epsilon).rho()


def test_two_categories_are_binary_randomized_response() -> None:
    loss, same = RandomizedResponse(0.8), Pure(0.8)
    assert loss.pair() == ResponsePair(0.8)
    assert loss.rho() == pytest.approx(same.rho(), rel=1e-13)
    for epsilon in (0.0, 0.3, 0.9):
        one, two = loss.profile(epsilon), same.profile(epsilon)
        assert one.lower <= two.upper
        assert two.lower <= one.upper


def test_a_hundred_answers_cost_what_a_hundred_answers_cost() -> None:
    """Composition is by counts; a peer's accountant forgot the count and said 0.1001."""
    count, epsilon, delta = 100, 0.1, 1e-6
    e = truth.real(epsilon)
    keep = mp.exp(e) / (1 + mp.exp(e))
    rows = [
        (
            (2 * heads - count) * e,
            mp.binomial(count, heads) * keep**heads * (1 - keep) ** (count - heads),
            mp.binomial(count, heads) * keep ** (count - heads) * (1 - keep) ** heads,
        )
        for heads in range(count + 1)
    ]
    exact = truth.root(lambda at: pairs.hockey(rows, at), delta, 10.0)
    assert abs(exact - mp.mpf("4.77456758810798615")) < mp.mpf(10) ** -15  # of the float 0.1
    # the pair's moments are those of the composed law
    pair = RandomizedResponse(epsilon).pair()
    z = pairs.points(1, 10)
    value, error = pair.log_moments([(pair, count)], z)
    for point, computed, bound in zip(z, value, error, strict=True):
        sum_ = mp.fsum(p * mp.exp(mp.mpc(complex(point)) * x) for x, p, _ in rows)
        assert abs(mp.exp(mp.mpc(complex(computed))) / sum_ - 1) <= 2 * bound + mp.mpf(10) ** -40
    # so are the Renyi divergences: what they prove is above the truth, and far above 0.1001
    orders = np.linspace(2, 12, 41)
    curve = count * RandomizedResponse(epsilon).renyi(orders)
    proven = curve + np.log1p(-1 / orders) - np.log(delta * orders) / (orders - 1)
    assert exact <= proven.min() <= 1.1 * exact


@pytest.mark.parametrize("bad", [(-1.0, 2), (1.0, 1), (1.0, 2.5), (float("inf"), 2), (1.0, True)])
def test_bad_parameters_are_refused(bad: tuple[float, int]) -> None:
    with pytest.raises(DomainError):
        RandomizedResponse(*bad)


@pytest.mark.parametrize("epsilon", [0.0, 5e-324, 1e-300, 2000.0])
@pytest.mark.parametrize("categories", [2, 3, 10**300])
def test_extremes_raise_no_warning_and_stay_sound(epsilon: float, categories: int) -> None:
    loss = RandomizedResponse(epsilon, categories)
    value, error = loss.pair().log_moment(pairs.points(3, 20))
    assert not np.any(np.isnan(value[np.isfinite(error)]))
    assert 0 <= loss.rho() <= epsilon
    for at in (0.0, 1e-310, 1.0, 800.0):
        assert 0 <= loss.profile(at).lower <= loss.profile(at).upper <= 1
    assert np.all(loss.renyi(np.array([1.01, 2.0, 1e5])) >= 0)


@pytest.mark.parametrize("case", [(0.5, 2), (2.0, 3), (1.0, 50)])
def test_the_kit_finds_nothing(case: tuple[float, int]) -> None:
    testing.check(RandomizedResponse(*case), others=[RandomizedResponse(case[0] + 1, case[1])])


@examples(40)
@given(st.floats(1e-3, 30), st.integers(2, 1000), st.floats(0, 30))
def test_laws(epsilon: float, categories: int, at: float) -> None:
    loss = RandomizedResponse(epsilon, categories)
    assert RandomizedResponse(epsilon * 1.5, categories).dominates(loss)
    assert not loss.dominates(RandomizedResponse(epsilon * 1.5, categories))
    assert loss.profile(at).upper <= Pure(epsilon).profile(at).upper + 1e-14
    orders = np.array([1.01, 2.0, 30.0])
    assert np.all(loss.renyi(orders) <= Pure(epsilon).renyi(orders) * (1 + 1e-11))
    assert np.all(loss.renyi(orders) <= orders * loss.rho() * (1 + 1e-11))
