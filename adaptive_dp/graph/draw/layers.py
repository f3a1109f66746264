"""Layers: a column for every box, and bends where long edges pass through columns.

A box's layer is the length of the longest path that leads to it. Vertices lie in blocks, one per
group, nested; the outermost block holds all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import networkx as nx

from adaptive_dp.graph.draw.box import Box, Path, common
from adaptive_dp.graph.draw.fold import Picture, boxes_of
from adaptive_dp.graph.draw.text import box_height

TOP, BELOW = 26.0, 12.0  # room between a block's frame and its vertices


class Item:
    """A vertex or a block: something with a place in some columns."""

    members: list[Vertex]  # all vertices in it
    margin = 9.0

    def span(self) -> tuple[float, float]:
        """Return the top and the bottom."""
        raise NotImplementedError

    def reach(self) -> tuple[float, float]:
        """Return the top and the bottom with margins."""
        top, bottom = self.span()
        return top - self.margin, bottom + self.margin

    def columns(self) -> range:
        """Return the layers that the item covers."""
        layers = [vertex.layer for vertex in self.members]
        return range(min(layers), max(layers) + 1)

    def joins(self, turn: int) -> list[tuple[Vertex, Vertex]]:
        """Return the edges that leave the item, each from the vertex inside."""
        inside = set(self.members)
        return [(v, n) for v in self.members for n in v.near(turn) if n not in inside]

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
        self.height = box_height(self.box) if self.box else 2.0
        self.margin = 9.0 if self.box else 3.5

    def near(self, turn: int) -> list[Vertex]:
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


def layered(picture: Picture) -> Block:
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
    """Join a box to what follows; its long edges share one way, whose bends are yielded."""
    here = start
    for step in range(start.layer + 1, max((t.layer for t in targets), default=0) + 1):
        ends = [target for target in targets if target.layer == step]
        beyond = [target.group for target in targets if target.layer > step]
        if beyond:
            bend = Vertex(start.source, None, step, common([start.group, *beyond]))
            ends.append(bend)
            yield bend
        for end in ends:
            here.after.append(end)
            end.before.append(here)
        here = ends[-1]
