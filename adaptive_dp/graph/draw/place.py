"""Places: vertices near their neighbours, without overlap, every block kept solid.

Each turn moves every vertex amid its neighbours and then pushes apart what overlaps, first the
inside of each block, then blocks as solid items. The calmest turn is kept: the one whose edges
climb least and bend least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from adaptive_dp.graph.draw.layers import BELOW, TOP, Block, Vertex

Item = Vertex | Block


def arrange(block: Block, *, sort: bool) -> None:
    """Push apart what overlaps; with `sort`, in the order in which things now lie."""
    for inner in block.blocks():
        arrange(inner, sort=sort)
    if sort:
        block.items.sort(key=centre)
    spread(block.items)


def spread(items: Sequence[Item]) -> None:
    """Push items apart, in their order, each staying near its place."""
    centres = [centre(item) for item in items]
    down = _push(items, centres, 1)
    up = _push(items[::-1], centres[::-1], -1)[::-1]
    for item, now, low, high in zip(items, centres, down, up, strict=True):
        item.move((low + high) / 2 - now)  # both keep every distance, and so does their mean


def _push(items: Sequence[Item], centres: Sequence[float], sign: int) -> list[float]:
    """Place items one after the other, downwards (`sign` 1) or upwards (-1)."""
    front: dict[int, float] = {}
    places = []
    for item, now in zip(items, centres, strict=True):
        top, bottom = item.span()
        half = (bottom - top) / 2 + item.margin()
        columns = item.columns()
        place = max([sign * now, *(front[c] + half for c in columns if c in front)])
        front.update(dict.fromkeys(columns, place + half))
        places.append(sign * place)
    return places


def centre(item: Item) -> float:
    """Return the middle of a vertex or of a block's frame."""
    top, bottom = item.span()
    return (top + bottom) / 2


def wish(block: Block, turn: int) -> None:
    """Move everything towards the layer before, the one after, or both.

    What lies outside the block is seen at the block's edge, so that no block is torn.
    """
    top, bottom = block.span() if block.path else (-math.inf, math.inf)
    moves = []
    for item in block.items:
        joins = item.joins(turn)
        pulls = [min(max(n.y, top), bottom) - v.y for v, n in joins]
        moves.append(mean(pulls) if pulls else 0.0)
    for inner in block.blocks():
        wish(inner, turn)
    for item, by in zip(block.items, moves, strict=True):
        item.move(by)


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)


def settle(root: Block) -> None:
    """Move every vertex towards its neighbours, the order being fixed; keep the calmest."""
    best, least = [v.y for v in root.members], math.inf
    for turn in range(TURNS):
        wish(root, turn)
        arrange(root, sort=False)
        now = [v.y for v in root.members]
        for _ in range(ROUNDS):
            for block in [root, *root.walk()]:
                straighten(block)
        unrest = length(root) 
        if unrest < least:
            best, least = [v.y for v in root.members], unrest
        for vertex, y in zip(root.members, now, strict=True):
            vertex.y = y
    for vertex, y in zip(root.members, best, strict=True):
        vertex.y = y

TURNS, ROUNDS = 40, 4

def length(root: Block) -> float:
    """Return how far the edges climb in all; a bend counts like a climb of some length."""
    climbs = [abs(v.y - n.y) for v in root.members for n in v.after]
    return sum(climbs) + 15.0 * sum(climb > 1.0 for climb in climbs)


def straighten(block: Block) -> None:
    """Move each of a block's own vertices level with its neighbours, as far as there is room."""
    top, bottom = block.span() if block.path else (-math.inf, math.inf)
    lines: dict[int, list[Item]] = {}
    for item in block.items:
        for column in item.columns():
            lines.setdefault(column, []).append(item)
    for line in lines.values():
        for index, item in enumerate(line):
            if isinstance(item, Block):
                continue
            half, margin = item.height / 2, item.margin()
            low, high = top + TOP, bottom - BELOW
            if index:
                low = line[index - 1].span()[1] + line[index - 1].margin() + margin
            if index + 1 < len(line):
                high = line[index + 1].span()[0] - line[index + 1].margin() - margin
            if low + half <= high - half:
                item.y = min(max(_level(item, low+half, high-half), low + half), high - half)


def _level(vertex: Vertex, low: float, high: float) -> float:
    """Return a place nearest to all neighbours; of two, the level of one that can be reached."""
    near = [n.y for n in vertex.after + vertex.before]
    if len(near) == 2 and vertex.before:
        return next((y for y in near if low <= y <= high), vertex.y)
    near = sorted(near) or [vertex.y]
    return min(max(vertex.y, near[(len(near) - 1) // 2]), near[len(near) // 2])
