"""Plan documents: the values in a document's entries, and writing a plan."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from accountants.document import Codec, parameters, short_repr
from adaptive_dp.graph import registry
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loops import Loop, State
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.nodes import Node, Structure, encode
from adaptive_dp.graph.operation import Operation
from adaptive_dp.graph.registry import Function, found, home, name_of

if TYPE_CHECKING:
    from adaptive_dp.graph.plan import Pipeline

# -----------------------------------------------------------------------------
# The forms of their own that a plan document has: functions, mechanisms, and whose they are.


T = TypeVar("T")


def plan_codec(allow: Collection[str]) -> Codec:
    """Return what reads the parameters of plans.

    Parameters
    ----------
    allow
        Modules from which mechanisms and functions may be imported.
    """

    def function(value: Any, place: str) -> Function:
        """Return a function by name; it is imported when the plan runs, if it is allowed."""
        codec.only(value, {"function"}, {"function"}, place)
        name = codec.read(str, value["function"], f"{place}.function")
        if name not in registry.FUNCTIONS and not re.fullmatch(r"[\w.]+:[\w.]+", name):
            raise DocumentError(
                f"{place}.function: {short_repr(name)} is neither 'module:name' nor the name of "
                "one of the library's functions"
            )
        return Function.named(name, allow)

    def mechanism(value: Any, place: str) -> Mechanism:
        """Return a mechanism; a third party's only if its module is allowed."""
        codec.only(value, value if isinstance(value, Mapping) else (), {"mechanism"}, place)
        cls: Any = mechanism_class(value["mechanism"], f"{place}.mechanism", allow)
        given = {k: v for k, v in value.items() if k != "mechanism"}
        open_ = {k: v for k, v in given.items() if isinstance(v, Mapping) and "free" in v}
        fixed = {k: v for k, v in given.items() if k not in open_}
        free = {k: _free(codec, v, f"{place}.{k}") for k, v in open_.items()}
        codec.only(free, parameters(cls), (), place)
        arguments = codec.arguments(cls, fixed, place, given=free)
        made: Mechanism = codec.made(cls, arguments, place)
        return made

    codec = Codec(
        DocumentError, readers={Function: function, Mechanism: mechanism}, required=(Free,)
    )
    return codec


def _free(codec: Codec, value: Mapping[str, Any], place: str) -> Free:
    """Return a parameter that is left free, from ``{"free": name, "weight": number}``."""
    codec.only(value, {"free", "weight"}, {"free"}, place)
    try:
        return Free(value["free"], value.get("weight", 1.0))
    except PlanError as error:
        raise DocumentError(f"{place}: {error}") from None


def mechanism_class(name: Any, where: str, allow: Collection[str]) -> type[Mechanism]:
    """Return a mechanism's class by its name.

    Raises
    ------
    DocumentError
        If there is none of that name, or its code, or code that it calls, is not allowed.
    """
    own = registry.mechanism(name) if isinstance(name, str) else None
    if own is None:
        return _imported(name, where, allow, Mechanism, registry.MECHANISMS)
    found: type[Mechanism] = own
    for library in found.libraries:
        if library not in allow:
            raise DocumentError(
                f"{where}: {name!r} hands what the document says to {library}, which is not part "
                f"of the library. If you trust it, allow it: load(..., allow=[{library!r}]), or "
                f"--allow {library} on the command line"
            )
    return found


MADE_BY_LOOPS = ("state", "round input")
"""Kinds of operations that a document never names: its loops make them."""


def operation_class(kind: Any, where: str, allow: Collection[str]) -> type[Operation]:
    """Return an operation's class by its kind.

    Raises
    ------
    DocumentError
        If there is none of that kind, or its module is not allowed.
    """
    own = registry.operation(kind) if isinstance(kind, str) and kind not in MADE_BY_LOOPS else None
    return own or _imported(kind, where, allow, Operation, registry.OPERATIONS)


def _imported(
    name: Any, where: str, allow: Collection[str], base: type[T], known: Iterable[str]
) -> type[T]:
    """Return a third party's class, imported from a module that the reader allows."""
    what = base.__name__.lower()
    if not isinstance(name, str):
        raise DocumentError(f"{where} must be a str, got {short_repr(name)}")
    module, _, qualified = name.rpartition(":")
    if not module:
        raise DocumentError(
            f"{where}: the library has no {what} {name!r}; it has {', '.join(sorted(known))}"
        )
    if module not in allow:
        raise DocumentError(
            f"{where}: {name!r} is not part of the library; importing it runs its module's code. "
            f"If you trust it, allow it: load(..., allow=[{module!r}]), or --allow {module} on the "
            "command line"
        )
    try:
        importlib.import_module(module)
        cls = found(module, qualified)
    except Exception as error:  # whatever a module's code may raise
        raise DocumentError(
            f"{where}: {name!r} cannot be imported ({type(error).__name__})"
        ) from None
    if not (inspect.isclass(cls) and issubclass(cls, base) and home(cls) == module):
        raise DocumentError(f"{where}: {module!r} defines no {what} {qualified!r}")
    if registry.is_own(cls):
        raise DocumentError(f"{where}: {name!r} is part of the library; name it without its module")
    return cls


# -----------------------------------------------------------------------------
# Writing a plan as a document.


FORMAT = "adaptive-dp/plan/2"


def to_document(plan: Pipeline) -> dict[str, Any]:
    """Return the plan as JSON values: nodes in order, outputs by path."""
    return excerpt(plan, ())[0]


def excerpt(plan: Pipeline, without: Collection[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the plan as JSON values, some nodes left out; and of these the digests of those read.

    Parameters
    ----------
    plan
        What is written.
    without
        Names of the nodes that the reader has; `load` does not read what is written without them,
        `loaded` does, given their handles by the ids under which digests are returned.
    """
    writer = _Writer(plan.structure, frozenset(without))
    document = {
        "format": FORMAT,
        "delta": plan.delta,
        "nodes": writer.nodes(None),
        "outputs": [
            {"path": list(path), "node": writer.reference(handle)} for path, handle in plan.outputs
        ],
    }
    return document, writer.read


class _Writer:
    """The entries of a structure's nodes and groups; inputs are named by their entries."""

    def __init__(self, structure: Structure, without: frozenset[str] = frozenset()) -> None:
        self.structure, self.without = structure, without
        self.read: dict[str, str] = {}
        self.groups = {id(h): self._free(f"group {t}") for t, h in structure.groups.items()}

    def nodes(self, loop: str | None) -> list[dict[str, Any]]:
        """Return the entries of one repeat's body, or of what is in none, in the graph's order.

        It lists inputs before their readers.
        """
        inside = [n for n in self.structure if _innermost(n) == loop and n.name not in self.without]
        nodes = [n for n in inside if not _is_state(n)]
        entries = [(n.rank, self._node(n)) for n in nodes]
        of = {n.name for n in inside}
        groups = self.structure.groups.values()
        rank = self.structure.ranks
        entries += [
            (rank[id(h)], self._group(h)) for h in groups if self.structure.of(h).name in of
        ]
        return [entry for _, entry in sorted(entries, key=lambda pair: pair[0])]

    def reference(self, handle: Handle) -> str:
        """Return the id of a handle's entry."""
        node = self.structure.of(handle)
        name = self.groups.get(id(handle)) or node.name
        if node.name in self.without:
            self.read[name] = node.digest
        return name

    def _free(self, title: str) -> str:
        while title in self.structure.nodes:
            title += "'"
        return title

    def _node(self, node: Node) -> dict[str, Any]:
        operation = node.handle.operation
        entry: dict[str, Any] = {"id": node.name, "kind": name_of(type(operation), operation.kind)}
        if isinstance(operation, Loop):
            return entry | self._loop(node, operation)
        if node.handle.inputs:
            entry["inputs"] = [self.reference(i) for i in node.handle.inputs]
        return entry | {k: encode(v) for k, v in operation.parameters().items()}

    def _loop(self, node: Node, operation: Loop) -> dict[str, Any]:
        return {
            "inputs": [self.reference(node.handle.inputs[0])],
            **operation.parameters(),
            "state": self.structure.of(operation.state).name,
            "body": self.nodes(node.name),
            "result": self.reference(operation.result),
        }

    def _group(self, handle: Handle) -> dict[str, Any]:
        inputs = [self.reference(i) for i in handle.inputs]
        entry = {"id": self.reference(handle), "kind": "group", "inputs": inputs}
        return entry | handle.operation.parameters()


def _innermost(node: Node) -> str | None:
    return node.loops[-1] if node.loops else None


def _is_state(node: Node) -> bool:
    return isinstance(node.handle.operation, State)
