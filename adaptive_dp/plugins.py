"""What can be chosen by name: the library's own parts, and the plug-ins of other distributions.

>>> from adaptive_dp import plugins
>>> plugins.load("mechanisms", "Laplace").__name__
'Laplace'

Plug-ins are published by entry points in the groups ``adaptive_dp.mechanisms``, ``.accountants``,
``.losses``, ``.queries`` and ``.solvers``. Importing the library imports none of them: `load`
imports one, `listed` those of a kind, to say on what theorem they rest. One that fails is named,
and does not affect the others. A name of the library's own always means the library's own.
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
    """A class or accountant that can be chosen by name, with its distribution and theorem.

    Parameters
    ----------
    kind
        One of `KINDS`.
    name
        By which `load` finds it.
    distribution, version
        The distribution that contains it.
    theorem
        Its theorem, or else its description, in one line.
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
    parts = [
        Listed(kind, name, "adaptive-dp", dp.__version__, _summary(part))
        for name, part in sorted(ours.items())
    ]
    published = entries(kind)
    for entry in published:
        theorem, problem = "", ""
        try:
            theorem = _summary(_loaded(kind, entry, published))
        except PluginError as error:
            problem = str(error)
        distribution = (
            (entry.dist.name, entry.dist.version) if entry.dist is not None else ("?", "?")
        )
        parts.append(Listed(kind, entry.name, *distribution, theorem, problem))
    return parts


def load(kind: str, name: str) -> Any:
    """Return a part by its name: a class, or for accountants an instance.

    Raises
    ------
    DeclarationError
        If there is no such kind, or nothing of that name.
    PluginError
        If a plug-in of that name cannot be used: with its distribution, and why.

    Examples
    --------
    >>> load("mechanisms", "Laplace")(scale=2.0)
    Laplace(scale=2.0)
    """
    ours = _builtin(kind)
    if name in ours:
        return ours[name]
    published = entries(kind)
    for entry in published:
        if entry.name == name:
            return _loaded(kind, entry, published)
    known = ", ".join(sorted([*ours, *(entry.name for entry in published)]))
    raise DeclarationError(f"there is no {name!r} among the {kind}; there are {known}")


def _loaded(kind: str, entry: EntryPoint, published: list[EntryPoint]) -> Any:
    """Return a plug-in's object, checked for its kind."""
    problem = usable(entry, _builtin(kind), published)
    if problem is not None:
        raise problem
    if kind == "accountants":
        return accountant(entry)
    loaded = resolved(entry)
    base = {"mechanisms": Mechanism, "losses": PrivacyLoss, "queries": Query}.get(kind)
    if base is not None:
        fits, needs = isinstance(loaded, type) and issubclass(loaded, base), f"a {base.__name__}"
        if kind == "queries" and inspect.isfunction(loaded):
            fits = True  # it makes a handle of a table or a column
    else:
        fits, needs = callable(getattr(loaded, "build", None)), "a class with build(table, ...)"
    if not fits:
        raise PluginError(f"{titled(entry)} must be {needs}, and is {type(loaded).__name__}")
    return loaded


def _builtin(kind: str) -> dict[str, Any]:
    """Return the library's own parts of a kind, by name."""
    match kind:
        case "mechanisms":
            rooms = [getattr(room, name) for room in (dp, pate) for name in room.__all__]
            return {
                c.__name__: c for c in rooms if _is_subclass(c, Mechanism) and c is not Mechanism
            }
        case "accountants":
            return dict(OURS)
        case "losses":
            published = [getattr(families, name) for name in families.__all__]
            return {c.__name__: c for c in published if _is_subclass(c, PrivacyLoss)}
        case "queries":
            return {kind: cls for kind in OPERATIONS if _is_subclass(cls := operation(kind), Query)}
        case "solvers":
            parts = [getattr(solvers, name) for name in solvers.__all__]
            return {c.__name__: c for c in parts if hasattr(c, "build")}
    raise DeclarationError(f"there is no kind {kind!r}; there are {', '.join(KINDS)}")


def _is_subclass(value: Any, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def _summary(part: Any) -> str:
    """Return a part's theorem, or else its description, in one line."""
    theorem = getattr(part, "theorem", "")
    text = theorem if isinstance(theorem, str) and theorem else inspect.getdoc(part) or ""
    return " ".join(text.split("\n\n")[0].split())
