"""Losses of one's own: against enumeration in exact arithmetic, and integrals of densities."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import accountants_truth as truth
import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    Distribution,
    DomainError,
    FiniteOutcomes,
    Gaussian,
    GaussianDP,
    InapplicableError,
    Laplace,
    PrivacyLoss,
    PrivacyProfile,
    Repeated,
    Sequential,
    Spend,
    certify,
    measure,
)
from accountants.document import from_json, to_json
from accountants.losses.outcomes import EstimatedLoss

# --- finitely many outcomes

masses = st.lists(st.integers(0, 40), min_size=3, max_size=3).filter(any)


def law(counts: list[int]) -> list[Fraction]:
    return [Fraction(each, sum(counts)) for each in counts]


def exact(p: list[Fraction], q: list[Fraction]) -> truth.Pair:
    return [(truth.real(a), truth.real(b)) for a, b in zip(p, q, strict=True)]


@examples(8)
@given(masses, masses, st.integers(1, 3))
def test_compositions_hold_against_every_outcome(p: list[int], q: list[int], times: int) -> None:
    loss = PrivacyLoss.from_probabilities(law(p), law(q))
    delta_at = truth.Profile(truth.product([exact(law(p), law(q))] * times))
    term = Repeated(Spend(loss), times)
    for epsilon in (0.0, 0.2, 1.0, 2.5):
        bounds = measure(term, Distribution(), epsilon=epsilon).bounds
        assert bounds is not None
        assert truth.real(bounds.lower) <= delta_at(epsilon) * (1 + mp.mpf("1e-20"))
        assert delta_at(epsilon) <= truth.real(bounds.upper) * (1 + mp.mpf("1e-20"))
    for answer in certify(term, delta=0.2).values():
        if answer.bounds is not None:
            truth.proves(answer.bounds.upper, delta_at, 0.2)
            truth.refutes(answer.bounds.lower, delta_at, 0.2)


@examples(60)
@given(masses, masses, st.floats(0, 4))
def test_one_loss_is_exact_also_where_outcomes_are_impossible(
    p: list[int], q: list[int], epsilon: float
) -> None:
    loss = PrivacyLoss.from_probabilities(law(p), law(q))
    delta = truth.hockey(exact(law(p), law(q)), epsilon)
    bounds = loss.profile(epsilon)
    assert bounds.lower <= delta * (1 + mp.mpf("1e-20"))
    truth.within(bounds.upper, delta, 1e-11, 1e-13)
    assert delta - bounds.lower <= 1e-11


@examples(60)
@given(masses, masses)
def test_the_pair_dominates_each_direction_at_every_ratio(p: list[int], q: list[int]) -> None:
    loss = PrivacyLoss.from_probabilities(law(p), law(q))
    floor, pair = truth.real(loss.delta_floor()), loss.pair()
    for side, (one, two) in ((pair, (p, q)), (pair.reversed(), (q, p))):
        rows = exact(law(one), law(two))
        for epsilon in (-3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0):
            ratio = mp.exp(truth.real(epsilon))
            stick = mp.fsum(max(a - ratio * b, mp.mpf(0)) for a, b in rows)
            upper = truth.real(float(side.profile(np.array([epsilon]))[1][0]))
            assert stick <= floor + (1 - floor) * upper + mp.mpf("1e-25")


@examples(40)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=6))
def test_mu_is_the_least_whose_curve_lies_below_the_polygon(rows: list[tuple[int, int]]) -> None:
    p, q = law([a for a, _ in rows]), law([b for _, b in rows])
    mu = PrivacyLoss.from_probabilities(p, q).mu()
    alpha, beta, gaps = mp.mpf(0), mp.mpf(1), [mp.mpf(0)]
    for a, b in sorted(zip(p, q, strict=True), key=lambda row: row[1] / row[0]):
        alpha, beta = alpha + truth.real(b), beta - truth.real(a)
        if beta > mp.mpf("1e-30"):
            # Phi^-1(1 - alpha) - Phi^-1(beta), the mu through the vertex
            gaps.append(mp.sqrt(2) * (mp.erfinv(1 - 2 * alpha) - mp.erfinv(2 * beta - 1)))
    truth.within(mu, max(gaps), 1e-13, 1e-13)


def test_the_gaussian_accountant_is_no_looser_than_by_the_pure_epsilon() -> None:
    rare = PrivacyLoss.from_probabilities([0.001, 0.5, 0.499], [0.0001, 0.5, 0.4999])
    wrapped = Repeated(Spend(rare), 50)
    upper = measure(wrapped, GaussianDP(), delta=1e-6).bounds.upper
    assert measure(wrapped, Distribution(), delta=1e-6).bounds.upper <= upper
    assert rare.pure() == pytest.approx(math.log(10), rel=1e-12)
    assert rare.mu() < 0.7  # from the pure epsilon alone it is 2.67


def test_probabilities_are_read_by_outcome_and_floats_divided_by_their_sum() -> None:
    loss = PrivacyLoss.from_probabilities({"a": 0.75, "b": 0.25}, {"b": 0.75, "a": 0.25})
    assert loss == FiniteOutcomes(
        [Fraction(3, 4), Fraction(1, 4)], [Fraction(1, 4), Fraction(3, 4)]
    )
    tenths = PrivacyLoss.from_probabilities([0.1] * 10, np.full(10, 0.1))
    assert tenths.pure() == 0.0
    leak = PrivacyLoss.from_probabilities({"seen": 1e-6, "": 1 - 1e-6}, {"": 1})
    assert leak.delta_floor() == pytest.approx(1e-6)
    assert leak.pure() == 0.0
    nothing = PrivacyLoss.from_probabilities({"x": 1}, {"y": 1})
    assert nothing.delta_floor() == 1.0
    never = PrivacyLoss.from_probabilities([0.5, 0.5], [1e-300, 1.0])
    assert never.delta_floor() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("p", "q", "said"),
    [
        ([0.5, 0.4], [0.5, 0.5], "0.9"),
        ([Fraction(1, 3)] * 2, [0.5, 0.5], "0.66"),
        ([1.5, -0.5], [0.5, 0.5], "-0.5"),
        ([0.5, math.nan], [0.5, 0.5], "nan"),
        ([1.0], [0.5, 0.5], "1 and 2"),
        ({"a": 1.0}, [1.0], "one of each"),
    ],
)
def test_what_are_no_probabilities_is_refused(p: object, q: object, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        PrivacyLoss.from_probabilities(p, q)  # type: ignore[arg-type]


@examples(20)
@given(masses, masses, st.integers(1, 3))
def test_groups_and_documents(p: list[int], q: list[int], size: int) -> None:
    loss = PrivacyLoss.from_probabilities(law(p), law(q))
    assert from_json(to_json(Spend(loss))) == Spend(loss)
    grouped = loss.grouped(size)
    assert grouped.profile(1.0).upper >= loss.profile(1.0).lower
    # a chain of neighbours whose laws go on in the same ratio, where there is one
    if min(*p, *q) > 0 and size == 2:
        third = [b * b / a for a, b in zip(law(p), law(q), strict=True)]
        if sum(third) <= 1:
            rest = 1 - sum(third)
            rows = exact([*law(p), Fraction()], [*third, rest])
            if rest == 0:
                assert truth.hockey(rows, 0.5) <= grouped.profile(0.5).upper


# --- trade-off functions


def gaussian_beta(alpha: float) -> float:
    z = -NormalDist().inv_cdf(alpha) if alpha < 0.5 else NormalDist().inv_cdf(1 - alpha)
    return math.erfc((1 - z) / math.sqrt(2)) / 2


def test_a_gaussian_trade_off_is_bounded_and_nearly_so() -> None:
    loss = PrivacyLoss.from_tradeoff(gaussian_beta)
    for epsilon in (0.0, 0.5, 1.0, 2.0, 4.0):
        delta = truth.gaussian_delta(1.0, epsilon)
        truth.within(loss.profile(epsilon).upper, delta, 0.01, 1e-11)
    assert not loss.attained
    term = Repeated(Spend(loss), 5)
    upper = measure(term, Distribution(), delta=1e-5).bounds.upper
    least = measure(Repeated(Spend(Gaussian(1.0)), 5), Distribution(), delta=1e-5).bounds
    assert least.lower <= upper <= 1.01 * least.upper


@examples(60)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=3, max_size=8).filter(
        lambda rows: any(b for _, b in rows)
    ),
    st.data(),
)
def test_some_points_of_a_polygon_bound_all_of_it(
    rows: list[tuple[int, int]], data: st.DataObject
) -> None:
    p, q = law([b for _, b in rows]), law([a for a, _ in rows])
    edges = sorted(zip(p, q, strict=True), key=lambda row: row[0] / row[1], reverse=True)
    alpha = [Fraction(), *itertools.accumulate(b for _, b in edges)]
    beta = [1 - each for each in [Fraction(), *itertools.accumulate(a for a, _ in edges)]]
    points = list(zip(alpha, beta, strict=True))
    whole = PrivacyLoss.from_tradeoff(points, polygon=True)
    assert whole.attained
    some = data.draw(st.lists(st.sampled_from(points), min_size=2, unique=True))
    loss = PrivacyLoss.from_tradeoff(some)
    both = exact(p, q)
    for epsilon in (0.0, 0.3, 1.0, 3.0):
        delta = truth.hockey(both, epsilon)
        truth.within(whole.profile(epsilon).upper, delta, 1e-11, 1e-13)
        assert delta <= truth.real(loss.profile(epsilon).upper) + mp.mpf("1e-25")
    floor, pair = truth.real(loss.delta_floor()), loss.pair()
    for side, turned in ((pair, both), (pair.reversed(), [(b, a) for a, b in both])):
        for epsilon in (-2.0, -0.5, 0.0, 0.5, 2.0):
            ratio = mp.exp(truth.real(epsilon))
            stick = mp.fsum(max(a - ratio * b, mp.mpf(0)) for a, b in turned)
            upper = truth.real(float(side.profile(np.array([epsilon]))[1][0]))
            assert stick <= floor + (1 - floor) * upper + mp.mpf("1e-25")


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([(0.1, 0.5), (0.2, 0.6)], "falls"),
        ([(0.1, 0.8), (0.2, 0.75), (0.3, 0.1)], "convex"),
        ([(0.5, 0.6), (0.6, 0.1)], "guessing"),
        ([(0.5, 0.4)], "two points"),
        ([(0.5, 1.4), (0.6, 0.1)], "beta"),
    ],
)
def test_what_is_no_trade_off_function_is_refused(points: object, said: str) -> None:
    with pytest.raises(DomainError, match=said):
        PrivacyLoss.from_tradeoff(points)  # type: ignore[arg-type]


def test_a_polygon_has_both_ends() -> None:
    with pytest.raises(DomainError, match="alpha = 0"):
        PrivacyLoss.from_tradeoff([(0.1, 0.5), (1, 0)], polygon=True)


# --- privacy profiles


def test_a_curve_holds_at_all_its_epsilons_and_between_them() -> None:
    loss = PrivacyLoss.from_curve(lambda e: Gaussian(1.0).profile(e).upper)
    for epsilon in (0.0, 0.37, 1.0, 2.2, 5.0, 9.0):
        truth.within(loss.profile(epsilon).upper, truth.gaussian_delta(1.0, epsilon), 1e-2, 1e-16)
    assert 1.0 <= loss.mu() <= 1.1
    few = PrivacyLoss.from_curve([(1.0, 1e-3), (0.5, 1e-2)])
    assert few == PrivacyProfile([(0.5, 1e-2), (1.0, 1e-3)])


def test_a_curve_that_rises_or_is_no_probability_is_refused() -> None:
    with pytest.raises(DomainError, match="falls"):
        PrivacyLoss.from_curve([(0.5, 1e-3), (1.0, 1e-2)])
    with pytest.raises(DomainError, match=r"1\.5"):
        PrivacyLoss.from_curve(lambda e: 1.5)
    with pytest.raises(DomainError, match="at"):
        PrivacyLoss.from_curve([(0.5, 1e-3)], at=[1.0])


@examples(40)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=2, max_size=6))
def test_a_profile_with_a_reverse_dominates_each_direction_by_itself(
    rows: list[tuple[int, int]],
) -> None:
    p, q = law([a for a, _ in rows]), law([b for _, b in rows])

    def stick(one: list[Fraction], two: list[Fraction], epsilon: float) -> mp.mpf:
        ratio = mp.exp(truth.real(epsilon))
        return mp.fsum(max(a - ratio * b, mp.mpf(0)) for a, b in exact(one, two))

    epsilons = [0.0, 0.1, 0.5, 1.2, 4.0]
    sides = [
        [(e, float(stick(*pair, e) * (1 + mp.mpf("1e-15")))) for e in epsilons]
        for pair in ((p, q), (q, p))
    ]
    loss = PrivacyProfile(sides[0], reverse=sides[1])
    floor = truth.real(loss.delta_floor())
    for side, pair in ((loss.pair(), (p, q)), (loss.pair().reversed(), (q, p))):
        for epsilon in (-4.0, -1.2, -0.3, 0.0, 0.05, 0.5, 0.8, 3.0):
            upper = truth.real(float(side.profile(np.array([epsilon]))[1][0]))
            assert stick(*pair, epsilon) <= (floor + (1 - floor) * upper) * (1 + mp.mpf("1e-14"))
    group, both = (
        loss.grouped(1),
        PrivacyProfile([(e, max(a, b)) for (e, a), (_, b) in zip(*sides, strict=True)]),
    )
    assert group.profile(0.7).upper == pytest.approx(both.profile(0.7).upper, rel=1e-9)


# --- densities


def laplace(x: np.ndarray, m: float) -> np.ndarray:
    return -np.abs(x - m) - math.log(2)


def logistic(x: np.ndarray, m: float) -> np.ndarray:
    return -np.abs(x - m) - 2 * np.log1p(np.exp(-np.abs(x - m)))


def gumbel(x: np.ndarray, m: float) -> np.ndarray:
    return -(x - m) - np.exp(-(x - m))


def bumps(x: np.ndarray, m: float) -> np.ndarray:
    """Two logistic bumps, 9 apart: neither log-concave nor of a monotone ratio."""
    return np.logaddexp(logistic(x, m), logistic(x, m + 9)) - math.log(2)


DENSITIES = [
    # log-density, support, facts, tolerance of delta beside 1e-10
    (laplace, (-40.0, 41.0), {"lipschitz": 1.0, "monotone": True}, 1e-3),
    (logistic, (-40.0, 41.0), {"log_concave": True, "monotone": True}, 1e-3),
    (logistic, (-40.0, 41.0), {"lipschitz": 1.0}, 5e-3),
    (gumbel, (-4.0, 42.0), {"log_concave": True}, 5e-3),
    (bumps, (-40.0, 50.0), {"lipschitz": 1.0}, 5e-3),
]


@pytest.mark.parametrize(("log_density", "support", "facts", "tolerance"), DENSITIES)
def test_densities_are_bounded_by_their_integrals(log_density, support, facts, tolerance) -> None:  # type: ignore[no-untyped-def]
    loss = PrivacyLoss.from_densities(
        lambda x: log_density(x, 1.0),
        lambda x: log_density(x, 0.0),
        support=support,
        outside=1e-15,
        **facts,
    )
    # the trapezoid rule on a grid of 5e-5: its own error is below 1e-8
    x = np.linspace(-12.0, 38.0, 1_000_001)
    present, absent = np.exp(log_density(x, 1.0)), np.exp(log_density(x, 0.0))
    for epsilon in (0.0, 0.25, 0.6, 0.9):
        deltas = [
            float(np.trapezoid(np.maximum(one - math.exp(epsilon) * two, 0.0), x))
            for one, two in ((present, absent), (absent, present))
        ]
        upper = loss.profile(epsilon).upper
        assert max(deltas) - 1e-8 <= upper <= max(deltas) * (1 + tolerance) + 1e-5
        for points, delta in zip((loss.points, loss.reverse), deltas, strict=True):
            # each direction by itself: the guarantee at the last epsilon before this one
            assert max(p for p in points if p[0] <= epsilon)[1] >= delta - 1e-8


def test_compositions_of_densities_are_above_closed_forms() -> None:
    noise = PrivacyLoss.from_densities(
        lambda x: laplace(x, 1.0),
        lambda x: laplace(x, 0.0),
        support=(-40.0, 41.0),
        lipschitz=1.0,
        monotone=True,
        outside=1e-15,
    )
    normal = PrivacyLoss.from_densities(
        lambda x: -((x - 1) ** 2) / 2 - math.log(2 * math.pi) / 2,
        lambda x: -(x**2) / 2 - math.log(2 * math.pi) / 2,
        support=(-12.0, 13.0),
        log_concave=True,
        monotone=True,
        outside=1e-30,
    )
    for mine, closed in ((noise, Laplace(1.0)), (normal, Gaussian(1.0))):
        for times, delta in ((1, 1e-6), (10, 1e-6)):
            upper = measure(Repeated(Spend(mine), times), Distribution(), delta=delta).bounds.upper
            truth_ = measure(Repeated(Spend(closed), times), Distribution(), delta=delta).bounds
            assert truth_.lower <= upper <= truth_.upper * 1.002


WRONG = [
    (laplace, {"lipschitz": 0.9}, "lipschitz"),
    (bumps, {"log_concave": True}, "concave"),
    (bumps, {"lipschitz": 1.0, "monotone": True}, "monotone"),
    (lambda x, m: laplace(x, m) + 0.1, {"lipschitz": 1.0}, "integral"),
    (lambda x, m: laplace(x, m) - 0.1, {"lipschitz": 1.0}, "integral"),
    (lambda x, m: np.where(x > m, -np.inf, 0.0), {"lipschitz": 1.0}, "finite number"),
    (lambda x, m: 0.0, {"lipschitz": 1.0}, "finite number"),
    (laplace, {}, "fact"),
    (laplace, {"lipschitz": math.nan}, "lipschitz"),
]


@pytest.mark.parametrize(("log_density", "facts", "said"), WRONG)
def test_facts_that_the_values_contradict_are_refused(log_density, facts, said) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DomainError, match=said):
        PrivacyLoss.from_densities(
            lambda x: log_density(x, 1.0),
            lambda x: log_density(x, 0.0),
            support=(-40.0, 50.0),
            **facts,
        )


# --- samples


def test_an_estimate_is_certified_by_no_accountant() -> None:
    draw = np.random.default_rng(0)
    loss = PrivacyLoss.from_samples(draw.normal(1, 1, 20_000), draw.normal(0, 1, 20_000), bins=40)
    # a false alarm below 1e-9: the frequencies are within six standard errors of .004
    assert loss.estimate(0.0) == pytest.approx(float(truth.gaussian_delta(1.0, 0.0)), abs=0.03)
    for answer in certify(Sequential([Spend(loss), Spend(Laplace(1.0))]), delta=1e-6).values():
        assert answer.bounds is None
        assert "estimate" in answer.reason
    with pytest.raises(InapplicableError, match="estimate"):
        loss.pure()
    with pytest.raises(DomainError):
        to_json(Spend(loss))
    with pytest.raises(DomainError, match="counts"):
        EstimatedLoss([1, 2], [0, 0])
