"""Packages whose names are imported when they are first asked for.

What a package offers stands once, in its stub (``__init__.pyi``), as the imports that type checkers
read: ``from accountants.basic import Basic as Basic``. `attach` reads the stub and gives the
package what it needs to find each name in its file (the module hooks of PEP 562), so that
``import accountants`` costs next to nothing.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package, by its stub.

    Parameters
    ----------
    package
        Its ``__name__``.
    file
        Its ``__file__``; the stub lies beside it.

    Examples
    --------
    >>> import accountants
    >>> find, names = attach("accountants", accountants.__file__)
    >>> find("Basic").__module__, "Basic" in names()
    ('accountants.basic', True)
    """
    where = offered(Path(file).with_suffix(".pyi"))

    def find(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = where[name]
        if module == package:  # a package inside of this one
            return import_module(f"{package}.{name}")
        holder = import_module(module)
        if not hasattr(holder, name):  # a module of a room, such as ``adaptive_dp.reports.plot``
            import_module(f"{module}.{name}")
        value = getattr(holder, name)
        setattr(sys.modules[package], name, value)
        return value

    return find, lambda: sorted(where)


def offered(stub: Path) -> dict[str, str]:
    """Return the modules that a stub imports its names from, by name."""
    modules = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module != "typing":
            for alias in node.names:
                modules[alias.asname or alias.name] = str(node.module)
    return modules
