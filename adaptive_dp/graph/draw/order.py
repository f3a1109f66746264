"""Order: sweeps that sort each layer by the mean of its neighbours, to cut crossings.

Sweeps depend on where they start; several first orders are tried, and the best result is kept.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import defaultdict
from statistics import fmean
from zlib import crc32

from adaptive_dp.graph.draw.layers import Block, Vertex
from adaptive_dp.graph.draw.place import arrange, restore, spread, unrest

STARTS, SWEEPS = 8, 10


def order(root: Block) -> None:
    """Bring the items of every block in an order with few crossings."""
    best, least = [v.y for v in root.members], (math.inf, math.inf)
    for start in range(STARTS if len(root.members) < 500 else 1):
        for rank, vertex in enumerate(_depth_first(root, start)):
            vertex.y = rank
        for turn in range(SWEEPS):
            _sweep(root, backward=turn % 2 == 1)
            arrange(root, sort=True)
            cost = _crossings(root), unrest(root)
            if cost < least:
                best, least = [v.y for v in root.members], cost
    restore(root, best)
    arrange(root, sort=True)


def _depth_first(root: Block, start: int) -> list[Vertex]:
    """Return the vertices depth first; each start puts unlike branches in another order."""
    seen: dict[Vertex, None] = {}
    stack = [vertex for vertex in reversed(root.members) if not vertex.before]
    while stack:
        vertex = stack.pop()
        if vertex not in seen:
            seen[vertex] = None
            stack += sorted(vertex.after, key=lambda v: _turn(v, start))[::-1]
    return list(seen)


def _turn(vertex: Vertex, start: int) -> int:
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
        spread(column)


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
