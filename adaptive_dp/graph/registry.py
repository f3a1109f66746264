"""The public names that documents have for the library's own code, and for users' functions."""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import math
import sys
import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from attrs import field, frozen

from accountants import document as accounting
from accountants.document import locate, names, place_of
from adaptive_dp.extensions import provided
from adaptive_dp.graph.errors import DeclarationError, RunError
from adaptive_dp.graph.values import strings

# -----------------------------------------------------------------------------
# What a document may name of the library, and where each of it is defined.
#
# Plans, certificates and ledgers name functions (``"adassp.ridge/4"``), operations (by `kind`) and
# mechanisms (by class name). They never say which module defines them: the tables of
# `adaptive_dp.names` do, so that code may move without a change of any stored fingerprint. The
# object of a name is imported when it is first asked for; a test compares the tables with the
# classes and functions that the packages define.
#
# A name never changes its meaning. The number after the slash of a function's name is its version:
# where what it returns changes, it gets a new number, and the documents that name the old one are
# refused.
#
# A class or a function is the library's own if it is the very object that a table names (`is_own`).
# The name of its module proves nothing: any module may call itself ``adaptive_dp.extra``.


FUNCTIONS: Mapping[str, str]
OPERATIONS: Mapping[str, str]
MECHANISMS: Mapping[str, str]
_tables: Any = provided("names")
FUNCTIONS, OPERATIONS, MECHANISMS = _tables
"""Functions, operations and mechanisms of the library by public name; see `adaptive_dp.names`."""

_FUNCTION_NAMES: Mapping[str, str] = {place: name for name, place in FUNCTIONS.items()}
_PLACES = frozenset([*FUNCTIONS.values(), *OPERATIONS.values(), *MECHANISMS.values()])
_OWN: dict[int, Any] = {}
"""Those of the library's classes and functions that `is_own` has been asked for, by `id`.

A set of them would also seem to hold what says of itself that it is equal to one of them.
"""


def is_own(thing: Any) -> bool:
    """Return whether a class or a function is the library's: the very object that a table names.

    Parameters
    ----------
    thing
        An operation's, a mechanism's, an accountant's, a loss's or a term's class, or a function
        that plans call.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> class Louder(dp.Laplace): ...
    >>> Louder.__module__, Louder.__qualname__ = dp.Laplace.__module__, dp.Laplace.__qualname__
    >>> is_own(dp.Laplace), is_own(Louder)
    (True, False)
    """
    # looked up once: it is asked of each node of a plan, and what a name stands for never changes
    if id(thing) in _OWN:
        return True
    # or of the package below, which has tables of its own
    own = names(thing, _PLACES) or accounting.is_own(thing)
    if own:
        _OWN[id(thing)] = thing
    return own


def function_name(function: Any) -> str | None:
    """Return the public name of one of the library's functions; None of any other.

    Examples
    --------
    >>> from adaptive_dp.learning.ssp import ridge
    >>> function_name(ridge), function_name(max)
    ('adassp.ridge/4', None)
    """
    # the very object, not only its place: a module may have been patched
    name = _FUNCTION_NAMES.get(place_of(function))
    return name if name is not None and locate(FUNCTIONS[name]) is function else None


def name_of(cls: Any, name: str) -> str:
    """Return how documents name a class: by ``name`` if it is the library's, else by its place.

    Examples
    --------
    >>> import adaptive_dp as dp
    >>> name_of(dp.Laplace, "Laplace"), name_of(int, "int")
    ('Laplace', 'builtins:int')
    """
    return name if is_own(cls) else place_of(cls)


def own_function(name: str) -> Callable[..., Any]:
    """Return the library's function of a public name, which must be one of `FUNCTIONS`."""
    function: Callable[..., Any] = locate(FUNCTIONS[name])
    return function


def operation(kind: str) -> Any:
    """Return the library's operation class of a kind; None if there is none."""
    return _find(OPERATIONS, kind)


def mechanism(name: str) -> Any:
    """Return the library's mechanism class of a name; None if there is none."""
    return _find(MECHANISMS, name)


def _find(table: Mapping[str, str], name: str) -> Any:
    place = table.get(name)
    return None if place is None else locate(place)


# -----------------------------------------------------------------------------
# Functions in plans: the library's by public names, users' by the modules that hold them.
#
# A function that no module holds (a lambda, a closure) is named by a digest of what it is.


@frozen
class Function:
    """A function that a plan calls, with the name that documents have for it.

    Parameters
    ----------
    name
        ``subject.what/version`` for one of the library (see `adaptive_dp.graph.registry`),
        ``module:qualified.name`` for another, ``lambda:digest`` for one that no module holds.
    call
        The function itself, or None until it is needed.
    allowed
        Whether it may be imported by its name; what a document names, only if its reader said so.
    """

    name: str
    call: Callable[..., Any] | None = field(default=None, eq=False, repr=False)
    allowed: bool = field(default=True, eq=False, repr=False)

    @property
    def label(self) -> str:
        """The last word of the name, for nodes' names; ``function`` where no module holds it.

        Examples
        --------
        >>> Function("adassp.ridge/4").label, Function("my.module:Mine.fitted").label
        ('ridge', 'fitted')
        """
        if self.name in FUNCTIONS:
            # the word between the dot and the version
            return self.name.partition(".")[2].partition("/")[0]
        module, _, name = self.name.partition(":")
        return "function" if module == "lambda" else name.rpartition(".")[2].lstrip("_")

    @classmethod
    def of(cls, function: Callable[..., Any]) -> Function:
        """Return the function with its name, or with a digest of what it is."""
        public = function_name(function)
        if public is not None:
            return cls(public, function)
        module = getattr(function, "__module__", None) or ""
        name = getattr(function, "__qualname__", None) or ""
        # its module and name lead to the function itself, so a document may name it; "<" marks
        # lambdas and local functions
        if module and name and "<" not in name and find_attribute(module, name) is function:
            return cls(f"{module}:{name}", function)
        # by code and what it closes over
        body = repr(fingerprint(function))
        return cls(f"lambda:{hashlib.sha256(body.encode()).hexdigest()[:16]}", function)

    @classmethod
    def named(cls, name: str, allow: Collection[str]) -> Function:
        """Return the function that a document names, to be imported if its module is allowed."""
        # not imported here: reading a document runs no code of others
        return cls(name, None, name in FUNCTIONS or name.partition(":")[0] in allow)

    def resolve(self) -> Callable[..., Any]:
        """Return the callable, imported by name if need be.

        Raises
        ------
        DeclarationError
            If a document names it, and its reader did not allow its module.
        RunError
            If it cannot be imported.
        """
        if self.call is not None:
            return self.call
        if self.name in FUNCTIONS:
            return own_function(self.name)
        module, _, name = self.name.partition(":")
        if module == "lambda":
            raise RunError(
                f"the plan calls {self.name}, a function that no module holds, so the document "
                "cannot bring it along; define it at the top level of a module"
            )
        if not self.allowed:
            raise DeclarationError(
                f"the document's plan calls {self.name}, which is not part of the library; to "
                "import it runs its module's code, and to run the plan calls it. If you trust it, "
                f"allow it: load(..., allow=[{module!r}]), or --allow {module} on the command line"
            )
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a module's code may raise
            raise RunError(
                f"the plan calls {self.name}, but module {module!r} cannot be imported "
                f"({type(error).__name__})"
            ) from None
        function = find_attribute(module, name)
        if not callable(function) or home(function) != module:
            raise RunError(f"the plan calls {self.name}, but {module!r} defines no such function")
        return function  # type: ignore[no-any-return]


def permitted(allow: Collection[str]) -> tuple[str, ...]:
    """Return the modules that a reader of documents allows.

    Raises
    ------
    DeclarationError
        If it is not a list of module names; a single str is not, since its characters are str too.
    """
    try:
        return strings(allow)
    except DeclarationError as error:
        raise DeclarationError(f"allow must be a list of module names: {error}") from None


def find_attribute(module: str, name: str) -> Any:
    """Return what a module holds under a qualified name, or None.

    The path leads through classes alone: not into another module, nor into a function's insides.
    """
    target: Any = sys.modules.get(module)
    for i, part in enumerate(name.split(".")):
        if i and not inspect.isclass(target):
            return None
        target = getattr(target, part, None)
    return target


def home(value: Any) -> Any:
    """Return the name of the module that defines a function or a class."""
    owner = getattr(value, "__objclass__", value)  # a builtin class's method names its class
    return getattr(owner, "__module__", None)


def fingerprint(value: Any) -> Any:
    """Return a description that identifies a value, the same in each interpreter of one version.

    Functions are their code with what is nested in it, their defaults and what they close over;
    numbers, str, arrays, lists and mappings are themselves; anything else is its type. What is not
    a number or a str is described once, under a digest, however often it is met: shared parts can
    make the number of paths through a value exponential.
    """
    walk = _Walk()
    root, _ = walk.of(value, 0)
    return root, sorted(walk.descriptions.items())


class _Walk:
    """A traversal of a value and all that it holds, with a description of each."""

    def __init__(self) -> None:
        self.descriptions: dict[str, Any] = {}
        # by id, with the value itself, so that no other object gets its id
        self._described: dict[int, tuple[Any, str]] = {}
        self._around: dict[int, int] = {}

    def of(self, value: Any, depth: int) -> tuple[Any, float]:
        """Return a value's digest, and the least depth of a value around it that it refers back to.

        A value that refers back to one around it (a cycle) is described by its position, so its
        digest is used again only where it refers to none: the depth is then infinite.
        """
        if value is None or isinstance(value, bool | int | float | complex | str | bytes | range):
            return (type(value).__name__, repr(value)), math.inf
        key = id(value)
        # a cycle: described by how many levels up the value is
        if key in self._around:
            around = self._around[key]
            return ("around", depth - around), around
        if key in self._described:
            return self._described[key][1], math.inf
        self._around[key] = depth
        outermost = math.inf

        def inner(part: Any) -> Any:
            nonlocal outermost
            description, least = self.of(part, depth + 1)
            outermost = min(outermost, least)
            return description

        description = _describe(value, inner)
        del self._around[key]
        name = hashlib.sha256(repr(description).encode()).hexdigest()
        self.descriptions[name] = description
        if outermost < depth:
            return name, outermost
        self._described[key] = value, name
        return name, math.inf


def _describe(value: Any, inner: Callable[[Any], Any]) -> Any:
    """Return a value's description, with its parts as ``inner`` describes them."""
    if isinstance(value, types.CodeType):
        shape = (value.co_argcount, value.co_posonlyargcount, value.co_kwonlyargcount)
        names = (value.co_names, value.co_varnames, value.co_freevars, value.co_cellvars)
        return "code", value.co_code, shape, value.co_flags, names, inner(value.co_consts)
    if isinstance(value, types.FunctionType):
        cells = [_content(cell) for cell in value.__closure__ or ()]
        defaults = (value.__defaults__, value.__kwdefaults__)
        return "function", inner(value.__code__), inner(defaults), inner(cells)
    if isinstance(value, types.MethodType):
        return "method", inner(value.__func__), inner(value.__self__)
    if isinstance(value, functools.partial):
        return "partial", inner(value.func), inner(value.args), inner(value.keywords)
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        array = np.ascontiguousarray(value)
        return "array", array.dtype.str, value.shape, hashlib.sha256(array.tobytes()).hexdigest()
    if isinstance(value, dict):
        return "mapping", [(inner(k), inner(v)) for k, v in value.items()]  # in their order
    if isinstance(value, set | frozenset):
        return "set", sorted(repr(inner(part)) for part in value)
    if isinstance(value, list | tuple):
        return type(value).__name__, [inner(part) for part in value]
    name = f"{home(value)}:{getattr(value, '__qualname__', '')}"
    if inspect.isclass(value) or isinstance(value, types.BuiltinFunctionType | np.ufunc):
        return "named", name
    kind = type(value)
    held = inner(vars(value)) if hasattr(value, "__dict__") and callable(value) else ""
    return "object", f"{kind.__module__}:{kind.__qualname__}", held


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return "empty"
