"""Converters of fields: what a user (or a document) writes, as immutable values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from adaptive_dp.graph.errors import DeclarationError


def texts(value: Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple.

    Raises
    ------
    DeclarationError
        If ``value`` is one text (which would fall apart into letters), or holds anything else.
    """
    found = anything(value)
    for item in found:
        if not isinstance(item, str):
            raise DeclarationError(f"expected a list of texts, got {item!r} in it")
    return found


def anything(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return values as a tuple.

    Raises
    ------
    DeclarationError
        If ``value`` is no list; one text is none.
    """
    if isinstance(value, str):
        raise DeclarationError(f"expected a list, got the text {value!r}; write [{value!r}]")
    try:
        return tuple(value)
    except TypeError:
        raise DeclarationError(f"expected a list, got {value!r}") from None


def perhaps(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Return values as a tuple, or None where there are none."""
    return None if value is None else anything(value)
