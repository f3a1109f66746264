"""The values in a document's entries, each read as what is declared to be there."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import attrs

from adaptive_dp.graph import registry
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.fields import fields_of
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.functions import Function, found, home
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.untrusted import shown

T = TypeVar("T")

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "bool": ((bool,), "true or false"),
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "tuple[str, ...]": ((list, tuple), "a list of texts"),
    "tuple[Any, ...]": ((list, tuple), "a list"),
    "tuple[float, ...]": ((list, tuple), "a list of numbers"),
    "Mapping[str, Any]": ((Mapping,), "a mapping"),
}


def fields(where: str, value: Any, known: Collection[str], required: Collection[str]) -> None:
    """Refuse what is no mapping, has an unknown field, or lacks a required one."""
    if not isinstance(value, Mapping):
        raise DocumentError(f"{where} must be a mapping, got {type(value).__name__}")
    unknown = sorted(set(value) - set(known))
    missing = sorted(set(required) - set(value))
    if unknown:
        raise DocumentError(
            f"{where}: unknown field {', '.join(map(repr, unknown))}; known are "
            f"{', '.join(sorted(known))}"
        )
    if missing:
        raise DocumentError(f"{where}: missing field {', '.join(map(repr, missing))}")


def sequence(value: Any, where: str) -> Sequence[Any]:
    """Return a list, or refuse what is none."""
    if not isinstance(value, list | tuple):
        raise DocumentError(f"{where} must be a list, got {type(value).__name__}")
    return value


def only(value: Any, where: str) -> tuple[Any, str]:
    """Return the one item of a list, with the place."""
    items = sequence(value, where)
    if len(items) != 1:
        raise DocumentError(f"{where} must hold one node, the start, got {len(items)}")
    return items[0], where


def annotation(field: attrs.Attribute[Any]) -> str:
    """Return the type that a field is declared with, as text."""
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "Any")


def needed(fields: Iterable[attrs.Attribute[Any]]) -> set[str]:
    """Return the names of the fields that have no default; a document never leaves noise out."""
    return {
        field.name
        for field in fields
        if field.default is attrs.NOTHING or isinstance(field.default, Free)
    }


def simple(kind: str, value: Any, where: str) -> Any:
    """Return a value of the annotated type; one of another type than is known is taken as it is."""
    base = kind.removesuffix(" | None")
    if value is None and base != kind:
        return None
    types, words = _KINDS.get(base, ((object,), ""))
    fits = isinstance(value, types)
    if base in ("int", "float"):
        fits = fits and not isinstance(value, bool)
    if base == "tuple[str, ...]":
        fits = fits and all(isinstance(v, str) for v in value)
    if not fits:
        raise DocumentError(f"{where} must be {words}, got {shown(value)}")
    return _plain(value, where)


def _plain(value: Any, where: str) -> Any:
    """Return a value with the numbers that JSON lacks."""
    if isinstance(value, Mapping):
        if set(value) != {"float"}:
            return {k: _plain(v, f"{where}.{k}") for k, v in value.items()}
        if value["float"] not in ("nan", "inf", "-inf"):
            raise DocumentError(
                f"{where}.float must be 'nan', 'inf' or '-inf', got {shown(value['float'])}"
            )
        return float(value["float"])
    if isinstance(value, list | tuple):
        return [_plain(v, f"{where}[{i}]") for i, v in enumerate(value)]
    return value


def function(value: Any, where: str, allow: Collection[str]) -> Function:
    """Return a function by name; it is imported when the plan runs, if its module is allowed."""
    fields(where, value, {"function"}, {"function"})
    name = value["function"]
    if not isinstance(name, str):
        raise DocumentError(f"{where}.function must be a str, got {shown(name)}")
    if name not in registry.FUNCTIONS and not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise DocumentError(
            f"{where}.function: {shown(name)} is neither 'module:name' nor the name of one of the "
            "library's functions"
        )
    return Function.named(name, allow)


def bounds(value: Any, where: str) -> tuple[Any, Any]:
    """Return a pair of bounds."""
    if isinstance(value, Mapping):
        fields(where, value, {"bounds"}, {"bounds"})
        value = value["bounds"]
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise DocumentError(f"{where} must be a pair of bounds [low, high], got {shown(value)}")
    low, high = value
    return low, high


def column(value: Any, where: str) -> Any:
    """Return a column's declaration: a pair for bounds, a list for categories, None for neither."""
    if value is None or value == {}:
        return None
    if isinstance(value, Mapping) and set(value) == {"categories"}:
        return list(sequence(value["categories"], f"{where}.categories"))
    if isinstance(value, Mapping) and set(value) == {"bounds"}:
        return bounds(value, where)
    raise DocumentError(
        f"{where} must be {{'bounds': [low, high]}}, {{'categories': [...]}} or {{}} for neither, "
        f"got {shown(value)}"
    )


def mechanism(value: Any, where: str, allow: Collection[str]) -> Mechanism:
    """Return a mechanism; one from outside of the library only if its module is allowed."""
    fields(where, value, value if isinstance(value, Mapping) else (), {"mechanism"})
    cls = mechanism_class(value["mechanism"], f"{where}.mechanism", allow)
    own = [f for f in fields_of(cls) if f.init]
    fields(where, value, {f.name for f in own} | {"mechanism"}, needed(own) | {"mechanism"})
    values = {k: v for k, v in value.items() if k != "mechanism"}
    try:
        return cls(**{k: parameter(v, f"{where}.{k}") for k, v in values.items()})
    except DocumentError:
        raise
    except Exception as error:  # an own mechanism's constructor may raise anything
        raise DocumentError(f"{where}: {error}") from None


def parameter(value: Any, where: str) -> Any:
    """Return a mechanism's parameter, which may be left free."""
    if isinstance(value, Mapping) and "free" in value:
        fields(where, value, {"free", "weight"}, {"free"})
        try:
            return Free(value["free"], value.get("weight", 1.0))
        except PlanError as error:
            raise DocumentError(f"{where}: {error}") from None
    return _plain(value, where)


def mechanism_class(name: Any, where: str, allow: Collection[str]) -> type[Mechanism]:
    """Return a mechanism's class by its name.

    Raises
    ------
    DocumentError
        If there is none of that name, or its code, or code that it calls, is not allowed.
    """
    own = registry.mechanism(name) if isinstance(name, str) else None
    if own is None:
        return _imported(name, where, allow, Mechanism, registry.MECHANISMS)
    found: type[Mechanism] = own
    for library in found.libraries:
        if library not in allow:
            raise DocumentError(
                f"{where}: {name!r} hands what the document says to {library}, which is not part "
                f"of the library. If you trust it, allow it: load(..., allow=[{library!r}]), or "
                f"--allow {library} on the command line"
            )
    return found


def operation_class(kind: Any, where: str, allow: Collection[str]) -> type[Operation]:
    """Return an operation's class by its kind.

    Raises
    ------
    DocumentError
        If there is none of that kind, or its module is not allowed.
    """
    own = registry.operation(kind) if isinstance(kind, str) and kind != "state" else None
    return own or _imported(kind, where, allow, Operation, registry.OPERATIONS)


def _imported(
    name: Any, where: str, allow: Collection[str], base: type[T], known: Iterable[str]
) -> type[T]:
    """Return a third party's class, imported from a module that the reader allows."""
    what = base.__name__.lower()
    if not isinstance(name, str):
        raise DocumentError(f"{where} must be a str, got {shown(name)}")
    module, _, qualified = name.rpartition(":")
    if not module:
        raise DocumentError(
            f"{where}: the library has no {what} {name!r}; it has {', '.join(sorted(known))}"
        )
    if module not in allow:
        raise DocumentError(
            f"{where}: {name!r} is not part of the library; importing it runs its module's code. "
            f"If you trust it, allow it: load(..., allow=[{module!r}]), or --allow {module} on the "
            "command line"
        )
    try:
        importlib.import_module(module)
        cls = found(module, qualified)
    except Exception as error:  # whatever a module's code may raise
        raise DocumentError(
            f"{where}: {name!r} cannot be imported ({type(error).__name__})"
        ) from None
    if not (inspect.isclass(cls) and issubclass(cls, base) and home(cls) == module):
        raise DocumentError(f"{where}: {module!r} defines no {what} {qualified!r}")
    if registry.is_own(cls):
        raise DocumentError(f"{where}: {name!r} is part of the library; name it without its module")
    return cls
