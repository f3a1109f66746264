"""The SVG: frames behind, then edges, then boxes, then the legend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import networkx as nx

from adaptive_dp.graph.draw.box import COLOURS, careful, read
from adaptive_dp.graph.draw.fold import BACKWARD, FORWARD, Picture, boxes_of, left_out, picture
from adaptive_dp.graph.draw.layers import Block, Vertex, blocks
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


def svg(graph: nx.DiGraph[str], *, closed: Collection[str] = ()) -> str:
    """Draw a graph from left to right as one self-contained SVG.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of `adaptive_dp.graph.draw`.
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
    drawn = picture(graph, closed, boxes=400, edges=2400)
    marks, across, bottom = _Canvas.of(drawn).marks() if drawn else ([], 0.0, 24.0)
    counts = Counter(read(key, node).colour for key, node in graph.nodes(data=True))
    notes = [] if drawn else ["The graph is empty."]
    if left_out(drawn):
        notes.append(f"{left_out(drawn):,} of {len(graph):,} nodes are folded into “… more” boxes.")
    shares = any(box.share is not None for box in boxes_of(drawn).values())
    across = max(across, 330.0)
    key, height = legend(across, bottom, notes, shares)
    says = ", ".join(f"{counts[colour]:,} {colour}" for colour in COLOURS)
    size = f'width="{num(across)}" height="{num(height)}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="adp-graph" role="img" '
        f'aria-label="Privacy graph of {len(graph):,} nodes: {says}" '
        f'viewBox="0 0 {num(across)} {num(height)}" {size}><style>{STYLE}</style>'
        f'<rect class="bg" {size} rx="10"/>' + "\n".join([*marks, key]) + "</svg>"
    )


@dataclass
class _Canvas:
    """A picture whose vertices have their places, with the two sides of every column."""

    drawn: Picture
    vertices: dict[str, Vertex]
    root: Block
    left: dict[int, float]
    right: dict[int, float]

    @classmethod
    def of(cls, drawn: Picture) -> _Canvas:
        vertices, root = blocks(drawn)
        order(root)
        settle(root)
        top, _ = root.span()
        root.move(EDGE - top)
        return cls(drawn, vertices, root, *_sides(drawn, root))

    def marks(self) -> tuple[list[str], float, float]:
        """Return the marks, the width and the bottom."""
        boxes = boxes_of(self.drawn)
        marks = [*map(self._frame, self.root.walk()), *self._edges(), *self._heads()]
        for key, vertex in self.vertices.items():
            left, right = self.left[vertex.layer], self.right[vertex.layer]
            marks.append(box_mark(boxes[key], left, right, vertex.y))
        across = max(self.right.values()) + EDGE + SIDE * self.root.depth()
        return marks, across, self.root.span()[1] + 14.0

    def _frame(self, block: Block) -> str:
        (top, bottom), side, columns = block.span(), SIDE * (1 + block.depth()), block.columns()
        left, right = self.left[columns[0]] - side, self.right[columns[-1]] + side
        return frame_mark(block.path, left, top, right, bottom)

    def _edges(self) -> list[str]:
        boxes = boxes_of(self.drawn)
        curves: dict[str, list[str]] = {}
        for v in self.root.members:
            for n in v.after:
                end = self.left[n.layer] - (5 if n.is_box else 0)  # below the arrow's head
                line = curve(self.right[v.layer], v.y, end, n.y)
                line += "" if n.is_box else f"H{num(self.right[n.layer])}"
                curves.setdefault(v.source, []).append(line)
        names = {key: [boxes[t].label for t in self.drawn.succ[key]] for key in curves}
        return [edge_mark(boxes[key], names[key], curves[key]) for key in curves]

    def _heads(self) -> list[str]:
        """Write each head once, in the most careful colour of what flows into it."""
        boxes = boxes_of(self.drawn)
        found: dict[tuple[str, bool], list[str]] = {}
        for (a, b), edge in self.drawn.edges.items():
            if edge["way"] & FORWARD:
                found.setdefault((b, True), []).append(a)
            if edge["way"] & BACKWARD:
                found.setdefault((a, False), []).append(b)
        marks = []
        for (key, forward), sources in found.items():
            vertex, colour = self.vertices[key], careful([boxes[s] for s in sources])
            x = (self.left if forward else self.right)[vertex.layer]
            marks.append(head_mark(colour, x, vertex.y, forward))
        return marks


def _sides(drawn: Picture, root: Block) -> tuple[dict[int, float], dict[int, float]]:
    """Return the left and right side of every column; steep edges get more room to turn."""
    boxes, between = boxes_of(drawn), 2 * SIDE * root.depth()
    left, right, x = {}, {}, EDGE + SIDE * root.depth()
    for layer in root.columns():
        column = [v for v in root.members if v.layer == layer]
        left[layer] = x
        right[layer] = x + max([box_width(boxes[v.source]) for v in column if v.is_box] or [20.0])
        climb = max([abs(v.y - n.y) for v in column for n in v.after] or [0.0])
        x = right[layer] + 46.0 + min(70.0, 0.14 * climb) + between
    return left, right
