"""Plans, certificates and results as text tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from accountants.rounding import shown
from adaptive_dp.graph.roles import PartOperation, part_key
from adaptive_dp.graph.structure import Node, Structure

Row = Sequence[str]
LIMIT = 40
"""Tables of more rows than this show the first ones and say how many more there are."""


def table(header: Row, rows: Sequence[Row]) -> str:
    """Return rows under a header, columns aligned by spaces."""
    shown = [list(map(str, row)) for row in rows[:LIMIT]]
    widths = [max(map(len, column)) for column in zip(header, *shown, strict=True)]
    lines = [_line(header, widths), _line(["-" * w for w in widths], widths)]
    lines += [_line(row, widths) for row in shown]
    if len(rows) > LIMIT:
        lines.append(f"... and {len(rows) - LIMIT} more")
    return "\n".join(lines)


def _line(row: Row, widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def plan_text(structure: Structure) -> str:
    """Return the plan: each node with its colour, what it is and what it reads."""
    rows = [(n.name, n.handle.colour, _what(n), _cut(", ".join(n.inputs))) for n in structure]
    return table(("node", "colour", "what", "reads"), rows)


def _cut(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _what(node: Node) -> str:
    operation = node.handle.operation
    detail = operation.detail()
    if isinstance(operation, PartOperation):
        return f"part {part_key(node.handle)}"
    if operation.kind == "release":
        return detail
    return f"{operation.kind}: {operation.label()}{', ' + detail if detail else ''}"


def certificate_text(document: Mapping[str, Any]) -> str:
    """Return the certificate: the claim, the accountants side by side, each node's share."""
    claim = document["claim"]
    parts = [
        f"epsilon <= {_bound(claim['epsilon'], upward=True)} at delta = {claim['delta']:g}, "
        f"by the {claim['accountant']} accountant",
        *(f"protects {protects(p)}" for p in document["protects"]),
        "",
        table(("accountant", "lower", "upper", ""), list(_accountants(document))),
        "",
        table(
            ("release", "mechanism", "distance", "costs", "times", "share"), list(_nodes(document))
        ),
    ]
    worst = document["worlds"]["worst"]
    if worst:
        parts += ["", f"worst world: {'; '.join(worst)}"]
    if not document["worlds"]["exact"]:
        parts.append("(too many worlds: some are bounded together, by their envelope)")
    if not document["randomness"]["release"]:
        parts += ["", f"NOT FOR RELEASE: noise from {document['randomness']['source']}"]
    return "\n".join(parts)


def protects(row: Mapping[str, Any]) -> str:
    """Return whom a data set protects, in words."""
    who = f"one {row['unit']}" if row["unit"] else "one row"
    rows = f" with at most {row['rows_per_unit']} rows" if row["unit"] else ""
    relation = {
        "add_remove": "added or removed",
        "replace_one": "replaced",
        "zero_out": "zeroed",
    }[row["neighbors"]]
    return f"{who}{rows} of {row['data']!r}, {relation}"


def _accountants(document: Mapping[str, Any]) -> Iterator[Row]:
    for row in document["accountants"]:
        if not row["applies"]:
            yield row["name"], "-", "-", f"does not apply: {row['reason']}"
        else:
            mark = "tightest" if row["name"] == document["claim"]["accountant"] else ""
            lower, upper = _bound(row["lower"], upward=False), _bound(row["upper"], upward=True)
            yield row["name"], lower, upper, mark


def _nodes(document: Mapping[str, Any]) -> Iterator[Row]:
    for row in document["nodes"]:
        inside = ", ".join(
            f"{k}={_short(v)}" for k, v in row["parameters"].items() if not isinstance(v, dict)
        )
        loss = ", ".join(f"{k} {_short(v)}" for k, v in row["loss"].items() if k != "kind")
        share = f"{row['share']:.1%}" + ("" if row["in_worst_world"] else " (elsewhere)")
        yield (
            row["node"],
            f"{row['mechanism']}({inside})",
            f"{_short(row['distance'])} (l{row['norm']})",
            loss,
            str(row["times"]),
            share,
        )


def certificate_html(document: Mapping[str, Any]) -> str:
    """Return the certificate's text for a notebook."""
    return f"<pre>{escape(certificate_text(document))}</pre>"


def result_text(values: Mapping[str, Any], noise: Mapping[str, Any]) -> str:
    """Return released values with their expected noise."""
    return table(("output", "value", "expected noise (1 sd)"), list(_values("", values, noise)))


def _values(prefix: str, values: Mapping[str, Any], noise: Any) -> Iterator[Row]:
    for name, value in values.items():
        known = noise.get(name) if isinstance(noise, Mapping) else None
        if isinstance(value, Mapping):
            yield from _values(f"{prefix}{name}.", value, known)
        elif isinstance(value, np.ndarray) and value.ndim == 1 and len(value) <= 12:
            for i, item in enumerate(value):
                deviation = known[i] if isinstance(known, np.ndarray) else None
                yield f"{prefix}{name}[{i}]", _short(float(item)), _plus_minus(deviation)
        elif isinstance(value, np.ndarray):
            spread = float(np.sqrt(np.mean(known**2))) if isinstance(known, np.ndarray) else None
            shape = " x ".join(map(str, value.shape))
            yield f"{prefix}{name}", f"array {shape}", _plus_minus(spread)
        else:
            text = _short(value) if isinstance(value, int | float) else str(value)[:60]
            yield f"{prefix}{name}", text, _plus_minus(known)


def _plus_minus(deviation: Any) -> str:
    return "" if deviation is None else f"+- {float(deviation):.3g}"


def _bound(value: Any, *, upward: bool) -> str:
    """Return a bound, rounded outward: what is shown never promises more than what holds."""
    return shown(value, upward=upward) if isinstance(value, float) else str(value)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)
