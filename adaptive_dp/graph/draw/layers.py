"""Layers: a column for every box, and bends where long edges pass through columns.

A box's layer is the length of the longest path that leads to it. Vertices lie in blocks, one per
group, nested; the outermost block holds all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import networkx as nx

from adaptive_dp.graph.draw.box import Path, common
from adaptive_dp.graph.draw.fold import Picture, boxes_of
from adaptive_dp.graph.draw.text import box_height

TOP, BELOW = 26.0, 12.0  # room between a block's frame and its vertices


@dataclass(eq=False)
class Vertex:
    """A box, or a bend of the edges that leave the box `source`; `y` is its centre."""

    source: str
    like: str
    is_box: bool
    layer: int
    height: float
    group: Path
    y: float = 0.0
    before: list[Vertex] = field(default_factory=list)
    after: list[Vertex] = field(default_factory=list)

    def near(self, turn: int = 2) -> list[Vertex]:
        """Return the neighbours before, after or on both sides."""
        before, after = self.before, self.after
        return (before or after, after or before, before + after)[turn % 3]

    def joins(self, turn: int) -> list[tuple[Vertex, Vertex]]:
        """Return the edges that leave the item, each as a vertex inside and one outside."""
        return [(self, vertex) for vertex in self.near(turn)]

    def columns(self) -> range:
        return range(self.layer, self.layer + 1)

    def span(self) -> tuple[float, float]:
        return self.y - self.height / 2, self.y + self.height / 2

    def margin(self) -> float:
        return 9.0 if self.is_box else 3.5

    def reach(self) -> tuple[float, float]:
        """Return the span with its margins."""
        half = self.height / 2 + self.margin()
        return self.y - half, self.y + half

    def move(self, by: float) -> None:
        self.y += by


@dataclass(eq=False)
class Block:
    """A group: its own vertices and blocks, from top to bottom, and all vertices in it."""

    path: Path
    items: list[Vertex | Block] = field(default_factory=list)
    members: list[Vertex] = field(default_factory=list)

    def blocks(self) -> list[Block]:
        return [item for item in self.items if isinstance(item, Block)]

    def places(self) -> list[float]:
        return [vertex.y for vertex in self.members]

    def restore(self, places: list[float]) -> None:
        for vertex, y in zip(self.members, places, strict=True):
            vertex.y = y

    def walk(self) -> Iterator[Block]:
        """Yield all blocks inside, the outer before the inner."""
        for block in self.blocks():
            yield block
            yield from block.walk()

    def depth(self) -> int:
        return max((1 + block.depth() for block in self.blocks()), default=0)

    def joins(self, turn: int) -> list[tuple[Vertex, Vertex]]:
        """Return the edges that leave the item, each as a vertex inside and one outside."""
        depth = len(self.path)
        pairs = ((v, n) for v in self.members for n in v.near(turn))
        return [(v, n) for v, n in pairs if n.group[:depth] != self.path]

    def columns(self) -> range:
        layers = [vertex.layer for vertex in self.members]
        return range(min(layers), max(layers) + 1)

    def inside(self) -> tuple[float, float]:
        """Return the top and bottom of what is in the block."""
        tops, bottoms = zip(*(item.span() for item in self.items), strict=True)
        return min(tops), max(bottoms)

    def span(self) -> tuple[float, float]:
        """Return the top and bottom of the frame; the outermost block has none."""
        (top, bottom), framed = self.inside(), bool(self.path)
        return top - TOP * framed, bottom + BELOW * framed

    def reach(self) -> tuple[float, float]:
        top, bottom = self.span()
        return top - 9.0, bottom + 9.0

    def move(self, by: float) -> None:
        for vertex in self.members:
            vertex.y += by


def blocks(picture: Picture) -> tuple[dict[str, Vertex], Block]:
    """Return the vertices of the boxes by key, and the block of all vertices."""
    layer, boxes = _layers(picture), boxes_of(picture)
    vertices = {
        key: Vertex(key, f"{box.kind} {box.detail}", True, layer[key], box_height(box), box.group)
        for key, box in boxes.items()
    }
    root = Block(())
    for vertex in [*vertices.values(), *(b for key in picture for b in _route(picture, vertices, key))]:
        _insert(root, vertex)
    return vertices, root


def _layers(picture: Picture) -> dict[str, int]:
    """Return each box's layer: its longest path from a source, sources next to their use."""
    layer: dict[str, int] = {}
    for index, keys in enumerate(nx.topological_generations(picture)):
        layer.update(dict.fromkeys(keys, index))
    for key in picture:
        if not picture.pred[key] and picture.succ[key]:
            layer[key] = min(layer[s] for s in picture.succ[key]) - 1
    return layer


def _route(picture: Picture, vertices: dict[str, Vertex], key: str) -> Iterator[Vertex]:
    """Join a box to what follows; its long edges share one way, whose bends are yielded."""
    here, targets = vertices[key], [vertices[target] for target in picture.succ[key]]
    group = here.group
    for step in range(here.layer + 1, max((t.layer for t in targets), default=0) + 1):
        beyond = [t.group for t in targets if t.layer > step]
        ends = [t for t in targets if t.layer == step]
        if beyond:
            bend = Vertex(key, "", False, step, 2.0, common([group, *beyond]))
            ends.append(bend)
            yield bend
        for end in ends:
            here.after.append(end)
            end.before.append(here)
        here = ends[-1]


def _insert(root: Block, vertex: Vertex) -> None:
    block = root
    block.members.append(vertex)
    for depth in range(len(vertex.group)):
        path = vertex.group[: depth + 1]
        inner = next((b for b in block.blocks() if b.path == path), None)
        if inner is None:
            inner = Block(path)
            block.items.append(inner)
        block = inner
        block.members.append(vertex)
    block.items.append(vertex)
