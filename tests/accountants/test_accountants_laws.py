"""The laws of the algebra, over random terms, for every accountant."""

from __future__ import annotations

import importlib
import itertools
import math
import time
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    ACCOUNTANTS,
    AccountingError,
    Advanced,
    Allocated,
    Approximate,
    Basic,
    Composite,
    Distribution,
    Envelope,
    Gaussian,
    Grouped,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    Renyi,
    Repeated,
    ReplacedSample,
    Sampled,
    Sequential,
    Spend,
    Term,
    World,
    Worlds,
    certify,
    measure,
    tightest,
    worlds,
)
from accountants import losses as families

DELTA = 1e-6
size = st.floats(0.01, 3)
losses = st.one_of(
    size.map(Gaussian),
    size.map(Laplace),
    size.map(Pure),
    st.builds(Approximate, size, st.floats(0, 1e-8)),
)
spends = losses.map(Spend)
terms = st.recursive(
    spends,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(Sequential),
        st.lists(inner, min_size=1, max_size=3).map(Parallel),
        st.builds(Repeated, inner, st.integers(0, 3)),
    ),
    max_leaves=6,
)


def upper(term: Term, accountant: object, delta: float = DELTA) -> float:
    answer = measure(term, accountant, delta=delta)  # type: ignore[arg-type]
    if answer.bounds is None:  # of an envelope of a Gaussian and others
        assert answer.accountant.name in ("basic", "advanced", "gaussian", "distribution")
        return math.inf
    return answer.bounds.upper


def close(a: float, b: float) -> None:
    assert a == b or math.isclose(a, b, rel_tol=1e-12)


@examples(25)
@given(st.lists(losses, min_size=1, max_size=3), st.integers(0, 6))
def test_k_times_is_k_copies(drawn: list[PrivacyLoss], times: int) -> None:
    for accountant in ACCOUNTANTS:
        once, copies = accountant.start(), accountant.start()
        for loss in drawn:
            once = accountant.compose(once, loss, times)
            for _ in range(times):
                copies = accountant.compose(copies, loss)
        close(accountant.epsilon(once, DELTA).upper, accountant.epsilon(copies, DELTA).upper)
        close(accountant.epsilon(once, DELTA).lower, accountant.epsilon(copies, DELTA).lower)


@examples(25)
@given(st.lists(terms, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_order_does_not_matter(parts: list[Term], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(parts)
    random.shuffle(shuffled)
    for accountant in ACCOUNTANTS:
        close(upper(Sequential(parts), accountant), upper(Sequential(shuffled), accountant))
        close(upper(Parallel(parts), accountant), upper(Parallel(shuffled), accountant))


# the lattice of Advanced has another step for another composition: 1e-4 apart at most
SLACK = {"advanced": 1e-4}


@examples(25)
@given(st.lists(spends, min_size=1, max_size=4))
def test_parallel_lies_between_each_choice_and_the_sequence(parts: list[Spend]) -> None:
    for accountant in ACCOUNTANTS:
        if accountant.name in ("basic", "advanced") and any(
            isinstance(part.loss, Gaussian) for part in parts
        ):
            continue  # they split delta: the sequence's share is another one
        parallel = upper(Parallel(parts), accountant)
        slack = 1 + SLACK.get(accountant.name, 1e-12)
        assert parallel <= upper(Sequential(parts), accountant) * slack
        for part in parts:
            assert parallel >= upper(part, accountant) / slack


@examples(20)
@given(terms, st.floats(1e-12, 0.5), st.floats(1.0, 1e6))
def test_epsilon_falls_in_delta(term: Term, delta: float, factor: float) -> None:
    for accountant in ACCOUNTANTS:
        more = upper(term, accountant, min(1.0, delta * factor))
        assert (
            more <= upper(term, accountant, delta) * (1 + SLACK.get(accountant.name, 1e-11)) + 1e-9
        )


@examples(10)
@given(terms, st.floats(0.0, 8.0))
def test_delta_and_epsilon_agree(term: Term, epsilon: float) -> None:
    every = worlds(term)
    for accountant in ACCOUNTANTS:
        bounds = measure(every, accountant, epsilon=epsilon).bounds
        if bounds is None:
            continue
        assert 0 <= bounds.lower <= bounds.upper <= 1
        if bounds.upper < 1:
            returned = measure(every, accountant, delta=bounds.upper).bounds
            assert returned is not None
            assert returned.upper <= epsilon * (1 + 1e-9) + 1e-7  # a bracket may be so wide


@examples(40)
@given(losses, size, size)
def test_curves_rise_in_the_order_and_the_parameter(loss: PrivacyLoss, a: float, b: float) -> None:
    grid = np.array([1.01, 1.5, 2.0, 4.0, 10.0, 100.0, 1e4])
    curve = loss.renyi(grid)
    assert curve is not None
    assert (np.diff(curve) >= -1e-12 * curve[1:]).all()
    small, large = sorted((a, b))
    for family in (Gaussian, Laplace, Pure):
        less, more = family(small), family(large)
        assert (less.renyi(grid) <= more.renyi(grid) * (1 + 1e-11)).all()
        assert less.rho() <= more.rho()
        assert less.profile(0.3).upper <= more.profile(0.3).upper * (1 + 1e-12)
        assert more.dominates(less)
    body = Composite({Gaussian(a): 1})
    rates = [families.Sampled(body, q).renyi(grid[:-1]) for q in (0.0, 1e-6, 1e-3, 0.1, 0.7, 1.0)]
    for less_curve, more_curve in itertools.pairwise(rates):
        assert (less_curve <= more_curve * (1 + 1e-10)).all()


@examples(20)
@given(terms, st.integers(1, 4))
def test_groups_cost_at_least_their_units(term: Term, count: int) -> None:
    for accountant in ACCOUNTANTS:
        alone, group = upper(term, accountant), upper(Grouped(term, count), accountant)
        assert group >= alone * (1 - SLACK.get(accountant.name, 1e-9)) - 1e-12
    close(upper(Grouped(term, 1), Renyi()), upper(term, Renyi()))


def test_groups() -> None:
    assert upper(Grouped(Spend(Pure(0.25)), 4), ACCOUNTANTS[0], 0.0) == pytest.approx(1.0)
    assert Gaussian(0.5).grouped(3).mu() == pytest.approx(1.5)
    with pytest.raises(InapplicableError, match="group"):
        worlds(Grouped(Allocated(Spend(Gaussian(1.0)), 5), 2))
    one, two = (
        upper(Grouped(ReplacedSample(Spend(Gaussian(1.0)), 0.1), n), Distribution(), 1e-6)
        for n in (1, 2)
    )
    assert one < two < upper(Spend(Gaussian(4.0)), Distribution(), 1e-6)


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_nothing_costs_nothing(accountant: object) -> None:
    zero = Repeated(Parallel([Spend(Gaussian(1.0)), Spend(Laplace(9.0))]), 0)
    for term in (zero, Sequential([]), Sequential([zero, zero])):
        assert upper(term, accountant, 0.0) == upper(term, accountant) == 0.0
    assert worlds(zero) == Worlds({}, (World({}),), True)


def grid_of_parallels(parts: int, choices: int) -> tuple[Sequential, list[list[PrivacyLoss]]]:
    every: list[list[PrivacyLoss]] = []
    for i in range(parts):
        kinds = [Gaussian, Laplace, Pure]
        every.append([kinds[(i + j) % 3](0.05 + 0.01 * i + 0.003 * j) for j in range(choices)])
    return Sequential([Parallel([Spend(x) for x in part]) for part in every]), every


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_envelopes_are_sound_and_say_so(accountant, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    term, _ = grid_of_parallels(3, 3)
    # the package exports a function of this name
    module = importlib.import_module("accountants.world")
    exact = worlds(term)
    assert exact.exact
    exactly = measure(exact, accountant, delta=DELTA).bounds
    monkeypatch.setattr(module, "CAP", 2)
    merged = worlds(term)
    assert not merged.exact
    assert len(merged.alternatives) <= 2
    answer = measure(merged, accountant, delta=DELTA)
    if answer.bounds is None:  # an envelope of a Gaussian and others has no pure epsilon
        assert accountant.name in ("basic", "advanced", "gaussian", "distribution")
        assert answer.reason
        return
    assert answer.bounds.upper >= exactly.upper * (1 - 1e-12)
    assert answer.bounds.lower <= exactly.lower


def test_envelope_of_pure_parts_answers_every_accountant(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    module = importlib.import_module("accountants.world")
    part = [
        Parallel([Spend(Pure(0.1 + i)), Sequential([Spend(Laplace(0.2 + i))] * 2)]) for i in (0, 1)
    ]
    exact = certify(Sequential(part), DELTA)
    monkeypatch.setattr(module, "CAP", 1)
    merged = worlds(Sequential(part))
    assert not merged.exact
    for name, answer in exact.items():
        bounds = measure(merged, answer.accountant, delta=DELTA).bounds
        assert bounds is not None
        assert answer.bounds is not None
        assert bounds.upper >= answer.bounds.upper * (1 - SLACK.get(name, 1e-12))


def test_a_unit_may_move_between_rounds() -> None:
    """Rounds of a partition: each may find the unit elsewhere, which an envelope covers."""
    rounds = Repeated(Parallel([Spend(Pure(1.0)), Spend(Gaussian(0.2))]), 2)
    every = worlds(rounds)
    assert not every.exact
    mixed = [
        Sequential([Spend(a), Spend(b)])
        for a in (Pure(1.0), Gaussian(0.2))
        for b in (Pure(1.0), Gaussian(0.2))
    ]
    for term in mixed:
        assert upper(rounds, Renyi()) >= upper(term, Renyi()) * (1 - 1e-12)


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_partitions_cost_their_dearest_part(accountant: object) -> None:
    """10 spends outside and 50 in each of 4 parts are 60 spends to whoever lies in one."""
    spend = Spend(Gaussian(0.1))
    parts = Parallel([Repeated(spend, 50)] * 4, labels=["a", "b", "c", "d"])
    close(
        upper(Sequential([Repeated(spend, 10), parts]), accountant),
        upper(Repeated(spend, 60), accountant),
    )
    assert len(worlds(parts).alternatives) == 1


def test_six_partitions_of_ten_distinct_losses() -> None:
    """Within a family the dearest part covers the others: one world a family, 3 a partition."""
    term, every = grid_of_parallels(6, 10)
    computed = worlds(term)
    families = (Gaussian, Laplace, Pure)
    best = [
        {
            kind: max((x for x in part if type(x) is kind), key=lambda x: x.rho())
            for kind in families
        }
        for part in every
    ]
    for one in best:  # a pure loss covers the Laplace loss of no larger epsilon
        if one[Pure].epsilon >= one[Laplace].epsilon:
            del one[Laplace]
    assert computed.exact
    assert 1 <= len(computed.alternatives) <= math.prod(len(one) for one in best)
    worst = upper_of(computed)
    for choice in list(itertools.product(*(one.values() for one in best)))[::17]:
        assert upper(Sequential([Spend(x) for x in choice]), Renyi()) <= worst * (1 + 1e-12)
    same = [
        Parallel([Spend(Laplace(0.1 + 0.01 * i + 0.003 * j)) for j in range(10)]) for i in range(6)
    ]
    assert len(worlds(Sequential(same)).alternatives) == 1


def upper_of(computed: Worlds) -> float:
    bounds = measure(computed, Renyi(), delta=DELTA).bounds
    assert bounds is not None
    return bounds.upper


def test_incomparable_worlds_are_counted_exactly() -> None:
    """A Gaussian and a pure loss never cover each other: 2 to the sixth worlds."""
    pairs = [Parallel([Spend(Gaussian(2.0**-i)), Spend(Pure(1.0 + i))]) for i in range(6)]
    computed = worlds(Sequential(pairs))
    assert computed.exact
    # worlds with equally many pure losses may cover one another; brute force says which
    every = list(itertools.product(*([(0, 2.0**-i), (1, 1.0 + i)] for i in range(6))))

    def covers(a: tuple, b: tuple) -> bool:
        if sum(x * x for k, x in a if not k) < sum(x * x for k, x in b if not k):
            return False
        pure_a, pure_b = (sorted((x for k, x in w if k), reverse=True) for w in (a, b))
        return len(pure_a) >= len(pure_b) and all(
            x >= y for x, y in zip(pure_a, pure_b, strict=False)
        )

    maximal = [w for w in every if not any(v != w and covers(v, w) for v in every)]
    assert len(computed.alternatives) == len(maximal)


def test_labels_name_the_worst_world() -> None:
    term = Parallel(
        [Spend(Pure(1.0)), Spend(Pure(2.0)), Spend(Gaussian(0.01))], labels=["a", "b", "c"]
    )
    answers = certify(term, DELTA)
    assert tightest(answers).world.labels == ("b",)


def test_envelope_is_never_below_its_parts() -> None:
    parts = (Laplace(0.5), Approximate(0.3, 1e-7), Pure(0.45))
    for accountant in ACCOUNTANTS:
        envelope = upper(Repeated(Spend(Envelope(parts)), 5), accountant)
        for part in parts:
            assert envelope >= upper(Repeated(Spend(part), 5), accountant) * (1 - 1e-4)


PAIRS = [
    lambda i: (Gaussian(0.1 + 0.01 * i), Laplace(0.2 + 0.013 * i)),
    pytest.param(lambda i: (Laplace(0.3 + 0.01 * i), Pure(0.2 + 0.01 * i)), marks=pytest.mark.slow),
    lambda i: (Approximate(0.1 + 0.01 * i, 1e-9 * (1 + i)), Approximate(0.05 + 0.007 * i, 1e-8)),
    pytest.param(
        lambda i: (families.Sampled(Composite({Gaussian(1 + 0.1 * i): 1}), 0.1), Laplace(0.2)),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize("make", PAIRS)
def test_many_partitions_are_quick(make) -> None:  # type: ignore[no-untyped-def]
    """What took minutes takes some seconds at most; the limits leave room for slow machines."""
    parts = [Parallel([Spend(a), Spend(b)]) for a, b in map(make, range(100))]
    start = time.process_time()
    nine = worlds(Sequential(parts[:9]))
    assert nine.exact
    assert time.process_time() - start < 10
    start = time.process_time()
    certify(Sequential(parts), DELTA)
    assert time.process_time() - start < 40


def test_many_sampled_gaussians_are_quick() -> None:
    parts = [Sampled(Spend(Gaussian(1 / (1 + 0.01 * i))), 0.01 + 0.001 * i) for i in range(100)]
    start = time.process_time()
    for point in ({"delta": 1e-5}, {"epsilon": 5.0}):
        assert measure(Sequential(parts), Renyi(), **point).bounds is not None
    assert time.process_time() - start < 20


@examples(30)
@given(st.lists(st.lists(losses, min_size=1, max_size=3), min_size=1, max_size=4))
def test_what_is_pruned_costs_no_more_than_what_remains(parts: list[list[PrivacyLoss]]) -> None:
    """Every choice of parts is below the worst world, for an accountant without a share.

    A Renyi bound of a choice that is below the tight worst world proves that the choice is: only
    the others are asked of the slow tight accountant.
    """
    computed = worlds(Sequential([Parallel([Spend(x) for x in part]) for part in parts]))
    choices = [Sequential([Spend(x) for x in choice]) for choice in itertools.product(*parts)]
    by_renyi = [upper(choice, Renyi()) for choice in choices]
    for accountant in ACCOUNTANTS[2:]:
        answer = measure(computed, accountant, delta=DELTA).bounds
        assert answer is not None
        worst = answer.upper * (1 + 1e-9)
        for choice, bound in zip(choices, by_renyi, strict=True):
            if accountant.name != "distribution" or bound > worst:
                assert upper(choice, accountant) <= worst


@pytest.mark.parametrize("accountant", ACCOUNTANTS, ids=lambda a: a.name)
def test_a_group_of_pure_epsilon_is_bounded_from_below_by_what_is_attained(accountant) -> None:
    """Of a 1-DP mechanism the farthest pair at distance 2 has the trade-off f(f), f that of RR(1).

    Its delta at 0 is 1 - 1/e, and its epsilon at delta 0.3 solves p (e^2 - e^eps) = 0.3 with
    p = e^-1 / (1 + e); randomized response at 2 would be above both.
    """
    group = Grouped(Spend(Pure(epsilon=1.0)), 2)
    p = math.exp(-1) / (1 + math.e)
    epsilon = measure(group, accountant, delta=0.3).bounds
    delta = measure(group, accountant, epsilon=0.0).bounds
    assert epsilon.lower <= math.log(math.exp(2) - 0.3 / p) <= epsilon.upper
    assert delta.lower <= 1 - math.exp(-1) <= delta.upper


def test_counts_that_no_float_holds_are_refused_in_every_term() -> None:
    many = Repeated(Repeated(Spend(Laplace(epsilon=1e-3)), 10**300), 10**300)
    with pytest.raises(AccountingError):
        measure(Parallel([many, Spend(Pure(epsilon=1.0))]), Basic(), delta=0.0)
    assert worlds(Grouped(Sampled(Spend(Pure(epsilon=1.0)), 0.1), 1)).exact


def test_losses_whose_square_underflows_are_not_free() -> None:
    """10^300 responses at 1e-162 are 1e-12-GDP (but for 1e-150, by Berry and Esseen)."""
    bounds = measure(Repeated(Spend(Pure(epsilon=1e-162)), 10**300), Advanced(), delta=1e-15).bounds
    assert bounds.upper >= 2.64e-12


def test_a_group_of_laplace_noise_is_attained() -> None:
    """A sum that each of four units moves by 1 is moved by 4: the bracket was [0, epsilon]."""
    for epsilon, delta in ((0.1218, 5e-178), (0.0028, 0.0024), (0.7, 0.05)):
        with mp.workdps(40):
            true = max(4 * mp.mpf(epsilon) + 2 * mp.log1p(-mp.mpf(delta)), mp.mpf(0))
            found = measure(Grouped(Spend(Laplace(epsilon)), 4), Distribution(), delta=delta).bounds
            assert found.lower <= true <= found.upper <= true + 1e-12


@pytest.mark.parametrize("numerator", [7, 99, 208])
def test_the_lower_end_of_a_rational_epsilon_is_not_that_of_the_float_above_it(
    numerator: int,
) -> None:
    """Exact profiles at rational epsilons: a unit of the float was more than the lower end had."""
    for divisor in (3, 33, 500):
        exact = Fraction(numerator, divisor)
        with mp.workdps(50):
            e = mp.mpf(numerator) / divisor
            for share in (0.5, 0.99, 0.999999, 1 - 1e-12):
                at = float(exact) * share
                s, least = mp.exp(mp.mpf(at)), 1 / (mp.exp(e) + 2)
                truths = {
                    Laplace(exact): 1 - mp.exp((at - e) / 2),
                    Pure(exact): (mp.exp(e) - s) / (1 + mp.exp(e)),
                    families.RandomizedResponse(exact, 3): (mp.exp(e) - s) * least,
                    families.BoundedRange(exact): (1 - mp.exp((at - e) / 2)) ** 2 / -mp.expm1(-e),
                }
                for loss, true in truths.items():
                    found = measure(Spend(loss), Distribution(), epsilon=at).bounds
                    assert found.lower <= true <= found.upper


def test_a_small_epsilon_has_digits_of_its_own() -> None:
    """Seven randomized responses, by all outcomes; the bracket was 2e-5 of epsilon wide."""
    small, last, delta = mp.mpf(0.000475), mp.mpf(0.000539), 3e-7
    term = Sequential([Repeated(Spend(Pure(0.000475)), 6), Spend(Pure(0.000539))])
    bounds = measure(term, Distribution(), delta=delta).bounds
    assert bounds is not None
    assert bounds.upper - bounds.lower <= 1.2e-6 * bounds.upper

    def exact(epsilon: float) -> mp.mpf:
        p, q, total = mp.exp(small) / (1 + mp.exp(small)), mp.exp(last) / (1 + mp.exp(last)), 0
        for k in range(7):
            some = mp.binomial(6, k) * p**k * (1 - p) ** (6 - k)
            for sign, mass in ((1, q), (-1, 1 - q)):
                loss = (2 * k - 6) * small + sign * last
                total += some * mass * max(mp.mpf(0), 1 - mp.exp(epsilon - loss))
        return total

    with mp.workdps(30):
        assert exact(bounds.lower) >= delta >= exact(bounds.upper)
