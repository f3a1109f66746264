"""Released values with their noise: numbers, lists, matrices, and names with any of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

from adaptive_dp.graph.plain import plain
from adaptive_dp.graph.visible import cut
from adaptive_dp.reports.markdown import number
from adaptive_dp.reports.parts import Row, escape, fold, scroll, table
from adaptive_dp.reports.whiskers import whiskers

ENTRIES = 12  # entries of a value before the rest is folded
MOST = 2000  # entries of a value that the page holds at all
LETTERS = 400  # characters of a text


def values(found: Mapping[str, Any]) -> str:
    """Write the table of released values; each comes as ``{"value": ..., "noise": ...}``."""
    rows: list[Row] = []
    for name, item in found.items():
        value, noise = (
            (item.get("value"), item.get("noise")) if isinstance(item, Mapping) else (item, None)
        )
        shown = _value(plain(value), plain(noise)) + whiskers(plain(value), plain(noise))
        rows.append(("", [f"<strong>{escape(name)}</strong>", shown]))
    note = "<p><small>± and error bars are the expected noise: one standard deviation.</small></p>"
    return table(["output", "value"], rows, "outputs") + (note if rows else "")


def _value(value: Any, noise: Any) -> str:
    """Write a value and its noise: a number, a list, a matrix, or names with any of them."""
    if isinstance(value, Mapping):
        pairs = [(escape(key), _value(item, _at(noise, key))) for key, item in value.items()]
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
        return _matrix(cells) if whole else fold(title, _matrix(cells) + rest)
    if isinstance(value, list):
        items = [_value(item, _at(noise, index)) for index, item in enumerate(value[:MOST])]
        left = len(value) - len(items)
        title = f"{len(value):,} entries"
        return _folded(items, title, lambda some: _entries(some, left if some is items else 0))
    if isinstance(value, str):
        return f"<span>{escape(cut(number(value), LETTERS) + _noise(noise))}</span>"
    return f'<span class="number">{escape(_measured(value, noise))}</span>'


def _folded(items: list[Any], title: str, write: Callable[[list[Any]], str]) -> str:
    """Write a few items as they are; of many, the first few, and all of them folded."""
    if len(items) <= ENTRIES:
        return write(items)
    return write(items[: ENTRIES // 2]) + fold(f"all {title}", scroll("Values", write(items)))


def _names(pairs: list[tuple[str, str]]) -> str:
    rows = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in pairs)
    return f'<table class="matrix names"><tbody>{rows}</tbody></table>'


def _entries(items: list[str], left: int) -> str:
    return f"[{', '.join(items)}]" + (f" and {left:,} more" if left else "")


def _matrix(cells: Sequence[Sequence[str]]) -> str:
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return scroll("Values", f'<table class="matrix"><tbody>{rows}</tbody></table>')


def _is_deep(row: Sequence[Any]) -> bool:
    return any(isinstance(item, list | Mapping) for item in row)


def _at(noise: Any, key: Any) -> Any:
    """Return the noise of one entry; a single number holds for all of them."""
    if isinstance(noise, Mapping):
        return noise.get(key)
    if isinstance(noise, list):
        return noise[key] if isinstance(key, int) and key < len(noise) else None
    return noise


def _measured(value: Any, noise: Any) -> str:
    """Write a number with as many digits as its noise leaves it, and two of the noise."""
    known = _real(value) and _real(noise) and 0 < noise < 1e15
    if not known:
        return number(value) + _noise(noise)
    places = max(0, 1 - math.floor(math.log10(noise)))
    if abs(value) >= 1e15 or places > 9:
        return f"{value:.4g} ± {noise:.2g}"
    return f"{value:,.{places}f} ± {noise:,.{places}f}"


def _real(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


def _noise(noise: Any) -> str:
    return f" ± {number(noise)}" if isinstance(noise, int | float) else ""
