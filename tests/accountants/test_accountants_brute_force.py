"""Every accountant against enumeration of small discrete mechanisms."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import accountants_truth as truth
import mpmath as mp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    ACCOUNTANTS,
    Advanced,
    Approximate,
    Basic,
    Bounds,
    Grouped,
    InapplicableError,
    Laplace,
    Parallel,
    Pure,
    Repeated,
    Sampled,
    Selected,
    Sequential,
    Spend,
    Term,
    certify,
    measure,
    worlds,
)

DELTAS = (1e-300, 1e-20, 1e-9, 1e-4, 0.03, 0.25)
EPSILONS = (0.0, 0.4, 1.3)

Profile = Callable[[mp.mpf], mp.mpf]
Leaf = tuple[float, float]

leaves = st.tuples(
    st.one_of(st.sampled_from([0.1, 0.5, 1.0]), st.floats(1e-3, 6)),
    st.one_of(st.just(0.0), st.floats(1e-6, 0.15)),
)


def loss(leaf: Leaf) -> Pure | Approximate:
    eps, delta = leaf
    return Approximate(eps, delta) if delta else Pure(eps)


def pair(leaf: Leaf) -> truth.Pair:
    return truth.leaky(*leaf) if leaf[1] else truth.response(leaf[0])


def check(term: Term, exact: Profile, *, lower: bool = True) -> None:
    """Upper ends are not below the truth, lower ends not above it, at each delta and epsilon."""
    for delta in DELTAS:
        for name, answer in certify(term, delta).items():
            assert answer.bounds is not None, name
            truth.proves(answer.bounds.upper, exact, delta)
            if lower:
                truth.refutes(answer.bounds.lower, exact, delta)
    for epsilon in EPSILONS:
        at = exact(mp.mpf(epsilon))
        for accountant in ACCOUNTANTS:
            bounds = measure(term, accountant, epsilon=epsilon).bounds
            assert bounds is not None
            assert truth.real(bounds.upper) >= at * (1 - mp.mpf(10) ** -25)
            if lower:
                assert truth.real(bounds.lower) <= at * (1 + mp.mpf(10) ** -25)


@examples(5)
@given(st.lists(leaves, min_size=1, max_size=5))
def test_compositions(drawn: list[Leaf]) -> None:
    exact = truth.Profile(truth.product(pair(leaf) for leaf in drawn))
    check(Sequential([Spend(loss(leaf)) for leaf in drawn]), exact)


@examples(12)
@given(leaves, st.integers(1, 40))
def test_equal_responses(leaf: Leaf, times: int) -> None:
    exact = truth.binomial_delta(leaf[0], times, leaf[1])
    check(Repeated(Spend(loss(leaf)), times), exact)


@pytest.mark.parametrize("times", [49, 50, 64, 65, 300])
def test_many_equal_responses_are_exact(times: int) -> None:
    for eps, failure in [(0.05, 0.0), (1.0, 0.0), (8.0, 0.0), (0.2, 1e-5)]:
        exact = truth.binomial_delta(eps, times, failure)
        term = Repeated(Spend(loss((eps, failure))), times)
        for delta in (1e-200, 1e-12, 1e-3, 0.4):
            bounds = measure(term, Advanced(), delta=delta).bounds
            assert bounds is not None
            truth.proves(bounds.upper, exact, delta)
            truth.refutes(bounds.lower, exact, delta)
            if not failure and delta > 1e-13:
                best = truth.root(exact, delta, times * eps + 1)
                assert bounds.upper <= best * (1 + mp.mpf("1e-9")) + mp.mpf("1e-12")
                assert bounds.lower >= best * (1 - mp.mpf("1e-9")) - mp.mpf("1e-12")


def test_a_tiny_delta_on_unequal_responses_costs_their_sum() -> None:
    """The lattice once answered 0 here: rounding alone exceeds a delta of 1e-14."""
    term = Sequential([Repeated(Spend(Pure(e)), 3) for e in (0.1, 0.2, 0.3)])
    for delta in (1e-14, 1e-20, 1e-100, 1e-300):
        bounds = measure(term, Advanced(), delta=delta).bounds
        assert bounds is not None
        assert 1.8 - 1e-6 <= bounds.upper <= 1.8000000001


def test_failures_do_not_lift_the_lower_end() -> None:
    """The sum of the failures, 0.1, is more than the chance of any of them, 0.0956."""
    exact = truth.binomial_delta(0.5, 10, 0.01)
    bounds = measure(Repeated(Spend(Approximate(0.5, 0.01)), 10), Advanced(), delta=0.2).bounds
    assert bounds is not None
    best = truth.root(exact, 0.2, 5)
    assert truth.real(bounds.lower) <= best <= truth.real(bounds.upper)
    assert bounds.lower >= best * (1 - mp.mpf("1e-9"))


@examples(15)
@given(st.lists(st.tuples(st.floats(0.01, 1.5), st.integers(1, 30)), min_size=2, max_size=3))
def test_unequal_responses_are_close_on_the_lattice(drawn: list[tuple[float, int]]) -> None:
    """Murtagh and Vadhan's optimum by enumeration over the counts of each response."""
    counts = Counter()
    for eps, times in drawn:
        counts[eps] += times
    atoms = [(mp.mpf(0), mp.mpf(1))]
    for eps, times in counts.items():
        e = truth.real(eps)
        norm = (1 + mp.exp(e)) ** times
        own = [
            ((times - 2 * j) * e, mp.binomial(times, j) * mp.exp((times - j) * e) / norm)
            for j in range(times + 1)
        ]  # fmt: skip
        if len(atoms) * len(own) > 1500:
            break
        atoms = [(a + b, m * n) for (a, m), (b, n) in itertools.product(atoms, own)]
    else:

        def exact(e: mp.mpf, atoms: list[tuple[mp.mpf, mp.mpf]] = atoms) -> mp.mpf:
            return mp.fsum(m * (1 - mp.exp(e - a)) for a, m in atoms if a > e)

        term = Sequential([Repeated(Spend(Pure(e)), n) for e, n in counts.items()])
        for delta in (1e-8, 1e-3, 0.1):
            bounds = measure(term, Advanced(), delta=delta).bounds
            assert bounds is not None
            truth.proves(bounds.upper, exact, delta)
            if len(counts) > 1 and bounds.upper > 0:
                # one cell of the lattice, at most, on top of 2e-3
                total = sum(e * n for e, n in counts.items())
                lower = truth.real(bounds.upper) * (1 - mp.mpf("2e-3")) - mp.mpf(1e-4) * total
                assert lower <= 0 or exact(lower) > delta


@pytest.mark.parametrize("delta", [1e-100, 1e-8, 0.1])
def test_many_different_responses_are_close_on_the_lattice(delta: float) -> None:
    """79 that hardly differ, six by six and one alone: the binomial of the least is below them."""
    exact = truth.binomial_delta(0.1, 79, 0.0)
    term = Sequential([Spend(Pure(0.1 * (1 + i * 1e-12))) for i in range(79)])
    bounds = measure(term, Advanced(), delta=delta).bounds
    assert bounds is not None
    best = truth.root(exact, delta, 8)
    assert best <= truth.real(bounds.upper) <= best * (1 + mp.mpf("2e-3"))


@pytest.mark.slow
@examples(9)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(2, 4)), min_size=1, max_size=4))
def test_random_mechanisms_with_a_pure_epsilon(drawn: list[tuple[int, int]]) -> None:
    """Pairs over k letters, declared by their log ratio rounded up: the truth lies below."""
    pairs, terms = [], []
    for seed, letters in drawn:
        masses, eps = truth.random_pair(seed, letters)
        pairs.append(masses)
        terms.append(Spend(Pure(float(eps) * (1 + 1e-15) + 1e-300)))
    check(Sequential(terms), truth.Profile(truth.product(pairs)), lower=False)


# --- worlds


def trees(depth: int) -> st.SearchStrategy[Term]:
    spend = leaves.map(lambda leaf: Spend(loss(leaf)))
    if depth == 0:
        return spend
    inner = trees(depth - 1)
    some = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        spend,
        some.map(Sequential),
        some.map(Parallel),
        st.builds(Repeated, inner, st.integers(0, 2)),
    )


def explicit(term: Term) -> set[tuple[Leaf, ...]]:
    """Every multiset of leaves that a unit can touch, without any pruning."""
    match term:
        case Spend(loss=Approximate(epsilon=eps, delta=delta)):
            return {((eps, delta),)}
        case Spend(loss=Pure(epsilon=eps)):
            return {((eps, 0.0),)}
        case Sequential(parts=parts):
            return joined([explicit(part) for part in parts])
        case Repeated(part=part, times=times):
            return joined([explicit(part)] * times)
        case Parallel(choices=choices):
            return set().union(*(explicit(choice) for choice in choices))
    raise AssertionError(term)


def joined(sets: list[set[tuple[Leaf, ...]]]) -> set[tuple[Leaf, ...]]:
    return {tuple(sorted(sum(way, ()))) for way in itertools.product(*sets)}


@examples(30)
@given(trees(3))
def test_terms_over_every_explicit_choice(term: Term) -> None:
    ways = explicit(term)
    assume(len(ways) <= 12 and max(len(way) for way in ways) <= 5)
    products = [truth.Profile(truth.product(pair(x) for x in way)) for way in ways]

    def exact(e: mp.mpf) -> mp.mpf:
        return max(each(e) for each in products)

    every = worlds(term)
    assert len(every.alternatives) <= len(ways)
    for delta in (1e-12, 1e-3, 0.2):
        for accountant in ACCOUNTANTS:
            bounds = measure(every, accountant, delta=delta).bounds
            assert bounds is not None
            truth.proves(bounds.upper, exact, delta)
            truth.refutes(bounds.lower, exact, delta)


@examples(48)
@given(trees(3))
def test_remaining_worlds_are_explicit_ones_and_cover_the_rest(term: Term) -> None:
    every = worlds(term)
    assume(every.exact)
    ways = {tuple(sorted(way)) for way in explicit(term)}
    explicit_worlds = []
    for world in every:
        flat: list[Leaf] = []
        for spent, times in world.spends.items():
            flat += [(spent.pure(), spent.delta_floor())] * times  # type: ignore[list-item]
        explicit_worlds.append(tuple(sorted(flat)))
    assert set(explicit_worlds) <= ways
    assert len(set(explicit_worlds)) == len(explicit_worlds)
    for way in ways:  # some remaining world has, in some order, costlier leaves for each of its own
        assert any(dominated(way, world) for world in explicit_worlds)


def dominated(small: tuple[Leaf, ...], large: tuple[Leaf, ...]) -> bool:
    if len(small) > len(large):
        return False
    return any(
        all(a[0] <= b[0] and a[1] <= b[1] for a, b in zip(small, order, strict=False))
        for order in itertools.permutations(large, len(small))
    )


@examples(12)
@given(st.lists(leaves, min_size=1, max_size=2), st.lists(leaves, min_size=1, max_size=2))
def test_a_group_may_be_spread_over_the_parts(one: list[Leaf], two: list[Leaf]) -> None:
    """Two units in different parts: each part sees one of them, both are touched."""
    term = Grouped(Parallel([Sequential([Spend(loss(x)) for x in part]) for part in (one, two)]), 2)
    spread = truth.Profile(truth.product(pair(leaf) for leaf in [*one, *two]))
    for delta in (1e-9, 1e-2, 0.3):
        for accountant in ACCOUNTANTS:
            bounds = measure(term, accountant, delta=delta).bounds
            assert bounds is not None
            truth.proves(bounds.upper, spread, delta)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_a_group_costs_no_less_than_its_units_apart(noise: str) -> None:
    """Exact sums: two units together, of noise that a distance shifts, against one and one."""
    reach, scale = 24, 1.3

    def mass(x: int) -> mp.mpf:
        size = mp.mpf(abs(x)) if noise == "laplace" else mp.mpf(x) ** 2
        return mp.exp(-size / scale)

    def shifted(by: int) -> list[tuple[mp.mpf, mp.mpf]]:
        return [(mass(x - by), mass(x)) for x in range(-reach, reach + 1)]

    def delta(pairs: list[tuple[mp.mpf, mp.mpf]], epsilon: float) -> mp.mpf:
        return mp.fsum(max(p - mp.exp(epsilon) * q, mp.mpf(0)) for p, q in pairs)

    total = mp.fsum(mass(x) for x in range(-2 * reach, 2 * reach + 1))
    apart = [(p * r, q * s) for p, q in shifted(1) for r, s in shifted(2)]
    for epsilon in (-1.0, 0.0, 0.3, 1.1, 2.0, 3.2):
        together = delta(shifted(3), epsilon) / total
        assert together >= delta(apart, epsilon) / total**2 - mp.mpf(10) ** -12


def test_a_group_of_what_is_known_of_one_mechanism_alone_is_paid_by_each_unit() -> None:
    """The theorem of a selection's group is of one selection, and units may meet two."""
    best = Selected(Spend(Laplace(0.1)), shape=1.0, stopping=0.1)
    [alone], [apart] = worlds(Grouped(best, 2)), worlds(Grouped(Parallel([best, best]), 2))
    assert list(apart.spends) == list(alone.spends)
    assert (sum(alone.spends.values()), sum(apart.spends.values())) == (1, 2)
    # inside of a run, the group of what it releases covers both choices
    within = Selected(Parallel([Spend(Laplace(0.1))] * 2), shape=1.0, stopping=0.1)
    assert [world.spends for world in worlds(Grouped(within, 2))] == [alone.spends]
    nested = Selected(Parallel([best, best]), shape=1.0, stopping=0.1)
    with pytest.raises(InapplicableError, match="several choices of a Parallel"):
        worlds(Grouped(nested, 2))


@examples(6)
@given(st.lists(leaves, min_size=1, max_size=2), st.floats(1e-4, 1.0), st.integers(1, 2))
def test_sampled_bodies(drawn: list[Leaf], rate: float, times: int) -> None:
    """The mixture with the law without the unit, enumerated; both directions in each step."""
    q = truth.real(rate)
    body = truth.product(pair(leaf) for leaf in drawn)
    step = [((1 - q) * b + q * a, b) for a, b in body]
    exact = truth.Profile(truth.product([step] * times))
    term = Repeated(Sampled(Sequential([Spend(loss(x)) for x in drawn]), rate), times)
    check(term, exact)


def test_pure_sums_at_delta_zero() -> None:
    """Failures that are exactly 0 stay so: sampling and groups keep the pure epsilon."""
    sums = {
        Repeated(Spend(Laplace(0.25)), 8): 2.0,
        Grouped(Spend(Approximate(0.5, 0.0)), 4): 2.0,
        Sampled(Spend(Laplace(2.0)), 1.0): 2.0,
    }
    for term, total in sums.items():
        bounds: Bounds | None = measure(term, Basic(), delta=0.0).bounds
        assert bounds is not None
        assert total <= bounds.upper <= total * (1 + 1e-14)


@pytest.mark.parametrize("epsilon", [1.0, 30.0, 60.0, 700.0])
@pytest.mark.parametrize("delta", [1e-9, 0.01, 0.5, 0.9])
def test_a_loss_close_to_randomized_response_is_not_taken_for_it(
    epsilon: float, delta: float
) -> None:
    """Laplace's profile at 0 is randomized response's to 1e-13 from 60 on, its epsilon is not."""

    def exact(at: mp.mpf) -> mp.mpf:
        return max(mp.mpf(0), -mp.expm1((at - truth.real(epsilon)) / 2))

    for accountant in ACCOUNTANTS:
        bounds = measure(Spend(Laplace(epsilon)), accountant, delta=delta).bounds
        assert bounds is not None
        truth.proves(bounds.upper, exact, delta)
        truth.refutes(bounds.lower, exact, delta)


@pytest.mark.parametrize("rate", [1 - 5e-13, 1 - 1e-16, 0.999])
@pytest.mark.parametrize("delta", [1e-9, 0.1, 0.4])
def test_sampled_response_is_not_taken_for_a_response(rate: float, delta: float) -> None:
    q, pair = truth.real(rate), truth.response(1.0)
    exact = truth.Profile([((1 - q) * b + q * a, b) for a, b in pair])
    for accountant in ACCOUNTANTS:
        bounds = measure(Sampled(Spend(Pure(1.0)), rate), accountant, delta=delta).bounds
        assert bounds is not None
        truth.refutes(bounds.lower, exact, delta)
        truth.proves(bounds.upper, exact, delta)
