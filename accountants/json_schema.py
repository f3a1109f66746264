"""JSON Schemas (draft 2020-12) of what a codec reads, made from the same classes."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from attrs import field, frozen

from accountants.document import NOT_FINITE, Codec, keyed, parameters

Schema = dict[str, Any]

SIMPLE: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"$ref": "#/$defs/number"},
    types.NoneType: {"type": "null"},
}


def record(properties: Mapping[str, Any], required: Sequence[str], description: str = "") -> Schema:
    """Return the schema of an object that has these properties and no others."""
    found = {"description": description} if description else {}
    return found | {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


NUMBERS: Mapping[str, Schema] = {
    "number": {
        "description": "A number; one that JSON lacks stands under 'float'.",
        "anyOf": [
            {"type": "number"},
            {"$ref": "#/$defs/fraction"},
            record({"float": {"enum": list(NOT_FINITE)}}, ["float"]),
        ],
    },
    "fraction": record({"fraction": {"type": "string"}}, ["fraction"]),
    "value": {
        "description": "A constant; numbers that JSON lacks stand under 'float'.",
        "anyOf": [
            {"type": ["null", "boolean", "string", "number"]},
            {"type": "array", "items": {"$ref": "#/$defs/value"}},
            record({"float": {"enum": list(NOT_FINITE)}}, ["float"]),
            {
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/value"},
                "not": {"required": ["float"], "maxProperties": 1},
            },
        ],
    },
}
"""What the schemas of fields refer to; to be among the ``$defs`` of the whole."""


def summary(cls: type) -> str:
    """Return the first sentence of a class's docstring."""
    return (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")


@frozen
class Schemas:
    """Schemas of types, and definitions of the classes that they refer to.

    Parameters
    ----------
    codec
        What reads the documents: it says which fields must be there.
    forms
        Schemas of the types whose form is their own, by the annotation.
    definitions
        Schemas of classes by name; those that were asked for are added.

    Examples
    --------
    >>> from accountants.document import Codec
    >>> Schemas(Codec(ValueError)).of(tuple[int, ...])
    {'type': 'array', 'items': {'type': 'integer'}}
    """

    codec: Codec
    forms: Mapping[Any, Schema] = {}
    definitions: dict[str, Schema] = field(factory=lambda: dict(NUMBERS))

    def of(self, kind: Any) -> Schema:
        """Return the schema of a type, by the annotation."""
        if kind in self.forms:
            return dict(self.forms[kind])
        if kind in SIMPLE:
            return dict(SIMPLE[kind])
        origin, inner = get_origin(kind), get_args(kind)
        if origin in (Union, types.UnionType):
            found = [self.of(each) for each in inner]
            empty = {"type": "object", "maxProperties": 0}  # none, in TOML
            return {"anyOf": [*found, empty] if types.NoneType in inner else found}
        if origin is Literal:
            return {"enum": list(inner)}
        if origin in (tuple, list, Sequence):
            return self._items(inner)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if kind is Fraction:
            return {"$ref": "#/$defs/fraction"}
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [each.value for each in kind]}
        if isinstance(kind, type) and attrs.has(kind):
            return self._reference(kind)
        return {"$ref": "#/$defs/value"}

    def _items(self, inner: tuple[Any, ...]) -> Schema:
        if inner[-1] is ... or len(inner) == 1:
            return {"type": "array", "items": self.of(inner[0])}
        each = [self.of(kind) for kind in inner]
        return {"type": "array", "prefixItems": each, "minItems": len(each), "maxItems": len(each)}

    def _reference(self, cls: type) -> Schema:
        name = cls.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # which it may refer to itself
            self.definitions[name] = self._keyed(cls) if keyed(cls) else self.fields(cls)
        return {"$ref": f"#/$defs/{name}"}

    def _keyed(self, cls: type) -> Schema:
        key, kinds = str(keyed(cls)), tuple(kind for _, kind in parameters(cls).values())
        bare = self._items(kinds) if len(kinds) > 1 else self.of(kinds[0])
        return {"description": summary(cls), "anyOf": [bare, record({key: bare}, [key])]}

    def fields(
        self,
        cls: type,
        beside: Mapping[str, Schema] | None = None,
        change: Callable[[Any, Schema], Schema] = lambda kind, schema: schema,
    ) -> Schema:
        """Return the schema of an attrs class's fields, as `Codec.arguments` reads them.

        Parameters
        ----------
        beside
            Properties that the object has beside the fields, all required.
        change
            What becomes of a field's schema, given its type.
        """
        named, more = parameters(cls), dict(beside or {})
        properties = {name: change(kind, self.of(kind)) for name, (_, kind) in named.items()}
        needed = [name for name, (f, _) in named.items() if self.codec.needs(f)]
        return record(more | properties, [*more, *needed], summary(cls))
