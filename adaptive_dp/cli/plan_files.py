"""Plans from files: a Python file that defines one, or a JSON or TOML document."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accountants import AccountingError
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DocumentError, PlanError, RunError
from adaptive_dp.graph.plan import Pipeline


def read_plan(text: str, allow: Sequence[str] = ()) -> Pipeline:
    """Return the plan of a Python file, or of a JSON or TOML document.

    Parameters
    ----------
    text
        ``FILE.py``, ``FILE.py:NAME``, ``FILE.json`` or ``FILE.toml``.
    allow
        Modules from which a document's own mechanisms may be imported. Where there are any, the
        document's folder and the working directory are on the import path, after all else.

    Raises
    ------
    DocumentError
        If there is no such file, or no plan in it; with the file, and its line where it has one.
    """
    # FILE.py:NAME; without ":NAME" the whole text is the path, of a Python file or a document
    file, _, name = text.partition(".py:")
    path = Path(file + ".py") if name else Path(text)
    if not path.is_file():
        raise DocumentError(f"there is no plan file {path}")
    if path.suffix == ".py":
        return _chosen(path, name, _module(path))
    content = content_of(path)
    importable(path, allow)
    try:
        return load(content, allow=allow)
    except (PlanError, AccountingError) as error:
        raise DocumentError(f"{path}: {error}") from None


def content_of(path: Path) -> str:
    """Return a file's content.

    Raises
    ------
    DocumentError
        If it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeError:
        raise DocumentError(f"{path} cannot be read as UTF-8 text") from None
    except OSError as error:
        raise DocumentError(f"{path} cannot be read: {error.strerror or error}") from None


def importable(file: Path, allow: Sequence[str]) -> None:
    """Let what is allowed be imported from beside a file, and from the working directory."""
    for folder in (file.parent.resolve(), Path.cwd()) if allow else ():
        if str(folder) not in sys.path:
            # after all else: a file beside a document cannot replace an installed module
            sys.path.append(str(folder))


def read_function(text: str) -> Callable[..., Any]:
    """Return the function of ``FILE.py:NAME``.

    Raises
    ------
    DocumentError
        If there is no such file, or no such function in it.
    """
    file, _, name = text.partition(".py:")
    path = Path(file + ".py")
    if not name or not path.is_file():
        raise DocumentError(f"{text} is no function of a Python file; write FILE.py:NAME")
    found = vars(_module(path)).get(name)
    if not callable(found):
        raise DocumentError(f"{path} defines no function named {name!r}")
    function: Callable[..., Any] = found
    return function


def _chosen(path: Path, name: str, module: Any) -> Pipeline:
    """Return the plan of a name; without one, the only plan there is."""
    plans = {k: v for k, v in vars(module).items() if isinstance(v, Pipeline)}
    names = ", ".join(plans)
    if not plans:
        raise DocumentError(
            f"{path} defines no Pipeline; write one at its top level, such as "
            "plan = dp.Pipeline(count=count)"
        )
    if name:
        if name not in plans:
            raise DocumentError(f"{path} defines no Pipeline named {name!r}; it defines {names}")
        return plans[name]
    # two names of one plan are no ambiguity
    if len({id(plan) for plan in plans.values()}) > 1:
        raise DocumentError(
            f"{path} defines several Pipelines: {names}; choose one with {path}:{next(iter(plans))}"
        )
    return next(iter(plans.values()))


def _module(path: Path) -> Any:
    """Return the file as a module under its own name, so that its functions can be named."""
    # imported under its own name, so a file with the name of another module would hide that module
    loaded = sys.modules.get(path.stem)
    own = loaded is not None and getattr(loaded, "__file__", None) == str(path.resolve())
    if not own and (loaded is not None or path.stem in sys.stdlib_module_names):
        raise DocumentError(f"{path} would hide the module {path.stem!r}; rename the file")
    # first on the path, as when Python runs the file, so that it can import what lies beside it
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # before it runs, as an import does: the file's classes are looked up there by module name
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # removed, as a failed import does: a later import must not get a half-initialized module
        del sys.modules[path.stem]
        message = error.msg if isinstance(error, SyntaxError) else error
        failed = f"{path} failed{_line(path, error)}: {type(error).__name__}: {message}"
        raise (RunError if isinstance(error, RunError) else DocumentError)(failed) from error
    return module


def _line(path: Path, error: BaseException) -> str:
    """Return the line of a file at which it failed."""
    file = str(path.resolve())
    if isinstance(error, SyntaxError) and error.filename == file:
        return f" at line {error.lineno}"
    # the last frame in the file is the innermost: the line that failed, not the one that called
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == file]
    return f" at line {lines[-1]}" if lines else ""
