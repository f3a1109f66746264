"""Repeats: fresh noise in each round, what is outside once, and what certificates say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from plans import add, loops, people

import accountants
import adaptive_dp as dp


class Exact(dp.Mechanism):
    """Releases the value itself: it shows what ran."""

    b: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        return value

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        return accountants.Pure(epsilon=distance / self.b)


def append(state: list[float], *new: float) -> list[float]:
    return [*state, *new]


def lap(scale: float = 1.0) -> dp.Laplace:
    return dp.Laplace(scale=scale)


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 100), "r": ["A", "B"]})


FRAME = {"x": np.arange(100.0), "r": np.where(np.arange(100) < 70, "A", "B")}


def run(result: dp.Released[Any], seed: int = 1) -> Any:
    return dp.Pipeline(out=result).simulate(seed=seed, t=FRAME)["out"]


def epsilon(*outputs: dp.Released[Any]) -> float:
    plan = dp.Pipeline(**{f"o{i}": o for i, o in enumerate(outputs)})
    bounds = plan.measure(accountants.Basic(), 0.0).bounds
    assert bounds is not None
    return bounds.upper


def test_each_round_has_fresh_noise_and_pays() -> None:
    people = table()
    result = dp.repeat(
        lambda s, people: dp.post(append, s, people.count().release(lap())), 5, people, start=[]
    )
    values = run(result)
    assert len(set(values)) == 5
    assert epsilon(result) == pytest.approx(5)
    (row,) = dp.Pipeline(out=result).certify().nodes
    assert row.times == 5
    assert row.region == ("repeat 5 times",)


def test_what_is_outside_is_shared_and_paid_once() -> None:
    count = table().count().release(lap())
    result = dp.repeat(lambda s: dp.post(append, s, count), 5, start=[])
    values = run(result)
    assert len(set(values)) == 1
    assert len(values) == 5
    assert epsilon(result) == pytest.approx(1)


def test_the_state_passes_from_round_to_round() -> None:
    people = table()

    def body(state: dp.Released[Any]) -> dp.Released[Any]:
        return people.filter(people["x"] < state).count().release(Exact(b=1.0))

    assert run(dp.repeat(body, 1, start=50)) == 50
    start = people.count().release(Exact(b=1.0))
    half = dp.repeat(lambda s: dp.post(lambda v: v / 2, s), 3, start=start)
    assert run(half) == 12.5
    assert dp.Pipeline(o=dp.repeat(lambda s: s, 4, start=7)).simulate(seed=1)["o"] == 7


def test_equal_loops_are_two_loops() -> None:
    people = table()

    def body(state: dp.Released[Any]) -> dp.Released[Any]:
        near = people.filter(people["x"] < dp.post(add, state, dp.public(1))).count()
        return dp.post(add, near.release(lap(1e-3)), state)

    pair = [dp.repeat(body, 3, start=5) for _ in range(2)]
    plan = dp.Pipeline(a=pair[0], b=pair[1])
    seen = plan.simulate(seed=1, t=FRAME)
    assert seen["a"] == pytest.approx(seen["b"], abs=9)
    assert seen["a"] != seen["b"]
    assert epsilon(*pair) == pytest.approx(6000)
    assert dp.load(plan.to_json()).fingerprint == plan.fingerprint
    assert {n.loops for n in plan.structure if n.handle.operation.kind == "filter"} == {
        ("a",),
        ("b",),
    }


def test_closures_of_one_code_are_two_functions() -> None:
    people = table()
    count = people.count().release(lap(1e-3))

    def below(k: float) -> dp.Released[float]:
        edge = dp.post(lambda n: k, count)
        return people.filter(people["x"] < edge).count().release(lap(1e-3))

    seen = dp.Pipeline(a=below(10), b=below(90)).simulate(seed=1, t=FRAME)
    assert (round(seen["a"]), round(seen["b"])) == (10, 90)


def test_nested_repeats_multiply() -> None:
    people = table()

    def inner(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        return dp.post(append, state, people.count().release(lap()))

    def outer(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        once = people["x"].sum().release(lap(100))
        return dp.repeat(inner, 3, people, start=dp.post(append, state, once))

    result = dp.repeat(outer, 2, people, start=[])
    values = run(result)
    assert len(values) == len(set(values)) == 8
    assert [value > 1000 for value in values] == [True, False, False, False] * 2
    assert epsilon(result) == pytest.approx(2 * (1 + 3 * 1))
    times = {r.query: r.times for r in dp.Pipeline(o=result).certify().nodes}
    assert times == {"count": 6, "sum in [0, 100]": 2}


def test_samples_inside_of_the_body_are_fresh() -> None:
    people = table()

    def body(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        return dp.post(append, state, people.sample(0.5).count().release(Exact(b=1.0)))

    assert len(set(run(dp.repeat(body, 8, people, start=[])))) > 2

    def fixed(state: dp.Released[Any], sample: dp.Table) -> dp.Released[Any]:
        return dp.post(append, state, sample.count().release(Exact(b=1.0)))

    values = run(dp.repeat(fixed, 8, people.sample(0.5), start=[]))
    assert len(set(values)) == 1
    assert 30 < values[0] < 70


def test_a_sample_outside_is_amplified_once() -> None:
    """Eight releases of one sample cost what one release of eight times the loss does."""
    people = table()
    sample = people.sample(0.5)
    outside = dp.repeat(
        lambda s, own: dp.post(add, s, own.count().release(lap(8))), 8, sample, start=0
    )
    inside = dp.repeat(
        lambda s, own: dp.post(add, s, own.sample(0.5).count().release(lap(8))), 8, people, start=0
    )
    once = people.sample(0.5).count().release(lap(1))
    assert epsilon(outside) == pytest.approx(epsilon(once), rel=1e-6)
    assert epsilon(inside) != pytest.approx(epsilon(outside), rel=1e-3)


def test_a_partition_outside_keeps_the_unit_in_its_part() -> None:
    parts = table().partition("r")

    def body(state: dp.Released[Any], *own: dp.Table) -> dp.Released[Any]:
        a, b = (part.count().release(lap(s)) for part, s in zip(own, (1.0, 2.0), strict=True))
        return dp.post(append, state, a, b)

    result = dp.repeat(body, 4, parts["A"], parts["B"], start=[])
    assert epsilon(result) == pytest.approx(4)
    certificate = dp.Pipeline(o=result).certify()
    assert certificate.worst_world == ("r = A",)
    assert certificate.worlds.exact
    values = run(result)
    assert np.mean(values[::2]) == pytest.approx(70, abs=5)
    assert len(set(values)) == 8


def test_a_partition_inside_may_put_the_unit_elsewhere_in_each_round() -> None:
    people = table()

    def body(state: dp.Released[Any]) -> dp.Released[Any]:
        filtered = people.filter(people["x"] >= dp.post(add, state))
        parts = filtered.partition("r")
        a, b = (parts[k].count().release(lap(s)) for k, s in (("A", 1.0), ("B", 2.0)))
        return dp.post(add, a, b)

    result = dp.repeat(body, 4, start=0)
    assert epsilon(result) >= 4
    assert epsilon(result) == pytest.approx(4)


def test_equal_work_inside_and_outside() -> None:
    """A query of the body that an outer release asks too is charged once there."""
    people = table()

    def body(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        return dp.post(add, state, people.filter(people["x"] < 5).count().release(Exact(b=1.0)))

    loop = dp.repeat(body, 3, people, start=0)
    outer = people.filter(people["x"] < 5).count().release(Exact(b=1.0))
    for names in (("a", "b"), ("b", "a")):
        plan = dp.Pipeline(**dict(zip(names, (loop, outer), strict=True)))
        seen = plan.simulate(seed=1, t=FRAME)
        assert (seen[names[0]], seen[names[1]]) == (15, 5)
        assert plan.certify().epsilon == pytest.approx(4)
        assert dp.load(plan.to_json(), allow=[__name__]).fingerprint == plan.fingerprint


def test_calibration_follows_the_rounds() -> None:
    people = table()

    def body(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        return dp.post(add, state, people.count().release(dp.Laplace(scale=dp.Free("b"))))

    solved = dp.Pipeline(o=dp.repeat(body, 10, people, start=0)).calibrate(epsilon=1.0)
    assert 0.999 < solved.certify().epsilon <= 1
    (release,) = (n for n in solved.structure if n.handle.operation.kind == "release")
    assert release.handle.operation.mechanism.scale >= 10  # type: ignore[attr-defined]


@pytest.mark.parametrize("times", [0, -1, 1.5, True, "3", None, 10**12])
def test_times(times: Any) -> None:
    with pytest.raises(dp.DeclarationError, match=r"repeat's times .* between 1 and 10\^9, got"):
        dp.repeat(lambda s: s, times, start=0)


def test_bodies_that_are_none() -> None:
    people = table()
    with pytest.raises(dp.LeakError, match=r"start.*t -> count"):
        dp.repeat(lambda s: s, 2, start=people.count())
    with pytest.raises(dp.LeakError, match=r"body.*t -> count"):
        dp.repeat(lambda s: people.count(), 2, start=0)
    with pytest.raises(dp.DeclarationError, match=r"\bint\b"):
        dp.repeat(lambda s: 3, 2, start=0)  # type: ignore[arg-type, return-value]
    with pytest.raises(dp.DeclarationError):
        dp.repeat(lambda s: s, 2, start=object())


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("which", ["state", "release", "dependent"])
def test_nothing_of_the_body_is_read_outside(which: str, first: bool) -> None:
    people = table()
    leaked: dict[str, dp.Released[Any]] = {}

    def body(state: dp.Released[Any], people: dp.Table) -> dp.Released[Any]:
        leaked["state"] = state
        leaked["release"] = people.count().release(lap())
        leaked["dependent"] = dp.post(add, state, leaked["release"])
        return leaked["dependent"]

    loop = dp.repeat(body, 2, people, start=0)
    outside = dp.post(add, leaked[which])
    names = ("a", "b") if first else ("b", "a")
    with pytest.raises(dp.DeclarationError):
        dp.Pipeline(**{names[0]: outside, names[1]: loop})
    if which != "release":  # a release alone, without its loop, is a release
        with pytest.raises(dp.DeclarationError):
            dp.Pipeline(a=outside)


def test_simulations_of_nested_loops_repeat_themselves() -> None:
    from plans import data

    seen = [loops().simulate(seed=4, people=data(2)) for _ in range(2)]
    assert seen[0]["nested"] == seen[1]["nested"]
    assert seen[0]["median"] == seen[1]["median"]
    assert people().domain.name == "people"
