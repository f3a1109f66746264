"""What was released, for whoever asks for the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.run import Run
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node
from adaptive_dp.session import values
from adaptive_dp.session.identity import LOCAL
from adaptive_dp.session.needs import pays


class Known:
    """Released values by identity: as they are here, or as the ledger has them until asked for."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._raw: dict[str, Any] = {}

    def has(self, node: Node, key: str) -> bool:
        """Whether a release or a loop was made before."""
        return pays(node) and (key in self.values or key in self._raw)

    def value(self, node: Node, key: str) -> Any:
        """Return what was released before."""
        if key not in self.values:
            value, operation = values.read(self._raw[key]), node.handle.operation
            if isinstance(operation, Release):
                query = node.handle.inputs[0].operation
                assert isinstance(query, Query)
                value = operation.presented(query, value)
            self.values[key] = value
        return self.values[key]

    def take(self, written: Mapping[str, Any]) -> None:
        """Take in the values of an entry of the ledger; the first of each stays."""
        for key, value in written.items():
            self._raw.setdefault(key, value)

    def add(self, run: Run, keys: Mapping[str, str], new: Iterable[Node]) -> None:
        """Take in what a run has released; the first of each stays."""
        for node in new:
            if keys[node.name] not in self._raw:  # else another session released it first
                self.values.setdefault(keys[node.name], run.opened[node.name])


def written(run: Run, keys: Mapping[str, str], new: Iterable[Node]) -> dict[str, Any]:
    """Return what a run has released, as a ledger keeps it.

    A value with no form there, or an identity with no meaning elsewhere, is left out: it is known
    to this session alone.
    """
    found = {}
    for node in new:
        key, raw = keys[node.name], run.raw.get(node.name)
        if LOCAL in key:
            continue
        try:
            found[key] = values.written(run.opened[node.name] if raw is None else raw)
        except TypeError:
            continue
    return found
