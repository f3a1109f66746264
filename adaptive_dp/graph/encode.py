"""Parameters as JSON values, and back: the leaves of plan documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from adaptive_dp.graph.errors import DocumentError
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.registry import name_of


def encode(value: Any) -> Any:
    """Return ``value`` as JSON: numbers, texts, lists and mappings, the rest under a tag."""
    if value is None or type(value) in (str, bool, int):  # most are
        return value
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, Free):
        return {"free": value.name, "weight": value.weight}
    if isinstance(value, Function):
        return {"function": value.name}
    if isinstance(value, Mechanism):
        return {"mechanism": name_of(type(value), type(value).__name__)} | {
            k: encode(v) for k, v in value.parameters().items()
        }
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, Sequence):
        return [encode(v) for v in value]
    if attrs.has(type(value)):  # a domain: bounds as a pair, categories as a list
        fields = [encode(getattr(value, f.name)) for f in attrs.fields(type(value))]
        return {"bounds": fields} if len(fields) == 2 else {"categories": fields[0]}
    raise DocumentError(f"a {type(value).__name__} cannot be written into a plan document")
