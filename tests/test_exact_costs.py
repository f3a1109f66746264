"""Costs of common releases: the least float that is at least what they are, exactly."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import attrs
import numpy as np
import pytest
from attrs import astuple, frozen
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp
from accountants import filters
from accountants.document import from_json, to_json
from accountants.numerics import declared, flooring, kept, plus, quotient, rounded_up, shown
from adaptive_dp.cli.main import main
from adaptive_dp.graph.operation import Change
from adaptive_dp.queries.counts import Count, Counts, Histogram

QUICK = examples(150)
POSITIVE = st.floats(1e-6, 1e6)
PEOPLE = dp.dataset("people", columns={"x": (-3, 10), "c": ["a", "b", "c"]})


def spent(query, mechanism, **declared):
    [part] = dp.Pipeline(n=query.release(mechanism)).term.parts
    return part.loss


def least(value, exact):
    """Whether a float is the least that is at least a rational."""
    return Fraction(value) >= exact > Fraction(math.nextafter(value, -math.inf))


@QUICK
@given(st.floats(-1e9, 1e9), POSITIVE)
def test_quotients_are_rounded_up(value, by):
    assert least(quotient(value, by), Fraction(value) / Fraction(by))


def test_quotients_of_what_is_no_number():
    assert quotient(math.inf, 2.0) == math.inf
    assert math.isnan(quotient(math.nan, 2.0))


@QUICK
@given(POSITIVE, st.integers(1, 50), st.sampled_from([dp.Laplace, dp.Gaussian]))
def test_a_count_costs_what_it_costs(noise, rows, kind):
    people = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=rows)
    loss = spent(people.count(), kind(noise))
    assert least(astuple(loss)[0], rows / Fraction(noise))


@QUICK
@given(
    st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5)).filter(lambda b: b[0] < b[1]),
    st.integers(1, 9),
    st.booleans(),
)
def test_a_sum_moves_by_what_it_moves(bounds, rows, fixed):
    lower, upper = map(Fraction, bounds)
    relation = "replace_one" if fixed else "add_remove"
    people = dp.dataset("p", columns={"x": bounds}, unit="id", rows_per_unit=rows)
    # where a value may be missing, exchanged rows may have different numbers of values
    query = people["x"].fill(bounds[0]).sum() if fixed else people["x"].sum()
    change = Change(relation == "replace_one", rows, fixed)
    exact = rows * (upper - lower if fixed else max(abs(lower), abs(upper)))
    assert least(query.operation.sensitivity(query.inputs[0].domain, change, 1), exact)


@pytest.mark.parametrize("both", range(2, 9))
def test_roots_are_rounded_up(both):
    change = Change(True, (both + 1) // 2, False, both)
    histogram = PEOPLE["c"].histogram()
    sensitivity = histogram.operation.sensitivity(histogram.inputs[0].domain, change, 2)
    assert Fraction(sensitivity) ** 2 >= change.rows**2 + (both - change.rows) ** 2
    counts = PEOPLE.counts([PEOPLE["x"] > i for i in range(both)])
    sensitivity = counts.operation.sensitivity(counts.inputs[0].domain, Change(False, 3, False), 2)
    assert Fraction(sensitivity) ** 2 >= 9 * both
    assert isinstance(histogram.operation, Histogram)
    assert isinstance(counts.operation, Counts)


def test_the_plain_choice_fits_the_plain_budget():
    query = PEOPLE.count().release(dp.Laplace(scale=1.0))
    assert "epsilon=1 " in repr(dp.Pipeline(n=query).certify())
    with dp.Session(budget=dp.Budget(1.0), people={"x": [1.0], "c": ["a"]}) as session:
        session.run(query)
        assert session.remaining.costs[0] == 0


def test_a_loss_of_ones_own_still_gets_room_for_its_division():
    class Third(dp.Laplace):
        def loss(self, distance):
            return accountants.Laplace(epsilon=distance / 3)

    class Cost(dp.Laplace):
        def cost(self, distance, dimension, step):
            return accountants.Pure(distance - 1)

    class Other(dp.Laplace):
        scale: float = dp.noise_parameter("b", default=2.0)

    third = spent(PEOPLE.count(), Third(1.0)).epsilon
    assert Fraction(1, 3) <= Fraction(third) <= Fraction(1, 3) * (1 + Fraction(2) ** -48)
    assert 0 < spent(PEOPLE.count(), Cost(1.0)).epsilon < 1e-14
    assert spent(PEOPLE.count(), Other()).epsilon == 0.5


def test_a_mechanism_in_whole_steps_pays_for_no_step_more():
    """It is asked at the distance itself, and what it answers is rounded up."""
    table = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=5)
    asked = []

    class Steps(dp.Mechanism):
        each: float = dp.noise_parameter("e")
        limit: float = math.inf

        def release(self, value, stream):
            return value

        def loss(self, distance):
            asked.append(distance)
            if distance > self.limit and distance != round(distance):
                raise ValueError("whole steps alone")
            steps = math.ceil(distance)
            return accountants.Approximate(epsilon=steps * self.each, delta=1e-6)

    for limit in (math.inf, 4.5):
        asked.clear()
        loss = spent(table.count(), Steps(each=0.1, limit=limit))
        assert asked[0] == 5
        # five steps of a tenth, rounded up, and a delta that no distance moves
        assert Fraction(0.1) * 5 <= Fraction(loss.epsilon) <= Fraction(1, 2) * (1 + 2**-48)
        assert loss.delta == 1e-6


def test_each_number_of_a_loss_that_jumps_is_rounded_towards_the_costlier():
    table = dp.dataset("people", columns={"x": (0, 1)}, unit="id", rows_per_unit=5)

    class Lattice(dp.Mechanism):
        sigma: float = dp.noise_parameter("s")

        def release(self, value, stream):
            return value

        def loss(self, distance):
            steps = math.ceil(distance)
            return accountants.Composite(
                [
                    (accountants.DiscreteGaussian(self.sigma, steps), 1),
                    (accountants.GaussianSparseVector(self.sigma / steps, 7.0, 3, 1, False), 1),
                ]
            )

    loss = spent(table.count(), Lattice(30.0))
    (noise, _), (tested, _) = loss.spends
    assert tuple(attrs.astuple(noise)) == (30.0, 5)
    assert (tested.query_noise, tested.queries) == (7.0, 3)
    assert 6 * (1 - 2**-48) < tested.threshold_noise < 6


def test_a_sensitivity_of_ones_own_still_gets_room():
    from adaptive_dp.graph.handles import PrivateQuery

    @frozen
    class Odd(Count):
        kind = "odd_count"

        def sensitivity(self, domain, change, norm):
            return float(np.sqrt(1.0))

    loss = spent(PrivateQuery(Odd(), (PEOPLE,)), dp.Laplace(1.0))
    assert 1 < loss.epsilon < 1 + 1e-14


# --- Rational costs: ten tenths are one -------------------------------------------------------


def pure(loss):
    """Return a loss's pure epsilon, as the rational that exact sums read."""
    return Fraction(loss.pure())


@examples(30)
@given(st.integers(1, 60), st.one_of(st.integers(1, 10**6).map(float), POSITIVE), st.integers(1, 9))
def test_costs_are_distances_over_scales(distance, scale, k):
    truth = Fraction(distance) / Fraction(scale)
    span = 2 * truth
    for loss, cost in [
        (dp.Laplace(scale).loss(distance), truth),
        (dp.DiscreteLaplace(scale).loss(distance), truth),
        (dp.Exponential(scale).loss(distance), span),
        (dp.PermuteAndFlip(scale).loss(distance), span),
        (dp.NoisyMax(scale).loss(distance), span),
        (dp.NoisyMax(scale, noise="gumbel").loss(distance), span),
        (dp.TopK(k=k, scale=scale).loss(distance), k * span),
        (dp.Norm(scale=scale, p=1).loss(distance), truth),
        (dp.Norm(scale=scale, p=math.inf).loss(distance), truth),
        (dp.SparseVector(scale=scale, threshold=0, monotone=True).loss(distance, distance), span),
        (
            dp.SparseVector(scale, 0, monotone=True, numeric=scale).loss(distance, distance),
            2 * truth,
        ),
        (accountants.RandomizedResponse(truth), truth),
        (accountants.Pure(truth), truth),
        (accountants.Approximate(truth, 1e-9), truth),
    ]:
        assert pure(loss) == cost, loss
        # the float that everything else computes with is the least above
        assert least(float(loss.pure()), cost)
        # a group costs its size times as much, exactly, and so do copies
        if not isinstance(loss, accountants.Approximate | accountants.RandomizedResponse):
            assert pure(loss.grouped(k)) == k * cost
        state = accountants.Basic().compose(accountants.Basic().start(), loss, k)
        assert state.epsilon == k * cost
        for _ in range(2):
            state = accountants.Basic().compose(state, loss, k)
        assert state.epsilon == 3 * k * cost


@pytest.mark.parametrize(
    ("mechanism", "tenths"),
    [
        (dp.Exponential(scale=10), 1),
        (dp.PermuteAndFlip(scale=10), 1),
        (dp.NoisyMax(scale=10), 1),
        (dp.NoisyMaxWithGap(scale=10), 1),
        (dp.TopK(k=3, scale=30), 1),
        (dp.SparseVector(scale=20, threshold=5, monotone=True), 1),
        (dp.Norm(scale=10, p=1), 1),
        (dp.DiscreteLaplace(scale=10), 1),
        (dp.QuantileExponential(scale=10), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_chosen_in_a_plan_costs_tenths(mechanism, tenths):
    """By the plan's own distances and spans, which leave no room either: ten fit a budget of 1."""
    query = PEOPLE["c"].histogram()
    if isinstance(mechanism, dp.QuantileExponential):
        query = PEOPLE["x"].median()
    loss = spent(query, mechanism)
    assert pure(loss) == Fraction(tenths, 10)
    held = accountants.filter_for("basic", 1.0, 0.0)
    assert held.fitting(held.start(), loss) == 10


@pytest.mark.parametrize("delta", [0.0, 1e-17])
def test_three_tenths_are_the_same_by_every_accountant_of_pure_costs(delta):
    counts = {
        f"n{i}": PEOPLE.filter(PEOPLE["x"] > i).count().release(dp.Laplace(scale=10.0))
        for i in range(3)
    }
    rows = dp.Pipeline(**counts).certify(delta).accountants
    pures = {row.name: row for row in rows if row.name not in ("concentrated", "gaussian")}
    assert {shown(row.upper, upward=True) for row in pures.values()} == {"0.3"}
    assert max(Fraction(row.upper) for row in pures.values()) == Fraction(3, 10)
    assert all(row.lower <= row.upper for row in pures.values())
    if not delta:  # at another a float may be below the sum, as it should
        assert len({row.upper for row in pures.values()}) == 1


def test_a_decimal_is_the_cost_that_it_says():
    tenth = accountants.Pure(Decimal("0.1"))
    assert pure(tenth) == Fraction(1, 10)
    assert tenth == accountants.Pure(Fraction(1, 10))
    # a float is itself: who computed it rounded it up, perhaps
    assert pure(accountants.Pure(0.1)) == Fraction(0.1) > Fraction(1, 10)
    assert tenth != accountants.Pure(0.1)
    assert accountants.Pure(0.1).dominates(tenth)
    assert not tenth.dominates(accountants.Pure(0.1))
    for bad in (Fraction(-1, 3), Decimal("-1"), Decimal("NaN"), "0.1"):
        with pytest.raises(accountants.DomainError, match=r"Pure\.epsilon"):
            accountants.Pure(bad)


def test_rounded_up_numbers_are_ordered_as_their_rationals():
    rationals = [Fraction(n, 7**k) for k in (1, 20, 40) for n in (3, 7**k + 1, 5 * 7**k - 2)]
    values = [rounded_up(r) for r in rationals] + [0.1, 0.5, 3.0, math.inf, *map(float, rationals)]
    for a, b in itertools.product(values, repeat=2):
        x, y = (v if v == math.inf else Fraction(v) for v in (a, b))
        assert ((a < b), (a <= b), (a == b), (a != b), (a > b), (a >= b)) == (
            (x < y),
            (x <= y),
            (x == y),
            (x != y),
            (x > y),
            (x >= y),
        )
        assert a != b or hash(a) == hash(b)
    third = rounded_up(Fraction(1, 3))
    assert pickle.loads(pickle.dumps(third)) == copy.deepcopy(third) == third
    assert type(rounded_up(Fraction(3, 8))) is float
    assert np.asarray([third, 0.5]).tolist() == [float(third), 0.5]
    with pytest.raises(AttributeError):
        third.exact = Fraction(1)


def test_documents_keep_the_rational():
    term = accountants.Repeated(accountants.Spend(dp.Laplace(10.0).loss(1.0)), 10)
    text = to_json(term)
    assert '"epsilon": {"fraction": "1/10"}' in text
    assert from_json(text) == term
    assert pure(from_json(text).part.loss) == Fraction(1, 10)
    # a plan's document and fingerprint are of scales; what its certificate says of losses is read
    # again as it was written
    plan = dp.Pipeline(n=PEOPLE.count().release(dp.Laplace(scale=10.0)))
    certificate = plan.certify()
    again = type(certificate).from_json(certificate.to_json())
    assert again == certificate
    assert again.claim.epsilon == certificate.claim.epsilon


def test_an_independent_computation_reads_the_rational():
    term = accountants.Repeated(accountants.Spend(accountants.Pure(Fraction(1, 10))), 10)
    pytest.importorskip("flint")
    from accountants import independent

    assert independent.check(to_json(term), epsilon=1.0, delta=0.0).verdict


@examples(30)
@given(st.lists(st.fractions(0, 3), min_size=1, max_size=40))
def test_the_basic_accountant_rounds_once(costs):
    term = accountants.Sequential([accountants.Spend(accountants.Pure(c)) for c in costs])
    answer = accountants.measure(term, accountants.Basic(), delta=0.0)
    assert least(answer.bounds.upper, sum(costs)) or sum(costs) == 0


def test_a_long_sum_is_rounded_up_and_stays_short():
    primes = [p for p in range(3, 20_000) if all(p % q for q in range(2, math.isqrt(p) + 1))]
    total, truth = Fraction(), Fraction()
    for p in primes:
        total = plus(total, Fraction(1, p))
        truth += Fraction(1, p)
    assert truth <= total <= truth + len(primes) * Fraction(1, 2**2304)
    assert total.denominator.bit_length() <= 8192


@pytest.mark.parametrize("accountant", ["basic", "best", "advanced", "renyi"])
def test_tenths_fit_decimal_budgets(accountant):
    delta = 0.0 if accountant == "basic" else 1e-12
    for epsilon, scale, times in [(1.0, 10.0, 10), (0.3, 10.0, 3), (0.7, 10.0, 7), (0.1, 30.0, 3)]:
        held = accountants.filter_for(accountant, epsilon, delta)
        loss = dp.Laplace(scale).loss(1.0)
        if accountant == "basic":
            assert held.fitting(held.start(), loss) == times
            left = held.spend(held.start(), loss, times)
            # the float 0.1 is a little more than a tenth
            over = max(Fraction(), Fraction(epsilon) - Fraction(repr(epsilon)))
            assert held.remaining(left).costs == (flooring(over),)
        assert held.admits(held.start(), loss, times)
        # a little more noise is a little less cost; a little less noise does not fit
        if accountant == "basic":
            assert not held.admits(
                held.start(), dp.Laplace(math.nextafter(scale, 0)).loss(1.0), times
            )


@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 10), (0.3, 3)])
def test_a_session_spends_all_of_a_decimal_budget(epsilon, times):
    people = dp.dataset("people", columns={"x": (0, 1)})
    rows = {"x": [0.5] * 50}
    with dp.Session(budget=dp.Budget(epsilon), accountant="basic", seed=1, people=rows) as session:
        for i in range(times):
            some = people.filter(people["x"] > i / 20)
            session.run(some.count().release(dp.Laplace(scale=10)))
        assert session.remaining.costs == (0.0,)
        with pytest.raises(dp.BudgetError):
            session.run(people.count().release(dp.Laplace(scale=1e9)))
        certificate = session.certificate()
    # the claim is the budget as it was written, and no less than what was admitted
    exact = Fraction(times, 10)
    for each in (certificate, dp.Certificate.from_json(certificate.to_json())):
        assert Fraction(each.claim.epsilon) >= exact
        assert str(each.claim.epsilon) == str(epsilon)
        assert Fraction(each.session.odometer.epsilon) >= exact
        assert str(each).startswith(f"epsilon <= {epsilon:g} at delta = 0")
        assert each == certificate
        assert dp.verify(each).holds
    # what a program reads in the document, whether it knows of rationals or not
    document = json.loads(certificate.to_json())
    assert Fraction(document["claim"]["epsilon"]) >= exact
    assert Fraction(document["claim"].get("exact", epsilon)) == exact


def test_each_filter_claims_what_it_admits():
    tenth = accountants.Laplace(Fraction(1, 10))
    for name in ("basic", "best", "advanced", "renyi"):
        held = accountants.filter_for(name, 0.3, 1e-6)
        state = held.spend(held.start(), tenth, 3)
        assert state.sums[0] == Fraction(3, 10)
        assert Fraction(held.guarantee(1e-6).epsilon) >= state.sums[0]


@examples(30)
@given(st.lists(st.decimals(0, 2, places=3), min_size=1, max_size=12))
def test_certified_decimals_print_as_their_sum(costs):
    exact = sum(map(Fraction, costs), Fraction())
    term = accountants.Sequential([accountants.Spend(accountants.Pure(c)) for c in costs])
    upper = accountants.measure(term, accountants.Basic(), delta=0.0).bounds.upper
    assert least(float(upper), exact) or exact == 0
    assert Fraction(upper) >= exact
    assert Fraction(str(upper)) == exact
    assert Fraction(shown(upper, upward=True, digits=9)) == exact
    # a budget that is written so is kept, and a smaller one is not
    assert upper <= declared(float(str(upper)))
    assert Fraction(kept(float(str(upper)))) >= exact


def test_a_plan_of_three_tenths_is_within_three_tenths(tmp_path, capsys):
    releases = {f"n{i}": PEOPLE.count().release(dp.Laplace(scale=10)) for i in range(3)}
    plan = dp.Pipeline(**releases)
    certificate = plan.certify()
    assert Fraction(certificate.epsilon) == Fraction(3, 10)
    assert float(certificate.epsilon) == math.nextafter(0.3, 1)
    assert repr(certificate) == "<certificate epsilon=0.3 delta=0 by basic>"
    again = dp.Certificate.from_json(certificate.to_json())
    assert again == certificate
    assert str(again) == str(certificate)
    assert str(dp.verify(again)).startswith("holds: epsilon <= 0.3, recomputed 0.3,")
    file = tmp_path / "plan.json"
    file.write_text(plan.to_json())
    assert main(["certify", str(file), "--at-most", "0.3"]) == 0
    assert main(["certify", str(file), "--at-most", "0.2999999999999999"]) == 1
    assert main(["certify", str(file), "--at-most", "inf"]) == 0
    # the sum of three floats of 0.1 is more than three tenths
    over = accountants.Repeated(accountants.Spend(accountants.Pure(0.1)), 3)
    upper = accountants.measure(over, accountants.Basic(), delta=0.0).bounds.upper
    assert not upper <= declared(0.3)
    assert shown(upper, upward=True) == "0.300001"


@pytest.mark.parametrize("exact", ["1/10", "3/1e9", "3/0", 0.3, "9" * 2000 + "/1", "299/1000"])
def test_a_document_does_not_say_less_than_its_float(exact):
    releases = {f"n{i}": PEOPLE.count().release(dp.Laplace(scale=10)) for i in range(3)}
    document = dp.Pipeline(**releases).certify().to_document()
    document["claim"]["exact"] = exact
    with pytest.raises(dp.DocumentError, match="claim"):
        dp.Certificate.from_document(document)


def test_a_refusal_is_explained_where_it_is_read(monkeypatch):
    held = accountants.filter_for("best", 1.0, 1e-6)
    state, asked = held.start(), accountants.Laplace(3.0)
    explain, explained = filters._refusal, []

    def counted(*arguments):
        explained.append(arguments)
        return explain(*arguments)

    monkeypatch.setattr(filters, "_refusal", counted)
    for _ in range(100):
        with pytest.raises(accountants.BudgetError) as refused:
            held.spend(state, asked, 2)
    assert not explained
    error = refused.value
    assert (error.request, error.times) == (asked, 2)
    # once, whoever asks first, and of the state in which it was refused
    held.spend(state, accountants.Laplace(0.9))
    assert held.admits(state, error.largest, 2)
    assert not held.admits(state, attrs.evolve(error.largest, epsilon=0.5 + 1e-9), 2)
    assert error.fitting == 0
    assert "it does not fit even once; what fits is epsilon" in str(error)
    assert len(explained) == 1
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert type(again) is accountants.BudgetError
        assert again.args == error.args == (str(error), asked, 2, 0, error.largest)
        assert repr(again) == repr(error)
    assert len(explained) == 1
