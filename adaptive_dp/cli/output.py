"""What every command prints: results, errors, what is going on; and the exit codes."""

from __future__ import annotations

import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import asdict

from adaptive_dp.graph.certificate import table
from adaptive_dp.graph.errors import DocumentError
from adaptive_dp.graph.values import visible
from adaptive_dp.plugins import KINDS, Listed, listed

FAILS, UNUSABLE, BROKE = 1, 2, 3
"""Exit codes: a claim does not hold; arguments, plan or data cannot be used; a run failed."""


def say(text: str) -> None:
    """Print a result; do nothing if the reader of a pipe has closed it.

    Raises
    ------
    OSError
        If it cannot be printed for another reason, such as a full disk.
    """
    try:
        print(text)
        # flushed here, so that a full disk or a closed pipe shows now and not at exit
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more when it ends: that goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # a reader that stopped early, such as `head`, is no error
        if not isinstance(error, BrokenPipeError):
            raise


def complain(text: str, code: int) -> int:
    """Print an error on one line of the standard error, and return the exit code."""
    print(f"adaptive-dp: {visible(text)}", file=sys.stderr)
    return code


def writable(*paths: Path | None) -> None:
    """Refuse a path that cannot be written, before anything is run or spent.

    Raises
    ------
    DocumentError
        If one is not a file in an existing folder that may be written.
    """
    for path in paths:
        if path is None:
            continue
        # a new file needs a folder that may be written, an old one that it may be itself
        there = path if path.exists() else path.parent
        if path.is_dir() or not path.parent.is_dir() or not os.access(there, os.W_OK):
            raise DocumentError(
                f"{path} cannot be written: it must be a file in a folder that exists, and that "
                "you may write"
            )


def replace_file(path: Path, text: str) -> None:
    """Write a file that then has all of a text, on the disk, or is what it was before.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    # beside it, so that it can take the name's place in one step
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # for its owner alone: released values are not private, but who reads them is decided later
        with open(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def status(text: str) -> Iterator[None]:
    """Show what is going on: a spinner if rich is installed and a person watches, else a line."""
    try:
        from rich.console import Console
    except ImportError:
        print(f"{text} ...", file=sys.stderr)
        yield
        return
    # on the standard error, so that the output stays what was asked for
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(text):
            yield
    else:
        print(f"{text} ...", file=sys.stderr)
        yield


@contextmanager
def counting(text: str) -> Iterator[Callable[[int, int, float], None] | None]:
    """Yield what shows runs done, of how many, and the seconds left; where a person watches."""
    if not sys.stderr.isatty():
        with status(text):
            yield None
        return
    width = 0

    def show(done: int, total: int, seconds: float) -> None:
        nonlocal width
        line = f"{text}: {done:,} of {total:,} runs, about {math.ceil(seconds):,} s left"
        # spaces over what a longer line has left there
        print(f"\r{line:{width}}", end="", file=sys.stderr, flush=True)
        width = len(line)

    print(f"{text} ...", end="", file=sys.stderr, flush=True)
    width = len(f"{text} ...")
    try:
        yield show
    finally:
        print(f"\r{' ' * width}\r", end="", file=sys.stderr, flush=True)


# -----------------------------------------------------------------------------
# What ``adaptive-dp list`` prints.


def parts(options: Namespace) -> int:
    """Print the parts of a kind, or of all kinds: name, distribution, theorem."""
    listing = {kind: listed(kind) for kind in ([options.kind] if options.kind else KINDS)}
    if options.json:
        say(json.dumps({kind: [asdict(one) for one in every] for kind, every in listing.items()}))
        return 0
    say("\n\n".join(_table(kind, every) for kind, every in listing.items()))
    return 0


def _table(kind: str, every: list[Listed]) -> str:
    """Return a table of the parts, then the plug-ins that cannot be used, with the reason."""
    rows = [
        tuple(map(visible, (one.name, f"{one.distribution} {one.version}", one.theorem)))
        for one in every
        if not one.problem
    ]
    problems = [f"BROKEN: {visible(one.problem)}" for one in every if one.problem]
    return "\n".join([table((kind, "from", "theorem"), rows, most=None), *problems])
