"""Privacy filters: against adaptive adversaries, enumerated, and against exact sums."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from accountants_truth import Pair, leaky, real, response
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import Approximate, Gaussian, Laplace, PrivacyLoss, Pure
from accountants.errors import BudgetError, DomainError, InapplicableError
from accountants.filters import (
    ApproximateFilter,
    BestFilter,
    ConcentratedFilter,
    GaussianFilter,
    PureFilter,
    RenyiFilter,
    SomeOrderFilter,
    SumFilter,
    filter_for,
)
from accountants.individual import IndividualFilter, sum_up
from accountants.losses.composite import Composite
from accountants.losses.sampling import Sampled
from accountants.secret import Secret

EPSILON, DELTA = 1.0, 1e-3
TIGHT = [
    ConcentratedFilter.within(EPSILON, DELTA),
    GaussianFilter.within(EPSILON, DELTA),
    RenyiFilter.within(EPSILON, DELTA),
    RenyiFilter.within(EPSILON, DELTA, order=3.0 + 12),
    SomeOrderFilter(EPSILON, DELTA),
    SomeOrderFilter(EPSILON, DELTA, orders=[4.0, 12.0, 40.0]),
    BestFilter(EPSILON, DELTA),
    ApproximateFilter(EPSILON, DELTA),
]
FILTERS = [PureFilter(EPSILON, DELTA), *TIGHT]


def hockey_of_adversary(
    filter_: SumFilter, menu: Sequence[tuple[PrivacyLoss, Pair]], epsilon: float, depth: int
) -> mp.mpf:
    """The largest ``E_P (1 - e^{eps - L})_+`` over all adaptive strategies within the filter."""
    bound = real(epsilon)

    def value(state, loss: mp.mpf, left: int) -> mp.mpf:  # type: ignore[no-untyped-def]
        best = max(mp.mpf(0), 1 - mp.exp(bound - loss))
        if left == 0 or mp.isinf(loss):
            return mp.mpf(1) if mp.isinf(loss) else best
        for spend, pair in menu:
            if filter_.admits(state, spend):
                after = filter_.spend(state, spend)
                total = mp.fsum(
                    p * value(after, loss + (mp.log(p / q) if q else mp.inf), left - 1)
                    for p, q in pair
                    if p
                )
                best = max(best, total)
        return best

    with mp.workdps(25):
        return value(filter_.start(), mp.mpf(0), depth)


def quantised(mu: float, cuts: Sequence[float]) -> Pair:
    """N(mu, 1) against N(0, 1), seen through cells: a post-processing."""
    ends = [-mp.inf, *cuts, mp.inf]
    return [
        (mp.ncdf(b - mu) - mp.ncdf(a - mu), mp.ncdf(b) - mp.ncdf(a))
        for a, b in itertools.pairwise(ends)
    ]


MENU = [
    (Pure(0.5), response(0.5)),
    (Pure(0.1), response(0.1)),
    (Approximate(0.3, 1e-4), leaky(0.3, 1e-4)),
]


@pytest.mark.parametrize("filter_", TIGHT[:-1], ids=lambda f: f.name)
def test_no_adaptive_strategy_of_gaussians_breaks_a_filter(filter_: SumFilter) -> None:
    menu = [(Gaussian(mu), quantised(mu, [-0.5, 0.5, 2.0])) for mu in (0.05, 0.15, 0.25)]
    assert hockey_of_adversary(filter_, menu, EPSILON, 3) <= real(DELTA)


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: f.name)
def test_no_adaptive_strategy_breaks_a_filter(filter_: SumFilter) -> None:
    delta = filter_.delta_reserve if isinstance(filter_, PureFilter) else DELTA
    assert filter_.adaptive
    assert hockey_of_adversary(filter_, MENU, EPSILON, 4) <= real(delta)


def test_no_strategy_that_leaves_different_sums_by_answers_breaks_the_best_filter() -> None:
    filter_ = BestFilter(1.2, 0.06)
    menu = [
        (Pure(0.6), response(0.6)),
        (Gaussian(0.2), quantised(0.2, [-1.0, 0.5, 1.5])),
        (Gaussian(0.5), quantised(0.5, [-0.5, 0.5, 2.0])),
        (Laplace(0.3), response(0.3)),
    ]
    sums = set()
    for path in itertools.product([loss for loss, _ in menu], repeat=4):
        state = filter_.start()
        for loss in path:
            if filter_.admits(state, loss):
                state = filter_.spend(state, loss)
                pairs = zip(state.sums, filter_.budgets(), strict=True)
                sums.add(tuple(s <= b for s, b in pairs))
    assert {(True, False, False), (False, True, True), (True, True, True)} <= sums
    assert {left for left in sums if left[0] != left[1] and left[1] != left[2]}
    assert hockey_of_adversary(filter_, menu, 1.2, 4) <= real(0.06)
    pairs = [(q, p) for p, q in menu[2][1]], [(q, p) for p, q in menu[1][1]]
    turned = [menu[0], (menu[1][0], pairs[1]), (menu[2][0], pairs[0]), menu[3]]
    assert hockey_of_adversary(filter_, turned, 1.2, 4) <= real(0.06)


def test_shares_of_the_best_filter_add_up_to_delta() -> None:
    # each budget's own guarantee, by mpmath, where Balle and Wang's profile and the tail integral
    # of the conversion are evaluated and not their inverses
    for epsilon, delta, delta_reserve in ((1.0, 1e-6, 0.0), (0.1, 1e-9, 1e-10), (8.0, 1e-2, 1e-3)):
        best = BestFilter(epsilon, delta, delta_reserve)
        with mp.workdps(40):
            mu, eps, order = real(best.mu), real(epsilon), real(best.order)
            gauss = mp.ncdf(mu / 2 - eps / mu) - mp.exp(eps) * mp.ncdf(-mu / 2 - eps / mu)
            # max over y of (1 - e^-y) e^{-(a-1) y}, times the moment
            factor = (1 / order) * (1 - 1 / order) ** (order - 1)
            moment = factor * mp.exp((order - 1) * (real(best.divergence) - eps))
            reserve = real(delta_reserve)
            assert reserve + (1 - reserve) * (gauss + moment) <= real(delta)
            assert reserve + (1 - reserve) * (gauss + moment) >= real(delta) * (
                1 - mp.mpf(10) ** -9
            )


def test_the_best_filter_answers_nearly_as_often_as_the_best_of_its_accounting_units() -> None:
    best = BestFilter(1.0, 1e-6)
    own = [GaussianFilter.within(1.0, 1e-6), RenyiFilter.within(1.0, 1e-6)]
    for loss in (Gaussian(0.01), Gaussian(1 / 15), Laplace(0.2), Laplace(0.01), Pure(0.1)):
        most = max(one.fitting(one.start(), loss) for one in own)
        assert best.fitting(best.start(), loss) >= math.floor(0.9 * most)
    pure = BestFilter(1.0, 0.0)  # no delta: what is left is the sum of epsilons
    assert pure.fitting(pure.start(), Pure(0.25)) == 4
    assert not pure.admits(pure.start(), Gaussian(1e-3))
    unpriced = Sampled(Composite([(Gaussian(0.5), 1)]), 0.01)  # no mu, and no pure epsilon
    assert best.fitting(best.start(), unpriced) > 1000
    mixed = best.spend(best.start(), unpriced, 10)
    assert best.fitting(mixed, Gaussian(0.01)) > 400


def test_adversaries_with_one_large_step_come_close() -> None:
    # the enumeration has teeth: a slightly larger claim would be broken
    divergence = hockey_of_adversary(PureFilter(1.0), [(Pure(0.5), response(0.5))], 0.9, 3)
    assert divergence > 0.03


def small_natural_filter() -> tuple[Fraction, Fraction]:
    """What a natural filter of trade-off curves allows, and what then happens; exact.

    e^eps = 2. First randomized response at log 2. Then, as its answer was, either randomized
    response at log 4, or a leak with probability 2/5 and nothing else.
    """
    two, four = Fraction(2), Fraction(4)
    first = [(Fraction(2, 3), Fraction(1, 3)), (Fraction(1, 3), Fraction(2, 3))]
    second = [(four / 5, 1 / Fraction(5)), (1 / Fraction(5), four / 5)]
    leak = [
        (Fraction(2, 5), Fraction(0)),
        (Fraction(3, 5), Fraction(3, 5)),
        (Fraction(0), Fraction(2, 5)),
    ]

    def hockey(pairs: list[tuple[Fraction, Fraction]]) -> Fraction:
        return max(
            sum(max(Fraction(0), x - two * y) for x, y in side)
            for side in (pairs, [(y, x) for x, y in pairs])
        )

    def product(follow: Callable[[int], list[tuple[Fraction, Fraction]]]) -> Fraction:
        return hockey([(p * x, q * y) for i, (p, q) in enumerate(first) for x, y in follow(i)])

    allowed = max(product(lambda i: second), product(lambda i: leak))
    return allowed, product(lambda i: (second, leak)[i])


def test_the_natural_filter_of_loss_distributions_is_false() -> None:
    allowed, adaptive = small_natural_filter()
    assert allowed == Fraction(2, 5)  # both paths are within (log 2, 2/5), as curves too at log 2
    assert adaptive == Fraction(8, 15)  # their adaptive mixture is not


@pytest.mark.parametrize("name", ["distribution", "pld", "tradeoff", "contour", "data-dependent"])
def test_accounting_units_without_a_theorem_are_refused(name: str) -> None:
    with pytest.raises(InapplicableError, match="Tran"):
        filter_for(name, 1.0, 1e-6)


def test_each_accounting_unit_with_a_theorem_has_its_filter() -> None:
    kinds = {
        "best": BestFilter,
        "basic": PureFilter,
        "advanced": ApproximateFilter,
        "concentrated": ConcentratedFilter,
        "renyi": SomeOrderFilter,
        "gaussian": GaussianFilter,
    }
    for name, kind in kinds.items():
        made = filter_for(name, 1.0, 1e-6, delta_reserve=1e-9)
        assert isinstance(made, kind)
        assert made.guarantee(1e-6).epsilon <= 1.0
        assert made.theorem


# --- exactness


def test_a_budget_is_not_exceeded_by_an_ulp() -> None:
    tenth = Pure(0.1)  # the float is above 1/10, so ten of them are above 1
    budget = PureFilter(1.0)
    assert budget.fitting(budget.start(), tenth) == 9
    assert budget.admits(budget.start(), tenth, 9)
    assert not budget.admits(budget.start(), tenth, 10)
    exact = PureFilter(math.nextafter(1.0, 2))
    state = exact.spend(exact.start(), Pure(0.5), 2)
    assert exact.remaining(state).costs == (math.nextafter(1.0, 2) - 1,)
    assert exact.admits(state, Pure(2.0**-52))
    assert not exact.admits(state, Pure(2.0**-51))


def test_sixteen_quarters_of_mu_are_one() -> None:
    for budget in (GaussianFilter(1.0), ConcentratedFilter(0.5)):
        assert budget.fitting(budget.start(), Gaussian(0.25)) == 16


sizes = st.floats(1e-9, 0.4)
losses = st.one_of(
    st.builds(Pure, sizes),
    st.builds(Laplace, sizes),
    st.builds(Approximate, sizes, st.sampled_from([0.0, 1e-300, 1e-5])),
)


@examples(30)
@given(st.lists(st.tuples(losses, st.integers(0, 5)), max_size=8), st.sampled_from(FILTERS))
def test_any_adaptive_sequence_ends_within(requests, filter_: SumFilter) -> None:  # type: ignore[no-untyped-def]
    state = filter_.start()
    sums, failure = [Fraction()] * len(state.sums), Fraction()
    for loss, times in requests:
        fits = filter_.admits(state, loss, times)
        assert fits == (times <= filter_.fitting(state, loss))
        if not fits:
            before = (state, hash(state))
            with pytest.raises(BudgetError) as caught:
                filter_.spend(state, loss, times)
            assert (state, hash(state)) == before
            refused = caught.value
            assert (refused.request, refused.times) == (loss, times)
            assert filter_.admits(state, loss, refused.fitting)
            if refused.largest is not None:
                assert filter_.admits(state, refused.largest, times)  # type: ignore[arg-type]
            continue
        state = filter_.spend(state, loss, times)
        sums = [s + p * times for s, p in zip(sums, filter_.costs(loss), strict=True)]
        failure += Fraction(loss.delta_floor()) * times
    assert state.sums == tuple(sums)
    assert state.delta_floor == failure <= Fraction(filter_.delta_reserve)
    within = [s <= b for s, b in zip(sums, filter_.budgets(), strict=True)]
    assert all(within) if filter_.needs_every_unit else any(within)
    spent, left = filter_.spent(state), filter_.remaining(state)
    for s, b, up, down in zip(sums, filter_.budgets(), spent.costs, left.costs, strict=True):
        assert Fraction(up) >= s
        assert Fraction(down) <= max(0, b - s)


def test_a_refusal_names_request_rest_and_what_fits() -> None:
    budget = GaussianFilter(mu=1.0)
    state = budget.spend(budget.start(), Gaussian(0.5), 3)
    with pytest.raises(BudgetError) as caught:
        budget.spend(state, Gaussian(0.25), 5)
    text = str(caught.value)
    assert "Gaussian(mu=0.25) 5 times" in text
    assert "0.3125 of 0.25" in text
    assert "fits 4 times" in text
    assert caught.value.fitting == 4
    largest = caught.value.largest
    assert isinstance(largest, Gaussian)
    assert largest.mu_ == pytest.approx(math.sqrt(0.05), rel=1e-12)
    assert budget.admits(state, largest, 5)
    assert budget.admits(state, Gaussian(0.25), 4)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.fitting, again.largest) == (text, 4, largest)


def test_failures_have_a_budget_of_their_own() -> None:
    budget = ConcentratedFilter.within(1.0, 1e-6, delta_reserve=1e-9)
    state = budget.spend(budget.start(), Approximate(0.01, 1e-10), 9)
    assert budget.admits(state, Pure(0.01), 50)
    with pytest.raises(BudgetError) as caught:
        budget.spend(state, Approximate(0.01, 1e-10), 2)
    assert caught.value.largest is None  # no scale of epsilon helps
    assert not ConcentratedFilter(1.0).admits(
        ConcentratedFilter(1.0).start(), Approximate(0, 1e-300)
    )
    tiny = PureFilter(1.0, delta_reserve=1e-300)
    assert tiny.fitting(tiny.start(), Approximate(0.0, 1e-300)) == 1


# --- tightness


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-100, 1e-300])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 10.0])
def test_whatever_the_printed_filter_admits_is_admitted(epsilon: float, delta: float) -> None:
    budget = ApproximateFilter(epsilon, delta, delta_reserve=0.0)
    for size in (epsilon / 1000, epsilon / 30, epsilon / 3):
        loss, state = Pure(size), budget.start()
        times = 1
        with mp.workdps(30):
            while (
                mp.sqrt(2 * mp.log(1 / real(delta)) * times * real(size) ** 2)
                + times * real(size) ** 2 / 2
                <= epsilon
            ):
                times += 1 + times // 8
        printed = (times * 8) // 9 - 1
        assert budget.fitting(state, loss) >= max(printed, int(0.999 * epsilon / size))


@pytest.mark.parametrize("delta", [1e-2, 1e-6, 1e-300])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize(
    "make",
    [ConcentratedFilter.within, GaussianFilter.within, RenyiFilter.within, ApproximateFilter],
)
def test_guarantees_hold_and_are_used_up(
    make: Callable[[float, float], SumFilter], epsilon: float, delta: float
) -> None:
    budget = make(epsilon, delta)
    assert epsilon * (1 - 1e-9) <= budget.guarantee(delta).epsilon <= epsilon
    assert budget.guarantee(delta / 10).epsilon > epsilon
    assert ConcentratedFilter.within(epsilon, delta).guarantee(1.0).epsilon == 0


def test_gaussians_without_loss() -> None:
    # the largest mu with delta(1) <= 1e-5 has sigma = 3.73063163482 (analytic Gaussian)
    assert 1 / GaussianFilter.within(1.0, 1e-5).mu == pytest.approx(3.73063163482, rel=1e-11)


def test_some_order_serves_losses_of_every_kind() -> None:
    some = SomeOrderFilter(1.0, 1e-6)
    one = RenyiFilter.within(1.0, 1e-6)
    assert some.fitting(some.start(), Pure(0.25)) == 4  # its sum of epsilons is free
    assert some.fitting(some.start(), Gaussian(0.01)) > 0.75 * one.fitting(
        one.start(), Gaussian(0.01)
    )
    assert not some.admits(some.start(), Gaussian(10.0))


# --- size, and what is refused


@pytest.mark.parametrize("filter_", FILTERS, ids=lambda f: f.name)
def test_thousands_of_spends_in_constant_space(filter_: SumFilter) -> None:
    calls = 0

    class Counted(Pure):
        def delta_floor(self) -> float:
            nonlocal calls
            calls += 1
            return 0.0

    state = filter_.start()
    sizes = []
    for i in range(3_000):
        state = filter_.spend(state, Counted(1e-7 * (1 + i % 7)))
        if i in (99, 2_999):
            sizes.append(
                sum(s.numerator.bit_length() + s.denominator.bit_length() for s in state.sums)
            )
    assert calls == 3_000
    assert sizes[1] <= sizes[0] + 20 * len(state.sums)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "1", None, True])
def test_parameters_outside_their_domain(value: object) -> None:
    for make in (PureFilter, ConcentratedFilter, GaussianFilter):
        with pytest.raises(DomainError):
            make(value)  # type: ignore[arg-type]
    for make in (ApproximateFilter, SomeOrderFilter):
        with pytest.raises(DomainError):
            make(value, 1e-6)  # type: ignore[arg-type]
        with pytest.raises(DomainError):
            make(1.0, value)  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        RenyiFilter(2.0, value)  # type: ignore[arg-type]
    with pytest.raises(DomainError):
        RenyiFilter(value, 1.0)  # type: ignore[arg-type]


def test_more_refusals() -> None:
    for orders in (1.0, [2.0, 2.0], []):
        with pytest.raises(DomainError):
            SomeOrderFilter(1.0, 1e-6, orders=orders)
    with pytest.raises(DomainError):
        RenyiFilter([2.0, 3.0], [1.0])
    with pytest.raises(DomainError):
        ApproximateFilter(1.0, 1e-6, delta_reserve=1e-5)
    with pytest.raises(DomainError):
        PureFilter(1.0).admits(PureFilter(1.0).start(), 0.5)  # type: ignore[arg-type]
    with pytest.raises(InapplicableError):
        ConcentratedFilter.within(1.0, 0.0)
    with pytest.raises(InapplicableError):
        GaussianFilter.within(1.0, 1e-6, delta_reserve=1e-6)
    with pytest.raises(InapplicableError):
        RenyiFilter.within(0.1, 1e-6, order=2.0)
    with pytest.raises(InapplicableError):
        PureFilter(1.0).admits(PureFilter(1.0).start(), Gaussian(1.0))
    for filter_ in FILTERS[1:]:
        assert not filter_.admits(filter_.start(), Gaussian(1e200))
    assert ApproximateFilter(1.0, 0.0).fitting(ApproximateFilter(1.0, 0.0).start(), Pure(0.5)) == 2


# --- individual


def test_individual_budgets_are_never_exceeded_and_everything_is_private() -> None:
    budget = IndividualFilter(mu=0.5)
    draw = np.random.default_rng(7)
    state = budget.start(50)
    exact = [Fraction()] * 50
    for _ in range(200):
        costs = draw.exponential(0.01, 50) * draw.integers(0, 2, 50)
        state, active = budget.spend(state, Secret(costs))
        assert repr(active) == repr(state.sums) == "<private>"
        assert repr(state) == "IndividualState(sums=<private>)"
        for i, on in enumerate(active.reveal()):
            fits = exact[i] + Fraction(costs[i]) <= Fraction(1, 4)
            assert fits or not on  # rounding up may drop a record, never keep one
            exact[i] += Fraction(costs[i]) if on else 0
    assert max(exact) <= Fraction(1, 4)
    sums = budget.spent(state).reveal()
    assert all(Fraction(s) >= e for s, e in zip(sums, exact, strict=True))
    np.testing.assert_allclose(sums, [float(e) for e in exact], rtol=1e-12)
    left = budget.remaining(state).reveal()
    assert all(Fraction(r) <= Fraction(1, 4) - e for r, e in zip(left, exact, strict=True))
    with pytest.raises(TypeError):
        pickle.dumps(state)


def test_a_dropped_record_may_take_part_in_a_cheaper_step() -> None:
    budget = IndividualFilter(mu=1.0)
    state, active = budget.spend(budget.start(2), Secret(np.array([0.75, 0.5])))
    state, active = budget.spend(state, Secret(np.array([0.5, 0.5])))
    assert active.reveal().tolist() == [False, True]
    state, active = budget.spend(state, Secret(np.array([0.25, 2.0**-60])))
    assert active.reveal().tolist() == [True, False]


def test_nothing_private_decides_an_error() -> None:
    budget = IndividualFilter(mu=1.0)
    costs = Secret(np.array([math.nan, -1.0, math.inf, 0.0]))
    state, active = budget.spend(budget.start(4), costs)
    assert active.reveal().tolist() == [False, False, False, True]
    assert budget.spent(state).reveal().tolist() == [0.0] * 4
    with pytest.raises(DomainError) as caught:
        budget.active(budget.start(3), costs)
    assert not any(c.isdigit() for c in str(caught.value))
    with pytest.raises(DomainError) as caught:
        budget.spend(budget.start(4), Secret(["secret"] * 4))  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
    with pytest.raises(DomainError):
        budget.spend(budget.start(4), np.zeros(4))  # type: ignore[arg-type]


def test_individual_gaussian_costs_and_guarantee() -> None:
    budget = IndividualFilter(mu=0.5)
    norms = np.array([0.0, 1e-200, 0.1, 1.0, math.nan])
    for rounding in (0.0, 0.125):
        costs = budget.gaussian(Secret(norms), 2.0, rounding).reveal()
        for norm, cost in zip(norms[:4], costs[:4], strict=True):
            truth = (Fraction(norm) / 2 + (Fraction(rounding) if norm else 0)) ** 2
            assert truth <= Fraction(cost) <= truth * (1 + Fraction(1, 10**14)) + Fraction(1e-300)
        assert math.isnan(costs[4])
    assert budget.guarantee(1e-5) == GaussianFilter(0.5).guarantee(1e-5)
    assert math.isinf(budget.guarantee(0.0).epsilon)
    assert IndividualFilter.within(1.0, 1e-6).guarantee(1e-6).epsilon <= 1.0
    with pytest.raises(InapplicableError, match="delta"):
        IndividualFilter.within(1.0, 0.0)


@examples(200)
@given(st.floats(0, 1e300), st.floats(0, 1e300))
def test_sums_are_rounded_up_to_the_next_float(a: float, b: float) -> None:
    (total,) = sum_up(np.array([a]), np.array([b]))
    exact = Fraction(a) + Fraction(b)
    assert Fraction(float(total)) >= exact
    assert Fraction(math.nextafter(float(total), -1.0)) < exact or total == 0
