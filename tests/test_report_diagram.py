"""The drawing in its states, and what leads where."""

from __future__ import annotations

import json
import re
from html import unescape
from itertools import combinations
from typing import Any

import networkx as nx
import pytest

import adaptive_dp as dp
from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.reports.diagram import diagram, states
from adaptive_dp.reports.page import report


def certificate() -> dict[str, Any]:
    """Return the document of some certificate; the graphs here are not of its plan."""
    people = dp.dataset("people", columns={})
    plan = dp.Pipeline(a=people.count().release(dp.Laplace(scale=1)))
    return plan.certify().to_document()


def graph(*groups: tuple[str, ...]) -> nx.DiGraph[str]:
    drawn: nx.DiGraph[str] = nx.DiGraph()
    drawn.add_node("data", kind="dataset", label="data", visibility="private", group=())
    for i, group in enumerate(groups):
        for step in "ab":
            drawn.add_node(f"{step}{i}", kind="count", label=f"{step}{i}", group=group)
        drawn.add_edge("data", f"a{i}")
        drawn.add_edge(f"a{i}", f"b{i}")
    return drawn


def test_few_groups_open_and_close_freely() -> None:
    closed_sets = states(graph(("A",), ("B",), ("C",)))
    names = "ABC"
    every = [frozenset(some) for k in range(4) for some in combinations(names, k)]
    assert sorted(map(sorted, closed_sets)) == sorted(map(sorted, every))
    assert closed_sets[0] == frozenset()
    assert closed_sets[-1] == frozenset(names)


def test_of_many_groups_one_opens_with_those_around_it() -> None:
    closed_sets = states(graph(("A",), ("A", "B"), ("A", "B", "C"), ("D",), ("E",)))
    every = frozenset("ABCDE")
    open_sets = {every - closed for closed in closed_sets}
    expected = ["", "A", "AB", "ABC", "D", "E", "ABCDE"]
    assert open_sets == {frozenset(names) for names in expected}
    assert len(closed_sets) == len(expected)


def test_a_graph_without_groups_has_one_state() -> None:
    assert states(graph(())) == [frozenset()]
    assert len(diagram(graph(()), {})) == 1
    assert "Open all" not in report(certificate(), graph(()))
    assert "Open all" in report(certificate(), graph(("A",)))


def test_very_many_groups_are_all_open_or_all_closed() -> None:
    assert len(states(graph(*[(f"g{i}",) for i in range(40)]))) == 2


def test_every_state_is_drawn_once_and_leads_to_every_node() -> None:
    drawn = graph(("A",), ("B",), ())
    paper = certificate()
    paper["nodes"][0] |= {"node": "b0", "share": 0.25}
    text = report(paper, drawn)
    closed_names = re.findall(r'data-closed="(.*?)"', text)
    closed = [json.loads(unescape(names)) for names in closed_names]
    assert sorted(closed) == [[], ["A"], ["A", "B"], ["B"]]
    assert len(closed) - text.count(" hidden>") == 1
    everything = text.partition('class="state all"')[2].partition("</svg>")[0]
    for i in range(len(drawn)):
        assert f'href="#node-{i}"' in everything
    assert everything.count("data-close=") == 2
    assert "25%" in everything
    assert text.count("<style") == 1


def test_a_dearer_release_has_a_larger_box() -> None:
    text = diagram(graph(()), {"a0": 0.9, "b0": 0.1})[0].drawing
    heights = {}
    for name in ("a0", "b0"):
        box = text.partition(f'aria-label="count: {name}')[2].partition("</a>")[0]
        heights[name] = float(re.findall(r'height="([\d.]+)"', box)[0])
    assert heights["a0"] >= heights["b0"] + 10


def test_the_plan_of_another_certificate_is_refused() -> None:
    people = dp.dataset("people", columns={})
    one = dp.Pipeline(a=people.count().release(dp.Laplace(scale=1)))
    other = dp.Pipeline(a=people.count().release(dp.Laplace(scale=2)))
    with pytest.raises(DeclarationError):
        report(one.certify(), other)


def test_a_very_large_plan_is_not_drawn_once_for_each_group() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for j in range(20):
        for i in range(30):
            graph.add_node(
                f"{j} {i}", kind="post", label="x", visibility="public", group=(f"G{j}",)
            )
    assert states(graph) == [frozenset(), frozenset(f"G{j}" for j in range(20))]
    few = graph.subgraph([f"{j} 0" for j in range(20)])
    assert len(states(few)) == 22
