"""A certificate as one self-contained HTML page: no network, nothing to install.

The JSON of a certificate can be edited by anyone, so the page does not merely repeat it:
`recomputed` recomputes the claim first, and the page states the result, or why there is none.

All sentences come from `adaptive_dp.reports.wording`, as plain strings; the templates beside this
file place them, and their engine alone escapes them. The page can be read without its script, which
only shows and hides what is there and computes no number. A strict content security policy forbids
the page to load anything, or to run another script than its own.

In this file: `recomputed`, then `report`, then the sections of the page in their order, each a
function that returns what its template needs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeGuard

import networkx as nx
import numpy as np
from attrs import frozen

import accountants
from accountants import AccountingError, Bounds, Guarantee
from accountants.numerics import shown
from adaptive_dp.graph.certificate import Certificate, ReleaseRow, flat_matrix
from adaptive_dp.graph.errors import DeclarationError, NoIntervalError, PlanError
from adaptive_dp.graph.outputs import Entries, Summarized, ends
from adaptive_dp.graph.plan import Pipeline
from adaptive_dp.graph.run import TOTAL, Result
from adaptive_dp.graph.values import cut, plain, visible
from adaptive_dp.reports import charts, diagram, plot, wording
from adaptive_dp.reports.drawing import style_sheet
from adaptive_dp.reports.what_if import ALL, FACTORS, Grid, grid
from adaptive_dp.session.certificate import epsilon_by_step, steps_of, verify

if TYPE_CHECKING:
    from jinja2 import Environment


@frozen
class Recomputed:
    """Whether a claim holds, None where that was not recomputed; and a sentence that says so."""

    holds: bool | None
    says: str


def recomputed(
    certificate: Certificate, plan: Pipeline | None = None, *, allow: Collection[str] = ()
) -> Recomputed:
    """Recompute a claim from the plan in its certificate, or from the very plan that is given.

    Parameters
    ----------
    certificate, plan, allow
        As for `adaptive_dp.verify`.
    """
    try:
        verdict = verify(certificate, plan, allow=allow)
    except (PlanError, AccountingError) as error:
        return Recomputed(None, f"Not recomputed: {error}")
    if verdict.holds:
        return Recomputed(True, "Recomputed from its plan when this was written: the claim holds.")
    return Recomputed(
        False, f"The claim does not hold, recomputed from its plan: {'; '.join(verdict.reasons)}."
    )


# --- The page ---

__all__ = ["report"]

ROWS = 40  # rows of a table before the rest is folded


def report(
    certificate: Certificate | Pipeline | Mapping[str, Any],
    graph: Pipeline | nx.DiGraph[str] | None = None,
    values: Result | Mapping[str, Any] | None = None,
    *,
    audit: wording.Audited | None = None,
    allow: Collection[str] = (),
    trace: Mapping[str, Any] | None = None,
) -> str:
    """Write a certificate, its plan and the released values as one HTML page.

    The claim is recomputed, from ``graph`` or from the plan that the certificate carries, and the
    page says whether it holds; values of a simulation are stamped as such.

    Needs jinja2 and matplotlib: ``pip install "adaptive-dp[report]"``.

    Parameters
    ----------
    certificate : Certificate, Pipeline or mapping
        The certificate, or its document. Or a plan alone: it is certified at its own delta, which
        is that of its calibration, or stated by `Pipeline.with_delta`.
    graph : Pipeline or networkx.DiGraph, optional
        The plan: its graph is drawn, and curves and what-ifs are computed from it, which takes a
        few seconds. Or a graph alone, such as ``plan.graph``.
    values : Result or mapping, optional
        What a run released; or a mapping from the name of an output to
        ``{"value": ..., "low": ..., "high": ...}``: a number, or nested lists and mappings of
        numbers, and the ends of their 95% intervals in the same shape (or None). With
        ``"labels"``, a str for each number of a list, and a ``"note"``, a str that is shown below.
    audit : Audit or mapping, optional
        An audit of the plan, or its document: its lower bound is set beside the claim.
    allow : list of str
        Modules from which the certificate's own mechanisms and accountants may be imported, to
        recompute it; a plan's own mechanisms need none where ``graph`` is that plan.
    trace : mapping, optional
        The document of an `adaptive_dp.tracing.Trace` whose releases the plan is made of: what it
        found stands before all else, and where it found anything the page says so in place of
        "the claim holds".

    Returns
    -------
    str
        A page that holds all it needs and loads nothing. Equal arguments give equal pages to the
        byte, but for what-ifs of single releases: a plan that takes long leaves these out.

    Raises
    ------
    DeclarationError
        If the certificate is of another plan than the one that is passed, or than the one whose
        run released the values; or if a plan alone has no finite epsilon at its delta.
    DocumentError
        If a document is not that of a certificate.
    AccountingError
        If jinja2 or matplotlib is not installed.

    See Also
    --------
    adaptive_dp.markdown : the certificate as Markdown, which needs nothing else.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> page = report(plan.certify(), plan)
    >>> page.startswith("<!DOCTYPE html>"), "http" in page.replace("http-equiv", "")
    (True, False)
    >>> report(plan) == page
    True
    """
    templates = _templates()
    if isinstance(certificate, Pipeline) and graph is None:
        graph = certificate
    plan = graph if isinstance(graph, Pipeline) else None
    drawn = graph.graph if isinstance(graph, Pipeline) else graph
    paper = wording.as_certificate(certificate)
    if plan is not None and paper.fingerprint != plan.fingerprint:
        raise DeclarationError(
            f"the certificate is of another plan: its fingerprint is {paper.fingerprint}, the "
            f"plan's is {plan.fingerprint}; pass the plan that was certified"
        )
    ran = values is not None
    stamped, models = paper, dict[str, Summarized]()
    if isinstance(values, Result):
        of_run = values.certificate
        if paper.fingerprint != of_run.fingerprint:
            raise DeclarationError(
                "the values are of another plan: their certificate's fingerprint is "
                f"{of_run.fingerprint}; pass the certificate of their run"
            )
        stamped = wording.stamped(paper, of_run)
        shown, intervals, entries = values.shown()
        models = {k: v for k, v in values.released.items() if isinstance(v, Summarized)}
        low, high = ends(intervals)
        values = {
            name: {
                "value": value,
                "low": low[name],
                "high": high[name],
                "labels": entries.get(name),
                "note": _no_interval(intervals[name]),
            }
            for name, value in shown.items()
        }
    # Recomputed before anything else is written: the result stands at the top of the page.
    recomputation = recomputed(paper, plan, allow=allow)
    if trace is not None and not trace["clean"]:
        recomputation = Recomputed(False, trace["verdict"])
    seen = trace or {}
    sections = [
        _section("Found", "items", [each["text"] for each in seen.get("found", ())]),
        _section("Traced releases", "items", seen.get("released")),
        _section("Released values", "released", _released(values or {})),
        _section("Synthetic rows beside released counts", "synthetic", _synthetic(models)),
        _section("The analysis", "diagram", _analysis(drawn, paper)),
        _section("Session", "session", _session(paper, plan, allow)),
        _section("Audit", "audit", _audit(paper, audit)),
        _section("Accountants", "accountants", _accountants(paper)),
        _section("What if", "what_if", _what_if(paper, plan)),
        _section("Share of the privacy budget", "shares", _shares(paper)),
        _section("Curves", "curves", _curves(paper, plan)),
        _section("Releases", "releases", _releases(paper)),
        _section("Nodes", "nodes", _nodes(drawn, paper)),
        _section("Passes over the data", "items", _passes(plan)),
        _section("Worst world", "items", wording.worlds(paper)),
        _section("Assumptions", "items", paper.assumptions),
        _section("Given by the analyst", "given", _given(paper)),
        _section("Code from elsewhere", "items", wording.third_party(paper)),
        _section("Private data", "items", seen.get("data")),
        _section("Calls that read them", "items", seen.get("touched")),
        _section("Watched", "items", seen.get("watched")),
        _section("Not watched", "items", seen.get("unwatched")),
        _section("Randomness", "items", wording.randomness(stamped, ran=ran)),
        _section("Versions", "versions", wording.versions(paper)[1]),
        _section("Fingerprint", "fingerprint", paper.fingerprint),
        _section("Full certificate", "document", _document(paper)),
    ]
    return templates.get_template("page.html.j2").render(
        head=_head(stamped, plan),
        recomputed=recomputation,
        sections=[section for section in sections if section["data"]],
    )


def check_extras() -> None:
    """Raise what `report` would raise where a package that it needs is missing.

    Called before a run, whose budget would be spent although no page could be written.

    Raises
    ------
    AccountingError
        If jinja2 or matplotlib is not installed.
    """
    _templates()


def _templates() -> Environment:
    try:
        import matplotlib  # noqa: F401
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise AccountingError(
            f'an HTML page needs {error.name}: pip install "adaptive-dp[report]"; '
            "adaptive_dp.markdown needs nothing else"
        ) from None
    templates = Environment(
        loader=PackageLoader("adaptive_dp.reports"),
        # The engine escapes every expression; nothing else in this room escapes HTML.
        autoescape=True,
        # Before it is escaped, each string is made visible: nothing in it hides or reorders.
        finalize=_seen,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals |= {"NONE": wording.NONE, "ROWS": ROWS, "BANNER": wording.BANNER}
    style, script = _read("page.css") + style_sheet(), _read("page.js")
    # The content security policy: no network at all, and these two by their digests.
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    for name, markup in {"style": style, "script": script, "policy": policy}.items():
        templates.globals[name] = _safe(markup)
    return templates


def _seen(value: Any) -> Any:
    # markup is left alone: it was escaped when it was made
    return visible(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _safe(markup: str) -> Any:
    """Mark what this library wrote by itself, or its XML serializer, as markup."""
    from markupsafe import Markup

    return Markup(markup)


@cache
def _read(name: str) -> str:
    return files("adaptive_dp.reports").joinpath("templates", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _section(title: str, template: str, data: Any) -> dict[str, Any]:
    name = title.lower().replace(" ", "-")
    return {"title": title, "name": name, "template": template, "data": data}


@frozen
class Cell:
    """A cell of a table: text, and what stands below it.

    Parameters
    ----------
    text
        What it says.
    strong, tag
        Whether the text is bold; a word set beside it, in a frame.
    small
        Lines below it.
    fold
        A title and lines below it that are folded.
    """

    text: str
    strong: bool = False
    tag: str = ""
    small: Sequence[str] = ()
    fold: tuple[str, Sequence[str]] | None = None


# --- The head ---


def _head(certificate: Certificate, plan: Pipeline | None) -> dict[str, Any]:
    epsilon, delta = wording.exact(certificate.epsilon), wording.exact(certificate.delta)
    about = certificate.description
    return {
        "title": (about.title if about else "") or "Privacy certificate",
        "described": wording.described(certificate),
        "statement": wording.statement(certificate, _advantage(certificate, plan)),
        "simulated": wording.is_simulated(certificate),
        "epsilon": wording.rounded_claim(certificate),
        "delta": wording.power(certificate.delta),
        "full": f"In full: ε = {epsilon}, δ = {delta}. {wording.tightest(certificate)}",
        "protects": wording.protects(certificate),
    }


def _advantage(certificate: Certificate, plan: Pipeline | None) -> float:
    """Return an upper bound of the advantage of a test: of the plan, or of the claim alone."""
    by_claim = wording.advantage(certificate)
    if plan is None or plan.adaptive:
        return by_claim
    try:
        return min(by_claim, Guarantee(plan.term).advantage().upper)
    except AccountingError:
        return by_claim


# --- The analysis: the drawing in its states ---


def _analysis(graph: nx.DiGraph[str] | None, certificate: Certificate) -> Any:
    if graph is None:
        return None
    states = diagram.diagram(graph, certificate.shares)
    return [
        {
            "closed": json.dumps(sorted(state.closed)),
            "drawing": _safe(state.drawing),
            "first": state.first,
            "open": state.all_open,
        }
        for state in states
    ]


# --- Released values ---

ENTRIES = 12  # entries of a value before the rest is folded
MOST = 2000  # entries of a value that the page holds at all
LETTERS = 400  # characters of a str
NARROW = 4  # columns of a cross-table that fits beside others


def _released(values: Mapping[str, Any]) -> Any:
    """Return each output with its value; each comes as a mapping as `report` takes it."""
    rows = []
    for index, (name, item) in enumerate(values.items()):
        given = item if isinstance(item, Mapping) else {"value": item}
        value, low, high = (plain(given.get(each)) for each in ("value", "low", "high"))
        labels = given.get("labels")
        names = labels.names if isinstance(labels, Entries) else ()
        chart = charts.released(value, low, high, f"plot-value-{index}", labels, names)
        written = _value(value, (low, high), labels)
        row = {"name": name, "value": written, "chart": _safe(chart), "note": given.get("note", "")}
        width = len(written["head"]) if written["kind"] == "grid" else 0
        rows.append(row | {"wide": written["kind"] in ("matrix", "folded") or width > NARROW})
    return rows


DRAWN = 12  # columns of a model whose counts are drawn


def _synthetic(models: Mapping[str, Summarized]) -> list[dict[str, Any]]:
    """Return, of each released model, how rows of it compare with the counts that were released."""
    found = []
    for place, (name, model) in enumerate(models.items()):
        compared = model.comparison()
        drawn: list[dict[str, Any]] = []
        for column, (labels, *numbers) in list(compared.columns.items())[:DRAWN]:
            chart = charts.compared(numbers, labels, f"plot-synthetic-{place}-{len(drawn)}")
            if chart:
                drawn.append({"title": column, "chart": _safe(chart)})
        rows = [
            [
                ", ".join(names),
                f"{cells:,}",
                f"{error:.1%}",
                f"{far:.1%}",
                f"{unsure:,}",
                f"{made:.1%}",
            ]
            for names, cells, error, far, unsure, made in compared.tables
        ]
        head = ["released table", "cells", "off the truth by at most", "rows are off it by"]
        head += ["cells that may be empty", "rows in these"]
        says = f"{name}: {compared.rows:,} rows were drawn of what was released, and cost nothing."
        says = says if compared.rows else f"{name}: no rows were drawn."
        notes = compared.notes
        found.append({"says": says, "notes": notes, "drawn": drawn, "head": head, "rows": rows})
    return found


def _no_interval(tree: Any) -> str:
    """Return why an output has no interval; nothing where it has some."""
    return f"No interval: {tree}." if isinstance(tree, NoIntervalError) else ""


Ends = tuple[Any, Any]
"""The lower and the upper ends of intervals, each in the shape of the value, or None."""


def _value(value: Any, ends: Ends, labels: Any = None) -> dict[str, Any]:
    """Return a value as what its template sets: a number, a str, a list, names or a matrix."""
    if isinstance(value, Mapping):
        inner = labels if isinstance(labels, Mapping) else {}
        pairs = [(key, _value(item, _at(ends, key), inner.get(key))) for key, item in value.items()]
        return _folded("names", pairs, f"{len(pairs):,} values")
    if isinstance(labels, Sequence) and (grid := _grid(value, ends, labels)):
        return grid
    if isinstance(labels, Sequence) and charts.is_flat(value) and len(labels) == len(value):
        pairs = [(labels[i], _value(item, _at(ends, i))) for i, item in enumerate(value[:MOST])]
        left = len(value) - len(pairs)
        more = f"and {left:,} more" if left else ""
        return _folded("names", pairs, f"{len(value):,} values", more)
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        even = len({len(row) for row in value}) == 1 and not any(map(_is_deep, value))
        cells = [
            [_value(item, _at(_at(ends, i), j)) for j, item in enumerate(row[:MOST])]
            for i, row in enumerate(value[: max(1, MOST // max(1, len(value[0])))])
        ]
        left = len(value) - len(cells)
        matrix = {"kind": "matrix", "rows": cells, "more": f"and {left:,} more rows" * bool(left)}
        is_small = sum(map(len, value)) <= 4 * ENTRIES and len(value[0]) <= ENTRIES
        shape = f"{len(value):,} × {len(value[0]):,} matrix"
        title = shape if even else f"{len(value):,} lists"
        return (
            matrix if is_small else {"kind": "folded", "few": None, "title": title, "all": matrix}
        )
    if isinstance(value, list):
        items = [_value(item, _at(ends, index)) for index, item in enumerate(value[:MOST])]
        left = len(value) - len(items)
        more = f" and {left:,} more" if left else ""
        return _folded("entries", items, f"{len(value):,} entries", more)
    if isinstance(value, str):
        return {"kind": "str", "text": cut(wording.number(value), LETTERS)}
    return {"kind": "number", "text": _measured(value, *ends)}


HEATS = 8  # shades of a cross-table


def _grid(value: Any, ends: Ends, labels: Sequence[Any]) -> dict[str, Any] | None:
    """Return a cross-table: a matrix whose rows and columns have names; None of anything else."""
    flat = flat_matrix(value)
    if not flat or not isinstance(labels, Entries) or len(labels) != len(flat):
        return None
    width = len(value[0])
    keys = [[str(part) for part in key] for key in labels.candidates[: len(flat)] if _is_pair(key)]
    if len(keys) != len(flat) or len(flat) > MOST:
        return None
    # the shades are of the cells: sums beside them are as dark as the darkest
    numbers = [e for e, key in zip(flat, keys, strict=True) if _is_real(e) and TOTAL not in key]
    least, most = min([0.0, *numbers]), max([0.0, *numbers])
    rows = []
    for i, row in enumerate(value):
        cells = []
        for j, item in enumerate(row):
            text, _, inside = _measured(item, *_at(_at(ends, i), j)).partition(" (")
            share = (item - least) / (most - least) if _is_real(item) and most > least else 0.0
            heat = round(HEATS * min(1.0, max(0.0, share)))
            cells.append({"text": text, "inside": inside.rstrip(")"), "heat": heat})
        rows.append((", ".join(keys[i * width][:-1]), cells))
    title = f"{', '.join(labels.names[:-1])} by {labels.names[-1]}"
    grid = {"kind": "grid", "title": title, "head": [k[-1] for k in keys[:width]], "rows": rows}
    if len(flat) <= 8 * ENTRIES:
        return grid
    return {"kind": "folded", "few": None, "title": title, "all": grid}


def _is_pair(key: Any) -> bool:
    """Whether a label has several parts."""
    return isinstance(key, tuple) and len(key) > 1


def _folded(kind: str, items: list[Any], title: str, more: str = "") -> dict[str, Any]:
    """Return a few items as they are; of many, the first few, and all of them folded."""
    everything = {"kind": kind, "items": items, "more": more}
    if len(items) <= ENTRIES:
        return everything
    few = {"kind": kind, "items": items[: ENTRIES // 2], "more": ""}
    return {"kind": "folded", "few": few, "title": f"all {title}", "all": everything}


def _is_deep(row: Sequence[Any]) -> bool:
    return any(isinstance(item, list | Mapping) for item in row)


def _at(ends: Ends, key: Any) -> Ends:
    """Return the ends of one entry; a single number holds for all of them."""

    def inside(end: Any) -> Any:
        if isinstance(end, Mapping):
            return end.get(key)
        if isinstance(end, list):
            return end[key] if isinstance(key, int) and key < len(end) else None
        return end

    return inside(ends[0]), inside(ends[1])


def _measured(value: Any, low: Any, high: Any) -> str:
    """Write a number with as many digits as its interval leaves it."""
    if not (_is_real(value) and _is_real(low) and _is_real(high) and low <= high):
        return wording.number(value)
    half = (high - low) / 2
    places = 1 - math.floor(math.log10(half)) if half > 0 else 99
    if places > 9 or max(abs(value), abs(low), abs(high)) >= 1e15:
        return f"{value:.6g} ({low:.6g} to {high:.6g})"
    places = max(0, places)
    return f"{value:,.{places}f} ({low:,.{places}f} to {high:,.{places}f})"


def _is_real(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and value is not True and math.isfinite(value)


# --- Session ---


def _session(
    certificate: Certificate, plan: Pipeline | None, allow: Collection[str]
) -> dict[str, Any] | None:
    """Return what a session has spent, and step by step where its plan can be read."""
    if certificate.session is None:
        return None
    lines = wording.session(certificate)
    try:
        steps = (
            epsilon_by_step(certificate, allow=allow)
            if plan is None
            else steps_of(certificate, plan)
        )
    except (PlanError, AccountingError) as error:
        why = (
            "What each step has spent cannot be recomputed here; give the session's plan as well: "
            f"report(certificate, session.pipeline). {error}"
        )
        rows = [[str(i), name] for i, name in enumerate(certificate.session.steps, 1)]
        return {"lines": lines, "why": why, "chart": "", "head": ["step", "name"], "rows": rows}
    budget = certificate.epsilon
    chart = ""
    if 0 < budget < math.inf:
        shares = [min(epsilon, 10 * budget) / budget for _, epsilon in steps]
        label = f"spent of the budget, epsilon {shown(budget, upward=True, digits=5)}"
        chart = charts.steps([name for name, _ in steps], shares, label)
    rows = [[str(i), name, _up(epsilon)] for i, (name, epsilon) in enumerate(steps, 1)]
    head = ["step", "name", "ε spent after it ≤"]
    return {"lines": lines, "why": "", "chart": _safe(chart), "head": head, "rows": rows}


def _up(value: float) -> str:
    return wording.outward(value, upward=True)


# --- Audit ---


def _audit(certificate: Certificate, audit: wording.Audited | None) -> dict[str, Any] | None:
    if audit is None:
        return None
    document = audit if isinstance(audit, Mapping) else audit.document()
    head, rows = wording.audited(certificate, audit)
    claimed, low, power = certificate.epsilon, document.get("epsilon_lower"), document.get("power")
    chart = ""
    if _is_real(claimed) and _is_real(low):
        bars = [("shown: at least", float(low), False), ("claimed", float(claimed), True)]
        bars += [("would be detected", float(power), True)] if _is_real(power) else []
        scale = f"epsilon (nats), confidence {wording.number(document.get('confidence'))}"
        chart = charts.audit(bars, str(document.get("verdict")), scale)
    tradeoff = charts.audit_tradeoff(document.get("tradeoff") or (), document.get("claimed") or ())
    return {
        "chart": _safe(chart),
        "head": head,
        "rows": rows,
        "tradeoff": _safe(tradeoff),
        "corners": wording.corners(document) if tradeoff else None,
        "profile": wording.profile(document) if tradeoff else None,
    }


# --- Accountants ---

LONG_NAMES = {
    "basic": "basic composition",
    "advanced": "advanced composition",
    "concentrated": "zCDP",
    "renyi": "Rényi DP",
    "gaussian": "Gaussian DP",
    "distribution": "privacy loss distribution",
}


def _accountants(certificate: Certificate) -> dict[str, Any] | None:
    head, remarks = wording.accountants(certificate)
    if not remarks:
        return None
    rows = []
    for name, lower, upper, theorem, remark in remarks:
        best, off = remark.startswith("tightest"), remark.startswith("does not apply")
        rest = remark.removeprefix("tightest").removeprefix("; ") if best else remark
        long = [LONG_NAMES[name]] if name in LONG_NAMES else []
        named = Cell(name, tag="tightest" if best else "", small=long)
        cells = [named, Cell(lower), Cell(upper), Cell(theorem), Cell(rest or wording.NONE)]
        rows.append(("best" if best else "off" if off else "", cells))
    # in a certificate that was edited, a lower bound may be above the upper one
    brackets = {
        plot.name_on_axis(row.name): Bounds(row.lower, row.upper)
        for row in certificate.accountants
        if row.lower is not None and row.upper is not None and row.lower <= row.upper
    }
    return {"head": head, "rows": rows, "chart": _safe(charts.accountants(brackets))}


# --- What if ---


def _what_if(certificate: Certificate, plan: Pipeline | None) -> dict[str, Any] | None:
    """Return the sliders' stops, and the same numbers as a table for readers without scripts."""
    what_ifs: Grid | None = None if plan is None else grid(plan, certificate)
    if what_ifs is None:
        return None
    answers = [[[_up(e) for e in row] for row in rows] for rows in what_ifs.epsilons.values()]
    ratios = [
        [[_gauge(e, certificate.epsilon) for e in row] for row in rows]
        for rows in what_ifs.epsilons.values()
    ]
    at, today = what_ifs.deltas.index(certificate.delta), FACTORS.index(1.0)
    factors = [f"{factor:g} ×" for factor in FACTORS]
    deltas = [wording.power(each) for each in what_ifs.deltas]
    return {
        "stops": {"epsilons": answers, "ratios": ratios, "factors": factors, "deltas": deltas},
        "names": list(what_ifs.epsilons),
        "at": at,
        "today": today,
        "answer": answers[0][today][at],
        "head": ["noise", *(f"δ = {each}" for each in deltas)],
        "rows": [[factor, *answers[0][i]] for i, factor in enumerate(factors)],
        "all": ALL,
    }


def _gauge(epsilon: float, claimed: float) -> float:
    """Return the length of the gauge, out of 200: the claim is at its middle."""
    if not 0 < claimed < math.inf or math.isinf(epsilon):
        return 200.0
    return round(min(200.0, 100 * epsilon / claimed), 2)


# --- Share of the privacy budget ---


def _shares(certificate: Certificate) -> dict[str, Any] | None:
    if not certificate.nodes:
        return None
    apart = any(not row.in_worst_world for row in certificate.nodes)
    return {"chart": _safe(charts.shares(certificate, ROWS)), "apart": apart}


# --- Curves ---

LEAST = 1e-12  # the least delta that is drawn
DELTAS = (0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
RATES = (0.0001, 0.001, 0.01, 0.05, 0.1, 0.25, 0.5)


def _curves(certificate: Certificate, plan: Pipeline | None) -> dict[str, Any] | None:
    """Return both curves; of a session's plan none holds: its losses were chosen as it ran."""
    if plan is None or plan.adaptive:
        return None
    try:
        figures = [_profile(_guarantee(plan, certificate), certificate)]
        figures.append(_tradeoff(Guarantee(plan.term)))
    except AccountingError as error:
        return {"why": f"No accountant draws these curves: {error}", "figures": []}
    return {"why": "", "figures": figures}


def _guarantee(plan: Pipeline, certificate: Certificate) -> Guarantee:
    """Return the guarantee by the accountant of the claim and by the one that is mostly tight."""
    names = (certificate.accountant, "distribution")
    chosen = [each for each in accountants.ACCOUNTANTS if each.name in names]
    try:
        return Guarantee(plan.term, chosen)
    except AccountingError:
        return Guarantee(plan.term)


def _profile(guarantee: Guarantee, certificate: Certificate) -> dict[str, Any]:
    epsilon, delta = certificate.epsilon, certificate.delta
    largest_epsilon, mark = 0.0, None
    if epsilon < math.inf:
        largest_epsilon = 1.08 * epsilon
        mark = (epsilon, delta, f"claim: ε ≤ {_up(epsilon)}, δ = {wording.power(delta)}")
    rows = [(wording.power(each), guarantee.epsilon(each)) for each in DELTAS]
    cells = [
        [each, wording.outward(bounds.lower, upward=False), _up(bounds.upper)]
        for each, bounds in rows
        if math.isfinite(bounds.upper)
    ]
    return {
        "title": "Privacy profile",
        "chart": _safe(charts.profile(guarantee, LEAST, largest_epsilon, mark)),
        "caption": (
            "Every event that has probability q without a unit has at most e^ε q + δ with it, at "
            "every point of the line. The band reaches down to where no proof can go."
        ),
        "head": ["δ", "ε ≥", "ε ≤"],
        "rows": cells,
    }


def _tradeoff(guarantee: Guarantee) -> dict[str, Any]:
    lower, _ = guarantee.tradeoff(np.array(RATES), digits=2e-4)
    lower = np.maximum.accumulate(lower[::-1])[::-1]  # the rate falls: a bound at one rate holds
    cells = [
        [wording.number(rate), shown(float(low), upward=False, digits=4), _detected(float(low))]
        for rate, low in zip(RATES, lower, strict=True)
    ]
    return {
        "title": "Trade-off of membership tests",
        "chart": _safe(charts.tradeoff(guarantee)),
        "caption": (
            "Whoever tests whether one unit is in the data errs at least as often as the line "
            "says. The straight line is tossing a coin."
        ),
        "head": ["false positives", "false negatives ≥", "true positives ≤"],
        "rows": cells,
    }


def _detected(missed: float) -> str:
    """Write the most true positives: one minus the false negatives, rounded up."""
    return shown(min(1.0, math.nextafter(1 - missed, 2.0)), upward=True, digits=4)


# --- Releases ---


def _releases(certificate: Certificate) -> dict[str, Any] | None:
    """Return the table of releases: thirteen columns set as six, the lesser ones below."""
    head = ["node", "mechanism", "distance", "loss", "theorem", "share"]
    rows = [("", _release(wording.release(row))) for row in certificate.nodes]
    return {"head": head, "rows": rows} if rows else None


def _release(row: Mapping[str, str]) -> list[Cell]:
    again = f" × {row['times']}" if row["times"] != "1" else ""
    worst = row["in the worst world"]
    inside = worst == "yes"
    fold = ("loss and conversions", [f"loss: {row['source']}", row["conversions"]])
    return [
        Cell(row["node"], strong=True, small=[f"query: {row['query']}", f"where: {row['region']}"]),
        Cell(row["mechanism"] + again, small=[f"sampler: {row['sampler']}"]),
        Cell(row["distance"]),
        Cell(row["loss"]),
        Cell(row["theorem"], fold=fold),
        Cell(
            row["share"],
            tag="worst world" if inside else "",
            small=[] if inside else [f"in worst world: {worst}"],
        ),
    ]


# --- Nodes ---

MEANINGS = {
    "private": "private: its value is never released",
    "released": "released: its value may be seen, and its cost is in the claim",
    "public": "public: known to everyone beforehand",
}

LINKS = 20  # nodes that a card links to


def _nodes(graph: nx.DiGraph[str] | None, certificate: Certificate) -> Any:
    """Return a card for each node, in the order in which values flow: the drawing leads to it."""
    if graph is None:
        return None
    index = {key: i for i, key in enumerate(graph)}
    releases = {row.node: row for row in certificate.nodes}
    cards = []
    for key in graph:
        node = graph.nodes[key]
        release = releases.get(key)
        lines = list(_node_lines(node, release is not None))
        cards.append(
            {
                "anchor": diagram.anchor(index[key]),
                "visibility": _visibility(node),
                "title": node.get("label") or key,
                "lines": lines,
                "release": None if release is None else _release_card(release),
                "reads": _links(graph, list(graph.pred[key]), index),
                "read_by": _links(graph, list(graph.succ[key]), index),
            }
        )
    return cards


def _release_card(row: ReleaseRow) -> dict[str, Any]:
    return {
        "share": min(1.0, row.share),
        "percent": wording.percent(row.share),
        "lines": wording.release_lines(row),
        "conversions": [f"{name}: {how}" for name, how in row.conversions.items()],
    }


def _visibility(node: Mapping[str, Any]) -> str:
    visibility = node.get("visibility")
    return visibility if visibility in MEANINGS else "private"  # the careful reading


def _node_lines(node: Mapping[str, Any], is_release: bool) -> Iterator[tuple[str, str]]:
    yield "kind", str(node.get("kind") or wording.NONE)
    if node.get("detail") and not is_release:  # of a release, its mechanism says it
        yield "what", str(node["detail"])
    yield "visibility", MEANINGS[_visibility(node)]
    if node.get("group"):
        yield "inside", " › ".join(map(str, node["group"]))
    if set(node.get("outputs") or ()) - {node.get("label")}:
        yield "output", ", ".join(map(str, node["outputs"]))


def _given(certificate: Certificate) -> dict[str, Any]:
    """Return what the analyst gave: a sentence, and a table that is folded."""
    lead, (head, rows) = wording.given(certificate)
    return {"lead": lead, "head": head, "rows": rows} if rows else {}


def _passes(plan: Pipeline | None) -> list[str]:
    return [] if plan is None else [str(each) for each in plan.passes]


def _links(
    graph: nx.DiGraph[str], keys: Sequence[str], index: Mapping[str, int]
) -> dict[str, Any] | None:
    if not keys:
        return None
    nodes = [(diagram.anchor(index[k]), graph.nodes[k].get("label") or k) for k in keys[:LINKS]]
    return {"nodes": nodes, "more": len(keys) - len(nodes)}


# --- Full certificate ---


def _document(certificate: Certificate) -> list[str]:
    """Return the lines of the certificate's JSON, which a reader can save and verify."""
    text = json.dumps(plain(certificate.to_document()), indent=2, ensure_ascii=False)
    return ["".join(_escapes(line)) for line in text.split("\n")]


def _escapes(line: str) -> Iterator[str]:
    """Yield characters that can be seen as they are, others as JSON escapes."""
    for char in line:
        yield char if char.isprintable() else json.dumps(char)[1:-1]
