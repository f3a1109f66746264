"""The worst of many worlds: the same as when each is measured alone."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    ACCOUNTANTS,
    Accountant,
    Approximate,
    Basic,
    Bounds,
    Composite,
    DiscreteLaplace,
    Distribution,
    Envelope,
    Gaussian,
    GaussianDP,
    Guarantee,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    Renyi,
    Sampled,
    Sequential,
    Spend,
    World,
    Worlds,
    certify,
    measure,
    worlds,
)
from accountants.world import fold, maximum_over_worlds

POINTS = ({"delta": 0.0}, {"delta": 1e-9}, {"delta": 0.05}, {"epsilon": 0.0}, {"epsilon": 0.8})


def each_alone(every: Worlds, accountant: Accountant, point: dict[str, float]):  # type: ignore[no-untyped-def]
    """Return the brackets of all worlds, or None where one is refused."""
    answers = []
    for world in every:
        try:
            state = fold(accountant, accountant.start(), world.spends)
            (argument, value) = next(iter(point.items()))
            ask = accountant.epsilon if argument == "delta" else accountant.delta
            answers.append(ask(state, value))
        except InapplicableError:
            return None
    return answers


def same_as_each_alone(every: Worlds, accountant: Accountant, point: dict[str, float]) -> None:
    alone = each_alone(every, accountant, point)
    computed = measure(every, accountant, **point).bounds
    if alone is None:
        return
    assert computed is not None
    upper = max(bounds.upper for bounds in alone)
    assert computed.upper <= upper
    # a screen proves as much, but a world whose bracket is wider may be passed over for it
    assert computed.upper >= upper * (1 - 1e-12) or computed.upper >= upper - 1e-9
    assert computed.upper >= max(bounds.lower for bounds in alone)
    assert computed.lower <= computed.upper


size = st.floats(0.02, 1.5)
losses = st.one_of(
    size.map(Gaussian),
    size.map(Laplace),
    size.map(Pure),
    st.builds(Approximate, size, st.sampled_from([0.0, 1e-12, 1e-8, 0.01])),
)
mixes = st.lists(losses, min_size=1, max_size=3).map(lambda some: Sequential(map(Spend, some)))


@examples(4)
@given(st.lists(mixes, min_size=2, max_size=6), mixes, st.sampled_from(POINTS))
def test_the_worst_of_unlike_parts(parts, common, point) -> None:  # type: ignore[no-untyped-def]
    pairs = [Sequential(two) for two in itertools.combinations(parts, 2)]
    every = worlds(Sequential([common, Parallel([*parts, *pairs])]))
    for accountant in ACCOUNTANTS:
        same_as_each_alone(every, accountant, point)


def unlike(parts: int, seed: int) -> list[Sequential]:
    """Return parts that do not cover each other: each is costly in another way."""
    chance = random.Random(seed)
    made = []
    for i in range(parts):
        share = (i + 1) / (parts + 1)
        some: list[PrivacyLoss] = [
            Laplace(0.05 + 0.1 * share),
            Gaussian(0.15 - 0.1 * share),
            DiscreteLaplace(round(20 + 10 * share) / 200, 1)
            if i % 2
            else Pure(0.02 * chance.random()),
        ]
        if i % 3 == 0:
            some.append(Approximate(0.03, 1e-9 * (i + 1)))
        if i % 4 == 0:
            some.append(Envelope([Laplace(0.02 + 0.01 * share), Pure(0.03 - 0.01 * share)]))
        made.append(Sequential(map(Spend, some)))
    return made


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
@pytest.mark.parametrize("point", POINTS[1:], ids=str)
def test_of_a_unit_that_moves_between_unlike_parts(accountant, point) -> None:  # type: ignore[no-untyped-def]
    parts = unlike(6, 1)
    pairs = [Sequential(two) for two in itertools.combinations(parts, 2)]
    every = worlds(Parallel([*parts, *pairs]))
    assert every.exact
    assert len(every.alternatives) >= 10
    same_as_each_alone(every, accountant, point)


@pytest.mark.parametrize("accountant", [Renyi(), Distribution()], ids=lambda a: a.name)
def test_sampled_parts(accountant) -> None:  # type: ignore[no-untyped-def]
    sampled = [Sampled(Spend(Gaussian(1 / (1 + i / 5))), 0.01 * (1 + i)) for i in range(4)]
    parts = [Sequential([part, Spend(Laplace(0.3 - i / 50))]) for i, part in enumerate(sampled)]
    every = worlds(Parallel(parts))
    same_as_each_alone(every, accountant, {"delta": 1e-6})


def test_few_worlds_are_measured() -> None:
    """Of five thousand, for each accountant, no more than some hundred."""
    parts = unlike(100, 2)
    every = worlds(Parallel([Sequential(two) for two in itertools.combinations(parts, 2)]))
    assert every.exact
    assert len(every.alternatives) > 4000
    for accountant in ACCOUNTANTS:
        counting = _Counting(accountant)
        maximum_over_worlds(every, counting, delta=1e-6)
        assert counting.asked <= 200, accountant.name


class _Counting:
    """An accountant that counts how often it is asked."""

    def __init__(self, accountant) -> None:  # type: ignore[no-untyped-def]
        self._own, self.asked = accountant, 0

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        return getattr(self._own, name)

    def epsilon(self, state, delta):  # type: ignore[no-untyped-def]
        self.asked += 1
        return self._own.epsilon(state, delta)


class _Plain(_Counting):
    """An accountant of somebody else, without pruning_bounds."""

    def __getattr__(self, name: str):  # type: ignore[no-untyped-def]
        if name == "pruning_bounds":
            raise AttributeError
        return super().__getattr__(name)


def test_without_screens_every_world_is_measured() -> None:
    every = worlds(Parallel(unlike(9, 3)))
    for accountant in ACCOUNTANTS:
        plain = _Plain(accountant)
        maximum = maximum_over_worlds(every, plain, delta=1e-6)
        assert plain.asked == len(every.alternatives)
        assert maximum.bounds.upper == pytest.approx(
            maximum_over_worlds(every, accountant, delta=1e-6).bounds.upper, rel=1e-12, abs=1e-9
        )


def test_what_no_accountant_can_bound_is_refused_whichever_world_it_is_in() -> None:
    parts = [Spend(Gaussian(1.0)), Spend(Gaussian(0.1)), Sampled(Spend(Gaussian(0.1)), 0.5)]
    for order in itertools.permutations(parts):
        for name, answer in certify(Parallel(order), 1e-6).items():
            assert (answer.bounds is None) == (name in ("concentrated", "gaussian"))
            assert bool(answer.reason) == (answer.bounds is None)


def test_the_first_of_equal_worlds_is_named() -> None:
    equal = [Sequential([Spend(Pure(a)), Spend(Laplace(b))]) for a, b in ((0.5, 0.25), (0.25, 0.5))]
    for parts in (equal, equal[::-1]):
        term = Parallel([Spend(Pure(0.1)), *parts], labels=["none", "first", "second"])
        assert measure(term, ACCOUNTANTS[0], delta=0.0).world.labels == ("first",)


@frozen
class Ending(PrivacyLoss):
    """A loss that says no pure epsilon, though its profile ends."""

    end: float

    def profile(self, epsilon: float) -> Bounds:
        return Pure(self.end).profile(epsilon)


def test_at_delta_0_a_loss_without_a_pure_epsilon_is_never_passed_over() -> None:
    """A session asks there whether all is a sum of pure epsilons: no delta to be split."""
    term = Parallel([Spend(Pure(1.0)), Sequential([Spend(Ending(0.2)), Spend(Ending(0.21))])])
    for accountant in (ACCOUNTANTS[0], ACCOUNTANTS[1]):
        same_as_each_alone(worlds(term), accountant, {"delta": 0.0})
    bounds = measure(term, Basic(), delta=0.0).bounds
    assert bounds is not None
    assert np.isinf(bounds.upper)


def test_many_gaussians_do_not_raise_the_lower_bound() -> None:
    """The lower end is that of the exact sum of squares, however many losses it has."""
    many = {Gaussian(0.001 + 1e-9 * i): 1 for i in range(16_000)}
    rest = ([Laplace(0.1)], [Laplace(0.2)], [Pure(0.05), Laplace(0.05)])
    every = Worlds({}, tuple(World(many | dict.fromkeys(some, 1)) for some in rest))
    lower = maximum_over_worlds(every, GaussianDP(), delta=1e-6).bounds.lower
    mu = mp.sqrt(mp.fsum(truth.real(loss.mu()) ** 2 for loss in many))
    left, right = mu / 2 - lower / mu, -mu / 2 - lower / mu
    assert mp.ncdf(left) - mp.exp(lower) * mp.ncdf(right) >= truth.real(1e-6)


def test_an_envelope_of_compositions_asks_each_loss_once() -> None:
    """And has the curve that the compositions have."""
    every = [Composite({Laplace(0.1 * i): i, Gaussian(0.2): 3 - i}) for i in range(1, 4)]
    orders = np.array([1.5, 2.0, 17.0])
    alone = np.max([loss.renyi(orders) for loss in every], axis=0)
    assert Envelope(every).renyi(orders) == pytest.approx(alone, rel=1e-14)


def test_a_guarantee_of_many_worlds_has_their_epsilon_and_a_curve_above() -> None:
    parts = unlike(40, 5)
    term = Parallel([Sequential(two) for two in itertools.combinations(parts, 2)])
    assert len(worlds(term).alternatives) > 512
    exact = measure(term, Distribution(), delta=1e-6).bounds
    assert exact is not None
    guarantee = Guarantee(term, Distribution())
    assert guarantee.epsilon(1e-6) == exact
    assert guarantee.profile(np.array([exact.upper]))[1][0] >= 1e-6 * (1 - 1e-6)


def test_many_unlike_parts_are_quick() -> None:
    """What took minutes takes seconds; the limit leaves room for slow machines."""
    parts = unlike(60, 4)
    start = time.process_time()
    certify(Parallel([*parts, *(Sequential(p) for p in itertools.combinations(parts, 2))]), 1e-6)
    assert time.process_time() - start < 20


@frozen
class Coarse(Basic):
    """An accountant of somebody else, that refuses small deltas."""

    name: str = "coarse"

    def epsilon(self, state: Any, delta: float) -> Bounds:
        if delta < 1e-7:
            raise InapplicableError("no delta below 1e-7")
        return super().epsilon(state, delta)


def test_a_guarantee_of_many_worlds_says_where_it_has_no_bound() -> None:
    parts = unlike(34, 5)
    pairs = [Sequential(two) for two in itertools.combinations(parts, 2)]
    guarantee = Guarantee(Parallel(pairs), Coarse())
    assert guarantee.epsilon(1e-6).upper > 0
    with pytest.raises(InapplicableError, match="1e-7"):
        guarantee.epsilon(1e-9)
