"""Reading a plan document."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from typing import Any

from accountants.document import loads, parameters
from adaptive_dp.graph.codec import FORMAT, operation_class, plan_codec, to_document
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.handles import Handle, Private, Public, Release, Released
from adaptive_dp.graph.loops import (
    Loop,
    Repeat,
    Select,
    State,
    fresh_in_each_round,
    frontier,
    in_each_round,
)
from adaptive_dp.graph.nodes import Path
from adaptive_dp.graph.operation import Operation, Query
from adaptive_dp.graph.plan import Pipeline, flows
from adaptive_dp.graph.registry import permitted
from adaptive_dp.graph.values import check_values, fields_of

# -----------------------------------------------------------------------------
# Reading a plan document.


CERTIFICATE = "adaptive-dp/certificate/"

_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code may raise on values that no declaration foresaw: never more than a DocumentError."""


def load(document: Mapping[str, Any] | str, *, allow: Collection[str] = ()) -> Pipeline:
    """Return the plan of a document.

    Parameters
    ----------
    document
        A mapping, or its JSON or TOML text.
    allow
        Modules of third parties from which operations, mechanisms and functions may be imported:
        operations and mechanisms now, functions when the plan runs. Importing a module runs its
        code, and running the plan calls its functions: name only those that you trust. A plan
        whose functions are not allowed can be certified, verified and drawn, not run.

    Raises
    ------
    DeclarationError
        If ``allow`` is no list of module names.
    DocumentError
        If the document is not of the declared form, with the place and the cure.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> again = load(plan.to_json())
    >>> again, again.fingerprint == plan.fingerprint
    (<plan of 3 nodes: n>, True)
    """
    return loaded(document, permitted(allow), {})[0]


def loaded(
    document: Mapping[str, Any] | str, modules: Collection[str], known: Mapping[str, Handle]
) -> tuple[Pipeline, Mapping[str, Handle]]:
    """Return the plan of a document that may read nodes of earlier ones, and its nodes by id.

    Parameters
    ----------
    document, modules
        As `load` takes them, the modules checked.
    known
        Nodes that the document reads and does not hold, by the ids that it has for them.

    Raises
    ------
    DocumentError
        If the document is not of the declared form, with the place and the cure.
    """
    parsed = _parsed(document) if isinstance(document, str) else document
    check_values(parsed, "plan")
    if isinstance(parsed, Mapping) and str(parsed.get("format")).startswith(CERTIFICATE):
        raise DocumentError(
            "this is a certificate, not a plan: read it by Certificate.from_json(text), and its "
            "plan by load(certificate.plan)"
        )
    if isinstance(parsed, Mapping) and parsed.get("format", FORMAT) != FORMAT:
        raise DocumentError(f"plan: 'format' must be {FORMAT!r}, got {parsed['format']!r}")
    reader = _Reader(modules)
    needed = {"format", "nodes", "outputs"}
    reader.codec.only(parsed, {*needed, "delta"}, needed, "plan")
    reader.handles.update(known)
    reader.used.update(known)
    reader.nodes(parsed["nodes"], "nodes")
    entries = reader.items(parsed["outputs"], "outputs")
    outputs = [reader.output(entry, f"outputs[{i}]") for i, entry in enumerate(entries)]
    delta = reader.codec.read(float, parsed.get("delta", 0.0), "plan.delta")
    try:
        plan = Pipeline.of(outputs, delta)
        _ = plan.structure  # everything that can fail fails here
    except (PlanError, *_WRONG) as error:
        raise DocumentError(f"plan: {error}") from None
    return plan, reader.handles


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        found = loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"plan: neither JSON nor TOML: {error}") from None
    assert isinstance(found, dict)
    return found


class _Reader:
    """Handles by node id, as the document is read from top to bottom."""

    def __init__(self, allow: Collection[str]) -> None:
        self.allow = allow
        self.codec = plan_codec(allow)
        self.handles: dict[str, Handle] = {}
        self.states: tuple[Handle, ...] = ()  # of the loops around what is read, outermost first
        self.depths: dict[str, int] = {}  # in how many loops an entry stands
        self.used: set[str] = set()

    def items(self, value: Any, where: str) -> list[Any]:
        """Return the items of a list."""
        if not isinstance(value, list | tuple):
            raise DocumentError(f"{where} must be list, got {type(value).__name__}")
        return list(value)

    def handle(self, name: Any, where: str) -> Handle:
        if not isinstance(name, str) or name not in self.handles:
            raise DocumentError(
                f"{where}: no node {name!r} stands before it; nodes are listed after their inputs"
            )
        found = self.handles[name]
        query = isinstance(found.operation, Query)
        return found if query or found.visibility != "private" else self._in_each_round(name)

    def _in_each_round(self, name: str) -> Handle:
        """Return a private handle as the bodies around read it: what stands in them is inside."""
        found = self.handles[name]
        for state in self.states[self.depths.get(name, 0) :]:
            found = in_each_round(found, state)
        return found

    def nodes(self, entries: Any, where: str) -> None:
        for i, entry in enumerate(self.items(entries, where)):
            at = f"{where}[{i}]"
            if not isinstance(entry, Mapping):
                raise DocumentError(f"{at} must be a mapping, got {type(entry).__name__}")
            name = entry.get("id")
            if not isinstance(name, str) or not name:
                raise DocumentError(f"{at}.id must be a name, got {name!r}")
            self._new(name, f"{at}.id")
            self.handles[name] = self._node(entry, f"{at} ({entry.get('kind')})")
            self.depths[name] = len(self.states)

    def _new(self, name: str, where: str) -> None:
        if name in self.used:
            raise DocumentError(f"{where}: {name!r} is the id of an earlier node; choose another")
        self.used.add(name)

    def _node(self, entry: Mapping[str, Any], where: str) -> Handle:
        kind = entry.get("kind")
        if kind in ("repeat", "select"):
            return self._loop(entry, where, Repeat if kind == "repeat" else Select)
        cls = operation_class(kind, f"{where}.kind", self.allow)
        beside = {"id", "kind", "inputs"}
        values = self.codec.arguments(cls, entry, where, beside=beside)
        names = self.items(entry.get("inputs", []), f"{where}.inputs")
        inputs = tuple(self.handle(name, f"{where}.inputs") for name in names)
        of_the_round = (
            any(self.states[-1] in each.states for each in inputs) if self.states else True
        )
        if cls is Release and inputs and not of_the_round:
            # a query from outside, released in each round: in each it is asked anew
            inputs = (self._in_each_round(names[0]), *inputs[1:])
        try:
            handle = _wrap(cls(**values), inputs)
            flows(handle)
        except (PlanError, *_WRONG) as error:
            raise DocumentError(f"{where}: {error}") from None
        return handle

    def _loop(self, entry: Mapping[str, Any], where: str, kind: type[Loop]) -> Handle:
        own = {f.name for f in fields_of(kind)} - {"state", "result"}
        keys = {"id", "kind", "inputs", "state", "body", "result"} | own
        self.codec.only(entry, keys, keys, where)
        starts = self.items(entry["inputs"], f"{where}.inputs")
        if len(starts) != 1:
            raise DocumentError(f"{where}.inputs must hold one node, the start, got {len(starts)}")
        start = self.handle(starts[0], f"{where}.inputs")
        state = Released[Any](State())
        if not isinstance(entry["state"], str) or not entry["state"]:
            raise DocumentError(f"{where}.state must be a new name, got {entry['state']!r}")
        self._new(entry["state"], f"{where}.state")
        outside, around = dict(self.handles), self.states
        self.handles[entry["state"]] = state
        self.states = (*around, state)
        self.nodes(entry["body"], f"{where}.body")
        result = self.handle(entry["result"], f"{where}.result")
        self.handles, self.states = outside, around  # the body is read by itself alone
        types = parameters(kind)
        values: dict[str, Any] = {
            name: self.codec.read(types[name][1], entry[name], f"{where}.{name}") for name in own
        }
        try:
            fresh_in_each_round(str(entry["kind"]), state, result)
            body = kind(**values, state=state, result=result)
            handle = Released[Any](body, (start, *frontier(body)))
            flows(handle)
        except (PlanError, *_WRONG) as error:
            raise DocumentError(f"{where}: {error}") from None
        return handle

    def output(self, entry: Any, where: str) -> tuple[Path, Handle]:
        """Return an output's path and handle."""
        self.codec.only(entry, {"path", "node"}, {"path", "node"}, where)
        path = entry["path"]
        if not isinstance(path, list) or not path or not all(isinstance(p, str) for p in path):
            raise DocumentError(f"{where}.path must be a list of names, got {path!r}")
        return tuple(path), self.handle(entry["node"], f"{where}.node")


def _wrap(value: Operation, inputs: tuple[Handle, ...]) -> Handle:
    handle = {"private": Private, "released": Released, "public": Public}[value.visibility]
    return handle(value, inputs)


# -----------------------------------------------------------------------------
# Plan documents: JSON out, the same plan back in, with the same fingerprint.
#
# Code is named, never carried: the library's functions, operations and mechanisms by their public
# names (see `adaptive_dp.graph.registry`), a third party's as ``module:name``. A module is imported
# only where the reader allows it: for an operation or a mechanism when the document is read, for a
# function when the plan runs. The form is described by `adaptive_dp.schemas`.
#
# A document may be written by hand, in TOML; what has a default may be left out, and ``{}``
# stands for a column without bounds::
#
#     format = "adaptive-dp/plan/2"
#     nodes = [
#       { id = "people", kind = "dataset", name = "people",
#         columns = { age = { bounds = [0, 100] } } },
#       { id = "age", kind = "column", inputs = ["people"], name = "age" },
#       { id = "sum", kind = "sum", inputs = ["age"], bounds = [0, 100] },
#       { id = "total", kind = "release", inputs = ["sum"],
#         mechanism = { mechanism = "Laplace", scale = 50 } },
#     ]
#     outputs = [{ path = ["total"], node = "total" }]


__all__ = ["FORMAT", "load", "to_document"]
