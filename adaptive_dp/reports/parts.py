"""Pieces of the page: escaped text, folds, data for its script, and tables.

Tables become cards on a narrow screen; matrices scroll.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import Any

from adaptive_dp.graph.visible import visible

ROWS = 40  # rows of a table before the rest is folded

Row = tuple[str, Sequence[str]]  # the row's class, and its cells as HTML


def escape(value: object) -> str:
    """Escape a text, or anything as its text, for HTML; nothing in it hides or reorders."""
    return html.escape(visible(value), quote=True)


def small(text: str) -> str:
    """Write a line in small letters."""
    return f"<small>{escape(text)}</small>"


def fold(summary: str, body: str, kind: str = "") -> str:
    """Put HTML behind a line to click on; print opens it, but for what is ``raw``."""
    start = f'<details class="{kind}">' if kind else "<details>"
    return f"{start}<summary>{escape(summary)}</summary>{body}</details>"


def data(name: str, value: Any) -> str:
    """Write a JSON value for the page's script; no text in it ends the element that holds it."""
    text = json.dumps(value, separators=(",", ":"))  # ASCII alone, so nothing hides
    for char in "<>&":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return f'<script type="application/json" id="{escape(name)}">{text}</script>'


def scroll(what: str, body: str) -> str:
    """Put HTML where it scrolls by itself, with the keyboard too; ``what`` names it."""
    return f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(what)}">{body}</div>'


def bar(share: float) -> str:
    """Draw a share, from 0 to 1, as a bar; the number stands beside it."""
    return (
        '<svg class="share" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="rail" width="100" height="12"/>'
        f'<rect class="fill" width="{100 * min(1.0, max(0.0, share)):.2f}" height="12"/></svg>'
    )


def matrix(head: Sequence[str], rows: Sequence[Sequence[str]], what: str) -> str:
    """Write a table of short texts that scrolls where it is wide; the first column names rows."""
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        + "</tr>"
        for name, *cells in rows
    )
    return scroll(
        what,
        f'<table class="matrix"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>',
    )


def table(head: Sequence[str], rows: Sequence[Row], what: str) -> str:
    """Write a table that becomes cards on a narrow screen; many rows are folded."""
    if not rows:
        return ""
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    kind = "cards pairs" if len(head) == 2 else "cards"

    def write(some: Sequence[Row]) -> str:
        body = "".join(
            f'<tr class="{row}">'
            + "".join(
                f'<td data-label="{escape(title)}">{cell}</td>'
                for title, cell in zip(head, cells, strict=True)
            )
            + "</tr>"
            for row, cells in some
        )
        return (
            f'<table class="{kind}"><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table>'
        )

    rest = rows[ROWS:]
    more = f"{len(rest):,} more {what}"
    return write(rows[:ROWS]) + (fold(more, write(rest)) if rest else "")
