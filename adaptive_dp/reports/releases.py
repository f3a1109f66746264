"""The releases: their shares as bars, and what each is as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from adaptive_dp.reports import markdown as said
from adaptive_dp.reports.parts import ROWS, bar, escape, fold, small, table


def releases(certificate: Mapping[str, Any]) -> str:
    """Write the table of releases: thirteen columns set as six, the lesser ones below."""
    _, rows = said.nodes(certificate)
    head = ["node", "mechanism", "distance", "loss", "theorem", "share"]
    return table(head, [("", _node(row)) for row in rows], "releases")


def _node(row: Sequence[str]) -> list[str]:
    node, query, mechanism, times, distance, loss, theorem, source, conversions = row[:9]
    share, worst, region, sampler = row[9:]
    again = f" × {times}" if times != "1" else ""
    tag = {"yes": '<small><span class="tag">worst world</span></small>'}
    return [
        f"<strong>{escape(node)}</strong>{small(f'query: {query}')}{small(f'where: {region}')}",
        escape(mechanism + again) + small(f"sampler: {sampler}"),
        escape(distance),
        escape(loss),
        escape(theorem)
        + fold("loss and conversions", small(f"loss: {source}") + small(conversions)),
        escape(share) + tag.get(worst, small(f"in worst world: {worst}")),
    ]


def shares(certificate: Mapping[str, Any]) -> str:
    """Draw the shares as bars, the largest first."""
    nodes: list[Mapping[str, Any]] = list(certificate.get("nodes") or ())
    found = [
        (float(item["share"]), str(item.get("node")))
        for item in nodes
        if item.get("share") is not None
    ]
    found.sort(key=lambda pair: -pair[0])

    def write(some: Sequence[tuple[float, str]]) -> str:
        bars = (
            f"<span>{escape(name)}</span>{bar(share)}<span>{said.percent(share)}</span>"
            for share, name in some
        )
        return f'<div class="bars">{"".join(bars)}</div>'

    rest = found[ROWS:]
    more = f"{len(rest):,} more, together {said.percent(sum(share for share, _ in rest))}"
    note = "Parts of a partition are alternatives: the shares of the worst world add up to 100%."
    apart = any(item.get("in_worst_world") is False for item in nodes)
    return (
        (write(found[:ROWS]) if found else "")
        + (fold(more, write(rest)) if rest else "")
        + (small(note) if apart and found else "")
    )
