"""A certificate as Markdown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from adaptive_dp.graph.certificate import Certificate
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.values import visible
from adaptive_dp.reports import wording
from adaptive_dp.reports.page import recomputed

__all__ = ["markdown"]


def markdown(
    certificate: Certificate | Pipeline | wording.Document,
    audit: wording.Audited | None = None,
    *,
    allow: Collection[str] = (),
) -> str:
    """Write a certificate as Markdown, with the result of recomputing its claim.

    Parameters
    ----------
    certificate : Certificate, Pipeline or mapping
        The certificate, or its document; or a plan, which is certified at its own delta.
    audit : Audit or mapping, optional
        An audit of the plan, or its document: its lower bound is set beside the claim.
    allow : list of str
        Modules from which the plan's own mechanisms may be imported, to recompute the claim.

    Returns
    -------
    str
        Headings, tables and lists; whatever the certificate says is escaped.

    Raises
    ------
    DeclarationError
        If a plan has no finite epsilon at its delta.
    DocumentError
        If a document is not that of a certificate.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> print(markdown(plan.certify()).splitlines()[2])
    **ε = 0.5, δ = 0.0**
    """
    certificate = wording.as_certificate(certificate)
    recomputation = recomputed(certificate, allow=allow)
    blocks = ["# Privacy certificate"]
    if wording.is_simulated(certificate):
        blocks.append(f"> **{wording.BANNER.upper()}**")
    epsilon, delta = wording.exact(certificate.epsilon), wording.exact(certificate.delta)
    blocks.append(f"**ε = {_inline(epsilon)}, δ = {_inline(delta)}**")
    blocks.append(_inline(wording.tightest(certificate)))
    blocks.append(
        _inline(recomputation.says)
        # a claim that does not hold stands out; one that holds, or is not recomputed, is plain
        if recomputation.holds is not False
        else f"> **{_inline(recomputation.says)}**"
    )
    blocks.append(_list(wording.protects(certificate)))
    if wording.session(certificate):
        blocks += ["## Session", _list(wording.session(certificate))]
    if audit is not None:
        blocks += ["## Audit", _table(*wording.audited(certificate, audit))]
    head, rows = wording.accountants(certificate)
    if rows or not wording.session(certificate):
        blocks += ["## Accountants", _table(head, rows)]
    head, rows = wording.nodes(certificate)
    blocks += ["## Releases", _table(head, rows)]
    blocks += ["## Worst world", _list(wording.worlds(certificate))]
    blocks += ["## Assumptions", _list(certificate.assumptions)]
    lead, (head, rows) = wording.given(certificate)
    if rows:
        blocks += ["## Given by the analyst", _inline(lead), _table(head, rows[:MOST_GIVEN])]
        if len(rows) > MOST_GIVEN:
            blocks.append(f"{len(rows) - MOST_GIVEN:,} more are in the certificate's `given`.")
    if wording.third_party(certificate):
        blocks += ["## Code from elsewhere", _list(wording.third_party(certificate))]
    blocks += ["## Randomness", _list(wording.randomness(certificate))]
    head, rows = wording.versions(certificate)
    blocks += ["## Versions", _table(head, rows)]
    blocks += ["## Fingerprint", _inline(certificate.fingerprint)]
    return "\n\n".join(block for block in blocks if block) + "\n"


MOST_GIVEN = 40
"""So many values that the analyst gave are listed; the certificate has all."""


def _inline(text: str) -> str:
    """Escape a string for one line of Markdown, also inside a table."""
    line = visible(text)
    # HTML first, then whitespace to single spaces: a line break would end a table's row
    line = " ".join(line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
    # characters that Markdown reads as code, emphasis, links, table cells or formulas
    line = re.sub(r"([\\`*_\[\]|~$])", r"\\\1", line)
    # no heading, rule or list begins
    line = re.sub(r"^([#=]|[-+](?=[ -]|$))", r"\\\1", line)
    # "1." and "1)" at the beginning of a line would be a numbered list
    return re.sub(r"^([0-9]+)([.)])(?= |$)", r"\1\\\2", line)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {_inline(item)}" for item in items) or wording.NONE


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return wording.NONE
    lines = [head, ["---"] * len(head), *([_inline(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
