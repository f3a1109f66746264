"""Order: barycentre sweeps that cut crossings; the best order is kept."""

from __future__ import annotations

import math
from zlib import crc32
from bisect import bisect_right, insort
from adaptive_dp.graph.draw.layers import Block, Vertex
from adaptive_dp.graph.draw.place import arrange, length, mean, spread


STARTS, SWEEPS = 8, 12

def order(root: Block) -> None:
    best, least = [], (math.inf, math.inf)
    for start in range(STARTS):
        for rank, vertex in enumerate(_preorder(root, start)):
            vertex.y = rank
        for sweep in range(SWEEPS):
            _sweep(root, backward=bool(sweep % 2))
            arrange(root, sort=True)
            cost = crossings(root), length(root)
            if cost < least:
                best, least = [v.y for v in root.members], cost
    for vertex, y in zip(root.members, best, strict=True):
        vertex.y = y
    arrange(root, sort=True)


def _sweep(root, backward):
    columns = [[] for _ in root.columns()]
    for vertex in sorted(root.members, key=lambda v: v.y):
        columns[vertex.layer].append(vertex)
    for column in reversed(columns) if backward else columns:
        for vertex in column:
            near = vertex.after if backward else vertex.before
            vertex.y = mean([n.y for n in near] or [vertex.y])
        column.sort(key=lambda v: v.y)
        spread(column)


def _preorder(root: Block, start: int) -> list[Vertex]:
    """Return the vertices depth first; each start puts unlike branches in another order."""

    def key(vertex: Vertex) -> int:
        return -crc32(f"{start} {vertex.like}".encode()) if start else 0

    seen: dict[Vertex, None] = {}
    stack = [v for v in reversed(root.members) if not v.before]
    while stack:
        vertex = stack.pop()
        if vertex not in seen:
            seen[vertex] = None
            stack.extend(reversed(sorted(vertex.after, key=key)))
    return list(seen)


def crossings(root: Block) -> int:
    """Count the crossings between neighbouring layers."""
    columns: dict[int, list[Vertex]] = {}
    for vertex in sorted(root.members, key=lambda vertex: vertex.y):
        columns.setdefault(vertex.layer, []).append(vertex)
    total = 0
    for column in columns.values():
        ends: list[float] = []
        for vertex in column:
            total += sum(len(ends) - bisect_right(ends, n.y) for n in vertex.after)
            for n in vertex.after:
                insort(ends, n.y)
    return total
