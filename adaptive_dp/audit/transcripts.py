"""Runs of a plan on made-up data, many times, with all that each of them releases.

The transcript of a run is every release in it, each round of a loop for itself, then the outputs
that are no release: what an onlooker may see by the certificate. Releases inside of a selection
stay hidden, as in a run; what it chose is seen. A run that fails shows where.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from attrs import frozen

from accountants.secret import Secret
from adaptive_dp.audit.likelihoods import INDEPENDENT, log_ratio
from adaptive_dp.audit.sides import LogRatio, Outcomes, Sampler
from adaptive_dp.graph.errors import RunError
from adaptive_dp.graph.fresh import fresh
from adaptive_dp.graph.functions import Function
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.pipeline import Pipeline
from adaptive_dp.graph.registry import is_own
from adaptive_dp.graph.run import Run, bound, rehearsed
from adaptive_dp.graph.select import Select
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Node, Structure
from adaptive_dp.noise.stream import SecureStream, SeededStream, Stream


@frozen(eq=False)
class Transcripts:
    """A plan bound to one data set, to be run again and again.

    What is not random and comes from no loop, release or foreign code is computed once; rows that
    no run reads after that are let go. The library's additive noises on such values are drawn for
    many runs by one call, each release from a stream of its own.
    """

    structure: Structure
    base: Run
    shown: tuple[str, ...]
    numeric: bool
    drawn: tuple[Node, ...]

    @classmethod
    def of(cls, plan: Pipeline, data: Mapping[str, Any]) -> Transcripts:
        """Bind data to a plan.

        Raises
        ------
        DataError
            If the data does not fit.
        """
        structure = plan.structure
        rehearsed(structure)
        base = Run(structure, 0)
        base.bind(bound(structure, {name: Secret(each) for name, each in data.items()}))
        for node in structure:
            if _fixed(node, base):
                base.value(node)
        shown = tuple(node.name for node in structure if _shown(structure, node))
        releases = all(isinstance(structure.nodes[n].handle.operation, Release) for n in shown)
        drawn = tuple(node for node in structure if _additive(structure, node, base))
        read = {n for node in structure if node.name not in base.secrets for n in node.inputs}
        for name in base.secrets.keys() - read:  # what no run reads again: rows, as a rule
            base.secrets[name] = Secret(None)
        return cls(structure, base, shown, releases, drawn)

    def one(self, seed: int | None, given: Mapping[str, Any] | None = None) -> list[Any]:
        """Return what one run shows; ``seed`` None takes the operating system's randomness.

        What some releases give may be drawn already.
        """
        run = Recorded(self.structure, seed, frozenset(self.shown), given or {})
        self.begin(run)
        try:
            run.all()
        except RunError:
            run.told.append("failed")
        return run.told

    def begin(self, run: Run) -> None:
        """Give a run what is computed once."""
        run.secrets.update(self.base.secrets)
        run.opened.update(self.base.opened)
        run.raw.update(self.base.raw)

    def sampler(self, width: int) -> Sampler:
        """Return the sampler; of numbers alone, rows of ``width`` where they end or fail early."""
        apart = {node.name for node in self.drawn} != set(self.shown)

        def sample(count: int, stream: Stream) -> Outcomes:
            ahead = self._ahead(count, stream)
            if not apart:
                return np.hstack([ahead[name].reshape(count, -1) for name in self.shown])
            runs = (
                self.one(each, {name: many[i] for name, many in ahead.items()})
                for i, each in enumerate(seeds(stream, count))
            )
            if not self.numeric:
                return [tuple(told) for told in runs]
            found = np.full((count, width), np.inf)
            for row, told in zip(found, runs, strict=True):
                numbers = flat(told)[:width]
                row[: len(numbers)] = numbers
            return found

        return sample

    def _ahead(self, count: int, stream: Stream) -> dict[str, Any]:
        """Return additive releases for so many runs, in their first axis."""
        (seed,) = seeds(stream, 1)
        found = {}
        for node in self.drawn:
            value, operation = self._value(node), node.handle.operation
            assert isinstance(operation, Release)
            many = np.broadcast_to(value, (count, *value.shape)).copy()
            source = SecureStream() if seed is None else SeededStream(seed, *node.key)
            found[node.name] = np.asarray(operation.mechanism.release(many, source))
        return found

    def _value(self, node: Node) -> np.ndarray:
        query = self.structure.of(node.handle.inputs[0]).name
        return np.array(self.base.secrets[query].reveal(), dtype=np.float64)

    def log_ratio(self, other: Transcripts) -> LogRatio | None:
        """Return the log-likelihood ratio against the other side, where all of it is known."""
        if {node.name for node in self.drawn} != set(self.shown):
            return None
        parts, at = [], 0
        mine = {node.name: node for node in self.drawn}
        for name in self.shown:
            a, b = self._value(mine[name]), other._value(mine[name])
            operation = mine[name].handle.operation
            assert isinstance(operation, Release)
            ratio = log_ratio(operation.mechanism, a, b)
            if ratio is None or a.shape != b.shape:
                return None
            parts.append((slice(at, at + a.size), ratio))
            at += a.size

        def added(outcomes: Outcomes) -> np.ndarray:
            rows = np.asarray(outcomes)
            each = np.array([ratio(rows[:, where]) for where, ratio in parts])
            return np.asarray(each.sum(axis=0))

        return added

    def width(self, runs: int = 5) -> int:
        """Return how many numbers a run shows: the most of some, for one may end early."""
        return max(1, *(len(flat(self.one(seed))) for seed in range(runs)))


class Recorded(Run):
    """A run that remembers what it shows, in order."""

    def __init__(
        self,
        structure: Structure,
        seed: int | None,
        shown: frozenset[str],
        given: Mapping[str, Any],
    ) -> None:
        super().__init__(structure, seed)
        self.shown, self.given = shown, given
        self.told: list[Any] = []
        self._watcher: Callable[[Node, Run], None] | None = None

    def watch_releases(self, watcher: Callable[[Node, Run], None]) -> None:
        """Have ``watcher(node, run)`` called after each release."""
        self._watcher = watcher

    def value(self, node: Node) -> None:
        """Compute a node's value, and note it if it is new and shown."""
        if node.name in self.opened or node.name in self.secrets:
            return
        if node.name in self.given:
            self._take(node)
        else:
            super().value(node)
        if node.name in self.shown:
            raw = isinstance(node.handle.operation, Release)
            self.told.append(self.raw[node.name] if raw else fresh(self.opened[node.name]))
            if raw and self._watcher is not None:
                self._watcher(node, self)

    def _take(self, node: Node) -> None:
        operation, query = node.handle.operation, node.handle.inputs[0].operation
        assert isinstance(operation, Release)
        assert isinstance(query, Query)
        self.raw[node.name] = np.array(self.given[node.name], dtype=np.float64)
        self.opened[node.name] = operation.presented(query, self.raw[node.name])


def flat(told: list[Any]) -> np.ndarray:
    """Return the numbers of a transcript in a row; other values are left out."""
    parts = [np.ravel(each) for each in told if isinstance(each, np.ndarray)]
    return np.concatenate(parts) if parts else np.zeros(0)


def seeds(stream: Stream, count: int) -> list[int | None]:
    """Return a seed for each run, from a seeded stream; None where randomness is real."""
    if isinstance(stream, SecureStream):
        return [None] * count
    return [int(word) for word in stream.words(count)]


def _fixed(node: Node, base: Run) -> bool:
    """Say whether a node's value is the same in each run, so that it is computed once.

    Foreign operations and functions may be random without saying so.
    """
    operation = node.handle.operation
    if node.loops or operation.random or isinstance(operation, Loop | Release):
        return False
    if node.handle.color == "released" or node.name in base.opened or node.name in base.secrets:
        return False
    foreign = any(isinstance(each, Function) for each in operation.parameters().values())
    there = [name in base.opened or name in base.secrets for name in node.inputs]
    return is_own(type(operation)) and not foreign and all(there)


def _additive(structure: Structure, node: Node, base: Run) -> bool:
    """Say whether many runs' releases may be drawn together: additive noise on what is fixed."""
    operation = node.handle.operation
    if node.loops or not isinstance(operation, Release):
        return False
    if type(operation.mechanism) not in INDEPENDENT or len(node.handle.inputs) != 1:
        return False
    query = structure.of(node.handle.inputs[0]).name
    return query in base.secrets and operation.mechanism.reads is np.ndarray


def _shown(structure: Structure, node: Node) -> bool:
    around = [structure.nodes[name].handle.operation for name in node.loops]
    operation = node.handle.operation
    if any(isinstance(each, Select) for each in around):
        return False
    if isinstance(operation, Release | Select):
        return True
    return bool(node.outputs) and node.handle.color == "released"
