"""Plan documents: JSON out, the same plan back in, with the same fingerprint.

User code is named, never carried: a function or a mechanism from outside of the library is
written as ``module:name``. Reading a document imports a mechanism's module only where the
reader allows it, and a function's only when the plan runs.
"""

from __future__ import annotations

import importlib
import inspect
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.errors import DeclarationError, DocumentError, PlanError
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.handles import Handle, Private, Public, Released
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation, operation
from adaptive_dp.graph.repeat import Repeat, State, frontier
from adaptive_dp.graph.steps import Function
from adaptive_dp.graph.structure import Node

if TYPE_CHECKING:
    from adaptive_dp.graph.pipeline import Pipeline

FORMAT = "adaptive-dp/plan/1"


def to_document(plan: Pipeline) -> dict[str, Any]:
    """Return the plan as JSON values: nodes in order, outputs by path."""
    structure = plan.structure
    wrappers = {id(handle): f"group {title}" for title, handle in structure.groups.items()}

    def reference(handle: Handle) -> str:
        return wrappers.get(id(handle)) or structure.of(handle).name

    def described(node: Node) -> dict[str, Any]:
        kind = node.handle.operation.kind
        inputs = [reference(i) for i in node.handle.inputs]
        entry: dict[str, Any] = {"id": node.name, "kind": kind}
        if isinstance(node.handle.operation, Repeat):
            body = node.handle.operation
            entry["inputs"] = inputs[:1]
            entry["times"] = body.times
            entry["state"] = structure.of(body.state).name
            entry["body"] = nodes(node.name)
            entry["result"] = reference(body.result)
            return entry
        if inputs:
            entry["inputs"] = inputs
        return entry | {k: encode(v) for k, v in node.handle.operation.parameters().items()}

    def nodes(loop: str | None) -> list[dict[str, Any]]:
        found = [n for n in structure if (n.loops[-1] if n.loops else None) == loop]
        found = [n for n in found if not isinstance(n.handle.operation, State)]
        entries = [(n.handle.serial, described(n)) for n in found]
        for handle in structure.groups.values():
            around = structure.of(handle).loops
            if (around[-1] if around else None) == loop:
                entries.append((handle.serial, grouping(handle)))
        # nodes in order of creation keep equal random nodes in theirs
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def grouping(handle: Handle) -> dict[str, Any]:
        inputs = [reference(i) for i in handle.inputs]
        parameters = handle.operation.parameters()
        return {"id": reference(handle), "kind": "group", "inputs": inputs} | parameters

    return {
        "format": FORMAT,
        "delta": plan.delta,
        "nodes": nodes(None),
        "outputs": [
            {"path": list(path), "node": reference(handle)} for path, handle in plan.outputs
        ],
    }


def load(document: Mapping[str, Any] | str, *, allow: Collection[str] = ()) -> Pipeline:
    """Return the plan of a document.

    Parameters
    ----------
    document
        A mapping, or its JSON or TOML text.
    allow
        Modules from which mechanisms may be imported, beside the library's own. Importing a
        module runs its code: name only those that you trust.

    Raises
    ------
    DocumentError
        If the document is not of the declared form, with the place and the cure.
    """
    from adaptive_dp.graph.pipeline import Pipeline

    parsed = _parsed(document) if isinstance(document, str) else document
    _fields("plan", parsed, {"format", "delta", "nodes", "outputs"}, {"format", "nodes", "outputs"})
    if parsed["format"] != FORMAT:
        raise DocumentError(f"plan: 'format' must be {FORMAT!r}, got {parsed['format']!r}")
    reader = _Reader(allow)
    reader.nodes(parsed["nodes"], "nodes")
    outputs = []
    for i, entry in enumerate(_sequence(parsed["outputs"], "outputs")):
        where = f"outputs[{i}]"
        _fields(where, entry, {"path", "node"}, {"path", "node"})
        path = entry["path"]
        if not isinstance(path, list) or not path or not all(isinstance(p, str) for p in path):
            raise DocumentError(f"{where}.path must be a list of names, got {path!r}")
        outputs.append((tuple(path), reader.handle(entry["node"], f"{where}.node")))
    try:
        return Pipeline.of(outputs, float(parsed.get("delta", 0.0)))
    except (DeclarationError, ValueError, TypeError) as error:
        raise DocumentError(f"plan: {error}") from None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        value = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (json.JSONDecodeError, tomllib.TOMLDecodeError) as error:
        raise DocumentError(f"plan: neither JSON nor TOML: {error}") from None
    return value  # type: ignore[no-any-return]


class _Reader:
    """Handles by node id, as the document is read from top to bottom."""

    def __init__(self, allow: Collection[str]) -> None:
        self.allow = allow
        self.handles: dict[str, Handle] = {}

    def handle(self, name: Any, where: str) -> Handle:
        if not isinstance(name, str) or name not in self.handles:
            raise DocumentError(
                f"{where}: no node {name!r} stands before it; nodes are listed after their inputs"
            )
        return self.handles[name]

    def nodes(self, entries: Any, where: str) -> None:
        for i, entry in enumerate(_sequence(entries, where)):
            at = f"{where}[{i}]"
            if not isinstance(entry, Mapping):
                raise DocumentError(f"{at} must be a mapping, got {type(entry).__name__}")
            name = entry.get("id")
            if not isinstance(name, str) or not name:
                raise DocumentError(f"{at}.id must be a name, got {name!r}")
            if name in self.handles:
                raise DocumentError(f"{at}.id: {name!r} is the id of an earlier node")
            self.handles[name] = self._node(entry, f"{at} ({name})")

    def _node(self, entry: Mapping[str, Any], where: str) -> Handle:
        kind = entry.get("kind")
        if kind == "repeat":
            return self._repeat(entry, where)
        cls = operation(kind) if isinstance(kind, str) else None
        if cls is None or cls is State:
            raise DocumentError(f"{where}.kind: unknown kind {kind!r}")
        known = {f.name for f in attrs.fields(cls)}
        required = {f.name for f in attrs.fields(cls) if f.default is attrs.NOTHING}
        _fields(where, entry, known | {"id", "kind", "inputs"}, required)
        inputs = tuple(
            self.handle(name, f"{where}.inputs")
            for name in _sequence(entry.get("inputs", []), f"{where}.inputs")
        )
        values = {k: self._value(v, f"{where}.{k}") for k, v in entry.items() if k in known}
        try:
            return _wrap(cls(**values), inputs)
        except (PlanError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise DocumentError(f"{where}: {error}") from None

    def _repeat(self, entry: Mapping[str, Any], where: str) -> Handle:
        needed = {"id", "kind", "inputs", "times", "state", "body", "result"}
        _fields(where, entry, needed, needed)
        start = self.handle(*_only(entry["inputs"], f"{where}.inputs"))
        state = Released[Any](State())
        if not isinstance(entry["state"], str) or entry["state"] in self.handles:
            raise DocumentError(f"{where}.state must be a new name, got {entry['state']!r}")
        self.handles[entry["state"]] = state
        self.nodes(entry["body"], f"{where}.body")
        result = self.handle(entry["result"], f"{where}.result")
        try:
            body = Repeat(entry["times"], state, result)
        except PlanError as error:
            raise DocumentError(f"{where}: {error}") from None
        return Released(body, (start, *frontier(body)))

    def _value(self, value: Any, where: str) -> Any:
        if isinstance(value, Mapping):
            if "free" in value:
                _fields(where, value, {"free", "weight"}, {"free"})
                return Free(value["free"], value.get("weight", 1.0))
            if "function" in value:
                _fields(where, value, {"function"}, {"function"})
                if not isinstance(value["function"], str) or ":" not in value["function"]:
                    raise DocumentError(
                        f"{where}.function must be 'module:name', got {value['function']!r}"
                    )
                return Function(value["function"])
            if "mechanism" in value:
                return self._mechanism(value, where)
            if set(value) == {"bounds"}:
                return tuple(_sequence(value["bounds"], f"{where}.bounds"))
            if set(value) == {"categories"}:
                return list(_sequence(value["categories"], f"{where}.categories"))
            if set(value) == {"float"}:
                return float(value["float"])
            return {k: self._value(v, f"{where}.{k}") for k, v in value.items()}
        if isinstance(value, list):
            return [self._value(v, f"{where}[{i}]") for i, v in enumerate(value)]
        return value

    def _mechanism(self, value: Mapping[str, Any], where: str) -> Mechanism:
        cls = self._mechanism_class(value["mechanism"], where)
        known = {f.name for f in attrs.fields(cls)}
        _fields(where, value, known | {"mechanism"}, {"mechanism"})
        try:
            return cls(
                **{k: self._value(v, f"{where}.{k}") for k, v in value.items() if k in known}
            )
        except (PlanError, TypeError, ValueError) as error:
            raise DocumentError(f"{where}: {error}") from None

    def _mechanism_class(self, name: Any, where: str) -> type[Mechanism]:
        if not isinstance(name, str):
            raise DocumentError(f"{where}.mechanism must be a name, got {name!r}")
        module, _, qualified = name.rpartition(":")
        if not module:
            for cls in _all(Mechanism):
                if cls.__name__ == name and cls.__module__.startswith("adaptive_dp.primitives."):
                    return cls
            raise DocumentError(f"{where}.mechanism: the library has no mechanism {name!r}")
        if module not in self.allow:
            raise DocumentError(
                f"{where}.mechanism: {name!r} is not part of the library; importing it runs its "
                f"module's code. If you trust it, allow it: load(..., allow=[{module!r}]), or "
                f"--allow {module} on the command line"
            )
        try:
            found: Any = importlib.import_module(module)
            for part in qualified.split("."):
                found = getattr(found, part)
        except (ImportError, AttributeError):
            raise DocumentError(f"{where}.mechanism: {name!r} cannot be imported") from None
        if not (inspect.isclass(found) and issubclass(found, Mechanism)):
            raise DocumentError(f"{where}.mechanism: {name!r} is not a Mechanism")
        return found


def _all(cls: type[Mechanism]) -> list[type[Mechanism]]:
    return [cls, *(found for sub in cls.__subclasses__() for found in _all(sub))]


def _wrap(value: Operation, inputs: tuple[Handle, ...]) -> Handle:
    handle = {"private": Private, "released": Released, "public": Public}[value.colour]
    return handle(value, inputs)


def _fields(where: str, value: Any, known: Collection[str], required: Collection[str]) -> None:
    if not isinstance(value, Mapping):
        raise DocumentError(f"{where} must be a mapping, got {type(value).__name__}")
    unknown = sorted(set(value) - set(known))
    missing = sorted(set(required) - set(value))
    if unknown:
        raise DocumentError(
            f"{where}: unknown field {', '.join(map(repr, unknown))}; known are {', '.join(sorted(known))}"
        )
    if missing:
        raise DocumentError(f"{where}: missing field {', '.join(map(repr, missing))}")


def _sequence(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise DocumentError(f"{where} must be a list, got {type(value).__name__}")
    return value


def _only(value: Any, where: str) -> tuple[Any, str]:
    items = _sequence(value, where)
    if len(items) != 1:
        raise DocumentError(f"{where} must hold one node, the start, got {len(items)}")
    return items[0], where
