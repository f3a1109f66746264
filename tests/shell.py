"""The documentation's shell blocks, run here: each command must succeed."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from adaptive_dp.cli.main import main

ROOT = Path(__file__).parent.parent


@contextmanager
def own_modules() -> Iterator[None]:
    """Forget what was imported from other folders under the names here: each has its plan.py."""
    for path in Path.cwd().glob("*.py"):
        sys.modules.pop(path.stem, None)
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if Path(getattr(module, "__file__", None) or "/").parent == Path.cwd():
                del sys.modules[name]


def shelled(block: str, instead: Mapping[str, str]) -> str:
    """Run the commands of a block in this folder, and return what they print.

    Parameters
    ----------
    block
        Lines of ``adaptive-dp ...``, maybe with ``> FILE``, or ``make TARGET``, which says what
        it would do.
    instead
        What is put in place of a line's pieces that are only names for a reader's own.
    """
    shown = ""
    for line in block.splitlines():
        for written, replacement in instead.items():
            line = line.replace(written, replacement)
        program, *arguments = shlex.split(line, comments=True)
        if program == "make":
            subprocess.run(["make", "-n", *arguments], cwd=ROOT, check=True, capture_output=True)
            continue
        assert program == "adaptive-dp", line
        into = arguments[arguments.index(">") + 1] if ">" in arguments else None
        with redirect_stdout(io.StringIO()) as out:
            assert main(arguments[: arguments.index(">")] if into else arguments) == 0, line
        if into is None:
            shown += out.getvalue()
        else:
            Path(into).write_text(out.getvalue(), encoding="utf-8")
    return shown
