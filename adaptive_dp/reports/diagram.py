"""The drawing that reacts: one layout for every way to open and close its groups.

Layouts are made here, so that the page's script only shows one of them and never places a box.
Up to three groups open and close freely; of more, one is open at a time, with those around it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import networkx as nx

from adaptive_dp.graph.draw import svg
from adaptive_dp.graph.draw.style import STYLE
from adaptive_dp.graph.visible import visible
from adaptive_dp.reports.parts import escape

FREELY = 3  # groups that open and close each by itself
MOST = 30  # groups beyond which all are open, or all closed
WORK = 5000  # nodes in all states beyond which it is so too: each state is laid out anew
OPEN = 25  # nodes up to which groups are open at first

SMALL, FIRST = 900.0, 0.75  # wider drawings start at this size, or fill the page if that is more

States = list[frozenset[str]]


def diagram(graph: nx.DiGraph[str], certificate: Mapping[str, Any]) -> str:
    """Write the drawing in all its states, with tools and a place for details."""
    shared = nx.DiGraph(graph)
    shares = {item.get("node"): item.get("share") for item in certificate.get("nodes") or ()}
    nx.set_node_attributes(shared, {k: v for k, v in shares.items() if k in shared}, "share")
    links = {key: f"#{anchor(i)}" for i, key in enumerate(graph)} | {"": "#nodes"}
    found = states(graph)
    first = found[0] if len(graph) <= OPEN else found[-1]
    drawn = "".join(_state(shared, links, closed, first, i == 0) for i, closed in enumerate(found))
    both = (
        '<button type="button" data-do="open">Open all</button>'
        '<button type="button" data-do="close">Close all</button>'
        if len(found) > 1
        else ""
    )
    return (
        '<div class="diagram"><div class="tools script" role="toolbar" aria-label="Drawing">'
        '<button type="button" data-do="in" aria-label="Zoom in">+</button>'
        '<button type="button" data-do="out" aria-label="Zoom out">−</button>'
        f'<button type="button" data-do="fit">Fit</button>{both}'
        "<span>Drag or scroll to move. In the drawing, arrow keys go from box to box.</span></div>"
        '<div class="split"><div class="view" tabindex="0" role="group" '
        f'aria-label="Drawing of the analysis">{drawn}</div>'
        '<div class="panel script" role="region" aria-label="Details of a node" aria-live="polite">'
        "<p>Choose a box to see what it does, what it costs, and why.</p></div></div></div>"
    )


def anchor(index: int) -> str:
    """Return the id of the details of a node."""
    return f"node-{index}"


def states(graph: nx.DiGraph[str]) -> States:
    """Return sets of closed groups, by the names that are shown: first none, last all."""
    paths = {tuple(map(visible, path)) for _, path in graph.nodes(data="group") if path}
    paths |= {path[:k] for path in paths for k in range(1, len(path))}
    names = sorted({path[-1] for path in paths})
    every = frozenset(names)
    found = [frozenset[str]()]
    if len(names) <= FREELY:
        found += [frozenset(some) for k in range(1, len(names)) for some in combinations(names, k)]
    elif len(names) <= MOST and len(names) * len(graph) <= WORK:
        around = [{n for path in paths if name == path[-1] for n in path} for name in names]
        found += [every - some for some in around]
    return list(dict.fromkeys([*found, every]))


def _state(
    graph: nx.DiGraph[str],
    links: Mapping[str, str],
    closed: frozenset[str],
    first: frozenset[str],
    everything: bool,
) -> str:
    drawn = svg(graph, closed=closed, links=links)
    drawn = drawn.replace(f"<style>{STYLE}</style>", "", 1)  # once, in the head of the page
    drawn = drawn.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    drawn = re.sub(r'width="([\d.]+)" height="([\d.]+)"', _sized, drawn, count=1)
    kind = "state all" if everything else "state"
    hidden = "" if closed == first else " hidden"
    names = escape(json.dumps(sorted(closed)))
    return f'<div class="{kind}" data-closed="{names}"{hidden}>{drawn}</div>'


def _sized(found: re.Match[str]) -> str:
    """Return the size at which a drawing is shown at first."""
    wide, high = float(found[1]), float(found[2])
    if wide <= SMALL:
        return found[0]
    return f'width="{FIRST * wide:.1f}" height="{FIRST * high:.1f}" data-wide=""'
