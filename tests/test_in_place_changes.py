"""In-place changes by functions and mechanisms reach no plan, input or output."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest

import accountants
import adaptive_dp as dp
from adaptive_dp.graph.handles import PrivateQuery
from adaptive_dp.graph.values import deep_copy

FRAME = {"x": np.arange(8.0)}


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 8)})


def histogram() -> dp.Released[Any]:
    return table()["x"].histogram([0, 4, 9]).release(dp.Laplace(scale=1e-9))


def swallow(state: list[float], value: float) -> list[float]:
    state.append(float(value))
    return state


def overwrite(value: Any) -> Any:
    value[:] = -7
    return value


def given(value: Any) -> Any:
    return value


def grown(value: float, box: dict[str, list[float]]) -> float:
    box["a"].append(value)
    return float(len(box["a"]))


def test_a_repeat_whose_body_appends_to_its_start_leaves_the_plan_as_it_was() -> None:
    count = table().count()

    def body(state: dp.Released[Any], count: dp.PrivateQuery[Any]) -> dp.Released[Any]:
        return dp.post(swallow, state, count.release(dp.Laplace(scale=1.0)))

    start = [0.5]
    plan = dp.Pipeline(out=dp.repeat(body, 3, count, start=start))
    before = plan.to_json()
    first = plan.simulate(seed=1, t=FRAME)
    assert len(first["out"]) == 4
    second = plan.run(t=FRAME)
    assert len(second["out"]) == 4
    assert second["out"][0] == 0.5
    assert start == [0.5]
    assert plan.to_json() == before
    text = second.certificate.to_json()
    assert all(str(value) not in text for value in first["out"][1:])


def test_a_repeat_over_a_release_of_the_outside_keeps_it() -> None:
    bins = histogram()
    out = dp.repeat(lambda s: dp.post(overwrite, s), 2, start=bins)
    seen = dp.Pipeline(bins=bins, out=out).simulate(seed=1, t=FRAME)
    assert seen["bins"] == pytest.approx([4, 4])
    assert list(seen["out"]) == [-7, -7]


def test_constants_and_public_values_stay() -> None:
    count = table().count().release(dp.Laplace(scale=1.0))
    public = dp.public([1.0, 2.0])
    plan = dp.Pipeline(
        a=dp.post(grown, count, box={"a": []}), b=dp.post(swallow, public, count), c=public
    )
    before = plan.to_json()
    seen = [plan.simulate(seed=k, t=FRAME) for k in range(3)]
    assert [s["a"] for s in seen] == [1, 1, 1]
    assert [s["c"] for s in seen] == [[1.0, 2.0]] * 3
    assert plan.to_json() == before


def test_a_function_that_overwrites_its_input_changes_no_other() -> None:
    bins = histogram()
    wrong = dp.post(overwrite, bins)
    seen = dp.Pipeline(bins=bins, a=wrong, b=dp.post(given, bins)).simulate(seed=1, t=FRAME)
    assert list(seen["a"]) == [-7, -7]
    assert seen["bins"] == pytest.approx([4, 4])
    assert seen["b"] == pytest.approx([4, 4])
    assert seen["bins"].interval().low == pytest.approx([4, 4], abs=1)


def test_outputs_share_nothing() -> None:
    bins = histogram()
    pair = dp.post(lambda v: {"v": v}, bins)
    seen = dp.Pipeline(bins=bins, again=bins, same=dp.post(given, bins), p=pair, q=pair).simulate(
        seed=1, t=FRAME
    )
    arrays = [seen["bins"], seen["again"], seen["same"], seen["p"]["v"], seen["q"]["v"]]
    for i, one in enumerate(arrays):
        assert not any(np.shares_memory(one, other) for other in arrays[i + 1 :])


class InPlace(dp.Mechanism):
    """Adds its noise to the very array that it is given."""

    b: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        value += self.b
        return value

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance)


def test_a_mechanism_that_adds_in_place_does_not_change_the_query() -> None:
    query = table()["x"].histogram([0, 4, 9])
    one, two = (query.release(InPlace(b=100.0)) for _ in range(2))
    seen = dp.Pipeline(one=one, two=two).simulate(seed=1, t=FRAME)
    assert list(seen["one"]) == list(seen["two"]) == [104, 104]
    assert not np.shares_memory(seen["one"], seen["two"])


RETURNED = np.zeros(2)


class Keeping(InPlace):
    """Returns one buffer of its own each time."""

    def release(self, value: Any, stream: Any) -> Any:
        RETURNED[:] = value
        return RETURNED


def test_a_mechanism_that_keeps_its_result_cannot_change_it_later() -> None:
    query = table()["x"].histogram([0, 4, 9])
    seen = dp.Pipeline(a=query.release(Keeping(b=1.0))).simulate(seed=1, t=FRAME)
    RETURNED[:] = 99
    assert list(seen["a"]) == [4, 4]


def test_what_cannot_be_copied_is_passed_on() -> None:
    stuck = (i for i in range(3))
    inner = [1, 2]
    copy = deep_copy({"a": stuck, "b": inner, "c": (inner, stuck)})
    assert copy["a"] is stuck
    assert copy["b"] == inner
    assert copy["b"] is not inner
    assert copy["c"][0] is not inner
    held: list[Any] = [np.zeros(2)]
    held.append(held)
    again = deep_copy(held)
    assert again[1] is again
    assert not np.shares_memory(again[0], held[0])


def test_what_a_function_keeps_is_not_what_it_returned() -> None:
    values: list[float] = []

    def keep(value: float) -> list[float]:
        values.append(value)
        return values

    people = dp.dataset("people", columns={})
    one, two = (people.count().release(dp.Laplace(scale=1.0)) for _ in range(2))
    plan = dp.Pipeline(a=dp.post(keep, one), b=dp.post(keep, two))
    seen = plan.simulate(seed=0, people={"x": [1.0]})
    assert sorted(map(len, (seen["a"], seen["b"]))) == [1, 2]


# --- a third party's parameters that can be changed in place


class Listed(dp.Mechanism):
    """Laplace noise whose scale is in a list that its owner may change."""

    scales: list[float] = attrs.field()

    def release(self, value: Any, stream: Any) -> Any:
        self.scales[0] /= 2  # a mechanism that changes itself
        return dp.Laplace(scale=self.scales[0]).release(value, stream)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Laplace(distance / self.scales[0])


@attrs.frozen
class Weighted(dp.Query):
    """The number of rows times a weight from a list."""

    kind = "weighted"
    weights: list[float]

    def sensitivity(self, domain: Any, change: Any, norm: float) -> float:
        return change.rows * self.weights[0]

    def run(self, inputs: Any, stream: Any) -> float:
        rows = inputs[0].total(lambda columns: np.array([len(columns["x"])]))
        return float(rows[0] * self.weights[0])


def test_a_mechanism_that_is_changed_after_its_release_changes_no_plan() -> None:
    mechanism = Listed([2.0])
    plan = dp.Pipeline(n=table().count().release(mechanism))
    certificate, document = plan.certify(), plan.to_document()
    mechanism.scales[0] = 0.01
    again = plan.certify()
    assert again == certificate
    assert again.epsilon == pytest.approx(0.5)
    assert plan.to_document() == document
    # declared now, it is another plan, with a fingerprint of its own
    other = dp.Pipeline(n=table().count().release(mechanism))
    assert other.certify().epsilon == pytest.approx(100)
    assert other.fingerprint != plan.fingerprint


def test_a_query_that_is_changed_after_its_release_changes_no_plan() -> None:
    weights = [1.0]
    query = PrivateQuery(Weighted(weights), (table(),))
    plan = dp.Pipeline(n=query.release(dp.Laplace(scale=1e-6)))
    before = plan.certify(), plan.fingerprint
    weights[0] = 1000.0
    assert (plan.certify(), plan.fingerprint) == before
    assert plan.simulate(seed=1, t=FRAME)["n"] == pytest.approx(8, abs=1e-3)


def test_a_mechanism_that_changes_itself_in_a_release_changes_no_plan() -> None:
    plan = dp.Pipeline(n=table().count().release(Listed([2.0])))
    before = plan.certify(), plan.fingerprint, plan.to_document()
    results = [plan.simulate(seed=1, t=FRAME) for _ in range(2)]
    assert results[0]["n"] == results[1]["n"]
    assert (plan.certify(), plan.fingerprint, plan.to_document()) == before
    assert results[1].certificate.epsilon == before[0].epsilon
