"""Text tables: of any rows, of plans and of results, which are HTML in a notebook."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, TypeGuard

from adaptive_dp.graph.plain import plain
from adaptive_dp.graph.roles import PartOperation, part_key
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.graph.visible import cut, visible

Row = Sequence[str]
LIMIT = 40
"""Tables of more rows than this show the first ones and say how many more there are."""
ROOM = 120
"""Characters of a line; the longest cells of a wider table are cut."""
LEAST = 30
"""The last column is cut to no less than this before others are cut."""
RESULT = ("output", "value", "expected noise (1 sd)")
LISTED = 12
"""Entries of a value that get a row each; of more, the first few stand in one row."""


def table(header: Row, rows: Sequence[Row], *, whole: bool = False, rest: str = "") -> str:
    """Return rows under a header, columns aligned by spaces; the first ones if not ``whole``.

    ``rest`` says, in brackets, how to see those that are left out.
    """
    limit = len(rows) if whole else LIMIT
    cells = [[visible(cell) for cell in row] for row in rows[:limit]]
    columns = list(zip(header, *cells, strict=True))
    widths = _fitted([max(map(len, column)) for column in columns])
    lines = [_line(header, widths), _line(["-" * w for w in widths], widths)]
    lines += [_line(row, widths) for row in cells]
    if len(rows) > limit:
        lines.append(f"... and {len(rows) - limit} more{f' ({rest})' if rest else ''}")
    return "\n".join(lines)


def _fitted(widths: Sequence[int]) -> list[int]:
    """Return widths that fit in a line: the last column is cut first, then the widest."""
    room = ROOM - 2 * (len(widths) - 1)
    *others, last = widths
    found = [*others, max(min(last, LEAST), room - sum(others))] if sum(widths) > room else widths
    most = max(found)
    while most > 8 and sum(min(width, most) for width in found) > room:
        most -= 1
    return [min(width, most) for width in found]


def _line(row: Row, widths: Sequence[int]) -> str:
    (name, *rest), (first, *others) = row, widths
    cells = [cut(cell, width).ljust(width) for cell, width in zip(rest, others, strict=True)]
    return "  ".join([cut(name, first, end=True).ljust(first), *cells]).rstrip()


def plan_text(structure: Structure) -> str:
    """Return the plan: each node with its color, what it is and what it reads."""
    rows = [(n.name, n.handle.color, _what(n), ", ".join(n.inputs)) for n in structure]
    return table(("node", "color", "what", "reads"), rows)


def _what(node: Node) -> str:
    operation = node.handle.operation
    detail = operation.detail()
    if isinstance(operation, PartOperation):
        return f"part {part_key(node.handle)}"
    if operation.kind == "release":
        return detail
    label, kind = operation.label(), operation.kind
    known = label.startswith((kind, kind.replace("_", " ")))
    said = label if known else f"{kind}: {label}"
    return f"{said}{', ' + detail if detail else ''}"


def result_text(
    values: Mapping[str, Any], noise: Mapping[str, Any], entries: Mapping[str, Any]
) -> str:
    """Return released values with their expected noise."""
    return table(RESULT, _result(values, noise, entries))


def result_html(
    values: Mapping[str, Any],
    noise: Mapping[str, Any],
    entries: Mapping[str, Any],
    lines: Sequence[str],
) -> str:
    """Return lines, then released values with their expected noise, for a notebook."""
    rows = _result(values, noise, entries)
    said = "".join(f"<div>{escape(visible(line))}</div>" for line in lines)
    head, body = _cells("th", RESULT), "".join(_cells("td", row) for row in rows[:LIMIT])
    more = f"<div>... and {len(rows) - LIMIT} more</div>" if len(rows) > LIMIT else ""
    return f"{said}<table><thead>{head}</thead><tbody>{body}</tbody></table>{more}"


def _cells(tag: str, row: Row) -> str:
    cells = [escape(cut(visible(cell), ROOM // 2)) for cell in row]
    marked = "".join(f'<{tag} style="text-align:left">{cell}</{tag}>' for cell in cells)
    return f"<tr>{marked}</tr>"


def _result(
    values: Mapping[str, Any], noise: Mapping[str, Any], entries: Mapping[str, Any]
) -> list[tuple[str, str, str]]:
    return list(_values("", plain(values), plain(noise), entries))


def _values(
    prefix: str, values: Mapping[str, Any], noise: Any, entries: Any
) -> Iterator[tuple[str, str, str]]:
    for name, value in values.items():
        known = noise.get(name) if isinstance(noise, Mapping) else None
        inside = entries.get(name) if isinstance(entries, Mapping) else None
        if isinstance(value, Mapping) and value:
            yield from _values(f"{prefix}{name}.", value, known, inside)
        elif _flat(value) and len(value) <= LISTED:
            counted = inside if inside and len(inside) == len(value) else range(len(value))
            for i, (item, entry) in enumerate(zip(value, counted, strict=True)):
                deviation = known[i] if _flat(known) and len(known) == len(value) else known
                yield f"{prefix}{name}[{entry}]", short(item), _plus_minus(deviation)
        else:
            yield f"{prefix}{name}", short(value), _plus_minus(known)


def _flat(value: Any) -> TypeGuard[list[Any]]:
    """Whether a value is a list of numbers and texts, and has any."""
    return (
        isinstance(value, list)
        and bool(value)
        and not any(isinstance(item, list | Mapping) for item in value)
    )


def _plus_minus(deviation: Any) -> str:
    """Return a deviation; of several, their root mean square."""
    found = [float(v) for v in _leaves(deviation) if isinstance(v, int | float)]
    if not found:
        return ""
    return f"+- {math.sqrt(math.fsum(v * v for v in found) / len(found)):.3g}"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def short(value: Any) -> str:
    """Return a plain value on one line."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float):
        return f"{value:.6g}" if abs(value) < 1e300 else str(value)
    if isinstance(value, list) and value:
        first = [short(item) for item in islice(_leaves(value), 4)]
        if _flat(value) and len(value) < 4:
            return f"[{', '.join(first)}]"
        return f"{_shape(value)}: [{', '.join(first[:3])}{', ...' if len(first) > 3 else ''}]"
    return cut(str(value), ROOM)


def _shape(value: list[Any]) -> str:
    """Return the shape of a matrix, or the number of entries."""
    inner = {len(row) if isinstance(row, list) else -1 for row in value}
    width = inner.pop() if len(inner) == 1 else -1
    return f"{len(value)} x {width}" if width >= 0 else f"{len(value)} entries"
