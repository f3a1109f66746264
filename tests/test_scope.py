"""Scope: what is inside of a loop follows from the graph, and never from when it was made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples

import accountants
import adaptive_dp as dp

FRAME = {"x": np.arange(100.0), "r": np.where(np.arange(100) < 70, "A", "B")}


def table() -> dp.Table:
    return dp.dataset("t", columns={"x": (0, 100), "r": ["A", "B"]})


def append(values: list[float], *more: float) -> list[float]:
    return [*values, *more]


def add(*values: float) -> float:
    return float(sum(values))


def laplace(scale: float = 4.0) -> dp.Laplace:
    return dp.Laplace(scale=scale)


def epsilon(result: Any) -> float:
    """The sum of all epsilons, each round's."""
    bounds = dp.Pipeline(o=result).measure(accountants.Basic(), 0.0).bounds
    assert bounds is not None
    return bounds.upper


def values(result: Any) -> Any:
    return dp.Pipeline(o=result).simulate(seed=1, t=FRAME)["o"]


def test_a_helper_that_was_called_before_changes_nothing() -> None:
    people = table()
    made: dict[str, Any] = {}

    def noisy(own: dp.Table) -> dp.Released[float]:
        """A helper that remembers what it made first, as caches do."""
        return made.setdefault("count", own.count().release(laplace()))

    def body(state: dp.Released[Any], own: dp.Table) -> dp.Released[Any]:
        return dp.post(append, state, own.count().release(laplace()))

    first = epsilon(dp.repeat(body, 10, people, start=[]))
    noisy(people)
    body(dp.public([]), people)
    assert epsilon(dp.repeat(body, 10, people, start=[])) == first == pytest.approx(2.5)
    # what it made before is shared, and paid for once; what it made first in the body is refused
    shared = dp.repeat(lambda s: dp.post(append, s, noisy(people)), 10, start=[])
    assert epsilon(shared) == pytest.approx(0.25)
    assert len(set(values(shared))) == 1
    made.clear()
    with pytest.raises(dp.DeclarationError):
        dp.repeat(lambda s: dp.post(append, s, noisy(people)), 10, start=[])


@pytest.mark.parametrize(
    "make",
    [
        lambda t: t.count().release(laplace()),
        lambda t: t.sample(0.5).count().release(laplace()),
        lambda t: t.filter(t["x"] < 5)["x"].sum().release(laplace()),
        lambda t: dp.repeat(
            lambda s, u: dp.post(add, s, u.count().release(laplace())), 2, t, start=0
        ),
        lambda t: dp.post(add, t.count().release(laplace()), dp.public(1.0)),
    ],
)
def test_what_a_body_makes_and_all_rounds_would_share_is_refused(make: Callable[..., Any]) -> None:
    people = table()
    with pytest.raises(dp.DeclarationError):
        dp.repeat(lambda s: dp.post(add, s, make(people)), 3, start=0.0)
    with pytest.raises(dp.DeclarationError):
        dp.select(lambda c: (c, make(people)), [1, 2], stopping=0.5)
    inside = dp.repeat(lambda s, own: dp.post(add, s, make(own)), 3, people, start=0.0)
    before = make(people)
    outside = dp.repeat(lambda s: dp.post(add, s, before), 3, start=0.0)
    assert epsilon(inside) == pytest.approx(3 * epsilon(before))
    assert epsilon(outside) == pytest.approx(epsilon(before))


def test_a_sample_that_the_body_draws_outside_is_refused_though_its_releases_are_fresh() -> None:
    people = table()

    def body(state: Any) -> Any:
        below = people.sample(0.5).filter(people["x"] <= state)
        return below.count().release(laplace())

    with pytest.raises(dp.DeclarationError):
        dp.repeat(body, 3, start=50.0)


def test_a_body_that_ignores_its_state_is_fresh_in_each_round() -> None:
    result = dp.repeat(lambda _, t: t.count().release(laplace(1.0)), 5, table(), start=0.0)
    assert epsilon(result) == pytest.approx(5)
    plan = dp.Pipeline(o=result)
    (release,) = (n for n in plan.structure if n.handle.operation.kind == "release")
    assert release.loops == ("o",)


def test_tables_columns_vectors_and_queries_are_given() -> None:
    people = table()

    def body(state: Any, t: Any, x: Any, v: Any, q: Any) -> Any:
        assert (type(t), type(x), type(v)) == (type(people), type(people["x"]), type(vectors))
        assert repr((t, x, v, q)) == repr((people, people["x"], vectors, people.count()))
        releases = [t.count(), x.sum(), q, t.filter(x < 50).count()]
        return dp.post(add, state, *[each.release(laplace()) for each in releases])

    vectors = people.vectors(["x"], scale=True)
    result = dp.repeat(body, 2, people, people["x"], vectors, people.count(), start=0.0)
    assert epsilon(result) == pytest.approx(2 * (1 + 100 + 1 + 1) / 4)


@pytest.mark.parametrize("wrong", [dp.public(1.0), 3.0, None])
def test_only_what_is_private_is_a_body_s_own(wrong: Any) -> None:
    with pytest.raises(dp.DeclarationError):
        dp.repeat(lambda s, t: s, 2, wrong, start=0.0)
    with pytest.raises(dp.DeclarationError):
        dp.select(lambda c, t: (c, c), [1, 2], wrong, stopping=0.5)


def test_select_gives_the_body_its_own_table() -> None:
    def body(candidate: Any, own: dp.Table) -> Any:
        count = own.count().release(laplace(10.0))
        return count, dp.post(add, count, candidate)

    best = dp.Pipeline(o=dp.select(body, [1.0, 2.0], table(), stopping=0.1))
    # three times a run's epsilon (Liu and Talwar 2019, Thm 3.2)
    assert best.certify().epsilon == pytest.approx(0.3, rel=1e-9)
    assert dp.load(best.to_json()).fingerprint == best.fingerprint


def test_nested_loops_multiply_whatever_the_inner_one_reads() -> None:
    people = table()

    def once(state: Any, own: dp.Table) -> Any:
        return dp.post(append, state, own.count().release(laplace(1.0)))

    def through_the_start(state: Any) -> Any:
        return dp.repeat(once, 3, people, start=state)  # the inner state follows from the outer one

    def through_the_table(state: Any, own: dp.Table) -> Any:
        return dp.post(append, state, dp.repeat(once, 3, own, start=[]))

    for outer in (
        dp.repeat(through_the_start, 2, start=[]),
        dp.repeat(through_the_table, 2, people, start=[]),
    ):
        plan = dp.Pipeline(o=outer)
        assert epsilon(outer) == pytest.approx(6)
        (release,) = (n for n in plan.structure if n.handle.operation.kind == "release")
        assert len(release.loops) == 2
        assert dp.load(plan.to_json(), allow=[__name__]).fingerprint == plan.fingerprint
    with pytest.raises(dp.DeclarationError):  # an inner loop that depends on nothing of a round
        dp.repeat(lambda s: dp.post(append, s, dp.repeat(once, 3, people, start=[])), 2, start=[])


def test_what_an_inner_body_makes_belongs_there() -> None:
    people, leaked = table(), []

    def inner(state: Any, own: dp.Table) -> Any:
        leaked.append(own.count().release(laplace()))
        return dp.post(add, state, leaked[-1])

    def outer(state: Any) -> Any:
        one = dp.repeat(inner, 2, people, start=state)
        return dp.post(add, one, leaked[-1])

    with pytest.raises(dp.DeclarationError):
        dp.Pipeline(o=dp.repeat(outer, 2, start=0.0))

    def siblings(state: Any) -> Any:
        one = dp.repeat(inner, 2, people, start=state)
        return dp.repeat(lambda s: dp.post(add, s, leaked[-1]), 2, start=one)

    with pytest.raises(dp.DeclarationError):
        dp.Pipeline(o=dp.repeat(siblings, 2, start=0.0))


def test_a_loop_and_its_calibrated_copy_are_two_loops() -> None:
    def body(state: Any, own: dp.Table) -> Any:
        return dp.post(append, state, own.count().release(dp.Laplace(scale=dp.Free("b"))))

    free = dp.Pipeline(o=dp.repeat(body, 2, table(), start=[]))
    near, far = (dict(free.fix(b=b).outputs)[("o",)] for b in (1e-3, 1e3))
    both = dp.Pipeline(near=near, far=far)
    assert both.certify().epsilon == pytest.approx(2 / 1e-3 + 2 / 1e3)
    seen = both.simulate(seed=1, t=FRAME)
    assert seen["near"] == pytest.approx([100, 100], abs=1)
    assert seen["far"] != pytest.approx([100, 100], abs=1)


def test_a_learner_with_a_budget_in_a_body_of_its_own_table() -> None:
    learner = dp.NoisySGD(["x"], "r", steps=2, sampling_rate=0.5)

    def body(state: Any, own: dp.Table) -> Any:
        return dp.post(forget, state, own.solve(learner, epsilon=0.5, delta=1e-7))

    plan = dp.Pipeline(o=dp.repeat(body, 2, table(), start=[])).with_delta(2e-7)
    alone = dp.Pipeline(o=table().solve(learner, epsilon=0.5, delta=1e-7)).with_delta(1e-7)
    assert alone.certify().epsilon <= 0.5
    assert alone.certify().epsilon < plan.certify().epsilon <= 1.0
    scales = [
        {
            str(n.handle.operation.mechanism)
            for n in each.structure
            if hasattr(n.handle.operation, "mechanism")
        }
        for each in (plan, alone)
    ]
    assert scales[0] == scales[1]


def forget(state: Any, *_: Any) -> Any:
    return state


def test_sessions_run_loops_again_with_fresh_noise() -> None:
    def body(state: Any, own: dp.Table) -> Any:
        return dp.post(append, state, own.count().release(laplace(20.0)))

    people = table()
    loop = dp.repeat(body, 2, people, start=[])
    with dp.Session(budget=dp.Budget(1.0), accountant="basic", t=FRAME) as session:
        first = session.run(loop)
        assert session.run(loop) == first  # known
        assert session.run(loop, again=True) != first
        assert session.spent.costs[0] == pytest.approx(0.2)
        plan = session.pipeline
        assert sum(n.handle.operation.kind == "repeat" for n in plan.structure) == 2
        assert plan.certify().epsilon == pytest.approx(0.2)


# --- creation order never matters


def recipe(kind: int, inputs: list[Any], people: dp.Table) -> Any:
    """A node of a plan, from the nodes before it."""
    read = [i for i in inputs if i is not None] or [dp.public(1.0)]
    match kind:
        case 0:
            return people.count().release(laplace(50.0))
        case 1:
            return people.sample(0.5)["x"].sum().release(laplace(50.0))
        case 2:
            return dp.post(add, *read)
        case 3:
            return people.filter(people["x"] <= read[0]).count().release(laplace(50.0))
        case 4:
            return dp.repeat(
                lambda s, own: dp.post(add, s, own.count().release(laplace(50.0)), *read),
                2,
                people,
                start=read[0],
            )
        case 5:
            part = dict(people.partition("r"))["A"]
            return dp.repeat(
                lambda s: part.filter(part["x"] <= s).count().release(laplace()), 2, start=read[-1]
            )
        case _:
            return dp.group("pair", dp.post(add, *read), people)


@st.composite
def recipes(draw: Any) -> tuple[list[tuple[int, list[int]]], list[int], list[int]]:
    """Kinds with what each reads, and two orders in which they may be made."""
    count = draw(st.integers(2, 9))
    nodes: list[tuple[int, list[int]]] = [(0, [])]
    for i in range(1, count):
        reads = draw(st.lists(st.integers(0, i - 1), max_size=3))
        nodes.append((draw(st.integers(0, 6)), reads))
    return nodes, draw(st.permutations(range(count))), draw(st.permutations(range(count)))


def made(nodes: list[tuple[int, list[int]]], order: list[int]) -> dp.Pipeline:
    """Build the plan, nodes as early as the order says and their inputs allow."""
    people, done = table(), dict[int, Any]()

    def make(i: int) -> Any:
        if i not in done:
            kind, reads = nodes[i]
            inputs = {j: make(j) for j in sorted(reads, key=order.index)}
            done[i] = recipe(kind, [inputs[j] for j in reads], people)
        return done[i]

    for i in order:
        make(i)
    return dp.Pipeline(**{f"n{i}": done[i] for i in range(len(nodes))})


@settings(examples(30, nightly=600), suppress_health_check=list(HealthCheck))
@given(recipes())
def test_a_plan_is_the_same_in_whatever_order_it_was_written(drawn: Any) -> None:
    nodes, one, other = drawn
    first, second = made(nodes, one), made(nodes, other)
    assert first.fingerprint == second.fingerprint
    assert first.to_document() == second.to_document()
    assert first.certify(1e-6) == second.certify(1e-6)
    again = dp.load(first.to_json(), allow=[__name__])
    assert again.fingerprint == first.fingerprint
    assert again.to_document() == first.to_document()
    results = [plan.simulate(seed=3, t=FRAME).released for plan in (first, second, again)]
    assert results[0] == results[1] == results[2]


# --- what a certificate computes


DISTANCES: list[float] = []


class Counted(dp.Mechanism):
    """A mechanism that counts how often its loss is asked for."""

    b: float = dp.noise_parameter("b")

    def release(self, value: Any, stream: Any) -> Any:
        return value + stream.laplace(self.b, value.shape)

    def loss(self, distance: float) -> accountants.PrivacyLoss:
        DISTANCES.append(distance)
        return accountants.Pure(epsilon=distance / self.b)


def test_a_certificate_computes_each_loss_once_and_a_run_reuses_it() -> None:
    DISTANCES.clear()
    plan = dp.Pipeline(
        a=table().count().release(Counted(b=4.0)),
        b=dp.repeat(lambda _, t: t["x"].sum().release(Counted(b=100.0)), 3, table(), start=0.0),
    )
    plan.certify(1e-6)
    # a loss of one's own is asked at the distance, and a little farther away
    assert len(DISTANCES) == 4
    for seed in (1, 2, 3):
        plan.simulate(seed=seed, t=FRAME)
    assert len(DISTANCES) == 4
    assert plan.measure(accountants.Basic()).bounds is not None
    assert len(DISTANCES) == 4


# --- names


def test_nodes_are_named_by_what_they_do_and_by_their_output() -> None:
    people = table()
    parts = people.partition("r")
    plan = dp.Pipeline(
        count=people.count().release(laplace()),
        mean=dp.post(add, people.filter(people["x"] < 5).count().release(laplace())),
        towns={key: part.count().release(laplace()) for key, part in parts},
    )
    assert {n.name for n in plan.structure} == {
        *("t", "partition", "filter", "noisy_count"),
        *("count", "mean", "towns.A", "towns.B"),
        *("count (count)", "count (mean)", "count (towns.A)", "count (towns.B)"),
        *("part (towns.A)", "part (towns.B)"),
    }
    several = dp.Pipeline(
        total=dp.post(add, *[people["x"].sum().release(laplace()) for _ in range(3)]),
        other=people["x"].clip(0, 5).sum().release(laplace()),
    )
    assert {n.name for n in several.structure if n.handle.operation.kind == "release"} == {
        *("other", "noisy_sum", "noisy_sum_2", "noisy_sum_3"),
    }
    assert {n.name for n in several.structure if n.handle.operation.kind == "sum"} == {
        *("sum (total)", "sum (other)"),
    }


def test_names_are_unique_whatever_outputs_are_called() -> None:
    people = table()
    names = ["count", "count (a)", "count (a) (count (a))", "{}", "noisy_count", "a"]
    plan = dp.Pipeline.of(
        [
            ((name,), people["x"].clip(0, 1.0 + i).sum().release(laplace()))
            for i, name in enumerate(names)
        ]
        + [(("z",), dp.post(add, *[people.count().release(laplace()) for _ in range(3)]))]
    )
    assert len(plan.structure.nodes) == len(list(plan.structure))
    assert {".".join(path) for path, _ in plan.outputs} <= set(plan.structure.nodes)
    assert len(plan.structure.nodes) == 1 + 1 + 3 * len(names) + 1 + 3 + 1
