"""Bars that show how far a run is: rounds done, of a number that is public."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from adaptive_dp.graph.errors import DeclarationError
from adaptive_dp.graph.structure import Node

Watch = Callable[[Node, int], Iterable[int]]
"""Yields the rounds of a node, and may show how far it is."""


def watch(progress: bool) -> Watch:
    """Return what shows rounds, or what does not.

    Raises
    ------
    DeclarationError
        If bars are wanted, and rich is not installed.
    """
    if not progress:
        return silent
    try:
        import rich.progress  # noqa: F401
    except ImportError:
        raise DeclarationError(
            "progress bars need rich: pip install 'adaptive-dp[cli]', or run without progress=True"
        ) from None
    return bars


def silent(node: Node, rounds: int) -> Iterable[int]:
    """Yield the rounds of a node."""
    return range(rounds)


def bars(node: Node, rounds: int) -> Iterable[int]:
    """Yield the rounds of a node, with a bar on standard error if it is not inside a repeat."""
    if node.loops or rounds < 2:
        return range(rounds)
    from rich.console import Console
    from rich.progress import Progress

    progress = Progress(
        # the standard error of now: what private steps print is dropped, bars are not
        console=Console(file=sys.stderr),
        transient=True,
        # what they print is not put above the bar either
        redirect_stdout=node.handle.color != "private",
        redirect_stderr=node.handle.color != "private",
    )
    return _shown(progress, node.name, rounds)


def _shown(progress: Any, name: str, rounds: int) -> Iterator[int]:
    with progress:
        yield from progress.track(range(rounds), description=name)
