"""attrs values as JSON, and back, by their type annotations: the form of certificates.

An attrs class becomes an object of its fields' names, a tuple an array, an infinite float the
string ``"inf"``. A field that equals its default is left out. Reading is strict: a field that is
unknown, missing, of another type, or written although it equals its default is refused with the
place where it is, so that a value has one document and a document one value.
"""

from __future__ import annotations

import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import attrs

from accountants.codec import shown
from adaptive_dp.graph.errors import DocumentError

T = TypeVar("T")

INFINITE = "inf"
"""How an infinite float is written where a float is expected."""


def to_plain(value: Any) -> Any:
    """Return an attrs value as a JSON value that shares no list and no mapping with it.

    Raises
    ------
    DocumentError
        If it holds what JSON cannot express.

    Examples
    --------
    >>> from adaptive_dp.graph.certificate import Claim
    >>> to_plain(Claim(epsilon=float("inf"), delta=0.0, accountant="basic"))
    {'epsilon': 'inf', 'delta': 0.0, 'accountant': 'basic'}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isnan(value) or value == -math.inf:
            raise DocumentError(f"{value!r} cannot be written into a document")
        return value if math.isfinite(value) else INFINITE
    if isinstance(value, tuple | list):
        return [to_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {key: to_plain(each) for key, each in value.items()}
    if attrs.has(type(value)):
        return {
            each.name: to_plain(getattr(value, each.name))
            for each in attrs.fields(type(value))
            if not _is_default(each, getattr(value, each.name))
        }
    raise DocumentError(f"a {type(value).__name__} cannot be written into a document")


def from_plain(kind: type[T], value: Any, place: str) -> T:
    """Return the attrs value that a JSON value stands for.

    Parameters
    ----------
    kind
        An attrs class with annotated fields.
    value
        A JSON value; nothing about it is trusted.
    place
        What the value is called in messages.

    Raises
    ------
    DocumentError
        If the value does not have the form of the class, with the place.

    Examples
    --------
    >>> from adaptive_dp.graph.certificate import Claim
    >>> from_plain(Claim, {"epsilon": 1, "delta": 0, "accountant": "basic"}, "claim")
    Claim(epsilon=1.0, delta=0.0, accountant='basic')
    >>> from_plain(Claim, {"epsilon": 1, "delta": 0}, "claim")
    Traceback (most recent call last):
        ...
    adaptive_dp.graph.errors.DocumentError: claim lacks the field 'accountant'
    """
    if not isinstance(value, Mapping):
        raise DocumentError(f"{place} must be a mapping, got {shown(value)}")
    fields, annotations = attrs.fields(kind), _annotations(kind)  # type: ignore[arg-type]
    names = {each.name for each in fields}
    for name in value:
        if name not in names:
            raise DocumentError(f"{place} has the unknown field {shown(name)}")
    found = {}
    for each in fields:
        inside = f"{place}.{each.name}"
        if each.name in value:
            found[each.name] = _read(annotations[each.name], value[each.name], inside)
            if _is_default(each, found[each.name]):
                raise DocumentError(f"{inside} must be left out where it is {shown(each.default)}")
        elif each.default is attrs.NOTHING:
            raise DocumentError(f"{place} lacks the field {each.name!r}")
    try:
        return kind(**found)
    except ValueError as error:  # a validator's, of the class
        raise DocumentError(f"{place}: {error}") from None


def _read(kind: Any, value: Any, place: str) -> Any:
    """Return a JSON value as what an annotation declares."""
    if kind is Any:
        return to_plain(value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if not isinstance(value, list):
            raise DocumentError(f"{place} must be a list, got {shown(value)}")
        inside, _ = arguments  # of tuple[X, ...]
        return tuple(_read(inside, each, f"{place}[{i}]") for i, each in enumerate(value))
    if origin is not None and issubclass(_class(origin), Mapping):
        if not isinstance(value, Mapping):
            raise DocumentError(f"{place} must be a mapping, got {shown(value)}")
        return {key: _read(arguments[1], each, f"{place}.{key}") for key, each in value.items()}
    if origin is typing.Literal:
        if not any(type(value) is type(each) and value == each for each in arguments):
            raise DocumentError(f"{place} must be one of {arguments}, got {shown(value)}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _scalar(arguments, value, place)
    if isinstance(kind, type) and attrs.has(kind):
        return from_plain(kind, value, place)
    return _scalar((kind,), value, place)


def _class(origin: Any) -> type:
    return origin if isinstance(origin, type) else object


def _scalar(kinds: tuple[Any, ...], value: Any, place: str) -> Any:
    """Return a value that is of one of some kinds: scalars, None, and at most one class."""
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if kind in (bool, int, str) and type(value) is kind:
            return value
    if float in kinds and not isinstance(value, bool):
        if value == INFINITE and isinstance(value, str):
            return math.inf
        # an int that no float equals would be rounded, perhaps down: it is refused
        if isinstance(value, float) or (isinstance(value, int) and float(value) == value):
            return float(value)
    for kind in kinds:
        if isinstance(kind, type) and attrs.has(kind):
            return from_plain(kind, value, place)
    names = " or ".join(_named(kind) for kind in kinds)
    raise DocumentError(f"{place} must be {names}, got {shown(value)}")


def _named(kind: Any) -> str:
    return "null" if kind is type(None) else str(getattr(kind, "__name__", kind))


def _is_default(each: attrs.Attribute[Any], value: Any) -> bool:
    return (
        each.default is not attrs.NOTHING
        and type(value) is type(each.default)
        and (value == each.default)
    )


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    """Return the types of a class's fields; the strings of its annotations are resolved once."""
    return typing.get_type_hints(kind)
