"""Laws of whole plans: calibration, documents, sharing, pruning and order."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp

SETTINGS = examples(4)
COLUMNS = {"x": (-1.0, 2.0), "r": ["A", "B", "C"], "s": ["a", "b"]}


class Response(dp.Mechanism):
    """A mechanism that is declared by its epsilon: it costs more as its parameter grows."""

    epsilon: float = dp.budget_parameter("epsilon")

    def release(self, value, stream):
        return value + stream.laplace(1 / self.epsilon, value.shape)

    def loss(self, distance):
        return accountants.Pure(epsilon=distance * self.epsilon)


MECHANISMS = {
    "laplace": lambda v: dp.Laplace(scale=v),
    "gaussian": lambda v: dp.Gaussian(sigma=v),
    "response": lambda v: Response(epsilon=v),
}


def first(*values):
    return values[0]


def forward(value, step):
    return value + step


@st.composite
def plans(draw, kinds, free):
    """Return outputs of a small plan; ``free`` leaves the noise to calibration."""
    relation = draw(st.sampled_from(["add_remove", "replace_one", "zero_out"]))
    unit = draw(st.sampled_from([None, 2]))
    extra = {} if unit is None else {"unit": "id", "rows_per_unit": unit}
    table = dp.dataset("t", columns=COLUMNS, neighbors=relation, **extra)

    def noise():
        kind = draw(st.sampled_from(kinds))
        weight = draw(st.sampled_from([1.0, 0.3, 7.0]))
        name = draw(st.sampled_from(["b", "c"]))
        return MECHANISMS[kind](dp.Free(name, weight) if free else weight)

    def released(at):
        kind = draw(st.sampled_from(["count", "sum", "histogram", "vectors"]))
        query = {
            "count": lambda: at.count(),
            "sum": lambda: at["x"].sum(),
            "histogram": lambda: at["s"].histogram(),
            "vectors": lambda: at.vectors(["x"], intercept=True).sum(),
        }[kind]()
        return query.release(noise())

    outputs = {"a": released(table)}
    if draw(st.booleans()):
        outputs["b"] = {k: released(p) for k, p in table.partition("r")}
    if draw(st.booleans()):
        outputs["c"] = dp.post(first, outputs["a"], released(table.filter(table["x"] <= 1)))
    if draw(st.booleans()) and relation != "replace_one":
        outputs["d"] = released(table.sample(0.25))
    if draw(st.booleans()):
        fixed, at = noise(), table

        def body(state):
            below = at.filter(at["x"] <= state)
            return dp.post(forward, state, below.count().release(fixed))

        outputs["e"] = dp.repeat(body, 3, start=0.0)
    return dp.Pipeline(**outputs)


EPSILONS = st.sampled_from([1e-3, 0.02, 0.5, 1.0, 4.0, 20.0])


@SETTINGS
@given(st.data(), EPSILONS, st.sampled_from([0.0, 1e-9, 1e-5]))
def test_calibrate_then_certify_meets_the_target(data, epsilon, delta):
    kinds = ["laplace", "response"] if delta == 0 else list(MECHANISMS)
    plan = data.draw(plans(kinds, free=True))
    solved = plan.calibrate(epsilon=epsilon, delta=delta)
    assert not solved.free
    certificate = solved.certify()
    assert certificate.delta == delta
    assert certificate.epsilon <= epsilon
    if certificate.epsilon > 1e-300:  # and little is wasted, unless nothing can change at all
        assert certificate.epsilon >= epsilon * 0.99
    assert solved.certify(delta).epsilon == certificate.epsilon
    assert dp.load(solved.to_json(), allow=[__name__]).certify().epsilon == certificate.epsilon


@SETTINGS
@given(st.data(), st.sampled_from([1e-9, 1e-5]))
def test_a_document_round_trip_changes_nothing(data, delta):
    free = data.draw(st.booleans())
    plan = data.draw(plans(list(MECHANISMS), free=free))
    text = plan.to_json()
    again = dp.load(text, allow=[__name__])
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


DATA = {
    "x": [-1.0, 0.5, 2.0, 1.0],
    "r": ["A", "B", "A", "C"],
    "s": ["a", "b", "b", "a"],
    "id": [1, 1, 1, 2],
}


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
    plan = data.draw(plans(list(MECHANISMS), free=False))
    handles = {".".join(path): handle for path, handle in plan.outputs}
    names = {name.replace(".", "_"): handle for name, handle in handles.items()}
    posted = {f"p_{n}": dp.post(first, dp.post(first, h), h) for n, h in names.items()}
    total = dp.post(first, *names.values(), dp.public(3.0))
    assert upper(**names, **posted, z=total) == upper(**names)
    assert upper(**posted) == upper(**names)


@SETTINGS
@given(st.data(), st.randoms(use_true_random=False))
def test_the_order_and_the_names_of_outputs_change_no_bound(data, chance):
    plan = data.draw(plans(list(MECHANISMS), free=False))
    handles = [handle for _, handle in plan.outputs]
    expected = plan.certify(1e-6).bounds
    chance.shuffle(handles)
    found = upper(**{f"n{i}": handle for i, handle in enumerate(handles)})
    for name, bound in expected.items():
        # common losses are added in another order, each sum moved outward by its rounding
        assert found[name] == pytest.approx(bound.upper, rel=1e-9)


@SETTINGS
@given(st.data())
def test_a_part_of_a_plan_costs_no_more_than_the_whole(data):
    plan = data.draw(plans(list(MECHANISMS), free=False))
    whole = plan.certify(1e-6).bounds
    for path, handle in plan.outputs:
        some = dp.Pipeline.of([(path, handle)]).certify(1e-6).bounds
        for name in set(some) & set(whole):
            assert some[name].upper <= whole[name].upper * (1 + 1e-9)


@SETTINGS
@given(st.data(), st.floats(1.01, 50.0))
def test_more_noise_costs_no_more(data, factor):
    plan = data.draw(plans(["laplace", "gaussian"], free=True))
    values = dict.fromkeys(plan.free, 1.0)
    less = plan.fix(**{name: v * factor for name, v in values.items()}).certify(1e-6)
    assert less.epsilon <= plan.fix(**values).certify(1e-6).epsilon


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
