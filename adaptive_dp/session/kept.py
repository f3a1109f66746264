"""The private values that all steps of a session share: its data, and what was drawn by chance."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from accountants.secret import Secret
from adaptive_dp.graph.errors import DataError
from adaptive_dp.graph.roles import PublicSource, SampleOperation, SourceOperation
from adaptive_dp.graph.run import Run, read
from adaptive_dp.graph.structure import Node


class Kept:
    """Data as they were first read, random parts and groups as they were first drawn.

    Parameters
    ----------
    data
        What the session was given, by name.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = {name: Secret(value) for name, value in data.items()}
        self._values: dict[Any, Secret[Any]] = {}

    def clear(self) -> None:
        """Let go of everything."""
        self._data.clear()
        self._values.clear()

    def bind(self, run: Run, keys: Mapping[str, str], wanted: Collection[str]) -> None:
        """Give a run what it reads of data, and of what was drawn before.

        Parameters
        ----------
        run
            To bind to.
        keys
            The identity of each node.
        wanted
            Names of the nodes that it computes.
        """
        for node in run.structure:
            operation = node.handle.operation
            if node.name not in wanted:
                continue
            kept = next((k for k in _names(node, keys) if k in self._values), None)
            if kept is not None:
                run.bind({node.name: self._values[kept]})
            elif isinstance(operation, SourceOperation | PublicSource):
                if operation.name not in self._data:
                    raise DataError(
                        f"the step reads the data set {operation.name!r}, the session has "
                        f"{sorted(self._data)}; pass it as Session({operation.name}=...)"
                    )
                bound = read(operation, self._data[operation.name], copied=True)
                self._values[keys[node.name]] = bound
                run.bind({node.name: bound})

    def keep(self, run: Run, keys: Mapping[str, str]) -> None:
        """Keep what is private and random, so that later steps read the very same."""
        sampled: set[str] = set()
        for node in run.structure:
            operation = node.handle.operation
            if isinstance(operation, SampleOperation) or sampled & set(node.inputs[:1]):
                sampled.add(node.name)  # a sample is drawn afresh for each step that is paid for
            elif operation.random and node.name in run.secrets and not node.loops:
                for name in _names(node, keys):
                    self._values.setdefault(name, run.secrets[node.name])


def _names(node: Node, keys: Mapping[str, str]) -> tuple[Any, ...]:
    """Return by what a bound or drawn value is kept: itself first, then what it is equal to."""
    itself = (node.handle.serial, tuple(keys[name] for name in node.inputs))
    return (itself, keys[node.name]) if node.handle.operation.random else (keys[node.name],)
