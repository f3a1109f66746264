"""Plug-ins: what other distributions publish by entry points, found without importing any of it.

A distribution publishes a plug-in by a line of its metadata, here in its pyproject.toml::

    [project.entry-points."adaptive_dp.accountants"]
    tightest = "their_package.tightest:Tightest"

Nothing is registered at run time, and importing the library imports no plug-in: `entries` reads
metadata, `resolved` imports one. Names of the library's own cannot be taken.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib.metadata import Distribution, EntryPoint, entry_points
from typing import Any

import accountants
from accountants import Accountant
from adaptive_dp.graph.errors import PluginError

PREFIX = "adaptive_dp."
KINDS = ("mechanisms", "accountants", "losses", "queries", "solvers")
"""The kinds of plug-ins; the group of entry points is ``adaptive_dp.`` and the kind."""

OURS: Mapping[str, Accountant[Any]] = {each.name: each for each in accountants.ACCOUNTANTS}


def entries(kind: str) -> list[EntryPoint]:
    """Return what is published of a kind, by name; the library's own distribution apart."""
    found = {(e.name, e.value, _holder(e)): e for e in entry_points(group=PREFIX + kind)}
    return [found[key] for key in sorted(found)]


def _holder(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"


def titled(entry: EntryPoint) -> str:
    """Return a plug-in with where it is from, for messages."""
    return f"the plug-in {entry.name!r} of {_holder(entry)} ({entry.group}: {entry.value})"


def published(module: str) -> Distribution | None:
    """Return the distribution that publishes a plug-in from a module."""
    for kind in KINDS:
        for entry in entry_points(group=PREFIX + kind):
            if entry.module == module and entry.dist is not None:
                return entry.dist
    return None


def usable(
    entry: EntryPoint, builtin: Collection[str], every: Collection[EntryPoint]
) -> PluginError | None:
    """Return why a name cannot be used, if so: it is the library's, or two plug-ins have it."""
    name = entry.name.casefold()
    if name in {each.casefold() for each in builtin}:
        return PluginError(
            f"{titled(entry)} is not used: {entry.name!r} is a name of the library's own, which "
            "no plug-in can take; it must be published under another"
        )
    others = [each for each in every if each.name.casefold() == name and each is not entry]
    if others:
        return PluginError(
            f"{titled(entry)} is not used: {titled(others[0])} has the same name, so that neither "
            "is meant; uninstall one of them"
        )
    return None


def resolved(entry: EntryPoint) -> Any:
    """Return what an entry point names, imported.

    Raises
    ------
    PluginError
        Whatever its code raises; with the plug-in's name and distribution.
    """
    try:
        return entry.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # their code may raise anything, SystemExit too
        raise PluginError(
            f"{titled(entry)} cannot be imported: {type(error).__name__}: {error}"
        ) from error


def accountant(entry: EntryPoint) -> Accountant[Any]:
    """Return the accountant that an entry point names: an instance, or a class without parameters.

    Raises
    ------
    PluginError
        If it is no accountant, or calls itself by another name.
    """
    found = resolved(entry)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise PluginError(
                f"{titled(entry)} cannot be made without arguments ({type(error).__name__}: "
                f"{error}); publish an instance"
            ) from error
    parts = ("name", "theorem", "adaptive", "start", "compose", "epsilon", "delta", "price")
    missing = [part for part in (*parts, "conversion") if not hasattr(found, part)]
    if missing:
        raise PluginError(
            f"{titled(entry)} is no accountant: it lacks {', '.join(missing)} (see "
            "accountants.Accountant)"
        )
    if found.name != entry.name:
        raise PluginError(
            f"{titled(entry)} calls itself {found.name!r} in certificates; a certificate is "
            "verified by that name, so publish it under the same"
        )
    return found  # type: ignore[no-any-return]


def allowed_accountant(name: str, allow: Collection[str]) -> Accountant[Any] | PluginError:
    """Return a published accountant, if its module is allowed; else why it cannot be asked."""
    every = entries("accountants")
    known = [entry for entry in every if entry.name == name]
    if not known:
        return PluginError(
            f"the accountant {name!r} is unknown: the library has none of that name, and no "
            "installed distribution publishes it, so that its bound cannot be recomputed"
        )
    entry = known[0]
    problem = usable(entry, OURS, every)
    if problem is not None:
        return problem
    if entry.module not in allow:
        return PluginError(
            f"{titled(entry)} is not part of the library; importing it runs its module's code. If "
            f"you trust it, allow it: allow=[{entry.module!r}], or --allow {entry.module} on the "
            "command line"
        )
    try:
        return accountant(entry)
    except PluginError as error:
        return error
