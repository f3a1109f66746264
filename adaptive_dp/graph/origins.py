"""Which installed distribution a class comes from: what a certificate says of code not our own.

A certificate's proof rests on the code of every mechanism, loss, query and accountant in it. Those
of the library are tested against independent truth; of those from elsewhere it can only be said
whose they are, so that a reader can decide whether to trust them, and `verify` can tell that the
same code was asked.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

import attrs

from accountants import Accountant, PrivacyLoss
from accountants.registry import place_of
from adaptive_dp.graph.certificate import Kind, ThirdParty
from adaptive_dp.graph.fields import fields_of
from adaptive_dp.graph.plugins import published
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.structure import Structure


def label(cls: type, taken: Collection[str]) -> str:
    """Return a class's name; with its module where it is a third party's and the name is taken.

    Parameters
    ----------
    taken
        The names of the library's own classes of this sort.
    """
    return place_of(cls) if cls.__name__ in taken and not is_own(cls) else cls.__name__


def origin(module: str) -> tuple[str | None, str | None]:
    """Return the name and version of the distribution that a module is of; None where of none.

    It is the one that lists the very file that was imported; where there is none (an editable
    install), the one that publishes the module as a plug-in.
    """
    found = _holder(module) or published(module)
    return (found.name, found.version) if found is not None else (None, None)


def _holder(module: str) -> Distribution | None:
    """Return the distribution beside a module's package whose record lists the module's file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return None
    path, above = Path(file), module.count(".") + (Path(file).stem == "__init__")
    if above >= len(path.parents):
        return None
    folder = path.parents[above]
    line = path.relative_to(folder).as_posix() + ","
    for each in distributions(path=[str(folder)]):
        record = each.read_text("RECORD") or ""
        if record.startswith(line) or f"\n{line}" in record:
            return each
    return None


def third_party(
    structure: Structure,
    mechanisms: Iterable[Any],
    losses: Iterable[PrivacyLoss],
    accountants: Iterable[Accountant[Any]],
) -> tuple[ThirdParty, ...]:
    """Return a row for each class on which a certificate rests and that is not the library's."""
    operations = {type(node.handle.operation) for node in structure}
    used = list(mechanisms)
    kinds: dict[Kind, set[type]] = {
        "accountant": {type(each) for each in accountants},
        "loss": set(_inside(losses)),
        "mechanism": {type(each) for each in used},
        "query": operations,
    }
    rows = [
        ThirdParty(kind, place_of(cls), *origin(cls.__module__))
        for kind, classes in kinds.items()
        for cls in classes
        if not is_own(cls)
    ]
    names = {(type(each), name) for each in used for name in type(each).libraries}
    rows += [ThirdParty("library", place_of(c), *installed(n)) for c, n in names]
    return tuple(sorted(rows, key=lambda row: list(map(str, attrs.astuple(row)))))


def installed(name: str) -> tuple[str, str | None]:
    """Return a distribution's name and the version that is installed; None where it is not."""
    found = next(iter(distributions(name=name)), None)
    return name, found.version if found is not None else None


def _inside(losses: Iterable[Any]) -> Iterator[type]:
    """Yield the classes of losses, and of those that they are made of."""
    queue = list(losses)
    while queue:
        value = queue.pop()
        if isinstance(value, tuple | list | frozenset | set):
            queue += value
        elif isinstance(value, PrivacyLoss):
            yield type(value)
            if attrs.has(type(value)):
                queue += [getattr(value, f.name) for f in fields_of(type(value))]
