"""A certificate as one self-contained HTML page: no script, no network, nothing to install.

What is said comes from `adaptive_dp.report.markdown`, as plain strings; here it is escaped (by
`parts.escape` alone) and set. A strict content security policy forbids the page to load anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx

from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.draw import svg
from adaptive_dp.graph.plain import plain
from adaptive_dp.graph.run import Result
from adaptive_dp.report import markdown as said
from adaptive_dp.report.parts import ROWS, Row, escape, fold, small, table
from adaptive_dp.report.style import STYLE
from adaptive_dp.report.tradeoff import tradeoff
from adaptive_dp.report.values import values as released

__all__ = ["report"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report(
    certificate: Certificate | Mapping[str, Any],
    graph: nx.DiGraph[str] | None = None,
    values: Result | Mapping[str, Any] | None = None,
    *,
    audit: said.Audited | None = None,
) -> str:
    """Write a certificate, its graph and the released values as one HTML page.

    Parameters
    ----------
    certificate : Certificate or mapping
        The certificate, or its document.
    graph : networkx.DiGraph, optional
        The graph to draw, such as ``plan.graph``.
    values : Result or mapping, optional
        What a run released; or a mapping from the name of an output to
        ``{"value": ..., "noise": ...}``: a number, or nested lists and mappings of numbers, and
        one standard deviation of the noise in the same shape (or None).
    audit : Audit or mapping, optional
        An audit of the plan, or its document: its lower bound is set beside the claim.

    Returns
    -------
    str
        A page that holds all it needs and loads nothing.

    Examples
    --------
    >>> page = report({"claim": {"epsilon": 2.0, "delta": 1e-06, "accountant": "renyi"}})
    >>> page.startswith("<!DOCTYPE html>"), "<script" in page
    (True, False)
    """
    certificate = said.document(certificate)
    ran = values is not None
    if isinstance(values, Result):
        values = {k: {"value": v, "noise": values.noise.get(k)} for k, v in values.items()}
    parts = [
        _headline(certificate),
        _section("The analysis", _drawing(graph, certificate) if graph is not None else ""),
        _section("Released values", released(values or {})),
        _section("Session", _list(said.session(certificate))),
        _section("Audit", _audited(certificate, audit) if audit is not None else ""),
        _section("Accountants", _accountants(certificate)),
        _section("Share of the privacy budget", _bars(certificate)),
        _section("Releases", _nodes(certificate)),
        _section("Worst world", _list(said.worlds(certificate))),
        _section("Assumptions", _list(said.assumptions(certificate))),
        _section("Randomness", _list(said.randomness(certificate, ran=ran))),
        _section("Versions", _versions(certificate)),
        _section("Fingerprint", _code(certificate.get("fingerprint"))),
        _section("Full certificate", _document(certificate)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Privacy certificate</title><style>{STYLE}</style></head><body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>" if body else ""


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def _code(text: object) -> str:
    return f"<code>{escape(text)}</code>" if text else ""


def _headline(certificate: Mapping[str, Any]) -> str:
    epsilon, delta = said.claim(certificate)
    banner = f'<p class="banner" role="alert">{said.BANNER}</p>'
    return (
        (banner if said.is_simulated(certificate) else "")
        + "<section><h1>Privacy certificate</h1>"
        + f'<p class="claim"><span>ε ≤ {escape(said.rounded_claim(certificate))}</span> '
        + f"<span>δ = {escape(delta)}</span></p>"
        + small(f"In full: ε = {epsilon}, δ = {delta}. {said.tightest(certificate)}")
        + "".join(f"<p>{escape(line)}</p>" for line in said.protects(certificate))
        + "</section>"
    )


def _drawing(graph: nx.DiGraph[str], certificate: Mapping[str, Any]) -> str:
    """Draw the graph, with each release's share in its box."""
    shared = nx.DiGraph(graph)
    shares = {item.get("node"): item.get("share") for item in certificate.get("nodes") or ()}
    nx.set_node_attributes(shared, {k: v for k, v in shares.items() if k in shared}, "share")
    drawn = svg(shared).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Drawing">{drawn}</div>'


def _accountants(certificate: Mapping[str, Any]) -> str:
    head, rows = said.accountants(certificate)
    marked: list[Row] = []
    for name, *cells, remark in rows:
        best, off = remark.startswith("tightest"), remark.startswith("does not apply")
        tag = ' <span class="tag">tightest</span>' if best else ""
        rest = remark.removeprefix("tightest").removeprefix("; ") if best else remark
        kind = "best" if best else "off" if off else ""
        marked.append((kind, [escape(name) + tag, *map(escape, [*cells, rest or said.NONE])]))
    return table(head, marked, "accountants")


def _audited(certificate: Mapping[str, Any], audit: said.Audited) -> str:
    head, rows = said.audited(certificate, audit)
    found = audit if isinstance(audit, Mapping) else audit.document()
    drawn = tradeoff(found)
    if drawn:
        drawn = (
            f'<div class="scroll" tabindex="0" role="group" aria-label="Trade-off">{drawn}</div>'
        )
        drawn += fold("the drawing as a table", _cells(*said.corners(found), "thresholds"))
    profile = _cells(*said.profile(found), "points")
    return (
        _cells(head, rows, "audit")
        + drawn
        + (fold("delta at each epsilon, shown and claimed", profile) if profile else "")
    )


def _cells(head: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> str:
    return table(head, [("", [escape(cell) for cell in row]) for row in rows], what)


def _nodes(certificate: Mapping[str, Any]) -> str:
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


def _bars(certificate: Mapping[str, Any]) -> str:
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
            f'<span>{escape(name)}</span><i><b style="width:{100 * min(1.0, share):.2f}%"></b></i>'
            f"<span>{said.percent(share)}</span>"
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


def _versions(certificate: Mapping[str, Any]) -> str:
    head, rows = said.versions(certificate)
    return table(head, [("", list(map(escape, row))) for row in rows], "packages")


def _document(certificate: Mapping[str, Any]) -> str:
    text = json.dumps(plain(certificate), indent=2, ensure_ascii=False)
    lines = "\n".join(escape(line) for line in text.split("\n"))
    return fold("JSON", f"<pre>{lines}</pre>")
