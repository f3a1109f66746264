"""Converters of fields: what a user (or a document) writes, as immutable values."""

from __future__ import annotations

import numbers
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


POSITIVE = "positive finite number below 1e300"


def number(value: Any) -> Any:
    """Return a real number, NumPy's and fractions too, as a plain int or float.

    Anything else, a truth value included, is returned as it is, for a validator to refuse.

    Examples
    --------
    >>> from fractions import Fraction
    >>> number(Fraction(1, 4)), number(True)
    (0.25, True)
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    try:
        return float(value)
    except OverflowError:
        return value


def whole(value: Any) -> int | None:
    """Return a whole number, NumPy's too, as a plain int; None where it is none."""
    found = number(value)
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def positive(value: Any) -> bool:
    """Whether a value is a plain positive number below 1e300."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return plain and 0 < value < 1e300
