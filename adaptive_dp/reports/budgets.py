"""Bounds side by side: the accountants', an audit's, and a session's step after step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from accountants.rounding import shown
from adaptive_dp.reports import markdown as said
from adaptive_dp.reports.parts import Row, escape, fold, matrix, table
from adaptive_dp.reports.tradeoff import tradeoff

NAMES = {
    "basic": "basic composition",
    "advanced": "advanced composition",
    "concentrated": "zCDP",
    "renyi": "Rényi DP",
    "gaussian": "Gaussian DP",
    "distribution": "privacy loss distribution",
}


def accountants(certificate: Mapping[str, Any]) -> str:
    """Write the table of accountants, the bracket of each drawn to one scale."""
    head, rows = said.accountants(certificate)
    found = {str(item.get("name")): item for item in certificate.get("accountants") or ()}
    uppers = [v for item in found.values() if _finite(v := item.get("upper"))]
    reach = min(max(uppers), 3 * min(uppers)) if uppers and min(uppers) > 0 else 1.0
    marked: list[Row] = []
    for name, lower, upper, theorem, remark in rows:
        best, off = remark.startswith("tightest"), remark.startswith("does not apply")
        tag = ' <span class="tag">tightest</span>' if best else ""
        rest = remark.removeprefix("tightest").removeprefix("; ") if best else remark
        kind = "best" if best else "off" if off else ""
        item = found[name]
        drawn = "" if off else bracket(item.get("lower"), item.get("upper"), reach)
        long = f"<small>{escape(NAMES[name])}</small>" if name in NAMES else ""
        cells = [escape(name) + tag + long, escape(lower), escape(upper) + drawn]
        marked.append((kind, [*cells, escape(theorem), escape(rest or said.NONE)]))
    return table(head, marked, "accountants")


def audited(certificate: Mapping[str, Any], audit: said.Audited) -> str:
    """Write the table of an audit, its lower bound drawn below the claim's upper one."""
    found = audit if isinstance(audit, Mapping) else audit.document()
    head, rows = said.audited(certificate, audit)
    claimed = said.part(certificate, "claim").get("epsilon")
    low = found.get("epsilon_lower")
    drawn = ""
    if _finite(claimed) and _finite(low):
        drawn = bracket(low, claimed, 1.1 * max(float(claimed), float(low)) or 1.0)
        drawn = (
            f'<figure class="beside">{drawn}<figcaption>From what an attack has shown, on the left,'
            " to what is proved, on the right; the truth lies between.</figcaption></figure>"
            if float(low) <= float(claimed)
            else ""
        )
    return drawn + _cells(head, rows, "audit") + _curves(found)


def _curves(audit: Mapping[str, Any]) -> str:
    """Draw how well the two sides were told apart, beside what the claim allows, with tables."""
    drawn = tradeoff(audit)
    if not drawn:
        return ""
    profile = _cells(*said.profile(audit), "points")
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="Trade-off">{drawn}</div>'
        + fold("the drawing as a table", _cells(*said.corners(audit), "thresholds"))
        + (fold("delta at each epsilon, shown and claimed", profile) if profile else "")
    )


def _cells(head: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> str:
    return table(head, [("", [escape(cell) for cell in row]) for row in rows], what)


def bracket(lower: object, upper: object, reach: float) -> str:
    """Draw a bracket from 0 to ``reach``; one that goes beyond ends in an arrow."""
    low = min(float(lower), reach) if _finite(lower) else 0.0
    high = min(float(upper), reach) if _finite(upper) else reach
    beyond = not _finite(upper) or upper > reach
    a, b = 190 * low / reach, 190 * high / reach
    end = f"M{b:.1f} 2l7 5l-7 5" if beyond else f"M{b:.1f} 1v12"
    return (
        '<svg class="bracket" viewBox="0 0 200 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="rail" d="M0 7H190"/><path class="range" d="M{a:.1f} 7H{b:.1f}"/>'
        f'<path class="end" d="M{a:.1f} 3v8{end}"/></svg>'
    )


def steps(certificate: Mapping[str, Any], history: Sequence[tuple[str, float]]) -> str:
    """Draw what a session has spent after each step, up to its budget, with a table."""
    budget = said.part(certificate, "claim").get("epsilon")
    known = [epsilon for _, epsilon in history if math.isfinite(epsilon)]
    top = max([*known, float(budget) if _finite(budget) else 0.0]) or 1.0
    wide, high, left, low = 720.0, 200.0, 46.0, 168.0
    width = (wide - left - 10) / max(1, len(history))
    bars = []
    for i, (_, epsilon) in enumerate(history):
        tall = 140 * min(1.0, epsilon / top)
        gap = min(6.0, 0.15 * width)
        bars.append(
            f'<rect class="fill" x="{left + i * width + gap:.1f}" y="{low - tall:.1f}" '
            f'width="{width - 2 * gap:.1f}" height="{tall:.1f}"/>'
        )
        if len(history) <= 30:
            bars.append(
                f'<text x="{left + (i + 0.5) * width:.1f}" y="{low + 16:g}" '
                f'text-anchor="middle">{i + 1}</text>'
            )
    if _finite(budget):
        at = low - 140 * float(budget) / top
        bars.append(
            f'<path class="guide" d="M{left:g} {at:.1f}H{wide - 10:g}"/>'
            f'<text x="{left - 6:g}" y="{at + 4:.1f}" text-anchor="end">'
            f'{said.outward(budget, upward=True)}</text><text class="said" x="{wide - 10:g}" '
            f'y="{at - 6:.1f}" text-anchor="end">'
            "the budget</text>"
        )
    bars.append(f'<path class="grid" d="M{left:g} {low:g}H{wide - 10:g}"/>')
    bars.append(f'<text x="{left - 6:g}" y="{low + 4:g}" text-anchor="end">0</text>')
    bars.append(
        f'<text class="title" x="{wide / 2:g}" y="{high - 2:g}" text-anchor="middle">step</text>'
    )
    rows = [[str(i), name, _up(epsilon)] for i, (name, epsilon) in enumerate(history, 1)]
    drawn = (
        f'<svg class="plot history" viewBox="0 0 {wide:g} {high:g}" role="img" '
        'aria-label="Epsilon spent after each step; the table below has the numbers">'
        f"{''.join(bars)}</svg>"
    )
    head = ["step", "name", "ε spent after it ≤"]
    return f"<figure>{drawn}</figure>{matrix(head, rows, 'Steps of the session')}"


def _up(value: float) -> str:
    return "∞" if math.isinf(value) else shown(value, upward=True, digits=5)


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and value is not True and math.isfinite(value)
