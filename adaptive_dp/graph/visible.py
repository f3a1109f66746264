"""Texts as people should see them: on one line, with nothing in them that hides or reorders."""

from __future__ import annotations

import unicodedata

HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that are not seen, or that move others (as U+202E does)."""


def visible(text: object) -> str:
    r"""Return a text with line breaks, control and direction characters written as escapes.

    Examples
    --------
    >>> print(visible("two\nlines"), visible("a\u202eb"), visible("漢字 é"))
    two\nlines a\u202eb 漢字 é
    """
    found = str(text)
    if found.isprintable():  # the usual case
        return found
    return "".join(_escaped(c) if unicodedata.category(c) in HIDDEN else c for c in found)


def cut(text: str, width: int, *, end: bool = False) -> str:
    """Return a text shortened to a number of characters; with ``end`` its last ones are kept.

    Examples
    --------
    >>> cut("a long name[0]", 11), cut("a long name[0]", 11, end=True)
    ('a long n...', 'a long...0]')
    """
    if len(text) <= width:
        return text
    room = max(0, width - 3)
    tail = room // 4 if end else 0
    return text[: room - tail] + "..." + text[len(text) - tail :]


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
