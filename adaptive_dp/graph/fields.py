"""The attrs fields of a class that only its subclasses declare as attrs classes.

Operations and mechanisms are attrs classes, their bases are not, so a type checker does not
know that every instance has fields. These two functions are the one place that says so.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import attrs

T = TypeVar("T")


def fields_of(cls: type) -> tuple[attrs.Attribute[Any], ...]:
    """Return the fields of an attrs class, in order."""
    return attrs.fields(cast(Any, cls))  # type: ignore[no-any-return]


def evolved(value: T, **changes: Any) -> T:
    """Return a copy of an attrs instance with some fields changed."""
    return cast(T, attrs.evolve(cast(Any, value), **changes))
