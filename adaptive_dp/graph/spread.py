"""How much noise a run's outputs carry, estimated from what was released."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.loop import Loop
from adaptive_dp.graph.operation import Query
from adaptive_dp.graph.roles import PublicSource
from adaptive_dp.graph.steps import Parameter, Release
from adaptive_dp.graph.structure import Node, Path, Structure
from adaptive_dp.graph.traversal import upward
from adaptive_dp.noise.stream import SeededStream

FAILURES = (Exception, SystemExit)
"""What a user's functions may raise on other noise than they got."""


def spread(
    outputs: Iterable[tuple[Path, Handle]],
    structure: Structure,
    raw: Mapping[str, Any],
    draws: int = 256,
) -> Iterator[tuple[Path, Any]]:
    """Yield each output's expected noise: a parametric bootstrap around the released values.

    Every release that was made gets fresh noise on top, what follows is recomputed, and the
    standard deviation over the draws is the answer; for a release itself it is the mechanism's
    own, where that is known, and nothing is drawn for it. It reads released values only: ``raw``
    holds those of each release, by its name, before they take their reader's form. What is
    released is released: whatever fails here costs its own estimate and no more.
    """
    outputs = list(outputs)
    known = {name: _exact(structure.nodes[name], raw) for name in _releases(outputs, structure)}
    drawn = [pair for pair in outputs if not known.get(structure.of(pair[1]).name)]
    reached = _reached(drawn, structure)
    again = [n for n in structure if n.name in reached and not n.loops]
    samples: dict[str, list[Any]] = {n.name: [] for n in again}
    failed: set[str] = set()  # functions that fail on other noise than they got
    with np.errstate(all="ignore"):
        for k in range(draws):
            values: dict[str, Any] = {}
            for node in again:
                name = node.name
                try:
                    found = None if name in failed else _redraw(node, structure, raw, values, k)
                except FAILURES:
                    found, failed = None, failed | {name}
                values[name] = found
                samples[name].append(found)
    for path, handle in outputs:
        name = structure.of(handle).name
        yield path, _estimate(known.get(name) or samples[name])


def _releases(outputs: Iterable[tuple[Path, Handle]], structure: Structure) -> set[str]:
    return {structure.of(h).name for _, h in outputs if isinstance(h.operation, Release)}


def _reached(outputs: Iterable[tuple[Path, Handle]], structure: Structure) -> set[str]:
    """Return the nodes whose redrawn values outputs need: none that only lead to a release."""

    def needed(name: str) -> tuple[str, ...]:
        node = structure.nodes[name]
        known = isinstance(node.handle.operation, Release | Parameter | Loop)
        return () if known else node.inputs  # without a release on the way, all is in the open

    # a group's node is its result's
    return set(upward([structure.of(handle).name for _, handle in outputs], needed))


def _estimate(draws: list[Any]) -> Any:
    try:
        with np.errstate(all="ignore"):
            return _deviation(draws)
    except FAILURES:  # a value of a kind that has no deviation
        return None


def _redraw(
    node: Node, structure: Structure, raw: Mapping[str, Any], values: Mapping[str, Any], k: int
) -> Any:
    operation = node.handle.operation
    if isinstance(operation, Loop):
        return None
    if isinstance(operation, PublicSource):
        return raw[node.name]
    if isinstance(operation, Release):
        query = node.handle.inputs[0].operation
        assert isinstance(query, Query)
        if not operation.mechanism.redrawn():
            return None
        again = operation.run([raw[node.name]], SeededStream(k, *node.key))
        return operation.presented(query, again)
    if isinstance(operation, Parameter):
        return operation.run([node.handle.inputs[0].domain], SeededStream(k))
    inputs = [values[structure.of(i).name] for i in node.handle.inputs]
    if any(value is None for value in inputs):
        return None
    return operation.run(inputs, SeededStream(k))


def _exact(node: Node, raw: Mapping[str, Any]) -> list[Any]:
    """Return two draws whose standard deviation is the mechanism's; none where it is unknown.

    Where what the user wrote fails, a draw without a value, of which nothing is estimated.
    """
    release, query = node.handle.operation, node.handle.inputs[0].operation
    assert isinstance(release, Release)
    assert isinstance(query, Query)
    try:
        with np.errstate(all="ignore"):
            known = release.mechanism.deviation()
            if known is None:
                return []
            return [release.presented(query, raw[node.name] + sign * known) for sign in (-1, 1)]
    except FAILURES:
        return [None]


def _deviation(draws: list[Any]) -> Any:
    if not draws or any(draw is None for draw in draws):
        return None
    if isinstance(draws[0], Mapping):
        keys = draws[0].keys()
        if any(draw.keys() != keys for draw in draws):
            return None
        return {key: _deviation([draw[key] for draw in draws]) for key in keys}
    arrays = np.asarray(draws)
    if arrays.dtype.kind not in "biuf":
        return None
    with np.errstate(all="ignore"):
        deviation = arrays.astype(np.float64).std(axis=0)
    return float(deviation) if deviation.ndim == 0 else deviation
