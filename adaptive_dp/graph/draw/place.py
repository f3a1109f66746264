"""Places: vertices near their neighbours, without overlap, every block kept solid.

Each turn moves everything amid its neighbours, pushes apart what then overlaps, first inside
each block, and levels what can be levelled. The calmest turn is kept.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

from adaptive_dp.graph.draw.layers import Block, Item, Vertex


def settle(root: Block) -> None:
    """Place every vertex, in the order in which things lie."""
    best, least = [v.y for v in root.members], math.inf
    for turn in range(24 if len(root.members) < 500 else 9):
        _draw_near(root, turn)
        arrange(root, sort=False)
        for _ in range(6):
            _level(root)
        if unrest(root) < least:
            best, least = [v.y for v in root.members], unrest(root)
    restore(root, best)


def restore(root: Block, places: Sequence[float]) -> None:
    """Put every vertex in its place."""
    for vertex, y in zip(root.members, places, strict=True):
        vertex.y = y


def unrest(root: Block) -> float:
    """Return how far the edges climb in all; that one climbs at all counts too."""
    climbs = [abs(v.y - n.y) for v in root.members for n in v.after]
    return sum(climbs) + 15.0 * sum(climb > 1.0 for climb in climbs)


def arrange(block: Block, *, sort: bool) -> None:
    """Push apart what overlaps; with `sort`, in the order in which things now lie."""
    for inner in block.blocks():
        arrange(inner, sort=sort)
    if sort:
        block.items.sort(key=_centre)
    spread(block.items)


def spread(items: Sequence[Item]) -> None:
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
        top, bottom = item.reach()
        half, columns = (bottom - top) / 2, item.columns()
        place = max([sign * now, *(front[c] + half for c in columns if c in front)])
        front.update(dict.fromkeys(columns, place + half))
        places.append(sign * place)
    return places


def _centre(item: Item) -> float:
    return fmean(item.span())


def _draw_near(block: Block, turn: int) -> None:
    """Move everything towards the layer before, the one after, or both.

    What lies outside the block is seen at the block's edge, so that no block is torn.
    """
    top, bottom = block.span() if block.path else (-math.inf, math.inf)
    moves = []
    for item in block.items:
        pulls = [min(max(n.y, top), bottom) - v.y for v, n in item.joins(turn)]
        moves.append(fmean(pulls) if pulls else 0.0)
    for inner in block.blocks():
        _draw_near(inner, turn)
    for item, by in zip(block.items, moves, strict=True):
        item.move(by)


def _level(block: Block) -> None:
    """Move each vertex level with its neighbours, as far as its column has room."""
    for inner in block.blocks():
        _level(inner)
    columns: dict[int, list[Item]] = defaultdict(list)
    for item in block.items:
        for column in item.columns():
            columns[column].append(item)
    reach = {item: item.reach() for item in block.items}
    top, bottom = block.inside()
    for items in columns.values():
        for index, item in enumerate(items):
            if isinstance(item, Vertex):
                margin, half = item.margin, item.height / 2
                low = reach[items[index - 1]][1] + margin if index else top
                high = reach[items[index + 1]][0] - margin if index + 1 < len(items) else bottom
                if low + half <= high - half:
                    item.y = _nearest(item, low + half, high - half)
                    reach[item] = item.reach()


def _nearest(vertex: Vertex, low: float, high: float) -> float:
    """Return the median of the neighbours; of two, the level of one that can be reached."""
    near = [n.y for n in vertex.after + vertex.before]
    if len(near) == 2 and vertex.before:
        return next((y for y in near if low <= y <= high), vertex.y)
    near = sorted(near) or [vertex.y]
    wish = min(max(vertex.y, near[(len(near) - 1) // 2]), near[len(near) // 2])
    return min(max(wish, low), high)
