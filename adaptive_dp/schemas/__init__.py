"""JSON Schemas (draft 2020-12) of plan documents and certificates."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of plan documents."""
    return _schema("plan")


def certificate_schema() -> dict[str, Any]:
    """Return the JSON Schema of certificates, that of the plan in them included."""
    return _schema("certificate") | {"$defs": {"plan": plan_schema()}}


def _schema(name: str) -> dict[str, Any]:
    text = files(__name__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
