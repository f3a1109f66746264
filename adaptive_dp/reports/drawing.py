"""A privacy graph as one self-contained SVG, from left to right, its groups as nested frames.

`svg` takes any acyclic ``networkx.DiGraph`` whose nodes have ``kind``, ``label``, ``detail``,
``color`` ("private", "released" or "public"), ``group`` (names, outer to inner), ``outputs``
and perhaps ``share``; each has a default. Equal graphs give equal output.

The steps, in the order of this file:

1. *boxes*: a node, a closed group or a fold of several nodes is drawn as one box;
2. *folding* makes the graph of boxes small enough to be read;
3. *layers*: a column for each box, with bends where a long edge passes through a column;
4. *order* of the boxes in each column, for few crossings;
5. *places*: heights near those of the neighbours, without overlap, groups kept together;
6. the SVG elements, whose text the XML serializer escapes.

Layers, order and places are those of Sugiyama, Tagawa and Toda (1981), with nested groups.
``docs/architecture.md`` says why no library draws this.
"""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from itertools import accumulate
from statistics import fmean
from typing import Any, TypeAlias
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement
from zlib import crc32

import networkx as nx

from adaptive_dp.graph.values import visible

EDGE, SIDE = 20.0, 12.0  # room around the drawing, and between a frame and its columns


def svg(graph: nx.DiGraph[str], *, closed: Collection[str] = ()) -> str:
    """Draw a graph from left to right as one self-contained SVG.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those listed above.
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
    >>> graph.add_node("people", kind="dataset", label="people", visibility="private")
    >>> graph.add_node("count", kind="release", label="count", visibility="released", share=1.0)
    >>> graph.add_edge("people", "count")
    >>> svg(graph).startswith("<svg")
    True
    """
    root = drawing(graph, closed)
    root.set("xmlns", "http://www.w3.org/2000/svg")
    style = Element("style")
    style.text = style_sheet()
    root.insert(0, style)
    return serialized(root)


@cache
def style_sheet() -> str:
    """Return the styles, scoped by a class to drawings; they follow a light or dark setting."""
    return "\n" + files("adaptive_dp.reports").joinpath("templates", "drawing.css").read_text()


def drawing(
    graph: nx.DiGraph[str], closed: Collection[str] = (), links: Mapping[str, str] | None = None
) -> Element:
    """Return the drawing as an element without its style sheet, for a page that has it already.

    Parameters
    ----------
    graph, closed
        As for `svg`.
    links : mapping of str to str, optional
        For a page that reacts: where the box of each node leads, and under ``""`` that of a fold;
        boxes and frames of groups are marked with ``data-open`` and ``data-close``.
    """
    drawn = folded(graph, closed, boxes=400, edges=2400)
    counts = Counter(_read_box(key, node).visibility for key, node in graph.nodes(data=True))
    summary = ", ".join(f"{counts[each]:,} {each}" for each in VISIBILITIES)
    root = Element("svg", {"class": "adp-graph", "role": "img" if links is None else "group"})
    root.set("aria-label", f"Privacy graph of {len(graph):,} nodes: {summary}")
    background = SubElement(root, "rect", {"class": "bg", "rx": "10"})
    across, bottom = _draw(root, drawn, links) if drawn else (0.0, 24.0)
    across = max(across, 330.0)
    notes = [] if drawn else ["The graph is empty."]
    hidden = folded_nodes(drawn)
    if hidden:
        notes.append(f"{hidden:,} of {len(graph):,} nodes are folded into “… more” boxes.")
    shares = any(box.share is not None for box in boxes_of(drawn).values())
    height = _draw_legend(root, across, bottom, notes, shares)
    root.set("viewBox", f"0 0 {_num(across)} {_num(height)}")
    for each in (root, background):
        each.set("width", _num(across))
        each.set("height", _num(height))
    return root


def serialized(root: Element) -> str:
    """Return an element as text; the serializer escapes all that is in it."""
    return ElementTree.tostring(root, encoding="unicode")


def _draw(root: Element, drawn: Picture, links: Mapping[str, str] | None) -> tuple[float, float]:
    """Draw a picture, frames behind, then edges, then boxes; return its width and its bottom."""
    outermost = _layered(drawn)
    _order(outermost)
    _place(outermost)
    outermost.move(EDGE - outermost.span()[0])
    canvas = _Canvas(root, outermost, *_sides(outermost), links)
    for block in outermost.walk():
        canvas.draw_frame(block)
    canvas.draw_edges(drawn)
    canvas.draw_heads(drawn)
    for vertex in outermost.members:
        if vertex.box:
            canvas.draw_box(vertex, vertex.box)
    across = max(canvas.right.values()) + EDGE + SIDE * outermost.depth()
    return across, outermost.span()[1] + 14.0


# --- 1. Boxes ---

VISIBILITY = "visibility"  # the attribute of a node
VISIBILITIES = ("private", "released", "public")  # the most careful first

Path = tuple[str, ...]


@dataclass(frozen=True)
class Box:
    """What is drawn as one box; `count` is the number of nodes that it stands for."""

    kind: str
    label: str
    detail: str
    visibility: str
    group: Path
    outputs: Path
    share: float | None
    count: int = 1
    folded: bool = False

    def lines(self) -> list[str]:
        """Return the lines of text: the label, and whatever else there is to say."""
        named = [name for name in self.outputs if name != self.label]
        outputs = "→ " + ", ".join(named) if named else ""
        return [self.label, *(line for line in (self.detail, outputs) if line)]


def _read_box(key: str, node: Mapping[str, Any]) -> Box:
    """Read a node's attributes; no text in a box breaks a line, hides or reorders."""
    visibility, share = node.get(VISIBILITY), node.get("share")
    return Box(
        kind=visible(node.get("kind", "")),
        label=visible(node.get("label") or key),
        detail=visible(node.get("detail") or ""),
        visibility=visibility if visibility in VISIBILITIES else "private",
        group=tuple(map(visible, node.get("group") or ())),
        outputs=tuple(map(visible, node.get("outputs") or ())),
        share=None if share is None else min(1.0, max(0.0, float(share))),
    )


def _merged_box(boxes: Sequence[Box]) -> Box:
    """Return one box for several: "… and N more"."""
    count = sum(box.count for box in boxes)
    shares = [box.share for box in boxes if box.share is not None]
    kinds, details = ({box.kind for box in boxes}, {box.detail for box in boxes if not box.folded})
    return Box(
        kind=kinds.pop() if len(kinds) == 1 else "several kinds",
        label=f"… and {count:,} more",
        detail=details.pop() if len(details) == 1 else "",
        visibility=_most_careful(boxes),
        group=_common_prefix([box.group for box in boxes]),
        outputs=(),
        share=min(1.0, sum(shares)) if shares else None,
        count=count,
        folded=True,
    )


def _most_careful(boxes: Sequence[Box]) -> str:
    """Return the most careful of the visibilities."""
    return min((box.visibility for box in boxes), key=VISIBILITIES.index)


def _common_prefix(paths: Sequence[Path]) -> Path:
    """Return the longest path with which all of `paths` begin."""
    first, last = min(paths), max(paths)
    same = [a == b for a, b in zip(first, last, strict=False)]
    return first[: [*same, False].index(False)]


# --- 2. Folding ---
#
# Three folds, each a quotient of the graph: groups that the caller closed; equal siblings beyond
# the first few, with all that depends on them alone; and, while there is still too much, the middle
# layers and the end of each layer.

SIBLINGS = 8  # equal siblings that are drawn one by one
LAYERS = 40  # layers that are drawn before the middle of a long chain is folded
FORWARD, BACKWARD = 1, 2  # which ends of an edge carry an arrow; closing a group can give both
SOLID = 4  # set where a value flows; a step that merely chose the next one is drawn dashed

Picture: TypeAlias = "nx.DiGraph[str]"  # nodes carry a `box`, edges `arrows`
Parts = Mapping[str, Sequence[str]]


def folded(graph: nx.DiGraph[str], closed: Collection[str], *, boxes: int, edges: int) -> Picture:
    """Return the graph of boxes, with at most about `boxes` boxes and `edges` edges."""
    boxed: Picture = nx.DiGraph()
    for key in nx.topological_sort(graph):
        boxed.add_node(key, box=_read_box(key, graph.nodes[key]))
    for (a, b), edge in graph.edges.items():
        chosen = edge.get("kind") == "adaptive"
        boxed.add_edge(a, b, arrows=FORWARD if chosen else FORWARD | SOLID)
    boxed = _fold_siblings(_close_groups(boxed, set(map(visible, closed))))
    limit = boxes
    while len(boxed) > boxes or boxed.number_of_edges() > edges:
        boxed = _fold_to_size(boxed, limit)
        limit //= 2
    return boxed


def boxes_of(picture: Picture) -> dict[str, Box]:
    """Return the boxes by key, in the order of the picture."""
    return {key: node["box"] for key, node in picture.nodes.items()}


def folded_nodes(picture: Picture) -> int:
    """Return how many nodes are not drawn by themselves."""
    return sum(box.count for box in boxes_of(picture).values() if box.folded)


def _quotient(picture: Picture, parts: Parts, boxes: Mapping[str, Box]) -> Picture:
    """Merge the members of each part into its box; an edge that would run back is turned."""
    owner = {member: part for part, members in parts.items() for member in members}
    merged: Picture = nx.DiGraph()
    for key, box in boxes_of(picture).items():
        part = owner.get(key, key)
        if part not in merged:
            merged.add_node(part, box=boxes.get(part, box))
    arrows: dict[tuple[str, str], int] = defaultdict(int)
    for (a, b), edge in picture.edges.items():
        source, target = owner.get(a, a), owner.get(b, b)
        if source != target:
            arrows[source, target] |= edge["arrows"]
    position = _mean_positions(picture, owner)
    acyclic = nx.is_directed_acyclic_graph(nx.DiGraph(list(arrows)))
    for (a, b), flags in arrows.items():
        if not acyclic and position[a] > position[b]:
            a, b, flags = b, a, FORWARD | BACKWARD ^ flags
        existing = merged.edges[a, b]["arrows"] if (a, b) in merged.edges else 0
        merged.add_edge(a, b, arrows=flags | existing)
    return merged


def _mean_positions(picture: Picture, owner: Mapping[str, str]) -> dict[str, tuple[float, str]]:
    """Return where the members of each part lie on average, in the order of the picture."""
    places: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(picture):
        places[owner.get(key, key)].append(index)
    return {part: (fmean(positions), part) for part, positions in places.items()}


def _merge(picture: Picture, parts: Parts) -> Picture:
    boxes = boxes_of(picture)
    folds = {part: _merged_box([boxes[key] for key in keys]) for part, keys in parts.items()}
    return _quotient(picture, parts, folds)


def _close_groups(picture: Picture, closed: Collection[str]) -> Picture:
    """Draw every group whose name is in `closed` as one box."""
    groups: dict[Path, list[str]] = defaultdict(list)
    for key, box in boxes_of(picture).items():
        depth = next((i for i, name in enumerate(box.group, 1) if name in closed), None)
        if depth:
            groups[box.group[:depth]].append(key)
    parts = {f"group {'/'.join(path)} {keys[0]}": keys for path, keys in groups.items()}
    boxes = [_closed_box(picture, path, keys) for path, keys in groups.items()]
    return _quotient(picture, parts, dict(zip(parts, boxes, strict=True)))


def _closed_box(picture: Picture, path: Path, keys: Sequence[str]) -> Box:
    """Return the box of a closed group, in the visibility of what leaves it."""
    boxes, inside = boxes_of(picture), set(keys)
    ends = [boxes[k] for k in keys if boxes[k].outputs or not inside.issuperset(picture.succ[k])]
    box = _merged_box([boxes[key] for key in keys])
    visibility, detail = (
        _most_careful(ends) if ends else box.visibility,
        f"{len(keys)} nodes inside",
    )
    plain = replace(box, kind="group", label=path[-1], detail=detail, folded=False)
    return replace(plain, visibility=visibility, group=path[:-1])


def _fold_siblings(picture: Picture) -> Picture:
    """Fold equal siblings beyond the first few, and with them all that depends on them alone.

    Two nodes are equal when all that follows from them has the same kinds and details, and
    siblings when, moreover, they have the same predecessors. Equal nodes have equal height and
    every edge goes down in height, so that the folded graph has no cycle.
    """
    boxes = boxes_of(picture)
    shape: dict[str, int] = {}
    height: dict[str, int] = {}
    seen: dict[Hashable, int] = {}
    for key in reversed(list(nx.topological_sort(picture))):
        box, after = boxes[key], picture.succ[key]
        sign = (box.kind, box.detail, box.visibility, box.group, box.folded)
        shape[key] = seen.setdefault((sign, tuple(sorted(shape[s] for s in after))), len(seen))
        height[key] = 1 + max((height[s] for s in after), default=0)
    levels: dict[int, list[str]] = defaultdict(list)
    for key in picture:
        levels[height[key]].append(key)
    owner: dict[str, str] = {}
    parts: dict[str, list[str]] = {}
    for level in sorted(levels, reverse=True):
        alike: dict[Hashable, list[str]] = defaultdict(list)
        for key in levels[level]:
            before = frozenset(owner.get(p, p) for p in picture.pred[key])
            alike[shape[key], before].append(key)
        for keys in alike.values():
            folded = keys[_drawn_siblings(picture, keys, owner) :]
            if folded:
                parts[f"more {folded[0]}"] = folded
                owner.update(dict.fromkeys(folded, f"more {folded[0]}"))
    return _merge(picture, parts)


def _drawn_siblings(picture: Picture, keys: Sequence[str], owner: Mapping[str, str]) -> int:
    """Return how many of these siblings to draw; none where their predecessors are folded."""
    first = set(picture.pred[keys[0]])
    torn = any(set(picture.pred[key]) != first for key in keys[1:])
    return 0 if torn and any(p in owner for p in first) else SIBLINGS


def _fold_to_size(picture: Picture, limit: int) -> Picture:
    """Fold the middle layers, and the end of each layer, down to about `limit` boxes."""
    layers = list(nx.topological_generations(picture))
    most = max(3, min(LAYERS, limit // 4))
    start, stop = most // 2, len(layers) - (most - most // 2 - 1)
    parts = []
    if len(layers) > most:
        parts.append([key for layer in layers[start:stop] for key in layer])
        layers = layers[:start] + layers[stop:]
    room = max(1, limit // max(1, len(layers)))
    parts += [layer[room - 1 :] for layer in layers if len(layer) > room]
    return _merge(picture, {f"more {keys[0]}": keys for keys in parts})


# --- Text: no font is known here, so widths are estimated, by classes of characters ---

LABEL, DETAIL = 15.0, 11.4  # estimated sizes: the label is bold
MAX_WIDTH, MIN_WIDTH = 230.0, 84.0


def width(text: str, size: float) -> float:
    """Estimate the width of a str."""
    return size * sum(map(_advance, text))


def _advance(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    if char in "iljtf.,:;|!'()[]{} I":
        return 0.34
    return 0.86 if char in "mwMW@%…→" else 0.7 if char.isupper() else 0.58


def fitted(text: str, size: float, room: float) -> str:
    """Shorten a str to a width, with an ellipsis."""
    text = _one_line(text)
    ends = list(accumulate(size * _advance(char) for char in text))
    if not ends or ends[-1] <= room:
        return text
    return text[: bisect_right(ends, room - width("…", size))].rstrip() + "…"


def _one_line(text: str) -> str:
    """Put a str on one line; what is very long is cut."""
    return " ".join(text[:400].split())


def text_lines(box: Box) -> list[tuple[str, float]]:
    """Return a box's lines with their sizes."""
    return [(line, DETAIL if index else LABEL) for index, line in enumerate(box.lines())]


def _lock_width(box: Box) -> float:
    """Return the room for the lock of a private box."""
    return 20.0 if box.visibility == "private" else 0.0


def _bar_height(share: float) -> float:
    """Return the height of the bar of a share: the costlier a release, the larger its box."""
    return 5.0 + 20.0 * share


def _box_height(box: Box) -> float:
    """Return the height of a box: its lines, and the bar of its share."""
    bar = 8.0 + _bar_height(box.share) if box.share is not None else 0.0
    return 18.0 + 16.0 * len(box.lines()) + bar


def _box_width(box: Box) -> float:
    """Return the width that a box asks for, within limits."""
    label, *others = [width(_one_line(text), size) for text, size in text_lines(box)]
    return min(MAX_WIDTH, max(MIN_WIDTH, 26.0 + max([label + _lock_width(box), *others])))


# --- 3. Layers ---
#
# A layer is the length of the longest path that leads to a box. A vertex is a box or a bend of a
# long edge; vertices lie in blocks, one per group, nested; the outermost block holds all.

TOP, BELOW = 26.0, 12.0  # room between a block's frame and its vertices


class Item:
    """A vertex or a block: it covers a range of columns, and a vertical span."""

    members: list[Vertex]  # all vertices in it
    margin = 9.0

    def span(self) -> tuple[float, float]:
        """Return the top and the bottom."""
        raise NotImplementedError

    def span_with_margins(self) -> tuple[float, float]:
        """Return the top and the bottom with margins."""
        top, bottom = self.span()
        return top - self.margin, bottom + self.margin

    def columns(self) -> range:
        """Return the layers that the item covers."""
        layers = [vertex.layer for vertex in self.members]
        return range(min(layers), max(layers) + 1)

    def outer_edges(self, turn: int) -> list[tuple[Vertex, Vertex]]:
        """Return the edges that leave the item, each from the vertex inside."""
        inside = set(self.members)
        return [(v, n) for v in self.members for n in v.neighbours(turn) if n not in inside]

    def move(self, by: float) -> None:
        """Move the item down."""
        for vertex in self.members:
            vertex.y += by


@dataclass(eq=False)
class Vertex(Item):
    """A box, or a bend of the edges that leave the box `source`; `y` is its centre."""

    source: str
    box: Box | None
    layer: int
    group: Path
    y: float = 0.0
    before: list[Vertex] = field(default_factory=list)
    after: list[Vertex] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.members = [self]
        self.height = _box_height(self.box) if self.box else 2.0
        self.margin = 9.0 if self.box else 3.5

    def neighbours(self, turn: int) -> list[Vertex]:
        """Return the neighbours before, after or on both sides."""
        before, after = self.before, self.after
        return (before or after, after or before, before + after)[turn % 3]

    def span(self) -> tuple[float, float]:
        """Return the top and the bottom."""
        return self.y - self.height / 2, self.y + self.height / 2


@dataclass(eq=False)
class Block(Item):
    """A group: its own vertices and blocks, from top to bottom, and all vertices in it."""

    path: Path
    items: list[Item] = field(default_factory=list)
    members: list[Vertex] = field(default_factory=list)

    def blocks(self) -> list[Block]:
        """Return the blocks that lie directly in this one."""
        return [item for item in self.items if isinstance(item, Block)]

    def walk(self) -> Iterator[Block]:
        """Yield all blocks inside, the outer before the inner."""
        for block in self.blocks():
            yield block
            yield from block.walk()

    def depth(self) -> int:
        """Return how deep blocks are nested in this one."""
        return max((1 + block.depth() for block in self.blocks()), default=0)

    def inside(self) -> tuple[float, float]:
        """Return the top and the bottom of what is in the block."""
        tops, bottoms = zip(*(item.span() for item in self.items), strict=True)
        return min(tops), max(bottoms)

    def span(self) -> tuple[float, float]:
        """Return the top and the bottom of the frame; the outermost block has none."""
        (top, bottom), framed = self.inside(), bool(self.path)
        return top - TOP * framed, bottom + BELOW * framed

    def insert(self, vertex: Vertex) -> None:
        """Insert a vertex, and the blocks of its group where they are new."""
        self.members.append(vertex)
        if vertex.group == self.path:
            self.items.append(vertex)
            return
        path = vertex.group[: len(self.path) + 1]
        inner = next((block for block in self.blocks() if block.path == path), None)
        if inner is None:
            inner = Block(path)
            self.items.append(inner)
        inner.insert(vertex)


def _layered(picture: Picture) -> Block:
    """Return the block of all vertices, those of boxes first, joined by the edges."""
    layer, root = _layers(picture), Block(())
    boxes = {key: Vertex(key, b, layer[key], b.group) for key, b in boxes_of(picture).items()}
    for vertex in boxes.values():
        root.insert(vertex)
    for key, after in picture.succ.items():
        for bend in _route(boxes[key], [boxes[target] for target in after]):
            root.insert(bend)
    return root


def _layers(picture: Picture) -> dict[str, int]:
    """Return each box's layer: its longest path from a source, sources next to their use."""
    generations = enumerate(nx.topological_generations(picture))
    layer = {key: index for index, keys in generations for key in keys}
    for key, after in picture.succ.items():
        if after and not picture.pred[key]:
            layer[key] = min(layer[s] for s in after) - 1
    return layer


def _route(start: Vertex, targets: list[Vertex]) -> Iterator[Vertex]:
    """Join a box to what follows; its long edges share one route, whose bends are yielded."""
    here = start
    for step in range(start.layer + 1, max((t.layer for t in targets), default=0) + 1):
        ends = [target for target in targets if target.layer == step]
        beyond = [target.group for target in targets if target.layer > step]
        if beyond:
            bend = Vertex(start.source, None, step, _common_prefix([start.group, *beyond]))
            ends.append(bend)
            yield bend
        for end in ends:
            here.after.append(end)
            end.before.append(here)
        here = ends[-1]


# --- 4. Order ---
#
# Sweeps sort each layer by the mean of its neighbours, to cut crossings. They depend on where they
# start, so several first orders are tried and the best result is used.

STARTS, SWEEPS = 8, 10


def _order(root: Block) -> None:
    """Bring the items of every block in an order with few crossings."""
    best, least = [v.y for v in root.members], (math.inf, math.inf)
    for start in range(STARTS if len(root.members) < 500 else 1):
        for rank, vertex in enumerate(_depth_first(root, start)):
            vertex.y = rank
        for turn in range(SWEEPS):
            _sweep(root, backward=turn % 2 == 1)
            _separate(root, sort=True)
            cost = _crossings(root), _total_climb(root)
            if cost < least:
                best, least = [v.y for v in root.members], cost
    _restore(root, best)
    _separate(root, sort=True)


def _depth_first(root: Block, start: int) -> list[Vertex]:
    """Return the vertices depth first; each start puts unlike branches in another order."""
    seen: dict[Vertex, None] = {}
    stack = [vertex for vertex in reversed(root.members) if not vertex.before]
    while stack:
        vertex = stack.pop()
        if vertex not in seen:
            seen[vertex] = None
            stack += sorted(vertex.after, key=lambda v: _branch_key(v, start))[::-1]
    return list(seen)


def _branch_key(vertex: Vertex, start: int) -> int:
    like = (vertex.box.kind, vertex.box.detail) if vertex.box else ()
    return crc32(f"{start} {like}".encode()) if start else 0


def _sweep(root: Block, *, backward: bool) -> None:
    columns = _columns(root)
    for layer in sorted(columns, reverse=backward):
        column = columns[layer]
        for vertex in column:
            near = vertex.after if backward else vertex.before
            vertex.y = fmean([n.y for n in near] or [vertex.y])
        column.sort(key=lambda vertex: vertex.y)
        _push_apart(column)


def _columns(root: Block) -> dict[int, list[Vertex]]:
    """Return the vertices of every layer from top to bottom."""
    columns: dict[int, list[Vertex]] = defaultdict(list)
    for vertex in sorted(root.members, key=lambda vertex: vertex.y):
        columns[vertex.layer].append(vertex)
    return columns


def _crossings(root: Block) -> int:
    total = 0
    for column in _columns(root).values():
        ends: list[float] = []
        for vertex in column:
            places = [n.y for n in vertex.after]
            total += sum(len(ends) - bisect_right(ends, place) for place in places)
            for place in places:
                insort(ends, place)
    return total


# --- 5. Places ---
#
# Each turn moves every item towards the mean height of its neighbours, pushes apart what then
# overlaps (inner blocks first), and aligns vertices with their neighbours where there is room. The
# result of the turn in which edges climb least is used.


def _place(root: Block) -> None:
    """Set every vertex's height; the order within each column stays."""
    best, least = [v.y for v in root.members], math.inf
    for turn in range(24 if len(root.members) < 500 else 9):
        _move_to_neighbours(root, turn)
        _separate(root, sort=False)
        for _ in range(6):
            _align(root)
        if _total_climb(root) < least:
            best, least = [v.y for v in root.members], _total_climb(root)
    _restore(root, best)


def _restore(root: Block, places: Sequence[float]) -> None:
    """Put every vertex in its place."""
    for vertex, y in zip(root.members, places, strict=True):
        vertex.y = y


def _total_climb(root: Block) -> float:
    """Return how far the edges climb in all; that one climbs at all counts too."""
    climbs = [abs(v.y - n.y) for v in root.members for n in v.after]
    return sum(climbs) + 15.0 * sum(climb > 1.0 for climb in climbs)


def _separate(block: Block, *, sort: bool) -> None:
    """Push apart what overlaps; with `sort`, in the order of the present heights."""
    for inner in block.blocks():
        _separate(inner, sort=sort)
    if sort:
        block.items.sort(key=_centre)
    _push_apart(block.items)


def _push_apart(items: Sequence[Item]) -> None:
    """Push items apart, in their order, each staying near its place."""
    centres = [_centre(item) for item in items]
    down = _push(items, centres, 1)
    up = _push(items[::-1], centres[::-1], -1)[::-1]
    for item, now, low, high in zip(items, centres, down, up, strict=True):
        item.move((low + high) / 2 - now)  # both keep every distance, and so does their mean


def _push(items: Sequence[Item], centres: Sequence[float], sign: int) -> list[float]:
    """Place items one after the other, downwards (`sign` 1) or upwards (-1)."""
    front: dict[int, float] = {}
    places = []
    for item, now in zip(items, centres, strict=True):
        top, bottom = item.span_with_margins()
        half, columns = (bottom - top) / 2, item.columns()
        place = max([sign * now, *(front[c] + half for c in columns if c in front)])
        front.update(dict.fromkeys(columns, place + half))
        places.append(sign * place)
    return places


def _centre(item: Item) -> float:
    return fmean(item.span())


def _move_to_neighbours(block: Block, turn: int) -> None:
    """Move everything towards the layer before, the one after, or both.

    Heights outside the block are clipped to it, so that a vertex never leaves its own block.
    """
    top, bottom = block.span() if block.path else (-math.inf, math.inf)
    moves = []
    for item in block.items:
        offsets = [min(max(n.y, top), bottom) - v.y for v, n in item.outer_edges(turn)]
        moves.append(fmean(offsets) if offsets else 0.0)
    for inner in block.blocks():
        _move_to_neighbours(inner, turn)
    for item, by in zip(block.items, moves, strict=True):
        item.move(by)


def _align(block: Block) -> None:
    """Move each vertex level with its neighbours, as far as its column has room."""
    for inner in block.blocks():
        _align(inner)
    columns: dict[int, list[Item]] = defaultdict(list)
    for item in block.items:
        for column in item.columns():
            columns[column].append(item)
    spans = {item: item.span_with_margins() for item in block.items}
    top, bottom = block.inside()
    for items in columns.values():
        for index, item in enumerate(items):
            if isinstance(item, Vertex):
                margin, half = item.margin, item.height / 2
                low = spans[items[index - 1]][1] + margin if index else top
                high = spans[items[index + 1]][0] - margin if index + 1 < len(items) else bottom
                if low + half <= high - half:
                    item.y = _median_level(item, low + half, high - half)
                    spans[item] = item.span_with_margins()


def _median_level(vertex: Vertex, low: float, high: float) -> float:
    """Return the median of the neighbours; of two, the height of one that lies within bounds."""
    near = [n.y for n in vertex.after + vertex.before]
    if len(near) == 2 and vertex.before:
        return next((y for y in near if low <= y <= high), vertex.y)
    near = sorted(near) or [vertex.y]
    wish = min(max(vertex.y, near[(len(near) - 1) // 2]), near[len(near) // 2])
    return min(max(wish, low), high)


# --- 6. The elements of the SVG ---


@dataclass
class _Canvas:
    """Vertices that have their places, with the left and right side of every column."""

    svg: Element
    root: Block
    left: dict[int, float]
    right: dict[int, float]
    links: Mapping[str, str] | None = None

    def draw_frame(self, block: Block) -> None:
        """Draw a group's frame and name; where the page reacts, one that can be closed."""
        (top, bottom), side, columns = block.span(), SIDE * (1 + block.depth()), block.columns()
        left, right = self.left[columns[0]] - side, self.right[columns[-1]] + side
        name, reacts = block.path[-1], self.links is not None
        frame = SubElement(self.svg, "g", {"data-close": name} if reacts else {})
        SubElement(frame, "title").text = " / ".join(block.path)
        _rect(frame, left, top, right - left, bottom - top, {"class": "frame", "rx": "12"})
        sign = "▾ " if reacts else ""
        room = right - left - 20 - width(sign, DETAIL)
        _text(frame, left + 11, top + 16, sign + fitted(name, DETAIL, room), {"class": "name"})

    def draw_box(self, vertex: Vertex, box: Box) -> None:
        """Draw one box: its rectangle (three where it stands for many), lines, lock and bar."""
        left, right = self.left[vertex.layer], self.right[vertex.layer]
        height, across, top = vertex.height, right - left, vertex.y - vertex.height / 2
        mark = self._mark(vertex, box)
        SubElement(mark, "title").text = _tip(box)
        rounded = {"rx": "14" if box.visibility == "released" else "6"}
        for lift in (5.0, 2.5, 0.0) if box.count > 1 else (0.0,):
            _rect(mark, left + lift, top + lift, across, height, rounded)
        for index, (text, size) in enumerate(text_lines(box)):
            sign = "▸ " if "data-open" in mark.attrib and not index else ""
            room = across - 23 - width(sign, size) - (0 if index else _lock_width(box))
            style = {"class": "detail" if index else "label"}
            _text(mark, left + 13, top + 22 + 16 * index, sign + fitted(text, size, room), style)
        if _lock_width(box):
            at = f"translate({_num(right - 19)},{_num(top + 10)})"
            lock = SubElement(mark, "g", {"transform": at})
            SubElement(lock, "path", {"class": "lock", "d": "M0 5h9v6H0z"})
            SubElement(lock, "path", {"class": "arc", "d": "M2 5V3.2a2.5 2.5 0 0 1 5 0V5"})
        if box.share is not None:
            _draw_bar(mark, box.share, left + 13, right - 13, top + height - 10)

    def _mark(self, vertex: Vertex, box: Box) -> Element:
        """Return the element of a box: a link, a group that can be opened, or neither."""
        style = {"class": f"box {box.visibility}"}
        if self.links is None:
            return SubElement(self.svg, "g", style)
        if box.kind == "group":
            return SubElement(self.svg, "g", {**style, "data-open": box.label})
        where = self.links.get(vertex.source) or self.links.get("")  # "" is where folds lead
        if not where:
            return SubElement(self.svg, "g", style)
        description = _tip(box).replace("\n", ", ")
        return SubElement(self.svg, "a", {**style, "href": where, "aria-label": description})

    def draw_edges(self, drawn: Picture) -> None:
        """Draw all edges of a box as one path, in the style of what flows."""
        boxes, curves = boxes_of(drawn), defaultdict(list)
        for v in self.root.members:
            for n in v.after:
                end = self.left[n.layer] - (5 if n.box else 0)  # below the arrow's head
                line = _curve(self.right[v.layer], v.y, end, n.y)
                solid = any(_is_solid(drawn.edges[v.source, k]) for k in _ends(n))
                line = line if n.box else f"{line}H{_num(self.right[n.layer])}"
                curves[v.source, solid].append(line)
        for (key, solid), lines in curves.items():
            ends = [b for b, edge in drawn.succ[key].items() if _is_solid(edge) == solid]
            names = ", ".join(boxes[end].label[:60] for end in ends)
            dashed = "" if solid else " chosen"
            style = {"class": f"edge {boxes[key].visibility}{dashed}", "d": "".join(lines)}
            path = SubElement(self.svg, "path", style)
            SubElement(path, "title").text = _one_line(f"{boxes[key].label[:60]} → {names}")

    def draw_heads(self, drawn: Picture) -> None:
        """Draw each head once, in the most careful visibility of what flows into it."""
        boxes, flows = boxes_of(drawn), defaultdict(list)
        for (a, b), edge in drawn.edges.items():
            if edge["arrows"] & FORWARD:
                flows[b, True].append(boxes[a])
            if edge["arrows"] & BACKWARD:
                flows[a, False].append(boxes[b])
        places = {v.source: v for v in self.root.members if v.box}
        for (key, forward), sources in flows.items():
            x = (self.left if forward else self.right)[places[key].layer]
            shape = f"M{_num(x)} {_num(places[key].y)}l{-8 if forward else 8} -4v8z"
            style = {"class": f"head {_most_careful(sources)}", "d": shape}
            SubElement(self.svg, "path", style)


def _is_solid(edge: Mapping[str, int]) -> bool:
    return bool(edge["arrows"] & SOLID)


def _ends(vertex: Vertex) -> set[str]:
    """Return where the edges arrive that pass here."""
    return {vertex.source} if vertex.box else set().union(*map(_ends, vertex.after))


def _sides(root: Block) -> tuple[dict[int, float], dict[int, float]]:
    """Return the left and right side of every column; steep edges get more room to turn."""
    left, right, x = {}, {}, EDGE + SIDE * root.depth()
    for layer in root.columns():
        column = [vertex for vertex in root.members if vertex.layer == layer]
        climb = max([abs(v.y - n.y) for v in column for n in v.after], default=0.0)
        left[layer] = x
        right[layer] = x + max([_box_width(v.box) for v in column if v.box], default=20.0)
        x = right[layer] + 46.0 + min(70.0, 0.14 * climb) + 2 * SIDE * root.depth()
    return left, right


def _num(value: float) -> str:
    """Write a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def _rect(
    parent: Element,
    left: float,
    top: float,
    across: float,
    height: float,
    style: Mapping[str, str],
) -> None:
    places = zip(("x", "y", "width", "height"), (left, top, across, height), strict=True)
    SubElement(parent, "rect", {**{name: _num(at) for name, at in places}, **style})


def _text(parent: Element, x: float, y: float, text: str, style: Mapping[str, str]) -> None:
    SubElement(parent, "text", {**style, "x": _num(x), "y": _num(y)}).text = text


def _tip(box: Box) -> str:
    lines = [f"{box.kind}: {box.label}" if box.kind else box.label, box.detail]
    lines.append(f"output: {', '.join(box.outputs)}" if box.outputs else "")
    lines.append(f"share of the privacy budget: {box.share:.1%}" if box.share is not None else "")
    return "\n".join(line for line in lines if line)


def _draw_bar(parent: Element, share: float, left: float, right: float, bottom: float) -> None:
    full, tall = right - left - 42, _bar_height(share)
    top = bottom - tall
    percent = "<0.1%" if 0 < share < 0.001 else f"{100 * share:.3g}%"
    _rect(parent, left, top, full, tall, {"class": "rail", "rx": "2.5"})
    _rect(parent, left, top, full * share, tall, {"class": "bar", "rx": "2.5"})
    style = {"class": "detail", "text-anchor": "end"}
    _text(parent, right, top + tall / 2 + 4, percent, style)


def _curve(x: float, y: float, end: float, at: float) -> str:
    """Write a curve that leaves and arrives level."""
    middle = _num((x + end) / 2)
    return f"M{_num(x)} {_num(y)}C{middle} {_num(y)} {middle} {_num(at)} {_num(end)} {_num(at)}"


def _draw_legend(
    root: Element, across: float, top: float, notes: Sequence[str], shares: bool
) -> float:
    """Draw the key to the styles, wrapped to the width; return the new bottom."""
    items = [*VISIBILITIES, *(["share of the privacy budget"] if shares else []), *notes]
    x, y = 20.0, top + 8.0
    for index, text in enumerate(items):
        start = 0 if text in notes else 32
        room = start + width(text, DETAIL)
        if x > 20.0 and x + room > across - 16:
            x, y = 20.0, y + 22.0
        mark = SubElement(root, "g", {"transform": f"translate({_num(x)},{_num(y)})"})
        if index < len(VISIBILITIES):
            icon = SubElement(mark, "g", {"class": f"box {text}"})
            rounded = "7" if text == "released" else "3"
            SubElement(icon, "rect", {"width": "24", "height": "14", "rx": rounded})
        elif start:
            icon = SubElement(mark, "g", {"class": "box"})
            _rect(icon, 0, 4, 24, 5, {"class": "rail", "rx": "2.5"})
            _rect(icon, 0, 4, 12, 5, {"class": "bar", "rx": "2.5"})
        _text(mark, start, 11, text, {"class": "note"})
        x += room + 20.0
    return y + 32.0


# -----------------------------------------------------------------------------
# Mermaid text, for Markdown pages that render it; folded to stay within Mermaid's own limits.


_CLASSES = """\
  classDef private fill:#fff1e6,stroke:#c2410c,color:#7c2d12,stroke-width:2px
  classDef released fill:#e8f4fc,stroke:#0369a1,color:#0c4a6e
  classDef public fill:#f3f4f6,stroke:#6b7280,color:#374151,stroke-dasharray:4 3"""
_SHAPES = {"private": '["{}"]', "released": '(["{}"])', "public": '("{}")'}


def mermaid(graph: nx.DiGraph[str]) -> str:
    """Write a graph as a Mermaid flowchart.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of `adaptive_dp.reports.drawing`.

    Returns
    -------
    str
        ``flowchart LR`` text, folded by the rule of `svg`.

    Examples
    --------
    >>> graph = nx.DiGraph()
    >>> graph.add_node("people", kind="dataset", label="people", visibility="private")
    >>> print(mermaid(graph).splitlines()[1])
      n0["people"]:::private
    """
    drawn = folded(graph, (), boxes=240, edges=480)
    boxes = boxes_of(drawn)
    ids = {key: f"n{index}" for index, key in enumerate(drawn)}
    lines = ["flowchart LR", *_group((), boxes, ids)]
    for (a, b), edge in drawn.edges.items():
        lines.append(f"  {ids[a]} {'-->' if edge['arrows'] & SOLID else '-.->'} {ids[b]}")
    lines.append(_CLASSES)
    hidden = folded_nodes(drawn)
    lines += [f"  %% {hidden} nodes are folded"] if hidden else []
    return "\n".join(lines) + "\n"


def _group(path: Path, boxes: Mapping[str, Box], ids: Mapping[str, str]) -> list[str]:
    """Write a group's nodes and, indented, its groups."""
    indent, depth = "  " * (len(path) + 1), len(path)
    lines: list[str] = []
    inner: dict[Path, dict[str, Box]] = {}
    for key, box in boxes.items():
        if box.group == path:
            text = _SHAPES[box.visibility].format(_mermaid_text(box))
            lines.append(f"{indent}{ids[key]}{text}:::{box.visibility}")
        else:
            inner.setdefault(box.group[: depth + 1], {})[key] = box
    for group, members in inner.items():
        number = "_".join([ids[next(iter(members))][1:]] * (depth + 1))
        lines.append(f'{indent}subgraph g{number}["{_quote(fitted(group[-1], 13.0, 400.0))}"]')
        lines += [*_group(group, members, ids), f"{indent}end"]
    return lines


def _mermaid_text(box: Box) -> str:
    lines = [_quote(fitted(line, size, 400.0)) for line, size in text_lines(box)]
    share = [] if box.share is None else [f"share {_quote(f'{box.share:.1%}')}"]
    return "<br/>".join(lines + share)


def _quote(text: str) -> str:
    """Escape a string for a quoted Mermaid label: whatever has a meaning there becomes a code."""
    plain = " ".join(text.split())
    return re.sub(r"[^\w\s.,:=+\-/→…·±≤≥]", lambda match: f"#{ord(match.group())};", plain)
