"""All that the library defines, so that names in documents are looked up among all of it.

Packages import what they offer when it is asked for. A document may name any of it, and nobody's
own class may stand in for one of the library that happens not to be imported yet.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

PACKAGES = ("accountants", "accountants.losses", "adaptive_dp")
ASIDE = frozenset({"plot", "risk", "testing"})
"""Packages inside of one that define nothing that a document names."""


@cache
def everything() -> None:
    """Import every public name of the library."""
    for name in PACKAGES:
        package = import_module(name)
        for offered in package.__all__:
            if offered not in ASIDE:
                getattr(package, offered)
