"""When two releases are one: what tells a step from another that has the same digest.

A digest names a user's function by its code and what it closes over, as far as that can be written
down, and a user's class by its name. Two that differ may share it: closures over objects, or a
function of a notebook that was defined anew. Recorded values of the one are not those of the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from adaptive_dp.graph.functions import Function, described
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Structure

LOCAL = "@"
"""Marks an identity that means something in this process alone."""


class Identities:
    """Names nodes by all that is known of them; keeps the objects that it tells apart alive."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}

    def of(self, structure: Structure) -> dict[str, str]:
        """Return each node's identity: its digest, and what the digests above cannot tell."""
        marks: dict[str, str] = {}
        for node in structure:
            operation = node.handle.operation
            reads = [marks.get(name, "") for name in node.inputs]
            if isinstance(operation, Loop):
                reads += [marks.get(n.name, "") for n in structure if node.name in n.loops]
            own = self._mark(operation)
            known = sorted({mark for mark in (own, *reads) if mark})
            text = "".join(known)
            short = hashlib.sha256(text.encode()).hexdigest()[:16]
            marks[node.name] = text and (LOCAL if LOCAL in text else "") + short
        return {node.name: node.digest + marks[node.name] for node in structure}

    def _mark(self, operation: Operation) -> str:
        mechanism = operation.mechanism if isinstance(operation, Release) else None
        found = []
        for thing in (operation, mechanism):
            if thing is not None and not is_own(type(thing)):
                found.append(self._local(type(thing)))
            parameters = thing.parameters() if thing is not None else {}
            found += [self._function(v) for v in parameters.values() if isinstance(v, Function)]
        return "".join(found)

    def _function(self, function: Function) -> str:
        call = function.call
        module = function.name.partition(":")[0]
        if call is None or module not in ("lambda", "__main__"):
            return ""
        body = repr(described(call))
        if "'object'" in body or "'around'" in body:
            return self._local(call)
        return "" if module == "lambda" else hashlib.sha256(body.encode()).hexdigest()

    def _local(self, thing: type | Callable[..., Any]) -> str:
        self._objects[id(thing)] = thing
        return f"{LOCAL}{id(thing)}"
