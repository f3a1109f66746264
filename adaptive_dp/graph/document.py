"""Plan documents: JSON out, the same plan back in, with the same fingerprint.

User code is named, never carried: a function or a mechanism from outside of the library is
written as ``module:name``. Reading a document imports a mechanism's module only where the
reader allows it, and a function's only when the plan runs. The form is described by
`adaptive_dp.schemas`.

A document may be written by hand, in TOML; what has a default may be left out, and ``{}``
stands for a column without bounds::

    format = "adaptive-dp/plan/1"
    nodes = [
      { id = "people", kind = "dataset", name = "people", columns = { age = { bounds = [0, 100] } } },
      { id = "age", kind = "column", inputs = ["people"], name = "age" },
      { id = "sum", kind = "sum", inputs = ["age"], bounds = [0, 100] },
      { id = "total", kind = "release", inputs = ["sum"], mechanism = { mechanism = "Laplace", scale = 50 } },
    ]
    outputs = [{ path = ["total"], node = "total" }]
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from adaptive_dp.graph.check import flows
from adaptive_dp.graph.encode import encode
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.free import Free
from adaptive_dp.graph.handles import Handle, Private, Public, Released
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation, operation
from adaptive_dp.graph.repeat import Repeat, State, frontier
from adaptive_dp.graph.steps import Function
from adaptive_dp.graph.structure import Node
from adaptive_dp.graph.wholesome import shown, unique_json, wholesome

if TYPE_CHECKING:
    from adaptive_dp.graph.pipeline import Pipeline

FORMAT = "adaptive-dp/plan/1"


def to_document(plan: Pipeline) -> dict[str, Any]:
    """Return the plan as JSON values: nodes in order, outputs by path."""
    structure = plan.structure
    wrappers = {id(handle): f"group {title}" for title, handle in structure.groups.items()}

    for handle, title in wrappers.items():
        while title in structure.nodes:
            title += "'"
        wrappers[handle] = title

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
    wholesome(parsed, "plan")
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
    delta = _simple("float", parsed.get("delta", 0.0), "plan.delta")
    try:
        plan = Pipeline.of(outputs, delta)
        _ = plan.structure  # everything that can fail fails here
    except (PlanError, *_WRONG) as error:
        raise DocumentError(f"plan: {error}") from None
    return plan


_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code may raise on values that no declaration foresaw: never more than a DocumentError."""

def _parsed(text: str) -> Mapping[str, Any]:
    try:
        if text.lstrip().startswith("{"):
            return unique_json(text)
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"plan: neither JSON nor TOML: {error}") from None


class _Reader:
    """Handles by node id, as the document is read from top to bottom."""

    def __init__(self, allow: Collection[str]) -> None:
        self.allow = allow
        self.handles: dict[str, Handle] = {}
        self.used: set[str] = set()

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
            self._new(name, f"{at}.id")
            self.handles[name] = self._node(entry, f"{at} ({entry.get('kind')})")

    def _new(self, name: str, where: str) -> None:
        if name in self.used:
            raise DocumentError(f"{where}: {name!r} is the id of an earlier node; choose another")
        self.used.add(name)

    def _node(self, entry: Mapping[str, Any], where: str) -> Handle:
        kind = entry.get("kind")
        if kind == "repeat":
            return self._repeat(entry, where)
        cls = operation(kind) if isinstance(kind, str) else None
        if cls is None or cls is State:
            raise DocumentError(
                f"{where}.kind: unknown kind {kind!r}; known are {', '.join(_kinds())}"
            )
        known = {f.name: f for f in attrs.fields(cls)}
        required = {f.name for f in attrs.fields(cls) if f.default is attrs.NOTHING}
        _fields(where, entry, {*known, "id", "kind", "inputs"}, required)
        inputs = tuple(
            self.handle(name, f"{where}.inputs")
            for name in _sequence(entry.get("inputs", []), f"{where}.inputs")
        )
        values = {
            k: self._field(_annotation(known[k]), v, f"{where}.{k}")
            for k, v in entry.items()
            if k in known
        }
        try:
            handle = _wrap(cls(**values), inputs)
            flows(handle)
        except (PlanError, *_WRONG) as error:
            raise DocumentError(f"{where}: {error}") from None
        return handle

    def _repeat(self, entry: Mapping[str, Any], where: str) -> Handle:
        needed = {"id", "kind", "inputs", "times", "state", "body", "result"}
        _fields(where, entry, needed, needed)
        start = self.handle(*_only(entry["inputs"], f"{where}.inputs"))
        state = Released[Any](State())
        if not isinstance(entry["state"], str) or not entry["state"]:
            raise DocumentError(f"{where}.state must be a new name, got {entry['state']!r}")
        self._new(entry["state"], f"{where}.state")
        outside = dict(self.handles)
        self.handles[entry["state"]] = state
        self.nodes(entry["body"], f"{where}.body")
        result = self.handle(entry["result"], f"{where}.result")
        self.handles = outside  # the body is read by itself alone
        try:
            body = Repeat(entry["times"], state, result)
            handle = Released[Any](body, (start, *frontier(body)))
            flows(handle)
        except (PlanError, *_WRONG) as error:
            raise DocumentError(f"{where}: {error}") from None
        return handle

    def _field(self, annotation: str, value: Any, where: str) -> Any:
        """Return a parameter, read as what its operation declares it to be."""
        match annotation:
            case "Function":
                return _function(value, where)
            case "Mechanism":
                return self._mechanism(value, where)
            case "Interval":
                return _bounds(value, where)
            case "tuple[Interval, ...]":
                items = _sequence(value, where)
                return tuple(_bounds(v, f"{where}[{i}]") for i, v in enumerate(items))
            case "Mapping[str, Column]":
                _fields(where, value, value if isinstance(value, Mapping) else (), ())
                return {k: _column(v, f"{where}.{k}") for k, v in value.items()}
        return _simple(annotation, value, where)

    def _mechanism(self, value: Any, where: str) -> Mechanism:
        _fields(where, value, value if isinstance(value, Mapping) else (), {"mechanism"})
        cls = self._mechanism_class(value["mechanism"], where)
        fields = [f for f in attrs.fields(cls) if f.init]
        required = {f.name for f in fields if f.default is attrs.NOTHING}
        _fields(where, value, {f.name for f in fields} | {"mechanism"}, required | {"mechanism"})
        values = {k: v for k, v in value.items() if k != "mechanism"}
        try:
            return cls(**{k: _parameter(v, f"{where}.{k}") for k, v in values.items()})
        except DocumentError:
            raise
        except Exception as error:  # an own mechanism's constructor may raise anything
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
        except Exception as error:  # whatever a module's code may raise
            raise DocumentError(
                f"{where}.mechanism: {name!r} cannot be imported ({type(error).__name__})"
            ) from None
        if not (inspect.isclass(found) and issubclass(found, Mechanism)):
            raise DocumentError(f"{where}.mechanism: {name!r} is not a Mechanism")
        return found


def _annotation(field: attrs.Attribute[Any]) -> str:
    return field.type if isinstance(field.type, str) else getattr(field.type, "__name__", "Any")


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


def _simple(annotation: str, value: Any, where: str) -> Any:
    """Return a value of the annotated type; one of another type than is known is taken as it is."""
    base = annotation.removesuffix(" | None")
    if value is None and base != annotation:
        return None
    types, words = _KINDS.get(base, ((object,), ""))
    whole = base in ("int", "float") and isinstance(value, bool)
    texts = base != "tuple[str, ...]" or all(isinstance(v, str) for v in value)
    if not isinstance(value, types) or whole or not texts:
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


def _parameter(value: Any, where: str) -> Any:
    if isinstance(value, Mapping) and "free" in value:
        _fields(where, value, {"free", "weight"}, {"free"})
        try:
            return Free(value["free"], value.get("weight", 1.0))
        except PlanError as error:
            raise DocumentError(f"{where}: {error}") from None
    return _plain(value, where)


def _function(value: Any, where: str) -> Function:
    _fields(where, value, {"function"}, {"function"})
    name = value["function"]
    if not isinstance(name, str) or not re.fullmatch(r"[\w.]+:[\w.]+", name):
        raise DocumentError(f"{where}.function must be 'module:name', got {shown(name)}")
    return Function(name)


def _bounds(value: Any, where: str) -> tuple[Any, Any]:
    if isinstance(value, Mapping):
        _fields(where, value, {"bounds"}, {"bounds"})
        value = value["bounds"]
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise DocumentError(f"{where} must be a pair of bounds [low, high], got {shown(value)}")
    return tuple(value)


def _column(value: Any, where: str) -> Any:
    """Return a column's declaration: a pair for bounds, a list for categories, None for neither."""
    if value is None or value == {}:
        return None
    if isinstance(value, Mapping) and set(value) == {"categories"}:
        return list(_sequence(value["categories"], f"{where}.categories"))
    if isinstance(value, Mapping) and set(value) == {"bounds"}:
        return _bounds(value, where)
    raise DocumentError(
        f"{where} must be {{'bounds': [low, high]}}, {{'categories': [...]}} or {{}} for neither, "
        f"got {shown(value)}"
    )


def _kinds() -> list[str]:
    found: set[str] = set()
    queue: list[type[Operation]] = [Operation]
    while queue:
        cls = queue.pop()
        found.add(cls.__dict__.get("kind", "state"))
        queue.extend(cls.__subclasses__())
    return sorted(found - {"state"})


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
