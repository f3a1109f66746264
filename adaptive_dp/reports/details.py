"""What there is to say of each node: a card, which the drawing leads to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import networkx as nx

from adaptive_dp.reports import markdown as said
from adaptive_dp.reports.diagram import anchor
from adaptive_dp.reports.parts import bar, escape, fold

_MEANS = {
    "private": "private: nobody sees its value",
    "released": "released: its value may be seen, and its cost is in the claim",
    "public": "public: known to everyone beforehand",
}


def details(graph: nx.DiGraph[str], certificate: Mapping[str, Any]) -> str:
    """Write a card for each node, folded, in the order in which values flow."""
    index = {key: i for i, key in enumerate(graph)}
    rows = {str(item.get("node")): item for item in certificate.get("nodes") or ()}
    cards = []
    for key in graph:
        lines = [*_plain(graph.nodes[key], rows.get(key)), *_release(rows.get(key))]
        body = "".join(f"<dt>{escape(name)}</dt><dd>{html}</dd>" for name, html in lines)
        for name, keys in (("reads", list(graph.pred[key])), ("read by", list(graph.succ[key]))):
            body += f"<dt>{name}</dt><dd>{_links(graph, keys, index)}</dd>" if keys else ""
        title = str(graph.nodes[key].get("label") or key)
        cards.append(
            f'<article class="card {_color(graph.nodes[key])}" id="{anchor(index[key])}" '
            f'tabindex="-1"><h3>{escape(title)}</h3><dl>{body}</dl></article>'
        )
    return fold(f"all {len(graph):,} nodes", f'<div class="stack">{"".join(cards)}</div>')


def _color(node: Mapping[str, Any]) -> str:
    return node["color"] if node.get("color") in _MEANS else "private"


def _plain(node: Mapping[str, Any], release: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    yield "kind", escape(node.get("kind") or said.NONE)
    if node.get("detail") and release is None:  # of a release, its mechanism says it
        yield "what", escape(node["detail"])
    yield "color", escape(_MEANS[_color(node)])
    if node.get("group"):
        yield "inside", escape(" › ".join(map(str, node["group"])))
    if set(node.get("outputs") or ()) - {node.get("label")}:
        yield "output", escape(", ".join(map(str, node["outputs"])))


def _release(item: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if item is None:
        return
    times = item.get("times", 1)
    again = f", {said.number(times)} times" if times != 1 else ""
    share = item.get("share")
    if isinstance(share, int | float):
        yield "share", f"{bar(share)} {escape(said.percent(share))} of the budget"
    yield "query", escape(said.route(item))
    yield "mechanism", escape(said.mechanism(item) + again)
    yield "sensitivity", escape(said.distance(item))
    yield "loss", escape(said.loss(item.get("loss")))
    yield "theorem", escape(item.get("theorem") or said.NONE)
    yield "loss by", escape(item.get("source") or said.NONE)
    yield "sampler", escape(item.get("sampler") or said.NONE)
    yield "where", escape(", ".join(map(str, item.get("region") or ())) or "everywhere")
    yield "worst world", escape(said.number(item.get("in_worst_world")))
    read = item.get("conversions")
    if isinstance(read, Mapping) and read:
        lines = "".join(f"<li>{escape(f'{k}: {v}')}</li>" for k, v in read.items())
        yield "accountants", fold("how each reads the loss", f"<ul>{lines}</ul>")


def _links(graph: nx.DiGraph[str], keys: Sequence[str], index: Mapping[str, int]) -> str:
    links = [
        f'<a href="#{anchor(index[k])}">{escape(graph.nodes[k].get("label") or k)}</a>'
        for k in keys[:20]
    ]
    more = [f"and {len(keys) - 20:,} more"] if len(keys) > 20 else []
    return ", ".join([*links, *more])
