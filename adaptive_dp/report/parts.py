"""Pieces of the page: escaped text, folds, and tables that become cards on a narrow screen."""

from __future__ import annotations

import html
from collections.abc import Sequence

from adaptive_dp.graph.visible import visible

ROWS = 40  # rows of a table before the rest is folded

Row = tuple[str, Sequence[str]]  # the row's class, and its cells as HTML


def escape(value: object) -> str:
    """Escape a text, or anything as its text, for HTML; nothing in it hides or reorders."""
    return html.escape(visible(value), quote=True)


def small(text: str) -> str:
    """Write a line in small letters."""
    return f"<small>{escape(text)}</small>"


def fold(summary: str, body: str) -> str:
    """Put HTML behind a line to click on."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def table(head: Sequence[str], rows: Sequence[Row], what: str) -> str:
    """Write a table that becomes cards on a narrow screen; many rows are folded."""
    if not rows:
        return ""
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)

    def write(some: Sequence[Row]) -> str:
        body = "".join(
            f'<tr class="{kind}">'
            + "".join(
                f'<td data-label="{escape(title)}">{cell}</td>'
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
    return write(rows[:ROWS]) + (fold(more, write(rest)) if rest else "")
