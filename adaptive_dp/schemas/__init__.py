"""JSON Schemas (draft 2020-12) of plan documents and certificates.

Both are made from the classes that the documents consist of, by the fields and types by which the
codec reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

from accountants.json_schema import Schema, Schemas, record
from adaptive_dp.graph import registry
from adaptive_dp.graph.certificate import CODEC, Certificate
from adaptive_dp.graph.certificate import FORMAT as CERTIFICATE_FORMAT
from adaptive_dp.graph.document import FORMAT, plan_codec
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loops import Loop
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.registry import Function

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
    schemas = Schemas(CODEC, {Mapping[str, Any]: {"type": "object"}})
    sections = schemas.fields(Certificate, {"format": {"const": CERTIFICATE_FORMAT}})
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
    found = schemas.fields(cls, {"id": ID, "kind": {"const": kind}})
    found["properties"]["inputs"] = {"type": "array", "items": ID}
    if issubclass(cls, Loop):  # its body stands in it, and its state is new there
        found["properties"]["body"] = {"type": "array", "items": {"$ref": "#/$defs/node"}}
        found["required"] = list(found["properties"])
    return found


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
