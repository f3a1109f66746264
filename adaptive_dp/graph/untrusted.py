"""What any document is made of, before anything is read from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from accountants.codec import shown
from adaptive_dp.graph.errors import DocumentError

DEEPEST = 64
"""Documents may be nested this deep."""


def check_values(document: Any, name: str) -> None:
    """Check that a document is made of texts, finite numbers, lists and mappings, not too deep.

    Raises
    ------
    DocumentError
        If not, with the place; ``name`` is what the whole is called.
    """
    stack: list[tuple[Any, str, int]] = [(document, name, 0)]
    while stack:
        value, where, depth = stack.pop()
        if depth > DEEPEST:
            raise DocumentError(f"{where[:80]}...: nested deeper than {DEEPEST}; flatten it")
        prefix = "" if where == name else f"{where}."
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if not isinstance(key, str):
                    raise DocumentError(f"{where}: a key must be a text, got {key!r}")
                stack.append((inner, f"{prefix}{key}", depth + 1))
        elif isinstance(value, list | tuple):
            stack.extend((inner, f"{where}[{i}]", depth + 1) for i, inner in enumerate(value))
        elif isinstance(value, int | float):
            if not -1e300 < value < 1e300:
                raise DocumentError(
                    f"{where} must be a finite number below 1e300 in size, got {shown(value)}; a "
                    "constant that is none is written as {'float': 'nan'}, 'inf' or '-inf'"
                )
        elif value is not None and not isinstance(value, str):
            raise DocumentError(
                f"{where} must be a number, text, list or mapping, got {type(value).__name__}"
            )
