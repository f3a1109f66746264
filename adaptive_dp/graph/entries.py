"""The values in a document's entries, each read as what is declared to be there."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs

from adaptive_dp.graph.encode import SHIPPED
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.fields import fields_of
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.functions import Function, found, home
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.untrusted import shown

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
    if not isinstance(name, str) or not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise DocumentError(f"{where}.function must be 'module:name', got {shown(name)}")
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
    cls = _class(value["mechanism"], where, allow)
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


def _class(name: Any, where: str, allow: Collection[str]) -> type[Mechanism]:
    if not isinstance(name, str):
        raise DocumentError(f"{where}.mechanism must be a name, got {name!r}")
    module = name.rpartition(":")[0]
    if not module:
        for cls in _all(Mechanism):
            if cls.__name__ == name and cls.__module__.startswith(SHIPPED):
                return cls
        raise DocumentError(f"{where}.mechanism: the library has no mechanism {name!r}")
    if module not in allow:
        raise DocumentError(
            f"{where}.mechanism: {name!r} is not part of the library; importing it runs its "
            f"module's code. If you trust it, allow it: load(..., allow=[{module!r}]), or "
            f"--allow {module} on the command line"
        )
    return _imported(name, where)


def _imported(name: str, where: str) -> type[Mechanism]:
    module, _, qualified = name.rpartition(":")
    try:
        importlib.import_module(module)
        cls = found(module, qualified)
    except Exception as error:  # whatever a module's code may raise
        raise DocumentError(
            f"{where}.mechanism: {name!r} cannot be imported ({type(error).__name__})"
        ) from None
    if not (inspect.isclass(cls) and issubclass(cls, Mechanism) and home(cls) == module):
        raise DocumentError(f"{where}.mechanism: {module!r} defines no Mechanism {qualified!r}")
    return cls


def _all(cls: type[Mechanism]) -> list[type[Mechanism]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _all(sub))]
