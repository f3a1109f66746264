"""The drawing that reacts: one layout for every way to open and close its groups.

Layouts are made here, so that the page's script only shows one of them and never places a box.
Up to three groups open and close freely; of more, one is open at a time, with those around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import networkx as nx
from attrs import frozen

from adaptive_dp.graph.values import visible
from adaptive_dp.reports.drawing import drawing, serialized

FREELY = 3  # groups that open and close each by itself
MOST = 30  # groups beyond which all are open, or all closed
WORK = 5000  # nodes in all states together beyond which it is so too: each state has its own layout
OPEN = 25  # nodes up to which groups are open at first

SMALL, FIRST = 900.0, 0.75  # wider drawings start at this size, or fill the page if that is more


@frozen
class State:
    """The drawing with some groups closed.

    Parameters
    ----------
    closed
        Names of the closed groups.
    drawing
        An SVG element, as text.
    first
        Whether the page shows this state at first.
    all_open
        Whether every group is open, as in print.
    """

    closed: frozenset[str]
    drawing: str
    first: bool
    all_open: bool


def diagram(graph: nx.DiGraph[str], shares: Mapping[str, float]) -> list[State]:
    """Draw a graph in all its states, with the share of the budget of each release.

    The box of each node leads to its `anchor`, and a fold of several to ``#nodes``.
    """
    shared = nx.DiGraph(graph)
    nx.set_node_attributes(shared, {k: v for k, v in shares.items() if k in shared}, "share")
    links = {key: f"#{anchor(i)}" for i, key in enumerate(graph)} | {"": "#nodes"}
    all_states = states(graph)
    first = all_states[0] if len(graph) <= OPEN else all_states[-1]
    return [
        State(closed, _drawn(shared, closed, links), closed == first, index == 0)
        for index, closed in enumerate(all_states)
    ]


def anchor(index: int) -> str:
    """Return the id of the details of a node."""
    return f"node-{index}"


def states(graph: nx.DiGraph[str]) -> list[frozenset[str]]:
    """Return sets of closed groups, by the names that are shown: first none, last all."""
    paths = {tuple(map(visible, path)) for _, path in graph.nodes(data="group") if path}
    paths |= {path[:k] for path in paths for k in range(1, len(path))}
    names = sorted({path[-1] for path in paths})
    every = frozenset(names)
    sets = [frozenset[str]()]
    if len(names) <= FREELY:
        sets += [frozenset(some) for k in range(1, len(names)) for some in combinations(names, k)]
    elif len(names) <= MOST and len(names) * len(graph) <= WORK:
        around = [{n for path in paths if name == path[-1] for n in path} for name in names]
        sets += [every - some for some in around]
    return list(dict.fromkeys([*sets, every]))


def _drawn(graph: nx.DiGraph[str], closed: frozenset[str], links: Mapping[str, str]) -> str:
    """Return the drawing at the size at which it is shown at first."""
    root = drawing(graph, closed, links)
    across, height = float(root.get("width", 0)), float(root.get("height", 0))
    if across > SMALL:
        root.set("width", f"{FIRST * across:.1f}")
        root.set("height", f"{FIRST * height:.1f}")
        root.set("data-wide", "")
    return serialized(root)
