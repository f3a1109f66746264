"""Going through a graph: orders, nearest ends, and rewriting that keeps what does not change."""

from __future__ import annotations

from typing import Any

import attrs
import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import adaptive_dp as dp
from adaptive_dp.graph.handles import Handle, Release
from adaptive_dp.graph.loops import ancestors, folded, nearest, ordered, rewritten, upward
from adaptive_dp.graph.operation import Operation


@st.composite
def graphs(draw: Any) -> dict[int, list[int]]:
    """What each of some numbers reads: smaller ones."""
    count = draw(st.integers(1, 12))
    return {i: draw(st.lists(st.integers(0, i - 1), max_size=3)) if i else [] for i in range(count)}


@given(graphs(), st.data())
def test_orders_and_ways_are_those_of_networkx(graph: dict[int, list[int]], data: Any) -> None:
    roots = data.draw(st.lists(st.sampled_from(sorted(graph)), min_size=1, unique=True))
    network = nx.DiGraph([(i, j) for i, above in graph.items() for j in above])
    network.add_nodes_from(graph)
    reached = set(roots).union(*(nx.descendants(network, root) for root in roots))
    up, down = list(upward(roots, graph.__getitem__)), list(ordered(roots, graph.__getitem__))
    assert set(up) == set(down) == reached
    assert len(up) == len(down) == len(reached)
    assert all(down.index(j) < down.index(i) for i in down for j in graph[i])
    heights = folded(roots, graph.__getitem__, lambda _, above: 1 + max(above, default=0))
    for each in reached:
        above = network.subgraph({each, *nx.descendants(network, each)})
        assert heights[each] == 1 + nx.dag_longest_path_length(above)
    labels = nearest({root: {root} for root in roots}, graph.__getitem__, set.union)
    for each in reached - set(roots):
        steps = {
            root: nx.shortest_path_length(network, root, each)
            for root in roots
            if nx.has_path(network, root, each)
        }
        # a root that another root is on the way to is no nearer than that one
        least = min(steps.values())
        assert labels[each] == {root for root in steps if steps[root] == least}


def test_a_long_chain_is_no_deeper_than_the_stack() -> None:
    handle: Any = dp.public(0.0)
    for _ in range(5_000):
        handle = dp.post(max, handle, dp.public(1.0))
    assert len(list(ancestors(handle))) == 10_001
    assert rewritten([handle])[handle] is handle


def other_noise(handle: Handle) -> Operation:
    operation = handle.operation
    if isinstance(operation, Release):
        return attrs.evolve(operation, mechanism=dp.Laplace(scale=9.0))
    return operation


def test_rewriting_keeps_what_does_not_change() -> None:
    table = dp.dataset("t", columns={"x": (0, 100)})
    count = table.count().release(dp.Laplace(scale=1.0))
    still = dp.post(abs, dp.public(1.0))
    result = dp.post(max, count, still)
    mapping = rewritten([result], other_noise)
    assert mapping[still] is still
    assert mapping[count.inputs[0]] is count.inputs[0]
    assert mapping[result] is not result
    assert mapping[result].inputs == (mapping[count], still)
    assert rewritten([result])[result] is result
    assert rewritten([result], replacements={count: still})[result].inputs == (still, still)
    copy = rewritten([result], copied=[count])[result]
    assert copy.inputs[0] is not count
    assert copy.inputs[0].operation is count.operation
    assert copy.inputs[1] is still


@pytest.mark.parametrize("how", ["changed", "anew"])
def test_a_rewritten_loop_has_a_state_of_its_own(how: str) -> None:
    table = dp.dataset("t", columns={"x": (0, 100)})

    def body(state: Any, own: Any) -> Any:
        return dp.post(max, state, own.count().release(dp.Laplace(scale=1.0)))

    loop = dp.repeat(body, 2, table, start=0.0)
    mapping = (
        rewritten([loop], other_noise) if how == "changed" else rewritten([loop], copied=[loop])
    )
    (old, new) = loop.operation.body()[0], mapping[loop].operation.body()[0]
    assert old is not new
    assert mapping[loop].operation.body()[1].states == {new}
    assert rewritten([loop])[loop] is loop
