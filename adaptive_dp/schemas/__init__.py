"""JSON Schemas (draft 2020-12) of plan documents and certificates.

Both are made from the classes that the documents consist of, by the fields and types by which the
codec reads them.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin

import attrs
from attrs import field, frozen

from accountants.document import NOT_FINITE, Codec, keyed, parameters
from adaptive_dp.graph import registry
from adaptive_dp.graph.certificate import (
    BOUNDS,
    CODEC,
    EXACT,
    Certificate,
    PlanDocument,
    ReleaseRow,
    ReleaseRows,
)
from adaptive_dp.graph.certificate import FORMAT as CERTIFICATE_FORMAT
from adaptive_dp.graph.document import FORMAT, plan_codec
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.registry import Function

# -----------------------------------------------------------------------------
# The schema of what a codec reads, from the annotations of the same classes.

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
    head = {"description": description} if description else {}
    return head | {
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
            choices = [self.of(each) for each in inner]
            empty = {"type": "object", "maxProperties": 0}  # none, in TOML
            return {"anyOf": [*choices, empty] if types.NoneType in inner else choices}
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


# -----------------------------------------------------------------------------
# The two documents: a plan and a certificate, whose last section is the plan.

PLAN = "urn:adaptive-dp:plan:2"
CERTIFICATE = "urn:adaptive-dp:certificate:2"
ID: Schema = {"$ref": "#/$defs/id"}
PLACE = r"^[\w.]+:[\w.<>]+$"
"""A third party's class or function, as ``module:name``."""


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of plan documents."""
    return deepcopy(_plan())


def certificate_schema() -> dict[str, Any]:
    """Return the JSON Schema of certificates, that of the plan in them included."""
    rows = {"type": "array", "items": {"$ref": "#/$defs/ReleaseRow"}}
    a_json_object = {"type": "object"}
    forms: dict[Any, Schema] = {
        Mapping[str, Any]: a_json_object,
        PlanDocument: a_json_object,
        ReleaseRows: rows,
    }
    schemas = Schemas(CODEC, forms)
    sections = schemas.fields(Certificate, {"format": {"const": CERTIFICATE_FORMAT}})
    row = schemas.definitions.setdefault("ReleaseRow", schemas.fields(ReleaseRow))
    for name in ("node", "region"):  # one of many equal releases, or each of them
        one = row["properties"][name]
        several = record({"each": {"type": "array", "items": one, "minItems": 1}}, ["each"])
        row["properties"][name] = {"anyOf": [one, several]}
    for cls in BOUNDS:  # the rational of which a bound is the rounding
        exact = {"type": "string", "pattern": "^[0-9]+/[0-9]+$"}
        schemas.of(cls)
        schemas.definitions[cls.__name__]["properties"][EXACT] = exact
    sections["properties"]["plan"] = {"$ref": PLAN}
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": CERTIFICATE,
        "title": "A certificate of adaptive-dp",
    }
    definitions = deepcopy(schemas.definitions) | {"plan": plan_schema()}
    return head | sections | {"$defs": definitions}


@cache
def _plan() -> dict[str, Any]:
    forms = {
        Function: {"$ref": "#/$defs/function"},
        Mechanism: {"$ref": "#/$defs/mechanism"},
        Handle: ID,
    }
    schemas = Schemas(plan_codec(()), forms)
    kinds = [kind for kind in registry.OPERATIONS if kind != "state"]
    nodes = {f"{kind}_node": _node(schemas, kind) for kind in kinds}
    output = {"path": {"type": "array", "items": _name(), "minItems": 1}, "node": ID}
    whole = record(
        {
            "format": {"const": FORMAT},
            "delta": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "nodes": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            "outputs": {"type": "array", "items": record(output, list(output)), "minItems": 1},
        },
        ["format", "nodes", "outputs"],
        "A private analysis as a graph: nodes after the nodes that they read, and outputs.",
    )
    own = [{"$ref": f"#/$defs/{name}"} for name in nodes]
    definitions = {
        "id": _name("The name of a node, once in the document."),
        "node": {"oneOf": [*own, {"$ref": "#/$defs/third_party_node"}]},
        "third_party_node": _open(
            {"id": ID, "kind": {"type": "string", "pattern": PLACE}}, "A third party's operation."
        ),
        "function": _function(),
        "free": _free(),
        "mechanism": {"oneOf": [*_mechanisms(schemas), _third_party_mechanism()]},
    }
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": PLAN,
        "title": "A plan of adaptive-dp",
    }
    return head | whole | {"$defs": definitions | nodes | schemas.definitions}


def _name(description: str = "") -> Schema:
    return {"type": "string", "minLength": 1} | (
        {"description": description} if description else {}
    )


def _open(properties: Schema, description: str) -> Schema:
    """Return the schema of an object that has these properties, and may have others."""
    closed = record(properties, list(properties), description)
    return closed | {"additionalProperties": True}


def _node(schemas: Schemas, kind: str) -> Schema:
    cls: type = registry.operation(kind)
    schema = schemas.fields(cls, {"id": ID, "kind": {"const": kind}})
    schema["properties"]["inputs"] = {"type": "array", "items": ID}
    if issubclass(cls, Loop):  # its body stands in it, and its state is new there
        schema["properties"]["body"] = {"type": "array", "items": {"$ref": "#/$defs/node"}}
        schema["required"] = list(schema["properties"])
    return schema


def _function() -> Schema:
    names = [{"enum": list(registry.FUNCTIONS)}, {"type": "string", "pattern": PLACE}]
    text = "A function by name; a third party's is imported when the plan runs, if it is allowed."
    return record({"function": {"anyOf": names}}, ["function"], text)


def _free() -> Schema:
    weight = {"type": "number", "exclusiveMinimum": 0}
    text = "A parameter that calibration solves, as a multiple of its weight."
    return record({"free": _name(), "weight": weight}, ["free"], text)


def _mechanisms(schemas: Schemas) -> list[Schema]:
    free = {"$ref": "#/$defs/free"}

    def change(kind: Any, schema: Schema) -> Schema:
        return {"anyOf": [schema, free]}

    return [
        schemas.fields(registry.mechanism(name), {"mechanism": {"const": name}}, change)
        for name in registry.MECHANISMS
    ]


def _third_party_mechanism() -> Schema:
    name = {"type": "string", "pattern": PLACE}
    return _open({"mechanism": name}, "A third party's mechanism, with its parameters.")
