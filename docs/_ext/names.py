"""The names of reference.md, in its order and groups: what the pages of the API are made from."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import ismodule
from typing import Any, NamedTuple

PACKAGES = {"dp": "adaptive_dp", "accountants": "accountants"}
WITHIN = ("audit", "jax", "pate", "plot", "prove", "session", "statistics", "torch")
"""What is written without its package, such as ``pate.GNMax``."""


class Name(NamedTuple):
    """A public name: where it is, whether it is a method, and what it is."""

    path: str
    method: bool
    value: Any


def sections(text: str) -> list[tuple[str, list[Name]]]:
    """Return the sections of reference.md, each with its names."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    found: list[tuple[str, list[Name]]] = []
    before: list[str] = []
    for title, part in zip(parts[::2], parts[1::2], strict=True):
        found.append((title.replace("`", ""), names(part, before)))
        before += [name.path for name in found[-1][1]]
    return found


def names(part: str, before: list[str]) -> list[Name]:
    """Return the names in the first column of a section's table that none ``before`` is."""
    found: list[Name] = []
    for row in re.findall(r"^\| *(`.+)$", part, flags=re.MULTILINE):
        first, *rest = row.split(" | ")
        files = re.findall(r"\]\(\.\./([\w/]+)\.py\)", " ".join(rest))
        for i, written in enumerate(re.findall(r"`([\w.]+)[^`]*`", first.split(", as ")[0])):
            file = files[min(i, len(files) - 1)].replace("/", ".") if files else None
            known = before + [each.path for each in found]
            name = located(written, file, known)
            if name is not None and name.path not in known:
                found.append(name)
    return found


def located(written: str, file: str | None, known: list[str]) -> Name | None:
    """Return where a name is, or None for a module."""
    head, _, rest = written.partition(".")
    places = [path.rpartition(".")[0] for path in known if path.endswith("." + head)]
    if head in PACKAGES and rest:
        places, written = [PACKAGES[head]], rest
    elif head not in {*WITHIN, *PACKAGES.values()} and file is not None:
        places += [file.rpartition(".")[0], file, *(path.rpartition(".")[0] for path in known)]
    for place in [*places, "adaptive_dp", ""]:
        path = f"{place}.{written}".strip(".")
        value = reached(path)
        if value is not None:
            owner = reached(path.rpartition(".")[0])
            return None if ismodule(value) else Name(path, isinstance(owner, type), value)
    raise LookupError(f"docs/reference.md names {written!r}, which is nowhere")


def reached(path: str) -> Any:
    """Return what a dotted path leads to, or None; of a function and its file, the function."""
    parts = path.split(".")
    for k in [*range(len(parts) - 1, 0, -1), len(parts)]:
        try:
            value: Any = import_module(".".join(parts[:k]))
            for part in parts[k:]:
                value = getattr(value, part)
        except (ImportError, AttributeError):
            continue
        return value
    return None
