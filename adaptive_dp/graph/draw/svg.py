"""The SVG: frames behind, then edges, then boxes, then the legend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import networkx as nx

from adaptive_dp.graph.draw.box import COLOURS, Box, careful, read
from adaptive_dp.graph.draw.fold import (
    BACKWARD,
    FORWARD,
    SOLID,
    Picture,
    boxes_of,
    left_out,
    picture,
)
from adaptive_dp.graph.draw.layers import Block, Vertex, layered
from adaptive_dp.graph.draw.marks import (
    box_mark,
    curve,
    edge_mark,
    frame_mark,
    head_mark,
    legend,
    num,
)
from adaptive_dp.graph.draw.order import order
from adaptive_dp.graph.draw.place import settle
from adaptive_dp.graph.draw.style import STYLE
from adaptive_dp.graph.draw.text import box_width

EDGE, SIDE = 20.0, 12.0  # room around the drawing, and between a frame and its columns


def svg(
    graph: nx.DiGraph[str],
    *,
    closed: Collection[str] = (),
    links: Mapping[str, str] | None = None,
) -> str:
    """Draw a graph from left to right as one self-contained SVG.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of `adaptive_dp.graph.draw`.
    closed : collection of str
        Names of groups to draw as one box each.
    links : mapping of str to str, optional
        For a page that reacts: where the box of each node leads, and under ``""`` that of a fold;
        boxes and frames of groups are marked with ``data-open`` and ``data-close``.

    Returns
    -------
    str
        An ``<svg>`` element. It follows the reader's light or dark setting, and its style is
        scoped by a class, so that several drawings may share a page.

    Examples
    --------
    >>> graph = nx.DiGraph()
    >>> graph.add_node("people", kind="dataset", label="people", color="private")
    >>> graph.add_node("count", kind="release", label="count", color="released", share=1.0)
    >>> graph.add_edge("people", "count")
    >>> svg(graph).startswith("<svg")
    True
    """
    drawn = picture(graph, closed, boxes=400, edges=2400)
    marks, across, bottom = _drawing(drawn, links) if drawn else ([], 0.0, 24.0)
    counts = Counter(read(key, node).color for key, node in graph.nodes(data=True))
    notes = [] if drawn else ["The graph is empty."]
    if left_out(drawn):
        notes.append(f"{left_out(drawn):,} of {len(graph):,} nodes are folded into “… more” boxes.")
    shares = any(box.share is not None for box in boxes_of(drawn).values())
    across = max(across, 330.0)
    key, height = legend(across, bottom, notes, shares)
    says = ", ".join(f"{counts[color]:,} {color}" for color in COLOURS)
    role = "img" if links is None else "group"
    size = f'width="{num(across)}" height="{num(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="adp-graph" role="{role}" '
        f'aria-label="Privacy graph of {len(graph):,} nodes: {says}" '
        f'viewBox="0 0 {num(across)} {num(height)}" {size}><style>{STYLE}</style>'
        f'<rect class="bg" {size} rx="10"/>' + "\n".join([*marks, key]) + "</svg>"
    )


@dataclass
class _Canvas:
    """Vertices that have their places, with the left and right side of every column."""

    root: Block
    left: dict[int, float]
    right: dict[int, float]
    links: Mapping[str, str] | None = None

    def frame(self, block: Block) -> str:
        (top, bottom), side, columns = block.span(), SIDE * (1 + block.depth()), block.columns()
        left, right = self.left[columns[0]] - side, self.right[columns[-1]] + side
        return frame_mark(block.path, left, top, right, bottom, self.links is not None)

    def box(self, vertex: Vertex, box: Box) -> str:
        link = None
        if self.links is not None:
            other = self.links.get("")  # where folds lead
            link = "" if box.kind == "group" else self.links.get(vertex.source, other)
        left, right = self.left[vertex.layer], self.right[vertex.layer]
        return box_mark(box, left, right, vertex.y, link)

    def edges(self, drawn: Picture) -> list[str]:
        boxes, curves = boxes_of(drawn), defaultdict(list)
        for v in self.root.members:
            for n in v.after:
                end = self.left[n.layer] - (5 if n.box else 0)  # below the arrow's head
                line = curve(self.right[v.layer], v.y, end, n.y)
                solid = any(_solid(drawn.edges[v.source, k]) for k in _ends(n))
                line = line if n.box else f"{line}H{num(self.right[n.layer])}"
                curves[v.source, solid].append(line)
        return [
            edge_mark(
                boxes[key],
                [boxes[b].label for b, edge in drawn.succ[key].items() if _solid(edge) == solid],
                lines,
                dashed=not solid,
            )
            for (key, solid), lines in curves.items()
        ]

    def heads(self, drawn: Picture) -> list[str]:
        """Write each head once, in the most careful color of what flows into it."""
        boxes, flows = boxes_of(drawn), defaultdict(list)
        for (a, b), edge in drawn.edges.items():
            if edge["way"] & FORWARD:
                flows[b, True].append(boxes[a])
            if edge["way"] & BACKWARD:
                flows[a, False].append(boxes[b])
        places = {v.source: v for v in self.root.members if v.box}
        return [
            head_mark(
                careful(sources),
                (self.left if forward else self.right)[places[key].layer],
                places[key].y,
                forward,
            )
            for (key, forward), sources in flows.items()
        ]


def _solid(edge: Mapping[str, int]) -> bool:
    return bool(edge["way"] & SOLID)


def _ends(vertex: Vertex) -> set[str]:
    """Return where the edges arrive that pass here."""
    return {vertex.source} if vertex.box else set().union(*map(_ends, vertex.after))


def _drawing(drawn: Picture, links: Mapping[str, str] | None) -> tuple[list[str], float, float]:
    """Return the marks of a picture, its width and its bottom."""
    root = layered(drawn)
    order(root)
    settle(root)
    root.move(EDGE - root.span()[0])
    canvas = _Canvas(root, *_sides(root), links)
    marks = [*map(canvas.frame, root.walk()), *canvas.edges(drawn), *canvas.heads(drawn)]
    marks += [canvas.box(vertex, vertex.box) for vertex in root.members if vertex.box]
    across = max(canvas.right.values()) + EDGE + SIDE * root.depth()
    return marks, across, root.span()[1] + 14.0


def _sides(root: Block) -> tuple[dict[int, float], dict[int, float]]:
    """Return the left and right side of every column; steep edges get more room to turn."""
    left, right, x = {}, {}, EDGE + SIDE * root.depth()
    for layer in root.columns():
        column = [vertex for vertex in root.members if vertex.layer == layer]
        climb = max([abs(v.y - n.y) for v in column for n in v.after], default=0.0)
        left[layer] = x
        right[layer] = x + max([box_width(v.box) for v in column if v.box], default=20.0)
        x = right[layer] + 46.0 + min(70.0, 0.14 * climb) + 2 * SIDE * root.depth()
    return left, right
