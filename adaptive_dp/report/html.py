"""A certificate as one self-contained HTML page: no script, no network, nothing to install.

What is said comes from `adaptive_dp.report.markdown`, as plain strings; here it is escaped (by
`_escape` alone) and set. A strict content security policy forbids the page to load anything.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import networkx as nx

from adaptive_dp.graph.draw import svg
from adaptive_dp.report import markdown as said

__all__ = ["report"]

ROWS = 40  # rows of a table before the rest is folded
ENTRIES = 12  # entries of a value before the rest is folded
MOST = 2000  # entries of a value that the page holds at all

_STYLE = """
:root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1f2937;--soft:#4b5563;--line:#d5dae1;
--accent:#0369a1;--tint:#e8f4fc;--rail:#c9dceb;--warn:#9f1239;--warn-bg:#ffe4e6}
@media screen and (prefers-color-scheme:dark){:root{--bg:#0e1116;--card:#14181f;--ink:#e5e7eb;
--soft:#b6bec9;--line:#353d49;--accent:#38bdf8;--tint:#0d2b3e;--rail:#274a61;--warn:#fecdd3;
--warn-bg:#5b1225}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);line-height:1.5;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 20px 64px}
h1{font-size:1.05rem;margin:0 0 4px;color:var(--soft);font-weight:600}
h2{font-size:1.15rem;margin:0 0 12px}
section{background:var(--card);border:1px solid var(--line);border-radius:12px;padding:18px 20px;
margin:16px 0;overflow-wrap:anywhere}
.banner{background:var(--warn-bg);color:var(--warn);border:2px solid var(--warn);
border-radius:12px;padding:16px 20px;font-size:1.5rem;font-weight:700;text-align:center}
.claim{font-size:clamp(1.5rem,5vw,2.4rem);font-weight:700;margin:0 0 6px;line-height:1.2}
.claim span{white-space:nowrap;margin-right:.7em}
p,ul{margin:0 0 8px}ul{padding-left:1.2em}
.scroll{overflow-x:auto}
.scroll svg{display:block;max-width:none}
table{border-collapse:collapse;width:100%;font-size:.92rem;overflow-wrap:break-word}
th{text-align:left;white-space:nowrap;color:var(--soft);font-weight:600;font-size:.82rem}
th,td{padding:7px 12px 7px 0;border-bottom:1px solid var(--line);vertical-align:top}
.number{font-variant-numeric:tabular-nums;white-space:nowrap}
tr.best td{background:var(--tint)}tr.best td:first-child{box-shadow:inset 4px 0 var(--accent);
padding-left:12px}
tr.off td{color:var(--soft)}
small{display:block;color:var(--soft);font-size:.84rem}
.tag{display:inline-block;border:1px solid var(--accent);color:var(--accent);border-radius:99px;
padding:0 8px;font-size:.78rem;font-weight:600}
.bars{display:grid;grid-template-columns:minmax(6em,max-content) 1fr max-content;gap:6px 12px;
align-items:center;font-size:.92rem}
.bars i{display:block;height:12px;border-radius:6px;background:var(--rail);overflow:hidden}
.bars b{display:block;height:100%;background:var(--accent);border-radius:6px}
details{margin:8px 0}summary{cursor:pointer;color:var(--accent);font-weight:600}
code,pre{font:.86rem/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{overflow-x:auto;margin:8px 0 0;padding:12px;background:var(--bg);border-radius:8px}
table.cards td:last-child{min-width:6.5em}
table.matrix{width:auto}
table.matrix td{padding:3px 14px 3px 0;text-align:right}table.names td:first-child{text-align:left}
@media (max-width:720px){main{padding:12px 10px 40px}section{padding:14px}
table.cards thead{display:none}table.cards>tbody>tr{display:block;border:1px solid var(--line);
border-radius:8px;padding:8px 12px;margin:0 0 10px}
table.cards>tbody>tr>td{display:block;border:0;padding:3px 0;white-space:normal}
table.cards>tbody>tr>td::before{content:attr(data-label)": ";color:var(--soft);font-size:.82rem}
tr.best td{background:none}tr.best{background:var(--tint)}
tr.best td:first-child{box-shadow:none;padding-left:0}}
@media print{body{background:#fff;font-size:11pt}main{max-width:none;padding:0}
section{break-inside:avoid-page;border-color:#bbb}.scroll{overflow:visible}
.scroll svg{max-width:100%;height:auto}}
"""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report(
    certificate: Mapping[str, Any],
    graph: nx.DiGraph[str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> str:
    """Write a certificate, its graph and the released values as one HTML page.

    Parameters
    ----------
    certificate : mapping
        The certificate as a JSON-like document.
    graph : networkx.DiGraph, optional
        The graph to draw, as `adaptive_dp.graph.draw.svg` takes it.
    values : mapping, optional
        From the name of an output to ``{"value": ..., "noise": ...}``: a number, or nested
        lists and mappings of numbers, and one standard deviation of the noise in the same shape
        (or None).

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
    parts = [
        _headline(certificate),
        _section("The analysis", _drawing(graph) if graph is not None else ""),
        _section("Released values", _values(values or {})),
        _section("Accountants", _accountants(certificate)),
        _section("Share of the privacy budget", _bars(certificate)),
        _section("Releases", _nodes(certificate)),
        _section("Worst world", _list(said.worlds(certificate))),
        _section("Assumptions", _list(said.assumptions(certificate))),
        _section("Randomness", _list(said.randomness(certificate))),
        _section("Versions", _versions(certificate)),
        _section("Fingerprint", _code(certificate.get("fingerprint"))),
        _section("Full certificate", _document(certificate)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="referrer" content="no-referrer">'
        f"<title>Privacy certificate</title><style>{_STYLE}</style></head><body><main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main></body></html>\n"
    )


def _escape(value: object) -> str:
    return html.escape(str(value), quote=True)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_escape(title)}</h2>{body}</section>" if body else ""


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_escape(item)}</li>' for item in items)}</ul>" if items else ""


def _code(text: object) -> str:
    return f"<code>{_escape(text)}</code>" if text else ""


def _small(text: str) -> str:
    return f"<small>{_escape(text)}</small>"


def _headline(certificate: Mapping[str, Any]) -> str:
    epsilon, delta = said.claim(certificate)
    banner = f'<p class="banner" role="alert">{said.BANNER}</p>'
    return (
        (banner if said.is_simulated(certificate) else "")
        + "<section><h1>Privacy certificate</h1>"
        + f'<p class="claim"><span>ε = {_escape(epsilon)}</span> <span>δ = {_escape(delta)}</span>'
        + f"</p><p>{_escape(said.tightest(certificate))}</p>"
        + "".join(f"<p>{_escape(line)}</p>" for line in said.protects(certificate))
        + "</section>"
    )


def _drawing(graph: nx.DiGraph[str]) -> str:
    drawn = svg(graph).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    return f'<div class="scroll" tabindex="0" role="group" aria-label="Drawing">{drawn}</div>'


# --- tables --------------------------------------------------------------------------------

Row = tuple[str, Sequence[str]]  # the row's class, and its cells as HTML


def _table(head: Sequence[str], rows: Sequence[Row], what: str) -> str:
    """Write a table that becomes cards on a narrow screen; many rows are folded."""
    if not rows:
        return ""
    titles = "".join(f'<th scope="col">{_escape(title)}</th>' for title in head)

    def write(some: Sequence[Row]) -> str:
        body = "".join(
            f'<tr class="{kind}">'
            + "".join(
                f'<td data-label="{_escape(title)}">{cell}</td>'
                for title, cell in zip(head, cells, strict=True)
            )
            + "</tr>"
            for kind, cells in some
        )
        return (
            f'<div class="scroll"><table class="cards"><thead><tr>{titles}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>"
        )

    rest = rows[ROWS:]
    more = f"{len(rest):,} more {what}"
    return write(rows[:ROWS]) + (_fold(more, write(rest)) if rest else "")


def _fold(summary: str, body: str) -> str:
    return f"<details><summary>{_escape(summary)}</summary>{body}</details>"


def _accountants(certificate: Mapping[str, Any]) -> str:
    head, rows = said.accountants(certificate)
    marked: list[Row] = []
    for name, *cells, remark in rows:
        best, off = remark.startswith("tightest"), remark.startswith("does not apply")
        tag = ' <span class="tag">tightest</span>' if best else ""
        rest = remark.removeprefix("tightest").removeprefix("; ") if best else remark
        kind = "best" if best else "off" if off else ""
        marked.append((kind, [_escape(name) + tag, *map(_escape, [*cells, rest or said.NONE])]))
    return _table(head, marked, "accountants")


def _nodes(certificate: Mapping[str, Any]) -> str:
    """Write the table of releases: thirteen columns set as six, the lesser ones below."""
    _, rows = said.nodes(certificate)
    head = ["node", "mechanism", "distance", "loss", "theorem", "share"]
    return _table(head, [("", _node(row)) for row in rows], "releases")


def _node(row: Sequence[str]) -> list[str]:
    node, query, mechanism, times, distance, loss, theorem, source, conversions = row[:9]
    share, worst, region, sampler = row[9:]
    again = f" × {times}" if times != "1" else ""
    tag = {"yes": '<small><span class="tag">worst world</span></small>'}
    return [
        f"<strong>{_escape(node)}</strong>{_small(f'query: {query}')}{_small(f'where: {region}')}",
        _escape(mechanism + again) + _small(f"sampler: {sampler}"),
        _escape(distance),
        _escape(loss),
        _escape(theorem) + _small(f"source: {source}") + _small(f"conversions: {conversions}"),
        _escape(share) + tag.get(worst, _small(f"in worst world: {worst}")),
    ]


def _bars(certificate: Mapping[str, Any]) -> str:
    """Draw the shares as bars, the largest first."""
    nodes: list[Mapping[str, Any]] = list(certificate.get("nodes") or ())
    found = [(float(item["share"]), str(item.get("node"))) for item in nodes if item.get("share")]
    found.sort(key=lambda pair: -pair[0])

    def write(some: Sequence[tuple[float, str]]) -> str:
        bars = (
            f'<span>{_escape(name)}</span><i><b style="width:{100 * min(1.0, share):.2f}%"></b></i>'
            f"<span>{said.percent(share)}</span>"
            for share, name in some
        )
        return f'<div class="bars">{"".join(bars)}</div>'

    rest = found[ROWS:]
    more = f"{len(rest):,} more, together {said.percent(sum(share for share, _ in rest))}"
    return (write(found[:ROWS]) if found else "") + (_fold(more, write(rest)) if rest else "")


def _versions(certificate: Mapping[str, Any]) -> str:
    head, rows = said.versions(certificate)
    return _table(head, [("", list(map(_escape, row))) for row in rows], "packages")


def _document(certificate: Mapping[str, Any]) -> str:
    text = json.dumps(certificate, indent=2, ensure_ascii=False, default=_json)
    return _fold("JSON", f"<pre>{_escape(text)}</pre>")


def _json(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


# --- released values -----------------------------------------------------------------------


def _values(values: Mapping[str, Any]) -> str:
    rows: list[Row] = []
    for name, item in values.items():
        value, noise = (
            (item.get("value"), item.get("noise")) if isinstance(item, Mapping) else (item, None)
        )
        rows.append(
            ("", [f"<strong>{_escape(name)}</strong>", _value(_plain(value), _plain(noise))])
        )
    note = "<p><small>± is the expected noise: one standard deviation.</small></p>"
    return _table(["output", "value"], rows, "outputs") + (note if rows else "")


def _plain(value: Any) -> Any:
    """Turn arrays, at any depth, into lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value


def _value(value: Any, noise: Any) -> str:
    """Write a value and its noise: a number, a list, a matrix, or names with any of them."""
    if isinstance(value, Mapping):
        pairs = [(_escape(key), _value(item, _at(noise, key))) for key, item in value.items()]
        return _folded(pairs, f"{len(pairs):,} values", _names)
    if isinstance(value, list) and value and all(isinstance(row, list) for row in value):
        shape = f"{len(value):,} × {len(value[0]):,}"
        even = len({len(row) for row in value}) == 1 and not any(map(_is_deep, value))
        cells = [
            [_value(item, _at(_at(noise, i), j)) for j, item in enumerate(row[:MOST])]
            for i, row in enumerate(value[: max(1, MOST // max(1, len(value[0])))])
        ]
        left = len(value) - len(cells)
        rest = f"<p><small>and {left:,} more rows</small></p>" if left else ""
        whole = sum(map(len, value)) <= 4 * ENTRIES and len(value[0]) <= ENTRIES
        title = f"{shape} matrix" if even else f"{len(value):,} lists"
        return _matrix(cells) if whole else _fold(title, _matrix(cells) + rest)
    if isinstance(value, list):
        items = [_value(item, _at(noise, index)) for index, item in enumerate(value[:MOST])]
        left = len(value) - len(items)
        title = f"{len(value):,} entries"
        return _folded(items, title, lambda some: _entries(some, left if some is items else 0))
    shown = _escape(said.number(value))
    return f'<span class="number">{shown}{_noise(noise)}</span>'


def _folded(items: list[Any], title: str, write: Callable[[list[Any]], str]) -> str:
    """Write a few items as they are; of many, the first few, and all of them folded."""
    if len(items) <= ENTRIES:
        return write(items)
    return write(items[: ENTRIES // 2]) + _fold(
        f"all {title}", f'<div class="scroll">{write(items)}</div>'
    )


def _names(pairs: list[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in pairs)
    return f'<table class="matrix names"><tbody>{rows}</tbody></table>'


def _entries(items: list[str], left: int) -> str:
    return f"[{', '.join(items)}]" + (f" and {left:,} more" if left else "")


def _matrix(cells: Sequence[Sequence[str]]) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return f'<div class="scroll"><table class="matrix"><tbody>{rows}</tbody></table></div>'


def _is_deep(row: Sequence[Any]) -> bool:
    return any(isinstance(item, list | Mapping) for item in row)


def _at(noise: Any, key: Any) -> Any:
    """Return the noise of one entry; a single number holds for all of them."""
    if isinstance(noise, Mapping):
        return noise.get(key)
    if isinstance(noise, list):
        return noise[key] if isinstance(key, int) and key < len(noise) else None
    return noise


def _noise(noise: Any) -> str:
    return f" ± {_escape(said.number(noise))}" if isinstance(noise, int | float) else ""
