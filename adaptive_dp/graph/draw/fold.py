"""Folding: from a graph of nodes to a graph of boxes that is small enough to be read.

Three folds, each a quotient of the graph: groups that the caller closed; equal siblings beyond
the first few, with all that hangs on them alone; and, while there is still too much, the middle
layers and the end of each layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

import networkx as nx

from adaptive_dp.graph.draw.box import Box, Path, careful, read, together
from adaptive_dp.graph.visible import visible

SIBLINGS = 8  # equal siblings that are drawn one by one
LAYERS = 40  # layers that are drawn before the middle of a long chain is folded
FORWARD, BACKWARD = 1, 2  # which ends of an edge carry an arrow; closing a group can give both
SOLID = 4  # set where a value flows; a step that merely chose the next one is drawn dashed

Picture: TypeAlias = "nx.DiGraph[str]"  # nodes carry a `box`, edges a `way`
Parts = Mapping[str, Sequence[str]]


def picture(graph: nx.DiGraph[str], closed: Collection[str], *, boxes: int, edges: int) -> Picture:
    """Return the graph of boxes, with at most about `boxes` boxes and `edges` edges."""
    folded: Picture = nx.DiGraph()
    for key in nx.topological_sort(graph):
        folded.add_node(key, box=read(key, graph.nodes[key]))
    for (a, b), edge in graph.edges.items():
        chosen = edge.get("kind") == "adaptive"
        folded.add_edge(a, b, way=FORWARD if chosen else FORWARD | SOLID)
    folded = _siblings(_close(folded, set(map(visible, closed))))
    limit = boxes
    while len(folded) > boxes or folded.number_of_edges() > edges:
        folded = _squeeze(folded, limit)
        limit //= 2
    return folded


def boxes_of(picture: Picture) -> dict[str, Box]:
    """Return the boxes by key, in the order of the picture."""
    return {key: node["box"] for key, node in picture.nodes.items()}


def left_out(picture: Picture) -> int:
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
    ways: dict[tuple[str, str], int] = defaultdict(int)
    for (a, b), edge in picture.edges.items():
        source, target = owner.get(a, a), owner.get(b, b)
        if source != target:
            ways[source, target] |= edge["way"]
    place = _middles(picture, owner)
    acyclic = nx.is_directed_acyclic_graph(nx.DiGraph(list(ways)))
    for (a, b), way in ways.items():
        if not acyclic and place[a] > place[b]:
            a, b, way = b, a, FORWARD | BACKWARD ^ way
        merged.add_edge(
            a, b, way=way | (merged.edges[a, b]["way"] if (a, b) in merged.edges else 0)
        )
    return merged


def _middles(picture: Picture, owner: Mapping[str, str]) -> dict[str, tuple[float, str]]:
    """Return where the members of each part lie on average, in the order of the picture."""
    places: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(picture):
        places[owner.get(key, key)].append(index)
    return {part: (fmean(found), part) for part, found in places.items()}


def _fold(picture: Picture, parts: Parts) -> Picture:
    boxes = boxes_of(picture)
    folds = {part: together([boxes[key] for key in keys]) for part, keys in parts.items()}
    return _quotient(picture, parts, folds)


def _close(picture: Picture, closed: Collection[str]) -> Picture:
    """Draw every group whose name is in `closed` as one box."""
    groups: dict[Path, list[str]] = defaultdict(list)
    for key, box in boxes_of(picture).items():
        depth = next((i for i, name in enumerate(box.group, 1) if name in closed), None)
        if depth:
            groups[box.group[:depth]].append(key)
    parts = {f"group {'/'.join(path)} {keys[0]}": keys for path, keys in groups.items()}
    boxes = [_closed(picture, path, keys) for path, keys in groups.items()]
    return _quotient(picture, parts, dict(zip(parts, boxes, strict=True)))


def _closed(picture: Picture, path: Path, keys: Sequence[str]) -> Box:
    """Return the box of a closed group, in the color of what leaves it."""
    found, inside = boxes_of(picture), set(keys)
    ends = [found[k] for k in keys if found[k].outputs or not inside.issuperset(picture.succ[k])]
    box = together([found[key] for key in keys])
    color, says = careful(ends) if ends else box.color, f"{len(keys)} nodes inside"
    plain = replace(box, kind="group", label=path[-1], detail=says, folded=False)
    return replace(plain, color=color, group=path[:-1])


def _siblings(picture: Picture) -> Picture:
    """Fold equal siblings beyond the first few, and with them all that hangs on them alone.

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
        sign = (box.kind, box.detail, box.color, box.group, box.folded)
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
            folded = keys[_shown(picture, keys, owner) :]
            if folded:
                parts[f"more {folded[0]}"] = folded
                owner.update(dict.fromkeys(folded, f"more {folded[0]}"))
    return _fold(picture, parts)


def _shown(picture: Picture, keys: Sequence[str], owner: Mapping[str, str]) -> int:
    """Return how many of these siblings to draw; none where their predecessors are folded."""
    first = set(picture.pred[keys[0]])
    torn = any(set(picture.pred[key]) != first for key in keys[1:])
    return 0 if torn and any(p in owner for p in first) else SIBLINGS


def _squeeze(picture: Picture, limit: int) -> Picture:
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
    return _fold(picture, {f"more {keys[0]}": keys for keys in parts})
