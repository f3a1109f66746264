"""Tracing a script or a notebook, in a process of its own.

The child process runs the file from its folder as Python would, and writes what was found to a
file that the parent named; what the file prints is not shown unless it is asked for. It runs with
the rights of whoever traces it.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from adaptive_dp.graph.errors import DocumentError, RunError
from adaptive_dp.tracing import recorder
from adaptive_dp.tracing.recorder import Recorder
from adaptive_dp.tracing.report import Trace, found
from adaptive_dp.tracing.rewrite import rewritten


@frozen
class Cell:
    """A piece of source: a cell of a notebook, or a whole script (number 0)."""

    number: int
    text: str


_MAGIC = re.compile(r"^\s*[%!]|^\s*\S+\?{1,2}\s*$|^\s*\?|^\s*\w+\s*=\s*[%!]")
_TIMED = ("%%time", "%%timeit", "%%capture", "%%prun")


def cells(path: Path) -> tuple[list[Cell], list[str]]:
    """Return the code of a script or a notebook, and notes on what was left out.

    Parameters
    ----------
    path
        A file with the suffix ``.py`` or ``.ipynb``.

    Raises
    ------
    DocumentError
        If it is neither, or cannot be read.
    """
    if path.suffix not in (".py", ".ipynb"):
        raise DocumentError(f"a trace reads .py and .ipynb files, got {str(path)!r}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DocumentError(f"{path} is not text in UTF-8") from None
    if path.suffix == ".py":
        return [Cell(0, text)], []
    try:
        document = json.loads(text)
        written = [
            "".join(each["source"]) for each in document["cells"] if each["cell_type"] == "code"
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise DocumentError(
            f"{path} is not a notebook of format 4 ({type(error).__name__}); open it in Jupyter "
            "and save it"
        ) from None
    made, notes = [], []
    for number, source in enumerate(written, 1):
        kept, skipped = _without_magics(source)
        made.append(Cell(number, kept))
        notes += [f"{words} (cell {number})" for words in skipped]
    return made, notes


def _without_magics(source: str) -> tuple[str, list[str]]:
    """Return a cell without IPython's own lines; each leaves an empty line."""
    lines, skipped = source.splitlines(), []
    first = next((line for line in lines if line.strip()), "")
    if first.startswith("%%"):
        word = first.split()[0]
        if word not in _TIMED:
            return "\n" * len(lines), [f"the cell of {word}, which is not Python"]
        lines[lines.index(first)] = ""
    kept = []
    for line in lines:
        if _MAGIC.match(line):
            skipped.append(f"the line {line.strip().split()[0]!r} of IPython")
            indent = line[: len(line) - len(line.lstrip())]
            kept.append(f"{indent}pass")
        else:
            kept.append(line)
    return "\n".join(kept), skipped


def run(
    path: Path | str,
    *,
    arguments: Sequence[str] = (),
    delta: float | None = None,
    shows: bool = False,
    timeout: float | None = None,
) -> Trace:
    """Trace a script or a notebook in a process of its own.

    Parameters
    ----------
    path
        The file. Its code runs, with your rights, from its folder.
    arguments
        Its command line.
    delta
        The delta of the sum; by default that of the claims.
    shows
        Whether what it prints is shown, on standard error.
    timeout
        Seconds after which it is ended; None for none.

    Raises
    ------
    DocumentError
        If the file cannot be read.
    RunError
        If the process ended without a report.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "analysis.py"
    >>> _ = file.write_text("print(1 + 1)")
    >>> run(file).clean
    True
    """
    path = Path(path)
    cells(path)  # what is wrong with the file is said before a process is started
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "trace"
        command = [
            sys.executable, "-c",
            "from adaptive_dp.tracing import runner; runner.child()",
            str(out), str(path.resolve()), json.dumps(delta), *arguments,
        ]  # fmt: skip
        where = [str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")]
        environment = {
            "MPLBACKEND": "Agg",
            **os.environ,
            "PYTHONPATH": os.pathsep.join(each for each in where if each),
        }
        stream: Any = sys.stderr.fileno() if shows else subprocess.DEVNULL
        try:
            ended = subprocess.run(
                command,
                cwd=path.resolve().parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunError(f"{path.name} ran longer than {timeout:g} s, and was ended") from None
        if not out.exists():
            raise RunError(
                f"{path.name} ended its process with code {ended.returncode} before anything could "
                "be reported: nothing is known of it"
            )
        # written by our own child, into a folder that it and we alone may read
        made: Trace = pickle.loads(out.read_bytes())
    return made


def child() -> None:
    """Run a file and write what was found: the whole of the process that `run` starts."""
    _, out, name, delta, *arguments = sys.argv
    path = Path(name)
    sys.argv = [name, *arguments]
    sys.path[0] = str(path.parent)
    made = traced(path, delta=json.loads(delta))
    Path(out).write_bytes(pickle.dumps(made))
    sys.stdout.flush()
    # what the file has left running is not waited for
    os._exit(0)


def traced(path: Path, *, delta: float | None = None) -> Trace:
    """Run a file in this process, in a module ``__main__`` of its own, and return its trace."""
    pieces, notes = cells(path)
    watcher = Recorder()
    watcher.shown = lambda value: print(repr(value))
    main = types.ModuleType("__main__")
    main.__file__ = str(path)
    before = sys.modules["__main__"]
    failed = ""
    recorder.install(watcher)
    sys.modules["__main__"] = main
    if path.suffix == ".ipynb":
        main.__dict__["display"] = _display
    try:
        for cell in pieces:
            failed = _run_cell(cell, path, watcher, main.__dict__)
            if failed:
                break
    finally:
        recorder.remove()
        sys.modules["__main__"] = before
    for note in notes:
        place, _, _ = note.rpartition(" (")
        watcher.unseen.setdefault(note, watcher.sites[0]) if watcher.sites else None
        del place
    return found(watcher, path.name, delta=delta, failed=failed)


def _display(*values: Any) -> None:
    for value in values:
        print(repr(value))


_display.__name__, _display.__module__ = "display", "IPython.display"


def _run_cell(cell: Cell, path: Path, watcher: Recorder, space: dict[str, Any]) -> str:
    """Run one cell; return how it failed, without the error's message, which may quote data."""
    import linecache

    name = f"<cell {cell.number}>" if cell.number else str(path)
    linecache.cache[name] = (len(cell.text), None, cell.text.splitlines(True), name)
    watcher.watched.add(name)
    place = f"cell {cell.number}, " if cell.number else ""
    try:
        tree = rewritten(
            ast.parse(cell.text, name),
            cell.text,
            watcher.sites,
            file="" if cell.number else path.name,
            cell=cell.number,
            shows=bool(cell.number),
        )
        code = compile(tree, name, "exec", dont_inherit=True)
    except SyntaxError as error:
        return f"SyntaxError ({place}line {error.lineno})"
    try:
        exec(code, space)
    except SystemExit as error:
        if error.code in (None, 0):
            return ""
        return f"it exited with an error ({place.rstrip(', ') or path.name})"
    except BaseException as error:
        lines = [
            each.lineno
            for each in traceback.extract_tb(error.__traceback__)
            if each.filename == name
        ]
        with suppress(Exception):
            traceback.print_exc()
        return f"{type(error).__name__} ({place}line {lines[-1] if lines else '?'})"
    return ""
