"""Text: escaping, and the room that it takes.

No font is known here, so that widths are estimated, by classes of characters.
"""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from itertools import accumulate

from adaptive_dp.graph.draw.box import Box

LABEL, DETAIL = 15.0, 11.4  # estimated sizes: the label is bold
WIDEST, NARROWEST = 230.0, 84.0


def escape(text: str) -> str:
    """Escape for XML; characters that XML forbids become a visible mark.

    What comes from outside has lost them already, by `visible` (see `box.read`).
    """
    clean = re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    return html.escape(clean, quote=True)


def width(text: str, size: float) -> float:
    """Estimate the width of a text."""
    return size * sum(map(_advance, text))


def _advance(char: str) -> float:
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    if char in "iljtf.,:;|!'()[]{} I":
        return 0.34
    return 0.86 if char in "mwMW@%…→" else 0.7 if char.isupper() else 0.58


def cut(text: str, size: float, room: float) -> str:
    """Shorten a text to a width, with an ellipsis."""
    text = plain(text)
    ends = list(accumulate(size * _advance(char) for char in text))
    if not ends or ends[-1] <= room:
        return text
    return text[: bisect_right(ends, room - width("…", size))].rstrip() + "…"


def plain(text: str) -> str:
    """Put a text on one line; what is very long is never shown whole."""
    return " ".join(text[:400].split())


def sizes(box: Box) -> list[tuple[str, float]]:
    """Return a box's lines with their sizes."""
    return [(line, DETAIL if index else LABEL) for index, line in enumerate(box.lines())]


def lock_width(box: Box) -> float:
    """Return the room for the lock of a private box."""
    return 20.0 if box.color == "private" else 0.0


def bar_height(share: float) -> float:
    """Return the height of the bar of a share: the dearer a release, the larger its box."""
    return 5.0 + 20.0 * share


def box_height(box: Box) -> float:
    """Return the height of a box: its lines, and the bar of its share."""
    bar = 8.0 + bar_height(box.share) if box.share is not None else 0.0
    return 18.0 + 16.0 * len(box.lines()) + bar


def box_width(box: Box) -> float:
    """Return the width that a box asks for, within limits."""
    label, *others = [width(plain(text), size) for text, size in sizes(box)]
    return min(WIDEST, max(NARROWEST, 26.0 + max([label + lock_width(box), *others])))
