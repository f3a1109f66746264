from __future__ import annotations

import random
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest

from adaptive_dp.reports.drawing import mermaid, svg

HOSTILE = "<script>alert('1')</script>\"] | & end\x00\x1f`#` → 漢字 " + "x" * 500
Rect = tuple[float, float, float, float]


def node(graph: nx.DiGraph[str], key: str, *before: str, **attributes: Any) -> None:
    plain = {"kind": "count", "label": key, "detail": "", "visibility": "private", "group": ()}
    graph.add_node(key, **{**plain, "outputs": (), **attributes})
    graph.add_edges_from((source, key) for source in before)


def analysis() -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, "people", kind="dataset", detail="unit zper")
    node(graph, "bound", "people", kind="bound", detail="5 rows per zper")
    node(graph, "n", "bound")
    node(graph, "count", "n", kind="release", visibility="released", share=0.5, outputs=("n",))
    node(graph, "gram", "bound", kind="gram", group=("AdaSSP",))
    node(
        graph, "eigen", "gram", kind="release", visibility="released", group=("AdaSSP",), share=0.5
    )
    node(graph, "inner", "gram", kind="release", visibility="released", group=("AdaSSP", "twice"))
    node(graph, "prior", kind="public", visibility="public")
    node(graph, "ridge", "eigen", "inner", "prior", kind="post", visibility="released")
    return graph


def partition(parts: int) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, "people", kind="dataset")
    for i in range(parts):
        node(graph, f"part {i:05d}", "people", kind="part")
        node(graph, f"count {i:05d}", f"part {i:05d}")
        node(
            graph,
            f"noisy {i:05d}",
            f"count {i:05d}",
            kind="release",
            visibility="released",
            share=0,
        )
    node(
        graph, "top", *(f"noisy {i:05d}" for i in range(parts)), kind="post", visibility="released"
    )
    return graph


def tangle(count: int, seed: int, groups: bool = False) -> nx.DiGraph[str]:
    draw = random.Random(seed)
    graph: nx.DiGraph[str] = nx.DiGraph()
    paths: list[tuple[str, ...]] = (
        [(), ("A",), ("B",), ("A", "C"), ("A", "C", "D")] if groups else [()]
    )
    for i in range(count):
        before = {f"n{draw.randrange(max(0, i - 30), i)}" for _ in range(2) if i}
        attributes = {"visibility": draw.choice(["private", "released", "public"])}
        node(
            graph, f"n{i}", *sorted(before), detail=f"d{i}", group=draw.choice(paths), **attributes
        )
    return graph


def parse(text: str) -> tuple[list[Rect], dict[str, Rect]]:
    """Return the boxes and, by title, the frames of groups."""
    root, space = ET.fromstring(text), "{http://www.w3.org/2000/svg}"
    boxes, frames = [], {}
    for mark in root.iter(f"{space}g"):
        title, rects = mark.find(f"{space}title"), mark.findall(f"{space}rect")
        if title is None or not rects:
            continue
        plain = [r for r in rects if r.get("class") in (None, "frame")][-1]
        x, y, width, height = (float(plain.get(k, 0)) for k in ("x", "y", "width", "height"))
        if plain.get("class") == "frame":
            frames[str(title.text)] = (x, y, x + width, y + height)
        else:
            boxes.append((x, y, x + width, y + height))
    return boxes, frames


def overlap(a: Rect, b: Rect) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize(
    "graph", [nx.DiGraph(), analysis(), partition(30), tangle(40, 1), tangle(30, 2, groups=True)]
)
def test_drawings_are_well_formed_and_deterministic(graph: nx.DiGraph[str]) -> None:
    text = svg(graph)
    root = ET.fromstring(text)
    assert text == svg(graph.copy())
    assert mermaid(graph) == mermaid(graph.copy())
    assert root.get("role") == "img"
    assert f"{len(graph):,} nodes" in root.get("aria-label", "")
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    assert " id=" not in text


def test_every_node_group_output_and_share_appears() -> None:
    graph = analysis()
    text = svg(graph)
    for name in graph:
        assert f">{name}</text>" in text
        assert f'["{name}' in mermaid(graph) or f'("{name}' in mermaid(graph)
    for word in (">AdaSSP</text>", ">twice</text>", "→ n<", ">50%<", ">5 rows per zper<"):
        assert word in text
    assert 'subgraph g4["AdaSSP"]' in mermaid(graph)
    assert mermaid(graph).count("-->") == graph.number_of_edges()


def test_empty_and_single() -> None:
    assert "The graph is empty." in svg(nx.DiGraph())
    assert mermaid(nx.DiGraph()).startswith("flowchart LR\n")
    bare: nx.DiGraph[str] = nx.DiGraph()
    bare.add_node("alone")
    assert ">alone</text>" in svg(bare)
    assert 'class="box private"' in svg(bare)  # what has no color is treated with care
    assert 'n0["alone"]:::private' in mermaid(bare)


def test_hostile_text_stays_text() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    for key in (HOSTILE, HOSTILE + "2"):
        node(graph, key, detail=HOSTILE, kind=HOSTILE, group=(HOSTILE,), outputs=(HOSTILE,))
    graph.add_edge(HOSTILE, HOSTILE + "2")
    text = svg(graph)
    root = ET.fromstring(text)
    assert "<script" not in text
    assert any(HOSTILE[:20] in (mark.text or "") for mark in root.iter())  # whole in the tooltip
    assert "…" in text
    labels = re.findall(r'\["(.*)"\]', mermaid(graph))
    assert len(labels) == 3
    for label in labels:
        assert not set(label.replace("<br/>", "")) & set("\"[]<>|&`'")


HIDING = "safe\u202egnp.exe\nnext\u200b\u2028end"
SHOWN = r"safe\u202egnp.exe\nnext\u200b\u2028end"


def test_hidden_characters_are_shown() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, HIDING, detail=HIDING, group=(HIDING,), outputs=(HIDING + "2",))
    text = svg(graph)
    assert not set("\u202e\u200b\u2028") & set(text)
    assert SHOWN in text
    assert not set("\u202e\u200b\u2028") & set(mermaid(graph))
    assert SHOWN.replace("\\", "#92;") in mermaid(graph)
    assert "1 nodes inside" in svg(graph, closed=[HIDING])


def test_an_output_of_the_nodes_own_name_is_said_once() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, "g", outputs=("g",))
    node(graph, "h", outputs=("h", "again"))
    assert "→ g" not in svg(graph)
    assert "→ again<" in svg(graph)
    assert "→ g" not in mermaid(graph)


def test_siblings_are_folded_beyond_eight() -> None:
    assert "more</text>" not in svg(partition(8))
    text = svg(partition(200))
    assert text.count(">… and 192 more</text>") == 3
    assert "576 of 602 nodes are folded" in text
    for i in range(8):
        assert f">noisy {i:05d}</text>" in text
    source = mermaid(partition(200))
    assert source.count("… and 192 more") == 3
    assert len(source.splitlines()) < 80


def test_siblings_that_differ_are_not_folded() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, "people", kind="dataset")
    for i in range(20):
        node(graph, f"r{i}", "people", kind="release", detail=f"Laplace(scale={i})")
    assert "more</text>" not in svg(graph)


def test_closed_groups_are_one_box() -> None:
    text = svg(analysis(), closed=["AdaSSP"])
    assert ">AdaSSP</text>" in text
    assert ">3 nodes inside</text>" in text
    assert ">gram</text>" not in text
    assert ">gram</text>" in svg(analysis(), closed=["twice"])


def test_a_closed_group_around_an_outer_node() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph()
    node(graph, "a", group=("G",))
    node(graph, "b", "a")
    node(graph, "c", "b", group=("G",))
    text = svg(graph, closed={"G"})
    ET.fromstring(text)
    assert text.count('class="head') == 2  # one line, an arrow at both ends


@pytest.mark.parametrize("seed", range(6))
def test_boxes_do_not_overlap_and_frames_hold_their_own(seed: int) -> None:
    graph = tangle(30, seed, groups=True)
    text = svg(graph)
    boxes, frames = parse(text)
    assert len(boxes) == len(graph)
    for index, box in enumerate(boxes):
        assert not any(overlap(box, other) for other in boxes[index + 1 :])
    for title, frame in frames.items():
        path = tuple(title.split(" / "))
        inside = [data["group"][: len(path)] == path for _, data in graph.nodes(data=True)]
        assert sum(overlap(box, frame) for box in boxes) == sum(inside)
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', text)[0]
    for left, top, right, bottom in [*boxes, *frames.values()]:
        assert left >= 0
        assert top >= 0
        assert right <= float(width)
        assert bottom <= float(height)


@pytest.mark.parametrize(
    "make",
    [
        lambda: partition(1000),
        lambda: tangle(600, 0),
        lambda: tangle(600, 1, groups=True),
        lambda: nx.path_graph(map(str, range(1_000)), create_using=nx.DiGraph),
        lambda: nx.DiGraph((str(a), str(b)) for a in range(100) for b in range(100, 300)),
    ],
)
def test_large_graphs_are_folded_to_what_can_be_read(make: Callable[[], nx.DiGraph[str]]) -> None:
    graph = make()
    text = svg(graph)
    boxes, _ = parse(text)
    assert 10 < len(boxes) <= 400
    assert text.count('class="edge') <= len(boxes)
    assert len(text.encode()) < 300_000
    assert f"of {len(graph):,} nodes are folded" in text
    source = mermaid(graph)
    assert len(source) < 50_000
    assert source.count("-->") <= 500
