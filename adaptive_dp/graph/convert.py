"""Converters of fields: what a user (or a document) writes, as immutable values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def texts(value: Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple."""
    return tuple(value)


def anything(value: Iterable[Any]) -> tuple[Any, ...]:
    """Return values as a tuple."""
    return tuple(value)


def perhaps(value: Iterable[Any] | None) -> tuple[Any, ...] | None:
    """Return values as a tuple, or None where there are none."""
    return None if value is None else tuple(value)
