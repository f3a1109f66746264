"""A certificate as one self-contained HTML page: no network, nothing to install.

What is said comes from `adaptive_dp.reports.markdown`, as plain strings; here it is escaped (by
`parts.escape` alone) and set. All of it can be read without the script, which only shows and hides
what is there: it computes no number. A strict content security policy forbids the page to load
anything, or to run another script than its own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import networkx as nx

from accountants import AccountingError
from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.errors import PlanError
from adaptive_dp.graph.operation import require
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.plain import plain
from adaptive_dp.graph.run import Result
from adaptive_dp.reports import assets, budgets, releases
from adaptive_dp.reports import markdown as said
from adaptive_dp.reports.checked import Checked, checked
from adaptive_dp.reports.curves import curves
from adaptive_dp.reports.details import details
from adaptive_dp.reports.diagram import diagram
from adaptive_dp.reports.parts import escape, fold, matrix, small, table
from adaptive_dp.reports.values import values as released
from adaptive_dp.reports.what_if import grid, what_if
from adaptive_dp.session.steps import epsilon_by_step, steps_of

__all__ = ["report"]


def report(
    certificate: Certificate | Mapping[str, Any],
    graph: Pipeline | nx.DiGraph[str] | None = None,
    values: Result | Mapping[str, Any] | None = None,
    *,
    audit: said.Audited | None = None,
    allow: Collection[str] = (),
) -> str:
    """Write a certificate, its plan and the released values as one HTML page.

    The claim is recomputed, from ``graph`` or from the plan that the certificate carries, and the
    page says whether it holds; values of a simulation are stamped as such.

    Parameters
    ----------
    certificate : Certificate or mapping
        The certificate, or its document.
    graph : Pipeline or networkx.DiGraph, optional
        The plan: its graph is drawn, and curves and what-ifs are computed from it, which takes a
        few seconds. Or a graph alone, such as ``plan.graph``.
    values : Result or mapping, optional
        What a run released; or a mapping from the name of an output to
        ``{"value": ..., "noise": ...}``: a number, or nested lists and mappings of numbers, and
        one standard deviation of the noise in the same shape (or None).
    audit : Audit or mapping, optional
        An audit of the plan, or its document: its lower bound is set beside the claim.
    allow : list of str
        Modules from which the certificate's own mechanisms and accountants may be imported, to
        recompute it; a plan's own mechanisms need none where ``graph`` is that plan.

    Returns
    -------
    str
        A page that holds all it needs and loads nothing.

    Raises
    ------
    DeclarationError
        If the certificate is of another plan than the one that is passed, or than the one whose
        run released the values.

    Examples
    --------
    >>> page = report({"claim": {"epsilon": 2.0, "delta": 1e-06, "accountant": "renyi"}})
    >>> page.startswith("<!DOCTYPE html>"), "http" in page.replace("http-equiv", "")
    (True, False)
    """
    plan = graph if isinstance(graph, Pipeline) else None
    drawn = graph.graph if isinstance(graph, Pipeline) else graph
    document = said.document(certificate)
    if plan is not None:
        known = document.get("fingerprint", plan.fingerprint)
        require(
            known == plan.fingerprint,
            f"the certificate is of another plan: its fingerprint is {known}, the plan's is "
            f"{plan.fingerprint}; pass the plan that was certified",
        )
    ran = values is not None
    stamped = document
    if isinstance(values, Result):
        paper = values.certificate.to_document()
        require(
            document.get("fingerprint") == paper["fingerprint"],
            f"the values are of another plan: their certificate's fingerprint is "
            f"{paper['fingerprint']}; pass the certificate of their run",
        )
        if said.is_simulated(paper):  # whatever the certificate that is shown beside them says
            stamped = {**document, "randomness": paper["randomness"]}
        values = {k: {"value": v, "noise": values.noise.get(k)} for k, v in values.items()}
    sections = {
        "The analysis": diagram(drawn, document) if drawn is not None else "",
        "Released values": released(values or {}),
        "Session": _session(document, plan, allow),
        "Audit": budgets.audited(document, audit) if audit is not None else "",
        "Accountants": budgets.accountants(document),
        "What if": _what_if(plan, document) if plan is not None else "",
        "Share of the privacy budget": releases.shares(document),
        "Curves": curves(plan, document) if plan is not None else "",
        "Releases": releases.releases(document),
        "Nodes": details(drawn, document) if drawn is not None else "",
        "Worst world": _list(said.worlds(document)),
        "Assumptions": _list(said.assumptions(document)),
        "Code from elsewhere": _list(said.third_party(document)),
        "Randomness": _list(said.randomness(stamped, ran=ran)),
        "Versions": _versions(document),
        "Fingerprint": _fingerprint(document),
        "Full certificate": _document(document),
    }
    found = {title: body for title, body in sections.items() if body}
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{assets.policy()}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Privacy certificate</title><style>{assets.style()}</style>"
        f"<script>{assets.script()}</script></head><body>\n"
        f"{_head(stamped, list(found), checked(document, plan, allow=allow))}<main>\n"
        + "\n".join(_section(title, body) for title, body in found.items())
        + "\n</main></body></html>\n"
    )


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _section(title: str, body: str) -> str:
    name = _anchor(title)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{escape(title)}</h2>{body}</section>'
    )


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>" if items else ""


def _head(certificate: Mapping[str, Any], titles: Sequence[str], found: Checked) -> str:
    epsilon, delta = said.claim(certificate)
    stated = said.part(certificate, "claim")
    banner = f'<p class="banner" role="alert">{said.BANNER}</p>'
    links = "".join(f'<li><a href="#{_anchor(t)}">{escape(t)}</a></li>' for t in titles)
    return (
        "<header>"
        + (banner if said.is_simulated(certificate) else "")
        + (f'<p class="banner" role="alert">{escape(found.says)}</p>' * (found.holds is False))
        + "<h1>Privacy certificate</h1>"
        + f'<p class="claim"><span>ε ≤ {escape(said.rounded_claim(certificate))}</span> '
        + f"<span>δ = {escape(said.power(stated.get('delta')))}</span></p>"
        + small(f"In full: ε = {epsilon}, δ = {delta}. {said.tightest(certificate)}")
        + (small(found.says) if found.holds is not False else "")
        + "".join(f"<p>{escape(line)}</p>" for line in said.protects(certificate))
        + f'<nav aria-label="Sections"><ul>{links}</ul></nav></header>'
    )


def _session(certificate: Mapping[str, Any], plan: Pipeline | None, allow: Collection[str]) -> str:
    """Write what a session has spent, and step by step where its plan can be read."""
    lines = _list(said.session(certificate))
    if not lines:
        return ""
    try:
        if plan is not None:
            steps = steps_of(Certificate.from_document(certificate), plan)
        else:
            steps = epsilon_by_step(Certificate.from_document(certificate), allow=allow)
    except (PlanError, AccountingError) as error:
        why = "What each step has spent cannot be recomputed here; give the session's plan as well:"
        names = [str(name) for name in said.part(certificate, "session").get("steps") or ()]
        rows = [[str(i), name] for i, name in enumerate(names, 1)]
        told = matrix(["step", "name"], rows, "Steps of the session")
        return small(f"{why} report(certificate, session.pipeline). {error}") + told + lines
    return budgets.steps(certificate, steps) + lines


def _what_if(plan: Pipeline, certificate: Mapping[str, Any]) -> str:
    found = grid(plan, certificate)
    return what_if(found, certificate) if found is not None else ""


def _versions(certificate: Mapping[str, Any]) -> str:
    head, rows = said.versions(certificate)
    return table(head, [("", list(map(escape, row))) for row in rows], "packages")


def _fingerprint(certificate: Mapping[str, Any]) -> str:
    """Write what names the plan, and how anyone recomputes the claim."""
    text = certificate.get("fingerprint")
    how = "To recompute the claim from the plan in it, save the certificate and run"
    verify = f"<p>{how}</p><pre>adaptive-dp verify certificate.json</pre>"
    return f"<p><code>{escape(text)}</code></p>{verify}" if text else ""


def _document(certificate: Mapping[str, Any]) -> str:
    text = json.dumps(plain(certificate), indent=2, ensure_ascii=False)
    lines = "\n".join(escape("".join(_shown(line))) for line in text.split("\n"))
    save = '<button type="button" class="script" id="save">Save as certificate.json</button>'
    body = f'<pre id="certificate" tabindex="0">{lines}</pre>'
    return save + fold("JSON", body, "raw")


def _shown(line: str) -> Iterator[str]:
    """Yield characters that can be seen as they are, others as JSON escapes."""
    for char in line:
        yield char if char.isprintable() else json.dumps(char)[1:-1]
