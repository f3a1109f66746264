"""Drawings of a privacy graph: a self-contained SVG, and Mermaid text.

Both functions take any acyclic ``networkx.DiGraph`` whose nodes carry ``kind``, ``label``,
``detail``, ``colour`` ("private", "released" or "public"), ``group`` (names, outer to inner),
``outputs`` and perhaps ``share``; whatever is missing has a plain default. The words here:

* a *box* is what is drawn: one node, a closed group, or a fold of several nodes;
* a *vertex* is a box, or the place where a long edge passes through a layer;
* a *layer* is a column: the length of the longest path that leads to it.

The drawing is made in three steps. ``_picture`` folds: closed groups, equal siblings, and the
rest when the graph is too large to be read. ``_layout`` finds a place for every vertex
(Sugiyama, Tagawa and Toda 1981: layers, barycentre sweeps, coordinates), every group being one
block that no stranger enters. Then the marks are written. Nothing is drawn at random: equal
graphs give equal text.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import networkx as nx

__all__ = ["mermaid", "svg"]

Path = tuple[str, ...]

COLOURS = ("private", "released", "public")
SIBLINGS = 8  # equal siblings that are drawn one by one
LAYERS = 40  # layers that are drawn before the middle of a long chain is folded
TOP, SIDE, BELOW = 26.0, 12.0, 12.0  # room between a group's frame and its nodes
FORWARD, BACKWARD = 1, 2  # which ends of an edge carry an arrow; closing a group can give both


@dataclass(frozen=True)
class _Box:
    """What is drawn as one box; `count` is the number of nodes that it stands for."""

    kind: str
    label: str
    detail: str
    colour: str
    group: Path
    outputs: Path
    share: float | None
    count: int = 1
    more: bool = False
    names: Path = ()


def svg(graph: nx.DiGraph[str], *, closed: Collection[str] = ()) -> str:
    """Draw a graph from left to right as one self-contained SVG.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of the module's docstring.
    closed : collection of str
        Names of groups to draw as one box each.

    Returns
    -------
    str
        An ``<svg>`` element. It follows the reader's light or dark setting, and its style is
        scoped by a class, so that several drawings may share a page.

    Examples
    --------
    >>> graph = nx.DiGraph()
    >>> graph.add_node("people", kind="dataset", label="people", colour="private")
    >>> graph.add_node("count", kind="release", label="count", colour="released", share=1.0)
    >>> graph.add_edge("people", "count")
    >>> svg(graph).startswith("<svg")
    True
    """
    picture = _picture(graph, closed, boxes=400, edges=2400)
    return _render(picture, _layout(picture), _counts(graph))


def mermaid(graph: nx.DiGraph[str]) -> str:
    """Write a graph as a Mermaid flowchart, for Markdown pages that render it.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of the module's docstring.

    Returns
    -------
    str
        ``flowchart LR`` text, folded by the rule of `svg` to stay within Mermaid's own limits.

    Examples
    --------
    >>> graph = nx.DiGraph()
    >>> graph.add_node("people", kind="dataset", label="people", colour="private")
    >>> print(mermaid(graph).splitlines()[1])
      n0["people"]:::private
    """
    picture = _picture(graph, (), boxes=240, edges=480)
    ids = {key: f"n{index}" for index, key in enumerate(picture)}
    lines = ["flowchart LR", *_subgraph((), _tree(_boxes(picture)), ids, picture)]
    arrows = {FORWARD: "-->", BACKWARD: "-->", FORWARD | BACKWARD: "<-->"}
    lines += [f"  {ids[a]} {arrows[way]} {ids[b]}" for a, b, way in _ways(picture)]
    lines += [
        "  classDef private fill:#fff1e6,stroke:#c2410c,color:#7c2d12,stroke-width:2px",
        "  classDef released fill:#e8f4fc,stroke:#0369a1,color:#0c4a6e",
        "  classDef public fill:#f3f4f6,stroke:#6b7280,color:#374151,stroke-dasharray:4 3",
    ]
    left_out = _left_out(picture)
    lines += [f"  %% {left_out} nodes are folded"] if left_out else []
    return "\n".join(lines) + "\n"


# --- folding: from the graph to what is drawn ----------------------------------------------


def _picture(
    graph: nx.DiGraph[str], closed: Collection[str], *, boxes: int, edges: int
) -> nx.DiGraph[str]:
    """Return the graph of boxes, with at most about `boxes` boxes and `edges` edges."""
    picture: nx.DiGraph[str] = nx.DiGraph()
    for key in nx.topological_sort(graph):
        picture.add_node(key, box=_read(key, graph.nodes[key]))
    picture.add_edges_from(graph.edges, way=FORWARD)
    picture = _siblings(_close(picture, frozenset(closed)))
    limit = boxes
    while len(picture) > boxes or picture.number_of_edges() > edges:
        picture = _squeeze(picture, limit)
        limit //= 2
    return picture


def _read(key: str, node: Mapping[str, Any]) -> _Box:
    """Read a node; what has no known colour is drawn as private, the careful reading."""
    colour, share = node.get("colour"), node.get("share")
    return _Box(
        kind=str(node.get("kind", "")),
        label=str(node.get("label") or key),
        detail=str(node.get("detail") or ""),
        colour=colour if colour in COLOURS else "private",
        group=tuple(map(str, node.get("group") or ())),
        outputs=tuple(map(str, node.get("outputs") or ())),
        share=None if share is None else min(1.0, max(0.0, float(share))),
    )


def _boxes(picture: nx.DiGraph[str]) -> dict[str, _Box]:
    return {key: node["box"] for key, node in picture.nodes.items()}


def _ways(picture: nx.DiGraph[str]) -> list[tuple[str, str, int]]:
    return [(a, b, edge["way"]) for (a, b), edge in picture.edges.items()]


def _left_out(picture: nx.DiGraph[str]) -> int:
    return sum(box.count for box in _boxes(picture).values() if box.more)


def _quotient(
    picture: nx.DiGraph[str], parts: Mapping[str, Sequence[str]], boxes: Mapping[str, _Box]
) -> nx.DiGraph[str]:
    """Merge the members of each part into its box; an edge that would run back is turned."""
    owner = {member: part for part, members in parts.items() for member in members}
    merged: nx.DiGraph[str] = nx.DiGraph()
    for key, box in _boxes(picture).items():
        part = owner.get(key, key)
        if part not in merged:
            merged.add_node(part, box=boxes.get(part, box))
    place = {key: index for index, key in enumerate(merged)}
    turned = not _is_acyclic_by(picture, owner)
    for a, b, way in _ways(picture):
        source, target = owner.get(a, a), owner.get(b, b)
        if source == target:
            continue
        if turned and place[source] > place[target]:
            source, target, way = target, source, FORWARD | BACKWARD ^ way
        known = merged.edges[source, target]["way"] if merged.has_edge(source, target) else 0
        merged.add_edge(source, target, way=known | way)
    return merged


def _is_acyclic_by(picture: nx.DiGraph[str], owner: Mapping[str, str]) -> bool:
    pairs = ((owner.get(a, a), owner.get(b, b)) for a, b in picture.edges)
    return nx.is_directed_acyclic_graph(nx.DiGraph([(a, b) for a, b in pairs if a != b]))


def _close(picture: nx.DiGraph[str], closed: frozenset[str]) -> nx.DiGraph[str]:
    """Draw every group whose name is in `closed` as one box."""
    members: dict[Path, list[str]] = defaultdict(list)
    for key, box in _boxes(picture).items():
        depth = next((i for i, name in enumerate(box.group) if name in closed), None)
        if depth is not None:
            members[box.group[: depth + 1]].append(key)
    parts = {f"group {'/'.join(path)} {keys[0]}": keys for path, keys in members.items()}
    boxes = {}
    for part, (path, keys) in zip(parts, members.items(), strict=True):
        inside, found = set(keys), [picture.nodes[key]["box"] for key in keys]
        out = [picture.nodes[k]["box"] for k in keys if not inside.issuperset(picture.succ[k])]
        ends = {box.colour for box in out or found if box.outputs or out}
        colour = next((c for c in COLOURS if c in ends), "released")
        boxes[part] = replace(
            _together(found), kind="group", label=path[-1], detail=f"{len(keys)} nodes inside"
        )
        boxes[part] = replace(boxes[part], colour=colour, group=path[:-1], more=False)
    return _quotient(picture, parts, boxes)


def _together(boxes: Sequence[_Box]) -> _Box:
    """Return one box for several: "... and N more"."""
    count = sum(box.count for box in boxes)
    shares = [box.share for box in boxes if box.share is not None]
    return _Box(
        kind=_common({box.kind for box in boxes}, "several kinds"),
        label=f"… and {count:,} more",
        detail=_common({box.detail for box in boxes if not box.more}, ""),
        colour=next((c for c in COLOURS if any(box.colour == c for box in boxes)), "private"),
        group=_prefix([box.group for box in boxes]),
        outputs=(),
        share=min(1.0, sum(shares)) if shares else None,
        count=count,
        more=True,
        names=tuple(name for box in boxes[:12] for name in (box.names or (box.label,)))[:12],
    )


def _common(values: set[str], otherwise: str) -> str:
    return next(iter(values)) if len(values) == 1 else otherwise


def _prefix(paths: Sequence[Path]) -> Path:
    """Return the longest path with which all of `paths` begin."""
    first, last = min(paths), max(paths)
    same = [a == b for a, b in zip(first, last, strict=False)]
    return first[: same.index(False) if False in same else len(same)]


def _siblings(picture: nx.DiGraph[str]) -> nx.DiGraph[str]:
    """Fold equal siblings beyond the first few, and with them all that hangs on them alone.

    Two nodes are equal when all that follows from them has the same kinds and details, and
    siblings when, moreover, they have the same predecessors. Equal nodes have equal height and
    every edge goes down in height, so that the folded graph has no cycle.
    """
    boxes = _boxes(picture)
    shape: dict[str, int] = {}
    height: dict[str, int] = {}
    seen: dict[Hashable, int] = {}
    levels: dict[int, list[str]] = defaultdict(list)
    for key in reversed(list(nx.topological_sort(picture))):
        box, after = boxes[key], picture.succ[key]
        sign = (box.kind, box.detail, box.colour, box.group, box.more)
        shape[key] = seen.setdefault((sign, tuple(sorted(shape[s] for s in after))), len(seen))
        height[key] = 1 + max((height[s] for s in after), default=0)
        levels[height[key]].append(key)
    owner: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for level in sorted(levels, reverse=True):
        alike: dict[Hashable, list[str]] = defaultdict(list)
        for key in reversed(levels[level]):
            before = frozenset(owner.get(p, p) for p in picture.pred[key])
            alike[shape[key], before].append(key)
        for keys in alike.values():
            folded = keys[_shown(picture, keys, owner) :]
            if folded:
                parts[f"more {folded[0]}"] = folded
                owner.update(dict.fromkeys(folded, f"more {folded[0]}"))
    return _quotient(picture, parts, _folds(picture, parts))


def _shown(picture: nx.DiGraph[str], keys: Sequence[str], owner: Mapping[str, str]) -> int:
    """Return how many of these siblings to draw; none where their predecessors are folded."""
    first = picture.pred[keys[0]]
    torn = any(set(picture.pred[key]) != set(first) for key in keys[1:])
    return 0 if torn and any(p in owner for p in first) else SIBLINGS


def _folds(picture: nx.DiGraph[str], parts: Mapping[str, Sequence[str]]) -> dict[str, _Box]:
    boxes = _boxes(picture)
    return {part: _together([boxes[key] for key in keys]) for part, keys in parts.items()}


def _squeeze(picture: nx.DiGraph[str], limit: int) -> nx.DiGraph[str]:
    """Fold the middle layers, and the end of each layer, down to about `limit` boxes."""
    layers = [list(layer) for layer in nx.topological_generations(picture)]
    parts: dict[str, list[str]] = {}
    most = max(3, min(LAYERS, limit // 4))
    if len(layers) > most:
        start, stop = most // 2, len(layers) - (most - most // 2 - 1)
        middle = [key for layer in layers[start:stop] for key in layer]
        parts[f"more {middle[0]}"] = middle
        layers = layers[:start] + layers[stop:]
    room = max(1, limit // max(1, len(layers)))
    for layer in layers:
        if len(layer) > room:
            parts[f"more {layer[room - 1]}"] = layer[room - 1 :]
    return _quotient(picture, parts, _folds(picture, parts))


# --- layout: a place for every vertex ------------------------------------------------------


@dataclass
class _Layout:
    """Vertices by number (the boxes first), in layers, with the segments of edges between them."""

    layer: list[int] = field(default_factory=list)
    height: list[float] = field(default_factory=list)
    group: list[Path] = field(default_factory=list)
    before: list[list[int]] = field(default_factory=list)
    after: list[list[int]] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    source: list[int] = field(default_factory=list)
    alike: list[int] = field(default_factory=list)
    boxes: int = 0

    def add(self, layer: int, height: float, group: Path, source: int) -> int:
        self.layer.append(layer)
        self.height.append(height)
        self.group.append(group)
        self.source.append(source)
        self.alike.append(len(self.alike))
        self.before.append([])
        self.after.append([])
        self.y.append(0.0)
        return len(self.layer) - 1

    def join(self, a: int, b: int) -> None:
        self.after[a].append(b)
        self.before[b].append(a)


@dataclass
class _Tree:
    """A group: its own vertices, its groups, and all vertices in it."""

    path: Path
    own: list[int] = field(default_factory=list)
    groups: dict[str, _Tree] = field(default_factory=dict)
    members: list[int] = field(default_factory=list)

    def depth(self) -> int:
        return max((1 + tree.depth() for tree in self.groups.values()), default=0)

    def walk(self) -> list[_Tree]:
        return [self, *(found for tree in self.groups.values() for found in tree.walk())]


def _tree(paths: Iterable[Any] | Mapping[str, _Box]) -> _Tree:
    """Arrange vertices, given by their group paths in order, as nested groups."""
    root = _Tree(())
    groups = [box.group for box in paths.values()] if isinstance(paths, Mapping) else paths
    for vertex, path in enumerate(groups):
        tree = root
        tree.members.append(vertex)
        for depth, name in enumerate(path):
            tree = tree.groups.setdefault(name, _Tree(tuple(path[: depth + 1])))
            tree.members.append(vertex)
        tree.own.append(vertex)
    return root


def _layout(picture: nx.DiGraph[str]) -> _Layout:
    """Place every box and every bend of a long edge."""
    layout = _vertices(picture)
    if layout.boxes:
        tree = _tree(layout.group)
        _order(layout, tree)
        _settle(layout, tree)
    return layout


def _layers(picture: nx.DiGraph[str]) -> dict[str, int]:
    """Return each box's layer: its longest path from a source, sources next to their use."""
    layer: dict[str, int] = {}
    for index, keys in enumerate(nx.topological_generations(picture)):
        layer.update(dict.fromkeys(keys, index))
    for key in picture:
        if not picture.pred[key] and picture.succ[key]:
            layer[key] = min(layer[s] for s in picture.succ[key]) - 1
    return layer


def _vertices(picture: nx.DiGraph[str]) -> _Layout:
    """Cut edges at every layer; the long edges of one source share their way while they can."""
    layout, layer = _Layout(), _layers(picture)
    number: dict[str, int] = {}
    boxes = _boxes(picture)
    for key, box in boxes.items():
        number[key] = layout.add(layer[key], _height(box), box.group, len(number))
    layout.boxes = len(number)
    first: dict[tuple[str, str], int] = {}
    layout.alike = [first.setdefault((b.kind, b.detail), v) for v, b in enumerate(boxes.values())]
    for key in picture:
        targets, here = sorted(picture.succ[key], key=lambda k: layer[k]), number[key]
        for step in range(layer[key] + 1, max((layer[t] for t in targets), default=0) + 1):
            for target in targets:
                if layer[target] == step:
                    layout.join(here, number[target])
            beyond = [boxes[t].group for t in targets if layer[t] > step]
            if beyond:
                bend = layout.add(step, 2.0, _prefix([boxes[key].group, *beyond]), number[key])
                layout.join(here, bend)
                here = bend
    return layout


def _columns(layout: _Layout) -> list[list[int]]:
    columns: list[list[int]] = [[] for _ in range(1 + max(layout.layer))]
    for vertex, layer in enumerate(layout.layer):
        columns[layer].append(vertex)
    return columns


def _gap(layout: _Layout, a: int, b: int) -> float:
    boxes = (a < layout.boxes) + (b < layout.boxes)
    return (7.0, 12.0, 18.0)[boxes] + (TOP if layout.group[a] != layout.group[b] else 0.0)


def _order(layout: _Layout, tree: _Tree) -> None:
    """Cut crossings: barycentre sweeps from several first orders; the best order is kept."""
    columns, count = _columns(layout), len(layout.layer)
    best, least = list(layout.y), (math.inf, math.inf, math.inf)
    for start in range(24 if count < 150 else 8 if count < 500 else 2):
        rank = {vertex: index for index, vertex in enumerate(_preorder(layout, start))}
        for column in columns:
            column.sort(key=rank.__getitem__)
            _stack(layout, column, [0.0] * len(column))
        for sweep in range(10 if count < 2000 else 4):
            _sweep(layout, tree, columns, backward=bool(sweep % 2))
            turned = _turned(layout, columns)
            cost = (_crossings(layout, columns, tree), turned, _length(layout))
            if cost < least:
                best, least = list(layout.y), cost
        if least[:2] == (0, 0):
            break
    layout.y[:] = best


def _sweep(layout: _Layout, tree: _Tree, columns: Sequence[list[int]], *, backward: bool) -> None:
    """Sort each layer by the mean place of the neighbours in the layer before (or after)."""
    near = layout.after if backward else layout.before
    for column in reversed(columns) if backward else columns:
        want = {v: _mean([layout.y[n] for n in near[v]] or [layout.y[v]]) for v in column}
        column.sort(key=_sorting(layout, tree, want))
        _stack(layout, column, [want[v] for v in column])


def _turned(layout: _Layout, columns: Sequence[Sequence[int]]) -> int:
    """Count the neighbours that hang on the same box, yet stand against the order given."""
    before = layout.before
    pairs = ((a, b) for column in columns for a, b in pairwise(column))
    return sum(a > b and bool(before[a]) and before[a] == before[b] for a, b in pairs)


def _preorder(layout: _Layout, start: int) -> list[int]:
    """Return the vertices depth first; each `start` puts unlike branches in another order."""
    turn = (1, -1, 37, -37, 59, -59, 83, -83)[start % 8] * (1 + start // 8)

    def key(vertex: int) -> tuple[int, int]:
        return turn * layout.alike[vertex] % 1009, vertex

    seen: dict[int, None] = {}
    stack = [v for v in reversed(range(len(layout.layer))) if not layout.before[v]]
    while stack:
        vertex = stack.pop()
        if vertex not in seen:
            seen[vertex] = None
            stack.extend(sorted(layout.after[vertex], key=key, reverse=True))
    return list(seen)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _sorting(
    layout: _Layout, tree: _Tree, want: Mapping[int, float]
) -> Callable[[int], list[tuple[float, str]]]:
    """Return a sort key for a layer that keeps the members of every group side by side."""
    means: dict[Path, float] = {}

    def mean(path: Path) -> float:
        if path not in means:
            found = tree
            for name in path:
                found = found.groups[name]
            means[path] = _mean([layout.y[v] for v in found.members])
        return means[path]

    def key(vertex: int) -> list[tuple[float, str]]:
        path = layout.group[vertex]
        outer = [(mean(path[: i + 1]), name) for i, name in enumerate(path)]
        return [*outer, (want.get(vertex, layout.y[vertex]), "")]

    return key


def _stack(layout: _Layout, column: Sequence[int], want: Sequence[float]) -> None:
    """Place one layer's vertices in order, near where they want to be, without overlap."""
    down: list[float] = []
    up: list[float] = []
    for index, vertex in enumerate(column):
        least = want[index]
        if index:
            last = column[index - 1]
            room = (layout.height[last] + layout.height[vertex]) / 2 + _gap(layout, last, vertex)
            least = max(least, down[-1] + room)
        down.append(least)
    for index in reversed(range(len(column))):
        most, vertex = want[index], column[index]
        if up:
            last = column[index + 1]
            room = (layout.height[last] + layout.height[vertex]) / 2 + _gap(layout, last, vertex)
            most = min(most, up[-1] - room)
        up.append(most)
    for vertex, low, high in zip(column, down, reversed(up), strict=True):
        layout.y[vertex] = (low + high) / 2  # both keep every distance, and so does their mean


def _crossings(layout: _Layout, columns: Sequence[Sequence[int]], tree: _Tree) -> int:
    """Count the crossings between neighbouring layers, in the order that will be drawn."""
    key, total = _sorting(layout, tree, {}), 0
    rank: dict[int, int] = {}
    for column in columns:
        rank.update({v: i for i, v in enumerate(sorted(column, key=key))})
    for column in columns:
        ends: list[int] = []
        for vertex in sorted(column, key=rank.__getitem__):
            targets = [rank[n] for n in layout.after[vertex]]
            total += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return total


def _settle(layout: _Layout, tree: _Tree) -> None:
    """Move every vertex towards its neighbours, the order being fixed; keep the calmest."""
    order, count = _sequence(layout, tree), len(layout.layer)
    rounds, turns = (6, 48) if count < 400 else (1, 32) if count < 2000 else (1, 12)
    _place(layout, tree, order, list(layout.y))
    best, least = list(layout.y), math.inf
    for turn in range(turns):
        _place(layout, tree, order, [_wish(layout, v, turn % 4) for v in range(count)])
        if turn < 6:  # by then the insides of groups are settled
            continue
        now = list(layout.y)
        for _ in range(rounds):
            for found in tree.walk():
                _straighten(layout, found, order)
        unrest = _length(layout) + 15.0 * _bends(layout)
        if unrest < least:
            best, least = list(layout.y), unrest
        layout.y[:] = now
    layout.y[:] = best
    _close_up(layout, tree)


def _bends(layout: _Layout) -> int:
    ends = enumerate(layout.after)
    return sum(abs(layout.y[v] - layout.y[n]) > 1.0 for v, after in ends for n in after)


def _wish(layout: _Layout, vertex: int, turn: int) -> float:
    """Return where a vertex would like to be: amid the layer before, the one after, or both."""
    before, after = layout.before[vertex], layout.after[vertex]
    near = (before or after, after or before)[turn % 2] if turn < 2 else before + after
    group, pulls = layout.group[vertex], []
    for other in near:
        bend = vertex >= layout.boxes and other >= layout.boxes
        inside = layout.group[other][: len(group)] == group
        pulls.append((4.0 if bend else 1.0) if inside else 0.01)  # a block moves as one
    if not near:
        return layout.y[vertex]
    return sum(p * layout.y[n] for p, n in zip(pulls, near, strict=True)) / sum(pulls)


def _straighten(layout: _Layout, tree: _Tree, order: Order) -> None:
    """Move each vertex to the median of its neighbours, as far as there is room."""
    items = [_Item.of(layout, item, layout.y) for item in order[tree.path]]
    _, _, top, bottom = _extent(layout, tree)
    lines: dict[int, list[_Item]] = defaultdict(list)
    for item in items:
        for layer in item.layers:
            lines[layer].append(item)
    for item in sorted(items, key=lambda item: -item.layers[0]):
        if item.block:
            continue
        vertex, line = item.members[0], lines[item.layers[0]]
        place, half = line.index(item), item.height / 2
        low, high = (top + TOP + half, bottom - BELOW - half) if tree.path else (-1e9, 1e9)
        if place:
            low = max(low, line[place - 1].end(1.0) + item.margin + half)
        if place + 1 < len(line):
            high = min(high, line[place + 1].end(-1.0) - item.margin - half)
        if low <= high:
            item.now = min(max(_median(layout, vertex, low, high), low), high)
            layout.y[vertex] = item.now


def _median(layout: _Layout, vertex: int, low: float, high: float) -> float:
    """Return the place nearest to all neighbours; of equal ones, level with what follows."""
    near = [layout.y[n] for n in layout.after[vertex] + layout.before[vertex]]
    if len(near) == 2 and layout.before[vertex]:
        return next((y for y in near if low <= y <= high), layout.y[vertex])
    near = sorted(near) or [layout.y[vertex]]
    first, last = near[(len(near) - 1) // 2], near[len(near) // 2]
    return min(max(layout.y[vertex], first), last)


def _close_up(layout: _Layout, tree: _Tree) -> None:
    """Take out horizontal bands that are empty from left to right."""
    spans = [(y - h / 2, y + h / 2) for y, h in zip(layout.y, layout.height, strict=True)]
    spans += [_extent(layout, group)[2:] for group in tree.walk()[1:]]
    end, shift = math.inf, 0.0
    shifts: list[tuple[float, float]] = []
    for low, high in sorted(spans):
        if low > end + 24.0:
            shift += low - end - 24.0
            shifts.append((low, shift))
        end = high if end == math.inf else max(end, high)
    for vertex, y in enumerate(layout.y):
        layout.y[vertex] = y - next((s for low, s in reversed(shifts) if y >= low), 0.0)


def _length(layout: _Layout) -> float:
    """Return how far the edges climb in all."""
    ends = enumerate(layout.after)
    return sum(abs(layout.y[v] - layout.y[n]) for v, after in ends for n in after)


Order = dict[Path, list["int | _Tree"]]


def _sequence(layout: _Layout, tree: _Tree) -> Order:
    """Return, for every group, its vertices and groups from top to bottom."""

    def centre(item: int | _Tree) -> float:
        return (
            layout.y[item] if isinstance(item, int) else _mean([layout.y[v] for v in item.members])
        )

    return {
        found.path: sorted([*found.own, *found.groups.values()], key=centre)
        for found in tree.walk()
    }


def _place(layout: _Layout, tree: _Tree, order: Order, want: Sequence[float]) -> None:
    """Place a group's vertices near where they want to be, its groups as solid blocks."""
    for inner in tree.groups.values():
        _place(layout, inner, order, want)
    items = [_Item.of(layout, item, want) for item in order[tree.path]]
    _give_way(items)
    down = _push(items, 1.0)
    up = _push(items[::-1], -1.0)[::-1]
    for item, low, high in zip(items, down, up, strict=True):
        for vertex in item.members:
            layout.y[vertex] += (low + high) / 2 - item.now


@dataclass
class _Item:
    """A vertex or a block, as `_push` sees it: a span of layers, a height, a wish."""

    layers: range
    height: float
    margin: float
    now: float
    want: float
    members: Sequence[int]
    block: bool

    def end(self, sign: float) -> float:
        """Return where the next item below (1) or above (-1) may begin."""
        return self.now + sign * (self.height / 2 + self.margin)

    @classmethod
    def of(cls, layout: _Layout, item: int | _Tree, want: Sequence[float]) -> _Item:
        if isinstance(item, int):
            layer, margin = layout.layer[item], 9.0 if item < layout.boxes else 3.5
            now = layout.y[item]
            span = range(layer, layer + 1)
            return cls(span, layout.height[item], margin, now, want[item], [item], False)
        first, last, top, bottom = _extent(layout, item)
        now = (top + bottom) / 2
        inside = set(item.members)
        joins = ((v, n) for v in item.members for n in layout.before[v] + layout.after[v])
        pull = [layout.y[n] - layout.y[v] for v, n in joins if n not in inside]
        wish = now + (_mean(pull) if pull else 0.0)
        return cls(range(first, last + 1), bottom - top, 9.0, now, wish, item.members, True)


def _give_way(items: Sequence[_Item]) -> None:
    """Settle wishes that collide, the lighter item giving way to the heavier."""
    last: dict[int, _Item] = {}
    pairs: dict[tuple[int, int], tuple[_Item, _Item, float]] = {}
    for item in items:
        for layer in item.layers:
            if layer in last:
                above = last[layer]
                room = above.margin + item.margin + (above.height + item.height) / 2
                pairs[id(above), id(item)] = (above, item, room)
            last[layer] = item
    for _ in range(10):
        for above, below, room in pairs.values():
            overlap = above.want + room - below.want
            if overlap > 0:
                weight = len(above.members) + len(below.members)
                above.want -= overlap * len(below.members) / weight
                below.want += overlap * len(above.members) / weight


def _push(items: Sequence[_Item], sign: float) -> list[float]:
    """Place items one after the other, downwards (`sign` 1) or upwards (-1)."""
    front: dict[int, tuple[float, float]] = {}
    places = []
    for item in items:
        place = sign * item.want
        for layer in item.layers:
            if layer in front:
                edge, margin = front[layer]
                place = max(place, edge + margin + item.margin + item.height / 2)
        front.update(dict.fromkeys(item.layers, (place + item.height / 2, item.margin)))
        places.append(sign * place)
    return places


def _extent(layout: _Layout, tree: _Tree) -> tuple[int, int, float, float]:
    """Return a group's first and last layer, and the top and bottom of its frame."""
    tops = [layout.y[v] - layout.height[v] / 2 for v in tree.own]
    bottoms = [layout.y[v] + layout.height[v] / 2 for v in tree.own]
    for inner in tree.groups.values():
        _, _, top, bottom = _extent(layout, inner)
        tops.append(top)
        bottoms.append(bottom)
    layers = [layout.layer[v] for v in tree.members]
    return min(layers), max(layers), min(tops) - TOP, max(bottoms) + BELOW


# --- marks: text, boxes, edges, frames -----------------------------------------------------

_STYLE = """
.adp-graph{--bg:#ffffff;--ink:#1f2937;--soft:#4b5563;--frame:#9aa3af;--group:#f8f9fb;
--private:#fff1e6;--private-line:#c2410c;--private-ink:#7c2d12;
--released:#e8f4fc;--released-line:#0369a1;--released-ink:#0c4a6e;
--public:#f3f4f6;--public-line:#6b7280;--public-ink:#374151;--rail:#c9dceb;
font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
@media screen and (prefers-color-scheme:dark){
.adp-graph{--bg:#14181f;--ink:#e5e7eb;--soft:#b6bec9;--frame:#5b6573;--group:#1a2029;
--private:#3a1f12;--private-line:#fb923c;--private-ink:#fed7aa;
--released:#0d2b3e;--released-line:#38bdf8;--released-ink:#bae6fd;
--public:#262c35;--public-line:#9ca3af;--public-ink:#e5e7eb;--rail:#274a61}}
.adp-graph .bg{fill:var(--bg)}
.adp-graph .frame{fill:var(--group);stroke:var(--frame);stroke-dasharray:2 3}
.adp-graph .name{font-size:11.5px;font-weight:600;fill:var(--soft)}
.adp-graph .edge{fill:none;stroke-width:1.5;stroke-opacity:.75}
.adp-graph .edge:hover{stroke-width:3;stroke-opacity:1}
.adp-graph .edge.private{stroke:var(--private-line)}
.adp-graph .edge.released{stroke:var(--released-line)}
.adp-graph .edge.public{stroke:var(--public-line);stroke-dasharray:4 3}
.adp-graph .head.private{fill:var(--private-line)}
.adp-graph .head.released{fill:var(--released-line)}
.adp-graph .head.public{fill:var(--public-line)}
.adp-graph .box rect{stroke-width:1.25}
.adp-graph .private rect{fill:var(--private);stroke:var(--private-line)}
.adp-graph .released rect{fill:var(--released);stroke:var(--released-line)}
.adp-graph .public rect{fill:var(--public);stroke:var(--public-line);stroke-dasharray:4 3}
.adp-graph .private text{fill:var(--private-ink)}
.adp-graph .released text{fill:var(--released-ink)}
.adp-graph .public text{fill:var(--public-ink)}
.adp-graph .lock{fill:none;stroke:var(--private-line);stroke-width:1.4}
.adp-graph .lock path{fill:var(--private-line);stroke:none}
.adp-graph .label{font-size:13px;font-weight:600}
.adp-graph .detail{font-size:11px}
.adp-graph .box .rail{fill:var(--rail);stroke:none}
.adp-graph .box .bar{fill:var(--released-line);stroke:none}
.adp-graph .note{font-size:11.5px;fill:var(--soft)}
"""

_LOCK = '<g class="lock" transform="translate({x},{y})"><path d="M0 5h9v6H0z"/>{arc}</g>'
_ARC = '<path d="M2 5V3.2a2.5 2.5 0 0 1 5 0V5" style="fill:none;stroke:var(--private-line)"/>'
_WIDEST, _NARROWEST = 230.0, 84.0


def _escape(text: str) -> str:
    """Escape for XML; characters that XML forbids become a visible mark."""
    clean = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    return html.escape(clean, quote=True)


def _width(text: str, size: float) -> float:
    """Estimate the width of a text: no font is known here, so by classes of characters."""
    return size * sum(map(_advance, text))


def _advance(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    if char in "iljtf.,:;|!'()[]{} I":
        return 0.34
    return 0.86 if char in "mwMW@%…→" else 0.7 if char.isupper() else 0.58


def _cut(text: str, size: float, room: float) -> str:
    """Shorten a text to a width, with an ellipsis."""
    text = " ".join(text[:400].split())
    if _width(text, size) <= room:
        return text
    left, used = room - _width("…", size), 0.0
    for index, char in enumerate(text):
        used += size * _advance(char)
        if used > left:
            return text[:index].rstrip() + "…"
    return text


def _lines(box: _Box) -> list[tuple[str, str, float]]:
    """Return a box's lines of text as (class, text, size)."""
    lines = [("label", box.label, 15.0), ("detail", box.detail, 11.4)]
    lines.append(("detail", "→ " + ", ".join(box.outputs) if box.outputs else "", 11.4))
    return [line for line in lines if line[1]]


def _height(box: _Box) -> float:
    return 18.0 + 16.0 * len(_lines(box)) + (13.0 if box.share is not None else 0.0)


def _box_width(box: _Box) -> float:
    lock = 20.0 if box.colour == "private" else 0.0
    widths = [_width(" ".join(text[:400].split()), size) for _, text, size in _lines(box)]
    return min(_WIDEST, max(_NARROWEST, 26.0 + max(widths[0] + lock, *widths)))


def _num(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _counts(graph: nx.DiGraph[str]) -> dict[str, int]:
    counts = dict.fromkeys(COLOURS, 0)
    for key, node in graph.nodes(data=True):
        counts[_read(key, node).colour] += 1
    return counts


def _render(picture: nx.DiGraph[str], layout: _Layout, counts: Mapping[str, int]) -> str:
    """Write the drawing: frames behind, then edges, then boxes, then the legend."""
    boxes = list(_boxes(picture).values())
    tree = _tree(layout.group)
    body, width, height = [], 0.0, 24.0
    if boxes:
        tops = [layout.y[v] - h / 2 for v, h in enumerate(layout.height)]
        tops += [_extent(layout, group)[2] for group in tree.walk()[1:]]
        shift = 20.0 - min(tops)
        layout.y[:] = [y + shift for y in layout.y]
        left, right = _sides(layout, boxes, tree.depth())
        body += _frames(layout, tree, left, right)
        body += _edges(picture, layout, boxes, left, right)
        body += [
            _mark(box, left[layout.layer[v]], right[layout.layer[v]], layout.y[v])
            for v, box in enumerate(boxes)
        ]
        width = max(right) + 20.0 + SIDE * tree.depth()
        bottoms = [layout.y[v] + h / 2 for v, h in enumerate(layout.height)]
        height = max(bottoms + [_extent(layout, group)[3] for group in tree.walk()[1:]]) + 14.0
    notes, total = [], sum(counts.values())
    if not boxes:
        notes.append("The graph is empty.")
    if _left_out(picture):
        notes.append(f"{_left_out(picture):,} of {total:,} nodes are folded into “… more” boxes.")
    width = max(width, 330.0)
    shares = any(box.share is not None for box in boxes)
    legend, height = _legend(width, height, notes, shares)
    says = ", ".join(f"{count:,} {colour}" for colour, count in counts.items())
    size = f"{_num(width)} {_num(height)}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="adp-graph" role="img" '
        f'aria-label="Privacy graph of {total:,} nodes: {says}" viewBox="0 0 {size}" '
        f'width="{_num(width)}" height="{_num(height)}">'
        f"<style>{_STYLE}</style>"
        f'<rect class="bg" width="{_num(width)}" height="{_num(height)}" rx="10"/>'
        + "\n".join([*body, *legend])
        + "</svg>"
    )


def _sides(layout: _Layout, boxes: Sequence[_Box], depth: int) -> tuple[list[float], list[float]]:
    """Return the left and right side of every layer; steep edges get more room to turn."""
    columns = _columns(layout)
    left, right, x = [], [], 20.0 + SIDE * depth
    for column in columns:
        wide = [_box_width(boxes[v]) for v in column if v < layout.boxes]
        left.append(x)
        right.append(x + max(wide, default=20.0))
        climbs = [abs(layout.y[v] - layout.y[n]) for v in column for n in layout.after[v]]
        x = right[-1] + 46.0 + min(70.0, 0.14 * max(climbs, default=0.0)) + 2 * SIDE * depth
    return left, right


def _frames(
    layout: _Layout, tree: _Tree, left: Sequence[float], right: Sequence[float]
) -> list[str]:
    marks = []
    for group in tree.walk()[1:]:
        first, last, top, bottom = _extent(layout, group)
        side = SIDE * (1 + group.depth())
        x, width = left[first] - side, right[last] - left[first] + 2 * side
        name = _escape(_cut(group.path[-1], 11.5, width - 20))
        marks.append(
            f'<g><title>{_escape(" / ".join(group.path))}</title><rect class="frame" '
            f'x="{_num(x)}" y="{_num(top)}" width="{_num(width)}" height="{_num(bottom - top)}" '
            f'rx="12"/><text class="name" x="{_num(x + 11)}" y="{_num(top + 16)}">{name}</text></g>'
        )
    return marks


def _edges(
    picture: nx.DiGraph[str],
    layout: _Layout,
    boxes: Sequence[_Box],
    left: Sequence[float],
    right: Sequence[float],
) -> list[str]:
    """Write one path for all edges of a source, in the colour of what flows, and the arrows."""
    ways: dict[int, list[str]] = defaultdict(list)
    for v, targets in enumerate(layout.after):
        x, y = right[layout.layer[v]], layout.y[v]
        for n in targets:
            end, at = left[layout.layer[n]], layout.y[n]
            bend = n >= layout.boxes
            tip, half = end - (0 if bend else 5), (end - x) / 2
            curve = f"M{_num(x)} {_num(y)}C{_num(x + half)} {_num(y)} {_num(end - half)} "
            curve += f"{_num(at)} {_num(tip)} {_num(at)}"
            ways[layout.source[v]].append(curve + (f"H{_num(right[layout.layer[n]])}" * bend))
    keys = list(picture)
    heads: dict[str, set[str]] = {}
    number = {key: index for index, key in enumerate(keys)}
    for a, b, way in _ways(picture):
        source, target = number[a], number[b]
        x, end = right[layout.layer[source]], left[layout.layer[target]]
        if way & FORWARD:
            where = f"M{_num(end)} {_num(layout.y[target])}l-8 -4v8z"
            heads.setdefault(where, set()).add(boxes[source].colour)
        if way & BACKWARD:
            where = f"M{_num(x)} {_num(layout.y[source])}l8 -4v8z"
            heads.setdefault(where, set()).add(boxes[target].colour)
    marks = []
    for source, curves in ways.items():
        named = [boxes[number[t]].label for t in picture.succ[keys[source]]]
        rest = f" and {len(named) - 6} more" if len(named) > 6 else ""
        says = f"{boxes[source].label} → {', '.join(n[:60] for n in named[:6])}{rest}"
        marks.append(
            f'<path class="edge {boxes[source].colour}" d="{"".join(curves)}">'
            f"<title>{_escape(says)}</title></path>"
        )
    for where, colours in heads.items():
        colour = next(c for c in COLOURS if c in colours)
        marks.append(f'<path class="head {colour}" d="{where}"/>')
    return marks


def _mark(box: _Box, left: float, right: float, centre: float) -> str:
    """Write one box: its frame, its lines, its lock or its bar."""
    height, width = _height(box), right - left
    top, radius = centre - height / 2, 14 if box.colour == "released" else 6
    frame = f'width="{_num(width)}" height="{_num(height)}" rx="{radius}"/>'
    parts = [f"<title>{_escape(_tip(box))}</title>"]
    for lift in (5, 2.5) if box.count > 1 else ():
        parts.append(f'<rect x="{_num(left + lift)}" y="{_num(top + lift)}" {frame}')
    parts.append(f'<rect x="{_num(left)}" y="{_num(top)}" {frame}')
    lock = 20.0 if box.colour == "private" else 0.0
    for index, (kind, text, size) in enumerate(_lines(box)):
        shown = _escape(_cut(text, size, width - 23 - (lock if not index else 0)))
        y = top + 22 + 16 * index
        parts.append(f'<text class="{kind}" x="{_num(left + 13)}" y="{_num(y)}">{shown}</text>')
    if lock:
        parts.append(_LOCK.format(x=_num(right - 19), y=_num(top + 10), arc=_ARC))
    if box.share is not None:
        parts.append(_bar(box.share, left + 13, right - 13, top + height - 15))
    return f'<g class="box {box.colour}">{"".join(parts)}</g>'


def _tip(box: _Box) -> str:
    lines = [f"{box.kind}: {box.label}" if box.kind else box.label, box.detail]
    lines.append(f"output: {', '.join(box.outputs)}" if box.outputs else "")
    lines.append(f"share of the privacy budget: {box.share:.1%}" if box.share is not None else "")
    if box.names and box.more:
        lines.append(", ".join(name[:80] for name in box.names) + ", …" * (box.count > 12))
    return "\n".join(line for line in lines if line)


def _bar(share: float, left: float, right: float, top: float) -> str:
    full = right - left - 42
    at = f'x="{_num(left)}" y="{_num(top)}" height="5" rx="2.5"'
    return (
        f'<rect class="rail" {at} width="{_num(full)}"/>'
        f'<rect class="bar" {at} width="{_num(full * share)}"/>'
        f'<text class="detail" x="{_num(right)}" y="{_num(top + 6.5)}" text-anchor="end">'
        f"{_percent(share)}</text>"
    )


def _percent(share: float) -> str:
    return "<0.1%".replace("<", "&lt;") if 0 < share < 0.001 else f"{100 * share:.3g}%"


def _legend(
    width: float, top: float, notes: Sequence[str], shares: bool
) -> tuple[list[str], float]:
    """Write the key to the colours, wrapped to the width; return it with the new height."""
    words = {"private": "private", "released": "released", "public": "public"}
    items = [
        (f'<g class="box {c}"><rect width="24" height="14" rx="{r}"/></g>', words[c])
        for c, r in (("private", 3), ("released", 7), ("public", 3))
    ]
    if shares:
        bar = '<g class="box"><rect class="rail" y="4" width="24" height="5" rx="2.5"/>'
        bar += '<rect class="bar" y="4" width="12" height="5" rx="2.5"/></g>'
        items.append((bar, "share of the privacy budget"))
    items += [("", note) for note in notes]
    marks, x, y = [], 20.0, top + 8.0
    for icon, text in items:
        room = (32.0 if icon else 0.0) + _width(text, 11.5)
        if x > 20.0 and x + room > width - 16:
            x, y = 20.0, y + 22.0
        marks.append(
            f'<g transform="translate({_num(x)},{_num(y)})">{icon}'
            f'<text class="note" x="{32 if icon else 0}" y="11">{_escape(text)}</text></g>'
        )
        x += room + 20.0
    return marks, y + 32.0


# --- Mermaid -------------------------------------------------------------------------------


def _subgraph(
    path: Path, tree: _Tree, ids: Mapping[str, str], picture: nx.DiGraph[str]
) -> list[str]:
    """Write a group's nodes and, indented, its groups."""
    keys, boxes, indent = list(picture), _boxes(picture), "  " * (len(path) + 1)
    lines = []
    for vertex in tree.own:
        box = boxes[keys[vertex]]
        text = "<br/>".join(_quote(_cut(line, size, 400.0)) for _, line, size in _lines(box))
        if box.share is not None:
            text += f"<br/>share {_quote(f'{box.share:.1%}')}"
        start, end = {"private": ('["', '"]'), "released": ('(["', '"])')}.get(
            box.colour, ('("', '")')
        )
        lines.append(f"{indent}{ids[keys[vertex]]}{start}{text}{end}:::{box.colour}")
    for name, inner in tree.groups.items():
        number = "_".join(ids[keys[inner.members[0]]][1:] for _ in inner.path)
        lines.append(f'{indent}subgraph g{number}["{_quote(_cut(name, 13.0, 400.0))}"]')
        lines += [*_subgraph(inner.path, inner, ids, picture), f"{indent}end"]
    return lines


def _quote(text: str) -> str:
    """Escape a text for a quoted Mermaid label: whatever has a meaning there becomes a code."""
    return re.sub(
        r"[^\w\s.,:=+\-/→…·±≤≥]", lambda match: f"#{ord(match.group())};", " ".join(text.split())
    )
