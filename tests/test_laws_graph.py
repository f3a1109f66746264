"""Laws of plans: calibration, documents, sharing, pruning and order."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_strategies import COLUMNS, DATA, KINDS, PURE, first, plans
from profiles import examples

import accountants
import adaptive_dp as dp

SETTINGS = examples(6, nightly=100)
ALLOWED = ["plan_strategies"]  # which defines a mechanism of its own


EPSILONS = st.sampled_from([1e-3, 0.02, 0.5, 1.0, 4.0, 20.0])


@SETTINGS
@given(st.data(), EPSILONS, st.sampled_from([0.0, 1e-9, 1e-5]))
def test_calibrate_then_certify_meets_the_target(data, epsilon, delta):
    kinds = PURE if delta == 0 else KINDS
    plan = data.draw(plans(kinds, free=True))
    solved = plan.calibrate(epsilon=epsilon, delta=delta)
    assert not solved.free
    certificate = solved.certify()
    assert certificate.delta == delta
    assert certificate.epsilon <= epsilon
    if certificate.epsilon > 1e-300:  # and little is wasted, unless nothing can change at all
        assert certificate.epsilon >= epsilon * 0.99
    assert solved.certify(delta).epsilon == certificate.epsilon
    assert dp.load(solved.to_json(), allow=ALLOWED).certify().epsilon == certificate.epsilon


@SETTINGS
@given(st.data(), st.sampled_from([1e-9, 1e-5]))
def test_a_document_round_trip_changes_nothing(data, delta):
    free = data.draw(st.booleans())
    plan = data.draw(plans(free=free))
    text = plan.to_json()
    again = dp.load(text, allow=ALLOWED)
    assert again.fingerprint == plan.fingerprint
    assert json.loads(again.to_json()) == json.loads(text)
    if free:
        values = {name: 2.0 + i for i, name in enumerate(sorted(plan.free))}
        plan, again = plan.fix(**values), again.fix(**values)
        assert again.fingerprint == plan.fingerprint
    one, two = plan.certify(delta), again.certify(delta)
    assert one.bounds == two.bounds
    assert one.shares == two.shares
    values = [p.simulate(seed=1, t=DATA) for p in (plan, again)]
    assert str(values[0]["a"]) == str(values[1]["a"])


def base(**options):
    return dp.dataset("t", columns=COLUMNS, **options)


def upper(delta=1e-6, **outputs):
    certificate = dp.Pipeline(**outputs).certify(delta)
    return {name: bounds.upper for name, bounds in certificate.bounds.items()}


def test_what_no_output_wants_is_not_paid():
    table = base()
    wanted = table.count().release(dp.Laplace(scale=2.0))
    alone = upper(a=wanted)
    table["x"].sum().release(dp.Laplace(scale=0.01))
    dp.post(first, table.count().release(dp.Laplace(scale=0.01)), wanted)
    assert upper(a=wanted) == alone
    assert alone["basic"] == pytest.approx(0.5, rel=1e-12)


def test_a_release_that_outputs_share_is_paid_once():
    count = base().count().release(dp.Gaussian(sigma=3.0))
    alone = upper(a=count)
    twice = upper(
        a=count, b={"x": count, "y": count}, c=dp.post(first, count, count), d=dp.post(first, count)
    )
    assert twice == alone


def test_two_releases_of_one_query_are_paid_twice():
    query = base().count()
    noise = dp.Laplace(scale=2.0)
    two = upper(a=query.release(noise), b=query.release(noise))
    assert two["basic"] == pytest.approx(1.0, rel=1e-12)
    apart = upper(a=base().count().release(noise), b=base().count().release(noise))
    assert apart == two


@SETTINGS
@given(st.data())
def test_post_processing_is_free(data):
    plan = data.draw(plans())
    handles = {".".join(path): handle for path, handle in plan.outputs}
    names = {name.replace(".", "_"): handle for name, handle in handles.items()}
    posted = {f"p_{n}": dp.post(first, dp.post(first, h), h) for n, h in names.items()}
    total = dp.post(first, *names.values(), dp.public(3.0))
    assert upper(**names, **posted, z=total) == upper(**names)
    assert upper(**posted) == upper(**names)


@SETTINGS
@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_and_the_names_of_outputs_change_no_bound(data, chance):
    plan = data.draw(plans())
    handles = [handle for _, handle in plan.outputs]
    expected = plan.certify(1e-6).bounds
    chance.shuffle(handles)
    bounds = upper(**{f"n{i}": handle for i, handle in enumerate(handles)})
    for name, bound in expected.items():
        # common losses are added in another order, each sum moved outward by its rounding
        assert bounds[name] == pytest.approx(bound.upper, rel=1e-9)


@SETTINGS
@given(st.data())
def test_a_part_of_a_plan_costs_no_more_than_all_of_it(data):
    plan = data.draw(plans())
    all_bounds = plan.certify(1e-6).bounds
    for path, handle in plan.outputs:
        some = dp.Pipeline.of([(path, handle)]).certify(1e-6).bounds
        for name in set(some) & set(all_bounds):
            assert some[name].upper <= all_bounds[name].upper * (1 + 1e-9)


@SETTINGS
@given(st.data(), st.floats(1.01, 50.0))
def test_more_noise_costs_no_more(data, factor):
    plan = data.draw(plans(["laplace", "gaussian", "discrete_laplace", "exponential"], free=True))
    values = dict.fromkeys(plan.free, 1.0)
    less = plan.fix(**{name: v * factor for name, v in values.items()}).certify(1e-6)
    assert less.epsilon <= plan.fix(**values).certify(1e-6).epsilon


@SETTINGS
@given(st.data(), st.sampled_from([0.1, 1.0, 5.0]), st.sampled_from(["renyi", "gaussian", "basic"]))
def test_a_refused_step_changes_nothing(data, epsilon, accountant):
    plan = data.draw(plans())
    with dp.Session(
        budget=dp.Budget(epsilon, 1e-6), accountant=accountant, seed=1, t=DATA
    ) as session:
        for _, handle in plan.outputs:
            before = session.spent, session.epsilon, str(session.history())
            try:
                session.run(handle)
            except (accountants.BudgetError, accountants.InapplicableError, dp.DeclarationError):
                assert (session.spent, session.epsilon, str(session.history())) == before
            assert session.epsilon <= epsilon


@pytest.mark.parametrize("neighbors", ["add_remove", "replace_one"])
def test_adassp_meets_its_budget(neighbors):
    columns = {"x": (0, 1), "z": (-3, 5), "y": (0, 10)}
    table = dp.dataset("t", columns=columns, neighbors=neighbors, unit="id", rows_per_unit=3)
    solver = dp.AdaSSP(features=["x", "z"], target="y")
    for epsilon, delta in [(0.1, 1e-9), (1.0, 1e-6), (10.0, 1e-5)]:
        plan = dp.Pipeline(theta=table.solve(solver, epsilon=epsilon, delta=delta))
        assert plan.certify(delta).epsilon <= epsilon
        free = dp.Pipeline(theta=table.solve(solver)).calibrate(epsilon=epsilon, delta=delta)
        assert epsilon * 0.99 <= free.certify().epsilon <= epsilon


def test_a_plan_that_nothing_can_change_is_calibrated_too():
    """Under replace_one the number of rows is public: counting it costs nothing, at any noise."""
    table = base(neighbors="replace_one")
    plan = dp.Pipeline(a=table.count().release(dp.Laplace(scale=dp.Free("b"))))
    for epsilon in (1e-3, 4.0):
        assert plan.calibrate(epsilon=epsilon).certify().epsilon < 1e-300


def test_certificates_of_targets_that_cannot_be_met():
    table = base()
    plan = dp.Pipeline(
        a=table.count().release(dp.Laplace(scale=0.1)),
        b=table.count().release(dp.Laplace(scale=dp.Free("b"))),
    )
    with pytest.raises(dp.CalibrationError):
        plan.calibrate(epsilon=1.0)
    assert math.isinf(
        dp.Pipeline(a=table.count().release(dp.Gaussian(sigma=1.0))).certify(0.0).epsilon
    )
