"""Reading plan documents: JSON or TOML in, the same plan back, with the same fingerprint.

Code is named and never included: the library's functions, operations and mechanisms by their public
names (see `adaptive_dp.graph.registry`), a third party's as ``module:name``. A module is imported
only where the reader allows it: for an operation or a mechanism when the document is read, for a
function when the plan runs. The form is described by `adaptive_dp.schemas`.

A document may be written by hand, in TOML; what has a default may be left out, and ``{}``
stands for a column without bounds::

    format = "adaptive-dp/plan/2"
    nodes = [
      { id = "people", kind = "dataset", name = "people",
        columns = { age = { bounds = [0, 100] } } },
      { id = "age", kind = "column", inputs = ["people"], name = "age" },
      { id = "sum", kind = "sum", inputs = ["age"], bounds = [0, 100] },
      { id = "total", kind = "release", inputs = ["sum"],
        mechanism = { mechanism = "Laplace", scale = 50 } },
    ]
    outputs = [{ path = ["total"], node = "total" }]
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import tomllib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from accountants.document import Codec, loads, parameters, short_repr
from adaptive_dp.graph import registry
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.handles import Handle, Private, Public, Release, Released, exact_key
from adaptive_dp.graph.loops import (
    Case,
    Loop,
    Repeat,
    Select,
    State,
    frontier,
    in_each_round,
    refuse_shared_draws,
)
from adaptive_dp.graph.mechanism import Free, Mechanism
from adaptive_dp.graph.nodes import FORMAT, JSON, Path, collection_paused
from adaptive_dp.graph.operation import Operation, Query
from adaptive_dp.graph.plan import Arrivals, Pipeline, check_flow
from adaptive_dp.graph.registry import Function, find_attribute, home, permitted
from adaptive_dp.graph.values import LIMITS, Limits, check_values, fields_of

# -----------------------------------------------------------------------------
# Reading a document from top to bottom: handles by node id.

T = TypeVar("T")

CERTIFICATE = "adaptive-dp/certificate/"

LOOPS: Mapping[str, type[Loop]] = {each.kind: each for each in (Repeat, Select, Case)}
"""The operations with a body, by kind."""

_WRONG = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What code may raise on values that no declaration foresaw: never more than a DocumentError."""


def load(
    document: Mapping[str, Any] | str | os.PathLike[str],
    *,
    allow: Collection[str] = (),
    limits: Limits = LIMITS,
) -> Pipeline:
    """Return the plan of a document.

    Parameters
    ----------
    document
        A mapping, its JSON or TOML text, or the `pathlib.Path` of a file with that.
    allow
        Modules of third parties from which operations, mechanisms and functions may be imported:
        operations and mechanisms now, functions when the plan runs. Importing a module runs its
        code, and running the plan calls its functions: name only those that you trust. A plan
        whose functions are not allowed can be certified, verified and drawn, not run.
    limits
        How large the document may be, and what reading it may take.

    Raises
    ------
    DeclarationError
        If ``allow`` is not a list of module names.
    DocumentError
        If the document is not of the declared form, with the place and the remedy.
    LimitError
        If it passes a limit.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> people = dp.dataset("people", columns={"age": (0, 100)})
    >>> plan = dp.Pipeline(n=people.count().release(dp.Laplace(scale=2)))
    >>> again = load(plan.to_json())
    >>> again, again.fingerprint == plan.fingerprint
    (<plan of 3 nodes: n>, True)
    """
    modules = permitted(allow)
    text = _text_of(document, limits)
    limits.check_text(text, "plan")
    return limits.watched("plan", lambda: loaded(text, modules, {}, limits)[0])


@collection_paused()
def loaded(
    document: Mapping[str, Any] | str,
    modules: Collection[str],
    earlier: Mapping[str, Handle],
    limits: Limits = LIMITS,
) -> tuple[Pipeline, Mapping[str, Handle]]:
    """Return the plan of a document that may read nodes of earlier ones, and its nodes by id.

    Parameters
    ----------
    document, modules
        As `load` takes them, the modules checked.
    earlier
        Nodes that the document reads and does not hold, by the ids that it has for them.
    limits
        Of these the number of nodes.

    Raises
    ------
    DocumentError
        If the document is not of the declared form, with the place and the remedy.
    """
    parsed = _parsed(document) if isinstance(document, str) else document
    # the types of all values are checked before anything is built
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
    # nodes of earlier documents of the same ledger may be read by their id
    reader.handles.update(earlier)
    reader.used.update(earlier)
    limits.check_nodes(parsed["nodes"], "plan")
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


def _text_of(document: Any, limits: Limits) -> Any:
    """Return the text of a file; anything else as it is."""
    if not isinstance(document, os.PathLike):
        return document
    where = os.fspath(document)
    try:
        limits.check_file(where)
        with open(where, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"plan: {where} cannot be read: {error}") from None


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        document = loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        # a str is a document, never a path: one that names a file is most likely meant as one
        a_file = text.endswith((".json", ".toml")) and "\n" not in text
        instead = f"; for the file write load(pathlib.Path({text!r}))" if a_file else ""
        raise DocumentError(f"plan: neither JSON nor TOML: {error}{instead}") from None
    assert isinstance(document, dict)
    return document


class _Reader:
    """Handles by node id, as the document is read from top to bottom."""

    def __init__(self, allow: Collection[str]) -> None:
        self.allow = allow
        self.codec = plan_codec(allow)
        self.handles: dict[str, Handle] = {}
        self.states: tuple[Handle, ...] = ()  # of the loops around the entry, outermost first
        self.depths: dict[str, int] = {}  # in how many loops each entry stands
        self.used: set[str] = set()
        self.operations: dict[str, Operation] = {}  # by what entries say of them
        self.arrivals: Arrivals = {}

    def items(self, value: Any, where: str) -> list[Any]:
        """Return the items of a list."""
        if not isinstance(value, list | tuple):
            raise DocumentError(f"{where} must be a list, got {type(value).__name__}")
        return list(value)

    def handle(self, name: Any, where: str) -> Handle:
        if not isinstance(name, str) or name not in self.handles:
            raise DocumentError(
                f"{where}: there is no node {name!r} before it; list nodes after their inputs"
            )
        handle = self.handles[name]
        query = isinstance(handle.operation, Query)
        return handle if query or handle.visibility != "private" else self._in_each_round(name)

    def _in_each_round(self, name: str) -> Handle:
        """Return a private handle as the bodies around read it: in each of their rounds."""
        handle = self.handles[name]
        for state in self.states[self.depths.get(name, 0) :]:
            handle = in_each_round(handle, state)
        return handle

    def nodes(self, entries: Any, where: str) -> None:
        for i, entry in enumerate(self.items(entries, where)):
            at = f"{where}[{i}]"
            # the document may hold anything: each access follows a check of the type
            if not isinstance(entry, Mapping):
                raise DocumentError(f"{at} must be a mapping, got {type(entry).__name__}")
            name = entry.get("id")
            if not isinstance(name, str) or not name:
                raise DocumentError(f"{at}.id must be a name, got {name!r}")
            # ids are unique over the whole document, loops' bodies included
            self._new(name, f"{at}.id")
            self.handles[name] = self._node(entry, f"{at} ({entry.get('kind')})")
            # in how many loops it stands: a deeper body reads it in each of its rounds
            self.depths[name] = len(self.states)

    def _new(self, name: str, where: str) -> None:
        if name in self.used:
            raise DocumentError(f"{where}: {name!r} is the id of an earlier node; choose another")
        self.used.add(name)

    def _node(self, entry: Mapping[str, Any], where: str) -> Handle:
        kind = entry.get("kind")
        if isinstance(kind, str) and kind in LOOPS:
            return self._loop(entry, where, LOOPS[kind])
        # of very many entries most say of their operation what an earlier one has said
        said = _said(entry)
        operation = self.operations.get(said)
        cls: Any = type(operation)
        if operation is None:
            cls = operation_class(kind, f"{where}.kind", self.allow)
            values = self.codec.arguments(cls, entry, where, beside={"id", "kind", "inputs"})
        names = self.items(entry.get("inputs", []), f"{where}.inputs")
        inputs = tuple(self.handle(name, f"{where}.inputs") for name in names)
        in_body = not self.states or any(self.states[-1] in each.states for each in inputs)
        if cls is Release and inputs and not in_body:
            # a query from outside that the body releases: the query is computed in each round
            inputs = (self._in_each_round(names[0]), *inputs[1:])
        try:
            if operation is None:
                operation = cls(**values)
                # what may change, or says itself what equals what, is made for each entry
                if said and exact_key(operation) is not None:
                    self.operations[said] = operation
            handle = _wrap(operation, inputs)
            # each node is checked as it is read, so that the error names its place
            check_flow(handle, self.arrivals)
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
        # names of the body are not seen outside of it
        outside, around = dict(self.handles), self.states
        self.handles[entry["state"]] = state
        self.states = (*around, state)
        self.nodes(entry["body"], f"{where}.body")
        result = self.handle(entry["result"], f"{where}.result")
        self.handles, self.states = outside, around  # names of the body end with it
        types = parameters(kind)
        values: dict[str, Any] = {
            name: self.codec.read(types[name][1], entry[name], f"{where}.{name}") for name in own
        }
        try:
            # the same rules as for a loop that is written in Python
            refuse_shared_draws(str(entry["kind"]), state, result)
            body = kind(**values, state=state, result=result)
            handle = Released[Any](body, (start, *frontier(body)))
            check_flow(handle)
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


def _said(entry: Mapping[str, Any]) -> str:
    """Return what an entry says of its operation, as JSON; empty where it has no JSON."""
    try:
        return JSON.encode({k: v for k, v in entry.items() if k not in ("id", "inputs")})
    except TypeError:  # a mapping of another type than `dict`, which a caller may give
        return ""


def _wrap(value: Operation, inputs: tuple[Handle, ...]) -> Handle:
    handle = {"private": Private, "released": Released, "public": Public}[value.visibility]
    return handle(value, inputs)


# -----------------------------------------------------------------------------
# The forms that only plan documents have (functions, mechanisms, free parameters), and which code
# they may import.


def plan_codec(allow: Collection[str]) -> Codec:
    """Return the codec that reads the parameters of plans.

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
        # the rest are parameters: fixed ones are read by their types, free ones stay free
        given = {k: v for k, v in value.items() if k != "mechanism"}
        unset = {k: v for k, v in given.items() if isinstance(v, Mapping) and "free" in v}
        fixed = {k: v for k, v in given.items() if k not in unset}
        free = {k: _free(codec, v, f"{place}.{k}") for k, v in unset.items()}
        codec.only(free, parameters(cls), (), place)
        arguments = codec.arguments(cls, fixed, place, given=free)
        instance: Mechanism = codec.made(cls, arguments, place)
        return instance

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
    cls: type[Mechanism] = own
    # a mechanism of the library may hand values to another library, which must be allowed as well
    for library in cls.libraries:
        if library not in allow:
            raise DocumentError(
                f"{where}: {name!r} hands what the document says to {library}, which is not part "
                f"of the library. If you trust it, allow it: load(..., allow=[{library!r}]), or "
                f"--allow {library} on the command line"
            )
    return cls


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
    name: Any, where: str, allow: Collection[str], base: type[T], own: Iterable[str]
) -> type[T]:
    """Return a third party's class, imported from a module that the reader allows."""
    what = base.__name__.lower()
    if not isinstance(name, str):
        raise DocumentError(f"{where} must be a str, got {short_repr(name)}")
    module, _, qualified = name.rpartition(":")
    if not module:
        raise DocumentError(
            f"{where}: the library has no {what} {name!r}; it has {', '.join(sorted(own))}"
        )
    # checked before the import, which runs the module's code
    if module not in allow:
        raise DocumentError(
            f"{where}: {name!r} is not part of the library; importing it runs its module's code. "
            f"If you trust it, allow it: load(..., allow=[{module!r}]), or --allow {module} on the "
            "command line"
        )
    try:
        importlib.import_module(module)
        cls = find_attribute(module, qualified)
    except Exception as error:  # whatever a module's code may raise
        raise DocumentError(
            f"{where}: {name!r} cannot be imported ({type(error).__name__})"
        ) from None
    # defined there, not only imported there: to allow one module allows no other
    if not (inspect.isclass(cls) and issubclass(cls, base) and home(cls) == module):
        raise DocumentError(f"{where}: {module!r} defines no {what} {qualified!r}")
    # the library's own classes have one name in documents, so that fingerprints are unique
    if registry.is_own(cls):
        raise DocumentError(f"{where}: {name!r} is part of the library; name it without its module")
    return cls


__all__ = ["FORMAT", "load"]
