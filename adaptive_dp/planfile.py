"""Plans from files: a Python file that defines one, or a JSON or TOML document."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from accountants import AccountingError
from adaptive_dp.graph.document import load
from adaptive_dp.graph.errors import DocumentError, PlanError
from adaptive_dp.graph.pipeline import Pipeline


def read_plan(text: str, allow: Sequence[str] = ()) -> Pipeline:
    """Return the plan of a Python file, or of a JSON or TOML document.

    Raises
    ------
    DocumentError
        If there is no such file, or no plan in it.
    """
    file, _, name = text.partition(".py:")
    path = Path(file + ".py") if name else Path(text)
    if not path.is_file():
        raise DocumentError(f"there is no plan file {path}")
    if path.suffix != ".py":
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeError):
            raise DocumentError(f"{path} cannot be read as UTF-8 text") from None
        return load(content, allow=allow)
    module = _module(path)
    plans = {k: v for k, v in vars(module).items() if isinstance(v, Pipeline)}
    if name:
        plans = {k: v for k, v in plans.items() if k == name}
    if len(plans) != 1:
        found = ", ".join(plans) or "none"
        raise DocumentError(
            f"{path} must define one Pipeline{f' named {name}' if name else ''}, it defines "
            f"{found}; choose one with {path}:NAME"
        )
    return next(iter(plans.values()))


def _module(path: Path) -> Any:
    """Return the file as a module under its own name, so that its functions can be named."""
    known = sys.modules.get(path.stem)
    own = known is not None and getattr(known, "__file__", None) == str(path.resolve())
    if not own and (known is not None or path.stem in sys.stdlib_module_names):
        raise DocumentError(f"{path} would hide the module {path.stem!r}; rename the file")
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (PlanError, AccountingError):
        raise
    except (Exception, SystemExit) as error:
        raise DocumentError(f"{path} failed: {type(error).__name__}: {error}") from error
    return module
