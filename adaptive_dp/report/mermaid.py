"""Mermaid text, for Markdown pages that render it; folded to stay within Mermaid's own limits."""

from __future__ import annotations

import re
from collections.abc import Mapping

import networkx as nx

from adaptive_dp.report.drawing import (
    SOLID,
    Box,
    Path,
    boxes_of,
    fitted,
    folded,
    folded_nodes,
    text_lines,
)

_CLASSES = """\
  classDef private fill:#fff1e6,stroke:#c2410c,color:#7c2d12,stroke-width:2px
  classDef released fill:#e8f4fc,stroke:#0369a1,color:#0c4a6e
  classDef public fill:#f3f4f6,stroke:#6b7280,color:#374151,stroke-dasharray:4 3"""
_SHAPES = {"private": '["{}"]', "released": '(["{}"])', "public": '("{}")'}


def mermaid(graph: nx.DiGraph[str]) -> str:
    """Write a graph as a Mermaid flowchart.

    Parameters
    ----------
    graph : networkx.DiGraph
        Acyclic; the node attributes are those of `adaptive_dp.report.drawing`.

    Returns
    -------
    str
        ``flowchart LR`` text, folded by the rule of `svg`.

    Examples
    --------
    >>> graph = nx.DiGraph()
    >>> graph.add_node("people", kind="dataset", label="people", color="private")
    >>> print(mermaid(graph).splitlines()[1])
      n0["people"]:::private
    """
    drawn = folded(graph, (), boxes=240, edges=480)
    boxes = boxes_of(drawn)
    ids = {key: f"n{index}" for index, key in enumerate(drawn)}
    lines = ["flowchart LR", *_group((), boxes, ids)]
    for (a, b), edge in drawn.edges.items():
        lines.append(f"  {ids[a]} {'-->' if edge['arrows'] & SOLID else '-.->'} {ids[b]}")
    lines.append(_CLASSES)
    hidden = folded_nodes(drawn)
    lines += [f"  %% {hidden} nodes are folded"] if hidden else []
    return "\n".join(lines) + "\n"


def _group(path: Path, boxes: Mapping[str, Box], ids: Mapping[str, str]) -> list[str]:
    """Write a group's nodes and, indented, its groups."""
    indent, depth = "  " * (len(path) + 1), len(path)
    lines: list[str] = []
    inner: dict[Path, dict[str, Box]] = {}
    for key, box in boxes.items():
        if box.group == path:
            text = _SHAPES[box.visibility].format(_text(box))
            lines.append(f"{indent}{ids[key]}{text}:::{box.visibility}")
        else:
            inner.setdefault(box.group[: depth + 1], {})[key] = box
    for group, members in inner.items():
        number = "_".join([ids[next(iter(members))][1:]] * (depth + 1))
        lines.append(f'{indent}subgraph g{number}["{_quote(fitted(group[-1], 13.0, 400.0))}"]')
        lines += [*_group(group, members, ids), f"{indent}end"]
    return lines


def _text(box: Box) -> str:
    lines = [_quote(fitted(line, size, 400.0)) for line, size in text_lines(box)]
    share = [] if box.share is None else [f"share {_quote(f'{box.share:.1%}')}"]
    return "<br/>".join(lines + share)


def _quote(text: str) -> str:
    """Escape a string for a quoted Mermaid label: whatever has a meaning there becomes a code."""
    plain = " ".join(text.split())
    return re.sub(r"[^\w\s.,:=+\-/→…·±≤≥]", lambda match: f"#{ord(match.group())};", plain)
