"""The laws of the algebra, over every class of loss and every kind of term.

`test_accountants_laws` has the laws of plain losses, with tight tolerances. Here each example is
drawn from all of them, a few in the suite and hundreds in ``make slow``.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import term_strategies as drawn
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

from accountants import (
    ACCOUNTANTS,
    AccountingError,
    Bounds,
    BudgetError,
    ConcentratedOdometer,
    Distribution,
    GaussianOdometer,
    Grouped,
    Guarantee,
    InapplicableError,
    Laplace,
    Parallel,
    PrivacyLoss,
    Pure,
    PureOdometer,
    Renyi,
    RenyiOdometer,
    Repeated,
    Sequential,
    Spend,
    Term,
    calibrate,
    certify,
    filter_for,
    loss_cost,
    measure,
    tightest,
    worlds,
)
from accountants.document import from_document, from_json, kinds, to_document, to_json
from accountants.terms import pruned

DELTA = 1e-6
# the lattice of Advanced has another step for another composition, and Distribution another grid
SLACK = {"advanced": 1e-4, "distribution": 1e-4}


def bounds(term: Term, accountant: object, delta: float = DELTA) -> Bounds | None:
    """Return what the accountant says, or None where it or the term's group is refused."""
    try:
        return measure(term, accountant, delta=delta).bounds  # type: ignore[arg-type]
    except InapplicableError:  # of a group of a loss without group privacy
        return None


def at_most(less: Bounds | None, more: Bounds | None, name: str) -> None:
    """Assert that ``less`` is not above ``more``, but for the widths of their brackets."""
    if less is None or more is None:
        return
    assert less.lower <= more.upper * (1 + 1e-9) + 1e-12
    assert less.upper <= more.upper * (1 + SLACK.get(name, 1e-9)) + 1e-9


def same(one: Bounds | None, two: Bounds | None) -> None:
    assert (one is None) == (two is None)
    if one is not None and two is not None:
        if math.isinf(one.upper) and math.isinf(two.upper):
            return  # of several unbounded worlds any may be reported, with its own lower bound
        for a, b in ((one.lower, two.lower), (one.upper, two.upper)):
            assert a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def test_the_strategies_draw_every_class() -> None:
    assert set(drawn.LOSSES) == set(kinds(PrivacyLoss))
    assert set(drawn.TERMS) == set(kinds(Term))


@pytest.mark.parametrize("name", sorted(drawn.TERMS))
@examples(3, nightly=60)
@given(data=st.data())
def test_every_kind_of_term_is_bounded_and_written(name: str, data: st.DataObject) -> None:
    term = data.draw(drawn.TERMS[name])
    again = from_json(to_json(term))
    assert again == term
    assert from_document(to_document(term)) == term
    for accountant in ACCOUNTANTS:
        computed = bounds(term, accountant)
        assert computed is None or 0 <= computed.lower <= computed.upper


@pytest.mark.parametrize("name", sorted(drawn.LOSSES))
@examples(3, nightly=60)
@given(data=st.data())
def test_the_functionals_of_every_loss_are_monotone(name: str, data: st.DataObject) -> None:
    loss = data.draw(drawn.LOSSES[name])
    curve = loss.renyi(np.array([1.01, 1.5, 2.0, 4.0, 10.0, 100.0, 1e4]))
    if curve is not None:  # of the order: van Erven and Harremoes 2014, Thm 3
        finite = curve[np.isfinite(curve)]
        assert (np.diff(finite) >= -1e-9 * finite[1:]).all()
        assert np.isfinite(curve[: len(finite)]).all()  # infinite from some order on
    epsilons = data.draw(st.lists(st.floats(0.0, 8.0), min_size=2, max_size=5).map(sorted))
    try:
        profile = [loss.profile(epsilon) for epsilon in epsilons]
    except AccountingError:  # of a loss given by its curve alone
        return
    for left, right in itertools.pairwise(p for p in profile if p is not None):
        assert right.lower <= left.upper * (1 + 1e-9)
        assert right.upper <= left.upper * (1 + 1e-9) + 1e-12
    attained = loss.attained_pair()
    for direction in () if attained is None else (attained, attained.reversed()):
        lower = direction.profile(np.array(epsilons))[0]
        for low, bound in zip(lower.tolist(), profile, strict=True):
            assert bound is None or low <= bound.upper * (1 + 1e-12)
    pure = loss.pure()
    if pure is not None and math.isfinite(pure):
        at = loss.profile(pure * (1 + 1e-12) + 1e-300)
        assert at is None or at.lower <= loss.delta_floor() * (1 + 1e-9) + 1e-15


@examples(2, nightly=150)
@given(drawn.terms, st.integers(0, 4))
def test_k_times_is_k_copies(term: Term, times: int) -> None:
    repeated, copies = Repeated(term, times), Sequential([term] * times)
    try:
        alternatives = len(worlds(term).alternatives)
    except InapplicableError:
        return
    if alternatives > 1:
        # each round may find the unit in another part: an envelope of them covers every choice
        for accountant in ACCOUNTANTS:
            one, two = bounds(repeated, accountant), bounds(copies, accountant)
            if one is not None and two is not None:
                assert two.lower <= one.upper * (1 + 1e-9) + 1e-12
        return
    for accountant in ACCOUNTANTS:
        same(bounds(repeated, accountant), bounds(copies, accountant))


@examples(2, nightly=150)
@given(st.lists(drawn.terms, min_size=2, max_size=3), st.randoms(use_true_random=False))
def test_order_does_not_matter(parts: list[Term], random) -> None:  # type: ignore[no-untyped-def]
    shuffled = list(parts)
    random.shuffle(shuffled)
    for accountant in ACCOUNTANTS:
        same(bounds(Sequential(parts), accountant), bounds(Sequential(shuffled), accountant))
        same(bounds(Parallel(parts), accountant), bounds(Parallel(shuffled), accountant))


@examples(2, nightly=150)
@given(st.lists(drawn.terms, min_size=1, max_size=3))
def test_a_world_costs_at_most_the_sequence(parts: list[Term]) -> None:
    for accountant in ACCOUNTANTS:
        parallel, sequence = (
            bounds(Parallel(parts), accountant),
            bounds(Sequential(parts), accountant),
        )
        if accountant.name in ("basic", "advanced"):
            # they split delta among what has a failure: the sequence's share is another one
            if parallel is not None and sequence is not None:
                assert parallel.lower <= sequence.upper * (1 + 1e-9) + 1e-12
            continue
        at_most(parallel, sequence, accountant.name)


@examples(2, nightly=150)
@given(drawn.terms, st.integers(1, 3))
def test_groups_cost_at_least_their_units(term: Term, size: int) -> None:
    for accountant in ACCOUNTANTS:
        at_most(bounds(term, accountant), bounds(Grouped(term, size), accountant), accountant.name)


@examples(2, nightly=150)
@given(drawn.terms, st.floats(1e-10, 1e-3), st.floats(1.0, 1e3))
def test_epsilon_falls_in_delta(term: Term, delta: float, factor: float) -> None:
    for accountant in ACCOUNTANTS:
        at_most(
            bounds(term, accountant, min(1.0, delta * factor)),
            bounds(term, accountant, delta),
            accountant.name,
        )


@examples(2, nightly=150)
@given(drawn.terms)
def test_no_accountant_contradicts_another(term: Term) -> None:
    """All bound the epsilon of the worst world: no lower bound is above an upper one."""
    brackets = {accountant.name: bounds(term, accountant) for accountant in ACCOUNTANTS}
    applying = {name: each for name, each in brackets.items() if each is not None}
    for (low, a), (high, b) in itertools.product(applying.items(), repeat=2):
        assert a.lower <= b.upper * (1 + 1e-9) + 1e-12, (low, high)


@examples(2, nightly=150)
@given(drawn.terms)
def test_names_and_labels_change_no_value(term: Term) -> None:
    def renamed(inner: Term) -> Term:
        match inner:
            case Spend(loss=loss):
                return Spend(loss, "another name")
            case Sequential(parts=parts):
                return Sequential([renamed(part) for part in parts])
            case Parallel(choices=choices):
                return Parallel(
                    [renamed(choice) for choice in choices], [f"{i}" for i in range(len(choices))]
                )
        return inner

    for accountant in ACCOUNTANTS:
        expected = bounds(term, accountant)
        assert bounds(pruned(term, lambda name: True), accountant) == expected
        same(bounds(renamed(term), accountant), expected)


@examples(2, nightly=100)
@given(drawn.terms, drawn.terms)
def test_what_is_pruned_away_is_not_paid(remaining: Term, removed: Term) -> None:
    named = Sequential([remaining, Spend(Pure(epsilon=0.5), "gone"), removed])
    for accountant in ACCOUNTANTS:
        of_both = bounds(named, accountant)
        some = bounds(pruned(named, lambda name: name != "gone"), accountant)
        if accountant.name not in ("basic", "advanced"):  # which split delta in another way
            at_most(some, of_both, accountant.name)
        elif some is not None and of_both is not None:
            assert some.lower <= of_both.upper * (1 + 1e-9) + 1e-12


def sound(bounds: Bounds | None, *, most: float = math.inf) -> None:
    assert bounds is None or 0 <= bounds.lower <= bounds.upper <= most  # and no NaN


def rising(values: np.ndarray, slack: float = 1e-9) -> None:
    assert not np.isnan(values).any()
    assert (np.diff(values) >= -slack * values[1:] - 1e-12).all()


def filtered(term: Term, epsilon: float, delta: float) -> None:
    """Spend a term's losses from every filter and odometer: each is refused, or fits."""
    spends = [pair for world in worlds(term) for pair in world.spends.items()]
    for name in ("best", "basic", "advanced", "concentrated", "renyi", "gaussian"):
        budget = filter_for(name, epsilon, delta, delta / 2)
        state = budget.start()
        for loss, times in spends:
            fits = budget.admits(state, loss, times)
            try:
                state = budget.spend(state, loss, times)
            except BudgetError:
                assert not fits
            else:
                assert fits
        assert budget.guarantee(delta).epsilon >= 0
    for kind in (PureOdometer, RenyiOdometer, ConcentratedOdometer, GaussianOdometer):
        meter = kind(delta_reserve=delta) if kind is PureOdometer else kind(delta=delta)
        state, last = meter.start(), 0.0
        for loss, times in spends:
            try:
                state = meter.spend(state, loss, times)
            except BudgetError:
                continue
            assert meter.epsilon(state) >= last * (1 - 1e-9)
            last = meter.epsilon(state)


def curves(term: Term, epsilon: float, delta: float) -> None:
    """Read a guarantee as curves, and as what they say of attacks."""
    released = Guarantee(term)
    low, high = released.profile(np.array([0.0, min(epsilon, 1e300), 1.0, 700.0]))
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    low, high = released.tradeoff(np.array([0.0, delta, 1.0]))
    assert ((low >= 0) & (low <= high) & (high <= 1)).all()
    sound(released.advantage(), most=1.0)
    sound(released.true_positive_rate(delta), most=1.0)
    sound(released.bayes_error(delta), most=1.0)
    for read in (released.rho, released.mu):
        assert read() >= 0
    rising(released.renyi(np.array([1 + 1e-6, 1.5, 2.0, 64.0, 1e6])))


def certified(term: Term, epsilon: float, delta: float) -> None:
    """Certify with all accountants: none contradicts another, and each is monotone in delta."""
    answers = certify(term, delta)
    brackets = [answer.bounds for answer in answers.values() if answer.bounds is not None]
    for one, other in itertools.product(brackets, repeat=2):
        assert one.lower <= other.upper * (1 + 1e-9) + 1e-12
    if brackets:
        loss_cost(tightest(answers), delta, Pure(0.5))


def measured(term: Term, epsilon: float, delta: float) -> None:
    for accountant in ACCOUNTANTS:
        sound(measure(term, accountant, delta=delta).bounds)
        sound(measure(term, accountant, epsilon=epsilon).bounds, most=1.0)


def calibrated(term: Term, epsilon: float, delta: float) -> None:
    solved = calibrate(
        lambda b: Sequential([term, Spend(Laplace(1 / b))]),
        epsilon=epsilon,
        delta=delta,
        accountant=Renyi(),
        digits=0.1,
    )
    sound(solved.epsilon, most=epsilon)


@pytest.mark.parametrize(
    "ask", [measured, certified, pytest.param(curves, marks=pytest.mark.slow), filtered, calibrated]
)
@examples(3, nightly=2500)
@given(drawn.absurd_terms(), drawn.absurd, drawn.absurd_probabilities)
@pytest.mark.filterwarnings("ignore")
def test_every_question_is_answered_or_refused(
    ask: Callable[[Term, float, float], None], term: Term, epsilon: float, delta: float
) -> None:
    """Whatever the numbers are: a bracket, or an error of the library's own."""
    with contextlib.suppress(AccountingError):
        ask(term, epsilon, delta)


@examples(4, nightly=500)
@given(st.lists(drawn.terms, min_size=2, max_size=3), st.floats(1e-9, 1e-2), st.integers(0, 9))
def test_no_composition_is_looser_than_the_sum_of_its_parts(
    parts: list[Term], delta: float, share: int
) -> None:
    """Basic composition, at any split of delta: Dwork and Roth 2014, Thm 3.16."""
    accountant = Distribution()
    together = bounds(Sequential(parts), accountant, delta)
    weights = [1 + share, *[1] * (len(parts) - 1)]
    each = [
        bounds(part, accountant, delta * weight / sum(weights) * (1 - 1e-9))
        for part, weight in zip(parts, weights, strict=True)
    ]
    if together is None or any(one is None for one in each):
        return
    total = sum(one.upper for one in each if one is not None)
    assert together.upper <= total * (1 + 1e-6) + 1e-9
