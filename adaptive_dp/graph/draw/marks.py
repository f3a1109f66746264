"""Marks: what is written for one box, one frame, the edges of one box, and the legend."""

from __future__ import annotations

from collections.abc import Sequence

from adaptive_dp.graph.draw.box import COLOURS, Box
from adaptive_dp.graph.draw.text import (
    DETAIL,
    bar_height,
    box_height,
    cut,
    escape,
    lock_width,
    plain,
    sizes,
    width,
)

_LOCK = '<path class="lock" d="M0 5h9v6H0z"/><path class="arc" d="M2 5V3.2a2.5 2.5 0 0 1 5 0V5"/>'


def num(value: float) -> str:
    """Write a coordinate."""
    return f"{value:.1f}".removesuffix(".0")


def rect(left: float, top: float, width: float, height: float, rest: str) -> str:
    """Write a rectangle."""
    return (
        f'<rect x="{num(left)}" y="{num(top)}" width="{num(width)}" height="{num(height)}" {rest}/>'
    )


def box_mark(box: Box, left: float, right: float, centre: float, link: str | None = None) -> str:
    """Write one box: its frame (three where it stands for many), lines, lock and bar.

    With a link it leads there; an empty one marks a group that can be opened.
    """
    height, across = box_height(box), right - left
    top, radius = centre - height / 2, f'rx="{14 if box.color == "released" else 6}"'
    parts = [f"<title>{escape(_tip(box))}</title>"]
    for lift in (5.0, 2.5, 0.0) if box.count > 1 else (0.0,):
        parts.append(rect(left + lift, top + lift, across, height, radius))
    for index, (text, size) in enumerate(sizes(box)):
        sign = "▸ " if link == "" and not index else ""
        room = across - 23 - width(sign, size) - (0 if index else lock_width(box))
        shown = escape(sign + cut(text, size, room))
        kind, y = "detail" if index else "label", top + 22 + 16 * index
        parts.append(f'<text class="{kind}" x="{num(left + 13)}" y="{num(y)}">{shown}</text>')
    if lock_width(box):
        at = f"translate({num(right - 19)},{num(top + 10)})"
        parts.append(f'<g transform="{at}">{_LOCK}</g>')
    if box.share is not None:
        parts.append(_bar(box.share, left + 13, right - 13, top + height - 10))
    if link:
        says = escape(_tip(box).replace("\n", ", "))
        return (
            f'<a class="box {box.color}" href="{escape(link)}" aria-label="{says}">'
            f"{''.join(parts)}</a>"
        )
    name = f' data-open="{escape(box.label)}"' if link is not None else ""
    return f'<g class="box {box.color}"{name}>{"".join(parts)}</g>'


def _tip(box: Box) -> str:
    lines = [f"{box.kind}: {box.label}" if box.kind else box.label, box.detail]
    lines.append(f"output: {', '.join(box.outputs)}" if box.outputs else "")
    lines.append(f"share of the privacy budget: {box.share:.1%}" if box.share is not None else "")
    return "\n".join(line for line in lines if line)


def _bar(share: float, left: float, right: float, bottom: float) -> str:
    full, tall = right - left - 42, bar_height(share)
    top = bottom - tall
    percent = "&lt;0.1%" if 0 < share < 0.001 else f"{100 * share:.3g}%"
    return (
        rect(left, top, full, tall, 'class="rail" rx="2.5"')
        + rect(left, top, full * share, tall, 'class="bar" rx="2.5"')
        + f'<text class="detail" x="{num(right)}" y="{num(top + tall / 2 + 4)}" text-anchor="end">'
        f"{percent}</text>"
    )


def frame_mark(
    path: Sequence[str], left: float, top: float, right: float, bottom: float, live: bool = False
) -> str:
    """Write a group's frame and name; where the drawing is live, one that can be closed."""
    sign = "▾ " if live else ""
    name = escape(sign + cut(path[-1], DETAIL, right - left - 20 - width(sign, DETAIL)))
    closes = f' data-close="{escape(path[-1])}"' if live else ""
    return (
        f"<g{closes}><title>{escape(' / '.join(path))}</title>"
        + rect(left, top, right - left, bottom - top, 'class="frame" rx="12"')
        + f'<text class="name" x="{num(left + 11)}" y="{num(top + 16)}">{name}</text></g>'
    )


def edge_mark(
    box: Box, targets: Sequence[str], curves: Sequence[str], *, dashed: bool = False
) -> str:
    """Write all edges of a box as one path, in the color of what flows."""
    says = plain(f"{box.label[:60]} → {', '.join(name[:60] for name in targets)}")
    return (
        f'<path class="edge {box.color}{" chosen" if dashed else ""}" d="{"".join(curves)}">'
        f"<title>{escape(says)}</title></path>"
    )


def curve(x: float, y: float, end: float, at: float) -> str:
    """Write a curve that leaves and arrives level."""
    middle = num((x + end) / 2)
    return f"M{num(x)} {num(y)}C{middle} {num(y)} {middle} {num(at)} {num(end)} {num(at)}"


def head_mark(color: str, x: float, y: float, forward: bool) -> str:
    """Write an arrow's head."""
    return f'<path class="head {color}" d="M{num(x)} {num(y)}l{-8 if forward else 8} -4v8z"/>'


def legend(across: float, top: float, notes: Sequence[str], shares: bool) -> tuple[str, float]:
    """Write the key to the colors, wrapped to the width; return it with the new bottom."""
    items = [
        (f'<g class="box {c}"><rect width="24" height="14" rx="{r}"/></g>', c)
        for c, r in zip(COLOURS, (3, 7, 3), strict=True)
    ]
    if shares:
        bar = rect(0, 4, 24, 5, 'class="rail" rx="2.5"') + rect(0, 4, 12, 5, 'class="bar" rx="2.5"')
        items.append((f'<g class="box">{bar}</g>', "share of the privacy budget"))
    items += [("", note) for note in notes]
    marks, x, y = [], 20.0, top + 8.0
    for icon, text in items:
        start = 32 if icon else 0
        room = start + width(text, DETAIL)
        if x > 20.0 and x + room > across - 16:
            x, y = 20.0, y + 22.0
        marks.append(
            f'<g transform="translate({num(x)},{num(y)})">{icon}'
            f'<text class="note" x="{start}" y="11">{escape(text)}</text></g>'
        )
        x += room + 20.0
    return "\n".join(marks), y + 32.0
