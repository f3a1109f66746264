"""What there is to choose from: the library's own parts, and the plug-ins of other distributions.

>>> from adaptive_dp import plugins
>>> plugins.load("mechanisms", "Laplace").__name__
'Laplace'

Plug-ins are published by entry points in the groups ``adaptive_dp.mechanisms``, ``.accountants``,
``.losses``, ``.queries`` and ``.solvers``. Importing the library imports none of them: `load`
imports one, `listed` those of a kind, to say on what theorem they rest. One that fails is named,
and keeps nobody from the others. A name of the library's own always means the library's own.
"""

from __future__ import annotations

import inspect
from importlib.metadata import EntryPoint
from typing import Any

from attrs import frozen

import adaptive_dp as dp
from accountants import PrivacyLoss
from accountants import losses as families
from adaptive_dp import learning as solvers
from adaptive_dp import pate
from adaptive_dp.graph.certify import KINDS, OURS, accountant, entries, resolved, titled, usable
from adaptive_dp.graph.errors import DeclarationError, PluginError
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.registry import OPERATIONS, operation

__all__ = ["KINDS", "Listed", "listed", "load"]


@frozen
class Listed:
    """One part, whose it is, and on what it rests.

    Parameters
    ----------
    kind
        One of `KINDS`.
    name
        By which `load` finds it.
    distribution, version
        Whose it is.
    theorem
        What it rests on, or what it is, in one line.
    problem
        Why it cannot be used; empty where it can.
    """

    kind: str
    name: str
    distribution: str
    version: str
    theorem: str
    problem: str = ""


def listed(kind: str) -> list[Listed]:
    """Return all parts of a kind: the library's own, then plug-ins, which are imported for it.

    Raises
    ------
    DeclarationError
        If there is no such kind.

    Examples
    --------
    >>> [part.name for part in listed("solvers")][:3]
    ['AdaOPS', 'AdaSSP', 'AdaptiveOutputPerturbation']
    """
    ours = _builtin(kind)
    found = [
        Listed(kind, name, "adaptive-dp", dp.__version__, _line(part))
        for name, part in sorted(ours.items())
    ]
    every = entries(kind)
    for entry in every:
        theorem, problem = "", ""
        try:
            theorem = _line(_loaded(kind, entry, every))
        except PluginError as error:
            problem = str(error)
        whose = (entry.dist.name, entry.dist.version) if entry.dist is not None else ("?", "?")
        found.append(Listed(kind, entry.name, *whose, theorem, problem))
    return found


def load(kind: str, name: str) -> Any:
    """Return a part by its name: a class, or for accountants an instance.

    Raises
    ------
    DeclarationError
        If there is no such kind, or nothing of that name.
    PluginError
        If a plug-in of that name cannot be used: with whose it is, and why.

    Examples
    --------
    >>> load("mechanisms", "Laplace")(scale=2.0)
    Laplace(scale=2.0)
    """
    ours = _builtin(kind)
    if name in ours:
        return ours[name]
    every = entries(kind)
    for entry in every:
        if entry.name == name:
            return _loaded(kind, entry, every)
    known = ", ".join(sorted([*ours, *(entry.name for entry in every)]))
    raise DeclarationError(f"there is no {name!r} among the {kind}; there are {known}")


def _loaded(kind: str, entry: EntryPoint, every: list[EntryPoint]) -> Any:
    """Return what a plug-in is, checked for its kind."""
    problem = usable(entry, _builtin(kind), every)
    if problem is not None:
        raise problem
    if kind == "accountants":
        return accountant(entry)
    found = resolved(entry)
    base = {"mechanisms": Mechanism, "losses": PrivacyLoss, "queries": Query}.get(kind)
    if base is not None:
        fits, needs = isinstance(found, type) and issubclass(found, base), f"a {base.__name__}"
        if kind == "queries" and inspect.isfunction(found):
            fits = True  # it makes a handle of a table or a column
    else:
        fits, needs = callable(getattr(found, "build", None)), "a class with build(table, ...)"
    if not fits:
        raise PluginError(f"{titled(entry)} must be {needs}, and is {type(found).__name__}")
    return found


def _builtin(kind: str) -> dict[str, Any]:
    """Return the library's own parts of a kind, by name."""
    match kind:
        case "mechanisms":
            rooms = [getattr(room, name) for room in (dp, pate) for name in room.__all__]
            return {c.__name__: c for c in rooms if _is(c, Mechanism) and c is not Mechanism}
        case "accountants":
            return dict(OURS)
        case "losses":
            every = [getattr(families, name) for name in families.__all__]
            return {c.__name__: c for c in every if _is(c, PrivacyLoss)}
        case "queries":
            return {kind: cls for kind in OPERATIONS if _is(cls := operation(kind), Query)}
        case "solvers":
            parts = [getattr(solvers, name) for name in solvers.__all__]
            return {c.__name__: c for c in parts if hasattr(c, "build")}
    raise DeclarationError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")


def _is(value: Any, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def _line(part: Any) -> str:
    """Return the theorem, or else what a part is, in one line."""
    theorem = getattr(part, "theorem", "")
    text = theorem if isinstance(theorem, str) and theorem else inspect.getdoc(part) or ""
    return " ".join(text.split("\n\n")[0].split())
