"""Solving the free parameters of a plan for a total budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

import accountants
from accountants import Accountant
from accountants.calibration import least_noise
from adaptive_dp.graph import compile as compiler
from adaptive_dp.graph.charge import releases
from adaptive_dp.graph.convert import POSITIVE, number, positive
from adaptive_dp.graph.errors import CalibrationError
from adaptive_dp.graph.fields import evolved
from adaptive_dp.graph.handles import Handle
from adaptive_dp.graph.mechanism import Mechanism
from adaptive_dp.graph.operation import Operation, require
from adaptive_dp.graph.steps import Release
from adaptive_dp.graph.structure import Path, Structure, structure
from adaptive_dp.graph.traversal import rewritten

Outputs = Sequence[tuple[Path, Handle]]


def free_weights(nodes: Structure) -> dict[str, list[float]]:
    """Return the weights under each free parameter's name."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        if isinstance(node.handle.operation, Release):
            for free in node.handle.operation.mechanism.free().values():
                found.setdefault(free.name, []).append(free.factor)
    return found


def solve(
    outputs: Outputs, epsilon: float, delta: float, chosen: Sequence[Accountant[Any]]
) -> list[tuple[Path, Handle]]:
    """Return the outputs with every free parameter solved (see `Pipeline.calibrate`)."""
    return scaled(outputs, multiplier(outputs, epsilon, delta, chosen))


def scaled(outputs: Outputs, multiplier: float) -> list[tuple[Path, Handle]]:
    """Return the outputs with every free parameter at a multiple of its weight."""
    return mapped(outputs, lambda mechanism: mechanism.fixed(multiplier))


def multiplier(
    outputs: Outputs, epsilon: float, delta: float, chosen: Sequence[Accountant[Any]]
) -> float:
    """Return the least multiple of the weights at which the outputs keep a budget."""
    epsilon = number(epsilon)
    require(positive(epsilon), f"calibrate's epsilon must be a {POSITIVE}, got {epsilon!r}")
    require(
        bool(free_weights(structure(outputs))),
        "nothing is free to calibrate; give a mechanism a free parameter, such as "
        "dp.Laplace(scale=dp.Free('b'))",
    )

    def cost(multiple: float, asked: Sequence[Accountant[Any]]) -> tuple[float, Any]:
        worlds = accountants.worlds(compiler.term(releases(structure(scaled(outputs, multiple)))))
        answers = [accountants.measure(worlds, a, delta=delta) for a in asked]
        known = [a for a in answers if a.bounds is not None]
        if not known:
            return math.inf, None
        best = min(known, key=lambda a: a.bounds.upper if a.bounds else math.inf)
        return (best.bounds.upper if best.bounds else math.inf), best.accountant

    try:
        # the accountant that is tightest near the target, then the one that is so at the answer
        start = least_noise(lambda m: cost(m, chosen)[0], epsilon, digits=1e-2)
        _, tightest = cost(start, chosen)
        return least_noise(lambda m: cost(m, [tightest])[0], epsilon, start=start)
    except accountants.DomainError as error:
        raise CalibrationError(
            f"cannot meet epsilon={epsilon:g}, delta={delta:g}: {error}"
        ) from None


def substituted(outputs: Outputs, values: Mapping[str, float]) -> list[tuple[Path, Handle]]:
    """Return the outputs with free parameters set by name, each times its weight."""
    values = {name: number(value) for name, value in values.items()}
    for name, value in values.items():
        require(positive(value), f"{name} must be a {POSITIVE}, got {value!r}")

    def change(mechanism: Mechanism) -> Mechanism:
        found = {k: f for k, f in mechanism.free().items() if f.name in values}
        return evolved(mechanism, **{k: values[f.name] * f.factor for k, f in found.items()})

    return mapped(outputs, change)


def mapped(outputs: Outputs, change: Callable[[Mechanism], Mechanism]) -> list[tuple[Path, Handle]]:
    """Return the outputs with every mechanism changed; handles that stay are kept."""

    def changed(handle: Handle) -> Operation:
        operation = handle.operation
        if not isinstance(operation, Release):
            return operation
        mechanism = change(operation.mechanism)
        same = mechanism is operation.mechanism
        return operation if same else evolve(operation, mechanism=mechanism)

    found = rewritten([handle for _, handle in outputs], changed)
    return [(path, found[handle]) for path, handle in outputs]
