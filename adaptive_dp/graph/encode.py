"""Parameters as JSON values: the leaves of plan documents, and what digests are made of."""

from __future__ import annotations

from typing import Any

from accountants.codec import Codec
from adaptive_dp.graph.errors import DocumentError
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.registry import name_of


def encode(value: Any) -> Any:
    """Return a parameter as JSON.

    Raises
    ------
    DocumentError
        If it has no form in a document.
    """
    return _CODEC.write(value, "a parameter")


def _free(value: Free, place: str) -> dict[str, Any]:
    return {"free": value.name, "weight": value.weight}


def _function(value: Function, place: str) -> dict[str, Any]:
    return {"function": value.name}


def _mechanism(value: Mechanism, place: str) -> dict[str, Any]:
    named = {"mechanism": name_of(type(value), type(value).__name__)}
    return named | {k: _CODEC.write(v, f"{place}.{k}") for k, v in value.parameters().items()}


_CODEC = Codec(DocumentError, {Free: _free, Function: _function, Mechanism: _mechanism})
